"""Write the study pages in docs/studies, one a paper, or check that they hold what is recorded.

python ci/studies.py write [NUMBER …]    from evidence/, and study.md and study.yaml of the papers
python ci/studies.py check [NUMBER …]    exit status 1 where a page or a picture says something else
"""

import argparse
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ledger
import nbformat
import pages
import provenance
import pandas as pd
import yaml
from matplotlib import rc_context

from mmlib.core import plots
from mmlib.core.claims import Assessment, effect_text, parts_table
from mmlib.core.errors import DataError
from mmlib.core.forest import forest
from mmlib.core.parallel import in_processes
from mmlib.core.paths import PACKAGE, write_atomic
from mmlib.core.recordings import folder_of, paths_of
from mmlib.core.tables import paper_tables
from mmlib.suite import record
from mmlib.suite.cli import TIERS
from mmlib.suite.papers import PAPERS
from mmlib.suite.papers import experiment as experiment_of

ROOT = Path(__file__).resolve().parent.parent
TIER_NAMES = {"world": "Picture world", "flickr8k": "Flickr8k", "paper": "The paper's data",
              "controlled": "Controlled world"}  # fmt: skip
# The sections that people write, in study.md, and those that are made, in the order of the page.
STUDIED, VERDICTS, TABLES, FIGURES, PROTOCOL, DEVIATIONS, LIMITS, SOURCES = SECTIONS = (
    "What was studied", "Verdicts", "Tables", "Figures", "Protocol and its history",
    "Deviations from the paper and the authors' code", "Limits", "Where the figures come from",
)  # fmt: skip
WRITTEN = (STUDIED, PROTOCOL, DEVIATIONS, LIMITS)
MARKS = "¹²³⁴⁵⁶⁷⁸⁹"
SHORTEST_ALT = 31  # characters of a picture's description

HEAD = """`{command}` makes this page from the records in `evidence/` and from \
`mmlib/papers/{paper}/study.md`; `make lint` holds it to them. \
{links}."""
RULE = """An interval covers training seeds and test items, as a rule, and takes the training data \
as given. *d* is the smallest effect that would matter. The [rule](../../mmlib/core/rule.txt) gives \
the verdict. "Ours" is the pooled effect, or that of the part that is named."""
EXPLAINED = """Settings are the fields of `Settings` in `mmlib/papers/{paper}/systems.py`. *Read \
with*: how many seeds were on record each time that verdicts were read. The last column of the \
settings is the tier `paper`, which was never run in full."""


@dataclass(frozen=True)
class Words:
    """What a paper's study.yaml calls things.

    tables, figures: the name that a table's begins with -> its title and, on the next line, what it
    shows. printed: the same of tables that the paper prints and that are shown as they are. labels:
    of rows and columns. notes: which claims of which tiers need which words.
    """

    tables: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, str] = field(default_factory=dict)
    printed: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class TierPart:
    """What one tier's evidence brings to a page: Markdown by section, pictures with digests."""

    sections: Mapping[str, str]
    pictures: Mapping[str, str]


def words_of(paper: str) -> Words:
    """The words of a paper's study.yaml."""
    path = PACKAGE / "papers" / paper / "study.yaml"
    return Words(**yaml.safe_load(path.read_text(encoding="utf-8")))


def written_parts(paper: str) -> dict[str, str]:
    """Section -> its text in a paper's study.md. Raises DataError for one that lacks or is odd."""
    path = PACKAGE / "papers" / paper / "study.md"
    _, *pieces = re.split(r"^## (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    parts = dict(zip(pieces[::2], (text.strip() for text in pieces[1::2]), strict=True))
    if tuple(parts) != WRITTEN:
        raise DataError(f"{path}: its sections are not {', '.join(WRITTEN)}")
    return parts


# --- What a tier's evidence brings -----------------------------------------------------------------


def collect(root: Path, numbers: Sequence[str], draw: bool) -> dict[str, dict[str, TierPart]]:
    """Notebook -> tier -> what its evidence brings. draw: write the pictures. Raises DataError."""
    sizes = {}
    for path in sorted((root / "notebooks").glob("[0-9][0-9]_*.ipynb")):
        number = path.stem[:2]
        if number in numbers and (PACKAGE / "papers" / PAPERS[number] / "study.md").exists():
            for tier in TIERS:
                files = paths_of(folder_of(root / "evidence", tier, PAPERS[number]))
                if files:
                    size = sum(file.stat().st_size for file in files)
                    sizes[path.stem, tier, root / "evidence", pictures_of(root) if draw else None] = size
    largest_first = sorted(sizes, key=lambda call: -sizes[call])  # no core waits for the last
    workers = min(len(sizes), os.cpu_count() or 1) or 1
    done = dict(zip(largest_first, in_processes(of_tier, largest_first, workers), strict=True))
    found: dict[str, dict[str, TierPart]] = {}
    for call in sizes:
        found.setdefault(call[0], {})[call[1]] = done[call]
    return found


def pictures_of(root: Path) -> Path:
    """The folder of all pictures of studies."""
    return root / "docs" / "studies" / "pictures"


def of_tier(notebook: str, tier: str, evidence: Path, pictures: Path | None) -> TierPart:
    """What a tier's evidence brings; pictures: the folder to write its figures into, if any."""
    number = notebook[:2]
    experiment, words = experiment_of(number), words_of(PAPERS[number])
    found = record.read(number, tier, evidence)
    assessed = record.assessments(number, found)
    digests: dict[str, str] = {}
    with rc_context():
        plots.use_style()
        tables = tables_section(experiment.tables(found), words)
        figures = {"claims": forest(assessed), **experiment.figures(found)}
        for name, figure in figures.items():
            slug = re.sub(r"[^\w-]+", "-", name)
            file = f"{number}-{tier}-{slug}.png"
            digests[file] = pages.digest_of(figure)
            if pictures:
                pages.write_picture(figure, pictures / file, digests[file])
            else:
                plots.plt.close(figure)
    (claims_file, *files), where = digests, TIER_NAMES[tier]
    forest_plot = picture(claims_file, words.figures.get("claims", ""), where, "claims")
    gaps = provenance.missing(
        record.incomplete(found, experiment), f"mmlib judge {number} --tier {tier}"
    )
    made = "`, `".join(provenance.commands(number, tier, found))
    spent = provenance.cost(found.header["cpu_seconds"])
    return TierPart(
        {
            VERDICTS: f"{verdicts_section(assessed, tier, words)}\n\n{forest_plot}",
            TABLES: tables,
            FIGURES: "\n\n".join(
                picture(file, described(words.figures, name), where, name)
                for file, name in zip(files, list(figures)[1:], strict=True)
            ),
            PROTOCOL: "\n\n".join((
                seeds_table(found, ledger.LOOKS.get((number, tier), ()), words),
                provenance.settings_table(experiment, found, words.labels),
            )),
            SOURCES: f"`{made}`; {spent}. Missing: {gaps}.\n\n"
            + provenance.recordings_table(found),
        },
        digests,
    )  # fmt: skip


def verdicts_section(assessed: Sequence[Assessment], tier: str, words: Words) -> str:
    """How many claims got which verdict; a row a claim, and a row a part."""
    counts: dict[str, int] = {}
    for one in assessed:
        counts[one.verdict] = counts.get(one.verdict, 0) + 1
    notes = [n for n in words.notes if tier in n["tiers"]]
    notes = [n for n in notes if set(n["claims"]) & {one.claim.id for one in assessed}]
    columns = ["claim", "compared", "the paper", "ours, 95 % interval", "d", "verdict"]
    rows = [[claim_cell(one, notes), one.claim.contrast, paper_cell(one), ours_cell(one),
             f"{one.claim.smallest:g} {one.claim.unit}", verdict_cell(one)]
            for one in assessed]  # fmt: skip
    blocks = [
        f"{len(assessed)} claims: " + ", ".join(f"{n} {verdict}" for verdict, n in counts.items()) + ".",
        pages.rows_table(columns, rows),
        *(f"{MARKS[i]} {note['note']}" for i, note in enumerate(notes)),
    ]
    parts = parts_table([one for one in assessed if len(one.part_verdicts) > 1])
    if len(parts):
        table = pages.frame_table(parts, {"id": "claim", **words.labels})
        blocks += [f"The parts of claims that have several.\n\n{pages.folded('Parts', table, len(parts))}"]
    return "\n\n".join(blocks)


def claim_cell(one: Assessment, notes: Sequence[Mapping[str, Any]]) -> str:
    marks = "".join(MARKS[i] for i, note in enumerate(notes) if one.claim.id in note["claims"])
    return f"**{one.claim.id}**{marks} {one.claim.claim}"


def paper_cell(one: Assessment) -> str:
    """The paper's words, and its own effect in our unit, held against our interval."""
    own, shown = one.claim.paper_effect, one.record()
    if own is None or shown["low"] is None:
        return one.claim.paper
    side = "inside" if shown["low"] <= own <= shown["high"] else "outside"
    return f"{one.claim.paper}; as we measure it {own:+.3g} {one.claim.unit}, {side} our interval"


def ours_cell(one: Assessment) -> str:
    shown = one.record()
    effect = effect_text(shown)
    return f"{shown['deciding']}: {effect}" if shown["deciding"] else effect


def verdict_cell(one: Assessment) -> str:
    return f"**{one.verdict}**" + (f": {one.why}" if one.why else "")


def tables_section(tables: Mapping[str, Any], words: Words) -> str:
    """Every table under its title, long ones folded; a table without rows is left out."""
    blocks = []
    for name, frame in tables.items():
        if not len(frame):
            continue
        title, _, text = described(words.tables, name).partition("\n")
        table = pages.frame_table(frame, words.labels)
        blocks += [f"#### {title}", text.strip(), pages.folded(title, table, len(frame))]
    return "\n\n".join(filter(None, blocks))


def printed_section(paper: str, words: Words) -> str:
    """Tables of the paper, and what was counted in its data, as they are in its tables.json."""
    frames = {}
    for name in words.printed:
        content = paper_tables(paper)[name]
        rows = content["rows"]
        sections = [str(row.get("section") or "") for row in rows]
        names = [str(row["name"]) for row in rows]
        index = pd.Index(names) if not any(sections) else pd.MultiIndex.from_arrays([sections, names])
        values = [[row["values"].get(column) for column in content["columns"]] for row in rows]
        labels = [column.replace("_", " ") for column in content["columns"]]
        columns = [words.labels.get(c, label) for c, label in zip(content["columns"], labels, strict=True)]
        frames[name] = pd.DataFrame(values, index=index, columns=columns, dtype=object)
    return tables_section(frames, Words(tables=words.printed, labels=words.labels))


def described(words: Mapping[str, str], name: str) -> str:
    """The title and text of a table or figure: of the longest name that its own begins with.

    What follows is a collection, which the title then has; a name that is not there is its title.
    """
    known = [key for key in words if name == key or name.startswith(f"{key}_")]
    if not known:
        return name.replace("_", " ").capitalize()
    key = max(known, key=len)
    title, _, text = words[key].strip().partition("\n")
    rest = name[len(key) :].strip("_").replace("_", " ")
    return (f"{title}: {rest}" if rest else title) + (f"\n{text}" if text else "")


def picture(file: str, described_as: str, tier: str, name: str) -> str:
    """A picture with its caption below it."""
    title, _, text = described_as.strip().partition("\n")
    caption = " ".join([f"*{title}.*" if title else "", *text.split()]).strip()
    alt = f"{tier}: {title or name}".replace("[", "(").replace("]", ")")
    if len(alt) < SHORTEST_ALT:
        alt = f"{alt}, a figure made from the evidence"
    return f"![{alt}](pictures/{file})\n\n{caption}".strip()


def seeds_table(found: Any, looks: Sequence[int], words: Words) -> str:
    """How many seeds each data set has, and how often verdicts were read."""
    groups: dict[str, list[str]] = {}
    for name in found.datasets:
        count = len(found.seeds_of(name))
        groups.setdefault(str(count or "none"), []).append(words.labels.get(name, name))
    read = ", ".join(map(str, looks)) or "once"
    rows = [["; ".join(names), seeds, read] for seeds, names in groups.items()]
    return pages.rows_table(["data set", "seeds", "read with"], rows)


# --- The page --------------------------------------------------------------------------------------


def page(notebook: str, tiers: Mapping[str, TierPart]) -> str:
    """The Markdown of a study."""
    number, paper = notebook[:2], PAPERS[notebook[:2]]
    parts = written_parts(paper)
    links = (
        f"Beside it: [the notebook](../../notebooks/{notebook}.ipynb), "
        "[the ledger](../ledger.md) of all claims, [the data sets](../../data/README.md)"
    )
    head = HEAD.format(command=f"python ci/studies.py write {number}", paper=paper, links=links)
    blocks = [f"# {title_of(notebook)}: the study", head]
    blocks.append("\n".join(f"- [{s}](#{anchor(s)})" for s in SECTIONS))
    for section in SECTIONS:
        blocks.append(f"## {section}")
        before = {VERDICTS: RULE, PROTOCOL: parts[PROTOCOL]}.get(section, parts.get(section, ""))
        blocks += [before] * bool(before)
        if section == PROTOCOL:
            blocks += ["### Seeds and settings, as recorded", EXPLAINED.format(paper=paper)]
        level = "####" if section == PROTOCOL else "###"
        for tier, part in tiers.items():
            if part.sections.get(section):
                blocks += [f"{level} {TIER_NAMES[tier]}", part.sections[section]]
        if section == TABLES and (as_printed := printed_section(paper, words_of(paper))):
            blocks += ["### As printed or counted, without runs of ours", as_printed]
    return "\n\n".join(blocks) + "\n"


def anchor(heading: str) -> str:
    """The anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def title_of(notebook: str) -> str:
    """The notebook's own title."""
    path = ROOT / "notebooks" / f"{notebook}.ipynb"
    first = nbformat.read(path, as_version=4).cells[0].source
    return str(first.splitlines()[0].lstrip("# "))


def faults(path: Path, text: str, pictures: Mapping[str, str]) -> Iterator[str]:
    """Where a page on disk and its pictures are not what the evidence gives."""
    old = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    new = text.splitlines()
    if old != new:
        line = next((n for n, pair in enumerate(zip(old, new, strict=False), 1) if len(set(pair)) > 1),
                    min(len(old), len(new)) + 1)  # fmt: skip
        yield f"docs/studies/{path.name}, line {line}, says something else"
    folder = path.parent / "pictures"
    for name, digest in pictures.items():
        if pages.shown_in(folder / name) != digest:
            yield f"docs/studies/pictures/{name} shows something else, or is not there"
    yield from (f"docs/studies/pictures/{p.name} is of no figure" for p in stray(path, pictures))


def stray(path: Path, pictures: Mapping[str, str]) -> list[Path]:
    """Pictures of a paper that none of its figures makes."""
    own = sorted((path.parent / "pictures").glob(f"{path.name[:2]}-*"))
    return [file for file in own if file.name not in pictures]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("write", "check"))
    parser.add_argument("numbers", nargs="*", metavar="NUMBER", help="01, 02, …; all if none")
    options = parser.parse_args(arguments)
    wrong: list[str] = []
    try:
        found = collect(ROOT, options.numbers or list(PAPERS), options.command == "write")
        for notebook, tiers in found.items():
            path = ROOT / "docs" / "studies" / f"{notebook}.md"
            text = page(notebook, tiers)
            pictures = {name: d for part in tiers.values() for name, d in part.pictures.items()}
            if options.command == "write":
                for file in stray(path, pictures):
                    file.unlink()
                write_atomic(path, lambda file, text=text: file.write_text(text, encoding="utf-8"))
            wrong += faults(path, text, pictures)
    except DataError as error:
        raise SystemExit(str(error)) from None
    for fault in wrong:
        print(f"{fault}: python ci/studies.py write", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
