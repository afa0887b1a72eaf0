"""The authors' files: what they say, and what is refused with the file, the document, the mend."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmlib.papers.links.data.paper import links_of_labels, read_corpus

DOCS = {
    "train": [
        [[["a", 1], ["b", -1], ["c", 1]], [["x", -1], ["y", -1], ["z", 0]], "na"],
        [[["d", -1]], [["Été, “quoted”", 0], ["", -1]], "recipe-7"],
    ],
    "val": [[[["e", 0], ["f", 0]], [["one", -1]], "na"]],
    "test": [[[["a", -1]], [["two", -1]], "na"]],
}
ROWS = {"a": 5, "b": 0, "c": 1, "d": 2, "e": 3, "f": 4}


@pytest.fixture
def folder(tmp_path):
    def write(docs=DOCS, rows=ROWS, features=None):
        if features is None:
            features = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
        (tmp_path / "docs.json").write_text(json.dumps(docs), encoding="utf-8-sig")
        (tmp_path / "id2row.json").write_text(json.dumps(rows), encoding="utf-8-sig")
        np.save(tmp_path / "features.npy", features)
        return tmp_path

    return write


def put(value, *path):
    """The documents with a value replaced, or, at the end of a list, added."""
    docs = json.loads(json.dumps(DOCS))
    *lead, last = path
    inner = docs
    for step in lead:
        inner = inner[step]
    if inner is not docs and last == len(inner):
        inner.append(value)
    else:
        inner[last] = value
    return docs


def test_reads_the_authors_files(folder):
    corpus = read_corpus(folder())
    first = corpus.train[0]
    assert np.argwhere(first.link_matrix()).tolist() == [[1, 0], [1, 2], [2, 0]]
    assert first.sentences == ("x", "y", "z")
    assert corpus.rows(first).tolist() == [5, 0, 1]
    assert corpus.features.dtype == np.float32
    assert corpus.train[1].sentences[1] == ""  # an empty sentence stays
    assert len(corpus.val) == len(corpus.test) == 1
    numbered = read_corpus(folder(put(17, "train", 0, 0, 0, 0), {**ROWS, "17": 0}))
    assert numbered.train[0].images[0] == "17"
    assert read_corpus(folder(put(3, "train", 0, 2))).train[0].id == "3"


def test_null_labels_say_that_nobody_knows(folder):
    labelled = read_corpus(folder()).train
    docs = {
        split: [
            [*([[node, None] for node, _ in side] for side in sides), name]
            for *sides, name in documents
        ]
        for split, documents in DOCS.items()
    }
    assert read_corpus(folder(docs)).train == tuple(replace(d, links=None) for d in labelled)


def test_documents_without_a_side_are_left_out_and_counted(folder):
    docs = put([[], [["lonely", -1]], "no images"], "train", 2)
    docs["train"].append([[["a", -1]], [], "no sentences"])
    docs["test"].append([[], [], "nothing"])
    with pytest.warns(UserWarning, match="left out .*: train 2, val 0, test 1"):
        corpus = read_corpus(folder(docs))
    assert (len(corpus.train), len(corpus.test)) == (2, 1)


REFUSED = [
    ({"train": [], "test": []}, "must be an object with the lists 'train', 'val' and 'test'"),
    (put({}, "val"), "must be an object with the lists"),
    (put([], "test"), "'test' has no document with an image and a sentence"),
    (put([[], [], "na"], "val", 0), "'val' has no document with an image and a"),
    (put([], "train", 1), r"train document 1: must be \[images, sentences, identifier\]"),
    (put([[], []], "train", 0), r"train document 0: must be \[images, sentences, identifier\]"),
    (put(["a"], "val", 0, 0, 1), r"val document 0 \('na'\): images must be a list of"),
    (put("one", "val", 0, 1), r"val document 0 \('na'\): sentences must be a list of"),
    (put(5, "val", 0, 1, 0, 0), r"val document 0 \('na'\): sentence 0 is 5; use a string"),
    (put(None, "val", 0, 0, 0, 0), r"val document 0 \('na'\): image 0 has id None"),
    (put(1, "train", 1, 1, 0, 1), r"train document 1 \('recipe-7'\): sentence 0 has label 1, but "
     "there are 1 images; use 0 to 0, or -1"),
    (put(3, "train", 0, 0, 2, 1), "image 2 has label 3, but there are 3 sentences"),
    (put(-2, "val", 0, 0, 1, 1), r"val document 0 \('na'\): image 1 has label -2"),
    (put(0.5, "val", 0, 0, 1, 1), r"image 1 has label 0\.5; use an integer, -1 or null"),
    (put(True, "val", 0, 0, 1, 1), "image 1 has label True; use an integer, -1 or null"),
    (put("0", "val", 0, 0, 1, 1), "image 1 has label '0'; use an integer, -1 or null"),
    (put(None, "val", 0, 0, 1, 1), r"val document 0 \('na'\): null and integer labels"),
    (put([[["a", None]], [["two", None]], "wiki"], "test", 0),
     r"test document 0 \('wiki'\) has null labels but train document 0 \('na'\) has"),
    (put("ghost", "test", 0, 0, 0, 0), r"test document 0 \('na'\): image 'ghost' has no row"),
]  # fmt: skip


def with_value(value):
    features = np.ones((6, 3), dtype=np.float32)
    features[4, 1] = value
    return features


FEATURES = [
    *((with_value(value), "row 4 is not finite") for value in (np.nan, -np.inf)),
    (np.ones((6, 2, 2)), "shape .* needs 2-D floats"),
    *((array, "holds .*, not floats") for array in (np.ones(6), np.ones((6, 3), dtype=int))),
    (np.array([[{"a": 1}]], dtype=object), r"not a readable \.npy array"),  # never unpickled
]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        *(({"docs": docs}, rf"docs\.json: .*{message}") for docs, message in REFUSED),
        *(({"rows": {**ROWS, "b": row}}, r"id2row\.json: image 'b' has row .* rows 0 to 5")
          for row in (6, -1, 1.0, "1", True, None)),
        *(({"features": array}, rf"features\.npy: {message}") for array, message in FEATURES),
    ],
)  # fmt: skip
def test_what_is_refused_is_named(folder, given, message):
    with pytest.raises(ValueError, match=message):
        read_corpus(folder(**given))


@pytest.mark.parametrize("name", ["docs.json", "id2row.json", "features.npy"])
def test_missing_and_broken_files(folder, name):
    path = folder() / name
    path.write_text('{"train": [', encoding="utf-8")
    with pytest.raises(ValueError, match=name.replace(".", r"\.")):
        read_corpus(path.parent)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=f"{name}: missing"):
        read_corpus(path.parent)


@given(st.data())
def test_every_label_shows_in_the_matrix_and_nothing_else(data):
    n, m = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 5))
    sides = [st.lists(st.integers(-1, m - 1), min_size=n, max_size=n),
             st.lists(st.integers(-1, n - 1), min_size=m, max_size=m)]  # fmt: skip
    of_sentences, of_images = (data.draw(side) for side in sides)
    links = links_of_labels(of_sentences, of_images)
    for i in range(n):
        for j in range(m):
            assert ((i, j) in links) == (of_sentences[i] == j or of_images[j] == i)
