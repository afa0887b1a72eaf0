"""Tier world: drawn pictures whose scenes, and so the gold graphs and the truth, are known."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain, permutations
from typing import Any, TypeVar

import numpy as np

from mmlib.core.paths import table_beside
from mmlib.core.records import CaptionedImages
from mmlib.papers.cora.data.gold_graphs import gold_graph
from mmlib.papers.cora.data.texts import Captions
from mmlib.papers.cora.run.systems import SPLITS
from mmlib.world import USUAL, Clarity, WorldImages, captioned_images
from mmlib.world.graphs import CONCEPTS, CaptionGraph
from mmlib.world.logic import satisfies
from mmlib.world.schema import Scene

NOTE = table_beside(__file__)["note"]  # what this world was built to contain
WORLD_IMAGES = {"train": 4000, "val": 200, "test": 600}
DRAWN_IMAGES = {"train": 4000, "val": 200, "test": 400}  # as many as of the other controlled ones
# How easy each collection is to see and to read.
CLARITY = {"clear": Clarity(True, ("relations", "complete"), boxes=True), "world": USUAL}
FAMILY = 4  # pictures that structure alone tells apart
Bag = tuple[Sequence[object], Sequence[object], Sequence[str]]  # see `words_fit`
Picture = TypeVar("Picture")
Said = TypeVar("Said")


def load(
    seed: int, workers: int, clarity: Clarity = USUAL, counts: Mapping[str, int] | None = None
) -> Captions:
    """The world's pictures in families, with parsed and gold graphs; counts: of each split."""
    images: dict[str, Any] = {
        split: captioned_images(split, count, seed, workers, FAMILY, clarity)
        for split, count in (counts or WORLD_IMAGES).items()
    }
    gold = {s: [gold_graph(c) for group in images[s].gold for c in group] for s in SPLITS}
    return Captions(images, {}, gold).parsed(workers)


def truth(images: CaptionedImages) -> dict[str, np.ndarray]:
    """Scores of oracles (images, captions): true captions first, those true of few images ahead.

    "graph": the whole caption is true of the scene; "entities": its things with their attributes
    are there, whatever their relations; "words": each word alone is true of something in it. Equal
    scores come in random order. Empty for pictures whose scenes are not known.
    """
    if not isinstance(images, WorldImages):
        return {}
    graphs = [caption.graph for group in images.gold for caption in group]
    bags = [_facts(_bag_of_caption(graph), graph) for graph in graphs]
    shown = (
        _facts([*_facts_of_things(scene), [relation for _, relation, _ in scene.relations]], scene)
        for scene in images.scenes
    )
    words = np.array([[bag <= facts for bag in bags] for facts in shown])
    entities, graph = words.copy(), words.copy()
    for i, j in np.argwhere(words):
        alone = replace(graphs[j], edges=())
        entities[i, j] = satisfies(images.scenes[i], alone)
        graph[i, j] = entities[i, j] and satisfies(images.scenes[i], graphs[j])
    return oracle_scores({"words": words, "entities": entities, "graph": graph})


def ideal_bag(images: CaptionedImages) -> np.ndarray | None:
    """How often an ideal bag of words finds a caption's picture in its family, in %: (captions,).

    It knows what every picture shows, but of the caption only which words are there, and guesses
    among the pictures that they fit: see `words_fit`. None where scenes are not known.
    """
    if not isinstance(images, WorldImages):
        return None
    bags = [[_bag_of_caption(caption.graph) for caption in group] for group in images.gold]
    return guesses(images.scenes, bags, words_fit)


def guesses(
    pictures: Sequence[Picture],
    said: Sequence[Sequence[Said]],
    fits: Callable[[Said, Picture], bool],
) -> np.ndarray:
    """100 over the pictures of its family that each caption fits, (captions,), its own among them.

    said: of each picture what its captions say; families one after another.
    """
    shares = []
    for i, of_picture in enumerate(said):
        first = i // FAMILY * FAMILY
        for caption in of_picture:
            fitting = [fits(caption, picture) for picture in pictures[first : first + FAMILY]]
            assert fitting[i - first], f"{caption} is not true of picture {i}"
            shares.append(100 / sum(fitting))
    return np.array(shares)


def words_fit(bag: Bag, scene: Scene) -> bool:
    """Whether a scene has what a caption's words name, whoever has it.

    bag: the caption's things, their attributes and the names of its relations. Some things of the
    scene must be these, have all the attributes among them, and have as many such relations.
    """
    names, attributes, relations = bag
    things = _facts_of_things(scene)
    for chosen in permutations(range(len(things)), len(names)):
        if all(name in things[i] for name, i in zip(names, chosen, strict=True)):
            among = Counter(relation for i, relation, j in scene.relations if {i, j} <= {*chosen})
            shown = Counter(fact for i in chosen for fact in things[i])
            if Counter(attributes) <= shown and Counter(relations) <= among:
                return True
    return False


def oracle_scores(holds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Scores of what holds of which image, (images, captions): see `truth`."""
    scores = {}
    for name, true in holds.items():
        noise = np.random.default_rng(0).random(true.shape)
        scores[name] = (true * (1 - np.log(true.mean(axis=0))) + 1e-3 * noise).astype(np.float32)
    return scores


def _facts(of_things: Iterable[Iterable], whole: Scene | CaptionGraph) -> frozenset[object]:
    outside = {(name, getattr(whole, name)) for name in ("setting", "style")}
    return frozenset(chain(*of_things)) | {fact for fact in outside if fact[1]}


@lru_cache(4 * FAMILY)
def _facts_of_things(scene: Scene) -> list[frozenset[object]]:
    return [
        frozenset(
            {("is", name) for name, kinds in CONCEPTS.items() if item.kind in kinds}
            | {(name, getattr(item, name)) for name in ("colour", "size", "pattern", "action")}
        )
        for item in scene.things
    ]


def _bag_of_caption(graph: CaptionGraph) -> Bag:
    names = [("is", node.concept) for node in graph.nodes]
    attributes = [fact for node in graph.nodes for fact in node.facts]
    return names, attributes, [edge.relation for edge in graph.edges]
