"""Flickr8k with noisy labels: a classifier of Clue's captions says which relations hold.

Clue (Alikhani et al., ACL 2020) gives captions and labels by people, but its pictures have to be
fetched from old addresses; Flickr8k has photographs and captions but no relations.

The classifier has never seen an image, so that a label is a function of its text alone: the
relation head can ignore the image, its confidence η is then the same for every image of a row, and
refinement cannot reorder anything; `notes.yaml` says what such labels can show. They are also
shifted: "not Visible" means no more than an unusual wording, since all captions describe what is
seen. Clue's Meta captions nearly all tell where, when or how (95 % are marked so), and "a dog on
the beach" becomes Meta too. Irrelevant is hardly learned: 89 of Clue's 6,047 training captions are
"digital art selected for the #", 79 of them Irrelevant.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from mmlib.core.records import RelatedPairs, normalised
from mmlib.data import clue, flickr8k
from mmlib.papers.coherence.data.pairs import SPLITS, Pairs, pooled, relations_of

FOLDS = 5


def fit_pipeline(pairs: RelatedPairs) -> Any:
    """Texts -> TF-IDF of words, pairs of words and 2 to 4 letters -> logistic regressions.

    Lower-cased words without punctuation: 26 % of Clue's captions end in a full stop and nearly all
    of Flickr8k's do, which says nothing about a relation.
    Raises ValueError for a relation that is always or never positive, as may be in a fold.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.multioutput import MultiOutputClassifier
    from sklearn.pipeline import make_pipeline, make_union

    shared = {"preprocessor": normalised, "sublinear_tf": True}
    features = make_union(
        TfidfVectorizer(token_pattern=r"\w+", ngram_range=(1, 2), min_df=2, **shared),
        TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), min_df=5, **shared),
    )
    pipeline = make_pipeline(features, MultiOutputClassifier(LogisticRegression(max_iter=1000)))
    return pipeline.fit(pairs.texts, pairs.labels.astype(int))


def predict(pipeline: Any, texts: Sequence[str]) -> np.ndarray:
    """Probability (texts, relations) that each relation holds, each relation on its own."""
    return np.stack([of_class[:, 1] for of_class in pipeline.predict_proba(texts)], axis=1)


class RelationClassifier(NamedTuple):
    """Which relations a text has, guessed from its words alone.

    relations: their names. pipeline: the trained scikit-learn pipeline. thresholds (relations,):
    probabilities from which on a label is positive.
    """

    relations: tuple[str, ...]
    pipeline: Any
    thresholds: np.ndarray

    def labels(self, texts: Sequence[str]) -> np.ndarray:
        """(texts, relations) bool: at or above the threshold."""
        return predict(self.pipeline, texts) >= self.thresholds


def train_classifier(train: RelatedPairs) -> RelationClassifier:
    """Train on pairs labelled by people, and find the thresholds by cross-validation on them.

    From the thresholds on, held-out pairs have as many positives as people gave (ties may add
    some): 0.5 would leave Subjective and Irrelevant without any, and that of the best F1 calls
    nearly all Visible. Raises ValueError for a relation that is always or never positive.
    """
    scores = np.sort(held_out(train), axis=0)
    counts = train.labels.sum(axis=0)
    thresholds = scores[len(scores) - counts, np.arange(len(counts))]
    return RelationClassifier(train.relations, fit_pipeline(train), thresholds)


def sharing_groups(pairs: RelatedPairs) -> np.ndarray:
    """(pairs,) group numbers; pairs that share an image or text, also by way of others, are one.

    A classifier of texts leaks by repeated texts, so that the image alone is too weak a group.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    images = np.unique(pairs.image_of, return_inverse=True)[1]
    texts = np.unique([normalised(text) for text in pairs.texts], return_inverse=True)[1]
    first_text = images.max(initial=-1) + 1
    count = first_text + texts.max(initial=-1) + 1
    edges = coo_array((np.ones(len(pairs)), (images, first_text + texts)), shape=(count, count))
    return connected_components(edges, directed=False)[1][images]


def folds(pairs: RelatedPairs) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """`FOLDS` times the rows to train on and the rows held out, no group on both sides."""
    from sklearn.model_selection import GroupKFold

    groups = np.unique(sharing_groups(pairs), return_inverse=True)[1]
    shuffled = np.random.default_rng(0).permutation(groups.max(initial=0) + 1)[groups]
    yield from GroupKFold(FOLDS).split(groups, groups=shuffled)


def held_out(pairs: RelatedPairs) -> np.ndarray:
    """(pairs, relations) probabilities, each by a classifier that has not seen the group."""
    probabilities = np.empty(pairs.labels.shape)
    for rows, held in folds(pairs):
        pipeline = fit_pipeline(pairs.take(rows))
        probabilities[held] = predict(pipeline, [pairs.texts[i] for i in held])
    return probabilities


def labelled_pairs(
    split: str, classifier: RelationClassifier, relations: Sequence[str], all_captions: bool = False
) -> RelatedPairs:
    """Flickr8k's captions with noisy labels (see the module's text for what they are worth).

    split: "train", "val" or "test". relations: those of the classifier to keep. all_captions: all
    five of each image, one pair each, instead of the first. Raises DataError for missing or
    damaged files.
    """
    data = flickr8k.load(split)
    chosen = [captions if all_captions else captions[:1] for captions in data.captions]
    texts = tuple(text for captions in chosen for text in captions)
    columns = [classifier.relations.index(name) for name in relations]
    return RelatedPairs(
        data.name, split, texts, classifier.labels(texts)[:, columns], tuple(relations),
        image_of=np.repeat(np.arange(len(chosen)), [len(captions) for captions in chosen]),
        image_ids=data.ids, features=data.features, open_image=data.open_image,
    )  # fmt: skip


def load() -> dict[str, Pairs]:
    """Flickr8k: all captions of an image in training, the first one in dev and test."""
    classifier = train_classifier(clue.load("train"))
    relations = relations_of("flickr8k")
    train, val, test = (
        pooled(labelled_pairs(split, classifier, relations, all_captions=split == "train"))
        for split in SPLITS
    )
    return {"flickr8k": Pairs(train, val, test)}
