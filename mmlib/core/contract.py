"""What series of evidence must hold, checked when they are written and whenever they are read."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from mmlib.core.evidence import grouped
from mmlib.core.jobs import EPOCHS, JOB, NO_SEED, SERIES


class Damage(ValueError):
    """What is wrong with some series; row: the first of them in which it shows."""

    def __init__(self, problem: str, row: int = 0) -> None:
        super().__init__(problem)
        self.row = row


def check(
    series: pd.DataFrame, bounds: Mapping[str, Sequence[float | None]], may_skip: str
) -> None:
    """Raises Damage for the first series of a data set that breaks the contract.

    bounds: pattern of a metric's whole name -> its lowest and highest value, None for no limit; the
    first that fits counts. may_skip: the pattern of metrics that leave items out (NaN); an item
    that one system skips, all skip: a document without links has no AUC.
    """

    def refuse(wrong: np.ndarray | pd.Series, problem: str) -> None:
        if len(rows := np.flatnonzero(wrong)):
            named = series.iloc[rows[0]]
            name = "{metric} of {system}, seed {seed}, on {dataset} ({split})".format(**named)
            raise Damage(problem.format(name, value=worst[rows[0]]), int(rows[0]))

    sizes = series["value"].map(len).to_numpy()
    worst = np.zeros(len(series))
    refuse(sizes == 0, "{} has no value")
    refuse(series["seed"] < NO_SEED, "{}: no such seed")
    refuse(series.duplicated(list(SERIES)), "{} is there twice")
    seeds = series.groupby("system")["seed"].nunique()
    of_metric = series.groupby(["system", "split", "metric"])["seed"].transform("nunique")
    refuse(of_metric != series["system"].map(seeds), "not every seed of its system has {}")
    first = series.drop_duplicates("split").set_index("split")["cluster"]
    due = series["split"].map(first)
    fits = [
        split == EPOCHS or (len(value) == len(own) and (own is all_ or np.array_equal(own, all_)))
        for split, value, own, all_ in zip(
            series["split"], series["value"], series["cluster"], due, strict=True
        )
    ]
    refuse(~np.array(fits), "{} has other items or clusters than other series")

    values, starts = np.concatenate([*series["value"]]), np.cumsum(sizes) - sizes
    limits = {
        metric: next((b for pattern, b in bounds.items() if re.fullmatch(pattern, metric)), ())
        for metric in series["metric"].unique()
    }
    for number, (extreme, beyond) in enumerate(((np.fmin, np.less), (np.fmax, np.greater))):
        limit = {metric: b[number] for metric, b in limits.items() if b and b[number] is not None}
        worst = extreme.reduceat(values, starts)
        outside = beyond(worst, series["metric"].map(limit).astype(float))
        refuse(outside | np.isinf(worst), "{} is {value:g}")
    skipped = np.logical_or.reduceat(np.isnan(values), starts)
    skips = series["metric"].str.fullmatch(may_skip) & ~series["split"].isin([EPOCHS, JOB])
    refuse(skipped & ~skips, "{} is not a number")
    masks = series["value"].where(skips & series["metric"].isin(series["metric"][skipped])).dropna()
    for _, rows in masks.groupby([series["split"], series["metric"]]):
        others = [(np.isnan(own) != np.isnan(rows.iloc[0])).any() for own in rows]
        refuse(series.index.isin(rows.index[others]), "{} skips other items than other series")


def gaps(
    jobs: Iterable[tuple[str, str, int]],
    grid: Mapping[str, Iterable[str]],
    inapplicable: Mapping[str, Iterable[str]],
) -> Iterator[str]:
    """What a complete record would have and this one lacks, in sentences.

    jobs: (data set, system, seed) that are there. grid: data set -> the names of its systems.
    inapplicable: data set -> those of the grid that it had no use for when it was recorded.
    """
    recorded = grouped(jobs)
    for dataset in dict.fromkeys([*grid, *sorted(recorded)]):
        if dataset not in recorded:
            yield f"{dataset} was not recorded"
            continue
        systems = recorded[dataset]
        wanted = set(grid.get(dataset, ())).difference(inapplicable.get(dataset, ()))
        if missing := sorted(wanted.difference(systems)):
            yield f"{dataset}: {', '.join(missing)} not recorded"
        every = set().union(*systems.values()) - {NO_SEED}
        lacking: dict[tuple[int, ...], list[str]] = {}
        for system, seeds in sorted(systems.items()):
            if NO_SEED not in seeds and seeds != every:
                lacking.setdefault(tuple(sorted(every - seeds)), []).append(system)
        for seeds_lost, names in lacking.items():
            yield f"{dataset}: {', '.join(names)} without seed {ranges(seeds_lost)}"


def ranges(seeds: Sequence[int]) -> str:
    """Sorted seeds in short: [0, 1, 2, 5] is "0–2, 5"."""
    groups: list[list[int]] = []
    for seed in seeds:
        if groups and seed == groups[-1][-1] + 1:
            groups[-1].append(seed)
        else:
            groups.append([seed])
    return ", ".join(str(g[0]) if len(g) == 1 else f"{g[0]}–{g[-1]}" for g in groups)
