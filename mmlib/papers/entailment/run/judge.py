"""One judge: its training, what it says of pairs, and the jobs that score test pairs."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR

from mmlib.core.engine import handed_over
from mmlib.core.fit import Descent, fit, seed_everything, warm_up_cosine
from mmlib.core.jobs import Answer, History, Job, Run
from mmlib.papers.entailment.data.arrays import Arrays, Encoded, Labelled, shuffled_batches
from mmlib.papers.entailment.method import classifier as networks
from mmlib.papers.entailment.method.calibration import (
    ALL_INPUTS,
    READABLE,
    Calibration,
    baseline_margin,
    rounded,
)
from mmlib.papers.entailment.method.classifier import Batch, Classifier, joint_loss
from mmlib.papers.entailment.run.systems import ORIGINS, Budget, Judge

BLOCK = 128  # samples that are scored together
EPOCHS = 6  # shares of a training after which the dev loss is taken


def fresh(judge: Judge, settings: networks.Settings, arrays: Arrays) -> tuple[Classifier, set[str]]:
    """An untrained judge, and the names of its weights that came from `Arrays.starts`."""
    states = None
    if arrays.states is not None and judge.text == "own" and judge.model in ("both", "te"):
        states = torch.from_numpy(np.array(arrays.states.states))
    model = networks.classifier(settings, len(arrays.words), arrays.images, states)
    return model, networks.load_pretrained(model, arrays.starts)


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
    judge, plan = Judge(**job.system), Budget.of(job.settings).judge
    settings, images = judge.settings(plan.classifier), images_of(judge, arrays)
    seed_everything(job.seed)
    model, pretrained = fresh(judge, settings, arrays)
    groups = [training_rows(arrays.train, judge, job.seed)]
    if judge.sequential:  # one kind of pairs after another
        kinds = np.array(arrays.train.samples.kind)[groups[0]]
        groups = [groups[0][kinds == kind] for kind in networks.INDICATORS if kind in kinds]
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
        rows = groups[epoch * len(groups) // EPOCHS]
        table = images if judge.clean else arrays.with_noise(job.seed, epoch)
        drawn: list[np.ndarray] = []
        turn = 0
        while len(drawn) < steps:  # shuffled anew each time that all were drawn
            rng = np.random.default_rng([job.seed, epoch, turn])
            drawn += shuffled_batches(encoded.pair_length[rows], plan.batch, rng)
            turn += 1
        return (encoded.batch(rows[some], table, run.device) for some in drawn[:steps])

    step = Descent(partial(step_loss, model), optimizer, LambdaLR(optimizer, shape))
    evaluate = partial(dev_loss, model, dev, images, run.device)
    history = fit(model, batches, step, evaluate, epochs=EPOCHS, seed=job.seed, run=run)
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
        batch = networks.with_masked(batch, attention, settings.masking, settings.masked)
    return joint_loss(model(batch), batch.labels, batch.counted)


@torch.no_grad()
def _outputs(model: Classifier, pairs: Encoded, images: np.ndarray, device: str) -> Iterator:
    # Rows, batch and logits, in blocks of like length.
    order = np.argsort(pairs.pair_length, kind="stable")
    model.eval()
    for first in range(0, len(order), BLOCK):
        rows = order[first : first + BLOCK]
        batch = pairs.batch(rows, images, device)
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
) -> np.ndarray:
    """Log odds (n,) of entailment by the branch that answers: the merged one, or the only one."""
    odds = np.zeros(len(pairs))
    for rows, _, logits in _outputs(model, pairs, images, device):
        odds[rows] = networks.log_odds(logits)[model.branches[-1]]
    return odds


def calibrated(
    model: Classifier, arrays: Arrays, images: np.ndarray, device: str = "cpu"
) -> Callable[[Labelled], dict[str, np.ndarray]]:
    """Pairs -> their margins (n,) by a judge, which calls entailed what has 0 or more.

    "margin": by network and INPUTS together; "alone": by the network.
    """

    def odds(pairs: Labelled) -> np.ndarray:
        return scores(model, arrays.encoded(pairs, model.settings), images, device)

    of_calibration = odds(arrays.calibration)
    columns = {"alone": (), "margin": READABLE.get(model.settings.model, ALL_INPUTS)}
    maps = {
        name: Calibration.fit(arrays.calibration, of_calibration, some)
        for name, some in columns.items()
    }

    def margins(pairs: Labelled) -> dict[str, np.ndarray]:
        of_pairs = odds(pairs)
        return {name: some.margin(of_pairs, pairs.given) for name, some in maps.items()}

    return margins


def weights_of(
    training: Callable[..., tuple[Any, History]], job: Job, arrays: Arrays, run: Run = Run()
) -> dict[str, Tensor]:
    """Weights of a job's training: made now, or read where jobs of such a device left them."""

    # Checkpoint and after_epoch of `run` may be those of another job, which needs this one.
    own = Run(run.device, folder=run.folder, precision=run.precision)
    return handed_over(
        training, job, arrays, run, lambda: training(job, arrays, own)[0].state_dict()
    )


def trained(job: Job, arrays: Arrays, run: Run = Run()) -> Classifier:
    """A job's judge: trained now, or read where jobs of such a device left its weights."""
    weights, judge = weights_of(train, job, arrays, run), Judge(**job.system)
    model, _ = fresh(judge, judge.settings(Budget.of(job.settings).judge.classifier), arrays)
    model.load_state_dict(weights)
    return model.to(run.device).eval()


def miner(job: Job, arrays: Arrays, run: Run = Run()) -> Callable[[str, np.ndarray], np.ndarray]:
    """A job's judge: a split and pairs (n, 2) of an image and a caption -> "margin" (n,)."""
    margins = calibrated(trained(job, arrays, run), arrays, arrays.images, run.device)
    return lambda split, pairs: margins(arrays.pairs(split, pairs))["margin"]


# --- Jobs ----------------------------------------------------------------------------------------


def train_and_score(job: Job, arrays: Arrays, run: Run = Run()) -> Answer:
    """Train a judge and score every test pair: its margins (`calibrated`), by test.

    The weights are handed over to `trained`.
    """
    model, history = train(job, arrays, run)
    handed_over(train, job, arrays, run, model.state_dict)
    margins = calibrated(model, arrays, images_of(Judge(**job.system), arrays), run.device)
    values = {
        test: {name: rounded(margin) for name, margin in margins(pairs).items()}
        for test, pairs in arrays.tests.items()
    }
    return Answer(values, history)


def score_baseline(job: Job, arrays: Arrays, run: Run = Run()) -> Answer:
    """Score every test pair without a network; values as of `train_and_score`."""
    name, seed = job.system["baseline"], max(job.seed, 0)
    return Answer({
        test: {"margin": rounded(100 * baseline_margin(arrays, name, pairs.given, seed)) / 100}
        for test, pairs in arrays.tests.items()
    })  # fmt: skip


def describe_pairs(job: Job, arrays: Arrays, run: Run = Run()) -> Answer:
    """Of every test pair: "label", "weight", and "kind", the number of its origin in `ORIGINS`.

    Of every test image "foreign true": captions of other images that are true of it, by logic, or
    by people, who saw one caption of each image, as many times as it has; by people also "own
    rejected", whether they rejected its own caption, in percent.
    """
    values = {}
    for name, pairs in arrays.tests.items():
        origin = [float(ORIGINS.index(about)) for about in pairs.about] or [-1.0] * len(pairs)
        label = pairs.samples.label.astype(float)
        values[name] = {"label": label, "weight": pairs.weights, "kind": np.array(origin)}
    test, people = arrays.splits["test"], arrays.people
    if test.fits is not None:
        captions = np.bincount(test.image_of, minlength=len(test))
        values["test"] = {"foreign true": (test.fits.sum(axis=1) - captions).astype(float)}
    elif people is not None:
        yes = np.bincount(people.pairs[people.labels == 1, 0], minlength=len(test)).astype(float)
        values["test"] = {"foreign true": people.each * yes, "own rejected": people.rejected}
    return Answer(values)
