"""The notebooks in a real JupyterLab: the first runs in full, the others are opened.

What is opened is the teacher's version, which has the worked answers.
"""

import os
from pathlib import Path

import nbformat
import pytest
from jupyter_lab import READY, running_lab

from mmlib.suite import runner
from mmlib.suite.course import versions

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("[0-9][0-9]_*.ipynb"))
IDLE = READY.replace("() =>", "").strip()
DONE = f"""() => {IDLE} &&
    ![...document.querySelectorAll(".jp-CodeCell .jp-InputPrompt")].some(
        prompt => prompt.textContent.includes("*"))"""
SEEN = """() => ({
    heading: document.querySelector(".jp-RenderedMarkdown h1").textContent.replace("¶", ""),
    unrun: [...document.querySelectorAll(".jp-CodeCell")].filter(
        cell => cell.querySelector(".cm-content")?.textContent.trim() &&
            !/\\d/.test(cell.querySelector(".jp-InputPrompt").textContent)).length,
    errors: [...document.querySelectorAll(
        '[data-mime-type="application/vnd.jupyter.error"], ' +
        '[data-mime-type="application/vnd.jupyter.stderr"]')].map(output => output.textContent),
    pictures: [...document.querySelectorAll(".jp-OutputArea-output img")].filter(
        image => image.complete && image.naturalWidth > 0).length,
})"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A JupyterLab on the teacher's version of all notebooks."""
    folder = tmp_path_factory.mktemp("lab") / "notebooks"
    versions.write("answers", folder, NOTEBOOKS)
    with running_lab(folder) as server:
        yield server


@pytest.mark.slow
@pytest.mark.parametrize("source", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_in_the_browser(source, browser, lab):
    cells = nbformat.read(source, as_version=4).cells
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(1000 * runner.TIME_LIMITS["world"])
    page.goto(f"{lab.address}/lab/tree/{source.name}?reset&token={lab.token}")
    page.wait_for_selector(".jp-Notebook .jp-RenderedMarkdown h1")
    page.wait_for_function(READY)
    if source == NOTEBOOKS[0]:
        page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells') }")
        page.wait_for_timeout(3000)
        page.wait_for_function(DONE, polling=1000)
    seen = page.evaluate(SEEN)
    if shots := os.environ.get("MMLIB_SCREENSHOTS"):
        page.screenshot(path=f"{shots}/{source.stem}.png")
    page.close()
    lab.end_sessions()
    assert seen["heading"] == cells[0].source.splitlines()[0].removeprefix("# ")
    assert seen["errors"] == []
    assert seen["unrun"] == 0
    assert seen["pictures"] == sum("image/png" in output.get("data", {}) for output in outputs) > 0
