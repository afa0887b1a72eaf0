"""The frozen networks that make image features, and their extraction, which can be interrupted.

What `extract` writes is read by `open_features`, like every other feature file.
"""

import functools
import hashlib
import json
import re
import shutil
import urllib.error
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor, nn
from tqdm.auto import tqdm

from mmlib.datasets.download import file_sha256
from mmlib.datasets.features import FeatureStore, open_features, open_rgb
from mmlib.datasets.problem import DataError
from mmlib.paths import write_atomic

# torchvision is imported where it is used: that takes seconds, which readers of features need not
# wait for.

Regions = Literal["grid", "global"]


# Networks ----------------------------------------------------------------------------------------

# With the weights of the papers' time: torchvision's first ImageNet weights of each network.
BACKBONES = ("densenet169", "resnet50")


@functools.cache
def preprocess() -> Callable[[Image.Image], Tensor]:
    """RGB picture -> normalised (3, 224, 224).

    Resize to 256 x 256 without keeping the aspect, centre crop 224 (Hessel et al. 2019, authors'
    code); mean and deviation of ImageNet, as torchvision's weights expect.
    """
    from torchvision import transforms

    return transforms.Compose(
        [
            transforms.Resize((256, 256)),
            transforms.CenterCrop(224),
            transforms.ToTensor(),
            transforms.Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
        ]
    )


class Backbone(nn.Module):
    """A torchvision classifier cut in two: `trunk` gives the feature map, `head` the classes."""

    def __init__(self, name: str, network: Any) -> None:
        super().__init__()
        if name == "densenet169":  # torchvision applies this ReLU in `forward`
            self.trunk = nn.Sequential(network.features, nn.ReLU())
            self.head: nn.Linear = network.classifier
        else:
            self.trunk = nn.Sequential(*list(network.children())[:-2])
            self.head = network.fc
        self.width = self.head.in_features

    def forward(self, images: Tensor, regions: Regions) -> tuple[Tensor, Tensor]:
        """Region features and class probabilities of normalised images (n, 3, 224, 224).

        Regions are (n, 16, width), a 4 x 4 grid in rows from the top left (averages of the last
        7 x 7 map), or (n, 1, width), the average of the whole map. Probabilities: (n, classes).
        """
        maps = self.trunk(images)
        side = 4 if regions == "grid" else 1
        pooled = nn.functional.adaptive_avg_pool2d(maps, side).flatten(2).transpose(1, 2)
        return pooled, self.head(maps.mean(dim=(2, 3))).softmax(dim=1)


def load_backbone(name: str, weights: str | Path | None = None, seed: int = 0) -> Backbone:
    """A frozen backbone in evaluation mode.

    weights: None for torchvision's ImageNet weights (its cache, else downloaded and checked), a
        `.safetensors` or `.pth` file with the state dict of the torchvision model, or "random".
    seed: for random weights only.

    Raises DataError: unknown name, no network, a file that does not fit. Never unpickles code.
    """
    if name not in BACKBONES:
        raise DataError(f"no backbone {name!r} (choose from {', '.join(BACKBONES)})")
    from torchvision.models import get_model

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = get_model(name, weights=None)
    if weights != "random":
        state = _pretrained(name) if weights is None else _read_weights(Path(weights))
        try:
            network.load_state_dict({_current_key(key): value for key, value in state.items()})
        except RuntimeError as error:
            raise DataError(f"{weights}: not the weights of {name}: {error}") from error
    return Backbone(name, network).eval().requires_grad_(False)


def _default_weights(name: str) -> Any:
    from torchvision.models import get_model_weights

    return get_model_weights(name)["IMAGENET1K_V1"]


def label_names(name: str) -> tuple[str, ...]:
    """The names of the 1,000 ImageNet classes in the order of a backbone's outputs."""
    return tuple(_default_weights(name).meta["categories"])


def _pretrained(name: str) -> Mapping[str, Tensor]:
    choice = _default_weights(name)
    try:
        return choice.get_state_dict(progress=True, check_hash=True, weights_only=True)
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        folder = Path(torch.hub.get_dir()) / "checkpoints"
        raise DataError(
            f"{choice.url}: cannot be downloaded: {error} (fetch it elsewhere and give it with "
            f"--weights FILE, or put it into {folder})"
        ) from error


def _read_weights(path: Path) -> Mapping[str, Tensor]:
    if not path.is_file():
        raise DataError(f"{path}: no such weights file")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"{path}: not a file of plain tensors: {reason}") from error
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise DataError(f"{path}: not a state dict (save `model.state_dict()`)")
    return state


def _current_key(key: str) -> str:
    """Name of a DenseNet parameter today; the published file still has `norm.1` for `norm1`."""
    return re.sub(r"(denselayer\d+\.(?:norm|relu|conv))\.([12])\.", r"\1\2.", key)


# Extraction --------------------------------------------------------------------------------------


def feature_name(backbone: str, regions: Regions, weights: str | Path | None = None) -> str:
    """The file name without suffix that `mmlib data features` gives: `grid4x4_densenet169`."""
    kind = {"grid": "grid4x4", "global": "global"}[regions]
    return f"{kind}_{backbone}" + ("_random" if weights == "random" else "")


def extract(
    images: Sequence[tuple[str, Path]],
    out: Path,
    *,
    backbone: str = "densenet169",
    regions: Regions = "grid",
    weights: str | Path | None = None,
    seed: int = 0,
    batch: int = 32,
    device: str = "cpu",
    labels: Path | None = None,
    skip_bad: bool = False,
) -> FeatureStore:
    """Write float16 features of `images`, (id, file) pairs, to `out` (`.npy`) with ids and notes.

    `labels`, if given, gets the class probabilities, (images, 1000) float32, in the same form.
    The run may be killed at any time: called again with the same settings it goes on at the batch
    where it stopped and ends with the same bytes. Image rows keep the order of `images`;
    `skip_bad` leaves undecodable ones out and lists them in the notes (`out` with `.json`).

    Raises DataError: undecodable image, doubled id, features that float16 cannot hold, another
    run's unfinished or finished files with other settings.
    """
    images = list(images)
    settings = _settings(images, backbone, regions, weights, seed, batch, device)
    settings |= {"labels": labels is not None}
    if out.exists():
        return _finished(out, settings | {"files_sha256": _chained(images, batch)})
    network = load_backbone(backbone, weights, seed).to(device)
    cells = 16 if regions == "grid" else 1
    shapes: dict[str, tuple[tuple[int, int, int], type]] = {
        "features": ((len(images), cells, network.width), np.float16)
    }
    if labels is not None:
        shapes["labels"] = ((len(images), 1, network.head.out_features), np.float32)
    work = _Work(out.with_name(f".{out.stem}.partial"), settings, shapes)
    if work.files != _chained(images[: work.done], batch):
        raise DataError(f"{work.folder}: images changed since this run began (delete this folder)")
    bar = tqdm(total=len(images), initial=work.done, unit="image", desc=out.stem, disable=None)
    with bar, ThreadPoolExecutor() as pool, torch.inference_mode():
        for start in range(work.done, len(images), batch):
            chunk = images[start : start + batch]
            pictures, bad = _decode(chunk, pool, skip_bad)
            if pictures:
                pixels = torch.stack(list(pictures.values())).to(device)
                found = dict(zip(("features", "labels"), network(pixels, regions), strict=True))
                for name in shapes:
                    values = found[name].cpu().numpy()
                    work.write(name, start, values, {i: chunk[i][1] for i in pictures})
            work.advance(chunk, bad)
            bar.update(len(chunk))
    _finish(work, images, out, labels, settings)
    return open_features(out)


def _decode(
    chunk: Sequence[tuple[str, Path]], pool: ThreadPoolExecutor, skip_bad: bool
) -> tuple[dict[int, Tensor], list[str]]:
    """Position in the chunk -> picture, and the ids of those that cannot be decoded."""
    pictures, bad = {}, []
    for i, picture in enumerate(pool.map(_picture, [path for _, path in chunk])):
        if isinstance(picture, Tensor):
            pictures[i] = picture
        elif skip_bad:
            bad.append(chunk[i][0])
        else:
            raise DataError(f"{picture}; --skip-bad leaves such images out")
    return pictures, bad


def _picture(path: Path) -> Tensor | DataError:
    try:
        return preprocess()(open_rgb(path))
    except DataError as error:
        return error


def _settings(
    images: Sequence[tuple[str, Path]],
    backbone: str,
    regions: Regions,
    weights: str | Path | None,
    seed: int,
    batch: int,
    device: str,
) -> dict[str, Any]:
    """All that the bytes of the result depend on (and, faintly, the machine and its threads)."""
    if not images:
        raise DataError("no images to extract features from")
    import torchvision

    if len({name for name, _ in images}) < len(images):
        raise DataError("an image id occurs twice (ids are file names; give one folder)")
    if weights == "random":
        source = f"random, seed {seed}: NOT TRAINED, for tests only"
    elif weights is None:
        source = str(_default_weights(backbone)) if backbone in BACKBONES else "unknown"
    else:
        digest = file_sha256(Path(weights)) if Path(weights).is_file() else "missing"
        source = f"file {Path(weights).name}, SHA-256 {digest}"
    return {
        "backbone": backbone,
        "weights": source,
        "regions": regions,
        "preprocessing": "resize 256x256 bilinear, centre crop 224, ImageNet mean and deviation",
        "batch": batch,
        "device": device,
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
        "images": len(images),
        "ids_sha256": hashlib.sha256("\n".join(name for name, _ in images).encode()).hexdigest(),
    }


def _link(before: str, chunk: Sequence[tuple[str, Path]]) -> str:
    """Hash of these images' names and sizes, chained to the hash of those before them."""
    sizes = [path.stat().st_size if path.is_file() else -1 for _, path in chunk]
    listing = [f"{name}\t{size}" for (name, _), size in zip(chunk, sizes, strict=True)]
    return hashlib.sha256("\n".join([before, *listing]).encode()).hexdigest()


def _chained(images: Sequence[tuple[str, Path]], batch: int) -> str:
    link = ""
    for start in range(0, len(images), batch):
        link = _link(link, images[start : start + batch])
    return link


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    keys = [key for key in new if old.get(key) != new[key]]
    return ", ".join(f"{key} {old.get(key)!r}, now {new[key]!r}" for key in keys)


def _finished(out: Path, settings: Mapping[str, Any]) -> FeatureStore:
    """The finished file of an earlier call with the same settings."""
    store = open_features(out)
    if changed := _differences(store.meta, settings):
        raise DataError(
            f"{out}: was made with other settings: {changed} (name another file or delete it)"
        )
    shutil.rmtree(out.with_name(f".{out.stem}.partial"), ignore_errors=True)
    return store


class _Work:
    """Unfinished arrays in a hidden folder, and how far they are filled."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, Any],
        shapes: Mapping[str, tuple[tuple[int, int, int], type]],
    ) -> None:
        self.folder, self.settings = folder, dict(settings)
        self.state = folder / "progress.json"
        self.done, self.bad, self.files = 0, list[str](), ""
        fresh = not self.state.is_file()
        if fresh:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        else:
            noted = json.loads(self.state.read_text())
            if changed := _differences(noted["settings"], settings):
                raise DataError(
                    f"{folder}: an unfinished run with other settings: {changed} "
                    "(go on with the old settings, or delete this folder)"
                )
            self.done, self.bad, self.files = noted["done"], noted["bad"], noted["files"]
        self.arrays = {
            name: np.lib.format.open_memmap(
                folder / f"{name}.npy",
                mode="w+" if fresh else "r+",
                shape=shape if fresh else None,
                dtype=dtype if fresh else None,
            )
            for name, (shape, dtype) in shapes.items()
        }
        if fresh:
            self._note()

    def write(self, name: str, start: int, values: np.ndarray, paths: dict[int, Path]) -> None:
        """Put values (len(paths), regions, width) into the rows start + keys of `paths`."""
        array = self.arrays[name]
        with np.errstate(over="ignore"):
            values = values.reshape(len(paths), *array.shape[1:]).astype(array.dtype)
        broken = np.flatnonzero(~np.isfinite(values).all(axis=(1, 2)))
        if broken.size:
            path = list(paths.values())[broken[0]]
            raise DataError(f"{path}: its {name} do not fit {array.dtype} (are the weights right?)")
        array[[start + i for i in paths]] = values

    def advance(self, chunk: Sequence[tuple[str, Path]], bad: list[str]) -> None:
        """Note that the next images, `chunk`, are on disk."""
        for array in self.arrays.values():
            array.flush()
        self.done, self.bad = self.done + len(chunk), [*self.bad, *bad]
        self.files = _link(self.files, chunk)
        self._note()

    def _note(self) -> None:
        state = {"done": self.done, "bad": self.bad, "files": self.files}
        _write_text(self.state, json.dumps(state | {"settings": self.settings}))


def _finish(
    work: _Work,
    images: Sequence[tuple[str, Path]],
    out: Path,
    labels: Path | None,
    settings: Mapping[str, Any],
) -> None:
    """Move the filled arrays to their names; the features last, since their name means done."""
    bad = set(work.bad)
    rows = [row for row, (name, _) in enumerate(images) if name not in bad]
    ids = "".join(f"{images[row][0]}\n" for row in rows)
    targets = {"features": out} if labels is None else {"labels": labels, "features": out}
    for name, target in targets.items():
        notes: dict[str, Any] = {**settings, "files_sha256": work.files, "skipped": work.bad}
        if name == "labels":
            notes["label_names"] = label_names(settings["backbone"])
        _write_text(target.with_name(f"{target.stem}.ids.txt"), ids)
        _write_text(target.with_suffix(".json"), json.dumps(notes, indent=1) + "\n")
        array = work.arrays[name]
        values = array[:, 0] if array.shape[1] == 1 else array
        _write_array(target, values[rows] if bad else values)
    work.arrays.clear()
    shutil.rmtree(work.folder, ignore_errors=True)


def _write_text(path: Path, text: str) -> None:
    write_atomic(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def _write_array(path: Path, values: np.ndarray) -> None:
    write_atomic(path, lambda temporary: np.save(temporary, values))
