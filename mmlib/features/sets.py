"""Feature sets: the image features of a data set, several side by side, each known by its name.

A set is the file `features/NAME.npy` with its ids and notes (`mmlib.features.store`). Files
`labels_*.npy` hold class scores, `*_boxes.npy`, `*_scores.npy` and `*_classes.npy` belong to the
regions of `*_ims.npy` or `*.npy`, `NAME.SPLIT.npy` is packed from NAME: none of them is a set.
"""

from functools import lru_cache
from pathlib import Path
from typing import Any

from mmlib.core.errors import DataError, Problem
from mmlib.core.files import file_hash, listed
from mmlib.core.paths import data_dir, feature_set
from mmlib.features.store import FeatureStore, ids_of, open_features

LABELS = "labels_"
_opened: list[FeatureStore] = []  # by `opened`, in this process
MAKE = "`mmlib data features` makes one"


def names(folder: Path) -> list[str]:
    """The names of the sets in a folder `features`, sorted."""
    stems = [path.stem for path in listed(folder, "*.npy")]
    names = {stem.removesuffix("_ims") for stem in stems}
    pieces = {f"{name}_{piece}" for name in names for piece in ("boxes", "scores", "classes")}
    packed = {stem for stem in stems if "." in stem and stem.partition(".")[0] in stems}
    return [s for s in stems if not s.startswith(LABELS) and s not in pieces | packed]


def choose(folder: Path, name: str = "", default: str = "") -> Path:
    """The file of a set in a folder `features`.

    name: of the set; where it is empty, what `--features` or `MMLIB_FEATURES` names, else
    `default` where that is there, else the only set that is there. Raises DataError for a set that
    is not there, and for several of which none is named.
    """
    name, present = name or feature_set(), names(folder)
    if not name:
        if default not in present and len(present) > 1:
            problem = f"has {len(present)} feature sets: {', '.join(present)}"
            raise DataError(Problem(folder, None, problem, "name one with --features"))
        name = default if default in present or not present else present[0]
        if not name:
            raise DataError(Problem(folder, None, "has no feature set", MAKE))
    path = folder / f"{name}.npy"
    if name not in present and (present or path.is_file()):
        problem = f"no feature set {name!r}; there are {', '.join(present) or 'none'}"
        raise DataError(Problem(folder, None, problem, MAKE))
    return path


def labels_of(store: FeatureStore, default: str) -> Path:
    """The file of class scores that goes with a set; it may not be there.

    `labels_NAME` of the set, else `labels_BACKBONE` of the backbone in its notes, else `default`,
    else the only file of class scores.
    """
    folder = store.path.parent
    model = store.path.stem.partition("_")[2]  # as `backbones.feature_name` names it
    wanted = [store.path.stem, model, store.meta.get("backbone", "")]
    stems = [*(f"{LABELS}{name}" for name in wanted), default]
    paths = [path for stem in stems if (path := folder / f"{stem}.npy").is_file()]
    others = listed(folder, f"{LABELS}*.npy")
    return paths[0] if paths else others[0] if len(others) == 1 else folder / f"{default}.npy"


def note(store: FeatureStore) -> dict[str, Any]:
    """What a record's header says of a set: name, shape of a row, backbone, weights, hashes."""
    status, ids = store.path.stat(), ids_of(store.path)
    return {
        "set": store.path.stem,
        "regions": store.array.shape[1] if store.array.ndim == 3 else 1,
        "width": store.width,
        "backbone": store.meta.get("backbone", ""),
        "weights": store.meta.get("weights", ""),
        "sha256": _hash(store.path, status.st_size, status.st_mtime_ns),
        "ids_sha256": file_hash(ids),
    }


@lru_cache
def _hash(path: Path, size: int, time: int) -> str:
    """A file's SHA-256, read once a process for each size and time of change."""
    return file_hash(path)


def files(path: Path, labels: Path) -> list[Path]:
    """The files that a set is read from, for which hashes are recorded."""
    every = [path, labels]
    every += [extra for file in every for extra in (file.with_suffix(".json"), ids_of(file))]
    return sorted({file for file in every if file.is_file()})


def opened(folder: Path, name: str = "", default: str = "") -> FeatureStore:
    """The set that `choose` chooses; from now on it is the one in use."""
    store = open_features(choose(folder, name, default))
    _opened[:] = [store]
    return store


def in_use() -> FeatureStore | None:
    """The set of the data folder that this process opened last; None for none."""
    return next((store for store in _opened if store.path.is_relative_to(data_dir())), None)
