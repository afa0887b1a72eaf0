import json

import pytest
from tiny_notebooks import CLAIM

from mmlib.suite import outcomes

FIGURES = [
    {"figure": "AP/AUC", "value": 93.5, "expected": 93.0, "tolerance": 1.0, "within": True},
    {"figure": "AP - DC", "value": 3.1, "expected": 4.0, "tolerance": 1.5, "within": True},
]
CHECKS = {"evidence": "world/links", "comparable": True, "why": "", "figures": FIGURES}


@pytest.fixture
def report(tmp_path):
    """A report on a complete and good run, not judged yet."""
    out = tmp_path / "runs" / "world" / "04_links"
    (out / "figures").mkdir(parents=True)
    (out / "figures" / "one.png").write_bytes(b"png")
    (out / "results.csv").write_text("system,value\nAP,93.5\n")
    for name, content in (("results", [{"value": 93.5}]), ("claims", [CLAIM]), ("checks", CHECKS)):
        (out / f"{name}.json").write_text(json.dumps(content))
    return outcomes.NotebookReport("04_links", out.with_suffix(".ipynb"), out)


def test_complete_run_is_good(report):
    outcomes.read_results(report)
    assert report.ok, report.problems
    assert "2/2 within tolerance" in outcomes.summary_text([report])


def changed(**fields):
    return json.dumps(CHECKS | fields)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        *((name, None, f"{name}: is missing in ") for name in outcomes.RESULTS),
        ("figures/one.png", None, "no figure (*.png) in "),
        ("results.json", "[]", "results.json: $: [] should be non-empty"),
        ("results.json", '[{"value": NaN}]', "results.json: is not JSON: NaN is no number"),
        ("results.csv", "system,value\n", "results.csv: holds no result"),
        ("claims.json", "{}", "claims.json: $: {} is not of type 'array'"),
        ("claims.json", json.dumps([CLAIM | {"effect": "2"}]), "claims.json: $[0].effect: '2' is"),
        ("claims.json", json.dumps([CLAIM | {"verdict": "yes"}]), "claims.json: $[0].verdict: 'y"),
        ("checks.json", "{}", "checks.json: $: 'comparable' is a required"),
        ("checks.json", changed(figures=[]), "checks.json: $.figures: [] should be non-empty"),
        ("checks.json", changed(figures=[{"figure": "a"}]), "checks.json: $.figures[0]: 'value' i"),
        ("checks.json", changed(comparable=False), "checks.json: $.why: '' should be non-empty"),
        ("checks.json", changed(figures=[FIGURES[0], FIGURES[1] | {"within": False}]),
         "AP - DC left its tolerance: 3.1, expected 4.0 ± 1.5"),
    ],
)  # fmt: skip
def test_missing_empty_or_broken_result_is_named(report, name, text, said):
    if text is None:
        (report.out / name).unlink()
    else:
        (report.out / name).write_text(text)
    outcomes.read_results(report)
    assert len(report.problems) == 1
    assert report.problems[0].startswith(said)
    assert "FAILED" in outcomes.summary_text([report])


def test_summary_shows_each_claim_and_why(report):
    claims = [CLAIM, CLAIM | {"verdict": "not tested", "effect": None, "why": "needs stories"}]
    (report.out / "claims.json").write_text(json.dumps(claims))
    checks = CHECKS | {"comparable": False, "why": "other epochs", "figures": []}
    (report.out / "checks.json").write_text(json.dumps(checks))
    outcomes.read_results(report)
    assert report.ok
    report.seconds = 221.4
    text = outcomes.summary_text([report])
    assert "04_links  done in 3:41" in text
    assert "claims   1 hold, 1 not tested" in text
    assert "supported          structured beats unstructured: +3.2 [+2.1, +4.3] AUC" in text
    assert "not tested         structured beats unstructured (needs stories)" in text
    assert "figures  not compared: other epochs" in text
    _, table = outcomes.summary_text([report, report]).split("claim and verdict\n")
    assert [line[:8] for line in table.splitlines()] == [f"04  {CLAIM['id']}"[:8]] * 4
    assert [outcomes.clock(s) for s in (0.2, 605, 3787)] == ["0:00", "10:05", "1:03:07"]
