"""The feature reader against hand-made files in each naming."""

import json

import numpy as np
import pytest

from mmlib.core.errors import DataError
from mmlib.features.store import open_features


def store(folder, array, ids, listing="ids.txt", name="f.npy"):
    folder.mkdir(exist_ok=True, parents=True)
    np.save(folder / name, array)
    if listing.endswith(".json"):
        (folder / listing).write_text(json.dumps(ids))
    else:
        (folder / listing).write_text("\n".join(ids))
    return folder / name


ARRAY = np.arange(24, dtype=np.float16).reshape(3, 2, 4)


@pytest.mark.parametrize(
    ("listing", "ids"),
    [
        ("ids.txt", ["a", "b", "c"]),
        ("f.ids.txt", ["a", "b", "c"]),
        ("id2row.json", {"c": 2, "a": 0, "b": 1}),
    ],
)
def test_rows_by_id_in_all_three_namings(tmp_path, listing, ids):
    features = open_features(store(tmp_path, ARRAY, ids, listing))
    rows = features.rows(["c", "a", "c"])
    assert rows.dtype == np.float32
    assert np.array_equal(rows, ARRAY[[2, 0, 2]].astype(np.float32))
    assert isinstance(features.array, np.memmap)
    assert features.width == 4


def test_one_vector_an_image_is_one_region(tmp_path):
    path = store(tmp_path, ARRAY[:, 0], {"a": 0, "b": 1, "c": 2}, "id2row.json", "features.npy")
    assert open_features(path).rows(["b"]).shape == (1, 1, 4)
    assert open_features(path).rows([]).shape == (0, 1, 4)


def test_own_ids_go_before_the_shared_list(tmp_path):
    path = store(tmp_path, ARRAY, ["x", "y", "z"], "ids.txt")
    (tmp_path / "f.ids.txt").write_text("a\nb\nc\n")
    assert set(open_features(path).row_of) == {"a", "b", "c"}


def test_image_without_a_row_is_named(tmp_path):
    features = open_features(store(tmp_path, ARRAY, ["a", "b", "c"]))
    with pytest.raises(DataError, match=r"f\.npy: no features for image 'nope' and 1 more"):
        features.rows(["a", "nope", "no"])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_named(tmp_path, value):
    array = ARRAY.copy()
    array[1, 1, 3] = value
    features = open_features(store(tmp_path, array, ["a", "b", "c"]))
    features.rows(["a", "c"])
    with pytest.raises(DataError, match="row 1: features of image 'b' are not finite"):
        features.rows(["c", "b"])


@pytest.mark.parametrize(
    ("listing", "ids", "message"),
    [
        ("ids.txt", ["a", "b"], "2 ids for 3 rows"),
        ("ids.txt", ["a", "b", "a"], "line 3: id 'a' occurs twice"),
        ("id2row.json", {"a": 3}, "'a' has row 3"),
        ("id2row.json", {"a": -1}, "has row -1"),
        ("id2row.json", {"a": "0"}, "has row '0'"),
        ("id2row.json", ["a"], "not an object"),
        ("other.txt", ["a"], "no ids beside it"),
    ],
)
def test_ids_that_do_not_fit(tmp_path, listing, ids, message):
    with pytest.raises(DataError, match=message):
        open_features(store(tmp_path, ARRAY, ids, listing))


def test_arrays_that_are_no_features(tmp_path):
    with pytest.raises(DataError, match="no such feature file"):
        open_features(tmp_path / "none.npy")
    with pytest.raises(DataError, match="not a readable"):
        open_features(store(tmp_path, np.array([{"a": 1}], dtype=object), ["a"], name="o.npy"))
    with pytest.raises(DataError, match="holds int64"):
        open_features(store(tmp_path, np.zeros((2, 2), dtype=np.int64), ["a", "b"], name="i.npy"))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "i.npy").read_bytes()[:-8])
    with pytest.raises(DataError, match="not a readable"):
        open_features(tmp_path / "cut.npy")


@pytest.mark.real
def test_the_shared_grid_features(real_data):
    features = open_features(real_data / "flickr8k/features/grid4x4_mobilenetv1_pca192.npy")
    assert features.array.shape == (8091, 16, 192)
    rows = features.rows(list(features.row_of))
    assert abs(rows.std() - 1) < 0.05  # scaled to unit overall deviation
