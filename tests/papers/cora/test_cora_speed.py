"""The cross-attention scorer against loops, and the parts of a query that are timed."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_cora import job, tiny

from mmlib.papers.cora.run import baselines as speed
from mmlib.papers.cora.run.baselines import cross_attention, time_queries
from mmlib.papers.cora.run.systems import QUERY_TIME

few = settings(max_examples=40, deadline=None)


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))


def by_loops(words, regions, temperature=9.0):
    """Sections 3.1 and 3.2 of SCAN, one image, word and region at a time."""
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
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 5), st.integers(1, 4))
def test_cross_attention_is_the_loop(seed, images, regions, words):
    """Vectors of various lengths, in one half of the space, so that cosines differ."""
    rng = np.random.default_rng(seed)
    e = rng.standard_normal((words, 6)) + 0.5
    v = (rng.standard_normal((images, regions, 6)) + 0.5) * rng.uniform(0.1, 10, (images, 1, 1))
    found = cross_attention(torch.tensor(e), torch.tensor(v))
    assert found.tolist() == pytest.approx(by_loops(e, v), abs=1e-9)


def test_a_case_by_hand():
    """One word along one of two regions at right angles: shares 1 and 0, so weights e⁹ : 1."""
    found = cross_attention(torch.eye(2)[:1], torch.eye(2)[None])
    assert found.tolist() == pytest.approx([1 / math.hypot(1, math.exp(-9))], abs=1e-7)


@pytest.mark.slow
def test_the_parts_of_a_query_are_timed(monkeypatch):
    monkeypatch.setattr(speed, "SIZES", (10, 40))
    arrays = replace(tiny(), queries=("a tall man holds a red cup", "a dog") * 12)
    answer = time_queries(replace(job("CORA"), system={"system": QUERY_TIME}), arrays)
    assert len(answer.history) == speed.REPEATS
    names = {"parse", "encode", "search 10", "search 40", "attend 10", "attend 40"}
    assert all(set(row) == names and min(row.values()) > 0 for row in answer.history)
