"""Models kept in one file, and pairs of one's own scored by them."""

import json
import os
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import tiny_entailment as tiny
import torch
from PIL import Image
from scripts import REFUSED, flip_bits

from mmlib.core.errors import DataError
from mmlib.core.files import read_tensors, write_tensors
from mmlib.papers.entailment.method.calibration import ALL_INPUTS, Calibration
from mmlib.papers.entailment.method.retrievers import build
from mmlib.papers.entailment.run.judge import fresh, scores
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
    scorer = score.read(kept)
    deep = scores(judge, ARRAYS.encoded(ARRAYS.calibration, judge.settings), ARRAYS.images)
    how = Calibration.fit(ARRAYS.calibration, deep, ALL_INPUTS)
    assert scorer.meta["weights"] == pytest.approx(how.weights.tolist())

    rows = score.read_csv(path)
    own = np.mean(scorer.meta["labels"])
    odds = [scorer.score(rows, prior)["log odds"] for prior in (0, own, 0.01)]
    np.testing.assert_allclose(odds[1], odds[0], atol=2e-3)
    shift = np.log(0.01 / 0.99) - np.log(own / (1 - own))
    np.testing.assert_allclose(odds[2] - odds[0], shift, atol=2e-3)
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


def test_a_retriever_alone_gives_cosines(tmp_path, kept, seen):
    rows = score.read_csv(written(tmp_path, "image,caption", "3.png,dog", "7.png,zebra"))
    table = score.read(tmp_path / "r.safetensors").score(rows)
    assert table["cosine"].between(-1.001, 1.001).all()


BAD_ROWS = [
    (["picture,text", "3.png,dog"], r"pairs\.csv, row 1: is not image,caption"),
    (["image,caption", "3.png,dog", "4.png,dog"], r"row 3: there is no picture 4.png"),
    (["image,caption", "3.png,"], r"row 2: has no caption"),
    (["image,caption"], r"pairs\.csv: has no pairs"),
    ([], r"pairs\.csv: cannot be read"),
    (["image,caption,label", "3.png,dog,1"], r"row 1: is not image,caption"),
    (["image,caption", "3.png,a red, big dog"], r"Expected 2 fields in line 2, saw 3.* in quotes"),
    (["image,caption", '3.png,"a', 'dog"', "4.png,dog"], r"row 3: there is no picture 4.png"),
    (["image,caption", "3.png,dog", '3.png,"dog', "7.png,dog"], r"EOF inside string.* close them"),
    (["image,caption", "3.png,caf\udce9"], r"pairs\.csv: is not UTF-8; save the file as UTF-8"),
]


@pytest.mark.parametrize(("lines", "message"), BAD_ROWS)
def test_a_bad_row_is_named(tmp_path, lines, message):
    path = written(tmp_path, "image,caption")
    path.write_bytes("\n".join([*lines, ""]).encode("utf-8", "surrogateescape"))
    with pytest.raises(DataError, match=message):
        score.read_csv(path)


def test_what_is_no_picture_and_what_is_no_model_is_named(tmp_path, kept):
    path = written(tmp_path, "image,caption", "3.png,dog")
    (tmp_path / "3.png").write_text("no picture")
    for call, message in (
        (lambda: score.read(kept).score(score.read_csv(path)), r"3\.png: no picture"),
        (lambda: score.read(path), r"pairs\.csv: no model"),
        (lambda: score.read_csv(tmp_path / "gone.csv"), "cannot be read"),
    ):
        with pytest.raises(DataError, match=message):
            call()


WORD = "judge.words.embeddings.word_embeddings.weight"
UNFIT = [  # what is done to the notes and tensors of a file, what is said
    (lambda meta, _: meta.pop("judge"), "lacks 'judge'"),
    (lambda meta, _: meta["words"].append(meta["words"][0]), "size mismatch"),
    (lambda meta, _: meta.update(shape={"depth": 3}), "depth"),
    (lambda _, tensors: tensors.pop("regions"), "lacks 'regions'"),
    (lambda _, tensors: tensors.pop(WORD), "Missing key"),
    (lambda _, tensors: tensors.update({WORD: tensors[WORD][:-1]}), "size mismatch"),
]


@pytest.mark.parametrize(("change", "message"), UNFIT)
def test_a_model_that_cannot_be_is_refused(kept, change, message):
    tensors, notes = read_tensors(kept)
    meta = json.loads(notes["mmlib"])
    change(meta, tensors)
    write_tensors(kept, tensors, {"mmlib": json.dumps(meta)})
    with pytest.raises(DataError, match=message) as error:
        score.read(kept)
    assert str(error.value).startswith(f"{kept}: no model that score.keep has written")
    assert len(str(error.value).splitlines()) == 1


def test_no_flipped_bit_of_a_model_gives_other_odds(kept):
    for where in flip_bits(kept):
        with pytest.raises(DataError, match="take another copy, or train it anew") as error:
            score.read(kept)
        assert str(error.value).startswith(f"{kept}: no model that score.keep has"), where
    score.read(kept)


def test_what_gives_no_numbers_or_does_not_fit_is_refused(tmp_path, kept, seen):
    rows = score.read_csv(written(tmp_path, "image,caption", "3.png,dog"))
    scorer = score.read(kept)
    # Finite, but the products are not.
    torch.nn.init.constant_(scorer.retriever.to_image.weight, 3e38)
    with pytest.raises(DataError, match="its weights give no numbers"):
        scorer.score(rows)
    with pytest.raises(ValueError, match="BERT"):
        score.keep(tmp_path / "x", replace(ARRAYS, states=object()), tiny.SHAPE, {}, scorer.judge)


def test_the_command_writes_a_table(tmp_path, kept, seen, capsys, monkeypatch):
    path = written(tmp_path, "image,caption", "3.png,dog")
    assert main(["score", str(kept), str(path), "--prior", "0.1"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("image,caption,log odds")
    assert shown.err == "Toy.\n"  # the card: of which pictures the odds are
    path.write_text("image,caption\n3.png,a zebra dog\n7.png,cat\n3.png,two okapi\n")
    out = tmp_path / "out.csv"
    assert main(["score", str(kept), str(path), "--out", str(out)]) == 0
    known = "words that it does not know: a, zebra, two, okapi"
    assert known in capsys.readouterr().err
    assert list(pd.read_csv(out).columns) == COLUMNS
    for read in (path, kept, tmp_path / "3.png"):
        before = read.read_bytes()
        assert main(["score", str(kept), str(path), "--out", str(read)]) == 2
        assert "would write over" in capsys.readouterr().err
        assert read.read_bytes() == before


@pytest.mark.parametrize(("words", "message"), REFUSED["options"])
def test_what_cannot_be_is_refused_before_any_work(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    assert main(words) != 0
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "pipe"]


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
        rows += [(str(path), own[0], own[1:]), (str(path), other, own[1:])]
    pairs = pd.DataFrame(rows, columns=["image", "caption", "others"])
    odds = scorer.score(pairs)["log odds"].to_numpy()
    assert (odds[0::2] > odds[1::2]).mean() > 0.8
