"""Pieces of the pages that are made from evidence: tables in Markdown, and pictures of figures."""

import hashlib
import html
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import Collection
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from mmlib.core import plots
from mmlib.core.paths import write_atomic

NONE = "–"
ENDS = (("95 % low", "high"), ("low", "high"), ("from", "to"))  # columns of an interval's ends
LONG = 40  # rows; a longer table is folded
DECIMALS = 3  # of a number that its table has not rounded
DPI = 110
SHOWS = "shows"  # the text chunk of a picture with the digest of what its figure shows


# --- Tables --------------------------------------------------------------------------------------


def rows_table(columns: Sequence[str], rows: Iterable[Sequence[str]], around: str = " ") -> str:
    """A Markdown table; a bar in a cell does not end it. around: what stands around each cell."""
    lines = [[cell.replace("|", r"\|").replace("\n", " ") for cell in row] for row in rows]
    first, *others = (
        f"|{around}" + f"{around}|{around}".join(line) + f"{around}|" for line in (columns, *lines)
    )
    return "\n".join([first, "|" + "---|" * len(columns), *others])


def frame_table(frame: pd.DataFrame, words: Mapping[str, str] = {}) -> str:
    """A data frame as a Markdown table, its index first.

    words: label of a row, a column or an index -> what the page calls it. Numbers keep the digits
    that their table rounded them to; "–" is for none.
    """
    frame, levels = with_intervals(frame), range(frame.index.nlevels)
    names = [str(frame.index.names[level] or "") for level in levels]
    columns = [words.get(name, name) for name in names]
    columns += [": ".join(dict.fromkeys(_labels(column, words))) for column in frame.columns]
    cells = [[_one_label(label, words) for label in frame.index.get_level_values(level)]
             for level in levels]  # fmt: skip
    cells += [_column(frame.iloc[:, i].tolist()) for i in range(frame.shape[1])]
    return rows_table(columns, zip(*cells, strict=True))


def with_intervals(frame: pd.DataFrame) -> pd.DataFrame:
    """A table in which a number and its two ends, in columns of their own, are one cell."""
    names = [str(name) for name in frame.columns]
    merged = {}
    for i, name in enumerate(names):
        if tuple(names[i + 1 : i + 3]) in ENDS:
            effects, lows, highs = (_column(frame.iloc[:, i + k].tolist()) for k in range(3))
            merged[f"{name}, 95 % interval"] = [
                NONE if effect == NONE else f"{effect} [{low}, {high}]"
                for effect, low, high in zip(effects, lows, highs, strict=True)
            ]
        elif not any(tuple(names[k + 1 : k + 3]) in ENDS for k in (i - 1, i - 2) if k >= 0):
            merged[frame.columns[i]] = frame.iloc[:, i].tolist()
    whole = pd.DataFrame(merged, index=frame.index, dtype=object)
    return whole if len(whole.columns) < len(frame.columns) else frame


def _labels(column: Any, words: Mapping[str, str]) -> list[str]:
    """The words of a column's label, by level."""
    return [
        _one_label(label, words) for label in (column if isinstance(column, tuple) else [column])
    ]


def _one_label(label: Any, words: Mapping[str, str]) -> str:
    return words.get(str(label), str(label))


def _column(values: Sequence[Any]) -> list[str]:
    """The cells of a column: its numbers with the same decimals."""
    numbers = [float(v) for v in values if isinstance(v, float) and math.isfinite(v)]
    decimals = max((_decimals(number) for number in numbers), default=0)
    return [_cell(value, decimals) for value in values]


def _decimals(number: float) -> int:
    """How many decimals a rounded number has; more than `DECIMALS` where it is not rounded."""
    fits = (n for n in range(DECIMALS + 1) if math.isclose(round(number, n), number, abs_tol=1e-9))
    return next(fits, DECIMALS + 1)


def _cell(value: Any, decimals: int) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return NONE
    if isinstance(value, float):
        if value == round(value) and abs(value) >= 1000:
            return f"{value:,.0f}"
        return f"{value:.3g}" if decimals > DECIMALS else f"{value:.{decimals}f}"
    return str(value) or NONE


def folded(title: str, text: str, rows: int) -> str:
    """A table, folded under its title where it is long."""
    if rows <= LONG:
        return text
    return f"<details><summary>{html.escape(title)} ({rows} rows)</summary>\n\n{text}\n\n</details>"


def title_of(notebook: str, root: Path) -> str:
    """The notebook's own title."""
    path = root / "notebooks" / f"{notebook}.ipynb"
    first = nbformat.read(path, as_version=4).cells[0].source
    return str(first.splitlines()[0].lstrip("# "))


# --- Pictures ------------------------------------------------------------------------------------


def digest_of(figure: Figure) -> str:
    """A digest of what a figure shows: its words, and its numbers to four digits.

    The bytes of a picture depend on the version of the libraries that draw it; this does not.
    """
    found = hashlib.sha256()
    for artist in figure.findobj(include_self=False):
        for piece in _shown(artist):
            found.update(piece.encode())
    return found.hexdigest()[:16]


def _shown(artist: Artist) -> Iterable[str]:
    """What an artist says, and where it lies in the data."""
    if isinstance(artist, Text):
        yield artist.get_text()
    elif isinstance(artist, Line2D):
        yield _numbers(artist.get_xydata())
    elif isinstance(artist, Collection):
        yield _numbers(artist.get_offsets())
        yield _numbers(artist.get_array())
        yield from (_numbers(path.vertices) for path in artist.get_paths())
    elif isinstance(artist, AxesImage):
        yield _numbers(artist.get_array())
    elif isinstance(artist, Patch):
        yield _numbers(artist.get_patch_transform().transform(artist.get_path().vertices))
    elif isinstance(artist, Axes):
        yield " ".join(t.get_text() for t in (*artist.get_xticklabels(), *artist.get_yticklabels()))


def _numbers(values: Any) -> str:
    if values is None:
        return ""
    rounded = np.round(np.ma.filled(np.ma.asarray(values, dtype=float), np.nan), 9) + 0.0  # no -0
    return " ".join(np.char.mod("%.4g", rounded.ravel()))


def write_picture(figure: Figure, path: Path, digest: str) -> None:
    """Write a figure as a PNG of 256 colours, which has its digest."""
    with rc_context({"savefig.dpi": DPI}):
        plots.write(figure, path)
    with Image.open(path) as drawn:
        small = in_few_colours(drawn)
    text = PngInfo()
    text.add_text(SHOWS, digest)
    write_atomic(path, lambda file: small.save(file, optimize=True, pnginfo=text))


def in_few_colours(picture: Image.Image) -> Image.Image:
    """A picture in 256 colours, which makes it a third as large."""
    return picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)


def shown_in(path: Path) -> str:
    """The digest of the figure that a picture shows; "" where there is no such picture."""
    if not path.exists():
        return ""
    with Image.open(path) as picture:
        return str(picture.info.get(SHOWS, ""))
