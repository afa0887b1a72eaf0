"""The experiment of notebook 00: one model, trained and not, from many seeds."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from mmlib.core.evidence import NO_SEED
from mmlib.core.jobs import Answer, Job
from mmlib.papers.start.model import Arrays, Settings, train_and_score

PAPER = "start"
# What makes the evidence: a change to this module, or to what it imports, makes it stale.
MODULES = ("mmlib.papers.start.model",)
CAPTIONS = "Captions"  # not a system: what is known of the test captions
PLACES = ("beach", "desert")


def budget(tier: str, dataset: str) -> Settings:
    """The settings of all systems."""
    return Settings()


def systems(tier: str, dataset: str) -> dict[str, Mapping[str, Any]]:
    """The columns of each system."""
    return {
        "Search": {"system": "Search", "trained": True},
        "Untrained": {"system": "Untrained", "trained": False},
        CAPTIONS: {"system": CAPTIONS},
    }


def stages(
    tier: str, data: Mapping[str, Arrays], seeds: Sequence[int]
) -> list[tuple[Callable[..., Answer], list[Job], bool]]:
    """All that evidence needs: functions and their jobs, and that they may run side by side."""
    known = systems(tier, "world")
    told = known.pop(CAPTIONS)
    settings = asdict(budget(tier, "world"))
    jobs = [Job(PAPER, tier, "world", own, s, settings) for s in seeds for own in known.values()]
    return [
        (describe, [Job(PAPER, tier, "world", told, NO_SEED)], True),
        (train_and_score, jobs, True),
    ]


def describe(job: Job, arrays: Arrays, device: str = "cpu", checkpoint: object = None) -> Answer:
    """Of each test caption: how many words and marks it has, and whether it is of a place."""
    started = time.process_time()
    test = arrays.splits["test"]
    own = np.array(arrays.places)[test.image_of]
    found = {"words": test.lengths, **{place: own == place for place in PLACES}}
    return Answer({"test": found}, (), time.process_time() - started)
