"""What can be counted about image-text pairs with relations, without their images."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from mmlib.core.related import RelatedPairs


def positives(splits: Mapping[str, RelatedPairs]) -> pd.DataFrame:
    """How many pairs of each split (rows) have each relation (columns), and `pairs`."""
    rows = [
        dict(zip(pairs.relations, pairs.labels.sum(0), strict=True)) | {"pairs": len(pairs)}
        for pairs in splits.values()
    ]
    return pd.DataFrame(rows, index=list(splits))


def rates(counts: pd.DataFrame) -> pd.DataFrame:
    """Share of positives of each relation, from the table of `positives`."""
    return counts.drop(columns="pairs").div(counts["pairs"], axis=0)


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
    tokens = [spaced_tokens(text) for text in test]
    unknown = [sum(token not in vocabulary for token in text) for text in tokens]
    return {
        "test tokens": sum(map(len, tokens)),
        "unknown test tokens": sum(unknown),
        "test texts with unknown tokens": sum(count > 0 for count in unknown),
    }


def image_names(pairs: RelatedPairs) -> list[str]:
    """The name of each pair's image."""
    return [pairs.image_ids[row] for row in pairs.image_of]
