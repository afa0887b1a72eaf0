"""Revising Image-Text Retrieval via Multi-Modal Entailment (Yan et al., 2022): the revision.

What the judge calls entailed is left out of a retriever's negatives and trained on as weak
positives in extra batches.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mmlib.papers.entailment.systems import OptimizerState

BLOCK = 500  # images whose similarities are looked through together


@dataclass(frozen=True)
class Weak:
    """Weak positives: image (n,), caption (n,) rows of a training set."""

    image: np.ndarray
    caption: np.ndarray

    @classmethod
    def of(cls, pairs: np.ndarray) -> "Weak":
        """Of pairs (n, 2) of image and caption."""
        return cls(pairs[:, 0], pairs[:, 1])

    def __len__(self) -> int:
        return len(self.image)

    @cached_property
    def by_image(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows in the order of images, and where each image's begin (most images + 1,)."""
        order = np.argsort(self.image, kind="stable")
        last = int(self.image.max(initial=-1)) + 1
        return order, np.searchsorted(self.image[order], np.arange(last + 1))


def candidates(similarity: np.ndarray, image_of: np.ndarray, top: int = 30) -> np.ndarray:
    """The `top` captions of each image by similarity (images, captions), its own removed.

    similarity: an array, or anything of its length and shape whose slices of rows are arrays.
    image_of (captions,): the image of each caption. Returns pairs (n, 2), by image, best first.
    """
    pairs = []
    for start in range(0, len(similarity), BLOCK):
        scores = np.array(similarity[start : start + BLOCK])
        scores[image_of == np.arange(start, start + len(scores))[:, None]] = -np.inf
        last = max(scores.shape[1] - top, 0)  # where the lowest of the best would stand
        lowest = np.partition(scores, last, axis=1)[:, last, None]
        images, captions = np.nonzero((scores >= lowest) & np.isfinite(scores))
        order = np.lexsort((-scores[images, captions], images))  # equal ones as they came
        images, captions = images[order], captions[order]
        first = np.arange(len(order)) - np.searchsorted(images, images) < top
        pairs.append(np.column_stack([images[first] + start, captions[first]]))
    return np.concatenate(pairs)


class Allowed:
    """A of Sec. 4.2: which (image, caption) pairs belong together, golden or weak.

    `block(images, captions)` gives A (len(images), len(captions)) of some of them, in memory that
    grows with the number of pairs and not with images times captions.
    """

    def __init__(self, image_of: np.ndarray, weak: Weak | None = None):
        self.image_of, self.count = np.asarray(image_of), len(image_of)
        pairs = np.zeros(0, dtype=np.int64)
        if weak is not None:
            pairs = np.asarray(weak.image, dtype=np.int64) * self.count + weak.caption
        self.weak = np.unique(np.append(pairs, -1))  # -1 is no pair

    def block(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        """A of some images with some captions, bool."""
        images, captions = np.asarray(images), np.asarray(captions)
        golden = self.image_of[captions][None] == images[:, None]
        asked = images[:, None] * self.count + captions[None]
        nearest = np.minimum(np.searchsorted(self.weak, asked), len(self.weak) - 1)
        return golden | (self.weak[nearest] == asked)


def extra_batch(
    images: np.ndarray, weak: Weak, size: int, rng: np.random.Generator, golden: Weak | None = None
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Images (n,) and captions (n,) of the extra batch that follows a regular one (Sec. 4.3).

    images: of the regular batch. Each of them brings one of its weak positives, drawn at random;
    where it has none, one of its `golden` pairs. Random other golden pairs fill the batch; without
    any, other weak ones. n is `size`, or less where there are not as many pairs.
    """
    rows = _one_each(images, weak, rng)[:size]
    if golden is None:
        rows = _filled(rows, len(weak), size, rng)
        return weak.image[rows], weak.caption[rows]
    fill = _one_each(np.setdiff1d(images, weak.image[rows]), golden, rng)
    fill = _filled(fill, len(golden), size - len(rows), rng)
    return (
        np.concatenate([weak.image[rows], golden.image[fill]]),
        np.concatenate([weak.caption[rows], golden.caption[fill]]),
    )


def _one_each(images: np.ndarray, pairs: Weak, rng: np.random.Generator) -> np.ndarray:
    """A random row of `pairs` for each of the images that has some, in random order."""
    order, first = pairs.by_image
    images = np.unique(images)
    images = images[images < len(first) - 1]
    count = first[images + 1] - first[images]
    images, count = images[count > 0], count[count > 0]
    return rng.permutation(order[first[images] + (rng.random(len(images)) * count).astype(int)])


def _filled(rows: np.ndarray, every: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """Rows, up to `size`, with random others of `every`."""
    others = rng.choice(every, min(2 * size, every), replace=False)
    return np.concatenate([rows, others[~np.isin(others, rows)]])[:size]


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
    """A regular batch and, if there is one, the extra batch after it: a `core.fit.Step`.

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
        optimizers = {"golden": self.rates.golden, "weak": self.rates.weak}
        return {name: own.state_dict() for name, own in optimizers.items()} | {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Of the optimisers, and how many steps were taken."""
        self.rates.golden.load_state_dict(state["golden"])
        self.rates.weak.load_state_dict(state["weak"])
        self.count = state["count"]


def effective_ratio(ratio: float, beta: float = 0.9) -> float:
    """What a weak gradient moves, as a share of what a golden one does, under a shared Adam.

    For alternating steps with a slowly changing second moment: (λ + β₁) / (1 + λβ₁).
    """
    return (ratio + beta) / (1 + ratio * beta)
