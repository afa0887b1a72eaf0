"""The site that `make docs` builds, without building it: its contents, its links, its docstrings.

Nor is it built where notebooks run elsewhere: what the set-ups name is there.
"""

import ast
import importlib.metadata
import io
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.parse import unquote, urlsplit

import bs4
import mistune
import nbformat
import pytest
import yaml
from packaging.requirements import Requirement
from PIL import Image
from scripts import ROOT, load

import mmlib

sources, links = load("docs/site/sources.py"), load("docs/site/links.py")
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LISTED = [page for pages in sources.CONTENTS.values() for page in pages]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))


# --- Contents -------------------------------------------------------------------------------------


def test_every_page_is_listed_once():
    written = [*ROOT.glob("docs/*.md"), *ROOT.glob("docs/studies/*.md"), *NOTEBOOKS]
    written += [ROOT / name for name in ("data/README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    names = {path.relative_to(ROOT).with_suffix("").as_posix() for path in written}
    assert sorted(LISTED) == sorted(names | {"docs/api/mmlib/index"})
    assert [line for line in sources.contents().splitlines() if line in LISTED] == LISTED


def test_notebooks_come_in_the_order_of_reading():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    order = re.findall(r"^\| .*?\*\*\[\d\d [^]]*\]\((notebooks/\w+)\.ipynb\)", readme, re.MULTILINE)
    assert sources.CONTENTS["Notebooks"] == order
    assert [name[10:12] for name in order] == ["00", "04", "03", "01", "02"]


def test_the_configuration_is_python_and_names_what_is_there():
    text = (ROOT / "docs/site/conf.py").read_text(encoding="utf-8")
    names = {
        target.id: ast.literal_eval(node.value)
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant | ast.List)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id.startswith(("html_", "root", "nb_"))
    }
    assert names["nb_execution_mode"] == "off"
    assert (ROOT / f"{names['root_doc']}.md").is_file()
    for name in names["html_css_files"]:
        assert (ROOT / "docs/site" / names["html_static_path"][0] / name).is_file()


# --- Notebooks ------------------------------------------------------------------------------------


def slugs(path: Path) -> set[str]:
    """The anchors of a notebook's headings, as GitHub and MyST make them."""
    found = set()
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "markdown":
            for heading in re.findall(r"^#+ +(.+)", cell.source, re.MULTILINE):
                text = re.sub(r"[^\w\- ]", "", heading.lower())
                found.add(text.replace(" ", "-"))
    return found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_of_a_notebook_lead_somewhere_in_the_site(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    sources.as_shown(notebook)
    for cell in notebook["cells"]:
        if cell["cell_type"] != "markdown":
            continue
        soup = bs4.BeautifulSoup(mistune.html("".join(cell["source"])), "html.parser")
        for link in (tag["href"] for tag in soup.find_all("a", href=True)):
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert target.is_file(), link
            if parts.fragment and target.suffix == ".ipynb":
                assert parts.fragment in slugs(target), link


def test_what_jupyterlab_folds_is_folded_and_pictures_are_named():
    hidden = {"tags": ["answer"], "jupyter": {"source_hidden": True}}
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": "# Links\n\n[a](x.ipynb#1.-The-A)"},
        {"cell_type": "code", "metadata": hidden, "source": ["1"]},
        {"cell_type": "code", "metadata": {}, "source": ["2"]},
    ]
    sources.as_shown({"cells": cells})
    assert cells[0]["source"] == "# Links\n\n[a](x.ipynb#1-the-a)"
    assert cells[1]["metadata"]["tags"] == ["answer", "hide-input"]
    assert "tags" not in cells[2]["metadata"]
    assert cells[2]["metadata"]["mystnb"] == {"image": {"alt": "Links"}}


# --- Docstrings -----------------------------------------------------------------------------------


def test_docstrings_become_lists_and_code():
    lines = ["Ranks: (n,).", "", "k, m: how many", "    of |x|. p: no item.", "q: `a|b`.", ""]
    lines += ["Text", "goes: on.", "", "```python", "a: int = 1 | 2", "```"]
    assert [line for line in sources.as_rst(lines) if line.strip()] == [
        "Ranks: (n,).",
        "* **k, m**: how many",
        r"  of \|x\|. p: no item.",
        "* **q**: `a|b`.",
        "Text",
        "goes: on.",
        ".. code-block:: python",
        "   a: int = 1 | 2",
    ]


# --- Links of the site ----------------------------------------------------------------------------


def test_links_that_lead_nowhere_are_found(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.png").touch()
    good = '<a href="sub/b.html#here">.</a><img src="a.png"><a href="https://x.org">.</a>'
    bad = '<a href="#no">.</a><a href="sub/b.html#no">.</a><a href="c.html">.</a><img src="no.png">'
    (tmp_path / "a.html").write_text(good + bad, encoding="utf-8")
    (tmp_path / "sub/b.html").write_text('<p id="here"><a href="../a.html">.</a>', encoding="utf-8")
    names = ("#no", "c.html", "no.png", "sub/b.html#no")
    assert links.broken(tmp_path) == [f"a.html: {name}" for name in names]
    command = [sys.executable, str(ROOT / "docs/site/links.py"), str(tmp_path)]
    assert subprocess.run(command, check=False, capture_output=True).returncode == 1
    (tmp_path / "a.html").write_text(good, encoding="utf-8")
    assert subprocess.run(command, check=False).returncode == 0


# --- Set-ups elsewhere ----------------------------------------------------------------------------


def pins(path: Path) -> dict[str, str]:
    """Package -> its line."""
    lines = path.read_text(encoding="utf-8").split("\n")
    return {Requirement(line).name.lower(): line for line in lines if line}


def test_without_cuda_only_packages_are_left_out_that_pytorch_alone_asks_for():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (pattern,) = re.findall(r"^CUDA := (.+)$", makefile, re.MULTILINE)
    everything = pins(ROOT / "requirements.txt")
    left_out = {name for name, line in everything.items() if re.search(pattern, line)}
    assert left_out >= {"triton", "nvidia-cublas", "nvidia-cudnn-cu13"}
    for package in importlib.metadata.distributions():
        name = package.metadata["Name"].lower()
        if name == "torch" or name in left_out or name not in everything:
            continue
        needs = [Requirement(text) for text in package.requires or []]
        needed = {need.name for need in needs if not need.marker or need.marker.evaluate()}
        assert not needed & left_out, name


def test_pins_of_the_site_agree_with_the_others_and_hold_the_extra():
    site, others = pins(ROOT / "requirements-docs.txt"), pins(ROOT / "requirements.txt")
    extra = [Requirement(text) for text in SETTINGS["optional-dependencies"]["docs"]]
    assert {need.name for need in extra} <= site.keys()
    for name in site.keys() & others.keys() - {"soupsieve"}:
        assert site[name].split(";")[0].strip() in (ROOT / "requirements.txt").read_text("utf-8")
    assert not site.keys() & {"torch", "mmlib"}


TARGETS = set(
    re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
)


def test_the_dev_container_and_binder_run_targets_of_make():
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text(encoding="utf-8"))
    lowest = SETTINGS["requires-python"].removeprefix(">=")
    assert container["image"].startswith(f"python:{lowest}")
    assert (ROOT / ".binder/runtime.txt").read_text(encoding="utf-8").strip() == f"python-{lowest}"
    script = ROOT / ".binder/postBuild"
    assert script.stat().st_mode & 0o111
    commands = f"{container['postCreateCommand']}\n{script.read_text(encoding='utf-8')}"
    called = re.findall(r"^make ([a-z-]+)", commands, re.MULTILINE)
    assert called[1:] == ["setup"]
    assert set(called) <= TARGETS


def test_one_version_and_two_licences():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert SETTINGS["version"] == mmlib.__version__ == citation["version"]
    assert citation["license"] == ["MIT", "CC-BY-4.0"]
    assert all((ROOT / name).is_file() for name in SETTINGS["license-files"])


# --- Small pictures -------------------------------------------------------------------------------


def drawn_alike(kept, expected):
    buffer = io.BytesIO()
    expected.save(buffer, "PNG")
    with Image.open(kept) as found, Image.open(buffer) as made:
        return found.size == made.size and found.convert("RGB") == made.convert("RGB")


PICTURES = [*(path.stem for path in NOTEBOOKS), "opening"]  # the README begins with the last


@pytest.mark.parametrize("name", PICTURES)
def test_small_pictures_show_what_the_notebooks_show(name):
    kept, pictures = ROOT / "docs/pictures" / f"{name}.png", load("ci/pictures.py")
    assert kept.stat().st_size < (200_000 if name == "opening" else 40 * 1024)
    path = ROOT / "notebooks" / f"{name}.ipynb"
    drawn = pictures.opening() if name == "opening" else pictures.thumbnail(path)
    assert drawn_alike(kept, drawn), "python ci/pictures.py draws them anew"
