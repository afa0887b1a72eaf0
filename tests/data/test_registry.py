"""The registry's records and page; `get`, downloads and unpacking, from servers on localhost."""

import errno
import hashlib
import os
import re
import shutil
import threading
import zipfile
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest.mock import Mock

import pytest

from mmlib.core.errors import DataError
from mmlib.core.paths import PACKAGE
from mmlib.data import registry
from mmlib.data.registry import DATA_SETS, DataSet, download, get, unpack

BODY = bytes(range(256)) * 4096  # 1 MiB
DATES = ("Wed, 21 Oct 2015 07:28:00 GMT", "Thu, 22 Oct 2015 07:28:00 GMT")


@pytest.mark.parametrize("item", DATA_SETS.values(), ids=DATA_SETS)
def test_records_are_complete_and_the_page_describes_them(item):
    assert set(item.papers) <= {"coherence", "entailment", "cora", "links"}
    assert all((item.papers, item.feeds, item.licence, item.citation, item.size, item.layout))
    assert item.remotes or item.how
    for remote in item.remotes:
        assert remote.keys() <= {"urls", "path", "archive", "inner", "sha256"}
        assert all(re.match("https?://[a-z.]+/", url) for url in remote["urls"])
        assert remote.get("archive") or remote["path"] != "."
        assert not remote["path"].startswith(("/", ".."))
        assert re.fullmatch("[0-9a-f]{64}", remote.get("sha256", 64 * "0"))
    page = (PACKAGE.parent / "data" / "README.md").read_text()
    assert re.findall(r"^### (\w+)$", page, re.MULTILINE) == list(DATA_SETS)
    section = page.split(f"### {item.name}\n")[1].split("\n### ")[0]
    assert re.search(r"https?://[^ )\n]+", item.source)[0] in section
    row = next(line for line in page.splitlines() if line.startswith(f"| `{item.name}` "))
    assert ("by program" if item.remotes else "by hand") in row
    assert all(paper in row for paper in item.papers)


class Server(ThreadingHTTPServer):
    """Serves `files`; cuts the first `cuts` answers short, ignores ranges, or changes its file."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.cuts, self.ranges, self.date = {"/set.bin": BODY}, 0, True, DATES[0]
        self.length = "{}"
        self.careless = False  # continues another file than the one that was asked for
        self.asked: list[str | None] = []
        self.address = f"http://127.0.0.1:{self.server_address[1]}"
        self.urls = [f"{self.address}/set.bin"]


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):
        server, start = self.server, 0
        asked = self.headers.get("Range")
        server.asked.append(asked)
        body = server.files.get(self.path)
        if body is None:
            self.send_error(404)
            return
        same = server.careless or self.headers.get("If-Range") == server.date
        if asked and server.ranges and same:
            start = int(re.match(r"bytes=(\d+)-", asked)[1])
        if start >= len(body):
            self.send_error(416)
            return
        remainder = body[start:]
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        if server.date:
            self.send_header("Last-Modified", server.date)
        if server.length:
            self.send_header("Content-Length", server.length.format(len(remainder)))
        self.end_headers()
        if server.cuts:
            server.cuts -= 1
            remainder = remainder[: len(remainder) // 2]
        self.wfile.write(remainder)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(registry, "ATTEMPTS", 2)
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield running
        running.shutdown()


def names(folder):
    return sorted(p.name for p in folder.iterdir())


# Downloads


def test_a_cut_download_goes_on_within_a_call_and_in_the_next(server, tmp_path):
    server.cuts = 3
    with pytest.raises(DataError, match=r"broken off after [\d,]+ bytes.*again to go on"):
        download(server.urls, tmp_path / "deep" / "set.bin")
    assert not (tmp_path / "deep" / "set.bin").exists()
    digest = hashlib.sha256(BODY).hexdigest()
    path = download(server.urls, tmp_path / "deep" / "set.bin", digest)
    assert path.read_bytes() == BODY
    assert names(path.parent) == ["set.bin"]
    starts = [int(asked[6:-1]) for asked in server.asked[1:]]
    assert starts == sorted(set(starts))  # each further on than the one before
    assert starts[0] > len(BODY) / 3
    path.write_bytes(b"other")
    for _ in range(2):  # fetched again, then kept
        assert download(server.urls, path, digest).read_bytes() == BODY
    assert len(server.asked) == 5


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
def test_two_versions_of_a_file_are_never_joined(server, tmp_path, monkeypatch, change):
    server.cuts, server.date = 1, change.get("date", DATES[0]) and DATES[0]
    monkeypatch.setattr(registry, "ATTEMPTS", 1)
    with pytest.raises(DataError):
        download(server.urls, tmp_path / "set.bin")
    monkeypatch.setattr(registry, "ATTEMPTS", 2)
    server.files["/set.bin"] = change.pop("body", BODY)
    vars(server).update(change)
    assert download(server.urls, tmp_path / "set.bin").read_bytes() == server.files["/set.bin"]
    assert names(tmp_path) == ["set.bin"]


@pytest.mark.parametrize("length", ["{}", "", "-5", "-{}", "many", "{}.0"])
@pytest.mark.parametrize(
    "date",
    [None, "not a date", "0", "Wed, 99 Foo 2015 07:28:00 GMT", "2015-10-21",
     "Wed, 31 Dec 1969 23:59:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT"],
)  # fmt: skip
def test_odd_headers_spoil_no_good_file(server, tmp_path, date, length):
    server.date, server.length = date, length
    assert download(server.urls, tmp_path / "set.bin").read_bytes() == BODY
    assert names(tmp_path) == ["set.bin"]


def test_a_wrong_file_is_not_kept(server, tmp_path):
    with pytest.raises(DataError, match=r"SHA256 hash .* does not match.*get it again"):
        download(server.urls, tmp_path / "set.bin", sha256="0" * 64)
    assert names(tmp_path) == []
    assert len(server.asked) == 1


def test_mirrors_are_tried_in_turn(server, tmp_path):
    poor = [f"{server.address}/none.bin", "http://127.0.0.1:9/set.bin"]
    assert download([*poor, *server.urls], tmp_path / "set.bin").read_bytes() == BODY
    with pytest.raises(DataError, match=r"404 .*other ways.*; .*broken off after 0"):
        download(poor, tmp_path / "none.bin")
    assert server.asked == 3 * [None]  # a definite answer is not asked for again
    assert names(tmp_path) == ["set.bin"]


# Archives


def make_zip(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in members:
            packed.writestr(name, data)
    return path


def test_unpack(tmp_path):
    members = [("set/a.txt", b"a"), ("set/sub/b.txt", b"b" * 1000), ("__MACOSX/junk", b"")]
    archive = make_zip(tmp_path / "x.pack", members)
    (tmp_path / "out/.set.unpacking/stale").mkdir(parents=True)  # of a run that was killed
    unpack(archive, tmp_path / "out" / "set", inner="set")
    assert (tmp_path / "out/set/sub/b.txt").read_bytes() == b"b" * 1000
    assert names(tmp_path / "out") == ["set"]
    unpack(archive, tmp_path / "whole")
    assert names(tmp_path / "whole") == ["__MACOSX", "set"]


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "link"])
def test_archive_may_not_leave_its_folder(tmp_path, name):
    link = zipfile.ZipInfo("link")
    link.external_attr = 0o120777 << 16
    evil = (link, "/etc/passwd") if name == "link" else (name, b"2")
    unpack(make_zip(tmp_path / "x.pack", [("fine", b"1"), evil]), tmp_path / "out" / "in")
    assert (tmp_path / "out/in/fine").is_file()
    assert names(tmp_path / "out") == ["in"]  # the part that leads outside is dropped
    assert names(tmp_path) == ["out", "x.pack"]
    assert not Path("/evil").exists()
    assert not (tmp_path / "out/in/link").is_symlink()


def damaged(path):
    raw = bytearray(make_zip(path, [("a", os.urandom(5000)), ("b", os.urandom(5000))]).read_bytes())
    raw[2000:2100] = bytes(100)
    path.write_bytes(raw)


def hides_its_size(path):
    raw = make_zip(path, [("zeros", bytes(10**6))]).read_bytes()
    path.write_bytes(raw.replace((10**6).to_bytes(4, "little"), bytes(4)))


def changed(value, offset):
    def write(path):
        raw = bytearray(make_zip(path, [("a", b"1" * 50)]).read_bytes())
        for at in (offset, raw.index(b"PK\1\2") + 2 + offset):
            raw[at] = value
        path.write_bytes(raw)

    return write


@pytest.mark.parametrize(
    ("write", "inner", "message"),
    [
        (damaged, "", "cannot be unpacked here: .*get it again"),
        (hides_its_size, "", "cannot be unpacked here"),
        (lambda path: path.write_text("<html>sign in"), "", "cannot be unpacked here: .*not a zip"),
        (changed(1, 6), "", "encrypted.*by another program"),
        (changed(97, 8), "", "compression.*by another program"),
        (lambda path: make_zip(path, [("a", b"1")]), "other", "no folder other/ inside"),
        (lambda path: make_zip(path, [("zeros", bytes(10**6))]), "",
         r"would unpack to 1,000,000 bytes, more than 100 times its 1,\d+ \(delete it"),
    ],
)  # fmt: skip
def test_what_is_no_sound_archive_leaves_nothing(tmp_path, write, inner, message):
    write(tmp_path / "x.zip")
    with pytest.raises(DataError, match=rf"x\.zip: .*{message}"):
        unpack(tmp_path / "x.zip", tmp_path / "out", inner)
    assert names(tmp_path) == ["x.zip"]


def test_a_full_disk_is_no_damaged_archive(tmp_path, monkeypatch):
    full = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    archive = make_zip(tmp_path / "x.zip", [("text", b"a dog runs " * 100)])
    with monkeypatch.context() as patch:
        patch.setattr(zipfile.ZipFile, "extractall", full)
        with pytest.raises(OSError, match="No space left"):
            unpack(archive, tmp_path / "out")
    disk = shutil.disk_usage(tmp_path)._replace(free=999)
    monkeypatch.setattr(registry.shutil, "disk_usage", lambda folder: disk)
    with pytest.raises(DataError, match=r"1,100 bytes, but 999 are free \(make room"):
        unpack(archive, tmp_path / "out")
    assert names(tmp_path) == ["x.zip"]


# Data sets


@pytest.fixture
def served(server, tmp_path, monkeypatch):
    """A data set of one file and one archive, and an empty data folder."""
    monkeypatch.setenv("MMLIB_DATA", str(tmp_path / "data"))
    members = [("Flicker8k_Dataset/1.jpg", b"picture"), ("__MACOSX/._1.jpg", b"")]
    archive = make_zip(tmp_path / "images.zip", members).read_bytes()
    server.files |= {"/labels.csv": b"a,b\n", "/images.zip": archive}
    return DataSet(
        name="toy", papers=["links"], feeds="x", source="x", licence="x", citation="x",
        size="x", layout=["labels.csv|captions.csv", "Images/*.jpg"],
        remotes=[
            {"urls": [f"{server.address}/gone.csv", f"{server.address}/labels.csv"],
             "path": "labels.csv", "sha256": hashlib.sha256(b"a,b\n").hexdigest()},
            {"urls": [f"{server.address}/images.zip"], "path": "Images", "archive": True,
             "inner": "Flicker8k_Dataset"},
        ],
    )  # fmt: skip


def tree(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_get_downloads_and_unpacks_and_then_has_nothing_to_do(served, server, tmp_path):
    archive = server.files.pop("/images.zip")
    with pytest.raises(DataError, match="404"):
        get(served)
    assert tree(tmp_path / "data") == ["toy/labels.csv"]  # and no half folder
    assert served.missing()
    server.files["/images.zip"] = archive
    for _ in range(2):
        assert get(served) == [served.folder / "labels.csv", served.folder / "Images"]
        assert tree(tmp_path / "data") == ["toy/Images/1.jpg", "toy/labels.csv"]
        assert not served.missing()
    del server.files["/images.zip"]
    get(served)  # what is in place is not asked for again
    (served.folder / "labels.csv").unlink()
    assert served.missing()
    (served.folder / "captions.csv").write_text("a,b\n")
    assert not served.missing()


def test_a_folder_that_holds_something_else_is_not_taken_for_the_data(served, tmp_path):
    complete = replace(served, layout=["1.jpg"], remotes=[served.remotes[1] | {"path": "."}])
    complete.folder.mkdir(parents=True)
    (complete.folder / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match=r"toy: is not empty, but lacks 1\.jpg \(move away what"):
        get(complete)
    (complete.folder / "notes.txt").unlink()
    for _ in range(2):
        get(complete)
        assert tree(tmp_path / "data") == ["toy/1.jpg"]
