"""The coherence method against plain loops, hand-worked numbers, other libraries, and invariants.

Sections and equations are those of "Cross-Modal Coherence for Text-to-Image Retrieval" (2022).
"""

import ast
import math
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare, rankdata

from mmlib.papers.coherence import run
from mmlib.papers.coherence.method import (
    AttentionPooling,
    CoherenceHead,
    coherence_loss,
    confidence,
    expected_in_pools,
    full_ranks,
    gap,
    hinge_cosine,
    hinge_distance,
    pool_metrics,
    pool_ranks,
    pools_of,
    positive_weights,
    refine,
)

pytestmark = pytest.mark.usefixtures("double")


few = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 2**32 - 1)
near = partial(pytest.approx, rel=1e-9, abs=1e-10)
same = partial(torch.allclose, rtol=1e-12, atol=1e-12)


def units(seed, *shape):
    """Random unit vectors."""
    vectors = np.random.default_rng(seed).standard_normal(shape)
    return torch.tensor(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True))


def pairs(seed, count, width=4):
    """(texts, images): unit vectors of a batch."""
    both = units(seed, 2 * count, width)
    return both[:count], both[count:]


# --- Attention (the text encoder) ----------------------------------------------------------------


def attention_loop(pool, states, lengths):
    """One word at a time: k = tanh(A h + b), e = u k / sqrt(width), softmax over the text, sum."""
    A, b = pool.project.weight.tolist(), pool.project.bias.tolist()
    u, width = pool.query.tolist(), states.shape[2]
    pooled, weights = [], []
    for text, length in zip(states.tolist(), lengths.tolist(), strict=True):
        scores = []
        for h in text[:length]:
            k = [math.tanh(sum(A[i][j] * h[j] for j in range(width)) + b[i]) for i in range(width)]
            scores.append(sum(x * y for x, y in zip(u, k, strict=True)) / math.sqrt(width))
        powers = [math.exp(score) for score in scores]
        alpha = [p / sum(powers) for p in powers] + [0.0] * (len(text) - length)
        weights.append(alpha)
        pooled.append([sum(a * h[j] for a, h in zip(alpha, text, strict=True))
                       for j in range(width)])  # fmt: skip
    return pooled, weights


def attention(width, seed=0):
    torch.manual_seed(seed)
    return AttentionPooling(width)


LENGTHS = torch.tensor([3, 1, 5, 2])


@few
@given(seeds, st.integers(1, 7))
def test_attention_is_the_loop_over_words(seed, width):
    pool = attention(width, seed)
    states = 2 * torch.randn(4, 5, width)
    pooled, weights = pool(states, LENGTHS)
    wanted, alpha = attention_loop(pool, states, LENGTHS)
    np.testing.assert_allclose(pooled.detach(), wanted, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(weights.detach(), alpha, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("garbage", [math.nan, math.inf])
def test_padding_may_even_be_no_number(garbage):
    pool = attention(6)
    states = torch.randn(4, 5, 6)
    for i, length in enumerate(LENGTHS):
        states[i, length:] = garbage
    pooled, weights = pool(states, LENGTHS)
    again, same_weights = pool(states.nan_to_num(0, 0, 0), LENGTHS)
    assert same(pooled, again)
    assert same(weights, same_weights)


def test_attention_has_the_papers_parameters():
    """361,200 for 600-wide states: A, b and u. u starts from N(0, 1)."""
    pool = attention(600)
    assert sum(p.numel() for p in pool.parameters()) == 361_200
    assert pool.query.shape == (600,)
    assert pool.query.requires_grad
    assert abs(pool.query.mean().item()) < 0.15
    assert pool.query.std().item() == pytest.approx(1, abs=0.1)


# --- The retrieval losses ------------------------------------------------------------------------


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def distance(a, b):
    return math.sqrt(max(2 - 2 * cosine(a, b), 1e-12))


def distance_loop(texts, images, margin):
    """One anchor at a time; texts and images stacked, with the numbers of their pairs as labels."""
    vectors = texts.tolist() + images.tolist()
    labels = 2 * list(range(len(texts)))
    terms = []
    for a, anchor in enumerate(vectors):
        near_to = [distance(anchor, v) for v in vectors]
        positive = max(d for d, label in zip(near_to, labels, strict=True) if label == labels[a])
        negative = min(d for d, label in zip(near_to, labels, strict=True) if label != labels[a])
        terms.append(max(0.0, positive - negative + margin))
    return sum(terms) / len(terms)


def printed_terms(texts, images, margin):
    """Section 6.1 as printed, min{0, trip}, with the hardest negative of the other modality."""
    texts, images = texts.tolist(), images.tolist()
    total = 0.0
    for i, (text, image) in enumerate(zip(texts, images, strict=True)):
        own = cosine(text, image)
        wrong_image = max(cosine(text, v) for j, v in enumerate(images) if j != i)
        wrong_text = max(cosine(v, image) for j, v in enumerate(texts) if j != i)
        total += min(0.0, own - wrong_image - margin) + min(0.0, own - wrong_text - margin)
    return total / len(texts)


LOSSES = [hinge_distance, hinge_cosine]
margins = st.sampled_from([0.3, 0.0, 0.15, 1.0])


@few
@given(seeds, st.integers(2, 7), st.integers(2, 5), margins)
def test_hinge_on_distances_is_the_loop_over_anchors(seed, count, width, margin):
    texts, images = pairs(seed, count, width)
    loss = hinge_distance(texts, images, margin)
    assert loss.shape == ()
    assert loss.item() == near(distance_loop(texts, images, margin))


@few
@given(seeds, st.integers(2, 7), st.integers(2, 5), margins)
def test_hinge_on_cosines_is_minus_the_printed_terms(seed, count, width, margin):
    texts, images = pairs(seed, count, width)
    loss = hinge_cosine(texts, images, margin)
    assert loss.shape == ()
    assert loss.item() == near(-printed_terms(texts, images, margin))


def test_margin_is_three_tenths_unless_told():
    texts, images = pairs(1, 6)
    for loss in LOSSES:
        assert loss(texts, images).item() == loss(texts, images, 0.3).item()
        assert loss(texts, images).item() != near(loss(texts, images, 0.2).item())


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("kind", ["partners", "texts", "all"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_identical_vectors_have_finite_gradients(loss, kind, dtype, exact):
    """Random vectors, whose length is 1 but for rounding, and vectors whose length is 1."""
    texts, images = (torch.eye(5), torch.eye(5).roll(1, 0)) if exact else pairs(6, 5)
    texts, images = texts.to(dtype), images.to(dtype)
    if kind == "partners":
        images = texts.clone()
    elif kind == "texts":
        texts = texts[:1].repeat(5, 1)
    else:
        texts = images = texts[:1].repeat(5, 1)
    texts, images = texts.clone().requires_grad_(), images.clone().requires_grad_()
    value = loss(texts, images)
    value.backward()
    assert math.isfinite(value.item())
    assert texts.grad.isfinite().all()
    assert images.grad.isfinite().all()
    if kind == "all":
        assert value.item() == pytest.approx(0.6 if loss is hinge_cosine else 0.3, abs=1e-5)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_pair_without_rivals_costs_nothing(loss):
    """The last batch of an epoch may hold a single pair: no negative, no violation."""
    texts, images = (x.requires_grad_() for x in pairs(0, 1))
    value = loss(texts, images)
    value.backward()
    assert value.item() == 0
    assert not texts.grad.any()
    assert not images.grad.any()


# --- The coherence head and its loss -------------------------------------------------------------

# Positives of each relation among the training pairs of CITE++ and Clue, and the stored weights.
CITE_COUNTS = (2824, 396, 1130, 665, 543, 2021, 1076)
CITE_WEIGHTS = (0.2178, 7.6843, 2.0434, 4.1714, 5.3333, 0.7016, 2.1961)
CLUE_WEIGHTS = (0.4847, 14.1175, 5.3787, 3.1220, 1.5580, 10.5181)
CLUE_COUNTS = (4073, 400, 948, 1467, 2364, 525)


@pytest.mark.parametrize(
    ("counts", "pairs", "stored"),
    [(CITE_COUNTS, 3439, CITE_WEIGHTS), (CLUE_COUNTS, 6047, CLUE_WEIGHTS)],
)
def test_weights_from_the_counts_are_the_stored_ones(counts, pairs, stored):
    weights = positive_weights(np.arange(pairs)[:, None] < np.array(counts))
    assert weights.round(4).tolist() == list(stored)


def test_a_relation_without_positives_is_an_error():
    with pytest.raises(ValueError, match=r"(?i)positive"):
        positive_weights(np.array([[True, False], [False, False]]))


def coherence_loop(logits, labels, weights):
    """Minus the mean over batch and relations of p y log x + (1 - y) log(1 - x)."""
    terms = []
    for row, truth in zip(logits.tolist(), labels.tolist(), strict=True):
        for logit, y, p in zip(row, truth, weights.tolist(), strict=True):
            x = 1 / (1 + math.exp(-logit))
            terms.append(-(p * math.log(x) if y else math.log(1 - x)))
    return sum(terms) / len(terms)


@few
@given(seeds, st.integers(1, 6), st.integers(1, 7))
def test_coherence_loss_is_the_loop(seed, count, relations):
    rng = np.random.default_rng(seed)
    logits = torch.tensor(3 * rng.standard_normal((count, relations)))
    labels = torch.tensor(rng.random((count, relations)) < 0.4)
    weights = torch.tensor(rng.uniform(0.1, 15, relations))
    loss = coherence_loss(logits, labels, weights)
    assert loss.shape == ()
    assert loss.item() == near(coherence_loop(logits, labels, weights))
    assert coherence_loss(logits, labels.to(logits.dtype), weights).item() == near(loss.item())


def head_of(width, relations, seed=0):
    torch.manual_seed(seed)
    return CoherenceHead(width, relations)


def head_loop(head, texts, images):
    """Logits of all combinations: V [text; image] + v."""
    (layer,) = (m for m in head.modules() if isinstance(m, torch.nn.Linear))
    V, v = layer.weight.tolist(), layer.bias.tolist()
    return [
        [
            [sum(a * b for a, b in zip(row, text + image, strict=True)) + shift
             for row, shift in zip(V, v, strict=True)]
            for image in images.tolist()
        ]
        for text in texts.tolist()
    ]  # fmt: skip


def test_head_is_one_linear_layer_over_text_and_image():
    head = head_of(3, 4)
    texts, images = units(1, 5, 3), units(2, 5, 3)
    loop = head_loop(head, texts, images)
    assert head(texts, images).shape == (5, 4)
    for i, logits in enumerate(head(texts, images).tolist()):
        assert logits == near(loop[i][i])


def test_all_pairs_is_the_head_on_every_combination():
    head = head_of(4, 3)
    texts, images = units(3, 5, 4), units(4, 7, 4)
    every = head.all_pairs(texts, images)
    assert every.shape == (5, 7, 3)
    loop = head_loop(head, texts, images)
    for i in range(5):
        for j in range(7):
            logits = head(texts[i : i + 1], images[j : j + 1])[0]
            assert every[i, j].tolist() == near(logits.sigmoid().tolist())
            wanted = [1 / (1 + math.exp(-x)) for x in loop[i][j]]
            assert every[i, j].tolist() == near(wanted)


# --- Confidence and refinement -------------------------------------------------------------------


def confidence_loop(x, strength):
    return sum(math.exp(strength * abs(value - 0.5)) for value in x)


def gap_loop(row):
    first, second = sorted(row, reverse=True)[:2]
    return first - second


def refine_loop(theta, eta, threshold):
    return [
        [t * e for t, e in zip(row, sure, strict=True)] if gap_loop(row) < threshold else list(row)
        for row, sure in zip(theta.tolist(), eta.tolist(), strict=True)
    ]


def scores(seed, n, m, relations=3, strength=0.13):
    """(cosines, confidences) of n texts and m images."""
    rng = np.random.default_rng(seed)
    theta = rng.uniform(-1, 1, (n, m))
    eta = np.exp(strength * np.abs(rng.random((n, m, relations)) - 0.5)).sum(2)
    return theta, eta


@few
@given(seeds, st.integers(1, 7), st.sampled_from([0.0, 0.12, 0.13, 1.0]))
def test_confidence_is_the_sum_over_relations(seed, relations, strength):
    x = np.random.default_rng(seed).random((3, 4, relations))
    eta = confidence(x, strength)
    assert eta.shape == (3, 4)
    for i in range(3):
        for j in range(4):
            assert eta[i, j] == near(confidence_loop(x[i, j], strength))
    assert (eta >= relations - 1e-12).all()
    assert (eta <= relations * math.exp(strength / 2) + 1e-12).all()
    np.testing.assert_allclose(confidence(1 - x, strength), eta)  # sure of yes, sure of no


@few
@given(seeds, st.integers(1, 5), st.integers(2, 6))
def test_gap_is_largest_minus_second_largest(seed, n, m):
    theta = np.random.default_rng(seed).integers(-3, 4, (n, m)) / 4
    before = theta.copy()
    gaps = gap(theta)
    assert gaps.shape == (n,)
    assert gaps.tolist() == near([gap_loop(row) for row in theta.tolist()])
    assert (theta == before).all()


@few
@given(seeds, st.integers(1, 6), st.integers(2, 6), st.sampled_from([0.05, 0.1, 0.3, 0.0, 5.0]))
def test_refinement_is_the_loop(seed, n, m, threshold):
    theta, eta = scores(seed, n, m)
    before = theta.copy(), eta.copy()
    refined = refine(theta, eta, threshold)
    np.testing.assert_allclose(refined, refine_loop(theta, eta, threshold), rtol=1e-12)
    assert (theta == before[0]).all()
    assert (eta == before[1]).all()
    assert not np.shares_memory(refined, theta)
    sure = gap(theta) >= threshold
    assert (refined[sure] == theta[sure]).all()
    assert (refined[~sure] != theta[~sure]).all()
    assert (np.sign(refined) == np.sign(theta)).all()
    assert (np.abs(refined) >= np.abs(theta)).all()  # a negative one gets more negative


def test_only_gaps_below_the_threshold_are_refined():
    theta = np.array([[0.75, 0.5, 0.0], [0.75, 0.625, 0.0], [0.75, 0.5625, 0.0]])
    eta = np.full((3, 3), 2.0)
    refined = refine(theta, eta, 0.125)
    assert (refined == theta).all()  # 0.25, 0.125 and 0.1875: equal to the threshold is not below
    refined = refine(theta, eta, 0.1875)
    assert (refined == theta * [[1], [2], [1]]).all()
    assert (refine(theta, eta, 0.26) == 2 * theta).all()


# --- Pools ---------------------------------------------------------------------------------------


def test_pools_are_distinct_rows_of_the_test_set():
    pools = pools_of(860)
    assert pools.shape == (50, 500)
    assert pools.dtype == np.int64
    assert pools.min() >= 0
    assert pools.max() <= 859
    assert all(len(set(pool)) == 500 for pool in pools.tolist())
    assert len({tuple(sorted(pool)) for pool in pools.tolist()}) == 50


def test_the_same_seed_draws_the_same_pools():
    def draw(seed):
        return pools_of(100, size=20, count=4, seed=seed)

    assert (draw(3) == draw(3)).all()
    assert (draw(3) != draw(4)).any()
    default = pools_of(100, size=20, count=4)
    assert (default == draw(0)).all()


def test_every_row_and_every_place_is_as_likely():
    pools = pools_of(30, size=10, count=3000, seed=1)
    assert chisquare(np.bincount(pools.ravel(), minlength=30)).pvalue > 1e-4
    assert chisquare(np.bincount(pools[:, 0], minlength=30)).pvalue > 1e-4


def test_a_smaller_test_set_has_smaller_pools():
    assert pools_of(344).shape == (50, 344)


@pytest.mark.parametrize("better", [0, 2, 9, 13, 2.5])
def test_expected_figures_are_means_over_all_pools(better):
    """All pools of 8 among 14 pairs that hold a text; a tie is above or below, half each."""
    ranks = []
    for side in {int(np.floor(better)), int(np.ceil(better))}:
        pools = combinations(range(1, 14), 7)
        ranks += [1 + sum(other <= side for other in pool) for pool in pools]
    found = expected_in_pools(np.array([better + 1.0]), pairs=14, size=8)
    for k in (1, 5, 10):
        assert found[f"R@{k}"] == pytest.approx(100 * np.mean(np.array(ranks) <= k))
    assert found["MedR"] == pytest.approx(np.mean(ranks))


def ranks_loop(theta, pool, eta=None, threshold=None):
    """Ranks within one pool by scipy: of a row's negated scores, ties at their mean rank."""
    within = np.array([[theta[i, j] for j in pool] for i in pool])
    if eta is not None:
        sure = np.array([[eta[i, j] for j in pool] for i in pool])
        within = np.array(refine_loop(within, sure, threshold))
    return [rankdata(-row)[k] for k, row in enumerate(within)]


@few
@given(seeds, st.integers(2, 12), st.booleans(), st.sampled_from([None, 0.0, 0.05, 0.3, 5.0]))
def test_ranks_within_pools_are_scipys(seed, size, twins, threshold):
    """Scores of few values, so that ties are common; pools with and without twins."""
    rng = np.random.default_rng(seed)
    theta = rng.integers(-4, 5, (12, 12)) / 8
    eta = 1 + rng.integers(0, 3, (12, 12)) / 8
    pools = rng.integers(12, size=(3, size)) if twins else pools_of(12, size, 3, seed)
    extra = () if threshold is None else (eta, threshold)
    before = theta.copy(), eta.copy(), pools.copy()
    ranks = pool_ranks(theta, pools, *extra)
    assert ranks.shape == (3, size)
    assert np.issubdtype(ranks.dtype, np.floating)
    for pool, found in zip(pools, ranks, strict=True):
        assert found.tolist() == ranks_loop(theta, pool, *extra)
    for kept, now in zip(before, (theta, eta, pools), strict=True):
        assert (kept == now).all()


@few
@given(seeds, st.integers(2, 9), st.sampled_from([None, 0.0, 0.05, 0.5]))
def test_full_ranks_are_the_pool_of_all_pairs(seed, n, threshold):
    rng = np.random.default_rng(seed)
    theta = rng.integers(-4, 5, (n, n)) / 8
    eta = 1 + rng.integers(0, 3, (n, n)) / 8
    extra = () if threshold is None else (eta, threshold)
    ranks = full_ranks(theta, *extra)
    assert ranks.shape == (n,)
    assert ranks.tolist() == ranks_loop(theta, range(n), *extra)
    order = rng.permutation(n)
    assert pool_ranks(theta, order[None], *extra)[0].tolist() == ranks[order].tolist()


def test_metrics_by_hand():
    ranks = np.array([[1, 1.5, 5, 10], [11, 12, 2, 400], [1, 1, 1, 1]])
    metrics = pool_metrics(ranks)
    assert set(metrics) == {"MedR", "R@1", "R@5", "R@10"}
    assert metrics["MedR"].tolist() == [3.25, 11.5, 1]
    assert metrics["R@1"].tolist() == [25, 0, 100]
    assert metrics["R@5"].tolist() == [75, 25, 100]
    assert metrics["R@10"].tolist() == [100, 25, 100]


def imported(path, root, seen):
    """Top-level imports of a module of mmlib and of the modules of mmlib among them."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        names = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            names = [node.module, *(f"{node.module}.{name}" for name in names)]
        for name in names:
            if name in seen:
                continue
            seen.add(name)
            inner = root.joinpath(*name.split(".")).with_suffix(".py")
            if inner.is_file():
                imported(inner, root, seen)
    return seen


def test_import_needs_none_of_the_heavy_libraries():
    path = Path(run.__file__)
    names = {name.split(".")[0] for name in imported(path, path.parents[3], set())}
    assert "torch" in names
    assert not names & {"spacy", "gensim", "papermill", "sklearn", "transformers", "nltk"}
