"""Captions as flat arrays, graphs and sequences, and batches of them.

Graphs of a batch are flat: all its objects in one list, all attributes and relations in others,
with indices that tie them, so that nothing loops over nodes or pads pairs of nodes.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from mmlib.core.files import file_fingerprint, read_rows
from mmlib.papers.cora.run.systems import Augmentation, Settings, System


@dataclass(frozen=True, eq=False)
class GraphBatch:
    """The graphs of some captions. Nodes are the O objects, then the A attributes.

    tokens (U, L), lengths (U,): the different phrases of the batch, padded with 0.
    objects (O,), attributes (A,), relations (R,): rows of `tokens`.
    caption (O,), position (O,): whose object it is, and its place in that caption.
    owner (A,): object of each attribute. subject (R,), object (R,): ends of each relation.
    captions: how many captions. names (O,), described (O, most): phrase numbers of objects and of
    their attributes (-1: none), for telling whether two entities are the same.
    """

    tokens: Tensor
    lengths: Tensor
    objects: Tensor
    attributes: Tensor
    relations: Tensor
    caption: Tensor
    position: Tensor
    owner: Tensor
    subject: Tensor
    object: Tensor
    captions: int
    names: np.ndarray
    described: np.ndarray

    def attribute_edges(self, back: bool = False) -> tuple[Tensor, Tensor]:
        """Edges (source, target) of the Object-Attribute GAT: attribute to object, and each object
        to itself; with `back` also object to attribute, which only a second layer can use.
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

    def to(self, device: str) -> "GraphBatch":
        """The same with its tensors on a device."""
        moved = {k: v.to(device) for k, v in vars(self).items() if isinstance(v, Tensor)}
        return replace(self, **moved)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class GraphSet:
    """The graphs of many captions as flat integer arrays, which `batch` cuts and augments.

    phrases: the different ones; tokens (phrases, L), lengths (phrases,): their words.
    objects (O,), attributes (A,), relations (R,): phrase numbers, caption after caption;
    owner (A,), subject (R,), object (R,): objects of the same caption, counted from 0.
    first_object, first_attribute, first_relation (captions + 1,): where each caption's begin.
    """

    phrases: tuple[str, ...]
    tokens: np.ndarray
    lengths: np.ndarray
    objects: np.ndarray
    attributes: np.ndarray
    relations: np.ndarray
    owner: np.ndarray
    subject: np.ndarray
    object: np.ndarray
    first_object: np.ndarray
    first_attribute: np.ndarray
    first_relation: np.ndarray
    mask_id: int

    def __len__(self) -> int:
        return len(self.first_object) - 1

    def batch(
        self, rows: np.ndarray, how: Augmentation | None = None, rng: Generator | None = None
    ) -> GraphBatch:
        """The graphs of these captions; augmented where `how` and `rng` are given.

        Dropping never leaves a caption without an object, masking never leaves a phrase without
        a word.
        """
        o, caption, first, a, owner = self._objects(rows)
        r, caption_r = _ranges(self.first_relation, rows)
        subject, object_ = first[caption_r] + self.subject[r], first[caption_r] + self.object[r]
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
        first = np.searchsorted(caption, np.arange(len(rows)))
        phrases = np.concatenate([self.objects[o], self.attributes[a], self.relations[r]])
        if rng is None or how is None:
            unique, inverse = np.unique(phrases, return_inverse=True)
            ids, lengths = self.tokens[unique], self.lengths[unique]
        else:
            ids = mask_words(self.tokens[phrases], self.lengths[phrases], self.mask_id, how, rng)
            ids = np.column_stack([ids, self.lengths[phrases]])
            ids, inverse = np.unique(ids, axis=0, return_inverse=True)
            ids, lengths = ids[:, :-1], ids[:, -1]
        of_kinds = np.split(inverse.reshape(-1), np.cumsum([len(o), len(a)]))
        arrays = {
            "tokens": ids[:, : lengths.max()], "lengths": lengths, "objects": of_kinds[0],
            "attributes": of_kinds[1], "relations": of_kinds[2], "caption": caption, "owner": owner,
            "subject": subject, "object": object_, "position": np.arange(len(o)) - first[caption],
        }  # fmt: skip
        return GraphBatch(
            **{name: torch.as_tensor(array) for name, array in arrays.items()},
            captions=len(rows),
            names=self.objects[o],
            described=_rows_of(self.attributes[a], owner, len(o)),
        )

    def entities(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """All objects of these captions: (which of `rows`, name, attributes padded with -1)."""
        o, caption, _, a, owner = self._objects(rows)
        return caption, self.objects[o], _rows_of(self.attributes[a], owner, len(o))

    def _objects(self, rows: np.ndarray) -> tuple[np.ndarray, ...]:
        """Objects of these captions, which of `rows` each is of, each caption's first of them;
        their attributes, and the object of each.
        """
        o, caption = _ranges(self.first_object, rows)
        a, caption_a = _ranges(self.first_attribute, rows)
        first = np.searchsorted(caption, np.arange(len(rows)))
        return o, caption, first, a, first[caption_a] + self.owner[a]


def mask_words(
    ids: np.ndarray, lengths: np.ndarray, mask_id: int, how: Augmentation, rng: Generator
) -> np.ndarray:
    """Mask words, but not delimiters, at random; one of each row is always left as it was.

    ids (n, L) padded with 0, lengths (n,). Returns new ids.
    """
    column, edge = np.arange(ids.shape[1]), int(how.delimiters)
    inner = (column >= edge) & (column < lengths[:, None] - edge)
    draw = np.where(inner, rng.random(ids.shape), -1.0)
    spared = column == draw.argmax(axis=1)[:, None]  # the word of highest draw
    return np.where(inner & ~spared & (draw < how.mask), mask_id, ids)


def _ranges(starts: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Indices starts[r] to starts[r + 1] of all rows in turn, and which of `rows` each is of."""
    counts = starts[rows + 1] - starts[rows]
    before = starts[rows] - (np.cumsum(counts) - counts)
    source = np.repeat(np.arange(len(rows)), counts)
    return np.arange(counts.sum()) + before[source], source


def _rows_of(values: np.ndarray, owner: np.ndarray, rows: int) -> np.ndarray:
    """The values of each owner as rows (rows, most), padded with -1."""
    order = np.argsort(owner, kind="stable")
    row = owner[order]
    column = np.arange(len(order)) - np.searchsorted(row, row)
    table = np.full((rows, int(column.max(initial=-1)) + 1), -1)
    table[row, column] = values[order]
    return table


def same_entities(
    names: np.ndarray, described: np.ndarray, others: np.ndarray, other_described: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs (i, j) where entity i says nothing that entity j does not: the same name, and each
    attribute of i is one of j's. names (n,), described (n, most) padded with -1; others likewise.
    """
    i, j = (names[:, None] == others).nonzero()
    a, b = described[i], other_described[j]
    within = ((a[:, :, None] == b[:, None, :]).any(axis=2) | (a < 0)).all(axis=1)
    return i[within], j[within]


@dataclass(frozen=True, eq=False)
class SequenceBatch:
    """Captions as word ids (B, L) padded with 0, lengths (B,)."""

    tokens: Tensor
    lengths: Tensor

    def to(self, device: str) -> "SequenceBatch":
        """The same on a device."""
        return SequenceBatch(self.tokens.to(device), self.lengths.to(device))


@dataclass(frozen=True, eq=False)
class SequenceSet:
    """Captions as word ids (captions, L) padded with 0, lengths (captions,); `delimiters` at ends.

    `batch` cuts them and masks words.
    """

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
    """features (images, regions, d), possibly memory-mapped; image_of (captions,): rows of it.

    texts: all captions, in one order, as a "graph", a "sequence" and, in the world, a "gold"
    graph; those of test also as graphs with parse errors, "edge 30" being 30 % with a moved edge.
    """

    features: np.ndarray
    image_of: np.ndarray
    texts: Mapping[str, Texts]

    @property
    def captions_of(self) -> list[np.ndarray]:
        """The captions of each image."""
        counts = np.bincount(self.image_of, minlength=len(self.features))
        return np.split(np.argsort(self.image_of, kind="stable"), np.cumsum(counts)[:-1])


@dataclass(frozen=True, eq=False)
class Arrays:
    """A captioned collection ready for training: arrays only, so that it travels to processes.

    embeddings (vocabulary, width): where word vectors start; vocabulary: the words by their ids.
    truth: what oracles score, (test images, test captions); where nobody knows, there is none.
    queries: some test captions as text, to be timed. bert: a BERT's folder, and a hash of what is
    in it; of such data the splits have the texts "graph, pieces" and "sequence, pieces" too.
    family: so many neighbouring images differ in structure alone (world); 1: they are not related.
    """

    splits: Mapping[str, Split]
    embeddings: np.ndarray
    vocabulary: tuple[str, ...]
    truth: Mapping[str, np.ndarray]
    queries: tuple[str, ...] = ()
    bert: tuple[str, str] = ("", "")
    family: int = 1

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all that jobs read; of large files see `file_fingerprint`."""
        digest = hashlib.sha256(
            repr((self.vocabulary, self.queries, self.bert[1], self.family)).encode()
        )
        values: dict[str, Any] = {"embeddings": self.embeddings, **self.truth}
        for name, split in self.splits.items():
            values |= {f"{name} features": split.features, f"{name} image_of": split.image_of}
            for kind, texts in split.texts.items():
                values |= {f"{name} {kind} {f.name}": getattr(texts, f.name) for f in fields(texts)}
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
        """The family of each item of a split, (captions + images,) int: items that are not
        independent. Items are all captions, then all images.
        """
        image_of, images = self.splits[split].image_of, len(self.splits[split].features)
        return np.concatenate([image_of, np.arange(images)]) // self.family


@dataclass(frozen=True, eq=False)
class Batch:
    """Images with a caption each. regions (B, n, d) of which counts (B,) are valid; same (B, B):
    rows of one image; contains (B, O): the image has the entity, or None for sequences.
    """

    regions: Tensor
    counts: Tensor
    text: GraphBatch | SequenceBatch
    same: Tensor
    contains: Tensor | None


def training_batches(
    system: System, settings: Settings, split: Split, texts: Texts, seed: int, device: str = "cpu"
) -> Callable[[int], Iterator[Batch]]:
    """epoch -> the training batches of that epoch; a function of seed and epoch alone.

    An epoch shows each image with `captions` of its captions, drawn anew each time, `batch` of them
    at a time. A BERT reads between delimiters.
    """
    how = replace(settings, delimiters=settings.delimiters or system.bert)
    match = "caption" if system.authors_code else "image"
    captions_of = split.captions_of

    def epoch(number: int) -> Iterator[Batch]:
        rng = np.random.default_rng([seed, number])
        rows = rng.permutation(
            np.concatenate([rng.permutation(group)[: how.captions] for group in captions_of])
        )
        for start in range(0, len(rows), how.batch):
            chunk = rows[start : start + how.batch]
            if len(chunk) > 1:  # one pair alone has no negatives
                yield make_batch(split, texts, chunk, how, rng, captions_of, match, device)

    return epoch


def make_batch(
    split: Split, texts: Texts, rows: np.ndarray, how: Augmentation, rng: Generator,
    captions_of: Sequence[np.ndarray], match: str = "image", device: str = "cpu",
) -> Batch:  # fmt: skip
    """Captions `rows` with their images, regions dropped and texts augmented.

    match: an image contains its own entities, and those that the graph of its "caption" names too
    (authors' code), or that any caption of the "image" names.
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
        i, j = same_entities(text.names, text.described, names, described)
        inside = same[:, text.caption.numpy()]
        inside[owner[caption[j]], i] = True
        contains = torch.as_tensor(inside, device=device)
    return Batch(
        regions.to(device, non_blocking=True), counts.to(device), text.to(device),
        torch.as_tensor(same, device=device), contains,
    )  # fmt: skip


def drop_regions(
    features: np.ndarray, rate: float, rng: Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Leave out each region with probability `rate`, never all of an image.

    features (B, n, d) -> the same, float32, with those that are left first and the others zero,
    and their counts (B,).
    """
    draw = rng.random(features.shape[:2])
    left = (draw >= rate) | (draw == draw.max(axis=1, keepdims=True))
    counts = left.sum(axis=1)
    order = np.argsort(~left, axis=1, kind="stable")[:, : counts.max()]
    moved = features[np.arange(len(features))[:, None], order].astype(np.float32, copy=False)
    moved[np.arange(counts.max()) >= counts[:, None]] = 0.0
    return moved, counts
