"""A small grid recorded, read and judged by the suite's own commands."""

from dataclasses import replace

import pytest
import tiny_cora
from PIL import Image

from mmlib.core.engine import Resources
from mmlib.papers.cora.run import record as grid
from mmlib.papers.cora.run import systems
from mmlib.papers.cora.run.record import EXPERIMENT
from mmlib.papers.cora.run.systems import SYSTEMS
from mmlib.suite import record

FEW = ("CORA", "Joint", "Sequence, CORA's rest")


@pytest.fixture
def small(monkeypatch):
    """Paper 03 with three systems on toy pictures, one epoch each; no query is timed."""

    def budget(tier, dataset):
        return replace(tiny_cora.HOW, epochs=1)

    monkeypatch.setattr(systems, "SYSTEMS", {name: SYSTEMS[name] for name in FEW})
    monkeypatch.setattr(grid, "budget", budget)
    tiny = replace(
        EXPERIMENT,
        load_study=lambda tier, datasets: {},
        load_arrays=lambda study, tier: {"world": tiny_cora.tiny()},
        budget=budget,
        stages=lambda *how: grid.stages(*how)[:-1],
    )
    monkeypatch.setattr(record, "experiment_of", lambda number: tiny)


def test_evidence_is_recorded_added_to_and_judged(small, tmp_path):
    resources = Resources(workers=1, folder=tmp_path / "jobs")
    how = {"resources": resources, "folder": tmp_path / "evidence"}
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
