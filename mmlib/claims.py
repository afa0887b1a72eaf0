"""Claims and their verdicts, and the check of a run's figures against the recorded ones."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from scipy import stats

from mmlib.core.intervals import (  # noqa: F401  some for claims.X in the notebooks
    Estimate,
    bootstrap_interval,
    crossed_interval,
    mean_interval,
)
from mmlib.core.tables import (  # noqa: F401
    Result,
    beside,
    paper_tables,
    paper_values,
    save_results,
    write_json,
)

Verdict = Literal["supported", "not supported", "opposite", "not tested"]
VERDICTS = get_args(Verdict)


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
        verdicts = {self.verdict_of(name) for name in self.parts}
        if len(verdicts) == 1:
            return verdicts.pop()
        return "not supported" if verdicts else "not tested"

    def verdict_of(self, part: str) -> Verdict:
        """The verdict by `RULE` on one part alone."""
        return judge(self.parts[part], self.margin)

    def record(self) -> dict:
        """The claim as a JSON-able dict; effect and interval are those of the weakest part."""
        part = self.parts[self.weakest] if self.weakest else Estimate(np.nan, np.nan, np.nan)
        return {
            "id": self.id, "claim": self.claim, "paper": self.paper, "verdict": self.verdict,
            "comparison": self.comparison, **_plain(part), "unit": self.unit, "margin": self.margin,
            "weakest": self.weakest, "why": self.why or self._reason(),
            "parts": {name: {**_plain(p), "verdict": self.verdict_of(name)}
                      for name, p in self.parts.items()},
        }  # fmt: skip

    def _reason(self) -> str:
        if not self.parts:
            return "this run has nothing to compare"
        if len(self.parts) < 2:
            return ""
        held = [name for name in self.parts if self.verdict_of(name) == "supported"]
        return f"{len(held)} of {len(self.parts)} parts supported; weakest: {self.weakest}"


def _plain(estimate: Estimate) -> dict[str, float | None]:
    """An estimate for JSON, which has no NaN and no infinity."""
    return {k: round(v, 4) if np.isfinite(v) else None for k, v in asdict(estimate).items()}


def effect_text(claim: Mapping[str, Any]) -> str:
    """A claim's effect with its interval and unit, in two digits; "–" where it has none."""
    if any(claim.get(key) is None for key in ("effect", "low", "high")):
        return "–"
    numbers = "{effect:+.2f} [{low:+.2f}, {high:+.2f}]".format(**claim)
    return f"{numbers} {claim.get('unit') or ''}".rstrip()


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


def expected_sets(path: Path) -> list[dict[str, Any]]:
    """The sets of expected figures in a file: that of the default parameters, then the variants."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return [content, *content.get("variants", [])]


def made_with(expected: dict[str, Any], parameters: dict[str, Any]) -> bool:
    """Whether a set of expected figures was made with the parameters of a run.

    A model is known by its last name, wherever it lies ("/models/bert-base" is "bert-base").
    """
    named = {
        k: re.split(r"[/\\]", v)[-1] if isinstance(v, str) else v for k, v in parameters.items()
    }
    return all(
        v in (parameters.get(k), named.get(k)) for k, v in expected.get("parameters", {}).items()
    )


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
