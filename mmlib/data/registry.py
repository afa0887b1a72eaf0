"""The data sets of `datasets.yaml`: where they come from, on what terms, and how to get them.

Downloads are pooch's, which here resume and try mirrors; what is unpacked stays in its folder.
"""

import os
import re
import shutil
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.utils import formatdate, parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pooch
import requests
import yaml
from tqdm.auto import tqdm

from mmlib.core.errors import DataError
from mmlib.core.files import listed, regular_file
from mmlib.core.paths import data_dir
from mmlib.data.tables import check_choice, error_at

CHUNK, TIMEOUT = 1 << 16, 60.0  # bytes, seconds
ATTEMPTS = 3  # at one address
MOST = 100  # times its own size that an archive may unpack to; texts come to about 10
pooch.get_logger().setLevel("WARNING")  # else it prints the checksum of what has none


@dataclass(frozen=True)
class DataSet:
    """One data set; the fields are explained at the top of `datasets.yaml`."""

    name: str
    papers: list[str]
    feeds: str
    source: str
    licence: str
    citation: str
    size: str
    layout: list[str]
    remotes: list[dict[str, Any]]
    how: str = ""

    @property
    def folder(self) -> Path:
        """Its folder inside the data folder."""
        return data_dir() / self.name

    def missing(self, folder: Path | None = None) -> list[str]:
        """Patterns of the layout that no file in the folder matches."""
        folder = folder or self.folder
        return [
            patterns
            for patterns in self.layout
            if not any(listed(folder, pattern) for pattern in patterns.split("|"))
        ]


with Path(__file__).with_name("datasets.yaml").open(encoding="utf-8") as _file:
    DATA_SETS = {
        name: DataSet(name, **{"remotes": [], **fields})
        for name, fields in yaml.safe_load(_file).items()
    }


def find(name: str) -> DataSet:
    """The data set of that name; raises DataError that lists the names."""
    check_choice("data set", name, DATA_SETS)
    return DATA_SETS[name]


def get(item: DataSet) -> list[Path]:
    """Download and unpack what can be fetched; files and folders already there are kept.

    Returns the paths that are now in place. Raises DataError for what fails, and where the data set
    can only be obtained by hand.
    """
    if not item.remotes:
        raise DataError(f"{item.name}: cannot be downloaded by a program. {item.how}")
    placed = []
    for remote in item.remotes:
        target, urls, sha256 = item.folder / remote["path"], remote["urls"], remote.get("sha256")
        if target.is_dir() and any(target.iterdir()):
            if target == item.folder and (lacking := item.missing()):
                problem = f"is not empty, but lacks {', '.join(lacking)}"
                raise error_at(target, None, problem, "move away what is there, then get it again")
        elif not (target.exists() and not target.is_dir() and regular_file(target)):
            if remote.get("archive"):
                archive = data_dir() / ".downloads" / Path(urlparse(urls[0]).path).name
                unpack(download(urls, archive, sha256), target, remote.get("inner", ""))
                archive.unlink()
            else:
                download(urls, target, sha256)
        placed.append(target)
    return placed


def download(urls: Sequence[str], path: Path, sha256: str | None = None) -> Path:
    """Fetch the file `path` from the first of `urls` that has it complete.

    pooch verifies the checksum; without one, a complete answer of the server is all that is known.
    What a broken connection left is kept beside `path`, and the next attempt or call resumes there
    where the server dates its file. A file already at `path` is kept if its checksum is right
    (or not known), else fetched again.

    Raises DataError: no such page, broken connection, wrong checksum.
    """
    failures = []
    for url in urls:
        partial_file = path.with_name(f".{pooch.utils.unique_file_name(url)}.part")
        fetch = partial(_resume, partial_file=partial_file)
        for left in reversed(range(ATTEMPTS)):
            try:
                pooch.retrieve(url, sha256, path.name, path.parent, downloader=fetch)
                return path
            except requests.HTTPError as error:  # an answer, so asking again will not help
                mend = "the address may have moved; see data/README.md for other ways to get it"
                failures.append(f"{error} ({mend})")
                break
            except requests.RequestException as error:
                if not left:
                    size = partial_file.stat().st_size if partial_file.exists() else 0
                    mend = "run the same command again to go on from there"
                    failures.append(f"{url}: broken off after {size:,} bytes: {error} ({mend})")
            except ValueError as error:  # pooch's: another checksum
                failures.append(f"{url}: {error} (the damaged copy is deleted; get it again)")
                break
    raise DataError("; ".join(failures))


def _resume(url: str, output: str, _: object, *, partial_file: Path) -> None:
    # A downloader for pooch: completes `partial_file` by one request and names it `output`. It
    # carries the date of the server's file, so that two versions are never joined.
    status = partial_file.stat() if partial_file.exists() else None
    size, dated = (status.st_size, status.st_mtime) if status else (0, 0.0)
    headers = {"User-Agent": "mmlib", "Accept-Encoding": "identity"}
    if size and dated:
        headers |= {"Range": f"bytes={size}-", "If-Range": formatdate(dated, usegmt=True)}
    with requests.get(url, headers=headers, timeout=TIMEOUT, stream=True) as answer:
        date = 0.0  # of no known version, so that a broken download begins anew
        with suppress(ValueError, TypeError, OverflowError):  # servers write anything
            modified = answer.headers.get("Last-Modified", "")
            date = max(parsedate_to_datetime(modified).timestamp(), 0.0)
        continues = answer.headers.get("Content-Range", "").startswith(f"bytes {size}-")
        fits = answer.status_code != 206 or (continues and date == dated)
        if answer.status_code == 416 or not fits:
            partial_file.unlink(missing_ok=True)
            raise requests.ConnectionError("the partial file did not fit; starting again")
        answer.raise_for_status()
        size = size if answer.status_code == 206 else 0
        length = answer.headers.get("Content-Length", "")
        total = size + int(length) if re.fullmatch("[0-9]+", length) else None
        bar = tqdm(total=total, initial=size, unit="B", unit_scale=True, desc=url, disable=None)
        try:
            with bar, partial_file.open("ab" if size else "wb") as file:
                for chunk in answer.iter_content(CHUNK):
                    file.write(chunk)
                    bar.update(len(chunk))
        finally:
            os.utime(partial_file, (date, date))
    os.replace(partial_file, output)


def unpack(archive: Path, folder: Path, inner: str = "") -> None:
    """Unpack a zip archive so that it becomes `folder`, which may be there only if it is empty.

    inner: the folder inside the archive that becomes `folder`; the whole archive when empty.
    Nothing appears at `folder` until all of it is unpacked, and nothing is written outside:
    absolute names and `..` lose these parts and links become files.

    Raises DataError: damaged, encrypted, another archive, more than MOST times its own size, or
    than there is room for.
    """
    scratch = folder.with_name(f".{folder.name}.unpacking")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        with zipfile.ZipFile(archive) as zipped:
            # zipfile writes no more of an entry than the size that is named.
            entries, packed = zipped.infolist(), archive.stat().st_size
            size, free = sum(e.file_size for e in entries), shutil.disk_usage(scratch).free
            if size > MOST * packed:
                problem = f"would unpack to {size:,} bytes, more than {MOST} times its {packed:,}"
                raise error_at(archive, None, problem, "delete it; is it the right archive?")
            if size > free:
                problem = f"would unpack to {size:,} bytes, but {free:,} are free"
                mend = "make room, then run the same command again"
                raise error_at(archive, None, problem, mend)
            zipped.extractall(scratch, tqdm(entries, desc=f"unpack {archive.name}", disable=None))
        if not (scratch / inner).is_dir():
            raise error_at(archive, None, f"no folder {inner}/ inside", "is it the right archive?")
        if folder.exists():
            folder.rmdir()
        os.replace(scratch / inner, folder)
    except Exception as error:  # zipfile has many for archives that are damaged or encrypted
        if isinstance(error, DataError) or getattr(error, "errno", None):  # the disk's
            raise
        mend = "delete it and get it again, or unpack it by another program"
        raise error_at(archive, None, f"cannot be unpacked here: {error}", mend) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
