"""Tier world: drawn pictures whose scenes, and so the gold graphs and the truth, are known."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

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
CLARITY = {
    "clear": Clarity(families=True, captions=True, boxes=True, relations=True),
    "world": USUAL,
}
FAMILY = 4  # pictures that structure alone tells apart


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
    bags = [_facts_of_caption(graph) for graph in graphs]
    words = np.array(
        [[bag <= facts for bag in bags] for facts in map(_facts_of_scene, images.scenes)]
    )
    entities, graph = words.copy(), words.copy()
    for i, j in np.argwhere(words):
        alone = replace(graphs[j], edges=())
        entities[i, j] = satisfies(images.scenes[i], alone)
        graph[i, j] = entities[i, j] and satisfies(images.scenes[i], graphs[j])
    return oracle_scores({"words": words, "entities": entities, "graph": graph})


def oracle_scores(holds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Scores of what holds of which image, (images, captions): see `truth`."""
    scores = {}
    for name, true in holds.items():
        noise = np.random.default_rng(0).random(true.shape)
        scores[name] = (true * (1 - np.log(true.mean(axis=0))) + 1e-3 * noise).astype(np.float32)
    return scores


def _facts_of_scene(scene: Scene) -> frozenset[object]:
    facts: set[object] = {("setting", scene.setting), ("style", scene.style)}
    facts |= {relation for _, relation, _ in scene.relations}
    for item in scene.things:
        facts |= {("is", name) for name, kinds in CONCEPTS.items() if item.kind in kinds}
        facts |= {(name, getattr(item, name)) for name in ("colour", "size", "pattern", "action")}
    return frozenset(facts)


def _facts_of_caption(graph: CaptionGraph) -> frozenset[object]:
    facts: set[object] = {edge.relation for edge in graph.edges}
    for node in graph.nodes:
        facts |= {("is", node.concept), *node.facts}
    outside = {"setting": graph.setting, "style": graph.style}
    return frozenset(facts | {(name, value) for name, value in outside.items() if value})
