"""Downloads by pooch, which resume and try mirrors, and unpacking that stays in its folder."""

import os
import shutil
import zipfile
import zlib
from collections.abc import Sequence
from email.utils import formatdate, parsedate_to_datetime
from functools import partial
from pathlib import Path

import pooch
import requests
from tqdm.auto import tqdm

CHUNK = 1 << 16
pooch.get_logger().setLevel("WARNING")  # else it prints the checksum of what has none


class DownloadError(OSError):
    """A download that failed; the message names the addresses and the mend."""


class ArchiveError(ValueError):
    """An archive that is damaged or another; the message names the mend."""


def download(
    urls: str | Sequence[str],
    path: Path,
    *,
    sha256: str | None = None,
    expected_bytes: int | None = None,
    attempts: int = 3,
    timeout: float = 60.0,
) -> Path:
    """Fetch the file `path` from the first of `urls` that has it whole, and check it.

    What a broken connection left is kept beside `path`, and the next attempt or call goes on from
    there where the server dates its file. A file already at `path` is kept if its checksum is right
    (or not known), else fetched again.

    Raises DownloadError: no such page, broken connection, wrong length, wrong checksum.
    """
    failures = []
    for url in [urls] if isinstance(urls, str) else urls:
        part = path.with_name(f".{pooch.utils.unique_file_name(url)}.part")
        fetch = partial(_fetch, part=part, expected_bytes=expected_bytes, timeout=timeout)
        for left in reversed(range(attempts)):
            try:
                pooch.retrieve(url, sha256, path.name, path.parent, downloader=fetch)
                return path
            except requests.HTTPError as error:  # an answer, so asking again will not help
                mend = "the address may have moved; see data/README.md for other ways to get it"
                failures.append(f"{error} ({mend})")
                break
            except requests.RequestException as error:
                if not left:
                    kept = part.stat().st_size if part.exists() else 0
                    mend = "run the same command again to go on from there"
                    failures.append(f"{url}: broken off after {kept:,} bytes: {error} ({mend})")
            except ValueError as error:  # wrong length or checksum
                failures.append(f"{url}: {error} (the damaged copy is deleted; get it again)")
                break
    raise DownloadError("; ".join(failures))


def _fetch(
    url: str, whole: str, _: object, *, part: Path, expected_bytes: int | None, timeout: float
) -> None:
    """Bring `part` to full length by one request and name it `whole`.

    `part` carries the date of the server's file, so that two versions are never joined.
    """
    have, dated = (part.stat().st_size, part.stat().st_mtime) if part.exists() else (0, 0.0)
    headers = {"User-Agent": "mmlib", "Accept-Encoding": "identity"}
    if have and dated:
        headers |= {"Range": f"bytes={have}-", "If-Range": formatdate(dated, usegmt=True)}
    with requests.get(url, headers=headers, timeout=timeout, stream=True) as answer:
        modified = answer.headers.get("Last-Modified")
        date = parsedate_to_datetime(modified).timestamp() if modified else 0.0
        rest = answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        if answer.status_code == 416 or (
            answer.status_code == 206 and not (rest and date == dated)
        ):
            part.unlink(missing_ok=True)
            raise requests.ConnectionError("the partial file did not fit; starting again")
        answer.raise_for_status()
        have = have if answer.status_code == 206 else 0
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length else expected_bytes
        bar = tqdm(total=total, initial=have, unit="B", unit_scale=True, desc=url, disable=None)
        try:
            with bar, part.open("ab" if have else "wb") as file:
                for chunk in answer.iter_content(CHUNK):
                    file.write(chunk)
                    bar.update(len(chunk))
        finally:
            os.utime(part, (date, date))
    size = part.stat().st_size
    os.replace(part, whole)
    if expected_bytes is not None and size != expected_bytes:
        raise ValueError(f"{size:,} bytes instead of {expected_bytes:,}")


def unpack(archive: Path, folder: Path, inner: str = "") -> Path:
    """Unpack a zip archive so that it becomes `folder`.

    inner: the folder inside the archive that becomes `folder`; the whole archive when empty.
    Nothing appears at `folder` until all of it is unpacked, and nothing is written outside:
    absolute names and `..` lose these parts and links become files.

    Raises ArchiveError (damaged, another archive), FileExistsError (`folder` is not empty).
    """
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty (move it away, then unpack again)")
    scratch = folder.with_name(f".{folder.name}.unpacking")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        _extract(archive, scratch)
        if not (scratch / inner).is_dir():
            raise ArchiveError(f"{archive}: no folder {inner}/ inside (is it the right archive?)")
        if folder.exists():
            folder.rmdir()
        os.replace(scratch / inner, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder


def _extract(archive: Path, scratch: Path) -> None:
    bar = partial(tqdm, desc=f"unpack {archive.name}", disable=None)
    try:
        with zipfile.ZipFile(archive) as zipped:
            zipped.extractall(scratch, bar(zipped.namelist()))
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        mend = "delete it and get it again"
        raise ArchiveError(f"{archive}: damaged, or no zip: {error} ({mend})") from error
