"""An outline tells changed data from data that another machine computed."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pytest
import torch

from mmlib.core.outline import alike, outline


@dataclass(frozen=True, eq=False)
class Split:
    features: np.ndarray
    ids: np.ndarray
    truth: tuple[np.ndarray, ...]
    folder: str = "/one/machine/bert"
    scale: float = 1.7


@dataclass(frozen=True, eq=False)
class Arrays:
    splits: Mapping[str, Split]
    words: tuple[str, ...]
    weights: torch.Tensor

    @cached_property
    def fingerprint(self) -> str:
        return "a hash of every bit"


def made_up(seed: int = 0) -> Arrays:
    rng = np.random.default_rng(seed)
    split = Split(
        rng.normal(size=(300, 16, 32)).astype(np.float32),
        rng.integers(0, 50, (300, 12)),
        (rng.random((3, 4)), rng.random((2, 5))),
    )
    return Arrays({"train": split, "test": split}, ("dog", "cat"), torch.rand(40, 8))


def changed(data: Arrays, **parts) -> Arrays:
    return replace(data, splits={**data.splits, "test": replace(data.splits["test"], **parts)})


def test_rounding_a_folder_and_a_kept_hash_are_no_difference():
    data = made_up()
    own = data.splits["test"]
    rounded = own.features * (1 + 1e-6 * np.sign(own.features - 0.1))
    near = changed(
        data, features=rounded.astype(np.float32), folder="/another/bert", scale=1.7000001
    )
    assert near.fingerprint
    assert alike(outline(data), outline(near))
    assert outline(data) == outline(data)


@pytest.mark.parametrize(
    "change",
    [
        lambda own: {"features": np.where(np.arange(300)[:, None, None] == 7, 0, own.features)},
        lambda own: {"features": own.features[:, ::-1]},
        lambda own: {"features": 1.01 * own.features},
        lambda own: {"features": own.features[:-1]},
        lambda own: {"ids": np.where(np.arange(12) == 3, own.ids + 1, own.ids)},
        lambda own: {"truth": own.truth[::-1]},
        lambda own: {"truth": (own.truth[0], own.truth[1] + 0.01)},
        lambda own: {"folder": "/one/machine/other"},
        lambda own: {"scale": 1.71},
    ],
)
def test_what_has_changed_is_another(change):
    data = made_up()
    assert not alike(outline(data), outline(changed(data, **change(data.splits["test"]))))


def test_names_words_and_weights_count():
    data = made_up()
    turned = replace(data, splits=dict(reversed(data.splits.items())))
    assert outline(turned) == outline(data)  # the order of a mapping does not
    counts = {"dog": 1.5, "cat": 2.5}
    assert alike(outline(counts), outline({"cat": 2.5000001, "dog": 1.5}))
    assert not alike(outline(counts), outline({"cat": 1.5, "dog": 2.5}))
    assert len(outline(counts)["sketches"]) == 1
    large = {"mean": np.full(9, 1e6), "deviation": np.full(9, 0.1)}
    assert not alike(outline(large), outline({**large, "deviation": np.full(9, 0.2)}))
    for other in (
        replace(data, splits={"train": data.splits["train"], "val": data.splits["test"]}),
        replace(data, words=("cat", "dog")),
        replace(data, weights=data.weights.flip(0)),
    ):
        assert not alike(outline(data), outline(other))


def test_of_a_file_some_rows_count(tmp_path):
    rows = np.random.default_rng(0).normal(size=(1000, 8)).astype(np.float32)
    np.save(tmp_path / "a.npy", rows)
    np.save(tmp_path / "b.npy", rows + 1)
    (a, again, b) = (np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in "aab")
    assert alike(outline(a), outline(again))
    assert not alike(outline(a), outline(b))
