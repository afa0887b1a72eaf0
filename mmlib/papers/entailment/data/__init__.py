"""Images, captions and labelled pairs of each tier, to look at and as arrays to train on."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from mmlib.core.paths import table_beside
from mmlib.papers.entailment.batches import Arrays
from mmlib.papers.entailment.data import flickr8k, paper, world
from mmlib.papers.entailment.data.study import Study
from mmlib.papers.entailment.systems import DATASETS, budget

TIERS = {"world": world, "flickr8k": flickr8k, "paper": paper}
NOTES = table_beside(str(Path(__file__).with_name("notes")))


def load_study(tier: str, datasets: Sequence[str] = (), seed: int = 0) -> dict[str, Study]:
    """A tier's data. Raises ValueError for an unknown tier or data set, DataError for its files."""
    if tier not in DATASETS:
        raise ValueError(f"no tier {tier!r}: use {', '.join(DATASETS)}")
    name = DATASETS[tier]
    if unknown := [other for other in datasets if other != name]:
        raise ValueError(f"no data {unknown[0]!r} here; there is {name}")
    return {name: TIERS[tier].load(budget(tier, name), seed)}


def load_arrays(study: Mapping[str, Study], tier: str) -> dict[str, Arrays]:
    """The same as arrays."""
    return {name: data.arrays for name, data in study.items()}
