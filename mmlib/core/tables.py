"""Tables: a run's results, and the paper's printed figures beside ours."""

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from mmlib.core.paths import PACKAGE, write_atomic

COMPUTED = ("=", "+", "-", "@", "\t", "\r")  # how a cell begins that spreadsheets compute
FIGURE = re.compile(r"[+-][\d.][^()|!=@]*")  # calls nothing


@dataclass(frozen=True)
class Result:
    """One figure of one run. `settings` is a hash of how it was obtained."""

    system: str
    dataset: str
    split: str
    metric: str
    value: float
    seed: int
    settings: str


def save_results(results: Iterable[Result], folder: Path) -> pd.DataFrame:
    """Write `results.json` and `results.csv` into a folder; returns the same as a table."""
    table = pd.DataFrame([asdict(r) for r in results])
    records = table.to_dict("records")
    write_json(folder / "results.json", records)
    safe = without_formulas(table)
    write_atomic(folder / "results.csv", lambda path: safe.to_csv(path, index=False))
    return table


def without_formulas(table: pd.DataFrame) -> pd.DataFrame:
    """A table to be written as CSV: an apostrophe before text that spreadsheets would compute.

    Such text begins with =, +, -, @, a tab or a carriage return. A figure, as "-1.5" or
    "+1.2 [+0.3, +2.1] AUC", stays as it is.
    """
    table = table.rename(index=_no_formula, columns=_no_formula)
    return table.apply(lambda c: c if pd.api.types.is_numeric_dtype(c) else c.map(_no_formula))


def _no_formula(cell: Any) -> Any:
    if isinstance(cell, str) and cell.startswith(COMPUTED) and not FIGURE.fullmatch(cell):
        return f"'{cell}"
    return cell


def write_json(path: Path, value: object) -> None:
    """Write JSON atomically, with NumPy's numbers as plain ones."""
    text = json.dumps(
        value, indent=1, ensure_ascii=False, default=lambda x: x.item(), allow_nan=False
    )
    write_atomic(path, lambda p: p.write_text(text + "\n", encoding="utf-8"))


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


def mean_and_deviation(values: pd.Series) -> str:
    """Mean ± standard deviation of a figure over seeds; without the latter where all are equal."""
    spread = values.std()
    return f"{values.mean():.1f}" + (f" ± {spread:.1f}" if spread > 1e-6 else "")


def beside(ours: pd.DataFrame, paper: pd.DataFrame) -> pd.DataFrame:
    """Our results beside the paper's: rows are systems; each metric has columns (paper, ours).

    ours: columns system, metric, seed, value (one data set). A cell of ours is the mean and the
    standard deviation over seeds, without the latter where all are equal; "–" means no value.
    """
    columns = {}
    for metric in paper.columns:
        values = ours[ours.metric == metric].groupby("system").value
        columns[metric, "paper"] = paper[metric].map(lambda v: "–" if pd.isna(v) else str(v))
        columns[metric, "ours"] = values.agg(mean_and_deviation)
    table = pd.DataFrame(columns)
    order = [*paper.index, *(s for s in table.index if s not in paper.index)]
    return table.reindex(order).astype(object).fillna("–")
