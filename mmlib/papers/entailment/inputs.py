"""What is known of a pair before anything is learnt of entailment, and a logistic regression on it.

Nine numbers (INPUTS) of an image with its captions and a hypothesis: how much of the hypothesis the
captions say already, how near it is to them by a frozen text encoder, as a whole and token by
token, how near it is to the image by a frozen retriever, and how much it says at all. Floors of
every table are made of them. A judge's answer is a logistic regression on them and on what its
network says, fitted on calibration pairs.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from mmlib.core.entailment_pairs import Samples
from mmlib.data.overlap import overlap_parts, stems
from mmlib.features.words import TokenStates, covered

INPUTS = (
    "words said", "nearest caption", "cosine, best", "cosine, mean", "image cosine", "weight",
    "tokens covered", "tokens least covered", "premise covered",
)  # fmt: skip
# Which of them a judge may see that reads texts alone, or images alone.
SEEN = {"te": (0, 1, 2, 3, 5, 6, 7, 8), "ve": (4, 5)}
EVERY = tuple(range(len(INPUTS)))

RIDGE = 1.0  # of the logistic regression; all inputs have deviation 1


@dataclass(frozen=True, eq=False)
class Frozen:
    """What frozen encoders make of all texts and images.

    row: text -> row of `sentences` and `spoken`. sentences (texts, D): unit vectors of a text
    encoder. spoken (texts, E), seen (images, E): unit vectors of a retriever. weights: of stems
    (`mmlib.data.overlap.Weights`). merged: premise text -> the captions that it was merged from.
    tokens: the states of all texts' tokens.
    """

    row: Mapping[str, int]
    sentences: np.ndarray
    spoken: np.ndarray
    seen: np.ndarray
    weights: Mapping[str, float]
    merged: Mapping[str, tuple[str, ...]]
    tokens: TokenStates

    def inputs(self, samples: Samples) -> np.ndarray:
        """INPUTS (n, 9) as they are; NaN where a sample has no premise text, or no image."""
        found = np.full((len(samples), len(INPUTS)), np.nan)
        columns = (samples.premise, samples.hypothesis, samples.image)
        for i, (premise, hypothesis, image) in enumerate(zip(*columns, strict=True)):
            own = self.row[hypothesis]
            if premise:
                captions = self.merged.get(premise, (premise,))
                cosines = self.sentences[[self.row[c] for c in captions]] @ self.sentences[own]
                told = overlap_parts(captions, hypothesis, self.weights)
                found[i, :4] = *told, cosines.max(), cosines.mean()
                found[i, 6:] = covered(*map(self.tokens.units, (hypothesis, premise)))
            if image >= 0:
                found[i, 4] = self.seen[image] @ self.spoken[own]
            found[i, 5] = sum(self.weights[stem] for stem in sorted(stems(hypothesis)))
        return found

    def fingerprint(self) -> bytes:
        """A hash of all of it."""
        digest = hashlib.sha256("\n".join(self.row).encode())
        for part in (self.sentences, self.spoken, self.seen, self.tokens.states[::97]):
            digest.update(np.ascontiguousarray(part).tobytes())
        return digest.digest()


@dataclass(frozen=True)
class Scale:
    """Mean and deviation (9,) of INPUTS over training samples."""

    mean: np.ndarray
    deviation: np.ndarray

    @classmethod
    def of(cls, inputs: np.ndarray) -> "Scale":
        """The scale of some inputs, what is NaN left out."""
        return cls(np.nanmean(inputs, axis=0), np.nanstd(inputs, axis=0) + 1e-6)

    def __call__(self, inputs: np.ndarray) -> np.ndarray:
        """With mean 0 and deviation 1, float32; what is unknown becomes 0, the mean."""
        return np.nan_to_num((inputs - self.mean) / self.deviation).astype(np.float32)


def logistic(inputs: np.ndarray, labels: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Weights (1 + p,), intercept first, of a logistic regression with a small ridge penalty.

    inputs (n, p); labels (n,) 0 or 1; counts (n,): how many each row stands for.
    """
    x = np.column_stack([np.ones(len(inputs)), inputs])

    def cost(weights: np.ndarray) -> tuple[float, np.ndarray]:
        odds, slopes = x @ weights, RIDGE * np.r_[0, weights[1:]]
        value = counts @ (np.logaddexp(0, odds) - labels * odds) + slopes @ weights / 2
        return value, x.T @ (counts * (expit(odds) - labels)) + slopes

    return minimize(cost, np.zeros(x.shape[1]), jac=True, tol=1e-10).x
