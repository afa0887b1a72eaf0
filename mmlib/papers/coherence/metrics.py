"""The measures of paper 01: ranks of a text's own image, in full or in pools; precision."""

import numpy as np
from scipy import stats

from mmlib.papers.coherence.batches import POOLS
from mmlib.papers.coherence.method import refine

POOL = 500  # pairs in a pool


def pools_of(pairs: int, size: int = POOL, count: int = POOLS, seed: int = 0) -> np.ndarray:
    """Pools of test pairs (count, size), drawn once and shared by all systems.

    Without replacement, unlike in the code behind Table 7, where a pool holds some pairs twice.
    Smaller test sets have smaller pools.
    """
    rng = np.random.default_rng([seed, 501])
    size = min(size, pairs)
    return np.array([rng.choice(pairs, size, replace=False) for _ in range(count)])


def full_ranks(
    theta: np.ndarray, eta: np.ndarray | None = None, threshold: float = np.inf
) -> np.ndarray:
    """Rank (n,), from 1, of each text's own image: 1 + better ones + half of the equal ones.

    theta (n, n): text i with the image of pair j. With eta (n, n), rows with Δ below `threshold`
    are refined first; that takes two pairs or more.
    """
    if eta is not None:
        theta = refine(theta, eta, threshold)
    right = theta.diagonal()[:, None]
    return 1 + (theta > right).sum(axis=1) + ((theta == right).sum(axis=1) - 1) / 2


def mean_log_rank(
    theta: np.ndarray, eta: np.ndarray | None = None, threshold: float = np.inf
) -> float:
    """Mean log2 rank of the own image, `full_ranks` as one figure: 1 less is half the rank."""
    return float(np.log2(full_ranks(theta, eta, threshold)).mean())


def pool_ranks(
    theta: np.ndarray, pools: np.ndarray, eta: np.ndarray | None = None, threshold: float = np.inf
) -> np.ndarray:
    """`full_ranks` within each pool (count, size) of pairs: (count, size). Δ is the pool's own."""
    grids = (np.ix_(pool, pool) for pool in pools)
    return np.array(
        [full_ranks(theta[at], None if eta is None else eta[at], threshold) for at in grids]
    )


def pool_metrics(ranks: np.ndarray) -> dict[str, np.ndarray]:
    """MedR and R@1, 5, 10 in percent of each pool: ranks (count, size) -> arrays (count,).

    MedR lies between 1 and the pool's size (the paper says between 0 and 1, a slip); by chance
    250.5 for 500. One image is right for a text, so R@K is a hit rate and a recall at once.
    """
    return {
        "MedR": np.median(ranks, axis=1),
        **{f"R@{k}": 100 * (ranks <= k).mean(axis=1) for k in (1, 5, 10)},
    }


def expected_in_pools(ranks: np.ndarray, pairs: int, size: int = POOL) -> dict[str, float]:
    """MedR and R@1, 5, 10 of some texts, in expectation over random pools that hold them.

    ranks (n,): of their own images among all `pairs`; a pool has `size` of these. How many of the
    better images are in it is hypergeometric, so R@K, in percent, is exact (a half rank, from a
    tie, counts half to either side). MedR is the median of the expected ranks.
    """
    size = min(size, pairs)
    better = np.asarray(ranks, dtype=float) - 1
    sides = [np.floor(better).astype(int), np.ceil(better).astype(int)]
    figures = {"MedR": float(np.median(1 + better * (size - 1) / max(pairs - 1, 1)))}
    for k in (1, 5, 10):
        within = [stats.hypergeom.cdf(k - 1, pairs - 1, side, size - 1) for side in sides]
        figures[f"R@{k}"] = 100 * float(np.mean(within))
    return figures


def selected(aware: np.ndarray, agnostic: np.ndarray, most: int = 100) -> np.ndarray:
    """Rows that the authors' code exports for raters: where the aware system's rank of the true
    picture is strictly better than the other's, its best first. (There the relation holds, too.)
    """
    better = np.flatnonzero(aware < agnostic)
    return better[np.argsort(aware[better], kind="stable")][:most]


def average_precisions(labels: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Average precision (C,) of each relation: labels, scores (n, C); NaN without positives."""
    from sklearn.metrics import average_precision_score

    return np.array([
        average_precision_score(truth, score) if truth.any() else np.nan
        for truth, score in zip(labels.T, scores.T, strict=True)
    ])  # fmt: skip
