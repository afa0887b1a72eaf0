"""A record of older code stands where this code gives the same figures, and only there."""

import json
import sys
from types import SimpleNamespace

import pandas as pd
import pytest
import tiny_jobs
from scripts import load
from tiny_jobs import DATA, Numbers, Settings

from mmlib.core import evidence as records
from mmlib.core import experiment
from mmlib.core.errors import DataError
from mmlib.suite import record

recheck = load("ci/recheck.py")


@pytest.fixture
def old(tmp_path, monkeypatch):
    """The folder of a record that code of another hash has made."""
    for module in (experiment, record):
        monkeypatch.setattr(module, "source_hash", lambda *modules: "older")
    monkeypatch.setattr(record, "room", tiny_jobs.room())
    jobs = tmp_path / "jobs"
    record.record("04", "world", range(3), workers=1, folder=tmp_path, jobs_folder=jobs)
    monkeypatch.setattr(recheck, "source_hash", lambda *modules: "newer")
    monkeypatch.chdir(jobs)  # where tiny trainings leave their log
    return tmp_path


def again(folder, **more):
    return recheck.recheck("04", "world", workers=1, folder=folder, **more)


def files(folder):
    return [(folder / "world" / f"tiny.{kind}").read_bytes() for kind in ("parquet", "json")]


def test_the_same_figures_stand(old, monkeypatch):
    before = records.read(old / "world", "tiny")
    again(old)
    found = records.read(old / "world", "tiny")
    pd.testing.assert_frame_equal(found.table, before.table)
    assert found.header["source"] == "newer"
    (told,) = found.header["rechecked"]
    assert (told["from"], told["jobs"], told["epochs"]) == ("older", 4, "all")
    assert told["seeds"] == {"odd": 2, "even": 2}
    rest = {k: v for k, v in found.header.items() if k not in ("source", "rechecked")}
    assert rest == {k: v for k, v in before.header.items() if k != "source"}
    with pytest.raises(DataError, match="nothing to do"):
        again(old)
    monkeypatch.setattr(record, "source_hash", lambda *modules: "newer")
    more = record.record("04", "world", range(4), workers=1, folder=old, jobs_folder=old / "jobs")
    assert (more.header["seeds"], more.header["rechecked"]) == ([0, 1, 2, 3], [told])


def test_only_what_is_named_stays(old, monkeypatch, capsys):
    """Of what this code changes ("even") nothing remains; it is recorded anew."""
    sound = records.read(old / "world", "tiny")
    table, head = sound.table.copy(), dict(sound.header)
    even = table.dataset == "even"
    table.loc[even & (table.metric == "AUC"), "value"] *= 0.5
    other = {**head, "commit": "another", "machine": {"gpu": "another"}, "seeds": [7]}
    head["added"] = [{**other, "data": {"even": "x"}}, {**other, "data": {"even": "x", "odd": "x"}}]
    head["rechecked"] = [{"seeds": {"even": 1, "odd": 1}}, {"seeds": {"even": 1}}]
    records.write(old / "world", "tiny", records.Evidence(table, head))
    before = files(old)
    monkeypatch.setattr(recheck, "evidence_dir", lambda: old)
    assert recheck.main(["04", "--workers", "1"]) == 1
    assert recheck.main(["04", "--workers", "1", "--datasets", "odd", "uneven"]) == 1
    assert "not on record: uneven" in capsys.readouterr().err
    assert files(old) == before
    assert recheck.main(["04", "--workers", "1", "--datasets", "odd"]) == 0
    assert "left the record: even, 3 seeds" in capsys.readouterr().out
    found = records.read(old / "world", "tiny")
    kept = table[~even].reset_index(drop=True)
    pd.testing.assert_frame_equal(found.table.astype(str), kept.astype(str))
    parts = ("data", "settings", "outlines")
    assert [list(found.header[part]) for part in parts] == [["odd"]] * len(parts)
    assert [one["data"] for one in found.header["added"]] == [{"odd": "x"}]
    first, told = found.header["rechecked"]
    assert (first["seeds"], told["seeds"], told["left"]) == (
        {"odd": 1}, {"odd": 2}, {"even": [0, 1, 2]}
    )  # fmt: skip
    monkeypatch.setattr(record, "source_hash", lambda *modules: "newer")
    more = record.record("04", "world", range(3), workers=1, folder=old, jobs_folder=old / "jobs")
    pd.testing.assert_frame_equal(more.table.astype(str), sound.table.astype(str))


def test_a_system_may_gain_a_column_and_not_lose_or_change_one(old, monkeypatch):
    plain = tiny_jobs.room()("04", "experiment").systems

    def systems(tier, name):
        return {own: {**row, "pooling": "chance"} for own, row in plain(tier, name).items()}

    room = tiny_jobs.room()
    monkeypatch.setattr(room("04", "experiment"), "systems", systems)
    monkeypatch.setattr(record, "room", room)
    again(old)
    found = records.read(old / "world", "tiny")
    assert set(found.table.pooling) == {"chance"}
    assert all(row["pooling"] == "chance" for row in found.columns().values())
    before = files(old)
    monkeypatch.setattr(recheck, "source_hash", lambda *modules: "newest")
    monkeypatch.setattr(room("04", "experiment"), "systems", plain)
    with pytest.raises(DataError, match="has changed; record anew"):
        again(old)
    assert files(old) == before


def test_a_budget_may_gain_a_setting_that_moves_nothing(old, monkeypatch):
    path = old / "world" / "tiny.json"

    def without(setting):
        head = json.loads(path.read_text())
        whole = head["settings"]["even"].copy()
        del head["settings"]["even"][setting]  # as an older budget was without
        path.write_text(json.dumps(head))
        return whole

    whole = without("pause")
    assert again(old).header["settings"]["even"] == whole
    assert records.read(old / "world", "tiny").header["settings"]["even"] == whole
    monkeypatch.setattr(recheck, "source_hash", lambda *modules: "newest")
    without("epochs")
    longer = tiny_jobs.room({"even": Settings(epochs=4)})
    monkeypatch.setattr(record, "room", longer)
    before = files(old)
    with pytest.raises(DataError, match="other figures than are on record"):
        again(old)
    with pytest.raises(DataError, match="a budget has gained epochs: run all epochs again"):
        again(old, epochs=1)
    assert files(old) == before


@pytest.mark.parametrize("what", ["value", "epoch"])
def test_other_figures_do_not_stand(old, what, capsys, monkeypatch):
    own = records.read(old / "world", "tiny")
    table = own.table.copy()
    place = (table.dataset == "even") & (table.seed == 2) & (table.system == "a")
    place &= (table.split == "epochs") if what == "epoch" else (table.metric == "AUC")
    row = table.index[place][-1]
    table.loc[row, "value"] *= 1 + 1e-6
    records.write(old / "world", "tiny", records.Evidence(table, own.header))
    before = files(old)
    monkeypatch.setattr(recheck, "evidence_dir", lambda: old)
    assert recheck.main(["04", "--workers", "1"]) == 1
    assert "even, a, 2: this code gives other figures" in capsys.readouterr().err
    assert files(old) == before


def test_a_seed_of_this_arithmetic_and_data_is_needed(old, monkeypatch):
    path = old / "world" / "tiny.json"
    head = json.loads(path.read_text())
    head["machine"]["arithmetic"] = "another"
    head["added"] = [{**head, "data": head["data"], "seeds": [1], "machine": records.machine()}]
    path.write_text(json.dumps(head))
    (told,) = again(old).header["rechecked"]
    assert told["seeds"] == {"odd": 1, "even": 1}
    monkeypatch.setattr(recheck, "source_hash", lambda *modules: "newest")
    other = {**DATA, "odd": Numbers("odd, elsewhere", 5)}
    monkeypatch.setattr(record, "room", tiny_jobs.room(data=other))
    with pytest.raises(DataError, match="odd: no seed on record"):
        again(old)
    monkeypatch.setattr(record, "room", tiny_jobs.room({"even": Settings(epochs=4)}))
    with pytest.raises(DataError, match="even: its settings have changed"):
        again(old)


def test_every_system_is_run_again(old, monkeypatch):
    monkeypatch.setattr(record, "room", tiny_jobs.room(systems=("a",)))
    with pytest.raises(DataError, match=r"not run again: \[\('even', 'b'\), \('odd', 'b'\)\]"):
        again(old)


def test_some_epochs_alone(old, monkeypatch):
    """Trainings are broken off after so many epochs, and compared up to there."""
    seen = []

    def train(job, data, after_epoch):
        found, history = records.read(old / "world", "tiny"), []
        for epoch in range(3):
            seen.append(epoch)
            history.append({
                name: found.curves(job.dataset, job.system["system"], name)[job.seed][epoch]
                for name in ("train_loss", "dev_loss")
            })  # fmt: skip
            after_epoch(history)

    monkeypatch.setitem(sys.modules, "elsewhere", SimpleNamespace(train=train))
    room = tiny_jobs.room()
    stages = room("04", "experiment").stages

    def elsewhere(*grid):
        ((_, jobs, side_by_side),) = stages(*grid)
        return [(SimpleNamespace(__module__="elsewhere"), jobs, side_by_side)]

    monkeypatch.setattr(room("04", "experiment"), "stages", elsewhere)
    monkeypatch.setattr(record, "room", room)
    (told,) = again(old, epochs=2).header["rechecked"]
    assert told["epochs"] == 2
    assert seen == [0, 1] * 4
