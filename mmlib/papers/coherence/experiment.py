"""The experiment of paper 01: systems, budgets, the grid of jobs, and what the evidence says."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from mmlib.core.evidence import NO_SEED
from mmlib.core.jobs import Answer, Job
from mmlib.papers.coherence.arrays import Arrays
from mmlib.papers.coherence.baselines import describe_pairs, score
from mmlib.papers.coherence.model import Settings, System
from mmlib.papers.coherence.training import train_and_score

PAPER = "coherence"
# What makes the evidence: a change to these modules, or to what they import, makes it stale.
MODULES = ("mmlib.papers.coherence.training", "mmlib.papers.coherence.baselines")

# --- Collections ---------------------------------------------------------------------------------

CLUE_LIKE, CITE_LIKE = "Clue-like", "CITE-like"
SIGNALS, TELLINGS = (0.0, 0.5, 1.0), (0.0, 0.5, 0.75, 1.0)
DEFAULTS = (1.0, 0.5)


def at_dials(signal: float, telling: float) -> str:
    """The Clue-like collection at these dials."""
    named = f"{CLUE_LIKE}, signal {signal:g}, telling {telling:g}"
    return CLUE_LIKE if (signal, telling) == DEFAULTS else named


DIALS = {at_dials(s, t): (s, t) for s in SIGNALS for t in TELLINGS}
MAP = tuple(name for name in DIALS if name != CLUE_LIKE)
WORLD = (CLUE_LIKE, CITE_LIKE, *MAP)
CLUE = ("Visible", "Subjective", "Action", "Story", "Meta", "Irrelevant")
CITE = ("Q2", "Q3", "Q4", "Q5", "Q6", "Q7", "Q8")


def relations_of(dataset: str) -> tuple[str, ...]:
    """The relations of a collection, in the order of its labels."""
    if dataset == "flickr8k":
        return CLUE[:-1]
    return CITE if dataset.lower().startswith("cite") else CLUE


# --- Systems -------------------------------------------------------------------------------------

BASE = System("Base", attention=False)
CMCA = System("CMCA", reports="all")
NO_ATTENTION = System("CMCM-NoAttn", attention=False, relations="all", reports="refined")
CMCM = System("CMCM", relations="all", reports="all")
MAIN = (BASE, CMCA, NO_ATTENTION, CMCM)
UNWEIGHTED = replace(CMCM, system="CMCM, no weights", weighted=False, reports="ranks")
PRODUCT = replace(CMCM, system="CMCM, product head", head="product", reports="refined")
SWEEP = (0.01, 0.4, 2.0)  # λ_cls beside 0 and 0.1, some of Fig. 8's
SWEPT = tuple(
    replace(CMCM, system=f"CMCM, λ_cls {value:g}", cls=value, reports="ranks") for value in SWEEP
)
FLOORS = ({"system": "Random", "baseline": "random"}, {"system": "Ridge", "baseline": "ridge"})
PAIRS = "Pairs"  # what is known of relations without training


def single(relation: str, weighted: bool = True) -> System:
    """CMCM_c: the head learns one relation, with or without its weight p_c."""
    name = f"CMCM_{relation}" if weighted else f"CMCM_{relation}, no weight"
    return System(
        name, relations=relation, weighted=weighted, reports="refined" if weighted else "ranks"
    )


def trained(dataset: str) -> list[System]:
    """What is trained on a collection: on the map two systems, on the first one all."""
    if dataset in MAP:
        return [CMCA, replace(CMCM, reports="ranks")]
    singles = [single(c) for c in relations_of(dataset)]
    unweighted = [single(c, weighted=False) for c in relations_of(dataset)]
    more = [*unweighted, *SWEPT] if dataset == CLUE_LIKE else []
    return [*MAIN, *singles, UNWEIGHTED, PRODUCT, *more]


# --- Budgets -------------------------------------------------------------------------------------

# One budget for all systems of a collection, searched on dev (mean log2 rank, CMCA, one seed), with
# the epochs after which it hardly falls. World, rate 2e-3, batches of 32, dropout .4, 10 epochs:
# 5.61; half the rate 5.79; rate 4e-3 and dropout .2, 12 epochs, 5.40; dropout .1 5.36; 18 epochs
# 5.24; margin .2 5.38; batches of 16 5.21, which took half as long again. With dropout .4: the
# paper's cosine loss 5.91, the shared space half as wide 5.63, rate 8e-3 5.73.
_WORLD = Settings(
    word_width=48, hidden=48, width=128, epochs=10, batch=16, learning_rate=4e-3,
    schedule="cosine", max_words=30, dropout=0.2,
)  # fmt: skip
# Flickr8k, rate 1e-3, width 256, dropout .4, 6 epochs: 4.03, still falling; rate 2e-3 and three
# quarters of all widths 3.75, flat; rate 2e-3 with dropout .2 4.03, and rising after two epochs.
_FLICKR8K = Settings(
    word_width=96, hidden=96, width=192, epochs=6, learning_rate=2e-3, batch=64,
    schedule="cosine", words=10, dropout=0.4,
)  # fmt: skip


def budget(tier: str, dataset: str) -> Settings:
    """The settings of a collection, the same for all of its systems; of tier paper the paper's."""
    if tier == "paper" and dataset.startswith("cite"):
        return Settings(max_words=200, strength=0.13)
    return {"world": _WORLD, "flickr8k": _FLICKR8K}.get(tier, Settings())


# --- The grid ------------------------------------------------------------------------------------


def systems(tier: str, dataset: str) -> dict[str, Mapping[str, Any]]:
    """The columns of each system, trained or not, that may be on record of a collection."""
    rows = (*map(asdict, trained(dataset)), *FLOORS, {"system": PAIRS})
    return {row["system"]: row for row in rows}


def trainings(tier: str, data: Mapping[str, Arrays], seeds: Iterable[int]) -> list[Job]:
    """A job for each collection, system and seed; none of a relation that training never has."""
    return [
        Job(PAPER, tier, dataset, asdict(system), seed, asdict(budget(tier, dataset)))
        for seed in seeds
        for dataset, arrays in data.items()
        for system in trained(dataset)
        if arrays.splits["train"].labels[:, system.columns(arrays.relations)].any(axis=0).all()
    ]


def stages(
    tier: str, data: Mapping[str, Arrays], seeds: Sequence[int]
) -> list[tuple[Callable[..., Answer], list[Job], bool]]:
    """All that evidence needs: functions and their jobs, and whether they may run side by side."""
    scorings = [
        Job(PAPER, tier, dataset, row, seed)
        for dataset, arrays in data.items()
        for row in FLOORS
        if dataset not in MAP
        and (row["baseline"] == "random" or isinstance(arrays.splits["train"].images, np.ndarray))
        for seed in (seeds if row["baseline"] == "random" else [NO_SEED])
    ]
    told = [Job(PAPER, tier, dataset, {"system": PAIRS}, NO_SEED) for dataset in data]
    return [
        (score, scorings, True),
        (describe_pairs, told, True),
        (train_and_score, trainings(tier, data, seeds), True),
    ]
