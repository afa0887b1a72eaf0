"""What notebook 03 shows: tables of the data, graphs with attention, right and wrong pictures."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgba
from PIL import Image

from mmlib import cora, cora_figures, cora_study, scenegraph
from mmlib.core import plots
from mmlib.core.intervals import Estimate
from mmlib.core.records import CaptionedImages

CAPTIONS = (
    ("a small black dog jumps over a wooden fence", "snow"),
    ("a man in a red hat holds a blue cup", "a young girl eats green apples"),
)


@pytest.fixture(scope="module")
def study():
    images = {
        split: CaptionedImages(
            "tiny", split, ("a", "b"), CAPTIONS, np.zeros((2, 1, 4), np.float32),
            lambda row: Image.new("RGB", (8, 8), ("red", "blue")[row]),
        )
        for split in cora_study.SPLITS
    }  # fmt: skip
    graphs = scenegraph.parse([c for own in CAPTIONS for c in own], progress=False)
    return cora_study.Study("tiny", images, dict.fromkeys(cora_study.SPLITS, graphs))


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def test_the_data_are_described_by_means_over_captions(study):
    row = cora_figures.describe(study).loc["test"]
    assert (row["images"], row["captions"]) == (2, 4)
    assert row["words a caption"] == (9 + 1 + 10 + 6) / 4
    assert row["objects"] == (2 + 1 + 3 + 2) / 4
    assert row["attributes"] == (3 + 0 + 2 + 2) / 4
    assert row["relations"] == (1 + 0 + 2 + 1) / 4
    assert row["fallback graphs in %"] == 0


def test_captions_to_show_say_something_and_are_of_different_images(study):
    assert cora_figures.some_captions(study, 5) == [0, 2]
    assert cora_figures.some_captions(study, 1) == [0]
    assert len(cora_figures.pictures(study, 5)) == 2


def test_the_parse_names_the_head_of_each_word():
    table = cora_figures.dependency_table("a black dog").set_index("word")
    assert table.loc["black", "depends on"] == "dog"
    assert table.loc["dog", "depends on"] == "–"


def test_attention_stands_at_the_edges_that_it_came_along(study):
    """The model's node numbers and edge directions, turned back into those of the graph."""
    graph = study.graphs["test"][2]  # man -in-> hat, man -holds-> cup; red hat, blue cup
    ones = torch.ones(9, 1, dtype=torch.int64)
    texts = cora.GraphSet([graph], lambda phrases: (ones[: len(phrases)], ones[: len(phrases), 0]))
    batch = texts.batch(np.array([0]))
    edges = batch.attribute_edges(), batch.object_edges()
    first, second = (torch.stack(pair, dim=1).tolist() for pair in edges)
    attention = {
        "attributes": [(s, t, 100 + 10 * s + t) for s, t in first],
        "objects": [(s, t, 10 * s + t) for s, t in second],
    }
    weights = cora_figures.attention_weights(graph, attention)
    man, hat, cup = scenegraph.objects(graph)
    assert [graph.nodes[i]["label"] for i in (man, hat, cup)] == ["man", "hat", "cup"]
    assert weights[man, hat] == 10 * 1 + 0  # from the hat to the man
    assert weights[cup, man] == 10 * 0 + 2
    (red,), (blue,) = scenegraph.attributes(graph, hat), scenegraph.attributes(graph, cup)
    assert weights[hat, red] == 100 + 10 * 3 + 1
    assert weights[cup, blue] == 100 + 10 * 4 + 2
    assert (hat, cup) not in weights


def test_right_and_wrong_pictures_are_framed(study):
    example = {"caption": 2, "best": [0, 1]}
    figure = cora_figures.retrieved(study, [example], [1, 1, 2, 1])
    colours = [axis.spines["left"].get_edgecolor() for axis in figure.axes]
    right, wrong = (to_rgba(colour) for colour in (plots.TRUE, plots.FALSE))
    assert colours == [wrong, right, right]
    assert [axis.get_xlabel() for axis in figure.axes] == [
        "wrong", "right", "the caption's own: rank 2"
    ]  # fmt: skip


def test_right_and_wrong_entities_are_marked(study):
    top = [[{"entity": "red hat", "right": True}], [{"entity": "snow", "right": False}]]
    figure = cora_figures.entities_figure(study, top)
    assert [axis.texts[0].get_text() for axis in figure.axes] == ["✓ red hat", "✗ snow"]


def test_figures_of_losses_and_times_show_what_they_are_given():
    losses = {
        f"{kind} {rate}": Estimate(-rate, -rate - 1, -rate + 2)
        for kind in cora_study.ERRORS
        for rate in cora_study.RATES
    }
    axis = cora_figures.errors_figure(losses).axes[0]
    assert len(axis.containers) == len(cora_study.ERRORS)
    assert list(axis.containers[0].lines[0].get_ydata()) == [-10, -20, -30]
    axis = cora_figures.times_figure({"one": {10: 0.001, 100: 0.01}}).axes[0]
    assert list(axis.lines[0].get_ydata()) == [1, 10]
    assert axis.get_xscale() == axis.get_yscale() == "log"


def test_graphs_stand_beside_their_pictures(study):
    figure = cora_figures.graphs_beside_pictures(study, [0, 2])
    said = {text.get_text() for axis in figure.axes for text in axis.texts}
    assert {"dog", "fence", "man", "hat", "cup"} <= said
    attended = cora_figures.attention_figure(study, [{"caption": 0, "attention": {}}])
    assert "dog" in {text.get_text() for text in attended.axes[0].texts}
