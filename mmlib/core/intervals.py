"""Effects with their 95 % intervals: over seeds and items, over values, by bootstrap."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats


@dataclass(frozen=True)
class Estimate:
    """An effect and its 95 % interval."""

    effect: float
    low: float
    high: float

    def times(self, factor: float) -> "Estimate":
        """In another unit; raises ValueError for a factor that is not positive."""
        if factor <= 0:
            raise ValueError(f"a unit is a positive factor, not {factor}")
        return Estimate(self.effect * factor, self.low * factor, self.high * factor)

    def minus(self, other: "Estimate | float") -> "Estimate":
        """The difference to a constant, or to an independent estimate.

        The interval of the latter is MOVER's (Zou and Donner, Statistics in Medicine, 2008).
        """
        if not isinstance(other, Estimate):
            return Estimate(self.effect - other, self.low - other, self.high - other)
        effect = self.effect - other.effect
        down = np.hypot(self.effect - self.low, other.high - other.effect)
        up = np.hypot(self.high - self.effect, other.effect - other.low)
        return Estimate(effect, float(effect - down), float(effect + up))


def crossed_interval(
    values: np.ndarray, clusters: Sequence | np.ndarray, level: float = 0.95
) -> Estimate:
    """Mean of values (seeds, items) with an interval over both seeds and items.

    clusters: one name an item; items of one cluster are not independent and count together.
    Seeds and clusters are crossed random effects: the variance of the mean is taken from the mean
    squares of the two-way table, the degrees of freedom are Satterthwaite's. A few seeds thus cost
    what a few seeds should. With one seed the interval is over clusters only.
    """
    values = np.atleast_2d(np.asarray(values, dtype=float))
    mean = float(values.mean())
    names, member = np.unique(np.asarray(clusters), return_inverse=True)
    seeds, count = len(values), len(names)
    if count < 2:
        raise ValueError("an interval over items needs at least two clusters")
    # Cluster sums, linearised, so that clusters of unequal size still average to the mean.
    table = np.zeros((seeds, count))
    np.add.at(table.T, member, (values - mean).T)
    table *= count / values.shape[1]
    ms_items = seeds * table.mean(0).var(ddof=1)
    if seeds == 1:
        variance, freedom = ms_items / count, count - 1.0
    else:
        ms_seeds = count * table.mean(1).var(ddof=1)
        rest = table - table.mean(0) - table.mean(1)[:, None] + table.mean()
        ms_rest = (rest**2).sum() / ((seeds - 1) * (count - 1))
        both = max(ms_seeds + ms_items - ms_rest, ms_seeds, ms_items)
        variance = both / (seeds * count)
        parts = (
            ms_seeds**2 / (seeds - 1)
            + ms_items**2 / (count - 1)
            + ms_rest**2 / ((seeds - 1) * (count - 1))
        )
        freedom = max(both**2 / parts, 1.0) if parts else 1.0
    half = float(stats.t.ppf((1 + level) / 2, freedom) * np.sqrt(variance))
    return Estimate(mean, mean - half, mean + half)


def mean_interval(values: np.ndarray, level: float = 0.95) -> Estimate:
    """Mean of independent values with Student's interval. Raises ValueError for fewer than two."""
    if len(values) < 2:
        raise ValueError("an interval needs at least two values")
    mean = float(np.mean(values))
    half = float(stats.t.ppf((1 + level) / 2, len(values) - 1) * stats.sem(values))
    return Estimate(mean, mean - half, mean + half)


def bootstrap_interval(
    statistic: Callable[..., float],
    clusters: Sequence | np.ndarray,
    draws: int = 1000,
    seed: int = 0,
    level: float = 0.95,
    trainings: int = 0,
) -> Estimate:
    """A statistic of items with its percentile interval over resampled clusters.

    statistic: item indices -> number; with `trainings` above 0 it also gets indices of that many
    trainings, which are resampled too (a few of them show less than their whole spread).
    clusters: one name an item. Draws that give no number (for example because a resample is
    constant) are left out.
    """
    names, member = np.unique(np.asarray(clusters), return_inverse=True)
    items = [np.flatnonzero(member == c) for c in range(len(names))]
    rng = np.random.default_rng(seed)

    def draw() -> float:
        rows = np.concatenate([items[c] for c in rng.integers(len(names), size=len(names))])
        return statistic(rows, *([rng.integers(trainings, size=trainings)] if trainings else []))

    low, high = np.nanquantile([draw() for _ in range(draws)], [(1 - level) / 2, (1 + level) / 2])
    every = [np.arange(trainings)] if trainings else []
    return Estimate(float(statistic(np.arange(len(member)), *every)), float(low), float(high))
