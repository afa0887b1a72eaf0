"""Toy pairs whose pictures and words tell of relations, and jobs on them."""

from dataclasses import asdict, replace

import numpy as np

from mmlib.core.jobs import Job
from mmlib.core.records import RelatedPairs
from mmlib.papers.coherence.data.pairs import Arrays, Split
from mmlib.papers.coherence.run import PAPER, Settings

RELATIONS = ("Visible", "Story", "Meta")
HOW = Settings(
    word_width=8, hidden=6, width=12, epochs=4, batch=16, learning_rate=0.02, schedule="cosine",
    strength=1.0, threshold=0.02,
)  # fmt: skip


def split(count, seed, images=0):
    """Texts of six words; a relation has two words of its own and shifts one feature."""
    rng = np.random.default_rng(seed)
    basis = np.random.default_rng(99).normal(size=(20, 10))
    labels = rng.random((count, 3)) < [0.6, 0.3, 0.4]
    content = rng.integers(0, 20, (count, 3))
    cues = np.where(labels, 22 + 2 * np.arange(3) + rng.integers(0, 2, (count, 3)), 0)
    lengths = np.full(count, 6) - (seed % 2) * (np.arange(count) % 2)
    ids = np.concatenate([content + 2, cues], axis=1)
    ids[ids == 0] = 28  # a word that says nothing
    ids[np.arange(6) >= lengths[:, None]] = 0
    features = basis[content].sum(axis=1) + 0.3 * rng.normal(size=(count, 10))
    features[:, :3] += 2.0 * labels
    image_of = np.arange(count) if not images else np.arange(count) % images
    return Split(ids, lengths, labels, image_of, features[: images or count].astype(np.float32))


def tiny(train=96, test=40):
    """A collection of such pairs as arrays."""
    splits = {"train": split(train, 0), "val": split(24, 1), "test": split(test, 2)}
    words = np.random.default_rng(3).normal(size=(29, HOW.word_width)).astype(np.float32)
    words[0] = 0
    return Arrays(splits, words, RELATIONS)


def job(system, how=HOW, seed=0, **changes):
    return Job(PAPER, "tiny", "tiny", asdict(replace(system, **changes)), seed, asdict(how))


def related(count=60, seed=0, name="toy", relations=RELATIONS, images=0):
    """Such pairs as people read them, with features and no pictures."""
    made = split(count, seed, images)
    labels = np.random.default_rng(seed).random((count, len(relations))) < 0.4
    texts = tuple(" ".join(f"word{i}" for i in row if i) for row in made.ids)
    ids = tuple(f"{name}-{seed}-{i}" for i in range(len(made.images)))
    return RelatedPairs(
        name, "train", texts, labels, relations, made.image_of, ids, made.images[:, None]
    )
