"""The method of paper 01: a shared space of texts and pictures that also learns their relations.

Alikhani, Han, Ravi, Kapadia, Pavlovic, Stone: Cross-Modal Coherence for Text-to-Image Retrieval,
AAAI 2022. Where the paper and its authors' code differ, the docstring says which is which.
Shapes: B pairs in a batch, L words of the longest text, E width of a word vector, H of one LSTM
direction, D of the shared space, C relations.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn
from torch.nn import functional as F

POOL, POOLS = 500, 50  # pairs in a pool of test pairs, and how many pools are ranked


@dataclass(frozen=True)
class Batch:
    """Pairs as tensors: ids (B, L), lengths (B,), g (B, W) or pictures, labels (B, C) bool."""

    ids: Tensor
    lengths: Tensor
    images: Tensor
    labels: Tensor


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

    def forward(self, states: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor | None]:
        """States (B, L, W) of texts of `lengths` (B,) -> pooled (B, W) and weights α (B, L)."""
        scores = torch.tanh(self.project(states)) @ self.query / states.shape[-1] ** 0.5  # (B, L)
        inside = torch.arange(states.shape[1], device=states.device) < lengths[:, None]
        weights = scores.masked_fill(~inside, -torch.inf).softmax(dim=1)
        states = states.masked_fill(~inside[..., None], 0)  # 0 times garbage in padding may be NaN
        return (weights[..., None] * states).sum(dim=1), weights


class LastStates(nn.Module):
    """Without attention: the states of both directions after their last word."""

    def __init__(self, width: int):
        super().__init__()
        self.hidden = width // 2

    def forward(self, states: Tensor, lengths: Tensor) -> tuple[Tensor, None]:
        """States (B, L, 2H) of texts of `lengths` (B,) -> (B, 2H), and no weights."""
        last = (lengths - 1)[:, None, None].expand(-1, 1, self.hidden)
        forwards = states[:, :, : self.hidden].gather(1, last)[:, 0]
        return torch.cat([forwards, states[:, 0, self.hidden :]], dim=1), None


class BidirectionalLSTM(nn.Module):
    """The states of an LSTM that reads forwards and of one that reads backwards, side by side.

    Two one-way LSTMs on padded batches take half the time of a packed two-way one on a CPU.
    """

    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.forwards = nn.LSTM(width, hidden, batch_first=True)
        self.backwards = nn.LSTM(width, hidden, batch_first=True)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        """Words (B, L, E) of texts of `lengths` (B,) -> states (B, L, 2H)."""
        position = torch.arange(words.shape[1], device=words.device).expand(len(words), -1)
        mirror = torch.where(position < lengths[:, None], lengths[:, None] - 1 - position, position)
        mirror = mirror[..., None]  # turns each text around and leaves its padding
        forwards, _ = self.forwards(words)  # what follows a text cannot reach its own states
        backwards, _ = self.backwards(words.gather(1, mirror.expand_as(words)))
        return torch.cat([forwards, backwards.gather(1, mirror.expand_as(backwards))], dim=2)


class TextEncoder(nn.Module):
    """E_S: word vectors, a bidirectional LSTM, pooling; then batch norm and an affine map.

    embeddings (words, E): the word vectors that training starts from, padding first. hidden, width:
    H and D. dropout: of word vectors. pooling: states' width -> a module such as AttentionPooling.
    """

    def __init__(
        self, embeddings: Tensor, hidden: int, width: int, dropout: float = 0.0,
        pooling: Callable[[int], nn.Module] = AttentionPooling,
    ):  # fmt: skip
        super().__init__()
        self.embed = nn.Embedding.from_pretrained(embeddings.clone(), freeze=False, padding_idx=0)
        self.lstm = BidirectionalLSTM(embeddings.shape[1], hidden)
        self.pool = pooling(2 * hidden)
        self.norm = nn.BatchNorm1d(2 * hidden)
        self.project = nn.Linear(2 * hidden, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor | None]:
        """Ids (B, L), lengths (B,) -> unit z_S (B, D) and weights over words (B, L) or None."""
        lengths = lengths.to(ids.device)
        states = self.lstm(self.dropout(self.embed(ids)), lengths)  # (B, L, 2H)
        pooled, weights = self.pool(states, lengths)  # (B, 2H), (B, L)
        return F.normalize(self.project(self.norm(pooled)), dim=1), weights


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
        g = images if self.backbone is None else self.backbone(images).mean(dim=(2, 3))  # (B, W)
        return F.normalize(self.project(self.norm(g)), dim=1)


# --- Losses --------------------------------------------------------------------------------------


def hinge_distance(texts: Tensor, images: Tensor, margin: float = 0.3) -> Tensor:
    """L_ret of the authors' code, on unit vectors (B, D) whose rows belong together.

    All 2B vectors are anchors; the hardest negative is the nearest of the 2B − 2 others, of
    EITHER modality; mean of max(0, d(anchor, partner) − d(anchor, negative) + margin) with
    Euclidean distances. Eq. 1 as printed has min for max: minimising that would part the pairs.
    """
    anchors = torch.cat([texts, images])  # (2B, D)
    squared = (2 - 2 * anchors @ anchors.T).clamp_min(1e-12)  # the root has no slope at 0
    distance = squared.sqrt()  # (2B, 2B)
    count = len(texts)
    label = torch.arange(count, device=texts.device).repeat(2)
    same_pair = label[:, None] == label
    partner = distance.diagonal(offset=count).repeat(2)
    nearest = distance.masked_fill(same_pair, torch.inf).amin(dim=1)
    return (partner - nearest + margin).clamp_min(0).mean()


def hinge_cosine(texts: Tensor, images: Tensor, margin: float = 0.3) -> Tensor:
    """L_ret as the paper's text means it: hardest wrong image of a text, hardest wrong text of an
    image, both hinges added, mean over the B pairs. It is minus the printed eq. 1.
    """  # fmt: skip
    scores = texts @ images.T  # (B, B)
    right = scores.diagonal()
    diagonal = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
    wrong = scores.masked_fill(diagonal, -torch.inf)
    of_texts = (margin - right + wrong.amax(dim=1)).clamp_min(0).mean()
    return of_texts + (margin - right + wrong.amax(dim=0)).clamp_min(0).mean()


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


# --- The coherence-aware module (CAM) and the model ----------------------------------------------


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


class Model(nn.Module):
    """Both encoders and the head; without a head it is the coherence-agnostic model.

    columns: of the labels, those that the head learns. weights (C,): their p_c, see
    `positive_weights`. lambda_cls: λ_cls. retrieval_loss: (z_S, z_I) -> L_ret.
    """

    weights: Tensor

    def __init__(
        self, texts: TextEncoder, images: ImageEncoder, head: CoherenceHead | None = None,
        columns: Sequence[int] = (), weights: np.ndarray | Sequence[float] = (),
        lambda_cls: float = 0.1,
        retrieval_loss: Callable[[Tensor, Tensor], Tensor] = hinge_distance,
    ):  # fmt: skip
        super().__init__()
        self.texts, self.images, self.head, self.columns = texts, images, head, list(columns)
        self.register_buffer("weights", torch.tensor(weights, dtype=torch.float32))
        self.lambda_cls, self.retrieval_loss = lambda_cls, retrieval_loss

    def loss(self, batch: Batch) -> Tensor:
        """L = L_ret + λ_cls L_cls."""
        texts, _ = self.texts(batch.ids, batch.lengths)  # (B, D)
        images = self.images(batch.images)  # (B, D)
        loss = self.retrieval_loss(texts, images)
        if self.head is None:
            return loss
        logits, labels = self.head(texts, images), batch.labels[:, self.columns]  # (B, C)
        return loss + self.lambda_cls * coherence_loss(logits, labels, self.weights)


# --- Confidence and selective refinement ---------------------------------------------------------


def confidence(probabilities: np.ndarray, strength: float) -> np.ndarray:
    """η = Σ_c exp(λ |x_c − 0.5|), eqs. 4 and 5: (..., C) -> (...). Sure noes count as sure yeses.

    The paper takes λ = 0.13 (CITE++) and 0.12 (Clue): each term lies between 1 and 1.07.
    """
    return np.exp(strength * np.abs(np.asarray(probabilities) - 0.5)).sum(axis=-1)


def gap(theta: np.ndarray) -> np.ndarray:
    """Δ (n,): how far the best image of each text is ahead of the second, theta (n, m ≥ 2)."""
    rows, best = np.arange(len(theta)), theta.argmax(axis=1)
    rest = theta.copy()
    rest[rows, best] = -np.inf  # far quicker than a partition of the row
    return theta[rows, best] - rest.max(axis=1)


def refine(theta: np.ndarray, eta: np.ndarray, threshold: float) -> np.ndarray:
    """θ̄ = θ η (eq. 6) for difficult texts, those with Δ < T; other rows stay. All (n, m).

    T is 0.1 in the paper and 0.05 in its code.
    """
    difficult = gap(theta) < threshold
    return np.where(difficult[:, None], theta * eta, theta)


# --- Ranks and precision --------------------------------------------------------------------------


def pools_of(pairs: int, size: int = POOL, count: int = POOLS, seed: int = 0) -> np.ndarray:
    """Pools of test pairs (count, size), drawn once and shared by all systems.

    Without replacement, unlike in the code behind Table 7, where a pool holds some pairs twice.
    Smaller test sets have smaller pools.
    """
    rng = np.random.default_rng([seed, 501])
    size = min(size, pairs)
    return np.array([rng.choice(pairs, size, replace=False) for _ in range(count)])


def full_ranks(theta: np.ndarray) -> np.ndarray:
    """Rank (n,), from 1, of each text's own image: 1 + better ones + half of the equal ones.

    theta (n, n): text i with the image of pair j.
    """
    right = theta.diagonal()[:, None]
    return 1 + (theta > right).sum(axis=1) + ((theta == right).sum(axis=1) - 1) / 2


def mean_log_rank(theta: np.ndarray) -> float:
    """Mean log2 rank of the own image, `full_ranks` as one figure: 1 less is half the rank."""
    return float(np.log2(full_ranks(theta)).mean())


def pool_ranks(
    theta: np.ndarray, pools: np.ndarray, eta: np.ndarray | None = None, threshold: float = 0.0
) -> np.ndarray:
    """`full_ranks` within each pool (count, size) of pairs: (count, size).

    With eta (n, n), rows with Δ below `threshold` in their pool are refined first.
    """
    grids = [np.ix_(pool, pool) for pool in pools]
    if eta is None:
        return np.array([full_ranks(theta[at]) for at in grids])
    return np.array([full_ranks(refine(theta[at], eta[at], threshold)) for at in grids])


def pool_metrics(ranks: np.ndarray) -> dict[str, np.ndarray]:
    """MedR and R@1, 5, 10 in percent of each pool: ranks (count, size) -> arrays (count,).

    MedR lies between 1 and the pool's size (the paper says between 0 and 1, a slip); by chance
    250.5 for 500. One image is right for a text, so R@K is a hit rate and a recall at once.
    """
    return {
        "MedR": np.median(ranks, axis=1),
        **{f"R@{k}": 100 * (ranks <= k).mean(axis=1) for k in (1, 5, 10)},
    }


def expected_in_pools(ranks: np.ndarray, pairs: int, size: int = POOL) -> dict[str, float]:
    """MedR and R@1, 5, 10 of some texts, in expectation over random pools that hold them.

    ranks (n,): of their own images among all `pairs`; a pool has `size` of these. How many of the
    better images are in it is hypergeometric, so R@K, in percent, is exact (a half rank, from a
    tie, counts half to either side). MedR is the median of the expected ranks.
    """
    size = min(size, pairs)
    better = np.asarray(ranks, dtype=float) - 1
    sides = [np.floor(better).astype(int), np.ceil(better).astype(int)]
    figures = {"MedR": float(np.median(1 + better * (size - 1) / max(pairs - 1, 1)))}
    for k in (1, 5, 10):
        within = [stats.hypergeom.cdf(k - 1, pairs - 1, side, size - 1) for side in sides]
        figures[f"R@{k}"] = 100 * float(np.mean(within))
    return figures


def selected(aware: np.ndarray, agnostic: np.ndarray, most: int = 100) -> np.ndarray:
    """Rows that the authors' code exports for raters: where the aware system's rank of the true
    picture is strictly better than the other's, its best first. (There the relation holds, too.)
    """
    better = np.flatnonzero(aware < agnostic)
    return better[np.argsort(aware[better], kind="stable")][:most]


def average_precisions(labels: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Average precision (C,) of each relation: labels, scores (n, C); NaN without positives."""
    from sklearn.metrics import average_precision_score

    return np.array([
        average_precision_score(truth, score) if truth.any() else np.nan
        for truth, score in zip(labels.T, scores.T, strict=True)
    ])  # fmt: skip
