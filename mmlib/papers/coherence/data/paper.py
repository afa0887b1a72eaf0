"""Clue, CITE and CITE++ with their images, as far as these could be had."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import ModuleType

import numpy as np

from mmlib.core.errors import DataError
from mmlib.core.paths import data_dir
from mmlib.core.related import RelatedPairs, grouped_rows, hold_out
from mmlib.data import cite, clue
from mmlib.data.pairs import image_names
from mmlib.papers.coherence.data.pairs import Pairs


def _authors(module: ModuleType) -> Callable[[int], Pairs]:
    """Clue or CITE++ as its authors split it, a tenth of the training images held out as dev."""

    def load_split(seed: int) -> Pairs:
        train, missing_train = module.load_with_images("train")
        test, missing_test = module.load_with_images("test")
        train, val = hold_out(train, 0.1, seed)
        return Pairs(train, val, test, f"train: {missing_train}; test: {missing_test}")

    return load_split


def _clue_clean(seed: int) -> Pairs:
    pairs = _authors(clue)(seed)
    assert isinstance(pairs.test, clue.CluePairs)
    train, _ = clue.load_with_images("train")
    return replace(pairs, test=pairs.test.take(clue.clean_rows(pairs.test, train)[0]))


def _cite(seed: int) -> Pairs:
    pairs, missing = cite.load_with_images("all")
    rows, held = grouped_rows(recipes(pairs), 0.2, seed)
    train_and_val, test = pairs.take(rows), pairs.take(held, "test")
    rows, held = grouped_rows(recipes(train_and_val), 0.1, seed)
    train, val = train_and_val.take(rows, "train"), train_and_val.take(held, "val")
    return Pairs(train, val, test, str(missing))


def recipes(pairs: RelatedPairs) -> np.ndarray:
    """The recipe of each pair, by its image's name; an image that names none is its own group."""
    return np.array([cite.recipe_of(name) or name for name in image_names(pairs)])


LOADERS: dict[str, Callable[[int], Pairs]] = {
    "clue": _authors(clue), "clue clean": _clue_clean, "cite": _cite, "cite++": _authors(cite)
}  # fmt: skip


def load(names: Sequence[str], seed: int) -> dict[str, Pairs]:
    """What is complete; `missing` says what is not, as a damaged file must not look absent.

    Raises DataError where a named collection, or every one, is incomplete.
    """
    collections: dict[str, Pairs] = {}
    refused = []
    for name in names or LOADERS:
        try:
            collections[name] = LOADERS[name](seed)
        except DataError as error:
            if names:
                raise
            refused.append(f"{name}: {error}")
    if not collections:
        raise DataError(f"{data_dir()} has no complete collection: {'; '.join(refused)}")
    return {
        name: replace(pairs, missing="; left out: ".join([pairs.missing, *refused]))
        for name, pairs in collections.items()
    }
