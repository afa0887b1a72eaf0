"""Vehicles, plants, buildings and other things that do not breathe."""

from math import cos, radians, sin

from mmlib.world.pen import DARK, RGB, WOOD, Pen, mix, path, shade

STEEL: RGB = (150, 156, 164)
GLASS: RGB = (162, 204, 226)
DUST: RGB = (226, 224, 220)


def wheel(pen: Pen, x: float, r: float, action: str | None) -> None:
    """A wheel with its hub; dust flies behind it when it turns."""
    if action == "moving":
        for back, y, size in ((1.2, 0.3, 0.42), (1.75, 0.45, 0.34), (2.2, 0.7, 0.26)):
            pen.oval(x - back * r, y * r, size * r, size * r, DUST, outline=pen.style == "sketch")
    pen.oval(x, r, r, r, (40, 40, 44))
    pen.oval(x, r, 0.55 * r, 0.55 * r, (198, 202, 206), outline=False)
    pen.oval(x, r, 0.16 * r, 0.16 * r, (70, 70, 76), outline=False)


def speed(pen: Pen, x: float, *heights: float) -> None:
    """Lines behind something that moves."""
    for i, y in enumerate(heights):
        pen.line([(x, y), (x - 0.26 - 0.1 * (i % 2), y)], 0.035, (246, 246, 246))


def car(pen: Pen, action: str | None) -> None:
    """A car from the side."""
    if action == "moving":
        speed(pen, -1.08, 0.3, 0.48, 0.66)
    paint, roof = pen.main, pen.vary(0.92, 1.02)
    cabin = path("-.68,.5 -.46,.9 -.1,1 .25,.92 .58,.52 0,.4")
    pen.blob([(x, y * roof) for x, y in cabin], paint, patterned=True)
    pen.poly(
        path("-1.04,.2 -1.06,.46 -.96,.57 -.3,.6 .55,.58 .92,.5 1.06,.36 1.06,.2"),
        paint,
        patterned=True,
    )
    pen.poly([(-0.52, 0.6), (-0.4, 0.84 * roof), (-0.11, 0.9 * roof), (-0.11, 0.6)], GLASS)
    pen.poly([(-0.03, 0.6), (-0.03, 0.9 * roof), (0.2, 0.84 * roof), (0.44, 0.6)], GLASS)
    pen.line([(-0.07, 0.58), (-0.07, 0.26)], 0.02, shade(paint, 0.55))
    pen.oval(0.98, 0.42, 0.06, 0.065, (252, 238, 160))
    pen.oval(-1.01, 0.44, 0.045, 0.06, (200, 40, 36))
    pen.poly(path("-1.1,.17 -1.1,.24 1.1,.24 1.1,.17"), (96, 98, 104))
    for x in (-0.6, 0.62):
        wheel(pen, x, 0.215, action)


def bus(pen: Pen, action: str | None) -> None:
    """A bus from the side."""
    if action == "moving":
        speed(pen, -1.08, 0.3, 0.5, 0.7)
    paint = pen.main
    pen.poly(path("-1.05,.13 -1.07,.9 -1,.99 .96,.99 1.05,.88 1.08,.5 1.08,.13"), paint, True)
    for x in (-0.92, -0.57, -0.22, 0.13):
        pen.poly([(x, 0.56), (x, 0.85), (x + 0.28, 0.85), (x + 0.28, 0.56)], GLASS)
    pen.poly(path(".5,.17 .5,.85 .74,.85 .74,.17"), GLASS)
    pen.line([(0.62, 0.17), (0.62, 0.85)], 0.02, shade(paint, 0.6))
    pen.poly(path(".82,.52 .82,.85 .99,.85 1.05,.52"), GLASS)
    pen.line([(-1.05, 0.47), (0.5, 0.47)], 0.03, shade(paint, 1.5))
    pen.oval(1.03, 0.3, 0.04, 0.05, (252, 238, 160))
    for x in (-0.66, 0.3):
        wheel(pen, x, 0.165, action)


def truck(pen: Pen, action: str | None) -> None:
    """A lorry: cab in front, load behind."""
    if action == "moving":
        speed(pen, -1.08, 0.3, 0.5, 0.7)
    paint = pen.main
    pen.poly(path("-1.05,.16 -1.05,.28 1.02,.28 1.02,.16"), (84, 84, 90))
    pen.poly(path("-1.06,.27 -1.06,1 .34,1 .34,.27"), paint, patterned=True)
    pen.poly(path(".42,.18 .42,.86 .8,.86 .97,.56 1.08,.5 1.08,.18"), shade(paint, 0.86))
    pen.poly(path(".56,.55 .56,.79 .76,.79 .9,.55"), GLASS)
    pen.oval(1.03, 0.34, 0.045, 0.05, (252, 238, 160))
    for x in (-0.74, -0.34, 0.7):
        wheel(pen, x, 0.18, action)


def bicycle(pen: Pen, action: str | None) -> None:
    """A bicycle: two wheels, a frame, a saddle, a basket in its colour."""
    if action == "moving":
        speed(pen, -0.86, 0.3, 0.5)
    tyre = (52, 52, 56)
    for x in (-0.5, 0.5):
        pen.ring(x, 0.3, 0.3, 0.045, tyre)
        for dx, dy in ((0.27, 0), (0.19, 0.19), (0, 0.27), (-0.19, 0.19)):
            pen.line([(x - dx, 0.3 - dy), (x + dx, 0.3 + dy)], 0.012, (176, 180, 184))
    hub, crank, seat, fork = (-0.5, 0.3), (-0.06, 0.29), (-0.2, 0.72), (0.36, 0.7)
    for bone in ([hub, crank, seat, hub], [crank, fork, seat], [(0.5, 0.3), fork]):
        pen.limb(bone, 0.075, pen.main, patterned=True)
    pen.limb([seat, (-0.23, 0.83)], 0.05, STEEL)
    pen.limb([(-0.34, 0.86), (-0.12, 0.85)], 0.075, DARK)
    pen.limb([fork, (0.32, 0.92), (0.2, 0.97)], 0.05, DARK)
    pen.poly(path(".42,.62 .38,.86 .74,.86 .68,.62"), pen.main, patterned=True)
    pen.oval(*crank, 0.07, 0.07, STEEL)
    pen.limb([crank, (0.0, 0.16), (0.06, 0.16)], 0.035, DARK)


def boat(pen: Pen, action: str | None) -> None:
    """A sailing boat."""
    cloth = (248, 246, 236)
    pen.limb([(0.0, 0.2), (0.0, 0.97)], 0.035, WOOD)
    pen.poly(path(".04,.3 .05,.95 .5,.34"), cloth)
    pen.poly(path("-.04,.32 -.04,.84 -.4,.36"), shade(pen.main, 1.35), patterned=True)
    pen.poly(path("0,.93 0,1 -.17,.965"), (214, 60, 52))
    pen.poly(path("-.62,.27 -.48,0 .44,0 .68,.29"), pen.main, patterned=True)
    pen.limb([(-0.62, 0.265), (0.68, 0.285)], 0.035, shade(pen.main, 1.35))
    wake = (232, 244, 250)
    spread = 0.22 if action == "moving" else 0.14
    for x, y in ((-0.42, 0.0), (0.02, -0.03), (0.44, 0.0)):
        pen.line([(x - spread, y), (x, y + 0.035), (x + spread, y)], 0.03, wake)
    if action == "moving":
        for y in (0.02, 0.07):
            pen.line([(-0.95, y), (-0.6, y)], 0.03, wake)


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
    middle = (
        (92, 58, 36)
        if pen.main[0] > 220 and pen.main[1] > 180 and pen.main[2] < 120
        else (250, 206, 66)
    )
    pen.oval(sway, 0.76, 0.1, 0.1, middle)


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
    pen.limb(
        [(0.0, high - 0.1), (-0.25, high - 0.1), (-0.25, high + 0.16)],
        0.12,
        pen.main,
        patterned=True,
    )
    pen.limb([(0.0, 0.06), (0.0, 0.9)], 0.2, pen.main, patterned=True)
    for y in (0.2, 0.4, 0.6, 0.8):
        for x in (-0.05, 0.05):
            pen.line([(x - 0.025, y + 0.02), (x, y), (x + 0.025, y + 0.02)], 0.012, (246, 244, 214))
    pen.oval(0.02, 0.99, 0.055, 0.045, (238, 96, 140))


def window(pen: Pen, x: float, y: float, w: float, h: float) -> None:
    """A window about (x, y), of half width w and half height h."""
    pen.poly([(x - w, y - h), (x - w, y + h), (x + w, y + h), (x + w, y - h)], GLASS)
    pen.line([(x, y - h), (x, y + h)], 0.016, (250, 250, 246))
    pen.line([(x - w, y), (x + w, y)], 0.016, (250, 250, 246))


def house(pen: Pen, _: str | None) -> None:
    """A house: walls in its colour, roof, door, windows, chimney."""
    roof = pen.pick(((120, 62, 50), (92, 86, 92), (134, 88, 58)))
    pen.poly(path(".2,.7 .2,.98 .31,.98 .31,.7"), (150, 92, 78))
    pen.poly(path("-.48,0 -.48,.56 .48,.56 .48,0"), pen.main, patterned=True)
    pen.poly(path("-.58,.54 -.02,1 .04,1 .58,.54"), roof)
    pen.poly(path("-.1,0 -.1,.32 .1,.32 .1,0"), (112, 72, 46))
    pen.oval(0.06, 0.15, 0.018, 0.018, (240, 210, 90), outline=False)
    for x in (-0.29, 0.29):
        window(pen, x, 0.33, 0.1, 0.1)
    pen.oval(0.01, 0.71, 0.075, 0.075, GLASS)


def tower(pen: Pen, _: str | None) -> None:
    """A round tower with a pointed roof."""
    roof = pen.pick(((122, 60, 52), (72, 78, 104), (96, 84, 78)))
    pen.poly(path("-.19,0 -.155,.66 .155,.66 .19,0"), pen.main, patterned=True)
    pen.poly(path("-.21,.64 -.21,.75 .21,.75 .21,.64"), shade(pen.main, 0.86))
    for x in (-0.15, 0.0, 0.15):
        pen.poly(
            [(x - 0.035, 0.66), (x - 0.035, 0.73), (x + 0.035, 0.73), (x + 0.035, 0.66)],
            (70, 66, 74),
        )
    pen.poly(path("-.23,.74 0,1 .23,.74"), roof)
    for x, y in ((-0.03, 0.5), (0.05, 0.33)):
        pen.poly(
            [
                (x - 0.035, y - 0.05),
                (x - 0.035, y + 0.03),
                (x, y + 0.06),
                (x + 0.035, y + 0.03),
                (x + 0.035, y - 0.05),
            ],
            (66, 66, 84),
        )
    pen.poly(path("-.07,0 -.07,.12 0,.17 .07,.12 .07,0"), (104, 68, 44))


def barn(pen: Pen, _: str | None) -> None:
    """A barn: broken roof line, big crossed door, hay loft."""
    white = (246, 244, 236)
    walls = path("-.55,0 -.55,.5 -.4,.8 0,.98 .4,.8 .55,.5 .55,0")
    pen.poly(walls, pen.main, patterned=True)
    pen.limb(path("-.62,.46 -.43,.82 0,1.01 .43,.82 .62,.46"), 0.07, (96, 84, 80))
    door = path("-.24,0 -.24,.44 .24,.44 .24,0")
    pen.poly(door, shade(pen.main, 0.66))
    for line in ([*door, door[0]], [door[0], door[2]], [door[1], door[3]]):
        pen.line(line, 0.034, white)
    pen.poly(path("-.1,.58 -.1,.75 .1,.75 .1,.58"), (70, 54, 46))
    pen.line(path("-.1,.58 -.1,.75 .1,.75 .1,.58 -.1,.58"), 0.03, white)


def tent(pen: Pen, _: str | None) -> None:
    """A ridge tent with an open flap."""
    pen.poly(path("-.2,.96 .32,.9 .68,.02 .2,0"), shade(pen.main, 0.78), patterned=True)
    pen.poly(path("-.68,0 -.2,.98 .28,0"), pen.main, patterned=True)
    pen.poly(path("-.4,0 -.2,.66 0,0"), (58, 50, 54))
    pen.poly(path("0,0 -.2,.66 -.03,.36 .09,0"), shade(pen.main, 1.3))
    for rope in ("-.56,.24 -.76,0", ".52,.4 .8,.02"):
        pen.line(path(rope), 0.02, (236, 230, 214))


def ball(pen: Pen, action: str | None) -> None:
    """A ball with a light seam."""
    if action == "moving":
        speed(pen, -0.6, 0.25, 0.5, 0.75)
    pen.oval(0, 0.5, 0.5, 0.5, pen.main, patterned=True)
    seam = shade(pen.main, 1.55) if sum(pen.main) < 600 else shade(pen.main, 0.7)
    pen.arc(-0.42, 0.5, 0.55, 300, 420, seam)
    pen.arc(0.55, 0.5, 0.5, 130, 230, seam)
    pen.oval(-0.17, 0.72, 0.1, 0.08, shade(pen.main, 1.7), outline=False)


def kite(pen: Pen, _: str | None) -> None:
    """A diamond kite with a tail of bows."""
    top, right, low, left = (0.06, 1.0), (0.34, 0.68), (-0.06, 0.28), (-0.28, 0.62)
    pen.line([low, (-0.16, 0.2), (-0.06, 0.11), (-0.2, 0.0)], 0.025, (96, 88, 88))
    pen.poly([top, right, low, left], pen.main, patterned=True)
    pen.line([top, low], 0.022, shade(pen.main, 0.6))
    pen.line([left, right], 0.022, shade(pen.main, 0.6))
    for x, y in ((-0.15, 0.19), (-0.08, 0.1), (-0.19, 0.01)):
        pen.poly(
            [
                (x - 0.07, y + 0.035),
                (x + 0.07, y - 0.035),
                (x + 0.07, y + 0.035),
                (x - 0.07, y - 0.035),
            ],
            pen.main,
        )


def umbrella(pen: Pen, _: str | None) -> None:
    """An open umbrella on its stick."""
    pen.limb(path("0,.95 0,.08 .04,.03 .09,.05"), 0.03, (92, 70, 54))
    dome = [(0.5 * cos(radians(a)), 0.58 + 0.37 * sin(radians(a))) for a in range(0, 181, 15)]
    scallop = path("-.33,.635 -.17,.575 0,.635 .17,.575 .33,.635")
    pen.poly([*dome, *scallop], pen.main, patterned=True)
    for x in (-0.17, 0.17):
        pen.line([(x, 0.58), (0.45 * x, 0.8), (0.0, 0.95)], 0.016, shade(pen.main, 0.65))
    pen.limb([(0.0, 0.94), (0.0, 1.0)], 0.03, (92, 70, 54))


def bench(pen: Pen, _: str | None) -> None:
    """A park bench, seen from the front."""
    for x in (-0.78, 0.78):
        pen.limb([(x, 0.42), (x, 0.02)], 0.09, (70, 70, 76))
        pen.limb([(x, 0.42), (x * 0.96, 0.95)], 0.07, (70, 70, 76))
    for y in (0.6, 0.82):
        pen.poly(
            [(-0.98, y), (-0.98, y + 0.15), (0.98, y + 0.15), (0.98, y)], pen.main, patterned=True
        )
    pen.poly(path("-.98,.48 .98,.48 1.06,.34 -1.06,.34"), shade(pen.main, 0.9), patterned=True)


def box(pen: Pen, _: str | None) -> None:
    """A closed box."""
    pen.poly(path("-.55,.78 -.38,1 .6,1 .45,.78"), shade(pen.main, 1.3))
    pen.poly(path(".45,0 .45,.78 .6,1 .6,.2"), shade(pen.main, 0.7))
    pen.poly(path("-.55,0 -.55,.78 .45,.78 .45,0"), pen.main, patterned=True)
    tape = mix(pen.main, (236, 214, 160), 0.75)
    pen.poly(path("-.12,.5 -.12,.78 .06,1 .2,1 .03,.78 .03,.5"), tape)


def balloon(pen: Pen, _: str | None) -> None:
    """A balloon on its string."""
    pen.line(path("0,.44 .03,.3 -.03,.16 0,0"), 0.016, (110, 104, 104))
    pen.poly(path("-.05,.4 .05,.4 0,.48"), shade(pen.main, 0.8))
    pen.blob(
        path("0,.45 .2,.58 .255,.77 .14,.95 0,1 -.14,.95 -.255,.77 -.2,.58"),
        pen.main,
        patterned=True,
    )
    pen.oval(-0.1, 0.84, 0.05, 0.065, shade(pen.main, 1.65), outline=False)


def chair(pen: Pen, _: str | None) -> None:
    """A kitchen chair, seen from the side."""
    wood = shade(pen.main, 0.8)
    for x0, x1 in ((-0.2, -0.16), (0.32, 0.3)):
        pen.limb([(x0, 0.48), (x1, 0.03)], 0.065, shade(wood, 0.8))
    pen.poly(path("-.36,.46 -.42,.98 -.2,1 -.16,.46"), pen.main, patterned=True)
    pen.poly(path("-.38,.42 -.3,.56 .42,.56 .38,.42"), pen.main, patterned=True)
    for x0, x1 in ((-0.33, -0.36), (0.24, 0.22)):
        pen.limb([(x0, 0.44), (x1, 0.03)], 0.065, wood)


def lamp(pen: Pen, _: str | None) -> None:
    """A street lamp with a shade in its colour."""
    post = (72, 74, 80)
    pen.oval(0.0, 0.74, 0.2, 0.12, (255, 240, 170), outline=False)
    pen.limb([(0.0, 0.03), (0.0, 0.8)], 0.05, post)
    pen.poly(path("-.12,0 -.07,.07 .07,.07 .12,0"), post)
    pen.oval(0.0, 0.75, 0.09, 0.06, (255, 250, 214))
    pen.poly(path("-.24,.76 -.1,.97 .1,.97 .24,.76"), pen.main, patterned=True)
    pen.limb([(0.0, 0.97), (0.0, 1.0)], 0.04, post)
