"""One judge: its training, and what it says of pairs."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from mmlib.core.engine import handed_over
from mmlib.core.fit import Descent, fit, seed_everything, warm_up_cosine
from mmlib.core.jobs import History, Job, Run
from mmlib.papers.entailment.data.arrays import Arrays, Encoded, Labelled, shuffled_batches
from mmlib.papers.entailment.method.calibration import ALL_INPUTS, READABLE, Calibration
from mmlib.papers.entailment.method.classifier import (
    INDICATORS,
    Batch,
    Classifier,
    Settings,
    classifier,
    joint_loss,
    log_odds,
    with_masked,
)
from mmlib.papers.entailment.run.systems import Judge, JudgeTraining

BLOCK = 128  # samples that are scored together
EPOCHS = 6  # shares of a training after which the dev loss is taken


def fresh(judge: Judge, settings: Settings, arrays: Arrays) -> tuple[Classifier, frozenset[str]]:
    """An untrained judge, and the names of its weights that came from `Arrays.starts`."""
    states = None
    if arrays.states is not None and judge.text == "own" and judge.model in ("both", "te"):
        states = torch.from_numpy(np.array(arrays.states.states))
    model = classifier(settings, len(arrays.words), arrays.images, states)
    return model, load_pretrained(model, arrays.starts)


def load_pretrained(model: nn.Module, weights: Mapping[str, Tensor]) -> frozenset[str]:
    """Copy pretrained weights to where a model has their names; the names of those copied.

    Embeddings of words and positions may be of another number: the first ones are copied.
    """
    state, copied = model.state_dict(), set()
    with torch.no_grad():
        for name, value in weights.items():
            target = state.get(name)
            if target is None or target.shape[1:] != value.shape[1:]:
                continue
            if len(target) == len(value) or "_embeddings" in name:
                n = min(len(target), len(value))
                target[:n] = value[:n]
                copied.add(name)
    return frozenset(copied)


def training_rows(pairs: Labelled, judge: Judge, seed: int = 0) -> np.ndarray:
    """The rows of the training pairs that a judge learns from."""
    kind, source = np.array(pairs.samples.kind), np.array(pairs.samples.source)
    chosen = np.isin(kind, judge.kinds.split(", ")) & ~np.isin(source, judge.without.split(", "))
    if judge.mme_share < 1:
        drawn = np.random.default_rng([seed, 23]).random(len(pairs))
        chosen &= (kind != "mme") | (drawn < judge.mme_share)
    return np.flatnonzero(chosen)


def train(job: Job, arrays: Arrays, run: Run = Run()) -> tuple[Classifier, History]:
    """Train a judge with AdamW; the model is that of the lowest dev loss.

    History: an epoch's train_loss and dev_loss, which add the losses of all branches.
    """
    judge, plan = Judge(**job.system), JudgeTraining.of(job.settings["judge"])
    settings, images = judge.settings(plan.classifier), images_of(judge, arrays)
    seed_everything(job.seed)
    model, pretrained = fresh(judge, settings, arrays)
    groups = [training_rows(arrays.train, judge, job.seed)]
    if judge.sequential:  # one kind of pairs after another
        kinds = np.array(arrays.train.samples.kind)[groups[0]]
        groups = [groups[0][kinds == kind] for kind in INDICATORS if kind in kinds]
    model.to(run.device)
    steps = max(1, round((plan.steps or 5 * len(arrays.train) // plan.batch) / EPOCHS))
    encoded, dev = (arrays.encoded(pairs, settings) for pairs in (arrays.train, arrays.dev))
    rates = {True: plan.learning_rate * plan.pretrained_rate, False: plan.learning_rate}
    optimizer = torch.optim.AdamW(
        [{"params": [p for n, p in model.named_parameters() if (n in pretrained) == was], "lr": lr}
         for was, lr in rates.items()],
        weight_decay=plan.weight_decay, fused=True,
    )  # fmt: skip
    shape = partial(warm_up_cosine, steps=EPOCHS * steps, warm_up=max(1, steps // 4))

    def batches(epoch: int) -> Iterator[Batch]:
        rows, table = groups[epoch * len(groups) // EPOCHS], images
        drawn: list[np.ndarray] = []
        turn = 0
        while len(drawn) < steps:  # shuffled anew each time that all were drawn
            rng = np.random.default_rng([job.seed, epoch, turn])
            drawn += shuffled_batches(encoded.pair_length[rows], plan.batch, rng)
            turn += 1
        if not judge.clean:
            table = arrays.with_noise(job.seed, epoch)
        return (encoded.batch(rows[some], table, run.device) for some in drawn[:steps])

    step = Descent(partial(step_loss, model), optimizer, LambdaLR(optimizer, shape))
    history = fit(
        model, batches, step, lambda: dev_loss(model, dev, images, run.device),
        epochs=EPOCHS, seed=job.seed, run=run,
    )  # fmt: skip
    return model, history


def images_of(judge: Judge, arrays: Arrays) -> np.ndarray:
    """The image table of a judge's dev and test pairs."""
    return arrays.clean if judge.clean and arrays.clean is not None else arrays.images


def step_loss(model: Classifier, batch: Batch) -> Tensor:
    """The joint loss of a batch, with masked copies of some of its positives where asked for."""
    settings = model.settings
    if settings.masked and "ve" in model.branches:
        with torch.no_grad():
            _, attention = model.image(batch.images)
        batch = with_masked(batch, attention, settings.masking, settings.masked)
    return joint_loss(model(batch), batch.labels, batch.counted)


def _outputs(model: Classifier, pairs: Encoded, images: np.ndarray, device: str):
    # Rows, batch and logits, in blocks of like length.
    order = np.argsort(pairs.pair_length, kind="stable")
    model.eval()
    for first in range(0, len(order), BLOCK):
        rows = order[first : first + BLOCK]
        batch = pairs.batch(rows, images, device)
        with torch.no_grad():
            yield rows, batch, model(batch)


def dev_loss(
    model: Classifier, pairs: Encoded, images: np.ndarray, device: str = "cpu"
) -> dict[str, float]:
    """The mean joint loss over pairs."""
    total = 0.0
    for _, batch, logits in _outputs(model, pairs, images, device):
        total += float(joint_loss(logits, batch.labels, batch.counted)) * len(batch.labels)
    return {"dev_loss": total / len(pairs)}


def scores(
    model: Classifier, pairs: Encoded, images: np.ndarray, device: str = "cpu"
) -> dict[str, np.ndarray]:
    """Log odds (n,) of entailment by branch."""
    by_branch: dict[str, np.ndarray] = {}
    for rows, _, logits in _outputs(model, pairs, images, device):
        for branch, values in log_odds(logits).items():
            by_branch.setdefault(branch, np.zeros(len(pairs)))[rows] = values
    return by_branch


def main_branch(branches: Mapping[str, Any]) -> str:
    """The branch that answers for a judge: the merged one, or its only one."""
    return "mm" if "mm" in branches else next(iter(branches))


def calibrations(
    model: Classifier, arrays: Arrays, by_branch: Mapping[str, np.ndarray]
) -> dict[str, tuple[str, Calibration]]:
    """Name of a margin -> the branch that it reads, and its calibration.

    by_branch: log odds of the calibration pairs. "margin": by network and INPUTS together;
    "alone": by the network.
    """
    main, pairs = main_branch(by_branch), arrays.calibration
    columns = READABLE.get(model.settings.model, ALL_INPUTS)
    return {
        "alone": (main, Calibration.fit(pairs, by_branch[main], ())),
        "margin": (main, Calibration.fit(pairs, by_branch[main], columns)),
    }


def weights_of(
    training: Callable[..., tuple[Any, History]], job: Job, arrays: Arrays, run: Run = Run()
) -> dict[str, Tensor]:
    """Weights of a job's training: made now, or read where jobs of such a device left them."""

    def make() -> dict[str, Tensor]:
        # Checkpoint and after_epoch may be those of another job, which needs this one.
        return training(job, arrays, Run(run.device, folder=run.folder))[0].state_dict()

    return handed_over(training, job, arrays, run, make)


def trained(job: Job, arrays: Arrays, run: Run = Run()) -> Classifier:
    """A job's judge: trained now, or read where jobs of such a device left its weights."""
    weights, judge = weights_of(train, job, arrays, run), Judge(**job.system)
    plan = JudgeTraining.of(job.settings["judge"])
    model, _ = fresh(judge, judge.settings(plan.classifier), arrays)
    model.load_state_dict(weights)
    return model.to(run.device).eval()


def miner(
    job: Job, arrays: Arrays, run: Run = Run()
) -> Callable[[str, np.ndarray], np.ndarray]:  # fmt: skip
    """A job's judge: a split and pairs (n, 2) of an image and a caption -> calibrated margins (n,).

    A pair is called entailed where its margin is 0 or more.
    """
    model = trained(job, arrays, run)

    def odds(pairs: Labelled) -> dict[str, np.ndarray]:
        return scores(model, arrays.encoded(pairs, model.settings), arrays.images, run.device)

    branch, calibration = calibrations(model, arrays, odds(arrays.calibration))["margin"]

    def margin(split: str, pairs: np.ndarray) -> np.ndarray:
        asked = arrays.pairs(split, pairs)
        return calibration.margin(odds(asked)[branch], asked.given)

    return margin
