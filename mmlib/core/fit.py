"""The training loop, one for all papers."""

import math
import random
import zipfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.backends import mkldnn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from mmlib.core.errors import DataError
from mmlib.core.jobs import History, Run
from mmlib.core.paths import write_atomic


def seed_everything(*seeds: int) -> None:
    """Seed Python, NumPy and PyTorch from one or more integers."""
    state = int(np.random.SeedSequence(seeds).generate_state(1)[0])
    random.seed(state)
    np.random.seed(state)  # noqa: NPY002  libraries that still use the global generator
    torch.manual_seed(state)


def warm_up_cosine(step: int, steps: int, warm_up: int) -> float:
    """Share of the peak rate at `step`: linear from 0 over `warm_up` steps, then half a cosine."""
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.5 * (1 + math.cos(math.pi * (step - warm_up) / max(1, steps - warm_up)))


@dataclass
class Descent:
    """The usual step: one loss, one optimizer, one schedule of its learning rate.

    `fit` takes whatever has these four methods, such as a step of two updates.
    loss: batch -> scalar. schedule: stepped with every batch; a plateau rule with every epoch's
    dev loss.
    """

    loss: Callable[[Any], Tensor]
    optimizer: Optimizer
    schedule: LRScheduler | ReduceLROnPlateau

    def __call__(self, batch: Any) -> dict[str, Tensor]:
        """One update; "train_loss"."""
        value = self.loss(batch)
        self.optimizer.zero_grad(set_to_none=True)
        value.backward()
        self.optimizer.step()
        if not isinstance(self.schedule, ReduceLROnPlateau):
            self.schedule.step()
        return {"train_loss": value.detach()}

    def end_epoch(self, figures: Mapping[str, float]) -> None:
        """Show a plateau rule the dev loss."""
        if isinstance(self.schedule, ReduceLROnPlateau):
            self.schedule.step(figures["dev_loss"])

    def state_dict(self) -> dict[str, Any]:
        """Of optimizer and schedule."""
        return {name: getattr(self, name).state_dict() for name in ("optimizer", "schedule")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Of optimizer and schedule."""
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])


def fit(
    model: nn.Module,
    batches: Callable[[int], Iterable[Any]],
    step: Any,
    evaluate: Callable[[], Mapping[str, float]],
    *,
    epochs: int,
    seed: int,
    keep: Literal["best", "last"] = "best",
    run: Run = Run(),
) -> History:
    """Train; the model ends with the weights of its best epoch, or of its last.

    batches: epoch -> its batches, a function of the epoch alone. evaluate: -> figures of the epoch,
    "dev_loss" among them unless the last epoch is kept. keep: "best" is the epoch of lowest dev
    loss. run: its checkpoint is written after every epoch and read at the start where it exists, on
    whatever device, so that a training that was stopped ends with the figures of one that was not.

    Returns one dict an epoch: the losses' means, and what `evaluate` found. Raises
    FloatingPointError when a figure is no longer a number, DataError for a damaged checkpoint and
    for an epoch without a batch.
    """
    history: History = []
    best: dict[str, Tensor] = {}
    if run.checkpoint and run.checkpoint.exists():
        history, best = _resume(run.checkpoint, model, step, run.device, keep)
    for epoch in range(len(history), epochs):
        seed_everything(seed, epoch)  # by its number: a resumed run needs no generator states
        model.train()
        losses: dict[str, list[Tensor]] = {}
        # A step may update weights and go on with them, which a cache would not see.
        kind, mixed = torch.device(run.device).type, run.precision == "bf16"
        no_dnn = mixed and kind == "cpu"  # its LSTM takes not every shape in bf16
        with (
            torch.autocast(kind, torch.bfloat16, enabled=mixed, cache_enabled=False),
            mkldnn.flags(enabled=False) if no_dnn else nullcontext(),
        ):
            for batch in batches(epoch):
                for name, loss in step(batch).items():
                    losses.setdefault(name, []).append(loss)
        if not losses:
            raise DataError("nothing is trained: take more training items, or a smaller batch")
        model.eval()
        with torch.no_grad():
            measured = {name: float(value) for name, value in evaluate().items()}
        # Read once an epoch, not a step: reading waits for a GPU.
        figures = {n: float(sum(v)) / len(v) for n, v in losses.items()} | measured
        if not all(map(math.isfinite, figures.values())):
            raise FloatingPointError(f"epoch {epoch + 1}: not a number among {figures}")
        step.end_epoch(figures)
        if keep == "best" and figures["dev_loss"] < min(
            (h["dev_loss"] for h in history), default=math.inf
        ):
            best = {name: value.clone() for name, value in model.state_dict().items()}
        history.append(figures)
        if run.checkpoint:
            state: dict[str, Any] = {"model": model.state_dict(), "step": step.state_dict()}
            state |= {"history": history, "best": best}
            write_atomic(run.checkpoint, partial(torch.save, state))
        run.after_epoch(history)
    if best:
        model.load_state_dict(best)
    model.eval()
    run.keep(model, history, bool(best))
    return history


def _resume(
    path: Path, model: nn.Module, step: Any, device: str, keep: str
) -> tuple[History, dict[str, Tensor]]:
    """Put a model and its step where a training was stopped; its history and best weights.

    Raises DataError for a file whose checksums are wrong, or that is another model's.
    """
    try:
        with zipfile.ZipFile(path) as archive:  # PyTorch reads flipped bits without a word
            if broken := archive.testzip():
                raise ValueError(f"{broken} has another checksum")
        saved = torch.load(path, map_location=device, weights_only=True)
        history, best = saved["history"], saved["best"]
        if not all(keep == "last" or "dev_loss" in figures for figures in history):
            raise ValueError("its history is none")
        if keep == "best":
            model.load_state_dict(best)  # fails now, not after the training
        model.load_state_dict(saved["model"])
        step.load_state_dict(saved["step"])
        return history, best
    except Exception as error:  # whatever a damaged file, or another's, leads to
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:100]
        raise DataError(f"{path}: damaged; delete it to begin anew ({reason})") from None


def still_improving(dev_losses: np.ndarray | list[float], share: float = 0.02) -> bool:
    """Whether the dev loss (epochs,) of a training had not become flat at its end.

    True when the lowest one of the last fifth of the epochs lies below the lowest one before by
    more than `share` of all that the training gained.
    """
    losses = np.asarray(dev_losses, dtype=float)
    cut = len(losses) - max(1, len(losses) // 5)
    if cut < 1:
        return True
    gained = losses[0] - losses.min()
    return bool(losses[:cut].min() - losses[cut:].min() > share * gained)
