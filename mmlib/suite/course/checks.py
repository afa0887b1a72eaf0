"""The checks of exercises: they say right or wrong, and why."""

import copy
import io
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mmlib.suite.course.values import Layout, Target, blank, layout, plain, shape_of, together

SHOWN = 120  # characters of a value in a message
solved: set[int] = set()  # exercises whose check said right in this process


class NoAnswer(Exception):
    """The student has not answered yet."""


class WrongAnswer(Exception):
    """The student's answer is wrong; the message says why."""

    def _render_traceback_(self) -> list[str]:
        """IPython shows what this returns in the place of a traceback: one line."""
        return [str(self)]


@dataclass(frozen=True)
class Key:
    """What an answer is compared with.

    right: the number or numbers, or what a function returns in each case. wrong: whole answers,
    and why each is wrong. options: the words of a choice, and why each is wrong; None: the right
    one. cases: arguments of a function.
    """

    exercise: int
    right: Sequence[Target] = ()
    wrong: Sequence[Target] = ()
    options: Mapping[str, str | None] = field(default_factory=dict)
    cases: Sequence[tuple] = ()


collected: list[Key] | None = None  # set to a list, it gets the key of each check


def number(
    exercise: int, answer: Any, truth: Any, within: float, wrong: Mapping[Any, str] = {}
) -> None:
    """Check a number, or numbers in whatever holds them in the order of `truth`.

    within: how far a right answer may be off, in the unit of `truth`; the border is right. wrong:
    typical wrong answers, of the form of `truth`, and why each is wrong. Where all of `truth` is 0
    or 1, False and True are numbers, too. Prints that there is no answer yet for `...` or None,
    also within a list.
    Raises WrongAnswer, and ValueError where `truth` is not finite, as no answer could be right.
    """
    outline, numbers = layout(truth)
    if outline[:1] != "#" or not np.isfinite(numbers).all():
        raise ValueError(f"exercise {exercise}: no number to compare with, but {truth!r}")
    wrongs = [Target(*layout(value), within, reason) for value, reason in wrong.items()]
    _check(Key(exercise, [Target(outline, numbers, within)], wrongs), answer)


def choice(exercise: int, answer: Any, right: str, wrong: Mapping[str, str]) -> None:
    """Check a choice among words; case, spaces and the form of an apostrophe do not matter.

    right: the right option; wrong: the other options, and why it is not that one.
    Prints that there is no answer yet for `...` or None. Raises WrongAnswer for another option, or
    none of them.
    """
    _check(Key(exercise, options={**wrong, right: None}), answer)


def function(
    exercise: int, answer: Any, oracle: Callable, cases: Iterable[tuple],
    within: float = 1e-6, wrong: Mapping[str, Callable] = {},
) -> None:  # fmt: skip
    """Check a function by calling it, and one that is right, on the same cases.

    Numbers, arrays and tensors may be `within` of each other, also inside lists and dicts;
    anything else must be equal. answer: gets copies of the arguments. oracle: a right function.
    cases: the arguments of each call. wrong: reasons, each with a function that makes the typical
    mistake.
    Prints that there is no answer yet for `...` or None, or a function that returns that in every
    case. Raises WrongAnswer for what is no function, fails, exits, prints and returns nothing, or
    returns something else, ValueError without cases.
    """
    cases = tuple(cases)
    if not cases:
        raise ValueError(f"exercise {exercise}: no cases to try")

    def layouts(tried: Callable) -> list[Layout]:
        return [layout(tried(*copy.deepcopy(case))) for case in cases]

    wrongs = [Target(*together(layouts(tried)), within, reason) for reason, tried in wrong.items()]
    _check(
        Key(exercise, [Target(*one, within) for one in layouts(oracle)], wrongs, cases=cases),
        answer,
    )


def _check(key: Key, answer: Any) -> None:
    if collected is not None:
        collected.append(key)
    try:
        judge(key, look(answer, key.cases))
    except NoAnswer as error:  # no failure: a notebook runs to its end without answers
        print(error)
    else:
        solved.add(key.exercise)
        print(f"Exercise {key.exercise}: right.")


def look(answer: Any, cases: Sequence[tuple] = ()) -> dict[str, Any]:
    """What a check sees of an answer; JSON can hold all of it.

    cases: of a function's check. The answer is called with copies of each, up to the first that
    fails, and "calls" has what is seen of what it returns, whether it printed something, and its
    error in one line.
    """
    outline, numbers = layout(answer)
    value = plain(answer)
    seen: dict[str, Any] = {"shown": shown(answer), "outline": outline, "numbers": [*numbers]}
    seen |= {"blank": blank(answer), "text": value if isinstance(value, str) else ""}
    if cases and callable(answer):
        seen["calls"] = []
        for case in cases:
            printed, call, fault = io.StringIO(), look(None), ""
            try:
                with redirect_stdout(printed):
                    call = look(answer(*copy.deepcopy(case)))
            except (Exception, SystemExit) as error:
                fault = f"{type(error).__name__}: {error}".splitlines()[0]
            print(printed.getvalue(), end="")
            seen["calls"].append(call | {"printed": bool(printed.getvalue()), "fault": fault})
            if fault:
                break
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
    if key.options:
        options = {_folded(option): option for option in key.options}
        option = options.get(_folded(answer["text"]))
        if option is None:
            raise wrong(f"{value} is none of {', '.join(map(repr, sorted(key.options)))}.")
        if key.options[option] is not None:
            raise wrong(f"it is not {option!r}: {key.options[option]}")
        return
    if key.cases and "calls" not in answer:
        raise wrong(f"{value} is not a function.")
    for case, call in zip(key.cases, calls, strict=False):
        if call["fault"]:
            raise wrong(f"for {_listed(case)} your function fails with {call['fault']}")
    pieces: list[Layout] = [(one["outline"], one["numbers"]) for one in calls or [answer]]
    if not key.cases and {*key.right[0].numbers} <= {0, 1}:
        pieces = [(pieces[0][0].replace("?", "#"), pieces[0][1])]
    answered = together(pieces) if key.cases else pieces[0]
    mistake = next((target for target in key.wrong if target.accepts(answered)), None)
    for i, (target, (outline, numbers)) in enumerate(zip(key.right, pieces, strict=True)):
        if target.accepts((outline, numbers)):
            continue
        begin = f"{value} is "
        if mistake:
            raise wrong(f"{'' if key.cases else begin}not right: {mistake.reason}")
        if key.cases:
            begin = (
                f"for {_listed(key.cases[i])} your function returns {calls[i]['shown']}, which is "
            )
        if target.outline[:1] == "#" and target.outline != outline:
            raise wrong(f"{begin}not {_form(target.outline)}.")
        if not key.cases:
            first = int(np.argmin(target.near(numbers)))
            position = [int(k) for k in np.unravel_index(first, shape_of(outline))]
            begin = f"your value at {position}, " if position else ""
            begin += f"{numbers[first]:.6g}{',' if position else ''} is "
        raise wrong(f"{begin}not right.")


def shown(value: Any) -> str:
    """A value on one line, shortened."""
    value = plain(value) if isinstance(value, Iterator) else value
    with np.printoptions(precision=4, legacy="1.25"):  # 0.5, not np.float64(0.5)
        text = " ".join(repr(value).split())
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def _folded(option: str) -> str:
    """An option as it is compared: as typed by hand, or copied with typographic marks."""
    text = unicodedata.normalize("NFKC", option).replace("’", "'")
    return " ".join(text.split()).casefold()


def _listed(case: tuple) -> str:
    return ", ".join(map(shown, case)) or "no arguments"


def _form(outline: str) -> str:
    """What numbers of an outline are, in words."""
    shape = shape_of(outline)
    if len(shape) > 1:
        return f"an array of numbers of the shape {shape}"
    return f"a list of {shape[0]} numbers" if shape else "a number"
