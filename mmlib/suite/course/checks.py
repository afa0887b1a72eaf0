"""The checks of exercises: they say right or wrong, and why."""

import base64
import copy
import io
import json
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mmlib.suite.course.seals import Seal, Target, seal
from mmlib.suite.course.values import form, is_blank, layout, numbers_of, shape_of, shown, together

CHECKS = "checks"  # the folder of the sealed keys, beside the students' notebooks


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
    """A version of the course that cannot be made, or a check that cannot be done."""


@dataclass(frozen=True)
class Key:
    """What an answer is compared with; in the students' version each target is a `Seal`.

    right: the numbers one by one; the option; what a function returns in each case. wrong: whole
    answers, and why each is wrong. outlines: of the answer, or of what a function returns in each
    case; "" where it need not be numbers. options: all words. cases: arguments of a function.
    """

    exercise: int
    kind: str  # number, choice or function
    right: Sequence[Target | Seal]
    wrong: Sequence[Target | Seal]
    outlines: Sequence[str] = ()
    options: Sequence[str] = ()
    cases: Sequence[tuple] = ()


@dataclass(frozen=True)
class Answer:
    """What a check knows of an answer, or of what a function returned; JSON can hold all of it.

    outline, numbers: see `values.layout`. text: the answer, if it is one. calls: of a function that
    is tried, what it did in each case. printed, fault: of such a call, whether something was
    printed, and the error in one line.
    """

    shown: str
    outline: str
    numbers: Sequence[float]
    blank: bool
    text: str | None = None
    calls: Sequence["Answer"] | None = None
    printed: bool = False
    fault: str = ""

    @classmethod
    def of(cls, value: Any, cases: Sequence[tuple] = (), **call: Any) -> "Answer":
        """cases: of a function's check; the answer is called with copies of each."""
        text = value if isinstance(value, str) else None
        calls = [_called(value, case) for case in cases] if cases and callable(value) else None
        return cls(shown(value), *layout(value), is_blank(value), text, calls, **call)

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> "Answer":
        """What `asdict` made of one. Raises TypeError or ValueError for anything else."""
        calls, numbers = content["calls"], content["numbers"]
        if not isinstance(content["outline"], str) or {*map(type, numbers)} - {float}:
            raise TypeError("no layout")
        return cls(**{**content, "calls": None if calls is None else [*map(cls.read, calls)]})


def _called(function: Callable, case: tuple) -> Answer:
    """What a student's function does in one case; what it prints is still printed."""
    printed, returned, fault = io.StringIO(), None, ""
    try:
        with redirect_stdout(printed):
            returned = function(*copy.deepcopy(case))
    except (Exception, SystemExit) as error:
        fault = f"{type(error).__name__}: {error}".splitlines()[0]
    finally:
        print(printed.getvalue(), end="")
    return Answer.of(returned, printed=bool(printed.getvalue()), fault=fault)


collected: list[Key] | None = None  # set to a list, it gets the key of each check


def number(
    exercise: int, answer: Any, truth: Any, within: float, wrong: Mapping[Any, str] = {}
) -> None:
    """Check a number, or a list, tuple or array of them, as `truth` is.

    within: how far a right answer may be off, in the unit of `truth`; the border is right. wrong:
    typical wrong answers, of the form of `truth`, and why each is wrong.
    Raises NoAnswer for `...` or None, also within a list, WrongAnswer, and ValueError where `truth`
    is not finite, so that no answer could be right.
    """
    right = numbers_of(truth)
    if right is None or not np.isfinite(right).all():
        raise ValueError(f"exercise {exercise}: no number to compare with, but {truth!r}")
    targets = [Target("#()", [float(x)], within) for x in right.flat]
    wrongs = [Target(*layout(value), within, reason) for value, reason in wrong.items()]
    _check(Key(exercise, "number", targets, wrongs, [layout(truth)[0]]), answer)


def choice(exercise: int, answer: Any, right: str, wrong: Mapping[str, str]) -> None:
    """Check a choice among words; case and spaces around do not matter.

    right: the right option; wrong: the other options, and why it is not that one.
    Raises NoAnswer for `...` or None, WrongAnswer for another option, or none of them.
    """
    wrongs = [Target(repr(option), [], reason=reason) for option, reason in wrong.items()]
    options = sorted((right, *wrong))
    _check(Key(exercise, "choice", [Target(repr(right), [])], wrongs, options=options), answer)


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
    cases = tuple(cases)
    if not cases:
        raise ValueError(f"exercise {exercise}: no cases to try")

    def layouts(tried: Callable) -> list[tuple[str, list[float]]]:
        return [layout(tried(*copy.deepcopy(case))) for case in cases]

    right = layouts(oracle)
    wrongs = [Target(*together(layouts(tried)), within, reason) for reason, tried in wrong.items()]
    targets = [Target(*one, within) for one in right]
    outlines = [outline if outline.startswith("#") else "" for outline, _ in right]
    _check(Key(exercise, "function", targets, wrongs, outlines, cases=cases), answer)


def check(notebook: str, exercise: int, answer: Any) -> None:
    """Check an answer in the students' version, by the key in the folder `checks`.

    notebook: the name of its file without suffix.
    Raises NoAnswer and WrongAnswer as the check of the teacher's version would, and CourseError
    where there is no key.
    """
    path = Path(CHECKS, f"{notebook}.json")
    try:
        key = unsealed(json.loads(path.read_text(encoding="utf-8"))[str(exercise)])
    except (OSError, ValueError, KeyError, TypeError) as error:  # TypeError: of an older version
        raise CourseError(
            f"{path} lacks the key of exercise {exercise}: keep the folder {CHECKS} beside the "
            f"notebook ({type(error).__name__})"
        ) from None
    _check(key, answer)


def _check(key: Key, answer: Any) -> None:
    if collected is not None:
        collected.append(key)
    judge(key, Answer.of(answer, key.cases))
    print(f"Exercise {key.exercise}: right.")


def judge(key: Key, answer: Answer) -> None:
    """Compare an answer with a key. Raises NoAnswer and WrongAnswer."""
    said = f"Exercise {key.exercise}:"
    calls = answer.calls or ()
    if answer.blank or (calls and all(call.blank and not call.fault for call in calls)):
        if any(call.printed for call in calls):
            raise WrongAnswer(
                f"{said} your function prints a result and returns none: "
                "write return in the place of print."
            )
        raise NoAnswer(
            f"Exercise {key.exercise} has no answer yet: put yours in the place of ... "
            "in the cell above, and run both cells."
        )
    whole: tuple[str, Sequence[float]] = (answer.outline, answer.numbers)
    pieces: list[tuple[str, Sequence[float]]] = [("#()", [x]) for x in answer.numbers]
    if key.kind == "number" and answer.outline != key.outlines[0]:
        raise WrongAnswer(f"{said} {answer.shown} is not {form(key.outlines[0])}.")
    if key.kind == "choice":
        options = {option.casefold(): option for option in key.options}
        chosen = options.get((answer.text or "").strip().casefold())
        if chosen is None:
            listing = ", ".join(map(repr, key.options))
            raise WrongAnswer(f"{said} {answer.shown} is none of {listing}.")
        whole = repr(chosen), []
        pieces = [whole]
    if key.kind == "function":
        if answer.calls is None:
            raise WrongAnswer(f"{said} {answer.shown} is not a function.")
        for case, call in zip(key.cases, calls, strict=True):
            if call.fault:
                where = f"for {_arguments(case)} your function fails with"
                raise WrongAnswer(f"{said} {where} {call.fault}")
        pieces = [(call.outline, call.numbers) for call in calls]
        whole = together(pieces)
    pairs = zip(key.right, pieces, strict=True)
    misses = [i for i, (target, part) in enumerate(pairs) if target.match(*part) is None]
    if not misses:
        return
    reason = next(filter(None, (wrong.match(*whole) for wrong in key.wrong)), "")
    if key.kind == "choice":
        raise WrongAnswer(f"{said} it is not {chosen!r}: {reason}")
    if reason:
        shows = "" if key.kind == "function" else f"{answer.shown} is "
        raise WrongAnswer(f"{said} {shows}not right: {reason}")
    first, fault = misses[0], "not right"
    target = key.right[first]
    if key.kind == "function":
        if key.outlines[first] not in ("", calls[first].outline):
            fault = f"not {form(key.outlines[first])}"
        where = f"for {_arguments(key.cases[first])} your function returns {calls[first].shown}"
        raise WrongAnswer(f"{said} {where}, which is {fault}.")
    mine = answer.numbers[first]
    value = f"{mine:.6g}"
    if shape := shape_of(answer.outline):
        place = [int(i) for i in np.unravel_index(first, shape)]
        value = f"your value at {place}, {value},"
    if np.isnan(mine):
        fault = "not a number"
    elif isinstance(target, Target):  # a seal does not know on which side
        fault = "too large" if mine > target.numbers[0] else "too small"
    raise WrongAnswer(f"{said} {value} is {fault}.")


def _arguments(case: tuple) -> str:
    return ", ".join(map(shown, case)) or "no arguments"


def sealed(key: Key, salt: str) -> dict[str, Any]:
    """A key without its answer, as JSON takes it.

    Raises CourseError where the arguments of a case cannot be written to a file.
    """

    def hidden(targets: Iterable[Any], name: str) -> list[dict[str, Any]]:
        own = f"{salt} {key.exercise} {name}"
        return [asdict(seal(one, f"{own} {i}")) for i, one in enumerate(targets)]

    try:
        cases = base64.b64encode(pickle.dumps(key.cases)).decode()
    except Exception as error:  # whatever an object raises that cannot be pickled
        raise CourseError(f"exercise {key.exercise}: its cases cannot be kept: {error}") from None
    right, wrong = hidden(key.right, "right"), hidden(key.wrong, "wrong")
    return {**vars(key), "right": right, "wrong": wrong, "cases": cases}


def unsealed(content: Mapping[str, Any]) -> Key:
    """The key that `sealed` wrote, read again; its targets stay sealed."""
    targets = {name: [Seal(**one) for one in content[name]] for name in ("right", "wrong")}
    cases = pickle.loads(base64.b64decode(content["cases"]))
    return Key(**{**content, **targets, "cases": cases})
