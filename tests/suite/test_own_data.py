"""A data set of one's own: any name, few images, no pictures; from the folder to the verdicts."""

import json
from dataclasses import replace

import numpy as np
import pytest
from test_precomputed import write_scan

from mmlib.core import engine
from mmlib.core.errors import DataError
from mmlib.features import sets
from mmlib.papers.cora.data import load_study
from mmlib.papers.cora.run import systems
from mmlib.suite import cli
from mmlib.suite.check import check

SPLITS = {"train": range(12), "dev": range(12, 16), "test": range(16, 20)}
FEATURES = np.random.default_rng(0).normal(size=(20, 9, 6)).astype(np.float32)


def captions(i):
    return [
        f"a dog number {i} runs on the grass",
        f"the brown dog {i} chases a red ball",
        f"two men watch dog {i}",
        f"a woman with a hat, and a dog {i}",
        f"dog {i}.",
    ]


def write_vse(folder):
    """One vector an image in VSE++'s layout, without id_mapping.json."""
    for split, rows in SPLITS.items():
        texts = [text for i in rows for text in captions(i)]
        write_scan(folder, split, texts, rows, FEATURES[list(rows), 0])
    return folder


def write_karpathy(folder, features=("clip", "dino")):
    """Karpathy's layout with two feature sets of other widths, without photographs."""
    (folder / "features").mkdir(parents=True)
    split_of = {i: split for split, rows in SPLITS.items() for i in rows}
    names = [f"IMG {i:03}.JPG" for i in range(20)]
    images = [
        {"filename": name, "split": split_of[i].replace("dev", "val"),
         "sentences": [{"raw": text} for text in captions(i)]}
        for i, name in enumerate(names)
    ]  # fmt: skip
    (folder / "dataset_mine.json").write_text(json.dumps({"images": images}))
    for width, name in enumerate(features, 5):
        np.save(folder / "features" / f"{name}.npy", FEATURES[::-1, :, :width])
        (folder / "features" / f"{name}.ids.txt").write_text("\n".join(names[::-1]) + "\n")
    return folder


@pytest.fixture
def small(monkeypatch, tmp_path):
    """Three systems, and trainings of two epochs."""
    few = [systems.CORA, systems.SEQUENCE, systems.BAG]
    tiny = {"epochs": 2, "width": 16, "word_width": 8, "heads": 2, "batch": 16}
    monkeypatch.setitem(systems.BUDGETS, "flickr8k", replace(systems.BUDGETS["flickr8k"], **tiny))
    monkeypatch.setattr(systems, "trained_systems", lambda dataset: few)
    monkeypatch.setattr(engine, "job_folder", lambda device="cpu": tmp_path / "jobs")
    monkeypatch.setenv("MMLIB_DATA", str(tmp_path / "data"))
    for name in ("MMLIB_FEATURES", "MMLIB_EVIDENCE", "MMLIB_DATASET"):
        monkeypatch.delenv(name, raising=False)


def test_four_test_images_go_from_the_folder_to_the_verdicts(small, tmp_path, capsys):
    folder, mine = write_vse(tmp_path / "my photographs"), tmp_path / "mine"
    words = ["--tier", "paper", "--evidence", str(mine)]
    record = ["record", "03", "--dataset", str(folder), "--seeds", "1", "--workers", "1", *words]
    assert cli.main(record) == 0
    assert cli.main(["judge", "03", *words, "--out", str(tmp_path / "judged")]) == 0
    said = capsys.readouterr().out
    assert "f30k" not in said  # which is no part of it
    verdicts = json.loads((tmp_path / "judged" / "verdicts.json").read_text())
    verdict_of = {claim["id"]: claim["verdict"] for claim in verdicts["claims"]}
    assert verdict_of["C5a"] == "undecided"
    results = (tmp_path / "judged" / "results_my photographs.csv").read_text(encoding="utf-8")
    names = {line.split(",")[0].strip('"').removesuffix(" ↗") for line in results.splitlines()}
    assert {"CORA", "Bag of phrases", "Random"} <= names


def test_features_are_chosen_by_name_in_a_folder_of_any_name(small, tmp_path, monkeypatch):
    folder = write_karpathy(tmp_path / "holiday 2026")
    monkeypatch.setenv("MMLIB_DATASET", str(folder))
    with pytest.raises(DataError, match="has 2 feature sets: clip, dino"):
        load_study("paper")
    for width, name in ((5, "clip"), (6, "dino")):
        monkeypatch.setenv("MMLIB_FEATURES", name)
        study = load_study("paper")
        assert list(study) == ["holiday 2026"]
        test = study["holiday 2026"].images["test"]
        assert test.ids == tuple(f"IMG {i:03}.JPG" for i in SPLITS["test"])
        assert np.array_equal(test.features, FEATURES[16:, :, :width])
    assert sets.names(folder / "features") == ["clip", "dino"]  # what was packed is none


def test_a_name_that_means_another_data_set_is_refused(small, tmp_path, monkeypatch):
    for name in ("f30k", "flickr8k", "mine_bert", "mine_long", "mine_tuned"):
        monkeypatch.setenv("MMLIB_DATASET", str(write_vse(tmp_path / name)))
        with pytest.raises(DataError, match=f"{name}: rename the folder: clear, coco, f30k, flic"):
            load_study("paper")


def test_a_data_set_that_cannot_be_is_one_line(small, capsys):
    for words, said in (
        (["paper", "--dataset", "none"], "dir 'none' does not exist"),
        (["world", "--dataset", "."], "a data set of your own is of the tier paper"),
    ):
        assert cli.main(["record", "03", "--tier", *words]) == 2
        assert said in capsys.readouterr().err


def test_check_finds_what_the_pages_say_to_put_there(small, tmp_path, monkeypatch):
    """Karpathy's split file with features, as `f30k` in the data folder or anywhere else."""
    monkeypatch.setenv("MMLIB_FEATURES", "clip")
    write_karpathy(tmp_path / "data" / "f30k")
    wanted = [f"mine {split} {count} images, {5 * count} captions, 9 x 5, clip"
              for split, count in (("train", 12), ("val", 4), ("test", 4))]  # fmt: skip
    for report in (
        check("region_features"),
        check("region_features", tmp_path / "data" / "f30k"),
        check("region_features", write_karpathy(tmp_path / "own" / "trip").parent),
    ):
        assert (report.problems, report.counts) == ([], wanted)
    damaged = write_karpathy(tmp_path / "damaged")
    array = FEATURES[::-1, :, :5].copy()
    array[2, 3, 1] = np.nan
    np.save(damaged / "features" / "clip.npy", array)
    (problem,) = check("region_features", damaged).problems
    assert "clip.npy" in str(problem)
    assert "row 2: features of image 'IMG 017.JPG' are not finite" in str(problem)
