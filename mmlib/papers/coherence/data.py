"""The pairs of each tier, to look at and as arrays to train on."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mmlib.core.errors import DataError
from mmlib.core.paths import data_dir
from mmlib.core.related import RelatedPairs, grouped_rows, hold_out
from mmlib.data import cite, clue
from mmlib.data.pair_figures import image_names
from mmlib.features.text import (
    Vocabulary,
    embedding_matrix,
    spaced_tokens,
    tokenize,
    train_word2vec,
)
from mmlib.papers.coherence.arrays import SPLITS, Arrays, Pictures, Split
from mmlib.papers.coherence.experiment import CITE_LIKE, DIALS, WORLD, budget
from mmlib.papers.coherence.model import Settings
from mmlib.world import discourse

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
    "flickr8k": """*Silver labels.* The photographs and captions are Flickr8k's; the relations are
not annotated but come from a classifier of Clue's captions, which has seen the text alone
(`mmlib/papers/coherence/silver.py`). Given a text, its picture can add nothing to such a label, and
nearly all these captions describe what is visible. So this tier can show that the model trains and
runs on photographs, and whether a second task on the text changes retrieval; it cannot show that
relations between text and picture help. Irrelevant is left out: the classifier cannot tell it from
chance on new captions. Training takes all five captions of an image, dev and test the first.""",
    "paper": """The papers' own data, with the images that could be had. `clue` and `cite++` are the
authors' splits, which share pictures or pairs between train and test; `clue clean` tests on the
881 rows with people's captions and unseen pictures, `cite` is the public file without repeated
pairs, split by recipe.""",
}

WORLD_PAIRS = {"train": 2000, "val": 400, "test": 1000}
# Irrelevant is not learnt from Clue: it rests on captions that repeat.
SILVER = ("Visible", "Subjective", "Action", "Story", "Meta")


@dataclass(frozen=True, eq=False)
class Pairs:
    """One collection in three splits. missing: what is said of images that could not be had."""

    train: RelatedPairs
    val: RelatedPairs
    test: RelatedPairs
    missing: str = ""

    @property
    def relations(self) -> tuple[str, ...]:
        """Names of the relations."""
        return self.train.relations

    def split(self, name: str) -> RelatedPairs:
        """A split by name."""
        return getattr(self, name)


Study = Mapping[str, Pairs]


def load_documents(tier: str, datasets: Sequence[str] = (), seed: int = 0) -> Study:
    """The collections of a tier: all that are there, or those that are named.

    world: drawn here, "Clue-like" and "CITE-like" at the dials' defaults, and Clue-like ones with
    the dials in their name. flickr8k: silver labels. paper: "clue", "clue clean", "cite", "cite++",
    as far as files and images lie in the data folder.
    Raises ValueError for a tier or collection that is not there, DataError for missing data.
    """
    known = {"world": WORLD, "flickr8k": ("flickr8k",), "paper": tuple(PAPER_TIER)}
    if tier not in known:
        raise ValueError(f"no tier {tier!r}: use {', '.join(known)}")
    if unknown := [name for name in datasets if name not in known[tier]]:
        raise ValueError(f"no pairs {unknown[0]!r} here; there are {', '.join(known[tier])}")
    if tier == "world":
        return _world(datasets or WORLD, seed)
    return _flickr8k() if tier == "flickr8k" else _paper(datasets, seed)


def _world(names: Sequence[str], seed: int) -> Study:
    """Clue-like collections have the same pictures, seen once; CITE-like has pictures of its own,
    so that claims can be pooled over the two.
    """
    found: dict[str, Pairs] = {}
    seen: dict[str, Pairs] = {}  # by scheme
    for name in names:
        scheme = "cite" if name == CITE_LIKE else "clue"
        known = seen.get(scheme)
        signal, telling = DIALS.get(name, (1.0, discourse.TELLING))
        made = {}
        for split, count in WORLD_PAIRS.items():
            pairs = discourse.related_pairs(
                split, count, scheme, seed + (scheme == "cite"), signal,
                workers=os.cpu_count() or 1, see_pictures=known is None, telling=telling,
            )  # fmt: skip
            own = replace(pairs, features=known.split(split).features) if known else pooled(pairs)
            made[split] = own
        found[name] = Pairs(made["train"], made["val"], made["test"])
        seen.setdefault(scheme, found[name])
    return found


def pooled(pairs: RelatedPairs) -> RelatedPairs:
    """Mean and maximum over a picture's regions as its one vector: small things fade in a mean."""
    assert pairs.features is not None
    regions = np.asarray(pairs.features, dtype=np.float32)
    both = np.concatenate([regions.mean(axis=1), regions.max(axis=1)], axis=1)
    return replace(pairs, features=both[:, None])


def _flickr8k() -> Study:
    from mmlib.papers.coherence.silver import silver_pairs

    train = pooled(silver_pairs("train", SILVER, captions="all"))
    val, test = (pooled(silver_pairs(split, SILVER)) for split in ("val", "test"))
    return {"flickr8k": Pairs(train, val, test)}


# --- The tier "paper" ----------------------------------------------------------------------------


def _authors(module: object) -> Callable[[int], Pairs]:
    """Clue or CITE++ as its authors split it, a tenth of the training images held out as dev."""

    def load(seed: int) -> Pairs:
        train, missing = module.load_with_images("train")  # type: ignore[attr-defined]
        test, absent = module.load_with_images("test")  # type: ignore[attr-defined]
        train, val = hold_out(train, 0.1, seed)
        return Pairs(train, val, test, f"train: {missing}; test: {absent}")

    return load


def _clue_clean(seed: int) -> Pairs:
    found = _authors(clue)(seed)
    assert isinstance(found.test, clue.CluePairs)
    train, _ = clue.load_with_images("train")
    return replace(found, test=found.test.take(clue.clean_rows(found.test, train)[0]))


def _cite(seed: int) -> Pairs:
    pairs, missing = cite.load_with_images("all")
    rest, test = (pairs.take(rows) for rows in grouped_rows(recipes(pairs), 0.2, seed))
    train, val = (rest.take(rows) for rows in grouped_rows(recipes(rest), 0.1, seed))
    return Pairs(
        replace(train, split="train"), replace(val, split="val"), replace(test, split="test"),
        str(missing),
    )  # fmt: skip


def recipes(pairs: RelatedPairs) -> np.ndarray:
    """The recipe of each pair, by its image's name; an image that names none stands alone."""
    return np.array([cite.recipe_of(name) or name for name in image_names(pairs)])


PAPER_TIER: dict[str, Callable[[int], Pairs]] = {
    "clue": _authors(clue), "clue clean": _clue_clean, "cite": _cite, "cite++": _authors(cite)
}  # fmt: skip


def _paper(names: Sequence[str], seed: int) -> Study:
    """What is complete; `missing` says what is not, as a damaged file must not look absent."""
    found: dict[str, Pairs] = {}
    refused = []
    for name in names or PAPER_TIER:
        try:
            found[name] = PAPER_TIER[name](seed)
        except DataError as error:
            if names:
                raise
            refused.append(f"{name}: {error}")
    if not found:
        raise DataError(f"{data_dir()} has no complete collection: {'; '.join(refused)}")
    return {
        name: replace(pairs, missing="; left out: ".join([pairs.missing, *refused]))
        for name, pairs in found.items()
    }


# --- Arrays --------------------------------------------------------------------------------------


def tokens_of(tier: str) -> Callable[[str], list[str]]:
    """How texts are cut: as the authors do in the tier paper, else in lower-cased tokens."""
    return spaced_tokens if tier == "paper" else tokenize


def prepare(pairs: Pairs, settings: Settings, tier: str, seed: int = 0) -> Arrays:
    """A collection as arrays. Vocabulary, word vectors and scales are of its training pairs.

    word2vec (CBOW, window 10) gives the vectors that training starts from; an unknown word starts
    at random, padding stays 0. Features are centred and divided by their deviations.
    """
    tokens = tokens_of(tier)
    sentences = [tokens(text) for text in pairs.train.texts]
    vocabulary = Vocabulary.from_sentences(sentences, min_count=1)
    vectors = train_word2vec(
        sentences, settings.word_width, seed, epochs=settings.words, window=10, skip_gram=False
    )
    words = embedding_matrix(vocabulary, settings.word_width, seed, vectors).numpy()
    words[0] = 0
    words[1] = np.random.default_rng([seed, 1]).normal(size=settings.word_width)
    splits = {}
    for name in SPLITS:
        own = pairs.split(name)
        ids, lengths = vocabulary.encode([tokens(t) for t in own.texts], settings.max_words)
        images = _images(own, pairs.train)
        splits[name] = Split(ids.numpy(), lengths.numpy(), own.labels, own.image_of, images)
    return Arrays(splits, words, pairs.relations)


def _images(pairs: RelatedPairs, train: RelatedPairs) -> np.ndarray | Pictures:
    if pairs.features is None or train.features is None:
        return Pictures(pairs)
    sample = np.asarray(train.features[:, 0], dtype=np.float32)
    own = np.asarray(pairs.features[:, 0], dtype=np.float32)
    return ((own - sample.mean(axis=0)) / (sample.std(axis=0) + 1e-3)).astype(np.float32)


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
