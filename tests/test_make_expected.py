"""A file of expected figures keeps its sets apart."""

import importlib.util
from pathlib import Path

import pandas as pd
import pytest


@pytest.fixture(scope="module")
def tool():
    path = Path(__file__).parents[1] / "ci" / "make_expected.py"
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


def test_the_defaults_come_first(tool):
    with pytest.raises(SystemExit, match="default parameters first"):
        tool.combined([], figures(QUICK, 1), DEFAULTS)


def test_chance_is_what_random_got_and_untrained_systems_have_none(tool):
    figures = [("CORA", "rsum"), ("Random", "rsum"), ("CORA", "i2t_r1"), ("DC", "AUC")]
    figures += [("CORA, reranked", "rsum")]
    rows = [("world", *figure, 10.0 * i) for i, figure in enumerate(figures)]
    table = pd.DataFrame(rows, columns=["dataset", "system", "metric", "value"])
    assert tool.chance_levels(table, 3) == {"world/CORA/rsum": 10.0, "world/DC/AUC": 50.0}
