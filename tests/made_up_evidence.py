"""Small evidence for what reads evidence: with made-up figures, or some of what is recorded."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mmlib.core import recordings
from mmlib.core.claims import Claim
from mmlib.core.contrast import Effects
from mmlib.core.evidence import Evidence, in_order
from mmlib.core.jobs import SERIES
from mmlib.suite import record

OF_LINKS = ("coco", "story")


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


def write(folder: Path, **more: Any) -> Evidence:
    """Write some of paper 04, alone, where `mmlib judge --evidence FOLDER` looks.

    more: what the header says otherwise. Returns it.
    """
    found, heads = cut("04", datasets=OF_LINKS, clusters=12), record.read("04", "world").recordings
    own = {name: {k: v for one in heads for k, v in one[name].items()}
           for name in recordings.BY_DATASET}  # fmt: skip
    place = folder / "world" / "links"
    for path in recordings.paths_of(place):
        path.unlink()
    recordings.write(place, found.series, {**heads[0], **own, **more})
    return found
