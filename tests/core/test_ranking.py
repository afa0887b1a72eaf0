"""Ranks against a plain sort and the paper's protocol; search against a full sort."""

import math
import statistics
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import sorted_ranks

from mmlib.core import ranking
from mmlib.core.ranking import (
    average_precision,
    chance_among_first,
    flat_index,
    hits,
    metrics,
    rank_images_and_captions,
    ranks_of_scores,
)


def unit(rng, *shape):
    vectors = rng.standard_normal(shape).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


@st.composite
def problems(draw, queries=6, items=12):
    """Scores with many ties, and for each query some relevant items."""
    q, g = draw(st.integers(1, queries)), draw(st.integers(1, items))
    levels = draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scores = rng.integers(0, levels, (q, g)) / 4
    relevant = np.array([rng.permutation(g) < rng.integers(1, g + 1) for _ in range(q)])
    return scores.astype(draw(st.sampled_from([np.float64, np.float32]))), relevant


# --- Ranks ------------------------------------------------------------------------------------


@given(problems())
def test_average_precision_is_that_of_a_plain_sort(problem):
    scores, relevant = problem
    wanted = [
        sorted_ranks(row, np.flatnonzero(own)) for row, own in zip(scores, relevant, strict=True)
    ]
    precisions = [
        np.mean([(i + 1) / rank for i, rank in enumerate(sorted(ranks))]) for ranks in wanted
    ]
    assert average_precision(scores, relevant) == pytest.approx(precisions)


NAN = np.where(np.arange(36).reshape(4, 9) == 23, np.nan, 0)
SCORES = np.zeros((2, 3))


def of_length(length):
    """Two images and two captions, of which the last is of this length."""
    return rank_images_and_captions(np.eye(2), np.diag([1.0, length]), [0, 1], block=1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ranks_of_scores(NAN, np.arange(9) % 4), "row 2, column 5 is not a number"),
        (lambda: average_precision(NAN, NAN == 0), "row 2, column 5 is not a number"),
        (lambda: chance_among_first(np.array([1.0, np.nan]), 1), "not a number"),
        (lambda: average_precision(SCORES, np.eye(2, 3, 2) > 0), "query 1 has no relevant item"),
        (lambda: average_precision(SCORES, SCORES[:1] == 0), r"relevant \(1, 3\) for scores"),
        (lambda: ranks_of_scores(SCORES, np.array([0, 0, 0])), "image 1 has no caption"),
        (lambda: ranks_of_scores(SCORES, np.array([0, 1, 2])), "each of 2 images.*no other"),
        (lambda: ranks_of_scores(SCORES, np.array([0, 1, -1])), "each of 2 images.*no other"),
        (lambda: ranks_of_scores(SCORES, np.array([0.0, 1, 0])), "each of 2 images"),
        (lambda: ranks_of_scores(np.zeros((0, 0)), np.zeros(0, int)), "of 0 images"),
        (lambda: ranks_of_scores(SCORES, np.array([0, 1])), r"not \(n, m\), \(m,\)"),
        (lambda: rank_images_and_captions(np.eye(2), np.eye(3), [0, 1, 0]), r"not \(n, D\)"),
        (lambda: rank_images_and_captions(np.eye(2), np.eye(2), [0]), "image_of is"),
        (lambda: rank_images_and_captions(np.zeros((1, 2)), np.eye(2)[:1], [0]),
         "images, row 0: the vector's length is 0, not 1"),
        (lambda: of_length(2), "captions, row 1: the vector's length is 2"),
        (lambda: of_length(np.nan), "captions, row 1: the vector's length is nan"),
    ],
)  # fmt: skip
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# --- Images and captions ----------------------------------------------------------------------


@st.composite
def galleries(draw):
    """Scores with ties of images with one to four captions each, the captions in any order."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    images = draw(st.integers(1, 8))
    image_of = rng.permutation(np.repeat(np.arange(images), rng.integers(1, 5, images)))
    return rng.integers(0, draw(st.integers(1, 30)), (images, len(image_of))) / 8, image_of


@given(galleries(), st.integers(1, 9), st.integers(1, 4))
def test_both_directions_are_those_of_a_plain_sort(gallery, block, k):
    scores, image_of = gallery
    own = scores[image_of, np.arange(len(image_of))]
    tiled = ranking._both_ways(lambda r, c: scores[r, c], own, image_of, block)
    for ranks in (ranks_of_scores(scores, image_of), tiled):
        for image, row in enumerate(scores):
            captions = np.flatnonzero(image_of == image)
            assert ranks.image_ranks[image] == min(sorted_ranks(row, captions))
        for caption, column in enumerate(scores.T):
            assert [ranks.caption_ranks[caption]] == sorted_ranks(column, [image_of[caption]])
    figures = metrics(ranks, (k,))
    for way, places in (("i2t", ranks.image_ranks), ("t2i", ranks.caption_ranks)):
        assert figures[f"{way}_r{k}"] == pytest.approx(100 * (places <= k).mean())
        assert np.array_equal(hits(ranks, k, way), places <= k)
        centre = figures[f"{way}_medr"], figures[f"{way}_meanr"]
        assert centre == pytest.approx((statistics.median(places), statistics.fmean(places)))
    assert figures["rsum"] == pytest.approx(figures[f"i2t_r{k}"] + figures[f"t2i_r{k}"])


# --- From embeddings --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def embeddings():
    rng = np.random.default_rng(0)
    images = unit(rng, 60, 24)
    image_of = rng.permutation(np.repeat(np.arange(60), rng.integers(1, 8, 60)))
    captions = images[image_of] + 0.25 * rng.standard_normal((len(image_of), 24))
    captions[:20] = images[image_of[:20]]  # equal to their image
    images[7], captions[30] = images[5], captions[31]  # equal to each other
    captions /= np.linalg.norm(captions, axis=1, keepdims=True)
    return images, captions.astype(np.float32), image_of


@pytest.mark.parametrize("block", [1, 17, 60, 4096])
def test_ranks_from_embeddings_are_those_of_the_matrix(embeddings, block):
    images, captions, image_of = embeddings
    found = rank_images_and_captions(images, captions, image_of, block=block)
    scores = images.astype(np.float64) @ captions.astype(np.float64).T
    wanted = ranks_of_scores(scores.round(9), image_of)  # the twins tie
    assert np.array_equal(found.caption_ranks, wanted.caption_ranks)
    assert np.array_equal(found.image_ranks, wanted.image_ranks)
    assert 30 < metrics(found)["i2t_r1"] < 100


@given(st.integers(0, 2**32 - 1), st.integers(1, 200))
def test_cosines_of_unit_vectors_are_exact(seed, width):
    rng = np.random.default_rng(seed)
    a, b = (ranking.on_grid(unit(rng, width)) for _ in range(2))
    wanted = math.fsum(x * y for x, y in zip(a.tolist(), b.tolist(), strict=True))
    order = rng.permutation(width)
    assert a @ b == wanted == a[order] @ b[order]
    assert np.abs(a - np.float64(1) * a).max() <= 2**-27


def test_the_full_matrix_is_never_in_memory():
    """Float32 scores alone would be 46 MiB; what is held is a few tiles."""
    rng = np.random.default_rng(0)
    images, image_of = unit(rng, 1550, 8), np.repeat(np.arange(1550), 5)
    captions = unit(rng, 7750, 8)
    tracemalloc.start()
    try:
        rank_images_and_captions(images, captions, image_of, block=200)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16 * 2**20


# --- Search -----------------------------------------------------------------------------------


def test_search_finds_the_nearest_and_leaves_threads_alone():
    rng = np.random.default_rng(0)
    images, queries = unit(rng, 500, 32).astype(np.float32), unit(rng, 20, 32).astype(np.float32)
    before = torch.get_num_threads()
    scores, rows = flat_index(images).search(queries, 10)
    assert torch.get_num_threads() == before
    wanted = queries @ images.T
    assert np.array_equal(rows, np.argsort(-wanted, axis=1)[:, :10])
    assert scores == pytest.approx(np.sort(wanted, axis=1)[:, :-11:-1], abs=1e-6)


@given(problems(), st.integers(1, 14))
def test_the_chance_to_be_among_the_first_is_the_mean_over_orders(problem, k):
    """Of all orders of equal scores, by a sort with many random keys; sure where nothing ties."""
    scores, _ = problem
    found = chance_among_first(scores, k)
    assert found.sum(axis=-1) == pytest.approx(min(k, scores.shape[-1]))
    for row, chance in zip(scores, found, strict=True):
        for i, score in enumerate(row):
            ahead, level = int((row > score).sum()), int((row == score).sum())
            assert chance[i] == pytest.approx(np.mean([ahead + j < k for j in range(level)]))


def test_neither_ranks_nor_the_authors_graphs_need_a_parser():
    code = (
        "import sys, mmlib.core.ranking, mmlib.scenegraph.parser as parser\n"
        "from mmlib.scenegraph import from_authors\n"
        "from_authors({'caption': 'a', 'entities': [], 'relations': []})\n"
        "sys.exit(bool({'spacy', 'gensim', 'faiss'} & sys.modules.keys()))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
