"""Recording evidence: what is kept, what is refused, and a run that is killed."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import tiny_jobs
from tiny_jobs import DATA, Numbers, Settings

from mmlib.core import evidence, experiment
from mmlib.core.errors import DataError
from mmlib.suite import cli, record


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    """`mmlib record` knows the tests' own paper."""
    monkeypatch.setattr(experiment, "source_hash", lambda *modules: "tiny")
    monkeypatch.setattr(record, "room", tiny_jobs.room())


def make(folder, seeds=range(2), datasets=(), **more):
    return record.record(
        "04", tiny_jobs.TIER, seeds, datasets=datasets, workers=1, folder=folder,
        jobs_folder=more.pop("jobs_folder", folder / "jobs"), **more,
    )  # fmt: skip


def trained(folder):
    return (folder / "jobs" / "log").read_text().splitlines()


def test_what_is_recorded_is_read_back(tmp_path):
    found = make(tmp_path)
    again = record.read("04", "world", tmp_path)
    pd.testing.assert_frame_equal(again.table, found.table)
    assert again.header == json.loads(json.dumps(found.header))
    assert again.header["settings"]["odd"] == {"epochs": 3, "pause": 0.0}
    assert again.header["data"] == {"odd": "odd", "even": "even"}
    assert (again.header["seeds"], again.header["cpu_seconds"]) == ([0, 1], 12)
    assert {"commit", "versions", "machine", "python", "source"} <= set(again.header)


def test_seeds_and_data_sets_are_added_to_what_is_kept(tmp_path):
    whole = make(tmp_path / "whole", range(3))
    other = tmp_path / "parts"
    make(other, range(1), ["odd"])
    make(other, range(2), ["odd"], jobs_folder=tmp_path / "lost")  # only the file knows seed 0
    make(other, range(3), ["even"])
    found = make(other, range(3), jobs_folder=other / "jobs")
    pd.testing.assert_frame_equal(found.table, whole.table)
    same = [{**one.header, "commit": None} for one in (found, whole)]
    assert same[0] == same[1]
    assert len(trained(other)) == 2 + 6 + 2  # seed 1 of odd was trained elsewhere
    pd.testing.assert_frame_equal(make(other, range(3)).table, whole.table)
    assert len(trained(other)) == 10


def test_another_machine_adds_seeds_and_is_named(tmp_path, monkeypatch):
    there = {name: Numbers("by other arithmetic", own.items) for name, own in DATA.items()}
    monkeypatch.setattr(record, "outline", lambda own: {"exact": own.items, "sketches": []})
    make(tmp_path, range(2))
    monkeypatch.setattr(record, "room", tiny_jobs.room(data=there))
    make(tmp_path, range(3), ["odd"])
    found = make(tmp_path, range(4))
    assert len(trained(tmp_path)) == 8 + 2 + 2 + 4  # none of those on record
    head = found.header
    assert head["data"] == {"odd": "odd", "even": "even"}
    assert head["seeds"] == [0, 1, 2, 3]
    (added,) = head["added"]
    assert added["data"] == dict.fromkeys(("odd", "even"), "by other arithmetic")
    assert added["seeds"] == [2, 3]
    assert evidence.recorded_by(head, "odd", 3) == added
    assert evidence.recorded_by(head, "odd", 1) == head
    monkeypatch.setattr(record, "room", tiny_jobs.room())  # the first machine goes on
    again = make(tmp_path, range(5)).header
    assert (again["data"], again["added"]) == (head["data"], head["added"])
    other = {**DATA, "odd": Numbers("odd", 7)}  # other data there, and no outline that agrees
    monkeypatch.setattr(record, "room", tiny_jobs.room(data={**other, "odd": Numbers("new", 7)}))
    anew = make(tmp_path, range(1), replace=True)
    assert anew.header["data"] == {"odd": "new", "even": "even"}
    assert sorted(set(anew.table.seed[anew.table.dataset == "odd"])) == [0]
    assert evidence.recorded_by(anew.header, "odd", 0)["data"]["odd"] == "new"


@pytest.mark.parametrize("change", ["settings", "data", "source", "system"])
def test_what_has_changed_is_recorded_anew_if_asked(tmp_path, monkeypatch, change):
    make(tmp_path, range(1))
    if change == "settings":
        monkeypatch.setattr(record, "room", tiny_jobs.room({"odd": Settings(epochs=4)}))
    elif change == "data":
        data = {**tiny_jobs.DATA, "odd": Numbers("odd, other", 5)}
        monkeypatch.setattr(record, "room", tiny_jobs.room(data=data))
    elif change == "source":
        monkeypatch.setattr(record, "source_hash", lambda *modules: "other")
        monkeypatch.setattr(experiment, "source_hash", lambda *modules: "other")
    else:  # two systems trade their other columns
        monkeypatch.setattr(record, "room", tiny_jobs.room(systems=("b", "a")))
    told = {
        "settings": "odd of other data or settings",
        "data": "odd of other data or settings",
        "source": "odd, even by other code",
        "system": r"\w on \w+ of other settings; ",
    }[change]
    before = (tmp_path / "world" / "tiny.parquet").read_bytes()
    with pytest.raises(DataError, match=rf"tiny\.parquet holds {told}.*\(--replace\)"):
        make(tmp_path, range(1))
    assert (tmp_path / "world" / "tiny.parquet").read_bytes() == before
    assert len(trained(tmp_path)) == 4
    found = make(tmp_path, range(1), replace=True)
    monkeypatch.setattr(evidence, "source_hash", lambda *modules: found.header["source"])
    anew = {"settings": 2, "data": 2, "source": 4, "system": 4}[change]
    assert len(trained(tmp_path)) == 4 + anew
    assert not found.table.duplicated(
        ["dataset", "system", "seed", "split", "metric", "item"]
    ).any()
    pd.testing.assert_frame_equal(record.read("04", "world", tmp_path).table, found.table)


def test_of_what_is_recorded_anew_nothing_is_told(tmp_path, monkeypatch):
    head = make(tmp_path, range(1)).header
    path = tmp_path / "world" / "tiny.json"
    checked = [{"seeds": {"odd": 0, "even": 0}}, {"seeds": {"odd": 0}}]
    path.write_text(json.dumps({**head, "rechecked": checked}))
    assert make(tmp_path, range(2)).header["rechecked"] == checked
    monkeypatch.setattr(record, "room", tiny_jobs.room(data={**DATA, "odd": Numbers("new", 7)}))
    anew = make(tmp_path, range(2), replace=True).header
    assert anew["rechecked"] == [{"seeds": {"even": 0}}]
    assert anew["data"] == {"odd": "new", "even": "even"}


def test_a_record_of_other_code_or_other_settings_is_refused(tmp_path, monkeypatch):
    make(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(evidence, "source_hash", lambda *modules: "changed")
        with pytest.raises(DataError, match=r"other code \(commit .*mmlib.core.fit or what it imp"):
            record.read("04", "world", tmp_path)
    monkeypatch.setattr(record, "room", tiny_jobs.room({"even": Settings(epochs=9)}))
    with pytest.raises(DataError, match="even: its settings have changed; record anew"):
        record.read("04", "world", tmp_path)
    for systems in (("b", "a"), ("a", "c")):  # other columns, and one that is no more
        monkeypatch.setattr(record, "room", tiny_jobs.room(systems=systems))
        with pytest.raises(DataError, match=r"even: \w has changed; record anew"):
            record.read("04", "world", tmp_path)


def test_no_record_and_a_damaged_one_say_so(tmp_path, capsys):
    with pytest.raises(DataError, match="no evidence is recorded"):
        record.read("04", "world", tmp_path)
    make(tmp_path, range(1))
    path = tmp_path / "world" / "tiny.parquet"
    for broken, content in ((path, b"PAR1"), (path.with_suffix(".json"), b"{")):
        whole = broken.read_bytes()
        broken.write_bytes(content)
        with pytest.raises(DataError, match=r"damaged .*get it again or record anew"):
            record.read("04", "world", tmp_path)
        broken.write_bytes(whole)
    for wrong in (b"[]", b"{}"):
        head = path.with_suffix(".json")
        head.write_bytes(wrong)
        with pytest.raises(DataError, match=r"tiny\.json: damaged; get it again or record anew"):
            record.read("04", "world", tmp_path)
    head.write_bytes(json.dumps({**json.loads(whole), "paper": "links"}).encode())
    with pytest.raises(DataError, match=r"tiny\.json: is of the paper links; get it again"):
        record.read("04", "world", tmp_path)
    head.write_bytes(whole)
    pd.read_parquet(path).drop(columns="metric").to_parquet(path)
    with pytest.raises(DataError, match=r"damaged \(no column metric\); get it again"):
        record.read("04", "world", tmp_path)
    path.write_bytes(b"PAR1")
    capsys.readouterr()
    assert len(make(tmp_path, range(1)).table)  # recording does not read what it cannot
    assert "record anew: it will be replaced" in capsys.readouterr().err
    path.with_suffix(".json").unlink()
    with pytest.raises(DataError, match=r"tiny\.json: lost; get it again or record anew"):
        record.read("04", "world", tmp_path)


def test_a_seed_shared_by_two_machines_is_nobodys(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "outline", lambda own: {"exact": own.items, "sketches": []})
    monkeypatch.setattr(record, "room", tiny_jobs.room(systems=("a",)))
    make(tmp_path, range(2))
    there = {name: Numbers("by other arithmetic", own.items) for name, own in DATA.items()}
    monkeypatch.setattr(record, "room", tiny_jobs.room(data=there, systems=("a", "b")))
    head = make(tmp_path, range(3)).header
    assert head["mixed"] == {"odd": [0, 1], "even": [0, 1]}
    assert evidence.recorded_by(head, "odd", 0) is None
    assert evidence.recorded_by(head, "odd", 2)["data"]["odd"] == "by other arithmetic"
    monkeypatch.setattr(record, "room", tiny_jobs.room(systems=("a", "b", "c")))  # the first again
    again = make(tmp_path, range(3)).header
    assert again["mixed"] == {"odd": [0, 1, 2], "even": [0, 1, 2]}


def test_a_new_data_set_does_not_make_anothers_seeds_nobodys(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "outline", lambda own: {"exact": own.items, "sketches": []})
    make(tmp_path, range(1), ["odd"])
    there = {name: Numbers("by other arithmetic", own.items) for name, own in DATA.items()}
    monkeypatch.setattr(record, "room", tiny_jobs.room(data=there))
    monkeypatch.setattr(evidence, "machine", lambda: {"processor": "another"})
    make(tmp_path, range(2), ["odd"])
    head = make(tmp_path, range(2), ["even"]).header
    assert "mixed" not in head
    assert [(list(one["data"]), one["seeds"]) for one in head["added"]] == [
        (["odd"], [1]), (["even"], [0, 1]),
    ]  # fmt: skip
    assert evidence.recorded_by(head, "odd", 0) == head
    assert evidence.recorded_by(head, "even", 0)["data"] == {"even": "by other arithmetic"}
    again = make(tmp_path, range(3)).header  # both data sets go on
    assert "mixed" not in again
    assert evidence.recorded_by(again, "even", 2)["data"]["even"] == "by other arithmetic"
    assert evidence.recorded_by(again, "odd", 0) == again


def test_no_job_of_a_processor_is_taken_for_one_of_a_gpu(tmp_path, monkeypatch):
    asked = []

    def run_jobs(function, jobs, data, *, folder, **more):
        asked.append(folder)
        return []

    monkeypatch.setattr(record, "run_jobs", run_jobs)
    monkeypatch.setattr(record, "job_folder", lambda: tmp_path / "jobs")
    for device in ("cpu", "cuda:1"):
        with pytest.raises(AssertionError):  # nothing was recorded
            record.record("04", tiny_jobs.TIER, [0], device=device, folder=tmp_path)
    assert set(asked) == {None, tmp_path / "jobs" / "cuda"}


def test_seeds_of_a_processor_and_of_a_gpu_are_told_apart(tmp_path, monkeypatch):
    make(tmp_path, range(1))
    path = tmp_path / "world" / "tiny.json"
    head = json.loads(path.read_text())
    path.write_text(json.dumps({**head, "device": "cuda"}))
    (added,) = make(tmp_path, range(2)).header["added"]
    assert (added["device"], added["seeds"]) == ("cpu", [1])
    del head["device"]  # as older records are
    path.write_text(json.dumps({**head, "seeds": [0, 1]}))
    again = make(tmp_path, range(3)).header
    assert again["device"] == "cpu"
    assert "added" not in again


def test_a_system_that_left_the_grid_leaves_the_record(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "room", tiny_jobs.room(systems=("a", "b", "c")))
    make(tmp_path)
    monkeypatch.setattr(record, "room", tiny_jobs.room(systems=("a", "b")))
    with pytest.raises(DataError, match=r"holds c on \w+ of other settings; c on"):
        make(tmp_path)
    found = make(tmp_path, replace=True)
    assert set(record.read("04", "world", tmp_path).table.system) == {"a", "b"}
    path = tmp_path / "world" / "tiny.parquet"
    before = path.stat().st_mtime_ns
    pd.testing.assert_frame_equal(make(tmp_path).table, found.table.reset_index(drop=True))
    assert path.stat().st_mtime_ns == before  # nothing was left to write


def test_one_recording_at_a_time(tmp_path):
    with record.alone(tmp_path / "world", "tiny"), pytest.raises(DataError, match="is writing it"):
        make(tmp_path)
    make(tmp_path)


def test_step_times_are_measured_one_after_another_on_a_cluster_too(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "room", tiny_jobs.room(timed=True))
    with tiny_jobs.in_threads() as cluster:
        found = make(tmp_path, cluster=cluster.scheduler_address)
        assert set(found.table.value[found.table.metric == "ms"]) == {100}
        monkeypatch.setattr(record, "run_jobs", partial(at_once, record.run_jobs))
        with pytest.raises(FileExistsError):
            make(tmp_path / "again", cluster=cluster.scheduler_address)


def at_once(run_jobs, *arguments, **how):
    """As `run_jobs`, but it takes no care of what may run side by side."""
    return run_jobs(*arguments, **{**how, "side_by_side": True})


def test_the_command_line_tells_what_is_unusable_in_one_line(capsys, monkeypatch):
    monkeypatch.setattr(record, "room", lambda number, module: SimpleNamespace(
        load_documents=lambda *arguments, **more: pytest.fail("documents were built")
    ))  # fmt: skip
    for arguments in (
        ["--device", "cuda:99"], ["--seeds", "0"], ["--cluster", "nonsense://x"],
        ["--workers", "-1"], ["--workers", "2", "--cluster", "tcp://head:8786"],
    ):  # fmt: skip
        assert cli.main(["record", "04", *arguments]) == 2
        told = capsys.readouterr().err.strip()
        assert told.startswith("mmlib record: ")
        assert "\n" not in told


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_recording_killed_twenty_times_ends_in_the_same_table(tmp_path):
    script = Path(tiny_jobs.__file__)
    ran = subprocess.run(
        [sys.executable, script, tmp_path, "20"], capture_output=True, text=True, check=True,
        timeout=900,
    )  # fmt: skip
    hit, kept = map(int, ran.stdout.split())
    assert hit >= 15  # the others came to an end first
    assert kept > 0
    whole, killed = (tmp_path / name / "world" / "tiny.parquet" for name in ("whole", "killed"))
    assert whole.read_bytes() == killed.read_bytes()
    heads = [json.loads(one.with_suffix(".json").read_text()) for one in (whole, killed)]
    assert all(head.pop("cpu_seconds") >= 0 for head in heads)  # as measured
    assert heads[0] == heads[1]
