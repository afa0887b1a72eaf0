"""Finished runs of the notebooks in `runs/lab/`, as the regression check leaves them behind."""

from pathlib import Path

import pytest
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def finished(stem: str) -> Path:
    """The folder of a notebook's finished run, or a skip that says how to get one."""
    folder = ROOT / "runs" / "lab" / stem
    if not (folder / "results.json").exists():
        pytest.skip(f"no finished run in runs/lab/{stem}: make regression makes one")
    return folder


def resumed(notebook: Path, out: Path):
    """A notebook that takes up the finished trainings in `out`."""
    parameters = {"resume": True, "out": str(out)}
    return parameterize_notebook(load_notebook_node(str(notebook)), parameters)
