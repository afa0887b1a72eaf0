"""What the engine passes around: jobs, their answers, what they work on, and where they run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

EPOCHS = "epochs"  # the split of learning curves, whose items are epochs, counted from 1
NO_SEED = -1  # the seed of a system that has none, such as a closed form
JOB = "job"  # the split of what a job took
SERIES = ("dataset", "system", "seed", "split", "metric")  # what tells a series of values
History = list[dict[str, float]]
Precision = Literal["float32", "bf16"]


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
    history: one dict an epoch; seconds: of CPU; 0: the engine measures them.
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


def as_bytes(texts: Sequence[str]) -> bytes:
    """Texts for a hash: other texts, or the same divided otherwise, are other bytes.

    One a line; a line break or backslash within a text, which few have, is escaped.
    """
    lines = [text.replace("\\", "\\\\").replace("\n", "\\n") for text in texts]
    return (b"\\" if lines == [""] else b"") + "\n".join(lines).encode()


@dataclass(frozen=True)
class Run:
    """Where a job runs and what it may write: the last argument of every job's function.

    device: such as "cpu" or "cuda:1". checkpoint: the file that a training writes after every
    epoch, and reads at its start where it exists. folder: where jobs keep tensors for other jobs
    (`engine.handed_over`); the default folder of jobs where None. after_epoch: is shown the
    learning curve so far, to draw it, say. precision: "bf16" is mixed, by PyTorch's autocast. keep:
    is shown a trained model, its learning curve, and whether it is that of its best epoch.
    """

    device: str = "cpu"
    checkpoint: Path | None = None
    folder: Path | None = None
    after_epoch: Callable[[History], object] = lambda history: None
    precision: Precision = "float32"
    keep: Callable[[Any, History, bool], object] = lambda model, history, best: None


JobFunction = Callable[[Job, Any, Run], Answer]


@dataclass(frozen=True)
class Stage:
    """Jobs of one function, `function(job, data of its data set, run)`, importable by name.

    parallel: whether they may run side by side; jobs that measure time may not.
    """

    function: JobFunction
    jobs: Sequence[Job]
    parallel: bool = True
