"""The plan of the house: every paper has the same rooms, and no code is too long or unnamed."""

import ast
import tomllib
from functools import cache
from pathlib import Path

import pytest

from mmlib.core.paths import PACKAGE
from mmlib.suite.papers import PAPERS

ROOT = PACKAGE.parent
CONTRACTS = {
    contract["id"]: contract
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"][
        "importlinter"
    ]["contracts"]
}
ROOMS = (
    "method.py", "batches.py", "train.py", "metrics.py", "systems.py", "grid.py", "data",
    "claims.py", "tables.py", "figures.py", "tables.json", "experiment.py",
)  # fmt: skip
# Words that say nothing about what they name: a name made of these alone is contentless.
CONTENTLESS = frozenset(
    "own found one known told seen kept more other both each said rest these those given brought "
    "made way what where which there here whole part parts place thing things".split()
)
FILES = sorted(PACKAGE.rglob("*.py"))
MOST_LINES, MOST_LINES_OF_A_FUNCTION, MOST_ARGUMENTS = 600, 60, 8
MOST_CONTENTLESS = 0.03  # of all bindings


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def functions() -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function of the package, with where it is."""
    return [
        (f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", node)
        for path in FILES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def bindings(tree: ast.AST) -> list[str]:
    """All names that a module gives to values: variables and parameters."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append(node.id)
        elif isinstance(node, ast.FunctionDef | ast.Lambda):
            parameters = node.args.args + node.args.kwonlyargs
            names += [p.arg for p in parameters if p.arg not in ("self", "cls")]
    return names


def is_contentless(name: str) -> bool:
    return CONTENTLESS.issuperset(name.strip("_").split("_"))


# 00 is a tour of the suite, with claims of its own and no paper to compare with.
@pytest.mark.parametrize("paper", [name for number, name in PAPERS.items() if number != "00"])
def test_every_paper_has_the_same_rooms(paper):
    folder = PACKAGE / "papers" / paper
    missing = [
        room
        for room in ROOMS
        if not (folder / (f"{room}/__init__.py" if room == "data" else room)).is_file()
    ]
    assert not missing
    assert f"mmlib.papers.{paper}" in CONTRACTS["rooms"]["containers"]


def test_the_contract_of_the_rooms_names_them_all():
    layers = " : ".join(CONTRACTS["rooms"]["layers"]).split(" : ")
    assert set(layers) == {room.removesuffix(".py") for room in ROOMS} - {"tables.json"}


def test_no_module_is_too_long():
    lengths = {str(path.relative_to(ROOT)): path.read_text("utf-8").count("\n") for path in FILES}
    assert not {path: n for path, n in lengths.items() if n > MOST_LINES}


def test_no_function_is_too_long():
    lengths = {where: (node.end_lineno or 0) - node.lineno + 1 for where, node in functions()}
    assert not {where: n for where, n in lengths.items() if n > MOST_LINES_OF_A_FUNCTION}


def test_no_function_has_too_many_arguments():
    counts = {where: len(node.args.args + node.args.kwonlyargs) for where, node in functions()}
    assert not {where: n for where, n in counts.items() if n > MOST_ARGUMENTS}


def test_names_say_what_they_name():
    names = [name for path in FILES for name in bindings(parsed(path))]
    contentless = [name for name in names if is_contentless(name)]
    assert len(contentless) <= MOST_CONTENTLESS * len(names), (
        f"{len(contentless)} of {len(names)}: {sorted(set(contentless))}"
    )


def test_contentless_names_by_hand():
    tree = ast.parse("def f(self, own, colour):\n    for part_one, row in x:\n        kept_row = 1")
    names = bindings(tree)
    assert sorted(names) == ["colour", "kept_row", "own", "part_one", "row"]
    assert [name for name in names if is_contentless(name)] == ["own", "part_one"]
