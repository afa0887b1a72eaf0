"""Trainings on toy pictures from end to end, and what stands beside them in a record."""

import math
from dataclasses import asdict, replace

import numpy as np
import pytest
import tiny_cora as toys
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_cora import HOW, job, tiny

from mmlib.core.jobs import Run
from mmlib.core.ranking import metrics, ranks_of_scores
from mmlib.papers.cora import method, show
from mmlib.papers.cora.method import Matcher, encode
from mmlib.papers.cora.run import baselines, systems
from mmlib.papers.cora.run import record as jobs
from mmlib.papers.cora.run.systems import BASELINES, CAPTIONS, ERRORS, ORACLES, RATES, SYSTEMS
from mmlib.papers.cora.run.train import fresh, learning_rate, train, train_and_score

CHANCE = 2 * 100 * (1 + 5 + 10) / 24  # RSUM at random, about: 24 images of two captions each
QUICK = replace(HOW, epochs=1)


@pytest.fixture(scope="module")
def arrays():
    return tiny()


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


# --- Trainings -----------------------------------------------------------------------------------


def test_a_training_rises_above_chance_and_its_answer_is_the_models(arrays):
    how = replace(HOW, epochs=6)
    model, history = train(job("CORA", how), arrays)
    test = arrays.splits["test"]
    out = encode(model, test, test.texts["graph"])
    # In single precision a processor may give equal captions scores that are not quite equal.
    exact = out.images.astype(float) @ out.captions.astype(float).T
    rsum = metrics(ranks_of_scores(exact.astype(np.float32), out.image_of))["rsum"]
    assert rsum > 1.5 * CHANCE
    assert all(h["dev_loss"] == pytest.approx(600 - h["dev_RSUM"]) for h in history)
    answer = train_and_score(job("CORA", how), replace(arrays, family=2))
    values = answer.values["test"]
    assert values["RSUM"].mean() == pytest.approx(rsum, abs=0.5)
    assert answer.history == history
    damaged = {f"RSUM, {kind} {rate} %" for kind in ERRORS for rate in RATES}
    assert set(values) == {"rank", "RSUM", "RSUM, reranked", "in family"} | damaged
    assert set(values["in family"][:48]) <= {0, 50, 100}
    items = len(arrays.clusters("test"))
    assert all(len(one) == items for one in values.values())
    assert values["RSUM, edge 10 %"].tolist() == values["RSUM"].tolist()  # here nothing was moved


def test_a_training_starts_from_the_fresh_model_of_its_seed(arrays):
    still = replace(QUICK, learning_rate=0.0, weight_decay=0.0)
    kept, _ = train(job("Bag of phrases", still, seed=3), arrays)
    own = dict(fresh(SYSTEMS["Bag of phrases"], still, arrays, 3).named_parameters())
    assert all(torch.equal(value, own[name]) for name, value in kept.named_parameters())


def test_words_may_start_from_scratch_and_sets_may_be_pooled_by_their_mean(arrays):
    row = replace(SYSTEMS["Bag of phrases"], scratch=True, mean=True)
    model = fresh(row, QUICK, arrays, 3)
    words = model.texts.concepts.phrases[0].embed.weight
    assert not np.isclose(words[1:].detach(), arrays.embeddings[1:]).all(axis=1).any()
    lengths, vectors = torch.tensor([2, 5]), torch.randn(2, 5, 4)
    pooled = model.texts.bag(vectors, lengths)
    torch.testing.assert_close(pooled, torch.stack([vectors[0, :2].mean(0), vectors[1].mean(0)]))


def test_an_ensemble_averages_similarities_of_its_own_members(arrays, tmp_path):
    pair = job("CORA, ensemble of two", QUICK, seed=3)
    values = train_and_score(pair, arrays, Run(checkpoint=tmp_path / "job.pt")).values["test"]
    assert not list(tmp_path.glob("job-*"))
    test, tables = arrays.splits["test"], []
    for seed in (3, 1003):
        model, _ = train(job("CORA", QUICK, seed=seed), arrays)
        tables.append(encode(model, test, test.texts["graph"]).similarity)
    alone = [method.per_item(ranks_of_scores(table, test.image_of))["RSUM"] for table in tables]
    assert values["RSUM of members"].mean() == pytest.approx(np.mean(alone), abs=1)
    ranked = method.per_item(ranks_of_scores(sum(tables), test.image_of))
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
    _, history = train(job("Bag of phrases", how := replace(HOW, mean_negatives=0.5)), arrays)
    assert heard == [True] * 12 + [False] * 6  # of three epochs of six batches
    line = show.training("Bag of phrases", how, history).axes[0].lines[-1]
    assert [*line.get_xdata()] == [2.5, 2.5]


def test_the_running_mean_of_the_weights_is_what_is_kept(arrays):
    """With a decay near 1 the mean hardly leaves where it began."""
    slow, start, moved = (
        train(job("Bag of phrases", replace(HOW, **how)), arrays)[0]
        for how in ({"ema": 0.9999, "epochs": 2}, {"epochs": 0}, {"epochs": 2})
    )
    far = [
        sum((a - b).detach().norm().item() for a, b in zip(one, start.parameters(), strict=True))
        for one in (slow.parameters(), moved.parameters())
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


# --- Baselines, oracles, captions ----------------------------------------------------------------


def scored(arrays, name, seed=0):
    [row] = [row for row in (*BASELINES, *ORACLES) if row["system"] == name]
    return baselines.score(replace(job("CORA", seed=seed), system=row), arrays).values["test"]


def test_chance_words_and_truth_stand_in_order(arrays):
    chance = np.mean([scored(arrays, "Random", seed)["RSUM"].mean() for seed in range(20)])
    words = [scored(arrays, f"Ridge on {what}")["RSUM"] for what in ("words", "the graph's words")]
    assert chance == pytest.approx(CHANCE, rel=0.15)
    assert min(map(np.mean, words)) > 1.5 * CHANCE
    truth = scored(replace(arrays, family=2), "Oracle of the graph")
    assert (truth["RSUM"].mean(), truth["in family"][:48].mean()) == (pytest.approx(600), 100)


def test_words_are_counted_once_a_text(arrays):
    texts = arrays.splits["test"].texts
    for reads in ("graph", "sequence"):
        counts = baselines.word_counts(texts[reads], arrays).toarray()
        for row, ids in zip(counts[:4], texts["sequence"].tokens[:4], strict=True):
            wanted = set(ids[ids > 0].tolist())  # the toy's sentence has the words of its graph
            assert set(np.flatnonzero(row)) - {toys.CLS, toys.SEP} == wanted - {toys.CLS, toys.SEP}
            assert set(row) <= {0, 1}


def test_captions_are_described(arrays):
    told = baselines.describe_captions(replace(job("CORA"), system={"system": CAPTIONS}), arrays)
    values = told.values["test"]
    for kind, count in (("objects", 2), ("attributes", 2), ("relations", 1)):
        assert (values[kind][:48] == count).all()
        assert np.isnan(values[kind][48:]).all()


# --- The time of a query -------------------------------------------------------------------------


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 5), st.integers(1, 4))
def test_cross_attention_is_the_loop(seed, images, regions, words):
    """Sections 3.1 and 3.2 of SCAN, one image, word and region at a time."""
    rng = np.random.default_rng(seed)
    e = rng.standard_normal((words, 6)) + 0.5
    v = (rng.standard_normal((images, regions, 6)) + 0.5) * rng.uniform(0.1, 10, (images, 1, 1))
    found = baselines.cross_attention(torch.tensor(e), torch.tensor(v))
    for image, score in zip(v, found.tolist(), strict=True):
        clipped = [[max(cosine(region, word), 0.0) for word in e] for region in image]
        relevance = []
        for j, word in enumerate(e):
            powers = [math.exp(9 * row[j] / (math.hypot(*row) or 1.0)) for row in clipped]
            attended = sum(
                power / sum(powers) * region / math.hypot(*region)
                for power, region in zip(powers, image, strict=True)
            )
            relevance.append(cosine(word, attended))
        assert score == pytest.approx(sum(relevance) / words, abs=1e-9)


@pytest.mark.slow
def test_the_parts_of_a_query_are_timed(monkeypatch):
    monkeypatch.setattr(baselines, "SIZES", (10, 40))
    arrays = replace(tiny(), queries=("a tall man holds a red cup", "a dog") * 12)
    answer = baselines.time_queries(job("CORA"), arrays)
    assert len(answer.history) == baselines.REPEATS
    names = {"parse", "encode", "search 10", "search 40", "attend 10", "attend 40"}
    assert all(set(row) == names and min(row.values()) > 0 for row in answer.history)


@pytest.mark.parametrize(
    ("tier", "dataset"),
    [("world", "world"), ("flickr8k", "flickr8k"), ("paper", "coco"), ("controlled", "drawn")],
)
def test_the_jobs_of_a_record_have_every_system_once_and_its_budget(arrays, tier, dataset):
    bag = np.full(1, 25.0) if tier in ("world", "controlled") else None  # scenes are known
    stages = jobs.stages(tier, {dataset: replace(arrays, ideal_bag=bag)}, range(2))
    made = [(stage.function, one) for stage in stages for one in stage.jobs]
    trained = [one for function, one in made if function is train_and_score]
    names = [one.system["system"] for one in trained if one.seed == 0]
    gold = {"CORA, gold graphs"} if dataset != "world" else set()
    wanted = systems.ON_CONTROLLED if tier == "controlled" else set(SYSTEMS) - gold
    assert sorted(names) == sorted(wanted)
    assert len(trained) == 2 * len(names)
    assert all(dict(one.settings) == asdict(systems.budget(tier, dataset)) for one in trained)
    assert {one.system["contrast"] for one in trained} == {
        "authors" if tier == "paper" else "exact"
    }
    untrained = {one.system["system"] for function, one in made if function is not train_and_score}
    oracles = {"Oracle of the graph", *["Ideal bag of words"][: bag is not None]}
    chance = {"Random", "Ridge on words", "Ridge on the graph's words", CAPTIONS, "Query time"}
    assert untrained == oracles | (set() if tier == "controlled" else chance)
