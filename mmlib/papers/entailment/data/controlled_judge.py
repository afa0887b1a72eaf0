"""A judge of the controlled collection: the paper's gate and heads on two branches of a few lines.

In each branch the words of a hypothesis attend to something: to the words of the picture's own
caption (TE, a BERT in the paper), or to the picture's regions (VE, ALBEF in the paper).
"""

from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor, nn

from mmlib.core.fit import seed_everything
from mmlib.features.words import PAD, Words
from mmlib.papers.entailment.batches import Split
from mmlib.papers.entailment.data.controlled import THINGS, WIDTH, Collection
from mmlib.papers.entailment.method import BRANCHES, Gate, Head, joint_loss, log_odds

LEARNT = 300  # labelled pictures that a judge learns from; the others set its threshold
EACH = 3  # true and false captions of a labelled picture
STATE, EPOCHS, BATCH, RATE = 32, 8, 32, 1e-2


def labelled_pairs(
    split: Split, pictures: Iterable[int], rng: np.random.Generator, each: int = EACH
) -> np.ndarray:
    """Pairs (n, 2) of a picture and another one's caption: `each` true and false ones a picture.

    A picture with fewer has all of them.
    """
    assert split.fits is not None
    pairs = []
    for picture in pictures:
        foreign = np.flatnonzero(split.image_of != picture)
        for truth in (True, False):
            fitting = foreign[split.fits[picture, foreign] == truth]
            pairs += [(picture, caption) for caption in rng.permutation(fitting)[:each]]
    return np.array(pairs)


class Judge(nn.Module):
    """Does a caption follow from a picture and the picture's own caption?"""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(len(Words(THINGS)), STATE, padding_idx=PAD)
        self.regions = nn.Linear(WIDTH, STATE)
        self.gate = Gate(STATE)
        self.heads = nn.ModuleDict({branch: Head(STATE) for branch in BRANCHES})

    def forward(self, premise: Tensor, images: Tensor, hypothesis: Tensor) -> dict[str, Tensor]:
        """Ids (B, L), regions (B, R, W), ids (B, M) -> logits (B, 2) by branch."""
        asked = self.words(hypothesis)
        te, _ = compare(asked, self.words(premise))
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


def logits_of(model: Judge, made: Collection, split: Split, pairs: np.ndarray) -> dict[str, Tensor]:
    """Logits (n, 2) by branch of pairs (n, 2) of a picture and a caption; one caption a picture."""
    ids = torch.from_numpy(np.array(split.ids))
    images = torch.from_numpy(made.table[split.rows[pairs[:, 0]]])
    return model(ids[pairs[:, 0]], images, ids[pairs[:, 1]])


@torch.no_grad()
def odds_of(
    model: Judge, made: Collection, split: Split, pairs: np.ndarray
) -> dict[str, np.ndarray]:
    """Log odds (n,) of entailment by branch."""
    return log_odds(logits_of(model, made, split, pairs))


def train_judge(
    made: Collection, seed: int, after_epoch: Callable[[Judge], None] = lambda model: None
) -> Judge:
    """A judge that learnt from the first `LEARNT` labelled pictures.

    after_epoch: is also called before the first one.
    """
    seed_everything(seed)
    split, model, rng = made.splits["judge"], Judge(), np.random.default_rng(seed)
    assert split.fits is not None
    pairs = labelled_pairs(split, range(LEARNT), rng)
    labels = torch.from_numpy(split.fits[tuple(pairs.T)].astype(int))
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    after_epoch(model)
    for _ in range(EPOCHS):
        for rows in np.array_split(rng.permutation(len(pairs)), max(1, len(pairs) // BATCH)):
            logits = logits_of(model, made, split, pairs[rows])
            counted = torch.ones(len(rows), len(BRANCHES))
            loss = joint_loss(logits, labels[rows], counted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        after_epoch(model)
    return model
