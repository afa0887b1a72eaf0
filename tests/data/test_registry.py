"""The registry's records, the page that describes them, and `get` against a server on localhost."""

import hashlib
import io
import re
import threading
import zipfile
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from mmlib.core.errors import DataError
from mmlib.core.paths import PACKAGE
from mmlib.data import registry
from mmlib.data.download import DownloadError
from mmlib.data.registry import DATA_SETS, DataSet, get


@pytest.mark.parametrize("item", DATA_SETS.values(), ids=DATA_SETS)
def test_records_are_complete(item):
    assert set(item.papers) <= {"coherence", "entailment", "cora", "links"}
    assert item.papers
    assert item.remotes or item.how
    assert re.match("https?://", item.source)
    assert all((item.feeds, item.licence, item.citation, item.size, item.layout))
    for remote in item.remotes:
        assert remote.keys() <= {"urls", "path", "archive", "inner", "sha256"}
        assert all(re.match("https?://[a-z.]+/", url) for url in remote["urls"])
        assert remote.get("archive") or remote["path"] != "."
        assert not remote["path"].startswith(("/", ".."))
        assert re.fullmatch("[0-9a-f]{64}", remote.get("sha256", 64 * "0"))


def test_the_page_describes_every_data_set():
    page = (PACKAGE.parent / "data" / "README.md").read_text()
    sections = re.findall(r"^### (\w+)$", page, re.MULTILINE)
    assert sections == list(DATA_SETS)
    for item in DATA_SETS.values():
        section = page.split(f"### {item.name}\n")[1].split("\n### ")[0]
        assert re.search(r"https?://[^ )\n]+", item.source)[0] in section
        row = next(line for line in page.splitlines() if line.startswith(f"| `{item.name}` "))
        assert ("by program" if item.remotes else "by hand") in row
        assert all(paper in row for paper in item.papers)


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A data set of one file and one archive, its server, and an empty data folder."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "labels.csv").write_text("a,b\n")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("Flicker8k_Dataset/1.jpg", b"picture")
        archive.writestr("__MACOSX/._1.jpg", b"")
    (site / "images.zip").write_bytes(packed.getvalue())

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    monkeypatch.setenv("MMLIB_DATA", str(tmp_path / "data"))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        yield DataSet(
            name="toy", papers=["links"], feeds="x", source="x", licence="x", citation="x",
            size="x", layout=["labels.csv|captions.csv", "Images/*.jpg"],
            remotes=[
                {"urls": [f"{address}/gone.csv", f"{address}/labels.csv"], "path": "labels.csv",
                 "sha256": hashlib.sha256(b"a,b\n").hexdigest()},
                {"urls": [f"{address}/images.zip"], "path": "Images", "archive": True,
                 "inner": "Flicker8k_Dataset"},
            ],
        )  # fmt: skip
        server.shutdown()


def tree(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_get_downloads_and_unpacks_and_then_has_nothing_to_do(served, tmp_path):
    assert served.missing()
    for _ in range(2):
        assert get(served) == [served.folder / "labels.csv", served.folder / "Images"]
        assert tree(tmp_path / "data") == ["toy/Images/1.jpg", "toy/labels.csv"]
        assert not served.missing()
    (tmp_path / "site" / "images.zip").unlink()
    get(served)  # what is in place is not asked for again
    (served.folder / "labels.csv").unlink()
    assert served.missing()
    (served.folder / "captions.csv").write_text("a,b\n")
    assert not served.missing()


def test_a_failing_part_leaves_the_others_and_no_half_folder(served, tmp_path):
    (tmp_path / "site" / "images.zip").unlink()
    with pytest.raises(DownloadError, match="404"):
        get(served)
    assert tree(tmp_path / "data") == ["toy/labels.csv"]
    assert served.missing()


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


def test_by_hand_says_how():
    with pytest.raises(DataError, match=r"flickr30k: cannot be downloaded .* request form"):
        get(DATA_SETS["flickr30k"])
    with pytest.raises(DataError, match=r"no data set 'toy' \(choose from flickr8k, clue"):
        registry.find("toy")
