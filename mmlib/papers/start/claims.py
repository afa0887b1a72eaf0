"""The claims of notebook 00: ours, chosen to show what can come out."""

from collections.abc import Sequence

import numpy as np

from mmlib.core.claims import Claim
from mmlib.core.effects import Effect, crossed, difference
from mmlib.core.evidence import Evidence
from mmlib.core.paths import table_beside
from mmlib.papers.start.batches import PLACES
from mmlib.papers.start.systems import CAPTIONS

Effects = dict[str, Effect] | str
SHORT, LONG = 8, 14  # words and marks: at most, at least


def hits(evidence: Evidence, seeds: Sequence[int], metric: str = "R@10") -> np.ndarray:
    """100 for each training and caption whose picture was among the first ten, else 0."""
    return evidence.values("world", "Search", metric, seeds)


def _trained(evidence: Evidence, seeds: Sequence[int]) -> Effects:
    before = evidence.values("world", "Untrained", "R@10", seeds)
    gained = hits(evidence, seeds) - before
    return {"trained − untrained": crossed(gained, evidence.clusters("world"))}


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


def _short(evidence: Evidence, seeds: Sequence[int]) -> Effects:
    gaps = short_and_long(evidence, seeds)
    return {"short − long": crossed(gaps, range(gaps.shape[1]))}


def setting_recall(setting: str, evidence: Evidence, seeds: Sequence[int]) -> Effect:
    """R@10 of the captions of a setting's pictures."""
    [fits] = evidence.values("world", CAPTIONS, setting, [0]) == 1
    return crossed(hits(evidence, seeds)[:, fits], evidence.clusters("world")[fits])


def _places(evidence: Evidence, seeds: Sequence[int]) -> Effects:
    beach, desert = (setting_recall(setting, evidence, seeds) for setting in PLACES)
    return {"beach − desert": difference(beach, desert)}


def _stop(evidence: Evidence, seeds: Sequence[int]) -> Effects:
    changed = hits(evidence, seeds, "R@10, full stop") - hits(evidence, seeds, "R@10, no full stop")
    return {"with − without": crossed(changed, evidence.clusters("world"))}


def _photographs(evidence: Evidence, seeds: Sequence[int]) -> Effects:
    return "this notebook has no photographs"


EFFECTS = {"S1": _trained, "S2": _short, "S3": _places, "S4": _stop, "S5": _photographs}
CLAIMS = tuple(
    Claim(id=name, effects=EFFECTS[name], **row) for name, row in table_beside(__file__).items()
)
