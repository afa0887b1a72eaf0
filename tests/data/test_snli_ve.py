"""SNLI-VE on made-up files: reading, samples, and the photographs that its splits share."""

import json

import pytest

from mmlib.core.errors import DataError
from mmlib.data import snli_ve
from mmlib.suite.check import check


def record(photo, label="entailment", key="Flickr30K_ID", **extra):
    texts = {"sentence1": "A dog runs .", "sentence2": f"Sentence on {photo}"}
    return {key: photo, "gold_label": label, "pairID": f"{photo}.jpg#0r1e", **texts, **extra}


LINES = {
    "train": [record("1003"), record("1003", "neutral"), record("555", "contradiction")],
    "dev": [record("777.jpg", key="Flikr30kID")],
    "test": [record("888"), record("1003")],
}


def save(folder, lines=LINES):
    folder.mkdir(parents=True, exist_ok=True)
    for split, records in lines.items():
        text = "".join(json.dumps(item) + "\n" for item in records)
        (folder / f"snli_ve_{split}.jsonl").write_text(text)
    return folder


def split_file(folder, name, images):
    """A split file of Karpathy's; images: file names by split."""
    folder.mkdir()
    listed = [
        {"filename": image, "split": split, "sentences": [{"raw": "A dog ."}] * 5}
        for split, names in images.items()
        for image in names
    ]
    (folder / f"dataset_{name}.json").write_text(json.dumps({"images": listed}))


@pytest.fixture
def folder(tmp_path):
    return save(tmp_path / "snli_ve")


def test_pairs_are_read_in_file_order(folder, monkeypatch):
    table = snli_ve.read("train", folder)
    assert table["image"].tolist() == ["1003.jpg", "1003.jpg", "555.jpg"]
    assert table["label"].tolist() == ["entailment", "neutral", "contradiction"]
    assert table["hypothesis"][2] == "Sentence on 555"
    assert table["caption"][0] == "A dog runs ."
    assert snli_ve.read("dev", folder)["image"].tolist() == ["777.jpg"]  # the older key
    monkeypatch.setenv("MMLIB_DATA", str(folder.parent))
    assert snli_ve.read("train").equals(table)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"snli_ve_train\.jsonl, line 2: is not JSON"),
        ("[1]", "line 2: is not a JSON record"),
        (json.dumps(record("x")), "line 2: Flickr30K_ID is 'x', not a number"),
        (json.dumps({"gold_label": "neutral"}), "line 2: Flickr30K_ID is '', not a number"),
        (json.dumps(record("1", "-")), "line 2: gold_label is '-'"),
        (json.dumps(record("1", sentence2=" ")), "line 2: the hypothesis is ' '"),
        (json.dumps(record("1", sentence1=None)), "line 2: the caption is None"),
    ],
)
def test_a_bad_line_is_named_with_the_mend(folder, line, message):
    (folder / "snli_ve_train.jsonl").write_text(f"{json.dumps(record('1'))}\n{line}\n")
    with pytest.raises(DataError, match=message) as caught:
        snli_ve.read("train", folder)
    assert "necla-ml/SNLI-VE" in str(caught.value)


def test_what_cannot_be_read(folder):
    with pytest.raises(DataError, match="no split 'val'"):
        snli_ve.read("val", folder)
    (folder / "snli_ve_dev.jsonl").write_text("\n")
    with pytest.raises(DataError, match="has no lines"):
        snli_ve.read("dev", folder)
    (folder / "snli_ve_dev.jsonl").unlink()
    with pytest.raises(DataError, match="is missing"):
        snli_ve.read("dev", folder)


def test_samples(folder):
    table, rows = snli_ve.read("train", folder), {"1003.jpg": 4, "555.jpg": 0}
    observed = snli_ve.samples(table, rows)
    assert observed.kind == ("ve",) * 3
    assert observed.premise == ("",) * 3
    assert observed.image.tolist() == [4, 4, 0]
    assert observed.label.tolist() == [1, 0, 0]
    captions = {"1003.jpg": ["One.", "Two."], "555.jpg": ["Three."]}
    samples = snli_ve.samples(table, rows, captions)
    assert samples.kind == ("ve",) * 3 + ("mme",) * 3
    assert samples.premise[3:] == ("One. Two.", "One. Two.", "Three.")
    assert samples.group[3:] == ("1003.jpg", "1003.jpg", "555.jpg")
    with pytest.raises(ValueError, match=r"no row for 1003\.jpg"):
        snli_ve.samples(table, {})


def test_photographs_are_known_by_their_number():
    assert snli_ve.shared_photos(["12.jpg", "3.jpg"], ["12_ab0.jpg", "34_cd.jpg"]) == {12}
    with pytest.raises(ValueError, match=r"x\.jpg does not begin with the number"):
        snli_ve.shared_photos(["x.jpg"], [])


def test_check_counts(folder, monkeypatch):
    monkeypatch.setattr(snli_ve, "SPLITS", {"train": 3, "dev": 1, "test": 2})
    report = check("snli_ve", folder)
    assert report.problems == []
    assert report.counts == ["3 train pairs", "1 dev pairs", "2 test pairs"]


def test_check_names_bad_lines_and_wrong_counts(folder, monkeypatch):
    monkeypatch.setattr(snli_ve, "SPLITS", {"train": 4, "dev": 1, "test": 2})
    (folder / "snli_ve_dev.jsonl").write_text("{\n")
    (folder / "snli_ve_test.jsonl").unlink()
    result = [str(problem) for problem in check("snli_ve", folder).problems]
    assert len(result) == 3  # of no sound row, as the line before says, none is counted
    assert "3 sound rows instead of 4" in result[0]
    assert "line 1: is not JSON" in result[1]
    assert "is missing" in result[2]
    (folder / "snli_ve_dev.jsonl").write_text("")
    assert "0 sound rows instead of 1" in str(check("snli_ve", folder).problems[1])
