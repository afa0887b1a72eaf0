"""Tiers flickr8k and paper: photographs, with features of grids or of regions."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mmlib import scenegraph
from mmlib.core.errors import DataError
from mmlib.data import flickr8k, precomputed
from mmlib.papers.cora.data.texts import Captions
from mmlib.papers.cora.run.systems import (
    CONTROLLED,
    DATASETS,
    LONGER,
    SPLITS,
    TUNED,
    WITH_BERT,
    original,
)


def load(tier: str, names: Sequence[str], workers: int) -> dict[str, Captions]:
    """Flickr8k, or the named ones of Flickr30K and MS-COCO as the authors' code reads them.

    No names: all that are there. Raises DataError for one that is not.
    """
    if tier == "flickr8k":
        images = {split: flickr8k.load(split) for split in SPLITS}
        return {tier: Captions(images, {}).parsed(workers)}
    folders = {}
    for name in names or DATASETS["paper"]:
        try:
            folders[name] = precomputed.find(name)
        except DataError:
            if names:
                raise
    if not folders:
        precomputed.find(*DATASETS["paper"])  # says what is missing
    return {name: _read(folder, workers) for name, folder in folders.items()}


def own(folder: Path, workers: int) -> dict[str, Captions]:
    """A folder of the reader's own in a layout of `mmlib.data.precomputed`, by its name.

    Raises DataError for a name that the recorded collections have, and what loading raises.
    """
    folder = folder.resolve()
    taken = {name for names in DATASETS.values() for name in names}
    if folder.name in taken or folder.name != original(folder.name):
        names = ", ".join(sorted(taken - set(CONTROLLED)))
        raise DataError(
            f"{folder}: rename the folder: {names} and names with {LONGER}, {TUNED} or {WITH_BERT} "
            "at their end are of other data here"
        )
    return {folder.name: _read(folder, workers)}


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
