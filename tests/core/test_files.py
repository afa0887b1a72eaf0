"""Lines, folders, caches and locks of users; files larger than memory, their fingerprints."""

import errno
import hashlib
import os
import re
import socket
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load, save

from mmlib.core import files
from mmlib.core.errors import DataError
from mmlib.core.paths import write_atomic
from mmlib.features.store import file_fingerprint


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
    found = files.read_rows(array, rows)
    assert resident(large) == 0
    assert np.array_equal(found, np.load(large)[rows])
    assert type(found) is np.ndarray
    assert found.flags.writeable


def test_rows_of_any_array_are_float32():
    found = files.read_rows(np.arange(6, dtype=np.float16).reshape(3, 2), np.array([2, 0]))
    assert (found.tolist(), found.dtype) == ([[4, 5], [0, 1]], np.float32)


def test_hidden_files_and_folders_are_not_listed(tmp_path):
    for name in (".home/b/x.png", ".home/._x.png", ".home/a.png", ".home/.small/a.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    home = tmp_path / ".home"  # hidden itself, but named by the user
    assert files.listed(home, "*.png") == [home / "a.png"]
    assert files.listed(home, "**/*.png") == [home / "a.png", home / "b" / "x.png"]


DAMAGES = {
    "damaged: ": lambda content: content[:150],
    "damaged": lambda content: b"",
    "damaged: its content has another hash": lambda content: content[:-96] + bytes(96),  # zeros
    "damaged: its content": lambda content: content.replace(b"I64", b"U64"),
    "has no hash": lambda content: save(load(content)),  # of an earlier version
}


@pytest.mark.parametrize("told", DAMAGES)
def test_a_damaged_cache_is_made_anew_with_a_line(tmp_path, told, capsys):
    made, path = [], tmp_path / "deep" / "kept.safetensors"

    def make():
        made.append(1)
        return {"values": np.arange(24.0), "names": np.ones(3, np.int64)}

    def values():
        return files.cached(path, make)["values"].tolist()

    assert values() == values() == list(range(24))
    assert (len(made), capsys.readouterr().err) == (1, "")
    path.write_bytes(DAMAGES[told](path.read_bytes()))
    assert values() == values() == list(range(24))
    assert len(made) == 2
    assert re.fullmatch(rf"{path}: {told}.* \(made anew\)\n", capsys.readouterr().err)
    assert files.cached(None, make)["names"].dtype == np.int64
    assert [p.name for p in path.parent.iterdir()] == ["kept.safetensors"]


def test_a_flipped_bit_or_lost_end_of_a_kept_file_is_refused_with_its_mend(tmp_path):
    path, rng = tmp_path / "model.safetensors", np.random.default_rng(0)
    turned = np.arange(24.0).reshape(2, 3, 4).transpose(0, 2, 1)  # its axes are exchanged
    arrays = {"none": np.zeros((0, 3), np.float16), "bias": np.array(True), "turned": turned}
    files.write_tensors(path, arrays, {"words": "ä b"})
    read, notes = files.read_tensors(path)
    assert (read["none"].shape, read["bias"].item(), notes["words"]) == ((0, 3), True, "ä b")
    assert np.array_equal(read["turned"], turned)
    whole = path.read_bytes()
    for position in [None, *rng.choice(len(whole), 300, replace=False)]:
        damaged = bytearray(whole if position else whole[:-1])
        damaged[position or 0] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"model\.safetensors: .* \(train it anew\)"):
            files.read_tensors(path, "train it anew")


@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "folder", "link to a pipe"])
def test_no_regular_file_is_refused_at_once_and_a_link_to_one_is_read(tmp_path, kind):
    path, file, link = (tmp_path / name for name in ("x.safetensors", "file", "link"))
    file.write_bytes(b"abc")
    link.symlink_to(file)
    assert files.file_hash(files.regular_file(link)) == hashlib.sha256(b"abc").hexdigest()
    if kind == "folder":
        path.mkdir()
    elif kind == "socket":
        socket.socket(socket.AF_UNIX).bind(str(path))
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        os.mkfifo(tmp_path / "pipe")
        path.symlink_to(tmp_path / "pipe") if "link" in kind else (tmp_path / "pipe").rename(path)
    for read in (files.regular_file, files.file_hash, files.read_tensors):
        with pytest.raises(DataError, match=r"x\.safetensors: is a .*, not a file"):
            read(path)
        with pytest.raises(FileNotFoundError):
            read(tmp_path / "none")


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
    told = rf"^runs: busy; where nothing of the kind runs, delete {lock}$"
    with (
        files.alone(lock, "runs: busy"),
        pytest.raises(DataError, match=told),
        files.alone(lock, "runs: busy"),
    ):
        pass
    with pytest.raises(OSError, match="mine"), files.alone(lock, "runs: busy"):
        raise OSError("mine")  # an error of the work itself stays what it is


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
    told = rf"{tmp_path / '.lock'}: cannot be locked \(simulated\): take a folder on another"
    with pytest.raises(DataError, match=told), files.alone(tmp_path / ".lock", "busy"):
        pass


def test_without_flock_a_file_stands_for_the_lock(tmp_path, no_locks, recwarn):
    lock = tmp_path / ".lock"
    no_locks(errno.ENOSYS)
    for _ in range(2):
        with (
            files.alone(lock, "busy"),
            pytest.raises(DataError, match="delete"),
            files.alone(lock, "busy"),
        ):
            pass
    lock.touch()  # left behind, by a recording on a disk with locks, say
    with pytest.raises(DataError, match=f"delete {lock}"), files.alone(lock, "busy"):
        pass
