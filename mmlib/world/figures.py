"""How each kind of thing is drawn: one function a kind or family, in the thing's own coordinates.

Every figure stands on (0, 0), looks to the right and is about 1 unit high when it stands.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import cos, radians, sin

from mmlib.world.pen import RGB, Pen, Point, mix, shade

DARK: RGB = (48, 44, 50)
STEEL: RGB = (150, 156, 164)
GLASS: RGB = (178, 214, 232)
WOOD: RGB = (150, 104, 62)
SKINS: tuple[RGB, ...] = ((247, 212, 180), (232, 186, 148), (196, 142, 100), (142, 94, 62))
HAIRS: tuple[RGB, ...] = (
    (52, 38, 32),
    (96, 60, 34),
    (196, 148, 72),
    (146, 70, 34),
    (150, 146, 144),
)
CLOTH: tuple[RGB, ...] = ((62, 74, 106), (88, 84, 80), (112, 98, 78), (54, 60, 62))


def step(start: Point, angle: float, length: float) -> Point:
    """The end of a bone that hangs from `start`; angle in degrees, 0 down, 90 forward."""
    return start[0] + length * sin(radians(angle)), start[1] - length * cos(radians(angle))


def pick(pen: Pen, choices: tuple[RGB, ...]) -> RGB:
    """One of the colours, by the thing's own chance."""
    return choices[int(pen.chance() * len(choices)) % len(choices)]


# People ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pose:
    """Angles (thigh, shin) and (upper arm, forearm) of the far and the near side; trunk's lean."""

    legs: tuple[tuple[float, float], tuple[float, float]]
    arms: tuple[tuple[float, float], tuple[float, float]]
    lean: float = 0.0
    air: float = 0.0


POSES = {
    "standing": Pose(((9, 3), (-9, -3)), ((24, 10), (-26, -12))),
    "walking": Pose(((28, 10), (-20, -34)), ((-28, -14), (30, 48)), 4),
    "running": Pose(((66, -12), (-34, -98)), ((-58, 24), (52, 128)), 14, 0.03),
    "jumping": Pose(((46, -38), (-30, -76)), ((138, 156), (-138, -156)), 0, 0.0),
    "sitting": Pose(((78, 4), (68, -2)), ((34, 66), (26, 62)), -4),
    "riding": Pose(((52, -10), (46, -14)), ((46, 74), (40, 70)), 6),
    "eating": Pose(((9, 3), (-9, -3)), ((30, 12), (28, 148))),
}


def person(
    pen: Pen,
    action: str | None,
    reach: Point | None = None,
    adult: bool = True,
    female: bool = False,
    **_: object,
) -> None:
    """A man, woman, boy or girl; `reach`: where the near hand holds something."""
    skin, hair, trousers = pick(pen, SKINS), pick(pen, HAIRS), pick(pen, CLOTH)
    pose = POSES.get(action or "standing", POSES["standing"])
    if action == "lying":
        pen.turn(90, 0.5, 0.11)
        pose = Pose(((4, 2), (14, -6)), ((20, 40), (60, 130)))
    head = 0.105 if adult else 0.142
    bone = 0.225 if adult else 0.19
    trunk = 0.29 if adult else 0.27
    width = (0.105 if adult else 0.11) * pen.vary(0.92, 1.1)
    drop = max(bone * (cos(radians(a)) + cos(radians(b))) for a, b in pose.legs)
    base = 0.0 if action == "lying" else 0.035 + pose.air
    hip = (-0.02 if action == "sitting" else 0.0, drop + base)
    chest = (hip[0] + trunk * sin(radians(pose.lean)), hip[1] + trunk * cos(radians(pose.lean)))
    face = (chest[0] + 0.25 * head * sin(radians(pose.lean)), chest[1] + 0.92 * head + 0.02)
    shoe = shade(pick(pen, HAIRS), 0.7)

    _arm(pen, (chest[0] + 0.5 * width, chest[1] - 0.045), pose.arms[0], skin, shade(pen.main, 0.8))
    knees = []
    for side, (thigh, shin) in enumerate(pose.legs):
        top = (hip[0] + (0.25 if side == 0 else -0.25) * width, hip[1] + 0.01)
        knee = step(top, thigh, bone)
        foot = step(knee, shin, bone)
        knees.append(knee)
        cloth = shade(trousers, 0.82 if side == 0 else 1.0)
        if female:
            pen.limb([top, knee, foot], 0.055, skin)
        elif not adult:  # shorts
            pen.limb([knee, foot], 0.06, skin)
            pen.limb([top, step(top, thigh, 0.8 * bone)], 0.1, cloth)
        else:
            pen.limb([top, knee, foot], 0.082, cloth)
        toe = shin + 90
        pen.limb([foot, step(foot, min(toe, 100) if shin > -60 else toe, 0.06)], 0.05, shoe)
    if female:
        far, near = knees
        low = 0.35 * far[1] + 0.65 * hip[1] if action in ("sitting", "riding") else far[1]
        left = min(near[0], hip[0] - width) - 0.055
        right = max(far[0], hip[0] + width) + 0.045
        pen.poly(
            [
                (hip[0] - 0.72 * width, hip[1] + 0.07),
                (hip[0] + 0.72 * width, hip[1] + 0.07),
                (right, min(low, hip[1] - 0.06)),
                (left, min(near[1], hip[1] - 0.06) if low == far[1] else low - 0.06),
            ],
            pen.main,
            patterned=True,
        )
    _trunk(pen, hip, chest, width, female)
    pen.limb([chest, face], 0.055, shade(skin, 0.9))
    _head(pen, face, head, skin, hair, adult, female)
    shoulder = (chest[0] - 0.72 * width, chest[1] - 0.04)
    if reach is not None:
        _reaching_arm(pen, (shoulder[0] + width, shoulder[1]), reach, skin)
    else:
        hand = _arm(pen, shoulder, pose.arms[1], skin, shade(pen.main, 0.92))
        if action == "eating":
            mouth = (face[0] + 0.6 * head, face[1] - 0.5 * head)
            pen.oval(mouth[0] + 0.05, mouth[1], 0.052, 0.05, (206, 52, 44))
            pen.line(
                [(mouth[0] + 0.05, mouth[1] + 0.04), (mouth[0] + 0.06, mouth[1] + 0.075)],
                0.02,
                WOOD,
            )
            pen.oval(mouth[0] + 0.045, mouth[1] - 0.05, 0.028, 0.028, skin)
            pen.limb([hand, (mouth[0] + 0.045, mouth[1] - 0.05)], 0.045, skin)


def _trunk(pen: Pen, hip: Point, chest: Point, width: float, female: bool) -> None:
    waist = 0.68 if female else 0.86
    middle = (0.55 * hip[0] + 0.45 * chest[0], 0.55 * hip[1] + 0.45 * chest[1])
    pen.poly(
        [
            (hip[0] - 0.84 * width, hip[1] - 0.015),
            (middle[0] - waist * width, middle[1]),
            (chest[0] - width, chest[1] - 0.05),
            (chest[0] - 0.55 * width, chest[1]),
            (chest[0] + 0.55 * width, chest[1]),
            (chest[0] + width, chest[1] - 0.05),
            (middle[0] + waist * width, middle[1]),
            (hip[0] + 0.84 * width, hip[1] - 0.015),
        ],
        pen.main,
        patterned=True,
    )


def _arm(pen: Pen, top: Point, angles: tuple[float, float], skin: RGB, sleeve: RGB) -> Point:
    elbow = step(top, angles[0], 0.155)
    hand = step(elbow, angles[1], 0.14)
    pen.limb([elbow, hand], 0.045, skin)
    pen.limb([top, elbow], 0.068, sleeve)
    pen.oval(hand[0], hand[1], 0.03, 0.03, skin)
    return hand


def _reaching_arm(pen: Pen, top: Point, reach: Point, skin: RGB) -> None:
    """An arm stretched to `reach`, with a bent elbow where that is near."""
    dx, dy = reach[0] - top[0], reach[1] - top[1]
    distance = max((dx * dx + dy * dy) ** 0.5, 1e-6)
    bend = max(0.0, 0.15**2 - (distance / 2) ** 2) ** 0.5
    elbow = (top[0] + dx / 2 + bend * dy / distance, top[1] + dy / 2 - bend * dx / distance)
    pen.limb([elbow, reach], 0.045, skin)
    pen.limb([top, elbow], 0.068, shade(pen.main, 0.92))
    pen.oval(reach[0], reach[1], 0.034, 0.034, skin)


def _head(pen: Pen, face: Point, r: float, skin: RGB, hair: RGB, adult: bool, female: bool) -> None:
    x, y = face
    if female and adult:  # long hair behind
        pen.blob(
            [(x - 1.0 * r, y + 0.4 * r), (x - 0.2 * r, y + 1.15 * r), (x + 0.8 * r, y + 0.6 * r),
             (x + 0.5 * r, y - 1.2 * r), (x - 0.5 * r, y - 2.0 * r), (x - 1.25 * r, y - 1.6 * r)],
            hair,
        )  # fmt: skip
    elif female:  # pigtails
        for side in (-1.0, 1.0):
            pen.oval(x + side * 1.15 * r, y - 0.1 * r, 0.36 * r, 0.6 * r, hair)
    pen.oval(x, y, 0.95 * r, r, skin)
    fringe = [(x - 1.02 * r, y - 0.1 * r), (x - 0.8 * r, y + 0.8 * r), (x, y + 1.14 * r),
              (x + 0.8 * r, y + 0.78 * r), (x + 0.92 * r, y + 0.2 * r), (x + 0.3 * r, y + 0.52 * r),
              (x - 0.55 * r, y + 0.4 * r)]  # fmt: skip
    pen.poly(fringe, hair)
    if not adult and not female:  # a cap with its peak forward
        cap = mix(pen.main, (250, 250, 250), 0.25)
        pen.poly([(x - 1.02 * r, y + 0.3 * r), (x - 0.75 * r, y + 0.95 * r), (x, y + 1.18 * r),
                  (x + 0.75 * r, y + 0.95 * r), (x + 1.0 * r, y + 0.45 * r), (x + 1.6 * r, y + 0.32 * r),
                  (x + 1.0 * r, y + 0.25 * r)], cap)  # fmt: skip
    for side in (0.1, 0.62):
        pen.oval(x + side * r, y + 0.02 * r, 0.1 * r, 0.13 * r, DARK, outline=False)
    if adult and not female and pen.chance() < 0.35:  # a beard
        pen.blob([(x - 0.5 * r, y - 0.3 * r), (x + 0.85 * r, y - 0.3 * r), (x + 0.7 * r, y - 0.9 * r),
                  (x + 0.1 * r, y - 1.15 * r), (x - 0.4 * r, y - 0.8 * r)], hair)  # fmt: skip
    pen.line([(x + 0.15 * r, y - 0.42 * r), (x + 0.4 * r, y - 0.5 * r), (x + 0.62 * r, y - 0.4 * r)],
             0.13 * r, (150, 52, 52))  # fmt: skip


# Animals on four legs ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Beast:
    """Proportions of an animal on four legs, in units of its height."""

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
    face: str = "plain"


BEASTS = {
    "dog": Beast(0.74, 0.29, 0.40, 0.092, 0.20, 0.2, 48, 0.17, 0.17, "up", "flop"),
    "cat": Beast(0.72, 0.29, 0.36, 0.085, 0.15, 0.17, 48, 0.185, 0.05, "long", "point", "whiskers"),
    "horse": Beast(0.66, 0.25, 0.46, 0.07, 0.33, 0.16, 44, 0.105, 0.2, "hair", "small", "mane"),
    "sheep": Beast(0.8, 0.46, 0.3, 0.085, 0.1, 0.2, 50, 0.15, 0.12, "stub", "side", "wool"),
    "cow": Beast(0.92, 0.4, 0.36, 0.095, 0.16, 0.22, 52, 0.15, 0.16, "tuft", "side", "horns"),
}
GAITS: dict[str, tuple[tuple[float, float], ...]] = {
    # far fore, far hind, near fore, near hind: (upper, lower) angles
    "standing": ((5, 0), (3, -2), (-3, 0), (-4, -2)),
    "walking": ((30, 12), (-24, -30), (-22, -34), (24, 4)),
    "running": ((72, 44), (-62, -52), (52, 70), (-38, -74)),
    "jumping": ((66, 10), (-60, -66), (52, -10), (-48, -60)),
    "lying": ((64, 96), (70, 96), (58, 96), (60, 96)),
}


def beast(pen: Pen, action: str | None, shape: Beast, **_: object) -> None:
    """A dog, cat, horse, sheep or cow."""
    coat, far = pen.main, shade(pen.main, 0.74)
    gait = GAITS.get(action or "standing", GAITS["standing"])
    length, girth, leg = shape.length * pen.vary(0.94, 1.08), shape.girth, shape.leg
    tilt = {"jumping": 17.0, "sitting": 46.0, "running": 3.0}.get(action or "", 0.0)
    height = leg + 0.4 * girth
    if action == "lying":
        height = 0.5 * girth + 0.01
    elif action == "running":
        height = 0.88 * leg + 0.4 * girth
    elif action == "sitting":
        height = 0.36 * girth + 0.5 * length * sin(radians(tilt)) + 0.08

    def body(x: float, y: float) -> Point:
        a = radians(tilt)
        return x * cos(a) - y * sin(a), height + x * sin(a) + y * cos(a)

    half, thick = 0.5 * length, 0.5 * girth
    fore, hind = (
        body(half - 0.13 * length, -0.25 * girth),
        body(-half + 0.12 * length, -0.2 * girth),
    )
    _tail(pen, shape, body(-half + 0.02, 0.55 * thick), action)
    for index in (0, 1):
        _beast_leg(pen, (fore, hind)[index], gait[index], shape, far, action, index, 0.05)

    if shape.face == "wool":
        _wool(pen, body, half, thick)
    else:
        outline = [(-half, 0.55 * thick), (-0.45 * half, 0.88 * thick), (0.2 * half, 0.84 * thick),
                   (0.85 * half, 1.0 * thick), (1.06 * half, 0.1 * thick), (0.72 * half, -0.95 * thick),
                   (-0.1 * half, -0.85 * thick), (-0.62 * half, -0.78 * thick),
                   (-1.02 * half, -0.3 * thick)]  # fmt: skip
        pen.blob([body(x, y) for x, y in outline], coat, patterned=True)
    if action == "sitting":
        pen.oval(
            hind[0] + 0.06, 0.2 * girth + 0.06, 0.24 * length, 0.42 * girth, coat, patterned=True
        )
    for index in (2, 3):
        _beast_leg(pen, (fore, hind)[index - 2], gait[index], shape, coat, action, index, -0.035)

    angle = shape.neck_angle - 0.35 * tilt
    if action == "eating":
        angle = 146.0
    elif action == "running":
        angle += 14
    root = body(half - 0.1 * length, 0.42 * thick)
    reach = shape.neck
    if action == "eating":  # the mouth comes down to the grass
        reach = max(shape.neck, (root[1] - 0.72 * shape.muzzle - 0.06) / 0.83)
    top = (root[0] + reach * sin(radians(angle)), root[1] + reach * cos(radians(angle)))
    if action == "eating":
        _fodder(pen, top[0] + 0.35 * shape.muzzle)
    neck_colour = shade(coat, 0.96)
    if shape.face == "wool":
        pen.limb([root, top], shape.neck_width, neck_colour)
    else:
        pen.limb([root, top], shape.neck_width, neck_colour, patterned=shape.face == "mane")
    _beast_head(pen, top, shape, coat, action == "eating", root)


def _wool(pen: Pen, body: Callable[[float, float], Point], half: float, thick: float) -> None:
    bumps = [(0.95, 0.0), (0.72, 0.6), (0.3, 0.85), (-0.2, 0.85), (-0.66, 0.62), (-0.98, 0.05),
             (-0.72, -0.55), (-0.25, -0.78), (0.25, -0.78), (0.7, -0.58)]  # fmt: skip
    for x, y in bumps:
        pen.oval(*body(x * half, y * thick), 0.1, 0.1, pen.main)
    pen.blob(
        [body(1.0 * x * half, 1.0 * y * thick) for x, y in bumps], pen.main, True, outline=False
    )


def _beast_leg(
    pen: Pen,
    top: Point,
    angles: tuple[float, float],
    shape: Beast,
    colour: RGB,
    action: str | None,
    index: int,
    offset: float,
) -> None:
    fore, width = index % 2 == 0, shape.bone
    start = (top[0] + offset, top[1])
    if action == "sitting":
        if fore:
            pen.limb([start, (start[0] + 0.02, 0.5 * width)], width, colour)
            pen.limb(
                [(start[0] + 0.02, 0.5 * width), (start[0] + 0.07, 0.45 * width)], width, colour
            )
        else:
            foot = (start[0] + 0.05, 0.5 * width)
            pen.limb([foot, (foot[0] + 0.2, foot[1])], width, colour)
        return
    if action == "lying":
        foot = (start[0] + (0.26 if fore else 0.2), 0.5 * width + 0.005)
        pen.limb([start, (start[0] + 0.03, foot[1]), foot], width, colour)
        return
    half = (
        0.5 * (top[1] - 0.5 * width) if action in (None, "standing", "eating") else 0.5 * shape.leg
    )
    knee = step(start, angles[0], half)
    foot = step(knee, angles[1], half)
    pen.limb([start, knee], width * 1.22, colour)
    pen.limb([knee, foot], width, colour)
    if shape.face in ("mane", "horns", "wool"):  # hooves
        pen.limb([foot, step(foot, angles[1], 0.02)], width, DARK)


def _tail(pen: Pen, shape: Beast, root: Point, action: str | None) -> None:
    x, y = root
    coat = shade(pen.main, 0.88)
    if action == "sitting":
        y = max(0.12, y - 0.12)
    if shape.tail == "up":
        lift = 0.2 if action in ("running", "jumping") else 0.26
        pen.limb([(x + 0.02, y), (x - 0.1, y + 0.4 * lift), (x - 0.13, y + lift)], 0.065, coat)
    elif shape.tail == "long":
        pen.limb(
            [(x + 0.03, y), (x - 0.13, y + 0.02), (x - 0.2, y + 0.17), (x - 0.13, y + 0.34)],
            0.055,
            coat,
        )
    elif shape.tail == "hair":
        sweep = -0.24 if action in ("running", "jumping") else -0.1
        pen.blob([(x + 0.03, y), (x + 0.6 * sweep, y - 0.02), (x + 1.1 * sweep, y - 0.24), (x + 0.35 * sweep, y - 0.18)],
                 shade(pen.main, 0.6))  # fmt: skip
    elif shape.tail == "tuft":
        pen.limb([(x + 0.03, y), (x - 0.06, y - 0.1), (x - 0.05, y - 0.3)], 0.035, coat)
        pen.oval(x - 0.05, y - 0.33, 0.035, 0.055, DARK)
    else:
        pen.oval(x - 0.02, y, 0.06, 0.07, coat)


def _fodder(pen: Pen, x: float) -> None:
    grass = (92, 160, 60)
    for dx, tip in ((-0.1, -0.13), (-0.04, -0.05), (0.02, 0.02), (0.08, 0.1), (0.12, 0.16)):
        pen.line([(x + dx, 0.0), (x + tip, 0.13)], 0.03, grass)


def _beast_head(pen: Pen, at: Point, shape: Beast, coat: RGB, down: bool, root: Point) -> None:
    """The head at `at`; it hangs when `down`."""
    angle = 62.0 if down else (36.0 if shape.face in ("mane", "horns") else 8.0)
    a = radians(angle)
    x, y = at
    r, muzzle = shape.head, shape.muzzle
    skin = DARK if shape.face == "wool" and sum(coat) > 300 else coat
    if shape.face == "wool" and skin is coat:
        skin = (214, 196, 176)

    def spot(forward: float, up: float) -> Point:
        return x + forward * cos(a) + up * sin(a), y - forward * sin(a) + up * cos(a)

    if shape.face == "mane":
        mane = shade(coat, 0.55)
        dx, dy = root[0] - x, root[1] - y
        back = -0.5 * shape.neck_width
        norm = (dx * dx + dy * dy) ** 0.5
        ex, ey = -dy / norm * back * -1, dx / norm * back * -1
        if ex > 0 and not down:
            ex, ey = -ex, -ey
        pen.limb([(x + 0.9 * ex, y + 0.9 * ey + 0.03), (x + 0.5 * dx + 1.15 * ex, y + 0.5 * dy + 1.15 * ey),
                  (x + 0.85 * dx + ex, y + 0.85 * dy + ey)], 0.07, mane)  # fmt: skip
    if shape.ears == "point":
        for side in (-0.62, 0.42):
            tip = spot(side * r - 0.15 * r, 1.75 * r)
            pen.poly(
                [spot(side * r - 0.42 * r, 0.5 * r), tip, spot(side * r + 0.5 * r, 0.7 * r)],
                shade(coat, 0.85),
            )
    elif shape.ears == "small":
        pen.poly([spot(-0.9 * r, 0.5 * r), spot(-0.75 * r, 1.9 * r), spot(0.0, 0.8 * r)], coat)
    if shape.face == "horns":
        for side in (-0.55, 0.35):
            pen.limb(
                [spot(side * r, 0.7 * r), spot(side * r + 0.1 * r, 1.5 * r)], 0.045, (236, 226, 200)
            )
    if muzzle > 0.1:
        tip = 0.62 * r if shape.face == "plain" else 0.66 * r
        pen.blob([spot(-0.2 * r, 0.75 * r), spot(r + 0.55 * muzzle, 0.45 * tip), spot(r + muzzle, 0.1 * tip),
                  spot(r + 0.9 * muzzle, -0.8 * tip), spot(0.5 * r, -0.95 * r), spot(-0.3 * r, -0.9 * r)], skin)  # fmt: skip
        pen.oval(*spot(0, 0), r, r, skin, outline=False)
    else:
        pen.oval(*spot(0, 0), 1.08 * r, r, skin)
        pen.oval(*spot(0.62 * r, -0.32 * r), 0.5 * r, 0.36 * r, shade(skin, 1.3), outline=False)
    if shape.face == "wool":
        pen.oval(*spot(-0.45 * r, 0.75 * r), 0.75 * r, 0.5 * r, coat)
    if shape.ears == "flop":
        pen.blob([spot(-0.55 * r, 0.8 * r), spot(0.0, 0.55 * r), spot(-0.15 * r, -0.75 * r), spot(-0.75 * r, -0.5 * r)],
                 shade(coat, 0.68))  # fmt: skip
    elif shape.ears == "side":
        pen.blob([spot(-0.35 * r, 0.5 * r), spot(-1.3 * r, 0.55 * r), spot(-1.25 * r, 0.1 * r), spot(-0.4 * r, 0.05 * r)],
                 shade(skin, 0.8))  # fmt: skip
    light = sum(skin) < 240
    eye = (240, 236, 220) if light else DARK
    pen.oval(*spot(0.35 * r, 0.22 * r), 0.13 * r + 0.008, 0.13 * r + 0.008, eye, outline=False)
    nose = (226, 160, 150) if shape.face in ("horns", "whiskers") else mix(DARK, skin, 0.1)
    end = r + 0.86 * muzzle if muzzle > 0.1 else 1.02 * r
    pen.oval(
        *spot(end, 0.0 if shape.face == "plain" else -0.15 * r), 0.035, 0.03, nose, outline=False
    )
    if shape.face == "whiskers":
        for up in (-0.1, -0.45):
            pen.line(
                [spot(0.75 * r, -0.3 * r), spot(1.55 * r, up * r)],
                0.012,
                (235, 235, 235) if light else DARK,
            )


# Birds -------------------------------------------------------------------------------------------


def bird(pen: Pen, action: str | None, duck: bool = False, **_: object) -> None:
    """A songbird, or a duck with its long neck and flat bill."""
    coat, beak = pen.main, (244, 166, 40)
    afloat, aloft = action == "floating", action in ("flying", "jumping")
    low = -0.06 if afloat else (0.02 if action in ("sitting", "lying") else 0.2)
    down = action == "eating"
    tilt = {"running": 6.0, "jumping": 20.0, "flying": 8.0}.get(action or "", 0.0 if duck else 14.0)
    if not afloat and not aloft and low > 0.1:
        stride = {"walking": 0.13, "running": 0.2}.get(action or "", 0.05)
        for x in (stride, -stride):
            pen.line([(0.35 * x, low + 0.1), (x, 0.03)], 0.035, beak)
            pen.line([(x - 0.04, 0.02), (x + 0.09, 0.02)], 0.035, beak)
    middle = low + 0.25
    a = radians(-8.0 if down else tilt)

    def spot(x: float, y: float) -> Point:
        return x * cos(a) - y * sin(a), middle + x * sin(a) + y * cos(a)

    if aloft:
        pen.poly(
            [spot(0.12, 0.1), spot(-0.02, 0.52), spot(-0.3, 0.66), spot(-0.22, 0.1)],
            shade(coat, 0.78),
        )
    pen.poly(
        [
            spot(-0.34, 0.06),
            spot(-0.66, 0.16 if duck else 0.04),
            spot(-0.6, -0.05),
            spot(-0.3, -0.12),
        ],
        shade(coat, 0.75),
    )
    pen.blob([spot(-0.44, 0.06), spot(-0.1, 0.2), spot(0.26, 0.17), spot(0.36, -0.02), spot(0.12, -0.23), spot(-0.26, -0.18)],
             coat, patterned=True)  # fmt: skip
    if down:
        head = (0.48, 0.24)
    elif duck:
        head = spot(0.38, 0.44 if not aloft else 0.2)
    else:
        head = spot(0.34, 0.26 if not aloft else 0.12)
    if duck:
        pen.limb([spot(0.24, 0.05), head], 0.15, coat)
    size = 0.135 if duck else 0.16
    tip = -0.13 if down else 0.0
    if duck:
        pen.poly([(head[0] + 0.08, head[1] + 0.05), (head[0] + 0.3, head[1] - 0.02 + tip), (head[0] + 0.29, head[1] - 0.07 + tip),
                  (head[0] + 0.06, head[1] - 0.07)], beak)  # fmt: skip
    else:
        pen.poly(
            [
                (head[0] + 0.1, head[1] + 0.06),
                (head[0] + 0.29, head[1] - 0.01 + tip),
                (head[0] + 0.1, head[1] - 0.07),
            ],
            beak,
        )
    pen.oval(*head, size, size * 0.95, coat)
    pen.oval(
        head[0] + 0.05,
        head[1] + 0.03,
        0.03,
        0.03,
        DARK if sum(coat) > 200 else (240, 240, 230),
        outline=False,
    )
    if aloft:
        pen.poly(
            [
                spot(0.14, 0.06),
                spot(-0.12, 0.5),
                spot(-0.5, 0.72),
                spot(-0.36, 0.3),
                spot(-0.2, 0.0),
            ],
            shade(coat, 0.9),
            True,
        )
    else:
        pen.blob(
            [
                spot(0.16, 0.08),
                spot(-0.1, 0.12),
                spot(-0.4, 0.0),
                spot(-0.2, -0.13),
                spot(0.05, -0.1),
            ],
            shade(coat, 0.82),
        )
    if afloat:
        for x, y in ((-0.4, -0.05), (0.05, -0.09), (0.42, -0.04)):
            pen.line([(x - 0.17, y), (x, y + 0.035), (x + 0.17, y)], 0.03, (232, 244, 250))


# Vehicles ----------------------------------------------------------------------------------------


def _wheel(pen: Pen, x: float, r: float) -> None:
    pen.oval(x, r, r, r, (40, 40, 44))
    pen.oval(x, r, 0.55 * r, 0.55 * r, (198, 202, 206), outline=False)
    pen.oval(x, r, 0.16 * r, 0.16 * r, (70, 70, 76), outline=False)


def _speed(pen: Pen, x: float, *heights: float) -> None:
    """Lines and a puff behind something that moves."""
    for i, y in enumerate(heights):
        pen.line([(x, y), (x - 0.26 - 0.1 * (i % 2), y)], 0.035, (246, 246, 246))
    for dx, dy, r in ((-0.06, 0.1, 0.07), (-0.18, 0.12, 0.09), (-0.31, 0.17, 0.065)):
        pen.oval(x + dx, dy, r, r, (226, 226, 226), outline=pen.style == "sketch")


def car(pen: Pen, action: str | None, **_: object) -> None:
    """A car from the side."""
    if action == "moving":
        _speed(pen, -1.08, 0.3, 0.48, 0.66)
    paint, roof = pen.main, pen.vary(0.92, 1.02)
    pen.blob(
        [
            (-0.68, 0.5),
            (-0.46, 0.9 * roof),
            (-0.1, 1.0 * roof),
            (0.25, 0.92 * roof),
            (0.58, 0.52),
            (0, 0.4),
        ],
        paint,
        True,
    )
    pen.poly([(-1.04, 0.2), (-1.06, 0.46), (-0.96, 0.57), (-0.3, 0.6), (0.55, 0.58), (0.92, 0.5), (1.06, 0.36), (1.06, 0.2)],
             paint, patterned=True)  # fmt: skip
    pen.poly([(-0.52, 0.6), (-0.4, 0.84 * roof), (-0.11, 0.9 * roof), (-0.11, 0.6)], GLASS)
    pen.poly([(-0.03, 0.6), (-0.03, 0.9 * roof), (0.2, 0.84 * roof), (0.44, 0.6)], GLASS)
    pen.line([(-0.07, 0.58), (-0.07, 0.26)], 0.02, shade(paint, 0.55))
    pen.oval(0.98, 0.42, 0.06, 0.065, (252, 238, 160))
    pen.oval(-1.01, 0.44, 0.045, 0.06, (200, 40, 36))
    pen.poly([(-1.1, 0.17), (-1.1, 0.24), (1.1, 0.24), (1.1, 0.17)], (96, 98, 104))
    for x in (-0.6, 0.62):
        _wheel(pen, x, 0.215)


def bus(pen: Pen, action: str | None, **_: object) -> None:
    """A bus from the side."""
    if action == "moving":
        _speed(pen, -1.08, 0.3, 0.5, 0.7)
    paint = pen.main
    pen.poly(
        [
            (-1.05, 0.13),
            (-1.07, 0.9),
            (-1.0, 0.99),
            (0.96, 0.99),
            (1.05, 0.88),
            (1.08, 0.5),
            (1.08, 0.13),
        ],
        paint,
        True,
    )
    for x in (-0.92, -0.57, -0.22, 0.13):
        pen.poly([(x, 0.56), (x, 0.85), (x + 0.28, 0.85), (x + 0.28, 0.56)], GLASS)
    pen.poly([(0.5, 0.17), (0.5, 0.85), (0.74, 0.85), (0.74, 0.17)], GLASS)
    pen.line([(0.62, 0.17), (0.62, 0.85)], 0.02, shade(paint, 0.6))
    pen.poly([(0.82, 0.52), (0.82, 0.85), (0.99, 0.85), (1.05, 0.52)], GLASS)
    pen.line([(-1.05, 0.47), (0.5, 0.47)], 0.03, shade(paint, 1.5))
    pen.oval(1.03, 0.3, 0.04, 0.05, (252, 238, 160))
    for x in (-0.66, 0.3):
        _wheel(pen, x, 0.165)


def truck(pen: Pen, action: str | None, **_: object) -> None:
    """A lorry: cab in front, load behind."""
    if action == "moving":
        _speed(pen, -1.08, 0.3, 0.5, 0.7)
    paint = pen.main
    pen.poly([(-1.05, 0.16), (-1.05, 0.28), (1.02, 0.28), (1.02, 0.16)], (84, 84, 90))
    pen.poly([(-1.06, 0.27), (-1.06, 1.0), (0.34, 1.0), (0.34, 0.27)], paint, patterned=True)
    pen.poly(
        [(0.42, 0.18), (0.42, 0.86), (0.8, 0.86), (0.97, 0.56), (1.08, 0.5), (1.08, 0.18)],
        shade(paint, 0.86),
    )
    pen.poly([(0.56, 0.55), (0.56, 0.79), (0.76, 0.79), (0.9, 0.55)], GLASS)
    pen.oval(1.03, 0.34, 0.045, 0.05, (252, 238, 160))
    for x in (-0.74, -0.34, 0.7):
        _wheel(pen, x, 0.18)


def bicycle(pen: Pen, action: str | None, **_: object) -> None:
    """A bicycle: two wheels, a frame, a saddle, a basket in its colour."""
    if action == "moving":
        _speed(pen, -0.86, 0.3, 0.5)
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
    pen.poly([(0.42, 0.62), (0.38, 0.86), (0.74, 0.86), (0.68, 0.62)], pen.main, patterned=True)
    pen.oval(*crank, 0.07, 0.07, STEEL)
    pen.limb([crank, (0.0, 0.16), (0.06, 0.16)], 0.035, DARK)


def boat(pen: Pen, action: str | None, **_: object) -> None:
    """A sailing boat."""
    cloth = (248, 246, 236)
    pen.limb([(0.0, 0.2), (0.0, 0.97)], 0.035, WOOD)
    pen.poly([(0.04, 0.3), (0.05, 0.95), (0.5, 0.34)], cloth)
    pen.poly([(-0.04, 0.32), (-0.04, 0.84), (-0.4, 0.36)], shade(pen.main, 1.35), patterned=True)
    pen.poly([(0.0, 0.93), (0.0, 1.0), (-0.17, 0.965)], (214, 60, 52))
    pen.poly([(-0.62, 0.27), (-0.48, 0.0), (0.44, 0.0), (0.68, 0.29)], pen.main, patterned=True)
    pen.limb([(-0.62, 0.265), (0.68, 0.285)], 0.035, shade(pen.main, 1.35))
    wake = (232, 244, 250)
    spread = 0.22 if action == "moving" else 0.14
    for x, y in ((-0.42, 0.0), (0.02, -0.03), (0.44, 0.0)):
        pen.line([(x - spread, y), (x, y + 0.035), (x + spread, y)], 0.03, wake)
    if action == "moving":
        for y in (0.02, 0.07):
            pen.line([(-0.95, y), (-0.6, y)], 0.03, wake)


# Plants ------------------------------------------------------------------------------------------


def tree(pen: Pen, **_: object) -> None:
    """A tree with a round crown in its colour."""
    trunk = (112, 78, 50)
    pen.poly([(-0.075, 0.0), (-0.045, 0.45), (0.045, 0.45), (0.075, 0.0)], trunk)
    pen.limb([(0.0, 0.32), (0.14, 0.5)], 0.04, trunk)
    puffs = [(0.22, 0.52), (0.27, 0.7), (0.13, 0.89), (-0.13, 0.88), (-0.28, 0.69), (-0.21, 0.5)]
    far = shade(pen.main, 0.84)
    moved = [(x * pen.vary(0.85, 1.15), y * pen.vary(0.97, 1.02)) for x, y in puffs]
    for x, y in moved:
        pen.oval(x, y, 0.135, 0.11, far)
    pen.blob(moved, pen.main, patterned=True, outline=False)
    for x, y in ((-0.1, 0.78), (0.13, 0.66), (-0.07, 0.58)):
        pen.arc(x, y, 0.08, 200, 300, shade(pen.main, 1.3))


def flower(pen: Pen, **_: object) -> None:
    """A flower: petals in its colour on a green stem with leaves."""
    stem = (66, 138, 62)
    sway = pen.vary(-0.06, 0.06)
    pen.limb([(0.0, 0.0), (0.4 * sway, 0.35), (sway, 0.7)], 0.05, stem)
    pen.blob([(0.0, 0.12), (0.16, 0.3), (0.32, 0.34), (0.2, 0.16)], stem)
    pen.blob([(0.0, 0.2), (-0.16, 0.36), (-0.3, 0.38), (-0.2, 0.22)], shade(stem, 0.85))
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


def bush(pen: Pen, **_: object) -> None:
    """A low round bush."""
    spots = [(-0.5, 0.26), (-0.36, 0.6), (-0.05, 0.82), (0.3, 0.68), (0.52, 0.3)]
    moved = [(x * pen.vary(0.9, 1.1), y * pen.vary(0.9, 1.08)) for x, y in spots]
    for x, y in moved:
        pen.oval(x, y, 0.24, 0.23, shade(pen.main, 0.84))
    pen.poly([(-0.62, 0.0), *moved, (0.62, 0.0)], pen.main, patterned=True, outline=False)
    for x, y in ((-0.25, 0.5), (0.15, 0.58), (0.02, 0.28), (0.36, 0.3)):
        pen.arc(x, y, 0.1, 200, 310, shade(pen.main, 1.35))


def cactus(pen: Pen, **_: object) -> None:
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


# Buildings ---------------------------------------------------------------------------------------


def _window(pen: Pen, x: float, y: float, w: float, h: float) -> None:
    pen.poly([(x - w, y - h), (x - w, y + h), (x + w, y + h), (x + w, y - h)], GLASS)
    pen.line([(x, y - h), (x, y + h)], 0.016, (250, 250, 246))
    pen.line([(x - w, y), (x + w, y)], 0.016, (250, 250, 246))


def house(pen: Pen, **_: object) -> None:
    """A house: walls in its colour, roof, door, windows, chimney."""
    roof = pick(pen, ((120, 62, 50), (92, 86, 92), (134, 88, 58)))
    pen.poly([(0.2, 0.7), (0.2, 0.98), (0.31, 0.98), (0.31, 0.7)], (150, 92, 78))
    pen.poly([(-0.48, 0.0), (-0.48, 0.56), (0.48, 0.56), (0.48, 0.0)], pen.main, patterned=True)
    pen.poly([(-0.58, 0.54), (-0.02, 1.0), (0.04, 1.0), (0.58, 0.54)], roof)
    pen.poly([(-0.1, 0.0), (-0.1, 0.32), (0.1, 0.32), (0.1, 0.0)], (112, 72, 46))
    pen.oval(0.06, 0.15, 0.018, 0.018, (240, 210, 90), outline=False)
    for x in (-0.29, 0.29):
        _window(pen, x, 0.33, 0.1, 0.1)
    pen.oval(0.01, 0.71, 0.075, 0.075, GLASS)


def tower(pen: Pen, **_: object) -> None:
    """A round tower with a pointed roof."""
    roof = pick(pen, ((122, 60, 52), (72, 78, 104), (96, 84, 78)))
    pen.poly([(-0.19, 0.0), (-0.155, 0.66), (0.155, 0.66), (0.19, 0.0)], pen.main, patterned=True)
    pen.poly([(-0.21, 0.64), (-0.21, 0.75), (0.21, 0.75), (0.21, 0.64)], shade(pen.main, 0.86))
    for x in (-0.15, 0.0, 0.15):
        pen.poly(
            [(x - 0.035, 0.66), (x - 0.035, 0.73), (x + 0.035, 0.73), (x + 0.035, 0.66)],
            (70, 66, 74),
        )
    pen.poly([(-0.23, 0.74), (0.0, 1.0), (0.23, 0.74)], roof)
    for x, y in ((-0.03, 0.5), (0.05, 0.33)):
        pen.poly([(x - 0.035, y - 0.05), (x - 0.035, y + 0.03), (x, y + 0.06), (x + 0.035, y + 0.03), (x + 0.035, y - 0.05)],
                 (66, 66, 84))  # fmt: skip
    pen.poly([(-0.07, 0.0), (-0.07, 0.12), (0.0, 0.17), (0.07, 0.12), (0.07, 0.0)], (104, 68, 44))


def barn(pen: Pen, **_: object) -> None:
    """A barn: broken roof line, big crossed door, hay loft."""
    white = (246, 244, 236)
    walls = [
        (-0.55, 0.0),
        (-0.55, 0.5),
        (-0.4, 0.8),
        (0.0, 0.98),
        (0.4, 0.8),
        (0.55, 0.5),
        (0.55, 0.0),
    ]
    pen.poly(walls, pen.main, patterned=True)
    pen.limb(
        [(-0.62, 0.46), (-0.43, 0.82), (0.0, 1.01), (0.43, 0.82), (0.62, 0.46)], 0.07, (96, 84, 80)
    )
    door = [(-0.24, 0.0), (-0.24, 0.44), (0.24, 0.44), (0.24, 0.0)]
    pen.poly(door, shade(pen.main, 0.66))
    for line in ([*door, door[0]], [door[0], door[2]], [door[1], door[3]]):
        pen.line(line, 0.034, white)
    pen.poly([(-0.1, 0.58), (-0.1, 0.75), (0.1, 0.75), (0.1, 0.58)], (70, 54, 46))
    pen.line([(-0.1, 0.58), (-0.1, 0.75), (0.1, 0.75), (0.1, 0.58), (-0.1, 0.58)], 0.03, white)


def tent(pen: Pen, **_: object) -> None:
    """A ridge tent with an open flap."""
    pen.poly(
        [(-0.2, 0.96), (0.42, 0.9), (0.86, 0.02), (0.2, 0.0)], shade(pen.main, 0.78), patterned=True
    )
    pen.poly([(-0.74, 0.0), (-0.2, 0.98), (0.32, 0.0)], pen.main, patterned=True)
    pen.poly([(-0.4, 0.0), (-0.2, 0.66), (0.0, 0.0)], (58, 50, 54))
    pen.poly([(0.0, 0.0), (-0.2, 0.66), (-0.03, 0.36), (0.1, 0.0)], shade(pen.main, 1.3))
    for line in ([(-0.6, 0.26), (-0.9, 0.0)], [(0.66, 0.4), (0.98, 0.02)]):
        pen.line(line, 0.02, (236, 230, 214))


# Things ------------------------------------------------------------------------------------------


def ball(pen: Pen, **_: object) -> None:
    """A ball with a light seam."""
    pen.oval(0, 0.5, 0.5, 0.5, pen.main, patterned=True)
    seam = shade(pen.main, 1.55) if sum(pen.main) < 600 else shade(pen.main, 0.7)
    pen.arc(-0.42, 0.5, 0.55, 300, 420, seam)
    pen.arc(0.55, 0.5, 0.5, 130, 230, seam)
    pen.oval(-0.17, 0.72, 0.1, 0.08, shade(pen.main, 1.7), outline=False)


def kite(pen: Pen, **_: object) -> None:
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


def umbrella(pen: Pen, **_: object) -> None:
    """An open umbrella on its stick."""
    pen.limb([(0.0, 0.95), (0.0, 0.08), (0.04, 0.03), (0.09, 0.05)], 0.03, (92, 70, 54))
    dome = [(0.5 * cos(radians(a)), 0.58 + 0.37 * sin(radians(a))) for a in range(0, 181, 15)]
    scallop = [(-0.33, 0.635), (-0.17, 0.575), (0.0, 0.635), (0.17, 0.575), (0.33, 0.635)]
    pen.poly([*dome, *scallop], pen.main, patterned=True)
    for x in (-0.17, 0.17):
        pen.line([(x, 0.58), (0.45 * x, 0.8), (0.0, 0.95)], 0.016, shade(pen.main, 0.65))
    pen.limb([(0.0, 0.94), (0.0, 1.0)], 0.03, (92, 70, 54))


def bench(pen: Pen, **_: object) -> None:
    """A park bench, seen from the front."""
    for x in (-0.78, 0.78):
        pen.limb([(x, 0.42), (x, 0.02)], 0.09, (70, 70, 76))
        pen.limb([(x, 0.42), (x * 0.96, 0.95)], 0.07, (70, 70, 76))
    for y in (0.6, 0.82):
        pen.poly(
            [(-0.98, y), (-0.98, y + 0.15), (0.98, y + 0.15), (0.98, y)], pen.main, patterned=True
        )
    pen.poly(
        [(-0.98, 0.48), (0.98, 0.48), (1.06, 0.34), (-1.06, 0.34)],
        shade(pen.main, 0.9),
        patterned=True,
    )


def box(pen: Pen, **_: object) -> None:
    """A closed box."""
    pen.poly([(-0.55, 0.78), (-0.38, 1.0), (0.6, 1.0), (0.45, 0.78)], shade(pen.main, 1.3))
    pen.poly([(0.45, 0.0), (0.45, 0.78), (0.6, 1.0), (0.6, 0.2)], shade(pen.main, 0.7))
    pen.poly([(-0.55, 0.0), (-0.55, 0.78), (0.45, 0.78), (0.45, 0.0)], pen.main, patterned=True)
    tape = mix(pen.main, (236, 214, 160), 0.75)
    pen.poly(
        [(-0.12, 0.5), (-0.12, 0.78), (0.06, 1.0), (0.2, 1.0), (0.03, 0.78), (0.03, 0.5)], tape
    )


def balloon(pen: Pen, **_: object) -> None:
    """A balloon on its string."""
    pen.line([(0.0, 0.44), (0.03, 0.3), (-0.03, 0.16), (0.0, 0.0)], 0.016, (110, 104, 104))
    pen.poly([(-0.05, 0.4), (0.05, 0.4), (0.0, 0.48)], shade(pen.main, 0.8))
    pen.blob([(0.0, 0.45), (0.2, 0.58), (0.255, 0.77), (0.14, 0.95), (0.0, 1.0), (-0.14, 0.95), (-0.255, 0.77), (-0.2, 0.58)],
             pen.main, patterned=True)  # fmt: skip
    pen.oval(-0.1, 0.84, 0.05, 0.065, shade(pen.main, 1.65), outline=False)


def chair(pen: Pen, **_: object) -> None:
    """A kitchen chair, seen from the side."""
    wood = shade(pen.main, 0.8)
    for x0, x1 in ((-0.2, -0.16), (0.32, 0.3)):
        pen.limb([(x0, 0.48), (x1, 0.03)], 0.065, shade(wood, 0.8))
    pen.poly([(-0.36, 0.46), (-0.42, 0.98), (-0.2, 1.0), (-0.16, 0.46)], pen.main, patterned=True)
    pen.poly([(-0.38, 0.42), (-0.3, 0.56), (0.42, 0.56), (0.38, 0.42)], pen.main, patterned=True)
    for x0, x1 in ((-0.33, -0.36), (0.24, 0.22)):
        pen.limb([(x0, 0.44), (x1, 0.03)], 0.065, wood)


def lamp(pen: Pen, **_: object) -> None:
    """A street lamp with a shade in its colour."""
    post = (72, 74, 80)
    pen.oval(0.0, 0.76, 0.26, 0.14, (255, 240, 170), outline=False)
    pen.limb([(0.0, 0.03), (0.0, 0.8)], 0.05, post)
    pen.poly([(-0.12, 0.0), (-0.07, 0.07), (0.07, 0.07), (0.12, 0.0)], post)
    pen.oval(0.0, 0.75, 0.09, 0.06, (255, 250, 214))
    pen.poly([(-0.24, 0.76), (-0.1, 0.97), (0.1, 0.97), (0.24, 0.76)], pen.main, patterned=True)
    pen.limb([(0.0, 0.97), (0.0, 1.0)], 0.04, post)


FIGURES: dict[str, Callable[..., None]] = {
    "man": person,
    "woman": partial(person, female=True),
    "boy": partial(person, adult=False),
    "girl": partial(person, adult=False, female=True),
    **{kind: partial(beast, shape=shape) for kind, shape in BEASTS.items()},
    "bird": bird,
    "duck": partial(bird, duck=True),
    "car": car,
    "bus": bus,
    "bicycle": bicycle,
    "boat": boat,
    "truck": truck,
    "tree": tree,
    "flower": flower,
    "bush": bush,
    "cactus": cactus,
    "house": house,
    "tower": tower,
    "barn": barn,
    "tent": tent,
    "ball": ball,
    "kite": kite,
    "umbrella": umbrella,
    "bench": bench,
    "box": box,
    "balloon": balloon,
    "chair": chair,
    "lamp": lamp,
}
