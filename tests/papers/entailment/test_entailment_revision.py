"""Candidates, exclusion, weak batches and retrievers against loops, simulations, and by hand.

Sections are those of "Revising Image-Text Retrieval via Multi-Modal Entailment" (2022).
"""

import math
from collections import Counter
from functools import partial
from statistics import mean

import numpy as np
import pytest
import torch
from drawn import few, many, near, seeds
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from scipy.stats import chisquare
from torch import nn

from mmlib.features.encoders import DualEncoder, Shape, Sizes, in_batch_softmax
from mmlib.papers.entailment.method import revision
from mmlib.papers.entailment.method.retrievers import (
    AlignFuse,
    HardestTriplet,
    hard_negatives,
    hardest_triplet,
    reranked,
)
from mmlib.papers.entailment.method.revision import Allowed, TwoRates, Weak, candidates, extra_batch

# --- Entailed pairs and their exclusion (Secs. 4.1 and 4.2) ---------------------------------------


@many
@given(seeds, st.integers(1, 5), st.integers(1, 9), st.integers(1, 10), st.integers(1, 4))
def test_candidates_are_the_loop(seed, images, captions, top, block):
    rng = np.random.default_rng(seed)
    similarity = rng.integers(0, 5, (images, captions)) / 4  # with ties
    image_of, before = rng.integers(0, images, captions), similarity.copy()
    wanted = []
    for i, row in enumerate(similarity):
        others = np.flatnonzero(image_of != i).tolist()
        wanted += [(i, t) for t in sorted(others, key=lambda t: (-row[t], t))[:top]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(revision, "BLOCK", block)
        got = candidates(similarity, image_of, top)
    assert [tuple(pair) for pair in got.tolist()] == wanted
    np.testing.assert_array_equal(similarity, before)


@many
@given(seeds, st.integers(1, 5), st.integers(1, 7), st.integers(0, 12))
def test_what_belongs_together_is_golden_or_in_a_weak_set(seed, images, captions, count):
    rng = np.random.default_rng(seed)
    image_of = rng.integers(0, images, captions)
    one, other = (Weak(rng.integers(0, images, count), rng.integers(0, captions, count))
                  for _ in range(2))  # fmt: skip
    known = {pair for w in (one, other) for pair in zip(w.image, w.caption, strict=True)}
    rows, columns = rng.integers(0, images, 6), rng.integers(0, captions, 6)
    got = Allowed(image_of, one, None, other).block(rows, columns)
    assert got.dtype == bool
    assert got.tolist() == [[image_of[t] == i or (i, t) in known for t in columns] for i in rows]


@st.composite
def batches(draw, most=6):
    """Scores (B, B) and A with a true diagonal."""
    size, rng = draw(st.integers(1, most)), np.random.default_rng(draw(seeds))
    same = rng.random((size, size)) < draw(st.sampled_from([0.0, 0.3, 0.7, 1.0]))
    return rng.normal(size=(size, size)) * 3, same | np.eye(size, dtype=bool)


def softmax_loop(logits, same, _):
    """-log of the own pair's share, over the own pair and all that is not entailed."""
    parts = []
    for scores, out in ((logits, same), (logits.T, same.T)):
        for i in range(len(logits)):
            kept = [scores[i, j] for j in range(len(logits)) if j == i or not out[i, j]]
            parts.append(-math.log(math.exp(scores[i, i]) / sum(math.exp(v) for v in kept)))
    return mean(parts)


def triplet_loop(scores, same, margin):
    hinges, size = [], range(len(scores))
    for i in size:
        texts = [scores[i][j] for j in size if not same[i][j]]
        images = [scores[j][i] for j in size if not same[j][i]]
        hinges += [max(0.0, margin - scores[i][i] + max(v)) for v in (texts, images) if v]
    return mean(hinges) if hinges else 0.0


@many
@given(batches(), st.sampled_from([0.0, 0.2, 2.0]), st.booleans())
def test_losses_are_loops_that_leave_entailed_pairs_alone(batch, margin, triplet):
    scores, same = torch.tensor(batch[0], requires_grad=True), torch.tensor(batch[1])
    value = hardest_triplet(scores, same, margin) if triplet else in_batch_softmax(scores, same)
    assert value.item() == near((triplet_loop if triplet else softmax_loop)(*batch, margin))
    value.backward()
    off = same & ~torch.eye(len(same), dtype=torch.bool)
    assert torch.isfinite(scores.grad).all()
    assert not scores.grad[off].any()  # neither pushed nor pulled
    assert (scores.grad[~same] >= 0).all()  # negatives are pushed away
    assert (scores.grad.diagonal() <= 0).all()


def test_hard_negatives_come_in_proportion_to_the_softmax():
    logits, same = np.random.default_rng(5).normal(size=(5, 5)), np.eye(5, dtype=bool)
    same[0, 3] = same[2, 0] = same[2, 1] = same[4, 1] = True
    generator = torch.Generator().manual_seed(0)
    drawn = [hard_negatives(torch.tensor(logits), torch.tensor(same), generator)
             for _ in range(2000)]  # fmt: skip
    for side, scores, out in ((0, logits, same), (1, logits.T, same.T)):
        chosen = torch.stack([pair[side] for pair in drawn]).numpy()
        for i in range(5):
            kept = np.flatnonzero(~out[i])
            counts = Counter(chosen[:, i].tolist())
            assert set(counts) <= set(kept.tolist())
            wanted = 2000 * softmax(scores[i, kept])
            assert chisquare([counts[j] for j in kept], wanted).pvalue > 1e-3


@few
@given(batches(), seeds)
def test_hard_negatives_are_never_entailed(batch, seed):
    logits, same = torch.tensor(batch[0], requires_grad=True) * 30, torch.tensor(batch[1])
    for drawn, out in zip(hard_negatives(logits, same, torch.Generator().manual_seed(seed)),
                          (same, same.T), strict=True):  # fmt: skip
        assert not drawn.requires_grad
        for i, j in enumerate(drawn.tolist()):
            assert j == -1 if out[i].all() else (0 <= j < len(same) and not out[i, j])


# --- The weak batch (Sec. 4.3) -------------------------------------------------------------------


def weak_set(images):
    """Rows of a weak set are its captions less 100; those of golden pairs are below 100."""
    images = np.asarray(images, dtype=np.int64)
    return Weak(images, np.arange(100, 100 + len(images)))


@many
@given(st.lists(st.integers(0, 6), max_size=15), st.lists(st.integers(0, 8), max_size=6),
       st.integers(0, 18), seeds)  # fmt: skip
def test_weak_pairs_of_the_regular_images_come_first(weak_images, regular, size, seed):
    """Then any others; or, where golden pairs stand in for weak ones, those of the other images."""
    weak, regular = weak_set(weak_images), np.array(regular, int)
    golden = Weak(np.repeat(np.arange(9), 2), np.arange(18))
    rows, again = (extra_batch(regular, weak, size, np.random.default_rng(seed))[1] - 100
                   for _ in range(2))  # fmt: skip
    np.testing.assert_array_equal(rows, again)
    assert len(set(rows.tolist())) == len(rows) == min(size, len(weak))  # no doubles
    images = [weak_images[row] for row in rows]
    there = set(regular.tolist()) & set(weak_images)
    first = min(len(there), size)
    assert len(set(images[:first])) == first  # one of each image that has some
    assert set(images[:first]) <= there

    images, captions = extra_batch(regular, weak, size, np.random.default_rng(seed), golden)
    assert len(images) == len(set(captions.tolist())) == size
    is_weak = captions >= 100
    np.testing.assert_array_equal(captions[~is_weak] // 2, images[~is_weak])
    if size >= len(set(regular)):
        assert sorted(images[is_weak]) == sorted(there)
        assert set(regular) <= set(images.tolist())
    else:
        assert set(images.tolist()) <= set(regular)
        assert is_weak.sum() == first


def test_every_choice_of_an_extra_batch_is_random():
    """Image 0 has rows 0 to 3, image 1 rows 4 and 5; rows 6 to 9 are of others."""
    weak, rng = weak_set([0, 0, 0, 0, 1, 1, 2, 2, 3, 4]), np.random.default_rng(0)
    golden = Weak(np.repeat(np.arange(8), 2), np.arange(16))
    drawn = np.array([extra_batch(np.array([0, 1, 0, 7]), weak, 8, rng)[1] - 100
                      for _ in range(2000)])  # fmt: skip
    filled = np.array([extra_batch(np.array([0, 7]), weak, 4, rng, golden)[1]
                       for _ in range(2000)])  # fmt: skip
    firsts, rest = drawn[:, :2], drawn[:, 2:]
    for values, among in (
        (firsts[firsts < 4], range(4)), (firsts[firsts >= 4], (4, 5)),
        (rest[rest > 5], range(6, 10)), (filled[:, 0] - 100, range(4)), (filled[:, 1], (14, 15)),
    ):  # fmt: skip
        counts = Counter(values.tolist())
        assert set(counts) <= set(among)
        assert chisquare([counts[v] for v in among]).pvalue > 1e-3
    assert set(filled[:, 2:].ravel().tolist()) == set(range(16))


# --- Two learning rates (Sec. 4.3) ---------------------------------------------------------------

ADAM = partial(torch.optim.Adam, foreach=False)
SGD = partial(torch.optim.SGD, foreach=False)


def two_rates(optimiser, ratio, state="shared", rate=1e-3, size=1, **options):
    value = nn.Parameter(torch.zeros(size, dtype=torch.float64))
    make = lambda parameters, rate: optimiser(parameters, lr=rate, **options)  # noqa: E731
    return value, TwoRates([value], make, rate, ratio, state)


@pytest.mark.parametrize(
    ("optimiser", "options", "state", "ratio", "weight", "wanted"),
    [
        # The printed 0.917 and 0.902: a shared Adam pulls far more than the ratio.
        (ADAM, {}, "shared", 0.1, 1, 0.917), (ADAM, {}, "shared", 0.01, 1, 0.902),
        (SGD, {"momentum": 0.9}, "shared", 0.1, 1, 0.917),
        (ADAM, {"betas": (0.5, 0.999)}, "shared", 0.1, 1, 0.6 / 1.05),
        # Elsewhere the pull is the ratio.
        (ADAM, {}, "separate", 0.1, 1, 0.1), (SGD, {}, "shared", 0.1, 1, 0.1),
        (ADAM, {"betas": (0.0, 0.999)}, "shared", 0.3, 1, 0.3),
        (SGD, {"momentum": 0.9}, "separate", 0.3, 1, 0.3),
        # A loss weight behaves the other way round.
        (ADAM, {}, "shared", 1, 0.1, 0.1), (ADAM, {}, "separate", 1, 0.1, 1),
    ],
)  # fmt: skip
def test_the_pull_of_a_weak_gradient(optimiser, options, state, ratio, weight, wanted):
    """How far a weak gradient moves a value, as a share of how far a golden one moves it.

    Golden and weak steps alternate. The first two values have a mean golden gradient of 0.1, the
    others a mean weak one. Noise that changes its sign keeps the second moment steady; it is the
    negative on every other value, and drops out. weight: of the weak loss.
    """
    value, two = two_rates(optimiser, ratio, state, size=4, **options)
    only_golden, only_weak = torch.tensor([[0.1, 0.1, 0, 0], [0, 0, 0.1, 0.1]])
    for step in range(400):
        noise = (-1) ** step * torch.tensor([1.0, -1.0, 1.0, -1.0])
        two.step(((only_golden + noise) * value).sum())
        two.step(weight * ((only_weak + noise) * value).sum(), weak=True)
    moved = value.detach().reshape(2, 2).sum(1)
    assert moved[0] < 0
    assert (moved[1] / moved[0]).item() == pytest.approx(wanted, abs=0.012)


def test_rates_by_hand():
    """SGD, rate 0.5, ratio 0.1: steps of 0.5, 0.05, 0.5 · 0.2 and 0.05 · 0.2 down a slope of 2."""
    value, two = two_rates(SGD, 0.1, rate=0.5)
    places = []
    for weak, factor in ((False, 1.0), (True, 1.0), (False, 0.2), (True, 0.2), (True, 1.0)):
        two.step(2 * value.sum(), weak, factor)
        places.append(-value.item())
    assert places == near([1, 1.1, 1.3, 1.32, 1.42])
    with pytest.raises(ValueError, match="state 'seperate' is not known: use shared or separate"):
        two_rates(ADAM, 0.1, "seperate")


@pytest.mark.parametrize("state", ["shared", "separate"])
def test_gradients_of_one_step_never_enter_the_next_and_decay_goes_with_the_rate(state):
    """A value that only weak losses know is left alone by golden steps, even by Adam's momentum."""
    both = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))
    two = TwoRates(iter(both), partial(SGD, momentum=0.9), 0.1, 0.5, state)
    two.step(both[0].sum() + both[1].sum(), weak=True)
    for _ in range(3):
        two.step(0 * both[0].sum())
    assert both[1].item() == pytest.approx(-0.05)
    # AdamW's decay is times the rate: 1 - 0.01 · 0.5 in a weak step, 1 - 0.1 · 0.5 in a golden one.
    value = nn.Parameter(torch.ones(1, dtype=torch.float64))
    two = TwoRates([value], partial(torch.optim.AdamW, weight_decay=0.5), 0.1, 0.1, state)
    for weak in (True, False):
        two.step(0 * value.sum(), weak=weak)
    assert value.item() == near(0.995 * 0.95)
    assert (two.golden is two.weak) == (state == "shared")


# --- Retrievers ----------------------------------------------------------------------------------

SIZES = Sizes(vocabulary=40, region_width=6, regions=5, words=9, space=8)
SETTINGS = Shape(width=16, heads=2, image_layers=1, words_layers=1, cross_layers=1, dropout=0.0)
EYE = torch.eye(4, dtype=torch.bool)


def made(family, **more):
    torch.manual_seed(1)
    return family(SIZES, SETTINGS, **more).eval()


@pytest.fixture(scope="module")
def data():
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(4, 5, 6, generator=generator)
    ids = torch.randint(4, 40, (4, 7), generator=generator)
    lengths = torch.tensor([7, 3, 5, 1])
    for row, length in enumerate(lengths):
        ids[row, length:] = 0
    return images, ids, lengths


def test_two_encoders_are_cosines_pair_by_pair(data):
    images, ids, lengths = data
    model, same = made(DualEncoder), EYE.clone()
    left = torch.cat([model.image_states(image[None])[1] for image in images])
    right = torch.cat([model.text_states(t[None, :n], n[None])[2]
                       for t, n in zip(ids, lengths, strict=True)])  # fmt: skip
    cosines = (left @ right.T).detach()
    same[0, 1] = True
    wanted = in_batch_softmax(cosines * model.log_scale.exp(), EYE)
    for alone in (made(DualEncoder), made(DualEncoder, alone=True)):
        by_image, by_text = alone.rank(*data)
        np.testing.assert_allclose(by_image, cosines, atol=1e-5)
        np.testing.assert_array_equal(by_image, by_text)
        torch.testing.assert_close(alone.loss(*data, EYE), wanted, atol=1e-4, rtol=0)
    wanted = hardest_triplet(cosines, same)
    torch.testing.assert_close(made(HardestTriplet).loss(*data, same), wanted, atol=1e-5, rtol=0)


def test_align_fuse_puts_the_reranked_first(data):
    images, ids, lengths = data
    model = made(AlignFuse, top=(2, 2))
    itc, _ = DualEncoder.rank(model, images, ids, lengths)
    by_image, by_text = model.rank(images, ids, lengths)
    for table, plain in ((by_image, itc), (by_text.T, itc.T)):
        best = np.argsort(-plain, axis=1, kind="stable")[:, :2]
        first = (np.arange(4) == best[:, :, None]).any(axis=1)
        np.testing.assert_array_equal(table >= 2, first)
        np.testing.assert_array_equal(table[~first], plain[~first])
    for image, text in np.argwhere(by_image >= 2):  # pair by pair, without padding
        states, _ = model.image_states(images[image][None])
        n = lengths[text]
        words, mask, _ = model.text_states(ids[text, :n][None], n[None])
        chance = model.match(words, mask, states).softmax(dim=1)[0, 1].item()
        assert by_image[image, text] == pytest.approx(2 + chance, abs=1e-5)


def test_align_fuse_adds_matching_of_pairs_and_hard_negatives(data, monkeypatch):
    """Each pair, each image with a wrong text, each text with a wrong image; none where all fit."""
    model, (images, ids, lengths) = made(AlignFuse), data
    itc = DualEncoder.loss(model, *data, EYE)
    wrong = torch.tensor([1, 2, 3, -1]), torch.tensor([3, 0, -1, 1])
    monkeypatch.setattr("mmlib.papers.entailment.method.retrievers.hard_negatives",
                        lambda *_: wrong)  # fmt: skip
    pairs = [(i, i, 1) for i in range(4)]
    pairs += [(i, t, 0) for i, t in enumerate(wrong[0].tolist()) if t >= 0]
    pairs += [(i, t, 0) for t, i in enumerate(wrong[1].tolist()) if i >= 0]
    states, _ = model.image_states(images)
    words, mask, _ = model.text_states(ids, lengths)
    losses = [-model.match(words[[t]], mask[[t]], states[[i]]).log_softmax(dim=1)[0, y]
              for i, t, y in pairs]  # fmt: skip
    torch.testing.assert_close(model.loss(*data, EYE), itc + torch.stack(losses).mean())


def test_reranked_by_loop():
    rng, asked = np.random.default_rng(0), []
    scores, table = np.round(rng.uniform(-1, 1, (5, 7)), 1), rng.random((5, 7))  # with ties

    def score(pairs):
        asked.extend(map(tuple, pairs))
        return table[pairs[:, 0], pairs[:, 1]]

    by_image, by_text = reranked(scores, (3, 2), score)
    for result, plain, chance, top in ((by_image, scores, table, 3),
                                       (by_text.T, scores.T, table.T, 2)):  # fmt: skip
        wanted = plain.copy()
        for q, row in enumerate(plain):
            for k in sorted(range(len(row)), key=lambda k: (-row[k], k))[:top]:
                wanted[q, k] = 2 + chance[q, k]
        np.testing.assert_array_equal(result, wanted)
    assert len(asked) == len(set(asked))  # a pair that both directions want is scored once
