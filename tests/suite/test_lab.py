"""Every notebook in a real JupyterLab: opened, all cells run, no error, all figures.

What is opened is the teacher's version, which has the worked answers. Trainings are taken from the
finished run in `runs/lab/` that the regression check of the notebooks leaves behind.
"""

import json
import os
from pathlib import Path

import nbformat
import pytest
from finished_runs import NOTEBOOKS, ROOT, finished, resumed
from jupyter_lab import READY, running_lab

from mmlib.suite import course, runner

DESK = {"width": 1280, "height": 900}
IDLE = READY.replace("() =>", "").strip()
DONE = f"""() => {IDLE} &&
    ![...document.querySelectorAll(".jp-CodeCell .jp-InputPrompt")].some(
        prompt => prompt.textContent.includes("*"))"""
SEEN = """() => ({
    unrun: [...document.querySelectorAll(".jp-CodeCell")].filter(
        cell => cell.querySelector(".cm-content")?.textContent.trim() &&
            !/\\d/.test(cell.querySelector(".jp-InputPrompt").textContent)).length,
    errors: [...document.querySelectorAll(
        '[data-mime-type="application/vnd.jupyter.error"], ' +
        '[data-mime-type="application/vnd.jupyter.stderr"]')].map(output => output.textContent),
    pictures: [...document.querySelectorAll(".jp-OutputArea-output img")].map(
        image => image.complete && image.naturalWidth > 0),
})"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A JupyterLab on the teacher's version of all notebooks, which take up finished trainings."""
    folder = tmp_path_factory.mktemp("lab") / "notebooks"
    for path in course.write("answers", folder, NOTEBOOKS):
        nbformat.write(resumed(path, ROOT / "runs" / "lab" / path.stem), path)
    with running_lab(folder) as server:
        yield server


def pictures(notebook: Path) -> int:
    """How many pictures a committed notebook shows."""
    cells = nbformat.read(notebook, as_version=4).cells
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    return sum("image/png" in output.get("data", {}) for output in outputs)


@pytest.mark.finished
@pytest.mark.parametrize("source", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_in_the_browser(source, browser, lab):
    finished(source.stem)
    page = browser.new_page(viewport=DESK)
    page.set_default_timeout(1000 * runner.TIME_LIMITS["world"])
    page.goto(f"{lab.address}/lab/tree/{source.name}?reset&token={lab.token}")
    page.wait_for_selector(".jp-Notebook .jp-CodeCell")
    page.wait_for_function(READY)
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells') }")
    page.wait_for_timeout(3000)
    page.wait_for_function(DONE, polling=1000)
    seen = page.evaluate(SEEN)
    if shots := os.environ.get("MMLIB_SCREENSHOTS"):
        page.screenshot(path=f"{shots}/{source.stem}.png")
    page.close()
    lab.end_sessions()
    assert seen["errors"] == []
    assert seen["unrun"] == 0
    assert len(seen["pictures"]) == pictures(source) > 0
    assert all(seen["pictures"]), json.dumps(seen["pictures"])
