"""`mmlib search`: the pictures of a folder that fit a text.

```python
from mmlib.suite import search

found = search.folder("photos").find("a dog on a beach", k=9)
```

Pictures are encoded once and kept in an index, a hidden file of the folder; later only new and
changed ones are.
"""

import base64
import hashlib
import io
import json
import sys
import textwrap
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from PIL import Image, ImageDraw, ImageFilter
from safetensors import safe_open
from tqdm.auto import tqdm

from mmlib.core.errors import DataError
from mmlib.core.files import PICTURES, listed, write_tensors
from mmlib.core.paths import write_atomic
from mmlib.suite import score
from mmlib.suite.encoders import Encoder, batches, open_small

THUMBNAIL = 384  # pixels of the longer side of a picture that was found
COLUMNS = 5  # pictures in a row of a sheet
OUTLINE = "#D55E00"
# Windows of half the picture's sides: left, top, right, bottom as shares of these.
WINDOWS = [(x / 4, y / 4, x / 4 + 0.5, y / 4 + 0.5) for y in range(3) for x in range(3)]
NOTE = "Outlined is the part of a picture that its score depends on most."
PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{text}</title><style>
body {{ font-family: sans-serif; margin: 1em }}
main {{ display: flex; flex-wrap: wrap; gap: 1em }}
figure {{ margin: 0; width: 15em }}
img {{ max-width: 100%; max-height: 15em }}
figcaption {{ overflow-wrap: anywhere; font-size: small }}
</style></head><body><h1>{text}</h1><p>{note}</p><main>{figures}</main></body></html>
"""
FIGURE = """
<figure><a href="{link}"><img src="data:image/jpeg;base64,{data}" alt="{title}"></a>
<figcaption>{title}</figcaption></figure>"""


@dataclass(frozen=True, eq=False)
class Found:
    """The pictures found for a text. table: score and picture (its file below the folder) by rank,
    best first; the score is a cosine.
    """

    folder: Path
    model: Encoder
    text: str
    table: pd.DataFrame

    def __str__(self) -> str:
        return "\n".join(f"{rank:4}  {s:5.2f}  {file}" for rank, s, file in self.table.itertuples())

    @cached_property
    def pictures(self) -> list[Image.Image]:
        """The pictures, at most `THUMBNAIL` pixels a side; DataError for one that is gone."""
        pictures = [open_small(self.folder / file) for file in self.table.picture]
        for picture in pictures:
            picture.thumbnail((THUMBNAIL, THUMBNAIL))
        return pictures

    @cached_property
    def regions(self) -> list[tuple[float, float, float, float]]:
        """The part of each picture that its score depends on most.

        That one of `WINDOWS` whose blurring lowers the cosine most (occlusion: Zeiler and Fergus,
        Visualizing and Understanding Convolutional Networks, ECCV 2014).
        """
        wanted, best = self.model.encode_texts([self.text]), []
        for picture in self.pictures:
            smooth = picture.filter(ImageFilter.GaussianBlur(max(picture.size) / 8))
            blurred = [picture.copy() for _ in WINDOWS]
            for copy, window in zip(blurred, WINDOWS, strict=True):
                corners = _pixels(picture, window)
                copy.paste(smooth.crop(corners), corners[:2])
            cosines = self.model.cosines(self.model.encode_images(blurred), wanted)
            best.append(WINDOWS[int(np.argmin(cosines))])
        return best

    def save(self, path: Path | str) -> None:
        """Write a contact sheet with the regions outlined: .png, or .html without other files.

        Raises DataError for another suffix and for a picture that is gone.
        """
        path = Path(path)
        must_be_sheet(path)
        if path.suffix == ".html":
            content = self._repr_html_().encode("utf-8", "replace")  # names may be of other bytes
            write_atomic(path, lambda file: file.write_bytes(content))
            return
        rows = -(-len(self.table) // COLUMNS)
        figure = Figure((3 * COLUMNS, 3.5 * rows), layout="constrained")
        figure.suptitle(textwrap.fill(self.text, 35 * COLUMNS), parse_math=False)
        for axes in (grid := figure.subplots(rows, COLUMNS, squeeze=False)).flat:
            axes.axis("off")
        for axes, (title, picture, _) in zip(grid.flat, self._outlined(), strict=False):
            axes.imshow(picture)
            axes.set_title(textwrap.fill(title, 35), fontsize=8, parse_math=False)
        write_atomic(path, lambda file: figure.savefig(file))

    def _repr_html_(self) -> str:
        figures = []
        for title, picture, path in self._outlined():
            buffer = io.BytesIO()
            picture.save(buffer, "JPEG", quality=90)
            data = base64.b64encode(buffer.getvalue()).decode()
            link = escape(path.absolute().as_uri())
            figures.append(FIGURE.format(link=link, data=data, title=escape(title)))
        note = escape(f"{NOTE} {self.model.card}")
        return PAGE.format(text=escape(self.text), note=note, figures="".join(figures))

    def _outlined(self) -> list[tuple[str, Image.Image, Path]]:
        """Title, picture with its region outlined, and file."""
        outlined = []
        rows = zip(self.table.itertuples(), self.pictures, self.regions, strict=True)
        for (rank, cosine, file), picture, region in rows:
            picture, width = picture.copy(), max(2, max(picture.size) // 80)
            left, top, right, bottom = _pixels(picture, region)
            corners = left, top, right - 1, bottom - 1
            ImageDraw.Draw(picture).rectangle(corners, None, OUTLINE, width)
            outlined.append((f"{rank}. {cosine:.2f} {file}", picture, self.folder / file))
        return outlined


def must_be_sheet(path: Path) -> None:
    """Raises DataError where a file is neither .png nor .html."""
    if path.suffix not in (".png", ".html"):
        raise DataError(f"{path}: a contact sheet is a file whose name ends in .png or .html")


def _pixels(picture: Image.Image, region: Sequence[float]) -> tuple[int, int, int, int]:
    left, top, right, bottom = np.round(np.multiply(region, picture.size * 2)).astype(int).tolist()
    return left, top, right, bottom


@dataclass(frozen=True, eq=False)
class Index:
    """The pictures of a folder as a model encodes them.

    files: below the folder, sorted, as the rows of vectors (n, D), unit vectors. encoded: how many
    were encoded now.
    """

    folder: Path
    model: Encoder
    files: tuple[str, ...]
    vectors: np.ndarray
    encoded: int

    def find(self, text: str, k: int = 9) -> Found:
        """The k pictures that fit a text best, by cosine; equal ones in the order of names.

        Raises DataError for a model whose vectors of pictures and of texts have other widths.
        """
        scores = self.model.cosines(self.vectors, self.model.encode_texts([text]))[:, 0]
        best = np.argsort(-scores, kind="stable")[:k]
        rank = pd.RangeIndex(1, len(best) + 1, name="rank")
        table = {"score": scores[best], "picture": [self.files[row] for row in best]}
        return Found(self.folder, self.model, text, pd.DataFrame(table, index=rank))


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
    states = []  # name, size and time of change
    for file in files:
        status = file.stat() if file.exists() else None  # a link may lead nowhere
        state = (status.st_size, status.st_mtime_ns) if status else (0, 0)
        states.append((file.relative_to(path).as_posix(), *state))
    store = path / f".mmlib-{_hash(model.identity)}.safetensors"  # each model has its own
    if index is not None:
        whose = _hash(f"{path.resolve()} {model.identity}")
        store = Path(index) / f"{path.resolve().name}-{whose}.safetensors"
    before = _read(store)
    kept = {state: before[state] for state in states if state in before}
    new = [state for state in states if state not in kept]
    left_out: dict[str, str] = {}

    def read(name: str) -> Image.Image | None:
        try:
            return open_small(path / name)
        except DataError as error:
            left_out[name] = str(error)
            return None

    try:
        for block in tqdm(list(batches(new)), desc=path.name, disable=None):
            with ThreadPoolExecutor() as pool:
                pictures = list(pool.map(read, [name for name, *_ in block]))
            seen = {s: p for s, p in zip(block, pictures, strict=True) if p is not None}
            if seen:
                kept |= zip(seen, model.encode_images(list(seen.values())), strict=True)
    finally:  # also when interrupted, so that the same call goes on from here
        if kept.keys() != before.keys():
            _write(store, kept)
    if left_out:
        gone = f"{len(left_out)} of {len(files)} files, such as {next(iter(left_out.values()))}"
        if not kept:
            raise DataError(f"{path}: no picture can be read: {gone}")
        print(f"left out: {gone}", file=sys.stderr)
    rows = [state for state in states if state in kept]
    vectors = np.stack([kept[state] for state in rows])
    names = tuple(name for name, *_ in rows)
    return Index(path, model, names, vectors, len(new) - len(left_out))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]


def _read(store: Path) -> dict[tuple, np.ndarray]:
    """The vectors of an index by name, size and time of change; none where it is damaged."""
    try:
        with safe_open(store, "np") as file:
            states = json.loads(file.metadata()["mmlib"])
            return dict(zip(map(tuple, states), file.get_tensor("vectors"), strict=True))
    except FileNotFoundError:
        return {}
    except Exception:  # whatever a damaged file leads to
        print(f"{store}: damaged, so the index is made anew", file=sys.stderr)
        return {}


def _write(store: Path, kept: dict[tuple, np.ndarray]) -> None:
    """Write an index whole, or say why not: what was asked for can be answered all the same."""
    if not kept:
        return
    try:
        vectors = np.stack(list(kept.values()))
        write_tensors(store, {"vectors": vectors}, {"mmlib": json.dumps(list(kept))})
    except OSError as error:
        mend = "the index is not kept (--index names another folder)"
        print(f"{store}: {error.strerror or error}, so {mend}", file=sys.stderr)
