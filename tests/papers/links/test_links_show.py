"""Figures and tables of paper 04: the marks are what a small case has."""

from itertools import permutations

import numpy as np
import pytest
from made_up_evidence import cut, without
from matplotlib.colors import same_color

from mmlib.core.evidence import Evidence
from mmlib.core.paths import evidence_dir
from mmlib.papers.links import show
from mmlib.papers.links.claims import same_as
from mmlib.papers.links.data.documents import Corpus, Document
from mmlib.suite.record import assess_paper, read

DOCUMENT = Document("d", ("a dog", "a cat", "a tree"), ("1", "2", "3", "4"), ((0, 0), (1, 2)))
CORPUS = Corpus("tiny", (), (), (DOCUMENT,), np.zeros((4, 1), np.float32), {})


def test_the_surest_pair_of_a_document_is_drawn_first_in_the_colour_of_links():
    scores = np.array([[0.2, 0, 0, 0], [0, 0, 0.1, 0], [0, 0.9, 0, 0]])
    axis = show.document_graph(CORPUS, DOCUMENT, scores, "a title").axes[0]
    texts = [text.get_text() for text in axis.texts if text.get_text()]
    assert texts == ["a tree", "0.90", "a dog", "0.20", "a cat", "0.10"]
    straight = [line for line in axis.lines if line.get_xdata()[0] == line.get_xdata()[1]]
    for line, colour in zip(straight, (show.NO_LINK, show.LINK, show.LINK), strict=True):
        assert same_color(line.get_color(), colour)


@pytest.mark.parametrize("seed", range(3))
def test_matched_pairs_are_marked_as_right_or_wrong(seed):
    rng = np.random.default_rng(seed)
    matrices = {"first": rng.normal(size=(3, 4)), "second": rng.normal(size=(3, 4))}
    drawn = show.link_matrices(CORPUS, DOCUMENT, matrices)
    for axis, (title, scores) in zip(drawn.axes, matrices.items(), strict=False):
        choices = permutations(range(4), 3)
        matched = set(enumerate(max(choices, key=lambda c, s=scores: s[range(3), c].sum())))
        right, wrong = ({(int(y), int(x)) for x, y in line.get_xydata()} for line in axis.lines)
        assert (right, wrong) == (matched & {*DOCUMENT.links}, matched - {*DOCUMENT.links})
        assert same_color(axis.lines[0].get_color(), show.LINK)
        assert same_color(axis.lines[1].get_color(), show.NO_LINK)
        centres = [tuple(np.round(patch.get_center()).astype(int)) for patch in axis.patches]
        assert [(row, column) for column, row in centres] == list(DOCUMENT.links)
        assert np.array_equal(axis.images[0].get_array(), scores)
        links = DOCUMENT.link_matrix()
        ordered = np.mean(scores[links][:, None] > scores[~links])
        said = axis.get_title()
        assert said == f"{title}\nAUC {100 * ordered:.0f} %, {len(right)} of 3 pairs right"
    assert drawn.axes[0].images[0].get_clim() == drawn.axes[1].images[0].get_clim()


def test_of_many_sentences_those_without_a_mark_are_left_out():
    sentences = tuple(f"sentence {i}" for i in range(20))
    document = Document("long", sentences, ("1", "2"), ((3, 0), (15, 1)))
    scores = np.zeros((20, 2))
    scores[[7, 15], [0, 1]] = 1
    axis = show.link_matrices(CORPUS, document, {"a": scores}).axes[0]
    assert [label.get_text() for label in axis.get_yticklabels()] == [
        "sentence 3", "sentence 7", "sentence 15",
    ]  # fmt: skip
    assert [line.get_xydata().tolist() for line in axis.lines] == [[[1, 2]], [[0, 1]]]
    assert [patch.get_y() + 0.46 for patch in axis.patches] == pytest.approx([0, 2])
    assert np.array_equal(axis.images[0].get_array(), scores[[3, 7, 15]])


@pytest.mark.parametrize(("unused", "system"), [(["TK"], "DC"), ([], "TK")])
def test_dc_stands_for_tk_only_where_the_two_are_the_same(unused, system):
    """Where TK was not trained, DC's values were once shown as its own."""
    whole = cut("04", datasets=["stress"])
    series = whole.series.query("system != 'TK'").reset_index(drop=True)
    found = Evidence(series, whole.header, [{"inapplicable": {"stress": unused}}])
    assert same_as(found, "stress", "TK") == system


def test_a_dot_is_the_mean_of_documents_of_similar_spread():
    evidence = cut("04", datasets=["story"])
    drawn = show.auc_by_spread(evidence, ["story"], {"this one": (0.5, 70.0)}, groups=3)
    lines = {line.get_label(): line for line in drawn.axes[0].lines}
    assert {*lines} == {"AP", "NoStruct", show.SEES_LINKS, "chance", "this one"}
    spread = evidence.values("story", "Documents", "image spread")[0]
    alike = np.argsort(spread)[: len(spread) // 3]
    assert lines["AP"].get_xdata()[0] == pytest.approx(spread[alike].mean())
    values = evidence.values("story", "AP", "AUC")[:, alike]
    assert lines["AP"].get_ydata()[0] == pytest.approx(values.mean())


def test_tables_and_figures_of_one_data_set_with_chance_and_this_run():
    evidence = cut("04", datasets=["coco", "unlabelled"])
    tables = {name: make() for name, make in show.tables(evidence).items()}
    assert (tables["results_diy"].xs("ours", axis=1, level=1) == "–").all(axis=None)
    assert {*show.figures(evidence)} == {"overview", "objectives"}
    axis = show.ranked(evidence, ["coco"], {("coco", "AP"): 77.0}).axes[0]
    names = [label.get_text() for label in axis.get_yticklabels()]
    lines = {line.get_label(): line for line in axis.lines}
    assert lines["this run"].get_xydata().tolist() == [[77.0, names.index("AP")]]
    assert lines["chance"].get_xdata() == [50, 50]


# Several kinds of data


def test_mean_aucs_are_those_of_the_evidence_and_of_the_papers_table():
    evidence = without(cut("04", datasets=["coco", "story"]), "Supervised ridge")
    table, printed = show.mean_aucs(evidence), show.printed_aucs()
    assert list(table.columns) == ["coco", "story"]
    assert table.loc["AP", "story"] == evidence.values("story", "AP", "AUC").mean()
    assert table.loc["Supervised ridge"].isna().all()
    assert printed.loc[["NoStruct", "AP", show.DETECTION], "organic"].tolist() == [60.5, 69.3, 58.7]


# What is recorded, and what notebook 04 says of it


def test_the_record_is_small_enough_for_a_repository():
    size = sum(path.stat().st_size for path in evidence_dir().rglob("*") if path.is_file())
    assert size <= 42e6


def test_the_text_says_what_its_evidence_holds():
    world, photographs = (show.mean_aucs(read("04", tier)) for tier in ("world", "flickr8k"))
    of_world = {one.claim.id: one.record() for one in assess_paper("04", "world")}
    without = [table.drop(index=show.SEES_LINKS) for table in (world, photographs)]
    first, second = (table.idxmax() == "AP" for table in without)
    assert first.index[~first].tolist() == ["coco"]  # "the highest mean in the world on all but"
    assert (second.sum(), len(second)) == (3, 5)  # "on photographs … on three of five"
    assert round(of_world["C4"]["parts"]["story, AP"]["effect"]) == -14  # "costs AP 14 points"
    of_seeds = read("04", "world").means("story", "AP", "AUC")
    assert of_seeds[0] <= of_seeds.quantile(0.1)  # "this seed is among AP's lowest"
    lead = (world.loc["AP"] - world.loc["NoStruct"])[["story", "cohesive"]]
    assert lead["story"] > 20 > 5 > lead["cohesive"] > 0  # "far ahead …, and little ahead on"
