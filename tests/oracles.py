"""Brute force: slow, plain answers to compare the fast code with. Nothing here uses mmlib.

Rows are sentences and columns images in paper 04, images and captions elsewhere.
"""

from itertools import combinations, permutations

import numpy as np


def matchings(n: int, m: int, k: int):
    """Every matching of k edges between n rows and m columns, as a list of pairs."""
    for rows in combinations(range(n), k):
        for columns in permutations(range(m), k):
            yield list(zip(rows, columns, strict=True))


def mean_of_largest(values, k: int) -> float:
    return sum(sorted(values, reverse=True)[:k]) / k


def dc(matrix) -> float:
    return float(
        np.mean([max(r) for r in matrix]) + np.mean([max(c) for c in np.transpose(matrix)])
    )


def tk(matrix, k: int) -> float:
    best_image = [max(row) for row in matrix]
    best_sentence = [max(column) for column in np.transpose(matrix)]
    return float(mean_of_largest(best_image, k) + mean_of_largest(best_sentence, k))


def ap(matrix, k: int) -> tuple[float, list]:
    """Mean of the best matching with exactly k edges, and one such matching."""
    weight = {tuple(e): sum(matrix[i][j] for i, j in e) for e in matchings(*np.shape(matrix), k)}
    best = max(weight, key=lambda edges: weight[edges])
    return float(weight[best] / k), [list(edge) for edge in best]


def similarity(matrix, name: str) -> float:
    """Document similarity by the name of the system."""
    n, m = np.shape(matrix)
    k = -(-min(n, m) // 2) if name.endswith("½k") else min(n, m)
    if name == "DC":
        return dc(matrix)
    return tk(matrix, k) if name.startswith("TK") else ap(matrix, k)[0]


def loss(q, margin: float = 0.2, negatives: str = "hard", same=None) -> float:
    """The mean hinge of rows plus that of columns; same (D, D): which pairs are no negatives.

    Whoever has no negative costs nothing.
    """
    pool = max if negatives == "hard" else (lambda values: sum(values) / len(values))
    size, same = len(q), np.eye(len(q)) if same is None else same
    others = [[j for j in range(size) if not same[i][j]] for i in range(size)]
    sides = [
        [pool([max(0, margin - s[i][i] + s[i][j]) for j in others[i]] or [0]) for i in range(size)]
        for s in (q, np.transpose(q))
    ]
    return float(np.mean(sides[0]) + np.mean(sides[1]))


def sorted_ranks(row, relevant) -> list[int]:
    """The ranks of the relevant items of one query by a plain sort, irrelevant ones first."""
    is_relevant = np.isin(np.arange(len(row)), relevant)
    order = np.lexsort((np.arange(len(row)), is_relevant, -row))
    return [int(np.flatnonzero(order == item)[0]) + 1 for item in relevant]


def auc(scores, links) -> float:
    """Share of (link, other) pairs in the right order, in percent; a tie is half right."""
    scores, links = np.ravel(scores), np.ravel(links).astype(bool)
    right = [(a > b) + (a == b) / 2 for a in scores[links] for b in scores[~links]]
    return 100 * float(np.mean(right))


def precision(scores, links, count: int) -> float:
    """Expected share of links among the `count` best cells, in percent, by averaging over orders.

    Equal cells come in random order: the first that are left are each of them with one chance.
    """
    cells = list(zip(np.ravel(scores), np.ravel(links), strict=True))
    left, hits = min(count, len(cells)), 0.0
    for value in sorted({score for score, _ in cells}, reverse=True):
        level = [bool(link) for score, link in cells if score == value]
        taken = min(left, len(level))
        hits += taken * sum(level) / len(level)
        left -= taken
    return 100 * hits / min(count, len(cells))


def entail_at_k(ranked, entailed, k: int) -> float:
    """E@K (eq. 13 [R]), in percent: the mean share of entailed or golden texts among the first K.

    ranked: for each image its texts, best first. entailed (images, texts): 0 to 1.
    """
    return 100 * np.mean([entailed[i, list(texts[:k])].mean() for i, texts in enumerate(ranked)])
