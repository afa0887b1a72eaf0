"""One training of paper 04, and what is measured of it."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, ReduceLROnPlateau

from mmlib.core.fit import Descent, fit, seed_everything, warm_up_cosine
from mmlib.core.jobs import Answer, History, Job, Run
from mmlib.papers.links.batches import Arrays, Batch, Batches, fixed_batches, random_batches
from mmlib.papers.links.method import LinkModel, batch_loss, cosine_matrices
from mmlib.papers.links.metrics import evaluate
from mmlib.papers.links.systems import Negatives, Settings, System

DEV_DRAWS = 100  # NoStruct's random pairs a document in the dev loss


def train(job: Job, arrays: Arrays, run: Run = Run()) -> tuple[LinkModel, History]:
    """Train one system on one corpus. Returns the model and the history.

    Under the cosine schedule the model is that of the last epoch: the rate has come to 0, and
    nothing is chosen. NoStruct's dev loss says little about links, and choosing by it took early
    epochs. Under the paper's plateau rule it is that of the lowest dev loss with averaged
    negatives, which no link label enters and which means the same in every epoch.
    History: an epoch's train_loss, dev_loss and, where dev has labels, dev_AUC.
    """
    system, settings = System(**job.system), Settings(**job.settings)
    seed_everything(job.seed)
    model = LinkModel(torch.tensor(arrays.words), arrays.features.shape[1], settings).to(run.device)
    training = Batches(arrays, "train", run.device)
    size = system.b + 1  # a document and its b negatives
    steps = settings.steps or len(training.split) // size
    optimizer = torch.optim.AdamW(
        model.parameters(), settings.learning_rate, weight_decay=settings.weight_decay, fused=True
    )

    def batches(epoch: int) -> Iterator[tuple[Batch, Negatives]]:
        rng = np.random.default_rng([job.seed, epoch])
        warmup = epoch < settings.warmup_fraction * settings.epochs
        for documents in islice(random_batches(training.split, size, rng), steps):
            yield training.batch(documents), "mean" if warmup else system.negatives

    def loss(batch: tuple[Batch, Negatives]) -> Tensor:
        return batch_loss(model, batch[0], system, settings, batch[1])

    history = fit(
        model, batches, Descent(loss, optimizer, schedule(optimizer, settings, steps)),
        dev_evaluation(model, arrays, system, settings, run.device), epochs=settings.epochs,
        seed=job.seed, keep="last" if settings.schedule == "cosine" else "best", run=run,
    )  # fmt: skip
    return model, history


def schedule(
    optimizer: Optimizer, settings: Settings, steps: int
) -> LRScheduler | ReduceLROnPlateau:
    """The learning rate's schedule; `steps` of an epoch."""
    if settings.schedule == "plateau":
        return ReduceLROnPlateau(
            optimizer, factor=0.2, patience=settings.patience, threshold=1e-4,
            threshold_mode="abs", min_lr=1e-7,
        )  # fmt: skip
    total = steps * settings.epochs
    return LambdaLR(optimizer, partial(warm_up_cosine, steps=total, warm_up=max(1, total // 20)))


def dev_evaluation(
    model: LinkModel, arrays: Arrays, system: System, settings: Settings, device: str
) -> Callable[[], dict[str, float]]:
    """What `fit` asks for after each epoch: dev_loss and, where dev has labels, dev_AUC."""
    dev = Batches(arrays, "val", device)
    batches = [dev.batch(documents) for documents in fixed_batches(dev.split, system.b + 1)]
    settings = replace(settings, draws=DEV_DRAWS)

    def evaluate_dev() -> dict[str, float]:
        pairs = torch.Generator().manual_seed(0)  # NoStruct's dev pairs stay the same
        losses = [batch_loss(model, batch, system, settings, "mean", pairs) for batch in batches]
        figures = {"dev_loss": float(torch.stack(losses).mean())}
        if dev.split.links is not None:
            auc = evaluate(cosine_matrices(model, arrays, "val", device), dev.split)["AUC"]
            figures["dev_AUC"] = float(np.nanmean(auc))
        return figures

    return evaluate_dev


def train_and_score(job: Job, arrays: Arrays, run: Run = Run()) -> Answer:
    """Train, and score every test document.

    Documents without labels are scored by their sealed key where there is one: nothing before
    this has read it.
    """
    started = time.process_time()
    model, history = train(job, arrays, run)
    test = arrays.splits["test"]
    test = replace(test, links=test.links or arrays.key)
    matrices = cosine_matrices(model, arrays, "test", run.device) if test.links else []
    values = evaluate(matrices, test) if test.links else {}
    return Answer({"test": values}, history, time.process_time() - started)
