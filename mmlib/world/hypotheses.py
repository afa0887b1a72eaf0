"""The picture world as entailment data: does a sentence follow from captions, a picture, or both?

A hypothesis is a caption with its graph, so its truth in a scene is a matter of logic
(`mmlib.world.logic.satisfies`), never of where it came from. False ones are captions of other
scenes, or of the same scene with one fact changed. Two dials make each source incomplete: how much
of the scene the premise's captions leave out, and how noisy the picture's features are. `HOW` says
what is made how.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial as bind

import numpy as np
from PIL import Image

from mmlib.datasets.entailment_pairs import KINDS as FORMS
from mmlib.datasets.entailment_pairs import Samples
from mmlib.world import Backbone, WorldImages, picture, see
from mmlib.world.captions import Caption
from mmlib.world.graphs import CONCEPTS, CaptionGraph
from mmlib.world.habits import HABITAT, PAIRS, PALETTE
from mmlib.world.logic import CONVERSE, entails, satisfies
from mmlib.world.premises import (
    WIDEN,
    Told,
    counter_scene,
    joint,
    merged,
    premise_captions,
    tell,
    told_part,
)
from mmlib.world.scenes import actions_in, pick, pick_weighted, sample_scene, split_seeds
from mmlib.world.schema import (
    ACTION_RELATIONS,
    GROUP_OF,
    GROUPS,
    KINDS,
    SETTINGS,
    WATER,
    Scene,
)

EDITS = ("colour", "number", "relation", "swap", "actor", "object", "setting", "action")
SOURCES = ("own", "general", "foreign", "untold", *EDITS)
_TRUE = {"own": 0.6, "general": 0.4}  # where hypotheses that shall be true are taken from
# and those that shall be false, where there are any; of edits, those first that are seldom possible
_FALSE = {"foreign": 0.3, "edit": 0.7}
_UNTOLD = {"foreign": 0.25, "edit": 0.5, "untold": 0.25}
_OFTEN = {**dict.fromkeys(EDITS, 1.0), "relation": 3.0, "swap": 6.0, "action": 2.0}
_SEEDS = 4  # of each picture: one for its scene, the rest for scenes of foreign captions
_TRIES = 12  # captions tried for one edit
_WORDS = 4  # that an edit may put in place of others
_DIRECTIONS = ("left of", "right of", "behind", "in front of")
Accept = Callable[[Caption], bool]
Edit = Callable[["_Draft", np.random.Generator], Scene | None]


@dataclass(frozen=True)
class Hypothesis:
    """A sentence, what it says, and whether that is so in the scene that it is about.

    edit: one of SOURCES. original: the true caption that was edited, "" where there is none.
    """

    text: str
    graph: CaptionGraph
    truth: bool
    edit: str
    original: str = ""


def hypotheses(
    scene: Scene, rng: np.random.Generator, others: Sequence[Scene] = (), each: int = 1
) -> tuple[Hypothesis, ...]:
    """Hypotheses of all sources about a scene, up to `each` of every source.

    A source may have none, as where nothing in the scene can be edited that way. Those from
    "own" and "general" are true; the others mostly false, but their truth is looked up.

    Args:
        scene: what they are about.
        rng: all randomness.
        others: scenes to take foreign captions from; none, none.
        each: how many of every source, where they can be had.
    """
    made: list[Hypothesis | None] = []
    for _ in range(each):
        for source in ("own", "general", *EDITS):
            made.append(_draw(source, Told(scene), scene, rng, _any))
        if others:
            made.append(_Maker(scene, 0.0, rng, lambda: pick(rng, others)).foreign("ve"))
    return tuple(dict.fromkeys(one for one in made if one))


# --- Writing hypotheses ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Draft:
    """A caption that can be written again, of something else, with the same random choices.

    node_of: {thing: node}, of the scene told.
    """

    told: Told
    key: int
    detail: int
    widen: float
    caption: Caption
    node_of: dict[int, int]

    def things(self) -> dict[int, int]:
        """{node: thing}."""
        return {node: thing for thing, node in self.node_of.items()}

    def again(self, scene: Scene) -> "_Draft | None":
        return _draft(replace(self.told, scene=scene), self.key, self.detail, self.widen)


def _draft(told: Told, key: int, detail: int, widen: float) -> _Draft | None:
    made = tell(told, np.random.default_rng(key), detail, widen)
    return _Draft(told, key, detail, widen, *made) if made else None


def _new_draft(told: Told, rng: np.random.Generator, general: bool) -> _Draft | None:
    """A caption; where `general` with facts left out and concepts widened."""
    detail = pick(rng, (int(rng.random() < 0.7), 2, 3, 3, 4))
    if general:
        part = told_part(told.scene, 0.5, rng)
        told = Told(part.scene, told.place and part.place, told.style and part.style)
    return _draft(told, int(rng.integers(2**32)), detail, 0.6 if general else WIDEN)


def _draw(
    source: str, told: Told, scene: Scene, rng: np.random.Generator, accept: Accept
) -> Hypothesis | None:
    """A hypothesis of what is told of the scene: "own", "general" or an edit of an accepted one."""
    if source in EDITS:
        pair = edited(told, source, rng, accept)
        return pair and _judged(scene, pair[0], source, pair[1])
    draft = _new_draft(told, rng, source == "general")
    return _judged(scene, draft.caption, source) if draft and accept(draft.caption) else None


def _judged(scene: Scene, caption: Caption, source: str, original: str = "") -> Hypothesis:
    truth = satisfies(scene, caption.graph)
    return Hypothesis(caption.text, caption.graph, truth, source, original)


def _any(caption: Caption) -> bool:
    return True


def edited(
    told: Told, edit: str, rng: np.random.Generator, accept: Accept = _any
) -> tuple[Caption, str] | None:
    """A caption that says one thing otherwise than what is told, and the text that it is made of.

    The edit is made in the scene: its changed copy is captioned with the same random choices as
    the scene, and kept where the two captions differ in that fact only. "number" adds a thing of
    one sort, and its text may differ from what it is made of in more words.

    Args:
        told: what may be told.
        edit: one of EDITS.
        rng: all randomness.
        accept: which captions may be edited.

    Returns:
        None where 12 tries find nothing.
    """
    for _ in range(_TRIES):
        before = _new_draft(told, rng, rng.random() < _TRUE["general"])
        scene = _EDIT[edit](before, rng) if before else None
        after = before.again(scene) if before and scene else None
        if not before or not after:
            continue
        fits = (
            _counted(after) if edit == "number" else _minimal(before.caption, after.caption, edit)
        )
        if fits and accept(before.caption):
            return after.caption, before.caption.text
    return None


def _minimal(a: Caption, b: Caption, edit: str) -> bool:
    """Whether two captions differ in what the edit is about and in few words."""
    if edit == "swap":
        turned = a.graph.nodes != b.graph.nodes and a.graph.edges == b.graph.edges
        same = Counter(a.graph.nodes) == Counter(b.graph.nodes)
        if not (turned and same and _places(a.graph) == _places(b.graph)):
            return False
    elif _difference(a.graph, b.graph) != {_ABOUT.get(edit, edit)}:
        return False
    return len(list((Counter(_words(b)) - Counter(_words(a))).elements())) <= _WORDS


_ABOUT = {"actor": "concept", "object": "concept"}


def _words(caption: Caption) -> list[str]:
    return caption.text.lower().rstrip(".").replace(",", "").split()


def _places(graph: CaptionGraph) -> tuple[str | None, str | None]:
    return graph.setting, graph.style


def _difference(a: CaptionGraph, b: CaptionGraph) -> set[str]:
    """In what two graphs differ: names of facts, "concept", "relation", "setting", "style"."""
    ends = [[(e.subject, e.object) for e in graph.edges] for graph in (a, b)]
    if len(a.nodes) != len(b.nodes) or ends[0] != ends[1]:
        return {"shape"}
    found = {name for name in ("setting", "style") if getattr(a, name) != getattr(b, name)}
    for one, two in zip(a.nodes, b.nodes, strict=True):
        found |= {"concept"} if one.concept != two.concept else set()
        found |= {name for name, _ in one.facts ^ two.facts}
    if any(one.relation != two.relation for one, two in zip(a.edges, b.edges, strict=True)):
        found.add("relation")
    return found


# --- Edits: a draft to its scene with one thing otherwise -----------------------------------------


def _alike(draft: _Draft, node: int) -> list[int]:
    """The things of a node and of those that are spoken of with it ("two red dogs")."""
    nodes = draft.caption.graph.nodes
    return [thing for at, thing in draft.things().items() if nodes[at] == nodes[node]]


def _with(scene: Scene, things: Sequence[int], **facts: str) -> Scene:
    new = [replace(t, **facts) if i in things else t for i, t in enumerate(scene.things)]  # type: ignore[arg-type]
    return replace(scene, things=tuple(new))


def _saying(draft: _Draft, name: str) -> list[int]:
    """The nodes of which a fact is said."""
    nodes = draft.caption.graph.nodes
    return [at for at, node in enumerate(nodes) if any(fact == name for fact, _ in node.facts)]


def _bound(scene: Scene, relations: Sequence[str]) -> set[int]:
    """The things in such relations."""
    return {k for i, relation, j in scene.relations if relation in relations for k in (i, j)}


def _edit_colour(draft: _Draft, rng: np.random.Generator) -> Scene | None:
    if not (nodes := _saying(draft, "colour")):
        return None
    alike = _alike(draft, pick(rng, nodes))
    scene = draft.told.scene
    options = [
        colour
        for colour in PALETTE[scene.things[alike[0]].kind]
        if colour != scene.things[alike[0]].colour
        and all(colour in PALETTE[scene.things[i].kind] for i in alike)
    ]
    return _with(scene, alike, colour=pick(rng, options)) if options else None


def _edit_action(draft: _Draft, rng: np.random.Generator) -> Scene | None:
    scene = draft.told.scene
    nodes = [
        node
        for node in _saying(draft, "action")
        if not set(_alike(draft, node)) & _bound(scene, (*ACTION_RELATIONS, "on"))
    ]
    if not nodes:
        return None
    alike = _alike(draft, pick(rng, nodes))
    able = [set(actions_in(scene.things[i].kind, scene.setting)) for i in alike]
    options = sorted(
        str(a) for a in set.intersection(*able) - {scene.things[alike[0]].action, None}
    )
    return _with(scene, alike, action=pick(rng, options)) if options else None


def _edit_kind(draft: _Draft, rng: np.random.Generator, groups: Sequence[str]) -> Scene | None:
    scene = draft.told.scene
    nodes = [
        at for at, thing in draft.things().items() if GROUP_OF[scene.things[thing].kind] in groups
    ]
    if not nodes:
        return None
    alike = _alike(draft, pick(rng, nodes))
    some = [scene.things[i] for i in alike]
    options = [
        kind
        for kind in GROUPS[GROUP_OF[some[0].kind]]
        if kind in HABITAT[scene.setting]
        and all(
            kind != t.kind
            and t.colour in ("", *PALETTE[kind])
            and t.action in (None, *actions_in(kind, scene.setting))
            for t in some
        )
    ]
    if not options:
        return None
    changed = _with(scene, alike, kind=pick(rng, options))
    return changed if _usual(changed) else None


def _edit_actor(draft: _Draft, rng: np.random.Generator) -> Scene | None:
    return _edit_kind(draft, rng, ("person", "animal"))


def _edit_object(draft: _Draft, rng: np.random.Generator) -> Scene | None:
    return _edit_kind(draft, rng, ("vehicle", "plant", "building", "thing"))


def _usual(scene: Scene) -> bool:
    """Whether who rides, holds, chases, is on or under what is what the world has."""
    kinds = [thing.kind for thing in scene.things]

    def usual(i: int, relation: str, j: int) -> bool:
        if relation == "under":
            return kinds[j] in ("tree", "umbrella") or (j, "on", i) in scene.relations
        if relation == "on" and (i, "riding", j) in scene.relations:
            return True
        return relation not in PAIRS or kinds[j] in PAIRS[relation].get(kinds[i], ())

    return all(usual(*edge) for edge in scene.relations)


def _edit_setting(draft: _Draft, rng: np.random.Generator) -> Scene | None:
    scene = draft.told.scene
    if not draft.caption.graph.setting:
        return None
    things = [scene.things[i] for i in draft.node_of]
    options = [
        setting
        for setting in SETTINGS
        if setting != scene.setting
        and all(t.kind in HABITAT[setting] for t in things)
        and (setting in WATER or all(t.kind != "duck" or t.action != "floating" for t in things))
    ]
    return replace(scene, setting=pick(rng, options)) if options else None


def _edit_relation(draft: _Draft, rng: np.random.Generator) -> Scene | None:
    """Another relation between the same two things."""
    edges = draft.caption.graph.edges
    if not edges:
        return None
    thing = draft.things()
    edge = pick(rng, edges)
    pairs = {(thing[e.subject], thing[e.object]) for e in edges if e.relation == edge.relation}
    pairs = {(i, j) for i, j in pairs if j == thing[edge.object]}
    new = pick(rng, (*_DIRECTIONS, *_DIRECTIONS, "riding", "holding", "chasing", "on"))
    if new == edge.relation:
        return None
    scene = draft.told.scene
    close = {edge.relation, new} - {*_DIRECTIONS, "near"}
    relations = []
    for i, relation, j in scene.relations:
        if (i, j) in pairs and relation == edge.relation:
            relations.append((i, new, j))
        elif (j, i) in pairs and relation == CONVERSE.get(edge.relation) and new in CONVERSE:
            relations.append((i, CONVERSE[new], j))
        elif not ({(i, j), (j, i)} & pairs and close):
            relations.append((i, relation, j))
    action = {"riding": "sitting", "chasing": "running"}.get(new)
    if action:
        scene = _with(scene, [i for i, _ in pairs], action=action)
    changed = replace(scene, relations=tuple(relations))
    return changed if _usual(changed) else None


def _edit_swap(draft: _Draft, rng: np.random.Generator) -> Scene | None:
    """The two things of a relation in each other's place."""
    edges = [e for e in draft.caption.graph.edges if e.relation in (*_DIRECTIONS, "chasing")]
    if not edges:
        return None
    thing, edge = draft.things(), pick(rng, edges)
    i, j = thing[edge.subject], thing[edge.object]
    scene = draft.told.scene
    things = list(scene.things)
    one, two = things[i], things[j]
    looks = ["kind", "colour", "size", "pattern"]
    if edge.relation in _DIRECTIONS:
        looks.append("action")
    things[i] = replace(one, **{name: getattr(two, name) for name in looks})
    things[j] = replace(two, **{name: getattr(one, name) for name in looks})
    changed = replace(scene, things=tuple(things))
    return changed if _usual(changed) else None


def _edit_number(draft: _Draft, rng: np.random.Generator) -> Scene | None:
    """One more of something, which stands where that stands."""
    scene = draft.told.scene
    free = set(range(len(scene.things))) - _bound(scene, ACTION_RELATIONS)
    if not free or len(scene.things) == 5:
        return None
    i, new = pick(rng, sorted(free)), len(scene.things)
    more = [
        tuple(new if k == i else k for k in (a, b)) for a, _, b in scene.relations if i in (a, b)
    ]
    names = [relation for a, relation, b in scene.relations if i in (a, b)]
    copied = tuple((a, name, b) for (a, b), name in zip(more, names, strict=True))
    return replace(
        scene, things=(*scene.things, scene.things[i]), relations=(*scene.relations, *copied)
    )


def _counted(draft: _Draft) -> bool:
    """Whether the added thing, the last, is spoken of as one of several."""
    added = draft.node_of.get(len(draft.told.scene.things) - 1)
    nodes = draft.caption.graph.nodes
    return added is not None and nodes.count(nodes[added]) > 1


_EDIT: dict[str, Edit] = {
    "colour": _edit_colour, "number": _edit_number, "relation": _edit_relation,
    "swap": _edit_swap, "actor": _edit_actor, "object": _edit_object, "setting": _edit_setting,
    "action": _edit_action,
}  # fmt: skip


# --- The set --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class WorldEntailment:
    """Samples of the world with the truth behind them.

    samples: what a classifier gets; `samples.image` are rows of `images`.
    images: (pictures, regions, width) float32 noisy features; None where not asked for.
    scenes: one a picture. captions: the premise's captions of each picture.
    scene_of: (n,) the picture that each sample is about, also where it does not see it.
    hypotheses: (n,) one a sample; its truth is that in the scene, whatever the sample's label.
    follows: (n,) bool, whether the picture's captions entail the hypothesis by logic.
    open_image: row -> RGB picture, without noise.
    """

    samples: Samples
    images: np.ndarray | None
    scenes: tuple[Scene, ...]
    captions: tuple[tuple[Caption, ...], ...]
    scene_of: np.ndarray
    hypotheses: tuple[Hypothesis, ...]
    follows: np.ndarray
    open_image: Callable[[int], Image.Image]

    @property
    def regions(self) -> int:
        """Feature vectors of a picture."""
        return 0 if self.images is None else self.images.shape[1]

    @property
    def width(self) -> int:
        """Numbers in a feature vector."""
        return 0 if self.images is None else self.images.shape[2]

    @property
    def edits(self) -> tuple[str, ...]:
        """Each sample's source, one of SOURCES."""
        return tuple(one.edit for one in self.hypotheses)

    @property
    def graphs(self) -> tuple[CaptionGraph, ...]:
        """What each hypothesis says."""
        return tuple(one.graph for one in self.hypotheses)

    def premise_graphs(self, row: int) -> tuple[CaptionGraph, ...]:
        """What the captions say of the picture that a sample is about."""
        return tuple(caption.graph for caption in self.captions[self.scene_of[row]])

    def told_share(self) -> float:
        """Of the entailed samples with both sources, the share that the text alone entails."""
        both = np.array([form == "mme" for form in self.samples.kind])
        return float(self.follows[both & (self.samples.label == 1)].mean())


def entailment_set(
    split: str,
    n: int,
    seed: int = 0,
    image_noise: float = 0.0,
    partial: float = 0.5,
    per_scene: int = 6,
    blanked: float = 0.0,
    size: int = 128,
    backbone: Backbone | None = None,
    workers: int = 1,
    see_pictures: bool = True,
) -> WorldEntailment:
    """Samples about n pictures of a split ("train", "val", "test", "backbone").

    Half of each picture's samples are entailed; the forms "te", "ve" and "mme" take turns, so each
    has as many of either label. For "te" the label is whether the captions entail the hypothesis
    (where not, a scene has been found in which they are true and it is false); for "ve" and "mme"
    whether it is true in the scene. Colours of black and white pictures decide no label.

    The same arguments give the same record, whatever `workers`. Splits share no scene; a larger n
    begins with the smaller one's samples. Scenes depend on neither dial, samples not on the noise.

    Args:
        split: whose scenes.
        n: how many pictures, at least 1.
        seed: which list of the split's scenes, 0 to 999.
        image_noise: deviation of Gaussian noise on the region features, which have about 1.
        partial: how much of the scene the captions leave out, 0 to 1; see `told_part`.
        per_scene: samples of each picture, an even number.
        blanked: probability that a region's features are all 0.
        size: side of the pictures in pixels.
        backbone: pictures to features; the world's own where None.
        workers: processes that draw the pictures and extract features.
        see_pictures: whether to do so; without, `images` is None.

    Raises:
        ValueError: for an unknown split or an argument out of its range.
    """
    if n < 1 or per_scene < 2 or per_scene % 2:
        raise ValueError(f"n is {n}, at least 1; per_scene {per_scene}, an even number above 0")
    if not (0 <= partial <= 1 and 0 <= blanked <= 1 and image_noise >= 0):
        raise ValueError(
            f"partial {partial} or blanked {blanked} is not between 0 and 1, "
            f"or image_noise {image_noise} is negative"
        )
    seeds = split_seeds(split, n * _SEEDS, seed)
    scenes = tuple(sample_scene(s) for s in seeds[::_SEEDS])
    columns: dict[str, list] = {name: [] for name in ("kind", "label", "premise", "row", "made")}
    known, told_texts = [], []
    follows: list[bool] = []
    for row, scene in enumerate(scenes):
        rng = np.random.default_rng([seed, scene.seed, 9])
        maker = _Maker(scene, partial, rng, bind(_another, rng, seeds, row))
        known.append(maker.captions)
        told_texts.append(merged(maker.captions))
        for k in range(per_scene):
            form = FORMS[(row * per_scene + k) // 2 % len(FORMS)]
            made = maker.sample(form, label=1 - k % 2)
            values = (form, 1 - k % 2, "" if form == "ve" else told_texts[-1], row, made)
            for column, value in zip(columns.values(), values, strict=True):
                column.append(value)
            follows.append(maker.follows(made.graph))
    scene_of = np.array(columns["row"])
    ids = tuple(f"world-{split}-{scene.seed % 10**10:06d}" for scene in scenes)
    samples = Samples(
        premise=tuple(columns["premise"]),
        hypothesis=tuple(one.text for one in columns["made"]),
        image=np.where(np.array(columns["kind"]) == "te", -1, scene_of),
        label=np.array(columns["label"]),
        kind=tuple(columns["kind"]),
        source=("world",) * len(scene_of),
        group=tuple(ids[row] for row in scene_of),
    )
    images = None
    if see_pictures:
        seen = see(scenes, size, backbone, workers, f"world {split}")[0]
        images = noisy(seen, [scene.seed for scene in scenes], image_noise, blanked)
    return WorldEntailment(
        samples,
        images,
        scenes,
        tuple(known),
        scene_of,
        tuple(columns["made"]),
        np.array(follows),
        bind(picture, scenes, size),
    )


class _Maker:
    """Makes the samples of one scene."""

    def __init__(
        self, scene: Scene, partial: float, rng: np.random.Generator, another: Callable[[], Scene]
    ):
        self.scene, self.partial, self.rng, self.another = scene, partial, rng, another
        self.told, self.captions = premise_captions(scene, partial, rng)
        self.readings = joint([caption.graph for caption in self.captions])
        self.used = {_plain(caption.text) for caption in self.captions}

    def follows(self, graph: CaptionGraph) -> bool:
        """Whether the premise entails what a graph says."""
        return any(entails(reading, graph) for reading in self.readings)

    def sample(self, form: str, label: int) -> Hypothesis:
        """A hypothesis of this label that this scene has not had yet."""
        for attempt in range(400):
            made = self.true(form) if label else self.false(form)
            if made is None or self.label(form, made) != label:
                continue
            if _plain(made.text) not in self.used or attempt > 200:  # "a dog" has few synonyms
                self.used.add(_plain(made.text))
                return made
        raise AssertionError(f"scene {self.scene.seed}: no hypothesis of label {label} for {form}")

    def told_to(self, form: str) -> tuple[Told, Accept]:
        """What a true hypothesis may be about, and which do: for "te" those that are entailed."""
        if form == "te":
            return self.told, lambda caption: self.follows(caption.graph)
        return Told(self.scene), _any

    def true(self, form: str) -> Hypothesis | None:
        told, accept = self.told_to(form)
        return _draw(pick_weighted(self.rng, _TRUE), told, self.scene, self.rng, accept)

    def false(self, form: str) -> Hypothesis | None:
        """A hypothesis likely to be false; all of them are true of, or entailed by, something."""
        source = pick_weighted(self.rng, _UNTOLD if form == "te" else _FALSE)
        if source == "foreign":
            return self.foreign(form)
        if source == "untold":
            made = self.beside(self.scene).true(form)
            return made and replace(made, edit="untold")
        told, accept = self.told_to(form)
        left = dict(_OFTEN)
        while left:
            edit = pick_weighted(self.rng, left)
            del left[edit]
            if made := _draw(edit, told, self.scene, self.rng, accept):
                return made
        return None

    def foreign(self, form: str) -> Hypothesis | None:
        """What is true of another scene, or entailed by captions of it."""
        made = self.beside(self.another()).true(form)
        return made and replace(made, edit="foreign", truth=satisfies(self.scene, made.graph))

    def beside(self, scene: Scene) -> "_Maker":
        """The same of a scene, which may be this one, told in other captions."""
        return _Maker(scene, self.partial, self.rng, self.another)

    def label(self, form: str, made: Hypothesis) -> int | None:
        """1 entailed, 0 not; None where that cannot be told."""
        if form == "te":
            if self.follows(made.graph):
                return 1
            graphs = [caption.graph for caption in self.captions]
            return None if counter_scene(self.scene, graphs, made.graph) is None else 0
        if self.scene.style == "black and white":
            if satisfies(self.scene, _colourless(made.graph)) != made.truth:
                return None
        return int(made.truth)


def _another(rng: np.random.Generator, seeds: Sequence[int], row: int) -> Scene:
    """A scene that is no row's, for foreign captions of this row."""
    return sample_scene(pick(rng, seeds[row * _SEEDS + 1 : (row + 1) * _SEEDS]))


def _plain(text: str) -> str:
    return text.lower().rstrip(".")


def _colourless(graph: CaptionGraph) -> CaptionGraph:
    nodes = (
        replace(node, facts=frozenset(fact for fact in node.facts if fact[0] != "colour"))
        for node in graph.nodes
    )
    return replace(graph, nodes=tuple(nodes))


def noisy(
    features: np.ndarray, seeds: Sequence[int], noise: float, blanked: float = 0.0
) -> np.ndarray:
    """(pictures, regions, width) features made worse, by a seed of each picture.

    noise: deviation of the Gaussian noise added. blanked: probability that a region becomes 0.
    """
    made = np.array(features, dtype=np.float32)
    for row, seed in enumerate(seeds):
        rng = np.random.default_rng([seed, 10])
        made[row] += noise * rng.normal(size=made[row].shape).astype(np.float32)
        made[row][rng.random(len(made[row])) < blanked] = 0
    return made


# --- Which captions fit which pictures ------------------------------------------------------------


def false_negatives(images: WorldImages) -> np.ndarray:
    """(images, captions) bool: which captions are true of which pictures, own ones included.

    Columns are all captions in the order of the images. Whatever is True and not the picture's own
    is a "negative" that is none. Logic knows colours also where the picture is black and white.
    """
    graphs = [caption.graph for some in images.gold for caption in some]
    columns: dict[CaptionGraph, list[int]] = {}  # equal graphs once
    for column, graph in enumerate(graphs):
        columns.setdefault(graph, []).append(column)
    names = list(CONCEPTS)
    member = np.array([[kind in CONCEPTS[name] for name in names] for kind in KINDS], int)
    has = np.array([_counts([t.kind for t in scene.things]) for scene in images.scenes]) @ member
    true = np.zeros((len(images.scenes), len(graphs)), bool)
    for graph, at in columns.items():
        need = Counter(node.concept for node in graph.nodes)
        enough = np.all([has[:, names.index(c)] >= k for c, k in need.items()], axis=0)
        for row in np.flatnonzero(enough):
            if satisfies(images.scenes[row], graph):
                true[row, at] = True
    return true


def _counts(kinds: Sequence[str]) -> list[int]:
    return [kinds.count(kind) for kind in KINDS]


# --- In words -------------------------------------------------------------------------------------

HOW: dict[str, str] = {
    "own": "Another caption of the scene, in other words and about other parts of it; true.",
    "general": "A caption of the scene with about half of its facts left out and wider words (an "
    "animal for a dog); true.",
    "foreign": "A caption of another scene; mostly false, but its truth is looked up.",
    "colour": "One colour becomes another that such a thing can have.",
    "number": "One thing more of some sort than there is: two dogs for a dog, three for two.",
    "relation": "Another relation between the same two things: behind for left of, chasing for "
    "holding.",
    "swap": "The two things of a relation change places in the sentence; its words stay the same "
    "for the most part.",
    "actor": "A person or animal becomes another one.",
    "object": "A vehicle, plant, building or other thing becomes another of its group.",
    "setting": "The place becomes another one in which such things are found.",
    "action": "What somebody does becomes something else that they can do.",
    "partial": "How much of the scene the captions leave out: each thing with half this "
    "probability, every other fact with this probability; and there are five captions at 0, three "
    "at 0.5, one at 1.",
    "image_noise": "Gaussian noise on the picture's region features, in units of their deviation; "
    "besides, whole regions can be blanked.",
}
