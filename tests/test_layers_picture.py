"""docs/pictures/layers.png: what it says agrees with the contract and the package's imports."""

from itertools import chain

import pytest
import scripts

from mmlib.core.paths import PACKAGE


@pytest.fixture(scope="module")
def plan():
    return scripts.load("ci/pictures.py").plan()


def test_it_shows_every_folder_and_what_is_in_it(plan):
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert sorted(chain(*plan.layers)) == sorted(folders)
    for folder in folders:
        children = [*(PACKAGE / folder).glob("*.py"), *(PACKAGE / folder).glob("*/__init__.py")]
        names = {path.parent.name if path.stem == "__init__" else path.stem for path in children}
        assert set(plan.modules[folder]) == names - {folder}


def test_imports_run_downwards_only(plan):
    level = {folder: i for i, row in enumerate(plan.layers) for folder in row}
    assert all(level[importer] < level[imported] for importer, imported in plan.imports)
    assert {(folder, "core") for folder in level if folder != "core"} <= plan.imports
