"""Documents, their leaks, and the choice of captions, by hand-made cases."""

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from mmlib.core.records import CaptionedImages
from mmlib.papers.links.data.builders import CaptionSource, Draft, assemble
from mmlib.papers.links.data.documents import SPLITS, Corpus, Document, check_leaks, cluster_numbers


def test_unknown_links_cannot_be_scored():
    document = Document("any", ("sentence 0", "sentence 1"), ("image 0",), ((0, 0),))
    assert document.link_matrix().tolist() == [[True], [False]]
    with pytest.raises(ValueError, match="unlabelled"):
        replace(document, links=None).link_matrix()


def test_documents_without_a_cluster_are_their_own():
    documents = [Document("na", ("a",), ("b",), (), cluster=name) for name in ("7", "2", "7")]
    documents += [Document("na", ("a",), ("b",), ())] * 2
    assert cluster_numbers(documents).tolist() == [0, 1, 0, 2, 3]


# --- Leaks -----------------------------------------------------------------------------------


def document(id, images, sources, links=None, round=0, cluster="0"):
    """A document whose sentence i was written for sources[i]; linked where that image is shown."""
    labels = [images.index(s) if s in images else -1 for s in sources] if links is None else links
    pairs = tuple((i, j) for i, j in enumerate(labels) if j >= 0)
    sentences = tuple(f"A {source}, in {id}." for source in sources)
    return Document(id, sentences, tuple(images), pairs, tuple(sources), round, cluster)


@pytest.fixture
def clean():
    """Two rounds of two documents a split; val and test in clusters."""
    made = {}
    for s, split in enumerate(SPLITS):
        image = [f"{split}{i}" for i in range(8)]
        first, second = image[:4], image[4:]
        plan = [(0, 0, first), (0, 1, second), (1, 0, first[::-1]), (1, 1, second[::-1])]
        made[split] = tuple(
            document(f"{split}-{n}", [a, b, c], [a, b, d], None, turn, str(cluster * (s > 0)))
            for n, (turn, cluster, (a, b, c, d)) in enumerate(plan)
        )
    row_of = {f"{split}{i}": 8 * s + i for s, split in enumerate(SPLITS) for i in range(8)}
    features = np.random.default_rng(0).normal(size=(24, 4)).astype(np.float32)
    return Corpus("toy", **made, features=features, row_of=row_of)


PLANTED = {  # (split, images, the image that each sentence was written for, its links) -> problem
    "train train0 and val train0 have the same id":
        ("val", ["train0", "val1", "val2"], ["val1", "val2", "val3"], None),
    "train train7 and test train7 have the same id":
        ("test", ["test0", "test1", "test2"], ["test0", "test1", "train7"], None),
    "val val-0: an image occurs twice":
        ("val", ["val0", "val0", "val1"], ["val0", "val1", "val2"], None),
    "train train-0: two sentences have the same text":
        ("train", ["train0", "train1", "train2"], ["train0", "TRAIN0"], None),
    "unlinked sentence 2 was written for its image test2":
        ("test", ["test0", "test1", "test2"], ["test0", "test1", "test2"], [0, 1, -1]),
    "train round 0: train-1, train-0: train5":
        ("train", ["train0", "train1", "train2"], ["train0", "train1", "train5"], None),
    "val val-0: val3 is in another cluster too":
        ("val", ["val3", "val2", "val1"], ["val3", "val2", "val0"], None),
}  # fmt: skip


@pytest.mark.parametrize("problem", PLANTED)
def test_a_planted_leak_is_found_and_named(clean, problem):
    check_leaks(clean)
    split, images, sources, links = PLANTED[problem]
    first, *others = clean.split(split)
    planted = document(first.id, images, sources, links)
    if "another cluster" in problem:  # of the same images, in a round of its own
        planted, others = replace(planted, round=2, cluster="1"), [first, *others]
    with pytest.raises(ValueError, match=problem):
        check_leaks(replace(clean, **{split: (*others, planted)}))


def test_one_picture_under_two_names_is_a_leak_and_documents_of_others_may_share(clean):
    rows = {**clean.row_of, "test2": clean.row_of["train5"]}
    with pytest.raises(ValueError, match="train train5 and test test2 have the same feature"):
        check_leaks(replace(clean, row_of=rows))
    check_leaks(replace(clean, train=(replace(clean.train[0], cluster=""),) * 3))


# --- Choice of captions ----------------------------------------------------------------------


def split_of(captions, split="train", features=None):
    count = len(captions)
    if features is None:
        features = np.random.default_rng(len(split)).normal(size=(count, 2, 3)).astype(np.float32)
    return CaptionedImages(
        "toy", split, tuple(f"{split}{row}" for row in range(count)),
        tuple(map(tuple, captions)), features,
        open_image=lambda row: Image.new("RGB", (1, 1), (row, 0, 0)),
    )  # fmt: skip


def source_of(captions, seed=0, features=None):
    return CaptionSource(split_of(captions, features=features), np.random.default_rng(seed))


def test_captions_are_used_about_equally_often():
    source = source_of([[f"image {i} caption {c}" for c in range(5)] for i in range(4)])
    texts = [text for _ in range(12) for text, _ in source.draw(range(4), [], 4)]
    uses = [texts.count(text) for text in set(texts)]
    assert (len(uses), min(uses), max(uses)) == (20, 2, 3)
    source = source_of([["a dog", "a cat", "a bird"]])
    first, second, third = (source.captions[0][i] for i in source.order[0])
    assert source.draw([0], [], 1, others=[first]) == [(second, 0)]
    assert source.draw([0], [], 1) == [(third, 0)]


def test_unusable_images_are_passed_over():
    features = np.random.default_rng(0).normal(size=(5, 2, 3)).astype(np.float32)
    features[4] = features[3]
    captions = [["a dog"], [], ["."], ["a cat"], ["a bird"]]
    assert source_of(captions, features=features).rows.tolist() == [0, 3]


@pytest.mark.parametrize("seed", range(3))
def test_no_sentence_repeats_another_or_is_a_caption_of_another_shown_image(seed):
    captions = [["Two dogs ."], ["two dogs"], ["a cat"]]
    draw = source_of(captions).draw
    assert [row for _, row in draw([0, 1, 2], [], 3)] == [0, 2]
    assert [row for _, row in draw([0, 1, 2], [], 3, others=["a CAT"])] == [0]
    captions = [["two dogs", "a park"], ["Two dogs.", "a lawn"], ["two dogs"]]
    chosen = source_of(captions, seed).draw(writers=[0, 1, 2], shown=[0, 1], count=3)
    assert chosen == [("a park", 0), ("a lawn", 1)]
    # Where one image has it twice, nothing is ambiguous.
    twice = source_of([["two dogs", "Two dogs"], ["a lawn"]], seed)
    assert [row for _, row in twice.draw([0, 1], [0, 1], 2)] == [0, 1]


def test_a_corpus_joins_the_splits():
    photos = {split: split_of([["a dog"], ["a cat"]], split) for split in SPLITS}

    def drafts(split, *_):
        if split == "val":
            yield Draft(2, 1, [1, 0], [("a cat", 1), ("a remark", -1)], number=7)

    corpus = assemble("toy", photos, drafts, {"val": 1})
    (document,) = corpus.val
    assert (document.id, document.round) == ("toy-val-r2-c001-0007", 2)
    sentence, image = document.sentences.index("a cat"), document.images.index("val1")
    assert document.links == ((sentence, image),)
    assert document.sources[sentence] == "val1"
    assert document.sources[1 - sentence] == ""
    assert corpus.features.shape == (6, 3)
    mean = photos["val"].features[1].mean(axis=0)
    assert (corpus.features[corpus.row_of["val1"]] == mean).all()
    assert corpus.open_image("test1").getpixel((0, 0)) == (1, 0, 0)
    with pytest.raises(ValueError, match="val: 2 documents asked for, 1 can be made"):
        assemble("toy", photos, drafts, {"val": 2})
