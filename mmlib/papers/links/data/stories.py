"""Documents over the picture world: stories whose sentences refer to each other, and how-tos.

A story is an album of five pictures that share a setting, a style and their characters, with one
sentence for each picture. Its sentences lean on those before ("then she sat down on it"), so that
alone they leave the picture open. A how-to ("organic") has sentences with no, one or several
pictures, and pictures with no, one or several sentences.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from mmlib.core.paths import table_beside
from mmlib.world import scenes
from mmlib.world.habits import HABITAT, PALETTE, PATTERNED
from mmlib.world.scenes import compose, into_split, new_thing, pick
from mmlib.world.schema import GROUP_OF, GROUPS, SETTINGS, STYLES, Scene, Thing
from mmlib.world.stories import describe, with_article

Link = tuple[int, int]
_WORDS = table_beside(__file__)


@dataclass(frozen=True)
class WorldDocument:
    """A document: pictures (as scenes), sentences, and which sentence goes with which picture.

    links: (sentence, image) positions. Every connected component has at most as many links as
    nodes, so that the authors' labels, one a sentence and one an image, could express them.
    """

    scenes: tuple[Scene, ...]
    sentences: tuple[str, ...]
    links: tuple[Link, ...]
    id: str


def story(seed: int, split: str = "train") -> WorldDocument:
    """The story of a seed: 5 scenes of the split, 5 sentences, sentence i with scene i."""
    return _written("story", _Album, 4, seed, split)


def organic(seed: int, split: str = "train") -> WorldDocument:
    """The how-to of a seed: 2 to 10 scenes of the split, 3 to 12 sentences, any links."""
    return _written("organic", _Guide, 5, seed, split)


def _written(
    kind: str, draft_of: type["_Draft"], purpose: int, seed: int, split: str
) -> WorldDocument:
    """The first draft that can be finished; purpose: of the random numbers."""
    if split not in scenes.SPLITS:
        raise ValueError(f"split {split!r} is not one of {', '.join(scenes.SPLITS)}")
    rng = np.random.default_rng([seed, scenes.SPLITS.index(split), purpose])
    while True:
        draft = draft_of(rng, split)
        if draft.write():
            links, name = tuple(sorted(draft.links)), f"world-{kind}-{split}-{seed:06d}"
            return WorldDocument(tuple(draft.scenes), tuple(draft.sentences), links, name)


@dataclass
class _Draft:
    """A document in the making."""

    rng: np.random.Generator
    split: str
    scenes: list[Scene] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)

    def write(self) -> bool:
        """Write it; False where that fails."""
        raise NotImplementedError


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."


# --- Stories --------------------------------------------------------------------------------------

# (what the hero does, what the companion does, (who, relation, whom), what is said)
_Event = tuple[str, str | None, tuple[str, str, str] | None, str]
_EVENTS: list[_Event] = _WORDS["events"]
_PLACES, _PROPS = _WORDS["places"], _WORDS["props"]


@dataclass
class _Album(_Draft):
    """A story in the making."""

    def __post_init__(self) -> None:
        rng = self.rng
        self.setting, self.style = pick(rng, SETTINGS), pick(rng, STYLES)
        habitat = HABITAT[self.setting]
        self.hero = replace(new_thing(rng, pick(rng, GROUPS["person"])), size="medium")
        kinds = [kind for kind in ("dog", "cat") if kind in habitat]
        self.companion = new_thing(rng, pick(rng, kinds))
        self.props = {
            role: new_thing(rng, pick(rng, fitting))
            for role, kinds in _PROPS.items()
            if (fitting := [kind for kind in kinds if kind in habitat])
        }
        for role in {"ride", "toy"} & self.props.keys():
            prop = self.props[role]
            self.props[role] = replace(prop, action=_WORDS["idle"][role].get(prop.kind))
        fixtures = [k for k in (*GROUPS["building"], "tree", "bush", "car") if k in habitat]
        self.backdrop: tuple[Thing, ...] = ()
        if rng.random() < 0.6:
            scene = compose(rng, self.setting, self.style, [new_thing(rng, pick(rng, fixtures))])
            self.backdrop = scene.things if scene else ()
        self.introduced: set[str] = set()
        self.last: str | None = None  # the prop of the sentence before
        self.opener = ""
        self.look = int(rng.integers(2**31))  # one seed, so that faces and clouds stay

    def write(self) -> bool:
        """Write the five; False where something cannot be placed."""
        events = [event for event in _EVENTS if self.possible(event)]
        order = self.rng.permutation(len(events))[:5]
        return len(order) == 5 and all(self.add(events[i]) for i in order)

    def possible(self, event: _Event) -> bool:
        """Whether the story has what the event needs."""
        if event[2] is None:
            return True
        who, relation, target = event[2]
        if target not in ("H", "C") and target not in self.props:
            return False
        kind = self.props[target].kind if target in self.props else ""
        if relation == "chasing" and target == "toy":
            return kind == "ball"
        if target == "seat" and who == "H":
            return kind in ("bench", "chair")
        return not (who == "C" and relation == "chasing" and self.companion.kind == "cat")

    def add(self, event: _Event) -> bool:
        """Add the event's scene and sentence; False where it cannot be placed or was there."""
        doing, companion_doing, tie, texts = event
        cast = [*self.backdrop, replace(self.hero, action=doing)]
        at = {"H": len(self.backdrop)}
        if companion_doing:
            at["C"] = len(cast)
            cast.append(replace(self.companion, action=companion_doing))
        ties, prop = [], None
        if tie:
            who, relation, target = tie
            if target in self.props:
                prop, at[target] = target, len(cast)
                action = "moving" if relation == "chasing" else self.props[target].action
                cast.append(replace(self.props[target], action=action))
            ties = [(at[who], relation, at[target])]
        placed = compose(self.rng, self.setting, self.style, cast, ties, fixed=len(self.backdrop))
        scene = placed and into_split(replace(placed, seed=self.look), self.split)
        if not scene or scenes.scene_key(scene) in map(scenes.scene_key, self.scenes):
            return False
        text = self.worded(pick(self.rng, texts.split("|")), prop)
        if text in self.sentences:
            return False
        self.links.append((len(self.scenes), len(self.scenes)))
        self.scenes.append(scene)
        self.sentences.append(text)
        return True

    def worded(self, text: str, prop: str | None) -> str:
        """Fill in who and what, by pronoun or name as the story stands."""
        rng, first = self.rng, not self.sentences
        male = self.hero.kind in ("man", "boy")
        hero, whom = ("he", "him") if male else ("she", "her")
        pair = pick(rng, ("they", "the two of them", "both of them"))
        pet = self.companion.kind
        companion = pick(rng, ("it", "it", f"the {pet}", f"the {pet}", f"the same {pet}"))
        if first:
            hero = whom = describe(self.hero, self.style)
        elif rng.random() < 0.25:
            hero = f"the {self.hero.kind}"
        if "C" not in self.introduced:
            companion = describe(self.companion, self.style, article=False)
            owned = "{S}" in text.split("{C}")[0] or not first  # "a boy ... his dog"
            companion = (
                f"{'his' if male else 'her'} {companion}" if owned else with_article(companion)
            )
            pair = f"{hero} and {companion}"
        prop_name = self.name(prop, companion) if prop else ""
        self.last = prop
        if "{C}" in text or "{T}" in text:
            self.introduced.add("C")
        filled = text.format(S=hero, O=whom, C=companion, T=pair, P=prop_name)
        if first:
            return _sentence(f"{_PLACES[self.setting]}, {filled}")
        self.opener = pick(rng, [opener for opener in _WORDS["openers"] if opener != self.opener])
        return _sentence(f"{self.opener} {filled}" if rng.random() < 0.6 else filled)

    def name(self, prop: str, companion: str) -> str:
        """A prop: in full at first, then "it" or by its kind."""
        kind = self.props[prop].kind
        if prop not in self.introduced:
            self.introduced.add(prop)
            return describe(self.props[prop], self.style)
        if self.last == prop and companion != "it":
            return "it"
        return pick(self.rng, (f"the {kind}", f"the same {kind}", f"that {kind}"))


# --- How-tos --------------------------------------------------------------------------------------

_SPATIAL, _LARGE = _WORDS["spatial"], _WORDS["large"]


@dataclass
class _Guide(_Draft):
    """A how-to in the making: it builds up one scene, thing by thing."""

    def __post_init__(self) -> None:
        self.setting = pick(self.rng, SETTINGS)
        self.style = pick(self.rng, ("photo", "sketch", "flat"))

    def write(self) -> bool:
        """Write it; False where it came out too large, too small or said a thing twice."""
        finished = self.plan()
        if finished is None:
            return False
        remarks = [pick(self.rng, _WORDS["remarks"]) for _ in range(int(self.rng.integers(0, 4)))]
        if remarks and self.rng.random() < 0.5:
            self.say(remarks.pop())
        for step in range(1, len(finished.things) + 1):
            if not self.step(finished, step):
                return False
            if remarks and self.rng.random() < 0.5:
                self.say(remarks.pop())
        if self.rng.random() < 0.4:  # said of the last picture too
            done = pick(self.rng, _WORDS["done"])
            self.say(done, self.links[-1][1] if self.rng.random() < 0.7 else None)
        for remark in remarks:
            self.say(remark)
        if self.rng.random() < 0.45 and not self.stray(finished):
            return False
        keys = {repr(scenes.scene_key(scene)) for scene in self.scenes}
        return (
            2 <= len(self.scenes) <= 10
            and 3 <= len(self.sentences) <= 12
            and len(keys) == len(self.scenes)
            and len(set(self.sentences)) == len(self.sentences)
        )

    def plan(self) -> Scene | None:
        """The finished scene, its things in the order in which they are added."""
        rng, habitat = self.rng, sorted(HABITAT[self.setting])
        count = int(rng.integers(2, 6))
        cast: list[Thing] = []
        ties: list[tuple[int, str, int]] = []
        while len(cast) < count:
            kind = pick(rng, habitat)
            if kind in _kinds(cast):
                continue
            at = len(cast)
            still = "standing" if GROUP_OF[kind] in ("person", "animal") else None
            cast.append(new_thing(rng, kind, _WORDS["idle"]["any"].get(kind, still)))
            person = GROUP_OF[kind] == "person"
            if person and len(cast) < count and rng.random() < 0.7:
                toys = [k for k in _PROPS["toy"] if k in habitat and k not in _kinds(cast)]
                if toys:
                    toy = pick(rng, toys)
                    cast.append(replace(new_thing(rng, toy), action=_WORDS["idle"]["toy"].get(toy)))
                    ties.append((at, "holding", at + 1))
            elif kind in ("horse", "bicycle", "bench") and len(cast) < count:
                rider = pick(rng, [k for k in GROUPS["person"] if k not in _kinds(cast)])
                if kind == "horse":
                    cast[at] = replace(cast[at], action="walking")
                cast.append(new_thing(rng, rider, "sitting"))
                ties.append((at + 1, "on" if kind == "bench" else "riding", at))
        return compose(rng, self.setting, self.style, cast, ties)

    def step(self, finished: Scene, step: int) -> bool:
        """Add the step-th thing: a sentence, and perhaps its pictures and a second sentence."""
        scene = self.show(finished, step)
        if scene is None:
            return False
        rng, new = self.rng, scene.things[-1]
        image = None
        if rng.random() < 0.8 or step == len(finished.things):
            image = self.add(scene)
        self.say(self.instruction(scene, step == len(finished.things)), image)
        if rng.random() < 0.25:
            self.say(self.check(scene), image)
        colours = [c for c in PALETTE[new.kind] if c != new.colour]
        if rng.random() < 0.35 and len(colours) > 1:  # one sentence, several pictures
            clothes = "'s clothes" if GROUP_OF[new.kind] == "person" else ""
            at = self.say(pick(rng, _WORDS["many"]).format(new.kind + clothes))
            for colour in rng.permutation(colours)[: int(rng.integers(2, 4))]:
                cast = (*scene.things[:-1], replace(new, colour=str(colour)))
                recoloured = into_split(replace(scene, things=cast), self.split)
                if recoloured is None:
                    return False
                self.links.append((at, self.add(recoloured)))
        return True

    def show(self, finished: Scene, step: int) -> Scene | None:
        """The scene with its first `step` things."""
        acts = tuple(
            edge for edge in scenes.action_relations(finished) if max(edge[0], edge[2]) < step
        )
        begun = replace(finished, things=finished.things[:step], relations=acts)
        return into_split(begun, self.split)

    def stray(self, finished: Scene) -> bool:
        """A picture that no sentence is about: the finished scene in other patterns."""
        acting = {k for i, _, j in scenes.action_relations(finished) for k in (i, j)}
        cast = tuple(
            t
            if i in acting
            else replace(t, pattern=pick(self.rng, ("plain", *PATTERNED[t.kind])), facing=-t.facing)
            for i, t in enumerate(finished.things)
        )
        scene = into_split(replace(finished, things=cast), self.split)
        if scene is None:
            return False
        self.add(scene)
        return True

    def instruction(self, scene: Scene, last: bool) -> str:
        """How to get from the scene without its last thing to the scene with it."""
        rng, at = self.rng, len(scene.things) - 1
        new = scene.things[at]
        text = describe(new, self.style)
        if at == 0:
            return f"{pick(rng, _WORDS['begin'])} {text} {_PLACES[self.setting]}"
        start = "finally, " if last else pick(rng, _WORDS["next"])
        for i, relation, j in scene.relations:
            if relation == "holding" and j == at:
                return f"{start}give {self.name(scene, i)} {text}"
            if relation in ("riding", "on") and i == at:
                return f"{start}let {text} sit on {self.name(scene, j)}"
        verb = pick(rng, _WORDS["add"])
        location = self.where(scene)
        return f"{start}{verb} {text} {location}" if location else f"{start}add {text}"

    def where(self, scene: Scene, pronoun: bool = True) -> str:
        """Where the last thing is, by one of the earlier ones; "" where nothing can be said."""
        at = len(scene.things) - 1
        options = {
            f"{_SPATIAL[relation]} {self.name(scene, j, pronoun)}": 1.0
            for i, relation, j in scene.relations
            if i == at and relation in _SPATIAL
        }
        return scenes.pick_weighted(self.rng, options) if options else ""

    def name(self, scene: Scene, i: int, pronoun: bool = True) -> str:
        """An earlier thing: "the tent", or "it" if it was the last one before."""
        kind = scene.things[i].kind
        if pronoun and i == len(scene.things) - 2 and self.rng.random() < 0.6:
            return _WORDS["pronouns"].get(kind, "it")
        return f"the {kind}"

    def check(self, scene: Scene) -> str:
        """A second sentence about the thing just added."""
        new, location = scene.things[-1], self.where(scene, pronoun=False)
        options = [
            f"make sure that the {new.kind} is {_LARGE[new.size]}",
            f"the {new.kind} here is {_LARGE[new.size]}",
        ]
        if location:
            options.append(f"the {new.kind} should be {location}")
        if GROUP_OF[new.kind] != "person":
            options += [
                f"I chose {with_article(new.colour)} one",
                f"I like it best in {new.colour}",
            ]
            options += [f"the {new.pattern} pattern suits it"] if new.pattern != "plain" else []
        return pick(self.rng, options)

    def add(self, scene: Scene) -> int:
        self.scenes.append(scene)
        return len(self.scenes) - 1

    def say(self, text: str, image: int | None = None) -> int:
        self.sentences.append(_sentence(text))
        if image is not None:
            self.links.append((len(self.sentences) - 1, image))
        return len(self.sentences) - 1


def _kinds(cast: Sequence[Thing]) -> list[str]:
    return [member.kind for member in cast]
