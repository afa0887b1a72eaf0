"""Baselines, the grid of jobs, and arrays made of documents."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from scripts import record_in_two_goes
from tiny_links import TRAINED, tiny, uneven, with_split

from mmlib.core.errors import DataError
from mmlib.core.jobs import NO_SEED, Job
from mmlib.papers.links import baselines, data, method, run
from mmlib.papers.links.baselines import ALPHAS, score, spread
from mmlib.papers.links.data.arrays import prepare
from mmlib.papers.links.data.documents import SPLITS, UNLABELLED, Corpus, Document
from mmlib.papers.links.method import Settings
from mmlib.papers.links.run import BASELINES, SYSTEMS, UPPER_BOUNDS, budget

ROWS = {row["system"]: row for row in (*BASELINES, *UPPER_BOUNDS)}


def auc(name, arrays):
    return score(Job("links", "world", "tiny", ROWS[name], 0), arrays).values["test"]["AUC"]


@pytest.fixture(scope="module")
def arrays():
    return tiny({"train": 150})


# --- Baselines ---------------------------------------------------------------------------------


@pytest.mark.parametrize("supervised", [False, True])
def test_ridge_scores_are_those_of_a_loop_and_the_closed_form(arrays, supervised):
    words = np.zeros((len(arrays.ids), len(arrays.words)))
    for row, ids in enumerate(arrays.ids):
        for word in ids[ids > 0]:
            words[row, word] += 1 / (ids > 0).sum()

    def rows(name):
        split, pairs, x, y = arrays.splits[name], set(), [], []
        for s, v, links in zip(split.sentences, split.images, split.links, strict=True):
            pairs |= {(s[i], v[j]) for i, j in np.argwhere(links)}
            x.append(np.mean([words[i] for i in s], axis=0))
            y.append(np.mean([arrays.features[j] for j in v], axis=0, dtype=float))
        if supervised:
            x, y = zip(*[(words[i], arrays.features[j]) for i, j in pairs], strict=True)
        return np.array(x), np.array(y, dtype=float)

    def fitted(alpha):
        a, b = x - x.mean(0), y - y.mean(0)
        weights = np.linalg.solve(a.T @ a + alpha * np.eye(x.shape[1]), a.T @ b)
        return weights, y.mean(0) - x.mean(0) @ weights

    (x, y), (dev_x, dev_y) = rows("train"), rows("val")
    ridges = map(fitted, ALPHAS)
    weights, intercept = min(ridges, key=lambda f: np.square(dev_x @ f[0] + f[1] - dev_y).mean())
    scores, test = baselines.ridge_scores(arrays, "test", supervised), arrays.splits["test"]
    for matrix, s, v in list(zip(scores, test.sentences, test.images, strict=True))[:10]:
        for i, j in np.ndindex(matrix.shape):
            said, seen = words[s[i]] @ weights, arrays.features[v[j]] - intercept
            cosine = said @ seen / np.linalg.norm(said) / np.linalg.norm(seen)
            assert matrix[i, j] == pytest.approx(cosine, abs=2e-3)


def test_co_occurrence_reads_no_link_and_the_supervised_ridge_does(arrays):
    wrong = arrays
    for split in ("train", "val"):
        links = tuple(~links for links in arrays.splits[split].links)
        wrong = with_split(wrong, split, links=links)
    for name, reads in (("Co-occurrence", False), ("Supervised ridge", True)):
        good, bad = (auc(name, one) for one in (arrays, wrong))
        assert np.array_equal(good, bad) != reads
        assert good.mean() > 90
    assert auc("Supervised ridge", wrong).mean() < 60


def test_detection_is_that_of_a_loop_and_k_is_chosen_on_the_split_that_is_named(arrays):
    names = arrays.words[-16:]
    ids = np.where(arrays.ids == 2, 1, arrays.ids)  # a filler word becomes an unknown one
    seeing = replace(arrays, ids=ids, label_scores=arrays.features.clip(0), label_words=names)
    test = seeing.splits["test"]
    for labels in (1, 3):
        scores = baselines.detection_scores(seeing, "test", labels)
        for d in range(5):
            for i, j in np.ndindex(scores[d].shape):
                ids = seeing.ids[test.sentences[d][i]]
                text = np.mean([seeing.words[w] for w in ids if w > 1], axis=0)
                likely = seeing.label_scores[test.images[d][j]].argsort(kind="stable")
                image = names[likely[::-1][:labels]].mean(0)
                cosine = text @ image / np.linalg.norm(text) / np.linalg.norm(image)
                assert scores[d][i, j] == pytest.approx(cosine, abs=1e-5)
    assert baselines.best_labels(seeing, "val") == 1
    assert auc("Obj Detect", seeing).mean() > 95
    rng = np.random.default_rng(0)
    noise = replace(seeing, label_scores=rng.random(seeing.label_scores.shape))
    by_k = [
        method.evaluate(baselines.detection_scores(noise, "test", k), test)["AUC"].mean()
        for k in range(1, baselines.MOST_LABELS + 1)
    ]
    assert auc("Obj Detect (best K on test)", noise).mean() == pytest.approx(max(by_k))
    assert auc("Obj Detect", noise).mean() <= max(by_k)


def test_predictors_are_spread_and_the_components_of_training_means(arrays, monkeypatch):
    vectors = {0.355556: [(3, 4), (5, 0), (0, 2)], 0.5: [(1, 0), (0, 2)], 0: [(1, 1)] * 2}
    for wanted, each in vectors.items():
        assert spread(np.array(each, dtype=float)) == pytest.approx(wanted, abs=1e-6)
    monkeypatch.setattr(baselines, "COMPONENTS", 2)
    predictors = baselines.describe_documents(None, arrays).values["test"]
    images = arrays.splits["test"].images
    assert predictors["image spread"][4] == pytest.approx(spread(arrays.features[images[4]]))
    train, test = (
        baselines.means(arrays.features, arrays.splits[s].images) for s in ("train", "test")
    )
    axes = np.linalg.svd(train - train.mean(0), full_matrices=False)[2][:2]
    wanted = (test - train.mean(0)) @ axes.T
    content = np.stack([predictors[f"image content {i}"] for i in range(2)], axis=1)
    assert np.abs(content) == pytest.approx(np.abs(wanted), abs=1e-3)


# --- The grid ----------------------------------------------------------------------------------


def test_the_grid_trains_what_differs_and_scores_what_can_be_had(arrays):
    data_sets = {"story": arrays, "organic": tiny(square=True), UNLABELLED: arrays}
    stages = run.stages("world", data_sets, [0, 1])
    assert [stage.parallel for stage in stages] == [True, True, True, False]
    scored, described, trained, timed = (stage.jobs for stage in stages)
    names = {
        dataset: [j.system["system"] for j in trained if (j.dataset, j.seed) == (dataset, 1)]
        for dataset in data_sets
    }
    # There the main systems have hard negatives, and documents of "organic" are square.
    negatives = [f"{name}, b = {b}" for name in ("AP", "DC") for b in (20, 30)]
    variants = [*(f"{name}, averaged negatives" for name in ("DC", "AP")), *negatives]
    variants += ["AP, a quarter of the width", "AP, half the width"]
    assert names["story"] == [*SYSTEMS, *variants]
    assert names["organic"] == [*(name for name in SYSTEMS if name != "TK"), *variants]
    assert names[UNLABELLED] == ["AP"]
    distinct = {tuple(j.system.items()) for j in trained if j.dataset == "story"}
    assert len(distinct) == len(names["story"])
    assert all(j.settings == asdict(budget("world", j.dataset)) for j in (*trained, *timed))
    keys = [(j.dataset, j.system["system"], j.seed) for j in scored]
    assert {("story", "Random", 1), ("story", "Co-occurrence", NO_SEED)} <= {*keys}
    assert len(keys) == 3 * (2 + 2)  # no labels to detect, no truth
    assert [j.dataset for j in described] == [j.dataset for j in timed] == ["story", "organic"]
    wide = replace(tiny(), words=np.tile(tiny().words, 2))  # as the world's budget says
    answer = run.time_steps(timed[0], wide)
    assert len(answer.history) == run.REPEATS
    assert all(value > 0 for row in answer.history for value in row.values())
    assert set(TRAINED) == set(SYSTEMS)


def test_the_fingerprint_changes_with_whatever_training_or_scoring_reads():
    own = uneven()
    changed = [
        replace(own, features=own.features + 1),
        replace(own, words=own.words.astype(np.float64)),
        replace(own, lengths=own.lengths[::-1]),
        replace(own, truth=own.splits["test"].links),
        replace(own, key=tuple(~links for links in own.splits["val"].links)),
        with_split(own, "test", links=None),
        with_split(own, "train", rounds=own.splits["train"].rounds + 1),
        with_split(own, "val", clusters=own.splits["val"].clusters[::-1]),
    ]
    assert len({own.fingerprint, *(one.fingerprint for one in changed)}) == 9
    assert own.fingerprint == uneven().fingerprint


# --- Arrays of documents -----------------------------------------------------------------------

HOW = Settings(word_width=4, min_count=1, max_words=3)


@pytest.fixture
def corpus():
    def documents(split, *texts):
        return tuple(
            Document(f"{split}-{d}", text, (str(d), str(d + 3)), ((0, 0),))
            for d, text in enumerate(texts)
        )

    features = np.random.default_rng(0).normal(size=(8, 5)).astype(np.float32) * 7 + 3
    return Corpus(
        "coco", documents("train", ("ape bee cat dog", "bee"), ("ape", "")),
        documents("val", ("ape zebra",)), documents("test", ("bee", "cat")), features,
        {str(i): 7 - i for i in range(8)},
    )  # fmt: skip


def test_documents_become_arrays_that_point_at_their_rows(corpus):
    arrays = prepare(corpus, HOW)
    for name, split in arrays.splits.items():
        for d, document in enumerate(corpus.split(name)):
            assert split.images[d].tolist() == [7 - int(v) for v in document.images]
            assert (split.links[d] == document.link_matrix()).all()
        assert split.rounds.tolist() == [0] * len(split)
        assert split.clusters.tolist() == list(range(len(split)))
    first, empty = arrays.splits["train"].sentences[0][0], arrays.splits["train"].sentences[1][1]
    assert (arrays.ids.shape[1], arrays.lengths[first]) == (3, 3)  # cut at max_words
    assert (arrays.ids[empty].tolist(), arrays.lengths[empty]) == ([1, 0, 0], 1)
    zebra = arrays.splits["val"].sentences[0][0]
    assert arrays.ids[zebra][1] == 1  # the vocabulary sees training sentences only
    assert len(arrays.words) == 2 + 4
    for name in ("organic", "diy", UNLABELLED):  # §5: 50 words
        assert prepare(replace(corpus, name=name), HOW).ids.shape[1] == 4


def test_features_are_centred_and_scaled_by_training_images_alone(corpus):
    rows = np.unique(np.concatenate([corpus.rows(d) for d in corpus.train]))
    features = prepare(corpus, HOW).features
    assert features[rows].mean(0) == pytest.approx(0, abs=1e-5)
    assert features[rows].std(0).mean() == pytest.approx(1, abs=1e-5)
    moved = corpus.features * 3 + 1
    moved[rows] = corpus.features[rows]
    assert (prepare(replace(corpus, features=moved), HOW).features[rows] == features[rows]).all()
    even = prepare(corpus, replace(HOW, feature_power=1.0)).features
    assert even[rows].std(0) == pytest.approx(1, abs=1e-5)


def write(corpus, folder, labelled=True):
    """The authors' three files; their labels are null where the links are not labelled."""

    def pairs(nodes, label):
        return [[n, label(i) if labelled else None] for i, n in enumerate(nodes)]

    docs = {
        split: [
            [
                pairs(d.images, lambda _: -1),
                pairs(d.sentences, lambda i, d=d: dict(d.links).get(i, -1)), d.id,
            ]
            for d in corpus.split(split)
        ]
        for split in SPLITS
    }  # fmt: skip
    folder.mkdir(parents=True)
    (folder / "docs.json").write_text(json.dumps(docs), encoding="utf-8")
    (folder / "id2row.json").write_text(json.dumps(corpus.row_of), encoding="utf-8")
    np.save(folder / "features.npy", corpus.features)


def test_unknown_tiers_and_documents_are_refused_and_the_authors_folders_found(
    corpus, tmp_path, monkeypatch
):
    monkeypatch.setenv("MMLIB_DATA", str(tmp_path))
    for tier, kinds, message in (
        ("moon", [], "no tier 'moon'"),
        ("world", ["moon"], "no documents 'moon' here; there are coco"),
    ):
        with pytest.raises(ValueError, match=message):
            data.load_study(tier, kinds)
    with pytest.raises(FileNotFoundError, match=r"docs\.json.*data/README"):
        data.load_study("paper")
    write(corpus, tmp_path / "links" / "mscoco")
    write(corpus, tmp_path / "links" / "wikihow", labelled=False)
    study = data.load_study("paper")
    assert list(study) == ["coco", UNLABELLED]
    assert study["coco"].test == corpus.test
    assert run.load_arrays(study, "paper")[UNLABELLED].splits["test"].links is None
    write(corpus, tmp_path / "links" / "wiki", labelled=False)
    write(corpus, tmp_path / "links" / "rqa")
    assert list(data.load_study("paper", ["coco"])) == ["coco"]
    assert list(data.load_study("paper", ["organic", UNLABELLED])) == ["organic", UNLABELLED]
    with pytest.raises(ValueError, match=r"no documents 'moon' in .*there are coco"):
        data.load_study("paper", ["moon"])
    with pytest.raises(DataError, match="wiki and wikihow have no labels, and one such set is"):
        data.load_study("paper")
    write(corpus, tmp_path / "links" / "coco")
    with pytest.raises(DataError, match="coco and mscoco are both the documents 'coco'"):
        data.load_study("paper", ["organic"])


@pytest.mark.slow
def test_a_small_corpus_of_the_world_has_a_recogniser_who_is_right(monkeypatch):
    counts = {
        "images": {"train": 60, "val": 30, "test": 30},
        "documents": {"coco": {"train": 8, "val": 2, "test": 4}},
    }
    monkeypatch.setattr(data.world, "COUNTS", counts)
    arrays = run.load_arrays(data.load_study("world", ["coco"]), "world")["coco"]
    assert [len(arrays.splits[s]) for s in SPLITS] == [8, 2, 4]
    assert auc("Recogniser", arrays).mean() > 80
    assert [m.shape for m in arrays.truth] == [y.shape for y in arrays.splits["test"].links]
    assert 0 <= np.nanmean(auc("Obj Detect", arrays)) <= 100


def test_small_files_are_recorded_and_judged(corpus, tmp_path, monkeypatch):
    texts, links = ("ape cat dog", "bee zebra", "cow", "dog"), ((0, 0), (1, 1))
    many = replace(corpus, **{
        split: tuple(Document(f"{split}-{d}", texts, (str(d % 8), str((d + 3) % 8)), links)
                     for d in range(count))
        for split, count in {"train": 24, "val": 12, "test": 8}.items()
    })  # fmt: skip
    monkeypatch.setitem(run.BUDGETS, "paper", {"coco": replace(HOW, width=8, epochs=1)})
    monkeypatch.setenv("MMLIB_DATA", str(tmp_path))
    write(many, tmp_path / "links" / "mscoco")
    claims = record_in_two_goes(monkeypatch, run, "04", tmp_path, "--systems", "NoStruct,AP")
    assert {claim["verdict"] for claim in claims if claim["id"] == "C1"} == {"undecided"}
