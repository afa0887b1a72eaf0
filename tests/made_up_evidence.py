"""Evidence with made-up figures, for what reads evidence; `make` and `write`: of paper 04."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mmlib.core import evidence, recordings
from mmlib.core.claims import Claim
from mmlib.core.contrast import Effects
from mmlib.core.engine import SECONDS
from mmlib.core.evidence import EPOCHS, NO_SEED, Evidence, in_order
from mmlib.core.jobs import SERIES
from mmlib.papers.links import run
from mmlib.papers.links.run import DOCUMENTS, PAPER, STEP_TIME, VARIANTS
from mmlib.suite import record

LEVELS = {
    "NoStruct": 60, "DC": 75, "TK": 75, "TK+½k": 74, "AP": 76, "AP+½k": 75, "Obj Detect": 55,
    "Co-occurrence": 58, "Random": 50, "Recogniser": 95,
}  # fmt: skip


def evidence_of(rows: Iterable[tuple], header: Mapping[str, Any]) -> Evidence:
    """From rows (data set, system, seed, split, metric, values, clusters)."""
    columns = [
        (*key, np.asarray(values, np.float32), np.asarray(clusters, np.int32))
        for *key, values, clusters in rows
    ]
    return Evidence(in_order(pd.DataFrame(columns, columns=[*SERIES, "value", "cluster"])), header)


def cut(number: str, tier: str = "world", datasets=(), seeds=4, clusters=60) -> Evidence:
    """Of what is recorded some data sets, the first seeds and the first clusters of test items."""
    whole = record.read(number, tier)
    some = whole.series["dataset"].isin(datasets or whole.datasets)
    series = whole.series[some & (whole.series["seed"] < seeds)].reset_index(drop=True)
    within = [items < (clusters if split == "test" else np.inf)
              for items, split in zip(series["cluster"], series["split"], strict=True)]  # fmt: skip
    few = {name: [items[own] for items, own in zip(series[name], within, strict=True)]
           for name in ("value", "cluster")}  # fmt: skip
    return Evidence(series.assign(**few), whole.header)


def without(made: Evidence, *systems: str) -> Evidence:
    """The same evidence where some systems were not run."""
    return Evidence(made.series[~made.series["system"].isin(systems)], made.header)


def effects_of(claims: Iterable[Claim], made: Evidence, name: str) -> Effects:
    """The effects of the claim of a name."""
    [claim] = [claim for claim in claims if claim.id == name]
    return claim.effects(made)


def make(
    tier="world", datasets=("coco", "story"), seeds=4, items=12, variants=False, noise=1.0
) -> Evidence:
    """Evidence with every column, in which AP and DC find links and NoStruct some."""
    rng, rows = np.random.default_rng(0), []

    def add(dataset, system, seed, split, metric, values):
        clusters = np.arange(len(values)) * (split != EPOCHS)
        rows.append((dataset, system, seed, split, metric, values, clusters))

    for dataset in datasets:
        hard = rng.normal(size=items)
        named = [*LEVELS, *(VARIANTS if variants else ())]
        for system, seed in ((s, n) for s in named for n in range(seeds)):
            values = LEVELS.get(system, 76) + 5 * hard + noise * rng.normal(size=items)
            for metric, share in (("AUC", 1), ("p@1", 1 / 2), ("p@5", 1 / 4)):
                add(dataset, system, seed, "test", metric, share * np.clip(values, 0, 100))
            add(dataset, system, seed, EPOCHS, "dev_loss", 1 / np.arange(1, 7))
            add(dataset, system, seed, EPOCHS, "dev_AUC", 50 + np.arange(6) + rng.normal(size=6))
        for seed in range(seeds):
            add(dataset, "AP", seed, "job", SECONDS, [5400 / len(datasets) / seeds])
        for side in ("image", "text"):
            add(dataset, DOCUMENTS, NO_SEED, "test", f"{side} spread", rng.normal(size=items))
        for system, ms in (("DC", 10), ("AP", 12)):
            add(dataset, STEP_TIME, NO_SEED, EPOCHS, f"ms of {system}", ms + rng.random(8))
    head = evidence.header(
        paper=PAPER, tier=tier, method_version=1, device="cpu", inputs={}, inapplicable={},
        settings={name: asdict(run.budget(tier, name)) for name in datasets},
        data={name: "made up" for name in datasets}, cpu_seconds=5400,
    )  # fmt: skip
    return evidence_of(rows, head)


def write(folder: Path, tier="world", method_version=1, **how) -> Evidence:
    """Write it, alone, where `mmlib judge --evidence FOLDER` looks."""
    found = make(tier, **how)
    place = folder / tier / PAPER
    for path in recordings.paths_of(place):
        path.unlink()
    recordings.write(place, found.series, {**found.header, "method_version": method_version})
    return found
