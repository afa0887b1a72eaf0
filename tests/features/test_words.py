"""Token states of a frozen BERT: what is kept goes by content; texts without tokens."""

import numpy as np
import pytest
import torch

from mmlib.core.errors import DataError
from mmlib.features import words
from mmlib.features.words import TokenStates, covered

transformers = pytest.importorskip("transformers")

WORDS = "[PAD] [UNK] [CLS] [SEP] a dog runs cat sleeps Dog".split()
TEXTS = ["a dog runs", "a Dog sleeps"]


def bert(folder, seed=0, lower=True, **config):
    """A BERT of one layer as it lies on a disk; `seed` of its weights."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.normalizer = normalizers.Lowercase() if lower else normalizers.NFC()
    special = [("[CLS]", 2), ("[SEP]", 3)]
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, special)
    torch.manual_seed(seed)
    settings = dict(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=32, initializer_range=0.5,
    )  # fmt: skip
    model = transformers.BertModel(transformers.BertConfig(**settings | config))
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def states(folder, cache, texts=TEXTS, **settings):
    return TokenStates.by(folder, texts, {}, cache, **settings).states


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"lower": False}, {"num_attention_heads": 4}], ids=str
)
def test_another_bert_of_equal_size_gets_its_own_states(tmp_path, change):
    """Weights, tokenizer or configuration."""
    old, new = bert(tmp_path / "old"), bert(tmp_path / "new", **change)
    sizes = [(folder / "model.safetensors").stat().st_size for folder in (old, new)]
    assert sizes[0] == sizes[1]
    first, second = states(old, tmp_path / "cache"), states(new, tmp_path / "cache")
    assert np.array_equal(second, states(new, tmp_path / "empty"))
    assert not np.array_equal(first, second)


def test_states_are_computed_once(tmp_path, monkeypatch):
    folder = bert(tmp_path / "bert")
    first = states(folder, tmp_path / "cache")
    made = sorted((tmp_path / "cache").iterdir())
    monkeypatch.setattr("mmlib.features.bert.BertEncoder.from_pretrained", None)
    assert np.array_equal(states(folder, tmp_path / "cache"), first)
    assert sorted((tmp_path / "cache").iterdir()) == made
    monkeypatch.setattr(words, "source_hash", lambda module: "of other code")
    with pytest.raises(TypeError):  # it is made anew
        states(folder, tmp_path / "cache")


def test_texts_that_join_to_the_same_are_told_apart(tmp_path):
    folder, cache = bert(tmp_path / "bert"), tmp_path / "cache"
    for texts in (["a dog\na cat"], ["a dog", "a cat"], ["a dog\n", "a cat"]):
        kept = TokenStates.by(folder, texts, {}, cache)
        assert [len(kept.ids(text)) for text in texts] == [len(text.split()) for text in texts]
    assert len(states(folder, cache, ["a dog"], most=1)) == 1


def test_a_text_without_tokens_is_like_no_other(tmp_path):
    kept = TokenStates.by(bert(tmp_path / "bert"), [*TEXTS, "\u2028"], {}, tmp_path / "cache")
    assert kept.ids("\u2028") == []
    with np.errstate(all="raise"):
        vectors = kept.sentences()
        none, dog = kept.units("\u2028"), kept.units("a dog runs")
        assert covered(none, dog) == covered(dog, none) == covered(none, none) == (0, 0, 0)
    assert not vectors["\u2028"].any()
    assert np.linalg.norm(vectors["a dog runs"]) == pytest.approx(1, abs=1e-3)


def test_what_cannot_be_read_is_named(tmp_path):
    folder, cache = bert(tmp_path / "bert"), tmp_path / "cache"
    (folder / "tokenizer.json").unlink()
    with pytest.raises(DataError, match=r"bert: lacks tokenizer\.json"):
        states(folder, cache)
