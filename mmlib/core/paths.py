"""Where things are: one place that reads the environment and knows the folders and files."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from mmlib.core.errors import DataError

PACKAGE = Path(__file__).resolve().parent.parent
OWN_EVIDENCE = PACKAGE.parent / "evidence"


def _named(variable: str) -> Path | None:
    value = os.environ.get(variable)
    return Path(value).expanduser() if value else None


def data_dir() -> Path:
    """Folder that holds the real data sets: `MMLIB_DATA`, else `data/` beside the package."""
    return _named("MMLIB_DATA") or PACKAGE.parent / "data"


def feature_set() -> str:
    """Name of the feature set of photographs: `MMLIB_FEATURES`; empty where none is named."""
    return os.environ.get("MMLIB_FEATURES", "")


def evidence_dir() -> Path:
    """Folder of the recorded evidence: `MMLIB_EVIDENCE`, else `evidence/` beside the package."""
    return _named("MMLIB_EVIDENCE") or OWN_EVIDENCE


def own_dataset() -> Path | None:
    """Folder of captions and features of the reader's own: `MMLIB_DATASET`; None for none."""
    return _named("MMLIB_DATASET")


def choose(features: str = "", evidence: str | Path = "", dataset: str | Path = "") -> None:
    """Let this process, and those that it starts, use these; what is empty stays as it is."""
    if features:
        os.environ["MMLIB_FEATURES"] = features
    for variable, folder in (("MMLIB_EVIDENCE", evidence), ("MMLIB_DATASET", dataset)):
        if folder:
            os.environ[variable] = str(Path(folder).expanduser().absolute())


def notebooks_dir() -> Path:
    """Folder of the notebooks: the one beside the package, else `notebooks` here, if any."""
    beside = PACKAGE.parent / "notebooks"
    return beside if beside.is_dir() else Path("notebooks")


def cache_dir() -> Path | None:
    """Folder for what can be made anew: `runs/cache` of a checkout; None where there is none."""
    root = PACKAGE.parent
    checkout = (root / "pyproject.toml").is_file() and os.access(root, os.W_OK)
    return root / "runs" / "cache" if checkout else None


def write_atomic(path: Path, write: Callable[[Path], object]) -> None:
    """Call `write` on a temporary file beside `path`, then rename it: no half file stays.

    An OSError that names no file, such as that of a full disk, gets the name of `path`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(path)
    try:
        write(temporary)
        os.replace(temporary, path)
    except OSError as error:
        error.filename = error.filename or str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def _temporary(path: Path) -> Path:
    # The suffix stays the last part: savers such as np.save append it where it is missing.
    return path.with_name(f".{path.stem}.{os.getpid()}.partial{path.suffix}")


def writable(path: Path, folder: bool = False) -> Path:
    """A path at which `write_atomic` can write a file, or files in a folder.

    It is asked before what may take hours. Raises DataError with the reason where it cannot.
    """
    try:
        if path.exists() and not (path.is_dir() if folder else path.is_file()):
            kind = "a folder" if path.is_dir() else "a file" if folder else "a pipe or a device"
            raise DataError(f"{path}: is {kind}; name {'a folder' if folder else 'a file'}")
        trial = _temporary(path / "x" if folder else path).absolute()
        trial = next(p for p in trial.parents if p.exists()) / trial.name
        trial.touch()
        trial.unlink()
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror}); name another") from None
    return path


def table_beside(module: str) -> Any:
    """What the YAML file of a module's name holds; `module` is the module's `__file__`.

    Such a file counts as code of its module (`core.source`).
    """
    return yaml.safe_load(Path(module).with_suffix(".yaml").read_text(encoding="utf-8"))
