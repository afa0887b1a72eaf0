"""What can be read off words, pictures and trained vectors about relations, by linear probes."""

from collections.abc import Callable, Mapping

import numpy as np
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import expit

from mmlib.papers.coherence.arrays import Arrays, Split
from mmlib.papers.coherence.model import full_ranks

BETAS = (0.0, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32)
WORDS, PICTURES = 0.3, 1e-4  # ridge penalties: of occurring words, of a picture's features


def logistic(x: np.ndarray | sparse.csr_matrix, labels: np.ndarray, penalty: float) -> np.ndarray:
    """Weights (d + 1,), the last one the constant, of a logistic regression of labels (n,) on x.

    Minimises the mean cross-entropy plus `penalty`/2 · |weights|², the constant apart. Labels that
    are all the same give their log-odds, smoothed, as the constant.
    """
    y, n = np.asarray(labels, dtype=float), len(labels)
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


def log_odds(weights: np.ndarray, x: np.ndarray | sparse.csr_matrix) -> np.ndarray:
    """(n,) what `logistic` says of rows of x."""
    return np.asarray(x @ weights[:-1] + weights[-1])


def average_precision(labels: np.ndarray, scores: np.ndarray) -> float:
    """Mean precision where positives stand, equal scores taken together; NaN without positives."""
    labels = np.asarray(labels, dtype=bool)
    if not labels.any():
        return float("nan")
    order = np.argsort(-scores, kind="stable")
    last = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1)  # of equal scores
    found = np.cumsum(labels[order])[last]
    return float((np.diff(found, prepend=0) * found / (last + 1)).sum() / found[-1])


def precisions(
    train: np.ndarray | sparse.csr_matrix, test: np.ndarray | sparse.csr_matrix,
    labels: Mapping[str, np.ndarray], penalty: float,
) -> np.ndarray:  # fmt: skip
    """(C,) average precision on test rows of probes that were fitted to training rows."""
    return np.array([
        average_precision(truth, log_odds(logistic(train, seen, penalty), test))
        for seen, truth in zip(labels["train"].T, labels["test"].T, strict=True)
    ])  # fmt: skip


def occurring(split: Split, words: int) -> sparse.csr_matrix:
    """Whether each word occurs in each text, (n, words); padding and unknown words do not count."""
    rows, places = np.nonzero(split.ids > 1)
    pairs = np.unique(np.column_stack([rows, split.ids[rows, places]]), axis=0).T
    return sparse.csr_matrix((np.ones(pairs.shape[1]), pairs), shape=(len(split), words))


def pictures_of(split: Split) -> np.ndarray:
    """The features (n, W) of each pair's picture."""
    assert isinstance(split.images, np.ndarray)
    return split.images[split.image_of]


# --- Relations in the ranking, without a trained head --------------------------------------------


def shown(arrays: Arrays, split: str) -> np.ndarray:
    """What each picture tells of each relation: (2, pairs, C) log ratios.

    Row 0: log p(no | picture) − log p(no), row 1 the same of yes, by probes of training pictures.
    """
    train, own = arrays.splits["train"], pictures_of(arrays.splits[split])
    told = np.zeros((2, len(own), len(arrays.relations)))
    for c, truth in enumerate(train.labels.T):
        at = log_odds(logistic(pictures_of(train), truth, PICTURES), own)
        rate = np.clip(truth.mean(), 1e-3, 1 - 1e-3)
        told[0, :, c] = -np.logaddexp(0, at) - np.log(1 - rate)
        told[1, :, c] = -np.logaddexp(0, -at) - np.log(rate)
    return told


def told_by_words(arrays: Arrays, split: str) -> np.ndarray:
    """(pairs, C) probability of each relation by the words of its text alone."""
    train, size = arrays.splits["train"], len(arrays.words)
    x, own = occurring(train, size), occurring(arrays.splits[split], size)
    return np.stack(
        [expit(log_odds(logistic(x, truth, WORDS / len(train)), own)) for truth in train.labels.T],
        axis=1,
    )


def mixed(theta: np.ndarray, likely: np.ndarray, told: np.ndarray, beta: float) -> np.ndarray:
    """Cosines (n, m) plus β times the log likelihood ratio of a picture under a text's relations.

    likely (n, C): probabilities of the text's relations, 0 and 1 where they are known; told: of
    `shown`. Relations are taken for independent, so this is a lower bound of what they could add.
    """
    no, yes = np.exp(told)
    ratio = np.zeros_like(theta)
    for c in range(likely.shape[1]):
        ratio += np.log(np.outer(likely[:, c], yes[:, c]) + np.outer(1 - likely[:, c], no[:, c]))
    return theta + beta * ratio


def fused(
    theta: Mapping[str, np.ndarray], likely: Mapping[str, np.ndarray],
    told: Mapping[str, np.ndarray],
) -> np.ndarray:  # fmt: skip
    """Ranks (n,) of test texts by `mixed`, with the β that ranks dev best (mean log2 rank)."""

    def ranked(split: str, beta: float) -> np.ndarray:
        return full_ranks(mixed(theta[split], likely[split], told[split], beta))

    beta = min(BETAS, key=lambda one: float(np.log2(ranked("val", one)).mean()))
    return ranked("test", beta)


Fusions = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]


def fusions(arrays: Arrays) -> Fusions:
    """What ranks cosines with relations: "true" (an oracle) and "told" by words (deployable)."""
    told = {split: shown(arrays, split) for split in ("val", "test")}
    true = {split: arrays.splits[split].labels.astype(float) for split in told}
    words = {split: told_by_words(arrays, split) for split in told}
    return lambda theta: {
        "rank, true relations": fused(theta, true, told),
        "rank, told relations": fused(theta, words, told),
    }
