"""The form of an exercise: five cells in a row, marked by tags; and what its check asks for."""

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from mmlib.suite.course.checks import CourseError

FORM = (
    *("exercise (markdown)", "blank (code)", "answer (code)"),
    *("check (code)", "answer (markdown)"),
)
TAGS = {role.split()[0] for role in FORM}
HEADING = re.compile(r"#+ Exercise (\d+)\b.*(?:\n+\*(Easy|Medium|Hard), (\d+) minutes\b)?")
CALLS = ("number", "choice", "function")
TRUTH = "# The truth.\n"  # in a check, ends what students get of it


@dataclass(frozen=True)
class Exercise:
    """An exercise of the teacher's notebook: its number, difficulty and minutes, and its cells."""

    number: int
    difficulty: str
    minutes: str
    question: Any
    blank: Any
    answer: Any
    check: Any

    @property
    def prelude(self) -> str:
        """What its check does for the answer's sake before all else, down to the line `TRUTH`."""
        return self.check["source"].rpartition(TRUTH)[0]

    @property
    def expression(self) -> str:
        """The answer's expression in the call that ends its check; empty where none does."""
        last = (ast.parse(self.check["source"]).body or [None])[-1]
        call = last.value if isinstance(last, ast.Expr) else None
        if not isinstance(call, ast.Call) or ast.unparse(call.func).split(".")[-1] not in CALLS:
            return ""
        named = [entry.value for entry in call.keywords if entry.arg == "answer"]
        return ast.unparse(named[0] if named else call.args[1])


def role(cell: Any) -> str:
    """What a cell is of an exercise, as in `FORM`; empty where it belongs to none."""
    tags = [tag for tag in cell["metadata"].get("tags", []) if tag in TAGS]
    return f"{' '.join(tags)} ({cell['cell_type']})" if tags else ""


def exercises(cells: Sequence[Any]) -> list[Exercise]:
    """The exercises among a notebook's cells, which must be in `FORM`.

    One begins with "### Exercise 2. Ranks by hand", and below it "*Medium, 10 minutes.*"; without
    such a heading it is numbered by its position, without the line below it has neither.
    """
    starts = [i for i, cell in enumerate(cells) if role(cell) == FORM[0]]
    listed = []
    for position, start in enumerate(starts, 1):
        heading = HEADING.match(cells[start]["source"])
        number, difficulty, minutes = heading.groups("") if heading else (position, "", "")
        listed.append(Exercise(int(number), difficulty, minutes, *cells[start : start + 4]))
    return listed


def form_faults(cells: Sequence[Any]) -> list[str]:
    """Exercises that lack a cell or have cells out of order: a line each, none when all is well."""
    roles = [role(cell) for cell in cells]
    starts = [i for i, name in enumerate(roles) if "exercise" in name.split()] + [len(cells)]
    before = [(i, name) for i, name in enumerate(roles[: starts[0]], 1) if name]
    faults = [f"cell {i} is tagged {name} but belongs to no exercise" for i, name in before]
    for start, end in pairwise(starts):
        row = [name or "a cell without a tag" for name in roles[start:end]]
        while len(row) > 1 and not roles[start + len(row) - 1]:  # prose between exercises
            row.pop()
        if tuple(row) != FORM:
            title = next(iter(cells[start]["source"].splitlines()), "").lstrip("# ")
            title = title or f"the exercise of cell {start + 1}"
            faults.append(
                f"{title}: its cells are {', '.join(row)}; they must be {', '.join(FORM)}"
            )
    return faults


@dataclass(frozen=True)
class Teacher:
    """A notebook as its author wrote it: its file and cells, and its exercises in order."""

    path: Path
    cells: list[Any]
    exercises: list[Exercise]


def read_teacher(path: Path) -> Teacher:
    """A notebook of the repository.

    Raises CourseError where it cannot be read or has an incomplete exercise.
    """
    import nbformat  # late: it takes a second, and a notebook's checks do without

    try:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
    except Exception as error:  # nbformat raises whatever a malformed file leads to
        fault = f"{type(error).__name__}: {error}".splitlines()[0]
        raise CourseError(f"{path} is not a valid notebook: {fault}") from error
    if faults := form_faults(notebook.cells):
        raise CourseError(f"{path.name}: {faults[0]}")
    teacher = Teacher(path, notebook.cells, exercises(notebook.cells))
    for exercise in teacher.exercises:
        if not exercise.expression:
            raise CourseError(
                f"{path.name}: the check of exercise {exercise.number} does not end with "
                "course.number, course.choice or course.function"
            )
    return teacher
