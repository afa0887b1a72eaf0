"""A feature set's principal components, in the place of its full width."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from mmlib.core.errors import DataError, Problem
from mmlib.core.paths import write_atomic
from mmlib.features.store import FeatureStore, open_features, write_notes

BLOCK = 256  # images at a time


def reduce_features(
    store: FeatureStore, train: Sequence[str], count: int, out: Path
) -> FeatureStore:
    """Write the first `count` principal components of a feature set as the set `out`.

    train: ids of the images that they are fitted on, with all their regions. There, each component
    has the mean 0, and all values together the standard deviation 1: one scale for all, so that
    their proportions stay. The largest weight of a component is positive. `out` has the type of the
    set; its notes are the set's, and which part of the variance is kept.

    Raises DataError: `out` is there already, an image of `train` has no features or some that are
    not finite, more components than values or training regions.
    """
    refuse_existing(out)
    total, products, regions = np.zeros(store.width), np.zeros((store.width, store.width)), 0
    for start in range(0, len(train), BLOCK):
        rows = store.rows(train[start : start + BLOCK]).reshape(-1, store.width).astype(np.float64)
        regions += len(rows)
        total += rows.sum(0)
        products += rows.T @ rows
    if count > min(store.width, regions - 1):
        problem = f"has no {count} components: {regions} training regions of width {store.width}"
        raise DataError(Problem(store.path, None, problem, "ask for fewer"))
    mean = total / regions
    variances, axes = np.linalg.eigh(products / regions - np.outer(mean, mean))
    largest, axes = variances[::-1][:count], axes[:, ::-1][:, :count]
    signs = np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(count)])
    axes *= signs / np.sqrt(largest.mean())

    ids = sorted(store.row_of, key=store.row_of.__getitem__)
    array = np.empty((*store.array.shape[:-1], count), store.array.dtype)
    for start in range(0, len(ids), BLOCK):
        block = (store.rows(ids[start : start + BLOCK]) - mean) @ axes
        array[start : start + BLOCK] = block.reshape(-1, *array.shape[1:])
    fitted = {"components": count, "fitted_on": len(train)}
    share = round(float(largest.sum() / variances.sum()), 4)
    write_notes(out, ids, {**store.meta, **fitted, "variance_kept": share})
    write_atomic(out, partial(np.save, arr=array))  # last, since its name means done
    return open_features(out)


def refuse_existing(out: Path) -> None:
    """Raises DataError where `out` is there: no set takes the place of another."""
    if out.exists():
        raise DataError(Problem(out, None, "is there already", "delete it, or name another file"))
