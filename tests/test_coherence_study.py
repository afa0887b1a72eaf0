"""Notebook 01's experiment: on a few pairs of the picture world, on numbers worked out by hand,
against plain loops, and on made-up files of the real Clue.
"""

import csv
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from statistics import median

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score

from mmlib import claims, coherence, coherence_study, training
from mmlib.claims import Claim, judge
from mmlib.coherence import Settings
from mmlib.coherence_study import (
    CLUE_LIKE,
    NO_SIGNAL,
    ORACLE,
    REFINED,
    UNREFINED,
    Pairs,
    Preprocessor,
    budget,
    difference,
    load,
    ranks_record,
)
from mmlib.core.errors import DataError
from mmlib.core.intervals import crossed_interval
from mmlib.core.related import RelatedPairs
from mmlib.core.tables import paper_values
from mmlib.data import clue
from mmlib.features.text import train_word2vec

SIZES = {"train": 220, "val": 60, "test": 120}
TINY = {"epochs": 2, "width": 32, "word_width": 16, "hidden": 16}


@pytest.fixture(scope="module")
def collections():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coherence_study, "WORLD_PAIRS", SIZES)
        return load("world", workers=1)


@pytest.fixture(scope="module")
def preprocessors(collections):
    return coherence_study.preprocessors(collections, budget("world", **TINY), "world")


@pytest.fixture(scope="module")
def runs(preprocessors, tmp_path_factory):
    """Jobs and answers: Base, CMCA, CMCM and CMCM_Meta on Clue's relations, two seeds."""
    own = {CLUE_LIKE: preprocessors[CLUE_LIKE]}
    jobs = coherence_study.training_jobs(own, [0, 1], "cpu", ["Base", "CMCM_Meta"])
    jobs += coherence_study.training_jobs(own, [0, 1], "cpu", ["CMCA", "CMCM"], examples=[3, 9])
    folder = tmp_path_factory.mktemp("trainings")
    return jobs, training.run_jobs(coherence_study.train_system, jobs, folder, workers=1)


@pytest.fixture(scope="module")
def by_system(runs):
    return coherence_study.by_system(*runs, CLUE_LIKE)


def related(labels, split="test", relations=None, image_of=None, **changes):
    """Pairs made by hand; texts "text 0", "text 1", ..."""
    labels = np.asarray(labels, dtype=bool)
    n = len(labels)
    record = RelatedPairs(
        name="made", split=split, texts=tuple(f"text {i}" for i in range(n)), labels=labels,
        relations=tuple(relations or "ABCDEF"[: labels.shape[1]]),
        image_of=np.arange(n) if image_of is None else np.asarray(image_of),
        image_ids=tuple(f"{split}-{i}" for i in range(n)),
    )  # fmt: skip
    return replace(record, **changes)


def made_pairs(n=90, relations=3, seed=0, **changes):
    """Pairs whose picture's first features ARE the labels of the first relations, with noise."""
    rng = np.random.default_rng(seed)
    made = {}
    for split, count in (("train", n), ("val", n // 3), ("test", n // 2)):
        labels = rng.random((count, relations)) < 0.4
        features = rng.normal(size=(count, 1, 6)).astype(np.float32)
        features[:, 0, :relations] += 3 * labels
        made[split] = related(labels, split, features=features, **changes)
    return Pairs(**made)


def the_same(answer, other):
    """Equal but for the time they took."""
    return {**answer, "seconds": 0} == {**other, "seconds": 0}


# --- Data ----------------------------------------------------------------------------------------


def test_a_run_of_the_world_has_both_schemes_on_the_same_pictures(collections):
    assert list(collections) == ["Clue-like", "CITE-like"]
    first, second = collections.values()
    for split, size in SIZES.items():
        a, b = first.split(split), second.split(split)
        assert len(a) == len(b) == size
        assert a.split == split
        assert a.features is b.features
        assert a.image_ids == b.image_ids
        assert a.texts != b.texts
    assert first.relations == clue.RELATIONS
    assert second.relations == ("Q2", "Q3", "Q4", "Q5", "Q6", "Q7", "Q8")
    assert not set(first.train.image_ids) & set(first.test.image_ids)


def test_signal_and_seed_reach_the_world():
    sizes = {"train": 40, "val": 4, "test": 4}
    silent, loud, other = (
        coherence_study.world_pairs("clue", signal, seed, 1, sizes)
        for signal, seed in ((0.0, 0), (1.0, 0), (1.0, 1))
    )
    assert np.array_equal(silent.train.features, loud.train.features)
    assert not np.array_equal(silent.train.labels, loud.train.labels)
    assert not np.array_equal(other.train.features, loud.train.features)
    again = coherence_study.world_pairs("clue", 0.0, 0, 1, sizes, like=loud)
    assert again.train.features is loud.train.features
    assert again.train.texts == silent.train.texts


def test_a_picture_is_the_mean_and_the_maximum_of_its_regions():
    features = np.array([[[1, 5], [3, -1]], [[0, 0], [4, 2]]], dtype=np.float32)
    one = coherence_study.pool_regions(related([[1], [0]], features=features))
    assert one.features.tolist() == [[[2, 2, 3, 5]], [[2, 1, 4, 2]]]


def test_unknown_tiers_and_missing_files_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("MMLIB_DATA", str(tmp_path))
    with pytest.raises(ValueError, match="no tier 'moon': use world, flickr8k or paper"):
        load("moon")
    with pytest.raises(ValueError, match=r"no budget 'moon'.*world"):
        budget("moon")
    with pytest.raises(ValueError, match="no budget 'world quick'"):
        budget("world", "quick")
    with pytest.raises(DataError, match="is missing"):
        load("flickr8k")
    with pytest.raises(DataError, match=r"neither Clue nor CITE.* is complete.*missing.*missing"):
        load("paper")
    assert coherence_study.clue_report() is None
    assert coherence_study.clue_text_table() is None
    assert coherence_study.clue_text_parts() == {}


def test_budgets_change_by_name_and_none_and_zero_change_nothing():
    assert budget("paper") == Settings()
    assert budget("world", epochs=0, width=None) == coherence_study.BUDGETS["world"]
    assert budget("flickr8k", "quick") == coherence_study.BUDGETS["flickr8k quick"]
    changed = budget("world", epochs=3)
    assert (changed.epochs, changed.width) == (3, budget("world").width)
    with pytest.raises(TypeError):
        budget("world", epoch=3)


@pytest.mark.parametrize("name", coherence_study.BUDGETS)
def test_no_budget_touches_what_the_paper_fixes(name):
    """Loss, margin, λ_cls, λ and T are the paper's in all tiers."""
    kept = ("cls", "loss", "margin", "strength", "threshold", "attention")
    own, paper = asdict(budget(name)), asdict(Settings())
    assert [own[key] for key in kept] == [paper[key] for key in kept]


def test_texts_to_show_cover_different_relations():
    pairs = related([[0, 0], [1, 1], [1, 1], [0, 1]])
    assert coherence_study.some_texts(pairs, 2) == [1, 2]
    assert coherence_study.some_texts(related([[1, 0], [1, 0]]), 2) == [0]
    assert coherence_study.some_texts(pairs, 1) == [1]


# --- Arrays --------------------------------------------------------------------------------------


def test_the_vocabulary_is_that_of_the_training_texts():
    pairs = made_pairs()
    pairs = replace(pairs, test=replace(pairs.test, texts=("text zebra 7", *pairs.test.texts[1:])))
    preprocessor = Preprocessor(pairs, budget("world", **TINY), "world")
    words = preprocessor.vocabulary.words
    assert words[:2] == ("<pad>", "<unk>")
    assert set(words[2:]) == {w for t in pairs.train.texts for w in t.split()}
    test = preprocessor.split("test")
    assert test.ids[0].tolist() == [words.index("text"), 1, words.index("7")]
    assert test.ids[1].tolist() == [words.index("text"), words.index("1"), 0]
    assert test.lengths[:2].tolist() == [3, 2]
    assert np.array_equal(test.labels, pairs.test.labels)
    assert np.array_equal(test.image_of, pairs.test.image_of)


def test_word_vectors_are_those_of_word2vec_with_two_special_rows(collections, preprocessors):
    preprocessor = preprocessors[CLUE_LIKE]
    sentences = [preprocessor.tokens(text) for text in collections[CLUE_LIKE].train.texts]
    vectors = train_word2vec(sentences, 16, 0, epochs=50, window=10, skip_gram=False)
    table = preprocessor.embeddings
    assert table.shape == (len(vectors) + 2, 16)
    assert not table[0].any()
    assert 0.5 < table[1].std() < 2
    for row in (2, 30, len(table) - 1):
        assert np.array_equal(table[row].numpy(), vectors[preprocessor.vocabulary.words[row]])


def test_features_are_standardised_by_the_training_pictures(collections, preprocessors):
    pairs, preprocessor = collections[CLUE_LIKE], preprocessors[CLUE_LIKE]
    raw = {name: pairs.split(name).features[:, 0] for name in ("train", "test")}
    mean, scale = raw["train"].mean(axis=0), raw["train"].std(axis=0) + 1e-3
    for name, own in raw.items():
        images = preprocessor.split(name).images
        assert images.dtype == np.float32
        assert np.allclose(images, (own - mean) / scale, atol=1e-4)
    assert preprocessor.image_width == raw["train"].shape[1]
    assert np.abs(preprocessor.split("train").images.mean(axis=0)).max() < 1e-3


def test_tokens_are_the_authors_in_the_tier_paper_alone():
    pairs = made_pairs(n=9)
    train = replace(pairs.train, texts=("A Dog, here.", *pairs.train.texts[1:]))
    pairs = replace(pairs, train=train)
    settings = budget("world", **TINY)
    words = {
        tier: set(Preprocessor(pairs, settings, tier).vocabulary.words)
        for tier in ("world", "paper")
    }
    assert {"a", "dog", "here"} <= words["world"]
    assert {"A", "Dog", "here", ",", ".", ""} <= words["paper"]


def test_texts_are_cut_after_the_settings_words_or_the_callers(preprocessors):
    assert preprocessors[CLUE_LIKE].split("test", 4).ids.shape[1] == 4
    assert preprocessors[CLUE_LIKE].splits(6)["train"].lengths.max() == 6
    longest = preprocessors[CLUE_LIKE].splits()["train"].lengths.max()
    assert 6 < longest <= preprocessors[CLUE_LIKE].settings.max_words


def test_evidence_is_the_log_ratio_of_a_regression_on_the_training_pictures():
    pairs = made_pairs()
    train, test = pairs.train.labels.copy(), pairs.test
    train[:, 2] = True
    shared = np.arange(len(test)) // 2  # two texts a picture
    pairs = Pairs(replace(pairs.train, labels=train), pairs.val, replace(test, image_of=shared))
    preprocessor = Preprocessor(pairs, budget("world", **TINY), "world")
    found = preprocessor.evidence
    assert set(found) == {"val", "test"}
    assert found["val"].shape == (2, len(pairs.val), 3)
    images = {name: preprocessor.split(name).images for name in ("train", "test")}
    for c in range(2):
        model = LogisticRegression(C=0.01, max_iter=1000).fit(images["train"], train[:, c])
        rate = train[:, c].mean()
        for row in (0, 5, 40):
            no, yes = model.predict_proba(images["test"][[shared[row]]])[0]
            told = found["test"][:, row, c]
            assert told == pytest.approx([np.log(no / (1 - rate)), np.log(yes / rate)], abs=1e-6)
    holds = pairs.val.labels[:, 0]
    assert found["val"][1, holds, 0].mean() > 0 > found["val"][1, ~holds, 0].mean()
    assert not found["test"][..., 2].any()  # always so in training


# --- Jobs ----------------------------------------------------------------------------------------


def test_there_is_a_job_a_collection_system_and_seed(preprocessors):
    jobs = coherence_study.training_jobs(preprocessors, [0, 5], "cpu", examples=[1])
    told = [(job["dataset"], job["system"], job["seed"]) for job, _ in jobs]
    assert len(told) == len(set(told)) == 2 * (10 + 11)
    assert told[:2] == [(CLUE_LIKE, "Base", 0), (CLUE_LIKE, "Base", 5)]
    for job, work in jobs:
        again = json.loads(json.dumps(job))
        chosen = Settings(
            **{**again["settings"], "relations": tuple(again["settings"]["relations"])}
        )
        relations = preprocessors[job["dataset"]].pairs.relations
        expected = coherence.settings_of(
            job["system"], relations, preprocessors[job["dataset"]].settings
        )
        assert chosen == expected
        assert again["examples"] == [1]
        assert again["tier"] == "world"
        assert ("evidence" in work) == (job["system"] == "CMCA")
    first = {job["data"] for job, _ in jobs if job["dataset"] == CLUE_LIKE}
    second = {job["data"] for job, _ in jobs if job["dataset"] != CLUE_LIKE}
    assert len(first) == len(second) == 1
    assert first != second


def test_systems_of_a_relation_that_never_holds_in_training_are_left_out():
    pairs = made_pairs()
    labels = pairs.train.labels.copy()
    labels[:, 1] = False
    pairs = replace(pairs, train=replace(pairs.train, labels=labels))
    made = {"made": Preprocessor(pairs, budget("world", **TINY), "world")}
    jobs = coherence_study.training_jobs(made, [0], "cpu")
    assert [job["system"] for job, _ in jobs] == ["Base", "CMCA", "CMCM_A", "CMCM_C"]


def test_changed_settings_stand_in_the_jobs_and_in_their_names(preprocessors):
    own = {CLUE_LIKE: preprocessors[CLUE_LIKE]}
    ((job, _),) = coherence_study.training_jobs(own, [0], "cpu", ["CMCM"], cls=0.4)
    assert job["system"] == "CMCM, λ_cls 0.4"
    assert job["settings"]["cls"] == 0.4
    ((job, work),) = coherence_study.training_jobs(own, [0], "cpu", ["CMCM"], max_words=6)
    assert job["system"] == "CMCM, maximal length 6"
    assert {split.ids.shape[1] for split in work["splits"].values()} == {6}
    with pytest.raises(ValueError, match="no system 'DMCM'"):
        coherence_study.training_jobs(own, [0], "cpu", ["DMCM"])


def test_a_changed_label_text_image_or_feature_changes_the_fingerprint():
    pairs = made_pairs()
    test = pairs.test
    labels, features = test.labels.copy(), test.features.copy()
    labels[3, 1] ^= True
    features[2, 0, 5] += 0.1
    changes = [
        {},
        {"labels": labels},
        {"features": features},
        {"texts": ("text", *test.texts[1:])},
        {"image_of": test.image_of[::-1].copy()},
    ]

    def mark(changed):
        own = replace(pairs, test=replace(test, **changed))
        preprocessor = Preprocessor(own, budget("world", **TINY), "world")
        return coherence_study.fingerprint(preprocessor, preprocessor.splits())

    marks = [mark(changed) for changed in changes]
    assert len(set(marks)) == len(marks)
    assert mark({}) == marks[0]


def test_controls_are_trained_in_the_full_world_only(collections, preprocessors):
    jobs = coherence_study.control_jobs(collections, preprocessors, [0, 1], "", "cpu")
    systems = [job["system"] for job, _ in jobs if job["seed"] == 1]
    assert systems == [
        *(f"CMCM, λ_cls {value}" for value in coherence_study.SWEEP),
        *(f"CMCM, maximal length {value}" for value in coherence_study.LENGTHS),
        "CMCA",
        "CMCM",
    ]
    assert {job["dataset"] for job, _ in jobs[:-4]} == {CLUE_LIKE}
    assert {job["dataset"] for job, _ in jobs[-4:]} == {NO_SIGNAL}
    loud, silent = preprocessors[CLUE_LIKE].splits(), jobs[-1][1]["splits"]
    assert np.array_equal(loud["test"].images, silent["test"].images)
    assert not np.array_equal(loud["test"].labels, silent["test"].labels)
    assert coherence_study.control_jobs(collections, preprocessors, [0], "quick", "cpu") == []
    photos = {"clue": Preprocessor(made_pairs(n=9), budget("world", **TINY), "flickr8k")}
    assert coherence_study.control_jobs(collections, photos, [0], "", "cpu") == []
    assert coherence_study.systems_of("flickr8k", "quick") == ("CMCA", "CMCM")
    assert coherence_study.systems_of("world") == ()
    assert set(coherence_study.systems_of("flickr8k")) >= {"Base", "CMCA", "CMCM"}


# --- Trainings -----------------------------------------------------------------------------------


def test_answers_hold_ranks_of_every_variant_and_survive_json(runs):
    jobs, answers = runs
    for (job, _), answer in zip(jobs, answers, strict=True):
        assert json.loads(json.dumps(answer, allow_nan=False)) == answer
        aware = job["system"].startswith("CMCM")
        variants = {UNREFINED}
        variants |= {REFINED, f"{REFINED}, T 0.1", f"{REFINED}, chosen on dev"} if aware else set()
        variants |= {ORACLE} if job["system"] == "CMCA" else set()
        assert set(answer["variants"]) == variants
        assert ("precision" in answer) == aware
        assert ("chosen" in answer) == aware
        assert ("confidence only" in answer) == aware
        subsets = {"CMCA": {UNREFINED}, "CMCM": {UNREFINED, REFINED}}.get(job["system"], set())
        assert set(answer.get("subsets", {})) == subsets
        for record in answer["variants"].values():
            full = np.array(record["full"])
            assert full.shape == (120,)
            assert 1 <= full.min() <= full.max() <= 120
            assert np.array(record["hits"]).shape == (3, 120)
            assert all(len(values) == 50 for values in record["pools"].values())
        assert len(answer["gaps"]["gap"]) == len(answer["gaps"]["rank"]) == 60
        assert len(answer["history"]) == 2
        assert len(answer["first"]) == 120
        first = np.array(answer["first"]) == np.arange(120)
        full = np.array(answer["variants"][UNREFINED]["full"])
        assert np.array_equal(first, full == 1)


def test_heads_are_judged_on_their_own_relations(by_system):
    assert set(by_system["CMCM"][0]["precision"]) == {"0", "1", "2", "3", "4", "5"}
    assert set(by_system["CMCM_Meta"][0]["precision"]) == {"4"}
    # Six outputs of the head on two vectors of width 32, and a bias each.
    more = by_system["CMCM"][0]["parameters"] - by_system["CMCA"][0]["parameters"]
    assert more == 6 * 64 + 6
    # The attention of a text of width 32: A, b and u.
    assert by_system["CMCA"][0]["parameters"] - by_system["Base"][0]["parameters"] == 32 * 34


def test_examples_name_the_best_images_and_the_weight_of_each_word(by_system, preprocessors):
    lengths = preprocessors[CLUE_LIKE].split("test").lengths
    assert by_system["Base"][0]["examples"] == []
    for answer in by_system["CMCA"]:
        assert [example["text"] for example in answer["examples"]] == [3, 9]
        for example in answer["examples"]:
            row = example["text"]
            assert example["rank"] == answer["variants"][UNREFINED]["full"][row]
            assert example["best"][0] == answer["first"][row]
            assert len(set(example["best"])) == 5
            assert (row in example["best"]) == (example["rank"] <= 5)
            assert len(example["attention"]) == lengths[row]
            assert sum(example["attention"]) == pytest.approx(1, abs=2e-3)


def test_the_loss_falls(by_system):
    for answers in by_system.values():
        for answer in answers:
            first, second = (epoch["train_loss"] for epoch in answer["history"])
            assert second < first


def test_the_same_seed_gives_the_same_answer_and_another_another(runs, by_system):
    job, work = next(pair for pair in runs[0] if pair[0]["system"] == "CMCM")
    again = coherence_study.train_system(**job, **work)
    assert the_same(json.loads(json.dumps(again)), by_system["CMCM"][0])
    assert by_system["CMCM"][0]["first"] != by_system["CMCM"][1]["first"]


def test_a_training_that_was_stopped_ends_with_the_same_answer(runs, by_system, tmp_path):
    job, work = next(pair for pair in runs[0] if pair[0]["system"] == "CMCA")
    kept = {**work, "checkpoint": tmp_path / "half.pt"}
    half = {**job, "settings": {**job["settings"], "epochs": 1}}
    stopped = coherence_study.train_system(**half, **kept)
    assert len(stopped["history"]) == 1
    finished = coherence_study.train_system(**job, **kept)
    assert the_same(json.loads(json.dumps(finished)), by_system["CMCA"][0])


@pytest.fixture(scope="module")
def trained(runs):
    """The model of CMCM's first job, trained by hand, and its test pairs."""
    job, work = next(pair for pair in runs[0] if pair[0]["system"] == "CMCM")
    settings = Settings(**{**job["settings"], "relations": tuple(job["settings"]["relations"])})
    training.seed_everything(0)
    model = coherence.Model(work["embeddings"], work["image_width"], settings)
    splits = work["splits"]
    coherence.train(model, splits["train"], splits["val"], 0)
    return model, {name: coherence.encode(model, splits[name]) for name in ("val", "test")}, splits


def test_an_answer_is_of_the_test_pairs_and_its_gaps_of_dev_pairs(trained, by_system):
    model, seen, splits = trained
    answer = by_system["CMCM"][0]
    theta, dev = seen["test"].theta, seen["val"].theta
    own = theta.diagonal()
    full = [
        1 + sum(s > own[i] for s in row) + (sum(s == own[i] for s in row) - 1) / 2
        for i, row in enumerate(theta)
    ]
    assert answer["variants"][UNREFINED]["full"] == full
    assert answer["first"] == [int(max(range(120), key=row.__getitem__)) for row in theta]
    for i in (0, 20, 59):
        best, second = sorted(dev[i], reverse=True)[:2]
        assert answer["gaps"]["gap"][i] == pytest.approx(best - second, abs=1e-5)
    x = coherence.probabilities(model, seen["test"])
    eta = np.exp(0.12 * np.abs(x - 0.5)).sum(axis=2)
    for name, limit in ((REFINED, 0.05), (f"{REFINED}, T 0.1", 0.1)):
        pools = coherence_study.pools_of(120)
        assert answer["variants"][name] == ranks_record(theta, pools, eta, limit)
    strength, threshold = answer["chosen"]["strength"], answer["chosen"]["threshold"]
    eta = np.exp(strength * np.abs(x - 0.5)).sum(axis=2)
    chosen = coherence.full_ranks(theta, eta, threshold).tolist()
    assert answer["variants"][f"{REFINED}, chosen on dev"]["full"] == chosen
    dev_x = coherence.probabilities(model, seen["val"])
    assert (strength, threshold) == coherence_study.best_refinement(dev, dev_x)
    assert answer["subsets"][UNREFINED] == coherence_study.subsets(theta, splits["test"].labels)


def test_precisions_are_sklearns_on_the_logits_and_on_each_part_alone(trained):
    model, seen, splits = trained
    labels = splits["test"].labels.copy()
    labels[:, 1] = False
    test = seen["test"]
    shared = np.arange(120) // 2  # two texts an image
    found = coherence_study.precisions(model, replace(test, image_of=shared), labels)
    assert set(found) == {"0", "2", "3", "4", "5"}  # nothing to find of relation 1
    texts, images = torch.tensor(test.texts), torch.tensor(test.images)[shared]
    nothing = torch.zeros_like(texts)
    sides = {"both": (texts, images), "text": (texts, nothing), "image": (nothing, images)}
    for side, (z, g) in sides.items():
        with torch.no_grad():
            logits = model.head(z, g).numpy()
        for c in found:
            expected = average_precision_score(labels[:, int(c)], logits[:, int(c)])
            assert found[c][side] == pytest.approx(expected, abs=1e-3)


def test_the_pictures_of_the_world_tell_their_relations(by_system):
    """The logistic regression behind the ceiling must help at full signal."""
    ceiling, plain = (
        np.mean([np.median(a["variants"][name]["full"]) for a in by_system["CMCA"]])
        for name in (ORACLE, UNREFINED)
    )
    assert ceiling < plain


# --- Ranks ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cosines():
    """Cosines with ties, confidences, labels of 30 pairs and pools of 12 that leave some out."""
    rng = np.random.default_rng(3)
    theta = rng.integers(-9, 10, size=(30, 30)) / 10
    eta = rng.uniform(1, 1.4, size=(30, 30))
    labels = rng.random((30, 3)) < (0.5, 0.1, 0.0)
    pools = coherence.draw_pools(30, 12, 20, seed=1)
    return theta, eta, labels, pools


def rank_in(theta, pool, place, eta=None, threshold=None):
    """Rank of the pair at a place of a pool, by counting."""
    row = [theta[pool[place], j] for j in pool]
    if eta is not None:
        best, second = sorted(row, reverse=True)[:2]
        if best - second < threshold:
            row = [s * eta[pool[place], j] for s, j in zip(row, pool, strict=True)]
    own = row[place]
    return 1 + sum(s > own for s in row) + (sum(s == own for s in row) - 1) / 2


@pytest.mark.parametrize("threshold", [None, 0.15])
def test_a_record_of_ranks_is_what_counting_gives(cosines, threshold):
    theta, eta, _, pools = cosines
    eta = eta if threshold else None
    found = ranks_record(theta, pools, eta, threshold)
    everything = np.arange(30)
    assert found["full"] == [rank_in(theta, everything, i, eta, threshold) for i in range(30)]
    ranks = [[rank_in(theta, pool, i, eta, threshold) for i in range(12)] for pool in pools]
    for text in range(30):
        own = [
            ranks[p][i]
            for p, pool in enumerate(pools)
            for i, member in enumerate(pool)
            if member == text
        ]
        assert 0 < len(own) < 20  # only some pools hold it
        shares = [sum(rank <= k for rank in own) / len(own) for k in (1, 5, 10)]
        assert [found["hits"][i][text] for i in range(3)] == pytest.approx(shares, abs=1e-4)
    assert found["pools"]["medr"] == pytest.approx([median(own) for own in ranks])
    for k in (1, 5, 10):
        recalls = [100 * sum(rank <= k for rank in own) / 12 for own in ranks]
        assert found["pools"][f"r{k}"] == pytest.approx(recalls, abs=1e-3)


def test_pools_are_as_large_as_the_paper_has_them_or_as_the_test_set():
    pools = coherence_study.pools_of(700)
    assert pools.shape == (50, 500)
    assert np.array_equal(pools, coherence_study.pools_of(700))
    small = coherence_study.pools_of(120)
    assert np.array_equal(np.sort(small, axis=1), np.tile(np.arange(120), (50, 1)))


def test_ranks_of_the_texts_of_one_relation_are_what_counting_gives(cosines, monkeypatch):
    theta, eta, labels, _ = cosines
    monkeypatch.setattr(coherence_study, "POOL", 12)
    found = coherence_study.subsets(theta, labels, eta, 0.15)
    plain = coherence_study.subsets(theta, labels)
    for kind, replaced in (("without", False), ("with", True)):
        pools = coherence.draw_pools(30, 12, 50, seed=7, replace=replaced)
        repeats = any(len(set(pool)) < 12 for pool in pools.tolist())
        assert repeats == replaced
        for table, weight in ((found, eta), (plain, None)):
            for c in (0, 1):
                own = [
                    rank_in(theta, pool, i, weight, 0.15)
                    for pool in pools
                    for i in range(12)
                    if labels[pool[i], c]
                ]
                got = table[kind][c]
                assert got["medr"] == median(own)
                for k in (1, 5, 10):
                    share = 100 * sum(rank <= k for rank in own) / len(own)
                    assert got[f"r{k}"] == pytest.approx(share)
            assert table[kind][2] == {}  # no text of which it holds


def test_replacement_takes_the_first_rank_from_perfect_texts(monkeypatch):
    """A twin in the pool shares the rank, so even a perfect model misses R@1."""
    monkeypatch.setattr(coherence_study, "POOL", 20)
    found = coherence_study.subsets(np.eye(40), np.ones((40, 1), dtype=bool))
    assert found["without"][0]["r1"] == 100
    assert 40 < found["with"][0]["r1"] < 80


# --- Refinement and the ceiling ------------------------------------------------------------------

# Text 0 puts image 1 before its own, by .03; the others are sure and right.
THETA = np.array([[0.47, 0.50, 0.1], [0.1, 0.9, 0.2], [0.3, 0.1, 0.8]])
SURE = np.full((3, 3, 1), 0.5)
SURE[0, 0] = 1.0  # exp(λ/2) > .50/.47 where λ > .124


def test_refinement_on_dev_finds_the_weakest_that_repairs_a_rank():
    assert coherence_study.best_refinement(THETA, SURE) == (0.2, 0.05)
    better = coherence.full_ranks(THETA, coherence.confidence(SURE, 0.2), 0.05)
    assert better.tolist() == [1, 1, 1]
    weaker = [
        coherence.full_ranks(THETA, coherence.confidence(SURE, s), t).tolist()
        for s, t in ((0.12, 2.0), (1.6, 0.02))
    ]
    assert weaker == [[2, 1, 1], [2, 1, 1]]


def test_refinement_that_helps_nobody_is_the_weakest():
    assert coherence_study.best_refinement(THETA, np.full((3, 3, 2), 0.5)) == (0.01, 0.02)
    harmful = np.full((3, 3, 1), 0.5)
    harmful[0, 1] = 1.0
    assert coherence_study.best_refinement(THETA, harmful) == (0.01, 0.02)


@pytest.fixture
def hidden_groups():
    """60 dev and 60 test pairs, each with one of three relations, and cosines drawn at random."""
    rng = np.random.default_rng(0)
    labels = np.eye(3, dtype=bool)[np.arange(60) % 3]
    split = coherence.Split(
        np.ones((60, 1), np.int64), np.ones(60, np.int64), labels, np.arange(60), np.zeros((60, 1))
    )
    dev, test = rng.uniform(-0.1, 0.1, size=(2, 60, 60))
    return dev, test, {"val": split, "test": split}, coherence.draw_pools(60, 30, 5)


def test_evidence_of_the_own_picture_lifts_the_ranks(hidden_groups):
    dev, test, splits, pools = hidden_groups
    yes = np.where(splits["test"].labels, 1.0, -4.0)
    table = np.stack([np.where(splits["test"].labels, -4.0, 1.0), yes])
    evidence = {"val": table, "test": table}
    found = coherence_study.with_true_relations(dev, test, splits, evidence, pools)
    plain = ranks_record(test, pools)
    # Only the 20 pictures with the text's own relations are left in the race.
    assert max(found["full"]) <= 20 < max(plain["full"])
    assert np.mean(found["pools"]["r1"]) > np.mean(plain["pools"]["r1"])


def test_the_ceiling_is_what_loops_give_for_the_beta_of_dev(hidden_groups):
    dev, test, splits, pools = hidden_groups
    rng = np.random.default_rng(1)
    labels = splits["test"].labels
    evidence = {name: rng.normal(size=(2, 60, 3)) for name in ("val", "test")}
    for table in evidence.values():
        table[1] += labels  # a hint, not a certainty

    def mixed(theta, name, beta):
        out = theta.copy()
        for i in range(60):
            for j in range(60):
                for c in range(3):
                    out[i, j] += beta * evidence[name][int(labels[i, c]), j, c]
        return out

    def mrr(theta):
        return np.mean([1 / rank_in(theta, np.arange(60), i) for i in range(60)])

    scored = [mrr(mixed(dev, "val", beta)) for beta in coherence_study.BETAS]
    beta = coherence_study.BETAS[int(np.argmax(scored))]
    assert beta > 0
    found = coherence_study.with_true_relations(dev, test, splits, evidence, pools)
    own = mixed(test, "test", beta)
    assert found["full"] == [rank_in(own, np.arange(60), i) for i in range(60)]


def test_the_ceiling_without_evidence_is_the_plain_ranking(hidden_groups):
    dev, test, splits, pools = hidden_groups
    plain = ranks_record(test, pools)
    nothing = dict.fromkeys(("val", "test"), np.zeros((2, 60, 3)))
    assert coherence_study.with_true_relations(dev, test, splits, nothing, pools) == plain
    # Evidence that dev pairs speak against gets the weight 0, however it is on test pairs.
    labels = splits["test"].labels
    wrong, right = (np.stack([-4.0 * own, 4.0 * own]) for own in (~labels, labels))
    told = {"val": wrong, "test": right}
    assert coherence_study.with_true_relations(dev, test, splits, told, pools) == plain


# --- Files of answers ----------------------------------------------------------------------------


def test_answers_come_back_from_their_file(runs, preprocessors, tmp_path):
    jobs, answers = runs
    path = tmp_path / "answers.json.gz"
    training.write_answers(path, jobs, answers)
    again, same = coherence_study.read_answers(path, preprocessors[CLUE_LIKE].settings)
    assert same == answers
    assert [json.dumps(job) for job, _ in again] == [json.dumps(job) for job, _ in jobs]
    content = path.read_bytes()
    training.write_answers(path, again, same)
    assert path.read_bytes() == content
    one, other = coherence_study.collect(jobs, answers), coherence_study.collect(again, same)
    assert np.array_equal(one[CLUE_LIKE]["CMCM θ̄"]["full"], other[CLUE_LIKE]["CMCM θ̄"]["full"])


def test_stored_answers_of_other_settings_are_refused(runs, preprocessors, tmp_path):
    path, settings = tmp_path / "answers.json.gz", preprocessors[CLUE_LIKE].settings
    with pytest.raises(DataError, match=r"no stored answers .*answers\.json\.gz.*compute"):
        coherence_study.read_answers(path, settings)
    training.write_answers(path, *runs)
    with pytest.raises(DataError, match="had epochs = 2, not 3"):
        coherence_study.read_answers(path, replace(settings, epochs=3))
    with pytest.raises(DataError, match=r"had cls = 0\.1, not 0\.4"):
        coherence_study.read_answers(path, replace(settings, cls=0.4))


# --- Scores and effects --------------------------------------------------------------------------


def record(full, hits=None, medr=(1.0,), r1=(0.0,), r5=(0.0,), r10=(0.0,)):
    """What an answer keeps of one variant."""
    hits = [[float(rank <= k) for rank in full] for k in (1, 5, 10)] if hits is None else hits
    pools = {"medr": list(medr), "r1": list(r1), "r5": list(r5), "r10": list(r10)}
    return {"full": list(full), "hits": hits, "pools": pools}


def job(system, seed, dataset="clue"):
    return {"dataset": dataset, "system": system, "seed": seed}, {}


JOBS = [job("CMCA", 0), job("CMCA", 1), job("CMCM", 0), job("CMCM", 1), job("CMCA", 0, "cite++")]
ANSWERS = [
    {"variants": {UNREFINED: record([2, 6, 11, 1], medr=[10, 20], r1=[25, 35], r5=[50, 50])}},
    {"variants": {UNREFINED: record([1, 6, 30, 1], medr=[30, 40], r1=[50, 50], r5=[60, 60])}},
    {
        "variants": {
            UNREFINED: record([1, 6, 11, 1], medr=[8, 12], r1=[40, 44]),
            REFINED: record([1, 5, 11, 1], medr=[7, 9], r1=[41, 45], r10=[80, 82]),
        }
    },
    {
        "variants": {
            UNREFINED: record([2, 6, 1, 1], medr=[10, 14], r1=[40, 44]),
            REFINED: record([1, 1, 1, 1], medr=[1, 3], r1=[43, 47], r10=[90, 92]),
        }
    },
    {"variants": {UNREFINED: record([1, 1], medr=[1, 1])}},
]
CLUSTERS = np.array([0, 0, 1, 2])


@pytest.fixture
def scores():
    return coherence_study.collect(JOBS, ANSWERS)


def test_variants_become_systems_of_their_own(scores):
    assert {name: list(own) for name, own in scores.items()} == {
        "clue": ["CMCA", "CMCM", "CMCM θ̄"],
        "cite++": ["CMCA"],
    }
    own = scores["clue"]["CMCA"]
    assert own["full"].tolist() == [[2, 6, 11, 1], [1, 6, 30, 1]]
    assert own["hits"].shape == (2, 3, 4)
    assert own["medr"].tolist() == [[10, 20], [30, 40]]
    assert coherence_study.by_system(JOBS, ANSWERS, "clue") == {
        "CMCA": ANSWERS[:2],
        "CMCM": ANSWERS[2:4],
    }


def test_results_are_means_over_pools_and_counts_over_all_pairs(scores):
    rows = coherence_study.results(scores, budget("world"), [3, 4])
    assert len({row.settings for row in rows}) == 1
    assert {row.split for row in rows} == {"test"}
    value = {(r.dataset, r.system, r.metric, r.seed): r.value for r in rows}
    assert len(value) == len(rows) == (3 * 2 + 1) * 7
    assert value["clue", "CMCA", "medr", 3] == 15
    assert value["clue", "CMCA", "r1", 4] == 50
    assert value["clue", "CMCA", "rsum", 3] == 30 + 50 + 0
    assert value["clue", "CMCA", "full_medr", 3] == 4  # of 1, 2, 6, 11
    assert value["clue", "CMCA", "full_r10", 3] == 75
    assert value["clue", "CMCM θ̄", "r10", 4] == 91
    assert ("cite++", "CMCA", "medr", 4) not in value


def test_what_each_text_adds_to_the_recalls(scores):
    added = coherence_study.items(scores["clue"]["CMCA"])
    # Ranks 2, 6, 11, 1 are within two, one, none and all three of 1, 5 and 10.
    assert added.tolist() == [[200, 100, 0, 300], [300, 100, 0, 300]]


def test_differences_are_paired_by_seed_and_text(scores):
    own = scores["clue"]
    found = difference(own, "CMCM", "CMCA", CLUSTERS)
    # Seed 0 gains 100 on text 0; seed 1 loses 100 there and gains 300 on text 2.
    gains = [[100, 0, 0, 0], [-100, 0, 300, 0]]
    assert found.effect == np.mean(gains) == 37.5
    assert found == crossed_interval(np.array(gains), CLUSTERS)
    swapped = difference(own, "CMCA", "CMCM", CLUSTERS)
    assert (swapped.effect, swapped.low) == pytest.approx((-37.5, -found.high))
    some = difference(own, "CMCM", "CMCA", CLUSTERS, rows=np.array([2, 3]))
    assert some == crossed_interval(np.array([[0, 0], [300, 0]]), CLUSTERS[2:])
    same = difference({**own, "twin": own["CMCM"]}, "CMCM", "twin", CLUSTERS)
    assert (same.effect, same.low, same.high) == (0, 0, 0)


def test_a_contrast_weighs_systems_and_takes_the_seeds_that_all_have(scores):
    own = {**scores["clue"], "one": {"hits": scores["clue"]["CMCM"]["hits"][:1]}}
    weights = {"one": 2.0, "CMCA": -0.5}
    expected = [[2 * 300 - 100, 2 * 100 - 50, 0, 2 * 300 - 150]]
    found = coherence_study.contrast(own, weights, CLUSTERS)
    assert found == crossed_interval(np.array(expected), CLUSTERS)


def test_the_gain_by_refinement_is_a_mean_over_systems(scores):
    own = dict(scores["clue"])
    rng = np.random.default_rng(0)
    for name in (
        "CMCM_Meta",
        f"CMCM_Meta {REFINED}",
        "CMCM, λ_cls 2.0",
        f"CMCM, λ_cls 2.0 {REFINED}",
    ):
        own[name] = {"hits": rng.random((2, 3, 4)).round(2)}
    found = coherence_study.refinement_gain(own, CLUSTERS, REFINED)
    gains = [
        coherence_study.items(own[f"{name} {REFINED}"]) - coherence_study.items(own[name])
        for name in ("CMCM", "CMCM_Meta")  # sweeps are no systems
    ]
    expected = crossed_interval(np.mean(gains, axis=0), CLUSTERS)
    assert (found.effect, found.low, found.high) == pytest.approx(
        (expected.effect, expected.low, expected.high)
    )
    assert coherence_study.refinement_gain(own, CLUSTERS, f"{REFINED}, T 0.1") is None


def test_the_difference_of_median_ranks_by_hand(scores):
    own = scores["clue"]
    found = coherence_study.medr_difference(own, "CMCM", "CMCA", CLUSTERS)
    # CMCA: medians 4 and 3.5; CMCM: 3.5 and 1.5.
    assert found.effect == 3.75 - 2.5
    assert found.low <= found.effect <= found.high
    rng = np.random.default_rng(0)
    members = ([0, 1], [2], [3])
    drawn = []
    for _ in range(500):
        rows = [i for c in rng.integers(3, size=3) for i in members[c]]
        medians = [
            np.mean([median(ranks[i] for i in rows) for ranks in own[name]["full"]])
            for name in ("CMCA", "CMCM")
        ]
        drawn.append(medians[0] - medians[1])
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])))
    same = coherence_study.medr_difference(own, "CMCM", "CMCM", CLUSTERS)
    assert (same.effect, same.low, same.high) == (0, 0, 0)


def test_random_ranks_are_at_chance_and_repeat():
    def random(seeds):
        n = 60
        start = {"made": {"CMCA": {"full": np.ones((1, n)), "hits": np.ones((1, 3, n))}}}
        coherence_study.add_random(start, seeds)
        return start["made"]["Random"]

    own = random(range(12))
    assert own["full"].shape == (12, 60)
    assert own["medr"].shape == (12, 50)
    assert own["medr"].mean() == pytest.approx(30.5, abs=2.5)
    assert own["r10"].mean() == pytest.approx(100 * 10 / 60, abs=3)
    assert np.array_equal(random([4])["full"][0], own["full"][4])
    assert not np.array_equal(own["full"][0], own["full"][1])


# --- Tables --------------------------------------------------------------------------------------


def test_the_main_table_sets_ours_beside_the_printed_numbers(scores):
    own = {
        **scores,
        "clue": {**scores["clue"], "CMCM, λ_cls 0.4": scores["clue"]["CMCM"]},
    }
    coherence_study.add_random(own, [0, 1])
    table = coherence_study.main_table(own, "clue")
    assert list(table.index) == ["CMCA", "CMCM", "Random"]
    first = table.loc["CMCA"]
    assert first["MedR", "paper"] == "19.3"
    assert first["MedR", "paper's ±"] == "2.0"
    assert first["MedR", "θ"] == "25.0"
    assert first["MedR", "θ̄"] == "–"
    assert first["± of θ", "pools"] == "7.1"  # of 10 and 20, and of 30 and 40
    assert first["± of θ", "seeds"] == "14.1"  # of 15 and 35
    assert first["R@1", "paper"] == "13.2"
    assert first["R@1", "θ"] == "40.0"
    second = table.loc["CMCM"]
    assert second["MedR", "θ"] == "11.0"
    assert second["MedR", "θ̄"] == "5.0"
    assert second["R@10", "θ̄"] == "86.0"
    assert second["R@10", "paper"] == "40.6"
    assert table.loc["Random", ("MedR", "paper")] == "–"
    cite = coherence_study.main_table(own, "cite++").loc["CMCA"]
    assert cite["MedR", "paper"] == "5.4"  # Table 4
    assert cite["± of θ", "seeds"] == "nan"  # one training
    # The paper has nothing beside the control without signal.
    table = coherence_study.main_table({NO_SIGNAL: own["clue"]}, NO_SIGNAL)
    assert (table["MedR", "paper"] == "–").all()
    assert table.loc["CMCA", ("MedR", "θ")] == "25.0"


def test_every_data_set_has_a_printed_table(collections):
    for name in (*collections, "clue", "cite++", "flickr8k"):
        printed = paper_values("coherence", coherence_study.PRINTED[name])
        assert {"Base", "CMCA", "CMCM-NoAttn", "CMCM"} <= set(printed.index)
    for name, pairs in collections.items():
        printed = paper_values("coherence", coherence_study.PRINTED[name])
        assert set(coherence.systems(pairs.relations)) == set(printed.index)


def test_the_refinement_table_by_hand():
    wide, chosen = f"{REFINED}, T 0.1", f"{REFINED}, chosen on dev"
    variants = {UNREFINED: [10, 20], REFINED: [9, 19], wide: [8, 18], chosen: [1, 2]}
    told = [
        {"chosen": {"strength": 0.2, "threshold": 0.05}, "confidence only": [50, 60]},
        {"chosen": {"strength": 1.6, "threshold": 2.0}, "confidence only": [70, 80]},
    ]
    found = [
        {**own, "variants": {name: record([1, 2], medr=medr) for name, medr in variants.items()}}
        for own in told
    ]
    plain = {"variants": {UNREFINED: record([1, 2])}}
    jobs, answers = [job("CMCA", 0), job("CMCM", 0), job("CMCM", 1)], [plain, *found]
    jobs += [job("CMCM, λ_cls 0.4", 0)]
    answers += [found[0]]
    by_system = coherence_study.by_system(jobs, answers, "clue")
    table = coherence_study.refinement_table(
        coherence_study.collect(jobs, answers), "clue", by_system
    )
    assert table.loc["CMCM"].tolist() == [15.0, 14.0, 13.0, 1.5, "(0.2, 0.05) (1.6, 2)", 65.0]
    assert list(table.index) == ["CMCM"]


RATES = np.array([[1, 0, 1], [1, 1, 0], [1, 0, 0], [0, 0, 0]], dtype=bool)


def test_rates_stand_beside_the_printed_ones():
    def rates(name, relations):
        pairs = related(RATES, "train", relations)
        return coherence_study.rates_table(Pairs(pairs, pairs, pairs.take([0, 1], "test")), name)

    table = rates("clue", ("Visible", "Subjective", "Irrelevant"))
    assert table["train"].tolist() == [75, 25, 25]
    assert table["test"].tolist() == [100, 50, 50]
    assert table["p_c"].tolist() == [0.33, 3, 3]
    assert table["paper"].tolist() == [67.4, 6.6, 8.7]
    assert rates("cite++", ("Q2", "Q3", "Q7"))["paper"].tolist() == pytest.approx(
        [82.1, 11.5, 58.8]
    )
    assert "paper" not in rates("flickr8k", ("Visible", "Subjective", "Action"))


def test_weights_in_the_table_are_those_of_the_loss(collections):
    for name, pairs in collections.items():
        table = coherence_study.rates_table(pairs, name)
        weights = coherence.positive_weights(pairs.train.labels)
        assert table["p_c"].tolist() == pytest.approx(weights.tolist(), abs=0.006)
        assert table["paper"].notna().all()


def precise(both, text=0.5, image=0.4):
    return {"both": both, "text": text, "image": image}


def test_the_precision_table_by_hand():
    pairs = related([[1, 0], [1, 1], [1, 0], [0, 0]], relations=("Visible", "Meta"))
    pairs = Pairs(pairs, pairs, pairs)
    answers = {
        "CMCA": [{}],
        "CMCM": [
            {"precision": {"0": precise(0.8, 0.7), "1": precise(0.3)}},
            {"precision": {"0": precise(0.9, 0.8), "1": precise(0.5)}},
        ],
        "CMCM_Meta": [{"precision": {"1": precise(0.61)}}],
    }
    table = coherence_study.precision_table(answers, pairs, "clue")
    visible = table.loc["Visible"]
    assert visible["chance"] == 0.75
    assert visible["CMCM, paper"] == 0.82
    assert visible["CMCM, ours"] == 0.85
    assert visible["CMCM, text part alone"] == 0.75
    assert np.isnan(visible["CMCM_c, ours"])
    meta = table.loc["Meta"]
    assert (meta["CMCM, ours"], meta["CMCM_c, ours"]) == (0.4, 0.61)
    assert meta["CMCM_c, paper"] == 0.72
    assert meta["CMCM, image part alone"] == 0.4
    other = coherence_study.precision_table(answers, pairs, "cite++")
    assert "CMCM, paper" not in other


def test_the_table_of_subsets_by_hand():
    pairs = related([[1, 0]], relations=("Visible", "Beauty"))
    pairs = Pairs(pairs, pairs, pairs)

    def answer(variant, with_, without):
        one = {"with": [{"medr": with_}, {}], "without": [{"medr": without}, {}]}
        return {"subsets": {variant: one, "other": None}}

    answers = {
        "CMCA": [answer(UNREFINED, 10, 20), answer(UNREFINED, 20, 40)],
        "CMCM": [answer(REFINED, 5, 7), answer(REFINED, 6, 8)],
    }
    table = coherence_study.subset_table(answers, pairs)
    assert table.loc["Visible"].tolist() == [1, 12, 15, 30, 11, 5.5, 7.5]
    assert table.columns.tolist() == [
        "texts", "CMCA, paper", "CMCA, with", "CMCA, without",
        "CMCM, paper", "CMCM, with", "CMCM, without",
    ]  # fmt: skip
    assert table.loc["Beauty", "texts"] == 0
    assert table.loc["Beauty"].drop("texts").isna().all()  # and nobody printed it
    recalls = coherence_study.subset_table(answers, pairs, "r5")
    assert recalls.loc["Visible", "CMCM, paper"] == 35


def test_every_table_can_be_made_of_real_answers(runs, by_system, collections):
    scores = coherence_study.collect(*runs)
    pairs = collections[CLUE_LIKE]
    coherence_study.add_random(scores, [0, 1])
    assert set(coherence_study.main_table(scores, CLUE_LIKE).index) == {
        "Base", "CMCA", "CMCA + true relations", "CMCM", "CMCM_Meta", "Random",
    }  # fmt: skip
    table = coherence_study.refinement_table(scores, CLUE_LIKE, by_system)
    assert set(table.index) == {"CMCM", "CMCM_Meta"}
    assert not table.isna().any(axis=None)
    table = coherence_study.precision_table(by_system, pairs, CLUE_LIKE)
    assert table["CMCM, ours"].between(0, 1).all()
    assert table["CMCM_c, ours"].notna().tolist() == [False] * 4 + [True, False]
    table = coherence_study.subset_table(by_system, pairs)
    assert table["texts"].tolist() == pairs.test.labels.sum(axis=0).tolist()
    assert table["CMCA, without"].between(1, 120).all()


def test_the_evidence_table_scores_pictures_alone():
    pairs = made_pairs(n=300)
    train = pairs.train.labels.copy()
    train[:, 1] = True  # nothing can be learnt of it
    test = pairs.test.labels.copy()
    test[:, 2] = False  # nothing is there to be found
    pairs = Pairs(replace(pairs.train, labels=train), pairs.val, replace(pairs.test, labels=test))
    preprocessor = Preprocessor(pairs, budget("world", **TINY), "world")
    table = coherence_study.evidence_table(preprocessor)
    assert table["chance"].tolist() == test.mean(axis=0).round(2).tolist()
    images = {name: preprocessor.split(name).images for name in ("train", "test")}
    model = LogisticRegression(C=0.01, max_iter=1000).fit(images["train"], train[:, 0])
    odds = model.decision_function(images["test"])
    expected = average_precision_score(test[:, 0], odds)
    assert table.loc["A", "picture alone"] == pytest.approx(expected, abs=0.005)
    assert table.loc["A", "picture alone"] > 0.9
    assert table.loc["B", "picture alone"] == table.loc["B", "chance"]
    assert np.isnan(table.loc["C", "picture alone"])


# --- Effects of Fig. 3b, Table 8 and Fig. 8 ------------------------------------------------------

GAPS = [
    {"gaps": {"gap": [0.3, 0.1, 0.25, 0.0], "rank": [1, 1, 2, 2]}},
    {"gaps": {"gap": [0.1, 0.2, 0.0, 0.5], "rank": [3, 1, 1, 1]}},
]


def test_gaps_stand_a_training_a_row():
    delta, rank = coherence_study.gaps(GAPS)
    assert delta.tolist() == [[0.3, 0.1, 0.25, 0.0], [0.1, 0.2, 0.0, 0.5]]
    assert rank.tolist() == [[1, 1, 2, 2], [3, 1, 1, 1]]


def test_the_larger_half_of_the_gaps_is_set_against_the_smaller():
    found = coherence_study.gap_accuracy(GAPS, np.arange(4))
    # Training 0: texts 0 and 2 are wide, one right in each half. 1: texts 1 and 3, 2 against 1.
    assert found.effect == ((50 - 50) + (100 - 50)) / 2
    values = [[200, -200, 0, 0], [0, 200, -200, 200]]
    assert found == crossed_interval(np.array(values), np.arange(4))


def test_wrong_answers_beyond_a_gap_are_counted_with_clopper_and_pearson():
    # .3 and .25; .2 and .5: one of four is wrong.
    found = coherence_study.wrong_beyond(GAPS, least=4)
    low, high = stats.beta.ppf([0.025, 0.975], [1, 2], [4, 3])
    assert found.effect == 25
    assert (found.low, found.high) == pytest.approx((100 * low, 100 * high))
    one = coherence_study.wrong_beyond(GAPS, 0.4, least=1)
    assert (one.effect, one.low) == (0, 0)
    assert one.high == pytest.approx(97.5)  # one case proves little
    assert coherence_study.wrong_beyond(GAPS, least=5) is None
    assert coherence_study.wrong_beyond(GAPS) is None
    many = [{"gaps": {"gap": [0.2] * 30 + [0.19], "rank": [1] * 30 + [2]}}]
    assert coherence_study.wrong_beyond(many).effect == 0


def test_confidence_alone_is_set_against_the_cosines():
    def answer(only, plain):
        return {"confidence only": only, "variants": {UNREFINED: record([1], medr=plain)}}

    found = coherence_study.confidence_loss([answer([50, 60], [10, 20]), answer([70, 80], [5, 5])])
    half = stats.t.ppf(0.975, 1) * 15  # losses 40 and 70
    assert found.effect == 55
    assert (found.low, found.high) == pytest.approx((55 - half, 55 + half))
    assert coherence_study.confidence_loss([answer([50], [10])]) is None


def test_prediction_is_set_against_the_positive_rate():
    pairs = related([[1, 0], [1, 0], [0, 0], [0, 0]], relations=("Visible", "Meta"))
    pairs = Pairs(pairs, pairs, pairs)
    answers = {"CMCM": [{"precision": {"0": precise(0.7)}}, {"precision": {"0": precise(0.9)}}]}
    found = coherence_study.prediction_parts(answers, pairs, "clue")
    assert list(found) == ["clue: Visible"]
    assert found["clue: Visible"].effect == pytest.approx(0.3)
    assert found["clue: Visible"].low == pytest.approx(0.3 - stats.t.ppf(0.975, 1) * 0.1)
    assert coherence_study.prediction_parts({"CMCM": answers["CMCM"][:1]}, pairs, "clue") == {}
    assert coherence_study.prediction_parts({}, pairs, "clue") == {}


def test_sweeps_take_up_the_systems_that_are_there_anyway(scores):
    own = dict(scores["clue"])
    settings = Settings(max_words=30)
    made = {value: {"medr": np.array([[value, value + 2]])} for value in coherence_study.SWEEP}
    own |= {f"CMCM, λ_cls {value}": each for value, each in made.items()}
    panels = coherence_study.sweeps({"clue": own}, "clue", settings)
    assert list(panels) == ["λ_cls"]  # the lengths were not trained
    values = panels["λ_cls"]
    assert list(values) == [0.0, 0.01, 0.1, 0.4, 2.0]
    assert values[0.0].tolist() == [15, 35]  # CMCA
    assert values[0.1].tolist() == [10, 12]  # CMCM
    assert values[2.0].tolist() == [3.0]
    lengths = {f"CMCM, maximal length {value}": made[0.4] for value in coherence_study.LENGTHS}
    panels = coherence_study.sweeps({"clue": own | lengths}, "clue", settings)
    assert list(panels["maximal length"]) == [*coherence_study.LENGTHS, 30]
    assert panels["maximal length"][30].tolist() == [10, 12]
    assert coherence_study.sweeps(scores, "clue", settings) == {}


# --- Clue's own files, and people ----------------------------------------------------------------


def test_clues_rates_stand_beside_the_printed_ones_whichever_way_they_lie():
    printed = paper_values("coherence", "table2")["percent_positive"]
    rates = pd.DataFrame({"train": printed + 0.123}, index=printed.index)
    for given in (rates, rates.T):
        table = coherence_study.rates_beside_table2({"rates": given})
        assert table.columns.tolist() == ["paper's Table 2", "train"]
        assert table["paper's Table 2"].tolist() == printed.tolist()
        assert table["train"].tolist() == pytest.approx((printed + 0.12).tolist())


@pytest.mark.real
def test_table_2_is_the_training_split_of_the_real_clue(real_data):
    if not (real_data / "clue").is_dir():
        pytest.skip("no folder clue in the data folder")
    table = coherence_study.rates_beside_table2(coherence_study.clue_report())
    equal = [
        name
        for name in table.columns[1:]
        if (table[name].round(1) == table["paper's Table 2"]).all()
    ]
    assert len(equal) == 1
    assert "train" in equal[0]


def test_people_are_asked_about_texts_whose_best_images_differ(tmp_path):
    def open_image(row):
        return Image.new("RGB", (8, 8), (row, 0, 0))

    test = related(np.ones((5, 1)), image_of=[0, 0, 1, 2, 3], open_image=open_image)
    pairs = Pairs(test, test, test)
    answers = {
        "CMCM": [{"first": [0, 0, 2, 3, 4]}, {"first": [4] * 5}],
        "CMCA": [{"first": [0, 2, 2, 4, 0]}, {"first": [0] * 5}],
    }
    study = coherence_study.human_questions(answers, pairs, tmp_path / "votes.csv")
    asked = {question.key: (question.text, question.images) for question in study.questions}
    assert asked == {
        "text 1": ("text 1", (0, 1)),
        "text 3": ("text 3", (2, 3)),
        "text 4": ("text 4", (3, 0)),
    }
    assert study.systems == ("CMCM", "CMCA")
    again = coherence_study.human_questions(answers, pairs, tmp_path / "votes.csv")
    assert again.questions == study.questions
    two = coherence_study.human_questions(answers, pairs, tmp_path / "votes.csv", count=2)
    assert two.questions == study.questions[:2]


def test_nobody_is_asked_where_there_is_nothing_to_show(tmp_path):
    blind = related(np.ones((2, 1)))
    seen = replace(blind, open_image=lambda row: Image.new("RGB", (8, 8)))
    same = {"CMCM": [{"first": [0, 1]}], "CMCA": [{"first": [0, 1]}]}
    other = {"CMCM": [{"first": [0, 1]}], "CMCA": [{"first": [1, 1]}]}
    for test, answers in ((blind, other), (seen, same), (seen, {"CMCM": other["CMCM"]})):
        pairs = Pairs(test, test, test)
        assert coherence_study.human_questions(answers, pairs, tmp_path / "votes.csv") is None
    pairs = Pairs(seen, seen, seen)
    assert coherence_study.human_questions(other, pairs, tmp_path / "votes.csv") is not None


# --- The tier paper, on made-up files ------------------------------------------------------------


def test_pictures_are_cropped_at_random_in_training_and_in_the_centre_else():
    wide = np.zeros((40, 120, 3), dtype=np.uint8)
    wide[..., 0] = np.linspace(0, 255, 120).astype(np.uint8)  # red grows to the right
    sizes = [Image.fromarray(wide), Image.new("RGB", (300, 900), (255, 255, 255))]
    pictures = coherence_study.Pictures(sizes.__getitem__)
    rows = np.array([0, 1, 0])
    centre = pictures(rows, False)
    assert centre.shape == (3, 3, 224, 224)
    assert centre.dtype == torch.float32
    assert torch.equal(centre, pictures(rows, False))
    assert torch.equal(centre[0], centre[2])
    # White is (1 - mean) / deviation of ImageNet.
    white = [(1 - 0.485) / 0.229, (1 - 0.456) / 0.224, (1 - 0.406) / 0.225]
    assert centre[1, :, 0, 0].tolist() == pytest.approx(white, abs=1e-4)
    # The centre holds the middle third, from 85 to 170 of 255.
    red = centre[0, 0] * 0.229 + 0.485
    assert (red.min() * 255, red.max() * 255) == pytest.approx((85, 170), abs=3)
    torch.manual_seed(0)
    moved = pictures(np.zeros(8, dtype=int), True)
    assert moved.shape == (8, 3, 224, 224)
    means = moved[:, 0].mean(dim=(1, 2))
    assert len({round(float(mean), 3) for mean in means}) > 4
    torch.manual_seed(0)
    assert torch.equal(moved, pictures(np.zeros(8, dtype=int), True))


@pytest.fixture
def clue_folder(tmp_path, monkeypatch):
    """60 training and 20 test pairs on 40 and 20 images; the file of each ninth is missing."""
    folder = tmp_path / "clue"
    (folder / "images").mkdir(parents=True)
    rng = np.random.default_rng(0)
    numbers = {}
    for split, pairs, images in (("train", 60, 40), ("test", 20, 20)):
        rows = []
        for i in range(pairs):
            url = f"https://x.org/{split}/{i % images}.jpg"
            numbers.setdefault(url, len(numbers))
            labels = [str(int(flag)) for flag in (rng.random(6) < 0.5)]
            text = f"A picture, number {i % images} of {split} ."
            rows.append([i, i, text, url, *labels, *"0000", "False"])
        with clue.split_file(split, folder).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([clue.COLUMNS, *rows])
    (folder / "img2idxmap.json").write_text(json.dumps(numbers))
    for number in numbers.values():
        if number % 9 == 0:
            continue
        noise = rng.integers(0, 256, size=(5, 7, 3), dtype=np.uint8)
        Image.fromarray(noise).resize((70, 50)).save(folder / "images" / f"{number}.jpg")
    monkeypatch.setenv("MMLIB_DATA", str(tmp_path))
    return folder


def test_a_damaged_collection_is_not_left_out_in_silence(clue_folder):
    path = clue_folder.parent / "cite" / "q2-8_train_dis_11-08.csv"
    path.parent.mkdir()
    path.write_text("qimg,stim_txt\n")
    (pairs,) = load("paper").values()
    assert "q2-8_train_dis_11-08.csv, line 1: the columns are" in pairs.missing


def test_missing_images_are_counted_and_their_pairs_left_out(clue_folder):
    (pairs,) = load("paper").values()
    # Images 0, 9, 18, 27 and 36 of 40 in training: 0, 9 and 18 stand in two pairs each.
    # In test 45 and 54 of 40 to 59.
    assert len(pairs.train) + len(pairs.val) == 60 - 8
    assert len(pairs.test) == 18
    counted, left_out = pairs.missing.split("; left out: ")
    assert counted == (
        "train: 5 of 40 images missing, 0 unreadable: 8 of 60 pairs left out; "
        "test: 2 of 20 images missing, 0 unreadable: 2 of 20 pairs left out"
    )
    assert "q2-8_train_dis_11-08.csv: is missing" in left_out
    assert not set(pairs.train.image_of) & set(pairs.val.image_of)
    assert len(pairs.val) >= 5
    assert pairs.val.split == "val"
    again, other = load("paper")["clue"], load("paper", seed=1)["clue"]
    assert again.val.texts == pairs.val.texts != other.val.texts


class Seven(torch.nn.Module):
    """In place of ResNet-50: maps of the same width, with something to train."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Linear(3, 2048)

    def forward(self, pictures):
        small = torch.nn.functional.adaptive_avg_pool2d(pictures, 2)
        return self.weight(small.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def test_a_system_is_trained_on_pictures_from_end_to_end(clue_folder, tmp_path, monkeypatch):
    made = []

    def resnet50():
        made.append(Seven())
        return made[-1]

    monkeypatch.setattr(coherence_study, "resnet50", resnet50)
    collections = load("paper")
    settings = budget("paper", epochs=1, width=16, word_width=8, hidden=8, batch=16)
    preprocessors = coherence_study.preprocessors(collections, settings, "paper")
    assert "A" in preprocessors["clue"].vocabulary.words
    jobs = coherence_study.training_jobs(preprocessors, [0], "cpu", ["CMCA", "CMCM"], examples=[0])
    assert len(jobs) == 2
    answers = training.run_jobs(coherence_study.train_system, jobs, tmp_path, workers=1)
    training.seed_everything(0)
    first = Seven().weight.weight
    assert not torch.allclose(made[0].weight.weight, first, atol=1e-6)  # the network was trained
    assert "evidence" not in jobs[0][1]
    assert ORACLE not in answers[0]["variants"]
    assert REFINED in answers[1]["variants"]
    for (job, _), answer in zip(jobs, answers, strict=True):
        assert job["tier"] == "paper"
        assert len(answer["variants"][UNREFINED]["full"]) == 18
        assert answer["parameters"] > 2048 * 4
    again = coherence_study.train_system(**jobs[0][0], **jobs[0][1])
    assert the_same(json.loads(json.dumps(again)), answers[0])
    by_system = coherence_study.by_system(jobs, answers, "clue")
    scores = coherence_study.collect(jobs, answers)
    assert list(coherence_study.main_table(scores, "clue").index) == ["CMCA", "CMCM"]
    assert "CMCM, paper" in coherence_study.precision_table(by_system, collections["clue"], "clue")


def test_pictures_on_disk_are_fingerprinted_by_name(clue_folder):
    pairs = load("paper")["clue"]
    settings = budget("paper", word_width=8)

    def mark(pairs):
        preprocessor = Preprocessor(pairs, settings, "paper")
        return coherence_study.fingerprint(preprocessor, preprocessor.splits())

    renamed = tuple(f"{name}.new" for name in pairs.test.image_ids)
    marks = {mark(pairs), mark(replace(pairs, test=replace(pairs.test, image_ids=renamed)))}
    assert len(marks) == 2
    assert mark(pairs) in marks


@pytest.mark.parametrize("loss", ["distance", "cosine"])
def test_the_image_network_gives_one_vector_a_picture(loss):
    """The real ResNet-50, untrained: its last maps, in training mode, with slopes."""
    from mmlib.features.backbones import load_backbone

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "mmlib.features.backbones.load_backbone",
            lambda name: load_backbone(name, weights="random"),
        )
        network = coherence_study.resnet50()
    assert network.training
    assert all(p.requires_grad for p in network.parameters())
    assert sum(p.numel() for p in network.parameters()) == 23_508_032  # spec of ResNet-50
    encoder = coherence.ImageEncoder(2048, 8, network)
    z = encoder(torch.randn(2, 3, 64, 64))
    assert z.shape == (2, 8)


# --- The dial ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dial():
    """signal -> scores of three trainings on half as many pairs as the notebook has, and the image
    of each test text."""
    sizes = {"train": 1000, "val": 120, "test": 400}
    loud = coherence_study.world_pairs("clue", 1.0, workers=1, sizes=sizes)
    silent = coherence_study.world_pairs("clue", 0.0, workers=1, sizes=sizes, like=loud)
    settings = budget("world")
    found: dict[float, Mapping] = {}
    for signal, pairs, systems in ((1.0, loud, ["CMCA"]), (0.0, silent, ["CMCA", "CMCM"])):
        made = {"clue": Preprocessor(pairs, settings, "world")}
        jobs = coherence_study.training_jobs(made, [0, 1, 2], "cpu", systems)
        answers = [coherence_study.train_system(**job, **work) for job, work in jobs]
        found[signal] = coherence_study.collect(jobs, answers)["clue"]
    return found, loud.test.image_of


@pytest.mark.slow
@pytest.mark.parametrize("aware", ["CMCM", f"CMCM {REFINED}"])
def test_without_signal_coherence_does_not_help(dial, aware):
    scores, images = dial
    effect = difference(scores[0.0], aware, "CMCA", images)
    claim = Claim("K2", "relations help", "", f"{aware} − CMCA", {"clue": effect}, "points")
    assert claim.verdict == "not supported", claims.claims_table([claim]).to_string()


@pytest.mark.slow
def test_knowing_the_true_relations_helps_with_signal_and_not_without(dial):
    """What makes the test above worth something: the dial decides what there is to gain."""
    scores, images = dial
    effects = {s: difference(own, f"CMCA {ORACLE}", "CMCA", images) for s, own in scores.items()}
    assert judge(effects[1.0]) == "supported", effects[1.0]
    assert judge(effects[0.0]) == "not supported", effects[0.0]
    assert effects[1.0].effect > 3, effects[1.0]
