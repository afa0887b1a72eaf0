"""Drawing tools of the picture world: palette, patterns, and a pen with its own small canvas."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import cos, radians, sin

import numpy as np
from PIL import Image, ImageChops, ImageDraw

from mmlib.core.paths import table_beside

RGB = tuple[int, int, int]
Point = tuple[float, float]

CIRCLE = [(cos(radians(a)), sin(radians(a))) for a in range(0, 360, 18)]


def colours(table: Iterable[Sequence[int]]) -> tuple[RGB, ...]:
    """The colours that a table lists as red, green and blue."""
    return tuple((red, green, blue) for red, green, blue in table)


def named_colours(table: Mapping[str, Sequence[int]]) -> dict[str, RGB]:
    """The same with their names."""
    return dict(zip(table, colours(table.values()), strict=True))


_TABLE = table_beside(__file__)
PALETTE = named_colours(_TABLE.pop("palette"))
PAPER, PENCIL, DARK, WOOD = named_colours(_TABLE).values()


def mix(a: RGB, b: RGB, share: float) -> RGB:
    """Blend two colours; `share` of `b`."""
    keep = 1 - share
    return (
        int(a[0] * keep + b[0] * share),
        int(a[1] * keep + b[1] * share),
        int(a[2] * keep + b[2] * share),
    )


def shade(colour: RGB, factor: float) -> RGB:
    """Darken (factor < 1) or lighten towards white (factor > 1)."""
    return (
        mix((0, 0, 0), colour, factor) if factor <= 1 else mix(colour, (255, 255, 255), factor - 1)
    )


@lru_cache(maxsize=128)
def pattern_tile(pattern: str, period: int, side: int) -> Image.Image:
    """A side x side mask of the pattern's second colour (0 or 255); `period` in pixels."""
    rows, columns = np.mgrid[0:side, 0:side]
    if pattern == "striped":
        mask = (columns + 0 * rows) % period < 0.45 * period
    elif pattern == "across":  # stripes that run across, for shirts
        mask = rows % period < 0.45 * period
    elif pattern == "checked":
        mask = (columns // (period / 2) + rows // (period / 2)) % 2 == 0
    else:  # spotted
        shifted = columns + (rows // period % 2) * (period / 2)
        radius = np.hypot(shifted % period - period / 2, rows % period - period / 2)
        mask = radius < 0.31 * period
    return Image.fromarray(mask.astype(np.uint8) * 255)


@lru_cache(maxsize=32)
def _spline_basis(points: int, steps: int = 5) -> np.ndarray:
    """(points * steps, points) weights of a closed Catmull-Rom spline."""
    basis = np.zeros((points * steps, points))
    for i in range(points):
        for j in range(steps):
            t = j / steps
            weights = (
                -0.5 * t**3 + t**2 - 0.5 * t,
                1.5 * t**3 - 2.5 * t**2 + 1,
                -1.5 * t**3 + 2 * t**2 + 0.5 * t,
                0.5 * t**3 - 0.5 * t**2,
            )
            for k, weight in enumerate(weights):
                basis[i * steps + j, (i + k - 1) % points] += weight
    return basis


@lru_cache(maxsize=512)
def path(text: str) -> tuple[Point, ...]:
    """Points written as in SVG: "0,0 .5,1 1,0"."""
    return tuple((float(x), float(y)) for x, y in (pair.split(",") for pair in text.split()))


def around(x: float, y: float, r: float, text: str, ry: float | None = None) -> list[Point]:
    """The points of a path about (x, y), in units of `r` across and `ry` (or `r`) along."""
    high = r if ry is None else ry
    return [(x + r * a, y + high * b) for a, b in path(text)]


def step(start: Point, angle: float, length: float) -> Point:
    """The end of a bone that starts at `start`; angle in degrees, 0 down, 90 forward."""
    return start[0] + length * sin(radians(angle)), start[1] - length * cos(radians(angle))


def smooth(points: Sequence[Point]) -> list[Point]:
    """A closed curve through the points."""
    return (_spline_basis(len(points)) @ np.asarray(points)).tolist()


@dataclass(frozen=True)
class Look:
    """A thing's colour and pattern, the picture's style, an outline's width in pixels."""

    main: RGB
    pattern: str
    style: str
    line: float


class Pen:
    """Draws one thing on a transparent layer, in the thing's own coordinates.

    Origin: the middle of the thing's foot; x runs the way it faces, y up; 1 = `unit` pixels.
    `main` is the thing's colour; parts drawn with `patterned=True` carry its pattern.
    half_width: of the layer, in units. chance: random numbers, 0 to 1, used one after the other.
    """

    def __init__(
        self, look: Look, unit: float, half_width: float, facing: int, chance: Sequence[float]
    ):
        main, line = look.main, look.line
        self.unit, self.facing, self.style = unit, facing, look.style
        self.origin_x = int(half_width * unit) + 2
        self.origin_y = int(1.3 * unit) + 2
        self.size = (2 * self.origin_x + 1, self.origin_y + int(0.25 * unit) + 4)
        self.layer = Image.new("RGBA", self.size)
        self.canvas = ImageDraw.Draw(self.layer)
        self.main, self.pattern, self.line_width = main, look.pattern, max(1, round(line))
        self.second = mix(main, (250, 250, 245), 0.82)
        if 0.3 * main[0] + 0.59 * main[1] + 0.11 * main[2] > 170:  # as bright as it looks
            self.second = mix(main, (50, 46, 50), 0.72)
        self.period = max(2 * int(0.085 * min(1.0, 2 * half_width) * unit), 2 * int(3.5 * line), 4)
        self._chance, self._next = chance, 0
        self.shift: Point = (0.0, 0.0)
        self.turn(0)

    def chance(self) -> float:
        """The thing's next random number, 0 to 1."""
        self._next += 1
        return self._chance[self._next % len(self._chance)]

    def vary(self, low: float, high: float) -> float:
        """A random number between the two."""
        return low + (high - low) * self.chance()

    def pick(self, choices: Sequence[RGB]) -> RGB:
        """One of the colours, by the thing's own chance."""
        return choices[int(self.chance() * len(choices)) % len(choices)]

    def turn(self, degrees: float, x: float = 0.0, y: float = 0.0) -> None:
        """From now on draw turned by `degrees` (nose up) about the origin, moved by (x, y)."""
        self._cos, self._sin = cos(radians(degrees)), sin(radians(degrees))
        self.turned, self.shift = degrees != 0, (x, y)

    def at(self, x: float, y: float) -> Point:
        """Where a point of the thing lies on the layer, in pixels."""
        if self.turned:
            x, y = x * self._cos - y * self._sin, x * self._sin + y * self._cos
        x, y = x + self.shift[0], y + self.shift[1]
        return self.origin_x + self.facing * x * self.unit, self.origin_y - y * self.unit

    def tint(self, colour: RGB) -> RGB:
        """The colour as this style shows it: a light wash on paper for a sketch."""
        return mix(PAPER, colour, 0.58) if self.style == "sketch" else colour

    def edge(self, colour: RGB) -> RGB | None:
        """The outline's colour; flat pictures have none."""
        if self.style == "sketch":
            return PENCIL
        if self.style == "flat":
            return None
        return mix(colour, (20, 16, 24), 0.38)

    def poly(
        self, points: Iterable[Point], colour: RGB, patterned: bool = False, outline: bool = True
    ) -> None:
        """A filled polygon."""
        at = self.at
        spots = [at(x, y) for x, y in points]
        self.canvas.polygon(spots, self.tint(colour))
        if patterned and self.pattern != "plain":
            self._fill_pattern(lambda canvas, points: canvas.polygon(points, 255), spots, 0)
        edge = self.edge(colour) if outline else None
        if edge:
            self.canvas.line([*spots, spots[0]], edge, self.line_width)

    def blob(
        self, points: Sequence[Point], colour: RGB, patterned: bool = False, outline: bool = True
    ) -> None:
        """A filled smooth shape through the points."""
        self.poly(smooth(points), colour, patterned, outline)

    def oval(
        self, x: float, y: float, rx: float, ry: float, colour: RGB, patterned: bool = False,
        outline: bool = True,
    ) -> None:  # fmt: skip
        """A filled ellipse about (x, y)."""
        if self.turned or (patterned and self.pattern != "plain"):
            self.poly([(x + rx * a, y + ry * b) for a, b in CIRCLE], colour, patterned, outline)
            return
        cx, cy = self.at(x, y)
        px, py = rx * self.unit, ry * self.unit
        edge = self.edge(colour) if outline else None
        width = self.line_width if edge else 0
        box = (cx - px, cy - py, cx + px, cy + py)
        self.canvas.ellipse(box, self.tint(colour), edge, width)

    def ring(self, x: float, y: float, r: float, width: float, colour: RGB) -> None:
        """A circle's outline."""
        cx, cy = self.at(x, y)
        p = r * self.unit
        thick = max(1, round(width * self.unit))
        ink = PENCIL if self.style == "sketch" else colour
        self.canvas.ellipse((cx - p, cy - p, cx + p, cy + p), None, ink, thick)

    def limb(
        self, points: Sequence[Point], width: float, colour: RGB, patterned: bool = False
    ) -> None:
        """A rounded thick line: an arm, a leg, a neck, a post."""
        spots = [self.at(x, y) for x, y in points]
        thick = max(width * self.unit, 1.5)
        edge = self.edge(colour)
        if edge:
            self._stroke(spots, thick + 1.6 * self.line_width, edge)
        self._stroke(spots, thick, self.tint(colour))
        if patterned and self.pattern != "plain":
            self._fill_pattern(
                lambda canvas, points: canvas.line(points, 255, round(thick)), spots, thick
            )

    def line(self, points: Sequence[Point], width: float, colour: RGB) -> None:
        """A thin line without outline; `width` in the thing's units."""
        ink = mix(PENCIL, colour, 0.4) if self.style == "sketch" else colour
        spots = [self.at(x, y) for x, y in points]
        self.canvas.line(spots, ink, max(1, round(width * self.unit)))

    def arc(self, x: float, y: float, r: float, start: float, end: float, colour: RGB) -> None:
        """Part of a circle's outline, angles in degrees as on a clock face of Pillow."""
        cx, cy = self.at(x, y)
        p = r * self.unit
        if self.facing < 0:
            start, end = 180 - end, 180 - start
        self.canvas.arc((cx - p, cy - p, cx + p, cy + p), start, end, colour, self.line_width)

    def _stroke(self, spots: Sequence[Point], thick: float, colour: RGB) -> None:
        self.canvas.line(spots, colour, round(thick))
        r = thick / 2 - 0.5
        if r >= 1:
            for x, y in spots:
                self.canvas.ellipse((x - r, y - r, x + r, y + r), colour)

    def _fill_pattern(self, trace: Callable, spots: Sequence[Point], margin: float) -> None:
        """Paint the second colour where the traced shape and the pattern's tile meet.

        trace: draws the shape on a mask, given its canvas and the points `spots` on it.
        """
        left = max(0, int(min(x for x, _ in spots) - margin))
        top = max(0, int(min(y for _, y in spots) - margin))
        right = min(self.size[0], int(max(x for x, _ in spots) + margin) + 2)
        bottom = min(self.size[1], int(max(y for _, y in spots) + margin) + 2)
        if right <= left or bottom <= top:
            return
        mask = Image.new("L", (right - left, bottom - top))
        trace(ImageDraw.Draw(mask), [(x - left, y - top) for x, y in spots])
        # The tile repeats every two periods, so any window of it starts within the first two.
        x, y = left % (2 * self.period), top % (2 * self.period)
        side = 128
        while side < max(mask.size) + 2 * self.period:
            side *= 2
        tile = pattern_tile(self.pattern, self.period, side)
        mask = ImageChops.darker(mask, tile.crop((x, y, x + mask.width, y + mask.height)))
        self.layer.paste((*self.tint(self.second), 255), (left, top), mask)
