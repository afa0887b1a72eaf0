"""The jobs of a record of paper 02."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from mmlib.core.evidence import NO_SEED
from mmlib.core.jobs import Job, Stage
from mmlib.papers.entailment import systems, train
from mmlib.papers.entailment.batches import Arrays
from mmlib.papers.entailment.systems import PAPER, budget, judges, variants


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

    rankings = [row for row in systems.RANKINGS if row["baseline"] != "truth" or tier == "world"]
    starts = [row for row in variants(tier) if row.use == "start"]
    tuned = [row for row in variants(tier) if row.use != "start"]
    return [
        Stage(train.describe_pairs, jobs([{"system": systems.PAIRS}], [NO_SEED])),
        Stage(train.score_baseline, baselines(systems.BASELINES)),
        Stage(train.rank_baseline, baselines(rankings)),
        Stage(train.train_and_score, jobs(judges(tier))),
        Stage(train.train_and_measure, jobs(starts)),
        Stage(train.mine, jobs([{"system": systems.MINING}])),
        Stage(train.train_and_measure, jobs(tuned)),
    ]
