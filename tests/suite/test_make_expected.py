"""A file of expected figures keeps its sets apart."""

import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pandas as pd
import pytest
from nbformat.v4 import new_code_cell, new_notebook


@pytest.fixture(scope="module")
def tool():
    path = Path(__file__).parents[2] / "ci" / "make_expected.py"
    spec = importlib.util.spec_from_file_location("make_expected", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DEFAULTS = {"preset": "", "seeds": 0}
QUICK = {"preset": "quick", "seeds": 0}


def figures(parameters, value):
    return {"parameters": parameters, "figures": {"x": value}}


def test_a_set_is_put_in_or_replaced(tool):
    first = tool.combined([], figures(DEFAULTS, 1), DEFAULTS)
    assert first == figures(DEFAULTS, 1)
    both = tool.combined([first], figures(QUICK, 2), DEFAULTS)
    assert both == {**figures(DEFAULTS, 1), "variants": [figures(QUICK, 2)]}
    sets = [both, *both["variants"]]
    again = tool.combined(sets, figures(QUICK, 3), DEFAULTS)
    assert again == {**figures(DEFAULTS, 1), "variants": [figures(QUICK, 3)]}
    renewed = tool.combined(sets, figures(DEFAULTS, 4), DEFAULTS)
    assert renewed == {**figures(DEFAULTS, 4), "variants": [figures(QUICK, 2)]}


def test_the_defaults_come_first_where_they_are(tool):
    quick = tool.combined([], figures(QUICK, 1), DEFAULTS)
    assert quick == figures(QUICK, 1)
    both = tool.combined([quick], figures(DEFAULTS, 2), DEFAULTS)
    assert both == {**figures(DEFAULTS, 2), "variants": [figures(QUICK, 1)]}


@pytest.fixture
def recorded(tool, tmp_path, monkeypatch):
    """Records a run of a tiny notebook; gives the folder of its expected figures."""
    folder = tmp_path / "notebooks"
    (folder / "expected" / "world").mkdir(parents=True)
    cell = new_code_cell('preset = ""\nbert = ""', metadata={"tags": ["parameters"]})
    nbformat.write(new_notebook(cells=[cell]), folder / "07_x.ipynb")
    run = tmp_path / "run" / "07_x"
    run.mkdir(parents=True)
    columns = ["system", "dataset", "split", "metric", "value", "seed", "settings"]
    rows = [["A", "d", "test", "auc", 70.0 + seed, seed, ""] for seed in range(5)]
    pd.DataFrame(rows, columns=columns).to_csv(run / "results.csv", index=False)
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    monkeypatch.setattr(tool.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout="abc\n"))

    def record(*more, claims=()):
        (run / "claims.json").write_text(json.dumps(claims))
        told = ["make_expected", "07", "world", "--run", str(run.parent), "--checked", "3", *more]
        monkeypatch.setattr("sys.argv", told)
        tool.main()
        return folder / "expected" / "world"

    return record


def test_claims_are_kept_beside_the_figures_of_the_first_set(recorded):
    folder = recorded("--set", "bert=mini", claims=[{"id": "C0"}])
    first = json.loads((folder / "07_claims.json").read_text())
    assert first["claims"] == [{"id": "C0"}]
    assert first["notebook"] == "07_x"
    recorded(claims=[{"id": "C1"}])
    recorded("--set", "preset=quick", claims=[{"id": "C2"}])
    kept = json.loads((folder / "07_claims.json").read_text())
    own = json.loads((folder / "07.json").read_text())
    assert (kept["claims"], kept["how"]) == ([{"id": "C1"}], own["how"])
    assert [one["parameters"] for one in own["variants"]] == [
        {"preset": "quick", "bert": ""}, {"preset": "", "bert": "mini"}
    ]  # fmt: skip


def test_chance_is_what_random_got_and_untrained_systems_have_none(tool):
    figures = [("CORA", "rsum"), ("Random", "rsum"), ("CORA", "i2t_r1"), ("DC", "AUC")]
    figures += [("CORA, reranked", "rsum")]
    rows = [("world", *figure, 10.0 * i) for i, figure in enumerate(figures)]
    table = pd.DataFrame(rows, columns=["dataset", "system", "metric", "value"])
    assert tool.chance_levels(table, 3) == {"world/CORA/rsum": 10.0, "world/DC/AUC": 50.0}
