"""The three layouts of captions with region features, written small, sound and malformed."""

import json
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from mmlib.core.errors import DataError
from mmlib.data import karpathy, precomputed
from mmlib.data.precomputed import load
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
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


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
    (folder / "scene_graph" / f"{split}.json").write_text(json.dumps(graphs))


def write_photographs(folder, names):
    folder.mkdir(parents=True)
    for i, name in enumerate(names):
        Image.new("RGB", (8, 6), (60 * i, 0, 0)).save(folder / name)


# SCAN's layout


def test_one_row_an_image(tmp_path):
    split = load(write_scan(tmp_path / "f30k_precomp"), "test")
    data = split.images
    assert (data.name, data.split, data.ids) == ("f30k_precomp", "test", tuple(IDS))
    assert data.captions[2] == tuple(CAPTIONS[10:15])
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


def test_val_is_their_dev(tmp_path):
    folder = write_scan(tmp_path, "dev")
    assert load(folder, "val").images.split == load(folder, "dev").images.split == "val"
    with pytest.raises(DataError, match="no split 'restval'"):
        load(folder, "restval")


@pytest.mark.parametrize(
    ("mapping", "place"), [("id_mapping.json", "Images"), ("id_mappings.json", "images/val2014")]
)
def test_photographs(tmp_path, mapping, place):
    folder = write_scan(tmp_path / "coco")
    with pytest.raises(DataError, match=r"id_mapping\.json: is missing"):
        load(folder, "test").images.open_image(0)
    names = {name: f"COCO_val2014_{int(name):012}.jpg" for name in [*IDS, "1"]}
    (folder / mapping).write_text(json.dumps(names))
    data = load(folder, "test").images
    assert data.ids == tuple(names[name] for name in IDS)
    with pytest.raises(DataError, match=r"images/COCO_val2014_000000184613\.jpg: no such image"):
        data.open_image(2)
    write_photographs(folder / place, data.ids)
    assert data.open_image(2).getpixel((3, 3))[0] == pytest.approx(120, abs=5)


MANY = [name for name in IDS for _ in range(5)]
REPEATED = np.repeat(FEATURES, 5, axis=0)


def changed(values, row, value):
    values = list(values)
    values[row] = value
    return np.array(values) if isinstance(value, np.ndarray) else values


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": FEATURES[:3]}, "test_ims.npy: 3 rows for 20 captions, which is neither"),
        ({"ids": IDS[:3]}, "test_ids.txt: 3 rows for 20 captions"),
        ({"captions": CAPTIONS[:-1]}, "test_ims.npy: 4 rows for 19 captions"),
        (
            {"captions": CAPTIONS[:-1], "ids": MANY[:-1], "features": REPEATED[:-1]},
            "test_caps.txt: 19 captions, which is not five an image",
        ),
        ({"ids": [*IDS[:3], IDS[0]]}, "line 4: image 391895 stands in line 1 too"),
        ({"ids": changed(MANY, 7, IDS[3])}, "line 8: 318219 stands among the five rows of 522418"),
        (
            {"ids": [IDS[i] for i in (0, 1, 2, 0) for _ in range(5)]},
            "line 16: image 391895 stands in line 1 too",
        ),
        (
            {
                "ids": [str(i) for i in range(20)],
                "features": changed(REPEATED, 7, REPEATED[0] * 0.0),
            },
            "rows 5 to 9 differ",
        ),
        ({"captions": changed(CAPTIONS, 2, " ")}, "test_caps.txt, line 3: is empty"),
        ({"features": FEATURES.astype(np.int64)}, "test_ims.npy: holds int64"),
        ({"features": np.array([{}] * N, dtype=object)}, "test_ims.npy: not a readable"),
        (
            {"mapping": dict.fromkeys(IDS[:2], "a.jpg")},
            "line 3: identifier 184613 has no file name",
        ),
        ({"mapping": dict.fromkeys(IDS, "a.jpg")}, "line 2: image a.jpg stands in line 1 too"),
        ({"mapping": []}, "id_mapping.json: not a JSON object"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, changes, message):
    mapping = changes.get("mapping")
    if mapping is not None:
        (tmp_path / "id_mapping.json").write_text(json.dumps(mapping))
    folder = write_scan(tmp_path, **{k: v for k, v in changes.items() if k != "mapping"})
    with pytest.raises(DataError) as error:
        load(folder, "test")
    assert message in str(error.value)


def test_files_that_cannot_be_read(tmp_path):
    folder = write_scan(tmp_path)
    path = folder / "test_caps.txt"
    path.write_bytes(path.read_bytes().replace(b"dog 1", b"d\xffg 1", 1))
    with pytest.raises(DataError, match=r"line 6: not UTF-8"):
        load(folder, "test")
    (folder / "test_ims.npy").unlink()
    with pytest.raises(DataError, match=r"test_ims\.npy: is missing, and so is region_feats/test/"):
        load(folder, "test")
    path.unlink()
    with pytest.raises(DataError, match=r"neither test_caps\.txt nor dataset_\*\.json"):
        load(folder, "test")


def test_a_line_ends_where_the_authors_readers_end_it(tmp_path):
    captions = [f"{text} \x85 \u2028 end\r" for text in CAPTIONS]
    data = load(write_scan(tmp_path, captions=captions), "test").images
    assert data.captions[3][4] == captions[-1].strip()


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


def test_graphs_that_do_not_fit(tmp_path):
    folder = write_cora(tmp_path)
    sound = {str(i): graph(text) for i, text in enumerate(CAPTIONS)}
    for changed, message in (
        ({**sound, "20": graph("x")}, r'graph "20" has no caption \(so 1 of 20\)'),
        ({**sound, "01": graph("x")}, 'graph "01" has no caption'),
        ({k: v for k, v in sound.items() if int(k) % 9}, r'graph "0" is missing \(so 3 of 20\)'),
        ({**sound, "11": []}, 'graph "11" is no scene graph'),
        ({**sound, "11": {"caption": "x", "entities": []}}, 'graph "11" is no scene graph'),
        ([], "not a JSON object"),
    ):
        write_graphs(folder, "test", changed)
        with pytest.raises(DataError, match=rf"scene_graph/test\.json: {message}"):
            load(folder, "test")
    (folder / "scene_graph/test.json").write_text("{")
    with pytest.raises(DataError, match="not JSON"):
        load(folder, "test")


def test_files_that_are_missing_or_of_other_widths(tmp_path, small_parts):
    folder = write_cora(tmp_path)
    last = folder / "region_feats/test/part1/3.npy"
    for values, message in (
        (FEATURES[3][:, :2], r"holds \(3, 2\), but the first file \(3, 4\)"),
        (FEATURES[3][:2], r"holds \(2, 4\), but the first"),
        (FEATURES, r"holds \(4, 3, 4\), not \(regions, width\)"),
        (np.full((REGIONS, WIDTH), np.nan, dtype=np.float32), "is not finite"),
    ):
        np.save(last, values)
        with pytest.raises(DataError, match=rf"part1/3\.npy: {message}"):
            load(folder, "test")
    last.unlink()
    with pytest.raises(DataError, match=r"part1/3\.npy: is missing, row 3 of 4 \(unpack part1"):
        load(folder, "test")
    np.save(last, FEATURES[3])
    assert np.array_equal(load(folder, "test").images.features, FEATURES)


# Karpathy's layout


NAMES = [f"{i}_a.jpg" for i in range(7)]
ORDER = ["test", "train", "restval", "val", "train", "test", "val"]


def entry(i, split, sentences=6):
    texts = [{"raw": f" Image {i}, sentence {j}. ", "tokens": []} for j in range(sentences)]
    return {"filename": NAMES[i], "split": split, "sentences": texts, "imgid": i}


def write_karpathy(folder, name="coco", images=None):
    folder.mkdir(exist_ok=True)
    images = [entry(i, split) for i, split in enumerate(ORDER)] if images is None else images
    (folder / f"dataset_{name}.json").write_text(json.dumps({"images": images}))
    (folder / "features").mkdir(exist_ok=True)
    rows = np.arange(7, dtype=np.float16)[::-1, None, None]
    np.save(folder / "features/own_ims.npy", np.broadcast_to(rows, (7, REGIONS, WIDTH)))
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


def long_ago(*paths):
    for path in paths:
        os.utime(path, ns=(0, 0))


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
    long_ago(features / name)
    with pytest.raises(DataError, match=rf"coco_test\.npy: was made {message}.*delete it"):
        load(folder, "test")
    (features / "own_ims.coco_test.npy").unlink()
    expected = [1, 6] if name.endswith("npy") else [0, 6]
    assert load(folder, "test").images.features[:, 0, 0].tolist() == expected


def test_karpathy_names_what_is_ambiguous_or_missing(tmp_path):
    folder = write_karpathy(tmp_path / "k")
    write_karpathy(folder, "flickr30k")
    with pytest.raises(DataError, match="holds 2 files dataset_"):
        load(folder, "test")
    (folder / "dataset_flickr30k.json").unlink()
    np.save(folder / "features/more_ims.npy", FEATURES)
    with pytest.raises(DataError, match=r"features: has 2 feature sets: more_ims, own_ims"):
        load(folder, "test")
    (folder / "features/more_ims.npy").unlink()
    assert len(load(folder, "test").images.ids) == 2
    with pytest.raises(DataError, match="no split 'testall'"):
        load(folder, "testall")
    write_karpathy(folder, images=[{**entry(0, "test"), "filename": "other.jpg"}])
    long_ago(folder / "features/own_ims.npy", folder / "features/own_ids.txt")
    with pytest.raises(DataError, match="was made with other settings"):
        load(folder, "test")
    with pytest.raises(DataError, match="no image of the split 'val'"):
        load(folder, "val")
    for path in (folder / "features").glob("own_ims.coco*"):
        path.unlink()
    with pytest.raises(DataError, match=r"no features for image 'other\.jpg'"):
        load(folder, "test")


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (entry(1, "train", 4), r"image 1: 4 captions of 1_a\.jpg instead of 5"),
        ({**entry(1, "train"), "filename": NAMES[0]}, r"image 1: 0_a\.jpg is image 0 too"),
        ({"filename": "a", "sentences": []}, "image 1: "),
        ({"filename": "a", "sentences": [{"raw": "x"}] * 5}, "image 1: lacks 'split'"),
        ({"filename": "a", "sentences": [{"raw": " "}] * 5}, "image 1: 0 captions of a"),
        (None, "image 1: "),
    ],
)
def test_karpathy_names_a_damaged_image(tmp_path, image, message):
    folder = write_karpathy(tmp_path / "k", images=[entry(0, "train"), image])
    with pytest.raises(DataError, match=message):
        karpathy.read_split(folder / "dataset_coco.json", "train")


KEYS = st.sampled_from(["filename", "sentences", "raw", "split"])
JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
)


@given(JSON)
def test_karpathy_never_crashes(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("k") / "dataset_x.json"
    path.write_text(json.dumps({"images": content}))
    for result in karpathy.read_images(path):
        assert result is not None


# Finding and checking


def test_find(tmp_path, monkeypatch):
    monkeypatch.setenv("MMLIB_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"named f30k \(put it into .*f30k_precomp"):
        precomputed.find("f30k")
    for place in ("region_features/f30k_precomp", "region_features/f30k", "f30k"):
        (tmp_path / place).mkdir(parents=True)
        assert precomputed.find("f30k") == tmp_path / place
        assert precomputed.find("coco", "f30k") == tmp_path / place


def test_inspect_counts_and_writes_nothing(tmp_path, small_parts):
    for layout, name, split, note in (
        (write_scan, "coco", "testall", ""),
        (write_cora, "f30k", "test", ", scene graphs (0 captions differ from test_caps.txt)"),
    ):
        folder = layout(tmp_path / name, split, features=FEATURES)
        counted = f"{name} {split} 4 images, 20 captions, 3 x 4{note}"
        assert precomputed.inspect(folder, split) == counted
    assert not (tmp_path / "f30k/region_feats/test.npy").exists()
    karpathys = write_karpathy(tmp_path / "k")
    found = precomputed.inspect(karpathys, "train")
    assert found == "coco train 3 images, 15 captions, 3 x 4, own_ims"
    assert len(list((karpathys / "features").iterdir())) == 2


def test_inspect_names_the_first_bad_row(tmp_path, small_parts):
    write_scan(tmp_path, "testall", features=changed(REPEATED, 12, REPEATED[12] + [[0], [1], [0]]))
    write_scan(tmp_path, "dev", captions=CAPTIONS[:3])
    write_scan(tmp_path, "train", features=changed(FEATURES, 2, FEATURES[2] * np.inf))
    for split, message in (
        ("dev", "dev_ims.npy: 4 rows for 3 captions"),
        ("testall", "testall_ims.npy: row 12 differs from the first row of its image"),
        ("train", "train_ims.npy: row 2 is not finite"),
    ):
        with pytest.raises(DataError, match=message):
            precomputed.inspect(tmp_path, split)
    folder = write_cora(tmp_path / "f30k", "test")
    bad = graph("x")
    bad["relations"][0][1] = 99
    write_graphs(folder, "test", dict.fromkeys(map(str, range(20)), bad))
    with pytest.raises(DataError, match=r'scene_graph/test\.json: graph "0": '):
        precomputed.inspect(folder, "test")
    np.save(folder / "region_feats/test/part0/1.npy", FEATURES[0] * np.nan)
    with pytest.raises(DataError, match=r"part0/1\.npy: is not finite"):
        precomputed.inspect(folder, "test")
