"""A run's results as files, and the papers' printed figures beside ours."""

import json
from itertools import product

import numpy as np
import pandas as pd
import pytest

from mmlib.core.paths import PACKAGE
from mmlib.core.tables import (
    Result,
    beside,
    paper_values,
    save_results,
    without_formulas,
    write_json,
)


@pytest.mark.parametrize(
    ("cell", "written"),
    [
        ('=HYPERLINK("http://x","y")', "'="), ("@SUM(A1)", "'@"), ("+1+cmd|' /C calc'!A0", "'+"),
        ("-2+3+cmd|' /C calc'!A0", "'-"), ("-a dog", "'-"), ("\t=1+1", "'\t"),
        ("-1.5", "-1.5"), ("+1.2 [+0.3, +2.1] AUC", "+1.2"), ("a - b", "a - b"), (-1.5, -1.5),
    ],
)  # fmt: skip
def test_no_cell_of_a_csv_file_is_computed_and_figures_stay(cell, written):
    table = without_formulas(pd.DataFrame({"text": [cell], "value": [np.float32(-0.1)]}))
    assert str(table.text[0]).startswith(str(written))
    assert str(table.text[0]).removeprefix("'") == str(cell)
    assert table.value.dtype == np.float32
    named = without_formulas(pd.DataFrame({"=1": [1]}, index=["=2"]))
    assert (named.columns[0], named.index[0]) == ("'=1", "'=2")


def result(value=90.0, seed=0, system="DC", metric="AUC", dataset="coco", split="test"):
    return Result(system, dataset, split, metric, value, seed, "0123abcd")


def test_results_are_the_same_as_json_and_as_csv(tmp_path):
    drawn = np.random.default_rng(0).normal(size=4)
    results = [
        result(value, seed, system)
        for value, (system, seed) in zip(drawn, product(("DC", "AP+½k"), (0, 1)), strict=True)
    ]
    table = save_results(results, tmp_path / "runs" / "04")
    text = (tmp_path / "runs" / "04" / "results.json").read_text(encoding="utf-8")
    from_json = pd.DataFrame(json.loads(text))
    from_csv = pd.read_csv(tmp_path / "runs" / "04" / "results.csv", dtype={"settings": str})
    pd.testing.assert_frame_equal(from_json, from_csv, check_exact=True)
    pd.testing.assert_frame_equal(from_json, table, check_exact=True)
    assert from_json.value.tolist() == drawn.tolist()
    assert "½" in text


def test_a_result_that_json_cannot_say_is_refused_and_leaves_no_file(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        save_results([result(float("nan"))], tmp_path)
    assert not list(tmp_path.iterdir())


def test_numpy_numbers_become_plain(tmp_path):
    write_json(tmp_path / "x.json", {"a": np.float32(0.5), "b": np.int64(3), "c": np.bool_(True)})
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": 0.5, "b": 3, "c": True}


LINKS = json.loads((PACKAGE / "papers" / "links" / "tables.json").read_text(encoding="utf-8"))
PRINTED = {table["id"]: table for table in LINKS["tables"]}


@pytest.mark.parametrize("name", [name for name in PRINTED if name.startswith("table")])
def test_the_papers_numbers_stand_as_they_were_printed(name):
    ours = pd.DataFrame([{"system": "DC", "metric": "AUC", "seed": 0, "value": 12.34}])
    table = beside(ours, paper_values("links", name))
    for row in PRINTED[name]["rows"]:
        for column, printed in row["values"].items():
            wanted = "–" if printed is None else str(printed)
            assert table.loc[row["name"], (column, "paper")] == wanted


def test_two_cells_of_the_papers_table_2():
    table = beside(pd.DataFrame(columns=["system", "metric", "seed", "value"]),
                   paper_values("links", "table2_mscoco"))  # fmt: skip
    assert table.loc["AP", ("p@1", "paper")] == "91.0"
    assert table.loc["TK+½k", ("AUC", "paper")] == "99.0"
    assert set(table.xs("ours", axis=1, level=1).to_numpy().ravel()) == {"–"}


def test_our_numbers_stand_beside_with_their_deviation():
    ours = pd.DataFrame(
        [
            {"system": s, "metric": m, "seed": i, "value": v}
            for s, m, values in [
                ("DC", "AUC", [90.0, 91.0, 92.0]), ("DC", "p@1", [50.04]), ("Mine", "AUC", [1.26])
            ]
            for i, v in enumerate(values)
        ]
    )  # fmt: skip
    table = beside(ours, paper_values("links", "table2_mscoco"))
    assert table.loc["DC", ("AUC", "ours")] == "91.0 ± 1.0"
    assert table.loc["DC", ("p@1", "ours")] == "50.0"
    assert table.loc["DC", ("p@5", "ours")] == "–"
    assert table.loc["Mine"].tolist() == ["–", "1.3", "–", "–", "–", "–"]
    assert table.index.tolist() == [r["name"] for r in PRINTED["table2_mscoco"]["rows"]] + ["Mine"]
