"""Principal components of a feature set against scikit-learn's."""

import json

import numpy as np
import pytest
from sklearn.decomposition import PCA

from mmlib.core.errors import DataError
from mmlib.features import reduction
from mmlib.features.reduction import reduce_features
from mmlib.features.store import open_features

IDS = [f"{i}.jpg" for i in range(30)]
TRAIN = IDS[5:25]


@pytest.fixture
def store(tmp_path):
    rng = np.random.default_rng(0)
    array = rng.standard_normal((30, 4, 9)) @ rng.standard_normal((9, 9)) + 3
    np.save(tmp_path / "full.npy", array.astype(np.float32))
    (tmp_path / "full.ids.txt").write_text("\n".join(IDS), encoding="utf-8")
    (tmp_path / "full.json").write_text('{"backbone": "tiny"}', encoding="utf-8")
    return open_features(tmp_path / "full.npy")


def test_components_are_those_of_scikit_learn(store, tmp_path, monkeypatch):
    monkeypatch.setattr(reduction, "BLOCK", 7)
    reduced = reduce_features(store, TRAIN, 5, tmp_path / "small.npy")
    pca = PCA(5).fit(store.rows(TRAIN).reshape(-1, 9).astype(np.float64))
    wanted = pca.transform(np.asarray(store.array).reshape(-1, 9))
    wanted /= pca.transform(store.rows(TRAIN).reshape(-1, 9)).std()
    strongest = pca.components_[np.arange(5), np.abs(pca.components_).argmax(axis=1)]
    wanted = (wanted * np.sign(strongest)).reshape(30, 4, 5)
    np.testing.assert_allclose(reduced.array, wanted, atol=1e-4)
    trained = reduced.rows(TRAIN)
    assert trained.std() == pytest.approx(1, abs=1e-5)
    np.testing.assert_allclose(trained.mean(axis=(0, 1)), 0, atol=1e-5)
    assert abs(reduced.rows(IDS[:5]).mean(axis=(0, 1))).max() > 0.01  # these were not fitted on
    assert list(reduced.row_of) == IDS
    notes = json.loads((tmp_path / "small.json").read_text(encoding="utf-8"))
    share = notes.pop("variance_kept")
    assert share == pytest.approx(pca.explained_variance_ratio_.sum(), abs=1e-4)
    assert notes == {"backbone": "tiny", "components": 5, "fitted_on": 20}


def test_one_vector_an_image(store, tmp_path):
    np.save(tmp_path / "global.npy", store.array[:, 0].astype(np.float16))
    (tmp_path / "global.ids.txt").write_text("\n".join(IDS), encoding="utf-8")
    reduced = reduce_features(open_features(tmp_path / "global.npy"), IDS, 2, tmp_path / "g2.npy")
    assert (reduced.array.shape, reduced.array.dtype) == ((30, 2), np.float16)


def test_what_cannot_be_reduced_is_named(store, tmp_path):
    out = tmp_path / "small.npy"
    with pytest.raises(DataError, match="no 10 components: 80 training regions of width 9"):
        reduce_features(store, TRAIN, 10, out)
    with pytest.raises(DataError, match="no 5 components: 4 training regions"):
        reduce_features(store, TRAIN[:1], 5, out)
    with pytest.raises(DataError, match=r"no features for image 'none\.jpg'"):
        reduce_features(store, ["none.jpg"], 2, out)
    assert sorted(path.name for path in tmp_path.glob("small*")) == []
    out.write_bytes(b"another's")
    with pytest.raises(DataError, match="is there already"):
        reduce_features(store, TRAIN, 2, out)
    assert out.read_bytes() == b"another's"
