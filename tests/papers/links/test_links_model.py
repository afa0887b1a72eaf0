"""Encoders, batches and training of paper 04."""

from dataclasses import replace

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
def answers(arrays):
    """Each system, trained once."""
    return {name: train_and_score(job(one), arrays) for name, one in TRAINED.items()}


def same(a, b, *metrics) -> bool:
    """Whether two answers are the same in all but the time they took."""
    values = all(
        np.array_equal(a.values["test"][m], b.values["test"][m], equal_nan=True)
        for m in metrics or a.values["test"]
    )
    return values and list(a.history) == list(b.history)


# --- Training --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TRAINED)
def test_training_finds_links_it_was_never_shown(arrays, answers, name):
    still = train_and_score(job(TRAINED[name], replace(HOW, learning_rate=0.0, epochs=1)), arrays)
    assert 30 < still.values["test"]["AUC"].mean() < 65
    found = answers[name]
    # A half of the edges, and one random pair, teach less.
    floor = 70 if name.endswith("½k") else 60 if name == "NoStruct" else 88
    assert found.values["test"]["AUC"].mean() > floor
    assert found.history[-1]["train_loss"] < found.history[0]["train_loss"]
    assert len(found.history) == HOW.epochs
    assert found.seconds > 0


@pytest.mark.parametrize("name", ["AP", "NoStruct"])
def test_the_same_seed_gives_the_same_run_and_another_seed_another(few, name):
    first, again, other = (
        train_and_score(job(TRAINED[name], SHORT, seed), few) for seed in (0, 0, 1)
    )
    assert same(first, again)
    assert not same(first, other)


@pytest.mark.parametrize("name", ["AP", "NoStruct"])
def test_labels_of_training_and_dev_documents_change_no_weight(few, name):
    wrong = tuple(~links for links in few.splits["train"].links)
    weights = []
    for changed in (
        few,
        with_split(few, "train", links=wrong),
        with_split(with_split(few, "train", links=None), "val", links=None),
    ):
        trained, history = train(job(TRAINED[name], SHORT), changed)
        assert ("dev_AUC" in history[0]) == (changed.splits["val"].links is not None)
        weights.append(trained.state_dict())
    for other in weights[1:]:
        assert all(torch.equal(weights[0][key], other[key]) for key in other)


def test_test_documents_without_labels_are_scored_by_their_sealed_key_alone(few):
    blind = with_split(few, "test", links=None)
    assert train_and_score(job(TRAINED["DC"], SHORT), blind).values == {"test": {}}
    sealed = replace(blind, key=few.splits["test"].links)
    assert same(
        train_and_score(job(TRAINED["DC"], SHORT), sealed),
        train_and_score(job(TRAINED["DC"], SHORT), few),
    )


def test_hard_negatives_wait_for_the_end_of_the_warm_up(few):
    averaged, hard = TRAINED["AP"], replace(TRAINED["AP"], negatives="hard")
    losses = {
        name: [h["train_loss"] for h in train(job(system, how), few)[1]]
        for name, system, how in (
            ("warm", hard, replace(SHORT, warmup_fraction=0.5)),
            ("mean", averaged, SHORT),
            ("hard", hard, SHORT),
        )
    }
    assert losses["warm"][0] == losses["mean"][0] < losses["hard"][0]
    assert losses["warm"][1] > losses["mean"][1]


@pytest.mark.parametrize(("schedule", "keep"), [("cosine", "last"), ("plateau", "best")])
def test_only_a_plateau_rule_chooses_an_epoch(few, monkeypatch, schedule, keep):
    asked = []
    monkeypatch.setattr(run, "fit", lambda *arguments, **more: asked.append(more["keep"]) or [])
    train(job(TRAINED["DC"], replace(SHORT, schedule=schedule)), few)
    assert asked == [keep]


# Dev losses, and the rates after each epoch: patience 3, a fifth, absolute threshold 1e-4.
PLATEAU = [.30, .25, .24995, .26, .25, .27, .25, .25, .25, .25, .25, .20]  # fmt: skip
RATES = [1e-4] * 5 + [2e-5] * 4 + [4e-6] * 3


def test_the_papers_own_settings_run_and_lower_the_rate_on_a_plateau(few, monkeypatch):
    how = replace(Settings(), width=8, word_width=32, epochs=2)
    history = train(job(SYSTEMS["TK+½k"], how), few)[1]
    assert how.schedule == "plateau"
    assert history[1]["train_loss"] < history[0]["train_loss"]
    rates = []

    def of_printed_losses(model, batches, step, evaluate, **more):
        for dev_loss in PLATEAU:
            step.end_epoch({"dev_loss": dev_loss})
            rates.append(step.optimizer.param_groups[0]["lr"])
        return []

    monkeypatch.setattr(run, "fit", of_printed_losses)
    train(job(SYSTEMS["DC"], how), few)
    assert rates == pytest.approx(RATES)


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


def test_cosines_are_dot_products_of_unit_vectors_without_padding():
    arrays = uneven()
    trained, source = net(arrays, SMALL), Batches(arrays, "test", "cpu")
    batch = source.batch([2, 5])
    text, images = trained.text(batch.ids, batch.lengths), trained.encode_images(batch.features)
    for vectors in (text, images):
        assert vectors.norm(dim=-1).detach().numpy() == pytest.approx(1, abs=1e-6)
    n, m = batch.rows.sum(1), batch.columns.sum(1)
    found = trained(batch)[0][0, 1, : n[0], : m[1]]
    assert torch.allclose(found, text[: n[0]] @ images[m[0] :].T, atol=1e-6)
    longer = torch.nn.functional.pad(batch.ids, (0, 3), value=7)  # words that do not count
    assert torch.equal(trained.text(longer, batch.lengths), text)


def test_dropout_takes_whole_channels_in_training_only():
    arrays = uneven()
    trained = net(arrays, replace(SMALL, dropout=0.5))
    batch = Batches(arrays, "test", "cpu").batch([2])
    calm = trained.text(batch.ids, batch.lengths)
    assert torch.equal(trained.text(batch.ids, batch.lengths), calm)
    trained.train()
    trained.text.gru = torch.nn.Module()  # keeps what it is given
    seen = []
    trained.text.gru.forward = lambda words, ids, lengths: seen.append(words) or calm
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
    drawn = random_batches(split, 3, np.random.default_rng(0))
    passes = [[next(drawn) for _ in range(4)] for _ in range(50)]  # 2 of the first, 2 of the last
    for one in passes:
        used = np.concatenate(one)
        assert len(set(used)) == len(used) == 12
        assert all(len(set(split.rounds[batch])) == 1 for batch in one)
    assert len({tuple(np.concatenate(one)) for one in passes}) == 50
    assert {int(i) for one in passes for batch in one for i in batch} == set(
        np.flatnonzero(split.rounds != 1)
    )  # what a pass leaves out has its turn in another
    again = random_batches(split, 3, np.random.default_rng(0))
    assert all((next(again) == batch).all() for one in passes for batch in one)
    with pytest.raises(ValueError, match="no round has 8 documents"):
        next(random_batches(split, 8, np.random.default_rng(0)))


def test_fixed_batches_cover_everything_with_as_many_negatives():
    split = rounds_of(7, 2, 6, 1)
    found = fixed_batches(split, 3)
    assert [len(batch) for batch in found] == [3, 3, 3, 2, 3, 3]  # a lone document has none
    assert all(len(set(batch)) == len(batch) for batch in found)
    assert all(len(set(split.rounds[batch])) == 1 for batch in found)
    assert set(np.concatenate(found)) == set(np.flatnonzero(split.rounds != 3))
    assert all((a == b).all() for a, b in zip(found, fixed_batches(split, 3), strict=True))
