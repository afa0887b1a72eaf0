"""Feature sets side by side: which there are, which is read, and what is noted of it."""

import hashlib
import json

import numpy as np
import pytest

from mmlib.core.errors import DataError
from mmlib.features import sets
from mmlib.features.store import open_features

RECORDED = "grid4x4_mobilenetv1_pca192"


def write(folder, name, shape=(3, 4, 2), notes=None, ids="ids"):
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / f"{name}.npy", np.ones(shape, dtype=np.float32))
    listing = name.removesuffix("_ims") + "_ids.txt" if name.endswith("_ims") else f"{name}.ids.txt"
    (folder / listing).write_text("a\nb\nc\n")
    if notes is not None:
        (folder / f"{name}.json").write_text(json.dumps(notes))
    return folder / f"{name}.npy"


def test_what_belongs_to_a_set_is_no_set(tmp_path):
    for name in (
        "clip",
        "own_ims",
        "own_boxes",
        "own_scores",
        "clip_boxes",
        "labels_clip",
        "clip.mine_test",
    ):
        write(tmp_path, name)
    write(tmp_path, "my_scores")  # of no regions
    assert sets.names(tmp_path) == ["clip", "my_scores", "own_ims"]
    assert sets.names(tmp_path / "none") == []


def test_the_recorded_set_comes_first_then_the_only_one_then_nobody(tmp_path, monkeypatch):
    monkeypatch.delenv("MMLIB_FEATURES", raising=False)
    clip = write(tmp_path, "clip")
    assert sets.choose(tmp_path, default=RECORDED) == clip
    dino = write(tmp_path, "dino")
    with pytest.raises(DataError, match=r"2 feature sets: clip, dino \(name one with --features"):
        sets.choose(tmp_path, default=RECORDED)
    assert sets.choose(tmp_path, "dino", RECORDED) == dino
    recorded = write(tmp_path, RECORDED)
    assert sets.choose(tmp_path, default=RECORDED) == recorded
    monkeypatch.setenv("MMLIB_FEATURES", "clip")
    assert sets.choose(tmp_path, default=RECORDED) == clip


@pytest.mark.parametrize("name", ["siglip", "labels_clip", "../clip"])
def test_a_set_that_is_not_there_is_named_with_those_that_are(tmp_path, name):
    for present in ("clip", "labels_clip"):
        write(tmp_path, present)
    with pytest.raises(DataError, match=r"no feature set '.*'; there are clip \(`mmlib data feat"):
        sets.choose(tmp_path, name)


def test_class_scores_are_those_of_the_set_then_of_its_backbone(tmp_path):
    store = open_features(write(tmp_path, "grid_clip", notes={"backbone": "vit"}))
    assert not sets.labels_of(store, "labels_old").is_file()
    for name in ("labels_only", "labels_old", "labels_vit", "labels_clip", "labels_grid_clip"):
        labels = write(tmp_path, name)
        assert sets.labels_of(store, "labels_old") == labels


@pytest.mark.parametrize(("shape", "regions"), [((3, 4, 2), 4), ((3, 2), 1)])
def test_a_note_tells_shape_origin_and_content(tmp_path, shape, regions):
    path = write(tmp_path, "clip", shape, {"backbone": "vit", "weights": "file w, SHA-256 1"})
    assert sets.note(open_features(path)) == {
        "set": "clip", "regions": regions, "width": 2, "backbone": "vit",
        "weights": "file w, SHA-256 1",
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "ids_sha256": hashlib.sha256(b"a\nb\nc\n").hexdigest(),
    }  # fmt: skip


def test_the_files_of_a_set_are_its_own(tmp_path):
    path, labels = write(tmp_path, "clip", notes={}), write(tmp_path, "labels_clip")
    write(tmp_path, "dino")
    wanted = {"clip.npy", "clip.ids.txt", "clip.json", "labels_clip.npy", "labels_clip.ids.txt"}
    assert {file.name for file in sets.files(path, labels)} == wanted


def test_the_set_in_use_is_the_one_opened_last_below_the_data_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(sets, "_opened", [])
    monkeypatch.setenv("MMLIB_DATA", str(tmp_path))
    assert sets.in_use() is None
    folder = tmp_path / "features"
    write(folder, "clip")
    assert sets.opened(folder).path == sets.in_use().path
    monkeypatch.setenv("MMLIB_DATA", str(tmp_path / "other"))
    assert sets.in_use() is None
