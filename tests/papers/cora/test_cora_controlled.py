"""Controlled collections: what their families share, what captions say, and what is recorded."""

from dataclasses import replace

import numpy as np
import pytest

from mmlib.core.paths import table_beside
from mmlib.papers.cora import claims
from mmlib.papers.cora.data import controlled, world
from mmlib.papers.cora.data.controlled import Dials
from mmlib.papers.cora.data.world import FAMILY
from mmlib.papers.cora.method import right_in_family
from mmlib.scenegraph import attributes, objects, phrase, relations
from mmlib.world import Clarity, captioned_images
from mmlib.world.graphs import CaptionGraph, Edge, Node
from mmlib.world.schema import Scene, Thing

SMALL = Dials(kinds=12, colours=12, families=6)
RECORDED = controlled.RECORDED
LONGER = ", three times as long"  # trained so, on the same captions
IN_SENTENCES = {"drawn, in the world's grammar": 80, "drawn, in sentences": 58}
RELATED = replace(SMALL, structure="relations")


def words_of(facts):
    return sorted(word for fact in facts if len(fact) > 1 for word in fact)


@pytest.mark.parametrize("dials", [SMALL, RELATED])
def test_a_family_differs_in_structure_alone(dials):
    collection = controlled.load(dials)
    images = collection.images["test"]
    for start in range(0, len(images.facts), FAMILY):
        family = images.facts[start : start + FAMILY]
        assert len(set(family)) == FAMILY
        assert len({tuple(words_of(facts)) for facts in family}) == 1
    arrays = controlled.arrays(collection)
    hits = right_in_family(arrays.truth["graph"], arrays.splits["test"].image_of, FAMILY)
    assert np.nanmin(hits) == 100


def test_captions_say_what_their_picture_shows_and_graphs_say_the_same():
    collection = controlled.load(SMALL)
    images, graphs = collection.images["train"], iter(collection.graphs["train"])
    for facts, captions in zip(images.facts, images.captions, strict=True):
        for caption in captions:
            graph = next(graphs)
            told = [
                (*(phrase(graph, node) for node in attributes(graph, i)), phrase(graph, i))
                for i in objects(graph)
            ]
            assert set(told) == facts
            assert [tuple(part.split()[1:]) for part in caption.split(" and ")] == told
    collection = controlled.load(RELATED)
    for caption, graph in zip(collection.captions("val"), collection.graphs["val"], strict=True):
        drawn = [f"a {phrase(graph, a)} {data['label']} a {phrase(graph, b)}"
                 for a, b, data in relations(graph)]  # fmt: skip
        assert " and ".join(drawn) == caption


def test_regions_show_a_kind_and_a_look_and_hang_on_noise_alone():
    images = controlled.load(replace(SMALL, noise=0.0, colours=6, families=60)).images["train"]
    seen = {}
    for facts, regions in zip(images.facts, images.features, strict=True):
        rows = {np.round(row, 3).tobytes() for row in regions}
        for fact in (fact for fact in facts if len(fact) == 2):
            seen[fact] = seen.get(fact, rows) & rows
    assert all(len(common) == 1 for common in seen.values())
    assert len(set().union(*seen.values())) == len(seen)
    clear, dim, many = (
        controlled.load(replace(SMALL, **dials)).images["test"]
        for dials in ({}, {"noise": 1.0}, {"families": 9})
    )
    assert clear.captions == dim.captions == many.captions
    assert np.array_equal(clear.features, many.features)  # however many train
    assert not np.allclose(clear.features, dim.features)


def test_unseen_pairs_are_in_no_training_picture():
    images = controlled.load(replace(SMALL, families=60, unseen=True)).images

    def pairs(facts):
        return {fact for shown in facts for fact in shown if len(fact) == 2}

    seen, unseen = pairs(images["train"].facts), pairs(images["test"].facts)
    assert not seen & unseen
    assert len(unseen) <= 12 * 12 / 3
    assert pairs(images["val"].facts) <= seen
    assert {kind for _, kind in unseen} <= {kind for _, kind in seen}


@pytest.mark.parametrize(
    "change",
    [{"kinds": 3}, {"kinds": 41}, {"colours": 13}, {"families": 0}, {"noise": -0.1},
     {"noise": np.nan}, {"kinds": 11, "unseen": True}],
)  # fmt: skip
def test_dials_of_which_no_family_can_be_made(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        replace(SMALL, **change)


@pytest.mark.parametrize(
    ("collection", "right"),
    [*((made, IN_SENTENCES.get(name.removesuffix(LONGER), 25)) for name, made in RECORDED.items()),
     (Clarity(families=True, captions=(), boxes=True), 92), (world.CLARITY["clear"], 26)],
)  # fmt: skip
def test_words_tell_a_picture_only_where_captions_leave_out_things(collection, right):
    if isinstance(collection, Dials):
        images = controlled.load(replace(collection, families=1)).images["test"]
        shares = controlled.ideal_bag(images)
    else:
        images = captioned_images("test", 40, family=FAMILY, clarity=collection)
        shares = world.ideal_bag(images)
    assert shares.mean() == pytest.approx(right, abs=5 * (right > 25))


def test_only_a_claim_that_compares_with_no_bag_is_about_captions_whose_words_tell():
    rows = table_beside(claims.__file__)
    telling = {
        name for name, row in rows.items() if {*row.get("collections", ())} & {*IN_SENTENCES}
    }
    assert telling == {"B9", "B9b"}


@pytest.mark.parametrize(
    ("colours", "edges", "fits"),
    [("blue red -", (), True), ("blue red -", ((1, "chasing", 0),), True),
     ("red - blue", (), False), ("red red -", (), False), ("blue red -", ((0, "near", 1),), False),
     ("blue red -", ((0, "chasing", 1), (1, "chasing", 0)), False)],
)  # fmt: skip
def test_words_fit_a_scene_that_has_as_many_of_everything_whoever_has_it(colours, edges, fits):
    look = {"size": "large", "pattern": "plain", "action": None, "x": 0.5, "y": 0.7}
    kinds = "dog", "cat", "box"
    things = [Thing(k, c, **look) for k, c in zip(kinds, ("red", "blue", "red"), strict=True)]
    scene = Scene(tuple(things), ((0, "chasing", 1), (1, "near", 2)), "park", "photo", 0)
    said = [(k, c) for k, c in zip(kinds, colours.split(), strict=True) if c != "-"]
    nodes = tuple(Node(k, frozenset({("colour", c)})) for k, c in said)
    graph = CaptionGraph(nodes, tuple(Edge(*edge) for edge in edges))
    assert world.words_fit(world._bag_of_caption(graph), scene) == fits
