"""The collections of paper 01: their names and relations, as people read them and as arrays."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from mmlib.core.records import RelatedPairs
from mmlib.papers.coherence.method import POOLS, Batch

SPLITS = ("train", "val", "test")
CLUE_LIKE, CITE_LIKE = "Clue-like", "CITE-like"
SIGNALS, TELLINGS = (0.0, 0.5, 1.0), (0.0, 0.5, 0.75, 1.0)
DEFAULTS = (1.0, 0.5)


def at_dials(signal: float, telling: float) -> str:
    """The Clue-like collection at these dials."""
    if (signal, telling) == DEFAULTS:
        return CLUE_LIKE
    return f"{CLUE_LIKE}, signal {signal:g}, telling {telling:g}"


DIALS = {at_dials(s, t): (s, t) for s in SIGNALS for t in TELLINGS}
MAP = tuple(name for name in DIALS if name != CLUE_LIKE)
COLLECTIONS = {
    "world": (CLUE_LIKE, CITE_LIKE, *MAP),
    "flickr8k": ("flickr8k",),
    "paper": ("clue", "clue clean", "cite", "cite++"),
}


@dataclass(frozen=True)
class Dials:
    """What decides how much the relations of made-up pairs (`data.controlled`) can help.

    relations: 2 to 6; a text names so many things. cues: how many words stand for them, each for
    one. pairs: of training. things: of how many a text may name. decides: the share of pairs whose
    picture shows what the relation says; the others show any of the text's things. noise: deviation
    of what is added to each feature of a picture, beside things with deviation 1.
    """

    relations: int = 4
    cues: int = 120
    pairs: int = 1000
    things: int = 30
    decides: float = 1.0
    noise: float = 0.5


CONTROLLED_TIER = "controlled"
CONTROLLED = {
    f"{relations} relations, {cues} cues, {pairs} pairs": Dials(relations, cues, pairs)
    for relations, cues, pairs in (
        (2, 60, 300), (2, 60, 1000), (2, 120, 300), (2, 120, 1000),
        (4, 60, 1000), (4, 120, 300), (4, 120, 1000), (4, 120, 4000),
    )
}  # fmt: skip
HELPFUL, MANY, FEW = (f"4 relations, 120 cues, {pairs} pairs" for pairs in (1000, 4000, 300))
UNDECIDING = f"{HELPFUL}, deciding nothing"  # in which pictures do not depend on the relation
CONTROLLED[UNDECIDING] = replace(CONTROLLED[HELPFUL], decides=0.0)
COLLECTIONS[CONTROLLED_TIER] = tuple(CONTROLLED)
PLACES = ("first", "second", "third", "fourth", "fifth", "sixth")  # controlled relations
CLUE = ("Visible", "Subjective", "Action", "Story", "Meta", "Irrelevant")
CITE = ("Q2", "Q3", "Q4", "Q5", "Q6", "Q7", "Q8")


def relations_of(dataset: str) -> tuple[str, ...]:
    """The relations of a collection, in the order of its labels.

    Flickr8k has no Irrelevant: it is not learnt from Clue, where it rests on captions that repeat.
    """
    if dataset in CONTROLLED:
        return PLACES[: CONTROLLED[dataset].relations]
    if dataset == "flickr8k":
        return CLUE[:-1]
    return CITE if dataset.lower().startswith("cite") else CLUE


@dataclass(frozen=True, eq=False)
class Pairs:
    """One collection in three splits. missing: what is said of images that could not be had."""

    train: RelatedPairs
    val: RelatedPairs
    test: RelatedPairs
    missing: str = ""

    @property
    def relations(self) -> tuple[str, ...]:
        """Names of the relations."""
        return self.train.relations

    def split(self, name: str) -> RelatedPairs:
        """A split by name."""
        return getattr(self, name)


def pooled(pairs: RelatedPairs) -> RelatedPairs:
    """Mean and maximum over a picture's regions as its one vector: small things fade in a mean."""
    assert pairs.features is not None
    regions = np.asarray(pairs.features, dtype=np.float32)
    vectors = np.concatenate([regions.mean(axis=1), regions.max(axis=1)], axis=1)
    return replace(pairs, features=vectors[:, None])


class Pictures:
    """Reads pictures as the authors do: short side to 224, a crop of 224 by 224, normalised."""

    def __init__(self, pairs: RelatedPairs):
        assert pairs.open_image is not None
        self.open_image, self.hashes = pairs.open_image, pairs.image_hashes

    def __call__(self, rows: np.ndarray, augment: bool) -> Tensor:
        """Pictures (B, 3, 224, 224) float32 of some rows; augment: cropped at random."""
        from torchvision import transforms

        crop = transforms.RandomCrop(224) if augment else transforms.CenterCrop(224)
        prepare = transforms.Compose([
            transforms.Resize(224), crop, transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ])  # fmt: skip
        return torch.stack([prepare(self.open_image(int(row))) for row in rows])


@dataclass(frozen=True, eq=False)
class Split:
    """Pairs to train or test on.

    ids (n, L) int64, lengths (n,), labels (n, C) bool; image_of (n,): row of each pair's image.
    images: g (images, W) float32, or a reader of pictures where g is trained along.
    """

    ids: np.ndarray
    lengths: np.ndarray
    labels: np.ndarray
    image_of: np.ndarray
    images: np.ndarray | Pictures

    def __len__(self) -> int:
        return len(self.ids)

    def words(self, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        """Ids (rows, longest of them) and lengths of some texts."""
        longest = int(self.lengths[rows].max())
        return torch.from_numpy(self.ids[rows, :longest]), torch.from_numpy(self.lengths[rows])

    def pictures(self, images: np.ndarray, augment: bool = False) -> Tensor:
        """g or pictures of some images."""
        if isinstance(self.images, np.ndarray):
            return torch.from_numpy(self.images[images])
        return self.images(images, augment)

    def batch(self, rows: np.ndarray, device: str = "cpu", augment: bool = False) -> Batch:
        """Some pairs on a device."""
        ids, lengths = self.words(rows)
        images = self.pictures(self.image_of[rows], augment)
        labels = torch.from_numpy(self.labels[rows])
        return Batch(ids.to(device), lengths, images.to(device), labels.to(device))


@dataclass(frozen=True, eq=False)
class Arrays:
    """A collection: three splits, word vectors (words, E) to start from, names of relations.

    truth: scores (test texts, pairs' pictures) of what oracles know; of made-up pairs alone.
    """

    splits: Mapping[str, Split]
    words: np.ndarray
    relations: tuple[str, ...]
    truth: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def image_width(self) -> int:
        """Width W of g; that of ResNet-50 where pictures are read."""
        images = self.splits["train"].images
        return int(images.shape[1]) if isinstance(images, np.ndarray) else 2048

    def clusters(self, split: str) -> np.ndarray:
        """The cluster of each item: of pairs their image; other items are independent."""
        sizes = {"pools": POOLS, "relations": len(self.relations)}
        return np.arange(sizes[split]) if split in sizes else self.splits[split].image_of

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all that trainings read; of pictures on disk, of their files."""
        digest = hashlib.sha256(np.ascontiguousarray(self.words).tobytes())
        digest.update("|".join(self.relations).encode())
        for split in self.splits.values():
            for array in (split.ids, split.lengths, split.labels, split.image_of):
                digest.update(np.ascontiguousarray(array).tobytes())
            if isinstance(split.images, np.ndarray):
                digest.update(np.ascontiguousarray(split.images).tobytes())
            else:
                digest.update("|".join(split.images.hashes).encode())
        return digest.hexdigest()[:16]


def row_batches(order: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Batches of `size` rows; a last one of a single pair is left out, as batch norm needs two."""
    starts = range(0, len(order), size)
    return (rows for i in starts if len(rows := order[i : i + size]) > 1)
