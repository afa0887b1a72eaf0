"""Evidence: what recorded runs measured, item by item, and how they were made.

A series holds one metric of one training on one split: a value an item. Tables, figures and
verdicts are computed from all series of a paper on one tier (`mmlib.core.recordings`) alone.
"""

import hashlib
import os
import platform
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
import torch

from mmlib.core.errors import DataError
from mmlib.core.fit import still_improving
from mmlib.core.jobs import EPOCHS, NO_SEED, SERIES
from mmlib.core.paths import PACKAGE

KEYS = ("dataset", "split", "system", "metric")
OTHER_FEATURES = "trained on other features than recorded"
VERSIONS = ("torch", "numpy", "scipy", "gensim")


def in_order(series: pd.DataFrame) -> pd.DataFrame:
    """Series in one order, whatever they came in."""
    return series.astype({"seed": np.int32}).sort_values(list(SERIES), ignore_index=True)


@dataclass(frozen=True, eq=False)
class Evidence:
    """All series, and how they were recorded.

    series: a row a series, as `engine.tidy` returns them.
        A table of one row a value, as `table` returns it, is accepted, too.
    header: paper, tier, settings by data set, cpu_seconds, machine (of the first recording).
    recordings: the headers of the recordings that the series were read from.
    """

    series: pd.DataFrame
    header: Mapping[str, Any]
    recordings: Sequence[Mapping[str, Any]] = ()

    def __post_init__(self) -> None:
        if "item" in self.series:
            rows = self.series.sort_values("item", kind="stable")
            cluster, value = rows["cluster"].to_numpy(np.int32), rows["value"].to_numpy(np.float32)
            groups = rows.reset_index(drop=True).groupby(list(SERIES), observed=True).indices
            series = [(*key, value[i], cluster[i]) for key, i in groups.items()]
            frame = pd.DataFrame(series, columns=[*SERIES, "value", "cluster"])
            object.__setattr__(self, "series", in_order(frame))

    @cached_property
    def table(self) -> pd.DataFrame:
        """A row a value: dataset, split, system, seed, item, cluster, metric, value.

        Items count from 0, and the epochs of learning curves (split "epochs") from 1.
        """
        sizes = self.series["value"].map(len).to_numpy()
        table = self.series[["dataset", "split", "system", "seed", "metric"]]
        table = table.astype(dict.fromkeys(KEYS, "category"))
        table = table.loc[table.index.repeat(sizes)].reset_index(drop=True)
        starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
        item = np.arange(len(table)) - starts + (table["split"] == EPOCHS)
        table.insert(4, "item", item.astype(np.int32))
        table.insert(5, "cluster", np.concatenate([np.zeros(0, np.int32), *self.series["cluster"]]))
        return table.assign(value=np.concatenate([np.zeros(0, np.float32), *self.series["value"]]))

    @property
    def other_features(self) -> str:
        """See the function `other_features`, of the header."""
        return other_features(self.header)

    def comparable(self, live: Mapping[Any, Any] | None) -> Mapping[Any, Any]:
        """This run's figures to be drawn among the recorded ones; none where features differ."""
        return {} if live is None or self.other_features else live

    @cached_property
    def _series_of(self) -> dict[tuple[str, str, str, str], list[int]]:
        """`KEYS` -> the numbers of its series, one a seed."""
        rows: dict[tuple[str, str, str, str], list[int]] = {}
        for row, key in enumerate(zip(*(self.series[name] for name in KEYS), strict=True)):
            rows.setdefault(key, []).append(row)
        return rows

    @cached_property
    def _cubes(self) -> dict[tuple[str, str, str, str], np.ndarray]:
        return {}

    def _cube(self, key: tuple[str, str, str, str]) -> np.ndarray:
        """All values of a metric of a system, (seeds, items); NaN after a shorter series."""
        if key not in self._cubes:
            series = self.series["value"].iloc[self._series_of[key]].tolist()
            cube = np.full((len(series), max(map(len, series))), np.nan)
            for row, values in zip(cube, series, strict=True):
                row[: len(values)] = values
            self._cubes[key] = cube
        return self._cubes[key]

    def _seeds_in(self, *key: Any) -> list[int]:
        """The seeds of the rows of a cube."""
        return self.series["seed"].iloc[self._series_of[key]].tolist()

    @cached_property
    def datasets(self) -> list[str]:
        """Data sets by name."""
        return list(dict.fromkeys(self.series["dataset"]))

    @cached_property
    def seeds(self) -> list[int]:
        """The seeds that some data set has for all of its systems, sorted."""
        return sorted(set().union(*self._seeds.values()))

    def seeds_of(self, dataset: str) -> list[int]:
        """The seeds of a data set that all of its systems with seeds have, sorted."""
        return self._seeds.get(dataset, [])

    @cached_property
    def _seeds(self) -> dict[str, list[int]]:
        seeded = grouped(job for job in self.jobs if job[2] != NO_SEED)
        return {name: sorted(set.intersection(*seeds.values())) for name, seeds in seeded.items()}

    def systems(self, dataset: str) -> list[str]:
        """The systems of a data set by name."""
        return list(dict.fromkeys(s for name, _, s, _ in self._series_of if name == dataset))

    def metrics(self, dataset: str, system: str, split: str = "test") -> list[str]:
        """The metrics of a system's values."""
        wanted = (dataset, split, system)
        return [metric for *key, metric in self._series_of if tuple(key) == wanted]

    @cached_property
    def jobs(self) -> set[tuple[str, str, int]]:
        """(data set, system, seed) of all that was recorded."""
        return set(zip(*(self.series[name] for name in ("dataset", "system", "seed")), strict=True))

    def columns(self) -> dict[tuple[str, str], dict[str, str]]:
        """(data set, system) -> what the recordings say that the system is, as text."""
        return {
            (dataset, system): columns
            for header in self.recordings
            for dataset, systems in header["systems"].items()
            for system, columns in systems.items()
        }

    def recording_of(self, dataset: str, system: str, seed: int) -> Mapping[str, Any] | None:
        """The header of the recording that has a job; None where none has it.

        A table that was not read from recordings has `header` alone.
        """
        if not self.recordings:
            return self.header
        for header in self.recordings:
            if seed in header["jobs"].get(dataset, {}).get(system, ()):
                return header
        return None

    def has(self, dataset: str, system: str, metric: str, split: str = "test") -> bool:
        """Whether there are values."""
        return (dataset, split, system, metric) in self._series_of

    def values(
        self,
        dataset: str,
        system: str,
        metric: str,
        seeds: Sequence[int] | None = None,
        split: str = "test",
    ) -> np.ndarray:
        """Values (seeds, items), float64; NaN for an item that is skipped.

        seeds: those of them that the data set has; default: all that it has. A system without seeds
        (a closed form) has its one row for every seed.
        Raises DataError for what was not recorded.
        """
        rows = self._rows_of(dataset, system, metric, seeds, split)
        return self._cube((dataset, split, system, metric))[rows]

    def derived(
        self,
        name: str,
        figure: Callable[[np.ndarray], np.ndarray],
        dataset: str,
        system: str,
        metric: str,
        seeds: Sequence[int] | None = None,
        split: str = "test",
    ) -> np.ndarray:
        """`figure` of each row of `values`; computed once a seed, and kept under `name`."""
        rows = self._rows_of(dataset, system, metric, seeds, split)
        key = dataset, split, system, metric
        by_row = self._derived.setdefault((name, *key), {})
        for row in set(rows) - by_row.keys():
            by_row[row] = figure(self._cube(key)[row])
        return np.array([by_row[row] for row in rows])

    @cached_property
    def _derived(self) -> dict[tuple[str, ...], dict[int, np.ndarray]]:
        return {}

    def _rows_of(
        self, dataset: str, system: str, metric: str, seeds: Sequence[int] | None, split: str
    ) -> list[int]:
        """The rows of a cube that are of these seeds; see `values`."""
        if not self.has(dataset, system, metric, split):
            raise DataError(f"no evidence of {metric} of {system} on {dataset} ({split})")
        recorded = self._seeds_in(dataset, split, system, metric)
        common = self.seeds_of(dataset)
        wanted = common if seeds is None else [seed for seed in seeds if seed in common]
        if recorded == [NO_SEED]:
            return [0] * len(wanted or seeds or self.seeds)
        if seeds is not None and not wanted:
            asked = ", ".join(map(str, seeds))
            raise DataError(f"no evidence of {system} on {dataset} for seed {asked}")
        row = {seed: i for i, seed in enumerate(recorded)}
        return [row[seed] for seed in wanted]

    def clusters(self, dataset: str, split: str = "test") -> np.ndarray:
        """The cluster of each item of a data set, (items,)."""
        if (dataset, split) not in self._clusters:
            raise DataError(f"no evidence on {dataset} ({split})")
        return self._clusters[dataset, split]

    @cached_property
    def _clusters(self) -> dict[tuple[str, str], np.ndarray]:
        first = self.series.drop_duplicates(["dataset", "split"])
        return first.set_index(["dataset", "split"])["cluster"].to_dict()

    def means(self, dataset: str, system: str, metric: str, split: str = "test") -> pd.Series:
        """Seed -> mean over items; empty where there are no values.

        A system without seeds has its one figure for every seed.
        """
        if not self.has(dataset, system, metric, split):
            return pd.Series(dtype=float)
        seeds = self._seeds_in(dataset, split, system, metric)
        means = np.nanmean(self._cube((dataset, split, system, metric)), axis=1)
        if seeds == [NO_SEED]:
            return pd.Series(means[0], index=self.seeds_of(dataset))
        return pd.Series(means, index=seeds)

    def curves(self, dataset: str, system: str, metric: str) -> np.ndarray:
        """Learning curves (seeds, epochs) of a figure of the epochs, such as "dev_loss"."""
        return self._cube((dataset, EPOCHS, system, metric))

    def unfinished(self, dataset: str, system: str) -> bool:
        """Whether more than a fifth of a system's trainings still improved when they ended."""
        if not self.has(dataset, system, "dev_loss", EPOCHS):
            return False
        curves = self.curves(dataset, system, "dev_loss")
        return bool(np.mean([still_improving(curve) for curve in curves]) > 0.2)


def grouped(jobs: Iterable[tuple[str, str, int]]) -> dict[str, dict[str, set[int]]]:
    """Jobs (data set, system, seed) as data set -> system -> its seeds."""
    seeds: dict[str, dict[str, set[int]]] = {}
    for dataset, system, seed in jobs:
        seeds.setdefault(dataset, {}).setdefault(system, set()).add(seed)
    return seeds


def header(**extra: Any) -> dict[str, Any]:
    """How a recording is made: commit, versions and machine, and what the caller adds."""
    return {
        "commit": _commit(),
        "versions": {name: version(name).split("+")[0] for name in VERSIONS},
        "python": platform.python_version(),
        "machine": machine(),
        **extra,
    }


def machine() -> dict[str, Any]:
    """What figures may depend on: processor, instruction set and arithmetic of PyTorch, GPU."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "processor": platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "arithmetic": arithmetic(),
        "cores": os.cpu_count(),
        "gpu": gpu,
    }


@cache
def arithmetic() -> str:
    """Eight digits of a hash of one training step on one thread: equal if every bit is equal.

    Processors with the same instructions may add in another order, and long trainings then end
    elsewhere.
    """
    threads, random = torch.get_num_threads(), torch.Generator().manual_seed(0)
    torch.set_num_threads(1)
    inputs = torch.randn(96, 131, generator=random)
    weights = torch.randn(131, 65, generator=random, requires_grad=True)
    states = torch.layer_norm(inputs @ weights, (65,)).tanh()
    torch.log_softmax(states @ states.T, 1).diag().mean().backward()
    torch.set_num_threads(threads)
    assert weights.grad is not None
    result = torch.cat([states.detach().flatten(), weights.grad.flatten()])
    return hashlib.sha256(result.numpy().tobytes()).hexdigest()[:8]


def _commit() -> str | None:
    """The checkout's commit; None outside of one."""
    call = ["git", "-C", str(PACKAGE.parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(call, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def other_features(header: Mapping[str, Any]) -> str:
    """Which features were recorded and which this process uses, where they differ; else "".

    In use are those of "features_used", which `suite.record.read` adds to a header.
    """
    used, recorded = header.get("features_used"), header.get("features")
    if not used or not recorded:
        return ""
    same = used["sha256"] == recorded["sha256"] and used["ids_sha256"] == recorded.get(
        "ids_sha256", used["ids_sha256"]
    )
    texts = f"recorded: {features_text(recorded)}; here: {features_text(used)}"
    return "" if same else f"{OTHER_FEATURES} ({texts})"


def features_text(features: Mapping[str, Any]) -> str:
    """Features in words: the set's name, its shape and backbone where known, and its hash."""
    shape = f"{features['regions']} × {features['width']}" if "width" in features else ""
    told = [shape, features.get("backbone", ""), f"SHA-256 {features['sha256'][:8]}"]
    return f"{features['set']}: {', '.join(filter(None, told))}"
