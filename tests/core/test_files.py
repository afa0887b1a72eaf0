"""Lines, folders, caches and locks of users; files larger than memory, their fingerprints."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from mmlib.core.errors import DataError, Problem
from mmlib.core.files import (
    alone,
    cached,
    file_fingerprint,
    listed,
    read_rows,
    text_lines,
)
from mmlib.core.paths import write_atomic


@pytest.fixture
def large(tmp_path):
    """A file of 100 rows, each of two pages of memory."""
    values = np.random.default_rng(0).random((100, 2, 1024), dtype=np.float32)
    np.save(tmp_path / "large.npy", values)
    return tmp_path / "large.npy"


def test_a_fingerprint_reads_some_rows_and_knows_of_any_change(large):
    def found(part=slice(None)):
        return file_fingerprint(np.load(large, mmap_mode="r")[part])

    def write(row, later=0):
        np.load(large, mmap_mode="r+")[row, 0, 0] += 1
        os.utime(large, ns=(times.st_atime_ns, times.st_mtime_ns + later))

    first, times = found(), os.stat(large)
    assert found() == first
    assert len({found(), found(slice(50)), found(slice(None, None, 5))}) == 3
    unread = min(set(range(100)) - set(np.linspace(0, 99, 64).astype(int)))
    write(unread, later=1)
    assert found() != first
    write(unread)
    assert found() == first  # the row was not read
    write(99)
    assert found() != first


def resident(path):
    """KiB of a memory-mapped file that count as memory of this process."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    return sum(
        next(int(line.split()[1]) for line in lines if line.startswith("Rss:"))
        for line in lines
        if line.endswith(str(path))
    )


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="only Linux tells of mappings")
def test_rows_that_were_read_do_not_stay_in_memory(large):
    array, rows = np.load(large, mmap_mode="r"), np.array([7, 99, 0, 7])
    assert np.array_equal(array[rows], np.load(large)[rows])
    assert resident(large) > 0
    found = read_rows(array, rows)
    assert resident(large) == 0
    assert np.array_equal(found, np.load(large)[rows])
    assert type(found) is np.ndarray
    assert found.flags.writeable


def test_rows_of_any_array_are_float32():
    found = read_rows(np.arange(6, dtype=np.float16).reshape(3, 2), np.array([2, 0]))
    assert found.tolist() == [[4, 5], [0, 1]]
    assert found.dtype == np.float32


def test_lines_lose_their_ends_and_the_mark_and_a_damaged_one_is_named(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ncaf\xe9\n\n \xe2\x80\xa8 two")
    first, damaged, *others = text_lines(path, "save it as UTF-8")
    assert first == (1, "one")
    assert others == [(3, ""), (4, " \u2028 two")]  # which str.splitlines would break
    assert isinstance(damaged[1], Problem)
    assert "a.txt, line 2: not UTF-8" in str(damaged[1])
    assert str(damaged[1]).endswith("(save it as UTF-8)")


def test_hidden_files_and_folders_are_not_listed(tmp_path):
    for name in (".home/b/x.png", ".home/._x.png", ".home/a.png", ".home/.small/a.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    home = tmp_path / ".home"  # hidden itself, but named by the user
    assert listed(home, "*.png") == [home / "a.png"]
    assert listed(home, "**/*.png") == [home / "a.png", home / "b" / "x.png"]


@pytest.mark.parametrize("cut", [0, 4, 40, 150])
def test_a_cut_cache_is_made_anew(tmp_path, cut):
    made = []

    def make():
        made.append(1)
        return {"values": np.arange(24.0), "names": np.ones(3, np.int64)}

    path = tmp_path / "deep" / "kept.safetensors"
    for _ in range(2):
        assert cached(path, make)["values"].tolist() == list(range(24))
    assert len(made) == 1
    path.write_bytes(path.read_bytes()[:cut])
    for _ in range(2):
        assert cached(path, make)["values"].tolist() == list(range(24))
    assert len(made) == 2
    assert cached(None, make)["names"].dtype == np.int64
    assert [p.name for p in path.parent.iterdir()] == ["kept.safetensors"]


def test_a_cache_keeps_numbers_and_arrays_whose_axes_were_exchanged(tmp_path):
    made = {"values": np.arange(24.0).reshape(2, 3, 4).transpose(0, 2, 1), "number": np.array(2.5)}
    for _ in range(2):  # made, then read
        found = cached(tmp_path / "kept.safetensors", lambda: made)
        assert np.array_equal(found["values"], made["values"])
        assert found["number"].shape == ()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_write_that_fails_leaves_the_old_file_and_a_full_disk_names_it(tmp_path):
    path = tmp_path / "summary.json"
    write_atomic(path, lambda file: file.write_text("old"))

    def half(file):
        file.write_text("ne")
        Path("/dev/full").write_text("w")

    with pytest.raises(OSError, match=rf"No space left on device: '{path}'"):
        write_atomic(path, half)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


# --- Locks ---------------------------------------------------------------------------------------


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
    fcntl = pytest.importorskip("fcntl")
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
    for _ in range(2):
        with alone(lock, "busy"), pytest.raises(DataError, match="delete"), alone(lock, "busy"):
            pass
    lock.touch()  # left behind, by a recording on a disk with locks, say
    with pytest.raises(DataError, match=f"delete {lock}"), alone(lock, "busy"):
        pass


def test_an_error_of_the_work_itself_stays_what_it_is(tmp_path):
    with pytest.raises(OSError, match="mine"), alone(tmp_path / ".lock", "busy"):
        raise OSError("mine")
