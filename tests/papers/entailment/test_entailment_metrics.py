"""Figures of judges as means over pairs, and E@K, against scikit-learn, loops and derivatives."""

from fractions import Fraction

import numpy as np
import pytest
from drawn import few, many, near, seeds
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sk

from mmlib.core.ranking import chance_among_first
from mmlib.papers.entailment.method import metrics

OF_SKLEARN = [*(m for m in metrics.METRICS if m != metrics.AT_SIZE), metrics.ACCURACY]


def sklearns(metric, labels, margins, weights):
    called, how = margins >= 0, {"sample_weight": weights}
    if metric in ("ROC area", "average precision"):
        score = sk.roc_auc_score if metric == "ROC area" else sk.average_precision_score
        return 100 * score(labels, margins, **how)
    if metric == metrics.ACCURACY:
        return 100 * sk.accuracy_score(labels, called, **how)
    all_three = sk.precision_recall_fscore_support(
        labels, called, beta=0.5, average="binary", zero_division=0, **how
    )
    return 100 * all_three[("precision", "recall", "F0.5").index(metric)]


@st.composite
def pairs(draw, most=25):
    """Labels of both kinds, margins with ties, and weights."""
    rng, n = np.random.default_rng(draw(seeds)), draw(st.integers(4, most))
    labels = rng.permutation(np.r_[0, 1, rng.integers(0, 2, n - 2)])
    return labels, rng.integers(-4, 4, n) / 4, rng.integers(1, 5, n).astype(float)


@many
@given(pairs(), st.sampled_from(OF_SKLEARN))
def test_the_mean_of_shares_is_sklearns_figure(case, metric):
    assert metrics.shares(metric, *case).mean() == pytest.approx(sklearns(metric, *case), abs=1e-8)
    assert metrics.figure(metric, *case) == metrics.shares(metric, *case).mean()


@few
@given(pairs(most=9), st.sampled_from(OF_SKLEARN))
def test_a_share_is_what_the_figure_changes_when_a_pair_counts_more(case, metric):
    """By central differences of scikit-learn's figure in the weight of one pair."""
    labels, margins, weights = case
    value, n, step = sklearns(metric, *case), len(labels), 1e-4
    for share, weight, one_more in zip(
        metrics.shares(metric, *case), weights, np.eye(n), strict=True
    ):
        more, less = (sklearns(metric, labels, margins, weights + sign * step * one_more)
                      for sign in (1, -1))  # fmt: skip
        wanted = value + n * weight * (more - less) / (2 * step)
        assert share == pytest.approx(wanted, rel=1e-4, abs=1e-3)


@few
@given(pairs())
def test_equal_margins_share_the_places_among_the_first_n(case):
    """Every pair as often as it weighs, in the mean over orders of equal ones."""
    label, margin = (np.repeat(x, case[2].astype(int)) for x in case[:2])
    wanted = 100 * (label * chance_among_first(margin, int(label.sum()))).sum() / label.sum()
    assert metrics.figure(metrics.AT_SIZE, *case) == near(wanted)
    order = np.random.default_rng(0).permutation(len(case[0]))
    assert metrics.figure(metrics.AT_SIZE, *(column[order] for column in case)) == near(wanted)


def test_what_has_no_figure_is_an_error():
    for metric, label, message in (("ROC area", [1, 1], "entailed pairs and others"),
                                   ("F2", [0, 1], "no figure 'F2'")):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            metrics.shares(metric, np.array(label), np.zeros(2), np.ones(2))
    none = np.array([0, 1]), np.array([-1.0, -1]), np.ones(2)
    assert [metrics.figure(m, *none) for m in ("precision", "recall", "F0.5")] == [0, 0, 0]


def test_f_score_is_the_weighted_harmonic_mean():
    assert metrics.f_score(0.8, 0.4) == near(1 / (0.8 / 0.8 + 0.2 / 0.4))
    assert metrics.f_score(0.3, 0.9, 2.0) == near(1 / (0.2 / 0.3 + 0.8 / 0.9))
    assert metrics.f_score(0, 0) == 0


@many
@given(seeds, st.integers(1, 30))
def test_best_threshold_of_weighted_pairs_is_the_best_of_all(seed, n):
    """In exact fractions over the copies; scores with many ties, and pairs that weigh nothing."""
    rng = np.random.default_rng(seed)
    labels, scores, weights = (
        rng.integers(0, 2, n),
        rng.integers(0, 9, n) / 8,
        rng.integers(0, 6, n),
    )
    weights[rng.integers(n)] += 1
    values = {}
    for threshold in set(scores.tolist()):
        called = scores >= threshold
        hits = int(weights[called & (labels == 1)].sum())
        below = 4 * int(weights[called].sum()) + int(weights[labels == 1].sum())
        values[threshold] = Fraction(5 * hits, below) if below else Fraction(0)
    best = max(values.values())
    with np.errstate(invalid="ignore"):
        threshold = metrics.best_threshold(labels, scores, weights)
    if best:
        assert threshold == max(t for t, value in values.items() if value == best)
    assert metrics.best_threshold(labels, scores, np.ones(n)) == metrics.best_threshold(
        labels, scores
    )


def test_rarity_by_hand():
    """Of four images: true of one is 1, of two one half, of all 0; of none counts as of one."""
    fits = np.array([[1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 1, 0], [0, 0, 1, 0]], dtype=bool)
    assert metrics.rarity(fits).tolist() == near([1, 0.5, 0, 1])
