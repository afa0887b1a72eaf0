"""Revising Image-Text Retrieval via Multi-Modal Entailment (Yan et al., 2022): retraining.

What the classifier calls entailed is kept out of a retriever's negatives and trained on as weak
positives in extra batches.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

BLOCK = 500  # images whose similarities are looked through together


@dataclass(frozen=True)
class Weak:
    """Weak positives: image (n,), caption (n,) rows of a training set."""

    image: np.ndarray
    caption: np.ndarray

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
    found = []
    own = np.argsort(image_of, kind="stable")
    first = np.searchsorted(image_of[own], np.arange(len(similarity) + 1))
    for start in range(0, len(similarity), BLOCK):
        scores = np.array(similarity[start : start + BLOCK])
        for row in range(len(scores)):
            scores[row, own[first[start + row] : first[start + row + 1]]] = -np.inf
        rows, columns = np.nonzero(_largest(scores, min(top, scores.shape[1])))
        order = np.lexsort((columns, -scores[rows, columns], rows))
        rows, columns = rows[order], columns[order]
        kept = np.isfinite(scores[rows, columns])
        found.append(np.column_stack([start + rows, columns])[kept])
    return np.concatenate(found)


def _largest(scores: np.ndarray, top: int) -> np.ndarray:
    """Which are a row's `top` largest, the first of equal ones; bool like scores."""
    least = -np.partition(-scores, top - 1, axis=1)[:, top - 1, None]
    above, level = scores > least, scores == least
    return above | (level & (np.cumsum(level, axis=1) <= top - above.sum(axis=1, keepdims=True)))


class Allowed:
    """A of Sec. 4.2: which (image, caption) pairs belong together, golden or weak.

    `block(images, captions)` gives A (len(images), len(captions)) of some of them, in memory that
    grows with the number of pairs and not with images times captions.
    """

    def __init__(self, image_of: np.ndarray, weak: Weak | None = None):
        self.image_of, self.count = np.asarray(image_of), len(image_of)
        known = np.zeros(0, dtype=np.int64)
        if weak is not None:
            known = np.asarray(weak.image, dtype=np.int64) * self.count + weak.caption
        self.weak = np.unique(np.append(known, -1))  # -1 is no pair

    def block(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        """A of some images with some captions, bool."""
        images, captions = np.asarray(images), np.asarray(captions)
        golden = self.image_of[captions][None] == images[:, None]
        wanted = images[:, None] * self.count + captions[None]
        place = np.searchsorted(self.weak, wanted)
        return golden | (self.weak[np.minimum(place, len(self.weak) - 1)] == wanted)


# --- The extra batch at a smaller learning rate (Sec. 4.3) ---------------------------------------

State = Literal["shared", "separate"]


def extra_batch(
    images: np.ndarray, weak: Weak, size: int, rng: np.random.Generator, golden: Weak | None = None
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Images (n,) and captions (n,) of the extra batch that follows a regular one.

    images: of the regular batch. Each of them brings one of its weak positives, drawn at random;
    where it has none, one of its `golden` pairs. Random other golden pairs fill the batch; without
    any, other weak ones. n is `size`, or less where there are not as many pairs.
    """
    rows = _one_each(images, weak, rng)[:size]
    if golden is None:
        rows = _filled(rows, len(weak), size, rng)
        return weak.image[rows], weak.caption[rows]
    rest = _one_each(np.setdiff1d(images, weak.image[rows]), golden, rng)
    more = _filled(rest, len(golden), size - len(rows), rng)
    return (
        np.concatenate([weak.image[rows], golden.image[more]]),
        np.concatenate([weak.caption[rows], golden.caption[more]]),
    )


def _one_each(images: np.ndarray, pairs: Weak, rng: np.random.Generator) -> np.ndarray:
    """A random row of `pairs` for each of the images that has some, in random order."""
    order, first = pairs.by_image
    known = np.unique(images)
    known = known[known < len(first) - 1]
    count = first[known + 1] - first[known]
    known, count = known[count > 0], count[count > 0]
    return rng.permutation(order[first[known] + (rng.random(len(known)) * count).astype(int)])


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
        self, parameters: Sequence[nn.Parameter],
        make: Callable[[Sequence[nn.Parameter], float], torch.optim.Optimizer], rate: float,
        ratio: float, state: State = "shared",
    ):  # fmt: skip
        if state not in ("shared", "separate"):
            raise ValueError(f"state {state!r} is not known: use shared or separate")
        parameters = list(parameters)
        self.golden = make(parameters, rate)
        self.weak = self.golden if state == "shared" else make(parameters, rate)
        self.rate, self.ratio = rate, ratio

    def step(self, loss: Tensor, weak: bool = False, factor: float = 1.0) -> None:
        """One step down a loss; `factor` is the schedule's share of the rate."""
        optimiser = self.weak if weak else self.golden
        for group in optimiser.param_groups:
            group["lr"] = self.rate * factor * (self.ratio if weak else 1.0)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()


def effective_ratio(ratio: float, beta: float = 0.9) -> float:
    """What a weak gradient moves, as a share of what a golden one does, under a shared Adam.

    For alternating steps with a slowly changing second moment: (λ + β₁) / (1 + λβ₁).
    """
    return (ratio + beta) / (1 + ratio * beta)
