"""Notebook 03's experiment, on a few pictures of the world and on numbers worked out by hand."""

import json
import os
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from mmlib import cora, cora_study, scenegraph, training
from mmlib.cora_study import Preprocessor, budget, difference, interval_of, items, load
from mmlib.core.errors import DataError
from mmlib.core.parallel import in_processes
from mmlib.core.tables import paper_tables


@pytest.fixture(scope="module")
def study():
    sizes = dict(cora_study.WORLD_IMAGES)
    cora_study.WORLD_IMAGES.update(train=160, val=40, test=50)
    try:
        yield load("world", workers=1)
    finally:
        cora_study.WORLD_IMAGES.update(sizes)


@pytest.fixture(scope="module")
def preprocessor(study):
    return Preprocessor(study, budget("world", epochs=2, width=32, word_width=32, batch=32))


@pytest.fixture(scope="module")
def answers(preprocessor, tmp_path_factory):
    """Two trainings of CORA and one of each other system."""
    folder = tmp_path_factory.mktemp("trainings")
    jobs = cora_study.training_jobs(preprocessor, ["CORA"], [0, 1], "cpu", examples=[3])
    others = ["VSE∞", "Joint + FC", cora_study.GOLD]
    jobs += cora_study.training_jobs(preprocessor, others, [0], "cpu")
    return jobs, training.run_jobs(cora_study.train_system, jobs, folder, workers=1), folder


def test_splits_hold_every_caption_once_and_dev_the_first_of_each_image(study, preprocessor):
    arrays = preprocessor.arrays("CORA")
    assert len(arrays.splits["test"].texts) == len(study.captions("test"))
    assert np.array_equal(arrays.splits["val"].image_of, np.arange(40))
    whole = preprocessor.full_dev()
    assert np.array_equal(whole.image_of, study.image_of("val"))
    assert len(whole.texts) == len(study.captions("val"))
    assert np.array_equal(arrays.splits["test"].image_of, study.image_of("test"))
    assert len(study.graphs["test"]) == len(study.captions("test"))
    assert study.graphs["test"][7].graph["text"] == study.captions("test")[7]


@pytest.fixture(scope="module")
def from_files(tmp_path_factory):
    """What trainings read when features and graphs are files, as in the tier "paper"."""
    root, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    (root / "coco" / "scene_graph").mkdir(parents=True)
    texts = ["a red dog chases a ball", "a man on a horse"] * 10
    graphs = [scenegraph.to_authors(graph) for graph in scenegraph.parse(texts)]
    for split in ("train", "dev", "test"):
        base = root / "coco" / split
        np.save(f"{base}_ims.npy", rng.random((4, 3, 8), dtype=np.float32))
        Path(f"{base}_ids.txt").write_text("".join(f"{split}{row}\n" for row in range(4)))
        Path(f"{base}_caps.txt").write_text("".join(f"{text}\n" for text in texts))
        (base.parent / "scene_graph" / f"{split}.json").write_text(
            json.dumps({str(i): graph for i, graph in enumerate(graphs)})
        )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MMLIB_DATA", str(root))
        loaded = load("paper")
    return Preprocessor(loaded, budget("paper", width=32, word_width=16, heads=4)).arrays("CORA")


def seen_by_a_worker(arrays):
    features = arrays.splits["train"].features
    return type(features), Path(features.filename), features.shape, arrays.fingerprint


@pytest.mark.slow
def test_features_in_a_file_stay_there_here_and_in_processes(from_files):
    here = seen_by_a_worker(from_files)
    assert here[0] is np.memmap
    assert here[1].name == "train_ims.npy"
    calls = [(from_files,), (from_files,)]
    assert list(in_processes(seen_by_a_worker, calls, 2)) == [here, here]


def test_a_second_fingerprint_reads_nothing(from_files, monkeypatch):
    first = replace(from_files).fingerprint
    again = replace(from_files)
    assert again.fingerprint == first
    with monkeypatch.context() as patch:
        patch.setattr(cora_study, "file_fingerprint", lambda array: pytest.fail("it was read"))
        patch.setattr(np, "ascontiguousarray", lambda array: pytest.fail("it was copied"))
        assert again.fingerprint == first
    path = Path(from_files.splits["train"].features.filename)
    os.utime(path, ns=(0, 0))  # whoever writes changes it
    assert replace(from_files).fingerprint != first


def test_features_are_centred_and_scaled_by_training_images(preprocessor):
    features = preprocessor.arrays("CORA").splits["train"].features
    assert np.abs(features.mean(axis=(0, 1))).max() < 1e-4
    # One deviation for all dimensions, as they were before centring.
    raw = preprocessor.study.images["train"].features
    assert np.allclose(features * raw.std() + raw.mean(axis=(0, 1)), raw, atol=1e-4)


def test_word_embeddings_are_spread_out(preprocessor):
    assert torch.allclose(preprocessor.embeddings.mean(dim=0), torch.zeros(32), atol=1e-5)
    assert torch.allclose(preprocessor.embeddings.std(dim=0), torch.ones(32), atol=1e-4)


def test_delimiters_stand_around_phrases_only_where_they_are_asked_for(study, preprocessor):
    plain, _ = preprocessor.tokens(["a dog"])
    asked = Preprocessor(study, budget("world", word_width=32, delimiters=True))
    ids, lengths = asked.tokens(["a dog"])
    words = asked.vocabulary.words
    assert [words[i] for i in ids[0]] == ["[CLS]", "a", "dog", "[SEP]"]
    assert lengths.tolist() == [4]
    assert plain.shape == (1, 2)


def test_gold_graphs_are_those_of_the_world(study, preprocessor):
    assert study.gold is not None
    gold = preprocessor.arrays(cora_study.GOLD).splits["test"].texts
    assert len(gold) == len(study.gold["test"])
    assert cora_study.kind_of("VSE∞") == "sequences"
    assert cora_study.kind_of("CORA, frozen BERT") == "bert graphs"


def test_parse_errors_hit_the_same_captions_for_every_kind_and_more_at_higher_rates(preprocessor):
    damaged = cora_study.corrupted(preprocessor)
    assert set(damaged) == {f"{k} {r}" for k in cora_study.ERRORS for r in cora_study.RATES}
    assert all(len(graphs) == len(preprocessor.study.graphs["test"]) for graphs in damaged.values())


def test_every_answer_ranks_every_image_and_caption(answers, study):
    _, found, _ = answers
    for answer in found:
        assert len(answer["image_ranks"]) == 50
        assert len(answer["caption_ranks"]) == len(study.captions("test"))
        assert min(answer["caption_ranks"]) >= 1
        assert max(answer["caption_ranks"]) <= 50
        assert len(answer["history"]) == 2
    assert len(found[0]["variants"]) == 1 + len(cora_study.ERRORS) * len(cora_study.RATES)
    assert "variants" not in found[2]
    assert 0 <= found[0]["beta"] <= 1


def test_answers_come_back_from_their_file(answers, preprocessor, tmp_path):
    jobs, found, _ = answers
    training.write_answers(tmp_path / "answers.json.gz", jobs, found)
    again, same = cora_study.read_answers(tmp_path / "answers.json.gz", preprocessor.settings)
    assert same == found
    assert [job for job, _ in again] == [job for job, _ in jobs]
    one, other = (cora_study.collect(j, a) for j, a in ((jobs, found), (again, same)))
    assert one.keys() == other.keys()
    assert all(np.array_equal(one[n]["caption"], other[n]["caption"]) for n in one)


def test_stored_answers_of_another_budget_are_refused(answers, preprocessor, tmp_path):
    path = tmp_path / "answers.json.gz"
    with pytest.raises(DataError, match="no stored answers"):
        cora_study.read_answers(path, preprocessor.settings)
    training.write_answers(path, *answers[:2])
    with pytest.raises(DataError, match="had epochs = 2, not 3"):
        cora_study.read_answers(path, replace(preprocessor.settings, epochs=3))


def test_attention_weights_into_a_node_sum_to_one(answers):
    (example,) = answers[1][0]["examples"]
    assert example["caption"] == 3
    assert len(example["best"]) == 5
    for edges in example["attention"].values():
        for node in {target for _, target, _ in edges}:
            assert sum(a for _, target, a in edges if target == node) == pytest.approx(1, abs=1e-3)


def test_entities_are_ranked_among_all_of_the_test_captions(answers):
    found = answers[1][0]["entities"]
    assert len(found["ranks"]) == 50
    assert max(found["ranks"]) <= found["pool"]
    assert len(found["top"]) == 6
    assert all(len(row) == 5 for row in found["top"])


def test_an_ensemble_of_a_training_with_itself_ranks_as_it_does(answers, preprocessor):
    _, found, folder = answers
    files = sorted(folder.glob("*.npz"))
    assert len(files) == 2
    image_of = {name: preprocessor.study.image_of(name) for name in ("val", "test")}
    pair = cora_study.ensemble_pair("pair", [0, 0], "", "", [files[0], files[0]], image_of)
    # The similarities were stored in half precision, so near-ties may swap.
    closest = min(
        np.abs(np.array(pair["caption_ranks"]) - answer["caption_ranks"]).mean()
        for answer in found[:2]
    )
    assert closest < 0.5


def test_each_seed_is_averaged_with_the_next(preprocessor, answers):
    jobs, found, folder = answers
    (pair,) = cora_study.ensemble_jobs(jobs, folder, preprocessor)
    assert pair[0]["seeds"] == [0, 1]
    (answer,) = training.run_jobs(cora_study.ensemble_pair, [pair], folder, workers=1)
    assert answer["caption_ranks"] != found[0]["caption_ranks"]
    assert len(answer["image_ranks"]) == 50
    scores = cora_study.collect([*jobs, pair], [*found, answer])
    assert {"CORA, ensemble of two", "CORA, ensemble of two, reranked"} <= set(scores)
    third = ({**jobs[0][0], "seed": 2}, {})
    triple = cora_study.ensemble_jobs([*jobs[:2], third], folder, preprocessor)
    assert [job["seeds"] for job, _ in triple] == [[0, 1], [1, 2], [2, 0]]
    assert cora_study.ensemble_jobs(jobs[:1], folder, preprocessor) == []


def test_random_ranks_are_near_chance(study):
    scores: cora_study.Scores = {}
    cora_study.add_random(scores, 50, study.image_of("test"), range(20))
    rows = cora_study.recalls(scores["Random"])
    assert np.mean([row["t2i_r10"] for row in rows]) == pytest.approx(20, abs=1.5)


# By hand: two images with two captions each; ranks of images 1 and 6, of captions 1, 2 | 1, 11.
SCORES = {"A": {"image": np.array([[1, 6]]), "caption": np.array([[1, 2, 1, 11]])}}
IMAGE_OF = np.array([0, 0, 1, 1])


def test_recalls_by_hand():
    (row,) = cora_study.recalls(SCORES["A"])
    assert [row[f"i2t_r{k}"] for k in (1, 5, 10)] == [50, 50, 100]
    assert [row[f"t2i_r{k}"] for k in (1, 5, 10)] == [50, 75, 75]
    assert row["rsum"] == 400
    assert row["i2t_medr"] == 3.5
    assert row["t2i_medr"] == 1.5


def test_what_images_add_is_the_rsum_on_average():
    assert items(SCORES, "A", IMAGE_OF).mean() == 400
    uneven = np.array([0, 1, 1, 1])
    assert items(SCORES, "A", uneven).mean() == 400
    assert interval_of(SCORES, "A", IMAGE_OF).effect == 400


def test_a_difference_is_paired():
    scores = {**SCORES, "B": {**SCORES["A"], "image": np.array([[1, 11]])}}
    gap = difference(scores, "A", "B", IMAGE_OF)
    assert gap.effect == 50
    same = cora_study.contrast(scores, {"A": 0.0, "B": 0.0}, IMAGE_OF)
    assert (same.effect, same.low, same.high) == (0, 0, 0)
    assert cora_study.contrast(scores, {"A": -0.9, "B": 1}, IMAGE_OF).effect == pytest.approx(-10)


def test_the_gain_on_rich_captions_counts_those_only():
    better = {"image": np.array([[1, 1]]), "caption": np.array([[1, 1, 1, 1]])}
    scores = {**SCORES, "B": better}
    gain = cora_study.rich_gain(scores, "B", "A", np.array([1, 3]), IMAGE_OF)
    assert gain.effect == 200  # caption 1 gains R@1, caption 3 all three
    assert cora_study.rich_gain(scores, "B", "A", np.array([0, 2]), IMAGE_OF).effect == 0


def test_the_excess_of_rich_captions_is_a_difference_of_means():
    better = {"image": np.array([[1, 1]]), "caption": np.array([[1, 1, 1, 1]])}
    scores = {**SCORES, "B": better}
    rich, rest = np.array([1, 3]), np.array([0, 2])
    expected = (
        cora_study.rich_gain(scores, "B", "A", rich, IMAGE_OF).effect
        - cora_study.rich_gain(scores, "B", "A", rest, IMAGE_OF).effect
    )
    assert expected == 200
    found = cora_study.rich_excess(scores, "B", "A", rich, IMAGE_OF)
    assert found.effect == pytest.approx(expected)


def test_an_ensemble_is_set_against_the_mean_of_its_members():
    ranks = np.array([[1, 1], [11, 11], [1, 11]])  # three seeds, two images
    captions = np.ones((3, 4), dtype=int)
    scores = {
        "CORA": {"image": ranks, "caption": captions},
        "CORA, ensemble of two": {"image": np.ones((3, 2), dtype=int), "caption": captions},
    }
    # RSUM 600, 300, 450: pairs (0, 1), (1, 2), (2, 0) have members of 450, 375, 525 in the mean.
    gain = cora_study.ensemble_gain(scores, IMAGE_OF)
    assert gain.effect == pytest.approx(600 - (450 + 375 + 525) / 3)
    one = {name: {k: v[:2] for k, v in some.items()} for name, some in scores.items()}
    one["CORA, ensemble of two"] = {k: v[:1] for k, v in scores["CORA, ensemble of two"].items()}
    assert cora_study.ensemble_gain(one, IMAGE_OF).effect == pytest.approx(150)


def test_room_for_errors_counts_graphs_with_something_to_move(study):
    room = cora_study.room_for_errors(study.graphs["test"])
    assert room["tokens"] == room["mixed"] == 1
    several = [len(scenegraph.objects(g)) > 1 for g in study.graphs["test"]]
    related = [bool(scenegraph.relations(g)) for g in study.graphs["test"]]
    assert room["edge"] == np.mean(np.logical_and(several, related))


def test_the_richest_captions_have_the_most_attributes_and_relations(study):
    rows = cora_study.richest(study.graphs["test"], 10)
    graphs = preparer_counts(study)
    assert graphs[rows].min() >= np.delete(graphs, rows).max()
    assert len(set(rows)) == 10


def preparer_counts(study):
    def count(graph):
        nodes = [kind for _, kind in graph.nodes(data="type")]
        return nodes.count("attribute") + sum(k == "relation" for *_, k in graph.edges(data="type"))

    return np.array([count(graph) for graph in study.graphs["test"]])


def test_weights_of_the_scores_choose_beta():
    # The entities alone rank perfectly, the captions alone do not.
    perfect, useless = np.eye(4), -np.eye(4)
    assert cora_study.best_beta(useless, perfect, np.arange(4)) < 0.5
    assert cora_study.best_beta(perfect, useless, np.arange(4)) == 1.0


@pytest.mark.parametrize("tier", ["world", "flickr8k", "paper"])
def test_budgets_differ_from_the_paper_only_where_they_say(tier):
    assert budget(tier, epochs=0) == cora_study.BUDGETS[tier]
    changed = {k for k, v in asdict(budget(tier)).items() if v != asdict(cora.PRESETS["paper"])[k]}
    assert bool(changed) == (tier != "paper")


def test_unknown_names_are_refused(preprocessor):
    with pytest.raises(ValueError, match="no budget 'moon'"):
        budget("moon")
    with pytest.raises(ValueError, match="no tier 'moon'"):
        load("moon")
    with pytest.raises(ValueError, match="no system 'DORA'"):
        preprocessor.arrays("DORA")


@pytest.mark.parametrize(
    ("table", "rows"), [("table1", 25), ("table2", 22), ("table3", 14), ("table4", 4)]
)
def test_no_row_of_a_printed_table_is_lost(table, rows):
    tables = paper_tables("cora")
    shown = cora_study.paper_rows(tables, table)
    assert len(shown) == rows
    assert shown.notna().any(axis=1).all()  # some cells of Table 2 are empty in print


def test_the_papers_rows_that_stand_beside_ours():
    layers = cora_study.paper_rows(paper_tables("cora"), "table3")
    assert layers.loc["CORA", "rsum"] == 515.8
    assert layers.loc["Joint", "rsum"] == 504.8
    assert layers.loc["(1, 1) layers", "rsum"] == 509.1


def test_our_rows_stand_beside_the_printed_ones(answers):
    jobs, found, _ = answers
    scores = cora_study.collect(jobs, found)
    results = cora_study.results(scores, "world", budget("world"), [0, 1])
    table = pd.DataFrame(asdict(result) for result in results)
    first = cora_study.beside(table, "table1")
    assert first.loc["CORA", ("rsum", "paper")] == "515.8"
    assert first.loc["CORA", ("rsum", "ours")] != "–"
    assert first.loc["SCAN", ("rsum", "ours")] == "–"
    third = cora_study.beside(table, "table3")
    assert third.loc["CORA", ("rsum", "ours")] == third.loc["(1, 2) layers", ("rsum", "ours")]
    assert third.loc["Joint + FC", ("rsum", "paper")] == "501.6"


def test_entities_are_counted_at_each_rank():
    found = [{"ranks": [1, 6], "frequency": [2, 20], "pool": 9}, {"ranks": [11, 6], "pool": 9}]
    table = cora_study.entity_table(found)
    assert table.loc["CORA"].tolist() == [25.0, 25.0, 75.0, 9]
    assert table.loc["most frequent first"].tolist() == [0.0, 50.0, 50.0, 9]


def test_a_query_takes_time_to_parse_and_to_encode(study, preprocessor):
    taken = cora_study.time_query(preprocessor, study.captions("test")[:4])
    assert list(taken) == ["parse", "encode"]
    assert all(0 < seconds < 1 for seconds in taken.values())


def test_the_stored_answers_are_those_of_the_recorded_figures():
    folder = Path(__file__).parents[1] / "notebooks" / "expected" / "flickr8k"
    jobs, found = cora_study.read_answers(folder / "03_answers.json.gz", budget("flickr8k"))
    scores = cora_study.collect(jobs, found)
    figures = json.loads((folder / "03.json").read_text())["figures"]
    rsum = {name.split("/")[1]: f["value"] for name, f in figures.items() if name.endswith("rsum")}
    assert {"CORA", "VSE∞", "Joint"} <= set(rsum)
    for system, value in rsum.items():
        rows = cora_study.recalls(scores[system])
        assert len(rows) == 3
        assert np.mean([row["rsum"] for row in rows]) == pytest.approx(value, abs=1e-3)
