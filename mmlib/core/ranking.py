"""Ranking, recall, and exact search.

Equal scores never gain by their place in an array. What is a share of the first k (p@k, E@k, the
best of a family) is the expectation over all orders of equal scores: `chance_among_first`. A rank
is one place in one list, so that it has no such expectation. Ranks start at 1 and are counted, not
sorted: the rank of a relevant item follows from how many items score higher and how many score the
same. What comes first among equal scores is a rule:

- "pessimistic" (the default): irrelevant items come first, so constant scores earn nothing;
- "optimistic": relevant items come first.

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
import torch

Ties = Literal["pessimistic", "optimistic"]
Direction = Literal["i2t", "t2i"]
Tile = Callable[[slice, slice], np.ndarray]

KS = (1, 5, 10)
UNIT = 1e-3  # how far the length of a unit vector may be from 1
GRID = 2.0**26


# --- Exact cosines ----------------------------------------------------------------------------


def _check_unit(vectors: np.ndarray, name: str, block: int) -> None:
    """ValueError names the first of the vectors (n, D) that is not of length 1."""
    for rows in _slices(len(vectors), block):
        lengths = np.linalg.norm(np.asarray(vectors[rows], dtype=np.float32), axis=1)
        wrong = np.flatnonzero(~(np.abs(lengths - 1) <= UNIT))  # so written that NaN is wrong, too
        if wrong.size:
            raise ValueError(
                f"{name}, row {rows.start + wrong[0]}: the vector's length is "
                f"{lengths[wrong[0]]:.4g}, not 1 (divide each embedding by its length)"
            )


def _on_grid(vectors: np.ndarray) -> np.ndarray:
    """Unit vectors as float64 multiples of 2⁻²⁶: their products are exact in any order."""
    return np.rint(np.asarray(vectors, dtype=np.float64) * GRID) / GRID


def _slices(length: int, block: int) -> Iterator[slice]:
    if block < 1:
        raise ValueError(f"block is {block}, but a block holds at least 1 row")
    return (slice(start, min(start + block, length)) for start in range(0, length, block))


# --- Ranks ------------------------------------------------------------------------------------


class _Pairs:
    """Counts, over tiles of a score matrix, what each relevant pair (query, item) has above it."""

    def __init__(self, queries: np.ndarray, scores: np.ndarray, ties: Ties) -> None:
        if ties not in ("pessimistic", "optimistic"):
            raise ValueError(f"ties {ties!r} is not known: use pessimistic or optimistic")
        self.queries, self.own, self.ties = queries, scores, ties
        self.above = np.zeros(len(scores), dtype=np.int64)  # higher; if pessimistic, or the same
        # The c-th group holds the c-th pair of every query, so that a tile is compared at once.
        order = np.argsort(queries, kind="stable")
        nth = _places(queries[order])
        by_nth = np.argsort(nth, kind="stable")
        self.groups = np.split(order[by_nth], np.flatnonzero(np.diff(nth[by_nth])) + 1)

    def count(self, tile: np.ndarray, rows: slice) -> None:
        """Take in the scores (rows, items) of some queries with some items."""
        for group in self.groups:
            first, last = np.searchsorted(self.queries[group], (rows.start, rows.stop))
            pairs = group[first:last]
            rows_of = self.queries[pairs] - rows.start
            compared = tile if len(rows_of) == len(tile) else tile[rows_of]
            scores = self.own[pairs, None]
            is_above = compared >= scores if self.ties == "pessimistic" else compared > scores
            self.above[pairs] += np.count_nonzero(is_above, axis=1)

    def ranks(self) -> np.ndarray:
        """The rank of each pair's item in its query's list.

        Equal relevant items of a query take the places left to them one after another.
        """
        order = np.lexsort((self.own, self.queries))
        fresh = np.ones(len(order), dtype=bool)
        fresh[1:] = np.diff(self.queries[order]) != 0
        fresh[1:] |= self.own[order][1:] != self.own[order][:-1]
        run = np.cumsum(fresh) - 1
        position, size = np.empty_like(self.above), np.empty_like(self.above)
        position[order] = _places(run) + 1
        size[order] = np.bincount(run)[run]
        return self.above + position - (size if self.ties == "pessimistic" else 0)


def _places(ordered: np.ndarray) -> np.ndarray:
    """0, 1, 2, ... within each run of equal values: [4, 4, 7] -> [0, 1, 0]."""
    start = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1))
    return np.arange(len(ordered)) - np.repeat(start, np.diff(start, append=len(ordered)))


def pair_ranks(
    scores: np.ndarray,
    queries: np.ndarray,
    items: np.ndarray,
    *,
    ties: Ties = "pessimistic",
    block: int = 1024,
) -> np.ndarray:
    """The ranks of relevant items, given as pairs: item `items[p]` answers query `queries[p]`.

    scores (q, g), higher is better; queries, items (p,) integers, any number of pairs a query.
    Returns (p,) ranks from 1, int64.
    Raises ValueError for scores that are not numbers, pairs outside the matrix or given twice.
    """
    scores, queries, items = np.asarray(scores), np.asarray(queries), np.asarray(items)
    if scores.ndim != 2 or queries.shape != items.shape or queries.ndim != 1:
        raise ValueError(
            f"scores {scores.shape}, queries {queries.shape}, items {items.shape}: wanted are "
            "(q, g), (p,) and (p,)"
        )
    for name, index, size in (("query", queries, len(scores)), ("item", items, scores.shape[1])):
        _check_index(index, size, name)
    queries, items = queries.astype(np.int64), items.astype(np.int64)
    if len(np.unique(queries * scores.shape[1] + items)) < len(queries):
        raise ValueError("the same pair of query and item is given twice")
    pairs = _Pairs(queries, scores[queries, items], ties)
    for rows in _slices(len(scores), block):
        tile = scores[rows]
        _refuse_nan(tile, rows.start, 0)
        pairs.count(tile, rows)
    return pairs.ranks()


def best_ranks(scores: np.ndarray, relevant: Sequence[Sequence[int]]) -> np.ndarray:
    """The rank (q,) of each query's best-ranked relevant item.

    scores (q, g), higher is better; relevant: for each query its items, at least one.
    Raises ValueError as `pair_ranks`, and for a query without a relevant item.
    """
    queries, items = _as_pairs(relevant, len(scores))
    ranks = pair_ranks(scores, queries, items)
    return np.minimum.reduceat(ranks, np.flatnonzero(np.diff(queries, prepend=-1)))


def average_precision(scores: np.ndarray, relevant: Sequence[Sequence[int]]) -> np.ndarray:
    """Average precision (q,) in [0, 1]: the mean, over relevant items, of the precision there.

    Arguments and errors are those of `best_ranks`; the mean over queries is MAP.
    """
    queries, items = _as_pairs(relevant, len(scores))
    ranks = pair_ranks(scores, queries, items)
    ranks = ranks[np.lexsort((ranks, queries))]
    return np.bincount(queries, (_places(queries) + 1) / ranks) / np.bincount(queries)


def _as_pairs(relevant: Sequence[Sequence[int]], count: int) -> tuple[np.ndarray, np.ndarray]:
    if len(relevant) != count:
        raise ValueError(f"{len(relevant)} sets of relevant items for {count} queries")
    sizes = [len(answers) for answers in relevant]
    if not sizes or 0 in sizes:
        query = sizes.index(0) if sizes else 0
        raise ValueError(f"query {query} has no relevant item (leave such queries out)")
    items = np.concatenate([np.asarray(list(answers), dtype=np.int64) for answers in relevant])
    return np.repeat(np.arange(count), sizes), items


def _check_index(index: np.ndarray, size: int, name: str) -> None:
    if index.dtype.kind not in "iu":
        raise ValueError(f"the {name} indices are {index.dtype}, not integers")
    outside = np.flatnonzero((index < 0) | (index >= size))
    if outside.size:
        raise ValueError(
            f"entry {outside[0]} names {name} {index[outside[0]]}, but there are {size}, "
            "counted from 0"
        )


def _refuse_nan(tile: np.ndarray, row: int, column: int) -> None:
    bad = np.argwhere(np.isnan(tile))
    if len(bad):
        where_nan = f"row {row + bad[0][0]}, column {column + bad[0][1]}"
        raise ValueError(f"the score in {where_nan} is not a number (NaN): nothing can be ranked")


# --- Images and captions ----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Ranks:
    """Ranks of an image-caption retrieval both ways, from 1.

    image_of (m,): the image of each caption.
    caption_ranks (m,): caption as query, the rank of its image among the n images.
    own_ranks (m,): image as query, the rank of each of its own captions among the m captions.
    image_ranks (n,): image as query, the rank of its best-ranked own caption.
    """

    image_of: np.ndarray
    caption_ranks: np.ndarray
    own_ranks: np.ndarray
    image_ranks: np.ndarray


def ranks_of_scores(
    scores: np.ndarray,
    image_of: np.ndarray,
    *,
    ties: Ties = "pessimistic",
    block: int = 1024,
) -> Ranks:
    """Rank both ways from a full matrix of scores, as ensembles and reranking need it.

    scores (n, m) of n images with m captions, higher is better; image_of (m,): the image of each
    caption, at least one caption an image, in any order; block: rows of a tile.
    Raises ValueError for NaN, and where an image has no caption or a caption no image.
    """
    scores, image_of = np.asarray(scores), np.asarray(image_of)
    if scores.ndim != 2 or image_of.shape != scores.shape[1:]:
        raise ValueError(f"scores {scores.shape} with image_of {image_of.shape}: not (n, m), (m,)")
    _check_image_of(image_of, len(scores))
    true_scores = scores[image_of, np.arange(len(image_of))]
    return _both_ways(
        lambda rows, columns: scores[rows, columns], true_scores, image_of, ties, block
    )


def rank_images_and_captions(
    images: np.ndarray,
    captions: np.ndarray,
    image_of: np.ndarray,
    *,
    block: int = 1024,
) -> Ranks:
    """Rank both ways by the cosine of unit embeddings, without the full matrix in memory.

    images (n, D), captions (m, D), each row of length 1; image_of (m,) as in `ranks_of_scores`.
    A tile of block × 4 block scores is in memory at a time; the ranks do not depend on it.
    Cosines are exact (see the module's text) and then rounded to float32.
    Raises ValueError as `ranks_of_scores`, and for rows that are not of length 1.
    """
    images, captions = np.asarray(images), np.asarray(captions)
    image_of = np.asarray(image_of)
    if images.ndim != 2 or captions.ndim != 2 or images.shape[1] != captions.shape[1]:
        raise ValueError(f"images {images.shape}, captions {captions.shape}: not (n, D), (m, D)")
    if image_of.shape != captions.shape[:1]:
        raise ValueError(f"image_of is {image_of.shape} for {len(captions)} captions")
    _check_image_of(image_of, len(images))
    _check_unit(images, "images", block)
    _check_unit(captions, "captions", block)

    def tile(rows: slice, columns: slice) -> np.ndarray:
        return (_on_grid(images[rows]) @ _on_grid(captions[columns]).T).astype(np.float32)

    true_scores = np.concatenate(
        [
            np.einsum("cd,cd->c", _on_grid(images[image_of[chunk]]), _on_grid(captions[chunk]))
            for chunk in _slices(len(captions), block)
        ]
    )
    return _both_ways(tile, true_scores.astype(np.float32), image_of, "pessimistic", block)


def _check_image_of(image_of: np.ndarray, images: int) -> None:
    _check_index(image_of, images, "image")
    lonely = np.flatnonzero(np.bincount(image_of, minlength=images) == 0)
    if lonely.size or not images:
        raise ValueError(f"image {lonely[0] if images else 0} has no caption (leave it out)")


def _both_ways(
    tile: Tile, true_scores: np.ndarray, image_of: np.ndarray, ties: Ties, block: int
) -> Ranks:
    """Ranks from tiles (rows, columns) of the score matrix and the scores (m,) of true pairs."""
    image_of = image_of.astype(np.int64)
    images, captions = int(image_of.max()) + 1, len(image_of)
    by_image = _Pairs(image_of, true_scores, ties)
    by_caption = _Pairs(np.arange(captions), true_scores, ties)
    for rows in _slices(images, block):
        for columns in _slices(captions, 4 * block):
            scores = tile(rows, columns)
            _refuse_nan(scores, rows.start, columns.start)
            by_image.count(scores, rows)
            by_caption.count(scores.T, columns)
    own_ranks = by_image.ranks()
    by_rank = own_ranks[np.lexsort((own_ranks, image_of))]
    image_ranks = by_rank[np.flatnonzero(np.diff(np.sort(image_of), prepend=-1))]
    return Ranks(image_of, by_caption.ranks(), own_ranks, image_ranks)


# --- Metrics ----------------------------------------------------------------------------------


def hits(ranks: Ranks, k: int, direction: Direction) -> np.ndarray:
    """Whether each query succeeds at K, as bool: (n,) images for "i2t", (m,) captions for "t2i".

    One value a query, to be resampled for an interval. Captions of one image depend on each other:
    resample images and take their captions along.
    """
    if direction not in ("i2t", "t2i"):
        raise ValueError(f"direction {direction!r} is not known: use i2t or t2i")
    return (ranks.image_ranks if direction == "i2t" else ranks.caption_ranks) <= k


def metrics(ranks: Ranks, ks: Sequence[int] = KS) -> dict[str, float]:
    """The field's figures: R@K both ways in percent, RSUM, and median and mean rank.

    Keys: i2t_r1, i2t_r5, i2t_r10, t2i_r1, ..., rsum (the sum of all R@K), i2t_medr, i2t_meanr,
    t2i_medr, t2i_meanr (ranks from 1).

    The field calls R@K a recall, but it is a hit rate: an image with five captions scores 100 as
    soon as one of them is in the top K. A reader who takes it for recall, or code that computes
    the recall, gets other figures (at most 20 for I2T R@1 with five captions).
    Figures of different gallery sizes cannot be compared either.
    """
    figures = {
        f"{direction}_r{k}": 100 * float(hits(ranks, k, direction).mean())
        for direction in ("i2t", "t2i")
        for k in ks
    }
    figures["rsum"] = sum(figures.values())
    for direction, places in (("i2t", ranks.image_ranks), ("t2i", ranks.caption_ranks)):
        figures[f"{direction}_medr"] = float(np.median(places))
        figures[f"{direction}_meanr"] = float(places.mean())
    return figures


def chance_among_first(scores: np.ndarray, k: int) -> np.ndarray:
    """How likely each score is among the k highest of its row, equal ones in random order.

    scores (..., n), higher is better; k from 0, taken as n where it is more. Returns (..., n) in
    [0, 1], each row of the sum k: `(relevant * chance).sum(-1) / k` is the expected p@k. Raises
    ValueError for NaN.
    """
    if np.isnan(scores).any():
        raise ValueError("a score is not a number (NaN): nothing can be ranked")
    k = min(k, scores.shape[-1])
    if not k:
        return np.zeros(scores.shape)
    border = np.partition(scores, -k, axis=-1)[..., [-k]]
    above, at = scores > border, scores == border
    free = k - above.sum(axis=-1, keepdims=True)
    return above + at * (free / at.sum(axis=-1, keepdims=True))


# --- Search -----------------------------------------------------------------------------------


def flat_index(vectors: np.ndarray) -> Any:
    """A `faiss.IndexFlatIP` of vectors (n, D), float32: exact search by inner product.

    `search(queries (q, D), k)` returns scores and rows, (q, k) each, best first. It uses PyTorch's
    number of threads.
    """
    mac = sys.platform == "darwin"  # faiss and PyTorch each bring an OpenMP there, and clash
    if mac:
        os.environ.setdefault("KMP_DUPLICATE_LIB_OK", "TRUE")
    import faiss  # imported late: few need it

    faiss.omp_set_num_threads(1 if mac else torch.get_num_threads())
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    return index
