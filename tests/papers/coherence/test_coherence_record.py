"""A small grid recorded, read and assessed by the suite's own commands."""

from dataclasses import replace

import pytest
import tiny_coherence

from mmlib.core.engine import Resources
from mmlib.papers.coherence import experiment, run, show
from mmlib.papers.coherence.run import CMCA, CMCM
from mmlib.suite import record


@pytest.fixture
def small(monkeypatch):
    """Paper 01 with two systems on toy pairs, four epochs each."""
    for module in (run, show):
        monkeypatch.setattr(module, "trained_systems", lambda dataset: [CMCA, CMCM])
        monkeypatch.setattr(module, "relations_of", lambda dataset: tiny_coherence.RELATIONS)
    monkeypatch.setattr(run, "budget", lambda *_: tiny_coherence.HOW)
    toy = replace(
        experiment.EXPERIMENT,
        datasets=lambda tier: ["Clue-like"],
        load_study=lambda tier, datasets: None,
        load_arrays=lambda *_: {"Clue-like": tiny_coherence.tiny()},
        budget=lambda *_: tiny_coherence.HOW,
    )
    monkeypatch.setattr(experiment, "EXPERIMENT", toy)


def test_evidence_is_recorded_added_to_and_assessed(small, tmp_path):
    resources = Resources(workers=1, folder=tmp_path / "jobs")
    folder = tmp_path / "evidence"
    first = record.record("01", "world", [0], resources=resources, folder=folder)
    both = record.record("01", "world", [0, 1], resources=resources, folder=folder)
    assert both.seeds == [0, 1]
    for name in ("CMCA", "CMCM", "Random"):
        ranks = both.values("Clue-like", name, "rank", [0])
        assert ranks.tolist() == first.values("Clue-like", name, "rank", [0]).tolist()
    text = record.write_judgement("01", "world", tmp_path / "out", folder)
    assert "K2 " in text.replace("\n", " ")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"verdicts.json", "ledger.csv", "results_Clue-like.csv", "overview.png"} <= names
