"""Trained on other features than recorded: nothing is compared, and recorded verdicts say so."""

from dataclasses import replace

import made_up_evidence
import numpy as np
import pytest
import tiny_jobs
from test_flickr8k import NAMES, make
from tiny_jobs import DATA

from mmlib.core import engine, recordings
from mmlib.core.engine import Resources
from mmlib.core.errors import DataError
from mmlib.core.paths import evidence_dir
from mmlib.core.regression import check_paired, print_check
from mmlib.data import flickr8k
from mmlib.features import sets
from mmlib.papers.links import show
from mmlib.suite import outcomes, record

LIVE = {("even", "a", 0, "AUC"): 6.0}


def add_set(folder, name, seed):
    values = np.random.default_rng(seed).normal(size=(8, 5)).astype(np.float32)
    np.save(folder / "features" / f"{name}.npy", values)
    (folder / "features" / f"{name}.ids.txt").write_text("\n".join(NAMES) + "\n")


@pytest.fixture
def photographs(tmp_path, monkeypatch):
    """A small Flickr8k with three feature sets, and a paper that reads it in the tier world."""
    folder = make(tmp_path / "data" / "flickr8k")
    for seed, name in enumerate(("clip", "dino")):
        add_set(folder, name, seed)
    monkeypatch.setenv("MMLIB_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("MMLIB_FEATURES", raising=False)
    monkeypatch.setattr(sets, "_opened", [])
    monkeypatch.setattr(engine, "source_hash", lambda *modules: "tiny")
    paper = tiny_jobs.experiment()
    paper = replace(
        paper, inputs={"world": ("flickr8k/captions.txt", record.FEATURES)},
        load_study=lambda tier, names: flickr8k.load("test") and list(DATA),
    )  # fmt: skip
    monkeypatch.setattr(record, "experiment_of", lambda number: paper)
    return folder


def make_record(folder, seeds=range(2), **more):
    resources = Resources(workers=1, folder=folder / "jobs")
    return record.record("04", "world", seeds, resources=resources, folder=folder, **more)


def test_a_recording_says_which_features_it_used_and_hashes_no_others(
    photographs, tmp_path, monkeypatch
):
    monkeypatch.setenv("MMLIB_FEATURES", "clip")
    found = make_record(tmp_path / "mine")
    head, *_ = found.recordings
    assert head["features"] == sets.note(flickr8k.sets.opened(photographs / "features", "clip"))
    assert (head["features"]["set"], head["features"]["width"]) == ("clip", 5)
    names = [name for name in head["inputs"] if "/features/" in name]
    assert names == ["flickr8k/features/clip.ids.txt", "flickr8k/features/clip.npy"]
    add_set(photographs, "dino", 7)  # another set may change
    make_record(tmp_path / "mine", range(3))
    monkeypatch.setenv("MMLIB_FEATURES", "dino")
    with pytest.raises(DataError, match=r"in the image features: record anew .*--evidence DIR"):
        make_record(tmp_path / "mine", range(4))


def test_figures_of_other_features_are_not_compared(photographs, tmp_path, monkeypatch, capsys):
    make_record(tmp_path / "mine")
    found = record.read("04", "world", tmp_path / "mine")
    assert found.other_features == ""
    assert check_paired(LIVE, found, DATA)["comparable"]
    assert "not of this run" not in capsys.readouterr().out
    monkeypatch.setenv("MMLIB_FEATURES", "clip")
    flickr8k.load("test")
    found = record.read("04", "world", tmp_path / "mine")
    said = capsys.readouterr().out
    assert said.startswith(
        "Recorded figures, claims and verdicts are not of this run: trained on other features "
        "than recorded (recorded: grid4x4_mobilenetv1_pca192: 4 × 3, "
    )
    check = check_paired(LIVE, found, DATA)
    assert (check["comparable"], check["figures"]) == (False, [])
    assert "here: clip: 1 × 5, SHA-256 " in check["why"]
    print_check(check)
    assert capsys.readouterr().out == f"not compared: {check['why']}\n"
    assert found.comparable({"a": 1}) == {}
    monkeypatch.delenv("MMLIB_FEATURES")
    (photographs / "features" / "ids.txt").write_text("\n".join(NAMES[::-1]))
    flickr8k.load("test")  # the same file, its rows in another order
    assert record.read("04", "world", tmp_path / "mine").other_features


def test_a_summary_heads_verdicts_that_are_not_of_the_run(tmp_path):
    why = "trained on other features than recorded (recorded: a; here: b)"
    claim = {"id": "S1", "claim": "so", "verdict": "supported", "effect": None, "why": ""}
    report = outcomes.NotebookReport("03_cora", tmp_path / "a", tmp_path, claims=[claim])
    report.checks = {"comparable": False, "why": why, "figures": []}
    heads = [line for line in outcomes.summary_text([report]).splitlines() if "not of this" in line]
    assert heads == [f"03  verdicts of the record, not of this run, which was {why}:"]
    report.checks["why"] = "trained for other epochs than recorded"
    assert "not of this run" not in outcomes.summary_text([report])


def diamonds(figure):
    return sum(line.get_marker() == "D" for axis in figure.axes for line in axis.lines)


def test_no_diamond_of_other_features_among_recorded_dots():
    found = made_up_evidence.cut("04", datasets=["coco"])
    live = {("coco", "AP"): 70.0}
    assert diamonds(show.ranked(found, ["coco"], live)) == 1
    used = {"set": "mine", "sha256": "b" * 64, "ids_sha256": "i"}
    recorded = {"set": "theirs", "sha256": "a" * 64, "ids_sha256": "i"}
    other = replace(found, header={**found.header, "features": recorded, "features_used": used})
    assert diamonds(show.ranked(other, ["coco"], live)) == 0


@pytest.mark.parametrize("paper", ["coherence", "cora", "entailment", "links"])
def test_records_say_which_features_they_used(paper):
    for head in recordings.read(evidence_dir() / "flickr8k" / paper).recordings:
        assert head["features"]["set"] == "grid4x4_mobilenetv1_pca192"
        assert head["features"]["sha256"].startswith("ea59734f50437a9695cd276e74aa97c6")
    found = recordings.read(evidence_dir() / "world" / paper)
    assert found.header["features"] == {}
