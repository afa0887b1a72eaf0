"""Clue, CITE and CITE++ on small files (the real ones: test_coherence_flickr8k)."""

import csv
import json

import numpy as np
import pytest
import scripts
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from mmlib.core.errors import DataError
from mmlib.core.records import grouped_rows
from mmlib.data import cite, clue

counting = scripts.load("ci/count_clue_and_cite.py")
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
    with path.open("w", newline="", encoding="utf-8-sig") as file:
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
    assert counting.repeats(tmp_path / "cite").to_dict() == {
        "distinct pairs": 7, "rows of pairs that repeat": 2, "recipes": 5,
    }  # fmt: skip


@pytest.mark.parametrize("subfolder", ["cite", "cite/RecipeQA"])
def test_cite_plus_is_read(tmp_path, subfolder):
    write_plus(tmp_path / subfolder)
    pairs = cite.load_plus("train", tmp_path / "cite")
    assert (pairs.split, len(pairs), pairs.texts[0]) == ("train", 4, "Heat, then wait.")
    assert pairs.labels.sum(1).tolist() == [7, 0, 0, 0]
    assert pairs.image_of.tolist() == [0, 1, 2, 2]
    names = ["vanilla-panna_2_0.jpg", "salad-2_10_0.png", "1.png", "my_cake_1_0.jpg"]
    assert [cite.recipe_of(name) for name in names] == ["vanilla-panna", "salad-2", "", "my_cake"]


# --- What is refused -----------------------------------------------------------------------------


def clue_with(change):
    """Clue's training pairs, whose file is changed as bytes; None: it is gone."""

    def load(folder):
        path = clue.split_file("train", write_clue(folder))
        content = path.read_bytes()
        path.unlink()
        if change:
            path.write_bytes(change(content))
        return clue.load("train", folder)

    return load


def clue_row(*row):
    return lambda folder: clue.load("train", write_clue(folder, [TRAIN[0], list(row), TRAIN[1]]))


def cite_row(*row):
    return lambda folder: cite.load(write_cite(folder, [STEPS[0], list(row), STEPS[2]]))


def clue_map(text):
    def load(folder):
        (write_clue(folder) / "img2idxmap.json").write_text(text)
        return clue.load_with_images("train", folder)

    return load


SOUND = of_clue(1, 5, "a", "b")
BAD_PLUS = [PLUS[0], [1, "Eat.", "b.jpg", "x", *NO[1:], ""]]
LONG = b'4,8,"no end' + b"\n4,8,more" * 20_000  # an unclosed quotation mark


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (clue_row(*of_clue(1, 5, "a", "b", "200000")),
         r"train_dis\.csv, line 3: Visible is '2', not 0\|1 \(run `mmlib data get clue`"),
        (clue_row(*of_clue(1, 5, " ", "b")), "line 3: caption is ' '"),
        (clue_row(*of_clue(1, "x", "a", "b")), "line 3: index is 'x'"),
        (clue_row(*SOUND[:-1]), "line 3: 14 fields instead of 15"),
        (clue_row(*SOUND[:3], "ftp:b", *SOUND[4:]), "line 3: url is 'ftp:b'"),
        (clue_row(), "line 3: 0 fields"),
        (cite_row(*of_cite(1, "a.jpg", "Eat.", ["Yes", *NO[1:]])),
         r"data\.csv, line 3: q2_resp is 'Yes'.*mmlib data get cite"),
        (cite_row(*of_cite(1, " ", "Eat.")), "line 3: qimg is ' '"),
        (cite_row(*of_cite(1, "a.jpg", "")), "line 3: stim_txt is ''"),
        (clue_with(lambda text: text.replace(b"dog", b"d\xffg")), "line 2: bytes that are not"),
        (clue_with(lambda text: text + LONG), "line 6: cannot be read: field larger"),
        (clue_with(lambda text: b'"' + b"x" * 200_000), "line 1: cannot be read: field larger"),
        (clue_with(lambda text: text.replace(b"Story", b"Tale")), "line 1: the columns are"),
        (clue_with(lambda text: text.splitlines()[0]), "has no rows"),
        (clue_with(None), r"train_dis\.csv: is missing \(run `mmlib data get clue`"),
        (lambda f: clue.load("val", f), r"no split 'val' \(choose from train, test\)"),
        (lambda f: cite.load_plus("val", f), "no split 'val'"),
        (lambda f: cite.load_plus("test", f), r"q2-8_test_.*csv: is missing .*CITE\+\+"),
        (lambda f: cite.load_plus("train", write_plus(f, BAD_PLUS)), r"line 3: q8_.*CITE\+\+ from"),
        (lambda f: cite.load_with_images("train", write_plus(f)), "3 of 3 images.*RecipeQA"),
        (lambda f: clue.load_with_images("train", write_clue(f)), r"img2idxmap\.json: is missing"),
        (clue_map("{}"), r"3 of 3 images missing.*img2idxmap\.json"),
        (clue_map("{"), r"img2idxmap\.json: not JSON.*mmlib data get clue"),
        (clue_map('{"a": "b"}'), r"img2idxmap\.json: is not a map"),
        (clue_map("[1]"), r"img2idxmap\.json: not a JSON object"),
    ],
)  # fmt: skip
def test_what_is_damaged_or_missing_is_named(tmp_path, load, message):
    with pytest.raises(DataError, match=message):
        load(tmp_path)


# --- Images --------------------------------------------------------------------------------------


@pytest.fixture
def pictures(tmp_path):
    """Images 0 and 2 as JPEG and PNG, 1 cut off, 3 without a file, 4 not in the map."""
    folder = write_clue(tmp_path / "clue")
    numbers = {URL.format(name): i for i, name in enumerate("abcd")}
    (folder / "img2idxmap.json").write_text(json.dumps(numbers), encoding="utf-8-sig")
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
    assert missing == "0 of 3 images missing, 1 unreadable: 2 of 4 pairs left out"
    pairs, missing = clue.load_with_images("test", pictures)  # d: no file; e, f: not in the map
    assert pairs.texts == ("a known sea",)
    assert missing == "3 of 4 images missing, 0 unreadable: 3 of 4 pairs left out"


@pytest.mark.parametrize(
    "subfolder",
    ["cite/images-qa", "recipeqa/images/train/images-qa", "cite/RecipeQA/images-qa/train"],
)
def test_images_of_cite_are_found_by_name(tmp_path, subfolder):
    folder = write_cite(write_plus(tmp_path / "cite"))
    (tmp_path / subfolder).mkdir(parents=True)
    for name in ("pie_1_0.jpg", "tea_1_0.jpg"):
        Image.new("RGB", (40, 30), (0, 90, 0)).save(tmp_path / subfolder / name)
    pairs, missing = cite.load_with_images("train", folder)
    assert pairs.texts == ("Heat, then wait.", "Boil.", "Pour.")
    assert pairs.image_of.tolist() == [0, 1, 1]
    assert pairs.open_image(1).size == (40, 30)
    assert missing == "1 of 3 images missing, 0 unreadable: 1 of 4 pairs left out"
    pairs, missing = cite.load_with_images("all", folder)
    assert pairs.texts == ("Heat the oven.",)
    assert missing == "6 of 7 images missing, 0 unreadable: 6 of 7 pairs left out"


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


def test_the_share_is_exact_and_each_seed_holds_out_others():
    one, other = (grouped_rows(np.arange(100), 0.07, seed)[1].tolist() for seed in (0, 1))
    assert len(one) == 7 < 0.07 * 100  # by rounding
    assert one != other
    for groups, share, message in (
        ([1, 1, 1], 0.5, "1 groups are too few"), ([1, 2, 3], 0, "share of 0"), ([1, 2], 1, "of 1")
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            grouped_rows(np.array(groups), share, 0)


def test_clean_rows_and_leaks(tmp_path):
    train, test = (clue.load(split, write_clue(tmp_path)) for split in clue.SPLITS)
    clean, strict = clue.clean_rows(test, train)
    assert clean.tolist() == [0, 1]  # 2 is a machine's caption, 3 shows a training image
    assert strict.tolist() == [1]  # "a cat ." is a training caption
    result = counting.report(tmp_path)
    assert result["rates"]["Visible"].tolist() == [50, 50, 50]
    assert list(result["leaks"]) == [6, 4, 1, 3, 1, 1, 0, 1, 0, 2, 2, 1]
    assert result["words"]["longest"] == 6  # a " dog " , running
    assert result["words"][["test tokens", "unknown test tokens"]].tolist() == [12, 5]
