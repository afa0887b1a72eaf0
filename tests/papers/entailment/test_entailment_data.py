"""The data of each tier: what is true, what is kept apart, and that nothing leaks."""

import os
from dataclasses import replace
from itertools import combinations
from unittest.mock import Mock

import numpy as np
import pytest
import tiny_entailment as tiny

from mmlib.features import words
from mmlib.papers.entailment.data import load_arrays, load_study, photographs, world
from mmlib.papers.entailment.data.arrays import starts_of
from mmlib.papers.entailment.method.calibration import INPUTS
from mmlib.papers.entailment.method.classifier import Settings
from mmlib.papers.entailment.run import judge, systems
from mmlib.papers.entailment.run.judge import training_rows


@pytest.fixture(scope="module")
def study():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world, "IMAGES", {"train": 40, "val": 6, "test": 20})
        patch.setattr(world, "JUDGES", {"train": 24, "dev": 6, "calibration": 12})
        patch.setattr(world, "EDITED", {"train": 12, "val": 4, "test": 10})
        patch.setattr(world, "ASKED", 15)
        patch.setattr(os, "cpu_count", lambda: 1)
        yield load_study("world")["world"]


def test_candidates_are_labelled_by_logic(study):
    test, own = study.arrays.splits["test"], study.arrays.tests["candidates"].samples
    position = {row: i for i, row in enumerate(test.rows)}
    for image, text, label in zip(own.image, own.hypothesis, own.label, strict=True):
        columns = [c for c, one in enumerate(test.texts) if one == text]
        assert any(test.fits[position[image], c] == label for c in columns)
    golden = [t in study.captions[i] for i, t in zip(own.image, own.hypothesis, strict=True)]
    assert sum(golden) < 0.1 * len(own)  # other images may have a caption word for word


def test_each_kind_of_pairs_is_about_images_of_its_own(study):
    arrays, first = study.arrays, study.rows["judges"][0]
    named = {"train": arrays.train, "dev": arrays.dev, "calibration": arrays.calibration}
    seen = {name: set(own.samples.image) - {-1} for name, own in (named | arrays.tests).items()}
    seen["mined"] = set(arrays.splits["train"].rows)
    for one, other in combinations(seen, 2):
        assert not seen[one] & seen[other], (one, other)
    assert seen["calibration"] <= set(range(first + 30, first + 42))


def test_noise_is_in_what_is_looked_at_and_not_in_what_is_clean(study):
    arrays = study.arrays
    added = arrays.images - arrays.clean
    np.testing.assert_allclose(added.std(axis=(0, 1)), arrays.noise, rtol=0.1)
    one, again, other = (arrays.with_noise(*key) for key in ((0, 1), (0, 1), (0, 2)))
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()
    np.testing.assert_allclose((one - arrays.clean).std(axis=(0, 1)), arrays.noise, rtol=0.1)


def test_full_learns_from_labels_of_logic_alone(study):
    samples = study.arrays.train.samples
    with_captions = next(r for r in systems.judges("world") if r.system == "With own captions")
    for one, others in (systems.full("world"), set()), (with_captions, {"own", "random"}):
        rows = training_rows(study.arrays.train, one)
        sources = {"world", "candidate"} | {f"{name} caption" for name in others}
        assert {samples.source[i] for i in rows} == sources
        assert {samples.kind[i] for i in rows} == {"te", "ve", "mme"}


def test_inputs_are_known_of_all_that_is_asked(study):
    for own in (study.arrays.calibration, *study.arrays.tests.values()):
        assert own.given.shape == (len(own), len(INPUTS))
        assert np.isfinite(own.given).all()
    calibration = study.arrays.calibration.given
    np.testing.assert_allclose(calibration.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(calibration.std(axis=0), 1, atol=1e-3)


def test_a_machine_without_a_tokenizer_reads_every_text(study, monkeypatch):
    monkeypatch.setattr(words, "tokenize", Mock(side_effect=AssertionError("tokenized")))
    arrays = study.arrays
    for own in (arrays.train, arrays.calibration, *arrays.tests.values()):
        arrays.encoded(own, systems.BUDGETS["world"].judge.classifier)
    arrays.encoded(arrays.pairs("train", np.array([[0, 7], [3, 1]])), Settings())


def test_the_fingerprint_is_of_what_is_read(study):
    """Texts divided otherwise are other data, too."""
    own, frozen = study.arrays, study.arrays.frozen
    marks = {own.fingerprint, replace(own, images=own.images + 1e-3).fingerprint}
    for texts in (("a\nb", "c"), ("a", "b\nc")):
        split = replace(own.splits["test"], texts=texts)
        row = {text: i for i, text in enumerate(texts)}
        marks.add(replace(own, splits={**own.splits, "test": split}).fingerprint)
        marks.add(replace(own, frozen=replace(frozen, row=row)).fingerprint)
    assert len(marks) == 6
    assert load_arrays({"world": study}, "world")["world"].fingerprint == own.fingerprint


def test_a_kept_retriever_that_was_cut_off_is_trained_anew(monkeypatch, tmp_path):
    """And one of other texts is another one."""
    monkeypatch.setattr(photographs, "job_folder", lambda: tmp_path)
    toy = tiny.arrays()
    budget = replace(tiny.BUDGET, frozen={"dual": tiny.PHASE, "align": tiny.PHASE})
    given = budget, toy.words, toy.images, toy.splits["train"]
    whole = photographs._frozen_retriever(*given)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-9])
    again = photographs._frozen_retriever(*given)
    assert all(whole[name].equal(again[name]) for name in whole)
    photographs._frozen_retriever(*given[:3], replace(given[3], texts=given[3].texts[::-1]))
    assert len(list(tmp_path.iterdir())) == 2


def test_judges_start_from_the_retriever_and_the_small_bert(study):
    one = systems.full("world")
    settings = one.settings(systems.BUDGETS["world"].judge.classifier)
    model, begun = judge.fresh(one, settings, study.arrays)
    assert {n.split(".")[0] for n in begun} == {"image", "words", "cross", "text"}
    for name in ("image.project.weight", "cross.layers.0.output.dense.weight"):
        np.testing.assert_array_equal(model.state_dict()[name], study.arrays.retriever[name])
    assert any(name.startswith("stream.project") for name in starts_of(study.arrays.retriever))


@pytest.mark.parametrize(("tier", "datasets"), [("moon", ()), ("world", ("flickr8k",))])
def test_what_is_not_there_is_named(tier, datasets):
    with pytest.raises(ValueError, match=r"no (tier 'moon'|data 'flickr8k')"):
        load_study(tier, datasets)
