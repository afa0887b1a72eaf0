"""The cross-attention scorer against loops over images, words and regions, and its invariants."""

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmlib import cross_attention as module
from mmlib.cross_attention import cross_attention, time_cross_attention

seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=40, deadline=None)


def data(seed, images=3, regions=5, words=4, width=6):
    """Words and regions of various lengths, in one half of the space, so that cosines differ."""
    rng = np.random.default_rng(seed)
    scales = rng.uniform(0.1, 10, (images, regions, 1))
    return (
        (rng.standard_normal((words, width)) + 0.5).astype(np.float32),
        ((rng.standard_normal((images, regions, width)) + 0.5) * scales).astype(np.float32),
    )


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))


def by_loops(words, regions, temperature=9.0):
    """Sec. 3.1 and 3.2, one image, word and region at a time, in float64."""
    words, regions = words.astype(float), regions.astype(float)
    scores = []
    for image in regions:
        clipped = [[max(cosine(region, word), 0.0) for word in words] for region in image]
        relevance = []
        for j, word in enumerate(words):
            shares = [row[j] / (math.hypot(*row) or 1.0) for row in clipped]
            powers = [math.exp(temperature * share) for share in shares]
            attended = np.zeros(len(word))
            for power, region in zip(powers, image, strict=True):
                attended += power / sum(powers) * region / math.hypot(*region)
            relevance.append(cosine(word, attended))
        scores.append(sum(relevance) / len(relevance))
    return scores


@few
@given(seeds, st.integers(1, 40), st.integers(1, 5), st.integers(1, 4))
def test_it_agrees_with_the_loops(seed, images, regions, words):
    e, v = data(seed, images, regions, words)
    assert cross_attention(e, v) == pytest.approx(by_loops(e, v), abs=2e-5)


def test_a_case_by_hand():
    """One word along one of two regions at right angles: shares 1 and 0, so weights e⁹ : 1."""
    found = cross_attention(np.eye(2)[:1], np.eye(2)[None])
    assert found == pytest.approx([1 / math.hypot(1, math.exp(-9))], abs=1e-7)


def test_negative_cosines_are_clipped():
    """All regions point away from the word: it attends to all alike and stays negative."""
    regions = np.array([[[-1.0, 0.0], [-1.0, 1.0]]])
    mean = (np.array([-1.0, 0.0]) + np.array([-1.0, 1.0]) / math.sqrt(2)) / 2
    found = cross_attention(np.array([[1.0, 0.0]]), regions)
    assert found == pytest.approx([mean[0] / math.hypot(*mean)], abs=1e-6)


@few
@given(seeds)
def test_order_length_and_company_do_not_matter(seed):
    e, v = data(seed)
    scores = cross_attention(e, v)
    rng = np.random.default_rng(seed)
    order = rng.permutation(v.shape[1])
    near = pytest.approx(scores, abs=1e-5)
    assert cross_attention(e, v[:, order]) == near
    assert cross_attention(e[rng.permutation(len(e))], v) == near
    assert cross_attention(3 * e, v * rng.uniform(0.5, 2, (*v.shape[:2], 1))) == near
    assert cross_attention(e, np.repeat(v, 2, axis=1)) == near  # each region twice
    alone = [cross_attention(e, image[None])[0] for image in v]
    assert alone == near


def test_the_image_that_shows_the_words_wins():
    """Images of random regions, one of which holds each word among others."""
    rng = np.random.default_rng(0)
    e = rng.standard_normal((6, 64)).astype(np.float32)
    v = rng.standard_normal((20, 36, 64)).astype(np.float32)
    v[13, ::6] = e
    assert cross_attention(e, v).argmax() == 13


def test_regions_of_zeros_give_numbers():
    e, v = data(0)
    v[1] = 0
    assert cross_attention(e, v)[1] == 0


def test_no_images_no_scores():
    e, v = data(0)
    assert cross_attention(e, v[:0]).shape == (0,)


def test_times_grow_with_the_images():
    found = time_cross_attention(sizes=(10, 2000), regions=8, width=64, words=4, repeats=3)
    assert list(found) == [10, 2000]
    assert found[2000] > 10 * found[10]
    with pytest.raises(ValueError, match="at least 1"):
        time_cross_attention([])


def test_all_images_are_scored_from_few(monkeypatch):
    """Each query sees `size` images, though no more than 1,024 are made."""
    seen = []
    monkeypatch.setattr(module, "cross_attention", lambda e, v: seen.append(len(v)))
    tracemalloc.start()
    time_cross_attention(sizes=(10, 3000), regions=4, width=64, words=2, repeats=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seen == 2 * [10] + 2 * [1024, 1024, 952]
    assert peak < 3 * 1024 * 4 * 64 * 4
