"""Evidence of paper 03 with made-up figures, for what reads evidence."""

from dataclasses import asdict

import numpy as np
import pandas as pd

from mmlib.core import evidence as records
from mmlib.core.engine import tidy
from mmlib.core.jobs import NO_SEED, Answer, Job
from mmlib.core.ranking import ranks_of_scores
from mmlib.papers.cora.method import in_folds, per_item, right_in_family
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
    trained = {row.system for row in systems.trained_systems(dataset)}
    no_image = np.full(images, np.nan)

    class Data:
        fingerprint = "made up"

        def clusters(self, split):
            return np.concatenate([image_of, np.arange(images)]) // 4

    def answer(name, seed):
        rng = np.random.default_rng([seed, len(name)])
        own = (image_of == np.arange(images)[:, None]) * LEVELS.get(name, 1.0)
        scores = own + rng.normal(size=own.shape)
        if name == QUERY_TIME:
            parts = {"parse": 0.01, "encode": 0.01, **{f"search {n}": n * 1e-7 for n in SIZES}}
            parts |= {f"attend {n}": n * 1e-3 for n in SIZES}
            rows = [{k: v * (1 + 0.1 * rng.random()) for k, v in parts.items()} for _ in "12345"]
            return Answer({}, rows)
        values = per_item(ranks_of_scores(scores, image_of)) | in_folds(scores, image_of)
        values["in family"] = right_in_family(scores, image_of, 4)
        rsum = values["RSUM"]
        if name == CAPTIONS:
            kinds = "objects", "attributes", "relations"
            counts = {k: rng.integers(0, 4, len(image_of)) for k in kinds}
            values = {k: np.concatenate([v, no_image]) for k, v in counts.items()}
        if name == "CORA, ensemble of two":
            values["RSUM of members"] = rsum - 4
        if name in ("CORA", "CORA, ensemble of two"):
            values["RSUM, reranked"] = rsum + 1
        if name == "CORA":
            values |= {f"RSUM, {k} {r} %": 0.99 * rsum for k in ERRORS for r in RATES}
        history = [{"train_loss": 1 / e, "dev_loss": 600 - 10 * e, "dev_RSUM": 10 * e}
                   for e in range(1, 9)]  # fmt: skip
        return Answer({"test": values}, history if name in trained else (), 10.0)

    jobs = [
        Job(PAPER, tier, dataset, row, seed)
        for name, row in systems.systems(tier, dataset).items()
        for seed in (range(seeds) if name in trained or name == "Random" else [NO_SEED])
    ]
    answers = [answer(job.system["system"], max(job.seed, 0)) for job in jobs]
    head = records.header(
        paper=PAPER, tier=tier, source="made up", seeds=list(range(seeds)),
        settings={dataset: asdict(systems.budget(tier, dataset))}, data={dataset: "made up"},
    )  # fmt: skip
    return records.Evidence(tidy(jobs, answers, {dataset: Data()}), head)


def together(*parts):
    """Several collections of one tier."""
    head = dict(parts[0].header)
    for name in ("data", "settings"):
        head[name] = {k: v for part in parts for k, v in part.header[name].items()}
    return records.Evidence(pd.concat([part.series for part in parts]), head)
