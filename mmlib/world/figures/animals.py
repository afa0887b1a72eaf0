"""Animals on four legs, birds and ducks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import cos, radians, sin

from mmlib.core.paths import table_beside
from mmlib.world.pen import DARK, RGB, Pen, Point, colours, mix, path, shade, step

PALE: RGB = (240, 236, 220)


@dataclass(frozen=True)
class Beast:
    """Proportions of an animal on four legs; `animals.yaml` says in what units."""

    length: float
    girth: float
    leg: float
    bone: float
    neck: float
    neck_width: float
    neck_angle: float
    head: float
    muzzle: float
    tail: str
    ears: str
    face: str


_TABLES = table_beside(__file__)
BEASTS = {kind: Beast(**shape) for kind, shape in _TABLES["beasts"].items()}
GAITS, TILT = _TABLES["gaits"], _TABLES["tilt"]


def _turned(degrees: float, origin: Point) -> Callable[[float, float], Point]:
    """Where points lie that are given in axes turned by `degrees` (nose up) about an origin."""
    along, across = cos(radians(degrees)), sin(radians(degrees))
    return lambda x, y: (origin[0] + x * along - y * across, origin[1] + x * across + y * along)


def beast(pen: Pen, action: str | None, shape: Beast) -> None:
    """A dog, cat, horse, sheep or cow."""
    length, girth = shape.length * pen.vary(0.94, 1.08), shape.girth
    tilt = TILT.get(action or "", 0.0)
    half, thick = 0.5 * length, 0.5 * girth
    height = shape.leg * (0.8 if action == "running" else 1.0) + 0.4 * girth
    if action == "lying":
        height = thick + 0.01
    elif action == "sitting":
        height = 0.36 * girth + half * sin(radians(tilt)) + 0.08
    body = _turned(tilt, (0.0, height))
    roots = body(0.37 * length, -0.25 * girth), body(-0.38 * length, -0.2 * girth)
    x, y = body(0.02 - half, 0.55 * thick)  # the tail's root
    coat = shade(pen.main, 0.88)
    if action == "sitting":
        y = max(0.12, y - 0.12)
    if shape.tail == "up":
        lift = 0.2 if action in ("running", "jumping") else 0.26
        pen.limb([(x + 0.02, y), (x - 0.1, y + 0.4 * lift), (x - 0.13, y + lift)], 0.065, coat)
    elif shape.tail == "long":
        curve = [(x + a, y + b) for a, b in path(".03,0 -.13,.02 -.2,.17 -.13,.34")]
        pen.limb(curve, 0.055, coat)
    elif shape.tail == "hair":
        sweep = -0.24 if action in ("running", "jumping") else -0.1
        curve = [(x + sweep * a, y + b) for a, b in path("-.2,0 .6,-.02 1.1,-.24 .35,-.18")]
        pen.blob(curve, shade(pen.main, 0.6))
    elif shape.tail == "tuft":
        pen.limb([(x + 0.03, y), (x - 0.06, y - 0.1), (x - 0.05, y - 0.3)], 0.035, coat)
        pen.oval(x - 0.05, y - 0.33, 0.035, 0.055, DARK)
    else:
        pen.oval(x - 0.02, y, 0.06, 0.07, coat)
    _legs(pen, shape, roots, action, far=True)
    woolly = shape.face == "wool"
    outline = [body(half * x, thick * y) for x, y in path(_TABLES["wool" if woolly else "trunk"])]
    if woolly:
        for spot in outline:
            pen.oval(*spot, 0.1, 0.1, pen.main)
    pen.blob(outline, pen.main, patterned=True, outline=not woolly)
    if action == "sitting":  # the haunch
        x, y = roots[1][0] + 0.06, 0.2 * girth + 0.06
        pen.oval(x, y, 0.24 * length, 0.42 * girth, pen.main, patterned=True)
    _legs(pen, shape, roots, action, far=False)
    _neck_and_head(pen, shape, body(half - 0.1 * length, 0.42 * thick), tilt, action)


def _legs(
    pen: Pen, shape: Beast, roots: tuple[Point, Point], action: str | None, far: bool
) -> None:
    gait = GAITS.get(action or "standing", GAITS["standing"])[0 if far else 2 :]
    colour, w = shade(pen.main, 0.74 if far else 1.0), shape.bone
    for fore, (x, y), (upper, lower) in zip((True, False), roots, gait, strict=False):
        x += 0.05 if far else -0.035
        if action == "sitting" and fore:
            pen.limb([(x, y), (x + 0.02, 0.5 * w), (x + 0.07, 0.45 * w)], w, colour)
        elif action == "sitting":
            pen.limb([(x + 0.05, 0.5 * w), (x + 0.25, 0.5 * w)], w, colour)
        elif action == "lying":
            low = 0.5 * w + 0.005
            pen.limb([(x, y), (x + 0.03, low), (x + (0.26 if fore else 0.2), low)], w, colour)
        else:
            stands = action in (None, "standing", "eating")
            bone = 0.5 * (y - 0.5 * w) if stands else 0.5 * shape.leg
            knee = step((x, y), upper, bone)
            foot = step(knee, lower, bone)
            pen.limb([(x, y), knee], 1.22 * w, colour)
            pen.limb([knee, foot], w, colour)
            if shape.face in ("mane", "horns", "wool"):  # a hoof
                pen.limb([foot, step(foot, lower, 0.02)], w, DARK)


def _neck_and_head(pen: Pen, shape: Beast, root: Point, tilt: float, action: str | None) -> None:
    angle, reach, down = shape.neck_angle - 0.35 * tilt, shape.neck, action == "eating"
    if down:  # the mouth comes down to the grass
        angle = 146.0
        reach = max(reach, (root[1] - 0.72 * shape.muzzle - 0.06) / 0.83)
    elif action == "running":
        angle += 14
    x, y = step(root, 180 - angle, reach)
    if down:
        for foot, tip in path("-.1,-.13 -.04,-.05 .02,.02 .08,.1 .12,.16"):
            at = x + 0.35 * shape.muzzle
            pen.line([(at + foot, 0.0), (at + tip, 0.13)], 0.03, (92, 160, 60))
    pen.limb([root, (x, y)], shape.neck_width, shade(pen.main, 0.96), shape.face == "mane")
    if shape.face == "mane":  # hair along the back of the neck, which is its upper side
        dx, dy = root[0] - x, root[1] - y
        norm = (dx * dx + dy * dy) ** 0.5
        back_x, back_y = 0.5 * shape.neck_width * dy / norm, -0.5 * shape.neck_width * dx / norm
        if back_y < 0:
            back_x, back_y = -back_x, -back_y
        mane = path("-.06,.9 .5,1.15 .85,1")
        curve = [(x + a * dx + out * back_x, y + a * dy + out * back_y) for a, out in mane]
        pen.limb(curve, 0.07, shade(pen.main, 0.55))
    bowed = 62.0 if down else 36.0 if shape.face in ("mane", "horns") else 8.0
    skin = pen.main
    if shape.face == "wool":
        skin = DARK if sum(pen.main) > 300 else (214, 196, 176)
    _head(pen, shape, _turned(-bowed, (x, y)), skin)


def _head(pen: Pen, shape: Beast, spot: Callable[[float, float], Point], skin: RGB) -> None:
    """Ears, horns, muzzle, eye and nose; `spot` gives points of the head's own axes."""
    r, muzzle, coat = shape.head, shape.muzzle, pen.main

    def trace(text: str) -> list[Point]:
        return [spot(r * x, r * y) for x, y in path(text)]

    if shape.ears == "point":
        for ear in ("-1.04,.5 -.77,1.75 -.12,.7", "0,.5 .27,1.75 .92,.7"):
            pen.poly(trace(ear), shade(coat, 0.85))
    elif shape.ears == "small":
        pen.poly(trace("-.9,.5 -.6,1.65 .05,.8"), coat)
    if shape.face == "horns":
        for side in (-0.55, 0.35):
            pen.limb([spot(side * r, 0.7 * r), spot((side + 0.1) * r, 1.5 * r)], 0.045, PALE)
    if muzzle > 0.1:
        tip, end = 0.64 * r, r + muzzle
        nose = [spot(r + 0.55 * muzzle, 0.45 * tip), spot(end, 0.1 * tip)]
        nose += [spot(r + 0.9 * muzzle, -0.8 * tip)]
        pen.blob([*trace("-.2,.75"), *nose, *trace(".5,-.95 -.3,-.9")], skin)
        pen.oval(*spot(0, 0), r, r, skin, outline=False)
    else:
        pen.oval(*spot(0, 0), 1.08 * r, r, skin)
        pen.oval(*spot(0.62 * r, -0.32 * r), 0.5 * r, 0.36 * r, shade(skin, 1.3), outline=False)
    if shape.face == "wool":
        pen.oval(*spot(-0.45 * r, 0.75 * r), 0.75 * r, 0.5 * r, coat)
    if shape.ears == "flop":
        pen.blob(trace("-.55,.8 0,.55 -.15,-.75 -.75,-.5"), shade(coat, 0.68))
    elif shape.ears == "side":
        pen.blob(trace("-.35,.5 -1.3,.55 -1.25,.1 -.4,.05"), shade(skin, 0.8))
    dark_face = sum(skin) < 240
    eye = 0.13 * r + 0.008
    pen.oval(*spot(0.35 * r, 0.22 * r), eye, eye, PALE if dark_face else DARK, outline=False)
    pink = shape.face in ("horns", "whiskers")
    end = r + 0.86 * muzzle if muzzle > 0.1 else 1.02 * r
    at = spot(end, 0.0 if shape.face == "plain" else -0.15 * r)
    pen.oval(*at, 0.035, 0.03, (226, 160, 150) if pink else mix(DARK, skin, 0.1), outline=False)
    if shape.face == "whiskers":
        for up in (-0.1, -0.45):
            ink = PALE if dark_face else DARK
            pen.line([spot(0.75 * r, -0.3 * r), spot(1.55 * r, up * r)], 0.012, ink)


BEAK: RGB = (244, 166, 40)


@dataclass(frozen=True)
class Fowl:
    """What makes a songbird or a duck; `animals.yaml` says in what units."""

    tilt: float
    size: float
    trunk: str
    tail: str
    wing: str
    bill: str
    feet: Sequence[int]


FOWLS = {kind: Fowl(**shape) for kind, shape in _TABLES["fowls"].items()}


def fowl(pen: Pen, action: str | None, shape: Fowl) -> None:
    """A songbird, or a duck with its long neck and flat bill."""
    coat, duck = pen.main, shape is FOWLS["duck"]
    (feet,) = colours([shape.feet])
    afloat, aloft, down = action == "floating", action == "flying", action == "eating"
    low = 0.02 if afloat or aloft else 0.2
    if not afloat and not aloft:
        stride = {"walking": 0.2, "running": 0.28}.get(action or "", 0.05)
        for x in (stride, -stride):
            pen.line([(0.35 * x, low + 0.1), (x, 0.03)], 0.035, feet)
            pen.line([(x - 0.04, 0.02), (x + 0.09, 0.02)], 0.035, feet)
    tilt = -8.0 if down else 8.0 if aloft else shape.tilt
    if action in ("walking", "running"):  # the head goes forward
        tilt -= 16.0
    spot = _turned(tilt, (0.0, low + 0.25))

    def trace(text: str) -> list[Point]:
        return [spot(x, y) for x, y in path(text)]

    if aloft:
        pen.poly(trace(".12,.1 -.02,.52 -.3,.66 -.22,.1"), shade(coat, 0.78))
    pen.poly(trace(shape.tail), shade(coat, 0.75))
    pen.blob(trace(shape.trunk), coat, patterned=True)
    if down:
        head = (0.48, 0.24)
    elif duck:
        head = spot(0.38, 0.2 if aloft else 0.44)
    else:
        head = spot(0.36, 0.12 if aloft else 0.2)
    if duck:
        pen.limb([spot(0.24, 0.05), head], 0.15, coat)
    bill = [(head[0] + x, head[1] + y - (0.6 * x if down else 0)) for x, y in path(shape.bill)]
    pen.poly(bill, BEAK)
    pen.oval(*head, shape.size, 0.95 * shape.size, coat)
    eye = DARK if sum(coat) > 200 else PALE
    pen.oval(head[0] + 0.05, head[1] + 0.03, 0.03, 0.03, eye, outline=False)
    if aloft:
        pen.poly(trace(".14,.06 -.12,.5 -.5,.72 -.36,.3 -.2,0"), shade(coat, 0.9), patterned=True)
    else:
        pen.blob(trace(shape.wing), shade(coat, 0.82), patterned=True)
    if afloat:
        for x, y in path("-.4,.03 .05,-.01 .42,.04"):
            pen.line([(x - 0.17, y), (x, y + 0.035), (x + 0.17, y)], 0.03, (232, 244, 250))
