"""The record of premises and hypotheses, with or without an image, real or generated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

Kind = Literal["te", "ve", "mme"]
KINDS: tuple[Kind, ...] = ("te", "ve", "mme")
TEXTS = ("premise", "hypothesis", "kind", "source", "group")


@dataclass(frozen=True, eq=False)
class Samples:
    """Does the hypothesis follow from a text, from an image, or from both?

    premise: (n,) texts, "" where there is none (kind "ve"). hypothesis: (n,) texts.
    image: (n,) rows of an image table, -1 where there is none (kind "te").
    label: (n,) 1 for entailed, 0 for not (neutral and contradiction together).
    kind: (n,) "te" text only, "ve" image only, "mme" both. source: (n,) where each is from.
    group: (n,) what must stay on one side of a split, such as the image's name.
    """

    premise: tuple[str, ...]
    hypothesis: tuple[str, ...]
    image: np.ndarray
    label: np.ndarray
    kind: tuple[Kind, ...]
    source: tuple[str, ...]
    group: tuple[str, ...]

    def __post_init__(self) -> None:
        sizes = {field.name: len(getattr(self, field.name)) for field in fields(self)}
        if len(set(sizes.values())) > 1:
            raise ValueError(f"the columns differ in length: {sizes}")
        if unknown := set(self.kind) - set(KINDS):
            raise ValueError(f"no kind {unknown.pop()!r}: use te, ve or mme")

    def __len__(self) -> int:
        return len(self.hypothesis)

    def take(self, rows: Sequence[int] | np.ndarray) -> "Samples":
        """Some samples, in their order."""
        rows = np.asarray(rows, dtype=np.int64)
        columns = {name: [getattr(self, name)[i] for i in rows] for name in TEXTS}
        return _samples(columns, self.image[rows], self.label[rows])


def joined(pieces: Sequence[Samples]) -> Samples:
    """Several records after one another. Raises ValueError for none."""
    if not pieces:
        raise ValueError("there is nothing to join")
    columns = {name: [v for piece in pieces for v in getattr(piece, name)] for name in TEXTS}
    image, label = (
        np.concatenate([getattr(piece, name) for piece in pieces]) for name in ("image", "label")
    )
    return _samples(columns, image, label)


def _samples(columns: Mapping[str, list], image: np.ndarray, label: np.ndarray) -> Samples:
    texts: Any = {name: tuple(values) for name, values in columns.items()}
    return Samples(image=image, label=label, **texts)
