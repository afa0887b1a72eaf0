"""Tables: a run's results, and the paper's printed figures beside ours."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mmlib.core.effects import Effect, crossed_known
from mmlib.core.errors import DataError
from mmlib.core.evidence import Evidence
from mmlib.core.paths import PACKAGE, write_atomic


def save_results(figures: Mapping[tuple[str, str, int, str], float], folder: Path) -> pd.DataFrame:
    """Write a run's figures, (data set, system, seed, metric) -> value, into a folder.

    They go into `results.json` and `results.csv`; returns the same as a table.
    """
    columns = ["dataset", "system", "seed", "metric", "value"]
    table = pd.DataFrame([(*key, value) for key, value in figures.items()], columns=columns)
    write_json(folder / "results.json", table.to_dict("records"))
    write_atomic(folder / "results.csv", partial(table.to_csv, index=False))
    return table


def write_json(path: Path, value: object) -> None:
    """Write JSON atomically, with NumPy's numbers as plain ones."""
    text = json.dumps(
        value, indent=1, ensure_ascii=False, default=lambda x: x.item(), allow_nan=False
    )
    write_atomic(path, lambda p: p.write_text(text + "\n", "utf-8", "backslashreplace"))


@cache
def paper_tables(name: str) -> dict[str, dict]:
    """The printed tables of a paper ("links", ...) by id, from `papers/<name>/tables.json`."""
    content = json.loads((PACKAGE / "papers" / name / "tables.json").read_text(encoding="utf-8"))
    return {table["id"]: table for table in content["tables"]}


def paper_values(name: str, table: str) -> pd.DataFrame:
    """One printed table: rows are systems, columns are metrics."""
    printed = paper_tables(name)[table]
    rows = {row["name"]: row["values"] for row in printed["rows"]}
    return pd.DataFrame.from_dict(rows, orient="index")[printed["columns"]]


def mean_and_deviation(values: pd.Series | np.ndarray, digits: int = 1) -> str:
    """Mean ± standard deviation of a figure over seeds; without the latter where all are equal."""
    values = pd.Series(values)
    spread = values.std()
    return f"{values.mean():.{digits}f}" + (f" ± {spread:.{digits}f}" if spread > 1e-6 else "")


Term = tuple[str, str]  # a system and a metric


@dataclass(frozen=True)
class Cells:
    """What cells of a table say of a data set's values. DataError where these are not recorded.

    figure: of the values before anything else, such as `np.log2`.
    """

    evidence: Evidence
    dataset: str
    split: str = "test"
    figure: Callable[[np.ndarray], np.ndarray] | None = None

    def has(self, *terms: Term) -> bool:
        """Whether all of these are recorded."""
        return all(self.evidence.has(self.dataset, *term, self.split) for term in terms)

    def named(self, systems: Iterable[str], metric: str) -> dict[str, str]:
        """The systems of which the metric is recorded, by their name in a table.

        It ends with ↗ where more than a fifth of the trainings still improved at their end.
        """
        return {
            name + " ↗" * self.evidence.unfinished(self.dataset, name): name
            for name in systems
            if self.has((name, metric))
        }

    def values(self, terms: Mapping[Term, float]) -> np.ndarray:
        """The sum of the values of terms times their weights, (seeds, items), paired by both."""
        change = (self.figure, self.figure) if self.figure else None
        seeds = self.evidence.seeds_of(self.dataset, *(name for name, _ in terms))
        read = partial(self.evidence.values, seeds=seeds, split=self.split, change=change)
        weighed = [weight * read(self.dataset, *term) for term, weight in terms.items()]
        return np.sum(weighed, axis=0)

    def of_seeds(self, system: str, metric: str) -> np.ndarray:
        """The mean over items of each seed, (seeds,); NaN is skipped."""
        return np.nanmean(self.values({(system, metric): 1}), axis=1)

    def mean(self, system: str, metric: str) -> float:
        """The mean over seeds and items."""
        return float(self.of_seeds(system, metric).mean())

    def spread(self, system: str, metric: str) -> str:
        """The mean over seeds and items ± the standard deviation over seeds."""
        return mean_and_deviation(self.of_seeds(system, metric))

    def effect(self, terms: Mapping[Term, float]) -> Effect:
        """The mean of `values`, with its interval over seeds and clusters of items."""
        return crossed_known(self.values(terms), self.evidence.clusters(self.dataset, self.split))

    def percentage(self, system: str, metric: str) -> str:
        """A mean percentage with its 95 % interval, such as "62 [55, 69]".

        Where that leaves 0 to 100, no symmetric interval can be true: instead, the range of seeds,
        such as "63 (46 to 80)".
        """
        effect, of_seeds = self.effect({(system, metric): 1}), self.of_seeds(system, metric)
        if round(effect.low) >= 0 and round(effect.high) <= 100:
            return effect.told(0, sign="")
        return f"{effect.effect:.0f} ({of_seeds.min():.0f} to {of_seeds.max():.0f})"


def table(
    rows: Iterable[Any],
    columns: Iterable[Any],
    cell: Callable[[Any, Any], Any],
    empty: Any = "–",
    digits: int | None = None,
) -> pd.DataFrame:
    """A table from what its rows and columns are, and how its cells are written.

    rows, columns: labels, or label -> what `cell` takes. cell: (row, column) -> text or a number,
    which is rounded to `digits`; where it raises DataError or returns None the cell is `empty`.
    Rows and columns of which no cell is recorded are left out.
    """
    rows, columns = (
        axis if isinstance(axis, Mapping) else {label: label for label in axis}
        for axis in (rows, columns)
    )
    result: dict[Any, dict[Any, Any]] = {label: {} for label in rows}
    for (label, row), (name, column) in product(rows.items(), columns.items()):
        try:
            result[label][name] = cell(row, column)
        except DataError:
            result[label][name] = None
    frame = pd.DataFrame.from_dict(result, orient="index")
    frame = frame.dropna(how="all").dropna(axis=1, how="all")
    frame = frame if digits is None else frame.round(digits)
    return frame if empty is None else frame.astype(object).fillna(empty)


def beside(ours: pd.DataFrame, paper: pd.DataFrame) -> pd.DataFrame:
    """Our results beside the paper's: rows are systems; each metric has columns (paper, ours).

    Rows are the paper's, then those that are ours alone; "–" means no value.
    """
    columns = {}
    for metric in paper.columns:
        columns[metric, "paper"] = paper[metric].map(lambda v: "–" if pd.isna(v) else str(v))
        columns[metric, "ours"] = ours.get(metric, pd.Series(dtype=object))
    table = pd.DataFrame(columns)
    order = [*paper.index, *(s for s in ours.index if s not in paper.index)]
    return table.reindex(order).astype(object).fillna("–")
