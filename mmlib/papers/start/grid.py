"""The jobs of notebook 00's record."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from mmlib.core.evidence import NO_SEED
from mmlib.core.jobs import Job, Stage
from mmlib.papers.start.batches import Arrays
from mmlib.papers.start.systems import CAPTIONS, PAPER, SYSTEMS, budget
from mmlib.papers.start.train import describe_captions, train_and_score


def stages(tier: str, data: Mapping[str, Arrays], seeds: Sequence[int]) -> list[Stage]:
    """All that evidence needs: the captions are described, and each system trained or not."""
    settings = asdict(budget(tier, "world"))
    trainings = [
        Job(PAPER, tier, "world", system, seed, settings)
        for seed in seeds
        for system in SYSTEMS.values()
    ]
    captions = Job(PAPER, tier, "world", {"system": CAPTIONS}, NO_SEED)
    return [Stage(describe_captions, [captions]), Stage(train_and_score, trainings)]
