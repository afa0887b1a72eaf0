"""Stage A, weak sets, stage B, and what is measured and described, on toy pictures."""

from dataclasses import asdict, replace

import numpy as np
import pytest
import tiny_entailment as tiny
import torch
from oracles import entail_at_k
from sklearn.metrics import average_precision_score

from mmlib.core import engine
from mmlib.core.jobs import Job, Run
from mmlib.core.ranking import metrics, ranks_of_scores
from mmlib.papers.entailment.data.arrays import People
from mmlib.papers.entailment.method.metrics import by_people, measured, rarity, recalls
from mmlib.papers.entailment.method.retrievers import build
from mmlib.papers.entailment.method.revision import Revision, Weak, train
from mmlib.papers.entailment.run import judge, retriever, systems
from mmlib.papers.entailment.run.retriever import (
    mined,
    rank_baseline,
    some_captions,
    stage_b,
    started,
    train_and_measure,
    weak_set,
)
from mmlib.papers.entailment.run.systems import Variant

ARRAYS = tiny.arrays()
TRAIN, TEST = ARRAYS.splits["train"], ARRAYS.splits["test"]
GOLDEN = Weak.golden(TRAIN)
PLAN = tiny.BUDGET.retrieval
BOTH = ("CLIP-like, both (miner)", "dual", "both", "miner")


def job(system="CLIP-like, extra golden", family="dual", use="none", pairs="", seed=0, **more):
    row = Variant(system, family, use, pairs, **more)
    return Job("entailment", "world", "world", asdict(row), seed, asdict(tiny.BUDGET))


@pytest.fixture(autouse=True, scope="module")
def folder(tmp_path_factory):
    """Where starts, judges and mined pairs are kept for all tests here."""
    path = tmp_path_factory.mktemp("jobs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "job_folder", lambda device: path / device)
        yield path


def pairs_of(weak):
    return weak and set(zip(weak.image.tolist(), weak.caption.tolist(), strict=True))


# --- What is measured ----------------------------------------------------------------------------


def test_measures_are_loops():
    rng = np.random.default_rng(0)
    by_image, by_text = rng.normal(size=(2, 12, 24))
    found = measured(by_image, by_text, TEST)
    one, other = (metrics(ranks_of_scores(s, TEST.image_of)) for s in (by_image, by_text))
    wanted = {f"TR@{k}": one[f"i2t_r{k}"] for k in (1, 5, 10)}
    wanted |= {f"IR@{k}": other[f"t2i_r{k}"] for k in (1, 5, 10)}
    assert found["RSUM"].mean() == pytest.approx(sum(wanted.values()), abs=0.01)
    by_metric = recalls(found["hits"], captions=tiny.EACH)
    assert {name: own.mean() for name, own in by_metric.items()} == pytest.approx(wanted)
    order = np.argsort(-by_image, axis=1)
    for name, weights in (("E@10", 1), ("E@10, rarity", rarity(TEST.fits))):
        assert found[name].mean() == pytest.approx(
            entail_at_k(order, TEST.fits * weights, 10), abs=0.01
        )
    for i in range(12):
        ap = 100 * average_precision_score(TEST.fits[i], by_image[i])
        assert found["mAP"][i] == pytest.approx(ap, abs=0.01)


def test_people_judge_what_they_saw():
    values = train_and_measure(job(*BOTH), PHOTOGRAPHS).values["test"]
    assert {"RSUM", "hits", "mAP, people", "P@1, people"} == set(values)
    rng = np.random.default_rng(1)
    pairs = np.array([(i, c) for i in range(12) for c in rng.permutation(24)[:6]])
    labels, by_image = (rng.random(72) < 0.3).astype(int), rng.normal(size=(12, 24))
    found = by_people(by_image[tuple(pairs.T)], People(pairs, labels, np.zeros(12)), 12)
    for i in range(12):
        own = pairs[:, 0] == i
        score, label = by_image[i, pairs[own, 1]], labels[own]
        ap = 100 * average_precision_score(label, score) if label.any() else np.nan
        assert found["mAP, people"][i] == pytest.approx(ap, nan_ok=True)
        assert not label.any() or found["P@1, people"][i] == 100 * label[score.argmax()]


def test_equal_scores_gain_nothing_by_their_place():
    """All scores equal: a list in random order, whatever the order of texts and judgments is."""
    flat, labels = np.zeros((12, 24)), np.tile([1, 0, 0, 0, 0, 1], 12)
    pairs = np.array([(i, c) for i in range(12) for c in range(6)])
    for order in (np.arange(72), np.arange(72)[::-1]):
        found = measured(flat, flat, TEST, People(pairs[order], labels[order], np.zeros(12)))
        np.testing.assert_allclose(found["E@10"], 100 * TEST.fits.mean(axis=1), atol=0.006)
        np.testing.assert_allclose(found["P@1, people"], 100 / 3, atol=0.006)
        # The worst list: both yes at the end, at places 5 and 6.
        np.testing.assert_allclose(found["mAP, people"], 100 * (1 / 5 + 2 / 6) / 2, atol=0.006)


def test_rankings_without_a_training():
    def ranked(baseline):
        row = {"system": "s", "baseline": baseline}
        return rank_baseline(Job("entailment", "world", "world", row, 1), ARRAYS).values["test"]

    shortest = TEST.lengths == 1
    assert shortest.sum() >= 10  # so that any of them may be among the first ten
    hit = 100 * TEST.fits[:, shortest].mean(axis=1)
    np.testing.assert_allclose(ranked("shortest")["E@10"], hit, atol=0.01)
    assert (ranked("truth")["mAP"] == 100).all()
    assert ranked("truth")["RSUM"].mean() > ranked("random")["RSUM"].mean()


# --- Stage A and weak sets -----------------------------------------------------------------------


def test_all_variants_of_a_seed_go_on_from_the_same_start(folder):
    first, before = started(job(), ARRAYS), len(list(folder.rglob("*.*")))
    for use, family in (("exclusion", "dual"), ("none", "triplet"), ("both", "dual")):
        again = started(job("x", family, use, "all"), ARRAYS)
        assert all(torch.equal(first[name], again[name]) for name in first)
    assert len(list(folder.rglob("*.*"))) == before
    start = replace(job(seed=1), system=asdict(Variant("CLIP-like, start", "dual", "start")))
    answer = train_and_measure(start, ARRAYS)  # what stage A measures is where stage B starts
    assert len(list(folder.rglob("*.*"))) == before + 1
    other = started(job(seed=1), ARRAYS)
    assert any(not torch.equal(first[name], other[name]) for name in first)
    assert {n.split(".")[0] for n in started(job("y", "align"), ARRAYS)} >= {"cross", "matched"}
    model = build("dual", PLAN, ARRAYS.images, len(ARRAYS.words))
    model.load_state_dict(other)
    own = measured(*model.rank(*TEST.tensors(ARRAYS.images)), TEST)
    np.testing.assert_array_equal(answer.values["test"]["RSUM"], own["RSUM"])
    assert len(answer.history) == PLAN.stage_a["dual"].epochs


def test_captions_on_either_end_of_the_dial(monkeypatch):
    monkeypatch.setattr(retriever, "SEVERAL", 1)
    often = TRAIN.fits.sum(axis=0)
    for which, best in (("general", np.max), ("rare", np.min)):
        few = some_captions(TRAIN, which)
        assert few.image_of.tolist() == list(range(len(TRAIN)))
        wanted = [best(often[TRAIN.image_of == i]) for i in range(len(TRAIN))]
        assert few.fits.sum(axis=0).tolist() == wanted
        assert all((TRAIN.fits[:, TRAIN.texts.index(text)] == few.fits[:, i]).all()
                   for i, text in enumerate(few.texts))  # fmt: skip
    assert some_captions(TRAIN, "all") is TRAIN


def test_weak_sets_are_what_they_are_called():
    pairs, margin = mined(job(), ARRAYS)
    truth = TRAIN.fits[pairs[:, 0], pairs[:, 1]]
    assert not (TRAIN.image_of[pairs[:, 1]] == pairs[:, 0]).any()
    sets = {n: weak_set(n, job(), ARRAYS, TRAIN) for n in
            ("miner", "candidates", "all", "near misses", "random")}  # fmt: skip
    every = {(i, c) for i, c in np.argwhere(TRAIN.fits).tolist() if TRAIN.image_of[c] != i}
    assert pairs_of(sets["all"]) == every
    assert pairs_of(sets["candidates"]) == set(map(tuple, pairs[truth].tolist()))
    few = weak_set("candidates", job(precision=0.5, recall=0.4), ARRAYS, TRAIN)
    some = round(0.4 * truth.sum())
    assert len(pairs_of(few)) == 2 * some
    assert len(pairs_of(few) & pairs_of(sets["candidates"])) == some
    assert pairs_of(few) < set(map(tuple, pairs.tolist()))
    assert pairs_of(sets["miner"]) == set(map(tuple, pairs[margin >= 0].tolist()))
    assert pairs_of(sets["near misses"]) <= set(map(tuple, pairs[~truth].tolist()))
    assert len(sets["near misses"]) == min((~truth).sum(), (margin >= 0).sum())
    again = weak_set("miner, again", job("x", "dual", "both", "miner, again"), ARRAYS, TRAIN)
    assert len(again)
    assert not (TRAIN.image_of[again.caption] == again.image).any()
    assert sorted(sets["random"].image) == sorted(sets["miner"].image)
    assert (TRAIN.image_of[sets["random"].caption] != sets["random"].image).all()


@pytest.mark.parametrize("many", [1, 7, 24])
def test_candidates_are_the_same_whatever_is_in_memory_at_once(monkeypatch, many):
    whole = retriever.proposed(ARRAYS)
    monkeypatch.setattr(retriever, "MANY", many)
    assert np.array_equal(retriever.proposed(ARRAYS), whole)


def test_mining_is_counted_image_by_image():
    row = Job("entailment", "world", "world", {"system": "Mining"}, 0, asdict(tiny.BUDGET))
    values = retriever.mine(row, ARRAYS).values["mined"]
    pairs, margin = mined(job(), ARRAYS)
    truth = TRAIN.fits[pairs[:, 0], pairs[:, 1]]
    for i in range(len(TRAIN)):
        own = pairs[:, 0] == i
        assert values["candidates"][i] == own.sum()
        assert values["mined"][i] == (margin[own] >= 0).sum()
        assert values["mined, true"][i] == (truth & (margin >= 0))[own].sum()
        assert values["true"][i] == TRAIN.fits[i].sum() - tiny.EACH
    assert values["overlap, true"].sum() <= min(values["mined"].sum(), truth.sum())


PHOTOGRAPHS = tiny.arrays(people=True)


@pytest.mark.parametrize(("call", "message"), [
    (lambda: weak_set("x", job(), ARRAYS, TRAIN), "no pairs 'x'"),
    (lambda: train_and_measure(job("x", "dual", "both", "all"), PHOTOGRAPHS), "no pairs 'all'"),
    (lambda: some_captions(PHOTOGRAPHS.splits["train"], "rare"), "general or rare"),
    (lambda: rank_baseline(replace(job(), system={"baseline": "x"}), ARRAYS), "no baseline 'x'"),
])  # fmt: skip
def test_what_nobody_knows_is_an_error(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# --- Stage B -------------------------------------------------------------------------------------


@pytest.mark.parametrize("use", ["none", "exclusion", "weak", "both"])
def test_each_variant_uses_its_set_as_it_says(use, monkeypatch):
    seen = []
    monkeypatch.setattr(retriever, "train", lambda *given: seen.append(given[5]) or [])
    every, fill = pairs_of(weak_set("all", job(), ARRAYS, TRAIN)), pairs_of(GOLDEN)
    stage_b(job("x", "dual", use, "all"), ARRAYS)
    stage_b(job("x", "dual", use, "all", golden=False, ratio=0.3, state="separate"), ARRAYS)
    both, plain = seen[-2:]
    wanted = (every if use in ("weak", "both") else None, fill,
              every if use in ("exclusion", "both") else None)  # fmt: skip
    assert tuple(map(pairs_of, (both.weak, both.golden, both.excluded))) == wanted
    assert (both.ratio, both.state) == (PLAN.ratio, "shared")
    assert (plain.golden, plain.ratio, plain.state) == (None, 0.3, "separate")


@pytest.mark.parametrize(("family", "use", "pairs"), [
    ("dual", "both", "miner"), ("triplet", "exclusion", "all"), ("align", "both", "miner"),
])  # fmt: skip
def test_a_variant_trains_the_same_again_and_alone_on_a_machine(
    family, use, pairs, monkeypatch, tmp_path
):
    row = job("x", family, use, pairs, scored_by_judge=use == "both")
    answer = train_and_measure(row, ARRAYS)
    values = answer.values["test"]
    assert {"RSUM", "hits", "mAP", "E@10", "E@30", "E@10, rarity"} <= values.keys()
    assert ("E@10, judge" in values) == (use == "both")
    assert {"train_loss", "weak_loss", "dev_RSUM", "dev_loss"} == answer.history[-1].keys()
    # Where nothing is kept, stage A and the judge are made on the way.
    monkeypatch.setattr(engine, "job_folder", lambda device: tmp_path)
    again = train_and_measure(row, ARRAYS, Run(checkpoint=tmp_path / "b.pt")).values["test"]
    for name in values:
        assert len(values[name]) == len(TEST)
        np.testing.assert_array_equal(values[name], again[name])


def test_the_judge_grades_what_is_found_and_own_captions_are_right(monkeypatch):
    monkeypatch.setattr(retriever, "GRADED", 3)
    model, _ = stage_b(job(*BOTH), ARRAYS)
    by_image, _ = model.rank(*TEST.tensors(ARRAYS.images))
    values = train_and_measure(job(*BOTH, scored_by_judge=True), ARRAYS).values["test"]
    miner = retriever.miner_of(job(), ARRAYS)
    for i in range(len(TEST)):  # all, as the truth is known
        best = np.argsort(-by_image[i], kind="stable")[:10]
        yes = miner("test", np.column_stack([np.full(10, i), best])) >= 0
        right = 100 * (yes | (TEST.image_of[best] == i)).mean()
        assert values["E@10, judge"][i] == pytest.approx(right)
    unknown = replace(ARRAYS, splits={**ARRAYS.splits, "test": replace(TEST, fits=None)})
    some = train_and_measure(job(*BOTH, scored_by_judge=True), unknown).values["test"]
    assert np.isfinite(some["E@10, judge"]).sum() == 3


def test_golden_batches_are_the_same_whatever_the_weak_set():
    """With λ = 0 the extra batches change nothing but the optimiser's own."""
    phase, states = replace(PLAN.stage_b["dual"], epochs=2), []
    for golden in (None, GOLDEN):
        torch.manual_seed(0)
        model = build("dual", PLAN, ARRAYS.images, len(ARRAYS.words))
        revision = Revision(golden=golden, ratio=0.0, state="separate")
        train(model, TRAIN, phase, 0, lambda epoch: ARRAYS.images, revision)
        states.append(model.state_dict())
    assert all(torch.equal(states[0][n], states[1][n]) for n in states[0])


class Stopped(Exception):
    """As by Ctrl-C, after an epoch."""


@pytest.mark.parametrize(("family", "state"), [("dual", "separate"), ("align", "shared")])
def test_a_stopped_stage_goes_on_from_its_last_epoch(family, state, tmp_path):
    """With the weights and figures, to the bit, of a training that was not stopped."""
    phases = dict.fromkeys(("dual", "triplet", "align"), replace(tiny.PHASE, epochs=3))
    settings = asdict(replace(tiny.BUDGET, retrieval=replace(PLAN, stage_a=phases, stage_b=phases)))
    for stage in (retriever.stage_a, stage_b):
        row = replace(job("x", family, "both", "all", state=state), settings=settings)
        model, history = stage(row, ARRAYS)
        checkpoint, epochs = tmp_path / f"{stage.__name__}.pt", []

        def stop(curve, epochs=epochs):
            epochs.append(len(curve))
            if len(curve) == 1:
                raise Stopped

        with pytest.raises(Stopped):
            stage(row, ARRAYS, Run(checkpoint=checkpoint, after_epoch=stop))
        again, resumed = stage(row, ARRAYS, Run(checkpoint=checkpoint, after_epoch=stop))
        assert epochs == [1, 2, 3]
        assert resumed == history
        for name, value in model.state_dict().items():
            assert torch.equal(value, again.state_dict()[name]), name


def test_pairs_and_images_of_tests_are_described():
    described, pairs = judge.describe_pairs(None, ARRAYS).values, ARRAYS.tests["edits"]
    numbers = [systems.ORIGINS.index(origin) for origin in pairs.about]
    wanted = {"label": pairs.samples.label, "weight": pairs.weights, "kind": numbers}
    for metric, column in wanted.items():
        assert described["edits"][metric].tolist() == list(column)
    foreign = TEST.fits.sum(axis=1) - tiny.EACH
    assert described["test"]["foreign true"].tolist() == foreign.tolist()
