"""Effects with standard errors over seeds and items."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import hypot
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

LEVEL = 0.975  # each tail of a 95 % interval keeps 2.5 %
FIRM_LEVEL = 0.995  # of a 99 % interval


@dataclass(frozen=True)
class Interval:
    """An effect, its standard error, and Student's degrees of freedom (inf: normal)."""

    effect: float
    se: float
    df: float

    def ends(self, level: float = LEVEL) -> tuple[float, float]:
        """Both ends of the interval whose tails keep 1 − level each."""
        low = self.effect - float(special.stdtrit(self.df, level)) * self.se
        return low, 2 * self.effect - low

    @property
    def low(self) -> float:
        """Lower end of the 95 % interval."""
        return self.ends()[0]

    @property
    def high(self) -> float:
        """Upper end of the 95 % interval."""
        return self.ends()[1]

    def told(self, digits: int = 2, times: float = 1, sign: str = "+") -> str:
        """As text, such as "+1.20 [-0.30, +2.70]"; times: 100 for percent; sign: "" for levels."""
        numbers = (self.effect, self.low, self.high)
        effect, *ends = (f"{times * x:{sign}.{digits}f}" for x in numbers)
        return f"{effect} [{', '.join(ends)}]"


@dataclass(frozen=True)
class Effect(Interval):
    """One estimate with what a prediction for another number of seeds needs.

    per_seed: the variance that one seed alone would bring; of se ** 2, the part per_seed / seeds
    shrinks with more seeds. 0 where seeds are not known to matter, also when there was only one.
    seeds: the trainings that it rests on, the fewest of any side; 0 of what was measured once.
    rest_df: degrees of freedom of what does not shrink.
    """

    per_seed: float = 0.0
    seeds: int = 1
    rest_df: float = np.inf

    def at(self, seeds: int) -> "Effect":
        """The same effect as another number of seeds would estimate it; df by Satterthwaite."""
        if self.per_seed <= 0 or seeds == self.seeds:
            return self
        remaining = max(self.se**2 - self.per_seed / self.seeds, 0.0)
        then = self.per_seed / seeds
        variance = remaining + then
        inverse = (remaining / variance) ** 2 / self.rest_df
        inverse += (then / variance) ** 2 / max(seeds - 1, 1)
        df = max(1 / inverse, 1.0)
        return replace(self, se=variance**0.5, df=df, seeds=seeds)


def _numbered(clusters: Any, items: int) -> tuple[np.ndarray, int]:
    if len(clusters) != items:
        raise ValueError(f"{items} items, but {len(clusters)} clusters named")
    member, distinct = pd.factorize(pd.Series(clusters))
    if (member < 0).any():
        raise ValueError(f"item {int(np.argmin(member))} names no cluster")
    if len(distinct) < 2:
        raise ValueError("an interval over items needs at least two clusters")
    return member, len(distinct)


def crossed(values: np.ndarray, clusters: Any) -> Effect:
    """Mean of values (seeds, items), or (items,) for one seed, over both seeds and items.

    clusters: one name an item; items of one cluster are not independent and count together.
    Seeds and clusters are crossed random effects: the variance of the mean is taken from the mean
    squares of the two-way table (Searle, Casella and McCulloch, Variance Components, 1992), the
    degrees of freedom are Satterthwaite's (Biometrics, 1946), lowered where the interval would be
    narrower than Student's over the seeds' means: with two or three seeds that differ, his alone
    give intervals that miss the truth too often. With one seed the interval is over clusters only.
    Where several seeds give the same values, nothing was trained: these were measured once. Raises
    ValueError for fewer than two clusters and a missing name.
    """
    values = np.atleast_2d(np.asarray(values, dtype=float))
    seeds, items = values.shape
    member, count = _numbered(clusters, items)
    mean = float(values.mean())
    # Cluster sums, linearised, so that clusters of unequal size still average to the mean.
    cell = (np.arange(seeds)[:, None] * count + member).ravel()
    table = np.bincount(cell, (values - mean).ravel(), seeds * count).reshape(seeds, count)
    table *= count / items
    of_items = table.mean(0)
    ms_items = seeds * float(of_items @ of_items) / (count - 1)  # the table's mean is 0
    if seeds == 1:
        return Effect(mean, (ms_items / count) ** 0.5, count - 1.0)
    of_seeds = table.mean(1)
    ms_seeds = count * float(of_seeds @ of_seeds) / (seeds - 1)
    ms_rest = float(((table - of_items - of_seeds[:, None]) ** 2).sum())
    ms_rest /= (seeds - 1) * (count - 1)
    combined = max(ms_seeds + ms_items - ms_rest, ms_seeds, ms_items)
    shares = (
        ms_seeds**2 / (seeds - 1)
        + ms_items**2 / (count - 1)
        + ms_rest**2 / ((seeds - 1) * (count - 1))
    )
    df = max(combined**2 / shares, 1.0) if shares else 1.0
    if combined:  # both in standard errors
        over_seeds_alone = special.stdtrit(seeds - 1, LEVEL) * (ms_seeds / combined) ** 0.5
        if over_seeds_alone > special.stdtrit(df, LEVEL):
            df = max(float(special.stdtridf(LEVEL, over_seeds_alone)), 1.0)
    se, rest_df = (combined / (seeds * count)) ** 0.5, count - 1.0
    if not np.ptp(values, axis=0).any():
        return Effect(mean, se, df, 0.0, 0, rest_df)
    # Both the seeds themselves and their interplay with clusters average out over seeds.
    per_seed = min(max(ms_seeds, ms_rest), combined) / count
    return Effect(mean, se, df, per_seed, seeds, rest_df)


def crossed_known(values: np.ndarray, clusters: np.ndarray) -> Effect:
    """`crossed` of values (seeds, items), without items that lack a value in some seed (NaN)."""
    complete = np.isfinite(values).all(axis=0)
    return crossed(values[:, complete], _numbered(clusters, len(complete))[0][complete])


def linearised(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Values (seeds, items) that vary as a ratio of means (Cochran, Sampling Techniques, 1977)."""
    of_means = above.mean() / below.mean()
    return of_means + (above - of_means * below) / below.mean()


def between(values: np.ndarray, chosen: np.ndarray, others: np.ndarray, clusters: Any) -> Effect:
    """Mean of values (seeds, items) over chosen ones less that over others, as `crossed`.

    chosen, others: masks, (items,) or (seeds, items); how many a side has is of the sample, too.
    """
    of_sides = (linearised(values * side, side) for side in (chosen, others))
    return crossed(np.subtract(*of_sides), clusters)


def over_seeds(values: Sequence[float] | np.ndarray) -> Effect:
    """Mean of one value a seed (seeds,), with Student's interval; ValueError below two seeds."""
    values = np.asarray(values, dtype=float)
    if len(values) < 2:
        raise ValueError("an interval over seeds needs at least two seeds")
    variance, n = float(values.var(ddof=1)), len(values)
    seeds = n if np.ptp(values) else 0  # as of `crossed`
    return Effect(float(values.mean()), (variance / n) ** 0.5, n - 1.0, variance, seeds)


def slope(predictors: np.ndarray, responses: np.ndarray, column: int, clusters: Any) -> Effect:
    """Change of the mean response with one standard deviation of a predictor, others held.

    predictors (items, p), each scaled to unit deviation; column: of them; responses (seeds, items).
    Least squares with an intercept; the standard error allows for clusters, with clusters - 1
    degrees of freedom. Seeds are not in it. A constant predictor gives NaN.
    """
    table = np.asarray(predictors, dtype=float)
    member, count = _numbered(clusters, len(table))
    spread, response, seeds = table.std(0, ddof=1), responses.mean(axis=0), len(responses)
    if not np.isfinite(table).all() or not np.isfinite(response).all() or not spread.all():
        return Effect(np.nan, np.nan, count - 1.0, seeds=seeds)
    scaled = np.column_stack([np.ones(len(table)), (table - table.mean(0)) / spread])
    from statsmodels.regression.linear_model import OLS  # late: it takes a second

    fit = OLS(response, scaled).fit(cov_type="cluster", cov_kwds={"groups": member}, use_t=True)
    effect, se = (float(of_all[1 + column]) for of_all in (fit.params, fit.bse))
    return Effect(effect, se, count - 1.0, seeds=seeds)


def difference(a: Effect, b: Effect) -> Effect:
    """a - b of two independent effects, with Welch's degrees of freedom."""
    variance = a.se**2 + b.se**2
    shares = a.se**4 / a.df + b.se**4 / b.df
    seeds = min((effect.seeds for effect in (a, b) if effect.seeds), default=0)
    # Their ratio of seeds stays.
    per_seed = seeds * sum(e.per_seed / e.seeds for e in (a, b) if e.seeds)
    df = variance**2 / shares if shares else np.inf
    rest_df = min(a.rest_df, b.rest_df)
    return Effect(a.effect - b.effect, hypot(a.se, b.se), df, per_seed, seeds, rest_df)
