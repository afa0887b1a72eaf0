"""How checks and marks read an answer, of whatever type: one layout of its values.

Both read by `layout` alone, so that they cannot disagree on what a Series or a generator holds.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

Layout = tuple[str, Sequence[float]]
MOST = 100_000  # values of a list or a generator that are read; a longer one is no answer
# An iterator gives its values once, and a check may run again.
_read: dict[int, tuple[Iterator, list]] = {}


def plain(value: Any) -> Any:
    """A value of any library as an array of numbers, or as Python's own: a list, a text, a scalar.

    A table or matrix of one column or one row is a list.
    """
    if hasattr(type(value), "requires_grad"):  # a tensor, with a gradient, sparse, of bfloat16
        value = value.detach().cpu().to_dense()
        value = (value.double() if value.is_floating_point() else value).numpy()
    table = isinstance(value, np.matrix) or hasattr(type(value), "iloc")
    if hasattr(type(value), "toarray"):  # of SciPy
        value, table = value.toarray(), True
    if hasattr(type(value), "__array__") or isinstance(value, memoryview):
        missing = isinstance(value, np.ma.MaskedArray) and value.dtype.kind in "iuf"
        value = value.astype(float).filled(np.nan) if missing else np.asarray(value)
        if table and value.ndim == 2 and 1 in value.shape:
            value = value.ravel()
        return value if value.dtype.kind in "iuf" else plain(value.tolist())
    if isinstance(value, Iterator):
        if id(value) not in _read:
            _read[id(value)] = value, [*islice(value, MOST + 1)]
        return _read[id(value)][1]
    texts_and_sets = str | bytes | bytearray | Mapping | set | frozenset
    if isinstance(value, Collection) and not isinstance(value, texts_and_sets):
        return [*islice(value, MOST + 1)]
    return value


def layout(value: Any) -> Layout:
    """A value's outline, with # for numbers and ? for truth values, and all of these in order.

    Values of the same layout are the same to a check: a list, an array, a Series and a generator of
    the same numbers are.
    """
    value = plain(value)
    if isinstance(value, np.ndarray):
        with np.errstate(over="ignore"):  # a longdouble beyond doubles is infinite
            return f"#{value.shape}", value.astype(float).ravel().tolist()
    if hasattr(type(value), "__float__"):  # int, Fraction, Decimal, …
        with suppress(ValueError, OverflowError, TypeError):  # Decimal("sNaN"), 10**400
            return f"{'?' if isinstance(value, bool) else '#'}()", [float(value)]
    if isinstance(value, Mapping):
        keys = sorted(value, key=repr)
        outline, numbers = together([layout(value[key]) for key in keys])
        return f"{keys!r}: {outline}", numbers
    if isinstance(value, list) and len(value) <= MOST:
        return together([layout(item) for item in value])
    if isinstance(value, set | frozenset):
        return f"set {sorted(map(repr, value))}", []
    return repr(value), []


def blank(value: Any) -> bool:
    """Whether a value is `...` or None, or holds one."""
    value = plain(value)
    return value is None or value is ... or (isinstance(value, list) and any(map(blank, value)))


def together(items: Sequence[Layout]) -> Layout:
    """The layout of a list whose items have these layouts."""
    outlines, numbers = [outline for outline, _ in items], [x for _, some in items for x in some]
    if not items:
        return "#(0,)", numbers
    if {outline[:1] for outline in outlines} <= {"#", "?"} and len({o[1:] for o in outlines}) == 1:
        kind = "#" if any(outline[:1] == "#" for outline in outlines) else "?"
        return f"{kind}{(len(items), *shape_of(outlines[0]))}", numbers
    return f"[{', '.join(outlines)}]", numbers


def shape_of(outline: str) -> tuple[int, ...]:
    """The shape of the numbers of an outline, such as (2, 3) of "#(2, 3)"."""
    return tuple(int(size) for size in outline[2:-1].split(",") if size)


@dataclass(frozen=True)
class Target:
    """What is accepted: values of this outline, numbers `within` of these.

    reason: why it is wrong; empty for a right answer.
    """

    outline: str
    numbers: Sequence[float]
    within: float = 0.0
    reason: str = ""

    def accepts(self, value: Layout) -> bool:
        """Whether a value is this one. 1 may stand for True, not the reverse."""
        outline, numbers = value
        alike = self.outline in (outline, outline.replace("#", "?"))
        return alike and len(numbers) == len(self.numbers) and bool(self.near(numbers).all())

    def near(self, numbers: Sequence[float]) -> np.ndarray:
        """Which of as many numbers are near enough.

        0.29 is within 0.005 of 0.285, although the doubles nearest to them are a little farther
        apart.
        """
        a, b = np.asarray(numbers, float), np.asarray(self.numbers, float)
        with np.errstate(invalid="ignore"):  # infinite numbers are near to themselves alone
            slack = 4 * np.spacing(np.maximum(np.abs(a), np.abs(b)))
            return (a == b) | (np.abs(a - b) <= self.within + slack) | (np.isnan(a) & np.isnan(b))
