"""Judgments of the crowd, SICK and SNLI-VE: reading, samples, the guard of training, real files."""

import json
from collections import defaultdict
from contextlib import nullcontext

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score
from test_flickr8k import make

from mmlib.core.records import Samples
from mmlib.data import flickr8k, sick, snli_ve
from mmlib.data import judgments as j
from mmlib.data.overlap import Weights, overlap_parts, stems

NAMES = tuple(f"10{i:02}_ab.jpg" for i in range(12))
TRAIN, VAL, TEST = NAMES[:1], NAMES[1:2], NAMES[2:]


def caption(name, k):
    return f"Photo {name[2:4]}, view {k} ."


def write(folder, votes):
    """Twelve images; votes: (image, origin, yes, no) by number of the test image."""
    make(folder, names=NAMES, splits=dict(train=TRAIN, val=VAL, test=TEST[::-1]), caption=caption)
    (folder / "Flickr8k_text/CrowdFlowerAnnotations.txt").write_text(
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


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    return j.load(write(tmp_path_factory.mktemp("data") / "flickr8k", VOTES))


def test_pairs_are_read_with_the_captions_of_their_image(judged):
    assert len(judged) == 11
    assert (judged["image"][1], judged["caption_image"][1]) == (TEST[0], TEST[1])
    assert judged["hypothesis"][1] == caption(TEST[1], 2)
    assert judged["premise"][1] == tuple(caption(TEST[0], k) for k in range(5))
    assert judged["premise"][0] == tuple(caption(TEST[0], k) for k in (0, 1, 3, 4))  # not its own
    assert judged["label"].tolist() == [1, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0]
    assert np.flatnonzero(~judged["cross"]).tolist() == [0]
    # Every fifth image by name calibrates.
    assert set(judged["image"][judged["calibration"]]) == {TEST[0], TEST[5]}
    assert not set(judged["image"][~judged["calibration"]]) & {TEST[0], TEST[5]}
    decided = [1, 2, 3, 5, 6, 7, 8, 9, 10]  # not its own, nor the tie
    assert j.decided(judged).index.tolist() == decided
    few, weights = j.sampled(judged, 3)
    assert few.index[few["label"] == 1].tolist() == [1, 5, 8]
    assert (len(few), weights.sum()) == (6, 9)
    assert weights[few["label"] == 0].tolist() == [2] * 3
    assert j.sampled(judged, 99)[0].index.tolist() == decided


def test_as_test_samples(judged):
    rows = {name: i for i, name in enumerate(TEST)}
    samples = j.samples(judged, rows)
    assert samples.kind == ("mme",) * 11
    assert samples.premise[1] == " ".join(caption(TEST[0], k) for k in range(5))
    assert samples.image[5] == 1
    assert samples.label.tolist() == judged["label"].tolist()
    assert samples.group == tuple(judged["image"])
    with pytest.raises(ValueError, match="the image table has no row for 1002_ab"):
        j.samples(judged, {})


# The guard ---------------------------------------------------------------------------------------


TABLE = (TRAIN[0], TEST[0], TEST[7])  # the image table of these samples


MERGED = " ".join(caption(TEST[0], k) for k in range(5))


@pytest.mark.parametrize(
    ("premise", "hypothesis", "image", "message"),
    [
        ("", "Something else", 0, ""),
        ("", caption(TEST[1], 2), 0, ""),  # another image
        ("", "Something else", 2, ""),  # a test image that nobody judged
        ("A text", "Something else", -1, ""),
        ("", caption(TEST[1], 2), 1, "is the judged pair of 1002_ab.jpg"),
        ("Some text", "photo 03 VIEW 2", 1, "is the judged pair of 1002_ab.jpg"),
        (MERGED, caption(TEST[3], 2), -1, "is the judged pair of 'Photo 02"),
        (caption(TEST[0], 4), caption(TEST[3], 2), -1, "is the judged pair of 'Photo 02"),
        ("", "Something else", 1, r"shows 1002_ab\.jpg, an image of the judgments"),
    ],
)
def test_a_judged_pair_in_training_is_found(judged, premise, hypothesis, image, message):
    # After a sound sample.
    samples = Samples(
        ("A text", premise), ("Another", hypothesis), np.array([-1, image]), np.array([0, 1]),
        ("te", "te" if image < 0 else "mme" if premise else "ve"), ("toy", "toy"), ("a", "b"),
    )  # fmt: skip
    refusal = pytest.raises(ValueError, match=rf"sample 1 \(toy\) {message}.*are for tests only")
    with refusal if message else nullcontext():
        j.assert_untouched(samples, judged, TABLE)


def test_every_judged_pair_is_caught(judged):
    samples = j.samples(judged, {name: i for i, name in enumerate(TEST)})
    for row in range(len(judged)):
        with pytest.raises(ValueError, match="judged pairs are for tests only"):
            j.assert_untouched(samples.take([row]), judged, TEST)


# The anchor that learns nothing -------------------------------------------------------------------


def test_overlap_by_hand():
    assert stems("The dogs, jumping on a bus!") == {"dog", "jump", "bus"}
    for premise, hypothesis, parts in (
        (["A dog runs", "Two dogs"], "a dog sleeps", (1 / 2, 1 / 3)),
        (["A red dog"], "A dog", (1, 1 / 2)),
        (["A dog", "A cat"], "dog and cat", (1, 1 / 2)),
        (["A dog"], "is the", (0, 0)),
        ([], "a dog", (0, 0)),
    ):
        alike = defaultdict(lambda: 1.0)
        assert overlap_parts(premise, hypothesis, alike) == pytest.approx(parts)


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
    (folder / "SICK.txt").write_text(text, newline="", encoding="utf-8-sig")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_sick(tmp_path_factory.mktemp("data") / "sick")


@pytest.fixture(scope="module")
def origins(tmp_path_factory):
    return sick.Origins(write(tmp_path_factory.mktemp("data") / "flickr8k", []))


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
    # Pairs of other splits' images are left out in both directions.
    for leave_out, absent, size in ((("test",), ("02",), 6), (("val", "test"), ("01", "02"), 4)):
        few = sick.text_text(folder=folder, leave_out=leave_out, origins=origins)
        assert len(few) == size
        assert not any(name in text for name in absent for text in few.premise + few.hypothesis)
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


def test_what_is_close_to_its_original():
    for sentence, original, close in (
        ("A dog is running", "a dog running .", True),
        ("a b c", "a b c d e", True),  # 3 of 5
        ("a b c", "a b c d e f", False),
        ("A dog isn't running", "A dog is running", False),
        ("A dog is running without a man", "A dog is running with a man", False),
        ("A man without a hat", "A man without hat", True),  # the negation was there
    ):
        assert sick.is_close(sentence, original) == close


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
        (folder / f"snli_ve_{split}.jsonl").write_text(text, encoding="utf-8-sig")
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
    table, rows = snli_ve.read("train", save_snli(tmp_path)), {"1003.jpg": 4, "555.jpg": 0}
    captions = {"1003.jpg": ["One.", "Two."], "555.jpg": ["Three."]}
    samples = snli_ve.samples(table, rows, captions)
    assert samples.kind == ("ve",) * 3 + ("mme",) * 3
    assert samples.premise == ("",) * 3 + ("One. Two.", "One. Two.", "Three.")
    assert samples.image.tolist() == [4, 4, 0] * 2
    assert samples.label.tolist() == [1, 0, 0] * 2
    assert samples.group[3:] == ("1003.jpg", "1003.jpg", "555.jpg")


# What is refused ---------------------------------------------------------------------------------


def judgments_with(name, text):
    def load(folder):
        write(folder / "flickr8k", VOTES)
        (folder / "flickr8k/Flickr8k_text" / name).write_text(text)
        return j.load(folder / "flickr8k")

    return load


def sick_with(column, value):
    row = [*LINES[1][:column], value, *LINES[1][column + 1 :]]
    return lambda folder: sick.read(save_sick(folder, [LINES[0], row]))


def snli_with(*lines):
    def load(folder):
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        (folder / "snli_ve_train.jsonl").write_text("\n".join(texts))
        return snli_ve.read("train", folder)

    return load


def triples_without_images(folder):
    origins = sick.Origins(write(folder / "flickr8k", []))
    table = sick.triples(save_sick(folder / "sick"), origins)
    return sick.triple_samples(table, origins.captions, {})


CROWD, ONE = "CrowdFlowerAnnotations.txt", record("1")


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (judgments_with(CROWD, f"{TRAIN[0]}\t{TEST[0]}#2\t0\t0\t3\n"), "no test image, or no"),
        (judgments_with(CROWD, f"{TEST[0]}\t{VAL[0]}#2\t0\t0\t3\n"), "no test image"),
        (judgments_with(CROWD, "a b#2 1 1 0\n"), "1 lines, none well-formed"),
        (judgments_with(flickr8k.LISTS["train"], f"{NAMES[0]}\n{TEST[0]}\n"),
         f"{TEST[0]} is in the split train"),
        (sick_with(5, "B_entails_A"), r"SICK\.txt, line 3: entailment_AB is 'B_ent.*get sick"),
        (sick_with(11, "DEV"), "line 3: SemEval_set is 'DEV'"),
        (sick_with(4, "6"), "line 3: relatedness_score is '6'"),
        (sick_with(1, " "), "line 3: sentence_A is ' '"),
        (sick_with(1, "A\0dog"), "line 3: bytes that are not UTF-8, or 0"),
        (sick_with(0, 1), "line 3: pair_ID 1 stands in line 2 too"),
        (lambda folder: sick.text_text(("DEV",), folder), "no set 'DEV'"),
        (triples_without_images, "the image table has no row"),
        (snli_with(ONE, "{"), r"snli_ve_train\.jsonl, line 2: cannot be used: Exp.*necla-ml/SNLI"),
        (snli_with(ONE, "[1]"), "line 2: cannot be used: it holds no fields"),
        (snli_with(ONE, record("x")), "line 2: .*Flickr30K_ID is 'x', not a number"),
        (snli_with({"gold_label": "neutral"}), "line 1: .*Flickr30K_ID is '', not a number"),
        (snli_with(record("1", "-")), "line 1: .*gold_label is '-'"),
        (snli_with(record("1", sentence2=" ")), "line 1: .*the hypothesis is ' '"),
        (snli_with(record("1", sentence1=None)), "line 1: .*the caption is None"),
        (snli_with("\n"), "has no lines"),
        (lambda folder: snli_ve.read("train", folder), "is missing"),
        (lambda folder: snli_ve.read("val", folder), "no split 'val'"),
    ],
)  # fmt: skip
def test_what_is_damaged_or_missing_is_named(tmp_path, load, message):
    with pytest.raises(ValueError, match=message):
        load(tmp_path)


# Real data ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(real_data):
    return j.load(real_data / "flickr8k")


@pytest.mark.real
def test_the_real_figures_are_those_of_the_specification(real):
    votes, cross, decided = real["yes"] + real["no"], real[real["cross"]], j.decided(real)
    assert real[["image", "caption_image", "caption"]].nunique().tolist() == [991, 1000, 1]
    assert (len(real), votes.sum(), real["label"].sum()) == (47288, 143214, 2678)
    assert (len(cross), cross["label"].sum()) == (46575, 2678 - 693)
    assert (len(decided), decided["label"].sum()) == (46548, 1985)
    assert np.bincount(votes).tolist() == [0, 0, 0, 46258, 760, 220, 50]
    sizes = cross.groupby("calibration")["label"].agg(["size", "sum"])
    assert sizes.to_numpy().tolist() == [[37093, 1610], [9482, 375]]


@pytest.mark.real
def test_the_real_anchor(real, real_data):
    folder = real_data / "flickr8k"
    captions = flickr8k.read_captions(folder)
    weights = Weights([captions[name] for name in flickr8k.read_splits(folder)["train"]])
    rows = j.decided(real)
    pairs = zip(rows["premise"], rows["hypothesis"], strict=True)
    share, best = np.array([overlap_parts(*pair, weights) for pair in pairs]).T
    areas = [roc_auc_score(rows["label"], column) for column in (share, best, share + best)]
    assert np.round(areas, 3).tolist() == [0.827, 0.831, 0.838]
    assert round(average_precision_score(rows["label"], share + best), 2) == 0.32


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
