"""Captions with two things exchanged: read by hand, and the measure against a loop."""

from dataclasses import replace

import numpy as np
import pytest
import tiny_cora
import torch

from mmlib.papers.cora import method
from mmlib.papers.cora.data.swaps import as_plausible, plausibility, swap, swap_all
from mmlib.papers.cora.run.batches import Split, training_batches
from mmlib.scenegraph import attributes, from_authors, objects, phrase, relations

ENDS = ("attributes", "name")


def graph(text, things, *related):
    """things: "brown dog" is a dog with one attribute; related: (subject, words, by, object)."""
    entities = [
        {"id": i, "name": words[-1], "attributes": [[0, word, []] for word in words[:-1]]}
        for i, words in enumerate(thing.split() for thing in things)
    ]
    ties = [[s, o, words.split(), by] for s, words, by, o in related]
    return from_authors({"caption": text, "entities": entities, "relations": ties})


CHASE = graph(
    "A brown dog chases an orange cat .", ["brown dog", "orange cat"], (0, "chases", "", 1)
)


@pytest.mark.parametrize(("how", "expected", "things"), [
    ((ENDS[:1], ""), "an orange dog chases a brown cat .", ["orange dog", "brown cat"]),
    ((ENDS[:1], "colours"), "an orange dog chases a brown cat .", ["orange dog", "brown cat"]),
    ((ENDS[1:], ""), "a brown cat chases an orange dog .", ["brown cat", "orange dog"]),
    ((ENDS, "animate"), "an orange cat chases a brown dog .", ["orange cat", "brown dog"]),
])  # fmt: skip
def test_two_things_are_exchanged_in_words_and_graph_alike(how, expected, things):
    text, swapped = swap(CHASE, *how)
    said = [[phrase(swapped, n) for n in (*attributes(swapped, i), i)] for i in objects(swapped)]
    assert text == swapped.graph["text"] == expected
    assert [" ".join(words) for words in said] == things
    assert [(s, o, data["label"]) for s, o, data in relations(swapped)] == [(0, 1, "chases")]


@pytest.mark.parametrize(("fields", "caption"), [
    (ENDS[:1], graph("a red dog and a red cat", ["red dog", "red cat"])),
    (ENDS[:1], graph("a grey dog and a gray cat", ["grey dog", "gray cat"])),
    (ENDS[:1], graph("a black dog and a white dog", ["black dog", "white dog"])),
    (ENDS[:1], graph("two dogs and a red cat", ["two dogs", "red cat"])),
    (ENDS[1:], graph("a man and a dog run", ["man", "dog"])),
    (ENDS[1:], graph("a dog chases two cats", ["dog", "two cats"])),
    (ENDS[1:], graph("a dog on a dog by a cat", ["dog", "dog", "cat"])),
    (ENDS[1:], graph("a man in blue", ["man", "blue"])),
    (ENDS[1:], graph("a man watches another", ["man", "another"])),
    (ENDS, graph("the arm of a man", ["arm", "man"], (0, "of", "", 1))),
    (ENDS, graph("a game similar to a test", ["game", "test"], (0, "similar to", "", 1))),
    (ENDS, graph("a man stands near the dog", ["man", "dog"], (0, "stands", "near", 1))),
])  # fmt: skip
def test_what_may_still_be_true_or_is_bad_english_is_left_out(fields, caption):
    assert swap(caption, fields) is None


def test_each_kind_knows_its_captions():
    texts, graphs, of = swap_all([graph("a dog", ["dog"]), CHASE])
    assert [rows.tolist() for rows in of.values()] == [[-1, i] for i in range(5)]
    assert texts == [each.graph["text"] for each in graphs]


def test_the_share_right_is_that_of_a_loop():
    rng = np.random.default_rng(0)
    images, captions, swapped = (rng.normal(size=(n, 3)) for n in (2, 4, 3))
    swapped[1] = captions[3]
    image_of, swaps = np.array([0, 0, 1, 1]), {"ends": np.array([0, -1, 2, 1])}
    encoded = method.Encoded(images, captions, image_of, None, None)
    split = Split(images, image_of, {}, swaps)
    assert split.image_of_swaps.tolist() == [0, 1, 1]
    other = replace(encoded, captions=swapped, image_of=split.image_of_swaps).own
    found = method.swap_values(encoded.own, other, swaps, len(images))["swap ends"]
    expected = [np.nan] * 6
    for c, row in enumerate(swaps["ends"]):
        if row >= 0:
            own, other = images[image_of[c]] @ captions[c], images[image_of[c]] @ swapped[row]
            expected[c] = 50 if row == 1 else 100 if own > other else 0
    assert found == pytest.approx(expected, nan_ok=True)


def test_trigrams_know_what_captions_say_and_half_of_what_is_as_plausible():
    said = ["a dog chases a cat"] * 3 + ["a cat sleeps", "an owl"]
    likely, unlikely, twice = plausibility(["a dog chases", "a cat chases", "a dog chases"], said)
    assert likely == twice > unlikely > -np.inf
    assert np.isfinite(plausibility(["an elk chases"], said)).all()
    own, other = np.array([0, 5.0, 1, 2, 3]), np.array([0, 4.0, 3, -7, 9])
    kept = as_plausible(own, other, np.array([-1, 1, 2, 0, 3]))
    assert kept.tolist() == [-1, -1, 2, 0, -1]  # leads +1, -2, +2 and +10: +2 is -2's partner


def test_swaps_are_negatives_of_their_captions_in_training():
    split = tiny_cora.paired()
    count = len(split.image_of)
    rows = np.where(np.arange(count) % 3, np.arange(count), -1)  # each third has none
    split = replace(
        split, swaps={"ends": rows, "nouns": np.full(count, -1)},
        texts=split.texts | {"graph, swapped": split.texts["graph"]},
    )  # fmt: skip
    model = tiny_cora.model_of(tiny_cora.HOW, swapped=True)
    settings = replace(tiny_cora.HOW, captions=2)
    draw = training_batches(model.system, settings, split, split.texts["graph"], seed=0)
    (batch,) = draw(0)
    captions, wrong = (model.encode_texts(text)[0] for text in (batch.text, batch.swapped))
    assert torch.allclose(wrong, captions[batch.of_swapped], atol=1e-6)
    assert len(batch.of_swapped) == (rows >= 0).sum()
    # Here a swap is the caption itself: its lead is 0, so it costs the margin.
    plain = model.loss(replace(batch, swapped=None, of_swapped=None))
    assert (model.loss(batch) - plain).item() == pytest.approx(model.system.margin, abs=1e-5)


def test_a_bag_cannot_tell_a_swap_and_a_graph_can():
    described = [([("dog", "red"), ("fence", "tall")], [(0, "jump over", 1)])]
    other = [([("fence", "tall"), ("dog", "red")], [(0, "jump over", 1)])]
    for text, alike in (("bag", True), ("graph", False)):
        model = tiny_cora.model_of(text=text, entities=False, losses="HARD")
        a, b = (model.encode_texts(tiny_cora.whole(d))[0] for d in (described, other))
        assert bool((a - b).abs().max() < method.ROUNDING) == alike
