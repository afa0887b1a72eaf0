"""Baselines, the grid, and arrays made of documents."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from tiny_links import TRAINED, tiny, uneven, with_split

from mmlib.core.errors import DataError
from mmlib.core.jobs import NO_SEED, Job
from mmlib.papers.links import baselines, data, method, run
from mmlib.papers.links.baselines import ALPHAS, score, spread
from mmlib.papers.links.data.arrays import SPLITS
from mmlib.papers.links.data.documents import UNLABELLED, Corpus, Document
from mmlib.papers.links.method import Settings
from mmlib.papers.links.run import BASELINES, SYSTEMS, UPPER_BOUNDS, budget

ROWS = {row["system"]: row for row in (*BASELINES, *UPPER_BOUNDS)}


def baseline(name, arrays, seed=0):
    return score(Job("links", "world", "tiny", ROWS[name], seed), arrays).values["test"]


@pytest.fixture(scope="module")
def arrays():
    return tiny({"train": 150})


# --- Ridge regressions -----------------------------------------------------------------------


def centred_ridge(x, y, alpha):
    """(weights, intercept) of the closed form."""
    a, b = x - x.mean(0), y - y.mean(0)
    weights = np.linalg.solve(a.T @ a + alpha * np.eye(x.shape[1]), a.T @ b)
    return weights, y.mean(0) - x.mean(0) @ weights


@pytest.mark.parametrize("supervised", [False, True])
def test_ridge_scores_are_those_of_a_loop_and_the_closed_form(arrays, supervised):
    words = np.zeros((len(arrays.ids), len(arrays.words)))
    for row, ids in enumerate(arrays.ids):
        for word in ids[ids > 0]:
            words[row, word] += 1 / (ids > 0).sum()

    def rows(split):
        own, pairs, x, y = arrays.splits[split], set(), [], []
        for s, v, links in zip(own.sentences, own.images, own.links, strict=True):
            pairs |= {(s[i], v[j]) for i, j in np.argwhere(links)}
            x.append(np.mean([words[i] for i in s], axis=0))
            y.append(np.mean([arrays.features[j] for j in v], axis=0, dtype=float))
        if supervised:
            x, y = zip(*[(words[i], arrays.features[j]) for i, j in pairs], strict=True)
        return np.array(x), np.array(y, dtype=float)

    (x, y), (dev_x, dev_y) = rows("train"), rows("val")
    fitted = [centred_ridge(x, y, alpha) for alpha in ALPHAS]
    weights, intercept = min(fitted, key=lambda f: np.square(dev_x @ f[0] + f[1] - dev_y).mean())
    found = baselines.ridge_scores(arrays, "test", supervised)
    own = arrays.splits["test"]
    for matrix, s, v in list(zip(found, own.sentences, own.images, strict=True))[:10]:
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
        good, bad = (baseline(name, one)["AUC"] for one in (arrays, wrong))
        assert np.array_equal(good, bad) != reads
        assert good.mean() > 90
    assert baseline("Supervised ridge", wrong)["AUC"].mean() < 60


# --- Object Detection --------------------------------------------------------------------------


def test_detection_is_that_of_a_loop_and_k_is_chosen_where_it_is_said(arrays):
    rng = np.random.default_rng(0)
    names = arrays.words[-16:]
    seeing = replace(arrays, label_scores=arrays.features.clip(0), label_words=names)
    for labels in (1, 3):
        found = baselines.detection_scores(seeing, "test", labels)
        own = seeing.splits["test"]
        for d in range(5):
            for i, j in np.ndindex(found[d].shape):
                ids = seeing.ids[own.sentences[d][i]]
                text = np.mean([seeing.words[w] for w in ids if w > 1], axis=0)
                likely = sorted(
                    range(16), key=lambda c: -seeing.label_scores[own.images[d][j], c]
                )[:labels]  # fmt: skip
                image = names[likely].mean(0)
                cosine = text @ image / np.linalg.norm(text) / np.linalg.norm(image)
                assert found[d][i, j] == pytest.approx(cosine, abs=1e-5)
    assert baselines.best_labels(seeing, "val") == 1
    assert baseline("Obj Detect", seeing)["AUC"].mean() > 95
    noise = replace(seeing, label_scores=rng.random(seeing.label_scores.shape))
    by_k = [
        method.evaluate(baselines.detection_scores(noise, "test", k), noise.splits["test"])
        for k in range(1, baselines.MOST_LABELS + 1)
    ]
    best = max(one["AUC"].mean() for one in by_k)
    assert baseline("Obj Detect (best K on test)", noise)["AUC"].mean() == pytest.approx(best)
    assert baseline("Obj Detect", noise)["AUC"].mean() <= best
    with pytest.raises(ValueError, match="no label scores"):
        baselines.detection_scores(arrays, "test", 1)


@pytest.mark.parametrize(
    ("vectors", "wanted"),
    [([(3, 4), (5, 0), (0, 2)], 0.355556), ([(1, 0), (0, 2)], 0.5), ([(1, 1)] * 2, 0),
     ([(1, 0), (-3, 0)], 1)],
)  # fmt: skip
def test_spread_is_that_of_the_printed_vectors(vectors, wanted):
    assert spread(np.array(vectors, dtype=float)) == pytest.approx(wanted, abs=1e-6)


# --- The grid ----------------------------------------------------------------------------------


def test_the_grid_trains_what_differs_and_scores_what_can_be_had(arrays):
    every = {"story": arrays, "organic": tiny(square=True), UNLABELLED: arrays}
    jobs = run.trainings("world", every, [0, 1])
    names = {d: [j.system["system"] for j in jobs if j.dataset == d and j.seed == 1] for d in every}
    assert "TK" in names["story"]
    assert "TK" not in names["organic"]
    assert names[UNLABELLED] == ["AP"]
    assert "AP, b = 20" in names["story"]
    assert "AP, hard negatives" not in names["story"]  # there the main systems have them
    assert len({tuple(sorted(j.system.items())) for j in jobs if j.dataset == "story"}) == len(
        names["story"]
    )
    assert all(j.settings == asdict(budget("world", j.dataset)) for j in jobs)
    assert asdict(budget("paper", "coco")) == asdict(Settings())
    told = [(j.dataset, j.system["system"], j.seed) for j in run.scorings("world", every, [0, 1])]
    assert ("story", "Random", 1) in told
    assert ("story", "Co-occurrence", NO_SEED) in told
    assert not {("story", "Co-occurrence", 0), ("story", "Co-occurrence", 1)} & {*told}
    assert not any(name.startswith(("Obj", "Recog")) for _, name, _ in told)
    stages = run.stages("world", every, [0])
    assert all(stage.function.__module__.startswith("mmlib.papers.links") for stage in stages)
    assert [stage.parallel for stage in stages] == [True, True, True, False]
    timed = run.time_steps(stages[-1].jobs[0], with_width(tiny()))
    assert len(timed.history) == run.REPEATS
    assert all(value > 0 for row in timed.history for value in row.values())


def with_width(arrays):
    """The tiny corpus with word vectors as wide as the world's budget says."""
    return replace(arrays, words=np.tile(arrays.words, 2))


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


def test_predictors_are_spread_and_the_components_of_training_means(arrays):
    found = baselines.difficulty_predictors(arrays, components=2)
    own = arrays.splits["test"]
    assert found["image spread"][4] == pytest.approx(spread(arrays.features[own.images[4]]))
    means = {
        s: baselines.means(arrays.features, arrays.splits[s].images) for s in ("train", "test")
    }
    axes = np.linalg.svd(means["train"] - means["train"].mean(0), full_matrices=False)[2][:2]
    wanted = (means["test"] - means["train"].mean(0)) @ axes.T
    content = found[["image content 0", "image content 1"]].to_numpy()
    assert np.abs(content) == pytest.approx(np.abs(wanted), abs=1e-3)
    assert set(TRAINED) == set(SYSTEMS)


# --- Arrays of documents -----------------------------------------------------------------------

HOW = Settings(word_width=4, min_count=1, max_words=3)


@pytest.fixture
def corpus():
    def documents(split, *texts):
        return tuple(
            Document(
                f"coco-{split}-r{d}-c00{d}-{d}", text, (str(d), str(d + 3)),
                ((0, 0),),
            )
            for d, text in enumerate(texts)
        )  # fmt: skip

    features = np.random.default_rng(0).normal(size=(8, 5)).astype(np.float32) * 7 + 3
    return Corpus(
        "coco", documents("train", ("ape bee cat dog", "bee"), ("ape", "")),
        documents("val", ("ape zebra",)), documents("test", ("bee", "cat")), features,
        {str(i): 7 - i for i in range(8)},
    )  # fmt: skip


def test_documents_become_arrays_that_point_at_their_rows(corpus):
    arrays = data.prepare(corpus, HOW)
    for split in SPLITS:
        own = arrays.splits[split]
        for d, document in enumerate(corpus.split(split)):
            assert own.images[d].tolist() == [7 - int(v) for v in document.images]
            assert (own.links[d] == document.link_matrix()).all()
        assert own.rounds.tolist() == own.clusters.tolist() == list(range(len(own)))
    first = arrays.splits["train"].sentences[0][0]
    assert (arrays.ids.shape[1], arrays.lengths[first]) == (3, 3)  # cut at max_words
    empty = arrays.splits["train"].sentences[1][1]
    assert (arrays.ids[empty].tolist(), arrays.lengths[empty]) == ([1, 0, 0], 1)
    zebra = arrays.splits["val"].sentences[0][0]
    assert arrays.ids[zebra][1] == 1  # the vocabulary sees training sentences only
    assert len(arrays.words) == 2 + 4
    long = data.prepare(replace(corpus, name="organic"), HOW)
    assert long.ids.shape[1] == 4


def test_features_are_centred_and_scaled_by_training_images_alone(corpus):
    rows = np.unique(np.concatenate([corpus.rows(d) for d in corpus.train]))
    found = data.prepare(corpus, HOW).features
    assert found[rows].mean(0) == pytest.approx(0, abs=1e-5)
    assert found[rows].std(0).mean() == pytest.approx(1, abs=1e-5)
    moved = corpus.features * 3 + 1
    moved[rows] = corpus.features[rows]
    assert (data.prepare(replace(corpus, features=moved), HOW).features[rows] == found[rows]).all()
    even = data.prepare(corpus, replace(HOW, feature_power=1.0)).features
    assert even[rows].std(0) == pytest.approx(1, abs=1e-5)


def write(corpus, folder, known):
    """The authors' three files; their labels are null where the links are not `known`."""

    def pairs(nodes, labels):
        return [[n, label if known else None] for n, label in zip(nodes, labels, strict=True)]

    docs = {
        split: [
            [
                pairs(d.images, [-1] * len(d.images)),
                pairs(d.sentences, [dict(d.links).get(i, -1) for i in range(len(d.sentences))]),
                d.id,
            ]
            for d in corpus.split(split)
        ]
        for split in SPLITS
    }
    folder.mkdir(parents=True)
    (folder / "docs.json").write_text(json.dumps(docs), encoding="utf-8")
    (folder / "id2row.json").write_text(json.dumps(corpus.row_of), encoding="utf-8")
    np.save(folder / "features.npy", corpus.features)


def test_unknown_tiers_and_documents_are_refused_and_the_authors_folders_found(
    corpus, tmp_path, monkeypatch
):
    with pytest.raises(ValueError, match="no tier 'moon'"):
        data.load_study("moon")
    with pytest.raises(ValueError, match="no documents 'moon' here; there are coco"):
        data.load_study("world", ["moon"])
    monkeypatch.setenv("MMLIB_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"docs\.json.*data/README"):
        data.load_study("paper")
    write(corpus, tmp_path / "links" / "mscoco", known=True)
    write(corpus, tmp_path / "links" / "wikihow", known=False)
    study = data.load_study("paper")
    assert list(study.corpora) == ["coco"]
    assert study.corpora["coco"].test == corpus.test
    arrays = run.load_arrays(study, "paper")
    assert list(arrays) == ["coco", UNLABELLED]
    assert arrays[UNLABELLED].splits["test"].links is None
    write(corpus, tmp_path / "links" / "wiki", known=False)
    write(corpus, tmp_path / "links" / "rqa", known=True)
    assert data.load_study("paper", ["coco"]).unlabelled is None
    study = data.load_study("paper", ["organic", UNLABELLED])
    assert list(study.corpora) == ["organic"]
    with pytest.raises(
        DataError, match="wiki and wikihow have no labels, and one such set is read"
    ):
        data.load_study("paper")
    write(corpus, tmp_path / "links" / "coco", known=True)
    with pytest.raises(DataError, match="coco and mscoco are both the documents 'coco'"):
        data.load_study("paper", ["organic"])
    short = study.corpora["organic"].test[0]
    one = replace(short, sentences=("a dog " * 30,))
    organic = replace(study.corpora["organic"], test=(one,))
    for long in (organic, replace(study.unlabelled, test=(one,))):  # §5: 50 words, not 20
        assert data.prepare(long, budget("paper", long.name)).lengths.max() == 50


@pytest.mark.slow
def test_a_small_corpus_of_the_world_has_a_recogniser_who_is_right(monkeypatch):
    monkeypatch.setattr(data.world, "IMAGES", {"train": 60, "val": 30, "test": 30})
    counts = {"coco": {"train": 8, "val": 2, "test": 4}}
    monkeypatch.setattr(data.world, "COUNTS", counts)
    arrays = run.load_arrays(data.load_study("world", ["coco"]), "world")["coco"]
    assert [len(arrays.splits[s]) for s in SPLITS] == [8, 2, 4]
    assert baseline("Recogniser", arrays)["AUC"].mean() > 80
    assert [m.shape for m in arrays.truth] == [y.shape for y in arrays.splits["test"].links]
    assert arrays.label_scores is not None
    assert 0 <= np.nanmean(baseline("Obj Detect", arrays)["AUC"]) <= 100
