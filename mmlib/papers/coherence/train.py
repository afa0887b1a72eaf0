"""One training of paper 01, and what is measured of it."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, ReduceLROnPlateau

from mmlib.core.fit import Descent, fit, seed_everything, warm_up_cosine
from mmlib.core.jobs import Answer, History, Job, Run
from mmlib.papers.coherence.batches import Arrays, Batch, Split, row_batches
from mmlib.papers.coherence.method import (
    AttentionPooling,
    CoherenceHead,
    ImageEncoder,
    Model,
    TextEncoder,
    confidence,
    gap,
    hinge_cosine,
    hinge_distance,
    positive_weights,
)
from mmlib.papers.coherence.metrics import (
    average_precisions,
    full_ranks,
    mean_log_rank,
    pool_metrics,
    pool_ranks,
    pools_of,
)
from mmlib.papers.coherence.probes import BySplit, precisions, relations_in_ranking
from mmlib.papers.coherence.systems import OTHER_THRESHOLD, REFINED, Settings, System
from mmlib.papers.coherence.variants import HEADS, LastStates

STRENGTHS = (0.03, 0.06, 0.12, 0.25, 0.5, 1.0)
THRESHOLDS = (0.02, 0.05, 0.1, 0.2, 2.0)  # 2: every text is refined
LOSSES = {"distance": hinge_distance, "cosine": hinge_cosine}


def make(system: System, settings: Settings, arrays: Arrays, seed: int) -> Model:
    """The model that a training of this seed starts from."""
    seed_everything(seed)
    train, columns = arrays.splits["train"], system.columns(arrays.relations)
    weights = np.ones(len(columns))
    if columns and system.weighted:
        weights = positive_weights(train.labels[:, columns])
    backbone = None if isinstance(train.images, np.ndarray) else _resnet50()
    texts = TextEncoder(
        torch.tensor(arrays.words), settings.hidden, settings.width, settings.dropout,
        pooling=AttentionPooling if system.attention else LastStates,
    )  # fmt: skip
    images = ImageEncoder(arrays.image_width, settings.width, backbone)
    head = HEADS[system.head](settings.width, len(columns)) if columns else None
    retrieval_loss = partial(LOSSES[settings.loss], margin=settings.margin)
    return Model(texts, images, head, columns, weights, system.lambda_cls, retrieval_loss)


def _resnet50() -> torch.nn.Module:
    """The paper's image network with ImageNet weights, up to its last maps (B, 2048, 7, 7)."""
    from mmlib.features.backbones import load_backbone

    return load_backbone("resnet50").trunk.train().requires_grad_(True)


def train(job: Job, arrays: Arrays, run: Run = Run()) -> tuple[Model, History]:
    """Train with Adam (β 0.5, 0.999); keep the epoch of the lowest mean log2 rank on dev.

    Dev is one pool, ranked whole. The paper keeps the lowest MedR, which takes few values.
    Returns the model and one dict an epoch: train_loss, dev_loss (the mean log2 rank), dev_MedR.
    """
    settings, train, dev = Settings(**job.settings), arrays.splits["train"], arrays.splits["val"]
    model = make(System(**job.system), settings, arrays, job.seed).to(run.device)

    def batches(epoch: int) -> Iterator[Batch]:
        order = np.random.default_rng([job.seed, epoch]).permutation(len(train))
        chosen = row_batches(order, settings.batch)
        return (train.batch(rows, run.device, augment=True) for rows in chosen)

    def evaluate() -> dict[str, float]:
        ranks = full_ranks(encode(model, dev, run.device).theta)
        return {"dev_loss": float(np.log2(ranks).mean()), "dev_MedR": float(np.median(ranks))}

    optimizer = torch.optim.Adam(
        model.parameters(), lr=settings.learning_rate, betas=(0.5, 0.999), fused=True
    )
    step = Descent(model.loss, optimizer, _schedule(optimizer, settings, len(train)))
    history = fit(
        model, batches, step, evaluate, epochs=settings.epochs, seed=job.seed, run=run
    )  # fmt: skip
    return model, history


def _schedule(
    optimizer: torch.optim.Optimizer, settings: Settings, pairs: int
) -> LRScheduler | ReduceLROnPlateau:
    if settings.schedule == "plateau":
        return ReduceLROnPlateau(optimizer, factor=0.1, patience=settings.patience)
    steps = settings.epochs * -(-pairs // settings.batch)
    return LambdaLR(optimizer, partial(warm_up_cosine, steps=steps, warm_up=steps // 20))


# --- Encoding ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Encoded:
    """Unit vectors of pairs: texts (n, D), the DIFFERENT images (m, D), image_of (n,) among them.

    An image of several pairs has one vector, so that its scores tie exactly.
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

    @property
    def of_pairs(self) -> np.ndarray:
        """The vector (n, D) of each pair's image."""
        return self.images[self.image_of]


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
def probabilities(model: Model, encoded: Encoded) -> np.ndarray:
    """x (n, n, relations of the head): every text with every pair's image. ValueError: no head."""
    if model.head is None:
        raise ValueError("this system learns no relations, so it has no confidence to refine with")
    device = model.weights.device
    texts = torch.from_numpy(encoded.texts).to(device)
    images = torch.from_numpy(encoded.images).to(device)
    x = model.head.all_pairs(texts, images)  # type: ignore[operator]
    return x.cpu().numpy()[:, encoded.image_of]


# --- One job -------------------------------------------------------------------------------------


def train_and_score(job: Job, arrays: Arrays, run: Run = Run()) -> Answer:
    """Train, and rank every test text's own picture among all test pictures.

    Split "test", a value a text: "rank" by θ; where the system reports "refined", also "rank,
    refined" (λ and T as in the code), "rank, refined as dev chose"; "all": "rank, refined, T 0.1",
    "rank by confidence" (η alone), "gap" (Δ), and of a system without relations "rank, true
    relations" and "rank, told relations" (see `probes`).
    Split "pools", a value a pool: "MedR", "R@1", "R@5", "R@10", and "MedR, refined" and so on.
    Split "relations", a value a relation, where all is reported: see `of_relations`.
    """
    started = time.process_time()
    model, history = train(job, arrays, run)
    encoded = {name: encode(model, arrays.splits[name], run.device) for name in ("val", "test")}
    theta = {name: split.theta for name, split in encoded.items()}
    pools = pools_of(len(theta["test"]))
    values: dict[str, dict[str, np.ndarray]] = {
        "test": {"rank": full_ranks(theta["test"])},
        "pools": pool_metrics(pool_ranks(theta["test"].astype(np.float32), pools)),
    }
    reports = job.system["reports"]
    if reports == "all":
        values["test"]["gap"] = gap(theta["test"])
        values["relations"] = of_relations(model, arrays, encoded["test"], run.device)
        if model.head is None and isinstance(arrays.splits["train"].images, np.ndarray):
            values["test"] |= relations_in_ranking(arrays, theta)
    if reports != "ranks" and model.head is not None:
        x = {name: probabilities(model, split) for name, split in encoded.items()}
        refined, of_pools = refinements(theta, x, Settings(**job.settings), pools)
        if reports != "all":
            refined = {name: refined[name] for name in (REFINED, f"{REFINED} as dev chose")}
        values["test"] |= refined
        values["pools"] |= of_pools
    return Answer(values, history, time.process_time() - started)


def refinements(
    theta: BySplit, x: BySplit, settings: Settings, pools: np.ndarray
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Ranks of test texts under θ̄, and MedR and recalls of the same pools.

    theta (n, n), x (n, n, C): cosines and probabilities of the splits "val" and "test".
    """
    test, eta = theta["test"], confidence(x["test"], settings.strength)
    strength, threshold = best_refinement(theta["val"], x["val"])
    ranks = {
        REFINED: full_ranks(test, eta, settings.threshold),
        f"{REFINED} as dev chose": full_ranks(test, confidence(x["test"], strength), threshold),
        f"{REFINED}, T {OTHER_THRESHOLD}": full_ranks(test, eta, OTHER_THRESHOLD),
        "rank by confidence": full_ranks(eta),
    }
    metrics = pool_metrics(pool_ranks(test.astype(np.float32), pools, eta, settings.threshold))
    return ranks, {f"{name}, refined": values for name, values in metrics.items()}


def best_refinement(theta: np.ndarray, x: np.ndarray) -> tuple[float, float]:
    """λ and T of the lowest mean log2 rank on the dev pairs; the weakest where tied."""
    scored = []
    for strength in STRENGTHS:
        eta = confidence(x, strength)
        scored += [(mean_log_rank(theta, eta, t), strength, t) for t in THRESHOLDS]
    _, strength, threshold = min(scored)
    return strength, threshold


@torch.no_grad()
def of_relations(model: Model, arrays: Arrays, test: Encoded, device: str) -> dict[str, np.ndarray]:
    """What a system knows of each relation, (C,) each.

    "AP of z_S", "AP of z_I" and "AP of both": linear probes of its vectors, fitted to those of
    training pairs. With a head of all relations also "AP" (Table 8), "AP, text part", "AP, image
    part" (a_c·z_S and b_c·z_I alone), and "alignment": the cosine of a_c and b_c.
    """
    labels = {name: arrays.splits[name].labels for name in ("train", "test")}
    encoded = {"train": encode(model, arrays.splits["train"], device), "test": test}
    texts = {name: split.texts.astype(float) for name, split in encoded.items()}
    images = {name: split.of_pairs.astype(float) for name, split in encoded.items()}
    joined = {name: np.hstack([texts[name], images[name]]) for name in encoded}
    values = {
        f"AP of {name}": precisions(vectors["train"], vectors["test"], labels, 1e-4)
        for name, vectors in (("z_S", texts), ("z_I", images), ("both", joined))
    }
    if model.head is None or len(model.columns) < len(arrays.relations):
        return values
    pairs = (torch.from_numpy(vectors).to(device) for vectors in (test.texts, test.of_pairs))
    scores = {"AP": model.head(*pairs).cpu().numpy()}
    if isinstance(model.head, CoherenceHead):
        weight = model.head.linear.weight.cpu().numpy().astype(float)
        a, b = np.split(weight, 2, axis=1)  # (C, D) each
        scores["AP, text part"] = texts["test"] @ a.T
        scores["AP, image part"] = images["test"] @ b.T
        lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
        values["alignment"] = (a * b).sum(axis=1) / lengths
    return values | {name: average_precisions(labels["test"], x) for name, x in scores.items()}


def examples(encoded: Encoded, rows: Sequence[int], top: int = 5) -> list[dict[str, Any]]:
    """The best pairs' rows of some texts, the rank of their own, and their words' weights."""
    theta = encoded.theta
    ranks = full_ranks(theta)
    return [
        {
            "text": int(row),
            "best": [int(i) for i in np.argsort(-theta[row], kind="stable")[:top]],
            "rank": float(ranks[row]),
            "attention": None if encoded.attention is None else encoded.attention[row],
        }
        for row in rows
    ]
