"""Inputs, calibration, and the job of one judge."""

from dataclasses import asdict, replace
from functools import wraps

import numpy as np
import pytest
import tiny_entailment as tiny
from sklearn.linear_model import LogisticRegression

from mmlib.core import engine
from mmlib.core.entailment_pairs import Samples
from mmlib.core.jobs import Job, Run
from mmlib.data.overlap import Weights, overlap_parts, stems
from mmlib.features.words import TokenStates
from mmlib.papers.entailment import judge, systems
from mmlib.papers.entailment.calibration import Calibration, baseline_margin, logistic, rounded
from mmlib.papers.entailment.inputs import ALL_INPUTS, INPUTS, Frozen, Scale
from mmlib.papers.entailment.judge import EPOCHS, Miner, epoch_batches, training_rows
from mmlib.papers.entailment.metrics import best_threshold
from mmlib.papers.entailment.systems import Judge
from mmlib.papers.entailment.train import score_baseline, train_and_score

ARRAYS = tiny.arrays()


def job(system="Full", seed=0, **changes):
    row = replace(systems.full("world"), system=system, **changes)
    return Job("entailment", "world", "world", asdict(row), seed, asdict(tiny.BUDGET))


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.setattr(engine, "job_folder", lambda device: tmp_path / device)
    return tmp_path / "cpu"


# --- Inputs --------------------------------------------------------------------------------------


def test_inputs_by_hand():
    texts = {"a dog": 0, "a red dog runs": 1, "a ball": 2}
    vectors = np.array([[1, 0], [0.6, 0.8], [0, 1]])
    weights = Weights([["a dog"], ["a ball"]])
    merged = {"A dog. A ball.": ("a dog", "a ball")}
    states = np.array([[2, 0], [0, 3], [0, 1], [0.6, 0.8]])  # dog; ball; red, dog
    tokens = TokenStates(["a dog", "a ball", "a red dog runs"], states, np.array([1, 1, 2]), merged)
    known = Frozen(texts, vectors, vectors, np.array([[0.8, 0.6]]), weights, merged, tokens)
    samples = Samples(
        ("A dog. A ball.", "", "a dog"), ("a red dog runs",) * 3, np.array([0, 0, -1]),
        np.zeros(3, int), ("mme", "ve", "te"), ("x",) * 3, ("x",) * 3,
    )  # fmt: skip
    got = known.inputs(samples)
    told = overlap_parts(("a dog", "a ball"), "a red dog runs", weights)
    says = sum(weights[stem] for stem in stems("a red dog runs"))
    # The tokens: of the hypothesis (0, 1) and (0.6, 0.8), of the premise (1, 0) and (0, 1).
    matched = [(1 + 0.8) / 2, 0.8, (0.6 + 1) / 2]
    np.testing.assert_allclose(got[0], [*told, 0.8, 0.7, 0.96, says, *matched], rtol=1e-6)
    assert np.flatnonzero(np.isfinite(got[1])).tolist() == [4, 5]
    assert np.flatnonzero(np.isnan(got[2])).tolist() == [4]
    assert got[2, 2] == got[2, 3] == pytest.approx(0.6)


def test_a_scale_makes_the_unknown_the_mean():
    raw = np.array([[1.0, np.nan], [3.0, 5.0], [5.0, 7.0]])
    scaled = Scale.of(raw)(raw)
    np.testing.assert_allclose(scaled[:, 0], (raw[:, 0] - 3) / np.std([1, 3, 5]), rtol=1e-5)
    assert scaled[0, 1] == 0
    assert scaled.dtype == np.float32


def test_the_regression_is_scikit_learns():
    rng = np.random.default_rng(0)
    x, counts = rng.normal(size=(300, 3)), rng.integers(1, 4, 300)
    y = (x @ [1, -2, 0.5] + rng.logistic(size=300) > 1).astype(int)
    wanted = LogisticRegression(C=1.0, tol=1e-10, max_iter=1000).fit(x, y, counts)
    got = logistic(x, y, counts)
    np.testing.assert_allclose(got, [*wanted.intercept_, *wanted.coef_[0]], atol=1e-4)


# --- Calibration ---------------------------------------------------------------------------------


def test_a_margin_is_above_0_where_f_half_is_best():
    own = ARRAYS.calibration
    deep = own.samples.label + np.random.default_rng(1).normal(size=len(own))
    for seen in ((), ALL_INPUTS, (4, 5)):
        margin = Calibration.fit(own, deep, seen).margin(deep, own.given)
        limit = best_threshold(own.samples.label, margin, own.weights)
        np.testing.assert_array_equal(margin >= 0, margin >= limit)


def test_a_network_alone_keeps_its_order_and_inputs_may_mend_it():
    own = ARRAYS.calibration
    deep = np.random.default_rng(2).normal(size=len(own))
    alone = Calibration.fit(own, deep, ()).margin(deep, own.given)
    np.testing.assert_allclose(np.diff(alone), np.diff(deep))
    both = Calibration.fit(own, deep, ALL_INPUTS).margin(deep, own.given)
    truth = own.samples.label == 1
    assert both[truth].mean() - both[~truth].mean() > alone[truth].mean() - alone[~truth].mean()


def test_rounding_calls_no_other_pair():
    margin = np.array([-0.001, 0.0, 0.009, 1.239, -1.231])
    assert rounded(margin).tolist() == [-0.01, 0.0, 0.0, 1.23, -1.24]
    np.testing.assert_array_equal(rounded(margin) >= 0, margin >= 0)


@pytest.mark.parametrize("which", ["overlap", "random", "regression", *INPUTS])
def test_baselines_keep_the_order_of_what_they_know(which):
    own = ARRAYS.tests["candidates"]
    margin = baseline_margin(ARRAYS, which, own.given)
    raw = own.given * ARRAYS.scale.deviation + ARRAYS.scale.mean
    if which in INPUTS:
        np.testing.assert_allclose(np.diff(margin), np.diff(raw[:, INPUTS.index(which)]), atol=1e-6)
    if which == "overlap":
        np.testing.assert_allclose(np.diff(margin), np.diff(raw[:, 0] + raw[:, 1]), atol=1e-6)
    again = baseline_margin(ARRAYS, which, own.given)
    np.testing.assert_array_equal(margin, again)


def test_an_unknown_baseline_is_an_error():
    with pytest.raises(ValueError, match="no baseline 'guess'"):
        baseline_margin(ARRAYS, "guess", ARRAYS.calibration.given)


# --- Training ------------------------------------------------------------------------------------


def test_rows_of_a_judge_have_its_kinds_and_sources():
    one = Judge("x", kinds="te, mme", without="own caption, candidate")
    rows = training_rows(ARRAYS.train, one)
    own = ARRAYS.train.samples
    assert {own.kind[i] for i in rows} == {"te", "mme"}
    assert {own.source[i] for i in rows} == {"world"}
    few = training_rows(ARRAYS.train, Judge("x", mme_share=0.3))
    kept = np.array(own.kind)[few]
    assert (kept == "ve").sum() == own.kind.count("ve")
    assert 0 < (kept == "mme").sum() < 0.6 * own.kind.count("mme")


def test_a_judge_trained_apart_takes_kinds_one_after_another():
    lengths = np.arange(30) % 5 + 3
    groups = [np.arange(10), np.arange(10, 20), np.arange(20, 30)]
    for part in range(EPOCHS):
        seen = np.concatenate(epoch_batches(lengths, groups, 3, 4, 0, part))
        assert set(seen) <= set(groups[part // 2].tolist())
    whole = epoch_batches(lengths, [np.arange(30)], 8, 4, 0, 0)
    assert sorted(np.concatenate(whole)) == list(range(30))


def test_a_judge_answers_every_pair_by_every_branch(folder):
    answer = train_and_score(job(), ARRAYS)
    assert answer.values.keys() == ARRAYS.tests.keys()
    for name, own in answer.values.items():
        assert own.keys() == {"alone", "alone, TE", "alone, VE", "margin"}
        assert all(np.isfinite(v).all() and len(v) == len(ARRAYS.tests[name]) for v in own.values())
    assert len(answer.history) == EPOCHS
    assert answer.history[-1].keys() == {"train_loss", "dev_loss"}
    again = train_and_score(job(), ARRAYS)
    np.testing.assert_array_equal(
        again.values["candidates"]["margin"], answer.values["candidates"]["margin"]
    )
    other = train_and_score(job(seed=1), ARRAYS)
    assert (other.values["candidates"]["margin"] != answer.values["candidates"]["margin"]).any()


@pytest.mark.parametrize(
    "changes",
    [{"model": "te", "kinds": "te, mme"}, {"model": "ve", "clean": True}, {"model": "single"},
     {"text": "shared"}, {"output": "sigmoid"}, {"sequential": True}, {"masked": 0}],
    ids=str,
)  # fmt: skip
def test_every_row_trains(folder, changes):
    answer = train_and_score(job("row", **changes), ARRAYS)
    assert np.isfinite(answer.values["edits"]["margin"]).all()


def test_a_miner_says_what_the_job_said(folder):
    """From kept weights, and trained again where they are gone: the same margins."""
    own = ARRAYS.tests["candidates"].samples
    test = ARRAYS.splits["test"]
    told = train_and_score(job(), ARRAYS).values["candidates"]["margin"]
    place = {row: i for i, row in enumerate(test.rows)}
    known = [i for i, text in enumerate(own.hypothesis) if text in test.texts]
    pairs = np.array([(place[own.image[i]], test.texts.index(own.hypothesis[i])) for i in known])
    first = Miner.of(job(), ARRAYS).margin("test", pairs)
    np.testing.assert_array_equal(rounded(first), told[known])
    for file in folder.iterdir():
        file.unlink()
    np.testing.assert_array_equal(Miner.of(job(), ARRAYS).margin("test", pairs), first)


def test_weights_of_a_processor_are_not_taken_for_those_of_a_gpu(folder, monkeypatch):
    """Each kind of device has a folder of its own; without weights there, the judge is trained."""
    trained_on, train = [], judge.train

    @wraps(train)
    def counted(job, arrays, run):
        trained_on.append(run.device)
        return train(job, arrays, replace(run, device="cpu"))

    monkeypatch.setattr(judge, "train", counted)
    monkeypatch.setattr(judge.Classifier, "to", lambda self, device: self)
    train_and_score(job(), ARRAYS)
    for device in ("cpu", "cuda:0", "cuda:0", "cpu"):
        judge.trained(job(), ARRAYS, Run(device))
    assert trained_on == ["cpu", "cuda:0"]
    assert len(list(folder.iterdir())) == 1


def test_baselines_answer_as_judges_do():
    row = Job("entailment", "world", "world", {"system": "o", "baseline": "overlap"}, -1)
    values = score_baseline(row, ARRAYS).values
    assert values.keys() == ARRAYS.tests.keys()
    assert all(own.keys() == {"margin"} for own in values.values())
