"""The controlled pairs: what texts say and pictures show, dials, and what oracles know."""

from dataclasses import replace

import numpy as np
import pytest
import tiny_coherence

from mmlib.papers.coherence.data import controlled, load_study, prepare
from mmlib.papers.coherence.data import pairs as collections
from mmlib.papers.coherence.data.controlled import CUES, THINGS
from mmlib.papers.coherence.data.pairs import CONTROLLED, FEW, HELPFUL, UNDECIDING, Dials
from mmlib.papers.coherence.method import full_ranks

SMALL = Dials(relations=3, cues=12, pairs=400, things=10)


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(controlled, "COUNTS", {"val": 30, "test": 400})


def said(text):
    """The things of a text in their order, and its cue."""
    first, cue, *rest = text.split()
    return [first, *rest], cue


def test_a_cue_stands_for_one_relation_and_the_picture_shows_what_that_says():
    pairs = controlled.load(SMALL)
    assert pairs.relations == ("first", "second", "third")
    meanings = {}
    for split in (pairs.train, pairs.val, pairs.test):
        for text, labels, image in zip(split.texts, split.labels, split.image_of, strict=True):
            things, cue = said(text)
            assert len(set(things)) == 3
            assert set(things) <= set(THINGS[:10])
            assert labels.sum() == 1
            relation = int(labels.argmax())
            assert meanings.setdefault(cue, relation) == relation
            assert split.shown[image] == things[relation]
    assert set(meanings) == set(CUES[:12])
    assert np.bincount(list(meanings.values())).tolist() == [4, 4, 4]


def test_features_are_those_of_the_thing_and_noise():
    still = controlled.load(replace(SMALL, noise=0))
    looks = {}
    for split in (still.train, still.test):
        for name, features in zip(split.shown, split.features[:, 0], strict=True):
            np.testing.assert_array_equal(looks.setdefault(name, features), features)
    assert len({vector.tobytes() for vector in looks.values()}) == 10
    noisy = controlled.load(replace(SMALL, noise=2.0))
    assert noisy.train.shown == still.train.shown
    assert (noisy.train.features - still.train.features).std() == pytest.approx(2.0, abs=0.1)


def test_pairs_and_what_they_decide_leave_the_test_texts():
    test = controlled.load(SMALL).test
    fewer, aimless = (controlled.load(replace(SMALL, **c)) for c in ({"pairs": 20}, {"decides": 0}))
    for other in (fewer.test, aimless.test):
        assert other.texts == test.texts
        np.testing.assert_array_equal(other.labels, test.labels)
    np.testing.assert_array_equal(fewer.test.features, test.features)
    assert controlled.load(SMALL, seed=1).test.texts != test.texts
    both = zip(aimless.train.texts, aimless.train.shown, strict=True)
    places = [said(text)[0].index(shown) for text, shown in both]
    agree = np.mean(places == aimless.train.labels.argmax(axis=1))
    assert agree == pytest.approx(1 / 3, abs=0.08)


def test_who_knows_no_relation_is_at_chance_among_the_things():
    pairs = controlled.load(Dials(relations=4, cues=12, pairs=2)).test
    scores, shown = controlled.truth(pairs), np.array(pairs.shown)[pairs.image_of]
    for i in range(0, 400, 40):  # by a loop
        things, _ = said(pairs.texts[i])
        wanted = things[int(pairs.labels[i].argmax())]
        assert (scores["things"][i] >= 1).tolist() == [name in things for name in shown]
        assert (scores["relations"][i] >= 1).tolist() == [name == wanted for name in shown]
    for (name, of_all), share in zip(scores.items(), (1, 1 / 4), strict=True):
        # of the texts, whose best picture shows what their own shows
        agrees = shown[of_all.argmax(axis=1)] == shown
        assert agrees.mean() == pytest.approx(share, abs=0.08 * (share < 1)), name
        # the own picture is anywhere among those that could be meant
        chance = [np.log2(np.arange(1, n + 1)).mean() for n in (of_all >= 1).sum(axis=1)]
        assert np.log2(full_ranks(of_all)).mean() == pytest.approx(np.mean(chance), abs=0.2)


def test_words_of_controlled_pairs_start_at_random_and_oracles_are_scored():
    arrays = prepare(controlled.load(SMALL), tiny_coherence.HOW, "controlled")
    assert len(arrays.words) == 2 + 10 + 12
    assert not arrays.words[0].any()
    assert arrays.words[1:].std() == pytest.approx(1, abs=0.15)
    assert set(arrays.truth) == {"relations", "things"}


def test_every_recorded_collection_has_its_name():
    for name, pairs in load_study("controlled", [HELPFUL, FEW, UNDECIDING]).items():
        assert len(pairs.train) == CONTROLLED[name].pairs
        assert pairs.relations == collections.relations_of(name)
    for name, dials in CONTROLLED.items():
        numbers = f"{dials.relations} relations, {dials.cues} cues, {dials.pairs} pairs"
        assert name == numbers + ", deciding nothing" * (dials.decides == 0)
    with pytest.raises(ValueError, match="no pairs 'clue' here; there are 2 relations"):
        load_study("controlled", ["clue"])
