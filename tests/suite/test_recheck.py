"""The recheck: a sample is trained again, and other figures are found."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import tiny_jobs
from scripts import load
from tiny_jobs import DATA, Numbers

from mmlib.core import engine, evidence, recordings
from mmlib.core.engine import Resources
from mmlib.suite import record

recheck = load("ci/recheck.py")


@pytest.fixture
def old(tmp_path, monkeypatch):
    """A record of three seeds of the tests' own paper."""
    paper = tiny_jobs.experiment()
    monkeypatch.setattr(engine, "source_hash", lambda *modules: "tiny")
    monkeypatch.setattr(record, "experiment_of", lambda number: paper)
    monkeypatch.setattr(recheck, "experiment_of", lambda number: paper)
    monkeypatch.setattr(recheck, "evidence_dir", lambda: tmp_path)
    monkeypatch.setattr(record, "evidence_dir", lambda: tmp_path)
    monkeypatch.setattr(recheck, "job_folder", lambda: tmp_path / "again")
    resources = Resources(workers=1, folder=tmp_path / "jobs")
    record.record("04", "world", range(3), resources=resources, folder=tmp_path)
    return tmp_path


def again(folder, experiment=None, **how):
    found = recordings.read(folder / "world" / "tiny")
    return recheck.recheck(
        experiment or tiny_jobs.experiment(), found, recheck.sample(found), workers=1,
        folder=folder / "again", **how,
    )  # fmt: skip


def files(folder):
    return {path: path.read_bytes() for path in folder.glob("world/**/*.parquet")}


def changed(folder, where, factor=1.0, more=0.0, items=slice(None)):
    """Multiply the recorded values of a query, and add to them."""
    found = recordings.read(folder / "world" / "tiny")
    series = found.series.copy()
    for row in series.query(where).index:
        values = series.loc[row, "value"]
        values[items] = values[items] * np.float32(factor) + np.float32(more)
    for path in recordings.paths_of(folder / "world" / "tiny"):
        path.unlink()
    own = {  # of both data sets
        name: {k: v for one in found.recordings for k, v in one[name].items()}
        for name in recordings.BY_DATASET
    }
    recordings.write(folder / "world" / "tiny", series, {**found.recordings[0], **own})


def test_the_same_code_gives_the_same_figures(old, capsys):
    before = files(old)
    assert recheck.main(["04", "--workers", "1"]) == 0
    text = capsys.readouterr().out
    assert "4 equal" in text
    assert files(old) == before
    trained = list(old.glob("again/**/log"))
    assert [len(log.read_text().splitlines()) for log in trained] == [4]
    assert recheck.main(["all", "--workers", "1"]) == 0  # what is finished is not run again
    assert [len(log.read_text().splitlines()) for log in trained] == [4]


def test_a_seed_of_each_system_is_drawn_by_its_name(old):
    found = recordings.read(old / "world" / "tiny")
    chosen = recheck.sample(found)
    assert set(chosen) == {(name, system) for name in DATA for system in "ab"}
    assert set(chosen.values()) <= {0, 1, 2}
    assert recheck.sample(found) == chosen
    others = [recheck.sample(found, 0.5, str(night)) for night in range(9)]
    assert set().union(*others) == set(chosen)  # in time all are checked
    shares = [recheck.sample(found, share) for share in (0, 0.3, 0.6, 1)]
    assert shares[0] == {}
    assert all(small.items() <= large.items() for small, large in pairwise(shares))


@pytest.mark.parametrize("what", ["metric == 'AUC'", "split == 'epochs'"])
@pytest.mark.parametrize(("factor", "verdict"), [(1 + 1e-5, "within rounding"), (1.01, "DIFFERS")])
def test_other_figures_are_found(old, capsys, what, factor, verdict):
    changed(old, f"dataset == 'even' and system == 'a' and {what}", factor)
    report = again(old).set_index(["dataset", "system"])
    assert report.verdict.to_dict() == {
        ("even", "a"): verdict, ("even", "b"): "equal", ("odd", "a"): "equal", ("odd", "b"): "equal"
    }  # fmt: skip
    assert report.difference["even", "a"] == pytest.approx(factor - 1, rel=0.05)
    assert recheck.main(["04", "--workers", "1"]) == (verdict == "DIFFERS")


@pytest.mark.parametrize("what", ["arithmetic", "data"])
def test_elsewhere_the_seeds_spread_counts(old, monkeypatch, what):
    paper = tiny_jobs.experiment()
    if what == "arithmetic":
        here = evidence.machine()
        there = {**here, "arithmetic": "another"}
        monkeypatch.setattr("mmlib.core.regression.machine", lambda: there)
    else:
        other = {name: Numbers("elsewhere", own.items) for name, own in DATA.items()}
        paper = tiny_jobs.experiment(data=other)
    report = again(old, paper)
    assert set(report.arithmetic) == {"another"}
    assert set(report.verdict) == {"within the spread"}
    changed(old, "dataset == 'even' and metric == 'AUC' and system == 'a'", 1.001)
    changed(old, "dataset == 'even' and metric == 'AUC' and system == 'b'", more=50)
    report = again(old, paper).set_index(["dataset", "system"])
    assert report.verdict["even", "a"] == "within the spread"
    assert report.verdict["even", "b"] == "DIFFERS: AUC (test)"


def test_some_epochs_alone(old):
    changed(old, "split == 'epochs'", 2, items=2)
    assert set(again(old, epochs=2).verdict) == {"equal"}
    assert set(again(old, epochs=3).verdict) == {"DIFFERS"}


def test_rows_that_are_no_longer_measured_are_found(old, monkeypatch):
    monkeypatch.setattr(tiny_jobs, "train", without_a_metric)
    assert set(again(old).verdict) == {"OTHER ROWS"}


def without_a_metric(job, data, run, train=tiny_jobs.train):
    answer = train(job, data, run)
    return replace(answer, values={"test": {"AUC": answer.values["test"]["AUC"]}})
