"""Families of scenes that structure alone tells apart: the same things, bound otherwise."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, count

import numpy as np

from mmlib.world.habits import PALETTE, PATTERNED
from mmlib.world.scenes import (
    action_relations,
    compose,
    into_split,
    pick,
    sample_scene,
    scene_key,
)
from mmlib.world.schema import COLOURS, Scene, Thing

_TRIES = 40  # for each sibling


def family(seed: int, split: str, size: int) -> tuple[Scene, ...]:
    """A scene of at least two things and `size` - 1 siblings of it, all of the split.

    Siblings share setting, style, kinds, actions, who rides, holds or chases whom, and the colours,
    patterns and sizes that occur, but not which thing has them, nor where things stand. seed: as
    of `sample_scene`.
    """
    for attempt in count():
        rng = np.random.default_rng([seed, 2, attempt])
        first = sample_scene(seed + attempt * 10**6)
        scenes = {scene_key(first): first}
        for _ in range(_TRIES * (size - 1)):
            if len(first.things) < 2 or len(scenes) == size:
                break
            candidate = sibling(first, rng)
            candidate = into_split(candidate, split) if candidate else None
            if candidate:
                scenes.setdefault(scene_key(candidate), candidate)
        if len(scenes) == size:
            return tuple(scenes.values())
    raise AssertionError("unreachable")


def sibling(scene: Scene, rng: np.random.Generator) -> Scene | None:
    """The same things, placed anew, of which two have exchanged their colours, two their patterns
    and two their sizes, where the world has such things; None where no place is found.
    """
    items, ties = list(scene.things), action_relations(scene)
    held = _held(ties)
    for name, usual in (("colour", PALETTE), ("pattern", PATTERNED), ("size", {})):
        free = [k for k in range(len(items)) if name != "size" or k not in held]
        pairs = [
            (i, j) for i, j in combinations(free, 2)
            if getattr(items[i], name) != getattr(items[j], name)
            and _may(items[i], getattr(items[j], name), usual)
            and _may(items[j], getattr(items[i], name), usual)
        ]  # fmt: skip
        if pairs:
            i, j = pick(rng, pairs)
            first, second = getattr(items[i], name), getattr(items[j], name)
            items[i] = replace(items[i], **{name: second})
            items[j] = replace(items[j], **{name: first})
    return compose(rng, scene.setting, scene.style, items, ties)


def clear_family(seed: int, split: str, size: int) -> tuple[Scene, ...]:
    """As `family`, but easy to see: large plain things, hardly hidden, none black and white.

    A scene has at least as many things as the family has scenes, 2 to 5, all of different kinds and
    colours, which may be any of the world's. From sibling to sibling every colour moves on by one
    thing, so no two scenes have a thing alike.
    """
    for attempt in count():
        rng = np.random.default_rng([seed, 4, attempt])
        first = sample_scene(seed + attempt * 10**6)
        kinds = {item.kind for item in first.things}
        if not size <= len(kinds) == len(first.things) or first.style == "black and white":
            continue
        colours = [COLOURS[i] for i in rng.permutation(len(COLOURS))[: len(kinds)]]
        ties = action_relations(first)
        sizes = ["medium" if i in _held(ties) else "large" for i in range(len(kinds))]
        scenes: list[Scene] = []
        while len(scenes) < size:
            moved_on = colours[len(scenes) :] + colours[: len(scenes)]
            cast = [
                replace(item, colour=colour, pattern="plain", size=item_size)
                for item, colour, item_size in zip(first.things, moved_on, sizes, strict=True)
            ]
            for _ in range(_TRIES):
                placed = compose(rng, first.setting, first.style, cast, ties, most_hidden=0.15)
                if scene := into_split(placed, split) if placed else None:
                    scenes.append(scene)
                    break
            else:
                break
        else:
            return tuple(scenes)
    raise AssertionError("unreachable")


def _held(ties: Sequence[tuple[int, str, int]]) -> set[int]:
    """The things that someone holds, which are not large."""
    return {j for _, relation, j in ties if relation == "holding"}


def _may(item: Thing, value: str, usual: Mapping[str, Sequence[str]]) -> bool:
    """Whether a thing may have this value, where `usual` lists those of its kind."""
    return not usual or value == "plain" or value in usual[item.kind]
