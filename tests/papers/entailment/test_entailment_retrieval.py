"""Stage A, weak sets, stage B, and what is measured, on toy pictures."""

from dataclasses import asdict, replace

import numpy as np
import pytest
import tiny_entailment as tiny
import torch
from sklearn.metrics import average_precision_score

from mmlib.core import engine
from mmlib.core.jobs import Job, Run
from mmlib.core.ranking import metrics, ranks_of_scores
from mmlib.papers.entailment import retrieval, systems
from mmlib.papers.entailment.batches import People
from mmlib.papers.entailment.metrics import by_people, entail_at_k, measured, rarity, recalls
from mmlib.papers.entailment.retrieval import (
    Revision,
    mined,
    revision_of,
    some_captions,
    stage_a,
    stage_b,
    started,
    train,
    weak_set,
)
from mmlib.papers.entailment.retrievers import build
from mmlib.papers.entailment.revision import Weak
from mmlib.papers.entailment.systems import Variant
from mmlib.papers.entailment.train import mine, rank_baseline, train_and_measure

ARRAYS = tiny.arrays()
TRAIN, TEST = ARRAYS.splits["train"], ARRAYS.splits["test"]
GOLDEN = Weak(TRAIN.image_of, np.arange(len(TRAIN.texts)))
PLAN = tiny.BUDGET.retrieval


def job(system="CLIP-like, extra golden", family="dual", use="none", pairs="", seed=0, **more):
    row = Variant(system, family, use, pairs, **more)
    return Job("entailment", "world", "world", asdict(row), seed, asdict(tiny.BUDGET))


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setattr(engine, "job_folder", lambda device: tmp_path / device)
    return tmp_path / "cpu"


# --- What is measured ----------------------------------------------------------------------------


def scores(seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(12, 24)), rng.normal(size=(12, 24))


def test_measures_are_loops():
    by_image, by_text = scores()
    found = measured(by_image, by_text, TEST)
    one, other = (metrics(ranks_of_scores(s, TEST.image_of)) for s in (by_image, by_text))
    wanted = {f"TR@{k}": one[f"i2t_r{k}"] for k in (1, 5, 10)}
    wanted |= {f"IR@{k}": other[f"t2i_r{k}"] for k in (1, 5, 10)}
    assert found["RSUM"].mean() == pytest.approx(sum(wanted.values()), abs=0.01)
    each = recalls(found["hits"], captions=tiny.EACH)
    assert {name: own.mean() for name, own in each.items()} == pytest.approx(wanted)
    order = np.argsort(-by_image, axis=1)
    assert found["E@10"].mean() == pytest.approx(entail_at_k(order, TEST.fits, 10), abs=0.01)
    weighed = TEST.fits * rarity(TEST.fits)
    assert found["E@10, rarity"].mean() == pytest.approx(entail_at_k(order, weighed, 10), abs=0.01)
    for i in range(12):
        ap = 100 * average_precision_score(TEST.fits[i], by_image[i])
        assert found["mAP"][i] == pytest.approx(ap, abs=0.01)


def test_people_judge_what_they_saw():
    rng = np.random.default_rng(1)
    pairs = np.array([(i, c) for i in range(12) for c in rng.permutation(24)[:6]])
    labels = (rng.random(72) < 0.3).astype(int)
    by_image = rng.normal(size=(12, 24))
    told = People(pairs, labels, np.zeros(12))
    found = by_people(by_image[pairs[:, 0], pairs[:, 1]], told, 12)
    for i in range(12):
        own = pairs[:, 0] == i
        score, label = by_image[i, pairs[own, 1]], labels[own]
        if not label.any():
            assert np.isnan(found["mAP, people"][i])
            continue
        assert found["mAP, people"][i] == pytest.approx(100 * average_precision_score(label, score))
        assert found["P@1, people"][i] == 100 * label[score.argmax()]


def test_equal_scores_gain_nothing_by_their_place():
    """All scores equal: a list in random order, whatever the order of texts and judgments is."""
    flat = np.zeros((12, 24))
    pairs = np.array([(i, c) for i in range(12) for c in range(6)])
    labels = np.tile([1, 0, 0, 0, 0, 1], 12)
    for order in (np.arange(72), np.arange(72)[::-1]):
        people = People(pairs[order], labels[order], np.zeros(12))
        found = measured(flat, flat, TEST, people)
        np.testing.assert_allclose(found["E@10"], 100 * TEST.fits.mean(axis=1), atol=0.006)
        np.testing.assert_allclose(found["P@1, people"], 100 / 3, atol=0.006)
        # The worst list: both yes at the end, at places 5 and 6.
        np.testing.assert_allclose(found["mAP, people"], 100 * (1 / 5 + 2 / 6) / 2, atol=0.006)


def test_a_row_that_never_looks_gives_every_image_the_same_texts():
    row = Job("entailment", "world", "world", {"system": "s", "baseline": "shortest"}, -1)
    short = rank_baseline(row, ARRAYS).values["test"]
    shortest = TEST.lengths == 1
    assert shortest.sum() >= 10  # so that any of them may be among the first ten
    hit = TEST.fits[:, shortest]
    np.testing.assert_allclose(short["E@10"], 100 * hit.mean(axis=1), atol=0.01)
    truth = rank_baseline(replace(row, system={"system": "t", "baseline": "truth"}), ARRAYS)
    assert (truth.values["test"]["mAP"] == 100).all()
    chance = rank_baseline(
        replace(row, system={"system": "r", "baseline": "random"}, seed=1), ARRAYS
    )
    assert truth.values["test"]["RSUM"].mean() > chance.values["test"]["RSUM"].mean()
    with pytest.raises(ValueError, match="no baseline"):
        rank_baseline(replace(row, system={"system": "x", "baseline": "x"}), ARRAYS)


# --- Stage A -------------------------------------------------------------------------------------


def test_stage_a_is_redrawn_by_the_seed_and_kept():
    one, again, other = (started(job(seed=s), ARRAYS) for s in (0, 0, 1))
    assert all(torch.equal(one[n], again[n]) for n in one)
    assert any(not torch.equal(one[n], other[n]) for n in one)


def test_all_variants_of_a_seed_go_on_from_the_same_start(folder):
    for use, family in (("exclusion", "dual"), ("none", "triplet"), ("both", "dual")):
        started(job("x", family, use, "all"), ARRAYS)
    assert len(list(folder.iterdir())) == 1
    grown = started(job("y", "align"), ARRAYS)
    assert {n.split(".")[0] for n in grown} >= {"cross", "matched", "image", "words"}
    assert len(list(folder.iterdir())) == 2


def test_what_stage_a_measures_is_where_stage_b_starts():
    start = replace(job(), system=asdict(Variant("CLIP-like, start", "dual", "start")))
    answer = train_and_measure(start, ARRAYS)
    model = build("dual", PLAN, ARRAYS.images, len(ARRAYS.words))
    model.load_state_dict(started(job(), ARRAYS))
    own = measured(*model.rank(*TEST.tensors(ARRAYS.images)), TEST)
    np.testing.assert_array_equal(answer.values["test"]["RSUM"], own["RSUM"])
    assert len(answer.history) == PLAN.stage_a["dual"].epochs


def test_captions_on_either_end_of_the_dial():
    often = TRAIN.fits.sum(axis=0)
    general, rare = (replace_several(which) for which in ("general", "rare"))
    for i in range(len(TRAIN)):
        own = TRAIN.image_of == i
        assert often_of(general, i) == often[own].max()
        assert often_of(rare, i) == often[own].min()
    assert some_captions(TRAIN, "all") is TRAIN
    with pytest.raises(ValueError, match="general or rare"):
        some_captions(replace(TRAIN, fits=None), "rare")


def replace_several(which):
    several, retrieval.SEVERAL = retrieval.SEVERAL, 1
    try:
        return some_captions(TRAIN, which)
    finally:
        retrieval.SEVERAL = several


def often_of(split, image):
    return split.fits.sum(axis=0)[split.image_of == image].item()


# --- Weak sets -----------------------------------------------------------------------------------


def pairs_of(weak):
    return set(zip(weak.image.tolist(), weak.caption.tolist(), strict=True))


def test_weak_sets_are_what_they_are_called():
    pairs, margin = mined(job(), ARRAYS)
    own, truth = TRAIN.image_of[pairs[:, 1]] == pairs[:, 0], TRAIN.fits[pairs[:, 0], pairs[:, 1]]
    assert not own.any()
    sets = {n: weak_set(n, job(), ARRAYS, TRAIN) for n in
            ("miner", "candidates", "all", "rare", "near misses", "random")}  # fmt: skip
    every = {(i, c) for i, c in np.argwhere(TRAIN.fits).tolist() if TRAIN.image_of[c] != i}
    assert pairs_of(sets["all"]) == every
    assert pairs_of(sets["candidates"]) == set(map(tuple, pairs[truth].tolist()))
    assert pairs_of(sets["miner"]) == set(map(tuple, pairs[margin >= 0].tolist()))
    assert pairs_of(sets["rare"]) <= every
    assert not pairs_of(sets["near misses"]) & every
    assert len(sets["near misses"]) == min((~truth).sum(), (margin >= 0).sum())
    assert sorted(sets["random"].image) == sorted(sets["miner"].image)
    assert (TRAIN.image_of[sets["random"].caption] != sets["random"].image).all()
    with pytest.raises(ValueError, match="no pairs 'x'"):
        weak_set("x", job(), ARRAYS, TRAIN)


def test_each_variant_uses_its_set_as_it_says():
    every = pairs_of(weak_set("all", job(), ARRAYS, TRAIN))
    fill = pairs_of(GOLDEN)
    uses = {"none": (None, fill, None), "exclusion": (None, fill, every),
            "weak": (every, fill, None), "both": (every, fill, every)}  # fmt: skip
    for use, wanted in uses.items():
        got = revision_of(Variant("x", "dual", use, "all"), job(), ARRAYS, TRAIN)
        sets = (got.weak, got.golden, got.excluded)
        assert tuple(None if one is None else pairs_of(one) for one in sets) == wanted
        assert (got.ratio, got.state) == (PLAN.ratio, "shared")
    plain = Variant("x", "dual", golden=False, ratio=0.3, state="separate")
    assert revision_of(plain, job(), ARRAYS, TRAIN) == Revision(ratio=0.3, state="separate")


def test_mining_is_counted_image_by_image():
    row = Job("entailment", "world", "world", {"system": "Mining"}, 0, asdict(tiny.BUDGET))
    values = mine(row, ARRAYS).values["mined"]
    pairs, margin = mined(job(), ARRAYS)
    assert values["candidates"].sum() == len(pairs)
    assert values["mined"].sum() == (margin >= 0).sum()
    truth = TRAIN.fits[pairs[:, 0], pairs[:, 1]]
    assert values["mined, true"].sum() == (truth & (margin >= 0)).sum()
    assert values["true"].sum() == len(weak_set("all", job(), ARRAYS, TRAIN))
    assert values["overlap, true"].sum() <= min(values["mined"].sum(), truth.sum())
    assert (values["mined, true"] <= values["candidates, true"]).all()


# --- Stage B -------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["dual", "triplet", "align"])
@pytest.mark.parametrize(("use", "pairs"), [("none", ""), ("exclusion", "all"), ("both", "miner")])
def test_every_variant_trains(family, use, pairs):
    answer = train_and_measure(job("x", family, use, pairs, scored_by_judge=use == "both"), ARRAYS)
    values = answer.values["test"]
    assert {"RSUM", "hits", "mAP", "E@10", "E@30", "E@10, rarity"} <= values.keys()
    assert ("E@10, judge" in values) == (use == "both")
    assert all(len(own) == len(TEST) for own in values.values())
    assert {"train_loss", "weak_loss", "dev_RSUM", "dev_loss"} == answer.history[-1].keys()


def test_the_same_job_gives_the_same_figures():
    row = job("x", "align", "both", "all")
    one, again = (train_and_measure(row, ARRAYS).values["test"] for _ in range(2))
    for name in one:
        np.testing.assert_array_equal(one[name], again[name])


def test_golden_batches_are_the_same_whatever_the_weak_set():
    """With λ = 0 the extra batches change nothing but the optimiser's own."""
    phase = replace(PLAN.stage_b["dual"], epochs=2)
    found = []
    for golden in (None, GOLDEN):
        torch.manual_seed(0)
        model = build("dual", PLAN, ARRAYS.images, len(ARRAYS.words))
        revision = Revision(golden=golden, ratio=0.0, state="separate")
        train(model, TRAIN, phase, 0, lambda epoch: ARRAYS.images, revision)
        found.append(model.state_dict())
    assert all(torch.equal(found[0][n], found[1][n]) for n in found[0])


def test_a_loss_that_is_no_number_is_an_error():
    model = build("dual", PLAN, ARRAYS.images, len(ARRAYS.words))
    with torch.no_grad():
        model.to_text.weight.fill_(torch.nan)
    with pytest.raises(FloatingPointError, match="epoch 1"):
        train(model, TRAIN, PLAN.stage_b["dual"], 0, lambda epoch: ARRAYS.images)


def test_stage_a_and_the_judge_are_made_where_they_are_missing(folder):
    """A job alone on a machine: nothing kept, everything made, the same answer."""
    row = job("x", "dual", "both", "miner", scored_by_judge=True)
    one = train_and_measure(row, ARRAYS).values["test"]
    for file in folder.iterdir():
        file.unlink()
    again = train_and_measure(row, ARRAYS).values["test"]
    for name in one:
        np.testing.assert_array_equal(one[name], again[name])
    model, history = stage_a(job(), ARRAYS)
    assert model.state_dict().keys() == started(job(), ARRAYS).keys()
    assert len(history) == 1


class Stopped(Exception):
    """As by Ctrl-C, after an epoch."""


@pytest.mark.parametrize("stage", [stage_a, stage_b], ids=["A", "B"])
@pytest.mark.parametrize("family", ["dual", "triplet", "align"])
def test_a_stopped_stage_goes_on_from_its_last_epoch(stage, family, tmp_path):
    """With the weights and figures, to the bit, of a training that was not stopped."""
    phases = dict.fromkeys(("dual", "triplet", "align"), replace(tiny.PHASE, epochs=3))
    plan = replace(PLAN, stage_a=phases, stage_b=phases)
    settings = asdict(replace(tiny.BUDGET, retrieval=plan))
    for state in ("shared", "separate"):
        row = replace(job("x", family, "both", "all", state=state), settings=settings)
        model, history = stage(row, ARRAYS)
        checkpoint, epochs = tmp_path / f"{state}.pt", []

        def stop(curve, epochs=epochs):
            epochs.append(len(curve))
            if len(curve) == 1:
                raise Stopped

        with pytest.raises(Stopped):
            stage(row, ARRAYS, Run(checkpoint=checkpoint, after_epoch=stop))
        again, resumed = stage(row, ARRAYS, Run(checkpoint=checkpoint, after_epoch=stop))
        assert epochs == [1, 2, 3]
        assert resumed == history
        assert ("weak_loss" in history[-1]) == (stage is stage_b)
        for name, value in model.state_dict().items():
            assert torch.equal(value, again.state_dict()[name]), name
        for one, other in zip(
            *(m.rank(*TEST.tensors(ARRAYS.images)) for m in (model, again)), strict=True
        ):
            np.testing.assert_array_equal(one, other)


def test_a_checkpoint_of_stage_b_is_not_read_by_stage_a(folder, tmp_path):
    """Nor by the judge: where these are made on the way, they are other jobs."""
    row = job("x", "dual", "both", "miner")
    wanted, _ = stage_b(row, ARRAYS)
    for file in folder.iterdir():
        file.unlink()
    model, _ = stage_b(row, ARRAYS, Run(checkpoint=tmp_path / "b.pt"))
    assert all(torch.equal(v, model.state_dict()[n]) for n, v in wanted.state_dict().items())


def test_photographs_have_no_truth_but_people():
    told = tiny.arrays(people=True)
    row = job("x", "dual", "both", "miner")
    values = train_and_measure(row, told).values["test"]
    assert {"mAP, people", "P@1, people"} <= values.keys()
    assert "mAP" not in values
    with pytest.raises(ValueError, match="no pairs 'all'"):
        train_and_measure(job("x", "dual", "both", "all"), told)
    assert systems.full("flickr8k").without == ""
