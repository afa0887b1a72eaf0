"""Figures and tables of a trained model and of evidence: what they show is what is there."""

import os

import made_up_cora
import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

from mmlib import scenegraph
from mmlib.core.records import CaptionedImages
from mmlib.papers.cora import figures, method, tables
from mmlib.papers.cora.data import Captions, load_study, prepare, texts, world
from mmlib.papers.cora.data.controlled import RECORDED, Dials
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
    drawn = figures.family(found.images["test"], 4)
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
    assert figures.acting(few) == []
    texts = ["a cat", "a man chasing a dog", "a dog near a man", "a girl holding a kite",
             "a man chasing a dog and a girl holding a kite"]  # fmt: skip
    graphs = dict.fromkeys(SPLITS, scenegraph.parse(texts))
    assert figures.acting(Captions(few.images, graphs)) == [1, 3]


def test_a_scored_family_marks_the_highest_and_frames_the_own_picture(found):
    scores = np.random.default_rng(0).random((40, 200))
    caption = 27  # of picture 5, so of family 1
    drawn = figures.scored_family(found, caption, {"mine": scores})
    labels = [axis.get_xlabel() for axis in drawn.axes]
    best = int(scores[4:8, caption].argmax())
    assert [label.endswith("◄") for label in labels] == [k == best for k in range(4)]
    assert [label[:10] for label in labels] == [f"mine: {scores[i, 27]:.2f}" for i in range(4, 8)]
    framed = [axis.spines["top"].get_linewidth() for axis in drawn.axes]
    assert int(np.argmax(framed)) == 1


def made_up_binding():
    """Two controlled collections that differ in what captions say, and one that is drawn."""
    names = "40 × 12, 1000 families", "55 % of colours", "drawn"
    parts = [made_up_cora.make("controlled", name) for name in names]
    return made_up_cora.both(made_up_cora.both(parts[0], parts[1]), parts[2])


def test_the_map_has_what_is_recorded():
    controlled = made_up_binding()
    [axis] = figures.binding_map(controlled).axes
    rows = ["55 % of colours", "drawn"]
    seeds = [len(controlled.values(row, "CORA", "in family")) for row in rows]
    labels = [label.get_text() for label in axis.get_yticklabels()]
    assert labels == [f"{row}; {count} seeds" for row, count in zip(rows, seeds, strict=True)]
    wanted = [
        f"{np.nanmean(controlled.values(row, system, 'in family')):.0f}"
        for row in rows for system in figures.BOUND
    ]  # fmt: skip
    assert words_on(axis) == wanted


def test_what_captions_say_orders_the_collections(evidence):
    controlled = made_up_binding()
    said = tables.attributes_said(evidence, "world")
    captions = (
        evidence.values("world", "Captions", "attributes")[0],
        evidence.values("world", "Captions", "objects")[0],
    )
    assert said == pytest.approx(np.nansum(captions[0]) / np.nansum(captions[1]))
    [axis] = figures.binding_by_captions(controlled, [evidence]).axes
    shown = [label.get_text() for label in axis.get_yticklabels()]
    given = {"40 × 12, 1000 families": 1.0, "55 % of colours": 0.55, "drawn, sentences": said}
    assert all(isinstance(RECORDED[name], Dials) for name in list(given)[:2])
    order = sorted(given, key=lambda name: -given[name])
    assert shown == [f"{name}: {given[name]:.2g} a thing" for name in order]


def test_the_summary_has_the_means_of_both_measures(evidence):
    figure = figures.summary([evidence])
    for axis, metric in zip(figure.axes, ("in family", "RSUM"), strict=True):
        marks = [line.get_xdata()[0] for line in axis.lines if line.get_marker() == "o"]
        names = ("CORA", "Two-step, caption losses", "Joint", "VSE∞", "Sequence, CORA's rest",
                 BAG.system)  # fmt: skip
        means = [np.nanmean(evidence.values("world", name, metric)) for name in names]
        assert marks == pytest.approx(means)


def test_the_main_table_has_the_papers_figures_beside_ours(evidence):
    shown = tables.main([evidence])
    assert list(shown.columns) == ["the paper, Flickr30K", "drawn, sentences"]
    assert shown.loc["Joint", "the paper, Flickr30K"] == "504.8"
    assert shown.loc["Bag of phrases", "the paper, Flickr30K"] == "–"
    of_seeds = evidence.means("world", "HARD", "RSUM")
    assert shown.loc["HARD", "drawn, sentences"] == f"{of_seeds.mean():.0f} ± {of_seeds.std():.0f}"


def test_floors_and_ceilings_stand_below_the_table(evidence):
    shown = tables.table(evidence, "world", "table1")
    assert list(shown.index[-6:]) == [
        "Random", "Ridge on words", "Ridge on the graph's words", "Oracle of words",
        "Oracle of entities", "Oracle of the graph",
    ]  # fmt: skip
    mean = evidence.means("world", "Oracle of words", "RSUM").mean()
    assert shown.loc["Oracle of words", ("rsum", "ours")].startswith(f"{mean:.1f}")


def test_the_time_of_a_query_is_the_sum_of_its_parts(evidence):
    ms = tables.times(evidence, "world").ms
    [axis] = figures.times_figure(evidence, "world").axes
    whole = axis.lines[0].get_ydata()
    assert whole[1] == pytest.approx(ms["parse"] + ms["encode"] + ms["search 10000"])
    parse = evidence.curves("world", QUERY_TIME, "parse")
    assert ms["parse"] == pytest.approx(1000 * np.median(parse), abs=0.01)


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
    row = tables.describe(few).loc["test"]
    assert (row["images"], row["captions"]) == (2, 4)
    assert row["words a caption"] == (9 + 1 + 10 + 6) / 4
    assert row["objects"] == (2 + 1 + 3 + 2) / 4
    assert row["attributes"] == (3 + 0 + 2 + 2) / 4
    assert row["relations"] == (1 + 0 + 2 + 1) / 4
    assert row["fallback graphs in %"] == 0


def test_every_curve_has_its_colour_in_the_legend():
    """Also that of a system which the last panel lacks."""
    names = ("flickr8k", "flickr8k_tuned")
    found = made_up_cora.both(*(made_up_cora.make("flickr8k", name) for name in names))
    figure = figures.curves(found)
    first, last = figure.axes
    [legend] = [axis.get_legend() for axis in figure.axes if axis.get_legend()]
    lines = zip(legend.get_texts(), legend.get_lines(), strict=True)
    colours = {text.get_text(): line.get_color() for text, line in lines}
    assert {"CORA", "CORA, authors' form", "VSE∞"} < colours.keys()
    assert {line.get_color() for line in (*first.lines, *last.lines)} == {*colours.values()}
    assert len({*colours.values()}) == len(colours)
