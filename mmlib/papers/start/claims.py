"""The claims of notebook 00: `claims.yaml`, and the effects that no weighted sum gives."""

from collections.abc import Sequence

import numpy as np

from mmlib.core.contrast import Effects, Vocabulary, claims_of
from mmlib.core.effects import Effect, crossed, difference
from mmlib.core.evidence import Evidence
from mmlib.papers.start.data import PLACES
from mmlib.papers.start.run import CAPTIONS

SHORT, LONG = 8, 14  # words and marks: at most, at least


def hits(evidence: Evidence, seeds: Sequence[int], metric: str = "R@10") -> np.ndarray:
    """100 for each training and caption whose picture was among the first ten, else 0."""
    return evidence.values("world", "Search", metric, seeds)


def short_and_long(evidence: Evidence, seeds: Sequence[int]) -> np.ndarray:
    """R@10 of a picture's short captions less that of its long ones, (seeds, pictures)."""
    values, image_of = hits(evidence, seeds), evidence.clusters("world")
    [words] = evidence.values("world", CAPTIONS, "words", [0])
    gaps = []
    for picture in np.unique(image_of):
        short, long = ((image_of == picture) & fits for fits in (words <= SHORT, words >= LONG))
        if short.any() and long.any():
            gaps.append(values[:, short].mean(axis=1) - values[:, long].mean(axis=1))
    return np.array(gaps).T


def short(evidence: Evidence, seeds: Sequence[int]) -> Effects:
    """R@10 of short captions less that of long ones, by picture."""
    gaps = short_and_long(evidence, seeds)
    return {"short − long": crossed(gaps, range(gaps.shape[1]))}


def setting_recall(setting: str, evidence: Evidence, seeds: Sequence[int]) -> Effect:
    """R@10 of the captions of a setting's pictures."""
    [fits] = evidence.values("world", CAPTIONS, setting, [0]) == 1
    return crossed(hits(evidence, seeds)[:, fits], evidence.clusters("world")[fits])


def places(evidence: Evidence, seeds: Sequence[int]) -> Effects:
    """R@10 of the captions of beaches less that of deserts', which are other pictures."""
    beach, desert = (setting_recall(setting, evidence, seeds) for setting in PLACES)
    return {"beach − desert": difference(beach, desert)}


CLAIMS = claims_of(__file__, Vocabulary(), {"S2": short, "S3": places})
