"""The classifier's study: its data, the guard of its training set, trainings, and every figure.

Oracles are loops, scikit-learn, and files written here by hand. A small Flickr8k and SICK are
written once, so that the guard of the judged pairs is tested where the real sets are not.
"""

import csv
import json
import math
import re
from collections import Counter
from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import load_file, load_model
from scipy import stats
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    fbeta_score,
    precision_score,
    recall_score,
    roc_auc_score,
)
from test_bert import tiny_model, tiny_tokenizer
from test_sick import pair

from mmlib import entailment_study as es
from mmlib import revision_study, training
from mmlib.core.entailment_pairs import Samples, joined
from mmlib.core.errors import DataError
from mmlib.core.tables import paper_values
from mmlib.data import flickr8k, judgments, sick
from mmlib.entailment import Settings
from mmlib.entailment_batches import Words, encode
from mmlib.revision_study import Collection, Start
from mmlib.training import job_path, seed_everything

near = pytest.approx
few = settings(max_examples=40, deadline=None)


def plain(text):
    return " ".join(re.findall(r"[a-z0-9]+", text.lower()))


# --- A small Flickr8k and SICK -------------------------------------------------------------------

SIZES = {"train": 8, "val": 8, "test": 12}
NAMES = {
    split: [f"{k}{i:03}_ab.jpg" for i in range(n)]
    for k, (split, n) in enumerate(SIZES.items(), start=1)
}
EVERY_NAME = [name for names in NAMES.values() for name in names]
THINGS = "dog cat boy girl horse ball tree bench river truck hat kite bird snow sand".split()
DOES = "runs sleeps jumps swims waits climbs sings turns".split()


def captions_of(name):
    rng = np.random.default_rng(int(name[:4]))
    return [
        f"A {rng.choice(THINGS)} {rng.choice(DOES)} near the {rng.choice(THINGS)} "
        f"with a {rng.choice(THINGS)} {int(name[:4])} {k} ."
        for k in range(5)
    ]


CAPTIONS = {name: captions_of(name) for name in EVERY_NAME}


def votes():
    """(image, origin, yes, no) by number of the test image: three voters, ties, own captions."""
    rng = np.random.default_rng(5)
    rows = []
    for a in range(12):
        for b in rng.permutation(12)[:9]:
            yes = int(rng.choice([3, 2, 1] if a == b else [0, 0, 0, 1, 2, 3]))
            rows.append((a, int(b), *((2, 2) if rng.random() < 0.06 else (yes, 3 - yes))))
    return rows


VOTES = votes()
FIRST, FOURTH = CAPTIONS[NAMES["train"][0]][1], CAPTIONS[NAMES["train"][3]][0]
OF_VAL, OF_TEST = CAPTIONS[NAMES["val"][4]][2], CAPTIONS[NAMES["test"][1]][0]
LINES = [
    pair(1, FIRST, "A thing runs", originals=(FIRST, "")),
    pair(2, OF_VAL, "A thing waits", originals=(OF_VAL, "")),
    pair(3, OF_TEST, "A thing swims", "neutral", originals=(OF_TEST, "")),
    pair(4, "A man eats", "A man is eating", "entails", "entails"),
    pair(5, "A man cooks", "Nobody cooks", "contradicts", "contradicts", part="TEST"),
    pair(6, FOURTH, "No thing", "contradicts", originals=(FOURTH, ""), part="TEST"),
    pair(7, "A man sits", "A person sits", part="TRIAL"),
]


def write(root, lines=LINES, lists=NAMES):
    """Flickr8k and SICK in a data folder; all pictures of one size and a colour each."""
    folder, text = root / "flickr8k", root / "flickr8k/Flickr8k_text"
    for sub in (folder / "Images", folder / "features", text, root / "sick"):
        sub.mkdir(parents=True)
    for i, name in enumerate(EVERY_NAME):
        Image.new("RGB", (8, 8), (8 * i, 0, 0)).save(folder / "Images" / name)
    with (folder / "captions.txt").open("w", newline="") as file:
        rows = [(name, text) for name in EVERY_NAME for text in CAPTIONS[name]]
        csv.writer(file).writerows([("image", "caption"), *rows])
    for split, names in lists.items():
        (text / flickr8k.LISTS[split]).write_text("\n".join(names) + "\n")
    test = NAMES["test"]
    (text / "CrowdFlowerAnnotations.txt").write_text(
        "".join(f"{test[a]}\t{test[b]}#2\t{y / (y + n):.12g}\t{y}\t{n}\n" for a, b, y, n in VOTES)
    )
    features = np.random.default_rng(0).normal(size=(len(EVERY_NAME), 4, 3))
    np.save(folder / f"features/{flickr8k.SHARED_FEATURES}.npy", 3 * features + 1)
    (folder / "features/ids.txt").write_text("\n".join(EVERY_NAME))
    table = "".join("\t".join(map(str, row)) + "\r\n" for row in [list(sick.COLUMNS), *lines])
    (root / "sick/SICK.txt").write_text(table, newline="")
    return root


FLICKR = replace(es.BUDGETS["flickr8k"], images=0)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return write(tmp_path_factory.mktemp("data"))


@pytest.fixture
def folder(root, monkeypatch):
    monkeypatch.setenv("MMLIB_DATA", str(root))
    return root


@pytest.fixture(scope="module")
def flickr(root):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MMLIB_DATA", str(root))
        return es.flickr8k_data(FLICKR)


@pytest.fixture(scope="module")
def judged(root):
    return judgments.load(root / "flickr8k")


# --- Caption pairs -------------------------------------------------------------------------------


def overlap_loop(premise, hypothesis, documents):
    """Our anchor, word by word: weighted share of the hypothesis said, plus the best Jaccard."""
    stop = "a an the and of in on at to with by for from as while is are his her its their that"
    stop = {*stop.split(), "there"}

    def stems(text):
        found = set()
        for word in re.findall(r"[a-z0-9]+", text.lower()):
            if word not in stop:
                for ending in ("ing", "ed", "es", "s"):
                    if word.endswith(ending) and len(word) - len(ending) >= 3:
                        word = word[: -len(ending)]
                        break
                found.add(word)
        return found

    held = [set().union(*map(stems, texts)) for texts in documents]

    def weight(some):
        n = len(held)
        return math.fsum(math.log((n + 1) / (sum(s in one for one in held) + 1)) + 1 for s in some)

    wanted, said = stems(hypothesis), [stems(text) for text in premise]
    share = weight(wanted & set().union(*said)) / weight(wanted)
    return share + max(weight(wanted & one) / weight(wanted | one) for one in said)  # fmt: skip


SMALL = [
    ["A dog runs", "A brown dog outside", "Dogs!"],
    ["a DOG runs .", "A cat sleeps", "Two cats and a mat"],  # the first is image 0's own, too
    ["A bird sings", "A dog and a bird", "A brown bird outside"],
    ["Left out", "Never used", "Not a training image"],
]
SOURCES = ("own caption", "random caption", "hard caption")


@pytest.mark.parametrize("seed", range(6))
def test_caption_pairs_are_what_they_say(seed):
    """Three images of three captions: among 50 draws are all captions that may be drawn."""
    rows = np.array([0, 1, 2])
    samples, known = es.caption_pairs(SMALL, rows, seed)
    assert len(samples) == 2 * 3 * 3
    assert samples.kind == ("mme",) * 9 + ("ve",) * 9
    assert samples.source == SOURCES * 6
    assert samples.label.tolist() == [1, 0, 0] * 6
    assert samples.image.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2] * 2
    assert samples.group == tuple(str(i) for i in samples.image)
    assert samples.hypothesis[:9] == samples.hypothesis[9:]
    assert samples.premise[9:] == ("",) * 9
    for i in range(3):
        own, random, hard = samples.hypothesis[3 * i : 3 * i + 3]
        rest = [text for text in SMALL[i] if text != own]
        assert own in SMALL[i]
        assert len(rest) == 2  # its own caption is not in its premise
        assert samples.premise[3 * i] == " ".join(rest)
        assert samples.premise[3 * i + 1] == samples.premise[3 * i + 2] == " ".join(SMALL[i])
        said = {plain(text) for text in SMALL[i]}
        others = [t for j in range(3) if j != i for t in SMALL[j] if plain(t) not in said]
        assert {random, hard} <= set(others)
        found = [overlap_loop(SMALL[i], text, SMALL[:3]) for text in others]
        assert overlap_loop(SMALL[i], hard, SMALL[:3]) == near(max(found))
        for at, texts in ((3 * i, rest), (3 * i + 1, SMALL[i]), (3 * i + 2, SMALL[i])):
            assert known[samples.premise[at]] == tuple(texts)
    assert len(known) == 6


@pytest.mark.parametrize("rows", [[0], [0, 1]])
def test_caption_pairs_without_a_negative_are_refused(rows):
    alike = [["a dog", "a cat"], ["A dog.", "a cat"]]
    with pytest.raises(ValueError, match="image 0: no other image"):
        es.caption_pairs(alike, np.array(rows))


def test_caption_pairs_are_drawn_by_their_seed():
    def drawn(seed):
        return es.caption_pairs(SMALL, np.arange(3), seed)[0].hypothesis

    assert drawn(0) == drawn(0)
    assert len({drawn(seed)[0::3][:3] for seed in range(12)}) > 4  # which own caption
    assert len({drawn(seed)[1::3][:3] for seed in range(12)}) > 4  # which random one


def test_an_own_caption_is_left_out_by_place_not_by_text():
    """Twice the same caption: only one of the two is the hypothesis."""
    twice = [["A dog", "A dog", "A cat"], ["A bird", "A mat", "A hat"]]
    for seed in range(6):
        samples, _ = es.caption_pairs(twice, np.arange(2), seed)
        rest = " ".join(["A dog", "A cat"] if samples.hypothesis[0] == "A dog" else ["A dog"] * 2)
        assert samples.premise[0] == rest


# --- The judged pairs never reach training -------------------------------------------------------


def test_the_training_set_is_free_of_judgments(flickr, judged):
    """By the guard, and by a plain look at every sample."""
    judgments.assert_untouched(flickr.train, judged, flickr.names)
    test = set(NAMES["test"])
    texts = {plain(" ".join(CAPTIONS[name])) for name in test}
    texts |= {plain(text) for name in test for text in CAPTIONS[name]}
    for row in range(len(flickr.train)):
        image = flickr.train.image[row]
        assert image < 0 or flickr.names[image] in NAMES["train"]
        assert plain(flickr.train.premise[row]) not in texts
        assert plain(flickr.train.hypothesis[row]) not in texts
    assert {flickr.names[i] for i in flickr.dev.image} <= set(NAMES["val"])


def planted(kind, row=0):
    """`caption_pairs` with a judged pair behind its own."""
    real = es.caption_pairs

    def pairs(captions, rows, seed=0):
        samples, known = real(captions, rows, seed)
        judged = judgments.load().take([row])
        row_of = {name: i for i, name in enumerate(EVERY_NAME)}
        return joined([samples, judged.samples(row_of, kind)]), known

    return pairs


@pytest.mark.parametrize("row", [0, 40, 107])
@pytest.mark.parametrize("kind", ["te", "ve", "mme"])
def test_a_judged_pair_among_the_caption_pairs_stops_the_study(folder, monkeypatch, kind, row):
    monkeypatch.setattr(es, "caption_pairs", planted(kind, row))
    with pytest.raises(ValueError, match=r"is the judged pair of .* for tests only"):
        es.load("flickr8k", FLICKR)


@pytest.mark.parametrize("what", ["text_text", "triple_samples"])
def test_a_judged_pair_from_sick_stops_the_study(folder, monkeypatch, what):
    real = getattr(sick, what)

    def more(*args, **kwargs):
        kind = "te" if what == "text_text" else "ve"
        row_of = {name: i for i, name in enumerate(EVERY_NAME)}
        return joined([real(*args, **kwargs), judgments.load().take([3]).samples(row_of, kind)])

    monkeypatch.setattr(sick, what, more)
    with pytest.raises(ValueError, match=r"is the judged pair of .* for tests only"):
        es.flickr8k_data(FLICKR)


def test_a_judged_pair_in_sicks_file_stops_the_study(tmp_path, monkeypatch):
    """A line that hides where it is from, so that no split list keeps it out of training."""
    a, b, *_ = next(v for v in VOTES if v[0] != v[1])
    texts = (CAPTIONS[NAMES["test"][a]][4], CAPTIONS[NAMES["test"][b]][2])
    monkeypatch.setenv("MMLIB_DATA", str(write(tmp_path, [*LINES, pair(8, *texts)])))
    with pytest.raises(ValueError, match=r"is the judged pair of 'A .* for tests only"):
        es.flickr8k_data(FLICKR)
    honest = pair(8, *texts, originals=texts)
    monkeypatch.setenv("MMLIB_DATA", str(write(tmp_path / "honest", [*LINES, honest])))
    es.flickr8k_data(FLICKR)  # kept out by its split, and so no reason to stop


def test_a_judged_image_in_the_training_list_stops_the_study(tmp_path, monkeypatch):
    """An image of two splits: its captions would be positives of the very image that is tested."""
    lists = {**NAMES, "train": [*NAMES["train"], NAMES["test"][2]]}
    monkeypatch.setenv("MMLIB_DATA", str(write(tmp_path, lists=lists)))
    with pytest.raises(ValueError, match=rf"{NAMES['test'][2]}.* for tests only"):
        es.flickr8k_data(FLICKR)


def test_a_judged_image_in_training_stops_the_study_whatever_is_said_of_it(folder, monkeypatch):
    real = es.caption_pairs

    def more(captions, rows, seed=0):
        samples, known = real(captions, rows, seed)
        shown = replace(samples.take([-1]), image=np.array([18]), hypothesis=("Nobody judged it",))
        return joined([samples, shown]), known

    monkeypatch.setattr(es, "caption_pairs", more)
    with pytest.raises(ValueError, match=f"shows {EVERY_NAME[18]}, an image of the judgments"):
        es.flickr8k_data(FLICKR)


@pytest.mark.real
def test_the_real_training_set_is_free_of_judgments(real_data, monkeypatch):
    """By a plain look, and by the guard, which sees all of it and finds a pair put there."""
    seen, guard = [], judgments.assert_untouched

    def watched(*args):
        seen.append(args)
        guard(*args)

    monkeypatch.setenv("MMLIB_DATA", str(real_data))
    monkeypatch.setattr(judgments, "assert_untouched", watched)
    monkeypatch.setattr(es, "crowd_test", lambda *args: None)  # slow, and tested below
    data = es.flickr8k_data(replace(FLICKR, images=100))
    judged = judgments.load(real_data / "flickr8k")
    test = set(flickr8k.read_split("test", real_data / "flickr8k"))
    shown = [data.names[i] if i >= 0 else "" for i in data.train.image]
    said = [plain(text) for text in data.train.hypothesis]
    assert not test & set(shown)
    pairs = {(i, plain(h)) for i, h in zip(judged.image, judged.hypothesis, strict=True)}
    assert not pairs & set(zip(shown, said, strict=True))
    captions = flickr8k.read_captions(real_data / "flickr8k")
    texts: dict[str, set] = {}
    for name in test:
        for text in (" ".join(captions[name]), *captions[name]):
            texts.setdefault(plain(text), set()).add(name)
    for premise, hypothesis in zip(map(plain, data.train.premise), said, strict=True):
        assert not any((name, hypothesis) in pairs for name in texts.get(premise, ()))
    kinds = Counter(data.train.kind)
    assert kinds == {"te": 2 * 3916, "ve": 2989 + 300, "mme": 2989 + 300}
    (samples, guarded, names), *others = seen
    assert not others
    assert samples is data.train
    assert names == data.names
    assert len(guarded) == 47288
    row_of = {name: i for i, name in enumerate(names)}
    for kind in ("te", "ve", "mme"):
        with pytest.raises(ValueError, match="for tests only"):
            guard(joined([samples, judged.take([9]).samples(row_of, kind)]), guarded, names)


# --- Flickr8k's data -----------------------------------------------------------------------------


def test_where_flickr8ks_samples_come_from(flickr):
    """Of seven SICK pairs: val's, test's and those of TEST are no text pairs to train on."""
    train = flickr.train
    of = Counter(zip(train.kind, train.source, strict=True))
    assert of == {
        ("te", "SICK TRAIN"): 4, ("ve", "SICK TRAIN"): 1, ("mme", "SICK TRAIN"): 1,
        ("ve", "SICK TEST"): 1, ("mme", "SICK TEST"): 1,
        **{(kind, source): 8 for kind in ("ve", "mme") for source in SOURCES},
    }  # fmt: skip
    assert {train.hypothesis[i] for i in range(len(train)) if train.kind[i] == "te"} == {
        "A thing runs", CAPTIONS[NAMES["train"][0]][1], "A man eats", "A man is eating",
    }  # fmt: skip
    assert set(flickr.tests) == {"crowd", "SICK triples", "SICK, text"}
    assert flickr.tests["SICK triples"].samples.hypothesis == ("A thing swims",)
    assert flickr.tests["SICK, text"].samples.premise == ("A man cooks", "Nobody cooks")
    dev = Counter(flickr.dev.source)
    assert dev == {"SICK TRAIN": 1, **dict.fromkeys(SOURCES, 2)}  # every fourth of eight images
    for own in (flickr.dev, flickr.tests["crowd"].samples, flickr.tests["SICK triples"].samples):
        assert set(own.kind) == {"mme"}
    for name in ("SICK triples", "SICK, text"):
        rows, weights = flickr.tests[name].parts["all"]
        n = len(flickr.tests[name].samples)
        assert (rows.tolist(), weights.tolist()) == (list(range(n)), [1.0] * n)


def test_rows_of_flickr8ks_image_table(flickr, root):
    assert flickr.names == tuple(EVERY_NAME)
    raw = np.load(root / f"flickr8k/features/{flickr8k.SHARED_FEATURES}.npy")
    mean, deviation = raw[:8].mean(axis=(0, 1)), raw[:8].std(axis=(0, 1))
    assert flickr.images == near((raw - mean) / deviation, rel=1e-2, abs=1e-2)
    assert flickr.images.dtype == np.float32
    assert flickr.images[:8].mean(axis=(0, 1)) == near([0, 0, 0], abs=1e-4)
    for row in (0, 7, 8, 15, 16, 27):
        assert flickr.open_image(row).getpixel((3, 3))[0] == near(8 * row, abs=5)
    for samples in (flickr.train, flickr.dev, flickr.tests["crowd"].samples):
        for i in range(len(samples)):
            if samples.kind[i] == "mme":  # the premise is of the image's own captions
                own = CAPTIONS[flickr.names[samples.image[i]]]
                assert set(flickr.merged[samples.premise[i]]) <= set(own)


def test_every_premise_is_known_by_its_captions(flickr):
    for own in (flickr.train, flickr.dev, *(test.samples for test in flickr.tests.values())):
        for premise, kind in zip(own.premise, own.kind, strict=True):
            if kind == "mme":
                assert " ".join(flickr.merged[premise]) == premise
    for name in EVERY_NAME:  # the five captions of every image, for mining
        assert flickr.merged[" ".join(CAPTIONS[name])] == tuple(CAPTIONS[name])


def test_some_training_images_only(folder):
    data = es.load("flickr8k", replace(FLICKR, images=3))
    shown = {
        i for i, s in zip(data.train.image, data.train.source, strict=True) if s in SOURCES
    }  # fmt: skip
    assert len(shown) == 3
    assert es._some(8, 3, 0).tolist() == sorted(shown)
    assert es._some(8, 3, 0).tolist() == es._some(8, 3, 0).tolist()
    assert len({tuple(es._some(8, 3, seed)) for seed in range(9)}) > 3
    assert es._some(8, 8, 0).tolist() == es._some(8, 0, 0).tolist() == list(range(8))


def test_what_load_refuses():
    with pytest.raises(ValueError, match="no tier 'coco'"):
        es.load("coco", FLICKR)
    with pytest.raises(ValueError, match="no budget 'coco'"):
        es.budget("coco")
    assert es.budget("flickr8k", "quick", epochs=7, batch=0).epochs == 7
    assert es.budget("flickr8k", "quick", epochs=7, batch=0).batch == 32


# --- The crowd's test ----------------------------------------------------------------------------

ROW_OF = {name: i for i, name in enumerate(EVERY_NAME)}
TRAINING = [CAPTIONS[name] for name in NAMES["train"]]


def crowd_of(judged, most, monkeypatch, seed=0):
    monkeypatch.setattr(es, "NEGATIVES", most)
    return es.crowd_test(judged, ROW_OF, TRAINING, seed)


def keys(samples, rows):
    """Which pairs these are: image and hypothesis."""
    return [(samples.image[i], samples.hypothesis[i]) for i in rows]


def table_of(judged):
    """(image row, hypothesis) -> yes and no votes, of pairs across images without a tie."""
    return {
        (ROW_OF[judged.image[i]], judged.hypothesis[i]): (judged.yes[i], judged.no[i])
        for i in range(len(judged))
        if judged.image[i] != judged.origin[i] and judged.yes[i] != judged.no[i]
    }


def on_side(judged, calibration):
    """The pairs of every fifth test image by name, or of the others."""
    held = set(sorted(NAMES["test"])[::5])
    rows = [i for i in range(len(judged)) if (judged.image[i] in held) == calibration]
    return judged.take(rows)


def test_all_pairs_are_scored_where_there_are_few(judged, monkeypatch):
    test = crowd_of(judged, 6000, monkeypatch)
    sides = {"calibration": on_side(judged, True), "CF-all": on_side(judged, False)}
    for name, side in sides.items():
        rows, weights = test.parts[name]
        wanted = table_of(side)
        assert sorted(keys(test.samples, rows)) == sorted(wanted)
        assert set(weights) == {1.0}
        for row, key in zip(rows, keys(test.samples, rows), strict=True):
            assert test.samples.label[row] == (wanted[key][0] > wanted[key][1])
    assert set(test.parts) == {"calibration", *judgments.PROTOCOLS}
    assert set(test.samples.kind) == {"mme"}


@pytest.mark.parametrize("most", [4, 6000])
def test_crowd_protocols_are_those_of_the_judgments(judged, monkeypatch, most):
    """Whatever number of negatives is drawn for CF-all, the smaller protocols are whole."""
    seed = 3
    test, side = crowd_of(judged, most, monkeypatch, seed), on_side(judged, False)
    overlap = np.array(
        [
            overlap_loop(p, h, TRAINING) if i != o else 0.0
            for p, h, i, o in zip(
                side.premise, side.hypothesis, side.image, side.origin, strict=True
            )
        ]
    )
    every = side.samples(ROW_OF)
    for name in ("CF-balanced", "CF-hard"):
        rows, weights = test.parts[name]
        wanted = judgments.protocol(name, side, seed, overlap)
        assert keys(test.samples, rows) == keys(every, wanted)
        assert test.samples.label[rows].tolist() == side.label[wanted].tolist()
        assert [test.samples.premise[i] for i in rows] == [every.premise[i] for i in wanted]
        assert set(weights) == {1.0}
        assert 0 < test.samples.label[rows].mean() < 1
    rows, weights = test.parts["CF-unanimous"]
    whole, many = test.parts["CF-all"]
    of = dict(zip(whole.tolist(), many.tolist(), strict=True))
    found = table_of(side)
    sure = [i for i, key in zip(whole, keys(test.samples, whole), strict=True) if 0 in found[key]]
    assert sorted(rows) == sorted(sure)
    assert weights.tolist() == [of[row] for row in rows.tolist()]
    if most > 100:
        wanted = judgments.protocol("CF-unanimous", side)
        assert sorted(keys(test.samples, rows)) == sorted(keys(every, wanted))
    for row, (image, hypothesis) in enumerate(keys(test.samples, range(len(test.samples)))):
        own = [t for t in CAPTIONS[EVERY_NAME[image]] if t != hypothesis]
        assert float(test.about[row]) == near(overlap_loop(own, hypothesis, TRAINING), abs=1e-4)


def test_drawn_negatives_stand_for_all(judged, monkeypatch):
    test = crowd_of(judged, 8, monkeypatch)
    for name, most, side in (
        ("calibration", 2, on_side(judged, True)),
        ("CF-all", 8, on_side(judged, False)),
    ):
        rows, weights = test.parts[name]
        wanted = table_of(side)
        labels = test.samples.label[rows]
        yes = [key for key, (y, n) in wanted.items() if y > n]
        assert sorted(k for k, t in zip(keys(test.samples, rows), labels, strict=True) if t) == (
            sorted(yes)
        )
        assert (labels == 0).sum() == most < len(wanted) - len(yes)
        assert set(keys(test.samples, rows)) <= set(wanted)
        assert len(set(rows)) == len(rows)
        assert weights.sum() == near(len(wanted))
        assert weights[labels == 1].tolist() == [1.0] * len(yes)
        assert np.average(labels, weights=weights) == near(len(yes) / len(wanted))
    held = set(sorted(NAMES["test"])[::5])
    for name, (rows, _) in test.parts.items():
        on = {EVERY_NAME[test.samples.image[row]] in held for row in rows}
        assert on == {name == "calibration"}
        assert {test.samples.group[row] for row in rows} <= set(NAMES["test"])
    again, other = crowd_of(judged, 8, monkeypatch), crowd_of(judged, 8, monkeypatch, seed=1)

    def drawn(one):
        return sorted(keys(one.samples, one.parts["CF-all"][0]))

    assert drawn(test) == drawn(again) != drawn(other)


@pytest.mark.real
def test_the_real_crowd_test(real_data, monkeypatch):
    """Fewer training captions, for time: they only weigh the overlap."""
    judged = judgments.load(real_data / "flickr8k")
    row_of = {name: i for i, name in enumerate(sorted(set(judged.image)))}
    test = es.crowd_test(judged, row_of, [("A dog runs .",)])
    for name, n, yes in (("calibration", 9477, 375), ("CF-all", 37071, 1610)):
        rows, weights = test.parts[name]
        labels = test.samples.label[rows]
        assert (round(weights.sum()), int(labels.sum())) == (n, yes)
        assert (labels == 0).sum() == (1500 if name == "calibration" else 6000)
    assert len(test.parts["CF-balanced"][0]) == 3220
    assert test.samples.label[test.parts["CF-hard"][0]].sum() == 1610
    _, side = judgments.parts(judged)
    wanted = len(judgments.protocol("CF-unanimous", side))
    assert test.parts["CF-unanimous"][1].sum() == near(wanted, rel=0.01)  # a sample of the noes
    counts = Counter(test.samples.group[i] for i in test.parts["CF-hard"][0])
    assert max(counts.values()) <= 2 * 14


# --- The world's data ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def world():
    """The data and the three sets that it was made of, by split."""
    from mmlib.world import hypotheses

    sets, real = {}, hypotheses.entailment_set

    def kept(split, n, *args, **kwargs):
        sets[split] = real(split, n, *args, **kwargs)
        return sets[split]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hypotheses, "entailment_set", kept)
        patch.setattr(es, "WORLD_TESTS", {"val": 2, "test": 3})
        data = es.load("world", replace(es.BUDGETS["world"], images=3), workers=1)
    return data, sets


def test_world_samples_are_those_of_the_three_splits(world):
    data, sets = world
    own = sets["train"].samples
    assert data.train.premise == own.premise
    assert data.train.image.tolist() == own.image.tolist()  # training images stand first
    for samples, split, first in (
        (data.dev, "val", 3),
        (data.tests["world"].samples, "test", 5),
    ):
        own, wanted = sets[split].samples, []
        for i, kind in enumerate(own.kind):
            if kind != "te":
                texts = [c.text.rstrip(".") for c in sets[split].captions[sets[split].scene_of[i]]]
                premise = " ".join(f"{t[0].upper()}{t[1:]}." for t in texts)
                wanted.append((premise, own.hypothesis[i], own.image[i] + first, own.label[i]))
        columns = (samples.premise, samples.hypothesis, samples.image, samples.label)
        assert list(zip(*columns, strict=True)) == wanted
        assert set(samples.kind) == {"mme"}
        assert 0 < samples.label.mean() < 1
    text = data.tests["world, text"].samples
    own = sets["test"].samples
    rows = [i for i, kind in enumerate(own.kind) if kind == "te"]
    assert text.hypothesis == tuple(own.hypothesis[i] for i in rows)
    assert (set(text.kind), set(text.image)) == ({"te"}, {-1})
    assert data.tests["world, text"].about == tuple(sets["test"].edits[i] for i in rows)
    rest = [edit for i, edit in enumerate(sets["test"].edits) if i not in rows]
    assert data.tests["world"].about == tuple(rest)


def test_world_images_are_one_table(world):
    data, sets = world
    table = np.concatenate([sets[split].images for split in ("train", "val", "test")])
    mean, deviation = table[:3].mean(axis=(0, 1)), table[:3].std(axis=(0, 1))
    assert data.images == near((table - mean) / deviation, rel=0.05, abs=0.05)
    assert len(data.names) == len(set(data.names)) == 8
    for row, split, own in ((0, "train", 0), (2, "train", 2), (3, "val", 0), (7, "test", 2)):
        wanted, found = sets[split].open_image(own), data.open_image(row)
        assert np.array_equal(np.asarray(found), np.asarray(wanted))
    for own in (data.train, data.dev, *(test.samples for test in data.tests.values())):
        for premise in set(own.premise) - {""}:
            texts = data.merged[premise]
            assert plain(" ".join(texts)) == plain(premise)


def test_standardised_by_the_first_part():
    parts = [np.random.default_rng(k).normal(5 + k, 3, (3, 4, 2)) for k in range(2)]
    parts[0][..., 1] = 7  # a constant dimension is no division by 0
    found = es.standardised(parts)
    some = [parts[0][i, r, 0] for i in range(3) for r in range(4)]
    assert found[4, 2, 0] == near((parts[1][1, 2, 0] - np.mean(some)) / np.std(some), rel=1e-2)
    assert found[:3].mean(axis=(0, 1)) == near([0, 0], abs=1e-4)
    assert not found[:3, :, 1].any()
    assert np.isfinite(found).all()
    assert (found.shape, found.dtype) == ((6, 4, 2), np.float32)


# --- SNLI-VE's data ------------------------------------------------------------------------------


@pytest.mark.parametrize("with_sick", [False, True])
def test_snli_ves_samples_and_the_images_that_are_there(tmp_path, monkeypatch, with_sick):
    """Two images a split; pairs of photographs without features are left out."""
    root = tmp_path
    if with_sick:
        write(root)
    features = np.random.default_rng(0).normal(size=(2, 4, 3)).astype(np.float32)
    ids = {"train": ["11", "12"], "dev": ["21", "22"], "test": ["31", "32"]}
    folder = root / "region_features/f30k_precomp"
    folder.mkdir(parents=True)
    for split, own in ids.items():
        texts = "".join(f"A {THINGS[k]} on {i} .\n" for i in own for k in range(5))
        (folder / f"{split}_caps.txt").write_text(texts)
        (folder / f"{split}_ids.txt").write_text("".join(f"{i}.jpg\n" for i in own))
        np.save(folder / f"{split}_ims.npy", features + int(own[0]))
    (root / "snli_ve").mkdir()
    for split, own in ids.items():
        records = [
            {
                "Flickr30K_ID": photo, "gold_label": label, "pairID": f"{photo}.jpg#0r1e",
                "sentence1": "A dog", "sentence2": f"Hypothesis on {photo}, {label}",
            }
            for photo in (*own, "999")
            for label in ("entailment", "neutral")
        ]  # fmt: skip
        text = "".join(json.dumps(record) + "\n" for record in records)
        (root / f"snli_ve/snli_ve_{split}.jsonl").write_text(text)
    monkeypatch.setenv("MMLIB_DATA", str(root))
    data = es.load("paper", es.BUDGETS["paper"])
    assert data.names == tuple(f"{i}.jpg" for own in ids.values() for i in own)
    assert not any("999" in text for text in data.train.hypothesis)
    assert Counter(data.train.kind) == {"ve": 4, "mme": 4, **({"te": 8} if with_sick else {})}
    for own, images in ((data.dev, (2, 3)), (data.tests["SNLI-VE"].samples, (4, 5))):
        assert set(own.kind) == {"mme"}
        assert set(own.image) == set(images)
        for row in range(4):
            name = data.names[own.image[row]].removesuffix(".jpg")
            assert own.hypothesis[row].startswith(f"Hypothesis on {name},")
            assert own.label[row] == own.hypothesis[row].endswith("entailment")
            assert f"A dog on {name} ." in data.merged[own.premise[row]]
    assert data.images[:2].mean() == near(0, abs=1e-4)
    assert data.images[2:4].mean() > 5  # by the training images, not by its own


# --- Rows of Table 3 -----------------------------------------------------------------------------

# What each row trains on and what it changes, as the paper's Sec. 4.5 and Table 3 have it.
ROWS = {
    "Only TE": ({"te", "mme"}, {"te"}),
    "Only VE": ({"ve", "mme"}, {"ve"}),
    "Single stream": ({"te", "ve", "mme"}, {"mm"}),
    "Full": ({"te", "ve", "mme"}, {"te", "ve", "mm"}),
    "w/o image masking": ({"te", "ve", "mme"}, {"te", "ve", "mm"}),
    "w/o VE data": ({"te", "mme"}, {"te", "ve", "mm"}),
    "w/o VE data, MME kept": ({"te", "mme"}, {"te", "ve", "mm"}),
    "w/o TE data": ({"ve", "mme"}, {"te", "ve", "mm"}),
    "w/o BERT": ({"te", "ve", "mme"}, {"te", "ve", "mm"}),
    "BERT from scratch": ({"te", "ve", "mme"}, {"te", "ve", "mm"}),
    "Sigmoid": ({"te", "ve", "mme"}, {"te", "ve", "mm"}),
    "Scalar gate": ({"te", "ve", "mme"}, {"te", "ve", "mm"}),
    "Separate": ({"te", "ve", "mme"}, {"te", "ve", "mm"}),
    "w/o caption pairs": ({"te", "ve", "mme"}, {"te", "ve", "mm"}),
}


def kinds_of(n, seed=0):
    rng = np.random.default_rng(seed)
    kind = tuple(rng.choice(["te", "ve", "mme"], n))
    source = tuple(rng.choice(["SICK TRAIN", *SOURCES], n))
    text = ("x",) * n
    return Samples(text, text, np.full(n, -1), rng.integers(0, 2, n), kind, source, text)


@pytest.mark.parametrize("name", list(ROWS))
def test_training_rows_of_each_row(name):
    samples = kinds_of(6000)
    rows = es.training_rows(samples, es.SYSTEMS[name], seed=1)
    assert sorted(set(rows)) == rows.tolist()
    kept = set(rows.tolist())
    lost = Counter()
    for i, (kind, source) in enumerate(zip(samples.kind, samples.source, strict=True)):
        wanted = kind in ROWS[name][0]
        wanted &= not (name == "w/o caption pairs" and source in SOURCES)
        if name == "w/o VE data" and kind == "mme":
            lost[i in kept] += 1
        else:
            assert (i in kept) == wanted
    if name == "w/o VE data":  # CxC's and ECCV's 65.9k of 595.4k
        assert lost[True] / lost.total() == near(0.1107, abs=0.02)
        assert rows.tolist() == es.training_rows(samples, es.SYSTEMS[name], seed=1).tolist()
        assert rows.tolist() != es.training_rows(samples, es.SYSTEMS[name], seed=2).tolist()
    else:
        assert not lost


def test_rows_have_their_names_and_their_tiers():
    assert set(es.SYSTEMS) == set(ROWS)
    printed = paper_values("entailment", "table3").index
    assert set(es.PRINTED.values()) == set(printed)
    assert set(es.PRINTED) <= set(ROWS)
    assert es.systems_of("flickr8k", bert="a BERT") == tuple(es.SYSTEMS)
    assert set(ROWS) - set(es.systems_of("flickr8k")) == {"BERT from scratch"}
    world = set(es.systems_of("world"))
    assert set(es.PRINTED) <= world  # every row of the paper's
    assert not {"BERT from scratch", "w/o caption pairs"} & world
    assert len(es.systems_of("world", "quick")) == 4


# --- Batches of an epoch -------------------------------------------------------------------------


@few
@given(st.integers(1, 80), st.integers(1, 9), st.integers(1, 40), st.integers(0, 5))
def test_every_part_has_its_steps_and_no_row_comes_twice_before_all_came_once(n, size, steps, part):
    lengths = np.random.default_rng(n).integers(1, 30, 100)
    rows = np.random.default_rng(n).choice(100, n, replace=False)
    batches = es.epoch_batches(lengths, [rows], steps, size, 3, part)
    assert len(batches) == steps
    drawn = [int(row) for one in batches for row in one]
    assert set(drawn) <= set(rows.tolist())
    turn = -(-n // size)
    counts = Counter(int(row) for one in batches[: steps // turn * turn] for row in one)
    assert set(counts.values()) <= {steps // turn}
    assert steps < turn or len(counts) == n
    rest = Counter(int(row) for one in batches[steps // turn * turn :] for row in one)
    assert set(rest.values()) <= {1}
    again = es.epoch_batches(lengths, [rows], steps, size, 3, part)
    assert [one.tolist() for one in again] == [one.tolist() for one in batches]


def test_stages_come_one_after_another():
    lengths, groups = np.arange(60) + 1, [np.arange(20), np.arange(20, 40), np.arange(40, 60)]
    stages = []
    for part in range(6):
        drawn = np.concatenate(es.epoch_batches(lengths, groups, 7, 4, 0, part))
        stages.append(set((drawn // 20).tolist()))
    assert stages == [{0}, {0}, {1}, {1}, {2}, {2}]


def test_parts_turns_and_seeds_are_shuffled_differently():
    lengths, rows = np.ones(64, int), np.arange(64)

    def drawn(seed, part, steps=8):
        return [tuple(one) for one in es.epoch_batches(lengths, [rows], steps, 8, seed, part)]

    assert drawn(0, 0) != drawn(0, 1)
    assert drawn(0, 0) != drawn(1, 0)
    twice = drawn(0, 0, 16)
    assert twice[:8] == drawn(0, 0)
    assert twice[8:] != twice[:8]


# --- A tiny study --------------------------------------------------------------------------------

TINY = Settings(
    width=8, heads=2, text_layers=1, image_layers=1, words_layers=1, cross_layers=1, dropout=0.1,
    masked=2, max_premise=12, max_hypothesis=6,
)  # fmt: skip
BUDGET = es.Budget(TINY, epochs=1.0, batch=6, learning_rate=1e-2)
VOCABULARY = "red blue green dog cat bird runs sleeps eats".split()
REGIONS, INNER, PICTURES = 4, 5, 10


def toy(n, kinds, seed, merged, source="toy"):
    rng = np.random.default_rng(seed)

    def text(words):
        return " ".join(rng.choice(VOCABULARY, words))

    premise, hypothesis, image, kind = [], [], [], []
    for i in range(n):
        kind.append(kinds[i % len(kinds)])
        captions = (text(3), text(int(rng.integers(1, 4))))
        if kind[-1] != "ve":
            merged[" ".join(captions)] = captions
        premise.append("" if kind[-1] == "ve" else " ".join(captions))
        hypothesis.append(text(int(rng.integers(1, 6))))
        image.append(-1 if kind[-1] == "te" else int(rng.integers(PICTURES)))
    label = np.array([1, 0] * n)[rng.permutation(2 * n)][:n]
    label[:2] = 0, 1
    group = tuple(f"image {i}" for i in image)
    return Samples(
        tuple(premise), tuple(hypothesis), np.array(image), label, tuple(kind), (source,) * n, group
    )


def toy_data():
    merged = {}
    parts = {
        "calibration": (np.arange(0, 14), np.ones(14)),
        "CF-all": (np.arange(14, 40), np.linspace(1, 5, 26)),
        "CF-hard": (np.arange(20, 40), np.ones(20)),
    }
    about = tuple(np.random.default_rng(1).choice(["own", "swap", "colour"], 17))
    plain_test = es._plain_test
    train = [toy(30, ("te", "ve", "mme"), 1, merged), toy(6, ("ve", "mme"), 2, merged, SOURCES[2])]
    tests = {
        "crowd": es.Test(toy(40, ("mme",), 3, merged), parts),
        "T": plain_test(toy(17, ("mme",), 4, merged), about),
        "text": plain_test(toy(7, ("te",), 5, merged)),
    }
    images = np.random.default_rng(0).normal(size=(PICTURES, REGIONS, INNER)).astype(np.float32)
    names = tuple(f"image {i}" for i in range(PICTURES))
    dev = toy(11, ("mme",), 6, merged)
    return es.Data("toy", joined(train), dev, tests, images, names, merged, Image.open)


@pytest.fixture(scope="module")
def data():
    return toy_data()


def begin_of(words=VOCABULARY, weights=None, tier="toy", **columns):
    """Where retrievers' stage B begins; of it the classifier takes words, texts and weights."""
    nothing = dict(names=(), features=np.zeros(0), captions=(), premises=(), rows={}, fits={})
    collection = Collection(tier=tier, open_image=Image.open, **{**nothing, **columns})
    return Start(collection, None, Words(words), {}, weights or {}, np.zeros(0), {})


@pytest.fixture(scope="module")
def arrays(data):
    return es.prepare(data, BUDGET, begin_of())[0]


def run(arrays, system="Full", seed=0, checkpoint=None, settings=BUDGET):
    """As a job does it: the settings have been through JSON."""
    as_json = json.loads(json.dumps(asdict(settings)))
    return es.train_system(system, as_json, seed, "toy", "hash", arrays, "cpu", checkpoint)


# --- Arrays --------------------------------------------------------------------------------------


def test_prepare_reads_with_the_words_of_the_retrievers(data):
    words = ["runs", *VOCABULARY[:3]]
    made, (own, heard) = es.prepare(data, BUDGET, begin_of(words))
    assert own is heard
    assert made.sizes == {"own": 8, "words": 8}
    assert set(made.encoded) == {"own", "words"}
    for reader in made.encoded.values():
        assert set(reader) == {"train", "dev", "crowd", "T", "text"}
        for name, samples in (("train", data.train), ("T", data.tests["T"].samples)):
            assert reader[name].labels.tolist() == samples.label.tolist()
            for row in range(len(samples)):
                said = samples.hypothesis[row].split()
                ids = [4 + words.index(word) if word in words else 3 for word in said]
                assert reader[name].words[row, 1 : 1 + len(ids)].tolist() == ids
    assert made.states is None
    short = replace(BUDGET, classifier=replace(TINY, max_premise=2, max_hypothesis=1))
    cut = es.prepare(data, short, begin_of())[0].encoded["own"]["train"]
    assert cut.premise_length.max() == 4
    assert cut.pair_length.max() == 6
    assert np.array_equal(made.images, data.images)
    assert made.samples is data.train


def test_each_classifier_reads_its_own_encoding(arrays):
    marked = replace(arrays, encoded={"own": {"dev": "own"}, "words": {"dev": "words"}})
    wanted = {"both": "own", "te": "own", "ve": "words", "single": "words"}
    for model, reader in wanted.items():
        assert marked.reads(replace(TINY, model=model), "dev") == reader
    assert marked.reads(replace(TINY, text="shared"), "dev") == "words"
    assert marked.reads(TINY, "dev", scratch=True) == "words"
    with_states = replace(
        arrays, states=np.zeros((50, 3), np.float16), sizes={"own": 54, "words": 13}
    )
    for scratch in (False, True):
        model, _ = with_states.model(TINY, scratch)
        assert (model.states is None) == scratch
        assert len(model.text.embeddings.word_embeddings.weight) == 13


def test_a_fingerprint_tells_all_that_trainings_read(data, arrays):
    found = {arrays.fingerprint()}
    assert es.prepare(toy_data(), BUDGET, begin_of())[0].fingerprint() in found
    samples = replace(data.train, source=("else", *data.train.source[1:]))
    flipped = replace(data.train, label=1 - data.train.label)
    weights = {"image.first": torch.zeros(8)}
    for other in (
        replace(arrays, images=arrays.images + 1e-3),
        replace(arrays, starts=weights),
        replace(arrays, starts={"image.first": torch.ones(8)}),
        replace(arrays, samples=samples),
        replace(arrays, states=np.zeros((9, 3), np.float16)),
        es.prepare(replace(data, train=flipped), BUDGET, begin_of())[0],
        es.prepare(data, replace(BUDGET, classifier=replace(TINY, max_premise=2)), begin_of())[0],
    ):
        found.add(other.fingerprint())
    assert len(found) == 8


# --- Where weights start -------------------------------------------------------------------------


def test_weights_start_where_they_are_named(arrays):
    torch.manual_seed(0)
    source, _ = arrays.model(TINY)
    names = [name for name in source.state_dict() if name.startswith(("image.", "cross."))]
    weights = {name: torch.randn_like(source.state_dict()[name]) for name in names}
    weights["to_image.weight"] = torch.ones(3)  # a name that the classifier has not
    torch.manual_seed(1)
    model, _ = arrays.model(TINY)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert es.start(model, weights, REGIONS) == set(names)
    for name, value in model.state_dict().items():
        assert torch.equal(value, weights.get(name, before[name]))
    built, begun = replace(arrays, starts=weights).model(TINY)
    assert begun == set(names)
    assert all(torch.equal(built.state_dict()[name], weights[name]) for name in names)


@pytest.mark.parametrize("theirs", [6, 30])
def test_embeddings_of_another_number_are_copied_from_the_first(arrays, theirs):
    model, _ = arrays.model(TINY)
    for name in ("word_embeddings", "position_embeddings"):
        name = f"words.embeddings.{name}.weight"
        before = model.state_dict()[name].clone()
        value = torch.randn(theirs, 8)
        assert es.start(model, {name: value}, REGIONS) == {name}
        n = min(theirs, len(before))
        assert torch.equal(model.state_dict()[name], torch.cat([value[:n], before[n:]]))


@pytest.mark.parametrize("theirs", [12, 25, 40])
def test_a_streams_regions_keep_the_last_positions(arrays, theirs):
    """Of 25 positions (12 + 6 + 3 and 4 regions) the last four are the regions'."""
    model, _ = arrays.model(replace(TINY, model="single"))
    name = "stream.layers.embeddings.position_embeddings.weight"
    before, value = model.state_dict()[name].clone(), torch.randn(theirs, 8)
    assert len(before) == 25
    assert es.start(model, {name: value}, REGIONS) == {name}
    found = model.state_dict()[name]
    wanted = before.clone()
    for i in range(min(theirs, 25) - REGIONS):
        wanted[i] = value[i]
    for i in range(1, REGIONS + 1):
        wanted[-i] = value[-i]
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("theirs", [4, 16])
def test_weights_of_another_width_are_passed_over(arrays, theirs):
    """Smaller or larger, matrices or vectors: a part of a bias is of no use."""
    torch.manual_seed(0)
    source, _ = arrays.model(replace(TINY, width=theirs))
    torch.manual_seed(1)
    model, _ = arrays.model(TINY)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    weights = {
        name: torch.randn_like(value) for name, value in source.state_dict().items()
        if value.shape != before[name].shape
    }  # fmt: skip
    assert len(weights) > 60
    copied = es.start(model, weights, REGIONS)
    changed = [n for n, value in model.state_dict().items() if not torch.equal(value, before[n])]
    assert (copied, changed) == (set(), [])


def test_which_weights_a_classifier_starts_from():
    """VE's are align's, a single stream's the single stream's; TE's own are no retriever's."""
    names = ("image.first", "words.x", "cross.y", "to_image.weight", "log_scale")
    weights = {
        "align": {name: torch.full((2,), float(i)) for i, name in enumerate(names)},
        "dual": {"image.first": torch.ones(2)},
        "single": {"layers.z": torch.ones(1), "project.bias": torch.zeros(1)},
    }
    found = es.starts_of(begin_of(weights=weights))
    assert set(found) == {
        "image.first",
        "words.x",
        "cross.y",
        "stream.layers.z",
        "stream.project.bias",
    }
    assert found["image.first"].tolist() == [0, 0]
    assert es.starts_of(begin_of()) == {}
    assert {name.split(".")[0] for name in es.starts_of(begin_of(tier="world"))} == {"text"}


@pytest.mark.parametrize("model", ["both", "single"])
def test_the_worlds_weights_fit_the_worlds_classifier(world, model):
    """None is left out for its name or shape; what starts at random are heads and gate, and
    positions of words beyond those of the retrievers."""
    path = revision_study.WEIGHTS
    weights = {family: revision_study.read_weights(path, family) for family in ("align", "single")}
    words = revision_study.world_words()
    starts = es.starts_of(begin_of(words.words, weights, "world"))
    settings = replace(es.BUDGETS["world"].classifier, model=model)
    own = es.Arrays(kinds_of(3), {}, world[0].images, {"words": len(words)}, starts=starts)
    torch.manual_seed(0)
    state = own.model(settings)[0].state_dict()
    parts = ("image.", "words.", "cross.", "text.") if model == "both" else ("stream.",)
    wanted = {name for name in starts if name.startswith(parts)}
    given = {name for name in wanted if name in state}
    assert {name for name in state if name.startswith(parts)} == given
    assert {n for n in wanted - given if not n.startswith("stream.fits.")} == set()  # a head's
    regions = world[0].images.shape[1]
    for name in given:
        value, start = state[name], starts[name].float()
        assert torch.isfinite(value).all()
        if "position" not in name:
            assert torch.equal(value, start)
        elif name.startswith("stream"):
            n = min(len(value), len(start)) - regions
            assert torch.equal(value[:n], start[:n])
            assert torch.equal(value[-regions:], start[-regions:])
        else:
            n = min(len(value), len(start))
            assert torch.equal(value[:n], start[:n])
    if model == "both":
        assert len(state["text.embeddings.position_embeddings.weight"]) == len(
            starts["text.embeddings.position_embeddings.weight"]
        )


# --- Token states of a frozen BERT ---------------------------------------------------------------


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    path = tmp_path_factory.mktemp("bert")
    tiny_tokenizer(path).save_pretrained(path)
    tiny_model().save_pretrained(path)
    return path


def bert_data():
    """Words of the tiny BERT; premises of two captions, or of one that is no merged text."""
    merged = {"a big dog. a cat.": ("a big dog", "a cat"), "red cat. dog.": ("red cat", "dog")}
    train = Samples(
        ("a big dog. a cat.", "", "umbrella"), ("dog runs", "a red umbrella", "a cat"),
        np.array([0, 1, -1]), np.array([1, 0, 1]), ("mme", "ve", "te"), ("toy",) * 3, ("x",) * 3,
    )  # fmt: skip
    dev = Samples(
        ("red cat. dog.",) * 2, ("a dog jumps over a cat", "dog runs"), np.array([2, 2]),
        np.array([1, 0]), ("mme",) * 2, ("toy",) * 2, ("x",) * 2,
    )  # fmt: skip
    tests = {"T": es._plain_test(replace(dev, hypothesis=("big umbrellas", "cat runs")))}
    images = np.random.default_rng(0).normal(size=(3, REGIONS, INNER)).astype(np.float32)
    return es.Data("toy", train, dev, tests, images, ("a", "b", "c"), merged, Image.open)


def states_by_transformers(bert, text, most=40):
    """One text alone through the plain model; its tokens without [CLS] and [SEP]."""
    import transformers

    tokens = transformers.BertTokenizerFast.from_pretrained(bert)(text)["input_ids"]
    ids = [tokens[0], *tokens[1:-1][:most], tokens[-1]]
    model = transformers.BertModel.from_pretrained(bert).eval()
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids])).last_hidden_state[0, 1:-1].numpy()


def test_token_states_are_those_of_each_text_alone(bert, tmp_path):
    data = bert_data()
    found = es.token_states(data, bert, tmp_path, ["dog jumps", "a cat"])
    every = {"dog jumps", "a big dog", "a cat", "red cat", "dog", "umbrella", "dog runs",
             "a red umbrella", "a dog jumps over a cat", "big umbrellas", "cat runs"}  # fmt: skip
    used = []
    for text in every:
        wanted, ids = states_by_transformers(bert, text), found.ids(text)
        assert np.allclose(found.states[np.array(ids) - 4], wanted, atol=2e-3, rtol=2e-3)
        used += ids
    assert sorted(used) == list(range(4, len(found)))  # every token once, and none is special
    assert len(found) == 4 + len(found.states)
    assert len(found.ids("big umbrellas")) == 3  # pieces of words
    assert found.ids("a big dog. a cat.") == found.ids("a big dog") + found.ids("a cat")
    assert found.ids("red cat. dog.") == found.ids("red cat") + found.ids("dog")
    assert found.ids("") == []
    with pytest.raises(ValueError, match="no token states of 'walrus'"):
        found.ids("walrus")


def test_token_states_are_kept_in_a_file(bert, tmp_path, monkeypatch):
    from mmlib.features.bert import BertEncoder

    data = bert_data()
    first = es.token_states(data, bert, tmp_path / "cache")
    other = replace(data.dev, hypothesis=("a red dog", "cat"))
    short = es.token_states(data, bert, tmp_path / "cache", most=2)
    assert len(short.ids("a dog jumps over a cat")) == 2
    wanted = states_by_transformers(bert, "a dog jumps over a cat", 2)
    rows = np.array(short.ids("a dog jumps over a cat")) - 4
    assert np.allclose(short.states[rows], wanted, atol=2e-3, rtol=2e-3)
    es.token_states(replace(data, dev=other), bert, tmp_path / "cache")
    assert len(list((tmp_path / "cache").iterdir())) == 3

    def not_again(*args, **kwargs):
        raise AssertionError("read again")

    monkeypatch.setattr(BertEncoder, "from_pretrained", not_again)
    again = es.token_states(data, bert, tmp_path / "cache")
    assert np.array_equal(again.states, first.states)
    assert again.ids("a cat") == first.ids("a cat")
    with pytest.raises(AssertionError, match="read again"):
        es.token_states(data, bert, tmp_path / "cache", most=3)


def test_token_states_by_hand():
    states = np.arange(12.0).reshape(6, 2)
    found = es.TokenStates(["b", "a", "c"], states, np.array([2, 1, 3]), {"a. b.": ("a", "b")})
    assert [found.ids(t) for t in ("b", "a", "c")] == [[4, 5], [6], [7, 8, 9]]
    assert found.ids("a. b.") == [6, 4, 5]
    assert len(found) == 10


def bert_begin():
    """Captions of the retrievers' collection are read too, alone and merged, for mining."""
    captions = (("dog jumps", "a red dog"), ("big cat",))
    merged = ("Dog jumps. A red dog.", "Big cat.")
    return begin_of(["a", "dog", "cat", "runs"], captions=captions, premises=merged)


def test_prepare_with_a_frozen_bert(bert, tmp_path):
    data = bert_data()
    arrays, (own, words) = es.prepare(data, BUDGET, bert_begin(), str(bert), tmp_path)
    assert own.ids("Dog jumps. A red dog.") == own.ids("dog jumps") + own.ids("a red dog")
    assert own.ids("Big cat.") == own.ids("big cat")
    assert own.ids("red cat. dog.") == own.ids("red cat") + own.ids("dog")
    assert np.array_equal(arrays.states, own.states)
    assert arrays.sizes == {"own": 4 + len(own.states), "words": 8}
    wanted = [1, *own.ids("a big dog"), *own.ids("a cat"), 2, *own.ids("dog runs"), 2]
    row = arrays.encoded["own"]["train"].pair[0]
    assert row[: len(wanted)].tolist() == wanted
    assert not row[len(wanted) :].any()
    for reader in ("own", "words"):  # VE's hypotheses are always words
        assert arrays.encoded[reader]["train"].words[0].tolist()[:4] == [1, 5, 7, 2]
    assert words.ids("dog runs") == [5, 7]
    assert [path.parent for path in tmp_path.glob("**/*.safetensors")] == [tmp_path]


@pytest.mark.parametrize(
    "name", ["Full", "Only TE", "w/o BERT", "BERT from scratch", "Single stream", "Only VE"]
)
def test_rows_with_a_frozen_bert(bert, tmp_path, name):
    """Rows with TE's own layers read its states; their number is no size of a word table."""
    arrays, (own, _) = es.prepare(bert_data(), BUDGET, bert_begin(), str(bert), tmp_path)
    system = es.SYSTEMS[name]
    model, _ = arrays.model(replace(TINY, **system.changes), system.scratch)
    tables = {len(v) for n, v in model.state_dict().items() if "word_embeddings" in n}
    assert tables <= {1, 8}
    assert 8 < len(own.states)
    has = name in ("Full", "Only TE")
    assert (getattr(model, "states", None) is not None) == has
    assert len(own.states) not in {len(value) for value in model.state_dict().values()}
    encoded, scores = arrays.reads(model.settings, "T", system.scratch), []
    for states in (arrays.states, arrays.states[::-1].copy()):
        torch.manual_seed(0)
        model, _ = replace(arrays, states=states).model(model.settings, system.scratch)
        scores.append(es.score(model, encoded, arrays.images, "cpu")[0])
    assert (str(scores[0]) == str(scores[1])) == (not has)
    if name in ("Full", "BERT from scratch"):
        assert set(run(arrays, name)["scores"]) == {"dev", "T"}


# --- One training --------------------------------------------------------------------------------


KEPT = ("Full", "Only TE", "Sigmoid")


@pytest.fixture(scope="module")
def trained(arrays, tmp_path_factory):
    """Every row trained for one step a part; what each step saw, and which files it left."""
    found, folder = {}, tmp_path_factory.mktemp("runs")
    real = es.step_loss
    for name in ROWS:
        steps = []

        def watched(model, batch, wanted, steps=steps):
            steps.append((batch, wanted))
            return real(model, batch, wanted)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(es, "step_loss", watched)
            place = None if name not in KEPT else folder / f"{name}.pt"  # which takes time
            answer = run(arrays, name, checkpoint=place)
        found[name] = answer, steps, place
    return found


def kinds_in(batch):
    names = {(1, 0, 0): "te", (0, 1, 0): "ve", (1, 1, 1): "mme"}
    return {names[tuple(row)] for row in batch.counted.tolist()}


@pytest.mark.parametrize("name", list(ROWS))
def test_every_row_trains_and_answers(trained, data, arrays, name):
    answer, steps, _ = trained[name]
    kinds, branches = ROWS[name]
    assert set(answer["scores"]) == {"dev", "crowd", "T", "text"}
    sizes = {"dev": 11, "crowd": 40, "T": 17, "text": 7}
    for test, found in answer["scores"].items():
        assert set(found) == branches
        for values in found.values():
            assert len(values) == sizes[test]
            assert all(0 <= p <= 1 and round(p, 4) == p for p in values)
            assert len(set(values)) > 1
        gates = answer["gates"][test]
        assert len(gates) == (2 if len(branches) == 3 else 0)
        assert all(0 < gate < 1 for gate in gates)
    assert json.loads(json.dumps(answer)) == answer
    seen = set().union(*(kinds_in(batch) for batch, _ in steps))
    assert seen <= kinds
    assert seen == kinds or name == "w/o VE data"
    settings = steps[0][1]
    changed = {k: v for k, v in asdict(settings).items() if v != asdict(TINY)[k]}
    assert changed == {
        "Only TE": {"model": "te"}, "Only VE": {"model": "ve"},
        "Single stream": {"model": "single"},
        "w/o image masking": {"masked": 0}, "w/o BERT": {"text": "shared"},
        "Sigmoid": {"output": "sigmoid"}, "Scalar gate": {"gate": "scalar"},
    }.get(name, {})  # fmt: skip
    torch.manual_seed(0)
    count = sum(p.numel() for p in arrays.model(settings, es.SYSTEMS[name].scratch)[0].parameters())
    assert answer["parameters"] == count
    if name == "Separate":
        order = ["te", "te", "ve", "ve", "mme", "mme"]
        assert [kinds_in(batch) for batch, _ in steps] == [{kind} for kind in order]


@pytest.mark.parametrize("name", list(ROWS))
def test_rows_take_as_many_steps_whatever_their_data(trained, name):
    """One pass over 36 samples in batches of 6 is 6 steps; the rate falls by a sixth a part."""
    answer, steps, _ = trained[name]
    assert len(steps) == 6
    assert all(len(batch.labels) <= 6 for batch, _ in steps)
    rates = [part["learning_rate"] for part in answer["history"]]
    assert rates == near([1e-2 * k / 6 for k in (6, 5, 4, 3, 2, 1)])
    assert all(math.isfinite(part["train_loss"]) for part in answer["history"])


def test_longer_trainings_take_more_steps(arrays, monkeypatch):
    count, real = [], es.step_loss
    monkeypatch.setattr(es, "step_loss", lambda *args: count.append(0) or real(*args))
    run(arrays, "Only VE", settings=replace(BUDGET, epochs=2.5))  # 90 samples: 2.5 steps a part
    run(arrays, "Only VE", settings=replace(BUDGET, epochs=0.01))  # and never none
    run(arrays, "Only VE", settings=replace(BUDGET, epochs=3, batch=9))
    assert len(count) == 12 + 6 + 12


def test_weights_are_kept_of_the_full_model_alone(trained, arrays, data):
    for name in KEPT:
        place = trained[name][2]
        assert place.exists()
        assert es.weights_path(place).exists() == (name == "Full")
    answer, _, place = trained["Full"]
    torch.manual_seed(99)
    model, _ = arrays.model(TINY)
    load_model(model, str(es.weights_path(place)))
    for test in ("dev", "crowd", "T", "text"):
        scores, gates = es.score(model, arrays.reads(TINY, test), arrays.images, "cpu")
        for branch, values in scores.items():
            assert values == near(answer["scores"][test][branch], abs=6e-5)
        assert gates == near(answer["gates"][test], abs=1e-4)


def figures_of(answer):
    return {name: value for name, value in answer.items() if name != "seconds"}


def test_the_same_seed_gives_the_same_numbers(trained, arrays):
    answer, *_ = trained["Full"]
    torch.manual_seed(5)  # whatever was drawn before
    assert figures_of(run(arrays)) == figures_of(answer)
    other = run(arrays, seed=1)
    assert other["scores"] != answer["scores"]
    assert other["history"] != answer["history"]


@pytest.mark.parametrize("name", ["Full", "Separate"])
def test_a_stopped_training_goes_on_to_the_same_end(trained, arrays, tmp_path, monkeypatch, name):
    looks, real = [], es.dev_loss

    def stopped(*args):
        looks.append(0)
        if len(looks) == 4:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(es, "dev_loss", stopped)
    place = tmp_path / "job.pt"
    with pytest.raises(KeyboardInterrupt):
        run(arrays, name, checkpoint=place)
    assert place.exists()
    assert not es.weights_path(place).exists()
    torch.manual_seed(7)
    assert figures_of(run(arrays, name, checkpoint=place)) == figures_of(trained[name][0])
    assert len(looks) == 4 + 3  # three parts were done


def test_pretrained_weights_are_where_a_training_starts(arrays):
    """At a learning rate of almost 0, all answers are those of the given weights."""
    torch.manual_seed(3)
    source, _ = arrays.model(TINY)
    with torch.no_grad():
        for value in source.parameters():
            value.add_(0.3 * torch.randn_like(value))
    given = replace(arrays, starts=dict(source.state_dict()))
    still = replace(BUDGET, learning_rate=1e-12)
    answer = run(given, settings=still)
    wanted, _ = es.score(source, arrays.reads(TINY, "T"), arrays.images, "cpu")
    for branch, values in wanted.items():
        assert answer["scores"]["T"][branch] == near(values, abs=1e-3)


def test_pretrained_weights_learn_at_their_share_of_the_rate(arrays, tmp_path, monkeypatch):
    """The first step of Adam moves each weight by the rate, whatever its gradient."""
    monkeypatch.setattr(es, "PARTS", 1)
    torch.manual_seed(3)
    source = arrays.model(replace(TINY, dropout=0.0))[0].state_dict()
    starts = {name: value for name, value in source.items() if name.startswith(("text", "image"))}
    once = replace(BUDGET, batch=36, weight_decay=0.0, started=0.25, learning_rate=1e-3)
    answer = run(replace(arrays, starts=starts), checkpoint=tmp_path / "a.pt", settings=once)
    assert len(answer["history"]) == 1
    trained = load_file(es.weights_path(tmp_path / "a.pt"))
    for name, rate in (
        ("text.encoder.layer.0.output.dense.weight", 0.25e-3),
        ("image.project.weight", 0.25e-3),
        ("image.first", 0.25e-3),
    ):
        moved = (trained[name] - starts[name]).abs()
        assert moved.max() == near(rate, rel=0.01)
    seed_everything(0)
    model, _ = replace(arrays, starts=starts).model(TINY)
    for name in ("heads.mm.layers.0.weight", "words.encoder.layer.0.output.dense.weight"):
        moved = (trained[name] - model.state_dict()[name]).abs()
        assert moved.max() == near(1e-3, rel=0.01)


# --- Losses and scores ---------------------------------------------------------------------------


def one_by_one(model, encoded, images):
    """Every sample alone, and so without padding."""
    model.eval()
    for row in range(len(encoded)):
        batch = encoded.batch(np.array([row]), images)
        with torch.no_grad():
            yield row, batch, model(batch)


@pytest.fixture
def stirred(arrays):
    def made(**changes):
        torch.manual_seed(0)
        model, _ = arrays.model(replace(TINY, **changes))
        with torch.no_grad():
            for value in model.parameters():
                value.add_(0.4 * torch.randn_like(value))
        return model

    return made


@pytest.mark.parametrize(
    ("model", "block"), [("both", 128), ("both", 3), ("te", 3), ("ve", 3), ("single", 3)]
)
def test_scores_are_those_of_single_samples(arrays, stirred, monkeypatch, model, block):
    monkeypatch.setattr(es, "BLOCK", block)
    settings = replace(TINY, model=model)
    own = stirred(model=model).train()  # dropout must be off
    for test in ("crowd", "text"):
        encoded = arrays.reads(settings, test)
        found, gates = es.score(own, encoded, arrays.images, "cpu")
        opened = []
        for row, _, output in one_by_one(own, encoded, arrays.images):
            for branch, logits in output.logits.items():
                no, yes = logits[0].tolist()
                assert found[branch][row] == near(1 / (1 + math.exp(no - yes)), abs=1e-5)
            if output.gates is not None:
                opened.append(output.gates[0].tolist())
        assert set(found) == set(output.logits)
        assert gates == (near(np.mean(opened, axis=0), abs=1e-4) if opened else [])


@pytest.mark.parametrize(
    ("model", "block"), [("both", 128), ("both", 3), ("te", 3), ("ve", 3), ("single", 3)]
)
def test_the_dev_loss_is_the_mean_over_single_samples(arrays, stirred, monkeypatch, model, block):
    """Eleven samples in blocks of three: the last block is smaller and counts less."""
    monkeypatch.setattr(es, "BLOCK", block)
    encoded = arrays.reads(replace(TINY, model=model), "dev")
    own = stirred(model=model).train()
    losses = []
    for row, _, output in one_by_one(own, encoded, arrays.images):
        logs = [logits.log_softmax(dim=1)[0] for logits in output.logits.values()]
        losses.append(sum(-float(log[encoded.labels[row]]) for log in logs))
    assert es.dev_loss(own, encoded, arrays.images, "cpu") == near(np.mean(losses), rel=1e-5)


@pytest.mark.parametrize(("model", "masked"), [("both", 2), ("both", 0), ("ve", 2), ("te", 2),
                                               ("single", 2)])  # fmt: skip
def test_a_step_adds_masked_copies_where_there_is_an_image_branch(arrays, stirred, model, masked):
    """Copies of the first positives with an image, their most attended region black, as no."""
    settings = replace(TINY, model=model, masked=masked)
    own = stirred(model=model, masked=masked).eval()
    encoded = arrays.reads(settings, "train")
    batch = encoded.batch(np.arange(24), arrays.images)
    wanted, count, losses = 0.0, {}, {"te": [], "ve": [], "mm": []}
    samples = [(i, False) for i in range(24)]
    if masked and model in ("both", "ve"):
        found = [i for i in range(24) if batch.labels[i] == 1 and batch.counted[i, 1] == 1]
        assert len(found) > 2
        samples += [(i, True) for i in found[:2]]
    for i, copy in samples:
        one = {name: value[i : i + 1].clone() for name, value in vars(batch).items()}
        if copy:
            _, attention = own.image(one["images"])
            one["images"][0, attention[0].argmax()] = 0  # 0.4 of 4 regions is one
        for branch, logits in own(type(batch)(**one)).logits.items():
            counts = model == "single" or batch.counted[i, ("te", "ve", "mm").index(branch)]
            if counts and not (copy and branch == "te"):
                label = 0 if copy else int(batch.labels[i])
                losses[branch].append(-logits.log_softmax(dim=1)[0, label].item())
    for branch, values in losses.items():
        wanted += np.mean(values) if values else 0.0
        count[branch] = len(values)
    found = es.step_loss(own, batch, settings)
    assert found.item() == near(wanted, rel=1e-4)
    assert found.requires_grad
    assert count["mm"] == {"both": 8 + (2 if masked else 0), "single": 24}.get(model, 0) or masked


# --- Jobs and answers ----------------------------------------------------------------------------


def test_jobs_are_a_row_and_a_seed_each(arrays):
    jobs = es.training_jobs(arrays, BUDGET, "world", [0, 4], "cpu")
    assert [(job["system"], job["seed"]) for job, _ in jobs] == [
        (name, seed) for name in es.systems_of("world") for seed in (0, 4)
    ]
    for job, given_data in jobs:
        assert json.loads(json.dumps(job)) == job
        assert job["data"] == arrays.fingerprint()
        assert given_data == {"arrays": arrays, "device": "cpu"}
    some = es.training_jobs(arrays, BUDGET, "world", [0], "cpu", ["Full"])
    assert [job["system"] for job, _ in some] == ["Full"]
    moved = replace(arrays, images=arrays.images * 2)
    other = es.training_jobs(moved, BUDGET, "world", [0], "cpu", ["Full"])
    assert job_path(es.WORLD_TEXT, other[0][0]) != job_path(es.WORLD_TEXT, some[0][0])
    answer = es.train_system(**some[0][0], **some[0][1])
    assert set(answer) == {"scores", "gates", "history", "parameters", "seconds"}


def test_answers_are_read_if_the_settings_are_those(arrays, tmp_path):
    from mmlib.training import write_answers

    jobs = es.training_jobs(arrays, BUDGET, "world", [0], "cpu", ["Only TE", "Full"])
    write_answers(tmp_path / "a.json.gz", jobs, [{"x": 1}, {"x": 2}])
    read, answers = es.read_answers(tmp_path / "a.json.gz", BUDGET)
    assert answers == [{"x": 1}, {"x": 2}]
    assert [job["system"] for job, _ in read] == ["Only TE", "Full"]
    with pytest.raises(DataError, match="epochs"):
        es.read_answers(tmp_path / "a.json.gz", replace(BUDGET, epochs=9))


def test_collect_puts_rows_tests_and_seeds_in_their_places():
    def answer(branches, base):
        return {
            "scores": {
                test: {b: [base + k / 10 + t / 100] * 2 for k, b in enumerate(branches)}
                for t, test in enumerate(("dev", "T"))
            }
        }

    three = ("te", "ve", "mm")
    branches = {
        "Full": three, "w/o BERT": three, "Sigmoid": three, "Only TE": ("te",),
        "Single stream": ("mm",),
    }  # fmt: skip
    jobs = [({"system": name, "seed": seed}, {}) for name in branches for seed in (0, 1)]
    answers = [answer(branches[job["system"]], job["seed"] / 2) for job, _ in jobs]
    found = es.collect(jobs, answers)
    shown = {"Full, TE branch": 0, "Full, VE branch": 1, "w/o BERT, TE branch": 0}
    shown["w/o BERT, VE branch"] = 1
    assert set(found) == {*branches, *shown}
    for name, k in [("Full", 2), ("Sigmoid", 2), ("Only TE", 0), ("Single stream", 0),
                    *shown.items()]:  # fmt: skip
        for t, test in enumerate(("dev", "T")):
            wanted = [[seed / 2 + k / 10 + t / 100] * 2 for seed in (0, 1)]
            assert found[name][test] == near(np.array(wanted))


# --- Figures -------------------------------------------------------------------------------------


@st.composite
def weighted(draw):
    """Labels of both kinds, scores with many ties, and whole weights, some of them 0."""
    pairs = draw(
        st.lists(st.tuples(st.integers(0, 1), st.integers(0, 7), st.integers(0, 4)), min_size=2,
                 max_size=30)
    )  # fmt: skip
    pairs += [(1, draw(st.integers(0, 7)), 1), (0, draw(st.integers(0, 7)), 1)]
    labels, scores, weights = map(np.array, zip(*pairs, strict=True))
    return labels, scores / 8, weights.astype(float)


@few
@given(weighted())
def test_ranked_figures_are_sklearns(case):
    labels, scores, weights = case
    ranked = es.Ranked(labels, scores)
    assert ranked.auc(weights) == near(100 * roc_auc_score(labels, scores, sample_weight=weights))
    wanted = average_precision_score(labels, scores, sample_weight=weights)
    assert ranked.ap(weights) == near(100 * wanted)
    again = np.repeat(np.arange(len(labels)), weights.astype(int))  # a weight is that many copies
    copies = es.Ranked(labels[again], scores[again])
    assert copies.auc(np.ones(len(again))) == near(ranked.auc(weights))
    assert copies.ap(np.ones(len(again))) == near(ranked.ap(weights))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_resample_of_one_label_has_no_figure():
    ranked = es.Ranked(np.array([1, 0, 1]), np.array([0.1, 0.5, 0.9]))
    assert math.isnan(ranked.auc(np.array([1.0, 0, 1])))
    assert math.isnan(ranked.ap(np.array([0.0, 1, 0])))


@few
@given(weighted(), st.integers(0, 8))
def test_all_figures_are_sklearns(case, eighth):
    labels, scores, weights = case
    called, options = scores >= eighth / 8, {"sample_weight": weights, "zero_division": 0}
    assert es.figures(labels, scores, weights, eighth / 8) == near(
        {
            "auc": 100 * roc_auc_score(labels, scores, sample_weight=weights),
            "ap": 100 * average_precision_score(labels, scores, sample_weight=weights),
            "accuracy": 100 * accuracy_score(labels, called, sample_weight=weights),
            "precision": 100 * precision_score(labels, called, **options),
            "recall": 100 * recall_score(labels, called, **options),
            "f0.5": 100 * fbeta_score(labels, called, beta=0.5, **options),
        }
    )
    assert set(es.METRICS) == set(es.figures(labels, scores, weights))


def scores_of(data, seeds=3, skill=1.0, seed=0):
    """A row's answers on all sets: noisy labels, rounded so that there are ties."""
    rng = np.random.default_rng(seed)
    sets = {"dev": data.dev, **{name: test.samples for name, test in data.tests.items()}}
    return {
        name: np.array(
            [
                np.clip((0.5 + skill * (own.label - 0.5) / 2 + rng.normal(0, 0.3, len(own))), 0, 1)
                for _ in range(seeds)
            ]
        ).round(1)
        for name, own in sets.items()
    }


def f_half(labels, called, weights):
    return fbeta_score(labels, called, beta=0.5, sample_weight=weights, zero_division=0)


def threshold_by_brute_force(labels, scores, share):
    """Of all scores the one that is best where a share of all pairs is entailed."""
    labels = np.asarray(labels)
    weights = np.where(labels == 1, share / labels.sum(), (1 - share) / (labels == 0).sum())
    found = {t: f_half(labels, scores >= t, weights) for t in sorted(set(scores))}
    best = max(found.values())
    return max(t for t, value in found.items() if value > best - 1e-9)


def share_of(data, test, part):
    rows, weights = data.tests[test].parts[part]
    return np.average(data.tests[test].samples.label[rows], weights=weights)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("test", "part"), [("T", "all"), ("text", "all"), ("crowd", "CF-all"), ("crowd", "CF-hard")]
)
def test_thresholds_are_tuned_on_calibration_pairs_at_the_tests_prevalence(data, test, part, seed):
    row = scores_of(data, seed=seed, skill=0.7)
    share = share_of(data, test, part)
    for one in range(3):
        if test == "crowd":
            rows = np.arange(14)  # its calibration part
            labels, scores = data.tests["crowd"].samples.label[rows], row["crowd"][one][rows]
        else:
            labels, scores = data.dev.label, row["dev"][one]
        wanted = threshold_by_brute_force(labels, scores, share)
        assert es.threshold_of(data, row, test, part, one) == wanted


def test_the_share_of_yes_moves_the_threshold_and_test_scores_do_not(data):
    """Calibration pairs may stand for several, too: only their shares by label matter."""
    row = scores_of(data, seed=1, skill=0.7)
    labels = data.tests["crowd"].samples.label
    found = []
    for weight in (0.01, 1.0, 100.0):
        rows, _ = data.tests["crowd"].parts["CF-all"]
        weights = np.where(labels[rows] == 1, 1.0, weight)
        calibration = np.arange(14)
        base = np.where(labels[:14] == 1, 1.0, 7.0)
        parts = {"calibration": (calibration, base), "CF-all": (rows, weights)}
        crowd = replace(data.tests["crowd"], parts=parts)
        other = replace(data, tests={**data.tests, "crowd": crowd})
        found.append(es.threshold_of(other, row, "crowd", "CF-all", 0))
        share = share_of(other, "crowd", "CF-all")
        wanted = threshold_by_brute_force(labels[:14], row["crowd"][0][:14], share)
        assert found[-1] == wanted
    assert found[0] < found[2]
    moved = {**row, "crowd": row["crowd"].copy(), "T": 1 - row["T"]}
    moved["crowd"][:, 14:] = 1 - moved["crowd"][:, 14:]
    for test, part in (("crowd", "CF-hard"), ("T", "all")):
        found = [es.threshold_of(data, own, test, part, 0) for own in (row, moved)]
        assert found[0] == found[1]


def figures_by_sklearn(data, row, test, part, one, limit):
    rows, weights = data.tests[test].parts[part]
    labels, scores = data.tests[test].samples.label[rows], row[test][one][rows]
    called, options = scores >= limit, {"sample_weight": weights, "zero_division": 0}
    return {
        "auc": 100 * roc_auc_score(labels, scores, sample_weight=weights),
        "ap": 100 * average_precision_score(labels, scores, sample_weight=weights),
        "accuracy": 100 * accuracy_score(labels, called, sample_weight=weights),
        "precision": 100 * precision_score(labels, called, **options),
        "recall": 100 * recall_score(labels, called, **options),
        "f0.5": 100 * fbeta_score(labels, called, beta=0.5, **options),
    }


def limit_of(data, row, test, part, one):
    labels, scores = data.dev.label, row["dev"][one]
    if test == "crowd":
        labels, scores = data.tests["crowd"].samples.label[:14], row["crowd"][one][:14]
    return threshold_by_brute_force(labels, scores, share_of(data, test, part))


@pytest.mark.parametrize("tuned", [True, False])
def test_figures_of_each_training(data, tuned):
    row = scores_of(data)
    for test, part in (("T", "all"), ("crowd", "CF-all"), ("crowd", "CF-hard")):
        found = es.row_figures(data, row, test, part, tuned)
        assert len(found) == 3
        for one, figures in enumerate(found):
            limit = limit_of(data, row, test, part, one) if tuned else 0.5
            wanted = figures_by_sklearn(data, row, test, part, one, limit)
            assert figures == near({**wanted, "threshold": limit})


# --- Contrasts -----------------------------------------------------------------------------------


def test_no_row_is_compared_with_one_that_learned_nothing(data):
    """The mean area over trainings decides; equal scores are chance."""
    good = scores_of(data, 2, 1.5, 1)
    constant = {name: np.full_like(own, 0.5) for name, own in good.items()}
    half = {name: np.concatenate([own[:1], constant[name][:1]]) for name, own in good.items()}
    scores = {"A": good, "B": constant, "C": half}
    assert [es.learned(data, scores, name, "T", "all") for name in "ABCD"] == [
        True, False, True, False
    ]  # fmt: skip
    assert not es.learned(data, scores, "A", "no such test", "all")
    assert es.contrast(data, scores, "A", "B", "T", "all") is None
    assert es.contrast(data, scores, "B", "A", "T", "all") is None
    assert es.contrast(data, scores, "A", "C", "T", "all", draws=5) is not None


@pytest.mark.parametrize(
    ("metric", "tuned"), [*((metric, True) for metric in es.METRICS), ("f0.5", False)]
)
def test_a_contrast_is_the_difference_of_means(data, metric, tuned):
    scores = {"A": scores_of(data, 3, 1.5, 1), "B": scores_of(data, 2, 0.3, 2)}
    for test, part in (("T", "all"), ("crowd", "CF-all")):
        found = es.contrast(data, scores, "A", "B", test, part, metric, tuned, draws=20)
        means = []
        for row in scores.values():  # two trainings of either, the third has no partner
            figures = [
                figures_by_sklearn(
                    data, row, test, part, one,
                    limit_of(data, row, test, part, one) if tuned else 0.5,
                )[metric]
                for one in range(2)
            ]  # fmt: skip
            means.append(np.mean(figures))
        assert found.effect == near(means[0] - means[1])
        assert found.low <= found.effect <= found.high
        assert found.low < found.high
    back = es.contrast(data, scores, "B", "A", test, part, metric, tuned, draws=20)
    assert (back.effect, back.low, back.high) == near((-found.effect, -found.high, -found.low))


@pytest.mark.parametrize("metric", ["auc", "f0.5"])
def test_a_contrasts_interval_is_that_of_images_and_trainings(data, metric):
    """One image, one training: no spread. One image, two trainings: from the worse to the better
    pair of them (a quarter of all draws each). Many images: as resampled by a loop."""
    scores = {"A": scores_of(data, 2, 1.5, 1), "B": scores_of(data, 2, 0.3, 2)}
    test = data.tests["T"]
    alone = replace(test, samples=replace(test.samples, group=("one image",) * 17))
    one = replace(data, tests={**data.tests, "T": alone})
    single = {name: {k: v[:1] for k, v in row.items()} for name, row in scores.items()}
    found = es.contrast(one, single, "A", "B", "T", "all", metric)
    assert found.low == found.effect == found.high
    pairs = []
    for k in (0, 1):
        limits = [limit_of(one, row, "T", "all", k) for row in scores.values()]
        better, worse = (
            figures_by_sklearn(one, row, "T", "all", k, limit)[metric]
            for row, limit in zip(scores.values(), limits, strict=True)
        )
        pairs.append(better - worse)
    found = es.contrast(one, scores, "A", "B", "T", "all", metric)
    assert (found.low, found.high) == near((min(pairs), max(pairs)))
    assert found.effect == near(np.mean(pairs))

    groups, rng, drawn = np.array(test.samples.group), np.random.default_rng(9), []
    labels, names = test.samples.label, sorted(set(test.samples.group))
    limits = [limit_of(data, row, "T", "all", 0) for row in single.values()]
    members = [np.flatnonzero(groups == name) for name in names]
    for _ in range(500):
        rows = np.concatenate([members[k] for k in rng.integers(len(names), size=len(names))])
        truth = labels[rows] == 1
        if truth.any() and not truth.all():
            values = []
            for row, limit in zip(single.values(), limits, strict=True):
                own = row["T"][0][rows]
                if metric == "auc":
                    apart = own[truth][:, None] - own[~truth]
                    values.append(np.mean((apart > 0) + (apart == 0) / 2))
                else:
                    hits = (truth & (own >= limit)).sum()
                    values.append(1.25 * hits / ((own >= limit).sum() + truth.sum() / 4))
            drawn.append(100 * (values[0] - values[1]))
    found = es.contrast(data, single, "A", "B", "T", "all", metric, draws=500)
    low, high = np.quantile(drawn, [0.025, 0.975])
    width = high - low
    assert (found.low, found.high) == (near(low, abs=0.15 * width), near(high, abs=0.15 * width))


def test_a_row_against_itself_and_rows_that_are_not_there(data):
    scores = {"A": scores_of(data), "B": scores_of(data, seed=1)}
    same = es.contrast(data, scores, "A", "A", "crowd", "CF-all", draws=30)
    assert (same.effect, same.low, same.high) == (0, 0, 0)
    assert es.contrast(data, scores, "A", "C", "T", "all") is None
    assert es.contrast(data, scores, "C", "A", "T", "all") is None
    assert es.contrast(data, scores, "A", "B", "SICK triples", "all") is None


# --- Tables --------------------------------------------------------------------------------------


def test_table_3_beside_ours(data):
    scores = {
        "Full": scores_of(data, 3, 1.2, 1),
        "Only TE": scores_of(data, 1, 0.6, 2),
        "Overlap": scores_of(data, 1, 0.2, 3),
        "Elsewhere": {"dev": np.zeros((1, 11))},
    }
    for test, part in (("T", "all"), ("crowd", "CF-all")):
        table = es.table3(data, scores, test, part)
        assert table.index.tolist() == ["Full", "Only TE", "Overlap"]
        wanted = {"Full": [78.1, 80.2, 74.3, 78.9], "Only TE": [71.1, 65.0, 90.9, 68.9]}
        for name, values in wanted.items():  # as printed
            assert table.loc[name, "paper"].tolist() == values
        assert table.loc["Overlap", "paper"].isna().all()
        for name in table.index:
            row = scores[name]
            plain_, tuned = (
                [
                    figures_by_sklearn(
                        data, row, test, part, one,
                        limit_of(data, row, test, part, one) if how else 0.5,
                    )
                    for one in range(len(row[test]))
                ]
                for how in (False, True)
            )  # fmt: skip
            for title, own in (("at 0.5", plain_), ("tuned", tuned)):
                for metric in ("precision", "recall", "f0.5"):
                    mean = np.mean([one[metric] for one in own])
                    assert table.loc[name, (title, metric)] == near(mean, abs=0.051)
            areas = [one["auc"] for one in plain_]
            assert table.loc[name, ("no threshold", "ROC area")] == near(np.mean(areas), abs=0.051)
            mean = np.mean([one["ap"] for one in plain_])
            assert table.loc[name, ("no threshold", "average precision")] == near(mean, abs=0.051)
            spread = table.loc[name, ("no threshold", "±")]
            if len(areas) == 1:
                assert math.isnan(spread)
            else:
                mean = sum(areas) / 3
                wanted_ = math.sqrt(sum((a - mean) ** 2 for a in areas) / 2)
                assert spread == near(wanted_, abs=0.051)


def test_prevalences_by_loops(data):
    table = es.prevalence_table(data)
    assert table.index.tolist() == [
        ("crowd", "calibration"), ("crowd", "CF-all"), ("crowd", "CF-hard"), ("T", "all"),
        ("text", "all"),
    ]  # fmt: skip
    for test, part in table.index:
        rows, weights = data.tests[test].parts[part]
        labels = [int(data.tests[test].samples.label[i]) for i in rows]
        total = sum(weights)
        yes = sum(w for w, label in zip(weights, labels, strict=True) if label)
        line = table.loc[(test, part)]
        assert (line["pairs scored"], line["entailed"]) == (len(labels), sum(labels))
        assert line["stand for"] == round(total)
        assert line["entailed, %"] == near(100 * yes / total, abs=0.051)
        always = f_half(labels, np.ones(len(labels)), weights)
        assert line["F0.5 of always yes"] == near(100 * always, abs=0.051)


def test_errors_by_kind_by_loops(data):
    row = scores_of(data, 3, 0.8)
    table = es.errors_by_kind(data, row, "T")
    test = data.tests["T"]
    limits = [limit_of(data, row, "T", "all", one) for one in range(3)]
    wanted: dict[tuple, list] = {}
    for i, kind in enumerate(test.about):
        title = "entailed" if test.samples.label[i] else "not entailed"
        for one, limit in enumerate(limits):
            called = row["T"][one][i] >= limit
            wrong = bool(called) != bool(test.samples.label[i])
            wanted.setdefault((kind, title), []).append(wrong)
    cells = 0
    for kind in set(test.about):
        for title in ("entailed", "not entailed"):
            if (kind, title) in wanted:
                wrongs = wanted[kind, title]
                assert table.loc[kind, f"{title}, pairs"] == len(wrongs) / 3
                assert table.loc[kind, f"{title}, wrong %"] == near(100 * np.mean(wrongs), abs=0.06)
                cells += 2
            else:
                assert pd.isna(table.loc[kind, f"{title}, pairs"])
    labels, about = test.samples.label, np.array(test.about)
    for kind in set(about[labels == 0]):
        at = (labels == 1) | (about == kind)
        areas = [roc_auc_score(labels[at], row["T"][one][at]) for one in range(3)]
        assert table.loc[kind, "ROC area"] == near(100 * np.mean(areas), abs=0.06)
        cells += 1
    assert table.notna().sum().sum() == cells
    assert {False, True} <= {w for wrongs in wanted.values() for w in wrongs}


def test_anchors_are_the_overlap_with_the_captions(data):
    for test in ("T", "text"):
        samples = data.tests[test].samples
        found = es.anchors(data, test)
        documents = list(data.merged.values())
        for i in range(len(samples)):
            premise = data.merged[samples.premise[i]]
            assert found[i] == near(overlap_loop(premise, samples.hypothesis[i], documents))
    strange = replace(data, merged={"a b": ("a", "b")})  # a premise of one sentence
    text = samples.premise[0]
    wanted = overlap_loop([text], samples.hypothesis[0], [("a", "b")])
    assert es.anchors(strange, "text")[0] == near(wanted)


def test_results_are_a_line_a_test_row_metric_and_seed(data):
    """Of text pairs only the figures without a threshold: the dev set has pictures."""
    scores = {"Full": scores_of(data, 2), "Overlap": scores_of(data, 1, seed=4)}
    rows = es.results(data, scores, BUDGET, [3, 8])
    found = {(r.system, r.dataset, r.metric, r.seed): r.value for r in rows}
    assert len(found) == len(rows) == 3 * (4 * 6 + 2)
    assert len({r.settings for r in rows}) == 1
    for name, seeds in (("Full", [3, 8]), ("Overlap", [3])):
        for test, own in data.tests.items():
            for part in own.parts:
                for one, seed in enumerate(seeds):
                    limit = limit_of(data, scores[name], test, part, one)
                    wanted = figures_by_sklearn(data, scores[name], test, part, one, limit)
                    for metric in ("auc", "ap") if test == "text" else wanted:
                        assert found[name, f"{test}, {part}", metric, seed] == near(wanted[metric])
    other = es.results(data, scores, replace(BUDGET, epochs=2), [3, 8])
    assert other[0].settings != rows[0].settings


def test_text_table_has_the_rows_that_read_text(data):
    scores = {"Full": scores_of(data), "Only TE": scores_of(data, 2, 0.5),
              "Full, TE branch": scores_of(data, 3, 0.7, 4)}  # fmt: skip
    table = es.text_table(data, scores, "text")
    assert table.index.tolist() == ["Only TE", "Full, TE branch"]
    for name in table.index:
        figures = [
            figures_by_sklearn(data, scores[name], "text", "all", one, 0.5)
            for one in range(len(scores[name]["text"]))
        ]
        for column, metric in (("ROC area", "auc"), ("average precision", "ap")):
            mean = np.mean([one[metric] for one in figures])
            assert table.loc[name, column] == near(mean, abs=0.051)
    assert es.text_table(data, {"Full": scores["Full"]}, "text").empty


def test_anchor_table_is_sklearns(data):
    table = es.anchor_table(data)
    assert table.index.tolist() == [
        "crowd, calibration", "crowd, CF-all", "crowd, CF-hard", "T, all", "text, all",
    ]  # fmt: skip
    for test, part in (("crowd", "CF-all"), ("T", "all")):
        rows, weights = data.tests[test].parts[part]
        labels, scores = data.tests[test].samples.label[rows], es.anchors(data, test)[rows]
        line = table.loc[f"{test}, {part}"]
        area = 100 * roc_auc_score(labels, scores, sample_weight=weights)
        precision = 100 * average_precision_score(labels, scores, sample_weight=weights)
        assert line.tolist() == near([area, precision], abs=0.051)


def test_power_by_simulation(data):
    """Two rows that disagree on a fifth of n pairs: is the smallest difference found in 80 %?"""
    table = es.power_table(data)
    for name, n in (("T, all", 17), ("crowd, CF-hard", 20)):
        assert table.loc[name, "pairs"] == n
    weights = data.tests["crowd"].parts["CF-all"][1]
    alone = table.loc["T, all", "smallest difference"] * math.sqrt(17)
    effective = (alone / table.loc["crowd, CF-all", "smallest difference"]) ** 2
    assert effective == near(sum(weights) ** 2 / sum(w * w for w in weights), rel=0.01)
    n, rng = 4000, np.random.default_rng(0)
    difference = alone / math.sqrt(n) / 100
    better, worse = 0.1 + difference / 2, 0.1 - difference / 2
    drawn = rng.multinomial(n, [better, worse, 1 - better - worse], size=4000)
    z = (drawn[:, 0] - drawn[:, 1]) / np.sqrt(drawn[:, 0] + drawn[:, 1])  # McNemar's
    assert (z > 1.96).mean() == near(0.8, abs=0.03)
    assert table.columns[2:].str.removeprefix("full − ").tolist() == [
        "Only TE", "Only VE", "w/o VE data", "w/o TE data", "w/o masking", "w/o BERT",
    ]  # fmt: skip
    assert table.iloc[0, 2:].tolist() == near([10.0, 8.7, 13.3, 2.8, 0.9, 4.3])


def test_error_contrasts_are_rates_of_false_edits_minus_those_of_other_edits(data):
    kinds = ["number", "actor", "object", "colour", "swap", "foreign", "own"]
    about = tuple(np.random.default_rng(0).choice(kinds, 40))
    samples = data.tests["crowd"].samples
    own = replace(data, tests={"world": es._plain_test(samples, about)})
    row = {**scores_of(data, 2, 0.5), "world": scores_of(data, 2, 0.5)["crowd"]}
    found = es.error_contrasts(own, {"Full": row, "Only TE": {}})
    rates = {}
    for kind in ("number", "actor", "object", ("colour", "swap")):
        called = [
            row["world"][one][i] >= limit_of(own, row, "world", "all", one)
            for one in range(2)
            for i in range(40)
            if about[i] in (kind if isinstance(kind, tuple) else (kind,)) and samples.label[i] == 0
        ]
        rates[kind] = 100 * np.mean(called)
    assert len(set(rates.values())) > 2
    titles = {"number": "number", "actor": "person or animal", "object": "other thing"}
    assert set(found) == set(titles.values())
    for kind, title in titles.items():
        assert found[title].effect == near(rates[kind] - rates["colour", "swap"])
        assert found[title].low <= found[title].effect <= found[title].high


# --- The classifier as a judge, and what is known of a collection --------------------------------


def collection_of(**changes):
    """Six images, three of them for tests; two captions each but of one."""
    rng = np.random.default_rng(0)
    captions = tuple(
        tuple(" ".join(rng.choice(VOCABULARY, 3)) for _ in range(1 if i == 4 else 2))
        for i in range(6)
    )
    return begin_of(
        names=tuple(f"image {i}" for i in range(6)),
        features=rng.normal(size=(6, REGIONS, INNER)).astype(np.float32),
        captions=captions, premises=tuple(f"{own[0]} and more" for own in captions),
        rows={"train": np.arange(2), "val": np.arange(2, 3), "test": np.arange(3, 6)},
        **changes,
    ).collection  # fmt: skip


PAIRS = np.array([[2, 0], [0, 0], [1, 3], [0, 4], [2, 2], [1, 1]])


def test_judged_pairs_are_read_with_the_images_captions():
    own = collection_of()
    samples = es.judged_samples(own, "test", PAIRS)
    flat = [text for row in (3, 4, 5) for text in own.captions[row]]
    assert samples.premise == tuple(own.premises[3 + i] for i, _ in PAIRS)
    assert samples.hypothesis == tuple(flat[c] for _, c in PAIRS)
    assert samples.image.tolist() == [3 + i for i, _ in PAIRS]
    assert set(samples.kind) == {"mme"}
    assert es.judged_samples(own, "train", PAIRS[1:2]).image.tolist() == [0]


def test_a_trained_classifier_judges_pairs_of_a_collection(data, tmp_path):
    """In pieces, sorted by length: every pair gets its own probability, by the kept weights."""
    arrays, readers = es.prepare(data, BUDGET, begin_of())
    jobs = es.training_jobs(arrays, BUDGET, "toy", [3], "cpu", ["Full"])
    training.run_jobs(es.train_system, jobs, tmp_path, workers=1)
    own, options = collection_of(), {"workers": 1, "resume": True}
    entailed = es.judge_by(jobs[0][0], tmp_path, arrays, readers, own, "test", **options)
    torch.manual_seed(50)
    model, _ = arrays.model(TINY)
    load_model(model, str(es.weights_path(job_path(tmp_path, jobs[0][0]))))
    rng = np.random.default_rng(1)
    for pairs in (PAIRS, np.column_stack([rng.integers(3, size=40), rng.integers(5, size=40)])):
        found = entailed(pairs)
        samples = es.judged_samples(own, "test", pairs)
        encoded = encode(samples, *readers, TINY.max_premise, TINY.max_hypothesis)
        assert len(found) == len(pairs)
        for row, _, output in one_by_one(model, encoded, own.features):
            no, yes = output.logits["mm"][0].tolist()
            assert found[row] == near(1 / (1 + math.exp(no - yes)), abs=6e-5)
        assert len(set(found)) > 3
        again = entailed(pairs[::-1])  # other pairs are other jobs, whatever was kept
        assert again == near(found[::-1], abs=1e-4)


def test_known_fits_of_a_world():
    truth = np.random.default_rng(0).random((3, 5)) < 0.5
    image_of = [0, 0, 1, 2, 2]
    own = np.array(image_of) == np.arange(3)[:, None]
    fits = truth | own
    collection = collection_of(fits={"test": fits, "train": fits[:2, :4]})
    assert np.array_equal(es.known_fits(collection), fits)
    found = es.many_to_many(collection)
    each = [
        sum(fits[i, c] for c in range(5) if image_of[c] != i) - image_of.count(i) for i in range(3)
    ]
    assert set(found) == {"toy"}
    assert found["toy"].effect == near(np.mean(each))
    assert es.known_fits(collection_of()) is None
    assert es.many_to_many(collection_of()) == {}


def test_known_fits_of_the_crowd(judged):
    """Majority yes of judged pairs, and own captions; foreign ones count for all five captions."""
    collection = begin_of(
        names=tuple(NAMES["test"]),
        captions=tuple(tuple(CAPTIONS[name]) for name in NAMES["test"]),
        rows={"test": np.arange(12)}, judged=judged,
    ).collection  # fmt: skip
    wanted = np.zeros((12, 60), bool)
    for i in range(12):
        wanted[i, 5 * i : 5 * i + 5] = True
    foreign = np.zeros(12)
    for a, b, yes, no in VOTES:
        if yes > no:
            wanted[a, 5 * b + 2] = True
            foreign[a] += a != b
    assert np.array_equal(es.known_fits(collection), wanted)
    found = es.many_to_many(collection)["toy"]
    assert found.effect == near(np.mean(5 * foreign - 5))
    assert found.low < found.effect < found.high


def test_own_captions_that_the_crowd_rejects(folder, tmp_path, monkeypatch):
    own = [(yes, no) for a, b, yes, no in VOTES if a == b]
    rejected, n = sum(no > yes for yes, no in own), len(own)
    assert 0 < rejected < n
    found = es.golden_errors()
    wanted = (
        100 * rejected / n,
        100 * stats.beta.ppf(0.025, rejected, n - rejected + 1),  # Clopper and Pearson, 1934
        100 * stats.beta.ppf(0.975, rejected + 1, n - rejected),
    )
    assert (found.effect, found.low, found.high) == near(wanted, rel=1e-6)
    report = es.crowd_report()
    assert float(report["own pairs, no"]) == rejected
    assert float(report["cross pairs"]) == sum(a != b for a, b, *_ in VOTES)
    monkeypatch.setenv("MMLIB_DATA", str(tmp_path))
    assert es.golden_errors() is None
    assert es.crowd_report() is None
