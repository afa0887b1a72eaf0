"""The records that data sets turn into: captioned images, related pairs, entailment samples."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from html import unescape
from itertools import chain
from typing import Any, Literal
from unicodedata import category, normalize

import numpy as np
from PIL import Image

Kind = Literal["te", "ve", "mme"]
KINDS: tuple[Kind, ...] = ("te", "ve", "mme")
SIGNS = {ord(char): sign for sign, chars in {  # with Windows' own, read as Latin-1
    "'": "‘’‛′ʹʻʼʽ՚ꞌ\x91\x92", '"': "“”„‟″\x93\x94", "-": "‐‑‒–−\x96", " - ": "—―\x97",
    "...": "…", " ": "\u2800\u3164", "": ["\u034f", "\ufffc", *map(chr, range(0xFE00, 0xFE10))],
}.items() for char in chars}  # fmt: skip
LIGATURES_WIDE_OR_MATHS = re.compile("[\ufb00-\ufb06\uff01-\uff5e\U0001d400-\U0001d7ff]+")


@dataclass(frozen=True)
class CaptionedImages:
    """One split of a captioned image collection, with frozen image features.

    name: the collection, "world" or "flickr8k". split: "train", "val" or "test".
    ids: one string an image, unique over all splits.
    captions: the captions of each image, in file order.
    features: (images, regions, width) float32; one region where there is one vector an image.
    open_image: row -> RGB picture.
    label_scores: (images, labels) probabilities of a frozen classifier, or None.
    label_names: the names of those labels.
    """

    name: str
    split: str
    ids: tuple[str, ...]
    captions: tuple[tuple[str, ...], ...]
    features: np.ndarray
    open_image: Callable[[int], Image.Image]
    label_scores: np.ndarray | None = None
    label_names: tuple[str, ...] = ()


@lru_cache(maxsize=200_000)
def canonical(text: str) -> str:
    """A text as scene graphs, tokens and keys read it, however it was typed or copied; case stays.

    In NFC, without HTML entities and what cannot be seen (categories Cf, with joiners of emoji, and
    Cc), in single blanks; apostrophes, quotation marks, hyphens, dots and letters are plain ones.
    """
    for _ in range(3):  # entities may be escaped twice, or divided by what is left out
        before = text
        text = LIGATURES_WIDE_OR_MATHS.sub(lambda x: normalize("NFKC", x[0]), text)
        text = re.sub(r"&(#\w+;?|\w+;|(amp|lt|gt|quot|nbsp)\b)", lambda x: unescape(x[0]), text)
        text = re.sub(r"(?<=\w)[`´](?=\w)", "'", " ".join(text.translate(SIGNS).split()))
        text = normalize("NFC", "".join(c for c in text if category(c) not in ("Cf", "Cc")))
        if text == before:  # as most are at once
            break
    return text


@lru_cache(maxsize=200_000)
def normalised(text: str) -> str:
    """Letters, marks and symbols of a sentence, by which two agree but for case and punctuation."""
    text = canonical(text).casefold()
    others = [c for c in re.findall(r"\W", text) if c <= "~" or category(c)[0] not in "MS"]
    return " ".join(text.translate(dict.fromkeys(map(ord, others), " ")).split())


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
        texts, shapes = len(self.texts), (self.labels.shape, self.image_of.shape)
        if shapes != ((texts, len(self.relations)), (texts,)):
            raise ValueError(f"labels and image_of have the shapes {shapes} for {texts} texts")

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: Sequence[int] | np.ndarray, split: str | None = None) -> "RelatedPairs":
        """The pairs of some rows, in their order; images stay as they are."""
        rows = np.asarray(rows, dtype=np.int64)
        texts, labels = tuple(self.texts[i] for i in rows), self.labels[rows]
        columns = {"texts": texts, "labels": labels, "image_of": self.image_of[rows]}
        return replace(self, split=split or self.split, **columns)


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
        columns: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        for name, column in columns.items():
            is_array = isinstance(column, np.ndarray)
            columns[name] = column[rows] if is_array else tuple(column[i] for i in rows)
        return Samples(**columns)


def joined(pieces: Sequence[Samples]) -> Samples:
    """Several records after one another. Raises ValueError for none."""
    if not pieces:
        raise ValueError("there is nothing to join")
    columns: dict[str, Any] = {}
    for field in fields(Samples):
        parts = [getattr(piece, field.name) for piece in pieces]
        is_array = isinstance(parts[0], np.ndarray)
        columns[field.name] = np.concatenate(parts) if is_array else tuple(chain(*parts))
    return Samples(**columns)
