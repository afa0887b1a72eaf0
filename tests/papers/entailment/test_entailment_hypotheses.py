from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from mmlib.papers.entailment.data.edits import editable
from mmlib.papers.entailment.data.hypotheses import (
    entailment_set,
    false_negatives,
    hypotheses,
    noisy,
)
from mmlib.papers.entailment.data.premises import (
    PartialScene,
    counter_scene,
    joint,
    merged,
    partial_scene,
)
from mmlib.papers.entailment.run.systems import EDITS
from mmlib.world import captioned_images
from mmlib.world.backbone import GRID, WIDTH
from mmlib.world.graphs import CaptionGraph, Edge, Node
from mmlib.world.logic import entails, satisfies
from mmlib.world.scenes import check_scene, sample_scene, split_seeds
from mmlib.world.words import COLOUR_WORDS


def premise_graphs(world, row):
    """What the captions say of the picture that a sample is about."""
    return tuple(caption.graph for caption in world.captions[world.scene_of[row]])


def follows(captions, hypothesis):
    return any(entails(graph, hypothesis) for graph in joint(captions))


def told(world, row):
    """Whether the captions entail the hypothesis of a sample."""
    return follows(premise_graphs(world, row), world.hypotheses[row].graph)


def node(concept, *facts):
    return Node(concept, frozenset(facts))


def graph(nodes, *edges, **rest):
    return CaptionGraph(tuple(nodes), tuple(Edge(*edge) for edge in edges), **rest)


def made(split="train", n=200, **rest):
    return entailment_set(split, n, **rest)


@pytest.fixture(scope="module")
def world():
    return made(n=100)


@pytest.fixture(scope="module")
def scenes():
    return [sample_scene(seed) for seed in split_seeds("test", 1000, 3)]


def rows_of(world, form, label=None):
    samples = world.samples
    return [
        i
        for i in range(len(samples))
        if samples.kind[i] == form and label in (None, samples.label[i])
    ]


# --- What follows from captions ---

RED, BROWN = ("colour", "red"), ("colour", "brown")
DOG, CAT, COW = node("dog"), node("cat"), node("cow")


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
    for i in rows_of(world, "te", 1):
        captions = premise_graphs(world, i)
        for scene in scenes:
            if all(satisfies(scene, one) for one in captions):
                tried += 1
                assert satisfies(scene, world.hypotheses[i].graph), scene
    assert tried > 200


def test_a_scene_refutes_what_is_called_not_entailed(world):
    for i in rows_of(world, "te", 0):
        captions, graph = premise_graphs(world, i), world.hypotheses[i].graph
        found = counter_scene(world.scenes[world.scene_of[i]], captions, graph)
        check_scene(found)
        assert all(satisfies(found, one) for one in captions)
        assert not satisfies(found, graph)


# --- The labels ---


def test_labels_are_those_of_logic(world):
    samples = world.samples
    for i in range(len(samples)):
        scene = world.scenes[world.scene_of[i]]
        true = satisfies(scene, world.hypotheses[i].graph)
        assert world.hypotheses[i].truth == true
        assert all(satisfies(scene, one) for one in premise_graphs(world, i))
        assert samples.label[i] == (told(world, i) if samples.kind[i] == "te" else true)
        assert true or not told(world, i)


def test_the_forms_have_what_they_should(world):
    samples = world.samples
    for i in range(len(samples)):
        row, form = world.scene_of[i], samples.kind[i]
        assert samples.image[i] == (-1 if form == "te" else row)
        assert samples.premise[i] == ("" if form == "ve" else merged(world.captions[row]))
        assert samples.group[i].endswith(f"{world.scenes[row].seed % 10**10:06d}")
        if form == "te" and samples.label[i] == 0:
            assert samples.hypothesis[i] not in samples.premise[i].split(". ")


def test_colours_of_black_and_white_pictures_decide_nothing(world):
    told = 0
    for i, one in enumerate(hypothesis.graph for hypothesis in world.hypotheses):
        scene = world.scenes[world.scene_of[i]]
        if scene.style == "black and white" and world.samples.kind[i] != "te":
            told += any(name == "colour" for some in one.nodes for name, _ in some.facts)
            for colour in COLOUR_WORDS:
                painted = replace(
                    scene, things=tuple(replace(t, colour=colour) for t in scene.things)
                )
                assert satisfies(painted, one) == world.samples.label[i]
    assert told


def test_hypotheses_do_not_give_themselves_away(world):
    rows = [i for i in range(len(world.samples)) if world.samples.kind[i] != "te"]
    label = world.samples.label[rows]
    counts = {
        "words": [len(world.samples.hypothesis[i].split()) for i in rows],
        "nodes": [len(world.hypotheses[i].graph.nodes) for i in rows],
        "edges": [len(world.hypotheses[i].graph.edges) for i in rows],
        "placed": [world.hypotheses[i].graph.setting is not None for i in rows],
    }
    for name, values in counts.items():
        assert abs(roc_auc_score(label, values) - 0.5) < 0.09, name


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
    found = {("place", told.setting), ("style", told.style)} - {("place", False), ("style", False)}
    for thing in told.scene.things:
        at = thing.x, thing.y
        found |= {
            (at, name, getattr(thing, name)) for name in ("kind", "colour", "size", "pattern")
        }
        found |= {(at, "action", thing.action)} if thing.action else set()
    things = told.scene.things
    found |= {(things[i].x, r, things[j].x) for i, r, j in told.scene.relations}
    return {fact for fact in found if fact[-1] != ""}


def test_more_partial_leaves_out_the_same_and_more(scenes):
    for scene in scenes[:50]:
        parts = [
            facts_of(partial_scene(scene, partial, np.random.default_rng(scene.seed)))
            for partial in (0, 0.3, 0.6, 1)
        ]
        assert parts[0] == facts_of(PartialScene(scene))
        assert parts[0] >= parts[1] >= parts[2] >= parts[3]
        assert {name for _, name, _ in parts[3]} == {"kind"}


def test_noise_is_of_the_deviation_asked_for_and_by_picture():
    seen = np.random.default_rng(0).normal(size=(40, GRID * GRID, WIDTH)).astype(np.float32)
    seeds = list(range(40))
    added = noisy(seen, seeds, 0.7) - seen
    assert added.std() == pytest.approx(0.7, rel=0.01)
    np.testing.assert_array_equal(noisy(seen[5:9], seeds[5:9], 0.7), noisy(seen, seeds, 0.7)[5:9])
    np.testing.assert_array_equal(noisy(seen, seeds, 0.0), seen)


# --- The record ---


def test_a_larger_record_begins_with_the_smaller_one(world):
    small = made(n=20)
    k = len(small.samples)
    for name in ("premise", "hypothesis", "kind", "group"):
        assert getattr(small.samples, name) == getattr(world.samples, name)[:k]
    assert (small.samples.label == world.samples.label[:k]).all()
    assert small.scenes == world.scenes[:20]
    assert small.hypotheses == world.hypotheses[:k]
    assert made(n=20, seed=1).samples.hypothesis != small.samples.hypothesis


# --- Which captions fit which pictures ---


def test_false_negatives_are_all_that_logic_finds(monkeypatch):
    monkeypatch.setattr(
        "mmlib.world.extract_features",
        lambda scenes, *_, **__: (np.zeros((len(scenes), 1, 1)), None, ()),
    )
    images = captioned_images("test", 60)
    found = false_negatives(images)
    graphs = [one.graph for some in images.gold for one in some]
    assert (found == [[satisfies(s, one) for one in graphs] for s in images.scenes]).all()
    own = np.repeat(np.arange(60), [len(some) for some in images.captions])
    assert found[own, np.arange(len(graphs))].all()
    assert found.sum() > 1.5 * len(graphs)  # negatives that are none are common
