"""The form of an exercise: five cells in a row, marked by tags."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

FORM = (
    *("exercise (markdown)", "blank (code)", "answer (code)"),
    *("check (code)", "answer (markdown)"),
)
TAGS = {role.split()[0] for role in FORM}
HEADING = re.compile(r"#+ Exercise (\d+)\b.*(?:\n+\*(Easy|Medium|Hard), (\d+) minutes\b)?")


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


def exercises(cells: Sequence[Any]) -> list[Exercise]:
    """The exercises among a notebook's cells, which must be in `FORM`.

    One begins with "### Exercise 2. Ranks by hand", and below it "*Medium, 10 minutes.*"; without
    such a heading it is numbered by its place, without the line below it has neither.
    """
    starts = [i for i, cell in enumerate(cells) if _role(cell) == FORM[0]]
    found = []
    for place, start in enumerate(starts, 1):
        heading = HEADING.match(cells[start]["source"])
        number, difficulty, minutes = heading.groups("") if heading else (place, "", "")
        found.append(Exercise(int(number), difficulty, minutes, *cells[start : start + 4]))
    return found


def exercise_of(markdown: str) -> int | None:
    """The number of the exercise whose heading begins a cell."""
    heading = HEADING.match(markdown)
    return int(heading[1]) if heading else None


def is_part(cell: Any) -> bool:
    """Whether a cell belongs to an exercise."""
    return bool(_role(cell))


def form_faults(cells: Sequence[Any]) -> list[str]:
    """Exercises that lack a cell or have cells out of order: a line each, none when all is well.

    cells: of a notebook.
    """
    roles = [_role(cell) for cell in cells]
    starts = [i for i, role in enumerate(roles) if "exercise" in role.split()]
    first = starts[0] if starts else len(cells)
    faults = [
        f"cell {i} is tagged {role} but stands before the first exercise"
        for i, role in enumerate(roles[:first], 1)
        if role
    ]
    for start, end in pairwise([*starts, len(cells)]):
        exercise = roles[start:end]
        while not exercise[-1]:  # prose between exercises
            exercise.pop()
        if tuple(exercise) == FORM:
            continue
        heading = next(iter(cells[start]["source"].splitlines()), "").lstrip("# ")
        name = heading or f"the exercise of cell {start + 1}"
        if lacking := [role for role in FORM if role not in exercise]:
            faults.append(f"{name}: has no {', no '.join(lacking)}")
        else:
            order = ", ".join(role or "a cell without a tag" for role in exercise)
            faults.append(f"{name}: its cells are {order}; they must be {', '.join(FORM)}")
    return faults


def _role(cell: Any) -> str:
    """What a cell is of an exercise, as in `FORM`; empty where it belongs to none."""
    tags = [tag for tag in cell["metadata"].get("tags", []) if tag in TAGS]
    return f"{' '.join(tags)} ({cell['cell_type']})" if tags else ""
