"""Pairs of texts and pictures as arrays, to train and test on."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from mmlib.core.related import RelatedPairs

SPLITS = ("train", "val", "test")
POOLS = 50  # how many pools of test pairs are ranked


@dataclass(frozen=True)
class Batch:
    """Pairs as tensors: ids (B, L), lengths (B,), g (B, W) or pictures, labels (B, C) bool."""

    ids: Tensor
    lengths: Tensor
    images: Tensor
    labels: Tensor


class Pictures:
    """Reads pictures as the authors do: short side to 224, a crop (random in training), normalised.

    Calling it with rows and whether to crop at random gives (B, 3, 224, 224) float32.
    """

    def __init__(self, pairs: RelatedPairs):
        assert pairs.open_image is not None
        self.open_image, self.hashes = pairs.open_image, pairs.image_hashes

    def __call__(self, rows: np.ndarray, augment: bool) -> Tensor:
        """Pictures of some rows, decoded anew at each call."""
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
        """g or pictures of some images; `augment`: cropped at random, as in training."""
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
