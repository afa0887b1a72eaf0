"""Features of images by a frozen network, batch by batch; a run that was killed goes on.

`fill` does the work, and packs region files (`mmlib.data.precomputed`). What it writes is read by
`open_features`. Until all rows are there, each batch is a file in a hidden folder beside them.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image
from tqdm.auto import tqdm

from mmlib.core.errors import DataError, Problem
from mmlib.core.files import file_hash, kept, read_tensors, write_tensors
from mmlib.core.jobs import as_bytes
from mmlib.core.paths import write_atomic
from mmlib.features.store import FeatureStore, open_features, open_rgb, read_object, write_notes

LONGEST = 100  # times the shorter side; of longer strips resizing leaves nothing, or too much
Images = Sequence[tuple[str, Path]]  # (id, file)
Identity = Callable[[Path], str]  # of a file, another one for other content


def extract(
    images: Images,
    out: Path,
    backbone: str = "densenet169",
    *,
    regions: Literal["grid", "global"] = "grid",
    labels: Path | None = None,
    weights: str | Path | None = None,
    seed: int = 0,
    batch: int = 32,
    device: str = "cpu",
    skip_bad: bool = False,
    dtype: Literal["float16", "float32"] = "float16",
    side: int = 800,
) -> FeatureStore:
    """Write features of images into `out`, an `.npy` file, with ids and notes beside it.

    backbone, weights, seed, regions: as of `backbones.load`, or "fasterrcnn" with the shorter side
        of what it sees (`mmlib.features.regions`), which writes SCAN's layout: `NAME_ims.npy` gets
        (images, 36, 1024), and `NAME_boxes.npy` and `NAME_scores.npy` what `Detector.see` says.
    labels: gets the class probabilities, (images, classes) float32, in the same form.
    skip_bad: leave out undecodable images and list them in the notes. dtype: of the features.

    The size of a batch is part of the settings: torchvision pads the images of a batch to one size,
    which changes regions a little. Resumes and raises DataError as `fill` does, and for settings
    other than those of a finished file of that name.
    """
    import torch
    import torchvision

    from mmlib.features import backbones
    from mmlib.features import regions as detection

    load: Callable[[], Any] = partial(backbones.load, backbone, weights, seed, regions)
    more_files, network = {"labels": labels} if labels else {}, backbone
    settings: dict[str, Any] = {"regions": regions, "labels": labels is not None}
    if backbone == backbones.DETECTOR:
        load, network = partial(detection.load_detector, weights, seed, side), detection.MODEL
        settings = {"regions": detection.KIND, "side": side}
        stem = out.stem.removesuffix("_ims")
        if out.name != f"{stem}_ims.npy":
            raise DataError(f"{out}: the file of regions must be named NAME_ims.npy")
        more_files = {kind: out.with_name(f"{stem}_{kind}.npy") for kind in ("boxes", "scores")}
    elif backbone not in backbones.TORCHVISIONS:
        library = "timm" if backbone.startswith("timm:") else "transformers"
        settings["library"] = f"{library} {version(library)}"
    settings |= {
        "backbone": network,
        "weights": backbones.weights_note(network, weights, seed),
        "dtype": dtype,
        "batch": batch,
        "device": device,
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
        **ids_settings(images),
    }
    if out.exists():
        return finished(images, out, settings, batch)
    model = load()
    model.network.to(device)

    @torch.inference_mode()
    def compute(pictures: list[Any]) -> dict[str, np.ndarray]:
        rows = model.see([picture.to(device) for picture in pictures])
        if more_files.keys() - rows.keys():
            raise DataError(f"{backbone} has no classes (leave --labels out)")
        arrays = {name: rows[name].float().cpu().numpy() for name in more_files}
        features = rows["features"].squeeze(1).float().cpu().numpy()  # (n, D) of one region
        with np.errstate(over="ignore"):
            return arrays | {"features": features.astype(dtype)}

    def read(_: str, path: Path) -> Any:
        try:
            picture = open_rgb(path)
            if max(picture.size) > LONGEST * min(picture.size):
                raise DataError(f"{picture.width} x {picture.height} pixels are too thin a strip")
            return model.preprocess(picture)
        except DataError as error:
            problem = str(error).removeprefix(f"{path}: ")
            raise DataError(f"{path}: {problem}; --skip-bad leaves such images out") from error

    compute([model.preprocess(Image.new("RGB", (256, 256)))])  # refuses before the work
    notes = {"labels": {"label_names": model.label_names}}
    outputs = {
        name: (path, notes.get(name, {})) for name, path in {"features": out, **more_files}.items()
    }
    return fill(images, outputs, settings, read, compute, batch=batch, skip_bad=skip_bad)


def ids_settings(images: Images) -> dict[str, Any]:
    """What a run notes about its images.

    Raises DataError for none, a doubled id, and one that is no line of a list of ids.
    """
    names = [name for name, _ in images]
    if not images:
        raise DataError("no images to extract features from")
    if len(set(names)) < len(names):
        raise DataError("an image id occurs twice (ids are file names; give one folder)")
    if broken := [n for n in names if {*"\r\n"} & {*n} or n.encode(errors="ignore").decode() != n]:
        problem = "has a line break, or bytes that are not UTF-8"
        raise DataError(f"image id {broken[0]!r} {problem} (rename the file)")
    return {"images": len(names), "ids_sha256": hashlib.sha256(as_bytes(names)).hexdigest()}


def content(path: Path) -> str:
    """The SHA-256 of a file; "" where there is none."""
    return file_hash(path) if path.is_file() else ""


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
    chain = ""
    for start in tqdm(range(0, len(images), batch), desc="read", leave=False, disable=None):
        chain = _link(chain, images[start : start + batch], identity)
    if store.meta.get("files_sha256") != chain:
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
    """Write the `outputs` of `images`: (file, notes of its own) by name, one of them "features".

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
    if (began := folder / "settings.json").is_file():
        if changed := _differences(read_object(began), settings):
            raise DataError(
                f"{folder}: an unfinished run with other settings: {changed} "
                "(go on with the old settings, or delete this folder)"
            )
    write_atomic(began, partial(Path.write_text, data=json.dumps(settings), encoding="utf-8"))

    def attempt(image: tuple[str, Path]) -> Any:
        try:
            return read(*image)
        except DataError as error:
            return error

    chain, skipped, pieces = "", list[str](), list[Path]()
    bar = tqdm(total=len(images), unit="image", desc=out.stem, disable=None)
    with bar, ThreadPoolExecutor() as pool:
        for start in range(0, len(images), batch):
            chunk = images[start : start + batch]
            chain = _link(chain, chunk, identity)
            pieces.append(folder / f"{start}.safetensors")
            _, note = kept(pieces[-1]) or ({}, {})  # empty: missing, or damaged
            if note and note["files"] != chain:
                raise DataError(
                    f"{folder}: images changed since this run began (delete this folder)"
                )
            if not note:
                contents = dict(zip(chunk, pool.map(attempt, chunk), strict=True))
                refused = {i[0]: c for i, c in contents.items() if isinstance(c, DataError)}
                if refused and not skip_bad:
                    raise next(iter(refused.values()))
                sound = {i: c for i, c in contents.items() if i[0] not in refused}
                rows = compute(list(sound.values())) if sound else {}
                for name, values in rows.items():
                    finite = np.isfinite(values).reshape(len(values), -1).all(axis=1)
                    if not finite.all():
                        fault = f"its {name} do not fit {values.dtype} (are the weights right?)"
                        raise DataError(f"{list(sound)[int(finite.argmin())][1]}: {fault}")
                note = {"files": chain, "skipped": json.dumps(list(refused))}
                write_tensors(pieces[-1], rows, note)
            skipped += json.loads(note["skipped"])
            bar.update(len(chunk))
    left_out = set(skipped)
    names = [name for name, _ in images if name not in left_out]
    if not names:
        raise DataError(f"{out}: none of {len(images)} images can be read")
    notes = {**settings, "files_sha256": chain, "skipped": skipped}
    for name in sorted(outputs, key=lambda name: name == "features"):  # whose name means done
        path, more_notes = outputs[name]
        write_notes(path, names, {**notes, **more_notes})
        write_atomic(path, partial(_join, pieces=pieces, name=name, rows=len(names)))
    shutil.rmtree(folder, ignore_errors=True)
    return open_features(out)


def _join(path: Path, pieces: Sequence[Path], name: str, rows: int) -> None:
    with path.open("wb") as file:
        for piece in pieces:
            values = read_tensors(piece, "run again")[0].get(name)
            if values is None:  # no image of it could be read
                continue
            if not file.tell():
                shape = (rows, *values.shape[1:])
                header = {"descr": values.dtype.str, "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(file, header)  # type: ignore[arg-type]
            file.write(values.data)


def _work_folder(out: Path) -> Path:
    return out.with_name(f".{out.stem}.partial")


def _link(before: str, chunk: Images, identity: Identity) -> str:
    # Hash of these images' names and files, chained to the hash of those before them.
    identities = {path: identity(path) for path in {path for _, path in chunk}}
    listing = [text for name, path in chunk for text in (name, identities[path])]
    return hashlib.sha256(as_bytes([before, *listing])).hexdigest()


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    keys = [key for key in new if old.get(key) != new[key]]
    return ", ".join(f"{key} {old.get(key)!r}, now {new[key]!r}" for key in keys)
