"""Evidence: what recorded runs measured, item by item, and how they were made.

A series holds one metric of one training on one split: a value an item. Tables, figures and
verdicts are computed from all series of a paper on one tier (`mmlib.core.recordings`) alone.
"""

import hashlib
import os
import platform
import subprocess
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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

OTHER_FEATURES = "trained on other features than recorded"
VERSIONS = ("torch", "numpy", "scipy", "gensim")
Key = tuple[str, str, str, str]  # data set, split, system, metric
Change = tuple[Hashable, Callable[[np.ndarray], Any]]  # what it is kept by, the function


def in_order(series: pd.DataFrame) -> pd.DataFrame:
    """Series in one order, whatever they came in."""
    return series.astype({"seed": np.int32}).sort_values(list(SERIES), ignore_index=True)


@dataclass(frozen=True, eq=False)
class Evidence:
    """All series, and how they were recorded.

    series: a row a series, as `engine.tidy` returns them.
    header: paper, tier, settings by data set, cpu_seconds, machine (of the first recording).
    recordings: the headers of the recordings that the series were read from.
    """

    series: pd.DataFrame
    header: Mapping[str, Any]
    recordings: Sequence[Mapping[str, Any]] = ()
    _changed: dict[tuple[Hashable, Key], dict[int, Any]] = field(
        default_factory=dict, init=False, repr=False
    )

    @cached_property
    def _series(self) -> dict[Key, dict[int, np.ndarray]]:
        """The values (items,) of each key and seed."""
        series: dict[Key, dict[int, np.ndarray]] = {}
        names = ("dataset", "split", "system", "metric", "seed", "value")
        for *key, seed, values in zip(*(self.series[name] for name in names), strict=True):
            series.setdefault((key[0], key[1], key[2], key[3]), {})[seed] = values
        return series

    @cached_property
    def datasets(self) -> list[str]:
        """Data sets by name."""
        return list(dict.fromkeys(self.series["dataset"]))

    @cached_property
    def seeds(self) -> list[int]:
        """All seeds, sorted."""
        return sorted({seed for *_, seed in self.jobs} - {NO_SEED})

    def seeds_of(self, dataset: str, *systems: str) -> list[int]:
        """The seeds that all of these have, of those with seeds; or those of any system. Sorted."""
        of_each = self._seeded.get(dataset, {})
        if not systems:
            return sorted(set().union(*of_each.values()))
        named = [of_each[system] for system in systems if system in of_each]
        return sorted(set.intersection(*named)) if named else []

    @cached_property
    def _seeded(self) -> dict[str, dict[str, set[int]]]:
        return grouped(job for job in self.jobs if job[2] != NO_SEED)

    def systems(self, dataset: str) -> list[str]:
        """The systems of a data set by name."""
        return list(dict.fromkeys(s for name, _, s, _ in self._series if name == dataset))

    def metrics(self, dataset: str, system: str, split: str = "test") -> list[str]:
        """The metrics of a system's values."""
        return [key[3] for key in self._series if key[:3] == (dataset, split, system)]

    @cached_property
    def jobs(self) -> set[tuple[str, str, int]]:
        """(data set, system, seed) of all that was recorded."""
        return set(zip(*(self.series[name] for name in ("dataset", "system", "seed")), strict=True))

    def recording_of(self, dataset: str, system: str, seed: int) -> Mapping[str, Any] | None:
        """The header of the recording that has a job; None where none has it.

        Series that were not read from recordings have `header` alone.
        """
        if not self.recordings:
            return self.header
        having = (h for h in self.recordings if seed in h["jobs"].get(dataset, {}).get(system, ()))
        return next(having, None)

    def has(self, dataset: str, system: str, metric: str, split: str = "test") -> bool:
        """Whether there are values."""
        return (dataset, split, system, metric) in self._series

    def values(
        self,
        dataset: str,
        system: str,
        metric: str,
        seeds: Sequence[int] | None = None,
        split: str = "test",
        change: Change | None = None,
    ) -> np.ndarray:
        """Values (seeds, items), float64; NaN for an item that is skipped.

        seeds: those of them that the system has; default: all that it has. One without seeds (a
        closed form) has its one row for each. change: name and function of what is made of
        each row, which is computed once a seed and name. Raises DataError for what was not
        recorded.
        """
        key = dataset, split, system, metric
        if key not in self._series:
            raise DataError(f"no evidence of {metric} of {system} on {dataset} ({split})")
        trained = self.seeds_of(dataset, system)
        wanted = trained if seeds is None else [seed for seed in seeds if seed in trained]
        if [*self._series[key]] == [NO_SEED]:
            wanted = [NO_SEED] * (len(seeds or self.seeds_of(dataset)) or 1)
        elif not wanted:
            asked = ", ".join(map(str, seeds or ()))
            raise DataError(f"no evidence of {system} on {dataset} for seed {asked}")
        if change is None:
            return _stacked(self._series[key][seed] for seed in wanted)
        figures = self._changed.setdefault((change[0], key), {})
        for seed in set(wanted) - figures.keys():
            figures[seed] = change[1](self._series[key][seed].astype(float))
        return np.array([figures[seed] for seed in wanted])

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
        by_seed = self._series.get((dataset, split, system, metric), {})
        means = {seed: np.nanmean(values.astype(float)) for seed, values in by_seed.items()}
        if [*by_seed] == [NO_SEED]:
            means = dict.fromkeys(self.seeds_of(dataset), means[NO_SEED])
        return pd.Series(means, dtype=float)

    def curves(self, dataset: str, system: str, metric: str) -> np.ndarray:
        """Learning curves (seeds, epochs) of a figure of the epochs, such as "dev_loss"."""
        return _stacked(self._series[dataset, EPOCHS, system, metric].values())

    def unfinished(self, dataset: str, system: str) -> bool:
        """Whether more than a fifth of a system's trainings still improved when they ended."""
        if not self.has(dataset, system, "dev_loss", EPOCHS):
            return False
        curves = self.curves(dataset, system, "dev_loss")
        return bool(np.mean([still_improving(curve) for curve in curves]) > 0.2)

    @property
    def other_features(self) -> str:
        """Which features were recorded and which this process uses, where they differ; else "".

        In use are those of "features_used", which `suite.record.read` adds to the header.
        """
        used, recorded = self.header.get("features_used"), self.header.get("features")
        keys = ("sha256", "ids_sha256")
        if not used or not recorded or all(recorded.get(k, used[k]) == used[k] for k in keys):
            return ""
        texts = f"recorded: {features_text(recorded)}; here: {features_text(used)}"
        return f"{OTHER_FEATURES} ({texts})"

    def comparable(self, live: Mapping[Any, Any] | None) -> Mapping[Any, Any]:
        """This run's figures to be drawn among the recorded ones; none where features differ."""
        return {} if live is None or self.other_features else live


def _stacked(series: Iterable[np.ndarray]) -> np.ndarray:
    """Series as rows, float64; NaN after a shorter one."""
    rows = list(series)
    stacked = np.full((len(rows), max(map(len, rows), default=0)), np.nan)
    for row, values in zip(stacked, rows, strict=True):
        row[: len(values)] = values
    return stacked


def features_text(features: Mapping[str, Any]) -> str:
    """Features in words: the set's name, its shape and backbone where known, and its hash."""
    shape = f"{features['regions']} × {features['width']}" if "width" in features else ""
    details = [shape, features.get("backbone", ""), f"SHA-256 {features['sha256'][:8]}"]
    return f"{features['set']}: {', '.join(filter(None, details))}"


def grouped(jobs: Iterable[tuple[str, str, int]]) -> dict[str, dict[str, set[int]]]:
    """Jobs (data set, system, seed) as data set -> system -> its seeds."""
    seeds: dict[str, dict[str, set[int]]] = {}
    for dataset, system, seed in jobs:
        seeds.setdefault(dataset, {}).setdefault(system, set()).add(seed)
    return seeds


def header(**extra: Any) -> dict[str, Any]:
    """How a recording is made: commit, versions and machine, and what the caller adds."""
    try:
        call = ["git", "-C", str(PACKAGE.parent), "rev-parse", "HEAD"]
        commit = subprocess.run(call, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):  # outside of a checkout
        commit = None
    return {
        "commit": commit,
        "versions": {name: version(name).split("+")[0] for name in VERSIONS},
        "python": platform.python_version(),
        "machine": machine(),
        **extra,
    }


def machine() -> dict[str, Any]:
    """What figures may depend on: processor, instruction set and arithmetic of PyTorch, GPU."""
    return {
        "processor": platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "arithmetic": arithmetic(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
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
