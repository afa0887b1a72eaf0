"""Floors of paper 01, and what words and pictures tell of relations before any training."""

import time
from pathlib import Path

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from mmlib.core.jobs import Answer, Job
from mmlib.papers.coherence.arrays import Arrays, Split
from mmlib.papers.coherence.model import full_ranks, pool_metrics, pool_ranks
from mmlib.papers.coherence.probes import PICTURES, WORDS, occurring, pictures_of, precisions
from mmlib.papers.coherence.training import pools_of

PENALTIES = (3.0, 30.0, 300.0)  # of the ridge regression


def score(job: Job, arrays: Arrays, device: str = "cpu", checkpoint: Path | None = None) -> Answer:
    """Ranks as of `training.train_and_score`, of what is not trained by gradient.

    baseline "random": cosines drawn by the seed; "ridge": see `ridge`.
    """
    started, test = time.process_time(), arrays.splits["test"]
    kind = job.system["baseline"]
    if kind == "random":
        theta = np.random.default_rng([7, job.seed]).random((len(test), len(test)))
    elif kind == "ridge":
        theta = ridge(arrays)
    else:
        raise ValueError(f"no baseline {kind!r}: use random or ridge")
    values = {"test": {"rank": full_ranks(theta)},
              "pools": pool_metrics(pool_ranks(theta, pools_of(len(test))))}  # fmt: skip
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
        told = occurring(split, len(arrays.words)) @ weights
        return _unit(told) @ _unit(pictures_of(split) - centre).T

    best: tuple[float, np.ndarray] = (np.inf, np.empty(0))
    for penalty in PENALTIES:
        weights = cho_solve(cho_factor(products + penalty * np.eye(len(products))), target)
        level = float(np.log2(full_ranks(cosines(arrays.splits["val"], weights))).mean())
        best = min(best, (level, weights), key=lambda one: one[0])
    return cosines(arrays.splits["test"], best[1])


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)


def describe_pairs(
    job: Job, arrays: Arrays, device: str = "cpu", checkpoint: object = None
) -> Answer:
    """What is known of each relation before any training.

    Split "relations": "rate" (of test pairs), and the average precision on test pairs of linear
    probes of "AP of words" (which occur) and "AP of pictures" (their features).
    Split "test": for each relation whether it holds, such as "Visible".
    """
    splits = {name: arrays.splits[name] for name in ("train", "test")}
    labels = {name: own.labels for name, own in splits.items()}
    bags = {name: occurring(own, len(arrays.words)) for name, own in splits.items()}
    known = {"rate": labels["test"].mean(axis=0),
             "AP of words": precisions(bags["train"], bags["test"], labels,
                                       WORDS / len(labels["train"]))}  # fmt: skip
    if isinstance(splits["train"].images, np.ndarray):
        seen = {name: pictures_of(own) for name, own in splits.items()}
        known["AP of pictures"] = precisions(seen["train"], seen["test"], labels, PICTURES)
    holds = dict(zip(arrays.relations, labels["test"].T.astype(float), strict=True))
    return Answer({"relations": known, "test": holds})
