"""A static site from a folder of `mmlib run`: an overview with figures, all claims, all notebooks.

nbconvert renders the notebooks with JupyterLab's own style. The site needs no network, no server
and no script: equations are MathML. Every number on it is read from the run or from recorded
evidence.

A run may be another's, so nothing in it is trusted: its names are plain names, its files are no
links, and on every page a content security policy forbids scripts; what could be one is left out.
"""

import html
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from bs4 import BeautifulSoup
from jinja2 import pass_context
from latex2mathml.converter import convert
from nbconvert import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbformat.v4 import new_notebook

from mmlib.core.claims import effect_text
from mmlib.core.errors import DataError
from mmlib.core.files import listed
from mmlib.core.paths import PACKAGE
from mmlib.suite import record
from mmlib.suite.outcomes import (
    FORMS,
    RESULTS,
    clock,
    figures_line,
    form_fault,
    strict_json,
    verdict_counts,
)
from mmlib.suite.runner import TIME_LIMITS

TEMPLATES = PACKAGE / "suite" / "report_site"
GENERATOR = "<!-- mmlib report -->"  # a report is known by it
HEADING = re.compile(r"^#+ +(.+)", re.MULTILINE)
# "paper", "paper's ±", "CMCM, paper": a column of printed figures. "T 0.1 (paper)" is a setting.
PRINTED_COLUMN = re.compile(r"<th[^>]*>\s*(?:[^<]*, )?paper(?:(?:'|&#x27;|&#39;)s\b[^<]*)?\s*</th>")
# No script runs and nothing is loaded from elsewhere, whatever a page holds.
POLICY = (
    "default-src 'none'; img-src 'self' file: data:; style-src 'unsafe-inline'; font-src data:; "
    "base-uri 'none'; form-action 'none'"
)
ACTIVE = "script, iframe, frame, object, embed, applet, base, link, form, meta[http-equiv]"
RUNS = re.compile(r"(javascript|vbscript|data:text/html)", re.IGNORECASE)  # a link that does


class ReportError(ValueError):
    """A run that no report can be made of, or a folder that must not be overwritten."""


@dataclass(frozen=True)
class Notebook:
    """What a run left of one notebook.

    entry: of summary.json; folder: of its results; cells: executed, none where nothing was.
    """

    stem: str
    entry: dict[str, Any]
    folder: Path
    cells: list[Any]

    @property
    def title(self) -> str:
        """Its first heading, else what its file's name says."""
        heading = next(filter(None, (HEADING.search(cell.source) for cell in self.cells)), None)
        return re.sub(r"[*`]", "", heading[1]) if heading else self.stem.replace("_", " ")

    @property
    def figures(self) -> list[Path]:
        """Its saved figures."""
        return listed(self.folder / "figures", "*.png")

    @property
    def results(self) -> list[Path]:
        """Its files of results that are there."""
        return [self.folder / name for name in RESULTS if (self.folder / name).exists()]

    @property
    def paper_tables(self) -> dict[str, str]:
        """The cells that show a paper's figures beside ours: their ids, and their sections."""
        sections = {}
        for cell, section in with_sections(self.cells, self.title):
            tables = [str(o.get("data", {}).get("text/html")) for o in cell.get("outputs", [])]
            if any(PRINTED_COLUMN.search(t) and ">verdict<" not in t for t in tables):
                sections[cell.id] = section
        return sections


def with_sections(cells: Sequence[Any], section: str) -> Iterator[tuple[Any, str]]:
    """Cells, each with the heading above it; before the first heading, `section`."""
    for cell in cells:
        if cell.cell_type == "markdown":
            section = [section, *HEADING.findall(cell.source)][-1]
        yield cell, section


@dataclass(frozen=True)
class Run:
    """A run's folder as read. recorded: tier -> stem -> records of its claims."""

    folder: Path
    summary: dict[str, Any]
    notebooks: list[Notebook]
    recorded: dict[str, dict[str, list[dict[str, Any]]]]

    @property
    def claims(self) -> list[dict[str, Any]]:
        """The records of all claims of this run."""
        return [claim for notebook in self.notebooks for claim in notebook.entry["claims"]]

    def claims_by_source(self, notebook: Notebook) -> dict[str, dict[str, dict[str, Any]]]:
        """A notebook's claims in this run and in the recorded runs: source -> id -> record."""
        sources = {"this run": notebook.entry["claims"]}
        for tier, claims in self.recorded.items():
            if notebook.stem in claims:
                sources[f"recorded, {tier}"] = claims[notebook.stem]
        return {name: {c["id"]: c for c in claims} for name, claims in sources.items()}


def read_run(folder: Path) -> Run:
    """Read a run's folder, and assess the claims of its notebooks from their evidence.

    Raises ReportError with the file that is missing or broken, and what to do.
    """
    folder = folder.resolve()
    path, again = folder / "summary.json", f"run it again: mmlib run --out {folder}"
    if not path.exists():
        again = "no run is there: `mmlib run` makes one and links runs/latest to it"
    try:
        summary = strict_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ReportError(f"{path} cannot be read ({error}); {again}") from None
    if fault := form_fault(FORMS["summary.json"], summary):
        raise ReportError(f"{path}: {fault}; {again}")
    try:
        notebooks = [
            Notebook(entry["notebook"], entry, folder / entry["out"], _executed(folder, entry))
            for entry in summary["notebooks"]
        ]
    except Exception as error:  # nbformat raises many kinds
        fault = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise ReportError(f"{folder}: {fault}; {again}") from None
    _need_own(path, *(file for notebook in notebooks for file in notebook.figures))
    _need_own(*(file for notebook in notebooks for file in notebook.results))
    return Run(folder, summary, notebooks, recorded_claims([n.stem for n in notebooks]))


def _need_own(*files: Path) -> None:
    """Raise ReportError for a file of a run that is a link, or none: what it leads to is private.

    The run's folder itself is resolved.
    """
    for path in files:
        if path.resolve() != path or not path.is_file():
            raise ReportError(
                f"{path} is a link or no file, and a report shows only a run's own files; put the "
                "file itself there, or take it away"
            )


def _executed(folder: Path, entry: Mapping[str, Any]) -> list[Any]:
    """The cells of an executed notebook; none of one that failed and left nothing readable."""
    path = folder / entry["executed"]
    if path.exists():
        _need_own(path)
    try:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        return notebook.cells
    except Exception:  # nbformat raises many kinds
        if entry["ok"]:
            raise
        return []


def recorded_claims(stems: Sequence[str]) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Claims assessed from evidence: tier -> stem -> their records.

    A notebook without evidence on a tier, or whose evidence other code has made, is left out.
    """
    recorded: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for tier in TIME_LIMITS:
        for stem in stems:
            try:
                assessments = record.assess_paper(stem[:2], tier)
            except DataError:
                continue
            recorded.setdefault(tier, {})[stem] = [claim.record() for claim in assessments]
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
        file, mark, anchor = url.partition("#")
        if file and not re.match(r"https?:|mailto:", file):
            stem = file.rsplit("/", 1)[-1].removesuffix(".ipynb")
            if stem not in self.pages:
                return text
            url = f"{stem}.html{mark}{anchor}"
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
        pages = [notebook.stem for notebook in context["resources"]["run"].notebooks]
        renderer = _Markdown(pages, attachments=attachments)
        return MarkdownWithMath(renderer=renderer).render(source)


def page(
    run: Run, template: str, title: str, cells: Sequence[Any] = (), problems: Sequence[str] = ()
) -> str:
    """A page from a template of `TEMPLATES`; a picture is described by the heading above it."""
    for cell, section in with_sections(cells, title):
        cell.metadata["section"] = section
    exporter = _Exporter(
        template_name="lab",
        template_file=template,
        extra_template_paths=[str(TEMPLATES)],
        filters={f.__name__: f for f in (clock, effect_text, figures_line, verdict_counts)},
    )
    resources = {"metadata": {"name": title}, "run": run, "generator": GENERATOR}
    resources["problems"] = problems
    return _inert(exporter.from_notebook_node(new_notebook(cells=list(cells)), resources)[0])


def _inert(page: str) -> str:
    """A page with `POLICY`, without what could run or load something."""
    soup = BeautifulSoup(page, "html.parser")
    for tag in soup.select(ACTIVE):
        tag.decompose()
    for tag in soup.find_all(True):
        for name, value in [*tag.attrs.items()]:
            link = re.sub(r"[\x00-\x20]", "", value) if isinstance(value, str) else ""
            if name.lower().startswith("on") or RUNS.match(link):
                del tag[name]
    policy = {"http-equiv": "Content-Security-Policy", "content": POLICY}
    assert soup.head is not None  # each of `TEMPLATES` has one
    soup.head.insert(0, soup.new_tag("meta", attrs=policy))  # before all that it is about
    return str(soup)


def write(run: Path, out: Path | None = None) -> Path:
    """Write the site of a run into `out`, by default its folder `report`; returns its index.html.

    An older report is replaced. Raises ReportError for a run that cannot be read, and for an `out`
    that holds something else, or more than a report.
    """
    folder = run.resolve()
    out = (out or folder / "report").resolve()
    index = out / "index.html"
    ours = index.is_file() and GENERATOR in index.read_text(encoding="utf-8", errors="replace")
    if not ours and out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise ReportError(f"{out} is no report of mmlib, so it stays as it is; name another folder")
    if foreign := _foreign(out):
        raise ReportError(
            f"{out} holds {foreign}, no part of a report; move it away, or name another"
        )
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
    expected = {f"{stem}.html" for stem in pages} | pages | {"summary.json"}
    return next((path.name for path in entries if path.name not in expected), "")


def _write_pages(run: Run, site: Path) -> None:
    """Write all files of the site into an empty folder."""
    pages = {
        "index": page(run, "overview.html.j2", "Overview"),
        "claims": page(run, "claims.html.j2", "Claims"),
    }
    for notebook in run.notebooks:
        pages[notebook.stem] = page(
            run, "page.html.j2", notebook.title, notebook.cells, notebook.entry["problems"]
        )
        for path in [*notebook.figures, *notebook.results]:
            target = site / notebook.stem / path.name
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(path, target)
    for stem, text in pages.items():
        (site / f"{stem}.html").write_text(text, encoding="utf-8")
    shutil.copyfile(run.folder / "summary.json", site / "summary.json")
