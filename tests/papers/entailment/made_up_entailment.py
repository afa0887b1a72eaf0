"""Evidence of paper 02 with made-up figures, for what reads evidence."""

from dataclasses import asdict

import made_up_evidence
import numpy as np

from mmlib.core import evidence as records
from mmlib.core.evidence import EPOCHS, NO_SEED
from mmlib.papers.entailment.run import systems
from mmlib.papers.entailment.run.systems import ORIGINS

PAIRS_OF, IMAGES = 600, 60
# How far a judge's margins tell labels apart, and what a variant adds; of others 1, 0.
TELLS = {"Full": 2.0, "Word overlap": 0.5, "Random pairs": 0.0}
ADDS = {"both (all)": 6.0, "weak (all)": 5.0, "exclusion (all)": 2.0, "both (miner)": 1.5}
MINED = {"candidates": 30, "mined": 4, "mined, true": 2, "candidates, true": 3, "true": 80,
         "overlap, true": 1, "cosine, true": 1, "inputs, true": 1}  # fmt: skip


def make(tier="world", seeds=4):
    """Evidence with every system of a tier and every metric."""
    dataset, rows, truth = systems.DATASETS[tier], [], np.random.default_rng(0)
    shares = {"candidates": 0.2, "edits": 0.5} if tier == "world" else {"crowd": 0.2}
    labels = {
        name: (truth.random(PAIRS_OF) < share).astype(float) for name, share in shares.items()
    }

    def add(system, seed, split, values):
        for metric, column in values.items():
            items = np.arange(len(column))
            clusters = items // 4 if split in labels else items
            rows.append((dataset, system, seed, split, metric, column, clusters))

    def judged(name, seed, rng, network):
        for test, label in labels.items():
            margin = 2 * TELLS.get(name, 1.0) * label - 1 + rng.normal(size=PAIRS_OF)
            own = {"margin": margin}
            if network:
                own["alone"] = margin + rng.normal(size=PAIRS_OF)
            add(name, seed, test, {k: np.floor(100 * v) / 100 for k, v in own.items()})

    def ranked(name, seed, rng, asked):
        added = next((v for k, v in ADDS.items() if name.endswith(k)), 0.0)
        noise = rng.normal(size=IMAGES)
        level = 300 - 50 * name.startswith("CLIP")  # clearly the weakest
        values = {"RSUM": level - added + 10 * noise}
        values["hits"] = np.full(IMAGES, 1.0 + 10 * 2 + 1e3 * 3 + 1e5 * 5)
        true, people = ("mAP", "E@10", "E@30", "E@10, rarity"), ("mAP, people", "P@1, people")
        for metric in true if tier == "world" else people:
            values[metric] = 20 + added + noise + rng.normal(size=IMAGES)
            if metric in people:
                values[metric][::3] = np.nan
        for metric in ("E@10, judge", "E@30, judge") if asked else ():
            values[metric] = np.where(np.arange(IMAGES) < 30, 30 + 2 * added + noise, np.nan)
        add(name, seed, "test", values)

    for test, label in labels.items():
        kinds = np.arange(PAIRS_OF) % len(ORIGINS)
        columns = {"label": label, "weight": np.ones(PAIRS_OF), "kind": kinds}
        add(systems.PAIRS, NO_SEED, test, columns)
    foreign = {"foreign true": 40.0 + np.arange(IMAGES) % 7}
    if tier != "world":
        foreign["own rejected"] = np.where(np.arange(IMAGES) % 20, 0.0, 100.0)
    add(systems.PAIRS, NO_SEED, "test", foreign)
    for seed in range(seeds):
        add(systems.MINING, seed, "mined", {k: np.full(IMAGES, float(v)) for k, v in MINED.items()})
        for row in systems.judges(tier):
            judged(row.system, seed, np.random.default_rng([seed, len(row.system)]), True)
            add(row.system, seed, EPOCHS, {"dev_loss": 1 / np.arange(1, 7)})
        for row in systems.variants(tier):
            ranked(row.system, seed, np.random.default_rng([seed, 9]), row.scored_by_judge)
            epochs = np.arange(1, 5)
            curves = {"dev_loss": 600.0 - 90 * epochs, "dev_RSUM": 90.0 * epochs}
            add(row.system, seed, EPOCHS, curves)
    for row in (*systems.BASELINES, *systems.RANKINGS):
        name, baseline = row.values()
        for seed in range(seeds) if baseline == "random" else [NO_SEED]:
            if row in systems.BASELINES:
                judged(name, seed, np.random.default_rng(len(name)), False)
            elif tier == "world" or baseline != "truth":
                ranked(name, seed, np.random.default_rng(7), False)
    head = records.header(
        paper=systems.PAPER, tier=tier, source="made up", seeds=list(range(seeds)),
        settings={dataset: asdict(systems.BUDGETS[dataset])}, data={dataset: "made up"},
    )  # fmt: skip
    return made_up_evidence.evidence_of(rows, head)
