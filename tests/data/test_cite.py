"""The readers of CITE and CITE++ on small files, and the figures of the real CITE."""

import csv

import pytest
from PIL import Image

from mmlib.core.errors import DataError
from mmlib.core.paths import data_dir
from mmlib.data import cite

NO = ["False"] * 7


def line(number, image, text, answers=NO, after=("", "")):
    """One line of `data.csv`; after: the answers to Q9 and Q10."""
    return [number, number, after[1], "span", *answers, after[0], image, f"{number}_1", text, "c"]


ROWS = [
    line(0, "pie_1_0.jpg", "Heat the oven.", ["True", *NO[1:]]),
    line(1, "pie_1_0.jpg", "Heat the oven. ", [*NO[:6], "True"], ("True", "False")),
    line(2, "pie_2_0.jpg", "Eat."),
    line(3, "1.png", "A layer of sauce"),
    line(4, "2.png", "Another layer"),
    line(5, "soup_1_0.jpg", "Cut | stir"),
    line(6, "a-soup-2_1_0.jpg", "Cut | stir"),  # one recipe under two names
    line(7, "cake_10_0.jpg", "Mix."),
]


def write(folder, rows):
    folder.mkdir(exist_ok=True)
    with (folder / "data.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter="|").writerows([cite.COLUMNS, *rows])


@pytest.fixture
def small(tmp_path):
    write(tmp_path / "cite", ROWS)
    return tmp_path / "cite"


def test_steps_are_read_in_file_order(small, monkeypatch):
    pairs = cite.load(small, duplicates=True)
    assert (pairs.name, pairs.split, len(pairs)) == ("cite", "all", 8)
    assert pairs.relations == ("Q2", "Q3", "Q4", "Q5", "Q6", "Q7", "Q8")
    assert pairs.labels.dtype == bool
    assert pairs.labels[0].tolist() == [True] + [False] * 6
    assert pairs.labels[1].tolist() == [False] * 6 + [True]
    assert pairs.texts[1] == "Heat the oven. "  # the space is a token of the authors'
    assert pairs.texts[5] == "Cut | stir"
    assert pairs.image_of.tolist() == [0, 0, 1, 2, 3, 4, 5, 6]
    monkeypatch.setenv("MMLIB_DATA", str(small.parent))
    assert cite.load(duplicates=True).texts == pairs.texts


def test_duplicates_are_left_out_unless_asked_for(small):
    pairs = cite.load(small)
    assert len(pairs) == 7
    assert pairs.labels[0].tolist() == [True] + [False] * 6  # the first annotation stays
    assert len(set(cite.pair_keys(pairs))) == 7


def test_recipes_are_read_from_image_names():
    names = ["vanilla-panna_2_0.jpg", "salad-2_10_0.png", "1.png", "my_cake_1_0.jpg"]
    assert [cite.recipe_of(name) for name in names] == ["vanilla-panna", "salad-2", "", "my_cake"]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (line(1, "a.jpg", "Eat.", ["Yes", *NO[1:]]), r"data\.csv, line 3: q2_resp is 'Yes'"),
        (line(1, " ", "Eat."), "line 3: qimg is ' '"),
        (line(1, "a.jpg", ""), "line 3: stim_txt is ''"),
        (line(1, "a.jpg", "Eat.")[1:], "line 3: 15 fields instead of 16"),
    ],
)
def test_a_bad_row_is_named_with_the_mend(small, bad, message):
    write(small, [ROWS[0], bad, ROWS[2]])
    with pytest.raises(DataError, match=message) as caught:
        cite.load(small)
    assert "mmlib data get cite" in str(caught.value)


def test_a_header_whose_quotation_mark_swallows_the_file_is_named(small):
    (small / "data.csv").write_text('"' + "x" * (csv.field_size_limit() + 1))
    with pytest.raises(DataError, match="line 1: cannot be read: field larger"):
        cite.load(small)


def test_a_bad_file_is_named(small):
    path = small / "data.csv"
    path.write_text(path.read_text().replace("q5_resp", "q5"))
    with pytest.raises(DataError, match=r"line 1: the columns are"):
        cite.load(small)
    write(small, [])
    with pytest.raises(DataError, match="has no rows"):
        cite.load(small)
    path.unlink()
    with pytest.raises(DataError, match=r"data\.csv: is missing \(run `mmlib data get cite`"):
        cite.load(small)


# --- CITE++ and images ---------------------------------------------------------------------------


def write_plus(folder, rows, split="train"):
    """As far as the authors' code tells: these columns, other ones among them."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"q2-8_{split}_dis_11-08.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["", "stim_txt", "qimg", "more", *cite.ANSWERS])
        writer.writerows([i, text, image, "x", *answers] for i, (image, text, answers) in rows)


PLUS = list(
    enumerate([
        ("pie_1_0.jpg", "Heat, then wait.", ["True"] * 7),
        ("pie_2_0.jpg", "Eat.", NO),
        ("tea_1_0.jpg", "Boil.", NO),
        ("tea_1_0.jpg", "Pour.", NO),
    ])
)  # fmt: skip


@pytest.mark.parametrize("place", ["cite", "cite/RecipeQA"])
def test_the_files_of_cite_plus_are_read(tmp_path, place):
    write_plus(tmp_path / place, PLUS)
    pairs = cite.load_plus("train", tmp_path / "cite")
    assert (pairs.split, len(pairs)) == ("train", 4)
    assert pairs.texts[0] == "Heat, then wait."
    assert pairs.labels.sum(1).tolist() == [7, 0, 0, 0]
    assert pairs.image_of.tolist() == [0, 1, 2, 2]
    with pytest.raises(DataError, match=r"q2-8_test_dis_11-08\.csv: is missing .*CITE\+\+"):
        cite.load_plus("test", tmp_path / "cite")
    with pytest.raises(DataError, match="no split 'val'"):
        cite.load_plus("val", tmp_path / "cite")


def test_bad_rows_of_cite_plus_are_named(tmp_path):
    bad = (1, ("pie_2_0.jpg", "Eat.", ["", *NO[1:]]))
    write_plus(tmp_path / "cite", [PLUS[0], bad])
    with pytest.raises(DataError, match=r"line 3: q2_resp is ''.*get CITE\+\+ from"):
        cite.load_plus("train", tmp_path / "cite")
    path = tmp_path / "cite/q2-8_train_dis_11-08.csv"
    path.write_text(path.read_text().replace("q8_resp", "q8"))
    with pytest.raises(DataError, match=r"line 1: the columns are .* not .*q8_resp"):
        cite.load_plus("train", tmp_path / "cite")


@pytest.mark.parametrize(
    "place", ["cite/images-qa", "recipeqa/images/train/images-qa", "cite/RecipeQA/images-qa/train"]
)
def test_pairs_without_an_image_are_left_out_and_counted(tmp_path, place):
    write_plus(tmp_path / "cite", PLUS)
    (tmp_path / place).mkdir(parents=True)
    for name in ("pie_1_0.jpg", "tea_1_0.jpg"):
        Image.new("RGB", (40, 30), (0, 90, 0)).save(tmp_path / place / name)
    pairs, missing = cite.load_with_images("train", tmp_path / "cite")
    assert pairs.texts == ("Heat, then wait.", "Boil.", "Pour.")
    assert pairs.image_of.tolist() == [0, 1, 1]
    assert pairs.open_image(1).size == (40, 30)
    assert missing.absent == ("pie_2_0.jpg",)
    assert (missing.pairs_lost, missing.pairs) == (1, 4)

    (tmp_path / place / "tea_1_0.jpg").write_bytes(b"no picture")
    pairs, missing = cite.load_with_images("train", tmp_path / "cite")
    assert pairs.texts == ("Heat, then wait.",)
    assert [name for name, _ in missing.unreadable] == ["tea_1_0.jpg"]
    assert missing.pairs_lost == 3

    write(tmp_path / "cite", ROWS)
    pairs, missing = cite.load_with_images("all", tmp_path / "cite")
    assert pairs.texts == ("Heat the oven.",)
    assert (missing.pairs, missing.images) == (7, 7)


def test_no_image_at_all_is_an_error(tmp_path):
    write_plus(tmp_path / "cite", PLUS)
    with pytest.raises(DataError, match=r"images-qa: 3 of 3 images missing.*RecipeQA"):
        cite.load_with_images("train", tmp_path / "cite")


def test_the_report_counts_what_is_there(small):
    result = cite.report(small)
    assert result["rates"]["Q2"] == 1 / 8
    assert result["repeats"].to_dict() == {
        "distinct pairs": 7, "rows of pairs that repeat": 2, "recipes": 5,
    }  # fmt: skip


# --- The real file -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder():
    result = data_dir() / "cite"
    if not (result / "data.csv").is_file():
        pytest.skip("no real data: cite/data.csv is not in the data folder (MMLIB_DATA)")
    return result


@pytest.fixture(scope="module")
def real(folder):
    return cite.report(folder)


@pytest.mark.real
def test_real_rates(real):
    rates = real["rates"].round(3)
    assert rates.tolist() == [0.830, 0.058, 0.211, 0.131, 0.056, 0.492, 0.201]
    assert real["words"]["types"] == 4898


@pytest.mark.real
def test_real_repeats(real):
    assert real["repeats"].to_dict() == {
        "distinct pairs": 1553, "rows of pairs that repeat": 919, "recipes": 260,
    }  # fmt: skip
