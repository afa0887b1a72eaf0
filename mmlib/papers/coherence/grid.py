"""The grid of paper 01: the jobs that make its record."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np

from mmlib.core.evidence import NO_SEED
from mmlib.core.jobs import Job, Stage
from mmlib.papers.coherence.baselines import describe_pairs, score
from mmlib.papers.coherence.batches import Arrays
from mmlib.papers.coherence.systems import (
    BASELINES,
    MAP,
    ORACLES,
    PAIRS,
    budget,
    trained_systems,
)
from mmlib.papers.coherence.train import train_and_score

PAPER = "coherence"


def trainings(tier: str, data: Mapping[str, Arrays], seeds: Sequence[int]) -> list[Job]:
    """A job for each collection, system and seed; none of a relation that training never has."""
    return [
        Job(PAPER, tier, dataset, asdict(system), seed, asdict(budget(tier, dataset)))
        for seed in seeds
        for dataset, arrays in data.items()
        for system in trained_systems(dataset)
        if arrays.splits["train"].labels[:, system.columns(arrays.relations)].any(axis=0).all()
    ]


def stages(tier: str, data: Mapping[str, Arrays], seeds: Sequence[int]) -> list[Stage]:
    """All that a record needs: baselines or oracles, descriptions of the pairs, and trainings."""
    random, ridge = BASELINES
    baselines = []
    for dataset, arrays in data.items():
        if arrays.truth:
            baselines += [Job(PAPER, tier, dataset, oracle, NO_SEED) for oracle in ORACLES]
        elif dataset not in MAP:
            baselines += [Job(PAPER, tier, dataset, random, seed) for seed in seeds]
            if isinstance(arrays.splits["train"].images, np.ndarray):
                baselines.append(Job(PAPER, tier, dataset, ridge, NO_SEED))
    descriptions = [Job(PAPER, tier, dataset, {"system": PAIRS}, NO_SEED) for dataset in data]
    return [
        Stage(score, baselines),
        Stage(describe_pairs, descriptions),
        Stage(train_and_score, trainings(tier, data, seeds)),
    ]
