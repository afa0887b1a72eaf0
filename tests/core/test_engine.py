"""The engine: what is kept under which key, who runs it, and what becomes of a failure."""

import itertools
import os
from dataclasses import replace

import distributed
import numpy as np
import pandas as pd
import pytest
import tiny_jobs
import torch
from tiny_jobs import DATA, Numbers, jobs

from mmlib.core import engine
from mmlib.core.engine import SECONDS, Resources, job_key, read_answer, run_jobs, tidy
from mmlib.core.jobs import Answer, Stage, as_bytes


@pytest.fixture(autouse=True)
def known_source(monkeypatch):
    """The tests' own module counts as one whose source does not change."""
    monkeypatch.setattr(engine, "source_hash", lambda *modules: "tiny")


def trained(folder):
    """Which jobs have been trained so far."""
    return (folder / "log").read_text().splitlines() if (folder / "log").exists() else []


def run(folder, grid=None, data=DATA, workers=0, cluster="", **how):
    grid = grid or jobs()
    resources = Resources(workers=workers, cluster=cluster, folder=folder)
    return tidy(grid, run_jobs(Stage(tiny_jobs.train, grid), data, resources, **how), data)


# --- Keys ----------------------------------------------------------------------------------------


def test_texts_for_a_hash_keep_their_borders():
    lists = [[], [""], ["", ""], ["a\nb"], ["a", "b"], ["a\\nb"], ["a\\\nb"], ["a\\", "b"], ["\\"]]
    assert len(set(map(as_bytes, lists))) == len(lists)
    # What is on record was hashed so.
    assert as_bytes(["a dog", "", "a cat"]) == b"a dog\n\na cat"


def test_every_part_of_a_job_is_in_its_key(monkeypatch):
    job, data = jobs()[0], DATA["odd"]
    changes = [{"paper": "other"}, {"tier": "other"}, {"dataset": "other"}, {"seed": 1}]
    changes += [{"system": {**job.system, "size": 7}}, {"settings": {**job.settings, "epochs": 9}}]
    changed = [replace(job, **change) for change in changes]
    keys = [job_key(tiny_jobs.train, one, data) for one in (job, *changed)]
    keys.append(job_key(tiny_jobs.train, job, Numbers("other data")))
    assert len(set(keys)) == len(keys) == 8
    assert job_key(tiny_jobs.train, replace(job, system=dict(job.system)), data) == keys[0]
    swapped = dict(reversed(job.settings.items()))
    assert job_key(tiny_jobs.train, replace(job, settings=swapped), data) == keys[0]
    for version in ("2.15.0", "2.15.0+cpu", "2.16.0"):  # its build is not in the key
        monkeypatch.setattr(torch, "__version__", version)
        keys.append(job_key(tiny_jobs.train, job, data))
    assert keys[8] == keys[9] != keys[10]
    for code in ("one", "two"):  # of the function's module
        monkeypatch.setattr(
            engine, "source_hash", lambda module, code=code: (module == tiny_jobs.__name__) * code
        )
        keys.append(job_key(tiny_jobs.train, job, data))
    assert keys[11] != keys[12]


# --- Running -------------------------------------------------------------------------------------


def test_finished_jobs_are_not_run_again_but_for_one_in_anothers_place(tmp_path, capfd):
    first, grid = run(tmp_path, workers=1), jobs()
    assert len(trained(tmp_path)) == 8
    paths = [tmp_path / f"{job_key(tiny_jobs.train, j, DATA[j.dataset])}.job" for j in grid]
    paths[0].write_bytes(paths[1].read_bytes())  # was once recorded as the seed whose name it had
    pd.testing.assert_frame_equal(run(tmp_path, workers=1), first)
    assert f"{paths[0]}: is another file, {paths[1].name} (made anew)" in capfd.readouterr().err
    (tmp_path / "log").write_text("\n".join(trained(tmp_path)[:8]) + "\n")
    told = []
    again = run(tmp_path, workers=1, on_answer=lambda job, answer: told.append(job))
    assert len(trained(tmp_path)) == 8
    assert told == jobs()
    pd.testing.assert_frame_equal(again, first)
    run(tmp_path, jobs(range(3)), workers=1)
    assert trained(tmp_path)[8:] == ["odd a 2", "odd b 2", "even a 2", "even b 2"]
    run(tmp_path, data={**DATA, "odd": Numbers("new", 5)}, workers=1)
    assert len(trained(tmp_path)) == 12 + 4  # odd numbers only


def test_the_same_seed_gives_the_same_answer_here_and_in_processes(tmp_path):
    here = run(tmp_path / "here", workers=1)
    pd.testing.assert_frame_equal(run(tmp_path / "again", workers=1), here)
    pd.testing.assert_frame_equal(run(tmp_path / "processes", workers=2), here)
    other = run(tmp_path / "other", jobs([5]), workers=1)
    aucs = [np.concatenate([*t.value[t.metric == "AUC"]])[1:] for t in (other, here)]
    assert not set(aucs[0]) & set(aucs[1])


@pytest.fixture(scope="module")
def cluster():
    """The address of a Dask scheduler with two workers, each a process of its own."""
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as found:
        yield found.scheduler_address


@pytest.mark.slow
def test_a_cluster_gives_the_same_table_and_a_worker_killed_in_the_middle_loses_nothing(
    tmp_path, cluster
):
    here = run(tmp_path / "here", workers=1)
    killed = tmp_path / "cluster" / "kill"
    killed.parent.mkdir()
    killed.touch()
    with distributed.Client(cluster) as client:
        before = client.run(os.getpid)
        found = run(killed.parent, cluster=cluster)
        after = client.run(os.getpid)
    assert not killed.exists()
    assert len(set(before.values()) - set(after.values())) == 1
    pd.testing.assert_frame_equal(found, here)
    # What a cluster has finished is taken from the same folder.
    pd.testing.assert_frame_equal(run(killed.parent, cluster="tcp://no:1"), here)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_first_failure_stops_the_rest_and_what_is_finished_stays(tmp_path, workers):
    grid = jobs(range(8), data=["odd"], pause=0.05)
    whole = run(tmp_path / "whole", grid, workers=1)
    folder = tmp_path / "jobs"
    folder.mkdir()
    (folder / "stop").write_text("b")
    with pytest.raises(ValueError, match="b broke off"):
        run(folder, grid, workers=workers)
    (folder / "stop").unlink()
    half = job_key(tiny_jobs.train, grid[-1], DATA["odd"])
    (folder / f".{half}.99.partial.pt").write_bytes(b"of a worker that was killed")
    done = trained(folder)
    assert set(done) < {f"odd a {seed}" for seed in range(8)}  # less than would have gone well
    kept = list(folder.glob("*.job"))
    assert len(kept) <= len(done)
    assert list(folder.glob("*.pt"))  # what broke off goes on from its last epoch
    pd.testing.assert_frame_equal(run(folder, grid, workers=1), whole)
    assert len(trained(folder)) == len(done) + len(grid) - len(kept)
    assert len(list(folder.glob("*.job"))) == len(grid)
    assert not list(folder.glob("*.pt"))


def test_devices_are_dealt_out(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    both, three = ["cuda:0", "cuda:1"], ["cuda:0", "cuda:1", "cuda:0"]
    dealt = {("cpu", 3): ["cpu"] * 3, ("cuda", 0): both, ("cuda", 3): three}
    for asked, devices in {**dealt, ("cuda:1", 0): ["cuda:1"]}.items():
        assert engine.devices_of(Resources(*asked)) == devices


def test_answers_come_back_as_they_went(tmp_path):
    values = {"test": {"b": np.array([0.5, np.nan]), "a": np.array([1.0, 2.0])}, "val": {}}
    path = tmp_path / "x.job"
    engine.write_answer(path, Answer(values, [{"dev_loss": 0.1 + 0.2}], 3.25))
    found = read_answer(path)
    assert list(found.values["test"]) == ["b", "a"]
    assert np.array_equal(found.values["test"]["b"], values["test"]["b"], equal_nan=True)
    assert np.array_equal(found.values["test"]["a"], values["test"]["a"])
    assert (found.history, found.seconds) == ([{"dev_loss": 0.1 + 0.2}], 3.25)
    engine.write_answer(path, Answer({}, [], 0.0))
    assert read_answer(path).values == {}


def test_a_row_a_series_in_one_order_whatever_they_came_in(tmp_path):
    grid = jobs()
    answers = run_jobs(Stage(tiny_jobs.train, grid), DATA, Resources(workers=1, folder=tmp_path))
    series = tidy(grid, answers, DATA)
    for order in itertools.islice(itertools.permutations(range(8)), 1, 5000, 997):
        parts = [grid[i] for i in order], [answers[i] for i in order]
        pd.testing.assert_frame_equal(tidy(*parts, DATA), series)
    assert len(series) == 8 * (2 + 2 + 1)
    own = series.query("dataset == 'odd' and system == 'b' and seed == 1").set_index("metric")
    assert list(own.split) == ["epochs", "epochs", "job", "test", "test"]
    names = [(job.dataset, job.system["system"], job.seed) for job in grid]
    answer = answers[names.index(("odd", "b", 1))]
    for metric in ("AUC", "p@1"):
        np.testing.assert_array_equal(own.value[metric], np.float32(answer.values["test"][metric]))
    assert own.cluster["AUC"].tolist() == [0, 0, 1, 1, 2]
    curve = own.value["dev_loss"]
    assert curve.tolist() == pytest.approx([h["dev_loss"] for h in answer.history])
    assert own.value[SECONDS].tolist() == [1.5]
