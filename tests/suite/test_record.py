"""Recording evidence: what is kept, what is refused, and a run that is killed."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import made_up_evidence
import numpy as np
import pandas as pd
import pytest
import tiny_jobs
from scripts import until
from tiny_jobs import DATA, Numbers, Settings, is_alive, wait_for

from mmlib.core import engine, evidence, recordings
from mmlib.core.engine import Resources
from mmlib.core.errors import DataError
from mmlib.suite import cli, papers, record


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    """`mmlib record` knows the tests' own paper."""
    monkeypatch.setattr(engine, "source_hash", lambda *modules: "tiny")
    use(monkeypatch)


def use(monkeypatch, settings=None, found=None, **more):
    """Let the tests' paper be this one from now on; found: the systems that it says it has."""
    paper = tiny_jobs.experiment(settings, **more)
    paper = replace(paper, systems=lambda tier, name: found) if found else paper
    monkeypatch.setattr(record, "experiment_of", lambda number: paper)
    return paper


def make(folder, seeds=range(2), datasets=(), jobs_folder=None, cluster="", **more):
    resources = Resources(workers=1, cluster=cluster, folder=jobs_folder or folder / "jobs")
    return record.record(
        "04", tiny_jobs.TIER, seeds, datasets=datasets, resources=resources, folder=folder, **more
    )


def trained(folder):
    return (folder / "jobs" / "log").read_text().splitlines()


def files(folder):
    """Everything below the evidence of the tests' paper, by name."""
    root = folder / "world" / "tiny"
    return {path.relative_to(root): path.read_bytes() for path in root.rglob("*.parquet")}


def numbers(folder):
    """Data set and number of each recording."""
    paths = recordings.paths_of(folder / "world" / "tiny")
    return [f"{path.parent.name}/{path.name[:3]}" for path in paths]


def test_seeds_and_data_sets_are_other_files_and_read_as_one(tmp_path, monkeypatch):
    with pytest.raises(DataError, match="no evidence is recorded"):
        record.read("04", "world", tmp_path)
    whole = make(tmp_path / "whole", range(3))
    other = tmp_path / "parts"
    make(other, range(1), ["odd"])
    make(other, range(2), ["odd"], jobs_folder=tmp_path / "lost")  # only the file has seed 0
    before = files(other)
    make(other, range(3), ["even"])
    found = make(other, range(3))
    pd.testing.assert_frame_equal(found.series, whole.series)
    assert found.header["cpu_seconds"] == whole.header["cpu_seconds"]
    assert numbers(other) == ["even/001", "odd/001", "odd/002", "odd/003"]
    assert before.items() <= files(other).items()  # none was written again
    assert len(trained(other)) == 2 + 6 + 2  # seed 1 of odd was trained elsewhere
    written = files(other)
    monkeypatch.setattr(engine, "source_hash", lambda *modules: "changes no figure")
    pd.testing.assert_frame_equal(make(other, range(3)).series, whole.series)
    assert len(trained(other)) == 10
    assert files(other) == written  # nothing was left to record


def test_another_machine_adds_seeds_and_is_named(tmp_path, monkeypatch):
    make(tmp_path, range(2))
    there = {name: Numbers("by other arithmetic", own.items) for name, own in DATA.items()}
    use(monkeypatch, data=there)
    with pytest.raises(DataError, match=r"odd/001-\w+\.parquet differs .* in the data of odd: rec"):
        make(tmp_path, range(4), ["odd"])  # of the same arithmetic: it is other data
    monkeypatch.setattr(evidence, "arithmetic", lambda: "another")
    found = make(tmp_path, range(4))
    assert found.recording_of("odd", "a", 3)["data"]["odd"] == "by other arithmetic"
    assert found.recording_of("odd", "a", 1)["data"]["odd"] == "odd"
    assert found.recording_of("odd", "a", 9) is None
    assert found.seeds == [0, 1, 2, 3]


OTHER_DATA = {**DATA, "odd": Numbers("odd, other", 5)}


@pytest.mark.parametrize(
    ("change", "reason", "retrained"),  # others are cached
    [
        ({"settings": {"odd": Settings(epochs=4)}}, "in the settings of odd", 2),
        ({"data": OTHER_DATA}, "in the data of odd", 2),
        ({"version": 2}, "in the version of the method", 0),
        ({"systems": ("b", "a")}, r"in what \w on \w+ is", 4),  # they trade their other columns
    ],
)
def test_what_has_changed_is_recorded_anew_if_asked(
    tmp_path, monkeypatch, change, reason, retrained
):
    make(tmp_path, range(1))
    use(monkeypatch, **change)
    before = files(tmp_path)
    with pytest.raises(DataError, match=rf"{reason}.*\(--replace\)"):
        make(tmp_path, range(1))
    assert files(tmp_path) == before
    assert len(trained(tmp_path)) == 4
    found = make(tmp_path, range(1), replace=True)
    aside = [content for path, content in files(tmp_path).items() if len(path.parts) > 2]
    assert sorted(aside) == sorted(before.values())
    assert len(trained(tmp_path)) == 4 + retrained
    assert numbers(tmp_path) == ["even/001", "odd/001"]
    pd.testing.assert_frame_equal(record.read("04", "world", tmp_path).series, found.series)
    make(tmp_path, range(2))
    assert numbers(tmp_path) == ["even/001", "even/002", "odd/001", "odd/002"]


def test_one_data_set_is_replaced_and_the_others_stay(tmp_path, monkeypatch):
    make(tmp_path, range(1))
    make(tmp_path, range(2))
    before = files(tmp_path).items()
    use(monkeypatch, {"odd": Settings(epochs=4)})
    found = make(tmp_path, range(1), ["odd"], replace=True)
    assert numbers(tmp_path) == ["even/001", "even/002", "odd/001"]
    assert (found.seeds_of("odd"), found.seeds_of("even")) == ([0], [0, 1])
    assert found.curves("odd", "a", "dev_loss").shape == (1, 4)
    even = {(path, content) for path, content in before if path.parts[0] == "even"}
    assert even <= set(files(tmp_path).items())


def test_what_cannot_be_read_together_is_told_before_training(tmp_path, monkeypatch):
    make(tmp_path, range(1))
    data = tmp_path / "data"
    data.mkdir()
    (data / "captions.txt").write_text("a dog")
    (data / "._captions.txt").write_text("of macOS")
    monkeypatch.setenv("MMLIB_DATA", str(data))
    paper = replace(tiny_jobs.experiment(), inputs={"world": ["*.txt"]})
    monkeypatch.setattr(record, "experiment_of", lambda number: paper)
    make(tmp_path, range(2))
    (data / "._captions.txt").write_text("of macOS, later")
    make(tmp_path, range(2))
    (data / "captions.txt").write_text("a cat")
    done = trained(tmp_path)
    with pytest.raises(DataError, match=r"/002-\w+\.parquet differs .* the input captions\.txt"):
        make(tmp_path, range(3))
    with pytest.raises(DataError, match=r"the input captions\.txt"):  # of even, which would stay
        make(tmp_path, range(1), ["odd"], replace=True)
    assert trained(tmp_path) == done
    assert len(make(tmp_path, range(1), replace=True).recordings) == 2


# --- Nothing is lost -----------------------------------------------------------------------------


@pytest.mark.parametrize("after", [0, 1])
def test_a_replacement_that_was_stopped_leaves_the_old_record(tmp_path, monkeypatch, after):
    """Ctrl-C before the first training ended once left a table of no training."""
    old = make(tmp_path)
    before = files(tmp_path)
    use(monkeypatch, {name: Settings(epochs=4) for name in DATA})
    monkeypatch.setattr(tiny_jobs, "train", until(after, tiny_jobs.train))
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path, replace=True)
    assert files(tmp_path) == before
    found = make(tmp_path, replace=True)
    assert len(trained(tmp_path)) == 8 + 8  # what was finished was not trained again
    assert found.series.value.map(len).sum() == old.series.value.map(len).sum() + 8 * 2
    pd.testing.assert_frame_equal(record.read("04", "world", tmp_path).series, found.series)


def test_what_was_finished_before_an_error_is_recorded_and_said_to_be_incomplete(tmp_path):
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "stop").write_text("b")
    with pytest.raises(ValueError, match="b broke off"):
        make(tmp_path)
    found = record.read("04", "world", tmp_path)
    assert found.jobs == {("odd", "a", 0)}
    assert record.incomplete(found, tiny_jobs.experiment()) == [
        "odd: b not recorded", "even was not recorded"
    ]  # fmt: skip
    (tmp_path / "jobs" / "stop").unlink()
    assert record.incomplete(make(tmp_path), tiny_jobs.experiment()) == []


def test_what_is_missing_is_said_first(tmp_path, monkeypatch):
    """A missing data set once turned a verdict round without a word."""
    make(tmp_path, range(3))
    text = record.write_judgement("04", "world", tmp_path / "out", tmp_path)
    assert "INCOMPLETE" not in text
    verdicts = json.loads((tmp_path / "out" / "verdicts.json").read_text())
    assert verdicts["incomplete"] == []
    assert [one["id"] for one in verdicts["claims"]] == ["T1"]
    make(tmp_path / "less", range(3), ["odd"])
    use(monkeypatch, systems=("a", "b", "c"))
    make(tmp_path / "less", range(2), ["odd"])
    text = record.write_judgement("04", "world", tmp_path / "out", tmp_path / "less")
    assert text.splitlines()[:2] == [
        "INCOMPLETE: odd: c without seed 2", "INCOMPLETE: even was not recorded"
    ]  # fmt: skip
    verdicts = json.loads((tmp_path / "out" / "verdicts.json").read_text())
    assert verdicts["incomplete"] == ["odd: c without seed 2", "even was not recorded"]
    found = record.read("04", "world", tmp_path)
    assert record.incomplete(found, tiny_jobs.experiment(systems=("a", "b", "c"))) == [
        "odd: c not recorded", "even: c not recorded"
    ]  # fmt: skip


def test_a_system_that_a_data_set_has_no_use_for_is_not_missing(tmp_path, monkeypatch):
    paper = use(
        monkeypatch, found={n: {"system": n, "size": int(n == "a")} for n in ("a", "b", "oracle")}
    )
    found = make(tmp_path, range(1))
    assert [one["inapplicable"] for one in found.recordings] == [
        {"even": ["oracle"]},
        {"odd": ["oracle"]},
    ]
    assert record.incomplete(found, paper) == []


# --- Running -------------------------------------------------------------------------------------


def test_no_job_of_a_processor_is_taken_for_one_of_a_gpu(tmp_path, monkeypatch):
    asked = []

    def run_jobs(stage, data, resources, **more):
        asked.append(resources.jobs)

    monkeypatch.setattr(record, "run_jobs", run_jobs)
    monkeypatch.setattr(engine, "job_folder", lambda device: tmp_path / device.split(":")[0])
    for device in ("cpu", "cuda:1"):
        with pytest.raises(DataError, match="no evidence"):  # nothing was recorded
            record.record("04", "world", [0], resources=Resources(device), folder=tmp_path)
    assert asked == [tmp_path / "cpu", tmp_path / "cuda"]


def test_a_system_that_left_the_experiment_is_not_read(tmp_path, monkeypatch):
    without = make(tmp_path / "without")
    use(monkeypatch, systems=("a", "b", "c"))
    make(tmp_path / "with")
    use(monkeypatch, systems=("a", "b"))
    found = record.read("04", "world", tmp_path / "with")
    pd.testing.assert_frame_equal(found.series, without.series)
    assert {system for _, system, _ in found.jobs} == {"a", "b"}


def test_a_system_may_have_columns_that_its_record_lacks_and_the_reverse(tmp_path, monkeypatch):
    make(tmp_path)
    use(monkeypatch, found={name: {"system": name, "colour": "red"} for name in "ab"})
    assert record.read("04", "world", tmp_path).systems("odd") == ["a", "b"]


def test_one_recording_at_a_time(tmp_path):
    folder = tmp_path / "world" / "tiny"
    lock = folder.parent / ".tiny.lock"
    told = f"another recording is being made there.* delete {lock}"
    with record.alone(lock, ""), pytest.raises(DataError, match=told):
        make(tmp_path)
    make(tmp_path)


def test_step_times_are_measured_one_after_another_on_a_cluster_too(tmp_path, monkeypatch):
    use(monkeypatch, timed=True)
    with tiny_jobs.in_threads() as cluster:
        found = make(tmp_path, cluster=cluster.scheduler_address)
        assert set(np.concatenate([*found.series.value[found.series.metric == "ms"]])) == {100}
        monkeypatch.setattr(record, "run_jobs", partial(at_once, record.run_jobs))
        with pytest.raises(FileExistsError):
            make(tmp_path / "again", cluster=cluster.scheduler_address)


def at_once(run_jobs, stage, *arguments, **how):
    """As `run_jobs`, but it takes no care of what may run side by side."""
    return run_jobs(replace(stage, parallel=True), *arguments, **how)


def test_the_command_line_tells_what_is_unusable_in_one_line(capsys, monkeypatch):
    monkeypatch.setattr(record, "experiment_of", lambda number: SimpleNamespace(
        load_study=lambda *arguments: pytest.fail("documents were built"), paper="tiny"
    ))  # fmt: skip
    for arguments in (
        ["--device", "cuda:99"], ["--seeds", "0"], ["--cluster", "nonsense://x"],
        ["--workers", "-1"], ["--workers", "2", "--cluster", "tcp://head:8786"],
    ):  # fmt: skip
        assert cli.main(["record", "04", *arguments]) == 2
        told = capsys.readouterr().err.strip()
        assert told.startswith("mmlib record: ")
        assert "\n" not in told


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_workers_end_with_a_killed_recording(tmp_path):
    """They once lived on for more than a minute, training what nobody would read."""
    script = Path(tiny_jobs.__file__)
    recording = subprocess.Popen([sys.executable, script, tmp_path, "slow"])
    pids = tmp_path / "jobs" / "pids"
    try:  # on a busy machine it takes minutes until both train
        wait_for(lambda: pids.exists() and len(set(pids.read_text().split())) == 2, seconds=600)
    finally:
        recording.kill()
        recording.wait()
    for pid in set(pids.read_text().split()):
        wait_for(lambda pid=pid: not is_alive(int(pid)), seconds=60)


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
    whole, killed = (
        recordings.read(tmp_path / name / "world" / "tiny") for name in ("whole", "killed")
    )
    pd.testing.assert_frame_equal(whole.series, killed.series)


@pytest.mark.parametrize("number", ["02", "03"])
def test_a_recording_tells_every_file_that_decides_what_a_bert_says(number, tmp_path, monkeypatch):
    monkeypatch.setenv("MMLIB_DATA", str(tmp_path))
    (tmp_path / "bert").mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "README.md"):
        (tmp_path / "bert" / name).write_text(name)
    for tier in ("flickr8k", "paper"):
        assert sorted(record.inputs_of(papers.experiment(number), tier)) == [
            "bert/config.json", "bert/model.safetensors", "bert/tokenizer.json",
        ]  # fmt: skip


# --- A record of a part of the grid ---------------------------------------------------------------


SMALL = {
    "00": lambda: record.read("00", "world"),
    "01": lambda: made_up_evidence.cut("01", datasets=["CITE-like", "Clue-like"]),
    "02": lambda: made_up_evidence.cut("02"),
    "03": lambda: made_up_evidence.cut("03", datasets=["world"], clusters=10),
    "03, controlled": lambda: made_up_evidence.cut("03", "controlled", ["drawn"], clusters=10),
    "04": lambda: made_up_evidence.cut("04", datasets=made_up_evidence.OF_LINKS),
}


@pytest.mark.parametrize("paper", SMALL)
@pytest.mark.parametrize("chosen", [0, -1, None])
def test_any_part_of_a_record_is_judged(tmp_path, monkeypatch, paper, chosen):
    """A data set, a seed and a system, by number; None: all systems. Figures once drew 0 panels."""
    monkeypatch.setattr(record, "experiment_of", papers.experiment)
    whole, number = SMALL[paper](), paper[:2]
    dataset = whole.datasets[-1]
    systems = [whole.systems(dataset)[chosen]] if chosen is not None else whole.systems(dataset)
    few = whole.series["seed"].isin([evidence.NO_SEED, 0]) & whole.series["system"].isin(systems)
    part = evidence.Evidence(
        whole.series[few & (whole.series["dataset"] == dataset)].reset_index(drop=True),
        {"features": {}, **whole.header},
    )
    monkeypatch.setattr(record, "read", lambda *_: part)
    text = record.write_judgement(number, whole.header["tier"], tmp_path)
    told = json.loads((tmp_path / "verdicts.json").read_text())
    gaps = [line for line in text.splitlines() if line.startswith("INCOMPLETE: ")]
    assert gaps == [f"INCOMPLETE: {gap}" for gap in told["incomplete"]]
    assert gaps or (chosen is None and whole.datasets == [dataset])
    assert text.count("\nnot made, as values are not recorded: ") == ("not made" in text)
    assert len(told["claims"]) == len(papers.experiment(number).claims_of(whole.header["tier"]))
    compared = {one["verdict"] for one in told["claims"] if "−" in one["contrast"]}
    assert chosen is None or compared <= {"not tested"}  # one system is compared with nothing
    assert (tmp_path / "claims.png").exists()


def test_what_fails_of_a_whole_record_is_an_error():
    makers = {"a": lambda: 1, "b": lambda: {}["c"]}
    assert record.made(makers, ["b was not recorded"]) == ({"a": 1}, ["b ('c')"])
    with pytest.raises(KeyError):
        record.made(makers, [])


@pytest.mark.parametrize(
    ("systems", "jobs"),
    [(["a"], 4), (["a,b"], 8), (["a", "b"], 8), (["b, with a comma"], 4), (["b , a"], 8), ([], 12)],
)
def test_only_systems_that_are_named_are_trained(tmp_path, monkeypatch, capfd, systems, jobs):
    names = ("a", "b", "b, with a comma")
    use(monkeypatch, systems=names)
    found = make(tmp_path, systems=systems)
    assert len(trained(tmp_path)) == jobs
    said = capfd.readouterr().err
    assert said.startswith(f"{jobs} trainings left, of {jobs // 4} systems (--systems takes some)")
    assert f"{jobs - 1} trainings left, about 0.0 h" in said
    done = files(tmp_path)
    assert found.recordings[0]["inapplicable"] == {"even": []}
    for wrong, said in (("c", "no system 'c' here; did you mean b, "), ("b, A", "no system 'A'")):
        with pytest.raises(DataError, match=said):
            make(tmp_path, systems=[wrong])
    with pytest.raises(DataError, match="with all of its systems"):
        make(tmp_path, systems=["a"], replace=True)
    make(tmp_path)  # only what is missing
    assert len(trained(tmp_path)) == 12
    two = [("odd", "a", 0), ("odd", "b", 0), ("odd", "b", 1)]  # the second system as the mean
    assert record._left(two, {("odd", "a"): 7200.0}, 2) == "3 trainings left, about 3.0 h"
    assert done.items() <= files(tmp_path).items()


def test_drawings_take_the_place_of_photographs_that_are_not_there(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MMLIB_DATA", str(tmp_path))
    assert len(record.photographs().axes) == 4
    assert capsys.readouterr().out == f"{record.DRAWN}\n"
