"""Noisy labels of Flickr8k: no leaks in the folds, thresholds, labels, and what Clue tells."""

import numpy as np
import pytest
import scripts
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from mmlib.core.records import CaptionedImages
from mmlib.core.related import RelatedPairs
from mmlib.data import flickr8k
from mmlib.papers.coherence.data import flickr8k as noisy

counting = scripts.load("ci/count_clue_and_cite.py")
WORDS = "dog cat boy girl house tree river road hill car boat horse ball field snow".split()
RELATIONS = ("Visible", "Subjective", "Story")
MARKS = ("standing", "beautiful", "history")


def captions(count: int, seed: int = 0, told: float = 0.9) -> RelatedPairs:
    """Two captions an image; a relation's word stands in its captions with the chance `told`."""
    rng = np.random.default_rng(seed)
    labels = rng.random((count, 3)) < [0.6, 0.3, 0.4]
    said = labels & (rng.random(labels.shape) < told)
    texts = tuple(
        " ".join([*rng.choice(WORDS, 5), *np.array(MARKS)[row]]).capitalize() + " ." for row in said
    )
    images = tuple(f"{seed}-{i}" for i in range(-(-count // 2)))
    return RelatedPairs("toy", "train", texts, labels, RELATIONS, np.arange(count) // 2, images)


@pytest.fixture(scope="module")
def train() -> RelatedPairs:
    return captions(400)


@pytest.fixture(scope="module")
def classifier(train: RelatedPairs) -> noisy.RelationClassifier:
    return noisy.train_classifier(train)


# --- Folds ------------------------------------------------------------------------------------


def test_groups_join_what_shares_an_image_or_a_text_also_by_way_of_others():
    pairs = RelatedPairs(
        "toy", "train", ("a dog", "A dog .", "a cat", "two cats", "a cow"), np.zeros((5, 1), bool),
        ("x",), np.array([0, 1, 1, 2, 3]), ("p", "q", "r", "s"),
    )  # fmt: skip
    first, *others = noisy.sharing_groups(pairs)
    assert list(others) == [first, first, others[2], others[3]]
    assert len({first, others[2], others[3]}) == 3


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 12), st.sampled_from(WORDS)), min_size=40, max_size=80))
def test_folds_share_neither_image_nor_text(made):
    images, texts = zip(*made, strict=True)
    # Five pairs of their own, so that five folds exist whatever was drawn.
    images, texts = (*images, *range(50, 55)), (*texts, *"vwxyz")
    pairs = RelatedPairs(
        "toy", "train", texts, np.zeros((len(texts), 1), bool), ("x",), np.array(images),
        tuple(map(str, range(60))),
    )  # fmt: skip
    held_rows = []
    for fit, held in noisy.folds(pairs):
        assert not {images[i] for i in fit} & {images[i] for i in held}
        assert not {texts[i] for i in fit} & {texts[i] for i in held}
        held_rows += list(held)
    assert sorted(held_rows) == list(range(len(texts)))


# --- Training ---------------------------------------------------------------------------------


def test_finds_the_words_that_were_put_in(classifier):
    test = captions(200, seed=1)
    table = counting.average_precisions(classifier.pipeline, test)
    assert (table["low"] > table["chance"]).all()
    assert (table["AP"] > table["chance"] + 0.1).all()
    assert list(table["positives"]) == list(test.labels.sum(0))


def test_punctuation_and_capitals_do_not_count(classifier):
    plain, dressed = noisy.predict(classifier.pipeline, ["a beautiful dog", "A beautiful dog ."])
    np.testing.assert_array_equal(plain, dressed)


def test_only_training_pairs_shape_the_thresholds(train, classifier):
    rate = (noisy.held_out(train) >= classifier.thresholds).mean(0)
    np.testing.assert_allclose(rate, train.labels.mean(0), atol=0.01)


# --- Measures ---------------------------------------------------------------------------------


# --- Labels -----------------------------------------------------------------------------------


@pytest.fixture
def photographs(monkeypatch, classifier) -> None:
    """Two small splits in place of Flickr8k's, five captions an image; the toy's classifier."""

    def load(split):
        texts = captions(200, seed=len(split)).texts
        return CaptionedImages(
            "flickr8k", split, tuple(f"{split}{i}" for i in range(40)),
            tuple(texts[i : i + 5] for i in range(0, 200, 5)), np.ones((40, 2, 3), np.float32),
            lambda row: Image.new("RGB", (8, 8), (row, 0, 0)),
        )  # fmt: skip

    monkeypatch.setattr(flickr8k, "load", load)
    monkeypatch.setattr(noisy, "clue_classifier", lambda folder: classifier)


@pytest.mark.usefixtures("photographs")
def test_labelled_pairs(classifier):
    first = noisy.labelled_pairs("train", RELATIONS)
    every = noisy.labelled_pairs("train", RELATIONS, captions="all")
    assert (len(first), len(every)) == (40, 200)
    assert first.texts == every.texts[::5]
    assert list(every.image_of[:6]) == [0, 0, 0, 0, 0, 1]
    np.testing.assert_array_equal(first.labels, every.labels[::5])
    np.testing.assert_array_equal(every.labels, classifier.labels(every.texts))
    assert first.open_image(7).getpixel((0, 0)) == (7, 0, 0)
    assert first.features.shape == (40, 2, 3)
    two = noisy.labelled_pairs("train", ("Story", "Visible"))
    np.testing.assert_array_equal(two.labels, first.labels[:, [2, 0]])


# --- Real data --------------------------------------------------------------------------------
