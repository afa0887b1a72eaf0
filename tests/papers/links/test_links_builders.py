from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from PIL import Image

from mmlib.core.records import CaptionedImages, normalised
from mmlib.papers.links.data import builders
from mmlib.papers.links.data.builders import (
    cohesive,
    random_documents,
    stress,
    unlabelled_articles,
)
from mmlib.papers.links.data.documents import SPLITS, cluster_numbers

coco, mixed5 = (partial(random_documents, kind) for kind in ("coco", "mixed5"))
THEMES = 12


def fake_split(split, count, captions=5, width=16):
    """Images of twelve themes: features lie around the theme's vector, captions name the theme."""
    rng = np.random.default_rng((SPLITS.index(split), 7))
    centres = np.random.default_rng(1).normal(size=(THEMES, 1, width))
    theme = rng.integers(0, THEMES, count)
    features = centres[theme] + 0.5 * rng.normal(size=(count, 4, width))
    return CaptionedImages(
        name="toy",
        split=split,
        ids=tuple(f"{split}-{row:04d}" for row in range(count)),
        captions=tuple(
            tuple(f"{split} picture {row} of theme{theme[row]} told {c}" for c in range(captions))
            for row in range(count)
        ),
        features=features.astype(np.float32),
        open_image=lambda row: Image.new("RGB", (1, 1)),
    )


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
    articles, key = unlabelled_articles(alike, splits, sentences=(12, 30))
    return {
        "coco": coco(splits, {"train": 60, **many}),
        "mixed5": mixed5(splits, many),
        "cohesive": alike,
        "stress": stress(alike, splits),
        "unlabelled": articles,
        "key": key,
    }


LABELLED = ("coco", "mixed5", "cohesive", "stress")


@pytest.mark.parametrize(
    ("kind", "sentences", "images", "links"),
    [("coco", 10, 10, 5), ("mixed5", 5, 5, 5), ("cohesive", 5, 5, 5), ("stress", 50, 5, 5)],
)
def test_sizes_and_densities(built, kind, sentences, images, links):
    for split in SPLITS:
        assert len(built[kind].split(split)) >= 20
        assert split == "train" or cluster_numbers(built[kind].split(split)).max() > 0
        for document in built[kind].split(split):
            matrix = document.link_matrix()
            assert matrix.shape == (sentences, images)
            assert matrix.sum() == links
            assert matrix.sum(axis=0).max() == matrix.sum(axis=1).max() == 1
    density = {"coco": 0.05, "mixed5": 0.2, "cohesive": 0.2, "stress": 0.02}[kind]
    assert np.mean([d.link_matrix().mean() for d in built[kind].test]) == pytest.approx(density)


@pytest.mark.parametrize("kind", LABELLED)
def test_links_say_what_the_captions_say(built, kind, splits):
    """Against the collection itself: linked cells, and only these, are captions of their image."""
    captions = {
        image: {normalised(c) for c in each}
        for part in splits.values()
        for image, each in zip(part.ids, part.captions, strict=True)
    }
    for split in SPLITS:
        for document in built[kind].split(split):
            right = [
                [normalised(s) in captions[v] for v in document.images] for s in document.sentences
            ]
            np.testing.assert_array_equal(document.link_matrix(), right)
            for sentence, source in zip(
                document.sentences, built[kind].sources[document.id], strict=True
            ):
                assert normalised(sentence) in captions[source]


def position_auc(documents, cells):
    """Mean AUC of cell positions as scores: 50 where positions carry nothing."""

    def auc(links, scores):
        gaps = scores[links][:, None] - scores[~links]
        return np.mean((gaps > 0) + 0.5 * (gaps == 0))

    return 100 * np.mean([auc(d.link_matrix().ravel(), cells(d)) for d in documents])


@pytest.mark.parametrize("kind", ["coco", "mixed5", "cohesive", "stress"])
def test_position_carries_nothing(splits, kind):
    similar = cohesive(splits, {"train": 400})
    corpus = {
        "coco": lambda: coco(splits, {"train": 400}),
        "mixed5": lambda: mixed5(splits, {"train": 400}),
        "cohesive": lambda: similar,
        "stress": lambda: stress(similar, splits),
    }[kind]()

    def grid(document):
        return np.indices(document.link_matrix().shape).reshape(2, -1)

    # 5 of 25 cells at random: an AUC's deviation is 15, that of the mean of 400 is 0.75.
    for score in (
        lambda d: grid(d)[0],
        lambda d: grid(d)[1],
        lambda d: -np.abs(grid(d)[0] - grid(d)[1]),
    ):
        assert position_auc(corpus.train, score) == pytest.approx(50, abs=3)


def test_same_seed_same_documents(splits, alike):
    for build in (
        lambda seed: coco(splits, seed=seed),
        lambda seed: mixed5(splits, seed=seed),
        lambda seed: cohesive(splits, seed=seed),
        lambda seed: stress(alike, splits, seed=seed),
        lambda seed: unlabelled_articles(alike, splits, (12, 30), seed=seed)[0],
    ):
        first, again, other = build(3), build(3), build(4)
        assert (first.train, first.val, first.test) == (again.train, again.val, again.test)
        assert first.train != other.train


def test_more_documents_leave_the_first_ones(splits):
    for build in (coco, mixed5, cohesive):
        few, many = build(splits, {"train": 7}), build(splits, {"train": 70})
        assert few.train == many.train[:7]
        assert few.test == many.test


def test_groups_are_of_one_theme(splits):
    def themes(corpus):
        return np.mean(
            [len({s.split("theme")[1].split()[0] for s in d.sentences}) for d in corpus.test]
        )

    assert themes(cohesive(splits)) < 2
    assert themes(mixed5(splits)) > 3


def test_training_groups_are_fresh_and_test_groups_are_kept(splits):
    corpus = cohesive(splits, {"train": 150, "test": 60})
    trained = {frozenset(d.images) for d in corpus.train}
    assert len(trained) > 0.9 * len(corpus.train)
    groups = {}
    for document in corpus.test:
        assert groups.setdefault(document.cluster, set(document.images)) == set(document.images)
    texts = [sentence for document in corpus.test for sentence in document.sentences]
    assert len(texts) == len(set(texts))


def test_near_duplicates_are_kept_apart(splits):
    """Twins planted beside a tenth of the images never meet in a document."""
    part = splits["train"]
    features = np.array(part.features)
    rng = np.random.default_rng(0)
    twins = range(0, 300, 10)
    for row in twins:
        features[row + 1] = features[row] + 0.001 * rng.normal(size=features[row].shape)
    planted = {**splits, "train": replace(part, features=features)}

    def together(corpus):
        pairs = [{part.ids[row], part.ids[row + 1]} for row in twins]
        return sum(pair <= set(d.images) for d in corpus.train for pair in pairs)

    # A tenth of the images have a twin, so the ceiling must lie below the top tenth.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builders, "NEAR_DUPLICATE", 1.0)
        assert together(cohesive(planted)) > 10
        patch.setattr(builders, "NEAR_DUPLICATE", 0.75)
        assert together(cohesive(planted)) == 0


def test_the_loosest_groups_are_left_out(splits):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builders, "TIGHTEST", 1.0)
        everything = cohesive(splits)
    kept = cohesive(splits)
    assert len(kept.train) == int(0.9 * (len(everything.train) - 1)) + 1
    assert {frozenset(d.images) for d in kept.train} < {
        frozenset(d.images) for d in everything.train
    }


def test_stress_documents_are_paired_with_cohesive_ones(built):
    for split in SPLITS:
        number = {d.id.rsplit("-", 1)[1]: d for d in built["cohesive"].split(split)}
        assert len(built["stress"].split(split)) == len(number)
        for document in built["stress"].split(split):
            twin = number[document.id.rsplit("-", 1)[1]]
            assert set(twin.images) == set(document.images)
            assert set(twin.sentences) < set(document.sentences)
            image_of = {document.sentences[i]: document.images[j] for i, j in document.links}
            assert {twin.sentences[i]: twin.images[j] for i, j in twin.links} == image_of


def test_stress_takes_one_caption_an_image_or_more(splits, alike):
    for per_source in (1, 3):
        for document in stress(alike, splits, per_source=per_source).test:
            sources = built_sources(splits, document)
            assert max(Counter(sources).values()) <= per_source
    assert all(len(d.sentences) == 15 for d in stress(alike, splits, captions=10).train)


def built_sources(splits, document):
    row_of = {c: i for i, cs in enumerate(splits["test"].captions) for c in cs}
    return [row_of[sentence] for sentence in document.sentences]


def test_unlabelled_documents_hold_no_label_and_the_key_lies_apart(built, splits):
    articles, key = built["unlabelled"], built["key"]
    assert articles.sources == {}
    captions = {
        image: set(each)
        for part in splits.values()
        for image, each in zip(part.ids, part.captions, strict=True)
    }
    lengths, linked = set(), Counter()
    for split in SPLITS:
        for document in articles.split(split):
            assert not document.labelled
            assert len(document.images) == 5
            lengths.add(len(document.sentences))
            right = [[s in captions[v] for v in document.images] for s in document.sentences]
            np.testing.assert_array_equal(key[document.id], right)
            linked.update(key[document.id].sum(axis=0).tolist())
    assert min(lengths) >= 12
    assert max(lengths) <= 30
    assert len(lengths) > 5
    assert set(linked) == {0, 1, 2, 3, 4, 5}
    assert len(key) == sum(len(articles.split(split)) for split in SPLITS)


def test_too_few_images_say_so(splits):
    small = {**splits, "val": fake_split("val", 14)}
    with pytest.raises(ValueError, match="val has 14 usable images; give it 30"):
        coco(small)
    with pytest.raises(ValueError, match="val has 4 usable images, no 5 of them alike"):
        cohesive({**splits, "val": fake_split("val", 4)})
    with pytest.raises(ValueError, match=r"test: 500 documents asked for, \d+ can be made"):
        cohesive(splits, {"test": 500})
    with pytest.raises(ValueError, match=r"val has \d+ groups of similar images, needs 10"):
        stress(cohesive(small), small)


def test_captions_that_repeat_are_left_out_and_counted(splits):
    part = splits["val"]
    same = tuple(("a dog .",) if row % 2 else part.captions[row] for row in range(130))
    with pytest.warns(UserWarning, match="coco: left out .* unfilled documents"):
        corpus = coco({**splits, "val": replace(part, captions=same)})
    for document in corpus.val:
        assert len(set(document.sentences)) == 10


# The real collection.


@pytest.fixture(scope="module")
def flickr8k(real_data):
    flickr8k = pytest.importorskip("mmlib.data.flickr8k")
    return {split: flickr8k.load(split, real_data / "flickr8k") for split in SPLITS}


@pytest.mark.real
def test_flickr8k_documents(flickr8k):
    mixed = coco(flickr8k, {"train": 800, "test": 132})
    assert [len(mixed.split(split)) for split in SPLITS] == [800, 66, 132]
    assert {len({d.cluster for d in mixed.test})} == {33}
    alike = cohesive(flickr8k)
    assert len(alike.train) == pytest.approx(0.9 * 1200, abs=15)
    assert [len(alike.split(split)) for split in ("val", "test")] == [180, 180]
    hard = stress(alike, flickr8k)
    assert [len(hard.split(split)) for split in ("val", "test")] == [180, 180]
    assert np.mean([d.link_matrix().mean() for d in hard.test]) == pytest.approx(0.02)
