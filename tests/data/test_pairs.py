"""Clue, CITE and CITE++ on small files; the figures of the real ones to the printed digit."""

import csv
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from mmlib.core.errors import DataError
from mmlib.core.related import RelatedPairs, grouped_rows, hold_out
from mmlib.core.tables import paper_values
from mmlib.data import cite, clue

URL = "https://x.org/{}.jpg?a=1,2"
NO = ["False"] * 7


def of_clue(number, index, caption, image, labels="000000", marks="0000", comment="False"):
    """One line of the authors' file; marks are Other, When, How, Where as they stand there."""
    return [number, index, caption, URL.format(image), *labels, *marks, comment]


TRAIN = [
    of_clue(0, 7, 'a "dog", running', "a", "101010"),
    of_clue(1, 5000, "a cat .", "b", "100000"),
    of_clue(2, 9, "the sea", "c", "000110"),
    of_clue(3, 6000, "the sea again", "b"),
]
TEST = [
    of_clue(0, 3, "a cat .", "d", "100000", "0001"),
    of_clue(1, 4580, "a new bird", "e", "100010", "0010"),
    of_clue(2, 4581, "another bird", "f", "000001"),
    of_clue(3, 4, "a known sea", "c", "010000"),
]


def of_cite(number, image, text, answers=NO, after=("", "")):
    """One line of `data.csv`; after: the answers to Q9 and Q10."""
    return [number, number, after[1], "span", *answers, after[0], image, f"{number}_1", text, "c"]


STEPS = [
    of_cite(0, "pie_1_0.jpg", "Heat the oven.", ["True", *NO[1:]]),
    of_cite(1, "pie_1_0.jpg", "Heat the oven. ", [*NO[:6], "True"], ("True", "False")),
    of_cite(2, "pie_2_0.jpg", "Eat."),
    of_cite(3, "1.png", "A layer of sauce"),
    of_cite(4, "2.png", "Another layer"),
    of_cite(5, "soup_1_0.jpg", "Cut | stir"),
    of_cite(6, "a-soup-2_1_0.jpg", "Cut | stir"),  # one recipe under two names
    of_cite(7, "cake_10_0.jpg", "Mix."),
]
PLUS = [
    [0, "Heat, then wait.", "pie_1_0.jpg", "x", *["True"] * 7],
    [1, "Eat.", "pie_2_0.jpg", "x", *NO],
    [2, "Boil.", "tea_1_0.jpg", "x", *NO],
    [3, "Pour.", "tea_1_0.jpg", "x", *NO],
]


def write(path, header, rows, delimiter=","):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=delimiter).writerows([header, *rows])


def write_clue(folder, train=TRAIN, test=TEST):
    for split, rows in (("train", train), ("test", test)):
        write(clue.split_file(split, folder), clue.COLUMNS, rows)
    return folder


def write_cite(folder, rows=STEPS):
    write(folder / "data.csv", cite.COLUMNS, rows, "|")
    return folder


def write_plus(folder, rows=PLUS):
    """As far as the authors' code tells: these columns, other ones among them."""
    header = ["", "stim_txt", "qimg", "more", *cite.ANSWERS]
    write(folder / "q2-8_train_dis_11-08.csv", header, rows)
    return folder


def test_clue_is_read_in_file_order(tmp_path, monkeypatch):
    pairs = clue.load("train", write_clue(tmp_path / "clue"))
    assert (pairs.name, pairs.split, len(pairs)) == ("clue", "train", 4)
    assert pairs.texts == ('a "dog", running', "a cat .", "the sea", "the sea again")
    assert pairs.relations == ("Visible", "Subjective", "Action", "Story", "Meta", "Irrelevant")
    assert pairs.labels.dtype == bool
    assert pairs.labels[0].tolist() == [True, False, True, False, True, False]
    assert pairs.image_ids == tuple(URL.format(name) for name in "abc")
    assert pairs.image_of.tolist() == [0, 1, 2, 1]
    assert pairs.index.tolist() == [7, 5000, 9, 6000]
    assert pairs.human.tolist() == [True, False, True, False]
    assert (pairs.features, pairs.open_image) == (None, None)
    chosen = pairs.take([2, 0], "val")
    assert (chosen.texts, chosen.split) == (("the sea", 'a "dog", running'), "val")
    assert chosen.index.tolist() == [9, 7]
    monkeypatch.setenv("MMLIB_DATA", str(tmp_path))
    assert clue.load("train").texts == pairs.texts


def test_cite_is_read_in_file_order_without_duplicates(tmp_path, monkeypatch):
    pairs = cite.load(write_cite(tmp_path / "cite"), duplicates=True)
    assert (pairs.name, pairs.split, len(pairs)) == ("cite", "all", 8)
    assert pairs.relations == ("Q2", "Q3", "Q4", "Q5", "Q6", "Q7", "Q8")
    assert pairs.labels.sum(axis=1).tolist() == [1, 1, 0, 0, 0, 0, 0, 0]
    assert (pairs.labels[0, 0], pairs.labels[1, 6]) == (True, True)
    assert pairs.texts[1] == "Heat the oven. "  # the space is a token of the authors'
    assert pairs.texts[5] == "Cut | stir"
    assert pairs.image_of.tolist() == [0, 0, 1, 2, 3, 4, 5, 6]
    monkeypatch.setenv("MMLIB_DATA", str(tmp_path))
    once = cite.load()
    assert (len(once), once.texts[:2]) == (7, ("Heat the oven.", "Eat."))
    assert once.labels[0, 0]  # the first annotation stays
    assert cite.repeats().to_dict() == {
        "distinct pairs": 7, "rows of pairs that repeat": 2, "recipes": 5,
    }  # fmt: skip


@pytest.mark.parametrize("place", ["cite", "cite/RecipeQA"])
def test_cite_plus_is_read(tmp_path, place):
    write_plus(tmp_path / place)
    pairs = cite.load_plus("train", tmp_path / "cite")
    assert (pairs.split, len(pairs), pairs.texts[0]) == ("train", 4, "Heat, then wait.")
    assert pairs.labels.sum(1).tolist() == [7, 0, 0, 0]
    assert pairs.image_of.tolist() == [0, 1, 2, 2]


def test_recipes_are_read_from_image_names():
    names = ["vanilla-panna_2_0.jpg", "salad-2_10_0.png", "1.png", "my_cake_1_0.jpg"]
    assert [cite.recipe_of(name) for name in names] == ["vanilla-panna", "salad-2", "", "my_cake"]


# --- What is refused -----------------------------------------------------------------------------

CLUE_ROWS = [
    (of_clue(1, 5, "a", "b", "200000"), r"train_dis\.csv, line 3: Visible is '2', not 0\|1"),
    (of_clue(1, 5, " ", "b"), "line 3: caption is ' '"),
    (of_clue(1, "x", "a", "b"), "line 3: index is 'x'"),
    (of_clue(1, 5, "a", "b")[:-1], "line 3: 14 fields instead of 15"),
    ([1, 5, "a", "ftp:b", *"0000000000", "False"], "line 3: url is 'ftp:b'"),
    ([], "line 3: 0 fields"),
]
CITE_ROWS = [
    (of_cite(1, "a.jpg", "Eat.", ["Yes", *NO[1:]]), r"data\.csv, line 3: q2_resp is 'Yes'"),
    (of_cite(1, " ", "Eat."), "line 3: qimg is ' '"),
    (of_cite(1, "a.jpg", ""), "line 3: stim_txt is ''"),
    (of_cite(1, "a.jpg", "Eat.")[1:], "line 3: 15 fields instead of 16"),
]


@pytest.mark.parametrize(
    ("kind", "bad", "message"),
    [*(("clue", *row) for row in CLUE_ROWS), *(("cite", *row) for row in CITE_ROWS)],
)
def test_a_bad_row_is_named_with_the_mend(tmp_path, kind, bad, message):
    load = {
        "clue": lambda: clue.load("train", write_clue(tmp_path, [TRAIN[0], bad, TRAIN[1]])),
        "cite": lambda: cite.load(write_cite(tmp_path, [STEPS[0], bad, STEPS[2]])),
    }[kind]
    with pytest.raises(DataError, match=message) as caught:
        load()
    assert f"mmlib data get {kind}" in str(caught.value)
    assert caught.value.problem.row == 3


BAD_PLUS = [PLUS[0], [1, "Eat.", "b.jpg", "x", *NO[1:], ""]]
LONG = b'4,8,"no end' + b"\n4,8,more" * 20_000  # an unclosed quotation mark


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace(b"dog", b"d\xffg"), "line 2: bytes that are not UTF-8"),
        (lambda text: text + LONG, "line 6: cannot be read: field larger"),
        (lambda text: b'"' + b"x" * 200_000, "line 1: cannot be read: field larger"),
        (lambda text: text.replace(b"Story", b"Tale"), "line 1: the columns are"),
        (lambda text: text.splitlines()[0], "has no rows"),
        (None, r"train_dis\.csv: is missing \(run `mmlib data get clue`"),
    ],
)
def test_a_bad_file_is_named(tmp_path, change, message):
    path = clue.split_file("train", write_clue(tmp_path))
    if change is None:
        path.unlink()
    else:
        path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DataError, match=message):
        clue.load("train", tmp_path)


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (lambda folder: clue.load("val", folder), r"no split 'val' \(choose from train, test\)"),
        (lambda folder: cite.load_plus("val", folder), "no split 'val'"),
        (lambda folder: cite.load_plus("test", folder), r"q2-8_test_.*csv: is missing .*CITE\+\+"),
        (lambda f: cite.load_plus("train", write_plus(f, BAD_PLUS)), r"line 3: q8_.*CITE\+\+ from"),
        (lambda f: cite.load_with_images("train", write_plus(f)), "3 of 3 images.*RecipeQA"),
        (lambda f: clue.load_with_images("train", write_clue(f)), r"img2idxmap\.json: is missing"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_named(tmp_path, load, message):
    with pytest.raises(DataError, match=message):
        load(tmp_path)


# --- Images --------------------------------------------------------------------------------------


@pytest.fixture
def pictures(tmp_path):
    """Images 0 and 2 as JPEG and PNG, 1 cut off, 3 without a file, 4 not in the map."""
    folder = write_clue(tmp_path / "clue")
    numbers = {URL.format(name): i for i, name in enumerate("abcd")}
    (folder / "img2idxmap.json").write_text(json.dumps(numbers))
    (folder / "images/.old").mkdir(parents=True)
    for name, colour in (("0.jpg", 200), ("1.jpg", 100), ("2.png", 50)):
        Image.new("RGB", (40, 30), (colour, 0, 0)).save(folder / "images" / name)
    path = folder / "images/1.jpg"
    path.write_bytes(path.read_bytes()[:-150])
    for hidden in ("._0.jpg", "._3.jpg", ".old/3.jpg"):
        (folder / "images" / hidden).write_bytes(b"no picture")
    return folder


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
    assert (missing.absent, missing.unreadable[0][0]) == ((), URL.format("b"))
    assert "1.jpg: cannot be decoded" in missing.unreadable[0][1]
    assert "0 of 3 images missing, 1 unreadable: 2 of 4 pairs left out" in str(missing)
    pairs, missing = clue.load_with_images("test", pictures)  # d: no file; e, f: not in the map
    assert (pairs.texts, missing.pairs_lost) == (("a known sea",), 3)
    assert missing.absent == tuple(URL.format(name) for name in "def")
    for path in (pictures / "images").glob("*.*"):
        if path.is_file():
            path.unlink()
    with pytest.raises(DataError, match=r"3 of 3 images missing.*img2idxmap\.json"):
        clue.load_with_images("train", pictures)


@pytest.mark.parametrize(
    ("text", "fault"), [("{", "is not JSON"), ('{"a": "b"}', "is not a map"), ("[1]", "is not a m")]
)
def test_a_damaged_map_of_images_is_named(pictures, text, fault):
    (pictures / "img2idxmap.json").write_text(text)
    with pytest.raises(DataError, match=rf"img2idxmap\.json: {fault}"):
        clue.load_with_images("train", pictures)


@pytest.mark.parametrize(
    "place", ["cite/images-qa", "recipeqa/images/train/images-qa", "cite/RecipeQA/images-qa/train"]
)
def test_images_of_cite_are_found_by_name(tmp_path, place):
    folder = write_cite(write_plus(tmp_path / "cite"))
    (tmp_path / place).mkdir(parents=True)
    for name in ("pie_1_0.jpg", "tea_1_0.jpg"):
        Image.new("RGB", (40, 30), (0, 90, 0)).save(tmp_path / place / name)
    pairs, missing = cite.load_with_images("train", folder)
    assert pairs.texts == ("Heat, then wait.", "Boil.", "Pour.")
    assert pairs.image_of.tolist() == [0, 1, 1]
    assert pairs.open_image(1).size == (40, 30)
    assert (missing.absent, missing.pairs_lost) == (("pie_2_0.jpg",), 1)
    pairs, missing = cite.load_with_images("all", folder)
    assert pairs.texts == ("Heat the oven.",)
    assert (missing.pairs, missing.images) == (7, 7)


# --- Splits --------------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(0, 12), min_size=12, max_size=60),
    st.sampled_from([0.1, 0.2, 0.5]),
    st.integers(0, 5),
)
def test_groups_stay_together(groups, share, seed):
    groups = np.array(groups)
    try:
        retained, held = grouped_rows(groups, share, seed)
    except ValueError:
        assert np.bincount(groups).max() > (1 - share) * len(groups) - 5 or len(set(groups)) < 3
        return
    assert sorted([*retained, *held]) == list(range(len(groups)))
    assert not set(groups[retained]) & set(groups[held])
    assert share * len(groups) - 1e-6 <= len(held)
    assert len(held) < share * len(groups) + np.bincount(groups).max()
    assert np.array_equal(grouped_rows(groups, share, seed)[1], held)


def test_a_hold_out_shares_no_image_and_takes_the_share():
    rows = np.arange(200)
    texts, ids = tuple(f"text {i}" for i in rows), tuple(f"i{i}" for i in range(100))
    labels = np.eye(2, dtype=bool)[rows % 2]
    pairs = RelatedPairs("toy", "train", texts, labels, ("P", "Q"), rows // 2, ids)
    train, val = hold_out(pairs, 0.1, seed=3)
    assert (train.split, val.split, len(train), len(val)) == ("train", "val", 180, 20)
    assert not set(train.image_of) & set(val.image_of)
    assert hold_out(pairs, 0.1, seed=4)[1].texts != val.texts
    assert 0.07 * 100 > 7  # a little more than seven
    assert len(grouped_rows(np.arange(100), 0.07, 0)[1]) == 7


@pytest.mark.parametrize(
    ("groups", "share", "message"),
    [([1, 1, 1], 0.5, "1 groups are too few"), ([1, 2, 3], 0, "share of 0"), ([1, 2], 1, "of 1")],
)
def test_a_share_that_leaves_a_side_empty_is_refused(groups, share, message):
    with pytest.raises(ValueError, match=message):
        grouped_rows(np.array(groups), share, 0)


def test_clean_rows_and_leaks(tmp_path):
    train, test = (clue.load(split, write_clue(tmp_path)) for split in clue.SPLITS)
    clean, strict = clue.clean_rows(test, train)
    assert clean.tolist() == [0, 1]  # 2 is a machine's caption, 3 shows a training image
    assert strict.tolist() == [1]  # "a cat ." is a training caption
    result = clue.report(tmp_path)
    assert result["rates"]["Visible"].tolist() == [50, 50, 50]
    assert list(result["leaks"]) == [6, 4, 1, 3, 1, 1, 0, 1, 0, 2, 2, 1]
    assert result["words"]["longest"] == 6  # a " dog " , running
    assert result["words"][["test tokens", "unknown test tokens"]].tolist() == [12, 5]


# --- The real files ------------------------------------------------------------------------------

RATES = {
    "train": [67.36, 6.61, 15.68, 24.26, 39.09, 8.68],
    "test": [66.34, 6.22, 15.61, 24.74, 38.49, 9.52],
    "all": [67.15, 6.54, 15.66, 24.36, 38.97, 8.85],
}
WORDS = {
    "vocabulary": 5612, "types": 5611, "types lower-cased": 5611,
    "types without the empty token": 5610, "tokens": 54936, "empty tokens": 1688,
    "types that occur once": 2710, "longest": 42, "texts over 40 tokens": 1,
    "texts over 20 tokens": 171, "unknown test tokens": 606, "test tokens": 13539,
    "test texts with unknown tokens": 409,
}  # fmt: skip
LEAKS = {
    "images": 5348, "test rows": 1512, "image in train": 610, "human rows": 881,
    "human rows, image in train": 0, "machine rows": 631, "machine rows, image in train": 610,
    "caption in train": 202, "image and caption in train": 38, "image or caption in train": 633,
    "clean rows": 881, "clean rows, caption not in train": 863,
}  # fmt: skip


@pytest.mark.real
def test_the_real_clue_is_the_papers(real_data):
    real = clue.report(real_data / "clue")
    for split, printed in RATES.items():
        assert real["rates"].loc[split].round(2).tolist() == printed
    table = paper_values("coherence", "table2")["percent_positive"]
    assert real["rates"].loc["train"].round(1).to_dict() == table.to_dict()
    words = real["words"].to_dict()
    assert round(words.pop("mean length"), 2) == 9.08
    assert round(words.pop("deviation of lengths"), 2) == 4.49
    assert words == WORDS
    assert real["leaks"].to_dict() == LEAKS


@pytest.mark.real
def test_the_real_cite_is_the_papers(real_data):
    pairs = cite.load(real_data / "cite", duplicates=True)
    rates = pairs.labels.mean(axis=0).round(3)
    assert rates.tolist() == [0.830, 0.058, 0.211, 0.131, 0.056, 0.492, 0.201]
    assert cite.repeats(real_data / "cite").to_dict() == {
        "distinct pairs": 1553, "rows of pairs that repeat": 919, "recipes": 260,
    }  # fmt: skip
