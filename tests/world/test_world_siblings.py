"""Siblings have the same words to be described by, and are different pictures."""

from collections import Counter

import pytest

from mmlib.world import captioned_images
from mmlib.world.scenes import action_relations, check_scene, scene_key, split_of, split_seeds
from mmlib.world.siblings import family


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


def test_families_are_collected_whole():
    found = captioned_images("val", 4, family=2)
    assert found.ids == tuple(f"world-val-00000{i}-{k}" for i in (0, 1) for k in (0, 1))
    assert found.scenes[2:] == family(split_seeds("val", 2)[1], "val", 2)
    with pytest.raises(ValueError, match="whole families of 3"):
        captioned_images("val", 4, family=3)
