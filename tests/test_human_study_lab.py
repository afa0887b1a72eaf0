"""The human study in a real JupyterLab: clicks become votes, and votes outlive page and kernel."""

import json
import os

import nbformat
import pytest
from jupyter_lab import READY, running_lab
from nbformat.v4 import new_code_cell, new_notebook
from PIL import Image
from tiny_notebooks import KERNELSPEC

from mmlib import human_study

PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 900}
# The notebook itself must not name the systems, since a notebook stands on the page.
NOTEBOOK = """\
import json
from pathlib import Path
from PIL import Image
from mmlib.human_study import Question, Study, widget

plan = json.loads(Path("plan.json").read_text())
questions = [Question(key, text, tuple(images)) for key, text, images in plan["questions"]]
study = Study(questions, lambda row: Image.open(f"{row}.png"), plan["systems"], Path("votes.csv"))
widget(study, "anna")
"""
SYSTEMS = ("CMCM_Story", "CMCA")


@pytest.fixture
def folder(tmp_path):
    """A notebook with a study of four questions."""
    work = tmp_path / "work"
    work.mkdir()
    for row in range(8):
        size = (320, 240) if row % 2 else (200, 300)
        picture = Image.linear_gradient("L").resize(size)
        hues = Image.merge("RGB", (picture, picture.rotate(90 * row), Image.new("L", size, 120)))
        hues.save(work / f"{row}.png")
    texts = ["The start of the race", "a dog <in> the snow", "Mix the flour with the eggs", "Done"]
    questions = [(f"q{i}", text, [2 * i, 2 * i + 1]) for i, text in enumerate(texts)]
    plan = {"questions": questions, "systems": SYSTEMS}
    (work / "plan.json").write_text(json.dumps(plan))
    notebook = new_notebook(cells=[new_code_cell(NOTEBOOK)], metadata={"kernelspec": KERNELSPEC})
    nbformat.write(notebook, work / "study.ipynb")
    return work


@pytest.fixture
def lab(folder):
    with running_lab(folder) as server:
        yield server


def open_notebook(browser, lab, viewport):
    """The page of the notebook after all its cells were run in a new kernel."""
    page = browser.new_page(viewport=viewport)
    page.set_default_timeout(90_000)
    page.goto(f"{lab.address}/lab/tree/study.ipynb?reset&token={lab.token}")
    page.wait_for_selector(".jp-Notebook .jp-CodeCell")
    page.wait_for_function(READY)
    # Not awaited in the page: should it come to nothing, the last line says so in time.
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells') }")
    if viewport["width"] < 600:  # as on a phone, where the list of files leaves no room
        page.evaluate("() => window.jupyterapp.shell.collapseLeft()")
    page.wait_for_selector(".study figure img")
    return page


def answer(page, words, then):
    """Click an answer as a person would, and wait for what the page says next."""
    page.wait_for_timeout(1000 * human_study.HASTE + 100)
    page.get_by_role("button", name=words).click()
    page.get_by_text(then).wait_for()


def check_layout(page, viewport):
    """Two pictures of one size side by side, and everything within the page's width."""
    left, right = (image.bounding_box() for image in page.locator(".study img").all())
    for side in ("y", "width", "height"):
        assert left[side] == pytest.approx(right[side], abs=1)
    assert left["x"] + left["width"] < right["x"]
    assert left["width"] >= min(300, 0.3 * viewport["width"])
    buttons = page.locator(".jp-OutputArea button.jupyter-button").all()
    assert len(buttons) == len(human_study.ANSWERS) + 1
    for part in (page.locator(".study blockquote"), *page.locator(".study img").all(), *buttons):
        box = part.bounding_box()
        assert box["x"] + box["width"] <= viewport["width"]
        assert part.evaluate("e => e.scrollWidth <= e.clientWidth"), part.inner_text()
    assert not any(system in page.content() for system in SYSTEMS)
    if shots := os.environ.get("MMLIB_SCREENSHOTS"):
        page.screenshot(path=f"{shots}/study-{viewport['width']}.png")


@pytest.mark.slow
def test_votes_by_click_outlive_page_and_kernel(browser, lab, folder):
    page = open_notebook(browser, lab, DESK)
    assert page.get_by_text("1 of 4, rater anna").is_visible()
    check_layout(page, DESK)
    answer(page, "prefer A", "2 of 4, rater anna")
    answer(page, "neither fits", "3 of 4, rater anna")
    (first,) = lab.ask("kernels")
    page.close()
    table = human_study.votes(folder / "votes.csv")
    assert table.question.tolist() == ["q0", "q1"]
    assert table.answer.tolist() == ["prefer A", "neither fits"]
    assert table.rater.tolist() == ["anna", "anna"]

    lab.end_sessions()
    page = open_notebook(browser, lab, PHONE)
    (second,) = lab.ask("kernels")
    assert second["id"] != first["id"]
    assert page.get_by_text("3 of 4, rater anna").is_visible()
    assert page.get_by_text("Mix the flour with the eggs").is_visible()
    check_layout(page, PHONE)
    answer(page, "both good", "4 of 4, rater anna")
    page.get_by_role("button", name="undo").click()
    page.get_by_text("3 of 4, rater anna").wait_for()
    answer(page, "prefer B", "4 of 4, rater anna")
    answer(page, "exactly the same", "Thank you, anna")
    answers = human_study.votes(folder / "votes.csv").answer.tolist()
    assert answers == ["prefer A", "neither fits", "prefer B", "exactly the same"]
