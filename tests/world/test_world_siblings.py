"""Siblings have the same words to be described by, and are different pictures."""

import numpy as np
import pytest

from mmlib import world
from mmlib.world import BOXES, Clarity, boxes_of, captioned_images
from mmlib.world.logic import satisfies
from mmlib.world.scenes import (
    action_relations,
    check_scene,
    hidden,
    scene_key,
    split_of,
    split_seeds,
)
from mmlib.world.schema import box
from mmlib.world.siblings import clear_family, family


def values(scene, name):
    return [getattr(thing, name) for thing in scene.things]


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("make", [family, clear_family])
def test_siblings_share_things_and_facts_but_not_who_has_them(make, split):
    bound = 0
    for seed in split_seeds(split, 10):
        scenes = make(seed, split, 4)
        assert len({scene_key(scene) for scene in scenes}) == 4
        assert scenes == make(seed, split, 4)
        for scene in scenes:
            check_scene(scene)
            assert split_of(scene) == split
            assert (scene.setting, scene.style) == (scenes[0].setting, scenes[0].style)
            assert action_relations(scene) == action_relations(scenes[0])
            for name in ("kind", "action", "size", "colour", "pattern"):
                own, first = values(scene, name), values(scenes[0], name)
                assert sorted(own, key=str) == sorted(first, key=str)
                bound += own != first
    assert bound >= 30  # a colour, pattern or size of 30 siblings, where things allow it


@pytest.mark.parametrize("split", ["train", "test"])
def test_in_clear_families_every_thing_changes_its_colour(split):
    for seed in split_seeds(split, 10):
        scenes = clear_family(seed, split, 4)
        for scene in scenes:
            assert hidden(scene.things) <= 0.15
            assert scene.style != "black and white"
            kinds = values(scene, "kind")
            assert len(set(kinds)) == len(kinds) >= 4
            assert kinds == values(scenes[0], "kind")
            assert set(values(scene, "pattern")) == {"plain"}
            assert "small" not in values(scene, "size")
        colours = zip(*(values(scene, "colour") for scene in scenes), strict=True)
        assert all(len(set(of_thing)) == 4 for of_thing in colours)


def test_boxes_are_those_of_the_things_and_others():
    for scene in clear_family(split_seeds("val", 1)[0], "val", 4):
        boxes = boxes_of(scene)
        assert boxes.shape == (BOXES, 4)
        assert ((boxes >= 0) & (boxes <= 1)).all()
        assert (boxes[:, :2] < boxes[:, 2:]).all()
        for thing in scene.things:
            assert np.abs(boxes - np.clip(box(thing), 0, 1)).sum(1).min() == 0
        assert np.array_equal(boxes, boxes_of(scene))


def test_about_half_of_the_lists_with_relations_say_a_true_one():
    clear = Clarity(families=True, captions=["relations"])
    images = captioned_images("val", 40, family=4, clarity=clear)
    graphs = [caption.graph for group in images.gold for caption in group]
    counts = np.array([len(graph.edges) for graph in graphs])
    assert set(counts) == {0, 1}
    assert 0.3 < counts.mean() < 0.6
    assert {len(g.nodes) for g, related in zip(graphs, counts, strict=True) if related} == {2, 3}
    for scene, group in zip(images.scenes, images.gold, strict=True):
        assert all(satisfies(scene, caption.graph) for caption in group)
        for caption in group:
            named = [dict(node.facts)["colour"] for node in caption.graph.nodes]
            assert len(named) == len(set(named)) == len(caption.graph.nodes)


def test_clear_families_are_composed_once(tmp_path, monkeypatch):
    asked = {"split": "val", "n": 12, "family": 4, "clarity": Clarity(families=True)}
    monkeypatch.setattr(world, "_CHUNK", 2)
    monkeypatch.setattr(world, "cache_dir", lambda: None)
    plain = captioned_images(**asked).scenes
    assert plain == tuple(s for k in split_seeds("val", 3) for s in clear_family(k, "val", 4))

    monkeypatch.setattr(world, "cache_dir", lambda: tmp_path)
    assert captioned_images(**asked).scenes == plain
    assert len([*(tmp_path / "scenes").iterdir()]) == 1
    monkeypatch.setattr(world, "clear_family", None)
    assert captioned_images(**asked).scenes == plain


def test_what_cannot_be_made_clear_is_said():
    with pytest.raises(ValueError, match="need clear families"):
        Clarity(captions=())
    with pytest.raises(ValueError, match="no captions of form 'relation': there are relations, "):
        Clarity(families=True, captions=["complete", "relation"])
    for size in (1, 6):
        with pytest.raises(ValueError, match=f"2 to 5 pictures, not {size}"):
            captioned_images("val", size, family=size, clarity=Clarity(families=True))
