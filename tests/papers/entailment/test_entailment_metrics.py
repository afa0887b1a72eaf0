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
from mmlib.core.tables import paper_tables, paper_values
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


def test_delongs_variance_is_that_of_the_shares():
    """Of the ROC area, without ties: DeLong, DeLong and Clarke-Pearson (1988) by their formula."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 300)
    margins = labels + rng.normal(size=300)
    above = margins[labels == 1][:, None] > margins[labels == 0]
    parts = above.mean(axis=1), above.mean(axis=0)
    wanted = sum(part.var() / len(part) for part in parts)
    own = shares("ROC area", labels, margins, np.ones(300)) / 100
    assert own.var() / 300 == pytest.approx(wanted)


def test_as_many_as_are_entailed_are_called_at_the_mined_size():
    labels, margins = np.array([1, 0, 1, 0, 1]), np.array([-3.0, -5, -1, -2, -9])
    assert figure(AT_SIZE, labels, margins, np.ones(5)) == near(200 / 3)  # -1, -2 and -3
    weights = np.array([1.0, 1, 1, 2, 1])  # -2 stands for two: all entailed weigh 3
    assert figure(AT_SIZE, labels, margins, weights) == near(100 / 3)


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


@few
@given(st.floats(0, 1), st.floats(0, 1), st.sampled_from([0.5, 1.0, 2.0]))
def test_f_score_is_the_weighted_harmonic_mean(precision, recall, beta):
    got = f_score(precision, recall, beta)
    if min(precision, recall) < 1e-100:
        assert got == pytest.approx(0, abs=1e-90)
    else:
        share = 1 / (1 + beta**2)
        assert got == near(1 / (share / precision + (1 - share) / recall))
    assert f_score(0, 0) == 0
    assert f_score(0.8, 0.4) > f_score(0.4, 0.8)


def test_of_equally_good_thresholds_the_larger_one_is_taken():
    """1 right of 1 called and 2 of 3, of 4 in all: F0.5 = 5/8 both."""
    labels, scores = [1, 1, 0, 1, 1, 0, 0, 0], [0.9, 0.5, 0.5, 0.1, 0.1, 0.1, 0.1, 0.1]
    assert best_threshold(np.array(labels), np.array(scores)) == 0.9
    assert best_threshold(np.array([0, 0]), np.array([0.2, 0.7])) == 0.7


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


def test_weights_move_the_threshold():
    """One no of weight 1 is worth two yes more; of weight 9 it is not."""
    labels, scores = np.array([1, 0, 1, 1]), np.array([0.9, 0.8, 0.7, 0.7])
    assert best_threshold(labels, scores, np.array([1, 1, 1, 1])) == 0.7
    assert best_threshold(labels, scores, np.array([1, 9, 1, 1])) == 0.9


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


def test_golden_captions_alone_give_half_of_the_first_ten():
    """Five golden captions an image: at most 50 % at K = 10 and 16.7 % at K = 30 (Sec. 5)."""
    golden = np.zeros((3, 40), dtype=bool)
    for i in range(3):
        golden[i, 5 * i : 5 * i + 5] = True
    ranked = [sorted(range(40), key=lambda t, i=i: not golden[i, t]) for i in range(3)]
    assert [entail_at_k(ranked, golden, k) for k in (5, 10, 30)] == near([100, 50, 50 / 3])


# --- The paper's tables --------------------------------------------------------------------------


def test_column_four_of_table_3_is_f_half():
    table = paper_values("entailment", "table3")
    ours = [
        100 * f_score(p / 100, r / 100) for p, r in zip(table.precision, table.recall, strict=True)
    ]
    assert len(ours) == 8
    assert np.abs(np.array(ours) - table["F0.5"]).max() < 0.05
    f1 = [
        100 * f_score(p / 100, r / 100, 1)
        for p, r in zip(table.precision, table.recall, strict=True)
    ]
    assert np.abs(np.array(f1) - table["F0.5"]).min() > 0.4  # no row fits F1


def test_by_f1_three_ablations_beat_the_full_model():
    table = paper_values("entailment", "table3")
    f1 = {name: f_score(row.precision, row.recall, 1) for name, row in table.iterrows()}
    better = {name for name in f1 if f1[name] > f1["Ours"]}
    assert better == {"w/o Image Masking", "w/o TE Data", "w/o BERT"}


def test_enhanced_rows_of_table_4_are_the_baseline_plus_the_change():
    changes = []
    for name in ("table4_flickr30k", "table4_mscoco"):
        values = paper_values("entailment", name)
        for row in paper_tables("entailment")[name]["rows"]:
            for column, change in row.get("delta", {}).items():
                after, before = values.loc[row["name"], column], values.loc[row["baseline"], column]
                assert after - before == pytest.approx(change, abs=1e-6)
                changes.append(change)
    signs = [sum(c > 0 for c in changes), sum(c < 0 for c in changes), changes.count(0)]
    assert (len(changes), signs) == (36, [29, 5, 2])
    assert mean(changes) == pytest.approx(0.636, abs=5e-4)


def test_rows_of_table_2_add_up():
    table = paper_values("entailment", "table2")
    train = table[table.split == "Train"].groupby("task")["count"].sum()
    assert train.to_dict() == {"TE": 987_700, "VE": 661_800, "MME": 744_200}


def test_what_the_text_quotes_is_in_the_tables():
    text = paper_values("entailment", "intext").value
    table3, table5 = (paper_values("entailment", f"table{n}") for n in (3, 5))
    flickr = paper_values("entailment", "table4_flickr30k")
    f05, revised = table3["F0.5"], "CLIP + entailment-enhanced training"
    quoted = {
        "F0.5 margin of Ours over OFA": f05["Ours"] - f05["OFA"],
        "F0.5 gain of BERT over ALBEF's text encoder": f05["Ours"] - f05["w/o BERT"],
        "CLIP IR@1 gain on Flickr30K": flickr.loc[revised, "IR@1"] - flickr.loc["CLIP", "IR@1"],
        "CLIP E@M gain": table5.loc[revised, "E@M"] - table5.loc["CLIP", "E@M"],
        "Classifier accuracy, headline": round(table3.accuracy["Ours"]),
    }
    assert {name: text[name] for name in quoted} == {n: near(v) for n, v in quoted.items()}


def test_the_counts_of_tables_1_and_2_agree():
    """The test set's pairs; one masked copy for every four other samples; counts as printed."""
    table = paper_values("entailment", "table2")
    pairs = paper_values("entailment", "table1").loc["Total pairs"].sum()
    assert pairs == table["count"][table.split == "Test"].item()
    for task in ("VE", "MME"):
        own = table[table.task == task].set_index("dataset")["count"]
        masked = own["Image Masking"]
        assert masked / (own.sum() - masked) == pytest.approx(0.25, abs=2e-4)
    printed = table.count_printed.str.removesuffix("k").astype(float) * 1000
    assert list(printed) == pytest.approx(list(table["count"]))


def test_accuracy_agrees_with_precision_and_recall_of_table_3():
    """By all three, between 990 and 1,002 of the 2,000 pairs are positive."""
    table = paper_values("entailment", "table3") / 100
    for name, row in table.iterrows():
        # Wrong: P missed ones, (1 - recall) P, and false alarms, recall P (1 / precision - 1).
        wrong_per_positive = 1 - row.recall + row.recall * (1 / row.precision - 1)
        positives = 2000 * (1 - row.accuracy) / wrong_per_positive
        assert 985 < positives < 1010, name
