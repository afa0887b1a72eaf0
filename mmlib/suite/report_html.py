"""Executed notebooks as accessible HTML: equations as MathML, captions, alt texts, sound headings.

nbconvert renders the cells. What it leaves open is done here, before it (texts for pictures and
tables) and after it (headings, links, scroll boxes), so that a page needs no script, no network
and no style but the site's.
"""

import ast
import html
import io
import logging
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any
from urllib.parse import quote

import bs4
from jinja2 import pass_context
from latex2mathml.converter import convert
from nbconvert import HTMLExporter
from nbconvert.filters import strip_ansi
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbconvert.preprocessors import ExtractOutputPreprocessor
from PIL import Image

PICTURES = ("image/png", "image/jpeg")
WIDGET = "application/vnd.jupyter.widget-view+json"
ACTIVE = ("script", "style", "link", "iframe", "object", "embed", "video", "audio", "form")
LONGEST_ALT = 300
# "paper", "paper's ±", "CMCM, paper": a column of printed figures. "T 0.1 (paper)" is a setting.
PRINTED_COLUMN = re.compile(r"^paper(?:'s\b.*)?$|, paper$")
PRINTED_SOURCE = re.compile(r"\bpaper_(?:values|tables)\(")
NUMBER = re.compile(r"^[-+−–]?\.?\d|^(?:[-–]|[nN]a[nN])$")


@dataclass(frozen=True)
class PaperTable:
    """A table of a notebook that holds a paper's figures: its place and its HTML."""

    cell: str
    section: str
    prose: str
    html: str


@dataclass(frozen=True)
class FigureSource:
    """A cell that saves figures: a pattern of the file's stem, its place, the prose before it."""

    stem: re.Pattern[str]
    cell: str
    section: str
    prose: str


@dataclass
class NotebookPage:
    """A rendered notebook. `files`: path in the site -> bytes; `contents`: (id, text) of each h2.

    title, anchor: text and id of its h1, which is taken out of `body`; empty where the notebook
    does not begin with one.
    """

    title: str = ""
    anchor: str = ""
    body: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    contents: list[tuple[str, str]] = field(default_factory=list)
    tables: list[PaperTable] = field(default_factory=list)
    figures: list[FigureSource] = field(default_factory=list)


# Equations ----------------------------------------------------------------------------------


def mathml(latex: str, display: str = "inline") -> str:
    """LaTeX as MathML; what cannot be converted whole stays readable as LaTeX in `<code>`."""
    try:
        converted = convert(latex.strip(), display=display)
    except Exception:  # the converter lets many kinds through; each means the same here
        converted = "\\"
    if "\\" in converted:  # a command that it does not know
        return f'<code class="latex">{html.escape(latex.strip())}</code>'
    return converted


class _Renderer(IPythonRenderer):
    """nbconvert's Markdown, with MathML in the place of LaTeX."""

    def block_math(self, body: str) -> str:
        return mathml(body, "block")

    def inline_math(self, body: str) -> str:
        return mathml(body)

    def latex_environment(self, name: str, body: str) -> str:
        return mathml(f"\\begin{{{name}}}{body}\\end{{{name}}}", "block")


def markdown(source: str, attachments: Mapping | None = None) -> str:
    """Markdown with equations as HTML."""
    renderer = _Renderer(escape=False, attachments=dict(attachments or {}))
    return MarkdownWithMath(renderer=renderer).render(source)


class _Exporter(HTMLExporter):
    """nbconvert's exporter, cells only: no prompts, no scripts, no colours from terminals."""

    def __init__(self) -> None:
        super().__init__(
            template_name="basic", exclude_input_prompt=True, exclude_output_prompt=True
        )
        self.log = logging.getLogger(__name__)
        self.log.setLevel(logging.ERROR)  # it warns of alt texts, which are given later
        types = set(PICTURES)
        self.register_preprocessor(ExtractOutputPreprocessor(extract_output_types=types), True)

    @pass_context
    def markdown2html(self, context: Any, source: str) -> str:
        return markdown(source, context.get("cell", {}).get("attachments"))

    def default_filters(self) -> Iterator[tuple[str, Any]]:
        yield from super().default_filters()
        yield "ansi2html", lambda text: html.escape(strip_ansi(text))


# Notebooks ----------------------------------------------------------------------------------


def render(node: Any, stem: str, pages: Collection[str]) -> NotebookPage:
    """Render an executed notebook.

    Args:
        node: the notebook, as nbformat reads it; it is not changed.
        stem: name of its page; its pictures go to `<stem>_files/`.
        pages: stems of all notebooks that have a page; links to other files become plain text.
    """
    node = deepcopy(node)
    node.metadata.pop("widgets", None)
    page = NotebookPage()
    alts = _prepare(node.cells, page, stem, pages)
    resources = {"unique_key": "output", "output_files_dir": f"{stem}_files"}
    body, made = _Exporter().from_notebook_node(node, resources)
    page.files = made.get("outputs", {})
    soup = bs4.BeautifulSoup(body, "html.parser")
    _quieten(soup)
    _headings(soup, page)
    mend_links(soup, pages)
    for picture in soup.find_all("img"):
        _picture(soup, picture, alts, page.files)
    for table in soup.find_all("table"):
        if not table.find_parent(class_="scroll"):
            heading = table.find_previous(re.compile("^h[1-6]$"))
            _tidy_table(soup, table, heading.get_text() if heading else stem, hidden=True)
    for block in soup.find_all("pre"):
        block["tabindex"] = "0"  # it may scroll, and a keyboard must be able to do that
    _fold(soup)
    page.body = str(soup)
    return page


def _prepare(
    cells: Sequence[Any], page: NotebookPage, stem: str, pages: Collection[str]
) -> dict[str, str]:
    """Give outputs their texts and note tables and figures; returns cell id -> alt text."""
    alts, section, source = {}, stem, ""
    for number, cell in enumerate(cells):
        cell.setdefault("id", f"cell-{number}")
        if cell.cell_type == "markdown":
            source = cell.source
            titles = bs4.BeautifulSoup(markdown(source), "html.parser").find_all(["h1", "h2"])
            section = _title(titles[-1]) if titles else section
        if cell.cell_type != "code":
            continue
        if cell.metadata.get("jupyter", {}).get("source_hidden"):
            cell.metadata.setdefault("tags", []).append("source-hidden")
        place = f"cell-id={cell.id}"
        patterns = saved_figures(cell.source)
        needed = patterns or any("text/html" in o.get("data", {}) for o in cell.outputs)
        prose = _prose(source, stem, pages) if needed else ""
        page.figures += [FigureSource(p, place, section, prose) for p in patterns]
        names = [p.pattern for p in patterns] if len(patterns) == 1 else []
        name = names[0] if names and names[0].isidentifier() else ""
        alts[place] = _shorten(". ".join(filter(None, (name, section, _plain(source)))))
        cell.outputs = [o for o in cell.outputs if not _says_nothing(o)]
        _prepare_outputs(cell, page, place, section, prose, alts[place])
    return alts


def _prepare_outputs(
    cell: Any, page: NotebookPage, place: str, section: str, prose: str, alt: str
) -> None:
    """Alt texts of a cell's pictures, captions of its tables; tables of papers are noted."""
    label, seen = "", 0
    total = sum(any(kind in output.get("data", {}) for kind in PICTURES) for output in cell.outputs)
    for output in cell.outputs:
        data = output.get("data", {})
        if WIDGET in data:
            data.clear()
            data["text/plain"] = "(a widget, which needs a running notebook)"
        data.pop("application/javascript", None)
        if "text/markdown" in data and "text/html" not in data:
            text = _plain(data["text/markdown"])
            label = text if len(text) < 100 else ""
        if "text/html" in data and "<table" in data["text/html"]:
            soup = bs4.BeautifulSoup(data["text/html"], "html.parser")
            _quieten(soup)
            for table in soup.find_all("table"):
                if is_paper_table(table, cell.source):
                    copy = bs4.BeautifulSoup(str(table), "html.parser")
                    for only in copy.find_all("table", recursive=False):
                        _tidy_table(copy, only, label or section)
                    page.tables.append(PaperTable(place, section, prose, str(copy)))
                _tidy_table(soup, table, ", ".join(filter(None, (label, section))), hidden=True)
            data["text/html"] = str(soup)
        for kind in PICTURES:
            if kind in data and "text/html" not in data:
                seen += 1
                told = [f"{seen} of {total}"] if total > 1 else []
                text = ": ".join(filter(None, (", ".join(filter(None, (label, *told))), alt)))
                output.metadata.setdefault(kind, {})["alt"] = _shorten(text)


def _says_nothing(output: Any) -> bool:
    """Whether an output is a progress bar, which has served when the cell has run, or blank."""
    data = output.get("data", {})
    bar = WIDGET in data and "%|" in data.get("text/plain", "")
    return bar or (output.output_type == "stream" and not output.text.strip())


def saved_figures(source: str) -> list[re.Pattern[str]]:
    """Patterns of the stems that a cell's calls `plots.save(figure, folder, name)` write."""
    try:
        tree = ast.parse(source)
    except SyntaxError:  # magics
        return []
    patterns = []
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and ast.unparse(call.func).split(".")[-1] == "save":
            named = [k.value for k in call.keywords if k.arg == "name"] + call.args[2:3]
            for name in named:
                parts = name.values if isinstance(name, ast.JoinedStr) else [name]
                patterns.append(
                    "".join(
                        re.escape(str(p.value)) if isinstance(p, ast.Constant) else ".+"
                        for p in parts
                    )
                )
    return [re.compile(pattern) for pattern in patterns]


def is_paper_table(table: bs4.Tag, source: str = "") -> bool:
    """Whether a table holds figures that a paper printed, but is no ledger of claims.

    source: of the cell that shows it; one that asks for `paper_values(...)` shows a paper's table.
    """
    heads = [cell.get_text(strip=True) for cell in table.select("thead th, thead td")]
    printed = any(PRINTED_COLUMN.search(head) for head in heads) or PRINTED_SOURCE.search(source)
    return bool(printed) and "verdict" not in heads


# Texts --------------------------------------------------------------------------------------


def _title(heading: bs4.Tag) -> str:
    """A heading's text without nbconvert's sign for its link."""
    return heading.get_text().removesuffix("¶").strip()


def _plain(source: str) -> str:
    """The last paragraph of a Markdown text, without marks; equations as LaTeX says them."""
    spoken = re.sub(r"\$+([^$]+)\$+", lambda m: re.sub(r"\\(\w+)|[{}\\]", r"\1", m[1]), source)
    blocks = bs4.BeautifulSoup(markdown(spoken), "html.parser").find_all(["p", "li"])
    return " ".join(blocks[-1].get_text().split()) if blocks else ""


def _prose(source: str, stem: str, pages: Collection[str]) -> str:
    """The paragraphs and lists of a Markdown text as HTML, to be shown on another page."""
    soup = bs4.BeautifulSoup(markdown(source), "html.parser")
    mend_links(soup, pages, home=f"{stem}.html")
    return "".join(str(tag) for tag in soup.find_all(["p", "ul", "ol"], recursive=False))


def _shorten(text: str) -> str:
    """A text of at most LONGEST_ALT characters, cut between words."""
    text = " ".join(text.split())
    if len(text) <= LONGEST_ALT:
        return text
    return text[:LONGEST_ALT].rsplit(" ", 1)[0].rstrip(",;:") + " …"


# What is done to the HTML -------------------------------------------------------------------


def _quieten(soup: bs4.BeautifulSoup) -> None:
    """Remove scripts, frames and styles: the page has the site's style alone."""
    for tag in soup.find_all(ACTIVE):
        tag.decompose()
    for tag in soup.find_all(True):
        for name in [n for n in tag.attrs if n == "style" or n.startswith("on")]:
            del tag[name]


def _headings(soup: bs4.BeautifulSoup, page: NotebookPage) -> None:
    """One h1, no level left out, an id each; fills in the page's title and contents."""
    headings = soup.find_all(re.compile("^h[1-6]$"))
    if headings and headings[0].name == "h1":
        page.title = _title(headings[0])
    level = 1
    used = {"main"} | {tag["id"] for tag in soup.find_all(id=True) if tag not in headings}
    for number, heading in enumerate(headings):
        for sign in heading.find_all("a", class_="anchor-link"):
            sign.decompose()
        wanted = int(heading.name[1])
        first = number == 0 and bool(page.title)
        level = 1 if first else min(max(wanted, 2), level + 1)
        heading.name = f"h{level}"
        text = heading.get_text().strip()
        base = _attribute(heading, "id") or text.replace(" ", "-") or "section"
        name = next(n for n in chain([base], (f"{base}-{i}" for i in count(2))) if n not in used)
        used.add(name)
        heading["id"] = name
        if level == 2:
            page.contents.append((name, text))
        if first:
            page.anchor = name
            heading.extract()


def _picture(
    soup: bs4.BeautifulSoup,
    picture: bs4.Tag,
    alts: Mapping[str, str],
    files: Mapping[str, bytes],
) -> None:
    """Give a picture its alt text and size; one that is not in the site becomes its text.

    A saved picture becomes a link to itself: on a phone it opens alone and can be enlarged.
    """
    cell = picture.find_parent(class_="cell")
    told = _attribute(picture, "alt")
    if not told or told.startswith("No description has been provided"):
        before = cell.find_previous(class_="text_cell_render") if cell else None
        known = alts.get(_attribute(cell, "id"), "") if cell else ""
        told = known or _shorten(before.get_text() if before else "") or "picture without a text"
        picture["alt"] = told
    source = _attribute(picture, "src")
    if source in files:
        picture.attrs |= image_size(files[source])
        if not picture.find_parent("a"):
            picture.wrap(soup.new_tag("a", attrs={"href": quote(source)}))
    elif not source.startswith("data:image/"):
        picture.name = "span"
        picture.attrs = {"class": "absent"}
        picture.string = f"[picture: {told}]"


def _attribute(tag: bs4.Tag, name: str) -> str:
    """An attribute's text; empty where the tag has none."""
    return str(tag.get(name, ""))


def image_size(content: bytes) -> dict[str, str]:
    """Attributes width and height of an image; none for what cannot be read as one."""
    try:
        with Image.open(io.BytesIO(content)) as image:
            return {"width": str(image.width), "height": str(image.height)}
    except OSError:
        return {}


def _tidy_table(
    soup: bs4.BeautifulSoup, table: bs4.Tag, caption: str, hidden: bool = False
) -> None:
    """Give a table a caption, scopes, and a box to scroll in; hidden: captions for listeners."""
    table.attrs = {}
    for row in table.find_all("tr"):
        row.attrs = {}
        for cell in row.find_all(["th", "td"]):
            spans = {n: v for n, v in cell.attrs.items() if n in ("colspan", "rowspan")}
            wide, tall = "colspan" in spans, "rowspan" in spans
            cell.attrs = dict(spans)
            text = cell.get_text(strip=True)
            if NUMBER.search(text):
                cell["class"] = "number"
            if cell.name == "td":
                continue
            if not text:
                cell.name = "td"
            elif cell.find_parent("thead"):
                cell["scope"] = "colgroup" if wide else "col"
            else:
                cell["scope"] = "rowgroup" if tall else "row"
    cells = table.find_all("td")
    if 2 * len(table.select("td.number")) > len(cells):
        table["class"] = "numbers"
    title = soup.new_tag("caption", attrs={"class": "unseen"} if hidden else {})
    text_box = soup.new_tag("span")
    text_box.string = caption
    title.append(text_box)
    table.insert(0, title)
    box = {"class": "scroll", "role": "group", "tabindex": "0", "aria-label": caption}
    table.wrap(soup.new_tag("div", attrs=box))


def _fold(soup: bs4.BeautifulSoup) -> None:
    """Fold up worked answers, and the code that its author hid."""
    for cell in soup.select(".code_cell.celltag_answer"):
        _wrap_in_details(soup, cell, "Worked answer")
    for cell in soup.select(".code_cell.celltag_source-hidden:not(.celltag_answer)"):
        for code in cell.select(".input"):
            _wrap_in_details(soup, code, "Code of this cell")


def _wrap_in_details(soup: bs4.BeautifulSoup, tag: bs4.Tag, summary: str) -> None:
    box = tag.wrap(soup.new_tag("details"))
    title = soup.new_tag("summary")
    title.string = summary
    box.insert(0, title)


def mend_links(soup: bs4.BeautifulSoup, pages: Collection[str], home: str = "") -> None:
    """Point links to notebooks at their pages; other relative links become plain text.

    home: the page that links of the form `#place` refer to, where that is not this one.
    """
    for link in soup.find_all("a", href=True):
        target, mark, place = _attribute(link, "href").partition("#")
        if re.match(r"[a-z]+:", target):
            if not re.match(r"(https?|mailto):", target):
                link.unwrap()
            continue
        if not target:
            link["href"] = f"{home}#{place}"
        elif target.endswith(".ipynb") and target.rsplit("/", 1)[-1][:-6] in pages:
            link["href"] = f"{target.rsplit('/', 1)[-1][:-6]}.html{mark}{place}"
        else:
            link.unwrap()
