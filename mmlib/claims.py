"""Results, intervals, verdicts, the paper's tables beside ours, and the check of figures."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from scipy import stats

from mmlib.core.paths import PACKAGE, write_atomic
from mmlib.suite.outcomes import effect_text, expected_sets, made_with

Verdict = Literal["supported", "not supported", "opposite", "not tested"]


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
    write_atomic(folder / "results.csv", lambda path: table.to_csv(path, index=False))
    return table


def write_json(path: Path, value: object) -> None:
    """Write JSON atomically, with NumPy's numbers as plain ones."""
    text = json.dumps(
        value, indent=1, ensure_ascii=False, default=lambda x: x.item(), allow_nan=False
    )
    write_atomic(path, lambda p: p.write_text(text + "\n", encoding="utf-8"))


# --- The paper's figures ----------------------------------------------------------------------


@cache
def paper_tables(name: str) -> dict[str, dict]:
    """The printed tables of a paper ("links", ...) by id, from `papers/<name>/tables.json`."""
    content = json.loads((PACKAGE / "papers" / name / "tables.json").read_text(encoding="utf-8"))
    return {table["id"]: table for table in content["tables"]}


def paper_values(name: str, table: str) -> pd.DataFrame:
    """One printed table: a row a system, a column a metric, as printed."""
    printed = paper_tables(name)[table]
    rows = {row["name"]: row["values"] for row in printed["rows"]}
    return pd.DataFrame.from_dict(rows, orient="index")[printed["columns"]]


def beside(ours: pd.DataFrame, paper: pd.DataFrame, digits: int = 1) -> pd.DataFrame:
    """Our results beside the paper's: a row a system, a column pair (paper, ours) a metric.

    ours: columns system, metric, seed, value (one data set). A cell of ours is the mean over
    seeds with the standard deviation over seeds; "–" stands where there is nothing.
    """
    columns = {}
    for metric in paper.columns:
        own = ours[ours.metric == metric].groupby("system").value
        columns[metric, "paper"] = paper[metric].map(lambda v: "–" if pd.isna(v) else str(v))
        columns[metric, "ours"] = own.agg(
            lambda v: f"{v.mean():.{digits}f}" + (f" ± {v.std():.{digits}f}" if len(v) > 1 else "")
        )
    table = pd.DataFrame(columns)
    order = [*paper.index, *(s for s in table.index if s not in paper.index)]
    return table.reindex(order).astype(object).fillna("–")


# --- Intervals --------------------------------------------------------------------------------


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


# --- Claims -----------------------------------------------------------------------------------


RULE = """The rule, fixed before the run. A claim of the form "A > B" is
- supported when the whole 95 % interval of the effect lies above 0,
- opposite when the whole interval lies below 0,
- not supported otherwise.
A claim of the form "A hardly differs from B" has a margin and is
- supported when the whole interval lies inside ± margin,
- opposite when the whole interval lies outside,
- not supported otherwise.
A claim over several data sets or systems has a part for each: it is supported when every part is,
opposite when every part is, and not supported otherwise. The table shows its weakest part."""


def judge(estimate: Estimate, margin: float | None = None) -> Verdict:
    """The verdict of `RULE` on one effect; `margin` makes it a claim of no difference."""
    low, high = estimate.low, estimate.high
    if not np.isfinite([low, high]).all():
        return "not tested"
    if margin is None:
        return "supported" if low > 0 else "opposite" if high < 0 else "not supported"
    if -margin < low and high < margin:
        return "supported"
    return "opposite" if low > margin or high < -margin else "not supported"


@dataclass(frozen=True)
class Claim:
    """A claim of a paper and how it fared.

    claim: the paper's words in short; paper: its figures; comparison: the effect that tests it;
    parts: name -> effect; margin: for claims of no difference; unit: of the effect;
    why: for claims that are not tested, the reason.
    """

    id: str
    claim: str
    paper: str
    comparison: str
    parts: Mapping[str, Estimate]
    unit: str
    margin: float | None = None
    why: str = ""

    @property
    def weakest(self) -> str | None:
        """The part that decides: the one furthest from being supported."""
        if not self.parts:
            return None
        untested = [n for n, part in self.parts.items() if judge(part) == "not tested"]
        if untested:
            return untested[0]
        if self.margin is None:
            return min(self.parts, key=lambda name: self.parts[name].low)
        return max(self.parts, key=lambda name: max(-self.parts[name].low, self.parts[name].high))

    @property
    def verdict(self) -> Verdict:
        """The verdict by `RULE`."""
        verdicts = {judge(part, self.margin) for part in self.parts.values()}
        if len(verdicts) == 1:
            return verdicts.pop()
        return "not supported" if verdicts else "not tested"

    def record(self) -> dict:
        """The claim as a JSON-able dict; effect and interval are those of the weakest part."""
        part = self.parts[self.weakest] if self.weakest else Estimate(np.nan, np.nan, np.nan)
        return {
            "id": self.id, "claim": self.claim, "paper": self.paper, "verdict": self.verdict,
            "comparison": self.comparison, **_plain(part), "unit": self.unit, "margin": self.margin,
            "weakest": self.weakest, "why": self.why or self._reason(),
            "parts": {name: {**_plain(p), "verdict": judge(p, self.margin)}
                      for name, p in self.parts.items()},
        }  # fmt: skip

    def _reason(self) -> str:
        if not self.parts:
            return "this run has nothing to compare"
        if len(self.parts) < 2:
            return ""
        held = [n for n, part in self.parts.items() if judge(part, self.margin) == "supported"]
        return f"{len(held)} of {len(self.parts)} parts supported; weakest: {self.weakest}"


def _plain(estimate: Estimate) -> dict[str, float | None]:
    """An estimate for JSON, which has no NaN and no infinity."""
    return {k: round(v, 4) if np.isfinite(v) else None for k, v in asdict(estimate).items()}


def claims_table(claims: Sequence[Claim], recorded: Path | None = None) -> pd.DataFrame:
    """The ledger of a notebook: a row a claim, with the deciding effect and its interval.

    recorded: file of the claims of a recorded run (`<tier>/<number>_claims.json`), whose verdicts
    stand beside these where there is one.
    """
    before = {}
    if recorded and recorded.exists():
        kept = json.loads(recorded.read_text(encoding="utf-8"))["claims"]
        before = {one["id"]: one["verdict"] for one in kept}
    rows = []
    for record in (claim.record() for claim in claims):
        row = {"claim": record["claim"], "paper": record["paper"],
               "tested by": record["comparison"], "effect, 95 % interval": effect_text(record),
               "verdict": record["verdict"]}  # fmt: skip
        if before:
            row["recorded run"] = before.get(record["id"], "–")
        rows.append({**row, "why": record["why"]})
    return pd.DataFrame(rows, index=pd.Index([claim.id for claim in claims], name="id"))


# --- Expected figures -------------------------------------------------------------------------

CONFIDENCE = 0.999


def tolerance(
    deviation: float, measured: int, run: int, freedom: int | None = None, floor: float = 0.1
) -> float:
    """How far the mean over `run` seeds may lie from the mean over `measured` seeds.

    A prediction interval at `CONFIDENCE`, from the standard deviation over seeds; at least `floor`,
    for what rounding and another processor change. freedom: degrees of freedom of the deviation,
    measured - 1 unless it is pooled over systems. Raises ValueError below 4, that is five seeds.
    """
    freedom = measured - 1 if freedom is None else freedom
    if freedom < 4:
        raise ValueError(f"a tolerance needs at least five seeds, not {measured}")
    quantile = stats.t.ppf((1 + CONFIDENCE) / 2, freedom)
    return max(floor, float(quantile * deviation * np.sqrt(1 / measured + 1 / run)))


def figures_of(table: pd.DataFrame) -> pd.DataFrame:
    """Mean, deviation and number over seeds of every figure "dataset/system/metric"."""
    if table.split.nunique() > 1:
        raise ValueError("figures of several splits must not be averaged: choose one split first")
    names = table.dataset + "/" + table.system + "/" + table.metric
    values = table.groupby(names, sort=False).value
    # A seed that gave no number must not be averaged away.
    mean = values.agg(lambda v: v.mean(skipna=False))
    return pd.DataFrame({"mean": mean, "std": values.std(), "count": values.size()})


def make_expected(
    table: pd.DataFrame, chance: Mapping[str, float], how: Mapping, parameters: Mapping, seeds: int
) -> dict:
    """What an `expected/<tier>/<notebook>.json` holds, from results over several seeds.

    chance: chance level of each figure; figures without one are left out. seeds: how many seeds
    the checked run averages over. parameters: under which the figures hold. The deviation over
    seeds is pooled over the systems of a data set and metric. A figure whose tolerance reaches
    chance or zero could not fail, so it is not held but listed in "not_held".
    """
    means = figures_of(table)
    unknown = sorted(set(chance) - set(means.index))
    if unknown:
        raise ValueError(f"a chance level is given for {unknown[0]!r}, but there is no such figure")
    known = means.loc[[name for name in means.index if name in chance]]
    kind = known.index.str.replace(r"/.*/", "/", regex=True)  # data set and metric
    weight = known["count"] - 1
    freedom = weight.groupby(kind).transform("sum")
    pooled = np.sqrt(
        (weight * known["std"].fillna(0) ** 2).groupby(kind).transform("sum") / freedom
    )
    figures, not_held = {}, []
    for name, row in known.iterrows():
        value, measured = float(row["mean"]), int(row["count"])
        width = tolerance(float(pooled[name]), measured, seeds, int(freedom[name]))
        if min(abs(value), abs(value - chance[name])) <= width:
            not_held.append(name)
            continue
        figures[name] = {
            "value": round(value, 3), "tolerance": round(width, 3),
            "chance": round(chance[name], 3), "deviation": round(float(pooled[name]), 3),
            "seeds": measured,
        }  # fmt: skip
    return {
        "how": dict(how), "parameters": dict(parameters), "figures": figures,
        "not_held": not_held,
    }  # fmt: skip


def check_figures(table: pd.DataFrame, expected: Path, parameters: Mapping) -> dict:
    """Compare a run's figures with the expected ones.

    table: results as `save_results` returns them. parameters: of this run; where the expected file
    holds no set of figures made with them, nothing is comparable and nothing fails.
    A figure that is expected but missing is outside its tolerance.

    Returns what goes into checks.json.
    """
    check: dict = {"expected_file": str(expected), "comparable": False, "why": "", "figures": []}
    if not expected.exists():
        return {**check, "expected_file": None, "why": f"there is no {expected.name} for this tier"}
    own = json.loads(json.dumps(dict(parameters)))  # as they look in a file: no tuples
    sets = expected_sets(expected)
    content = next((one for one in sets if made_with(one, own)), None)
    if content is None:
        other = {k: v for k, v in sets[0]["parameters"].items() if own.get(k) != v}
        told = ", ".join(f"{k} is {own.get(k)}, not {v}" for k, v in other.items())
        return {**check, "why": f"other parameters than those of the expected figures: {told}"}
    means = figures_of(table)["mean"]
    for name, figure in content["figures"].items():
        value = float(means[name]) if name in means else None
        within = value is not None and abs(value - figure["value"]) <= figure["tolerance"]
        value = value if value is None or np.isfinite(value) else None  # JSON has no NaN
        check["figures"].append(
            {"figure": name, "value": value, "expected": figure["value"],
             "tolerance": figure["tolerance"], "within": within}
        )  # fmt: skip
    return {**check, "comparable": True}


def print_check(check: Mapping) -> None:
    """One line a figure; its words, unlike the numbers, are the same from run to run."""
    if not check["comparable"]:
        print(f"not compared: {check['why']}")
    for figure in check["figures"]:
        if figure["within"]:
            print(f"{figure['figure']}: within tolerance")
        else:
            print("{figure}: {value} is OUTSIDE {expected} ± {tolerance}".format(**figure))
