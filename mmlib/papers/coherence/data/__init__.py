"""The pairs of each tier, to look at and as arrays to train on."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mmlib.core.paths import table_beside
from mmlib.features import text as features
from mmlib.papers.coherence.data import controlled, flickr8k, paper, world
from mmlib.papers.coherence.data.pairs import COLLECTIONS, SPLITS, Arrays, Pairs, Pictures, Split

if TYPE_CHECKING:
    from mmlib.papers.coherence.run import Settings

NOTES: dict[str, str] = table_beside(str(Path(__file__).with_name("notes")))
Study = Mapping[str, Pairs]


def load_study(tier: str, datasets: Sequence[str] = (), seed: int = 0) -> Study:
    """The collections of a tier, see `pairs.COLLECTIONS`: those that are named, or all there are.

    Raises ValueError for a tier or collection that is not there, DataError for missing data.
    """
    if tier not in COLLECTIONS:
        raise ValueError(f"no tier {tier!r}: use {', '.join(COLLECTIONS)}")
    names = COLLECTIONS[tier]
    if unknown := [name for name in datasets if name not in names]:
        raise ValueError(f"no pairs {unknown[0]!r} here; there are {', '.join(names)}")
    if tier == "world":
        return world.load(datasets or names, seed)
    if tier == "controlled":
        return {n: controlled.load(controlled.recorded(n), seed) for n in datasets or names}
    return flickr8k.load() if tier == "flickr8k" else paper.load(datasets, seed)


def tokens_of(tier: str) -> Callable[[str], list[str]]:
    """How texts are cut: as the authors do in the tier paper, else in lower-cased tokens."""
    return features.spaced_tokens if tier == "paper" else features.tokenize


def prepare(pairs: Pairs, settings: "Settings", tier: str, seed: int = 0) -> Arrays:
    """A collection as arrays. Vocabulary, word vectors and scales are of its training pairs.

    word2vec (CBOW, window 10) gives the vectors that training starts from; an unknown word starts
    at random, padding stays 0. Features are centred and divided by their deviations.
    Words of controlled pairs all start at random, so that they share nothing.
    """
    tokens, width = tokens_of(tier), settings.word_width
    sentences = [tokens(text) for text in pairs.train.texts]
    vocabulary = features.Vocabulary.from_sentences(sentences, min_count=1)
    rng, is_made_up = np.random.default_rng([seed, 1]), tier == "controlled"
    if is_made_up:
        words = rng.normal(size=(len(vocabulary), width)).astype(np.float32)
    else:
        vectors = features.train_word2vec(
            sentences, width, seed, epochs=settings.word2vec_epochs, window=10, skip_gram=False
        )
        words = features.embedding_matrix(vocabulary, width, seed, vectors).numpy()
        words[1] = rng.normal(size=width)
    words[0] = 0
    splits = {}
    for name in SPLITS:
        related = pairs.split(name)
        ids, lengths = vocabulary.encode([tokens(t) for t in related.texts], settings.max_words)
        images: np.ndarray | Pictures
        if related.features is None or pairs.train.features is None:
            images = Pictures(related)
        else:
            sample = np.asarray(pairs.train.features[:, 0], dtype=np.float32)
            centred = np.asarray(related.features[:, 0], dtype=np.float32) - sample.mean(axis=0)
            images = (centred / (sample.std(axis=0) + 1e-3)).astype(np.float32)
        splits[name] = Split(ids.numpy(), lengths.numpy(), related.labels, related.image_of, images)
    truth = controlled.truth(pairs.test) if is_made_up else {}
    return Arrays(splits, words, pairs.relations, truth)
