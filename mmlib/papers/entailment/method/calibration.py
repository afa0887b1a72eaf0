"""INPUTS, nine numbers of a pair, and the way from them and a network's log odds to a margin.

INPUTS say, of an image with its captions and a hypothesis, how much of the hypothesis the captions
say already, how near it is to them by a frozen text encoder, as a whole and token by token, how
near it is to the image by a frozen retriever, and how much it says at all. The baselines of every
table are made of them, and a judge's answer (`Calibration`) reads them too.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from mmlib.core.jobs import as_bytes
from mmlib.core.records import Samples
from mmlib.data.overlap import Weights, overlap_parts, stems
from mmlib.features.encoders import BLOCK
from mmlib.features.words import TokenStates, Words, covered, padded
from mmlib.papers.entailment.method.metrics import best_threshold
from mmlib.papers.entailment.method.retrievers import MAX_WORDS, AlignFuse

if TYPE_CHECKING:
    from mmlib.papers.entailment.data.arrays import Arrays, Labelled

INPUTS = (
    "words said", "nearest caption", "cosine, best", "cosine, mean", "image cosine", "weight",
    "tokens covered", "tokens least covered", "premise covered",
)  # fmt: skip
# Which of them a judge may read that sees texts alone, or images alone.
READABLE = {"te": (0, 1, 2, 3, 5, 6, 7, 8), "ve": (4, 5)}
ALL_INPUTS = tuple(range(len(INPUTS)))
RIDGE = 1.0  # of the logistic regression; all inputs have deviation 1


@dataclass(frozen=True, eq=False)
class Frozen:
    """What frozen encoders make of all texts and images.

    row: text -> row of `sentences` and `text_vectors`. sentences (texts, D): unit vectors of a text
    encoder. text_vectors (texts, E), image_vectors (images, E): unit vectors of a retriever.
    weights: of stems. merged: premise text -> the captions that it was merged from.
    tokens: the states of all texts' tokens.
    """

    row: Mapping[str, int]
    sentences: np.ndarray
    text_vectors: np.ndarray
    image_vectors: np.ndarray
    weights: Mapping[str, float]
    merged: Mapping[str, tuple[str, ...]]
    tokens: TokenStates

    def inputs(self, samples: Samples) -> np.ndarray:
        """INPUTS (n, 9), not scaled; NaN where a sample has no premise text, or no image."""
        table = np.full((len(samples), len(INPUTS)), np.nan)
        columns = (samples.premise, samples.hypothesis, samples.image)
        for i, (premise, hypothesis, image) in enumerate(zip(*columns, strict=True)):
            row = self.row[hypothesis]
            if premise:
                captions = self.merged.get(premise, (premise,))
                cosines = self.sentences[[self.row[c] for c in captions]] @ self.sentences[row]
                overlap = overlap_parts(captions, hypothesis, self.weights)
                table[i, :4] = *overlap, cosines.max(), cosines.mean()
                table[i, 6:] = covered(*map(self.tokens.units, (hypothesis, premise)))
            if image >= 0:
                table[i, 4] = self.image_vectors[image] @ self.text_vectors[row]
            table[i, 5] = sum(self.weights[stem] for stem in sorted(stems(hypothesis)))
        return table

    def similarities(self, rows: np.ndarray, texts: Sequence[str]) -> np.ndarray:
        """Cosines (rows, texts) of images of the image table with texts, by the retriever."""
        return self.image_vectors[rows] @ self.text_vectors[[self.row[text] for text in texts]].T

    def fingerprint(self) -> bytes:
        """A hash of all of it."""
        digest = hashlib.sha256(as_bytes(list(self.row)))
        tokens = self.tokens.states[::97]
        for vectors in (self.sentences, self.text_vectors, self.image_vectors, tokens):
            digest.update(np.ascontiguousarray(vectors).tobytes())
        return digest.digest()


@torch.no_grad()
def frozen(
    retriever: AlignFuse, words: Words, images: np.ndarray, texts: Sequence[str],
    weights: Weights, merged: Mapping[str, tuple[str, ...]], states: TokenStates | None = None,
) -> Frozen:  # fmt: skip
    """What a trained ALBEF-like retriever, and a BERT, if any, make of images and texts.

    images (N, R, W): an image table. weights, merged: see `Frozen`. states: of all texts' tokens by
    the BERT; without, the retriever's text encoder takes its place.
    """
    retriever.eval()
    blocks = torch.from_numpy(images).split(BLOCK)
    image_vectors = torch.cat([retriever.image_states(block)[1] for block in blocks]).numpy()
    tokens, vectors = [], []
    for start in range(0, len(texts), BLOCK):
        some = [words.ids(text)[:MAX_WORDS] for text in texts[start : start + BLOCK]]
        ids, lengths = map(torch.from_numpy, padded(some))
        deep, _, unit = retriever.text_states(ids, lengths)
        tokens += [] if states else [s[1 : n + 1] for n, s in zip(lengths, deep, strict=True)]
        vectors.append(unit)
    text_vectors = torch.cat(vectors).numpy()
    if states is None:
        sentences, numbers = text_vectors, np.array([len(row) for row in tokens])
        states = TokenStates(texts, torch.cat(tokens).numpy(), numbers, merged)
    else:
        means = states.sentences()
        sentences = np.stack([means[text] for text in texts])
    row = {text: i for i, text in enumerate(texts)}
    return Frozen(row, sentences, text_vectors, image_vectors, weights, merged, states)


@dataclass(frozen=True)
class Scale:
    """Mean and deviation (9,) of INPUTS over calibration samples."""

    mean: np.ndarray
    deviation: np.ndarray

    @classmethod
    def of(cls, inputs: np.ndarray) -> "Scale":
        """The scale of some inputs, what is NaN left out."""
        return cls(np.nanmean(inputs, axis=0), np.nanstd(inputs, axis=0) + 1e-6)

    def __call__(self, inputs: np.ndarray) -> np.ndarray:
        """With mean 0 and deviation 1, float32; what is unknown becomes 0, the mean."""
        return np.nan_to_num((inputs - self.mean) / self.deviation).astype(np.float32)


@dataclass(frozen=True)
class Calibration:
    """From what a judge's network says, and INPUTS, to a margin: 0 where a pair is just entailed.

    Fitted on calibration pairs at the prior of mining: a logistic regression on some columns of
    INPUTS and the network's log odds, then the threshold of best F0.5. A network alone (no columns)
    keeps its order.

    weights (1 + p,): intercept first; the network's comes last. limit: the threshold.
    """

    weights: np.ndarray
    columns: tuple[int, ...]
    limit: float

    @classmethod
    def fit(
        cls, pairs: "Labelled", log_odds: np.ndarray, columns: tuple[int, ...]
    ) -> "Calibration":
        """log_odds (n,): by the network, of the calibration pairs."""
        labels, weights = pairs.samples.label, np.array([0.0, 1.0])
        if columns:
            table = np.column_stack([pairs.given[:, columns], log_odds])
            weights = logistic(table, labels, pairs.weights)
        raw = cls(weights, columns, 0.0).margin(log_odds, pairs.given)
        return cls(weights, columns, best_threshold(labels, raw, pairs.weights))

    def margin(self, log_odds: np.ndarray, given: np.ndarray) -> np.ndarray:
        """Margins (n,) of other pairs; given (n, 9): their INPUTS, scaled."""
        table = np.column_stack([given[:, self.columns], log_odds])
        return self.weights[0] + table @ self.weights[1:] - self.limit


def logistic(inputs: np.ndarray, labels: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Weights (1 + p,), intercept first, of a logistic regression with a small ridge penalty.

    inputs (n, p); labels (n,) 0 or 1; counts (n,): how many each row stands for.
    """
    from sklearn.linear_model import LogisticRegression  # not on a machine that only trains

    model = LogisticRegression(C=1 / RIDGE, tol=1e-8, solver="newton-cholesky")
    model.fit(inputs, labels, counts)
    return np.r_[model.intercept_, model.coef_[0]]


def rounded(margin: np.ndarray) -> np.ndarray:
    """To two digits downwards, so that no pair changes from not called to called."""
    return np.floor(100 * margin) / 100


def baseline_margin(arrays: "Arrays", name: str, given: np.ndarray, seed: int = 0) -> np.ndarray:
    """Margins (n,) by a baseline, from scaled INPUTS (n, 9).

    name: "overlap" (words said + nearest caption), one of INPUTS, "random", or "regression", a
    logistic one on all of INPUTS. Raises ValueError for another one.
    """
    pairs = arrays.calibration

    def scores(given: np.ndarray, seed: int) -> np.ndarray:
        raw = given * arrays.scale.deviation + arrays.scale.mean
        if name == "regression":
            weights = logistic(pairs.given, pairs.samples.label, pairs.weights)
            return weights[0] + given @ weights[1:]
        if name == "random":
            return np.random.default_rng([7, seed]).random(len(given))
        if name == "overlap":
            return raw[:, 0] + raw[:, 1]
        if name not in INPUTS:
            raise ValueError(f"no baseline {name!r}")
        return raw[:, INPUTS.index(name)]

    calibrated = scores(pairs.given, seed + 1000)
    return scores(given, seed) - best_threshold(pairs.samples.label, calibrated, pairs.weights)
