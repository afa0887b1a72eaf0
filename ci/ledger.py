"""docs/ledger.md and its picture, a row a claim; `ci/generated.py` writes and checks them."""

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import get_args

import pages
from matplotlib import rc_context

from mmlib.core import claims, plots
from mmlib.core.forest import overview
from mmlib.core.paths import table_beside, write_atomic
from mmlib.suite.cli import TIERS
from mmlib.suite.papers import PAPERS
from mmlib.suite.standing import MARKS, Standing, limit_of

ROOT = Path(__file__).resolve().parent.parent
PICTURE = Path("docs") / "pictures" / "ledger.png"
TIER_NAMES = {"world": "picture world", "flickr8k": "photographs", "paper": "the paper's data",
              "controlled": "controlled worlds"}  # fmt: skip
DATA = {"world": "in the picture world", "flickr8k": "on photographs",
        "paper": "on the paper's own data", "controlled": "in controlled worlds"}  # fmt: skip
VERDICTS = get_args(claims.Verdict)

HEAD = """# The ledger

A row a claim: its verdict, effect and 95 % interval on each kind of data. Made from the \
evidence.

![All tested claims: effect and interval in units of the smallest effect of \
interest, coloured by verdict, beside the paper's own effect](pictures/ledger.png)

- **Supported**, **opposite**: the whole interval lies above 0, or below. In bold, it lies beyond \
*d*, the smallest effect of interest; *direction only*, the effect is smaller than d.
- **Negligible**: the whole interval lies within ±d. ("A hardly differs from B" is then supported, \
and opposite where the interval lies beyond ±d.)
- **Mixed**: parts of the claim are decided in different ways. **Undecided**: the run cannot tell. \
*Needs* says how many seeds decide an effect of size d in four runs of five (*borderline*: these \
would); without it, seeds alone would not. **Not tested**: the study page says why.
- **Parts**: a claim counts each of its parts (collections, systems, metrics). *2 of 3*: two of \
three parts have the verdict, the third is open; the lower one is shown.
- **Paper**: its own effect, where it prints one, and whether our intervals hold it (*in*, *out*, \
*1 of 3*).

The rule in full is [rule.txt](../mmlib/core/rule.txt). It changed after results had been read. \
Intervals cover seeds and test items, not training data drawn anew. Marks say what a decided \
verdict would not survive: {marks}."""
ORIGIN = """## Where the figures come from

The study pages have each claim's test and parts, why d is what it is, commits, machines, cost \
and limits."""


def page(notebooks: Mapping[str, Sequence[Standing]], root: Path) -> str:
    every = [one for found in notebooks.values() for one in found]
    limit = limit_of(every)
    marks = "; ".join(f"{mark} {meaning}" for mark, meaning in MARKS.items())
    blocks = [HEAD.format(marks=marks), _counts(notebooks)]
    notes = table_beside(__file__)
    for notebook, found in notebooks.items():
        links = f"[Notebook](../notebooks/{notebook}.ipynb)"
        if (root / "docs" / "studies" / f"{notebook}.md").exists():
            links = f"[Study page](studies/{notebook}.md) · {links}"
        blocks += [f"## {pages.title_of(notebook, root)}", links]
        tiers = _by_tier(found)
        if notebook[:2] in notes:
            blocks.append(_summary(tiers, notes[notebook[:2]]))
        controlled = {tier: tiers.pop(tier) for tier in ["controlled"] if tier in tiers}
        blocks += [_table(group, limit) for group in (tiers, controlled) if group]
    missing = [number for number in PAPERS if number not in {name[:2] for name in notebooks}]
    blocks += [f"Of {number} nothing is recorded yet." for number in missing]
    return "\n\n".join([*blocks, ORIGIN]) + "\n"


def _by_tier(found: Iterable[Standing]) -> dict[str, list[Standing]]:
    """Tier -> its standings, in the order of `TIERS`."""
    tiers: dict[str, list[Standing]] = {}
    for one in found:
        tiers.setdefault(one.tier, []).append(one)
    return {tier: tiers[tier] for tier in TIERS if tier in tiers}


def _counts(notebooks: Mapping[str, Sequence[Standing]]) -> str:
    groups = {
        f"{notebook[:2]}, {TIER_NAMES[tier]}": own
        for notebook, found in notebooks.items()
        for tier, own in _by_tier(found).items()
    }
    groups["all"] = [one for found in notebooks.values() for one in found]
    rows = []
    for name, own in groups.items():
        counts = Counter(one.record["verdict"] for one in own)
        rows.append([name, *(str(counts[verdict] or pages.NONE) for verdict in VERDICTS)])
    return pages.rows_table(["", *VERDICTS], rows, around="")


def _summary(tiers: Mapping[str, Sequence[Standing]], notes: Mapping[str, str]) -> str:
    """Scope, what held, what did not, what was easy, what was hard."""
    scopes: list[str] = []
    for tier, own in tiers.items():  # the fewest and the most seeds of any part that has several
        counts = {
            min(part["seeds"], one.seeds)
            for one in own if one.seeds
            for part in one.record["parts"].values() if part["per_seed"]
        }  # fmt: skip
        fewest, most = min(counts, default=0), max(counts, default=0)
        seeds = f"{fewest} to {most} seeds" if fewest < most else f"{most} seeds"
        scopes.append(f"{len(own)} {'' if scopes else 'claims '}{DATA[tier]} ({seeds})")

    def named(*verdicts: str) -> str:
        sentences = []
        for tier, own in tiers.items():
            groups = []
            for verdict in verdicts:
                ids = [one.record["id"] for one in own if one.record["verdict"] == verdict]
                word = f"{verdict} " if len(verdicts) > 1 else ""
                groups += [word + ", ".join(ids)] if ids else []
            listed = "; ".join(groups) or "none"
            sentences.append(f"*{TIER_NAMES[tier].capitalize()}*: {listed}.")
        return " ".join(sentences)

    lines = {"Scope": f"{', '.join(scopes)}.", "Held": named("supported"),
             "Did not": named("opposite", "negligible", "mixed"),
             "Easy": notes["easy"], "Hard": notes["hard"]}  # fmt: skip
    return "\n".join(f"- **{word}.** {text}" for word, text in lines.items())


def _table(tiers: Mapping[str, Sequence[Standing]], limit: float) -> str:
    """A row a claim, a column a tier; the most frequent d is in the head of its column."""
    claims_of: dict[str, dict[str, Standing]] = {}
    for tier, own in tiers.items():
        for one in own:
            claims_of.setdefault(one.record["id"], {})[tier] = one
    first = {name: next(iter(by_tier.values())).record for name, by_tier in claims_of.items()}
    sizes = {name: f"{r['smallest']:g} {r['unit']}" for name, r in first.items()}
    usual = Counter(sizes.values()).most_common(1)[0][0]
    columns = ["claim", f"d, else {usual}", *(TIER_NAMES[tier] for tier in tiers), "paper"]
    rows = [
        [
            f"{name} {first[name]['claim']}",
            "" if sizes[name] == usual else sizes[name],
            *(cell(by_tier[tier], limit) if tier in by_tier else pages.NONE for tier in tiers),
            _paper([by_tier[tier] for tier in tiers if tier in by_tier]),
        ]
        for name, by_tier in claims_of.items()
    ]
    if not any(row[-1] for row in rows):  # the paper prints nothing of the kind
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    return pages.rows_table(columns, rows, around="")


def cell(one: Standing, limit: float) -> str:
    """A claim's marks, verdict and effect on one tier."""
    r = one.record
    verdict, parts = r["verdict"], r["parts"]
    if verdict == "not tested":
        return verdict
    words = {"clearly": f"**{verdict}**", "direction only": f"{verdict}, direction only"}
    text = " ".join(filter(None, (one.marks(limit), words.get(r["size"], verdict))))
    count = r["intervals"]
    if count > 1 and verdict in ("mixed", "undecided"):
        counts = claims.counted(part["verdict"] for part in parts.values())
        text += ": " + counts.replace("undecided", "open")
    else:
        alike = [part["verdict"] for part in parts.values()].count(verdict)
        effect, low, high = (digits(r[key]) for key in ("effect", "low", "high"))
        text += f", {alike} of {count}:" * (count > 1) + f" {effect} [{low}, {high}]"
    if count == 1 < len(parts):
        text += f" (mean of {len(parts)})"
    if verdict == "undecided" and r["seeds_needed"]:
        enough = r["seeds_needed"] <= one.seeds
        text += "; borderline" if enough else f"; needs {r['seeds_needed']} seeds"
    return text


def digits(value: float) -> str:
    """A number in two digits, or whole where it is large: ".27", "−1.6", "−123"."""
    text = f"{value:.0f}" if abs(value) >= 10 else f"{value:.2g}"
    return (text.replace("0.", ".", 1) if abs(value) < 1 else text).replace("-", "−")


def _paper(found: Sequence[Standing]) -> str:
    """The paper's own effect, and on each tier whether our interval holds it."""
    own = found[0].record["paper_effect"]
    if own is None:
        return ""
    held = []
    for one in found:
        holding, count = one.record["holding_paper"], one.record["intervals"]
        if count > 1:
            held.append(f"{holding} of {count}")
        else:
            held.append(("in" if holding else "out") if count else pages.NONE)
    return f"{digits(own)} ({', '.join(held)})"


def settle(command: str, notebooks: Mapping[str, Sequence[Standing]]) -> int:
    """Write the page and its picture, or check them; 1 where they say something else, else 0."""
    path, text = ROOT / "docs" / "ledger.md", page(notebooks, ROOT)
    picture = ROOT / PICTURE
    with rc_context():
        plots.use_style()
        panels = {
            pages.title_of(notebook, ROOT): {
                TIER_NAMES[tier]: {one.record["id"]: one.record for one in own}
                for tier, own in _by_tier(found).items()
            }
            for notebook, found in notebooks.items()
        }
        figure = overview(panels)
        same = pages.shown_in(picture) == (shown := pages.digest_of(figure))
        if command == "write":
            write_atomic(path, lambda file: file.write_text(text, encoding="utf-8"))
            if not same:
                pages.write_picture(figure, picture, shown)
            return 0
    if not same or not path.exists() or path.read_text(encoding="utf-8") != text:
        print("docs/ledger.md says something else: python ci/generated.py write", file=sys.stderr)
        return 1
    return 0
