"""Texts for which chosen relations hold of a scene: captions in Clue's ways, steps in CITE's.

A step orders something. The picture shows its result where what is ordered holds in the scene, the
time before it where it does not hold, the time of it where it is going on. The wording is the same
for the most part, so that it takes the picture to tell which.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mmlib.core.paths import table_beside
from mmlib.world import words
from mmlib.world.captions import Writer
from mmlib.world.graphs import CaptionGraph
from mmlib.world.habits import HABITAT, PALETTE
from mmlib.world.logic import satisfies
from mmlib.world.scenes import actions_in, pick, pick_weighted
from mmlib.world.schema import GROUP_OF, Scene
from mmlib.world.stories import describe, with_article

LIVELY = {"walking", "running", "jumping", "flying", "floating", "moving", "eating"}
_TABLES = table_beside(__file__)
_CLUE, _CITE = _TABLES["clue"], _TABLES["cite"]
_TRIES = 60


def _fitting(write: Callable[[bool], str], longest: int) -> str:
    for attempt in range(_TRIES):
        text = write(attempt > 5)
        if 4 <= len(text.split()) <= longest:
            return text
    raise AssertionError(f"no text of 4 to {longest} words: {text!r}")


def _is_living(kind: str) -> bool:
    return GROUP_OF[kind] in ("person", "animal")


def _protagonist(scene: Scene, rng: np.random.Generator) -> str:
    return pick_weighted(rng, {t.kind: 4.0 if _is_living(t.kind) else 1.0 for t in scene.things})


def _place(scene: Scene, rng: np.random.Generator | None = None) -> str:
    phrases = [p.split(":") for p in words.PLACES[scene.setting]["any"].split(", ")]
    options = [phrase for phrase, noun in phrases if noun not in ("day", "winter")]
    return pick(rng, options) if rng else options[0]


# --- Clue ----------------------------------------------------------------------------------------


def clue_text(scene: Scene, about: Scene, holds: frozenset[str], rng: np.random.Generator) -> str:
    """A text about a scene for which exactly the relations in `holds` hold of `scene`."""

    def write(brief: bool) -> str:
        if not holds & {"Visible", "Irrelevant"}:
            text = _unseen(about, holds, rng)
            judges = "Subjective" in holds and bool(holds & {"Story", "Action"})
        else:
            text, living = _seen(scene, about, holds, rng, brief)
            judges = "Subjective" in holds
            if "Story" in holds and rng.random() < 0.4 and "Meta" not in holds:
                text = f"{pick(rng, _CLUE['before'])} {text}"
            elif "Story" in holds:
                text += pick(rng, _CLUE["after"] + living * _CLUE["after_living"])
        if judges and rng.random() < 0.5 and ":" not in text:
            text = f"{pick(rng, _CLUE['cheers'])} {text}"
        elif judges:
            text += pick(rng, _CLUE["sighs"])
        return text

    return _fitting(write, 25)


def _seen(
    scene: Scene, about: Scene, holds: frozenset[str], rng: np.random.Generator, brief: bool
) -> tuple[str, bool]:
    event, living = "Action" in holds, False
    lively = event and any(actor.action in LIVELY for actor in about.things)
    for _ in range(_TRIES):
        writer = Writer(about, rng)
        clause = writer.clauses(pick(rng, (1, 2) if brief else (1, 2, 2, 3, 3)))[0]
        acts = any(("action", name) in node.facts for node in writer.nodes for name in LIVELY)
        eventful = acts or any(
            edge.relation in ("riding", "chasing")
            or edge.words.split()[0] in ("flying", "carrying")
            for edge in writer.edges
        )
        if eventful != lively or (lively and not clause.participle):
            continue
        end = "" if clause.closed or rng.random() >= 0.5 else writer.end(clause)
        setting = about.setting if end else None
        graph = CaptionGraph(tuple(writer.nodes), tuple(writer.edges), setting)
        if about is scene or not satisfies(scene, graph):  # true of no other scene
            living = _is_living(about.things[next(iter(writer.node_of))].kind)
            bare = clause.bare + end
            sentence = writer.finite(clause) + end if lively else bare
            break
    else:  # a plain way out
        item = pick(rng, [t for t in about.things if t.action in LIVELY or not lively])
        name, doing = describe(item, about.style), item.action or _place(about)
        bare, sentence = f"{name} {doing}", f"{name} is {doing}"
    if event and not lively:
        going_on, goes_on = pick(rng, _CLUE["weather"]).split("|")
        bare, sentence = f"{going_on} {bare}", f"{goes_on} {bare}"
    text = sentence if event else bare
    if "Meta" in holds and rng.random() < 0.75:
        text = f"{pick(rng, _CLUE['pictures'])} {bare}"
    elif "Meta" in holds:
        text = f"{pick(rng, _CLUE['in_pictures'])} {text}"
    return text, living


def _unseen(about: Scene, holds: frozenset[str], rng: np.random.Generator) -> str:
    kind = _protagonist(about, rng)
    living = _is_living(kind)
    if "Story" in holds:
        past = "life" if living else "origin"
        sad = [] if "Subjective" in holds else _CLUE[f"sad_{past}"]
        text = "{the} " + pick(rng, _CLUE[past] + sad)
        if "Action" in holds and living:
            event = pick(rng, _CLUE["going_on"]).removeprefix("{the}")
            text += " and" + event.replace("is", "is now", 1)
        elif "Action" in holds:
            text += f", while {pick(rng, _CLUE['passing']).replace('{the}', 'it')}"
    elif "Action" in holds:
        text = pick(rng, _CLUE["going_on" if living else "passing"])
    elif "Subjective" in holds:
        text = pick(rng, _CLUE["judged"])
    else:
        options = _CLUE["about" if "Meta" in holds else "names"]
        text = pick(rng, options[: len(options) // (2 if GROUP_OF[kind] == "person" else 1)])
    singular, plural = pick(rng, words.NOUNS[kind]).split("/")
    setting = words.PLACES[about.setting]["any"].split(", ")[0].split(":")[1]
    text = text.format(
        the=f"the {singular}", kind=singular, kinds=plural, place=setting, where=_place(about, rng),
        **{name: pick(rng, _CLUE[name]) for name in ("when", "since", "town", "who")},
    )  # fmt: skip
    if "Meta" in holds and holds & {"Story", "Action", "Subjective"}:
        return f"{pick(rng, _CLUE['in_pictures'])} {text}"
    return text


# --- CITE ----------------------------------------------------------------------------------------


def cite_text(scene: Scene, holds: frozenset[str], rng: np.random.Generator) -> str:
    """A step of an instruction for which exactly the relations in `holds` hold of `scene`."""
    return _fitting(lambda brief: _Step(scene, holds, rng, brief).text(), 40)


@dataclass
class _Step:
    scene: Scene
    holds: frozenset[str]
    rng: np.random.Generator
    brief: bool

    def __post_init__(self) -> None:
        self.kinds = [t.kind for t in self.scene.things]
        self.actions = [t.action or "standing" for t in self.scene.things]
        things = range(len(self.kinds))
        self.tool: int | None = None  # in the picture, but not named
        if "Q5" in self.holds:
            loose = [i for i in things if GROUP_OF[self.kinds[i]] == "thing"]
            self.tool = pick(self.rng, loose or list(things))
        unnamed = None if self.tool is None else self.kinds[self.tool]
        self.free = [i for i in things if self.kinds[i] != unnamed]
        self.nouns: dict[int, str] = {}  # of the things named so far

    def phrase(self, key: str) -> str:
        return pick(self.rng, _CITE[key])

    def text(self) -> str:
        rng, holds = self.rng, self.holds
        if "Q2" in holds:  # what the picture shows: its result, what goes on, what comes next
            sentences = [self.order(done=True)] if "Q7" in holds else []
            sentences += [self.during()] if "Q8" in holds else []
            sentences += [self.order(done=False)] if "Q6" in holds else []
            sentences = sentences or [self.plan()]
            if "Q3" in holds:
                at = int(rng.random() * len(sentences))
                sentences[at] += f", {self.phrase('point')}"
            if self.tool is not None:
                item = self.scene.things[self.tool]
                looks = [item.colour] if self.scene.style != "black and white" else []
                looks += [item.pattern] if item.pattern != "plain" else []
                looks += [item.size] if item.size != "medium" else []
                tools = self.phrase("tools")
                sentences.append(tools.format(look=pick(rng, looks or ["of medium size"])))
        else:  # what cannot be seen; a kind of the scene is mentioned, but not in it
            noun = self.noun(_protagonist(self.scene, rng))
            later = self.phrase("later").format(kind=noun)
            sentences = [self.phrase("aside"), later]
            sentences = sentences if rng.random() < 0.6 else sentences[::-1]
        if "Q4" in holds:
            n, m, k = (int(rng.integers(low, 10)) for low in (2, 1, 2))
            at = int(rng.integers(0 if len(sentences) > 1 else 1, len(sentences) + 1))
            sentences.insert(at, self.phrase("amounts").format(n=5 * n, m=50 * m, k=k))
        return " ".join(sentence[0].upper() + sentence[1:] + "." for sentence in sentences)

    # Sentences

    def order(self, done: bool) -> str:
        rng, text = self.rng, None
        makers = [self.put, self.paint, self.pose]
        weights = [0.7, 0.15, 0.15] if done else [0.3, 0.35, 0.35]
        if done or rng.random() < 0.75:
            for at in rng.choice(3, 3, replace=False, p=weights):
                text = text or makers[at](done)
        if not text and done:
            start = self.phrase("start")
            text = start.format(self.name(self.topic(), new=True), _place(self.scene, rng))
        if not text:
            absent = sorted(HABITAT[self.scene.setting] - set(self.kinds))
            new = with_article(self.noun(pick(rng, absent)))
            text = self.phrase("change").format(x=self.name(self.topic()), new=new)
        return self.opener() + text

    def put(self, done: bool) -> str | None:
        rng, close = self.rng, ("holding", "riding", "on")
        tied = {frozenset(e[::2]) for e in self.scene.relations if e[1] in (*close, "chasing")}
        edges = {  # by how much one would speak of them
            e: 4.0 if e[1] in close else 1.0
            for e in self.scene.relations
            if e[0] in self.free and e[2] in self.free
            if e[1] in close or (e[1] != "chasing" and frozenset(e[::2]) not in tied)
        }
        if not done:
            edges = {
                (i, _CITE["opposite"][relation], j): 1.0
                for i, relation, j in edges
                if relation in _CITE["opposite"] and self.alone(i) and self.alone(j)
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
        preposition = pick(rng, _CITE["where"][relation])
        return f"{self.phrase('put')} {first} {preposition} {second}"

    def paint(self, done: bool) -> str | None:
        paintable = ("vehicle", "building", "thing")
        can = [i for i in self.free if GROUP_OF[self.kinds[i]] in paintable]
        can = [i for i in can if done or self.alone(i)]
        if not can or (done and self.scene.style == "black and white"):
            return None
        i = pick(self.rng, can)
        colour = self.scene.things[i].colour
        if not done:
            colour = pick(self.rng, [c for c in PALETTE[self.kinds[i]] if c != colour])
        return self.phrase("paint").format(x=self.name(i, looks=False), colour=colour)

    def pose(self, done: bool) -> str | None:
        tied = {i for e in self.scene.relations if e[1] in _CITE["ties"] for i in e[::2]}
        can = [i for i in self.free if _is_living(self.kinds[i]) and i not in tied]
        can = [i for i in can if (self.actions[i] not in LIVELY if done else self.alone(i))]
        if not can:
            return None
        i = pick(self.rng, can)
        action = self.actions[i]
        if not done:
            able = [a for a in actions_in(self.kinds[i], self.scene.setting) if a]
            action = pick(self.rng, [a for a in able if (a in LIVELY) != (action in LIVELY)])
        return self.let(i, action)

    def during(self) -> str:
        rng, free = self.rng, self.free
        ties = [e for e in self.scene.relations if e[1] in _CITE["ties"] and {*e[::2]} <= {*free}]
        if ties and rng.random() < 0.8:
            i, relation, j = pick(rng, ties)
            x, y = self.name(i), self.name(j, new=True)
            if rng.random() < 0.5:
                do = f"{_CITE['ties'][relation]} {y}"
                return self.opener() + self.phrase("let").format(x=x, do=do)
            return self.phrase("keep").format(x=x, doing=f"{relation} {y}")
        alive = [i for i in free if _is_living(self.kinds[i])]
        lively = [i for i in free if self.actions[i] in LIVELY]
        if not alive and not lively:
            return self.phrase("hold").format(x=self.name(self.topic()))
        i = pick(rng, lively or alive)
        action = self.actions[i]
        if lively and rng.random() < 0.6:
            return self.opener() + self.let(i, action)
        swims = action == "floating" and _is_living(self.kinds[i])
        return self.phrase("keep").format(x=self.name(i), doing="swimming" if swims else action)

    def plan(self) -> str:
        i, plan = self.topic(), self.phrase("plan")
        if "{x}" in plan:
            return plan.format(x=self.name(i))
        names = [self.name(i, new=True)]
        if len(self.free) > 1 and self.rng.random() < 0.6:
            names.append(self.name(pick(self.rng, [j for j in self.free if j != i]), new=True))
        return plan.format(a=" and ".join(names))

    # Words

    def opener(self) -> str:
        return "" if self.brief else self.phrase("openers")

    def let(self, i: int, action: str) -> str:
        table, kind = words.VERBS[action], self.kinds[i]
        forms = [form for key in (kind, GROUP_OF[kind]) for form in table.get(key, "").split(", ")]
        verbs = [last for form in forms if (last := "".join(form.split("|")[2:3]))]
        return self.phrase("let").format(x=self.name(i), do=pick(self.rng, verbs))

    def noun(self, kind: str) -> str:
        return pick(self.rng, words.NOUNS[kind]).split("/")[0]

    def topic(self) -> int:
        if self.nouns and self.rng.random() < 0.7:
            return pick(self.rng, list(self.nouns))
        return pick(self.rng, self.free) if self.free else -1

    def alone(self, i: int) -> bool:
        return self.kinds.count(self.kinds[i]) == 1

    def name(self, i: int, new: bool = False, looks: bool = True) -> str:
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
