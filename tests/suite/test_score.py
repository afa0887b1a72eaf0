"""Models kept in one file, and pairs of one's own scored by them."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tiny_entailment as tiny
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from mmlib.core.errors import DataError
from mmlib.papers.entailment.method.calibration import ALL_INPUTS, Calibration
from mmlib.papers.entailment.method.retrievers import build
from mmlib.papers.entailment.run.judge import fresh, main_branch, scores
from mmlib.papers.entailment.run.systems import Judge
from mmlib.suite import score
from mmlib.suite.cli import main

ARRAYS = tiny.arrays()
COLUMNS = ["image", "caption", "log odds", "probability", "threshold", "entailed"]


@pytest.fixture
def judge():
    torch.manual_seed(0)
    one = Judge("Full")
    settings = one.settings(tiny.BUDGET.judge.classifier)
    return fresh(one, settings, ARRAYS)[0].eval()


@pytest.fixture
def kept(tmp_path, judge):
    torch.manual_seed(1)
    retriever = build("align", tiny.BUDGET.retrieval, ARRAYS.images, len(ARRAYS.words))
    arrays = replace(ARRAYS, region_scale=np.ones((2, tiny.WIDTH), np.float32))
    path = tmp_path / "judge.safetensors"
    how = {"card": "Toy.", "space": 8}
    score.keep(path, arrays, tiny.SHAPE, retriever.state_dict(), judge, **how)
    score.keep(tmp_path / "r.safetensors", arrays, tiny.SHAPE, retriever.state_dict(), **how)
    return path


@pytest.fixture
def seen(monkeypatch):
    """Pictures whose regions are those of the toy world's test images, by their first pixel."""

    def extract(images):
        rows = [image.getpixel((0, 0))[0] for image in images]
        return ARRAYS.images[rows] + 1, None, ()

    monkeypatch.setattr(score.backbone, "extract", extract)


def written(folder, *lines):
    for row in (3, 7):
        Image.new("RGB", (8, 8), (row, 0, 0)).save(folder / f"{row}.png")
    path = folder / "pairs.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_scores_are_those_of_the_judge_that_was_kept(tmp_path, kept, seen, judge):
    path = written(tmp_path, "image,caption,caption", "3.png,dog cat,ball", "7.png,ball,tree")
    table = score.read(kept).score(score.read_csv(path))
    assert list(table.columns) == COLUMNS
    assert table["probability"].between(0, 1).all()
    chance = 1 / (1 + np.exp(-table["log odds"]))
    np.testing.assert_allclose(table["probability"], chance, atol=1e-3)
    assert (table["entailed"] == (table["probability"] >= table["threshold"] - 1e-4)).all()
    own = ARRAYS.calibration
    deep = scores(judge, ARRAYS.encoded(own, judge.settings), ARRAYS.images)
    how = Calibration.fit(ARRAYS.calibration, deep[main_branch(deep)], ALL_INPUTS)
    assert score.read(kept).meta["weights"] == pytest.approx(how.weights.tolist())


def test_a_prior_moves_odds_and_threshold(tmp_path, kept, seen):
    rows = score.read_csv(written(tmp_path, "image,caption", "3.png,dog", "7.png,boat"))
    scorer = score.read(kept)
    own = np.mean(scorer.meta["labels"])
    same, rare = scorer.score(rows), scorer.score(rows, prior=0.01)
    np.testing.assert_allclose(
        scorer.score(rows, prior=own)["log odds"], same["log odds"], atol=2e-3
    )
    shift = np.log(0.01 / 0.99) - np.log(own / (1 - own))
    np.testing.assert_allclose(rare["log odds"] - same["log odds"], shift, atol=2e-3)
    with pytest.raises(ValueError, match="a share between 0 and 1"):
        scorer.score(rows, prior=1.5)


def test_no_pair_changes_another(tmp_path, kept, seen):
    head = "image,caption,caption,caption"
    lines = ["3.png,dog,red dog,cat big", "3.png,dog,red dog cat,big", "7.png,cat,dog,red"]
    scorer = score.read(kept)
    together = scorer.score(score.read_csv(written(tmp_path, head, *lines)))["log odds"]
    alone = [
        scorer.score(score.read_csv(written(tmp_path, head, line)))["log odds"][0] for line in lines
    ]
    assert together.tolist() == alone
    assert alone[0] != alone[1]  # the same words, other captions
    with pytest.raises(ValueError, match="no pairs"):
        scorer.score([])


def test_a_retriever_alone_gives_cosines(tmp_path, kept, seen):
    rows = score.read_csv(written(tmp_path, "image,caption", "3.png,dog", "7.png,zebra"))
    table = score.read(tmp_path / "r.safetensors").score(rows)
    assert table["cosine"].between(-1.001, 1.001).all()
    assert score.read(kept).card == "Toy."


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["picture,text", "3.png,dog"], r"pairs.csv, line 1: is not image,caption"),
        (["image,caption", "3.png,dog", "4.png,dog"], r"line 3: there is no picture 4.png"),
        (["image,caption", "3.png,"], r"line 2: has no caption"),
        (["image,caption"], r"pairs.csv: has no pairs"),
        (["image,caption,label", "3.png,dog,1"], r"line 1: is not image,caption"),
        (["image,caption", "3.png,a red, big dog"], r"line 2: has 3 fields, where line 1 names 2"),
        (["image,caption", '3.png,"a', 'dog"', "4.png,dog"], r"line 4: there is no picture 4.png"),
        (["image,caption", "3.png,dog", '3.png,"dog', "7.png,dog"], r"line 3: cannot be read"),
    ],
)
def test_a_bad_row_is_named(tmp_path, lines, message):
    with pytest.raises(DataError, match=message):
        score.read_csv(written(tmp_path, *lines))


def test_what_is_no_picture_and_what_is_no_model_is_named(tmp_path, kept):
    path = written(tmp_path, "image,caption", "3.png,dog")
    (tmp_path / "3.png").write_text("no picture")
    with pytest.raises(DataError, match=r"pairs\.csv, line 2: 3\.png is no picture"):
        score.read(kept).score(score.read_csv(path))
    with pytest.raises(DataError, match=r"3\.png: no picture"):
        score.read(kept).score([score.Row(tmp_path / "3.png", "dog")])
    with pytest.raises(DataError, match=r"pairs\.csv: no model"):
        score.read(path)
    with pytest.raises(DataError, match="cannot be read"):
        score.read_csv(tmp_path / "gone.csv")


def notes(**changed):
    """Changes some notes of a model."""
    return lambda meta, tensors: meta.update(changed)


def tensor(name, value):
    """Another value of a tensor, made of the old one."""

    def change(meta, tensors):
        tensors[name] = value(tensors[name]).contiguous()

    return change


def first(name, value):
    """Another first entry of a list among the notes."""

    def change(meta, tensors):
        meta[name][0] = value

    return change


NAN = float("nan")
WORD = "judge.words.embeddings.word_embeddings.weight"
UNFIT = {
    "no judge told": (lambda meta, _: meta.pop("judge"), "'judge' is a required property"),
    "no stems": (lambda meta, _: meta.pop("stems"), "'stems' is a required property"),
    "no labels": (lambda meta, _: meta.pop("labels"), "'labels' is a required property"),
    "weight NaN": (first("weights", NAN), "NaN is no number of JSON"),
    "mean infinite": (first("mean", float("inf")), "Infinity is no number"),
    "deviation zero": (first("deviation", 0.0), r"deviation\[0\]: 0.0 is less than or equal"),
    "deviation NaN": (first("deviation", NAN), "NaN is no number"),
    "weights too few": (notes(weights=[0.0, 1.0]), r"weights: .* is too short"),
    "odds too few": (notes(odds=[0.5]), "labels for 1 odds"),
    "labels all 1": (notes(labels=[1, 1]), "does not contain items"),
    "label 2": (first("labels", 2), r"labels\[0\]: 2 is not one of"),
    "words twice": (notes(words=["a", "a"]), "non-unique"),
    "words a text": (notes(words="dog"), "not of type 'array'"),
    "shape of another": (notes(shape={"depth": 3}), "'depth' was unexpected"),
    "stems a list": (notes(stems=["dog"]), "not of type 'object'"),
    "card a number": (notes(card=7), "not of type 'string'"),
    "space a text": (notes(space="8"), "not of type 'integer'"),
    "judge a list": (notes(judge=[]), "not of type 'object', 'null'"),
    "regions of one row": (tensor("regions", lambda t: t[:1]), "no mean and deviation"),
    "regions zero": (tensor("regions", lambda t: t * 0), "no mean and deviation"),
    "regions gone": (lambda _, tensors: tensors.pop("regions"), "regions"),
    "tensor NaN": (tensor(WORD, lambda t: t * NAN), f"{WORD} is not finite"),
}


def change_model(path, change):
    meta, tensors = json.loads(score.metadata_of(path)["mmlib"]), load_file(path)
    change(meta, tensors)
    save_file(tensors, path, {"mmlib": json.dumps(meta)})


@pytest.mark.parametrize("name", UNFIT)
def test_a_model_that_cannot_be_is_refused(kept, name):
    change, message = UNFIT[name]
    change_model(kept, change)
    with pytest.raises(DataError, match=message) as error:
        score.read(kept)
    assert str(error.value).startswith(f"{kept}: no model that score.keep has written")
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(
    "change",
    [
        tensor(WORD, lambda t: t[:-1]),
        lambda meta, tensors: tensors.pop(WORD),
        lambda meta, tensors: meta["words"].append("zebra"),
        lambda meta, tensors: meta["shape"].update(heads=3),
        lambda meta, tensors: meta["judge"].update(max_hypothesis=3),
        lambda meta, tensors: meta.update(space=9),
    ],
)
def test_weights_that_do_not_go_with_the_notes_are_refused(tmp_path, kept, seen, change):
    rows = score.read_csv(written(tmp_path, "image,caption", "3.png,dog"))
    change_model(kept, change)
    with pytest.raises(DataError, match="its weights do not go with its notes") as error:
        score.read(kept).score(rows)
    assert len(str(error.value).splitlines()) == 1


def test_weights_that_give_no_numbers_are_refused(tmp_path, kept, seen):
    rows = score.read_csv(written(tmp_path, "image,caption", "3.png,dog"))
    scorer = score.read(kept)
    scorer.tensors["retriever.to_image.weight"].fill_(3e38)  # finite, but the products are not
    with pytest.raises(DataError, match="its weights give no numbers"):
        scorer.score(rows)


def test_a_judge_that_reads_a_bert_is_not_kept(tmp_path, judge):
    told = replace(ARRAYS, states=object())
    with pytest.raises(ValueError, match="BERT"):
        score.keep(tmp_path / "x", told, tiny.SHAPE, {}, judge)


def test_the_command_writes_a_table(tmp_path, kept, seen, capsys):
    path = written(tmp_path, "image,caption", "3.png,dog")
    assert main(["score", str(kept), str(path), "--prior", "0.1"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("image,caption,log odds")
    assert shown.err == "Toy.\n"  # the card: of which pictures the odds are
    out = tmp_path / "out.csv"
    assert main(["score", str(kept), str(path), "--out", str(out)]) == 0
    assert list(pd.read_csv(out).columns) == COLUMNS
    assert main(["score", str(path), str(path)]) == 2
    assert "no model" in capsys.readouterr().err
    for read in (path, kept, tmp_path / "3.png"):
        before = read.read_bytes()
        assert main(["score", str(kept), str(path), "--out", str(read)]) == 2
        assert "would write over" in capsys.readouterr().err
        assert read.read_bytes() == before


def test_a_table_that_cannot_be_written_whole_leaves_the_old_one(tmp_path, kept, monkeypatch):
    path, out = written(tmp_path, "image,caption", "3.png,dog"), tmp_path / "out.csv"
    out.write_text("old")

    def broken(table, file, **how):
        Path(file).write_text("half")
        raise OSError("no space left")

    monkeypatch.setattr(pd.DataFrame, "to_csv", broken)
    assert main(["score", str(kept), str(path), "--out", str(out)]) != 0
    assert [p.name for p in tmp_path.iterdir() if "partial" in p.name] == []
    assert out.read_text() == "old"


def test_a_file_that_is_not_utf_8_is_named(tmp_path):
    path = tmp_path / "latin.csv"
    path.write_bytes("image,caption\n3.png,café\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"latin\.csv.*not UTF-8.*save the file as UTF-8"):
        score.read_csv(path)


def test_a_mark_at_the_beginning_of_the_file_is_passed_over(tmp_path):
    path = written(tmp_path, "image,caption", '3.png,"a red, big dog"')
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    [row] = score.read_csv(path)
    assert row.caption == "a red, big dog"


def test_models_of_other_features_are_refused(tmp_path, kept, seen):
    scorer = score.read(kept)
    scorer.tensors["regions"] = scorer.tensors["regions"][..., :3]
    with pytest.raises(DataError, match="reads image features of width 3, not 8"):
        scorer.score(score.read_csv(written(tmp_path, "image,caption", "3.png,dog")))


@pytest.mark.skipif(not score.SMALL.exists(), reason="the small judge is not made")
def test_the_small_judge_knows_its_world(tmp_path):
    """It ships: small, with a card, and it tells true captions of new scenes from false ones."""
    from mmlib.world import captioned_images

    assert score.SMALL.stat().st_size < 2e6
    scorer, images = score.read(score.SMALL), captioned_images("val", 40, 5)
    assert "picture world" in scorer.card
    rows = []
    for i, own in enumerate(images.captions):
        path = tmp_path / f"{i}.png"
        images.open_image(i).save(path)
        other = images.captions[(i + 1) % 40][0]
        rows += [score.Row(path, own[0], own[1:]), score.Row(path, other, own[1:])]
    odds = scorer.score(rows)["log odds"].to_numpy()
    assert (odds[0::2] > odds[1::2]).mean() > 0.8
