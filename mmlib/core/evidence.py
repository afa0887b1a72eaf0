"""Evidence: what recorded runs found, item by item, and how they were made.

`evidence/<tier>/<paper>.parquet` is a tidy table (`mmlib.core.experiment.tidy`) and
`<paper>.json` beside it a header: source, versions, machine, seeds, settings, CPU seconds.
Tables, figures and verdicts are computed from it alone.
"""

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from mmlib.core.errors import DataError
from mmlib.core.fit import still_improving
from mmlib.core.paths import PACKAGE, write_atomic

EPOCHS = "epochs"  # the split under which learning curves stand
NO_SEED = -1  # the seed of a system that knows none, such as a closed form
COMMON = tuple(
    "paper tier dataset split system seed item cluster metric value".split()
)  # what all tidy tables have
VERSIONS = ("torch", "numpy", "scipy", "gensim")
# What a header must have.
NEEDED = {"paper", "tier", "source", "data", "settings", "machine", "versions", "cpu_seconds"}


@dataclass(frozen=True, eq=False)
class Evidence:
    """A tidy table and its header.

    table: columns paper, tier, dataset, split, system, the systems' columns, seed, item, cluster,
    metric, value; header: see `header`.
    """

    table: pd.DataFrame
    header: Mapping[str, Any]

    @cached_property
    def _rows(self) -> dict[tuple[str, str, str, str], np.ndarray]:
        """(dataset, split, system, metric) -> the numbers of its rows, in their order."""
        keys = self.table[["dataset", "split", "system", "metric"]].astype("category")
        codes = np.stack([keys[name].cat.codes for name in keys])
        new = (codes[:, 1:] != codes[:, :-1]).any(axis=0)
        starts = np.flatnonzero(np.r_[len(keys) > 0, new])  # of runs of equal keys: few, as written
        runs = keys.iloc[starts].itertuples(index=False, name=None)
        found: dict[tuple[str, str, str, str], list[np.ndarray]] = {}
        for key, rows in zip(runs, np.split(np.arange(len(keys)), starts[1:]), strict=False):
            found.setdefault(key, []).append(rows)
        return {key: np.concatenate(parts) for key, parts in found.items()}

    @cached_property
    def _cubes(self) -> dict[tuple[str, str, str, str], tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """(dataset, split, system, metric) -> values (seeds, items), seeds, clusters."""
        columns = [self.table[name].to_numpy() for name in ("seed", "item", "cluster", "value")]
        found = {}
        for key, rows in self._rows.items():
            seed, item, cluster, value = (column[rows] for column in columns)
            seeds, row = np.unique(seed, return_inverse=True)
            items, first, place = np.unique(item, return_index=True, return_inverse=True)
            cube = np.full((len(seeds), len(items)), np.nan)
            cube[row, place] = value
            found[key] = (cube, seeds, cluster[first])
        return found

    @cached_property
    def datasets(self) -> list[str]:
        """Data sets by name."""
        return list(dict.fromkeys(dataset for dataset, *_ in self._rows))

    @cached_property
    def seeds(self) -> list[int]:
        """The seeds that some data set has, in order."""
        return sorted(set().union(*self._seeds.values()))

    def seeds_of(self, dataset: str) -> list[int]:
        """The seeds that every system of a data set has which knows one, in order."""
        return self._seeds.get(dataset, [])

    @cached_property
    def _seeds(self) -> dict[str, list[int]]:
        own: dict[str, dict[str, set[int]]] = {}
        for dataset, system, seed in self._jobs:
            if seed != NO_SEED:
                own.setdefault(dataset, {}).setdefault(system, set()).add(seed)
        return {name: sorted(set.intersection(*each.values())) for name, each in own.items()}

    def systems(self, dataset: str) -> list[str]:
        """The systems of a data set by name."""
        return list(dict.fromkeys(s for name, _, s, _ in self._cubes if name == dataset))

    def metrics(self, dataset: str, system: str, split: str = "test") -> list[str]:
        """The metrics of a system's values."""
        return [m for name, s, own, m in self._cubes if (name, s, own) == (dataset, split, system)]

    @cached_property
    def _jobs(self) -> set[tuple[str, str, int]]:
        return {
            (dataset, system, int(seed))
            for (dataset, _, system, _), (_, seeds, _) in self._cubes.items()
            for seed in seeds
        }

    def columns(self) -> dict[tuple[str, str], dict[str, str]]:
        """(dataset, system) -> the columns that say what the system is, as text."""
        names = ["system", *(name for name in self.table.columns if name not in COMMON)]
        first: dict[tuple[str, str], int] = {}
        for (dataset, _, system, _), own in self._rows.items():
            first.setdefault((dataset, system), own[0])
        rows = self.table.iloc[list(first.values())]
        told = rows[names].to_dict("records")
        return {
            (dataset, row["system"]): {k: v for k, v in row.items() if not pd.isna(v)}
            for dataset, row in zip(rows.dataset, told, strict=True)
        }

    def has_job(self, dataset: str, system: str, seed: int) -> bool:
        """Whether a job's values are there."""
        return (dataset, system, seed) in self._jobs

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

        seeds: those of them that the data set has; default: all that it has. A system that knows no
        seed (a closed form) has its one row for every seed.
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
        """`figure` of each row of `values`: a seed's is worked out once and kept under `name`."""
        rows = self._rows_of(dataset, system, metric, seeds, split)
        key = dataset, split, system, metric
        kept = self._derived.setdefault((name, *key), {})
        for row in set(rows) - kept.keys():
            kept[row] = figure(self._cubes[key][0][row])
        return np.array([kept[row] for row in rows])

    @cached_property
    def _derived(self) -> dict[tuple[str, ...], dict[int, np.ndarray]]:
        return {}

    def _rows_of(
        self, dataset: str, system: str, metric: str, seeds: Sequence[int] | None, split: str
    ) -> list[int]:
        """The rows of a cube that are of these seeds; see `values`."""
        if not self.has(dataset, system, metric, split):
            raise DataError(f"no evidence of {metric} of {system} on {dataset} ({split})")
        known = self._cubes[dataset, split, system, metric][1].tolist()
        there = self.seeds_of(dataset)
        wanted = there if seeds is None else [seed for seed in seeds if seed in there]
        if known == [NO_SEED]:
            return [0] * len(wanted or seeds or self.seeds)
        if seeds is not None and not wanted:
            told = ", ".join(map(str, seeds))
            raise DataError(f"no evidence of {system} on {dataset} for seed {told}")
        row = {seed: i for i, seed in enumerate(known)}
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

        A system that knows no seed has its one figure for every seed.
        """
        if not self.has(dataset, system, metric, split):
            return pd.Series(dtype=float)
        values, seeds, _ = self._cubes[dataset, split, system, metric]
        own = np.nanmean(values, axis=1)
        closed = seeds.tolist() == [NO_SEED]
        return (
            pd.Series(own[0], index=self.seeds_of(dataset))
            if closed
            else pd.Series(own, index=seeds)
        )

    def curves(self, dataset: str, system: str, metric: str) -> np.ndarray:
        """Learning curves (seeds, epochs) of a figure of the epochs, such as "dev_loss"."""
        return self._cubes[dataset, EPOCHS, system, metric][0]

    def unfinished(self, dataset: str, system: str) -> bool:
        """Whether more than a fifth of a system's trainings still improved when they ended."""
        if not self.has(dataset, system, "dev_loss", EPOCHS):
            return False
        curves = self.curves(dataset, system, "dev_loss")
        return bool(np.mean([still_improving(curve) for curve in curves]) > 0.2)


def header(**own: Any) -> dict[str, Any]:
    """How a record was made: commit, versions and machine, and what the caller adds."""
    return {
        "commit": _commit(),
        "versions": {name: version(name).split("+")[0] for name in VERSIONS},
        "python": platform.python_version(),
        "machine": machine(),
        **own,
    }


def recorded_by(header: Mapping[str, Any], dataset: str, seed: int) -> Mapping[str, Any] | None:
    """The machine, versions and data of a seed: of those that added to the record, or the first.

    None where several machines share its systems.
    """
    if seed in header.get("mixed", {}).get(dataset, ()):
        return None
    added = header.get("added", ())
    made = [one for one in added if dataset in one["data"] and seed in one["seeds"]]
    return made[0] if made else header


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
    """Eight digits that tell, of a step of training on one thread, every bit.

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
    seen = torch.cat([states.detach().flatten(), weights.grad.flatten()])
    return hashlib.sha256(seen.numpy().tobytes()).hexdigest()[:8]


def _commit() -> str | None:
    """The checkout's commit; None outside of one."""
    call = ["git", "-C", str(PACKAGE.parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(call, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def evidence_dir() -> Path:
    """Folder of the recorded evidence: beside the package."""
    return PACKAGE.parent / "evidence"


def write(folder: Path, paper: str, evidence: Evidence) -> None:
    """Write table and header of a paper into `folder`, which is of one tier."""
    table = pa.Table.from_pandas(evidence.table, preserve_index=False)
    counts = [field.name for field in table.schema if pa.types.is_integer(field.type)]
    save = partial(  # items and clusters count up, row after row: their differences are tiny
        pq.write_table, table, compression="zstd", compression_level=19,
        use_dictionary=[name for name in table.column_names if name not in counts],
        column_encoding=dict.fromkeys(counts, "DELTA_BINARY_PACKED"),
    )  # fmt: skip
    write_atomic(folder / f"{paper}.parquet", save)
    text = json.dumps(evidence.header, indent=1, ensure_ascii=False)
    write_atomic(folder / f"{paper}.json", lambda path: path.write_text(text + "\n", "utf-8"))


def read(folder: Path, paper: str, version: int | None = None) -> Evidence:
    """The evidence of a paper in a tier's folder.

    version: of the paper's method. Raises DataError where there is none, where a file is damaged,
    and where it is of another version: an old record is never shown as if current.
    """
    path = folder / f"{paper}.parquet"
    try:
        head = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        raw = pq.read_table(path, use_threads=False, pre_buffer=False)  # a third of the time
        table = raw.to_pandas(split_blocks=True, self_destruct=True)
    except FileNotFoundError:
        if path.exists():
            told = f"{path.with_suffix('.json')}: lost; get it again or record anew"
            raise DataError(told) from None
        raise DataError(f"{path}: no evidence is recorded (mmlib record makes it)") from None
    except (OSError, pa.ArrowException, ValueError) as error:
        raise DataError(f"{path}: damaged ({error}); get it again or record anew") from None
    if not isinstance(head, dict) or not head.keys() >= NEEDED:
        raise DataError(f"{path.with_suffix('.json')}: damaged; get it again or record anew")
    if lacking := [name for name in COMMON if name not in table]:
        what = f"damaged (no column {lacking[0]})"
        raise DataError(f"{path}: {what}; get it again or record anew")
    if head["paper"] != paper:
        what = f"is of the paper {head['paper']}"
        raise DataError(f"{path.with_suffix('.json')}: {what}; get it again or record anew")
    if version is not None and (made := head.get("method_version", 1)) != version:
        raise DataError(
            f"{path}: was recorded by version {made} of the method, and this is version {version}: "
            "record anew"
        )
    return Evidence(table, head)
