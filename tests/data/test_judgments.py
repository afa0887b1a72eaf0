"""The crowd's judgments: reading, the guard of training, and the real file."""

import csv

import numpy as np
import pytest
from sklearn.metrics import (
    average_precision_score,
    precision_recall_fscore_support,
    roc_auc_score,
)

from mmlib.core.entailment_pairs import Samples
from mmlib.core.errors import DataError
from mmlib.data import flickr8k
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


def test_own_captions_and_ties_are_left_out(judged):
    assert j.decided(judged).tolist() == [1, 2, 3, 5, 6, 7, 8, 9, 10]


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
    ("line", "message"),
    [
        (f"{TRAIN[0]}\t{TEST[0]}#2\t0\t0\t3\n", "no test image, or no such caption"),
        (f"{TEST[0]}\t{VAL[0]}#2\t0\t0\t3\n", "no test image"),
    ],
)
def test_a_pair_outside_the_test_split_is_refused(tmp_path, line, message):
    folder = write(tmp_path / "flickr8k", VOTES)
    (folder / "Flickr8k_text" / "CrowdFlowerAnnotations.txt").write_text(line)
    with pytest.raises(DataError, match=message):
        j.load(folder)


def test_judgments_name_captions_by_their_number(tmp_path):
    folder = write(tmp_path / "flickr8k", VOTES)
    (folder / "captions.txt").unlink()
    lines = [f"{name}#{k}\t{caption(name, k)}\n" for name in NAMES for k in (4, 0, 3, 1, 2)]
    (folder / "Flickr8k.token.txt").write_text("".join(lines))
    judged = j.load(folder)
    assert judged.hypothesis == tuple(caption(origin, 2) for origin in judged.origin)
    assert judged.premise[0] == tuple(caption(TEST[0], k) for k in (0, 1, 3, 4))
    (folder / "Flickr8k.token.txt").write_text("".join(lines[:12] + lines[13:]))
    with pytest.raises(DataError, match=r"4 captions of 1002_ab\.jpg instead of 5"):
        j.load(folder)


def test_an_image_of_two_splits_spoils_the_judgments(tmp_path):
    folder = write(tmp_path / "flickr8k", VOTES)
    (folder / "Flickr8k_text" / flickr8k.LISTS["train"]).write_text(f"{NAMES[0]}\n{TEST[0]}\n")
    with pytest.raises(DataError, match=f"{TEST[0]} is in the split train too"):
        j.load(folder)


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


def test_a_judged_image_in_training_is_found(judged):
    with pytest.raises(ValueError, match=r"shows 1002_ab\.jpg, an image of the judgments"):
        j.assert_untouched(training(image=1), judged, TABLE)


def test_every_judged_pair_is_caught(judged):
    samples = judged.samples({name: i for i, name in enumerate(TEST)})
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


# Real data ----------------------------------------------------------------------------------------


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


@pytest.mark.real
def test_the_real_parts(real, real_data):
    cross = real.take(real.cross)
    sizes = [(len(half), int(half.label.sum())) for half in j.parts(cross)]
    assert sizes == [(9482, 375), (37093, 1610)]
    with pytest.raises(DataError, match="CrowdFlowerAnnotations"):
        j.load(real_data / "sick")


def best_threshold(label, score):
    """The score from which yes gives the best F0.5, by trying each."""
    order = np.argsort(-score)
    hits, result = np.cumsum(label[order]), np.arange(1, len(order) + 1)
    f05 = 1.25 * hits / (0.25 * label.sum() + result)
    last = np.append(score[order][1:] != score[order][:-1], True)  # ties are called together
    return score[order][np.argmax(np.where(last, f05, -1))]


@pytest.mark.real
def test_the_real_anchor(real, real_data):
    folder = real_data / "flickr8k"
    captions = flickr8k.read_captions(folder)
    weights = Weights([captions[name] for name in flickr8k.read_split("train", folder)])
    shares = np.array(
        [
            overlap_parts(premise, hypothesis, weights)
            for premise, hypothesis in zip(real.premise, real.hypothesis, strict=True)
        ]
    )
    score = shares.sum(1)
    rows = j.decided(real)
    areas = [roc_auc_score(real.label[rows], column[rows]) for column in (*shares.T, score)]
    assert np.round(areas, 3).tolist() == [0.827, 0.831, 0.838]
    assert round(average_precision_score(real.label[rows], score[rows]), 2) == 0.32
    # The specification's precision, recall and F0.5 are those of the share alone.
    held, label = real.calibration[rows], real.label[rows]
    for values, expected in ((shares[:, 0], [0.475, 0.216, 0.383]), (score, [0.486, 0.255, 0.411])):
        values, truth = values[rows], label[~held]
        predicted = values[~held] >= best_threshold(label[held], values[held])
        result = precision_recall_fscore_support(truth, predicted, beta=0.5, average="binary")
        assert np.round(np.array(result[:3], dtype=float), 3).tolist() == expected
