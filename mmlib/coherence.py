"""Cross-Modal Coherence for Text-to-Image Retrieval (Alikhani et al., AAAI 2022): the method.

Where the paper and its authors' code differ, both forms are here and the docstring says which is
which. S is a text, I an image; B the batch, D the width of the shared space, C the relations.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmlib.training import fit

# --- Settings and systems ------------------------------------------------------------------------


@dataclass(frozen=True)
class Settings:
    """The paper's values, completed from the authors' code (see the notebook's table).

    word_width, hidden, width: of word vectors (300), of one LSTM direction (300), of the shared
        space (1024).
    attention: the learned query of eq. for E_S; without it the last states are taken (Base).
    relations: columns of the labels that the head learns; () for no head (CMCA).
    cls: λ_cls, weight of the coherence loss. loss: "distance" (the authors' code) or "cosine" (the
        paper's text). margin: α.
    strength, threshold: λ of eq. 4 and T, below which a text counts as difficult.
    dropout: of word vectors; the authors use none.
    patience: checks without a better MedR after which the learning rate falls to a tenth.
    """

    word_width: int = 300
    hidden: int = 300
    width: int = 1024
    attention: bool = True
    relations: tuple[int, ...] = ()
    cls: float = 0.1
    loss: Literal["distance", "cosine"] = "distance"
    margin: float = 0.3
    batch: int = 32
    learning_rate: float = 1e-4
    epochs: int = 20
    patience: int = 5
    max_words: int = 40
    strength: float = 0.12
    threshold: float = 0.05
    dropout: float = 0.0


def systems(relations: Sequence[str]) -> dict[str, dict]:
    """Table 3: what each variant changes in `Settings`, by its printed name."""
    every = tuple(range(len(relations)))
    return {
        "Base": {"attention": False, "relations": ()},
        "CMCA": {"relations": ()},
        "CMCM-NoAttn": {"attention": False, "relations": every},
        "CMCM": {"relations": every},
        **{f"CMCM_{name}": {"relations": (c,)} for c, name in enumerate(relations)},
    }


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

    def __init__(self, embeddings: Tensor, settings: Settings):
        super().__init__()
        self.embed = nn.Embedding.from_pretrained(embeddings.clone(), freeze=False, padding_idx=0)
        # Two one-way LSTMs on padded batches: half the time of a packed two-way one on a CPU.
        self.ahead = nn.LSTM(embeddings.shape[1], settings.hidden, batch_first=True)
        self.back = nn.LSTM(embeddings.shape[1], settings.hidden, batch_first=True)
        self.pool = AttentionPooling(2 * settings.hidden) if settings.attention else None
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


class Model(nn.Module):
    """One system: both encoders and, where it learns relations, the head."""

    def __init__(
        self,
        embeddings: Tensor,
        image_width: int,
        settings: Settings,
        backbone: nn.Module | None = None,
    ):
        super().__init__()
        self.settings = settings
        self.texts = TextEncoder(embeddings, settings)
        self.images = ImageEncoder(image_width, settings.width, backbone)
        self.head = (
            CoherenceHead(settings.width, len(settings.relations)) if settings.relations else None
        )

    def loss(self, batch: "Batch", weights: Tensor) -> Tensor:
        """L = L_ret + λ_cls L_cls; weights (relations of the head,) are p_c."""
        texts, _ = self.texts(batch.ids, batch.lengths)
        images = self.images(batch.images)
        rank = hinge_distance if self.settings.loss == "distance" else hinge_cosine
        total = rank(texts, images, self.settings.margin)
        if self.head is None:
            return total
        labels = batch.labels[:, list(self.settings.relations)]
        return total + self.settings.cls * coherence_loss(self.head(texts, images), labels, weights)


# --- Training ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Batch:
    """Pairs as tensors: ids (B, L), lengths (B,), g or pictures, labels (B, C)."""

    ids: Tensor
    lengths: Tensor
    images: Tensor
    labels: Tensor


@dataclass(frozen=True, eq=False)
class Split:
    """Pairs to train or test on.

    ids (n, L) int64, lengths (n,), labels (n, C) bool; image_of (n,): row of each pair's image.
    images: g (images, W) float32, or a function of (rows, augment) that reads pictures.
    """

    ids: np.ndarray
    lengths: np.ndarray
    labels: np.ndarray
    image_of: np.ndarray
    images: np.ndarray | Callable[[np.ndarray, bool], Tensor]

    def __len__(self) -> int:
        return len(self.ids)

    def words(self, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        """Ids (rows, longest of them) and lengths of some texts."""
        longest = int(self.lengths[rows].max())
        return torch.from_numpy(self.ids[rows, :longest]), torch.from_numpy(self.lengths[rows])

    def pictures(self, images: np.ndarray, augment: bool = False) -> Tensor:
        """g or pictures of some images; `augment`: cropped at random, as in training."""
        if isinstance(self.images, np.ndarray):
            return torch.from_numpy(np.asarray(self.images[images], dtype=np.float32))
        return self.images(images, augment)

    def batch(self, rows: np.ndarray, device: str, augment: bool = False) -> Batch:
        """Some pairs on a device."""
        ids, lengths = self.words(rows)
        images = self.pictures(self.image_of[rows], augment)
        labels = torch.from_numpy(self.labels[rows])
        return Batch(ids.to(device), lengths, images.to(device), labels.to(device))


def _parts(order: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Batches of `size`; a last one of a single pair is left out, as batch norm needs two."""
    return (p for i in range(0, len(order), size) if len(p := order[i : i + size]) > 1)


def train(
    model: Model,
    train: Split,
    dev: Split,
    seed: int,
    device: str = "cpu",
    checkpoint: Path | None = None,
    progress: str | None = None,
) -> list[dict[str, float]]:
    """Train with Adam (β 0.5, 0.999); keep the epoch of lowest MedR on `dev` (whole, one pool).

    MedR takes few values; equal ones are told apart by the mean reciprocal rank.
    Returns one dict an epoch with train_loss, dev_medr, dev_mrr; the model keeps the best weights.
    """
    settings = model.settings
    model.to(device)
    columns = list(settings.relations)
    weights = torch.tensor(
        positive_weights(train.labels[:, columns]) if columns else [],
        dtype=torch.float32,
        device=device,
    )

    def batches(epoch: int) -> Iterator[Batch]:
        order = np.random.default_rng([seed, epoch]).permutation(len(train))
        return (train.batch(rows, device, augment=True) for rows in _parts(order, settings.batch))

    def evaluate() -> dict[str, float]:
        ranks = full_ranks(encode(model, dev, device).theta)
        medr, mrr = float(np.median(ranks)), float((1 / ranks).mean())
        return {"dev_loss": medr - mrr / 2, "dev_medr": medr, "dev_mrr": mrr}

    optimiser = torch.optim.Adam(
        model.parameters(), lr=settings.learning_rate, betas=(0.5, 0.999), fused=True
    )
    return fit(
        model, batches, lambda batch: model.loss(batch, weights), evaluate,
        epochs=settings.epochs, learning_rate=settings.learning_rate, patience=settings.patience,
        factor=0.1, seed=seed, checkpoint=checkpoint, progress=progress, optimiser=optimiser,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Encoded:
    """Unit vectors of pairs: texts (n, D), the DIFFERENT images (m, D), image_of (n,) among them.

    An image that stands in several pairs has one vector, so that its scores tie exactly.
    attention: the weights of each text's words, or None.
    """

    texts: np.ndarray
    images: np.ndarray
    image_of: np.ndarray
    attention: list[np.ndarray] | None

    @property
    def theta(self) -> np.ndarray:
        """Cosines (n, n): text i with the image of pair j."""
        cosines = self.texts.astype(np.float64) @ self.images.astype(np.float64).T
        return cosines[:, self.image_of]


@torch.no_grad()
def encode(model: Model, split: Split, device: str = "cpu", size: int = 256) -> Encoded:
    """Encode all pairs of a split with the model as in testing."""
    model.eval()
    texts, images, attention = [], [], []
    for start in range(0, len(split), size):
        ids, lengths = split.words(np.arange(start, min(start + size, len(split))))
        z, weights = model.texts(ids.to(device), lengths)
        texts.append(z.cpu().numpy())
        if weights is not None:
            rows = zip(weights.cpu().numpy(), lengths.tolist(), strict=True)
            attention += [row[:length] for row, length in rows]
    different, image_of = np.unique(split.image_of, return_inverse=True)
    for start in range(0, len(different), size):
        g = split.pictures(different[start : start + size])
        images.append(model.images(g.to(device)).cpu().numpy())
    return Encoded(np.concatenate(texts), np.concatenate(images), image_of, attention or None)


@torch.no_grad()
def probabilities(model: Model, seen: Encoded) -> np.ndarray:
    """x (n, n, relations of the head): every text with every pair's image. ValueError: no head."""
    if model.head is None:
        raise ValueError("this system learns no relations, so it has no confidence to refine with")
    device = model.head.linear.weight.device
    texts, images = (torch.from_numpy(part).to(device) for part in (seen.texts, seen.images))
    return model.head.all_pairs(texts, images).cpu().numpy()[:, seen.image_of]


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
        "medr": np.median(ranks, axis=1),
        **{f"r{k}": 100 * (ranks <= k).mean(axis=1) for k in (1, 5, 10)},
    }


def settings_of(system: str, relations: Sequence[str], settings: Settings) -> Settings:
    """The settings of a system of Table 3. Raises ValueError for an unknown name."""
    known = systems(relations)
    if system not in known:
        raise ValueError(f"no system {system!r}: there are {', '.join(known)}")
    return replace(settings, **known[system])
