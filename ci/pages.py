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


def written_rows(text: str) -> list[list[str]]:
    """The cells of a Markdown table that people wrote, without its head; its cells have no bars."""
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]


def frame_table(frame: pd.DataFrame, words: Mapping[str, str] = {}) -> str:
    """A data frame as a Markdown table, its index first.

    words: label of a row, a column or an index -> what the page calls it. Numbers keep the digits
    that their table rounded them to; "–" is for none.
    """

    def label(value: Any) -> str:
        return words.get(str(value), str(value))

    columns = [label(name or "") for name in frame.index.names]
    cells = [list(map(label, frame.index.get_level_values(i))) for i in range(len(columns))]
    names, at = [str(name) for name in frame.columns], 0
    while at < len(names):
        own = [_column(frame.iloc[:, at].tolist())]
        name, shown = frame.columns[at], own[0]
        if tuple(names[at + 1 : at + 3]) in ENDS:  # a number and its two ends are one cell
            own += [_column(frame.iloc[:, at + k].tolist()) for k in (1, 2)]
            name = f"{name}, 95 % interval"
            shown = [e if e == NONE else f"{e} [{a}, {b}]" for e, a, b in zip(*own, strict=True)]
        labels = map(label, name if isinstance(name, tuple) else [name])
        columns.append(": ".join(dict.fromkeys(labels)))
        cells.append(shown)
        at += len(own)
    return rows_table(columns, zip(*cells, strict=True))


def _column(values: Sequence[Any]) -> list[str]:
    """The cells of a column: its numbers with as many decimals as the one that has most."""
    decimals = 0
    for number in (v for v in values if isinstance(v, float) and math.isfinite(v)):
        while decimals <= DECIMALS and not math.isclose(
            round(number, decimals), number, abs_tol=1e-9
        ):
            decimals += 1
    return [_cell(value, decimals) for value in values]


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
    return picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)


def shown_in(path: Path) -> str:
    """The digest of the figure that a picture shows; "" where there is no such picture."""
    if not path.exists():
        return ""
    with Image.open(path) as picture:
        return str(picture.info.get(SHOWS, ""))
