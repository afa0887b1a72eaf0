"""The controlled collection: what is true of what, its retrievers and its judge."""

import numpy as np
import pytest
import torch

from mmlib.features.encoders import in_batch_softmax
from mmlib.papers.entailment.data import controlled
from mmlib.papers.entailment.data.controlled import THINGS, Bags
from mmlib.papers.entailment.method import metrics
from mmlib.papers.entailment.method.retrievers import hardest_triplet
from mmlib.papers.entailment.method.revision import Phase, Weak

NAMED = range(1, controlled.SHOWN + 1)


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(controlled, "COUNTS", {"train": 40, "test": 20, "judge": 10})
    monkeypatch.setattr(controlled, "PHASE", Phase(2, 8, 5e-3))


@pytest.mark.parametrize("named", NAMED)
def test_a_caption_is_true_where_all_that_it_names_is_shown(few, named):
    made = controlled.load(named)
    for split in made.splits.values():
        shown = [set(made.shown[row]) for row in split.rows]
        said = [set(text.split()) for text in split.texts]
        assert {len(things) for things in shown} == {4}
        assert {len(things) for things in said} == {named}
        assert set().union(*shown) <= set(THINGS)
        assert split.fits.tolist() == [[one <= things for one in said] for things in shown]
        pairs = Weak.true(split)
        assert list(zip(pairs.image, pairs.caption, strict=True)) == [
            (i, c) for i in range(len(shown)) for c in range(len(said))
            if i != c and said[c] <= shown[i]
        ]  # fmt: skip


def test_the_dial_says_how_many_pictures_a_caption_is_true_of_and_changes_no_picture():
    made = {named: controlled.load(named) for named in NAMED}
    for named, collection in made.items():
        split = collection.splits["train"]
        share = len(Weak.true(split)) / (len(split) * (len(split) - 1))
        assert share == pytest.approx(controlled.density(named), rel=0.05)
    assert made[1].shown == made[3].shown
    np.testing.assert_array_equal(made[1].table, made[3].table)
    assert controlled.load(1, seed=1).shown != made[1].shown
    with pytest.raises(ValueError, match="names 1 to 4 things, not 5"):
        controlled.load(5)


def test_regions_are_those_of_things_and_noise(few, monkeypatch):
    monkeypatch.setattr(controlled, "NOISE", 0.0)
    made, looks = controlled.load(1), {}
    for names, regions in zip(made.shown, made.table, strict=True):
        assert not regions[4:].any()
        looks.setdefault(names, set()).add(regions.sum(axis=0).round(3).tobytes())
    assert all(len(sums) == 1 for sums in looks.values())


def test_retrievers_have_the_losses_of_their_families_and_skip_padding():
    torch.manual_seed(0)
    images, same = torch.randn(3, 6, 24), torch.eye(3, dtype=torch.bool)
    same[0, 1] = True
    ids, lengths = torch.tensor([[4, 5], [6, 0], [7, 8]]), torch.tensor([2, 1, 2])
    for family, loss in (("dual", lambda c: in_batch_softmax(c / 0.07, same)),
                         ("triplet", lambda c: hardest_triplet(c, same))):  # fmt: skip
        model = Bags(family, 16)
        left = torch.stack([model.to_image(regions.mean(dim=0)) for regions in images])
        words = model.vectors.weight
        right = torch.stack([words[4] + words[5], words[6], words[7] + words[8]])
        cosines = torch.cosine_similarity(left[:, None], right[None], dim=2)
        torch.testing.assert_close(model.loss(images, ids, lengths, same), loss(cosines))
        torch.testing.assert_close(model.rank(images, ids, lengths)[0], cosines.detach().numpy())


def test_golden_pairs_only_know_nothing_of_the_others(few, monkeypatch):
    seen = {}
    monkeypatch.setattr(controlled, "train", lambda *given: seen.update({use: given[5]}))
    made = controlled.load(1)
    for use in ("golden only", "exclusion", "both"):
        assert controlled.trained(made, "dual", use, 0).shape == (20, 20)
    count = len(Weak.true(made.splits["train"]))
    held = {u: [r.weak and len(r.weak), len(r.golden), r.excluded and len(r.excluded)]
            for u, r in seen.items()}  # fmt: skip
    assert held == {"golden only": [None, 40, None], "exclusion": [None, 40, count],
                    "both": [count, 40, count]}  # fmt: skip
    mined = Weak.of(np.array([[0, 1], [2, 3]]))
    controlled.trained(made, "dual", "both", 0, mined)
    assert seen["both"].weak is mined is seen["both"].excluded
    with pytest.raises(ValueError, match="use 'weak' is not known"):
        controlled.trained(made, "dual", "weak", 0)


def test_labelled_pairs_are_foreign_and_half_of_them_true(few):
    split = controlled.load(1).splits["judge"]
    pairs = controlled.labelled_pairs(split, range(10), np.random.default_rng(0))
    assert len({tuple(pair) for pair in pairs}) == len(pairs)
    for picture in range(10):
        captions = pairs[pairs[:, 0] == picture, 1]
        assert picture not in captions
        true = split.fits[picture, captions]
        assert true.sum() == min(controlled.EACH, split.fits[picture].sum() - 1)
        assert (~true).sum() == controlled.EACH


def test_words_attend_to_what_is_like_them_and_the_worst_matched_counts():
    asked = torch.tensor([[[4.0, 1.0], [1.0, 4.0], [0.0, 0.0]]])  # two words and padding
    context = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    state, attention = controlled.compare(asked, context)
    weights = torch.exp(torch.tensor(3 / 2**0.5))
    assert attention[0, 0, 0] == pytest.approx(float(weights / (weights + 1)))
    matched = asked[0, :2] * (attention[0, :2] @ context[0])
    torch.testing.assert_close(state[0], matched.min(dim=0).values)


def test_a_judge_learns_from_labelled_pictures_and_both_inputs_beat_either():
    made = controlled.load(2)
    split, seen = made.splits["judge"], []
    held_out = range(controlled.LEARNT, len(split))
    pairs = controlled.labelled_pairs(split, held_out, np.random.default_rng(1))
    truth = split.fits[tuple(pairs.T)]

    def measure(model):
        odds = controlled.log_odds_of(model, made, split, pairs)
        seen.append({b: metrics.figure("ROC area", truth, odds[b], np.ones(len(pairs)))
                     for b in odds})  # fmt: skip

    controlled.train_judge(made, 0, measure)
    assert len(seen) == controlled.EPOCHS + 1
    assert max(abs(area - 50) for area in seen[0].values()) < 15
    assert seen[-1]["mm"] > max(80, seen[-1]["te"] - 2, seen[-1]["ve"] - 2)
