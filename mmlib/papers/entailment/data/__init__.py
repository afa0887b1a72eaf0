"""Images, captions and labelled pairs of each tier, to look at and as arrays to train on."""

from collections.abc import Mapping, Sequence

from mmlib.papers.entailment.data import world
from mmlib.papers.entailment.data.arrays import Arrays, Study
from mmlib.papers.entailment.data.photographs import load_flickr8k, load_paper
from mmlib.papers.entailment.run.systems import BUDGETS, DATASETS

LOADERS = dict(zip(DATASETS, (world.load, load_flickr8k, load_paper), strict=True))


def load_study(tier: str, datasets: Sequence[str] = (), seed: int = 0) -> dict[str, Study]:
    """A tier's data. Raises ValueError for an unknown tier or data set, DataError for its files."""
    if tier not in DATASETS:
        raise ValueError(f"no tier {tier!r}: use {', '.join(DATASETS)}")
    name = DATASETS[tier]
    if unknown := set(datasets) - {name}:
        raise ValueError(f"no data {min(unknown)!r} here; there is {name}")
    return {name: LOADERS[tier](BUDGETS[name], seed)}


def load_arrays(study: Mapping[str, Study], tier: str) -> dict[str, Arrays]:
    """The same as arrays."""
    return {name: data.arrays for name, data in study.items()}
