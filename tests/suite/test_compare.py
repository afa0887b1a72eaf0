"""A retriever of one's own beside the recorded systems; the page about it is executed."""

import shlex

import made_up_cora
import mistune
import numpy as np
import pandas as pd
import pytest
from bs4 import BeautifulSoup
from scripts import ROOT
from test_flickr8k import NAMES
from test_flickr8k import make as make_flickr8k

from mmlib.core.effects import crossed
from mmlib.core.errors import DataError
from mmlib.core.evidence import Evidence
from mmlib.papers.cora import compare as cora
from mmlib.papers.cora.data import controlled, world
from mmlib.suite import cli, record
from mmlib.world import USUAL

IMAGES = 40
IMAGE_OF = np.repeat(np.arange(IMAGES), 5)


@pytest.fixture(scope="module")
def recorded():
    return made_up_cora.make(images=IMAGES)


@pytest.fixture
def scores():
    rng = np.random.default_rng(5)
    return rng.normal(size=(IMAGES, len(IMAGE_OF))) + 1.5 * (IMAGE_OF == np.arange(IMAGES)[:, None])


def ranks_by_loop(scores):
    """The rank of each caption's image and of each image's best caption, by sorting."""
    captions = [
        1 + list(np.argsort(-scores[:, k])).index(IMAGE_OF[k]) for k in range(scores.shape[1])
    ]
    images = [
        1 + min(place for place, k in enumerate(np.argsort(-scores[i])) if IMAGE_OF[k] == i)
        for i in range(IMAGES)
    ]
    return np.array(captions), np.array(images)


def test_recalls_are_those_of_sorting(recorded, scores):
    found = cora.compare(recorded, "world", scores, "Mine")
    captions, images = ranks_by_loop(scores)
    row = found.results.loc["Mine"]
    recalls = {f"i2t_r{k}": 100 * np.mean(images <= k) for k in (1, 5, 10)}
    recalls |= {f"t2i_r{k}": 100 * np.mean(captions <= k) for k in (1, 5, 10)}
    for name, value in {**recalls, "rsum": sum(recalls.values())}.items():
        assert float(row[name]) == pytest.approx(value, abs=0.05)
    assert found.results.index[0] == "Mine"
    names = {name.removesuffix(" ↗") for name in found.results.index}
    assert {"CORA", "Random", "Oracle of the graph"} <= names


def test_scores_in_another_order_or_all_alike_are_said(recorded, scores):
    assert not cora.compare(recorded, "world", scores).warning
    shuffled = np.random.default_rng(1).permutation(scores)
    for wrong in (shuffled, np.ones_like(scores)):
        assert str(cora.compare(recorded, "world", wrong)).startswith("These scores are hardly")


def test_a_recorded_systems_name_is_refused(recorded, scores):
    with pytest.raises(DataError, match="'CORA' is a recorded system; give yours another name"):
        cora.compare(recorded, "world", scores, "CORA")


def test_differences_are_paired_by_item_and_family(recorded, scores):
    found = cora.compare(recorded, "world", scores)
    captions, images = ranks_by_loop(scores)
    families = np.concatenate([IMAGE_OF, np.arange(IMAGES)]) // 4
    theirs = recorded.values("world", "CORA", "RSUM")
    items = len(captions) + len(images)
    own = np.concatenate([
        100 * items / len(ranked) * sum((ranked <= k).astype(float) for k in (1, 5, 10))
        for ranked in (captions, images)
    ])  # fmt: skip
    row = found.differences.loc["CORA"]
    assert row["difference in RSUM"] == crossed(own - theirs, families).told(1)
    ranks = recorded.values("world", "CORA", "rank")[:, : len(captions)]
    gap = 100.0 * (captions <= 1) - 100.0 * (ranks <= 1)
    wanted = crossed(gap, IMAGE_OF // 4).told(1)
    assert row["difference in caption → image, R@1"] == wanted


def test_in_family_is_a_choice_of_four(recorded, scores):
    found = cora.compare(recorded, "world", scores)
    right = []
    for k, image in enumerate(IMAGE_OF):
        family = range(image // 4 * 4, image // 4 * 4 + 4)
        right.append(max(family, key=lambda i: scores[i, k]) == image)
    assert found.in_family["yours"] == pytest.approx(100 * np.mean(right))
    assert found.in_family["CORA"] == pytest.approx(
        np.nanmean(recorded.values("world", "CORA", "in family"))
    )


def test_a_recorded_system_given_back_differs_by_nothing(recorded):
    """A record of one seed, whose scores come back as a matrix of one's own."""
    one = made_up_cora.make(images=IMAGES, seeds=1)
    rng = np.random.default_rng([0, len("HARD")])
    own = (IMAGE_OF == np.arange(IMAGES)[:, None]) * made_up_cora.LEVELS["HARD"]
    found = cora.compare(one, "world", own + rng.normal(size=own.shape))
    assert (found.differences.loc["HARD"] == "+0.0 [+0.0, +0.0]").all()
    assert found.results.loc["yours", "rsum"] == found.results.loc["HARD ↗", "rsum"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: s.T, r"is \(200, 40\), not \(40, 200\), test images × .*; transpose it"),
        (lambda s: s[:, :-1], r"is \(40, 199\), not \(40, 200\), test images × .* of world$"),
        (lambda s: np.where(np.arange(200) == 7, np.nan, s), "row 0, column 7 is not a number"),
    ],
)
def test_another_shape_and_no_number_are_one_line(recorded, scores, change, said):
    with pytest.raises(DataError, match=said):
        cora.compare(recorded, "world", change(scores))
    with pytest.raises(DataError, match="no collection 'moon' is recorded; there are: world"):
        cora.compare(recorded, "moon", scores)


def test_without_families_captions_name_their_image():
    table = made_up_cora.make(images=8).table.copy()
    clusters = np.concatenate([np.repeat(np.arange(8), 5), np.arange(8)]).astype(np.int32)
    of_test = table.split == "test"
    table.loc[of_test, "cluster"] = clusters[table.loc[of_test, "item"]]
    flat = Evidence(table, {"tier": "flickr8k"})
    assert cora.image_of(flat, "world").tolist() == np.repeat(np.arange(8), 5).tolist()
    assert cora.family_of(flat, "world") == 1


def test_the_record_tells_the_images_of_its_captions():
    found, name = record.read("03", "controlled"), "40 × 12, 400 families"
    collection = controlled.load(controlled.RECORDED[name])
    assert np.array_equal(cora.image_of(found, name), collection.image_of("test"))
    assert cora.family_of(found, name) == 4


@pytest.mark.parametrize(
    ("tier", "dataset", "count", "clarity"),
    [
        ("world", "clear", 600, world.CLARITY["clear"]),
        ("world", "world", 600, USUAL),
        ("world", "world_bert", 600, USUAL),
        ("controlled", "drawn", 400, controlled.RECORDED["drawn"]),
    ],
)
def test_drawn_items_are_as_easy_as_those_of_the_record(monkeypatch, tier, dataset, count, clarity):
    monkeypatch.setattr(cora, "captioned_images", lambda *args, **how: (args, how))
    assert cora.ranked_items(tier, dataset) == (
        ("test", count), {"family": 4, "clarity": clarity}
    )  # fmt: skip
    with pytest.raises(DataError, match="no collection 'moon'; there are: "):
        cora.ranked_items(tier, "moon")


# Encoders


def test_encoders_get_batches_and_their_cosines_count(monkeypatch):
    images = controlled.load(controlled.Dials(families=2)).images["test"]
    sizes = []

    def encode(items):
        sizes.append(len(items))
        return np.array([[len(str(item)), 1.0] for item in items])

    cosines = cora.encoded(images, encode, encode)
    a = np.array([[len(str(one)), 1.0] for one in images.features])
    b = np.array([[len(t), 1.0] for group in images.captions for t in group])
    for i, j in ((0, 0), (3, 17), (399, 1999)):
        wanted = a[i] @ b[j] / np.sqrt((a[i] ** 2).sum() * (b[j] ** 2).sum())
        assert cosines[i, j] == pytest.approx(wanted)
    assert max(sizes) == cora.BATCH


@pytest.mark.parametrize(
    ("encode", "said"),
    [
        (lambda items: np.ones(len(items)), r"encode_images gave \(64,\) for 64 items, not"),
        (lambda items: np.full((len(items), 2), np.inf), "encode_images gave a vector that is not"),
        (lambda items: np.ones((len(items), 3)), "give other widths: 3 and 2"),
    ],
)
def test_encoders_of_another_form_are_one_line(encode, said):
    images = controlled.load(controlled.Dials(families=1)).images["test"]
    with pytest.raises(DataError, match=said):
        cora.encoded(images, encode, lambda texts: np.ones((len(texts), 2)))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("none.npy", None, "no such file"),
        ("text.npy", b"0.1 0.2", "not a readable .npy array"),
        ("half.py", b"def encode_images(p):\n    return p\n", "has no function encode_texts"),
    ],
)
def test_files_that_hold_no_retriever_are_one_line(tmp_path, capsys, name, content, said):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert cli.main(["compare", "03", str(tmp_path / name)]) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"mmlib compare: {tmp_path / name}: {said}")
    assert message.count("\n") == 1


def test_other_papers_have_no_such_table(tmp_path, capsys):
    np.save(tmp_path / "sim.npy", np.ones((2, 2)))
    assert cli.main(["compare", "04", str(tmp_path / "sim.npy")]) == 2
    assert "paper 04 ranks no similarity matrix" in capsys.readouterr().err
    assert cli.main(["compare", "03"]) == 2


def test_the_order_of_photographs_is_written_without_features(tmp_path, monkeypatch, capsys):
    folder = make_flickr8k(tmp_path / "data" / "flickr8k")
    for path in (folder / "features").iterdir():
        path.unlink()
    monkeypatch.setenv("MMLIB_DATA", str(tmp_path / "data"))
    items = tmp_path / "items.csv"
    assert cli.main(["compare", "03", "--tier", "flickr8k", "--items", str(items)]) == 0
    table = pd.read_csv(items)
    assert table.image.tolist() == [NAMES[6]] * 5 + [NAMES[5]] * 5  # as the official list has them
    assert table.column.tolist() == list(range(10))
    assert table.caption[7] == 'A "2", caption of 5 .'


def test_the_page_is_executed(tmp_path, monkeypatch, capsys):
    """Every Python block and every command of docs/compare.md, in the order of the page."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "compare.md").read_text(encoding="utf-8")
    soup = BeautifulSoup(mistune.create_markdown(escape=False)(page), "html.parser")
    commands = 0
    for block in soup.find_all("code", class_=["language-python", "language-sh"]):
        if block["class"] == ["language-python"]:
            exec(block.get_text(), {})
            continue
        for line in block.get_text().splitlines():
            program, *words = shlex.split(line)
            assert program == "mmlib"
            assert cli.main(words) == 0
            commands += 1
    assert commands == 3
    printed = capsys.readouterr().out
    assert "Mean colour" in printed
    assert "difference in RSUM" in printed
    assert {path.name for path in (tmp_path / "compared").iterdir()} == {
        "results.csv", "differences.csv", "in_family.csv",
    }  # fmt: skip
    own = pd.read_csv(tmp_path / "compared" / "results.csv", index_col=0)
    assert own.index[0] == "Mine"
