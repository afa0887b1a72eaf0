"""Grading: honest hand-ins, broken ones and cheats, all of one small notebook, in one call."""

import json
import os
import re
import socket
from pathlib import Path

import nbformat
import pandas as pd
import pytest
import yaml
from tiny_notebooks import LESSON, committed_notebook, exercise, lesson, write_answers

from mmlib.suite.course import grading, versions

LIMITS = (2.5, 2**30)  # seconds and bytes of an answer
RIGHT = {number: answer for number, (answer, _) in LESSON.items()}
TABLES = yaml.safe_load(Path(__file__).with_name("hand_ins.yaml").read_text(encoding="utf-8"))
HAND_INS = {one["name"]: (one["answers"], *one["said"]) for one in TABLES["hand_ins"]}
FILES = TABLES["files"]  # of another form


@pytest.fixture(scope="module")
def teacher(tmp_path_factory) -> Path:
    return lesson(tmp_path_factory.mktemp("teacher") / "01_tiny.ipynb")


def read_bytes(path: Path, read=Path.read_bytes) -> bytes:
    """Reads a file, but for one that cannot be read even by root."""
    return read(path / "nothing" if path.stem == "closed" else path)


def write_odd_entries(folder: Path, right: bytes) -> None:
    """What else may lie in a folder of hand-ins. right: a notebook of right answers."""
    for name, content in {
        "no_json": b"{", "empty": b"", "caf\udce9": b"{", "deep": b"[" * 10**5,
        "cells_are_numbers": b'{"nbformat": 4, "cells": [3]}', "closed": right,
        "with_a_mark": b"\xef\xbb\xbf" + right, "of_16_bits": right.decode().encode("utf-16"),
        "no_metadata": b'{"nbformat": 4, "nbformat_minor": 5, "cells": [{"cell_type": "code"}]}',
    }.items():  # fmt: skip
        (folder / f"{name}.ipynb").write_bytes(content)
    (folder / "upper_case.IPYNB").write_bytes(right)
    with (folder / "large.ipynb").open("wb") as file:
        file.truncate(60_000_000)
    for name, target in {
        "leads_nowhere.ipynb": "nowhere", "leads_to_me": folder,
        "leads_in_a_loop.ipynb": "leads_in_a_loop.ipynb",
        "leads_away.ipynb": "/etc/passwd",
    }.items():  # fmt: skip
        (folder / name).symlink_to(target)
    for name in ("holds_a_link", "folder.ipynb", "writes_essays", "two", "__MACOSX"):
        (folder / name).mkdir()
    (folder / "holds_a_link" / "week_1").symlink_to("/etc")
    (folder / "two" / "a.ipynb").write_bytes(right)
    (folder / "two" / "b.ipynb").write_bytes(right)
    for name in ("homework.docx", "writes_essays/a.docx", "writes_essays/b.txt", "two/notes.txt"):
        (folder / name).write_text("an essay")
    os.mkfifo(folder / "pipe.ipynb")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "socket.ipynb"))


@pytest.fixture(scope="module")
def graded(teacher, tmp_path_factory):
    """The folder of all hand-ins, the table of marks, its totals, and its rows by student."""
    [student], _ = versions.write("student", tmp_path_factory.mktemp("student"), [teacher])
    folder = tmp_path_factory.mktemp("handins")
    marks = folder / "marks.csv"

    def fill(answers):
        """The students' version with answers in its blanks."""
        filled = nbformat.read(student, as_version=4)
        blanks = [cell for cell in filled.cells if "blank" in cell.metadata.get("tags", [])]
        for number, cell in enumerate(blanks, 1):
            cell.source = (RIGHT | answers)[number] or cell.source
        return filled

    for name, (answers, *_) in HAND_INS.items():
        for n, answer in answers.items():
            if answer:
                answer = answer.replace("{marks!r}", repr(str(marks)))
                answers[n] = answer.replace("{notebook!r}", repr(str(teacher)))
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
    twice = fill({})  # a copy of the first two questions below their checks, one with an answer
    copied = fill({1: None, 2: "answer_2 = 'dc'"}).cells
    ends = [i for i, cell in enumerate(copied) if "check" in cell.metadata.get("tags", [])]
    for cell in copied:
        cell.id += "-copy"
    for end in reversed(ends[:2]):
        twice.cells[end + 1 : end + 1] = copied[end - 2 : end]
    nbformat.write(twice, folder / "asks_twice.ipynb")
    cleared = fill({1: " ", 2: None})
    cleared.cells.insert(ends[1], nbformat.v4.new_code_cell("print(answer_2)"))
    nbformat.write(cleared, folder / "cleared.ipynb")
    nbformat.write(committed_notebook(("1", [], [])), folder / "foreign.ipynb")
    write_odd_entries(folder, nbformat.writes(fill({})).encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grading, "GRACE", 2)
        patch.setattr(grading, "LARGEST", 2**20)
        patch.setattr(Path, "read_bytes", read_bytes)
        totals = grading.grade(folder, [teacher], marks, 2, *LIMITS)
    table = pd.read_csv(marks, dtype=str, keep_default_na=False)
    return folder, marks, totals, {name: rows for name, rows in table.groupby("student")}


@pytest.mark.parametrize("name", [*HAND_INS, *FILES])
def test_results_and_reasons_of_a_hand_in(graded, name):
    rows = graded[3][name]
    begins = FILES[name] if name in FILES else HAND_INS[name][1:]
    if len(rows) > 1:
        assert rows.exercise.tolist() == ["1", "2", "3"]
        assert rows.minutes.tolist() == ["5", "10", "15"]
    for said, begin in zip(rows.result + ": " + rows.reason, begins, strict=True):
        assert said == begin or (begin not in ("right: ", "blank: ") and said.startswith(begin))


def test_totals_count_results_and_name_what_is_there_twice(graded):
    folder, marks, totals, rows = graded
    assert set(totals.student) == set(rows) == {*HAND_INS, *FILES, "two"}
    assert totals.set_index("student").note.loc["two"] == (
        "2 files of 01_tiny, all counted: two/a.ipynb, two/b.ipynb. "
    )
    assert (totals.note != "").sum() == 1
    counts = totals.set_index("student")[grading.RESULTS]
    for student, results in {
        "honest": [3, 0, 0, 0], "two": [6, 0, 0, 0], "mistaken": [0, 3, 0, 0], "pipe": [0, 0, 0, 1],
        "untouched": [0, 0, 3, 0],
    }.items():  # fmt: skip
        assert counts.loc[student].tolist() == results
    written = pd.read_csv(folder / "marks_totals.csv", keep_default_na=False)
    pd.testing.assert_frame_equal(written, totals)
    assert "root:" not in marks.read_text()  # the target of a link


def test_the_same_command_goes_on(graded, teacher, monkeypatch):
    folder, marks, totals, _ = graded
    before = marks.read_bytes()
    lines = before.splitlines(keepends=True)
    marks.write_bytes(b"".join(line for line in lines if not line.startswith(b"no_json")))
    monkeypatch.setattr(grading, "Kernel", None)  # nothing is run anew
    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    pd.testing.assert_frame_equal(grading.grade(folder, [teacher], marks, 1, *LIMITS), totals)
    assert marks.read_bytes() == before
    first = lambda rows, *_, **__: (row for n, row in enumerate(rows) if n < 1 or 1 / 0)  # noqa: E731
    monkeypatch.setattr(grading, "tqdm", first)
    with pytest.raises(ZeroDivisionError):  # after one hand-in, as by Ctrl-C
        grading.grade(folder, [teacher], marks, 1, *LIMITS)
    assert marks.read_bytes() == before


def test_what_cannot_be_graded_writes_nothing(teacher, tmp_path):
    (tmp_path / "a.ipynb").write_text("{")
    (tmp_path / "mine.csv").write_text("a,b\n")
    pd.DataFrame([{"file": "b.ipynb"}], columns=grading.COLUMNS).to_csv(
        tmp_path / "week_1.csv", index=False
    )
    numbers = (0, -1, float("nan"), float("inf"))
    for folder, out, limits, said in (
        (tmp_path, "mine.csv", LIMITS, "no marks of hand-ins in"),
        (tmp_path, "week_1.csv", LIMITS, "no marks of hand-ins in"),
        (tmp_path / "none", "marks.csv", LIMITS, "none: is not there"),
        *((tmp_path, "marks.csv", (limit, 2**30), "are numbers above 0") for limit in numbers),
        *((tmp_path, "marks.csv", (60, limit), "are numbers above 0") for limit in numbers),
    ):
        with pytest.raises(ValueError, match=said):
            grading.grade(folder, [teacher], tmp_path / out, 1, *limits)
    assert (tmp_path / "mine.csv").read_text() == "a,b\n"
    assert not (tmp_path / "marks.csv").exists()


@pytest.mark.parametrize(
    ("check", "said"),
    [
        ("course.number(1, answer_1, 3, 0.1)\nprint('done')", "does not end with course.number"),
        ("course.number(2, answer_1, 3, 0.1)", r"say right for the exercises \[2\] alone"),
        ("course.number(1, None, 3, 0.1)", r"its checks say right for the exercises \[\] alone"),
        ("course.number(1, answer_1, 4, 0.1)", "fail with WrongAnswer: Exercise 1: 3 is not right"),
        ("course.function(1, abs, abs, [(lambda: 1,)])", "fail with"),
    ],
)
def test_a_check_that_cannot_be_kept_is_the_authors_fault(tmp_path, check, said):
    nb = committed_notebook(("from mmlib.suite import course", [], []))
    nb.cells += exercise(1, check)
    nbformat.write(nb, tmp_path / "01_bad.ipynb")
    write_answers(tmp_path / "01_bad.ipynb", {1: "answer_1 = 3"})
    with pytest.raises(ValueError, match=rf"01_bad.ipynb: .*{said}"):
        grading.mistakes(tmp_path / "01_bad.ipynb")


# nbgrader


def test_export_has_the_metadata_of_nbgrader(teacher, tmp_path):
    [path], _ = versions.write("nbgrader", tmp_path, [teacher])
    assert path == tmp_path / "source" / "01_tiny" / "01_tiny.ipynb"
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
    assert "return 2 * x" not in released
    assert "answer_1 = ...\n" in released


# A pack


def test_pack_has_package_and_evidence_and_keeps_begun_work(teacher, tmp_path, monkeypatch):
    root = tmp_path / "clone"
    packed = "mmlib/a.py", "mmlib/__pycache__/a.pyc", "evidence/world.json", *versions.PACKED[2:]
    for name in packed:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    monkeypatch.setattr(versions, "PACKAGE", root / "mmlib")
    out = tmp_path / "pack"
    notebook = out / "notebooks" / "01_tiny.ipynb"
    assert versions.write("student", out, [teacher], pack=True) == ([notebook], [])
    assert {p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()} == {
        *("mmlib/a.py", "evidence/world.json", "README.md", *versions.PACKED[2:]),
        "notebooks/01_tiny.ipynb",
    }
    notebook.write_text("begun")
    (root / "mmlib" / "a.py").write_text("newer")
    assert versions.write("student", out, [teacher], pack=True) == ([], [notebook])
    assert notebook.read_text() == "begun"
    assert (out / "mmlib" / "a.py").read_text() == "newer"
    with pytest.raises(ValueError, match="is something else; name a new folder"):
        versions.write("student", teacher.parent, [teacher], pack=True)
    (root / "evidence" / "world.json").unlink()
    (root / "evidence").rmdir()
    with pytest.raises(ValueError, match="no evidence beside the package"):
        versions.write("student", out, [teacher], pack=True)
