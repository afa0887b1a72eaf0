"""A controlled collection: how many captions of other pictures are true of a picture is a dial.

Nothing is drawn. A picture shows four of twelve things, and its one caption names some of these
four. The fewer things it names, the more pictures it is true of. The retrievers are bags of words
and of regions, so small that one learns in a second. Losses and training are those of all others.
The judge is the paper's gate and heads on two branches of a few lines, in which the words of a
hypothesis attend to something: to the words of the picture's own caption (TE, a BERT in the paper),
or to the picture's regions (VE, ALBEF in the paper).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import comb

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmlib.core.fit import seed_everything
from mmlib.features.encoders import DualEncoder
from mmlib.features.words import PAD, Words
from mmlib.papers.entailment.data.arrays import Split
from mmlib.papers.entailment.method.classifier import BRANCHES, Gate, Head, joint_loss, log_odds
from mmlib.papers.entailment.method.metrics import measured
from mmlib.papers.entailment.method.retrievers import HardestTriplet
from mmlib.papers.entailment.method.revision import Phase, Revision, Weak, train
from mmlib.papers.entailment.run.systems import Family

THINGS = ("ball", "bell", "boat", "book", "cake", "coin", "drum", "fish", "hat", "key", "lamp",
          "tree")  # fmt: skip
SHOWN, REGIONS, WIDTH = 4, 6, 24  # things and regions of a picture, and numbers of a region
COUNTS = {"train": 600, "test": 300, "judge": 400}  # pictures; those of a judge are labelled
NOISE = 1.0  # deviation of what is added to each region, beside things with deviation 1
PHASE, SPACE = Phase(epochs=10, batch=64, rate=5e-3), 32
LEARNT = 300  # labelled pictures that a judge learns from; the others set its threshold
EACH = 3  # true and false captions of a labelled picture
STATE, EPOCHS, BATCH, RATE = 32, 8, 32, 1e-2  # of a judge


@dataclass(frozen=True, eq=False)
class Collection:
    """table (pictures, REGIONS, WIDTH): regions of all pictures; splits, with what is true.

    shown: of each picture its things, in the order of its regions.
    """

    table: np.ndarray
    splits: Mapping[str, Split]
    shown: tuple[tuple[str, ...], ...]


def load(named: int, seed: int = 0) -> Collection:
    """A collection whose captions name 1 to SHOWN things; ValueError for another number."""
    if not 1 <= named <= SHOWN:
        raise ValueError(f"a caption names 1 to {SHOWN} things, not {named}")
    rng, count = np.random.default_rng(seed), sum(COUNTS.values())
    looks = rng.normal(size=(len(THINGS), WIDTH))
    # Entries of each row, drawn without replacement.
    shown = rng.permuted(np.tile(np.arange(len(THINGS)), (count, 1)), axis=1)[:, :SHOWN]
    table = NOISE * rng.normal(size=(count, REGIONS, WIDTH))
    table[:, :SHOWN] += looks[shown]  # the other regions show nothing
    said = np.sort(rng.permuted(shown, axis=1)[:, :named], axis=1)
    holds = (shown[:, :, None] == np.arange(len(THINGS))).any(axis=1)  # (pictures, things)
    words, captions = Words(THINGS), [(" ".join(THINGS[i] for i in entry),) for entry in said]
    words.read([text for (text,) in captions])
    ends = np.cumsum(list(COUNTS.values()))
    splits = {
        name: Split.of(words, captions, rows, holds[rows][:, said[rows]].all(axis=2))
        for name, rows in zip(COUNTS, np.split(np.arange(count), ends[:-1]), strict=True)
    }
    names = tuple(tuple(THINGS[i] for i in entry) for entry in shown)
    return Collection(table.astype(np.float32), splits, names)


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
    built: Collection, family: Family, use: str, seed: int, pairs: Weak | None = None
) -> np.ndarray:
    """Scores (test pictures, test captions) of a retriever that is trained from random weights.

    pairs: which training pairs are taken for true, without: all that are. use: of these
    pairs. "golden only": none, they are negatives; "exclusion": they are left out of the negatives;
    "both": they are also weak positives. All take as many steps. Raises ValueError for another use.
    """
    model, split = untrained(family, seed), built.splits["train"]
    pairs = Weak.true(split) if pairs is None else pairs
    uses = {"golden only": (None, None), "exclusion": (None, pairs), "both": (pairs, pairs)}
    if use not in uses:
        raise ValueError(f"use {use!r} is not known: use {', '.join(uses)}")
    weak, excluded = uses[use]
    revision = Revision(weak, Weak.golden(split), excluded)
    train(model, split, PHASE, seed, lambda epoch: built.table, revision)
    return model.rank(*built.splits["test"].tensors(built.table))[0]


def mean_ap(scores: np.ndarray, split: Split) -> float:
    """Mean average precision over all true captions of a picture, in percent."""
    return float(measured(scores, scores, split)["mAP"].mean())


# --- The judge -----------------------------------------------------------------------------------


def labelled_pairs(split: Split, pictures: Iterable[int], rng: np.random.Generator) -> np.ndarray:
    """Pairs (n, 2) of a picture and another one's caption: `EACH` true and false ones a picture.

    A picture with fewer has all of them.
    """
    assert split.fits is not None
    pairs = []
    for picture in pictures:
        foreign = np.flatnonzero(split.image_of != picture)
        for truth in (True, False):
            fitting = foreign[split.fits[picture, foreign] == truth]
            pairs += [(picture, caption) for caption in rng.permutation(fitting)[:EACH]]
    return np.array(pairs)


class Judge(nn.Module):
    """Does a caption follow from a picture and the picture's own caption?"""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(len(Words(THINGS)), STATE, padding_idx=PAD)
        self.regions = nn.Linear(WIDTH, STATE)
        self.gate = Gate(STATE)
        self.heads = nn.ModuleDict({branch: Head(STATE) for branch in BRANCHES})

    def forward(self, built: Collection, split: Split, pairs: np.ndarray) -> dict[str, Tensor]:
        """Logits (B, 2) by branch of pairs (B, 2) of a picture and a caption; one a picture."""
        ids = torch.from_numpy(np.array(split.ids))  # (captions, L)
        images = torch.from_numpy(built.table[split.rows[pairs[:, 0]]])  # (B, R, W)
        asked = self.words(ids[pairs[:, 1]])
        te, _ = compare(asked, self.words(ids[pairs[:, 0]]))
        ve, _ = compare(asked, self.regions(images))
        mm, *_ = self.gate(te, ve)
        return {name: self.heads[name](h) for name, h in zip(BRANCHES, (te, ve, mm), strict=True)}


def compare(asked: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
    """Words (B, M, D), padding 0, and vectors (B, L, D) -> state (B, D), attention (B, M, L).

    Each word times what it attends to; of these the minimum, as all words must be found.
    """
    attention = (asked @ context.transpose(1, 2) / asked.shape[2] ** 0.5).softmax(dim=2)
    padding = (asked == 0).all(dim=2, keepdim=True)
    matched = (asked * (attention @ context)).masked_fill(padding, torch.inf)
    return matched.amin(dim=1), attention


@torch.no_grad()
def log_odds_of(
    model: Judge, built: Collection, split: Split, pairs: np.ndarray
) -> dict[str, np.ndarray]:
    """Log odds (n,) of entailment by branch."""
    return log_odds(model(built, split, pairs))


def train_judge(
    built: Collection, seed: int, after_epoch: Callable[[Judge], None] = lambda model: None
) -> Judge:
    """A judge that learnt from the first `LEARNT` labelled pictures.

    after_epoch: is also called before the first one.
    """
    seed_everything(seed)
    split, model, rng = built.splits["judge"], Judge(), np.random.default_rng(seed)
    assert split.fits is not None
    pairs = labelled_pairs(split, range(LEARNT), rng)
    labels = torch.from_numpy(split.fits[tuple(pairs.T)].astype(int))
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    after_epoch(model)
    for _ in range(EPOCHS):
        for rows in np.array_split(rng.permutation(len(pairs)), max(1, len(pairs) // BATCH)):
            counted = torch.ones(len(rows), len(BRANCHES))
            loss = joint_loss(model(built, split, pairs[rows]), labels[rows], counted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        after_epoch(model)
    return model
