"""Baselines of paper 01, and what words and pictures say of relations before any training."""

import time

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from mmlib.core.jobs import Answer, Job, Run
from mmlib.papers.coherence import metrics
from mmlib.papers.coherence.batches import Arrays, Split
from mmlib.papers.coherence.probes import PICTURES, WORDS, occurring, pictures_of, precisions

PENALTIES = (3.0, 30.0, 300.0)  # of the ridge regression


def score(job: Job, arrays: Arrays, run: Run = Run()) -> Answer:
    """Ranks as of `train.train_and_score`, of what is not trained by gradient.

    baseline "random": cosines drawn by the seed; "ridge": see `ridge`; "truth": the scores of the
    collection's oracle that "knows" what its row says.
    """
    started, count = time.process_time(), len(arrays.splits["test"])
    if job.system["baseline"] == "ridge":
        theta = ridge(arrays)
    elif job.system["baseline"] == "truth":
        theta = arrays.truth[job.system["knows"]]
    else:
        theta = np.random.default_rng([7, job.seed]).random((count, count))
    in_pools = metrics.pool_ranks(theta, metrics.pools_of(count))
    values = {"test": {"rank": metrics.full_ranks(theta)}, "pools": metrics.pool_metrics(in_pools)}
    return Answer(values, seconds=time.process_time() - started)


def ridge(arrays: Arrays) -> np.ndarray:
    """Cosines (test texts, pairs' pictures) of features and what a bag of words predicts of them.

    A ridge regression of a picture's features on which words occur, in closed form; the penalty is
    the one of PENALTIES that ranks dev best.
    """
    x, y = occurring(arrays.splits["train"], len(arrays.words)), pictures_of(arrays.splits["train"])
    centre = y.mean(axis=0)
    products, target = (x.T @ x).toarray(), x.T @ (y - centre)

    def cosines(split: Split, weights: np.ndarray) -> np.ndarray:
        predicted = occurring(split, len(arrays.words)) @ weights
        return _unit(predicted) @ _unit(pictures_of(split) - centre).T

    solutions = [
        cho_solve(cho_factor(products + penalty * np.eye(len(products))), target)
        for penalty in PENALTIES
    ]
    best = min(solutions, key=lambda w: metrics.mean_log_rank(cosines(arrays.splits["val"], w)))
    return cosines(arrays.splits["test"], best)


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)


def describe_pairs(job: Job | None, arrays: Arrays, run: Run = Run()) -> Answer:
    """What words and pictures say of each relation before any training.

    Split "relations": "rate" (of test pairs), and the average precision on test pairs of linear
    probes of "AP of words" (which occur) and "AP of pictures" (their features).
    Split "test": for each relation whether it holds, such as "Visible".
    """
    splits = {name: arrays.splits[name] for name in ("train", "test")}
    labels = {name: split.labels for name, split in splits.items()}
    bags = {name: occurring(split, len(arrays.words)) for name, split in splits.items()}
    penalty = WORDS / len(labels["train"])
    relations = {
        "rate": labels["test"].mean(axis=0),
        "AP of words": precisions(bags["train"], bags["test"], labels, penalty),
    }
    if isinstance(splits["train"].images, np.ndarray):
        train, test = (pictures_of(split) for split in splits.values())
        relations["AP of pictures"] = precisions(train, test, labels, PICTURES)
    holds = dict(zip(arrays.relations, labels["test"].T.astype(float), strict=True))
    return Answer({"relations": relations, "test": holds})
