"""The picture world of notebook 00, or photographs for its record, to look at and as arrays."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mmlib import world
from mmlib.core.errors import DataError
from mmlib.core.records import CaptionedImages
from mmlib.data import flickr8k
from mmlib.features.words import Words, padded
from mmlib.papers.start.method import Captioned, Settings

ENDINGS = {"full stop": ".", "no full stop": ""}  # what captions end in, in splits of these names
PLACES = ("beach", "desert")  # settings that claim S3 compares
SIZES = {"train": 1000, "val": 100, "test": 300}  # pictures that are drawn
READERS: Mapping[str, Callable[[str], CaptionedImages]] = {
    "world": lambda split: world.captioned_images(split, SIZES[split]), "flickr8k": flickr8k.load
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Arrays:
    """Pictures ready for training. splits: "train", "val", "test", and "test" by other endings.

    vocabulary: how many ids there are; places: the setting of each test picture that is drawn.
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


def load_study(tier: str, datasets: Sequence[str] = ()) -> dict[str, CaptionedImages]:
    """The pictures of each split. Raises DataError for a tier or data set that is not there."""
    if unknown := [name for name in (tier, *datasets) if name not in READERS or name != tier]:
        raise DataError(f"notebook 00 has no data {unknown[0]!r}; there are {', '.join(READERS)}")
    return {split: READERS[tier](split) for split in SIZES}


def vocabulary(images: dict[str, CaptionedImages]) -> Words:
    """The words of the training captions, by number."""
    return Words.of(text for captions in images["train"].captions for text in captions)


def captioned(images: CaptionedImages, words: Words, ending: str | None = None) -> Captioned:
    """A split as arrays; every caption's full stop is replaced by `ending`, if one is given."""
    texts = [text for captions in images.captions for text in captions]
    texts = texts if ending is None else [text.rstrip(".") + ending for text in texts]
    ids, lengths = padded([words.ids(text)[: Settings.words] for text in texts])
    counts = [len(captions) for captions in images.captions]
    return Captioned(images.features, ids, lengths, np.repeat(np.arange(len(counts)), counts))


def load_arrays(images: dict[str, CaptionedImages], tier: str = "world") -> dict[str, Arrays]:
    """All splits as arrays, by the name of the tier's one data set."""
    words, test = vocabulary(images), images["test"]
    splits = {name: captioned(split, words) for name, split in images.items()}
    splits |= {name: captioned(test, words, ending) for name, ending in ENDINGS.items()}
    places = tuple(scene.setting for scene in getattr(test, "scenes", ()))
    return {tier: Arrays(splits, len(words), places)}
