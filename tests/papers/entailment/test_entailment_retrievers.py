"""The three retrievers: what they score, rank and exclude, against plain loops."""

from dataclasses import replace

import numpy as np
import pytest
import tiny_entailment as tiny
import torch
from torch.nn import functional as F

from mmlib.features.encoders import DualEncoder, Shape, Sizes, with_cls
from mmlib.features.words import CLS
from mmlib.papers.entailment.data import study
from mmlib.papers.entailment.retrievers import AlignFuse, HardestTriplet, pair_scores, reranked

FAMILIES = (DualEncoder, AlignFuse, HardestTriplet)
SIZES = Sizes(vocabulary=40, region_width=6, regions=5, words=9, space=8)
SETTINGS = Shape(width=16, heads=2, image_layers=1, words_layers=1, cross_layers=1, dropout=0.0)


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


def test_cls_stands_first_and_the_mask_ends_with_the_text():
    ids, mask = with_cls(torch.tensor([[5, 6], [7, 0]]), torch.tensor([2, 1]))
    assert ids.tolist() == [[CLS, 5, 6], [CLS, 7, 0]]
    assert mask.tolist() == [[1, 1, 1], [1, 1, 0]]


@pytest.mark.parametrize("family", FAMILIES)
def test_padding_never_matters(family, data):
    images, ids, lengths = data
    wide = torch.cat([ids, torch.full((4, 2), 9)], dim=1)
    for row, length in enumerate(lengths):
        wide[row, length:] = 9  # garbage behind the text
    model = made(family)
    for before, after in zip(
        model.rank(images, ids, lengths), model.rank(images, wide, lengths), strict=True
    ):
        np.testing.assert_allclose(before, after, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_loss_reaches_every_parameter(family, data):
    model = made(family)
    same = torch.eye(4, dtype=torch.bool)
    model.loss(*data, same).backward()
    silent = {name for name, p in model.named_parameters() if p.grad is None}
    if family is HardestTriplet:
        silent -= {"log_scale"}  # a hinge has no temperature
    # [CLS] embeddings of an encoder that is fed states, and unused word types, get no gradient.
    assert all("word_embeddings" in n or "layers.embeddings" in n for n in silent), silent


def test_dual_encoder_by_loop(data):
    images, ids, lengths = data
    model = made(DualEncoder)
    left = [F.normalize(model.to_image(model.image(i[None])[0][:, 0]), dim=1) for i in images]
    right = [
        model.text_states(t[None, :n], torch.tensor([n]))[2]
        for t, n in zip(ids, lengths.tolist(), strict=True)
    ]
    table = torch.tensor([[(a @ b.T).item() for b in right] for a in left])
    by_image, by_text = model.rank(images, ids, lengths)
    np.testing.assert_allclose(by_image, table.numpy(), atol=1e-5)
    np.testing.assert_array_equal(by_image, by_text)
    logits = table * model.log_scale.exp().item()
    rows = torch.arange(4)
    expected = (F.cross_entropy(logits, rows) + F.cross_entropy(logits.T, rows)) / 2
    loss = model.loss(images, ids, lengths, torch.eye(4, dtype=torch.bool))
    assert loss.item() == pytest.approx(expected.item(), abs=1e-4)


def test_a_dual_encoder_of_first_states_alone_does_the_same(data):
    whole, alone = made(DualEncoder), made(DualEncoder, alone=True)
    alone.load_state_dict(whole.state_dict())
    images, *_ = data
    assert whole.image_states(images)[0].shape[1] == 1 + images.shape[1]
    assert alone.image_states(images)[0].shape[1] == 1
    np.testing.assert_allclose(alone.rank(*data)[0], whole.rank(*data)[0], atol=1e-6)
    same = torch.eye(4, dtype=torch.bool)
    for model in (whole, alone):
        model.loss(*data, same).backward()
    for one, other in zip(whole.parameters(), alone.parameters(), strict=True):
        if one.grad is not None:
            torch.testing.assert_close(other.grad, one.grad)


@pytest.mark.parametrize("family", [DualEncoder, HardestTriplet])
def test_an_entailed_pair_is_no_negative(family, data):
    model = made(family)
    images, ids, lengths = data
    twins = ids.clone()
    twins[1] = twins[0]
    both = lengths.clone()
    both[1] = both[0]
    same = torch.eye(4, dtype=torch.bool)
    plain = model.loss(images, twins, both, same)
    same[0, 1] = same[1, 0] = True
    excluded = model.loss(images, twins, both, same)
    # A twin text can never be beaten; where it is not the hardest one, nothing changes.
    assert excluded < plain if family is DualEncoder else excluded <= plain + 1e-6


def test_align_fuse_puts_the_reranked_first(data):
    images, ids, lengths = data
    model = made(AlignFuse, top=(2, 2))
    itc, _ = DualEncoder.rank(model, images, ids, lengths)
    by_image, by_text = model.rank(images, ids, lengths)
    for table, plain in ((by_image, itc), (by_text.T, itc.T)):
        for row, old in zip(table, plain, strict=True):
            best = np.argsort(-old, kind="stable")[:2]
            assert set(np.flatnonzero(row >= 2)) == set(best)
            rest = np.setdiff1d(np.arange(4), best)
            np.testing.assert_array_equal(row[rest], old[rest])
    image, text = np.argwhere(by_image >= 2)[0]
    states, _ = model.image_states(images[image][None])
    words, mask, _ = model.text_states(ids[text][None], lengths[text][None])
    chance = model.match(words, mask, states).softmax(dim=1)[0, 1].item()
    assert by_image[image, text] == pytest.approx(2 + chance, abs=1e-5)


def test_align_fuse_survives_a_batch_in_which_everything_is_entailed(data):
    loss = made(AlignFuse).loss(*data, torch.ones(4, 4, dtype=torch.bool))
    assert torch.isfinite(loss)


def test_the_same_seed_makes_the_same_retriever(data):
    for family in FAMILIES:
        first, second = (made(family).rank(*data)[0] for _ in range(2))
        np.testing.assert_array_equal(first, second)


def test_reranked_by_loop():
    rng = np.random.default_rng(0)
    scores = np.round(rng.uniform(-1, 1, (5, 7)), 1)  # with ties
    table = rng.random((5, 7))
    asked = []

    def score(pairs):
        asked.extend(map(tuple, pairs))
        return table[pairs[:, 0], pairs[:, 1]]

    by_image, by_text = reranked(scores, (3, 2), score)
    wanted = [scores.copy(), scores.copy()]
    for i in range(5):
        for c in sorted(range(7), key=lambda c: (-scores[i, c], c))[:3]:
            wanted[0][i, c] = 2 + table[i, c]
    for c in range(7):
        for i in sorted(range(5), key=lambda i: (-scores[i, c], i))[:2]:
            wanted[1][i, c] = 2 + table[i, c]
    np.testing.assert_array_equal(by_image, wanted[0])
    np.testing.assert_array_equal(by_text, wanted[1])
    assert len(asked) == len(set(asked))  # a pair that both directions want is scored once
    assert (by_image != by_text).any()


def test_pairs_are_scored_in_blocks_of_one_length():
    rng = np.random.default_rng(1)
    lengths = torch.from_numpy(rng.integers(1, 9, 30))
    pairs = np.column_stack([rng.integers(0, 9, 700), rng.integers(0, 30, 700)])
    blocks = []

    def score(image, text, longest):
        assert longest == lengths[text].max()
        blocks.append(len(image))
        return image * 100.0 + text

    found = pair_scores(pairs, lengths, score)
    np.testing.assert_array_equal(found, pairs[:, 0] * 100 + pairs[:, 1])
    assert blocks == [256, 256, 188]


def test_the_triplets_hinge_is_on_cosines(data):
    """By loop: margin less the own cosine plus that of the hardest wrong text or image."""
    images, ids, lengths = data
    model, same = made(HardestTriplet), torch.eye(4, dtype=torch.bool)
    same[0, 1] = True
    scores, _ = model.rank(images, ids, lengths)
    hinges = []
    for k in range(4):
        for line, out in ((scores[k], same[k]), (scores[:, k], same[:, k])):
            wrong = max(line[j] for j in range(4) if not out[j])
            hinges.append(max(0.0, 0.2 - scores[k, k] + wrong))
    assert model.loss(images, ids, lengths, same).item() == pytest.approx(np.mean(hinges), abs=1e-6)


def test_a_kept_retriever_that_was_cut_off_is_trained_anew(monkeypatch, tmp_path):
    monkeypatch.setattr(study, "job_folder", lambda: tmp_path)
    arrays = tiny.arrays()
    budget = replace(tiny.BUDGET, frozen={"dual": tiny.PHASE, "align": tiny.PHASE})
    given = budget, arrays.words, arrays.images, arrays.splits["train"]
    whole = study._frozen_retriever(*given)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-9])
    again = study._frozen_retriever(*given)
    assert whole.keys() == again.keys()
    assert all(whole[name].equal(again[name]) for name in whole)
