"""Downloads and unpacking, against a server on localhost that misbehaves on request."""

import errno
import hashlib
import os
import re
import shutil
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from mmlib.data import download as download_module
from mmlib.data.download import ArchiveError, DownloadError, download, unpack

BODY = bytes(range(256)) * 4096  # 1 MiB
DIGEST = hashlib.sha256(BODY).hexdigest()


DATES = ("Wed, 21 Oct 2015 07:28:00 GMT", "Thu, 22 Oct 2015 07:28:00 GMT")


class Server(ThreadingHTTPServer):
    """Serves `body`; cuts the first `cuts` answers short, ignores ranges, or changes its file."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.body, self.cuts, self.ranges, self.date = BODY, 0, True, DATES[0]
        self.careless = False  # continues another file than the one that was asked for
        self.asked: list[str | None] = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/set.bin"


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):
        server, start = self.server, 0
        asked = self.headers.get("Range")
        server.asked.append(asked)
        if not self.path.endswith("set.bin"):
            self.send_error(404)
            return
        same = server.careless or self.headers.get("If-Range") == server.date
        if asked and server.ranges and same:
            start = int(re.match(r"bytes=(\d+)-", asked)[1])
        if start >= len(server.body):
            self.send_error(416)
            return
        remainder = server.body[start:]
        self.send_response(206 if start else 200)
        if start:
            end = len(server.body) - 1
            self.send_header("Content-Range", f"bytes {start}-{end}/{len(server.body)}")
        if server.date:
            self.send_header("Last-Modified", server.date)
        self.send_header("Content-Length", str(len(remainder)))
        self.end_headers()
        if server.cuts:
            server.cuts -= 1
            remainder = remainder[: len(remainder) // 2]
        self.wfile.write(remainder)


@pytest.fixture
def server():
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield running
        running.shutdown()


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def test_a_cut_download_goes_on_within_a_call_and_in_the_next(server, tmp_path):
    server.cuts = 3
    with pytest.raises(DownloadError, match=r"broken off after [\d,]+ bytes.*again to go on"):
        download(server.url, tmp_path / "deep" / "set.bin", attempts=2)
    assert not (tmp_path / "deep" / "set.bin").exists()
    path = download(server.url, tmp_path / "deep" / "set.bin", sha256=DIGEST, attempts=2)
    assert path.read_bytes() == BODY
    assert names(path.parent) == ["set.bin"]
    starts = [int(asked[6:-1]) for asked in server.asked[1:]]
    assert starts == sorted(set(starts))  # each further on than the one before
    assert starts[0] > len(BODY) / 3


@pytest.mark.parametrize(
    "change",
    [
        {"ranges": False},
        {"date": None},  # nothing to compare with
        {"body": BODY[::-1], "date": DATES[1]},
        {"body": BODY[::-1], "date": DATES[1], "careless": True},
        {"body": BODY[:99], "date": DATES[1], "careless": True},
    ],
)
def test_two_versions_of_a_file_are_never_joined(server, tmp_path, change):
    server.cuts, server.date = 1, change.get("date", DATES[0]) and DATES[0]
    with pytest.raises(DownloadError):
        download(server.url, tmp_path / "set.bin", attempts=1)
    vars(server).update(change)
    assert download(server.url, tmp_path / "set.bin").read_bytes() == server.body
    assert names(tmp_path) == ["set.bin"]


def test_a_wrong_file_is_not_kept(server, tmp_path):
    with pytest.raises(DownloadError, match=r"SHA256 hash .* does not match.*get it again"):
        download(server.url, tmp_path / "set.bin", sha256="0" * 64)
    assert names(tmp_path) == []
    assert len(server.asked) == 1


def test_mirrors_are_tried_in_turn(server, tmp_path):
    dead, gone = "http://127.0.0.1:9/set.bin", server.url.replace("set", "none")
    assert download([gone, dead, server.url], tmp_path / "set.bin").read_bytes() == BODY
    with pytest.raises(DownloadError, match=r"404 .*other ways.*; .*broken off after 0"):
        download([gone, dead], tmp_path / "none.bin")
    assert server.asked == 3 * [None]  # a definite answer is not asked for again
    assert names(tmp_path) == ["set.bin"]


def test_interrupt_leaves_no_file_under_the_final_name(server, tmp_path, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("mmlib.data.download.os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        download(server.url, tmp_path / "set.bin")
    assert not (tmp_path / "set.bin").exists()
    monkeypatch.undo()
    assert download(server.url, tmp_path / "set.bin").read_bytes() == BODY


def test_file_already_there_is_kept_if_sound(server, tmp_path):
    (tmp_path / "set.bin").write_bytes(BODY)
    download(server.url, tmp_path / "set.bin", sha256=DIGEST)
    assert server.asked == []
    (tmp_path / "set.bin").write_bytes(b"other")
    download(server.url, tmp_path / "set.bin", sha256=DIGEST)
    assert (tmp_path / "set.bin").read_bytes() == BODY


def make_zip(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in members:
            packed.writestr(name, data)
    return path


GOOD = [("set/a.txt", b"a"), ("set/sub/b.txt", b"b" * 1000), ("__MACOSX/junk", b"")]


def test_unpack(tmp_path):
    archive = make_zip(tmp_path / "x.pack", GOOD)
    (tmp_path / "out/.set.unpacking/stale").mkdir(parents=True)  # of a run that was killed
    unpack(archive, tmp_path / "out" / "set", inner="set")
    assert (tmp_path / "out/set/sub/b.txt").read_bytes() == b"b" * 1000
    assert names(tmp_path / "out") == ["set"]
    unpack(archive, tmp_path / "whole")
    assert names(tmp_path / "whole") == ["__MACOSX", "set"]
    with pytest.raises(FileExistsError, match="not empty"):
        unpack(archive, tmp_path / "whole")
    with pytest.raises(ArchiveError, match="no folder other/"):
        unpack(archive, tmp_path / "o2", inner="other")


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil"])
def test_archive_may_not_leave_its_folder(tmp_path, name):
    archive = make_zip(tmp_path / "x.pack", [("fine", b"1"), (name, b"2")])
    assert (unpack(archive, tmp_path / "out" / "in") / "fine").is_file()
    assert names(tmp_path / "out") == ["in"]  # the part that leads outside is dropped
    assert names(tmp_path) == ["out", "x.pack"]
    assert not Path("/evil").exists()


def damaged(path):
    raw = bytearray(make_zip(path, [("a", os.urandom(5000)), ("b", os.urandom(5000))]).read_bytes())
    raw[2000:2100] = bytes(100)
    path.write_bytes(raw)


def hides_its_size(path):
    raw = make_zip(path, [("zeros", bytes(10**6))]).read_bytes()
    path.write_bytes(raw.replace((10**6).to_bytes(4, "little"), bytes(4)))


@pytest.mark.parametrize(
    "write", [damaged, hides_its_size, lambda p: p.write_text("<html>sign in")]
)
def test_what_is_no_sound_archive_leaves_nothing(tmp_path, write):
    write(tmp_path / "x.zip")
    with pytest.raises(ArchiveError, match=r"x\.zip: damaged, or no zip: .*get it again"):
        unpack(tmp_path / "x.zip", tmp_path / "out")
    assert names(tmp_path) == ["x.zip"]


def test_links_lead_nowhere(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as packed:
        entry = zipfile.ZipInfo("link")
        entry.external_attr = 0o120777 << 16
        packed.writestr(entry, "/etc/passwd")
    assert not (unpack(tmp_path / "x.zip", tmp_path / "out") / "link").is_symlink()


def test_a_bomb_and_what_the_disk_cannot_hold_are_refused(tmp_path, monkeypatch):
    bomb = make_zip(tmp_path / "x.zip", [("zeros", bytes(10**6))])
    with pytest.raises(
        ArchiveError, match=r"x\.zip: has 1,\d+ bytes and would unpack to 1,000,000"
    ):
        unpack(bomb, tmp_path / "out")
    full = shutil.disk_usage(tmp_path)._replace(free=999)
    monkeypatch.setattr(download_module.shutil, "disk_usage", lambda folder: full)
    archive = make_zip(tmp_path / "y.zip", [("text", b"a dog runs " * 100)])
    with pytest.raises(ArchiveError, match=r"1,100 bytes, but 999 are free in .*make room"):
        unpack(archive, tmp_path / "out")
    assert names(tmp_path) == ["x.zip", "y.zip"]


@pytest.mark.parametrize(
    ("field", "value", "fault"),
    [("flag_bits", 1, "encrypted"), ("compress_type", 97, "compression")],
)
def test_what_zipfile_cannot_unpack_is_told_in_one_line(tmp_path, field, value, fault):
    archive, offset = make_zip(tmp_path / "x.zip", [("a", b"1" * 50)]), {"flag_bits": 6}
    raw = bytearray(archive.read_bytes())
    for at in (offset.get(field, 8), raw.index(b"PK\1\2") + 2 + offset.get(field, 8)):
        raw[at] = value
    archive.write_bytes(raw)
    with pytest.raises(ArchiveError, match=rf"x\.zip: .*{fault}.*\(unpack it by another program"):
        unpack(archive, tmp_path / "out")
    assert names(tmp_path) == ["x.zip"]


def test_a_full_disk_is_no_damaged_archive(tmp_path, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(zipfile.ZipFile, "extractall", full)
    with pytest.raises(OSError, match="No space left"):
        unpack(make_zip(tmp_path / "x.zip", [("a", b"1")]), tmp_path / "out")
    assert names(tmp_path) == ["x.zip"]
