"""Contact sheets of pictures that a search has found: a PNG picture, or an HTML page."""

import base64
import io
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from mmlib.core.errors import DataError
from mmlib.core.paths import write_atomic

OUTLINE = "#D55E00"
COLUMNS, SIDE, LINE = (
    5,
    300,
    18,
)  # pictures a row; pixels of a picture's side and of a line's height
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

    @property
    def outlined(self) -> Image.Image:
        """The picture with its region outlined."""
        picture = self.picture.copy()
        left, top, right, bottom = pixels(picture, self.region)
        width = max(2, max(picture.size) // 80)
        ImageDraw.Draw(picture).rectangle((left, top, right - 1, bottom - 1), None, OUTLINE, width)
        return picture


def must_be_sheet(path: Path) -> Path:
    """The path. Raises DataError where its suffix is neither .png nor .html."""
    if path.suffix not in (".png", ".html"):
        raise DataError(f"{path}: a contact sheet is a file whose name ends in .png or .html")
    return path


def pixels(picture: Image.Image, region: Sequence[float]) -> tuple[int, int, int, int]:
    """Left, top, right, bottom of a region in pixels."""
    shares = zip(region, picture.size * 2, strict=True)
    left, top, right, bottom = (round(share * size) for share, size in shares)
    return left, top, right, bottom


def write(items: list[Item], text: str, card: str, path: Path) -> None:
    """Write a sheet, headed by the text that was searched for. card: of the model."""
    if path.suffix == ".html":
        content = page(items, text, card).encode("utf-8", "replace")  # names may be of other bytes
        write_atomic(path, lambda file: file.write_bytes(content))
        return
    columns, font = max(min(len(items), COLUMNS), 3), ImageFont.load_default(LINE - 4)
    head, step = textwrap.wrap(text, 35 * columns), (SIDE + 20, SIDE + 3 * LINE)
    top, rows = LINE * (len(head) + 1), -(-len(items) // columns)
    sheet = Image.new("RGB", (columns * step[0] + 20, top + rows * step[1]), "white")
    draw = ImageDraw.Draw(sheet)
    draw.multiline_text((20, LINE // 2), "\n".join(head), "black", font)
    for number, item in enumerate(items):
        x, y = 20 + number % columns * step[0], top + number // columns * step[1]
        picture = item.outlined
        picture.thumbnail((SIDE, SIDE))
        sheet.paste(picture, (x, y))
        title = "\n".join(textwrap.wrap(item.title, 38)[:2])
        draw.multiline_text((x, y + picture.height + 2), title, "black", font)
    write_atomic(path, sheet.save)


def page(items: list[Item], text: str, card: str) -> str:
    """A page that needs no other file; each picture links to its own."""
    figures = []
    for item in items:
        buffer = io.BytesIO()
        item.outlined.save(buffer, "JPEG", quality=90)
        data = base64.b64encode(buffer.getvalue()).decode()
        link, title = escape(item.path.absolute().as_uri()), escape(item.title)
        figures.append(FIGURE.format(link=link, data=data, title=title))
    return PAGE.format(text=escape(text), note=escape(f"{NOTE} {card}"), figures="".join(figures))
