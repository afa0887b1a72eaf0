"""Write docs/ledger.md, all claims grouped by verdict, or check that it holds what is recorded.

python ci/ledger.py write    from evidence/
python ci/ledger.py check    exit status 1 where docs/ledger.md says something else
"""

import argparse
import os
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from scipy import special, stats

from mmlib.core import claims
from mmlib.core.contract import ranges
from mmlib.core.effects import Interval
from mmlib.core.errors import DataError
from mmlib.core.evidence import NO_SEED, Evidence
from mmlib.core.parallel import in_processes
from mmlib.core.paths import write_atomic
from mmlib.core.recordings import folder_of, paths_of
from mmlib.suite import record
from mmlib.suite.cli import TIERS
from mmlib.suite.papers import PAPERS
from mmlib.suite.papers import experiment as experiment_of

ROOT = Path(__file__).resolve().parent.parent
TIER_NAMES = {"world": "picture world", "flickr8k": "Flickr8k", "paper": "the paper's data",
              "controlled": "controlled world"}  # fmt: skip
GROUPS = {
    "supported": "The whole interval speaks for the claim.",
    "opposite": "The whole interval speaks against the claim.",
    "negligible": "Whatever the effect is, it is smaller than what would matter.",
    "undecided": "The run cannot tell. *Detectable* is the effect that it would have decided in "
    "four runs of five; *seeds needed*, how many seeds decide the smallest effect of interest as "
    "often; *none would do*: only more test items, or more parts, help.",
    "not tested": "This run cannot ask; the reason is given.",
}
COLUMNS = [
    "claim", "the paper", "tested by", "effect, 95 % interval", "smallest of interest", "parts"
]  # fmt: skip
MORE = {"undecided": ["detectable", "seeds needed"], "not tested": ["why"]}
SOURCES = "Where the figures come from"
# With how many seeds verdicts were read, where more than once; git has the records.
LOOKS = {
    ("01", "world"): (6, 10, 20),
    ("01", "flickr8k"): (3, 10),
    ("02", "world"): (3, 5, 10, 14, 17, 20),
    ("02", "flickr8k"): (3, 6, 10),
    ("03", "world"): (3, 6, 10, 16, 20),
    ("03", "flickr8k"): (3, 4, 7, 9, 10),
    ("01", "controlled"): (2, 10),
    ("03", "controlled"): (1, 2, 3),
}
MOST_GAPS = 4  # of a record that are named on the page
# Looks -> the level of each that makes one of .05 of all (Pocock, Biometrika, 1977, table 1).
POCOCK = {1: 0.05, 2: 0.0294, 3: 0.0221, 4: 0.0182, 5: 0.0158, 6: 0.0142}
MANY, AGAIN = "†", "‡"
NONE = "–"

HEAD = """# The ledger

All claims, grouped by verdict; within a group by notebook, then by data. `.venv/bin/python \
ci/ledger.py write` makes this page from the records, and `make lint` holds it to them.

The effect of a claim is pooled over its parts (data sets or pairs of them), or, where every part \
counts by itself, that of the part with the lowest interval, which is named; *sd* is the estimated \
spread of the true effects between parts. *Another verdict* is the share of halves of the seeds \
that give another verdict (not given below four seeds, nor for what needs no training and was \
*measured once*). The rule stands [below](#the-rule). \
Systems and measures are explained in the notebooks, which the numbers lead to, common words in \
the [glossary](../notebooks/00_start_here.ipynb) (section 11). How far to trust a number: \
[README](../README.md#honest-limits).

Each interval stands alone. † marks a verdict that would be lost if all tested claims of this page \
were corrected for their number (Benjamini and Hochberg, 5 % false ones among the decided), ‡ one \
that would be lost if its interval allowed for how often verdicts had been read while seeds were \
added (Pocock; how often stands [below](#where-the-figures-come-from))."""


@dataclass(frozen=True)
class Entry:
    """A claim on one tier's data: where it stands, its verdict, and its cells by column."""

    notebook: str
    tier: str
    seeds: int  # 0: measured once
    verdict: str
    cells: Mapping[str, str]
    level: float  # see `lost_at`
    allowed: float  # the level that its looks leave it


@dataclass(frozen=True)
class Source:
    """How the claims of a notebook and a tier were recorded."""

    notebook: str
    tier: str
    cells: Sequence[str]  # command, what it took, recordings, what is missing, seeds at each look


def collect(root: Path) -> tuple[list[Entry], list[Source]]:
    """Everything on record, judged anew, by notebook and tier. Raises DataError."""
    sizes = {}
    for path in sorted((root / "notebooks").glob("[0-9][0-9]_*.ipynb")):
        for tier in TIERS:
            files = paths_of(folder_of(root / "evidence", tier, PAPERS[path.stem[:2]]))
            if files:
                sizes[path.stem, tier, root / "evidence"] = sum(f.stat().st_size for f in files)
    largest_first = sorted(sizes, key=lambda call: -sizes[call])  # no core waits for the last
    done = in_processes(_of_tier, largest_first, min(len(sizes), os.cpu_count() or 1) or 1)
    found = dict(zip(largest_first, done, strict=True))
    return [e for call in sizes for e in found[call][0]], [found[call][1] for call in sizes]


def _of_tier(notebook: str, tier: str, folder: Path) -> tuple[list[Entry], Source]:
    number = notebook[:2]
    found = record.read(number, tier, folder)
    experiment = experiment_of(number)
    assessed = record.assessments(number, found)
    looks = LOOKS.get((number, tier), (len(found.seeds),))
    entries = []
    for one, row in zip(assessed, claims.ledger(assessed).to_dict("records"), strict=True):
        seeds = [] if _once(one, found) else _seeds(one, found)
        cells = _cells_of(one, row, found, seeds)
        allowed = POCOCK[len(looks) if _hangs_on_seeds(one) else 1]
        entries.append(Entry(notebook, tier, len(seeds), one.verdict, cells, lost_at(one), allowed))
    groups: dict[int, list[str]] = {}
    for name in found.datasets:
        groups.setdefault(max(found.seeds_of(name), default=0) + 1, []).append(name)
    # Of other tiers than the world a data set may have no record.
    named = len(groups) > 1 or (len(found.datasets) == 1 and tier != "world")
    command = "`, `".join(
        f"mmlib record {number} --tier {tier} --seeds {seeds}"
        + f" --datasets {shlex.join(names)}" * named
        for seeds, names in groups.items()
    )
    minutes = found.header["cpu_seconds"] / 60
    took = f"{minutes / 60:.1f} CPU hours" if minutes >= 6 else f"{minutes:.1f} CPU minutes"
    read = ", ".join(map(str, looks))
    gaps = record.incomplete(found, experiment)
    lacking = "; ".join(gaps) or "nothing"
    if len(gaps) > MOST_GAPS:
        lacking = f"{len(gaps)} gaps, which `mmlib judge {number} --tier {tier}` names"
    cells = (f"`{command}`", took, recorded_by(found), lacking, read)
    return entries, Source(notebook, tier, cells)


def recorded_by(found: Evidence) -> str:
    """Which recording has which seeds of which data sets, and at which commit it was made."""
    return "; ".join(f"{_commit(header)}: {_seeds_of(header)}" for header in found.recordings)


def _commit(header: Mapping[str, Any]) -> str:
    """The commit that a header names, and the GPU where one trained.

    What ran outside of a checkout has no commit, and neither have seeds of several machines.
    """
    gpu = header["machine"]["gpu"] if header["device"] != "cpu" else None
    return f"`{(header['commit'] or 'unknown')[:12]}`" + (f", GPU: {gpu}" if gpu else "")


def _seeds_of(header: Mapping[str, Any]) -> str:
    """The seeds of a recording by data set, those with the same seeds together."""
    names: dict[str, list[str]] = {}
    for dataset, systems in header["jobs"].items():
        seeds = sorted(set().union(*systems.values()) - {NO_SEED})
        names.setdefault(ranges(seeds) or "no seed", []).append(dataset)
    if len(names) == 1:
        return next(iter(names))
    return ", ".join(f"{seeds} ({'; '.join(sets)})" for seeds, sets in names.items())


def lost_at(one: claims.Assessment) -> float:
    """The level of significance at which a decided claim would just lose its verdict; else 1.

    Two-sided, as the interval is: .05 is that of a 95 % interval that just decides.
    """
    if one.verdict not in claims.DECIDED or one.pooled is None:
        return 1.0
    equivalent = one.claim.kind == "equivalent"
    within = one.verdict == ("supported" if equivalent else "negligible")

    def level(found: Interval) -> float:
        size, margin = abs(found.effect), one.claim.smallest
        far = margin - size if within else size - margin * equivalent
        return 2 * float(special.stdtr(found.df, -far / found.se)) if found.se else 0.0

    if not one.claim.every:
        return level(one.pooled)
    each = one.pooled.parts.items()
    levels = [level(part) for name, part in each if one.part_verdicts[name] == one.verdict]
    return min(levels) if one.verdict == "opposite" else max(levels)


def _hangs_on_seeds(one: claims.Assessment) -> bool:
    """Whether other seeds change a claim's effect, so that reading it again is another look."""
    return one.pooled is not None and any(part.per_seed for part in one.pooled.parts.values())


def _once(one: claims.Assessment, found: Evidence) -> bool:
    """Whether half of the seeds give a claim's effect to the last bit: it needs no training."""
    seeds = _seeds(one, found)
    if one.pooled is None or len(seeds) < 2:
        return False
    first = claims.assess(one.claim, found, seeds[: len(seeds) // 2]).pooled
    return first is not None and (first.effect, first.se) == (one.pooled.effect, one.pooled.se)


def _seeds(one: claims.Assessment, found: Evidence) -> list[int]:
    """The seeds a claim rests on: of its parts' data sets, which their names begin with."""
    parts = one.pooled.parts if one.pooled else ()
    sets = {
        max((d for d in found.datasets if part.startswith(d)), key=len, default="")
        for part in parts
    }
    own = [set(found.seeds_of(name)) for name in sets if name and found.seeds_of(name)]
    return sorted(set.intersection(*own)) if own else found.seeds


def _cells_of(
    one: claims.Assessment, row: Mapping[str, str], found: Evidence, seeds: Sequence[int]
) -> dict[str, str]:
    """The cells of a claim of `mmlib.core.claims`; `row` is its row of `claims.ledger`.

    seeds: those it rests on, none of what was measured once.
    """
    parts = ""
    if one.pooled:
        parts = str(len(one.pooled.parts))
        parts += f", sd {row['sd between parts']}" if len(one.pooled.parts) > 1 else ""
    other = "" if seeds else "measured once"
    if one.verdict in claims.DECIDED and seeds:
        share = claims.stability(one.claim, found, seeds)
        if share == share:  # NaN below four seeds
            other = f"another verdict in {100 * share:.0f} % of halves of the seeds"
    return {
        "claim": f"**{row['id']}** {row['claim']}",
        "the paper": row["paper"],
        "tested by": row["tested by"],
        "effect, 95 % interval": row["effect, 95 % interval"],
        "smallest of interest": row["smallest of interest"],
        "parts": "; ".join(filter(None, (parts, other))) or NONE,
        "detectable": row["detectable"],
        "seeds needed": row["seeds needed"],
        "why": row["why"] or NONE,
    }


# --- The page ----------------------------------------------------------------------------------


def page(entries: Sequence[Entry], sources: Sequence[Source]) -> str:
    """The Markdown of docs/ledger.md."""
    blocks = [HEAD, _counts(entries, sources)]
    there = {source.notebook[:2] for source in sources}
    blocks += [
        f"Of {number} nothing is recorded yet: `mmlib record {number} --tier world --seeds 20`."
        for number in PAPERS
        if number not in there
    ]
    limit = _limit([entry.level for entry in entries if entry.verdict != "not tested"])
    for verdict, meaning in GROUPS.items():
        own = [entry for entry in entries if entry.verdict == verdict]
        if own:
            blocks += [f"## {verdict.capitalize()}", meaning, _table(verdict, own, limit)]
    rows = [[title(s.notebook), TIER_NAMES[s.tier], *s.cells] for s in sources]
    columns = ["notebook", "data", "command", "cost", "recordings", "missing", "read with"]
    explained = (
        "*Recordings*: the commit of each, and the seeds that it has; *unknown* are those that "
        "several machines share. *Missing*: what a complete record has and this one lacks. *Read "
        "with*: seeds at each reading."
    )
    blocks += [f"## {SOURCES}", explained, table(columns, rows)]
    blocks += ["## The rule", f"```text\n{claims.RULE}\n```"]
    return "\n\n".join(blocks) + "\n"


def _counts(entries: Sequence[Entry], sources: Sequence[Source]) -> str:
    """How many claims of each notebook and tier got which verdict."""
    rows = []
    for source in sources:
        own = [e.verdict for e in entries if (e.notebook, e.tier) == (source.notebook, source.tier)]
        counts = [str(own.count(verdict) or NONE) for verdict in GROUPS]
        rows.append([title(source.notebook), TIER_NAMES[source.tier], *counts])
    every = [entry.verdict for entry in entries]
    rows.append(["all", "", *(str(every.count(verdict) or NONE) for verdict in GROUPS)])
    return table(["notebook", "data", *GROUPS], rows)


def _limit(levels: Sequence[float]) -> float:
    """The highest level that stands when all are corrected for their number; 0 where none does."""
    adjusted = stats.false_discovery_control(levels) if levels else ()
    return max((p for p, q in zip(levels, adjusted, strict=True) if q <= 0.05), default=0.0)


def _claim(entry: Entry, limit: float) -> str:
    """The cell of a claim, with the marks that the page's head explains if it is decided."""
    marks = MANY * (entry.level > limit) + AGAIN * (entry.level > entry.allowed)
    marked = marks and entry.verdict in claims.DECIDED
    return (
        entry.cells["claim"].replace("** ", f"** {marks} ", 1) if marked else entry.cells["claim"]
    )


def _table(verdict: str, entries: Sequence[Entry], limit: float) -> str:
    """The claims of one verdict."""
    columns = COLUMNS + MORE.get(verdict, [])
    if verdict == "not tested":
        columns = [column for column in columns if column not in COLUMNS[3:]]
    rows = [
        [
            f"[{e.notebook[:2]}](../notebooks/{e.notebook}.ipynb)",
            _claim(e, limit),
            *(e.cells.get(column, NONE) for column in columns[1:]),
            TIER_NAMES[e.tier] + (f", {e.seeds} seed{'s' * (e.seeds > 1)}" if e.seeds else ""),
        ]
        for e in entries
    ]
    source = f"[data and seeds](#{SOURCES.lower().replace(' ', '-')})"
    return table(["", *columns, source], rows)


def title(notebook: str) -> str:
    """A link with the notebook's own title."""
    path = ROOT / "notebooks" / f"{notebook}.ipynb"
    words = nbformat.read(path, as_version=4).cells[0].source.splitlines()[0].lstrip("# ")
    return f"[{words}](../notebooks/{path.name})"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; a bar in a cell does not end it."""
    lines = [columns, *rows]
    told = ["| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines]
    return "\n".join([told[0], "|" + "---|" * len(columns), *told[1:]])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("write", "check"))
    command = parser.parse_args(arguments).command
    try:
        entries, sources = collect(ROOT)
    except DataError as error:
        raise SystemExit(str(error)) from None
    path, text = ROOT / "docs" / "ledger.md", page(entries, sources)
    if command == "write":
        write_atomic(path, lambda file: file.write_text(text, encoding="utf-8"))
    elif not path.exists() or path.read_text(encoding="utf-8") != text:
        print("docs/ledger.md says something else: python ci/ledger.py write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
