"""Evidence of paper 03 with made-up figures, for what reads evidence."""

from dataclasses import asdict

import numpy as np
import pandas as pd

from mmlib.core import evidence as records
from mmlib.core.engine import tidy
from mmlib.core.jobs import NO_SEED, Answer, Job
from mmlib.core.ranking import KS, ranks_of_scores
from mmlib.papers.cora.method import per_item, right_in_family
from mmlib.papers.cora.run import systems
from mmlib.papers.cora.run.systems import CAPTIONS, ERRORS, PAPER, QUERY_TIME, RATES, SIZES

# How far a system's own similarities stand out; of the others 1.
LEVELS = {
    "Random": 0.0, "Oracle of words": 2.0, "Oracle of entities": 3.0, "Oracle of the graph": 4.0,
    "CORA": 1.5, "HARD": 0.5, "Sequence, CORA's rest": 1.2,
}  # fmt: skip


def make(tier="world", dataset="world", images=40, seeds=4):
    """Evidence with every system of a collection and every metric; five captions an image."""
    image_of = np.repeat(np.arange(images), 5)
    trained = {one.system for one in systems.trained_systems(dataset)}

    class Data:
        fingerprint = "made up"

        def clusters(self, split):
            return np.concatenate([image_of, np.arange(images)]) // 4

    def answer(name, seed):
        rng = np.random.default_rng([seed, len(name)])
        own = (image_of == np.arange(images)[:, None]) * LEVELS.get(name, 1.0)
        scores = own + rng.normal(size=own.shape)
        values = per_item(ranks_of_scores(scores, image_of))
        values["in family"] = right_in_family(scores, image_of, 4)
        rsum, none = values["RSUM"], np.full(len(image_of), np.nan)
        if name == CAPTIONS:
            kinds = "objects", "attributes", "relations"
            counts = {k: rng.integers(0, 4, len(image_of)) for k in kinds}
            padding = np.full(images, np.nan)
            values = {k: np.concatenate([v, padding]) for k, v in counts.items()}
        if name == "CORA, ensemble of two":
            values["RSUM of members"] = rsum - 4
        if name in ("CORA", "CORA, ensemble of two"):
            values["RSUM, reranked"] = rsum + 1
        if name == "CORA":
            values |= {f"RSUM, {k} {r} %": 0.99 * rsum for k in ERRORS for r in RATES}
        if name in ("CORA", CAPTIONS):
            ranks = rng.integers(1, 30, images)
            values["entity rank"] = np.concatenate([none, ranks])
            found = {f"entity to image, R@{k}": rng.random(len(image_of)) * k for k in KS}
            values |= {k: np.concatenate([v, np.full(images, np.nan)]) for k, v in found.items()}
        history = [{"train_loss": 1 / e, "dev_loss": 600 - 10 * e, "dev_RSUM": 10 * e}
                   for e in range(1, 9)]  # fmt: skip
        if name == QUERY_TIME:
            parts = {"parse": 0.01, "encode": 0.01, **{f"search {n}": n * 1e-7 for n in SIZES}}
            parts |= {f"attend {n}": n * 1e-3 for n in SIZES}
            history = [{k: v * (1 + 0.1 * rng.random()) for k, v in parts.items()} for _ in "12345"]
            return Answer({}, history)
        known = name in trained
        return Answer({"test": values}, history if known else (), 10.0)

    jobs = []
    for name, row in systems.systems(tier, dataset).items():
        knows_seeds = name in trained or name == "Random"
        jobs += [
            Job(PAPER, tier, dataset, row, seed)
            for seed in (range(seeds) if knows_seeds else [NO_SEED])
        ]
    answers = [answer(job.system["system"], max(job.seed, 0)) for job in jobs]
    table = tidy(jobs, answers, {dataset: Data()})
    head = records.header(
        paper=PAPER, tier=tier, source="made up", seeds=list(range(seeds)),
        settings={dataset: asdict(systems.budget(tier, dataset))}, data={dataset: "made up"},
    )  # fmt: skip
    return records.Evidence(table, head)


def both(one, other):
    """Two collections of one tier."""
    head = {k: own | other.header[k] if k in ("data", "settings") else own
            for k, own in one.header.items()}  # fmt: skip
    return records.Evidence(pd.concat([one.series, other.series]), head)


def without(evidence, *systems):
    """The same evidence where some systems were not run."""
    series = evidence.series[~evidence.series.system.isin(systems)]
    return records.Evidence(series, evidence.header)
