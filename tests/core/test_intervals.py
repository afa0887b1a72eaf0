"""Bootstrap intervals: over whole clusters, seeded, and as wide as they should be."""

import numpy as np
import pytest
from scipy import stats

from mmlib.core.intervals import bootstrap_interval


def test_bootstrap_resamples_whole_clusters():
    """Ten copies of every item, each set a cluster, know no more than the items themselves."""
    values = np.random.default_rng(0).normal(size=30)
    copies = np.repeat(values, 10)
    one = bootstrap_interval(lambda i: values[i].mean(), np.arange(30))
    ten = bootstrap_interval(lambda i: copies[i].mean(), np.repeat(np.arange(30), 10))
    assert (one.low, one.high) == pytest.approx((ten.low, ten.high))
    naive = bootstrap_interval(lambda i: copies[i].mean(), np.arange(300))
    assert naive.high - naive.low < 0.5 * (one.high - one.low)


def test_bootstrap_is_seeded_and_near_the_textbook_interval():
    values = np.random.default_rng(0).normal(size=100)
    found = bootstrap_interval(lambda i: values[i].mean(), np.arange(100))
    assert found == bootstrap_interval(lambda i: values[i].mean(), np.arange(100))
    assert found != bootstrap_interval(lambda i: values[i].mean(), np.arange(100), seed=1)
    assert found.effect == pytest.approx(values.mean())
    assert found.high - found.low == pytest.approx(2 * 1.96 * stats.sem(values), rel=0.12)


def test_bootstrap_covers_the_truth():
    rng, member = np.random.default_rng(3), np.repeat(np.arange(40), np.arange(40) % 6 + 1)
    hits = 0
    for _ in range(200):
        values = rng.normal(size=40)[member] + 0.5 * rng.normal(size=len(member))
        found = bootstrap_interval(lambda i, v=values: v[i].mean(), member, draws=200)
        hits += found.low <= 0 <= found.high
    assert 0.88 <= hits / 200 <= 0.99


def test_draws_without_a_number_are_left_out():
    values = np.array([1.0, 2.0, 3.0])

    def broken_for_constants(items):
        return np.nan if len(set(items)) == 1 else values[items].mean()

    found = bootstrap_interval(broken_for_constants, [0, 1, 2])
    assert 1 < found.low < found.effect == 2 < found.high < 3
