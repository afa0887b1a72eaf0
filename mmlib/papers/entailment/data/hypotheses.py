"""The picture world as entailment data: does a sentence follow from captions, a picture, or both?

A hypothesis is a caption with its graph, so its truth in a scene is a matter of logic
(`mmlib.world.logic.satisfies`), never of where it came from. False ones are captions of other
scenes, or of the same scene with one fact changed. Two dials make each source incomplete: how much
of the scene the premise's captions leave out (`partial`), and how noisy the picture's features are
(`noisy`).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from functools import partial as bind

import numpy as np
from PIL import Image

from mmlib.core.parallel import in_processes
from mmlib.core.records import KINDS as FORMS
from mmlib.core.records import Samples
from mmlib.papers.entailment.data.edits import GENERAL, editable, edited, new_draft
from mmlib.papers.entailment.data.premises import (
    FACTS,
    PartialScene,
    counter_scene,
    joint,
    merged,
    plain,
    premise_captions,
)
from mmlib.papers.entailment.run.systems import EDITS
from mmlib.world import SIZE, WorldImages, picture
from mmlib.world.captions import Caption
from mmlib.world.graphs import CONCEPTS, CaptionGraph, Node
from mmlib.world.logic import entails, satisfies
from mmlib.world.scenes import pick, pick_weighted, sample_scene, split_seeds
from mmlib.world.schema import SETTINGS, STYLES, Scene

# Where hypotheses that shall be true come from, and those that shall be false.
_TRUE = {"own": 1 - GENERAL, "general": GENERAL}
_FALSE = {"foreign": 0.3, "edit": 0.7}
_UNTOLD = {"foreign": 0.25, "edit": 0.5, "untold": 0.25}
# Edits that are seldom possible are tried first.
_OFTEN = {**dict.fromkeys(EDITS, 1.0), "number": 2.0, "relation": 2.0, "swap": 6.0, "action": 2.0}
_SEEDS = 4  # of each picture: one for its scene, the rest for scenes of foreign captions
_MATCHES = 15  # true hypotheses tried to match a false one


@dataclass(frozen=True)
class Hypothesis:
    """A sentence, what it says, and whether that is so in the scene that it is about.

    edit: "own", "general", "foreign", "untold" or one of EDITS. original: the true caption that was
    edited, "" where there is none.
    """

    text: str
    graph: CaptionGraph
    truth: bool
    edit: str
    original: str = ""


def hypotheses(
    scene: Scene, rng: np.random.Generator, others: Sequence[Scene] = (), each: int = 1
) -> tuple[Hypothesis, ...]:
    """Hypotheses of all origins about a scene, up to `each` of every origin.

    There may be none of an origin, as where nothing in the scene can be edited that way. Those from
    "own" and "general" are true; the others mostly false, but their truth is looked up.
    others: scenes to take foreign captions from.
    """
    drawn: list[Hypothesis | None] = []
    for _ in range(each):
        for origin in ("own", "general", *EDITS):
            drawn.append(_draw(origin, PartialScene(scene), scene, rng, lambda caption: True))
        if others:
            drawn.append(_Maker(scene, 1.0, rng, others).foreign("ve"))
    return tuple(dict.fromkeys(hypothesis for hypothesis in drawn if hypothesis))


def _draw(
    origin: str, content: PartialScene, scene: Scene, rng: np.random.Generator,
    accept: Callable[[Caption], bool],
) -> Hypothesis | None:  # fmt: skip
    # A hypothesis of a part of the scene: "own", "general" or an edit of an accepted one.
    caption, original = None, ""
    if origin in EDITS:
        caption, original = edited(content, origin, rng, accept) or (None, "")
    elif draft := new_draft(content, rng, origin == "general"):
        caption = draft.caption if accept(draft.caption) else None
    if caption is None:
        return None
    truth = satisfies(scene, caption.graph)
    return Hypothesis(caption.text, caption.graph, truth, origin, original)


@dataclass(frozen=True, eq=False)
class WorldEntailment:
    """Samples of the world with the truth behind them.

    samples: `samples.image` are rows of `scenes`. captions: the premise's, of each picture.
    scene_of (n,): the picture that each sample is about, also where it does not see it. hypotheses
    (n,): one a sample. open_image: row -> RGB picture.
    """

    samples: Samples
    scenes: tuple[Scene, ...]
    captions: tuple[tuple[Caption, ...], ...]
    scene_of: np.ndarray
    hypotheses: tuple[Hypothesis, ...]
    open_image: Callable[[int], Image.Image]


def entailment_set(
    split: str, n: int, seed: int = 0, partial: float = 0.5, workers: int = 1
) -> WorldEntailment:
    """Samples about n pictures of a split ("train", "val", "test", "backbone").

    Each picture has an entailed sample and another one of each form. For "te" the label is whether
    the captions entail the hypothesis (where not, a scene has been found in which they are true and
    it is false); for "ve" and "mme" whether it is true in the scene. Colours of black and white
    pictures decide no label. Splits share no scene; a larger n begins with the smaller one's
    samples.

    seed: which list of the split's scenes, 0 to 999. partial: how much of the scene the captions
    leave out, 0 to 1; see `partial_scene`. workers: processes, which change nothing else.
    """
    seeds = split_seeds(split, n * _SEEDS, seed)
    calls = [(seeds[row * _SEEDS : (row + 1) * _SEEDS], seed, partial) for row in range(n)]
    scenes, captions, written = zip(*in_processes(_written, calls, workers), strict=True)
    rows = [(row, *sample) for row, some in enumerate(written) for sample in some]
    scene_of, forms, labels, drawn = zip(*rows, strict=True)
    texts = [merged(some) for some in captions]
    samples = Samples(
        premise=tuple("" if form == "ve" else texts[row] for row, form, *_ in rows),
        hypothesis=tuple(hypothesis.text for hypothesis in drawn),
        image=np.array([-1 if form == "te" else row for row, form, *_ in rows]),
        label=np.array(labels), kind=forms, source=("world",) * len(rows),
        group=tuple(f"world-{split}-{scenes[row].seed % 10**10:06d}" for row in scene_of),
    )  # fmt: skip
    open_image = bind(picture, scenes, SIZE)
    return WorldEntailment(samples, scenes, captions, np.array(scene_of), drawn, open_image)


def _written(
    seeds: Sequence[int], seed: int, partial: float
) -> tuple[Scene, tuple[Caption, ...], list[tuple[str, int, Hypothesis]]]:
    # A picture's scene, captions and samples (form, label, hypothesis). seeds: of the scene, then
    # of those from which foreign captions may come.
    scene = sample_scene(seeds[0])
    maker = _Maker(scene, partial, np.random.default_rng([seed, scene.seed, 9]), seeds[1:])
    samples: list[tuple[str, int, Hypothesis]] = []
    for k, form in enumerate(FORMS):
        maker.rng = np.random.default_rng([seed, scene.seed, 9, k])
        entailed, false = maker.pair(form)
        samples += [(form, 1, entailed), (form, 0, false)]
    return scene, maker.captions, samples


class _Maker:
    # Makes the samples of one scene.

    def __init__(
        self, scene: Scene, partial: float, rng: np.random.Generator,
        others: Sequence[Scene | int] = (),
    ):  # fmt: skip
        self.scene, self.partial, self.rng, self.others = scene, partial, rng, others
        self.content, self.captions = premise_captions(scene, partial, rng)
        self.graphs = [caption.graph for caption in self.captions]
        self.readings = joint(self.graphs)
        self.used = {plain(caption.text) for caption in self.captions}

    def pair(self, form: str) -> tuple[Hypothesis, Hypothesis]:
        # An entailed hypothesis and one that is not, which this scene has not had yet. Where the
        # second is an edit, the first is a caption that could be edited the same way: a sentence of
        # two things in a relation is then as likely to be true as not.
        for attempt in range(200):
            spent = set() if attempt > 100 else self.used  # "a dog" has few synonyms
            false = self.false(form)
            if false is None or plain(false.text) in spent or self.label(form, false) != 0:
                continue
            for _ in range(_MATCHES):
                true = self.true(form)
                if true is None or plain(true.text) in spent or self.label(form, true) != 1:
                    continue
                if false.edit not in EDITS or editable(true.graph, false.edit):
                    self.used |= {plain(true.text), plain(false.text)}
                    return true, false
        raise AssertionError(f"scene {self.scene.seed}: no hypotheses for {form}")

    def follows(self, caption: Caption | Hypothesis) -> bool:
        # Whether the premise entails what a caption says.
        return any(entails(reading, caption.graph) for reading in self.readings)

    def draw(self, origin: str, form: str) -> Hypothesis | None:
        # Of what is entailed by the captions for "te", else of all that is in the scene.
        if form == "te":
            return _draw(origin, self.content, self.scene, self.rng, self.follows)
        return _draw(origin, PartialScene(self.scene), self.scene, self.rng, lambda caption: True)

    def true(self, form: str) -> Hypothesis | None:
        return self.draw(pick_weighted(self.rng, _TRUE), form)

    def false(self, form: str) -> Hypothesis | None:
        # A hypothesis likely to be false; all of them are true of, or entailed by, something.
        origin = pick_weighted(self.rng, _UNTOLD if form == "te" else _FALSE)
        if origin == "foreign":
            return self.foreign(form)
        if origin == "untold":  # by these, but told by other captions of the same scene
            untold = _Maker(self.scene, self.partial, self.rng).true(form)
            return untold and replace(untold, edit="untold")
        left = dict(_OFTEN)
        while left:
            edit = pick_weighted(self.rng, left)
            del left[edit]
            if false := self.draw(edit, form):
                return false
        return None

    def foreign(self, form: str) -> Hypothesis | None:
        # What is true of another scene, or entailed by captions of it.
        scene = pick(self.rng, self.others)  # a scene or the seed of one
        scene = sample_scene(scene) if isinstance(scene, int) else scene
        if foreign := _Maker(scene, self.partial, self.rng).true(form):
            truth = satisfies(self.scene, foreign.graph)
            return replace(foreign, edit="foreign", truth=truth)
        return None

    def label(self, form: str, hypothesis: Hypothesis) -> int | None:
        # 1 entailed, 0 not; None where that cannot be decided.
        graph = hypothesis.graph
        if form == "te":
            if self.follows(hypothesis):
                return 1
            return None if counter_scene(self.scene, self.graphs, graph) is None else 0
        if self.scene.style == "black and white":
            bare = [
                replace(n, facts=frozenset(f for f in n.facts if f[0] != "colour"))
                for n in graph.nodes
            ]
            if satisfies(self.scene, replace(graph, nodes=tuple(bare))) != hypothesis.truth:
                return None
        return int(hypothesis.truth)


def noisy(features: np.ndarray, seeds: Sequence[int], noise: float) -> np.ndarray:
    """(pictures, regions, width) features with Gaussian noise, by a seed of each picture.

    noise: its deviation; the features' own is about 1.
    """
    blurred = np.array(features, dtype=np.float32)
    for row, seed in enumerate(seeds):
        rng = np.random.default_rng([seed, 10])
        blurred[row] += noise * rng.normal(size=blurred[row].shape).astype(np.float32)
    return blurred


def false_negatives(images: WorldImages) -> np.ndarray:
    """(images, captions) bool: which captions are true of which pictures, own ones included.

    Columns are all captions in the order of the images. Whatever is True and not the picture's own
    is a "negative" that is none. Logic knows colours also where the picture is black and white.
    """
    scenes = images.scenes
    graphs = [caption.graph for gold in images.gold for caption in gold]
    things = [(row, thing) for row, scene in enumerate(scenes) for thing in scene.things]
    row_of = np.array([row for row, _ in things])
    looks = {n: np.array([str(getattr(t, n)) for _, t in things]) for n in ("kind", *FACTS)}

    @cache
    def having(node: Node) -> np.ndarray:
        fit = np.isin(looks["kind"], list(CONCEPTS[node.concept]))
        for name, value in node.facts:
            fit &= looks[name] == value
        return np.bincount(row_of[fit], minlength=len(scenes))

    within: dict[str | None, np.ndarray] = {
        name: np.array([name in (scene.setting, scene.style) for scene in scenes])
        for name in (*SETTINGS, *STYLES)
    }
    within[None] = np.ones(len(scenes), bool)

    @cache
    def true_of(graph: CaptionGraph) -> np.ndarray:
        fits = within[graph.setting] & within[graph.style]
        for node, number in Counter(graph.nodes).items():
            fits = fits & (having(node) >= number)
        for row in np.flatnonzero(fits):  # few are left for logic to decide
            fits[row] = satisfies(scenes[row], graph)
        return fits

    return np.stack([true_of(graph) for graph in graphs], axis=1)
