"""Pictures of image-text pairs that users fetched themselves: what is missing is left out."""

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import Image
from tqdm.auto import tqdm

from mmlib.core.files import file_hash, listed
from mmlib.core.records import RelatedPairs
from mmlib.data.tables import error_at
from mmlib.features.store import UNREADABLE, open_rgb, rgb

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
Pairs = TypeVar("Pairs", bound=RelatedPairs)


@dataclass(frozen=True)
class Missing:
    """The images that are missing or unreadable, and the pairs left out with them.

    absent: names of images without a file. unreadable: name and reason of those that cannot be
    decoded. images, pairs: how many there were. pairs_lost: pairs left out with their images.
    """

    absent: tuple[str, ...]
    unreadable: tuple[tuple[str, str], ...]
    images: int
    pairs: int
    pairs_lost: int

    def __str__(self) -> str:
        """One line for a notebook."""
        return (
            f"{len(self.absent)} of {self.images} images missing, {len(self.unreadable)} "
            f"unreadable: {self.pairs_lost} of {self.pairs} pairs left out"
        )


def picture_files(folders: Iterable[Path]) -> dict[str, Path]:
    """The pictures below those folders that exist, by file name; the first of a name counts."""
    files: dict[str, Path] = {}
    for folder in folders:
        for path in listed(folder, "**/*"):
            if path.suffix.lower() in SUFFIXES:
                files.setdefault(path.name, path)
    return files


def with_pictures(
    pairs: Pairs, files: Mapping[str, Path], folder: Path, mend: str
) -> tuple[Pairs, Missing]:
    """The pairs whose picture can be decoded, with `open_image`; and what was left out.

    files: image id -> file. The images are numbered anew, in their old order. Every file is decoded
    once. Raises DataError, naming `folder` and the mend, where not one picture is left.
    """
    present = {name: files[name] for name in pairs.image_ids if name in files}
    reasons = unreadable(present)
    usable = [name for name in present if name not in reasons]
    new_row = {name: row for row, name in enumerate(usable)}
    row_of = np.array([new_row.get(name, -1) for name in pairs.image_ids])
    rows = np.flatnonzero(row_of[pairs.image_of] >= 0)
    missing = Missing(
        tuple(name for name in pairs.image_ids if name not in present),
        tuple((n, f"{files[n]}: cannot be decoded: {reason}") for n, reason in reasons.items()),
        len(pairs.image_ids),
        len(pairs),
        len(pairs) - len(rows),
    )
    if not usable:
        raise error_at(folder, None, str(missing), mend)
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
    with ThreadPoolExecutor() as pool:
        reasons = pool.map(_decoding_error, files.values())
        bar = tqdm(reasons, total=len(files), unit="image", desc="decode", disable=None)
        return {name: reason for name, reason in zip(files, bar, strict=True) if reason}


def _decoding_error(path: Path) -> str | None:
    try:
        with Image.open(path) as picture:
            picture.draft("RGB", (1, 1))  # a small version of a JPEG: all of the data, less work
            rgb(picture)
    except UNREADABLE as error:
        return str(error).replace(str(path), path.name)
    return None
