"""The `mmlib data` commands: what they print, and their exit status."""

from unittest.mock import Mock

import numpy as np
import pytest
from test_flickr8k import NAMES, edit_line, make

from mmlib.data import flickr8k, registry
from mmlib.suite import cli


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("MMLIB_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def mmlib_data(capsys):
    """Runs a command; returns its exit status and what it printed."""

    def run(*words):
        status = cli.main(["data", *map(str, words)])
        return status, "".join(capsys.readouterr())

    return run


def test_list(data, mmlib_data):
    make(data / "flickr8k")
    status, out = mmlib_data("list")
    assert status == 0
    assert str(data) in out
    row = {line.split()[0]: line for line in out.splitlines() if line}
    assert row["flickr8k"].split()[1:3] == ["yes", "program"]
    assert row["flickr30k"].split()[1:4] == ["-", "by", "hand"]
    assert set(registry.DATA_SETS) <= set(row)


def test_check(data, mmlib_data, monkeypatch):
    monkeypatch.setattr(flickr8k, "IMAGES", 8)
    monkeypatch.setattr(flickr8k, "SPLITS", {"train": 4, "val": 1, "test": 2})
    folder = make(data / "flickr8k")
    status, out = mmlib_data("check", "flickr8k")
    assert status == 0
    last = out.splitlines()[-1]
    assert last.startswith("flickr8k: usable, 8 images, 40 captions, splits 4/1/2")
    (folder / "Images" / NAMES[0]).write_bytes(b"")
    edit_line(folder / "captions.txt", 9, "?")
    monkeypatch.setattr(cli, "SHOWN", 1)
    status, out = mmlib_data("check", "flickr8k", "--folder", folder)
    assert status == 1
    assert "NOT usable, 2 problems" in out
    assert "... and 1 more (--all shows them)" in out
    status, out = mmlib_data("check", "flickr8k", "--all")
    assert status == 1
    assert f"{NAMES[0]}: cannot be decoded" in out
    assert "captions.txt, line 9" in out
    assert "more (--all" not in out


def test_get(data, mmlib_data, monkeypatch):
    status, out = mmlib_data("get", "flickr30k")
    assert status == 1
    assert "request form" in out
    make(data / "flickr8k")
    status, out = mmlib_data("get", "flickr8k")
    assert (status, "already in" in out) == (0, True)
    (data / "clue").mkdir()
    for name in registry.find("clue").layout:  # without the third file, a download as well
        (data / "clue" / name).write_text("")
    with monkeypatch.context() as patch:
        patch.setattr(registry, "get", lambda item: [item.folder / "img2idxmap.json"])
        status, out = mmlib_data("get", "clue")
    assert (status, "in place" in out) == (0, True)
    for error, expected in ((OSError("no route to host"), 1), (KeyboardInterrupt(), 130)):
        monkeypatch.setattr(registry, "get", Mock(side_effect=error))
        status, out = mmlib_data("get", "sick")
        assert (status, str(error) in out) == (expected, True)


def test_features(data, mmlib_data):
    folder = make(data / "flickr8k")
    words = ("features", "flickr8k", "--backbone", "resnet50", "--weights", "random")
    words += ("--regions", "global", "--device", "cpu", "--labels")
    (folder / "Images" / NAMES[2]).write_bytes(b"?")
    status, out = mmlib_data(*words)
    assert (status, f"{NAMES[2]}: cannot be decoded" in out) == (1, True)
    status, out = mmlib_data(*words, "--skip-bad")
    assert status == 0
    assert "global_resnet50_random.npy: 7 x 2048, weights: random, seed 0: NOT TRAINED" in out
    assert f"left out: {NAMES[2]}" in out
    loaded = flickr8k.load("test", None, "global_resnet50_random")
    assert loaded.features.shape == (2, 1, 2048)
    assert np.allclose(loaded.label_scores.sum(axis=1), 1, atol=1e-4)
    assert len(loaded.label_names) == 1000


def test_features_of_a_detector_in_scans_layout_of_pictures_in_two_folders(data, mmlib_data):
    make(data / "two")
    (data / "two/Images").rename(data / "mscoco")
    for folder, names in (("train2014", NAMES[:2]), ("val2014", NAMES[2:])):
        (data / "mscoco" / folder).mkdir()
        for name in names:
            (data / "mscoco" / name).rename(data / "mscoco" / folder / name)
    words = ("features", "mscoco", "--backbone", "fasterrcnn", "--weights", "random")
    words += ("--side", "32", "--device", "cpu", "--out", data / "regions_ims.npy")
    status, out = mmlib_data(*words)
    assert status == 0
    assert "regions_ims.npy: 8 x 36 x 1024, weights: random" in out
    assert (data / "regions_ids.txt").read_text().split() == NAMES
    assert np.load(data / "regions_ims.npy").dtype == np.float32


def test_principal_components_are_fitted_on_the_training_images(data, mmlib_data):
    folder = make(data / "flickr8k") / "features"
    words = ("features", "flickr8k", "--backbone", "mobilenetv1", "--weights", "random")
    words += ("--pca", "3", "--device", "cpu", "--dtype", "float32")
    status, out = mmlib_data(*words)
    assert status == 0
    assert "grid4x4_mobilenetv1_random_pca3.npy: 8 x 16 x 3, weights: random, seed 0" in out
    assert "--features grid4x4_mobilenetv1_random_pca3" in out
    assert np.load(folder / "grid4x4_mobilenetv1_random.npy", mmap_mode="r").shape == (8, 16, 1024)
    train = flickr8k.load("train", None, "grid4x4_mobilenetv1_random_pca3").features
    assert np.abs(train.mean(axis=(0, 1))).max() < 1e-4
    assert abs(train.std() - 1) < 1e-4
    (folder / "grid4x4_mobilenetv1_random.npy").unlink()
    status, out = mmlib_data(*words)
    assert (status, "grid4x4_mobilenetv1_random_pca3.npy: is there already" in out) == (1, True)
    assert not (folder / "grid4x4_mobilenetv1_random.npy").exists()  # said before the extraction


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ("check flickr9k", 1, "no data set 'flickr9k' (choose from flickr8k, clue,"),
        ("features empty", 1, "no images"),
        ("features none", 1, "neither flickr8k, flickr30k, mscoco nor a folder of images"),
        ("features flickr8k --weights random --device cuda:99", 1, "no device 'cuda:99': PyTorch"),
        ("features flickr8k --backbone fasterrcnn --regions grid", 1, "takes neither --regions"),
    ],
)
def test_errors_are_one_line(data, mmlib_data, monkeypatch, words, status, message):
    make(data / "flickr8k")
    (data / "empty").mkdir()
    monkeypatch.chdir(data)
    returned, out = mmlib_data(*words.split())
    assert (returned, message in out, out.count("\n")) == (status, True, 1)
