"""The record that every captioned image collection turns into, and a key for equal captions."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from PIL import Image


@dataclass(frozen=True)
class CaptionedImages:
    """One split of a captioned image collection, with frozen image features.

    name: the collection, "world" or "flickr8k".
    split: "train", "val" or "test".
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
def normalised(text: str) -> str:
    """Lower-case words of a sentence without punctuation, to tell whether two sentences agree."""
    return " ".join(re.findall(r"\w+", text.lower()))
