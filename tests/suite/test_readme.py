"""README, docs and their kin are true: links, commands, names, examples."""

import contextlib
import io
import json
import pkgutil
import re
import shlex
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urlparse

import bs4
import mistune
import pytest
import typer
import yaml
from scripts import NOTEBOOKS, ROOT
from typer.exceptions import TyperException

from mmlib import __version__
from mmlib.data import registry
from mmlib.suite import cli, parameters, runner

NAMES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "data/README.md")
PAGES = [*(ROOT / name for name in NAMES), *sorted((ROOT / "docs").rglob("*.md"))]
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())


def test_what_is_read_first_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8")) <= 7_000
    assert len((ROOT / "docs" / "ledger.md").read_text(encoding="utf-8")) <= 16_000
    assert __version__ in (ROOT / "CHANGELOG.md").read_text()


# Links


@cache
def soup_of(page):
    text = page.read_text("utf-8")
    if page.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
        text = "\n\n".join(sources)
    html = mistune.create_markdown(escape=False, plugins=["table"])(text)
    return bs4.BeautifulSoup(html, "html.parser")


def slug(heading):
    """The anchor of a heading, as GitHub makes it, also from JupyterLab's."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(page):
    """The anchors that GitHub gives to a page's headings."""
    found = []
    for heading in soup_of(page).find_all(re.compile("^h[1-6]$")):
        name = slug(heading.get_text())
        found.append(f"{name}-{found.count(name)}" if name in found else name)
    return set(found)


def broken_links(page):
    """Relative links of a page that lead nowhere."""
    soup = soup_of(page)
    targets = [a["href"] for a in soup.find_all("a")] + [i["src"] for i in soup.find_all("img")]
    broken = []
    for target in targets:
        url = urlparse(target)
        if url.scheme:
            continue
        file = (page.parent / unquote(url.path)).resolve() if url.path else page
        root = ROOT if page.is_relative_to(ROOT) else page.parents[1]
        inside = file.is_relative_to(root)  # links out of the clone break elsewhere
        lost = file.exists() and url.fragment and slug(url.fragment) not in anchors(file)
        if lost or not (file.exists() and inside):
            broken.append(target)
    return broken


@every_page
def test_links_pictures_and_headings(page):
    soup = soup_of(page)
    assert broken_links(page) == []
    assert all(len(image.get("alt", "")) > 30 for image in soup.find_all("img"))
    levels = [int(h.name[1]) for h in soup.find_all(re.compile("^h[1-6]$"))]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(deeper - level <= 1 for level, deeper in pairwise(levels))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_of_a_notebook(notebook):
    assert broken_links(notebook) == []


# Commands


def blocks(page, language):
    """The code blocks of a language."""
    return [c.get_text() for c in soup_of(page).find_all("code", class_=f"language-{language}")]


def commands(page):
    """The command lines of a page's shell blocks, and of its longer code spans, as words."""
    spans = [code.get_text() for code in soup_of(page).find_all("code") if not code.get("class")]
    lines = [span for span in spans if len(span.split()) > 3 and "\n" not in span]
    lines = [line for line in lines if re.match(r"(mmlib|make|python ci/)\b", line)]
    for block in blocks(page, "sh"):
        lines += block.replace("\\\n", " ").splitlines()
    for line in lines:
        words = shlex.split(line, comments=True)
        while words and re.match(r"\w+=", words[0]):
            words = words[1:]
        if words and words[0] != "export":
            yield words


PLACEHOLDERS = {"NAME": "flickr8k", "NAME=VALUE": "tier='world'", "DIR": "."}
KNOWN = "dask git jupyter jupyter-lab kubectl nvidia-cuda-mps-control nvidia-smi openssl papermill"
KNOWN = {*KNOWN.split(), "bwrap", "pip", "playwright", "pytest"}


def command_faults(words):
    """What is wrong with a command line, or nothing."""
    first, *rest = [PLACEHOLDERS.get(word, word) for word in words]
    program = Path(first).name
    if first.startswith(".venv/bin/") and not (Path(sys.executable).parent / program).exists():
        return [f"no {first}"]
    if program == "mmlib":
        return mmlib_faults(rest)
    if program == "make":
        targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        return [f"no target {w}" for w in rest if "=" not in w and w not in targets]
    if program.startswith("python") or program == "sh":
        return [] if rest[0].startswith("-") or (ROOT / rest[0]).is_file() else [f"no {rest[0]}"]
    return [] if program in KNOWN else [f"what is {program}?"]


def mmlib_faults(arguments):
    """What `mmlib` would say to these arguments before it does anything."""
    words, command, context = cli.each_named(arguments), typer.main.get_command(cli.app), None
    try:
        while True:
            context = command.make_context(None, words, parent=context)
            if not hasattr(command, "commands"):
                break
            words = [*context._protected_args, *context.args]
            _, command, words = command.resolve_command(context, words)
        given = context.params
        if arguments[:2] in (["data", "get"], ["data", "check"]):
            registry.find(given["name"])
        if arguments[0] == "run":
            options = {name: given[name] for name in ("tier", "seeds", "device")}
            parameters_given = cli.parameters_of(given["settings"] or (), **options)
            for notebook in runner.select(ROOT / "notebooks", given["numbers"]):
                if given["numbers"]:
                    parameters.check_parameters(notebook, parameters_given)
    except TyperException as error:
        return [error.format_message()]
    except ValueError as error:
        return [str(error)]
    return []


@every_page
def test_commands_can_be_given(page):
    faults = [(words, fault) for words in commands(page) for fault in command_faults(words)]
    assert faults == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("mmlib run 09", "no notebook '09'"),
        ("mmlib run 04 --tire world", "No such option: --tire"),
        ("mmlib run 04 --set sgnal=0", "knows no parameter sgnal"),
        ("mmlib data get nothing", "no data set 'nothing'"),
        ("mmlib judge 04 --tier moon", "Invalid value for '--tier'"),
        ("mmlib course teacher out", "No such command 'teacher'"),
        ("mmlib judge 04 05", "unexpected extra argument"),
        ("make tests", "no target tests"),
        ("python ci/none.py", r"no ci/none\.py"),
        (".venv/bin/none", r"no \.venv/bin/none"),
    ],
)
def test_faulty_commands_are_found(line, said):
    (fault,) = command_faults(line.split())
    assert re.search(said, fault)


# Names and examples


def name_faults(page):
    """Files and functions that a page names in code and that are not there."""
    faults = []
    for code in soup_of(page).find_all("code"):
        text = code.get_text()
        path = re.fullmatch(r"(ci|mmlib|tests|notebooks|docs|benchmarks|\.github)/[\w./]*", text)
        if path and not (ROOT / text).exists():
            faults.append(text)
        name = re.fullmatch(r"(mmlib\.)?(\w+(?:\.\w+)*)(\(.*\))?", text)
        if not name or text.endswith((".py", ".md", ".json", ".npy", ".csv", ".yaml")):
            continue
        first, _, rest = name[2].partition(".")
        places = ["mmlib"] if name[1] else PLACES.get(first, ())
        if places and not any(is_there(f"{place}.{first}.{rest}") for place in places):
            faults.append(text)
    return faults


def is_there(name):
    try:
        pkgutil.resolve_name(name.rstrip("."))
    except (ImportError, AttributeError):
        return False
    return True


PLACES = {}  # a module's short name -> the packages that have one
for module in pkgutil.walk_packages([str(ROOT / "mmlib")], "mmlib."):
    place, _, short = module.name.rpartition(".")
    PLACES.setdefault(short, []).append(place)


CODE = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))


@every_page
def test_files_functions_and_tests_named_are_there(page):
    assert name_faults(page) == []
    named = re.findall(r"`(test_\w+)`", page.read_text("utf-8"))
    assert [name for name in named if f"def {name}(" not in CODE] == []


def examples():
    """Python blocks and the text block that follows, where one does."""
    for page in PAGES:
        for code in soup_of(page).find_all("code", class_="language-python"):
            after = code.parent.find_next_sibling()
            if after is not None and after.get_text() == "prints":
                after = after.find_next_sibling()
            if after is not None and (shown := after.select_one("code.language-text")):
                yield pytest.param(code.get_text(), shown.get_text(), id=page.stem)


@pytest.mark.parametrize(("code", "output"), [*examples()])
def test_examples_print_what_is_shown(code, output):
    with contextlib.redirect_stdout(io.StringIO()) as said:
        exec(code, {})
    assert said.getvalue() == output


@every_page
def test_yaml_is_yaml(page):
    documents = [found for block in blocks(page, "yaml") for found in yaml.safe_load_all(block)]
    for job in (job for document in documents for job in document.get("jobs", {}).values()):
        runs = [shlex.split(step["run"]) for step in job["steps"] if "run" in step]
        assert [fault for words in runs for fault in command_faults(words)] == []
