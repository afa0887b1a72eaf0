"""What the suite knows of a paper: one typed `Experiment`, one instance a paper."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import pandas as pd
from matplotlib.figure import Figure

from mmlib.core.claims import Claim
from mmlib.core.evidence import Evidence
from mmlib.core.jobs import Data, Stage

Study = TypeVar("Study")
Arrays = TypeVar("Arrays", bound=Data)


@dataclass(frozen=True)
class Experiment(Generic[Study, Arrays]):
    """A paper's experiment, from data to verdicts.

    number: of its notebook, such as "04". paper: its folder below `mmlib/papers`.
    version: of its method: an integer, raised whenever its figures change; a record of another
    version is stale. datasets: tier -> the data sets of a complete record.
    load_study: (tier, names or nothing for all that are there) -> the data as people read them.
    load_arrays: (study, tier) -> one object a data set, ready for training.
    budget: (tier, data set) -> the settings of a training, a dataclass.
    systems: (tier, data set) -> the columns of every system that may be in its record, by name.
    stages: (tier, arrays, seeds) -> all jobs of a record, in the order in which they must run.
    claims: the paper's claims, with what tests them. tables, figures: evidence -> makers by name.
    inputs: tier -> patterns of the files below the data folder that its data are made of.
    bounds, may_skip: the range of its metrics, and which leave items out; see `recordings.check`.
    """

    number: str
    paper: str
    version: int
    datasets: Callable[[str], Sequence[str]]
    load_study: Callable[[str, Sequence[str]], Study]
    load_arrays: Callable[[Study, str], Mapping[str, Arrays]]
    budget: Callable[[str, str], Any]
    systems: Callable[[str, str], Mapping[str, Mapping[str, Any]]]
    stages: Callable[[str, Mapping[str, Arrays], Sequence[int]], Sequence[Stage]]
    claims: Sequence[Claim]
    tables: Callable[[Evidence], Mapping[str, Callable[[], pd.DataFrame]]]
    figures: Callable[[Evidence], Mapping[str, Callable[[], Figure]]]
    inputs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    bounds: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    may_skip: str = ""

    def claims_of(self, tier: str) -> list[Claim]:
        """The claims that are about a tier's data."""
        return [claim for claim in self.claims if tier in claim.tiers]
