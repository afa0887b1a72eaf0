"""`mmlib search`: the pictures of a folder that fit a text.

```python
from mmlib.suite import search

found = search.folder("photos").find("a dog on a beach", k=9)
```

Pictures are encoded once and kept in an index, a hidden file of the folder; later only new and
changed ones are.
"""

import hashlib
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image, ImageFilter
from safetensors import SafetensorError, safe_open
from tqdm.auto import tqdm

from mmlib.core.errors import DataError
from mmlib.core.files import PICTURES, listed, write_tensors
from mmlib.suite import score, sheet
from mmlib.suite.encoders import Encoder, batches, open_small

THUMBNAIL = 384  # pixels of the longer side of a picture that was found
Region = tuple[float, float, float, float]  # left, top, right, bottom as shares of the sides
# Windows of half the picture's sides.
WINDOWS: list[Region] = [
    (x / 4, y / 4, x / 4 + 0.5, y / 4 + 0.5) for y in range(3) for x in range(3)
]
Kept = dict[str, tuple[tuple[int, int], np.ndarray]]  # name -> its size and time of change; vector


@dataclass(frozen=True, eq=False)
class Found:
    """The pictures found for a text, best first. files: below the folder; scores: cosines (k,)."""

    folder: Path
    model: Encoder
    text: str
    files: tuple[str, ...]
    scores: np.ndarray

    @property
    def table(self) -> pd.DataFrame:
        """Score and file of each picture, by rank."""
        rank = pd.RangeIndex(1, len(self.files) + 1, name="rank")
        return pd.DataFrame({"score": self.scores, "picture": self.files}, index=rank)

    def __str__(self) -> str:
        return "\n".join(f"{rank:4}  {s:5.2f}  {file}" for rank, s, file in self.table.itertuples())

    @cached_property
    def pictures(self) -> list[Image.Image]:
        """The pictures, at most `THUMBNAIL` pixels a side; DataError for one that is gone."""
        pictures = [open_small(self.folder / file) for file in self.files]
        for picture in pictures:
            picture.thumbnail((THUMBNAIL, THUMBNAIL))
        return pictures

    @cached_property
    def regions(self) -> list[Region]:
        """The part of each picture that its score depends on most.

        That one of `WINDOWS` whose blurring lowers the cosine most (occlusion: Zeiler and Fergus,
        Visualizing and Understanding Convolutional Networks, ECCV 2014).
        """
        wanted, best = self.model.encode_texts([self.text]), []
        for picture in self.pictures:
            smooth = picture.filter(ImageFilter.GaussianBlur(max(picture.size) / 8))
            blurred = [picture.copy() for _ in WINDOWS]
            for copy, window in zip(blurred, WINDOWS, strict=True):
                corners = sheet.pixels(picture, window)
                copy.paste(smooth.crop(corners), corners[:2])
            cosines = self.model.cosines(self.model.encode_images(blurred), wanted)
            best.append(WINDOWS[int(np.argmin(cosines))])
        return best

    def save(self, path: Path | str) -> None:
        """Write a contact sheet with the regions outlined: .png, or .html without other files.

        Raises DataError for another suffix and for a picture that is gone.
        """
        path = sheet.must_be_sheet(Path(path))
        sheet.write(self._items(), self.text, self.model.card, path)

    def _repr_html_(self) -> str:
        return sheet.page(self._items(), self.text, self.model.card)

    def _items(self) -> list[sheet.Item]:
        titles = [f"{rank}. {s:.2f} {file}" for rank, s, file in self.table.itertuples()]
        paths = [self.folder / file for file in self.files]
        columns = (self.pictures, self.regions, titles, paths)
        return [sheet.Item(*row) for row in zip(*columns, strict=True)]


@dataclass(frozen=True, eq=False)
class Index:
    """The pictures of a folder as a model encodes them.

    files: below the folder, sorted, as the rows of vectors (n, D), unit vectors. encoded: how many
    were encoded now. left_out: of each file that cannot be read the reason.
    """

    folder: Path
    model: Encoder
    files: tuple[str, ...]
    vectors: np.ndarray
    encoded: int
    left_out: dict[str, str]

    def find(self, text: str, k: int = 9) -> Found:
        """The k pictures that fit a text best, by cosine; equal ones in the order of names.

        Raises ValueError for an empty text and for k below 1, DataError for a model whose vectors
        of pictures and of texts have other widths.
        """
        must_be_findable(text, k)
        scores = self.model.cosines(self.vectors, self.model.encode_texts([text]))[:, 0]
        best = np.argsort(-scores, kind="stable")[:k]
        files = tuple(self.files[row] for row in best)
        return Found(self.folder, self.model, text, files, scores[best])


def must_be_findable(text: str, k: int) -> None:
    """Raises ValueError for an empty text and for k below 1, before anything is encoded."""
    if not text.strip():
        raise ValueError("there is no text to search for")
    if k < 1:
        raise ValueError(f"{k} pictures cannot be shown: name 1 or more")


def folder(
    path: Path | str, model: Encoder | Path | str = "small", index: Path | str | None = None
) -> Index:
    """The index of a folder and the folders in it, read and brought up to date.

    model: as `score.read` takes or gives it. index: a folder for the index, if not `path` itself.
    What is said goes to stderr: files that are no pictures and are left out, an index that is
    damaged and made anew, or that cannot be written.
    Raises DataError for a folder that is not there or has no pictures, and for what is no model.
    """
    path, model = Path(path), model if isinstance(model, Encoder) else score.read(model)
    if not path.is_dir():
        raise DataError(f"{path}: no such folder")
    files = [p for p in listed(path, "**/*") if p.suffix.lower() in PICTURES and not p.is_dir()]
    if not files:
        raise DataError(f"{path}: no pictures there, nor in its folders ({', '.join(PICTURES)})")
    states = {}
    for file in files:
        # A link to nowhere can be neither asked nor read.
        status = file.stat() if file.exists() else None
        state = (status.st_size, status.st_mtime_ns) if status else (0, 0)
        states[file.relative_to(path).as_posix()] = state
    identity = _hash(model.identity)  # each model has an index of its own
    store = path / f".mmlib-{identity[:12]}.safetensors"
    if index is not None:
        whose = _hash(f"{path.resolve()} {identity}")
        store = Path(index) / f"{path.resolve().name}-{whose[:12]}.safetensors"
    before = _read(store, identity)
    kept = {name: before[name] for name, state in states.items()
            if name in before and before[name][0] == state}  # fmt: skip
    new = [name for name in states if name not in kept]
    left_out: dict[str, str] = {}

    def read(name: str) -> Image.Image | None:
        try:
            return open_small(path / name)
        except DataError as error:
            left_out[name] = str(error)
            return None

    try:
        for names in tqdm(list(batches(new)), desc=path.name, disable=None):
            with ThreadPoolExecutor() as pool:
                pictures = dict(zip(names, pool.map(read, names), strict=True))
            seen = {name: picture for name, picture in pictures.items() if picture is not None}
            vectors = model.encode_images(list(seen.values())) if seen else ()
            kept |= {n: (states[n], vector) for n, vector in zip(seen, vectors, strict=True)}
    finally:  # also when interrupted, so that the same call goes on from here
        if kept.keys() != before.keys() or len(new) > len(left_out):
            _write(store, identity, kept)
    if left_out:
        gone = f"{len(left_out)} of {len(files)} files, such as {next(iter(left_out.values()))}"
        if not kept:
            raise DataError(f"{path}: no picture can be read: {gone}")
        print(f"left out: {gone}", file=sys.stderr)
    names = [name for name in states if name in kept]
    table = np.stack([kept[name][1] for name in names])
    return Index(path, model, tuple(names), table, len(new) - len(left_out), left_out)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _read(store: Path, model: str) -> Kept:
    """What an index holds; nothing where there is none, or a damaged one."""
    try:
        with safe_open(store, "np") as file:
            notes = json.loads((file.metadata() or {})["mmlib"])
            vectors, states = file.get_tensor("vectors"), file.get_tensor("states")
        if notes["model"] != model or not np.isfinite(vectors).all() or vectors.ndim != 2:
            raise ValueError("of another model")
        rows = zip(notes["files"], states.tolist(), vectors, strict=True)
        return {name: ((int(size), int(time)), vector) for name, (size, time), vector in rows}
    except FileNotFoundError:
        return {}
    except (OSError, SafetensorError, LookupError, ValueError, TypeError, RecursionError):
        print(f"{store}: damaged, so the index is made anew", file=sys.stderr)
        return {}


def _write(store: Path, model: str, kept: Kept) -> None:
    """Write an index whole, or say why not: what was asked for can be answered all the same."""
    if not kept:
        return
    states, vectors = zip(*kept.values(), strict=True)
    arrays = {"vectors": np.stack(vectors), "states": np.array(states, dtype=np.int64)}
    try:
        notes = json.dumps({"model": model, "files": list(kept)})
        write_tensors(store, arrays, {"mmlib": notes})
    except OSError as error:
        reason = error.strerror or error
        mend = "the index is not kept (--index names another folder)"
        print(f"{store}: {reason}, so {mend}", file=sys.stderr)
