"""Downloads and unpacking, against a server on localhost that misbehaves on request."""

import hashlib
import io
import os
import re
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from mmlib.data.download import ArchiveError, DownloadError, download, unpack

BODY = bytes(range(256)) * 4096  # 1 MiB
DIGEST = hashlib.sha256(BODY).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves `body`; cuts the first `cuts` answers short, ignores ranges, or changes its file."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.body, self.cuts, self.ranges, self.etag = BODY, 0, True, '"v1"'
        self.asked: list[str | None] = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/set.bin"


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):
        server = self.server
        asked = self.headers.get("Range")
        server.asked.append(asked)
        if not self.path.endswith("set.bin"):
            self.send_error(404)
            return
        start = 0
        if asked and server.ranges and self.headers.get("If-Range") == server.etag:
            start = int(re.match(r"bytes=(\d+)-", asked)[1])
        if start >= len(server.body):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(server.body)}")
            self.end_headers()
            return
        rest = server.body[start:]
        self.send_response(206 if start else 200)
        if start:
            end = len(server.body) - 1
            self.send_header("Content-Range", f"bytes {start}-{end}/{len(server.body)}")
        if server.etag:
            self.send_header("ETag", server.etag)
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        if server.cuts:
            server.cuts -= 1
            rest = rest[: len(rest) // 2]
        self.wfile.write(rest)


@pytest.fixture
def server():
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield running
        running.shutdown()


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def test_plain_download(server, tmp_path):
    path = download(server.url, tmp_path / "deep" / "set.bin", sha256=DIGEST)
    assert path.read_bytes() == BODY
    assert names(path.parent) == ["set.bin"]


def test_truncated_body_is_resumed_within_one_call(server, tmp_path):
    server.cuts = 2
    path = download(server.url, tmp_path / "set.bin", sha256=DIGEST)
    assert path.read_bytes() == BODY
    assert server.asked == [None, f"bytes={len(BODY) // 2}-", f"bytes={len(BODY) * 3 // 4}-"]


def test_truncated_body_then_a_second_call_goes_on(server, tmp_path):
    server.cuts = 1
    with pytest.raises(DownloadError, match=r"524,288 of 1,048,576.*again to go on"):
        download(server.url, tmp_path / "set.bin", attempts=1)
    assert not (tmp_path / "set.bin").exists()
    download(server.url, tmp_path / "set.bin", attempts=1)
    assert (tmp_path / "set.bin").read_bytes() == BODY
    assert server.asked[-1] == "bytes=524288-"
    assert names(tmp_path) == ["set.bin"]


def test_server_without_ranges_starts_again(server, tmp_path):
    server.cuts, server.ranges = 1, False
    path = download(server.url, tmp_path / "set.bin", sha256=DIGEST)
    assert path.read_bytes() == BODY
    assert len(server.asked) == 2


def test_two_versions_of_a_file_are_never_joined(server, tmp_path):
    server.cuts = 1
    with pytest.raises(DownloadError):
        download(server.url, tmp_path / "set.bin", attempts=1)
    server.body, server.etag = BODY[::-1], '"v2"'
    assert download(server.url, tmp_path / "set.bin").read_bytes() == BODY[::-1]


def test_nothing_to_compare_with_means_no_resume(server, tmp_path):
    server.cuts, server.etag = 1, None
    assert download(server.url, tmp_path / "set.bin").read_bytes() == BODY
    assert server.asked == [None, None]


def test_complete_partial_file_is_taken(server, tmp_path):
    server.cuts = 1
    with pytest.raises(DownloadError):
        download(server.url, tmp_path / "set.bin", attempts=1)
    (tmp_path / ".set.bin.part").write_bytes(BODY)  # killed between the last byte and the rename
    assert download(server.url, tmp_path / "set.bin", sha256=DIGEST).read_bytes() == BODY


def test_wrong_checksum_keeps_nothing(server, tmp_path):
    with pytest.raises(DownloadError, match="SHA-256"):
        download(server.url, tmp_path / "set.bin", sha256="0" * 64)
    assert names(tmp_path) == []


def test_wrong_length_keeps_nothing(server, tmp_path):
    with pytest.raises(DownloadError, match="1,048,576 bytes instead of 99"):
        download(server.url, tmp_path / "set.bin", expected_bytes=99)
    assert names(tmp_path) == []


def test_not_found(server, tmp_path):
    with pytest.raises(DownloadError, match="404"):
        download(server.url.replace("set", "none"), tmp_path / "none.bin")
    assert names(tmp_path) == []
    assert len(server.asked) == 1  # a definite answer is not asked for again


def test_no_server(tmp_path):
    with pytest.raises(DownloadError, match="broken off"):
        download("http://127.0.0.1:9/set.bin", tmp_path / "set.bin", attempts=1)
    assert names(tmp_path) == []


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
    with pytest.raises(DownloadError, match="delete it"):
        download(server.url, tmp_path / "set.bin", sha256=DIGEST)


def make_zip(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in members:
            packed.writestr(name, data)
    return path


def make_tar(path, members):
    with tarfile.open(path, "w:gz") as packed:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            packed.addfile(info, io.BytesIO(data))
    return path


GOOD = [("set/a.txt", b"a"), ("set/sub/b.txt", b"b" * 1000), ("__MACOSX/junk", b"")]


@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_unpack(tmp_path, make):
    archive = make(tmp_path / "x.pack", GOOD)
    unpack(archive, tmp_path / "out" / "set", inner="set")
    assert (tmp_path / "out/set/sub/b.txt").read_bytes() == b"b" * 1000
    assert names(tmp_path / "out") == ["set"]
    unpack(archive, tmp_path / "whole")
    assert names(tmp_path / "whole") == ["__MACOSX", "set"]
    with pytest.raises(FileExistsError, match="not empty"):
        unpack(archive, tmp_path / "whole")
    with pytest.raises(ArchiveError, match="no folder other/"):
        unpack(archive, tmp_path / "o2", inner="other")


@pytest.mark.parametrize("make", [make_zip, make_tar])
@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "..\\evil", "C:\\evil"])
def test_archive_may_not_leave_its_folder(tmp_path, make, name):
    archive = make(tmp_path / "x.pack", [("fine", b"1"), (name, b"2")])
    with pytest.raises(ArchiveError, match="outside the folder"):
        unpack(archive, tmp_path / "out" / "in")
    assert names(tmp_path) == ["out", "x.pack"]
    assert names(tmp_path / "out") == []


def test_links_are_refused(tmp_path):
    with tarfile.open(tmp_path / "x.tar", "w") as packed:
        info = tarfile.TarInfo("link")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        packed.addfile(info)
    with pytest.raises(ArchiveError, match="a link"):
        unpack(tmp_path / "x.tar", tmp_path / "out")
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as packed:
        entry = zipfile.ZipInfo("link")
        entry.external_attr = 0o120777 << 16
        packed.writestr(entry, "/etc/passwd")
    with pytest.raises(ArchiveError, match="a link"):
        unpack(tmp_path / "x.zip", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_damaged_archive_leaves_nothing(tmp_path, make):
    archive = make(tmp_path / "x.pack", [("a", os.urandom(5000)), ("b", os.urandom(5000))])
    raw = bytearray(archive.read_bytes())
    raw[2000:2100] = bytes(100)
    archive.write_bytes(raw)
    with pytest.raises(ArchiveError, match="damaged"):
        unpack(archive, tmp_path / "out")
    assert names(tmp_path) == ["x.pack"]


def test_not_an_archive(tmp_path):
    (tmp_path / "page.zip").write_text("<html>sign in</html>")
    with pytest.raises(ArchiveError, match="neither zip nor tar"):
        unpack(tmp_path / "page.zip", tmp_path / "out")


def test_half_unpacked_folder_of_an_earlier_run_is_replaced(tmp_path):
    (tmp_path / ".out.unpacking").mkdir()
    (tmp_path / ".out.unpacking" / "stale").write_text("x")
    unpack(make_zip(tmp_path / "x.zip", [("a", b"1")]), tmp_path / "out")
    assert names(tmp_path) == ["out", "x.zip"]
    assert names(tmp_path / "out") == ["a"]
