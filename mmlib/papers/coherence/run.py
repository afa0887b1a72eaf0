"""What paper 01 trains and how: systems, budgets, one training, and the jobs of its record."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from typing import Any, Literal

import numpy as np
import torch
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, ReduceLROnPlateau

from mmlib.core.fit import Descent, fit, seed_everything, warm_up_cosine
from mmlib.core.jobs import NO_SEED, Answer, History, Job, Run, Stage
from mmlib.core.parallel import ahead
from mmlib.core.paths import table_beside
from mmlib.features import backbones
from mmlib.papers.coherence import baselines, method
from mmlib.papers.coherence.data import Study, prepare
from mmlib.papers.coherence.data import pairs as collections
from mmlib.papers.coherence.data.pairs import Arrays, Split
from mmlib.papers.coherence.method import Batch, Model

PAPER = "coherence"

# --- Systems -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class System:
    """What a system is (the paper's Table 3, and variants of it).

    attention: the learned query; without it the LSTM's last states are taken. mean: its weights are
        all equal.
    relations: what the head learns: "" nothing, "all", or the name of one relation.
    lambda_cls: λ_cls, weight of the coherence loss.
    layers: of the head.
    words: how many of a text's words are read; 0 for those of the settings.
    reports: "ranks" alone, also "refined" ones, what a "head" knows, or "all" diagnostics.
    """

    system: str
    attention: bool = True
    mean: bool = False
    relations: str = ""
    lambda_cls: float = 0.1
    layers: int = 1
    words: int = 0
    reports: Literal["ranks", "refined", "head", "all"] = "ranks"

    def columns(self, relations: Sequence[str]) -> list[int]:
        """Columns of the labels that the head learns; ValueError for a relation not there."""
        if self.relations not in ("", "all", *relations):
            raise ValueError(f"no relation {self.relations!r}: there are {', '.join(relations)}")
        return [i for i, name in enumerate(relations) if self.relations in (name, "all")]


_TABLE = table_beside(__file__)
BASE, CMCA, NO_ATTENTION, CMCM, *_VARIED = (System(n, **r) for n, r in _TABLE["systems"].items())
SYSTEMS = (BASE, CMCA, NO_ATTENTION, CMCM)  # the paper's, beside CMCM_c
SWEPT, OTHERS = _VARIED[:3], _VARIED[3:]  # over λ_cls, as Fig. 8's beside 0 and 0.1; the rest
BASELINES, ORACLES = _TABLE["baselines"], _TABLE["oracles"]
REFINED = "rank, refined"  # how ranks under θ̄ are named
OTHER_THRESHOLD = 0.1  # the paper's T; its code has the one of Settings
HEAD = "Head of "  # one relation, whose name follows
PAIRS = "Pairs"  # what words and pictures say of relations, without training


def single(relation: str) -> System:
    """CMCM_c: the head learns one relation."""
    return System(f"CMCM_{relation}", relations=relation, reports="refined")


def trained_systems(dataset: str) -> list[System]:
    """What is trained on a collection: on the map two systems, on the first one all.

    On controlled pairs λ_cls is what matters; one relation alone is learnt where all help.
    """
    if dataset in collections.CONTROLLED:
        chosen = [replace(CMCA, reports="ranks"), replace(CMCM, reports="refined"), *SWEPT]
        return [*chosen, single("first")] if dataset == collections.HELPFUL else chosen
    if dataset in collections.MAP:
        return [CMCA, replace(CMCM, reports="ranks")]
    singles = [single(relation) for relation in collections.relations_of(dataset)]
    swept = SWEPT if dataset in (collections.CLUE_LIKE, "flickr8k") else ()
    if not swept and dataset != collections.CITE_LIKE:  # of the paper's own data
        return [*SYSTEMS, *singles]
    heads = [replace(s, system=HEAD + s.relations, reports="head") for s in singles]
    return [*SYSTEMS, *singles, *swept, *OTHERS, *heads]


def systems(tier: str, dataset: str) -> dict[str, Mapping[str, Any]]:
    """The columns of each system, trained or not, that may be in the record of a collection."""
    untrained = ORACLES if tier == collections.CONTROLLED_TIER else BASELINES
    rows = (*map(asdict, trained_systems(dataset)), *untrained, {"system": PAIRS})
    return {row["system"]: row for row in rows}


# --- Budgets -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Settings:
    """How systems are trained: the paper's values, completed from the authors' code.

    word_width, hidden, width: of word vectors, of one LSTM direction, of the shared space.
    loss: "distance" (the authors' code) or "cosine" (the paper's text). margin: α.
    strength, threshold: λ of eq. 4 and T, below which a text counts as difficult.
    dropout: of word vectors; the authors use none. word2vec_epochs: of their pre-training.
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
    word2vec_epochs: int = 50
    strength: float = 0.12
    threshold: float = 0.05
    dropout: float = 0.0


BUDGETS = {tier: Settings(**fields) for tier, fields in _TABLE["budgets"].items()}


def budget(tier: str, dataset: str) -> Settings:
    """The settings of a collection, the same for all of its systems; of tier paper the paper's."""
    is_cite = tier == "paper" and dataset.startswith("cite")
    return Settings(max_words=200, strength=0.13) if is_cite else BUDGETS.get(tier, Settings())


# --- One training ---------------------------------------------------------------------------------

STRENGTHS = (0.03, 0.06, 0.12, 0.25, 0.5, 1.0)
THRESHOLDS = (0.02, 0.05, 0.1, 0.2, 2.0)  # 2: every text is refined


def make(system: System, settings: Settings, arrays: Arrays, seed: int) -> Model:
    """The model that a training of this seed starts from."""
    seed_everything(seed)
    train, columns = arrays.splits["train"], system.columns(arrays.relations)
    weights = method.positive_weights(train.labels[:, columns])
    backbone = None if isinstance(train.images, np.ndarray) else _resnet50()
    texts = method.TextEncoder(
        torch.tensor(arrays.words), settings.hidden, settings.width, settings.dropout,
        pooling=baselines.MeanPooling if system.mean
        else method.AttentionPooling if system.attention else method.LastStates,
    )  # fmt: skip
    images = method.ImageEncoder(arrays.image_width, settings.width, backbone)
    kind = baselines.TwoLayers if system.layers > 1 else method.CoherenceHead
    head = kind(settings.width, len(columns)) if columns else None
    loss = method.hinge_distance if settings.loss == "distance" else method.hinge_cosine
    retrieval_loss = partial(loss, margin=settings.margin)
    return Model(texts, images, head, columns, weights, system.lambda_cls, retrieval_loss)


def _resnet50() -> torch.nn.Module:
    network: Any = backbones.load("resnet50").network  # the paper's, with ImageNet weights
    network.reset_classifier(0, "")  # up to its last maps (B, 2048, 7, 7)
    return network.train().requires_grad_(True)


def train(job: Job, arrays: Arrays, run: Run = Run()) -> tuple[Model, History]:
    """Train with Adam (β 0.5, 0.999); keep the epoch of the lowest mean log2 rank on dev.

    Dev is one pool, ranked whole. The paper keeps the lowest MedR, which takes few values.
    Returns the model and one dict an epoch: train_loss, dev_loss (the mean log2 rank), dev_MedR.
    """
    settings, train, dev = Settings(**job.settings), arrays.splits["train"], arrays.splits["val"]
    model = make(System(**job.system), settings, arrays, job.seed).to(run.device)

    def batches(epoch: int) -> Iterator[Batch]:
        order = np.random.default_rng([job.seed, epoch]).permutation(len(train))
        chosen = collections.row_batches(order, settings.batch)
        made = (train.batch(rows, run.device, augment=True) for rows in chosen)
        return made if isinstance(train.images, np.ndarray) else ahead(made)  # decodes pictures

    def evaluate() -> dict[str, float]:
        ranks = method.full_ranks(encode(model, dev, run.device).theta)
        return {"dev_loss": float(np.log2(ranks).mean()), "dev_MedR": float(np.median(ranks))}

    optimizer = torch.optim.Adam(
        model.parameters(), lr=settings.learning_rate, betas=(0.5, 0.999), fused=True
    )
    steps = settings.epochs * -(-len(train) // settings.batch)
    schedule: LRScheduler | ReduceLROnPlateau = (
        ReduceLROnPlateau(optimizer, factor=0.1, patience=settings.patience)
        if settings.schedule == "plateau"
        else LambdaLR(optimizer, partial(warm_up_cosine, steps=steps, warm_up=steps // 20))
    )
    step = Descent(model.loss, optimizer, schedule)
    history = fit(model, batches, step, evaluate, epochs=settings.epochs, seed=job.seed, run=run)
    return model, history


# --- Encoding ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Encoded:
    """Unit vectors of pairs: texts (n, D), the DIFFERENT images (m, D), image_of (n,) among them.

    An image of several pairs has one vector, so that its scores tie exactly. attention: the
    weights of each text's words, or None.
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
def probabilities(model: Model, encoded: Encoded) -> np.ndarray:
    """x (n, n, relations of the head): every text with every pair's image."""
    assert model.head is not None
    vectors = (
        torch.tensor(v, device=model.weights.device) for v in (encoded.texts, encoded.images)
    )
    return model.head.all_pairs(*vectors).cpu().numpy()[:, encoded.image_of]


def examples(encoded: Encoded, rows: Sequence[int], top: int = 5) -> list[dict[str, Any]]:
    """The best pairs' rows of some texts, the rank of their own, and their words' weights."""
    theta, attention = encoded.theta, encoded.attention
    ranks, best = method.full_ranks(theta), np.argsort(-theta, kind="stable")[:, :top]
    return [
        {"text": row, "best": best[row], "rank": ranks[row],
         "attention": attention and attention[row]}
        for row in rows
    ]  # fmt: skip


# --- One job -------------------------------------------------------------------------------------


def train_and_score(job: Job, arrays: Arrays, run: Run = Run()) -> Answer:
    """Train, and rank every test text's own picture among all test pictures.

    Split "test", a value a text: "rank" by θ; where the system reports "refined", also "rank,
    refined" (λ and T as in the code), "rank, refined as dev chose"; "all": "rank, refined, T 0.1",
    "rank by confidence" (η alone) and "gap" (Δ), and of a system without relations "rank, true
    relations" and "rank, told relations" (see `baselines.relations_in_ranking`).
    Split "pools", a value a pool: "MedR", "R@1", "R@5", "R@10", and "MedR, refined" and so on.
    Split "relations", a value a relation: "AP" of each by a "head" of one; where all is reported,
    see `of_relations`.
    """
    if words := job.system["words"]:
        arrays = replace(arrays, splits={
            name: replace(split, ids=split.ids[:, :words], lengths=split.lengths.clip(max=words))
            for name, split in arrays.splits.items()
        })  # fmt: skip
    model, history = train(job, arrays, run)
    encoded = {name: encode(model, arrays.splits[name], run.device) for name in ("val", "test")}
    theta = {name: split.theta for name, split in encoded.items()}
    test, settings = theta["test"], Settings(**job.settings)
    in_pools, pools = test.astype(np.float32), method.pools_of(len(test))
    ranks = {"rank": method.full_ranks(test)}
    metrics = method.pool_metrics(method.pool_ranks(in_pools, pools))
    values = {"test": ranks, "pools": metrics}
    if job.system["reports"] == "all":
        values["relations"] = of_relations(model, arrays, encoded["test"], run.device)
        if model.head is None and isinstance(arrays.splits["train"].images, np.ndarray):
            ranks |= baselines.relations_in_ranking(arrays, theta)
    if job.system["reports"] == "head":
        values["relations"] = {"AP": precision_of_head(model, arrays, encoded["test"], run.device)}
    if job.system["reports"] in ("refined", "all") and model.head is not None:
        x = {name: probabilities(model, split) for name, split in encoded.items()}
        strength, threshold = best_refinement(theta["val"], x["val"])
        eta = method.confidence(x["test"], settings.strength)
        chosen = method.confidence(x["test"], strength)
        ways = {REFINED: (eta, settings.threshold), f"{REFINED} as dev chose": (chosen, threshold)}
        if job.system["reports"] == "all":
            ranks["gap"] = method.gap(test)
            ranks["rank by confidence"] = method.full_ranks(eta)
            ways[f"{REFINED}, T {OTHER_THRESHOLD}"] = eta, OTHER_THRESHOLD
        ranks |= {name: method.full_ranks(method.refine(test, *way)) for name, way in ways.items()}
        refined = method.pool_ranks(in_pools, pools, eta, settings.threshold)
        metrics |= {f"{name}, refined": v for name, v in method.pool_metrics(refined).items()}
    return Answer(values, history)


def best_refinement(theta: np.ndarray, x: np.ndarray) -> tuple[float, float]:
    """λ and T of the lowest mean log2 rank on the dev pairs; the weakest where tied."""
    etas = {strength: method.confidence(x, strength) for strength in STRENGTHS}
    return min(
        product(STRENGTHS, THRESHOLDS),
        key=lambda pair: method.mean_log_rank(method.refine(theta, etas[pair[0]], pair[1])),
    )


@torch.no_grad()
def precision_of_head(model: Model, arrays: Arrays, test: Encoded, device: str) -> np.ndarray:
    """Average precision (C,) of each relation by its log-odds (Table 8), or by those of one."""
    assert model.head is not None
    pairs = (torch.tensor(v, device=device) for v in (test.texts, test.images[test.image_of]))
    labels, scores = arrays.splits["test"].labels, model.head(*pairs).cpu().numpy()
    return method.average_precisions(labels, np.broadcast_to(scores, labels.shape))


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
    images = {n: split.images[split.image_of].astype(float) for n, split in encoded.items()}
    joined = {name: np.hstack([texts[name], images[name]]) for name in encoded}
    values = {
        f"AP of {name}": baselines.precisions(vectors, labels, 1e-4)
        for name, vectors in (("z_S", texts), ("z_I", images), ("both", joined))
    }
    if model.head is None or len(model.columns) < len(arrays.relations):
        return values
    weight = model.head.linear.weight.cpu().numpy().astype(float)
    a, b = np.split(weight, 2, axis=1)  # (C, D) each
    scores = {"AP, text part": texts["test"] @ a.T, "AP, image part": images["test"] @ b.T}
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    values["alignment"] = (a * b).sum(axis=1) / lengths
    values["AP"] = precision_of_head(model, arrays, test, device)
    return values | {
        name: method.average_precisions(labels["test"], x) for name, x in scores.items()
    }


# --- The record ----------------------------------------------------------------------------------


def load_arrays(study: Study, tier: str) -> dict[str, Arrays]:
    """All collections as arrays, each prepared as its budget says."""
    return {name: prepare(pairs, budget(tier, name), tier) for name, pairs in study.items()}


def stages(tier: str, data: Mapping[str, Arrays], seeds: Sequence[int]) -> list[Stage]:
    """All jobs of a record; none trains a system on a relation that training pairs never have."""
    random, ridge = BASELINES
    untrained: list[Job] = []
    for dataset, arrays in data.items():
        if arrays.truth:
            untrained += [Job(PAPER, tier, dataset, oracle, NO_SEED) for oracle in ORACLES]
        elif dataset not in collections.MAP:
            untrained += [Job(PAPER, tier, dataset, random, seed) for seed in seeds]
            if isinstance(arrays.splits["train"].images, np.ndarray):
                untrained.append(Job(PAPER, tier, dataset, ridge, NO_SEED))
    descriptions = [Job(PAPER, tier, dataset, {"system": PAIRS}, NO_SEED) for dataset in data]
    trainings = [
        Job(PAPER, tier, dataset, asdict(system), seed, asdict(budget(tier, dataset)))
        for seed in seeds
        for dataset, arrays in data.items()
        for system in trained_systems(dataset)
        if arrays.splits["train"].labels[:, system.columns(arrays.relations)].any(axis=0).all()
    ]
    return [
        Stage(baselines.score, untrained),
        Stage(baselines.describe_pairs, descriptions),
        Stage(train_and_score, trainings),
    ]
