"""What can be read off words, pictures and trained vectors about relations, by linear probes."""

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import expit

from mmlib.papers.coherence.batches import Arrays, Split
from mmlib.papers.coherence.metrics import average_precisions, full_ranks, mean_log_rank

BETAS = (0.0, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32)
WORDS, PICTURES = 0.3, 1e-4  # ridge penalties: of occurring words, of a picture's features
Matrix: TypeAlias = np.ndarray | sparse.csr_matrix
BySplit = Mapping[str, np.ndarray]


def probe(train: Matrix, labels: np.ndarray, penalty: float, test: Matrix) -> np.ndarray:
    """Log-odds (rows of test, C) by logistic regressions of each relation on rows of train.

    labels (rows of train, C). penalty: λ of λ/2 · |weights|² beside the mean cross-entropy.
    """
    weights = [_logistic(train, truth.astype(float), penalty) for truth in labels.T]
    return np.stack([np.asarray(test @ w[:-1] + w[-1]) for w in weights], axis=1)


def _logistic(x: Matrix, y: np.ndarray, penalty: float) -> np.ndarray:
    """Weights (d + 1,), the last one the constant, which is not penalised.

    Labels that are all the same give their log-odds, smoothed, as the constant. scikit-learn's
    solver ends elsewhere within the tolerance, and average precisions with it by up to 0.006.
    """
    n = len(y)
    start = np.zeros(x.shape[1] + 1)
    rate = (y.sum() + 0.5) / (n + 1)
    start[-1] = np.log(rate / (1 - rate))
    if not 0 < y.sum() < n:
        return start

    def loss(w: np.ndarray) -> tuple[float, np.ndarray]:
        logits = x @ w[:-1] + w[-1]
        value = np.logaddexp(0, logits).mean() - (y * logits).mean()
        slope = (expit(logits) - y) / n
        gradient = np.append(x.T @ slope + penalty * w[:-1], slope.sum())
        return value + penalty / 2 * float(w[:-1] @ w[:-1]), gradient

    return minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 300}).x


def precisions(
    train: Matrix, test: Matrix, labels: Mapping[str, np.ndarray], penalty: float
) -> np.ndarray:
    """Average precision (C,) on test rows of probes that were fitted to training rows."""
    return average_precisions(labels["test"], probe(train, labels["train"], penalty, test))


def occurring(split: Split, words: int) -> sparse.csr_matrix:
    """Whether each word occurs in each text, (n, words); padding and unknown words do not count."""
    rows, positions = np.nonzero(split.ids > 1)
    pairs = np.unique(np.column_stack([rows, split.ids[rows, positions]]), axis=0).T
    return sparse.csr_matrix((np.ones(pairs.shape[1]), pairs), shape=(len(split), words))


def pictures_of(split: Split) -> np.ndarray:
    """The features (n, W) of each pair's picture."""
    assert isinstance(split.images, np.ndarray)
    return split.images[split.image_of]


def likelihood_ratios(arrays: Arrays, split: str) -> np.ndarray:
    """How much likelier each relation is given the picture: (2, pairs, C) log ratios.

    Row 0: log p(no | picture) − log p(no), row 1 the same of yes, by probes of training pictures.
    """
    train = arrays.splits["train"]
    pictures = pictures_of(arrays.splits[split])
    logits = probe(pictures_of(train), train.labels, PICTURES, pictures)
    rate = np.clip(train.labels.mean(axis=0), 1e-3, 1 - 1e-3)
    no = -np.logaddexp(0, logits) - np.log(1 - rate)
    return np.stack([no, -np.logaddexp(0, -logits) - np.log(rate)])


def likely_by_words(arrays: Arrays, split: str) -> np.ndarray:
    """(pairs, C) probability of each relation by the words of its text alone."""
    train, size = arrays.splits["train"], len(arrays.words)
    bags = [occurring(pairs, size) for pairs in (train, arrays.splits[split])]
    return expit(probe(bags[0], train.labels, WORDS / len(train), bags[1]))


def fused(theta: np.ndarray, likely: np.ndarray, ratios: np.ndarray, beta: float) -> np.ndarray:
    """Cosines (n, m) plus β times the log likelihood ratio of a picture under a text's relations.

    likely (n, C): probabilities of the text's relations, 0 and 1 where they are given; ratios: of
    `likelihood_ratios`. Relations are taken for independent, so this is a lower bound of what they
    could add.
    """
    no, yes = np.exp(ratios)
    total = np.zeros_like(theta)
    for c in range(likely.shape[1]):
        total += np.log(np.outer(likely[:, c], yes[:, c]) + np.outer(1 - likely[:, c], no[:, c]))
    return theta + beta * total


def fused_ranks(theta: BySplit, likely: BySplit, ratios: BySplit) -> np.ndarray:
    """Ranks (n,) of test texts by `fused`, with the β that ranks dev best (mean log2 rank)."""

    def dev_level(beta: float) -> float:
        return mean_log_rank(fused(theta["val"], likely["val"], ratios["val"], beta))

    beta = min(BETAS, key=dev_level)
    return full_ranks(fused(theta["test"], likely["test"], ratios["test"], beta))


def relations_in_ranking(arrays: Arrays, theta: BySplit) -> dict[str, np.ndarray]:
    """Ranks by cosines and relations: "true" ones (an oracle), or as "told" by words.

    theta: cosines of the splits "val" and "test".
    """
    ratios = {split: likelihood_ratios(arrays, split) for split in theta}
    true = {split: arrays.splits[split].labels.astype(float) for split in theta}
    by_words = {split: likely_by_words(arrays, split) for split in theta}
    return {
        "rank, true relations": fused_ranks(theta, true, ratios),
        "rank, told relations": fused_ranks(theta, by_words, ratios),
    }
