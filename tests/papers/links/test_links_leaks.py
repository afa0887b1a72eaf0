from dataclasses import replace

import numpy as np
import pytest

from mmlib.papers.links.data.documents import Corpus, Document
from mmlib.papers.links.data.leaks import check_leaks


def document(id, images, sources, links=None):
    """A document whose sentence i was written for sources[i]; linked where that image is shown."""
    labels = [images.index(s) if s in images else -1 for s in sources] if links is None else links
    return Document(
        id=id,
        sentences=tuple(f"A {source}, in {id}." for source in sources),
        images=tuple(images),
        links=tuple((i, j) for i, j in enumerate(labels) if j >= 0),
    )


IMAGES = [f"{split}{i}" for split in ("train", "val", "test") for i in range(8)]


@pytest.fixture
def clean():
    """Two rounds of two documents a split; val and test in clusters."""
    made = {}
    sources = {}
    for split in ("train", "val", "test"):
        image = [f"{split}{i}" for i in range(8)]
        first, second = image[:4], image[4:]
        plan = [(0, 0, first), (0, 1, second), (1, 0, first[::-1]), (1, 1, second[::-1])]
        made[split] = []
        for number, (turn, cluster, (a, b, c, d)) in enumerate(plan):
            id = f"toy-{split}-r{turn}-c{0 if split == 'train' else cluster}-{number}"
            made[split].append(document(id, [a, b, c], [a, b, d]))
            sources[id] = (a, b, d)
    return Corpus(
        name="toy",
        **{split: tuple(documents) for split, documents in made.items()},
        features=np.random.default_rng(0).normal(size=(24, 4)).astype(np.float32),
        row_of={image: row for row, image in enumerate(IMAGES)},
        sources=sources,
    )


def with_first(corpus, split, document, sources=None):
    """The corpus with its first document of a split replaced."""
    return replace(
        corpus,
        **{split: (document, *corpus.split(split)[1:])},
        sources={**corpus.sources, document.id: sources or document.images},
    )


PLANTED = {  # (split, images, the image that each sentence was written for, its links) -> problem
    "train train0 and val train0 have the same id":
        ("val", ["train0", "val1", "val2"], ["val1", "val2", "val3"], None),
    "train train7 and test train7 have the same id":
        ("test", ["test0", "test1", "test2"], ["test0", "test1", "train7"], None),
    "val toy-val-r0-c0-0: an image occurs twice":
        ("val", ["val0", "val0", "val1"], ["val0", "val1", "val2"], None),
    "unlinked sentence 2 was written for its image test2":
        ("test", ["test0", "test1", "test2"], ["test0", "test1", "test2"], [0, 1, -1]),
    "train round 0: toy-train-r0-c0-0, toy-train-r0-c0-1":
        ("train", ["train0", "train1", "train2"], ["train0", "train1", "train5"], None),
}  # fmt: skip


@pytest.mark.parametrize("problem", PLANTED)
def test_a_planted_leak_is_found_and_named(clean, problem):
    check_leaks(clean)
    split, images, sources, links = PLANTED[problem]
    planted = document(clean.split(split)[0].id, images, sources, links)
    with pytest.raises(ValueError, match=problem):
        check_leaks(with_first(clean, split, planted, tuple(sources)))


def test_same_picture_under_two_names(clean):
    rows = {**clean.row_of, "test2": clean.row_of["train5"]}
    with pytest.raises(ValueError, match="train train5 and test test2 have the same feature"):
        check_leaks(replace(clean, row_of=rows))


def test_same_text_twice(clean):
    first = clean.train[0]
    planted = replace(first, sentences=("Two dogs.", "A cat", "two  dogs"))
    with pytest.raises(ValueError, match="two sentences have the same text"):
        check_leaks(with_first(clean, "train", planted, clean.sources[first.id]))


def test_clusters_that_share_a_source(clean):
    """Val's round 1 may use other images of its own cluster, not those of another one."""
    moved = replace(clean.val[2], id="toy-val-r2-c1-2")
    corpus = replace(
        clean,
        val=(*clean.val[:2], moved, clean.val[3]),
        sources={**clean.sources, moved.id: clean.sources[clean.val[2].id]},
    )
    with pytest.raises(ValueError, match="val toy-val-r2-c1-2: val3 is in another cluster too"):
        check_leaks(corpus)


def test_documents_of_others_may_share_images(clean):
    """Files that say nothing of rounds are not held to them."""
    train = tuple(replace(clean.train[0], id="na") for _ in range(3))
    check_leaks(replace(clean, train=train, sources={}))
