"""The cross-attention scorer against loops over images, words and regions, and its invariants."""

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmlib import cross_attention as module
from mmlib.cross_attention import cross_attention, time_cross_attention

POOLINGS = ("average", "logsumexp")
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


def by_loops(words, regions, pooling, temperature=9.0, sharpness=6.0):
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
        if pooling == "average":
            scores.append(sum(relevance) / len(relevance))
        else:
            scores.append(math.log(sum(math.exp(sharpness * r) for r in relevance)) / sharpness)
    return scores


@few
@given(seeds, st.sampled_from(POOLINGS), st.integers(1, 4), st.integers(1, 5), st.integers(1, 4))
def test_it_agrees_with_the_loops(seed, pooling, images, regions, words):
    e, v = data(seed, images, regions, words)
    assert cross_attention(e, v, pooling) == pytest.approx(by_loops(e, v, pooling), abs=2e-5)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_temperature_and_sharpness_are_those_of_the_loops(pooling):
    e, v = data(7)
    found = cross_attention(e, v, pooling, temperature=2.0, sharpness=1.5)
    assert found == pytest.approx(by_loops(e, v, pooling, 2.0, 1.5), abs=2e-5)
    assert np.abs(found - cross_attention(e, v, pooling)).min() > 1e-3


@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_case_by_hand(pooling):
    """One word along one of two regions at right angles: shares 1 and 0, so weights e⁹ : 1."""
    found = cross_attention(np.eye(2)[:1], np.eye(2)[None], pooling)
    assert found == pytest.approx([1 / math.hypot(1, math.exp(-9))], abs=1e-7)


def test_negative_cosines_are_clipped():
    """All regions point away from the word: it attends to all alike and stays negative."""
    regions = np.array([[[-1.0, 0.0], [-1.0, 1.0]]])
    mean = (np.array([-1.0, 0.0]) + np.array([-1.0, 1.0]) / math.sqrt(2)) / 2
    found = cross_attention(np.array([[1.0, 0.0]]), regions)
    assert found == pytest.approx([mean[0] / math.hypot(*mean)], abs=1e-6)


@few
@given(seeds, st.sampled_from(POOLINGS))
def test_order_length_and_company_do_not_matter(seed, pooling):
    e, v = data(seed)
    scores = cross_attention(e, v, pooling)
    rng = np.random.default_rng(seed)
    order = rng.permutation(v.shape[1])
    near = pytest.approx(scores, abs=1e-5)
    assert cross_attention(e, v[:, order], pooling) == near
    assert cross_attention(e[rng.permutation(len(e))], v, pooling) == near
    assert cross_attention(3 * e, v * rng.uniform(0.5, 2, (*v.shape[:2], 1)), pooling) == near
    assert cross_attention(e, np.repeat(v, 2, axis=1), pooling) == near  # each region twice
    alone = [cross_attention(e, image[None], pooling)[0] for image in v]
    assert alone == near
    twice = cross_attention(e, np.concatenate([v, v]), pooling, block=len(v))
    np.testing.assert_array_equal(twice[: len(v)], twice[len(v) :])


@pytest.mark.parametrize("block", [1, 2, 3, 7, 100])
def test_blocks_and_files_do_not_matter(tmp_path, block):
    e, v = data(3, images=7)
    np.save(tmp_path / "regions.npy", v)
    stored = np.load(tmp_path / "regions.npy", mmap_mode="r")
    found = cross_attention(e, stored, block=block)
    assert found == pytest.approx(cross_attention(e, v), abs=1e-6)
    assert found.dtype == np.float32


def test_the_image_that_shows_the_words_wins():
    """Images of random regions, one of which holds each word among others."""
    rng = np.random.default_rng(0)
    e = rng.standard_normal((6, 64)).astype(np.float32)
    v = rng.standard_normal((20, 36, 64)).astype(np.float32)
    v[13, ::6] = e
    for pooling in POOLINGS:
        assert cross_attention(e, v, pooling).argmax() == 13


def test_regions_of_zeros_give_numbers():
    e, v = data(0)
    v[1] = 0
    assert cross_attention(e, v)[1] == 0


def test_no_images_no_scores():
    e, v = data(0)
    assert cross_attention(e, v[:0]).shape == (0,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e, v: (e[0], v), "not \\(W, D\\)"),
        (lambda e, v: (e, v[0]), "not \\(W, D\\)"),
        (lambda e, v: (e[:, 1:], v), "not \\(W, D\\)"),
        (lambda e, v: (e[:0], v), "nothing to attend"),
        (lambda e, v: (e, v[:, :0]), "nothing to attend"),
        (lambda e, v: (e, v, "mean"), "pooling 'mean' is not known"),
        (lambda e, v: (e, np.where(np.arange(3)[:, None, None] == 1, np.nan, v)), "image 1"),
    ],
)
def test_what_cannot_be_scored_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        cross_attention(*change(*data(0)))


def test_an_empty_block_is_refused():
    with pytest.raises(ValueError, match="at least 1 image"):
        cross_attention(*data(0), block=0)


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
