"""The extraction on generated pictures: resumed, changed and damaged runs."""

import errno
import os
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from PIL import Image
from scripts import until

from mmlib.core.errors import DataError
from mmlib.features import backbones, extraction
from mmlib.features.extraction import extract
from mmlib.features.store import open_features, open_rgb


def tiny_network(name, weights=None, seed=0, regions="grid"):
    """A seeded one-layer network of width 8 with 10 classes, or none for the name hf:flat."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        conv, head = torch.nn.Conv2d(3, 8, 32, 32), torch.nn.Linear(8, 10)

    def look(images):
        maps = conv(images) * (1e6 if name == "hf:huge" else 1)
        vector = maps.mean(dim=(2, 3))
        return (None, vector, None) if name == "hf:flat" else (maps, vector, head(vector))

    def preprocess(picture):
        pixels = np.asarray(picture.resize((224, 224)), dtype=np.float32)
        return torch.from_numpy(pixels).permute(2, 0, 1) / 255

    return backbones.Vision(name, conv, preprocess, look, tuple("abcdefghij"), regions)


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setattr(backbones, "load", tiny_network)


def files(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


def run(pictures, folder, regions="grid", backbone="densenet169", labels=None, **settings):
    settings = {"weights": "random", "batch": 3, **settings}
    scores = folder / "labels.npy" if labels or backbone != "hf:flat" else None
    out = folder / "f.npy"
    return extract(pictures, out, backbone, regions=regions, labels=scores, **settings)


def break_off(pictures, folder, monkeypatch, batches, **settings):
    """Run and stop as a kill would: while the next batch is written."""
    with monkeypatch.context() as patch:
        patch.setattr(extraction, "write_tensors", until(batches, extraction.write_tensors))
        with pytest.raises(KeyboardInterrupt):
            run(pictures, folder, **settings)


@pytest.fixture
def complete(tmp_path, pictures):
    """The files of a run that nothing stopped."""
    run(pictures, tmp_path / "whole")
    return files(tmp_path / "whole")


def test_extract_writes_what_the_reader_reads(tmp_path, pictures):
    features = run(pictures, tmp_path / "out")
    assert (features.array.shape, features.array.dtype) == ((11, 16, 8), np.float16)
    assert isinstance(features.array, np.memmap)
    assert list(features.row_of) == [name for name, _ in pictures]
    assert "NOT TRAINED" in features.meta["weights"]
    labels = open_features(tmp_path / "out" / "labels.npy")
    assert labels.array.shape == (11, 10)
    assert labels.meta["label_names"] == list("abcdefghij")
    assert sorted(files(tmp_path / "out")) == [
        "f.ids.txt", "f.json", "f.npy", "labels.ids.txt", "labels.json", "labels.npy",
    ]  # fmt: skip
    network = tiny_network("densenet169")
    with torch.inference_mode():
        rows = network.see([network.preprocess(open_rgb(pictures[4][1]))])
    assert np.allclose(features.rows(["04.jpg"])[0], rows["features"][0], atol=2e-3)
    assert np.allclose(labels.rows(["04.jpg"])[0, 0], rows["labels"][0], atol=1e-6)
    complete = run(pictures, tmp_path / "global", regions="global", dtype="float32")
    assert (complete.array.shape, complete.array.dtype) == ((11, 8), np.float32)
    flat = run(pictures, tmp_path / "flat", "global", "hf:flat")
    assert np.allclose(flat.array, complete.array, atol=2e-3)


@pytest.mark.parametrize("batches", [0, 1, 3])
@pytest.mark.parametrize("settings", [{}, {"regions": "global"}, {"skip_bad": True, "batch": 2}])
def test_resumed_run_ends_with_the_same_bytes(tmp_path, pictures, monkeypatch, batches, settings):
    if settings.get("skip_bad"):
        for i in (2, 3):  # a complete batch
            pictures[i][1].write_bytes(b"no picture")
    run(pictures, tmp_path / "whole", **settings)
    broken = tmp_path / "broken"
    break_off(pictures, broken, monkeypatch, batches, **settings)
    assert files(broken) == {}
    run(pictures, broken, **settings)
    assert files(broken) == files(tmp_path / "whole")
    assert not (broken / ".f.partial").exists()


def test_a_run_stopped_while_it_names_its_files_ends_with_the_same_bytes(
    tmp_path, pictures, monkeypatch, complete
):
    replace = os.replace

    def breaking(source, target):
        if str(target).endswith("f.npy"):
            raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", breaking)
        with pytest.raises(KeyboardInterrupt):
            run(pictures, tmp_path / "out")
    assert "labels.npy" in files(tmp_path / "out")
    assert "f.npy" not in files(tmp_path / "out")  # its name means done
    run(pictures, tmp_path / "out")
    assert files(tmp_path / "out") == complete


def test_a_run_goes_on_where_it_stopped_and_makes_a_damaged_batch_anew(
    tmp_path, pictures, monkeypatch, complete
):
    out, opened = tmp_path / "out", []
    break_off(pictures, out, monkeypatch, 2)
    picture, batch = extraction.open_rgb, out / ".f.partial/3.safetensors"
    monkeypatch.setattr(
        extraction, "open_rgb", lambda path: opened.append(path.name) or picture(path)
    )
    content = batch.read_bytes()
    for damaged in (b"", content[:20], content[:-1], content[:-99] + bytes(99)):
        batch.write_bytes(damaged)
        break_off(pictures, out, monkeypatch, 1)
    assert set(opened) == {f"{i:02}.jpg" for i in range(3, 9)}
    opened.clear()
    for _ in range(2):  # finished then: nothing to do
        run(pictures, out)
        assert sorted(opened) == [f"{i:02}.jpg" for i in range(6, 11)]
    assert files(out) == complete


def test_damaged_settings_of_an_unfinished_run_are_named(tmp_path, pictures, monkeypatch):
    break_off(pictures, tmp_path / "out", monkeypatch, 1)
    for text in ("", "{", "[]", "{}"):
        (tmp_path / "out/.f.partial/settings.json").write_text(text)
        with pytest.raises(DataError, match=r"\.f\.partial(/settings\.json: not|: an unfinished)"):
            run(pictures, tmp_path / "out")


@pytest.mark.parametrize(
    ("change", "key"),
    [({"batch": 4}, "batch"), ({"seed": 1}, "weights"), ({"regions": "global"}, "regions")],
)
def test_other_settings_are_refused(tmp_path, pictures, monkeypatch, change, key):
    break_off(pictures, tmp_path / "out", monkeypatch, 1)
    with pytest.raises(DataError, match=f"unfinished run with other settings: {key}"):
        run(pictures, tmp_path / "out", **change)
    with pytest.raises(DataError, match="images 11, now 10"):
        run(pictures[:-1], tmp_path / "out")
    run(pictures, tmp_path / "out")
    with pytest.raises(DataError, match=f"was made with other settings: {key}"):
        run(pictures, tmp_path / "out", **change)


def test_an_undecodable_image_is_named_and_may_be_left_out_or_mended(tmp_path, pictures):
    sound = pictures[7][1].read_bytes()
    pictures[7][1].write_bytes(sound[:200])
    for folder in ("mended", "left_out"):
        with pytest.raises(DataError, match=r"07\.jpg: cannot be decoded.*--skip-bad"):
            run(pictures, tmp_path / folder)
    features = run(pictures, tmp_path / "left_out", skip_bad=True)
    assert (features.meta["skipped"], len(features.array)) == (["07.jpg"], 10)
    with pytest.raises(DataError, match=r"no features for image '07\.jpg'"):
        features.rows(["07.jpg"])
    pictures[7][1].write_bytes(sound)
    run(pictures, tmp_path / "mended")
    complete = run(pictures, tmp_path / "whole")
    assert files(tmp_path / "mended") == files(tmp_path / "whole")
    assert np.array_equal(features.rows(["06.jpg", "08.jpg"]), complete.rows(["06.jpg", "08.jpg"]))
    with pytest.raises(DataError, match="was made from other files"):
        run(pictures, tmp_path / "left_out")


@pytest.mark.parametrize("half", [True, False])
def test_photographs_replaced_by_others_of_equal_size_and_time_are_seen(
    tmp_path, pictures, monkeypatch, half
):
    if half:
        break_off(pictures, tmp_path / "out", monkeypatch, 1)
    else:
        run(pictures, tmp_path / "out")
    path, times = pictures[1][1], pictures[1][1].stat()
    data = path.read_bytes()
    path.write_bytes(data[:-3] + bytes([data[-3] ^ 1]) + data[-2:])
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    message = "images changed since" if half else r"f\.npy: was made from other files.*delete"
    with pytest.raises(DataError, match=message):
        run(pictures, tmp_path / "out")


def test_a_full_disk_names_the_file_and_the_run_goes_on(tmp_path, pictures, monkeypatch, complete):
    for target, file in (
        ((Path, "write_bytes"), "0.safetensors"),
        ((extraction, "_join"), "labels"),
    ):
        with monkeypatch.context() as patch:
            full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            patch.setattr(*target, Mock(side_effect=full))
            with pytest.raises(OSError, match=f"No space left.*{file}"):
                run(pictures, tmp_path / "out")
    run(pictures, tmp_path / "out")
    assert files(tmp_path / "out") == complete


@pytest.mark.parametrize(
    ("images", "how", "message"),
    [
        ([], {}, "no images"),
        (["00.jpg", "00.jpg"], {}, "occurs twice"),
        (["a\nb.jpg"], {}, r"id 'a\\nb.jpg' has a line break"),
        (["none.jpg"], {}, "no such image"),
        (["pipe.jpg"], {}, r"pipe\.jpg: cannot be decoded: is a pipe, .*, not a file"),
        (["strip.png"], {}, r"strip\.png: 1 x 5000 pixels are too thin a strip; --skip-bad"),
        (["\udcff.jpg"], {}, "bytes that are not UTF-8"),
        (["none.jpg"], {"skip_bad": True}, "none of 1 images can be read"),
        (["00.jpg"], {"backbone": "hf:huge"}, r"00\.jpg: its features do not fit float16"),
        (["00.jpg"], {"backbone": "hf:flat"}, "one vector an image"),
        (["00.jpg"], {"backbone": "hf:flat", "regions": "global", "labels": True}, "no classes"),
    ],
)
def test_what_is_refused(tmp_path, pictures, images, how, message):
    folder = pictures[0][1].parent
    os.mkfifo(folder / "pipe.jpg")
    Image.new("RGB", (1, 5000)).save(folder / "strip.png")
    with pytest.raises(DataError, match=message):
        run([(name, folder / name) for name in images], tmp_path / "out", **how)
    if "flat" in str(how):
        assert not (tmp_path / "out").exists()  # before the work
