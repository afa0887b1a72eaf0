"""What an answer is compared with: values in one layout, plain or as salted hashes.

Who holds a hash can tell whether an answer is accepted, not which is. Numbers lie in the cells of a
grid. A cell is 64 times as wide as the range that is accepted, and each grid is shifted at random
so that this range lies within one cell. The shift is published, the index of the cell is hashed. A
number in the right cell decrypts the exact target, with which it is then compared. The shift shows
next to nothing: only where the range cannot be, 1/64 of a cell. This hides an answer from a look,
not from a search: a hash of five choices is found in five tries.
"""

import hashlib
import math
import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

SLACK = 1e-6  # added to a tolerance, so that its border is in the cell whatever the rounding
CELL = 64  # how many times as wide as what is accepted a cell is
ROUNDS = 10_000  # of the hash: 5 ms for a check, a nuisance for a search
Layout = tuple[str, Sequence[float]]


def layout(value: Any) -> Layout:
    """A value's outline, with # for numbers and ? for truth values, and all of these in order.

    Values of the same layout are the same to a check: a list and an array are.
    """
    if hasattr(value, "detach"):  # a tensor, perhaps with a gradient, on a GPU, of bfloat16
        value = value.detach().cpu()
        value = (value.double() if value.is_floating_point() else value).numpy()
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind in "iuf":
            return f"#{value.shape}", value.astype(float).ravel().tolist()
        value = value.tolist()
    if isinstance(value, Real | Decimal):
        with suppress(ValueError, OverflowError):  # Decimal("sNaN"), 10**400
            return f"{'?' if isinstance(value, bool) else '#'}()", [float(value)]
    if isinstance(value, Mapping):
        keys = sorted(value, key=repr)
        outline, numbers = together([layout(value[key]) for key in keys])
        return f"{keys!r}: {outline}", numbers
    if isinstance(value, list | tuple):
        return together([layout(item) for item in value])
    if isinstance(value, set | frozenset):
        return f"set {sorted(map(repr, value))}", []
    return repr(value), []


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

    def accepts(self, value: Layout) -> "Target | None":
        """This target where it accepts a value, else None.

        0.29 is within 0.005 of 0.285, although the doubles nearest to them are a little farther
        apart. 1 may stand for True, not the reverse.
        """
        outline, numbers = value
        if self.outline not in (outline, outline.replace("#", "?")):
            return None
        if len(numbers) != len(self.numbers):
            return None
        a, b = np.asarray(numbers, float), np.asarray(self.numbers, float)
        with np.errstate(invalid="ignore"):  # infinite numbers are near to themselves alone
            slack = 4 * np.spacing(np.maximum(np.abs(a), np.abs(b)))
            near = (a == b) | (np.abs(a - b) <= self.within + slack) | (np.isnan(a) & np.isnan(b))
        return self if near.all() else None


@dataclass(frozen=True)
class Seal:
    """A hashed target.

    offsets: of the grid of each number. digest: of the outline and the cells. box: the numbers and
    the reason, encrypted with these. salt: of this target alone.
    """

    offsets: Sequence[float]
    within: float
    digest: bytes
    box: bytes
    salt: str

    def accepts(self, value: Layout) -> Target | None:
        """The hashed target where it accepts a value, else None."""
        outline, numbers = value
        if len(numbers) != len(self.offsets):
            return None
        for alike in {outline, outline.replace("#", "?")}:
            text = f"{alike} {_cells(numbers, self.offsets, self.within)}"
            if _digest(text, self.salt) == self.digest:
                content = _crypt(self.box, _digest(text, self.salt + "box"))
                exact = np.frombuffer(content[: 8 * len(numbers)], "<f8").tolist()
                reason = content[8 * len(numbers) :].decode()
                return Target(alike, exact, self.within, reason).accepts(value)
        return None


def seal(target: Target, salt: str) -> Seal:
    """A target's seal. salt: of no other target, as equal targets would else have equal seals."""
    width, border = CELL * 2 * (target.within + SLACK), target.within + SLACK
    # Who does not know the target cannot draw the offsets again; the same call gives the same file.
    draw = random.Random(_digest(f"{target.outline} {target.numbers}", salt + "offsets"))
    offsets = [
        ((x if math.isfinite(x) else 0.0) - draw.uniform(border, width - border)) % width
        for x in target.numbers
    ]
    text = f"{target.outline} {_cells(target.numbers, offsets, target.within)}"
    content = np.array(target.numbers, "<f8").tobytes() + target.reason.encode()
    box = _crypt(content, _digest(text, salt + "box"))
    return Seal(offsets, target.within, _digest(text, salt), box, salt)


def _cells(numbers: Sequence[float], offsets: Sequence[float], within: float) -> str:
    pairs, width = zip(numbers, offsets, strict=True), CELL * 2 * (within + SLACK)
    return " ".join(str(math.floor((x - o) / width) if math.isfinite(x) else x) for x, o in pairs)


def _digest(text: str, salt: str) -> bytes:
    return hashlib.pbkdf2_hmac("sha256", text.encode(), salt.encode(), ROUNDS, 16)


def _crypt(text: bytes, secret: bytes) -> bytes:
    """A text made unreadable, or readable again."""
    stream = hashlib.shake_256(secret).digest(len(text))
    return bytes(a ^ b for a, b in zip(text, stream, strict=True))
