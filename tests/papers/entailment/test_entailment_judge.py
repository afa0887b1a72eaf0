"""Batches against loops over single samples; inputs, calibration, and the job of one judge."""

from dataclasses import asdict, replace
from functools import wraps
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import tiny_entailment as tiny
import torch
from drawn import few
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from mmlib.core import engine
from mmlib.core.errors import DataError
from mmlib.core.jobs import Job, Run
from mmlib.core.records import Samples
from mmlib.data.overlap import Weights, overlap_parts, stems
from mmlib.features.words import TokenStates, Words
from mmlib.papers.entailment.data.arrays import RUN, encode, shuffled_batches
from mmlib.papers.entailment.method import calibration
from mmlib.papers.entailment.method.classifier import load_pretrained
from mmlib.papers.entailment.method.metrics import best_threshold
from mmlib.papers.entailment.run import judge, systems
from mmlib.papers.entailment.run.judge import training_rows
from mmlib.papers.entailment.run.systems import Judge

PAD, CLS, SEP, UNKNOWN = 0, 1, 2, 3  # as in the docstrings; not taken from the code under test
DELTA = {"te": (1, 0, 0), "ve": (0, 1, 0), "mme": (1, 1, 1)}
VOCABULARY = ("dog", "cat", "runs", "sleeps", "a", "red", ".")
IMAGES = np.random.default_rng(0).normal(size=(6, 3, 4))
ARRAYS = tiny.arrays()


# --- Batches -------------------------------------------------------------------------------------


def samples_of(seed, n=9):
    """Samples of all kinds with texts of 1 to 9 words, a few of them unknown."""
    rng = np.random.default_rng(seed)
    kinds = tuple(rng.choice(["te", "ve", "mme"], n))
    texts = [" ".join(rng.choice([*VOCABULARY, "zebra"], int(rng.integers(1, 10))))
             for _ in range(2 * n)]  # fmt: skip
    return Samples(
        premise=tuple("" if k == "ve" else text for k, text in zip(kinds, texts, strict=False)),
        hypothesis=tuple(texts[n:]),
        image=np.array([-1 if kind == "te" else rng.integers(6) for kind in kinds]),
        label=rng.integers(0, 2, n), kind=kinds, source=("toy",) * n, group=("toy",) * n,
    )  # fmt: skip


def numbers(text):
    return [4 + VOCABULARY.index(w) if w in VOCABULARY else UNKNOWN for w in text.split()]


@few
@given(st.integers(0, 2**31), st.integers(1, 9), st.integers(1, 9), st.booleans())
def test_a_batch_is_the_loop_over_single_samples(seed, most, short, letters):
    """Also: rows in any order and twice, pads, kinds of tokens, cut texts, the black image."""
    samples = samples_of(seed)
    by_letter = SimpleNamespace(ids=lambda text: [4 + ord(letter) for letter in text])
    pair = by_letter if letters else Words(VOCABULARY)
    rows = np.random.default_rng(seed).integers(0, 9, 5)
    batch = encode(samples, pair, Words(VOCABULARY), most, short).batch(rows, IMAGES)
    read, longest = pair.ids if letters else numbers, [0, 0]
    for at, row in enumerate(rows):
        first = [CLS, *read(samples.premise[row])[:most], SEP]
        second = [*read(samples.hypothesis[row])[:short], SEP]
        words = [CLS, *numbers(samples.hypothesis[row])[:short], SEP]
        for k, (ids, wanted) in enumerate(((batch.pair[at], first + second),
                                           (batch.words[at], words))):  # fmt: skip
            longest[k] = max(longest[k], len(wanted))
            left = len(ids) - len(wanted)
            mask = (batch.words_mask if k else batch.pair_mask)[at].tolist()
            assert ids.tolist() == wanted + [PAD] * left
            assert mask == [1] * len(wanted) + [0] * left
        types = [0] * len(first) + [1] * len(second)
        assert batch.pair_type[at].tolist()[: len(types)] == types
        picture = np.zeros((3, 4)) if samples.kind[row] == "te" else IMAGES[samples.image[row]]
        assert np.array_equal(batch.images[at].numpy(), picture.astype(np.float32))
        assert batch.labels[at] == samples.label[row]
        assert tuple(batch.counted[at].tolist()) == DELTA[samples.kind[row]]
    assert [batch.pair.shape[1], batch.words.shape[1]] == longest
    assert {value.dtype for value in vars(batch).values()} == {torch.int64, torch.float32}


def test_every_sample_counts_for_a_single_stream():
    """Its one loss is that of all kinds; of the others the indicators of equation 12 decide."""
    plan = tiny.BUDGET.judge.classifier
    counted = ARRAYS.encoded(ARRAYS.train, plan).counted
    assert counted.tolist() == [list(DELTA[kind]) for kind in ARRAYS.train.samples.kind]
    assert (ARRAYS.encoded(ARRAYS.train, replace(plan, model="single")).counted == 1).all()


@few
@given(st.integers(0, 500), st.integers(1, 40), st.integers(0, 2**31))
def test_every_row_is_in_one_batch(n, size, seed):
    lengths = np.random.default_rng(seed).integers(1, 90, n)
    batches, again = ([rows.tolist() for rows in shuffled_batches(lengths, size, rng)]
                      for rng in map(np.random.default_rng, (seed, seed)))  # fmt: skip
    assert sorted(row for rows in batches for row in rows) == list(range(n))
    assert len(batches) == -(-n // size)
    assert sum(len(rows) != size for rows in batches) == (n % size > 0)
    assert again == batches


def test_rows_of_one_length_come_together_but_in_random_order():
    """In runs of `RUN` batches, so that rows far apart in a longer set meet."""
    lengths = np.random.default_rng(0).integers(1, 90, 8 * RUN)
    batches = list(shuffled_batches(lengths, 8, np.random.default_rng(1)))
    ranges = [(lengths[rows].min(), lengths[rows].max()) for rows in batches]
    assert ranges != sorted(ranges)
    assert all(above <= below for (_, above), (below, _) in pairwise(sorted(ranges)))
    equal = np.full(4 * 3 * RUN, 7)
    spans = [np.ptp(rows) for rows in shuffled_batches(equal, 4, np.random.default_rng(0))]
    assert np.mean(spans) > len(equal) / 3


# --- Inputs and calibration ----------------------------------------------------------------------


def test_inputs_by_hand():
    texts = {"a dog": 0, "a red dog runs": 1, "a ball": 2}
    vectors, image = np.array([[1, 0], [0.6, 0.8], [0, 1]]), np.array([[0.8, 0.6]])
    weights, merged = Weights([["a dog"], ["a ball"]]), {"A dog. A ball.": ("a dog", "a ball")}
    states = np.array([[2, 0], [0, 3], [0, 1], [0.6, 0.8]])  # dog; ball; red, dog
    tokens = TokenStates(["a dog", "a ball", "a red dog runs"], states, np.array([1, 1, 2]), merged)
    frozen = calibration.Frozen(texts, vectors, vectors, image, weights, merged, tokens)
    samples = Samples(
        ("A dog. A ball.", "", "a dog"), ("a red dog runs",) * 3, np.array([0, 0, -1]),
        np.zeros(3, int), ("mme", "ve", "te"), ("x",) * 3, ("x",) * 3,
    )  # fmt: skip
    inputs = frozen.inputs(samples)
    overlap = overlap_parts(("a dog", "a ball"), "a red dog runs", weights)
    says = sum(weights[stem] for stem in stems("a red dog runs"))
    # The tokens: of the hypothesis (0, 1) and (0.6, 0.8), of the premise (1, 0) and (0, 1).
    matched = [(1 + 0.8) / 2, 0.8, (0.6 + 1) / 2]
    np.testing.assert_allclose(inputs[0], [*overlap, 0.8, 0.7, 0.96, says, *matched], rtol=1e-6)
    assert np.flatnonzero(np.isfinite(inputs[1])).tolist() == [4, 5]
    assert np.flatnonzero(np.isnan(inputs[2])).tolist() == [4]
    assert inputs[2, 2] == inputs[2, 3] == pytest.approx(0.6)
    raw = np.array([[1.0, np.nan], [3.0, 5.0], [5.0, 7.0]])
    scaled = calibration.Scale.of(raw)(raw)
    np.testing.assert_allclose(scaled[:, 0], (raw[:, 0] - 3) / np.std([1, 3, 5]), rtol=1e-5)
    assert scaled[0, 1] == 0  # what is unknown becomes the mean


def test_the_regression_is_scikit_learns():
    rng = np.random.default_rng(0)
    x, counts = rng.normal(size=(300, 3)), rng.integers(1, 4, 300)
    y = (x @ [1, -2, 0.5] + rng.logistic(size=300) > 1).astype(int)
    wanted = LogisticRegression(C=1.0, tol=1e-10, max_iter=1000).fit(x, y, counts)
    weights = calibration.logistic(x, y, counts)
    np.testing.assert_allclose(weights, [*wanted.intercept_, *wanted.coef_[0]], atol=1e-4)


@pytest.mark.parametrize("columns", [(), calibration.ALL_INPUTS, (4, 5)])
def test_a_margin_is_that_of_the_regression_less_the_best_threshold(columns):
    own = ARRAYS.calibration
    deep = own.samples.label + np.random.default_rng(1).normal(size=len(own))
    raw = deep
    if columns:
        x = np.column_stack([own.given[:, columns], deep])
        w = calibration.logistic(x, own.samples.label, own.weights)
        raw = w[0] + x @ w[1:]
    margin = calibration.Calibration.fit(own, deep, columns).margin(deep, own.given)
    wanted = raw - best_threshold(own.samples.label, raw, own.weights)
    np.testing.assert_allclose(margin, wanted, atol=1e-6)


@pytest.mark.parametrize("which", ["overlap", "random", "regression", *calibration.INPUTS])
def test_baselines_keep_the_order_of_what_they_know(which):
    own = ARRAYS.tests["candidates"]
    margin = calibration.baseline_margin(ARRAYS, which, own.given)
    raw = own.given * ARRAYS.scale.deviation + ARRAYS.scale.mean
    known = {"overlap": raw[:, 0] + raw[:, 1], **dict(zip(calibration.INPUTS, raw.T, strict=True))}
    if which in known:
        np.testing.assert_allclose(np.diff(margin), np.diff(known[which]), atol=1e-6)
    row = Job("entailment", "world", "world", {"system": "o", "baseline": which}, -1)
    recorded = judge.score_baseline(row, ARRAYS).values["candidates"]["margin"]
    np.testing.assert_array_equal(recorded, calibration.rounded(100 * margin) / 100)
    with pytest.raises(ValueError, match="no baseline 'guess'"):
        calibration.baseline_margin(ARRAYS, "guess", own.given)


# --- Training ------------------------------------------------------------------------------------


def job(system="Full", seed=0, **changes):
    row = replace(systems.full("world"), system=system, **changes)
    return Job("entailment", "world", "world", asdict(row), seed, asdict(tiny.BUDGET))


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """The answers of two seeds, whose weights are kept in a folder for all tests here."""
    folder = tmp_path_factory.mktemp("jobs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "job_folder", lambda device: folder / device)
        yield [judge.train_and_score(job(seed=seed), ARRAYS) for seed in (0, 1)], folder / "cpu"


def test_rows_of_a_judge_have_its_kinds_and_sources():
    chosen = Judge("x", kinds="te, mme", without="own caption, candidate")
    own = ARRAYS.train.samples
    assert training_rows(ARRAYS.train, chosen).tolist() == [
        i for i in range(len(own)) if own.kind[i] in ("te", "mme") and own.source[i] == "world"
    ]
    kinds = np.array(own.kind)[training_rows(ARRAYS.train, Judge("x", mme_share=0.3))]
    assert (kinds == "ve").sum() == own.kind.count("ve")
    assert 0 < (kinds == "mme").sum() < 0.6 * own.kind.count("mme")


def test_pretrained_weights_go_where_a_model_has_their_names():
    model = torch.nn.ModuleDict({"a_embeddings": torch.nn.Embedding(3, 2),
                                 "b": torch.nn.Linear(2, 3)})  # fmt: skip
    before = model.b.weight.detach().clone()
    weights = {"a_embeddings.weight": torch.ones(2, 2), "b.weight": torch.ones(2, 2),
               "b.bias": torch.ones(3), "c": torch.ones(1)}  # fmt: skip
    assert load_pretrained(model, weights) == {"a_embeddings.weight", "b.bias"}
    assert (model.a_embeddings.weight[:2] == 1).all()
    assert not (model.a_embeddings.weight[2] == 1).any()
    assert model.b.weight.equal(before)
    with pytest.raises(DataError, match=r"none of 1 .* b.weight is \(2, 2\) and not \(3, 2\)"):
        load_pretrained(model, {"b.weight": torch.ones(2, 2)})


def test_a_judge_trained_apart_takes_kinds_one_after_another(monkeypatch):
    seen = []
    monkeypatch.setattr(judge, "step_loss", lambda model, batch: (
        seen.append({tuple(row) for row in batch.counted.tolist()}),
        sum(p.sum() for p in model.parameters()),
    )[1])  # fmt: skip
    judge.train(job("Separate", sequential=True), ARRAYS)
    third = tiny.BUDGET.judge.steps // 3
    assert seen == [{DELTA[kind]} for kind in DELTA for _ in range(third)]


def test_a_judge_answers_every_pair_by_network_and_inputs(kept):
    answer, other = kept[0]
    assert answer.values.keys() == ARRAYS.tests.keys()
    for name, own in answer.values.items():
        assert own.keys() == {"alone", "margin"}
        assert all(np.isfinite(v).all() and len(v) == len(ARRAYS.tests[name]) for v in own.values())
    assert len(answer.history) == judge.EPOCHS
    assert answer.history[-1].keys() == {"train_loss", "dev_loss"}
    margins = [one.values["candidates"]["margin"] for one in (answer, other)]
    assert (margins[0] != margins[1]).any()


@pytest.mark.parametrize(
    "changes",
    [{"model": "te", "kinds": "te, mme"}, {"model": "ve", "clean": True}, {"model": "single"},
     {"text": "shared"}, {"output": "sigmoid"}, {"masked": 0}],
    ids=str,
)  # fmt: skip
def test_every_row_trains(kept, changes):
    answer = judge.train_and_score(job("row", **changes), ARRAYS)
    assert np.isfinite(answer.values["edits"]["margin"]).all()


def test_the_merged_branch_answers_and_branches_alone_read_their_inputs_alone(kept):
    pairs, model = ARRAYS.tests["edits"], judge.trained(job(), ARRAYS)
    encoded = ARRAYS.encoded(pairs, model.settings)
    with torch.no_grad():
        logits = model(encoded.batch(np.arange(len(pairs)), ARRAYS.images))["mm"]
    odds = judge.scores(model, encoded, ARRAYS.images)
    np.testing.assert_allclose(odds, logits[:, 1] - logits[:, 0], atol=1e-5)
    for which, of_others in (("te", [4]), ("ve", [0, 1, 2, 3, 6, 7, 8])):
        plan = replace(tiny.BUDGET.judge.classifier, model=which)
        untrained, _ = judge.fresh(Judge("x", model=which), plan, ARRAYS)
        margins, given = judge.calibrated(untrained, ARRAYS, ARRAYS.images), pairs.given.copy()
        given[:, of_others] += 1
        other, same = margins(replace(pairs, given=given)), margins(pairs)
        np.testing.assert_array_equal(other["margin"], same["margin"])


def test_a_miner_says_what_the_job_said(kept, monkeypatch, tmp_path):
    """From kept weights, and trained again where there are none: the same margins."""
    own, test = ARRAYS.tests["candidates"].samples, ARRAYS.splits["test"]
    position = {row: i for i, row in enumerate(test.rows)}
    asked = [i for i, text in enumerate(own.hypothesis) if text in test.texts]
    pairs = np.array([(position[own.image[i]], test.texts.index(own.hypothesis[i])) for i in asked])
    first = judge.miner(job(), ARRAYS)("test", pairs)
    recorded = kept[0][0].values["candidates"]["margin"]
    np.testing.assert_array_equal(calibration.rounded(first), recorded[asked])
    monkeypatch.setattr(engine, "job_folder", lambda device: tmp_path / device)
    np.testing.assert_array_equal(judge.miner(job(), ARRAYS)("test", pairs), first)


def test_weights_of_a_processor_are_not_taken_for_those_of_a_gpu(kept, monkeypatch):
    """Each kind of device has a folder of its own; without weights there, the judge is trained."""
    trained_on, train, before = [], judge.train, len(list(kept[1].iterdir()))

    @wraps(train)
    def counted(job, arrays, run):
        trained_on.append(run.device)
        return train(job, arrays, replace(run, device="cpu"))

    monkeypatch.setattr(judge, "train", counted)
    monkeypatch.setattr(judge.Classifier, "to", lambda self, device: self)
    for device in ("cpu", "cuda:0", "cuda:0", "cpu"):
        judge.trained(job(), ARRAYS, Run(device))
    assert trained_on == ["cuda:0"]
    assert len(list(kept[1].iterdir())) == before
