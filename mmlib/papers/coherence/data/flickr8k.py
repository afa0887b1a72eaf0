"""Flickr8k with noisy labels: a classifier of Clue's captions says which relations hold.

Clue (Alikhani et al., ACL 2020) has labels by people, but its pictures have to be fetched from old
addresses; Flickr8k has photographs but no relations. A label is a function of its text alone, so
confidence is the same for every image of a row, and refinement can reorder nothing; `notes.yaml`
says what such labels can show. They are also shifted: "not Visible" is no more than an unusual
wording. Clue's Meta captions nearly all tell where, when or how, so "a dog on the beach" becomes
Meta too. Irrelevant is hardly learned: 79 of its captions are "digital art selected for the #".
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from mmlib.core.records import RelatedPairs, normalised
from mmlib.data import clue, flickr8k
from mmlib.papers.coherence.data.pairs import SPLITS, Pairs, pooled, relations_of


def relation_pipeline() -> Any:
    """TF-IDF of words, pairs of words and 2 to 4 letters -> a logistic regression a relation.

    Lower-cased words without punctuation: 26 % of Clue's captions end in a full stop and nearly all
    of Flickr8k's do, which says nothing about a relation.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_pipeline, make_union

    shared = {"preprocessor": normalised, "sublinear_tf": True}
    features = make_union(
        TfidfVectorizer(token_pattern=r"\w+", ngram_range=(1, 2), min_df=2, **shared),
        TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), min_df=5, **shared),
    )
    return make_pipeline(features, OneVsRestClassifier(LogisticRegression(max_iter=1000)))


def fit_pipeline(pairs: RelatedPairs) -> Any:
    """`relation_pipeline`, fitted: its `predict_proba` gives (texts, relations)."""
    return relation_pipeline().fit(pairs.texts, pairs.labels.astype(int))


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
        return self.pipeline.predict_proba(texts) >= self.thresholds


def train_classifier(train: RelatedPairs) -> RelationClassifier:
    """Train on pairs labelled by people, and find the thresholds by cross-validation on them.

    From these on, held-out pairs have as many positives as people gave (ties may add some): 0.5
    leaves Subjective without any, and the threshold of the best F1 calls nearly all Visible.
    """
    scores, counts = np.sort(held_out(train), axis=0), train.labels.sum(axis=0)
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
    texts += images.max() + 1  # a graph of images and texts, in which pairs are edges
    edges = coo_array((np.ones(len(pairs)), (images, texts)), shape=(texts.max() + 1,) * 2)
    return connected_components(edges, directed=False)[1][images]


def held_out(pairs: RelatedPairs, folds: int = 5) -> np.ndarray:
    """(pairs, relations) probabilities, each by a classifier that has not seen the group."""
    from sklearn.model_selection import GroupKFold, cross_val_predict

    groups = np.unique(sharing_groups(pairs), return_inverse=True)[1]
    shuffled = np.random.default_rng(0).permutation(groups.max() + 1)[groups]
    return cross_val_predict(
        relation_pipeline(), list(pairs.texts), pairs.labels.astype(int), groups=shuffled,
        cv=GroupKFold(folds), method="predict_proba",
    )  # fmt: skip


def labelled_pairs(
    split: str, classifier: RelationClassifier, all_captions: bool = False
) -> RelatedPairs:
    """Flickr8k's captions with noisy labels: the first of each image, or all, one pair each.

    Raises DataError for missing or damaged files.
    """
    data = flickr8k.load(split)
    chosen = [captions if all_captions else captions[:1] for captions in data.captions]
    texts = tuple(text for captions in chosen for text in captions)
    return RelatedPairs(
        data.name, split, texts, classifier.labels(texts), classifier.relations,
        image_of=np.repeat(np.arange(len(chosen)), [len(captions) for captions in chosen]),
        image_ids=data.ids, features=data.features, open_image=data.open_image,
    )  # fmt: skip


def load() -> dict[str, Pairs]:
    """Flickr8k: all captions of an image in training, the first one in dev and test."""
    people, relations = clue.load("train"), relations_of("flickr8k")
    labels = people.labels[:, [people.relations.index(name) for name in relations]]
    classifier = train_classifier(replace(people, labels=labels, relations=relations))
    train, val, test = (
        pooled(labelled_pairs(split, classifier, all_captions=split == "train")) for split in SPLITS
    )
    return {"flickr8k": Pairs(train, val, test)}
