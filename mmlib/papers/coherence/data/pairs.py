"""A collection of pairs in its three splits, as people read them."""

from dataclasses import dataclass, replace

import numpy as np

from mmlib.core.related import RelatedPairs


@dataclass(frozen=True, eq=False)
class Pairs:
    """One collection in three splits. missing: what is said of images that could not be had."""

    train: RelatedPairs
    val: RelatedPairs
    test: RelatedPairs
    missing: str = ""

    @property
    def relations(self) -> tuple[str, ...]:
        """Names of the relations."""
        return self.train.relations

    def split(self, name: str) -> RelatedPairs:
        """A split by name."""
        return getattr(self, name)


def pooled(pairs: RelatedPairs) -> RelatedPairs:
    """Mean and maximum over a picture's regions as its one vector: small things fade in a mean."""
    assert pairs.features is not None
    regions = np.asarray(pairs.features, dtype=np.float32)
    vectors = np.concatenate([regions.mean(axis=1), regions.max(axis=1)], axis=1)
    return replace(pairs, features=vectors[:, None])
