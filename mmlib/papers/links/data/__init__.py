"""The documents of each tier, as corpora to look at and as arrays to train on."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mmlib.core.paths import data_dir
from mmlib.features.text import (
    Vocabulary,
    embedding_matrix,
    mean_word_vectors,
    read_word_vectors,
    tokenize,
    train_word2vec,
)
from mmlib.papers.links.data import flickr8k, paper, world
from mmlib.papers.links.data.arrays import Arrays, Split
from mmlib.papers.links.data.documents import (
    KINDS,
    SPLITS,
    UNLABELLED,
    Corpus,
    Document,
    Study,
    cluster_numbers,
)

if TYPE_CHECKING:
    from mmlib.papers.links.method import Settings

LONG = ("organic", "diy", UNLABELLED)  # their sentences are cut at 50 words, not at 20 (§5)


def load_study(tier: str, kinds: Sequence[str] = ()) -> Study:
    """Documents of a tier: all kinds that it has, or those that are named.

    world: drawn here. flickr8k: built from its photographs. paper: every folder of
    `<MMLIB_DATA>/links/` that holds docs.json, id2row.json and features.npy.
    Raises ValueError for a tier or kind that is not there, FileNotFoundError for missing data.
    """
    if tier == "paper":
        return paper.load(kinds)
    if tier not in KINDS:
        raise ValueError(f"no tier {tier!r}: use world, flickr8k or paper")
    kinds = kinds or KINDS[tier]
    if unknown := [kind for kind in kinds if kind not in KINDS[tier]]:
        available = ", ".join(KINDS[tier])
        raise ValueError(f"no documents {unknown[0]!r} here; there are {available}")
    study = (world if tier == "world" else flickr8k).load(kinds)
    corpora = {kind: study.corpora[kind] for kind in kinds if kind != UNLABELLED}
    return Study(corpora, study.unlabelled, study.key)


# --- Arrays ----------------------------------------------------------------------------------


def word_vectors(corpus: Corpus, settings: "Settings") -> dict[str, np.ndarray]:
    """Word vectors that all systems start from: the user's GoogleNews file, else made here.

    word2vec trained on the sentences of training documents only. The file is
    `<MMLIB_DATA>/word2vec/GoogleNews-vectors-negative300.bin`, read where the width is 300.
    """
    texts = {sentence for document in corpus.train for sentence in document.sentences}
    tokens = [tokenize(sentence) for sentence in sorted(texts)]
    path = data_dir() / "word2vec" / "GoogleNews-vectors-negative300.bin"
    if settings.word_width == 300 and path.exists():
        return read_word_vectors(path, {word for sentence in tokens for word in sentence})
    return train_word2vec(tokens, settings.word_width, seed=0)


def prepare(
    corpus: Corpus, settings: "Settings", vectors: Mapping[str, np.ndarray] | None = None,
    key: Mapping[str, np.ndarray] | None = None,
) -> Arrays:  # fmt: skip
    """Tokenise a corpus and index it. The vocabulary sees training sentences only.

    vectors: word -> (word_width,) to start from; None starts from small random embeddings.
    key: document id -> sealed links, of a corpus without labels.
    Image features are centred, each divided by its deviation to the power that the settings name,
    and brought to unit overall deviation, all by training images.
    """
    documents = {split: corpus.split(split) for split in SPLITS}
    sentences = sorted({s for split in SPLITS for d in documents[split] for s in d.sentences})
    row = {sentence: i for i, sentence in enumerate(sentences)}
    tokens = [tokenize(sentence) for sentence in sentences]
    training = (tokens[row[s]] for d in corpus.train for s in d.sentences)
    vocabulary = Vocabulary.from_sentences(training, settings.min_count)
    ids, lengths = vocabulary.encode(tokens, 50 if corpus.name in LONG else settings.max_words)
    rows = np.unique(np.concatenate([corpus.rows(d) for d in corpus.train]))
    features = corpus.features - corpus.features[rows].mean(axis=0)
    features /= np.maximum(features[rows].std(axis=0), 1e-6) ** settings.feature_power
    label_words = None
    if vectors is not None and corpus.label_scores is not None:
        label_words = mean_word_vectors([tokenize(name) for name in corpus.label_names], vectors)
    return Arrays(
        ids=ids.numpy(),
        lengths=lengths.numpy(),
        words=settings.word_scale
        * embedding_matrix(vocabulary, settings.word_width, 0, vectors).numpy(),
        features=features / max(float(features[rows].std(axis=0).mean()), 1e-6),
        splits={split: _index(corpus, documents[split], row) for split in SPLITS},
        label_scores=None if label_words is None else corpus.label_scores,
        label_words=label_words,
        truth=tuple(map(corpus.recognise, corpus.test)) if corpus.recognise else None,
        key=tuple(key[document.id] for document in corpus.test) if key else None,
    )


def _index(corpus: Corpus, documents: Sequence[Document], row: Mapping[str, int]) -> Split:
    labelled = all(document.labelled for document in documents)
    return Split(
        sentences=tuple(np.array([row[s] for s in d.sentences]) for d in documents),
        images=tuple(corpus.rows(d) for d in documents),
        links=tuple(d.link_matrix() for d in documents) if labelled else None,
        rounds=np.array([d.round for d in documents]),
        clusters=cluster_numbers(documents),
    )
