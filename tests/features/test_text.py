"""Tokens, vocabulary, word vectors, and the sentence encoder."""

import gzip
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mmlib.core.errors import DataError
from mmlib.data.word_vectors import read_word_vectors
from mmlib.features import text as text_features

# --- Tokens and vocabulary -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sentence", "tokens"),
    [
        ("A Dog runs!! :)", ["a", "dog", "runs", "!", "!", ":)"]),
        ("don't STOP, 3.5 &amp; #tag", ["don't", "stop", ",", "3.5", "&", "#tag"]),
        ("two-tone\n car  .", ["two-tone", "car", "."]),
        ("He isn’t in a cafe\u0301…", ["he", "isn't", "in", "a", "café", "..."]),
        ("ＤＯＧ\u200bS &amp;amp; &men; 👨\u200d👦", ["dogs", "&", "&", "men", ";", "👨", "👦"]),
        ("", []),
        ("   ", []),
    ],
)
def test_tokens_are_those_of_a_lower_cased_tweet(sentence, tokens):
    assert text_features.tokenize(sentence) == tokens


@pytest.mark.parametrize(
    ("sentence", "tokens"),
    [
        ("A Dog runs", ["A", "Dog", "runs"]),
        ("the end .", ["the", "end", ".", ""]),
        ("the end ", ["the", "end", ""]),
        ("(two-tone)", ["", "(", "two-tone", ")", ""]),
        ("don't 3.5% and/or; a:b", ["don't", "3", ".", "5", "%", "and/or", ";", "a", ":", "b"]),
        ('say  "hi"!?', ["say", '"', "hi", '"', "!", "?", ""]),
        ("&amp;#8217;s *", ["", "&", "amp", ";", "#8217", ";", "s", "*", ""]),
        (r"1\xa0cup", ["1cup"]),  # escapes as they stand in the files: a backslash and letters
        (r"a \t b\tc", ["a", "", "", "b", "c"]),
        (r"a\nb", ["a", "b"]),
        ("a\tb\nc", ["a\tb\nc"]),  # true tabs and line ends separate nothing
        ("", [""]),
    ],
)
def test_spaced_tokens_are_those_of_the_authors_of_paper_01(sentence, tokens):
    assert text_features.spaced_tokens(sentence) == tokens
    assert text_features.spaced_tokens(sentence) == authors_tokens(sentence)


def authors_tokens(text):
    """The steps one after the other, as the specification of the paper lists them."""
    text = text.replace("\\" + "xa0", "")
    for mark in ",.;()?!&%:*" + '"':
        text = text.replace(mark, f" {mark} ")
    while "  " in text:
        text = text.replace("  ", " ")
    text = text.replace("\\" + "t", " ")
    return [word for section in text.split("\\" + "n") for word in section.split(" ")]


@settings(max_examples=200, deadline=None)
@given(st.text("ab-'/ .,;()?!&%:*\"\\ntx0", max_size=30))
def test_spaced_tokens_step_by_step(text):
    assert text_features.spaced_tokens(text) == authors_tokens(text)


def test_words_stand_by_falling_count_then_name():
    sentences = [["b", "c", "a"], ["c", "a", "b"], ["c", "d", "<pad>", "<unk>"]]
    for count, words in ((1, "cabd"), (2, "cab"), (3, "c")):
        assert text_features.Vocabulary.from_sentences(sentences, count).words == (
            "<pad>",
            "<unk>",
            *words,
        )
    assert text_features.Vocabulary.from_sentences([["five"] * 5, ["four"] * 4]).words[2:] == (
        "five",
    )


def test_encoding_keeps_the_first_words_and_pads_behind():
    vocabulary = text_features.Vocabulary(("<pad>", "<unk>", "a", "b"))
    ids, lengths = vocabulary.encode([["b", "a", "b", "a"], ["zebra", "a"], []], max_words=3)
    assert ids.tolist() == [[3, 2, 3], [1, 2, 0], [1, 0, 0]]
    assert lengths.tolist() == [3, 2, 1]
    assert ids.dtype == lengths.dtype == torch.int64
    nothing, none = vocabulary.encode([], 5)
    assert (nothing.shape, none.shape) == ((0, 0), (0,))


# --- Word vectors ----------------------------------------------------------------------------

WORDS = text_features.Vocabulary(("<pad>", "<unk>", *(f"w{i}" for i in range(200))))


@pytest.mark.parametrize(("vectors", "bound"), [(None, 0.02), ({"w3": np.ones(30)}, 0.2)])
def test_words_without_a_vector_start_uniform(vectors, bound):
    table = text_features.embedding_matrix(WORDS, 30, seed=0, vectors=vectors)
    assert table.shape == (202, 30)
    assert table.dtype == torch.float32
    drawn = table[[i for i in range(202) if i != 5]]  # w3 stands in row 5
    assert drawn.abs().max() <= bound
    assert drawn.std().item() == pytest.approx(bound / 3**0.5, rel=0.05)
    assert (table[5] == 1).all() == (vectors is not None)
    assert torch.equal(table, text_features.embedding_matrix(WORDS, 30, 0, vectors))
    assert not torch.equal(table, text_features.embedding_matrix(WORDS, 30, 1, vectors))
    with pytest.raises(ValueError, match=r"'w3' has shape \(4,\).*set word_width"):
        text_features.embedding_matrix(WORDS, 8, 0, {"w3": np.ones(4)})


def test_mean_vectors_skip_unknown_words():
    vectors = {"a": np.array([1.0, 3.0]), "b": np.array([3.0, 1.0])}
    result = text_features.mean_word_vectors([["a", "zebra", "b"], ["zebra"], []], vectors)
    assert result.tolist() == [[2, 2], [0, 0], [0, 0]]
    assert text_features.mean_word_vectors([], vectors).shape == (0, 2)


TRAIN = """
import hashlib, numpy as np
from mmlib.features.text import train_word2vec
rng = np.random.default_rng(0)
pairs = [("cat", "purrs"), ("dog", "barks")]
sentences = [list(pairs[i % 2]) + [f"w{rng.integers(30)}"] for i in range(400)]
vectors = train_word2vec(sentences, width=12, seed=5, epochs=3)
digest = hashlib.sha256(b"".join(vectors[w].tobytes() for w in sorted(vectors))).hexdigest()
"""


def test_word2vec_does_not_depend_on_the_process():
    """Python hashes strings with another salt in each process."""
    near: dict = {}
    exec(TRAIN, near)
    far = subprocess.run(
        [sys.executable, "-c", TRAIN + "print(digest)"], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONHASHSEED": "123"},
    ).stdout.strip()  # fmt: skip
    assert near["digest"] == far
    vectors = near["vectors"]
    assert set(vectors) == {w for s in near["sentences"] for w in s}  # rare words too
    assert all(v.shape == (12,) and v.dtype == np.float32 for v in vectors.values())
    second = text_features.train_word2vec(near["sentences"], width=12, seed=6, epochs=3)
    assert not np.allclose(second["cat"], vectors["cat"])


@pytest.mark.parametrize("start", ["", "2 3\n", "\ufeff", "\ufeff2 3\n", "binary"])
def test_word_vectors_are_read_with_and_without_a_header_and_a_mark(tmp_path, start):
    path = tmp_path / ("v.bin" if start == "binary" else "glove.txt")
    if start == "binary":
        path.write_bytes(binary_vectors(words=("dog", "Été")))
    else:
        spaced = ". . . 7 8 9\nat name@domain.com 7 8 9\n" * (not start.endswith("3\n"))
        path.write_text(f"{start}dog 1 2 3\nÉté 4 5 6\n{spaced}", encoding="utf-8")
    result = read_word_vectors(path, {"dog", "Été", "cow"})
    assert {word: v.tolist() for word, v in result.items()} == {"dog": [1, 2, 3], "Été": [4, 5, 6]}


def binary_vectors(values=((1, 2, 3), (4, 5, 6)), header=b"2 3\n", words=("dog", "cat")):
    rows = zip(words, np.array(values, dtype=np.float32), strict=True)
    return header + b"".join(word.encode() + b" " + row.tobytes() for word, row in rows)


SOUND = binary_vectors()
NO_TEXT, NO_BINARY = "no table of word vectors as text", "no table of word vectors in word2vec's"


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("v.txt", b"", NO_TEXT),
        ("v.txt", b"dog 1 2 3\ncow 1 2\n", NO_TEXT),
        ("v.txt", b"dog 1 2 3\nc\xe9w 1 2 3\n", NO_TEXT),
        ("v.txt", b"2 3\ndog 1 2 3\n", NO_TEXT),
        ("v.txt", b"dog 1 nan 3\n", "the vector of 'dog' is not finite"),
        ("v.bin", SOUND[:-7], NO_BINARY),
        ("v.bin", gzip.compress(SOUND, mtime=0), NO_BINARY),
        ("v.txt", b"2 2\ndog 1 2\n", f"{NO_TEXT}: its header counts 2 words, but there are 1"),
        ("v.txt", b"1 2\na 1 2\nb 3 4\n", f"{NO_TEXT}: its header counts 1 words, but .* 2"),
        ("v.txt", b"2 4\ndog 1 2 3\ncow 1 2 3\n", f"{NO_TEXT}: row 1 has not a word and 4 numbers"),
        ("v.txt", b"2 2\ndog 1 2 3\ncow 1 2 3\n", "none of 1 words is among its 2"),
        *(("v.bin", binary_vectors(header=b"%d 3\n" % n), f"{NO_BINARY}.* {n} words, but .* 2")
          for n in (0, 1, 3)),
        ("v.bin", binary_vectors(header=b"2 4\n"), NO_BINARY),
        ("v.bin", binary_vectors(header=b"99999999999999 300\n"), NO_BINARY),
        ("v.bin", binary_vectors([[1, np.inf, 2]] * 2), "the vector of 'dog' is not finite"),
    ],
)  # fmt: skip
def test_damaged_word_vectors_are_named(tmp_path, name, content, problem):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"{name}: {problem}.*\((unzip it, or )?get it again\)"):
        read_word_vectors(path, {"dog"})
