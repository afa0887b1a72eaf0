"""One reader for every file of image features.

A feature file is an `.npy` array with one row an image, (images, width) or (images, regions,
width), and the image ids in row order beside it, in a file that belongs to it by its name. Three
namings are read: `NAME.npy` with `NAME.ids.txt`; `NAME_ims.npy`, `NAME_boxes.npy` and
`NAME_scores.npy` with `NAME_ids.txt` (SCAN's, Lee et al., ECCV 2018); and `features.npy` with
`id2row.json` (Hessel, Lee and Mimno, EMNLP 2019). A list without a name, `ids.txt`, may be of any
file: only one on record is read with it.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from mmlib.core.errors import DataError, Problem
from mmlib.core.files import regular_file
from mmlib.core.paths import write_atomic

# Feature files whose ids may lie under a name that does not tell whose they are.
OTHER_IDS = {"features": "id2row.json", "grid4x4_mobilenetv1_pca192": "ids.txt"}
AGAIN = "get it again, or extract the features again"
UNREADABLE = (OSError, ValueError, SyntaxError, Image.DecompressionBombError)


def open_rgb(path: Path) -> Image.Image:
    """Decode one picture completely, as `rgb` does; raises DataError that names the file."""
    try:
        with Image.open(regular_file(path)) as picture:
            return rgb(picture)
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such image (get the data set again)") from error
    except UNREADABLE as error:
        reason = str(error).removeprefix(f"{path}: ")
        raise DataError(f"{path}: cannot be decoded: {reason} (get this image again)") from error


def rgb(picture: Image.Image) -> Image.Image:
    """An opened picture as it is meant to be seen: upright, 8 bits a channel, on white.

    EXIF may say how to turn it. Grey of 16 bits is divided by 257, where Pillow clips it. Raises
    ValueError for numbers of unknown range (32 bits, floats), and what decoding raises.
    """
    picture.load()
    with suppress(Exception):  # a damaged note: the picture stays as it lies
        ImageOps.exif_transpose(picture, in_place=True)
    if picture.mode[0] in "IF":
        if not picture.mode.startswith("I;16") and picture.format != "PPM":
            raise ValueError("its numbers have no known range; save it with 8 bits a channel")
        grey, clear = np.asarray(picture), picture.info.get("transparency", -1)
        picture = Image.fromarray(np.where(grey == clear, 255, grey // 257).astype(np.uint8))
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
    return picture.convert("RGB")


@dataclass(frozen=True)
class FeatureStore:
    """Image features on disk, looked up by image id.

    path: the `.npy` file.
    array: (rows, width) or (rows, regions, width), memory-mapped, as stored.
    row_of: image id -> row.
    meta: what the extractor noted about backbone and weights; empty for files made elsewhere.
    """

    path: Path
    array: np.ndarray
    row_of: Mapping[str, int]
    meta: Mapping[str, Any]

    @property
    def width(self) -> int:
        """Values a region."""
        return self.array.shape[-1]

    def rows(self, ids: Sequence[str]) -> np.ndarray:
        """Features of these images, (len(ids), regions, width) float32; one region if global.

        Raises DataError for an image without a row, and for a row that is of no use (`fault`).
        """
        missing = [name for name in ids if name not in self.row_of]
        if missing:
            raise DataError(
                f"{self.path}: no features for image {missing[0]!r}"
                f"{f' and {len(missing) - 1} more' if missing[1:] else ''} "
                "(extract them with `mmlib data features`)"
            )
        rows = np.fromiter((self.row_of[name] for name in ids), dtype=np.int64, count=len(ids))
        with np.errstate(over="ignore"):
            values = np.asarray(self.array[rows], dtype=np.float32)
        values = values[:, None, :] if values.ndim == 2 else values
        if unusable := fault(values):
            row, problem = unusable
            raise DataError(
                f"{self.path}, row {rows[row]}: features of image {ids[row]!r} are {problem} "
                "(extract them again)"
            )
        return values


def fault(values: np.ndarray) -> tuple[int, str] | None:
    """The first row of features (rows, ...) that is of no use, and why; None for none.

    Numbers are looked at as float32, as which they are used: 1e39 is infinite and 1e-50 is 0.
    """
    with np.errstate(over="ignore"):
        rows = np.asarray(values, dtype=np.float32)
    rows = rows.reshape(len(rows), math.prod(rows.shape[1:]))
    for wrong, problem in (
        (~np.isfinite(rows).all(axis=1), "not finite, or too large for float32"),
        (~rows.any(axis=1), "all 0"),
    ):
        if wrong.any():
            return int(wrong.argmax()), problem
    return None


def size_and_time(path: Path) -> str:
    """For files that are too many gigabytes to be read again: their size and time of change.

    Whoever writes to a file changes its time, unless that is set back. A copy has another time too,
    where it was not made to keep it (`cp -p`, `rsync -t`), and is then taken for another file.
    """
    status = path.stat() if path.is_file() else None
    return f"{status.st_size} {status.st_mtime_ns}" if status else ""


def file_fingerprint(array: np.memmap, rows: int = 64) -> str:
    """A hash of a memory-mapped array: `size_and_time`, shape, strides, type, some of its rows."""
    assert array.filename is not None
    text = f"{size_and_time(Path(array.filename))} {array.shape} {array.strides} {array.dtype}"
    digest = hashlib.sha256(text.encode())
    digest.update(array[np.linspace(0, len(array) - 1, rows).astype(int)].tobytes())
    return digest.hexdigest()


def open_features(path: Path) -> FeatureStore:
    """Open a feature file and the ids beside it (see the module's text for the namings).

    Raises DataError: missing files, object arrays, ids that do not fit the rows, damaged notes.
    """
    array, listing, notes = open_array(path), ids_of(path), path.with_suffix(".json")
    if not listing.is_file():
        mend = f"put {ids_file(path).name} there, an image id a line in the order of the rows"
        if any(path.with_name(name).is_file() for name in OTHER_IDS.values()):
            mend += "; a list of another name there may be of another file"
        raise DataError(Problem(path, None, "no ids beside it", mend))
    row_of: dict[str, int] = {}
    if listing.suffix == ".json":
        row_of, rows = read_object(listing), f"but {path.name} has rows 0 to {len(array) - 1}"
        for name, row in row_of.items():
            if type(row) is not int or not 0 <= row < len(array):
                problem = f"image {name!r} has row {row!r}, {rows}"
                raise DataError(Problem(listing, None, problem, "get both again"))
    else:
        try:
            text = regular_file(listing).read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise DataError(Problem(listing, None, f"not UTF-8: {error}", AGAIN)) from error
        ids = text.removesuffix("\n").split("\n") if text else []
        for row, name in enumerate(ids):
            if row_of.setdefault(name, row) != row:
                problem = f"id {name!r} occurs twice"
                raise DataError(Problem(listing, row + 1, problem, "name each image once"))
        if len(ids) != len(array):
            problem = f"{len(ids)} ids for {len(array)} rows of {path.name}"
            raise DataError(Problem(listing, None, problem, "get both again"))
    return FeatureStore(path, array, row_of, read_object(notes) if notes.is_file() else {})


def read_object(path: Path, mend: str = AGAIN) -> dict[str, Any]:
    """A JSON file that holds one object; raises DataError for none or another one."""
    if not path.exists():
        raise DataError(Problem(path, None, "is missing", mend))
    text = regular_file(path).read_bytes()
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(Problem(path, None, f"not JSON: {error}", mend)) from error
    if not isinstance(content, dict):
        raise DataError(Problem(path, None, "not a JSON object", mend))
    return content


def open_array(path: Path) -> np.ndarray:
    """The array of a feature file, (images, width) or (images, regions, width), memory-mapped.

    Raises DataError for a file that is missing or holds something else.
    """
    if not path.is_file():
        mend = "make it with `mmlib data features`, or name one that is there"
        raise DataError(Problem(path, None, "no such feature file", mend))
    try:
        array = np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # the header is text that numpy reads as Python: any may come
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        problem = f"not a readable .npy array: {reason}"
        raise DataError(Problem(path, None, problem, AGAIN)) from error
    if array.ndim not in (2, 3) or array.dtype.kind != "f":
        shapes = "(images, width) or (images, regions, width)"
        problem = f"holds {array.dtype} {array.shape}, not floats of shape {shapes}"
        raise DataError(Problem(path, None, problem, ""))
    return array


def ids_file(path: Path) -> Path:
    """The file of ids that belongs to the feature file `path` alone, by its name."""
    name, _, kind = path.stem.rpartition("_")
    scan = name and kind in ("ims", "boxes", "scores")
    return path.with_name(f"{name}_ids.txt" if scan else f"{path.stem}.ids.txt")


def ids_of(path: Path) -> Path:
    """The file from which the ids of a feature file are read."""
    by_name = ids_file(path)
    return by_name if by_name.is_file() else path.with_name(OTHER_IDS.get(path.stem, by_name.name))


def write_notes(path: Path, ids: Sequence[str], notes: Mapping[str, Any]) -> None:
    """Write the ids of a feature file's rows, and its notes, beside its place."""
    texts = {
        ids_file(path): "".join(f"{name}\n" for name in ids),
        path.with_suffix(".json"): json.dumps(notes, indent=1) + "\n",
    }
    for file, text in texts.items():
        write_atomic(file, partial(Path.write_text, data=text, encoding="utf-8"))
