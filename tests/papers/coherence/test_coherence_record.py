"""A small grid recorded, read and judged by the suite's own commands."""

import pytest
import tiny_coherence

from mmlib.papers.coherence import data, experiment
from mmlib.papers.coherence.experiment import CMCA, CMCM
from mmlib.suite import record


@pytest.fixture
def small(monkeypatch):
    """Paper 01 with two systems on toy pairs, four epochs each."""
    monkeypatch.setattr(record, "PAPERS", {"01": "coherence"})
    monkeypatch.setattr(experiment, "trained", lambda dataset: [CMCA, CMCM])
    monkeypatch.setattr(experiment, "budget", lambda *_: tiny_coherence.HOW)
    monkeypatch.setattr(experiment, "relations_of", lambda _: tiny_coherence.RELATIONS)
    monkeypatch.setattr("mmlib.papers.coherence.figures.relations_of",
                        lambda _: tiny_coherence.RELATIONS)  # fmt: skip
    monkeypatch.setattr("mmlib.papers.coherence.figures.trained", lambda _: [CMCA, CMCM])
    monkeypatch.setattr(data, "load_documents", lambda tier, datasets: None)
    monkeypatch.setattr(data, "load_arrays", lambda *_: {"Clue-like": tiny_coherence.tiny()})


def test_evidence_is_recorded_added_to_and_judged(small, tmp_path):
    how = {"workers": 1, "folder": tmp_path / "evidence", "jobs_folder": tmp_path / "jobs"}
    first = record.record("01", "world", [0], **how)
    both = record.record("01", "world", [0, 1], **how)
    assert both.seeds == [0, 1]
    for name in ("CMCA", "CMCM", "Random"):
        own = both.values("Clue-like", name, "rank", [0])
        assert own.tolist() == first.values("Clue-like", name, "rank", [0]).tolist()
    text = record.write_judgement("01", "world", tmp_path / "out", tmp_path / "evidence")
    assert "K2 " in text.replace("\n", " ")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"verdicts.json", "ledger.csv", "results_Clue-like.csv", "overview.png"} <= names
