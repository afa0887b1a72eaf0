"""The training loop: schedules, best epochs, stops and restarts; and the pool of jobs."""

import json
import math
import multiprocessing
import os
import random
import signal
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from mmlib import training
from mmlib.training import fit, run_jobs, seed_everything, settings_hash

# --- A small training ------------------------------------------------------------------------

EPOCHS, BATCHES = 6, 5


def toy(stop_at=None, stop=None, checkpoint=None, epochs=EPOCHS, **changes):
    """Fit a small network with dropout on drawn batches; `stop()` is called in batch `stop_at`.

    Returns the history and the weights. stop_at: (epoch, batch), both from 0.
    """
    seed_everything(7)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1), nn.Dropout(0.2))
    drawn = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)

    def batches(epoch):
        order = np.random.default_rng([7, epoch]).permutation(50).reshape(BATCHES, 10)
        for i, rows in enumerate(order):
            yield epoch, i, torch.from_numpy(drawn[rows])

    def loss(batch):
        epoch, i, inputs = batch
        if (epoch, i) == stop_at:
            stop()
        return (model(inputs).squeeze(1) - inputs.sum(1)).square().mean()

    def evaluate():
        inputs = torch.from_numpy(drawn)
        return {"dev_loss": (model(inputs).squeeze(1) - inputs.sum(1)).square().mean().item()}

    history = fit(
        model, batches, loss, evaluate, epochs=epochs, learning_rate=0.02, patience=1, seed=7,
        checkpoint=checkpoint, **changes,
    )  # fmt: skip
    return history, [p.tolist() for p in model.parameters()]


def interrupt():
    raise KeyboardInterrupt


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("stop_at", [(0, 2), (1, 0), (3, 4), (5, 1)])
def test_an_interrupted_training_ends_with_the_same_figures(stop_at, tmp_path):
    checkpoint = tmp_path / "run.pt"
    with pytest.raises(KeyboardInterrupt):
        toy(stop_at, interrupt, checkpoint)
    assert checkpoint.exists() == (stop_at[0] > 0)
    ran = []
    assert toy((stop_at[0], 0), lambda: ran.append(1), checkpoint) == toy()
    assert ran  # the interrupted epoch was run again from its first batch
    assert not list(tmp_path.glob("*partial*"))


def test_a_killed_training_ends_with_the_same_figures(tmp_path):
    """A real process, killed with no chance to clean up, in the middle of epoch 3."""
    checkpoint = tmp_path / "run.pt"
    start = "fork" if sys.platform == "linux" else "spawn"  # forking spares the imports
    process = multiprocessing.get_context(start).Process(
        target=toy, args=((3, 2), kill, checkpoint)
    )
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert len(torch.load(checkpoint, weights_only=True)["history"]) == 3
    assert toy(checkpoint=checkpoint) == toy()


def test_a_checkpoint_of_a_gpu_is_taken_up_without_one(tmp_path, written_on_a_gpu):
    checkpoint = tmp_path / "run.pt"
    with written_on_a_gpu(), pytest.raises(KeyboardInterrupt):
        toy((3, 0), interrupt, checkpoint)
    with pytest.raises(RuntimeError, match="CUDA"):
        torch.load(checkpoint, weights_only=True)  # so the file says that it is of a GPU
    assert toy(checkpoint=checkpoint) == toy()


def test_a_finished_training_is_not_run_again(tmp_path):
    checkpoint = tmp_path / "run.pt"
    first = toy(checkpoint=checkpoint)
    assert toy((0, 0), interrupt, checkpoint) == first


def test_a_training_can_be_made_longer(tmp_path):
    checkpoint = tmp_path / "run.pt"
    toy(checkpoint=checkpoint, epochs=3)
    assert toy(checkpoint=checkpoint) == toy()


def test_the_seed_decides():
    assert toy() == toy()
    first, other = ({}, {})
    for seed, into in ((1, first), (2, other)):
        into["state"] = seed_everything(seed) or [
            random.random(), np.random.rand(), torch.rand(1).item()  # noqa: NPY002
        ]  # fmt: skip
    assert all(a != b for a, b in zip(first["state"], other["state"], strict=True))
    seed_everything(1)
    assert random.random() == first["state"][0]
    assert np.random.rand() == first["state"][1]  # noqa: NPY002
    assert torch.rand(1).item() == first["state"][2]


def test_a_half_written_checkpoint_does_not_take_the_place_of_a_whole_one(tmp_path, monkeypatch):
    checkpoint, save = tmp_path / "run.pt", torch.save
    toy(checkpoint=checkpoint, epochs=2)

    def torn(state, path):
        save(state, path)
        with open(path, "r+b") as file:
            file.truncate(100)
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", torn)
        with pytest.raises(OSError, match="no space"):
            toy(checkpoint=checkpoint)
    assert [p.name for p in tmp_path.iterdir()] == ["run.pt"]
    assert toy(checkpoint=checkpoint) == toy()


# --- Rates, best epochs, bad numbers ---------------------------------------------------------


def scripted(dev_losses, learning_rate=1e-4, patience=3, **changes):
    """Fit a one-weight model whose dev losses are given; returns model, history and weights."""
    model, losses, weights = nn.Linear(1, 1), iter(dev_losses), []

    def evaluate():
        weights.append({name: w.clone() for name, w in model.state_dict().items()})
        return {"dev_loss": next(losses)}

    history = fit(
        model,
        lambda epoch: [torch.ones(1, 1)],
        lambda batch: model(batch).sum(),
        evaluate,
        epochs=len(dev_losses),
        learning_rate=learning_rate,
        patience=patience,
        seed=0,
        **changes,
    )
    return model, history, weights


PLATEAU = [0.30, 0.25, 0.24995, 0.26, 0.25, 0.27, 0.25, 0.25, 0.25, 0.25, 0.25, 0.20]


def test_the_rate_falls_on_the_printed_plateaus():
    """The printed rates are those after each epoch; the history holds the rate of each epoch."""
    _, history, _ = scripted([*PLATEAU, 0.2])
    after = [h["learning_rate"] for h in history[1:]]
    assert after == pytest.approx([1e-4] * 5 + [2e-5] * 4 + [4e-6] * 3)
    assert history[0]["learning_rate"] == 1e-4


def test_the_rate_has_a_floor():
    _, history, _ = scripted([0.3] * 30, patience=0)
    assert history[-1]["learning_rate"] == pytest.approx(1e-7)


def test_the_rate_survives_a_restart(tmp_path):
    checkpoint = tmp_path / "run.pt"
    scripted(PLATEAU[:5], checkpoint=checkpoint)
    _, _, model_losses = scripted(PLATEAU[:5], checkpoint=checkpoint)
    assert model_losses == []  # nothing was left to do

    model, rest = nn.Linear(1, 1), iter([*PLATEAU[5:], 0.2])
    history = fit(
        model, lambda epoch: [torch.ones(1, 1)], lambda batch: model(batch).sum(),
        lambda: {"dev_loss": next(rest)}, epochs=13, learning_rate=1e-4, patience=3, seed=0,
        checkpoint=checkpoint,
    )  # fmt: skip
    after = [h["learning_rate"] for h in history[1:]]
    assert after == pytest.approx([1e-4] * 5 + [2e-5] * 4 + [4e-6] * 3)


@pytest.mark.parametrize(
    ("losses", "best"), [([0.4, 0.2, 0.3], 1), ([0.4, 0.2, 0.2], 1), ([0.1, 0.2, 0.3], 0)]
)
def test_the_model_ends_with_the_weights_of_the_best_epoch(losses, best):
    model, _, weights = scripted(losses, learning_rate=0.1)
    assert not model.training
    for name, value in model.state_dict().items():
        assert torch.equal(value, weights[best][name])
        assert not torch.equal(value, weights[2][name]) or best == 2


def test_a_gain_below_the_plateau_threshold_still_counts_as_best():
    model, _, weights = scripted([0.25, 0.24999], learning_rate=0.1)
    assert torch.equal(model.weight, weights[1]["weight"])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_training_loss_that_is_no_number_raises(bad):
    model = nn.Linear(1, 1)
    losses = iter([1.0, bad])
    with pytest.raises(FloatingPointError, match=rf"the loss is {bad} in epoch 1"):
        fit(
            model, lambda epoch: [None], lambda batch: model.weight.square().sum() * next(losses),
            lambda: {"dev_loss": 1.0}, epochs=3, learning_rate=0.1, patience=3, seed=0,
        )  # fmt: skip


def test_a_dev_loss_that_is_no_number_raises(tmp_path):
    checkpoint = tmp_path / "run.pt"
    with pytest.raises(FloatingPointError, match="dev loss is nan in epoch 1"):
        scripted([0.4, math.nan, 0.3], checkpoint=checkpoint)
    assert len(torch.load(checkpoint, weights_only=True)["history"]) == 1


def test_numpy_figures_survive_a_checkpoint(tmp_path):
    checkpoint = tmp_path / "run.pt"
    scripted([np.float64(0.4)], checkpoint=checkpoint)
    _, history, _ = scripted([0.3], checkpoint=checkpoint)
    assert history[0]["dev_loss"] == 0.4


def test_the_history_names_its_figures():
    history, _ = toy(epochs=2)
    assert [set(h) for h in history] == [{"train_loss", "learning_rate", "dev_loss"}] * 2
    assert history[1]["dev_loss"] < history[0]["dev_loss"]


def test_dropout_is_off_while_the_dev_loss_is_taken():
    model, modes = nn.Linear(1, 1), []

    def evaluate():
        modes.append((model.training, torch.is_grad_enabled()))
        return {"dev_loss": 1.0}

    def loss(batch):
        modes.append((model.training, torch.is_grad_enabled()))
        return model(batch).sum()

    fit(
        model, lambda epoch: [torch.ones(1, 1)], loss, evaluate,
        epochs=2, learning_rate=0.1, patience=3, seed=0,
    )  # fmt: skip
    assert modes == [(True, True), (False, False)] * 2


# --- Jobs ------------------------------------------------------------------------------------


def square(number, log=None, fail=False, checkpoint=None):
    """Answers number²; notes in the file `log` that it ran."""
    if log:
        with open(log, "a") as file:
            file.write(f"{number}\n")
    if fail:
        raise RuntimeError(f"job {number} failed")
    return {"square": number**2, "process": os.getpid(), "threads": torch.get_num_threads()}


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.txt"
    path.touch()
    return path


def ran(log) -> list[int]:
    numbers = [int(line) for line in log.read_text().split()]
    log.write_text("")
    return numbers


def jobs_of(numbers, log, fail=()):
    return [({"number": n}, {"log": str(log), "fail": n in fail}) for n in numbers]


def test_finished_jobs_are_reused_only_with_resume(tmp_path, log):
    run = partial(run_jobs, square, folder=tmp_path / "jobs", workers=1)
    first = run(jobs_of([3, 1, 2], log))
    assert [a["square"] for a in first] == [9, 1, 4]
    assert ran(log) == [3, 1, 2]
    again = run(jobs_of([2, 3, 4], log), resume=True)
    assert ran(log) == [4]
    assert [a["square"] for a in again] == [4, 9, 16]
    run(jobs_of([2, 3], log))
    assert ran(log) == [2, 3]


def test_another_source_makes_stored_answers_stale(tmp_path, log, monkeypatch):
    run = partial(run_jobs, square, folder=tmp_path / "jobs", workers=1, resume=True)
    run(jobs_of([1, 2], log))
    assert ran(log) == [1, 2]
    monkeypatch.setattr(training, "source_hash", lambda: "another source")
    run(jobs_of([1, 2], log))
    assert ran(log) == [1, 2]


@pytest.mark.parametrize("name", ["module.py", "words.yaml"])
def test_the_source_hash_sees_every_module(tmp_path, monkeypatch, name):
    (tmp_path / "part").mkdir()
    module = tmp_path / "part" / name
    module.write_text("x = 1\n")
    monkeypatch.setattr(training, "PACKAGE", tmp_path)
    hashes = []
    for text in ("x = 1\n", "x = 2\n", "x = 1\n"):
        module.write_text(text)
        training.source_hash.cache_clear()
        hashes.append(training.source_hash())
    training.source_hash.cache_clear()
    assert hashes[0] == hashes[2] != hashes[1]


def test_a_failure_keeps_what_was_finished(tmp_path, log):
    run = partial(run_jobs, square, folder=tmp_path / "jobs", workers=1, resume=True)
    with pytest.raises(RuntimeError, match="job 2 failed"):
        run(jobs_of([1, 2, 3], log, fail=[2]))
    assert ran(log) == [1, 2]
    assert [a["square"] for a in run(jobs_of([1, 2, 3], log))] == [1, 4, 9]
    assert ran(log) == [2, 3]


def test_answers_come_in_the_order_of_the_jobs_from_processes_of_one_thread(tmp_path, log):
    answers = run_jobs(square, jobs_of(range(6), log), tmp_path / "jobs", workers=2)
    assert [a["square"] for a in answers] == [0, 1, 4, 9, 16, 25]
    assert {a["threads"] for a in answers} == {1}
    assert os.getpid() not in {a["process"] for a in answers}
    files = sorted((tmp_path / "jobs").glob("*.json"))
    assert len(files) == 6
    assert {json.loads(f.read_text())["job"]["number"] for f in files} == set(range(6))


def test_no_jobs_give_no_answers(tmp_path):
    assert run_jobs(square, [], tmp_path / "jobs") == []


def stopped_once(name, stop, checkpoint):
    history, _ = toy((2, 1), interrupt if stop else int, checkpoint)
    return {"history": history, "had_checkpoint": checkpoint.exists()}


def test_a_stopped_job_goes_on_from_its_last_epoch(tmp_path):
    run = partial(run_jobs, stopped_once, folder=tmp_path / "jobs", workers=1)
    with pytest.raises(KeyboardInterrupt):
        run([({"name": "a"}, {"stop": True})])
    (checkpoint,) = (tmp_path / "jobs").glob("*.pt")
    assert len(torch.load(checkpoint, weights_only=True)["history"]) == 2
    (answer,) = run([({"name": "a"}, {"stop": False})], resume=True)
    assert answer["history"] == toy()[0]
    assert not checkpoint.exists()  # an answer needs none


def refuses_a_checkpoint(name, checkpoint):
    assert not Path(checkpoint).exists()
    return {}


def test_without_resume_a_checkpoint_is_forgotten(tmp_path):
    folder, jobs = tmp_path / "jobs", [({"name": "a"}, {})]
    run_jobs(refuses_a_checkpoint, jobs, folder, workers=1)
    (answer,) = folder.glob("*.json")
    answer.with_suffix(".pt").write_text("of an older run")
    assert run_jobs(refuses_a_checkpoint, jobs, folder, workers=1) == [{}]


def test_the_settings_hash_knows_settings_not_their_order():
    assert settings_hash({"a": 1, "b": [2, 3]}) == settings_hash({"b": [2, 3], "a": 1})
    assert settings_hash({"a": 1}) != settings_hash({"a": 2})
    assert settings_hash({"a": 1}) == "f9d86028c6e0d64e"  # in every process
