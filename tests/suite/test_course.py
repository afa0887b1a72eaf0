"""Checks of exercises, and the students' and teacher's versions of a small notebook."""

import io
import json
import sys
from contextlib import contextmanager, suppress
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch
from nbclient import NotebookClient
from tiny_notebooks import LESSON, committed_notebook, five_exercises, lesson, stdout

from mmlib.suite import course
from mmlib.suite.course import CourseError, NoAnswer, WrongAnswer, checks, versions
from mmlib.suite.course.targets import Target, seal

pytestmark = pytest.mark.usefixtures("no_sealed_keys")
ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


# Numbers, choices and functions


def verdicts(check, rest, answer, blank, **more) -> list[str]:
    """ "right", or why not: by the check itself, and by its key in a file of hashes."""
    checks.collected = []
    try:
        with suppress(WrongAnswer, NoAnswer):
            check(1, blank, *rest, **more)
        [key] = checks.collected
    finally:
        checks.collected = None
    torch.save(key.sealed("salt"), file := io.BytesIO())
    with torch.serialization.safe_globals(checks.ALLOWED):
        hidden = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
    said = []
    for judged in (
        lambda: check(1, answer, *rest, **more),
        lambda: checks.judge(hidden, json.loads(json.dumps(checks.look(answer, key.cases)))),
    ):
        try:
            judged()
            said.append("right")
        except (WrongAnswer, NoAnswer) as error:
            said.append(str(error).removeprefix("Exercise 1: "))
    return said


BORDERS = [
    (0.285, 0.29, 0.005), (0.285, 0.28, 0.005), (12.345, 12.35, 0.005), (86.25, 86.3, 0.05),
    (86.25, 86.2, 0.05), (1.005, 1.01, 0.005), (0.5, 0.51, 0.01), (0.3, 0.1 + 0.2, 0),
]  # fmt: skip


@pytest.mark.parametrize(("truth", "given", "within"), BORDERS)
def test_the_border_is_decided_by_the_decimals_that_are_shown(truth, given, within):
    beyond = given + 2e-9 * (1 if given > truth else -1)
    for value, right in ((given, True), (beyond, False)):
        said = verdicts(course.number, (truth, within), value, 0)
        said += verdicts(course.function, (lambda: [truth], [()], within), lambda x=value: [x], len)
        assert [one == "right" for one in said] == [right] * 4


FIVE, PAIR, ROWS = 5.0, (1, 2), np.triu(np.ones((2, 2)))
MISTAKES = {FIVE: {50: "chance of AUC"}, PAIR: {(2, 1): "the other way round"}}
RIGHT_NUMBERS = (
    *(5, 5.04, np.float32(5), np.int64(5), torch.tensor(5), Fraction(5), Decimal("5.04")),
    *(torch.tensor(5.0, dtype=torch.bfloat16), torch.tensor(5.0, dtype=torch.float16)),
)
RIGHT_PAIRS = (
    *([1, 2], (1.01, 2), np.array([1, 2]), torch.tensor([1.0, 2.0], requires_grad=True)),
    [torch.tensor(1.0, requires_grad=True), torch.tensor(2.0, dtype=torch.bfloat16)],
    *([Fraction(1), Decimal("2.01")], [True, 2]),
)
NUMBERS = [
    *((FIVE, answer, "right") for answer in RIGHT_NUMBERS),
    *((PAIR, answer, "right") for answer in RIGHT_PAIRS),
    (FIVE, Decimal("6"), "6 is not right."),
    (FIVE, Fraction(9, 2), "4.5 is not right."),
    (FIVE, Decimal("sNaN"), "Decimal('sNaN') is not a number."),
    (FIVE, 1j, "1j is not a number."),
    (FIVE, 10**400, f"1{'0' * 118}… is not a number."),
    (FIVE, 50, "50 is not right: chance of AUC"),
    (FIVE, float("inf"), "inf is not right."),
    (FIVE, float("nan"), "nan is not right."),
    (FIVE, "5", "'5' is not a number."),
    (FIVE, True, "True is not a number."),
    (FIVE, [5], "[5] is not a number."),
    (FIVE, [[1], [2, 3]], "[[1], [2, 3]] is not a number."),
    (FIVE, {}, "{} is not a number."),
    (FIVE, len, "<built-in function len> is not a number."),
    (PAIR, (1, 2.5), "your value at [1], 2.5, is not right."),
    (PAIR, [1.0, float("nan")], "your value at [1], nan, is not right."),
    (PAIR, [2, 1], "[2, 1] is not right: the other way round"),
    (PAIR, [1, 2, 3], "[1, 2, 3] is not a list of 2 numbers."),
    (PAIR, 1, "1 is not a list of 2 numbers."),
    (PAIR, [np.float64(1), "b"], "[1.0, 'b'] is not a list of 2 numbers."),
    (ROWS, [1, 2], "[1, 2] is not an array of numbers of the shape (2, 2)."),
    (ROWS, np.ones((2, 2)), "your value at [1, 0], 1, is not right."),
]


@pytest.mark.parametrize(("truth", "answer", "said"), NUMBERS)
def test_numbers(truth, answer, said):
    wrong = {} if truth is ROWS else MISTAKES[truth]
    assert verdicts(course.number, (truth, 0.05, wrong), answer, 0) == [said] * 2


@pytest.mark.parametrize("truth", [float("nan"), [1, float("inf")], None, "5"])
def test_a_check_that_nothing_could_pass_is_the_authors_fault(truth):
    with pytest.raises(ValueError, match="exercise 1: no number to compare with"):
        course.number(1, 5, truth, 0.05)
    with pytest.raises(ValueError, match="exercise 1: no cases to try"):
        course.function(1, sum, sum, [])


CHOICES = ("world", {"Photographs": "they need data", "both": "one is enough"})
NONE_OF = "is none of 'Photographs', 'both', 'world'."


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (" World ", "right"),
        ("photographs", "it is not 'Photographs': they need data"),
        *((answer, f"{answer!r} {NONE_OF}") for answer in ("worlds", 3, ["world"])),
    ],
)
def test_choices(answer, said):
    assert verdicts(course.choice, CHOICES, answer, "a") == [said] * 2


def spoil(values):
    left = 0.0
    while values:
        left += values.pop()
    return left


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (spoil, "right"),
        (lambda v: v[0] if v else 0, "for [1, 2] your function returns 1, which is not right."),
        (lambda v: np.float64(sum(v) if len(v) != 1 else 9), "for [3] your function returns 9.0, "),
        (lambda v: str(sum(v)), "for [1, 2] your function returns '3', which is not a number."),
        (lambda v: v, "for [1, 2] your function returns [1, 2], which is not a number."),
        (lambda v: sum(v) / len(v) * len(v), "for [] your function fails with ZeroDivisionError: "),
        (lambda: 3, "for [1, 2] your function fails with TypeError: "),
        (lambda v: None if len(v) > 1 else sum(v), "for [1, 2] your function returns None, which"),
        (lambda v: sys.exit("done"), "for [1, 2] your function fails with SystemExit: done"),
        (lambda v: print(sum(v)), "your function prints a result and returns none: write return"),
        (len, "not right: it counts"),
        (7, "7 is not a function."),
    ],
)
def test_functions(answer, said):
    wrong = {"it multiplies": np.prod, "it counts": len}
    rest = sum, [([1, 2],), ([3],), ([],)], 1e-6, wrong
    for found in verdicts(course.function, rest, answer, sum):
        assert found.startswith(said)


@pytest.mark.parametrize(
    ("mine", "truth", "same"),
    [
        (1.0000001, 1, True), (1.1, 1, False), ([1, 2], np.array([1, 2]), True),
        (torch.tensor([1, 2]), (1, 2), True), ([[0, 1]], [(0, 1)], True),
        ([(0, 1), (1, 0)], [(0, 1)], False), ({"a": 1.0000001}, {"a": 1}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False), ({"a": 1}, {"b": 1}, False),
        ({"a": 1}, {"a": 2}, False), ([("a", 1.0000001)], [["a", 1]], True),
        ([("a", 1)], [("a", 1), ("b", 1)], False), ({1, 2}, {2, 1}, True), ({1}, {2, 1}, False),
        ("a", "a", True), ("a", "b", False), (True, True, True), (False, True, False),
        (1, True, True), (True, 1, False), (np.array([True, False]), [True, False], True),
        (np.array([True]), [True, False], False), ([[1, 0]], [[True, False]], True),
        (float("nan"), float("nan"), True), (1, "1", False), ([1], "a", False), ([], [], True),
    ],
)  # fmt: skip
def test_what_counts_as_the_same(mine, truth, same):
    for said in verdicts(course.function, (lambda: truth, [()]), lambda: mine, lambda: truth):
        assert said == "right" if same else said.startswith("for no arguments your function retu")


def test_what_a_function_prints_is_still_seen(capsys):
    course.function(4, lambda v: print("looking at", v) or sum(v), sum, [([1, 2],), ([],)])
    shown = capsys.readouterr().out.splitlines()
    assert shown == ["looking at [1, 2]", "looking at []", "Exercise 4: right."]


@pytest.mark.parametrize("answer", [..., None, (..., ...), [1, None]])
def test_blank_is_no_answer(answer):
    said = verdicts(course.number, (5.0, 0.05), answer, 0)
    said += verdicts(course.choice, CHOICES, answer, "a")
    for function in (answer, lambda values: answer):
        said += verdicts(course.function, (sum, [([1],), ([2],)]), function, sum)
    begin = "Exercise 1 has no answer yet: put yours in the place of ... in the cell above"
    assert all(one.startswith(begin) for one in said)


@pytest.mark.parametrize("within", [0, 0.01])
def test_sealed_0_and_1_look_alike(within, monkeypatch):
    monkeypatch.setattr("mmlib.suite.course.targets.ROUNDS", 1)

    def key(*truths):
        targets = [Target("#()", [x], within) for x in truths]
        return checks.Key(1, "number", targets, [], [f"#({len(truths)},)"]).sealed("salt")

    for hidden in ("digest", "offsets", "box"):
        found = [getattr(one, hidden) for one in key(0.0, 1.0, 0.0).right]
        found = found if hidden != "offsets" else list(map(str, found))
        assert len(set(found)) == 3
        assert hidden == "offsets" or len(set(map(len, found))) == 1
    for truth in (0.0, 1.0):  # all over the cell: no tenth of it has twice its share, or half
        seals = [seal(Target("#()", [truth], within), f"salt {n}") for n in range(400)]
        shifts = np.array([one.offsets[0] for one in seals]) / (128 * (within + 1e-6))
        inside = (truth / (128 * (within + 1e-6)) - shifts) % 1  # what is accepted is in one cell
        assert 1 / 129 < inside.min() < inside.max() < 128 / 129
        counts = np.histogram(shifts, bins=10, range=(0, 1))[0]
        assert counts.sum() == 400
        assert 20 < counts.min() <= counts.max() < 80
    zero, one = vars(key(0.0)), vars(key(1.0))
    assert {name for name in zero if zero[name] != one[name]} == {"right"}


# The versions


@pytest.fixture
def notebook(tmp_path):
    """A notebook with three exercises."""
    return lesson(tmp_path / "notebooks" / "01_tiny.ipynb")


def tags(nb) -> list[str]:
    found = [cell.metadata.get("tags", []) for cell in nb.cells]
    return [tag for one in found for tag in one if tag != "parameters"]


def files(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def test_students_version_has_no_answers(notebook, tmp_path, monkeypatch):
    source = nbformat.read(notebook, as_version=4)
    out = tmp_path / "out"
    assert versions.write("student", out, [notebook]) == ([out / "01_tiny.ipynb"], [])
    nb = nbformat.read(out / "01_tiny.ipynb", as_version=4)
    nbformat.validate(nb)
    assert tags(nb) == ["exercise", "blank", "check"] * 3
    kept = [cell for cell in source.cells if "answer" not in cell.metadata.get("tags", [])]
    assert [cell.id for cell in nb.cells] == [cell.id for cell in kept]
    others = [pair for pair in zip(nb.cells, kept, strict=True) if "check" not in str(pair[1])]
    assert all(cell == before for cell, before in others)
    found = [cell for cell in nb.cells if cell.metadata.get("tags") == ["check"]]
    assert [cell.outputs for cell in found] == [[], [], []]
    prelude = LESSON[3][1].partition("# The truth.")[0]
    assert [cell.source for cell in found] == [
        f'{before}course.check("01_tiny", {n}, {name})'
        for n, before, name in (
            (1, "", "answer_1"), (2, "", "answer_2"), (3, prelude, "plain(twice)")
        )
    ]  # fmt: skip
    handed_out = b"".join((out / name).read_bytes() for name in files(out))
    for secret in (
        "Answer",
        "'links'], 0.1",
        "lambda x: 2",
        "2 * x",
        "a square",
        "lets images repeat",
    ):
        assert secret in notebook.read_text()
        assert secret.encode() not in handed_out
    monkeypatch.chdir(out)
    with pytest.raises(WrongAnswer, match="it lets images repeat"):
        course.check("01_tiny", 2, "DC")
    with pytest.raises(CourseError, match="keep the folder checks beside the notebook"):
        course.check("01_tiny", 4, "DC")
    with torch.serialization.safe_globals(checks.ALLOWED):
        key = torch.load(out / "checks" / "01_tiny.pt", weights_only=True)[2]
    assert key.options == ["AP", "DC"]  # the message for another word names them, too
    assert key.right[0].digest != key.wrong[0].digest


def test_writing_again_takes_newer_notebooks_and_keeps_begun_and_foreign_files(notebook, tmp_path):
    other, out = notebook.with_name("02_other.ipynb"), tmp_path / "out"
    other.write_bytes(notebook.read_bytes())
    (out / ".git").mkdir(parents=True)
    (out / ".git" / "HEAD").write_text("mine")
    versions.write("answers", out, [notebook, other])
    before = {name: (out / name).read_bytes() for name in files(out)}
    record = json.loads(before[versions.RECORD])
    assert (record["version"], sorted(record["files"])) == ("answers", [notebook.name, other.name])
    (out / versions.RECORD).unlink()  # as if it had been interrupted
    versions.write("answers", out, [notebook, other])
    assert {name: (out / name).read_bytes() for name in files(out)} == before

    notebook.write_text(notebook.read_text().replace("Question?", "Which?"))
    versions.write("answers", out, [notebook])
    assert "Which?" in (out / "01_tiny.ipynb").read_text()
    assert (out / "02_other.ipynb").read_bytes() == before["02_other.ipynb"]

    third = notebook.with_name("03_third.ipynb")
    third.write_bytes(notebook.read_bytes())
    for name in ("01_tiny.ipynb", "essay.txt"):
        (out / name).write_text("mine")
    notebook.write_text(notebook.read_text().replace("Which?", "Who?"))
    made = versions.write("answers", out, [notebook, third])
    assert made == ([out / "03_third.ipynb"], [out / "01_tiny.ipynb"])
    assert versions.write("answers", out, [notebook])[1] == [out / "01_tiny.ipynb"]
    for name in ("01_tiny.ipynb", "essay.txt", ".git/HEAD"):
        assert (out / name).read_text() == "mine"


def test_links_lead_to_notebooks_that_are_there(notebook, tmp_path):
    other = notebook.with_name("02_other.ipynb")
    nb = nbformat.read(notebook, as_version=4)
    text = "[a](01_tiny.ipynb#x), [b](03_none.ipynb), [c](d), [The page](../docs/a.md#b)"
    nb.cells[-1:] = [nbformat.v4.new_markdown_cell(text)]
    nbformat.write(nb, other)

    def links(*notebooks):
        versions.write("answers", tmp_path / "out", notebooks)
        return nbformat.read(tmp_path / "out" / other.name, as_version=4).cells[-1].source

    assert links(other) == "a, b, [c](d), The page"
    assert links(notebook, other) == links(other) == "[a](01_tiny.ipynb#x), b, [c](d), The page"


@pytest.fixture
def ran(monkeypatch):
    """The notebooks that would have been run, in the place of the process that runs them."""
    teachers = []

    @contextmanager
    def kernel(teacher):
        teachers.append(teacher)
        yield {}, None

    monkeypatch.setattr(versions, "kernel", kernel)
    return teachers


def test_keys_are_made_once_for_the_same_code(notebook, tmp_path, monkeypatch, ran):
    monkeypatch.setattr(versions, "cache_dir", lambda: tmp_path / "cache")
    for n, (before, after) in enumerate([("", ""), ("Question?", "Which?"), ("* 2", "* 3")], 1):
        text = notebook.read_text().replace("return 2 * x", "return x * 2")
        notebook.write_text(text.replace(before, after) if before else text)
        versions.write("student", tmp_path / "out", [notebook])
        assert len(ran) == (1 if n < 3 else 2)
    monkeypatch.setattr(versions, "PACKAGE", tmp_path)  # another mmlib
    versions.write("student", tmp_path / "out", [notebook])
    assert len(ran) == 3


def test_no_students_copy_speaks_to_teachers(tmp_path, monkeypatch, ran):
    monkeypatch.setattr(versions, "cache_dir", lambda: None)
    paths, _ = versions.write("student", tmp_path / "out", NOTEBOOKS)
    assert len(paths) == len(NOTEBOOKS) >= 5
    for path, source in zip(paths, NOTEBOOKS, strict=True):
        text = path.read_text(encoding="utf-8")
        assert not [one for one in ("course student", "worked answer", "](../") if one in text]
        before, after = (
            "\n".join(c.source for c in nbformat.read(p, 4).cells if c.cell_type == "markdown")
            for p in (source, path)
        )
        assert before.count("**What it costs.**") == after.count("**What it costs.**")
        assert after.count(versions.GRADED) == 1
        assert "Exercises\n\n" + versions.GRADED + "\n\n" in after


def test_the_plan_counts_the_exercises():
    plan = (ROOT / "docs" / "course.md").read_text(encoding="utf-8").partition("## A plan")[2]
    rows = [line.strip("| ").split(" | ") for line in plan.splitlines() if line.startswith("| 0")]
    counts = {row[0][:2]: int(row[-1]) for row in rows}
    cells = {path.name[:2]: nbformat.read(path, 4).cells for path in NOTEBOOKS}
    assert counts == {
        name: sum(cell.source.startswith("### Exercise ") for cell in found)
        for name, found in cells.items()
    }


INVALID = '{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [{"cell_type": "code"}]}'
REFUSED = [  # version, folder, what is said
    ("answers", "foreign", r"01_tiny\.ipynb is not of this command's making"),
    ("answers", "notebooks", r"01_tiny\.ipynb is not of this command's making"),
    ("student", "out", "holds the version 'answers' of a course; name another"),
    ("answers", "damaged", rf"{versions.RECORD} cannot be read"),
    ("answers", "foreign/01_tiny.ipynb", "01_tiny.ipynb is not a folder"),
]


def test_what_cannot_be_written_or_read_leaves_all_as_it_is(notebook, tmp_path):
    files_before = {"foreign/01_tiny.ipynb": "mine", f"damaged/{versions.RECORD}": "[]"}
    files_before |= {"bad/01_text.ipynb": "no JSON", "bad/02_invalid.ipynb": INVALID}
    for name, text in files_before.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    versions.write("answers", tmp_path / "out", [notebook])
    before = {name: (tmp_path / name).read_bytes() for name in files(tmp_path)}
    for version, folder, said in REFUSED:
        with pytest.raises(CourseError, match=said):
            versions.write(version, tmp_path / folder, [notebook])
    for name in ("01_text", "02_invalid", "03_missing"):
        with pytest.raises(CourseError, match=rf"{name}\.ipynb is not a valid notebook"):
            versions.write("answers", tmp_path / "new", [tmp_path / "bad" / f"{name}.ipynb"])
    assert {name: (tmp_path / name).read_bytes() for name in files(tmp_path)} == before


@pytest.mark.parametrize("place", range(5))
def test_missing_part_is_named_and_nothing_written(notebook, tmp_path, place):
    nb = nbformat.read(notebook, as_version=4)
    start = next(i for i, c in enumerate(nb.cells) if c.source.startswith("### Exercise 2"))
    del nb.cells[start + place]
    nbformat.write(nb, bad := notebook.with_name("02_bad.ipynb"))
    number = 2 if place else 1  # without its question its cells seem to be the first one's
    said = rf"^02_bad.ipynb: Exercise {number}. A title: its cells are exercise \(markdown\), "
    with pytest.raises(CourseError, match=said):
        versions.write("answers", tmp_path / "out", [notebook, bad])
    assert not (tmp_path / "out").exists()


def test_form_of_exercises():
    good = five_exercises(count=1)
    prose = committed_notebook(("1", [], [])).cells
    assert course.form_faults(good) == []
    assert course.form_faults([*prose, *good[:5], *prose, *good[5:], *prose]) == []
    assert course.form_faults(prose) == []
    assert course.form_faults(good[1:5]) == [
        f"cell {n} is tagged {part} but belongs to no exercise"
        for n, part in enumerate(course.FORM[1:], 1)
    ]
    assert "a cell without a tag" in course.form_faults([*good[:2], *prose, *good[2:5]])[0]
    assert len(course.form_faults([*good[:5], *prose, good[4]])) == 1
    good[0].source = ""
    assert course.form_faults(good[:1])[0].startswith("the exercise of cell 1: its cells are ")


# The versions, executed

ANSWERS = {2: "answer_2 = 'dc'", 3: LESSON[3][0]}  # of a student: a blank, a wrong one, a right one
TOLD = {
    "student": [
        "Exercise 1 has no answer yet: put yours in the place of ... in the cell above, and run "
        "both cells.",
        "Exercise 2: it is not 'DC': it lets images repeat",
        "",
    ],
    "answers": ["", "", ""],
}


@pytest.mark.parametrize("version", TOLD)
def test_only_checks_fail_and_say_why_in_one_line(notebook, tmp_path, version):
    out = tmp_path / "a" / "out"
    [path], _ = versions.write(version, out, [notebook])
    kept = [".mmlib-course.json", "01_tiny.ipynb"]
    assert files(tmp_path / "a") == [
        f"out/{name}" for name in kept + ["checks/01_tiny.pt"] * (version == "student")
    ]
    nb = nbformat.read(path, as_version=4)
    given = ["blank", "check"] if version == "student" else ["answer", "check", "answer"]
    assert tags(nb) == ["exercise", *given] * 3
    blanks = [cell for cell in nb.cells if "blank" in cell.metadata.get("tags", [])]
    for n, answer in ANSWERS.items() if blanks else ():
        blanks[n - 1].source = answer
    where = {"metadata": {"path": str(out)}}
    NotebookClient(nb, allow_errors=True, timeout=60, resources=where).execute()
    code = [cell for cell in nb.cells if cell.cell_type == "code"]
    assert code[-1].outputs == stdout("after\n")
    checked = [cell for cell in code if cell.metadata.get("tags") == ["check"]]
    for n, (cell, said) in enumerate(zip(checked, TOLD[version], strict=True), 1):
        [output] = cell.outputs
        if said:
            assert output.ename == ("NoAnswer" if n == 1 else "WrongAnswer")
            assert output.traceback == [output.evalue] == [said]
        else:
            assert output.text == f"Exercise {n}: right.\n"
    others = [o for cell in code if cell not in checked for o in cell.outputs]
    assert not [output for output in others if output.output_type == "error"]
