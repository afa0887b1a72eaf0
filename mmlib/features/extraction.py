"""Features of images by a frozen network, batch by batch; a run that was killed goes on.

`fill` does the work, also for detected regions (`mmlib.features.regions`) and for the packing of
region files (`mmlib.data.precomputed`). What it writes is read by `open_features`. Until all rows
are there they lie in a hidden folder beside their place.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image
from tqdm.auto import tqdm

from mmlib.core.errors import DataError, Problem
from mmlib.core.files import file_hash
from mmlib.core.jobs import as_bytes
from mmlib.core.paths import write_atomic
from mmlib.features.store import FeatureStore, ids_file, open_features

Images = Sequence[tuple[str, Path]]  # (id, file)
Identity = Callable[[Path], str]  # of a file, another one for other content


@dataclass(frozen=True)
class Extraction:
    """What to extract: of which images, by which weights, into which file.

    images: (id, file) pairs. out: the `.npy` file of the features.
    weights, seed: as of `backbones.load`.
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
    dtype: Literal["float16", "float32"] = "float16"

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


def extract(
    extraction: Extraction,
    backbone: str = "densenet169",
    regions: Literal["grid", "global"] = "grid",
    labels: Path | None = None,
) -> FeatureStore:
    """Write features of images, by a backbone of `mmlib.features.backbones`, with ids and notes.

    `labels`, if given, gets the class probabilities, (images, classes) float32, in the same form.
    Resumes and raises DataError as `fill` does, and for settings other than those of a finished
    file of that name.
    """
    import torch

    from mmlib.features import backbones

    out, images = extraction.out, extraction.images
    default = backbones.torchvisions_weights(backbone)
    torchvisions = backbone in backbones.TORCHVISIONS
    settings: dict[str, Any] = {
        "backbone": backbone,
        "weights": backbones.weights_note(extraction.weights, default, extraction.seed),
        "regions": regions,
        **({} if torchvisions else {"library": backbones.version_of(backbone)}),
        "labels": labels is not None,
        **extraction.settings(),
    }
    if out.exists():
        return finished(images, out, settings, extraction.batch)
    model = backbones.load(backbone, extraction.weights, extraction.seed)
    model.network.to(extraction.device)

    @torch.inference_mode()
    def compute(pictures: list[Any]) -> dict[str, np.ndarray]:
        features, scores = model.see(torch.stack(pictures).to(extraction.device), regions)
        features = features if regions == "grid" else features[:, 0]
        with np.errstate(over="ignore"):
            rows = {"features": features.float().cpu().numpy().astype(extraction.dtype)}
        if labels is not None:
            if scores is None:
                raise DataError(f"{backbone} has no classes (leave --labels out)")
            rows["labels"] = scores.float().cpu().numpy()
        return rows

    compute([model.preprocess(Image.new("RGB", (256, 256)))])  # refuses before the work
    outputs: dict[str, tuple[Path, dict[str, Any]]] = {"features": (out, {})}
    if labels is not None:
        outputs["labels"] = labels, {"label_names": model.label_names}
    return fill(
        images, outputs, settings,
        lambda name, path: model.preprocess(backbones.open_picture(path)), compute,
        batch=extraction.batch, skip_bad=extraction.skip_bad,
    )  # fmt: skip


def ids_settings(images: Images) -> dict[str, Any]:
    """What a run notes about its images.

    Raises DataError for none, a doubled id, and one that is no line of a list of ids.
    """
    names = [name for name, _ in images]
    if not images:
        raise DataError("no images to extract features from")
    if len(set(names)) < len(names):
        raise DataError("an image id occurs twice (ids are file names; give one folder)")
    if broken := [name for name in names if "\n" in name or "\r" in name]:
        raise DataError(f"image id {broken[0]!r} has a line break (rename the file)")
    return {"images": len(names), "ids_sha256": hashlib.sha256(as_bytes(names)).hexdigest()}


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
    if store.meta.get("files_sha256") != _hash_of(images, batch, identity):
        problem = "was made from other files, or by an earlier version, which did not read them"
        raise DataError(Problem(out, None, problem, "delete it, or name another file"))
    shutil.rmtree(_work_folder(out), ignore_errors=True)
    return store


def fill(
    images: Images,
    outputs: Mapping[str, tuple[Path, Mapping[str, Any]]],
    settings: Mapping[str, Any],
    read: Callable[[str, Path], Any],
    compute: Callable[[list[Any]], Mapping[str, np.ndarray]],
    *,
    batch: int,
    skip_bad: bool = False,
    identity: Identity = content,
) -> FeatureStore:
    """Write the `outputs`, (file, own notes) by name and one of them "features", of `images`.

    read: id, file -> what `compute` takes a list of; raises DataError for a file that is no use.
    compute: a batch -> its rows by name of the output, in the type that is stored.
    settings: all that the bytes of the result depend on; they become part of the notes.
    skip_bad: leave out the images that `read` refuses, and list them in the notes.
    identity: by which it is seen that a file of an image was replaced.

    The run may be killed at any time: called again with the same settings it goes on at the batch
    where it stopped and ends with the same bytes. Rows keep the order of `images`.

    Raises DataError: a file that `read` refuses, rows that are not finite, another run's unfinished
    files.
    """
    out = outputs["features"][0]
    folder = _work_folder(out)
    note = _resumed(folder, images, settings, batch, identity)
    folder.mkdir(parents=True, exist_ok=True)

    def attempt(image: tuple[str, Path]) -> Any:
        try:
            return read(*image)
        except DataError as error:
            return error

    bar = tqdm(total=len(images), initial=note["done"], unit="image", desc=out.stem, disable=None)
    with bar, ThreadPoolExecutor() as pool:
        for start in range(note["done"], len(images), batch):
            chunk = images[start : start + batch]
            sound = dict(zip(chunk, pool.map(attempt, chunk), strict=True))
            for image in chunk:
                if isinstance(sound[image], DataError):
                    if not skip_bad:
                        raise sound[image]
                    note["bad"].append(image[0])
                    del sound[image]
            for name, rows in (compute(list(sound.values())) if sound else {}).items():
                broken = np.flatnonzero(~np.isfinite(rows).reshape(len(rows), -1).all(axis=1))
                if broken.size:
                    fault = f"its {name} do not fit {rows.dtype} (are the weights right?)"
                    raise DataError(f"{list(sound)[broken[0]][1]}: {fault}")
                note["arrays"][name] = _append(folder / f"{name}.npy", rows, name in note["arrays"])
            note["files"] = _link(note["files"], chunk, identity)
            note["done"] += len(chunk)
            _write_text(folder / "progress.json", json.dumps(note))
            bar.update(len(chunk))
    skipped = set(note["bad"])
    names = [name for name, _ in images if name not in skipped]
    if not names:
        raise DataError(f"{out}: none of {len(images)} images can be read")
    notes = {**settings, "files_sha256": note["files"], "skipped": note["bad"]}
    for name in sorted(outputs, key=lambda name: name == "features"):  # whose name means done
        path, own = outputs[name]
        _write_text(ids_file(path), "".join(f"{name}\n" for name in names))
        _write_text(path.with_suffix(".json"), json.dumps({**notes, **own}, indent=1) + "\n")
        if (unfinished := folder / f"{name}.npy").is_file():
            with unfinished.open("r+b") as file:
                _write_header(file, len(names), note["arrays"][name])
            os.replace(unfinished, path)
    shutil.rmtree(folder, ignore_errors=True)
    return open_features(out)


def _work_folder(out: Path) -> Path:
    return out.with_name(f".{out.stem}.partial")


def _resumed(
    folder: Path, images: Images, settings: Mapping[str, Any], batch: int, identity: Identity
) -> dict[str, Any]:
    """How far an unfinished run came; what it wrote after its last note is cut off."""
    new = {"done": 0, "bad": [], "files": "", "arrays": {}, "settings": settings}
    if not (folder / "progress.json").is_file():
        return new
    try:
        note = json.loads((folder / "progress.json").read_bytes())
        if changed := _differences(note["settings"], settings):
            raise DataError(
                f"{folder}: an unfinished run with other settings: {changed} "
                "(go on with the old settings, or delete this folder)"
            )
        if note["files"] != _hash_of(images[: note["done"]], batch, identity):
            raise DataError(f"{folder}: images changed since this run began (delete this folder)")
        for name, array in note["arrays"].items() if note["done"] < len(images) else ():
            with (folder / f"{name}.npy").open("r+b") as file:
                if file.seek(0, os.SEEK_END) < array["size"]:
                    raise ValueError(f"{name}.npy is cut")
                file.truncate(array["size"])
    except DataError:
        raise
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{folder}: damaged; delete it to begin anew ({error})") from None
    return new | note


def _append(path: Path, rows: np.ndarray, exists: bool) -> dict[str, Any]:
    """Add rows to an `.npy` file whose header is mended at the end; returns what it holds."""
    array = {"descr": rows.dtype.str, "row": rows.shape[1:]}
    try:
        with path.open("ab" if exists else "wb") as file:
            if not exists:
                _write_header(file, 0, array)
            file.write(rows.tobytes())
            file.flush()
            os.fsync(file.fileno())
            return {**array, "size": file.tell()}
    except OSError as error:  # a full disk
        error.filename = error.filename or str(path)
        raise


def _write_header(file: Any, rows: int, array: Mapping[str, Any]) -> None:
    """NumPy leaves room in a header, so that it has one length for any number of rows."""
    header = {"descr": array["descr"], "fortran_order": False, "shape": (rows, *array["row"])}
    np.lib.format.write_array_header_1_0(file, header)


def _link(before: str, chunk: Images, identity: Identity) -> str:
    """Hash of these images' names and files, chained to the hash of those before them."""
    known = {path: identity(path) for path in {path for _, path in chunk}}
    listing = [text for name, path in chunk for text in (name, known[path])]
    return hashlib.sha256(as_bytes([before, *listing])).hexdigest()


def _hash_of(images: Images, batch: int, identity: Identity) -> str:
    link = ""
    bar = tqdm(range(0, len(images), batch), desc="read", leave=False, disable=None)
    for start in bar:
        link = _link(link, images[start : start + batch], identity)
    return link


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    keys = [key for key in new if old.get(key) != new[key]]
    return ", ".join(f"{key} {old.get(key)!r}, now {new[key]!r}" for key in keys)


def _write_text(path: Path, text: str) -> None:
    write_atomic(path, partial(Path.write_text, data=text, encoding="utf-8"))
