"""Locks: held ones, and file systems that have none."""

import errno

import pytest

from mmlib.core.errors import DataError
from mmlib.core.locks import alone

fcntl = pytest.importorskip("fcntl")


def test_the_second_is_told_what_to_do(tmp_path):
    lock = tmp_path / "new" / ".lock"
    told = (
        rf"^runs: busy; where nothing of the kind runs, delete {lock}, which the file system at /"
    )
    with alone(lock, "runs: busy"), pytest.raises(DataError, match=told), alone(lock, "runs: busy"):
        pass
    with alone(lock, "runs: busy"):
        pass


@pytest.fixture
def no_locks(monkeypatch):
    """Lets every lock fail with an error number, as a file system without locks does."""
    flock = fcntl.flock

    def use(number):
        def fails(file, operation):
            if operation & fcntl.LOCK_EX:
                raise OSError(number, "simulated")
            return flock(file, operation)

        monkeypatch.setattr(fcntl, "flock", fails)

    return use


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EIO])
def test_a_file_system_that_refuses_locks_is_named(tmp_path, no_locks, number):
    no_locks(number)
    told = rf"{tmp_path / '.lock'}: cannot be locked \(simulated\): the file system at /"
    with pytest.raises(DataError, match=told), alone(tmp_path / ".lock", "busy"):
        pass


def test_without_flock_a_file_stands_for_the_lock(tmp_path, no_locks, recwarn):
    lock = tmp_path / ".lock"
    no_locks(errno.ENOSYS)
    with alone(lock, "busy"), pytest.raises(DataError, match="delete"), alone(lock, "busy"):
        pass
    with alone(lock, "busy"):
        pass
    lock.touch()  # left behind, by a recording on a disk with locks, say
    with pytest.raises(DataError, match=f"delete {lock}"), alone(lock, "busy"):
        pass
    lock.unlink()
    with alone(lock, "busy"):
        pass


def test_an_error_of_the_work_itself_stays_what_it_is(tmp_path):
    with pytest.raises(OSError, match="mine"), alone(tmp_path / ".lock", "busy"):
        raise OSError("mine")
