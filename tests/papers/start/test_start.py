"""Notebook 00's room: its model and scores, its claims by plain loops, its record and its words."""

from dataclasses import replace
from pathlib import Path

import nbformat
import numpy as np
import pandas as pd
import pytest
import torch
from made_up_evidence import evidence_of
from scipy import stats

from mmlib import world
from mmlib.core.claims import assess
from mmlib.core.engine import Resources
from mmlib.core.errors import DataError
from mmlib.core.evidence import NO_SEED
from mmlib.papers.start import data, experiment, run
from mmlib.papers.start.claims import CLAIMS
from mmlib.papers.start.data import Arrays
from mmlib.papers.start.method import Captioned, batch_loss
from mmlib.papers.start.run import CAPTIONS, batches, budget, score, train, untrained
from mmlib.suite import record
from mmlib.world import schema

ROOT = Path(__file__).resolve().parents[3]
SMALL = replace(budget("world", "world"), epochs=2, batch=8, width=16)


def split(pictures, rng):
    """Random pictures with two captions each, of 2 to 7 words and of 14 to 16."""
    lengths = np.ravel([rng.integers(2, 8, size=pictures), rng.integers(14, 17, pictures)], "F")
    ids = rng.integers(4, 20, size=(2 * pictures, 16)) * (np.arange(16) < lengths[:, None])
    features = rng.normal(size=(pictures, 4, 6)).astype(np.float32)
    return Captioned(features, ids, lengths, np.repeat(np.arange(pictures), 2))


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(0)
    sizes = {"train": 16, "val": 9, "test": 12, "full stop": 12, "no full stop": 12}
    splits = {name: split(count, rng) for name, count in sizes.items()}
    return Arrays(splits, 20, ("beach", "desert", "park") * 4)


# The model


def test_what_is_filled_up_changes_no_embedding(arrays):
    search = untrained(arrays, SMALL, 0).eval()
    test = arrays.splits["test"].on("cpu")
    with torch.no_grad():
        together = search.text_states(test.ids, test.lengths)[2]
        for row, length in enumerate(test.lengths):
            alone = search.text_states(test.ids[row : row + 1, :length], length[None])[2][0]
            assert torch.allclose(alone, together[row], atol=1e-5)


def test_pool_is_the_maximum_over_the_words_that_are_there(arrays):
    states = torch.randn(3, 5, 4)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 0, 0, 0, 0]])
    pooled = untrained(arrays, SMALL, 0).pool(states, mask)
    for i, count in enumerate((5, 2, 1)):
        for d in range(4):
            assert pooled[i, d] == max(states[i, j, d] for j in range(count))


def test_an_epoch_has_whole_batches_of_different_captions(arrays):
    train = replace(arrays.splits["train"], features=np.zeros((13, 4, 6)))  # 26 of 32 captions
    found = batches(train, SMALL, seed=3, epoch=1)
    assert [len(rows) for rows in found] == [8, 8, 8]
    rows = np.concatenate(found)
    assert len(set(rows)) == 24
    assert rows.max() < 32
    assert np.array_equal(rows, np.concatenate(batches(train, SMALL, 3, 1)))
    assert not np.array_equal(rows, np.concatenate(batches(train, SMALL, 3, 2)))


def test_captions_of_one_picture_are_not_held_against_each_other(arrays):
    search, train = untrained(arrays, SMALL, 0).eval(), arrays.splits["train"].on("cpu")
    with torch.no_grad():
        found = batch_loss(search, train, np.array([0, 1, 2, 8]))
        _, left = search.image_states(train.features[[0, 0, 1, 4]])
        right = search.text_states(train.ids[[0, 1, 2, 8]], train.lengths[[0, 1, 2, 8]])[2]
        scores = search.similarities(left, right)
    wanted = []
    for table in (scores, scores.T):
        for i in range(4):
            others = [j for j in range(4) if not {i, j} == {0, 1}]
            wanted.append(torch.logsumexp(table[i, others], 0) - table[i, i])
    assert found.item() == pytest.approx(torch.stack(wanted).mean().item(), abs=1e-5)


def test_scores_by_a_plain_loop(arrays):
    search, test = untrained(arrays, SMALL, 1).eval(), arrays.splits["test"]
    found = score(search, arrays)
    cosines, _ = search.rank(*(torch.tensor(p) for p in (test.features, test.ids, test.lengths)))
    for caption, own in enumerate(test.image_of):
        rank = sum(cosines[i, caption] >= cosines[own, caption] for i in range(12))
        for k in (1, 5, 10):
            assert found[f"R@{k}"][caption] == 100 * (rank <= k)
    assert set(found) == {"R@1", "R@5", "R@10", "R@10, full stop", "R@10, no full stop"}


# The data


def test_endings_replace_the_full_stop_alone():
    some = world.captioned_images("train", 3)
    words = data.vocabulary({"train": some})
    texts = [text for own in some.captions for text in own]
    full, bare = (data.captioned(some, words, ending) for ending in (".", ""))
    assert (full.lengths - bare.lengths == 1).all()
    for row, text in enumerate(texts):
        assert full.ids[row, : full.lengths[row]].tolist() == words.ids(text.rstrip(".") + ".")
    assert data.captioned(some, words).image_of.tolist() == sorted([0, 1, 2] * 5)


def test_other_tiers_have_nothing():
    with pytest.raises(DataError, match="'flickr8k'"):
        data.load_study("flickr8k")
    with pytest.raises(DataError, match="no data set 'pictures'"):
        data.load_study("world", ("world", "pictures"))


def test_the_fingerprint_sees_every_part(arrays):
    parts = [*vars(arrays.splits["val"])]
    for name in parts:
        other = replace(arrays.splits["val"], **{name: getattr(arrays.splits["val"], name).copy()})
        changed = replace(arrays, splits={**arrays.splits, "val": other})
        assert changed.fingerprint == arrays.fingerprint
        getattr(other, name).flat[-1] += 1
        assert replace(changed).fingerprint != arrays.fingerprint
    assert replace(arrays, places=("park",) * 12).fingerprint != arrays.fingerprint


# The claims


def made_up(shift, seeds=6, pictures=40):
    """Evidence whose trained model finds `shift` more points than the untrained, give or take."""
    rng = np.random.default_rng(1)
    image_of = np.repeat(np.arange(pictures), 3)
    values = {
        (CAPTIONS, "words"): np.tile([6, 10, 16], pictures),
        (CAPTIONS, "beach"): image_of % 4 == 0,
        (CAPTIONS, "desert"): image_of % 4 == 1,
    }
    rows = [(system, NO_SEED, metric, own) for (system, metric), own in values.items()]
    for seed in range(seeds):
        base = rng.normal(size=len(image_of))
        for metric in ("R@10", "R@10, full stop", "R@10, no full stop"):
            more = base + shift + 0.1 * rng.normal(size=len(image_of))
            rows.append(("Search", seed, metric, more + 9 * values[CAPTIONS, "beach"]))
        rows.append(("Untrained", seed, "R@10", base))
    rows = [("world", system, seed, "test", *own, image_of) for system, seed, *own in rows]
    return evidence_of(rows, {}), image_of


@pytest.mark.parametrize(("shift", "first"), [(30, "supported"), (-30, "opposite")])
def test_the_claims_find_what_is_there(shift, first):
    found, _ = made_up(shift)
    verdicts = {one.id: assess(one, found, found.seeds).verdict for one in CLAIMS}
    assert verdicts["S1"] == first
    assert verdicts["S2"] == "negligible"
    assert verdicts["S3"] == "supported"
    assert verdicts["S4"] == "supported"
    assert verdicts["S5"] == "not tested"


def test_effects_by_plain_loops():
    found, image_of = made_up(5)
    trained = found.values("world", "Search", "R@10")
    short, long = [], []
    for picture in range(40):
        first = 3 * picture  # words: 6, 10, 16
        short.append(trained[:, first])
        long.append(trained[:, first + 2])
    effects = {one.id: one.effects(found, found.seeds) for one in CLAIMS[:4]}
    [s2] = effects["S2"].values()
    assert s2.effect == pytest.approx(np.mean(short) - np.mean(long))
    [s3] = effects["S3"].values()
    sides = [trained[:, image_of % 4 == rest] for rest in (0, 1)]
    assert s3.effect == pytest.approx(sides[0].mean() - sides[1].mean())
    [s4] = effects["S4"].values()
    ends = [
        found.values("world", "Search", f"R@10, {end}") for end in ("full stop", "no full stop")
    ]
    assert s4.effect == pytest.approx((ends[0] - ends[1]).mean())


def test_one_seed_has_students_interval_over_pictures():
    found, image_of = made_up(5)
    [s1] = CLAIMS[0].effects(found, [2]).values()
    gained = found.values("world", "Search", "R@10", [2]) - found.values(
        "world", "Untrained", "R@10", [2]
    )
    means = pd.Series(gained[0]).groupby(image_of).mean()
    low, high = stats.t.interval(0.95, len(means) - 1, means.mean(), stats.sem(means))
    assert (s1.low, s1.high) == pytest.approx((low, high))


# The record


def test_evidence_is_recorded_and_is_that_of_a_training_here(arrays, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "budget", lambda *_: SMALL)
    small = replace(
        experiment.EXPERIMENT,
        budget=lambda *_: SMALL,
        load_study=lambda tier, datasets: None,
        load_arrays=lambda *_: {"world": arrays},
    )
    monkeypatch.setattr(experiment, "EXPERIMENT", small)
    how = {
        "resources": Resources(workers=1, folder=tmp_path / "jobs"),
        "folder": tmp_path / "evidence",
    }
    found = record.record("00", "world", [0, 1], **how)
    assert found.seeds == [0, 1]
    trained, history = train(arrays, SMALL, seed=1)
    live = score(trained, arrays)
    for metric, values in live.items():
        assert np.array_equal(found.values("world", "Search", metric, [1])[0], values)
    curve = [epoch["dev_loss"] for epoch in history]
    assert found.curves("world", "Search", "dev_loss")[1] == pytest.approx(curve)
    before = score(untrained(arrays, SMALL, 1), arrays)
    assert np.array_equal(found.values("world", "Untrained", "R@10", [1])[0], before["R@10"])
    text = record.write_judgement("00", "world", tmp_path / "out", tmp_path / "evidence")
    assert "S5" in text
    assert "2 seeds;" in text
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {
        "verdicts.json", "ledger.csv", "parts.csv", "systems.csv", "learning.png", "claims.png",
    }  # fmt: skip
    record.record("00", "world", [3], **how | {"folder": tmp_path / "alone"})
    text = record.write_judgement("00", "world", tmp_path / "out", tmp_path / "alone")
    assert record.ONE_SEED in text


NOTEBOOK = ROOT / "notebooks" / "00_start_here.ipynb"
SAID = {
    "S1": "S1 is supported", "S2": "S2 is opposite", "S3": "S3 is undecided",
    "S4": "S4 is supported", "S5": "S5 is not tested",
}  # fmt: skip


def test_the_notebook_says_what_its_evidence_holds():
    """The verdicts and figures that the notebook's prose names."""
    found = record.read("00", "world")
    judged = {one.claim.id: one for one in record.assess_paper("00", "world")}
    cells = [c for c in nbformat.read(NOTEBOOK, 4).cells if c.cell_type == "markdown"]
    text = "".join(cell.source for cell in cells)
    [lesson] = [cell.source for cell in cells if cell.source.startswith("**What to take from it")]
    for name, one in judged.items():
        assert SAID[name].endswith(one.verdict)
        assert SAID[name].partition(" ")[2] in lesson.partition(name)[2][:30]
    assert judged["S3"].seeds_needed is None  # "no number of trainings would decide it"
    assert judged["S3"].record()["low"] < -2.0 < 2.0 < judged["S3"].record()["high"]
    sizes = [
        len(set(found.clusters("world")[found.values("world", CAPTIONS, place, [0])[0] == 1]))
        for place in ("beach", "desert")
    ]
    assert all(round(size, -1) == 40 for size in sizes)  # "about forty pictures of each setting"
    assert {one.smallest for one in CLAIMS} == {2.0}
    assert "Ours is 2 points of R@10" in text
    pictures = len(set(found.clusters("world")))
    percent = found.means("world", "Search", "R@10").mean()
    assert f"one of {pictures} pictures among the first ten for about {percent:.0f} %" in text
    assert f"guessing reaches {100 * 10 / pictures:.0f} %" in text
    assert len(found.seeds) == 10
    assert "trained from ten seeds" in text
    counts = [len(part) for part in (schema.KINDS, schema.COLOURS, schema.SETTINGS, schema.STYLES)]
    assert counts == [32, 10, 8, 4]
    assert "32 kinds of things in ten colours, in eight settings and four styles" in text
