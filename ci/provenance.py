"""Where figures come from: recordings, their commits and machines, seeds, settings, commands."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pages

from mmlib.core.evidence import NO_SEED, Evidence
from mmlib.core.experiment import Experiment
from mmlib.core.recordings import ranges

MOST_GAPS = 4  # of a record that are named in a line


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
    experiment: Experiment[Any, Any], found: Evidence, words: Mapping[str, str]
) -> str:
    """A row a setting, a column a group of data sets with the same ones, then the paper's."""
    groups: dict[str, list[str]] = {}
    flat: dict[str, dict[str, str]] = {}
    for name, settings in found.header["settings"].items():
        values = _flat(settings)
        key = repr(sorted(values.items()))
        flat[key] = values
        groups.setdefault(key, []).append(words.get(name, name))
    of_paper = list(experiment.datasets("paper"))
    paper = _flat(asdict(experiment.budget("paper", of_paper[0]))) if of_paper else {}
    columns = ["setting", *("; ".join(names) for names in groups.values())]
    rows = [
        [setting, *(flat[key].get(setting, pages.NONE) for key in groups)]
        + ([paper.get(setting, pages.NONE)] if of_paper else [])
        for setting in dict.fromkeys(name for values in flat.values() for name in values)
    ]
    table = pages.rows_table(columns + ["the paper's"] * bool(of_paper), rows)
    return pages.folded("Settings", table, len(rows))


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
