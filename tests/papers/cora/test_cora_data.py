"""The world's captions and a small folder in the authors' layout, as arrays to train on."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_cora

from mmlib import scenegraph
from mmlib.core.errors import DataError
from mmlib.core.records import CaptionedImages
from mmlib.papers.cora import data
from mmlib.papers.cora.data import load_arrays, load_study, prepare, texts, word_vectors, world
from mmlib.papers.cora.run import batches
from mmlib.papers.cora.run.systems import ERRORS, RATES, budget


@pytest.fixture(scope="module")
def collection():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world, "WORLD_IMAGES", {"train": 80, "val": 20, "test": 52})
        patch.setattr(texts, "cache_dir", lambda: None)
        patch.setattr(os, "cpu_count", lambda: 1)
        yield load_study("world", ["world"])["world"]


@pytest.fixture(scope="module")
def arrays(collection):
    return prepare(collection, replace(budget("world", "world"), word_width=32))


def test_a_collection_as_arrays(collection, arrays):
    for name, split in arrays.splits.items():
        assert np.array_equal(split.image_of, collection.image_of(name))
        assert {len(texts) for texts in split.texts.values()} == {len(collection.captions(name))}
    images = [*collection.image_of("test"), *range(52)]
    assert arrays.clusters("test").tolist() == [i // 4 for i in images]
    # One deviation for all dimensions of a region, as they were before centring.
    features, raw = arrays.splits["train"].features, collection.images["train"].features
    assert np.abs(features.mean(axis=(0, 1))).max() < 1e-4
    assert np.allclose(features * raw.std() + raw.mean(axis=(0, 1)), raw, atol=1e-4)
    assert arrays.embeddings.shape == (len(arrays.vocabulary), 32)
    assert np.allclose(arrays.embeddings.mean(axis=0), 0, atol=1e-5)
    assert np.allclose(arrays.embeddings.std(axis=0, ddof=1), 1, atol=1e-4)


def test_given_word_vectors_are_taken(collection, tmp_path, monkeypatch):
    path = tmp_path / "glove" / "glove.6B.3d.txt"
    path.parent.mkdir()
    path.write_text("dog 1 2 3\nzebra 3 2 1\n", encoding="utf-8")
    monkeypatch.setenv("MMLIB_DATA", str(tmp_path))  # the folder where they are looked for
    settings = replace(budget("world", "world"), word_width=3)
    vocabulary, table = word_vectors(collection.captions("train"), settings)
    dog = table[vocabulary.words.index("dog")]
    assert (np.abs(table).max(axis=0) == np.abs(dog)).all()  # beside it all is small and random


def test_test_graphs_with_errors_stand_beside_the_parsed_ones(arrays):
    texts = arrays.splits["test"].texts
    names = {f"{kind} {rate}" for kind in ERRORS for rate in RATES}
    assert set(texts) == names | {"graph", "gold", "sequence"}
    assert texts["edge 30"].owner.tolist() == texts["graph"].owner.tolist()
    plain = texts["graph"]
    moved = [
        (texts[f"edge {rate}"].subject != plain.subject)
        | (texts[f"edge {rate}"].object != plain.object)
        for rate in RATES
    ]
    assert 0 < moved[0].sum() < moved[2].sum()


def test_what_only_the_record_reads_can_be_left_out(collection, arrays):
    lean = prepare(collection, replace(budget("world", "world"), word_width=32), for_record=False)
    assert not lean.truth
    assert set(lean.splits["test"].texts) == {"graph", "sequence"}
    for name, split in lean.splits.items():
        assert np.array_equal(split.features, arrays.splits[name].features)
        for reads, encoded in split.texts.items():
            assert np.array_equal(encoded.tokens, arrays.splits[name].texts[reads].tokens)


def test_the_truth_of_more_structure_is_the_truth_of_fewer_pictures(collection, arrays):
    words, things, whole = (
        arrays.truth[name] > 0.5 for name in ("words", "entities", "graph")
    )  # what does not hold scores less than 0.001
    image_of = collection.image_of("test")
    own = np.arange(len(image_of))
    for holds in (words, things, whole):
        assert holds[image_of, own].all()
    assert (whole <= things).all()
    assert (things <= words).all()
    assert whole.sum() < things.sum() < words.sum()


# --- The authors' layout -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two collections whose features and graphs are files; "coco" has all of its test images."""
    root, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    texts = ["a red dog chases a ball", "a man on a horse"] * 10
    entries = [scenegraph.to_authors(graph) for graph in scenegraph.parse(texts)]
    for name in ("f30k", "coco"):
        (root / name / "scene_graph").mkdir(parents=True)
        for split in ("train", "dev", "test", "testall")[: 3 if name == "f30k" else 4]:
            base = root / name / split
            images = 2 if split == "test" else 4
            np.save(f"{base}_ims.npy", rng.random((images, 3, 8), dtype=np.float32))
            Path(f"{base}_ids.txt").write_text("".join(f"{split}{i}\n" for i in range(images)))
            lines = texts[: 5 * images]
            Path(f"{base}_caps.txt").write_text("".join(f"{text}\n" for text in lines))
            graphs_ = {str(i): entry for i, entry in enumerate(entries[: len(lines)])}
            (base.parent / "scene_graph" / f"{split}.json").write_text(json.dumps(graphs_))
    return root


def test_with_a_bert_captions_are_there_in_its_pieces(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("MMLIB_DATA", str(tmp_path))
    (tmp_path / "f30k").symlink_to(folder / "f30k")
    monkeypatch.setattr(data, "budget", lambda *_: replace(budget("paper", "f30k"), word_width=8))
    with pytest.raises(DataError, match="no such folder"):
        load_arrays(load_study("paper", ["f30k_bert"]), "paper")
    assert list(load_study("paper")) == ["f30k"]
    (tmp_path / "bert").mkdir()
    tiny_cora.write_bert(tmp_path / "bert")
    study = load_study("paper")
    assert list(study) == ["f30k", "f30k_bert"]
    test = load_arrays(study, "paper")["f30k_bert"].splits["test"]
    assert set(test.texts) == {"graph", "sequence", "graph, pieces", "sequence, pieces"}
    assert {len(texts) for texts in test.texts.values()} == {10}


@pytest.fixture
def from_files(folder, monkeypatch):
    monkeypatch.setenv("MMLIB_DATA", str(folder))
    monkeypatch.setattr(data, "budget", lambda *_: replace(budget("paper", "coco"), word_width=8))
    return load_arrays(load_study("paper"), "paper")


def test_all_collections_that_are_there_are_read_with_all_test_images(from_files):
    assert list(from_files) == ["f30k", "coco"]
    assert [len(one.splits["test"].features) for one in from_files.values()] == [2, 4]
    assert from_files["coco"].truth == {}
    features = from_files["coco"].splits["train"].features
    assert isinstance(features, np.memmap)  # they stay in their file
    assert Path(features.filename).name == "train_ims.npy"


def test_photographs_with_other_regions_are_named_with_their_file_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("MMLIB_DATA", str(tmp_path))
    monkeypatch.setattr(texts, "cache_dir", lambda: None)
    rows, grid = np.arange(3.0 * 24 * 2).reshape(3, 24, 2), np.zeros((1, 16, 2))
    monkeypatch.setattr(data.flickr8k, "load", lambda split: CaptionedImages(
        "flickr8k", split, (f"{split}.jpg",), (("a red dog",) * 5,), grid, open
    ))  # fmt: skip
    assert list(load_study("flickr8k")) == ["flickr8k", "flickr8k_long", "flickr8k_tuned"]
    with pytest.raises(DataError, match="gridthings24"):
        load_study("flickr8k", ["flickr8k_things"])
    (path := tmp_path / data.THINGS).parent.mkdir(parents=True)
    np.save(path, rows[:, :16])
    path.with_suffix(".ids.txt").write_text("val.jpg\ntest.jpg\ntrain.jpg\n")
    with pytest.raises(DataError, match=r"\(3, 16, 2\) is not \(images, 24, width\)"):
        load_study("flickr8k")
    np.save(path, rows)
    study = load_study("flickr8k")
    both, cells, boxes = (study["flickr8k_things" + e].images for e in ("", "_grid", "_boxes"))
    assert np.array_equal(both["train"].features, rows[2:])
    assert np.array_equal(cells["test"].features, rows[1:2, :16])
    assert np.array_equal(boxes["val"].features, rows[:1, 16:])
    assert study["flickr8k"].images["test"].features is grid


def test_splits_that_do_not_fit_are_refused(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("MMLIB_DATA", str(tmp_path))
    shutil.copytree(folder / "f30k", tmp_path / "f30k")
    names = {f"{s}{i}": f"{i}{s[0]}.jpg" for s in ("train", "dev", "test") for i in range(4)}
    (tmp_path / "f30k/id_mapping.json").write_text(json.dumps(names))
    with pytest.raises(DataError, match=r"f30k: \dt\.jpg is in 2 splits"):
        load_study("paper", ["f30k"])
    np.save(tmp_path / "f30k/dev_ims.npy", np.zeros((4, 3, 9), np.float32))
    with pytest.raises(DataError, match=r"f30k: widths are .*'dev': 9, 'test': 8} \(get"):
        load_study("paper", ["f30k"])


def test_a_second_fingerprint_reads_nothing(from_files, monkeypatch):
    again = from_files["coco"]
    first = again.fingerprint
    with monkeypatch.context() as patch:
        patch.setattr(batches, "file_fingerprint", lambda array: pytest.fail("it was read"))
        assert again.fingerprint == first
    path = Path(again.splits["train"].features.filename)
    os.utime(path, ns=(0, 0))  # whoever writes changes it
    assert replace(again).fingerprint != first


def test_what_is_not_there_is_told(folder, monkeypatch, tmp_path):
    with pytest.raises(ValueError, match="no tier 'moon'"):
        load_study("moon")
    with pytest.raises(ValueError, match="no captions 'coco' here; there are clear, world"):
        load_study("world", ["coco"])
    monkeypatch.setenv("MMLIB_DATA", str(tmp_path))
    for named in ([], ["coco"]):
        with pytest.raises(DataError, match="no folder of region features"):
            load_study("paper", named)
