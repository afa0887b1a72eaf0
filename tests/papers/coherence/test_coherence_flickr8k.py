"""Noisy labels of Flickr8k: no leaks in the folds, thresholds, labels; and recorded counts."""

import dataclasses

import numpy as np
import pytest
import scripts
from PIL import Image

from mmlib.core.records import CaptionedImages, RelatedPairs
from mmlib.core.tables import paper_tables, paper_values
from mmlib.data import flickr8k
from mmlib.papers.coherence import method
from mmlib.papers.coherence.data import flickr8k as noisy

counting = scripts.load("ci/count_clue_and_cite.py")
WORDS = "dog cat boy girl house tree river road hill car boat horse ball field snow".split()
RELATIONS = ("Visible", "Subjective", "Story")
MARKS = ("standing", "beautiful", "history")


def captions(count, seed=0):
    """Two captions an image; a relation's word stands in nine of ten of its captions."""
    rng = np.random.default_rng(seed)
    labels = rng.random((count, 3)) < [0.6, 0.3, 0.4]
    said = labels & (rng.random(labels.shape) < 0.9)
    texts = tuple(
        " ".join([*rng.choice(WORDS, 5), *np.array(MARKS)[row]]).capitalize() + " ." for row in said
    )
    images = tuple(f"{seed}-{i}" for i in range(-(-count // 2)))
    return RelatedPairs("toy", "train", texts, labels, RELATIONS, np.arange(count) // 2, images)


@pytest.fixture(scope="module")
def classifier():
    return noisy.train_classifier(captions(400))


def test_groups_join_what_shares_an_image_or_a_text_also_by_way_of_others():
    pairs = RelatedPairs(
        "toy", "train", ("a dog", "A dog .", "a cat", "two cats", "a cow"), np.zeros((5, 1), bool),
        ("x",), np.array([0, 1, 1, 2, 3]), ("p", "q", "r", "s"),
    )  # fmt: skip
    first, *others = noisy.sharing_groups(pairs)
    assert list(others) == [first, first, others[2], others[3]]
    assert len({first, others[2], others[3]}) == 3


def test_a_held_out_pair_is_judged_without_its_group():
    pairs = captions(400)
    judged = noisy.held_out(pairs)
    assert judged.shape == (400, 3)
    groups = noisy.sharing_groups(pairs)
    for row in (0, 101):
        labels = pairs.labels ^ (groups == groups[row])[:, None]
        others = noisy.held_out(dataclasses.replace(pairs, labels=labels))
        np.testing.assert_array_equal(others[groups == groups[row]], judged[groups == groups[row]])
        assert (others != judged).any()


def test_a_classifier_finds_the_words_that_were_put_in(classifier):
    test = captions(200, seed=1)
    table = counting.average_precisions(classifier.pipeline, test)
    assert (table["low"] > table["chance"]).all()
    assert (table["AP"] > table["chance"] + 0.1).all()
    assert list(table["chance"]) == list(test.labels.mean(0))
    plain, dressed = classifier.pipeline.predict_proba(["a beautiful dog", "A beautiful dog ."])
    np.testing.assert_array_equal(plain, dressed)


def test_thresholds_give_held_out_pairs_as_many_positives_as_people_did(classifier):
    train = captions(400)
    rate = (noisy.held_out(train) >= classifier.thresholds).mean(0)
    np.testing.assert_allclose(rate, train.labels.mean(0), atol=0.01)


def test_first_or_all_captions_are_labelled(classifier, monkeypatch):
    def load(split):
        texts = captions(200, seed=len(split)).texts
        return CaptionedImages(
            "flickr8k", split, tuple(f"{split}{i}" for i in range(40)),
            tuple(texts[i : i + 5] for i in range(0, 200, 5)), np.ones((40, 2, 3), np.float32),
            lambda row: Image.new("RGB", (8, 8), (row, 0, 0)),
        )  # fmt: skip

    monkeypatch.setattr(flickr8k, "load", load)
    first = noisy.labelled_pairs("train", classifier)
    every = noisy.labelled_pairs("train", classifier, all_captions=True)
    assert (len(first), len(every)) == (40, 200)
    assert first.texts == every.texts[::5]
    assert list(every.image_of[:6]) == [0, 0, 0, 0, 0, 1]
    np.testing.assert_array_equal(every.labels, classifier.labels(every.texts))
    np.testing.assert_array_equal(every.labels[::5], first.labels)
    assert first.open_image(7).getpixel((0, 0)) == (7, 0, 0)
    assert first.features.shape == (40, 2, 3)


# --- What was counted in Clue and CITE -----------------------------------------------------------


def test_weighted_average_precision_is_that_of_repeated_rows():
    rng = np.random.default_rng(0)
    truth, scores = rng.random(30) < 0.4, rng.integers(0, 9, 30) / 9
    weights = rng.integers(0, 3, (4, 30))
    found = counting.weighted_ap(truth, scores, weights)
    for counts, ap in zip(weights, found, strict=True):
        rows = np.repeat(np.arange(30), counts)
        [wanted] = method.average_precisions(truth[rows, None], scores[rows, None])
        assert ap == pytest.approx(wanted)
    assert np.isnan(counting.weighted_ap(truth, scores, 1 * ~truth[None]))


def test_recorded_tables_are_marked_and_no_printed_one_is():
    tables = paper_tables("coherence")
    for name, table in tables.items():
        assert table["source"].startswith("recorded") == name.startswith("recorded_"), name
    rates = paper_values("coherence", "recorded_clue_rates")
    for row in tables["table2"]["rows"]:  # the paper prints the rates of train
        printed = row["values"]["percent_positive"]
        assert rates.loc[row["name"], "train"] == pytest.approx(printed, abs=0.06)


@pytest.mark.real
@pytest.mark.slow
def test_counting_again_gives_what_is_recorded(real_data):
    folders = [real_data / name for name in ("clue", "cite")]
    if missing := [folder for folder in folders if not folder.is_dir()]:
        pytest.skip(f"no real data: there is no folder {missing[0]}")
    for name, table in counting.count(*folders).items():
        kept = paper_values("coherence", name)
        assert list(kept.index) == list(map(str, table.index))
        np.testing.assert_allclose(kept.to_numpy(float), table.to_numpy(float), atol=0.011)
