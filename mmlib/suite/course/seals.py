"""Targets as salted hashes: who holds one can tell whether an answer is accepted, not which is.

Numbers lie in the cells of a grid. A cell is 64 times as wide as the range that is accepted, and
each grid is shifted at random so that this range lies within one cell. The shift is published, the
index of the cell is hashed. A number in the right cell decrypts the exact target, with which it is
then compared. The shift shows next to nothing: only where the range cannot be, 1/64 of a cell. This
hides an answer from a look, not from a search: a hash of five choices is found in five tries.
"""

import hashlib
import math
import random
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmlib.suite.course.values import near, numbers_of, plain

SLACK = 1e-6  # added to a tolerance, so that its border is in the cell whatever the rounding
CELL = 64  # how many times as wide as what is accepted a cell is
ROUNDS = 10_000  # of the hash: 5 ms for a check, a nuisance for a search


@dataclass(frozen=True)
class Seal:
    """A hashed target.

    offsets: of the grid of each number in it, in the order of `_layout`. within: the tolerance.
    numbers: these, encrypted with the cells. salt: of this target alone.
    """

    offsets: tuple[float, ...]
    within: float
    digest: str
    numbers: bytes
    salt: str

    def secret(self, value: Any) -> bytes | None:
        """What opens the reason beside this target, where `value` is accepted; else None."""
        outline, numbers = _layout(value)
        if len(numbers) != len(self.offsets):
            return None
        cells = _cells(numbers, self.offsets, _width(self.within))
        for form in {outline, outline.replace("#", "?")}:  # 1 may stand for True, not the reverse
            text = f"{form} {cells}"
            if _digest(text, self.salt).hex() == self.digest:
                secret = _digest(text, self.salt + "reason")
                return secret if self._near(numbers, secret) else None
        return None

    def _near(self, numbers: list[float], secret: bytes) -> bool:
        opened = crypt(self.numbers, secret + b"numbers")
        mine, right = np.array(numbers), np.array(struct.unpack(f"<{len(numbers)}d", opened))
        both_nan = np.isnan(mine) & np.isnan(right)
        return bool((near(mine, right, self.within) | both_nan).all())


def seal(value: Any, within: float, salt: str) -> tuple[Seal, bytes]:
    """A target's seal, and the secret that opens the reason beside it.

    salt: of no other target, as equal targets would else have equal seals.
    """
    width, border = _width(within), within + SLACK
    outline, numbers = _layout(value)
    # Who does not know the target cannot draw the offsets again; the same call gives the same file.
    draw = random.Random(_digest(f"{outline} {numbers}", salt + "offsets"))
    offsets = tuple(
        ((x if math.isfinite(x) else 0.0) - draw.uniform(border, width - border)) % width
        for x in numbers
    )
    text = f"{outline} {_cells(numbers, offsets, width)}"
    secret = _digest(text, salt + "reason")
    hidden = crypt(struct.pack(f"<{len(numbers)}d", *numbers), secret + b"numbers")
    return Seal(offsets, within, _digest(text, salt).hex(), hidden, salt), secret


def crypt(text: bytes, secret: bytes) -> bytes:
    """A reason made unreadable, or readable again."""
    stream = hashlib.shake_256(secret).digest(len(text))
    return bytes(a ^ b for a, b in zip(text, stream, strict=True))


def _digest(text: str, salt: str) -> bytes:
    return hashlib.pbkdf2_hmac("sha256", text.encode(), salt.encode(), ROUNDS, 16)


def _width(within: float) -> float:
    return CELL * 2 * (within + SLACK)


def _cells(numbers: list[float], offsets: tuple[float, ...], width: float) -> str:
    pairs = zip(numbers, offsets, strict=True)
    return " ".join(str(math.floor((x - o) / width) if math.isfinite(x) else x) for x, o in pairs)


def _layout(value: Any) -> tuple[str, list[float]]:
    """A value's outline, with # for numbers and ? for truth values, and all of these in order."""
    array = numbers_of(value)
    if array is not None:
        return f"#{array.shape}", array.ravel().tolist()
    value = plain(value)
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, bool):
        return "?()", [float(value)]
    if isinstance(value, list | tuple) and value and all(isinstance(x, bool) for x in value):
        return f"?({len(value)},)", [float(x) for x in value]
    if isinstance(value, Mapping):
        keys = sorted(value, key=repr)
        parts, names = [_layout(value[key]) for key in keys], f"{keys!r}"
    elif isinstance(value, list | tuple):
        parts, names = [_layout(x) for x in value], ""
    elif isinstance(value, set | frozenset):
        return f"set {sorted(map(repr, value))}", []
    else:
        return repr(value), []
    return f"[{names} {', '.join(o for o, _ in parts)}]", [x for _, n in parts for x in n]
