"""Siblings have the same words to be described by, and are different pictures."""

from collections import Counter

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


@pytest.mark.parametrize("split", ["train", "test"])
def test_siblings_share_things_and_facts_but_not_who_has_them(split):
    bound = 0
    for seed in split_seeds(split, 10):
        scenes = family(seed, split, 4)
        assert len({scene_key(scene) for scene in scenes}) == 4
        assert scenes == family(seed, split, 4)
        first = scenes[0]
        for scene in scenes:
            check_scene(scene)
            assert split_of(scene) == split
            assert (scene.setting, scene.style) == (first.setting, first.style)
            assert action_relations(scene) == action_relations(first)
            for name in ("kind", "action", "size", "colour", "pattern"):
                of_all = [[getattr(t, name) for t in one.things] for one in (scene, first)]
                assert Counter(of_all[0]) == Counter(of_all[1])
                bound += of_all[0] != of_all[1]
    assert bound > 30  # a colour, pattern or size of 30 siblings, where things allow it


@pytest.mark.parametrize("split", ["train", "test"])
def test_in_clear_families_every_thing_changes_its_colour(split):
    for seed in split_seeds(split, 10):
        scenes = clear_family(seed, split, 4)
        assert scenes == clear_family(seed, split, 4)
        first = scenes[0]
        for scene in scenes:
            check_scene(scene)
            assert split_of(scene) == split
            assert hidden(scene.things) <= 0.15
            assert scene.style != "black and white"
            assert action_relations(scene) == action_relations(first)
            kinds = [thing.kind for thing in scene.things]
            assert len(set(kinds)) == len(kinds) >= 4
            assert kinds == [thing.kind for thing in first.things]
            assert {thing.pattern for thing in scene.things} == {"plain"}
            assert "small" not in {thing.size for thing in scene.things}
        colours = [[thing.colour for thing in scene.things] for scene in scenes]
        assert all(sorted(own) == sorted(colours[0]) for own in colours)
        assert all(len(set(of_thing)) == 4 for of_thing in zip(*colours, strict=True))


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
    [file] = (tmp_path / "scenes").iterdir()
    monkeypatch.setattr(world, "clear_family", None)
    assert captioned_images(**asked).scenes == plain
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(TypeError):  # made anew, which cannot be here
        captioned_images(**asked)


def test_what_cannot_be_made_clear_is_said():
    with pytest.raises(ValueError, match="need clear families"):
        Clarity(captions=())
    with pytest.raises(ValueError, match="no captions of form 'relation': there are relations, "):
        Clarity(families=True, captions=["complete", "relation"])
    for size in (1, 6):
        with pytest.raises(ValueError, match=f"2 to 5 pictures, not {size}"):
            captioned_images("val", size, family=size, clarity=Clarity(families=True))
