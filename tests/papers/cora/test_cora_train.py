"""Trainings on toy pictures from end to end, and what each is measured by."""

from dataclasses import asdict, replace

import numpy as np
import pytest
import tiny_cora as toys
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_cora import HOW, job, tiny

from mmlib.core.jobs import Run
from mmlib.core.ranking import KS, ranks_of_scores
from mmlib.core.ranking import metrics as figures_of
from mmlib.papers.cora import method as metrics
from mmlib.papers.cora.method import Encoded, Matcher, encode, per_item
from mmlib.papers.cora.run import baselines
from mmlib.papers.cora.run.systems import (
    BASELINES,
    CAPTIONS,
    ERRORS,
    ORACLES,
    RATES,
    SYSTEMS,
)
from mmlib.papers.cora.run.train import learning_rate, train, train_and_score

CHANCE = 2 * 100 * (1 + 5 + 10) / 24  # RSUM at random, about: 24 images of two captions each
few = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 2**32 - 1)


@pytest.fixture(scope="module")
def arrays():
    return tiny()


# --- Ranks -------------------------------------------------------------------------------------


def test_what_items_add_is_the_rsum_on_average():
    rng = np.random.default_rng(0)
    for image_of in (np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1, 2])):
        ranks = ranks_of_scores(rng.random((image_of.max() + 1, len(image_of))), image_of)
        found = per_item(ranks)
        assert found["RSUM"].mean() == pytest.approx(figures_of(ranks)["rsum"])
        assert found["rank"].tolist() == [*ranks.caption_ranks, *ranks.image_ranks]


def test_the_folds_of_a_large_gallery_are_ranked_alone(monkeypatch):
    monkeypatch.setattr(metrics, "FOLD", 2)
    vectors = np.eye(5, 8, dtype=np.float32)
    captions = vectors[[0, 1, 1, 2, 3, 0]]  # the last caption is of image 4 and looks like image 0
    value = metrics.fold_ranks(vectors, captions, np.array([0, 1, 1, 2, 3, 4]))
    assert value.mean() == pytest.approx(600)  # alone in its fold, image 4 has no rival


def seen(images, captions, entities=None, caption_of=None):
    parts = [None if x is None else np.array(x, float) for x in (images, captions, entities)]
    return Encoded(
        parts[0], parts[1], np.zeros(len(captions), int), parts[2],
        None if caption_of is None else np.array(caption_of),
    )  # fmt: skip


def test_reranking_gives_the_oracle():
    one = seen([[1, 0]], [[0.5, 0]], [[0.4, 0], [0.2, 0]], [0, 0])
    scores, weakest = one.images @ one.captions.T, metrics.weakest_entity(one)
    assert metrics.mix(scores, weakest, 0.9) == pytest.approx(0.47)
    assert metrics.mix(scores, weakest, 1.0) == pytest.approx(scores)
    with pytest.raises(ValueError, match="no entities"):
        metrics.weakest_entity(seen([[1, 0]], [[1, 0]]))


@few
@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), seeds)
def test_the_weakest_entity_is_that_of_the_loop(owned, seed):
    rng = np.random.default_rng(seed)
    caption_of = np.repeat(np.arange(len(owned)), owned)
    one = seen(rng.normal(size=(1030, 4)), rng.normal(size=(len(owned), 4)),
               rng.normal(size=(len(caption_of), 4)), caption_of)  # fmt: skip
    weakest = metrics.weakest_entity(one)
    for t in range(len(owned)):
        assert weakest[:, t] == pytest.approx(
            (one.images @ one.entities[caption_of == t].T).min(axis=1)
        )


def test_weights_of_the_scores_choose_beta():
    right = np.eye(3)
    image_of = np.arange(3)
    assert metrics.best_beta(right, -right, image_of) == 1.0
    assert metrics.best_beta(-right, right, image_of) < 0.5


def test_an_image_finds_the_best_entity_of_its_captions():
    split = toys.paired()
    graphs = split.texts["graph"]
    known = metrics.different_entities(graphs, split)
    index, which = known.first, known.number
    assert len(index) == len({(o, *sorted(said)) for d in toys.RICH for o, *said in d[0]})
    caption, *_ = graphs.entities(np.arange(len(graphs)))
    rng = np.random.default_rng(0)
    scores = rng.random((4, len(index)))
    ranks = metrics.entity_ranks(scores, known)[0]
    for image in range(4):
        own = {int(which[k]) for k, c in enumerate(caption) if split.image_of[c] == image}
        order = np.argsort(-scores[image]).tolist()
        assert ranks[image] == 1 + min(order.index(k) for k in own)


def test_an_entity_finds_the_best_image_of_its_captions():
    split = toys.paired()
    graphs = split.texts["graph"]
    known = metrics.different_entities(graphs, split)
    index, which = known.first, known.number
    caption, *_ = graphs.entities(np.arange(len(graphs)))
    scores = np.random.default_rng(0).random((4, len(index)))
    ranks = metrics.entity_ranks(scores, known)[1]
    for entity in range(len(index)):
        own = {split.image_of[c] for k, c in enumerate(caption) if which[k] == entity}
        order = np.argsort(-scores[:, entity]).tolist()
        assert ranks[entity] == 1 + min(order.index(image) for image in own)
    hits = metrics.entity_values(np.ones(4), ranks[:, None] <= np.array(KS), known, len(graphs))
    for c in range(len(graphs)):
        own = [ranks[which[k]] <= 1 for k in range(len(which)) if caption[k] == c]
        assert hits["entity to image, R@1"][c] == pytest.approx(100 * np.mean(own))
    assert all(np.isnan(hits[f"entity to image, R@{k}"][-4:]).all() for k in KS)


@few
@given(st.integers(1, 4), st.integers(1, 5), seeds)
def test_within_its_family_a_caption_is_ranked_by_the_loop(families, size, seed):
    rng = np.random.default_rng(seed)
    image_of = np.sort(rng.integers(0, families * size, 9))
    scores = rng.integers(0, 3, (families * size, 9)) / 4  # with ties
    values = metrics.right_in_family(scores, image_of, size)
    assert np.isnan(values[9:]).all()
    assert len(values) == 9 + families * size
    for c, image in enumerate(image_of):
        rivals = [i for i in range(len(scores)) if i // size == image // size]
        best = [i for i in rivals if scores[i, c] == scores[rivals, c].max()]
        assert values[c] == pytest.approx(100 * (image in best) / len(best))


def test_families_are_told_apart_where_there_are_some(arrays):
    values = train_and_score(job("Joint"), replace(arrays, family=2)).values["test"]
    assert set(values["in family"][:48]) == {0, 100}
    assert "in family" not in train_and_score(job("Joint"), arrays).values["test"]
    given_ = baselines.score(
        replace(job("CORA"), system=ORACLES[-1]), replace(arrays, family=2)
    ).values["test"]
    assert given_["in family"][:48].mean() == 100


# --- Encoding ----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3, 100])
def test_encoding_in_blocks_of_any_size(size):
    model, split = toys.model_of().train(), toys.paired()
    texts = split.texts["graph"]
    out = encode(model, split, texts, size=size)
    assert not model.training
    batch = texts.batch(np.arange(8))
    captions, entities = model.encode_texts(batch)
    images = model.encode_images(torch.tensor(split.features), torch.full((4,), 5))
    for found, wanted in zip(
        (out.images, out.captions, out.entities), (images, captions, entities), strict=True
    ):
        assert found.dtype == np.float32
        assert found == pytest.approx(wanted.detach().numpy(), abs=1e-5)
    assert out.caption_of.tolist() == batch.caption.tolist()
    assert out.image_of.tolist() == split.image_of.tolist()
    first = encode(model, split, texts, size=size, first=True)
    assert first.captions == pytest.approx(out.captions[::2], abs=1e-5)


@pytest.mark.parametrize("name", ["Joint", "VSE∞", "Bag of phrases"])
def test_systems_without_entities_have_none(name):
    system, split = SYSTEMS[name], toys.paired()
    model = toys.model_of(**asdict(system))
    out = encode(model, split, split.texts[system.reads])
    assert out.entities is out.caption_of is None


# --- Trainings ---------------------------------------------------------------------------------


def test_a_training_rises_above_chance_and_its_answer_is_the_models(arrays):
    how = replace(HOW, epochs=8)
    model, history = train(job("CORA", how), arrays)
    test = arrays.splits["test"]
    out = encode(model, test, test.texts["graph"])
    # In single precision a processor may give equal captions scores that are not quite equal.
    exact = out.images.astype(float) @ out.captions.astype(float).T
    rsum = figures_of(ranks_of_scores(exact.astype(np.float32), out.image_of))["rsum"]
    assert rsum > 1.7 * CHANCE
    assert all(h["dev_loss"] == pytest.approx(600 - h["dev_RSUM"]) for h in history)
    answer = train_and_score(job("CORA", how), arrays)
    values = answer.values["test"]
    assert values["RSUM"].mean() == pytest.approx(rsum, abs=0.5)
    assert answer.history == history
    assert answer.seconds > 0
    damaged = {f"RSUM, {kind} {rate} %" for kind in ERRORS for rate in RATES}
    found = {f"entity to image, R@{k}" for k in KS}
    assert set(values) == {"rank", "RSUM", "RSUM, reranked", "entity rank"} | damaged | found
    items = len(arrays.clusters("test"))
    assert all(len(one) == items for one in values.values())
    assert values["RSUM, edge 10 %"].tolist() == values["RSUM"].tolist()  # here nothing was moved
    assert np.isnan(values["entity rank"][:-24]).all()
    assert (values["entity rank"][-24:] >= 1).all()


@pytest.mark.parametrize("name", [n for n in SYSTEMS if n != "CORA, gold graphs"])
def test_every_system_trains_and_ranks(arrays, name):
    answer = train_and_score(job(name, replace(HOW, epochs=1)), arrays)
    values = answer.values["test"]
    assert (values["rank"] >= 1).all()
    assert ("RSUM of members" in values) == (name == "CORA, ensemble of two")


def test_a_seed_fixes_the_figures(arrays):
    first, again, other = (
        train_and_score(job("Bag of phrases", seed=s), arrays).values["test"]["rank"].tolist()
        for s in (0, 0, 1)
    )
    assert first == again
    assert first != other


def test_an_ensemble_averages_similarities_of_its_own_members(arrays, tmp_path):
    how = replace(HOW, epochs=2)
    pair = job("CORA, ensemble of two", how, seed=3)
    values = train_and_score(pair, arrays, Run(checkpoint=tmp_path / "job.pt")).values["test"]
    assert not list(tmp_path.glob("job-*"))
    test, total, alone = arrays.splits["test"], 0.0, []
    for seed in (3, 1003):
        own = job("CORA", how, seed=seed)
        model, _ = train(own, arrays)
        out = encode(model, test, test.texts["graph"])
        total = total + out.images @ out.captions.T
        alone.append(train_and_score(own, arrays).values["test"]["RSUM"])
    assert values["RSUM of members"] == pytest.approx(np.mean(alone, axis=0))
    ranked = per_item(ranks_of_scores(total, test.image_of))
    assert values["RSUM"].mean() == pytest.approx(ranked["RSUM"].mean(), abs=1)


def test_what_data_do_not_have_is_refused(arrays):
    with pytest.raises(ValueError, match="reads 'gold'; there is graph, sequence"):
        train(job("CORA, gold graphs"), arrays)


def test_the_first_epochs_average_negatives(arrays, monkeypatch):
    heard, loss = [], Matcher.loss

    def listen(self, batch, mean_negatives=False):
        heard.append(mean_negatives)
        return loss(self, batch, mean_negatives)

    monkeypatch.setattr(Matcher, "loss", listen)
    train(job("Bag of phrases", replace(HOW, mean_negatives=0.7)), arrays)
    assert heard == [True] * 18  # 0.7 of three epochs of six batches: two and a bit
    heard.clear()
    train(job("Bag of phrases", replace(HOW, mean_negatives=0.5)), arrays)
    assert heard == [True] * 12 + [False] * 6


def test_the_running_mean_of_the_weights_is_what_is_kept(arrays):
    """With a decay near 1 the mean hardly leaves where it began."""
    slow, _ = train(job("Bag of phrases", replace(HOW, ema=0.9999, epochs=2)), arrays)
    start, _ = train(job("Bag of phrases", replace(HOW, epochs=0)), arrays)
    moved, _ = train(job("Bag of phrases", replace(HOW, epochs=2)), arrays)
    far = [
        sum(
            (a - b).detach().norm().item()
            for a, b in zip(one.parameters(), start.parameters(), strict=True)
        )
        for one in (slow, moved)
    ]
    assert 0 < far[0] < 0.4 * far[1]  # it starts after the first step


def test_the_rate_warms_up_and_decays_as_the_settings_say():
    step = replace(HOW, lr_decay_at=0.7, warmup_fraction=0.1)
    assert [learning_rate(i, 100, step) for i in (0, 9, 50, 69, 70, 99)] == pytest.approx(
        [0.1, 1, 1, 1, 0.1, 0.1]
    )
    cosine = replace(HOW, schedule="cosine", warmup_fraction=0.1)
    assert learning_rate(0, 100, cosine) == pytest.approx(0.1)
    assert learning_rate(10, 100, cosine) == pytest.approx(1)
    assert learning_rate(99, 100, cosine) < 0.01


# --- Floors and ceilings -----------------------------------------------------------------------


def scored(arrays, name, seed=0):
    [row] = [row for row in (*BASELINES, *ORACLES) if row["system"] == name]
    own = replace(job("CORA", seed=seed), system=row)
    return baselines.score(own, arrays).values["test"]["RSUM"].mean()


def test_chance_words_and_truth_stand_in_order(arrays):
    chance = np.mean([scored(arrays, "Random", seed) for seed in range(20)])
    words = [scored(arrays, f"Ridge on {what}") for what in ("words", "the graph's words")]
    assert chance == pytest.approx(CHANCE, rel=0.15)
    assert min(words) > 1.5 * CHANCE
    assert scored(arrays, "Oracle of the graph") == pytest.approx(600)


def test_words_are_counted_once_a_text(arrays):
    texts = arrays.splits["test"].texts
    for reads in ("graph", "sequence"):
        counts = baselines.word_counts(texts[reads], arrays).toarray()
        for row, described in zip(counts[:4], [0, 1, 2, 3], strict=True):
            ids = texts["sequence"].tokens[described]
            wanted = set(ids[ids > 0].tolist())  # the toy's sentence has the words of its graph
            assert set(np.flatnonzero(row)) - {toys.CLS, toys.SEP} == wanted - {toys.CLS, toys.SEP}
            assert set(row) <= {0, 1}


def test_captions_are_described_beside_the_most_frequent_entities(arrays):
    told = baselines.describe_captions(replace(job("CORA"), system={"system": CAPTIONS}), arrays)
    values = told.values["test"]
    assert (values["objects"][:48] == 2).all()
    assert (values["attributes"][:48] == 2).all()
    assert (values["relations"][:48] == 1).all()
    assert np.isnan(values["objects"][48:]).all()
    assert (values["entity rank"][48:] >= 1).all()
    # What images in random order give, drawn 400 times.
    test, rng = arrays.splits["test"], np.random.default_rng(0)
    graphs = test.texts["graph"]
    known = metrics.different_entities(graphs, test)
    many = len(known.first)
    drawn = []
    for _ in range(400):
        ranks = metrics.entity_ranks(rng.random((24, 1)).repeat(many, 1), known)[1]
        hit = ranks[:, None] <= np.array(KS)
        drawn.append(
            metrics.entity_values(np.ones(24), hit, known, 48)["entity to image, R@1"][:48]
        )
    chance = values["entity to image, R@1"][:48].mean()
    assert chance == pytest.approx(np.mean(drawn), abs=1.5)
