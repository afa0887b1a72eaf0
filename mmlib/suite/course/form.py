"""The form of an exercise: five cells in a row, marked by tags; and what its check asks for."""

import ast
import re
import symtable
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
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

    @cached_property
    def asked(self) -> tuple[str, str]:
        """What its check does for the answer's sake before it calls `course`, and the answer's
        expression in that call; empty for a check that does not end with such a call.
        """
        source = self.check["source"]
        *before, last = ast.parse(source).body or [None]
        call = last.value if isinstance(last, ast.Expr) else None
        if not isinstance(call, ast.Call) or ast.unparse(call.func).split(".")[-1] not in CALLS:
            return "", ""
        named = [entry.value for entry in call.keywords if entry.arg == "answer"]
        expression = ast.unparse(named[0] if named else call.args[1])
        wanted, prelude = names(expression)[1], ""
        for statement in reversed(before):
            binds, reads = names(ast.unparse(statement))
            # A call on a line of its own, such as that of a seed, may change what it names.
            if binds & wanted or (isinstance(statement, ast.Expr) and reads & wanted):
                ends = "\n\n\n" if isinstance(statement, ast.FunctionDef | ast.ClassDef) else "\n"
                prelude = f"{ast.get_source_segment(source, statement)}{ends}{prelude}"
                wanted |= reads
        return prelude, expression


def names(source: str) -> tuple[set[str], set[str]]:
    """The global names that code binds, and those that it reads, also within its functions."""
    top = symtable.symtable(source, "<code>", "exec")
    binds = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported()}
    reads, tables = set(), [top]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        found = [s for s in table.get_symbols() if s.is_referenced()]
        reads |= {s.get_name() for s in found if table is top or s.is_global()}
    return binds, reads


def exercises(cells: Sequence[Any]) -> list[Exercise]:
    """The exercises among a notebook's cells, which must be in `FORM`.

    One begins with "### Exercise 2. Ranks by hand", and below it "*Medium, 10 minutes.*"; without
    such a heading it is numbered by its place, without the line below it has neither.
    """
    starts = [i for i, cell in enumerate(cells) if role(cell) == FORM[0]]
    found = []
    for place, start in enumerate(starts, 1):
        heading = HEADING.match(cells[start]["source"])
        number, difficulty, minutes = heading.groups("") if heading else (place, "", "")
        found.append(Exercise(int(number), difficulty, minutes, *cells[start : start + 4]))
    return found


def form_faults(cells: Sequence[Any]) -> list[str]:
    """Exercises that lack a cell or have cells out of order: a line each, none when all is well.

    cells: of a notebook.
    """
    roles = [role(cell) for cell in cells]
    starts = [i for i, each in enumerate(roles) if "exercise" in each.split()] + [len(cells)]
    before = [(i, each) for i, each in enumerate(roles[: starts[0]], 1) if each]
    faults = [f"cell {i} is tagged {each} but belongs to no exercise" for i, each in before]
    for start, end in pairwise(starts):
        own = [each or "a cell without a tag" for each in roles[start:end]]
        while len(own) > 1 and not roles[start + len(own) - 1]:  # prose between exercises
            own.pop()
        if tuple(own) != FORM:
            name = next(iter(cells[start]["source"].splitlines()), "").lstrip("# ")
            name = name or f"the exercise of cell {start + 1}"
            faults.append(f"{name}: its cells are {', '.join(own)}; they must be {', '.join(FORM)}")
    return faults


def role(cell: Any) -> str:
    """What a cell is of an exercise, as in `FORM`; empty where it belongs to none."""
    tags = [tag for tag in cell["metadata"].get("tags", []) if tag in TAGS]
    return f"{' '.join(tags)} ({cell['cell_type']})" if tags else ""


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
    if lacking := [entry.number for entry in teacher.exercises if not entry.asked[1]]:
        raise CourseError(
            f"{path.name}: the check of exercise {lacking[0]} does not end with course.number, "
            "course.choice or course.function"
        )
    return teacher
