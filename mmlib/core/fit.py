"""The training loop, one for all papers."""

import math
import random
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from mmlib.core.errors import DataError
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


def fit(
    model: nn.Module,
    batches: Callable[[int], Iterable[Any]],
    loss: Callable[[Any], Tensor],
    evaluate: Callable[[], dict[str, float]],
    *,
    epochs: int,
    optimizer: torch.optim.Optimizer,
    schedule: LRScheduler | ReduceLROnPlateau,
    seed: int,
    keep: Literal["best", "last"] = "best",
    device: str = "cpu",
    bf16: bool = False,
    checkpoint: Path | None = None,
    after_epoch: Callable[[list[dict[str, float]]], object] = lambda history: None,
) -> list[dict[str, float]]:
    """Train; the model ends with the weights of its best epoch, or of its last.

    batches: epoch -> its batches, a function of the epoch alone. loss: batch -> scalar.
    evaluate: -> figures of the epoch, among them "dev_loss". schedule: stepped with every batch;
    a plateau rule with every epoch's dev loss. keep: "best" is the epoch of lowest dev loss.
    bf16: forward passes in bfloat16 (autocast). checkpoint: written after every epoch and read at
    the start where it exists, on whatever device, so that a run that was stopped ends with the
    figures of one that was not. after_epoch: is shown the history, to draw it, say.

    Returns one dict an epoch. Raises FloatingPointError when the loss is no longer a number,
    DataError for a damaged checkpoint.
    """
    history: list[dict[str, float]] = []
    best = {name: value.clone() for name, value in model.state_dict().items()}
    if checkpoint and checkpoint.exists():
        try:
            saved = torch.load(checkpoint, map_location=device, weights_only=True)
        except (RuntimeError, EOFError, UnpicklingError) as error:
            raise DataError(f"{checkpoint}: damaged; delete it to begin anew ({error})") from None
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        schedule.load_state_dict(saved["schedule"])
        history, best = saved["history"], saved["best"]
    for epoch in range(len(history), epochs):
        seed_everything(seed, epoch)  # by its number: a resumed run needs no generator states
        model.train()
        total, count = torch.zeros((), device=device), 0
        for batch in batches(epoch):
            with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=bf16):
                value = loss(batch)
            optimizer.zero_grad(set_to_none=True)
            value.backward()
            optimizer.step()
            if not isinstance(schedule, ReduceLROnPlateau):
                schedule.step()
            total, count = total + value.detach(), count + 1  # read once an epoch, not a step
        model.eval()
        with torch.no_grad():
            figures = {name: float(value) for name, value in evaluate().items()}
        figures = {"train_loss": float(total) / max(count, 1), **figures}
        if not all(map(math.isfinite, figures.values())):
            raise FloatingPointError(f"epoch {epoch + 1}: not a number among {figures}")
        if isinstance(schedule, ReduceLROnPlateau):
            schedule.step(figures["dev_loss"])
        if figures["dev_loss"] < min((h["dev_loss"] for h in history), default=math.inf):
            best = {name: value.clone() for name, value in model.state_dict().items()}
        history.append(figures)
        if checkpoint:
            parts = {"model": model, "optimizer": optimizer, "schedule": schedule}
            state = {name: part.state_dict() for name, part in parts.items()}  # type: ignore[attr-defined]
            state |= {"history": history, "best": best}
            write_atomic(checkpoint, partial(torch.save, state))
        after_epoch(history)
    if keep == "best":
        model.load_state_dict(best)
    model.eval()
    return history


def still_improving(dev_losses: "np.ndarray | list[float]", share: float = 0.02) -> bool:
    """Whether a training ended too early: flags a figure whose dev curve had not become flat.

    True when the lowest dev loss of the last fifth of the epochs lies below the lowest one before
    by more than `share` of all that the training gained.
    """
    losses = np.asarray(dev_losses, dtype=float)
    cut = len(losses) - max(1, len(losses) // 5)
    if cut < 1:
        return True
    gained = losses[0] - losses.min()
    return bool(losses[:cut].min() - losses[cut:].min() > share * gained)
