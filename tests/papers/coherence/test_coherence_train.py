"""Training and scoring on toy pairs: what a job answers; it can be stopped and repeated."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import expit
from sklearn.metrics import average_precision_score
from tiny_coherence import HOW, RELATIONS, job, tiny

from mmlib.core.jobs import Run
from mmlib.papers.coherence import baselines, method, run
from mmlib.papers.coherence.method import (
    confidence,
    full_ranks,
    gap,
    pool_metrics,
    pool_ranks,
    pools_of,
)
from mmlib.papers.coherence.run import BASE, BASELINES, CMCA, CMCM, single


@pytest.fixture(scope="module")
def arrays():
    return tiny()


@pytest.fixture(scope="module")
def answers(arrays):
    systems = (BASE, CMCA, CMCM, single("Story"))
    return {one.system: run.train_and_score(job(one), arrays) for one in systems}


def same(one, other):
    assert one.values.keys() == other.values.keys()
    for split, of_split in one.values.items():
        assert of_split.keys() == other.values[split].keys()
        for name, values in of_split.items():
            np.testing.assert_array_equal(values, other.values[split][name])
    assert one.history == other.history


def test_each_system_reports_what_it_is_asked_for(answers):
    main = {"rank", "rank, refined", "rank, refined as dev chose"}
    told = {name: set(answer.values["test"]) for name, answer in answers.items()}
    assert told["Base"] == {"rank"}
    assert told["CMCA"] == {"rank", "rank, true relations", "rank, told relations"}
    assert told["CMCM"] == main | {"gap", "rank, refined, T 0.1", "rank by confidence"}
    assert told["CMCM_Story"] == main
    for answer in answers.values():
        assert all(len(v) == 40 for v in answer.values["test"].values())
        assert {len(v) for v in answer.values["pools"].values()} == {50}
        assert len(answer.history) == HOW.epochs
        assert set(answer.history[0]) == {"train_loss", "dev_loss", "dev_MedR"}
    assert "relations" not in answers["Base"].values
    assert len(answers["CMCM"].values["relations"]["AP"]) == len(RELATIONS)


def test_training_learns_and_the_best_epoch_is_kept(answers, arrays):
    chance = np.log2(np.arange(1, 41)).mean()
    for name, answer in answers.items():
        assert np.log2(answer.values["test"]["rank"]).mean() < chance - 0.5, name
    history = answers["CMCA"].history
    assert history[-1]["train_loss"] < history[0]["train_loss"]
    model, _ = run.train(job(CMCA), arrays)
    dev = full_ranks(run.encode(model, arrays.splits["val"]).theta)
    assert np.log2(dev).mean() == pytest.approx(min(h["dev_loss"] for h in history))


def test_the_same_seed_gives_the_same_answer_and_another_another(arrays, answers):
    same(run.train_and_score(job(CMCM), arrays), answers["CMCM"])
    other = run.train_and_score(job(CMCM, seed=1), arrays)
    assert (other.values["test"]["rank"] != answers["CMCM"].values["test"]["rank"]).any()


def test_a_training_that_was_stopped_ends_with_the_same_answer(arrays, answers, tmp_path):
    path = tmp_path / "half.pt"

    def stop(history):
        if len(history) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.train(job(CMCM), arrays, Run(checkpoint=path, after_epoch=stop))
    same(run.train_and_score(job(CMCM), arrays, Run(checkpoint=path)), answers["CMCM"])


def test_labels_are_seen_where_relations_are_learnt_and_nowhere_else(arrays, answers):
    wrong = arrays.splits["train"].labels[::-1].copy()
    mislabelled = replace(arrays.splits["train"], labels=wrong)
    blind = replace(arrays, splits={**arrays.splits, "train": mislabelled})
    for one, differs in ((BASE, False), (replace(CMCA, reports="ranks"), False), (CMCM, True)):
        found = run.train_and_score(job(one), blind).values["test"]["rank"]
        assert (found != answers[one.system].values["test"]["rank"]).any() == differs, one.system


def test_test_labels_reach_no_rank_but_the_oracles(arrays, answers):
    test = replace(arrays.splits["test"], labels=~arrays.splits["test"].labels)
    other = replace(arrays, splits={**arrays.splits, "test": test})
    for one in (CMCA, CMCM):
        found = run.train_and_score(job(one), other).values["test"]
        for name, values in answers[one.system].values["test"].items():
            assert (found[name] != values).any() == (name == "rank, true relations"), name


def test_ranks_are_those_of_the_models_cosines(arrays, answers):
    model, _ = run.train(job(CMCM), arrays)
    seen = run.encode(model, arrays.splits["test"])
    np.testing.assert_allclose(seen.theta, seen.texts @ seen.images.T, atol=1e-6)
    own, values = answers["CMCM"].values, answers["CMCM"].values["test"]
    np.testing.assert_array_equal(values["rank"], full_ranks(seen.theta))
    np.testing.assert_allclose(values["gap"], gap(seen.theta))
    eta = confidence(run.probabilities(model, seen), HOW.strength)
    np.testing.assert_array_equal(values["rank by confidence"], full_ranks(eta))
    np.testing.assert_array_equal(
        values["rank, refined"], full_ranks(seen.theta, eta, HOW.threshold)
    )
    pools = pools_of(40)
    medr = pool_metrics(pool_ranks(seen.theta.astype(np.float32), pools))["MedR"]
    np.testing.assert_array_equal(own["pools"]["MedR"], medr)


def test_what_a_head_knows_is_sklearns_precision_of_its_parts(arrays, answers):
    model, _ = run.train(job(CMCM), arrays)
    seen, labels = run.encode(model, arrays.splits["test"]), arrays.splits["test"].labels
    with torch.no_grad():
        logits = model.head(torch.tensor(seen.texts), torch.tensor(seen.images)).numpy()
    found = answers["CMCM"].values["relations"]
    a, b = model.head.linear.weight.detach().numpy().reshape(3, 2, -1).transpose(1, 0, 2)
    for c in range(3):
        for name, score in (("AP", logits[:, c]), ("AP, text part", seen.texts @ a[c]),
                            ("AP, image part", seen.images @ b[c])):  # fmt: skip
            assert found[name][c] == pytest.approx(average_precision_score(labels[:, c], score))
        cosine = a[c] @ b[c] / np.linalg.norm(a[c]) / np.linalg.norm(b[c])
        assert found["alignment"][c] == pytest.approx(cosine, abs=1e-5)


def test_weights_of_rare_relations_are_in_the_loss_or_not(arrays):
    weighted = run.make(CMCM, HOW, arrays, 0)
    rates = arrays.splits["train"].labels.mean(axis=0)
    assert weighted.weights.tolist() == pytest.approx((1 - rates) / rates, rel=1e-5)
    assert len(run.make(single("Story"), HOW, arrays, 0).weights) == 1
    with pytest.raises(ValueError, match="no relation 'Q7'"):
        run.make(single("Q7"), HOW, arrays, 0)


# --- Refinement as dev chooses -------------------------------------------------------------------


def test_refinement_on_dev_is_the_weakest_where_none_helps():
    theta = np.eye(4)
    assert run.best_refinement(theta, np.full((4, 4, 1), 0.5)) == (
        run.STRENGTHS[0], run.THRESHOLDS[0]
    )  # fmt: skip


def test_refinement_on_dev_finds_what_repairs_a_rank():
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


def test_a_relation_without_positives_has_no_average_precision():
    labels = np.array([[True, False], [False, False], [True, False]])
    scores = np.array([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3]])
    assert method.average_precisions(labels, scores)[0] == pytest.approx((1 + 2 / 3) / 2)
    assert np.isnan(method.average_precisions(labels, scores)[1])


def test_fusion_is_the_loop_over_texts_pictures_and_relations():
    rng = np.random.default_rng(2)
    theta, likely = rng.normal(size=(4, 5)), rng.random((4, 3))
    told = rng.normal(size=(2, 5, 3))
    wanted = theta.copy()
    for i in range(4):
        for j in range(5):
            for c in range(3):
                p = likely[i, c]
                wanted[i, j] += 0.3 * np.log((1 - p) * np.exp(told[0, j, c])
                                             + p * np.exp(told[1, j, c]))  # fmt: skip
    np.testing.assert_allclose(baselines.fused(theta, likely, told, 0.3), wanted)
    np.testing.assert_array_equal(baselines.fused(theta, likely, np.zeros((2, 5, 3)), 1.0), theta)


def test_the_oracle_gains_and_evidence_that_dev_refuses_gets_no_weight(answers):
    values = answers["CMCA"].values["test"]
    gain = np.log2(values["rank"]).mean() - np.log2(values["rank, true relations"]).mean()
    assert gain > 0.1
    labels = np.eye(3, dtype=float)[np.arange(30) % 3]
    rng = np.random.default_rng(0)
    theta = dict.fromkeys(("val", "test"), rng.uniform(-0.1, 0.1, (30, 30)))
    right = np.stack([4.0 * (1 - labels), 4.0 * labels])
    known = {"val": -right, "test": right}
    found = baselines.fused_ranks(theta, dict.fromkeys(theta, labels), known)
    np.testing.assert_array_equal(found, full_ranks(theta["test"]))
    better = baselines.fused_ranks(theta, dict.fromkeys(theta, labels), dict.fromkeys(theta, right))
    assert better.max() <= 10


# --- Baselines -----------------------------------------------------------------------------------


def test_baselines_are_at_chance_and_above(arrays):
    def levels(row, seed=0):
        own = replace(job(BASE, seed=seed), system=row)
        return np.log2(baselines.score(own, arrays).values["test"]["rank"]).mean()

    chance = np.log2(np.arange(1, 41)).mean()
    assert np.mean([levels(BASELINES[0], s) for s in range(8)]) == pytest.approx(chance, abs=0.2)
    assert levels(BASELINES[1]) < chance - 0.5


def test_what_words_and_pictures_tell_is_described(arrays):
    found = baselines.describe_pairs(job(BASE), arrays).values
    labels = arrays.splits["test"].labels
    np.testing.assert_allclose(found["relations"]["rate"], labels.mean(axis=0))
    assert (found["relations"]["AP of words"] > labels.mean(axis=0) + 0.2).all()
    np.testing.assert_array_equal(found["test"]["Story"], labels[:, 1])


def test_arrays_know_their_clusters_and_what_was_changed(arrays):
    assert len(arrays.clusters("test")) == 40
    assert len(arrays.clusters("pools")) == 50
    assert len(arrays.clusters("relations")) == 3
    marks = {arrays.fingerprint, tiny().fingerprint}
    assert len(marks) == 1
    for name in ("ids", "labels", "images", "image_of"):
        test = arrays.splits["test"]
        value = getattr(test, name).copy()
        value.ravel()[0] = not value.ravel()[0] if name == "labels" else value.ravel()[0] + 1
        changed = replace(test, **{name: value})
        marks.add(replace(arrays, splits={**arrays.splits, "test": changed}).fingerprint)
    assert len(marks) == 5


def test_examples_name_the_best_pairs_and_the_weight_of_each_word(arrays):
    model, _ = run.train(job(CMCM), arrays)
    seen = run.encode(model, arrays.splits["test"])
    for one, row in zip(run.examples(seen, [3, 7]), (3, 7), strict=True):
        assert one["text"] == row
        assert one["best"][0] == seen.theta[row].argmax()
        assert one["rank"] == full_ranks(seen.theta)[row]
        assert one["attention"].sum() == pytest.approx(1, abs=1e-5)
        assert len(one["attention"]) == arrays.splits["test"].lengths[row]
