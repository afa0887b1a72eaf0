"""The checks of exercises: they say right or wrong, and why."""

import codecs
import copy
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mmlib.suite.course.targets import Layout, Seal, Target, layout, seal, shape_of, together

CHECKS = "checks"  # the folder of the sealed keys, beside the students' notebooks
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
    """A version of the course that cannot be made, or a check that cannot be done."""


@dataclass(frozen=True)
class Key:
    """What an answer is compared with; in the students' version each target is a `Seal`.

    right: the numbers one by one; the option; what a function returns in each case. wrong: whole
    answers, and why each is wrong. outlines: of the answer, or of what a function returns in each
    case. options: all words. cases: arguments of a function.
    """

    exercise: int
    kind: str  # number, choice or function
    right: Sequence[Target | Seal]
    wrong: Sequence[Target | Seal]
    outlines: Sequence[str] = ()
    options: Sequence[str] = ()
    cases: Sequence[tuple] = ()

    def sealed(self, salt: str) -> "Key":
        """This key without its answer."""

        def hidden(targets: Sequence[Any], name: str) -> list[Seal]:
            salts = (f"{salt} {self.exercise} {name} {i}" for i in range(len(targets)))
            return list(map(seal, targets, salts))

        right, wrong = hidden(self.right, "right"), hidden(self.wrong, "wrong")
        outlines = [outline if outline[:1] == "#" else "" for outline in self.outlines]
        return replace(self, right=right, wrong=wrong, outlines=outlines)


# All that a file of sealed keys may make, beside tensors, numbers and texts.
ALLOWED: list[Any] = [Key, Seal, bytes, codecs.encode, np.ndarray, np.dtype]
ALLOWED += [
    np.empty(0).__reduce__()[0],
    *(type(np.dtype(name)) for name in ("f4", "f8", "i8", "?")),
]
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
    outline, numbers = layout(truth)
    if outline[:1] != "#" or not np.isfinite(numbers).all():
        raise ValueError(f"exercise {exercise}: no number to compare with, but {truth!r}")
    right = [Target("#()", [x], within) for x in numbers]
    wrongs = [Target(*layout(value), within, reason) for value, reason in wrong.items()]
    _check(Key(exercise, "number", right, wrongs, [outline]), answer)


def choice(exercise: int, answer: Any, right: str, wrong: Mapping[str, str]) -> None:
    """Check a choice among words; case and spaces around do not matter.

    right: the right option; wrong: the other options, and why it is not that one.
    Raises NoAnswer for `...` or None, WrongAnswer for another option, or none of them.
    """
    wrongs = [Target(*layout(option), reason=reason) for option, reason in wrong.items()]
    options = sorted((right, *wrong))
    _check(Key(exercise, "choice", [Target(*layout(right))], wrongs, options=options), answer)


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

    def layouts(tried: Callable) -> list[Layout]:
        return [layout(tried(*copy.deepcopy(case))) for case in cases]

    right = layouts(oracle)
    wrongs = [Target(*together(layouts(tried)), within, reason) for reason, tried in wrong.items()]
    targets, outlines = [Target(*value, within) for value in right], [value[0] for value in right]
    _check(Key(exercise, "function", targets, wrongs, outlines, cases=cases), answer)


def check(notebook: str, exercise: int, answer: Any) -> None:
    """Check an answer in the students' version, by the key in the folder `checks`.

    notebook: the name of its file without suffix.
    Raises NoAnswer and WrongAnswer as the check of the teacher's version would, and CourseError
    where there is no key.
    """
    path = Path(CHECKS, f"{notebook}.pt")
    try:
        with torch.serialization.safe_globals(ALLOWED):
            key = torch.load(path, weights_only=True)[exercise]
    except Exception as error:  # whatever a damaged file leads to
        raise CourseError(
            f"{path} lacks the key of exercise {exercise}: keep the folder {CHECKS} beside the "
            f"notebook ({type(error).__name__})"
        ) from None
    _check(key, answer)


def _check(key: Key, answer: Any) -> None:
    if collected is not None:
        collected.append(key)
    judge(key, look(answer, key.cases))
    print(f"Exercise {key.exercise}: right.")


def look(answer: Any, cases: Sequence[tuple] = ()) -> dict[str, Any]:
    """What a check sees of an answer; JSON can hold all of it.

    cases: of a function's check. The answer is called with copies of each, and "calls" has what is
    seen of what it returns, whether it printed something, and its error in one line.
    """

    def blank(value: Any) -> bool:
        return value is None or value is ... or (
            isinstance(value, list | tuple) and any(map(blank, value))
        )  # fmt: skip

    outline, numbers = layout(answer)
    seen: dict[str, Any] = {"shown": shown(answer), "outline": outline, "numbers": [*numbers]}
    seen |= {"blank": blank(answer), "text": answer if isinstance(answer, str) else ""}
    if cases and callable(answer):
        seen["calls"] = []
        for case in cases:
            printed, returned, fault = io.StringIO(), None, ""
            try:
                with redirect_stdout(printed):
                    returned = answer(*copy.deepcopy(case))
            except (Exception, SystemExit) as error:
                fault = f"{type(error).__name__}: {error}".splitlines()[0]
            print(printed.getvalue(), end="")
            call = {"printed": bool(printed.getvalue()), "fault": fault}
            seen["calls"].append(look(returned) | call)
    return seen


def judge(key: Key, answer: Mapping[str, Any]) -> None:
    """Compare what `look` saw with a key. Raises NoAnswer and WrongAnswer."""

    def wrong(reason: str) -> WrongAnswer:
        return WrongAnswer(f"Exercise {key.exercise}: {reason}")

    value, calls = answer["shown"], answer.get("calls", ())
    if answer["blank"] or (calls and all(call["blank"] and not call["fault"] for call in calls)):
        if any(call["printed"] for call in calls):
            raise wrong(
                "your function prints a result and returns none: "
                "write return in the place of print."
            )
        raise NoAnswer(
            f"Exercise {key.exercise} has no answer yet: put yours in the place of ... "
            "in the cell above, and run both cells."
        )
    answered = answer["outline"], answer["numbers"]
    pieces: list[Layout] = [("#()", [x]) for x in answer["numbers"]]
    if key.kind == "number" and answer["outline"] != key.outlines[0]:
        raise wrong(f"{value} is not {_form(key.outlines[0])}.")
    if key.kind == "choice":
        options = {option.casefold(): option for option in key.options}
        value = options.get(answer["text"].strip().casefold())
        if value is None:
            raise wrong(f"{answer['shown']} is none of {', '.join(map(repr, key.options))}.")
        answered = layout(value)
        pieces = [answered]
    if key.kind == "function":
        if "calls" not in answer:
            raise wrong(f"{value} is not a function.")
        for case, call in zip(key.cases, calls, strict=True):
            if call["fault"]:
                raise wrong(f"for {_listed(case)} your function fails with {call['fault']}")
        pieces = [(call["outline"], call["numbers"]) for call in calls]
        answered = together(pieces)
    pairs = zip(key.right, pieces, strict=True)
    misses = [i for i, (target, piece) in enumerate(pairs) if not target.accepts(piece)]
    if not misses:
        return
    mistake = next(filter(None, (target.accepts(answered) for target in key.wrong)), None)
    if key.kind == "choice":
        raise wrong(f"it is not {value!r}: {mistake.reason if mistake else ''}")
    if mistake:
        begin = "" if key.kind == "function" else f"{value} is "
        raise wrong(f"{begin}not right: {mistake.reason}")
    first, fault = misses[0], "not right"
    if key.kind == "function":
        if key.outlines[first][:1] == "#" and key.outlines[first] != calls[first]["outline"]:
            fault = f"not {_form(key.outlines[first])}"
        returned = f"your function returns {calls[first]['shown']}"
        raise wrong(f"for {_listed(key.cases[first])} {returned}, which is {fault}.")
    value = f"{answer['numbers'][first]:.6g}"
    if shape := shape_of(answer["outline"]):
        position = [int(i) for i in np.unravel_index(first, shape)]
        value = f"your value at {position}, {value},"
    raise wrong(f"{value} is not right.")


def shown(value: Any) -> str:
    """A value on one line, shortened."""
    with np.printoptions(precision=4, legacy="1.25"):  # 0.5, not np.float64(0.5)
        text = " ".join(repr(value).split())
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def _listed(case: tuple) -> str:
    return ", ".join(map(shown, case)) or "no arguments"


def _form(outline: str) -> str:
    """What numbers of an outline are, in words."""
    shape = shape_of(outline)
    if len(shape) > 1:
        return f"an array of numbers of the shape {shape}"
    return f"a list of {shape[0]} numbers" if shape else "a number"
