"""From samples to batches against loops over single samples."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import tiny_entailment as tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mmlib.core.entailment_pairs import Samples
from mmlib.features.words import Words, padded
from mmlib.papers.entailment.batches import RUN, encode, shuffled_batches

PAD, CLS, SEP, UNKNOWN = 0, 1, 2, 3  # as in the docstrings; not taken from the code under test
DELTA = {"te": (1, 0, 0), "ve": (0, 1, 0), "mme": (1, 1, 1)}
VOCABULARY = ("dog", "cat", "runs", "sleeps", "a", "red", ".")
IMAGES = np.random.default_rng(0).normal(size=(6, 3, 4))
few = settings(max_examples=40, deadline=None)


def samples_of(seed, n=9):
    """Samples of all kinds with texts of 1 to 9 words, a few of them unknown."""
    rng = np.random.default_rng(seed)
    kinds = tuple(rng.choice(["te", "ve", "mme"], n))

    def text():
        return " ".join(rng.choice([*VOCABULARY, "zebra"], int(rng.integers(1, 10))))

    return Samples(
        premise=tuple("" if kind == "ve" else text() for kind in kinds),
        hypothesis=tuple(text() for _ in kinds),
        image=np.array([-1 if kind == "te" else rng.integers(6) for kind in kinds]),
        label=rng.integers(0, 2, n), kind=kinds, source=("toy",) * n, group=("toy",) * n,
    )  # fmt: skip


def number(text):
    return [4 + VOCABULARY.index(w) if w in VOCABULARY else UNKNOWN for w in text.split()]


class Letters:
    """Another reader: a token a letter."""

    def ids(self, text):
        return [4 + ord(letter) for letter in text]

    def __len__(self):
        return 4 + 256


# --- Words ---------------------------------------------------------------------------------------


def test_words_are_numbered_after_the_special_tokens():
    words = Words(["dog", "runs", "."])
    assert words.ids("Dog RUNS, dog.") == [4, 5, UNKNOWN, 4, 6]
    assert words.ids("") == []
    assert len(words) == 7  # ids 0 to 6
    assert Words([]).ids("dog") == [UNKNOWN]


def test_words_of_texts_are_those_seen_often_enough():
    texts = ["A dog runs", "a cat runs", "A bird"]
    every = Words.of(texts)
    assert sorted(every.words) == ["a", "bird", "cat", "dog", "runs"]
    assert sorted(i for word in every.words for i in every.ids(word)) == [4, 5, 6, 7, 8]
    twice = Words.of(texts, min_count=2)
    assert set(twice.words) == {"a", "runs"}
    assert len(twice) == 6
    assert twice.ids("dog") == [UNKNOWN]
    assert min(twice.ids("a runs")) == 4  # the vocabulary's own word for unknown takes no place


def test_an_unknown_word_is_never_a_special_token():
    assert Words.of(["dog"]).ids("[CLS] [SEP] [PAD] <unk>").count(UNKNOWN) >= 4
    for word in ("[CLS]", "[SEP]", "[PAD]"):
        assert not {PAD, CLS, SEP} & set(Words.of(["dog"]).ids(word))


def test_padded_by_hand():
    table, lengths = padded([[5, 6, 7], [], [8]])
    assert table.tolist() == [[5, 6, 7], [0, 0, 0], [8, 0, 0]]
    assert lengths.tolist() == [3, 0, 1]
    assert padded([])[0].shape == (0, 0)


# --- Encoding and batches ------------------------------------------------------------------------


@few
@given(st.integers(0, 2**31), st.integers(1, 9), st.integers(1, 9), st.booleans())
def test_a_batch_is_the_loop_over_single_samples(seed, most, short, letters):
    """Also: rows in any order and twice, pads, kinds of tokens, cut texts, the black image."""
    samples = samples_of(seed)
    pair = Letters() if letters else Words(VOCABULARY)
    encoded = encode(samples, pair, Words(VOCABULARY), most, short)
    assert len(encoded) == 9
    rows = np.random.default_rng(seed).integers(0, 9, 5)
    batch = encoded.batch(rows, IMAGES)
    read = pair.ids if letters else number
    for at, row in enumerate(rows):
        first = [CLS, *read(samples.premise[row])[:most], SEP]
        second = [*read(samples.hypothesis[row])[:short], SEP]
        words = [CLS, *number(samples.hypothesis[row])[:short], SEP]
        n = len(first) + len(second)
        assert batch.pair[at].tolist()[:n] == first + second
        assert batch.pair[at].tolist()[n:] == [PAD] * (batch.pair.shape[1] - n)
        assert batch.pair_mask[at].tolist() == [1] * n + [0] * (batch.pair.shape[1] - n)
        assert batch.pair_type[at].tolist()[:n] == [0] * len(first) + [1] * len(second)
        assert set(batch.pair_type[at].tolist()[n:]) <= {0, 1}
        left = batch.words.shape[1] - len(words)
        assert batch.words[at].tolist() == words + [PAD] * left
        assert batch.words_mask[at].tolist() == [1] * len(words) + [0] * left
        picture = np.zeros((3, 4)) if samples.kind[row] == "te" else IMAGES[samples.image[row]]
        assert np.array_equal(batch.images[at].numpy(), picture.astype(np.float32))
        assert batch.labels[at] == samples.label[row]
        assert tuple(batch.counted[at].tolist()) == DELTA[samples.kind[row]]
    longest = max(int(batch.pair_mask[at].sum()) for at in range(5))
    assert batch.pair.shape == (5, longest)
    assert batch.words.shape[1] == max(int(batch.words_mask[at].sum()) for at in range(5))


def test_an_empty_premise_and_types_of_numbers():
    samples = Samples(
        ("", "a dog"), ("cat", "cat"), np.array([2, -1]), np.array([1, 0]), ("ve", "te"),
        ("toy",) * 2, ("x",) * 2,
    )  # fmt: skip
    encoded = encode(samples, Words(VOCABULARY), Words(VOCABULARY))
    batch = encoded.batch(np.array([0, 1]), IMAGES.astype(np.float16))
    assert batch.pair.tolist() == [[1, 2, 5, 2, 0, 0], [1, 8, 4, 2, 5, 2]]
    assert batch.pair_type[1].tolist() == [0, 0, 0, 0, 1, 1]
    assert not batch.images[1].any()
    assert batch.images.dtype == torch.float32
    whole = (batch.pair, batch.pair_mask, batch.pair_type, batch.words, batch.labels, batch.counted)
    assert {value.dtype for value in whole} == {torch.int64}


def test_texts_are_cut_only_beyond_the_limit():
    samples = samples_of(1)
    samples = Samples(
        ("dog " * 120, "dog " * 121), ("cat " * 30, "cat " * 31), *(
            getattr(samples.take([0, 0]), name)
            for name in ("image", "label", "kind", "source", "group")
        ),
    )  # fmt: skip
    words = Words(VOCABULARY)
    encoded = encode(samples, words, words)  # 120 and 30 by default, the paper's
    assert encoded.pair_length.tolist() == [153, 153]
    assert encoded.words_length.tolist() == [32, 32]
    assert encoded.pair[1].tolist() == encoded.pair[0].tolist()


def test_every_sample_counts_for_a_single_stream():
    """Its one loss is that of all kinds; of the others the indicators of equation 12 decide."""
    arrays = tiny.arrays()
    settings = tiny.BUDGET.judge.classifier
    counted = arrays.encoded(arrays.train, settings).counted
    assert counted.tolist() == [list(DELTA[kind]) for kind in arrays.train.samples.kind]
    single = arrays.encoded(arrays.train, replace(settings, model="single"))
    assert (single.counted == 1).all()


# --- Shuffled batches ----------------------------------------------------------------------------


@few
@given(st.integers(0, 500), st.integers(1, 40), st.integers(0, 2**31))
def test_every_row_is_in_one_batch(n, size, seed):
    lengths = np.random.default_rng(seed).integers(1, 90, n)
    batches = list(shuffled_batches(lengths, size, np.random.default_rng(seed)))
    assert sorted(int(row) for rows in batches for row in rows) == list(range(n))
    assert len(batches) == -(-n // size)
    assert sum(len(rows) != size for rows in batches) == (n % size > 0)
    again = shuffled_batches(lengths, size, np.random.default_rng(seed))
    assert [rows.tolist() for rows in again] == [rows.tolist() for rows in batches]


def test_rows_of_one_length_come_together_but_in_random_order():
    lengths = np.random.default_rng(0).integers(1, 90, 8 * RUN)
    batches = list(shuffled_batches(lengths, 8, np.random.default_rng(1)))
    ranges = sorted((lengths[rows].min(), lengths[rows].max()) for rows in batches)
    assert all(above <= below for (_, above), (below, _) in pairwise(ranges))
    starts = [lengths[rows].min() for rows in batches]
    assert starts != sorted(starts)
    other = list(shuffled_batches(lengths, 8, np.random.default_rng(2)))
    assert {frozenset(rows) for rows in other} != {frozenset(rows) for rows in batches}


def test_batches_are_drawn_from_all_rows():
    """Longer sets are sorted in runs: rows far apart in the set meet, and partners change."""
    lengths = np.full(4 * 3 * RUN, 7)
    batches = list(shuffled_batches(lengths, 4, np.random.default_rng(0)))
    spans = [rows.max() - rows.min() for rows in batches]
    assert np.mean(spans) > len(lengths) / 3
    with pytest.raises(StopIteration):
        next(shuffled_batches(np.array([], dtype=int), 4, np.random.default_rng(0)))
