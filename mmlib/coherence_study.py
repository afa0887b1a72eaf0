"""Notebook 01's experiment: image-text pairs with relations of each tier, budgets, the grid of
trainings, and what is measured on them.
"""

import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from mmlib import coherence, training
from mmlib.coherence import Settings, Split
from mmlib.core.errors import DataError
from mmlib.core.intervals import Estimate, bootstrap_interval, crossed_interval, mean_interval
from mmlib.core.paths import data_dir
from mmlib.core.related import RelatedPairs, hold_out
from mmlib.core.tables import Result, paper_values
from mmlib.features.text import (
    Vocabulary,
    embedding_matrix,
    spaced_tokens,
    tokenize,
    train_word2vec,
)
from mmlib.training import seed_everything, settings_hash

SPLITS = ("train", "val", "test")
KS = (1, 5, 10)
POOL, POOLS = 500, 50

# One budget for all systems of a tier; the tier `paper` keeps the paper's. Measured with CMCA, one
# seed each: on Flickr8k, MedR in pools of 500 is 7.5 after three epochs without dropout, when the
# dev MedR turns, 6.2 after six with dropout 0.4 and still falling; with batches of 128 7.6.
BUDGETS = {
    "world": Settings(
        word_width=48, hidden=48, width=128, epochs=6, learning_rate=2e-3, max_words=30,
        dropout=0.4, patience=1,
    ),
    "flickr8k": Settings(
        word_width=128, hidden=128, width=256, epochs=6, learning_rate=1e-3, batch=64,
        dropout=0.4, patience=1,
    ),
    "flickr8k quick": Settings(
        word_width=64, hidden=64, width=128, epochs=5, learning_rate=1e-3, batch=64,
        dropout=0.4, patience=1,
    ),
    "paper": Settings(),
}  # fmt: skip
WORLD_PAIRS = {"train": 2000, "val": 300, "test": 700}


def budget(tier: str, preset: str = "", **changes: object) -> Settings:
    """The settings of a tier (and preset "quick"), with changes by name; None and 0 change nothing.

    Raises ValueError for an unknown tier or preset.
    """
    return training.choose_budget(BUDGETS, tier, preset, changes)


# --- Data ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Pairs:
    """One collection in three splits. missing: what is said of images that could not be had."""

    train: RelatedPairs
    val: RelatedPairs
    test: RelatedPairs
    missing: str = ""

    @property
    def relations(self) -> tuple[str, ...]:
        """Names of the relations."""
        return self.train.relations

    def split(self, name: str) -> RelatedPairs:
        """A split by name."""
        return getattr(self, name)


def world_pairs(
    scheme: str,
    signal: float = 1.0,
    seed: int = 0,
    workers: int = 0,
    sizes: Mapping[str, int] | None = None,
    like: Pairs | None = None,
) -> Pairs:
    """The picture world's pairs in the relations of "clue" or "cite".

    like: pairs of the same sizes and seed, whose pictures are the same and need no second look.
    """
    from mmlib.world import discourse

    cores = workers or os.cpu_count() or 1
    made = {}
    for split, count in (sizes or WORLD_PAIRS).items():
        pairs = discourse.related_pairs(
            split, count, scheme, seed, signal, workers=cores, see_pictures=like is None
        )
        made[split] = (
            pool_regions(pairs)
            if like is None
            else replace(pairs, features=like.split(split).features)
        )
    return Pairs(made["train"], made["val"], made["test"])


def pool_regions(pairs: RelatedPairs) -> RelatedPairs:
    """Mean and maximum over a picture's regions as its one vector: small things fade in a mean."""
    assert pairs.features is not None
    regions = np.asarray(pairs.features, dtype=np.float32)
    both = np.concatenate([regions.mean(axis=1), regions.max(axis=1)], axis=1)
    return replace(pairs, features=both[:, None])


def load(tier: str, seed: int = 0, signal: float = 1.0, workers: int = 0) -> dict[str, Pairs]:
    """The collections of a tier by name.

    world: "Clue-like" and "CITE-like", drawn here; signal: what their pictures tell of relations.
    flickr8k: "flickr8k", with silver labels. paper: "clue", "cite++" or both, as far as their
    files and images lie in the data folder.
    """
    if tier == "world":
        clue = world_pairs("clue", signal, seed, workers)
        return {CLUE_LIKE: clue, CITE_LIKE: world_pairs("cite", signal, seed, workers, like=clue)}
    if tier == "flickr8k":
        from mmlib.silver import silver_pairs

        train = pool_regions(silver_pairs("train", SILVER, captions="all"))
        val, test = (pool_regions(silver_pairs(s, SILVER)) for s in ("val", "test"))
        return {"flickr8k": Pairs(train, val, test)}
    if tier == "paper":
        return paper_pairs(seed)
    raise ValueError(f"no tier {tier!r}: use world, flickr8k or paper")


CLUE_LIKE, CITE_LIKE = "Clue-like", "CITE-like"
# Irrelevant is not learnt from Clue: it rests on captions that repeat.
SILVER = ("Visible", "Subjective", "Action", "Story", "Meta")


def paper_pairs(seed: int = 0) -> dict[str, Pairs]:
    """Clue and CITE++ with their images, a tenth of the training images held out as dev set.

    `missing` counts the images that are not there, and says why the other collection is left out.
    """
    from mmlib.data import cite, clue

    found: dict[str, Pairs] = {}
    refused = []
    for name, module in (("clue", clue), ("cite++", cite)):
        try:
            train, missing = module.load_with_images("train")
            test, absent = module.load_with_images("test")
        except DataError as error:
            refused.append(str(error))
            continue
        train, val = hold_out(train, 0.1, seed)
        found[name] = Pairs(train, val, test, f"train: {missing}; test: {absent}")
    if not found:
        raise DataError("neither Clue nor CITE++ is complete: " + "; ".join(refused))
    return {  # a damaged file must not look like one that is not there
        name: replace(pairs, missing="; left out: ".join([pairs.missing, *refused]))
        for name, pairs in found.items()
    }


class Preprocessor:
    """Turns a collection into arrays; vocabulary and word vectors are of its training texts.

    tokens: the authors' `spaced_tokens` in the tier paper, else lower-cased ones.
    """

    def __init__(self, pairs: Pairs, settings: Settings, tier: str, seed: int = 0):
        self.pairs, self.settings, self.tier = pairs, settings, tier
        self.tokens: Callable[[str], list[str]] = spaced_tokens if tier == "paper" else tokenize
        sentences = [self.tokens(text) for text in pairs.train.texts]
        self.vocabulary = Vocabulary.from_sentences(sentences, min_count=1)
        vectors = train_word2vec(
            sentences, settings.word_width, seed, epochs=50 if tier != "flickr8k" else 10,
            window=10, skip_gram=False,
        )  # fmt: skip
        table = embedding_matrix(self.vocabulary, settings.word_width, seed, vectors)
        unknown = np.random.default_rng([seed, 1]).normal(size=settings.word_width)
        table[0], table[1] = 0, torch.tensor(unknown)
        self.embeddings = table
        features = pairs.train.features
        if features is not None:
            sample = np.asarray(features[:, 0], dtype=np.float32)
            self.mean, self.scale = sample.mean(axis=0), sample.std(axis=0) + 1e-3

    @property
    def image_width(self) -> int:
        """Width W of g."""
        features = self.pairs.train.features
        return 2048 if features is None else int(features.shape[2])

    def split(self, name: str, max_words: int = 0) -> Split:
        """A split as arrays."""
        return self.arrays(self.pairs.split(name), max_words)

    def arrays(self, pairs: RelatedPairs, max_words: int = 0) -> Split:
        """Any pairs of the collection as arrays."""
        most = max_words or self.settings.max_words
        ids, lengths = self.vocabulary.encode([self.tokens(t) for t in pairs.texts], most)
        return Split(
            ids.numpy(), lengths.numpy(), pairs.labels, pairs.image_of, self._images(pairs)
        )

    def _images(self, pairs: RelatedPairs) -> np.ndarray | Callable[[np.ndarray, bool], Tensor]:
        if pairs.features is None:
            assert pairs.open_image is not None
            return Pictures(pairs.open_image)
        features = (np.asarray(pairs.features[:, 0], dtype=np.float32) - self.mean) / self.scale
        return features.astype(np.float32)

    @cached_property
    def evidence(self) -> dict[str, np.ndarray]:
        """What dev and test pictures tell about each relation: (2, pairs, relations) log ratios.

        Row 0: log p(no | picture) − log p(no), row 1 the same for yes, by logistic regressions on
        the training pictures. A relation that training pairs always or never have tells nothing.
        """
        from sklearn.linear_model import LogisticRegression

        labels = self.pairs.train.labels
        inputs = {name: self._vectors(name) for name in SPLITS}
        told = {name: np.zeros((2, len(inputs[name]), labels.shape[1])) for name in SPLITS[1:]}
        for c, truth in enumerate(labels.T):
            if not 0 < truth.mean() < 1:
                continue
            probe = LogisticRegression(C=0.01, max_iter=1000).fit(inputs["train"], truth)
            prior = np.log([1 - truth.mean(), truth.mean()])
            for name, table in told.items():
                table[..., c] = (probe.predict_log_proba(inputs[name]) - prior).T
        return told

    def _vectors(self, name: str) -> np.ndarray:
        images = self._images(self.pairs.split(name))
        assert isinstance(images, np.ndarray)
        return images[self.pairs.split(name).image_of]

    def splits(self, max_words: int = 0) -> dict[str, Split]:
        """All three."""
        return {name: self.split(name, max_words) for name in SPLITS}


class Pictures:
    """Reads pictures as the authors do: short side to 224, a crop (random in training), normalised.

    Calling it with rows and whether to crop at random gives (B, 3, 224, 224) float32.
    """

    def __init__(self, open_image: Callable[[int], Any]):
        self.open_image = open_image

    def __call__(self, rows: np.ndarray, augment: bool) -> Tensor:
        """Pictures of some rows, decoded anew at each call."""
        from torchvision import transforms

        crop = transforms.RandomCrop(224) if augment else transforms.CenterCrop(224)
        prepare = transforms.Compose(
            [
                transforms.Resize(224),
                crop,
                transforms.ToTensor(),
                transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
            ]
        )
        return torch.stack([prepare(self.open_image(int(row))) for row in rows])


def resnet50() -> torch.nn.Module:
    """The paper's image network with ImageNet weights, up to its last maps (B, 2048, 7, 7)."""
    from mmlib.features.backbones import load_backbone

    return load_backbone("resnet50").trunk.train().requires_grad_(True)


def preprocessors(collections: Mapping[str, Pairs], settings: Settings, tier: str) -> dict:
    """A `Preprocessor` for each collection. CITE++ has longer texts, and a λ of its own."""
    own = {"cite++": {"max_words": 200, "strength": 0.13}}
    return {
        name: Preprocessor(pairs, replace(settings, **own.get(name, {})), tier)  # type: ignore[arg-type]
        for name, pairs in collections.items()
    }


def some_texts(pairs: RelatedPairs, count: int) -> list[int]:
    """The first test texts of which each of `count` relations holds, spread over the relations."""
    chosen: list[int] = []
    for c in np.linspace(0, len(pairs.relations) - 1, count).astype(int):
        rows = [int(i) for i in np.flatnonzero(pairs.labels[:, c]) if i not in chosen]
        chosen += rows[:1]
    return chosen


# --- Trainings -----------------------------------------------------------------------------------

REFINED = "θ̄"
UNREFINED = "θ"
STRENGTHS = (0.01, 0.03, 0.06, 0.12, 0.2, 0.4, 0.8, 1.6)
THRESHOLDS = (0.02, 0.05, 0.1, 0.2, 2.0)  # 2: every text is refined
SWEEP = (0.01, 0.4, 2.0)  # λ_cls beside 0 and 0.1, some of Fig. 8's
LENGTHS = (6, 24)
ORACLE = "+ true relations"
BETAS = (0.0, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16)
SWEPT = {"cls": "λ_cls", "max_words": "maximal length"}


def training_jobs(
    preprocessors: Mapping[str, Preprocessor],
    seeds: Sequence[int],
    device: str,
    systems: Sequence[str] = (),
    examples: Sequence[int] = (),
    **changes: object,
) -> list[tuple[dict, dict]]:
    """Jobs for `training.run_jobs`, one a collection, system and seed.

    systems: of Table 3; all where empty. A system of a relation that no training pair has is left
    out. examples: test texts whose best images and word weights the answers keep. changes: of the
    settings, such as cls=0.4; the job's name then says so.
    """
    jobs = []
    for name, preprocessor in preprocessors.items():
        relations = preprocessor.pairs.relations
        settings = replace(preprocessor.settings, **changes)  # type: ignore[arg-type]
        splits = preprocessor.splits(settings.max_words)
        data = fingerprint(preprocessor, splits)
        for system in systems or coherence.systems(relations):
            own = coherence.settings_of(system, relations, settings)
            if not preprocessor.pairs.train.labels[:, list(own.relations)].any(axis=0).all():
                continue
            told = "".join(f", {SWEPT[key]} {value}" for key, value in changes.items())
            for seed in seeds:
                job = {
                    "dataset": name, "system": system + told, "settings": asdict(own),
                    "seed": seed, "tier": preprocessor.tier, "data": data,
                    "examples": list(examples),
                }  # fmt: skip
                work = {"splits": splits, "embeddings": preprocessor.embeddings, "device": device,
                        "image_width": preprocessor.image_width}  # fmt: skip
                if system == "CMCA" and preprocessor.pairs.train.features is not None:
                    work["evidence"] = preprocessor.evidence
                jobs.append((job, work))
    return jobs


NO_SIGNAL = f"{CLUE_LIKE}, no signal"
MAIN = ("Base", "CMCA", "CMCM-NoAttn", "CMCM")


def systems_of(tier: str, preset: str = "") -> tuple[str, ...]:
    """The systems that a run trains; () for all of Table 3.

    flickr8k: the main comparison, as silver labels say little about single relations.
    """
    if preset == "quick":
        return ("CMCA", "CMCM")
    return MAIN if tier == "flickr8k" else ()


def control_jobs(
    collections: Mapping[str, Pairs],
    made: Mapping[str, Preprocessor],
    seeds: Sequence[int],
    preset: str,
    device: str,
    examples: Sequence[int] = (),
) -> list[tuple[dict, dict]]:
    """In the world: Fig. 8's sweeps, and CMCA and CMCM where pictures carry no signal."""
    name, preprocessor = next(iter(made.items()))
    if preprocessor.tier != "world" or preset:
        return []
    own = {name: preprocessor}
    jobs = []
    for value in SWEEP:
        jobs += training_jobs(own, seeds, device, ["CMCM"], cls=value)
    for value in LENGTHS:
        jobs += training_jobs(own, seeds, device, ["CMCM"], max_words=value)
    sizes = {split: len(collections[name].split(split)) for split in SPLITS}
    silent = world_pairs("clue", signal=0.0, sizes=sizes, like=collections[name])
    blind = {NO_SIGNAL: Preprocessor(silent, preprocessor.settings, "world")}
    return jobs + training_jobs(blind, seeds, device, ["CMCA", "CMCM"])


def fingerprint(preprocessor: Preprocessor, splits: Mapping[str, Split]) -> str:
    """A hash of everything that trainings read (of pictures on disk: their names)."""
    digest = hashlib.sha256(preprocessor.embeddings.numpy().tobytes())
    for name, split in splits.items():
        for part in (split.ids, split.lengths, split.labels, split.image_of):
            digest.update(np.ascontiguousarray(part).tobytes())
        if isinstance(split.images, np.ndarray):
            digest.update(np.ascontiguousarray(split.images).tobytes())
        else:
            digest.update("|".join(preprocessor.pairs.split(name).image_ids).encode())
    return digest.hexdigest()[:16]


def train_system(
    dataset: str,
    system: str,
    settings: Mapping[str, Any],
    seed: int,
    tier: str,
    data: str,
    examples: Sequence[int],
    splits: Mapping[str, Split],
    embeddings: Tensor,
    image_width: int,
    device: str,
    checkpoint: Path | None = None,
    evidence: Mapping[str, np.ndarray] | None = None,
) -> dict[str, Any]:
    """Train one system and rank the test pairs: the work of one job.

    The answer holds "first", the row of each text's best image; "variants": a `ranks_record` of θ
    and, where the system has relations, of θ̄ under the paper's and other settings; "history";
    "gaps" of dev texts (Fig. 3b); "subsets" (Table 7); for `examples` the best images and the
    words' weights; with relations also "precision" (Table 8), "confidence only", and "chosen",
    λ and T by dev MRR.
    """
    started = time.perf_counter()
    chosen = Settings(**{**settings, "relations": tuple(settings["relations"])})
    seed_everything(seed)
    backbone = None if isinstance(splits["train"].images, np.ndarray) else resnet50()
    model = coherence.Model(embeddings, image_width, chosen, backbone)
    history = coherence.train(model, splits["train"], splits["val"], seed, device, checkpoint)
    test = coherence.encode(model, splits["test"], device)
    dev = coherence.encode(model, splits["val"], device)
    pools = pools_of(len(splits["test"]))
    exact, dev_theta = test.theta, dev.theta
    theta = exact.astype(np.float32)  # its pools are ranked in half the time
    labels = splits["test"].labels
    answer: dict[str, Any] = {
        "variants": {UNREFINED: ranks_record(theta, pools)},
        "first": theta.argmax(axis=1).tolist(),
        "gaps": {
            "gap": coherence.gap(dev_theta).round(5).tolist(),
            "rank": coherence.full_ranks(dev_theta).tolist(),
        },
        "examples": _examples(test, exact, examples),
        "history": history,
        "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
    }
    if system in ("CMCA", "CMCM"):
        answer["subsets"] = {UNREFINED: subsets(theta, labels)}
    if evidence is not None:
        answer["variants"][ORACLE] = with_true_relations(dev_theta, theta, splits, evidence, pools)
    if model.head is not None:
        answer["precision"] = precisions(model, test, labels)
        x = coherence.probabilities(model, test)
        dev_x = coherence.probabilities(model, dev)
        strength, threshold = best_refinement(dev_theta, dev_x)
        answer["chosen"] = {"strength": strength, "threshold": threshold}
        eta = coherence.confidence(x, chosen.strength)
        wide = replace(chosen, threshold=0.1)
        for name, weight, limit in (
            (REFINED, eta, chosen.threshold),
            (f"{REFINED}, T {wide.threshold}", eta, wide.threshold),
            (f"{REFINED}, chosen on dev", coherence.confidence(x, strength), threshold),
        ):
            answer["variants"][name] = ranks_record(theta, pools, weight, limit)
        if "subsets" in answer:
            answer["subsets"][REFINED] = subsets(theta, labels, eta, chosen.threshold)
        only = coherence.pool_ranks(eta, pools)
        answer["confidence only"] = coherence.pool_metrics(only)["medr"].tolist()
    answer["seconds"] = time.perf_counter() - started
    return answer


def with_true_relations(
    dev: np.ndarray,
    test: np.ndarray,
    splits: Mapping[str, Split],
    evidence: Mapping[str, np.ndarray],
    pools: np.ndarray,
) -> dict[str, Any]:
    """An oracle: cosines plus β times what each picture tells for the text's TRUE relations.

    No system may use it, as the true relations of a test text are not given. As a simple sum it
    is a lower bound of what there is to gain from what pictures tell; β is chosen by dev MRR.
    """

    def mixed(theta: np.ndarray, name: str, beta: float) -> np.ndarray:
        no, yes = evidence[name]
        labels = splits[name].labels.astype(float)
        return theta + beta * (labels @ yes.T + (1 - labels) @ no.T)

    def mrr(beta: float) -> float:
        return float((1 / coherence.full_ranks(mixed(dev, "val", beta))).mean())

    beta = max(BETAS, key=mrr)
    return ranks_record(mixed(test, "test", beta), pools)


def pools_of(pairs: int) -> np.ndarray:
    """The fixed pools of a test set, shared by all systems; smaller sets have smaller pools."""
    return coherence.draw_pools(pairs, min(POOL, pairs), POOLS)


def ranks_record(
    theta: np.ndarray,
    pools: np.ndarray,
    eta: np.ndarray | None = None,
    threshold: float | None = None,
) -> dict[str, Any]:
    """"full": ranks (n,) over all pairs; "hits": for K = 1, 5, 10 the share (n,) of a text's pools
    in which its image is among the best K (0 for a text in no pool); "pools": MedR and
    recalls of each pool.
    """  # fmt: skip
    ranks = coherence.pool_ranks(theta, pools, eta, threshold)
    seen = np.bincount(pools.ravel(), minlength=len(theta))
    hits = [
        np.bincount(pools.ravel(), (ranks <= k).ravel(), minlength=len(theta)) / np.maximum(seen, 1)
        for k in KS
    ]
    metrics = coherence.pool_metrics(ranks)
    return {
        "full": coherence.full_ranks(theta, eta, threshold).tolist(),
        "hits": np.round(hits, 4).tolist(),
        "pools": {name: values.round(3).tolist() for name, values in metrics.items()},
    }


def subsets(
    theta: np.ndarray,
    labels: np.ndarray,
    eta: np.ndarray | None = None,
    threshold: float | None = None,
) -> dict[str, list[dict[str, float]]]:
    """Table 7: the texts of which one relation holds, in pools with and without replacement.

    "without" and "with": for each relation MedR and recalls over all such texts of 50 pools.
    """
    table: dict[str, list[dict[str, float]]] = {}
    for name, replaced in (("without", False), ("with", True)):
        pools = coherence.draw_pools(
            len(theta), min(POOL, len(theta)), POOLS, seed=7, replace=replaced
        )
        ranks = coherence.pool_ranks(theta, pools, eta, threshold)
        table[name] = [
            {key: float(v[0]) for key, v in coherence.pool_metrics(own[None]).items()}
            if len(own := ranks[labels[pools][..., c]])
            else {}
            for c in range(labels.shape[1])
        ]
    return table


def precisions(
    model: coherence.Model, seen: coherence.Encoded, labels: np.ndarray
) -> dict[str, dict[str, float]]:
    """Table 8: average precision of x_c on the true pairs, for the relations of the head.

    "both": the head as it is; "text" and "image": by its part a_c·z_S or b_c·z_I alone.
    """
    from sklearn.metrics import average_precision_score

    assert model.head is not None
    weight = model.head.linear.weight.detach().cpu()
    texts = torch.from_numpy(seen.texts)
    images = torch.from_numpy(seen.images[seen.image_of])
    a, b = weight[:, : texts.shape[1]], weight[:, texts.shape[1] : 2 * texts.shape[1]]
    device = model.head.linear.weight.device
    with torch.no_grad():
        both = model.head(texts.to(device), images.to(device)).cpu()
    parts = {"both": both.numpy(), "text": (texts @ a.T).numpy(), "image": (images @ b.T).numpy()}
    return {
        str(c): {
            side: float(average_precision_score(labels[:, c], score[:, i]))
            for side, score in parts.items()
        }
        for i, c in enumerate(model.settings.relations)
        if labels[:, c].any()
    }


def best_refinement(theta: np.ndarray, x: np.ndarray) -> tuple[float, float]:
    """λ and T with the highest mean reciprocal rank on the dev pairs; the weakest where tied."""
    scored = []
    for strength in STRENGTHS:
        eta = coherence.confidence(x, strength)
        for threshold in THRESHOLDS:
            mrr = float((1 / coherence.full_ranks(theta, eta, threshold)).mean())
            scored.append((mrr, -strength, -threshold))
    _, strength, threshold = max(scored)
    return -strength, -threshold


def _examples(
    seen: coherence.Encoded, theta: np.ndarray, rows: Sequence[int], top: int = 5
) -> list[dict[str, Any]]:
    """The best images of some texts, the rank of their own, and their words' weights."""
    ranks = coherence.full_ranks(theta)
    return [
        {
            "text": int(row),
            "best": [int(i) for i in np.argsort(-theta[row], kind="stable")[:top]],
            "rank": float(ranks[row]),
            "attention": None if seen.attention is None else seen.attention[row].round(4).tolist(),
        }
        for row in rows
    ]


def read_answers(path: Path, settings: Settings) -> tuple[list[tuple[dict, dict]], list[dict]]:
    """Stored jobs and answers whose CMCA had these settings; see `training.read_answers`."""
    return training.read_answers(path, "CMCA", asdict(replace(settings, relations=())))


# --- Scores and effects --------------------------------------------------------------------------

Scores = dict[str, dict[str, dict[str, np.ndarray]]]


def collect(jobs: Sequence[tuple[dict, dict]], answers: Sequence[dict]) -> Scores:
    """data set -> system -> {"full": (seeds, texts), "hits": (seeds, 3, texts), "medr", "r1", ...:
    (seeds, pools)}. Variants of a system are named "CMCM θ̄"; the plain name is θ.
    """  # fmt: skip
    rows: dict[tuple[str, str], list[dict]] = {}
    for (job, _), answer in zip(jobs, answers, strict=True):
        for variant, record in answer["variants"].items():
            name = job["system"] + ("" if variant == UNREFINED else f" {variant}")
            rows.setdefault((job["dataset"], name), []).append(record)
    scores: Scores = {}
    for (dataset, name), records in rows.items():
        of_pools = {m: np.array([r["pools"][m] for r in records]) for m in records[0]["pools"]}
        scores.setdefault(dataset, {})[name] = {
            "full": np.array([r["full"] for r in records], dtype=float),
            "hits": np.array([r["hits"] for r in records], dtype=float),
            **of_pools,
        }
    return scores


NOTES = {
    "world": """*What this world was built to contain.* A pair is a drawn scene and one text.
Which relations hold is drawn first, at the real sets' rates and near their correlations, from
what the picture shows and from chance; then a text is written for which they hold, in stock
phrases. `signal` says how much the picture counts in the draw: what decides about a relation
correlates with the picture by .9 times `signal`. So at 1 knowing the relations *could* help to
find a picture, because the world was made so; whether the method makes use of it is what is
tested. It says nothing about how much real pictures tell of relations. The set "CITE-like"
follows the 2,047 public rows of CITE; the paper's Table 1 is of CITE++, to which the authors
added rows of their own, in which relations were found far more often.""",
    "flickr8k": """*Silver labels.* The photographs and captions are Flickr8k's; the relations are
not annotated but come from a classifier of Clue's captions, which has seen the text alone
(`mmlib.silver`). Given a text, its picture can add nothing to such a label, and nearly all these
captions describe what is visible. So this tier can show that the model trains and runs on
photographs, and whether a second task on the text changes retrieval; it cannot show that relations
between text and picture help. Irrelevant is left out: the classifier cannot tell it from chance on
new captions. Training takes all five captions of an image, dev and test the first one.""",
    "paper": """The papers' own data, with the images that could be had.""",
}


def add_random(scores: Scores, seeds: Sequence[int]) -> None:
    """Add the system "Random" to each data set: cosines drawn at random."""
    for systems in scores.values():
        count = next(iter(systems.values()))["full"].shape[1]
        runs = [
            ranks_record(np.random.default_rng([7, s]).random((count, count)), pools_of(count))
            for s in seeds
        ]
        systems["Random"] = {
            "full": np.array([r["full"] for r in runs]),
            "hits": np.array([r["hits"] for r in runs]),
            **{m: np.array([r["pools"][m] for r in runs]) for m in runs[0]["pools"]},
        }


def results(scores: Scores, settings: Settings, seeds: Sequence[int]) -> list[Result]:
    """One `Result` a data set, system, metric and seed; those of pools are means over the pools.

    Metrics: medr, r1, r5, r10 (pools), rsum (their sum), full_medr, full_r10 (all test pairs).
    """
    used = settings_hash(asdict(settings))
    rows = []
    for dataset, systems in scores.items():
        for system, own in systems.items():
            for i, seed in zip(range(len(own["full"])), seeds, strict=False):
                values = {m: float(own[m][i].mean()) for m in ("medr", "r1", "r5", "r10")}
                values["rsum"] = values["r1"] + values["r5"] + values["r10"]
                values["full_medr"] = float(np.median(own["full"][i]))
                values["full_r10"] = 100 * float((own["full"][i] <= 10).mean())
                rows += [
                    Result(system, dataset, "test", metric, value, seed, used)
                    for metric, value in values.items()
                ]
    return rows


def items(own: Mapping[str, np.ndarray]) -> np.ndarray:
    """What each test text adds to R@1 + R@5 + R@10, in points: (seeds, texts)."""
    return 100 * own["hits"].sum(axis=1)


def contrast(
    systems: Mapping[str, Mapping[str, np.ndarray]],
    weights: Mapping[str, float],
    clusters: np.ndarray,
    rows: np.ndarray | None = None,
) -> Estimate:
    """A weighted sum of the recall sums of some systems, paired by seed and text.

    clusters (texts,): the image of each text. rows: only these texts. Over seeds and images.
    """
    parts = {name: items(systems[name]) for name in weights}
    n = min(len(part) for part in parts.values())
    total = np.sum([weight * parts[name][:n] for name, weight in weights.items()], axis=0)
    if rows is not None:
        total, clusters = total[:, rows], clusters[rows]
    return crossed_interval(total, clusters)


def difference(
    systems: Mapping[str, Mapping[str, np.ndarray]],
    better: str,
    worse: str,
    clusters: np.ndarray,
    rows: np.ndarray | None = None,
) -> Estimate:
    """R@1 + R@5 + R@10 of one system minus another's (see `contrast`)."""
    return contrast(systems, {better: 1, worse: -1}, clusters, rows)


def medr_difference(
    systems: Mapping[str, Mapping[str, np.ndarray]],
    better: str,
    worse: str,
    clusters: np.ndarray,
    draws: int = 500,
) -> Estimate:
    """MedR (all test pairs, mean over seeds) of `worse` minus that of `better`.

    Paired bootstrap over images; the spread over seeds is not in the interval.
    """
    a, b = systems[better]["full"], systems[worse]["full"]
    n = min(len(a), len(b))

    def statistic(rows: np.ndarray) -> float:
        return float(np.median(b[:n, rows], axis=1).mean() - np.median(a[:n, rows], axis=1).mean())

    return bootstrap_interval(statistic, clusters, draws)


# --- Tables --------------------------------------------------------------------------------------

PRINTED = {CLUE_LIKE: "table5", "clue": "table5", CITE_LIKE: "table4", "cite++": "table4",
           "flickr8k": "table5"}  # fmt: skip


def is_system(name: str) -> bool:
    """Whether a name of the scores is a row of Table 3 (or Random), not a variant or a sweep's."""
    return not any(mark in name for mark in (REFINED, ",", ORACLE))


def main_table(scores: Scores, dataset: str) -> pd.DataFrame:
    """Table 4 or 5 beside ours: MedR and R@1 and R@10 of θ and of θ̄ on the same pools.

    MedR of ours: mean over seeds and pools; "pools": standard deviation over pools within a
    training (what the paper prints as ±); "seeds": standard deviation over trainings.
    """
    paper = paper_values("coherence", PRINTED.get(dataset, "table5"))
    if dataset not in PRINTED:  # a control, of which the paper has nothing
        paper = paper.iloc[:0]
    rows = {}
    for name in [n for n in scores[dataset] if is_system(n.removesuffix(f" {ORACLE}"))]:
        own = scores[dataset][name]
        refined = scores[dataset].get(f"{name} {REFINED}")
        printed = paper.loc[name] if name in paper.index else None
        row: dict[tuple[str, str], object] = {
            ("MedR", "paper"): "–" if printed is None else printed["MedR"],
            ("MedR", "paper's ±"): "–" if printed is None else printed["MedR_std"],
            ("MedR", "θ"): own["medr"].mean(),
            ("MedR", "θ̄"): "–" if refined is None else refined["medr"].mean(),
            ("± of θ", "pools"): own["medr"].std(axis=1, ddof=1).mean(),
            ("± of θ", "seeds"): own["medr"].mean(axis=1).std(ddof=1) if len(own["medr"]) > 1
            else np.nan,
        }  # fmt: skip
        for k in (1, 10):
            row[f"R@{k}", "paper"] = "–" if printed is None else printed[f"R@{k}"]
            row[f"R@{k}", "θ"] = own[f"r{k}"].mean()
            row[f"R@{k}", "θ̄"] = "–" if refined is None else refined[f"r{k}"].mean()
        rows[name] = row
    return _rounded(pd.DataFrame.from_dict(rows, orient="index"))


def _rounded(table: pd.DataFrame, digits: int = 1) -> pd.DataFrame:
    table.columns = pd.MultiIndex.from_tuples(table.columns)
    return table.map(lambda v: f"{v:.{digits}f}" if isinstance(v, float | np.floating) else v)


def refinement_table(scores: Scores, dataset: str, answers: Mapping[str, list]) -> pd.DataFrame:
    """MedR of every coherence-aware system: θ, θ̄ by both printed T and as chosen on dev, η alone.

    answers: system -> its answers (see `by_system`).
    """  # fmt: skip
    rows = {}
    for name, each in answers.items():
        if "chosen" not in each[0] or not is_system(name):
            continue
        own = scores[dataset]
        rows[name] = {
            "θ": own[name]["medr"].mean(),
            "θ̄, T 0.05 (code)": own[f"{name} {REFINED}"]["medr"].mean(),
            "θ̄, T 0.1 (paper)": own[f"{name} {REFINED}, T 0.1"]["medr"].mean(),
            "θ̄, λ and T chosen on dev": own[f"{name} {REFINED}, chosen on dev"]["medr"].mean(),
            "chosen (λ, T)": " ".join(
                f"({a['chosen']['strength']:g}, {a['chosen']['threshold']:g})" for a in each
            ),
            "η alone": np.mean([a["confidence only"] for a in each]),
        }
    table = pd.DataFrame.from_dict(rows, orient="index")
    return table.round(1)


def by_system(
    jobs: Sequence[tuple[dict, dict]], answers: Sequence[dict], dataset: str
) -> dict[str, list[dict]]:
    """The answers of a data set by system, in the order of seeds."""
    found: dict[str, list[dict]] = {}
    for (job, _), answer in zip(jobs, answers, strict=True):
        if job["dataset"] == dataset:
            found.setdefault(job["system"], []).append(answer)
    return found


def rates_table(pairs: Pairs, name: str) -> pd.DataFrame:
    """Positive rates in percent of train and test beside Table 1 or 2, and p_c of the loss."""
    rates = {split: 100 * pairs.split(split).labels.mean(axis=0) for split in ("train", "test")}
    printed = {
        "table5": lambda: paper_values("coherence", "table2")["percent_positive"],
        "table4": _table1,
    }.get(PRINTED[name] if name != "flickr8k" else "")
    table = pd.DataFrame(rates, index=list(pairs.relations)).round(2)
    if printed:
        table.insert(0, "paper", printed().reindex(table.index))
    positive = np.maximum(pairs.train.labels.sum(axis=0), 1)
    table["p_c"] = ((len(pairs.train) - positive) / positive).round(2)
    return table


def _table1() -> pd.Series:
    """Table 1 in percent, by question."""
    table = paper_values("coherence", "table1")
    return 100 * table.set_index("question")["positive_rate"].astype(float)


def precision_table(answers: Mapping[str, list], pairs: Pairs, dataset: str) -> pd.DataFrame:
    """Table 8 beside ours: average precision of each relation by CMCM and by its own CMCM_c."""
    printed = paper_values("coherence", "table8") if PRINTED[dataset] == "table5" else None
    rows = {}
    for c, name in enumerate(pairs.relations):
        row: dict[str, object] = {"chance": float(pairs.test.labels[:, c].mean())}
        for system in ("CMCM", f"CMCM_{name}"):
            short = "CMCM" if system == "CMCM" else "CMCM_c"
            if printed is not None:
                row[f"{short}, paper"] = printed.loc[system, name]
            got = [a["precision"].get(str(c)) for a in answers.get(system, []) if "precision" in a]
            got = [one for one in got if one]
            row[f"{short}, ours"] = np.mean([g["both"] for g in got]) if got else np.nan
        got = [a["precision"].get(str(c)) for a in answers.get("CMCM", [])]
        for side in ("text", "image"):
            known = [g[side] for g in got if g]
            row[f"CMCM, {side} part alone"] = np.mean(known) if known else np.nan
        rows[name] = row
    return pd.DataFrame.from_dict(rows, orient="index").astype(float).round(2)


def evidence_table(preprocessor: Preprocessor) -> pd.DataFrame:
    """Average precision of each relation read off the test pictures alone, beside chance.

    By logistic regressions on the image features (`Preprocessor.evidence`).
    """
    from sklearn.metrics import average_precision_score

    labels = preprocessor.pairs.test.labels
    no, yes = preprocessor.evidence["test"]
    return pd.DataFrame(
        {
            "chance": labels.mean(axis=0),
            "picture alone": [
                average_precision_score(truth, score) if truth.any() else np.nan
                for truth, score in zip(labels.T, (yes - no).T, strict=True)
            ],
        },
        index=list(preprocessor.pairs.relations),
    ).round(2)


def refinement_gain(
    systems: Mapping[str, Mapping[str, np.ndarray]], clusters: np.ndarray, variant: str
) -> Estimate | None:
    """Recall sum of θ̄ (`variant`) minus that of θ, mean over the systems of Table 3; None: none."""
    names = [name for name in systems if is_system(name) and f"{name} {variant}" in systems]
    if not names:
        return None
    weights = {f"{name} {variant}": 1 / len(names) for name in names}
    return contrast(systems, weights | {name: -1 / len(names) for name in names}, clusters)


def subset_table(answers: Mapping[str, list], pairs: Pairs, metric: str = "medr") -> pd.DataFrame:
    """Table 7: texts of which a relation holds, pools drawn with and without replacement."""
    printed = paper_values("coherence", "table7")
    column = {"medr": "MedR", "r1": "R@1", "r5": "R@5", "r10": "R@10"}[metric]
    rows = {}
    for c, name in enumerate(pairs.relations):
        row: dict[str, object] = {"texts": int(pairs.test.labels[:, c].sum())}
        for system, variant in (("CMCA", UNREFINED), ("CMCM", REFINED)):
            key = f"{name} / {system}"
            row[f"{system}, paper"] = printed.loc[key, column] if key in printed.index else np.nan
            for kind in ("with", "without"):
                got = [a["subsets"][variant][kind][c].get(metric) for a in answers[system]]
                known = [g for g in got if g is not None]
                row[f"{system}, {kind}"] = np.mean(known) if known else np.nan
        rows[name] = row
    return pd.DataFrame.from_dict(rows, orient="index").astype(float).round(1)


def gaps(answers: Sequence[dict]) -> tuple[np.ndarray, np.ndarray]:
    """Δ and rank of the dev texts of some trainings, each (trainings, texts)."""
    return (
        np.array([a["gaps"]["gap"] for a in answers]),
        np.array([a["gaps"]["rank"] for a in answers]),
    )


def gap_accuracy(answers: Sequence[dict], clusters: np.ndarray) -> Estimate:
    """How much oftener the image is right in the half of the texts with the larger Δ, in points."""
    delta, rank = gaps(answers)
    wide = delta > np.median(delta, axis=1, keepdims=True)
    count = wide.sum(axis=1, keepdims=True)  # half of them, but for ties and odd numbers
    n = delta.shape[1]
    right = 100.0 * (rank == 1)
    return crossed_interval(np.where(wide, n / count, -n / (n - count)) * right, clusters)


def wrong_beyond(answers: Sequence[dict], limit: float = 0.2, least: int = 30) -> Estimate | None:
    """Percent of the dev texts with Δ of at least `limit` whose first image is wrong.

    Over trainings together, with the Clopper-Pearson interval, which takes trainings of one dev
    set for independent and is thus too narrow. None where fewer than `least` texts have such a gap.
    Even without an error, 183 are needed for an upper bound of 2 percent.
    """
    from scipy.stats import binomtest

    delta, rank = gaps(answers)
    wide = delta >= limit
    count, wrong = int(wide.sum()), int((wide & (rank > 1)).sum())
    if count < least:
        return None
    low, high = binomtest(wrong, count).proportion_ci()
    return Estimate(100 * wrong / count, 100 * float(low), 100 * float(high))


def confidence_loss(answers: Sequence[dict]) -> Estimate | None:
    """MedR by η alone minus MedR by θ, over trainings; None for fewer than two."""
    lost = [
        np.mean(a["confidence only"]) - np.mean(a["variants"][UNREFINED]["pools"]["medr"])
        for a in answers
    ]
    return mean_interval(np.array(lost)) if len(lost) > 1 else None


def prediction_parts(
    answers: Mapping[str, Sequence[dict]], pairs: Pairs, dataset: str
) -> dict[str, Estimate]:
    """Average precision of CMCM minus chance for each relation, over trainings (two or more)."""
    own = answers.get("CMCM", [])
    if len(own) < 2:
        return {}
    rates = pairs.test.labels.mean(axis=0)
    return {
        f"{dataset}: {name}": mean_interval(
            np.array([a["precision"][str(c)]["both"] for a in own]) - rates[c]
        )
        for c, name in enumerate(pairs.relations)
        if str(c) in own[0]["precision"]
    }


def sweeps(scores: Scores, dataset: str, settings: Settings) -> dict[str, dict[float, np.ndarray]]:
    """Fig. 8: label -> value -> MedR of each training (mean over pools); {} without sweeps."""
    own = {name: record["medr"].mean(axis=1) for name, record in scores[dataset].items()}
    panels: dict[str, dict[float, np.ndarray]] = {}
    for label, values, known in (
        (SWEPT["cls"], SWEEP, {0.0: "CMCA", settings.cls: "CMCM"}),
        (SWEPT["max_words"], LENGTHS, {settings.max_words: "CMCM"}),
    ):
        names = known | {value: f"CMCM, {label} {value}" for value in values}
        if all(name in own for name in names.values()):
            panels[label] = {value: own[names[value]] for value in sorted(names)}
    return panels


# --- Clue without pictures, and people -----------------------------------------------------------


def clue_report() -> dict[str, Any] | None:
    """What can be counted in Clue's own files; None where they are not in the data folder."""
    from mmlib.data import clue

    return clue.report() if (data_dir() / clue.NAME).is_dir() else None


def rates_beside_table2(report: Mapping[str, Any]) -> pd.DataFrame:
    """Clue's positive rates in percent beside the printed ones."""
    printed = paper_values("coherence", "table2")["percent_positive"]
    table = report["rates"].round(2)
    table = table if list(table.index) == list(printed.index) else table.T
    table.insert(0, "paper's Table 2", printed)
    return table


@cache
def _clue_text(folder: Path) -> dict[str, pd.DataFrame]:
    """`silver.average_precisions` of Clue's test captions: rows -> table; {} without Clue."""
    from mmlib import silver
    from mmlib.data import clue

    if not folder.is_dir():
        return {}
    train, test = clue.load("train", folder), clue.load("test", folder)
    classifier = silver.clue_classifier(folder)
    clean, _ = clue.clean_rows(test, train)
    rows = {"all test rows": test, "clean rows": test.take(clean)}
    return {name: silver.average_precisions(classifier, some) for name, some in rows.items()}


def clue_text_table() -> pd.DataFrame | None:
    """Average precision of relations read off Clue's text alone, beside Table 8; None: no Clue."""
    from mmlib import silver

    tables = _clue_text(data_dir() / "clue")
    return silver.beside_table8(tables) if tables else None


def clue_text_parts() -> dict[str, Estimate]:
    """Average precision minus chance of relations read off the text of Clue's clean test rows.

    Intervals by bootstrap over images; {} where Clue is not in the data folder.
    """
    tables = _clue_text(data_dir() / "clue")
    if not tables:
        return {}
    return {
        f"Clue's text, clean rows: {name}": Estimate(
            row["AP"] - row["chance"], row["low"] - row["chance"], row["high"] - row["chance"]
        )
        for name, row in tables["clean rows"].iterrows()
    }


def human_questions(answers: Mapping[str, list], pairs: Pairs, path: Path, count: int = 20) -> Any:
    """A study of the best images of CMCM and CMCA for random test texts where they differ.

    None where there is nothing to show: no pictures, or not both systems.
    """
    from mmlib.human_study import Question, Study

    if pairs.test.open_image is None or not {"CMCA", "CMCM"} <= set(answers):
        return None
    firsts = {name: answers[name][0]["first"] for name in ("CMCM", "CMCA")}
    image_of = pairs.test.image_of
    differ = np.flatnonzero(image_of[firsts["CMCM"]] != image_of[firsts["CMCA"]])
    rows = np.random.default_rng(0).permutation(differ)[:count]
    questions = [
        Question(
            f"text {row}",
            pairs.test.texts[row],
            (int(image_of[firsts["CMCM"][row]]), int(image_of[firsts["CMCA"][row]])),
        )
        for row in rows
    ]
    return Study(questions, pairs.test.open_image, ("CMCM", "CMCA"), path) if questions else None
