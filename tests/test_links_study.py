from dataclasses import asdict, replace

import numpy as np
import pytest
from test_links import HOW, tiny_corpus, word_vectors

from mmlib import claims, links, links_study
from mmlib.datasets.document_files import write_corpus
from mmlib.datasets.documents import Document
from mmlib.links_study import Study
from mmlib.training import run_jobs

AP = {"AP": links.SYSTEMS["AP"]}


@pytest.fixture(scope="module")
def corpus():
    return tiny_corpus()


@pytest.fixture(scope="module")
def arrays(corpus):
    return links.prepare(corpus, HOW, word_vectors())


def train(arrays, folder, systems=AP, seeds=range(5), how=HOW):
    jobs = links_study.training_jobs("tiny", arrays, systems, how, list(seeds), "cpu")
    answers = run_jobs(links.train_system, jobs, folder, workers=1)
    return links_study.collect(jobs, answers)


def table(scores, corpus, arrays, folder, seeds):
    study = Study({"tiny": corpus}, None, {})
    links_study.add_baselines(scores, study, {"tiny": arrays}, word_vectors(), list(seeds))
    return claims.save_results(links_study.results(scores, HOW, list(seeds)), folder)


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

    right = links.best_matching
    monkeypatch.setattr(links, "best_matching", lambda matrix, k: right(-matrix, k))
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
    make = links_study.training_jobs
    assert "TK" in names(make("tiny", arrays, links.SYSTEMS, HOW, [0], "cpu"))
    parts = {s: tuple(map(square, corpus.split(s))) for s in ("train", "val", "test")}
    even = links.prepare(replace(corpus, **parts), HOW, word_vectors())
    assert "TK" not in names(make("tiny", even, links.SYSTEMS, HOW, [0], "cpu"))
    short = replace(HOW, epochs=1)
    scores = train(even, tmp_path, {"DC": links.SYSTEMS["DC"]}, [0], short)
    assert scores["tiny"]["TK"] is scores["tiny"]["DC"]


def test_the_fingerprint_changes_with_whatever_training_or_scoring_reads(corpus, arrays):
    seen = {links_study.fingerprint(arrays)}
    other_links = (*corpus.test[:-1], replace(corpus.test[-1], image_labels=(-1, -1, -1)))
    for changed in (
        replace(corpus, features=corpus.features + np.eye(*corpus.features.shape)),
        replace(corpus, test=other_links),
        replace(corpus, train=corpus.train[:-1]),
    ):
        seen.add(links_study.fingerprint(links.prepare(changed, HOW, word_vectors())))
    assert len(seen) == 4
    assert links_study.fingerprint(links.prepare(corpus, HOW, word_vectors())) in seen


def test_object_detection_chooses_k_on_dev_and_also_tells_the_best_on_test(corpus, arrays):
    names = ("ape", "bee", "cat", "dog", "elk", "fox", "gnu", "hen",
             "jay", "kid", "owl", "pig", "rat", "yak", "cod", "eel")  # fmt: skip
    seeing = replace(corpus, label_scores=corpus.features, label_names=names)
    scores: links_study.Scores = {}
    study = Study({"tiny": seeing}, None, {})
    chosen = links_study.add_baselines(scores, study, {"tiny": arrays}, word_vectors(), [0, 1])
    assert chosen == {"tiny": {"val": 1, "test": 1}}
    assert np.nanmean(scores["tiny"]["Obj Detect"]["AUC"]) > 95  # one label names each picture
    assert scores["tiny"]["Random"]["AUC"].shape == (2, 30)
    blind = Study({"tiny": corpus}, None, {})
    assert links_study.add_baselines({}, blind, {"tiny": arrays}, {}, [0]) == {}


# --- Documents of a tier -----------------------------------------------------------------------


def test_unknown_tiers_and_documents_are_refused(corpus):
    for ask in (links_study.budget, links_study.load_documents):
        with pytest.raises(ValueError, match="no tier 'moon'"):
            ask("moon")
    with pytest.raises(ValueError, match="no documents 'coco' here; there are tiny"):
        Study({"tiny": corpus}, None, {}).only(["coco"])


def test_a_budget_changes_by_name_and_zero_keeps_the_tiers_own():
    assert links_study.budget("world", epochs=0) == links_study.BUDGETS["world"]
    assert links_study.budget("world", epochs=2).epochs == 2
    assert asdict(links_study.budget("paper")) == asdict(links.Settings())


def test_the_authors_folders_get_their_parts(corpus, tmp_path, monkeypatch):
    monkeypatch.setenv("MMLIB_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"docs\.json.*data/README"):
        links_study.load_documents("paper")
    write_corpus(corpus, tmp_path / "links" / "mscoco")
    study = links_study.load_documents("paper")
    assert list(study.corpora) == ["coco"]
    assert study.corpora["coco"].test == corpus.test
    assert links_study.describe(study).loc["coco", "train/val/test"] == "240/12/30"


@pytest.mark.real
def test_a_short_training_on_flickr8k_finds_links(real_data, tmp_path):
    from mmlib.datasets import builders, flickr8k

    splits = {s: flickr8k.load(s, real_data / "flickr8k") for s in ("train", "val", "test")}
    coco = builders.coco(splits, {"train": 2000, "val": 66, "test": 132})
    how = links_study.budget("flickr8k", epochs=3)
    vectors = links_study.word_vectors(Study({"coco": coco}, None, {}), how)
    arrays = links.prepare(coco, how, vectors)
    scores = train(arrays, tmp_path, {"DC": links.SYSTEMS["DC"]}, [0], replace(how, warm_up=3))
    assert np.mean(scores["tiny"]["DC"]["AUC"]) > 75  # chance is 50
