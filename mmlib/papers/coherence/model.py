"""The method of paper 01: a shared space of texts and pictures that also learns their relations.

Alikhani, Han, Ravi, Kapadia, Pavlovic, Stone: Cross-Modal Coherence for Text-to-Image Retrieval,
AAAI 2022. Where the paper and its authors' code differ, the docstring says which is which. S is a
text, I an image; B the batch, D the width of the shared space, C the relations.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmlib.papers.coherence.arrays import Batch

# --- Systems and settings ------------------------------------------------------------------------


@dataclass(frozen=True)
class System:
    """What a system is (the paper's Table 3, and variants of it).

    attention: the learned query; without it the LSTM's last states are taken.
    relations: what the head learns: "" nothing, "all", or the name of one relation.
    cls: λ_cls, weight of the coherence loss. weighted: by p_c, see `positive_weights`.
    head: "sum" is CAM, a linear layer on [z_S; z_I]; "product" is one on z_S ∘ z_I.
    reports: of the answer: "ranks" alone, also "refined" ones, or "all" that is analysed.
    """

    system: str
    attention: bool = True
    relations: str = ""
    cls: float = 0.1
    weighted: bool = True
    head: Literal["sum", "product"] = "sum"
    reports: Literal["ranks", "refined", "all"] = "ranks"

    def columns(self, relations: Sequence[str]) -> list[int]:
        """Columns of the labels that the head learns; ValueError for a relation not there."""
        if self.relations in ("", "all"):
            return list(range(len(relations))) if self.relations else []
        if self.relations not in relations:
            raise ValueError(f"no relation {self.relations!r}: there are {', '.join(relations)}")
        return [list(relations).index(self.relations)]


@dataclass(frozen=True)
class Settings:
    """How systems are trained: the paper's values, completed from the authors' code.

    word_width, hidden, width: of word vectors (300), of one LSTM direction (300), of the shared
        space (1024).
    loss: "distance" (the authors' code) or "cosine" (the paper's text). margin: α.
    strength, threshold: λ of eq. 4 and T, below which a text counts as difficult.
    dropout: of word vectors; the authors use none. words: epochs of word2vec.
    schedule: "plateau" lets the rate fall to a tenth after `patience` checks without a better dev
        rank; "cosine" brings it to 0 over the training.
    """

    word_width: int = 300
    hidden: int = 300
    width: int = 1024
    loss: Literal["distance", "cosine"] = "distance"
    margin: float = 0.3
    batch: int = 32
    learning_rate: float = 1e-4
    epochs: int = 20
    schedule: Literal["plateau", "cosine"] = "plateau"
    patience: int = 5
    max_words: int = 40
    words: int = 50
    strength: float = 0.12
    threshold: float = 0.05
    dropout: float = 0.0


# --- Encoders (Sec. "Model", E_S and E_I) ---------------------------------------------------------


class AttentionPooling(nn.Module):
    """One learned query looks at all words: k_t = tanh(A h_t + b), α = softmax(u·k_t / √W).

    The paper cites Vaswani et al.; its code has this pooling, with neither heads nor a query of
    each word. What is summed are the states h_t, not the k_t.
    """

    def __init__(self, width: int):
        super().__init__()
        self.project = nn.Linear(width, width)
        self.query = nn.Parameter(torch.randn(width))

    def forward(self, states: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """States (B, L, W) of texts of `lengths` (B,) -> pooled (B, W) and weights (B, L)."""
        scores = torch.tanh(self.project(states)) @ self.query / states.shape[-1] ** 0.5
        inside = torch.arange(states.shape[1], device=states.device) < lengths[:, None]
        weights = scores.masked_fill(~inside, -torch.inf).softmax(dim=1)
        kept = states.masked_fill(~inside[..., None], 0)  # garbage in padding times 0 may be NaN
        return (weights[..., None] * kept).sum(dim=1), weights


class TextEncoder(nn.Module):
    """E_S: word vectors, a bidirectional LSTM, pooling; then batch norm and an affine map."""

    def __init__(self, embeddings: Tensor, attention: bool, settings: Settings):
        super().__init__()
        self.embed = nn.Embedding.from_pretrained(embeddings.clone(), freeze=False, padding_idx=0)
        # Two one-way LSTMs on padded batches: half the time of a packed two-way one on a CPU.
        self.ahead = nn.LSTM(embeddings.shape[1], settings.hidden, batch_first=True)
        self.back = nn.LSTM(embeddings.shape[1], settings.hidden, batch_first=True)
        self.pool = AttentionPooling(2 * settings.hidden) if attention else None
        self.norm = nn.BatchNorm1d(2 * settings.hidden)
        self.project = nn.Linear(2 * settings.hidden, settings.width)
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor | None]:
        """Ids (B, L), lengths (B,) -> unit z_S (B, D) and weights over words (B, L) or None."""
        words = self.dropout(self.embed(ids))
        lengths = lengths.to(ids.device)
        turned = _turn(lengths, ids.shape[1])[..., None]
        ahead, _ = self.ahead(words)  # what follows a text cannot reach its own states
        back, _ = self.back(words.gather(1, turned.expand_as(words)))
        if self.pool is None:
            last = (lengths - 1)[:, None, None].expand(-1, 1, ahead.shape[2])
            states = [one.gather(1, last)[:, 0] for one in (ahead, back)]
            pooled, weights = torch.cat(states, dim=1), None
        else:
            back = back.gather(1, turned.expand_as(back))
            pooled, weights = self.pool(torch.cat([ahead, back], dim=2), lengths)
        return F.normalize(self.project(self.norm(pooled)), dim=1), weights


def _turn(lengths: Tensor, longest: int) -> Tensor:
    """Places (B, longest) that turn each text of its length around and leave its padding."""
    place = torch.arange(longest, device=lengths.device).expand(len(lengths), -1)
    return torch.where(place < lengths[:, None], lengths[:, None] - 1 - place, place)


class ImageEncoder(nn.Module):
    """E_I: g, the network's average over the picture; then batch norm and an affine map.

    backbone: a network from pictures (B, 3, 224, 224) to maps (B, W, h, w), trained with all the
    rest as in the paper; None where g itself is given, from a frozen network.
    """

    def __init__(self, image_width: int, width: int, backbone: nn.Module | None = None):
        super().__init__()
        self.backbone = backbone
        self.norm = nn.BatchNorm1d(image_width)
        self.project = nn.Linear(image_width, width)

    def forward(self, images: Tensor) -> Tensor:
        """Pictures (B, 3, 224, 224), or g (B, W) -> unit z_I (B, D)."""
        g = images if self.backbone is None else self.backbone(images).mean(dim=(2, 3))
        return F.normalize(self.project(self.norm(g)), dim=1)


# --- Losses --------------------------------------------------------------------------------------


def hinge_distance(texts: Tensor, images: Tensor, margin: float = 0.3) -> Tensor:
    """L_ret of the authors' code, on unit vectors (B, D) whose rows belong together.

    All 2B vectors are anchors; the hardest negative is the nearest of the 2B − 2 others, of
    EITHER modality; mean of max(0, d(anchor, partner) − d(anchor, negative) + margin) with
    Euclidean distances. Eq. 1 as printed has min for max: minimising that would part the pairs.
    """
    both = torch.cat([texts, images])
    squared = (2 - 2 * both @ both.T).clamp_min(1e-12)  # the root has no slope at 0
    distance = squared.sqrt()
    count = len(texts)
    label = torch.arange(count, device=texts.device).repeat(2)
    own = label[:, None] == label
    partner = distance.diagonal(offset=count).repeat(2)
    nearest = distance.masked_fill(own, torch.inf).amin(dim=1)
    return (partner - nearest + margin).clamp_min(0).mean()


def hinge_cosine(texts: Tensor, images: Tensor, margin: float = 0.3) -> Tensor:
    """L_ret as the paper's text means it: hardest wrong image of a text, hardest wrong text of an
    image, both hinges added, mean over the B pairs. It is minus the printed eq. 1.
    """  # fmt: skip
    scores = texts @ images.T
    own = scores.diagonal()
    wrong = scores.masked_fill(
        torch.eye(len(scores), dtype=torch.bool, device=scores.device), -torch.inf
    )
    return sum((margin - own + wrong.amax(dim=side)).clamp_min(0).mean() for side in (1, 0))  # type: ignore[return-value]


def positive_weights(labels: np.ndarray) -> np.ndarray:
    """p_c = negatives / positives of each relation, labels (n, C) -> (C,), as in the code.

    The printed formula weights both terms by the reciprocal of the positive rate instead.
    Raises ValueError for a relation that never holds: nothing can be learnt about it.
    """
    positives = np.asarray(labels).astype(bool).sum(axis=0)
    if not positives.all():
        raise ValueError(
            f"relation {int(np.argmin(positives))} has no positive pair: leave it out of the loss"
        )
    return (len(labels) - positives) / positives


def coherence_loss(logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """L_cls: cross-entropy with p_c on the positive term, mean over batch and relations.

    logits, labels (B, C), weights (C,). The printed formula lacks the minus sign and sums over c.
    """
    return F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), pos_weight=weights)


# --- The coherence-aware module (CAM) ------------------------------------------------------------


class CoherenceHead(nn.Module):
    """CAM: one linear layer on [z_S; z_I], so logit_c = a_c·z_S + b_c·z_I + v_c.

    Nothing in it is about the pair: for any text, images are in the same order, that of b_c·z_I.
    """

    def __init__(self, width: int, relations: int):
        super().__init__()
        self.linear = nn.Linear(2 * width, relations)

    def forward(self, texts: Tensor, images: Tensor) -> Tensor:
        """z_S, z_I (B, D) of pairs -> logits (B, C)."""
        return self.linear(torch.cat([texts, images], dim=1))

    def all_pairs(self, texts: Tensor, images: Tensor) -> Tensor:
        """Probabilities x (n, m, C) that each relation holds, every text with every image."""
        of_texts, of_images = self.linear.weight.split(texts.shape[1], dim=1)  # a, b: (C, D)
        logits = (texts @ of_texts.T)[:, None] + (images @ of_images.T)[None] + self.linear.bias
        return logits.sigmoid()


class ProductHead(nn.Module):
    """A linear layer on z_S ∘ z_I, place by place: logit_c = d_c·(z_S ∘ z_I) + v_c. Our variant.

    It can say whether two vectors agree where it matters for c, and nothing about one alone.
    """

    def __init__(self, width: int, relations: int):
        super().__init__()
        self.linear = nn.Linear(width, relations)

    def forward(self, texts: Tensor, images: Tensor) -> Tensor:
        """z_S, z_I (B, D) of pairs -> logits (B, C)."""
        return self.linear(texts * images)

    def all_pairs(self, texts: Tensor, images: Tensor) -> Tensor:
        """Probabilities x (n, m, C) that each relation holds, every text with every image."""
        weighted = texts[:, None] * self.linear.weight  # (n, C, D)
        return (weighted @ images.T + self.linear.bias[:, None]).sigmoid().transpose(1, 2)


HEADS: dict[str, type[CoherenceHead | ProductHead]] = {
    "sum": CoherenceHead,
    "product": ProductHead,
}


class Model(nn.Module):
    """One system: both encoders and, where it learns relations, the head.

    weights (C,): p_c of the relations that the head learns, in the order of `columns`.
    """

    weights: Tensor
    head: CoherenceHead | ProductHead | None

    def __init__(
        self,
        system: System,
        settings: Settings,
        embeddings: Tensor,
        image_width: int,
        columns: Sequence[int] = (),
        weights: np.ndarray | None = None,
        backbone: nn.Module | None = None,
    ):
        super().__init__()
        self.system, self.settings, self.columns = system, settings, list(columns)
        self.texts = TextEncoder(embeddings, system.attention, settings)
        self.images = ImageEncoder(image_width, settings.width, backbone)
        own = np.ones(len(self.columns)) if weights is None else weights
        self.register_buffer("weights", torch.tensor(own, dtype=torch.float32))
        self.head = HEADS[system.head](settings.width, len(self.columns)) if self.columns else None

    def loss(self, batch: Batch) -> Tensor:
        """L = L_ret + λ_cls L_cls."""
        texts, _ = self.texts(batch.ids, batch.lengths)  # (B, D)
        images = self.images(batch.images)  # (B, D)
        rank = hinge_distance if self.settings.loss == "distance" else hinge_cosine
        total = rank(texts, images, self.settings.margin)
        if self.head is None:
            return total
        logits, labels = self.head(texts, images), batch.labels[:, self.columns]  # (B, C)
        return total + self.system.cls * coherence_loss(logits, labels, self.weights)


# --- Confidence and selective refinement ---------------------------------------------------------


def confidence(probabilities: np.ndarray, strength: float) -> np.ndarray:
    """η = Σ_c exp(λ |x_c − 0.5|), eqs. 4 and 5: (..., C) -> (...). Sure noes count as sure yeses.

    The paper takes λ = 0.13 (CITE++) and 0.12 (Clue): each term lies between 1 and 1.07.
    """
    return np.exp(strength * np.abs(np.asarray(probabilities) - 0.5)).sum(axis=-1)


def gap(theta: np.ndarray) -> np.ndarray:
    """Δ (n,): how far the best image of each text is ahead of the second, theta (n, m ≥ 2)."""
    rows, best = np.arange(len(theta)), theta.argmax(axis=1)
    others = theta.copy()
    others[rows, best] = -np.inf  # far quicker than a partition of the row
    return theta[rows, best] - others.max(axis=1)


def refine(theta: np.ndarray, eta: np.ndarray, threshold: float) -> np.ndarray:
    """θ̄ = θ η (eq. 6) for difficult texts, those with Δ < T; other rows stay. All (n, m).

    T is 0.1 in the paper and 0.05 in its code.
    """
    difficult = gap(theta) < threshold
    return np.where(difficult[:, None], theta * eta, theta)


# --- Evaluation ----------------------------------------------------------------------------------


def draw_pools(
    pairs: int, size: int = 500, count: int = 50, seed: int = 0, replace: bool = False
) -> np.ndarray:
    """Pools of test pairs (count, size), drawn once and shared by all systems.

    replace: with replacement, as the code behind Table 7 does: then a pool holds some pairs twice,
    and each of these shares its rank with its twin. Raises ValueError where there are too few.
    """
    if size > pairs and not replace:
        raise ValueError(f"a pool of {size} cannot be drawn from {pairs} pairs: set a smaller size")
    rng = np.random.default_rng([seed, 501])
    return np.array([rng.choice(pairs, size, replace=replace) for _ in range(count)])


def full_ranks(
    theta: np.ndarray, eta: np.ndarray | None = None, threshold: float | None = None
) -> np.ndarray:
    """Rank (n,), from 1, of each text's own image: 1 + better ones + half of the equal ones.

    theta (n, n): text i with the image of pair j. With eta (n, n), rows with Δ below `threshold`
    are refined first, all of them where it is None; that takes two pairs or more.
    """
    if eta is not None:
        theta = refine(theta, eta, np.inf if threshold is None else threshold)
    own = theta.diagonal()[:, None]
    return 1 + (theta > own).sum(axis=1) + ((theta == own).sum(axis=1) - 1) / 2


def pool_ranks(
    theta: np.ndarray,
    pools: np.ndarray,
    eta: np.ndarray | None = None,
    threshold: float | None = None,
) -> np.ndarray:
    """`full_ranks` within each pool (count, size) of pairs: (count, size). Δ is the pool's own."""
    parts = (np.ix_(pool, pool) for pool in pools)
    return np.array(
        [full_ranks(theta[at], None if eta is None else eta[at], threshold) for at in parts]
    )


def pool_metrics(ranks: np.ndarray) -> dict[str, np.ndarray]:
    """MedR and R@1, 5, 10 in percent of each pool: ranks (count, size) -> arrays (count,).

    MedR lies between 1 and the pool's size (the paper says between 0 and 1, a slip); by chance
    250.5 for 500. One image is right for a text, so R@K is a hit rate and a recall at once.
    """
    return {
        "MedR": np.median(ranks, axis=1),
        **{f"R@{k}": 100 * (ranks <= k).mean(axis=1) for k in (1, 5, 10)},
    }
