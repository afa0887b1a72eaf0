"""Baselines of paper 01, and what words and pictures say of relations, by linear probes."""

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import torch
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import expit
from torch import Tensor, nn

from mmlib.core.jobs import Answer, Job, Run
from mmlib.papers.coherence import method
from mmlib.papers.coherence.data.pairs import Arrays

BETAS = (0.0, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32)
WORDS, PICTURES = 0.3, 1e-4  # ridge penalties: of occurring words, of a picture's features
PENALTIES = (3.0, 30.0, 300.0)  # of the ridge regression
Matrix: TypeAlias = np.ndarray | sparse.csr_matrix
BySplit = Mapping[str, np.ndarray]


class MeanPooling(method.AttentionPooling):
    """The mean of all states: what attention is without its query."""

    def __init__(self, width: int):
        super().__init__(width)
        nn.init.zeros_(self.query).requires_grad_(False)


class TwoLayers(method.CoherenceHead):
    """CAM with a hidden layer, in which a text and a picture can meet; the paper found no gain."""

    def __init__(self, width: int, relations: int):
        super().__init__(width, relations)
        hidden = nn.Linear(2 * width, 2 * width)
        self.linear = nn.Sequential(hidden, nn.ReLU(), self.linear)  # type: ignore[assignment]

    def all_pairs(self, texts: Tensor, images: Tensor) -> Tensor:
        """Probabilities x (n, m, C), one text at a time: nothing of a pair can be added up."""
        return torch.stack([self(t.expand_as(images), images).sigmoid() for t in texts])


def score(job: Job, arrays: Arrays, run: Run = Run()) -> Answer:
    """Ranks as of `run.train_and_score`, of `run.BASELINES` and `run.ORACLES`."""
    count = len(arrays.splits["test"])
    if job.system["baseline"] == "ridge":
        theta = ridge(arrays)
    elif job.system["baseline"] == "truth":
        theta = arrays.truth[job.system["knows"]]
    else:
        theta = np.random.default_rng([7, job.seed]).random((count, count))
    in_pools = method.pool_ranks(theta, method.pools_of(count))
    values = {"test": {"rank": method.full_ranks(theta)}, "pools": method.pool_metrics(in_pools)}
    return Answer(values)


def occurring(arrays: Arrays, split: str) -> sparse.csr_matrix:
    """Whether each word occurs in each text, (n, words); padding and unknown words do not count."""
    ids = arrays.splits[split].ids
    rows, positions = np.nonzero(ids > 1)
    pairs = np.unique(np.column_stack([rows, ids[rows, positions]]), axis=0).T
    return sparse.csr_matrix((np.ones(pairs.shape[1]), pairs), shape=(len(ids), len(arrays.words)))


def pictures_of(arrays: Arrays, split: str) -> np.ndarray:
    """The features (n, W) of each pair's picture."""
    images = arrays.splits[split].images
    assert isinstance(images, np.ndarray)
    return images[arrays.splits[split].image_of]


def ridge(arrays: Arrays) -> np.ndarray:
    """Cosines (test texts, pairs' pictures) of features and what a bag of words predicts of them.

    The penalty of the ridge regression is the one of PENALTIES that ranks dev best.
    """
    from sklearn.linear_model import Ridge  # not on a machine that only trains
    from sklearn.preprocessing import normalize

    x, y = occurring(arrays, "train"), pictures_of(arrays, "train")
    centre = y.mean(axis=0)

    def cosines(model: Ridge, split: str) -> np.ndarray:
        predicted = normalize(model.predict(occurring(arrays, split)))
        return predicted @ normalize(pictures_of(arrays, split) - centre).T

    models = (Ridge(p, fit_intercept=False, solver="cholesky") for p in PENALTIES)
    fitted = [model.fit(x, y - centre) for model in models]
    best = min(fitted, key=lambda model: method.mean_log_rank(cosines(model, "val")))
    return cosines(best, "test")


# --- What words and pictures say of relations ----------------------------------------------------


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


def precisions(rows: Mapping[str, Matrix], labels: BySplit, penalty: float) -> np.ndarray:
    """Average precision (C,) on test rows of probes that were fitted to training rows."""
    scores = probe(rows["train"], labels["train"], penalty, rows["test"])
    return method.average_precisions(labels["test"], scores)


def likelihood_ratios(arrays: Arrays, split: str) -> np.ndarray:
    """How much likelier each relation is given the picture: (2, pairs, C) log ratios.

    Row 0: log p(no | picture) − log p(no), row 1 the same of yes, by probes of training pictures.
    """
    labels, train = arrays.splits["train"].labels, pictures_of(arrays, "train")
    logits = probe(train, labels, PICTURES, pictures_of(arrays, split))
    rate = np.clip(labels.mean(axis=0), 1e-3, 1 - 1e-3)
    no = -np.logaddexp(0, logits) - np.log(1 - rate)
    return np.stack([no, -np.logaddexp(0, -logits) - np.log(rate)])


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

    def by(split: str, beta: float) -> np.ndarray:
        return fused(theta[split], likely[split], ratios[split], beta)

    best = min(BETAS, key=lambda beta: method.mean_log_rank(by("val", beta)))
    return method.full_ranks(by("test", best))


def relations_in_ranking(arrays: Arrays, theta: BySplit) -> dict[str, np.ndarray]:
    """Ranks by cosines and relations: "true" ones (an oracle), or as "told" by words.

    theta: cosines of the splits "val" and "test".
    """
    train, words = arrays.splits["train"].labels, occurring(arrays, "train")
    ratios = {split: likelihood_ratios(arrays, split) for split in theta}
    true = {split: arrays.splits[split].labels.astype(float) for split in theta}
    by_words = {
        split: expit(probe(words, train, WORDS / len(train), occurring(arrays, split)))
        for split in theta
    }
    return {
        "rank, true relations": fused_ranks(theta, true, ratios),
        "rank, told relations": fused_ranks(theta, by_words, ratios),
    }


def describe_pairs(job: Job | None, arrays: Arrays, run: Run = Run()) -> Answer:
    """What words and pictures say of each relation before any training.

    Split "relations": "rate" (of test pairs), and the average precision on test pairs of linear
    probes of "AP of words" (which occur) and "AP of pictures" (their features).
    Split "test": for each relation whether it holds, such as "Visible".
    """
    labels = {name: arrays.splits[name].labels for name in ("train", "test")}
    bags = {name: occurring(arrays, name) for name in labels}
    words = precisions(bags, labels, WORDS / len(labels["train"]))
    relations = {"rate": labels["test"].mean(axis=0), "AP of words": words}
    if isinstance(arrays.splits["train"].images, np.ndarray):
        pictures = {name: pictures_of(arrays, name) for name in labels}
        relations["AP of pictures"] = precisions(pictures, labels, PICTURES)
    holds = dict(zip(arrays.relations, labels["test"].T.astype(float), strict=True))
    return Answer({"relations": relations, "test": holds})
