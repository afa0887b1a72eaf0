"""Files of word vectors: word2vec's two formats, and GloVe's text."""

import mmap
from codecs import BOM_UTF8
from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from mmlib.core.files import regular_file
from mmlib.data.tables import error_at


def read_word_vectors(path: Path, words: Collection[str]) -> dict[str, np.ndarray]:
    """Vectors of `words` from a file in word2vec's binary (.bin) or text format.

    A text may do without word2vec's header, as GloVe's do, and its words may hold spaces. Raises
    DataError, with the mend, for another or damaged file, more or fewer words than its header
    counts, none of the words, and a vector that is not finite.
    """
    binary, count, vectors = path.suffix == ".bin", 0, dict[str, np.ndarray]()
    try:
        with regular_file(path).open("rb") as file:
            first = file.readline().removeprefix(BOM_UTF8)
            fields = first.split()
            counted, width = -1, len(fields) - 1
            if header := binary or len(fields) == 2:
                counted, width = map(int, fields)
            lines = file if header else chain([first], file)
            for word, numbers in _binary_rows(file, width) if binary else _text_rows(lines, width):
                count += 1
                if word in words:
                    vectors.setdefault(word, np.array(numbers, dtype=np.float32))
        if counted not in (-1, count):
            raise ValueError(f"its header counts {counted} words, but there are {count}")
    except ValueError as error:
        kind = "in word2vec's binary format" if binary else "as text"
        problem = f"no table of word vectors {kind}: {error}"
        raise error_at(path, None, problem, "unzip it, or get it again") from None
    bad = sorted(word for word, vector in vectors.items() if not np.isfinite(vector).all())
    if bad or (words and not vectors):
        nothing = f"none of {len(words)} words is among its {count}"
        problem = f"the vector of {bad[0]!r} is not finite" if bad else nothing
        raise error_at(path, None, problem, "get it again")
    return vectors


def _text_rows(lines: Iterable[bytes], width: int) -> Iterator[tuple[str, Any]]:
    for row, line in enumerate(lines, start=1):
        word, *numbers = line.decode().rstrip().rsplit(" ", width)
        if len(numbers) < max(width, 1):
            raise ValueError(f"row {row} has not a word and {width} numbers")
        yield word, numbers


def _binary_rows(file: BinaryIO, width: int) -> Iterator[tuple[str, Any]]:
    at = file.tell()
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        while (end := content.find(b" ", at)) >= 0:
            word, at = content[at:end].lstrip(b"\n").decode(), end + 1 + 4 * width
            if at > len(content) or width < 1:
                raise ValueError(f"the vector of {word!r} is cut")
            yield word, np.frombuffer(content[end + 1 : at], dtype=np.float32)
