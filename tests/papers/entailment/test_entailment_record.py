"""A small grid recorded, read and judged by the suite's own commands."""

import pytest
import tiny_entailment as tiny

from mmlib.papers.entailment import data, experiment, judging
from mmlib.papers.entailment.experiment import judges, rungs
from mmlib.suite import record

JUDGES = ("Full", "Only TE")
RUNGS = ("CLIP-like, start", "ALBEF-like, start", "CLIP-like, extra golden",
         "CLIP-like, both (miner)", "CLIP-like, both (all)")  # fmt: skip


@pytest.fixture
def small(monkeypatch, tmp_path):
    """Paper 02 with a few systems on toy pictures."""
    few = [one for one in judges("world") if one.system in JUDGES]
    some = [one for one in rungs("world") if one.system in RUNGS]
    monkeypatch.setattr(record, "PAPERS", {"02": "entailment"})
    monkeypatch.setattr(judging, "job_folder", lambda: tmp_path / "kept")
    monkeypatch.setattr(experiment, "judges", lambda tier: few)
    monkeypatch.setattr(experiment, "rungs", lambda tier: some)
    monkeypatch.setattr(experiment, "budget", lambda *_: tiny.BUDGET)
    monkeypatch.setattr(data, "load_documents", lambda tier, datasets: None)
    monkeypatch.setattr(data, "load_arrays", lambda study, tier: {"world": tiny.arrays()})


def test_evidence_is_recorded_added_to_and_judged(small, tmp_path):
    how = {"workers": 1, "folder": tmp_path / "evidence", "jobs_folder": tmp_path / "jobs"}
    first = record.record("02", "world", [0], **how)
    both = record.record("02", "world", [0, 1], **how)
    assert both.seeds == [0, 1]
    for name, metric, split in (
        ("Full", "margin", "candidates"), ("CLIP-like, both (miner)", "mAP", "test"),
    ):  # fmt: skip
        own = both.values("world", name, metric, [0], split)
        assert own.tolist() == first.values("world", name, metric, [0], split).tolist()
    text = record.write_judgement("02", "world", tmp_path / "out", tmp_path / "evidence")
    assert "J1 " in text.replace("\n", " ")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"verdicts.json", "ledger.csv", "judges.csv", "ladder.png"} <= names
