"""The site that `make docs` builds, without building it: its contents, its links, its docstrings.

Nor is it built where notebooks run elsewhere: what the set-ups name is there.
"""

import importlib.metadata
import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from PIL import Image
from scripts import NOTEBOOKS, ROOT, load

import mmlib

sources, links = load("docs/site/sources.py"), load("docs/site/links.py")
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LISTED = [page for pages in sources.CONTENTS.values() for page in pages]


def test_every_page_is_listed_once():
    written = [*ROOT.glob("docs/*.md"), *ROOT.glob("docs/studies/*.md"), *NOTEBOOKS]
    written += [ROOT / name for name in ("data/README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    names = {path.relative_to(ROOT).with_suffix("").as_posix() for path in written}
    answers = {f"docs/answers/{path.stem[:2]}" for path in NOTEBOOKS}
    assert sorted(LISTED) == sorted(names | answers | {"docs/api/mmlib/index"})
    assert [line for line in sources.contents().splitlines() if line in LISTED] == LISTED
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    order = re.findall(r"^\| .*?\*\*\[\d\d [^]]*\]\((notebooks/\w+)\.ipynb\)", readme, re.MULTILINE)
    assert sources.CONTENTS["Notebooks"] == order  # of reading


def test_what_jupyterlab_folds_is_folded_and_pictures_are_named():
    hidden = {"tags": ["check"], "jupyter": {"source_hidden": True}}
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": "# Links\n\n[a](x.ipynb#1.-The-A)"},
        {"cell_type": "code", "metadata": hidden, "source": ["1"]},
        {"cell_type": "code", "metadata": {}, "source": ["2"]},
    ]
    sources.as_shown({"cells": cells})
    assert cells[0]["source"] == "# Links\n\n[a](x.ipynb#1-the-a)"
    assert cells[1]["metadata"]["tags"] == ["check", "hide-input"]
    assert "tags" not in cells[2]["metadata"]
    assert cells[2]["metadata"]["mystnb"] == {"image": {"alt": "Links"}}


def test_a_page_of_worked_answers_folds_each():
    text = "# %% [markdown]\n# # Title\n#\n# All.\n\n"
    text += "# %% [markdown]\n# ## Exercise 1. A\n\n# %%\nx = 1  # one\n\n"
    text += "# %% [markdown]\n# So,\n# $x$.\n"
    folded = "<details><summary>Answer</summary>\n\n```python\nx = 1  # one\n```\n\nSo,\n$x$.\n\n"
    assert sources.answers(text) == f"# Title\n\nAll.\n\n## Exercise 1. A\n\n{folded}</details>\n"


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


def test_links_that_lead_nowhere_are_found(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.png").touch()
    good = '<a href="sub/b.html#here">.</a><img src="a.png"><a href="https://x.org">.</a>'
    bad = '<a href="#no">.</a><a href="sub/b.html#no">.</a><a href="c.html">.</a><img src="no.png">'
    (tmp_path / "a.html").write_text(good + bad, encoding="utf-8")
    (tmp_path / "sub/b.html").write_text('<p id="here"><a href="../a.html">.</a>', encoding="utf-8")
    names = ("#no", "c.html", "no.png", "sub/b.html#no")
    assert links.broken(tmp_path) == [f"a.html: {name}" for name in names]


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


def test_the_dev_container_and_binder_run_targets_of_make():
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text(encoding="utf-8"))
    lowest = SETTINGS["requires-python"].removeprefix(">=")
    assert container["image"].startswith(f"python:{lowest}")
    assert (ROOT / ".binder/runtime.txt").read_text(encoding="utf-8").strip() == f"python-{lowest}"
    script = ROOT / ".binder/postBuild"
    assert script.stat().st_mode & 0o111
    commands = f"{container['postCreateCommand']}\n{script.read_text(encoding='utf-8')}"
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    called = re.findall(r"^make ([a-z-]+)", commands, re.MULTILINE)
    assert called[1:] == ["setup"]
    assert set(called) <= set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))


def test_one_version_and_two_licences():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert SETTINGS["version"] == mmlib.__version__ == citation["version"]
    assert citation["license"] == ["MIT", "CC-BY-4.0"]
    assert all((ROOT / name).is_file() for name in SETTINGS["license-files"])


PICTURES = [*(path.stem for path in NOTEBOOKS), "opening"]  # the README begins with the last


@pytest.mark.parametrize("name", PICTURES)
def test_small_pictures_show_what_the_notebooks_show(name):
    kept, pictures = ROOT / "docs/pictures" / f"{name}.png", load("ci/pictures.py")
    assert kept.stat().st_size < (200_000 if name == "opening" else 40 * 1024)
    path = ROOT / "notebooks" / f"{name}.ipynb"
    drawn = pictures.opening() if name == "opening" else pictures.thumbnail(path)
    with Image.open(kept) as found:
        alike = found.size == drawn.size and found.convert("RGB") == drawn.convert("RGB")
    assert alike, "python ci/pictures.py draws them anew"
