"""The jobs of a record of paper 02."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from mmlib.core.evidence import NO_SEED
from mmlib.core.jobs import Job, Stage
from mmlib.papers.entailment.batches import Arrays
from mmlib.papers.entailment.systems import (
    BASELINES,
    MINING,
    PAIRS,
    PAPER,
    RANKINGS,
    budget,
    judges,
    variants,
)
from mmlib.papers.entailment.train import (
    describe_pairs,
    mine,
    rank_baseline,
    score_baseline,
    train_and_measure,
    train_and_score,
)


def job(tier: str, dataset: str, system: Any, seed: int) -> Job:
    """A job; system: a dataclass or a row of columns."""
    columns = dict(system) if isinstance(system, Mapping) else asdict(system)
    return Job(PAPER, tier, dataset, columns, seed, asdict(budget(tier, dataset)))


def stages(tier: str, data: Mapping[str, Arrays], seeds: Sequence[int]) -> list[Stage]:
    """All that evidence needs, in an order in which later jobs find what earlier ones left."""

    def jobs(rows: Sequence[Any], job_seeds: Sequence[int] = seeds) -> list[Job]:
        return [job(tier, name, row, seed) for seed in job_seeds for name in data for row in rows]

    def baselines(rows: Sequence[Mapping[str, str]]) -> list[Job]:
        """All but the random one once, and that one for every seed."""
        random = [row for row in rows if row["baseline"] == "random"]
        return jobs([row for row in rows if row not in random], [NO_SEED]) + jobs(random)

    rankings = [row for row in RANKINGS if row["baseline"] != "truth" or tier == "world"]
    starts = [row for row in variants(tier) if row.use == "start"]
    tuned = [row for row in variants(tier) if row.use != "start"]
    return [
        Stage(describe_pairs, jobs([{"system": PAIRS}], [NO_SEED])),
        Stage(score_baseline, baselines(BASELINES)),
        Stage(rank_baseline, baselines(rankings)),
        Stage(train_and_score, jobs(judges(tier))),
        Stage(train_and_measure, jobs(starts)),
        Stage(mine, jobs([{"system": MINING}])),
        Stage(train_and_measure, jobs(tuned)),
    ]
