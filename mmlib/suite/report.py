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
from collections.abc import Sequence
from contextlib import suppress
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
from mmlib.suite import outcomes, record
from mmlib.suite.runner import TIME_LIMITS

TEMPLATES = Path(__file__).with_name("report_site")
GENERATOR = "<!-- mmlib report -->"  # a report is known by it
HEADING = re.compile(r"^#+ +(.+)", re.MULTILINE)
# No script runs and nothing is loaded from elsewhere, whatever a page holds.
POLICY = (
    "default-src 'none'; img-src 'self' file: data:; style-src 'unsafe-inline'; font-src data:; "
    "base-uri 'none'; form-action 'none'"
)
ACTIVE = "script, iframe, frame, object, embed, applet, base, link, form, meta[http-equiv]"
RUNS = re.compile(r"(javascript|vbscript|data:text/html)", re.IGNORECASE)  # a link that does
FILTERS = (outcomes.clock, effect_text, outcomes.figures_line, outcomes.verdict_counts)


def write(run: Path, out: Path | None = None) -> Path:
    """Write the site of a run into `out`, by default its folder `report`; returns its index.html.

    An older report is replaced. Raises DataError for a run that cannot be read, with the file
    that is missing or broken and what to do, and for an `out` that holds something else, or more
    than a report.
    """
    folder = run.resolve()
    out = (out or folder / "report").resolve()
    index = out / "index.html"
    entries = sorted(out.iterdir()) if out.is_dir() else []
    if entries or out.is_file():
        if not (index.is_file() and GENERATOR in index.read_text("utf-8", errors="replace")):
            raise DataError(f"{out} is no report of mmlib, so it stays; name another folder")
        pages = {path.stem for path in out.glob("*.html")}
        if foreign := [path.name for path in entries if path.stem not in {*pages, "summary"}]:
            raise DataError(
                f"{out} holds {foreign[0]}, no part of a report; move it away, or name another"
            )
    summary, notebooks = _read(folder)
    site = {"name": folder.name, "summary": summary, "notebooks": notebooks}
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".report-", dir=out.parent) as temporary:
        (partial := Path(temporary) / "site").mkdir()
        (partial / "index.html").write_text(_page(site, "overview", "Overview"), encoding="utf-8")
        (partial / "claims.html").write_text(_page(site, "claims", "Claims"), encoding="utf-8")
        for notebook in notebooks:
            text = _page(site, "page", notebook["title"], notebook)
            (partial / f"{notebook['stem']}.html").write_text(text, encoding="utf-8")
            for path in [*notebook["figures"], *notebook["results"]]:
                (partial / notebook["stem"]).mkdir(exist_ok=True)
                shutil.copyfile(path, partial / notebook["stem"] / path.name)
        shutil.copyfile(folder / "summary.json", partial / "summary.json")
        if out.exists():
            shutil.rmtree(out)
        partial.rename(out)
    return index


def _read(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The summary of a run and its notebooks, their claims assessed from their evidence, too."""
    path, again = folder / "summary.json", f"run it again: mmlib run --out {folder}"
    if not path.exists():
        again = "no run is there: `mmlib run` makes one and links runs/latest to it"
    try:
        summary = outcomes.strict_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read ({error}); {again}") from None
    if fault := outcomes.form_fault(outcomes.FORMS["summary.json"], summary):
        raise DataError(f"{path}: {fault}; {again}")
    _refuse_links(path)
    try:
        return summary, [_notebook(folder, entry) for entry in summary["notebooks"]]
    except DataError:
        raise
    except Exception as error:  # nbformat raises many kinds
        fault = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise DataError(f"{folder}: {fault}; {again}") from None


def _notebook(folder: Path, entry: dict[str, Any]) -> dict[str, Any]:
    """What a run left of one notebook; entry: of summary.json.

    sources: "this run" and the tiers on record -> the records of its claims by id.
    """
    path, results = folder / entry["executed"], folder / entry["out"]
    figures = listed(results / "figures", "*.png")
    files = [results / name for name in outcomes.RESULTS if (results / name).exists()]
    _refuse_links(*figures, *files, *[path][: path.exists()])
    cells = []
    try:
        nbformat.validate(notebook := nbformat.read(path, as_version=4))
        cells = notebook.cells
    except Exception:  # one that failed may have left nothing readable
        if entry["ok"]:
            raise
    stem = entry["notebook"]
    heading = next(filter(None, (HEADING.search(cell.source) for cell in cells)), None)
    section = title = re.sub(r"[*`]", "", heading[1]) if heading else stem.replace("_", " ")
    for cell in cells:
        if cell.cell_type == "markdown":
            section = [section, *HEADING.findall(cell.source)][-1]
        cell.metadata["section"] = section  # a picture is described by the heading above it
    sources = {"this run": {claim["id"]: claim for claim in entry["claims"]}}
    for tier in TIME_LIMITS:
        with suppress(DataError):  # no evidence, or other code has made it
            records = [claim.record() for claim in record.assess_paper(stem[:2], tier)]
            sources[f"recorded, {tier}"] = {claim["id"]: claim for claim in records}
    return {
        "stem": stem, "title": title, "entry": entry, "cells": cells, "figures": figures,
        "results": files, "sources": sources,
    }  # fmt: skip


def _refuse_links(*files: Path) -> None:
    """Raise DataError for a file of a run that is a link, or none: what it leads to is private.

    The run's folder itself is resolved.
    """
    for path in files:
        if path.resolve() != path or not path.is_file():
            raise DataError(
                f"{path} is a link or no file, and a report shows only a run's own files; put the "
                "file itself there, or take it away"
            )


def _page(
    site: dict[str, Any], template: str, title: str, notebook: dict[str, Any] | None = None
) -> str:
    """A page from a template of `TEMPLATES`, with `POLICY` and without what could run or load."""
    exporter = _Exporter(
        template_name="lab",
        template_file=f"{template}.html.j2",
        extra_template_paths=[str(TEMPLATES)],
        filters={function.__name__: function for function in FILTERS},
    )
    resources = {"metadata": {"name": title}, "run": site, "generator": GENERATOR}
    resources["problems"] = notebook["entry"]["problems"] if notebook else []
    node = new_notebook(cells=notebook["cells"] if notebook else [])
    soup = BeautifulSoup(exporter.from_notebook_node(node, resources)[0], "html.parser")
    for tag in soup.select(ACTIVE):
        tag.decompose()
    for tag in soup.find_all(True):
        for name, value in [*tag.attrs.items()]:
            link = re.sub(r"[\x00-\x20]", "", value) if isinstance(value, str) else ""
            if name.lower().startswith("on") or RUNS.match(link):
                del tag[name]
    for table in soup.select("table.dataframe"):  # one of words is aligned left
        if any(cell.text.strip()[:1].isalpha() for cell in table.select("td")):
            table["class"] = "dataframe text"
    policy = {"http-equiv": "Content-Security-Policy", "content": POLICY}
    assert soup.head is not None  # each of `TEMPLATES` has one
    soup.head.insert(0, soup.new_tag("meta", attrs=policy))  # before all that it is about
    return str(soup)


class _Exporter(HTMLExporter):
    """nbconvert's pages in JupyterLab's style, without scripts and with the site's navigation."""

    @pass_context
    def markdown2html(self, context: Any, source: str) -> str:
        attachments = getattr(context.get("cell"), "attachments", {})
        renderer = _Markdown(attachments=attachments, escape=False)
        renderer.pages = [page["stem"] for page in context["resources"]["run"]["notebooks"]]
        return MarkdownWithMath(renderer=renderer).render(source)


class _Markdown(IPythonRenderer):
    """nbconvert's Markdown with MathML, links to the other pages, and no links out of the site."""

    pages: Sequence[str] = ()

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


def mathml(latex: str, display: str = "inline") -> str:
    """LaTeX as MathML; what cannot be converted whole stays readable as LaTeX in `<code>`."""
    try:
        converted = convert(latex.strip(), display=display)
    except Exception:  # the converter lets many kinds through; each means the same here
        converted = "\\"
    if "\\" in converted:  # a command that it does not know
        return f'<code class="latex">{html.escape(latex.strip())}</code>'
    return converted
