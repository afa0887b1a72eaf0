"""The coherence method against plain loops, hand-worked numbers, other libraries, and invariants.

Sections and equations are those of "Cross-Modal Coherence for Text-to-Image Retrieval" (2022).
"""

import math
from functools import partial
from itertools import combinations

import numpy as np
import oracles
import pytest
import torch
from drawn import few, near, seeds
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from scipy.stats import chisquare, rankdata
from torch import nn

from mmlib.papers.coherence import baselines, method
from mmlib.papers.coherence.method import full_ranks, gap, pool_ranks, pools_of

pytestmark = pytest.mark.usefixtures("double")
same = partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-12)
LENGTHS = torch.tensor([3, 1, 5, 2])


def units(seed, *shape):
    """Random unit vectors."""
    vectors = np.random.default_rng(seed).standard_normal(shape)
    return torch.tensor(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True))


# --- The text encoder ----------------------------------------------------------------------------


@few
@given(seeds, st.integers(1, 7), st.sampled_from([0.0, math.nan, math.inf]))
def test_attention_is_the_loop_over_texts_whatever_the_padding(seed, width, padding):
    """k = tanh(A h + b), e = u k / sqrt(width), softmax over the text, sum."""
    torch.manual_seed(seed)
    pool, states = method.AttentionPooling(width), 2 * torch.randn(4, 5, width)
    A, b, u = (p.detach().numpy() for p in (pool.project.weight, pool.project.bias, pool.query))
    for i, length in enumerate(LENGTHS):
        states[i, length:] = padding
    pooled, weights = pool(states, LENGTHS)
    for i, length in enumerate(LENGTHS):
        h = states[i, :length].numpy()
        alpha = softmax(np.array([u @ np.tanh(A @ word + b) / math.sqrt(width) for word in h]))
        same(weights[i].detach(), [*alpha, *[0.0] * (5 - length)])
        same(pooled[i].detach(), alpha @ h)
        same(baselines.MeanPooling(width)(states, LENGTHS)[0][i].detach(), h.mean(axis=0))


def test_the_lstm_is_pytorchs_on_packed_texts_and_its_last_states_are_their_ends():
    torch.manual_seed(0)
    ours, words = method.BidirectionalLSTM(3, 4), torch.randn(4, 5, 3)
    theirs = nn.LSTM(3, 4, batch_first=True, bidirectional=True)
    for suffix, layer in (("", ours.forwards), ("_reverse", ours.backwards)):
        for name, value in layer.named_parameters():
            theirs.load_state_dict({**theirs.state_dict(), name + suffix: value})
    packed = nn.utils.rnn.pack_padded_sequence(words, LENGTHS, True, enforce_sorted=False)
    states, (last, _) = theirs(packed)
    wanted, _ = nn.utils.rnn.pad_packed_sequence(states, batch_first=True)
    found = ours(words, LENGTHS)
    for i, length in enumerate(LENGTHS):
        same(found[i, :length].detach(), wanted[i, :length].detach())
    ends, _ = method.LastStates(8)(found, LENGTHS)
    same(ends.detach(), torch.cat([*last], dim=1).detach())


# --- The retrieval losses ------------------------------------------------------------------------


def distance_loop(texts, images, margin):
    """One anchor at a time; texts and images stacked, both with the numbers of their pairs."""
    vectors, pair, terms = np.concatenate([texts, images]), 2 * [*range(len(texts))], []
    for a, anchor in enumerate(vectors):
        distances = [math.sqrt(max(2 - 2 * anchor @ v, 1e-12)) for v in vectors]
        positive = max(d for d, other in zip(distances, pair, strict=True) if other == pair[a])
        negative = min(d for d, other in zip(distances, pair, strict=True) if other != pair[a])
        terms.append(max(0.0, positive - negative + margin))
    return np.mean(terms)


def cosine_loop(texts, images, margin):
    """Minus section 6.1 as printed, min{0, trip}: the other modality's hardest negative counts."""
    return oracles.loss(texts.numpy() @ images.numpy().T, margin)


LOSSES = {method.hinge_distance: distance_loop, method.hinge_cosine: cosine_loop}


@pytest.mark.parametrize("loss", LOSSES)
@few
@given(seeds, st.integers(2, 7), st.integers(2, 5), st.sampled_from([None, 0.0, 0.15, 1.0]))
def test_hinge_losses_are_loops(loss, seed, count, width, margin):
    texts, images = units(seed, 2, count, width)
    given = () if margin is None else (margin,)  # 0.3 unless said otherwise
    assert loss(texts, images, *given).item() == near(LOSSES[loss](texts, images, *given or (0.3,)))


@pytest.mark.parametrize("kind", ["partners", "texts", "all", "one pair"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_identical_vectors_and_a_single_pair_have_finite_gradients(loss, kind, dtype):
    texts, images = units(6, 2, 5, 4).to(dtype)
    if kind == "partners":
        images = texts.clone()
    elif kind == "one pair":
        texts, images = texts[:1], images[:1]
    else:
        texts = texts[:1].repeat(5, 1)
        images = images if kind == "texts" else texts.clone()
    value = loss(texts.requires_grad_(), images.requires_grad_())
    value.backward()
    assert torch.cat([texts.grad, images.grad, value[None, None].expand(1, 4)]).isfinite().all()
    if kind == "all":
        assert value.item() == pytest.approx(0.6 if loss is method.hinge_cosine else 0.3, abs=1e-5)
    if kind == "one pair":  # the last batch of an epoch: no negative, no violation
        assert value.item() == 0
        assert not texts.grad.any()


# --- The coherence head and its loss -------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "pairs", "stored"),
    [  # positives among the training pairs of CITE++ and Clue, and the authors' stored weights
        ((2824, 396, 1130, 665, 543, 2021, 1076), 3439,
         [0.2178, 7.6843, 2.0434, 4.1714, 5.3333, 0.7016, 2.1961]),
        ((4073, 400, 948, 1467, 2364, 525), 6047,
         [0.4847, 14.1175, 5.3787, 3.1220, 1.5580, 10.5181]),
    ],
)  # fmt: skip
def test_weights_from_the_counts_are_the_stored_ones(counts, pairs, stored):
    labels = np.arange(pairs)[:, None] < np.array(counts)
    assert method.positive_weights(labels).round(4).tolist() == stored
    with pytest.raises(ValueError, match="relation 1 has no positive pair: leave it out"):
        method.positive_weights(labels & (np.arange(len(counts)) != 1))


@few
@given(seeds, st.integers(1, 6), st.integers(1, 7))
def test_coherence_loss_is_the_loop(seed, count, relations):
    """Minus the mean over batch and relations of p y log x + (1 - y) log(1 - x)."""
    rng = np.random.default_rng(seed)
    logits, labels = (
        3 * rng.standard_normal((count, relations)),
        rng.random((count, relations)) < 0.4,
    )
    weights = rng.uniform(0.1, 15, relations)
    terms = []
    for (i, c), y in np.ndenumerate(labels):
        x = 1 / (1 + math.exp(-logits[i, c]))
        terms.append(-(weights[c] * math.log(x) if y else math.log(1 - x)))
    loss = method.coherence_loss(*map(torch.tensor, (logits, labels, weights)))
    assert loss.item() == near(sum(terms) / len(terms))


def test_the_head_is_one_linear_layer_on_pairs_and_on_every_combination():
    torch.manual_seed(0)
    head = method.CoherenceHead(4, 3)
    texts, images = units(3, 5, 4), units(4, 7, 4)
    every = head.all_pairs(texts, images)
    assert every.shape == (5, 7, 3)
    V, v = head.linear.weight.tolist(), head.linear.bias.tolist()
    for i, j in np.ndindex(5, 7):
        both = texts[i].tolist() + images[j].tolist()
        logits = [sum(a * b for a, b in zip(V[c], both, strict=True)) + v[c] for c in range(3)]
        assert head(texts[[i]], images[[j]])[0].tolist() == near(logits)
        assert every[i, j].tolist() == near([1 / (1 + math.exp(-x)) for x in logits])
    deep = baselines.TwoLayers(4, 3)
    pairs = deep.all_pairs(texts, images)[[1, 4], [6, 0]]
    torch.testing.assert_close(pairs, deep(texts[[1, 4]], images[[6, 0]]).sigmoid())


# --- Confidence and refinement -------------------------------------------------------------------


def gap_loop(row):
    second, first = sorted(row)[-2:]
    return first - second


def refine_loop(theta, eta, threshold):
    return [
        row * sure if gap_loop(row) < threshold else row
        for row, sure in zip(theta, eta, strict=True)
    ]


@few
@given(seeds, st.integers(1, 7), st.sampled_from([0.0, 0.12, 0.13, 1.0]))
def test_confidence_is_the_sum_over_relations(seed, relations, strength):
    x = np.random.default_rng(seed).random((3, 4, relations))
    eta = method.confidence(x, strength)
    for i, j in np.ndindex(3, 4):
        assert eta[i, j] == near(sum(math.exp(strength * abs(p - 0.5)) for p in x[i, j]))


@few
@given(seeds, st.integers(1, 6), st.integers(2, 6), st.sampled_from([0.05, 0.1, 0.3, 0.0, 5.0]))
def test_refinement_is_the_loop_and_leaves_what_it_is_given(seed, n, m, threshold):
    rng = np.random.default_rng(seed)
    theta, eta = rng.uniform(-1, 1, (n, m)), 1 + rng.random((n, m))
    before = theta.copy(), eta.copy()
    ties = np.round(2 * theta) / 2
    assert gap(ties).tolist() == near([*map(gap_loop, ties)])
    refined = method.refine(theta, eta, threshold)
    same(refined, refine_loop(theta, eta, threshold))
    same((theta, eta), before)
    assert not np.shares_memory(refined, theta)


def test_only_gaps_below_the_threshold_are_refined():
    theta = np.array([[0.75, 0.5, 0.0], [0.75, 0.625, 0.0], [0.75, 0.5625, 0.0]])
    eta = np.full((3, 3), 2.0)  # gaps of 0.25, 0.125 and 0.1875: equal is not below
    for threshold, factors in ((0.125, [1, 1, 1]), (0.1875, [1, 2, 1]), (0.26, [2, 2, 2])):
        same(method.refine(theta, eta, threshold), theta * np.array(factors)[:, None])


# --- Pools and ranks -----------------------------------------------------------------------------


def test_pools_are_distinct_rows_every_row_and_place_as_likely():
    pools = pools_of(860)
    assert pools.shape == (50, 500)
    assert all(len(set(pool)) == 500 for pool in pools.tolist())
    assert len({tuple(sorted(pool)) for pool in pools.tolist()}) == 50
    assert pools_of(344).shape == (50, 344)
    assert (pools_of(860, seed=0) == pools).all()
    assert (pools_of(860, seed=1) != pools).any()
    small = pools_of(30, size=10, count=3000, seed=1)
    for drawn in (small.ravel(), small[:, 0]):
        assert chisquare(np.bincount(drawn, minlength=30)).pvalue > 1e-4


@pytest.mark.parametrize("better", [0, 2, 9, 13, 2.5])
def test_expected_figures_are_means_over_all_pools(better):
    """All pools of 8 among 14 pairs that hold a text; a tie is above or below, half each."""
    ranks = []
    for side in {int(np.floor(better)), int(np.ceil(better))}:
        pools = combinations(range(1, 14), 7)
        ranks += [1 + sum(other <= side for other in pool) for pool in pools]
    found = method.expected_in_pools(np.array([better + 1.0]), pairs=14, size=8)
    for k in (1, 5, 10):
        assert found[f"R@{k}"] == pytest.approx(100 * np.mean(np.array(ranks) <= k))
    assert found["MedR"] == pytest.approx(np.mean(ranks))


@few
@given(seeds, st.integers(2, 12), st.booleans(), st.sampled_from([None, 0.0, 0.05, 0.3, 5.0]))
def test_ranks_within_pools_are_scipys(seed, size, twins, threshold):
    """Scores of few values, so that ties are common; pools with and without twins."""
    rng = np.random.default_rng(seed)
    theta, eta = rng.integers(-4, 5, (12, 12)) / 8, 1 + rng.integers(0, 3, (12, 12)) / 8
    pools = rng.integers(12, size=(3, size)) if twins else pools_of(12, size, 3, seed)
    ranks = pool_ranks(theta, pools, *(() if threshold is None else (eta, threshold)))
    for pool, found in zip(pools, ranks, strict=True):
        grid = np.ix_(pool, pool)
        within = np.array(
            refine_loop(theta[grid], eta[grid], threshold or 0.0)
        )  # 0: none is refined
        assert found.tolist() == [rankdata(-row)[k] for k, row in enumerate(within)]
        assert full_ranks(within).tolist() == found.tolist()


def test_metrics_by_hand():
    metrics = method.pool_metrics(np.array([[1, 1.5, 5, 10], [11, 12, 2, 400], [1, 1, 1, 1]]))
    assert {name: values.tolist() for name, values in metrics.items()} == {
        "MedR": [3.25, 11.5, 1], "R@1": [25, 0, 100], "R@5": [75, 25, 100], "R@10": [100, 25, 100],
    }  # fmt: skip


def test_the_authors_selection_and_average_precision():
    aware, agnostic = np.array([3, 1, 5, 2, 2]), np.array([9, 1, 6, 1, 4])
    assert method.selected(aware, agnostic).tolist() == [4, 0, 2]
    assert method.selected(aware, agnostic, 1).tolist() == [4]
    labels = np.array([[True, False], [False, False], [True, False]])
    scores = np.array([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3]])
    found = method.average_precisions(labels, scores)
    assert found == pytest.approx([(1 + 2 / 3) / 2, np.nan], nan_ok=True)
