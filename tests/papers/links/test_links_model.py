"""Paper 04's method against the printed oracles and against brute force."""

from dataclasses import asdict, replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as stnp
from oracles import ap, ap_at_most, auc, dc, loss, loss_terms, matchings, precision, similarity
from oracles import sizes as brute_k
from oracles import tk as brute_tk
from scipy.stats import pearsonr
from sklearn.metrics import roc_auc_score

from mmlib.papers.links import model
from mmlib.papers.links.documents import Corpus, Document, fixed_batches, unlabelled
from mmlib.papers.links.model import SYSTEMS, Batch, Batches, Settings, System, train_system
from mmlib.training import seed_everything

# --- The printed oracles ---------------------------------------------------------------------

MATRICES = {
    "A": [[0.9, 0.1, 0.3], [0.8, 0.7, 0.2], [0.4, 0.6, 0.5]],
    "B": [[0.6, -0.2, 0.1, 0.5], [0.7, 0.3, -0.4, -0.1]],
    "C": [[0.2, 0.8, -0.1], [0.5, 0.9, -0.3], [-0.4, 0.1, -0.2], [0.7, 0.3, -0.6], [0, -0.5, -0.7]],
    "D": [[0.90, 0.80], [0.85, 0.10]],
    "E": [[-0.1, -0.5], [-0.3, -0.2]],
    "F": [
        [0.50, 0.10, 0.00, -0.10, 0.20],
        [0.45, 0.40, 0.10, 0.00, -0.20],
        [0.05, 0.35, 0.30, 0.10, 0.00],
        [-0.10, 0.00, 0.25, 0.20, 0.15],
        [0.10, -0.20, 0.05, 0.15, -0.05],
    ],
    "G": [[0.3]],
    "H": [[-0.2, 0.4, 0.1]],
    "I": [[0.6, -0.3], [0.5, -0.1], [0.1, -0.4], [-0.2, -0.6]],
    "J": [[0.9, 0.2], [0.2, -0.9]],
}

# DC, TK, TK½ ceil, TK½ floor; None where floor(q / 2) = 0.
SUMS = {
    "A": (1.466667, 1.466667, 1.650000, 1.800000),
    "B": (1.050000, 1.250000, 1.400000, 1.400000),
    "C": (1.000000, 1.300000, 1.650000, 1.800000),
    "D": (1.725000, 1.725000, 1.800000, 1.800000),
    "E": (-0.300000, -0.300000, -0.200000, -0.200000),
    "F": (0.660000, 0.660000, 0.833333, 0.925000),
    "G": (0.600000, 0.600000, 0.600000, None),
    "H": (0.500000, 0.800000, 0.800000, None),
    "I": (0.500000, 0.800000, 1.200000, 1.200000),
    "J": (1.100000, 1.100000, 1.800000, 1.800000),
}

# AP, AP½ ceil, AP½ floor, AP in the paper's "at most" form: value and edges.
ASSIGNMENTS = {
    "A": ((0.7, "00 11 22"), (0.8, "00 11"), (0.9, "00"), (0.7, "00 11 22")),
    "B": ((0.6, "03 10"), (0.7, "10"), (0.7, "10"), (0.6, "03 10")),
    "C": ((0.5, "02 11 30"), (0.8, "11 30"), (0.9, "11"), (0.8, "11 30")),
    "D": ((0.825, "01 10"), (0.9, "00"), (0.9, "00"), (0.825, "01 10")),
    "E": ((-0.15, "00 11"), (-0.1, "00"), (-0.1, "00"), (0.0, "")),
    "F": ((0.3, "00 11 22 34 43"), (0.4, "00 11 22"), (0.45, "00 11"), (0.3, "00 11 22 34 43")),
    "G": ((0.3, "00"), (0.3, "00"), None, (0.3, "00")),
    "H": ((0.4, "01"), (0.4, "01"), None, (0.4, "01")),
    "I": ((0.25, "00 11"), (0.6, "00"), (0.6, "00"), (0.6, "00")),
    "J": ((0.2, "01 10"), (0.9, "00"), (0.9, "00"), (0.9, "00")),
}

TK, AP = System("TK"), System("AP")
TK_HALVES = (System("TK", half=True), System("TK", half=True, rounding="floor"))
AP_HALVES = (System("AP", half=True), System("AP", half=True, rounding="floor"))
AP_FORMS = (AP, *AP_HALVES, System("AP", at_most=True))


def block(matrix):
    """A single matrix as the similarities take it: cosines and two masks without padding."""
    cosines = torch.tensor(np.array(matrix), dtype=torch.float64)
    return cosines, *(torch.ones(size, dtype=torch.bool) for size in cosines.shape)


def value(matrix, system) -> float:
    return model.set_similarity(*block(matrix), system).item()


def gradient(matrix, system) -> np.ndarray:
    cosines, rows, columns = block(matrix)
    cosines.requires_grad_()
    model.set_similarity(cosines, rows, columns, system).backward()
    return cosines.grad.numpy()


def edges_of(text: str) -> list[list[int]]:
    return [[int(pair[0]), int(pair[1])] for pair in text.split()]


@pytest.mark.parametrize("name", MATRICES)
def test_dc_and_tk_give_the_printed_values(name):
    for system, wanted in zip((System("DC"), TK, *TK_HALVES), SUMS[name], strict=True):
        if wanted is not None:
            assert value(MATRICES[name], system) == pytest.approx(wanted, abs=6e-7)


@pytest.mark.parametrize("name", MATRICES)
def test_ap_gives_the_printed_values_and_edges(name):
    matrix = np.array(MATRICES[name])
    for system, wanted in zip(AP_FORMS, ASSIGNMENTS[name], strict=True):
        if wanted is not None:
            assert value(matrix, system) == pytest.approx(wanted[0], abs=1e-9)
            slope = gradient(matrix, system)
            assert np.argwhere(slope).tolist() == edges_of(wanted[1])
            assert slope[slope != 0] == pytest.approx(1 / max(1, len(edges_of(wanted[1]))))


@pytest.mark.parametrize("name", MATRICES)
def test_the_brute_force_itself_gives_the_printed_values(name):
    matrix = MATRICES[name]
    n, m = np.shape(matrix)
    assert dc(matrix) == pytest.approx(SUMS[name][0], abs=6e-7)
    assert brute_tk(matrix, min(n, m)) == pytest.approx(SUMS[name][1], abs=6e-7)
    full, half, _, at_most = ASSIGNMENTS[name]
    assert ap(matrix, min(n, m))[1] == edges_of(full[1])
    assert ap(matrix, brute_k(n, m, half=True))[1] == edges_of(half[1])
    assert ap_at_most(matrix, min(n, m))[1] == edges_of(at_most[1])


@pytest.mark.parametrize("name", ["G", "H"])
@pytest.mark.parametrize("kind", ["TK", "AP"])
def test_floor_of_half_an_edge_is_refused(name, kind):
    with pytest.raises(ValueError, match=r"floor.*use ceil"):
        value(MATRICES[name], System(kind, half=True, rounding="floor"))


def test_floor_is_refused_when_only_some_pair_of_the_batch_has_one_image():
    cosines = torch.rand(2, 2, 3, 2)
    rows = torch.ones(2, 1, 3, dtype=torch.bool)
    columns = torch.tensor([[[True, True], [True, False]]])
    with pytest.raises(ValueError, match="use ceil"):
        model.set_similarity(cosines, rows, columns, AP_HALVES[1])


@pytest.mark.parametrize(
    ("n", "m", "full", "ceil", "floor"),
    [(10, 10, 10, 5, 5), (5, 5, 5, 3, 2), (50, 5, 5, 3, 2), (15, 16, 15, 8, 7), (6, 8, 6, 3, 3),
     (86, 5, 5, 3, 2), (4, 1, 1, 1, None)],
)  # fmt: skip
def test_cardinality_is_that_of_the_table(n, m, full, ceil, floor):
    n, m = torch.tensor(n), torch.tensor(m)
    assert model.cardinality(n, m, half=False) == full
    assert model.cardinality(n, m, half=True) == ceil
    if floor is not None:
        assert model.cardinality(n, m, half=True, rounding="floor") == floor


GRADIENTS = [
    ("A", System("DC"), [[2 / 3, 0, 0], [1 / 3, 1 / 3, 0], [0, 1 / 3, 1 / 3]]),
    ("A", TK, [[2 / 3, 0, 0], [1 / 3, 1 / 3, 0], [0, 1 / 3, 1 / 3]]),
    ("A", TK_HALVES[0], [[1, 0, 0], [1 / 2, 1 / 2, 0], [0, 0, 0]]),
    ("A", AP, np.eye(3) / 3),
    ("A", AP_HALVES[0], np.diag([1 / 2, 1 / 2, 0])),
    ("C", System("DC"), [[0, 0.2, 1 / 3], [0, 0.2 + 1 / 3, 0], [0, 0.2, 0], [0.2 + 1 / 3, 0, 0], [0.2, 0, 0]]),  # noqa: E501
    ("C", TK, [[0, 1 / 3, 1 / 3], [0, 2 / 3, 0], [0, 0, 0], [2 / 3, 0, 0], [0, 0, 0]]),
    ("C", AP, [[0, 0, 1 / 3], [0, 1 / 3, 0], [0, 0, 0], [1 / 3, 0, 0], [0, 0, 0]]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "system", "wanted"), GRADIENTS)
def test_gradients_are_the_printed_ones(name, system, wanted):
    assert gradient(MATRICES[name], system) == pytest.approx(np.array(wanted), abs=1e-7)


# --- Against brute force ---------------------------------------------------------------------

ENTRIES = st.integers(-100, 100).map(lambda hundredths: hundredths / 100)
SHAPES = stnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=5)
ANY_MATRIX = SHAPES.flatmap(lambda shape: stnp.arrays(np.float64, shape, elements=ENTRIES))
a_few = settings(max_examples=60, deadline=None)


def top_k_of(matrix, k: int) -> float:
    return model.top_k(*block(matrix), torch.tensor(k)).item()


def assignment_of(matrix, k: int, at_most: bool = False) -> float:
    return model.assignment(*block(matrix), torch.tensor(k), at_most).item()


@a_few
@given(ANY_MATRIX)
def test_similarities_are_those_of_brute_force_at_every_k(matrix):
    assert value(matrix, System("DC")) == pytest.approx(dc(matrix), abs=1e-6)
    for k in range(1, min(matrix.shape) + 1):
        assert top_k_of(matrix, k) == pytest.approx(brute_tk(matrix, k), abs=1e-6)
        assert assignment_of(matrix, k) == pytest.approx(ap(matrix, k)[0], abs=1e-6)


@a_few
@given(ANY_MATRIX)
def test_best_matching_is_a_matching_of_k_edges_with_the_largest_sum(matrix):
    for k in range(1, min(matrix.shape) + 1):
        edges = model.best_matching(matrix, k)
        assert edges.shape == (k, 2)
        assert len(set(edges[:, 0])) == len(set(edges[:, 1])) == k
        assert matrix[edges[:, 0], edges[:, 1]].mean() == pytest.approx(ap(matrix, k)[0])


@a_few
@given(ANY_MATRIX, st.booleans())
def test_the_at_most_form_is_that_of_brute_force(matrix, half):
    k = brute_k(*matrix.shape, half)
    system = System("AP", half=half, at_most=True)
    mean, edges = ap_at_most(matrix, k)
    # Where several matchings tie in their sum, only the sum is fixed; a zero edge may be left out.
    found = np.argwhere(gradient(matrix, system))
    assert matrix[found[:, 0], found[:, 1]].sum() == pytest.approx(mean * len(edges))
    assert len(found) <= k
    assert value(matrix, system) == pytest.approx(
        matrix[found[:, 0], found[:, 1]].mean() if len(found) else 0, abs=1e-6
    )


def test_exact_and_at_most_forms_agree_without_negative_entries():
    rng = np.random.default_rng(0)
    for _ in range(50):
        matrix = rng.uniform(0.01, 1, rng.integers(1, 6, 2))
        assert value(matrix, AP) == pytest.approx(value(matrix, System("AP", at_most=True)))


@pytest.mark.parametrize("k", [0, -1, 3])
def test_a_matching_of_impossible_size_is_refused(k):
    with pytest.raises(ValueError, match=f"2 x 4 matrix has no matching with {k} edges"):
        model.best_matching(np.zeros((2, 4)), k)


def test_the_count_of_matchings_is_known():
    assert sum(1 for _ in matchings(3, 3, 3)) == 6
    assert sum(1 for _ in matchings(4, 2, 1)) == 8
    assert sum(1 for _ in matchings(5, 4, 2)) == 10 * 12


def test_ap_in_double_precision_is_exact():
    matrix = np.random.default_rng(0).uniform(-1, 1, (5, 3))
    assert assignment_of(matrix, 3) == pytest.approx(ap(matrix, 3)[0], abs=1e-14)


# --- Properties ------------------------------------------------------------------------------

ALL = {name: system for name, system in SYSTEMS.items() if name != "NoStruct"}


@a_few
@given(ANY_MATRIX, st.randoms(use_true_random=False))
def test_order_and_direction_do_not_matter(matrix, random):
    n, m = matrix.shape
    rows, columns = random.sample(range(n), n), random.sample(range(m), m)
    for name, system in ALL.items():
        own = value(matrix, system)
        assert value(matrix[rows][:, columns], system) == pytest.approx(own, abs=1e-6), name
        assert value(matrix.T, system) == pytest.approx(own, abs=1e-6), name


@a_few
@given(ANY_MATRIX, st.floats(0.1, 1), st.floats(-1, 1))
def test_scale_and_shift(matrix, scale, shift):
    for name, system in ALL.items():
        own, times = value(matrix, system), 1 if name.startswith("AP") else 2
        assert value(scale * matrix, system) == pytest.approx(scale * own, abs=1e-6), name
        assert value(matrix + shift, system) == pytest.approx(own + times * shift, abs=1e-6), name
        assert gradient(matrix, system).sum() == pytest.approx(times, abs=1e-6), name


@a_few
@given(ANY_MATRIX)
def test_k_orders_the_similarities(matrix):
    ks = range(1, min(matrix.shape) + 1)
    top, matched = ([f(matrix, k) for k in ks] for f in (top_k_of, assignment_of))
    slack = 1e-6
    assert all(t >= value(matrix, System("DC")) - slack for t in top)
    assert all(b <= a + slack for a, b in pairwise(top))
    assert all(b <= a + slack for a, b in pairwise(matched))
    assert all(a <= t / 2 + slack for a, t in zip(matched, top, strict=True))
    assert matched[0] == pytest.approx(matrix.max(), abs=1e-6)
    assert top[0] == pytest.approx(2 * matrix.max(), abs=1e-6)


def test_tk_is_dc_for_squares_only():
    for name in "ADEFGJ":
        assert value(MATRICES[name], TK) == pytest.approx(value(MATRICES[name], System("DC")))
    for name in "BCHI":
        assert value(MATRICES[name], TK) > value(MATRICES[name], System("DC")) + 0.1


def test_nostruct_counts_its_cosine_twice_unless_told_otherwise():
    assert value([[0.3]], SYSTEMS["NoStruct"]) == pytest.approx(0.6)
    assert value([[0.3]], replace(SYSTEMS["NoStruct"], doubled=False)) == pytest.approx(0.3)
    # The switch is NoStruct's alone: DC stays what it is.
    assert value(MATRICES["A"], System("DC", doubled=False)) == pytest.approx(1.466667, abs=1e-6)


# --- Padded batches --------------------------------------------------------------------------


def padded(blocks, filler):
    """Blocks [a][b] (n_a, m_b) as padded cosines (D, D, N, M) and masks (D, 1, N), (1, D, M)."""
    n, m = [len(row[0]) for row in blocks], [len(b[0]) for b in blocks[0]]
    cosines = torch.full((len(n), len(m), max(n), max(m)), filler, dtype=torch.float64)
    for a, row in enumerate(blocks):
        for b, matrix in enumerate(row):
            cosines[a, b, : n[a], : m[b]] = torch.tensor(np.array(matrix))
    rows = torch.arange(max(n)) < torch.tensor(n).unsqueeze(1)
    columns = torch.arange(max(m)) < torch.tensor(m).unsqueeze(1)
    return cosines, rows.unsqueeze(1), columns.unsqueeze(0)


def random_blocks(n, m, seed=0):
    rng = np.random.default_rng(seed)
    return [[rng.uniform(-1, 1, (a, b)) for b in m] for a in n]


@pytest.mark.parametrize("filler", [0.0, 9.0, -9.0, float("nan")])
@pytest.mark.parametrize(
    "system", [*ALL.values(), System("AP", at_most=True)], ids=[*ALL, "AP at most"]
)
def test_padding_never_matters(system, filler):
    blocks = random_blocks(n=[2, 1, 5, 3], m=[1, 4, 2, 3])
    cosines, rows, columns = padded(blocks, filler)
    cosines.requires_grad_()
    together = model.set_similarity(cosines, rows, columns, system)
    together.sum().backward()
    for a, row in enumerate(blocks):
        for b, matrix in enumerate(row):
            assert together[a, b].item() == pytest.approx(value(matrix, system), abs=1e-6)
            slope = cosines.grad[a, b]
            n, m = matrix.shape
            assert slope[:n, :m].numpy() == pytest.approx(gradient(matrix, system), abs=1e-6)
            assert not slope[n:].any()
            assert not slope[:, m:].any()


def test_each_pair_has_a_k_of_its_own():
    n, m = [2, 1, 5, 3], [1, 4, 2, 3]
    blocks = random_blocks(n, m, seed=1)
    for name, system in ALL.items():
        found = model.set_similarity(*padded(blocks, 0.0), system).numpy()
        wanted = [[similarity(matrix, name) for matrix in row] for row in blocks]
        assert found == pytest.approx(np.array(wanted), abs=1e-6), name


@pytest.mark.parametrize(
    "system", [*ALL.values(), System("AP", at_most=True)], ids=[*ALL, "AP at most"]
)
@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (2, 4), (5, 3)])
def test_gradients_of_similarities_in_double_precision(system, shape):
    cosines, rows, columns = block(np.random.default_rng(3).uniform(-1, 1, shape))
    cosines.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda c: model.set_similarity(c, rows, columns, system), (cosines,)
    )


@pytest.mark.parametrize("negatives", ["hard", "mean"])
@pytest.mark.parametrize("name", ALL)
def test_gradients_of_the_whole_loss_in_double_precision(name, negatives):
    cosines, rows, columns = padded(random_blocks([2, 3, 2], [2, 1, 3], seed=4), 0.0)
    cosines.requires_grad_()

    def whole(c):
        return model.document_loss(
            model.set_similarity(c, rows, columns, ALL[name]), 0.2, negatives
        )

    assert whole(cosines) > 0
    assert torch.autograd.gradcheck(whole, (cosines,))


# --- Loss ------------------------------------------------------------------------------------

Q = torch.tensor([[0.9, 0.8, 0.1], [0.3, 0.5, 0.6], [0.2, 0.4, 0.7]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("negatives", "image", "sentence", "total"),
    [("hard", [0.1, 0.3, 0], [0, 0.5, 0.1], 1 / 3),
     ("mean", [0.05, 0.15, 0], [0, 0.3, 0.05], 0.55 / 3)],
)  # fmt: skip
def test_loss_from_document_similarities(negatives, image, sentence, total):
    assert model.document_loss(Q, 0.2, negatives).item() == pytest.approx(total, abs=1e-12)
    assert loss_terms(Q.tolist(), 0.2, negatives) == (
        pytest.approx(image),
        pytest.approx(sentence),
    )


@pytest.mark.parametrize("negatives", ["hard", "mean"])
def test_a_constant_similarity_costs_two_margins(negatives):
    for margin in (0.2, 0.5):
        found = model.document_loss(torch.full((4, 4), 0.7), margin, negatives)
        assert found.item() == pytest.approx(2 * margin)


SIZES = ([2, 1, 2], [1, 2, 2])
COSINES = torch.tensor(
    [
        [0.40, 0.30, 0.35, -0.10, 0.30],
        [0.20, 0.10, 0.50, 0.40, -0.20],
        [0.10, 0.45, -0.30, 0.50, 0.00],
        [-0.20, 0.30, 0.10, 0.40, 0.25],
        [0.40, -0.10, 0.55, 0.30, 0.35],
    ],
    dtype=torch.float64,
)
BLOCKS = [[b.numpy() for b in a.split(SIZES[1], dim=1)] for a in COSINES.split(SIZES[0])]
LOSSES = {
    "DC": ([[0.7, 0.825, 0.7], [0.2, 0.525, 0.75], [0.5, 0.85, 0.75]], 0.591667, 0.437500),
    "TK": ([[0.8, 0.825, 0.7], [0.2, 0.9, 1.0], [0.8, 0.85, 0.75]], 0.541667, 0.375000),
    "TK+½k": ([[0.8, 1.0, 0.8], [0.2, 0.9, 1.0], [0.8, 1.1, 0.8]], 0.733333, 0.516667),
    "AP": ([[0.4, 0.4, 0.35], [0.1, 0.45, 0.5], [0.4, 0.425, 0.375]], 0.466667, 0.350000),
    "AP+½k": ([[0.4, 0.5, 0.4], [0.1, 0.45, 0.5], [0.4, 0.55, 0.4]], 0.566667, 0.425000),
}


@pytest.mark.parametrize("name", LOSSES)
def test_loss_from_cosines_of_unequal_documents(name):
    wanted, hard, mean = LOSSES[name]
    found = model.set_similarity(*padded(BLOCKS, 0.0), ALL[name])
    assert found.numpy() == pytest.approx(np.array(wanted), abs=1e-7)
    assert model.document_loss(found, 0.2, "hard").item() == pytest.approx(hard, abs=6e-7)
    assert model.document_loss(found, 0.2, "mean").item() == pytest.approx(mean, abs=6e-7)


@a_few
@given(st.integers(2, 5), st.integers(0, 1000), st.sampled_from(["hard", "mean"]))
def test_loss_is_that_of_the_plain_loop(size, seed, negatives):
    q = np.random.default_rng(seed).uniform(-1, 1, (size, size))
    found = model.document_loss(torch.from_numpy(q), 0.2, negatives).item()
    assert found == pytest.approx(loss(q.tolist(), 0.2, negatives))


# --- Metrics ---------------------------------------------------------------------------------


def truth(matrix, edges: str) -> np.ndarray:
    found = np.zeros(np.shape(matrix), dtype=bool)
    for i, j in edges_of(edges):
        found[i, j] = True
    return found


P4 = [[0.5, 0.5], [0.2, 0.5]]
PRINTED = [
    (MATRICES["A"], "00 11 22", 15 / 18, 1, 3 / 5),
    (MATRICES["B"], "10 03", 11 / 12, 1, 2 / 5),
    (MATRICES["C"], "10 11 30", 34 / 36, 1, 3 / 5),
    (P4, "00", 2 / 3, 1, 1 / 4),
]


@pytest.mark.parametrize(("matrix", "edges", "area", "first", "five"), PRINTED)
def test_metrics_of_the_printed_documents(matrix, edges, area, first, five):
    found = model.link_metrics(np.array(matrix), truth(matrix, edges))
    assert found == pytest.approx({"AUC": 100 * area, "p@1": 100 * first, "p@5": 100 * five})


def split_of(matrices, edges) -> model.Split:
    return model.Split((), (), (), tuple(map(truth, matrices, edges)))


def test_a_score_is_the_mean_over_documents_and_skips_are_none():
    matrices = [np.array(m) for m in (*(p[0] for p in PRINTED), MATRICES["A"], MATRICES["G"])]
    edges = [*(p[1] for p in PRINTED), "", "00"]
    found = model.evaluate(matrices, split_of(matrices, edges))
    for name, mean in (("AUC", 84.0278), ("p@1", 100.0), ("p@5", 46.25)):
        assert found[name][4:] == [None, None]  # no link, and only links
        assert np.mean(found[name][:4]) == pytest.approx(mean, abs=1e-4)


def test_evaluation_refuses_a_corpus_without_labels():
    with pytest.raises(ValueError, match="no link labels"):
        model.evaluate([np.zeros((1, 1))], model.Split((), (), (), None))


def test_evaluation_refuses_another_number_of_matrices():
    with pytest.raises(ValueError, match="zip"):
        model.evaluate([np.array(P4)], split_of([P4, P4], ["00", "00"]))


def test_metrics_refuse_links_of_another_shape():
    with pytest.raises(ValueError, match="scores are"):
        model.link_metrics(np.zeros((2, 3)), np.eye(3, 2))


@a_few
@given(SHAPES, st.integers(0, 10_000), st.booleans())
def test_metrics_are_those_of_scikit_learn_and_of_a_plain_count(shape, seed, ties):
    rng = np.random.default_rng(seed)
    scores = rng.uniform(-1, 1, shape).round(0 if ties else 9)
    true = rng.random(shape) < 0.4
    found = model.link_metrics(scores, true)
    if true.all() or not true.any():
        assert found is None
        return
    assert found["AUC"] == pytest.approx(100 * roc_auc_score(true.ravel(), scores.ravel()))
    assert found["AUC"] == pytest.approx(auc(scores, true))
    assert found["p@1"] == pytest.approx(precision(scores, true, 1))
    assert found["p@5"] == pytest.approx(precision(scores, true, 5))


def test_random_scores_are_at_chance():
    rng = np.random.default_rng(0)
    true = truth(np.zeros((10, 10)), "00 11 22 33 44")  # 5 %
    each = [model.link_metrics(rng.random((10, 10)), true) for _ in range(2000)]
    assert np.mean([e["AUC"] for e in each]) == pytest.approx(50, abs=1)
    assert np.mean([e["p@1"] for e in each]) == pytest.approx(5, abs=1.5)
    assert np.mean([e["p@5"] for e in each]) == pytest.approx(5, abs=0.8)


# --- A tiny corpus ---------------------------------------------------------------------------

# Letters only: the tokeniser splits words at digits.
NAMES = "ape bee cat dog elk fox gnu hen jay kid owl pig rat yak cod eel".split()
FILLERS = ("very", "quite", "rather", "such", "some")
HOW = Settings(
    b=5, width=24, word_width=32, min_count=1, dropout=0.1, learning_rate=0.02, epochs=6
)  # fmt: skip


def tiny_corpus(counts=(240, 12, 30), seed=0) -> Corpus:
    """Pictures of single animals as noisy one-hot vectors; sentences of a filler and a name.

    A document has three linked pairs and two more sentences.
    """
    rng = np.random.default_rng(seed)
    copies = 20  # pictures of each animal
    vectors = np.repeat(np.eye(len(NAMES)), copies, axis=0)
    # Scaled to a variance near one, as a frozen network's features are.
    features = 4 * (vectors + 0.05 * rng.normal(size=vectors.shape)).astype(np.float32)

    def document(split: str, number: int) -> Document:
        animals = rng.permutation(len(NAMES))
        shown, told = animals[:3], rng.permutation(animals[:5])
        return Document(
            id=f"{split}-{number}",
            sentences=tuple(f"{rng.choice(FILLERS)} {NAMES[c]}" for c in told),
            images=tuple(f"{c}-{rng.integers(copies)}" for c in shown),
            sentence_labels=(-1,) * 5,
            image_labels=tuple(told.tolist().index(c) for c in shown),
        )

    train, val, test = (
        tuple(document(split, i) for i in range(count))
        for split, count in zip(("train", "val", "test"), counts, strict=True)
    )
    row_of = {f"{c}-{i}": c * copies + i for c in range(len(NAMES)) for i in range(copies)}
    return Corpus("tiny", "synthetic", train, val, test, features, row_of)


def word_vectors() -> dict[str, np.ndarray]:
    words = (*NAMES, *FILLERS)
    drawn = np.random.default_rng(1).normal(size=(len(words), HOW.word_width))
    return dict(zip(words, drawn, strict=True))


def run(system: System, corpus: Corpus | None = None, seed=0, how=HOW, **more) -> dict:
    arrays = model.prepare(corpus or tiny_corpus(), how, word_vectors())
    answer = train_system(asdict(system), asdict(how), seed, arrays, **more)
    assert answer.pop("seconds") > 0
    return answer


def mean_auc(answer: dict) -> float:
    return float(np.mean([a for a in answer["AUC"] if a is not None]))


SHORT = replace(HOW, epochs=2)  # where only equality counts


@pytest.fixture(scope="module")
def answers() -> dict:
    """Each system, trained once on the tiny corpus."""
    return {name: run(system) for name, system in SYSTEMS.items()}


@pytest.fixture(scope="module")
def short() -> dict:
    """The same for two epochs."""
    return {name: run(SYSTEMS[name], how=SHORT) for name in ("AP", "NoStruct")}


@pytest.mark.parametrize("name", ALL)
def test_structured_training_finds_links_it_was_never_shown(answers, name):
    untrained = run(SYSTEMS[name], how=replace(HOW, learning_rate=0.0, epochs=1))
    assert 30 < mean_auc(untrained) < 65
    assert np.mean(untrained["p@1"]) < 50
    # Half of the edges teach the most confident links: they show in p@1 first.
    assert mean_auc(answers[name]) > (67 if name.endswith("½k") else 88)
    assert np.mean(answers[name]["p@1"]) > 80
    history = answers[name]["history"]
    assert history[-1]["train_loss"] < history[0]["train_loss"]
    assert len(history) == HOW.epochs


def test_one_random_pair_teaches_something_but_less(answers):
    assert 55 < mean_auc(answers["NoStruct"]) < mean_auc(answers["AP"])


@pytest.mark.parametrize("name", ["AP", "NoStruct"])
def test_the_same_seed_gives_the_same_run_and_another_seed_another(short, name):
    assert run(SYSTEMS[name], how=SHORT) == short[name]
    assert run(SYSTEMS[name], how=SHORT, seed=1) != short[name]


def test_matching_the_wrong_way_round_is_seen(answers, monkeypatch):
    right = model.best_matching
    monkeypatch.setattr(model, "best_matching", lambda matrix, k: right(-matrix, k))
    wrong = run(SYSTEMS["AP"])
    assert mean_auc(wrong) < mean_auc(answers["AP"]) - 10
    assert np.mean(wrong["p@1"]) < np.mean(answers["AP"]["p@1"]) - 25


@pytest.mark.parametrize("name", ["AP", "NoStruct"])
def test_training_labels_change_nothing(short, name):
    corpus = tiny_corpus()
    blind = replace(corpus, train=tuple(map(unlabelled, corpus.train)))
    assert run(SYSTEMS[name], blind, how=SHORT) == short[name]


def test_dev_labels_change_nothing_but_the_dev_score(short):
    corpus = tiny_corpus()
    blind = replace(corpus, val=tuple(map(unlabelled, corpus.val)))
    answer = run(SYSTEMS["AP"], blind, how=SHORT)
    assert answer["AUC"] == short["AP"]["AUC"]
    kept = [{k: v for k, v in h.items() if k != "dev_AUC"} for h in short["AP"]["history"]]
    assert answer["history"] == kept


def test_a_corpus_without_labels_gives_matrices_and_no_score():
    corpus = tiny_corpus((12, 6, 6))
    parts = {s: tuple(map(unlabelled, corpus.split(s))) for s in ("train", "val", "test")}
    answer = run(SYSTEMS["DC"], replace(corpus, **parts), how=SHORT, keep_matrices=2)
    assert not {"AUC", "p@1", "p@5"} & answer.keys()
    assert [np.shape(matrix) for matrix in answer["matrices"]] == [(5, 3), (5, 3)]


def test_best_epoch_is_that_of_the_lowest_dev_loss(answers):
    for answer in answers.values():
        losses = [h["dev_loss"] for h in answer["history"]]
        assert losses[answer["best_epoch"] - 1] == min(losses)


def test_a_document_with_only_links_or_none_is_skipped():
    corpus = tiny_corpus((12, 6, 6))
    first, second = corpus.test[:2]
    bare = replace(first, image_labels=(-1,) * 3)
    full = Document("full", second.sentences[:1], second.images[:1], (0,), (0,))
    answer = run(SYSTEMS["DC"], replace(corpus, test=(bare, full, *corpus.test[2:])), how=SHORT)
    for name in ("AUC", "p@1", "p@5"):
        assert answer[name][:2] == [None, None]
        assert None not in answer[name][2:]


def test_warm_up_trains_on_mean_negatives_first(short):
    warm = run(SYSTEMS["AP"], how=replace(SHORT, warm_up=1))
    mean = run(SYSTEMS["AP"], how=replace(SHORT, negatives="mean"))
    losses = [[h["train_loss"] for h in a["history"]] for a in (warm, mean, short["AP"])]
    assert losses[0][0] == losses[1][0]
    assert losses[0][0] < losses[2][0]  # a mean of hinges is below their maximum
    assert losses[0][1] > losses[1][1]  # the second epoch is on hard ones
    # The dev loss is on hard negatives throughout, so that epochs can be compared.
    assert warm["history"][0]["dev_loss"] > mean["history"][0]["dev_loss"]


def test_steps_bound_the_batches_of_an_epoch(monkeypatch):
    corpus, drawn = tiny_corpus((60, 6, 6)), []
    right = Batches.batch

    def note(self, documents, *arguments):
        drawn.append(list(documents))
        return right(self, documents, *arguments)

    monkeypatch.setattr(Batches, "batch", note)
    run(SYSTEMS["DC"], corpus, how=replace(SHORT, steps=2))
    assert len(drawn) == 1 + 2 + 2  # the dev batch, then two epochs
    assert drawn[1:3] != drawn[3:]
    drawn.clear()
    run(SYSTEMS["DC"], corpus, how=SHORT)
    assert len(drawn) == 1 + 10 + 10


@pytest.mark.parametrize(("name", "dev_batches"), [("AP", 2), ("NoStruct", 2 * model.DEV_DRAWS)])
def test_a_stopped_training_goes_on_to_the_same_figures(name, dev_batches, monkeypatch, tmp_path):
    corpus, how, checkpoint = tiny_corpus((30, 12, 6)), replace(HOW, epochs=4), tmp_path / "run.pt"
    whole = run(SYSTEMS[name], corpus, how=how)
    right, calls = model.document_loss, 0

    def stop(*arguments):
        nonlocal calls
        calls += 1
        if calls == 2 * (5 + dev_batches) + 3:  # the third batch of the third epoch
            raise KeyboardInterrupt
        return right(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(model, "document_loss", stop)
        with pytest.raises(KeyboardInterrupt):
            run(SYSTEMS[name], corpus, how=how, checkpoint=checkpoint)
    assert len(torch.load(checkpoint, weights_only=True)["history"]) == 2
    assert run(SYSTEMS[name], corpus, how=how, checkpoint=checkpoint) == whole


def test_read_only_arrays_train_without_a_warning(recwarn):
    """Arrays reach a worker process as read-only memory maps."""
    how = replace(HOW, epochs=1)
    arrays = model.prepare(tiny_corpus((12, 6, 6)), how)
    for array in (arrays.ids, arrays.lengths, arrays.embeddings, arrays.features):
        array.flags.writeable = False
    train_system(asdict(SYSTEMS["DC"]), asdict(how), 0, arrays)
    assert not [str(w.message) for w in recwarn if "writable" in str(w.message)]


# --- Model and batches -----------------------------------------------------------------------


def uneven_corpus() -> Corpus:
    """Documents of 1-3 sentences and 1-4 images; sentences of 1-6 words, one of them empty."""
    rng = np.random.default_rng(0)

    def document(name: str, number: int) -> Document:
        n, m = 1 + number % 3, 1 + number % 4
        sentences = [" ".join(rng.choice(NAMES, rng.integers(1, 7))) for _ in range(n)]
        if number == 1:
            sentences[0] = ""
        images = rng.choice(10, m, replace=False)
        return Document(
            f"{name}-{number}", tuple(sentences), tuple(map(str, images)), (0,) * n, (-1,) * m
        )

    train, val, test = ([document(s, i) for i in range(7)] for s in ("train", "val", "test"))
    features = rng.normal(size=(10, 6)).astype(np.float32)
    row_of = {str(i): i for i in range(10)}
    return Corpus("uneven", "", tuple(train), tuple(val), tuple(test), features, row_of)


SMALL = replace(HOW, b=2, width=8, word_width=4, max_words=5)


@pytest.fixture
def uneven():
    """Arrays of unequal documents, their batches, and a model in evaluation mode."""
    arrays = model.prepare(uneven_corpus(), SMALL)
    seed_everything(3)
    net = model.LinkModel(torch.from_numpy(arrays.embeddings), 6, SMALL).eval()
    return arrays, Batches(arrays, "test", "cpu"), net


def test_a_batch_of_unequal_documents_equals_each_pair_alone(uneven):
    arrays, source, net = uneven
    cosines, rows, columns = net(source.batch(range(7)))
    matrices = model.cosine_matrices(net, arrays, "test", "cpu")
    assert cosines.shape == (7, 7, 3, 4)
    for name, system in ALL.items():
        together = model.set_similarity(cosines, rows, columns, system)
        for a in range(7):
            for b in range(7):
                alone, *masks = model_pair(net, source, a, b)
                own = model.set_similarity(alone, *masks, system)
                assert together[a, b].item() == pytest.approx(own.item(), abs=1e-5), name
    for d, matrix in enumerate(matrices):
        n, m = matrix.shape
        assert cosines[d, d, :n, :m].detach().numpy() == pytest.approx(matrix, abs=1e-5)


def model_pair(net, source, a, b):
    """Sentences of document a against images of b, without a batch around them."""
    first, second = source.batch([a]), source.batch([b])
    pair = Batch(first.ids, first.lengths, second.features, first.n, second.m)
    return net(pair)


def test_permuting_a_document_permutes_its_matrix():
    corpus = uneven_corpus()
    order, image_order = [1, 0], [2, 0, 1]
    document = Document("d", ("ape bee", "cat"), ("1", "5", "7"), (0, 0), (-1, -1, -1))
    turned = replace(
        document,
        sentences=tuple(document.sentences[i] for i in order),
        images=tuple(document.images[j] for j in image_order),
    )
    arrays = model.prepare(replace(corpus, test=(document, turned)), SMALL)
    seed_everything(0)
    net = model.LinkModel(torch.from_numpy(arrays.embeddings), 6, SMALL)
    matrix, moved = model.cosine_matrices(net, arrays, "test", "cpu")
    assert moved == pytest.approx(matrix[order][:, image_order], abs=1e-6)
    assert not np.allclose(moved, matrix)


def test_cosines_are_dot_products_of_unit_vectors(uneven):
    _, source, net = uneven
    batch = source.batch([2, 5])
    text, images = net.text(batch.ids, batch.lengths), net.encode_images(batch.features)
    for vectors in (text, images):
        assert vectors.norm(dim=-1).detach().numpy() == pytest.approx(1, abs=1e-6)
    cosines, _, _ = net(batch)
    n, m = batch.n[0], batch.m[0]
    assert torch.allclose(cosines[0, 1, :n, : batch.m[1]], text[:n] @ images[m:].T, atol=1e-6)


def test_the_dev_loss_is_the_training_loss_on_fixed_batches():
    """With a learning rate of 0 the model stays what the seed makes it, so it can be rebuilt."""
    corpus, still = uneven_corpus(), replace(SMALL, learning_rate=0.0, epochs=1)
    arrays = model.prepare(corpus, still)
    seed_everything(5)
    net = model.LinkModel(torch.from_numpy(arrays.embeddings), 6, still).eval()
    source = Batches(arrays, "val", "cpu")
    batches = fixed_batches(corpus.val, 3)
    assert [len(b) for b in batches] == [3, 3, 3]
    for name, system in ALL.items():
        answer = train_system(asdict(system), asdict(still), 5, arrays, keep_matrices=99)
        q = [
            [[similarity(one(net, source, a, b), name) for b in batch] for a in batch]
            for batch in batches
        ]
        wanted = np.mean([loss(each) for each in q])
        assert answer["history"][0]["dev_loss"] == pytest.approx(wanted, abs=1e-5), name
        scores = model.cosine_matrices(net, arrays, "val", "cpu")
        aucs = [
            auc(s, d.link_matrix())
            for s, d in zip(scores, corpus.val, strict=True)
            if 0 < d.link_matrix().sum() < d.link_matrix().size
        ]
        assert answer["history"][0]["dev_AUC"] == pytest.approx(np.mean(aucs), abs=1e-4)


def one(net, source, a, b) -> np.ndarray:
    cosines, _, _ = model_pair(net, source, a, b)
    return cosines[0, 0].detach().double().numpy()


def test_one_pair_draws_a_sentence_and_an_image_of_each_document(uneven):
    arrays, source, _ = uneven
    split = arrays.splits["test"]
    seen = set()
    for seed in range(30):
        batch = source.batch([2, 5], np.random.default_rng(seed))
        assert batch.n == batch.m == [1, 1]
        for place, d in enumerate([2, 5]):
            hit = [
                int(v) for v in split.images[d]
                if np.allclose(arrays.features[v], batch.features[place])
            ]  # fmt: skip
            assert hit
            length = batch.lengths[place]
            own = [arrays.ids[s][:length].tolist() for s in split.sentences[d]]
            assert batch.ids[place][:length].tolist() in own
            seen.add((d, hit[0]))
    assert len(seen) == len(split.images[2]) + len(split.images[5])  # every image has its turn


# --- Preparing a corpus ----------------------------------------------------------------------


def test_an_empty_sentence_is_one_unknown_token():
    arrays = model.prepare(uneven_corpus(), SMALL)
    row = arrays.splits["test"].sentences[1][0]
    assert arrays.lengths[row] == 1
    assert arrays.ids[row].tolist() == [1] + [0] * (arrays.ids.shape[1] - 1)


def test_the_vocabulary_sees_training_sentences_only():
    corpus = uneven_corpus()
    strange = Document("t", ("ape zebra",), ("1", "2"), (0,), (-1, -1))
    arrays = model.prepare(replace(corpus, val=(strange,), test=(strange,)), SMALL)
    plain = model.prepare(corpus, SMALL)
    assert len(arrays.embeddings) == len(plain.embeddings)
    assert arrays.ids[arrays.splits["test"].sentences[0][0]][1] == 1  # zebra is unknown


def test_prepared_arrays_point_at_the_right_rows():
    corpus = uneven_corpus()
    corpus = replace(corpus, row_of={str(i): 9 - i for i in range(10)})
    arrays = model.prepare(corpus, SMALL)
    for name in ("train", "val", "test"):
        split = arrays.splits[name]
        for document, images, matrix in zip(
            corpus.split(name), split.images, split.links, strict=True
        ):
            assert images.tolist() == [9 - int(v) for v in document.images]
            assert (matrix == document.link_matrix()).all()
    assert arrays.ids.shape[1] == SMALL.max_words


def test_features_of_other_splits_do_not_reach_the_training_features():
    corpus = tiny_corpus((6, 2, 2))
    rows = np.unique(np.concatenate([corpus.rows(d) for d in corpus.train]))
    moved = corpus.features * 3 + 1
    moved[rows] = corpus.features[rows]
    plain, other = (
        model.prepare(c, HOW).features[rows] for c in (corpus, replace(corpus, features=moved))
    )
    assert (plain == other).all()


def test_image_features_are_standardised_by_training_images():
    corpus = tiny_corpus((6, 2, 2))
    corpus = replace(corpus, features=corpus.features * 7 + 3)
    features = model.prepare(corpus, HOW).features
    rows = np.unique(np.concatenate([corpus.rows(d) for d in corpus.train]))
    assert features[rows].mean(0) == pytest.approx(0, abs=1e-5)
    assert features[rows].std(0).mean() == pytest.approx(1, abs=1e-5)
    # One scale for all columns: their proportions, and so cosines of differences, stay.
    gain = (features[1] - features[0]) / (corpus.features[1] - corpus.features[0])
    assert gain == pytest.approx(gain[0], rel=1e-3)


def test_labels_of_both_sides_reach_the_evaluation():
    document = Document("d", ("x", "y", "z"), ("1", "2", "3"), (-1, -1, 0), (1, -1, 1))
    arrays = model.prepare(replace(uneven_corpus(), test=(document,)), SMALL)
    assert np.argwhere(arrays.splits["test"].links[0]).tolist() == [[1, 0], [1, 2], [2, 0]]


# --- Spread (Section 5.2) --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vectors", "wanted"),
    [([[3, 4], [5, 0], [0, 2]], 0.355556), ([[2, 0], [0, 7]], 0.5), ([[1, 2], [2, 4]], 0),
     ([[1, 2], [-1, -2]], 1)],
)  # fmt: skip
def test_spread_is_the_printed_one(vectors, wanted):
    assert model.spread(np.array(vectors, dtype=float)) == pytest.approx(wanted, abs=6e-7)


def test_spread_is_one_less_the_squared_length_of_the_centroid():
    vectors = np.random.default_rng(0).normal(size=(6, 4))
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    assert model.spread(vectors) == pytest.approx(1 - np.linalg.norm(unit.mean(0)) ** 2)


def test_a_set_of_zero_vectors_has_a_spread():
    assert np.isfinite(model.spread(np.zeros((3, 4))))  # sentences of unknown words only


# --- Baselines -------------------------------------------------------------------------------


def test_random_matrices_are_seeded_and_fit_the_documents():
    split = model.prepare(uneven_corpus(), SMALL).splits["test"]
    first, again, other = (model.random_matrices(split, seed) for seed in (0, 0, 1))
    assert [m.shape for m in first] == [m.shape for m in split.links]
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert not np.allclose(first[6], other[6])


def labelled_corpus() -> Corpus:
    """Two images; image 0 is a red dog (0.6) before a cat (0.3), image 1 a cat (0.9)."""
    scores = np.array([[0.1, 0.6, 0.3], [0.06, 0.04, 0.9]])
    document = Document("d", ("The dog!", "cat", "nonsense"), ("b", "a"), (1, 0, -1), (-1, -1))
    names = ("owl", "red dog", "cat")
    return replace(
        uneven_corpus(), test=(document,), row_of={"a": 0, "b": 1}, label_scores=scores,
        label_names=names,
    )  # fmt: skip


DETECTION_VECTORS = {
    "red": np.array([2.0, 0, 0]), "dog": np.array([0, 2.0, 0]), "cat": np.array([0, 0, 1.0])
}  # fmt: skip


@pytest.mark.parametrize(
    ("k", "image_a", "image_b"),
    # red dog = (1, 1, 0) and cat = (0, 0, 1); an owl has no vector and counts as zero.
    [(1, [1, 1, 0], [0, 0, 1]), (2, [0.5, 0.5, 0.5], [0, 0, 0.5])],
)
def test_object_detection_compares_words_with_names_of_the_likeliest_labels(k, image_a, image_b):
    (found,) = model.detection_matrices(labelled_corpus(), "test", DETECTION_VECTORS, k)
    images = np.array([image_b, image_a]) / np.linalg.norm([image_b, image_a], axis=1)[:, None]
    sentences = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]])
    assert found == pytest.approx(sentences @ images.T)


def test_object_detection_without_class_scores_is_refused():
    with pytest.raises(ValueError, match="no class scores"):
        model.detection_matrices(uneven_corpus(), "test", DETECTION_VECTORS, 1)


# --- Regressions -----------------------------------------------------------------------------


def test_regression_is_that_of_the_normal_equations():
    rng = np.random.default_rng(0)
    predictors = rng.normal(size=(40, 3)) * [1, 5, 0.1] + [0, 3, -2]
    response = predictors @ [1, -0.4, 3] + rng.normal(size=40)
    found = model.regress(predictors, response)
    design = np.column_stack([np.ones(40), predictors])
    weights = np.linalg.lstsq(design, response, rcond=None)[0]
    residual = np.square(response - design @ weights).sum()
    total = np.square(response - response.mean()).sum()
    f = ((total - residual) / 3) / (residual / 36)
    assert found.r2 == pytest.approx(100 * (1 - residual / total))
    assert found.adjusted_r2 == pytest.approx(100 * (1 - (residual / 36) / (total / 39)))
    assert found.f == pytest.approx(f)
    assert found.coefficients == pytest.approx(weights[1:] * predictors.std(axis=0))
    # One predictor: the F-test is the test of a correlation.
    one = model.regress(predictors[:, :1], response)
    assert one.p == pytest.approx(pearsonr(predictors[:, 0], response).pvalue)


def test_regression_on_noise_is_rejected_as_often_as_it_should():
    rng = np.random.default_rng(1)
    each = [model.regress(rng.normal(size=(60, 5)), rng.normal(size=60)) for _ in range(300)]
    assert np.mean([r.p < 0.05 for r in each]) == pytest.approx(0.05, abs=0.04)
    assert np.mean([r.r2 for r in each]) == pytest.approx(100 * 5 / 59, abs=1)
    assert np.mean([r.adjusted_r2 for r in each]) == pytest.approx(0, abs=1)


def test_too_few_documents_for_a_regression_are_refused():
    with pytest.raises(ValueError, match="3 predictors need more than 4 documents, not 4"):
        model.regress(np.zeros((4, 3)), np.arange(4.0))


def test_predictors_are_spread_and_the_components_of_training_means():
    corpus = tiny_corpus((40, 2, 9))
    found = model.difficulty_predictors(corpus, word_vectors(), components=2)
    for d, document in enumerate(corpus.test):
        own = corpus.features[corpus.rows(document)]
        assert found["image spread"][d] == pytest.approx(model.spread(own))
        words = [[word_vectors()[w] for w in s.split()] for s in document.sentences]
        assert found["text spread"][d] == pytest.approx(
            model.spread(np.array([np.mean(w, axis=0) for w in words]))
        )
    means = {
        s: np.array([corpus.features[corpus.rows(d)].mean(0) for d in corpus.split(s)])
        for s in ("train", "test")
    }
    centred = means["train"] - means["train"].mean(0)
    axes = np.linalg.svd(centred, full_matrices=False)[2][:2]
    wanted = (means["test"] - means["train"].mean(0)) @ axes.T
    assert np.abs(found["image content"]) == pytest.approx(np.abs(wanted), abs=1e-4)
    assert found["text content"].shape == (9, 2)
