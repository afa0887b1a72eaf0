"""Encoders, batches and training of paper 04, and the training that the notebook shows."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from oracles import auc, loss, similarity
from tiny_links import HOW, SHORT, TRAINED, job, net, tiny, uneven, with_split

from mmlib.papers.links import method, run
from mmlib.papers.links.data.arrays import Batch, Batches, Split, fixed_batches, random_batches
from mmlib.papers.links.method import Settings
from mmlib.papers.links.run import SYSTEMS, train, train_and_score

STRUCTURED = {name: one for name, one in TRAINED.items() if name != "NoStruct"}
SMALL = replace(SHORT, width=8, word_width=4, dropout=0.0)


@pytest.fixture(scope="module")
def arrays():
    return tiny()


@pytest.fixture(scope="module")
def few():
    return tiny({"train": 60})


@pytest.fixture(scope="module")
def short(few):
    """Answers of AP and NoStruct after a short training."""
    return {name: train_and_score(job(TRAINED[name], SHORT), few) for name in ("AP", "NoStruct")}


def same(a, b) -> bool:
    """Whether two answers are the same in all but the time they took."""
    (x, y) = (answer.values["test"] for answer in (a, b))
    equal = all(np.array_equal(x[metric], y[metric], equal_nan=True) for metric in y)
    return x.keys() == y.keys() and equal and list(a.history) == list(b.history)


# --- Training --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TRAINED)
def test_training_finds_links_it_was_never_shown(arrays, name):
    still = train_and_score(job(TRAINED[name], replace(HOW, learning_rate=0.0, epochs=1)), arrays)
    assert 30 < still.values["test"]["AUC"].mean() < 65
    answer = train_and_score(job(TRAINED[name]), arrays)
    # A half of the edges, and one random pair, teach less.
    least = 70 if name.endswith("½k") else 60 if name == "NoStruct" else 88
    assert answer.values["test"]["AUC"].mean() > least
    assert answer.history[-1]["train_loss"] < answer.history[0]["train_loss"]
    assert len(answer.history) == HOW.epochs


@pytest.mark.parametrize("name", ["AP", "NoStruct"])
def test_a_seed_gives_its_run_and_labels_of_training_and_dev_documents_change_no_weight(
    few, short, name
):
    assert same(short[name], train_and_score(job(TRAINED[name], SHORT), few))
    assert not same(short[name], train_and_score(job(TRAINED[name], SHORT, seed=1), few))
    wrong = tuple(~links for links in few.splits["train"].links)
    blind = with_split(with_split(few, "train", links=None), "val", links=None)
    narrow, _ = train(job(replace(TRAINED[name], share=0.5), SHORT), few)
    assert narrow.image.out_features == SHORT.width // 2
    weights = []
    for changed in (few, with_split(few, "train", links=wrong), blind):
        trained, history = train(job(TRAINED[name], SHORT), changed)
        assert ("dev_AUC" in history[0]) == (changed is not blind)
        weights.append(trained.state_dict())
    for other in weights[1:]:
        assert all(torch.equal(weights[0][key], other[key]) for key in other)


def test_test_documents_without_labels_are_scored_by_their_sealed_key_alone(few, short):
    blind = with_split(few, "test", links=None)
    assert train_and_score(job(TRAINED["AP"], SHORT), blind).values == {"test": {}}
    sealed = replace(blind, key=few.splits["test"].links)
    assert same(train_and_score(job(TRAINED["AP"], SHORT), sealed), short["AP"])


def test_hard_negatives_wait_for_the_end_of_the_warm_up(few, short):
    hard = replace(TRAINED["AP"], negatives="hard")
    first, last = (h["train_loss"] for h in short["AP"].history)
    warm, usual = (
        [h["train_loss"] for h in train(job(hard, replace(SHORT, warmup_fraction=share)), few)[1]]
        for share in (0.5, 0)
    )
    assert warm[0] == first < usual[0]
    assert warm[1] > last


# Dev losses, and the rates after each epoch: patience 3, a fifth, absolute threshold 1e-4.
PLATEAU = [.30, .25, .24995, .26, .25, .27, .25, .25, .25, .25, .25, .20]  # fmt: skip
RATES = [1e-4] * 5 + [2e-5] * 4 + [4e-6] * 3


def test_the_papers_own_settings_lower_the_rate_on_a_plateau_and_choose_an_epoch(few, monkeypatch):
    how = replace(Settings(), width=8, word_width=32, epochs=2)
    history = train(job(SYSTEMS["TK+½k"], how), few)[1]
    assert history[1]["train_loss"] < history[0]["train_loss"]
    rates, keep = [], []

    def of_printed_losses(model, batches, step, evaluate, **more):
        keep.append(more["keep"])
        for dev_loss in PLATEAU:
            step.end_epoch({"dev_loss": dev_loss})
            rates.append(step.optimizer.param_groups[0]["lr"])
        return []

    monkeypatch.setattr(run, "fit", of_printed_losses)
    for schedule in ("plateau", "cosine"):
        train(job(SYSTEMS["DC"], replace(how, schedule=schedule)), few)
    assert rates[: len(RATES)] == pytest.approx(RATES)
    assert keep == ["best", "last"]


# --- Model -----------------------------------------------------------------------------------


def pair(trained, source, a, b):
    """Cosines of the sentences of document a and the images of b, without a batch around them."""
    first, second = source.batch([a]), source.batch([b])
    batch = Batch(first.ids, first.lengths, second.features, first.rows, second.columns)
    return trained(batch)[0][0, 0].detach().double().numpy()


def test_a_batch_of_unequal_documents_equals_each_pair_alone():
    arrays = uneven()
    trained, source = net(arrays, SMALL), Batches(arrays, "test", "cpu")
    order = [3, 0, 6, 1, 5, 2, 4]
    cosines, rows, columns = trained(source.batch(order))
    matrices = method.cosine_matrices(trained, arrays, "test", "cpu")
    assert cosines.shape == (7, 7, 3, 4)
    for a, first in enumerate(order):
        for b, second in enumerate(order):
            alone = pair(trained, source, first, second)
            n, m = alone.shape
            assert cosines[a, b, :n, :m].detach().numpy() == pytest.approx(alone, abs=1e-5)
            if first == second:
                assert matrices[first] == pytest.approx(alone, abs=1e-5)
            assert (int(rows[a].sum()), int(columns[:, b].sum())) == (n, m)
    for name, system in STRUCTURED.items():
        together = method.set_similarity(cosines, rows, columns, system)
        wanted = similarity(pair(trained, source, order[1], order[4]), name)
        assert together[1, 4].item() == pytest.approx(wanted, abs=1e-5), name


def test_dropout_takes_whole_channels_in_training_only(monkeypatch):
    arrays = uneven()
    trained = net(arrays, replace(SMALL, dropout=0.5))
    batch = Batches(arrays, "test", "cpu").batch([2])
    calm = trained.text(batch.ids, batch.lengths)
    assert torch.equal(trained.text(batch.ids, batch.lengths), calm)
    trained.train()
    seen = []
    monkeypatch.setattr(trained.text.gru, "forward", lambda words, *_: seen.append(words) or calm)
    trained.text(batch.ids, batch.lengths)
    share = seen[0] / trained.text.embed.weight
    assert ((share == 0) | (share == 2)).all()
    assert (share == share[0]).all()


def test_the_dev_loss_is_the_training_loss_on_fixed_batches():
    """With a learning rate of 0 the model stays what the seed makes it, so it can be rebuilt."""
    arrays, how = uneven(), replace(SMALL, learning_rate=0.0, epochs=1)
    source = Batches(arrays, "val", "cpu")
    for name, system in STRUCTURED.items():
        trained, history = train(job(replace(system, b=2, negatives="hard"), how, seed=5), arrays)
        q = [
            [[similarity(pair(trained, source, a, b), name) for b in batch] for a in batch]
            for batch in fixed_batches(source.split, 3)
        ]
        wanted = np.mean([loss(each, negatives="mean") for each in q])
        assert history[0]["dev_loss"] == pytest.approx(wanted, abs=1e-5), name
    scores = method.cosine_matrices(trained, arrays, "val", "cpu")
    each = [
        auc(matrix, links)
        for matrix, links in zip(scores, source.split.links, strict=True)
        if 0 < links.sum() < links.size
    ]
    assert history[0]["dev_AUC"] == pytest.approx(np.mean(each), abs=1e-4)


# --- Batches of documents ----------------------------------------------------------------------


def rounds_of(*sizes) -> Split:
    rounds = np.repeat(np.arange(len(sizes)), sizes)
    return Split((), (), None, np.random.default_rng(0).permutation(rounds), rounds)


def test_random_batches_stay_inside_a_round_and_cover_a_pass():
    split = rounds_of(7, 2, 6)
    drawn, again = (random_batches(split, 3, np.random.default_rng(0)) for _ in range(2))
    passes = [[next(drawn) for _ in range(4)] for _ in range(50)]  # 2 of the first, 2 of the last
    for batches in passes:
        used = np.concatenate(batches)
        assert len(set(used)) == len(used) == 12
        assert all(len(set(split.rounds[batch])) == 1 for batch in batches)
        assert all((next(again) == batch).all() for batch in batches)
    assert len({tuple(np.concatenate(batches)) for batches in passes}) == 50
    # What a pass leaves out has its turn in another.
    assert {*np.concatenate([*map(np.concatenate, passes)])} == {*np.flatnonzero(split.rounds != 1)}
    with pytest.raises(ValueError, match="no round has 8 documents"):
        next(random_batches(split, 8, np.random.default_rng(0)))


def test_fixed_batches_cover_everything_with_as_many_negatives():
    split = rounds_of(7, 2, 6, 1)
    batches = fixed_batches(split, 3)
    assert [len(batch) for batch in batches] == [3, 3, 3, 2, 3, 3]  # a lone document has none
    assert all(len(set(batch)) == len(batch) for batch in batches)
    assert all(len(set(split.rounds[batch])) == 1 for batch in batches)
    assert set(np.concatenate(batches)) == set(np.flatnonzero(split.rounds != 3))


# --- The training that the notebook shows ------------------------------------------------------


def documents(*lengths):
    return SimpleNamespace(test=[SimpleNamespace(sentences=("a",) * length) for length in lengths])


def test_the_notebook_shows_the_recorded_job_from_before_its_training(few, monkeypatch):
    monkeypatch.setattr(run, "documents", lambda *_: (documents(*[5] * 30), SHORT, few))
    shown = run.train_one.__wrapped__("world", "story", "AP", 3)
    system = next(one for one in run.trained_systems("world", "story") if one.system == "AP")
    answer = train_and_score(job(system, SHORT, seed=3), few)
    assert np.array_equal(shown.auc, answer.values["test"]["AUC"])
    assert list(shown.history[1:]) == list(answer.history)
    with torch.no_grad():
        start = run.dev_evaluation(shown.untrained, few, system, SHORT, "cpu")()
    assert shown.history[0] == start
    assert shown.history[-1]["dev_loss"] < start["dev_loss"]


@pytest.mark.parametrize(
    ("aucs", "lengths", "nearest"),
    [
        ([70, 80, 81, 79], [5, 12, 6, 4], 2),  # the first of two as near
        ([70, 80, 81], [9, 9, 9], 1),  # none is short
        ([np.nan, 60], [5, 5], 1),
    ],
)
def test_the_nearest_document_is_one_that_can_be_shown(aucs, lengths, nearest, monkeypatch):
    monkeypatch.setattr(run.Demo, "auc", np.array(aucs, dtype=float))
    assert run.Demo(documents(*lengths), *[None] * 7).nearest(80) == nearest
