"""The ledger: a row a claim, judged from evidence, with marks, a summary and a picture."""

import re
from types import SimpleNamespace

import made_up_cora
import made_up_evidence
import matplotlib.pyplot as plt
import nbformat
import pytest
from nbformat.v4 import new_markdown_cell, new_notebook
from PIL import Image
from scipy import stats
from scripts import load

from mmlib.core import recordings
from mmlib.core.claims import Claim, Stability, assess
from mmlib.core.effects import Effect
from mmlib.core.forest import FARTHEST, overview
from mmlib.core.jobs import NO_SEED
from mmlib.core.paths import evidence_dir
from mmlib.papers.links.claims import CLAIMS
from mmlib.suite import standing
from mmlib.suite.papers import PAPERS, experiment
from mmlib.suite.record import incomplete, read
from mmlib.suite.standing import MARKS, Standing, limit_of

ledger, provenance, pages = map(load, ("ci/ledger.py", "ci/provenance.py", "ci/pages.py"))
NAME = re.compile(r"\b[A-Z]\d+[a-z]?\b")  # of a claim


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A small repository with two notebooks, without evidence."""
    monkeypatch.setattr(ledger, "ROOT", tmp_path)
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "docs").mkdir()
    for name, words in (("02_revision", "02 · Revision"), ("04_links", "04 · Links")):
        nb = new_notebook(cells=[new_markdown_cell(f"# {words}\n\nText.")])
        nbformat.write(nb, tmp_path / "notebooks" / f"{name}.ipynb")
    return tmp_path


def written(root):
    assert ledger.main(["write"]) == 0
    return (root / "docs" / "ledger.md").read_text(encoding="utf-8")


def section(text, heading):
    return text.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def rows(text):
    """Claim -> the cells of its row."""
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return {cells[0].split()[0]: cells for cells in lines if " " in cells[0]}


def test_a_claim_is_a_row_judged_from_evidence(repository):
    text = written(repository)
    assert "Of 02 nothing is recorded yet" in text
    assert "Of 04 nothing is recorded yet" in text
    made_up_evidence.write(repository / "evidence", seeds=6, noise=4)
    text = written(repository)
    assert "Of 02 nothing is recorded yet" in text
    assert "Of 04 nothing is recorded" not in text
    links = section(text, "04 · Links")
    assert list(rows(links)) == [claim.id for claim in CLAIMS]
    assert "|claim|d, else 1 AUC points|picture world|" in links
    found = read("04", "world", repository / "evidence")
    for claim in CLAIMS:
        one, (first, d, *cells) = assess(claim, found, found.seeds), rows(links)[claim.id]
        assert first == f"{claim.id} {claim.claim}"
        assert d == ("" if d == "" else f"{claim.smallest:g} {claim.unit}")
        assert all(one.verdict in cell for cell in cells[:1])
        if one.verdict == "not tested":
            assert cells[0] == "not tested"
    assert rows(links)["C4"][1] == "1.2 AUC points"
    assert "(../notebooks/04_links.ipynb)" in links
    assert "studies" not in links
    (repository / "docs" / "studies").mkdir()
    (repository / "docs" / "studies" / "04_links.md").touch()
    assert "[Study page](studies/04_links.md)" in section(written(repository), "04 · Links")


def test_what_held_and_what_did_not_are_those_of_the_rows(repository):
    made_up_evidence.write(repository / "evidence", seeds=6, noise=4)
    links = section(written(repository), "04 · Links")
    lines = {line.split("**")[1]: line for line in links.splitlines() if line.startswith("- **")}
    assert list(lines) == ["Scope.", "Held.", "Did not.", "Easy.", "Hard."]
    assert f"{len(CLAIMS)} claims in the picture world (6 seeds)" in lines["Scope."]
    for name, cells in rows(links).items():
        verdict = cells[2].split(":")[0]
        failed = any(word in verdict for word in ("opposite", "negligible", "mixed"))
        assert (name in NAME.findall(lines["Held."])) == ("supported" in verdict)
        assert (name in NAME.findall(lines["Did not."])) == failed


def record_of(verdict, *, intervals=1, parts=("supported",), size="", **more):
    told = {"id": "A", "claim": "x", "unit": "points", "smallest": 1.0, "kind": "greater"}
    told |= {"effect": 2.345, "low": -0.5, "high": 12.4, "seeds_needed": None, "fragile": False}
    told |= {"paper_effect": None, "holding_paper": None, "why": "no reason", "size": size}
    told["parts"] = {str(i): {"verdict": part} for i, part in enumerate(parts)}
    return told | {"verdict": verdict, "intervals": intervals} | more


def standing_of(record, name="A", level=0.001, corrected=None, allowed=0.05, **more):
    corrected = level if corrected is None else corrected
    told = {"seeds": 6, "halves": None, "others": (record["verdict"],) * 2} | more
    return Standing("03", "world", record | {"id": name}, level=level, corrected=corrected,
                    allowed=allowed, **told)  # fmt: skip


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (record_of("supported"), "supported 2.3 [−.5, 12]"),
        (record_of("supported", size="clearly"), "**supported** 2.3 [−.5, 12]"),
        (record_of("opposite", size="direction only"), "opposite, direction only 2.3 [−.5, 12]"),
        (record_of("negligible", intervals=2, parts=["negligible"] * 2),
         "negligible, 2 of 2: 2.3 [−.5, 12]"),
        (record_of("supported", parts=["supported"] * 5), "supported 2.3 [−.5, 12] (mean of 5)"),
        (record_of("mixed", intervals=3, parts=["supported", "opposite", "undecided"]),
         "mixed: 1 supported, 1 opposite, 1 open"),
        (record_of("undecided", intervals=2, parts=["supported", "undecided"], seeds_needed=51),
         "undecided: 1 supported, 1 open; needs 51 seeds"),
        (record_of("undecided", seeds_needed=6), "undecided 2.3 [−.5, 12]; borderline"),
        (record_of("undecided"), "undecided 2.3 [−.5, 12]"),
        (record_of("not tested", intervals=0, parts=()), "not tested"),
    ],
)  # fmt: skip
def test_a_cell_says_verdict_size_effect_and_what_is_open(record, text):
    assert ledger.cell(standing_of(record), 0.05) == text


def test_the_papers_effect_is_in_or_out_of_our_intervals():
    several = {"intervals": 3, "parts": ["supported"] * 3, "holding_paper": 2}
    found = [
        standing_of(record_of("supported", paper_effect=11.0, holding_paper=1)),
        standing_of(record_of("supported", paper_effect=11.0, holding_paper=0)),
        standing_of(record_of("supported", paper_effect=11.0, **several)),
        standing_of(record_of("not tested", paper_effect=11.0, intervals=0)),
    ]
    assert ledger._paper(found) == "11 (in, out, 2 of 3, –)"
    assert ledger._paper([standing_of(record_of("supported"))]) == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.274, ".27"), (-0.0036, "−.0036"), (-1.64, "−1.6"), (123.4, "123"), (9.96, "10"),
     (-0.999, "−1"), (10.4, "10")],
)  # fmt: skip
def test_numbers_have_two_digits(value, text):
    assert ledger.digits(value) == text


def test_each_claim_knows_its_own_seeds(tmp_path):
    own = made_up_cora.make("flickr8k", "flickr8k", seeds=6)
    found = made_up_cora.together(own, made_up_cora.make("flickr8k", "flickr8k_long", seeds=4))
    head = found.header | {
        "machine": {}, "method_version": 1, "device": "cpu", "inputs": {}, "inapplicable": {},
        "commit": None, "versions": {}, "may_skip": experiment("03").may_skip,
    }  # fmt: skip
    recordings.write(tmp_path / "flickr8k" / "cora", found.series, head)
    found = read("03", "flickr8k", tmp_path)
    seeds = {s.record["id"]: s.seeds for s in standing.standings("03", "flickr8k", found)}
    assert {name: seeds[name] for name in ("C3", "C5a", "C5b")} == {"C3": 6, "C5a": 4, "C5b": 4}
    came = provenance.recordings("03", "flickr8k", found, incomplete(found, experiment("03")))
    assert came.startswith(
        "`mmlib record 03 --tier flickr8k --seeds 6 --datasets flickr8k`, "
        "`mmlib record 03 --tier flickr8k --seeds 4 --datasets flickr8k_long`; "
    )
    assert "| 0–5 (flickr8k), 0–3 (flickr8k_long) | `unknown` |" in came
    assert "flickr8k_bert was not recorded" in came
    read_with = standing.LOOKS["03", "flickr8k"]
    table = provenance.seeds_table(found, read_with, {})
    assert "| flickr8k | 6 | 3, 4, 7, 9, 10, 10, 10 |" in table


def judged(effect, se=1.0, df=10.0, smallest=1.0, kind="greater", **more):
    """A claim judged on parts of these effects."""
    parts = {name: Effect(own, se, df) for name, own in {"": effect, **more}.items()}
    claim = Claim(
        "X", "", "", "", "points", smallest, "", kind, effects=lambda *_: parts
    )  # fmt: skip
    return assess(claim, None, [0, 1, 2])


@pytest.mark.parametrize(
    ("effects", "seeds", "once"),
    [
        (lambda _, seeds: {"": Effect(2.0, 0.5, 9.0)}, [0, 1, 2, 3], True),
        (lambda _, seeds: {"": Effect(2.0, 1 / len(seeds), 9.0)}, [0, 1, 2, 3], False),
        (lambda _, seeds: {"": Effect(float(sum(seeds)), 0.5, 9.0)}, [0, 1, 2, 3], False),
        (lambda _, seeds: {"": Effect(2.0, 0.5, 9.0)}, [0], False),
        (lambda _, seeds: "nothing to see", [0, 1, 2, 3], False),
    ],
)
def test_what_no_seed_changes_was_measured_once(effects, seeds, once):
    claim = Claim("X", "", "", "", "points", 1.0, "", effects=effects)
    found = SimpleNamespace(datasets=[], seeds=seeds)
    assert standing.measured_once(assess(claim, found, seeds), found) is once


@pytest.mark.parametrize(
    ("one", "verdict", "far"),
    [
        (judged(3.0), "supported", 3.0),
        (judged(-3.0), "opposite", 3.0),
        (judged(0.5, se=0.1), "negligible", 5.0),
        (judged(-0.5, se=0.1, kind="equivalent"), "supported", 5.0),
        (judged(-4.0, kind="equivalent"), "opposite", 3.0),
        (judged(3.0, b=5.0), "supported", 3.0),
    ],
)
def test_a_verdict_is_lost_where_its_interval_would_just_reach_an_edge(one, verdict, far):
    assert one.verdict == verdict
    found, corrected = standing.lost_at(one)
    assert found == corrected == pytest.approx(2 * stats.t.sf(far, 10))
    # An interval at this level ends at the edge.
    assert stats.t.ppf(1 - found / 2, 10) == pytest.approx(far)


@pytest.mark.parametrize(
    ("effects", "far"),
    [
        # Lost where the one opposite part is, though all three that are supported would stay.
        ({"a": 5.0, "b": 6.0, "c": 9.0, "d": -3.0, "e": 1.0}, 3.0),
        # Either of two opposite parts keeps it mixed: the stronger counts.
        ({"a": 5.0, "b": -3.0, "c": -4.0}, 4.0),
        # Three kinds, of which two are enough: the third lies 10 errors from either edge.
        ({"a": 9.0, "b": -4.0, "c": 0.0}, 9.0),
    ],
)
def test_a_mixed_verdict_is_lost_with_its_second_kind_of_parts(effects, far):
    errors = {name: 0.1 if effect == 0 else 1.0 for name, effect in effects.items()}
    parts = {name: Effect(effect, errors[name], 10.0) for name, effect in effects.items()}
    claim = Claim("X", "", "", "", "", 1.0, "", effects=lambda *_: parts)
    one = assess(claim, None, [0, 1, 2])
    assert one.verdict == "mixed"
    level, corrected = standing.lost_at(one)
    assert level == pytest.approx(2 * stats.t.sf(far, 10))
    assert corrected == pytest.approx(len(parts) * level)


@pytest.mark.parametrize("other", [-5.0, 1.0])
def test_an_opposite_verdict_on_every_part_is_lost_with_its_strongest(other):
    one = judged(-3.0, b=other)
    assert one.verdict == "opposite"
    level, corrected = standing.lost_at(one)
    assert level == pytest.approx(2 * stats.t.sf(3.0 if other > 0 else 5.0, 10))
    assert corrected == pytest.approx(2 * level)
    assert standing.lost_at(judged(1.0)) == (1, 1)  # undecided: no verdict to lose


def test_marks_stand_at_verdicts_that_a_correction_would_take():
    found = {
        "A": standing_of(record_of("supported"), level=0.001),
        "B": standing_of(record_of("supported"), level=0.04),
        "C": standing_of(record_of("supported"), level=0.03, allowed=0.0221),
        "D": standing_of(record_of("undecided"), level=1.0, others=("supported",) * 2),
        "E": standing_of(record_of("not tested"), level=1.0),
        "F": standing_of(record_of("mixed"), level=0.001, corrected=0.04),
        "G": standing_of(record_of("opposite", fragile=True), level=0.0),
        "H": standing_of(record_of("opposite"), level=0.0, halves=Stability(0.51, 0.0)),
        "I": standing_of(record_of("opposite"), level=0.0, halves=Stability(0.5, 0.0)),
        "J": standing_of(record_of("opposite"), level=0.0, others=("opposite", "negligible")),
    }
    marks = {name: one.marks(0.02) for name, one in found.items()}
    assert marks == {
        "A": "", "B": "†", "C": "†‡", "D": "", "E": "", "F": "†", "G": "§", "H": "½", "I": "",
        "J": "↕",
    }  # fmt: skip
    assert set("".join(marks.values())) == set(MARKS)


def test_the_limit_is_benjamini_and_hochbergs():
    def of(*levels):
        return limit_of([standing_of(record_of("supported"), level=level) for level in levels])

    # .001 * 4 / 1, .03 * 4 / 2 and .04 * 4 / 3 of four, of which the last is above .05.
    assert of(0.001, 0.03, 0.04, 1.0) == 0.001
    assert of(0.001, 0.03, 0.03, 1.0) == 0.03
    assert of(0.5) == 0
    assert of() == 0


def test_looks_end_with_the_seeds_on_record():
    for (number, tier), looks in standing.LOOKS.items():
        found = recordings.read(evidence_dir() / tier / PAPERS[number])
        assert looks[-1] == len(found.seeds)
        assert list(looks) == sorted(looks)
        assert len(looks) in standing.POCOCK


def test_evidence_that_cannot_be_judged_is_named(repository):
    made_up_evidence.write(repository / "evidence", method_version=0)
    with pytest.raises(SystemExit, match="was recorded by version 0 of the method"):
        ledger.main(["check"])
    path, *_ = recordings.paths_of(repository / "evidence" / "world" / "links")
    path.write_text("{")
    with pytest.raises(SystemExit, match=rf"{path.name}: damaged"):
        ledger.main(["check"])


def test_check_fails_until_the_ledger_is_written(repository, capsys):
    made_up_evidence.write(repository / "evidence")
    assert ledger.main(["check"]) == 1
    assert "python ci/ledger.py write" in capsys.readouterr().err
    ledger.main(["write"])
    assert ledger.main(["check"]) == 0
    made_up_evidence.write(repository / "evidence", noise=4)
    assert ledger.main(["check"]) == 1


def test_check_fails_where_the_picture_is_of_other_figures(repository):
    made_up_evidence.write(repository / "evidence")
    ledger.main(["write"])
    picture = repository / ledger.PICTURE
    first, when = picture.read_bytes(), picture.stat().st_mtime_ns
    ledger.main(["write"])
    assert picture.stat().st_mtime_ns == when  # drawn anew where figures changed alone
    with Image.open(picture) as image:
        image.convert("RGB").save(picture)  # without the digest
    assert ledger.main(["check"]) == 1
    ledger.main(["write"])
    assert picture.read_bytes() == first
    assert ledger.main(["check"]) == 0


def test_the_picture_shows_each_tested_claim_of_each_kind_of_data():
    record = record_of("supported", low=1.0, high=3.0, kind="equivalent", paper_effect=2.0)
    beyond = record_of("opposite", effect=-90.0, low=-95.0, high=-85.0)
    parts = {"a": {"effect": 2.0, "low": 1.0, "high": 3.0, "verdict": "supported"},
             "b": {"effect": -2.0, "low": -3.0, "high": -1.0, "verdict": "opposite"}}  # fmt: skip
    mixed = record_of("mixed", intervals=2) | {"parts": parts}
    none = record_of("not tested", intervals=0)
    photographs = {"A": none, "C": mixed}
    figure = overview({
        "01": {"world": {"A": record, "B": none, "C": none}, "photographs": photographs},
        "02": {"world": {"A": beyond}},
        "03": {"world": {"A": none}},
    })  # fmt: skip
    first, second = figure.axes  # of the third none is tested
    assert [label.get_text() for label in first.get_yticklabels()] == ["A ≈", "C"]
    shown = {
        (line.get_marker(), *map(float, line.get_xdata()))
        for axis in (first, second) for line in axis.lines if line.get_marker() != "None"
    }  # fmt: skip
    farthest = -1.15 * FARTHEST
    assert shown == {("o", 2.345), ("D", 2.0), ("s", 2.0), ("s", -2.0), ("<", farthest)}
    spans = [
        list(map(float, line.get_xdata())) for line in first.lines if line.get_marker() == "None"
    ]
    assert [1.0, 3.0] in spans
    assert [-3.0, 3.0] in spans
    assert not overview({}).axes
    plt.close("all")


def test_each_recording_is_named_with_its_seeds_and_its_gpu():
    gpu, none = {"gpu": "NVIDIA H200"}, {"gpu": None}
    every = {"jobs": {"f": {"a": [0, 1, 3], "b": [NO_SEED]}, "g": {"a": [0, 1, 3]}}}
    headers = [
        {"commit": "a" * 40, "machine": gpu, "device": "cpu", **every},
        {"commit": "b", "machine": gpu, "device": "cuda", "jobs": {"f": {"a": [4, 5]}}},
        {"commit": None, "machine": none, "device": "cpu",
         "jobs": {"f": {"a": [6]}, "g": {"b": [NO_SEED]}}},
    ]  # fmt: skip
    assert [provenance.seeds_of(header) for header in headers] == [
        "0–1, 3", "4–5", "6 (f), no seed (g)"
    ]  # fmt: skip
    trained_on = [provenance.machine_of(header) for header in headers]
    assert [name == "NVIDIA H200" for name in trained_on] == [False, True, False]
    found = SimpleNamespace(recordings=[header | {"cpu_seconds": 1} for header in headers])
    rows = provenance.recordings_table(found).splitlines()[2:]
    assert [row.split(" | ")[2] for row in rows] == [f"`{'a' * 12}`", "`b`", "`unknown`"]


def test_a_bar_in_a_cell_does_not_end_it():
    assert pages.rows_table(["a"], [["|A|"]], around="").splitlines()[-1] == r"|\|A\||"
