"""The feature reader against hand-made files in each naming."""

import json
from contextlib import suppress

import numpy as np
import pytest

from mmlib.core.errors import DataError
from mmlib.features.store import open_features


def store(folder, array, ids, listing="f.ids.txt", name="f.npy"):
    folder.mkdir(exist_ok=True, parents=True)
    np.save(folder / name, array)
    if listing.endswith(".json"):
        (folder / listing).write_text(json.dumps(ids), encoding="utf-8-sig")
    else:
        (folder / listing).write_text("\n".join(ids), encoding="utf-8-sig")
    return folder / name


ARRAY = np.arange(24, dtype=np.float16).reshape(3, 2, 4)


@pytest.mark.parametrize(
    ("name", "listing", "ids"),
    [
        ("f.npy", "f.ids.txt", ["a", "b\u2028\x85\x0c", "c"]),  # one a line
        ("f_ims.npy", "f_ids.txt", ["a", "b", "c"]),
        ("features.npy", "id2row.json", {"c": 2, "a": 0, "b": 1}),
        ("grid4x4_mobilenetv1_pca192.npy", "ids.txt", ["a", "b", "c"]),
    ],
)
def test_rows_by_id_in_all_namings(tmp_path, name, listing, ids):
    features = open_features(store(tmp_path, ARRAY, ids, listing, name))
    rows = features.rows(["c", "a", "c"])
    assert rows.dtype == np.float32
    assert np.array_equal(rows, ARRAY[[2, 0, 2]].astype(np.float32))
    assert isinstance(features.array, np.memmap)
    assert features.width == 4
    assert features.row_of.keys() == set(ids)


@pytest.mark.parametrize(
    ("listing", "ids"), [("ids.txt", ["a", "b", "c"]), ("id2row.json", {"c": 2, "a": 0, "b": 1})]
)
@pytest.mark.parametrize("neighbour", [True, False])
def test_ids_of_another_file_are_not_taken(tmp_path, listing, ids, neighbour):
    """As many as rows, but in an order of their own."""
    path = store(tmp_path, ARRAY, ids, listing, "mine.npy")
    if neighbour:
        name = "features.npy" if listing.endswith("json") else "grid4x4_mobilenetv1_pca192.npy"
        assert open_features(store(tmp_path, ARRAY, ids, listing, name)).row_of["b"] == 1
    message = r"mine\.npy: no ids beside it \(put mine\.ids\.txt there.* may be of another file"
    with pytest.raises(DataError, match=message):
        open_features(path)


@pytest.mark.parametrize(
    ("value", "told"),
    [(np.nan, "not finite"), (-np.inf, "not finite"), (1e39, "not finite, or too large"),
     (0, "all 0"), (1e-50, "all 0")],
)  # fmt: skip
def test_what_an_image_lacks_is_named(tmp_path, value, told):
    array = ARRAY.astype(float)
    array[1, :, :] = value if abs(value) < 1 else array[1, :, :]
    array[1, 1, 3] = value
    features = open_features(store(tmp_path, array, ["a", "b", "c"]))
    features.rows(["a", "c"])
    with pytest.raises(DataError, match=f"row 1: features of image 'b' are {told}"):
        features.rows(["c", "b"])
    with pytest.raises(DataError, match=r"f\.npy: no features for image 'nope' and 1 more"):
        features.rows(["a", "nope", "no"])


@pytest.mark.parametrize(
    ("listing", "ids", "message"),
    [
        ("f.ids.txt", ["a", "b"], "2 ids for 3 rows"),
        ("f.ids.txt", [], "0 ids for 3 rows"),
        ("f.ids.txt", ["a", "b", "a"], "line 3: id 'a' occurs twice"),
        ("id2row.json", {"a": 3}, "'a' has row 3"),
        ("id2row.json", {"a": -1}, "has row -1"),
        ("id2row.json", {"a": "0"}, "has row '0'"),
        ("id2row.json", ["a"], "not a JSON object"),
        ("other.txt", ["a"], "no ids beside it"),
    ],
)
def test_ids_that_do_not_fit(tmp_path, listing, ids, message):
    name = "features.npy" if listing.endswith("json") else "f.npy"
    path = store(tmp_path, ARRAY, ids, listing, name)
    with pytest.raises(DataError, match=message):
        open_features(path)


@pytest.mark.parametrize("notes", ["[]", "null", '"a"', "{", "", "\x00", "[" * 100_000])
def test_notes_that_are_no_object(tmp_path, notes):
    path = store(tmp_path, ARRAY, ["a", "b", "c"])
    path.with_suffix(".json").write_text(notes)
    with pytest.raises(DataError, match=r"f\.json: not (a JSON object|JSON: )"):
        open_features(path)


def test_damaged_arrays_are_named(tmp_path):
    """Every kind of damage to a header, and what np.savez writes."""
    path = store(tmp_path, ARRAY, ["a", "b", "c"])
    sound, rng = path.read_bytes(), np.random.default_rng(0)
    for _ in range(100):
        header = bytearray(sound)
        header[rng.integers(128)] = rng.integers(256)
        path.write_bytes(bytes(header))
        with suppress(DataError):  # and nothing else; a changed blank changes nothing
            open_features(path)
    np.savez(tmp_path / "zip.npz", ARRAY)
    shape = b"(3, 2, 4)"
    for content in (
        (tmp_path / "zip.npz").read_bytes(), b"", sound[:60], sound.replace(shape, b"(-3,2, 4)"),
        sound.replace(shape, b"(9**99,4)"), sound.replace(b"False", b"\xff\xfe\xfd()"),
    ):  # fmt: skip
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"f\.npy: not a readable \.npy array.*get it again"):
            open_features(path)
    objects, integers = np.array([{"a": 1}], dtype=object), np.zeros((2, 2), dtype=np.int64)
    for bad, fault in (
        (tmp_path / "none.npy", "no such feature file"),
        (store(tmp_path, objects, ["a"], name="o.npy"), "not a readable"),
        (store(tmp_path, integers, ["a", "b"], name="i.npy"), "holds int64"),
    ):
        with pytest.raises(DataError, match=fault):
            open_features(bad)
