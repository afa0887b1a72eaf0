"""The site's table of contents; notebooks, worked answers and docstrings as Sphinx takes them."""

import re
from typing import Any

# Caption -> its pages, in the order of reading.
CONTENTS: dict[str, list[str]] = {
    "Notebooks": [
        "notebooks/00_start_here",
        "notebooks/04_document_links",
        "notebooks/03_cora",
        "notebooks/01_coherence_retrieval",
        "notebooks/02_entailment_revision",
    ],
    "Worked answers": [f"docs/answers/{number}" for number in ("00", "04", "03", "01", "02")],
    "Results": [
        "docs/ledger",
        "docs/studies/04_document_links",
        "docs/studies/03_cora",
        "docs/studies/01_coherence_retrieval",
        "docs/studies/02_entailment_revision",
    ],
    "Guides": [
        "docs/install",
        "docs/search",
        "docs/compare",
        "docs/course",
        "docs/lecturers",
        "docs/lessons",
        "docs/recipes",
        "docs/report",
        "docs/data",
        "data/README",
        "docs/scene_graphs",
        "docs/cluster",
        "docs/speed",
        "docs/troubleshooting",
    ],
    "The package": [
        "docs/package",
        "docs/api/mmlib/index",
        "docs/add_a_paper",
        "CONTRIBUTING",
        "CHANGELOG",
    ],
}

ITEM = re.compile(r"(\w+(?:, \w+)*): ")  # of a docstring


def contents() -> str:
    """The table of contents as hidden directives, one for each caption."""
    parts = (
        "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```"])
        for caption, pages in CONTENTS.items()
    )
    return "\n\n" + "\n\n".join(parts) + "\n"


def slug(anchor: str) -> str:
    """An anchor as JupyterLab writes it, as GitHub does: "11.-Glossary" is "11-glossary"."""
    return re.sub(r"[^\w-]", "", anchor.lower())


def as_shown(notebook: dict[str, Any]) -> None:
    """Fold what JupyterLab folds, name each picture after the heading above it, mend anchors."""
    section = ""
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        metadata = cell["metadata"]
        if cell["cell_type"] == "markdown":
            section = [section, *re.findall(r"^#+ +(.+)", text, re.MULTILINE)][-1]
            cell["source"] = re.sub(
                r"(\]\([^)#\s]*#)([^)\s]+)\)", lambda link: f"{link[1]}{slug(link[2])})", text
            )
        elif metadata.get("jupyter", {}).get("source_hidden"):
            metadata["tags"] = [*metadata.get("tags", []), "hide-input"]
        metadata["mystnb"] = {"image": {"alt": section}}


def answers(text: str) -> str:
    """A file of worked answers as a page in Markdown, each answer folded with its explanation."""
    page = []
    for section in re.split(r"^# %% \[markdown\]\n(?=# #)", text, flags=re.MULTILINE)[1:]:
        heading, *cells = re.split("^# %%", section, flags=re.MULTILINE)
        page.append(prose(heading))
        if cells:
            page += ["<details><summary>Answer</summary>", *map(cell_text, cells), "</details>"]
    return "\n\n".join(page) + "\n"


def cell_text(cell: str) -> str:
    """A cell without the marks that begin it, as Markdown."""
    kind, _, body = cell.partition("\n")
    return prose(body) if "markdown" in kind else f"```python\n{body.strip()}\n```"


def prose(comment: str) -> str:
    """Markdown that is a comment in Python."""
    return re.sub("^# ?", "", comment, flags=re.MULTILINE).strip()


def as_rst(lines: list[str]) -> list[str]:
    """A docstring in Markdown as reStructuredText.

    "name: what it is" at the start of a line becomes a list's item, if a sentence ends before it.
    """
    text: list[str] = []
    fenced = listed = False
    for number, line in enumerate(lines):
        words = line.strip()
        if words.startswith("```"):
            fenced = not fenced
            text += ["", ".. code-block:: python", ""] if fenced else [""]
        elif fenced or not words:
            text.append(f"   {line}")
            listed = False
        elif words.startswith("- "):
            text += ["", f"* {escaped(words[2:])}"]
            listed = True
        elif number and (item := ITEM.match(words)) and text[-1].strip()[-1:] in ("", *".:;"):
            text += ["", f"* **{item[1]}**: {escaped(words[item.end() :])}"]
            listed = True
        else:
            text.append(f"  {escaped(words)}" if listed else escaped(words))
    return text


def escaped(text: str) -> str:
    """Text whose bars outside of code are bars, as reStructuredText has it."""
    parts = re.split("(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else part.replace("|", r"\|") for part in parts)
