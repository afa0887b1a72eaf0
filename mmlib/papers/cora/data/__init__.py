"""Captions, images and graphs of each tier, to look at and as arrays to train on."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from mmlib.core.paths import data_dir, own_dataset
from mmlib.papers.cora.data import controlled, photographs, world
from mmlib.papers.cora.data.arrays import prepare
from mmlib.papers.cora.data.texts import Captions
from mmlib.papers.cora.run.batches import Arrays
from mmlib.papers.cora.run.systems import (
    CONTROLLED_TIER,
    DATASETS,
    WITH_BERT,
    WITHOUT_BERT,
    budget,
    original,
    retrained,
)
from mmlib.world import BERT

Study = Mapping[str, Captions]


def load_study(tier: str, datasets: Sequence[str] = (), seed: int = 0) -> Study:
    """The collections of a tier: all that are there, or those that are named.

    world: drawn here, "clear" with captions that list what has which colour or who does what, and
    "world" with the sentences of a grammar. controlled: made here, most of it without drawing.
    flickr8k: its photographs' features.
    paper: `<MMLIB_DATA>/f30k` and `coco` in a layout of `mmlib.data.precomputed`, with the graphs
    of their `scene_graph` folder where there are any; the test images of MS-COCO are all 5,000
    where "testall" is there. Where `core.paths.own_dataset` names a folder in such a layout, that
    one alone, called by the folder's name.
    "flickr8k_bert" and so on are the same captions, to be read by a BERT too: the world's by its
    own, photographs' by the one in `<MMLIB_DATA>/bert`; they come by themselves where there is one.
    "flickr8k_long" and "flickr8k_tuned" come with "flickr8k", for other budgets.
    Raises ValueError for a tier or collection that is not there, DataError for missing data.
    """
    if tier not in DATASETS:
        raise ValueError(f"no tier {tier!r}: use {', '.join(DATASETS)}")
    plain = list(dict.fromkeys(map(original, datasets)))
    own = own_dataset() if tier == "paper" else None
    present = (own.name,) if own else DATASETS[tier]
    if unknown := [name for name in plain if name not in present]:
        raise ValueError(f"no captions {unknown[0]!r} here; there are {', '.join(present)}")
    workers = os.cpu_count() or 1
    if tier == CONTROLLED_TIER:
        return {name: _controlled(name, seed, workers) for name in plain or DATASETS[tier]}
    if tier == "world":
        study = {
            name: world.load(seed, workers, world.CLARITY[name]) for name in plain or DATASETS[tier]
        }
    else:
        study = photographs.own(own, workers) if own else photographs.load(tier, plain, workers)
    names = [*study, *retrained(study)]
    if _bert(tier).is_dir():
        names += [name + WITH_BERT for name in study if name not in WITHOUT_BERT]
    return {name: study[original(name)] for name in datasets or names}


def load_arrays(study: Study, tier: str) -> dict[str, Arrays]:
    """All collections as arrays, each prepared as its budget says."""
    berts = {name: _bert(tier) if name.endswith(WITH_BERT) else None for name in study}
    return {
        name: controlled.arrays(collection)
        if isinstance(controlled.RECORDED.get(name), controlled.Dials)
        else prepare(collection, budget(tier, name), berts[name])
        for name, collection in study.items()
    }


def _controlled(name: str, seed: int, workers: int) -> Captions:
    dials = controlled.RECORDED[name]
    if isinstance(dials, controlled.Dials):
        return controlled.load(dials, seed)
    return world.load(seed, workers, dials, world.DRAWN_IMAGES)


def _bert(tier: str) -> Path:
    return BERT if tier == "world" else data_dir() / "bert"
