"""The Clue reader on small files, and the figures of the real ones to the printed digit."""

import csv
import json

import pytest
from PIL import Image

from mmlib.core.errors import DataError
from mmlib.core.paths import data_dir
from mmlib.core.related import hold_out
from mmlib.core.tables import paper_values
from mmlib.data import clue

URL = "https://x.org/{}.jpg?a=1,2"


def row(number, index, caption, image, labels="000000", marks="0000", comment="False"):
    """One line of the authors' file; marks are Other, When, How, Where as they stand there."""
    return [number, index, caption, URL.format(image), *labels, *marks, comment]


TRAIN = [
    row(0, 7, 'a "dog", running', "a", "101010"),
    row(1, 5000, "a cat .", "b", "100000"),
    row(2, 9, "the sea", "c", "000110"),
    row(3, 6000, "the sea again", "b"),
]
TEST = [
    row(0, 3, "a cat .", "d", "100000", "0001"),
    row(1, 4580, "a new bird", "e", "100010", "0010"),
    row(2, 4581, "another bird", "f", "000001"),
    row(3, 4, "a known sea", "c", "010000"),
]


def write(folder, split, rows):
    folder.mkdir(exist_ok=True)
    with clue.split_file(split, folder).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([clue.COLUMNS, *rows])


@pytest.fixture
def small(tmp_path):
    folder = tmp_path / "clue"
    write(folder, "train", TRAIN)
    write(folder, "test", TEST)
    return folder


def test_pairs_are_read_in_file_order(small, monkeypatch):
    pairs = clue.load("train", small)
    assert (pairs.name, pairs.split, len(pairs)) == ("clue", "train", 4)
    assert pairs.texts == ('a "dog", running', "a cat .", "the sea", "the sea again")
    assert pairs.relations == ("Visible", "Subjective", "Action", "Story", "Meta", "Irrelevant")
    assert pairs.labels.dtype == bool
    assert pairs.labels[0].tolist() == [True, False, True, False, True, False]
    assert pairs.image_ids == tuple(URL.format(name) for name in "abc")
    assert pairs.image_of.tolist() == [0, 1, 2, 1]
    assert pairs.index.tolist() == [7, 5000, 9, 6000]
    assert pairs.human.tolist() == [True, False, True, False]
    assert pairs.features is None
    assert pairs.open_image is None
    chosen = pairs.take([2, 0], "val")
    assert (chosen.texts, chosen.split) == (("the sea", 'a "dog", running'), "val")
    assert chosen.index.tolist() == [9, 7]
    monkeypatch.setenv("MMLIB_DATA", str(small.parent))
    assert clue.load("train").texts == pairs.texts


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (row(1, 5, "a", "b", "200000"), r"train_dis\.csv, line 3: Visible is '2', not 0\|1"),
        (row(1, 5, " ", "b"), "line 3: caption is ' '"),
        (row(1, "x", "a", "b"), "line 3: index is 'x'"),
        (row(1, 5, "a", "b")[:-1], "line 3: 14 fields instead of 15"),
        ([1, 5, "a", "ftp:b", *"0000000000", "False"], "line 3: url is 'ftp:b'"),
        ([], "line 3: 0 fields"),
    ],
)
def test_a_bad_row_is_named_with_the_mend(small, bad, message):
    write(small, "train", [TRAIN[0], bad, TRAIN[1]])
    with pytest.raises(DataError, match=message) as caught:
        clue.load("train", small)
    assert "mmlib data get clue" in str(caught.value)
    assert caught.value.problem.row == 3


def test_a_bad_file_is_named(small):
    path = clue.split_file("train", small)
    text = path.read_bytes()
    path.write_bytes(text.replace(b"dog", b"d\xffg"))
    with pytest.raises(DataError, match="line 2: bytes that are not UTF-8"):
        clue.load("train", small)
    path.write_bytes(text + b'4,8,"no end' + b"\n4,8,more" * 20_000)
    with pytest.raises(DataError, match="line 6: cannot be read: field larger"):
        clue.load("train", small)
    path.write_bytes(text.replace(b"Story", b"Tale"))
    with pytest.raises(DataError, match="line 1: the columns are"):
        clue.load("train", small)
    path.write_bytes(text.splitlines()[0])
    with pytest.raises(DataError, match="has no rows"):
        clue.load("train", small)
    path.unlink()
    with pytest.raises(DataError, match=r"train_dis\.csv: is missing \(run `mmlib data get clue`"):
        clue.load("train", small)
    with pytest.raises(DataError, match=r"no split 'val' \(choose from train, test\)"):
        clue.load("val", small)


# --- Images --------------------------------------------------------------------------------------


@pytest.fixture
def pictures(small):
    """Images 0 and 2 as JPEG and PNG, 1 cut off, 3 without a file, 4 not in the map."""
    numbers = {URL.format(name): i for i, name in enumerate("abcd")}
    (small / "img2idxmap.json").write_text(json.dumps(numbers))
    (small / "images").mkdir()
    for name, colour in (("0.jpg", 200), ("1.jpg", 100), ("2.png", 50)):
        Image.new("RGB", (40, 30), (colour, 0, 0)).save(small / "images" / name)
    path = small / "images/1.jpg"
    path.write_bytes(path.read_bytes()[:-150])
    return small


def test_pairs_without_an_image_are_left_out_and_counted(pictures):
    pairs, missing = clue.load_with_images("train", pictures)
    assert pairs.texts == ('a "dog", running', "the sea")
    assert pairs.image_ids == (URL.format("a"), URL.format("c"))
    assert pairs.image_of.tolist() == [0, 1]
    assert pairs.index.tolist() == [7, 9]
    assert pairs.labels.tolist() == clue.load("train", pictures).labels[[0, 2]].tolist()
    reds = [pairs.open_image(i).getpixel((5, 5))[0] for i in (0, 1)]
    assert reds == pytest.approx([200, 50], abs=5)
    assert (missing.images, missing.pairs, missing.pairs_lost) == (3, 4, 2)
    assert missing.absent == ()
    assert missing.unreadable[0][0] == URL.format("b")
    assert "1.jpg: cannot be decoded" in missing.unreadable[0][1]
    assert "0 of 3 images missing, 1 unreadable: 2 of 4 pairs left out" in str(missing)

    pairs, missing = clue.load_with_images("test", pictures)  # d: no file; e, f: not in the map
    assert pairs.texts == ("a known sea",)
    assert missing.absent == tuple(URL.format(name) for name in "def")
    assert missing.pairs_lost == 3


def test_hidden_files_are_no_images(pictures):
    (pictures / "images/.old").mkdir()
    for name in ("._0.jpg", "._3.jpg", ".old/3.jpg"):
        (pictures / "images" / name).write_bytes(b"no picture")
    pairs, missing = clue.load_with_images("test", pictures)
    assert pairs.texts == ("a known sea",)
    assert missing.unreadable == ()


def test_no_image_at_all_is_an_error(pictures):
    for path in (pictures / "images").iterdir():
        path.unlink()
    with pytest.raises(DataError, match=r"3 of 3 images missing.*img2idxmap\.json"):
        clue.load_with_images("train", pictures)
    path = pictures / "img2idxmap.json"
    for text, message in (
        ("{", "is not JSON"),
        ('{"a": "b"}', "is not a map"),
        ("[1]", "is not a map"),
    ):
        path.write_text(text)
        with pytest.raises(DataError, match=rf"img2idxmap\.json: {message}"):
            clue.load_with_images("train", pictures)
    path.unlink()
    with pytest.raises(DataError, match=r"img2idxmap\.json: is missing"):
        clue.load_with_images("train", pictures)


# --- Splits and report ---------------------------------------------------------------------------


def test_clean_rows_are_human_and_unseen(small):
    clean, strict = clue.clean_rows(clue.load("test", small), clue.load("train", small))
    assert clean.tolist() == [0, 1]  # 2 is a machine's caption, 3 shows a training image
    assert strict.tolist() == [1]  # "a cat ." is a training caption


def test_the_report_counts_what_is_there(small):
    result = clue.report(small)
    assert result["rates"].loc["train", "Visible"] == 50
    leaks = result["leaks"]
    assert leaks["images"] == 6
    assert leaks["image in train"] == 1
    assert leaks["caption in train"] == 1
    assert leaks["image and caption in train"] == 0
    assert leaks["image or caption in train"] == 2
    assert (leaks["human rows"], leaks["machine rows"]) == (3, 1)
    assert result["words"]["longest"] == 6  # a " dog " , running


# --- The real files ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder():
    result = data_dir() / "clue"
    if not (result / "conceptual_train_dis.csv").is_file():
        pytest.skip("no real data: the Clue files are not in the data folder (MMLIB_DATA)")
    return result


@pytest.fixture(scope="module")
def real(folder):
    return clue.report(folder)


RATES = {
    "train": [67.36, 6.61, 15.68, 24.26, 39.09, 8.68],
    "test": [66.34, 6.22, 15.61, 24.74, 38.49, 9.52],
    "all": [67.15, 6.54, 15.66, 24.36, 38.97, 8.85],
}


@pytest.mark.real
def test_real_rates_are_those_of_table_2(real):
    for split, printed in RATES.items():
        assert real["rates"].loc[split].round(2).tolist() == printed
    table = paper_values("coherence", "table2")["percent_positive"]
    assert table.index.tolist() == list(clue.RELATIONS)
    assert real["rates"].loc["train"].round(1).tolist() == table.tolist()


@pytest.mark.real
def test_real_vocabulary_is_the_printed_one(real, folder):
    words = real["words"]
    assert words["vocabulary"] == 5612
    assert words["types"] == words["types lower-cased"] == 5611
    assert words["types without the empty token"] == 5610
    assert words["tokens"] == 54936
    assert words["empty tokens"] == 1688
    assert words["types that occur once"] == 2710
    assert round(words["mean length"], 2) == 9.08
    assert round(words["deviation of lengths"], 2) == 4.49
    assert (words["longest"], words["texts over 40 tokens"]) == (42, 1)
    assert words["texts over 20 tokens"] == 171
    assert (words["unknown test tokens"], words["test tokens"]) == (606, 13539)
    assert words["test texts with unknown tokens"] == 409
    assert all(text == text.lower() for text in clue.load("train", folder).texts)


@pytest.mark.real
def test_real_leaks(real):
    leaks = real["leaks"]
    assert leaks["images"] == 5348
    assert (leaks["image in train"], leaks["test rows"]) == (610, 1512)
    assert (leaks["human rows, image in train"], leaks["human rows"]) == (0, 881)
    assert (leaks["machine rows, image in train"], leaks["machine rows"]) == (610, 631)
    assert leaks["caption in train"] == 202
    assert leaks["image and caption in train"] == 38
    assert leaks["image or caption in train"] == 633
    assert (leaks["clean rows"], leaks["clean rows, caption not in train"]) == (881, 863)


@pytest.mark.real
def test_real_clean_rows_and_splits(folder):
    train, test = clue.load("train", folder), clue.load("test", folder)
    clean, strict = clue.clean_rows(test, train)
    assert clean.tolist() == list(range(881))  # the test file is sorted by index
    assert len(set(test.image_of[clean])) == 881
    assert set(strict) < set(clean)
    retained, held = hold_out(train, 0.1, seed=0)
    assert len(held) == pytest.approx(605, abs=5)
    assert not set(retained.image_of) & set(held.image_of)
