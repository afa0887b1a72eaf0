"""One array row for every image, computed in batches by work that can be killed and goes on.

`fill` reads files and computes; what it writes is read by `open_features`. The runs that use it:
`mmlib.features.networks.extract` (grids), `mmlib.features.regions.extract` (detected regions),
and the packing of region files in `mmlib.data.precomputed`.
"""

import errno
import functools
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from tqdm.auto import tqdm

from mmlib.core.errors import DataError, Problem
from mmlib.core.files import file_hash
from mmlib.core.jobs import as_bytes
from mmlib.core.paths import write_atomic
from mmlib.features.store import FeatureStore, ids_file, open_features

Images = Sequence[tuple[str, Path]]  # (id, file)
Identity = Callable[[Path], str]  # of a file, another one for other content
FloatType = Literal["float16", "float32"]


@dataclass(frozen=True)
class Extraction:
    """What to extract: of which images, by which weights, into which file.

    images: (id, file) pairs. out: the `.npy` file of the features.
    weights: None for torchvision's own (its cache, else downloaded and checked), a `.safetensors`
        or `.pth` file with the state dict of the torchvision model, or "random", drawn by `seed`.
    batch, device: images at a time, and where they are computed.
    skip_bad: leave out undecodable images and list them in the notes (`out` with `.json`).
    dtype: of the features as stored.
    """

    images: Images
    out: Path
    weights: str | Path | None = None
    seed: int = 0
    batch: int = 32
    device: str = "cpu"
    skip_bad: bool = False
    dtype: FloatType = "float16"

    def weights_note(self, default: Callable[[], Any]) -> str:
        """Where the weights come from, in words; `default` gives torchvision's own."""
        if self.weights == "random":
            return f"random, seed {self.seed}: NOT TRAINED, for tests only"
        if self.weights is None:
            return str(default())
        path = Path(self.weights)
        if path.is_dir():  # as transformers writes it
            parts = [file_hash(one) for one in sorted(path.glob("*.safetensors"))]
            return f"folder {path.name}, SHA-256 {', '.join(parts)}"
        return f"file {path.name}, SHA-256 {content(path) or 'missing'}"

    def settings(self) -> dict[str, Any]:
        """What the bytes of any extraction depend on (and, faintly, on the machine's threads)."""
        import torch
        import torchvision

        return {
            "dtype": self.dtype,
            "batch": self.batch,
            "device": self.device,
            "torch": torch.__version__,
            "torchvision": torchvision.__version__,
            **ids_settings(self.images),
        }


@dataclass(frozen=True)
class Output:
    """One array to write: path (`.npy`), the shape of one image's row, its type, its own notes."""

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype | type
    notes: Mapping[str, Any] = field(default_factory=dict)


def ids_settings(images: Images) -> dict[str, Any]:
    """What a run notes about its images.

    Raises DataError for none, a doubled id, and one that is no line of a list of ids.
    """
    if not images:
        raise DataError("no images to extract features from")
    if len({name for name, _ in images}) < len(images):
        raise DataError("an image id occurs twice (ids are file names; give one folder)")
    if broken := [name for name, _ in images if "\n" in name or "\r" in name]:
        raise DataError(f"image id {broken[0]!r} has a line break (rename the file)")
    digest = hashlib.sha256(as_bytes([name for name, _ in images])).hexdigest()
    return {"images": len(images), "ids_sha256": digest}


def content(path: Path) -> str:
    """The SHA-256 of a file; "" where there is none."""
    return file_hash(path) if path.is_file() else ""


def size_and_time(path: Path) -> str:
    """For files that are too many gigabytes to be read again: their size and time of change.

    Whoever writes to a file changes its time, unless that is set back. A copy has another time too,
    where it was not made to keep it, and is then taken for another file.
    """
    status = path.stat() if path.is_file() else None
    return f"{status.st_size} {status.st_mtime_ns}" if status else ""


def finished(
    images: Images, out: Path, settings: Mapping[str, Any], batch: int, identity: Identity = content
) -> FeatureStore:
    """The features that an earlier call with the same settings has written to `out`.

    Raises DataError where they were made with other settings, or from other files.
    """
    store = open_features(out)
    if changed := _differences(store.meta, settings):
        raise DataError(
            f"{out}: was made with other settings: {changed} (name another file or delete it)"
        )
    if store.meta.get("files_sha256") != _chained(images, batch, identity):
        problem = "was made from other files, or by an earlier version, which did not read them"
        raise DataError(Problem(out, None, problem, "delete it, or name another file"))
    shutil.rmtree(_work_folder(out), ignore_errors=True)
    return store


def fill(
    images: Images,
    outputs: Mapping[str, Output],
    settings: Mapping[str, Any],
    read: Callable[[str, Path], Any],
    compute: Callable[[list[Any]], Mapping[str, np.ndarray]],
    *,
    batch: int,
    skip_bad: bool = False,
    identity: Identity = content,
) -> FeatureStore:
    """Write the `outputs`, one of them "features", of `images`, with their ids and notes.

    read: id, file -> what `compute` takes a list of; raises DataError for a file that is no use.
    compute: a batch -> its rows by name of the output.
    settings: all that the bytes of the result depend on; they become part of the notes.
    skip_bad: leave out the images that `read` refuses, and list them in the notes.
    identity: by which it is seen that a file of an image was replaced.

    The run may be killed at any time: called again with the same settings it goes on at the batch
    where it stopped and ends with the same bytes. Rows keep the order of `images`.

    Raises DataError: a file that `read` refuses, rows that are not finite in their type, another
    run's unfinished files.
    """
    out = outputs["features"].path
    work = Work(_work_folder(out), settings, len(images), outputs)
    if work.files != _chained(images[: work.done], batch, identity):
        raise DataError(f"{work.folder}: images changed since this run began (delete this folder)")
    bar = tqdm(total=len(images), initial=work.done, unit="image", desc=out.stem, disable=None)
    with bar, ThreadPoolExecutor() as pool:
        for start in range(work.done, len(images), batch):
            chunk = images[start : start + batch]
            good, bad = _read_all(read, chunk, pool, skip_bad)
            if good:
                arrays = compute(list(good.values()))
                for name in outputs:
                    work.write(name, start, arrays[name], {i: chunk[i][1] for i in good})
            work.advance(_link(work.files, chunk, identity), len(chunk), bad)
            bar.update(len(chunk))
    _finish(work, images, outputs)
    return open_features(out)


def _read_all(
    read: Callable[[str, Path], Any], chunk: Images, pool: ThreadPoolExecutor, skip_bad: bool
) -> tuple[dict[int, Any], list[str]]:
    """Position in the chunk -> what was read, and the ids of those that could not be."""

    def attempt(image: tuple[str, Path]) -> Any:
        try:
            return read(*image)
        except DataError as error:
            return error

    good, bad = {}, []
    for i, item in enumerate(pool.map(attempt, chunk)):
        if not isinstance(item, DataError):
            good[i] = item
        elif skip_bad:
            bad.append(chunk[i][0])
        else:
            raise item
    return good, bad


def _work_folder(out: Path) -> Path:
    return out.with_name(f".{out.stem}.partial")


def _link(before: str, chunk: Images, identity: Identity) -> str:
    """Hash of these images' names and files, chained to the hash of those before them."""
    known: dict[Path, str] = {}
    for _, path in chunk:
        known[path] = known.get(path) or identity(path)
    listing = [text for name, path in chunk for text in (name, known[path])]
    return hashlib.sha256(as_bytes([before, *listing])).hexdigest()


def _chained(images: Images, batch: int, identity: Identity) -> str:
    link = ""
    with tqdm(total=len(images), unit="file", desc="read", leave=False, disable=None) as bar:
        for start in range(0, len(images), batch):
            link = _link(link, images[start : start + batch], identity)
            bar.update(len(images[start : start + batch]))
    return link


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    keys = [key for key in new if old.get(key) != new[key]]
    return ", ".join(f"{key} {old.get(key)!r}, now {new[key]!r}" for key in keys)


def _read_note(path: Path, rows: int) -> dict[str, Any]:
    """How far an unfinished run came. Raises DataError for a damaged file."""
    try:
        noted = json.loads(path.read_bytes())
        sound = (
            type(noted["done"]) is int and 0 <= noted["done"] <= rows
            and isinstance(noted["settings"], dict) and isinstance(noted["files"], str)
            and isinstance(noted["bad"], list) and all(isinstance(b, str) for b in noted["bad"])
        )  # fmt: skip
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        sound = False
    if not sound:
        raise DataError(f"{path}: damaged; delete it to begin anew")
    return noted


class Work:
    """Unfinished arrays in a hidden folder, and how far they are filled."""

    def __init__(
        self, folder: Path, settings: Mapping[str, Any], rows: int, outputs: Mapping[str, Output]
    ) -> None:
        self.folder, self.settings = folder, dict(settings)
        self.state = folder / "progress.json"
        self.done, self.bad, self.files = 0, list[str](), ""
        self.arrays: dict[str, np.memmap] = {}
        if self.state.is_file():
            self._take_up(outputs, rows)
            return
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            for name, output in outputs.items():
                shape = rows, *output.shape
                self.arrays[name] = new_array(self.file(name), shape, output.dtype)
            self._note()
        except (DataError, OSError):  # a full disk
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def _take_up(self, outputs: Mapping[str, Output], rows: int) -> None:
        """Go on where an earlier run stopped."""
        noted = _read_note(self.state, rows)
        if changed := _differences(noted["settings"], self.settings):
            raise DataError(
                f"{self.folder}: an unfinished run with other settings: {changed} "
                "(go on with the old settings, or delete this folder)"
            )
        self.done, self.bad, self.files = noted["done"], noted["bad"], noted["files"]
        for name, output in outputs.items():
            self.arrays[name] = self._opened(name, (rows, *output.shape), output.dtype)
            reserve(self.file(name))

    def _opened(self, name: str, shape: tuple[int, ...], dtype: Any) -> np.memmap:
        """The unfinished array of that name. Raises DataError for a damaged one."""
        path = self.file(name)
        try:
            array = np.lib.format.open_memmap(path, mode="r")  # "r+" fills a cut file with zeros
            if array.shape != shape or array.dtype != dtype:
                raise ValueError(f"{array.shape} {array.dtype} instead of {shape} {dtype}")
        except (ValueError, OSError, EOFError) as error:
            again = f"delete {self.folder} to begin anew"
            raise DataError(f"{path}: damaged; {again} ({error})") from None
        return np.lib.format.open_memmap(path, mode="r+")

    def file(self, name: str) -> Path:
        """Where the unfinished array of that name lies."""
        return self.folder / f"{name}.npy"

    def write(self, name: str, start: int, values: np.ndarray, paths: dict[int, Path]) -> None:
        """Put values, one for each of `paths`, into the rows start + keys of `paths`."""
        array = self.arrays[name]
        with np.errstate(over="ignore"):
            values = values.reshape(len(paths), *array.shape[1:]).astype(array.dtype)
        broken = np.flatnonzero(~np.isfinite(values).reshape(len(paths), -1).all(axis=1))
        if broken.size:
            path = list(paths.values())[broken[0]]
            raise DataError(f"{path}: its {name} do not fit {array.dtype} (are the weights right?)")
        array[[start + i for i in paths]] = values

    def advance(self, files: str, count: int, bad: list[str]) -> None:
        """Note that the next `count` images are on disk; files: the hash of all files so far."""
        for array in self.arrays.values():
            array.flush()
        self.done, self.bad, self.files = self.done + count, [*self.bad, *bad], files
        self._note()

    def _note(self) -> None:
        state = {"done": self.done, "bad": self.bad, "files": self.files}
        _write_text(self.state, json.dumps(state | {"settings": self.settings}))


def _finish(work: Work, images: Images, outputs: Mapping[str, Output]) -> None:
    """Give the filled arrays their names; the features last, since their name means done."""
    bad = set(work.bad)
    rows = [row for row, (name, _) in enumerate(images) if name not in bad]
    ids = "".join(f"{images[row][0]}\n" for row in rows)
    notes = {**work.settings, "files_sha256": work.files, "skipped": work.bad}
    for name in sorted(outputs, key=lambda name: name == "features"):
        output, array = outputs[name], work.arrays.pop(name)
        _write_text(ids_file(output.path), ids)
        text = json.dumps({**notes, **output.notes}, indent=1) + "\n"
        _write_text(output.path.with_suffix(".json"), text)
        if bad:
            write_atomic(output.path, functools.partial(copy_rows, array, rows))
        else:
            write_atomic(output.path, functools.partial(_link_or_copy, work.file(name)))
    shutil.rmtree(work.folder, ignore_errors=True)


def new_array(path: Path, shape: tuple[int, ...], dtype: Any) -> np.memmap:
    """A new `.npy` file to be filled through memory, with its space reserved on the disk."""
    array = np.lib.format.open_memmap(path, "w+", dtype, shape)
    reserve(path)
    return array


def reserve(path: Path) -> None:
    """Make the disk keep the space of a file that is to be filled through memory.

    Without, a disk that fills up ends the process with a bus error. Raises DataError for no room.
    """
    size = path.stat().st_size
    try:
        if hasattr(os, "posix_fallocate"):
            with path.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, size)
        elif shutil.disk_usage(path.parent).free < size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        problem = f"cannot reserve {size / 1e9:.3g} GB: {error.strerror}"
        raise DataError(Problem(path, None, problem, "make room, or name another folder")) from None


def copy_rows(array: np.ndarray, rows: Sequence[int], path: Path, block: int = 1024) -> None:
    """Save array[rows] as `path` (`.npy`) without holding more than a block of it in memory."""
    copy = new_array(path, (len(rows), *array.shape[1:]), array.dtype)
    for start in range(0, len(rows), block):
        copy[start : start + block] = array[rows[start : start + block]]
    copy.flush()


def _link_or_copy(source: Path, target: Path) -> None:
    """The same file under a second name: no second copy of many gigabytes, where links exist."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _write_text(path: Path, text: str) -> None:
    write_atomic(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
