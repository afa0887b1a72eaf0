"""Documents over the picture world: stories whose sentences refer to each other, and how-tos.

A story is an album of five pictures that share a setting, a style and their characters, with one
sentence for each picture. Its sentences lean on those before ("then she sat down on it"), so that
alone they leave the picture open. A how-to ("organic") has sentences with no, one or several
pictures, and pictures with no, one or several sentences.
"""

from dataclasses import dataclass, replace

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


def story(seed: int, split: str = "train") -> WorldDocument:
    """The story of a seed: 5 scenes of the split, 5 sentences, sentence i with scene i."""
    return _written(_Album, 4, seed, split)


def organic(seed: int, split: str = "train") -> WorldDocument:
    """The how-to of a seed: 2 to 10 scenes of the split, 3 to 12 sentences, any links."""
    return _written(_Guide, 5, seed, split)


def _written(
    draft_of: "type[_Album | _Guide]", purpose: int, seed: int, split: str
) -> WorldDocument:
    if split not in scenes.SPLITS:
        raise ValueError(f"split {split!r} is not one of {', '.join(scenes.SPLITS)}")
    rng = np.random.default_rng([seed, scenes.SPLITS.index(split), purpose])
    while True:
        draft = draft_of(rng, split)
        if draft.write():
            links = tuple(sorted(draft.links))
            return WorldDocument(tuple(draft.scenes), tuple(draft.sentences), links)


class _Draft:
    def __init__(self, rng: np.random.Generator, split: str):
        self.rng, self.split = rng, split
        self.scenes: list[Scene] = []
        self.sentences: list[str] = []
        self.links: list[Link] = []

    def say(self, text: str, image: int | None = None) -> None:
        if image is not None:
            self.links.append((len(self.sentences), image))
        self.sentences.append(text[0].upper() + text[1:] + ".")


# --- Stories --------------------------------------------------------------------------------------

# (what the hero does, what the companion does, (who, relation, whom), what is said)
_Event = tuple[str, str | None, tuple[str, str, str] | None, str]
_EVENTS: list[_Event] = _WORDS["events"]
_PLACES, _PROPS = _WORDS["places"], _WORDS["props"]


class _Album(_Draft):
    def __init__(self, rng: np.random.Generator, split: str):
        super().__init__(rng, split)
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
        events = [event for event in _EVENTS if self.possible(event)]
        order = self.rng.permutation(len(events))[:5]
        return len(order) == 5 and all(self.add(events[i]) for i in order)

    def possible(self, event: _Event) -> bool:
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
        self.scenes.append(scene)
        self.say(self.worded(pick(self.rng, texts.split("|")), prop), len(self.sentences))
        return len(set(self.sentences)) == len(self.sentences)

    def worded(self, text: str, prop: str | None) -> str:
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
        prop_name = ""
        if prop and prop not in self.introduced:  # in full at first, then "it" or by its kind
            self.introduced.add(prop)
            prop_name = describe(self.props[prop], self.style)
        elif prop and self.last == prop and companion != "it":
            prop_name = "it"
        elif prop:
            kind = self.props[prop].kind
            prop_name = pick(rng, (f"the {kind}", f"the same {kind}", f"that {kind}"))
        self.last = prop
        if "{C}" in text or "{T}" in text:
            self.introduced.add("C")
        filled = text.format(S=hero, O=whom, C=companion, T=pair, P=prop_name)
        if first:
            return f"{_PLACES[self.setting]}, {filled}"
        self.opener = pick(rng, [opener for opener in _WORDS["openers"] if opener != self.opener])
        return f"{self.opener} {filled}" if rng.random() < 0.6 else filled


# --- How-tos --------------------------------------------------------------------------------------


class _Guide(_Draft):
    def write(self) -> bool:
        rng = self.rng
        self.setting, self.style = pick(rng, SETTINGS), pick(rng, ("photo", "sketch", "flat"))
        finished = self.plan()
        if finished is None:
            return False
        remarks = [pick(rng, _WORDS["remarks"]) for _ in range(int(rng.integers(0, 4)))]
        if remarks and rng.random() < 0.5:
            self.say(remarks.pop())
        for step in range(1, len(finished.things) + 1):
            if not self.step(finished, step):
                return False
            if remarks and rng.random() < 0.5:
                self.say(remarks.pop())
        if rng.random() < 0.4:  # said of the last picture too
            done = pick(rng, _WORDS["done"])
            self.say(done, self.links[-1][1] if rng.random() < 0.7 else None)
        for remark in remarks:
            self.say(remark)
        if rng.random() < 0.45:  # a picture of no sentence: the finished scene in other patterns
            acting = {k for i, _, j in scenes.action_relations(finished) for k in (i, j)}
            cast = list(finished.things)
            for i, t in enumerate(finished.things):
                if i not in acting:
                    pattern = pick(rng, ("plain", *PATTERNED[t.kind]))
                    cast[i] = replace(t, pattern=pattern, facing=-t.facing)
            if self.add(replace(finished, things=tuple(cast))) is None:
                return False
        keys = {repr(scenes.scene_key(scene)) for scene in self.scenes}
        return (
            2 <= len(self.scenes) <= 10
            and 3 <= len(self.sentences) <= 12
            and len(keys) == len(self.scenes)
            and len(set(self.sentences)) == len(self.sentences)
        )

    def plan(self) -> Scene | None:
        rng, habitat = self.rng, sorted(HABITAT[self.setting])
        count = int(rng.integers(2, 6))
        cast: list[Thing] = []
        ties: list[tuple[int, str, int]] = []
        while len(cast) < count:
            kind, at, kinds = pick(rng, habitat), len(cast), {member.kind for member in cast}
            if kind in kinds:
                continue
            kinds.add(kind)
            still = "standing" if GROUP_OF[kind] in ("person", "animal") else None
            cast.append(new_thing(rng, kind, _WORDS["idle"]["any"].get(kind, still)))
            if GROUP_OF[kind] == "person" and len(cast) < count and rng.random() < 0.7:
                toys = [k for k in _PROPS["toy"] if k in habitat and k not in kinds]
                if toys:
                    toy = pick(rng, toys)
                    cast.append(replace(new_thing(rng, toy), action=_WORDS["idle"]["toy"].get(toy)))
                    ties.append((at, "holding", at + 1))
            elif kind in ("horse", "bicycle", "bench") and len(cast) < count:
                rider = pick(rng, [k for k in GROUPS["person"] if k not in kinds])
                if kind == "horse":
                    cast[at] = replace(cast[at], action="walking")
                cast.append(new_thing(rng, rider, "sitting"))
                ties.append((at + 1, "on" if kind == "bench" else "riding", at))
        return compose(rng, self.setting, self.style, cast, ties)

    def step(self, finished: Scene, step: int) -> bool:
        acts = tuple(tie for tie in scenes.action_relations(finished) if max(tie[0], tie[2]) < step)
        begun = replace(finished, things=finished.things[:step], relations=acts)
        scene = into_split(begun, self.split)
        if scene is None:
            return False
        rng, new, last = self.rng, scene.things[-1], step == len(finished.things)
        image = self.add(begun) if rng.random() < 0.8 or last else None
        self.say(self.instruction(scene, last), image)
        if rng.random() < 0.25:
            self.say(self.check(scene), image)
        colours = [c for c in PALETTE[new.kind] if c != new.colour]
        if rng.random() < 0.35 and len(colours) > 1:  # one sentence, several pictures
            clothes = "'s clothes" if GROUP_OF[new.kind] == "person" else ""
            self.say(pick(rng, _WORDS["many"]).format(new.kind + clothes))
            for colour in rng.permutation(colours)[: int(rng.integers(2, 4))]:
                cast = (*scene.things[:-1], replace(new, colour=str(colour)))
                image = self.add(replace(scene, things=cast))
                if image is None:
                    return False
                self.links.append((len(self.sentences) - 1, image))
        return True

    def add(self, scene: Scene) -> int | None:
        moved = into_split(scene, self.split)
        if moved is None:
            return None
        self.scenes.append(moved)
        return len(self.scenes) - 1

    def instruction(self, scene: Scene, last: bool) -> str:
        rng, at = self.rng, len(scene.things) - 1
        text = describe(scene.things[at], self.style)
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
        at = len(scene.things) - 1
        options = {
            f"{_WORDS['spatial'][relation]} {self.name(scene, j, pronoun)}": 1.0
            for i, relation, j in scene.relations
            if i == at and relation in _WORDS["spatial"]
        }
        return scenes.pick_weighted(self.rng, options) if options else ""

    def name(self, scene: Scene, i: int, pronoun: bool = True) -> str:
        kind = scene.things[i].kind
        if pronoun and i == len(scene.things) - 2 and self.rng.random() < 0.6:
            return _WORDS["pronouns"].get(kind, "it")
        return f"the {kind}"

    def check(self, scene: Scene) -> str:
        new, location = scene.things[-1], self.where(scene, pronoun=False)
        size = _WORDS["large"][new.size]
        options = [f"make sure that the {new.kind} is {size}", f"the {new.kind} here is {size}"]
        if location:
            options.append(f"the {new.kind} should be {location}")
        if GROUP_OF[new.kind] != "person":
            colour = new.colour
            options += [f"I chose {with_article(colour)} one", f"I like it best in {colour}"]
            options += [f"the {new.pattern} pattern suits it"] if new.pattern != "plain" else []
        return pick(self.rng, options)
