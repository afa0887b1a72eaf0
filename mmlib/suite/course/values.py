"""When an answer is the same as a target: numbers, arrays and tensors, also inside lists."""

from collections.abc import Mapping
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

SHOWN = 120  # characters of a value in a message


def is_blank(answer: Any) -> bool:
    """Whether something is `...` or None, or a list or tuple with such a place."""
    if isinstance(answer, list | tuple):
        return any(map(is_blank, answer))
    return answer is None or answer is ...


def numbers_of(value: Any) -> np.ndarray | None:
    """A number or numbers as an array of floats; None for anything else, also truth values."""
    try:
        array = np.asarray(plain(value))
        if array.dtype.kind == "O" and all(map(_is_number, array.flat)):  # Fraction, Decimal
            return array.astype(float)
    except (ValueError, TypeError, RuntimeError, OverflowError):  # lists of different lengths, say
        return None
    return array.astype(float) if array.dtype.kind in "iuf" else None


def plain(value: Any) -> Any:
    """A value in which tensors, also within lists, are arrays that NumPy knows."""
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if not hasattr(value, "detach"):
        return value
    value = value.detach().cpu()  # it may have a gradient or be on a GPU
    return (value.double() if value.is_floating_point() else value).numpy()  # bfloat16, say


def _is_number(value: Any) -> bool:
    return isinstance(value, Real | Decimal) and not isinstance(value, bool)


def near(mine: np.ndarray, right: np.ndarray, within: float) -> np.ndarray:
    """Where numbers are `within` of each other, as one reckons with the decimals that are shown.

    0.29 is within 0.005 of 0.285, although the doubles nearest to them are a little farther apart.
    """
    with np.errstate(invalid="ignore"):  # infinite numbers are near to themselves alone
        slack = 4 * np.spacing(np.maximum(np.abs(mine), np.abs(right)))
        return (mine == right) | (np.abs(mine - right) <= within + slack)


def same(mine: Any, truth: Any, within: float) -> bool:
    """Whether two values are equal, numbers `within` of each other."""
    right = numbers_of(truth)
    if right is not None:
        numbers = numbers_of(mine)
        if numbers is None or numbers.shape != right.shape:
            return False
        both_nan = np.isnan(numbers) & np.isnan(right)
        return bool((near(numbers, right, within) | both_nan).all())
    mine, truth = (x.tolist() if hasattr(x, "tolist") else x for x in (mine, truth))
    if isinstance(truth, Mapping):
        alike = isinstance(mine, Mapping) and mine.keys() == truth.keys()
        return alike and all(same(mine[key], truth[key], within) for key in truth)
    if isinstance(truth, list | tuple):
        alike = isinstance(mine, list | tuple) and len(mine) == len(truth)
        return alike and all(same(*pair, within) for pair in zip(mine, truth, strict=True))
    return np.array_equal(mine, truth)


def form(numbers: np.ndarray) -> str:
    """What an answer must look like."""
    shaped = f"an array of numbers of the shape {numbers.shape}"
    return {0: "a number", 1: f"a list of {numbers.size} numbers"}.get(numbers.ndim, shaped)


def arguments(case: tuple) -> str:
    """The arguments of a call on one line."""
    return ", ".join(shown(argument) for argument in case) or "no arguments"


def shown(value: Any) -> str:
    """A value on one line, shortened."""
    with np.printoptions(precision=4, legacy="1.25"):  # 0.5, not np.float64(0.5)
        text = " ".join(repr(value).split())
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
