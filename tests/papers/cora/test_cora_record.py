"""A small grid recorded, read and judged by the suite's own commands."""

from dataclasses import replace

import pytest
import tiny_cora
from PIL import Image

from mmlib.papers.cora import data, experiment
from mmlib.papers.cora.experiment import SYSTEMS
from mmlib.suite import record

FEW = ("CORA", "Joint", "Sequence, CORA's rest")


@pytest.fixture
def small(monkeypatch):
    """Paper 03 with three systems on toy pictures, one epoch each; no query is timed."""
    stages = experiment.stages
    monkeypatch.setattr(record, "PAPERS", {"03": "cora"})
    monkeypatch.setattr(experiment, "SYSTEMS", {name: SYSTEMS[name] for name in FEW})
    monkeypatch.setattr(experiment, "budget", lambda *_: replace(tiny_cora.HOW, epochs=1))
    monkeypatch.setattr(experiment, "stages", lambda *how: stages(*how)[:-1])
    monkeypatch.setattr(data, "load_documents", lambda tier, datasets: None)
    monkeypatch.setattr(data, "load_arrays", lambda study, tier: {"world": tiny_cora.tiny()})


def test_evidence_is_recorded_added_to_and_judged(small, tmp_path):
    how = {"workers": 1, "folder": tmp_path / "evidence", "jobs_folder": tmp_path / "jobs"}
    first = record.record("03", "world", [0], **how)
    both = record.record("03", "world", [0, 1], **how)
    assert both.seeds == [0, 1]
    for name in FEW:
        own = both.values("world", name, "RSUM", [0])
        assert own.tolist() == first.values("world", name, "RSUM", [0]).tolist()
    text = record.write_judgement("03", "world", tmp_path / "out", tmp_path / "evidence")
    assert "C2 " in text.replace("\n", " ")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"verdicts.json", "ledger.csv", "results_world.csv", "overview.png"} <= names
    with Image.open(tmp_path / "out" / "overview.png") as drawn:  # in the style of the notebooks
        assert drawn.info["dpi"] == pytest.approx((150, 150), abs=0.1)
