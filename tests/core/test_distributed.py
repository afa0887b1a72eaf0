"""One training on two processes gives the figures of one."""

import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from tiny_links import HOW, SYSTEMS, job, uneven
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR

from mmlib.core import distributed
from mmlib.core.fit import fit, seed_everything
from mmlib.papers.links import model


def links(name):
    """Paper 04's model on documents of unequal sizes, with dropout, in batches of three."""
    system, settings = replace(SYSTEMS[name], b=2), replace(HOW, steps=4)
    trained, history = model.train(job(system, settings), uneven())
    return {"history": history, "weights": trained.state_dict()}


def scaled(fit):
    """Two encoders and a scale beside them, by SGD: Adam would not see gradients twice as long."""
    seed_everything(0)
    net = nn.ModuleDict({"a": nn.Linear(4, 3), "b": nn.Linear(4, 3), "scale": nn.Linear(1, 1)})
    data = torch.randn(4, 5, 4)

    def loss(x):
        return F.cross_entropy(net["scale"].weight * net["a"](x) @ net["b"](x).T, torch.arange(5))

    optimizer = torch.optim.SGD(net.parameters(), 0.3)
    history = fit(
        net, lambda epoch: data, loss, lambda: {"dev_loss": loss(data[0])}, epochs=3, seed=0,
        optimizer=optimizer, schedule=LambdaLR(optimizer, lambda step: 1.0),
    )  # fmt: skip
    return {"history": history, "weights": net.state_dict()}


def every(fit):
    return {"scaled": scaled(fit), "NoStruct": links("NoStruct"), "AP+½k": links("AP+½k")}


def main(out):
    """What each of the two processes does."""
    torch.set_num_threads(1)
    model.fit = partial(distributed.fit, encoders=("text", "image"))
    with distributed.joined():
        rank, found = torch.distributed.get_rank(), every(partial(distributed.fit, encoders="ab"))
    torch.save(found, Path(out, f"{rank}.pt"))


@pytest.mark.slow
def test_two_processes_give_the_figures_of_one(tmp_path):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    subprocess.run(
        [*torchrun, "--nproc-per-node", "2", __file__, str(tmp_path)], check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    whole = every(fit)
    for rank in (0, 1):
        found = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        torch.testing.assert_close(found, whole, rtol=1e-5, atol=1e-5)
    for one in whole.values():  # there was something to agree on
        assert one["history"][-1]["train_loss"] < 0.95 * one["history"][0]["train_loss"]


def test_outside_of_torchrun_there_is_nobody_to_join(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(ValueError, match="RANK"), distributed.joined():
        pass


if __name__ == "__main__":
    main(sys.argv[1])
