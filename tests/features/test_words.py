"""Token states of a frozen BERT: what is kept goes by content; texts without tokens."""

import numpy as np
import pytest
from test_bert import write_bert

from mmlib.core.errors import DataError
from mmlib.features import words
from mmlib.features.bert import BertEncoder
from mmlib.features.words import TokenStates, covered

TEXTS = ["a dog runs", "a Dog jumps"]


def states(folder, cache, texts=TEXTS, **settings):
    return TokenStates.by(folder, texts, {}, cache, **settings).states


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"lower": False}, {"num_attention_heads": 8}], ids=str
)
def test_another_bert_of_equal_size_gets_its_own_states(tmp_path, change):
    """Weights, tokenizer or configuration."""
    old, new = write_bert(tmp_path / "old"), write_bert(tmp_path / "new", **change)
    sizes = [(folder / "model.safetensors").stat().st_size for folder in (old, new)]
    assert sizes[0] == sizes[1]
    first, second = states(old, tmp_path / "cache"), states(new, tmp_path / "cache")
    assert np.array_equal(second, states(new, tmp_path / "empty"))
    assert not np.array_equal(first, second)


def test_states_are_computed_once(tmp_path, monkeypatch):
    folder = write_bert(tmp_path / "bert")
    first = states(folder, tmp_path / "cache")
    alone, _ = BertEncoder.from_pretrained(folder, "frozen").token_states_all(TEXTS[:1])
    np.testing.assert_allclose(first[:3], alone, atol=2e-3)
    made = sorted((tmp_path / "cache").iterdir())
    monkeypatch.setattr("mmlib.features.bert.BertEncoder.from_pretrained", None)
    assert np.array_equal(states(folder, tmp_path / "cache"), first)
    assert sorted((tmp_path / "cache").iterdir()) == made
    monkeypatch.setattr(words, "source_hash", lambda module: "of other code")
    with pytest.raises(TypeError):  # it is made anew
        states(folder, tmp_path / "cache")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(DataError, match=r"bert: lacks tokenizer\.json"):
        states(folder, tmp_path / "cache")


def test_texts_that_join_to_the_same_are_told_apart(tmp_path):
    folder, cache = write_bert(tmp_path / "bert"), tmp_path / "cache"
    for texts in (["a dog\na cat"], ["a dog", "a cat"], ["a dog\n", "a cat"]):
        token_states = TokenStates.by(folder, texts, {}, cache)
        assert [len(token_states.ids(text)) for text in texts] == [
            len(text.split()) for text in texts
        ]
    assert len(states(folder, cache, ["a dog"], most=1)) == 1


def test_a_text_without_tokens_is_like_no_other(tmp_path):
    token_states = TokenStates.by(
        write_bert(tmp_path / "bert"), [*TEXTS, "\u2028"], {}, tmp_path / "cache"
    )
    assert token_states.ids("\u2028") == []
    with np.errstate(all="raise"):
        vectors = token_states.sentences()
        none, dog = token_states.units("\u2028"), token_states.units("a dog runs")
        assert covered(none, dog) == covered(dog, none) == covered(none, none) == (0, 0, 0)
    assert not vectors["\u2028"].any()
    assert np.linalg.norm(vectors["a dog runs"]) == pytest.approx(1, abs=1e-3)
