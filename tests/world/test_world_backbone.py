"""The picture world's backbone: shapes, order, and the accuracy that its record claims."""

import argparse
import json
from dataclasses import replace

import numpy as np
import pytest
import scripts
import torch
from PIL import Image

from mmlib.world import backbone
from mmlib.world.backbone import HEADS, LABELS, Backbone, extract, load, targets, to_input
from mmlib.world.drawing import draw
from mmlib.world.scenes import sample_scene, split_seeds
from mmlib.world.schema import COLOURS, KINDS, SETTINGS, Scene, Thing

SCRIPT = scripts.load("ci/train_world_backbone.py")
accuracy, scores = SCRIPT.accuracy, SCRIPT.scores


def record() -> dict:
    return json.loads(backbone.RECORD.read_text(encoding="utf-8"))


def features(images) -> np.ndarray:
    return extract(images)[0]


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    """The first held-out scenes: as many as the record states its deviation for."""
    first, _ = record()["held_out_seeds"]
    return [sample_scene(seed) for seed in range(first, first + 300)]


@pytest.fixture(scope="module")
def pictures(scenes) -> list[Image.Image]:
    return [draw(scene) for scene in scenes]


@pytest.fixture(scope="module")
def found(pictures) -> dict[str, np.ndarray]:
    return scores(pictures)


# What it gives ------------------------------------------------------------------------------------


def test_features_have_the_stated_form(pictures):
    regions = features(pictures[:40])
    assert 0.8 < regions.std() < 1.25
    assert (regions.std((0, 1)) > 0).mean() > 0.9  # hardly any unit is dead


def test_batches_do_not_matter(pictures):
    whole = features(pictures[:70])  # 64 and 6
    assert np.allclose(whole[60:], features(pictures[60:70]), atol=1e-4)
    assert np.allclose(whole[::-1], features(pictures[69::-1]), atol=1e-4)


@pytest.mark.parametrize(("row", "column"), [(0, 0), (0, 3), (2, 1), (3, 3)])
def test_regions_run_row_by_row_from_the_top_left(row, column):
    empty = Scene((), (), "park", "flat", 4)
    patch = draw(empty).copy()
    patch.paste((200, 30, 30), (column * 32 + 8, row * 32 + 8, column * 32 + 24, row * 32 + 24))
    change = np.abs(features([patch]) - features([draw(empty)])).sum(2)[0]
    assert change.argmax() == 4 * row + column


def test_a_box_is_the_mean_of_nine_points_between_cells():
    network, rng = load(), np.random.default_rng(0)
    maps = torch.tensor(rng.normal(size=(1, 2, 8, 8)), dtype=torch.float32)
    left, top, right, bottom = 0.2, 0.3, 0.7, 0.5
    expected = np.zeros(2)
    for i in range(3):
        for j in range(3):
            x = (left + (right - left) * (i + 0.5) / 3) * 8 - 0.5  # in cells, of their middles
            y = (top + (bottom - top) * (j + 0.5) / 3) * 8 - 0.5
            column, row = int(x), int(y)
            for dx in (0, 1):
                for dy in (0, 1):
                    share = abs(1 - dx - (x - column)) * abs(1 - dy - (y - row))
                    expected += share * maps[0, :, row + dy, column + dx].numpy() / 9
    seen = network.at_boxes(maps, torch.tensor([[[left, top, right, bottom]]]))
    assert seen.shape == (1, 1, 2)
    np.testing.assert_allclose(seen[0, 0] * network.deviation, expected, rtol=1e-4)


def test_labels_are_plain_words(pictures):
    _, values, names = extract(pictures[:10])
    assert names == LABELS == KINDS + COLOURS + SETTINGS
    assert all(name.isalpha() and name.islower() for name in names)
    assert values.shape == (10, 50)
    assert values.dtype == np.float32
    assert ((values >= 0) & (values <= 1)).all()
    assert np.allclose(values[:, -len(SETTINGS) :].sum(1), 1, atol=1e-5)


@pytest.mark.parametrize("head", HEADS)
def test_stored_accuracy_holds(head, found, scenes):
    stored = record()["accuracy"][head]
    again = accuracy(found, scenes)[head]
    # Four deviations of an accuracy measured on this many scenes, and one scene.
    assert abs(again - stored["value"]) <= 4 * stored["deviation_of_300"] + 1 / 300


# Its parts ----------------------------------------------------------------------------------------


def test_folding_changes_nothing():
    torch.manual_seed(3)
    network = Backbone(norm=True)
    for norm in network.norms:
        norm.running_mean.normal_(0, 0.5)
        norm.running_var.uniform_(0.5, 2)
        torch.nn.init.uniform_(norm.weight, 0.5, 1.5)
        torch.nn.init.normal_(norm.bias)
    network.eval()
    pixels = torch.rand(2, 3, 128, 128) * 255
    with torch.no_grad():
        before, after = network.map(pixels), network.folded().map(pixels)
    assert before.abs().max() > 0
    assert torch.allclose(before, after, rtol=1e-3, atol=1e-3 * float(before.abs().max()))


def test_places_decide_kinds(pictures):
    """A local head's answer is the logit of its surest place."""
    network = load()
    with torch.inference_mode():
        maps = network.map(to_input(backbone.to_pixels(pictures[:3])))
        places, logits = network.places(maps), network.logits(maps)
    assert places.shape == (3, 64, 55)
    assert torch.equal(places.amax(1)[:, : len(KINDS)], logits["kind"])
    assert set(logits) == set(HEADS)


DOG = Thing("dog", "brown", "small", "spotted", "running", 0.3, 0.8)
CAR = Thing("car", "red", "large", "plain", None, 0.6, 0.7)


def test_targets_say_what_a_scene_holds():
    truth = targets([Scene((DOG, CAR), (), "park", "flat", 0), Scene((), (), "snow", "photo", 1)])
    held = {"kind": {"dog", "car"}, "colour": {"brown", "red"}, "pattern": {"spotted"},
            "action": {"running"}, "setting": {"park"}, "style": {"flat"}}  # fmt: skip
    for head, words in held.items():
        assert set(np.array(HEADS[head])[truth[head][0].astype(bool)]) == words
        assert truth[head].shape == (2, len(HEADS[head]))
    assert not truth["kind"][1].any()
    assert truth["setting"][1].sum() == 1


def test_perfect_answers_score_one_and_grey_pictures_have_no_colour():
    styles = ("flat", "black and white", "photo")
    scenes = [Scene((DOG, CAR)[i % 2 :], (), "park", styles[i % 3], i) for i in range(12)]
    perfect = {head: real.astype(float) for head, real in targets(scenes).items()}
    assert accuracy(perfect, scenes) == dict.fromkeys(HEADS, 1.0)
    wrong = {head: real.copy() for head, real in perfect.items()}
    grey = [scene.style == "black and white" for scene in scenes]
    wrong["colour"][grey] = 1 - wrong["colour"][grey]
    assert accuracy(wrong, scenes)["colour"] == 1.0
    wrong["style"] = 1 - wrong["style"]
    assert accuracy(wrong, scenes)["style"] == 0.0


# Its training -------------------------------------------------------------------------------------


def test_place_targets_mirror_with_the_picture():
    cells, words = SCRIPT.Truth.of_things(Scene((DOG,), (), "park", "flat", 0), False).T
    mirrored, same_words = SCRIPT.Truth.of_things(Scene((DOG,), (), "park", "flat", 0), True).T
    flipped = cells // 8 * 8 + 7 - cells % 8
    assert set(mirrored) == set(flipped)
    assert set(words) == set(same_words)
    assert len(set(words)) == 5  # dog, brown, spotted, running, brown dog


def test_variation_keeps_a_picture_and_mirrors_what_it_is_told_to():
    images = np.random.default_rng(0).integers(0, 255, (4, 128, 128, 3), dtype=np.uint8)
    flip = np.array([False, True, False, True])
    shown = SCRIPT.varied(images, flip, np.random.default_rng(1))
    for image, result, mirrored in zip(images, shown, flip, strict=True):
        inner = (result[:, ::-1] if mirrored else result)[8:-8, 8:-8]
        windows = np.lib.stride_tricks.sliding_window_view(image[4:-4, 4:-4], (112, 112, 3))
        assert (windows == inner).all((2, 3, 4, 5)).sum() == 1


def test_a_stopped_training_ends_with_the_same_weights(tmp_path, monkeypatch):
    scenes = [sample_scene(seed) for seed in split_seeds("backbone", 16, seed=2)]
    pixels = np.stack([np.asarray(draw(scene)) for scene in scenes])
    args = argparse.Namespace(
        epochs=2, batch=8, rate=1e-3, seed=0, checkpoint=tmp_path / "whole.pt"
    )
    whole = SCRIPT.train(args, pixels, scenes)

    args.checkpoint = tmp_path / "stopped.pt"
    monkeypatch.setattr(SCRIPT, "loss_of", scripts.until(3, SCRIPT.loss_of))  # second epoch
    with pytest.raises(KeyboardInterrupt):
        SCRIPT.train(args, pixels, scenes)
    resumed = SCRIPT.train(args, pixels, scenes)
    for one, other in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, other)


def test_grey_pictures_are_not_asked_for_colours():
    scene = Scene((DOG,), (), "park", "black and white", 0)
    asked = SCRIPT.Truth([scene, replace(scene, style="photo")]).asked
    columns = dict(zip(("kind", "colour"), (0, len(KINDS)), strict=True))
    assert asked[0, columns["colour"]] == 0
    assert asked[0, columns["kind"]] == 1
    assert asked[0, -1] == 0
    assert asked[1].all()
