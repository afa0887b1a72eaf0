"""Evidence: what was recorded comes back, and what breaks the contract is refused."""

import json

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from made_up_evidence import evidence_of
from tiny_jobs import DATA, jobs

from mmlib.core import evidence, recordings
from mmlib.core.engine import tidy
from mmlib.core.errors import DataError
from mmlib.core.evidence import Evidence
from mmlib.core.jobs import NO_SEED, Answer
from mmlib.core.recordings import ranges
from mmlib.core.tables import Cells


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
    extra = [answer(0, 5, 5, epochs=0), answer(1, 6, 5, epochs=2)]
    return Evidence(tidy(grid + more, answers + extra, data), {"paper": "tiny", "tier": "world"})


def test_values_are_those_of_their_system_seed_and_item(found):
    assert found.datasets == ["even", "odd"]
    assert found.systems("odd") == ["a", "b", "c", "d"]
    assert found.systems("even") == ["a", "b"]
    assert found.seeds == found.seeds_of("even") == found.seeds_of("odd") == [0, 1, 2]
    assert found.seeds_of("odd", "a", "c", "d") == [1]  # d has no other yet, c none
    assert found.seeds_of("moon") == []
    assert found.metrics("odd", "a") == ["AUC", "p@1"]
    values = found.values("even", "b", "AUC", range(3))
    items = values.shape[1]
    assert values.tolist() == [[100 + 10 * s + i for i in range(items)] for s in range(3)]
    assert found.values("even", "b", "AUC").tolist() == values.tolist()
    assert found.values("even", "b", "p@1", [2, 0]).tolist() == (-values[[2, 0]]).tolist()
    # What is compared is paired: by the seeds that both systems have.
    paired = Cells(found, "odd").values({("b", "AUC"): 1, ("d", "AUC"): -1})
    assert paired.tolist() == [[110 - 610] * 5]
    # A closed form has one row for each seed that others have.
    assert found.values("odd", "c", "AUC").tolist() == 3 * [[500 + i for i in range(5)]]
    assert found.clusters("odd").tolist() == [0, 0, 1, 1, 2]
    assert found.curves("even", "a", "dev_loss")[1] == pytest.approx([1 / 2, 1 / 3, 1 / 4])
    assert found.has("odd", "a", "dev_loss", "epochs")
    assert not found.has("even", "c", "AUC")
    assert {("odd", "d", 0), ("odd", "d", 1)} & found.jobs == {("odd", "d", 1)}
    assert found.means("odd", "b", "AUC").to_dict() == {0: 102, 1: 112, 2: 122}
    assert found.means("odd", "c", "AUC").to_dict() == dict.fromkeys(range(3), 502)
    assert found.means("odd", "e", "AUC").empty


def test_a_curve_that_ends_earlier_than_others_ends_in_nan():
    rows = [("d", "a", s, "epochs", "dev_loss", [3, 2, 1][: s + 1], [0] * (s + 1)) for s in (0, 2)]
    curves = evidence_of(rows, {}).curves("d", "a", "dev_loss")
    np.testing.assert_array_equal(curves, [[3, np.nan, np.nan], [3, 2, 1]])


def test_a_derived_figure_is_worked_out_once_a_seed_and_name(found):
    seen = []

    def squared(values):
        seen.append(values[0])
        return values**2

    mine = Evidence(found.series, found.header)
    for seeds in ([2, 0], [0], range(3), None):
        derived = mine.values("even", "b", "AUC", seeds, change=("squared", squared))
        assert derived.tolist() == (found.values("even", "b", "AUC", seeds) ** 2).tolist()
    assert sorted(seen) == [100, 110, 120]
    cubed = mine.values("even", "b", "AUC", change=("cubed", lambda values: values**3))
    assert cubed.tolist() == (found.values("even", "b", "AUC") ** 3).tolist()
    assert mine.values("odd", "c", "AUC", range(3), change=("mean", np.mean)).tolist() == 3 * [502]


def test_what_was_not_recorded_is_refused(found):
    for arguments, told in (
        (("odd", "e", "AUC"), "no evidence of AUC of e on odd"),
        (("moon", "a", "AUC"), "no evidence of AUC of a on moon"),
        (("odd", "a", "p@9"), "no evidence of p@9 of a"),
        (("odd", "a", "AUC", [7]), "no evidence of a on odd for seed 7"),
        (("odd", "d", "AUC", [0]), "no evidence of d on odd for seed 0"),
    ):
        with pytest.raises(DataError, match=told):
            found.values(*arguments)
    with pytest.raises(DataError, match="no evidence on moon"):
        found.clusters("moon")


def test_ranges_of_seeds():
    assert ranges([0, 1, 2, 5, 7, 8]) == "0–2, 5, 7–8"
    assert ranges([]) == ""


# --- Files ---------------------------------------------------------------------------------------

HEAD = evidence.header(
    paper="tiny", tier="world", method_version=1, device="cpu", inputs={}, inapplicable={},
    settings={"odd": {"epochs": 1}, "even": {"epochs": 2}}, data={"odd": "x", "even": "y"},
    systems={name: {"a": {"size": "1"}, "b": {"size": "0"}} for name in DATA},
    bounds={"AUC": (0, 100), "none": (None, 0)}, may_skip="AUC",
)  # fmt: skip


def sound(seeds=range(3)) -> pd.DataFrame:
    """Series within the bounds of their metrics; of AUC the first item is skipped."""
    grid = jobs(seeds)
    values = [10.0 * j.seed + np.arange(DATA[j.dataset].items) for j in grid]
    for one in values:
        one[:3] = np.nan, 0, 100  # skipped, and at its limits
    answers = [Answer({"test": {"AUC": one}}, [{"dev_loss": 1.0}] * 2, 1.4) for one in values]
    return tidy(grid, answers, DATA)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "world" / "tiny"


@pytest.mark.parametrize("by", [None, "seed", "dataset", "system"])
def test_what_is_written_is_read_back_as_one_whatever_is_in_which_file(folder, by):
    series = sound()
    parts = [rows for _, rows in series.groupby(by)][::-1] if by else [series]
    paths = [path for rows in parts for path in recordings.write(folder, rows, HEAD)]
    again = recordings.read(folder)
    pd.testing.assert_frame_equal(again.series, series)
    assert (again.header["settings"], again.header["cpu_seconds"]) == (HEAD["settings"], 17)
    of_even = [header["systems"].get("even", {}) for header in again.recordings]
    assert [systems["a"] for systems in of_even if "a" in systems][:1] == [{"size": "1"}]
    assert len(again.recordings) == len(paths) == {"seed": 6, "system": 4}.get(by, 2)
    for path in paths:  # one data set each, and read by whoever reads Parquet
        head = json.loads(pq.read_schema(path).metadata[b"mmlib"])
        assert list(head["data"]) == list(head["settings"]) == [path.parent.name]
        values = pd.read_parquet(path)["value"]
        assert set(map(len, values)) == {1, 2, DATA[path.parent.name].items}
    job = again.recording_of("odd", "b", 2)
    assert 2 in job["jobs"]["odd"]["b"]
    assert job["file"].startswith("odd/")
    assert again.recording_of("odd", "b", 9) is None


def damaged(series, where, **columns):
    """The series, of which those of a query have other columns."""
    rows = series.query(where).index
    for name, change in columns.items():
        series[name] = [change(v) if i in rows else v for i, v in series[name].items()]
    return series


def at(item, number):
    return lambda values: np.where(np.arange(len(values)) == item, number, values)


NO_CLUSTER = [np.where(np.arange(n) == n - 1, np.nan, 0.0) for n in range(9)]
B = "dataset == 'even' and system == 'b' and seed == 1 and metric == 'AUC'"
SICK = {
    "a series twice": (lambda s: pd.concat([s, s[-1:]]), "AUC of b, seed 2, .* is there twice"),
    "a job twice": (
        lambda s: pd.concat([s, damaged(s.query("system == 'a' and seed == 0"), "seed == 0",
                                        value=lambda v: v + 1)]),
        "dev_loss of a, seed 0, on even .* is there twice",
    ),
    "too large": (lambda s: damaged(s, B, value=at(2, 100.5)), r"AUC of b, seed 1, .* is 100\.5"),
    "too small": (lambda s: damaged(s, B, value=at(2, -1)), "AUC of b, seed 1, .* is -1"),
    "infinite": (lambda s: damaged(s, "metric == 'dev_loss'", value=at(1, -np.inf)), ".* is -inf"),
    "no number": (lambda s: damaged(s, "metric == 'dev_loss'", value=at(0, np.nan)),
                  "dev_loss of a.* is not a number"),
    "skipped by one": (lambda s: damaged(s, B, value=at(3, np.nan)),
                       "AUC of b, seed 1, .* skips other items"),
    "not skipped by one": (lambda s: damaged(s, B, value=at(0, 1)), "AUC of b.* skips other items"),
    "a lost item": (lambda s: damaged(s, B, value=lambda v: v[:-1]), "AUC of b.* has other items"),
    "no items": (lambda s: damaged(s, B, value=lambda v: v[:0]), "AUC of b.* has no value"),
    "other clusters": (lambda s: damaged(s, B, cluster=at(1, 7)), "AUC of b.* or clusters"),
    "no cluster": (lambda s: damaged(s, "metric == 'AUC'", cluster=lambda c: NO_CLUSTER[len(c)]),
                   "AUC of a, seed 0, on even .* or clusters"),
    "a lost seed": (lambda s: s.query(f"not ({B})"), "not every seed of its system has AUC of b"),
    "no such seed": (lambda s: s.assign(seed=s.seed - 2), ".* of a, seed -2, .* no such seed"),
}  # fmt: skip


@pytest.mark.parametrize("what", SICK)
def test_series_that_break_the_contract_are_neither_written_nor_read(folder, monkeypatch, what):
    change, told = SICK[what]
    sick = change(sound())
    with pytest.raises(DataError, match=rf"tiny: not written, {told}"):
        recordings.write(folder, sick, HEAD)
    assert not recordings.paths_of(folder)
    if what == "other clusters":  # a file has but one of each split
        return
    with monkeypatch.context() as patch:  # written so by whatever
        patch.setattr(recordings, "check", lambda *arguments: None)
        recordings.write(folder, sick, HEAD)
    with pytest.raises(DataError, match=rf"\.parquet: damaged, {told}.*; get it again"):
        recordings.read(folder)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"method_version": 2}, "the version of the method"),
        ({"settings": {"odd": {"epochs": 9}, "even": {}}}, "the settings of even"),
        ({"data": {"odd": "x", "even": "z"}}, "the data of even"),
        ({"inputs": {"a.txt": "2"}}, r"the input a\.txt"),
        ({"features": {"sha256": "2"}}, "the image features"),
        ({"systems": {"even": {"b": {"size": "7"}}}}, "what b on even is"),
        ({}, ""),
        ({"systems": {"even": {"b": {"size": "0", "colour": "red"}}}, "inputs": {"b": "1"}}, ""),
        ({"data": {"odd": "x", "even": "z"}, "same_data": {"even": ["y"]}}, ""),
        ({"data": {"even": "z"}, "machine": {**HEAD["machine"], "arithmetic": "other"}}, ""),
        ({"data": {"even": "z"}, "machine": {}, "inputs": {}}, r"the data of even \(a\.txt for"),
    ],
)
def test_files_that_contradict_each_other_are_both_named(folder, change, told):
    first = {**HEAD, "inputs": {"a.txt": "1"}, "features": {"sha256": "1"}}
    recordings.write(folder, sound([0]), first)
    recordings.write(folder, sound([1]).query("dataset == 'even'"), {**first, **change})
    if told:
        words = rf"even/001-\w+\.parquet and even/002-\w+\.parquet: differ in {told}"
        with pytest.raises(DataError, match=words):
            recordings.read(folder)
    else:
        assert recordings.read(folder).seeds_of("even") == [0, 1]


def test_a_folder_in_a_recordings_place_is_named_and_spoils_no_recording(folder):
    odd = {**HEAD, "inputs": {"\udcff.txt": "1"}}  # of a file whose name is no UTF-8
    (folder / "odd" / "007-0123456789abcdef.parquet").mkdir(parents=True)
    (folder / "odd" / "mine.parquet").write_text("")
    paths = recordings.write(folder, sound().query("dataset == 'odd'"), odd)
    assert paths[0].name.startswith("008-")
    assert recordings._read(paths[0])[1]["inputs"] == odd["inputs"]
    with pytest.raises(DataError, match=r"007-.*\.parquet: is a folder, not a file \(get it again"):
        recordings.read(folder)


def test_a_job_in_two_files_is_refused(folder):
    recordings.write(folder, sound([0, 1]), HEAD)
    recordings.write(folder, sound([1, 2]).query("dataset == 'even'"), HEAD)
    told = r"even/002-\w+\.parquet: damaged, .* of a, seed 1, on even .* is there twice"
    with pytest.raises(DataError, match=told):
        recordings.read(folder)


def test_every_flipped_bit_lost_end_and_other_name_is_found(folder):
    path, _ = recordings.write(folder, sound(), HEAD)
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    for position in [0, len(whole) - 1, *rng.choice(len(whole), 178, replace=False)]:
        flipped = bytearray(whole)
        flipped[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(flipped)
        with pytest.raises(DataError, match=rf"{path.name}: damaged or renamed"):
            recordings.read(folder)
    for cut in (whole[:-300], b"", b"PAR1"):
        path.write_bytes(cut)
        with pytest.raises(DataError, match=rf"{path.name}: damaged or renamed"):
            recordings.read(folder)
    path.write_bytes(whole)
    recordings.read(folder)
    for name in ("001-0123456789abcdef.parquet", "x.parquet"):
        path = path.rename(path.with_name(name))
        with pytest.raises(DataError, match=r"damaged or renamed, its (content|name) has"):
            recordings.read(folder)


@pytest.mark.parametrize(
    ("header", "columns", "told"),
    [
        ({"settings": None}, [], "NoneType"),
        ({"settings": {"odd": {}, "even": {}}}, [], "too many values"),
        ({"settings": {"odd": {}}}, [], "it is of world/tiny/odd"),
        ({"paper": "links"}, [], "it is of world/links/even"),
        ({"tier": "paper"}, [], "it is of paper/tiny/even"),
        ({}, ["cluster"], "other columns"),
    ],
)
def test_a_file_of_another_form_or_place_is_refused(folder, header, columns, told):
    path, _ = recordings.write(folder, sound(), HEAD)
    table = pq.read_table(path)
    head = json.loads(table.schema.metadata[b"mmlib"]) | header
    path.unlink()
    pq.write_table(table.drop(columns).replace_schema_metadata({"mmlib": json.dumps(head)}), path)
    path = path.rename(path.with_name(f"001-{recordings._hash(path.read_bytes())}.parquet"))
    with pytest.raises(DataError, match=rf"{path.name}: damaged \(.*{told}.*; get"):
        recordings.read(folder)
