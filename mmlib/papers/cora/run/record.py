"""The jobs of a record of paper 03, and the paper as the suite knows it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict

from mmlib.core.experiment import Experiment
from mmlib.core.jobs import NO_SEED, Job, Stage
from mmlib.core.paths import table_beside
from mmlib.papers.cora.claims import ALL_CLAIMS
from mmlib.papers.cora.data import Study, load_arrays, load_study
from mmlib.papers.cora.run import systems
from mmlib.papers.cora.run.baselines import describe_captions, score, time_queries
from mmlib.papers.cora.run.batches import Arrays
from mmlib.papers.cora.run.systems import BASELINES, IDEAL_BAG, ORACLES, PAPER, TRIGRAMS, budget
from mmlib.papers.cora.run.train import train_and_score
from mmlib.papers.cora.show import figures, tables


def trainings(tier: str, names: Collection[str], seeds: Iterable[int]) -> list[Job]:
    """A job for each collection, system and seed."""
    return [
        Job(PAPER, tier, name, asdict(system), seed, asdict(budget(tier, name)))
        for seed in seeds
        for name in names
        for system in systems.trained_systems(name)
    ]


def stages(tier: str, data: Mapping[str, Arrays], seeds: Sequence[int]) -> list[Stage]:
    """All jobs of a record. Baselines, oracles and times are those of the plain collections."""
    ideal = [Job(PAPER, tier, n, IDEAL_BAG, NO_SEED) for n in data if data[n].ideal_bag is not None]
    if tier == systems.CONTROLLED_TIER:
        oracles = [Job(PAPER, tier, dataset, ORACLES[-1], NO_SEED) for dataset in data]
        trained = Stage(train_and_score, trainings(tier, data, seeds))
        return [Stage(score, ideal + oracles), trained]
    plain = {name: arrays for name, arrays in data.items() if name == systems.original(name)}
    scorings = [
        Job(PAPER, tier, dataset, row, seed)
        for dataset, arrays in plain.items()
        for row in (*BASELINES, *(oracle for oracle in ORACLES if oracle["reads"] in arrays.truth))
        for seed in (seeds if row["baseline"] == "random" else [NO_SEED])
    ]
    scorings += [Job(PAPER, tier, n, TRIGRAMS, NO_SEED) for n in data if data[n].plausible]
    described = [Job(PAPER, tier, name, {"system": systems.CAPTIONS}, NO_SEED) for name in data]
    time_of = {"system": systems.QUERY_TIME}
    timed = [Job(PAPER, tier, n, time_of, NO_SEED, asdict(budget(tier, n))) for n in plain]
    return [
        Stage(score, [*scorings, *(job for job in ideal if job.dataset in plain)]),
        Stage(describe_captions, described),
        Stage(train_and_score, trainings(tier, data, seeds)),
        Stage(time_queries, timed, parallel=False),
    ]


EXPERIMENT: Experiment[Study, Arrays] = Experiment(
    paper=PAPER,
    datasets=systems.datasets,
    load_study=load_study,
    load_arrays=load_arrays,
    budget=budget,
    systems=systems.systems,
    stages=stages,
    claims=ALL_CLAIMS,
    tables=tables,
    figures=figures,
    **table_beside(__file__),
)
