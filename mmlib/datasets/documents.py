"""Documents of several sentences and images: the record, the authors' files, batches.

The format and its label rules are those of the code released with Hessel, Lee and Mimno,
"Unsupervised Discovery of Multimodal Links in Multi-image, Multi-sentence Documents" (EMNLP 2019).
Rows are always sentences, columns images.
"""

import json
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from mmlib.paths import write_atomic

SPLITS = ("train", "val", "test")
# Where the ids of documents built here say their round and cluster.
PLACE = re.compile(r"-r(\d+)-c(\w+)-\w+$")


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
        place = PLACE.search(self.id)
        return int(place[1]) if place else 0

    @property
    def cluster(self) -> str:
        """Documents of different clusters share no source image; the id when it does not say."""
        place = PLACE.search(self.id)
        return place[2] if place else self.id

    def link_matrix(self) -> np.ndarray:
        """True links, (sentences, images) bool: the union of what both sides name."""
        if not self.labelled:
            raise ValueError(f"document {self.id!r} is unlabelled: its links cannot be scored")
        links = np.zeros((len(self.sentences), len(self.images)), dtype=bool)
        for sentence, image in enumerate(self.sentence_labels):
            if image is not None and image >= 0:
                links[sentence, image] = True
        for image, sentence_named in enumerate(self.image_labels):
            if sentence_named is not None and sentence_named >= 0:
                links[sentence_named, image] = True
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

    name, source: the kind of document and the collection it was made from.
    features: (rows, width) float32; the mean over regions where a collection has regions.
    row_of: image id -> row of `features` (and of `label_scores`).
    open_image: image id -> RGB picture, or None.
    label_scores: (rows, labels) probabilities of a frozen classifier, or None.
    sources: document id -> for each sentence the image it was written for ("" for none);
        empty when the corpus was read from files.
    """

    name: str
    source: str
    train: tuple[Document, ...]
    val: tuple[Document, ...]
    test: tuple[Document, ...]
    features: np.ndarray
    row_of: Mapping[str, int]
    open_image: Callable[[str], Image.Image] | None = None
    label_scores: np.ndarray | None = None
    label_names: tuple[str, ...] = ()
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def split(self, name: str) -> tuple[Document, ...]:
        """The documents of "train", "val" or "test"."""
        if name not in SPLITS:
            raise ValueError(f"no split {name!r}; use one of {', '.join(SPLITS)}")
        return getattr(self, name)

    def rows(self, document: Document) -> np.ndarray:
        """Feature rows of a document's images, (images,) int."""
        return np.array([self.row_of[image] for image in document.images], dtype=np.int64)


# --- the authors' files ------------------------------------------------------------------------


def read_corpus(folder: Path) -> Corpus:
    """Read `docs.json`, `id2row.json` and `features.npy` as the authors' loader understands them.

    Identifiers that are numbers become strings, as in that loader. Documents without an image or
    without a sentence are left out, with a warning that counts them; empty sentences stay.
    Raises FileNotFoundError or ValueError, naming the file, the document and the mend.
    """
    folder = Path(folder)
    features = _read_features(folder / "features.npy")
    row_of = _read_rows(folder / "id2row.json", len(features))
    path = folder / "docs.json"
    raw = _read_json(path)
    if not isinstance(raw, dict) or any(not isinstance(raw.get(s), list) for s in SPLITS):
        raise ValueError(f"{path}: must be an object with the lists 'train', 'val' and 'test'")
    splits = {split: _parse_split(path, split, raw[split], row_of) for split in SPLITS}
    kept = {s: tuple(d for d in docs if d.images and d.sentences) for s, docs in splits.items()}
    corpus = Corpus(
        name=folder.resolve().name,
        source=path.name,
        train=kept["train"],
        val=kept["val"],
        test=kept["test"],
        features=features,
        row_of=row_of,
    )
    _check_one_labelling(corpus, path)
    dropped = {split: len(splits[split]) - len(kept[split]) for split in SPLITS}
    if any(dropped.values()):
        counts = ", ".join(f"{split} {count}" for split, count in dropped.items())
        warnings.warn(
            f"{path}: left out documents without images or sentences: {counts}", stacklevel=2
        )
    return corpus


def write_corpus(corpus: Corpus, folder: Path) -> None:
    """Write the three files that `read_corpus` (and the authors' code) reads.

    Raises ValueError when labelled and unlabelled documents are mixed, or an image has no row.
    """
    folder = Path(folder)
    path = folder / "docs.json"
    _check_one_labelling(corpus, path)
    docs: dict[str, list] = {}
    for split in SPLITS:
        for index, document in enumerate(corpus.split(split)):
            for image in document.images:
                if image not in corpus.row_of:
                    raise ValueError(f"{_where(path, split, index, document.id)}: {_no_row(image)}")
        docs[split] = [_to_item(document) for document in corpus.split(split)]
    row_of = {image: int(row) for image, row in corpus.row_of.items()}
    features = np.asarray(corpus.features, dtype=np.float32)
    write_atomic(folder / "features.npy", lambda file: np.save(file, features))
    write_atomic(folder / "id2row.json", lambda file: _write_json(file, row_of))
    write_atomic(path, lambda file: _write_json(file, docs))


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


def _read_json(path: Path) -> Any:
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: missing; a corpus needs docs.json, id2row.json, features.npy"
        )
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: not valid JSON ({error}); write it again") from None


def _read_features(path: Path) -> np.ndarray:
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: missing; a corpus needs docs.json, id2row.json, features.npy"
        )
    try:
        features = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path}: not a plain .npy array ({error}); save it again") from None
    if features.ndim != 2 or not np.issubdtype(features.dtype, np.floating):
        raise ValueError(
            f"{path}: shape {features.shape}, {features.dtype}; needs 2-D floats (images, width)"
        )
    bad = np.flatnonzero(~np.isfinite(features).all(axis=1))
    if len(bad):
        raise ValueError(f"{path}: row {bad[0]} holds NaN or infinity; extract that image again")
    return features.astype(np.float32, copy=False)


def _read_rows(path: Path, count: int) -> dict[str, int]:
    rows = _read_json(path)
    if not isinstance(rows, dict):
        raise ValueError(f"{path}: must be an object that maps image ids to rows")
    for image, row in rows.items():
        if isinstance(row, bool) or not isinstance(row, int) or not 0 <= row < count:
            raise ValueError(
                f"{path}: image {image!r} has row {row!r}; features.npy has rows 0 to {count - 1}"
            )
    return rows


def _parse_split(path: Path, split: str, items: list, row_of: Mapping) -> list[Document]:
    documents = []
    for index, item in enumerate(items):
        if not isinstance(item, list) or len(item) != 3:
            raise ValueError(
                f"{path}: {split} document {index}: must be [images, sentences, identifier]"
            )
        try:
            documents.append(_parse_document(item, row_of))
        except ValueError as error:
            raise ValueError(f"{_where(path, split, index, item[2])}: {error}") from None
    return documents


def _parse_document(item: list, row_of: Mapping) -> Document:
    images, sentences, meta = item
    for side, nodes in (("images", images), ("sentences", sentences)):
        if not isinstance(nodes, list) or any(
            not isinstance(node, list) or len(node) != 2 for node in nodes
        ):
            raise ValueError(f"{side} must be a list of [value, label] pairs")
    for number, (image, _) in enumerate(images):
        if isinstance(image, bool) or not isinstance(image, str | int):
            raise ValueError(f"image {number} has id {image!r}; use a string or an integer")
        if str(image) not in row_of:
            raise ValueError(_no_row(str(image)))
    for number, (text, _) in enumerate(sentences):
        if not isinstance(text, str):
            raise ValueError(f"sentence {number} is {text!r}; use a string")
    return Document(
        id=str(meta),
        sentences=tuple(text for text, _ in sentences),
        images=tuple(str(image) for image, _ in images),
        sentence_labels=tuple(label for _, label in sentences),
        image_labels=tuple(label for _, label in images),
    )


def _to_item(document: Document) -> list:
    """One document as `[images, sentences, identifier]`."""

    def pairs(nodes: tuple, labels: tuple) -> list:
        plain = [None if label is None else int(label) for label in labels]
        return [[node, label] for node, label in zip(nodes, plain, strict=True)]

    images = pairs(document.images, document.image_labels)
    return [images, pairs(document.sentences, document.sentence_labels), document.id]


def _where(path: Path, split: str, index: int, identifier: object) -> str:
    return f"{path}: {split} document {index} ({identifier!r})"


def _no_row(image: str) -> str:
    return f"image {image!r} has no row in id2row.json; add its feature vector or drop the image"


def _check_one_labelling(corpus: Corpus, path: Path) -> None:
    """One label decides for the authors' code whether a file is labelled: refuse a mixture."""
    seen: dict[bool, str] = {}
    for split in SPLITS:
        for index, document in enumerate(corpus.split(split)):
            seen.setdefault(document.labelled, f"{split} document {index} ({document.id!r})")
    if len(seen) == 2:
        raise ValueError(
            f"{path}: {seen[False]} has null labels but {seen[True]} has integers; "
            "label all documents (-1 for 'no link') or none"
        )


# --- batches -----------------------------------------------------------------------------------


def _by_round(documents: Sequence[Document]) -> list[list[int]]:
    rounds = defaultdict(list)
    for index, document in enumerate(documents):
        rounds[document.round].append(index)
    return [rounds[key] for key in sorted(rounds)]


def document_batches(
    documents: Sequence[Document], size: int, rng: np.random.Generator, drop_last: bool = True
) -> Iterator[list[int]]:
    """One epoch of batches of `size` document indices, in random order.

    Each batch lies inside one round, so that no image is a source of two of its documents and the
    other documents are clean negatives. A round's incomplete last batch is dropped (a single
    left-over document always is). Raises ValueError when no round fills a batch.
    """
    batches = []
    for members in _by_round(documents):
        order = rng.permutation(members).tolist()
        batches += [order[start : start + size] for start in range(0, len(order), size)]
    batches = [b for b in batches if len(b) == size or (not drop_last and len(b) > 1)]
    if not batches:
        raise ValueError(f"no round has {size} documents; build more documents or lower the size")
    for index in rng.permutation(len(batches)):
        yield batches[index]


def fixed_batches(documents: Sequence[Document], size: int) -> list[list[int]]:
    """The same full pass each time, for the dev loss: batches of `size` inside rounds.

    A round's last batch is filled up from the start of that round, so that every document meets as
    many negatives; a round with fewer than `size` documents gives one smaller batch, and a lone
    document, which has no negatives, none.
    """
    batches = []
    for members in _by_round(documents):
        for start in range(0, len(members), size):
            batch = members[start : start + size]
            batch += members[: min(start, size - len(batch))]
            if len(batch) > 1:
                batches.append(batch)
    return batches


def cluster_numbers(documents: Sequence[Document]) -> np.ndarray:
    """For each document the number of its cluster, (documents,) int, to resample by.

    A document whose id names no cluster (files of others, where ids may repeat) is its own.
    """
    numbers: dict[object, int] = {}
    keys = [d.cluster if PLACE.search(d.id) else (i,) for i, d in enumerate(documents)]
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)
