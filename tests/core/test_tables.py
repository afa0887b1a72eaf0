"""A run's results as files, and the papers' printed figures beside ours."""

import json
from itertools import product

import numpy as np
import pandas as pd
import pytest
from made_up_evidence import evidence_of

from mmlib.core.effects import crossed
from mmlib.core.evidence import NO_SEED
from mmlib.core.tables import Cells, save_results, table


def test_results_are_the_same_as_json_and_as_csv(tmp_path):
    drawn = np.random.default_rng(0).normal(size=4)
    keys = product(["coco"], ("DC", "AP+½k"), (0, 1), ["AUC"])
    table = save_results(dict(zip(keys, drawn, strict=True)), tmp_path / "runs" / "04")
    text = (tmp_path / "runs" / "04" / "results.json").read_text(encoding="utf-8")
    from_json = pd.DataFrame(json.loads(text))
    from_csv = pd.read_csv(tmp_path / "runs" / "04" / "results.csv")
    pd.testing.assert_frame_equal(from_json, from_csv, check_exact=True)
    pd.testing.assert_frame_equal(from_json, table, check_exact=True)
    assert from_json.value.tolist() == drawn.tolist()
    assert "½" in text


def test_a_result_that_json_cannot_say_is_refused_and_leaves_no_file(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        save_results({("coco", "DC", 0, "AUC"): float("nan")}, tmp_path)
    assert not list(tmp_path.iterdir())


# --- Tables ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def evidence():
    """Three systems on four items in two clusters, one of them without seeds."""
    values = {
        ("A", "hit", 0): [1, 2, 3, 4], ("A", "hit", 1): [3, 4, 5, 8],
        ("B", "hit", 0): [1, 1, 1, 1], ("B", "hit", 1): [1, 1, 3, 3],
        ("floor", "hit", NO_SEED): [0, 0, 0, 1], ("A", "some", 0): [1, np.nan, 3, 4],
        ("A", "some", 1): [2, np.nan, 3, 5],
    }  # fmt: skip
    rows = [
        ("d", system, seed, "test", metric, of_items, [0, 0, 1, 1])
        for (system, metric, seed), of_items in values.items()
    ]
    return evidence_of(rows, {"tier": "world"})


def test_cells_say_means_spreads_and_paired_effects(evidence):
    cells = Cells(evidence, "d")
    assert cells.has(("A", "hit"), ("B", "hit"))
    assert not cells.has(("A", "hit"), ("B", "some"))
    assert cells.named(["B", "C", "A"], "hit") == {"B": "B", "A": "A"}
    assert cells.mean("A", "hit") == (2.5 + 5) / 2
    assert cells.spread("A", "hit") == f"3.8 ± {2.5 / 2**0.5:.1f}"
    assert cells.spread("floor", "hit") == "0.2"
    assert cells.mean("A", "some") == pytest.approx((8 / 3 + 10 / 3) / 2)
    lead = np.array([[0, 1, 2, 3], [2, 3, 2, 5]])
    assert cells.values({("A", "hit"): 1, ("B", "hit"): -1}).tolist() == lead.tolist()
    wanted = crossed(lead, [0, 0, 1, 1])
    assert cells.effect({("A", "hit"): 1, ("B", "hit"): -1}) == wanted
    some = crossed(np.array([[1, 3, 4], [2, 3, 5]]), [0, 1, 1])
    assert cells.effect({("A", "some"): 1}) == some
    logs, hits = Cells(evidence, "d", figure=np.log2), [[1, 2, 3, 4], [3, 4, 5, 8]]
    assert logs.values({("A", "hit"): -1}).tolist() == (-np.log2(hits)).tolist()
    assert logs.effect({("A", "hit"): -1}) == crossed(-np.log2(hits), [0, 0, 1, 1])
    percent = Cells(evidence, "d", figure=lambda values: 10 * values)
    assert percent.percentage("B", "hit") == "15 (10 to 20)"  # of two seeds, from -55 to 85
    assert percent.percentage("floor", "hit") == "2 (2 to 2)"
    high = Cells(evidence, "d", figure=lambda values: 100 - values)
    assert high.percentage("B", "hit") == "98 (98 to 99)"
    middle = Cells(evidence, "d", figure=lambda values: 50 + values)
    inside = middle.effect({("B", "hit"): 1})
    assert 0 < inside.low < 51.5 < inside.high < 100
    assert middle.percentage("B", "hit") == inside.told(0, sign="")
    assert wanted.told(1, sign="") == f"2.2 [{wanted.low:.1f}, {wanted.high:.1f}]"


def test_a_table_has_what_is_recorded(evidence):
    cells = Cells(evidence, "d")
    made = table(["A", "B", "C"], ["hit", "some", "none"], cells.mean, digits=1)
    assert made.to_dict("index") == {"A": {"hit": 3.8, "some": 3.0}, "B": {"hit": 1.5, "some": "–"}}
    numbers = table({"a": "A", "b": "B"}, {"h": "hit", "s": "some"}, cells.mean, None)
    assert numbers.loc["a", "h"] == 3.75
    assert np.isnan(numbers.loc["b", "s"])
    pairs = table({("d", "A"): "A"}, {("hit", "ours"): "hit"}, cells.spread)
    assert (pairs.index.nlevels, pairs.columns.nlevels) == (2, 2)
