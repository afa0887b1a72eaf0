"""Training and scoring of paper 01's systems: what a job does."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, ReduceLROnPlateau

from mmlib.core.fit import fit, seed_everything, warm_up_cosine
from mmlib.core.jobs import Answer, Job
from mmlib.papers.coherence.arrays import POOL, POOLS, Arrays, Batch, Split, parts
from mmlib.papers.coherence.model import (
    CoherenceHead,
    Model,
    Settings,
    System,
    confidence,
    draw_pools,
    full_ranks,
    gap,
    pool_metrics,
    pool_ranks,
    positive_weights,
)
from mmlib.papers.coherence.probes import average_precision, fusions, precisions

STRENGTHS = (0.03, 0.06, 0.12, 0.25, 0.5, 1.0)
THRESHOLDS = (0.02, 0.05, 0.1, 0.2, 2.0)  # 2: every text is refined
OTHER_THRESHOLD = 0.1  # the paper's T; its code has the other one


def make(system: System, settings: Settings, arrays: Arrays, seed: int) -> Model:
    """The model that a training of this seed starts from."""
    seed_everything(seed)
    train, columns = arrays.splits["train"], system.columns(arrays.relations)
    weights = positive_weights(train.labels[:, columns]) if columns and system.weighted else None
    backbone = None if isinstance(train.images, np.ndarray) else _resnet50()
    words = torch.tensor(arrays.words)
    return Model(system, settings, words, arrays.image_width, columns, weights, backbone)


def _resnet50() -> torch.nn.Module:
    """The paper's image network with ImageNet weights, up to its last maps (B, 2048, 7, 7)."""
    from mmlib.features.backbones import load_backbone

    return load_backbone("resnet50").trunk.train().requires_grad_(True)


def train(
    job: Job,
    arrays: Arrays,
    device: str = "cpu",
    checkpoint: Path | None = None,
    after_epoch: Callable[[list[dict[str, float]]], object] = lambda history: None,
) -> tuple[Model, list[dict[str, float]]]:
    """Train with Adam (β 0.5, 0.999); keep the epoch of the lowest mean log2 rank on dev.

    Dev is one pool, ranked whole. The paper keeps the lowest MedR, which takes few values.
    Returns the model and one dict an epoch: train_loss, dev_loss (the mean log2 rank), dev_MedR.
    """
    settings, train, dev = Settings(**job.settings), arrays.splits["train"], arrays.splits["val"]
    model = make(System(**job.system), settings, arrays, job.seed).to(device)

    def batches(epoch: int) -> Iterator[Batch]:
        order = np.random.default_rng([job.seed, epoch]).permutation(len(train))
        return (train.batch(rows, device, augment=True) for rows in parts(order, settings.batch))

    def evaluate() -> dict[str, float]:
        ranks = full_ranks(encode(model, dev, device).theta)
        return {"dev_loss": float(np.log2(ranks).mean()), "dev_MedR": float(np.median(ranks))}

    optimizer = torch.optim.Adam(
        model.parameters(), lr=settings.learning_rate, betas=(0.5, 0.999), fused=True
    )
    history = fit(
        model, batches, model.loss, evaluate, epochs=settings.epochs, optimizer=optimizer,
        schedule=_schedule(optimizer, settings, len(train)), seed=job.seed, device=device,
        checkpoint=checkpoint, after_epoch=after_epoch,
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
    device = model.weights.device
    texts, images = (torch.from_numpy(part).to(device) for part in (seen.texts, seen.images))
    return model.head.all_pairs(texts, images).cpu().numpy()[:, seen.image_of]


# --- One job -------------------------------------------------------------------------------------


def pools_of(pairs: int) -> np.ndarray:
    """The fixed pools of a test set, shared by all systems; smaller sets have smaller pools."""
    return draw_pools(pairs, min(POOL, pairs), POOLS)


def train_and_score(
    job: Job, arrays: Arrays, device: str = "cpu", checkpoint: Path | None = None
) -> Answer:
    """Train, and rank every test text's own picture among all test pictures.

    Split "test", a value a text: "rank" by θ; where the system reports "refined", also "rank,
    refined" (λ and T as in the code), "rank, refined as dev chose"; "all": "rank, refined, T 0.1",
    "rank by confidence" (η alone), "gap" (Δ), and of a system without relations "rank, true
    relations" and "rank, told relations" (see `probes`).
    Split "pools", a value a pool: "MedR", "R@1", "R@5", "R@10", and "MedR, refined" and so on.
    Split "relations", a value a relation, where analysed: see `of_relations`.
    """
    started = time.process_time()
    model, history = train(job, arrays, device, checkpoint)
    seen = {split: encode(model, arrays.splits[split], device) for split in ("val", "test")}
    theta = {split: own.theta for split, own in seen.items()}
    pools = pools_of(len(arrays.splits["test"]))
    values: dict[str, dict[str, np.ndarray]] = {
        "test": {"rank": full_ranks(theta["test"])},
        "pools": pool_metrics(pool_ranks(theta["test"].astype(np.float32), pools)),
    }
    reports = model.system.reports
    if reports == "all":
        values["test"]["gap"] = gap(theta["test"])
        values["relations"] = of_relations(model, arrays, seen["test"], device)
        if model.head is None and isinstance(arrays.splits["train"].images, np.ndarray):
            values["test"] |= fusions(arrays)(theta)
    if reports != "ranks" and model.head is not None:
        own, of_pools = refined(model, seen, theta, pools)
        values["test"] |= own
        values["pools"] |= of_pools
    return Answer(values, history, time.process_time() - started)


def refined(
    model: Model, seen: Mapping[str, Encoded], theta: Mapping[str, np.ndarray], pools: np.ndarray
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Ranks of test texts under θ̄, and MedR and recalls of the same pools."""
    settings, test = model.settings, theta["test"]
    x = {split: probabilities(model, own) for split, own in seen.items()}
    eta = confidence(x["test"], settings.strength)
    strength, threshold = best_refinement(theta["val"], x["val"])
    chosen = confidence(x["test"], strength)
    values = {
        "rank, refined": full_ranks(test, eta, settings.threshold),
        "rank, refined as dev chose": full_ranks(test, chosen, threshold),
    }
    if model.system.reports == "all":
        values[f"rank, refined, T {OTHER_THRESHOLD}"] = full_ranks(test, eta, OTHER_THRESHOLD)
        values["rank by confidence"] = full_ranks(eta)
    ranks = pool_ranks(test.astype(np.float32), pools, eta, settings.threshold)
    return values, {f"{name}, refined": own for name, own in pool_metrics(ranks).items()}


def best_refinement(theta: np.ndarray, x: np.ndarray) -> tuple[float, float]:
    """λ and T of the lowest mean log2 rank on the dev pairs; the weakest where tied."""
    scored = []
    for strength in STRENGTHS:
        eta = confidence(x, strength)
        for threshold in THRESHOLDS:
            level = float(np.log2(full_ranks(theta, eta, threshold)).mean())
            scored.append((level, strength, threshold))
    _, strength, threshold = min(scored)
    return strength, threshold


@torch.no_grad()
def of_relations(model: Model, arrays: Arrays, test: Encoded, device: str) -> dict[str, np.ndarray]:
    """What a system knows of each relation, (C,) each.

    "AP of z_S", "AP of z_I" and "AP of both": linear probes of its vectors, fitted to those of
    training pairs. With a head of all relations also "AP" (Table 8), "AP, text part", "AP, image
    part" (a_c·z_S and b_c·z_I alone), and "alignment": the cosine of a_c and b_c.
    """
    splits = {"train": arrays.splits["train"], "test": arrays.splits["test"]}
    labels = {name: own.labels for name, own in splits.items()}
    seen = {"train": encode(model, splits["train"], device), "test": test}
    texts = {name: own.texts.astype(float) for name, own in seen.items()}
    images = {name: own.images[own.image_of].astype(float) for name, own in seen.items()}
    both = {name: np.hstack([texts[name], images[name]]) for name in seen}
    values = {
        f"AP of {name}": precisions(own["train"], own["test"], labels, 1e-4)
        for name, own in (("z_S", texts), ("z_I", images), ("both", both))
    }
    if model.head is None or model.system.relations != "all":
        return values
    own = (torch.from_numpy(part).to(device) for part in (test.texts, test.images[test.image_of]))
    scores = {"AP": model.head(*own).cpu().numpy()}
    if isinstance(model.head, CoherenceHead):
        weight = model.head.linear.weight.cpu().numpy().astype(float)
        a, b = np.split(weight, 2, axis=1)  # (C, D) each
        scores["AP, text part"], scores["AP, image part"] = (
            texts["test"] @ a.T,
            images["test"] @ b.T,
        )
        lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
        values["alignment"] = (a * b).sum(axis=1) / lengths
    for name, score in scores.items():
        pairs = zip(labels["test"].T, score.T, strict=True)
        values[name] = np.array([average_precision(*pair) for pair in pairs])
    return values


def examples(seen: Encoded, rows: Any, top: int = 5) -> list[dict[str, Any]]:
    """The best pairs' rows of some texts, the rank of their own, and their words' weights."""
    theta = seen.theta
    ranks = full_ranks(theta)
    return [
        {
            "text": int(row),
            "best": [int(i) for i in np.argsort(-theta[row], kind="stable")[:top]],
            "rank": float(ranks[row]),
            "attention": None if seen.attention is None else seen.attention[row],
        }
        for row in rows
    ]
