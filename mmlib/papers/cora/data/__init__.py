"""Captions, images and graphs of each tier, to look at and as arrays to train on."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mmlib import scenegraph
from mmlib.core.errors import DataError
from mmlib.core.paths import data_dir, own_dataset
from mmlib.data import flickr8k, precomputed
from mmlib.papers.cora.data import controlled, world
from mmlib.papers.cora.data.arrays import prepare
from mmlib.papers.cora.data.texts import Captions
from mmlib.papers.cora.run.batches import Arrays
from mmlib.papers.cora.run.systems import (
    CONTROLLED,
    CONTROLLED_TIER,
    DATASETS,
    LONGER,
    SPLITS,
    TUNED,
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
    Raises ValueError for a tier or collection that is not there, DataError for missing data, and
    for a folder of the reader's own with the name of a recorded collection.
    """
    if tier not in DATASETS:
        raise ValueError(f"no tier {tier!r}: use {', '.join(DATASETS)}")
    plain = list(dict.fromkeys(map(original, datasets)))
    own = own_dataset() if tier == "paper" else None
    present = (own.name,) if own else DATASETS[tier]
    if unknown := [name for name in plain if name not in present]:
        raise ValueError(f"no captions {unknown[0]!r} here; there are {', '.join(present)}")
    workers, study = os.cpu_count() or 1, {}
    if tier == CONTROLLED_TIER:
        for name in plain or present:
            dials = controlled.RECORDED[name]
            if isinstance(dials, controlled.Dials):
                study[name] = controlled.load(dials, seed)
            else:
                study[name] = world.load(seed, workers, dials, world.DRAWN_IMAGES)
        return study
    if tier == "world":
        study = {n: world.load(seed, workers, world.CLARITY[n]) for n in plain or present}
    elif tier == "flickr8k":
        images = {split: flickr8k.load(split) for split in SPLITS}
        study = {tier: Captions(images, {}).parsed(workers)}
    elif own:
        own = own.resolve()
        taken = {name for some in DATASETS.values() for name in some}
        if own.name in taken or own.name != original(own.name):
            others = ", ".join(sorted(taken - set(CONTROLLED)))
            raise DataError(
                f"{own}: rename the folder: {others} and names with {LONGER}, {TUNED} or "
                f"{WITH_BERT} at their end are of other data here"
            )
        study = {own.name: _read(own, workers)}
    else:
        for name in plain or present:
            try:
                folder = precomputed.find(name)
            except DataError:
                if plain:
                    raise
            else:
                study[name] = _read(folder, workers)
        if not study:
            precomputed.find(*present)  # says what is missing
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


def _bert(tier: str) -> Path:
    return BERT if tier == "world" else data_dir() / "bert"


def _read(folder: Path, workers: int) -> Captions:
    all_images = (folder / "testall_caps.txt").is_file()
    files = {"train": "train", "val": "dev", "test": "testall" if all_images else "test"}
    loaded = {split: precomputed.load(folder, file) for split, file in files.items()}
    widths = {split: read.images.features.shape[-1] for split, read in loaded.items()}
    for split, width in widths.items():
        if width != widths["train"]:
            problem = f"features of {files[split]} are {width} wide, of train {widths['train']}"
            raise DataError(f"{folder}: {problem} (get the features of one network)")
    collection = Captions({split: read.images for split, read in loaded.items()}, {})
    packed = {
        split: scenegraph.Graphs(
            (entry["caption"], scenegraph.pack(entry)) for entry in read.graphs.values()
        )
        for split, read in loaded.items() if read.graphs
    }  # fmt: skip
    if len(packed) < len(loaded):
        return collection.parsed(workers)
    return replace(collection, graphs=packed)
