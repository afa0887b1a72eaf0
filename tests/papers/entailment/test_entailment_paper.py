"""The tier "paper" on small files in the authors' formats, from the files to verdicts."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_entailment as tiny
import torch
from safetensors.torch import load_file, save_file
from test_bert import WORDS, write_bert

from mmlib.core.engine import Resources
from mmlib.core.errors import DataError
from mmlib.features.words import Words
from mmlib.papers.entailment.data import arrays, photographs
from mmlib.papers.entailment.method.classifier import Settings, classifier, load_pretrained
from mmlib.papers.entailment.run import systems
from mmlib.suite import record

PHASES, NARROW = dict.fromkeys(("dual", "align"), tiny.PHASE), tiny.BUDGET.judge
NARROW = replace(NARROW, classifier=replace(NARROW.classifier, width=8))
PIECES_OF = ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "dog", "jump ##s", "umbrella ##s", "[UNK]")
BUDGET = replace(tiny.BUDGET, frozen=PHASES, miner=systems.full("paper"), judge=NARROW)


def write_albef(folder, width=8, part="text_encoder.bert"):
    """The files of an ALBEF whose text encoder has three layers, without its image encoder."""
    write_bert(folder, hidden_size=width, num_attention_heads=2, intermediate_size=4 * width,
               is_decoder=True, add_cross_attention=True)  # fmt: skip
    state = load_file(folder / "model.safetensors")
    save_file({f"{part}.{n}": v for n, v in state.items()}, folder / "model.safetensors")
    return state


@pytest.mark.parametrize("part", ["text_encoder", "text_encoder.bert"])  # BLIP's, ALBEF's
def test_a_judge_starts_from_a_checkpoint(tmp_path, part):
    theirs, words = write_albef(tmp_path, part=part), Words(["dog", "jumps", "umbrellas", "\u200b"])
    starts, table = arrays.starts_in(tmp_path, words, 1), theirs[arrays.PIECES]
    pieces = [[WORDS.index(piece) for piece in text.split()] for text in PIECES_OF]
    expected = torch.stack([table[rows].mean(dim=0) for rows in pieces])
    assert torch.equal(starts[f"words.{arrays.PIECES}"], expected)
    model = classifier(Settings(8, 2, 3, 1, 1, 2), len(words), np.zeros((0, 4, 8), np.float32))
    copied, state = load_pretrained(model, starts), model.state_dict()
    layers = {"words.encoder.layer.0": 0, "cross.layers.1": 2, "text.encoder.layer.2": 2}
    names = {name: own for own in layers for name in state if name.startswith(f"{own}.")}
    assert len(names) == 16 + 26 + 16
    for name, own in names.items():
        value = theirs[f"encoder.layer.{layers[own]}{name.removeprefix(own)}"]
        assert name in copied
        assert torch.equal(state[name], value)


def test_a_checkpoint_of_another_kind_is_refused(tmp_path):
    write_albef(tmp_path, part="text_model")  # as a CLIP's
    with pytest.raises(DataError, match=r"no text encoder that attends .*a CLIP gives features"):
        arrays.starts_in(tmp_path, Words(["dog"]), 1)


def test_small_files_are_read_recorded_and_judged(tmp_path, monkeypatch, capsys):
    """Of 14, 8 and 4 images, fewer than the shares; SNLI-VE's splits cross those of the images."""
    monkeypatch.setenv("MMLIB_DATA", str(tmp_path))
    monkeypatch.setattr(photographs, "job_folder", lambda: tmp_path / "jobs")
    monkeypatch.setitem(systems.BUDGETS, "f30k", BUDGET)
    shutil.copytree(Path(__file__).with_name("small"), tmp_path, dirs_exist_ok=True)
    for split, images in (("train", 14), ("dev", 8), ("test", 4)):
        features = np.random.default_rng(images).random((images, 4, 8), dtype=np.float32)
        np.save(tmp_path / f"f30k/{split}_ims.npy", features)
    data = photographs.load_paper(BUDGET, 0).arrays
    for pairs, images in ((data.train, 14), (data.dev, 22), (data.tests["SNLI-VE"], 26)):
        assert {*pairs.samples.image} == {*range(images)}
    assert "judges start at random, where the paper's start as BERT" in capsys.readouterr().err
    write_albef(tmp_path / "judge_start")
    begun = photographs.load_paper(BUDGET, 0).arrays
    assert "of 114 tensors: {'cross': 26, 'text': 21, 'words': 21}" in capsys.readouterr().err
    assert begun.fingerprint != data.fingerprint
    where = Resources(workers=1, folder=tmp_path / "jobs")
    few = ["Full", "CLIP-like, start", "CLIP-like, both (miner)"]
    for some in (few[:1], few):
        record.record("02", "paper", [0], systems=some, folder=tmp_path, resources=where)
    assert "INCOMPLETE: " in record.write_judgement("02", "paper", tmp_path / "out", tmp_path)
    (tmp_path / "f30k/id_mapping.json").unlink()
    with pytest.raises(DataError, match=r"dev\.jsonl: no image is one of .*f30k, such as '0'"):
        photographs.load_paper(BUDGET, 0)
