"""The pairs of each tier, to look at and as arrays to train on."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from mmlib.core.related import RelatedPairs
from mmlib.features.text import (
    Vocabulary,
    embedding_matrix,
    spaced_tokens,
    tokenize,
    train_word2vec,
)
from mmlib.papers.coherence.batches import SPLITS, Arrays, Pictures, Split
from mmlib.papers.coherence.data import flickr8k, paper, world
from mmlib.papers.coherence.data.pairs import Pairs
from mmlib.papers.coherence.systems import COLLECTIONS, Settings, budget

NOTES = {
    "world": """*What this world was built to contain.* A pair is a drawn scene and one text.
Which relations hold is drawn first, at the real sets' rates and near their correlations, from
what the picture shows and from chance; then a text is written. Two dials: `signal` says how much
the picture counts in the draw (what decides about a relation correlates with the picture by .9
times `signal`), `telling` how often the text is worded as its relations would have it. At the
default of `telling` a bag of words reads the relations off these texts about as well as a richer
classifier (with pairs of words and of letters, from more texts) does off those of Clue's people and
of CITE, which is not well; that is what a relation can add: it tells of the picture what the text
does not. `signal` has no counterpart that we could measure: it stands at 1, the world's most. So
knowing the relations *could* help to find a picture, because the world was made so; whether the
method makes use of it is what is tested.""",
    "flickr8k": """*Noisy labels.* The photographs and captions are Flickr8k's; the relations are
not annotated but come from a classifier of Clue's captions, which has seen the text alone
(`mmlib/papers/coherence/data/flickr8k.py`). Given a text, its picture can add nothing to such a
label, and nearly all these captions describe what is visible. So this tier can show that the model
trains and runs on photographs, and whether a second task on the text changes retrieval; it cannot
show that relations between text and picture help. Irrelevant is left out: the classifier cannot
tell it from chance on new captions. Training takes all five captions of an image, dev and test the
first.""",
    "paper": """The papers' own data, with the images that could be had. `clue` and `cite++` are the
authors' splits, which share pictures or pairs between train and test; `clue clean` tests on the
881 rows with people's captions and unseen pictures, `cite` is the public file without repeated
pairs, split by recipe.""",
}


Study = Mapping[str, Pairs]


def load_study(tier: str, datasets: Sequence[str] = (), seed: int = 0) -> Study:
    """The collections of a tier: all that are there, or those that are named.

    world: drawn here, "Clue-like" and "CITE-like" at the dials' defaults, and Clue-like ones with
    the dials in their name. flickr8k: noisy labels. paper: "clue", "clue clean", "cite", "cite++",
    as far as files and images lie in the data folder.
    Raises ValueError for a tier or collection that is not there, DataError for missing data.
    """
    if tier not in COLLECTIONS:
        raise ValueError(f"no tier {tier!r}: use {', '.join(COLLECTIONS)}")
    names = COLLECTIONS[tier]
    if unknown := [name for name in datasets if name not in names]:
        raise ValueError(f"no pairs {unknown[0]!r} here; there are {', '.join(names)}")
    if tier == "world":
        return world.load(datasets or names, seed)
    return flickr8k.load() if tier == "flickr8k" else paper.load(datasets, seed)


def tokens_of(tier: str) -> Callable[[str], list[str]]:
    """How texts are cut: as the authors do in the tier paper, else in lower-cased tokens."""
    return spaced_tokens if tier == "paper" else tokenize


def prepare(pairs: Pairs, settings: Settings, tier: str, seed: int = 0) -> Arrays:
    """A collection as arrays. Vocabulary, word vectors and scales are of its training pairs.

    word2vec (CBOW, window 10) gives the vectors that training starts from; an unknown word starts
    at random, padding stays 0. Features are centred and divided by their deviations.
    """
    tokens, epochs = tokens_of(tier), settings.word2vec_epochs
    sentences = [tokens(text) for text in pairs.train.texts]
    vocabulary = Vocabulary.from_sentences(sentences, min_count=1)
    vectors = train_word2vec(
        sentences, settings.word_width, seed, epochs=epochs, window=10, skip_gram=False
    )
    words = embedding_matrix(vocabulary, settings.word_width, seed, vectors).numpy()
    words[0] = 0
    words[1] = np.random.default_rng([seed, 1]).normal(size=settings.word_width)

    def split(name: str) -> Split:
        related = pairs.split(name)
        ids, lengths = vocabulary.encode([tokens(t) for t in related.texts], settings.max_words)
        images = _images(related, pairs.train)
        return Split(ids.numpy(), lengths.numpy(), related.labels, related.image_of, images)

    return Arrays({name: split(name) for name in SPLITS}, words, pairs.relations)


def _images(pairs: RelatedPairs, train: RelatedPairs) -> np.ndarray | Pictures:
    if pairs.features is None or train.features is None:
        return Pictures(pairs)
    sample = np.asarray(train.features[:, 0], dtype=np.float32)
    features = np.asarray(pairs.features[:, 0], dtype=np.float32)
    return ((features - sample.mean(axis=0)) / (sample.std(axis=0) + 1e-3)).astype(np.float32)


def load_arrays(study: Study, tier: str) -> dict[str, Arrays]:
    """All collections as arrays, each prepared as its budget says."""
    return {name: prepare(pairs, budget(tier, name), tier) for name, pairs in study.items()}


def some_texts(pairs: RelatedPairs, count: int) -> list[int]:
    """The first test texts of which each of `count` relations holds, spread over the relations."""
    chosen: list[int] = []
    for c in np.linspace(0, len(pairs.relations) - 1, count).astype(int):
        rows = [int(i) for i in np.flatnonzero(pairs.labels[:, c]) if i not in chosen]
        chosen += rows[:1]
    return chosen
