"""The controlled pairs: what texts say and pictures show, dials, claims, tables, and a record."""

from dataclasses import replace

import made_up_coherence
import numpy as np
import pytest
import tiny_coherence

from mmlib.core.claims import assess
from mmlib.papers.coherence import baselines, experiment, run
from mmlib.papers.coherence.data import controlled, load_study, prepare
from mmlib.papers.coherence.data import pairs as collections
from mmlib.papers.coherence.data.controlled import CUES, THINGS, Dials
from mmlib.papers.coherence.data.pairs import CONTROLLED, FEW, HELPFUL, MANY, UNDECIDING
from mmlib.papers.coherence.method import full_ranks

CONTROLLED_CLAIMS = experiment.EXPERIMENT.claims_of("controlled")

SMALL = Dials(relations=3, cues=12, pairs=80, things=10)


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(controlled, "COUNTS", {"val": 30, "test": 60})


def said(text):
    """The things of a text in their order, and its cue."""
    first, cue, *rest = text.split()
    return [first, *rest], cue


def meanings(pairs):
    """The relations that hold for the pairs of each cue."""
    held = {}
    for split in (pairs.train, pairs.val, pairs.test):
        for text, labels in zip(split.texts, split.labels, strict=True):
            assert labels.sum() == 1
            held.setdefault(said(text)[1], set()).add(split.relations[int(labels.argmax())])
    return held


# --- The world -----------------------------------------------------------------------------------


def test_a_picture_shows_the_thing_that_the_relation_says():
    pairs = controlled.load(SMALL)
    assert pairs.relations == ("first", "second", "third")
    for split in (pairs.train, pairs.val, pairs.test):
        for text, labels, image in zip(split.texts, split.labels, split.image_of, strict=True):
            things, cue = said(text)
            assert len(set(things)) == 3
            assert set(things) <= set(THINGS[:10])
            assert cue in CUES[:12]
            assert split.shown[image] == things[int(labels.argmax())]


def test_a_cue_stands_for_one_relation_and_relations_for_equally_many_cues():
    held = meanings(controlled.load(replace(SMALL, pairs=400)))
    assert len(held) == 12
    assert all(len(relations) == 1 for relations in held.values())
    names = [name for relations in held.values() for name in relations]
    assert [names.count(name) for name in ("first", "second", "third")] == [4, 4, 4]


def test_features_are_those_of_the_thing_and_noise():
    still = controlled.load(replace(SMALL, noise=0))
    looks = {}
    for split in (still.train, still.test):
        for name, features in zip(split.shown, split.features[:, 0], strict=True):
            np.testing.assert_array_equal(looks.setdefault(name, features), features)
    assert len({vector.tobytes() for vector in looks.values()}) == 10
    noisy = controlled.load(replace(SMALL, noise=2.0))
    assert noisy.train.shown == still.train.shown
    added = noisy.train.features - still.train.features
    assert added.std() == pytest.approx(2.0, abs=0.1)


def test_pairs_and_what_they_decide_leave_the_test_texts():
    few, many = (controlled.load(replace(SMALL, pairs=pairs)) for pairs in (20, 200))
    assert few.test.texts == many.test.texts
    np.testing.assert_array_equal(few.test.features, many.test.features)
    aimless = controlled.load(replace(SMALL, decides=0.0))
    assert aimless.test.texts == few.test.texts
    np.testing.assert_array_equal(aimless.test.labels, few.test.labels)
    other = controlled.load(SMALL, seed=1)
    assert other.test.texts != few.test.texts
    assert controlled.load(SMALL).train.texts == controlled.load(SMALL).train.texts


def test_where_the_relation_decides_nothing_any_thing_of_the_text_is_shown():
    pairs = controlled.load(replace(SMALL, pairs=3000, decides=0.0)).train
    both = zip(pairs.texts, pairs.shown, strict=True)
    places = [said(text)[0].index(shown) for text, shown in both]
    agree = np.mean(places == pairs.labels.argmax(axis=1))
    assert agree == pytest.approx(1 / 3, abs=0.04)


def test_who_knows_no_relation_is_at_chance_among_the_things(monkeypatch):
    monkeypatch.setattr(controlled, "COUNTS", {"val": 2, "test": 400})
    pairs = controlled.load(Dials(relations=4, cues=12, pairs=2)).test
    scores = controlled.truth(pairs)
    for i in range(0, 400, 40):  # by a loop
        things, _ = said(pairs.texts[i])
        shown = [pairs.shown[image] for image in pairs.image_of]
        assert (scores["things"][i] >= 1).tolist() == [name in things for name in shown]
        wanted = things[int(pairs.labels[i].argmax())]
        assert (scores["relations"][i] >= 1).tolist() == [name == wanted for name in shown]
    shares = {}  # of the texts whose best picture shows what their own shows
    for name, of_all in scores.items():
        best = of_all.argmax(axis=1)
        shares[name] = np.mean([pairs.shown[i] == pairs.shown[b] for i, b in enumerate(best)])
    assert shares["relations"] == 1
    assert shares["things"] == pytest.approx(1 / 4, abs=0.08)
    for of_all in scores.values():  # the own picture is anywhere among those that could be meant
        chance = [np.log2(np.arange(1, n + 1)).mean() for n in (of_all >= 1).sum(axis=1)]
        assert np.log2(full_ranks(of_all)).mean() == pytest.approx(np.mean(chance), abs=0.2)


@pytest.mark.parametrize(
    "wrong",
    [{"relations": 1}, {"relations": 7}, {"cues": 3}, {"cues": 10_000}, {"pairs": 1}, {"things": 3},
     {"things": 41}, {"decides": 1.5}, {"noise": -0.1}, {"noise": float("nan")}],
    ids=str,
)  # fmt: skip
def test_impossible_dials_are_named(wrong):
    [(name, value)] = wrong.items()
    with pytest.raises(ValueError, match=f"no pair can be made with {name} = {value!r}"):
        Dials(**wrong)


# --- Arrays and the grid -------------------------------------------------------------------------


def test_words_of_controlled_pairs_start_at_random_and_oracles_are_scored():
    arrays = prepare(controlled.load(SMALL), tiny_coherence.HOW, "controlled")
    assert len(arrays.words) == 2 + 10 + 12
    assert not arrays.words[0].any()
    assert arrays.words[1:].std() == pytest.approx(1, abs=0.15)
    assert set(arrays.truth) == {"relations", "things"}


def test_every_recorded_collection_can_be_made_and_has_its_name():
    study = load_study("controlled", [HELPFUL, FEW, UNDECIDING])
    for name, pairs in study.items():
        assert len(pairs.train) == CONTROLLED[name]["pairs"]
        assert pairs.relations == collections.relations_of(name)
        assert name.startswith("4 relations, 120 cues")
    assert {controlled.recorded(name).pairs for name in CONTROLLED} == {300, 1000, 4000}
    assert len(CONTROLLED) == len({tuple(dials.items()) for dials in CONTROLLED.values()})
    assert set(controlled.recorded(HELPFUL).__dict__.items()) ^ set(
        controlled.recorded(UNDECIDING).__dict__.items()
    ) == {("decides", 1.0), ("decides", 0.0)}
    with pytest.raises(ValueError, match="no pairs 'clue' here; there are 2 relations"):
        load_study("controlled", ["clue"])


# --- The record, claims, tables and figures ------------------------------------------------------


@pytest.fixture(scope="module")
def evidence():
    return made_up_coherence.make("controlled", collections.COLLECTIONS["controlled"])


def level(evidence, dataset, system):
    return np.log2(evidence.values(dataset, system, "rank")).mean()


def test_effects_are_differences_of_mean_log2_ranks(evidence):
    best, large = run.SWEPT[1].system, run.SWEPT[2].system
    pairs = {
        "K9": (best, "CMCA", HELPFUL), "K9b": ("CMCM", "CMCA", HELPFUL),
        "K10": (best, "CMCA", MANY), "K10b": (best, "CMCA", FEW), "K11": ("CMCA", large, HELPFUL),
        "K13": ("CMCM_first", "CMCA", HELPFUL),
    }  # fmt: skip
    found = {one.id: assess(one, evidence, evidence.seeds) for one in CONTROLLED_CLAIMS}
    effects = {name: next(iter(one.parts.values())).effect for name, one in found.items()}
    for name, (better, worse, dataset) in pairs.items():
        wanted = level(evidence, dataset, worse) - level(evidence, dataset, better)
        assert effects[name] == pytest.approx(wanted), name
    there = level(evidence, UNDECIDING, "CMCA") - level(evidence, UNDECIDING, best)
    assert effects["K12"] == pytest.approx(effects["K9"] - there)


def test_what_was_not_trained_is_not_tested(evidence):
    less = made_up_coherence.make("controlled", [HELPFUL])
    verdicts = {one.id: assess(one, less, less.seeds).verdict for one in CONTROLLED_CLAIMS}
    untested = [name for name, verdict in verdicts.items() if verdict == "not tested"]
    assert untested == ["K10", "K10b", "K12"]


# --- Where other pairs lie -----------------------------------------------------------------------


def test_words_tell_relations_as_far_as_they_do():
    pairs = controlled.load(replace(SMALL, pairs=300))
    arrays = prepare(pairs, tiny_coherence.HOW, "controlled")
    assert baselines.words_tell(arrays) > 0.99
    rng = np.random.default_rng(0)
    shuffled = {
        name: replace(split, labels=rng.permutation(split.labels))
        for name, split in arrays.splits.items()
    }
    assert baselines.words_tell(replace(arrays, splits=shuffled)) == pytest.approx(0.5, abs=0.15)
