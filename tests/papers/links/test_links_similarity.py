"""Set similarities, loss and metrics of paper 04, against printed oracles and brute force."""

import numpy as np
import pytest
import torch
from drawn import few
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as stnp
from oracles import ap, auc, loss, precision, similarity
from oracles import tk as brute_tk
from scipy import stats
from sklearn.metrics import roc_auc_score

from mmlib.papers.links import method
from mmlib.papers.links.data.arrays import Split
from mmlib.papers.links.method import evaluate, link_metrics
from mmlib.papers.links.run import SYSTEMS

# --- The printed oracles ---------------------------------------------------------------------

MATRICES = {
    "A": [[0.9, 0.1, 0.3], [0.8, 0.7, 0.2], [0.4, 0.6, 0.5]],
    "C": [[0.2, 0.8, -0.1], [0.5, 0.9, -0.3], [-0.4, 0.1, -0.2], [0.7, 0.3, -0.6], [0, -0.5, -0.7]],
}

ALL = {name: one for name, one in SYSTEMS.items() if name != "NoStruct"}


def block(matrix):
    """A single matrix as the similarities take it: cosines and two masks without padding."""
    cosines = torch.tensor(np.array(matrix), dtype=torch.float64)
    return cosines, *(torch.ones(size, dtype=torch.bool) for size in cosines.shape)


def gradient(matrix, system) -> np.ndarray:
    cosines, rows, columns = block(matrix)
    cosines.requires_grad_()
    method.set_similarity(cosines, rows, columns, ALL[system]).backward()
    return cosines.grad.numpy()


@pytest.mark.parametrize(
    ("name", "system", "wanted"),
    [
        ("A", "DC", [[2 / 3, 0, 0], [1 / 3, 1 / 3, 0], [0, 1 / 3, 1 / 3]]),
        ("A", "TK", [[2 / 3, 0, 0], [1 / 3, 1 / 3, 0], [0, 1 / 3, 1 / 3]]),
        ("A", "TK+½k", [[1, 0, 0], [1 / 2, 1 / 2, 0], [0, 0, 0]]),
        ("A", "AP", np.eye(3) / 3),
        ("A", "AP+½k", np.diag([1 / 2, 1 / 2, 0])),
        ("C", "DC", [[0, 0.2, 1 / 3], [0, 8 / 15, 0], [0, 0.2, 0], [8 / 15, 0, 0], [0.2, 0, 0]]),
        ("C", "TK", [[0, 1 / 3, 1 / 3], [0, 2 / 3, 0], [0, 0, 0], [2 / 3, 0, 0], [0, 0, 0]]),
        ("C", "AP", [[0, 0, 1 / 3], [0, 1 / 3, 0], [0, 0, 0], [1 / 3, 0, 0], [0, 0, 0]]),
    ],
)
def test_gradients_are_the_printed_ones(name, system, wanted):
    assert gradient(MATRICES[name], system) == pytest.approx(np.array(wanted), abs=1e-7)


# --- Against brute force ---------------------------------------------------------------------

ENTRIES = st.integers(-100, 100).map(lambda hundredths: hundredths / 100)
SHAPES = stnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=5)
ANY_MATRIX = SHAPES.flatmap(lambda shape: stnp.arrays(np.float64, shape, elements=ENTRIES))


@few
@given(ANY_MATRIX)
def test_similarities_are_those_of_brute_force_at_every_k(matrix):
    for name, system in ALL.items():
        value = method.set_similarity(*block(matrix), system).item()
        assert value == pytest.approx(similarity(matrix, name), abs=1e-6)
    for k in range(1, min(matrix.shape) + 1):
        best, size = ap(matrix, k)[0], torch.tensor(k)
        assert method.top_k(*block(matrix), size) == pytest.approx(brute_tk(matrix, k), abs=1e-6)
        assert method.assignment(*block(matrix), size) == pytest.approx(best, abs=1e-12)
        edges = method.best_matching(matrix, k)
        assert edges.shape == (k, 2)
        assert len(set(edges[:, 0])) == len(set(edges[:, 1])) == k
        assert matrix[edges[:, 0], edges[:, 1]].mean() == pytest.approx(best)


@pytest.mark.parametrize("k", [0, -1, 3])
def test_a_matching_of_impossible_size_is_refused(k):
    with pytest.raises(ValueError, match=f"2 x 4 matrix has no matching with {k} edges"):
        method.best_matching(np.zeros((2, 4)), k)


def padded(n, m, filler, seed=0):
    """Random blocks [a][b] (n_a, m_b), then as padded cosines (D, D, N, M) with their masks."""
    rng = np.random.default_rng(seed)
    blocks = [[rng.uniform(-1, 1, (a, b)) for b in m] for a in n]
    cosines = torch.full((len(n), len(m), max(n), max(m)), filler, dtype=torch.float64)
    for a, b in np.ndindex(len(n), len(m)):
        cosines[a, b, : n[a], : m[b]] = torch.tensor(blocks[a][b])
    rows = torch.arange(max(n)) < torch.tensor(n).unsqueeze(1)
    columns = torch.arange(max(m)) < torch.tensor(m).unsqueeze(1)
    return blocks, cosines, rows.unsqueeze(1), columns.unsqueeze(0)


@pytest.mark.parametrize("filler", [0.0, 9.0, -9.0, float("nan")])
@pytest.mark.parametrize("name", ALL)
def test_padding_never_matters_and_each_pair_has_a_k_of_its_own(name, filler):
    blocks, cosines, rows, columns = padded([2, 1, 5, 3], [1, 4, 2, 3], filler)
    cosines.requires_grad_()
    together = method.set_similarity(cosines, rows, columns, ALL[name])
    together.sum().backward()
    for a, row in enumerate(blocks):
        for b, matrix in enumerate(row):
            assert together[a, b].item() == pytest.approx(similarity(matrix, name), abs=1e-6)
            slope = cosines.grad[a, b]
            n, m = matrix.shape
            assert slope[:n, :m].numpy() == pytest.approx(gradient(matrix, name), abs=1e-6)
            assert not slope[n:].any()
            assert not slope[:, m:].any()


@few
@given(st.integers(2, 5), st.integers(0, 99), st.sampled_from(["hard", "mean"]), st.floats(0, 1))
def test_loss_is_that_of_the_plain_loop_and_draws_are_averaged(size, seed, negatives, margin):
    q = np.random.default_rng(seed).uniform(-1, 1, (3, size, size))
    wanted = np.mean([loss(one.tolist(), margin, negatives) for one in q])
    found = method.document_loss(torch.from_numpy(q), margin, negatives).item()
    assert found == pytest.approx(wanted)


def test_random_pairs_are_those_of_a_loop_and_uniform():
    n, m, draws = [2, 1, 5, 3], [1, 4, 2, 3], 4000
    _, cosines, rows, columns = padded(n, m, float("nan"), seed=2)
    found = method.random_pairs(cosines, rows, columns, draws, torch.Generator().manual_seed(0))
    assert found.shape == (draws, 4, 4)
    for one in found[:200].numpy():
        own = [np.argwhere(cosines[a, a].numpy() == one[a, a])[0] for a in range(4)]
        for a, b in np.ndindex(4, 4):  # the same sentence and image meet all other documents
            assert one[a, b] == cosines[a, b, own[a][0], own[b][1]]
    for a in range(4):
        counts = found[:, a, a].unique(return_counts=True)[1].numpy()
        assert len(counts) == n[a] * m[a]
        if len(counts) > 1:
            assert stats.chisquare(counts).pvalue > 1e-3
    again = method.random_pairs(cosines, rows, columns, draws, torch.Generator().manual_seed(0))
    assert torch.equal(found, again)


# --- Metrics ---------------------------------------------------------------------------------


def test_documents_without_a_link_or_with_nothing_else_are_skipped():
    matrices = [np.array(MATRICES["A"])] * 3 + [np.array([[0.5, 0.5], [0.2, 0.5]])]
    edges = np.eye(3), np.zeros((3, 3)), np.ones((3, 3)), np.array([[1, 0], [0, 0]])
    links = tuple(matrix.astype(bool) for matrix in edges)
    split = Split((), (), links, np.array([]), np.array([]))
    figures = evaluate(matrices, split)  # in the last document three cells tie
    for name, first, last in (("AUC", 15 / 18, 2 / 3), ("p@1", 1, 1 / 3), ("p@5", 3 / 5, 1 / 4)):
        assert figures[name] == pytest.approx([100 * first, *[np.nan] * 2, 100 * last], nan_ok=True)
    with pytest.raises(ValueError, match="zip"):
        evaluate(matrices[:2], split)


@few
@given(SHAPES, st.integers(0, 10_000), st.booleans())
def test_metrics_are_those_of_scikit_learn_and_of_a_plain_count(shape, seed, ties):
    rng = np.random.default_rng(seed)
    scores = rng.uniform(-1, 1, shape).round(0 if ties else 9)
    true = rng.random(shape) < 0.4
    found = link_metrics(scores, true)
    if true.all() or not true.any():
        assert found is None
        return
    assert found["AUC"] == pytest.approx(100 * roc_auc_score(true.ravel(), scores.ravel()))
    assert found["AUC"] == pytest.approx(auc(scores, true))
    assert found["p@1"] == pytest.approx(precision(scores, true, 1))
    assert found["p@5"] == pytest.approx(precision(scores, true, 5))
