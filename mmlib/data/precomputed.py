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
from mmlib.features import extraction, sets
from mmlib.features.store import ids_file, open_array, open_features, open_rgb, read_object

FILE_SPLITS = {"train": "train", "val": "dev", "dev": "dev", "test": "test", "testall": "testall"}
CAPTIONS_EACH = 5
PART = 5000  # files in a folder of CORA's layout
BLOCK = 50  # rows that `inspect` reads at once: a multiple of any step
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


@dataclass(frozen=True)
class _Files:
    """Rows that lie in many files, or in another order, to be packed once into `out`."""

    images: extraction.Images
    read: Callable[[str, Path], np.ndarray]
    out: Path
    settings: Mapping[str, Any]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, rows: slice) -> np.ndarray:
        return np.stack([self.read(*image) for image in self.images[rows]])

    def packed(self) -> np.ndarray:
        """The packed rows; raises DataError where a file of them was replaced since."""
        settings = {**self.settings, **extraction.ids_settings(self.images)}
        batch, identity = 64, extraction.size_and_time
        if self.out.exists():
            return extraction.finished(self.images, self.out, settings, batch, identity).array
        return extraction.fill(
            self.images, {"features": (self.out, {})}, settings, self.read,
            lambda rows: {"features": np.stack(rows)}, batch=batch, identity=identity,
        ).array  # fmt: skip


@dataclass(frozen=True)
class _Split:
    """What any layout comes to: every `step`-th of `rows` is an image with its captions.

    source: the file of the rows. files: names of the photographs, or None where these are not
    known. note: what `inspect` adds to its count.
    """

    name: str
    ids: tuple[str, ...]
    captions: tuple[tuple[str, ...], ...]
    rows: np.ndarray | _Files
    source: Path
    step: int = 1
    files: Sequence[str] | None = None
    graphs: dict[int, Graph] | None = None
    note: str = ""


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
    found = _read(folder, split)
    array = found.rows.packed() if isinstance(found.rows, _Files) else found.rows

    def open_image(row: int) -> Image.Image:
        if found.files is None:
            problem = "is missing, so that the photographs' names are not known"
            raise error_at(folder / "id_mapping.json", None, problem, "get it too")
        for root in (folder / "images", folder / "Images"):
            for subfolder in (".", "train2014", "val2014"):  # MS-COCO's own folders
                if (root / subfolder / found.files[row]).is_file():
                    return open_rgb(root / subfolder / found.files[row])
        raise error_at(folder / "images" / found.files[row], None, "no such image", "put it there")

    images = CaptionedImages(
        name=found.name,
        split="val" if split == "dev" else split,
        ids=found.ids,
        captions=found.captions,
        features=(array[:, None] if array.ndim == 2 else array)[:: found.step],
        open_image=open_image,
    )
    return Precomputed(images, found.graphs)


def inspect(folder: Path, split: str) -> str:
    """Read all of one split of a folder in any of the layouts; returns what was counted.

    Raises DataError for the first thing that is wrong: `load` would refuse it, a value is not
    finite, the rows of one image differ, a scene graph cannot be read.
    """
    found = _read(folder, split)
    shape = found.rows[:1].shape[1:]
    starts = range(0, len(found.rows), BLOCK)
    for start in tqdm(starts, desc=f"{folder.name} {split}", disable=None):
        block = np.asarray(found.rows[start : start + BLOCK])
        first = np.repeat(block[:: found.step], found.step, axis=0)[: len(block)]
        for sound, fault in (
            (np.isfinite(block), "is not finite"),
            (block == first, "differs from the first row of its image"),
        ):
            if not sound.all():
                row = start + int(np.argmin(sound.reshape(len(block), -1).all(axis=1)))
                raise _damaged(found.source, f"row {row} {fault}")
    if found.graphs is not None:
        from mmlib.scenegraph.graph import from_authors

        for number, graph in found.graphs.items():
            try:
                from_authors(graph)
            except ValueError as error:
                path = folder / "scene_graph" / f"{FILE_SPLITS[split]}.json"
                raise _damaged(path, f'graph "{number}": {error}') from error
    captions = sum(map(len, found.captions))
    counted = f"{found.name} {split} {len(found.ids)} images, {captions} captions"
    return f"{counted}, {' x '.join(map(str, shape))}{found.note}"


def _damaged(path: Path, problem: str, row: int | None = None) -> DataError:
    return error_at(path, row, problem, "get this file again")


def _read(folder: Path, split: str) -> _Split:
    check_choice("split", split, FILE_SPLITS)
    written = FILE_SPLITS[split]
    if (folder / f"{written}_caps.txt").is_file():
        return _lines(folder, written)
    files = listed(folder, "dataset_*.json")
    if not files:
        raise DataError(
            f"{folder}: has neither {written}_caps.txt nor dataset_*.json "
            "(data/README.md, region_features, shows the layouts)"
        )
    if files[1:]:
        raise DataError(f"{folder}: holds {len(files)} files dataset_*.json (leave one)")
    split = "val" if split == "dev" else split
    name, images = karpathy.read_split(files[0], split)
    ids = tuple(image.name for image in images)
    store = open_features(sets.choose(folder / "features"))

    def read(image_id: str, _: Path) -> np.ndarray:
        return store.rows([image_id])[0].astype(store.array.dtype)

    rows = _Files(
        [(image_id, store.path) for image_id in ids],
        read,
        store.path.parent / f"{store.path.stem}.{name}_{split}.npy",
        {
            "packed": store.path.name,
            "source": store.meta,
            "source_ids": extraction.content(ids_file(store.path)),
        },
    )
    captions = tuple(image.captions for image in images)
    return _Split(name, ids, captions, rows, store.path, files=ids, note=f", {store.path.stem}")


# SCAN's layout and CORA's ------------------------------------------------------------------------


def _lines(folder: Path, name: str) -> _Split:
    ims, files = folder / f"{name}_ims.npy", folder / "region_feats" / name
    if not ims.is_file() and not files.is_dir():
        problem = f"is missing, and so is region_feats/{name}/"
        raise error_at(ims, None, problem, "get the features of this split too")
    captions_file, ids_path = folder / f"{name}_caps.txt", folder / f"{name}_ids.txt"
    captions, ids = _text(captions_file), _text(ids_path)
    graph_file = folder / "scene_graph" / f"{name}.json"
    graphs, note = None, ""
    if graph_file.is_file():
        graphs = _read_graphs(graph_file, len(captions))
        lines, captions = captions, [graph["caption"] for graph in graphs.values()]
        reworded = sum(a != b for a, b in zip(lines, captions, strict=True))
        note = f", scene graphs ({reworded} captions differ from {captions_file.name})"
    rows = open_array(ims) if ims.is_file() else _parts(files, len(captions))

    # The rule of SCAN's loader: there are as many rows as captions, or a fifth, and the same goes,
    # independently, for the identifiers. Where both are as many as captions, five rows are one
    # image if identifiers or features repeat; else every row is an image with one caption.
    count = len(captions)
    for path, length in ((ims, len(rows)), (ids_path, len(ids))):
        if count not in (length, CAPTIONS_EACH * length):
            problem = f"{length} rows for {count} captions, which is neither as many nor a fifth"
            raise error_at(path, None, problem, "get the files of this split again")
    once = len(rows) == count == len(set(ids)) and not _repeat(rows, ims)
    if count % CAPTIONS_EACH and not once:
        raise _damaged(captions_file, f"{count} captions, which is not five an image")
    each = 1 if once else CAPTIONS_EACH
    step = len(ids) * each // count
    for row, identifier in enumerate(ids) if len(set(ids)) < len(ids) else ():  # else of captions
        if identifier != ids[row - row % step]:
            problem = f"{identifier} stands among the five rows of {ids[row - row % step]}"
            raise _damaged(ids_path, problem, row + 1)

    names, known = ids[::step], False
    for mapping_file in (folder / "id_mapping.json", folder / "id_mappings.json"):
        if mapping_file.is_file() and not known:
            known, mapping = True, read_object(mapping_file)
            for row, identifier in enumerate(ids, start=1):
                if not isinstance(mapping.get(identifier), str):
                    problem = f"identifier {identifier} has no file name in {mapping_file.name}"
                    raise error_at(ids_path, row, problem, f"get {mapping_file} again")
            names = [mapping[identifier] for identifier in names]
    first: dict[str, int] = {}
    for row, image in enumerate(names):
        if first.setdefault(image, row) != row:
            problem = f"image {image} stands in line {first[image] * step + 1} too"
            raise _damaged(ids_path, problem, row * step + 1)
    return _Split(
        folder.name,
        tuple(names),
        tuple(tuple(captions[start : start + each]) for start in range(0, count, each)),
        rows,
        ims,
        each * len(rows) // count,
        names if known else None,
        graphs,
        note,
    )


def _parts(folder: Path, captions: int) -> _Files:
    """CORA's files: as many as captions, or a fifth; a file beyond a fifth decides which."""

    def path(row: int) -> Path:
        return folder / f"part{row // PART}" / f"{row}.npy"

    def array(row: int) -> np.ndarray:
        if not path(row).is_file():
            again = f"unpack part{row // PART} again"
            raise error_at(path(row), None, f"is missing, row {row} of {count}", again)
        values = open_array(path(row))
        if values.ndim != 2:
            raise _damaged(path(row), f"holds {values.shape}, not (regions, width)")
        return np.array(values, dtype=np.float32)

    fifth = captions // CAPTIONS_EACH
    count = captions if path(fifth).is_file() else fifth
    shape = array(0).shape

    def read(name: str, file: Path) -> np.ndarray:
        values = array(int(name))
        if values.shape != shape:
            raise _damaged(file, f"holds {values.shape}, but the first file {shape}")
        if not np.isfinite(values).all():
            raise _damaged(file, "is not finite")
        return values

    images = [(str(row), path(row)) for row in range(count)]
    return _Files(images, read, folder.parent / f"{folder.name}.npy", {"packed": folder.name})


def _repeat(rows: np.ndarray | _Files, path: Path) -> bool:
    """Whether every five rows are the same (by their first region)."""
    if len(rows) % CAPTIONS_EACH:
        return False
    starts = range(0, len(rows), CAPTIONS_EACH)
    groups = (np.asarray(rows[start : start + CAPTIONS_EACH])[:, :1] for start in starts)
    same = np.array([(group == group[:1]).all() for group in groups])
    if same.any() and not same.all():
        odd = CAPTIONS_EACH * int(np.argmin(same))
        raise _damaged(path, f"rows {odd} to {odd + 4} differ, while other rows come five alike")
    return bool(same.all())


def _text(path: Path) -> list[str]:
    """Stripped lines of a text file, none of them empty."""
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


def _read_graphs(path: Path, captions: int) -> dict[int, Graph]:
    """The authors' `scene_graph` file as it is, by number of the caption, in order."""
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
            raise _damaged(path, f'graph "{first}" {problem} (so {len(keys)} of {captions})')
    return {number: entries[str(number)] for number in range(captions)}
