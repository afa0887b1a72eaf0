"""The ledger: each claim stands under its verdict, with its figures and where they come from."""

from types import SimpleNamespace
from typing import get_args

import made_up_cora
import made_up_evidence
import nbformat
import pytest
from nbformat.v4 import new_markdown_cell, new_notebook
from scipy import stats
from scripts import load

from mmlib.core import recordings
from mmlib.core.claims import Claim, assess
from mmlib.core.effects import Effect
from mmlib.core.evidence import NO_SEED, evidence_dir
from mmlib.papers.links.claims import CLAIMS
from mmlib.suite.papers import PAPERS

ledger = load("ci/ledger.py")


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
    return [line for line in text.splitlines() if "| **" in line]


def test_claims_stand_under_their_verdicts_judged_from_evidence(repository):
    text = written(repository)
    assert "Of 02 nothing is recorded yet" in text
    assert "Of 04 nothing is recorded yet" in text
    assert "\n## Supported" not in text
    made_up_evidence.write(repository / "evidence", seeds=6, noise=4)
    text = written(repository)
    assert "Of 02 nothing is recorded yet" in text
    assert "Of 04 nothing is recorded" not in text
    assert len(rows(text)) == len(CLAIMS)
    (best,) = (row for row in rows(section(text, "Supported")) if "**C1**" in row)
    paper = "94.9 to 98.9 against 84.2 to 89.5 (MSCOCO, DII-Stress); lowest lead 2.1 (DIY)"
    assert f"| {paper} |" in best
    assert "AUC points | 2, sd " in best
    assert "another verdict in 0 % of halves of the seeds | picture world, 6 seeds |" in best
    undecided = section(text, "Undecided")
    assert "| detectable | seeds needed |" in undecided
    (open_,) = (row for row in rows(undecided) if "**C2**" not in row and "**C4**" in row)
    assert open_.split(" | ")[-3].endswith(" AUC points")
    assert int(open_.split(" | ")[-2]) > 6
    assert "| this tier has no stress documents | picture world, 6 seeds |" in text
    assert "| `mmlib record 04 --tier world --seeds 6` |" in text
    assert "| 1 AUC points | 2, sd " in best
    assert best.startswith("| [04](../notebooks/04_links.ipynb) | ")
    assert "| 1.5 CPU hours |" in text


def test_each_data_set_tells_its_own_seeds(repository):
    own = made_up_cora.make("flickr8k", "flickr8k", seeds=6)
    found = made_up_cora.both(own, made_up_cora.make("flickr8k", "flickr8k_long", seeds=4))
    head = found.header | {
        "machine": {}, "method_version": 1, "device": "cpu", "inputs": {}, "inapplicable": {},
        "commit": None,
    }  # fmt: skip
    table = found.table.assign(value=found.table.value.clip(0, 1800))  # made up too high
    recordings.write(repository / "evidence" / "flickr8k" / "cora", table, head)
    nb = new_notebook(cells=[new_markdown_cell("# 03 · CORA")])
    nbformat.write(nb, repository / "notebooks" / "03_cora.ipynb")
    text = written(repository)
    seeds = {row.split("**")[1]: row.split(" | ")[-1] for row in rows(text) if "**C" in row}
    assert {name: seeds[name] for name in ("C5", "C5a", "C5b")} == {
        "C5": "Flickr8k, 6 seeds |", "C5a": "Flickr8k, 4 seeds |", "C5b": "Flickr8k, 4 seeds |"
    }  # fmt: skip
    assert (
        "`mmlib record 03 --tier flickr8k --seeds 6 --datasets flickr8k`, "
        "`mmlib record 03 --tier flickr8k --seeds 4 --datasets flickr8k_long`"
    ) in text
    assert "| `unknown`: 0–5 (flickr8k), 0–3 (flickr8k_long) |" in text
    assert "flickr8k_bert was not recorded" in text


def judged(effect, se=1.0, df=10.0, smallest=1.0, kind="greater", every=False, **more):
    """A claim judged on parts of these effects."""
    parts = {name: Effect(own, se, df) for name, own in {"": effect, **more}.items()}
    claim = Claim(
        "X", "", "", "", "points", smallest, "", kind, every, effects=lambda *_: parts
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
    assert ledger._once(assess(claim, found, seeds), found) is once


@pytest.mark.parametrize(
    ("one", "verdict", "far"),
    [
        (judged(3.0), "supported", 3.0),
        (judged(-3.0), "opposite", 3.0),
        (judged(0.5, se=0.1), "negligible", 5.0),
        (judged(-0.5, se=0.1, kind="equivalent"), "supported", 5.0),
        (judged(-4.0, kind="equivalent"), "opposite", 3.0),
        (judged(3.0, every=True, b=5.0), "supported", 3.0),
        (judged(-3.0, every=True, b=5.0, c=-4.0), "opposite", 4.0),
    ],
)
def test_a_verdict_is_lost_where_its_interval_would_just_reach_an_edge(one, verdict, far):
    assert one.verdict == verdict
    found = ledger.lost_at(one)
    assert found == pytest.approx(2 * stats.t.sf(far, 10))
    # An interval at this level ends at the edge.
    assert stats.t.ppf(1 - found / 2, 10) == pytest.approx(far)


def test_an_undecided_claim_has_no_verdict_to_lose():
    assert ledger.lost_at(judged(1.0)) == 1


def test_marks_stand_at_verdicts_that_a_correction_would_take():
    def entry(name, level, allowed, verdict="supported"):
        return ledger.Entry(
            "03_cora", "world", 6, verdict, {"claim": f"**{name}** x"}, level, allowed
        )

    entries = [
        entry("A", 0.001, 0.05), entry("B", 0.04, 0.05), entry("C", 0.03, 0.0221),
        entry("D", 1.0, 0.05, "undecided"), entry("E", 1.0, 0.05, "not tested"),
    ]  # fmt: skip
    text = ledger.page(entries, [])
    # Of four tested claims: .001 * 4 / 1, .03 * 4 / 2 and .04 * 4 / 3, of which the last is less.
    assert "**A** x" in text
    assert "**B** † x" in text
    assert "**C** †‡ x" in text
    assert "**D** x" in text
    assert "**E** x" in text


def test_looks_end_with_the_seeds_on_record():
    for (number, tier), looks in ledger.LOOKS.items():
        found = recordings.read(evidence_dir() / tier / PAPERS[number])
        assert looks[-1] == len(found.seeds)
        assert list(looks) == sorted(set(looks))


def test_evidence_of_another_method_is_refused(repository, monkeypatch):
    made_up_evidence.write(repository / "evidence", method_version=0)
    with pytest.raises(SystemExit, match="was recorded by version 0 of the method"):
        ledger.main(["check"])


def test_check_fails_until_the_ledger_is_written(repository, capsys):
    made_up_evidence.write(repository / "evidence")
    assert ledger.main(["check"]) == 1
    assert "python ci/ledger.py write" in capsys.readouterr().err
    ledger.main(["write"])
    assert ledger.main(["check"]) == 0
    made_up_evidence.write(repository / "evidence", noise=4)
    assert ledger.main(["check"]) == 1


def test_each_recording_is_named_with_its_seeds_and_its_gpu():
    gpu, none = {"gpu": "NVIDIA H200"}, {"gpu": None}
    every = {"jobs": {"f": {"a": [0, 1, 3], "b": [NO_SEED]}, "g": {"a": [0, 1, 3]}}}
    headers = [
        {"commit": "a" * 40, "machine": gpu, "device": "cpu", **every},
        {"commit": "b", "machine": gpu, "device": "cuda", "jobs": {"f": {"a": [4, 5]}}},
        {"commit": None, "machine": none, "device": "cpu",
         "jobs": {"f": {"a": [6]}, "g": {"b": [NO_SEED]}}},
    ]  # fmt: skip
    assert ledger.recorded_by(SimpleNamespace(recordings=headers)) == (
        f"`{'a' * 12}`: 0–1, 3; `b`, GPU: NVIDIA H200: 4–5; `unknown`: 6 (f), no seed (g)"
    )


def test_a_bar_in_a_cell_does_not_end_it():
    assert ledger.table(["a"], [["|A|"]]).splitlines()[-1] == r"| \|A\| |"


def test_a_broken_record_is_named(repository):
    made_up_evidence.write(repository / "evidence")
    [path] = recordings.paths_of(repository / "evidence" / "world" / "links")
    path.write_text("{")
    with pytest.raises(SystemExit, match=rf"{path.name}: damaged"):
        ledger.main(["check"])


def test_every_verdict_has_a_group():
    assert set(ledger.GROUPS) == set(get_args(ledger.claims.Verdict))
