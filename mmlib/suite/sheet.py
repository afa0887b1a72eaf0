"""Contact sheets of pictures that a search has found: a PNG picture, or an HTML page."""

import base64
import io
from dataclasses import dataclass
from html import escape
from pathlib import Path

from PIL import Image, ImageDraw

from mmlib.core.errors import DataError
from mmlib.core.paths import write_atomic

SUFFIXES = (".png", ".html")
OUTLINE = "#D55E00"
COLUMNS = 5
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
class Item:
    """A picture, its region (left, top, right, bottom as shares of its sides), title and file."""

    picture: Image.Image
    region: tuple[float, float, float, float]
    title: str
    path: Path


def must_be_sheet(path: Path) -> Path:
    """The path. Raises DataError where its suffix is none of `SUFFIXES`."""
    if path.suffix not in SUFFIXES:
        raise DataError(f"{path}: a contact sheet is a file whose name ends in .png or .html")
    return path


def pixels(picture: Image.Image, region: tuple[float, float, float, float]) -> tuple[int, ...]:
    """Left, top, right, bottom of a region in pixels."""
    return tuple(round(s * size) for s, size in zip(region, picture.size * 2, strict=True))


def write(items: list[Item], text: str, card: str, path: Path) -> None:
    """Write a sheet, headed by the text that was searched for. card: of the model."""
    if path.suffix == ".html":
        content = page(items, text, card).encode("utf-8", "replace")  # names may be of other bytes
        write_atomic(path, lambda file: file.write_bytes(content))
        return
    from mmlib.core import plots  # late: matplotlib takes a second to import

    plain = [one.replace("$", r"\$") for one in (text, *(item.title for item in items))]
    columns = max(min(len(items), COLUMNS), 3)
    figure = plots.show_pictures([outlined(item) for item in items], plain[1:], columns)
    figure.suptitle("\n".join(plots.textwrap.wrap(plain[0], 16 * columns)), y=1.02, va="bottom")
    try:
        write_atomic(path, lambda file: figure.savefig(file, bbox_inches="tight", dpi=120))
    finally:
        plots.plt.close(figure)


def outlined(item: Item) -> Image.Image:
    """The picture with its region outlined."""
    picture = item.picture.copy()
    width = max(2, max(picture.size) // 80)
    left, top, right, bottom = pixels(picture, item.region)
    ImageDraw.Draw(picture).rectangle((left, top, right - 1, bottom - 1), None, OUTLINE, width)
    return picture


def page(items: list[Item], text: str, card: str) -> str:
    """A page that needs no other file; each picture links to its own."""
    figures = []
    for item in items:
        buffer = io.BytesIO()
        outlined(item).save(buffer, "JPEG", quality=90)
        data = base64.b64encode(buffer.getvalue()).decode()
        link, title = escape(item.path.absolute().as_uri()), escape(item.title)
        figures.append(FIGURE.format(link=link, data=data, title=title))
    return PAGE.format(text=escape(text), note=escape(f"{NOTE} {card}"), figures="".join(figures))
