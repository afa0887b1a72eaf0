"""Exercises: checks that say right or wrong and why, and a course's two versions of a notebook.

An exercise is five cells in a row, marked by tags (`FORM`): the question, a blank for the student,
the worked answer, a check, and the explanation. A check cell calls `number`, `choice` or
`function`. `write` makes the students' version, which has no answers, and the teacher's, which has
no blanks.

Results of a notebook go where its parameter `out` says; left empty, to `../runs/lab/` as seen from
the notebook. So the notebooks of a course in `teaching/week1/` write into `teaching/runs/lab/`, and
two versions side by side share that folder: run them one after the other, or set `out`.
"""

import copy
import hashlib
import io
import json
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from decimal import Decimal
from functools import partial
from itertools import pairwise
from numbers import Real
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mmlib.core.paths import write_atomic

Version = Literal["student", "answers"]
FORM = (
    *("exercise (markdown)", "blank (code)", "answer (code)"),
    *("check (code)", "answer (markdown)"),
)
TAGS = {role.split()[0] for role in FORM}
REMOVED: dict[Version, dict[str, set[str]]] = {  # as nbconvert's TagRemovePreprocessor takes it
    "student": {"remove_cell_tags": {"answer"}, "remove_all_outputs_tags": {"check"}},
    "answers": {"remove_cell_tags": {"blank"}},
}
RECORD = ".mmlib-course.json"  # what `write` made in a folder
LINK = re.compile(r"\[([^\]]+)\]\((\d\d_\w+\.ipynb)[^)]*\)")  # to a notebook beside
SHOWN = 120  # characters of a value in a message


class _OneLine(Exception):
    """An error that a notebook shows as one line, without a traceback."""

    def _render_traceback_(self) -> list[str]:
        """IPython shows what this returns in the place of a traceback."""
        return [str(self)]


class NoAnswer(_OneLine):
    """The student has not answered yet."""


class WrongAnswer(_OneLine):
    """The student's answer is wrong; the message says why."""


class CourseError(ValueError):
    """A version of the course that cannot be made."""


# Checks -------------------------------------------------------------------------------------


def number(
    exercise: int, answer: Any, truth: Any, within: float, wrong: Mapping[Any, str] = {}
) -> None:
    """Check a number, or a list, tuple or array of them, as `truth` is.

    within: how far a right answer may be off, in the unit of `truth`; the border is right. wrong:
    typical wrong answers, of the form of `truth`, and why each is wrong.
    Raises NoAnswer for `...` or None, also within a list, WrongAnswer, and ValueError where `truth`
    is not finite, so that no answer could be right.
    """
    _need_answer(exercise, answer)
    right = _numbers(truth)
    if right is None or not np.isfinite(right).all():
        raise ValueError(f"exercise {exercise}: no number to compare with, but {truth!r}")
    mine = _numbers(answer)
    if mine is None or mine.shape != right.shape:
        raise WrongAnswer(f"Exercise {exercise}: {_shown(answer)} is not {_form(right)}.")
    near = _near(mine, right, within)
    if near.all():
        return _right(exercise)
    for mistake, reason in wrong.items():
        if _same(answer, mistake, within):
            raise WrongAnswer(f"Exercise {exercise}: {_shown(answer)} is not right: {reason}")
    index = tuple(int(i) for i in np.argwhere(~near)[0])
    value = f"{mine[index]:.6g}"
    if index:
        value = f"your value at {list(index)}, {value},"
    if np.isnan(mine[index]):
        raise WrongAnswer(f"Exercise {exercise}: {value} is not a number.")
    side = "large" if mine[index] > right[index] else "small"
    raise WrongAnswer(f"Exercise {exercise}: {value} is too {side}.")


def choice(exercise: int, answer: Any, right: str, wrong: Mapping[str, str]) -> None:
    """Check a choice among words; case and spaces around do not matter.

    right: the right option; wrong: the other options, and why it is not that one.
    Raises NoAnswer for `...` or None, WrongAnswer for another option, or none of them.
    """
    _need_answer(exercise, answer)
    options = {option.casefold(): option for option in (right, *wrong)}
    chosen = options.get(answer.strip().casefold()) if isinstance(answer, str) else None
    if chosen is None:
        listing = ", ".join(repr(option) for option in sorted(options.values()))
        raise WrongAnswer(f"Exercise {exercise}: {_shown(answer)} is none of {listing}.")
    if chosen != right:
        raise WrongAnswer(f"Exercise {exercise}: it is not {chosen!r}: {wrong[chosen]}")
    _right(exercise)


def function(
    exercise: int,
    answer: Any,
    oracle: Callable,
    cases: Iterable[tuple],
    within: float = 1e-6,
    wrong: Mapping[str, Callable] = {},
) -> None:
    """Check a function by calling it, and one that is right, on the same cases.

    Numbers, arrays and tensors may be `within` of each other, also inside lists and dicts;
    anything else must be equal. answer: gets copies of the arguments. oracle: a right function.
    cases: the arguments of each call. wrong: reasons, each with a function that makes the typical
    mistake.
    Raises NoAnswer for `...` or None, or a function that returns that in every case, WrongAnswer
    for what is no function, fails, exits, prints and returns nothing, or returns something else,
    ValueError without cases.
    """
    _need_answer(exercise, answer)
    cases = list(cases)
    if not cases:
        raise ValueError(f"exercise {exercise}: no cases to try")
    if not callable(answer):
        raise WrongAnswer(f"Exercise {exercise}: {_shown(answer)} is not a function.")
    returned, printed = zip(*(_try(exercise, answer, case) for case in cases), strict=True)
    if all(map(_is_blank, returned)):
        if any(printed):
            raise WrongAnswer(
                f"Exercise {exercise}: your function prints a result and returns none: "
                "write return in the place of print."
            )
        _need_answer(exercise, None)
    right = [oracle(*copy.deepcopy(case)) for case in cases]
    differs = [not _same(*pair, within) for pair in zip(returned, right, strict=True)]
    if not any(differs):
        return _right(exercise)
    for reason, mistaken in wrong.items():
        theirs = [mistaken(*copy.deepcopy(case)) for case in cases]
        if all(_same(*pair, within) for pair in zip(returned, theirs, strict=True)):
            raise WrongAnswer(f"Exercise {exercise}: not right: {reason}")
    first = differs.index(True)
    call = f"for {_arguments(cases[first])} your function returns {_shown(returned[first])}"
    mine, truth = _numbers(returned[first]), _numbers(right[first])
    if truth is not None and (mine is None or mine.shape != truth.shape):
        raise WrongAnswer(f"Exercise {exercise}: {call}, which is not {_form(truth)}.")
    raise WrongAnswer(f"Exercise {exercise}: {call}, which is not right.")


def _right(exercise: int) -> None:
    print(f"Exercise {exercise}: right.")


def _need_answer(exercise: int, answer: Any) -> None:
    """Raise NoAnswer for a blank."""
    if _is_blank(answer):
        raise NoAnswer(
            f"Exercise {exercise} has no answer yet: put yours in the place of ... "
            "in the cell above, and run both cells."
        )


def _is_blank(answer: Any) -> bool:
    """Whether something is `...` or None, or a list or tuple with such a place."""
    if isinstance(answer, list | tuple):
        return any(map(_is_blank, answer))
    return answer is None or answer is ...


def _numbers(value: Any) -> np.ndarray | None:
    """A number or numbers as an array of floats; None for anything else, also truth values."""
    try:
        array = np.asarray(_plain(value))
        if array.dtype.kind == "O" and all(map(_is_number, array.flat)):  # Fraction, Decimal
            return array.astype(float)
    except (ValueError, TypeError, RuntimeError, OverflowError):  # lists of different lengths, say
        return None
    return array.astype(float) if array.dtype.kind in "iuf" else None


def _plain(value: Any) -> Any:
    """A value in which tensors, also within lists, are arrays that NumPy knows."""
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if not hasattr(value, "detach"):
        return value
    value = value.detach().cpu()  # it may have a gradient or be on a GPU
    return (value.double() if value.is_floating_point() else value).numpy()  # bfloat16, say


def _is_number(value: Any) -> bool:
    return isinstance(value, Real | Decimal) and not isinstance(value, bool)


def _near(mine: np.ndarray, right: np.ndarray, within: float) -> np.ndarray:
    """Where numbers are `within` of each other, as one reckons with the decimals that are shown.

    0.29 is within 0.005 of 0.285, although the doubles nearest to them are a little farther apart.
    """
    with np.errstate(invalid="ignore"):  # infinite numbers are near to themselves alone
        slack = 4 * np.spacing(np.maximum(np.abs(mine), np.abs(right)))
        return (mine == right) | (np.abs(mine - right) <= within + slack)


def _same(mine: Any, truth: Any, within: float) -> bool:
    """Whether two values are equal, numbers `within` of each other."""
    right = _numbers(truth)
    if right is not None:
        numbers = _numbers(mine)
        if numbers is None or numbers.shape != right.shape:
            return False
        both_nan = np.isnan(numbers) & np.isnan(right)
        return bool((_near(numbers, right, within) | both_nan).all())
    mine, truth = (x.tolist() if hasattr(x, "tolist") else x for x in (mine, truth))
    if isinstance(truth, Mapping):
        alike = isinstance(mine, Mapping) and mine.keys() == truth.keys()
        return alike and all(_same(mine[key], truth[key], within) for key in truth)
    if isinstance(truth, list | tuple):
        alike = isinstance(mine, list | tuple) and len(mine) == len(truth)
        return alike and all(_same(*pair, within) for pair in zip(mine, truth, strict=True))
    return np.array_equal(mine, truth)


def _try(exercise: int, answer: Callable, case: tuple) -> tuple[Any, str]:
    """What the student's function returns, and prints; its failure is a wrong answer."""
    printed = io.StringIO()
    try:
        with redirect_stdout(printed):
            returned = answer(*copy.deepcopy(case))
    except (Exception, SystemExit) as error:
        fault = f"{type(error).__name__}: {error}".splitlines()[0]
        raise WrongAnswer(
            f"Exercise {exercise}: for {_arguments(case)} your function fails with {fault}"
        ) from error
    finally:
        print(printed.getvalue(), end="")
    return returned, printed.getvalue()


def _form(numbers: np.ndarray) -> str:
    """What an answer must look like."""
    shaped = f"an array of numbers of the shape {numbers.shape}"
    return {0: "a number", 1: f"a list of {numbers.size} numbers"}.get(numbers.ndim, shaped)


def _arguments(case: tuple) -> str:
    return ", ".join(_shown(argument) for argument in case) or "no arguments"


def _shown(value: Any) -> str:
    """A value on one line, shortened."""
    with np.printoptions(precision=4, legacy="1.25"):  # 0.5, not np.float64(0.5)
        text = " ".join(repr(value).split())
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


# The form of an exercise --------------------------------------------------------------------


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


# The versions -------------------------------------------------------------------------------


def write(version: Version, out: Path, notebooks: Sequence[Path]) -> list[Path]:
    """Make one version of notebooks.

    In the students' version the answers and the outputs of checks are gone, in the teacher's the
    blanks. Every other cell keeps its id and its recorded output; a link to a notebook that the
    folder lacks becomes plain text. A folder that an earlier call filled may be filled again, also
    from newer notebooks; hidden files in it are not looked at.
    Returns the notebooks written. Raises CourseError where a notebook cannot be read or has an
    incomplete exercise, or `out` holds the other version or a file that is not of an earlier call;
    nothing is written then.
    """
    earlier = _earlier(out, version)
    names = {*earlier, *(path.name for path in notebooks)}
    contents = {path.name: _version(path, version, names) for path in notebooks}
    hashes = {name: _hash(content) for name, content in contents.items()}
    _refuse_foreign(out, earlier, hashes)
    record = {"version": version, "files": earlier | hashes}
    for name, content in {**contents, RECORD: json.dumps(record, indent=1).encode()}.items():
        write_atomic(out / name, partial(Path.write_bytes, data=content))
    return [out / path.name for path in notebooks]


def _version(notebook: Path, version: Version, names: Container[str]) -> bytes:
    """A version of one notebook, as a file's content; links only to notebooks of these names."""
    import nbformat
    from nbconvert.preprocessors import TagRemovePreprocessor

    try:
        nb = nbformat.read(notebook, as_version=4)
        nbformat.validate(nb)
    except Exception as error:  # nbformat raises whatever a malformed file leads to
        fault = f"{type(error).__name__}: {error}".splitlines()[0]
        raise CourseError(f"{notebook} is not a valid notebook: {fault}") from error
    faults = form_faults(nb.cells)
    if faults:
        raise CourseError(f"{notebook.name}: {faults[0]}")
    nb, _ = TagRemovePreprocessor(**REMOVED[version]).preprocess(nb, {})
    for cell in nb.cells:
        if cell.cell_type == "markdown":
            cell.source = LINK.sub(lambda m: m[0] if m[2] in names else m[1], cell.source)
    return (nbformat.writes(nb) + "\n").encode()


def _earlier(out: Path, version: Version) -> dict[str, str]:
    """Hashes of the files that earlier calls made in `out`."""
    if out.exists() and not out.is_dir():
        raise CourseError(f"{out} is not a folder; name another one")
    try:
        record = json.loads((out / RECORD).read_bytes())
        earlier_version, files = record["version"], dict(record["files"])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CourseError(f"{out / RECORD} cannot be read ({error}); name a new folder") from None
    if earlier_version != version:
        raise CourseError(
            f"{out} holds the version {earlier_version!r} of a course; name another folder"
        )
    return files


def _refuse_foreign(out: Path, *ours: Mapping[str, str]) -> None:
    """Raise CourseError for a file in `out` that has none of the hashes that are ours.

    Hidden files and folders, such as .ipynb_checkpoints, may hold anything.
    """
    for path in sorted(out.rglob("*")):
        name = path.relative_to(out)
        if path.is_dir() or any(folder.startswith(".") for folder in name.parts):
            continue
        if _hash(path.read_bytes()) not in [hashes.get(name.as_posix()) for hashes in ours]:
            raise CourseError(
                f"{path} is not of this command's making, or was changed since; "
                "name a new folder, or move that file away"
            )


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
