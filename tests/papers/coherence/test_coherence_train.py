"""Training and scoring on toy pairs: what a job answers; it can be stopped and repeated."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from scipy.special import expit
from sklearn.metrics import average_precision_score
from tiny_coherence import HOW, RELATIONS, job, tiny

from mmlib.core.jobs import Run
from mmlib.papers.coherence import baselines, method, run
from mmlib.papers.coherence.data import pairs as collections
from mmlib.papers.coherence.method import full_ranks
from mmlib.papers.coherence.run import BASE, BASELINES, CMCA, CMCM, single

CHANCE = np.log2(np.arange(1, 41)).mean()


@pytest.fixture(scope="module")
def arrays():
    return tiny()


@pytest.fixture(scope="module")
def answers(arrays):
    systems = (BASE, CMCA, CMCM, single("Story"))
    return {one.system: run.train_and_score(job(one), arrays) for one in systems}


@pytest.fixture(scope="module")
def model(arrays):
    return run.train(job(CMCM), arrays)[0]


@pytest.fixture(scope="module")
def encoded(arrays, model):
    return run.encode(model, arrays.splits["test"])


def same(one, other):
    assert one.history == other.history
    for split, values in one.values.items():
        assert values.keys() == other.values[split].keys()
        for name in values:
            np.testing.assert_array_equal(values[name], other.values[split][name])


def test_each_system_reports_what_it_is_asked_for_and_learns(answers, arrays, model):
    main = {"rank", "rank, refined", "rank, refined as dev chose"}
    wanted = {
        "Base": {"rank"}, "CMCA": {"rank", "rank, true relations", "rank, told relations"},
        "CMCM": main | {"gap", "rank, refined, T 0.1", "rank by confidence"}, "CMCM_Story": main,
    }  # fmt: skip
    assert {name: set(answer.values["test"]) for name, answer in answers.items()} == wanted
    for name, answer in answers.items():
        assert all(len(values) == 40 for values in answer.values["test"].values())
        assert {len(values) for values in answer.values["pools"].values()} == {50}
        assert len(answer.history) == HOW.epochs
        assert answer.history[-1]["train_loss"] < answer.history[0]["train_loss"]
        assert np.log2(answer.values["test"]["rank"]).mean() < CHANCE - 0.5, name
    assert "relations" not in answers["Base"].values
    dev = full_ranks(run.encode(model, arrays.splits["val"]).theta)  # the best epoch is kept
    best = min(epoch["dev_loss"] for epoch in answers["CMCM"].history)
    assert np.log2(dev).mean() == pytest.approx(best)


def test_a_stopped_training_ends_with_the_same_answer_and_another_seed_does_not(
    arrays, answers, tmp_path
):
    path = tmp_path / "half.pt"

    def stop(history):
        if len(history) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.train(job(CMCM), arrays, Run(checkpoint=path, after_epoch=stop))
    same(run.train_and_score(job(CMCM), arrays, Run(checkpoint=path)), answers["CMCM"])
    other = run.train_and_score(job(CMCM, seed=1), arrays)
    assert (other.values["test"]["rank"] != answers["CMCM"].values["test"]["rank"]).any()


def test_labels_are_seen_where_relations_are_learnt_and_those_of_test_by_oracles(arrays, answers):
    def answer(system, split, labels):
        relabelled = replace(arrays.splits[split], labels=labels)
        other = replace(arrays, splits={**arrays.splits, split: relabelled})
        return run.train_and_score(job(system), other).values["test"]

    wrong = arrays.splits["train"].labels[::-1].copy()
    for system in (BASE, CMCA, CMCM):
        found = answer(replace(system, reports="ranks"), "train", wrong)["rank"]
        differs = (found != answers[system.system].values["test"]["rank"]).any()
        assert differs == (system == CMCM), system
    for system in (CMCA, CMCM):
        found = answer(system, "test", ~arrays.splits["test"].labels)
        for name, values in answers[system.system].values["test"].items():
            assert (found[name] != values).any() == (name == "rank, true relations"), name


def test_ranks_and_what_a_head_knows_are_those_of_the_model(arrays, model, encoded, monkeypatch):
    monkeypatch.setattr(run, "STRENGTHS", (3.0,))  # what dev chooses from
    monkeypatch.setattr(run, "THRESHOLDS", (2.0,))
    theta, found = encoded.theta, run.train_and_score(job(CMCM), arrays).values
    np.testing.assert_allclose(theta, encoded.texts @ encoded.images.T, atol=1e-6)
    x = run.probabilities(model, encoded)
    eta, pools = method.confidence(x, HOW.strength), method.pools_of(40)
    chosen = method.confidence(x, 3.0)
    in_pools = method.pool_ranks(theta.astype(np.float32), pools, eta, HOW.threshold)
    ranks = {
        "rank": full_ranks(theta), "gap": method.gap(theta), "rank by confidence": full_ranks(eta),
        "rank, refined": full_ranks(method.refine(theta, eta, HOW.threshold)),
        "rank, refined, T 0.1": full_ranks(method.refine(theta, eta, 0.1)),
        "rank, refined as dev chose": full_ranks(method.refine(theta, chosen, 2.0)),
    }  # fmt: skip
    for name, values in ranks.items():
        np.testing.assert_allclose(found["test"][name], values, err_msg=name)
    for name, values in method.pool_metrics(in_pools).items():
        np.testing.assert_array_equal(found["pools"][f"{name}, refined"], values, name)
    labels, told = arrays.splits["test"].labels, found["relations"]
    with torch.no_grad():
        logits = model.head(torch.tensor(encoded.texts), torch.tensor(encoded.images)).numpy()
    a, b = model.head.linear.weight.detach().numpy().reshape(3, 2, -1).transpose(1, 0, 2)
    for c in range(len(RELATIONS)):
        for name, score in (("AP", logits[:, c]), ("AP, text part", encoded.texts @ a[c]),
                            ("AP, image part", encoded.images @ b[c])):  # fmt: skip
            assert told[name][c] == pytest.approx(average_precision_score(labels[:, c], score))
        cosine = a[c] @ b[c] / np.linalg.norm(a[c]) / np.linalg.norm(b[c])
        assert told["alignment"][c] == pytest.approx(cosine, abs=1e-5)


def test_a_head_of_one_relation_ranks_by_it(arrays):
    system = replace(CMCM, relations=RELATIONS[1], reports="head")
    told = run.train_and_score(job(system), arrays).values["relations"]["AP"]
    alone, _ = run.train(job(system), arrays)
    texts = run.encode(alone, arrays.splits["test"])
    with torch.no_grad():
        logits = alone.head(torch.tensor(texts.texts), torch.tensor(texts.images)).numpy()
    labels = arrays.splits["test"].labels
    assert told.tolist() == [average_precision_score(truth, logits[:, 0]) for truth in labels.T]


def test_examples_name_the_best_pairs_and_the_weight_of_each_word(arrays, encoded):
    for one, row in zip(run.examples(encoded, [3, 7]), (3, 7), strict=True):
        assert one["text"] == row
        assert one["best"][0] == encoded.theta[row].argmax()
        assert one["rank"] == full_ranks(encoded.theta)[row]
        assert one["attention"].sum() == pytest.approx(1, abs=1e-5)
        assert len(one["attention"]) == arrays.splits["test"].lengths[row]


def test_the_loss_has_the_weights_of_the_relations_that_a_head_learns(arrays):
    rates = arrays.splits["train"].labels.mean(axis=0)
    for system, columns in ((CMCM, [0, 1, 2]), (single("Story"), [1])):
        weights = run.make(system, HOW, arrays, 0).weights.tolist()
        assert weights == pytest.approx(((1 - rates) / rates)[columns], rel=1e-5)
    with pytest.raises(ValueError, match="no relation 'Q7': there are Visible"):
        run.make(single("Q7"), HOW, arrays, 0)


def test_refinement_on_dev_repairs_ranks_and_is_the_weakest_where_none_helps():
    weakest = run.STRENGTHS[0], run.THRESHOLDS[0]
    assert run.best_refinement(np.eye(4), np.full((4, 4, 1), 0.5)) == weakest
    theta = np.array([[0.50, 0.51], [0.0, 1.0]])
    x = np.array([[[0.99], [0.5]], [[0.5], [0.5]]])
    assert run.best_refinement(theta, x) == (0.06, 0.02)


# --- Probes and fusions --------------------------------------------------------------------------


def test_a_probe_minimises_the_mean_cross_entropy_and_its_penalty():
    """At the minimum the slope is 0: mean((p − y) x) + penalty · w, the constant apart."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 5))
    y = x @ rng.normal(size=5) + 0.5 + rng.logistic(size=200) > 0
    logits = baselines.probe(x, np.stack([y, np.ones(200, bool)], axis=1), 0.01, x)
    with_constant = np.column_stack([x, np.ones(200)])
    w = np.linalg.lstsq(with_constant, logits[:, 0], rcond=None)[0]
    slope = with_constant.T @ (expit(logits[:, 0]) - y) / 200 + 0.01 * np.append(w[:-1], 0)
    np.testing.assert_allclose(slope, 0, atol=1e-4)
    assert (logits[:, 1] == logits[0, 1]).all()  # the relation always holds
    assert logits[0, 1] > 5


def test_fusion_is_the_loop_over_texts_pictures_and_relations():
    rng = np.random.default_rng(2)
    theta, likely, ratios = rng.normal(size=(4, 5)), rng.random((4, 3)), rng.normal(size=(2, 5, 3))
    wanted, (no, yes) = theta.copy(), np.exp(ratios)
    for i, j, c in np.ndindex(4, 5, 3):
        p = likely[i, c]
        wanted[i, j] += 0.3 * np.log((1 - p) * no[j, c] + p * yes[j, c])
    np.testing.assert_allclose(baselines.fused(theta, likely, ratios, 0.3), wanted)


def test_the_oracle_gains_and_evidence_that_dev_refuses_gets_no_weight(answers):
    values = answers["CMCA"].values["test"]
    gain = np.log2(values["rank"]).mean() - np.log2(values["rank, true relations"]).mean()
    assert gain > 0.1
    labels = np.eye(3, dtype=float)[np.arange(30) % 3]
    noise = np.random.default_rng(0).uniform(-0.1, 0.1, (30, 30))
    theta, likely = dict.fromkeys(("val", "test"), noise), dict.fromkeys(("val", "test"), labels)
    right = np.stack([4.0 * (1 - labels), 4.0 * labels])
    refused = baselines.fused_ranks(theta, likely, {"val": -right, "test": right})
    np.testing.assert_array_equal(refused, full_ranks(noise))
    assert baselines.fused_ranks(theta, likely, dict.fromkeys(theta, right)).max() <= 10


def test_baselines_are_at_chance_and_above_and_pairs_are_described(arrays):
    def level(row, seed=0):
        answer = baselines.score(replace(job(BASE, seed=seed), system=row), arrays)
        return np.log2(answer.values["test"]["rank"]).mean()

    random, ridge = BASELINES
    assert np.mean([level(random, seed) for seed in range(8)]) == pytest.approx(CHANCE, abs=0.2)
    assert level(ridge) < CHANCE - 0.5
    found, labels = baselines.describe_pairs(None, arrays).values, arrays.splits["test"].labels
    np.testing.assert_allclose(found["relations"]["rate"], labels.mean(axis=0))
    for of in ("words", "pictures"):
        assert (found["relations"][f"AP of {of}"] > labels.mean(axis=0) + 0.1).all()
    np.testing.assert_array_equal(found["test"]["Story"], labels[:, 1])


def test_ridge_is_least_squares_on_the_words_that_occur(arrays, monkeypatch):
    monkeypatch.setattr(baselines, "PENALTIES", (3.0,))
    words, pictures = {}, {}
    for name in ("train", "test"):
        split = arrays.splits[name]
        words[name] = np.array([[word in text for word in range(29)] for text in split.ids], float)
        words[name][:, :2] = 0  # padding and unknown words
        pictures[name] = split.images[split.image_of] - arrays.splits["train"].images.mean(axis=0)
    x = np.vstack([words["train"], np.sqrt(3.0) * np.eye(29)])
    weights = np.linalg.lstsq(x, np.vstack([pictures["train"], np.zeros((29, 10))]), rcond=None)[0]
    predicted, shown = words["test"] @ weights, pictures["test"]
    wanted = 1 - cdist(predicted, shown, "cosine")
    np.testing.assert_allclose(baselines.ridge(arrays), wanted, atol=1e-5)


# --- The grid ------------------------------------------------------------------------------------


def test_the_grid_has_each_system_where_it_belongs(arrays):
    counts = {"Clue-like": 23, "CITE-like": 22, "flickr8k": 21, collections.MAP[0]: 2}
    assert {name: len(run.trained_systems(name)) for name in counts} == counts
    for tier, dataset in (("world", "Clue-like"), ("world", collections.MAP[0]), ("paper", "cite")):
        rows = run.systems(tier, dataset)
        assert {"Random", "Ridge", run.PAIRS} < set(rows)
        assert rows["CMCM"]["relations"] == "all"


def test_arrays_know_their_clusters_and_what_was_changed(arrays):
    assert [len(arrays.clusters(of)) for of in ("test", "pools", "relations")] == [40, 50, 3]
    marks = {arrays.fingerprint, tiny().fingerprint}
    assert len(marks) == 1
    for name in ("ids", "labels", "images", "image_of"):
        test = arrays.splits["test"]
        value = getattr(test, name).copy()
        value.flat[0] = 1 - value.flat[0]
        changed = replace(test, **{name: value})
        marks.add(replace(arrays, splits={**arrays.splits, "test": changed}).fingerprint)
    assert len(marks) == 5
    for count, sizes in ((8, [4, 4]), (9, [4, 4]), (10, [4, 4, 2])):  # batch norm needs two
        assert [*map(len, collections.row_batches(np.arange(count), 4))] == sizes
