from dataclasses import asdict, replace

import numpy as np
import pytest
from test_links_model import HOW, tiny_corpus, word_vectors

from mmlib import claims
from mmlib.papers.links import experiment, model
from mmlib.papers.links.documents import Document
from mmlib.papers.links.experiment import Study
from mmlib.papers.links.files import write_corpus
from mmlib.training import run_jobs

AP = {"AP": model.SYSTEMS["AP"]}


@pytest.fixture(scope="module")
def corpus():
    return tiny_corpus()


@pytest.fixture(scope="module")
def arrays(corpus):
    return model.prepare(corpus, HOW, word_vectors())


def train(arrays, folder, systems=AP, seeds=range(5), how=HOW):
    jobs = experiment.training_jobs("tiny", arrays, systems, how, list(seeds), "cpu")
    answers = run_jobs(model.train_system, jobs, folder, workers=1)
    return experiment.collect(jobs, answers)


def table(scores, corpus, arrays, folder, seeds):
    study = Study({"tiny": corpus}, None, {})
    experiment.add_baselines(scores, study, {"tiny": arrays}, word_vectors(), list(seeds))
    return claims.save_results(experiment.results(scores, HOW, list(seeds)), folder)


# --- The regression check sees a broken method -------------------------------------------------


def test_a_broken_method_fails_the_check_of_figures(corpus, arrays, tmp_path, monkeypatch):
    scores = train(arrays, tmp_path / "good")
    results = table(scores, corpus, arrays, tmp_path, range(5))
    chance = {"tiny/AP/AUC": 50.0, "tiny/AP/p@1": 20.0}
    expected = claims.make_expected(results, chance, {}, {"seeds": 3}, seeds=3)
    assert set(expected["figures"]) == set(chance)
    claims.write_json(tmp_path / "04.json", expected)

    scores = train(arrays, tmp_path / "again", seeds=range(3))
    again = table(scores, corpus, arrays, tmp_path, range(3))
    check = claims.check_figures(again, tmp_path / "04.json", {"seeds": 3})
    assert check["comparable"]
    assert all(figure["within"] for figure in check["figures"])

    right = model.best_matching
    monkeypatch.setattr(model, "best_matching", lambda matrix, k: right(-matrix, k))
    broken = train(arrays, tmp_path / "broken", seeds=range(3))
    check = claims.check_figures(
        table(broken, corpus, arrays, tmp_path, range(3)), tmp_path / "04.json", {"seeds": 3}
    )
    assert not all(figure["within"] for figure in check["figures"])


# --- Jobs and results --------------------------------------------------------------------------


def square(document: Document) -> Document:
    """The document without the sentences that are linked to nothing."""
    kept = [i for i, row in enumerate(document.link_matrix()) if row.any()]
    images = tuple(kept.index(label) for label in document.image_labels)
    sentences = tuple(document.sentences[i] for i in kept)
    return replace(
        document, sentences=sentences, sentence_labels=(-1,) * len(kept), image_labels=images
    )


def test_tk_is_trained_only_where_it_differs_from_dc(corpus, arrays, tmp_path):
    names = lambda jobs: [job["name"] for job, _ in jobs]  # noqa: E731
    make = experiment.training_jobs
    assert "TK" in names(make("tiny", arrays, model.SYSTEMS, HOW, [0], "cpu"))
    parts = {s: tuple(map(square, corpus.split(s))) for s in ("train", "val", "test")}
    even = model.prepare(replace(corpus, **parts), HOW, word_vectors())
    assert "TK" not in names(make("tiny", even, model.SYSTEMS, HOW, [0], "cpu"))
    short = replace(HOW, epochs=1)
    scores = train(even, tmp_path, {"DC": model.SYSTEMS["DC"]}, [0], short)
    assert scores["tiny"]["TK"] is scores["tiny"]["DC"]


def test_the_fingerprint_changes_with_whatever_training_or_scoring_reads(corpus, arrays):
    seen = {experiment.fingerprint(arrays)}
    other_links = (*corpus.test[:-1], replace(corpus.test[-1], image_labels=(-1, -1, -1)))
    for changed in (
        replace(corpus, features=corpus.features + np.eye(*corpus.features.shape)),
        replace(corpus, test=other_links),
        replace(corpus, train=corpus.train[:-1]),
    ):
        seen.add(experiment.fingerprint(model.prepare(changed, HOW, word_vectors())))
    assert len(seen) == 4
    assert experiment.fingerprint(model.prepare(corpus, HOW, word_vectors())) in seen


def test_object_detection_chooses_k_on_dev_and_also_tells_the_best_on_test(corpus, arrays):
    names = ("ape", "bee", "cat", "dog", "elk", "fox", "gnu", "hen",
             "jay", "kid", "owl", "pig", "rat", "yak", "cod", "eel")  # fmt: skip
    seeing = replace(corpus, label_scores=corpus.features, label_names=names)
    scores: experiment.Scores = {}
    study = Study({"tiny": seeing}, None, {})
    chosen = experiment.add_baselines(scores, study, {"tiny": arrays}, word_vectors(), [0, 1])
    assert chosen == {"tiny": {"val": 1, "test": 1}}
    assert np.nanmean(scores["tiny"]["Obj Detect"]["AUC"]) > 95  # one label names each picture
    assert scores["tiny"]["Random"]["AUC"].shape == (2, 30)
    blind = Study({"tiny": corpus}, None, {})
    assert experiment.add_baselines({}, blind, {"tiny": arrays}, {}, [0]) == {}


# --- Documents of a tier -----------------------------------------------------------------------


def test_unknown_tiers_and_documents_are_refused(corpus):
    for ask in (experiment.budget, experiment.load_documents):
        with pytest.raises(ValueError, match="no tier 'moon'"):
            ask("moon")
    with pytest.raises(ValueError, match="no documents 'coco' here; there are tiny"):
        Study({"tiny": corpus}, None, {}).only(["coco"])


def test_a_budget_changes_by_name_and_zero_keeps_the_tiers_own():
    assert experiment.budget("world", epochs=0) == experiment.BUDGETS["world"]
    assert experiment.budget("world", epochs=2).epochs == 2
    assert asdict(experiment.budget("paper")) == asdict(model.Settings())


def test_the_authors_folders_get_their_parts(corpus, tmp_path, monkeypatch):
    monkeypatch.setenv("MMLIB_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"docs\.json.*data/README"):
        experiment.load_documents("paper")
    write_corpus(corpus, tmp_path / "links" / "mscoco")
    study = experiment.load_documents("paper")
    assert list(study.corpora) == ["coco"]
    assert study.corpora["coco"].test == corpus.test
    assert experiment.describe(study).loc["coco", "train/val/test"] == "240/12/30"


@pytest.mark.real
def test_a_short_training_on_flickr8k_finds_links(real_data, tmp_path):
    from mmlib.data import flickr8k
    from mmlib.papers.links import builders

    splits = {s: flickr8k.load(s, real_data / "flickr8k") for s in ("train", "val", "test")}
    coco = builders.coco(splits, {"train": 2000, "val": 66, "test": 132})
    how = experiment.budget("flickr8k", epochs=3)
    vectors = experiment.word_vectors(Study({"coco": coco}, None, {}), how)
    arrays = model.prepare(coco, how, vectors)
    scores = train(arrays, tmp_path, {"DC": model.SYSTEMS["DC"]}, [0], replace(how, warm_up=3))
    assert np.mean(scores["tiny"]["DC"]["AUC"]) > 75  # chance is 50
