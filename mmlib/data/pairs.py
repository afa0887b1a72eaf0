"""What Clue and CITE share: pairs as a record, figures of their texts, pictures of users."""

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import Image
from tqdm.auto import tqdm

from mmlib.core.files import file_hash, listed, regular_file
from mmlib.core.records import RelatedPairs
from mmlib.data.tables import error_at
from mmlib.features.store import UNREADABLE, open_rgb, rgb

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
Pairs = TypeVar("Pairs", bound=RelatedPairs)


def image_names(pairs: RelatedPairs) -> list[str]:
    """The name of each pair's image."""
    return [pairs.image_ids[row] for row in pairs.image_of]


def picture_files(folders: Iterable[Path]) -> dict[str, Path]:
    """The pictures below those folders that exist, by file name; the first of a name counts."""
    paths = [path for folder in folders for path in listed(folder, "**/*")]
    return {path.name: path for path in reversed(paths) if path.suffix.lower() in SUFFIXES}


def with_pictures(
    pairs: Pairs, files: Mapping[str, Path], folder: Path, mend: str
) -> tuple[Pairs, str]:
    """The pairs whose picture can be decoded, with `open_image`; and a line on what was left out.

    files: image id -> file. The images are numbered anew, in their old order. Every file is decoded
    once. Raises DataError, naming `folder` and the mend, where not one picture is left.
    """
    present = {name: files[name] for name in pairs.image_ids if name in files}
    damaged = unreadable(present)
    usable = [name for name in present if name not in damaged]
    new_row = {name: row for row, name in enumerate(usable)}
    row_of = np.array([new_row.get(name, -1) for name in pairs.image_ids])
    rows = np.flatnonzero(row_of[pairs.image_of] >= 0)
    images = len(pairs.image_ids)
    missing = (
        f"{images - len(present)} of {images} images missing, {len(damaged)} unreadable: "
        f"{len(pairs) - len(rows)} of {len(pairs)} pairs left out"
    )
    if not usable:
        raise error_at(folder, None, missing, mend)
    complete = replace(
        pairs.take(rows),
        image_of=row_of[pairs.image_of[rows]],
        image_ids=tuple(usable),
        open_image=lambda row: open_rgb(files[usable[row]]),
        image_hashes=tuple(file_hash(files[name]) for name in usable),
    )
    return complete, missing  # type: ignore[return-value]  # take returns the same class


def unreadable(files: Mapping[str, Path]) -> dict[str, str]:
    """Names of the pictures that cannot be decoded completely, and why."""

    def fault(path: Path) -> str | None:
        try:
            with Image.open(regular_file(path)) as picture:
                picture.draft("RGB", (1, 1))  # a small version of a JPEG: all of the data
                rgb(picture)
        except UNREADABLE as error:
            return str(error).replace(str(path), path.name)
        return None

    with ThreadPoolExecutor() as pool:
        faults = pool.map(fault, files.values())
        bar = tqdm(faults, total=len(files), unit="image", desc="decode", disable=None)
        return {name: problem for name, problem in zip(files, bar, strict=True) if problem}
