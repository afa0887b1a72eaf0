"""Revising Image-Text Retrieval via Multi-Modal Entailment (Yan et al., 2022): the revision.

What the judge calls entailed is left out of a retriever's negatives and trained on as weak
positives in extra batches.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from mmlib.core.fit import fit, warm_up_cosine
from mmlib.core.jobs import History, Run
from mmlib.papers.entailment.method.retrievers import AlignFuse

if TYPE_CHECKING:
    from mmlib.papers.entailment.data.arrays import Split

BLOCK = 500  # images whose similarities are looked through together
OptimizerState = Literal["shared", "separate"]
adamw = partial(torch.optim.AdamW, weight_decay=0.02, fused=True)  # decay as in the paper


@dataclass(frozen=True)
class Weak:
    """Weak positives: image (n,), caption (n,) rows of a training set."""

    image: np.ndarray
    caption: np.ndarray

    @classmethod
    def of(cls, pairs: np.ndarray) -> "Weak":
        """Of pairs (n, 2) of image and caption."""
        return cls(pairs[:, 0], pairs[:, 1])

    @classmethod
    def golden(cls, split: "Split") -> "Weak":
        """All pairs of an image with its own captions."""
        return cls(split.image_of, np.arange(len(split.image_of)))

    @classmethod
    def true(cls, split: "Split") -> "Weak":
        """All pairs of an image with captions of other images that are true of it."""
        assert split.fits is not None
        return cls.of(np.argwhere(split.fits & (np.arange(len(split))[:, None] != split.image_of)))

    def __len__(self) -> int:
        return len(self.image)

    @cached_property
    def by_image(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows in the order of images, and where each image's begin (most images + 1,)."""
        order = np.argsort(self.image, kind="stable")
        last = int(self.image.max(initial=-1)) + 1
        return order, np.searchsorted(self.image[order], np.arange(last + 1))


NO_PAIRS = Weak(np.zeros(0, dtype=int), np.zeros(0, dtype=int))


def candidates(similarity: np.ndarray, image_of: np.ndarray, top: int = 30) -> np.ndarray:
    """The `top` captions of each image by similarity (images, captions), its own removed.

    image_of (captions,): the image of each caption. Returns pairs (n, 2), by image, best first,
    equal ones in their order.
    """
    pairs = []
    for start in range(0, len(similarity), BLOCK):
        scores = np.array(similarity[start : start + BLOCK])
        images = np.arange(start, start + len(scores))
        scores[image_of == images[:, None]] = -np.inf
        best = np.argsort(-scores, axis=1, kind="stable")[:, :top]
        row, position = np.nonzero(np.isfinite(np.take_along_axis(scores, best, axis=1)))
        pairs.append(np.column_stack([images[row], best[row, position]]))
    return np.concatenate(pairs)


class Allowed:
    """A of Sec. 4.2: which (image, caption) pairs belong together, golden or of a weak set.

    `block(images, captions)` gives A (len(images), len(captions)) of some of them, in memory that
    grows with the number of pairs and not with images times captions.
    """

    def __init__(self, image_of: np.ndarray, *weak: Weak | None):
        self.count = len(image_of)
        pairs = [Weak(np.asarray(image_of), np.arange(self.count)), *filter(None, weak)]
        keys = [w.image.astype(np.int64) * self.count + w.caption for w in pairs]
        self.keys = np.unique(np.concatenate(keys))

    def block(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        """A of some images with some captions, bool."""
        asked = np.asarray(images)[:, None] * self.count + np.asarray(captions)[None]
        nearest = np.minimum(np.searchsorted(self.keys, asked), len(self.keys) - 1)
        return self.keys[nearest] == asked


def extra_batch(
    images: np.ndarray, weak: Weak, size: int, rng: np.random.Generator, golden: Weak | None = None
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Images (n,) and captions (n,) of the extra batch that follows a regular one (Sec. 4.3).

    images: of the regular batch. Each of them brings one of its weak positives, drawn at random;
    where it has none, one of its `golden` pairs. Random other golden pairs fill the batch; without
    any, other weak ones. n is `size`, or less where there are not as many pairs.
    """

    def one_each(images: np.ndarray, pairs: Weak) -> np.ndarray:
        # A random row of `pairs` for each of the images that has some, in random order.
        order, first = pairs.by_image
        images = np.unique(images)
        images = images[images < len(first) - 1]
        count = first[images + 1] - first[images]
        images, count = images[count > 0], count[count > 0]
        return rng.permutation(order[first[images] + (rng.random(len(images)) * count).astype(int)])

    def filled(rows: np.ndarray, every: int, size: int) -> np.ndarray:
        others = rng.choice(every, min(2 * size, every), replace=False)
        return np.concatenate([rows, others[~np.isin(others, rows)]])[:size]

    rows = one_each(images, weak)[:size]
    if golden is None:
        rows = filled(rows, len(weak), size)
        return weak.image[rows], weak.caption[rows]
    fill = one_each(np.setdiff1d(images, weak.image[rows]), golden)
    fill = filled(fill, len(golden), size - len(rows))
    shown = np.concatenate([weak.image[rows], golden.image[fill]])
    return shown, np.concatenate([weak.caption[rows], golden.caption[fill]])


class TwoRates:
    """Steps on golden and on weak batches at the rates η and λη.

    state "shared": one optimiser, whose rate is set before each step. With Adam a weak gradient
    then enters the shared first moment at full weight and is carried on by golden steps at η, so
    its pull is (λ + β₁) / (1 + λβ₁) of a golden one's and not λ. "separate": an optimiser of its
    own for weak batches, with which it is λ.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter],
        make: Callable[[Sequence[nn.Parameter], float], torch.optim.Optimizer], rate: float,
        ratio: float, state: OptimizerState = "shared",
    ):  # fmt: skip
        if state not in ("shared", "separate"):
            raise ValueError(f"state {state!r} is not known: use shared or separate")
        parameters = list(parameters)
        self.golden = make(parameters, rate)
        self.weak = self.golden if state == "shared" else make(parameters, rate)
        self.rate, self.ratio = rate, ratio

    def step(self, loss: Tensor, weak: bool = False, factor: float = 1.0) -> None:
        """One step down a loss; `factor` is the schedule's share of the rate."""
        optimizer = self.weak if weak else self.golden
        for group in optimizer.param_groups:
            group["lr"] = self.rate * factor * (self.ratio if weak else 1.0)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()


@dataclass
class RevisedStep:
    """A regular batch and, if there is one, the extra batch after it: a step as `core.fit.Descent`.

    loss: of a batch. schedule: number of a step -> its share of the rate. count: of steps taken.
    """

    loss: Callable[[Any], Tensor]
    rates: TwoRates
    schedule: Callable[[int], float]
    count: int = 0

    def __call__(self, batch: tuple[Any, Any | None]) -> dict[str, Tensor]:
        """One or two updates; "train_loss", and "weak_loss" of an extra batch."""
        factor, losses = self.schedule(self.count), {}
        for name, pairs in zip(("train_loss", "weak_loss"), batch, strict=True):
            if pairs is not None:
                loss = self.loss(pairs)
                self.rates.step(loss, name == "weak_loss", factor)
                losses[name] = loss.detach()
        self.count += 1
        return losses

    def end_epoch(self, figures: Mapping[str, float]) -> None:
        """Nothing: dev figures steer nothing."""

    def state_dict(self) -> dict[str, Any]:
        """Of the optimisers, and how many steps were taken."""
        golden, weak = self.rates.golden.state_dict(), self.rates.weak.state_dict()
        return {"golden": golden, "weak": weak, "count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        self.rates.golden.load_state_dict(state["golden"])
        self.rates.weak.load_state_dict(state["weak"])
        self.count = state["count"]


@dataclass(frozen=True)
class Phase:
    """One training. captions: of each image that an epoch uses; 0 for all."""

    epochs: int
    batch: int
    rate: float
    captions: int = 0


@dataclass(frozen=True)
class Revision:
    """What the extra batches of a training hold, and at which rate.

    weak, golden: pairs of the extra batches (`extra_batch`); without either there are none.
    excluded: pairs that are no negatives in regular batches, nor in extra ones with weak pairs,
    where those of `weak` are none either.
    ratio: λ. state: of the optimiser.
    """

    weak: Weak | None = None
    golden: Weak | None = None
    excluded: Weak | None = None
    ratio: float = 0.1
    state: OptimizerState = "shared"


def golden_batches(
    image_of: np.ndarray, phase: Phase, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """One epoch of batches of caption rows, in random order; what does not fill one is left out."""
    rows = rng.permutation(len(image_of))
    if phase.captions:
        rows = pd.Series(rows).groupby(image_of[rows]).head(phase.captions).to_numpy()
    for step in range(len(rows) // phase.batch):
        yield rows[step * phase.batch : (step + 1) * phase.batch]


def make_batch(
    table: np.ndarray, split: "Split", images: np.ndarray, captions: np.ndarray, allowed: Allowed,
    device: str = "cpu",
) -> tuple[Tensor, ...]:  # fmt: skip
    """What a retriever's `loss` takes, of pairs of images and captions."""
    lengths, same = split.lengths[captions], allowed.block(images, captions)
    ids = split.ids[captions, : lengths.max()]
    columns = (table[split.rows[images]], ids, lengths, same)
    return tuple(torch.from_numpy(column).to(device) for column in columns)


def train(
    model: Any, split: "Split", phase: Phase, seed: int, images: Callable[[int], np.ndarray],
    revision: Revision = Revision(), evaluate: Callable[[], dict[str, float]] = dict,
    run: Run = Run(),
) -> History:  # fmt: skip
    """Train a retriever; the same seed sees the same golden batches, whatever the weak set.

    images: epoch -> the image table as training sees it then. evaluate: figures of an epoch, which
    choose nothing. Returns and raises what `core.fit.fit` does, of train_loss and weak_loss.
    """
    weak, golden = revision.weak, revision.golden
    rates = TwoRates(model.parameters(), adamw, phase.rate, revision.ratio, revision.state)
    regular = Allowed(split.image_of, revision.excluded)
    extra = Allowed(split.image_of, *((weak, revision.excluded) if weak else ()))
    steps = sum(1 for _ in golden_batches(split.image_of, phase, np.random.default_rng(0)))
    total = phase.epochs * steps

    def batches(epoch: int) -> Iterator[tuple]:
        rng, order = (np.random.default_rng([seed, epoch, k]) for k in range(2))
        if isinstance(model, AlignFuse):
            model.generator.manual_seed(int(rng.integers(2**31)))
        table = images(epoch)
        for captions in golden_batches(split.image_of, phase, order):
            shown = split.image_of[captions]
            first, second = make_batch(table, split, shown, captions, regular, run.device), None
            if weak is not None or golden is not None:
                pairs = extra_batch(shown, weak or NO_PAIRS, phase.batch, rng, golden)
                second = make_batch(table, split, *pairs, extra, run.device)
            yield first, second

    schedule = partial(warm_up_cosine, steps=total, warm_up=total // 10)
    step = RevisedStep(lambda batch: model.loss(*batch), rates, schedule)
    return fit(model, batches, step, evaluate, epochs=phase.epochs, seed=seed, keep="last", run=run)
