"""The form of an exercise: three cells in a row, marked by tags; what its check asks for, and its
worked answer in a file beside the notebook.
"""

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from mmlib.core.errors import DataError
from mmlib.core.paths import notebooks_dir
from mmlib.suite.parameters import read_notebook

FORM = ("exercise (markdown)", "blank (code)", "check (code)")
TAGS = {role.split()[0] for role in FORM}
HEADING = re.compile(r"#+ Exercise (\d+)\b.*(?:\n+\*(Easy|Medium|Hard), (\d+) minutes\b)?")
CALLS = ("number", "choice", "function")
TRUTH = "# The truth.\n"  # in a check, ends what an answer runs through before it is compared
ANSWER = re.compile(r"^# %%( \[markdown\])?\n(.*?)(?=^# %%|\Z)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Exercise:
    """An exercise: its number, difficulty and minutes, its cells, and how it may be answered."""

    number: int
    difficulty: str
    minutes: str
    question: Any
    blank: Any
    check: Any
    answer: str = ""  # code
    explanation: str = ""  # Markdown

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
    """The exercises among a notebook's cells, which must be in `FORM`; without their answers.

    One begins with "### Exercise 2. Ranks by hand", and below it "*Medium, 10 minutes.*"; without
    such a heading it is numbered by its position, without the line below it has neither.
    """
    starts = [i for i, cell in enumerate(cells) if role(cell) == FORM[0]]
    listed = []
    for position, start in enumerate(starts, 1):
        heading = HEADING.match(cells[start]["source"])
        number, difficulty, minutes = heading.groups("") if heading else (position, "", "")
        listed.append(Exercise(int(number), difficulty, minutes, *cells[start : start + 3]))
    return listed


def form_faults(cells: Sequence[Any]) -> list[str]:
    """What is no whole exercise, or has cells out of order: a line each, none when all is well."""
    names = list(map(role, cells))
    starts = [n for n in range(len(names)) if tuple(names[n : n + 3]) == FORM]
    whole = {n + place for n in starts for place in range(3)}
    stray = [f"cell {n + 1}: {a}" for n, a in enumerate(names) if a and n not in whole]
    said = f"{', '.join(stray)}; an exercise is {', '.join(FORM)}, in a row"
    return [said] if stray else []


@dataclass(frozen=True)
class Teacher:
    """A notebook as its author wrote it: its file, that of its answers, what it is, exercises."""

    path: Path
    answers: Path
    notebook: Any
    exercises: list[Exercise]


def read_teacher(path: Path, seed: int | None = None) -> Teacher:
    """A notebook of the repository, with its worked answers.

    Those of `04_document_links.ipynb` are in `answers/04.py` beside it. seed: draws what one
    exercise asks about, as `answers/private.yaml` says. Raises DataError where one cannot be read
    or has an incomplete exercise.
    """
    notebook = read_notebook(path)
    if faults := form_faults(notebook.cells):
        raise DataError(f"{path.name}: {faults[0]}")
    found, folder = exercises(notebook.cells), path.parent
    if not (folder / "answers").is_dir() and (notebooks_dir() / path.name).is_file():
        folder = notebooks_dir()  # a copy of a notebook alone
    beside = folder / "answers" / f"{path.stem[:2]}.py"
    answers = _answers(beside) if found else {}
    if unchecked := [exercise.number for exercise in found if not exercise.expression]:
        raise DataError(
            f"{path.name}: the check of exercise {unchecked[0]} does not end with "
            "course.number, course.choice or course.function"
        )
    numbers = [exercise.number for exercise in found if answers.get(exercise.number)]
    if numbers != [*answers] or len(numbers) < len(found):
        raise DataError(f"{beside} answers the exercises {[*answers]}, not those of {path.name}")
    answered = [replace(one, **answers[one.number]) for one in found]
    private = beside.with_name("private.yaml").read_text("utf-8") if seed is not None else "{}"
    for number, draws in yaml.safe_load(private).get(path.stem[:2], {}).items():
        rng, index = np.random.default_rng([seed, number]), numbers.index(number)
        task, answer = answered[index], {"source": answered[index].answer}
        drawn = {text: str(rng.choice(texts)) for text, texts in draws.items()}
        words = "|".join(rf"(?<![\w.]){re.escape(text)}(?!\w|\.\d)" for text in drawn)
        before = notebook.cells[notebook.cells.index(found[0].question) - 1]
        for cell in (before, task.question, task.blank, task.check, answer):
            cell["source"] = re.sub(words, lambda text, drawn=drawn: drawn[text[0]], cell["source"])
        published = f"As published: {task.explanation}"
        answered[index] = replace(task, answer=answer["source"], explanation=published)
    return Teacher(path, beside, notebook, answered)


def _answers(path: Path) -> dict[int, dict[str, Any]]:
    """Code and explanation by exercise, of a file of cells that begin with "# %%".

    A Markdown cell with the heading of an exercise, the code, and a Markdown cell that explains it.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: the worked answers cannot be read: {error}") from None
    answers: dict[int, dict[str, Any]] = {}
    for markdown, body in ANSWER.findall(text):
        prose = re.sub("^# ?", "", body, flags=re.MULTILINE).strip() if markdown else ""
        if heading := HEADING.match(prose):
            answers[int(heading[1])] = answer = {"answer": "", "explanation": ""}
        elif answers:
            answer["explanation" if markdown else "answer"] += prose or body.strip()
    return answers
