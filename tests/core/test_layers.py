"""The contracts of imports in pyproject.toml hold, and a wrong import breaks them."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("importlinter", reason="no check of imports: import-linter is not installed")

ROOT = Path(__file__).resolve().parents[2]
LINT = "from importlinter.cli import lint_imports_command as lint; lint()"
FOLDERS = ("core", "data", "features", "scenegraph", "world", "papers", "suite")


def lint(folder):
    """Exit status and words of import-linter for the package mmlib in a folder."""
    command = [sys.executable, "-c", LINT, "--no-cache"]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    return ran.returncode, ran.stdout + ran.stderr


@pytest.fixture
def bare(tmp_path):
    """A package of mmlib's modules, all empty, under mmlib's contracts."""
    for path in (ROOT / "mmlib").rglob("*.py"):
        empty = tmp_path / path.relative_to(ROOT)
        empty.parent.mkdir(parents=True, exist_ok=True)
        empty.touch()
    for name in ("one", "two"):
        (tmp_path / "mmlib" / "papers" / name).mkdir()
        (tmp_path / "mmlib" / "papers" / name / "__init__.py").touch()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_package_keeps_its_contracts():
    status, said = lint(ROOT)
    assert status == 0, said


def test_every_folder_is_a_layer():
    folders = {path.parent.name for path in (ROOT / "mmlib").glob("*/__init__.py")}
    assert folders == set(FOLDERS)


def test_no_module_lies_outside_the_layers():
    assert {path.stem for path in (ROOT / "mmlib").glob("*.py")} == {"__init__"}


WRONG = [
    ("core/errors.py", "mmlib.data.registry", "below it"),
    ("features/store.py", "mmlib.scenegraph.graph", "below it"),
    ("data/sick.py", "mmlib.world.words", "below it"),
    ("world/words.py", "mmlib.papers.one", "below it"),
    ("papers/one/__init__.py", "mmlib.suite.runner", "below it"),
    ("papers/one/__init__.py", "mmlib.papers.two", "imports another"),
]


def test_an_import_upwards_or_of_another_paper_is_found(bare):
    assert lint(bare)[0] == 0
    for name, imported, contract in WRONG:
        path = bare / "mmlib" / name
        path.write_text(f"def late():\n    import {imported}\n")
        status, said = lint(bare)
        path.write_text("")
        broken = [line for line in said.splitlines() if line.endswith("BROKEN")]
        assert status == 1
        assert any(contract in line for line in broken), (name, imported, said)
