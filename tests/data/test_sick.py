"""SICK: sentence pairs in both directions, its ties to Flickr8k, and the real file's counts."""

import numpy as np
import pytest
from test_judgments import NAMES, TEST, TRAIN, VAL, caption, write

from mmlib.core.errors import DataError
from mmlib.data import flickr8k, sick
from mmlib.data import judgments as j


def pair(number, a, b, ab="entails", ba="neutral", originals=("", ""), part="TRAIN"):
    """One line of SICK.txt; originals: "" for a sentence that is not from Flickr."""
    sources = ["FLICKR" if original else "SEMEVAL" for original in originals]
    label = {"entails": "ENTAILMENT", "neutral": "NEUTRAL", "contradicts": "CONTRADICTION"}[ab]
    written = [original or sentence for original, sentence in zip(originals, (a, b), strict=True)]
    return [number, a, b, label, "4.5", f"A_{ab}_B", f"B_{ba}_A", *written, *sources, part]


T, V, E = (caption(names[0], 2) for names in (TRAIN, VAL, TEST))  # captions of three splits
LINES = [
    pair(1, "Photo 00, view 2", "A view", originals=(T, "")),
    pair(2, "Photo 02, view 2", "Photo 00 view 2", "neutral", "entails", (E, T)),
    pair(3, "There is no photo 00, view 2", "A view", "contradicts", "contradicts", (T, "")),
    pair(4, "A photo of nothing at all", "Photo 01, view 2", "neutral", "contradicts", (T, V)),
    pair(5, "A man eats", "A man is eating", "entails", "entails", part="TEST"),
    pair(6, "Photo 00, view 2", 'It\'s "one"', "entails", "neutral", (T, ""), "TEST"),
]


def save(folder, lines=LINES):
    folder.mkdir(exist_ok=True)
    rows = [list(sick.COLUMNS), *lines]
    text = "".join("\t".join(map(str, row)) + "\r\n" for row in rows)
    (folder / "SICK.txt").write_text(text, newline="")
    return folder


@pytest.fixture
def folder(tmp_path):
    return save(tmp_path / "sick")


@pytest.fixture
def origins(tmp_path):
    return sick.Origins(write(tmp_path / "flickr8k", []))


def test_pairs_are_read_as_text_and_directed_both_ways(folder, monkeypatch):
    pairs = sick.read(folder)
    assert pairs["pair_ID"].tolist() == ["1", "2", "3", "4", "5", "6"]
    assert pairs["sentence_B"][5] == 'It\'s "one"'
    table = sick.directed(pairs)
    assert table["pair_ID"].tolist() == [str(n) for n in range(1, 7) for _ in "AB"]
    assert table["premise"][2] == table["hypothesis"][3] == "Photo 02, view 2"
    assert table["answer"][:4].tolist() == ["entails", "neutral", "neutral", "entails"]
    assert table["premise_original"][:4].tolist() == [T, "", E, T]
    monkeypatch.setenv("MMLIB_DATA", str(folder.parent))
    assert sick.read().equals(pairs)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        (5, "B_entails_A", r"SICK\.txt, line 3: entailment_AB is 'B_entails_A'"),
        (11, "DEV", "line 3: SemEval_set is 'DEV'"),
        (4, "6", "line 3: relatedness_score is '6'"),
        (1, " ", "line 3: sentence_A is ' '"),
        (0, 1, "line 3: pair 1 stands in line 2 too"),
        (11, "TEST\tx", "line 3: 13 fields instead of 12"),
    ],
)
def test_a_bad_row_is_named_with_the_mend(tmp_path, column, value, message):
    bad = list(LINES[1])
    bad[column] = value
    with pytest.raises(DataError, match=message) as caught:
        sick.read(save(tmp_path / "sick", [LINES[0], bad]))
    assert "mmlib data get sick" in str(caught.value)


def test_a_bad_file_is_named(folder):
    with pytest.raises(DataError, match="has no rows"):
        sick.read(save(folder, []))
    path = folder / "SICK.txt"
    path.write_text("pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n")
    with pytest.raises(DataError, match="line 1: the columns are"):
        sick.read(folder)
    path.unlink()
    with pytest.raises(DataError, match="is missing"):
        sick.read(folder)


def test_text_text_samples(folder, origins):
    samples = sick.text_text(("TRAIN",), folder)
    assert len(samples) == 8
    assert set(samples.kind) == {"te"}
    assert set(samples.image) == {-1}
    assert samples.label.tolist() == [1, 0, 0, 1, 0, 0, 0, 0]
    assert len(sick.text_text(("TRAIN", "TEST"), folder)) == 12
    grouped = sick.text_text(("TRAIN",), folder, origins=origins)
    assert grouped.group[:4] == (NAMES[0], "a view", TEST[0], NAMES[0])
    with pytest.raises(DataError, match="no set 'DEV'"):
        sick.text_text(("DEV",), folder)


def test_pairs_of_other_splits_images_are_left_out_in_both_directions(folder, origins):
    def numbers(**kwargs):
        samples = sick.text_text(folder=folder, origins=origins, **kwargs)
        return {*samples.premise} | {*samples.hypothesis}

    assert not any("02" in text for text in numbers(leave_out=("test",)))
    assert not any("02" in text or "01" in text for text in numbers(leave_out=("val", "test")))
    assert len(sick.text_text(folder=folder, leave_out=("val", "test"), origins=origins)) == 4
    remainder = sick.text_text(("TEST",), folder, ("train",), origins)
    assert remainder.premise == ("A man eats", "A man is eating")


def test_triples_need_a_first_sentence_that_is_still_a_caption(folder, origins):
    table = sick.triples(folder, origins)
    assert list(zip(table["pair_ID"], table["premise"], table["split"], strict=True)) == [
        ("1", "Photo 00, view 2", "train"),
        ("2", "Photo 02, view 2", "test"),
        ("2", "Photo 00 view 2", "train"),
        ("4", "Photo 01, view 2", "val"),  # but not from A to B: far from its original
        ("6", "Photo 00, view 2", "train"),  # and none of pair 3, where a negation was added
    ]
    assert table["answer"].tolist() == ["entails", "neutral", "entails", "contradicts", "entails"]
    assert table["clean"].tolist() == [True, False, False, False, True]  # 2 and 4 cross splits


@pytest.mark.parametrize(
    ("sentence", "original", "close"),
    [
        ("A dog is running", "a dog running .", True),
        ("a b c", "a b c d e", True),  # 3 of 5
        ("a b c", "a b c d e f", False),
        ("A dog isn't running", "A dog is running", False),
        ("A dog is running without a man", "A dog is running with a man", False),
        ("A man without a hat", "A man without hat", True),  # the negation was there
    ],
)
def test_what_is_close_to_its_original(sentence, original, close):
    assert sick._close(sentence, original) == close


def test_triple_samples(folder, origins):
    table = sick.triples(folder, origins)
    table = table[(table["split"] == "train") & table["clean"]]
    samples = sick.triple_samples(table, origins.captions, {TRAIN[0]: 3})
    assert samples.kind == ("ve", "ve", "mme", "mme")
    assert samples.premise[:2] == ("", "")
    assert samples.premise[2] == " ".join(origins.captions[TRAIN[0]])
    assert samples.hypothesis[2:] == samples.hypothesis[:2] == ("A view", 'It\'s "one"')
    assert samples.image.tolist() == [3] * 4
    assert samples.label.tolist() == [1] * 4
    assert set(samples.group) == {TRAIN[0]}
    with pytest.raises(ValueError, match="the image table has no row"):
        sick.triple_samples(table, origins.captions, {})


def test_an_image_of_several_splits_is_not_clean(tmp_path):
    folder = write(tmp_path / "flickr8k", [])
    text = (folder / "captions.txt").read_text()
    (folder / "captions.txt").write_text(text.replace(caption(TEST[3], 4), T))
    origins = sick.Origins(folder)
    assert origins.images(T) == (TRAIN[0], TEST[3])
    assert origins.splits(T) == {"train", "test"}
    table = sick.triples(save(tmp_path / "sick", LINES[:1]), origins)
    assert (table["image"][0], table["split"][0], table["clean"][0]) == (TRAIN[0], "train", False)


# Real data ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(real_data):
    return real_data / "sick", sick.Origins(real_data / "flickr8k")


@pytest.mark.real
def test_the_real_counts_are_those_of_the_specification(real):
    result = sick.report(*real)
    assert result == {
        "originals from Flickr": 1009, "originals equal to a caption": 978,
        "images of originals in test": 63,
        "triples": 3992, "triples in train": 3014, "triples in val": 458, "triples in test": 485,
        "clean triples in train": 2989, "train triples from TEST": 1467,
    }  # fmt: skip
    assert {
        name: int(n) for name, n in sick.read(real[0])["SemEval_set"].value_counts().items()
    } == sick.SETS


@pytest.mark.real
def test_real_training_samples_stay_apart_from_the_judgments(real, real_data):
    folder, origins = real
    judged = j.load(real_data / "flickr8k")
    names = tuple(origins.captions)
    rows = {name: i for i, name in enumerate(names)}
    table = sick.triples(folder, origins)
    train = table[(table["split"] == "train") & table["clean"]]
    samples = sick.triple_samples(train, origins.captions, rows)
    j.assert_untouched(samples, judged, names)
    text = sick.text_text(("TRAIN",), folder, ("val", "test"), origins)
    assert len(text) == 2 * 3916
    j.assert_untouched(text, judged, names)
    tested = sick.triple_samples(table[table["split"] == "test"], origins.captions, rows)
    with pytest.raises(ValueError, match="an image of the judgments"):
        j.assert_untouched(tested, judged, names)
    test_images = set(flickr8k.read_split("test", real_data / "flickr8k"))
    assert not {names[i] for i in samples.image} & test_images
    assert np.mean(sick.text_text(tuple(sick.SETS), folder).label) == pytest.approx(4121 / 19680)
