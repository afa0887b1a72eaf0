"""Figures of judges as means over pairs, and E@K, against scikit-learn, loops and derivatives."""

from fractions import Fraction
from functools import partial
from statistics import mean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    fbeta_score,
    precision_score,
    recall_score,
    roc_auc_score,
)

from mmlib.core.ranking import chance_among_first
from mmlib.papers.entailment.method.metrics import (
    ACCURACY,
    AT_SIZE,
    METRICS,
    best_threshold,
    entail_at_k,
    f_score,
    figure,
    rarity,
    shares,
)

few = settings(max_examples=25, deadline=None)
many = settings(max_examples=100, deadline=None)
seeds = st.integers(0, 2**32 - 1)
near = partial(pytest.approx, rel=1e-9, abs=1e-10)
OF_SKLEARN = [*(m for m in METRICS if m != AT_SIZE), ACCURACY]


# --- Figures as means ----------------------------------------------------------------------------


def sklearns(metric, labels, margins, weights):
    called, own = margins >= 0, {"sample_weight": weights}
    if metric == "ROC area":
        return 100 * roc_auc_score(labels, margins, **own)
    if metric == "average precision":
        return 100 * average_precision_score(labels, margins, **own)
    if metric == ACCURACY:
        return 100 * accuracy_score(labels, called, **own)
    own |= {"zero_division": 0}
    if metric == "F0.5":
        return 100 * fbeta_score(labels, called, beta=0.5, **own)
    return 100 * {"precision": precision_score, "recall": recall_score}[metric](
        labels, called, **own
    )


@st.composite
def pairs(draw, ties=True):
    """Labels of both kinds, margins, with ties or without, and weights."""
    rng, n = np.random.default_rng(draw(seeds)), draw(st.integers(4, 25))
    labels = rng.permutation(np.r_[0, 1, rng.integers(0, 2, n - 2)])
    margins = rng.integers(-4, 4, n) / 4 if ties else rng.normal(size=n)
    return labels, margins, rng.integers(1, 5, n).astype(float)


@many
@given(pairs(), st.sampled_from(OF_SKLEARN))
def test_the_mean_of_shares_is_sklearns_figure(case, metric):
    assert shares(metric, *case).mean() == pytest.approx(sklearns(metric, *case), abs=1e-8)
    assert figure(metric, *case) == pytest.approx(sklearns(metric, *case), abs=1e-8)


@many
@given(pairs(), st.sampled_from(OF_SKLEARN))
def test_a_share_is_what_the_figure_changes_when_a_pair_counts_more(case, metric):
    """By central differences of scikit-learn's figure in the weight of one pair."""
    labels, margins, weights = case
    value, n, step = sklearns(metric, *case), len(labels), 1e-4
    for i, share in enumerate(shares(metric, *case)):
        more, less = weights.copy(), weights.copy()
        more[i] += step
        less[i] -= step
        slope = sklearns(metric, labels, margins, more) - sklearns(metric, labels, margins, less)
        wanted = value + n * weights[i] * slope / (2 * step)
        assert share == pytest.approx(wanted, rel=1e-4, abs=1e-3)


@few
@given(pairs())
def test_equal_margins_share_the_places_among_the_first_n(drawn):
    """Every pair as often as it weighs, in the mean over orders of equal ones."""
    labels, margins, weights = drawn
    label, margin = (np.repeat(x, weights.astype(int)) for x in (labels, margins))
    chance = chance_among_first(margin, int(label.sum()))
    wanted = 100 * (label * chance).sum() / label.sum()
    assert figure(AT_SIZE, labels, margins, weights) == near(wanted)
    order = np.random.default_rng(0).permutation(len(labels))
    again = figure(AT_SIZE, labels[order], margins[order], weights[order])
    assert again == near(wanted)


def test_what_has_no_figure_is_an_error():
    with pytest.raises(ValueError, match="entailed pairs and others"):
        shares("ROC area", np.ones(3), np.zeros(3), np.ones(3))
    with pytest.raises(ValueError, match="no figure 'F2'"):
        shares("F2", np.array([0, 1]), np.zeros(2), np.ones(2))
    none = np.array([0, 1]), np.array([-1.0, -1]), np.ones(2)
    assert [figure(m, *none) for m in ("precision", "recall", "F0.5")] == [0, 0, 0]


def test_rarity_by_hand():
    """Four images: true of one is 1, of two is one half, of all is 0; of none counts as of one."""
    fits = np.array([[1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 1, 0], [0, 0, 1, 0]], dtype=bool)
    assert rarity(fits).tolist() == near([1, 0.5, 0, 1])
    assert entail_at_k([[1, 2], [1, 0], [2, 0], [2, 0]], fits * rarity(fits), 1) == near(25)


# --- Thresholds and E@K ---------------------------------------------------------------------------


@st.composite
def judged(draw, least=1, most=30):
    """Labels, and scores with many ties."""
    pairs = draw(
        st.lists(st.tuples(st.integers(0, 1), st.integers(0, 8)), min_size=least, max_size=most)
    )
    return np.array([y for y, _ in pairs]), np.array([s / 8 for _, s in pairs])


def test_f_score_is_the_weighted_harmonic_mean():
    for precision, recall, beta in ((0.8, 0.4, 0.5), (0.4, 0.8, 0.5), (0.3, 0.9, 2.0)):
        share = 1 / (1 + beta**2)
        wanted = 1 / (share / precision + (1 - share) / recall)
        assert f_score(precision, recall, beta) == near(wanted)
    assert f_score(0, 0) == 0


@st.composite
def weighed(draw):
    """Labels, scores with many ties, and how many pairs each stands for, also none."""
    labels, scores = draw(judged())
    size = {"min_size": len(labels), "max_size": len(labels)}
    weights_ = np.array(draw(st.lists(st.integers(0, 5), **size)))
    weights_[draw(st.integers(0, len(labels) - 1))] += 1
    return labels, scores, weights_


@settings(max_examples=300, deadline=None)
@given(weighed())
def test_best_threshold_of_weighted_pairs_is_the_best_of_all(case):
    """In exact fractions over the copies."""
    labels, scores, each = case
    values = {}
    for threshold in set(scores.tolist()):
        called = scores >= threshold
        hits = int(each[called & (labels == 1)].sum())
        below = 4 * int(each[called].sum()) + int(each[labels == 1].sum())
        values[threshold] = Fraction(5 * hits, below) if below else Fraction(0)
    best = max(values.values())
    with np.errstate(invalid="ignore"):
        got = best_threshold(labels, scores, each)
    if best:
        assert got == max(t for t, value in values.items() if value == best)
    assert best_threshold(labels, scores, np.ones(len(labels))) == best_threshold(labels, scores)


@many
@given(seeds, st.integers(1, 5), st.integers(1, 6))
def test_entail_at_k_is_the_loop(seed, images, k):
    rng = np.random.default_rng(seed)
    entailed = rng.random((images, 8)) < 0.4
    ranked = [rng.permutation(8)[: rng.integers(k, 9)].tolist() for _ in range(images)]
    wanted = mean(
        sum(bool(entailed[i, text]) for text in texts[:k]) / k for i, texts in enumerate(ranked)
    )
    assert entail_at_k(ranked, entailed, k) == near(100 * wanted)


def test_entail_at_k_by_hand():
    """Image 0 has one of its first two, image 1 both: 75 %; at 1, 0 and 1: 50 %."""
    entailed = np.array([[0, 1, 0, 1], [1, 0, 1, 0]], dtype=bool)
    ranked = [[0, 3, 1], [2, 0, 1]]
    assert entail_at_k(ranked, entailed, 2) == 75
    assert entail_at_k(np.array(ranked), entailed, 1) == 50
    with pytest.raises(ValueError, match="E@4 needs 4"):
        entail_at_k([[0, 3, 1, 2], [2, 0, 1]], entailed, 4)
