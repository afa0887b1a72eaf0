"""The picture world of notebook 00 as arrays, and batches of its captions."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from mmlib.papers.start.systems import Settings

ENDINGS = {"full stop": ".", "no full stop": ""}  # what captions end in, in splits of these names
PLACES = ("beach", "desert")  # settings that claim S3 compares


@dataclass(frozen=True, eq=False)
class Captioned:
    """Pictures with captions, as arrays or, after `on`, as tensors.

    features (pictures, R, W); ids (captions, longest), filled up with 0; lengths (captions,);
    image_of (captions,): each caption's picture.
    """

    features: Any
    ids: Any
    lengths: Any
    image_of: Any

    def on(self, device: str) -> "Captioned":
        """The same as tensors on a device."""
        fields = vars(self).items()
        return Captioned(**{name: torch.tensor(value, device=device) for name, value in fields})


@dataclass(frozen=True, eq=False)
class Arrays:
    """The world ready for training. splits: "train", "val", "test", and "test" by other endings.

    vocabulary: how many ids there are; places: the setting of each test picture.
    """

    splits: Mapping[str, Captioned]
    vocabulary: int
    places: tuple[str, ...]

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all that training and scoring read."""
        digest = hashlib.sha256(repr((self.vocabulary, self.places)).encode())
        for name, split in self.splits.items():
            for array in vars(split).values():
                digest.update(f"{name}{array.shape}{array.dtype}".encode())
                digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]

    def clusters(self, split: str) -> np.ndarray:
        """The picture of each caption, (captions,): captions of one picture count together."""
        return self.splits[split].image_of


def batches(data: Captioned, settings: Settings, seed: int, epoch: int) -> list[np.ndarray]:
    """Rows of captions, a batch at a time: about two captions of each picture, in random order."""
    count, size = 2 * len(data.features), settings.batch
    rows = np.random.default_rng([seed, epoch]).permutation(len(data.ids))[:count]
    return [rows[i : i + size] for i in range(0, count - size + 1, size)]
