"""ECCV Caption and CxC on made-up files in the published formats."""

import json

import pytest
from test_snli_ve import split_file

from mmlib.core.errors import DataError
from mmlib.data import eccv_cxc
from mmlib.suite import check as checks
from mmlib.suite.check import check

ROW = "COCO_val2014:sentid:{},COCO_val2014_{:012}.jpg,{},{}"
VAL = [(1, 10, "2.99", "c2i_intrasim"), (2, 10, "5.0", "c2i_original")]
TEST = [(3, 20, "3.0", "c2i_intrasim"), (4, 30, "0", "c2i_intrasim")]
ECCV = {
    "image_to_caption": {"20": [5, 6, 7], "40": [8]},
    "caption_to_image": {"5": [20, 30]},
}


def save(folder, val=VAL, test=TEST):
    folder.mkdir(exist_ok=True)
    for split, rows in (("val", val), ("test", test)):
        lines = [",".join(eccv_cxc.COLUMNS), *(ROW.format(*row) for row in rows)]
        (folder / f"sits_{split}.csv").write_text("\n".join(lines) + "\n")
    return folder


def save_eccv(folder, **more):
    folder.mkdir(exist_ok=True)
    for direction, found in {**ECCV, **more}.items():
        (folder / f"eccv_{direction}.json").write_text(json.dumps(found))
    return folder


@pytest.fixture
def cxc(tmp_path):
    return save(tmp_path / "cxc")


@pytest.fixture
def eccv(tmp_path):
    return save_eccv(tmp_path / "eccv_caption")


def test_cxc_is_read(cxc, monkeypatch):
    table = eccv_cxc.read_cxc("val", cxc)
    assert table["caption"].tolist() == [1, 2]
    assert table["image"].tolist() == [10, 10]
    assert table["score"].tolist() == [2.99, 5.0]
    assert table["cross"].tolist() == [True, False]
    assert table["label"].tolist() == [False, True]
    monkeypatch.setenv("MMLIB_DATA", str(cxc.parent))
    assert eccv_cxc.read_cxc("test")["label"].tolist() == [True, False]  # cut at three


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((1, 2, "5.1", "c2i_original"), r"sits_val\.csv, line 2: agg_score is '5\.1'"),
        ((1, 2, "4", "c2c_isim"), "line 2: sampling_method is 'c2c_isim'"),
        (("x", 2, "4", "c2i_original"), "line 2: caption is 'COCO_val2014:sentid:x'"),
        ((1, 2, "4,4", "c2i_original"), "line 2: 5 fields instead of 4"),
    ],
)
def test_a_bad_row_is_named_with_the_mend(tmp_path, row, message):
    with pytest.raises(DataError, match=message) as caught:
        eccv_cxc.read_cxc("val", save(tmp_path / "cxc", [row]))
    assert "mmlib data get cxc" in str(caught.value)


def test_cxc_files_that_cannot_be_read(cxc):
    with pytest.raises(DataError, match="no split 'train'"):
        eccv_cxc.read_cxc("train", cxc)
    with pytest.raises(DataError, match="has no rows"):
        eccv_cxc.read_cxc("val", save(cxc, []))
    path = cxc / "sits_val.csv"
    path.write_text("caption1,caption2,agg_score,sampling_method\n")
    with pytest.raises(DataError, match="line 1: the columns are"):
        eccv_cxc.read_cxc("val", cxc)
    path.unlink()
    with pytest.raises(DataError, match="is missing"):
        eccv_cxc.read_cxc("val", cxc)


def test_eccv_is_read(eccv, monkeypatch):
    assert eccv_cxc.read_eccv("image_to_caption", eccv) == {20: (5, 6, 7), 40: (8,)}
    monkeypatch.setenv("MMLIB_DATA", str(eccv.parent))
    assert eccv_cxc.read_eccv("caption_to_image") == {5: (20, 30)}
    assert eccv_cxc.eccv_images() == {20, 30, 40}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"eccv_caption_to_image\.json: is not JSON"),
        ("[1]", "is not a map of queries"),
        ("{}", "is not a map of queries"),
        ('{"a": [1]}', "query 'a' has"),
        ('{"1": [2, 2]}', r"query '1' has \[2, 2\], not a list of distinct numbers"),
        ('{"1": []}', "query '1' has"),
        ('{"1": ["2"]}', "query '1' has"),
        ('{"1": [true]}', "query '1' has"),
    ],
)
def test_a_bad_map_is_named_with_the_mend(eccv, content, message):
    (eccv / "eccv_caption_to_image.json").write_text(content)
    with pytest.raises(DataError, match=message) as caught:
        eccv_cxc.read_eccv("caption_to_image", eccv)
    assert "mmlib data get eccv_caption" in str(caught.value)


def test_eccv_files_that_cannot_be_read(eccv):
    with pytest.raises(DataError, match="no direction 'i2t'"):
        eccv_cxc.read_eccv("i2t", eccv)
    (eccv / "eccv_image_to_caption.json").unlink()
    with pytest.raises(DataError, match="is missing"):
        eccv_cxc.read_eccv("image_to_caption", eccv)


def test_numbers_of_images():
    assert eccv_cxc.coco_number("COCO_val2014_000000365325.jpg") == 365325
    with pytest.raises(ValueError, match="does not end in the number"):
        eccv_cxc.coco_number("dog.jpg")


def test_check_counts_and_tells_which_test_images_are_judged(cxc, eccv, monkeypatch):
    monkeypatch.setenv("MMLIB_DATA", str(cxc.parent))
    monkeypatch.setattr(checks, "CXC_CROSS", {"val": 1, "test": 2})
    monkeypatch.setattr(
        checks, "ECCV_PAIRS", {"image_to_caption": (2, 4), "caption_to_image": (1, 2)}
    )
    report = check("cxc")
    assert report.problems == []
    assert report.counts == [
        "val 1 pairs with another image's caption, 0 of them 3 or more",
        "test 2 pairs with another image's caption, 1 of them 3 or more",
    ]
    assert report.notes == ["not compared with Karpathy's split of MS-COCO, which is not here"]
    names = {n: f"COCO_val2014_{n:012}.jpg" for n in (10, 20, 30, 50)}
    split_file(
        cxc.parent / "karpathy", "coco", {"val": [names[10]], "test": [names[20], names[50]]}
    )
    assert check("cxc").notes == [
        "val judges pairs on 1 of the 1 val images of Karpathy's coco: for tests, not for training",
        "test judges pairs on 1 of the 2 test images of Karpathy's coco: for tests, not for "
        "training",
    ]
    report = check("eccv_caption")
    assert report.problems == []
    assert report.counts == [
        "image_to_caption: 2 queries, 4 positives", "caption_to_image: 1 queries, 2 positives",
    ]  # fmt: skip
    assert report.notes == [
        "its positives lie on 1 of the 2 test images of Karpathy's coco: for tests, not for "
        "training"
    ]


def test_check_names_what_is_wrong(cxc, eccv):
    found = [str(problem) for problem in check("cxc", cxc).problems]
    assert "sits_val.csv: 1 sound rows instead of 19722" in found[0]
    assert "sits_test.csv: 2 sound rows instead of 19833" in found[1]
    save(cxc, [(1, 2, "7", "c2i_original")])
    found = [str(problem) for problem in check("cxc", cxc).problems]
    assert "line 2: agg_score is '7'" in found[0]
    assert len(found) == 2
    found = [str(problem) for problem in check("eccv_caption", eccv).problems]
    assert "2 queries with 4 positives instead of 1261 with 22550" in found[0]
    (eccv / "eccv_caption_to_image.json").write_text("[]")
    assert "is not a map" in str(check("eccv_caption", eccv).problems[1])
