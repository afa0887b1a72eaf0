"""Where figures come from: recordings, their commits and machines, seeds, settings, commands."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from typing import Any

import pages

from mmlib.core.errors import DataError
from mmlib.core.evidence import NO_SEED, Evidence
from mmlib.core.experiment import Experiment
from mmlib.core.recordings import ranges

MOST_GAPS = 4  # of a record that are named in a line
NUMBER = re.compile(r"\d*\.?\d+(e-?\d+)?")


def commands(number: str, tier: str, found: Evidence) -> list[str]:
    """The commands that make a tier's record, one for each number of seeds."""
    groups: dict[int, list[str]] = {}
    for name in found.datasets:
        groups.setdefault(max(found.seeds_of(name), default=0) + 1, []).append(name)
    # Of other tiers than the world a data set may have no record.
    named = len(groups) > 1 or (len(found.datasets) == 1 and tier != "world")
    return [
        f"mmlib record {number} --tier {tier} --seeds {seeds}"
        + f" --datasets {shlex.join(names)}" * named
        for seeds, names in groups.items()
    ]


def cost(seconds: float) -> str:
    """CPU time in words."""
    minutes = seconds / 60
    if minutes < 1:
        return f"{seconds:.0f} CPU seconds"
    return f"{minutes / 60:.1f} CPU hours" if minutes >= 6 else f"{minutes:.1f} CPU minutes"


def recordings(number: str, tier: str, found: Evidence, gaps: Sequence[str]) -> str:
    """How to make a record, what it cost and lacks; a row a commit and machine that recorded."""
    listed = "`, `".join(commands(number, tier, found))
    lacking = "; ".join(gaps) or "nothing"
    if len(gaps) > MOST_GAPS:
        lacking = f"{len(gaps)} gaps, which `mmlib judge {number} --tier {tier}` names"
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for header in found.recordings:
        torch = str(header.get("versions", {}).get("torch") or "unknown")
        made = (f"`{(header.get('commit') or 'unknown')[:12]}`", machine_of(header), torch)
        groups.setdefault((*made, str(header.get("note") or pages.NONE)), []).append(header)
    rows = []
    for (*recorded, note), headers in groups.items():
        seeds: dict[str, set[int]] = {}  # by data set, and those with the same seeds together
        for header in headers:
            for name, systems in header["jobs"].items():
                seeds.setdefault(name, set()).update(*systems.values())
        names: dict[str, list[str]] = {}
        for name, numbers in seeds.items():
            names.setdefault(ranges(sorted(numbers - {NO_SEED})) or "no seed", []).append(name)
        trained = ", ".join(f"{numbers} ({'; '.join(of)})" for numbers, of in names.items())
        spent = cost(sum(header["cpu_seconds"] for header in headers))
        shown = trained if len(names) > 1 else next(iter(names))
        rows.append([str(len(headers)), shown, *recorded, spent, note])
    columns = ["files", "seeds", "commit", "trained on", "PyTorch", "cost", "note"]
    spent = cost(found.header["cpu_seconds"])
    return f"`{listed}`; {spent}. Missing: {lacking}.\n\n{pages.rows_table(columns, rows)}"


def machine_of(header: Mapping[str, Any]) -> str:
    """The machine of a recording: the GPU where one trained, else cores and instructions."""
    machine = header.get("machine", {})
    if header.get("device", "cpu") != "cpu" and machine.get("gpu"):
        return str(machine["gpu"])
    if not machine.get("cores"):
        return "several machines"
    instructions = machine.get("instructions")
    return f"{machine['cores']} CPU cores" + (f", {instructions}" if instructions else "")


def seeds_table(found: Evidence, words: Mapping[str, str]) -> str:
    """How many seeds each data set has."""
    groups: dict[str, list[str]] = {}
    for name in found.datasets:
        seeds = str(len(found.seeds_of(name)) or "none")
        groups.setdefault(seeds, []).append(words.get(name, name))
    rows = [["; ".join(names), seeds] for seeds, names in groups.items()]
    return pages.rows_table(["data set", "seeds"], rows)


def settings_table(
    experiment: Experiment[Any, Any], written: str, tiers: Mapping[str, str],
    words: Mapping[str, str],
) -> str:  # fmt: skip
    """A row a setting: the paper's, its code's, ours by tier as the budgets have them, and why.

    written: rows of study.md, a pattern of settings, the paper's, the code's, and why ours differ.
    Raises DataError for a setting without a row, a row without a setting, and a deviation without
    a reason: from the paper, and where that does not say, from the code.
    """
    known = {row[0]: row[1:] for row in pages.written_rows(written)}
    ours: dict[str, dict[str, dict[str, list[str]]]] = {}  # setting, tier, value: data sets
    recorded = [tier for tier in tiers if tier == "paper" or experiment.claims_of(tier)]
    for tier, name in ((t, name) for t in recorded for name in experiment.datasets(t)):
        budget = experiment.budget(tier, name)
        applied = getattr(budget, "applied", lambda dataset, budget=budget: budget)(name)
        for setting, value in _flat(asdict(applied)).items():
            values = ours.setdefault(setting, {}).setdefault(tier, {})
            values.setdefault(value, []).append(words.get(name, name))
    rows, used = [], set()
    for setting, by_tier in ours.items():
        if not (pattern := next((p for p in known if fnmatchcase(setting, p)), "")):
            raise DataError(f"study.md, Settings: no row for {setting!r}")
        used.add(pattern)
        paper, code, why = known[pattern]
        meant = code if paper == pages.NONE else paper
        others = [v for of in by_tier.values() for v in of if not _among(v, meant)]
        if others and why == pages.NONE:
            raise DataError(f"study.md, Settings: {setting} is {others[0]}, not {meant}: say why")
        of_tiers = [_by_data_set(by_tier.get(tier, {})) for tier in recorded]
        rows.append([setting, paper, code, *of_tiers, why])
    if unused := known.keys() - used:
        raise DataError(f"study.md, Settings: there is no setting {min(unused)!r}")
    columns = ["setting", "paper", "authors' code", *(tiers[t] for t in recorded), "why"]
    return pages.folded("Settings", pages.rows_table(columns, rows), len(rows))


def _among(value: str, said: str) -> bool:
    """Whether what is said is not known, or has a value among its words."""
    words = {f"{float(w):g}" if NUMBER.fullmatch(w) else w for w in re.split(r"[\s;,()]+", said)}
    return said in (pages.NONE, value) or value in words


def _by_data_set(values: Mapping[str, Sequence[str]]) -> str:
    """The value of most data sets, then the others, each with its data sets."""
    most = max(values, key=lambda value: len(values[value]), default=pages.NONE)
    others = [f"{value} ({', '.join(of)})" for value, of in values.items() if value != most]
    return "; ".join([most, *others])


def _flat(settings: Mapping[str, Any], above: str = "") -> dict[str, str]:
    """Nested settings as one dict, in words: "judge: text layers" for one that lies deeper."""
    flat: dict[str, str] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{above}{name}: ")
        else:
            text = f"{value:g}" if isinstance(value, float) else str(value)
            flat[f"{above}{name}".replace("_", " ")] = text or pages.NONE
    return flat
