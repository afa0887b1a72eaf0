"""Documents from upload sessions, on made-up photos."""

from itertools import islice

import numpy as np
import pytest
from PIL import Image

from mmlib.core.records import CaptionedImages
from mmlib.papers.links.data.documents import SPLITS
from mmlib.papers.links.data.sessions import (
    CAPTIONS,
    by_session,
    look_alikes,
    organic,
    photo_number,
    sessions,
)


def fake_split(split, count, rng, start):
    """Uploads of 1 to 3 photos 40 ids apart, uploads a million apart; one's look alike."""
    ids, features, captions, number = [], [], [], start
    while len(ids) < count:
        number += 1_000_000
        theme = rng.normal(size=(1, 12))
        for step in range(rng.integers(1, 4)):
            row = len(ids)
            ids.append(f"{number + 40 * step}_{split}.jpg")
            features.append(theme + 0.3 * rng.normal(size=(4, 12)))
            captions.append(tuple(f"{split} word{row} told{k} thing{number}" for k in range(5)))
    return CaptionedImages(
        name="toy",
        split=split,
        ids=tuple(ids),
        captions=tuple(captions),
        features=np.array(features, dtype=np.float32),
        open_image=lambda row: Image.new("RGB", (1, 1)),
    )


@pytest.fixture(scope="module")
def splits():
    rng = np.random.default_rng(0)
    starts = {"train": 0, "val": 10**9, "test": 2 * 10**9}
    counts = {"train": 160, "val": 40, "test": 40}
    return {s: fake_split(s, counts[s], rng, starts[s]) for s in SPLITS}


@pytest.fixture(scope="module")
def corpus(splits):
    return organic(splits, {"train": 90})


def test_sessions_need_ids_as_near_as_their_likeness_allows():
    numbers = [0, 200, 1_000_000, 1_005_000, 2_000_000, 2_005_000, 3_000_000, 3_050_000]
    pictures = np.eye(208)[np.r_[0, 1, 2, 2, 4, 5, 6, 6, 8:208]]
    texts = np.eye(208)[np.r_[0, 1, 2, 3, 4, 5, 6, 6, 8:208]]
    others = [10**8 + 10**6 * i for i in range(200)]  # make a random pair alike to nothing
    found = {tuple(rows.tolist()) for rows in sessions(numbers + others, pictures, texts)}
    assert found == {(0, 1), (2, 3), (6, 7)}  # close; near and alike; far and alike in both


def test_runs_longer_than_an_album_are_left_out():
    numbers = list(range(0, 70, 10)) + [10**8 + 10**6 * i for i in range(30)]
    assert sessions(numbers, np.eye(37), np.eye(37)) == []


def test_sessions_stay_whole_and_val_and_test_hold_nothing_else(splits):
    dealt, grouped = by_session(splits)
    every = [image for s in SPLITS for image in dealt[s].ids]
    assert sorted(every) == sorted(image for s in SPLITS for image in splits[s].ids)
    for split in SPLITS:
        rows = np.concatenate(grouped[split])
        assert len(set(rows.tolist())) == len(rows)
        if split != "train":
            assert sorted(rows.tolist()) == list(range(len(dealt[split].ids)))
        for session in grouped[split]:
            heads = {photo_number(dealt[split].ids[row]) // 1000 for row in session}
            assert len(heads) == 1


def test_every_sentence_belongs_to_one_photo_of_its_document(corpus):
    sizes = set()
    for split in SPLITS:
        for document in corpus.split(split):
            links = document.link_matrix()
            assert (links.sum(axis=1) == 1).all()
            assert len(document.sentences) >= 2
            assert 2 <= len(document.images) <= 6
            assert links.sum(axis=0).max() < len(CAPTIONS)
            sizes.add((len(document.sentences), len(document.images)))
    assert len(sizes) > 4


def test_further_rounds_show_the_same_sessions_with_other_captions(splits):
    corpus = organic(splits, {"val": 10, "test": 90})
    by_cluster = {}
    for document in corpus.test:
        by_cluster.setdefault(document.cluster, []).append(document)
    again = [group for group in by_cluster.values() if len(group) > 1]
    assert again
    for group in again:
        assert len({frozenset(document.images) for document in group}) == 1
        assert len({document.sentences for document in group}) == len(group)


def test_look_alikes_are_disjoint_and_near():
    rng = np.random.default_rng(0)
    unit = np.repeat(np.eye(4), 3, axis=0)
    groups = look_alikes(unit, np.arange(12), np.array([3]), rng)
    assert {tuple(sorted(g.tolist())) for g in islice(groups, 9)} == {
        (0, 1, 2), (3, 4, 5), (6, 7, 8), (9, 10, 11)
    }  # fmt: skip
