"""Captions as flat arrays, graphs and sequences, and batches of them.

Graphs of a batch are flat: all its objects in one list, all attributes and relations in others,
with indices that tie them, so that nothing loops over nodes or pads pairs of nodes.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from mmlib.core.files import read_rows
from mmlib.features.store import file_fingerprint
from mmlib.papers.cora.run.systems import Augmentation, Settings, System


@dataclass(frozen=True, eq=False)
class GraphBatch:
    """The graphs of some captions. Nodes are the O objects, then the A attributes."""

    captions: int  # how many
    names: np.ndarray  # (O,): phrase numbers of objects
    described: np.ndarray  # (O, most): of their attributes, -1 for none
    tokens: Tensor  # (U, L): the different phrases, padded with 0
    lengths: Tensor  # (U,)
    objects: Tensor  # (O,): rows of `tokens`
    attributes: Tensor  # (A,)
    relations: Tensor  # (R,)
    caption: Tensor  # (O,): whose object it is
    position: Tensor  # (O,): its place there
    owner: Tensor  # (A,): the object of each attribute
    subject: Tensor  # (R,)
    object: Tensor  # (R,)

    def attribute_edges(self, back: bool = False) -> tuple[Tensor, Tensor]:
        """Edges (source, target) of the Object-Attribute GAT: to objects, from each to itself too.

        back: also object to attribute, which only a second layer can use.
        """
        objects = torch.arange(len(self.objects), device=self.owner.device)
        nodes = self.attribute_nodes
        pairs = [(objects, objects), (nodes, self.owner)] + [(self.owner, nodes)] * back
        return torch.cat([s for s, _ in pairs]), torch.cat([t for _, t in pairs])

    def object_edges(self) -> tuple[Tensor, Tensor]:
        """Edges (source, target) of the Object-Object GAT: both ways along each relation, once, and
        each object to itself (authors' code).
        """
        n = len(self.objects)
        loops = torch.arange(n, device=self.caption.device) * (n + 1)
        forth, back = self.subject * n + self.object, self.object * n + self.subject
        code = torch.cat([forth, back, loops]).unique()
        return code // n, code % n

    @property
    def attribute_nodes(self) -> Tensor:
        """The nodes (A,) of the attributes, which come after the objects."""
        return len(self.objects) + torch.arange(len(self.owner), device=self.owner.device)


@dataclass(frozen=True, eq=False)
class SequenceBatch:
    """Captions as word ids (B, L) padded with 0, lengths (B,)."""

    tokens: Tensor
    lengths: Tensor


TextBatch = GraphBatch | SequenceBatch


def moved(text: TextBatch, device: str) -> TextBatch:
    """The batch with its tensors on a device."""
    tensors = {k: v.to(device) for k, v in vars(text).items() if isinstance(v, Tensor)}
    return replace(text, **tensors)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class GraphSet:
    """The graphs of many captions as flat integer arrays, which `batch` cuts and augments."""

    phrases: tuple[str, ...]  # the different ones
    tokens: np.ndarray  # (phrases, L): their words
    lengths: np.ndarray  # (phrases,)
    objects: np.ndarray  # (O,): phrase numbers, caption after caption
    attributes: np.ndarray  # (A,)
    relations: np.ndarray  # (R,)
    owner: np.ndarray  # (A,): objects of the same caption, counted from 0
    subject: np.ndarray  # (R,)
    object: np.ndarray  # (R,)
    first_object: np.ndarray  # (captions + 1,): where each caption's begin
    first_attribute: np.ndarray
    first_relation: np.ndarray
    mask_id: int

    def __len__(self) -> int:
        return len(self.first_object) - 1

    def batch(
        self, rows: np.ndarray, how: Augmentation | None = None, rng: Generator | None = None
    ) -> GraphBatch:
        """The graphs of these captions; augmented where `how` and `rng` are given.

        A caption always keeps an object, and a phrase a word.
        """
        o, caption, a, owner = self._objects(rows)
        r, of_row = _ranges(self.first_relation, rows)
        first = np.searchsorted(caption, of_row)
        subject, object_ = first + self.subject[r], first + self.object[r]
        if rng is not None and how is not None:
            draw, highest = rng.random(len(o)), np.zeros(len(rows))
            np.maximum.at(highest, caption, draw)
            keep_o = (draw >= how.drop_objects) | (draw == highest[caption])
            keep_a = keep_o[owner] & (rng.random(len(a)) >= how.drop_attributes)
            keep_r = keep_o[subject] & keep_o[object_]
            keep_r &= rng.random(len(r)) >= how.drop_relations
            new = np.cumsum(keep_o) - 1
            o, caption, a, owner = o[keep_o], caption[keep_o], a[keep_a], new[owner[keep_a]]
            r, subject, object_ = r[keep_r], new[subject[keep_r]], new[object_[keep_r]]
        phrases = np.concatenate([self.objects[o], self.attributes[a], self.relations[r]])
        if rng is None or how is None:
            unique, inverse = np.unique(phrases, return_inverse=True)
            ids, lengths = self.tokens[unique], self.lengths[unique]
        else:
            ids = mask_words(self.tokens[phrases], self.lengths[phrases], self.mask_id, how, rng)
            ids = np.column_stack([ids, self.lengths[phrases]])
            ids, inverse = np.unique(ids, axis=0, return_inverse=True)
            ids, lengths = ids[:, :-1], ids[:, -1]
        objects, attributes, relations = np.split(inverse.reshape(-1), np.cumsum([len(o), len(a)]))
        position = np.arange(len(o)) - np.searchsorted(caption, caption)
        arrays = (
            ids[:, : lengths.max()], lengths, objects, attributes, relations, caption, position,
            owner, subject, object_,
        )  # fmt: skip
        described = _rows_of(self.attributes[a], owner, len(o))
        return GraphBatch(len(rows), self.objects[o], described, *map(torch.as_tensor, arrays))

    def entities(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """All objects of these captions: (which of `rows`, name, attributes padded with -1)."""
        o, caption, a, owner = self._objects(rows)
        return caption, self.objects[o], _rows_of(self.attributes[a], owner, len(o))

    def _objects(self, rows: np.ndarray) -> tuple[np.ndarray, ...]:
        o, caption = _ranges(self.first_object, rows)  # objects, which of `rows` each is of
        a, of_row = _ranges(self.first_attribute, rows)  # attributes, later the object of each
        return o, caption, a, np.searchsorted(caption, of_row) + self.owner[a]


def mask_words(
    ids: np.ndarray, lengths: np.ndarray, mask_id: int, how: Augmentation, rng: Generator
) -> np.ndarray:
    """New ids (n, L) with words, but no delimiters, masked at random; one a row is always left."""
    column, edge = np.arange(ids.shape[1]), int(how.delimiters)
    inner = (column >= edge) & (column < lengths[:, None] - edge)
    draw = np.where(inner, rng.random(ids.shape), -1.0)
    spared = column == draw.argmax(axis=1)[:, None]  # the word of highest draw
    return np.where(inner & ~spared & (draw < how.mask), mask_id, ids)


def _ranges(starts: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    counts = starts[rows + 1] - starts[rows]  # returns indices, a row after another, and whose
    before = starts[rows] - (np.cumsum(counts) - counts)
    source = np.repeat(np.arange(len(rows)), counts)
    return np.arange(counts.sum()) + before[source], source


def _rows_of(values: np.ndarray, owner: np.ndarray, rows: int) -> np.ndarray:
    order = np.argsort(owner, kind="stable")  # returns (rows, most), padded with -1
    row = owner[order]
    column = np.arange(len(order)) - np.searchsorted(row, row)
    table = np.full((rows, int(column.max(initial=-1)) + 1), -1)
    table[row, column] = values[order]
    return table


@dataclass(frozen=True, eq=False)
class SequenceSet:
    """Captions as word ids (captions, L) padded with 0, lengths (captions,)."""

    tokens: np.ndarray
    lengths: np.ndarray
    mask_id: int
    delimiters: bool = False

    def __len__(self) -> int:
        return len(self.lengths)

    def batch(
        self, rows: np.ndarray, how: Augmentation | None = None, rng: Generator | None = None
    ) -> SequenceBatch:
        """These captions; words masked where `how` and `rng` are given."""
        ids, lengths = self.tokens[rows], self.lengths[rows]
        if rng is not None and how is not None:
            ids = mask_words(ids, lengths, self.mask_id, how, rng)
        return SequenceBatch(torch.as_tensor(ids[:, : lengths.max()]), torch.as_tensor(lengths))


Texts = GraphSet | SequenceSet


@dataclass(frozen=True, eq=False)
class Split:
    """Images and all captions of a split.

    texts: as a "graph", a "sequence" and, in the world, a "gold" graph; those of test also with
    parse errors, "edge 30" being 30 % with a moved edge; for a BERT, "graph, pieces" and so on.
    swaps: kind -> the row of each caption's swap in "graph, swapped" and so on, or -1 (`swap_all`).
    """

    features: np.ndarray  # (images, regions, d), possibly memory-mapped
    image_of: np.ndarray  # (captions,): rows of `features`
    texts: Mapping[str, Texts]
    swaps: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def image_of_swaps(self) -> np.ndarray:
        """Rows (swaps,) of `features`."""
        of = np.zeros(1 + max(rows.max() for rows in self.swaps.values()), int)
        for rows in self.swaps.values():
            of[rows[rows >= 0]] = self.image_of[rows >= 0]
        return of

    @property
    def captions_of(self) -> list[np.ndarray]:
        """The captions of each image."""
        counts = np.bincount(self.image_of, minlength=len(self.features))
        return np.split(np.argsort(self.image_of, kind="stable"), np.cumsum(counts)[:-1])


@dataclass(frozen=True, eq=False)
class Arrays:
    """A captioned collection ready for training: arrays only, so that it travels to processes."""

    splits: Mapping[str, Split]
    embeddings: np.ndarray  # (vocabulary, width): where word vectors start
    vocabulary: tuple[str, ...]  # words by their ids
    truth: Mapping[str, np.ndarray]  # oracle -> scores (test images, test captions)
    queries: tuple[str, ...] = ()  # some test captions, to be timed
    bert: tuple[str, str] = ("", "")  # a BERT's folder, and a hash of its weights
    family: int = 1  # so many neighbouring images differ in structure alone
    ideal_bag: np.ndarray | None = None  # (test captions,): see `data.world.ideal_bag`
    # Of test captions and of their swaps (`data.swaps.plausibility`).
    plausible: tuple[np.ndarray, np.ndarray] | None = None

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all that jobs read; of large files see `file_fingerprint`."""
        digest = hashlib.sha256(
            repr((self.vocabulary, self.queries, self.bert[1], self.family)).encode()
        )
        values: dict[str, Any] = {"embeddings": self.embeddings, **self.truth}
        for name, split in self.splits.items():
            values |= {f"{name} features": split.features, f"{name} image_of": split.image_of}
            values |= {f"{name} swaps, {kind}": rows for kind, rows in split.swaps.items()}
            for kind, texts in split.texts.items():
                values |= {f"{name} {kind} {key}": value for key, value in vars(texts).items()}
        for name, value in values.items():
            digest.update(f"{name} {getattr(value, 'shape', '')}".encode())
            if isinstance(value, np.memmap):
                digest.update(file_fingerprint(value).encode())
            elif isinstance(value, np.ndarray):
                digest.update(f"{value.dtype}".encode() + np.ascontiguousarray(value).tobytes())
            else:
                digest.update(repr(value).encode())
        return digest.hexdigest()[:16]

    def clusters(self, split: str) -> np.ndarray:
        """The family of each item of a split, all captions and then all images, (items,) int."""
        image_of, images = self.splits[split].image_of, len(self.splits[split].features)
        return np.concatenate([image_of, np.arange(images)]) // self.family


@dataclass(frozen=True, eq=False)
class Batch:
    """Images with a caption each."""

    regions: Tensor  # (B, n, d)
    counts: Tensor  # (B,): how many of these are valid
    text: TextBatch
    same: Tensor  # (B, B): rows of one image
    contains: Tensor | None  # (B, O): the image has the entity; None for sequences
    swapped: TextBatch | None = None  # of the captions `of_swapped` (S,), for `System.swapped`
    of_swapped: Tensor | None = None


def training_batches(
    system: System, settings: Settings, split: Split, texts: Texts, seed: int, device: str = "cpu"
) -> Callable[[int], Iterator[Batch]]:
    """epoch -> the training batches of that epoch; a function of seed and epoch alone.

    An epoch shows each image with `captions` of its captions, drawn anew each time, `batch` of them
    at a time.
    """
    how = replace(settings, delimiters=settings.delimiters or system.bert)  # in a BERT's pieces
    match = "caption" if system.form == "authors" else "image"
    captions_of = split.captions_of
    swaps = np.column_stack([*split.swaps.values()]) if system.swapped else None

    def epoch(number: int) -> Iterator[Batch]:
        rng = np.random.default_rng([seed, number])
        rows = rng.permutation(
            np.concatenate([rng.permutation(group)[: how.captions] for group in captions_of])
        )
        for start in range(0, len(rows), how.batch):
            chunk = rows[start : start + how.batch]
            if len(chunk) > 1:  # one pair alone has no negatives
                batch = make_batch(split, texts, chunk, how, rng, captions_of, match, device)
                if swaps is not None:
                    exchanged = split.texts[f"{system.reads}, swapped"]
                    draw = np.where(swaps[chunk] < 0, -1, rng.random(swaps[chunk].shape))
                    of = np.flatnonzero(draw.max(axis=1) >= 0)  # captions that have a swap
                    if len(of):
                        text = exchanged.batch(swaps[chunk][of, draw[of].argmax(axis=1)], how, rng)
                        of_swapped = torch.as_tensor(of, device=device)
                        batch = replace(batch, swapped=moved(text, device), of_swapped=of_swapped)
                yield batch

    return epoch


def make_batch(
    split: Split, texts: Texts, rows: np.ndarray, how: Augmentation, rng: Generator,
    captions_of: Sequence[np.ndarray], match: str = "image", device: str = "cpu",
) -> Batch:  # fmt: skip
    """Captions `rows` with their images, regions dropped and texts augmented.

    match: whether an image contains what its "caption" names (authors' code), or any of the
    "image".
    """
    image = split.image_of[rows]
    features = read_rows(split.features, image)
    regions, counts = map(torch.as_tensor, drop_regions(features, how.region_dropout, rng))
    if torch.device(device).type == "cuda":  # pinned memory is copied while the GPU computes
        regions = regions.pin_memory()
    text = texts.batch(rows, how, rng)
    same = image[:, None] == image
    contains = None
    if isinstance(text, GraphBatch) and isinstance(texts, GraphSet):
        searched = [captions_of[i] for i in image] if match == "image" else list(rows[:, None])
        owner = np.repeat(np.arange(len(rows)), list(map(len, searched)))
        caption, names, described = texts.entities(np.concatenate(searched))
        # An image has an entity of the batch where it shows one of that name with its attributes.
        i, j = (text.names[:, None] == names).nonzero()
        a, b = text.described[i][:, :, None], described[j][:, None, :]
        within = ((a == b).any(axis=2) | (a[:, :, 0] < 0)).all(axis=1)
        inside = same[:, text.caption.numpy()]
        inside[owner[caption[j[within]]], i[within]] = True
        contains = torch.as_tensor(inside, device=device)
    return Batch(
        regions.to(device, non_blocking=True), counts.to(device), moved(text, device),
        torch.as_tensor(same, device=device), contains,
    )  # fmt: skip


def drop_regions(
    features: np.ndarray, rate: float, rng: Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Leave out each of the regions (B, n, d) with probability `rate`, never all of an image.

    Returns float32, with those that are left first and the others zero, and their counts (B,).
    """
    draw = rng.random(features.shape[:2])
    left = (draw >= rate) | (draw == draw.max(axis=1, keepdims=True))
    counts = left.sum(axis=1)
    order = np.argsort(~left, axis=1, kind="stable")[:, : counts.max()]
    moved = features[np.arange(len(features))[:, None], order].astype(np.float32, copy=False)
    moved[np.arange(counts.max()) >= counts[:, None]] = 0.0
    return moved, counts
