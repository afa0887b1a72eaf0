"""What checks know of an answer: its outline and its numbers, and when these are near a target."""

import ast
from collections.abc import Mapping, Sequence
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
        array = np.asarray(_plain(value))
        if array.dtype.kind == "O" and all(
            isinstance(item, Real | Decimal) and not isinstance(item, bool) for item in array.flat
        ):  # Fraction, Decimal
            return array.astype(float)
    except (ValueError, TypeError, RuntimeError, OverflowError):  # lists of different lengths, say
        return None
    return array.astype(float) if array.dtype.kind in "iuf" else None


def _plain(value: Any) -> Any:
    """A value in which tensors, also within lists, are arrays that NumPy knows."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if not hasattr(value, "detach"):
        return value
    value = value.detach().cpu()  # it may have a gradient or be on a GPU
    return (value.double() if value.is_floating_point() else value).numpy()  # bfloat16, say


def layout(value: Any) -> tuple[str, list[float]]:
    """A value's outline, with # for numbers and ? for truth values, and all of these in order.

    Values of the same outline and numbers are the same to a check: a list and an array are.
    """
    array = numbers_of(value)
    if array is not None:
        return f"#{array.shape}", array.ravel().tolist()
    value = _plain(value)
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, bool):
        return "?()", [float(value)]
    if isinstance(value, list | tuple) and value and all(isinstance(x, bool) for x in value):
        return f"?({len(value)},)", [float(x) for x in value]
    if isinstance(value, Mapping):
        keys = sorted(value, key=repr)
        return together([layout(value[key]) for key in keys], f"{keys!r}")
    if isinstance(value, list | tuple):
        return together([layout(item) for item in value])
    if isinstance(value, set | frozenset):
        return f"set {sorted(map(repr, value))}", []
    return repr(value), []


def together(
    parts: Sequence[tuple[str, Sequence[float]]], names: str = ""
) -> tuple[str, list[float]]:
    """The layout of a list, or of a dict with keys `names`, whose parts have these layouts."""
    outline = f"[{names} {', '.join(outline for outline, _ in parts)}]"
    return outline, [number for _, numbers in parts for number in numbers]


def near(mine: Sequence[float], right: Sequence[float], within: float) -> np.ndarray:
    """Where numbers are `within` of each other, as one reckons with the decimals that are shown.

    0.29 is within 0.005 of 0.285, although the doubles nearest to them are a little farther apart.
    """
    a, b = np.asarray(mine, float), np.asarray(right, float)
    with np.errstate(invalid="ignore"):  # infinite numbers are near to themselves alone
        slack = 4 * np.spacing(np.maximum(np.abs(a), np.abs(b)))
        return (a == b) | (np.abs(a - b) <= within + slack) | (np.isnan(a) & np.isnan(b))


def shape_of(outline: str) -> tuple[int, ...]:
    """The shape of numbers of an outline."""
    return ast.literal_eval(outline[1:])


def form(outline: str) -> str:
    """What numbers of an outline are, in words."""
    shape = shape_of(outline)
    if len(shape) > 1:
        return f"an array of numbers of the shape {shape}"
    return f"a list of {shape[0]} numbers" if shape else "a number"


def shown(value: Any) -> str:
    """A value on one line, shortened."""
    with np.printoptions(precision=4, legacy="1.25"):  # 0.5, not np.float64(0.5)
        text = " ".join(repr(value).split())
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
