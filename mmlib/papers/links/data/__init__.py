"""The documents of each tier: drawn, built from photographs, or read from the authors' files."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from mmlib.core.parallel import in_processes
from mmlib.data import flickr8k
from mmlib.papers.links.data import builders, paper, sessions, stories, world
from mmlib.papers.links.data.documents import KINDS, SPLITS, UNLABELLED, Corpus
from mmlib.world import WorldImages, captioned_images

# How many documents. Five rounds of other groups and captions of `cohesive`: with 1,079 instead of
# 5,395 documents, DC's test AUC on stress was 71.7 instead of 86.1 (600 steps, one seed).
OF_PHOTOGRAPHS = {
    "coco": {"train": 16800, "val": 132, "test": 330},
    "mixed5": {"train": 5985, "val": 198, "test": 396},
    "cohesive": {"train": 5400, "val": 180, "test": 360},
    "organic": {"train": 6600, "val": 135, "test": 336},
}


def load_study(tier: str, kinds: Sequence[str] = ()) -> Mapping[str, Corpus]:
    """Documents of a tier by kind: all kinds that it has, or those that are named.

    world: drawn here. flickr8k: built from its photographs. paper: every folder of
    `<MMLIB_DATA>/links/` that holds docs.json, id2row.json and features.npy.
    Raises ValueError for a tier or kind that is not there, FileNotFoundError or DataError for
    missing data.
    """
    if tier == "paper":
        return paper.load(kinds)
    if tier not in KINDS:
        raise ValueError(f"no tier {tier!r}: use world, flickr8k or paper")
    if unknown := [kind for kind in kinds if kind not in KINDS[tier]]:
        available = ", ".join(KINDS[tier])
        raise ValueError(f"no documents {unknown[0]!r} here; there are {available}")
    drawn, cores = tier == "world", os.cpu_count() or 1
    alike = "similar_images" if drawn else "images"
    counts = world.COUNTS["documents"] if drawn else OF_PHOTOGRAPHS

    @cache  # of both sets of drawings, two splits are the same
    def pictures(split: str, count: int) -> WorldImages:
        return world.pooled(captioned_images(split, count, workers=cores))

    @cache
    def photos(which: str) -> builders.Splits:
        if drawn:
            return {split: pictures(split, n) for split, n in world.COUNTS[which].items()}
        return {split: flickr8k.load(split) for split in SPLITS}

    @cache
    def similar() -> Corpus:
        return builders.cohesive(photos(alike), counts["cohesive"])

    def documents(kind: str) -> Corpus:
        if kind in builders.DISTRACTORS:
            return builders.random_documents(kind, photos("images"), counts[kind])
        if kind == "cohesive":
            return similar()
        if kind == "stress":
            first = tuple(d for d in similar().train if d.round < (3 if drawn else 5))
            return builders.stress(replace(similar(), train=first), photos(alike), per_source=3)
        if kind == UNLABELLED:
            train, val, test = similar().train[:330], similar().val[:66], similar().test[:110]
            few = replace(similar(), train=train, val=val, test=test)
            return builders.unlabelled_articles(few, photos(alike), (30, 50 if drawn else 90))
        if not drawn:
            return sessions.organic(photos("images"), counts[kind])
        write = stories.story if kind == "story" else stories.organic
        texts = {
            split: list(in_processes(write, [(i, split) for i in range(count)], cores))
            for split, count in world.COUNTS["albums"].items()
        }
        pictures = world.picture_scenes(texts, cores)
        pictures = {split: world.pooled(images) for split, images in pictures.items()}
        return world.from_world(kind, texts, pictures)

    return {kind: documents(kind) for kind in kinds or KINDS[tier]}
