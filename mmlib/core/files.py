"""Files of users: lines of text, folders, caches, and arrays that may be larger than memory."""

import hashlib
import mmap
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save, save_file

from mmlib.core.errors import Problem
from mmlib.core.paths import write_atomic

PICTURES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff")  # suffixes


def text_lines(path: Path, mend: str) -> Iterator[tuple[int, str | Problem]]:
    """Number and text of each line of a file, or what is wrong with a line that is not UTF-8.

    Line ends are left out, and so is the byte order mark that some editors begin a file with.
    """
    with path.open("rb") as file:
        for row, raw in enumerate(file, start=1):
            try:
                yield row, raw.decode("utf-8-sig" if row == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                yield row, Problem(path, row, f"not UTF-8: {error}", mend)


def listed(folder: Path, pattern: str) -> list[Path]:
    """What fits the pattern below a folder, sorted, but for hidden files and folders.

    macOS puts a hidden `._x.png`, which is no picture, beside each `x.png` of a zip.
    """
    return sorted(
        path
        for path in folder.glob(pattern)
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )


def write_tensors(path: Path, arrays: Mapping[str, np.ndarray], notes: Mapping[str, str]) -> None:
    """Write arrays and notes into a safetensors file.

    It goes through memory, so that a full disk is an OSError that names the file, and the file can
    be read by whom the user's umask lets: safetensors' own writing does neither.
    """
    content = save({n: np.ascontiguousarray(a) for n, a in arrays.items()}, dict(notes))
    write_atomic(path, lambda file: file.write_bytes(content))


def cached(path: Path | None, make: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The arrays that `make` gives, kept in a safetensors file; one that is cut is made anew."""
    if path is not None:
        with suppress(FileNotFoundError, SafetensorError):
            return load_file(path)
    arrays = make()
    if path is not None:
        # Of an array in another order safetensors writes the bytes as they lie, and reads others.
        ordered = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        write_atomic(path, partial(save_file, ordered))
    return arrays


def file_hash(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_fingerprint(array: np.memmap, rows: int = 64) -> str:
    """A hash of a memory-mapped array that does not read all of it, which may be many gigabytes.

    Of the file its size, its time of change, and `rows` rows spread over the array; of the array
    its shape, strides and type. Whoever writes to the file changes its time, so another value
    anywhere in it gives another hash, unless the time is set back. So does a copy that does not
    keep the time: trainings are then made anew, and none is taken for another's. `cp -p` and
    `rsync -t` keep it.
    """
    assert array.filename is not None
    file = os.stat(array.filename)
    text = f"{file.st_size} {file.st_mtime_ns} {array.shape} {array.strides} {array.dtype}"
    digest = hashlib.sha256(text.encode())
    digest.update(array[np.linspace(0, len(array) - 1, rows).astype(int)].tobytes())
    return digest.hexdigest()


def read_rows(array: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """`array[rows]` in memory, float32.

    A memory-mapped file forgets at once what was read: its pages would count as memory of this
    process, in the end as much as the file is large.
    """
    values = np.asarray(array[rows], dtype=np.float32)
    if isinstance(array, np.memmap) and array.mode == "r" and hasattr(mmap, "MADV_DONTNEED"):
        array._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]
    return values
