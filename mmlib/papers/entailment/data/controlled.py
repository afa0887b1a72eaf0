"""A controlled collection: how many captions of other pictures are true of a picture is a dial.

Nothing is drawn. A picture shows four of twelve things, and its one caption names some of these
four. The fewer things it names, the more pictures it is true of. The retrievers are bags of words
and of regions, so small that one learns in a second. Losses and training are those of all others.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import comb

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmlib.core.fit import seed_everything
from mmlib.features.encoders import DualEncoder
from mmlib.features.words import PAD, Words
from mmlib.papers.entailment.batches import Split
from mmlib.papers.entailment.data.study import split_of
from mmlib.papers.entailment.metrics import measured
from mmlib.papers.entailment.retrieval import Revision, train
from mmlib.papers.entailment.retrievers import HardestTriplet
from mmlib.papers.entailment.revision import Weak
from mmlib.papers.entailment.systems import Family, Phase

THINGS = ("ball", "bell", "boat", "book", "cake", "coin", "drum", "fish", "hat", "key", "lamp",
          "tree")  # fmt: skip
SHOWN, REGIONS, WIDTH = 4, 6, 24  # things and regions of a picture, and numbers of a region
COUNTS = {"train": 600, "test": 300, "judge": 400}  # pictures; those of a judge are labelled
NAMED = (1, 2, 3, 4)  # the dial: how many of a picture's things its caption names
NOISE = 1.0  # deviation of what is added to each region, beside things with deviation 1
USES = ("golden only", "exclusion", "both")  # of the pairs that are true
PHASE, SPACE = Phase(epochs=10, batch=64, rate=5e-3), 32


@dataclass(frozen=True, eq=False)
class Collection:
    """table (pictures, REGIONS, WIDTH): regions of all pictures; splits, with what is true.

    shown: of each picture its things, sorted.
    """

    table: np.ndarray
    splits: Mapping[str, Split]
    shown: tuple[tuple[str, ...], ...]


def load(named: int, seed: int = 0) -> Collection:
    """A collection whose captions name so many things. Raises ValueError unless 1 to SHOWN."""
    if not 1 <= named <= SHOWN:
        raise ValueError(f"a caption names 1 to {SHOWN} things, not {named}")
    rng, count = np.random.default_rng(seed), sum(COUNTS.values())
    looks = rng.normal(size=(len(THINGS), WIDTH))
    shown = _some(rng, np.tile(np.arange(len(THINGS)), (count, 1)), SHOWN)
    table = NOISE * rng.normal(size=(count, REGIONS, WIDTH))
    table[:, :SHOWN] += looks[shown]  # the other regions show nothing
    said = np.sort(_some(rng, shown, named), axis=1)
    holds = (shown[:, :, None] == np.arange(len(THINGS))).any(axis=1)  # (pictures, things)
    words, captions = Words(THINGS), [(" ".join(THINGS[i] for i in one),) for one in said]
    words.read([text for (text,) in captions])
    ends = np.cumsum(list(COUNTS.values()))
    splits = {
        name: split_of(words, captions, rows, holds[rows][:, said[rows]].all(axis=2))
        for name, rows in zip(COUNTS, np.split(np.arange(count), ends[:-1]), strict=True)
    }
    names = tuple(tuple(THINGS[i] for i in sorted(one)) for one in shown)
    return Collection(table.astype(np.float32), splits, names)


def _some(rng: np.random.Generator, rows: np.ndarray, count: int) -> np.ndarray:
    """So many entries of each row, drawn without replacement."""
    return rng.permuted(rows, axis=1)[:, :count]


def false_negatives(split: Split) -> Weak:
    """All pairs of a picture with another picture's caption that is true of it."""
    assert split.fits is not None
    foreign = np.arange(len(split))[:, None] != split.image_of
    return Weak.of(np.argwhere(split.fits & foreign))


def golden(split: Split) -> Weak:
    """All pairs of a picture with its own caption."""
    return Weak(split.image_of, np.arange(len(split.image_of)))


def density(named: int) -> float:
    """The share of other pictures that a caption is true of which names so many things."""
    return comb(SHOWN, named) / comb(len(THINGS), named)


class Bags(HardestTriplet):
    """A mean of regions and a sum of word vectors, in the place of two transformers.

    family: "dual" or "triplet", whose loss it has. vocabulary: how many ids words have.
    """

    def __init__(self, family: Family, vocabulary: int, margin: float = 0.2):
        nn.Module.__init__(self)  # without the transformers of its parents
        self.family, self.margin = family, margin
        self.vectors = nn.Embedding(vocabulary, SPACE, padding_idx=PAD)
        self.to_image = nn.Linear(WIDTH, SPACE)
        self.log_scale = nn.Parameter(torch.tensor(1 / 0.07).log())

    def image_states(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Regions (B, R, W) -> states (B, R, SPACE), unit vectors (B, SPACE)."""
        states = self.to_image(images)
        return states, F.normalize(states.mean(dim=1), dim=1)

    def text_states(self, ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Ids (B, L) -> states (B, L, SPACE), mask (B, L), unit vectors (B, SPACE)."""
        states = self.vectors(ids)  # zeros where there is no word
        return states, ids != PAD, F.normalize(states.sum(dim=1), dim=1)

    def loss(self, images: Tensor, ids: Tensor, lengths: Tensor, same: Tensor) -> Tensor:
        """The loss of its family; entailed pairs are no negatives."""
        of = HardestTriplet if self.family == "triplet" else DualEncoder
        return of.loss(self, images, ids, lengths, same)


def untrained(family: Family, seed: int) -> Bags:
    """A retriever with random weights."""
    seed_everything(seed)
    return Bags(family, len(Words(THINGS)))


def trained(
    made: Collection, family: Family, use: str, seed: int, pairs: Weak | None = None
) -> np.ndarray:
    """Scores (test pictures, test captions) of a retriever that is trained from random weights.

    pairs: which training pairs are taken for true, without: all `false_negatives`. use: of these
    pairs. "golden only": none, they are negatives; "exclusion": they are left out of the negatives;
    "both": they are also weak positives. All take as many steps. Raises ValueError for another use.
    """
    if use not in USES:
        raise ValueError(f"use {use!r} is not known: use {', '.join(USES)}")
    model, split = untrained(family, seed), made.splits["train"]
    pairs = false_negatives(split) if pairs is None else pairs
    excluded = None if use == "golden only" else pairs
    revision = Revision(excluded if use == "both" else None, golden(split), excluded)
    train(model, split, PHASE, seed, lambda epoch: made.table, revision)
    return model.rank(*made.splits["test"].tensors(made.table))[0]


def mean_ap(scores: np.ndarray, split: Split) -> float:
    """Mean average precision over all true captions of a picture, in percent."""
    return float(measured(scores, scores, split)["mAP"].mean())
