"""Configuration of the site that `make docs` builds with Sphinx.

The source folder is the root of the repository, so that pages and notebooks are read where they
lie, and links between them hold as they are written. Notebooks are shown as committed.
"""

import html
import json
import re
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish

sys.path.insert(0, str(Path(__file__).parent))
import sources

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = SETTINGS["name"]
version = release = SETTINGS["version"]
author = "The mmlib authors"
copyright = f"2026, {author}"
language = "en"
root_doc = "README"
extensions = ["myst_nb", "autoapi.extension", "sphinx_copybutton"]
include_patterns = ["*.md", "data/README.md", "docs/*.md", "docs/studies/*.md", "docs/api/**"]
include_patterns += ["notebooks/*.ipynb", "docs/answers/*.md"]
exclude_patterns = [".*", "build", "runs", "teaching", "evidence", "tests", "**/.ipynb_checkpoints"]
exclude_patterns += ["notebooks/runs", "data/[!R]*"]

nb_execution_mode = "off"
nb_render_markdown_format = "myst"
nb_ipywidgets_js: dict[str, Any] = {}  # nothing is loaded from a network
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 6  # the anchors that GitHub gives
myst_links_external_new_tab = True
# The API leaves constants out and has classes of one name in several papers; no link is written
# to either.
suppress_warnings = ["autoapi.python_import_resolution", "ref.python"]
default_role = "code"  # docstrings are Markdown

autoapi_dirs = [str(ROOT / "mmlib")]
autoapi_root = "docs/api"
autoapi_add_toctree_entry = False
autoapi_keep_files = False
autoapi_member_order = "bysource"
autoapi_options = ["members", "show-inheritance", "show-module-summary"]
autoapi_python_class_content = "class"

html_theme = "sphinx_book_theme"
html_title = f"mmlib {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_use_index = html_domain_indices = False  # the search finds names
html_copy_source = False
html_show_sourcelink = False
html_last_updated_fmt = None
html_math_renderer = "mathml"
html_search_scorer = str(Path(__file__).with_name("scorer.js"))
html_theme_options = {
    "show_toc_level": 2,
    "max_navbar_depth": 1,
    "use_download_button": False,
    "use_fullscreen_button": False,
    "navbar_persistent": [],  # the search stands in the sidebar
}


class Search(SearchEnglish):
    """The index of the search, in which "R@K" is one word, as in `scorer.js`."""

    _word_re = re.compile(r"[\w@]+")


def write_answers(app: Sphinx) -> None:
    """Sphinx's event builder-inited: a page for each file of worked answers."""
    (ROOT / "docs" / "answers").mkdir(exist_ok=True)
    for path in (ROOT / "notebooks" / "answers").glob("*.py"):
        page = ROOT / "docs" / "answers" / f"{path.stem}.md"
        page.write_text(sources.answers(path.read_text(encoding="utf-8")), encoding="utf-8")


def read_source(app: Sphinx, page: str, source: list[str]) -> None:
    """Sphinx's event source-read."""
    if page == root_doc:
        source[0] += sources.contents()
    elif page.startswith("notebooks/"):
        notebook = json.loads(source[0])
        sources.as_shown(notebook)
        source[0] = json.dumps(notebook)


def read_docstring(app: Sphinx, kind: str, name: str, obj: Any, _: Any, lines: list[str]) -> None:
    """Sphinx's event autodoc-process-docstring."""
    lines[:] = sources.as_rst(lines)


def visit_math(translator: Any, node: nodes.Element) -> None:
    """Write an equation as MathML, which needs no script. Raises nodes.SkipNode, as Sphinx asks."""
    block = isinstance(node, nodes.math_block)
    latex = node.astext()
    converted = convert(latex.strip(), display="block" if block else "inline")
    if "\\" in converted:
        raise ValueError(f"latex2mathml cannot convert {latex!r}")
    tag = "div" if block else "span"
    translator.body.append(f'<{tag} class="math" title="{html.escape(latex)}">{converted}</{tag}>')
    raise nodes.SkipNode


def write_front_page(app: Sphinx, error: Exception | None) -> None:
    """README is the front page under both names."""
    if error is None and app.builder.name == "html":
        shutil.copyfile(app.outdir / "README.html", app.outdir / "index.html")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the events."""
    app.add_search_language(Search)
    app.connect("builder-inited", write_answers)
    app.connect("source-read", read_source)
    app.connect("autodoc-process-docstring", read_docstring)
    app.connect("build-finished", write_front_page)
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
