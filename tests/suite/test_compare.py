"""A retriever of one's own beside the recorded systems; the page about it is executed."""

import io
import re
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made_up_evidence import cut
from oracles import sorted_ranks
from scripts import run_page
from test_flickr8k import NAMES
from test_flickr8k import make as make_flickr8k

from mmlib import scenegraph
from mmlib.core.effects import crossed
from mmlib.core.errors import DataError
from mmlib.core.evidence import Evidence
from mmlib.papers.cora.data import controlled, swaps, world
from mmlib.suite import cli, compare, record
from mmlib.suite.encoders import BATCH, Encoder
from mmlib.world import USUAL, captioned_images

IMAGES = 40
IMAGE_OF = np.repeat(np.arange(IMAGES), 5)
RECORDED = cut("03", datasets=["world"], clusters=IMAGES // 4)


@pytest.fixture
def scores():
    rng = np.random.default_rng(5)
    return rng.normal(size=(IMAGES, len(IMAGE_OF))) + 1.5 * (IMAGE_OF == np.arange(IMAGES)[:, None])


@pytest.fixture
def beside(monkeypatch):
    """A comparison with made-up evidence."""

    def compared(scores, evidence=RECORDED, dataset="world", **more):
        monkeypatch.setattr(record, "read", lambda *_: evidence)
        return compare.compare("03", scores, "world", dataset, **more)

    return compared


def test_results_and_paired_differences_are_those_of_loops(beside, scores):
    found = beside(scores, name="Mine")
    of_images = [sorted_ranks(row, np.flatnonzero(IMAGE_OF == i)) for i, row in enumerate(scores)]
    images = np.array(list(map(min, of_images)))
    captions = np.array([sorted_ranks(scores[:, k], [i])[0] for k, i in enumerate(IMAGE_OF)])
    row = found.results.loc["Mine"]
    recalls = {f"i2t_r{k}": 100 * np.mean(images <= k) for k in (1, 5, 10)}
    recalls |= {f"t2i_r{k}": 100 * np.mean(captions <= k) for k in (1, 5, 10)}
    for name, value in {**recalls, "rsum": sum(recalls.values())}.items():
        assert float(row[name]) == pytest.approx(value, abs=0.05)
    assert found.results.index[0] == "Mine"
    names = {name.removesuffix(" ↗") for name in found.results.index}
    assert {"CORA", "Random", "Oracle of the graph"} <= names

    families = np.concatenate([IMAGE_OF, np.arange(IMAGES)]) // 4
    items = len(captions) + len(images)
    own = np.concatenate([
        100 * items / len(ranked) * sum((ranked <= k).astype(float) for k in (1, 5, 10))
        for ranked in (captions, images)
    ])  # fmt: skip
    row = found.differences.loc["CORA"]
    gap = own - RECORDED.values("world", "CORA", "RSUM")
    assert row["difference in RSUM"] == crossed(gap, families).told(1)
    ranks = RECORDED.values("world", "CORA", "rank")
    for column, own, theirs, groups in (
        ("caption → image", captions, ranks[:, : len(captions)], IMAGE_OF // 4),
        ("image → caption", images, ranks[:, len(captions) :], np.arange(IMAGES) // 4),
    ):
        gap = 100.0 * (own <= 1) - 100.0 * (theirs <= 1)
        assert row[f"difference in {column}, R@1"] == crossed(gap, groups).told(1)

    right = []
    for k, image in enumerate(IMAGE_OF):
        family = range(image // 4 * 4, image // 4 * 4 + 4)
        right.append(max(family, key=lambda i: scores[i, k]) == image)
    assert found.in_family["Mine"] == pytest.approx(100 * np.mean(right))
    theirs = np.nanmean(RECORDED.values("world", "CORA", "in family"))
    assert found.in_family["CORA"] == pytest.approx(theirs)


def test_scores_in_another_order_or_all_alike_are_said(beside, scores):
    assert not beside(scores).warning
    shuffled = np.random.default_rng(1).permutation(scores)
    for wrong in (shuffled, np.ones_like(scores)):
        assert str(beside(wrong)).startswith("These scores are hardly")


@pytest.mark.parametrize(
    ("change", "more", "said"),
    [
        (lambda s: s.T, {}, r"is \(200, 40\), not \(40, 200\), test images × .*; transpose it"),
        (lambda s: s[:, :-1], {}, r"is \(40, 199\), not \(40, 200\), test images × .* of world$"),
        (lambda s: np.where(np.arange(200) == 7, np.nan, s), {}, "row 0, column 7 is not a number"),
        (np.array, {"dataset": "moon"}, "no collection 'moon' is recorded; there are: world"),
        (np.array, {"name": "CORA"}, "'CORA' is a recorded system; give yours another name"),
    ],
)
def test_what_cannot_be_compared_is_one_line(beside, scores, change, more, said):
    with pytest.raises(DataError, match=said):
        beside(change(scores), **more)


def test_without_families_captions_name_their_image(beside):
    series = cut("03", datasets=["world"], clusters=2).series
    clusters = np.concatenate([np.repeat(np.arange(8), 5), np.arange(8)]).astype(np.int32)
    of_test = series.split == "test"
    series = series.assign(cluster=series.cluster.mask(of_test, [clusters] * len(series)))
    perfect = np.repeat(np.eye(8), 5, axis=1)
    found = beside(perfect, Evidence(series, {"tier": "flickr8k", "settings": {}}))
    assert float(found.results.loc["yours", "rsum"]) == 600
    assert len(found.in_family) == 0
    assert list(found.differences) == [
        f"difference in {one}" for one in ("RSUM", "caption → image, R@1", "image → caption, R@1")
    ]


@pytest.mark.parametrize(
    ("tier", "dataset", "count", "clarity"),
    [
        ("world", "clear", 600, world.CLARITY["clear"]), ("world", "world", 600, USUAL),
        ("world", "world_bert", 600, USUAL),
        ("controlled", "drawn", 400, controlled.RECORDED["drawn"]),
    ],
)  # fmt: skip
def test_drawn_items_are_as_easy_as_those_of_the_record(monkeypatch, tier, dataset, count, clarity):
    monkeypatch.setattr(compare, "captioned_images", lambda *args, **how: (args, how))
    how = {"family": 4, "clarity": clarity}
    assert compare.ranked_items("03", tier, dataset) == (("test", count), how)
    with pytest.raises(DataError, match="no collection 'moon'; there are: "):
        compare.ranked_items("03", tier, "moon")


# Encoders


def test_encoders_get_batches_and_their_cosines_count(monkeypatch):
    images, sizes = controlled.load(controlled.Dials(families=2)).images["test"], []
    monkeypatch.setattr(compare, "ranked_items", lambda *_: images)

    def encode(items):
        sizes.append(len(items))
        return np.array([[len(str(item)), 1.0] for item in items])

    cosines = compare.similarity("03", Encoder(Path("mine"), "", "", encode, encode))
    a = np.array([[len(str(one)), 1.0] for one in images.features])
    b = np.array([[len(t), 1.0] for group in images.captions for t in group])
    for i, j in ((0, 0), (3, 17), (399, 1999)):
        wanted = a[i] @ b[j] / np.sqrt((a[i] ** 2).sum() * (b[j] ** 2).sum())
        assert cosines[i, j] == pytest.approx(wanted)
    assert max(sizes) == BATCH


@pytest.mark.parametrize(
    ("words", "content", "said"),
    [
        (["03", "none.npy"], None, "none.npy: no such file"),
        (["03", "text.npy"], b"0.1 0.2", "text.npy: not a readable .npy array"),
        (["03", "half.py"], b"def encode_images(p):\n    return p\n",
         "half.py: has no function encode_texts"),
        (["04", "encoders.py"], b"encode_images = encode_texts = print",
         "paper 04 ranks no similarity matrix"),
        (["03"], None, "name a .npy file, or a model"),
    ],
)  # fmt: skip
def test_files_that_hold_no_retriever_are_one_line(
    tmp_path, monkeypatch, capsys, words, content, said
):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path(words[1]).write_bytes(content)
    assert cli.main(["compare", *words]) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"mmlib compare: {said}")
    assert message.count("\n") == 1


def saved(array, save=np.save):
    """The bytes of a file of np.save or np.savez."""
    save(file := io.BytesIO(), array)
    return file.getvalue()


ONES = saved(np.ones((4, 9)))
NOT_NPY = "not a readable .npy array: "
BYTES = [  # of a file, what is said of it
    (b"PK\3\4" + bytes(99), f"{NOT_NPY}save the matrix alone with np.save"),
    (saved(np.ones(9), np.savez), f"{NOT_NPY}save the matrix alone with np.save"),
    (b"", f"{NOT_NPY}save the matrix alone with np.save"),
    (ONES[:9], f"{NOT_NPY}EOF: reading array header"),
    (ONES[:-9], f"{NOT_NPY}mmap length is greater than file size"),
    (ONES.replace(b"(4, 9)", b"(4, 9)^"), f"{NOT_NPY}Cannot parse header"),
    (saved(np.array([None] * 9)), f"{NOT_NPY}Array can't be memory-mapped: Python objects"),
    (saved(np.ones((4, 9), complex)), "holds complex128, no real numbers; save float32"),
    (saved(np.full((4, 9), "1.0")), "holds <U3, no real numbers; save float32"),
    (saved(np.ones(3, "f4,f4")), "holds [('f0', '<f4'), ('f1', '<f4')], no real numbers"),
]


@pytest.mark.parametrize(("content", "said"), BYTES)
def test_a_file_that_holds_no_matrix_of_numbers_is_one_line(tmp_path, content, said):
    path = tmp_path / "sim.npy"
    path.write_bytes(content)
    with pytest.raises(DataError, match=re.escape(f"{path}: {said}")) as error:
        compare.scores_of("03", path, "world", "")
    assert len(str(error.value).splitlines()) == 1


def test_the_order_of_photographs_is_written_without_features(tmp_path, monkeypatch, capsys):
    folder = make_flickr8k(tmp_path / "data" / "flickr8k")
    for path in (folder / "features").iterdir():
        path.unlink()
    monkeypatch.setenv("MMLIB_DATA", str(tmp_path / "data"))
    items = tmp_path / "items.csv"
    assert cli.main(["compare", "03", "--tier", "flickr8k", "--items", str(items)]) == 0
    table = pd.read_csv(items)
    assert list(table) == ["row", "column", "image", "caption"]
    assert table.image.tolist() == [NAMES[6]] * 5 + [NAMES[5]] * 5  # as the official list has them
    assert table.column.tolist() == list(range(10))
    assert table.caption[7] == 'A "2", caption of 5 .'


def test_the_page_is_executed(tmp_path, monkeypatch, capsys):
    """Every Python block and every command of docs/compare.md, in the order of the page.

    But pictures come from scenes without families, which are made sooner; evidence is read once.
    """
    monkeypatch.setattr(record, "read", cache(record.read))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compare, "captioned_images", lambda *items, **_: captioned_images(*items))
    commands, printed = run_page("compare.md", capsys)
    assert commands == ["compare"] * 3
    assert "Mean colour" in printed
    assert "difference in RSUM" in printed
    written = ["differences.csv", "in_family.csv", "results.csv"]
    assert sorted(path.name for path in (tmp_path / "compared").iterdir()) == written
    own = pd.read_csv(tmp_path / "compared" / "results.csv", index_col=0)
    assert own.index[0] == "Mine"


SWAPPABLE = [
    "A brown dog chases an orange cat .",
    "A black cat chases a white dog .",
    "A dog runs .",
]
# A text's vector knows what comes before "dog" alone.
BEFORE = """
import numpy as np

ANGLE = {"brown": 0.0, "orange": 0.5, "white": 1.0, "black": 0.2}


def encode_images(pictures):
    return np.tile([1.0, 0.0], (len(pictures), 1))


def encode_texts(captions):
    words = [caption.lower().split() for caption in captions]
    angles = [ANGLE.get(said[said.index("dog") - 1], 2.0) for said in words]
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)
"""


@pytest.mark.parametrize("missing", [False, True])
def test_a_model_is_judged_by_swaps(tmp_path, monkeypatch, capsys, missing):
    make_flickr8k(tmp_path / "data" / "flickr8k", caption=lambda _, k: SWAPPABLE[k % 3])
    (model := tmp_path / "before.py").write_text(BEFORE)
    monkeypatch.setenv("MMLIB_DATA", str(tmp_path / "data"))
    captions = [SWAPPABLE[k % 3] for _ in range(2) for k in range(5)]
    graphs = scenegraph.parse(captions)
    made = swaps.swap_all(graphs)  # without the plausible ones, which are too few here
    monkeypatch.setattr(swaps, "with_plausible", lambda *_: (*made, None))
    clusters = np.r_[np.repeat([0, 1], 5), [0, 1]].astype(np.int32)
    known = {
        kind: np.r_[np.where(rows < 0, np.nan, 50.0), [np.nan] * 2]
        for kind, rows in made[2].items()
    }
    known["nouns"][0] += np.nan if missing else 0
    series = pd.DataFrame([
        ("flickr8k_things", "test", "Trigrams of captions", f"swap {kind}", 0, values, clusters)
        for kind, values in known.items()
    ], columns=["dataset", "split", "system", "metric", "seed", "value", "cluster"])  # fmt: skip
    monkeypatch.setattr(record, "read", lambda *_: Evidence(series, {"tier": "flickr8k"}))
    command = ["compare", "03", str(model), "--tier", "flickr8k", "--swaps", "--out", str(tmp_path)]
    if missing:
        assert cli.main(command) == 2
        assert "other captions, or parsed otherwise" in capsys.readouterr().err
        return
    assert cli.main(command) == 0
    # "brown dog" (cosine 1) against "orange dog" is right, "white dog" against "black dog" wrong.
    told = pd.read_csv(tmp_path / "swaps.csv", index_col=0).loc["yours", "attributes"]
    pairs = [100.0 * (text == SWAPPABLE[0]) for text in captions if text != SWAPPABLE[2]]
    assert told.split(" ")[0] == f"{np.mean(pairs):.0f}" == "50"


def test_swaps_take_no_matrix(tmp_path):
    with pytest.raises(DataError, match=r"take a model: --tier flickr8k, no .npy file"):
        compare.swaps("03", tmp_path / "sim.npy", "flickr8k")
