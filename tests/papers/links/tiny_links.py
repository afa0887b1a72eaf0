"""A small corpus as arrays: pictures of single animals, and sentences that name one."""

from collections.abc import Mapping
from dataclasses import asdict, replace

import numpy as np
import torch

from mmlib.core.jobs import Job
from mmlib.papers.links.data.arrays import Arrays, Split
from mmlib.papers.links.method import LinkModel, Settings, System
from mmlib.papers.links.run import PAPER, SYSTEMS

ANIMALS, FILLERS, COPIES = 16, 5, 20
HOW = Settings(
    width=24, word_width=32, dropout=0.1, learning_rate=0.02, schedule="cosine", epochs=4, draws=20
)
SHORT = replace(HOW, epochs=2)
TRAINED = {name: replace(one, negatives="mean", b=5) for name, one in SYSTEMS.items()}


def tiny(counts: Mapping[str, int] | None = None, square: bool = False, seed: int = 0) -> Arrays:
    """Documents of three images and five sentences, or three; each image has its sentence.

    A picture is a noisy one-hot vector. A sentence is a name, or a filler word and a name.
    """
    rng = np.random.default_rng(seed)
    features = np.repeat(np.eye(ANIMALS), COPIES, axis=0)
    features = 4 * (features + 0.05 * rng.normal(size=features.shape)).astype(np.float32)
    ids = np.zeros((ANIMALS * (FILLERS + 1), 2), dtype=np.int64)  # sentence = name + 16 * filler
    for row, (filler, name) in enumerate(np.ndindex(FILLERS + 1, ANIMALS)):
        ids[row] = (2 + FILLERS + name, 0) if filler == 0 else (1 + filler, 2 + FILLERS + name)
    words = np.random.default_rng(1).normal(size=(2 + FILLERS + ANIMALS, HOW.word_width))

    def split(count: int) -> Split:
        sentences, images, links = [], [], []
        for _ in range(count):
            animals = rng.permutation(ANIMALS)[: 3 if square else 5]
            told = rng.permutation(animals)
            sentences.append(told + ANIMALS * rng.integers(0, FILLERS + 1, len(told)))
            images.append(animals[:3] * COPIES + rng.integers(0, COPIES, 3))
            links.append(told[:, None] == animals[:3])
        rounds, clusters = np.zeros(count, dtype=int), np.arange(count)
        return Split(tuple(sentences), tuple(images), tuple(links), rounds, clusters)

    sizes = {"train": 240, "val": 12, "test": 30, **(counts or {})}
    return Arrays(
        ids=ids, lengths=(ids > 0).sum(axis=1), words=words.astype(np.float32), features=features,
        splits={name: split(count) for name, count in sizes.items()},
    )  # fmt: skip


def uneven(seed: int = 0) -> Arrays:
    """Seven documents a split, of 1 to 3 sentences and 1 to 4 images; sentences of 1 to 6 words."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 7, 30)
    ids = rng.integers(2, 12, (30, 6)) * (np.arange(6) < lengths[:, None])

    def split() -> Split:
        sentences = [rng.choice(30, 1 + d % 3, replace=False) for d in range(7)]
        images = [rng.choice(10, 1 + d % 4, replace=False) for d in range(7)]
        links = [
            np.arange(len(v)) == 0 * s[:, None] for s, v in zip(sentences, images, strict=True)
        ]
        return Split(
            tuple(sentences), tuple(images), tuple(links), np.arange(7) // 4, np.arange(7)
        )  # fmt: skip

    words, features = (rng.normal(size=size).astype(np.float32) for size in ((12, 4), (10, 6)))
    return Arrays(ids, lengths, words, features, {s: split() for s in ("train", "val", "test")})


def with_split(arrays: Arrays, name: str, **changes: object) -> Arrays:
    """The same arrays with something of one split replaced."""
    changed = replace(arrays.splits[name], **changes)
    return replace(arrays, splits={**arrays.splits, name: changed})


def job(system: System, how: Settings = HOW, seed: int = 0) -> Job:
    return Job(PAPER, "tiny", "tiny", asdict(system), seed, asdict(how))


def net(arrays: Arrays, how: Settings, seed: int = 3) -> LinkModel:
    """A model that is not trained, ready to be used."""
    torch.manual_seed(seed)
    return LinkModel(torch.tensor(arrays.words), arrays.features.shape[1], how).eval()
