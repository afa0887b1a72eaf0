"""docs/ledger.md and its picture, a row a claim; `ci/generated.py` writes and checks them."""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pages
from matplotlib import rc_context

from mmlib.core import plots
from mmlib.core.claims import OUTCOMES
from mmlib.core.forest import overview
from mmlib.core.paths import write_atomic
from mmlib.suite.papers import PAPERS

ROOT = Path(__file__).resolve().parent.parent
KINDS = {"flickr8k": "photos", "paper": "paper's data"}  # others are called as they are
Records = Sequence[Mapping[str, Any]]  # of `claims.Assessment.record`, of one tier
Notebooks = Mapping[str, Mapping[str, Records]]  # notebook -> tier -> records

HEAD = """# The ledger

Every tested claim of the papers, in a picture world, on photographs and in controlled worlds.

![A grid of all claims and kinds of data, with the verdict in each cell](pictures/ledger.png)

- A claim tested once is **supported** (its 95 % interval lies above 0), **opposite** (below 0), \
**negligible** (within ±d, the smallest effect of interest) or **undecided**; *small*: its effect \
is below d. "A hardly differs from B" is supported within ±d, opposite beyond.
- A claim with several parts **holds** if all are supported, **fails** if one is opposite or \
negligible, else is **open**. Counts: supported +, negligible ≈, opposite −, undecided ?. The \
effect is of the part, among those that give the verdict, whose interval reaches lowest.
- A decided verdict is **firm**: 99 % intervals give the same, and each trained part has five \
seeds. Others are marked **fragile**. What an open one needs stands on the study page.

[The rule](../mmlib/core/rule.txt) changed after results had been read. Intervals cover seeds and \
items, or what a contrast says, not new training data or the number of claims. Claims, not parts:"""


def page(notebooks: Notebooks, root: Path) -> str:
    blocks = [HEAD, _counts(notebooks)]
    for notebook, tiers in notebooks.items():
        by_claim: dict[str, dict[str, Mapping[str, Any]]] = {}  # claim -> tier -> record, if tested
        for tier, r in ((tier, r) for tier, records in tiers.items() for r in records):
            tested = {tier: r} if r["parts"] else {}
            by_claim.setdefault(f"{r['id']} {r['claim']}", {}).update(tested)
        link = f"[Notebook](../notebooks/{notebook}.ipynb)"
        if (root / "docs" / "studies" / f"{notebook}.md").exists():
            link = f"[Study page](studies/{notebook}.md)"
        if untested := [claim.split()[0] for claim, tested in by_claim.items() if not tested]:
            link += f", also why nothing tests {', '.join(untested)}"
        blocks += [f"## {pages.title_of(notebook, root)}", link, _table(by_claim)]
    missing = [number for number in PAPERS if number not in {name[:2] for name in notebooks}]
    blocks += [f"Of {number} nothing is recorded yet." for number in missing]
    return "\n\n".join(blocks) + "\n"


def _counts(notebooks: Notebooks) -> str:
    """How many claims have which outcome, by kind of data."""
    counts: dict[str, Counter[str]] = {}
    for tier, records in (of for tiers in notebooks.values() for of in tiers.items()):
        of_tier = counts.setdefault(KINDS.get(tier, tier), Counter())
        of_tier.update(o for r in records for o, of in OUTCOMES.items() if r["verdict"] in of)
        of_tier.update(r["firmness"] for r in records)
    columns = [*OUTCOMES, "firm", "fragile"]
    cells = [[name, *(str(c[key] or pages.NONE) for key in columns)] for name, c in counts.items()]
    return pages.rows_table(["", *columns], cells, around="")


def _table(by_claim: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """A row a tested claim, kinds of data side by side; controlled worlds below a row of their own.

    The unit in the head is that of most claims; others say theirs.
    """
    tested = {claim: records for claim, records in by_claim.items() if records}
    units = Counter(r["unit"] for records in tested.values() for r in records.values())
    usual = max(units, key=lambda unit: units[unit], default="")
    tiers = list(dict.fromkeys(chain.from_iterable(tested.values())))
    tiers = [tier for tier in tiers if tier != "controlled"] or tiers
    rows, apart = list[list[str]](), ["*In controlled worlds:*", *[""] * (len(tiers) + 1)]
    for claim, records in tested.items():
        if "controlled" in records and apart not in rows:
            rows.append(apart)
        shown = [records.get(tier) for tier in tiers if "controlled" not in records]
        cells = [_cell(r, usual) if r else "" for r in shown or records.values()]
        paper = next(iter(records.values()))["paper_effect"]
        ends = [""] * (len(tiers) - len(cells)) + ["" if paper is None else digits(paper)]
        rows.append([claim, *cells, *ends])
    titles = [f"{KINDS.get(tier, tier)}, {usual} [95 %]" for tier in tiers]
    return pages.rows_table(["claim", *titles, "paper"], rows, around="")


def _cell(record: Mapping[str, Any], usual: str) -> str:
    """A verdict with its counts, and its effect, with its unit where that is not the usual one."""
    counts, unit = record["counts"].replace(" ·", ""), record["unit"]
    words = f"{record['verdict']} {counts}" if counts else record["words"]
    words += ", *fragile*" * (record["firmness"] == "fragile")
    effect, low, high = (digits(record[key]) for key in ("effect", "low", "high"))
    return f"{words}: {effect} [{low}, {high}] {unit * (unit != usual)}".rstrip()


def digits(value: float) -> str:
    """A number in two digits, or whole where it is large: ".27", "−1.6", "−123"."""
    text = f"{value:.0f}" if abs(value) >= 10 else f"{value:.2g}"
    return (text.replace("0.", ".", 1) if abs(value) < 1 else text).replace("-", "−")


def settle(command: str, notebooks: Notebooks) -> int:
    """Write the page and its picture, or check them; 1 where they say something else, else 0."""
    path, text = ROOT / "docs" / "ledger.md", page(notebooks, ROOT)
    picture = ROOT / "docs" / "pictures" / "ledger.png"
    with rc_context():
        plots.use_style()
        panels = {
            pages.title_of(notebook, ROOT): {
                KINDS.get(tier, tier): {record["id"]: record for record in records}
                for tier, records in tiers.items()
            }
            for notebook, tiers in notebooks.items()
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
