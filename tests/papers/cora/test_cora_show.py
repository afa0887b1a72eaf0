"""Figures and tables of a trained model and of evidence: what they show is what is there."""

import os

import made_up_cora
import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

from mmlib import scenegraph
from mmlib.core.records import CaptionedImages
from mmlib.papers.cora import method, show
from mmlib.papers.cora.data import Captions, load_study, prepare, texts, world
from mmlib.papers.cora.data.controlled import RECORDED, Dials
from mmlib.papers.cora.run import systems
from mmlib.papers.cora.run.systems import BAG, CORA, QUERY_TIME, SPLITS, budget
from mmlib.papers.cora.run.train import fresh


@pytest.fixture(scope="module")
def found():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world, "WORLD_IMAGES", {"train": 120, "val": 20, "test": 40})
        patch.setattr(texts, "cache_dir", lambda: None)
        patch.setattr(os, "cpu_count", lambda: 1)
        yield load_study("world", ["world"])["world"]


@pytest.fixture(scope="module")
def arrays(found):
    return prepare(found, budget("world", "world"))


@pytest.fixture(scope="module")
def model(arrays):
    return fresh(CORA, budget("world", "world"), arrays)


@pytest.fixture(scope="module")
def evidence():
    return made_up_cora.make()


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def words_on(axis):
    return [text.get_text() for text in axis.texts]


def test_a_family_stands_side_by_side(found):
    drawn = show.family(found.images["test"], 4)
    assert [" ".join(words_on(axis)[0].split()) for axis in drawn.axes] == [
        found.images["test"].captions[i][0] for i in range(4, 8)
    ]


def test_attention_stands_at_the_nodes_that_it_is_of(found, arrays, model):
    row = next(
        i for i, graph in enumerate(found.graphs["test"])
        if any(scenegraph.attributes(graph, one) for one in scenegraph.objects(graph))
    )  # fmt: skip
    graph, (_, axis) = found.graphs["test"][row], plt.subplots()
    weights = method.attention(model, arrays.splits["test"].texts["graph"], row)
    scenegraph.draw(graph, axis, weights)
    things = scenegraph.objects(graph)
    first = next(i for i in things if scenegraph.attributes(graph, i))
    said = scenegraph.attributes(graph, first)[0]
    shown = [" ".join(text.split()) for text in words_on(axis)]
    assert f"{scenegraph.phrase(graph, said)} {weights[first, said]:.0%}" in shown


def test_acting_captions_say_who_does_what_to_whom(few):
    """Of "jumps over", "holds" and "eats" none; of "chasing" and "holding" each, but not two."""
    assert show.acting(few) == []
    texts = ["a cat", "a man chasing a dog", "a dog near a man", "a girl holding a kite",
             "a man chasing a dog and a girl holding a kite"]  # fmt: skip
    graphs = dict.fromkeys(SPLITS, scenegraph.parse(texts))
    assert show.acting(Captions(few.images, graphs)) == [1, 3]


def made_up_binding():
    """Two controlled collections that differ in what captions say, and one that is drawn."""
    names = "40 × 12, 1000 families", "55 % of colours", "drawn"
    parts = [made_up_cora.make("controlled", name) for name in names]
    return made_up_cora.both(made_up_cora.both(parts[0], parts[1]), parts[2])


def test_the_map_has_what_is_recorded():
    controlled = made_up_binding()
    [axis] = show.binding_map(controlled).axes
    rows = ["55 % of colours", "drawn"]
    seeds = [len(controlled.values(row, "CORA", "in family")) for row in rows]
    labels = [label.get_text() for label in axis.get_yticklabels()]
    assert labels == [f"{row}; {count} seeds" for row, count in zip(rows, seeds, strict=True)]
    wanted = [
        f"{np.nanmean(controlled.values(row, system, 'in family')):.0f}"
        for row in rows for system in show.BOUND
    ]  # fmt: skip
    assert words_on(axis) == wanted


def test_what_captions_say_orders_the_collections(evidence):
    controlled = made_up_binding()
    said = show.attributes_said(evidence, "world")
    captions = (
        evidence.values("world", "Captions", "attributes")[0],
        evidence.values("world", "Captions", "objects")[0],
    )
    assert said == pytest.approx(np.nansum(captions[0]) / np.nansum(captions[1]))
    [axis] = show.binding_by_captions(controlled, [evidence]).axes
    shown = [label.get_text() for label in axis.get_yticklabels()]
    given = {"40 × 12, 1000 families": 1.0, "55 % of colours": 0.55, "drawn, sentences": said}
    assert all(isinstance(RECORDED[name], Dials) for name in list(given)[:2])
    order = sorted(given, key=lambda name: -given[name])
    assert shown == [f"{name}: {given[name]:.2g} a thing" for name in order]


def test_the_summary_has_the_means_of_both_measures(evidence):
    figure = show.summary([evidence])
    for axis, metric in zip(figure.axes, ("in family", "RSUM"), strict=True):
        marks = list(axis.containers[0][0].get_xdata())
        names = ("CORA", "Two-step, caption losses", "Joint", "VSE∞", "Sequence, CORA's rest",
                 BAG.system)  # fmt: skip
        means = [np.nanmean(evidence.values("world", name, metric)) for name in names]
        assert marks == pytest.approx(means)


def test_tables_and_figures_of_a_small_record(evidence):
    shown = show.tables(evidence)
    assert {*show.figures(evidence)} == {"overview", "curves"}
    found = show.recalls(evidence, "world", "CORA")
    ranks, rsum = evidence.values("world", "CORA", "rank"), evidence.means("world", "CORA", "RSUM")
    assert found["rsum"] == pytest.approx(rsum.to_numpy(), abs=1e-3)
    assert found["t2i_r5"][0] == pytest.approx(100 * (ranks[0, :200] <= 5).mean())
    assert found["i2t_medr"][1] == np.median(ranks[1, 200:])
    assert len(shown["results_world"]) == len(systems.systems("world", "world")) - 2
    assert shown["table4_world"].loc["CORA, ensemble of two, reranked", "paper"] == 445.1
    assert shown["table4_world"].loc["CORA + reranking (BERT)"].tolist() == [450.6, "–", "–"]
    for number, rows, ours in (("table1", 25, BAG.system), ("table3", 12, systems.TWO_STEP.system)):
        beside = shown[f"{number}_world"]
        assert list(beside.index[:rows]) == list(show.printed(number).index)
        assert beside.loc["CORA", ("rsum", "paper")] == "515.8"
        mean = evidence.means("world", ours, "RSUM").mean()
        assert beside.loc[ours, ("rsum", "ours")].startswith(f"{mean:.1f} ± ")
    kinds = shown["leads_world"]["differ in"]
    assert kinds["CORA", "VSE∞"] == "text, image, losses"
    lead = rsum.mean() - evidence.means("world", BAG.system, "RSUM").mean()
    assert shown["leads_world"].loc[("CORA", BAG.system), "RSUM"] == pytest.approx(lead, abs=0.06)
    right = [np.nanmean(evidence.values("world", n, "in family")) for n in ("CORA", BAG.system)]
    family = shown["families_world"].loc["CORA"]
    assert family["right in %"] == pytest.approx(right[0], abs=0.06)
    assert family["minus the bag"] == pytest.approx(right[0] - right[1], abs=0.06)
    hurt = evidence.means("world", "CORA", "RSUM, edge 30 %")
    told = shown["parse_errors_world"].loc[("edge", 30)]
    assert told.RSUM == pytest.approx((hurt - rsum).mean(), abs=0.06)
    assert told["kept beyond 97%"].startswith(f"{(hurt - 0.97 * rsum).mean():+.1f} [")
    hits = np.nanmean(evidence.values("world", "CORA", "entity to image, R@5"))
    entities = shown["entities_world"]
    assert entities.loc[("entity → image", "CORA"), "R@5 in %"] == pytest.approx(hits, abs=0.06)
    parse = evidence.curves("world", QUERY_TIME, "parse")
    assert shown["times_world"].ms["parse"] == pytest.approx(1000 * np.median(parse), abs=0.01)


def test_the_main_table_has_the_papers_figures_beside_ours(evidence):
    shown = show.main([evidence])
    assert list(shown.columns) == ["the paper, Flickr30K", "drawn, sentences"]
    assert shown.loc["Joint", "the paper, Flickr30K"] == "504.8"
    assert shown.loc["Bag of phrases", "the paper, Flickr30K"] == "–"
    of_seeds = evidence.means("world", "HARD", "RSUM")
    assert shown.loc["HARD", "drawn, sentences"] == f"{of_seeds.mean():.0f} ± {of_seeds.std():.0f}"


# --- Captions in figures ------------------------------------------------------------------------

CAPTIONS = (
    ("a small black dog jumps over a wooden fence", "snow"),
    ("a man in a red hat holds a blue cup", "a young girl eats green apples"),
)


@pytest.fixture(scope="module")
def few():
    images = {
        split: CaptionedImages(
            "tiny", split, ("a", "b"), CAPTIONS, np.zeros((2, 1, 4), np.float32),
            lambda row: Image.new("RGB", (8, 8), ("red", "blue")[row]),
        )
        for split in SPLITS
    }  # fmt: skip
    graphs = scenegraph.parse([c for own in CAPTIONS for c in own])
    return Captions(images, dict.fromkeys(SPLITS, graphs))


def test_captions_are_described_by_means(few):
    row = show.describe(few).loc["test"]
    assert (row["images"], row["captions"]) == (2, 4)
    assert row["words a caption"] == (9 + 1 + 10 + 6) / 4
    assert row["objects"] == (2 + 1 + 3 + 2) / 4
    assert row["attributes"] == (3 + 0 + 2 + 2) / 4
    assert row["relations"] == (1 + 0 + 2 + 1) / 4
    assert row["fallback graphs in %"] == 0
