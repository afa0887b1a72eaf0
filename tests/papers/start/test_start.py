"""Notebook 00: its model, scores, claims and pictures by plain loops, its record and its words."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from made_up_evidence import evidence_of

from mmlib import world
from mmlib.core.claims import assess
from mmlib.core.engine import Resources
from mmlib.core.errors import DataError
from mmlib.core.evidence import NO_SEED
from mmlib.papers.start import data, experiment, run, show
from mmlib.papers.start.claims import CLAIMS
from mmlib.papers.start.method import Captioned, batch_loss
from mmlib.papers.start.run import CAPTIONS, batches, budget, score, train, untrained
from mmlib.suite import record
from mmlib.world import schema

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
    return data.Arrays(splits, 20, ("beach", "desert", "park") * 4)


# --- The model and its data ----------------------------------------------------------------------


def test_padding_changes_no_embedding(arrays):
    search = untrained(arrays, SMALL, 0).eval()
    test = arrays.splits["test"].on("cpu")
    with torch.no_grad():
        together = search.text_states(test.ids, test.lengths)[2]
        for row, length in enumerate(test.lengths):
            alone = search.text_states(test.ids[row : row + 1, :length], length[None])[2][0]
            assert torch.allclose(alone, together[row], atol=1e-5)


def test_an_epoch_has_whole_batches_of_different_captions(arrays):
    train = replace(arrays.splits["train"], features=np.zeros((13, 4, 6)))  # 26 of 32 captions
    found = batches(train, SMALL, seed=3, epoch=1)
    assert [len(rows) for rows in found] == [8, 8, 8]
    rows = np.concatenate(found)
    assert len(set(rows)) == 24
    assert rows.max() < 32
    assert np.array_equal(rows, np.concatenate(batches(train, SMALL, 3, 1)))
    assert not np.array_equal(rows, np.concatenate(batches(train, SMALL, 3, 2)))


def test_captions_of_one_picture_are_no_negatives(arrays):
    search, train = untrained(arrays, SMALL, 0).eval(), arrays.splits["train"].on("cpu")
    with torch.no_grad():
        rows = np.array([2, 3, 0, 8])
        found = batch_loss(search, train, rows)
        _, left = search.image_states(train.features[[1, 1, 0, 4]])
        right = search.text_states(train.ids[rows], train.lengths[rows])[2]
        scores = search.similarities(left, right)
    wanted = []
    for table in (scores, scores.T):
        for i in range(4):
            others = [j for j in range(4) if not {i, j} == {0, 1}]
            wanted.append(torch.logsumexp(table[i, others], 0) - table[i, i])
    assert found.item() == pytest.approx(torch.stack(wanted).mean().item(), abs=1e-5)


def test_scores_by_a_plain_loop(arrays):
    search = untrained(arrays, SMALL, 1).eval()
    found = score(search, arrays)
    suffixes = {"test": "", "full stop": ", full stop", "no full stop": ", no full stop"}
    for name, suffix in suffixes.items():
        test = arrays.splits[name].on("cpu")
        cosines, _ = search.rank(test.features, test.ids, test.lengths)
        for caption, own in enumerate(test.image_of):
            rank = sum(cosines[i, caption] >= cosines[own, caption] for i in range(12))
            for k in (10,) if suffix else (1, 5, 10):
                assert found[f"R@{k}{suffix}"][caption] == 100 * (rank <= k)
    assert len(found) == 5


def test_endings_replace_the_full_stop_alone():
    some = world.captioned_images("train", 3)
    words = data.vocabulary({"train": some})
    full, bare = (data.captioned(some, words, ending) for ending in (".", ""))
    assert (full.lengths - bare.lengths == 1).all()
    for row, text in enumerate(text for own in some.captions for text in own):
        assert full.ids[row, : full.lengths[row]].tolist() == words.ids(text.rstrip(".") + ".")
    assert data.captioned(some, words).image_of.tolist() == sorted([0, 1, 2] * 5)


def test_photographs_have_no_places(monkeypatch):
    photograph = SimpleNamespace(captions=[["a boy ."]], features=np.zeros((1, 2, 3)))
    monkeypatch.setitem(data.READERS, "flickr8k", lambda split: photograph)
    arrays = data.load_arrays(data.load_study("flickr8k"), "flickr8k")["flickr8k"]
    told = run.describe_captions(None, arrays).values["test"]
    assert [list(value) for value in told.values()] == [[3], [False], [False]]


def test_other_data_are_refused():
    for tier, named in (("world", "flickr8k"), ("paper", "paper")):
        with pytest.raises(DataError, match=f"no data '{named}'; there are world, flickr8k"):
            data.load_study(tier, (tier, named))


def test_the_fingerprint_sees_all_that_is_read(arrays):
    for name, value in vars(arrays.splits["val"]).items():
        other = replace(arrays.splits["val"], **{name: value.copy()})
        changed = replace(arrays, splits={**arrays.splits, "val": other})
        assert changed.fingerprint == arrays.fingerprint
        getattr(other, name).flat[-1] += 1
        assert replace(changed).fingerprint != arrays.fingerprint
    assert replace(arrays, places=("park",) * 12).fingerprint != arrays.fingerprint


# --- The claims ----------------------------------------------------------------------------------


def made_up(shift, seeds=6, pictures=40):
    """Evidence whose trained model finds `shift` more points than the untrained, give or take."""
    rng = np.random.default_rng(1)
    image_of = np.repeat(np.arange(pictures), 3)
    beach = image_of % 4 == 0
    rows = [(CAPTIONS, NO_SEED, "words", np.tile([6, 10, 16], pictures)),
            (CAPTIONS, NO_SEED, "beach", beach),
            (CAPTIONS, NO_SEED, "desert", image_of % 4 == 1)]  # fmt: skip
    for seed in range(seeds):
        base = rng.normal(size=len(image_of))
        for metric in ("R@10", "R@10, full stop", "R@10, no full stop"):
            more = base + shift + 0.1 * rng.normal(size=len(image_of))
            rows.append(("Search", seed, metric, more + 9 * beach))
        rows.append(("Untrained", seed, "R@10", base))
    rows = [("world", system, seed, "test", *rest, image_of) for system, seed, *rest in rows]
    return evidence_of(rows, {}), image_of


@pytest.mark.parametrize(("shift", "first"), [(30, "supported"), (-30, "opposite")])
def test_claims_by_plain_loops(shift, first):
    found, image_of = made_up(shift)
    judged = [assess(one, found) for one in CLAIMS]
    verdicts = [first, "negligible", "supported", "supported"]
    assert [one.verdict for one in judged] == verdicts
    full, trained, bare = (
        found.values("world", "Search", f"R@10{end}")
        for end in (", full stop", "", ", no full stop")
    )
    short = [trained[:, 3 * picture] for picture in range(40)]  # words: 6, 10, 16
    long = [trained[:, 3 * picture + 2] for picture in range(40)]
    beach, desert = (trained[:, image_of % 4 == rest] for rest in (0, 1))
    wanted = [np.mean(short) - np.mean(long), beach.mean() - desert.mean(), (full - bare).mean()]
    assert [next(iter(one.parts.values())).effect for one in judged[1:4]] == pytest.approx(wanted)


# --- The pictures of a search --------------------------------------------------------------------


def test_a_long_caption_divides_100_percent_among_pictures(arrays):
    test, models = arrays.splits["test"].on("cpu"), [untrained(arrays, SMALL, n) for n in (0, 1)]
    panels = show.match_tables(test, dict(zip("ab", models, strict=True)), pictures=5).axes
    for axis, model in zip(panels, models, strict=False):
        shares = axis.images[0].get_array()
        assert np.allclose(shares.sum(axis=0), 100)
        cosines = model.rank(test.features, test.ids, test.lengths)[0][:5, 1:10:2]
        scale = np.diff(np.log(shares), axis=0) / np.diff(cosines, axis=0)
        assert 1 < scale.min() <= scale.max() < 1.01 * scale.min()


def test_a_hit_and_a_miss_that_finds_another_picture_that_fits():
    rng, own = np.random.default_rng(3), np.arange(8)
    scores = rng.permuted(np.tile(own, (8, 1)), axis=1).T * 0.1  # (pictures, captions)
    truth = (rng.random(scores.shape) < 0.2) | np.eye(8, dtype=bool)
    scores[2, 2] = 1  # caption 2 finds its picture
    scores[6, 6], truth[:, 6] = -1, True  # caption 6 misses it, and fits all others
    orders = [sorted(range(8), key=lambda i: -scores[i, caption]) for caption in own]
    firsts = [order[: show.SHOWN] for order in orders]
    hits = [c for c in own if firsts[c][0] == c]
    misses = [c for c in own if c not in firsts[c] and any(truth[i, c] for i in firsts[c])]
    chosen = show.hit_and_miss(scores, own, truth)
    assert chosen == [hits[0], misses[0]]
    scores[own, own] = -1  # no caption finds its picture
    with pytest.raises(IndexError):
        show.hit_and_miss(scores, own, truth)


# --- The record and the notebook -----------------------------------------------------------------


def test_evidence_is_that_of_a_training_here(arrays, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "budget", lambda *_: SMALL)
    loaded = {"load_study": lambda *_: None, "load_arrays": lambda *_: {"world": arrays}}
    small = replace(experiment.EXPERIMENT, budget=lambda *_: SMALL, **loaded)
    monkeypatch.setattr(experiment, "EXPERIMENT", small)
    jobs = Resources(workers=1, folder=tmp_path / "jobs")
    folder = tmp_path / "evidence"
    found = record.record("00", "world", [0, 1], resources=jobs, folder=folder)
    assert found.seeds == [0, 1]
    trained, history = train(arrays, SMALL, seed=1)
    for metric, values in score(trained, arrays).items():
        assert np.array_equal(found.values("world", "Search", metric, [1])[0], values)
    curve = [epoch["dev_loss"] for epoch in history]
    assert found.curves("world", "Search", "dev_loss")[1] == pytest.approx(curve)
    before = score(untrained(arrays, SMALL, 1), arrays)
    assert np.array_equal(found.values("world", "Untrained", "R@10", [1])[0], before["R@10"])
    text = record.write_judgement("00", "world", tmp_path / "out", folder)
    assert "2 seeds;" in text
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {
        "verdicts.json", "ledger.csv", "parts.csv", "systems.csv", "learning.png", "claims.png",
    }  # fmt: skip


def test_the_notebook_says_what_its_evidence_holds():
    found = record.read("00", "world")
    judged = {one.claim.id: one for one in record.assess_paper("00", "world")}
    verdicts = {name: one.verdict for name, one in judged.items()}
    assert verdicts == {
        "S1": "supported", "S2": "opposite", "S3": "undecided", "S4": "supported"
    }  # fmt: skip
    assert judged["S3"].seeds_needed is None  # "no number of trainings would decide it"
    assert judged["S3"].record()["low"] < -2.0 < 2.0 < judged["S3"].record()["high"]
    clusters = found.clusters("world")
    for place in data.PLACES:
        [holds] = found.values("world", CAPTIONS, place, [0])
        assert round(len({*clusters[holds == 1]}), -1) == 40  # "about forty pictures of each"
    assert {one.smallest for one in CLAIMS} == {2.0}  # "Ours is 2 points of R@10"
    assert len({*clusters}) == 300  # "one of 300 pictures among the first ten for about 46 %"
    assert round(found.means("world", "Search", "R@10").mean()) == 46
    assert len(found.seeds) == 10
    counts = [len(part) for part in (schema.KINDS, schema.COLOURS, schema.SETTINGS, schema.STYLES)]
    assert counts == [32, 10, 8, 4]
