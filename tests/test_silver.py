"""Silver relations: no leaks in the folds, thresholds, labels, and what Clue tells."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from sklearn.metrics import roc_auc_score

from mmlib import silver
from mmlib.core.records import CaptionedImages
from mmlib.core.related import RelatedPairs
from mmlib.core.tables import paper_values
from mmlib.data import clue, flickr8k

WORDS = "dog cat boy girl house tree river road hill car boat horse ball field snow".split()
RELATIONS = ("Visible", "Subjective", "Story")
MARKS = ("standing", "beautiful", "history")


def captions(count: int, seed: int = 0, told: float = 0.9) -> RelatedPairs:
    """Two captions an image; a relation's word stands in its captions with the chance `told`."""
    rng = np.random.default_rng(seed)
    labels = rng.random((count, 3)) < [0.6, 0.3, 0.4]
    said = labels & (rng.random(labels.shape) < told)
    texts = tuple(
        " ".join([*rng.choice(WORDS, 5), *np.array(MARKS)[row]]).capitalize() + " ." for row in said
    )
    images = tuple(f"{seed}-{i}" for i in range(-(-count // 2)))
    return RelatedPairs("toy", "train", texts, labels, RELATIONS, np.arange(count) // 2, images)


def repeated(count: int = 400, seed: int = 0) -> RelatedPairs:
    """Captions that come back word for word with the same random labels, under other images."""
    rng = np.random.default_rng(seed)
    kinds = 80
    labels = rng.random((kinds, 3)) < 0.4
    texts = [" ".join(f"w{i}" for i in rng.integers(300, size=6)) for _ in range(kinds)]
    pick = rng.integers(kinds, size=count)
    return RelatedPairs(
        "toy", "train", tuple(texts[i].upper() if i % 2 else f"{texts[i]}." for i in pick),
        labels[pick], RELATIONS, np.arange(count), tuple(map(str, range(count))),
    )  # fmt: skip


@pytest.fixture(scope="module")
def train() -> RelatedPairs:
    return captions(400)


@pytest.fixture(scope="module")
def classifier(train: RelatedPairs) -> silver.RelationClassifier:
    return silver.train_classifier(train)


# --- Folds ------------------------------------------------------------------------------------


def test_groups_join_what_shares_an_image_or_a_text_also_by_way_of_others():
    pairs = RelatedPairs(
        "toy", "train", ("a dog", "A dog .", "a cat", "two cats", "a cow"), np.zeros((5, 1), bool),
        ("x",), np.array([0, 1, 1, 2, 3]), ("p", "q", "r", "s"),
    )  # fmt: skip
    first, *others = silver.sharing_groups(pairs)
    assert list(others) == [first, first, others[2], others[3]]
    assert len({first, others[2], others[3]}) == 3
    by_image = silver.sharing_groups(pairs, "image")
    assert by_image[1] == by_image[2]
    assert len(set(by_image)) == 4
    assert len(set(silver.sharing_groups(pairs, "row"))) == 5


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 12), st.sampled_from(WORDS)), min_size=40, max_size=80),
    st.integers(0, 5),
)
def test_folds_share_neither_image_nor_text(made, seed):
    images, texts = zip(*made, strict=True)
    # Five pairs of their own, so that five folds exist whatever was drawn.
    images, texts = (*images, *range(50, 55)), (*texts, *"vwxyz")
    pairs = RelatedPairs(
        "toy", "train", texts, np.zeros((len(texts), 1), bool), ("x",), np.array(images),
        tuple(map(str, range(60))),
    )  # fmt: skip
    held_rows = []
    for fit, held in silver.folds(pairs, seed):
        assert not {images[i] for i in fit} & {images[i] for i in held}
        assert not {texts[i] for i in fit} & {texts[i] for i in held}
        held_rows += list(held)
    assert sorted(held_rows) == list(range(len(texts)))


def test_repeated_captions_look_learned_unless_the_folds_keep_them_together():
    table = silver.leak_table(repeated())
    assert (table["no row shared"] > 0.95).all()
    assert (table["no image shared"] > 0.95).all()  # every image is new, the text is not
    assert (table["no image or text shared"] < table["chance"] + 0.25).all()


def test_what_is_never_positive_cannot_be_learned(train):
    labels = train.labels.copy()
    labels[:, 1] = False
    with pytest.raises(ValueError, match="Subjective is never positive in 400 training pairs"):
        silver.train_classifier(replace(train, labels=labels, name="toy"))


# --- Training ---------------------------------------------------------------------------------


def test_finds_the_words_that_were_put_in(train, classifier):
    test = captions(200, seed=1)
    table = silver.average_precisions(classifier, test, draws=100)
    assert (table["low"] > table["chance"]).all()
    assert (table["ROC low"] > 0.8).all()
    assert list(table["positives"]) == list(test.labels.sum(0))
    words = silver.indicative_words(classifier, train, top=1)["word"]
    assert tuple(words) == MARKS


def test_learns_nothing_where_there_is_nothing_to_learn():
    silent = silver.train_classifier(captions(400, told=0))
    table = silver.average_precisions(silent, captions(300, seed=1, told=0), draws=200)
    assert (table["ROC low"] < 0.5).any()
    assert (table["ROC"] < 0.62).all()


def test_same_seed_same_classifier(train, classifier):
    again = silver.train_classifier(train)
    np.testing.assert_array_equal(
        again.probabilities(train.texts), classifier.probabilities(train.texts)
    )
    for rule, thresholds in again.thresholds.items():
        np.testing.assert_array_equal(thresholds, classifier.thresholds[rule])
    other = silver.train_classifier(train, seed=1)
    assert (other.thresholds["f1"] != classifier.thresholds["f1"]).any()


def test_punctuation_and_capitals_do_not_count(classifier):
    plain, dressed = classifier.probabilities(["a beautiful dog", "A beautiful dog ."])
    np.testing.assert_array_equal(plain, dressed)
    assert classifier.probabilities([]).shape == (0, 3)


def test_every_candidate_is_compared(train):
    table = silver.compare(train.take(range(200)))
    assert list(table.index) == list(silver.candidates())
    assert silver.CHOSEN in table.index
    assert table[["mean", "Brier"]].notna().all(axis=None)
    assert (table["Brier"] < 0.2).all()


def test_only_training_pairs_shape_the_thresholds(train, classifier):
    held = silver.held_out(train)
    rate = (held >= classifier.thresholds["rate"]).mean(0)
    np.testing.assert_allclose(rate, train.labels.mean(0), atol=0.01)
    for c, threshold in enumerate(classifier.thresholds["f1"]):
        truth, score = train.labels[:, c], held[:, c]
        called = score >= np.append(score, threshold)[:, None]
        f1 = 2 * (called & truth).sum(1) / (called.sum(1) + truth.sum())
        assert f1[-1] == pytest.approx(f1.max())


# --- Measures ---------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=2, max_size=30))
def test_roc_area_agrees_with_scikit_learn(made):
    labels, scores = (np.array(column) for column in zip(*made, strict=True))
    own = silver._roc_area(labels, scores)
    if labels.all() or not labels.any():
        assert np.isnan(own)
    else:
        assert own == pytest.approx(roc_auc_score(labels, scores))


def test_a_relation_that_the_pairs_lack_has_no_precision(classifier):
    test = captions(60, seed=2)
    labels = test.labels.copy()
    labels[:, 2] = False
    table = silver.average_precisions(classifier, replace(test, labels=labels), draws=20)
    assert np.isnan(table.loc["Story", ["AP", "low", "ROC"]].to_numpy(float)).all()
    assert table.loc["Visible", "AP"] > 0.8


def test_calibration(classifier):
    test = captions(300, seed=3)
    table = silver.reliability(classifier, test, bins=4)
    assert list(table.groupby("relation")["pairs"].sum()) == [300] * 3
    for _, bins in table.groupby("relation"):
        assert bins["said"].is_monotonic_increasing
        assert np.average(bins["said"], weights=bins["pairs"]) == pytest.approx(
            bins["seen"].mean(), abs=0.1
        )
    scores = silver.brier_scores(classifier, test)
    assert (scores["Brier"] < scores["of the rate"]).all()


def test_stands_beside_the_papers_table_8(train):
    six = RelatedPairs(
        "toy", "test", train.texts, np.tile(train.labels, 2), clue.RELATIONS, train.image_of,
        train.image_ids,
    )  # fmt: skip
    ours = silver.average_precisions(silver.train_classifier(six), six, draws=10)
    table = silver.beside_table8({"toy": ours})
    paper = paper_values("coherence", "table8")
    assert list(table.index) == list(clue.RELATIONS)
    assert list(table["paper", "CMCM"]) == list(paper.loc["CMCM"])
    assert table.loc["Story", ("paper", "CMCM_c")] == paper.loc["CMCM_Story", "Story"]
    assert table.loc["Story", ("toy", "text alone")].startswith(f"{ours.loc['Story', 'AP']:.2f} [")


# --- Labels -----------------------------------------------------------------------------------


def test_rules():
    probabilities = np.tile([0.2, 0.5, 0.9], (20_000, 1))
    thresholds = {"half": np.full(3, 0.5), "rate": np.array([0.2, 0.6, 0.95])}
    assert silver.to_labels(probabilities, "half", thresholds)[0].tolist() == [False, True, True]
    assert silver.to_labels(probabilities, "rate", thresholds)[0].tolist() == [True, False, False]
    drawn = silver.to_labels(probabilities, "drawn", thresholds, seed=4)
    np.testing.assert_allclose(drawn.mean(0), [0.2, 0.5, 0.9], atol=0.02)
    np.testing.assert_array_equal(drawn, silver.to_labels(probabilities, "drawn", {}, seed=4))
    with pytest.raises(ValueError, match="no rule 'third'"):
        silver.to_labels(probabilities, "third", thresholds)


def test_usable():
    labels = np.zeros((200, 5), bool)
    labels[:1, 1] = True
    labels[:2, 2] = True
    labels[:199, 3] = True
    labels[:, 4] = True
    assert silver.usable(labels).tolist() == [False, False, True, False, False]
    assert silver.usable(labels, least=0.0).tolist() == [False, True, True, True, False]


@pytest.fixture
def photographs(monkeypatch) -> None:
    """Two small splits in place of Flickr8k's, five captions an image."""

    def load(split, folder=None):
        texts = captions(200, seed=len(split)).texts
        return CaptionedImages(
            "flickr8k", split, tuple(f"{split}{i}" for i in range(40)),
            tuple(texts[i : i + 5] for i in range(0, 200, 5)), np.ones((40, 2, 3), np.float32),
            lambda row: Image.new("RGB", (8, 8), (row, 0, 0)),
        )  # fmt: skip

    monkeypatch.setattr(flickr8k, "load", load)


@pytest.mark.usefixtures("photographs")
def test_silver_pairs(classifier):
    first = silver.silver_pairs("train", classifier=classifier)
    every = silver.silver_pairs("train", classifier=classifier, captions="all")
    assert (len(first), len(every)) == (40, 200)
    assert first.texts == every.texts[::5]
    assert list(every.image_of[:6]) == [0, 0, 0, 0, 0, 1]
    np.testing.assert_array_equal(first.labels, every.labels[::5])
    np.testing.assert_array_equal(every.labels, classifier.labels(every.texts))
    assert first.open_image(7).getpixel((0, 0)) == (7, 0, 0)
    assert first.features.shape == (40, 2, 3)
    two = silver.silver_pairs("train", classifier=classifier, relations=("Story", "Visible"))
    np.testing.assert_array_equal(two.labels, first.labels[:, [2, 0]])
    with pytest.raises(ValueError, match="no captions 'last'"):
        silver.silver_pairs("train", captions="last", classifier=classifier)
    with pytest.raises(ValueError, match="no relation 'Meta'"):
        silver.silver_pairs("train", relations=("Meta",), classifier=classifier)


@pytest.mark.usefixtures("photographs")
def test_drawn_labels_repeat_with_the_seed_and_differ_between_splits(classifier):
    def drawn(split, seed):
        pairs = silver.silver_pairs(split, seed, "all", "drawn", classifier=classifier)
        return pairs.labels ^ (classifier.probabilities(pairs.texts) >= 0.5)

    np.testing.assert_array_equal(drawn("train", 1), drawn("train", 1))
    assert (drawn("train", 1) != drawn("train", 2)).any()
    assert (drawn("train", 1) != drawn("val", 1)).any()


def test_examples_and_words(train, classifier):
    texts = ["a beautiful dog", "a dog", "a dog", "zebra history"]
    table = silver.likeliest(classifier, texts, top=3)
    assert len(table) == 9
    assert table["text"].value_counts().max() == 3
    assert table[table.relation == "Subjective"]["text"].iloc[0] == "a beautiful dog"
    assert silver.known_words(train, ["beautiful dog", "zebra ."]) == pytest.approx(2 / 3)
    rows = silver.examples(train, "Story", positive=False, count=7)
    assert len(set(rows)) == 7
    assert not train.labels[rows, 2].any()
    rates = silver.rates(classifier, train, texts)
    assert rates.loc["Subjective", "half"] == 0.25
    assert list(rates["training pairs"]) == list(train.labels.mean(0))


# --- What the image tells ---------------------------------------------------------------------


def pictured(count: int, seed: int) -> RelatedPairs:
    """One relation that the features show, one that they do not, one that never holds."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(count, 2, 4)).astype(np.float32)
    labels = rng.random((count, 3)) < [0.5, 0.5, 0]
    features[:, :, 0] += 2 * labels[:, :1]
    texts = ("a text",) * count
    images = tuple(map(str, range(count)))
    return RelatedPairs(
        "toy", "train", texts, labels, RELATIONS, np.arange(count), images, features
    )


def test_image_signal():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = silver.image_signal(pictured(600, 0), pictured(300, 1), draws=200)
    assert table.loc["Visible", "low"] > 0.9
    assert table.loc["Subjective", "low"] < 0.5 < table.loc["Subjective", "high"]
    assert np.isnan(table.loc["Story", "ROC"])
    assert table.loc["Story", "rate"] == 0
    with pytest.raises(ValueError, match="no image features"):
        silver.image_signal(captions(20), pictured(20, 0))


# --- Real data --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clue_pairs(real_data):
    if not (real_data / "clue").is_dir():
        pytest.skip(f"no real data: MMLIB_DATA={real_data} has no folder clue")
    return clue.load("train", real_data / "clue"), clue.load("test", real_data / "clue")


@pytest.fixture(scope="module")
def of_clue(real_data, clue_pairs):
    return silver.clue_classifier(0, real_data / "clue")


@pytest.mark.real
def test_clue_relations_can_be_told_from_text_but_irrelevant(clue_pairs, of_clue):
    train, test = clue_pairs
    _, clean = clue.clean_rows(test, train)
    table = silver.average_precisions(of_clue, test.take(clean), draws=200)
    told = table.drop("Irrelevant")
    assert (told["low"] > told["chance"]).all()
    assert (told["ROC low"] > 0.6).all()
    assert table.loc["Irrelevant", "low"] < table.loc["Irrelevant", "chance"]
    # On the authors' rows it seems to be told as well: captions come back from the training rows.
    authors = silver.average_precisions(of_clue, test, draws=200)
    assert authors.loc["Irrelevant", "low"] > 2 * authors.loc["Irrelevant", "chance"]
    assert table.loc["Irrelevant", "AP"] < authors.loc["Irrelevant", "low"] / 2


@pytest.mark.real
def test_irrelevant_of_clue_is_a_few_repeated_captions(clue_pairs):
    table = silver.leak_table(clue_pairs[0])
    fall = table["no image shared"] - table["no image or text shared"]
    assert fall["Irrelevant"] > 0.1
    assert fall.drop("Irrelevant").max() < 0.06


@pytest.mark.real
@pytest.mark.slow
def test_the_chosen_candidate_is_hardly_worse_than_the_best(clue_pairs):
    table = silver.compare(clue_pairs[0])
    chosen = table.loc[silver.CHOSEN]
    assert chosen["Brier"] < table["Brier"].min() + 0.002
    assert chosen["mean"] > table["mean"].max() - 0.01


@pytest.mark.real
def test_silver_labels_of_flickr8k(real_data, clue_pairs, of_clue):
    folder = real_data / "flickr8k"
    pairs = {
        split: silver.silver_pairs(split, classifier=of_clue, folder=folder)
        for split in ("train", "val")
    }
    assert len(pairs["train"]) == 6000
    assert silver.usable(pairs["train"].labels).all()
    rates = silver.rates(of_clue, clue_pairs[0], pairs["train"].texts)
    assert (rates.loc[["Subjective", "Irrelevant"], "half"] < 0.01).all()
    assert rates.loc["Visible", "f1"] > 0.95
    # The image tells a little about the labels, the probe far more about what is seen.
    signal = silver.image_signal(pairs["train"], pairs["val"], draws=200)
    assert 0.5 < signal.loc["Story", "low"]
    assert (signal["ROC"] < 0.75).all()
    dogs = {
        split: replace(
            own, labels=np.array([["dog" in t.lower().split()] for t in own.texts]),
            relations=("dog",),
        )
        for split, own in pairs.items()
    }  # fmt: skip
    assert silver.image_signal(dogs["train"], dogs["val"], draws=200).loc["dog", "low"] > 0.9
