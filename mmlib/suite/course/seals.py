"""Targets as salted hashes: who holds one can tell whether an answer is accepted, not which is.

A number t that may be off by w is the one band [t - w, t + w] of a grid. The grid is published, the
band's index is hashed. This hides an answer from a look, not from a search: a hash of five choices
is found in five tries.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmlib.suite.course.values import numbers_of, plain

SLACK = 1e-9  # added to a tolerance, so that its border is inside whatever the rounding
ROUNDS = 10_000  # of the hash: 5 ms for a check, a nuisance for a search


@dataclass(frozen=True)
class Seal:
    """A hashed target.

    offsets: of the grid of each number in it, in the order of `_layout`. width: of a band. salt:
    of the exercise.
    """

    offsets: tuple[float, ...]
    width: float
    digest: str
    salt: str

    def secret(self, value: Any) -> bytes | None:
        """What opens the reason beside this target, where `value` is accepted; else None."""
        outline, numbers = _layout(value)
        if len(numbers) != len(self.offsets):
            return None
        bands = _bands(numbers, self.offsets, self.width)
        for form in {outline, outline.replace("#", "?")}:  # 1 may stand for True, not the reverse
            text = f"{form} {bands}"
            if _digest(text, self.salt).hex() == self.digest:
                return _digest(text, self.salt + "reason")
        return None


def seal(value: Any, within: float, salt: str) -> tuple[Seal, bytes]:
    """A target's seal, and the secret that opens the reason beside it."""
    width = 2 * (within + SLACK)
    outline, numbers = _layout(value)
    offsets = tuple((x - width / 2) % width if math.isfinite(x) else 0.0 for x in numbers)
    text = f"{outline} {_bands(numbers, offsets, width)}"
    return Seal(offsets, width, _digest(text, salt).hex(), salt), _digest(text, salt + "reason")


def crypt(text: bytes, secret: bytes) -> bytes:
    """A reason made unreadable, or readable again."""
    stream = hashlib.shake_256(secret).digest(len(text))
    return bytes(a ^ b for a, b in zip(text, stream, strict=True))


def _digest(text: str, salt: str) -> bytes:
    return hashlib.pbkdf2_hmac("sha256", text.encode(), salt.encode(), ROUNDS, 16)


def _bands(numbers: list[float], offsets: tuple[float, ...], width: float) -> str:
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
