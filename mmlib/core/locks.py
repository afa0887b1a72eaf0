"""One process at a time: a lock file that others respect."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from mmlib.core.errors import DataError

# filelock then goes on with a file that is there as long as the lock, so nobody need know.
warnings.filterwarnings("ignore", "flock not supported", UserWarning)


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
