"""Men, women, boys and girls, in every pose."""

from dataclasses import dataclass
from math import cos, radians, sin

from mmlib.core.paths import table_beside
from mmlib.world.pen import DARK, RGB, WOOD, Pen, Point, around, colours, mix, shade, step

_LOOKS = table_beside(__file__)
SKINS, HAIRS, TROUSERS = (colours(_LOOKS[name]) for name in ("skins", "hairs", "trousers"))


@dataclass(frozen=True)
class Pose:
    """Angles of (thigh, shin) and (upper arm, forearm), far side then near; the trunk's lean."""

    legs: tuple[tuple[float, float], tuple[float, float]]
    arms: tuple[tuple[float, float], tuple[float, float]]
    lean: float = 0.0


POSES = {action: Pose(**angles) for action, angles in _LOOKS["poses"].items()}


@dataclass(frozen=True)
class Build:
    """Proportions, as fractions of the standing height."""

    adult: bool
    female: bool
    head: float
    bone: float
    trunk: float
    width: float


BUILDS = {kind: Build(**build) for kind, build in _LOOKS["builds"].items()}


def person(pen: Pen, action: str | None, build: Build, reach: Point | None = None) -> None:
    """One person; `reach` is where the near hand holds something."""
    skin, hair, trousers = pen.pick(SKINS), pen.pick(HAIRS), pen.pick(TROUSERS)
    shoe = shade(pen.pick(HAIRS), 0.7)
    pose = POSES.get(action or "standing", POSES["standing"])
    width, lean, ground = build.width * pen.vary(0.92, 1.08), radians(pose.lean), 0.035
    if action == "lying":
        pen.turn(90, 0.5, 0.11 if not build.female else 0.13 if build.adult else 0.15)
        ground = 0.0
    drop = max(build.bone * (cos(radians(a)) + cos(radians(b))) for a, b in pose.legs)
    hip = (0.0, drop + ground)
    chest = (hip[0] + build.trunk * sin(lean), hip[1] + build.trunk * cos(lean))
    face = (chest[0] + 0.25 * build.head * sin(lean), chest[1] + 0.92 * build.head + 0.02)
    shoulder = (chest[0] - 0.72 * width, chest[1] - 0.04)

    _arm(pen, (chest[0] + 0.5 * width, chest[1] - 0.045), pose.arms[0], skin, 0.8)
    paints = skin, trousers, shoe
    knees = [_leg(pen, build, hip, width, pose.legs[i], i == 0, paints) for i in (0, 1)]
    if build.female:  # a skirt
        ((far_x, far_y), (near_x, near_y)), (x, y) = knees, hip
        if action in ("sitting", "riding"):  # it lies on the thighs
            hem = [(far_x + 0.02, far_y + 0.05), (near_x + 0.03, near_y - 0.065)]
            hem += [(x - 0.9 * width, y - 0.07)]
        else:
            hem = [(max(far_x, x + width) + 0.045, min(far_y, y - 0.06))]
            hem += [(min(near_x, x - width) - 0.055, min(near_y, y - 0.06))]
        band = [(x - 0.72 * width, y + 0.07), (x + 0.72 * width, y + 0.07)]
        pen.poly([*band, *hem], pen.main, patterned=True)
    middle = (0.55 * hip[0] + 0.45 * chest[0], 0.55 * hip[1] + 0.45 * chest[1])
    waist = (0.68 if build.female else 0.86) * width
    right = [(chest[0] + 0.55 * width, chest[1]), (chest[0] + width, chest[1] - 0.05)]
    right += [(middle[0] + waist, middle[1]), (hip[0] + 0.84 * width, hip[1] - 0.015)]
    left = [(hip[0] - 0.84 * width, hip[1] - 0.015), (middle[0] - waist, middle[1])]
    left += [(chest[0] - width, chest[1] - 0.05), (chest[0] - 0.55 * width, chest[1])]
    pen.poly(right + left, pen.main, patterned=True)
    pen.limb([chest, face], 0.055, shade(skin, 0.9))
    _head(pen, build, face, skin, hair)
    if reach is not None:
        _reaching_arm(pen, (shoulder[0] + width, shoulder[1]), reach, skin)
        return
    hand = _arm(pen, shoulder, pose.arms[1], skin, 0.92)
    if action == "eating":  # an apple at the mouth, and the hand that holds it
        x, y = face[0] + 0.6 * build.head, face[1] - 0.5 * build.head
        pen.oval(x + 0.05, y, 0.055, 0.052, (206, 52, 44))
        pen.line([(x + 0.05, y + 0.04), (x + 0.06, y + 0.08)], 0.02, WOOD)
        pen.limb([hand, (x + 0.045, y - 0.05)], 0.045, skin)


def _leg(
    pen: Pen, build: Build, hip: Point, width: float, angles: tuple[float, float], far: bool,
    paints: tuple[RGB, RGB, RGB],
) -> Point:  # fmt: skip
    """Draw one leg; where its knee is."""
    (thigh, shin), (skin, trousers, shoe) = angles, paints
    top = (hip[0] + (0.25 if far else -0.25) * width, hip[1] + 0.01)
    knee = step(top, thigh, build.bone)
    foot = step(knee, shin, build.bone)
    cloth = shade(trousers, 0.82 if far else 1.0)
    if build.female:
        pen.limb([top, knee, foot], 0.055, skin)
    elif build.adult:
        pen.limb([top, knee, foot], 0.082, cloth)
    else:  # shorts
        pen.limb([knee, foot], 0.06, skin)
        pen.limb([top, step(top, thigh, 0.8 * build.bone)], 0.1, cloth)
    toe = shin + 90 if shin < -60 else min(shin + 90, 100)
    pen.limb([foot, step(foot, toe, 0.06)], 0.05, shoe)
    return knee


def _arm(pen: Pen, top: Point, angles: tuple[float, float], skin: RGB, sleeve: float) -> Point:
    """Draw one arm; where its hand is."""
    elbow = step(top, angles[0], 0.155)
    hand = step(elbow, angles[1], 0.14)
    pen.limb([elbow, hand], 0.045, skin)
    pen.limb([top, elbow], 0.068, shade(pen.main, sleeve))
    pen.oval(*hand, 0.03, 0.03, skin)
    return hand


def _reaching_arm(pen: Pen, top: Point, reach: Point, skin: RGB) -> None:
    """An arm stretched to `reach`, with a bent elbow where that is near."""
    dx, dy = reach[0] - top[0], reach[1] - top[1]
    distance = max((dx * dx + dy * dy) ** 0.5, 1e-6)
    bend = max(0.0, 0.15**2 - (distance / 2) ** 2) ** 0.5
    elbow = (top[0] + dx / 2 + bend * dy / distance, top[1] + dy / 2 - bend * dx / distance)
    pen.limb([elbow, reach], 0.045, skin)
    pen.limb([top, elbow], 0.068, shade(pen.main, 0.92))
    pen.oval(*reach, 0.034, 0.034, skin)


def _head(pen: Pen, build: Build, face: Point, skin: RGB, hair: RGB) -> None:
    x, y = face
    r = build.head
    if build.female and build.adult:
        pen.blob(around(x, y, r, "-1,.4 -.2,1.15 .8,.6 .5,-1.2 -.5,-2 -1.25,-1.6"), hair)
    elif build.female:  # pigtails
        for side in (-1.15, 1.15):
            pen.oval(x + side * r, y - 0.1 * r, 0.36 * r, 0.6 * r, hair)
    pen.oval(x, y, 0.95 * r, r, skin)
    fringe = "-1.02,-.1 -.8,.8 0,1.14 .8,.78 .92,.2 .3,.52 -.55,.4"
    pen.poly(around(x, y, r, fringe), hair)
    if not build.adult and not build.female:  # a cap with its peak forward
        cap = "-1.02,.3 -.75,.95 0,1.18 .75,.95 1,.45 1.6,.32 1,.25"
        pen.poly(around(x, y, r, cap), mix(pen.main, (250, 250, 250), 0.25))
    for side in (0.1, 0.62):
        pen.oval(x + side * r, y + 0.02 * r, 0.1 * r, 0.13 * r, DARK, outline=False)
    if build.adult and not build.female and pen.chance() < 0.35:  # a beard
        pen.blob(around(x, y, r, "-.5,-.3 .85,-.3 .7,-.9 .1,-1.15 -.4,-.8"), hair)
    pen.line(around(x, y, r, ".15,-.42 .4,-.5 .62,-.4"), 0.13 * r, (150, 52, 52))
