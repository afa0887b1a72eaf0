"""Sampling of scenes: what goes with what, where it stands, which relations hold.

Everything is drawn from a seed, so the same seed gives the same scene. Spatial relations are never
chosen: `derive_relations` reads them off the positions, by the boxes that the drawing uses.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from itertools import count, permutations
from typing import TypeVar

import numpy as np

from mmlib.world import habits, schema
from mmlib.world.schema import GROUP_OF, Scene, Thing, box, height

T = TypeVar("T")
SPLITS = ("train", "val", "test", "backbone")
_PER_SPLIT, _PER_LIST = 10**10, 10**7  # seeds of a split, and of one list of a split
_DROP = 0.25  # a sitting person's seat above the feet, as a fraction of the standing height
_STEP = 0.004  # a rider stands this much nearer than the mount, so that it is drawn after it


def pick(rng: np.random.Generator, options: Sequence[T]) -> T:
    """One of `options`, each equally likely."""
    return options[int(rng.random() * len(options))]


def pick_weighted(rng: np.random.Generator, weights: dict[T, float]) -> T:
    """One key of `weights`, as likely as its weight."""
    remaining = rng.random() * sum(weights.values())
    for option, weight in weights.items():
        remaining -= weight
        if remaining < 0:
            return option
    return option


def actions_in(kind: str, setting: str) -> tuple[str | None, ...]:
    """What something of this kind can be doing in this setting, by itself; (None,) if nothing."""
    swims = setting in schema.WATER or kind != "duck"
    return tuple(a for a in habits.ABLE[kind] if swims or a != "floating") or (None,)


# --- Relations from positions ---------------------------------------------------------------------


def derive_relations(
    things: Sequence[Thing], action_relations: Iterable[tuple[int, str, int]] = ()
) -> tuple[tuple[int, str, int], ...]:
    """All relations that hold between things at these positions, sorted.

    left of / right of: the centre of each lies beyond the other's edge, 0.08 apart at least.
    behind / in front of: the boxes overlap by 0.015 both ways and the depths differ by 0.05.
    on: resting at seat height of the other, over it. Riding is a way of being on.
    under: below what rests on it, below a tree's crown or an open umbrella.
    near: at most 0.05 between the boxes and 0.15 in depth; also whatever touches (on, under,
    holding). The rules in `mmlib.world.logic` rely on these definitions.
    """
    relations: set[tuple[int, str, int]] = set(action_relations)
    relations |= {(i, "on", j) for i, name, j in relations if name == "riding"}
    boxes = [box(item) for item in things]
    for i, j in permutations(range(len(things)), 2):
        a, b, box_a, box_b = things[i], things[j], boxes[i], boxes[j]
        gap_x = max(box_a[0], box_b[0]) - min(box_a[2], box_b[2])
        gap_y = max(box_a[1], box_b[1]) - min(box_a[3], box_b[3])
        if a.x < box_b[0] and box_a[2] < b.x and b.x - a.x >= 0.08:
            relations |= {(i, "left of", j), (j, "right of", i)}
        if gap_x <= -0.015 and gap_y <= -0.015 and b.y - a.y >= 0.05:
            relations |= {(i, "behind", j), (j, "in front of", i)}
        rests = b.kind in habits.SEAT and abs(a.y - b.y) <= 0.01
        if rests and abs(a.x - b.x) <= 0.4 * (box_b[2] - box_b[0]):
            if abs(a.lift - _seat_lift(a, b)) <= 0.01:
                relations.add((i, "on", j))
        below = b.kind in ("tree", "umbrella") and abs(a.y - b.y) <= 0.02
        if below and abs(a.x - b.x) <= 0.38 * (box_b[2] - box_b[0]):
            head, feet = box_a[1], box_a[3]
            if b.kind == "tree":
                sheltered = a.lift < 0.06 and feet - head <= 0.6 * (box_b[3] - box_b[1])
            else:
                sheltered = box_b[1] < head and (head + feet) / 2 > box_b[3] > head - 0.05
            if sheltered:
                relations.add((i, "under", j))
        if gap_x <= 0.05 and gap_y <= 0.05 and abs(a.y - b.y) <= 0.15:
            relations.add((i, "near", j))
    relations |= {(j, "under", i) for i, name, j in relations if name == "on"}
    touching = {(i, j) for i, name, j in relations if name in ("on", "under", "holding")}
    relations |= {(i, "near", j) for i, j in touching} | {(j, "near", i) for i, j in touching}
    return tuple(sorted(relations))


def _seat_lift(guest: Thing, host: Thing) -> float:
    """How far the lower edge of `guest` is lifted when it rests on `host`."""
    lift = host.lift + habits.SEAT[host.kind] * height(host)
    if GROUP_OF[guest.kind] == "person" and guest.action == "sitting":
        lift -= _DROP * height(guest)
    return max(lift, 0.0)


# --- Placing --------------------------------------------------------------------------------------


def new_thing(rng: np.random.Generator, kind: str, action: str | None = None) -> Thing:
    """A thing of a kind with random looks, not placed yet."""
    patterns = habits.PATTERNED[kind] if rng.random() < 0.45 else ()
    return Thing(
        kind=kind,
        colour=pick(rng, habits.PALETTE[kind]),
        size=pick_weighted(rng, habits.SIZE_WEIGHT),
        pattern=pick(rng, patterns) if patterns else "plain",
        action=action,
        x=0.5,
        y=0.8,
        facing=1 if rng.random() < 0.5 else -1,
    )


def _depths(kind: str, action: str | None, setting: str) -> tuple[float, float]:
    """Nearest and farthest ground point that make sense."""
    group = GROUP_OF[kind]
    shore = schema.WATER[setting][1] + 0.02 if setting in schema.WATER else 0.52
    if kind == "boat" or (kind == "duck" and action == "floating"):
        return 0.52, schema.WATER[setting][1] - 0.03
    if setting in schema.ROAD:
        start, end = schema.ROAD[setting]
        if group == "vehicle" and kind != "bicycle":
            return start + 0.05, end - 0.03
        return (start - 0.06, start - 0.01) if group == "building" else (end + 0.02, 0.96)
    if group == "building":
        return shore, max(shore + 0.04, 0.6)
    if group == "vehicle" or kind in ("tree", "cactus", "lamp"):
        return shore, 0.82
    return (max(shore, 0.68), 0.96) if group in ("thing", "plant") else (max(shore, 0.6), 0.95)


def _stand(rng: np.random.Generator, item: Thing, setting: str) -> Thing:
    """The thing at a random place that suits it, in the air if it flies or jumps."""
    low, high = _depths(item.kind, item.action, setting)
    if setting in schema.ROAD and GROUP_OF[item.kind] not in ("vehicle", "building"):
        if rng.random() < 0.35:  # on the far pavement
            low, high = schema.ROAD[setting][0] - 0.06, schema.ROAD[setting][0] - 0.01
    airborne = item.action == "flying" or item.kind == "balloon"
    if airborne:
        low, high = 0.62, 0.8
    y = low + (high - low) * rng.random()
    lift = 0.0
    if airborne:
        lift = y - _sky(rng, _moved(item, y=y))
    elif item.action == "jumping":
        lift = 0.035 + 0.03 * rng.random()
    item = _moved(item, y=y, lift=lift)
    left, _, right, _ = box(item)
    half = min((right - left) / 2 + 0.01, 0.5)
    return _moved(item, x=half + (1 - 2 * half) * rng.random())  # wholly inside the picture


def _sky(rng: np.random.Generator, item: Thing) -> float:
    """A lower edge in the sky for something in the air."""
    lowest = max(schema.HORIZON - 0.06, height(item) + 0.05)
    highest = height(item) + 0.03
    return highest + (lowest - highest) * rng.random()


def _moved(item: Thing, **changes: float | int) -> Thing:
    """`dataclasses.replace`, without its checks: a scene is tried hundreds of times."""
    new = object.__new__(Thing)
    new.__dict__.update(item.__dict__, **changes)
    return new


def _place_pair(
    rng: np.random.Generator, relation: str, a: Thing, b: Thing, setting: str
) -> tuple[Thing, Thing]:
    """Both things placed so that a stands in `relation` to b."""
    if relation == "riding" or relation == "on":
        b = _stand(rng, b, setting)
        left, _, right, _ = box(b)
        spare = 0.0 if relation == "riding" or b.kind in ("house", "barn") else 0.2
        x = b.x + spare * (right - left) * (2 * rng.random() - 1)
        y = b.y - _STEP if b.kind == "boat" else b.y + _STEP
        a = _moved(a, x=x, y=y, facing=b.facing if relation == "riding" else a.facing)
        return _moved(a, lift=_seat_lift(a, b)), b
    if relation == "under":
        b = _stand(rng, b, setting)
        left, _, right, _ = box(b)
        return _moved(a, x=b.x + 0.3 * (right - left) * (2 * rng.random() - 1), y=b.y + 0.015), b
    a = _stand(rng, a, setting)
    if relation == "holding":
        return a, _hand(rng, a, b)
    left, _, right, _ = box(a)  # chasing: both face the same way, the chased one ahead
    b = _moved(b, facing=a.facing, y=min(a.y + 0.02 * rng.random(), 0.96))
    b_left, _, b_right, _ = box(b)
    ahead = (right - left + b_right - b_left) / 2 + 0.04 + 0.1 * rng.random()
    return a, _moved(b, x=a.x + a.facing * ahead)


def _hand(rng: np.random.Generator, holder: Thing, held: Thing) -> Thing:
    """The held thing where the holder's hand, or the string, would have it."""
    tall, side = height(holder), holder.facing
    floor = box(holder)[1]  # the top of the head
    held = _moved(held, y=holder.y + _STEP / 2, facing=side)
    size = height(held)
    if held.kind == "kite":
        edge = min(_sky(rng, held), floor - 0.02)
        x = holder.x + side * (0.12 + 0.16 * rng.random())
    elif held.kind == "balloon":
        edge = floor - 0.02 - 0.04 * rng.random()
        x = holder.x + side * (0.25 * tall + 0.03 * rng.random())
    elif held.kind == "umbrella":
        edge, x = floor + min(0.38 * tall, 0.55 * size), holder.x + side * 0.1 * tall
    else:
        reach = 0.22 * tall + size * schema.SHAPE[held.kind][1] / 2
        edge = holder.y - holder.lift - 0.45 * tall * (0.6 if holder.action == "sitting" else 1)
        x = holder.x + side * reach
        edge += size / 2 if held.kind != "flower" else 0.0
    return _moved(held, x=x, lift=holder.y + _STEP / 2 - edge)


def _pair(rng: np.random.Generator, relation: str, *kinds: str) -> tuple[Thing, Thing]:
    """Two things, not yet placed, that can stand in the relation."""
    pair = []
    for kind, role in zip(kinds, habits.ROLES[relation], strict=True):
        able = (*habits.ABLE[kind], habits.ONLY_PAIRED.get(kind))
        actions = [action for action in able if action in role.split()]
        pair.append(new_thing(rng, kind, pick(rng, actions) if actions else None))
    a, b = pair
    if relation == "holding" and b.kind in ("ball", "box", "flower") and b.size == "large":
        b = replace(b, size="medium")
    return a, b


def hidden(things: Sequence[Thing]) -> float:
    """The largest part of any thing's box that nearer boxes cover (their overlaps summed)."""
    worst = 0.0
    boxes = [(item.y, *box(item)) for item in things]
    for y, left, top, right, bottom in boxes:
        covered = 0.0
        for nearer_y, *nearer in boxes:
            if nearer_y > y:
                wide = min(right, nearer[2]) - max(left, nearer[0])
                high = min(bottom, nearer[3]) - max(top, nearer[1])
                covered += max(wide, 0.0) * max(high, 0.0)
        worst = max(worst, covered / ((right - left) * (bottom - top)))
    return worst


def _fits(things: Sequence[Thing], limit: float) -> bool:
    for left, top, right, bottom in map(box, things):
        if left < -0.01 or right > 1.01 or top < -0.02 or bottom > 1.0:
            return False
    return hidden(things) <= limit


# --- Sampling -------------------------------------------------------------------------------------


def sample_scene(seed: int) -> Scene:
    """The scene of a seed: a setting, a style and 1 to 5 things that go together.

    It belongs to the split that has the seed (see `split_seeds`): no scene of one split occurs in
    another, even by chance. Raises ValueError for a seed that is no split's.
    """
    if not 0 <= seed < _PER_SPLIT * len(SPLITS):
        raise ValueError(f"scene seed {seed} belongs to no split: take one from split_seeds")
    split = SPLITS[seed // _PER_SPLIT]
    for attempt in count():
        scene = into_split(_sample(np.random.default_rng([seed, 1, attempt]), seed), split)
        if scene is not None and scene.things:
            return scene
    raise AssertionError("unreachable")


def into_split(scene: Scene, split: str) -> Scene | None:
    """The scene, moved sideways a little so that its content belongs to `split`.

    A small shift changes the coarse positions and so the split. None where no shift does it.
    Relations are derived anew; only those of action are taken from `scene`.
    """
    boxes = [box(item) for item in scene.things]
    for shift in (0.02 * step for step in (0, 1, -1, 2, -2, 3, -3, 4, -4, 5, -5)):
        inside = all(b[0] + shift >= -0.01 and b[2] + shift <= 1.01 for b in boxes)
        if inside and split_of(scene, shift) == split:
            things = tuple(replace(t, x=t.x + shift) for t in scene.things)
            relations = derive_relations(things, action_relations(scene))
            return replace(scene, things=things, relations=relations)
    return None


def compose(
    rng: np.random.Generator, setting: str, style: str, cast: Sequence[Thing],
    ties: Sequence[tuple[int, str, int]] = (), fixed: int = 0, most_hidden: float = 0.35,
) -> Scene | None:  # fmt: skip
    """A scene of these things, placed so that the `ties` hold; None where 60 tries fail.

    cast: things whose places are ignored, but for the first `fixed` ones, which keep theirs.
    ties: (i, relation, j) with a relation of action, "on" or "under"; each thing in one at most.
    most_hidden: the largest part of any thing that others may cover (`hidden`).
    """
    for _ in range(60):
        things = list(cast)
        tied = {k for i, _, j in ties for k in (i, j)}
        for i, relation, j in ties:
            things[i], things[j] = _place_pair(rng, relation, things[i], things[j], setting)
        for i in range(fixed, len(things)):
            if i not in tied:
                things[i] = _stand(rng, things[i], setting)
        if not _fits(things, most_hidden):
            continue
        relations = derive_relations(things, [t for t in ties if t[1] in schema.ACTION_RELATIONS])
        if set(ties) <= set(relations):
            return Scene(tuple(things), relations, setting, style, int(rng.integers(2**31)))
    return None


def _sample(rng: np.random.Generator, seed: int) -> Scene:
    """A scene with its relations of action only; it may be empty where nothing fitted."""
    setting, style = pick(rng, schema.SETTINGS), pick_weighted(rng, habits.STYLE_WEIGHT)
    number = pick_weighted(rng, habits.COUNT_WEIGHT)
    limit = pick(rng, (0.1, 0.3, 0.5))  # some scenes are open, some crowded
    things: list[Thing] = []
    acting: list[tuple[int, str, int]] = []
    for _ in range(4 * number):
        if len(things) == number:
            break
        relation = pick_weighted(rng, habits.PAIR_WEIGHT)
        pairs = _pairs_in(setting, relation)
        paired = len(things) + 2 <= number and rng.random() < 0.5 and pairs
        kinds = pick_weighted(rng, pairs) if paired else (_kind(rng, setting),)
        for _ in range(6):
            if paired:
                new = [*_place_pair(rng, relation, *_pair(rng, relation, *kinds), setting)]
            else:
                action = pick(rng, actions_in(kinds[0], setting))
                new = [_stand(rng, new_thing(rng, kinds[0], action), setting)]
            if _fits([*things, *new], limit):
                if paired and relation in schema.ACTION_RELATIONS:
                    acting.append((len(things), relation, len(things) + 1))
                things += new
                break
    return Scene(tuple(things), tuple(acting), setting, style, seed)


def _kind(rng: np.random.Generator, setting: str) -> str:
    while True:  # some settings have no plant or no building of ours
        group = pick_weighted(rng, habits.GROUP_WEIGHT)
        kinds = [kind for kind in schema.GROUPS[group] if kind in habits.HABITAT[setting]]
        if kinds:
            return pick_weighted(rng, {kind: habits.KIND_WEIGHT.get(kind, 1.0) for kind in kinds})


@cache
def _pairs_in(setting: str, relation: str) -> dict[tuple[str, str], float]:
    """The possible pairs, weighted so that each second kind is equally likely."""
    kinds = habits.HABITAT[setting]
    table = habits.PAIRS[relation]
    pairs = [(first, second) for first in table for second in table[first]
             if first in kinds and second in kinds]  # fmt: skip
    seconds = [second for _, second in pairs]
    return {pair: 1 / seconds.count(pair[1]) for pair in pairs}


# --- Consistency, identity, splits ----------------------------------------------------------------


def check_scene(scene: Scene) -> None:
    """Raise ValueError where a scene breaks what the rest of the world relies on.

    That is: relations equal to the derived ones, riders sit, chasers run, only people ride and
    hold.
    """

    def need(holds: bool, message: str) -> None:
        if not holds:
            raise ValueError(f"scene {scene.seed}: {message}")

    acting = action_relations(scene)
    derived = derive_relations(scene.things, acting)
    need(scene.relations == derived, "relations differ from derive_relations")
    for i, relation, j in acting:
        first = scene.things[i]
        need(i != j, f"{first.kind} is {relation} itself")
        if relation == "chasing":
            need(first.action == "running", f"the chasing {first.kind} does not run")
        else:
            need(first.kind in habits.PEOPLE, f"a {first.kind} cannot be {relation} something")
        if relation == "riding":
            need(first.action == "sitting", f"the riding {first.kind} does not sit")


def action_relations(scene: Scene) -> tuple[tuple[int, str, int], ...]:
    """The relations that were chosen, not derived."""
    return tuple(edge for edge in scene.relations if edge[1] in schema.ACTION_RELATIONS)


def scene_key(scene: Scene, shift: float = 0.0) -> tuple:
    """All discrete facts and coarse positions (tenths), whatever the order of the things.

    Two scenes with one key would make the same picture but for drawing noise. With `shift`, the
    key of the scene moved that far to the right.
    """
    facts = []
    for t in scene.things:
        position = (round(10 * (t.x + shift)), round(10 * t.y), round(10 * t.lift))
        facts.append((t.kind, t.colour, t.size, t.pattern, t.action or "", t.facing, *position))
    acts = sorted((facts[i], relation, facts[j]) for i, relation, j in action_relations(scene))
    return scene.setting, scene.style, tuple(sorted(facts)), tuple(acts)


def split_of(scene: Scene, shift: float = 0.0) -> str:
    """The one split that may hold this scene, decided by a hash of its content (its key)."""
    text = repr(scene_key(scene, shift)).encode()
    return SPLITS[hashlib.blake2b(text, digest_size=1).digest()[0] % len(SPLITS)]


def split_seeds(split: str, n: int, seed: int = 0) -> tuple[int, ...]:
    """n seeds for `sample_scene` that belong to `split` ("train", "val", "test", "backbone").

    Seeds and scenes are disjoint between splits; the seeds also between values of `seed`
    (0 to 999). A longer list begins with the shorter one.
    """
    if split not in SPLITS:
        raise ValueError(f"split {split!r} is not one of {', '.join(SPLITS)}")
    if not 0 <= seed < _PER_SPLIT // _PER_LIST or not 0 <= n <= _PER_LIST:
        raise ValueError(f"seed {seed} or n {n} is outside 0 to 999 or 0 to {_PER_LIST}")
    start = SPLITS.index(split) * _PER_SPLIT + seed * _PER_LIST
    return tuple(range(start, start + n))
