"""Recording evidence: what is kept, what is refused, and a run that is killed."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import tiny_jobs
from tiny_jobs import DATA, Numbers, Settings

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


def only_file(folder):
    (path,) = recordings.paths_of(folder / "world" / "tiny")
    return path


def forge(folder, change=lambda table: table, check=False, **header):
    """Replace the only file by one of other contents, named by its own hash."""
    path = only_file(folder)
    old = recordings.read(path.parent)
    path.unlink()
    head = {**old.recordings[0], **header}
    with pytest.MonkeyPatch.context() as patch:
        if not check:
            patch.setattr(recordings.Contract, "check", lambda *arguments: [])
            patch.setattr(recordings, "jobs_of", lambda runs: head["jobs"])
        return recordings.write(path.parent, change(old.table.copy()), head)


def test_what_is_recorded_is_read_back(tmp_path):
    found = make(tmp_path)
    again = record.read("04", "world", tmp_path)
    pd.testing.assert_frame_equal(again.table, found.table)
    (head,) = again.recordings
    assert head["settings"]["odd"] == {"epochs": 3, "pause": 0.0}
    assert head["data"] == {"odd": "odd", "even": "even"}
    assert head["jobs"] == {name: {"a": [0, 1], "b": [0, 1]} for name in ("even", "odd")}
    assert (again.seeds, again.header["cpu_seconds"]) == ([0, 1], 12)
    assert recordings.NEEDED <= set(head)
    assert again.header["settings"] == head["settings"]


def test_seeds_and_data_sets_are_other_files_and_read_as_one(tmp_path):
    whole = make(tmp_path / "whole", range(3))
    other = tmp_path / "parts"
    make(other, range(1), ["odd"])
    make(other, range(2), ["odd"], jobs_folder=tmp_path / "lost")  # only the file has seed 0
    before = files(other)
    make(other, range(3), ["even"])
    found = make(other, range(3))
    pd.testing.assert_frame_equal(found.table, whole.table)
    assert found.header["cpu_seconds"] == whole.header["cpu_seconds"]
    assert len(found.recordings) == 4
    assert before.items() <= files(other).items()  # none was written again
    assert len(trained(other)) == 2 + 6 + 2  # seed 1 of odd was trained elsewhere
    written = files(other)
    pd.testing.assert_frame_equal(make(other, range(3)).table, whole.table)
    assert len(trained(other)) == 10
    assert files(other) == written  # nothing was left to record


def test_another_machine_adds_seeds_and_is_named(tmp_path, monkeypatch):
    make(tmp_path, range(2))
    there = {name: Numbers("by other arithmetic", own.items) for name, own in DATA.items()}
    use(monkeypatch, data=there)
    with pytest.raises(DataError, match=r"001-\w+\.parquet differs .* in the data of odd: record"):
        make(tmp_path, range(4), ["odd"])  # of the same arithmetic: it is other data
    monkeypatch.setattr(evidence, "arithmetic", lambda: "another")
    found = make(tmp_path, range(4))
    assert found.recording_of("odd", "a", 3)["data"]["odd"] == "by other arithmetic"
    assert found.recording_of("odd", "a", 1)["data"]["odd"] == "odd"
    assert found.recording_of("odd", "a", 9) is None
    assert found.seeds == [0, 1, 2, 3]


@pytest.mark.parametrize("change", ["settings", "data", "version", "system"])
def test_what_has_changed_is_recorded_anew_if_asked(tmp_path, monkeypatch, change):
    make(tmp_path, range(1))
    if change == "settings":
        use(monkeypatch, {"odd": Settings(epochs=4)})
    elif change == "data":
        use(monkeypatch, data={**DATA, "odd": Numbers("odd, other", 5)})
    elif change == "version":
        use(monkeypatch, version=2)
    else:  # two systems trade their other columns
        use(monkeypatch, systems=("b", "a"))
    reason = {
        "settings": "the settings of odd have changed",
        "data": "in the data of odd",
        "version": "by version 1 of the method, and this is version 2",
        "system": r"\w on \w+ has changed",
    }[change]
    before = files(tmp_path)
    with pytest.raises(DataError, match=rf"{reason}.*\(--replace\)"):
        make(tmp_path, range(1))
    assert files(tmp_path) == before
    assert len(trained(tmp_path)) == 4
    found = make(tmp_path, range(1), replace=True)
    aside = {path.name: content for path, content in files(tmp_path).items() if len(path.parts) > 1}
    assert list(aside.values()) == list(before.values())
    retrained = {"settings": 2, "data": 2, "version": 0, "system": 4}[change]  # others are cached
    assert len(trained(tmp_path)) == 4 + retrained
    assert len(found.recordings) == 1
    pd.testing.assert_frame_equal(record.read("04", "world", tmp_path).table, found.table)
    make(tmp_path, range(2))
    assert {path.name[:3] for path in files(tmp_path)} == {"001", "002", "003"}


def test_one_data_set_is_replaced_and_the_others_stay(tmp_path, monkeypatch):
    make(tmp_path, range(2))
    even = record.read("04", "world", tmp_path).table.query("dataset == 'even'")
    use(monkeypatch, {"odd": Settings(epochs=4)})
    found = make(tmp_path, range(1), ["odd"], replace=True)
    assert len(recordings.paths_of(tmp_path / "world" / "tiny")) == 2
    assert found.seeds_of("odd") == [0]
    assert found.seeds_of("even") == [0, 1]
    assert found.curves("odd", "a", "dev_loss").shape == (1, 4)
    now = found.table.query("dataset == 'even'")
    assert now.astype(str).reset_index(drop=True).equals(even.astype(str).reset_index(drop=True))
    use(monkeypatch, {"odd": Settings(epochs=4), "even": Settings(epochs=5)})
    make(tmp_path, range(1), ["even"], replace=True)  # now nothing of the first is left
    assert {path.name[:3] for path in recordings.paths_of(tmp_path / "world" / "tiny")} == {
        "002", "003"
    }  # fmt: skip


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
    with pytest.raises(DataError, match=r"002-\w+\.parquet differs .* the input captions\.txt"):
        make(tmp_path, range(3))
    with pytest.raises(DataError, match=r"the input captions\.txt"):  # of even, which would stay
        make(tmp_path, range(1), ["odd"], replace=True)
    assert trained(tmp_path) == done
    assert len(make(tmp_path, range(1), replace=True).recordings) == 1


def test_a_record_of_another_method_or_other_settings_is_refused(tmp_path, monkeypatch):
    make(tmp_path)
    for change, told in (
        ({"version": 2}, "by version 1 of the method, and this is version 2"),
        ({"settings": {"even": Settings(epochs=9)}}, "the settings of even have changed"),
        ({"systems": ("b", "a")}, r"\w on even has changed; record anew"),  # other columns
    ):
        use(monkeypatch, **change)
        with pytest.raises(DataError, match=told):
            record.read("04", "world", tmp_path)


def test_code_that_changes_no_figure_leaves_a_record_valid(tmp_path, monkeypatch):
    make(tmp_path)
    monkeypatch.setattr(engine, "source_hash", lambda *modules: "other")
    record.read("04", "world", tmp_path)
    make(tmp_path)
    assert len(trained(tmp_path)) == 8


# --- Nothing is lost -----------------------------------------------------------------------------


def test_a_damaged_header_costs_no_seed(tmp_path):
    """Of a record with ten seeds, `record --seeds 3` once left three."""
    make(tmp_path, range(4))
    path = only_file(tmp_path)
    for damaged in (path.read_bytes()[:-300], b"", b"PAR1"):
        path.write_bytes(damaged)
        before = files(tmp_path)
        for replace_it in (False, True):
            with pytest.raises(DataError, match=rf"{path.name}: damaged or renamed.*get it again"):
                make(tmp_path, range(3), replace=replace_it)
        assert files(tmp_path) == before


@pytest.mark.parametrize("after", [0, 1])
def test_a_replacement_that_was_stopped_leaves_the_old_record(tmp_path, monkeypatch, after):
    """Ctrl-C before the first training ended once left a table of no training."""
    old = make(tmp_path)
    before = files(tmp_path)
    use(monkeypatch, {name: Settings(epochs=4) for name in DATA})
    train, calls = tiny_jobs.train, []

    @wraps(train)  # a kept job is of a function by its name
    def stopped(*arguments):
        calls.append(arguments)
        if len(calls) > after:
            raise KeyboardInterrupt
        return train(*arguments)

    monkeypatch.setattr(tiny_jobs, "train", stopped)
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path, replace=True)
    assert files(tmp_path) == before
    monkeypatch.setattr(tiny_jobs, "train", train)
    found = make(tmp_path, replace=True)
    assert len(trained(tmp_path)) == 8 + 8  # what was finished was not trained again
    assert len(found.table) == len(old.table) + 8 * 2
    pd.testing.assert_frame_equal(record.read("04", "world", tmp_path).table, found.table)


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


# --- Nothing lies --------------------------------------------------------------------------------


def test_every_flipped_bit_is_found(tmp_path):
    make(tmp_path, range(1))
    path = only_file(tmp_path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for position in [0, len(whole) - 1, *rng.choice(len(whole), 198, replace=False)]:
        flipped = bytearray(whole)
        flipped[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(flipped)
        with pytest.raises(DataError, match=rf"{path.name}: damaged or renamed"):
            record.read("04", "world", tmp_path)
    path.write_bytes(whole)
    record.read("04", "world", tmp_path)
    path.rename(path.with_name("001-0123456789abcdef.parquet"))
    with pytest.raises(DataError, match="damaged or renamed, its content has the hash"):
        record.read("04", "world", tmp_path)


def swap_values(where, values):
    """A change of the values of the rows that a query finds."""

    def change(table):
        rows = table.query(where).index
        table.loc[rows, "value"] = np.float32(values)
        return table

    return change


SICK = {
    "duplicate": (
        lambda table: pd.concat([table, table.iloc[-8:-7]]).sort_index(ignore_index=True),
        r"row \d+: item",
    ),
    "duplicates of other values": (
        lambda table: pd.concat([table, table.query("system == 'a'").assign(value=np.float32(9))],
                                ignore_index=True),
        r"row \d+: .* is there twice",
    ),
    "no column": (lambda table: table.drop(columns="cluster"), "no column cluster"),
    "a column of text": (lambda table: table.assign(seed=table.seed.astype(str)), "column seed is"),
    "times 1000": (
        lambda table: table.assign(value=table.value * 1000), r"row \d+: AUC of a.* is \d{4}"
    ),
    "of another paper": (
        lambda table: table.assign(paper=table.paper.cat.rename_categories(["links"])),
        "the paper links, not of tiny",
    ),
    "of another tier": (
        lambda table: table.assign(tier=table.tier.cat.rename_categories(["paper"])),
        "the tier paper, not of world",
    ),
    "NaN": (swap_values("metric == 'AUC' and system == 'b' and item == 3", np.nan),
            r"row \d+: item 3 of AUC of b, seed 0"),
    "NaN in a curve": (swap_values("metric == 'dev_loss' and item == 3", np.nan),
                       r"row \d+: dev_loss of a.* is not a number"),
    "Inf": (swap_values("metric == 'dev_loss' and item == 2", np.inf), r"row \d+: dev_loss .*inf"),
    "lost item": (lambda table: table.drop(index=table.query("item == 2").index[0])
                  .reset_index(drop=True), r"row \d+: item 3 of .* where item 2 is due"),
    "another cluster": (lambda table: table.assign(cluster=table.cluster.where(
        (table.system != "b") | (table["item"] != 1), 7).astype(np.int32)), "another cluster"),
    "lost items": (lambda table: table.query("not (system == 'b' and split == 'test' "
                   "and metric == 'AUC' and item == item.max())").reset_index(drop=True),
                   "items of AUC of b"),
    "another column": (lambda table: table.assign(size=table["size"].where(
        table.index != 3, table["size"].cat.categories[0]).where(table.index != 1, None)),
        r"row 1: another size"),
    "a seed that its header lacks": (
        lambda table: table.assign(seed=table.seed + np.int32(1)), "other systems or seeds"
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", SICK)
def test_a_table_that_breaks_the_contract_is_damaged(tmp_path, what):
    """Its name has its hash and its header its digest: it was written so, by whatever."""
    change, words = SICK[what]
    make(tmp_path, range(1), ["even"])
    path = forge(tmp_path, change)
    with pytest.raises(DataError, match=rf"{path.name}: damaged, .*{words}.*; get it again"):
        record.read("04", "world", tmp_path)


def test_such_a_table_is_not_written_either(tmp_path):
    make(tmp_path, range(1), ["even"])
    with pytest.raises(DataError, match=r"not written, row \d+: AUC of a"):
        forge(tmp_path, SICK["times 1000"][0], check=True)
    assert not files(tmp_path)


def test_a_file_of_another_paper_or_tier_is_refused(tmp_path):
    make(tmp_path, range(1))
    path = only_file(tmp_path)
    for folder, words in (("world/links", "the paper tiny"), ("paper/tiny", "the tier world")):
        moved = tmp_path / folder / path.name
        moved.parent.mkdir(parents=True)
        moved.write_bytes(path.read_bytes())
        with pytest.raises(DataError, match=f"{path.name}: is of {words}"):
            recordings.read(moved.parent)


def test_a_job_in_two_files_names_both(tmp_path):
    make(tmp_path, range(2))
    make(tmp_path / "other", range(1, 3))
    first, second = only_file(tmp_path), only_file(tmp_path / "other")
    copied = first.with_name(second.name.replace("001-", "002-"))
    copied.write_bytes(second.read_bytes())
    words = rf"{first.name} and {copied.name}: differ in the values of a, seed 1, on even, which"
    with pytest.raises(DataError, match=words):
        record.read("04", "world", tmp_path)


def test_a_header_without_what_it_must_have_is_damaged(tmp_path):
    found = make(tmp_path, range(1))
    only_file(tmp_path).unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recordings, "digest_of", lambda table: "0123456789abcdef")
        recordings.write(tmp_path / "world" / "tiny", found.table, found.recordings[0])
    with pytest.raises(DataError, match="its values are not those of its header"):
        record.read("04", "world", tmp_path)
    tmp_path = tmp_path / "other"
    make(tmp_path, range(1))
    path = only_file(tmp_path)
    table = recordings.pq.read_table(path).replace_schema_metadata({"mmlib": "{}"})
    path.unlink()
    recordings.pq.write_table(table, path)
    path.rename(path.with_name(f"001-{recordings._hash(path.read_bytes())}.parquet"))
    with pytest.raises(DataError, match="damaged, its header has no commit"):
        record.read("04", "world", tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("settings", None, "settings null"),
        ("settings", [], r"settings \[\]"),
        ("settings", {"odd": None}, r'settings {"odd": null}'),
        ("jobs", {"odd": {"a": [0.5]}}, r'jobs {"odd": {"a": \[0.5\]}}'),
        ("jobs", {"odd": {"a": 3}}, "jobs {"),
        ("jobs", {"coco": {"a": [0]}}, "jobs of data sets without settings"),
        ("data", {}, "other data sets in data than in settings"),
        ("inapplicable", {"odd": [], "even": "a"}, "inapplicable {"),
        ("method_version", "1", 'method_version "1"'),
        ("machine", None, "machine null"),
        ("replaces", [1], r"replaces \[1\]"),
        ("inputs", None, "inputs null"),
    ],
)
def test_a_header_of_another_form_is_damaged(tmp_path, name, value, said):
    make(tmp_path, range(1))
    path = only_file(tmp_path)
    table = recordings.pq.read_table(path)
    head = json.loads(table.schema.metadata[b"mmlib"]) | {name: value}
    recordings.pq.write_table(table.replace_schema_metadata({"mmlib": json.dumps(head)}), path)
    path = path.rename(path.with_name(f"001-{recordings._hash(path.read_bytes())}.parquet"))
    for read in (recordings.read, recordings.headers):
        with pytest.raises(DataError, match=rf"{path.name}: damaged, its header has {said}.*; get"):
            read(path.parent)


def test_no_record_says_so(tmp_path):
    with pytest.raises(DataError, match="no evidence is recorded"):
        record.read("04", "world", tmp_path)


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
    assert found.recordings[0]["inapplicable"] == {"odd": ["oracle"], "even": ["oracle"]}
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


def test_seeds_of_a_processor_and_of_a_gpu_are_told_apart(tmp_path):
    make(tmp_path, range(1))
    forge(tmp_path, check=True, device="cuda")
    found = make(tmp_path, range(2))
    assert [found.recording_of("odd", "a", seed)["device"] for seed in (0, 1)] == ["cuda", "cpu"]


def test_a_system_that_left_the_experiment_is_not_read(tmp_path, monkeypatch):
    without = make(tmp_path / "without")
    use(monkeypatch, systems=("a", "b", "c"))
    make(tmp_path / "with")
    use(monkeypatch, systems=("a", "b"))
    found = record.read("04", "world", tmp_path / "with")
    pd.testing.assert_frame_equal(found.table, without.table)
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
        assert set(found.table.value[found.table.metric == "ms"]) == {100}
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


def wait_for(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.1)


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_recording_killed_twenty_times_ends_in_the_same_table(tmp_path):
    script = Path(tiny_jobs.__file__)
    ran = subprocess.run(
        [sys.executable, script, tmp_path, "20"], capture_output=True, text=True, check=True,
        timeout=900,
    )  # fmt: skip
    assert int(ran.stdout.split()[0]) >= 15  # the others came to an end first
    whole, killed = (
        recordings.read(tmp_path / name / "world" / "tiny") for name in ("whole", "killed")
    )
    pd.testing.assert_frame_equal(whole.table, killed.table)
    assert whole.recordings[0]["digest"] == killed.recordings[0]["digest"]


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
