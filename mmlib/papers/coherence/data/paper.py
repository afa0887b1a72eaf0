"""Clue, CITE and CITE++ with their images, as far as these could be had."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mmlib.core.errors import DataError
from mmlib.core.paths import data_dir
from mmlib.core.records import RelatedPairs, grouped_rows
from mmlib.data import cite, clue
from mmlib.data.pairs import image_names
from mmlib.papers.coherence.data.pairs import COLLECTIONS, Pairs


def recipes(pairs: RelatedPairs) -> np.ndarray:
    """The recipe of each pair, by its image's name; an image that names none is its own group."""
    return np.array([cite.recipe_of(name) or name for name in image_names(pairs)])


def load_collection(name: str, seed: int) -> Pairs:
    """A collection by name. Raises DataError where it is incomplete.

    "clue" and "cite++" as their authors split them, a tenth of the training images held out as dev;
    "clue clean" with people's captions and unseen pictures in test; "cite" split by recipe.
    """
    if name == "cite":
        pairs, missing = cite.load_with_images("all")
        rows, held = grouped_rows(recipes(pairs), 0.2, seed)
        train, test = pairs.take(rows), pairs.take(held, "test")
        groups = recipes(train)
    else:
        authors = cite if name == "cite++" else clue
        train, missing_train = authors.load_with_images("train")
        test, missing_test = authors.load_with_images("test")
        if name == "clue clean":
            assert isinstance(test, clue.CluePairs)
            test = test.take(clue.clean_rows(test, train)[0])
        groups, missing = train.image_of, f"train: {missing_train}; test: {missing_test}"
    rows, held = grouped_rows(groups, 0.1, seed)
    return Pairs(train.take(rows, "train"), train.take(held, "val"), test, missing)


def load(names: Sequence[str], seed: int) -> dict[str, Pairs]:
    """What is complete; `missing` says what is not, as a damaged file must not look absent.

    Raises DataError where a named collection, or every one, is incomplete.
    """
    collections, refused = dict[str, Pairs](), list[str]()
    for name in names or COLLECTIONS["paper"]:
        try:
            collections[name] = load_collection(name, seed)
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
