"""Evidence: what recorded runs measured, item by item, and how they were made.

A table of one row a value, from all recordings of a paper on one tier (`mmlib.core.recordings`).
Tables, figures and verdicts are computed from it alone.
"""

import hashlib
import os
import platform
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from mmlib.core.errors import DataError
from mmlib.core.fit import still_improving
from mmlib.core.jobs import COMMON, EPOCHS
from mmlib.core.paths import PACKAGE

NO_SEED = -1  # the seed of a system that has none, such as a closed form
KEYS = ("dataset", "split", "system", "metric")
FEATURE_FILE = re.compile(r"(?:^|/)features/(?!labels_)[^/]+\.npy$")
OTHER_FEATURES = "trained on other features than recorded"
VERSIONS = ("torch", "numpy", "scipy", "gensim")


@dataclass(frozen=True, eq=False)
class Evidence:
    """A tidy table, and how it was recorded.

    table: a row a value, with the columns `COMMON` and those that say what a system is.
    header: paper, tier, settings by data set, cpu_seconds, machine (of the first recording).
    recordings: the headers of the recordings that the table was read from.
    """

    table: pd.DataFrame
    header: Mapping[str, Any]
    recordings: Sequence[Mapping[str, Any]] = ()

    @property
    def other_features(self) -> str:
        """See the function `other_features`, of the header."""
        return other_features(self.header)

    def comparable(self, live: Mapping[Any, Any] | None) -> Mapping[Any, Any]:
        """This run's figures to be drawn among the recorded ones; none where features differ."""
        return {} if live is None or self.other_features else live

    @cached_property
    def _rows(self) -> dict[tuple[str, str, str, str], np.ndarray]:
        """`KEYS` -> the numbers of the rows with these values, in their order."""
        keys = self.table[list(KEYS)].astype("category")
        codes = np.stack([keys[name].cat.codes for name in keys])
        is_start = (codes[:, 1:] != codes[:, :-1]).any(axis=0)
        starts = np.flatnonzero(np.r_[len(keys) > 0, is_start])  # of runs of equal keys: few
        runs = keys.iloc[starts].itertuples(index=False, name=None)
        rows: dict[tuple[str, str, str, str], list[np.ndarray]] = {}
        for key, run in zip(runs, np.split(np.arange(len(keys)), starts[1:]), strict=False):
            rows.setdefault(key, []).append(run)
        return {key: np.concatenate(pieces) for key, pieces in rows.items()}

    @cached_property
    def _cubes(self) -> dict[tuple[str, str, str, str], tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """`KEYS` -> values (seeds, items), seeds (seeds,), clusters (items,)."""
        columns = [self.table[name].to_numpy() for name in ("seed", "item", "cluster", "value")]
        cubes = {}
        for key, rows in self._rows.items():
            seed, item, cluster, value = (column[rows] for column in columns)
            seeds, row = np.unique(seed, return_inverse=True)
            items, first, column = np.unique(item, return_index=True, return_inverse=True)
            values = np.full((len(seeds), len(items)), np.nan)
            values[row, column] = value
            cubes[key] = (values, seeds, cluster[first])
        return cubes

    @cached_property
    def datasets(self) -> list[str]:
        """Data sets by name."""
        return list(dict.fromkeys(dataset for dataset, *_ in self._rows))

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
        return list(dict.fromkeys(s for name, _, s, _ in self._cubes if name == dataset))

    def metrics(self, dataset: str, system: str, split: str = "test") -> list[str]:
        """The metrics of a system's values."""
        wanted = (dataset, split, system)
        return [metric for *key, metric in self._cubes if tuple(key) == wanted]

    @cached_property
    def jobs(self) -> set[tuple[str, str, int]]:
        """(data set, system, seed) of all that was recorded."""
        return {
            (dataset, system, int(seed))
            for (dataset, _, system, _), (_, seeds, _) in self._cubes.items()
            for seed in seeds
        }

    def columns(self) -> dict[tuple[str, str], dict[str, str]]:
        """(data set, system) -> the columns that say what the system is, as text."""
        names = ["system", *(name for name in self.table.columns if name not in COMMON)]
        first: dict[tuple[str, str], int] = {}
        for (dataset, _, system, _), rows in self._rows.items():
            first.setdefault((dataset, system), rows[0])
        table = self.table.iloc[list(first.values())]
        return {
            (dataset, row["system"]): {k: v for k, v in row.items() if not pd.isna(v)}
            for dataset, row in zip(table.dataset, table[names].to_dict("records"), strict=True)
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
        return (dataset, split, system, metric) in self._cubes

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
        return self._cubes[dataset, split, system, metric][0][rows]

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
            by_row[row] = figure(self._cubes[key][0][row])
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
        recorded = self._cubes[dataset, split, system, metric][1].tolist()
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
        first: dict[tuple[str, str], np.ndarray] = {}
        for (dataset, split, *_), (_, _, clusters) in self._cubes.items():
            first.setdefault((dataset, split), clusters)
        return first

    def means(self, dataset: str, system: str, metric: str, split: str = "test") -> pd.Series:
        """Seed -> mean over items; empty where there are no values.

        A system without seeds has its one figure for every seed.
        """
        if not self.has(dataset, system, metric, split):
            return pd.Series(dtype=float)
        values, seeds, _ = self._cubes[dataset, split, system, metric]
        means = np.nanmean(values, axis=1)
        if seeds.tolist() == [NO_SEED]:
            return pd.Series(means[0], index=self.seeds_of(dataset))
        return pd.Series(means, index=seeds)

    def curves(self, dataset: str, system: str, metric: str) -> np.ndarray:
        """Learning curves (seeds, epochs) of a figure of the epochs, such as "dev_loss"."""
        return self._cubes[dataset, EPOCHS, system, metric][0]

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


def features_of(header: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a header says of the image features: "set", "sha256" and more; empty for none.

    A record from before feature sets had names tells them by the files that it read.
    """
    if "features" in header:
        return header["features"]
    inputs = header.get("inputs", {})
    files = {Path(name).stem: name for name in inputs if FEATURE_FILE.search(name)}
    if len(files) != 1:
        return {}
    ((name, file),) = files.items()
    return {"set": name, "sha256": inputs[file]}


def other_features(header: Mapping[str, Any]) -> str:
    """Which features were recorded and which this process uses, where they differ; else "".

    In use are those of "features_used", which `suite.record.read` adds to a header.
    """
    used, recorded = header.get("features_used"), features_of(header)
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
