import json
import math
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_notebooks import CLAIM

from mmlib.suite import outcomes

EXPECTED = {
    "parameters": {"seeds": 3},
    "figures": {
        "AP/AUC": {"value": 93.0, "tolerance": 1.0, "chance": 50.0},
        "AP - NoStruct/AUC": {"value": 4.0, "tolerance": 1.5, "chance": 0.0},
    },
}
RUN = {"tier": "world", "seeds": 3, "device": "auto", "expected": "expected"}


def figure(name, value):
    expected, tolerance = (EXPECTED["figures"][name][key] for key in ("value", "tolerance"))
    return {
        "figure": name,
        "value": value,
        "expected": expected,
        "tolerance": tolerance,
        "within": True,
    }


@pytest.fixture
def folder(tmp_path):
    """A folder of notebooks with one file of expected figures."""
    path = tmp_path / "notebooks" / "expected" / "world" / "04.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(EXPECTED))
    return tmp_path / "notebooks"


@pytest.fixture
def checks():
    return {
        "expected_file": "expected/world/04.json",
        "comparable": True,
        "why": "",
        "figures": [figure("AP/AUC", 93.5), figure("AP - NoStruct/AUC", 3.1)],
    }


@pytest.fixture
def report(folder, checks):
    """A report on a complete and good run, not judged yet."""
    out = folder.parent / "runs" / "world" / "04_links"
    (out / "figures").mkdir(parents=True)
    (out / "figures" / "one.png").write_bytes(b"png")
    (out / "results.csv").write_text("system,value\nAP,93.5\n")
    for name, content in (("results", [{"value": 93.5}]), ("claims", [CLAIM]), ("checks", checks)):
        (out / f"{name}.json").write_text(json.dumps(content))
    return outcomes.NotebookReport("04_links", out.with_suffix(".ipynb"), out)


def problems(report, folder):
    outcomes.judge(report, folder, RUN)
    return report.problems


def test_complete_run_is_good(report, folder):
    assert problems(report, folder) == []
    assert report.ok
    assert "2/2 within tolerance" in outcomes.summary_text([report])


@pytest.mark.parametrize("name", ["results.json", "results.csv", "claims.json", "checks.json"])
def test_missing_result_is_named(report, folder, name):
    (report.out / name).unlink()
    assert problems(report, folder) == [f"{name} is missing in {report.out}"]
    assert "FAILED" in outcomes.summary_text([report])


def test_missing_picture_is_named(report, folder):
    (report.out / "figures" / "one.png").unlink()
    assert problems(report, folder)[0].startswith("no figure (*.png)")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("results.json", "[]", "results.json holds no result"),
        ("results.csv", "system,value\n", "results.csv holds no result"),
        ("claims.json", "[]", "claims.json holds no claim"),
        ("claims.json", "[3]", "claims.json: claim 1 lacks"),
        ("claims.json", "{}", "claims.json holds a dict, not a list"),
        ("checks.json", "{}", "checks.json lacks expected_file"),
        ("checks.json", '{"expected', "checks.json is not JSON"),
    ],
)
def test_empty_or_broken_result_is_named(report, folder, name, text, said):
    (report.out / name).write_text(text)
    found = problems(report, folder)
    assert len(found) == 1
    assert found[0].startswith(said)
    outcomes.summary_text([report])


def test_unknown_verdict_is_named():
    assert outcomes.claim_problems([CLAIM | {"verdict": "yes"}]) == [
        "claims.json: structure has the verdict 'yes'"
    ]


@pytest.mark.parametrize("value", [94.01, 91.99, 0.0, 50.0, math.nan, math.inf, None, "93", True])
def test_figure_outside_its_tolerance_fails_whatever_the_notebook_says(folder, checks, value):
    checks["figures"][0]["value"] = value
    found = outcomes.check_problems(checks, "04_links", folder, RUN)
    assert found == [f"AP/AUC left its tolerance: {value}, expected 93.0 ± 1.0"]


@given(st.floats(-1e6, 1e6), st.floats(0, 1e3), st.floats(-1e6, 1e6))
def test_within_is_the_closed_interval(value, tolerance, expected):
    assert outcomes.within(value, expected, tolerance) == (abs(value - expected) <= tolerance)


def test_figure_that_was_not_compared_fails(folder, checks):
    del checks["figures"][1]
    found = outcomes.check_problems(checks, "04_links", folder, RUN)
    assert found == ["AP - NoStruct/AUC is expected but was not compared"]


def test_widened_tolerance_fails(folder, checks):
    checks["figures"][0]["tolerance"] = 100.0
    found = outcomes.check_problems(checks, "04_links", folder, RUN)
    assert found == ["AP/AUC was not compared with what expected/world/04.json says"]


def test_a_run_is_held_to_the_figures_of_its_own_parameters(folder, checks):
    path = folder / "expected/world/04.json"
    content = json.loads(path.read_text())
    quick = {"parameters": {**content["parameters"], "preset": "quick"}, "figures": {}}
    path.write_text(json.dumps({**content, "variants": [quick]}))
    assert outcomes.check_problems(checks, "04_links", folder, RUN) == []
    content["parameters"]["preset"] = ""
    quick["figures"] = {
        name: {**figure, "value": figure["value"] - 20}
        for name, figure in content["figures"].items()
    }
    path.write_text(json.dumps({**content, "variants": [quick]}))
    found = outcomes.check_problems(checks, "04_links", folder, {**RUN, "preset": "quick"})
    assert len(found) == len(content["figures"])
    assert all("was not compared with what" in line for line in found)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"figures": []}, "checks.json: no figure"),
        ({"figures": [{"figure": "AP/AUC"}]}, "checks.json: incomplete figure"),
        ({"expected_file": None}, "checks.json: figures compared, but it names no expected file"),
        ({"expected_file": "expected/world/05.json"}, "cannot read the expected figures"),
        ({"comparable": False}, "checks.json: figures not compared, and it does not say why"),
    ],
)
def test_checks_that_say_too_little_fail(folder, checks, change, said):
    found = outcomes.check_problems(checks | change, "04_links", folder, RUN)
    assert len(found) == 1
    assert found[0].startswith(said)


def test_other_parameters_need_not_be_compared(folder, checks):
    untold = checks | {"comparable": False, "why": "5 seeds, not 3", "figures": []}
    assert outcomes.check_problems(untold, "04_links", folder, RUN | {"seeds": 5}) == []
    assert outcomes.check_problems(untold, "01_other", folder, RUN) == []
    assert outcomes.check_problems(untold, "04_links", folder, RUN)[0].startswith(
        "figures not compared, though the run's parameters are those of"
    )


def test_summary_shows_each_claim_and_why(report, folder, checks):
    claims = [CLAIM, CLAIM | {"verdict": "not tested", "effect": None, "why": "needs stories"}]
    (report.out / "claims.json").write_text(json.dumps(claims))
    untold = deepcopy(checks) | {"comparable": False, "why": "5 seeds, not 3", "figures": []}
    (report.out / "checks.json").write_text(json.dumps(untold))
    outcomes.judge(report, folder, RUN | {"seeds": 5})
    report.seconds = 221.4
    told = outcomes.summary_text([report])
    assert "04_links  done in 3:41" in told
    assert "claims   1 supported, 1 not tested" in told
    assert "supported      structured beats unstructured: +3.2 [+2.1, +4.3] AUC" in told
    assert "not tested     structured beats unstructured (needs stories)" in told
    assert "figures  not compared: 5 seeds, not 3" in told
    both = outcomes.summary_text([report, report]).split("claim and verdict\n")
    assert len(both) == 2  # one table, after all notebooks
    table = both[1].splitlines()
    assert [line[:8] for line in table] == [f"04  {CLAIM['id']}"[:8]] * 4
