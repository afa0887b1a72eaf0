"""Each defect that a check must name, on small data sets with the expected sizes set to match."""

import json

import numpy as np
import pytest
from PIL import Image
from test_flickr8k import NAMES, edit_line, gone, make

from mmlib.core.errors import DataError
from mmlib.data import cite, clue, flickr8k, pairs, sick
from mmlib.features.store import UNREADABLE, open_rgb
from mmlib.suite import check as checks
from mmlib.suite.check import check


def says(report, *texts):
    """Whether each line of a report holds one of the texts, in this order."""
    lines = [str(problem) for problem in report.problems]
    assert len(lines) == len(texts), lines
    assert all(text in line for text, line in zip(texts, lines, strict=True)), lines


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A sound Flickr8k of eight images."""
    monkeypatch.setattr(flickr8k, "IMAGES", 8)
    monkeypatch.setattr(flickr8k, "SPLITS", {"train": 4, "val": 1, "test": 2})
    return make(tmp_path / "flickr8k")


def test_a_sound_copy_is_usable(small, tmp_path):
    for name in (f"Images/._{NAMES[0]}", "features/._ids.txt", "features/._a.npy"):
        (small / name).write_bytes(b"\0\5\x16\7 Mac OS X")  # which is no part of a data set
    report = check("flickr8k", small)
    says(report)
    assert report.counts == [
        "8 images", "40 captions", "splits 4/1/2", "grid4x4_mobilenetv1_pca192 8 x 4 x 3",
    ]  # fmt: skip
    assert "the notebooks read the feature set grid4x4_mobilenetv1_pca192" in report.notes
    says(check("flickr8k", make(tmp_path / "original", original=True)))


def cut(small):
    image = small / "Images" / NAMES[3]
    image.write_bytes(image.read_bytes()[:-80])
    edit_line(small / "captions.txt", 23, "A dog runs")


def shorten(small):
    path = small / "captions.txt"
    path.write_text("\n".join(path.read_text().splitlines()[:-5]) + "\n")


def split_of(*names):
    listing = f"Flickr8k_text/{flickr8k.LISTS['test']}"
    return lambda small: (small / listing).write_text("".join(f"{name}\n" for name in names))


def emptied(small):
    (small / "Images").rename(small / "away")
    (small / "Images").mkdir()


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (cut, [f"{NAMES[3]}: cannot be decoded", "line 23: not an image and its caption"]),
        (shorten, [f"no caption of {NAMES[7]}"]),
        (split_of(NAMES[6], NAMES[7], "none.jpg"),
         ["3 images instead of 2", "line 3: none.jpg has no captions"]),
        (split_of(NAMES[6], NAMES[4]),
         [f"testImages.txt, line 2: {NAMES[4]} is in the split val too"]),
        (lambda small: (small / "Images" / NAMES[6]).unlink(),
         ["Images: 7 images instead of 8", f"captions of {NAMES[6]}, an image that is not there"]),
        (emptied, ["Images away, then `mmlib data get flickr8k`"]),
        (gone("captions.txt"), ["captions.txt: is missing"]),
        (gone("Images"), ["Images: is missing"]),
        (gone("Flickr8k_text"), ["trainImages.txt: is missing"]),
    ],
)  # fmt: skip
def test_each_defect_is_a_line_with_its_mend(small, harm, said):
    harm(small)
    report = check("flickr8k", small)
    says(report, *said)
    assert all(problem.mend for problem in report.problems)


def test_check_and_notebooks_agree_on_the_features(small, monkeypatch):
    features = small / "features"
    array = np.load(features / f"{flickr8k.SHARED_FEATURES}.npy")
    for name in ("clip", "dino"):  # of the images in a split, which is what notebooks read
        np.save(features / f"{name}.npy", array[:7])
        (features / f"{name}.ids.txt").write_text("\n".join(NAMES[:7]))
    (features / f"{flickr8k.SHARED_FEATURES}.npy").unlink()
    for named, said in (("", "2 feature sets: clip, dino"), ("none", "no feature set 'none'")):
        monkeypatch.setenv("MMLIB_FEATURES", named)
        with pytest.raises(DataError, match=said):
            flickr8k.load("test", small)
        says(check("flickr8k", small), said)
    monkeypatch.setenv("MMLIB_FEATURES", "dino")
    assert len(flickr8k.load("test", small).features) == 2
    report = check("flickr8k", small)
    assert "the notebooks read the feature set dino" in report.notes
    np.save(features / "labels_dino.npy", array[:, 0])
    (features / "labels_dino.ids.txt").write_text("\n".join(NAMES))
    with pytest.raises(DataError, match="0 label_names in its notes for 3 columns"):
        flickr8k.load("test", small)
    assert "0 label_names in its" in str(check("flickr8k", small).problems[0])


def test_features(small):
    features = small / "features"
    array = np.load(features / f"{flickr8k.SHARED_FEATURES}.npy")
    array[2, 1, 1] = np.nan
    np.save(features / f"{flickr8k.SHARED_FEATURES}.npy", array)
    for name, rows, ids in (("short", array[:7], NAMES), ("some", array[:2] * 0, NAMES[:2])):
        np.save(features / f"{name}.npy", rows)
        (features / f"{name}.ids.txt").write_text("\n".join(ids))
    for kind in ("ims", "boxes", "scores"):  # as mmlib.features.regions writes them: all is well
        np.save(features / f"regions_{kind}.npy", np.ones_like(array))
    (features / "regions_ids.txt").write_text("\n".join(NAMES))
    np.save(features / "regions_ims.test.npy", np.zeros_like(array[:1]))  # as packed of it
    says(
        check("flickr8k", small),
        f"{flickr8k.SHARED_FEATURES}.npy: row 2: features of image '{NAMES[2]}' are not finite",
        "ids.txt: 8 ids for 7 rows of short.npy",
        "some.npy: no features for image '102_ab2.jpg' and 1 more",
        *(f"some.npy: no features for image '{NAMES[row]}'" for row in (4, 6)),
    )


@pytest.mark.parametrize("cut", [1, 2, 10, 300, 2000])
def test_the_quick_decoding_finds_what_the_full_one_finds(tmp_path, cut):
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    path = tmp_path / "a.jpg"
    Image.fromarray(pixels).save(path)
    path.write_bytes(path.read_bytes()[:-cut])
    try:
        open_rgb(path)
        full = None
    except DataError as error:
        full = error
    assert bool(pairs.unreadable({"a": path})) == bool(full)
    assert full or cut <= 2  # a JPEG may lack its end marker, not its data
    assert OSError in UNREADABLE


def test_folder_that_is_not_there(tmp_path):
    for name in ("flickr8k", "glove", "links"):
        says(check(name, tmp_path / name), "no such folder")
    with pytest.raises(DataError, match="no data set 'flickr9k'"):
        check("flickr9k")


# --- Tables ---------------------------------------------------------------------------------------

TRAIN, CLUE = "conceptual_train_dis.csv", ",".join(clue.COLUMNS)
A, B = (
    f'{row},5,"a dog, running",https://x.org/{name}.jpg,1,0,0,1,0,0,0,0,0,0,False'
    for row, name in enumerate("ab")
)
CITE = "|".join(cite.COLUMNS)
STEP = "1|1|False|span|True|True|False|False|False|False|True|True|1.png|8|Heat the oven.|Heat"
SICK = "\t".join(sick.COLUMNS)
PAIR = (
    "{}\tA dog runs\tA dog moves\tENTAILMENT\t{}\tA_entails_B\tB_neutral_A\t"
    'A "dog runs .\tA dog .\tFLICKR\tFLICKR\t{}'
)


@pytest.mark.parametrize(
    ("name", "file", "rows", "said"),
    [
        ("clue", TRAIN, [CLUE, A, B], []),
        ("clue", TRAIN, [CLUE, A.replace(",1,0", ",2,0", 1), "2,3"],
         ["line 2: Visible is '2', not 0|1", "line 3: 2 fields instead of 15", "1 sound rows"]),
        ("clue", TRAIN, None, ["conceptual_train_dis.csv: is missing"]),
        ("cite", "data.csv", [CITE, STEP, STEP], []),
        ("sick", "SICK.txt", [SICK, PAIR.format(1, 4.5, "TRAIN"), PAIR.format(2, 5, "TEST")], []),
        ("sick", "SICK.txt", [SICK], ["0 sound rows instead of 2"]),
        ("sick", "SICK.txt", ["PK\udcff"], ["line 1: bytes that are not UTF-8"]),
    ],
)  # fmt: skip
def test_tables(tmp_path, monkeypatch, name, file, rows, said):
    monkeypatch.setattr(clue, "SPLITS", {"train": 2})
    monkeypatch.setattr(cite, "ROWS", 2)
    monkeypatch.setattr(sick, "SETS", {"TRAIN": 1, "TEST": 1})
    if rows:
        (tmp_path / file).write_bytes("\n".join([*rows, ""]).encode(errors="surrogateescape"))
    report = check(name, tmp_path)
    says(report, *said)
    assert bool(report.counts) == bool(rows and len(rows) > 2)


def test_cite_plus_beside_cite(tmp_path, monkeypatch):
    monkeypatch.setattr(cite, "ROWS", 1)
    monkeypatch.setattr(cite, "PLUS", {"train": 2, "test": 1})
    (tmp_path / "data.csv").write_text(f"{CITE}\n{STEP}\n")
    header, row = ",".join(cite.PLUS_COLUMNS), f"1.png,Heat the oven.,{','.join(['True'] * 7)}"
    for split, lines in {"train": [row, row], "test": [row]}.items():
        (tmp_path / f"q2-8_{split}_dis_11-08.csv").write_text("\n".join([header, *lines, ""]))
    report = check("cite", tmp_path)
    says(report)
    assert report.counts[1:] == ["2 train pairs of CITE++", "1 test pairs of CITE++"]
    (tmp_path / "q2-8_train_dis_11-08.csv").write_text(f"{header}\n{row.replace('True', '1')}\n")
    (tmp_path / "q2-8_test_dis_11-08.csv").unlink()
    says(check("cite", tmp_path), "line 2: q2_resp is '1'", "test_dis_11-08.csv: is missing")


def test_karpathy(tmp_path, monkeypatch):
    monkeypatch.setattr(checks, "KARPATHY_SPLITS", {"coco": {"train": 2, "test": 1}})
    sentences = [{"raw": "A dog ."}] * 5
    images = [
        {"filename": f"{i}.jpg", "split": s, "sentences": sentences}
        for i, s in enumerate(("train", "train", "test"))
    ]
    path = tmp_path / "dataset_coco.json"
    for written, said in (
        ({"images": images}, []),
        ({"images": [*images, {**images[0], "filename": "3.jpg"}]},
         ["the splits are {'train': 3, 'test': 1}"]),
        ({"images": [*images, {**images[0], "sentences": sentences[1:]}]},
         ["image 3: 4 captions of 0.jpg instead of 5"]),
        ({}, ["no split file"]),
    ):  # fmt: skip
        path.write_text(json.dumps(written))
        report = check("karpathy", tmp_path)
        says(report, *said)
        assert report.counts == (["coco 2/1 images"] if not said or "captions" in said[0] else
                                 ["coco 3/1 images"] if written else [])  # fmt: skip


def test_photographs(tmp_path, monkeypatch):
    monkeypatch.setenv("MMLIB_DATA", str(tmp_path))
    folders = {"train2014": 2, "val2014": 1}
    monkeypatch.setitem(checks.PHOTOGRAPHS, "mscoco", (folders, "dataset_coco.json"))
    names = ["train2014/1.jpg", "train2014/2.jpg", "val2014/3.jpg"]
    for name in names:
        path = tmp_path / "mscoco" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8)).save(path)
    report = check("mscoco")
    says(report)
    assert report.counts == ["2 images in train2014", "1 images in val2014"]
    assert "not compared with Karpathy's" in report.notes[0]
    sentences = [{"raw": "A dog ."}] * 5
    images = [{"filename": f"{i}.jpg", "split": "val", "sentences": sentences} for i in (1, 3, 4)]
    (tmp_path / "karpathy").mkdir()
    (tmp_path / "karpathy/dataset_coco.json").write_text(json.dumps({"images": images}))
    path.write_bytes(path.read_bytes()[:100])
    (tmp_path / "mscoco/train2014/2.jpg").unlink()
    says(
        check("mscoco"),
        "train2014: 1 images instead of 2",
        "val2014/3.jpg: cannot be decoded",
        "no image 4.jpg, which dataset_coco.json names",
    )


def test_document_sets(tmp_path):
    folder = tmp_path / "mscoco"
    folder.mkdir()
    np.save(folder / "features.npy", np.ones((1, 4), dtype=np.float32))
    (folder / "id2row.json").write_text('{"a": 0}')
    document = [[["a", 0]], [["A dog.", -1]], "na"]
    docs = {"train": [document], "val": [document], "test": [document]}
    (folder / "docs.json").write_text(json.dumps(docs))
    report = check("links", tmp_path)
    says(report)
    assert report.counts == ["mscoco 1/1/1 documents"]
    (folder / "id2row.json").write_text('{"a": 9}')
    says(check("links", tmp_path), "has row 9")


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("flickr8k", "8091 images, 40455 captions, splits 6000/1000/1000, "
         "grid4x4_mobilenetv1_pca192 8091 x 16 x 192"),
        ("clue", "6047 train captions, 1512 test captions"),
        ("cite", "2047 recipe steps"),
        ("sick", "9840 sentence pairs"),
    ],
)  # fmt: skip
def test_real_data_sets_are_usable(real_data, name, counts):
    report = check(name, real_data / name)
    says(report)
    assert ", ".join(report.counts) == counts
