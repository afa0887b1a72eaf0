"""Downloads that resume and unpacking that cannot write outside its folder, both atomic."""

import http.client
import json
import os
import re
import shutil
import stat
import tarfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterable
from email.message import Message
from pathlib import Path, PurePosixPath

from tqdm.auto import tqdm

from mmlib.core.paths import file_sha256

CHUNK = 1 << 18
BROKEN = (TimeoutError, ConnectionError, http.client.HTTPException, urllib.error.URLError)


class DownloadError(OSError):
    """A download that failed; the message names the address and the mend."""


class ArchiveError(ValueError):
    """An archive that was refused or is damaged; the message names the member."""


def download(
    url: str,
    path: Path,
    *,
    sha256: str | None = None,
    expected_bytes: int | None = None,
    attempts: int = 3,
    timeout: float = 60.0,
) -> Path:
    """Fetch `url` into the file `path`, going on where an earlier call broke off.

    The body grows in a hidden file beside `path` and gets its name only when the length that the
    server announced (or `expected_bytes`) and `sha256`, where given, are right. A server that
    ignores ranges, or whose file changed meanwhile, is read from the start. A file already at
    `path` is kept, after its checksum.

    Raises DownloadError: no such page, broken connection, wrong length, wrong checksum.
    """
    if path.exists():
        _verify(path, url, sha256, expected_bytes, "delete it and get it again")
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    for attempt in range(1, attempts + 1):
        try:
            _fetch(url, part, expected_bytes, timeout)
            break
        except urllib.error.HTTPError as error:  # an answer, so asking again will not help
            raise DownloadError(
                f"{url}: the server answers {error.code} {error.reason} "
                "(the address may have moved; see data/README.md for other ways to get it)"
            ) from error
        except BROKEN as error:
            if attempt == attempts:
                kept = part.stat().st_size if part.exists() else 0
                raise DownloadError(
                    f"{url}: broken off after {kept:,} bytes: {error} "
                    "(run the same command again to go on from there)"
                ) from error
    try:
        _verify(part, url, sha256, expected_bytes, "the damaged copy is deleted; get it again")
    except DownloadError:
        _forget(part)
        raise
    os.replace(part, path)
    _forget(part)
    return path


def _fetch(url: str, part: Path, expected_bytes: int | None, timeout: float) -> None:
    """Bring `part` to full length by one request; raises ConnectionError when it stays short."""
    have = part.stat().st_size if part.exists() else 0
    validator = _validator(part, url)
    if have and validator is None:  # from another address, or nothing to compare with: not safe
        _forget(part)
        have = 0
    request = urllib.request.Request(url, headers={"User-Agent": "mmlib"})
    if have:
        request.add_header("Range", f"bytes={have}-")
        request.add_header("If-Range", str(validator))
    try:
        response = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # nothing after what we have
            if _range_total(error.headers) == have:
                return
            _forget(part)
            raise ConnectionError("the partial file did not fit; starting again") from error
        raise
    with response:
        resumed = response.status == 206 and _range_start(response.headers) == have
        have = have if resumed else 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length is not None else expected_bytes
        _remember(part, url, response.headers)
        bar = tqdm(total=total, initial=have, unit="B", unit_scale=True, desc=url, disable=None)
        with bar, part.open("ab" if resumed else "wb") as file:
            while chunk := response.read(CHUNK):
                file.write(chunk)
                bar.update(len(chunk))
    size = part.stat().st_size
    if total is not None and size < total:
        raise ConnectionError(f"{size:,} of {total:,} bytes arrived")


def _range_start(headers: Message) -> int | None:
    found = re.match(r"bytes (\d+)-", headers.get("Content-Range") or "")
    return int(found[1]) if found else None


def _range_total(headers: Message) -> int | None:
    found = re.search(r"/(\d+)$", headers.get("Content-Range") or "")
    return int(found[1]) if found else None


def _sidecar(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _remember(part: Path, url: str, headers: Message) -> None:
    """Note which version of the file `part` holds, so that two versions are never joined."""
    etag = headers.get("ETag") or ""
    strong = etag if etag and not etag.startswith("W/") else None
    validator = strong or headers.get("Last-Modified")
    _sidecar(part).write_text(json.dumps({"url": url, "validator": validator}))


def _validator(part: Path, url: str) -> str | None:
    try:
        noted = json.loads(_sidecar(part).read_text())
    except (OSError, ValueError):
        return None
    return noted.get("validator") if noted.get("url") == url else None


def _forget(part: Path) -> None:
    part.unlink(missing_ok=True)
    _sidecar(part).unlink(missing_ok=True)


def _verify(path: Path, url: str, sha256: str | None, length: int | None, mend: str) -> None:
    size = path.stat().st_size
    if length is not None and size != length:
        raise DownloadError(f"{path}: {size:,} bytes instead of {length:,} from {url} ({mend})")
    if sha256 is not None and (found := file_sha256(path)) != sha256.lower():
        raise DownloadError(f"{path}: SHA-256 {found} instead of {sha256} from {url} ({mend})")


def unpack(archive: Path, folder: Path, inner: str = "") -> Path:
    """Unpack a zip or tar archive (plain or compressed) so that it becomes `folder`.

    inner: the folder inside the archive that becomes `folder`; the whole archive when empty.
    Nothing appears at `folder` until all of it is unpacked. Refused before anything is written:
    members with absolute names or `..`, links, devices.

    Raises ArchiveError (refused or damaged), FileExistsError (`folder` is there and not empty).
    """
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty (move it away, then unpack again)")
    scratch = folder.with_name(f".{folder.name}.unpacking")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        _extract(archive, scratch)
        source = scratch / inner
        if not source.is_dir():
            raise ArchiveError(f"{archive}: no folder {inner}/ inside (is it the right archive?)")
        if folder.exists():
            folder.rmdir()
        os.replace(source, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder


def _extract(archive: Path, scratch: Path) -> None:
    damaged = (zipfile.BadZipFile, tarfile.TarError, EOFError, OSError)
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as packed:
                _refuse(archive, ((m.filename, _zip_kind(m)) for m in packed.infolist()))
                for member in tqdm(packed.infolist(), desc=f"unpack {archive.name}", disable=None):
                    packed.extract(member, scratch)
        elif tarfile.is_tarfile(archive):
            with tarfile.open(archive) as packed:
                members = packed.getmembers()
                _read_to_end(packed)
                _refuse(archive, ((m.name, _tar_kind(m)) for m in members))
                bar = tqdm(members, desc=f"unpack {archive.name}", disable=None)
                packed.extractall(scratch, members=bar, filter="data")
        else:
            raise ArchiveError(f"{archive}: neither zip nor tar (delete it and get it again)")
    except damaged as error:
        raise ArchiveError(f"{archive}: damaged: {error} (delete it and get it again)") from error


def _read_to_end(packed: tarfile.TarFile) -> None:
    """Read what follows the last member: only there does gzip compare its checksum."""
    if packed.fileobj is not None:
        while packed.fileobj.read(CHUNK):
            pass


def _zip_kind(member: zipfile.ZipInfo) -> str:
    mode = member.external_attr >> 16
    return "a link" if stat.S_ISLNK(mode) else ""


def _tar_kind(member: tarfile.TarInfo) -> str:
    if member.issym() or member.islnk():
        return "a link"
    return "" if member.isfile() or member.isdir() else "neither a file nor a folder"


def _refuse(archive: Path, members: Iterable[tuple[str, str]]) -> None:
    """Raise ArchiveError for the first member that could write outside the target folder."""
    for name, kind in members:
        parts = PurePosixPath(name.replace("\\", "/"))
        if parts.is_absolute() or ".." in parts.parts or re.match(r"[A-Za-z]:", name):
            kind = "outside the folder"
        if kind:
            raise ArchiveError(f"{archive}: member {name!r} is {kind} (nothing was unpacked)")
