"""The jobs of a record of paper 03."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict

from mmlib.core.evidence import NO_SEED
from mmlib.core.jobs import Job, Stage
from mmlib.papers.cora.baselines import describe_captions, score
from mmlib.papers.cora.batches import Arrays
from mmlib.papers.cora.speed import time_queries
from mmlib.papers.cora.systems import (
    BASELINES,
    CAPTIONS,
    CONTROLLED_TIER,
    ORACLES,
    PAPER,
    QUERY_TIME,
    budget,
    original,
    trained_systems,
)
from mmlib.papers.cora.train import train_and_score


def trainings(tier: str, datasets: Collection[str], seeds: Iterable[int]) -> list[Job]:
    """A job for each collection, system and seed."""
    return [
        Job(PAPER, tier, dataset, system.columns, seed, asdict(budget(tier, dataset)))
        for seed in seeds
        for dataset in datasets
        for system in trained_systems(dataset)
    ]


def stages(tier: str, data: Mapping[str, Arrays], seeds: Sequence[int]) -> list[Stage]:
    """All jobs of a record. Baselines, oracles and times are those of the plain collections."""
    if tier == CONTROLLED_TIER:
        oracles = [Job(PAPER, tier, dataset, ORACLES[-1], NO_SEED) for dataset in data]
        return [Stage(score, oracles), Stage(train_and_score, trainings(tier, data, seeds))]
    plain = {name: arrays for name, arrays in data.items() if name == original(name)}
    scorings = [
        Job(PAPER, tier, dataset, row, seed)
        for dataset, arrays in plain.items()
        for row in (*BASELINES, *(oracle for oracle in ORACLES if oracle["reads"] in arrays.truth))
        for seed in (seeds if row["baseline"] == "random" else [NO_SEED])
    ]
    described = [Job(PAPER, tier, dataset, {"system": CAPTIONS}, NO_SEED) for dataset in data]
    timed = [
        Job(PAPER, tier, dataset, {"system": QUERY_TIME}, NO_SEED, asdict(budget(tier, dataset)))
        for dataset in plain
    ]
    return [
        Stage(score, scorings),
        Stage(describe_captions, described),
        Stage(train_and_score, trainings(tier, data, seeds)),
        Stage(time_queries, timed, parallel=False),
    ]
