"""Steps of instructions that relate to a picture in CITE's ways.

A step orders something. The picture shows its result where what is ordered holds in the scene, the
time before it where it does not hold, the time of it where it is going on. The wording is the same
for the most part, so that it takes the picture to tell which.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from mmlib.core.paths import table_beside
from mmlib.papers.coherence.data.clue_texts import LIVELY, fitting, is_living, place, protagonist
from mmlib.world import words
from mmlib.world.habits import HABITAT, PALETTE
from mmlib.world.scenes import actions_in, pick, pick_weighted
from mmlib.world.schema import GROUP_OF, Scene
from mmlib.world.stories import describe, with_article

_PHRASES: dict[str, Any] = table_beside(__file__)
_WHERE, _OPPOSITE, _TIES = (_PHRASES[name] for name in ("where", "opposite", "ties"))


def cite_text(scene: Scene, holds: frozenset[str], rng: np.random.Generator) -> str:
    """A step of an instruction for which exactly the relations in `holds` hold of `scene`."""
    return fitting(lambda brief: _Step(scene, holds, rng, brief).text(), 40)


@dataclass
class _Step:
    """A CITE text in the making."""

    scene: Scene
    holds: frozenset[str]
    rng: np.random.Generator
    brief: bool = False

    def __post_init__(self) -> None:
        things = range(len(self.scene.things))
        self.tool: int | None = None  # in the picture, but not named
        if "Q5" in self.holds:
            loose = [i for i in things if GROUP_OF[self.kind(i)] == "thing"]
            self.tool = pick(self.rng, loose or list(things))
        unnamed = None if self.tool is None else self.kind(self.tool)
        self.free = [i for i in things if self.kind(i) != unnamed]
        self.nouns: dict[int, str] = {}  # of the things named so far

    def text(self) -> str:
        sentences = self.shown() if "Q2" in self.holds else self.aside()
        if "Q4" in self.holds:
            n, m, k = 5 * self.number(2, 9), 50 * self.number(1, 9), self.number(2, 9)
            at = self.number(0 if len(sentences) > 1 else 1, len(sentences))
            sentences.insert(at, self.phrase("amounts").format(n=n, m=m, k=k))
        return " ".join(sentence[0].upper() + sentence[1:] + "." for sentence in sentences)

    def shown(self) -> list[str]:
        """Sentences on what the picture shows: its result, what goes on, what comes next."""
        sentences = [self.order(done=True)] if "Q7" in self.holds else []
        sentences += [self.during()] if "Q8" in self.holds else []
        sentences += [self.order(done=False)] if "Q6" in self.holds else []
        sentences = sentences or [self.plan()]
        if "Q3" in self.holds:
            at = int(self.rng.random() * len(sentences))
            sentences[at] += f", {self.phrase('point')}"
        if self.tool is not None:
            sentences.append(self.phrase("tools").format(look=self.look(self.tool)))
        return sentences

    def aside(self) -> list[str]:
        """A step that cannot be seen; a kind of the scene is mentioned, but not in it."""
        kind = self.noun(protagonist(self.rng, self.scene))
        mention = self.phrase("later").format(kind=kind)
        sentences = [self.phrase("aside"), mention]
        return sentences if self.rng.random() < 0.6 else sentences[::-1]

    # --- Sentences ---

    def order(self, done: bool) -> str:
        """An order that has been followed in the picture (`done`), or has not been yet."""
        rng, text = self.rng, None
        makers = [self.put, self.paint, self.pose]
        weights = [0.7, 0.15, 0.15] if done else [0.3, 0.35, 0.35]
        if done or rng.random() < 0.75:
            for at in rng.choice(3, 3, replace=False, p=weights):
                text = text or makers[at](done)
        if not text and done:
            start = self.phrase("start")
            text = start.format(self.name(self.topic(), new=True), place(self.scene, rng))
        if not text:
            others = sorted(HABITAT[self.scene.setting] - {t.kind for t in self.scene.things})
            new = with_article(self.noun(pick(rng, others)))
            text = self.phrase("change").format(x=self.name(self.topic()), new=new)
        return self.opener() + text

    def put(self, done: bool) -> str | None:
        """To bring something into a relation: one that holds, or the opposite of one."""
        rng = self.rng
        edges = self.edges()
        if not done:
            edges = {
                (i, _OPPOSITE[relation], j): 1.0
                for i, relation, j in edges
                if relation in _OPPOSITE and self.alone(i) and self.alone(j)
            }
        if not edges:
            return None
        i, relation, j = pick_weighted(rng, edges)
        first, second = self.name(i, new=relation != "holding"), self.name(j, new=True)
        if relation == "holding":
            return f"{pick(rng, ('give', 'hand'))} {first} {second}"
        if relation == "riding":
            return self.phrase("mount").format(first, second)
        verbs = {"sitting": "sit", "lying": "lie", "standing": "stand"}
        if relation == "on" and (verb := verbs.get(self.scene.things[i].action or "")):
            return f"{pick(rng, ('let', 'have'))} {first} {verb} on {second}"
        preposition = pick(rng, _WHERE[relation])
        return f"{self.phrase('put')} {first} {preposition} {second}"

    def edges(self) -> dict[tuple[int, str, int], float]:
        """The relations of nameable things, by how much one would speak of them."""
        close = ("holding", "riding", "on")
        tied = {frozenset(e[::2]) for e in self.scene.relations if e[1] in (*close, "chasing")}
        return {
            e: 4.0 if e[1] in close else 1.0
            for e in self.scene.relations
            if e[0] in self.free and e[2] in self.free
            if e[1] in close or (e[1] != "chasing" and frozenset(e[::2]) not in tied)
        }

    def paint(self, done: bool) -> str | None:
        """To paint something in the colour that it has, or in another one."""
        can = [i for i in self.free if GROUP_OF[self.kind(i)] in ("vehicle", "building", "thing")]
        can = [i for i in can if done or self.alone(i)]
        if not can or (done and self.scene.style == "black and white"):
            return None
        i = pick(self.rng, can)
        colour = self.scene.things[i].colour
        if not done:
            colour = pick(self.rng, [c for c in PALETTE[self.kind(i)] if c != colour])
        return self.phrase("paint").format(x=self.name(i, looks=False), colour=colour)

    def pose(self, done: bool) -> str | None:
        """To have somebody rest as in the picture, or do what nobody of the kind does there."""
        tied = {i for e in self.scene.relations if e[1] in _TIES for i in e[::2]}
        can = [i for i in self.free if is_living(self.kind(i)) and i not in tied]
        can = [i for i in can if (self.action(i) not in LIVELY if done else self.alone(i))]
        if not can:
            return None
        i = pick(self.rng, can)
        action = self.action(i)
        if not done:
            able = [a for a in actions_in(self.kind(i), self.scene.setting) if a]
            able = [a for a in able if (a in LIVELY) != (action in LIVELY)]
            action = pick(self.rng, able)
        return self.let(i, action)

    def during(self) -> str:
        """An order that is being followed in the picture."""
        rng = self.rng
        ties = [e for e in self.scene.relations if e[1] in _TIES and {e[0], e[2]} <= set(self.free)]
        if ties and rng.random() < 0.8:
            i, relation, j = pick(rng, ties)
            x, y = self.name(i), self.name(j, new=True)
            if rng.random() < 0.5:
                do = f"{_TIES[relation]} {y}"
                return self.opener() + self.phrase("let").format(x=x, do=do)
            return self.phrase("keep").format(x=x, doing=f"{relation} {y}")
        alive = [i for i in self.free if is_living(self.kind(i))]
        lively = [i for i in self.free if self.action(i) in LIVELY]
        if not alive and not lively:
            return self.phrase("hold").format(x=self.name(self.topic()))
        i = pick(rng, lively or alive)
        action = self.action(i)
        if lively and rng.random() < 0.6:
            return self.opener() + self.let(i, action)
        swims = action == "floating" and is_living(self.kind(i))
        return self.phrase("keep").format(x=self.name(i), doing="swimming" if swims else action)

    def opener(self) -> str:
        return "" if self.brief else self.phrase("openers")

    def let(self, i: int, action: str) -> str:
        """An order to somebody to do something."""
        table, kind = words.VERBS[action], self.kind(i)
        forms = [form for key in (kind, GROUP_OF[kind]) for form in table.get(key, "").split(", ")]
        verbs = [last for form in forms if (last := "".join(form.split("|")[2:3]))]
        return self.phrase("let").format(x=self.name(i), do=pick(self.rng, verbs))

    def plan(self) -> str:
        """What to think of, with no word on when."""
        i = self.topic()
        plan = self.phrase("plan")
        if "{x}" in plan:
            return plan.format(x=self.name(i))
        names = [self.name(i, new=True)]
        if len(self.free) > 1 and self.rng.random() < 0.6:
            names.append(self.name(pick(self.rng, [j for j in self.free if j != i]), new=True))
        return plan.format(a=" and ".join(names))

    # --- Words ---

    def noun(self, kind: str) -> str:
        """One of the nouns for a kind, in the singular."""
        return pick(self.rng, words.NOUNS[kind]).split("/")[0]

    def phrase(self, kind: str) -> str:
        """One of the phrases of a kind."""
        return pick(self.rng, _PHRASES[kind])

    def number(self, low: int, high: int) -> int:
        """From low to high, both included."""
        return int(self.rng.integers(low, high + 1))

    def kind(self, i: int) -> str:
        return self.scene.things[i].kind

    def action(self, i: int) -> str:
        return self.scene.things[i].action or "standing"

    def topic(self) -> int:
        """Something to speak of, if possible something spoken of before; -1 for what is unnamed."""
        if self.nouns and self.rng.random() < 0.7:
            return pick(self.rng, list(self.nouns))
        return pick(self.rng, self.free) if self.free else -1

    def alone(self, i: int) -> bool:
        """Whether it is the only thing of its kind."""
        return [t.kind for t in self.scene.things].count(self.kind(i)) == 1

    def name(self, i: int, new: bool = False, looks: bool = True) -> str:
        """ "a small red tent" or "the tent"; "your work" where nothing may be named."""
        if i < 0:
            return "your work"
        if i in self.nouns:
            return f"the {self.nouns[i]}"
        item = self.scene.things[i]
        text = word = self.noun(item.kind)
        again = word in self.nouns.values()
        self.nouns[i] = word
        if looks and not self.brief and self.rng.random() < 0.6:
            text = describe(item, self.scene.style, article=False).replace(item.kind, word)
        if again:
            return f"the other {text}"
        return with_article(text) if new else f"the {text}"

    def look(self, i: int) -> str:
        """One property of a thing, as the style shows it."""
        item = self.scene.things[i]
        looks = [item.colour] if self.scene.style != "black and white" else []
        looks += [item.pattern] if item.pattern != "plain" else []
        looks += [item.size] if item.size != "medium" else []
        return pick(self.rng, looks or ["of medium size"])
