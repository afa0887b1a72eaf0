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
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from jinja2 import Template
from PIL import Image, ImageDraw, ImageFilter
from tqdm.auto import tqdm

from mmlib.core.errors import DataError
from mmlib.core.files import PICTURES, file_hash, kept, listed, printable, write_tensors
from mmlib.core.paths import write_atomic
from mmlib.suite.encoders import Encoder, batches, open_small, read

THUMBNAIL = 384  # pixels of the longer side of a picture that was found
OUTLINE = "#D55E00"
# Windows of half the picture's sides: left, top, right, bottom as shares of these.
WINDOWS = [(x / 4, y / 4, x / 4 + 0.5, y / 4 + 0.5) for y in range(3) for x in range(3)]
PROBED = 3  # pictures of an index that are encoded again before it is used
ROUNDING = 0.02  # distance of one input's unit vectors at half precision, in different batches
PAGE = Path(__file__).with_name("sheet.html.j2")


@dataclass(frozen=True, eq=False)
class Found:
    """The pictures found for a text. table: score and picture (its file below the folder) by rank,
    best first; the score is a cosine. hashes: of the files that were ranked.
    """

    folder: Path
    model: Encoder
    text: str
    table: pd.DataFrame
    hashes: Sequence[str]

    def __str__(self) -> str:
        return "\n".join(f"{rank:4}  {s:5.2f}  {file}" for rank, s, file in self.table.itertuples())

    @cached_property
    def pictures(self) -> list[Image.Image]:
        """The pictures, at most `THUMBNAIL` pixels a side.

        Raises DataError for one that is gone, or was replaced after it was ranked.
        """
        pictures = [open_small(self.folder / file) for file in self.table.picture]
        for picture, file, ranked in zip(pictures, self.table.picture, self.hashes, strict=True):
            picture.thumbnail((THUMBNAIL, THUMBNAIL))
            if file_hash(self.folder / file) != ranked:
                raise DataError(f"{self.folder / file}: changed since it was ranked; search again")
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
        """Write a contact sheet with the regions outlined, an HTML page without other files.

        Raises DataError for a picture that is gone.
        """
        content = self._repr_html_().encode()
        write_atomic(Path(path), lambda file: file.write_bytes(content))

    def _repr_html_(self) -> str:
        figures = []
        rows = zip(self.table.itertuples(), self.pictures, self.regions, strict=True)
        for (rank, cosine, file), picture, region in rows:
            picture, width = picture.copy(), max(2, max(picture.size) // 80)
            left, top, right, bottom = _pixels(picture, region)
            corners = left, top, right - 1, bottom - 1
            ImageDraw.Draw(picture).rectangle(corners, None, OUTLINE, width)
            picture.save(buffer := io.BytesIO(), "JPEG", quality=90)
            data = base64.b64encode(buffer.getvalue()).decode()
            title, link = f"{rank}. {cosine:.2f} {printable(file)}", (self.folder / file).absolute()
            figures.append((title, link.as_uri(), data))
        page = Template(PAGE.read_text(encoding="utf-8"), autoescape=True)
        return page.render(text=printable(self.text), card=self.model.card, figures=figures)


def _pixels(picture: Image.Image, region: Sequence[float]) -> tuple[int, int, int, int]:
    left, top, right, bottom = np.round(np.multiply(region, picture.size * 2)).astype(int).tolist()
    return left, top, right, bottom


@dataclass(frozen=True, eq=False)
class Index:
    """The pictures of a folder as a model encodes them.

    files: below the folder, sorted, as the rows of vectors (n, D), unit vectors. hashes: of their
    bytes. encoded: how many were encoded now.
    """

    folder: Path
    model: Encoder
    files: tuple[str, ...]
    hashes: tuple[str, ...]
    vectors: np.ndarray
    encoded: int

    def find(self, text: str, k: int = 9) -> Found:
        """The k pictures that fit a text best, by cosine; equal ones in the order of names.

        What of the text the model does not read goes to stderr. Raises DataError for a model whose
        vectors of pictures and of texts have other widths.
        """
        self.model.say_unread([text])
        scores = self.model.cosines(self.vectors, self.model.encode_texts([text]))[:, 0]
        best = np.argsort(-scores, kind="stable")[:k]
        rank = pd.RangeIndex(1, len(best) + 1, name="rank")
        names = pd.Series([self.files[row] for row in best], rank, dtype=object)  # of any bytes
        table = pd.DataFrame({"score": scores[best], "picture": names})
        return Found(self.folder, self.model, text, table, [self.hashes[row] for row in best])


def folder(
    path: Path | str, model: Encoder | Path | str = "small", index: Path | str | None = None
) -> Index:
    """The index of a folder and the folders in it, read and brought up to date.

    model: as `encoders.read` takes or gives it. index: a folder for it, if not `path` itself.
    What is said goes to stderr: files that are no pictures and are left out, an index that is
    damaged and made anew, or that cannot be written.
    Raises DataError for a folder that is not there or has no pictures, and for what is no model.
    """
    path, model = Path(path), model if isinstance(model, Encoder) else read(model)
    if not path.is_dir():
        raise DataError(f"{path}: no such folder")
    files = [p for p in listed(path, "**/*") if p.suffix.lower() in PICTURES and not p.is_dir()]
    if not files:
        raise DataError(f"{path}: no pictures there, nor in its folders ({', '.join(PICTURES)})")
    states = []  # name, size and times of changes, of content and of anything
    for file in files:
        status = file.stat() if file.exists() else None  # a link may lead nowhere
        times = (status.st_size, status.st_mtime_ns, status.st_ctime_ns) if status else (0, 0, 0)
        states.append((file.relative_to(path).as_posix(), *times))
    store = path / f".mmlib-{_hash(model.identity)}.safetensors"  # each model has its own
    if index is not None:
        whose = _hash(f"{path.resolve()} {model.identity}")
        store = Path(index) / f"{path.resolve().name}-{whose}.safetensors"
    before = _read(store)
    rows = {state: before[state] for state in states if state in before}
    if rows and _changed(model, path, rows):
        mend = "made anew: the model gives other vectors now (other weights, code or preprocessing)"
        print(f"{store}: {mend}", file=sys.stderr)
        before, rows = {}, {}
    vector_of = dict(before.values())
    new, left_out, encoded = [state for state in states if state not in rows], dict[str, str](), 0

    def opened(name: str) -> tuple[str, Image.Image | None]:
        try:  # the hash first: of a file that changes in between the next search sees it
            digest = file_hash(path / name)
            return digest, None if digest in vector_of else open_small(path / name)
        except (DataError, OSError) as error:
            known = isinstance(error, DataError)
            left_out[name] = str(error) if known else f"{path / name}: cannot be read: {error}"
            return "", None

    try:
        for block in tqdm(list(batches(new)), desc=path.name, disable=None):
            with ThreadPoolExecutor() as pool:
                seen = list(pool.map(opened, [name for name, *_ in block]))
            pictures = [picture for _, picture in seen if picture is not None]
            digests = [digest for digest, picture in seen if picture is not None]
            vectors = model.encode_images(pictures) if pictures else np.zeros((0, 0))
            vector_of |= zip(digests, vectors, strict=True)
            encoded += len(vectors)
            for state, (digest, _) in zip(block, seen, strict=True):
                if digest:
                    rows[state] = digest, vector_of[digest]
    finally:  # also when interrupted, so that the same call goes on from here
        if rows and rows.keys() != before.keys():
            _write(store, rows)
    if left_out:
        gone = f"{len(left_out)} of {len(files)} files, such as {next(iter(left_out.values()))}"
        if not rows:
            raise DataError(f"{path}: no picture can be read: {gone}")
        print(f"left out: {gone}", file=sys.stderr)
    present = [state for state in states if state in rows]
    hashes, vectors = zip(*(rows[state] for state in present), strict=True)
    return Index(path, model, tuple(n for n, *_ in present), hashes, np.stack(vectors), encoded)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _changed(model: Encoder, folder: Path, rows: Mapping[tuple, tuple[str, np.ndarray]]) -> bool:
    """Whether some pictures of an index, spread over it, have other vectors now."""
    some = list(rows)[:: max(1, len(rows) // PROBED)][:PROBED]
    now = model.encode_images([open_small(folder / name) for name, *_ in some])
    before = np.stack([rows[state][1] for state in some])
    same = now.shape == before.shape and np.linalg.norm(now - before, axis=1).max() <= ROUNDING
    return not same


def _read(store: Path) -> dict[tuple, tuple[str, np.ndarray]]:
    """Of an index the files' hashes and vectors by their states.

    Of no files where there is none or, with a line on stderr, it is damaged.
    """
    arrays, notes = kept(store) or ({"vectors": np.zeros((0, 0))}, {"mmlib": "[]"})
    rows = zip(json.loads(notes["mmlib"]), arrays["vectors"], strict=True)
    return {tuple(state): (digest, row) for (*state, digest), row in rows}


def _write(store: Path, rows: Mapping[tuple, tuple[str, np.ndarray]]) -> None:
    """Write an index whole, or say why not: what was asked for can be answered all the same."""
    try:
        vectors = np.stack([vector for _, vector in rows.values()])
        states = json.dumps([(*state, digest) for state, (digest, _) in rows.items()])
        write_tensors(store, {"vectors": vectors}, {"mmlib": states})
    except OSError as error:
        mend = "the index is not kept (--index names another folder)"
        print(f"{store}: {error.strerror or error}, so {mend}", file=sys.stderr)
