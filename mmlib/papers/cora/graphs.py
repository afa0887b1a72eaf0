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
from torch import Tensor

from mmlib.core.files import file_fingerprint, read_rows

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Augmentation:
    """How training examples vary; the defaults are the paper's (supplement).

    region_dropout, drop_objects, drop_attributes, drop_relations: how often each of these is left
    out, mask, delete: how often a word is masked or deleted. delimiters: phrases and captions
    stand between [CLS] and [SEP] (authors' code; the paper does not say).
    """

    region_dropout: float = 0.35
    drop_objects: float = 0.1
    drop_attributes: float = 0.1
    drop_relations: float = 0.1
    mask: float = 0.1
    delete: float = 0.0
    delimiters: bool = True


# --- Graphs ------------------------------------------------------------------------------------


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
        own = torch.arange(len(self.objects), device=self.owner.device)
        nodes = len(own) + torch.arange(len(self.owner), device=self.owner.device)
        pairs = [(own, own), (nodes, self.owner)] + [(self.owner, nodes)] * back
        return torch.cat([s for s, _ in pairs]), torch.cat([t for _, t in pairs])

    def object_edges(self, connected: bool = False) -> tuple[Tensor, Tensor]:
        """Edges (source, target) of the Object-Object GAT: both ways along each relation, once, and
        each object to itself (authors' code); `connected`: all pairs of a caption's objects.
        """
        if connected:
            target, source = (self.caption[:, None] == self.caption).nonzero().T
            return source, target
        n = len(self.objects)
        own = torch.arange(n, device=self.caption.device)
        both = torch.cat([self.subject * n + self.object, self.object * n + self.subject])
        code = torch.cat([both, own * (n + 1)]).unique()
        return code // n, code % n

    def all_edges(self, connected: bool = False) -> tuple[Tensor, Tensor]:
        """Edges over objects and attributes at once, for the Joint ablation, with self-loops."""
        n = len(self.objects)
        if connected:
            caption = torch.cat([self.caption, self.caption[self.owner]])
            target, source = (caption[:, None] == caption).nonzero().T
            return source, target
        nodes = n + torch.arange(len(self.owner), device=self.owner.device)
        source, target = self.object_edges()
        return (
            torch.cat([source, nodes, self.owner, nodes]),
            torch.cat([target, self.owner, nodes, nodes]),
        )

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
        self,
        rows: np.ndarray,
        how: Augmentation | None = None,
        rng: np.random.Generator | None = None,
    ) -> GraphBatch:
        """The graphs of these captions; augmented where `how` and `rng` are given.

        Dropping never leaves a caption without an object, masking and deleting never leave a
        phrase without a word.
        """
        o, caption = _ranges(self.first_object, rows)
        a, caption_a = _ranges(self.first_attribute, rows)
        r, caption_r = _ranges(self.first_relation, rows)
        first = np.searchsorted(caption, np.arange(len(rows)))
        owner = first[caption_a] + self.owner[a]
        subject, object_ = first[caption_r] + self.subject[r], first[caption_r] + self.object[r]
        if rng is not None and how is not None:
            kept = _keep(caption, len(rows), how.drop_objects, rng)
            new = np.cumsum(kept) - 1
            kept_a = kept[owner] & (rng.random(len(a)) >= how.drop_attributes)
            kept_r = kept[subject] & kept[object_] & (rng.random(len(r)) >= how.drop_relations)
            o, caption, a, owner = o[kept], caption[kept], a[kept_a], new[owner[kept_a]]
            r, subject, object_ = r[kept_r], new[subject[kept_r]], new[object_[kept_r]]
        first = np.searchsorted(caption, np.arange(len(rows)))
        phrases = np.concatenate([self.objects[o], self.attributes[a], self.relations[r]])
        ids, lengths, inverse = self._unique(phrases, how, rng)
        of_objects, of_attributes, of_relations = np.split(inverse, np.cumsum([len(o), len(a)]))
        tensors = {
            "tokens": ids, "lengths": lengths, "objects": of_objects, "attributes": of_attributes,
            "relations": of_relations, "caption": caption, "owner": owner, "subject": subject,
            "object": object_, "position": np.arange(len(o)) - first[caption],
        }  # fmt: skip
        return GraphBatch(
            **{name: torch.as_tensor(array) for name, array in tensors.items()},
            captions=len(rows),
            names=self.objects[o],
            described=_rows_of(self.attributes[a], owner, len(o)),
        )

    def entities(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """All objects of these captions: (which of `rows`, name, attributes padded with -1)."""
        o, caption = _ranges(self.first_object, rows)
        a, caption_a = _ranges(self.first_attribute, rows)
        owner = np.searchsorted(caption, np.arange(len(rows)))[caption_a] + self.owner[a]
        return caption, self.objects[o], _rows_of(self.attributes[a], owner, len(o))

    def altered(self, rng: np.random.Generator) -> "GraphSet":
        """Each attribute moved to a random other object of its caption, where there is one.

        The phrases of each caption, and so a bag of them, stay as they are.
        """
        _, caption = _ranges(self.first_attribute, np.arange(len(self)))
        count = np.diff(self.first_object)[caption]
        step = 1 + (rng.random(len(caption)) * np.maximum(count - 1, 1)).astype(int)
        return replace(self, owner=np.where(count > 1, (self.owner + step) % count, self.owner))

    def _unique(
        self, phrases: np.ndarray, how: Augmentation | None, rng: np.random.Generator | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Different phrases of a batch: ids (U, L), lengths (U,), and each phrase's row."""
        if rng is None or how is None:
            unique, inverse = np.unique(phrases, return_inverse=True)
            ids, lengths = self.tokens[unique], self.lengths[unique]
        else:
            ids, lengths = perturb(
                self.tokens[phrases], self.lengths[phrases], self.mask_id, how, rng
            )
            both = np.column_stack([ids, lengths])
            both, inverse = np.unique(both, axis=0, return_inverse=True)
            ids, lengths = both[:, :-1], both[:, -1]
        return ids[:, : lengths.max()], lengths, inverse.reshape(-1)


def perturb(
    ids: np.ndarray, lengths: np.ndarray, mask_id: int, how: Augmentation, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Mask and delete words, but not delimiters, at random; one is always left as it was.

    ids (n, L) padded with 0, lengths (n,). Returns new ids and lengths.
    """
    place, edge = np.arange(ids.shape[1]), int(how.delimiters)
    inner = (place >= edge) & (place < lengths[:, None] - edge)
    draw = np.where(inner, rng.random(ids.shape), -1.0)
    touched = inner & (place != draw.argmax(axis=1)[:, None])  # the luckiest word is spared
    deleted = touched & (draw < how.delete)
    masked = touched & ~deleted & (draw < how.delete + how.mask)
    ids = np.where(masked, mask_id, np.where(deleted, 0, ids))
    order = np.argsort(deleted, axis=1, kind="stable")
    return np.take_along_axis(ids, order, axis=1), lengths - deleted.sum(axis=1)


def _ranges(starts: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Indices starts[r] to starts[r + 1] of all rows in turn, and which of `rows` each is of."""
    counts = starts[rows + 1] - starts[rows]
    which = np.repeat(np.arange(len(rows)), counts)
    before = starts[rows] - (np.cumsum(counts) - counts)
    return np.arange(counts.sum()) + np.repeat(before, counts), which


def _keep(caption: np.ndarray, captions: int, rate: float, rng: np.random.Generator) -> np.ndarray:
    draw = rng.random(len(caption))
    best = np.zeros(captions)
    np.maximum.at(best, caption, draw)  # never all: the luckiest of each caption stays
    return (draw >= rate) | (draw == best[caption])


def _rows_of(values: np.ndarray, owner: np.ndarray, rows: int) -> np.ndarray:
    """The values of each owner as rows (rows, most), padded with -1."""
    order = np.argsort(owner, kind="stable")
    by = owner[order]
    place = np.arange(len(order)) - np.searchsorted(by, by)
    table = np.full((rows, int(place.max(initial=-1)) + 1), -1)
    table[by, place] = values[order]
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


# --- Sequences ---------------------------------------------------------------------------------


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
        self,
        rows: np.ndarray,
        how: Augmentation | None = None,
        rng: np.random.Generator | None = None,
    ) -> SequenceBatch:
        """These captions; words masked and deleted where `how` and `rng` are given."""
        ids, lengths = self.tokens[rows], self.lengths[rows]
        if rng is not None and how is not None:
            ids, lengths = perturb(ids, lengths, self.mask_id, how, rng)
        return SequenceBatch(torch.as_tensor(ids[:, : lengths.max()]), torch.as_tensor(lengths))

    def altered(self, rng: np.random.Generator) -> "SequenceSet":
        """The words of each caption in random order; delimiters keep their places."""
        place, edge = np.arange(self.tokens.shape[1]), int(self.delimiters)
        inner = (place >= edge) & (place < self.lengths[:, None] - edge)
        key = np.where(inner, edge + rng.random(inner.shape), place + (place >= edge))
        order = np.argsort(key, axis=1, kind="stable")
        return replace(self, tokens=np.take_along_axis(self.tokens, order, axis=1))


# --- What jobs read ----------------------------------------------------------------------------

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
        order = np.argsort(self.image_of, kind="stable")
        ends = np.searchsorted(self.image_of[order], np.arange(1, len(self.features)))
        return np.split(order, ends)


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
        parts: dict[str, Any] = {"embeddings": self.embeddings, **self.truth}
        for name, split in self.splits.items():
            parts |= {f"{name} features": split.features, f"{name} image_of": split.image_of}
            for kind, texts in split.texts.items():
                parts |= {f"{name} {kind} {f.name}": getattr(texts, f.name) for f in fields(texts)}
        for name, part in parts.items():
            digest.update(f"{name} {getattr(part, 'shape', '')}".encode())
            if isinstance(part, np.memmap):
                digest.update(file_fingerprint(part).encode())
            elif isinstance(part, np.ndarray):
                digest.update(f"{part.dtype}".encode() + np.ascontiguousarray(part).tobytes())
            else:
                digest.update(repr(part).encode())
        return digest.hexdigest()[:16]

    def clusters(self, split: str) -> np.ndarray:
        """The family of each item of a split, (captions + images,) int: items that are not
        independent. Items are all captions, then all images.
        """
        own = self.splits[split]
        return np.concatenate([own.image_of, np.arange(len(own.features))]) // self.family


# --- Batches -----------------------------------------------------------------------------------


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


def batches(
    split: Split, texts: Texts, how: Augmentation, size: int, captions: int, match: str, seed: int,
    device: str = "cpu",
) -> Callable[[int], Iterator[Batch]]:  # fmt: skip
    """epoch -> the training batches of that epoch; a function of seed and epoch alone.

    An epoch shows each image with `captions` of its captions, drawn anew each time, `size` of them
    a batch. match: see `make_batch`.
    """
    captions_of = split.captions_of

    def epoch(number: int) -> Iterator[Batch]:
        rng = np.random.default_rng([seed, number])
        rows = rng.permutation(
            np.concatenate([rng.permutation(own)[:captions] for own in captions_of])
        )
        for start in range(0, len(rows), size):
            chunk = rows[start : start + size]
            if len(chunk) > 1:  # one pair alone has no negatives
                yield make_batch(split, texts, chunk, how, rng, captions_of, match, device)

    return epoch


def make_batch(
    split: Split, texts: Texts, rows: np.ndarray, how: Augmentation, rng: np.random.Generator,
    captions_of: Sequence[np.ndarray], match: str = "image", device: str = "cpu",
) -> Batch:  # fmt: skip
    """Captions `rows` with their images, regions dropped and texts augmented.

    match: an image contains its own entities, and those that the graph of its "caption" names too
    (authors' code), or that any caption of the "image" names.
    """
    image = split.image_of[rows]
    found = read_rows(split.features, image)
    regions, counts = map(torch.as_tensor, drop_regions(found, how.region_dropout, rng))
    if torch.device(device).type == "cuda":  # pinned memory is copied while the GPU computes
        regions = regions.pin_memory()
    text = texts.batch(rows, how, rng)
    same = image[:, None] == image
    contains = None
    if isinstance(text, GraphBatch) and isinstance(texts, GraphSet):
        searched = [captions_of[i] for i in image] if match == "image" else list(rows[:, None])
        owner = np.repeat(np.arange(len(rows)), [len(own) for own in searched])
        which, names, described = texts.entities(np.concatenate(searched))
        i, j = same_entities(text.names, text.described, names, described)
        inside = same[:, text.caption.numpy()]
        inside[owner[which[j]], i] = True
        contains = torch.as_tensor(inside, device=device)
    return Batch(
        regions.to(device, non_blocking=True), counts.to(device), text.to(device),
        torch.as_tensor(same, device=device), contains,
    )  # fmt: skip


def drop_regions(
    features: np.ndarray, rate: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Leave out each region with probability `rate`, never all of an image.

    features (B, n, d) -> the same with those kept first and the rest zero, float32, and their
    counts (B,).
    """
    draw = rng.random(features.shape[:2])
    kept = (draw >= rate) | (draw == draw.max(axis=1, keepdims=True))
    counts = kept.sum(axis=1)
    order = np.argsort(~kept, axis=1, kind="stable")[:, : counts.max()]
    moved = features[np.arange(len(features))[:, None], order].astype(np.float32, copy=False)
    moved[np.arange(counts.max()) >= counts[:, None]] = 0.0
    return moved, counts
