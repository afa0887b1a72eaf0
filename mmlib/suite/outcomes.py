"""Check what a notebook's run left behind: its results, its claims, its figures' tolerances."""

import csv
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import jsonschema

from mmlib.core.claims import Verdict, effect_text
from mmlib.core.evidence import OTHER_FEATURES
from mmlib.core.files import listed
from mmlib.core.paths import table_beside

VERDICTS = get_args(Verdict)
RESULTS = ("results.json", "results.csv", "claims.json", "checks.json")


FORMS: dict[str, Any] = table_beside(__file__)
LONG = 200  # characters of a message


@dataclass
class NotebookReport:
    """What came of one notebook: `problems` is empty when all is well."""

    notebook: str
    executed: Path
    out: Path
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)
    claims: list[dict[str, Any]] = field(default_factory=list)
    checks: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether the notebook ran, wrote its results, and its figures lie within tolerance."""
        return not self.problems


def read_results(report: NotebookReport) -> None:
    """Read the results into `report`, adding a line to its problems for each fault."""
    _read_json(report, "results.json")
    report.claims = _read_json(report, "claims.json") or []
    report.checks = _read_json(report, "checks.json") or {}
    if report.checks:
        report.problems += check_problems(report.checks)
    table = report.out / "results.csv"
    if not table.exists():
        report.problems.append(f"results.csv is missing in {report.out}")
    else:
        with table.open(encoding="utf-8", newline="") as file:
            if sum(1 for _ in csv.reader(file)) < 2:
                report.problems.append("results.csv holds no result")
    if not listed(report.out / "figures", "*.png"):
        report.problems.append(f"no figure (*.png) in {report.out / 'figures'}")


def _read_json(report: NotebookReport, name: str) -> Any:
    """The content of a result file, or None with a problem noted."""
    try:
        content = strict_json((report.out / name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        report.problems.append(f"{name} is missing in {report.out}")
    except ValueError as error:
        report.problems.append(f"{name} is not JSON: {error}")
    else:
        if not (fault := form_fault(FORMS[name], content)):
            return content
        report.problems.append(f"{name}, {fault}")
    return None


def strict_json(text: str) -> Any:
    """What JSON says. Raises ValueError for anything else, also NaN and infinite numbers."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no number of JSON")

    return json.loads(text, parse_constant=refuse)


def form_fault(schema: Mapping[str, Any], content: Any) -> str:
    """The first fault in the content of a file by its JSON Schema; empty where it has none."""
    first = next(jsonschema.Draft202012Validator(schema).iter_errors(content), None)
    if first is None:
        return ""
    text = first.message  # it begins with the value, which may be a whole table
    return f"{first.json_path}: {text if len(text) < LONG else '… ' + text[-LONG // 2 :]}"


def check_problems(checks: dict[str, Any]) -> list[str]:
    """Figures that left their tolerance."""
    if not checks["comparable"]:
        return []
    line = "{figure} left its tolerance: {value}, expected {expected} ± {tolerance}"
    return [line.format(**figure) for figure in checks["figures"] if not _is_within(figure)]


def _is_within(figure: Mapping[str, Any]) -> bool:
    return within(figure["value"], figure["expected"], figure["tolerance"])


def within(value: Any, expected: Any, tolerance: Any) -> bool:
    """Whether a figure lies within its tolerance; a missing or NaN figure does not."""
    numbers = (value, expected, tolerance)
    if not all(isinstance(n, int | float) and math.isfinite(n) for n in numbers):
        return False
    return abs(value - expected) <= tolerance


def verdict_counts(claims: Sequence[Mapping[str, Any]]) -> str:
    """How many claims got each verdict, in words: "2 supported, 1 opposite"; empty for none."""
    counts = Counter(claim.get("verdict") for claim in claims)
    return ", ".join(f"{counts[v]} {v}" for v in VERDICTS if counts[v])


def summary_text(reports: Sequence[NotebookReport]) -> str:
    """What is printed at the end: each notebook's outcome, and one table of all claims."""
    blocks: list[str] = []
    table: list[str] = []
    for r in reports:
        lines = [
            f"{r.notebook}  {'done' if r.ok else 'FAILED'} in {clock(r.seconds)}",
            f"  claims   {verdict_counts(r.claims) or 'none'}",
            f"  figures  {figures_line(r.checks)}",
            *(f"  problem  {problem.splitlines()[0]}" for problem in r.problems),
            f"  results  {_from_here(r.out)}",
            f"  notebook {_from_here(r.executed)}",
        ]
        blocks.append("\n".join(lines))
        if r.claims and (why := r.checks.get("why", "")).startswith(OTHER_FEATURES):
            table.append(
                f"{r.notebook[:2]}  verdicts of the record, not of this run, which was {why}:"
            )
        table += [f"{r.notebook[:2]}  {c['id']:<4}  {_claim_line(c)}" for c in r.claims]
    if table:
        blocks.append("\n".join(["    claim and verdict", *table]))
    return "\n\n".join(blocks)


def _claim_line(claim: dict[str, Any]) -> str:
    """One claim: verdict, words, effect with its interval, and why where that says more."""
    line = f"{claim['verdict']:<13}  {claim['claim']}"
    if (effect := effect_text(claim)) != "–":
        line += f": {effect}"
    return line + (f" ({claim['why']})" if claim["why"] else "")


def figures_line(checks: dict[str, Any]) -> str:
    """How many figures lie within tolerance, or why they were not compared."""
    if not checks.get("comparable"):
        return f"not compared: {checks.get('why') or 'no checks.json'}"
    figures = checks["figures"]
    return f"{sum(map(_is_within, figures))}/{len(figures)} within tolerance"


def clock(seconds: float) -> str:
    """Minutes and seconds, such as 3:07, or 1:03:07 with hours."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _from_here(path: Path) -> Path:
    """A path as seen from the working directory, where it lies in there."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
