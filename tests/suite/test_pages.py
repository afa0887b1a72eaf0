"""Pages from evidence: what a verdict would survive, and that a check sees what is another.

What the pages say is held by `ci/generated.py check`, on the recorded evidence.
"""

from types import SimpleNamespace

import made_up_evidence
import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pandas as pd
import pytest
from nbformat.v4 import new_markdown_cell, new_notebook
from PIL import Image
from scipy import stats
from scripts import load

from mmlib.core import recordings
from mmlib.core.claims import Claim, Stability, assess
from mmlib.core.effects import Effect
from mmlib.core.errors import DataError
from mmlib.core.forest import FARTHEST, overview
from mmlib.core.paths import evidence_dir
from mmlib.suite import standing
from mmlib.suite.cli import TIERS
from mmlib.suite.papers import PAPERS, experiment
from mmlib.suite.standing import MARKS, Standing, limit_of

generated = load("ci/generated.py")
ledger, studies, pages = generated.ledger, generated.studies, generated.ledger.pages

# --- What a verdict would survive -----------------------------------------------------------------


def standing_of(verdict, level=0.001, corrected=None, allowed=0.05, **more):
    record = {"verdict": verdict, "fragile": more.pop("fragile", False)}
    fields = {"seeds": 6, "halves": None, "others": (verdict,) * 2} | more
    corrected = level if corrected is None else corrected
    return Standing(
        "world", record, level=level, corrected=corrected, allowed=allowed, **fields
    )  # fmt: skip


def judged(effects, se=None, kind="greater"):
    """A claim judged on parts of these effects, with d = 1 and 10 degrees of freedom."""
    parts = {name: Effect(own, (se or {}).get(name, 1.0), 10.0) for name, own in effects.items()}
    claim = Claim("X", "", "", "", "points", 1.0, "", kind, effects=lambda *_: parts)
    return assess(claim, None, [0, 1, 2])


@pytest.mark.parametrize(
    ("entry", "verdict", "far", "times"),
    [
        (judged({"": 3.0}), "supported", 3.0, 1),
        (judged({"": -3.0}), "opposite", 3.0, 1),
        (judged({"": 0.5}, {"": 0.1}), "negligible", 5.0, 1),
        (judged({"": -0.5}, {"": 0.1}, "equivalent"), "supported", 5.0, 1),
        (judged({"": -4.0}, kind="equivalent"), "opposite", 3.0, 1),
        (judged({"a": 3.0, "b": 5.0}), "supported", 3.0, 1),  # the weakest counts
        # One opposite part is enough: the strongest counts, and any could have been it.
        (judged({"a": -3.0, "b": 1.0}), "opposite", 3.0, 2),
        (judged({"a": -3.0, "b": -5.0}), "opposite", 5.0, 2),
        # Lost where the one opposite part is, though all three that are supported would stay.
        (judged({"a": 5.0, "b": 6.0, "c": 9.0, "d": -3.0, "e": 1.0}), "mixed", 3.0, 5),
        # Either of two opposite parts keeps it mixed: the stronger counts.
        (judged({"a": 5.0, "b": -3.0, "c": -4.0}), "mixed", 4.0, 3),
        # Three kinds, of which two are enough: the third lies 10 errors from either edge.
        (judged({"a": 9.0, "b": -4.0, "c": 0.0}, {"c": 0.1}), "mixed", 9.0, 3),
    ],
)
def test_a_verdict_is_lost_where_its_interval_would_just_reach_an_edge(entry, verdict, far, times):
    assert entry.verdict == verdict
    level, corrected = standing.lost_at(entry)
    assert level == pytest.approx(2 * stats.t.sf(far, 10))
    assert corrected == pytest.approx(times * level)


def test_no_verdict_is_not_lost():
    assert standing.lost_at(judged({"": 1.0})) == (1, 1)


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
    assert standing.seeds_of(assess(claim, found, seeds), found) == ([] if once else seeds)


@pytest.mark.parametrize(
    ("one", "marks"),
    [
        (standing_of("supported", level=0.001), ""),
        (standing_of("supported", level=0.04), "†"),
        (standing_of("supported", level=0.03, allowed=0.0221), "†‡"),
        (standing_of("undecided", level=1.0, others=("supported",) * 2), ""),
        (standing_of("not tested", level=1.0), ""),
        (standing_of("mixed", corrected=0.04), "†"),
        (standing_of("opposite", fragile=True), "§"),
        (standing_of("opposite", halves=Stability(0.51, 0.0)), "½"),
        (standing_of("opposite", halves=Stability(0.5, 0.0)), ""),
        (standing_of("opposite", others=("opposite", "negligible")), "↕"),
    ],
)
def test_marks_stand_at_verdicts_that_a_correction_would_take(one, marks):
    assert one.marks(0.02) == marks
    assert set(marks) <= set(MARKS)


def test_the_limit_is_benjamini_and_hochbergs():
    def limit(*levels):
        return limit_of([standing_of("supported", level=level) for level in levels])

    # .001 * 4 / 1, .03 * 4 / 2 and .04 * 4 / 3 of four, of which the last is above .05.
    assert limit(0.001, 0.03, 0.04, 1.0) == 0.001
    assert limit(0.001, 0.03, 0.03, 1.0) == 0.03
    assert limit(0.5) == limit() == 0


def test_looks_end_with_the_seeds_on_record():
    for (number, tier), looks in standing.LOOKS.items():
        found = recordings.read(evidence_dir() / tier / PAPERS[number])
        assert looks[-1] == len(found.seeds)
        assert list(looks) == sorted(looks)
        assert len(looks) in standing.POCOCK


# --- Written and checked --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A small repository with two notebooks, whose pages are written; of 02 nothing is recorded."""
    root = tmp_path_factory.mktemp("repository")
    (root / "notebooks").mkdir()
    for name, words in (("02_revision", "02 · Revision"), ("04_links", "04 · Links")):
        nb = new_notebook(cells=[new_markdown_cell(f"# {words}\n\nText.")])
        nbformat.write(nb, root / "notebooks" / f"{name}.ipynb")
    made_up_evidence.write(root / "evidence", seeds=4)
    with pytest.MonkeyPatch.context() as patch:
        for script in (ledger, studies):
            patch.setattr(script, "ROOT", root)
        assert generated.main(["check"]) == 1
        assert generated.main(["write"]) == 0
        yield root


@pytest.fixture
def docs(made):
    """Its pages and pictures; what a test does to them is undone afterwards."""
    before = {path: path.read_bytes() for path in (made / "docs").rglob("*.*")}
    yield made / "docs"
    for path in (made / "docs").rglob("*.*"):
        path.unlink()
    for path, content in before.items():
        path.write_bytes(content)


def test_what_is_not_recorded_is_said(docs):
    text = (docs / "ledger.md").read_text(encoding="utf-8")
    assert "Of 02 nothing is recorded yet" in text
    assert "Of 04 nothing is recorded" not in text
    assert "[Study page](studies/04_links.md)" in text


def test_check_is_red_where_a_page_or_a_picture_is_another(docs, capsys):
    pictures = docs / "studies" / "pictures"
    page, ledger_page = docs / "studies" / "04_links.md", docs / "ledger.md"
    text = page.read_text(encoding="utf-8")
    number = text[: text.index("\n| AP ")].count("\n") + 2
    page.write_text(text.replace("\n| AP ", "\n| AP² ", 1), encoding="utf-8")
    content = ledger_page.read_bytes()
    ledger_page.write_bytes(content.replace(b"**supported**", b"**opposite**", 1))
    assert generated.main(["check"]) == 1
    assert "docs/ledger.md says something else" in capsys.readouterr().err
    ledger_page.write_bytes(content)
    (pictures / "04-world-overview.png").unlink()
    for name in ("objectives", "old"):
        Image.new("RGB", (4, 4)).save(pictures / f"04-world-{name}.png")
    assert generated.main(["check", "04"]) == 1
    assert capsys.readouterr().err.replace(": python ci/studies.py write", "").splitlines() == [
        f"docs/studies/04_links.md, line {number}, says something else",
        "docs/studies/pictures/04-world-overview.png shows something else, or is not there",
        "docs/studies/pictures/04-world-objectives.png shows something else, or is not there",
        "docs/studies/pictures/04-world-old.png is of no figure",
    ]


def test_evidence_that_cannot_be_judged_is_named(tmp_path, monkeypatch, made):
    monkeypatch.setattr(studies, "ROOT", tmp_path)
    (tmp_path / "notebooks").symlink_to(made / "notebooks")
    made_up_evidence.write(tmp_path / "evidence", method_version=0)
    with pytest.raises(SystemExit, match="was recorded by version 0 of the method"):
        generated.main(["check"])


def test_parts_that_people_write_must_all_be_there(tmp_path, monkeypatch):
    monkeypatch.setattr(studies, "PACKAGE", tmp_path)
    (tmp_path / "papers" / "x").mkdir(parents=True)
    (tmp_path / "papers" / "x" / "study.md").write_text("## Limits\n\ntext\n")
    with pytest.raises(DataError, match="its sections are not What was studied, Protocol"):
        studies.written_parts("x")


@pytest.mark.parametrize("number", [n for n in PAPERS if studies.has_study(PAPERS[n])])
def test_words_are_of_claims_and_tiers_that_exist(number):
    ids = {claim.id for claim in experiment(number).claims}
    for note in studies.words_of(PAPERS[number]).notes:
        assert set(note["claims"]) <= ids
        assert set(note["tiers"]) <= set(TIERS)


# --- Tables and pictures --------------------------------------------------------------------------


def test_a_table_in_markdown():
    frame = pd.DataFrame(
        {"r": [1.5, 20.0], "low": [0.25, 18.0], "high": [3.0, np.nan], "n": [1624.0, 3.0],
         "x": ["a|b", None], "long": [1 / 3, 2.0]},
        index=pd.MultiIndex.from_tuples([("d", "s"), ("d", "t")], names=["set", None]),
    )  # fmt: skip
    assert pages.frame_table(frame, {"d": "data", "n": "pairs"}).splitlines() == [
        "| set |  | r, 95 % interval | pairs | x | long |",
        "|---|---|---|---|---|---|",
        r"| data | s | 1.5 [0.25, 3] | 1,624 | a\|b | 0.333 |",
        "| data | t | 20.0 [18.00, –] | 3 | – | 2 |",
    ]


def drawn(height=2.0, title="a", label="x", bar=1.0, heat=0.5):
    figure, axes = plt.subplots(1, 3)
    axes[0].plot([0, 1], [1, height])
    axes[0].set(title=title)
    axes[1].barh([label], [bar])
    axes[2].imshow([[heat, 1.0]])
    axes[2].scatter([0], [heat])
    plt.close(figure)
    return figure


@pytest.mark.parametrize(
    "changed", [{"height": 2.01}, {"title": "b"}, {"label": "y"}, {"bar": 1.01}, {"heat": 0.51}]
)
def test_a_digest_is_of_what_a_figure_shows(changed):
    assert pages.digest_of(drawn()) == pages.digest_of(drawn(height=2.0 + 1e-9))
    assert pages.digest_of(drawn(**changed)) != pages.digest_of(drawn())


def test_a_picture_has_its_digest_and_no_more_than_256_colours(tmp_path):
    path = tmp_path / "a.png"
    assert pages.shown_in(path) == ""
    pages.write_picture(drawn(), path, "abc")
    assert pages.shown_in(path) == "abc"
    with Image.open(path) as image:
        assert image.mode == "P"


def test_the_picture_of_the_ledger_shows_each_tested_claim_of_each_kind_of_data():
    def record(verdict, effect=2.345, low=1.0, high=3.0, intervals=1, **more):
        told = {"id": "A", "claim": "x", "unit": "points", "smallest": 1.0, "kind": "greater"}
        told |= {"paper_effect": None, "intervals": intervals, "fragile": False, "size": ""}
        told |= {"parts": {"0": {"verdict": "supported"}}, "verdict": verdict}
        return told | {"effect": effect, "low": low, "high": high} | more

    tested = record("supported", kind="equivalent", paper_effect=2.0)
    beyond = record("opposite", -90.0, -95.0, -85.0)
    parts = {"a": {"effect": 2.0, "low": 1.0, "high": 3.0, "verdict": "supported"},
             "b": {"effect": -2.0, "low": -3.0, "high": -1.0, "verdict": "opposite"}}  # fmt: skip
    mixed = record("mixed", intervals=2, parts=parts)
    none = record("not tested", intervals=0, parts={})
    photographs = {"A": none, "C": mixed}
    figure = overview({
        "01": {"world": {"A": tested, "B": none, "C": none}, "photographs": photographs},
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
    spans = [list(map(float, line.get_xdata())) for line in first.lines
             if line.get_marker() == "None"]  # fmt: skip
    assert [1.0, 3.0] in spans
    assert [-3.0, 3.0] in spans
    assert not overview({}).axes
    plt.close("all")
