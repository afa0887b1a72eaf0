"""Captions and region features of Flickr30K and MS-COCO, in the layouts in which they circulate.

SCAN's (Lee et al., ECCV 2018; VSE++ and VSE∞ too), one folder a data set; `{split}` is train, dev,
test, or testall:

    {split}_ims.npy     (rows, 36, 2048) float32
    {split}_caps.txt    a caption a line, five lines an image
    {split}_ids.txt     an image identifier a line
    id_mapping.json     identifier -> file name of the photograph (optional)

CORA's (Pham et al., CVPR 2024) has `region_feats/{split}/part{row // 5000}/{row}.npy` in place of
the array, and `scene_graph/{split}.json`.

Karpathy's: one `dataset_*.json` (`mmlib.data.karpathy`) and feature sets `features/*.npy`, whose
ids are the names of the photographs, as `mmlib data features` writes them; of several one is named
(`mmlib.features.sets.choose`).

In each of them photographs may lie in `images/` or `Images/`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tqdm.auto import tqdm

from mmlib.core.errors import DataError
from mmlib.core.files import listed
from mmlib.core.paths import data_dir
from mmlib.core.records import CaptionedImages
from mmlib.data import karpathy
from mmlib.data.tables import check_choice, error_at, text_lines
from mmlib.features import extraction, sets
from mmlib.features.store import (
    fault,
    ids_file,
    open_array,
    open_features,
    open_rgb,
    read_object,
    size_and_time,
)

FILE_SPLITS = {"train": "train", "val": "dev", "dev": "dev", "test": "test", "testall": "testall"}
CAPTIONS_EACH = 5
PART = 5000  # files in a folder of CORA's layout
BLOCK = 50  # rows that `inspect` reads at once: a multiple of any step
AGAIN = "get this file again"
Graph = dict[str, Any]


@dataclass(frozen=True)
class Precomputed:
    """One split.

    images: its captions and features. The features are memory-mapped, as stored.
    graphs: number of the caption, counted through the split from 0 -> the authors' scene graph
        (`mmlib.scenegraph.from_authors` reads it), or None where the data have none.
    rows: of the file `source`; every `step`-th is an image. note: on what else was read.
    """

    images: CaptionedImages
    graphs: Mapping[int, Graph] | None
    rows: np.ndarray
    source: Path
    step: int
    note: str


def find(*names: str) -> Path:
    """The folder of the first of `names` ("f30k", "coco") in the data folder; DataError for none.

    Looked for as `NAME`, `region_features/NAME` and `region_features/NAME_precomp`.
    """
    for name in names:
        for folder in (name, f"region_features/{name}", f"region_features/{name}_precomp"):
            if (data_dir() / folder).is_dir():
                return data_dir() / folder
    raise DataError(
        f"no folder of region features named {' or '.join(names)} (put it into "
        f"{data_dir() / 'region_features' / names[0]}_precomp: "
        "`mmlib data get region_features` says how)"
    )


def load(folder: Path, split: str) -> Precomputed:
    """One split of a folder in any of the three layouts (see the module's text).

    split: "train", "val" (or "dev"), "test", or "testall" (all 5,000 test images of MS-COCO).

    The arrays of SCAN's layout hold an image once, or once for each caption; the latter are read
    as one image each. The other layouts are packed once into an array in the split's order, beside
    what is packed, to be memory-mapped from then on; the packing shows its progress and goes on
    after an interruption.

    Image ids are names of photographs where these are known, else the identifiers. Values are not
    read, so that a large file opens at once: `mmlib data check region_features` reads all of them.

    Raises DataError that names the file, the row and the mend.
    """
    check_choice("split", split, FILE_SPLITS)
    written = FILE_SPLITS[split]
    if (folder / f"{written}_caps.txt").is_file():
        return _lines(folder, written)
    files = listed(folder, "dataset_*.json")
    if len(files) == 1:
        return _karpathys(folder, files[0], "val" if split == "dev" else split)
    if files:
        raise DataError(f"{folder}: holds {len(files)} files dataset_*.json (leave one)")
    raise DataError(
        f"{folder}: has neither {written}_caps.txt nor dataset_*.json "
        "(data/README.md, region_features, shows the layouts)"
    )


def inspect(folder: Path, split: str) -> str:
    """Read all of one split of a folder in any of the layouts; returns what was counted.

    Raises DataError for the first thing that is wrong: `load` would refuse it, a value is not
    finite, the rows of one image differ, a scene graph cannot be read.
    """
    data = load(folder, split)
    starts = range(0, len(data.rows), BLOCK)
    for start in tqdm(starts, desc=f"{folder.name} {split}", disable=None):
        block = data.rows[start : start + BLOCK]
        first = np.repeat(block[:: data.step], data.step, axis=0)[: len(block)]
        if unusable := fault(block):
            problem = f"row {start + unusable[0]} is {unusable[1]}"
            raise error_at(data.source, None, problem, AGAIN)
        if not (same := (block == first).reshape(len(block), -1).all(axis=1)).all():
            problem = f"row {start + same.argmin()} differs from the first row of its image"
            raise error_at(data.source, None, problem, AGAIN)
    from mmlib.scenegraph.graph import from_authors

    for number, graph in (data.graphs or {}).items():
        try:
            from_authors(graph)
        except ValueError as error:
            path = folder / "scene_graph" / f"{FILE_SPLITS[split]}.json"
            raise error_at(path, None, f'graph "{number}": {error}', AGAIN) from error
    images, shape = data.images, " x ".join(map(str, data.rows.shape[1:]))
    counted = f"{len(images.ids)} images, {sum(map(len, images.captions))} captions, {shape}"
    return f"{images.name} {split} {counted}{data.note}"


def _images(
    folder: Path,
    split: str,
    name: str,
    ids: Sequence[str],
    captions: Iterable[Sequence[str]],
    features: np.ndarray,
    photographs: bool,
) -> CaptionedImages:
    # photographs: whether the ids are their names.
    def open_image(row: int) -> Image.Image:
        if not photographs:
            problem = "is missing, so that the photographs' names are not known"
            raise error_at(folder / "id_mapping.json", None, problem, "get it too")
        for root in (folder / "images", folder / "Images"):
            for subfolder in (".", "train2014", "val2014"):  # MS-COCO's own folders
                if (root / subfolder / ids[row]).is_file():
                    return open_rgb(root / subfolder / ids[row])
        raise error_at(folder / "images" / ids[row], None, "no such image", "put it there")

    features = features[:, None] if features.ndim == 2 else features
    split, texts = "val" if split == "dev" else split, tuple(map(tuple, captions))
    return CaptionedImages(name, split, tuple(ids), texts, features, open_image)


def _karpathys(folder: Path, file: Path, split: str) -> Precomputed:
    name, split_images = karpathy.read_split(file, split)
    ids = [image.name for image in split_images]
    store = open_features(sets.choose(folder / "features"))
    settings = {
        "packed": store.path.name,
        "source": store.meta,
        "source_ids": extraction.content(ids_file(store.path)),
    }

    def read(image_id: str, _: Path) -> np.ndarray:
        return store.rows([image_id])[0].astype(store.array.dtype)

    packed = store.path.with_name(f"{store.path.stem}.{name}_{split}.npy")
    rows = _packed([(image_id, store.path) for image_id in ids], packed, settings, read)
    captions = [image.captions for image in split_images]
    images = _images(folder, split, name, ids, captions, rows, True)
    return Precomputed(images, None, rows, store.path, 1, f", {store.path.stem}")


def _packed(
    images: extraction.Images,
    out: Path,
    settings: Mapping[str, Any],
    read: Callable[[str, Path], np.ndarray],
) -> np.ndarray:
    settings, identity = {**settings, **extraction.ids_settings(images)}, size_and_time
    if out.exists():
        return extraction.finished(images, out, settings, 64, identity).array
    return extraction.fill(
        images, {"features": (out, {})}, settings, read,
        lambda rows: {"features": np.stack(rows)}, batch=64, identity=identity,
    ).array  # fmt: skip


# SCAN's layout and CORA's ------------------------------------------------------------------------


def _lines(folder: Path, name: str) -> Precomputed:
    ims, files = folder / f"{name}_ims.npy", folder / "region_feats" / name
    if not ims.is_file() and not files.is_dir():
        problem = f"is missing, and so is region_feats/{name}/"
        raise error_at(ims, None, problem, "get the features of this split too")
    captions_file, ids_path = folder / f"{name}_caps.txt", folder / f"{name}_ids.txt"
    captions, ids = _text(captions_file), _text(ids_path)
    count, graph_file = len(captions), folder / "scene_graph" / f"{name}.json"
    graphs, note = None, ""
    if graph_file.is_file():
        graphs = _read_graphs(graph_file, count)
        lines, captions = captions, [graph["caption"] for graph in graphs.values()]
        reworded = sum(a != b for a, b in zip(lines, captions, strict=True))
        note = f", scene graphs ({reworded} captions differ from {captions_file.name})"
    rows = open_array(ims) if ims.is_file() else _parts(files, count)

    # The rule of SCAN's loader: there are as many rows as captions, or a fifth, and the same goes,
    # independently, for the identifiers. Where both are as many as captions, five rows are one
    # image if identifiers or features repeat; else every row is an image with one caption.
    for path, length in ((ims, len(rows)), (ids_path, len(ids))):
        if count not in (length, CAPTIONS_EACH * length):
            problem = f"{length} rows for {count} captions, which is neither as many nor a fifth"
            raise error_at(path, None, problem, "get the files of this split again")
    once = len(rows) == count == len(set(ids))
    if once and count % CAPTIONS_EACH == 0:
        starts = range(0, count, CAPTIONS_EACH)  # the first regions of every five rows
        groups = (rows[start : start + CAPTIONS_EACH][:, :1] for start in starts)
        same = [bool((group == group[:1]).all()) for group in groups]
        if any(same) and not all(same):
            odd = CAPTIONS_EACH * same.index(False)
            problem = f"rows {odd} to {odd + 4} differ, while other rows come five alike"
            raise error_at(ims, None, problem, AGAIN)
        once = not all(same)
    if count % CAPTIONS_EACH and not once:
        problem = f"{count} captions, which is not five an image"
        raise error_at(captions_file, None, problem, AGAIN)
    captions_each = 1 if once else CAPTIONS_EACH
    step = len(ids) * captions_each // count
    for row, identifier in enumerate(ids) if len(set(ids)) < len(ids) else ():  # else of captions
        if identifier != ids[row - row % step]:
            problem = f"{identifier} stands among the five rows of {ids[row - row % step]}"
            raise error_at(ids_path, row + 1, problem, AGAIN)

    names, mappings = ids[::step], [folder / "id_mapping.json", folder / "id_mappings.json"]
    mapping_file = next(filter(Path.is_file, mappings), None)
    if mapping_file:
        mapping = read_object(mapping_file)
        for row, identifier in enumerate(ids, start=1):
            if not isinstance(mapping.get(identifier), str):
                problem = f"identifier {identifier} has no file name in {mapping_file.name}"
                raise error_at(ids_path, row, problem, f"get {mapping_file} again")
        names = [mapping[identifier] for identifier in names]
    first: dict[str, int] = {}
    for row, image in enumerate(names):
        if first.setdefault(image, row) != row:
            problem = f"image {image} stands in line {first[image] * step + 1} too"
            raise error_at(ids_path, row * step + 1, problem, AGAIN)
    row_step, starts = captions_each * len(rows) // count, range(0, count, captions_each)
    images = _images(
        folder, name, folder.name, names, [captions[i : i + captions_each] for i in starts],
        rows[::row_step], mapping_file is not None,
    )  # fmt: skip
    return Precomputed(images, graphs, rows, ims, row_step, note)


def _parts(folder: Path, captions: int) -> np.ndarray:
    # CORA's files: as many as captions, or a fifth; a file beyond a fifth decides which.
    def path(row: int) -> Path:
        return folder / f"part{row // PART}" / f"{row}.npy"

    fifth = captions // CAPTIONS_EACH
    count = captions if path(fifth).is_file() else fifth
    shape = open_array(path(0)).shape if path(0).is_file() else None

    def read(name: str, file: Path) -> np.ndarray:
        if not file.is_file():
            again = f"unpack {file.parent.name} again"
            raise error_at(file, None, f"is missing, row {name} of {count}", again)
        with np.errstate(over="ignore"):
            values = np.array(open_array(file), dtype=np.float32)
        if values.ndim != 2:
            raise error_at(file, None, f"holds {values.shape}, not (regions, width)", AGAIN)
        if values.shape != shape:
            problem = f"holds {values.shape}, but the first file {shape}"
            raise error_at(file, None, problem, AGAIN)
        if unusable := fault(values[None]):
            raise error_at(file, None, f"is {unusable[1]}", AGAIN)
        return values

    images = [(str(row), path(row)) for row in range(count)]
    return _packed(images, folder.with_name(f"{folder.name}.npy"), {"packed": folder.name}, read)


def _text(path: Path) -> list[str]:
    # Stripped lines of a text file, none of them empty.
    if not path.is_file():
        raise error_at(path, None, "is missing", "get the files of this split again")
    if not (texts := [text.strip() for _, text in text_lines(path, AGAIN)]):
        raise error_at(path, None, "is empty", AGAIN)
    if not all(texts):
        raise error_at(path, texts.index("") + 1, "is empty", "restore the line")
    return texts


def _read_graphs(path: Path, captions: int) -> dict[int, Graph]:
    # The authors' `scene_graph` file as it is, by number of the caption, in order.
    types = {"caption": str, "entities": list, "relations": list}
    entries, numbers = read_object(path), {str(number) for number in range(captions)}
    broken = {
        key
        for key, graph in entries.items()
        if not isinstance(graph, dict) or not all(isinstance(graph.get(k), types[k]) for k in types)
    }
    for problem, keys in (
        ("has no caption", entries.keys() - numbers),
        ("is missing", numbers - entries.keys()),
        ("is no scene graph", broken),
    ):
        if keys:
            first = min(keys, key=lambda key: (len(key), key))
            problem = f'graph "{first}" {problem} (so {len(keys)} of {captions})'
            raise error_at(path, None, problem, AGAIN)
    return {number: entries[str(number)] for number in range(captions)}
