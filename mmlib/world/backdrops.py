"""What lies behind the things: sky, ground and far-away details of the eight settings."""

from collections.abc import Callable
from random import Random

import numpy as np
from PIL import Image, ImageDraw

from mmlib.world.pen import PAPER, PENCIL, RGB, Point, mix, shade
from mmlib.world.schema import HORIZON, ROAD, WATER

# (sky at the top, sky at the horizon, ground at the horizon, ground in front)
LIGHT: dict[str, tuple[RGB, RGB, RGB, RGB]] = {
    "beach": ((96, 172, 232), (206, 232, 244), (236, 216, 168), (242, 222, 172)),
    "park": ((112, 180, 236), (214, 236, 246), (142, 196, 98), (104, 168, 74)),
    "street": ((146, 180, 214), (216, 226, 234), (176, 174, 172), (168, 164, 160)),
    "desert": ((118, 178, 226), (250, 226, 182), (238, 196, 130), (226, 170, 100)),
    "snow": ((168, 192, 216), (228, 234, 242), (234, 240, 248), (250, 252, 255)),
    "forest": ((150, 196, 190), (198, 222, 196), (98, 122, 66), (84, 98, 52)),
    "field": ((116, 184, 238), (222, 238, 244), (222, 196, 96), (200, 176, 78)),
    "mountain": ((92, 154, 222), (208, 228, 242), (146, 172, 110), (124, 148, 92)),
}
CLOUD: RGB = (252, 252, 254)


class Brush:
    """Draws on the whole picture in parts of its side, in the picture's style."""

    def __init__(self, side: int, style: str, random: Random):
        self.side, self.style, self.random = side, style, random
        self.image = Image.new("RGB", (side, side))
        self.canvas = ImageDraw.Draw(self.image)
        self.hair = max(1, side // 190)

    def ink(self, colour: RGB) -> RGB:
        """The colour as the style shows it."""
        return mix(PAPER, colour, 0.34) if self.style == "sketch" else colour

    def outline(self, colour: RGB) -> RGB | None:
        """Pencil in a sketch, nothing otherwise."""
        return mix(PENCIL, PAPER, 0.45) if self.style == "sketch" else None

    def gradient(self, top: float, bottom: float, first: RGB, last: RGB) -> None:
        """Fill the band from `top` to `bottom`; a flat picture has one colour."""
        y0, y1 = round(top * self.side), round(bottom * self.side)
        first, last = self.ink(first), self.ink(last)
        if self.style in ("flat", "sketch") or y1 - y0 < 2:
            self.canvas.rectangle((0, y0, self.side, y1), mix(first, last, 0.4))
            return
        share = np.linspace(0, 1, y1 - y0, dtype=np.float32)[:, None]
        column = np.asarray(first) * (1 - share) + np.asarray(last) * share
        band = Image.fromarray(column[:, None, :].astype(np.uint8))
        self.image.paste(band.resize((self.side, y1 - y0), Image.Resampling.NEAREST), (0, y0))

    def poly(self, points: list[Point], colour: RGB) -> None:
        """A filled polygon."""
        n = self.side
        spots = [(x * n, y * n) for x, y in points]
        self.canvas.polygon(spots, self.ink(colour))
        edge = self.outline(colour)
        if edge:
            self.canvas.line([*spots, spots[0]], edge, self.hair)

    def oval(self, x: float, y: float, rx: float, ry: float, colour: RGB) -> None:
        """A filled ellipse."""
        n = self.side
        box = ((x - rx) * n, (y - ry) * n, (x + rx) * n, (y + ry) * n)
        self.canvas.ellipse(box, self.ink(colour), self.outline(colour), self.hair)

    def rect(self, x0: float, y0: float, x1: float, y1: float, colour: RGB) -> None:
        """A filled rectangle."""
        n = self.side
        box = (x0 * n, y0 * n, x1 * n, y1 * n)
        self.canvas.rectangle(box, self.ink(colour), self.outline(colour), self.hair)

    def line(self, points: list[Point], width: float, colour: RGB) -> None:
        """A line; `width` in parts of the side."""
        n = self.side
        self.canvas.line(
            [(x * n, y * n) for x, y in points], self.ink(colour), max(1, round(width * n))
        )

    def between(self, low: float, high: float) -> float:
        """A random number."""
        return self.random.uniform(low, high)


def clouds(brush: Brush, count: int, colour: RGB = CLOUD) -> None:
    """A few clouds in the upper sky."""
    for _ in range(count):
        x, y, r = brush.between(0, 1), brush.between(0.05, 0.26), brush.between(0.03, 0.05)
        for dx, dy, k in (
            (-1.5, 0.3, 0.8),
            (0, 0, 1.2),
            (1.4, 0.25, 0.9),
            (0.6, 0.5, 0.9),
            (-0.8, 0.55, 0.8),
        ):
            brush.oval(x + dx * r, y + dy * r, 1.15 * k * r, 0.62 * k * r, colour)


def sun(brush: Brush, colour: RGB = (255, 240, 170)) -> None:
    """A sun somewhere high, on most days."""
    if brush.random.random() < 0.6:
        x, y = brush.between(0.08, 0.92), brush.between(0.07, 0.2)
        if brush.style == "photo":
            brush.oval(x, y, 0.075, 0.075, mix(colour, (200, 226, 244), 0.6))
        brush.oval(x, y, 0.055, 0.055, colour)


def hills(brush: Brush, base: float, height: float, colour: RGB, bumps: int = 3) -> None:
    """A rolling skyline."""
    spots = [(-0.05, base)]
    phase, lean = brush.between(0, 1), brush.between(0.7, 1.3)
    for i in range(25):
        x = -0.05 + 1.1 * i / 24
        wave = np.sin(6.283 * (bumps * 0.5 * x + phase)) + 0.5 * np.sin(
            6.283 * (bumps * lean * x + 2 * phase)
        )
        spots.append((x, base - height * (0.6 + 0.27 * float(wave))))
    brush.poly([*spots, (1.05, base)], colour)


def far_tree(brush: Brush, x: float, y: float, height: float, colour: RGB) -> None:
    """A small round tree far away."""
    brush.rect(x - 0.05 * height, y - 0.4 * height, x + 0.05 * height, y, (112, 84, 58))
    brush.oval(x, y - 0.65 * height, 0.3 * height, 0.36 * height, colour)


def fir(brush: Brush, x: float, y: float, height: float, colour: RGB, snow: bool = False) -> None:
    """A fir; with snow on its branches if asked."""
    brush.rect(x - 0.04 * height, y - 0.16 * height, x + 0.04 * height, y, (96, 70, 52))
    for low, top, half in ((0.12, 0.55, 0.27), (0.36, 0.78, 0.21), (0.6, 1.0, 0.14)):
        brush.poly(
            [
                (x - half * height, y - low * height),
                (x, y - top * height),
                (x + half * height, y - low * height),
            ],
            colour,
        )
        if snow:
            k = 0.5
            brush.poly(
                [(x - k * half * height, y - (top - k * (top - low)) * height), (x, y - top * height),
                 (x + k * half * height, y - (top - k * (top - low)) * height)],
                (246, 250, 254),
            )  # fmt: skip


def tufts(brush: Brush, count: int, colour: RGB, top: float = 0.52) -> None:
    """Grass here and there on the ground."""
    for _ in range(count):
        x, y = brush.between(0, 1), brush.between(top, 1)
        h = 0.012 + 0.02 * (y - 0.4)
        for dx in (-0.6, 0.0, 0.6):
            brush.line([(x, y), (x + dx * h, y - h)], 0.005, colour)


def waves(brush: Brush, top: float, bottom: float, count: int, colour: RGB) -> None:
    """Short bright strokes on water."""
    for _ in range(count):
        y = brush.between(top + 0.01, bottom - 0.01)
        x, w = brush.between(0, 1), brush.between(0.02, 0.06)
        brush.line(
            [(x - w, y), (x - 0.3 * w, y - 0.007), (x + 0.3 * w, y), (x + w, y - 0.005)],
            0.006,
            colour,
        )


def beach(brush: Brush) -> None:
    sun(brush)
    clouds(brush, 2)
    top, shore = WATER["beach"]
    brush.gradient(top, shore, (38, 112, 180), (92, 190, 208))
    waves(brush, top, shore, 12, (206, 236, 242))
    if brush.random.random() < 0.5:  # an island
        x = brush.between(0.1, 0.9)
        brush.poly(
            [(x - 0.16, top), (x - 0.06, top - 0.045), (x + 0.03, top - 0.03), (x + 0.13, top)],
            (116, 150, 130),
        )
    phase = brush.between(0, 6.28)
    edge = [(i / 20, shore + 0.012 * float(np.sin(9 * i / 20 + phase))) for i in range(21)]
    brush.poly([(0, 0.72), *edge, (1, 0.72)], LIGHT["beach"][2])
    brush.line(edge, 0.014, (248, 252, 252))
    for _ in range(9):  # shells and pebbles
        x, y = brush.between(0, 1), brush.between(0.7, 0.99)
        brush.oval(
            x,
            y,
            0.008,
            0.006,
            brush.random.choice(((252, 244, 230), (214, 178, 150), (198, 180, 150))),
        )


def park(brush: Brush) -> None:
    sun(brush)
    clouds(brush, 2)
    hills(brush, 0.47, 0.07, (128, 178, 122), 2)
    for _ in range(6):
        far_tree(
            brush,
            brush.between(0, 1),
            brush.between(0.45, 0.475),
            brush.between(0.1, 0.17),
            shade((74, 142, 74), brush.between(0.85, 1.2)),
        )
    x, bend = brush.between(0.15, 0.85), brush.between(-0.25, 0.25)
    path = [(x - 0.02, HORIZON + 0.01), (x + 0.02, HORIZON + 0.01), (x + bend + 0.1, 0.7), (x + 0.45 * bend + 0.26, 1.0),
            (x + 0.45 * bend - 0.14, 1.0), (x + bend - 0.05, 0.7)]  # fmt: skip
    brush.poly(path, (222, 204, 168))
    tufts(brush, 14, (78, 142, 58))
    for _ in range(10):
        colour = brush.random.choice(((250, 240, 240), (250, 220, 90), (236, 150, 190)))
        brush.oval(brush.between(0, 1), brush.between(0.55, 0.98), 0.006, 0.006, colour)


def street(brush: Brush) -> None:
    clouds(brush, 1)
    x = -brush.between(0, 0.1)
    while x < 1:  # a row of houses
        w, h = brush.between(0.15, 0.25), brush.between(0.18, 0.36)
        wall = brush.random.choice(
            ((206, 172, 146), (186, 192, 198), (222, 208, 178), (176, 146, 138), (198, 184, 196))
        )
        brush.rect(x, 0.56 - h, x + w, 0.56, wall)
        brush.rect(x - 0.006, 0.555 - h, x + w + 0.006, 0.575 - h, shade(wall, 0.72))
        lit = brush.random.choice(((122, 148, 170), (250, 232, 160), (96, 112, 130)))
        for row in range(int(h / 0.075)):
            for column in range(3):
                wx, wy = x + w * (0.2 + 0.3 * column), 0.6 - h + 0.07 * row
                if wy < 0.52:
                    brush.rect(wx - 0.016, wy, wx + 0.016, wy + 0.034, lit)
        x += w
    top, bottom = ROAD["street"]
    brush.gradient(0.56, top, (188, 184, 180), (172, 168, 164))
    brush.gradient(top, bottom, (98, 98, 104), (82, 82, 88))
    brush.gradient(bottom, 1.0, (184, 180, 174), (170, 166, 160))
    brush.line([(0, top), (1, top)], 0.01, (220, 218, 214))
    brush.line([(0, bottom), (1, bottom)], 0.014, (224, 222, 218))
    start, middle = -brush.between(0, 0.2), 0.5 * (top + bottom)
    while start < 1:
        brush.poly(
            [
                (start, middle - 0.008),
                (start + 0.1, middle - 0.008),
                (start + 0.095, middle + 0.008),
                (start - 0.005, middle + 0.008),
            ],
            (244, 240, 220),
        )
        start += 0.2
    for i in range(6):  # paving joints
        px = brush.between(0, 0.05) + i / 5
        brush.line([(px, bottom + 0.01), (px + (px - 0.5) * 0.15, 1.0)], 0.004, (150, 146, 142))


def desert(brush: Brush) -> None:
    sun(brush, (255, 246, 196))
    if brush.random.random() < 0.7:  # a table mountain
        x, w, h = brush.between(0.1, 0.9), brush.between(0.1, 0.2), brush.between(0.08, 0.15)
        rock = (206, 128, 88)
        brush.poly(
            [
                (x - w, 0.47),
                (x - 0.7 * w, 0.47 - 0.8 * h),
                (x - 0.62 * w, 0.47 - h),
                (x + 0.6 * w, 0.47 - h),
                (x + 0.72 * w, 0.47 - 0.75 * h),
                (x + w, 0.47),
            ],
            rock,
        )
        brush.line(
            [(x - 0.66 * w, 0.47 - 0.6 * h), (x + 0.7 * w, 0.47 - 0.6 * h)],
            0.008,
            shade(rock, 0.85),
        )
    for base, height, colour in (
        (0.56, 0.1, (244, 208, 146)),
        (0.74, 0.1, (236, 188, 120)),
        (1.02, 0.12, (228, 174, 104)),
    ):
        hills(brush, base, height, colour, 2)
        brush.rect(0, base - 0.02, 1, 1.05, colour) if brush.style != "sketch" else None
    for _ in range(7):
        x, y, w = brush.between(0, 1), brush.between(0.58, 0.98), brush.between(0.03, 0.08)
        brush.line([(x - w, y), (x, y - 0.008), (x + w, y)], 0.005, (206, 150, 88))
    for _ in range(4):
        brush.oval(
            brush.between(0, 1),
            brush.between(0.6, 0.98),
            brush.between(0.008, 0.016),
            0.008,
            (176, 130, 92),
        )


def snow(brush: Brush) -> None:
    hills(brush, 0.48, 0.1, (214, 224, 238), 2)
    for _ in range(7):
        y = brush.between(0.46, 0.51)
        fir(
            brush,
            brush.between(0, 1),
            y,
            brush.between(0.11, 0.2),
            shade((62, 106, 96), brush.between(0.85, 1.15)),
            snow=True,
        )
    for base, height in ((0.66, 0.06), (0.9, 0.07)):
        hills(brush, base, height, (242, 246, 252), 2)
        brush.gradient(base - 0.015, 1.0, (242, 246, 252), (250, 252, 255))
    for _ in range(6):
        x, y, w = brush.between(0, 1), brush.between(0.6, 0.98), brush.between(0.03, 0.08)
        brush.line([(x - w, y), (x, y + 0.008), (x + w, y)], 0.006, (206, 218, 236))


def snowflakes(brush: Brush, share: float = 1.0) -> None:
    """Falling snow, over the things too."""
    for _ in range(int(26 * share)):
        x, y, r = brush.between(0, 1), brush.between(0, 1), brush.between(0.003, 0.008)
        brush.oval(x, y, r, r, (255, 255, 255))


def forest(brush: Brush) -> None:
    brush.gradient(0, HORIZON, (128, 168, 132), (196, 216, 170))
    for row, (count, colour, y) in enumerate((
        (9, (112, 142, 112), 0.45), (8, (86, 106, 76), 0.48), (6, (84, 66, 48), 0.52))):  # fmt: skip
        for i in range(count):
            x, w = (
                (i + brush.between(0.1, 0.9)) / count,
                brush.between(0.012, 0.02) * (1 + 0.55 * row),
            )
            brush.poly(
                [
                    (x - w, y),
                    (x - 0.7 * w, 0),
                    (x + 0.7 * w, 0),
                    (x + w, y),
                    (x + 1.6 * w, y + 0.012),
                    (x - 1.6 * w, y + 0.012),
                ],
                colour,
            )
        for _ in range(6):
            leaf = ((104, 146, 96), (74, 122, 70), (54, 98, 54))[row]
            brush.oval(
                brush.between(0, 1),
                brush.between(-0.02, 0.16 - 0.03 * row),
                brush.between(0.1, 0.18),
                brush.between(0.06, 0.1),
                leaf,
            )
    for _ in range(8):
        brush.oval(
            brush.between(0, 1),
            brush.between(0.47, 0.53),
            brush.between(0.03, 0.07),
            0.025,
            shade((76, 112, 58), brush.between(0.8, 1.2)),
        )
    for _ in range(22):  # fallen leaves
        colour = brush.random.choice(
            ((176, 120, 60), (150, 92, 50), (120, 140, 70), (196, 150, 80))
        )
        brush.oval(brush.between(0, 1), brush.between(0.58, 0.99), 0.011, 0.006, colour)
    tufts(brush, 10, (116, 146, 74), 0.56)


def field(brush: Brush) -> None:
    sun(brush)
    clouds(brush, 3)
    hills(brush, 0.47, 0.08, (146, 184, 112), 3)
    for _ in range(3):
        far_tree(
            brush,
            brush.between(0, 1),
            brush.between(0.45, 0.47),
            brush.between(0.06, 0.1),
            (92, 140, 76),
        )
    vanish = brush.between(0.3, 0.7)
    for i in range(-7, 8):  # crop rows run to one point
        x = vanish + 0.24 * i
        brush.poly(
            [
                (vanish + 0.05 * i, HORIZON + 0.03),
                (vanish + 0.05 * i + 0.008, HORIZON + 0.03),
                (x + 0.075, 1.0),
                (x, 1.0),
            ],
            (186, 158, 62),
        )
    brush.line([(0, 0.535), (1, 0.535)], 0.007, (132, 98, 66))  # a fence far back
    brush.line([(0, 0.51), (1, 0.51)], 0.006, (132, 98, 66))
    shift = brush.between(0, 0.1)
    for i in range(11):
        brush.rect(i * 0.1 + shift - 0.006, 0.495, i * 0.1 + shift + 0.006, 0.56, (142, 106, 72))
    tufts(brush, 16, (172, 146, 56), 0.6)


def mountain(brush: Brush) -> None:
    sun(brush)
    clouds(brush, 1)
    for x, h, w in sorted(
        (
            (brush.between(0, 1), brush.between(0.2, 0.36), brush.between(0.24, 0.34))
            for _ in range(4)
        ),
        key=lambda p: -p[1],
    ):
        rock = shade((122, 132, 152), brush.between(0.85, 1.15))
        top = HORIZON + 0.01 - h
        brush.poly([(x - w, HORIZON + 0.01), (x, top), (x + w, HORIZON + 0.01)], rock)
        brush.poly(
            [(x, top), (x + 0.25 * w, HORIZON + 0.01), (x + w, HORIZON + 0.01)], shade(rock, 0.84)
        )
        k = 0.32
        brush.poly(
            [
                (x - k * w, top + k * h),
                (x, top),
                (x + k * w, top + k * h),
                (x + 0.5 * k * w, top + 0.7 * k * h),
                (x + 0.1 * k * w, top + 1.15 * k * h),
                (x - 0.4 * k * w, top + 0.7 * k * h),
            ],
            (248, 250, 254),
        )
    lake, shore = WATER["mountain"]
    brush.gradient(lake, shore, (74, 132, 176), (112, 172, 200))
    waves(brush, lake, shore, 8, (196, 224, 236))
    for _ in range(5):
        fir(
            brush,
            brush.between(0, 1),
            brush.between(0.445, 0.46),
            brush.between(0.06, 0.11),
            (60, 96, 76),
        )
    phase = brush.between(0, 6.28)
    edge = [(i / 16, shore + 0.01 * float(np.sin(8 * i / 16 + phase))) for i in range(17)]
    brush.poly([(0, 0.68), *edge, (1, 0.68)], LIGHT["mountain"][2])
    for _ in range(9):
        x, y, r = brush.between(0, 1), brush.between(0.64, 0.99), brush.between(0.012, 0.028)
        brush.poly(
            [(x - r, y), (x - 0.6 * r, y - 0.8 * r), (x + 0.4 * r, y - r), (x + r, y)],
            shade((148, 146, 144), brush.between(0.8, 1.15)),
        )
    tufts(brush, 12, (102, 136, 72), 0.62)


SETTINGS: dict[str, Callable[[Brush], None]] = {
    "beach": beach, "park": park, "street": street, "desert": desert,
    "snow": snow, "forest": forest, "field": field, "mountain": mountain,
}  # fmt: skip


def backdrop(setting: str, style: str, side: int, random: Random) -> Brush:
    """Paint a setting on a new picture of `side` pixels; the brush that holds it."""
    brush = Brush(side, style, random)
    sky, low, far, near = LIGHT[setting]
    brush.gradient(0, HORIZON, sky, low)
    brush.gradient(HORIZON, 1.0, far, near)
    SETTINGS[setting](brush)
    return brush
