"""The record of image-text pairs with coherence relations, real or generated."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from PIL import Image


@dataclass(frozen=True, eq=False)
class RelatedPairs:
    """Pairs of a text and an image, and which coherence relations hold between them.

    name: the collection, such as "clue". split: "train", "val" or "test".
    texts: one a pair. labels: (pairs, relations) bool; several may hold, or none.
    relations: their names, in the order of the labels' columns.
    image_of: (pairs,) the row of each pair's image; pairs may share one.
    image_ids: a name for each image, unique over all splits.
    features: (images, regions, width) float32 of a frozen network, or None.
    open_image: row -> RGB picture, or None where there are no pictures.
    image_hashes: SHA-256 of each picture's file, where users brought these; else empty.
    """

    name: str
    split: str
    texts: tuple[str, ...]
    labels: np.ndarray
    relations: tuple[str, ...]
    image_of: np.ndarray
    image_ids: tuple[str, ...]
    features: np.ndarray | None = None
    open_image: Callable[[int], Image.Image] | None = None
    image_hashes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.labels.shape != (len(self.texts), len(self.relations)):
            raise ValueError(
                f"labels {self.labels.shape} for {len(self.texts)} texts and "
                f"{len(self.relations)} relations"
            )
        if self.image_of.shape != (len(self.texts),):
            raise ValueError(f"image_of {self.image_of.shape} for {len(self.texts)} texts")

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: Sequence[int] | np.ndarray, split: str | None = None) -> "RelatedPairs":
        """The pairs of some rows, in their order; images stay as they are."""
        rows = np.asarray(rows, dtype=np.int64)
        return replace(
            self,
            split=split or self.split,
            texts=tuple(self.texts[i] for i in rows),
            labels=self.labels[rows],
            image_of=self.image_of[rows],
        )


def grouped_rows(
    groups: np.ndarray, share: float, seed: int | np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers (kept, held out), each in order; no group stands on both sides.

    groups: (rows,) a key each. Whole groups are drawn at random until they hold at least `share`
    of the rows. Raises ValueError where one side would be empty.
    """
    names, group_of = np.unique(groups, return_inverse=True)
    if not 0 < share < 1:
        raise ValueError(f"a share of {share} leaves one side empty: choose one between 0 and 1")
    order = np.random.default_rng(seed).permutation(len(names))
    sizes = np.bincount(group_of)[order]
    taken = 1 + np.searchsorted(np.cumsum(sizes), share * len(groups) - 1e-9)
    held = np.isin(group_of, order[:taken])
    if held.all():
        raise ValueError(f"{len(names)} groups are too few to hold out {share:.0%} of the rows")
    return np.flatnonzero(~held), np.flatnonzero(held)


def hold_out(
    pairs: RelatedPairs, share: float = 0.1, seed: int = 0
) -> tuple[RelatedPairs, RelatedPairs]:
    """Training and validation pairs that share no image.

    Raises ValueError for a share that leaves one side empty.
    """
    rows, held = grouped_rows(pairs.image_of, share, seed)
    return pairs.take(rows, "train"), pairs.take(held, "val")
