"""A static site from a folder of `mmlib run`: an overview with figures, all claims, all notebooks.

nbconvert renders the notebooks with JupyterLab's own style. The site needs no network, no server
and no script: equations are MathML. Every number on it is read from the run or from recorded
evidence.
"""

import html
import json
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import nbformat
import pandas as pd
from jinja2 import pass_context
from latex2mathml.converter import convert
from nbconvert import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbformat.v4 import new_markdown_cell, new_notebook

from mmlib.core.claims import effect_text
from mmlib.core.errors import DataError
from mmlib.core.paths import PACKAGE
from mmlib.suite import record
from mmlib.suite.outcomes import RESULTS, clock, figures_line, form_fault
from mmlib.suite.outcomes import verdict_counts as counts
from mmlib.suite.runner import TIME_LIMITS

SITE = PACKAGE / "suite" / "report_site"
GENERATOR = "<!-- mmlib report -->"  # a report is known by it
HEADING = re.compile(r"^#+ +(.+)", re.MULTILINE)
# "paper", "paper's ±", "CMCM, paper": a column of printed figures. "T 0.1 (paper)" is a setting.
PRINTED_COLUMN = re.compile(r"<th[^>]*>\s*(?:[^<]*, )?paper(?:(?:'|&#x27;|&#39;)s\b[^<]*)?\s*</th>")


class ReportError(ValueError):
    """A run that no report can be made of, or a folder that must not be overwritten."""


@dataclass(frozen=True)
class Notebook:
    """What a run left of one notebook: its entry in summary.json, its folder, what was executed."""

    stem: str
    told: dict[str, Any]
    folder: Path
    cells: list[Any]  # none where nothing was executed

    @property
    def title(self) -> str:
        """Its first heading, else what its file's name says."""
        found = next(filter(None, (HEADING.search(cell.source) for cell in self.cells)), None)
        return re.sub(r"[*`]", "", found[1]) if found else self.stem.replace("_", " ")

    @property
    def figures(self) -> list[Path]:
        """Its saved figures."""
        return sorted((self.folder / "figures").glob("*.png"))

    @property
    def results(self) -> list[Path]:
        """Its files of results that are there."""
        return [self.folder / name for name in RESULTS if (self.folder / name).exists()]

    @property
    def paper_tables(self) -> dict[str, str]:
        """The cells that show a paper's figures beside ours: their ids, and their sections."""
        found = {}
        for cell, section in with_sections(self.cells, self.title):
            tables = [str(o.get("data", {}).get("text/html")) for o in cell.get("outputs", [])]
            if any(PRINTED_COLUMN.search(t) and ">verdict<" not in t for t in tables):
                found[cell.id] = section
        return found


def with_sections(cells: Sequence[Any], section: str) -> Iterator[tuple[Any, str]]:
    """Cells, each with the heading that it stands under."""
    for cell in cells:
        if cell.cell_type == "markdown":
            section = [section, *HEADING.findall(cell.source)][-1]
        yield cell, section


# What a page needs of a notebook's entry in summary.json.
ENTRY = ("notebook", "out", "executed", "ok", "seconds", "claims", "checks", "problems")


@dataclass(frozen=True)
class Run:
    """A run's folder as read. recorded: tier -> stem -> records of its claims."""

    folder: Path
    summary: dict[str, Any]
    notebooks: list[Notebook]
    recorded: dict[str, dict[str, list[dict[str, Any]]]]


def read_run(folder: Path) -> Run:
    """Read a run's folder, and judge the claims of its notebooks from their evidence.

    Raises ReportError with the file that is missing or broken, and what to do.
    """
    again = f"run it again: mmlib run --out {folder}"
    if not (folder / "summary.json").exists():
        again = "no run is there: `mmlib run` makes one and links runs/latest to it"
    summary = _read_json(folder / "summary.json", {"parameters", "notebooks", "mmlib"}, again)
    try:
        for one in summary["notebooks"]:
            for key in ENTRY:
                one[key]
        notebooks = [
            Notebook(one["notebook"], one, folder / one["out"], _executed(folder, one))
            for one in summary["notebooks"]
        ]
        judged = [one.told["claims"] for one in notebooks if one.told["claims"]]
        faults = [*filter(None, (form_fault("claims.json", found) for found in judged))]
    except Exception as error:  # nbformat raises many kinds; a cut summary, KeyError
        raise ReportError(f"{folder}: {type(error).__name__}: {error}; {again}") from None
    if not notebooks or faults:
        what = faults[0] if faults else "no notebook"
        raise ReportError(f"{folder / 'summary.json'}: {what}; {again}")
    return Run(folder, summary, notebooks, recorded_claims([n.stem for n in notebooks]))


def _executed(folder: Path, told: Mapping[str, Any]) -> list[Any]:
    """The cells of an executed notebook; none of one that failed and left nothing readable."""
    try:
        return nbformat.read(folder / told["executed"], as_version=4).cells
    except Exception:  # nbformat raises many kinds
        if told["ok"]:
            raise
        return []


def _read_json(path: Path, keys: set[str], mend: str) -> dict[str, Any]:
    """The dictionary in a JSON file, or a ReportError that says how to mend it."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ReportError(f"{path} cannot be read ({error}); {mend}") from None
    missing = keys - set(content) if isinstance(content, dict) else keys
    if missing:
        raise ReportError(f"{path} lacks {', '.join(sorted(missing))}; {mend}")
    return content


def recorded_claims(stems: Sequence[str]) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Claims judged from evidence: tier -> stem -> their records.

    A notebook without evidence on a tier, or whose evidence other code has made, is left out.
    """
    recorded: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for tier in TIME_LIMITS:
        for stem in stems:
            try:
                judged = record.assess_paper(stem[:2], tier)
            except DataError:
                continue
            recorded.setdefault(tier, {})[stem] = [one.record() for one in judged]
    return recorded


def mathml(latex: str, display: str = "inline") -> str:
    """LaTeX as MathML; what cannot be converted whole stays readable as LaTeX in `<code>`."""
    try:
        converted = convert(latex.strip(), display=display)
    except Exception:  # the converter lets many kinds through; each means the same here
        converted = "\\"
    if "\\" in converted:  # a command that it does not know
        return f'<code class="latex">{html.escape(latex.strip())}</code>'
    return converted


class _Markdown(IPythonRenderer):
    """nbconvert's Markdown with MathML, links to the other pages, and no links out of the site."""

    def __init__(self, pages: Collection[str], **how: Any) -> None:
        super().__init__(escape=False, **how)
        self.pages = pages

    def block_math(self, body: str) -> str:
        return mathml(body, "block")

    def inline_math(self, body: str) -> str:
        return mathml(body)

    def latex_environment(self, name: str, body: str) -> str:
        return mathml(f"\\begin{{{name}}}{body}\\end{{{name}}}", "block")

    def link(self, text: str, url: str, title: str | None = None) -> str:
        file, mark, place = url.partition("#")
        if file and not re.match(r"https?:|mailto:", file):
            stem = file.rsplit("/", 1)[-1].removesuffix(".ipynb")
            if stem not in self.pages:
                return text
            url = f"{stem}.html{mark}{place}"
        return super().link(text, url, title)

    def image(self, text: str, url: str, title: str | None = None) -> str:
        if url.startswith(("data:", "attachment:")):
            return super().image(text, url, title)
        return f"[picture: {text}]"


class _Exporter(HTMLExporter):
    """nbconvert's pages in JupyterLab's style, without scripts and with the site's navigation."""

    @pass_context
    def markdown2html(self, context: Any, source: str) -> str:
        attachments = getattr(context.get("cell"), "attachments", {})
        pages = [one.stem for one in context["resources"]["run"].notebooks]
        renderer = _Markdown(pages, attachments=attachments)
        return MarkdownWithMath(renderer=renderer).render(source)


def page(run: Run, title: str, cells: Sequence[Any]) -> str:
    """A page of cells; pictures are told by the heading that they stand under."""
    node = new_notebook(cells=deepcopy(cells))
    for cell, section in with_sections(node.cells, title):
        cell.metadata["section"] = section
    own = {"template_file": "page.html.j2", "extra_template_paths": [str(SITE)]}
    resources = {"metadata": {"name": title}, "run": run, "generator": GENERATOR}
    return _Exporter(template_name="lab", **own).from_notebook_node(node, resources)[0]


def _link(target: str, words: str) -> str:
    return f'<a href="{quote(target, safe="/#=")}">{html.escape(words)}</a>'


def _table(rows: Sequence[Mapping[str, str]]) -> str:
    with pd.option_context("display.max_colwidth", None):
        return pd.DataFrame(rows).to_html(index=False, escape=False, border=0)


def overview(run: Run) -> str:
    """What the run gave: a row for each notebook, its saved figures, and how it was run."""
    rows, figures = [], []
    for one in run.notebooks:
        tables = [_link(f"{one.stem}.html#cell-id={c}", t) for c, t in one.paper_tables.items()]
        row = {
            "notebook": _link(f"{one.stem}.html", one.title),
            "run": f"{'done' if one.told['ok'] else 'failed'} in {clock(one.told['seconds'])}",
            "verdicts": counts(one.told["claims"]) or "none",
            "figures against the record": html.escape(figures_line(one.told["checks"])),
            "tables beside the paper's": "<br>".join(tables),
            "files": "<br>".join(_link(f"{one.stem}/{f.name}", f.name) for f in one.results),
        }
        rows.append(row)
        figures += [f"## Figures of {one.title}"] * bool(one.figures)
        for path in one.figures:
            target = quote(f"{one.stem}/{path.name}")
            picture = f'<img loading="lazy" src="{target}" alt="{html.escape(path.stem)}">'
            figures.append(f'<figure><a href="{target}">{picture}</a></figure>')
    every = counts([claim for one in run.notebooks for claim in one.told["claims"]])
    told = [f"# A run of mmlib: {run.folder.name}", f"Claims of the papers: {every or 'none'}."]
    told += [_table(rows), *figures, "## How it was run"]
    facts = {key: value for key, value in run.summary.items() if key != "notebooks"}
    told += [f"- {key}: `{json.dumps(value)}`" for key, value in facts.items()]
    return "\n\n".join([*told, _link("summary.json", "summary.json")])


def claims(run: Run) -> str:
    """How every claim fared in this run, and what is recorded for it on each tier of data."""
    told = ["# The claims over tiers", "The effect that decides a claim, with its 95 % interval."]
    for one in run.notebooks:
        fared = {"this run": one.told["claims"]}
        for tier, own in run.recorded.items():
            fared |= {f"recorded, {tier}": own[one.stem]} if one.stem in own else {}
        known = {where: {c["id"]: c for c in found} for where, found in fared.items()}
        rows = []
        for name in dict.fromkeys(name for found in known.values() for name in found):
            said = next(found[name] for found in known.values() if name in found)
            words = (
                f"{html.escape(said['claim'])}<br>paper: {html.escape(said.get('paper') or '–')}"
            )
            told_of = {where: _fared(found.get(name)) for where, found in known.items()}
            rows.append({"id": html.escape(name), "claim": words} | told_of)
        told += [f"## {one.title}", _table(rows) if rows else "No claim was judged."]
    return "\n\n".join(told)


def _fared(claim: Mapping[str, Any] | None) -> str:
    """The verdict on a claim, its effect, why, and its parts."""
    if claim is None:
        return "–"
    parts = [
        f"{part}: {effect_text({**how, 'unit': claim['unit']})}, {how['verdict']}"
        for part, how in (claim.get("parts") or {}).items()
    ]
    lines = [effect_text(claim), claim.get("why"), *parts]
    told = [html.escape(" ".join(line.split())) for line in lines if line]
    return "<br>".join([f"<strong>{html.escape(claim['verdict'])}</strong>", *told])


def write(run: Path, out: Path | None = None) -> Path:
    """Write the site of a run into `out`, by default its folder `report`; returns its index.html.

    An older report is replaced. Raises ReportError for a run that cannot be read, and for an `out`
    that holds something else, or more than a report.
    """
    folder = run.resolve()
    out = (out or folder / "report").resolve()
    index = out / "index.html"
    known = index.is_file() and GENERATOR in index.read_text(encoding="utf-8", errors="replace")
    if not known and out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise ReportError(f"{out} is no report of mmlib, so it stays as it is; name another folder")
    if more := _foreign(out):
        raise ReportError(f"{out} holds {more}, no part of a report; move it away, or name another")
    content = read_run(folder)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".report-", dir=out.parent) as partial_site:
        site = Path(partial_site) / "site"
        site.mkdir()
        _write_pages(content, site)
        if out.exists():
            shutil.rmtree(out)
        site.rename(out)
    return index


def _foreign(out: Path) -> str:
    """The first entry of an older report's folder that is not a report's; "" where none is."""
    entries = sorted(out.iterdir()) if out.is_dir() else []
    pages = {path.stem for path in entries if path.suffix == ".html"}
    own = {f"{stem}.html" for stem in pages} | pages | {"summary.json"}
    return next((path.name for path in entries if path.name not in own), "")


def _write_pages(run: Run, site: Path) -> None:
    """Write all files of the site into an empty folder."""
    pages = {"index": ("Overview", [new_markdown_cell(overview(run))])}
    pages["claims"] = ("Claims", [new_markdown_cell(claims(run))])
    for one in run.notebooks:
        failed = [
            new_markdown_cell(f"**Failed in this run.**\n\n<pre>{html.escape(problem)}</pre>")
            for problem in one.told["problems"]
        ]
        pages[one.stem] = (one.title, [*failed, *one.cells])
        for path in [*one.figures, *one.results]:
            target = site / one.stem / path.name
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(path, target)
    for stem, (title, cells) in pages.items():
        (site / f"{stem}.html").write_text(page(run, title, cells), encoding="utf-8")
    shutil.copyfile(run.folder / "summary.json", site / "summary.json")
