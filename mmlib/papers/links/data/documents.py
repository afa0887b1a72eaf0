"""Documents of several sentences and images. Rows are always sentences, columns images."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from PIL import Image

SPLITS = ("train", "val", "test")
UNLABELLED = "unlabelled"  # documents whose links nobody knows
KINDS = {
    "world": ("coco", "cohesive", "story", "stress", "organic", UNLABELLED),
    "flickr8k": ("coco", "mixed5", "cohesive", "stress", "organic", UNLABELLED),
}
# Where the ids of documents built here say their round and cluster.
ROUND_AND_CLUSTER = re.compile(r"-r(\d+)-c(\w+)-\w+$")


@dataclass(frozen=True)
class Document:
    """A set of sentences, a set of images, and (for evaluation only) which belong together.

    id: "<kind>-<split>-r<round>-c<cluster>-<number>" when built here, anything when read.
    sentences, images: texts and image ids. links: (sentence, image) positions, sorted; None where
    nobody knows them.
    """

    id: str
    sentences: tuple[str, ...]
    images: tuple[str, ...]
    links: tuple[tuple[int, int], ...] | None

    @property
    def labelled(self) -> bool:
        """Whether the links of this document are known."""
        return self.links is not None

    @property
    def round(self) -> int:
        """Documents of one round share no source image; 0 when the id does not say."""
        match = ROUND_AND_CLUSTER.search(self.id)
        return int(match[1]) if match else 0

    @property
    def cluster(self) -> str:
        """Documents of different clusters share no source image; the id when it does not say."""
        match = ROUND_AND_CLUSTER.search(self.id)
        return match[2] if match else self.id

    def link_matrix(self) -> np.ndarray:
        """True links, (sentences, images) bool. Raises ValueError where they are not known."""
        if self.links is None:
            raise ValueError(f"document {self.id!r} is unlabelled: its links cannot be scored")
        matrix = np.zeros((len(self.sentences), len(self.images)), dtype=bool)
        for sentence, image in self.links:
            matrix[sentence, image] = True
        return matrix


@dataclass(frozen=True, eq=False)
class Corpus:
    """Documents in three splits and one frozen vector per image.

    name: the kind of document.
    features: (rows, width) float32; the mean over regions where a collection has regions.
    row_of: image id -> row of `features` (and of `label_scores`).
    open_image: image id -> RGB picture, or None.
    label_scores: (rows, labels) probabilities of a frozen classifier, or None.
    sources: document id -> for each sentence the image it was written for ("" for none);
        empty when the corpus was read from files.
    recognise: what a reader who knows the pictures would say: document -> (sentences, images), 1
        where the sentence is true of the picture; None where nobody knows.
    """

    name: str
    train: tuple[Document, ...]
    val: tuple[Document, ...]
    test: tuple[Document, ...]
    features: np.ndarray
    row_of: Mapping[str, int]
    open_image: Callable[[str], Image.Image] | None = None
    label_scores: np.ndarray | None = None
    label_names: tuple[str, ...] = ()
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    recognise: Callable[[Document], np.ndarray] | None = None

    def split(self, name: str) -> tuple[Document, ...]:
        """The documents of "train", "val" or "test"."""
        if name not in SPLITS:
            raise ValueError(f"no split {name!r}; use one of {', '.join(SPLITS)}")
        return getattr(self, name)

    def rows(self, document: Document) -> np.ndarray:
        """Feature rows of a document's images, (images,) int."""
        return np.array([self.row_of[image] for image in document.images], dtype=np.int64)


def cluster_numbers(documents: Sequence[Document]) -> np.ndarray:
    """For each document the number of its cluster, (documents,) int, to resample by.

    A document whose id names no cluster (files of others, where ids may repeat) is its own.
    """
    numbers: dict[object, int] = {}
    keys = [d.cluster if ROUND_AND_CLUSTER.search(d.id) else (i,) for i, d in enumerate(documents)]
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Study:
    """The documents of a tier. `key`: the sealed links of the unlabelled documents, if known."""

    corpora: Mapping[str, Corpus]
    unlabelled: Corpus | None = None
    key: Mapping[str, np.ndarray] | None = None
