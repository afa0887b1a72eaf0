"""The training loop: seeds, schedules, the best epoch, and stopping and going on."""

import math
import re
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

from mmlib.core.errors import DataError
from mmlib.core.fit import Descent, fit, seed_everything, still_improving, warm_up_cosine
from mmlib.core.jobs import Run

EPOCHS, STEPS = 5, 3


class Stopped(Exception):
    """Stands for the power cut."""


def run(checkpoint=None, seed=0, plateau=False, stop=(), evaluate=None):
    """A network with dropout, trained on noise; `stop`: (place, epoch) where it breaks off."""
    seed_everything(seed)
    net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1))
    data = torch.randn(STEPS, 6, 4, generator=torch.Generator().manual_seed(1))
    optimizer = torch.optim.AdamW(net.parameters(), 0.05)
    schedule = (
        ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
        if plateau
        else LambdaLR(optimizer, lambda step: warm_up_cosine(step, EPOCHS * STEPS, 2))
    )
    now = {"epoch": 0}

    def place(name):
        if stop == (name, now["epoch"]):
            raise Stopped

    def batches(epoch):
        now["epoch"] = epoch
        for batch in data[torch.randperm(STEPS)]:  # follows the seed, as dropout does
            yield batch
            place("batch")

    def measured():
        place("evaluate")
        assert not net.training
        assert not torch.is_grad_enabled()
        return {"dev_loss": net(data[0]).square().mean(), "rate": optimizer.param_groups[0]["lr"]}

    def loss(batch):
        return (net(batch) - batch.sum(1, keepdim=True)).square().mean()

    history = fit(
        net, batches, Descent(loss, optimizer, schedule), evaluate or measured, epochs=EPOCHS,
        seed=seed, run=Run(checkpoint=checkpoint, after_epoch=lambda history: place("after")),
    )  # fmt: skip
    return net, history


def same(a, b) -> bool:
    states = a[0].state_dict(), b[0].state_dict()
    return a[1] == b[1] and all(torch.equal(states[0][key], states[1][key]) for key in states[0])


def test_the_same_seed_gives_the_same_weights_and_another_seed_others():
    assert same(run(), run())
    assert not same(run(), run(seed=1))


@pytest.mark.parametrize("plateau", [False, True])
@pytest.mark.parametrize("epoch", range(EPOCHS))
@pytest.mark.parametrize("place", ["batch", "evaluate", "after"])
def test_a_stopped_training_goes_on_to_identical_weights(tmp_path, place, epoch, plateau):
    whole, path = run(plateau=plateau), tmp_path / "run.pt"
    with pytest.raises(Stopped):
        run(path, plateau=plateau, stop=(place, epoch))
    kept = epoch + (place == "after")
    assert path.exists() == (kept > 0)
    if kept:
        assert len(torch.load(path, weights_only=True)["history"]) == kept
    assert same(run(path, plateau=plateau), whole)
    assert same(run(path, plateau=plateau), whole)  # nothing is left to train
    assert [p.name for p in tmp_path.iterdir()] == ["run.pt"]


def test_a_checkpoint_of_a_gpu_is_taken_up_without_one(tmp_path, written_on_a_gpu):
    path = tmp_path / "run.pt"
    with written_on_a_gpu(), pytest.raises(Stopped):
        run(path, stop=("after", 1))
    with pytest.raises(RuntimeError, match="CUDA"):
        torch.load(path, weights_only=True)  # so the file says that it is of a GPU
    assert same(run(path), run())


def test_a_damaged_checkpoint_is_named(tmp_path):
    path = tmp_path / "run.pt"
    run(path)
    whole = path.read_bytes()
    cut = (b"", b"no checkpoint\n" * 40, whole[: len(whole) // 2], whole[:-100], bytes(len(whole)))
    places = range(0, len(whole), len(whole) // 25)
    flipped = (whole[:i] + b"\xff" * 8 + whole[i + 8 :] for i in places)
    told = []
    for damaged in (*cut, *flipped):
        path.write_bytes(damaged)
        try:
            assert same(run(path), run())  # padding between the parts may be anything
        except DataError as error:
            told.append(str(error))
    assert len(told) > len(cut) + 10
    for line in told:
        assert re.fullmatch(r".*run\.pt: damaged; delete it to begin anew \(.*\)", line)


@pytest.mark.parametrize(
    "change",
    [
        lambda saved: {"a": 1}, lambda saved: [1, 2], lambda saved: None,
        lambda saved: torch.zeros(3),
        lambda saved: saved | {"model": None}, lambda saved: saved | {"best": {}},
        lambda saved: saved | {"best": [1]}, lambda saved: saved | {"step": None},
        lambda saved: saved | {"history": None}, lambda saved: saved | {"history": [1, 2]},
        lambda saved: saved | {"history": [{"loss": 1.0}]},
        lambda saved: saved | {"model": {n: v[:1] for n, v in saved["model"].items()}},
        lambda saved: saved | {"step": {"optimizer": {"state": {}, "param_groups": []}}},
    ],
)  # fmt: skip
def test_a_file_that_is_no_checkpoint_of_this_training_is_named(tmp_path, change):
    path = tmp_path / "run.pt"
    with pytest.raises(Stopped):
        run(path, stop=("after", 1))
    torch.save(change(torch.load(path, weights_only=True)), path)
    with pytest.raises(DataError, match=r"run\.pt: damaged; delete it"):
        run(path)


@pytest.mark.parametrize(("keep", "epoch"), [("best", 1), ("last", 4)])
def test_the_model_ends_with_the_weights_of_the_lowest_dev_loss_or_its_last(keep, epoch):
    losses, seen, net = [0.5, 0.3, 0.4, 0.3, 0.6], [], nn.Linear(2, 1)
    left, optimizer = iter(losses), torch.optim.SGD(net.parameters(), 0.1)
    step = Descent(lambda batch: net(batch).sum(), optimizer, LambdaLR(optimizer, lambda step: 1.0))
    history = fit(
        net, lambda epoch: [torch.ones(1, 2)], step, lambda: {"dev_loss": next(left)}, epochs=5,
        seed=0, keep=keep, run=Run(after_epoch=lambda history: seen.append(net.weight.tolist())),
    )  # fmt: skip
    assert [h["dev_loss"] for h in history] == losses
    same = [net.weight.tolist() == weight for weight in seen]
    assert same == [i == epoch for i in range(5)]  # of equally good ones the first
    assert not net.training


def test_a_loss_that_is_no_number_ends_the_training_with_its_epoch():
    with pytest.raises(FloatingPointError, match="epoch 1: not a number"):
        run(evaluate=lambda: {"dev_loss": math.nan})


def test_an_epoch_without_a_batch_says_what_to_change():
    with pytest.raises(DataError, match="nothing is trained: take more training items"):
        fit(nn.Linear(1, 1), lambda epoch: [], None, dict, epochs=1, seed=0)


def test_a_step_may_have_several_losses_and_no_dev_loss():
    """As that of a training with extra batches: each loss is the mean over its own batches."""

    class Counting:
        ended = ()

        def __call__(self, batch):
            return {"extra_loss" if batch > 1 else "train_loss": torch.tensor(float(batch))}

        def end_epoch(self, figures):
            self.ended = (*self.ended, figures)

    net, step = nn.Linear(1, 1), Counting()
    history = fit(net, lambda epoch: [1, 2, 4], step, dict, epochs=2, seed=0, keep="last")
    assert history == [*step.ended] == [{"train_loss": 1, "extra_loss": 3}] * 2
    with pytest.raises(KeyError, match="dev_loss"):
        fit(net, lambda epoch: [1], step, dict, epochs=1, seed=0, keep="best")


def test_the_rate_of_a_plateau_and_that_of_a_cosine_fall():
    steps = range(STEPS, EPOCHS * STEPS + 1, STEPS)
    rates = [0.05 * warm_up_cosine(step, EPOCHS * STEPS, 2) for step in steps]
    assert [h["rate"] for h in run()[1]] == pytest.approx(rates)
    best, rate = math.inf, 0.05
    for epoch in run(plateau=True)[1]:
        assert epoch["rate"] == pytest.approx(rate)  # as the epoch was trained
        rate *= 0.5 if epoch["dev_loss"] > best * (1 - 1e-4) else 1
        best = min(best, epoch["dev_loss"])


def test_the_warm_up_is_linear_and_then_half_a_cosine():
    found = [warm_up_cosine(step, 24, 4) for step in range(25)]
    assert found[:4] == [0.25, 0.5, 0.75, 1.0]
    assert found[4] == 1
    assert found[14] == pytest.approx(0.5)
    assert found[24] == pytest.approx(0)
    assert all(a >= b for a, b in pairwise(found[4:]))
    assert warm_up_cosine(0, 1, 1) == 1
    assert warm_up_cosine(1, 1, 1) == 1


@pytest.mark.parametrize(
    ("losses", "early"),
    [
        ([1.0, 0.5, 0.3, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.249], False),  # flat
        ([1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1], True),  # a straight line
        ([1.0, 0.5, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9], False),  # overfits
        ([1.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.47], True),  # 3 of 53 hundredths
        ([1.0, 1.1, 1.2, 1.3, 1.4], False),  # never learned
        ([1.0], True),  # nobody can tell
    ],
)
def test_a_curve_that_still_falls_is_flagged(losses, early):
    assert still_improving(losses) is early
