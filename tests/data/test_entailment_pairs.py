"""Judgments of the crowd, SICK and SNLI-VE: reading, samples, the guard of training, real files."""

import csv
import json

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from mmlib.core.entailment_pairs import Samples
from mmlib.core.errors import DataError
from mmlib.data import flickr8k, sick, snli_ve
from mmlib.data import judgments as j
from mmlib.data.overlap import Weights, overlap_parts, overlap_score, stems

NAMES = tuple(f"10{i:02}_ab.jpg" for i in range(12))
TRAIN, VAL, TEST = NAMES[:1], NAMES[1:2], NAMES[2:]


def caption(name, k):
    return f"Photo {name[2:4]}, view {k} ."


def write(folder, votes):
    """Twelve images; votes: (image, origin, yes, no) by number of the test image."""
    text = folder / "Flickr8k_text"
    text.mkdir(parents=True)
    with (folder / "captions.txt").open("w", newline="") as file:
        rows = [(name, caption(name, k)) for name in NAMES for k in range(5)]
        csv.writer(file).writerows([("image", "caption"), *rows])
    for split, names in {"train": TRAIN, "val": VAL, "test": TEST[::-1]}.items():
        (text / flickr8k.LISTS[split]).write_text("\n".join(names) + "\n")
    (text / "CrowdFlowerAnnotations.txt").write_text(
        "".join(f"{TEST[a]}\t{TEST[b]}#2\t{y / (y + n):.12g}\t{y}\t{n}\n" for a, b, y, n in votes)
    )
    return folder


VOTES = [
    (0, 0, 3, 0),  # its own caption
    (0, 1, 2, 1),
    (0, 2, 0, 3),
    (0, 3, 1, 2),
    (0, 4, 2, 2),  # a tie
    (1, 0, 3, 0),
    (1, 2, 0, 3),
    (1, 3, 0, 3),
    (1, 5, 3, 0),
    (2, 0, 0, 3),
    (5, 6, 1, 2),
]


@pytest.fixture
def judged(tmp_path):
    return j.load(write(tmp_path / "flickr8k", VOTES))


def test_pairs_are_read_with_the_captions_of_their_image(judged):
    assert len(judged) == 11
    assert (judged.image[1], judged.origin[1]) == (TEST[0], TEST[1])
    assert judged.hypothesis[1] == caption(TEST[1], 2)
    assert judged.premise[1] == tuple(caption(TEST[0], k) for k in range(5))
    assert judged.premise[0] == tuple(caption(TEST[0], k) for k in (0, 1, 3, 4))  # not its own
    assert judged.label.tolist() == [1, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0]
    assert np.flatnonzero(~judged.cross).tolist() == [0]


def test_every_fifth_image_by_name_calibrates(judged):
    held, others = j.parts(judged)
    assert set(held.image) == {TEST[0], TEST[5]}
    assert not set(held.image) & set(others.image)
    assert len(held) + len(others) == 11
    assert j.decided(judged).tolist() == [1, 2, 3, 5, 6, 7, 8, 9, 10]  # not its own, nor the tie


def test_as_test_samples(judged):
    rows = {name: i for i, name in enumerate(TEST)}
    samples = judged.samples(rows)
    assert samples.kind == ("mme",) * 11
    assert samples.premise[1] == " ".join(caption(TEST[0], k) for k in range(5))
    assert samples.image[5] == 1
    assert samples.label.tolist() == judged.label.tolist()
    assert samples.group == judged.image
    with pytest.raises(ValueError, match="the image table has no row for 1002_ab"):
        judged.samples({})


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        (
            "CrowdFlowerAnnotations.txt",
            f"{TRAIN[0]}\t{TEST[0]}#2\t0\t0\t3\n",
            "no test image, or no",
        ),
        ("CrowdFlowerAnnotations.txt", f"{TEST[0]}\t{VAL[0]}#2\t0\t0\t3\n", "no test image"),
        ("CrowdFlowerAnnotations.txt", "a b#2 1 1 0\n", "1 lines, none well-formed"),
        (flickr8k.LISTS["train"], f"{NAMES[0]}\n{TEST[0]}\n", f"{TEST[0]} is in the split train"),
    ],
)
def test_judgments_that_do_not_fit_are_refused(tmp_path, file, text, message):
    folder = write(tmp_path / "flickr8k", VOTES)
    (folder / "Flickr8k_text" / file).write_text(text)
    with pytest.raises(DataError, match=message):
        j.load(folder)


def test_judgments_name_captions_by_their_number(tmp_path):
    folder = write(tmp_path / "flickr8k", VOTES)
    (folder / "captions.txt").unlink()
    lines = [f"{name}#{k}\t{caption(name, k)}\n" for name in NAMES for k in (4, 0, 3, 1, 2)]
    (folder / "Flickr8k.token.txt").write_text("".join(lines))
    assert j.load(folder).hypothesis[1] == caption(TEST[1], 2)


# The guard ---------------------------------------------------------------------------------------


def training(premise="", hypothesis="Something else", image=0, kind="ve"):
    """A sound training sample and then the one described."""
    return Samples(
        ("A text", premise), ("Another", hypothesis), np.array([-1, image]), np.array([0, 1]),
        ("te", kind), ("toy", "toy"), ("a", "b"),
    )  # fmt: skip


TABLE = (TRAIN[0], TEST[0], TEST[7])  # the image table of these samples


def test_sound_training_samples_pass(judged):
    j.assert_untouched(training(image=0), judged, TABLE)
    j.assert_untouched(training(hypothesis=caption(TEST[1], 2)), judged, TABLE)  # another image
    j.assert_untouched(training(image=2), judged, TABLE)  # a test image that nobody judged
    j.assert_untouched(training("A text", kind="te", image=-1), judged, ())


@pytest.mark.parametrize("text", [caption(TEST[1], 2), "photo 03 VIEW 2"])
def test_a_judged_pair_in_training_is_found(judged, text):
    for kind, premise in (("ve", ""), ("mme", "Some text")):
        samples = training(premise, text, 1, kind)
        with pytest.raises(ValueError, match=r"sample 1 \(toy\) is the judged pair of 1002_ab.jpg"):
            j.assert_untouched(samples, judged, TABLE)


def test_a_judged_pair_is_found_without_its_image(judged):
    merged = " ".join(caption(TEST[0], k) for k in range(5))
    for premise in (merged, caption(TEST[0], 4)):
        with pytest.raises(ValueError, match=r"sample 1 .* is the judged pair of 'Photo 02"):
            j.assert_untouched(training(premise, caption(TEST[3], 2), -1, "te"), judged, ())


def test_every_judged_pair_is_caught(judged):
    samples = judged.samples({name: i for i, name in enumerate(TEST)})
    with pytest.raises(ValueError, match=r"shows 1002_ab\.jpg, an image of the judgments"):
        j.assert_untouched(training(image=1), judged, TABLE)
    for row in range(len(judged)):
        with pytest.raises(ValueError, match="judged pairs are for tests only"):
            j.assert_untouched(samples.take([row]), judged, TEST)


# The anchor that learns nothing -------------------------------------------------------------------


def test_overlap_by_hand():
    assert stems("The dogs, jumping on a bus!") == {"dog", "jump", "bus"}
    assert overlap_score(["A dog runs", "Two dogs"], "a dog sleeps") == pytest.approx(1 / 2 + 1 / 3)
    assert overlap_score(["A red dog"], "A dog") == pytest.approx(1 + 1 / 2)
    assert overlap_score(["A dog", "A cat"], "dog and cat") == pytest.approx(1 + 1 / 2)
    assert overlap_score(["A dog"], "is the") == 0
    assert overlap_score([], "a dog") == 0


def test_overlap_weighs_rare_words_more():
    weights = Weights([["a dog", "dogs run"], ["a dog"], ["a cat"]])
    assert weights["dog"] == pytest.approx(np.log(4 / 3) + 1)
    assert weights["run"] == pytest.approx(np.log(4 / 2) + 1)
    assert weights["zebra"] == pytest.approx(np.log(4) + 1)
    share, best = overlap_parts(["a dog"], "a dog runs", weights)
    assert share == best == pytest.approx(weights["dog"] / (weights["dog"] + weights["run"]))
    assert "zebra" not in weights  # asking for a word does not add it


# SICK ---


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


def save_sick(folder, lines=LINES):
    folder.mkdir(exist_ok=True)
    rows = [list(sick.COLUMNS), *lines]
    text = "".join("\t".join(map(str, row)) + "\r\n" for row in rows)
    (folder / "SICK.txt").write_text(text, newline="")
    return folder


@pytest.fixture
def folder(tmp_path):
    return save_sick(tmp_path / "sick")


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


def test_text_text_samples(folder, origins):
    samples = sick.text_text(("TRAIN",), folder)
    assert len(samples) == 8
    assert set(samples.kind) == {"te"}
    assert set(samples.image) == {-1}
    assert samples.label.tolist() == [1, 0, 0, 1, 0, 0, 0, 0]
    assert len(sick.text_text(("TRAIN", "TEST"), folder)) == 12
    grouped = sick.text_text(("TRAIN",), folder, origins=origins)
    assert grouped.group[:4] == (NAMES[0], "a view", TEST[0], NAMES[0])


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


def test_an_image_of_several_splits_is_not_clean(tmp_path):
    folder = write(tmp_path / "flickr8k", [])
    text = (folder / "captions.txt").read_text()
    (folder / "captions.txt").write_text(text.replace(caption(TEST[3], 4), T))
    origins = sick.Origins(folder)
    assert origins.images(T) == (TRAIN[0], TEST[3])
    assert origins.splits(T) == {"train", "test"}
    table = sick.triples(save_sick(tmp_path / "sick", LINES[:1]), origins)
    assert (table["image"][0], table["split"][0], table["clean"][0]) == (TRAIN[0], "train", False)


# SNLI-VE ---


def record(photo, label="entailment", key="Flickr30K_ID", **extra):
    texts = {"sentence1": "A dog runs .", "sentence2": f"Sentence on {photo}"}
    return {key: photo, "gold_label": label, "pairID": f"{photo}.jpg#0r1e", **texts, **extra}


RECORDS = {
    "train": [record("1003"), record("1003", "neutral"), record("555", "contradiction")],
    "dev": [record("777.jpg", key="Flikr30kID")],
    "test": [record("888"), record("1003")],
}


def save_snli(folder, lines=RECORDS):
    folder.mkdir(parents=True, exist_ok=True)
    for split, records in lines.items():
        text = "".join(json.dumps(item) + "\n" for item in records)
        (folder / f"snli_ve_{split}.jsonl").write_text(text)
    return folder


def test_snli_ve_is_read_in_file_order(tmp_path, monkeypatch):
    folder = save_snli(tmp_path / "snli_ve")
    table = snli_ve.read("train", folder)
    assert table["image"].tolist() == ["1003.jpg", "1003.jpg", "555.jpg"]
    assert table["label"].tolist() == ["entailment", "neutral", "contradiction"]
    assert table["hypothesis"][2] == "Sentence on 555"
    assert table["caption"][0] == "A dog runs ."
    assert snli_ve.read("dev", folder)["image"].tolist() == ["777.jpg"]  # the older key
    monkeypatch.setenv("MMLIB_DATA", str(folder.parent))
    assert snli_ve.read("train").equals(table)


def test_samples_of_snli_ve(tmp_path):
    folder = save_snli(tmp_path)
    table, rows = snli_ve.read("train", folder), {"1003.jpg": 4, "555.jpg": 0}
    observed = snli_ve.samples(table, rows)
    assert observed.kind == ("ve",) * 3
    assert observed.premise == ("",) * 3
    assert observed.image.tolist() == [4, 4, 0]
    assert observed.label.tolist() == [1, 0, 0]
    captions = {"1003.jpg": ["One.", "Two."], "555.jpg": ["Three."]}
    samples = snli_ve.samples(table, rows, captions)
    assert samples.kind == ("ve",) * 3 + ("mme",) * 3
    assert samples.premise[3:] == ("One. Two.", "One. Two.", "Three.")
    assert samples.group[3:] == ("1003.jpg", "1003.jpg", "555.jpg")
    with pytest.raises(ValueError, match=r"no row for 1003\.jpg"):
        snli_ve.samples(table, {})


# What is refused ---------------------------------------------------------------------------------


def sick_row(column, value):
    bad = list(LINES[1])
    bad[column] = value
    return "\n".join("\t".join(map(str, row)) for row in (sick.COLUMNS, LINES[0], bad))


HEADER, OLDER = "\t".join(sick.COLUMNS), "pair_ID\tsentence_A\tsentence_B\tentailment_judgment\n"
ONE = json.dumps(record("1")) + "\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            sick_row(5, "B_entails_A"),
            r"SICK\.txt, line 3: entailment_AB is 'B_ent.*get sick",
        ),
        (sick_row(11, "DEV"), "line 3: SemEval_set is 'DEV'"),
        (sick_row(4, "6"), "line 3: relatedness_score is '6'"),
        (sick_row(1, " "), "line 3: sentence_A is ' '"),
        (sick_row(0, 1), "line 3: pair 1 stands in line 2 too"),
        (sick_row(11, "TEST\tx"), "line 3: 13 fields instead of 12"),
        (HEADER, "has no rows"),
        (OLDER, "line 1: the columns are"),
        (None, "is missing"),
    ],
)
def test_what_is_wrong_with_sick_is_named(tmp_path, text, message):
    if text is not None:
        (tmp_path / "SICK.txt").write_text(text)
    with pytest.raises(DataError, match=message):
        sick.read(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ONE + "{", r"snli_ve_train\.jsonl, line 2: is not JSON.*necla-ml/SNLI-VE"),
        (ONE + "[1]", "line 2: is not a JSON record"),
        (ONE + json.dumps(record("x")), "line 2: Flickr30K_ID is 'x', not a number"),
        (json.dumps({"gold_label": "neutral"}), "line 1: Flickr30K_ID is '', not a number"),
        (json.dumps(record("1", "-")), "line 1: gold_label is '-'"),
        (json.dumps(record("1", sentence2=" ")), "line 1: the hypothesis is ' '"),
        (json.dumps(record("1", sentence1=None)), "line 1: the caption is None"),
        ("\n", "has no lines"),
        (None, "is missing"),
    ],
)
def test_what_is_wrong_with_snli_ve_is_named(tmp_path, text, message):
    if text is not None:
        (tmp_path / "snli_ve_train.jsonl").write_text(text)
    with pytest.raises(DataError, match=message):
        snli_ve.read("train", tmp_path)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda folder, origins: sick.text_text(("DEV",), folder), "no set 'DEV'"),
        (lambda folder, origins: snli_ve.read("val", folder), "no split 'val'"),
        (
            lambda folder, origins: sick.triple_samples(
                sick.triples(folder, origins), origins.captions, {}
            ),
            "the image table has no row",
        ),
    ],
)
def test_other_names_are_refused(folder, origins, call, message):
    with pytest.raises(ValueError, match=message):
        call(folder, origins)


# Real data ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(real_data):
    return j.load(real_data / "flickr8k")


@pytest.mark.real
def test_the_real_figures_are_those_of_the_specification(real):
    label, every = real.label == 1, j.decided(real)
    assert (len(real), len(set(real.image)), len(set(real.origin))) == (47288, 991, 1000)
    assert (int((real.yes + real.no).sum()), int(label.sum())) == (143214, 2678)
    assert (int((~real.cross).sum()), int(label[~real.cross].sum())) == (713, 693)
    assert (int(real.cross.sum()), len(every), int(label[every].sum())) == (46575, 46548, 1985)
    assert np.bincount(real.yes + real.no).tolist() == [0, 0, 0, 46258, 760, 220, 50]

    sizes = [(len(half), int(half.label.sum())) for half in j.parts(real.take(real.cross))]
    assert sizes == [(9482, 375), (37093, 1610)]


@pytest.mark.real
def test_the_real_anchor(real, real_data):
    folder = real_data / "flickr8k"
    captions = flickr8k.read_captions(folder)
    weights = Weights([captions[name] for name in flickr8k.read_splits(folder)["train"]])
    rows = j.decided(real)
    parts = [overlap_parts(real.premise[i], real.hypothesis[i], weights) for i in rows]
    share, best = np.array(parts).T
    areas = [roc_auc_score(real.label[rows], column) for column in (share, best, share + best)]
    assert np.round(areas, 3).tolist() == [0.827, 0.831, 0.838]
    assert round(average_precision_score(real.label[rows], share + best), 2) == 0.32


@pytest.mark.real
def test_the_real_sick_and_its_distance_from_the_judgments(real, real_data):
    folder, origins = real_data / "sick", sick.Origins(real_data / "flickr8k")
    names = tuple(origins.captions)
    rows = {name: i for i, name in enumerate(names)}
    table = sick.triples(folder, origins)
    counts = table["split"].value_counts()
    assert (len(table), *counts[["train", "val", "test"]]) == (3992, 3014, 458, 485)
    train = table[(table["split"] == "train") & table["clean"]]
    assert len(train) == 2989
    assert sick.read(folder)["SemEval_set"].value_counts().to_dict() == sick.SETS
    samples = sick.triple_samples(train, origins.captions, rows)
    j.assert_untouched(samples, real, names)
    text = sick.text_text(("TRAIN",), folder, ("val", "test"), origins)
    assert len(text) == 2 * 3916
    j.assert_untouched(text, real, names)
    tested = sick.triple_samples(table[table["split"] == "test"], origins.captions, rows)
    with pytest.raises(ValueError, match="an image of the judgments"):
        j.assert_untouched(tested, real, names)
    test_images = set(flickr8k.read_splits(real_data / "flickr8k")["test"])
    assert not {names[i] for i in samples.image} & test_images
    assert np.mean(sick.text_text(tuple(sick.SETS), folder).label) == pytest.approx(4121 / 19680)
