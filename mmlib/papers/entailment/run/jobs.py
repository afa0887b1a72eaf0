"""Paper 02 as the suite knows it, with the jobs of a record in the order in which they run."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from mmlib.core.experiment import Experiment
from mmlib.core.jobs import NO_SEED, Job, Stage
from mmlib.core.paths import table_beside
from mmlib.papers.entailment import show
from mmlib.papers.entailment.claims import CLAIMS
from mmlib.papers.entailment.data import load_arrays, load_study
from mmlib.papers.entailment.data.arrays import Arrays
from mmlib.papers.entailment.run import judge, retriever, systems
from mmlib.papers.entailment.run.systems import BUDGETS, DATASETS, PAPER


def job(tier: str, dataset: str, system: Any, seed: int) -> Job:
    """A job; system: a dataclass or a row of columns."""
    columns = dict(system) if isinstance(system, Mapping) else asdict(system)
    return Job(PAPER, tier, dataset, columns, seed, asdict(BUDGETS[dataset]))


def stages(tier: str, data: Mapping[str, Arrays], seeds: Sequence[int]) -> list[Stage]:
    """All that evidence needs, in an order in which later jobs find what earlier ones left."""

    def jobs(rows: Sequence[Any], job_seeds: Sequence[int] = seeds) -> list[Job]:
        return [job(tier, name, row, seed) for seed in job_seeds for name in data for row in rows]

    def baselines(rows: Sequence[Mapping[str, str]]) -> list[Job]:
        # All but the random one once, and that one for every seed.
        random = [row for row in rows if row["baseline"] == "random"]
        return jobs([row for row in rows if row not in random], [NO_SEED]) + jobs(random)

    rankings = [row for row in systems.RANKINGS if row["baseline"] != "truth" or tier == "world"]
    variants = systems.variants(tier)
    return [
        Stage(judge.describe_pairs, jobs([{"system": systems.PAIRS}], [NO_SEED])),
        Stage(judge.score_baseline, baselines(systems.BASELINES)),
        Stage(retriever.rank_baseline, baselines(rankings)),
        Stage(judge.train_and_score, jobs(systems.judges(tier))),
        Stage(retriever.train_and_measure, jobs([row for row in variants if row.use == "start"])),
        Stage(retriever.mine, jobs([{"system": systems.MINING}])),
        Stage(retriever.train_and_measure, jobs([row for row in variants if row.use != "start"])),
    ]


EXPERIMENT = Experiment(
    paper=PAPER,
    datasets=lambda tier: [DATASETS[tier]] if tier in DATASETS else [],
    load_study=load_study,
    load_arrays=load_arrays,
    budget=lambda tier, dataset: BUDGETS[dataset],
    systems=systems.systems,
    stages=stages,
    claims=CLAIMS,
    tables=show.tables,
    figures=show.figures,
    **table_beside(__file__),
)
