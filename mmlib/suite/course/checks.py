"""The checks of exercises: they say right or wrong, and why."""

import base64
import copy
import io
import json
import pickle
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mmlib.suite.course.seals import Seal, crypt, seal
from mmlib.suite.course.values import arguments, form, is_blank, numbers_of, same, shown

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
    """What an answer is compared with; where it is sealed, `right` and `wrong` hold a `Seal`.

    right: the numbers one by one; the option; what a function returns in each case. wrong: whole
    answers, and why each is wrong; the reason of a sealed one is encrypted. forms: of an answer, or
    of what a function returns in each case; "" where it need not be numbers. options: all words.
    """

    exercise: int
    kind: str  # number, choice or function
    right: list[Any]
    wrong: list[tuple[Any, Any]]
    within: float = 0.0
    forms: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    cases: tuple[tuple, ...] = ()


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
    _need_answer(exercise, answer)
    right = numbers_of(truth)
    if right is None or not np.isfinite(right).all():
        raise ValueError(f"exercise {exercise}: no number to compare with, but {truth!r}")
    targets, forms = [float(x) for x in right.flat], (form(right),)
    _check(Key(exercise, "number", targets, list(wrong.items()), within, forms), answer)


def choice(exercise: int, answer: Any, right: str, wrong: Mapping[str, str]) -> None:
    """Check a choice among words; case and spaces around do not matter.

    right: the right option; wrong: the other options, and why it is not that one.
    Raises NoAnswer for `...` or None, WrongAnswer for another option, or none of them.
    """
    options = tuple(sorted((right, *wrong)))
    _check(Key(exercise, "choice", [right], list(wrong.items()), options=options), answer)


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
    cases = tuple(cases)
    if not cases:
        raise ValueError(f"exercise {exercise}: no cases to try")

    def returned(tried: Callable) -> list[Any]:
        return [tried(*copy.deepcopy(case)) for case in cases]

    right = returned(oracle)
    wrongs = [(returned(mistaken), reason) for reason, mistaken in wrong.items()]
    forms = tuple("" if (n := numbers_of(one)) is None else form(n) for one in right)
    _check(Key(exercise, "function", right, wrongs, within, forms, cases=cases), answer)


def check(notebook: str, exercise: int, answer: Any) -> None:
    """Check an answer in the students' version, by the key in the folder `checks`.

    notebook: the name of its file without suffix.
    Raises NoAnswer and WrongAnswer as the check of the teacher's version would, and CourseError
    where there is no key.
    """
    path = Path(CHECKS, f"{notebook}.json")
    try:
        key = unsealed(json.loads(path.read_text(encoding="utf-8")), exercise)
    except (OSError, ValueError, KeyError, TypeError) as error:  # TypeError: of an older version
        raise CourseError(
            f"{path} lacks the key of exercise {exercise}: keep the folder {CHECKS} beside the "
            f"notebook ({type(error).__name__})"
        ) from None
    _check(key, answer)


def _check(key: Key, answer: Any) -> None:
    if collected is not None:
        collected.append(key)
    judge(key, answer)
    print(f"Exercise {key.exercise}: right.")


def judge(key: Key, answer: Any) -> None:
    """Compare an answer with a key. Raises NoAnswer and WrongAnswer."""
    _need_answer(key.exercise, answer)
    {"number": _number, "choice": _choice, "function": _function}[key.kind](key, answer)


def _number(key: Key, answer: Any) -> None:
    mine, said = numbers_of(answer), f"Exercise {key.exercise}:"
    if mine is None or form(mine) != key.forms[0]:
        raise WrongAnswer(f"{said} {shown(answer)} is not {key.forms[0]}.")
    pairs = zip(mine.flat, key.right, strict=True)
    accepted = [_accepted(float(x), target, key.within) for x, target in pairs]
    if all(accepted):
        return
    if reason := _reason(key, answer):
        raise WrongAnswer(f"{said} {shown(answer)} is not right: {reason}")
    first = accepted.index(False)
    index = tuple(int(i) for i in np.unravel_index(first, mine.shape))
    value = f"{mine[index]:.6g}"
    if index:
        value = f"your value at {list(index)}, {value},"
    if np.isnan(mine[index]):
        raise WrongAnswer(f"{said} {value} is not a number.")
    if isinstance(target := key.right[first], Seal):  # which does not know on which side
        raise WrongAnswer(f"{said} {value} is not right.")
    raise WrongAnswer(f"{said} {value} is too {'large' if mine[index] > target else 'small'}.")


def _choice(key: Key, answer: Any) -> None:
    options = {option.casefold(): option for option in key.options}
    chosen = options.get(answer.strip().casefold()) if isinstance(answer, str) else None
    if chosen is None:
        listing = ", ".join(map(repr, key.options))
        raise WrongAnswer(f"Exercise {key.exercise}: {shown(answer)} is none of {listing}.")
    if not _accepted(chosen, key.right[0], 0.0):
        raise WrongAnswer(f"Exercise {key.exercise}: it is not {chosen!r}: {_reason(key, chosen)}")


def _function(key: Key, answer: Any) -> None:
    said = f"Exercise {key.exercise}:"
    if not callable(answer):
        raise WrongAnswer(f"{said} {shown(answer)} is not a function.")
    calls = [attempt(answer, case) for case in key.cases]
    for case, call in zip(key.cases, calls, strict=True):
        if fault := call.fault:
            raise WrongAnswer(f"{said} for {arguments(case)} your function fails with {fault}")
    returned = [call.returned for call in calls]
    if all(map(is_blank, returned)):
        if any(call.printed for call in calls):
            raise WrongAnswer(
                f"{said} your function prints a result and returns none: "
                "write return in the place of print."
            )
        _need_answer(key.exercise, None)
    pairs = zip(returned, key.right, strict=True)
    accepted = [_accepted(value, target, key.within) for value, target in pairs]
    if all(accepted):
        return
    if reason := _reason(key, returned):
        raise WrongAnswer(f"{said} not right: {reason}")
    first = accepted.index(False)
    where = f"for {arguments(key.cases[first])} your function returns {shown(returned[first])}"
    mine, wanted = numbers_of(returned[first]), key.forms[first]
    if wanted and (mine is None or form(mine) != wanted):
        raise WrongAnswer(f"{said} {where}, which is not {wanted}.")
    raise WrongAnswer(f"{said} {where}, which is not right.")


def _accepted(value: Any, target: Any, within: float) -> bool:
    if isinstance(target, Seal):
        return target.secret(value) is not None
    return same(value, target, within)


def _reason(key: Key, answer: Any) -> str:
    """Why an answer is wrong, where it is one of the typical mistakes; else empty."""
    for target, reason in key.wrong:
        if isinstance(target, Seal):
            if secret := target.secret(answer):
                return crypt(reason, secret).decode()
        elif same(answer, target, key.within):
            return reason
    return ""


def _need_answer(exercise: int, answer: Any) -> None:
    """Raise NoAnswer for a blank."""
    if is_blank(answer):
        raise NoAnswer(
            f"Exercise {exercise} has no answer yet: put yours in the place of ... "
            "in the cell above, and run both cells."
        )


@dataclass(frozen=True)
class Call:
    """What a student's function did in one case; fault: the error, as one line, or empty."""

    returned: Any = None
    printed: bool = False
    fault: str = ""


def attempt(answer: Callable, case: tuple) -> Call:
    """Call a student's function with copies of the arguments; what it prints is still printed."""
    if isinstance(answer, Replay):
        return next(answer.calls)
    printed, returned, fault = io.StringIO(), None, ""
    try:
        with redirect_stdout(printed):
            returned = answer(*copy.deepcopy(case))
    except (Exception, SystemExit) as error:
        fault = f"{type(error).__name__}: {error}".splitlines()[0]
    finally:
        print(printed.getvalue(), end="")
    return Call(returned, bool(printed.getvalue()), fault)


class Replay:
    """In the place of a function that was called elsewhere: what it did, case by case."""

    def __init__(self, calls: Iterable[Call]) -> None:
        self.calls = iter(calls)

    def __call__(self, *_: Any) -> None:
        """A function, so that the check takes it for one."""


# Sealed keys --------------------------------------------------------------------------------


def sealed(key: Key, salt: str) -> dict[str, Any]:
    """A key without its answer, as JSON takes it.

    Raises CourseError where the arguments of a case cannot be written to a file.
    """
    salt = f"{salt} {key.exercise}"

    def parts(target: Any, name: str) -> tuple[list[Any], bytes]:
        hidden, secret = seal(target, key.within, f"{salt} {name}")
        return [hidden.offsets, hidden.digest, hidden.numbers.hex()], secret

    wrong = []
    for i, (target, reason) in enumerate(key.wrong):
        hidden, secret = parts(target, f"wrong {i}")
        wrong.append([*hidden, crypt(reason.encode(), secret).hex()])
    try:
        cases = base64.b64encode(pickle.dumps(key.cases)).decode()
    except Exception as error:  # whatever an object raises that cannot be pickled
        raise CourseError(f"exercise {key.exercise}: its cases cannot be kept: {error}") from None
    return {
        "kind": key.kind,
        "within": key.within,
        "forms": key.forms,
        "options": key.options,
        "salt": salt,
        "right": [parts(target, f"right {i}")[0] for i, target in enumerate(key.right)],
        "wrong": wrong,
        "cases": cases,
    }


def unsealed(keys: Mapping[str, Any], exercise: int) -> Key:
    """The key of an exercise, read again; its targets stay sealed."""
    one = keys[str(exercise)]

    def target(name: str, offsets: list[float], digest: str, numbers: str) -> Seal:
        salt = f"{one['salt']} {name}"
        return Seal(tuple(offsets), one["within"], digest, bytes.fromhex(numbers), salt)

    return Key(
        exercise,
        one["kind"],
        [target(f"right {i}", *each) for i, each in enumerate(one["right"])],
        [
            (target(f"wrong {i}", *each), bytes.fromhex(reason))
            for i, (*each, reason) in enumerate(one["wrong"])
        ],
        one["within"],
        tuple(one["forms"]),
        tuple(one["options"]),
        pickle.loads(base64.b64decode(one["cases"])),
    )
