"""Check what a notebook's run left behind: its results, its claims, its figures' tolerances."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from mmlib.core.claims import OUTCOMES, effect_text
from mmlib.core.evidence import OTHER_FEATURES
from mmlib.core.files import listed
from mmlib.core.paths import table_beside

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
    read: dict[str, Any] = {}
    for name in RESULTS:
        try:
            text = (report.out / name).read_text(encoding="utf-8")
            if name == "results.csv":
                fault = "holds no result" * (len(text.splitlines()) < 2)
            else:
                content = strict_json(text)
                if not (fault := form_fault(FORMS[name], content)):
                    read[name] = content
        except FileNotFoundError:
            fault = f"is missing in {report.out}"
        except ValueError as error:
            fault = f"is not JSON: {error}"
        if fault:
            report.problems.append(f"{name}: {fault}")
    report.claims, report.checks = read.get("claims.json", []), read.get("checks.json", {})
    line = "{figure} left its tolerance: {value}, expected {expected} ± {tolerance}"
    outside = [figure for figure in report.checks.get("figures", ()) if not figure["within"]]
    report.problems += [line.format(**figure) for figure in outside]
    if not listed(report.out / "figures", "*.png"):
        report.problems.append(f"no figure (*.png) in {report.out / 'figures'}")


def strict_json(text: str) -> Any:
    """What JSON says. Raises ValueError for anything else, also NaN and infinite numbers."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no number of JSON")

    return json.loads(text, parse_constant=refuse)


def form_fault(schema: Mapping[str, Any], content: Any) -> str:
    """The first fault in the content of a file by its JSON Schema; empty where it has none."""
    import jsonschema  # late: it takes a second

    first = next(jsonschema.Draft202012Validator(schema).iter_errors(content), None)
    if first is None:
        return ""
    text = first.message  # it begins with the value, which may be a whole table
    return f"{first.json_path}: {text if len(text) < LONG else '… ' + text[-LONG // 2 :]}"


def verdict_counts(claims: Sequence[Mapping[str, Any]]) -> str:
    """How many claims have which outcome, in words: "2 hold, 1 open"; empty for none."""
    verdicts = [claim.get("verdict") for claim in claims]
    counts = {outcome: sum(v in of for v in verdicts) for outcome, of in OUTCOMES.items()}
    return ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)


def summary_text(reports: Sequence[NotebookReport]) -> str:
    """What is printed at the end: each notebook's outcome, and one table of all claims."""
    blocks, table = list[str](), list[str]()
    for report in reports:
        lines = [
            f"{report.notebook}  {'done' if report.ok else 'FAILED'} in {clock(report.seconds)}",
            f"  claims   {verdict_counts(report.claims) or 'none'}",
            f"  figures  {figures_line(report.checks)}",
            *(f"  problem  {problem.splitlines()[0]}" for problem in report.problems),
            f"  results  {os.path.relpath(report.out)}",
            f"  notebook {os.path.relpath(report.executed)}",
        ]
        blocks.append("\n".join(lines))
        number = report.notebook[:2]
        why = report.checks.get("why", "")
        if report.claims and why.startswith(OTHER_FEATURES):
            table.append(f"{number}  verdicts of the record, not of this run, which was {why}:")
        for claim in report.claims:
            effect = "" if (text := effect_text(claim)) == "–" else f": {text}"
            words = claim["claim"] + effect + f" ({claim['why']})" * bool(claim["why"])
            verdict = claim.get("words", claim["verdict"])
            table.append(f"{number}  {claim['id']:<4}  {verdict:<17}  {words}")
    if table:
        blocks.append("\n".join(["    claim and verdict", *table]))
    return "\n\n".join(blocks)


def figures_line(checks: Mapping[str, Any]) -> str:
    """How many figures lie within tolerance, or why they were not compared."""
    if not checks.get("comparable"):
        return f"not compared: {checks.get('why') or 'no checks.json'}"
    figures = checks["figures"]
    return f"{sum(figure['within'] for figure in figures)}/{len(figures)} within tolerance"


def clock(seconds: float) -> str:
    """Minutes and seconds, such as 3:07, or 1:03:07 with hours."""
    return str(timedelta(seconds=round(seconds))).removeprefix("0:").removeprefix("0")
