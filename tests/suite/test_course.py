"""Checks of exercises, and copies of a small notebook for students and with its answers."""

import array
import io
import json
import re
import sys
from collections import deque
from decimal import Decimal
from fractions import Fraction
from itertools import count

import nbformat
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from nbclient import NotebookClient
from scripts import NOTEBOOKS, ROOT
from tiny_notebooks import LESSON, committed_notebook, five_exercises, lesson, stdout, write_answers

from mmlib.suite import course
from mmlib.suite.course import checks, versions
from mmlib.suite.course.checks import NoAnswer, WrongAnswer
from mmlib.suite.course.form import read_teacher

# Numbers, choices and functions


def verdicts(check, rest, answer, **more) -> list[str]:
    """ "right", or why not: by the check, and by its key of what JSON holds, as in marks."""
    checks.collected = []
    try:
        check(1, ..., *rest, **more)
        [key] = checks.collected
    finally:
        checks.collected = None
    said = []
    for judged in (
        lambda: check(1, answer, *rest, **more),
        lambda: checks.judge(key, json.loads(json.dumps(checks.look(answer, key.cases)))),
    ):
        checks.solved.clear()
        try:
            judged()
            said.append("right" if said or 1 in checks.solved else "blank")
        except NoAnswer:
            said.append("blank")
        except WrongAnswer as error:
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
        said = verdicts(course.number, (truth, within), value)
        said += verdicts(course.function, (lambda: [truth], [()], within), lambda x=value: [x])
        assert [one == "right" for one in said] == [right] * 4


FIVE, PAIR, ROWS = 5.0, (1, 2), np.triu(np.ones((2, 2)))
MISTAKES = {FIVE: {50: "chance of AUC"}, PAIR: {(2, 1): "the other way round"}}
RIGHT_NUMBERS = (
    *(5, 5.04, np.float32(5), np.int64(5), torch.tensor(5), Fraction(5), Decimal("5.04")),
    *(torch.tensor(5.0, dtype=torch.bfloat16), torch.tensor(5.0, dtype=torch.float16)),
    *(np.array(5), np.array(5, dtype=object), np.longdouble(5), pd.array([5])[0], np.uint8(5)),
    torch.nn.Parameter(torch.tensor(5.0, dtype=torch.float64)),
)
HELD = [1, 2.01]
RIGHT_PAIRS = (
    *([1, 2], (1.01, 2), np.array([1, 2]), torch.tensor([1.0, 2.0], requires_grad=True)),
    [torch.tensor(1.0, requires_grad=True), torch.tensor(2.0, dtype=torch.bfloat16)],
    *([Fraction(1), Decimal("2.01")], [True, 2], [np.array(1), np.longdouble(2)]),
    *(pd.Series(HELD, index=["b", "a"]), pd.Index(HELD), pd.DataFrame({"a": HELD})["a"]),
    *(pd.DataFrame({"a": HELD}), pd.DataFrame(HELD).T, pd.array(HELD, dtype="Float64")),
    *(pd.Series([1, 2], dtype="Int8"), pd.Categorical([1, 2]), pd.Series([1, Decimal(2)])),
    *(np.array(HELD, dtype=object), np.array(HELD, np.longdouble), np.matrix(HELD)),
    *(np.ma.array(HELD, mask=[0, 0]), np.float16(HELD), scipy.sparse.csr_array([[1, 2]])),
    *(torch.tensor(HELD).half(), torch.tensor([1.0, 2.0]).to_sparse(), torch.tensor([1, 2])),
    *(range(1, 3), deque(HELD), array.array("d", HELD), memoryview(array.array("d", HELD))),
    *({"a": 1, "b": 2}.values(), {1: "a", 2: "b"}.keys(), np.array([1, 2]).flat),
    *((x for x in HELD), map(float, HELD), filter(None, HELD), iter(HELD), reversed([2, 1])),
)
NUMBERS = [
    *((FIVE, answer, "right") for answer in RIGHT_NUMBERS),
    *((PAIR, answer, "right") for answer in RIGHT_PAIRS),
    *(((1, 0), answer, "right") for answer in ([True, False], np.array([True, False]))),
    (FIVE, Decimal("6"), "6 is not right."),
    (FIVE, Fraction(9, 2), "4.5 is not right."),
    (FIVE, Decimal("sNaN"), "Decimal('sNaN') is not a number."),
    (FIVE, 1j, "1j is not a number."),
    (FIVE, 10**400, f"1{'0' * 118}… is not a number."),
    (FIVE, np.longdouble("1e4000"), "inf is not right."),
    (FIVE, 50, "50 is not right: chance of AUC"),
    (FIVE, float("inf"), "inf is not right."),
    (FIVE, float("nan"), "nan is not right."),
    (FIVE, "5", "'5' is not a number."),
    (FIVE, True, "True is not a number."),
    (FIVE, [5], "[5] is not a number."),
    (FIVE, [[1], [2, 3]], "[[1], [2, 3]] is not a number."),
    (FIVE, len, "<built-in function len> is not a number."),
    (PAIR, (1, 2.5), "your value at [1], 2.5, is not right."),
    (PAIR, [1.0, float("nan")], "your value at [1], nan, is not right."),
    (PAIR, np.ma.array(HELD, mask=[0, 1]), "your value at [1], nan, is not right."),
    (PAIR, [2, 1], "[2, 1] is not right: the other way round"),
    (PAIR, map(int, "21"), "[2, 1] is not right: the other way round"),
    (PAIR, [1, 2, 3], "[1, 2, 3] is not a list of 2 numbers."),
    (PAIR, count(), f"{str(list(range(50)))[:119]}… is not a list of 2 numbers."),
    (PAIR, io.StringIO("1\n2"), r"['1\n', '2'] is not a list of 2 numbers."),
    (PAIR, [np.float64(1), "b"], "[1.0, 'b'] is not a list of 2 numbers."),
    (PAIR, np.array(["1", "2"]), "array(['1', '2'], dtype='<U1') is not a list of 2 numbers."),
    (ROWS, [1, 2], "[1, 2] is not an array of numbers of the shape (2, 2)."),
    (ROWS, np.ones((2, 2)), "your value at [1, 0], 1, is not right."),
    (ROWS, pd.DataFrame(ROWS), "right"),
]


@pytest.mark.parametrize(("truth", "answer", "said"), NUMBERS)
def test_numbers(truth, answer, said):
    wrong = {} if truth is ROWS else MISTAKES.get(truth, {})
    assert verdicts(course.number, (truth, 0.05, wrong), answer) == [said] * 2


@pytest.mark.parametrize("truth", [float("nan"), [1, float("inf")], None, "5"])
def test_a_check_that_nothing_could_pass_is_the_authors_fault(truth):
    with pytest.raises(ValueError, match="exercise 1: no number to compare with"):
        course.number(1, 5, truth, 0.05)
    with pytest.raises(ValueError, match="exercise 1: no cases to try"):
        course.function(1, sum, sum, [])


CHOICES = ("world", {"Photographs": "they need data", "both": "one is enough"})
APOSTROPHE = "CORA's  rest", {}
NONE_OF = "is none of 'Photographs', 'both', 'world'."


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        *(
            (one, "right")
            for one in (" World ", np.str_("world"), np.array("world"), "world\u00a0")
        ),
        ("photographs", "it is not 'Photographs': they need data"),
        *((answer, f"{answer!r} {NONE_OF}") for answer in ("worlds", 3, ["world"])),
    ],
)
def test_choices(answer, said):
    assert verdicts(course.choice, CHOICES, answer) == [said] * 2
    assert verdicts(course.choice, APOSTROPHE, "cora’s rest") == ["right"] * 2


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
        (lambda v: (x for x in [1 / 0]), "for [1, 2] your function fails with ZeroDivisionError: "),
        (len, "not right: it counts"),
        (7, "7 is not a function."),
    ],
)
def test_functions(answer, said):
    wrong = {"it multiplies": np.prod, "it counts": len}
    rest = sum, [([1, 2],), ([3],), ([],)], 1e-6, wrong
    for found in verdicts(course.function, rest, answer):
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
    for said in verdicts(course.function, (lambda: truth, [()]), lambda: mine):
        assert said == "right" if same else said.startswith("for no arguments your function retu")


def test_what_a_function_prints_is_still_seen(capsys):
    course.function(4, lambda v: print("looking at", v) or sum(v), sum, [([1, 2],), ([],)])
    shown = capsys.readouterr().out.splitlines()
    assert shown == ["looking at [1, 2]", "looking at []", "Exercise 4: right."]


@pytest.mark.parametrize(
    "answer", [..., None, (..., ...), [1, None], deque([...]), pd.Series([1, ...])]
)
def test_blank_is_no_answer(answer, capsys):
    said = verdicts(course.number, (5.0, 0.05), answer)
    said += verdicts(course.choice, CHOICES, answer)
    for function in (answer, lambda values: answer):
        said += verdicts(course.function, (sum, [([1],), ([2],)]), function)
    assert said == ["blank"] * 8
    begin = "Exercise 1 has no answer yet: put yours in the place of ... in the cell above"
    assert capsys.readouterr().out.count(begin) == 8


# The copies


@pytest.fixture
def notebook(tmp_path):
    """A notebook with three exercises."""
    return lesson(tmp_path / "notebooks" / "01_tiny.ipynb")


def test_a_students_copy_is_a_copy_and_work_in_it_stays(notebook, tmp_path):
    out, nb = tmp_path / "out", nbformat.read(notebook, as_version=4)
    nb.cells[-2].source = "[a](02_b.ipynb#x), [c](d), [A page](../docs/a.md#b), [e](answers/01.py)"
    nbformat.write(nb, notebook)
    copied = out / notebook.name
    assert versions.write("student", out, [notebook]) == ([copied], [])
    assert versions.write("student", out, [notebook]) == ([copied], [])
    nb.cells[-2].source = "[a](02_b.ipynb#x), [c](d), A page, e"
    assert nbformat.read(copied, as_version=4) == nb
    assert [path.name for path in out.iterdir()] == ["01_tiny.ipynb"]  # and no answers
    assert "answer_2 = 'AP'" not in copied.read_text()
    copied.write_text("mine")
    other = lesson(notebook.with_name("02_other.ipynb"))
    assert versions.write("student", out, [notebook, other]) == ([out / other.name], [copied])
    assert copied.read_text() == "mine"


def test_what_cannot_be_written_or_read_leaves_all_as_it_is(notebook, tmp_path):
    bad = tmp_path / "bad"
    bad.mkdir()
    invalid = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [{"cell_type": "code"}]}
    (bad / "01_text.ipynb").write_text("no JSON")
    (bad / "02_invalid.ipynb").write_text(json.dumps(invalid))
    short = nbformat.read(notebook, as_version=4)
    del short.cells[-4]  # a blank
    nbformat.write(short, bad / "04_short.ipynb")
    for name, said in {
        "01_text": ": no notebook", "02_invalid": ": no notebook",
        "03_missing": ": no notebook", "04_short": ": cell 15: exercise",
    }.items():  # fmt: skip
        with pytest.raises(ValueError, match=rf"{name}\.ipynb ?{said}"):
            versions.write("answers", tmp_path / "new", [notebook, bad / f"{name}.ipynb"])
    with pytest.raises(ValueError, match="is something else; name a new folder"):
        versions.write("answers", bad / "01_text.ipynb", [notebook])
    assert (bad / "01_text.ipynb").read_text() == "no JSON"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({1: "answer_1 = 5"}, r"01.py answers the exercises \[1\], not those of 01_tiny"),
        ({n: "x" for n in (1, 2, 3, 4)}, r"answers the exercises \[1, 2, 3, 4\], not those"),
        ({2: "x", 1: "x", 3: "x"}, r"answers the exercises \[2, 1, 3\], not those"),
        (None, "the worked answers cannot be read"),
    ],
)
def test_answers_that_are_not_those_of_the_exercises_are_refused(notebook, answers, said):
    write_answers(notebook, answers or {})
    if answers is None:
        (notebook.parent / "answers" / "01.py").unlink()
    with pytest.raises(ValueError, match=said):
        read_teacher(notebook)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_a_committed_notebook_has_for_teachers(path):
    public, mine, again = (read_teacher(path, seed) for seed in (None, 7, 7))
    assert [task.number for task in public.exercises] == [1, 2, 3, 4, 5]
    for task in public.exercises:
        assert task.answer not in ("", task.blank.source)
        assert len(task.explanation) > 100
    assert again == mine  # a seed changes one exercise, alike in check and answer
    pairs = zip(public.exercises, mine.exercises, strict=True)
    assert sum(old != new for old, new in pairs) == 1
    assert public.notebook != mine.notebook
    for name in ("docs/lessons.md", "notebooks/answers/teacher.md"):
        text = (ROOT / name).read_text("utf-8").split(f"\n## {path.stem[:2]} · ")[1]
        lesson = text.partition("\n## ")[0]
        if rows := re.findall(r"^\| (\d+)–(\d+) \| ([^|]+) \|", lesson, re.MULTILINE):
            starts, ends, sections = zip(*rows, strict=True)
            assert (starts, ends[-1]) == (("0", *ends[:-1]), "90")
            headings = "".join(cell.source for cell in public.notebook.cells)
            assert all(f"## {n}. " in headings for n in re.findall(r"\d+", "|".join(sections)))


def test_the_check_of_ones_own_numbers_takes_their_answer_alone():
    public, mine = (read_teacher(NOTEBOOKS[0], seed).exercises[1] for seed in (None, 7))
    exec(f"{mine.answer}\n{mine.check.source}", {"np": np, "course": course})
    with pytest.raises(WrongAnswer):
        exec(f"{public.answer}\n{mine.check.source}", {"np": np, "course": course})


def test_form_of_exercises():
    good = five_exercises(count=1)
    prose = committed_notebook(("1", [], [])).cells
    assert course.form_faults(good) == []
    assert course.form_faults([*prose, *good[:3], *prose, *good[3:], *prose]) == []
    assert course.form_faults(prose) == []
    form = f"; an exercise is {', '.join(course.FORM)}, in a row"
    assert course.form_faults(good[1:3]) == [f"cell 1: blank (code), cell 2: check (code){form}"]
    between = course.form_faults([*good[:3], *prose, *good[3:5], prose[0], *good[5:]])
    parts = (f"cell {number}: {part}" for number, part in zip((6, 7, 9), course.FORM, strict=True))
    assert between == [", ".join(parts) + form]
    after = course.form_faults([*good[:3], *prose, good[2], *prose])
    assert after == [f"cell 6: check (code){form}"]


# The copies, executed

ANSWERS = {2: "answer_2 = 'dc'", 3: LESSON[3][0]}  # of a student: a blank, a wrong one, a right one
SAID = {
    "student": [
        "Exercise 1 has no answer yet: put yours in the place of ... in the cell above, and run "
        "both cells.\n",
        "Exercise 2: it is not 'DC': it lets images repeat",
        "Exercise 3: right.\n",
    ],
    "answers": [f"Exercise {n}: right.\n" for n in (1, 2, 3)],
}


@pytest.mark.parametrize("version", SAID)
def test_only_a_wrong_answer_fails_and_says_why_in_one_line(notebook, tmp_path, version):
    [path], _ = versions.write(version, tmp_path / "a" / "out", [notebook])
    nb = nbformat.read(path, as_version=4)
    nbformat.validate(nb)
    tags = [tag for cell in nb.cells for tag in cell.metadata.get("tags", ())]
    form = ["exercise", "blank" if version == "student" else "answer", "check"]
    assert tags == ["parameters", *form * 3]
    blanks = [cell for cell in nb.cells if "blank" in cell.metadata.get("tags", [])]
    for n, answer in ANSWERS.items() if blanks else ():
        blanks[n - 1].source = answer
    where = {"metadata": {"path": str(path.parent)}}
    NotebookClient(nb, allow_errors=True, timeout=60, resources=where).execute()
    code = [cell for cell in nb.cells if cell.cell_type == "code"]
    assert code[-1].outputs == stdout("after\n")
    checked = [cell for cell in code if cell.metadata.get("tags") == ["check"]]
    for cell, said in zip(checked, SAID[version], strict=True):
        [output] = cell.outputs
        if said.endswith("\n"):
            assert output.text == said
        else:
            assert output.ename == "WrongAnswer"
            assert output.traceback == [output.evalue] == [said]
    others = [o for cell in code if cell not in checked for o in cell.outputs]
    assert not [output for output in others if output.output_type == "error"]
    explained = [f"It is so,\nbecause of {n}." for n in (1, 2, 3)] if version == "answers" else []
    assert [cell.source for cell in nb.cells if "It is so" in cell.source] == explained
