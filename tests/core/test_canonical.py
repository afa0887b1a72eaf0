"""The tidy table of evidence: one order, and every row once."""

import pandas as pd

from mmlib.core.experiment import canonical


def table(seed):
    keys = {"paper": "links", "tier": "world", "dataset": "coco", "split": "test", "system": "AP"}
    own = {"seed": seed, "item": [0, 1], "cluster": 0, "metric": "AUC", "value": [1.0, 2.0]}
    return canonical(pd.DataFrame(keys | own))


def test_seeds_that_are_added_later_stand_there_once():
    parts = [table(1).astype(object), table(0).astype(object)]
    both = canonical(pd.concat(parts))
    assert list(zip(both.seed, both.item, strict=True)) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    pd.testing.assert_frame_equal(both, canonical(pd.concat(parts[::-1])))
