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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tqdm.auto import tqdm

from mmlib.core.errors import DataError, Problem
from mmlib.core.files import listed, text_lines
from mmlib.core.paths import data_dir
from mmlib.core.records import CaptionedImages
from mmlib.data import karpathy
from mmlib.data.tables import check_choice, error_at
from mmlib.features import sets
from mmlib.features.extraction import (
    Images,
    content,
    fill,
    finished,
    ids_settings,
    size_and_time,
)
from mmlib.features.store import ids_file, open_array, open_features, open_rgb, read_object

FILE_SPLITS = {"train": "train", "val": "dev", "dev": "dev", "test": "test", "testall": "testall"}
CAPTIONS_EACH = 5
PART = 5000  # files in a folder of CORA's layout
Graph = dict[str, Any]


@dataclass(frozen=True)
class Precomputed:
    """One split.

    images: its captions and features. The features are memory-mapped, as stored.
    graphs: number of the caption, counted through the split from 0 -> the authors' scene graph
        (`mmlib.scenegraph.from_authors` reads it), or None where the data have none.
    """

    images: CaptionedImages
    graphs: Mapping[int, Graph] | None = None


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
    written, split = _written(split), "val" if split == "dev" else split
    if not (folder / f"{written}_caps.txt").is_file():
        return _karpathy(_split_file(folder, written), split)
    texts = _Texts(folder, written)
    array = open_array(texts.ims) if texts.scan else _packed_files(texts)
    captions_each, step = texts.divide(array)
    ids, files = texts.image_ids(captions_each)
    starts = range(0, len(texts.captions), captions_each)
    return Precomputed(
        CaptionedImages(
            name=folder.name,
            split=split,
            ids=ids,
            captions=tuple(
                tuple(texts.captions[start : start + captions_each]) for start in starts
            ),
            features=_regions(array)[::step],
            open_image=_opener(texts.folder, files),
        ),
        texts.graphs,
    )


def inspect(folder: Path, split: str) -> str:
    """Read all of one split of a folder in any of the layouts; returns what was counted.

    Raises DataError for the first thing that is wrong: `load` would refuse it, a value is not
    finite, the rows of one image differ, a scene graph cannot be read.
    """
    written = _written(split)
    if not (folder / f"{written}_caps.txt").is_file():
        return _inspect_karpathy(_split_file(folder, written), "val" if split == "dev" else split)
    texts = _Texts(folder, written)
    array = open_array(texts.ims) if texts.scan else _FileRows(texts)
    captions_each, step = texts.divide(array)
    ids, _ = texts.image_ids(captions_each)
    bar = tqdm(range(0, len(array), 50), desc=f"{folder.name} {split}", unit="block", disable=None)
    for start in bar:  # 50: a multiple of any step
        block = np.asarray(array[start : start + 50])
        broken = np.flatnonzero(~np.isfinite(block).reshape(len(block), -1).all(axis=1))
        if broken.size:
            raise _damaged(texts.ims, f"row {start + broken[0]} is not finite")
        same = (block == np.repeat(block[::step], step, axis=0)).reshape(len(block), -1).all(axis=1)
        if not same.all():
            row = start + np.argmin(same)
            raise _damaged(texts.ims, f"row {row} differs from the first row of its image")
    shape = " x ".join(map(str, array.shape[1:]))
    return (
        f"{folder.name} {split} {len(ids)} images, {len(texts.captions)} captions, {shape}"
        f"{_inspect_graphs(texts)}"
    )


def _inspect_karpathy(path: Path, split: str) -> str:
    name, images = karpathy.read_split(path, split)
    store = open_features(sets.choose(path.parent / "features"))
    ids = [image.name for image in images]
    for start in range(0, len(ids), 64):
        store.rows(ids[start : start + 64])  # refuses what is missing or not finite
    shape = " x ".join(map(str, store.array.shape[1:]))
    captions = sum(len(image.captions) for image in images)
    return f"{name} {split} {len(ids)} images, {captions} captions, {store.path.stem} {shape}"


def _written(split: str) -> str:
    """The split as the names of files have it."""
    check_choice("split", split, FILE_SPLITS)
    return FILE_SPLITS[split]


def _damaged(path: Path, problem: str, row: int | None = None) -> DataError:
    return error_at(path, row, problem, "get this file again")


def _inspect_graphs(texts: "_Texts") -> str:
    """Read every scene graph; returns what was counted, "" where there are none."""
    from mmlib.scenegraph.graph import from_authors

    if texts.graphs is None:
        return ""
    for number, graph in texts.graphs.items():
        try:
            from_authors(graph)
        except ValueError as error:
            raise _damaged(texts.graph_file, f'graph "{number}": {error}') from error
    return f", scene graphs ({texts.reworded} captions differ from {texts.caps_file.name})"


# SCAN's layout and CORA's ------------------------------------------------------------------------


class _Texts:
    """What lies beside the features of one split: captions, identifiers, file names, graphs."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.ims = folder / f"{name}_ims.npy"
        self.files = folder / "region_feats" / name
        self.scan = self.ims.is_file()
        if not self.scan and not self.files.is_dir():
            problem = f"is missing, and so is region_feats/{name}/"
            raise error_at(self.ims, None, problem, "get the features of this split too")
        self.caps_file, self.ids_file = folder / f"{name}_caps.txt", folder / f"{name}_ids.txt"
        self.captions, self.ids = read_lines(self.caps_file), read_lines(self.ids_file)
        self.graph_file = folder / "scene_graph" / f"{name}.json"
        self.graphs: dict[int, Graph] | None = None
        if self.graph_file.is_file():
            self.graphs = read_graphs(self.graph_file, len(self.captions))
            lines, self.captions = self.captions, [g["caption"] for g in self.graphs.values()]
            self.reworded = sum(a != b for a, b in zip(lines, self.captions, strict=True))

    def divide(self, array: "np.ndarray | _FileRows") -> tuple[int, int]:
        """How many captions an image has, and how many rows of `array`.

        The rule of SCAN's loader: there are as many rows as captions, or a fifth, and the same
        goes, independently, for the identifiers. Where both are as many as captions, five rows are
        one image if identifiers or features repeat; else every row is an image with one caption.
        """
        captions = len(self.captions)
        counts = {self.ims: len(array), self.ids_file: len(self.ids)}
        for path, count in counts.items():
            if captions not in (count, CAPTIONS_EACH * count):
                problem = f"{count} rows for {captions} captions, which is neither as many nor "
                problem += "a fifth"
                raise error_at(path, None, problem, "get the files of this split again")
        once = set(counts.values()) == {captions}
        if once and len(set(self.ids)) == captions and not self._repeat(array):
            return 1, 1
        if captions % CAPTIONS_EACH:
            raise _damaged(self.caps_file, f"{captions} captions, which is not five an image")
        return CAPTIONS_EACH, CAPTIONS_EACH * len(array) // captions

    def _repeat(self, array: "np.ndarray | _FileRows") -> bool:
        """Whether every five rows are the same (by their first region)."""
        if len(array) % CAPTIONS_EACH:
            return False
        rows = range(0, len(array), CAPTIONS_EACH)
        groups = (np.asarray(array[row : row + CAPTIONS_EACH])[:, :1] for row in rows)
        same = np.array([(group == group[:1]).all() for group in groups])
        if same.any() and not same.all():
            odd = CAPTIONS_EACH * int(np.argmin(same))
            problem = f"rows {odd} to {odd + 4} differ, while other rows come five alike"
            raise _damaged(self.ims, problem)
        return bool(same.all())

    def image_ids(self, captions_each: int) -> tuple[tuple[str, ...], list[str] | None]:
        """Ids of the images and, where these are known, their files' names."""
        step = len(self.ids) * captions_each // len(self.captions)
        if step > 1 and len(set(self.ids)) < len(self.ids):  # else numbers of captions
            for row, name in enumerate(self.ids):
                if name != self.ids[row - row % step]:
                    problem = f"{name} stands among the five rows of {self.ids[row - row % step]}"
                    raise _damaged(self.ids_file, problem, row + 1)
        files = self._file_names()
        names = self.ids[::step] if files is None else [files[i] for i in self.ids[::step]]
        first: dict[str, int] = {}
        for row, name in enumerate(names):
            if first.setdefault(name, row) != row:
                problem = f"image {name} stands in line {first[name] * step + 1} too"
                raise _damaged(self.ids_file, problem, row * step + 1)
        return tuple(names), None if files is None else names

    def _file_names(self) -> dict[str, str] | None:
        """Identifier -> file name of the photograph."""
        for path in (self.folder / f"{name}.json" for name in ("id_mapping", "id_mappings")):
            if path.is_file():
                mapping = read_object(path)
                for row, name in enumerate(self.ids, start=1):
                    if not isinstance(mapping.get(name), str):
                        problem = f"identifier {name} has no file name in {path.name}"
                        raise error_at(self.ids_file, row, problem, f"get {path} again")
                return mapping
        return None


def read_lines(path: Path) -> list[str]:
    """Stripped lines of a text file, none of them empty; raises DataError naming the line."""
    if not path.is_file():
        raise error_at(path, None, "is missing", "get the files of this split again")
    lines = []
    for row, line in text_lines(path, "get this file again"):
        if isinstance(line, Problem):
            raise DataError(line)
        if not line.strip():
            raise error_at(path, row, "is empty", "restore the line")
        lines.append(line.strip())
    if not lines:
        raise _damaged(path, "is empty")
    return lines


def read_graphs(path: Path, captions: int) -> dict[int, Graph]:
    """The authors' `scene_graph` file as it is, by number of the caption, in order.

    Raises DataError for a graph without its caption, a caption without its graph, and an entry
    that is no graph.
    """
    entries = read_object(path)
    numbers = {str(number) for number in range(captions)}
    for problem, keys in (
        ("has no caption", entries.keys() - numbers),
        ("is missing", numbers - entries.keys()),
        ("is no scene graph", {k for k, v in entries.items() if not _is_graph(v)}),
    ):
        if keys:
            first = min(keys, key=lambda key: (len(key), key))
            raise _damaged(path, f'graph "{first}" {problem} (so {len(keys)} of {captions})')
    return {number: entries[str(number)] for number in range(captions)}


def _is_graph(entry: object) -> bool:
    types = {"caption": str, "entities": list, "relations": list}
    return isinstance(entry, dict) and all(isinstance(entry.get(k), types[k]) for k in types)


class _FileRows:
    """The many files of one split in CORA's layout, read as the rows of one array.

    There are as many as captions, or a fifth; a file beyond a fifth decides which.
    """

    def __init__(self, texts: _Texts) -> None:
        self.folder, fifth = texts.files, len(texts.captions) // CAPTIONS_EACH
        self.rows = len(texts.captions) if self.path(fifth).is_file() else fifth
        self.shape = (self.rows, *self._read(0).shape)
        self.dtype = np.dtype(np.float32)

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, rows: slice) -> np.ndarray:
        return np.stack([self.read("", self.path(row)) for row in range(*rows.indices(self.rows))])

    def path(self, row: int) -> Path:
        """Where that row lies."""
        return self.folder / f"part{row // PART}" / f"{row}.npy"

    def _read(self, row: int) -> np.ndarray:
        path = self.path(row)
        if not path.is_file():
            problem = f"is missing, row {row} of {self.rows}"
            raise error_at(path, None, problem, f"unpack part{row // PART} again")
        array = open_array(path)
        if array.ndim != 2:
            raise _damaged(path, f"holds {array.shape}, not (regions, width)")
        return np.array(array)

    def read(self, name: str, path: Path) -> np.ndarray:
        """One file, checked against the first."""
        values = self._read(int(path.stem))
        if values.shape != self.shape[1:]:
            raise _damaged(path, f"holds {values.shape}, but the first file {self.shape[1:]}")
        if not np.isfinite(values).all():
            raise _damaged(path, "is not finite")
        return values


def _packed_files(texts: _Texts) -> np.ndarray:
    files = _FileRows(texts)
    images = [(str(row), files.path(row)) for row in range(len(files))]
    out = texts.files.parent / f"{texts.name}.npy"
    return _packed(images, out, files.read, files.dtype, {"packed": texts.name})


def _packed(
    images: Images,
    out: Path,
    read: Callable[[str, Path], np.ndarray],
    dtype: np.dtype,
    settings: Mapping[str, Any],
) -> np.ndarray:
    """The rows that `read` gives, in the order of `images`, packed into `out` (once).

    Raises DataError where a file of an image was written or replaced since.
    """
    batch = 64
    settings = {**settings, **ids_settings(images)}
    if out.exists():
        return finished(images, out, settings, batch, size_and_time).array
    return fill(
        images, {"features": (out, {})}, settings, read,
        lambda rows: {"features": np.stack(rows).astype(dtype)},
        batch=batch, identity=size_and_time,
    ).array  # fmt: skip


def _regions(array: np.ndarray) -> np.ndarray:
    """(rows, regions, width); one region where there is one vector an image."""
    return array[:, None] if array.ndim == 2 else array


# Karpathy's --------------------------------------------------------------------------------------


def _split_file(folder: Path, written: str) -> Path:
    """The `dataset_*.json` in a folder."""
    files = listed(folder, "dataset_*.json")
    if not files:
        raise DataError(
            f"{folder}: has neither {written}_caps.txt nor dataset_*.json "
            "(data/README.md, region_features, shows the layouts)"
        )
    if files[1:]:
        raise DataError(f"{folder}: holds {len(files)} files dataset_*.json (leave one)")
    return files[0]


def _karpathy(path: Path, split: str) -> Precomputed:
    name, images = karpathy.read_split(path, split)
    ids = tuple(image.name for image in images)
    store = open_features(sets.choose(path.parent / "features"))
    array = _packed(
        [(image_id, store.path) for image_id in ids],
        store.path.parent / f"{store.path.stem}.{name}_{split}.npy",
        lambda image_id, _: store.rows([image_id])[0],
        store.array.dtype,
        {
            "packed": store.path.name,
            "source": store.meta,
            "source_ids": content(ids_file(store.path)),
        },
    )
    return Precomputed(
        CaptionedImages(
            name=name,
            split=split,
            ids=ids,
            captions=tuple(image.captions for image in images),
            features=array,
            open_image=_opener(path.parent, ids),
        )
    )


# Photographs -------------------------------------------------------------------------------------


def _opener(folder: Path, files: Sequence[str] | None) -> Callable[[int], Image.Image]:
    """Row -> its photograph, wherever in the folder's photographs it lies."""

    def open_image(row: int) -> Image.Image:
        if files is None:
            problem = "is missing, so that the photographs' names are not known"
            raise error_at(folder / "id_mapping.json", None, problem, "get it too")
        for root in (folder / "images", folder / "Images"):
            for subfolder in (".", "train2014", "val2014"):  # MS-COCO's own folders
                if (root / subfolder / files[row]).is_file():
                    return open_rgb(root / subfolder / files[row])
        raise error_at(folder / "images" / files[row], None, "no such image", "put it there")

    return open_image
