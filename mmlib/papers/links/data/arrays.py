"""Documents as arrays, and batches of them."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from mmlib.core.paths import data_dir
from mmlib.data.word_vectors import read_word_vectors
from mmlib.features import text
from mmlib.papers.links.data.documents import SPLITS, UNLABELLED, Corpus, Document, cluster_numbers

if TYPE_CHECKING:
    from mmlib.papers.links.method import Settings

LONG, LONGEST = ("organic", "diy", UNLABELLED), 50  # documents of long sentences, words read (§5)


@dataclass(frozen=True, eq=False)
class Split:
    """The documents of one split.

    sentences, images: for each document an int64 array of rows of `Arrays.ids` and
    `Arrays.features`; links: for each document a bool matrix (n, m), None in a corpus without
    labels. rounds (documents,): documents of one round share no image; clusters (documents,):
    documents of different clusters share none.
    """

    sentences: tuple[np.ndarray, ...]
    images: tuple[np.ndarray, ...]
    links: tuple[np.ndarray, ...] | None
    rounds: np.ndarray
    clusters: np.ndarray

    def __len__(self) -> int:
        return len(self.sentences)


@dataclass(frozen=True, eq=False)
class Arrays:
    """A corpus ready for training and for the baselines: arrays only, so that it travels.

    ids (sentences, longest), padded with 0, and lengths (sentences,): each distinct sentence once;
    words (vocabulary, word width): where word embeddings start; features (images, width).
    label_scores (images, labels) and label_words (labels, word width): what a classifier sees in
    an image, and the labels' names as word vectors. truth: for each test document what a reader
    who knows the picture would score, (n, m). All are None where there is no such thing.
    key: of documents without labels, the sealed links of the test documents (n, m).
    """

    ids: np.ndarray
    lengths: np.ndarray
    words: np.ndarray
    features: np.ndarray
    splits: Mapping[str, Split]
    label_scores: np.ndarray | None = None
    label_words: np.ndarray | None = None
    truth: tuple[np.ndarray, ...] | None = None
    key: tuple[np.ndarray, ...] | None = None

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything that training, baselines and evaluation read."""
        digest = hashlib.sha256()
        fields: dict[str, Any] = vars(self) | {
            f"{split} {name}": value
            for split in SPLITS
            for name, value in vars(self.splits[split]).items()
        }
        del fields["splits"]
        for name, value in fields.items():
            arrays = () if value is None else (value,) if isinstance(value, np.ndarray) else value
            digest.update(f"{name} {len(arrays)}".encode())
            for array in arrays:
                digest.update(f"{array.shape}{array.dtype}".encode())
                digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]

    def clusters(self, split: str) -> np.ndarray:
        """The cluster of each document of a split, (documents,) int."""
        return self.splits[split].clusters

    @property
    def square(self) -> bool:
        """Whether every document has as many sentences as images; then TK is the same as DC."""
        return all(
            len(s) == len(v)
            for split in self.splits.values()
            for s, v in zip(split.sentences, split.images, strict=True)
        )


# --- From documents ----------------------------------------------------------------------------


def prepare(corpus: Corpus, settings: "Settings") -> Arrays:
    """Tokenise a corpus and index it. The vocabulary sees training sentences only.

    All systems start from the word vectors of
    `<MMLIB_DATA>/word2vec/GoogleNews-vectors-negative300.bin`, read where the width is 300, else
    of a word2vec that is trained here, on the sentences of training documents only.
    Image features are centred, each divided by its deviation to the power that the settings name,
    and brought to unit overall deviation, all by training images.
    """
    sentences = sorted({s for split in SPLITS for d in corpus.split(split) for s in d.sentences})
    row = {sentence: i for i, sentence in enumerate(sentences)}
    tokens = [text.tokenize(sentence) for sentence in sentences]
    training = [row[s] for d in corpus.train for s in d.sentences]
    vocabulary = text.Vocabulary.from_sentences((tokens[i] for i in training), settings.min_count)
    distinct = [tokens[i] for i in sorted(set(training))]
    path = data_dir() / "word2vec" / "GoogleNews-vectors-negative300.bin"
    if settings.word_width == 300 and path.exists():
        vectors = read_word_vectors(path, {word for sentence in distinct for word in sentence})
    else:
        vectors = text.train_word2vec(distinct, settings.word_width, seed=0)
    longest = LONGEST if corpus.name in LONG else settings.max_words
    ids, lengths = vocabulary.encode(tokens, longest)
    words = text.embedding_matrix(vocabulary, settings.word_width, 0, vectors).numpy()
    rows = np.unique(np.concatenate([corpus.rows(d) for d in corpus.train]))
    features = corpus.features - corpus.features[rows].mean(axis=0)
    features /= np.maximum(features[rows].std(axis=0), 1e-6) ** settings.feature_power
    label_words = None
    if corpus.label_scores is not None:
        label_words = text.mean_word_vectors(
            [text.tokenize(name) for name in corpus.label_names], vectors
        )

    def index(documents: Sequence[Document]) -> Split:
        labelled = all(document.labelled for document in documents)
        return Split(
            sentences=tuple(np.array([row[s] for s in d.sentences]) for d in documents),
            images=tuple(corpus.rows(d) for d in documents),
            links=tuple(d.link_matrix() for d in documents) if labelled else None,
            rounds=np.array([d.round for d in documents]),
            clusters=cluster_numbers(documents),
        )

    return Arrays(
        ids=ids.numpy(),
        lengths=lengths.numpy(),
        words=settings.word_scale * words,
        features=features / max(float(features[rows].std(axis=0).mean()), 1e-6),
        splits={split: index(corpus.split(split)) for split in SPLITS},
        label_scores=corpus.label_scores,
        label_words=label_words,
        truth=corpus.truth,
        key=corpus.key,
    )


# --- Batches ---------------------------------------------------------------------------------


def random_batches(split: Split, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Endless batches of `size` documents, in random order.

    Each batch lies inside one round, so that no image is a source of two of its documents and the
    other documents are clean negatives. What is left of a round is dropped; the next pass draws
    anew. Raises ValueError when no round fills a batch.
    """
    rounds = [np.flatnonzero(split.rounds == r) for r in np.unique(split.rounds)]
    rounds = [members for members in rounds if len(members) >= size]
    if not rounds:
        raise ValueError(f"no round has {size} documents; build more documents or lower b")
    while True:
        batches = []
        for members in rounds:
            order = rng.permutation(members)
            batches += np.split(order, np.arange(size, len(order) + 1, size))[: len(order) // size]
        for i in rng.permutation(len(batches)):
            yield batches[i]


def fixed_batches(split: Split, size: int) -> list[np.ndarray]:
    """The same full pass each time, for the dev loss: batches of `size` inside rounds.

    A round's last batch is filled up from the start of that round, so that every document meets as
    many negatives; a round with fewer documents gives one smaller batch, a lone document none.
    """
    batches = []
    for r in np.unique(split.rounds):
        members = np.flatnonzero(split.rounds == r)
        for start in range(0, len(members), size):
            batch = members[start : start + size]
            batch = np.concatenate([batch, members[: min(start, size - len(batch))]])
            if len(batch) > 1:
                batches.append(batch)
    return batches


@dataclass(frozen=True)
class Batch:
    """D documents, their S sentences and V images in a row.

    ids (S, L), lengths (S,) on the CPU, features (V, width); rows (D, N) and columns (D, M) are
    True where a document has a sentence and an image.
    """

    ids: Tensor
    lengths: Tensor
    features: Tensor
    rows: Tensor
    columns: Tensor


class Batches:
    """Makes the batches of a split, on a device."""

    def __init__(self, arrays: Arrays, split: str, device: str):
        self.split = arrays.splits[split]
        # Copies: workers get read-only memory maps, which torch.from_numpy warns about.
        self.ids = torch.tensor(arrays.ids, device=device)
        self.lengths = torch.tensor(arrays.lengths)
        self.features = torch.tensor(arrays.features, dtype=torch.float32, device=device)
        self.device = device

    def batch(self, documents: Sequence[int] | np.ndarray) -> Batch:
        """The batch of these documents."""
        sentences = [self.split.sentences[d] for d in documents]
        images = [self.split.images[d] for d in documents]
        ids, lengths = self.texts(np.concatenate(sentences))
        return Batch(
            ids=ids,
            lengths=lengths,
            features=self.pictures(np.concatenate(images)),
            rows=self._mask(sentences),
            columns=self._mask(images),
        )

    def texts(self, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        """Ids (S, longest of them) and lengths (S,) of sentences."""
        lengths = self.lengths[torch.from_numpy(rows)]
        return self.ids[torch.from_numpy(rows).to(self.device), : int(lengths.max())], lengths

    def pictures(self, rows: np.ndarray) -> Tensor:
        """Features (V, width) of images."""
        return self.features[torch.from_numpy(rows).to(self.device)]

    def _mask(self, nodes: Sequence[np.ndarray]) -> Tensor:
        sizes = torch.tensor([len(rows) for rows in nodes])
        return (torch.arange(int(sizes.max())) < sizes.unsqueeze(1)).to(self.device)
