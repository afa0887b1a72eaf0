"""The experiment of paper 04: systems, budgets, the grid of jobs, and what the evidence says."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd
import statsmodels.api as sm
import torch
from scipy.stats import rankdata, spearmanr
from sklearn.decomposition import PCA

from mmlib.core.evidence import EPOCHS, NO_SEED, Evidence
from mmlib.core.jobs import Answer, Job
from mmlib.papers.links import baselines
from mmlib.papers.links.arrays import Arrays, Batches
from mmlib.papers.links.baselines import means, spread, word_shares
from mmlib.papers.links.model import (
    LinkModel,
    Negatives,
    Settings,
    System,
    batch_loss,
    train_and_score,
)

PAPER = "links"
# What makes the evidence: a change to these modules, or to what they import, makes it stale.
MODULES = ("mmlib.papers.links.model", "mmlib.papers.links.baselines")

SYSTEMS = {
    one.system: one
    for one in (
        System("NoStruct", "pair"),
        System("DC", "DC"),
        System("TK", "TK"),
        System("TK+½k", "TK", half=True),
        System("AP", "AP"),
        System("AP+½k", "AP", half=True),
    )
}
STRUCTURED = ("DC", "TK+½k", "AP", "AP+½k")  # TK at full k is left out: mostly it is DC
VARIANTS = {
    one.system: one
    for one in (
        replace(SYSTEMS["DC"], system="DC, hard negatives", negatives="hard"),
        replace(SYSTEMS["AP"], system="AP, hard negatives", negatives="hard"),
        replace(SYSTEMS["DC"], system="DC, averaged negatives", negatives="mean"),
        replace(SYSTEMS["AP"], system="AP, averaged negatives", negatives="mean"),
        replace(SYSTEMS["AP"], system="AP, b = 20", b=20),
        replace(SYSTEMS["AP"], system="AP, b = 30", b=30),
        replace(SYSTEMS["NoStruct"], system="NoStruct, plain cosine", doubled=False),
        replace(SYSTEMS["AP"], system="AP, at most k", at_most=True),
    )
}
FLOORS: tuple[dict[str, str], ...] = (
    {"system": "Random", "baseline": "random"},
    {"system": "Obj Detect", "baseline": "detection", "k_by": "val"},
    {"system": "Obj Detect (best K on test)", "baseline": "detection", "k_by": "test"},
    {"system": "Co-occurrence", "baseline": "cooccurrence"},
)
CEILINGS: tuple[dict[str, str], ...] = (
    {"system": "Supervised ridge", "baseline": "supervised"},
    {"system": "Recogniser", "baseline": "recogniser"},
)
BASELINES = ("NoStruct", "Obj Detect", "Co-occurrence")  # what a structured system has to beat

# Which printed table a data set of ours stands beside.
PAPER_TABLES = {
    "coco": "table2_mscoco",
    "cohesive": "table2_story_dii",
    "story": "table2_story_sis",
    "stress": "table2_dii_stress",
    "organic": "table3_rqa",
    "diy": "table3_diy",
}

UNLABELLED = "unlabelled"  # documents whose links nobody knows

# How each tier trains, the same for all systems of a data set. That of the tier "paper" is the
# paper's own. The others were searched on dev, as the notebook's section on budgets says.
_WORLD = Settings(
    width=64, word_width=64, min_count=2, dropout=0.0, learning_rate=8e-3, schedule="cosine",
    epochs=10, steps=80, draws=200, word_scale=3.0, warm_up=0.3,
)  # fmt: skip
_FLICKR8K = replace(
    _WORLD, width=128, word_width=100, min_count=5, learning_rate=5e-3, word_scale=1.0, steps=90,
    feature_power=0.5,
)  # fmt: skip
BUDGETS: dict[str, dict[str, Settings]] = {
    "world": {
        "coco": replace(_WORLD, steps=120),
        "cohesive": _WORLD,
        "story": _WORLD,
        "stress": replace(_WORLD, steps=100),
        "organic": replace(_WORLD, steps=60),
        UNLABELLED: replace(_WORLD, steps=20),
    },
    "flickr8k": {
        "coco": replace(_FLICKR8K, steps=250),
        "mixed5": _FLICKR8K,
        "cohesive": _FLICKR8K,
        "stress": replace(_FLICKR8K, steps=60),
        "organic": _FLICKR8K,
        UNLABELLED: replace(_FLICKR8K, steps=20),
    },
}
# Where dev prefers the hardest negative (after a start on averaged ones); elsewhere averaged ones.
HARD = {"world": ("story", "organic"), "flickr8k": ("cohesive",)}
# Which variants are trained on what: on documents where a step is cheap.
VARIANT_SETS = {"world": {"story": tuple(VARIANTS)}}


def budget(tier: str, dataset: str) -> Settings:
    """The settings of a data set: the same for all systems that are trained on it."""
    return BUDGETS.get(tier, {}).get(dataset, Settings())


# --- The grid --------------------------------------------------------------------------------


def trainings(
    tier: str, data: Mapping[str, Arrays], seeds: Iterable[int], variants: bool = True
) -> list[Job]:
    """A job for each data set, system and seed. TK is left out where it is the same as DC."""
    return [
        Job(PAPER, tier, dataset, asdict(system), seed, asdict(budget(tier, dataset)))
        for seed in seeds
        for dataset, arrays in data.items()
        for system in systems_of(tier, dataset, arrays.square, variants)
    ]


def systems(tier: str, dataset: str) -> dict[str, Mapping[str, Any]]:
    """The columns of each system, trained or not, that may be on record of a data set."""
    trained = [asdict(one) for one in systems_of(tier, dataset)]
    others = [{"system": STEP_TIME}, {"system": DOCUMENTS}]
    return {row["system"]: row for row in (*trained, *FLOORS, *CEILINGS, *others)}


def systems_of(
    tier: str, dataset: str, square: bool = False, variants: bool = True
) -> list[System]:
    """What is trained on a data set: the table's systems, and variants that differ from them.

    square: of documents with as many sentences as images, where TK is the same as DC.
    """
    hard = tier == "paper" or dataset in HARD[tier]
    usual: Negatives = "hard" if hard else "mean"
    main = [replace(one, negatives=usual) for one in SYSTEMS.values()]
    if dataset == UNLABELLED:
        return [one for one in main if one.system == "AP"]
    names = VARIANT_SETS.get(tier, {}).get(dataset, ()) if variants else ()
    other = "averaged" if hard else "hard"
    more = [
        replace(one, negatives=usual) if "negatives" not in name else one
        for name, one in VARIANTS.items()
        if name in names and ("negatives" not in name or other in name)
    ]
    return [one for one in main if not (one.system == "TK" and square)] + more


def scorings(tier: str, data: Mapping[str, Arrays], seeds: Sequence[int]) -> list[Job]:
    """A job for each data set and baseline or ceiling that can be had there."""
    jobs = []
    for dataset, arrays in data.items():
        if arrays.splits["test"].links is None:
            continue
        for row in (*FLOORS, *CEILINGS):
            lacking = (row["baseline"] == "detection" and arrays.label_scores is None) or (
                row["baseline"] == "recogniser" and arrays.truth is None
            )
            if not lacking:
                own = seeds if row["baseline"] == "random" else [NO_SEED]
                jobs += [Job(PAPER, tier, dataset, row, seed) for seed in own]
    return jobs


def timings(tier: str, data: Mapping[str, Arrays]) -> list[Job]:
    """A job for each data set: how long a training step takes."""
    return [
        Job(PAPER, tier, dataset, {"system": STEP_TIME}, NO_SEED, asdict(budget(tier, dataset)))
        for dataset in data
        if dataset != UNLABELLED
    ]


STEP_TIME, DOCUMENTS = "Step time", "Documents"
REPEATS = 40


def stages(
    tier: str, data: Mapping[str, Arrays], seeds: Sequence[int]
) -> list[tuple[Callable[..., Answer], list[Job], bool]]:
    """All that evidence needs: functions and their jobs, and whether they may run side by side."""
    known = [dataset for dataset in data if dataset != UNLABELLED]
    documents = [Job(PAPER, tier, dataset, {"system": DOCUMENTS}, NO_SEED) for dataset in known]
    return [
        (baselines.score, scorings(tier, data, seeds), True),
        (describe_documents, documents, True),
        (train_and_score, trainings(tier, data, seeds), True),
        (time_steps, timings(tier, data), False),
    ]


def describe_documents(
    job: Job, arrays: Arrays, device: str = "cpu", checkpoint: object = None
) -> Answer:
    """What may make a test document hard, beside its AUCs: see `difficulty_predictors`."""
    columns = difficulty_predictors(arrays)
    return Answer({"test": {name: columns[name].to_numpy() for name in columns}})


def time_steps(job: Job, arrays: Arrays, device: str = "cpu", checkpoint: object = None) -> Answer:
    """Milliseconds of training steps of DC and AP on one batch, the two taking turns."""
    settings = Settings(**job.settings)
    model = LinkModel(torch.tensor(arrays.words), arrays.features.shape[1], settings).to(device)
    rows = []
    for repeat in range(REPEATS + 3):
        row = {}
        for name in ("DC", "AP"):
            batch = Batches(arrays, "train", device).batch(range(SYSTEMS[name].b + 1))
            started = time.perf_counter()
            batch_loss(model, batch, SYSTEMS[name], settings, "mean").backward()
            model.zero_grad()
            if torch.device(device).type == "cuda":
                torch.cuda.synchronize()
            row[f"ms of {name}"] = 1000 * (time.perf_counter() - started)
        rows += [row] if repeat >= 3 else []  # after a warm-up
    return Answer({}, rows)


# --- What the evidence says --------------------------------------------------------------------


def labelled(evidence: Evidence) -> list[str]:
    """The data sets whose links are known, in the order of the paper's tables."""
    there = evidence.datasets
    order = [*PAPER_TABLES, *(name for name in there if name not in PAPER_TABLES)]
    return [name for name in order if name in there and name != UNLABELLED]


def auc(
    evidence: Evidence, dataset: str, systems: Sequence[str], seeds: Sequence[int] | None = None
) -> np.ndarray:
    """Mean AUC over systems, (seeds, documents); TK stands for DC where it is the same."""
    return np.mean(
        [evidence.values(dataset, own_row(evidence, dataset, s), "AUC", seeds) for s in systems],
        axis=0,
    )


def own_row(evidence: Evidence, dataset: str, system: str) -> str:
    """The row that holds a system's values: DC's for TK at full k where the two are the same."""
    same = system == "TK" and not evidence.has(dataset, "TK", "AUC")
    return "DC" if same else system


def strongest_baseline(evidence: Evidence, dataset: str) -> str:
    """The baseline with the highest mean AUC on the test documents: the hardest one to beat."""
    there = [name for name in BASELINES if evidence.has(dataset, name, "AUC")]
    return max(there, key=lambda name: np.nanmean(evidence.values(dataset, name, "AUC")))


# --- What makes a document hard (Section 4.1) ------------------------------------------------


def difficulty_predictors(arrays: Arrays, components: int = 20) -> pd.DataFrame:
    """Spread and content of every test document, from vectors that no system has trained.

    A row a document: "image spread", "text spread", and "image content 0" and so on: mean vectors
    reduced by a PCA fitted on training documents. Texts are mean word vectors.
    """
    texts = word_shares(arrays) @ arrays.words
    columns = {}
    for side, vectors in (("image", arrays.features), ("text", texts)):
        train, test = (
            getattr(arrays.splits[s], "images" if side == "image" else "sentences")
            for s in ("train", "test")
        )
        columns[f"{side} spread"] = np.array([spread(vectors[own]) for own in test])
        centres = means(vectors, train)
        reduce = PCA(min(components, *centres.shape), random_state=0).fit(centres)
        for i, column in enumerate(reduce.transform(means(vectors, test)).T):
            columns[f"{side} content {i}"] = column
    return pd.DataFrame(columns)


def predictors(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """What `difficulty_predictors` found, from the evidence."""
    names = evidence.metrics(dataset, DOCUMENTS)
    return pd.DataFrame({name: evidence.values(dataset, DOCUMENTS, name)[0] for name in names})


def difficulty(evidence: Evidence, datasets: Sequence[str], system: str = "AP") -> pd.DataFrame:
    """The paper's regressions of per-document AUC: a row a corpus and set of predictors.

    A slope is the change of AUC, in points, with one standard deviation of the predictor.
    """
    rows, spreads = [], ["image spread", "text spread"]
    for dataset in datasets:
        every = predictors(evidence, dataset)
        content = [name for name in every if name not in spreads]
        y = auc(evidence, dataset, [system]).mean(axis=0)
        scored = ~np.isnan(y)
        for name, chosen in (("spread", spreads), ("spread + content", spreads + content)):
            x = sm.add_constant(every.loc[scored, chosen].to_numpy())
            if scored.sum() > x.shape[1]:
                fitted = sm.OLS(y[scored], x).fit()
                slopes = fitted.params[1:] * x[:, 1:].std(axis=0, ddof=1)
                rows.append(
                    {"documents": dataset, "predictors": name, "R² in %": 100 * fitted.rsquared,
                     "adjusted R²": 100 * fitted.rsquared_adj, "F": fitted.fvalue,
                     "p of F": f"{fitted.f_pvalue:.1g}",
                     **{f"slope, {side}": slopes[i] for i, side in enumerate(spreads)}}
                )  # fmt: skip
    columns = ["documents", "predictors", "R² in %", "adjusted R²", "F", "p of F"]
    columns += [f"slope, {side}" for side in spreads]
    return pd.DataFrame(rows, columns=columns).set_index(columns[:2]).round(1)


def agreement(evidence: Evidence, pairs: Sequence[tuple[str, str]]) -> pd.DataFrame:
    """Spearman's ρ of per-document AUC, means over seeds, between systems and halves of AP's seeds.

    "DC–AP, one seed": the mean of single seeds' ρ, which is what one training each would show;
    "AP–AP, one seed": that of neighbouring seeds.
    """

    def rho(x: np.ndarray, y: np.ndarray) -> float:
        return float(spearmanr(x, y, nan_policy="omit").statistic)

    rows = {}
    for dataset in labelled(evidence):
        row = {}
        for a, b in pairs:
            x, y = (auc(evidence, dataset, [one]) for one in (a, b))
            row[f"{a}–{b}"] = rho(x.mean(axis=0), y.mean(axis=0))
            if (a, b) == ("DC", "AP"):
                row["DC–AP, one seed"] = fmean(map(rho, x, y))
        own = auc(evidence, dataset, ["AP"])
        if len(own) > 1:
            row["AP–AP, one seed"] = fmean(map(rho, own, np.roll(own, -1, axis=0)))
            halves = own[::2].mean(axis=0), own[1::2].mean(axis=0)
            row["AP, two halves of the seeds"] = rho(*halves)
        rows[dataset] = row
    return pd.DataFrame.from_dict(rows, orient="index").round(2)


def together(evidence: Evidence, dataset: str, seeds: Sequence[int]) -> np.ndarray:
    """Minus Spearman's ρ of dev loss and dev AUC over epochs, (seeds,): mean over systems."""
    each = []
    for system in STRUCTURED:
        a, b = (
            evidence.derived("ranks", _centred_ranks, dataset, system, name, seeds, EPOCHS)
            for name in ("dev_loss", "dev_AUC")
        )
        with np.errstate(invalid="ignore"):  # a constant curve has no ranks: NaN
            each.append(-(a * b).sum(axis=1) / np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1)))
    return np.mean(each, axis=0)


def _centred_ranks(values: np.ndarray) -> np.ndarray:
    """Ranks of values (epochs,), their mean 0."""
    ranks = rankdata(values)
    return ranks - ranks.mean()
