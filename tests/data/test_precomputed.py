"""The three layouts of captions with region features, written small, sound and malformed."""

import json
import os
import shutil

import numpy as np
import pytest
from PIL import Image

from mmlib.core.errors import DataError
from mmlib.data import precomputed
from mmlib.data.precomputed import inspect, load
from mmlib.features import extraction
from mmlib.scenegraph import from_authors

REGIONS, WIDTH = 3, 4
N = 4  # images of a split
CAPTIONS = [f"A dog {i} runs , caption {j} ." for i in range(N) for j in range(5)]
IDS = ["391895", "522418", "184613", "318219"]
FEATURES = np.random.default_rng(0).normal(size=(N, REGIONS, WIDTH)).astype(np.float32)


def graph(caption):
    return {
        "caption": caption,
        "entities": [{"id": 7, "name": "dog", "attributes": [[0, "brown", ["very"]]]},
                     {"id": 3, "name": "park", "attributes": []}],
        "relations": [[7, 3, ["runs"], "in"], [7, 3, [], ""]],
    }  # fmt: skip


def write_lines(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8-sig")


def write_texts(folder, split="test", captions=CAPTIONS, ids=IDS):
    folder.mkdir(parents=True, exist_ok=True)
    write_lines(folder / f"{split}_caps.txt", captions)
    write_lines(folder / f"{split}_ids.txt", ids)
    return folder


def write_scan(folder, split="test", captions=CAPTIONS, ids=IDS, features=FEATURES):
    np.save(write_texts(folder, split, captions, ids) / f"{split}_ims.npy", features)
    return folder


def write_cora(folder, split="test", captions=CAPTIONS, ids=IDS, features=FEATURES):
    write_texts(folder, split, captions, ids)
    for row, values in enumerate(features):
        path = folder / "region_feats" / split / f"part{row // precomputed.PART}" / f"{row}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, values)
    write_graphs(folder, split, {str(i): graph(text) for i, text in enumerate(captions)})
    return folder


def write_graphs(folder, split, graphs):
    (folder / "scene_graph").mkdir(exist_ok=True)
    (folder / "scene_graph" / f"{split}.json").write_text(json.dumps(graphs), encoding="utf-8-sig")


def write_photographs(folder, names):
    folder.mkdir(parents=True)
    for i, name in enumerate(names):
        Image.new("RGB", (8, 6), (60 * i, 0, 0)).save(folder / name)


# SCAN's layout


@pytest.mark.parametrize("name", ["val", "dev"])
def test_one_row_an_image(tmp_path, name):
    captions = [f"{text} \x85 \u2028 end\r" for text in CAPTIONS]  # no line ends for the authors
    split = load(write_scan(tmp_path / "f30k_precomp", "dev", captions), name)
    data = split.images
    assert (data.name, data.split, data.ids) == ("f30k_precomp", "val", tuple(IDS))
    assert data.captions[2] == tuple(text.strip() for text in captions[10:15])
    assert isinstance(data.features, np.memmap)
    assert np.array_equal(data.features, FEATURES)
    assert data.label_scores is None
    assert split.graphs is None
    one_vector = load(write_scan(tmp_path / "v", features=FEATURES[:, 0]), "test").images
    assert one_vector.features.shape == (N, 1, WIDTH)


@pytest.mark.parametrize("layout", [write_scan, write_cora])
@pytest.mark.parametrize("ids", ["an image", "a row, repeated", "numbers of captions"])
def test_rows_that_repeat_are_one_image(tmp_path, layout, ids):
    """MS-COCO's testall is stored once for each caption; in whichever way its ids are written."""
    lines = {
        "an image": IDS,
        "a row, repeated": [name for name in IDS for _ in range(5)],
        "numbers of captions": [str(i) for i in range(5 * N)],
    }[ids]
    folder = layout(
        tmp_path / "coco", "testall", ids=lines, features=np.repeat(FEATURES, 5, axis=0)
    )
    data = load(folder, "testall").images
    assert (data.name, data.split) == ("coco", "testall")
    assert data.ids == (("0", "5", "10", "15") if ids.startswith("numbers") else tuple(IDS))
    assert [len(ours) for ours in data.captions] == [5] * N
    assert isinstance(data.features, np.memmap)
    assert np.array_equal(data.features, FEATURES)
    if ids.startswith("a row") and layout is write_scan:  # an identifier a caption, a row an image
        data = load(write_scan(tmp_path / "f", ids=lines), "test").images
        assert data.ids == tuple(IDS)
        assert np.array_equal(data.features, FEATURES)


def test_one_caption_an_image(tmp_path):
    """As many rows, ids and captions, all of them different: no image stands there five times."""
    features = np.random.default_rng(1).normal(size=(5, REGIONS, WIDTH)).astype(np.float32)
    data = load(write_scan(tmp_path, "train", CAPTIONS[:5], list("abcde"), features), "train")
    assert data.images.captions == tuple((text,) for text in CAPTIONS[:5])
    assert data.images.ids == tuple("abcde")
    assert np.array_equal(data.images.features, features)


@pytest.mark.parametrize(
    ("mapping", "subfolder"),
    [("id_mapping.json", "Images"), ("id_mappings.json", "images/val2014")],
)
def test_photographs(tmp_path, mapping, subfolder):
    folder = write_scan(tmp_path / "coco")
    with pytest.raises(DataError, match=r"id_mapping\.json: is missing"):
        load(folder, "test").images.open_image(0)
    names = {name: f"COCO_val2014_{int(name):012}.jpg" for name in [*IDS, "1"]}
    (folder / mapping).write_text(json.dumps(names), encoding="utf-8-sig")
    data = load(folder, "test").images
    assert data.ids == tuple(names[name] for name in IDS)
    with pytest.raises(DataError, match=r"images/COCO_val2014_000000184613\.jpg: no such image"):
        data.open_image(2)
    write_photographs(folder / subfolder, data.ids)
    assert data.open_image(2).getpixel((3, 3))[0] == pytest.approx(120, abs=5)


# CORA's layout


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(precomputed, "PART", 3)


def test_files_are_packed_once(tmp_path, small_parts, monkeypatch):
    folder = write_cora(tmp_path / "f30k")
    assert (folder / "region_feats/test/part1/3.npy").is_file()
    split = load(folder, "test")
    assert np.array_equal(split.images.features, FEATURES)
    assert isinstance(split.images.features, np.memmap)
    assert split.images.captions[3] == tuple(CAPTIONS[15:])
    assert sorted(p.name for p in (folder / "region_feats").iterdir()) == [
        "test", "test.ids.txt", "test.json", "test.npy",
    ]  # fmt: skip
    monkeypatch.setattr(extraction, "fill", None)
    assert np.array_equal(load(folder, "test").images.features, FEATURES)


def test_graphs_are_the_authors_own(tmp_path):
    folder = write_cora(tmp_path)
    split = load(folder, "test")
    assert list(split.graphs) == list(range(5 * N))
    assert split.graphs[6] == graph(CAPTIONS[6])
    assert from_authors(split.graphs[6]).graph["text"] == split.images.captions[1][1]
    second = {str(i): graph(text.upper()) for i, text in enumerate(CAPTIONS)}
    write_graphs(folder, "test", second)
    assert load(folder, "test").images.captions[0][0] == CAPTIONS[0].upper()
    (folder / "scene_graph/test.json").unlink()
    assert load(folder, "test").graphs is None


# Karpathy's layout


NAMES = [f"{i}_a.jpg" for i in range(7)]
ORDER = ["test", "train", "restval", "val", "train", "test", "val"]


def entry(i, split, sentences=6):
    texts = [{"raw": f" Image {i}, sentence {j}. ", "tokens": []} for j in range(sentences)]
    return {"filename": NAMES[i], "split": split, "sentences": texts, "imgid": i}


def write_karpathy(folder, name="coco", images=None):
    folder.mkdir(exist_ok=True)
    images = [entry(i, split) for i, split in enumerate(ORDER)] if images is None else images
    (folder / f"dataset_{name}.json").write_text(
        json.dumps({"images": images}), encoding="utf-8-sig"
    )
    (folder / "features").mkdir(exist_ok=True)
    rows = np.arange(7, dtype=np.float16)[::-1, None, None]
    np.save(folder / "features/own_ims.npy", rows + np.float16([[0, 0, 0, 1]] * REGIONS))
    write_lines(folder / "features/own_ids.txt", NAMES[::-1])
    return folder


def test_karpathy(tmp_path, monkeypatch):
    folder = write_karpathy(tmp_path / "k")
    write_photographs(folder / "images", NAMES)
    for hidden in ("._dataset_coco.json", "features/._own_ims.npy"):
        (folder / hidden).write_bytes(b"of macOS")
    train = load(folder, "train")
    assert train.graphs is None
    data = train.images
    assert (data.name, data.split) == ("coco", "train")
    assert data.ids == (NAMES[1], NAMES[2], NAMES[4])  # restval joins, in the file's order
    assert data.captions[1] == tuple(f"Image 2, sentence {j}." for j in range(5))
    assert isinstance(data.features, np.memmap)
    assert (data.features.shape, data.features.dtype) == ((3, REGIONS, WIDTH), np.float16)
    assert data.features[:, 1, 1].tolist() == [1, 2, 4]
    assert data.open_image(0).size == (8, 6)
    monkeypatch.setattr(extraction, "fill", None)  # packed by now
    assert load(folder, "train").images.features[2, 0, 0] == 4
    monkeypatch.undo()
    assert load(folder, "test").images.features[:, 0, 0].tolist() == [0, 5]


@pytest.mark.parametrize(
    ("name", "message"),
    [("own_ims.npy", "from other files"), ("own_ids.txt", "with other settings: source_ids")],
)
def test_features_that_were_replaced_are_not_read_from_the_old_copy(tmp_path, name, message):
    """Also by files of equal size that are older than the copy."""
    folder = write_karpathy(tmp_path / "k")
    load(folder, "test")
    features = folder / "features"
    if name.endswith("npy"):
        np.save(features / name, np.load(features / name) + 1)
    else:
        write_lines(features / name, [NAMES[5], *NAMES[4:0:-1], NAMES[6], NAMES[0]])
    os.utime(features / name, ns=(0, 0))
    with pytest.raises(DataError, match=rf"coco_test\.npy: was made {message}.*delete it"):
        load(folder, "test")
    (features / "own_ims.coco_test.npy").unlink()
    expected = [1, 6] if name.endswith("npy") else [0, 6]
    assert load(folder, "test").images.features[:, 0, 0].tolist() == expected


# What is refused

MANY = [name for name in IDS for _ in range(5)]
REPEATED = np.repeat(FEATURES, 5, axis=0)
NAN = np.full((REGIONS, WIDTH), np.nan, dtype=np.float32)
GRAPHS = {str(i): graph(text) for i, text in enumerate(CAPTIONS)}


def changed(values, row, value):
    values = list(values)
    values[row] = value
    return np.array(values) if isinstance(value, np.ndarray) else values


def scan(mapping=None, text=None, read=load, **changes):
    """The test split in SCAN's layout with these changes, read; text: the bytes of its captions."""

    def read_changed(folder):
        write_scan(folder, **changes)
        if mapping is not None:
            (folder / "id_mapping.json").write_text(json.dumps(mapping))
        if text is not None:
            (folder / "test_caps.txt").write_bytes(text)
        return read(folder, "test")

    return read_changed


def cora(graphs=GRAPHS, part=FEATURES[3], read=load):
    """The test split in CORA's layout with these graphs and this last file of features."""

    def read_changed(folder):
        write_cora(folder)
        last = folder / "region_feats/test/part1/3.npy"
        last.unlink() if part is None else np.save(last, part)
        text = graphs if isinstance(graphs, str) else json.dumps(graphs)
        (folder / "scene_graph/test.json").write_text(text)
        return read(folder, "test")

    return read_changed


def karpathys(*images, more=(), split="train"):
    def read_changed(folder):
        write_karpathy(folder, images=images or None)
        for name in more:
            shutil.copy(folder / "features/own_ims.npy", folder / name)
        return load(folder, split)

    return read_changed


def without_features(folder):
    (write_scan(folder) / "test_ims.npy").unlink()
    load(folder, "test")


BAD_RELATION = {"caption": "x", "entities": [], "relations": [[7, 99, [], "in"]]}


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (scan(features=FEATURES[:3]), "test_ims.npy: 3 rows for 20 captions, which is neither"),
        (scan(ids=IDS[:3]), "test_ids.txt: 3 rows for 20 captions"),
        (scan(captions=CAPTIONS[:-1]), "test_ims.npy: 4 rows for 19 captions"),
        (scan(captions=CAPTIONS[:-1], ids=MANY[:-1], features=REPEATED[:-1]),
         "test_caps.txt: 19 captions, which is not five an image"),
        (scan(ids=[*IDS[:3], IDS[0]]), "line 4: image 391895 stands in line 1 too"),
        (scan(ids=changed(MANY, 7, IDS[3])), "line 8: 318219 stands among the five rows of 522418"),
        (scan(ids=[IDS[i] for i in (0, 1, 2, 0) for _ in range(5)]),
         "line 16: image 391895 stands in line 1 too"),
        (scan(ids=[str(i) for i in range(20)], features=changed(REPEATED, 7, REPEATED[0] * 0.0)),
         "rows 5 to 9 differ"),
        (scan(captions=changed(CAPTIONS, 2, " ")), "test_caps.txt, line 3: is empty"),
        (scan(features=FEATURES.astype(np.int64)), "test_ims.npy: holds int64"),
        (scan(features=np.array([{}] * N, dtype=object)), "test_ims.npy: not a readable"),
        (scan(dict.fromkeys(IDS[:2], "a.jpg")), "line 3: identifier 184613 has no file name"),
        (scan(dict.fromkeys(IDS, "a.jpg")), "line 2: image a.jpg stands in line 1 too"),
        (scan([]), "id_mapping.json: not a JSON object"),
        (scan(text=b"\n\xff"), "test_caps.txt, line 2: not UTF-8"),
        (scan(text=b""), "test_caps.txt: is empty"),
        (scan(features=changed(REPEATED, 12, REPEATED[12] + [[0], [1], [0]]), read=inspect),
         "test_ims.npy: row 12 differs from the first row of its image"),
        (scan(features=changed(FEATURES, 2, NAN), read=inspect), "ims.npy: row 2 is not finite"),
        (without_features, "test_ims.npy: is missing, and so is region_feats/test/"),
        (lambda folder: load(folder, "test"), "neither test_caps.txt nor dataset_*.json"),
        (lambda folder: load(folder, "restval"), "no split 'restval'"),
        (cora({**GRAPHS, "20": graph("x")}), 'test.json: graph "20" has no caption (so 1 of 20)'),
        (cora({**GRAPHS, "01": graph("x")}), 'graph "01" has no caption'),
        (cora({k: v for k, v in GRAPHS.items() if int(k) % 9}), '"0" is missing (so 3 of 20)'),
        (cora({**GRAPHS, "11": []}), 'graph "11" is no scene graph'),
        (cora({**GRAPHS, "11": {"caption": "x", "entities": []}}), 'graph "11" is no scene graph'),
        (cora([]), "scene_graph/test.json: not a JSON object"),
        (cora("{"), "scene_graph/test.json: not JSON"),
        (cora({**GRAPHS, "4": BAD_RELATION}, read=inspect), 'scene_graph/test.json: graph "4": '),
        (cora(part=FEATURES[3][:, :2]), "part1/3.npy: holds (3, 2), but the first file (3, 4)"),
        (cora(part=FEATURES[3][:2]), "holds (2, 4), but the first"),
        (cora(part=FEATURES), "part1/3.npy: holds (4, 3, 4), not (regions, width)"),
        (cora(part=NAN), "part1/3.npy: is not finite"),
        (cora(part=None), "part1/3.npy: is missing, row 3 of 4 (unpack part1"),
        (karpathys(more=["dataset_flickr30k.json"]), "holds 2 files dataset_"),
        (karpathys(more=["features/more.npy"]), "features: has 2 feature sets: more, own_ims"),
        (karpathys(split="testall"), "no split 'testall'"),
        (karpathys(entry(0, "train"), split="val"), "no image of the split 'val'"),
        (karpathys({**entry(0, "train"), "filename": "other.jpg"}),
         "no features for image 'other.jpg'"),
        (karpathys(entry(0, "train"), entry(1, "train", 4)),
         "image 1: 4 captions of 1_a.jpg instead of 5"),
        (karpathys(entry(0, "train"), {**entry(1, "train"), "filename": NAMES[0]}),
         "image 1: 0_a.jpg is image 0 too"),
        (karpathys(entry(0, "train"), {"filename": "a", "sentences": [{"raw": "x"}] * 5}),
         "image 1: lacks 'split'"),
        (karpathys(entry(0, "train"), entry(1, "tets")), "image 1: no split 'tets' (choose from"),
        (karpathys({"filename": "a", "sentences": [{"raw": " "}] * 5}), "image 0: 0 captions of a"),
        (karpathys({"filename": "a", "sentences": []}), "image 0: 0 captions of a"),
        (karpathys(entry(0, "train"), None), "image 1: "),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(tmp_path, small_parts, read, message):
    with pytest.raises(DataError) as error:
        read(tmp_path)
    assert message in str(error.value)


# Finding and checking


def test_find(tmp_path, monkeypatch):
    monkeypatch.setenv("MMLIB_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"named f30k \(put it into .*f30k_precomp"):
        precomputed.find("f30k")
    for subfolder in ("region_features/f30k_precomp", "region_features/f30k", "f30k"):
        (tmp_path / subfolder).mkdir(parents=True)
        assert precomputed.find("f30k") == tmp_path / subfolder
        assert precomputed.find("coco", "f30k") == tmp_path / subfolder


def test_inspect_counts(tmp_path, small_parts):
    for layout, name, split, note in (
        (write_scan, "coco", "testall", ""),
        (write_cora, "f30k", "test", ", scene graphs (0 captions differ from test_caps.txt)"),
    ):
        folder = layout(tmp_path / name, split, features=FEATURES)
        assert inspect(folder, split) == f"{name} {split} 4 images, 20 captions, 3 x 4{note}"
    counted = inspect(write_karpathy(tmp_path / "k"), "train")
    assert counted == "coco train 3 images, 15 captions, 3 x 4, own_ims"
