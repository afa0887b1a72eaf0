from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from caption_graphs import CAT, COW, DOG, graph, node
from sklearn.metrics import roc_auc_score

from mmlib import world as pictures
from mmlib.papers.entailment.data import premises
from mmlib.papers.entailment.data.edits import editable
from mmlib.papers.entailment.data.hypotheses import (
    entailment_set,
    false_negatives,
    hypotheses,
    noisy,
)
from mmlib.papers.entailment.run.systems import EDITS
from mmlib.world.logic import entails, satisfies
from mmlib.world.scenes import check_scene, sample_scene, split_seeds
from mmlib.world.words import COLOUR_WORDS


def follows(captions, hypothesis):
    return any(entails(graph, hypothesis) for graph in premises.joint(captions))


@pytest.fixture(scope="module")
def world():
    return entailment_set("train", 100)


@pytest.fixture(scope="module")
def scenes():
    return [sample_scene(seed) for seed in split_seeds("test", 1000, 3)]


def samples_of(world, *forms):
    """Form, label, the scene, what its captions say and what the hypothesis says, of samples."""
    for i, (form, label) in enumerate(zip(world.samples.kind, world.samples.label, strict=True)):
        row = world.scene_of[i]
        if form in (forms or ("te", "ve", "mme")):
            captions = [caption.graph for caption in world.captions[row]]
            yield form, label, world.scenes[row], captions, world.hypotheses[i].graph


# --- What follows from captions ---

RED, BROWN = ("colour", "red"), ("colour", "brown")


@pytest.mark.parametrize(
    ("captions", "hypothesis", "holds"),
    [
        # Facts of different captions may be of different things.
        ([graph([DOG]), graph([node("animal", BROWN)])], graph([node("dog", BROWN)]), False),
        ([graph([node("dog", BROWN, ("size", "small"))])], graph([node("dog", BROWN)]), True),
        # Things of different captions may be one thing ...
        ([graph([DOG]), graph([node("dog", BROWN)])], graph([DOG, DOG]), False),
        ([graph([DOG]), graph([node("animal")])], graph([node("animal")] * 2), False),
        ([graph([DOG, DOG])], graph([node("animal")] * 2), True),
        # ... unless nothing is both.
        ([graph([DOG]), graph([CAT])], graph([DOG, CAT]), True),
        ([graph([DOG]), graph([CAT])], graph([node("animal")] * 2), True),
        ([graph([DOG]), graph([CAT])], graph([node("animal")] * 3), False),
        ([graph([node("dog", RED)]), graph([node("dog", BROWN)])], graph([DOG, DOG]), True),
        ([graph([DOG, CAT], (0, "chasing", 1)), graph([node("dog", ("action", "sitting"))])],
         graph([DOG, DOG]), True),  # who chases runs
        # Relations stay within a caption, also when one of its things is needed twice.
        ([graph([DOG, CAT], (0, "left of", 1)), graph([CAT, COW], (0, "left of", 1))],
         graph([DOG, COW], (0, "left of", 1)), False),
        ([graph([DOG, CAT, COW], (0, "left of", 1), (1, "left of", 2))],
         graph([COW, DOG], (0, "right of", 1)), True),
        # Place and style are the picture's.
        ([graph([DOG]), graph([CAT], setting="park")], graph([DOG], setting="park"), True),
        ([graph([DOG]), graph([CAT], style="sketch")], graph([DOG], setting="park"), False),
        ([], graph([]), True),
        ([], graph([DOG]), False),
    ],
)  # fmt: skip
def test_what_follows_by_hand(captions, hypothesis, holds):
    assert follows(captions, hypothesis) is holds


def test_entailed_hypotheses_hold_wherever_the_captions_do(world, scenes):
    tried = 0
    for _, label, _, captions, hypothesis in samples_of(world, "te"):
        for scene in scenes if label else ():
            if all(satisfies(scene, caption) for caption in captions):
                tried += 1
                assert satisfies(scene, hypothesis), scene
    assert tried > 200


def test_a_scene_refutes_what_is_called_not_entailed(world):
    for _, label, scene, captions, hypothesis in samples_of(world, "te"):
        if not label:
            refuting = premises.counter_scene(scene, captions, hypothesis)
            check_scene(refuting)
            assert all(satisfies(refuting, caption) for caption in captions)
            assert not satisfies(refuting, hypothesis)


# --- The labels ---


def test_labels_are_those_of_logic(world):
    for i, (form, label, scene, captions, hypothesis) in enumerate(samples_of(world)):
        true, entailed = satisfies(scene, hypothesis), follows(captions, hypothesis)
        assert world.hypotheses[i].truth == true
        assert all(satisfies(scene, caption) for caption in captions)
        assert label == (entailed if form == "te" else true)
        assert true or not entailed


def test_the_forms_have_what_they_should(world):
    samples = world.samples
    for i, form in enumerate(samples.kind):
        row = world.scene_of[i]
        assert samples.image[i] == (-1 if form == "te" else row)
        assert samples.premise[i] == ("" if form == "ve" else premises.merged(world.captions[row]))
        assert samples.group[i].endswith(f"{world.scenes[row].seed % 10**10:06d}")
        if form == "te" and samples.label[i] == 0:
            assert samples.hypothesis[i] not in samples.premise[i].split(". ")


def test_colours_of_black_and_white_pictures_decide_nothing(world):
    coloured = 0
    for _, label, scene, _, hypothesis in samples_of(world, "ve", "mme"):
        if scene.style == "black and white":
            coloured += any(name == "colour" for n in hypothesis.nodes for name, _ in n.facts)
            for colour in COLOUR_WORDS:
                things = tuple(replace(thing, colour=colour) for thing in scene.things)
                assert satisfies(replace(scene, things=things), hypothesis) == label
    assert coloured


def test_hypotheses_do_not_give_themselves_away(world):
    rows = [i for i, form in enumerate(world.samples.kind) if form != "te"]
    drawn = [world.hypotheses[i] for i in rows]
    for value in (
        lambda one: len(one.text.split()), lambda one: len(one.graph.nodes),
        lambda one: len(one.graph.edges), lambda one: one.graph.setting is not None,
    ):  # fmt: skip
        assert abs(roc_auc_score(world.samples.label[rows], list(map(value, drawn))) - 0.5) < 0.09


# --- Edits ---


@pytest.fixture(scope="module")
def many(scenes):
    rng = np.random.default_rng(0)
    return [
        (scene, hypotheses(scene, rng, scenes[k + 1 : k + 5], each=2))
        for k, scene in enumerate(scenes[:50])
    ]


def test_hypotheses_come_from_all_sources_with_their_truth(many):
    found = Counter()
    for scene, some in many:
        for one in some:
            found[one.edit, one.truth] += 1
            assert one.truth == satisfies(scene, one.graph)
    assert {edit for edit, _ in found} == {"own", "general", "foreign", *EDITS}
    assert not any(found[edit, False] for edit in ("own", "general"))
    for edit in (*EDITS, "foreign"):
        assert found[edit, False] > 10 * found[edit, True], edit
    # Some edits come out true, and are called so: else this would test nothing.
    assert sum(found[edit, True] for edit in EDITS) > 5


def test_edits_change_one_thing_in_few_words(many):
    seen = Counter()
    for _, some in many:
        for one in some:
            if not one.original:
                continue
            seen[one.edit] += 1
            old, new = (Counter(t.lower().rstrip(".").split()) for t in (one.original, one.text))
            assert one.text != one.original
            assert (new - old).total() <= 5  # one with a comma
            if one.edit == "colour":
                words = {word for some in COLOUR_WORDS.values() for word in some.split()} | {"an"}
                assert set(new - old) <= words | {"a"}
            assert editable(one.graph, one.edit)
    assert all(seen[edit] > 5 for edit in EDITS if edit != "number"), seen


# --- The dials ---


def facts_of(told):
    things = told.scene.things
    facts = {(name, getattr(told.scene, name)) for name in ("setting", "style")
             if getattr(told, name)}  # fmt: skip
    facts |= {((thing.x, thing.y), name, value) for thing in things for name in
              ("kind", "colour", "size", "pattern", "action")
              if (value := getattr(thing, name))}  # fmt: skip
    return facts | {(things[i].x, r, things[j].x) for i, r, j in told.scene.relations}


def test_more_partial_leaves_out_the_same_and_more(scenes):
    for scene in scenes[:50]:
        parts = [
            facts_of(premises.partial_scene(scene, partial, np.random.default_rng(scene.seed)))
            for partial in (0, 0.3, 0.6, 1)
        ]
        assert parts[0] == facts_of(premises.PartialScene(scene))
        assert parts[0] >= parts[1] >= parts[2] >= parts[3]
        assert {name for _, name, _ in parts[3]} == {"kind"}


def test_noise_is_of_the_deviation_asked_for_and_by_picture():
    seen, seeds = np.random.default_rng(0).normal(size=(40, 16, 64)).astype(np.float32), range(40)
    blurred = noisy(seen, seeds, 0.7)
    assert (blurred - seen).std() == pytest.approx(0.7, rel=0.01)
    np.testing.assert_array_equal(noisy(seen[5:9], seeds[5:9], 0.7), blurred[5:9])
    np.testing.assert_array_equal(noisy(seen, seeds, 0.0), seen)


def test_a_larger_record_begins_with_the_smaller_one(world):
    small = entailment_set("train", 20)
    k = len(small.samples)
    for name in ("premise", "hypothesis", "kind", "group", "label"):
        assert list(getattr(small.samples, name)) == list(getattr(world.samples, name)[:k])
    assert small.scenes == world.scenes[:20]
    assert small.hypotheses == world.hypotheses[:k]
    assert entailment_set("train", 20, seed=1).samples.hypothesis != small.samples.hypothesis


def test_false_negatives_are_all_that_logic_finds(monkeypatch):
    nothing = lambda scenes, *_, **__: (np.zeros((len(scenes), 1, 1)), None, ())  # noqa: E731
    monkeypatch.setattr(pictures, "extract_features", nothing)
    images = pictures.captioned_images("test", 60)
    true = false_negatives(images)
    graphs = [caption.graph for gold in images.gold for caption in gold]
    assert (true == [[satisfies(s, one) for one in graphs] for s in images.scenes]).all()
    assert true.sum() > 1.5 * len(graphs)  # negatives that are none are common
