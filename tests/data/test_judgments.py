"""The crowd's judgments: reading, protocols, the guard of training, and the real file's figures."""

import csv
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import (
    average_precision_score,
    fbeta_score,
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
    assert np.flatnonzero(judged.tie).tolist() == [4]
    assert np.flatnonzero(~judged.cross).tolist() == [0]


def test_every_fifth_image_by_name_calibrates(judged):
    held, others = j.parts(judged)
    assert set(held.image) == {TEST[0], TEST[5]}
    assert not set(held.image) & set(others.image)
    assert len(held) + len(others) == 11
    held, others = j.parts(judged, strict=True)
    assert set(held.origin) | set(held.image) <= {TEST[0], TEST[5]}
    assert not {TEST[0], TEST[5]} & (set(others.image) | set(others.origin))
    assert len(others) == 2  # (1, 2), (1, 3); the caption of 5 and of 0 are on the other side


def test_the_protocols_hold_what_they_say(judged):
    assert j.protocol("CF-all", judged).tolist() == [1, 2, 3, 5, 6, 7, 8, 9, 10]
    assert j.protocol("CF-unanimous", judged).tolist() == [2, 5, 6, 7, 8, 9]
    balanced = j.protocol("CF-balanced", judged, seed=3)
    assert judged.label[balanced].tolist().count(1) == 3
    assert len(set(balanced)) == 6
    assert not set(balanced) & {0, 4}
    assert balanced.tolist() == j.protocol("CF-balanced", judged, seed=3).tolist()
    draws = {tuple(j.protocol("CF-balanced", judged, seed=seed)) for seed in range(9)}
    assert len(draws) > 1
    scores = np.array([0, 9, 1, 2, 8, 9, 5, 6, 9, 99, 99.0])
    hard = j.protocol("CF-hard", judged, scores=scores)
    assert hard.tolist() == [1, 3, 5, 6, 7, 8]  # one no of image 0, both of image 1, none of 2, 5


def test_what_a_protocol_refuses(judged):
    with pytest.raises(ValueError, match="no protocol 'CF'"):
        j.protocol("CF", judged)
    for scores in (None, np.zeros(3)):
        with pytest.raises(ValueError, match="CF-hard needs a retrieval model's score"):
            j.protocol("CF-hard", judged, scores=scores)


def test_ranking_of_each_image(judged):
    table = j.ranking(judged, np.array([9, 1, 2, 3, 9, 2, 2, 1, 0, 0, 0.0]))
    assert table.index.tolist() == [TEST[0], TEST[1]]  # the others have no yes
    assert table["average_precision"].tolist() == pytest.approx([1 / 3, 1 / 2])
    assert table["precision_at_1"].tolist() == [0, 0.5]  # a tie of yes and no
    assert table["prevalence"].tolist() == pytest.approx([1 / 3, 1 / 2])


def test_as_test_samples(judged):
    rows = {name: i for i, name in enumerate(TEST)}
    samples = judged.samples(rows)
    assert samples.kind == ("mme",) * 11
    assert samples.premise[1] == " ".join(caption(TEST[0], k) for k in range(5))
    assert samples.image[5] == 1
    assert samples.label.tolist() == judged.label.tolist()
    assert samples.group == judged.image
    assert set(judged.samples(rows, "ve").premise) == {""}
    assert set(judged.samples({}, "te").image) == {-1}
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
            j.assert_untouched(samples, judged, TABLE, whole_images=False)


def test_a_judged_pair_is_found_without_its_image(judged):
    merged = " ".join(caption(TEST[0], k) for k in range(5))
    for premise in (merged, caption(TEST[0], 4)):
        with pytest.raises(ValueError, match=r"sample 1 .* is the judged pair of 'Photo 02"):
            j.assert_untouched(training(premise, caption(TEST[3], 2), -1, "te"), judged, ())


def test_a_judged_image_in_training_is_found_unless_allowed(judged):
    with pytest.raises(ValueError, match=r"shows 1002_ab\.jpg, an image of the judgments"):
        j.assert_untouched(training(image=1), judged, TABLE)
    j.assert_untouched(training(image=1), judged, TABLE, whole_images=False)


def test_every_judged_pair_is_caught_whatever_its_kind(judged):
    rows = {name: i for i, name in enumerate(TEST)}
    for kind in ("ve", "mme", "te"):
        samples = judged.samples(rows, kind)
        for row in range(len(judged)):
            with pytest.raises(ValueError, match="judged pairs are for tests only"):
                j.assert_untouched(samples.take([row]), judged, TEST, whole_images=False)


# Figures -----------------------------------------------------------------------------------------


def test_figures_by_hand(judged):
    found = j.figures(judged)
    assert (found["own pairs"], found["cross pairs"], found["cross pairs, ties"]) == (1, 10, 1)
    assert (found["most foreign yes of an image"], found["of judged"]) == (2, 4)
    assert (found["both ways"], found["both ways, yes and yes"]) == (2, 1)
    assert found["both ways, no and no"] == 1


def test_agreement_against_all_pairs_of_votes(judged):
    three = judged.take(judged.yes + judged.no == 3)
    votes = [[1] * y + [0] * n for y, n in zip(three.yes, three.no, strict=True)]
    agree = [a == b for v in votes for i, a in enumerate(v) for b in v[i + 1 :]]
    found = j.agreement(judged)
    assert found["observed"] == pytest.approx(np.mean(agree))
    share = np.mean(votes)
    chance = share**2 + (1 - share) ** 2
    assert found["fleiss_kappa"] == pytest.approx((np.mean(agree) - chance) / (1 - chance))


def test_one_voter_against_two_who_agree(judged):
    truth, said = [], []
    for y, n in zip(judged.yes, judged.no, strict=True):
        votes = [1] * y + [0] * n
        for i in range(3 if y + n == 3 else 0):
            others = votes[:i] + votes[i + 1 :]
            if others[0] == others[1]:
                truth.append(others[0])
                said.append(votes[i])
    found = j.one_voter(judged)
    assert found["one voter: f05"] == pytest.approx(fbeta_score(truth, said, beta=0.5))


def test_shared_captions():
    captions = {"a": ["A dog .", "x"], "b": ["a dog", "A dog!"], "c": ["X", "y"], "d": ["z"]}
    assert j.shared_captions(captions) == {"a dog": ("a", "b"), "x": ("a", "c")}


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
    found = {name: round(value, 3) for name, value in j.figures(real).items()}
    assert found == {
        "pairs": 47288, "votes": 143214, "yes": 2678, "images": 991, "captions": 1000,
        "own pairs": 713, "own pairs, yes": 693, "own pairs, no": 20,
        "cross pairs": 46575, "cross pairs, yes": 1985, "cross pairs, ties": 27,
        "cross pairs, no": 44563, "cross pairs, unanimous yes": 759,
        "cross pairs, unanimous no": 41482,
        "images with a foreign yes": 659, "most foreign yes of an image": 14, "of judged": 69,
        "captions with a foreign yes": 549, "most foreign images of a caption": 21,
        "of judged images": 93,
        "all: observed": 0.938, "all: fleiss_kappa": 0.514, "all: free_kappa": 0.875,
        "cross: observed": 0.939, "cross: fleiss_kappa": 0.422, "cross: free_kappa": 0.878,
        "one voter: precision": 0.433, "one voter: recall": 0.652, "one voter: f05": 0.464,
        "one voter, half positive: precision": 0.965, "one voter, half positive: f05": 0.880,
        "both ways": 4468, "both ways, yes and yes": 180, "both ways, yes and no": 626,
        "both ways, no and no": 3662,
    }  # fmt: skip
    votes = np.bincount(real.yes + real.no)
    assert votes.tolist() == [0, 0, 0, 46258, 760, 220, 50]
    sizes = np.unique(np.array(real.image), return_counts=True)[1]
    assert (sizes.min(), sizes.max(), np.median(sizes)) == (10, 120, 50)
    assert round(sizes.mean(), 1) == 47.7


@pytest.mark.real
def test_the_real_parts(real, real_data):
    cross = real.take(real.cross)
    sizes = [(len(p), int(p.label.sum())) for p in (*j.parts(cross), *j.parts(cross, strict=True))]
    assert sizes == [(9482, 375), (37093, 1610), (1875, 65), (29868, 1355)]
    with pytest.raises(DataError, match="CrowdFlowerAnnotations"):
        j.load(real_data / "sick")


@pytest.mark.real
def test_real_captions_under_several_images(real_data):
    captions = flickr8k.read_captions(real_data / "flickr8k")
    shared = j.shared_captions(captions)
    assert len(shared) == 230
    assert len(shared["a dog runs through the grass"]) == 7
    train = flickr8k.read_split("train", real_data / "flickr8k")
    shared = j.shared_captions({name: captions[name] for name in train})
    images = {name for names in shared.values() for name in names}
    pairs = sum(len(names) * (len(names) - 1) for names in shared.values())
    assert (len(shared), len(images), pairs) == (143, 302, 544)


def best_threshold(label, score):
    """The score from which yes gives the best F0.5, by trying each."""
    order = np.argsort(-score)
    hits, found = np.cumsum(label[order]), np.arange(1, len(order) + 1)
    f05 = 1.25 * hits / (0.25 * label.sum() + found)
    last = np.append(score[order][1:] != score[order][:-1], True)  # ties are called together
    return score[order][np.argmax(np.where(last, f05, -1))]


@pytest.mark.real
def test_the_real_anchor(real, real_data):
    folder = real_data / "flickr8k"
    captions = flickr8k.read_captions(folder)
    weights = Weights([captions[name] for name in flickr8k.read_split("train", folder)])
    parts = np.array(
        [
            overlap_parts(premise, hypothesis, weights)
            for premise, hypothesis in zip(real.premise, real.hypothesis, strict=True)
        ]
    )
    score = parts.sum(1)
    rows, unanimous = j.protocol("CF-all", real), j.protocol("CF-unanimous", real)
    areas = [roc_auc_score(real.label[rows], column[rows]) for column in (*parts.T, score)]
    areas.append(roc_auc_score(real.label[unanimous], score[unanimous]))
    assert np.round(areas, 3).tolist() == [0.827, 0.831, 0.838, 0.890]
    assert round(average_precision_score(real.label[rows], score[rows]), 2) == 0.32
    hard = j.protocol("CF-hard", real, scores=score)
    assert round(roc_auc_score(real.label[hard], score[hard]), 3) == 0.417
    table = j.ranking(real, score)
    assert len(table) == 659
    assert round(table["prevalence"].mean(), 3) == 0.063
    assert round(table["average_precision"].mean(), 3) == 0.463
    # The specification has 0.481, one image of the 659 more: we could not find which.
    assert round(table["precision_at_1"].mean(), 3) == 0.480
    # On CF-all the specification's precision, recall and F0.5 are those of the share alone.
    held, label = real.calibration[rows], real.label[rows]
    for values, expected in ((parts[:, 0], [0.475, 0.216, 0.383]), (score, [0.486, 0.255, 0.411])):
        values = values[rows]
        said = values[~held] >= best_threshold(label[held], values[held])
        found = precision_recall_fscore_support(label[~held], said, beta=0.5, average="binary")
        assert np.round(np.array(found[:3], dtype=float), 3).tolist() == expected
    held = real.calibration
    for seed in range(5):
        tests = []
        for side in (held, ~held):
            part, values = real.take(side), score[side]
            chosen = j.protocol("CF-balanced", part, seed)
            tests.append((part.label[chosen], values[chosen]))
        (label, values), (truth, others) = tests
        f05 = fbeta_score(truth, others >= best_threshold(label, values), beta=0.5)
        assert 0.755 <= f05 < 0.795  # 0.76 to 0.79


def test_a_judged_record_with_unequal_columns_is_refused(judged):
    with pytest.raises(ValueError, match="the columns differ in length"):
        replace(judged, yes=judged.yes[1:])
