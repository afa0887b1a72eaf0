"""Image-text pairs with relations as a record, and what can be counted without their images."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pandas as pd

from mmlib.core.records import RelatedPairs


def pairs_of(
    name: str,
    split: str,
    texts: Sequence[str] | pd.Series,
    images: pd.Series,
    labels: np.ndarray,
    relations: tuple[str, ...],
) -> RelatedPairs:
    """The record of pairs in file order; images (pairs,) names, numbered as they first come.

    labels: (pairs, relations) bool, columns named by `relations`.
    """
    image_of, names = pd.factorize(images)
    return RelatedPairs(
        name, split, tuple(texts), labels, relations, image_of.astype(np.int64), tuple(names)
    )


def image_names(pairs: RelatedPairs) -> list[str]:
    """The name of each pair's image."""
    return [pairs.image_ids[row] for row in pairs.image_of]


def word_figures(texts: Sequence[str]) -> dict[str, float]:
    """Vocabulary and lengths of texts in the authors' tokenisation (`features.text.spaced_tokens`).

    types counts the empty token; vocabulary adds the entry for unknown words.
    """
    from mmlib.features.text import spaced_tokens  # imported late: it needs torch

    tokens = [spaced_tokens(text) for text in texts]
    counts = Counter(token for text in tokens for token in text)
    lengths = np.array([len(text) for text in tokens])
    return {
        "types": len(counts),
        "types without the empty token": len(counts) - ("" in counts),
        "types lower-cased": len({word.lower() for word in counts}),
        "vocabulary": len(counts) + 1,
        "tokens": int(lengths.sum()),
        "empty tokens": counts[""],
        "types that occur once": sum(count == 1 for count in counts.values()),
        "mean length": float(lengths.mean()),
        "deviation of lengths": float(lengths.std()),
        "longest": int(lengths.max()),
        "texts over 20 tokens": int((lengths > 20).sum()),
        "texts over 40 tokens": int((lengths > 40).sum()),
    }


def unknown_words(train: Sequence[str], test: Sequence[str]) -> dict[str, int]:
    """Test tokens that no training text has: how many, of how many, in how many texts."""
    from mmlib.features.text import spaced_tokens

    vocabulary = {token for text in train for token in spaced_tokens(text)}
    known = [[token in vocabulary for token in spaced_tokens(text)] for text in test]
    return {
        "test tokens": sum(map(len, known)),
        "unknown test tokens": sum(text.count(False) for text in known),
        "test texts with unknown tokens": sum(not all(text) for text in known),
    }
