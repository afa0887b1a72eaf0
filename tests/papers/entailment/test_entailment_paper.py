"""The tier "paper" on small files in the authors' formats, from the files to verdicts."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_entailment as tiny

from mmlib.core.engine import Resources
from mmlib.core.errors import DataError
from mmlib.papers.entailment.data import photographs
from mmlib.papers.entailment.run import systems
from mmlib.suite import record

PHASES, NARROW = dict.fromkeys(("dual", "align"), tiny.PHASE), tiny.BUDGET.judge
NARROW = replace(NARROW, classifier=replace(NARROW.classifier, width=8))
BUDGET = replace(tiny.BUDGET, frozen=PHASES, miner=systems.full("paper"), judge=NARROW)


def test_small_files_are_read_recorded_and_judged(tmp_path, monkeypatch, capsys):
    """Of 14, 8 and 4 images, fewer than the shares; SNLI-VE's splits cross those of the images."""
    monkeypatch.setenv("MMLIB_DATA", str(tmp_path))
    monkeypatch.setattr(photographs, "job_folder", lambda: tmp_path / "jobs")
    monkeypatch.setitem(systems.BUDGETS, "f30k", BUDGET)
    shutil.copytree(Path(__file__).with_name("small"), tmp_path, dirs_exist_ok=True)
    for split, images in (("train", 14), ("dev", 8), ("test", 4)):
        features = np.random.default_rng(images).random((images, 4, 8), dtype=np.float32)
        np.save(tmp_path / f"f30k/{split}_ims.npy", features)
    arrays = photographs.load_paper(BUDGET, 0).arrays
    for pairs, images in ((arrays.train, 14), (arrays.dev, 22), (arrays.tests["SNLI-VE"], 26)):
        assert {*pairs.samples.image} == {*range(images)}
    assert "judges start at random, where the paper's start as BERT" in capsys.readouterr().err
    where, few = Resources(workers=1, folder=tmp_path / "jobs"), ["Full", "CLIP-like, start"]
    for some in (few[:1], few):
        record.record("02", "paper", [0], systems=some, folder=tmp_path, resources=where)
    assert "INCOMPLETE: " in record.write_judgement("02", "paper", tmp_path / "out", tmp_path)
    (tmp_path / "f30k/id_mapping.json").unlink()
    with pytest.raises(DataError, match=r"dev\.jsonl: no image is one of .*f30k, such as '0'"):
        photographs.load_paper(BUDGET, 0)
