"""Figures of pairs against counting by hand; splits by group."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmlib.core.related import RelatedPairs, grouped_rows, hold_out
from mmlib.data import pair_figures as figures


def pairs_of(labels, image_of=None, relations=("P", "Q")):
    labels = np.array(labels, dtype=bool)
    image_of = np.arange(len(labels)) if image_of is None else np.array(image_of)
    return RelatedPairs(
        name="toy",
        split="train",
        texts=tuple(f"text {i}" for i in range(len(labels))),
        labels=labels,
        relations=relations,
        image_of=image_of,
        image_ids=tuple(f"i{i}" for i in range(image_of.max() + 1)),
    )


def test_rates_by_hand():
    pairs = pairs_of([[1, 0], [1, 0], [0, 1], [1, 1]])
    counts = figures.positives({"train": pairs})
    assert counts.loc["train"].to_dict() == {"P": 3, "Q": 2, "pairs": 4}
    assert figures.rates(counts).loc["train"].to_dict() == {"P": 0.75, "Q": 0.5}


def test_unknown_words():
    assert figures.unknown_words(["a b.", "c"], ["a d d.", "b c", "e"]) == {
        "test tokens": 8, "unknown test tokens": 3, "test texts with unknown tokens": 2,
    }  # fmt: skip


# --- Splits --------------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(0, 12), min_size=12, max_size=60),
    st.sampled_from([0.1, 0.2, 0.5]),
    st.integers(0, 5),
)
def test_groups_stay_together(groups, share, seed):
    groups = np.array(groups)
    try:
        retained, held = grouped_rows(groups, share, seed)
    except ValueError:
        assert np.bincount(groups).max() > (1 - share) * len(groups) - 5 or len(set(groups)) < 3
        return
    assert sorted([*retained, *held]) == list(range(len(groups)))
    assert not set(groups[retained]) & set(groups[held])
    assert len(held) >= share * len(groups) - 1e-6
    assert len(held) < share * len(groups) + np.bincount(groups).max()
    again = grouped_rows(groups, share, seed)
    assert np.array_equal(again[1], held)


def test_a_hold_out_shares_no_image_and_takes_the_share():
    pairs = pairs_of(np.eye(2, dtype=bool)[np.arange(200) % 2], np.arange(200) // 2)
    train, val = hold_out(pairs, 0.1, seed=3)
    assert (train.split, val.split) == ("train", "val")
    assert (len(train), len(val)) == (180, 20)
    assert not set(train.image_of) & set(val.image_of)
    assert val.texts == tuple(pairs.texts[int(text.split()[1])] for text in val.texts)
    assert hold_out(pairs, 0.1, seed=4)[1].texts != val.texts


def test_the_share_is_exact_where_groups_allow_it():
    """Seven of a hundred, though 0.07 * 100 is a little more than seven."""
    assert 0.07 * 100 > 7
    assert len(grouped_rows(np.arange(100), 0.07, 0)[1]) == 7
    for rows in (10, 50, 300):
        assert len(grouped_rows(np.arange(rows), 0.1, 0)[1]) == rows // 10


@pytest.mark.parametrize(
    ("groups", "share", "message"),
    [([1, 1, 1], 0.5, "1 groups are too few"), ([1, 2, 3], 0, "share of 0"), ([1, 2], 1, "of 1")],
)
def test_a_share_that_leaves_a_side_empty_is_refused(groups, share, message):
    with pytest.raises(ValueError, match=message):
        grouped_rows(np.array(groups), share, 0)
