"""The small BERT that ships with the world, as transformers reads it."""

import json

import numpy as np
import pytest
from safetensors import safe_open

from mmlib import world
from mmlib.features.bert import BertEncoder
from mmlib.features.words import SPECIAL, Words
from mmlib.papers.entailment.data.world import RETRIEVERS
from mmlib.world.captions import captions
from mmlib.world.scenes import sample_scene, split_seeds


@pytest.fixture(scope="module")
def texts():
    scenes = [sample_scene(seed) for seed in split_seeds("test", 60, 0)]
    return [caption.text for scene in scenes for caption in captions(scene, 0)]


@pytest.fixture(scope="module")
def encoder():
    return BertEncoder.from_pretrained(world.BERT, "frozen")


def test_its_tokens_are_the_words_that_its_retriever_knows(texts, encoder):
    words = Words(json.loads(safe_open(RETRIEVERS, "pt").metadata()["words"]))
    read = encoder.tokenizer(texts)["input_ids"]
    first, last = (SPECIAL.index(token) for token in ("[CLS]", "[SEP]"))
    assert read == [[first, *words.ids(text), last] for text in texts]
    unknown = sum(ids.count(SPECIAL.index("[UNK]")) for ids in read)
    assert unknown < sum(map(len, read)) / 1000
    assert encoder.tokenizer.convert_tokens_to_ids("[MASK]") == len(words)


def test_captions_of_one_scene_are_near_each_other(texts, encoder):
    states, lengths = encoder.token_states_all(texts)
    vectors = np.add.reduceat(states.astype(np.float32), lengths.cumsum() - lengths)
    vectors -= vectors.mean(axis=0)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    alike = vectors @ vectors.T
    np.fill_diagonal(alike, -1)
    same = alike.argmax(axis=1) // 5 == np.arange(len(texts)) // 5
    assert same.mean() > 10 * 4 / (len(texts) - 1)  # ten times what chance finds
