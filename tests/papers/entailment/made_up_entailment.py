"""Evidence of paper 02 with made-up figures, for what reads evidence."""

from dataclasses import asdict

import numpy as np

from mmlib.core import evidence as records
from mmlib.core.engine import tidy
from mmlib.core.jobs import NO_SEED, Answer
from mmlib.papers.entailment.run.jobs import job
from mmlib.papers.entailment.run.systems import (
    BASELINES,
    BUDGETS,
    MINING,
    ORIGINS,
    PAIRS,
    PAPER,
    RANKINGS,
    judges,
    variants,
)

PAIRS_OF, IMAGES = 600, 60
# How far a judge's margins tell labels apart, and what a variant adds; of others 1, 0.
TELLS = {"Full": 2.0, "Word overlap": 0.5, "Random pairs": 0.0}
ADDS = {"both (all)": 6.0, "weak (all)": 5.0, "exclusion (all)": 2.0, "both (miner)": 1.5}


def make(tier="world", seeds=4):
    """Evidence with every system of a tier and every metric."""
    dataset = "world" if tier == "world" else "flickr8k"
    known = {"candidates": 0.2, "edits": 0.5} if tier == "world" else {"crowd": 0.2}
    truth = np.random.default_rng(0)
    labels = {name: (truth.random(PAIRS_OF) < share).astype(float) for name, share in known.items()}

    class Data:
        fingerprint = "made up"

        def clusters(self, split):
            return np.arange(PAIRS_OF) // 4 if split in known else np.arange(IMAGES)

    def judged(name, rng, network):
        tells, values = TELLS.get(name, 1.0), {}
        for test, label in labels.items():
            margin = 2 * tells * label - 1 + rng.normal(size=PAIRS_OF)
            own = {"margin": margin}
            if network:
                own |= {"alone": margin + rng.normal(size=PAIRS_OF)}
            values[test] = {k: np.floor(100 * v) / 100 for k, v in own.items()}
        history = [{"train_loss": 1 / e, "dev_loss": 1 / e} for e in range(1, 7)] if network else ()
        return Answer(values, history, 10.0)

    def ranked(name, rng, trained, asked):
        added = next((v for k, v in ADDS.items() if name.endswith(k)), 0.0)
        noise = rng.normal(size=IMAGES)
        level = 300 - 50 * name.startswith("CLIP")  # clearly the weakest
        values = {"RSUM": level - added + 10 * noise, "hits": 1.0 + 10 * 2 + 1e3 * 3 + 1e5 * 5}
        values["hits"] = np.full(IMAGES, values["hits"])
        true = ("mAP", "E@10", "E@30", "E@10, rarity")
        people = ("mAP, people", "P@1, people")
        for metric in true if tier == "world" else people:
            values[metric] = 20 + added + noise + rng.normal(size=IMAGES)
        for metric in people if tier != "world" else ():
            values[metric][::3] = np.nan
        if asked:
            for metric in ("E@10, judge", "E@30, judge"):
                values[metric] = np.where(np.arange(IMAGES) < 30, 30 + 2 * added + noise, np.nan)
        history = [{"train_loss": 1 / e, "dev_loss": 600 - 90 * e, "dev_RSUM": 90.0 * e}
                   for e in range(1, 5)]  # fmt: skip
        return Answer({"test": values}, history if trained else (), 10.0)

    def described():
        kinds = np.arange(PAIRS_OF) % len(ORIGINS)
        rest = {"weight": np.ones(PAIRS_OF), "kind": kinds}
        own = {name: {"label": label, **rest} for name, label in labels.items()}
        own["test"] = {"foreign true": 40.0 + np.arange(IMAGES) % 7}
        if tier != "world":
            own["test"]["own rejected"] = np.where(np.arange(IMAGES) % 20, 0.0, 100.0)
        return Answer(own)

    counts = {"candidates": 30, "mined": 4, "mined, true": 2, "candidates, true": 3, "true": 80,
              "overlap, true": 1, "cosine, true": 1, "inputs, true": 1}  # fmt: skip
    mined = Answer({"mined": {k: np.full(IMAGES, float(v)) for k, v in counts.items()}})
    rows = [(job(tier, dataset, {"system": PAIRS}, NO_SEED), described())]
    for seed in range(seeds):
        rows.append((job(tier, dataset, {"system": MINING}, seed), mined))
        for one in judges(tier):
            rng = np.random.default_rng([seed, len(one.system)])
            rows.append((job(tier, dataset, one, seed), judged(one.system, rng, True)))
        for one in variants(tier):
            rng = np.random.default_rng([seed, 9])
            answer = ranked(one.system, rng, True, one.scored_by_judge)
            rows.append((job(tier, dataset, one, seed), answer))
    for row in BASELINES:
        rng = np.random.default_rng(len(row["system"]))
        own = [NO_SEED] if row["baseline"] != "random" else range(seeds)
        rows += [(job(tier, dataset, row, s), judged(row["system"], rng, False)) for s in own]
    for row in RANKINGS:
        if tier == "world" or row["baseline"] != "truth":
            own = [NO_SEED] if row["baseline"] != "random" else range(seeds)
            rng = np.random.default_rng(7)
            rows += [(job(tier, dataset, row, s), ranked("", rng, False, False)) for s in own]
    jobs, answers = zip(*rows, strict=True)
    head = records.header(
        paper=PAPER, tier=tier, source="made up", seeds=list(range(seeds)),
        settings={dataset: asdict(BUDGETS[dataset])}, data={dataset: "made up"},
    )  # fmt: skip
    return records.Evidence(tidy(jobs, answers, {dataset: Data()}), head)


def without(evidence, *systems):
    """The same evidence where some systems were not run."""
    series = evidence.series[~evidence.series.system.isin(systems)]
    return records.Evidence(series, evidence.header)
