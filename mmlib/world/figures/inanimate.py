"""Vehicles, plants, buildings and other things that do not breathe.

`inanimate.yaml` lists how most are drawn, and how to read it; here are those that vary in shape.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import cos, radians, sin

from mmlib.core.paths import table_beside
from mmlib.world.pen import RGB, Pen, Point, mix, named_colours, path, shade

_STROKES = table_beside(__file__)
COLOURS = named_colours(_STROKES.pop("colours"))
DUST: RGB = (226, 224, 220)


@dataclass(frozen=True)
class Stroke:
    """One line of `inanimate.yaml`, which says what the fields mean."""

    when: str  # "moving", "resting", or "" for always
    tool: str
    colour: str  # "" for tools that have colours of their own
    patterned: bool
    outline: bool
    numbers: tuple[float, ...]
    points: tuple[Point, ...]
    at: tuple[Point, ...]  # the stroke is repeated, moved by each

    @classmethod
    def read(cls, line: str) -> "Stroke":
        """The stroke that a line describes."""
        line, _, at = line.partition(" @ ")
        words = line.split()
        when = words.pop(0) if words[0] in ("moving", "resting") else ""
        tool = words.pop(0)
        colour = "" if tool in ("wheel", "speed") else words.pop(0)
        flags = [word for word in words if word in ("pattern", "bare")]
        first = next(i for i, word in enumerate(words) if "," in word)
        return cls(
            when, tool, colour, "pattern" in flags, "bare" not in flags,
            tuple(map(float, words[len(flags) : first])), path(" ".join(words[first:])),
            path(at or "0,0"),
        )  # fmt: skip

    def draw(self, pen: Pen, action: str | None) -> None:
        """Draw it, where the action calls for it."""
        if self.when and (self.when == "moving") != (action == "moving"):
            return
        colour = _colour(pen, self.colour) if self.colour else pen.main
        size, width = (*self.numbers, 0.0, 0.0)[:2]
        for dx, dy in self.at:
            points = [(dx + x, dy + y) for x, y in self.points]
            match self.tool:
                case "poly":
                    pen.poly(points, colour, self.patterned, self.outline)
                case "blob":
                    pen.blob(points, colour, self.patterned, self.outline)
                case "limb":
                    pen.limb(points, size, colour, self.patterned)
                case "line":
                    pen.line(points, size, colour)
                case "oval":
                    pen.oval(*points[0], size, width, colour, self.patterned, self.outline)
                case "ring":
                    pen.ring(*points[0], size, width, colour)
                case "wheel":
                    wheel(pen, points, size, action)
                case "speed":
                    speed(pen, points)
                case _:
                    raise ValueError(f"inanimate.yaml: there is no tool {self.tool!r}")


def _colour(pen: Pen, text: str) -> RGB:
    """The colour that a stroke names; where it names several, one by the thing's chance."""
    name, *factors = text.split("*")
    if "/" in name:
        colour = pen.pick([COLOURS[choice] for choice in name.split("/")])
    elif name.startswith("main+"):
        colour = mix(pen.main, COLOURS[name.removeprefix("main+")], 0.75)
    else:
        colour = pen.main if name == "main" else COLOURS[name]
    for factor in factors:
        colour = shade(colour, float(factor))
    return colour


def wheel(pen: Pen, spots: Sequence[Point], r: float, action: str | None) -> None:
    """Wheels with their hubs at each x; dust flies behind them when they turn."""
    for x, _ in spots:
        if action == "moving":
            for back, y, size in ((1.2, 0.3, 0.42), (1.75, 0.45, 0.34), (2.2, 0.7, 0.26)):
                outline = pen.style == "sketch"
                pen.oval(x - back * r, y * r, size * r, size * r, DUST, outline=outline)
        pen.oval(x, r, r, r, (40, 40, 44))
        pen.oval(x, r, 0.55 * r, 0.55 * r, (198, 202, 206), outline=False)
        pen.oval(x, r, 0.16 * r, 0.16 * r, (70, 70, 76), outline=False)


def speed(pen: Pen, spots: Sequence[Point]) -> None:
    """Lines behind something that moves."""
    for i, (x, y) in enumerate(spots):
        pen.line([(x, y), (x - 0.26 - 0.1 * (i % 2), y)], 0.035, (246, 246, 246))


def car(pen: Pen, action: str | None) -> None:
    """A car from the side."""
    if action == "moving":
        speed(pen, path("-1.08,.3 -1.08,.48 -1.08,.66"))
    paint, roof = pen.main, pen.vary(0.92, 1.02)
    cabin = path("-.68,.5 -.46,.9 -.1,1 .25,.92 .58,.52 0,.4")
    pen.blob([(x, y * roof) for x, y in cabin], paint, patterned=True)
    body = path("-1.04,.2 -1.06,.46 -.96,.57 -.3,.6 .55,.58 .92,.5 1.06,.36 1.06,.2")
    pen.poly(body, paint, patterned=True)
    glass = COLOURS["glass"]
    pen.poly([(-0.52, 0.6), (-0.4, 0.84 * roof), (-0.11, 0.9 * roof), (-0.11, 0.6)], glass)
    pen.poly([(-0.03, 0.6), (-0.03, 0.9 * roof), (0.2, 0.84 * roof), (0.44, 0.6)], glass)
    pen.line([(-0.07, 0.58), (-0.07, 0.26)], 0.02, shade(paint, 0.55))
    pen.oval(0.98, 0.42, 0.06, 0.065, COLOURS["headlight"])
    pen.oval(-1.01, 0.44, 0.045, 0.06, (200, 40, 36))
    pen.poly(path("-1.1,.17 -1.1,.24 1.1,.24 1.1,.17"), (96, 98, 104))
    wheel(pen, path("-.6,0 .62,0"), 0.215, action)


def tree(pen: Pen, _: str | None) -> None:
    """A tree with a round crown in its colour."""
    trunk = (112, 78, 50)
    pen.poly(path("-.075,0 -.045,.45 .045,.45 .075,0"), trunk)
    pen.limb([(0.0, 0.32), (0.14, 0.5)], 0.04, trunk)
    puffs = path(".22,.52 .27,.7 .13,.89 -.13,.88 -.28,.69 -.21,.5")
    far = shade(pen.main, 0.84)
    moved = [(x * pen.vary(0.85, 1.15), y * pen.vary(0.97, 1.02)) for x, y in puffs]
    for x, y in moved:
        pen.oval(x, y, 0.135, 0.11, far)
    pen.blob(moved, pen.main, patterned=True, outline=False)
    for x, y in ((-0.1, 0.78), (0.13, 0.66), (-0.07, 0.58)):
        pen.arc(x, y, 0.08, 200, 300, shade(pen.main, 1.3))


def flower(pen: Pen, _: str | None) -> None:
    """A flower: petals in its colour on a green stem with leaves."""
    stem = (66, 138, 62)
    sway = pen.vary(-0.06, 0.06)
    pen.limb([(0.0, 0.0), (0.4 * sway, 0.35), (sway, 0.7)], 0.05, stem)
    pen.blob(path("0,.12 .16,.3 .32,.34 .2,.16"), stem)
    pen.blob(path("0,.2 -.16,.36 -.3,.38 -.2,.22"), shade(stem, 0.85))
    count = 5 + int(pen.chance() * 3)
    for i in range(count):
        a = radians(360 / count * i + 90)
        pen.oval(sway + 0.17 * cos(a), 0.76 + 0.17 * sin(a), 0.115, 0.115, pen.main, patterned=True)
    yellow = pen.main[0] > 220 and pen.main[1] > 180 and pen.main[2] < 120
    pen.oval(sway, 0.76, 0.1, 0.1, (92, 58, 36) if yellow else (250, 206, 66))


def bush(pen: Pen, _: str | None) -> None:
    """A low round bush."""
    spots = path("-.5,.26 -.36,.6 -.05,.82 .3,.68 .52,.3")
    moved = [(x * pen.vary(0.9, 1.1), y * pen.vary(0.9, 1.08)) for x, y in spots]
    for x, y in moved:
        pen.oval(x, y, 0.24, 0.23, shade(pen.main, 0.84))
    pen.poly([(-0.62, 0.0), *moved, (0.62, 0.0)], pen.main, patterned=True, outline=False)
    for x, y in ((-0.25, 0.5), (0.15, 0.58), (0.02, 0.28), (0.36, 0.3)):
        pen.arc(x, y, 0.1, 200, 310, shade(pen.main, 1.35))


def cactus(pen: Pen, _: str | None) -> None:
    """A cactus with two arms."""
    high, low = pen.vary(0.55, 0.68), pen.vary(0.36, 0.5)
    pen.limb([(0.0, low), (0.26, low), (0.26, low + 0.28)], 0.13, pen.main, patterned=True)
    left = [(0.0, high - 0.1), (-0.25, high - 0.1), (-0.25, high + 0.16)]
    pen.limb(left, 0.12, pen.main, patterned=True)
    pen.limb([(0.0, 0.06), (0.0, 0.9)], 0.2, pen.main, patterned=True)
    for y in (0.2, 0.4, 0.6, 0.8):
        for x in (-0.05, 0.05):
            pen.line([(x - 0.025, y + 0.02), (x, y), (x + 0.025, y + 0.02)], 0.012, (246, 244, 214))
    pen.oval(0.02, 0.99, 0.055, 0.045, (238, 96, 140))


def ball(pen: Pen, action: str | None) -> None:
    """A ball with a light seam."""
    if action == "moving":
        speed(pen, path("-.6,.25 -.6,.5 -.6,.75"))
    pen.oval(0, 0.5, 0.5, 0.5, pen.main, patterned=True)
    seam = shade(pen.main, 1.55) if sum(pen.main) < 600 else shade(pen.main, 0.7)
    pen.arc(-0.42, 0.5, 0.55, 300, 420, seam)
    pen.arc(0.55, 0.5, 0.5, 130, 230, seam)
    pen.oval(-0.17, 0.72, 0.1, 0.08, shade(pen.main, 1.7), outline=False)


def umbrella(pen: Pen, _: str | None) -> None:
    """An open umbrella on its stick."""
    pen.limb(path("0,.95 0,.08 .04,.03 .09,.05"), 0.03, (92, 70, 54))
    dome = [(0.5 * cos(radians(a)), 0.58 + 0.37 * sin(radians(a))) for a in range(0, 181, 15)]
    scallop = path("-.33,.635 -.17,.575 0,.635 .17,.575 .33,.635")
    pen.poly([*dome, *scallop], pen.main, patterned=True)
    for x in (-0.17, 0.17):
        pen.line([(x, 0.58), (0.45 * x, 0.8), (0.0, 0.95)], 0.016, shade(pen.main, 0.65))
    pen.limb([(0.0, 0.94), (0.0, 1.0)], 0.03, (92, 70, 54))


def _drawn(pen: Pen, action: str | None, strokes: Sequence[Stroke]) -> None:
    for stroke in strokes:
        stroke.draw(pen, action)


# kind -> function (pen, action) that draws it
FIGURES: dict[str, Callable[[Pen, str | None], None]] = {
    "car": car, "tree": tree, "flower": flower, "bush": bush, "cactus": cactus, "ball": ball,
    "umbrella": umbrella,
    **{kind: partial(_drawn, strokes=[Stroke.read(line) for line in lines])
       for kind, lines in _STROKES.items()},
}  # fmt: skip
