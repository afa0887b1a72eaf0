"""Families of scenes that structure alone tells apart: the same things, bound otherwise."""

from dataclasses import replace
from itertools import count

import numpy as np

from mmlib.world.habits import PALETTE, PATTERNED
from mmlib.world.scenes import action_relations, compose, into_split, sample_scene, scene_key
from mmlib.world.schema import Scene, Thing

_TRIES = 40  # for each sibling


def family(seed: int, split: str, size: int) -> tuple[Scene, ...]:
    """A scene of at least two things and `size` - 1 siblings of it, all of the split.

    Siblings share setting, style, kinds, actions, who rides, holds or chases whom, and the colours
    and patterns that occur, but not which thing has them, nor where things stand. seed: as of
    `sample_scene`.
    """
    for attempt in count():
        rng = np.random.default_rng([seed, 2, attempt])
        first = sample_scene(seed + attempt * 10**6)
        found, known = [first], {scene_key(first)}
        for _ in range(_TRIES * (size - 1)):
            if len(first.things) < 2 or len(found) == size:
                break
            made = sibling(first, rng)
            made = into_split(made, split) if made else None
            if made and scene_key(made) not in known:
                found.append(made)
                known.add(scene_key(made))
        if len(found) == size:
            return tuple(found)
    raise AssertionError("unreachable")


def sibling(scene: Scene, rng: np.random.Generator) -> Scene | None:
    """The same things with colours and patterns exchanged, placed anew; None where it fails."""
    things = list(scene.things)
    for name, usual in (("colour", PALETTE), ("pattern", PATTERNED)):
        values = [getattr(thing, name) for thing in things]
        for i, j in enumerate(rng.permutation(len(things))):
            a, b = values[i], values[j]
            if _may(things[i], name, b, usual) and _may(things[j], name, a, usual):
                values[i], values[j] = b, a
                things[i], things[j] = (replace(things[k], **{name: values[k]}) for k in (i, j))
    return compose(rng, scene.setting, scene.style, things, action_relations(scene))


def _may(thing: Thing, name: str, value: str, usual: dict) -> bool:
    return value in usual.get(thing.kind, ()) or (name == "pattern" and value == "plain")
