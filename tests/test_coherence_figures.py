"""What notebook 01 shows: every figure holds the numbers it is given, without a warning."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from PIL import Image

from mmlib import coherence_figures
from mmlib.coherence import confidence
from mmlib.coherence_study import REFINED, Pairs
from mmlib.core import plots
from mmlib.core.related import RelatedPairs
from mmlib.core.tables import paper_values
from mmlib.features.text import tokenize

pytestmark = pytest.mark.filterwarnings("error")

TEXTS = ("a dog in the snow", "I love this man", "the last day of a long year", "a cat")
COLOURS = ("red", "blue", "green")


@pytest.fixture(autouse=True)
def _style():
    with plt.rc_context():
        plots.use_style()
        yield
    plt.close("all")


@pytest.fixture
def pairs():
    """Four texts on three pictures; the last two share one."""
    return RelatedPairs(
        name="tiny", split="test", texts=TEXTS,
        labels=np.array([[1, 0, 0], [1, 1, 0], [0, 1, 1], [0, 0, 0]], dtype=bool),
        relations=("Visible", "Subjective", "Story"), image_of=np.array([0, 1, 2, 2]),
        image_ids=COLOURS,
        open_image=lambda row: Image.new("RGB", (6, 6), COLOURS[row]),
    )  # fmt: skip


def drawn(figure):
    """A figure that can be drawn, every axis of which says what it shows or is a picture."""
    assert isinstance(figure, Figure)
    figure.canvas.draw()
    return figure.axes


def points(axis, colour=None):
    """(x, y) of all dots and lines of an axis, of one colour only where it is given."""
    return [
        (float(x), float(y))
        for line in axis.lines
        if colour is None or line.get_color() == colour
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    ]


def ticks(axis):
    return [label.get_text() for label in axis.get_xticklabels()]


def colour_of(axis):
    return tuple(int(c) for c in np.asarray(axis.images[0].get_array())[3, 3])


# --- Tables and words of the data ----------------------------------------------------------------


def test_the_data_are_described_split_by_split(pairs):
    fewer = pairs.take([0, 3], "train")
    table = coherence_figures.describe({"tiny": Pairs(fewer, pairs.take([1]), pairs)})
    assert list(table.index) == ["tiny, train", "tiny, dev", "tiny, test"]
    test = table.loc["tiny, test"]
    assert (test["pairs"], test["images"]) == (4, 3)
    assert test["words a text"] == round((5 + 4 + 7 + 2) / 4, 1)
    assert test["relations a pair"] == round((1 + 2 + 2 + 0) / 4, 1)
    assert test["pairs without any, %"] == 25
    assert table.loc["tiny, train", "pairs without any, %"] == 50


def test_relations_are_correlated_two_by_two(pairs):
    table = coherence_figures.correlations(pairs)
    expected = [np.corrcoef(pairs.labels[:, 0], pairs.labels[:, c])[0, 1] for c in range(3)]
    assert table.loc["Visible"].tolist() == pytest.approx(expected, abs=0.005)
    assert list(table.index) == list(table.columns) == list(pairs.relations)
    never = coherence_figures.correlations(pairs.take([0, 1]))
    assert never["Story"].isna().all()


def test_a_text_is_told_with_the_relations_that_hold(pairs):
    assert coherence_figures.labelled_text(pairs, 1) == "I love this man [Visible, Subjective]"
    assert coherence_figures.labelled_text(pairs, 3) == "a cat [none]"


def test_every_relation_of_the_world_says_how_it_is_realised():
    from mmlib.world.discourse import SCHEMES

    table = coherence_figures.how_realised()
    assert set(table.index) == {(s, r) for s, own in SCHEMES.items() for r in own.relations}
    assert table.iloc[:, 0].str.len().min() > 10


# --- Pictures ------------------------------------------------------------------------------------


def test_each_relation_gets_a_picture_of_its_own(pairs):
    axes = drawn(coherence_figures.one_of_each(pairs))
    # Visible: text 0; Subjective: text 1; Story: text 2. Text 1 has Visible, too.
    assert [colour_of(axis) for axis in axes] == [(255, 0, 0), (0, 0, 255), (0, 128, 0)]
    said = [axis.texts[0].get_text().replace("\n", " ") for axis in axes]
    assert said == [coherence_figures.labelled_text(pairs, i) for i in range(3)]
    assert len(drawn(coherence_figures.one_of_each(pairs.take([0, 3])))) == 1


def test_the_own_picture_is_framed_wherever_it_stands(pairs):
    shown = {
        "CMCM": [{"text": 1, "best": [1, 0], "rank": 1.0}, {"text": 3, "best": [0, 2], "rank": 2}],
        "CMCA": [{"text": 1, "best": [0, 2], "rank": 3.0}, {"text": 3, "best": [1, 0], "rank": 3}],
    }
    axes = drawn(coherence_figures.retrieved(pairs, shown, columns=2))
    rows = [axes[i : i + 3] for i in range(0, 12, 3)]
    names = ["CMCM\nrank 1", "CMCA\nrank 3", "CMCM\nrank 2", "CMCA\nrank 3"]
    assert [row[0].get_ylabel() for row in rows] == names
    assert [row[0].get_title(loc="left") for row in rows] == [
        coherence_figures.labelled_text(pairs, 1), "",
        coherence_figures.labelled_text(pairs, 3), "",
    ]  # fmt: skip
    red, blue, green = (255, 0, 0), (0, 0, 255), (0, 128, 0)
    assert [[colour_of(axis) for axis in row] for row in rows] == [
        [blue, blue, red], [blue, red, green], [green, red, green], [green, blue, red],
    ]  # fmt: skip
    framed = [[axis.spines["left"].get_visible() for axis in row] for row in rows]
    # Text 3 shares its picture with text 2, whose place thus counts as its own.
    assert framed == [
        [True, True, False], [True, False, False], [True, False, True], [True, False, False],
    ]  # fmt: skip
    assert rows[0][0].spines["left"].get_edgecolor() == to_rgba(plots.TRUE)


def test_each_word_has_a_bar_a_system(pairs):
    weights = {"CMCA": [0.1, 0.6, 0.1, 0.1, 0.1], "CMCM": [0.2, 0.5, 0.1, 0.1, 0.1]}
    shown = {name: [{"text": 0, "attention": own}] for name, own in weights.items()}
    (axis,) = drawn(coherence_figures.attention_figure(pairs, tokenize, shown))
    assert ticks(axis) == ["a", "dog", "in", "the", "snow"]
    assert axis.get_ylabel() == "weight α"
    for name, bars in zip(weights, axis.containers, strict=True):
        assert bars.get_label() == name
        assert [bar.get_height() for bar in bars] == weights[name]
    first, second = ([bar.get_center()[0] for bar in bars] for bars in axis.containers)
    assert np.allclose((np.array(first) + second) / 2, range(5))  # around the word's tick
    assert np.less(first, second).all()


def test_words_beyond_the_maximal_length_have_no_bar(pairs):
    shown = {"CMCA": [{"text": 0, "attention": [0.5, 0.5]}, {"text": 3, "attention": [0.3, 0.7]}]}
    above, below = drawn(coherence_figures.attention_figure(pairs, tokenize, shown))
    assert ticks(above) == ["a", "dog"]
    assert ticks(below) == ["a", "cat"]


# --- Numbers -------------------------------------------------------------------------------------


def test_confidence_is_lowest_in_doubt():
    (axis,) = drawn(coherence_figures.confidence_figure())
    assert (axis.get_xlabel(), axis.get_ylabel()) == (
        "probability x of the relation", "confidence η",
    )  # fmt: skip
    assert len(axis.lines) == 3
    for line, strength in zip(axis.lines, (0.01, 0.12, 1.0), strict=True):
        x, y = line.get_data()
        assert line.get_label() == f"λ = {strength:g}"
        assert (x[0], x[-1]) == (0, 1)
        assert np.allclose(y, np.exp(strength * np.abs(x - 0.5)))
        assert x[np.argmin(y)] == 0.5
        assert y.max() == pytest.approx(confidence(np.array([1.0]), strength))


def test_gaps_are_a_dot_a_dev_text_of_the_first_training():
    answers = {
        "CMCA": [
            {"gaps": {"gap": [0.3, 0.1, 0.0], "rank": [1, 4, 20]}},
            {"gaps": {"gap": [0.9, 0.9, 0.9], "rank": [9, 9, 9]}},
        ],
        "CMCM": [{"gaps": {"gap": [0.2, 0.2, 0.1], "rank": [1, 2, 3]}}],
        "Base": [],
    }
    left, right = drawn(coherence_figures.gap_figure(answers, ["CMCA", "CMCM"]))
    assert (left.get_title(), right.get_title()) == ("CMCA", "CMCM")
    dots, limit = left.lines
    assert dots.get_xdata().tolist() == [0.3, 0.1, 0.0]
    assert dots.get_ydata().tolist() == [1, 4, 20]
    assert limit.get_xdata() == [0.2, 0.2]
    assert right.lines[0].get_ydata().tolist() == [1, 2, 3]
    assert left.get_yscale() == right.get_yscale() == "log"
    assert left.get_ylabel() == "rank of the text's own image"
    assert left.get_xlabel() == right.get_xlabel() == "Δ, best cosine minus second best"
    assert len(drawn(coherence_figures.gap_figure(answers, ["CMCM"]))) == 1


def of_pools(*trainings):
    return {"medr": np.array(trainings, dtype=float)}


SCORES = {
    "clue": {
        "Base": of_pools([10, 20], [20, 40]),
        "CMCA": of_pools([8, 10], [10, 10]),
        "CMCA + true relations": of_pools([1, 1], [1, 1]),
        "CMCM": of_pools([6, 8], [4, 4]),
        f"CMCM {REFINED}": of_pools([5, 7], [3, 4]),
        f"CMCM {REFINED}, T 0.1": of_pools([50, 70], [30, 40]),
        "CMCM_Meta": of_pools([9, 9], [7, 8]),
        f"CMCM_Meta {REFINED}": of_pools([9, 8], [7, 7]),
        "CMCM, λ_cls 0.4": of_pools([6, 6], [6, 6]),
        f"CMCM, λ_cls 0.4 {REFINED}": of_pools([6, 6], [6, 6]),
        "Random": of_pools([60, 60], [60, 60]),
    }
}


def test_median_ranks_are_a_dot_a_training_before_and_after_refinement():
    (axis,) = drawn(coherence_figures.medr_figure(SCORES, "clue"))
    assert ticks(axis) == ["Base", "CMCA", "CMCM", "CMCM\nMeta"]
    plain, refined = plots.COLOURS[:2]
    places, medians = zip(*points(axis, plain), strict=True)
    assert places == pytest.approx(np.repeat([0, 1, 2, 3], 2) - 0.15)
    assert medians == (15, 30, 9, 10, 7, 4, 9, 7.5)
    places, medians = zip(*points(axis, refined), strict=True)
    assert places == pytest.approx(np.repeat([2, 3], 2) + 0.15)
    assert medians == (6, 3.5, 8.5, 7)
    assert axis.get_ylabel() == "MedR in pools (lower is better)"
    said = [text.get_text() for text in axis.get_legend().get_texts()]
    assert said[0] == "θ"
    assert said[1].startswith("θ̄")


def test_a_box_is_a_training_with_its_pools():
    rng = np.random.default_rng(0)
    values = rng.integers(10, 30, size=(3, 50)).astype(float)
    scores = {"clue": {"CMCA": {"medr": values}, "CMCM": {"medr": values[:2] + 5}}}
    left, right = drawn(coherence_figures.spread_figure(scores, "clue", ["CMCA", "CMCM"]))
    assert ticks(left) == ["seed 0", "seed 1", "seed 2"]
    assert ticks(right) == ["seed 0", "seed 1"]
    assert left.get_ylabel() == "MedR of 50 pools"
    medians = {}
    for line in left.lines:
        if len(line.get_xdata()) == 2 and np.ptp(line.get_xdata()) > 0.25:  # as wide as the box
            medians[round(float(np.mean(line.get_xdata())))] = set(line.get_ydata())
    assert medians == {i: {np.median(own)} for i, own in enumerate(values, start=1)}
    assert (left.get_title(), right.get_title()) == ("CMCA", "CMCM")


PANELS = {
    "λ_cls": {0.0: np.array([10.0, 14.0]), 0.1: np.array([8.0, 10.0]), 2.0: np.array([20.0, 20.0])},
    "maximal length": {6.0: np.array([10.0]), 24.0: np.array([9.0])},
}


def test_a_sweep_has_its_noise_band_and_the_authors_below():
    axes = drawn(coherence_figures.sweep_figure(PANELS, {"λ_cls": 0.1, "maximal length": 24}))
    above, other, below, lengths = axes
    assert (above.get_xlabel(), above.get_ylabel()) == ("λ_cls", "MedR, ours")
    assert ticks(above) == ["0", "0.1", "2"]
    *dots, means = above.lines
    assert [list(line.get_ydata()) for line in dots] == [[10, 14], [8, 10], [20, 20]]
    assert [set(line.get_xdata()) for line in dots] == [{0}, {1}, {2}]
    assert list(means.get_ydata()) == [12, 9, 20]
    # Variances 8, 2 and 0 within a value; the mean at the chosen one is 9.
    (band,) = above.patches
    half = np.sqrt(10 / 3)
    low, high = band.get_y(), band.get_y() + band.get_height()
    assert (low, high) == pytest.approx((9 - half, 9 + half))
    assert not other.patches  # one training has no spread over seeds
    assert list(other.lines[-1].get_ydata()) == [10, 9]
    for axis, name in ((below, "figure8_left_code"), (lengths, "figure8_right_clue_code")):
        printed = paper_values("coherence", name)
        ((line, _, (bars,)),) = axis.containers
        assert list(line.get_ydata()) == printed["MedR"].tolist()
        spans = [np.ptp(segment[:, 1]) / 2 for segment in bars.get_segments()]
        assert spans == pytest.approx(printed["MedR_std"].tolist())
        assert ticks(axis) == [f"{value:g}" for value in printed.iloc[:, 0]]
        assert axis.get_ylabel() == "MedR, authors'"
    assert below.get_xlabel() == "λ_cls (authors)"


def test_every_sweep_of_the_study_has_a_printed_one():
    from mmlib.coherence_study import SWEPT

    assert set(coherence_figures.PRINTED_SWEEPS) == set(SWEPT.values())
    for name in coherence_figures.PRINTED_SWEEPS.values():
        assert isinstance(paper_values("coherence", name), pd.DataFrame)
