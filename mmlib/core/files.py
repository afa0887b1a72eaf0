"""Files of users: lines of text, folders, caches, locks, and arrays larger than memory."""

import hashlib
import mmap
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from mmlib.core.errors import DataError, Problem
from mmlib.core.paths import write_atomic

PICTURES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff")  # suffixes
# filelock then goes on with a file that is there as long as the lock, so nobody need know.
warnings.filterwarnings("ignore", "flock not supported", UserWarning)


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


def write_tensors(
    path: Path, arrays: Mapping[str, np.ndarray], notes: Mapping[str, str] | None = None
) -> None:
    """Write arrays and notes into a safetensors file.

    It goes through memory, so that a full disk is an OSError that names the file, and the file can
    be read by whom the user's umask lets: safetensors' own writing does neither.
    """
    # Of an array in another order safetensors writes the bytes as they lie, and reads others.
    ordered = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    content = save(ordered, dict(notes) if notes else None)
    write_atomic(path, lambda file: file.write_bytes(content))


def cached(path: Path | None, make: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The arrays that `make` gives, kept in a safetensors file; one that is cut is made anew."""
    if path is None:
        return make()
    with suppress(FileNotFoundError, SafetensorError):
        return load_file(path)
    arrays = make()
    write_tensors(path, arrays)
    return arrays


def file_hash(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_fingerprint(array: np.memmap, rows: int = 64) -> str:
    """A hash of a memory-mapped array that does not read all of it, which may be many gigabytes.

    It is of the file's size and time of change, the array's shape, strides and type, and `rows`
    rows spread over it. A copy that does not keep the time (`cp -p` and `rsync -t` do) is another
    file: trainings are then made anew, and none is taken for another's.
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


@contextmanager
def alone(lock: Path, busy: str) -> Iterator[None]:
    """Hold the file `lock`, which is made where it is missing, and fail at once where another does.

    busy: what the other one does, and what to do about it.
    Raises DataError, which also names the file and where its file system is mounted: one without
    locks leaves the file behind when its holder dies, or refuses to lock it.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    mount = next(folder for folder in lock.resolve().parents if folder.is_mount())
    held = FileLock(lock, timeout=0)
    try:
        held.acquire()
    except Timeout:
        raise DataError(
            f"{busy}; where nothing of the kind runs, delete {lock}, which the file system at "
            f"{mount} kept"
        ) from None
    except (OSError, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(
            f"{lock}: cannot be locked ({reason}): the file system at {mount} has no locks, or "
            "lets nobody write there; take a folder on another one"
        ) from None
    try:
        yield
    finally:
        held.release()
