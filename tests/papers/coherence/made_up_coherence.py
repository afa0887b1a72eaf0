"""Evidence of paper 01 with made-up figures, for what reads evidence."""

from dataclasses import asdict
from types import SimpleNamespace

import numpy as np

from mmlib.core import evidence as records
from mmlib.core.engine import tidy
from mmlib.core.jobs import NO_SEED, Answer, Job
from mmlib.papers.coherence import run
from mmlib.papers.coherence.data import pairs as collections
from mmlib.papers.coherence.data.pairs import MAP
from mmlib.papers.coherence.method import POOLS
from mmlib.papers.coherence.run import PAIRS, PAPER

# Mean log2 ranks; all others 5.
LEVELS = {"Random": 8.5, "Ridge": 6.0, "Base": 6.0, "CMCA": 5.0, "CMCM-NoAttn": 5.8, "CMCM": 4.7}
SEEDLESS = (PAIRS, "Ridge", *(oracle["system"] for oracle in run.ORACLES))


def answer(dataset, row, seed, texts):
    """Made-up values of one job."""
    name, relations = row["system"], collections.relations_of(dataset)
    rng = np.random.default_rng([max(seed, 0), sum(name.encode()), len(dataset)])
    hard = np.random.default_rng(len(dataset)).normal(size=texts)

    def ranks(level):
        exponents = level + hard + 0.1 * rng.normal() + 0.5 * rng.normal(size=texts)
        return np.clip(np.round(2**exponents), 1, 1000)

    def of_relations(*metrics):
        return {metric: rng.uniform(0.6, 1, len(relations)) for metric in metrics}

    if name == PAIRS:
        holds = {c: (rng.random(texts) < 0.4).astype(float) for c in relations}
        known = of_relations("rate", "AP of words", "AP of pictures")
        return Answer({"relations": known, "test": holds})
    level, reports = LEVELS.get(name, 5.0), row.get("reports", "ranks")
    pools = {m: 20 * level + rng.random(POOLS) for m in ("MedR", "R@1", "R@5", "R@10")}
    values = {"test": {"rank": ranks(level)}, "relations": {}, "pools": pools}
    if reports == "head":
        values["relations"] |= of_relations("AP")
    elif reports != "ranks" and row.get("relations"):
        refined = ["rank, refined", "rank, refined as dev chose"]
        values["test"] |= {metric: ranks(level) for metric in refined}
        values["pools"] |= {f"{metric}, refined": figures for metric, figures in pools.items()}
    if reports == "all":
        values["relations"] |= of_relations("AP of z_S", "AP of z_I", "AP of both")
        if row["relations"]:
            values["test"] |= {"gap": 0.3 * rng.random(texts), "rank by confidence": ranks(7.5),
                               "rank, refined, T 0.1": ranks(level)}  # fmt: skip
            parts = of_relations("AP", "AP, text part", "AP, image part", "alignment")
            values["relations"] |= parts
        else:
            told = {"rank, true relations": ranks(4.2), "rank, told relations": ranks(4.9)}
            values["test"] |= told
    curve = [{"train_loss": 1 / e, "dev_loss": level + 2.0 / e**3, "dev_MedR": 40.0 / e}
             for e in range(1, 11)]  # fmt: skip
    return Answer(values, curve if "baseline" not in row else (), 10.0)


def make(tier="world", datasets=("Clue-like", "CITE-like", MAP[-1]), seeds=4, texts=60):
    """Evidence with every system of some collections and every metric."""

    def data(dataset):
        sizes = {"pools": POOLS, "relations": len(collections.relations_of(dataset))}
        return SimpleNamespace(
            fingerprint="made up", clusters=lambda split: np.arange(sizes.get(split, texts))
        )

    jobs = [
        Job(PAPER, tier, dataset, row, seed)
        for dataset in datasets
        for row in run.systems(tier, dataset).values()
        if dataset not in MAP or "baseline" not in row
        for seed in ([NO_SEED] if row["system"] in SEEDLESS else range(seeds))
    ]
    answers = [answer(one.dataset, one.system, one.seed, texts) for one in jobs]
    table = tidy(jobs, answers, {name: data(name) for name in datasets})
    head = records.header(
        paper=PAPER, tier=tier, source="made up", seeds=list(range(seeds)),
        settings={name: asdict(run.budget(tier, name)) for name in datasets},
        data=dict.fromkeys(datasets, "made up"), cpu_seconds=5400,
    )  # fmt: skip
    return records.Evidence(table, head)
