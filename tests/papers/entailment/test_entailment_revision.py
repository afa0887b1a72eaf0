"""Mining, exclusion and weak batches against loops, other libraries, and by hand.

Sections are those of "Revising Image-Text Retrieval via Multi-Modal Entailment" (2022).
"""

import math
from collections import Counter
from functools import partial
from statistics import mean

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax
from scipy.stats import chisquare
from torch import nn

from mmlib.features.encoders import in_batch_softmax
from mmlib.papers.entailment import revision
from mmlib.papers.entailment.retrievers import hard_negatives, hardest_triplet
from mmlib.papers.entailment.revision import (
    Allowed,
    TwoRates,
    Weak,
    candidates,
    effective_ratio,
    extra_batch,
)

pytestmark = pytest.mark.usefixtures("double")


few = settings(max_examples=25, deadline=None)
many = settings(max_examples=100, deadline=None)
seeds = st.integers(0, 2**32 - 1)
near = partial(pytest.approx, rel=1e-9, abs=1e-10)


@st.composite
def worlds(draw):
    """Similarities with ties (images, captions) and the image of each caption, in any order."""
    rng = np.random.default_rng(draw(seeds))
    images, captions = draw(st.integers(1, 5)), draw(st.integers(1, 9))
    return rng.integers(0, 5, (images, captions)) / 4, rng.integers(0, images, captions)


# --- Finding entailed pairs (Sec. 4.1) -----------------------------------------------------------


@many
@given(worlds(), st.integers(1, 10))
def test_candidates_are_the_loop(world, top):
    similarity, image_of = world
    before = similarity.copy()
    wanted = []
    for i, row in enumerate(similarity):
        others = [t for t in range(len(image_of)) if image_of[t] != i]
        wanted += [(i, t) for t in sorted(others, key=lambda t: (-row[t], t))[:top]]
    got = candidates(similarity, image_of, top)
    assert got.shape == (len(wanted), 2)
    assert [tuple(pair) for pair in got.tolist()] == wanted
    np.testing.assert_array_equal(similarity, before)


@many
@given(worlds(), st.integers(1, 10), st.integers(1, 4))
def test_candidates_of_rows_that_are_made_on_demand(world, top, block):
    similarity, image_of = world
    taken = []

    class Lazy:
        """Rows of the similarities, never all."""

        shape = similarity.shape

        def __len__(self):
            return len(similarity)

        def __getitem__(self, rows):
            taken.append(range(len(similarity))[rows])
            return similarity[rows]

    before = revision.BLOCK
    revision.BLOCK = block
    try:
        got = candidates(Lazy(), image_of, top)
    finally:
        revision.BLOCK = before
    np.testing.assert_array_equal(got, candidates(similarity, image_of, top))
    assert [i for rows in taken for i in rows] == list(range(len(similarity)))
    assert max(map(len, taken)) <= block


def test_own_captions_are_never_candidates_however_similar():
    image_of = np.repeat(np.arange(8), 5)
    similarity = np.random.default_rng(0).random((8, 40)) + 9.0 * (
        image_of == np.arange(8)[:, None]
    )
    got = candidates(similarity, image_of)
    assert len(got) == 8 * 30  # top 30 by default, the paper's
    assert not (image_of[got[:, 1]] == got[:, 0]).any()
    assert len(candidates(similarity, image_of, 100)) == 8 * 35
    assert (np.diff(similarity[got[:, 0], got[:, 1]].reshape(8, 30)) <= 0).all()


# --- Exclusion (Sec. 4.2) ------------------------------------------------------------------------


@st.composite
def weak_pairs(draw, images, captions):
    pairs = draw(
        st.lists(st.tuples(st.integers(0, images - 1), st.integers(0, captions - 1)), max_size=12)
    )
    image, caption = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return Weak(image, caption)


@many
@given(st.data(), st.integers(1, 5), st.integers(1, 7))
def test_what_belongs_together_is_golden_or_weak(data, images, captions):
    image_of = np.array(data.draw(st.lists(st.integers(0, images - 1), min_size=captions,
                                           max_size=captions)))  # fmt: skip
    weak = data.draw(st.none() | weak_pairs(images, captions))
    rows = data.draw(st.lists(st.integers(0, images - 1), max_size=6))
    columns = data.draw(st.lists(st.integers(0, captions - 1), max_size=6))
    known = (
        set() if weak is None else set(zip(weak.image.tolist(), weak.caption.tolist(), strict=True))
    )
    got = Allowed(image_of, weak).block(np.array(rows, int), np.array(columns, int))
    assert (got.shape, got.dtype) == ((len(rows), len(columns)), bool)
    for a, i in enumerate(rows):
        for b, t in enumerate(columns):
            assert got[a, b] == (image_of[t] == i or (i, t) in known)


def test_large_sets_do_not_overflow():
    """A million images with five captions each: image times captions passes 32 bits."""
    image_of = np.repeat(np.arange(1_000_000, dtype=np.int32), 5)
    weak = Weak(np.array([999_999], dtype=np.int32), np.array([3], dtype=np.int32))
    rows = np.array([0, 999_998, 999_999], dtype=np.int64)
    got = Allowed(image_of, weak).block(rows, np.array([0, 3, 4_999_999]))
    assert got.tolist() == [[True, True, False], [False] * 3, [False, True, True]]


@st.composite
def batches(draw, most=6):
    """Scores (B, B) and A with a true diagonal."""
    size, rng = draw(st.integers(1, most)), np.random.default_rng(draw(seeds))
    same = rng.random((size, size)) < draw(st.sampled_from([0.0, 0.3, 0.7, 1.0]))
    return rng.normal(size=(size, size)) * 3, same | np.eye(size, dtype=bool)


def softmax_loop(logits, same):
    """-log of the own pair's share, over the own pair and all that is not entailed."""
    size, sides = len(logits), []
    for scores, out in ((logits, same), (logits.T, same.T)):
        parts = []
        for i in range(size):
            kept = [scores[i, j] for j in range(size) if j == i or not out[i, j]]
            parts.append(-math.log(math.exp(scores[i, i]) / sum(math.exp(v) for v in kept)))
        sides.append(mean(parts))
    return mean(sides)


@many
@given(batches())
def test_in_batch_softmax_is_the_loop(batch):
    logits, same = batch
    got = in_batch_softmax(torch.tensor(logits), torch.tensor(same)).item()
    assert got == near(softmax_loop(logits, same))
    assert math.isfinite(got)
    assert got > -1e-12
    own = in_batch_softmax(torch.tensor(logits), torch.zeros(same.shape, dtype=torch.bool)).item()
    assert own == near(softmax_loop(logits, np.eye(len(logits), dtype=bool)))
    rows = -log_softmax(logits, axis=1).diagonal().mean()
    columns = -log_softmax(logits, axis=0).diagonal().mean()
    assert own == near((rows + columns) / 2)


def test_in_batch_softmax_by_hand():
    """Text 1 is true of image 0: out of that row and that column, and nowhere else."""
    logits = torch.tensor([[math.log(3), 50.0], [0.0, 0.0]])
    same = torch.tensor([[True, True], [False, True]])
    # Image 0: only its own text is left, 0. Image 1: 1 of 2. Text 0: 3 of 4. Text 1: alone, 0.
    wanted = (math.log(2) / 2 + math.log(4 / 3) / 2) / 2
    assert in_batch_softmax(logits, same).item() == near(wanted)


@few
@given(batches())
def test_entailed_pairs_are_neither_pushed_nor_pulled(batch):
    logits, same = torch.tensor(batch[0], requires_grad=True), torch.tensor(batch[1])
    in_batch_softmax(logits, same).backward()
    off = same & ~torch.eye(len(same), dtype=torch.bool)
    assert torch.isfinite(logits.grad).all()
    assert not logits.grad[off].any()
    assert (logits.grad[~same] > 0).all()  # negatives are pushed away
    assert (logits.grad.diagonal() <= 0).all()


def draws(logits, same, count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    both = [hard_negatives(logits, same, generator) for _ in range(count)]
    return (torch.stack([pair[side] for pair in both]).numpy() for side in (0, 1))


def test_hard_negatives_come_in_proportion_to_the_softmax():
    rng = np.random.default_rng(5)
    logits = rng.normal(size=(5, 5))
    same = np.eye(5, dtype=bool)
    same[0, 3] = same[2, 0] = same[2, 1] = same[4, 1] = True
    texts, images = draws(torch.tensor(logits), torch.tensor(same), 3000)
    for drawn, scores, out in ((texts, logits, same), (images, logits.T, same.T)):
        for i in range(5):
            kept = np.flatnonzero(~out[i])
            counts = Counter(drawn[:, i].tolist())
            assert set(counts) <= set(kept.tolist())
            wanted = 3000 * softmax(scores[i, kept])
            assert chisquare([counts[j] for j in kept], wanted).pvalue > 1e-3


@few
@given(batches(), seeds)
def test_hard_negatives_are_never_entailed(batch, seed):
    logits, same = map(torch.tensor, batch)
    logits = logits.requires_grad_() * 30
    texts, images = hard_negatives(logits, same, torch.Generator().manual_seed(seed))
    assert texts.dtype == images.dtype == torch.int64
    assert not texts.requires_grad
    for drawn, out in ((texts, same), (images, same.T)):
        assert drawn.shape == (len(same),)
        for i, j in enumerate(drawn.tolist()):
            assert j == -1 if out[i].all() else (0 <= j < len(same) and not out[i, j])


def test_hard_negatives_repeat_with_their_seed():
    logits, same = torch.randn(6, 6), torch.eye(6, dtype=torch.bool)
    first, again, other = (
        [draw.tolist() for draw in draws(logits, same, 20, seed)] for seed in (0, 0, 1)
    )
    assert first == again
    assert first != other


def triplet_loop(scores, same, margin):
    hinges, size = [], len(scores)
    for i in range(size):
        texts = [scores[i][j] for j in range(size) if not same[i][j]]
        images = [scores[j][i] for j in range(size) if not same[j][i]]
        hinges += [max(0.0, margin - scores[i][i] + max(v)) for v in (texts, images) if v]
    return mean(hinges) if hinges else 0.0


@many
@given(batches(), st.sampled_from([0.0, 0.2, 1.0]))
def test_hardest_triplet_is_the_loop(batch, margin):
    scores, same = 1 / (1 + np.exp(-batch[0])), batch[1]
    got = hardest_triplet(torch.tensor(scores), torch.tensor(same), margin)
    assert got.item() == near(triplet_loop(scores, same, margin))


def test_hardest_triplet_by_hand():
    """Margin 0.2 by default. Text 2 is true of image 0; texts 0 and 2 of image 2, and 1 too."""
    scores = torch.tensor([[0.9, 0.8, 1.0], [0.3, 0.5, 0.6], [0.95, 1.0, 0.2]])
    same = torch.tensor([[1, 0, 1], [0, 1, 0], [1, 1, 1]]).bool()
    # Images: 0.2 - 0.9 + 0.8 = 0.1; 0.2 - 0.5 + 0.6 = 0.3; none for image 2.
    # Texts: 0.2 - 0.9 + 0.3 < 0; 0.2 - 0.5 + 0.8 = 0.5; 0.2 - 0.2 + 0.6 = 0.6.
    assert hardest_triplet(scores, same).item() == near((0.1 + 0.3 + 0 + 0.5 + 0.6) / 5)


@few
@given(batches())
def test_triplets_leave_entailed_pairs_alone(batch):
    scores = torch.tensor(1 / (1 + np.exp(-batch[0])), requires_grad=True)
    same = torch.tensor(batch[1])
    hardest_triplet(scores, same, 2.0).backward()
    off = same & ~torch.eye(len(same), dtype=torch.bool)
    assert torch.isfinite(scores.grad).all()
    assert not scores.grad[off].any()
    assert (scores.grad[~same] >= 0).all()
    negatives = (~same).any(1).double() + (~same).any(0)
    wanted = -negatives / max(negatives.sum().item(), 1)
    np.testing.assert_allclose(scores.grad.diagonal(), wanted, atol=1e-12)


# --- The weak batch (Sec. 4.3) -------------------------------------------------------------------


def weak_set(images):
    images = np.asarray(images, dtype=np.int64)
    return Weak(images, np.arange(100, 100 + len(images)))


def rows_of(batch):
    """Rows of `weak_set` in an extra batch; golden pairs, whose captions are below 100, are -1."""
    _, captions = batch
    return np.where(captions < 100, -1, captions - 100)


@many
@given(st.lists(st.integers(0, 6), max_size=15), st.lists(st.integers(0, 8), max_size=6),
       st.integers(0, 18), seeds)  # fmt: skip
def test_weak_pairs_of_the_regular_images_come_first(weak_images, regular, size, seed):
    weak, regular = weak_set(weak_images), np.array(regular, int)
    got = rows_of(extra_batch(regular, weak, size, np.random.default_rng(seed)))
    assert len(got) == min(size, len(weak))
    assert len(set(got.tolist())) == len(got)  # no doubles
    images = [weak_images[row] for row in got]
    there = set(regular.tolist()) & set(weak_images)
    first = min(len(there), size)
    assert len(set(images[:first])) == first  # one of each image that has some ...
    assert set(images[:first]) <= there  # ... then any others
    again = rows_of(extra_batch(regular, weak, size, np.random.default_rng(seed)))
    np.testing.assert_array_equal(got, again)


@many
@given(st.lists(st.integers(0, 6), max_size=15), st.lists(st.integers(0, 8), max_size=6),
       st.integers(0, 18), seeds)  # fmt: skip
def test_golden_pairs_stand_in_for_weak_ones(weak_images, regular, size, seed):
    weak, golden = weak_set(weak_images), Weak(np.repeat(np.arange(9), 2), np.arange(18))
    images, captions = extra_batch(
        np.array(regular, int), weak, size, np.random.default_rng(seed), golden
    )
    assert len(images) == size
    assert len(set(captions.tolist())) == size
    is_weak = captions >= 100
    np.testing.assert_array_equal(captions[~is_weak] // 2, images[~is_weak])
    with_some = sorted(set(regular) & set(weak_images))
    if size >= len(set(regular)):
        assert sorted(images[is_weak]) == with_some  # one weak pair of each image that has some ...
        assert set(regular) <= set(images.tolist())  # ... and a golden one of each of the others
    else:
        assert set(images.tolist()) <= set(regular)
        assert is_weak.sum() == min(size, len(with_some))


def test_every_choice_of_an_extra_batch_is_random():
    """Image 0 has rows 0 to 3, image 1 rows 4 and 5; rows 6 to 9 are of others."""
    weak = weak_set([0, 0, 0, 0, 1, 1, 2, 2, 3, 4])
    golden = Weak(np.repeat(np.arange(8), 2), np.arange(16))
    rng = np.random.default_rng(0)

    def draw(images, size, *more):
        return rows_of(extra_batch(np.array(images), weak, size, rng, *more))

    drawn = np.array([draw([0, 1, 0, 7], 8) for _ in range(2000)])

    def even(values, among):
        counts = Counter(values.tolist())
        assert set(counts) <= set(among)
        return chisquare([counts[v] for v in among]).pvalue > 1e-3

    firsts = drawn[:, :2]
    assert even(firsts[firsts < 4], range(4))
    assert even(firsts[firsts >= 4], (4, 5))
    assert even(drawn[:, 2:][drawn[:, 2:] > 5], range(6, 10))
    assert all(len(set(row)) == 8 for row in drawn.tolist())
    assert {draw([2, 3], 1)[0] for _ in range(1000)} == {6, 7, 8}
    filled = [extra_batch(np.array([0, 7]), weak, 4, rng, golden)[1] for _ in range(2000)]
    assert even(np.array(filled)[:, 0] - 100, range(4))
    assert even(np.array(filled)[:, 1], (14, 15))
    assert {c for own in filled for c in own[2:].tolist()} == set(range(16))


# --- Two learning rates (Sec. 4.3) ---------------------------------------------------------------

ADAM = partial(torch.optim.Adam, foreach=False)
SGD = partial(torch.optim.SGD, foreach=False)


def maker(optimiser, **options):
    return lambda parameters, rate: optimiser(parameters, lr=rate, **options)


def two_rates(make, ratio, state="shared", rate=1e-3, size=1):
    value = nn.Parameter(torch.zeros(size))
    return value, TwoRates([value], make, rate, ratio, state)


def simulate(make, state, ratio=1.0, weight=1.0, steps=400, golden=1.0):
    """How far a weak gradient moves a value, as a share of how far a golden one moves it.

    Golden and weak steps alternate. The first two values have a mean golden gradient of 0.1, the
    others a mean weak one. Noise that changes its sign keeps the second moment steady; it is the
    negative on every other value, and drops out. weight: of the weak loss. golden: scale of golden
    gradients on the last two values.
    """
    value, two = two_rates(make, ratio, state, size=4)
    only_golden, only_weak = torch.tensor([[0.1, 0.1, 0, 0], [0, 0, 0.1, 0.1]])
    scale = torch.tensor([1, 1, golden, golden])
    for step in range(steps):
        noise = (-1) ** step * torch.tensor([1.0, -1.0, 1.0, -1.0])
        two.step(((only_golden + scale * noise) * value).sum())
        two.step(weight * ((only_weak + noise) * value).sum(), weak=True)
    moved = value.detach().reshape(2, 2).sum(1)
    assert moved[0] < 0
    return (moved[1] / moved[0]).item()


LIKE = partial(pytest.approx, abs=0.012)


@pytest.mark.parametrize(("ratio", "wanted"), [(0.1, 0.917), (0.01, 0.902), (0.3, 0.945), (1, 1)])
def test_a_shared_adam_pulls_far_more_than_the_ratio(ratio, wanted):
    """The printed 0.917 and 0.902; the formula and the simulation agree."""
    assert effective_ratio(ratio) == pytest.approx(wanted, abs=5e-4)
    assert simulate(maker(ADAM), "shared", ratio) == LIKE(effective_ratio(ratio))


@pytest.mark.parametrize(
    ("make", "state"),
    [
        (maker(ADAM), "separate"),
        (maker(ADAM, betas=(0.0, 0.999)), "shared"),
        (maker(SGD), "shared"),
        (maker(SGD), "separate"),
        (maker(SGD, momentum=0.9), "separate"),
    ],
    ids=["separate Adam", "Adam without momentum", "SGD", "separate SGD", "separate momentum"],
)
@pytest.mark.parametrize("ratio", [0.1, 0.3])
def test_elsewhere_the_pull_is_the_ratio(make, state, ratio):
    assert simulate(make, state, ratio) == LIKE(ratio)


def test_momentum_carries_weak_gradients_on_like_adam():
    assert simulate(maker(SGD, momentum=0.9), "shared", 0.1) == LIKE(effective_ratio(0.1))
    assert simulate(maker(ADAM, betas=(0.5, 0.999)), "shared", 0.1) == LIKE(
        effective_ratio(0.1, 0.5)
    )


def test_a_loss_weight_behaves_the_other_way_round():
    """About the weight where moments are shared, about 1 with an optimiser of its own."""
    assert simulate(maker(ADAM), "shared", weight=0.1) == LIKE(0.1)
    assert simulate(maker(ADAM), "separate", weight=0.1) == LIKE(1)
    assert simulate(maker(SGD), "shared", weight=0.1) == LIKE(0.1)
    # Values 2 and 3 are moved by weak batches only: Adam divides by their own scale.
    assert simulate(maker(ADAM), "shared", weight=0.1, golden=0.0) == LIKE(1)


def test_pull_is_the_formula():
    assert effective_ratio(0.1) == near(1 / 1.09)
    assert effective_ratio(0.01) == near(0.91 / 1.009)
    for ratio in (0.0, 0.03, 0.5, 1.0):
        assert effective_ratio(ratio, 0) == near(ratio)
        assert effective_ratio(1, ratio) == near(1)
        # The gradient's own step and all that follow: (λ + β) / (1 + λβ), from the sums.
        beta, rates = 0.7, lambda first, second: [first, second] * 200
        weak, golden = (
            sum(rate * beta**k for k, rate in enumerate(rates(*pair)))
            for pair in ((ratio, 1.0), (1.0, ratio))
        )
        assert effective_ratio(ratio, beta) == near(weak / golden)


def test_rates_by_hand():
    """SGD, rate 0.5, ratio 0.1: steps of 0.5, 0.05, 0.5 · 0.2 and 0.05 · 0.2 down a slope of 2."""
    value, two = two_rates(maker(SGD), 0.1, rate=0.5)
    places = []
    for weak, factor in ((False, 1.0), (True, 1.0), (False, 0.2), (True, 0.2), (False, 1.0)):
        two.step(2 * value.sum(), weak, factor)
        places.append(-value.item())
    assert places == near([1, 1.1, 1.3, 1.32, 2.32])
    two.step(2 * value.sum(), weak=True)
    assert -value.item() == near(2.42)


def test_shared_is_one_optimiser_and_separate_two():
    value, two = two_rates(maker(ADAM), 0.1)
    assert two.golden is two.weak
    value, two = two_rates(maker(ADAM), 0.1, "separate")
    assert two.golden is not two.weak
    two.step(value.sum(), weak=True)
    assert value in two.weak.state
    assert not two.golden.state
    assert TwoRates([value], maker(ADAM), 1e-3, 0.1).weak is not None


@pytest.mark.parametrize("state", ["shared", "separate"])
def test_parameters_may_come_from_a_generator(state):
    layer = nn.Linear(2, 1)
    before = layer.weight.detach().clone()
    two = TwoRates(layer.parameters(), maker(SGD), 0.1, 0.5, state)
    two.step(layer(torch.ones(1, 2)).sum(), weak=True)
    np.testing.assert_allclose((before - layer.weight.detach()), 0.05)


@pytest.mark.parametrize("state", ["shared", "separate"])
def test_gradients_of_one_step_never_enter_the_next(state):
    """A value that only weak losses know is left alone by golden steps, even by Adam's momentum."""
    both = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))
    two = TwoRates(both, maker(SGD, momentum=0.9), 0.1, 0.5, state)
    two.step(both[0].sum() + both[1].sum(), weak=True)
    there = both[1].item()
    assert there == near(-0.05)
    for _ in range(3):
        two.step(0 * both[0].sum())
    assert both[1].item() == there


def test_weight_decay_shrinks_with_the_rate():
    """AdamW's decay is times the rate: 1 - 0.1 · 0.5 in a golden step, 1 - 0.01 · 0.5 in a weak."""
    for state in ("shared", "separate"):
        value = nn.Parameter(torch.ones(1))
        make = maker(torch.optim.AdamW, weight_decay=0.5)
        two = TwoRates([value], make, 0.1, 0.1, state)
        two.step(0 * value.sum(), weak=True)
        assert value.item() == near(0.995)
        two.step(0 * value.sum())
        assert value.item() == near(0.995 * 0.95)


def test_an_unknown_state_is_an_error():
    with pytest.raises(ValueError, match="state 'seperate' is not known: use shared or separate"):
        two_rates(maker(ADAM), 0.1, "seperate")
