import json
import math
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_notebooks import CLAIM

from mmlib.suite import outcomes


def figure(name, value, expected, tolerance):
    told = {"figure": name, "value": value, "expected": expected, "tolerance": tolerance}
    return told | {"within": True}


@pytest.fixture
def checks():
    figures = [figure("AP/AUC", 93.5, 93.0, 1.0), figure("AP - NoStruct/AUC", 3.1, 4.0, 1.5)]
    return {"evidence": "world/links", "comparable": True, "why": "", "figures": figures}


@pytest.fixture
def report(tmp_path, checks):
    """A report on a complete and good run, not judged yet."""
    out = tmp_path / "runs" / "world" / "04_links"
    (out / "figures").mkdir(parents=True)
    (out / "figures" / "one.png").write_bytes(b"png")
    (out / "results.csv").write_text("system,value\nAP,93.5\n")
    for name, content in (("results", [{"value": 93.5}]), ("claims", [CLAIM]), ("checks", checks)):
        (out / f"{name}.json").write_text(json.dumps(content))
    return outcomes.NotebookReport("04_links", out.with_suffix(".ipynb"), out)


def problems(report):
    outcomes.read_results(report)
    return report.problems


def test_complete_run_is_good(report):
    assert problems(report) == []
    assert report.ok
    assert "2/2 within tolerance" in outcomes.summary_text([report])


@pytest.mark.parametrize("name", ["results.json", "results.csv", "claims.json", "checks.json"])
def test_missing_result_is_named(report, name):
    (report.out / name).unlink()
    assert problems(report) == [f"{name} is missing in {report.out}"]
    assert "FAILED" in outcomes.summary_text([report])


def test_missing_picture_is_named(report):
    (report.out / "figures" / "one.png").rename(report.out / "figures" / "._one.png")
    assert problems(report)[0].startswith("no figure (*.png)")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("results.json", "[]", "results.json, $: [] should be non-empty"),
        ("results.csv", "system,value\n", "results.csv holds no result"),
        ("claims.json", "[]", "claims.json, $: [] should be non-empty"),
        ("claims.json", "[3]", "claims.json, $[0]: 3 is not of type 'object'"),
        ("claims.json", "{}", "claims.json, $: {} is not of type 'array'"),
        ("claims.json", json.dumps([CLAIM | {"effect": "2"}]), "claims.json, $[0].effect: '2' is"),
        ("claims.json", json.dumps([CLAIM | {"verdict": "yes"}]), "claims.json, $[0].verdict: 'y"),
        ("checks.json", "{}", "checks.json, $: 'comparable' is a required"),
        ("checks.json", '{"comparable', "checks.json is not JSON"),
    ],
)
def test_empty_or_broken_result_is_named(report, name, text, said):
    (report.out / name).write_text(text)
    found = problems(report)
    assert len(found) == 1
    assert found[0].startswith(said)
    outcomes.summary_text([report])


@pytest.mark.parametrize("value", [94.01, 91.99, 0.0, 50.0, math.nan, math.inf, None, "93", True])
def test_figure_outside_its_tolerance_fails_whatever_the_notebook_says(checks, value):
    checks["figures"][0]["value"] = value
    found = outcomes.check_problems(checks)
    assert found == [f"AP/AUC left its tolerance: {value}, expected 93.0 ± 1.0"]


@given(st.floats(-1e6, 1e6), st.floats(0, 1e3), st.floats(-1e6, 1e6))
def test_within_is_the_closed_interval(value, tolerance, expected):
    assert outcomes.within(value, expected, tolerance) == (abs(value - expected) <= tolerance)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"figures": []}, "$.figures: [] should be non-empty"),
        ({"figures": 3}, "$.figures: 3 is not of type 'array'"),
        ({"figures": [{"figure": "AP/AUC"}]}, "$.figures[0]: 'value' is a required"),
        ({"comparable": 1}, "$.comparable: 1 is not of type 'boolean'"),
        ({"comparable": False}, "$.why: '' should be non-empty"),
    ],
)
def test_checks_that_say_too_little_fail(checks, change, said):
    assert outcomes.form_fault(outcomes.FORMS["checks.json"], checks | change).startswith(said)


def test_figures_that_cannot_be_compared_say_why(checks):
    untold = checks | {"comparable": False, "why": "other epochs", "figures": []}
    assert outcomes.form_fault(outcomes.FORMS["checks.json"], untold) == ""
    assert outcomes.check_problems(untold) == []


def test_summary_shows_each_claim_and_why(report, checks):
    claims = [CLAIM, CLAIM | {"verdict": "not tested", "effect": None, "why": "needs stories"}]
    (report.out / "claims.json").write_text(json.dumps(claims))
    untold = deepcopy(checks) | {"comparable": False, "why": "other epochs", "figures": []}
    (report.out / "checks.json").write_text(json.dumps(untold))
    outcomes.read_results(report)
    report.seconds = 221.4
    told = outcomes.summary_text([report])
    assert "04_links  done in 3:41" in told
    assert "claims   1 supported, 1 not tested" in told
    assert "supported      structured beats unstructured: +3.2 [+2.1, +4.3] AUC" in told
    assert "not tested     structured beats unstructured (needs stories)" in told
    assert "figures  not compared: other epochs" in told
    both = outcomes.summary_text([report, report]).split("claim and verdict\n")
    assert len(both) == 2  # one table, after all notebooks
    table = both[1].splitlines()
    assert [line[:8] for line in table] == [f"04  {CLAIM['id']}"[:8]] * 4
