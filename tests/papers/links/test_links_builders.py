"""Documents built from captioned images: random ones, look-alikes, and upload sessions."""

from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from PIL import Image

from mmlib.core.records import CaptionedImages, normalised
from mmlib.papers.links.data import builders
from mmlib.papers.links.data.builders import cohesive, random_documents, stress, unlabelled_articles
from mmlib.papers.links.data.documents import SPLITS, cluster_numbers
from mmlib.papers.links.data.sessions import CAPTIONS, by_session, organic, photo_number, sessions

coco, mixed5 = (partial(random_documents, kind) for kind in ("coco", "mixed5"))
THEMES = 12


def collection(split, ids, features, captions):
    return CaptionedImages(
        "toy", split, tuple(ids), tuple(captions), features.astype(np.float32),
        open_image=lambda row: Image.new("RGB", (1, 1)),
    )  # fmt: skip


def fake_split(split, count, width=16):
    """Images of twelve themes: features lie around the theme's vector, captions name the theme."""
    rng = np.random.default_rng((SPLITS.index(split), 7))
    centres = np.random.default_rng(1).normal(size=(THEMES, 1, width))
    theme = rng.integers(0, THEMES, count)
    captions = [
        tuple(f"{split} picture {row} of theme{theme[row]} told {c}" for c in range(5))
        for row in range(count)
    ]
    features = centres[theme] + 0.5 * rng.normal(size=(count, 4, width))
    return collection(split, [f"{split}-{row:04d}" for row in range(count)], features, captions)


@pytest.fixture(scope="module")
def splits():
    return {s: fake_split(s, n) for s, n in (("train", 310), ("val", 130), ("test", 130))}


@pytest.fixture(scope="module")
def alike(splits):
    return cohesive(splits, {"train": 90})


@pytest.fixture(scope="module")
def built(splits, alike):
    """Every builder's corpus."""
    many = {split: 24 for split in SPLITS}
    return {
        "coco": coco(splits, {"train": 60, **many}),
        "mixed5": mixed5(splits, many),
        "cohesive": alike,
        "stress": stress(alike, splits),
        "unlabelled": unlabelled_articles(alike, splits, sentences=(12, 30)),
    }


@pytest.fixture(scope="module")
def captions_of(splits):
    return {
        image: {normalised(c) for c in each}
        for part in splits.values()
        for image, each in zip(part.ids, part.captions, strict=True)
    }


@pytest.mark.parametrize(
    ("kind", "sentences", "images"),
    [("coco", 10, 10), ("mixed5", 5, 5), ("cohesive", 5, 5), ("stress", 50, 5)],
)
def test_sizes_are_the_papers_and_links_say_what_the_captions_say(
    built, captions_of, kind, sentences, images
):
    for split in SPLITS:
        documents = built[kind].split(split)
        assert len(documents) >= 20
        assert split == "train" or cluster_numbers(documents).max() > 0
        for document in documents:
            matrix = document.link_matrix()
            assert matrix.shape == (sentences, images)
            assert matrix.sum() == 5
            assert matrix.sum(axis=0).max() == matrix.sum(axis=1).max() == 1
            right = [
                [normalised(s) in captions_of[v] for v in document.images]
                for s in document.sentences
            ]
            assert (matrix == right).all()
            for sentence, source in zip(document.sentences, document.sources, strict=True):
                assert normalised(sentence) in captions_of[source]


def test_unlabelled_documents_hold_no_label_and_the_key_lies_apart(built, captions_of):
    articles = built["unlabelled"]
    documents = [document for split in SPLITS for document in articles.split(split)]
    assert not any(document.labelled or document.sources for document in documents)
    assert {len(document.images) for document in documents} == {5}
    lengths = {len(document.sentences) for document in documents}
    assert (min(lengths) >= 12, max(lengths) <= 30, len(lengths) > 5) == (True, True, True)
    linked = set()
    for document, links in zip(articles.test, articles.key, strict=True):
        right = [
            [normalised(s) in captions_of[v] for v in document.images] for s in document.sentences
        ]
        assert (links == right).all()
        linked |= {*links.sum(axis=0).tolist()}
    assert linked == {0, 1, 2, 3, 4, 5}


@pytest.mark.parametrize("kind", ["coco", "mixed5", "cohesive", "stress"])
def test_position_carries_nothing(splits, kind):
    """Mean AUC of cell positions as scores is 50."""
    build = {"coco": coco, "mixed5": mixed5}.get(kind, cohesive)
    corpus = build(splits, {"train": 400})
    documents = (stress(corpus, splits) if kind == "stress" else corpus).train
    links = np.stack([document.link_matrix() for document in documents])
    rows, columns = np.indices(links[0].shape)
    # 5 of 25 cells at random: an AUC's deviation is 15, that of the mean of 400 is 0.75.
    for scores in (rows, columns, -np.abs(rows - columns)):
        gaps = [scores[matrix][:, None] - scores[~matrix] for matrix in links]
        auc = 100 * np.mean([np.mean((gap > 0) + 0.5 * (gap == 0)) for gap in gaps])
        assert auc == pytest.approx(50, abs=3)


def test_documents_are_the_same_each_time_and_more_of_them_leave_the_first_ones(splits, alike):
    articles = partial(unlabelled_articles, alike, sentences=(12, 30))
    for build in (coco, mixed5, cohesive, partial(stress, alike), articles):
        first, again = build(photos=splits), build(photos=splits)
        assert (first.train, first.val, first.test) == (again.train, again.val, again.test)
    for build in (coco, mixed5, cohesive):
        few, many = build(splits, {"train": 7}), build(splits, {"train": 70})
        assert few.train == many.train[:7]
        assert few.test == many.test


def test_groups_are_of_one_theme_fresh_in_training_and_kept_in_test(splits):
    corpus = cohesive(splits, {"train": 150, "test": 60})

    def themes(documents):
        named = [{s.split("theme")[1].split()[0] for s in d.sentences} for d in documents]
        return np.mean([len(each) for each in named])

    assert themes(corpus.test) < 2
    assert themes(mixed5(splits).test) > 3
    assert len({frozenset(d.images) for d in corpus.train}) > 0.9 * len(corpus.train)
    groups = {}
    for document in corpus.test:
        assert groups.setdefault(document.cluster, set(document.images)) == set(document.images)
    texts = [sentence for document in corpus.test for sentence in document.sentences]
    assert len(texts) == len(set(texts))


def test_near_duplicates_are_kept_apart(splits, monkeypatch):
    """Twins planted beside a tenth of the images never meet in a document."""
    part = splits["train"]
    features = np.array(part.features)
    rng = np.random.default_rng(0)
    twins = range(0, 300, 10)
    for row in twins:
        features[row + 1] = features[row] + 0.001 * rng.normal(size=features[row].shape)
    planted = {**splits, "train": replace(part, features=features)}

    def together():
        pairs = [{part.ids[row], part.ids[row + 1]} for row in twins]
        return sum(pair <= set(d.images) for d in cohesive(planted).train for pair in pairs)

    # A tenth of the images have a twin, so the ceiling must lie below the top tenth.
    monkeypatch.setattr(builders, "NEAR_DUPLICATE", 1.0)
    assert together() > 10
    monkeypatch.setattr(builders, "NEAR_DUPLICATE", 0.75)
    assert together() == 0


def test_the_loosest_groups_are_left_out(splits, monkeypatch):
    tight = {frozenset(d.images) for d in cohesive(splits).train}
    monkeypatch.setattr(builders, "TIGHTEST", 1.0)
    everything = {frozenset(d.images) for d in cohesive(splits).train}
    assert len(tight) == int(0.9 * (len(everything) - 1)) + 1
    assert tight < everything


def test_stress_documents_are_cohesive_ones_with_captions_of_others(built, splits, alike):
    for split in SPLITS:
        number = {d.id.rsplit("-", 1)[1]: d for d in alike.split(split)}
        assert len(built["stress"].split(split)) == len(number)
        for document in built["stress"].split(split):
            twin = number[document.id.rsplit("-", 1)[1]]
            assert set(twin.images) == set(document.images)
            linked = {document.sentences[i]: document.images[j] for i, j in document.links}
            assert {twin.sentences[i]: twin.images[j] for i, j in twin.links} == linked
    for per_source in (1, 3):
        for document in stress(alike, splits, per_source=per_source).test:
            assert max(Counter(document.sources).values()) <= per_source
    assert all(len(d.sentences) == 15 for d in stress(alike, splits, captions=10).train)


def test_too_few_images_say_so_and_too_few_captions_are_counted(splits):
    small = {**splits, "val": fake_split("val", 14)}
    with pytest.raises(ValueError, match="val has 14 usable images; give it 30"):
        coco(small)
    with pytest.raises(ValueError, match="val has 4 usable images, no 5 of them alike"):
        cohesive({**splits, "val": fake_split("val", 4)})
    with pytest.raises(ValueError, match=r"test: 500 documents asked for, \d+ can be made"):
        cohesive(splits, {"test": 500})
    with pytest.raises(ValueError, match=r"val has \d+ groups of similar images, needs 10"):
        stress(cohesive(small), small)
    part = splits["val"]
    same = tuple(("a dog .",) if row % 2 else part.captions[row] for row in range(130))
    with pytest.warns(UserWarning, match="coco: left out .* unfilled documents"):
        corpus = coco({**splits, "val": replace(part, captions=same)})
    assert all(len(set(document.sentences)) == 10 for document in corpus.val)


# --- Upload sessions -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def uploads():
    """Uploads of 1 to 3 photos 40 ids apart, uploads a million apart; one's look alike."""
    rng, splits = np.random.default_rng(0), {}
    for split, count, number in (("train", 160, 0), ("val", 40, 10**9), ("test", 40, 2 * 10**9)):
        ids, features, captions = [], [], []
        while len(ids) < count:
            number += 1_000_000
            theme = rng.normal(size=(1, 12))
            for step in range(rng.integers(1, 4)):
                text = f"{split} word{len(ids)} told{{}} thing{number}"
                ids.append(f"{number + 40 * step}_{split}.jpg")
                features.append(theme + 0.3 * rng.normal(size=(4, 12)))
                captions.append(tuple(text.format(k) for k in range(5)))
        splits[split] = collection(split, ids, np.array(features), captions)
    return splits


def test_sessions_need_ids_as_near_as_their_likeness_allows():
    numbers = [0, 200, 1_000_000, 1_005_000, 2_000_000, 2_005_000, 3_000_000, 3_050_000]
    pictures = np.eye(208)[np.r_[0, 1, 2, 2, 4, 5, 6, 6, 8:208]]
    texts = np.eye(208)[np.r_[0, 1, 2, 3, 4, 5, 6, 6, 8:208]]
    others = [10**8 + 10**6 * i for i in range(200)]  # make a random pair alike to nothing
    groups = {tuple(rows.tolist()) for rows in sessions(numbers + others, pictures, texts)}
    assert groups == {(0, 1), (2, 3), (6, 7)}  # close; near and alike; far and alike in both
    long_run = list(range(0, 70, 10)) + [10**8 + 10**6 * i for i in range(30)]
    assert sessions(long_run, np.eye(37), np.eye(37)) == []  # no album


def test_sessions_stay_whole_and_val_and_test_hold_nothing_else(uploads):
    dealt, grouped = by_session(uploads)
    every = [image for s in SPLITS for image in dealt[s].ids]
    assert sorted(every) == sorted(image for s in SPLITS for image in uploads[s].ids)
    for split in SPLITS:
        rows = np.concatenate(grouped[split])
        assert len(set(rows.tolist())) == len(rows)
        if split != "train":
            assert sorted(rows.tolist()) == list(range(len(dealt[split].ids)))
        for session in grouped[split]:
            assert len({photo_number(dealt[split].ids[row]) // 1000 for row in session}) == 1


def test_documents_of_sessions_are_uneven_and_shown_again_with_other_captions(uploads):
    corpus = organic(uploads, {"train": 90, "val": 10, "test": 90})
    assert [len(corpus.split(split)) for split in SPLITS] == [90, 10, 90]  # none is left out
    sizes = set()
    for document in (*corpus.train, *corpus.val, *corpus.test):
        links = document.link_matrix()
        assert (links.sum(axis=1) == 1).all()  # every sentence is of one photo
        assert len(document.sentences) >= 2
        assert 2 <= len(document.images) <= 6
        assert links.sum(axis=0).max() < len(CAPTIONS)
        sizes.add(links.shape)
    assert len(sizes) > 4
    shown, texts = {}, Counter(document.sentences for document in corpus.test)
    for document in corpus.test:
        assert shown.setdefault(document.cluster, {*document.images}) == {*document.images}
    assert len(shown) < len(corpus.test)
    assert max(texts.values()) == 1


def test_look_alikes_are_disjoint_and_near():
    unit = np.repeat(np.eye(4), 3, axis=0)
    groups = builders.look_alikes(unit, np.arange(12), np.random.default_rng(0), lambda: 3)
    assert {tuple(sorted(group.tolist())) for group in groups} == {
        (0, 1, 2), (3, 4, 5), (6, 7, 8), (9, 10, 11)
    }  # fmt: skip
