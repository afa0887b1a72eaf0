"""The metrics of paper 03: ranks and RSUM by item, reranking (eq. 14), and ranks of entities."""

import numpy as np

from mmlib.core.ranking import (
    KS,
    Ranks,
    best_ranks,
    chance_among_first,
    metrics,
    rank_images_and_captions,
    ranks_of_scores,
)
from mmlib.papers.cora.batches import GraphSet, Split
from mmlib.papers.cora.method import Encoded

BETAS = np.linspace(0, 1, 21)  # of eq. 14
FOLD = 1000  # images of a fold of MS-COCO's 1K test


def per_item(ranks: Ranks) -> dict[str, np.ndarray]:
    """Of each item, all captions and then all images: its rank, and what it adds to RSUM.

    "rank": a caption's of its image, an image's of the best of its captions. The mean of "RSUM"
    over all items is the RSUM: the sum of R@1, R@5 and R@10 both ways, in percent.
    """
    directions = ranks.caption_ranks, ranks.image_ranks
    items = sum(map(len, directions))
    rsum = [
        100 * items / len(ranked) * np.sum([ranked <= k for k in KS], axis=0, dtype=float)
        for ranked in directions
    ]
    return {"rank": np.concatenate(directions).astype(float), "RSUM": np.concatenate(rsum)}


def right_in_family(scores: np.ndarray, image_of: np.ndarray, size: int) -> np.ndarray:
    """Whether a caption finds its image among its family of `size`: 100 or 0; NaN for images.

    scores (images, captions); where t images share the highest one, each gets 100 / t. Words that
    the whole family shares cannot tell its images apart, so this is what structure alone gives;
    chance is 100 / size.
    """
    first = image_of // size * size
    family = scores[first[:, None] + np.arange(size), np.arange(len(image_of))[:, None]]
    chance = chance_among_first(family, 1)
    hit = 100 * chance[np.arange(len(chance)), image_of - first]
    return np.concatenate([hit, np.full(len(scores), np.nan)])


def fold_ranks(images: np.ndarray, captions: np.ndarray, image_of: np.ndarray) -> np.ndarray:
    """RSUM of each item within its fold of 1,000 images (MS-COCO 1K): the mean is that of folds."""
    fold = image_of // FOLD
    rsum = np.empty(len(captions) + len(images))
    for k in range(int(fold.max()) + 1):
        inside = np.flatnonzero(fold == k)
        rows = slice(FOLD * k, FOLD * (k + 1))
        ranks = rank_images_and_captions(
            images[rows], captions[inside], image_of[inside] - FOLD * k
        )
        items = np.concatenate([inside, len(captions) + np.arange(len(images))[rows]])
        rsum[items] = per_item(ranks)["RSUM"]
    return rsum


def weakest_entity(encoded: Encoded) -> np.ndarray:
    """min_k s(v, e_k) over the entities of each caption (eq. 14): (images, captions)."""
    if encoded.entities is None or encoded.caption_of is None:
        raise ValueError("this system has no entities to rerank with")
    starts = np.searchsorted(encoded.caption_of, np.arange(len(encoded.captions)))
    images = encoded.images
    blocks = np.split(images, range(1024, len(images), 1024))  # all at once take gigabytes
    return np.concatenate(
        [np.minimum.reduceat(block @ encoded.entities.T, starts, axis=1) for block in blocks]
    )


def mix(similarity: np.ndarray, weakest: np.ndarray, beta: float) -> np.ndarray:
    """Eq. 14: reranked similarities; arrays of one shape."""
    return beta * similarity + (1 - beta) * weakest


def best_beta(similarity: np.ndarray, weakest: np.ndarray, image_of: np.ndarray) -> float:
    """The β of eq. 14 with the highest RSUM; of several equal ones the largest."""
    rsums = [metrics(ranks_of_scores(mix(similarity, weakest, b), image_of))["rsum"] for b in BETAS]
    return float(BETAS[len(BETAS) - 1 - int(np.argmax(rsums[::-1]))])


def entity_ranks(scores: np.ndarray, graphs: GraphSet, split: Split) -> np.ndarray:
    """For each image, the rank of the best entity that one of its captions names, (images,).

    All different (name, attributes) of the split's captions are ranked (the paper judged a few by
    eye). scores (images, different entities), in the order of `different_entities`.
    """
    image, entity = images_with_entities(graphs, split)
    return best_ranks(scores, _grouped(entity, image))


def image_ranks(scores: np.ndarray, graphs: GraphSet, split: Split) -> np.ndarray:
    """For each different entity, the rank of the best image with a caption that names it.

    All images of the split are ranked; scores as for `entity_ranks`. Returns (different entities,).
    """
    image, entity = images_with_entities(graphs, split)
    return best_ranks(scores.T, _grouped(image, entity))


def images_with_entities(graphs: GraphSet, split: Split) -> tuple[np.ndarray, np.ndarray]:
    """All pairs, once each, of an image and a different entity of its captions: both (pairs,)."""
    caption, *_ = graphs.entities(np.arange(len(graphs)))
    _, number = different_entities(graphs)
    image, entity = np.unique(np.column_stack([split.image_of[caption], number]), axis=0).T
    return image, entity


def _grouped(values: np.ndarray, keys: np.ndarray) -> list[list[int]]:
    """The values of each key, for all keys in order."""
    order = np.argsort(keys, kind="stable")
    ends = np.flatnonzero(np.diff(keys[order])) + 1
    return [group.tolist() for group in np.split(values[order], ends)]


def hits_of_captions(hit: np.ndarray, graphs: GraphSet, images: int) -> dict[str, np.ndarray]:
    """ "entity to image, R@K": the share of a caption's entities that find one of their images.

    hit (different entities, Ks): whether, or how likely, each is among the first K. In percent,
    an item a caption, then NaN for each image.
    """
    caption, *_ = graphs.entities(np.arange(len(graphs)))
    _, number = different_entities(graphs)
    count, none = np.bincount(caption, minlength=len(graphs)), np.full(images, np.nan)
    return {
        f"entity to image, R@{k}": np.concatenate(
            [100 * np.bincount(caption, column[number], len(graphs)) / count, none]
        )
        for k, column in zip(KS, hit.T, strict=True)
    }


def different_entities(graphs: GraphSet) -> tuple[np.ndarray, np.ndarray]:
    """The first object (different,) of each name with its set of attributes, and for each object
    of the captions the number of its kind, (objects,).
    """
    _, name, described = graphs.entities(np.arange(len(graphs)))
    keys = np.column_stack([name, np.sort(described, axis=1)])
    _, index, number = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    return index, number.reshape(-1)
