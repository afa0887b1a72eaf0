"""What the experiment engine passes around: jobs, their answers, and what they work on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np


@dataclass(frozen=True)
class Job:
    """One training or scoring.

    system: a row of columns, among them "system", its name in tables; dataset: what it is trained
    and tested on; settings: how it is trained. All values are plain data.
    """

    paper: str
    tier: str
    dataset: str
    system: Mapping[str, Any]
    seed: int
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """What came of a job.

    values: split -> metric -> one number an item, NaN for an item that has to be skipped;
    history: one dict an epoch; seconds: of CPU.
    """

    values: Mapping[str, Mapping[str, np.ndarray]]
    history: Sequence[Mapping[str, float]] = ()
    seconds: float = 0.0


class Data(Protocol):
    """What jobs work on: anything with a fingerprint and, for each split, its items' clusters."""

    @property
    def fingerprint(self) -> str:
        """A hash of all that training and evaluation read."""

    def clusters(self, split: str) -> np.ndarray:
        """The cluster of each item, (items,) int: items of one cluster are not independent."""
