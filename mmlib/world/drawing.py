"""Scenes as pictures: drawn with Pillow, far to near, in one of four styles."""

from functools import lru_cache
from math import hypot
from random import Random

import numpy as np
from PIL import Image, ImageChops, ImageFilter

from mmlib.world.backdrops import LIGHT, Brush, backdrop, snowflakes
from mmlib.world.figures import draw_figure
from mmlib.world.pen import PALETTE, PENCIL, Look, Pen, Point, mix, path, shade
from mmlib.world.schema import GROUP_OF, SHAPE, WATER, Scene, Thing, height

ARM = 0.29  # a stretched arm, as a fraction of the standing height


def draw(scene: Scene, size: int = 128) -> Image.Image:
    """Draw a scene: an RGB picture, `size` pixels a side.

    The same scene and size always give the same bytes; what the scene leaves open (clouds, hair,
    proportions, shades, noise) follows from `scene.seed`. In the style "black and white" colours
    cannot be seen, as in life; in "sketch" they are a light wash.
    """
    side = size * (3 if size <= 160 else 2)
    random = Random(scene.seed * 7919 + 17)
    style = "photo" if scene.style == "black and white" else scene.style
    brush = backdrop(scene.setting, style, side, random)
    if scene.style in ("photo", "black and white"):
        _grain_of_ground(brush, scene.setting)
    far_to_near = sorted(range(len(scene.things)), key=lambda i: (scene.things[i].y, i))
    for index in far_to_near:
        _shadow(brush, scene.things[index], scene.setting)
    for index in far_to_near:
        _draw_thing(brush, scene, index)
    if scene.setting == "snow":
        snowflakes(brush)
    return _develop(brush.image, scene.style, size, scene.seed)


def _partner(scene: Scene, index: int, relation: str, as_subject: bool) -> Thing | None:
    """The other thing of the first such relation, if there is one."""
    for i, name, j in scene.relations:
        if name == relation and index == (i if as_subject else j):
            return scene.things[j if as_subject else i]
    return None


def _grasp(holder: Thing, held: Thing) -> Point:
    """The holder's hand, as a fraction of the side: on the thing or at the end of its string."""
    tall, up = height(holder), 1 - held.y + held.lift
    x, y = held.x, up
    if held.kind in ("ball", "box"):
        x -= holder.facing * 0.32 * height(held)
        y += 0.35 * height(held)
    y += {"umbrella": 0.08, "flower": 0.2}.get(held.kind, 0) * height(held)
    low = 0.1 if holder.action == "sitting" else 0.38
    shoulder = (holder.x, 1 - holder.y + holder.lift + (low + 0.34) * tall)
    dx, dy = x - shoulder[0], y - shoulder[1]
    share = min(1.0, ARM * tall / max(hypot(dx, dy), 1e-6))
    return shoulder[0] + share * dx, shoulder[1] + share * dy


def _draw_thing(brush: Brush, scene: Scene, index: int) -> None:
    """Draw one thing, with what its relations to others change: a hand that reaches, a string."""
    item, side, style = scene.things[index], brush.side, scene.style
    unit = height(item) * side
    person = GROUP_OF[item.kind] == "person"
    seated = person and item.action == "sitting"
    if seated:
        unit *= 0.93  # so that a seated figure fills the height that the geometry gives it
    chance = Random(scene.seed * 31 + index * 7907 + 5)
    numbers = [chance.random() for _ in range(24)]
    red, green, blue = (
        min(255, max(0, value + int((n - 0.5) * 26)))
        for value, n in zip(PALETTE[item.colour], numbers[-3:], strict=True)
    )
    pattern = item.pattern
    if pattern == "striped" and person:
        pattern = "across"
    half = max(0.75, 0.75 * SHAPE[item.kind][1] + 0.35)
    look = Look((red, green, blue), pattern, style, side / 200)
    pen = Pen(look, unit, half, item.facing, numbers)

    action, reach = item.action, None
    if seated and not _partner(scene, index, "on", as_subject=True):
        pen.blob(path("-.2,0 -.19,.17 -.04,.235 .12,.2 .17,0"), (142, 138, 134))  # a stone
    if _partner(scene, index, "riding", as_subject=True):
        action = "riding"
    held = _partner(scene, index, "holding", as_subject=True)
    if held:
        x, y = _grasp(item, held)
        reach = (
            item.facing * (x - item.x) * side / unit,
            (y - 1 + item.y - item.lift) * side / unit,
        )
    holder = _partner(scene, index, "holding", as_subject=False)
    if holder and item.kind in ("kite", "balloon"):
        x, y = _grasp(holder, item)
        end = (item.x, item.y - item.lift)
        if item.kind == "kite":
            end = (end[0] - holder.facing * 0.06 * unit / side, end[1] - 0.28 * unit / side)
        brush.line([(x, 1 - y), end], 0.006, mix(PENCIL, (255, 255, 255), 0.3))
    draw_figure(pen, item.kind, action, reach)
    left, top = round(item.x * side), round((item.y - item.lift) * side)
    _paste(brush, pen, (left - pen.origin_x, top - pen.origin_y))


def _paste(brush: Brush, pen: Pen, corner: tuple[int, int]) -> None:
    """Put a drawn thing into the picture, with light from the top left."""
    used = pen.layer.getbbox()
    if not used:
        return
    reach = max(2, min(used[2] - used[0], used[3] - used[1]) // 5)
    # A rim as wide as the shading's reach, for the shifted copies below wrap round.
    layer = pen.layer.crop((used[0] - reach, used[1] - reach, used[2] + reach, used[3] + reach))
    at = (corner[0] + used[0] - reach, corner[1] + used[1] - reach)
    alpha = layer.getchannel("A")
    brush.image.paste(layer, at, alpha)
    if pen.style == "flat":
        return
    small = alpha.reduce(4)
    blur = ImageFilter.BoxBlur(reach * small.width / layer.width)
    soft = small.filter(blur).resize(layer.size, Image.Resampling.BILINEAR)
    move = reach // 2
    dark = ImageChops.subtract(alpha, ImageChops.offset(soft, -move, -move), 2.6)
    if pen.style == "sketch":
        side = 512 if max(layer.size) <= 512 else 2048
        strokes = _hatching(side, brush.hair).crop((0, 0, *layer.size))
        brush.image.paste(PENCIL, at, ImageChops.darker(ImageChops.add(dark, dark), strokes))
        return
    light = ImageChops.subtract(alpha, ImageChops.offset(soft, move, move), 3.2)
    brush.image.paste((24, 20, 40), at, dark)
    brush.image.paste((255, 252, 236), at, light)


@lru_cache(maxsize=4)
def _hatching(side: int, hair: int) -> Image.Image:
    """Diagonal pencil strokes."""
    rows, columns = np.mgrid[0:side, 0:side]
    return Image.fromarray((((rows + columns) % (5 * hair + 1) < hair + 1) * 190).astype(np.uint8))


def _shadow(brush: Brush, item: Thing, setting: str) -> None:
    """A soft patch on the ground below the thing; weaker the higher it hangs."""
    if brush.style == "sketch":
        return
    side, tall = brush.side, height(item)
    floats = item.action == "floating" and item.y < WATER.get(setting, (0, 0))[1]
    if item.kind == "boat" or floats:
        return
    wide = 0.42 * tall * SHAPE[item.kind][1]
    if GROUP_OF[item.kind] == "person" and item.action == "lying":
        wide *= 2.1
    strength = max(0.0, 0.38 - 0.9 * item.lift)
    if strength < 0.05:
        return
    box = (
        int((item.x - wide) * side),
        int((item.y - 0.13 * wide - 0.008) * side),
        int((item.x + wide * 1.12) * side),
        int((item.y + 0.13 * wide + 0.008) * side),
    )
    extent = box[2] - box[0], box[3] - box[1]
    if min(extent) < 2:
        return
    hard = brush.style == "flat"
    mask = _blot(int((strength if hard else 1.35 * strength) * 16) * 16, hard)
    brush.image.paste((40, 36, 52), box[:2], mask.resize(extent))


@lru_cache(maxsize=512)
def _blot(level: int, hard: bool) -> Image.Image:
    """A round patch, 0 at its edge."""
    rows, columns = np.mgrid[-1:1:33j, -1:1:33j]
    fall = 1 - np.hypot(rows, columns)
    mask = (fall > 0) * 0.7 if hard else np.clip(1.6 * fall, 0, 1)
    return Image.fromarray((mask * level).astype(np.uint8))


@lru_cache(maxsize=16)
def _clumps(variant: int, side: int) -> Image.Image:
    """A mask of uneven ground: nothing at the horizon, more towards the front."""
    rng = np.random.default_rng([variant, 77])
    total = np.zeros((side, side), np.float32)
    for cells, weight in ((10, 0.5), (34, 0.7), (72, 0.9)):
        noise = Image.fromarray(rng.random((cells * 2, cells), dtype=np.float32))
        total += weight * np.asarray(noise.resize((side, side), Image.Resampling.BICUBIC))
    total = (total - total.mean()) / total.std()
    nearness = np.clip(np.linspace(-1.7, 1.6, side, dtype=np.float32), 0, 1)[:, None]
    return Image.fromarray((np.clip(0.5 + 0.3 * total, 0, 1) * nearness * 70).astype(np.uint8))


def _grain_of_ground(brush: Brush, setting: str) -> None:
    """Uneven ground: darker clumps, more of them in front."""
    side, top = brush.side, int(0.52 * brush.side)
    mask = _clumps(brush.random.randrange(4), side).crop((0, top, side, side))
    brush.image.paste(shade(LIGHT[setting][3], 0.62), (0, top), mask)


@lru_cache(maxsize=4)
def _vignette(size: int) -> np.ndarray:
    """(size, size, 1) falling brightness towards the corners."""
    rows, columns = np.mgrid[-1 : 1 : size * 1j, -1 : 1 : size * 1j]
    return (1 - 0.08 * (rows**2 + columns**2) ** 1.2)[:, :, None].astype(np.float32)


@lru_cache(maxsize=2)
def _noise_field(size: int) -> np.ndarray:
    """(size + 64, size + 64, 3) normal noise, from which each picture takes its own window."""
    return np.random.default_rng(size).standard_normal((size + 64, size + 64, 3), dtype=np.float32)


def _develop(image: Image.Image, style: str, size: int, seed: int) -> Image.Image:
    """From the large canvas to the picture: scaled down, with the style's light and noise."""
    small = image.reduce(image.width // size)
    if style == "flat":
        return small
    rng = np.random.default_rng([seed, 3])
    row, column = rng.integers(0, 64, 2)
    noise = _noise_field(size)[row : row + size, column : column + size]
    pixels = np.asarray(small, dtype=np.float32)
    if style == "sketch":
        paper = pixels + 3.5 * noise[:, :, :1]
        return Image.fromarray(np.clip(paper, 0, 255).astype(np.uint8))
    soft = pixels.copy()  # a lens is never quite sharp
    soft[1:, 1:] = 0.65 * pixels[1:, 1:] + 0.35 * pixels[:-1, :-1]
    exposure = np.float32(rng.uniform(0.94, 1.12))
    if style == "photo":
        cast = rng.uniform(0.96, 1.04, 3).astype(np.float32) * exposure
        soft = soft * (cast * _vignette(size)) + 5 * noise
        return Image.fromarray(np.clip(soft, 0, 255).astype(np.uint8))
    grey: np.ndarray = np.zeros(soft.shape[:2], np.float32)
    for channel, weight in enumerate(np.array((0.3, 0.59, 0.11), np.float32)):  # BLAS may round
        grey = (np.float64(weight) * soft[:, :, channel] + grey).astype(np.float32)  # otherwise
    grey = ((grey - 128) * np.float32(rng.uniform(1.0, 1.2)) + 132) * exposure
    grey = grey * _vignette(size)[:, :, 0] + 5.5 * noise[:, :, 0]
    return Image.fromarray(np.clip(grey, 0, 255).astype(np.uint8)).convert("RGB")
