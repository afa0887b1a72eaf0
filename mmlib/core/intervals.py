"""A statistic of items with its 95 % interval by bootstrap."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Estimate:
    """An effect and its 95 % interval."""

    effect: float
    low: float
    high: float


def bootstrap_interval(
    statistic: Callable[[np.ndarray], float],
    clusters: Sequence | np.ndarray,
    draws: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> Estimate:
    """A statistic of items with its percentile interval over resampled clusters.

    statistic: item indices -> number; clusters: one name an item. Draws that give no number (for
    example because a resample is constant) are left out.
    """
    names, member = np.unique(np.asarray(clusters), return_inverse=True)
    items = [np.flatnonzero(member == c) for c in range(len(names))]
    rng = np.random.default_rng(seed)

    def draw() -> float:
        drawn = rng.integers(len(names), size=len(names))
        return statistic(np.concatenate([items[c] for c in drawn]))

    low, high = np.nanquantile([draw() for _ in range(draws)], [(1 - level) / 2, (1 + level) / 2])
    return Estimate(float(statistic(np.arange(len(member)))), float(low), float(high))
