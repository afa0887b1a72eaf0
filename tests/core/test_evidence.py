"""Evidence: what was recorded comes back, by data set, system, seed and item."""

import numpy as np
import pandas as pd
import pytest
from tiny_jobs import DATA, jobs

from mmlib.core import evidence, recordings
from mmlib.core.contract import ranges
from mmlib.core.engine import tidy
from mmlib.core.errors import DataError
from mmlib.core.evidence import NO_SEED, Evidence
from mmlib.core.jobs import Answer


def answer(seed, size, items, epochs=3):
    values = 100.0 * size + 10 * seed + np.arange(items)
    history = [{"dev_loss": 1 / (e + 1 + seed)} for e in range(epochs)]
    return Answer({"test": {"AUC": values, "p@1": -values}}, history)


@pytest.fixture(scope="module")
def found() -> Evidence:
    """Systems a and b of three seeds; c, a closed form, of one; d, trained once so far."""
    grid, data = jobs(range(3)), DATA
    answers = [answer(j.seed, "ab".index(j.system["system"]), data[j.dataset].items) for j in grid]
    more = jobs([NO_SEED], ["c"], ["odd"]) + jobs([1], ["d"], ["odd"])
    extra = [answer(0, 5, 5, epochs=0), answer(1, 6, 5)]
    head = evidence.header(
        paper="tiny", tier="world", source="x", seeds=[0, 1, 2], data={}, settings={}, cpu_seconds=0
    )
    return Evidence(tidy(grid + more, answers + extra, data), head)


def test_values_are_those_of_their_system_seed_and_item(found):
    assert found.datasets == ["even", "odd"]
    assert found.systems("odd") == ["a", "b", "c", "d"]
    assert found.systems("even") == ["a", "b"]
    assert found.seeds == found.seeds_of("even") == [0, 1, 2]
    assert found.seeds_of("odd") == [1]  # d has no other yet
    assert found.seeds_of("moon") == []
    assert found.metrics("odd", "a") == ["AUC", "p@1"]
    values = found.values("even", "b", "AUC", range(3))
    items = values.shape[1]
    assert values.tolist() == [[100 + 10 * s + i for i in range(items)] for s in range(3)]
    assert found.values("even", "b", "AUC").tolist() == values.tolist()
    assert found.values("even", "b", "p@1", [2, 0]).tolist() == (-values[[2, 0]]).tolist()
    # What not every system of a data set has is left out, so that rows are paired.
    assert found.values("odd", "b", "AUC", range(3)).tolist() == [[110 + i for i in range(5)]]
    assert found.clusters("odd").tolist() == [0, 0, 1, 1, 2]
    assert found.curves("even", "a", "dev_loss")[1] == pytest.approx([1 / 2, 1 / 3, 1 / 4])
    assert found.has("odd", "a", "dev_loss", "epochs")
    assert not found.has("even", "c", "AUC")
    assert ("odd", "d", 1) in found.jobs
    assert ("odd", "d", 0) not in found.jobs
    assert found.means("odd", "b", "AUC").to_dict() == {0: 102, 1: 112, 2: 122}
    assert found.means("odd", "c", "AUC").to_dict() == {1: 502}  # a closed form: for every seed
    assert found.means("odd", "e", "AUC").empty
    assert found.columns()["even", "a"] == {"system": "a", "size": "1"}
    assert found.columns()["even", "b"] == {"system": "b"}


def test_values_are_those_of_a_pivot_whatever_the_order_of_the_rows(found):
    table = found.table.sample(frac=1, random_state=0)
    mixed = Evidence(table, found.header)
    for key, rows in table.groupby(["dataset", "split", "system", "metric"], observed=True):
        wide = rows.pivot(index="seed", columns="item", values="value")
        dataset, split, system, metric = key
        own = [seed for seed in wide.index if seed in found.seeds_of(dataset)]
        values = mixed.values(dataset, system, metric, own or [0], split)
        np.testing.assert_array_equal(values, wide.loc[own] if own else wide)
        if split == "test":
            clusters = rows.drop_duplicates("item").set_index("item").cluster[wide.columns]
            np.testing.assert_array_equal(mixed.clusters(dataset), clusters)
    assert mixed.seeds == found.seeds
    assert mixed.columns() == found.columns()


def test_a_closed_form_stands_for_every_seed_and_a_training_for_its_own(found):
    assert found.values("odd", "c", "AUC", range(3)).shape == (1, 5)  # of those that others have
    assert found.values("odd", "c", "AUC", [1]).tolist() == [[500 + i for i in range(5)]]
    assert found.values("odd", "d", "AUC", [1]).tolist() == [[610 + i for i in range(5)]]
    with pytest.raises(DataError, match="no evidence of d on odd for seed 0"):
        found.values("odd", "d", "AUC", [0])


def test_a_derived_figure_is_worked_out_once_a_seed_and_name(found):
    seen = []

    def squared(values):
        seen.append(values[0])
        return values**2

    mine = Evidence(found.table, found.header)
    for seeds in ([2, 0], [0], range(3), None):
        derived = mine.derived("squared", squared, "even", "b", "AUC", seeds)
        assert derived.tolist() == (found.values("even", "b", "AUC", seeds) ** 2).tolist()
    assert sorted(seen) == [100, 110, 120]
    cubed = mine.derived("cubed", lambda values: values**3, "even", "b", "AUC")
    assert cubed.tolist() == (found.values("even", "b", "AUC") ** 3).tolist()
    means = mine.derived("mean", np.mean, "odd", "c", "AUC", range(3))
    assert means.tolist() == [502]  # a closed form has one row for each seed that others have
    with pytest.raises(DataError, match="of a on odd for seed 7"):
        mine.derived("mean", np.mean, "odd", "a", "AUC", [7])


def test_what_was_not_recorded_is_refused(found):
    for arguments in (("odd", "e", "AUC"), ("moon", "a", "AUC"), ("odd", "a", "p@9")):
        with pytest.raises(DataError, match=f"no evidence of {arguments[2]} of {arguments[1]}"):
            found.values(*arguments)
    with pytest.raises(DataError, match="of a on odd for seed 7"):
        found.values("odd", "a", "AUC", [7])
    with pytest.raises(DataError, match="no evidence on moon"):
        found.clusters("moon")


def sound() -> Evidence:
    """Evidence within the bounds of its metrics."""
    grid = jobs(range(3))
    answers = [
        Answer(
            {"test": {"AUC": 10.0 * j.seed + np.arange(DATA[j.dataset].items)}}, [{"dev_loss": 1.0}]
        )
        for j in grid
    ]
    head = evidence.header(
        paper="tiny", tier="world", method_version=1, device="cpu", inputs={}, inapplicable={},
        settings={"odd": {}, "even": {}}, data={"odd": "x", "even": "y"},
    )  # fmt: skip
    return Evidence(tidy(grid, answers, DATA), head)


def test_a_round_trip_changes_nothing(tmp_path):
    found = sound()
    folder = recordings.folder_of(tmp_path, "world", "tiny")
    path = recordings.write(folder, found.table, found.header)
    again = recordings.read(folder)
    pd.testing.assert_frame_equal(again.table, found.table)
    assert found.header.items() <= again.recordings[0].items()
    pd.testing.assert_frame_equal(pd.read_parquet(path), found.table)  # as anybody reads it
    other = recordings.folder_of(tmp_path / "twice", "world", "tiny")
    assert recordings.write(other, again.table, found.header).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("by", ["seed", "dataset", "system"])
def test_parts_are_read_as_one_in_the_same_order(tmp_path, by):
    """As if all had been recorded at once, whatever stands in which file."""
    found, folder = sound(), recordings.folder_of(tmp_path, "world", "tiny")
    for _, rows in reversed([*found.table.groupby(by, observed=True)]):
        names = set(rows.dataset)
        of_names = {
            key: {name: own for name, own in found.header[key].items() if name in names}
            for key in ("settings", "data")
        }
        recordings.write(folder, recordings.trimmed(rows), {**found.header, **of_names})
    again = recordings.read(folder)
    pd.testing.assert_frame_equal(again.table, found.table)
    assert again.header["settings"] == found.header["settings"]
    assert len(again.recordings) == found.table[by].nunique()


def test_an_interrupted_write_leaves_the_old_record(tmp_path, monkeypatch):
    found, folder = sound(), recordings.folder_of(tmp_path, "world", "tiny")
    recordings.write(folder, found.table, found.header)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def half(path, write):
        path.with_name(f".{path.name}.partial").write_bytes(b"PAR1")
        raise KeyboardInterrupt

    monkeypatch.setattr(recordings, "write_atomic", half)
    with pytest.raises(KeyboardInterrupt):
        recordings.write(folder, found.table, found.header)
    for path in folder.glob(".*.partial"):
        path.unlink()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_ranges_of_seeds():
    assert ranges([0, 1, 2, 5, 7, 8]) == "0–2, 5, 7–8"
    assert ranges([]) == ""
