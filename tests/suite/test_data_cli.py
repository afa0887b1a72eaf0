"""The `mmlib data` commands: what they print, and their exit status."""

import numpy as np
import pytest
from test_flickr8k import NAMES, edit_line, make

from mmlib.data import flickr8k, registry
from mmlib.suite import cli, data_cli


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("MMLIB_DATA", str(tmp_path))
    return tmp_path


def mmlib_data(*words):
    return cli.main(["data", *map(str, words)])


def test_list(data, capsys):
    make(data / "flickr8k")
    assert mmlib_data("list") == 0
    out = capsys.readouterr().out
    assert str(data) in out
    row = {line.split()[0]: line for line in out.splitlines() if line}
    assert row["flickr8k"].split()[1:3] == ["yes", "program"]
    assert row["flickr30k"].split()[1:4] == ["-", "by", "hand"]
    assert set(registry.DATA_SETS) <= set(row)


def test_check(data, capsys, monkeypatch):
    monkeypatch.setattr(flickr8k, "IMAGES", 8)
    monkeypatch.setattr(flickr8k, "SPLITS", {"train": 4, "val": 1, "test": 2})
    folder = make(data / "flickr8k")
    assert mmlib_data("check", "flickr8k") == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("flickr8k: usable, 8 images, 40 captions, splits 4/1/2")
    (folder / "Images" / NAMES[0]).write_bytes(b"")
    edit_line(folder / "captions.txt", 9, "?")
    assert mmlib_data("check", "flickr8k", "--folder", folder) == 1
    out = capsys.readouterr().out
    assert f"{NAMES[0]}: cannot be decoded" in out
    assert "captions.txt, line 9" in out
    assert "NOT usable, 2 problems" in out
    monkeypatch.setattr(data_cli, "SHOWN", 1)
    assert mmlib_data("check", "flickr8k") == 1
    assert "... and 1 more (--all shows them)" in capsys.readouterr().out
    assert mmlib_data("check", "flickr8k", "--all") == 1
    assert "more (--all" not in capsys.readouterr().out


def test_get(data, capsys, monkeypatch):
    assert mmlib_data("get", "flickr30k") == 1
    out = capsys.readouterr().out
    assert "request form" in out
    assert "non-commercial" in out
    make(data / "flickr8k")
    assert mmlib_data("get", "flickr8k") == 0
    assert "already in" in capsys.readouterr().out
    (data / "clue").mkdir()
    for name in registry.find("clue").layout:  # without the third file, a download as well
        (data / "clue" / name).write_text("")
    with monkeypatch.context() as patch:
        patch.setattr(registry, "get", lambda item: [item.folder / "img2idxmap.json"])
        assert mmlib_data("get", "clue") == 0
    assert "in place" in capsys.readouterr().out

    def fail(item):
        raise OSError("no route to host")

    monkeypatch.setattr(registry, "get", fail)
    assert mmlib_data("get", "sick") == 1
    assert "no route to host" in capsys.readouterr().err

    def interrupt(item):
        raise KeyboardInterrupt

    monkeypatch.setattr(registry, "get", interrupt)
    assert mmlib_data("get", "sick") == 130


def test_unknown_names_are_wrong_usage(data, capsys):
    assert mmlib_data("check", "flickr9k") == 2
    assert "no data set 'flickr9k' (choose from flickr8k, clue," in capsys.readouterr().err


def test_an_unusable_device_is_told_in_one_line(data, capsys):
    make(data / "flickr8k")
    assert mmlib_data("features", "flickr8k", "--weights", "random", "--device", "cuda:99") == 1
    message = capsys.readouterr().err.strip()
    assert message.startswith("mmlib data features: no device 'cuda:99': PyTorch sees ")
    assert "\n" not in message


def test_features(data, capsys):
    folder = make(data / "flickr8k")
    words = ("features", "flickr8k", "--backbone", "resnet50", "--weights", "random")
    words += ("--regions", "global", "--device", "cpu", "--labels")
    (folder / "Images" / NAMES[2]).write_bytes(b"?")
    assert mmlib_data(*words) == 1
    assert f"{NAMES[2]}: cannot be decoded" in capsys.readouterr().err
    assert mmlib_data(*words, "--skip-bad") == 0
    out = capsys.readouterr().out
    assert "global_resnet50_random.npy: 7 x 2048, weights: random, seed 0: NOT TRAINED" in out
    assert f"left out: {NAMES[2]}" in out
    loaded = flickr8k.load("test", None, "global_resnet50_random")
    assert loaded.features.shape == (2, 1, 2048)
    assert np.allclose(loaded.label_scores.sum(axis=1), 1, atol=1e-4)
    assert len(loaded.label_names) == 1000


def test_features_of_a_detector(data, capsys):
    make(data / "flickr8k")
    words = ("features", "flickr8k", "--backbone", "fasterrcnn", "--weights", "random")
    words += ("--side", "32", "--device", "cpu")
    assert mmlib_data(*words) == 0
    out = capsys.readouterr().out
    assert "regions36_fasterrcnn_random_ims.npy: 8 x 36 x 1024, weights: random" in out
    loaded = flickr8k.load("test", None, "regions36_fasterrcnn_random_ims")
    assert loaded.features.shape == (2, 36, 1024)
    assert mmlib_data(*words, "--regions", "grid") == 1
    assert "takes neither --regions nor --labels nor --pca" in capsys.readouterr().err


def test_principal_components_are_fitted_on_the_training_images(data, capsys):
    folder = make(data / "flickr8k") / "features"
    words = ("features", "flickr8k", "--backbone", "mobilenetv1", "--weights", "random")
    words += ("--pca", "3", "--device", "cpu", "--dtype", "float32")
    assert mmlib_data(*words) == 0
    out = capsys.readouterr().out
    assert "grid4x4_mobilenetv1_random_pca3.npy: 8 x 16 x 3, weights: random, seed 0" in out
    assert "--features grid4x4_mobilenetv1_random_pca3" in out
    assert np.load(folder / "grid4x4_mobilenetv1_random.npy", mmap_mode="r").shape == (8, 16, 1024)
    train = flickr8k.load("train", None, "grid4x4_mobilenetv1_random_pca3").features
    assert np.abs(train.mean(axis=(0, 1))).max() < 1e-4
    assert abs(train.std() - 1) < 1e-4
    (folder / "grid4x4_mobilenetv1_random.npy").unlink()
    assert mmlib_data(*words) == 1
    assert not (folder / "grid4x4_mobilenetv1_random.npy").exists()  # told before the extraction
    assert "grid4x4_mobilenetv1_random_pca3.npy: is there already" in capsys.readouterr().err


def test_grid_features_in_scans_layout(data, capsys):
    """MS-COCO's photographs lie in two folders."""
    make(data / "two")
    (data / "two/Images").rename(data / "mscoco")
    (data / "mscoco/train2014").mkdir()
    for name in NAMES[:2]:
        (data / "mscoco" / name).rename(data / "mscoco/train2014" / name)
    (data / "mscoco/val2014").mkdir()
    for name in NAMES[2:]:
        (data / "mscoco" / name).rename(data / "mscoco/val2014" / name)
    words = ("features", "mscoco", "--backbone", "resnet50", "--weights", "random")
    words += ("--out", data / "grid_ims.npy", "--dtype", "float32", "--device", "cpu")
    assert mmlib_data(*words) == 0
    assert "grid_ims.npy: 8 x 16 x 2048" in capsys.readouterr().out
    assert (data / "grid_ids.txt").read_text().split() == NAMES
    assert np.load(data / "grid_ims.npy").dtype == np.float32


def test_features_of_nothing(data, capsys):
    (data / "empty").mkdir()
    assert mmlib_data("features", data / "empty") == 1
    assert "no images" in capsys.readouterr().err
    assert mmlib_data("features", data / "none") == 1
    assert "neither flickr8k, flickr30k, mscoco nor a folder of images" in capsys.readouterr().err


def test_what_macos_hides_in_a_zip_is_no_picture(data, capsys):
    pictures = make(data / "flickr8k") / "Images"
    for name in (f"._{NAMES[0]}", "._cover.png", f".thumbnails/{NAMES[1]}"):
        (pictures / name).parent.mkdir(exist_ok=True)
        (pictures / name).write_bytes(b"\0\5\x16\7 Mac OS X")
    assert [path.name for path in data_cli.pictures_of("flickr8k")[1]] == NAMES
    deeper = data / "two"  # photographs a folder deeper, and what a zip of macOS puts beside them
    for name in ("a/one.png", "__MACOSX/._one.png", "a/._one.png"):
        (deeper / name).parent.mkdir(parents=True, exist_ok=True)
        (deeper / name).touch()
    assert data_cli.pictures_of(str(deeper))[1] == [deeper / "a/one.png"]
    (data / "clue").mkdir()
    for name in registry.find("clue").layout:
        (data / "clue" / f"._{name}").touch()
    assert registry.find("clue").missing() == registry.find("clue").layout
