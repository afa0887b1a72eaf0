"""What a table of evidence must hold, checked when it is written and whenever it is read."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from mmlib.core.evidence import NO_SEED, grouped
from mmlib.core.jobs import COMMON, EPOCHS

JOB = "job"  # the split of what a job took
TYPES = {"seed": "int32", "item": "int32", "cluster": "int32", "value": "float32"}
RUN = ["dataset", "system", "seed", "split", "metric"]  # the items of these stand together


class Damage(ValueError):
    """What is wrong with a table, and the number of the row, from 0, where there is one."""

    def __init__(self, problem: str, row: int | None = None) -> None:
        super().__init__(problem if row is None else f"row {row}: {problem}")


class Bounds(NamedTuple):
    """Between which values a metric lies, and whether an item may be skipped (NaN)."""

    low: float = -inf
    high: float = inf  # NaN: the number of items, which no rank exceeds
    may_skip: bool = False


# The first pattern that fits a metric's whole name counts; no other metric may skip an item.
# An item that one system skips, all systems skip: a document without links has no AUC.
BOUNDS = {
    re.compile(pattern): bounds
    for pattern, bounds in {
        r"AUC|p@\d+": Bounds(0, 100, True),
        r"entity rank": Bounds(1, np.nan, True),
        r"entity to image, R@\d+|in family": Bounds(0, 100, True),
        r"objects|attributes|relations": Bounds(0, inf, True),
        r"(E|P)@\d+, (judge|people)|mAP, people|own rejected": Bounds(0, 100, True),
        r"AP\b.*": Bounds(0, 1, True),
        r"(dev_)?(R|E|P)@\d+.*|mAP|dev_AUC": Bounds(0, 100),
        r"(dev_)?RSUM.*": Bounds(0, 1e4),  # of an image with 30 captions
        r"rank.*": Bounds(1, np.nan),
        r"(dev_)?MedR.*": Bounds(1, inf),
        r"rate|label": Bounds(0, 1),
        r"CPU seconds|ms of .*": Bounds(0, inf),
    }.items()
}


def bounds_of(metric: str) -> Bounds:
    """The bounds of a metric, by its name; NaN as the upper one is the number of items."""
    return next(
        (bounds for pattern, bounds in BOUNDS.items() if pattern.fullmatch(metric)), Bounds()
    )


class Run(NamedTuple):
    """The rows of one metric of one job on one split."""

    dataset: str
    system: str
    seed: int
    split: str
    metric: str
    start: int
    stop: int

    def __str__(self) -> str:
        return f"{self.metric} of {self.system}, seed {self.seed}, on {self.dataset} ({self.split})"


def runs_of(table: pd.DataFrame) -> list[Run]:
    """The runs of a table, in its order: rows next to each other that differ only in the item."""
    keys = [table[name] if name == "seed" else table[name].cat.codes for name in RUN]
    is_start = np.zeros(len(table), dtype=bool)
    is_start[:1] = True
    for key in keys:
        codes = key.to_numpy()
        is_start[1:] |= codes[1:] != codes[:-1]
    starts = np.flatnonzero(is_start)
    names = table[RUN].iloc[starts].astype(object)
    stops = np.append(starts[1:], len(table)).tolist()
    columns = [names[name].tolist() for name in RUN]
    return [Run(*values) for values in zip(*columns, starts.tolist(), stops, strict=True)]


class Contract:
    """The checks of all tables of one paper and tier, which must also agree with each other."""

    def __init__(self, paper: str, tier: str) -> None:
        self.paper, self.tier = paper, tier
        self._clusters: dict[tuple[str, str], np.ndarray] = {}
        self._skipped: dict[tuple[str, str, str], np.ndarray] = {}

    def check(self, table: pd.DataFrame, jobs: Mapping[str, Any] | None = None) -> list[Run]:
        """The runs of a table. Raises Damage for the first row that breaks the contract.

        jobs: data set -> system -> seeds, which the table must hold, no more and no less.
        """
        _check_columns(table)
        for name, wanted in (("paper", self.paper), ("tier", self.tier)):
            if (names := table[name].cat.categories.tolist()) != [wanted]:
                raise Damage(f"the rows are of the {name} {', '.join(names)}, not of {wanted}")
        runs = runs_of(table)
        _check_items(table, runs)
        _check_systems(table, runs)
        if jobs is not None and jobs_of(runs) != jobs:
            raise Damage("the table has other systems or seeds than its header says")
        self._check_clusters(table, runs)
        self._check_values(table["value"].to_numpy(), runs)
        return runs

    def _check_clusters(self, table: pd.DataFrame, runs: list[Run]) -> None:
        """All systems of a data set have the same items, in the same clusters."""
        cluster = table["cluster"].to_numpy()
        for run in runs:
            if run.split == EPOCHS:
                continue
            clusters = cluster[run.start : run.stop]
            first = self._clusters.setdefault((run.dataset, run.split), clusters)
            if len(clusters) != len(first):
                problem = f"{len(clusters)} items of {run}, but {len(first)} of other systems"
                raise Damage(problem, run.start)
            if not np.array_equal(clusters, first):
                row = run.start + int(np.flatnonzero(clusters != first)[0])
                raise Damage(f"another cluster for {run} than for other systems", row)

    def _check_values(self, values: np.ndarray, runs: list[Run]) -> None:
        """Values are finite and within their bounds; only whole items are skipped."""
        if not runs:
            return
        starts = [run.start for run in runs]
        lows, highs = (extreme.reduceat(values, starts) for extreme in (np.fmin, np.fmax))
        has_nan = np.logical_or.reduceat(np.isnan(values), starts)
        for run, low, high, skips in zip(runs, lows, highs, has_nan, strict=True):
            bounds, measured = bounds_of(run.metric), values[run.start : run.stop]
            top = len(measured) if np.isnan(bounds.high) else bounds.high
            if not (bounds.low <= low and high <= top) or np.isinf([low, high]).any():
                if not np.isnan(low):  # else all items are skipped
                    bad = ~np.isnan(measured) & ~((bounds.low <= measured) & (measured <= top))
                    row = int(np.flatnonzero(bad | np.isinf(measured))[0])
                    raise Damage(f"{run} is {measured[row]:g}", run.start + row)
            self._check_skipped(run, np.flatnonzero(np.isnan(measured)) if skips else NONE)

    def _check_skipped(self, run: Run, items: np.ndarray) -> None:
        key = run.dataset, run.split, run.metric
        first = self._skipped.setdefault(key, items)
        if len(items) and not (bounds_of(run.metric).may_skip and run.split not in (EPOCHS, JOB)):
            raise Damage(f"{run} is not a number", run.start + int(items[0]))
        if not np.array_equal(items, first):
            item = int(np.setxor1d(items, first)[0])
            problem = f"item {item} of {run} is a number, or not, unlike that of other systems"
            raise Damage(problem, run.start + item)


NONE = np.zeros(0, dtype=int)


def jobs_of(runs: list[Run]) -> dict[str, dict[str, list[int]]]:
    """Data set -> system -> its seeds, sorted."""
    return {
        dataset: {system: sorted(seeds) for system, seeds in systems.items()}
        for dataset, systems in grouped(run[:3] for run in runs).items()
    }


def _check_columns(table: pd.DataFrame) -> None:
    if lacking := [name for name in COMMON if name not in table]:
        raise Damage(f"no column {lacking[0]}")
    for name in table:
        wanted = TYPES.get(name, "category")
        if table[name].dtype != wanted:
            raise Damage(f"the column {name} is {table[name].dtype}, not {wanted}")
        if name in COMMON and wanted == "category" and (table[name].cat.codes < 0).any():
            raise Damage(f"no {name}", int(np.flatnonzero(table[name].cat.codes < 0)[0]))


def _check_items(table: pd.DataFrame, runs: list[Run]) -> None:
    """Every run stands once, and has its items from 0 (epochs from 1), one after another."""
    checked = set()
    for run in runs:
        if run[:5] in checked:
            raise Damage(f"{run} is there twice", run.start)
        if run.seed < NO_SEED:
            raise Damage(f"{run}: no such seed", run.start)
        checked.add(run[:5])
    starts = np.array([run.start for run in runs], dtype=int)
    sizes = [run.stop - run.start for run in runs]
    first = np.array([int(run.split == EPOCHS) for run in runs], dtype=int)
    due = np.arange(len(table)) - np.repeat(starts - first, sizes)
    if len(wrong := np.flatnonzero(table["item"].to_numpy() != due)):
        run = runs[int(np.searchsorted(starts, wrong[0], side="right")) - 1]
        item = table["item"].iloc[wrong[0]]
        raise Damage(f"item {item} of {run}, where item {due[wrong[0]]} is due", int(wrong[0]))


def _check_systems(table: pd.DataFrame, runs: list[Run]) -> None:
    """The columns that say what a system is are the same in all of its rows."""
    starts = [run.start for run in runs]
    sizes = [run.stop - run.start for run in runs]
    for name in table.columns.difference(COMMON):
        codes = table[name].cat.codes.to_numpy()
        if len(wrong := np.flatnonzero(codes != np.repeat(codes[starts], sizes))):
            raise Damage(f"another {name} than in the row before", int(wrong[0]))
        by_system: dict[tuple[str, str], int] = {}
        for run, code in zip(runs, codes[starts].tolist(), strict=True):
            if by_system.setdefault((run.dataset, run.system), code) != code:
                raise Damage(f"another {name} of {run.system} than before", run.start)


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
