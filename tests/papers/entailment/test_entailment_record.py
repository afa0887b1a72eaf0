"""A small grid recorded, read and judged by the suite's own commands."""

from dataclasses import replace

import pytest
import tiny_entailment as tiny

from mmlib.core.engine import Resources
from mmlib.papers.entailment import grid, systems
from mmlib.papers.entailment.experiment import EXPERIMENT
from mmlib.suite import record

JUDGES = ("Full", "Only TE")
VARIANTS = ("CLIP-like, start", "ALBEF-like, start", "CLIP-like, extra golden",
            "CLIP-like, both (miner)", "CLIP-like, both (all)")  # fmt: skip


@pytest.fixture
def small(monkeypatch):
    """Paper 02 with a few systems on toy pictures."""
    judges = [row for row in systems.judges("world") if row.system in JUDGES]
    variants = [row for row in systems.variants("world") if row.system in VARIANTS]
    for module in (grid, systems):
        monkeypatch.setattr(module, "judges", lambda tier: judges)
        monkeypatch.setattr(module, "variants", lambda tier: variants)
        monkeypatch.setattr(module, "budget", lambda *_: tiny.BUDGET)
    experiment = replace(
        EXPERIMENT, budget=lambda *_: tiny.BUDGET, load_study=lambda tier, names: None,
        load_arrays=lambda study, tier: {"world": tiny.arrays()},
    )  # fmt: skip
    monkeypatch.setattr(record, "experiment_of", lambda number: experiment)


def test_evidence_is_recorded_added_to_and_judged(small, tmp_path):
    resources = Resources(workers=1, folder=tmp_path / "jobs")
    how = {"resources": resources, "folder": tmp_path / "evidence"}
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
