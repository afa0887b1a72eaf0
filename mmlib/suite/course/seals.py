"""Targets, plain or as salted hashes: who holds a hash can tell whether an answer is accepted, not
which is.

Numbers lie in the cells of a grid. A cell is 64 times as wide as the range that is accepted, and
each grid is shifted at random so that this range lies within one cell. The shift is published, the
index of the cell is hashed. A number in the right cell decrypts the exact target, with which it is
then compared. The shift shows next to nothing: only where the range cannot be, 1/64 of a cell. This
hides an answer from a look, not from a search: a hash of five choices is found in five tries.
"""

import hashlib
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmlib.suite.course.values import near

SLACK = 1e-6  # added to a tolerance, so that its border is in the cell whatever the rounding
CELL = 64  # how many times as wide as what is accepted a cell is
ROUNDS = 10_000  # of the hash: 5 ms for a check, a nuisance for a search


@dataclass(frozen=True)
class Target:
    """What is accepted: values of a layout (`values.layout`), numbers `within` of these.

    reason: why it is wrong; empty for a right answer.
    """

    outline: str
    numbers: Sequence[float]
    within: float = 0.0
    reason: str = ""

    def match(self, outline: str, numbers: Sequence[float]) -> str | None:
        """The reason, where a value of this layout is accepted; else None."""
        # 1 may stand for True, not the reverse.
        alike = self.outline in (outline, outline.replace("#", "?"))
        if not alike or len(numbers) != len(self.numbers):
            return None
        return self.reason if near(numbers, self.numbers, self.within).all() else None


@dataclass(frozen=True)
class Seal:
    """A hashed target.

    offsets: of the grid of each number. digest: of the outline and the cells. box: the numbers and
    the reason, encrypted with these. salt: of this target alone.
    """

    offsets: Sequence[float]
    within: float
    digest: str
    box: str
    salt: str

    def match(self, outline: str, numbers: Sequence[float]) -> str | None:
        """The reason, where a value of this layout is accepted; else None."""
        if len(numbers) != len(self.offsets):
            return None
        for alike in {outline, outline.replace("#", "?")}:
            text = f"{alike} {_cells(numbers, self.offsets, self.within)}"
            if _digest(text, self.salt).hex() == self.digest:
                opened = _crypt(bytes.fromhex(self.box), _digest(text, self.salt + "box"))
                size = 8 * len(numbers)
                exact = np.frombuffer(opened[:size], "<f8").tolist()
                if near(numbers, exact, self.within).all():
                    return opened[size:].decode()
        return None


def seal(target: Target, salt: str) -> Seal:
    """A target's seal. salt: of no other target, as equal targets would else have equal seals."""
    width, border = _width(target.within), target.within + SLACK
    # Who does not know the target cannot draw the offsets again; the same call gives the same file.
    draw = random.Random(_digest(f"{target.outline} {target.numbers}", salt + "offsets"))
    offsets = [
        ((x if math.isfinite(x) else 0.0) - draw.uniform(border, width - border)) % width
        for x in target.numbers
    ]
    text = f"{target.outline} {_cells(target.numbers, offsets, target.within)}"
    content = np.array(target.numbers, "<f8").tobytes() + target.reason.encode()
    box = _crypt(content, _digest(text, salt + "box")).hex()
    return Seal(offsets, target.within, _digest(text, salt).hex(), box, salt)


def _crypt(text: bytes, secret: bytes) -> bytes:
    """A text made unreadable, or readable again."""
    stream = hashlib.shake_256(secret).digest(len(text))
    return bytes(a ^ b for a, b in zip(text, stream, strict=True))


def _digest(text: str, salt: str) -> bytes:
    return hashlib.pbkdf2_hmac("sha256", text.encode(), salt.encode(), ROUNDS, 16)


def _width(within: float) -> float:
    return CELL * 2 * (within + SLACK)


def _cells(numbers: Sequence[float], offsets: Sequence[float], within: float) -> str:
    pairs, width = zip(numbers, offsets, strict=True), _width(within)
    return " ".join(str(math.floor((x - o) / width) if math.isfinite(x) else x) for x, o in pairs)
