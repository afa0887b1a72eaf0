"""Judges of entailment: the work of one job, from training to a margin for every test pair."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from mmlib.core.experiment import job_folder, job_key
from mmlib.core.fit import fit, seed_everything, warm_up_cosine
from mmlib.core.jobs import Answer, Job
from mmlib.core.paths import write_atomic
from mmlib.features.encoders import mimetic
from mmlib.papers.entailment.arrays import KINDS, Arrays, Labelled
from mmlib.papers.entailment.batches import Encoded, shuffled_batches
from mmlib.papers.entailment.inputs import EVERY, INPUTS, SEEN, logistic
from mmlib.papers.entailment.metrics import best_threshold
from mmlib.papers.entailment.model import (
    Batch,
    Classifier,
    Settings,
    evidence_for,
    joint_loss,
    with_masked,
)

BLOCK = 128  # samples that are scored together
PARTS = 6  # times that the dev loss is looked at; what the learning curves call epochs


@dataclass(frozen=True)
class Plan:
    """How judges are trained; the defaults are the paper's (Section 3.7).

    classifier: sizes, the same for all. steps, batch: how long; 0 steps: the paper's five passes.
    started: share of the rate for weights that were trained before.
    """

    classifier: Settings = field(default_factory=Settings)
    steps: int = 0
    batch: int = 96
    learning_rate: float = 2e-5
    weight_decay: float = 0.02
    started: float = 1.0


@dataclass(frozen=True)
class Judge:
    """A row of Table 3: what it changes in the classifier, and what it trains on.

    model, text, output, masked: see `model.Settings`. kinds: of samples. share: of the "mme"
    samples that are kept. without: sources that are left out, joined by commas. apart: one
    kind after the other, not mixed. clean: images without the world's noise.
    """

    system: str
    model: Literal["both", "te", "ve", "single"] = "both"
    text: Literal["own", "shared"] = "own"
    output: Literal["softmax", "sigmoid"] = "softmax"
    masked: int = 4
    kinds: str = "te, ve, mme"
    share: float = 1.0
    without: str = ""
    apart: bool = False
    clean: bool = False

    def settings(self, common: Settings) -> Settings:
        """The classifier's settings."""
        own = {name: getattr(self, name) for name in ("model", "text", "output")}
        return replace(common, **own, masked=self.masked if common.masked else 0)


def plan_of(job: Job) -> Plan:
    """The plan in a job's settings."""
    own = dict(job.settings["judge"])
    return Plan(**{**own, "classifier": Settings(**own["classifier"])})


# --- Training ------------------------------------------------------------------------------------


def training_rows(pairs: Labelled, judge: Judge, seed: int = 0) -> np.ndarray:
    """The rows of the training pairs that a judge learns from."""
    kind, source = np.array(pairs.samples.kind), np.array(pairs.samples.source)
    kept = np.isin(kind, judge.kinds.split(", ")) & ~np.isin(source, judge.without.split(", "))
    if judge.share < 1:
        drawn = np.random.default_rng([seed, 23]).random(len(pairs))
        kept &= (kind != "mme") | (drawn < judge.share)
    return np.flatnonzero(kept)


def part_batches(
    lengths: np.ndarray, groups: list[np.ndarray], steps: int, size: int, seed: int, part: int
) -> list[np.ndarray]:
    """The batches of one of `PARTS` parts of a training: rows of its group, shuffled anew.

    groups: one set of rows, or one a stage of a training that takes kinds one after another.
    """
    rows = groups[part * len(groups) // PARTS]
    found: list[np.ndarray] = []
    turn = 0
    while len(found) < steps:
        rng = np.random.default_rng([seed, part, turn])
        found += [rows[own] for own in shuffled_batches(lengths[rows], size, rng)]
        turn += 1
    return found[:steps]


def fresh(judge: Judge, settings: Settings, arrays: Arrays) -> tuple[Classifier, frozenset[str]]:
    """An untrained judge, and the names of its weights that came from `Arrays.starts`."""
    states = None
    if arrays.states is not None and judge.text == "own" and judge.model in ("both", "te"):
        states = torch.from_numpy(np.array(arrays.states.states))
    model = fresh_model(settings, len(arrays.words), arrays.images, states)
    return model, start(model, arrays.starts)


def fresh_model(
    settings: Settings, vocabulary: int, images: np.ndarray, states: Tensor | None = None
) -> Classifier:
    """A classifier with fresh weights for an image table."""
    _, regions, width = images.shape
    model = Classifier(vocabulary, width, regions, settings, states=states)
    if hasattr(model, "text"):
        mimetic(model.text)
    return model


def start(model: nn.Module, weights: Mapping[str, Tensor]) -> frozenset[str]:
    """Copy pretrained weights into the parts of a model that they name; the names of these.

    Embeddings of words and positions may be of another number: the first ones are copied.
    """
    own, copied = model.state_dict(), set()
    with torch.no_grad():
        for name, value in weights.items():
            if name not in own or own[name].shape[1:] != value.shape[1:]:
                continue
            target = own[name]
            n = min(len(target), len(value))
            if len(target) != len(value) and "_embeddings" not in name:
                continue
            target[:n] = value[:n]
            copied.add(name)
    return frozenset(copied)


def train(
    job: Job, arrays: Arrays, device: str = "cpu", checkpoint: Path | None = None,
    after_epoch: Callable[[list[dict[str, float]]], object] = lambda history: None,
) -> tuple[Classifier, list[dict[str, float]]]:  # fmt: skip
    """Train a judge with AdamW; the model is that of the lowest dev loss.

    History: an epoch's train_loss and dev_loss, which add the losses of all branches.
    """
    judge, plan = Judge(**job.system), plan_of(job)
    settings, pictures = judge.settings(plan.classifier), _images(judge, arrays)
    seed_everything(job.seed)
    model, begun = fresh(judge, settings, arrays)
    rows = training_rows(arrays.train, judge, job.seed)
    kinds = np.array(arrays.train.samples.kind)
    model.to(device)
    stages = [rows[kinds[rows] == k] for k in ("te", "ve", "mme")] if judge.apart else [rows]
    groups = [stage for stage in stages if len(stage)]  # a tier may lack a kind
    total = plan.steps or 5 * len(arrays.train) // plan.batch
    steps = max(1, round(total / PARTS))
    encoded, dev = (arrays.encoded(own, settings) for own in (arrays.train, arrays.dev))
    optimizer = torch.optim.AdamW(
        [{"params": [p for n, p in model.named_parameters() if (n in begun) == old], "lr": rate}
         for old, rate in ((True, plan.learning_rate * plan.started), (False, plan.learning_rate))],
        weight_decay=plan.weight_decay, fused=True,
    )  # fmt: skip
    shape = partial(warm_up_cosine, steps=PARTS * steps, warm_up=max(1, steps // 4))

    def batches(part: int) -> Iterator[Batch]:
        own = part_batches(encoded.pair_length, groups, steps, plan.batch, job.seed, part)
        looked_at = pictures if judge.clean else arrays.looked_at(job.seed, part)
        return (encoded.batch(rows, looked_at, device) for rows in own)

    history = fit(
        model, batches, lambda batch: step_loss(model, batch, settings),
        lambda: dev_loss(model, dev, pictures, device), epochs=PARTS, optimizer=optimizer,
        schedule=LambdaLR(optimizer, shape), seed=job.seed, device=device,
        checkpoint=checkpoint, after_epoch=after_epoch,
    )  # fmt: skip
    return model, history


def _images(judge: Judge, arrays: Arrays) -> np.ndarray:
    return arrays.clean if judge.clean and arrays.clean is not None else arrays.images


def step_loss(model: Classifier, batch: Batch, settings: Settings) -> Tensor:
    """The joint loss of a batch, with masked copies of some of its positives where asked for."""
    if settings.masked and settings.model in ("both", "ve"):
        with torch.no_grad():
            _, attention = model.image(batch.images)
        batch = with_masked(batch, attention, settings.masking, settings.masked)
    return joint_loss(model(batch), batch.labels, batch.counted)


def _outputs(model: Classifier, pairs: Encoded, images: np.ndarray, device: str):
    """Rows, batch and output, in blocks of like length."""
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
    for _, batch, output in _outputs(model, pairs, images, device):
        total += float(joint_loss(output, batch.labels, batch.counted)) * len(batch.labels)
    return {"dev_loss": total / len(pairs)}


# --- Scoring and calibration ---------------------------------------------------------------------


def scores(
    model: Classifier, pairs: Encoded, images: np.ndarray, device: str = "cpu"
) -> dict[str, np.ndarray]:
    """Log odds (n,) of entailment by branch."""
    found: dict[str, np.ndarray] = {}
    for rows, _, output in _outputs(model, pairs, images, device):
        for branch, values in evidence_for(output).items():
            found.setdefault(branch, np.zeros(len(pairs)))[rows] = values
    return found


def main_branch(branches: Mapping[str, Any]) -> str:
    """The branch that answers for a judge: the merged one, or its only one."""
    return "mm" if "mm" in branches else next(iter(branches))


@dataclass(frozen=True)
class Calibration:
    """From what a judge's network says, and INPUTS, to a margin: 0 where a pair is just entailed.

    Fitted on calibration pairs at the prior of mining: a logistic regression on what is `seen` of
    INPUTS and the network's log odds, then the threshold of best F0.5. A network alone (seen: none)
    keeps its order.
    """

    weights: np.ndarray
    seen: tuple[int, ...]
    limit: float

    @classmethod
    def fit(cls, arrays: Arrays, deep: np.ndarray | None, seen: tuple[int, ...]) -> "Calibration":
        """deep (n,): what the network says of the calibration pairs; None for a floor."""
        own = arrays.calibration
        table = _table(deep, own.given, seen)
        weights = np.array([0.0, 1.0])
        if table.shape[1] > 1:
            weights = logistic(table, own.samples.label, own.weights)
        raw = weights[0] + table @ weights[1:]
        return cls(weights, seen, best_threshold(own.samples.label, raw, own.weights))

    def margin(self, deep: np.ndarray | None, given: np.ndarray) -> np.ndarray:
        """Margins (n,) of other pairs."""
        raw = self.weights[0] + _table(deep, given, self.seen) @ self.weights[1:]
        return raw - self.limit


def _table(deep: np.ndarray | None, given: np.ndarray, seen: tuple[int, ...]) -> np.ndarray:
    columns = [given[:, i] for i in seen] + ([] if deep is None else [deep])
    return np.column_stack(columns)


def rounded(margin: np.ndarray) -> np.ndarray:
    """To two digits downwards, so that no pair changes from not called to called."""
    return np.floor(100 * margin) / 100


def train_and_score(
    job: Job, arrays: Arrays, device: str = "cpu", checkpoint: Path | None = None
) -> Answer:
    """Train a judge and score every test pair.

    Values by pair of each test: "margin" by network and INPUTS together (`Calibration`), "alone" by
    the network, and of judges with several branches also "alone, TE" and "alone, VE". A pair is
    called entailed where its margin is 0 or more. The weights are kept for `trained`.
    """
    started = time.process_time()
    judge = Judge(**job.system)
    settings, pictures = judge.settings(plan_of(job).classifier), _images(judge, arrays)
    model, history = train(job, arrays, device, checkpoint)
    kept(train_and_score, job, arrays, model.state_dict)

    def by_branch(pairs: Labelled) -> dict[str, np.ndarray]:
        return scores(model, arrays.encoded(pairs, settings), pictures, device)

    known = by_branch(arrays.calibration)
    main = main_branch(known)
    maps = {
        "alone" if branch == main else f"alone, {branch.upper()}": (
            branch, Calibration.fit(arrays, own, ())
        )
        for branch, own in known.items()
    }  # fmt: skip
    maps["margin"] = main, Calibration.fit(arrays, known[main], SEEN.get(judge.model, EVERY))
    values = {}
    for name, pairs in arrays.tests.items():
        told = by_branch(pairs)
        values[name] = {
            m: rounded(how.margin(told[branch], pairs.given)) for m, (branch, how) in maps.items()
        }
    return Answer(values, history, time.process_time() - started)


def kept(
    function: Callable, job: Job, arrays: Arrays, make: Callable[[], dict[str, Tensor]]
) -> dict[str, Tensor]:
    """What a job leaves for others, such as weights: from its file, or made and written now."""
    path = job_folder() / "entailment" / f"{job_key(function, job, arrays)}.safetensors"
    if not path.exists():
        made = {name: value.detach().cpu().contiguous() for name, value in make().items()}
        write_atomic(path, lambda p: save_file(made, p))
    return load_file(path)


def trained(job: Job, arrays: Arrays, device: str = "cpu") -> Classifier:
    """The judge that `train_and_score` trains for a job, from what it kept, or trained again."""
    weights = kept(train_and_score, job, arrays, lambda: train(job, arrays, device)[0].state_dict())
    judge = Judge(**job.system)
    model, _ = fresh(judge, judge.settings(plan_of(job).classifier), arrays)
    model.load_state_dict(weights)
    return model.to(device).eval()


@dataclass(frozen=True, eq=False)
class Miner:
    """A trained judge that is asked about pairs of an image and a flat caption of a split.

    calibration: of network and inputs; alone: of the network.
    """

    model: Classifier
    arrays: Arrays
    calibration: Calibration
    alone: Calibration
    device: str = "cpu"

    @classmethod
    def of(cls, job: Job, arrays: Arrays, device: str = "cpu") -> "Miner":
        """The judge of a job, calibrated."""
        model = trained(job, arrays, device)
        deep = _main_scores(model, arrays, arrays.calibration, device)
        both = (SEEN.get(model.settings.model, EVERY), ())
        return cls(model, arrays, *(Calibration.fit(arrays, deep, seen) for seen in both), device)  # type: ignore[arg-type, call-arg]

    def margin(self, split: str, pairs: np.ndarray) -> np.ndarray:
        """Margins (n,) of pairs (n, 2); entailed where 0 or more."""
        asked = self.arrays.pairs(split, pairs)
        deep = _main_scores(self.model, self.arrays, asked, self.device)
        return self.calibration.margin(deep, asked.given)


def _main_scores(model: Classifier, arrays: Arrays, pairs: Labelled, device: str) -> np.ndarray:
    found = scores(model, arrays.encoded(pairs, model.settings), arrays.images, device)
    return found[main_branch(found)]


def known_margin(arrays: Arrays, which: str, given: np.ndarray, seed: int = 0) -> np.ndarray:
    """Margins (n,) by a floor, from scaled INPUTS (n, 9).

    which: "overlap" (words said + nearest caption), one of INPUTS, "random", or "regression", a
    logistic one on all of INPUTS. Raises ValueError for another one.
    """
    if which == "regression":
        return Calibration.fit(arrays, None, EVERY).margin(None, given)
    own = arrays.calibration
    known = _known(arrays, which, own.given, seed + 1000)
    limit = best_threshold(own.samples.label, known, own.weights)
    return _known(arrays, which, given, seed) - limit


def _known(arrays: Arrays, which: str, given: np.ndarray, seed: int) -> np.ndarray:
    raw = given * arrays.scale.deviation + arrays.scale.mean
    if which == "random":
        return np.random.default_rng([7, seed]).random(len(given))
    if which == "overlap":
        return raw[:, 0] + raw[:, 1]
    if which not in INPUTS:
        raise ValueError(f"no floor {which!r}")
    return raw[:, INPUTS.index(which)]


def score_floor(
    job: Job, arrays: Arrays, device: str = "cpu", checkpoint: Path | None = None
) -> Answer:
    """Score every test pair without a network; values as of `train_and_score`."""
    began, which, seed = time.process_time(), job.system["floor"], max(job.seed, 0)
    values = {
        name: {"margin": rounded(100 * known_margin(arrays, which, own.given, seed)) / 100}
        for name, own in arrays.tests.items()
    }
    return Answer(values, seconds=time.process_time() - began)


def describe_pairs(
    job: Job, arrays: Arrays, device: str = "cpu", checkpoint: Path | None = None
) -> Answer:
    """Of every test pair: "label", "weight", and "kind", the number of its kind in `KINDS`.

    Of every test image "foreign true": captions of other images that are true of it, by logic, or
    by people, who saw one caption of each image, as many times as it has; by people also "own
    rejected", whether they rejected its own caption, in percent.
    """
    values = {}
    for name, own in arrays.tests.items():
        number = [float(KINDS.index(kind)) for kind in own.about] or [-1.0] * len(own)
        label = own.samples.label.astype(float)
        values[name] = {"label": label, "weight": own.weights, "kind": np.array(number)}
    test, people = arrays.splits["test"], arrays.people
    if test.fits is not None:
        own_ones = np.bincount(test.image_of, minlength=len(test))
        values["test"] = {"foreign true": (test.fits.sum(axis=1) - own_ones).astype(float)}
    elif people is not None:
        yes = np.bincount(people.pairs[people.labels == 1, 0], minlength=len(test)).astype(float)
        values["test"] = {"foreign true": people.each * yes, "own rejected": people.rejected}
    return Answer(values)
