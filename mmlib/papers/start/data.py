"""The picture world of notebook 00, ready as arrays."""

from collections.abc import Sequence

import numpy as np

from mmlib import world
from mmlib.core.errors import DataError
from mmlib.features.words import Words, padded
from mmlib.papers.start.batches import ENDINGS, Arrays, Captioned
from mmlib.papers.start.systems import Settings
from mmlib.world import WorldImages

SIZES = {"train": 1000, "val": 100, "test": 300}  # pictures


def load_study(tier: str, datasets: Sequence[str] = ()) -> dict[str, WorldImages]:
    """The pictures of each split. Raises DataError for another tier or data set than the world."""
    if tier != "world":
        raise DataError(f"notebook 00 has nothing on the tier {tier!r}: it shows the world alone")
    if unknown := [name for name in datasets if name != "world"]:
        raise DataError(f"notebook 00 has no data set {unknown[0]!r}: it shows the world alone")
    return {split: world.captioned_images(split, count) for split, count in SIZES.items()}


def vocabulary(images: dict[str, WorldImages]) -> Words:
    """The words of the training captions, by number."""
    return Words.of(text for captions in images["train"].captions for text in captions)


def captioned(images: WorldImages, words: Words, ending: str | None = None) -> Captioned:
    """A split as arrays; every caption's full stop is replaced by `ending`, if one is given."""
    texts = [text for captions in images.captions for text in captions]
    texts = texts if ending is None else [text.rstrip(".") + ending for text in texts]
    ids, lengths = padded([words.ids(text)[: Settings.words] for text in texts])
    counts = [len(captions) for captions in images.captions]
    return Captioned(images.features, ids, lengths, np.repeat(np.arange(len(counts)), counts))


def load_arrays(images: dict[str, WorldImages], tier: str = "world") -> dict[str, Arrays]:
    """All splits as arrays, by the name of the one data set, "world"."""
    words, test = vocabulary(images), images["test"]
    splits = {name: captioned(split, words) for name, split in images.items()}
    splits |= {name: captioned(test, words, ending) for name, ending in ENDINGS.items()}
    return {"world": Arrays(splits, len(words), tuple(scene.setting for scene in test.scenes))}
