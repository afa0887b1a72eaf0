"""The jobs of paper 04's record."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from mmlib.core.evidence import NO_SEED
from mmlib.core.jobs import Job, Stage
from mmlib.papers.links import baselines, probes, systems
from mmlib.papers.links.batches import Arrays
from mmlib.papers.links.systems import DOCUMENTS, PAPER, STEP_TIME, UNLABELLED, budget
from mmlib.papers.links.train import train_and_score


def stages(tier: str, data: Mapping[str, Arrays], seeds: Sequence[int]) -> list[Stage]:
    """All that evidence needs; a step's time is measured last, one job after another."""
    labelled = [dataset for dataset in data if dataset != UNLABELLED]
    documents = [Job(PAPER, tier, dataset, {"system": DOCUMENTS}, NO_SEED) for dataset in labelled]
    timings = [
        Job(PAPER, tier, dataset, {"system": STEP_TIME}, NO_SEED, asdict(budget(tier, dataset)))
        for dataset in labelled
    ]
    return [
        Stage(baselines.score, scorings(tier, data, seeds)),
        Stage(probes.describe_documents, documents),
        Stage(train_and_score, trainings(tier, data, seeds)),
        Stage(probes.time_steps, timings, parallel=False),
    ]


def trainings(tier: str, data: Mapping[str, Arrays], seeds: Sequence[int]) -> list[Job]:
    """A job for each data set, system and seed. TK is left out where it is the same as DC."""
    return [
        Job(PAPER, tier, dataset, asdict(system), seed, asdict(budget(tier, dataset)))
        for seed in seeds
        for dataset, arrays in data.items()
        for system in systems.trained_systems(tier, dataset, arrays.square)
    ]


def scorings(tier: str, data: Mapping[str, Arrays], seeds: Sequence[int]) -> list[Job]:
    """A job for each data set and baseline or upper bound that it has the data for."""
    return [
        Job(PAPER, tier, dataset, row, seed)
        for dataset, arrays in data.items()
        if arrays.splits["test"].links is not None
        for row in (*systems.BASELINES, *systems.UPPER_BOUNDS)
        if not (row["baseline"] == "detection" and arrays.label_scores is None)
        and not (row["baseline"] == "recogniser" and arrays.truth is None)
        for seed in (seeds if row["baseline"] == "random" else [NO_SEED])
    ]
