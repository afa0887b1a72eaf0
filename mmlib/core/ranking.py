"""Ranking, recall, and exact search.

Equal scores never gain by their place in an array. What is a share of the first k (p@k, E@k, the
best of a family) is the expectation over all orders of equal scores: `chance_among_first`. A rank
is one place in one list, so that it has no such expectation: irrelevant items come first among
equal scores, and constant scores earn nothing. Ranks start at 1 and are counted, not sorted: the
items that score as high or higher, less the relevant ones of the same score that come later.

Cosines are exact. Unit vectors are rounded to multiples of 2⁻²⁶ (finer than float32 at the size of
their entries), so that each product and each partial sum of a cosine fits float64 without
rounding. Neither the size of the blocks nor the number of threads nor the linear algebra library
can then move a rank, and two images with the same embedding always tie.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

KS = (1, 5, 10)
UNIT = 1e-3  # how far the length of a unit vector may be from 1
GRID = 2.0**26


def _refuse_nan(scores: np.ndarray) -> None:
    if len(bad := np.argwhere(np.isnan(np.atleast_2d(scores)))):
        place = f"row {bad[0][-2]}, column {bad[0][-1]}"
        raise ValueError(f"the score in {place} is not a number (NaN): nothing can be ranked")


def average_precision(scores: np.ndarray, relevant: np.ndarray) -> np.ndarray:
    """Average precision (q,) in [0, 1]: the mean, over relevant items, of the precision there.

    scores (q, g), higher is better; relevant (q, g), bool. The mean over queries is MAP.
    Raises ValueError for NaN, and for a query without a relevant item.
    """
    if relevant.shape != scores.shape:
        raise ValueError(f"relevant {relevant.shape} for scores {scores.shape}")
    _refuse_nan(scores)
    if len(without := np.flatnonzero(~relevant.any(axis=1))):
        raise ValueError(f"query {without[0]} has no relevant item (leave such queries out)")
    order = np.lexsort((relevant, -scores))  # irrelevant items come first among equal scores
    every = [1 + np.flatnonzero(row) for row in np.take_along_axis(relevant, order, axis=1)]
    precisions = [(np.arange(1, len(ranks) + 1) / ranks).tolist() for ranks in every]
    return np.array([sum(of_query) / len(of_query) for of_query in precisions])


@dataclass(frozen=True, eq=False)
class Ranks:
    """Ranks of an image-caption retrieval both ways, from 1.

    caption_ranks (m,): caption as query, the rank of its image among the n images.
    image_ranks (n,): image as query, the rank of its best-ranked own caption among the m captions.
    """

    caption_ranks: np.ndarray
    image_ranks: np.ndarray


def ranks_of_scores(scores: np.ndarray, image_of: np.ndarray) -> Ranks:
    """Rank both ways from a full matrix of scores, as ensembles and reranking need it.

    scores (n, m) of n images with m captions, higher is better; image_of (m,): the image of each
    caption, at least one caption an image, in any order. Among equal scores the right item comes
    last. Raises ValueError for NaN, and where an image has no caption or a caption no image.
    """
    scores, image_of = np.asarray(scores), np.asarray(image_of)
    if scores.ndim != 2 or image_of.shape != scores.shape[1:]:
        raise ValueError(f"scores {scores.shape} with image_of {image_of.shape}: not (n, m), (m,)")
    _check_image_of(image_of, len(scores))
    _refuse_nan(scores)
    true = scores[image_of, np.arange(len(image_of))]
    return _both_ways(lambda rows, columns: scores[rows, columns], true, image_of, 1024)


def rank_images_and_captions(
    images: np.ndarray, captions: np.ndarray, image_of: np.ndarray, *, block: int = 1024
) -> Ranks:
    """Rank both ways by the cosine of unit embeddings, without the full matrix in memory.

    images (n, D), captions (m, D), each row of length 1; image_of (m,) as in `ranks_of_scores`.
    A tile of block × 4 block scores is in memory at a time; the ranks do not depend on it.
    Cosines are exact (see the module's text) and then rounded to float32.
    Raises ValueError as `ranks_of_scores`, and for rows that are not of length 1.
    """
    images, captions, image_of = np.asarray(images), np.asarray(captions), np.asarray(image_of)
    if images.ndim != 2 or captions.ndim != 2 or images.shape[1] != captions.shape[1]:
        raise ValueError(f"images {images.shape}, captions {captions.shape}: not (n, D), (m, D)")
    if image_of.shape != captions.shape[:1]:
        raise ValueError(f"image_of is {image_of.shape} for {len(captions)} captions")
    _check_image_of(image_of, len(images))
    for name, vectors in (("images", images), ("captions", captions)):
        lengths = np.linalg.norm(np.asarray(vectors, dtype=np.float32), axis=1)
        wrong = np.flatnonzero(~(np.abs(lengths - 1) <= UNIT))  # so written that NaN is wrong, too
        if wrong.size:
            length = f"the vector's length is {lengths[wrong[0]]:.4g}, not 1"
            raise ValueError(f"{name}, row {wrong[0]}: {length} (divide each embedding by it)")

    def cosines(rows: slice, columns: slice) -> np.ndarray:
        return (on_grid(images[rows]) @ on_grid(captions[columns]).T).astype(np.float32)

    true = np.empty(len(captions), dtype=np.float32)
    for some in _slices(len(captions), block):
        pairs = on_grid(images[image_of[some]]), on_grid(captions[some])
        true[some] = np.einsum("cd,cd->c", *pairs)
    return _both_ways(cosines, true, image_of, block)


def on_grid(vectors: np.ndarray) -> np.ndarray:
    """Unit vectors as float64 multiples of 2⁻²⁶: their products are exact in any order."""
    return np.rint(np.asarray(vectors, dtype=np.float64) * GRID) / GRID


def _slices(length: int, block: int) -> Iterator[slice]:
    return (slice(start, min(start + block, length)) for start in range(0, length, block))


def _check_image_of(image_of: np.ndarray, images: int) -> None:
    absent = np.setdiff1d(np.arange(images), image_of)
    wanted = f"image_of must name each of {images} images, counted from 0"
    if absent.size:
        raise ValueError(f"image {absent[0]} has no caption: {wanted}")
    if not images or image_of.dtype.kind not in "iu" or len(np.unique(image_of)) > images:
        raise ValueError(f"{wanted}, and no other")


def _both_ways(
    tile: Callable[[slice, slice], np.ndarray], true: np.ndarray, image_of: np.ndarray, block: int
) -> Ranks:
    """Ranks from tiles (rows, columns) of the score matrix and the scores (m,) of true pairs."""
    images = image_of.max() + 1
    best = np.full(images, -np.inf, true.dtype)  # of each image's own captions
    np.maximum.at(best, image_of, true)
    caption_ranks = np.zeros(len(true), np.int64)  # a right one counts as ahead of itself
    image_ranks = 1 - np.bincount(image_of, weights=true >= best[image_of]).astype(np.int64)
    for rows in _slices(images, block):
        for columns in _slices(len(true), 4 * block):
            scores = tile(rows, columns)
            caption_ranks[columns] += np.count_nonzero(scores >= true[columns], axis=0)
            image_ranks[rows] += np.count_nonzero(scores >= best[rows, None], axis=1)
    return Ranks(caption_ranks, image_ranks)


def hits(ranks: Ranks, k: int, direction: Literal["i2t", "t2i"]) -> np.ndarray:
    """Whether each query succeeds at K, as bool: (n,) images for "i2t", (m,) captions for "t2i".

    Captions of one image depend on each other: an interval over queries takes them together.
    """
    return {"i2t": ranks.image_ranks, "t2i": ranks.caption_ranks}[direction] <= k


def metrics(ranks: Ranks, ks: Sequence[int] = KS) -> dict[str, float]:
    """The field's figures: R@K both ways in percent, RSUM, and median and mean rank.

    Keys: i2t_r1, i2t_r5, i2t_r10, t2i_r1, ..., rsum (the sum of all R@K), i2t_medr, i2t_meanr,
    t2i_medr, t2i_meanr (ranks from 1).

    The field calls R@K a recall, but it is a hit rate: an image with five captions scores 100 as
    soon as one of them is in the top K, of which the recall would be 20. Figures of different
    gallery sizes cannot be compared either.
    """
    ways: tuple[Literal["i2t"], Literal["t2i"]] = ("i2t", "t2i")
    figures = {f"{way}_r{k}": 100 * float(hits(ranks, k, way).mean()) for way in ways for k in ks}
    figures["rsum"] = sum(figures.values())
    for way, places in zip(ways, (ranks.image_ranks, ranks.caption_ranks), strict=True):
        figures[f"{way}_medr"] = float(np.median(places))
        figures[f"{way}_meanr"] = float(places.mean())
    return figures


def chance_among_first(scores: np.ndarray, k: int) -> np.ndarray:
    """How likely each score is among the k highest of its row, equal ones in random order.

    scores (..., n), higher is better; k from 0, taken as n where it is more. Returns (..., n) in
    [0, 1], each row of the sum k: `(relevant * chance).sum(-1) / k` is the expected p@k. Raises
    ValueError for NaN.
    """
    _refuse_nan(scores)
    k = min(k, scores.shape[-1])
    if not k:
        return np.zeros(scores.shape)
    border = np.partition(scores, -k, axis=-1)[..., [-k]]
    above, at = scores > border, scores == border
    free = k - above.sum(axis=-1, keepdims=True)
    return above + at * (free / at.sum(axis=-1, keepdims=True))


def flat_index(vectors: np.ndarray) -> Any:
    """A `faiss.IndexFlatIP` of vectors (n, D), float32: exact search by inner product.

    `search(queries (q, D), k)` returns scores and rows, (q, k) each, best first. It uses PyTorch's
    number of threads.
    """
    mac = sys.platform == "darwin"  # faiss and PyTorch each bring an OpenMP there, and clash
    if mac:
        os.environ.setdefault("KMP_DUPLICATE_LIB_OK", "TRUE")
    import faiss  # imported late: few need it
    import torch

    faiss.omp_set_num_threads(1 if mac else torch.get_num_threads())
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    return index
