"""Arrays in files that may be larger than memory."""

import hashlib
import mmap
import os

import numpy as np


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
