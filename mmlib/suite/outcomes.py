"""Judge what a notebook's run left behind: its results, its claims, its figures' tolerances."""

import csv
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from mmlib.core.claims import Verdict, effect_text

VERDICTS = get_args(Verdict)
RESULTS = ("results.json", "results.csv", "claims.json", "checks.json")
CLAIM_KEYS = {"id", "claim", "verdict", "effect", "low", "high", "unit", "why"}
FIGURE_KEYS = {"figure", "value", "expected", "tolerance", "within"}


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


def judge(report: NotebookReport) -> None:
    """Read the results into `report`, adding a line to its problems for each fault."""
    results = _read_json(report, "results.json", list)
    report.claims = _read_json(report, "claims.json", list)
    report.checks = _read_json(report, "checks.json", dict)
    if results == []:
        report.problems.append("results.json holds no result")
    table = report.out / "results.csv"
    if not table.exists():
        report.problems.append(f"results.csv is missing in {report.out}")
    else:
        with table.open(newline="") as file:
            if sum(1 for _ in csv.reader(file)) < 2:
                report.problems.append("results.csv holds no result")
    if not any((report.out / "figures").glob("*.png")):
        report.problems.append(f"no figure (*.png) in {report.out / 'figures'}")
    if report.claims is not None:
        report.problems += claim_problems(report.claims)
    if report.checks is not None:
        report.problems += check_problems(report.checks)
    report.claims = [c for c in report.claims or [] if isinstance(c, dict)]
    report.checks = report.checks or {}


def _read_json(report: NotebookReport, name: str, kind: type) -> Any:
    """The content of a result file, or None with a problem noted."""
    path = report.out / name
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        report.problems.append(f"{name} is missing in {report.out}")
        return None
    except ValueError as error:
        report.problems.append(f"{name} is not JSON: {error}")
        return None
    if not isinstance(content, kind):
        report.problems.append(f"{name} holds a {type(content).__name__}, not a {kind.__name__}")
        return None
    return content


def claim_problems(claims: list[dict[str, Any]]) -> list[str]:
    """Faults of form in claims.json."""
    if not claims:
        return ["claims.json holds no claim"]
    problems = []
    for number, claim in enumerate(claims, 1):
        missing = CLAIM_KEYS - set(claim) if isinstance(claim, dict) else CLAIM_KEYS
        if missing:
            problems.append(f"claims.json: claim {number} lacks {', '.join(sorted(missing))}")
        elif claim["verdict"] not in VERDICTS:
            problems.append(f"claims.json: {claim['id']} has the verdict {claim['verdict']!r}")
    return problems


def check_problems(checks: dict[str, Any]) -> list[str]:
    """Figures that left their tolerance, and ways in which checks.json says less than it must."""
    for key in ("comparable", "why", "figures"):
        if key not in checks:
            return [f"checks.json lacks {key}"]
    if not checks["comparable"]:
        said = checks["why"]
        return [] if said else ["checks.json: figures not compared, and it does not say why"]
    figures = checks["figures"]
    broken = [f for f in figures if not isinstance(f, dict) or not FIGURE_KEYS <= f.keys()]
    if broken or not figures:
        return ["checks.json: " + (f"incomplete figure {broken[0]}" if broken else "no figure")]
    told = "{figure} left its tolerance: {value}, expected {expected} ± {tolerance}"
    return [
        told.format(**f) for f in figures if not within(f["value"], f["expected"], f["tolerance"])
    ]


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
    blocks, table = [], []
    for r in reports:
        told = verdict_counts(r.claims) or "none"
        state = "done" if r.ok else "FAILED"
        lines = [f"{r.notebook}  {state} in {clock(r.seconds)}", f"  claims   {told}"]
        known = [c for c in r.claims if set(c) >= CLAIM_KEYS]
        table += [f"{r.notebook[:2]}  {c['id']:<4}  {_claim_line(c)}" for c in known]
        lines.append(f"  figures  {figures_line(r.checks)}")
        lines += [f"  problem  {p.splitlines()[0]}" for p in r.problems]
        lines += [f"  results  {_shown(r.out)}", f"  notebook {_shown(r.executed)}"]
        blocks.append("\n".join(lines))
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
    figures = [f for f in checks["figures"] if isinstance(f, dict)]
    good = sum(within(f.get("value"), f.get("expected"), f.get("tolerance")) for f in figures)
    return f"{good}/{len(figures)} within tolerance"


def clock(seconds: float) -> str:
    """Minutes and seconds, such as 3:07, or 1:03:07 with hours."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _shown(path: Path) -> str:
    """A path as seen from here, where that is shorter."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
