"""Files of users: folders, caches, locks, and arrays larger than memory."""

import hashlib
import mmap
import os
import stat
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout
from safetensors import safe_open
from safetensors.numpy import save

from mmlib.core.errors import DataError, Problem
from mmlib.core.paths import write_atomic

PICTURES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff")  # suffixes
Arrays = Mapping[str, np.ndarray]
DIGEST = "sha256"  # the note of a safetensors file that has the hash of all else
# filelock then goes on with a file that is there as long as the lock, so nobody need know.
warnings.filterwarnings("ignore", "flock not supported", UserWarning)


def regular_file(path: Path, mend: str = "name a file") -> Path:
    """The path, where it leads to a regular file: of a pipe or a device reading may never end.

    Raises FileNotFoundError, and DataError for anything else, such as a folder.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        kind = "a folder" if path.is_dir() else "a pipe, a socket or a device"
        raise DataError(Problem(path, None, f"is {kind}, not a file", mend))
    return path


def listed(folder: Path, pattern: str) -> list[Path]:
    """What fits the pattern below a folder, sorted, but for hidden files and folders.

    macOS puts a hidden `._x.png`, which is no picture, beside each `x.png` of a zip.
    """
    return sorted(
        path
        for path in folder.glob(pattern)
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )


def printable(name: str) -> str:
    """A text that UTF-8 can hold, as a file's name of any bytes may not be; the rest is escaped."""
    return name.encode("utf-8", "backslashreplace").decode()


def write_tensors(path: Path, arrays: Arrays, notes: Mapping[str, str] | None = None) -> None:
    """Write arrays and notes into a safetensors file, for `read_tensors` and `kept`.

    The file's name and a hash of all join the notes. It goes through memory, so that a full disk is
    an OSError that names the file, and the file can be read by whom the user's umask lets:
    safetensors' own writing does neither.
    """
    # Of an array in another order safetensors writes the bytes as they lie, and reads others.
    ordered = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    notes = {**(notes or {}), "file": printable(path.name)}
    content = save(ordered, {**notes, DIGEST: _digest(ordered, notes)})
    write_atomic(path, lambda file: file.write_bytes(content))


def read_tensors(path: Path, mend: str = "delete it") -> tuple[Arrays, dict[str, str]]:
    """Arrays and notes of a file of `write_tensors`.

    Raises FileNotFoundError, and DataError where the content has not the hash that was written with
    it: a damaged file, or one without a hash, as earlier versions wrote it.
    """
    regular_file(path, mend)
    try:
        with safe_open(path, "np") as file:
            notes = dict(file.metadata() or {})
            arrays = {name: file.get_tensor(name) for name in file.keys()}
    except Exception as error:  # whatever a damaged file leads to
        raise DataError(Problem(path, None, f"damaged: {error}", mend)) from None
    if (digest := notes.pop(DIGEST, "")) != _digest(arrays, notes):
        problem = "damaged: its content has another hash" if digest else "has no hash"
        raise DataError(Problem(path, None, problem, mend))
    return arrays, notes


def _digest(arrays: Arrays, notes: Mapping[str, str]) -> str:
    digest = hashlib.sha256(repr(sorted(notes.items())).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name!r} {array.dtype.name} {array.shape}".encode())
        digest.update(array.data)
    return digest.hexdigest()


def kept(path: Path) -> tuple[Arrays, dict[str, str]] | None:
    """Arrays and notes that were written under this name; None where they are to be made anew.

    That is where there are none and, with a line on stderr, where the file is damaged or renamed.
    """
    try:
        arrays, notes = read_tensors(path, "made anew")
        if (name := notes.get("file")) != printable(path.name):
            raise DataError(Problem(path, None, f"is another file, {name}", "made anew"))
        return arrays, notes
    except FileNotFoundError:
        pass
    except DataError as error:
        print(error, file=sys.stderr)
    return None


def cached(path: Path | None, make: Callable[[], Arrays]) -> Arrays:
    """The arrays that `make` gives, or has given earlier, kept in a file."""
    if path is None:
        return make()
    if earlier := kept(path):
        return earlier[0]
    arrays = make()
    write_tensors(path, arrays)
    return arrays


def file_hash(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal digits."""
    with regular_file(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_rows(array: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """`array[rows]` in memory, float32; DataError for what is not finite then.

    A memory-mapped file forgets at once what was read: its pages would count as memory of this
    process, in the end as much as the file is large.
    """
    with np.errstate(over="ignore"):
        values = np.asarray(array[rows], dtype=np.float32)
    if not np.isfinite(values).all():
        name = getattr(array, "filename", "features")
        raise DataError(f"{name}: not finite as float32 (`mmlib data check` names the row)")
    if isinstance(array, np.memmap) and array.mode == "r" and hasattr(mmap, "MADV_DONTNEED"):
        array._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]
    return values


@contextmanager
def alone(lock: Path, busy: str) -> Iterator[None]:
    """Hold the file `lock`, which is made where it is missing, and fail at once where another does.

    busy: what the other one does, and what to do about it. Raises DataError, which names the file.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    try:
        held = FileLock(lock, timeout=0).acquire()
    except Timeout:
        raise DataError(f"{busy}; where nothing of the kind runs, delete {lock}") from None
    except (OSError, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or error
        mend = "take a folder on another file system"
        raise DataError(f"{lock}: cannot be locked ({reason}): {mend}") from None
    with held:
        yield
