"""What `mmlib record` asks of trainings: kept weights, mixed precision, a live curve."""

import sys
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest
import tiny_coherence
import tiny_cora
import tiny_jobs
import torch
from safetensors import safe_open
from tiny_jobs import Settings

from mmlib.core import engine, fit
from mmlib.core.engine import Resources
from mmlib.core.errors import DataError
from mmlib.core.jobs import Run
from mmlib.papers.coherence import run
from mmlib.papers.cora.run import train as cora
from mmlib.suite import cli, record, training
from mmlib.suite.training import How


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    """`mmlib record` knows the tests' own paper."""
    monkeypatch.setattr(engine, "source_hash", lambda *modules: "tiny")
    paper = tiny_jobs.experiment({"odd": Settings(3, 0.05)}, version=7)
    monkeypatch.setattr(record, "experiment_of", lambda number: paper)


def make(folder, how=How(), seeds=range(1), **more):
    resources = Resources(workers=1, folder=folder / "jobs")
    return record.record(
        "04", "world", seeds, datasets=["odd"], resources=resources, folder=folder, how=how, **more
    )


def test_weights_of_the_chosen_epoch_are_kept_with_a_card(tmp_path):
    make(tmp_path)  # finished without weights
    how = How(weights=tmp_path / "kept")
    plain = make(tmp_path / "b", how, range(2))
    for _ in range(2):  # trained again, or not at all: the same files
        paths = sorted((tmp_path / "kept").rglob("*.safetensors"))
        names = [path.relative_to(tmp_path / "kept").as_posix() for path in paths]
        assert names == [f"odd/{s}/{n}.safetensors" for s in "ab" for n in (0, 1)]
        make(tmp_path / "c", how, range(2))
    with safe_open(paths[1], "np") as file:
        card, bias = file.metadata()["card"], file.get_tensor("bias")
    losses = plain.curves("odd", "a", "dev_loss")[1]
    best = int(np.argmin(losses))
    assert card == (
        "tiny, odd, a, seed 1 (tier world, version 7 of the method); "
        f"epoch {best + 1} of 3: {card.partition('of 3: ')[2]}"
    )
    assert f"dev_loss {losses[best]:.4g}" in card
    assert float(bias.sum()) ** 2 == pytest.approx(losses[best], rel=1e-5)
    how(tiny_jobs.jobs([5])[0], Run("cpu", tmp_path / "k.pt")).keep(None, [], False)  # untrained
    assert plain.values("odd", "a", "AUC", [1])[0, 1] == pytest.approx(6.2 + bias[0], rel=1e-5)


def test_two_trainings_of_a_job_are_two_files(tmp_path):
    [job], how = tiny_jobs.jobs([0], ["a"], ["odd"]), How(weights=tmp_path)
    run = replace(how(job, Run(checkpoint=tmp_path / "jobs" / "key.pt")), checkpoint=None)
    for bias in (1.0, 2.0):
        net = torch.nn.Linear(1, 1)
        torch.nn.init.constant_(net.bias, bias)
        step = MagicMock(return_value={"train_loss": torch.zeros(())})
        dev = lambda: {"dev_loss": 0.0}  # noqa: E731
        fit.fit(net, lambda epoch: [0], step, dev, epochs=1, seed=0, keep="last", run=run)
    files = [tmp_path / "odd" / "a" / name for name in ("0.safetensors", "0-2.safetensors")]
    with safe_open(files[0], "np") as one, safe_open(files[1], "np") as two:
        assert (one.get_tensor("bias"), two.get_tensor("bias")) == (1.0, 2.0)


def test_mixed_precision_is_in_the_header_and_never_joins_other_records(tmp_path):
    mixed = make(tmp_path / "mixed", How("bf16"))
    plain = make(tmp_path / "plain")
    assert mixed.recordings[0]["precision"] == "bf16"
    assert plain.recordings[0]["precision"] == "float32"
    a, b = (one.curves("odd", "a", "train_loss") for one in (mixed, plain))
    assert a == pytest.approx(b, rel=0.05)
    assert (a != b).any()  # eight bits of a mantissa
    told = r"differs from what would be recorded now in the precision of trainings: record anew"
    for name, how in (("mixed", How()), ("plain", How("bf16"))):
        with pytest.raises(DataError, match=told):
            make(tmp_path / name, how, range(2))
    again = make(tmp_path / "elsewhere" / "..", How("bf16"))  # of the same jobs' folder
    assert again.series.equals(mixed.series)


@pytest.mark.parametrize(
    ("train", "job", "toy"),
    [
        (cora.train, tiny_cora.job("CORA", replace(tiny_cora.HOW, epochs=1)), tiny_cora.tiny),
        (run.train, tiny_coherence.job(run.CMCM), tiny_coherence.tiny),
    ],
)
def test_networks_of_graphs_and_lstms_train_in_mixed_precision(train, job, toy):
    data = toy()
    mixed, plain = (train(job, data, Run(precision=p))[1][0] for p in ("bf16", "float32"))
    assert mixed["train_loss"] == pytest.approx(plain["train_loss"], rel=0.05)
    assert mixed["train_loss"] != plain["train_loss"]
    assert torch.backends.mkldnn.enabled


def test_a_record_without_a_word_of_precision_is_float32(tmp_path):
    plain = dict(make(tmp_path).recordings[0])
    del plain["precision"]
    assert record.recordings.disagreement(plain, {**plain, "precision": "float32"}) == ""
    assert "precision" in record.recordings.disagreement(plain, {**plain, "precision": "bf16"})


def test_a_step_that_updates_weights_twice_sees_them(tmp_path):
    """With autocast's cache the second loss would be that of weights before the first update."""
    net, losses = torch.nn.Linear(4, 4), []

    def step(batch):
        for _ in range(2):
            loss = net(batch).float().square().mean()
            net.zero_grad()
            loss.backward()
            with torch.no_grad():
                for weight in net.parameters():
                    weight -= 0.5 * weight.grad
            losses.append(loss.item())
        return {"train_loss": loss.detach()}

    step.end_epoch = lambda figures: None
    batches = lambda epoch: [torch.ones(2, 4)]  # noqa: E731
    fit.fit(net, batches, step, dict, epochs=1, seed=0, keep="last", run=Run(precision="bf16"))
    assert losses[1] < 0.99 * losses[0]


def test_the_bar_shows_the_dev_figure_of_each_epoch(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(training, "LOOK", 0.01)
    make(tmp_path)
    said = capsys.readouterr().err
    for epoch in (1, 2):
        assert f"odd, a, seed 0, epoch {epoch}: dev_loss 0." in said
    assert "trainings left" in said.partition("epoch 1: ")[2]


def test_tensorboard_gets_every_epoch_where_it_is_asked_for(tmp_path, monkeypatch, capsys):
    words = ["record", "04", "--log", str(tmp_path / "log")]
    monkeypatch.setattr(cli, "find_spec", lambda name: None)
    assert cli.main(words) == 2
    assert "TensorBoard is not installed" in capsys.readouterr().err
    written = []
    writer = lambda folder: SimpleNamespace(add_scalar=lambda *row: written.append((folder, *row)))  # noqa: E731
    fake = SimpleNamespace(SummaryWriter=writer)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    training._writer.cache_clear()
    found = make(tmp_path, How(log=tmp_path / "log"))
    folder = str(tmp_path / "log" / "odd" / "b" / "0")
    losses = found.curves("odd", "b", "dev_loss")[0]
    mine = [row[2:] for row in written if row[:2] == (folder, "dev_loss")]
    assert mine == [(pytest.approx(loss, rel=1e-6), n) for n, loss in enumerate(losses, 1)]
