"""What lies behind the things: sky, ground and far-away details of the eight settings."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import sin
from random import Random
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from mmlib.core.paths import table_beside
from mmlib.world.pen import PAPER, PENCIL, RGB, Point, around, colours, mix, path, shade
from mmlib.world.schema import HORIZON, ROAD, WATER

_TABLES = table_beside(__file__)
# setting -> (sky at the top, sky at the horizon, ground at the horizon, ground in front)
LIGHT = {setting: colours(light) for setting, light in _TABLES.pop("light").items()}
_LAYERS: dict[str, list[list[Any]]] = {
    setting: [[tuple(x) if isinstance(x, list) else x for x in layer] for layer in layers]
    for setting, layers in _TABLES.pop("layers").items()
}
COLOURS = {name: colours(table) for name, table in _TABLES.items()}


class Brush:
    """Draws on the whole picture, in fractions of its side, in the picture's style."""

    def __init__(self, side: int, style: str, random: Random):
        self.side, self.style, self.random = side, style, random
        self.image = Image.new("RGB", (side, side))
        self.canvas = ImageDraw.Draw(self.image)
        self.hair = max(1, side // 190)
        # Outlines are drawn in a sketch only.
        self.pencil = mix(PENCIL, PAPER, 0.45) if style == "sketch" else None

    def ink(self, colour: RGB) -> RGB:
        """The colour as the style shows it."""
        return mix(PAPER, colour, 0.34) if self.style == "sketch" else colour

    def gradient(self, top: float, bottom: float, first: RGB, last: RGB) -> None:
        """Fill the band from `top` to `bottom`; a flat picture has one colour."""
        y0, y1 = round(top * self.side), round(bottom * self.side)
        if y1 <= y0:
            return
        first, last = self.ink(first), self.ink(last)
        if self.style in ("flat", "sketch") or y1 - y0 < 2:
            self.canvas.rectangle((0, y0, self.side, y1), mix(first, last, 0.4))
            return
        share = np.linspace(0, 1, y1 - y0, dtype=np.float32)[:, None]
        column = np.asarray(first) * (1 - share) + np.asarray(last) * share
        band = Image.fromarray(column[:, None, :].astype(np.uint8))
        self.image.paste(band.resize((self.side, y1 - y0), Image.Resampling.NEAREST), (0, y0))

    def poly(self, points: Sequence[Point], colour: RGB, outline: bool = True) -> None:
        """A filled polygon."""
        spots = self.spots(points)
        self.canvas.polygon(spots, self.ink(colour))
        if outline and self.pencil:
            self.canvas.line([*spots, spots[0]], self.pencil, self.hair)

    def trace(self, points: Sequence[Point]) -> None:
        """A pencil line, in a sketch only."""
        if self.pencil:
            self.canvas.line(self.spots(points), self.pencil, self.hair)

    def oval(
        self, x: float, y: float, rx: float, ry: float, colour: RGB, outline: bool = True
    ) -> None:
        """A filled ellipse."""
        box = self.spots([(x - rx, y - ry), (x + rx, y + ry)])
        self.canvas.ellipse(box, self.ink(colour), self.pencil if outline else None, self.hair)

    def rect(self, x0: float, y0: float, x1: float, y1: float, colour: RGB) -> None:
        """A filled rectangle."""
        box = self.spots([(x0, y0), (x1, y1)])
        self.canvas.rectangle(box, self.ink(colour), self.pencil, self.hair)

    def line(self, points: Sequence[Point], width: float, colour: RGB) -> None:
        """A line; `width` is a fraction of the side."""
        self.canvas.line(self.spots(points), self.ink(colour), max(1, round(width * self.side)))

    def spots(self, points: Sequence[Point]) -> list[Point]:
        """Points of the picture, in pixels."""
        return [(x * self.side, y * self.side) for x, y in points]

    def between(self, low: float, high: float) -> float:
        """A random number."""
        return self.random.uniform(low, high)

    def spot(self, top: float, bottom: float) -> Point:
        """A random place between two heights."""
        return self.random.random(), self.random.uniform(top, bottom)

    def places(self, count: int, top: float, bottom: float) -> Iterator[Point]:
        """That many random places, each drawn when the one before has been used."""
        for _ in range(count):
            yield self.spot(top, bottom)

    def wavy(self, y: float, height: float, waves: float) -> list[Point]:
        """A wavy line across the picture."""
        phase = self.between(0, 6.28)
        return [(i / 20, y + height * sin(6.28 * waves * i / 20 + phase)) for i in range(21)]


def clouds(brush: Brush, count: int) -> None:
    """A few clouds in the upper sky."""
    for x, y in brush.places(count, 0.05, 0.26):
        r = brush.between(0.03, 0.05)
        for dx, dy in path("-1.5,.3 0,0 1.4,.25 .6,.5 -.8,.55"):
            brush.oval(x + dx * r, y + dy * r, 1.15 * r, 0.6 * r, (252, 252, 254), outline=False)


def sun(brush: Brush, colour: RGB) -> None:
    """A sun somewhere high, on most days."""
    if brush.random.random() < 0.6:
        x, y = brush.between(0.08, 0.92), brush.between(0.07, 0.2)
        if brush.style == "photo":
            brush.oval(x, y, 0.075, 0.075, mix(colour, (200, 226, 244), 0.6))
        brush.oval(x, y, 0.055, 0.055, colour)


def hills(brush: Brush, base: float, height: float, colour: RGB, bumps: float) -> None:
    """A rolling skyline."""
    coarse = brush.wavy(base - 0.6 * height, 0.27 * height, bumps)
    fine = brush.wavy(0, 0.13 * height, 1.7 * bumps)
    skyline = [(x, y + z) for (x, y), (_, z) in zip(coarse, fine, strict=True)]
    brush.poly([(0, base), *skyline, (1, base)], colour, outline=False)
    brush.trace(skyline)


def far_tree(brush: Brush, x: float, y: float, height: float, colour: RGB) -> None:
    """A small round tree far away."""
    brush.rect(x - 0.05 * height, y - 0.4 * height, x + 0.05 * height, y, (112, 84, 58))
    brush.oval(x, y - 0.65 * height, 0.3 * height, 0.36 * height, colour)


def fir(brush: Brush, x: float, y: float, height: float, colour: RGB, snow: bool = False) -> None:
    """A fir, with snow on its branches if asked."""
    brush.rect(x - 0.04 * height, y - 0.16 * height, x + 0.04 * height, y, (96, 70, 52))
    for tier in ("-.27,-.12 0,-.55 .27,-.12", "-.21,-.36 0,-.78 .21,-.36", "-.14,-.6 0,-1 .14,-.6"):
        brush.poly(around(x, y, height, tier), colour)
        if snow:
            (_, low), (_, top), (half, _) = path(tier)
            cap = [(-0.5 * half, (low + top) / 2), (0, top), (0.5 * half, (low + top) / 2)]
            brush.poly([(x + height * a, y + height * b) for a, b in cap], (246, 250, 254))


def tufts(brush: Brush, count: int, colour: RGB, top: float) -> None:
    """Grass here and there on the ground."""
    for x, y in brush.places(count, top, 1):
        h = 0.012 + 0.02 * (y - 0.4)
        for dx in (-0.6, 0.0, 0.6):
            brush.line([(x, y), (x + dx * h, y - h)], 0.005, colour)


def dots(brush: Brush, count: int, top: float, name: str, size: float) -> None:
    """Flowers, shells, leaves: small flat dots on the ground."""
    for x, y in brush.places(count, top, 0.99):
        brush.oval(x, y, size, 0.65 * size, brush.random.choice(COLOURS[name]))


def ripples(brush: Brush, top: float, bottom: float, count: int, colour: RGB) -> None:
    """Short strokes on water, sand or snow."""
    for x, y in brush.places(count, top + 0.01, bottom - 0.01):
        w = brush.between(0.02, 0.06)
        brush.line(around(x, y, w, "-1,0 -.3,-1 .3,0 1,-.7", 0.007), 0.006, colour)


def water(brush: Brush, setting: str, far: RGB, near: RGB, count: int, glints: RGB) -> None:
    """A sea or lake with `count` ripples."""
    top, bottom = WATER[setting]
    brush.gradient(top, bottom, far, near)
    ripples(brush, top, bottom, count, glints)


def shore(brush: Brush, setting: str, foam: RGB) -> None:
    """The land from the water's edge to the front."""
    y, land = WATER[setting][1], LIGHT[setting][2:]
    edge = brush.wavy(y, 0.011, 1.4)
    first = mix(land[0], land[1], 0.4) if brush.style in ("flat", "sketch") else land[0]
    brush.poly([(0, y + 0.02), *edge, (1, y + 0.02)], first, outline=False)
    brush.gradient(y + 0.012, 1.0, land[0], land[1])
    brush.line(edge, 0.013, foam)
    brush.trace(edge)


def trees(
    brush: Brush, kind: str, count: int, spots: Point, sizes: Point, colour: RGB,
    shades: Point | None = None,
) -> None:  # fmt: skip
    """Plants of a kind of `PLANTS` between two heights of the picture, each of its size and shade.

    spots, sizes, shades: (least, most).
    """
    for x, y in brush.places(count, *spots):
        leaf = shade(colour, brush.between(*shades)) if shades else colour
        PLANTS[kind](brush, x, y, brush.between(*sizes), leaf)


def slope(brush: Brush, base: float, height: float, colour: RGB, front: RGB) -> None:
    """A dune or a hill of snow, and the ground from it to the front."""
    hills(brush, base, height, colour, 1)
    brush.gradient(base - 0.004, 1.0, colour, front)


def island(brush: Brush) -> None:
    """A far island, on some days."""
    if brush.random.random() < 0.5:
        x, top = brush.between(0.1, 0.9), WATER["beach"][0]
        brush.poly(around(x, top, 0.15, "-1,0 -.4,-.3 .2,-.2 .9,0"), (116, 150, 130))


def footpath(brush: Brush) -> None:
    """A path that winds towards the front."""
    x, bend = brush.between(0.15, 0.85), brush.between(-0.25, 0.25)
    middle, end = x + bend, x + 0.45 * bend
    left = [(end - 0.14, 1.0), (middle - 0.05, 0.7), (x - 0.02, HORIZON + 0.01)]
    right = [(x + 0.02, HORIZON + 0.01), (middle + 0.1, 0.7), (end + 0.26, 1.0)]
    brush.poly(left + right, (222, 204, 168))


def houses(brush: Brush) -> None:
    """A row of houses with windows."""
    x = -brush.between(0, 0.1)
    while x < 1:
        w, h = brush.between(0.15, 0.25), brush.between(0.18, 0.36)
        wall, pane = (brush.random.choice(COLOURS[name]) for name in ("walls", "panes"))
        brush.rect(x, 0.56 - h, x + w, 0.56, wall)
        brush.rect(x - 0.006, 0.555 - h, x + w + 0.006, 0.575 - h, shade(wall, 0.72))
        for row in range(min(int(h / 0.075), int((h - 0.08) / 0.07) + 1)):
            for column in (0.2, 0.5, 0.8):
                wx, wy = x + w * column, 0.6 - h + 0.07 * row
                brush.rect(wx - 0.016, wy, wx + 0.016, wy + 0.034, pane)
        x += w


def road(brush: Brush) -> None:
    """A road with its marks, between two pavements."""
    top, bottom = ROAD["street"]
    brush.gradient(0.56, top, (188, 184, 180), (172, 168, 164))
    brush.gradient(top, bottom, (98, 98, 104), (82, 82, 88))
    brush.gradient(bottom, 1.0, (184, 180, 174), (170, 166, 160))
    for y in (top, bottom):
        brush.line([(0, y), (1, y)], 0.012, (222, 220, 216))
    start, middle = -brush.between(0, 0.2), 0.5 * (top + bottom)
    while start < 1:
        brush.poly(around(start, middle, 0.1, "0,-.08 1,-.08 .95,.08 -.05,.08"), (244, 240, 220))
        start += 0.2
    shift = brush.between(0, 0.1)
    for i in range(6):  # paving joints
        x = shift + i / 5
        brush.line([(x, bottom + 0.01), (1.15 * x - 0.075, 1.0)], 0.004, (150, 146, 142))


def mesa(brush: Brush) -> None:
    """A table mountain, on most days."""
    if brush.random.random() < 0.7:
        x, rock = brush.between(0.1, 0.9), (206, 128, 88)
        w, h = brush.between(0.1, 0.2), brush.between(0.08, 0.15)
        brush.poly(around(x, 0.47, w, "-1,0 -.7,-.8 -.62,-1 .6,-1 .72,-.75 1,0", h), rock)
        brush.line(around(x, 0.47, w, "-.66,-.6 .7,-.6", h), 0.008, shade(rock, 0.85))


def snowflakes(brush: Brush) -> None:
    """Falling snow, over the things too."""
    for x, y in brush.places(26, 0, 1):
        r = brush.between(0.003, 0.008)
        brush.oval(x, y, r, r, (255, 255, 255))


def trunks(brush: Brush) -> None:
    """Trunks and their leaves in three depths."""
    depths = zip((9, 8, 6), (0.45, 0.48, 0.52), COLOURS["trunks"], COLOURS["crowns"], strict=True)
    for row, (count, y, bark, leaf) in enumerate(depths):
        for i in range(count):
            x, w = (i + brush.between(0.1, 0.9)) / count, brush.between(0.012, 0.02)
            w *= 1 + 0.55 * row
            trunk = [(x - w, y), (x - 0.7 * w, 0), (x + 0.7 * w, 0), (x + w, y)]
            brush.poly([*trunk, (x + 1.6 * w, y + 0.012), (x - 1.6 * w, y + 0.012)], bark)
        for x, y in brush.places(6, -0.02, 0.16 - 0.03 * row):
            brush.oval(x, y, brush.between(0.1, 0.18), brush.between(0.06, 0.1), leaf)


def crops(brush: Brush) -> None:
    """Crop rows that run to one point, and a fence."""
    vanish, top = brush.between(0.3, 0.7), HORIZON + 0.03
    for i in range(-7, 8):
        far, near = vanish + 0.05 * i, vanish + 0.24 * i
        row = [(far, top), (far + 0.008, top), (near + 0.075, 1.0), (near, 1.0)]
        brush.poly(row, (186, 158, 62))
    for y in (0.51, 0.535):
        brush.line([(0, y), (1, y)], 0.007, (132, 98, 66))
    shift = brush.between(0, 0.1)
    for i in range(11):
        x = 0.1 * i + shift
        brush.rect(x - 0.006, 0.495, x + 0.006, 0.56, (142, 106, 72))


def peaks(brush: Brush) -> None:
    """Peaks with snow."""
    foot = HORIZON + 0.01
    for h in sorted((brush.between(0.2, 0.36) for _ in range(4)), reverse=True):
        x, w = brush.between(0, 1), brush.between(0.24, 0.34)
        rock = shade((122, 132, 152), brush.between(0.85, 1.15))
        brush.poly(around(x, foot, w, "-1,0 0,-1 1,0", h), rock)
        brush.poly(around(x, foot, w, "0,-1 .25,0 1,0", h), shade(rock, 0.84))
        cap = "-.32,-.68 0,-1 .32,-.68 .16,-.78 .03,-.63 -.13,-.78"
        brush.poly(around(x, foot, w, cap, h), (248, 250, 254))


def stones(brush: Brush) -> None:
    """Stones in front of the lake."""
    for x, y in brush.places(9, 0.64, 0.99):
        stone = around(x, y, brush.between(0.012, 0.028), "-1,0 -.6,-.8 .4,-1 1,0")
        brush.poly(stone, shade((148, 146, 144), brush.between(0.8, 1.15)))


def fern(brush: Brush, x: float, y: float, width: float, colour: RGB) -> None:
    """Low undergrowth."""
    brush.oval(x, y, width, 0.025, colour)


PLANTS: dict[str, Callable[[Brush, float, float, float, RGB], None]] = {
    "round": far_tree, "fir": fir, "snowy fir": partial(fir, snow=True), "fern": fern,
}  # fmt: skip
# What a layer of `backdrops.yaml` can name.
_PAINTERS: dict[str, Callable[..., None]] = {
    painter.__name__: painter
    for painter in (
        Brush.gradient, sun, clouds, hills, tufts, dots, ripples, water, shore, trees, slope,
        island, footpath, houses, road, mesa, trunks, crops, peaks, stones,
    )
}  # fmt: skip


def backdrop(setting: str, style: str, side: int, random: Random) -> Brush:
    """Paint a setting on a new picture of `side` pixels; the brush that holds it."""
    brush = Brush(side, style, random)
    sky, low, far, near = LIGHT[setting]
    brush.gradient(0, HORIZON, sky, low)
    brush.gradient(HORIZON, 1.0, far, near)
    for painter, *values in _LAYERS[setting]:
        _PAINTERS[painter](brush, *values)
    return brush
