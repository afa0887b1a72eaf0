"""Figures of a document and of evidence: the marks are what a small case has."""

from itertools import permutations

import made_up_evidence
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import same_color

from mmlib.papers.links import figures
from mmlib.papers.links.data.documents import Corpus, Document
from mmlib.papers.links.tables import predictors

DOCUMENT = Document("d", ("a dog", "a cat", "a tree"), ("1", "2", "3", "4"), ((0, 0), (1, 2)))
CORPUS = Corpus("tiny", (), (), (DOCUMENT,), np.zeros((4, 1), np.float32), {})


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def brute_force(scores):
    """The pairs of the best matching of three sentences, of all there are."""
    choices = permutations(range(scores.shape[1]), 3)
    best = max(choices, key=lambda chosen: scores[range(3), chosen].sum())
    return set(enumerate(best))


@pytest.mark.parametrize("seed", range(5))
def test_matched_pairs_are_marked_as_right_or_wrong(seed):
    rng = np.random.default_rng(seed)
    matrices = {"first": rng.normal(size=(3, 4)), "second": rng.normal(size=(3, 4))}
    drawn = figures.link_matrices(CORPUS, DOCUMENT, matrices)
    for axis, (title, scores) in zip(drawn.axes, matrices.items(), strict=False):
        matched = brute_force(scores)
        right, wrong = ({(int(y), int(x)) for x, y in line.get_xydata()} for line in axis.lines)
        assert right == matched & set(DOCUMENT.links)
        assert wrong == matched - set(DOCUMENT.links)
        assert same_color(axis.lines[0].get_color(), figures.LINK)
        assert same_color(axis.lines[1].get_color(), figures.NO_LINK)
        centres = [tuple(np.round(patch.get_center()).astype(int)) for patch in axis.patches]
        assert [(row, column) for column, row in centres] == list(DOCUMENT.links)
        assert np.array_equal(axis.images[0].get_array(), scores)
        links = DOCUMENT.link_matrix()
        ordered = np.mean(scores[links][:, None] > scores[~links])
        said = axis.get_title()
        assert said == f"{title}\nAUC {100 * ordered:.0f} %, {len(right)} of 3 pairs right"


def test_heat_maps_share_their_colours():
    drawn = figures.link_matrices(CORPUS, DOCUMENT, {"a": np.eye(3, 4), "b": -np.eye(3, 4)})
    assert [axis.images[0].get_clim() for axis in drawn.axes[:2]] == [(-1, 1)] * 2


def test_of_many_sentences_those_without_a_mark_are_left_out():
    sentences = tuple(f"sentence {i}" for i in range(20))
    document = Document("long", sentences, ("1", "2"), ((3, 0), (15, 1)))
    scores = np.zeros((20, 2))
    scores[[7, 15], [0, 1]] = 1
    axis = figures.link_matrices(CORPUS, document, {"a": scores}).axes[0]
    assert [label.get_text() for label in axis.get_yticklabels()] == [
        "sentence 3", "sentence 7", "sentence 15",
    ]  # fmt: skip
    assert [line.get_xydata().tolist() for line in axis.lines] == [[[1, 2]], [[0, 1]]]
    assert [patch.get_y() + 0.46 for patch in axis.patches] == pytest.approx([0, 2])
    assert np.array_equal(axis.images[0].get_array(), scores[[3, 7, 15]])


def test_a_curve_starts_with_the_untrained_model():
    history = [{"dev_loss": 0.4 / (e + 1), "dev_AUC": 50.0 + e} for e in range(3)]
    drawn = figures.training_curve(history, epochs=5)
    for axis, key in zip(drawn.axes, ("dev_loss", "dev_AUC"), strict=True):
        assert axis.lines[0].get_xdata().tolist() == [0, 1, 2]
        assert list(axis.lines[0].get_ydata()) == [epoch[key] for epoch in history]


def test_a_dot_is_the_mean_of_documents_of_similar_spread():
    evidence = made_up_evidence.make(datasets=("coco", "story"))
    drawn = figures.auc_by_spread(evidence, ["story"], {"this one": (0.5, 70.0)}, groups=3)
    lines = {line.get_label(): line for line in drawn.axes[0].lines}
    assert {*lines} == {"AP", "NoStruct", "chance", "this one"}
    spread = predictors(evidence, "story")["image spread"].to_numpy()
    alike = np.argsort(spread)[:4]  # of twelve documents
    assert lines["AP"].get_xdata()[0] == pytest.approx(spread[alike].mean())
    values = evidence.values("story", "AP", "AUC")[:, alike]
    assert lines["AP"].get_ydata()[0] == pytest.approx(values.mean())


# Several kinds of data

SYSTEMS = ("NoStruct", "DC", "TK+½k", "AP", "AP+½k", "Co-occurrence", figures.COMPARED[0])


def table_of(**columns):
    """Systems by data sets: a list has the AUC of `SYSTEMS`, in this order."""
    table = pd.DataFrame(columns, index=pd.Index(SYSTEMS), dtype=float)
    return table.reindex(figures.COMPARED)


def test_mean_aucs_are_the_means_of_the_evidence():
    evidence = made_up_evidence.make(datasets=("coco", "story"))
    table = figures.mean_aucs(evidence)
    assert list(table.columns) == ["coco", "story"]
    assert table.loc["AP", "story"] == evidence.values("story", "AP", "AUC").mean()
    assert table.loc["Supervised ridge"].isna().all()  # made-up evidence has none


def test_printed_aucs_are_those_of_the_papers_table():
    table = figures.printed_aucs()
    assert table.loc[["NoStruct", "AP", figures.COMPARED[0]], "organic"].tolist() == [
        60.5, 69.3, 58.7,
    ]  # fmt: skip
    assert table.loc["Co-occurrence"].isna().all()


def test_the_best_system_without_links_is_bold():
    table = table_of(coco=[60, 70, 71, 72, 73, 74, 50], story=[80, 79, 78, 77, 76, 60, np.nan])
    table.loc["Supervised ridge"] = [99, 99]
    drawn = figures.results_map({"one": table, "other": table[["story"]]})
    bold = [
        [(text.get_position(), text.get_text()) for text in axis.texts
         if text.get_fontweight() == "bold"]
        for axis in drawn.axes[:2]
    ]  # fmt: skip
    rows = list(figures.COMPARED)
    best = ((1, rows.index("NoStruct")), "80")
    assert sorted(bold[0]) == [((0, rows.index("Co-occurrence")), "74"), best]
    assert bold[1] == [((0, rows.index("NoStruct")), "80")]
    assert len(drawn.axes[1].texts) == 7  # six of `SYSTEMS`, and the ridge


def test_gains_are_over_the_stronger_baseline_and_hollow_over_the_linear_map():
    table = table_of(coco=[60, 70, 71, 72, 73, 66, 64], story=[60, 70, 71, 72, 73, 50, 50])
    axis = figures.gains_map({"world": table}).axes[0]
    filled, hollow = (line.get_xydata().tolist() for line in axis.lines[1:3])
    assert filled == [[64, 71.5 - 64], [60, 71.5 - 60]]
    assert hollow == [[64, 71.5 - 66]]
    assert [text.get_text() for text in axis.texts] == ["coco", "story"]


def test_systems_of_a_data_set_with_chance_and_this_run():
    evidence = made_up_evidence.make(datasets=("coco",))
    axis = figures.ranked(evidence, "coco", {"AP": 77.0}).axes[0]
    names = [label.get_text() for label in axis.get_yticklabels()]
    assert names == ["Random", "NoStruct", "Co-occurrence", "DC", "TK+½k", "AP", "AP+½k"]
    marks = [line.get_xydata().tolist() for line in axis.lines if line.get_marker() == "D"]
    assert marks[0] == [[77.0, names.index("AP")]]
    means = [line.get_xdata() for line in axis.lines if line.get_marker() == "o"]
    assert means[0][0] == pytest.approx(evidence.values("coco", "Random", "AUC").mean())
    (chance,) = [line for line in axis.lines if line.get_label() == "chance"]
    assert list(chance.get_xdata()) == [50, 50]
