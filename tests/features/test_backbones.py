"""The backbones against torchvision; the extractor on generated pictures."""

import errno
import json
import os
import pickle

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from safetensors.torch import save_file

from mmlib.core.errors import DataError
from mmlib.features import backbones, extraction, networks
from mmlib.features.backbones import load_backbone
from mmlib.features.extraction import Extraction
from mmlib.features.networks import extract, feature_name
from mmlib.features.store import open_features, open_rgb

# Networks


@pytest.fixture(scope="module")
def resnet():
    return load_backbone("resnet50", "random", seed=3)


@pytest.fixture(scope="module")
def densenet():
    return load_backbone("densenet169", "random", seed=3)


@pytest.mark.parametrize(("name", "width"), [("resnet50", 2048), ("densenet169", 1664)])
def test_backbone_is_torchvisions_network_cut_in_two(request, name, width):
    backbone = request.getfixturevalue(name[:-2] if name == "resnet50" else "densenet")
    with torch.random.fork_rng():
        torch.manual_seed(3)
        original = torchvision.models.get_model(name, weights=None).eval()
    images = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        grid, scores = backbone(images, "grid")
        pooled, _ = backbone(images, "global")
        torch.testing.assert_close(scores, original(images).softmax(dim=1))
        maps = backbone.trunk(images)
    assert grid.shape == (1, 16, width)
    assert pooled.shape == (1, 1, width)
    torch.testing.assert_close(pooled[:, 0], maps.mean(dim=(2, 3)))
    # Cell 1 of a 7 x 7 map pooled to 4 x 4: rows 0-1, columns 1-3, so rows come first.
    torch.testing.assert_close(grid[:, 1], maps[:, :, 0:2, 1:4].mean(dim=(2, 3)))


def test_random_weights_follow_their_seed_and_leave_the_generator_alone(resnet):
    before = torch.random.get_rng_state()
    second = load_backbone("resnet50", "random", 4)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not torch.equal(second.head.weight, resnet.head.weight)


def test_weights_from_a_file(tmp_path, densenet):
    state = {
        key.replace("trunk.0.", "features.").replace("head.", "classifier."): value
        for key, value in densenet.state_dict().items()
    }
    published = {  # the published file's older names
        key.replace("norm1.", "norm.1.").replace("conv2.", "conv.2."): value
        for key, value in state.items()
    }
    assert published.keys() != state.keys()
    torch.save(published, tmp_path / "w.pth")
    loaded = load_backbone("densenet169", tmp_path / "w.pth").state_dict()
    assert all(torch.equal(loaded[key], value) for key, value in densenet.state_dict().items())
    with pytest.raises(DataError, match="not the weights of resnet50"):
        load_backbone("resnet50", tmp_path / "w.pth")
    save_file({"a": torch.arange(3)}, tmp_path / "w.safetensors")
    assert backbones.read_weights(tmp_path / "w.safetensors")["a"].tolist() == [0, 1, 2]


class Evil:
    def __reduce__(self):
        return (open, ("evil.txt", "w"))


def test_a_weights_file_cannot_run_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"w": Evil()}, tmp_path / "w.pth")
    (tmp_path / "plain.pth").write_bytes(pickle.dumps(Evil(), protocol=2))
    for name in ("w.pth", "plain.pth"):
        with pytest.raises(DataError, match="not a file of plain tensors"):
            load_backbone("resnet50", tmp_path / name)
    assert not (tmp_path / "evil.txt").exists()


def test_names_that_do_not_exist(tmp_path):
    with pytest.raises(DataError, match="no backbone 'vgg'"):
        load_backbone("vgg", "random")
    with pytest.raises(DataError, match="no such weights file"):
        load_backbone("resnet50", tmp_path / "none.pth")


def test_no_network_says_what_to_do(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise backbones.urllib.error.URLError("no route")

    monkeypatch.setattr("torch.hub.download_url_to_file", refuse)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(DataError, match="--weights FILE"):
        load_backbone("densenet169")


# Extraction: a small network stands in, so that a run takes milliseconds.


@pytest.fixture
def tiny(monkeypatch):
    """`load_backbone` that gives a seeded one-layer network of width 8 with 1,000 classes."""

    def load(name, weights=None, seed=0):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            network = torch.nn.Module()
            network.features = torch.nn.Conv2d(3, 8, 32, 32)
            network.classifier = torch.nn.Linear(8, 1000)
        return backbones.Backbone("densenet169", network).eval()

    monkeypatch.setattr(networks, "load_backbone", load)


@pytest.fixture
def pictures(tmp_path):
    generator = np.random.default_rng(0)
    folder = tmp_path / "images"
    folder.mkdir()
    for i in range(11):
        pixels = generator.integers(0, 256, size=(40, 60, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{i:02}.jpg")
    return [(path.name, path) for path in sorted(folder.iterdir())]


def files(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


def run(pictures, folder, regions="grid", **settings):
    settings = {"weights": "random", "batch": 3, **settings}
    labels = folder / "labels.npy"
    return extract(
        Extraction(pictures, folder / "f.npy", **settings), regions=regions, labels=labels
    )  # fmt: skip


def break_off(pictures, folder, monkeypatch, batches, **settings):
    """Run and stop as a kill would: after so many batches, before the next one is written."""
    write, left = extraction.Work.write, [2 * batches]

    def breaking(self, *args):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        write(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(extraction.Work, "write", breaking)
        with pytest.raises(KeyboardInterrupt):
            run(pictures, folder, **settings)


def test_extract_writes_what_the_reader_reads(tmp_path, tiny, pictures):
    features = run(pictures, tmp_path / "out")
    assert features.array.shape == (11, 16, 8)
    assert features.array.dtype == np.float16
    assert list(features.row_of) == [name for name, _ in pictures]
    assert "NOT TRAINED" in features.meta["weights"]
    labels = open_features(tmp_path / "out" / "labels.npy")
    assert labels.array.shape == (11, 1000)
    assert np.allclose(labels.array.sum(axis=1), 1, atol=1e-5)
    assert labels.meta["label_names"][207] == "golden retriever"
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "f.ids.txt", "f.json", "f.npy", "labels.ids.txt", "labels.json", "labels.npy",
    ]  # fmt: skip
    network = networks.load_backbone("densenet169", "random")
    with torch.inference_mode():
        pixels = backbones.preprocess()(open_rgb(pictures[4][1]))[None]
        expected, scores = network(pixels, "grid")
    assert np.allclose(features.rows(["04.jpg"])[0], expected[0], atol=2e-3)
    assert np.allclose(labels.rows(["04.jpg"])[0, 0], scores[0], atol=1e-6)


@pytest.mark.parametrize("batches", [0, 1, 3])
@pytest.mark.parametrize("settings", [{}, {"regions": "global"}, {"skip_bad": True}])
def test_resumed_run_ends_with_the_same_bytes(
    tmp_path, tiny, pictures, monkeypatch, batches, settings
):
    if settings.get("skip_bad"):
        pictures[1][1].write_bytes(b"no picture")
    run(pictures, tmp_path / "whole", **settings)
    broken = tmp_path / "broken"
    break_off(pictures, broken, monkeypatch, batches, **settings)
    assert files(broken) == {}
    assert json.loads((broken / ".f.partial/progress.json").read_text())["done"] == 3 * batches
    run(pictures, broken, **settings)
    assert files(broken) == files(tmp_path / "whole")
    assert not (broken / ".f.partial").exists()


NOTES = (
    "", "{", "[]", '"x"', "{}", '{"done": "3", "bad": [], "files": "", "settings": {}}',
    '{"done": -1, "bad": [], "files": "", "settings": {}}',
    '{"done": 99, "bad": [], "files": "", "settings": {}}',
    '{"done": 3, "bad": [1], "files": "", "settings": {}}',
    '{"done": 3, "bad": [], "files": "", "settings": []}',
)  # fmt: skip


def test_a_damaged_unfinished_run_is_named_and_can_be_deleted(
    tmp_path, tiny, pictures, monkeypatch
):
    out = tmp_path / "out"
    break_off(pictures, out, monkeypatch, 1)
    state, array = out / ".f.partial/progress.json", out / ".f.partial/features.npy"
    whole, values = state.read_text(), array.read_bytes()
    for text in NOTES:
        state.write_text(text)
        with pytest.raises(DataError, match=r"progress\.json: damaged; delete it to begin anew$"):
            run(pictures, out)
    state.write_text(whole)
    for cut in (b"", values[:20], values[:-1]):
        array.write_bytes(cut)
        with pytest.raises(DataError, match=r"features\.npy: damaged; delete .*\.f\.partial to"):
            run(pictures, out)
    np.save(array, np.zeros(3))
    with pytest.raises(DataError, match=r"features\.npy: damaged"):
        run(pictures, out)
    state.unlink()
    run(pictures, out)
    run(pictures, tmp_path / "whole")
    assert files(out) == files(tmp_path / "whole")


def test_resume_does_not_compute_again(tmp_path, tiny, pictures, monkeypatch):
    break_off(pictures, tmp_path / "out", monkeypatch, 2)
    observed = []
    picture = backbones.open_picture
    monkeypatch.setattr(
        networks, "open_picture", lambda path: observed.append(path.name) or picture(path)
    )
    run(pictures, tmp_path / "out")
    assert sorted(observed) == [f"{i:02}.jpg" for i in range(6, 11)]
    run(pictures, tmp_path / "out")  # finished: nothing to do
    assert len(observed) == 5


@pytest.mark.parametrize(
    "change", [{"batch": 4}, {"seed": 1}, {"regions": "global"}, {"weights": None}]
)
def test_other_settings_are_refused(tmp_path, tiny, pictures, monkeypatch, change):
    break_off(pictures, tmp_path / "out", monkeypatch, 1)
    key = "weights" if "seed" in change else next(iter(change))
    with pytest.raises(DataError, match=f"unfinished run with other settings: {key}"):
        run(pictures, tmp_path / "out", **change)
    with pytest.raises(DataError, match="images 11, now 10"):
        run(pictures[:-1], tmp_path / "out")
    run(pictures, tmp_path / "out")
    with pytest.raises(DataError, match=f"was made with other settings: {key}"):
        run(pictures, tmp_path / "out", **change)


def test_undecodable_image_is_named_or_left_out(tmp_path, tiny, pictures):
    name, path = pictures[4]
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match=r"04\.jpg: cannot be decoded.*--skip-bad"):
        run(pictures, tmp_path / "out")
    with pytest.raises(DataError, match=r"04\.jpg: cannot be decoded"):
        run(pictures, tmp_path / "out")  # again, where it stopped
    features = run(pictures, tmp_path / "out", skip_bad=True)
    assert features.meta["skipped"] == ["04.jpg"]
    assert len(features.array) == 10
    with pytest.raises(DataError, match=r"no features for image '04\.jpg'"):
        features.rows([name])
    assert np.isfinite(features.rows(["03.jpg", "05.jpg"])).all()
    assert (features.rows(["03.jpg", "05.jpg"]) != 0).any(axis=(1, 2)).all()


def test_bad_image_may_be_mended_or_left_out_half_way(tmp_path, tiny, pictures):
    sound = pictures[7][1].read_bytes()
    pictures[7][1].write_bytes(b"?")
    for folder in ("mended", "left_out"):
        with pytest.raises(DataError, match="07"):
            run(pictures, tmp_path / folder)
    assert len(run(pictures, tmp_path / "left_out", skip_bad=True).array) == 10
    pictures[7][1].write_bytes(sound)
    run(pictures, tmp_path / "mended")
    run(pictures, tmp_path / "whole")
    assert files(tmp_path / "mended") == files(tmp_path / "whole")
    with pytest.raises(DataError, match="was made from other files"):
        run(pictures, tmp_path / "left_out")


def test_images_already_done_may_not_change(tmp_path, tiny, pictures, monkeypatch):
    break_off(pictures, tmp_path / "out", monkeypatch, 2)
    pictures[1][1].write_bytes(pictures[9][1].read_bytes() + b"0")
    with pytest.raises(DataError, match="images changed since this run began"):
        run(pictures, tmp_path / "out")


def test_photographs_replaced_by_others_of_equal_size_are_seen(
    tmp_path, tiny, pictures, monkeypatch
):
    for name, half in (("whole", False), ("half", True)):
        if half:
            break_off(pictures, tmp_path / name, monkeypatch, 1)
        else:
            run(pictures, tmp_path / name)
        path, times = pictures[1][1], pictures[1][1].stat()
        data = path.read_bytes()
        path.write_bytes(data[:-3] + bytes([data[-3] ^ 1]) + data[-2:])
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert path.stat().st_size == times.st_size
        message = "images changed since" if half else r"f\.npy: was made from other files.*delete"
        with pytest.raises(DataError, match=message):
            run(pictures, tmp_path / name)


@pytest.mark.parametrize("room", [0, 1])
def test_a_disk_without_room_is_said_before_the_work(tmp_path, tiny, pictures, monkeypatch, room):
    """The first or the second array has no room; nothing is left."""
    room = [room]

    def full(file, offset, length):
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        room[0] -= 1

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    message = r"\.npy: cannot reserve \S+ GB: No space left on device \(make room"
    with pytest.raises(DataError, match=message):
        run(pictures, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_the_space_of_an_unfinished_array_is_reserved(tmp_path, tiny, pictures, monkeypatch):
    if not hasattr(os, "posix_fallocate"):
        pytest.skip("this system cannot reserve space")
    break_off(pictures, tmp_path / "out", monkeypatch, 0)
    for name in ("features", "labels"):
        status = (tmp_path / "out/.f.partial" / f"{name}.npy").stat()
        assert status.st_blocks * 512 >= status.st_size
    monkeypatch.setattr(os, "posix_fallocate", lambda *_: os.open(tmp_path / "none", os.O_RDONLY))
    with pytest.raises(DataError, match="cannot reserve"):  # of an earlier version's, too
        run(pictures, tmp_path / "out")
    monkeypatch.undo()
    assert (tmp_path / "out/.f.partial/features.npy").is_file()


def test_a_name_with_a_line_break_is_refused_before_the_work(tmp_path, tiny, pictures):
    with pytest.raises(DataError, match=r"id 'a\\nb.jpg' has a line break"):
        run([*pictures, ("a\nb.jpg", pictures[0][1])], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_missing_image_doubled_id_and_overflow(tmp_path, tiny, pictures, monkeypatch):
    with pytest.raises(DataError, match="no such image"):
        run([*pictures, ("none.jpg", tmp_path / "none.jpg")], tmp_path / "a")
    with pytest.raises(DataError, match="no images"):
        run([], tmp_path / "e")
    with pytest.raises(DataError, match="occurs twice"):
        run([*pictures, pictures[0]], tmp_path / "b")

    def huge(self, images, regions):
        return torch.full((len(images), 16, 8), 1e6), torch.zeros(len(images), 1000)

    monkeypatch.setattr(backbones.Backbone, "forward", huge)
    with pytest.raises(DataError, match=r"00\.jpg: its features do not fit float16"):
        run(pictures, tmp_path / "c")


def test_global_features_are_one_row_an_image(tmp_path, tiny, pictures):
    features = run(pictures, tmp_path / "out", regions="global")
    assert features.array.shape == (11, 8)
    assert features.rows(["00.jpg"]).shape == (1, 1, 8)


def test_file_names():
    assert feature_name("resnet50", "grid") == "grid4x4_resnet50"
    assert feature_name("resnet50", "global", "random") == "global_resnet50_random"


def test_a_real_backbone_end_to_end(tmp_path, pictures):
    three = Extraction(pictures[:3], tmp_path / "f.npy", weights="random")
    features = extract(three, backbone="resnet50", regions="global")
    assert features.array.shape == (3, 2048)
    assert len(np.unique(features.rows([pictures[0][0], pictures[1][0]]), axis=0)) == 2
