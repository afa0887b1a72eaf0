"""Documents of several sentences and images. Rows are always sentences, columns images."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from mmlib.core.records import normalised

SPLITS = ("train", "val", "test")
UNLABELLED = "unlabelled"  # documents whose links nobody knows
KINDS = {
    "world": ("coco", "cohesive", "story", "stress", "organic", UNLABELLED),
    "flickr8k": ("coco", "mixed5", "cohesive", "stress", "organic", UNLABELLED),
}


@dataclass(frozen=True)
class Document:
    """A set of sentences, a set of images, and (for evaluation only) which belong together.

    id: "<kind>-<split>-r<round>-c<cluster>-<number>" when built here, anything when read.
    sentences, images: texts and image ids. links: (sentence, image) positions, sorted; None where
    nobody knows them. Of a document that was built here: the image that each sentence was written
    for, "" for none; its round, whose documents share no source image; and its cluster, of which
    documents of others share none.
    """

    id: str
    sentences: tuple[str, ...]
    images: tuple[str, ...]
    links: tuple[tuple[int, int], ...] | None
    sources: tuple[str, ...] = ()
    round: int = 0
    cluster: str = ""

    @property
    def labelled(self) -> bool:
        """Whether the links of this document are known."""
        return self.links is not None

    def link_matrix(self) -> np.ndarray:
        """True links, (sentences, images) bool. Raises ValueError where they are not known."""
        if self.links is None:
            raise ValueError(f"document {self.id!r} is unlabelled: its links cannot be scored")
        matrix = np.zeros((len(self.sentences), len(self.images)), dtype=bool)
        for link in self.links:
            matrix[link] = True
        return matrix


@dataclass(frozen=True, eq=False)
class Corpus:
    """Documents in three splits and one frozen vector per image.

    name: the kind of document.
    features: (rows, width) float32; the mean over regions where a collection has regions.
    row_of: image id -> row of `features` (and of `label_scores`).
    open_image: image id -> RGB picture, or None.
    label_scores: (rows, labels) probabilities of a frozen classifier, or None.
    truth: of each test document what a reader who knows the pictures would say, (sentences, images)
        with 1 where the sentence is true of the picture; None where nobody knows.
    key: of each test document without labels its sealed links, or None.
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
    truth: tuple[np.ndarray, ...] | None = None
    key: tuple[np.ndarray, ...] | None = None

    def split(self, name: str) -> tuple[Document, ...]:
        """The documents of "train", "val" or "test"."""
        return {"train": self.train, "val": self.val, "test": self.test}[name]

    def rows(self, document: Document) -> np.ndarray:
        """Feature rows of a document's images, (images,) int."""
        return np.array([self.row_of[image] for image in document.images], dtype=np.int64)


def cluster_numbers(documents: Sequence[Document]) -> np.ndarray:
    """For each document the number of its cluster, (documents,) int, to resample by.

    A document without a cluster, as of files of others, is its own.
    """
    numbers: dict[object, int] = {}
    keys = [document.cluster or i for i, document in enumerate(documents)]
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


def check_leaks(corpus: Corpus) -> None:
    """Raise ValueError, listing the first five leaks, where documents give their links away.

    Checked: no image id and no identical feature vector in two splits; inside a document no image
    twice, no two sentences with the same normalised text, no unlinked sentence written for one of
    its images; documents of one round share no source image; in splits with several clusters,
    documents of different clusters share none.
    """
    problems: list[str] = []
    first_use: dict[tuple, tuple[str, str]] = {}  # image id or vector -> split, image
    for split in SPLITS:
        first_user: dict[tuple[int, str], str] = {}  # round, image -> document
        cluster_of: dict[str, str] = {}
        images_of_split: set[str] = set()
        for document in corpus.split(split):
            where = f"{split} {document.id}:"
            # All images that it was made from, shown or only described.
            images = {*document.images, *document.sources} - {""}
            if len(set(document.images)) < len(document.images):
                problems.append(f"{where} an image occurs twice")
            if len(set(map(normalised, document.sentences))) < len(document.sentences):
                problems.append(f"{where} two sentences have the same text")
            linked = {sentence for sentence, _ in document.links or ()}
            problems += [
                f"{where} unlinked sentence {number} was written for its image {source}"
                for number, source in enumerate(document.sources)
                if number not in linked and source in document.images
            ]
            for image in sorted(images - images_of_split):
                uses: list[tuple] = [("id", image)]
                if image in corpus.row_of:
                    uses.append(("feature vector", corpus.features[corpus.row_of[image]].tobytes()))
                for use in uses:
                    first_split, twin = first_use.setdefault(use, (split, image))
                    if first_split != split:
                        problems.append(
                            f"{first_split} {twin} and {split} {image} have the same {use[0]}"
                        )
            images_of_split |= images
            for image in sorted(images) if document.cluster else ():
                first = first_user.setdefault((document.round, image), document.id)
                if first != document.id:
                    users = f"{first}, {document.id}: {image}"
                    problems.append(f"{split} round {document.round}: {users}")
                if cluster_of.setdefault(image, document.cluster) != document.cluster:
                    problems.append(f"{where} {image} is in another cluster too")
    if problems:
        raise ValueError("leaks: " + "; ".join(problems[:5]) + "; rebuild these documents")
