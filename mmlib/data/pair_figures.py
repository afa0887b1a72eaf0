"""What can be counted about image-text pairs with relations, without their images."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations
from math import ceil, comb, perm

import numpy as np
import pandas as pd

from mmlib.core.related import RelatedPairs


def positives(parts: Mapping[str, RelatedPairs]) -> pd.DataFrame:
    """How many pairs of each part (rows) have each relation (columns), and `pairs`."""
    frame = pd.DataFrame(
        {name: pairs.labels.sum(0) for name, pairs in parts.items()},
        index=next(iter(parts.values())).relations,
    ).T
    return frame.assign(pairs=[len(pairs) for pairs in parts.values()])


def rates(counts: pd.DataFrame) -> pd.DataFrame:
    """Share of positives of each relation, from the table of `positives`."""
    return counts.drop(columns="pairs").div(counts["pairs"], axis=0)


def correlations(pairs: RelatedPairs) -> pd.DataFrame:
    """Pearson correlation between the labels of every two relations."""
    return pd.DataFrame(pairs.labels.astype(float), columns=list(pairs.relations)).corr()


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
    }


def unknown_words(train: Sequence[str], test: Sequence[str]) -> dict[str, int]:
    """Test tokens that no training text has: how many, of how many, in how many texts."""
    from mmlib.features.text import spaced_tokens

    known = {token for text in train for token in spaced_tokens(text)}
    tokens = [spaced_tokens(text) for text in test]
    unknown = [sum(token not in known for token in text) for text in tokens]
    return {
        "test tokens": sum(map(len, tokens)),
        "unknown test tokens": sum(unknown),
        "test texts with unknown tokens": sum(count > 0 for count in unknown),
    }


def image_names(pairs: RelatedPairs) -> list[str]:
    """The name of each pair's image."""
    return [pairs.image_ids[row] for row in pairs.image_of]


def chance_of_repeat(keys: Sequence[Hashable], size: int) -> float:
    """Chance that `size` rows, drawn without replacement, hold some key twice. Exact.

    Here and below, all rows are meant where there are fewer than `size`.
    """
    counts = Counter(keys)
    size = min(size, len(keys))
    ways = [1] + [0] * size  # ways[k]: choices of k rows of different keys
    for count in counts.values():
        for k in range(size, 0, -1):
            ways[k] += ways[k - 1] * count
    return 1 - ways[size] / comb(counts.total(), size)


def chance_of_twin(keys: Sequence[Hashable], size: int) -> float:
    """Expected share of the rows in a random pool of `size` whose key another row there has."""
    size = min(size, len(keys))
    return float(np.mean([1 - _fellows(left, 0, len(keys), size) for left in _left(keys)]))


def best_recall(keys: Sequence[Hashable], size: int) -> float:
    """Largest R@1 in a random pool of `size` where rows of one key are told apart by chance."""
    size, total = min(size, len(keys)), 0.0
    for left in _left(keys):
        chances = [_fellows(left, k, len(keys), size) for k in range(min(left + 1, size))]
        total += sum(chance / (k + 1) for k, chance in enumerate(chances))
    return total / len(keys)


def drawn_with_replacement(rows: int, size: int) -> tuple[float, float]:
    """Expected distinct rows in a pool drawn with replacement, and share of draws with a twin.

    As in the authors' scripts behind Table 7 of paper 01.
    """
    return rows * (1 - (1 - 1 / rows) ** size), 1 - (1 - 1 / rows) ** (size - 1)


def _left(keys: Sequence[Hashable]) -> list[int]:
    """For each row, how many other rows have its key."""
    counts = Counter(keys)
    return [counts[key] - 1 for key in keys]


def _fellows(left: int, k: int, rows: int, size: int) -> float:
    """Chance that k of a pool row's `left` fellows are among its size - 1 neighbours."""
    return comb(left, k) * comb(rows - 1 - left, size - 1 - k) / comb(rows - 1, size - 1)


def row_split_leak(keys: Sequence[Hashable], share: float = 0.2) -> tuple[float, float]:
    """Expected shares of test rows with a twin in training, and within test, if rows are split.

    share: of the rows that are test rows, drawn at random. Exact expectations.
    """
    rows, held = len(keys), _held(keys, share)
    leaked = [1 - perm(held - 1, left) / perm(rows - 1, left) for left in _left(keys)]
    return float(np.mean(leaked)), chance_of_twin(keys, held)


def spread_of_leak(keys: Sequence[Hashable], share: float = 0.2, splits: int = 10_000) -> float:
    """Standard deviation over random splits of what `row_split_leak` expects; seeded."""
    rng = np.random.default_rng(0)
    key_of = pd.factorize(pd.Series(list(keys), dtype=object))[0]
    held = _held(keys, share)
    leaked = np.empty(splits)
    for i in range(splits):
        order = rng.permutation(key_of)
        seen = np.zeros(len(key_of), dtype=bool)
        seen[order[held:]] = True
        leaked[i] = seen[order[:held]].mean()
    return float(leaked.std())


def _held(keys: Sequence[Hashable], share: float) -> int:
    """Rows of the test part: at least the share."""
    return ceil(share * len(keys) - 1e-9)


def agreement(keys: Sequence[Hashable], pairs: RelatedPairs) -> pd.DataFrame:
    """How often two annotations of the same key agree: a row a relation.

    Columns: pairs of rows with equal keys, agreement (share with equal labels), kappa. The chance
    level of kappa takes one rate for both annotations, as their order means nothing (Scott 1955);
    kappa is not a number where all labels are equal.
    """
    rows_of: dict[Hashable, list[int]] = {}
    for row, key in enumerate(keys):
        rows_of.setdefault(key, []).append(row)
    found = [twin for rows in rows_of.values() for twin in combinations(rows, 2)]
    twins = np.array(found, dtype=np.int64).reshape(-1, 2)
    table = pd.DataFrame({"pairs": len(twins)}, index=list(pairs.relations))
    if not found:
        return table.assign(agreement=np.nan, kappa=np.nan)
    labels = pairs.labels[twins]  # (twins, 2, relations)
    equal, rate = (labels[:, 0] == labels[:, 1]).mean(0), labels.mean((0, 1))
    chance = rate**2 + (1 - rate) ** 2
    kappa = np.where(chance < 1, (equal - chance) / np.maximum(1 - chance, 1e-12), np.nan)
    return table.assign(agreement=equal, kappa=kappa)
