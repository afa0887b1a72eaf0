"""What the world's backbone saw is kept, and read again only where nothing changed."""

import numpy as np
import pytest

from mmlib import world
from mmlib.world import backbone, extract_features
from mmlib.world.scenes import sample_scene, split_seeds


@pytest.fixture(scope="module")
def scenes():
    return [sample_scene(seed) for seed in split_seeds("val", 200, 0)]


@pytest.fixture
def looked(monkeypatch, tmp_path):
    """Pictures looked at; the cache lies in a folder of its own, the drawing is left out."""
    count = []

    def extract(images, boxes=None):
        count.append(len(images))
        found = np.array([[image] * 2 for image in images], np.float32)
        return found[:, None], found, backbone.LABELS

    monkeypatch.setattr(world, "cache_dir", lambda: tmp_path)
    monkeypatch.setattr(world, "picture", lambda scenes, size, row: scenes[row].seed % 1000)
    monkeypatch.setattr(backbone, "extract", extract)
    return count


def kept(folder):
    return sorted(path.relative_to(folder).parts for path in folder.rglob("*.safetensors"))


def test_what_was_seen_is_not_looked_at_again(scenes, looked, tmp_path):
    first, second = extract_features(scenes), extract_features(scenes)
    assert sum(looked) == 200
    assert len(kept(tmp_path)) == 1
    for one, two in zip(first[:2], second[:2], strict=True):
        np.testing.assert_array_equal(one, two)
        assert one.dtype == two.dtype == np.float32
    assert first[2] == second[2] == backbone.LABELS
    assert first[0][5, 0, 0] == scenes[5].seed % 1000  # in the order of the scenes
    extract_features(scenes[::-1])  # other scenes, another file
    assert sum(looked) == 400
    assert len(kept(tmp_path)) == 2


def test_other_code_draws_anew_and_takes_the_place(scenes, looked, tmp_path, monkeypatch):
    extract_features(scenes)
    before = kept(tmp_path)
    monkeypatch.setattr(world, "source_hash", lambda *modules: "other")
    extract_features(scenes)
    assert sum(looked) == 400
    assert len(kept(tmp_path)) == 1
    assert kept(tmp_path) != before


def test_few_scenes_and_no_checkout_keep_nothing(scenes, looked, tmp_path, monkeypatch):
    extract_features(scenes[:192])
    monkeypatch.setattr(world, "cache_dir", lambda: None)
    extract_features(scenes)
    assert sum(looked) == 192 + 200
    assert not kept(tmp_path)
