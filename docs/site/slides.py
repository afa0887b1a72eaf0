"""Decks of the notebooks: `python docs/site/slides.py build/slides`.

nbconvert makes slides, for reveal.js, of cells chosen by rule: the idea, each figure, equation and
cell of code that is built on, what came out, exercises, and the lesson's questions. The text around
them goes into the speaker notes.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import nbformat
import pooch
from jinja2 import pass_context
from nbconvert import SlidesExporter
from nbconvert.filters.markdown_mistune import MarkdownWithMath
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from mmlib.suite.report import _Markdown

ROOT = Path(__file__).resolve().parents[2]
REVEAL = "https://registry.npmjs.org/reveal.js/-/reveal.js-4.6.1.tgz"
REVEAL_HASH = "sha256:4f4121ef2b8e7e9398bdecd7b3b6ce5e0ee3a2f5af221708eb6c4ce03bcae6be"
REVEAL_FILES = ["dist/reveal.css", "dist/reveal.js", "plugin/notes/notes.js"]
REVEAL_FILES += ["plugin/zoom/zoom.js", "LICENSE"]
PNG = "image/png"
LEAD = re.compile(r"^\*\*(.+?)\*\*")  # what begins a paragraph, in bold: its title
SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z*$“\"])")
LONGEST = 220  # characters
HIDDEN = re.compile(r"<!--.*?-->|<a id=.*?</a>", re.DOTALL)
TAKE = "What to take from it"
# The page of lessons has a notebook's questions in a paragraph below its heading.
QUESTIONS = r"## {0} · .*?\n\*\*Discuss\.\*\* (.*?)\n"


class _Deck(SlidesExporter):
    """Slides with MathML in the place of a script, and no links but to the web."""

    @pass_context
    def markdown2html(self, context: Any, source: str) -> str:
        return MarkdownWithMath(renderer=_Markdown(escape=False)).render(source)


def slides(cells: list[Any], questions: str) -> Iterator[list[Any]]:
    """The cells of each slide of a notebook, in order."""
    heading, *opening = paragraphs(cells[0])
    told = [p for p in opening if re.match(r"\*\*(Paper|The idea)|[^*]", p)]
    yield slide(heading, "\n\n".join(sentences(p) for p in told[:2]), notes=cells[0])
    section, lead, before = "The idea", "", cells[0]
    for cell, after in pairwise([*cells[1:], new_markdown_cell("")]):
        if cell.cell_type == "markdown":
            if re.match(r"#+ ([\d. ]*Exercise|Appendix)", cell.source):
                break
            section, lead, before = yield from text_slides(cell, section, lead)
            continue
        pictures = [o for o in cell.outputs if PNG in o.get("data", {})]
        for number, output in enumerate(pictures, 1):
            again = f" ({number} of {len(pictures)})" if len(pictures) > 1 else ""
            picture = new_code_cell("", outputs=[{**output, "data": {PNG: output["data"][PNG]}}])
            said = next((p for p in paragraphs(after) if not p.startswith("|")), "")
            said = "" if said.startswith("#") or LEAD.match(said) else sentences(said)
            shown = [picture, new_markdown_cell(said)]
            yield slide(f"## {lead or section}{again}", notes=before, shown=shown)
        folded = cell.metadata.get("jupyter", {}).get("source_hidden")
        if not pictures and not folded and re.search(r"^(class|def) ", cell.source, re.MULTILINE):
            yield slide(f"## {lead or section}", f"```python\n{cell.source}\n```", notes=before)
    yield exercises(cells)
    if questions:
        yield slide("## To discuss", "\n".join(f"- {q}" for q in re.split(r"(?<=\?) ", questions)))


def text_slides(cell: Any, section: str, lead: str) -> Iterator[Any]:
    """Slides of a cell of text: its equations, and what to take from it.

    Returns the section and the lead that hold from here on, and the cell.
    """
    earlier = ""
    for paragraph in paragraphs(cell):
        if paragraph.startswith("#"):
            section, lead = re.sub(r"^#+ (\d+\. )?", "", paragraph.partition("\n")[0]), ""
        elif found := LEAD.match(paragraph):
            lead = found[1].rstrip(".:")
        if paragraph.startswith("$$"):
            said = re.sub(r"^[ .:]*(\(eqs?\. [^)]*\)[.:]? )?", "", LEAD.sub("", earlier))
            said = sentences(earlier if said[:1].islower() else said, 1)
            lines = re.sub(r",?\s*\\qquad\s*", "$$\n\n$$", paragraph)
            yield slide(f"## {lead or section}", f"{said}\n\n{lines}", cell)
        if section == TAKE and paragraph.startswith("1. "):
            items = re.split(r"^\d+\. ", paragraph, flags=re.MULTILINE)[1:]
            said = "\n".join(f"1. {headline(item)}" for item in items)
            yield slide(f"## {TAKE}", said, cell)
        earlier = paragraph
    return section, lead, cell


def headline(item: str) -> str:
    """What is bold at the start of an item, if that is a sentence, else the first sentence."""
    found = LEAD.match(item)
    return found[0] if found and found[1].endswith(".") else sentences(item, 1)


def exercises(cells: list[Any]) -> list[Any]:
    """A slide that lists the exercises, with difficulty and minutes."""
    tasks = [c.source for c in cells if "exercise" in c.metadata.get("tags", [])]
    rows = [re.match(r"#+ Exercise (\d+)\. (.+)\n+\*(.+?)\.?\*", source) for source in tasks]
    return slide("## Exercises", "\n".join(f"{r[1]}. {r[2]} *({r[3].lower()})*" for r in rows if r))


def slide(heading: str, body: str = "", notes: Any = None, shown: Sequence[Any] = ()) -> list[Any]:
    """The cells of a slide: heading, body, other cells, and a cell's text as speaker notes."""
    cells = [new_markdown_cell(f"{heading}\n\n{body}", metadata=kind("slide")), *shown]
    said = "\n\n".join(paragraphs(notes)) if notes else ""
    return [*cells, new_markdown_cell(said, metadata=kind("notes"))] if said else cells


def kind(name: str) -> dict[str, Any]:
    """The metadata that make a cell a slide or speaker notes."""
    return {"slideshow": {"slide_type": name}}


def paragraphs(cell: Any) -> list[str]:
    """A cell's paragraphs, without comments."""
    return [p.strip() for p in HIDDEN.sub("", cell.source).split("\n\n") if p.strip()]


def sentences(text: str, most: int = 2) -> str:
    """The first sentences of a text, one where more would take over three lines of a slide."""
    first, *others = SENTENCE.split(text.strip())[:most]
    whole = " ".join([first, *others])
    return whole if len(whole) <= LONGEST else first


def write(folder: Path) -> list[Path]:
    """Write a deck a notebook, and what they load, into a folder; returns the decks.

    The first call downloads reveal.js and verifies it.
    """
    files = [f"package/{name}" for name in REVEAL_FILES]
    pooch.get_logger().setLevel("WARNING")
    unpacked = pooch.retrieve(REVEAL, REVEAL_HASH, path=folder, processor=pooch.Untar(files, "."))
    assert unpacked
    (folder / "package/dist/theme").mkdir(exist_ok=True)
    theme = (Path(__file__).parent / "deck/deck.css").read_text(encoding="utf-8")
    (folder / "package/dist/theme/deck.css").write_text(theme, encoding="utf-8")
    exporter = _Deck(
        template_name="reveal", template_file="deck.html.j2", reveal_theme="deck",
        extra_template_paths=[str(Path(__file__).parent / "deck")], reveal_url_prefix="package",
        exclude_input=True, exclude_input_prompt=True, exclude_output_prompt=True,
    )  # fmt: skip
    lessons = (ROOT / "docs/lessons.md").read_text(encoding="utf-8")
    decks = []
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = nbformat.read(path, as_version=4).cells
        found = re.search(QUESTIONS.format(path.stem[:2]), lessons, re.DOTALL)
        chosen = [cell for one in slides(cells, found[1] if found else "") for cell in one]
        resources = {"metadata": {"name": path.stem}}
        decks.append(folder / f"{path.stem}.html")
        text, _ = exporter.from_notebook_node(new_notebook(cells=chosen), resources)
        decks[-1].write_text(text, encoding="utf-8")
    return decks


if __name__ == "__main__":
    for written in write(Path(sys.argv[1])):
        print(written)
