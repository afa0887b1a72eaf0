"""The students' version of the real notebooks, executed; `test_lab.py` executes the teacher's.

Trainings are taken from a finished run in JupyterLab's folder, `runs/lab/`, which the regression
check of the notebooks leaves behind; without one a notebook is skipped.
"""

import shutil
from pathlib import Path

import pytest
from finished_runs import NOTEBOOKS, finished, resumed
from nbclient import NotebookClient

from mmlib.suite import course, runner


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The students' version of all notebooks."""
    folder = tmp_path_factory.mktemp("course")
    course.write("student", folder, NOTEBOOKS)
    return folder


def execute(notebook: Path, out: Path):
    """The cells of a notebook, executed with the finished trainings in `out`; errors are let be."""
    nb = resumed(notebook, out)
    where = {"metadata": {"path": str(notebook.parent)}}
    limit = int(runner.TIME_LIMITS["world"])
    NotebookClient(nb, allow_errors=True, timeout=limit, resources=where).execute()
    return nb.cells


@pytest.mark.finished
@pytest.mark.parametrize("source", NOTEBOOKS, ids=lambda path: path.stem)
def test_only_check_cells_without_an_answer_fail(source, folder, tmp_path):
    out = tmp_path / source.stem  # a copy, as `test_lab.py` may run beside this
    shutil.copytree(finished(source.stem), out)
    cells = execute(folder / source.name, out)
    code = [cell for cell in cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code if cell.source.strip())
    checks = [cell for cell in code if "check" in cell.metadata.get("tags", [])]
    assert len(checks) >= 5
    errors = {
        cell.id: (output.ename, output.evalue.partition(":")[0])
        for cell in code
        for output in cell.outputs
        if output.output_type == "error"
    }
    expected = {
        cell.id: ("NoAnswer", f"Exercise {n} has no answer yet") for n, cell in enumerate(checks, 1)
    }
    assert errors == expected
