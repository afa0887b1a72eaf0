"""How much of a sentence its premises say already: a baseline that learns nothing.

Every classifier of entailment must beat it, since two captions that share their words often agree.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import fsum

import numpy as np

from mmlib.core.records import normalised

STOP_WORDS = frozenset(
    "a an the and of in on at to with by for from as while is are his her its their that "
    "there".split()
)
ENDING = re.compile(r"(?<=...)(ing|ed|es|s)$")


@lru_cache(maxsize=200_000)
def stems(text: str) -> frozenset[str]:
    """Content words of a text, lower-case, cut of -ing, -ed, -es or -s where three letters stay."""
    return frozenset(ENDING.sub("", w) for w in normalised(text).split() if w not in STOP_WORDS)


class Weights(dict[str, float]):
    """Weight of each stem, log((n + 1) / (d + 1)) + 1 for d of n documents; d = 0 if unknown."""

    def __init__(self, documents: Iterable[Sequence[str]]):
        """documents: groups of texts, such as the captions of each training image."""
        stem_sets = [set().union(*map(stems, texts)) for texts in documents]
        number, counts = len(stem_sets), Counter(itertools.chain(*stem_sets))
        self.unknown = float(np.log(number + 1) + 1)
        super().__init__((s, float(np.log((number + 1) / (d + 1)) + 1)) for s, d in counts.items())

    def __missing__(self, stem: str) -> float:
        return self.unknown


def overlap_parts(
    premise: Sequence[str], hypothesis: str, weights: Mapping[str, float]
) -> tuple[float, float]:
    """Share of the hypothesis said by all premises together, and the best one's Jaccard, 0 to 1.

    Both count stems, each by its weight (`Weights` of the training captions). A hypothesis without
    content words has 0 of both. Source: our own baseline, no figure of the paper.
    """

    def weight(some: frozenset[str]) -> float:
        return fsum(map(weights.__getitem__, some))  # the same in whatever order a set comes

    claimed, premises = stems(hypothesis), [stems(text) for text in premise]
    if not claimed or not premises:
        return 0.0, 0.0
    share = weight(claimed & frozenset().union(*premises)) / weight(claimed)
    return share, max(weight(claimed & words) / weight(claimed | words) for words in premises)
