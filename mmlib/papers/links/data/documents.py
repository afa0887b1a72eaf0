"""Documents of several sentences and images.

The label rules are those of the code released with Hessel, Lee and Mimno, "Unsupervised Discovery
of Multimodal Links in Multi-image, Multi-sentence Documents" (EMNLP 2019). Rows are always
sentences, columns images.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from PIL import Image

SPLITS = ("train", "val", "test")
# Where the ids of documents built here say their round and cluster.
ROUND_AND_CLUSTER = re.compile(r"-r(\d+)-c(\w+)-\w+$")


@dataclass(frozen=True)
class Document:
    """A set of sentences, a set of images, and (for evaluation only) which belong together.

    id: "<kind>-<split>-r<round>-c<cluster>-<number>" when built here, anything when read.
    sentences, images: texts and image ids.
    sentence_labels: the image that each sentence names, -1 for none, None in an unlabelled corpus.
    image_labels: the sentence that each image names, -1 for none, None in an unlabelled corpus.
    Raises ValueError for labels that do not fit the document.
    """

    id: str
    sentences: tuple[str, ...]
    images: tuple[str, ...]
    sentence_labels: tuple[int | None, ...]
    image_labels: tuple[int | None, ...]

    def __post_init__(self) -> None:
        _check_labels("sentence", self.sentences, self.sentence_labels, "images", len(self.images))
        _check_labels("image", self.images, self.image_labels, "sentences", len(self.sentences))
        if len({label is None for label in self.sentence_labels + self.image_labels}) > 1:
            raise ValueError("null and integer labels are mixed; use -1 for 'no link'")

    @property
    def labelled(self) -> bool:
        """Whether the links of this document are known."""
        return None not in self.sentence_labels + self.image_labels

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
        """True links, (sentences, images) bool: the union of what both sides name."""
        if not self.labelled:
            raise ValueError(f"document {self.id!r} is unlabelled: its links cannot be scored")
        links = np.zeros((len(self.sentences), len(self.images)), dtype=bool)
        for matrix, labels in ((links, self.sentence_labels), (links.T, self.image_labels)):
            for node, label in enumerate(labels):
                if label is not None and label >= 0:
                    matrix[node, label] = True
        return links


def _check_labels(side: str, nodes: tuple, labels: tuple, others: str, count: int) -> None:
    if len(labels) != len(nodes):
        raise ValueError(f"{len(nodes)} {side}s but {len(labels)} {side} labels")
    for node, label in enumerate(labels):
        if label is None:
            continue
        if isinstance(label, bool) or not isinstance(label, int | np.integer):
            raise ValueError(f"{side} {node} has label {label!r}; use an integer, -1 or null")
        if not -1 <= label < count:
            raise ValueError(
                f"{side} {node} has label {label}, but there are {count} {others}; "
                f"use 0 to {count - 1}, or -1 for 'no link'"
            )


def unlabelled(document: Document) -> Document:
    """The same document without its links."""
    return replace(
        document,
        sentence_labels=(None,) * len(document.sentences),
        image_labels=(None,) * len(document.images),
    )


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

    def with_corpora(self, **corpora: Corpus) -> "Study":
        """The same with more documents."""
        return replace(self, corpora={**self.corpora, **corpora})
