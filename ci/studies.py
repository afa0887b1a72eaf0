"""The study pages in docs/studies, one a paper; `ci/generated.py` writes and checks all pages.

python ci/studies.py write [NUMBER …]    the same of some notebooks
"""

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pages
import pandas as pd
import provenance
import yaml
from matplotlib import rc_context

from mmlib.core import plots
from mmlib.core.claims import KINDS, effect_text
from mmlib.core.errors import DataError
from mmlib.core.forest import forest
from mmlib.core.parallel import in_processes
from mmlib.core.paths import PACKAGE, write_atomic
from mmlib.core.recordings import paths_of
from mmlib.core.tables import paper_tables
from mmlib.suite import outcomes, record
from mmlib.suite.cli import TIERS
from mmlib.suite.papers import PAPERS
from mmlib.suite.papers import experiment as experiment_of

ROOT = Path(__file__).resolve().parent.parent
TIER_NAMES = {tier: name[:1].upper() + name[1:] for tier, name in KINDS.items()}
# The sections that people write, in study.md, and those that are made, in the order of the page.
(STUDIED, VERDICTS, TABLES, FIGURES, OF_PAPER, PROTOCOL, SETTINGS, DEVIATIONS, LIMITS,
 SOURCES) = SECTIONS = (
    "What was studied", "Verdicts", "Tables", "Figures", "The paper's tables and figures",
    "Protocol and its history", "Settings", "Deviations from the paper and the authors' code",
    "Limits", "Where the figures come from",
)  # fmt: skip
WRITTEN = (STUDIED, OF_PAPER, PROTOCOL, SETTINGS, DEVIATIONS, LIMITS)
NOTES, NARROW = "¹²³⁴⁵⁶⁷⁸⁹", "\u2009"  # a thin space between them
SHORTEST_ALT = 31  # characters of a picture's description

HEAD = """`{command}` makes this page from the records in `evidence/` and from \
`mmlib/papers/{paper}/study.md`; `make lint` holds it to them. \
{links}."""
RULE = """An interval covers training seeds and test items, as a rule, and takes the training \
data as given. *d* is the smallest effect that would matter. The \
[rule](../../mmlib/core/rule.txt) gives the verdict; a claim with several parts has them counted, \
supported (+), negligible (≈), opposite (−) and undecided (?). *Ours* is the effect, of several \
parts that of the part that is named. Firm is what 99 % intervals and at least five seeds of each \
trained part say, too. All claims are on [the ledger](../ledger.md)."""
CLAIMS = """Every claim with its parts
A line is a part with its 95 % interval, a diamond one alone, the band what would not matter."""
EXPLAINED = """Settings have the names of their fields in the budgets, from which our columns are \
made; – is what is not said. The tier `paper` was never run in full."""


@dataclass(frozen=True)
class Words:
    """What a paper's study.yaml calls things.

    tables, figures: the name that a table's begins with -> its title and, on the next line, what it
    shows. printed: the same of tables that the paper prints and that are shown as they are. labels:
    of rows and columns; x_ of what x begins. notes: which claims of which tiers need which words.
    """

    tables: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, str] = field(default_factory=dict)
    printed: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class TierPart:
    """What one tier's evidence brings: records of claims, Markdown by section, picture digests."""

    claims: Sequence[Mapping[str, Any]]
    sections: Mapping[str, str]
    pictures: Mapping[str, str]


def has_study(paper: str) -> bool:
    return (PACKAGE / "papers" / paper / "study.md").exists()


def words_of(paper: str) -> Words:
    path = PACKAGE / "papers" / paper / "study.yaml"
    fields = yaml.safe_load(path.read_text(encoding="utf-8"))
    of = fields["labels"].items()
    fields["labels"] |= {a + b: f"{x}, {y}" for a, x in of if a.endswith("_") for b, y in of}
    return Words(**fields)


def written_parts(paper: str) -> dict[str, str]:
    """Section -> its text in a paper's study.md. Raises DataError for one that lacks or is odd."""
    path = PACKAGE / "papers" / paper / "study.md"
    _, *pieces = re.split(r"^## (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    parts = dict(zip(pieces[::2], (text.strip() for text in pieces[1::2]), strict=True))
    if tuple(parts) != WRITTEN:
        raise DataError(f"{path}: its sections are not {', '.join(WRITTEN)}")
    return parts


def collect(numbers: Sequence[str], draw: bool) -> dict[str, dict[str, TierPart]]:
    """Notebook -> tier -> what its evidence brings, where it is recorded, one call a core.

    draw: write the pictures. Raises DataError.
    """
    evidence = ROOT / "evidence"
    pictures = ROOT / "docs" / "studies" / "pictures" if draw else None
    sizes = {}
    for path in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")):
        for tier in TIERS if path.stem[:2] in numbers else ():
            if files := paths_of(evidence / tier / PAPERS[path.stem[:2]]):
                call = (path.stem, tier, evidence, pictures)
                sizes[call] = sum(file.stat().st_size for file in files)
    largest_first = sorted(sizes, key=lambda call: -sizes[call])  # no core waits for the last
    workers = min(len(sizes), os.cpu_count() or 1) or 1
    done = dict(zip(largest_first, in_processes(of_tier, largest_first, workers), strict=True))
    tiers: dict[str, dict[str, TierPart]] = {}
    for call in sizes:
        tiers.setdefault(call[0], {})[call[1]] = done[call]
    return tiers


def of_tier(notebook: str, tier: str, evidence: Path, pictures: Path | None) -> TierPart:
    """What a tier's evidence brings; pictures: the folder to write its figures into, if any."""
    number = notebook[:2]
    found = record.read(number, tier, evidence)
    judged = [one.record() for one in record.assessments(number, found)]
    if not has_study(PAPERS[number]):
        return TierPart(judged, {}, {})
    experiment, words = experiment_of(number), words_of(PAPERS[number])
    digests: dict[str, str] = {}
    with rc_context():
        plots.use_style()
        made = {name: make() for name, make in experiment.tables(found).items()}
        tables = tables_section(made, words, tier)
        figures = {"claims": lambda: forest(judged), **experiment.figures(found)}
        for name, figure in ((n, draw()) for n, draw in figures.items()):  # one at a time is open
            slug = re.sub(r"[^\w-]+", "-", name)
            file = f"{number}-{tier}-{slug}.png"
            digests[file] = pages.digest_of(figure)
            if pictures:
                pages.write_picture(figure, pictures / file, digests[file])
            plt.close(figure)
    called = {"claims": CLAIMS, **words.figures}
    shown = [
        picture(file, described(called, name, words.labels, tier), TIER_NAMES[tier])
        for file, name in zip(digests, figures, strict=True)
    ]
    gaps = record.incomplete(found, experiment)
    sections = {
        VERDICTS: f"{verdicts_section(judged, words, tier)}\n\n{shown[0]}",
        TABLES: tables,
        FIGURES: "\n\n".join(shown[1:]),
        PROTOCOL: provenance.seeds_table(found, words.labels),
        SOURCES: provenance.recordings(number, tier, found, gaps),
    }  # fmt: skip
    return TierPart(judged, sections, digests)


def verdicts_section(judged: Sequence[Mapping[str, Any]], words: Words, tier: str) -> str:
    """How many claims got which verdict; a row a claim, why d is what it is, and a row a part."""
    ids = {r["id"] for r in judged}
    notes = [n for n in words.notes if tier in n["tiers"] and ids & set(n["claims"])]
    columns = ["claim", "compared", "the paper", "ours, 95 % interval", "d", "verdict", "seeds"]
    rows: list[list[str]] = []
    reasons: dict[str, list[str]] = {}
    parts: list[list[str]] = []
    for r in judged:
        name, size = r["id"], f"{r['smallest']:g} {r['unit']}"
        marks = NARROW.join(NOTES[i] for i, note in enumerate(notes) if name in note["claims"])
        deciding = f"{r['deciding']}: " if r["deciding"] else ""
        rows.append([
            f"**{name}**{marks} {r['claim']}", r["contrast"], paper_cell(r),
            deciding + (effect_text(r) if r["parts"] else pages.NONE), size, verdict_cell(r),
            seeds_cell(r["parts"].values()),
        ])  # fmt: skip
        reasons.setdefault(f"{size}: {r['smallest_why']}", []).append(name)
        if len(r["parts"]) > 1:
            for part, effect in r["parts"].items():
                text = effect_text({**effect, "unit": r["unit"]})
                parts.append([name, part, text, effect["words"], seeds_cell([effect])])
    seeds = seeds_cell([part for r in judged for part in r["parts"].values()])
    counts = outcomes.verdict_counts(judged)
    head = f"{len(judged)} claims: {counts}. Seeds of their parts: {seeds}."
    blocks = [head, pages.rows_table(columns, rows)]
    blocks += [f"{NOTES[i]} {note['note']}" for i, note in enumerate(notes)]
    lines = [f"- {reason} ({', '.join(of)})" for reason, of in reasons.items()]
    blocks.append("Why *d* is what it is:\n\n" + "\n".join(lines))
    if parts:
        columns = ["claim", "part", "effect, 95 % interval", "verdict", "seeds"]
        table = pages.rows_table(columns, parts)
        blocks += ["Claims with several parts, part by part:",
                   pages.folded("Parts", table, len(parts))]  # fmt: skip
    return "\n\n".join(blocks)


def paper_cell(r: Mapping[str, Any]) -> str:
    """The paper's words, and its own effect in our unit, held against our intervals."""
    own, holding, of = r["paper_effect"], r["holding_paper"], r["intervals"]
    if own is None or holding is None:
        return str(r["paper"])
    held = f"inside {holding} of {of} of our intervals"
    if of == 1:
        held = "inside our interval" if holding else "outside our interval"
    return f"{r['paper']}; as we measure it {own:+.3g} {r['unit']}, {held}"


def verdict_cell(r: Mapping[str, Any]) -> str:
    """The verdict, the counts of its parts, whether it is firm, and why it is not decided."""
    words = f"**{r['words']}**" + f" ({r['counts']})" * bool(r["counts"])
    return "; ".join(filter(None, (words, r["firmness"], r["why"])))


def seeds_cell(parts: Iterable[Mapping[str, Any]]) -> str:
    """With how many seeds parts were measured, the fewest and the most."""
    counts = sorted({part["seeds"] for part in parts if part["seeds"]})
    return " to ".join(map(str, dict.fromkeys(counts[:1] + counts[-1:]))) or "measured once"


def tables_section(tables: Mapping[str, pd.DataFrame], words: Words, tier: str = "") -> str:
    """Every table under its title, long ones folded; a table without rows is left out.

    What tables of one kind show is said above the first.
    """
    blocks, said = [], set()
    for name, frame in tables.items():
        if not len(frame):
            continue
        title, _, text = described(words.tables, name, words.labels, tier).partition("\n")
        table = pages.frame_table(frame, words.labels)
        blocks += [f"#### {title}", "" if text in said else text]
        blocks.append(pages.folded(title, table, len(frame)))
        said.add(text)
    return "\n\n".join(filter(None, blocks))


def printed_section(paper: str, words: Words, shown: str) -> str:
    """Tables of the paper, and what was counted in its data, as they are in its tables.json.

    shown: of the page; what stands there beside ours is not printed again.
    """
    frames = {}
    for name in (n for n, said in words.printed.items() if said.splitlines()[0] not in shown):
        content = paper_tables(paper)[name]
        rows, called = content["rows"], lambda c: words.labels.get(c, c.replace("_", " "))
        index = [[str(row.get(of) or "") for row in rows] for of in ("section", "name")]
        frames[name] = pd.DataFrame(
            [row["values"] for row in rows], index if any(index[0]) else index[1],
            content["columns"], dtype=object,
        ).rename(columns=called)  # fmt: skip
    return tables_section(frames, Words(tables=words.printed, labels=words.labels))


def of_paper_section(paper: str, written: str, words: Words) -> str:
    """A row a table or figure of the paper: whether and where it is shown; what is other, or why.

    written: rows of study.md. Raises DataError for a table or figure of tables.json without a row.
    """
    printed = json.loads((PACKAGE / "papers" / paper / "tables.json").read_text(encoding="utf-8"))
    needed = {f"Figure {n + 1}" for n in range(printed["paper"]["figures"])}
    needed |= {f"Table {n}" for t in printed["tables"] for n in re.findall(r"^table(\d+)", t["id"])}
    rows = pages.written_rows(written)
    if lacking := needed - {row[0] for row in rows}:
        raise DataError(f"study.md, {OF_PAPER}: no row for {min(lacking)}")
    kinds = {FIGURES: words.figures, TABLES: {**words.tables, **words.printed}}
    links = {key: f"[{text.splitlines()[0]}](#{anchor(section)})"
             for section, kind in kinds.items() for key, text in kind.items()}  # fmt: skip
    rows = [[a, b, "; ".join(links.get(p, p) for p in at.split("; ")), c] for a, b, at, c in rows]
    return pages.rows_table(["of the paper", "here", "where", "what is other, or why"], rows)


def described(
    words: Mapping[str, str], name: str, labels: Mapping[str, str], tier: str = ""
) -> str:
    """The title and text of a table or figure: of the longest name that its own begins with.

    What follows is a collection, which the title then has unless it is all of the tier; a name that
    is not there is its own title.
    """
    known = [key for key in words if name == key or name.startswith(f"{key}_")]
    if not known:
        return name.replace("_", " ").capitalize()
    key = max(known, key=len)
    title, _, text = words[key].strip().partition("\n")
    rest = name[len(key) :].strip("_")
    of = f": {labels.get(rest, rest.replace('_', ' '))}" if rest and rest != tier else ""
    return f"{title}{of}\n{text.strip()}".strip()


def picture(file: str, described_as: str, tier: str) -> str:
    title, _, text = described_as.partition("\n")
    alt = f"{tier}: {title}".replace("[", "(").replace("]", ")")
    if len(alt) < SHORTEST_ALT:
        alt = f"{alt}, a figure made from the evidence"
    return f"![{alt}](pictures/{file})\n\n*{title}.* {text}".strip()


def page(notebook: str, tiers: Mapping[str, TierPart]) -> str:
    number, paper = notebook[:2], PAPERS[notebook[:2]]
    parts, words = written_parts(paper), words_of(paper)
    parts[OF_PAPER] = of_paper_section(paper, parts[OF_PAPER], words)
    links = (
        f"Beside it: [the notebook](../../notebooks/{notebook}.ipynb), "
        "[the ledger](../ledger.md) of all claims, [the data sets](../../data/README.md)"
    )
    head = HEAD.format(command=f"python ci/studies.py write {number}", paper=paper, links=links)
    blocks = [f"# {pages.title_of(notebook, ROOT)}: the study", head]
    blocks.append("\n".join(f"- [{s}](#{anchor(s)})" for s in SECTIONS))
    for section in SECTIONS:
        blocks.append(f"## {section}")
        before = {VERDICTS: RULE, SETTINGS: EXPLAINED}.get(section, parts.get(section, ""))
        blocks += [before] * bool(before)
        if section == PROTOCOL:
            blocks += ["### Seeds, as recorded"]
        if section == SETTINGS:
            known = experiment_of(number), parts[SETTINGS], TIER_NAMES, words.labels
            prose = parts[SETTINGS].partition("|")[0].strip()
            blocks += filter(None, (prose, provenance.settings_table(*known)))
        level = "####" if section == PROTOCOL else "###"
        for tier, part in tiers.items():
            if part.sections.get(section):
                blocks += [f"{level} {TIER_NAMES[tier]}", part.sections[section]]
        if section == TABLES and (as_printed := printed_section(paper, words, "\n".join(blocks))):
            blocks += ["### As printed or counted, without runs of ours", as_printed]
    return "\n\n".join(blocks) + "\n"


def anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def faults(path: Path, text: str, pictures: Mapping[str, str]) -> Iterator[str]:
    """Where a page on disk and its pictures are not what the evidence gives."""
    old = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    new = text.splitlines()
    if old != new:
        same = [a == b for a, b in zip(old, new, strict=False)]
        line = (same.index(False) if False in same else len(same)) + 1
        yield f"docs/studies/{path.name}, line {line}, says something else"
    for name, digest in pictures.items():
        if pages.shown_in(path.parent / "pictures" / name) != digest:
            yield f"docs/studies/pictures/{name} shows something else, or is not there"
    yield from (f"docs/studies/pictures/{p.name} is of no figure" for p in stray(path, pictures))


def stray(path: Path, pictures: Mapping[str, str]) -> list[Path]:
    """Pictures of a paper that none of its figures makes."""
    own = sorted((path.parent / "pictures").glob(f"{path.name[:2]}-*"))
    return [file for file in own if file.name not in pictures]


def settle(command: str, found: Mapping[str, Mapping[str, TierPart]]) -> int:
    """Write the pages, or check them; 1 where a page or a picture says something else, else 0."""
    wrong: list[str] = []
    for notebook, tiers in found.items():
        if not has_study(PAPERS[notebook[:2]]):
            continue
        path = ROOT / "docs" / "studies" / f"{notebook}.md"
        text = page(notebook, tiers)
        pictures = {name: d for part in tiers.values() for name, d in part.pictures.items()}
        if command == "write":
            for file in stray(path, pictures):
                file.unlink()
            write_atomic(path, partial(Path.write_text, data=text, encoding="utf-8"))
        wrong += faults(path, text, pictures)
    for fault in wrong:
        print(f"{fault}: python ci/studies.py write", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    import generated

    sys.exit(generated.main())
