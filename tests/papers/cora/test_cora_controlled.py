"""Controlled collections: what their families share, what captions say, and what is recorded."""

import os
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from mmlib.papers.cora.data import controlled, load_arrays, load_study, world
from mmlib.papers.cora.data.controlled import Dials
from mmlib.papers.cora.data.world import FAMILY
from mmlib.papers.cora.method import right_in_family
from mmlib.papers.cora.run.systems import CONTROLLED, datasets
from mmlib.scenegraph import attributes, objects, phrase, relations
from mmlib.world import BOXES, Clarity

SMALL = Dials(kinds=12, colours=12, families=6)
RELATED = replace(SMALL, named=4, structure="relations")


def words_of(facts):
    return sorted(word for fact in facts if len(fact) > 1 for word in fact)


@pytest.mark.parametrize(
    ("dials", "bag", "oracle"),
    [(SMALL, 83, 100), (replace(SMALL, named=3), 100, 100), (replace(SMALL, named=4), 25, 100),
     (RELATED, 25, 100), (replace(SMALL, described=0.0), None, 25)],
)  # fmt: skip
def test_a_family_differs_in_structure_alone_and_what_words_tell_of_it(dials, bag, oracle):
    collection = controlled.load(dials)
    images, shares = collection.images["test"], []
    for start in range(0, len(images.facts), FAMILY):
        family = images.facts[start : start + FAMILY]
        assert len(set(family)) == FAMILY
        assert len({tuple(words_of(facts)) for facts in family}) == 1
        shown = [[f for f in facts if len(f) > 1] for facts in family]
        for i in range(FAMILY) if bag else ():
            for facts in images.said[start + i]:
                fits = [
                    any(words_of(part) == words_of(facts) for part in combinations(one, len(facts)))
                    for one in shown
                ]
                assert fits[i]
                shares.append(100 / sum(fits))
    assert not bag or np.mean(shares) == pytest.approx(bag, abs=1.5)
    arrays = controlled.arrays(collection)
    hits = right_in_family(arrays.truth["graph"], arrays.splits["test"].image_of, FAMILY)
    assert np.nanmean(hits) == pytest.approx(oracle, abs=5)
    assert oracle < 100 or np.nanmin(hits) == 100


def test_captions_say_what_their_picture_shows_and_graphs_say_the_same():
    collection = controlled.load(replace(SMALL, described=0.5))
    images, graphs = collection.images["train"], iter(collection.graphs["train"])
    for facts, said, captions in zip(images.facts, images.said, images.captions, strict=True):
        for one, caption in zip(said, captions, strict=True):
            assert one <= facts
            graph = next(graphs)
            told = [
                (*(phrase(graph, node) for node in attributes(graph, i)), phrase(graph, i))
                for i in objects(graph)
            ]
            assert set(told) == one
            assert [tuple(part.split()[1:]) for part in caption.split(" and ")] == told
    collection = controlled.load(RELATED)
    for caption, graph in zip(collection.captions("val"), collection.graphs["val"], strict=True):
        drawn = [f"a {phrase(graph, a)} {data['label']} a {phrase(graph, b)}"
                 for a, b, data in relations(graph)]  # fmt: skip
        assert " and ".join(drawn) == caption


def test_regions_show_a_kind_and_a_look_and_hang_on_noise_and_mixing_alone():
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
        for dials in ({}, {"noise": 1.0, "mixing": 0.5}, {"families": 9})
    )
    assert clear.captions == dim.captions == many.captions
    assert np.array_equal(clear.features, many.features)  # however many train
    assert not np.allclose(clear.features, dim.features)


def test_unseen_pairs_are_in_no_training_picture():
    images = controlled.load(replace(SMALL, families=60, unseen=True)).images

    def pairs(facts):
        return {fact for shown in facts for fact in shown if len(fact) == 2}

    half = len(images["test"].facts) // 2
    seen, unseen = pairs(images["train"].facts), pairs(images["test"].facts[half:])
    assert not seen & unseen
    assert len(unseen) <= 12 * 12 / 3
    assert pairs(images["val"].facts) | pairs(images["test"].facts[:half]) <= seen
    assert {kind for _, kind in unseen} <= {kind for _, kind in seen}


@pytest.mark.parametrize(
    "change",
    [{"kinds": 3}, {"kinds": 41}, {"colours": 13}, {"named": 5},
     {"named": 0}, {"described": 1.1}, {"families": 0}, {"noise": -0.1}, {"noise": np.nan},
     {"mixing": -1}, {"structure": "relations", "named": 2}, {"unseen": True, "kinds": 11}],
)  # fmt: skip
def test_dials_of_which_no_family_can_be_made(change):
    with pytest.raises(ValueError, match=next(iter(change if len(change) == 1 else ["no family"]))):
        replace(SMALL, **change)


def test_every_recorded_collection_can_be_made():
    assert list(controlled.RECORDED) == list(CONTROLLED) == datasets("controlled")
    drawn = {name: one for name, one in controlled.RECORDED.items() if isinstance(one, Clarity)}
    assert list(drawn) == [name for name in CONTROLLED if name.startswith("drawn")]
    assert all(one.families for one in drawn.values())
    made = [dials for dials in controlled.RECORDED.values() if isinstance(dials, Dials)]
    assert all(dials.families >= 100 for dials in made)
    assert controlled.RECORDED["noise 1, mixing 0.5"] == Dials(families=1000, noise=1, mixing=0.5)


def test_drawn_collections_are_the_worlds_made_easy(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    monkeypatch.setattr(world, "DRAWN_IMAGES", {"train": 24, "val": 4, "test": 12})
    names = ["drawn", "drawn, on a grid, in sentences"]
    study = load_study("controlled", names)
    arrays = load_arrays(study, "controlled")
    right = [
        np.nanmean(right_in_family(one.truth["graph"], one.splits["test"].image_of, FAMILY))
        for one in arrays.values()
    ]
    assert right[0] == 100 > right[1]
    easy, usual = (one.splits["test"].features for one in arrays.values())
    assert (easy.shape, usual.shape) == ((12, BOXES, 128), (12, 16, 128))
    assert study[names[0]].images["test"].scenes == study[names[1]].images["test"].scenes
    assert all(one.family == FAMILY for one in arrays.values())
