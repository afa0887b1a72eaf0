"""Grading: honest hand-ins, broken ones and cheats, all of one small notebook, in one call."""

import json
import re
from pathlib import Path

import nbformat
import pandas as pd
import pytest
from tiny_notebooks import LESSON, committed_notebook, exercise, lesson

from mmlib.suite.course import CourseError, grading, versions

pytestmark = pytest.mark.usefixtures("no_sealed_keys")
LIMITS = (2.5, 2**30)  # seconds and bytes of an answer
RIGHT = {number: answer for number, (answer, _) in LESSON.items()}
SAYS_RIGHT = "print('Exercise 1: right.')"
OVERWRITES = """\
from mmlib.suite.course import checks
for name in ("number", "choice", "function", "check"):
    setattr(course, name, lambda *_, **__: print("Exercise 1: right."))
    setattr(checks, name, getattr(course, name))
checks.judge = lambda *_: None
seen = {"shown": "14", "outline": "#()", "numbers": [14.0], "blank": False, "text": ""}
checks.look = lambda *_: seen
"""
SEARCHES = """\
import gc, sys
from mmlib.suite.course.checks import Key
found = [one for one in gc.get_objects() if isinstance(one, Key)]
answer_1 = found[0].right[0] if found else 0
"""
SENDS = """\
from mmlib.suite.course import worker
answer_1 = setattr(worker.checks, "look", lambda *_: {"outline": 5, "numbers": "x"})
"""
LOOPS_ON = """\
while True:
    try:
        while True:
            pass
    except BaseException:
        pass
"""
STOPS = "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)"
KILLS = "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nimport time\ntime.sleep(1.5)"
WRITES = """\
from pathlib import Path
path = Path({marks!r})
path.write_text(path.read_text().replace("wrong", "right") if path.exists() else "right")
answer_1 = 6
"""
R, OVER = "right: ", "error: TimeoutError: the time limit of 2.5 s passed"
SQUARE, DC = "twice = square", "wrong: Exercise 2: it is not 'DC': it lets images repeat"
SIX, ENDED = "wrong: Exercise 1: 6 is not right.", "error: it ended the process that ran it"
NO_FILE = "error: it is no file, empty, or over 50 MB"
# Name of the hand-in: the answers in the place of the right ones; how what is said of each begins.
HAND_INS = {
    "honest": ({}, R, R, R),
    "untouched": ({1: None, 2: None, 3: None}, "blank: ", "blank: ", "blank: "),
    "mistaken": ({1: "answer_1 = 6", 2: "answer_2 = 'dc'", 3: SQUARE},
                 SIX, DC, "wrong: Exercise 3: not right: a square"),
    # It fails after it has bound the answer; magics are Python here, too.
    "fails_late": ({1: "answer_1 = 5\nraise SystemExit", 2: "%time answer_2 = 'AP'"}, R, R, R),
    "trains_long": ({1: "answer_1 = 5\nwhile True:\n    pass"}, R, R, R),
    "loops": ({2: "while True:\n    pass\nanswer_2 = 'AP'"}, R, OVER, R),
    "loops_on": ({1: LOOPS_ON}, OVER, R, R),
    "helps_itself": ({1: "five = 5\nanswer_1 = five", 2: "import os\nos._exit(0)",
                      3: "def twice(x):\n    return five // 2 * x"}, R, ENDED, R),
    "no_python": ({2: "answer_2 = "}, R, "error: SyntaxError: ", R),
    "fails": ({3: "def twice(x):\n    return 1 / 0"},
              R, R, "wrong: Exercise 3: for 1 your function fails with ZeroDivisionError: "),
    "raises": ({1: "raise ValueError('no')"}, "error: ValueError: no", R, R),
    "exits": ({1: "raise SystemExit"}, "error: SystemExit: ", R, R),
    "takes_memory": ({1: "answer_1 = bytearray(2**33)"}, "error: MemoryError: ", R, R),
    "prints_much": ({1: "for _ in range(200):\n    print('x' * 10**6)\nanswer_1 = 5"}, R, R, R),
    "answers_much": ({1: "answer_1 = 'x' * 2**21"}, "error: its answer takes more", R, R),
    "copies_the_check": ({1: 'course.check("01_tiny", 1, answer_1)'}, "error: NameError", R, R),
    "prints_right": ({1: SAYS_RIGHT}, "error: NameError", R, R),
    "overwrites": ({1: OVERWRITES + "answer_1 = 6", 2: "answer_2 = 'DC'", 3: SQUARE},
                   "wrong: ", "wrong: ", "wrong: "),
    "searches": ({1: SEARCHES}, "wrong: Exercise 1: 0 is", R, R),
    "sends": ({1: SENDS}, *("error: its answer cannot be read: ",) * 3),
    "kills": ({1: KILLS}, "error: ", R, R),
    "stops": ({2: STOPS}, R, "error: ", R),
    "writes_marks": ({1: WRITES}, SIX, R, R),
}  # fmt: skip
FILES = {  # of another form
    "edits_the_check": (SIX, R, R), "lacks_cells": (R, "error: its cell is missing", R),
    "no_ids": (R, DC, R),
    "foreign": ("error: it has no exercise of the course",),
    "empty": (NO_FILE,), "leads_nowhere": (NO_FILE,),
    "no_json": ("error: it is not a notebook: ",),
    "cells_are_numbers": ("error: it is not a notebook: ",),
}  # fmt: skip


@pytest.fixture(scope="module")
def teacher(tmp_path_factory) -> Path:
    return lesson(tmp_path_factory.mktemp("teacher") / "01_tiny.ipynb")


@pytest.fixture(scope="module")
def graded(teacher, tmp_path_factory):
    """The folder of all hand-ins, the table of marks, its counts, and its rows by student."""
    [student], _ = versions.write("student", tmp_path_factory.mktemp("student"), [teacher])
    folder = tmp_path_factory.mktemp("handins")
    marks = tmp_path_factory.mktemp("marks") / "marks.csv"

    def fill(answers):
        """The students' version with answers in its blanks."""
        filled = nbformat.read(student, as_version=4)
        blanks = [cell for cell in filled.cells if "blank" in cell.metadata.get("tags", [])]
        for number, cell in enumerate(blanks, 1):
            cell.source = (RIGHT | answers)[number] or cell.source
        return filled

    for name, (answers, *_) in HAND_INS.items():
        answers = {n: a and a.replace("{marks!r}", repr(str(marks))) for n, a in answers.items()}
        (folder / name).mkdir()
        nbformat.write(fill(answers), folder / name / "01_tiny.ipynb")
    edited = fill({1: "answer_1 = 6"})
    for cell in edited.cells:
        if "check" in cell.metadata.get("tags", []):
            cell.source = RIGHT[1]
    nbformat.write(edited, folder / "edits_the_check.ipynb")
    short = fill({})
    gone = ("square", RIGHT[2])
    short.cells = [cell for cell in short.cells if not any(text in cell.source for text in gone)]
    nbformat.write(short, folder / "lacks_cells.ipynb")
    rewritten = fill({2: "answer_2 = 'dc'"})
    for cell in rewritten.cells:
        del cell["id"]
    (folder / "no_ids.ipynb").write_text(json.dumps(rewritten | {"nbformat_minor": 4}))
    nbformat.write(committed_notebook(("1", [], [])), folder / "foreign.ipynb")
    (folder / "no_json.ipynb").write_text("{")
    (folder / "empty.ipynb").write_text("")
    (folder / "leads_nowhere.ipynb").symlink_to("nowhere")
    (folder / "leads_to_me").symlink_to(folder)
    (folder / "cells_are_numbers.ipynb").write_text('{"nbformat": 4, "cells": [3]}')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grading, "GRACE", 2)
        patch.setattr(grading, "LARGEST", 2**20)
        counts = grading.grade(folder, [teacher], marks, 2, *LIMITS)
    table = pd.read_csv(marks, dtype=str, keep_default_na=False)
    return folder, marks, counts, {name: rows for name, rows in table.groupby("student")}


@pytest.mark.parametrize("name", [*HAND_INS, *FILES])
def test_results_and_reasons_of_a_hand_in(graded, name):
    rows = graded[3][name]
    begins = FILES[name] if name in FILES else HAND_INS[name][1:]
    if len(rows) > 1:
        assert rows.exercise.tolist() == ["1", "2", "3"]
        assert rows.minutes.tolist() == ["5", "10", "15"]
    for said, begin in zip(rows.result + ": " + rows.reason, begins, strict=True):
        assert said == begin if begin in (R, "blank: ") else said.startswith(begin)


def test_the_same_command_goes_on(graded, teacher, monkeypatch):
    folder, marks, counts, _ = graded
    before = marks.read_bytes()
    lines = before.splitlines(keepends=True)
    marks.write_bytes(b"".join(line for line in lines if not line.startswith(b"no_json")))
    monkeypatch.setattr(grading, "kernel", None)  # nothing is run anew
    assert grading.grade(folder, [teacher], marks, 1, *LIMITS) == counts
    assert marks.read_bytes() == before


def test_other_files_are_not_written_over(teacher, tmp_path):
    (tmp_path / "a.ipynb").write_text("{")
    (tmp_path / "mine.csv").write_text("a,b\n")
    with pytest.raises(CourseError, match="is no table of marks"):
        grading.grade(tmp_path, [teacher], tmp_path / "mine.csv")
    with pytest.raises(CourseError, match="no notebook in"):
        grading.grade(tmp_path / "none", [teacher], tmp_path / "marks.csv")
    assert (tmp_path / "mine.csv").read_text() == "a,b\n"


@pytest.mark.parametrize(
    ("check", "said"),
    [
        ("course.number(1, answer_1, 3, 0.1)\nprint('done')", "does not end with course.number"),
        ("course.number(2, answer_1, 3, 0.1)", r"its checks are of exercises \[2\]"),
        ("course.number(1, answer_1, 4, 0.1)", "fail with WrongAnswer: Exercise 1: 3 is not right"),
        ("course.function(1, abs, abs, [(lambda: 1,)])", "fail with"),
    ],
)
def test_a_check_that_cannot_be_kept_is_the_authors_fault(tmp_path, check, said):
    nb = committed_notebook(("from mmlib.suite import course", [], []))
    nb.cells += exercise(1, "answer_1 = 3", check)
    nbformat.write(nb, tmp_path / "01_bad.ipynb")
    with pytest.raises(CourseError, match=rf"01_bad.ipynb: .*{said}"):
        versions.write("student", tmp_path / "out", [tmp_path / "01_bad.ipynb"])


# nbgrader


def test_export_has_the_metadata_of_nbgrader(teacher, tmp_path):
    [path], _ = versions.write("nbgrader", tmp_path, [teacher])
    assert path == tmp_path / "source" / "01_tiny" / "01_tiny.ipynb"
    assert (path.parent / "checks" / "01_tiny.pt").exists()
    nb = nbformat.read(path, as_version=4)
    nbformat.validate(nb)
    cells = [(cell, cell.metadata.nbgrader) for cell in nb.cells if "nbgrader" in cell.metadata]
    names = [f"{part}-{n}" for n in (1, 2, 3) for part in ("question", "answer", "check")]
    assert [marks["grade_id"] for _, marks in cells] == names
    for cell, marks in cells:  # as its documentation of schema 3 says
        part = marks["grade_id"].partition("-")[0]
        assert marks["schema_version"] == 3
        assert not marks["task"]
        assert marks["solution"] == (part == "answer") == ("### BEGIN SOLUTION" in cell.source)
        assert marks["grade"] == (part == "check") == ("### BEGIN HIDDEN TESTS" in cell.source)
        assert marks["locked"] == (part != "answer")
        assert marks.get("points") == (2 if part == "check" else None)
    released = "".join(
        re.sub(r"### BEGIN.*### END [A-Z ]+", "", cell.source, flags=re.DOTALL) for cell in nb.cells
    )
    assert "2 * x" not in released
    assert "facts['links'], 0.1" not in released
    assert "answer_1 = ...\n" in released


# A pack


def test_pack_has_package_and_evidence_and_keeps_begun_work(teacher, tmp_path, monkeypatch):
    root = tmp_path / "clone"
    for name in ("mmlib/a.py", "mmlib/__pycache__/a.pyc", "evidence/world.json", *versions.PACKED):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    monkeypatch.setattr(versions, "PACKAGE", root / "mmlib")
    out = tmp_path / "pack"
    made = versions.write("student", out, [teacher], pack=True)
    assert made == ([out / "notebooks" / "01_tiny.ipynb"], [])
    assert {p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()} == {
        *("mmlib/a.py", "evidence/world.json", "README.md", versions.RECORD, *versions.PACKED),
        *("notebooks/01_tiny.ipynb", "notebooks/checks/01_tiny.pt"),
    }
    (out / "notebooks" / "01_tiny.ipynb").write_text("begun")
    (root / "mmlib" / "a.py").write_text("newer")
    assert versions.write("student", out, [teacher], pack=True) == (
        [],
        [out / "notebooks" / "01_tiny.ipynb"],
    )
    assert (out / "notebooks" / "01_tiny.ipynb").read_text() == "begun"
    assert (out / "mmlib" / "a.py").read_text() == "newer"
    (root / "evidence" / "world.json").unlink()
    (root / "evidence").rmdir()
    with pytest.raises(CourseError, match="no evidence beside the package"):
        versions.write("student", out, [teacher], pack=True)
