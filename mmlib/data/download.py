"""Downloads by pooch, which resume and try mirrors, and unpacking that stays in its folder."""

import lzma
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
MOST = 100  # times its own size that an archive may unpack to; texts come to about 10
pooch.get_logger().setLevel("WARNING")  # else it prints the checksum of what has none


class DownloadError(OSError):
    """A download that failed; the message names the addresses and the mend."""


class ArchiveError(ValueError):
    """An archive that cannot be unpacked; the message names the mend."""


def download(
    urls: str | Sequence[str],
    path: Path,
    *,
    sha256: str | None = None,
    attempts: int = 3,
    timeout: float = 60.0,
) -> Path:
    """Fetch the file `path` from the first of `urls` that has it complete.

    pooch verifies the checksum; without one, a complete answer of the server is all that is known.
    What a broken connection left is kept beside `path`, and the next attempt or call resumes there
    where the server dates its file. A file already at `path` is kept if its checksum is right
    (or not known), else fetched again.

    Raises DownloadError: no such page, broken connection, wrong checksum.
    """
    failures = []
    for url in [urls] if isinstance(urls, str) else urls:
        partial_file = path.with_name(f".{pooch.utils.unique_file_name(url)}.part")
        fetch = partial(_resume, partial_file=partial_file, timeout=timeout)
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
                    size = partial_file.stat().st_size if partial_file.exists() else 0
                    mend = "run the same command again to go on from there"
                    failures.append(f"{url}: broken off after {size:,} bytes: {error} ({mend})")
            except ValueError as error:  # pooch's: another checksum
                failures.append(f"{url}: {error} (the damaged copy is deleted; get it again)")
                break
    raise DownloadError("; ".join(failures))


def _resume(url: str, output: str, _: object, *, partial_file: Path, timeout: float) -> None:
    """A downloader for pooch: complete `partial_file` by one request and name it `output`.

    `partial_file` carries the date of the server's file, so that two versions are never joined.
    """
    status = partial_file.stat() if partial_file.exists() else None
    size, dated = (status.st_size, status.st_mtime) if status else (0, 0.0)
    headers = {"User-Agent": "mmlib", "Accept-Encoding": "identity"}
    if size and dated:
        headers |= {"Range": f"bytes={size}-", "If-Range": formatdate(dated, usegmt=True)}
    with requests.get(url, headers=headers, timeout=timeout, stream=True) as answer:
        modified = answer.headers.get("Last-Modified")
        date = parsedate_to_datetime(modified).timestamp() if modified else 0.0
        continues = answer.headers.get("Content-Range", "").startswith(f"bytes {size}-")
        fits = answer.status_code != 206 or (continues and date == dated)
        if answer.status_code == 416 or not fits:
            partial_file.unlink(missing_ok=True)
            raise requests.ConnectionError("the partial file did not fit; starting again")
        answer.raise_for_status()
        size = size if answer.status_code == 206 else 0
        length = answer.headers.get("Content-Length")
        total = size + int(length) if length else None
        bar = tqdm(total=total, initial=size, unit="B", unit_scale=True, desc=url, disable=None)
        try:
            with bar, partial_file.open("ab" if size else "wb") as file:
                for chunk in answer.iter_content(CHUNK):
                    file.write(chunk)
                    bar.update(len(chunk))
        finally:
            os.utime(partial_file, (date, date))
    os.replace(partial_file, output)


def unpack(archive: Path, folder: Path, inner: str = "") -> Path:
    """Unpack a zip archive so that it becomes `folder`.

    inner: the folder inside the archive that becomes `folder`; the whole archive when empty.
    Nothing appears at `folder` until all of it is unpacked, and nothing is written outside:
    absolute names and `..` lose these parts and links become files.

    Raises ArchiveError (damaged, encrypted, another archive, more than MOST times its own size, or
    than there is room for), FileExistsError (`folder` is not empty).
    """
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty (move it away, then unpack again)")
    again, scratch = "delete it and get it again", folder.with_name(f".{folder.name}.unpacking")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        with zipfile.ZipFile(archive) as zipped:
            # zipfile writes no more of an entry than the size that is named.
            entries, own = zipped.infolist(), archive.stat().st_size
            size, free = sum(e.file_size for e in entries), shutil.disk_usage(scratch).free
            if size > MOST * own:
                raise ArchiveError(
                    f"{archive}: has {own:,} bytes and would unpack to {size:,}, more than {MOST} "
                    "times as many (delete it; is it the right archive?)"
                )
            if size > free:
                raise ArchiveError(
                    f"{archive}: would unpack to {size:,} bytes, but {free:,} are free in "
                    f"{scratch.parent} (make room, then run the same command again)"
                )
            zipped.extractall(scratch, tqdm(entries, desc=f"unpack {archive.name}", disable=None))
        if not (scratch / inner).is_dir():
            raise ArchiveError(f"{archive}: no folder {inner}/ inside (is it the right archive?)")
        if folder.exists():
            folder.rmdir()
        os.replace(scratch / inner, folder)
    except ArchiveError:
        raise
    except RuntimeError as error:  # zipfile's: encrypted, or a compression that it does not know
        mend = f"unpack it by another program, or {again}"
        raise ArchiveError(f"{archive}: cannot be unpacked here: {error} ({mend})") from error
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno:  # the disk's, not the archive's
            raise
        raise ArchiveError(f"{archive}: damaged, or no zip: {error} ({again})") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder
