"""What notebook 02 shows: figures hold the numbers and texts they are given, without warnings."""

from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from PIL import Image

from mmlib import entailment_figures as figures
from mmlib import revision_study
from mmlib.core import plots
from mmlib.core.entailment_pairs import Samples
from mmlib.core.intervals import Estimate
from mmlib.core.plots import COLOURS, FALSE, TRUE
from mmlib.entailment import scores_at
from mmlib.entailment_study import FULL
from mmlib.revision import effective_ratio

pytestmark = pytest.mark.filterwarnings("error")

RED, BLUE, GREEN = (255, 0, 0), (0, 0, 255), (0, 128, 0)
PICTURES = [Image.new("RGB", (8, 8), colour) for colour in (RED, BLUE, GREEN)]
LONG = (
    "Two men in $5 shirts are talking on the street ; one is pointing at a $9 sign beneath a very "
    "large red box , and the other one is standing there listening to every single word of it ."
)


def open_image(row):
    return PICTURES[row % 3]


@pytest.fixture(autouse=True)
def _style():
    with plt.rc_context():
        plots.use_style()
        yield
    plt.close("all")


def drawn(figure):
    """Its axes, once it has been drawn and no text was found to leave it."""
    assert isinstance(figure, Figure)
    figure.canvas.draw()
    wide, tall = figure.get_size_inches() * figure.dpi
    for axis in figure.axes:
        for text in axis.texts:
            box = text.get_window_extent()
            assert box.x0 > -1
            assert box.y0 > -1
            assert box.x1 < wide + 1, text.get_text()
            assert box.y1 < tall + 3
    return figure.axes


def words(axis):
    """Every text of an axis in one line, with its colour."""
    return [(text.get_text().replace("\n", " "), text.get_color()) for text in axis.texts]


def overlaps(axes):
    """Pairs of the axes' texts that lie on each other by more than a point."""
    boxes = [text.get_window_extent() for axis in axes for text in axis.texts]
    return [
        (i, j)
        for i in range(len(boxes))
        for j in range(i)
        if min(boxes[i].x1, boxes[j].x1) - max(boxes[i].x0, boxes[j].x0) > 1
        and min(boxes[i].y1, boxes[j].y1) - max(boxes[i].y0, boxes[j].y0) > 1
    ]


def colour_of(axis, image=0):
    return tuple(int(c) for c in np.asarray(axis.images[image].get_array())[3, 3][:3])


def framed(axis):
    return axis.spines["left"].get_visible() and axis.spines["left"].get_edgecolor()


# --- How common true "negatives" are --------------------------------------------------------------


def test_own_pairs_are_not_counted_as_fits():
    # Three images with two captions each. Caption 0 fits all, caption 4 fits image 0, too.
    fits = np.zeros((3, 6), bool)
    fits[[0, 0, 1, 1, 2, 2], range(6)] = True
    fits[:, 0] = fits[0, 4] = True
    before = fits.copy()
    left, right = drawn(figures.fit_counts(fits, np.repeat(range(3), 2)))
    assert [bar.get_height() for bar in left.patches] == [4, 1, 1]  # no other, 1, 2
    assert [bar.get_height() for bar in right.patches] == [0, 3]
    assert [bar.get_x() for bar in left.patches] == [-0.5, 0.5, 1.5]
    assert (left.get_xlabel(), left.get_ylabel()) == (
        "other images that a caption fits",
        "captions",
    )
    assert right.get_xlabel() == "foreign captions that fit an image"
    said = [[text.get_text() for text in axis.get_legend().get_texts()] for axis in (left, right)]
    assert said == [["median 0", "maximum 2"], ["median 1", "maximum 1"]]
    assert [line.get_xdata()[0] for line in left.lines] == [0, 2]
    assert left.get_title() == "33 % of captions have at least one"
    assert (fits == before).all()  # the caller's array is as it was


def test_counts_are_logarithmic_only_where_a_bar_would_vanish():
    fits = np.eye(200, dtype=bool)
    fits[:, 0] = True
    left, right = drawn(figures.fit_counts(fits, np.arange(200)))
    assert left.get_yscale() == "log"
    assert len(left.patches) <= 40
    assert sum(bar.get_height() for bar in left.patches) == 200
    assert sum(bar.get_height() for bar in right.patches) == 200


def test_a_caption_that_fits_nothing_else_has_a_figure_too():
    left, _ = drawn(figures.fit_counts(np.eye(3, dtype=bool), np.arange(3)))
    assert [bar.get_height() for bar in left.patches] == [3]


def test_the_own_picture_comes_first_and_framed():
    figure = figures.fitting_pictures("a $dog$", [0, 1, 2], open_image, own_row=1)
    axes = drawn(figure)
    assert [colour_of(axis) for axis in axes] == [BLUE, RED, GREEN]
    assert [framed(axis) for axis in axes] == [to_rgba(TRUE), False, False]
    assert figure.get_suptitle() == "“a $dog$” fits 2 other pictures"


def test_only_some_of_many_pictures_are_shown_and_all_are_counted():
    figure = figures.fitting_pictures(LONG, np.arange(3, 30), open_image, 0, count=6, judged=90)
    axes = drawn(figure)
    shown = [axis for axis in axes if axis.images]
    assert len(shown) == 7
    said = figure.get_suptitle().replace("\n", " ")
    assert said == f"“{LONG}” fits 27 other pictures of 90 that people judged"
    one = figures.fitting_pictures("a dog", [2], open_image, 0)
    assert one.get_suptitle() == "“a dog” fits 1 other picture"


# --- The data and the classifier ------------------------------------------------------------------

SAMPLES = Samples(
    premise=("A dog runs. A dog is fast.", "", LONG),
    hypothesis=("an animal runs", "a cat sleeps", LONG),
    image=np.array([-1, 1, 2]), label=np.array([1, 0, 1]), kind=("te", "ve", "mme"),
    source=("x",) * 3, group=("a", "b", "c"),
)  # fmt: skip
MERGED = {"A dog runs. A dog is fast.": ("A dog runs.", "A dog is fast.")}


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_a_sheet_has_a_picture_and_the_texts_of_every_pair(columns):
    axes = drawn(figures.sample_sheet(SAMPLES, [2, 0, 1], open_image, MERGED, columns))
    pictures, texts = axes[::2], axes[1::2]
    assert [colour_of(axis) for axis in pictures] == [GREEN, (0, 0, 0), BLUE]
    both, text, seen = (words(axis) for axis in texts)
    assert [t for t, _ in both] == ["picture and text", f"– {LONG}", LONG, "entailed"]
    assert [t for t, _ in text] == [
        "text alone", "– A dog runs.", "– A dog is fast.", "an animal runs", "entailed",
    ]  # fmt: skip
    assert [t for t, _ in seen] == ["picture alone", "a cat sleeps", "not entailed"]
    assert (text[-1][1], seen[-1][1]) == (TRUE, FALSE)
    bold = [[t.get_text() for t in axis.texts if t.get_fontweight() == "bold"] for axis in texts]
    assert bold[1:] == [["an animal runs", "entailed"], ["a cat sleeps", "not entailed"]]
    assert not overlaps(texts)
    for axis in texts:
        right = axis.get_window_extent().x1
        assert all(text.get_window_extent().x1 < right + 1 for text in axis.texts)


def test_the_most_attended_regions_are_grey():
    attention = np.array([[0.05, 0.4, 0.1, 0.2], [0.4, 0.1, 0.3, 0.1]])
    axes = drawn(figures.masked_regions(PICTURES[:2], attention, ratio=0.5))
    assert len(axes) == 7  # two rows of three, and the scale
    for i in range(2):
        plain, heat, masked = axes[3 * i : 3 * i + 3]
        assert colour_of(plain) == (RED, BLUE)[i]
        shown = np.asarray(heat.images[1].get_array())
        assert np.allclose(shown, attention[i].reshape(2, 2))
        assert heat.images[1].get_clim() == pytest.approx((0.05, 0.4))
        assert masked.images[1].get_extent() == [-0.5, 7.5, 7.5, -0.5]
    assert np.asarray(axes[2].images[1].get_array())[..., 3].tolist() == [[0, 1], [0, 1]]
    assert np.asarray(axes[5].images[1].get_array())[..., 3].tolist() == [[1, 0], [1, 0]]
    assert axes[2].get_title() == "masked: 2 of 4 regions"
    assert axes[6].get_ylabel() == "attention"


def test_of_sixteen_regions_forty_percent_are_six():
    attention = np.random.default_rng(0).random(16)
    axes = drawn(figures.masked_regions(PICTURES[:1], attention))
    hidden = np.asarray(axes[2].images[1].get_array())[..., 3].ravel() == 1
    assert hidden.sum() == 6
    assert attention[hidden].min() > attention[~hidden].max()


def test_regions_that_are_no_square_are_refused():
    with pytest.raises(ValueError, match="12 regions"):
        figures.masked_regions(PICTURES[:1], np.ones(12))


def test_gates_are_two_dots_a_row_and_test():
    gates = {
        "Full": {"world": [(0.2, 0.6), (0.4, 0.8)], "text": (0.9, 0.1)},
        "Scalar gate": {"world": (0.5, 0.7), "text": []},
        "Only TE": {"world": []},
    }
    figure = figures.gate_plot(gates)
    world, text = drawn(figure)
    assert (world.get_title(), text.get_title()) == ("world", "text")
    assert [t.get_text() for t in world.get_yticklabels()] == ["Full", "Scalar gate"]
    assert world.get_ylim()[0] > world.get_ylim()[1]
    for axis, expected in (
        (world, [(0.3, 0), (0.7, 0), (0.5, 1), (0.7, 1)]),
        (text, [(0.9, 0), (0.1, 0)]),
    ):
        dots = [line for line in axis.lines if line.get_marker() == "o"]
        assert [line.get_color() for line in dots] == list(COLOURS[:2]) * (len(expected) // 2)
        places = [(line.get_xdata()[0], line.get_ydata()[0]) for line in dots]
        assert np.allclose(places, expected)
        assert axis.get_xlabel() == "mean gate"
    (legend,) = figure.legends
    assert [t.get_text() for t in legend.get_texts()] == ["text branch (TE)", "visual branch (VE)"]


def test_curves_have_their_areas_and_thresholds():
    rng = np.random.default_rng(1)
    labels = rng.random(300) < 0.3
    good = np.clip(0.3 * labels + 0.7 * rng.random(300), 0, 1)
    weights = np.where(labels, 1.0, 3.0)
    scores = {"perfect": labels * 0.8, "good": good}
    figure = figures.roc_curves(labels, scores, weights, {"good": 0.7})
    left, right = drawn(figure)
    assert left.get_xlabel() == "false yes in % (false positive rate)"
    assert (left.get_ylabel(), right.get_xlabel(), right.get_ylabel()) == (
        "recall in %", "recall in %", "precision in %",
    )  # fmt: skip
    areas = [text.get_text() for text in left.get_legend().get_texts()]
    assert areas[0] == "perfect: 100.0"
    above = good[labels][:, None] > good[~labels]
    assert areas[1] == f"good: {100 * above.mean():.1f}"
    for axis, metric in ((left, None), (right, "precision")):
        marks = [line for line in axis.lines if line.get_marker() == "o"]
        assert [m.get_markerfacecolor() for m in marks] == [COLOURS[0], COLOURS[1], "white"]
        for mark, limit in zip(marks[1:], (0.5, 0.7), strict=True):
            x, y = float(mark.get_xdata()[0]), float(mark.get_ydata()[0])
            at = scores_at(labels, good, limit, weights)
            if metric:
                assert (x, y) == pytest.approx((at["recall"], at["precision"]))
            else:
                false = 100 * (good[~labels] >= limit).mean()
                assert (x, y) == pytest.approx((false, at["recall"]))
    share = 100 * labels.sum() / weights.sum()
    assert right.lines[0].get_ydata() == pytest.approx([share, share])
    assert f"({share:.1f} % are entailed)" in figure.get_suptitle()


def test_marks_lie_on_their_curves():
    rng = np.random.default_rng(2)
    labels, own = rng.random(200) < 0.4, rng.random(200)
    axes = drawn(figures.roc_curves(labels, {"x": own}, tuned={"x": float(np.sort(own)[150])}))
    for axis in axes:
        _, curve, *marks = axis.lines
        points = np.column_stack(curve.get_data())
        for mark in marks:
            at = np.column_stack(mark.get_data())
            # ROC leaves out points between others on a straight line: it may be one pair away.
            assert np.abs(points - at).max(axis=1).min() < 2


def test_a_threshold_that_nothing_reaches_has_no_precision():
    left, right = drawn(figures.roc_curves(np.array([0, 1]), {"x": np.array([0.1, 0.2])}))
    assert [sum(line.get_marker() == "o" for line in axis.lines) for axis in (left, right)] == [
        1,
        0,
    ]


# --- Errors ---------------------------------------------------------------------------------------


def errors_data(about):
    """Six pairs, a Data with only what `worst_errors` needs, and scores of two branches."""
    samples = Samples(
        ("p",) * 6, tuple(f"h{i}" for i in range(6)), np.arange(6), np.array([1, 1, 0, 0, 1, 0]),
        ("mme",) * 6, ("x",) * 6, tuple("abcdef"),
    )  # fmt: skip
    test = SimpleNamespace(samples=samples, parts={"all": (np.arange(6), np.ones(6))}, about=about)
    data = SimpleNamespace(
        tests={"t": test}, dev=samples, open_image=open_image, merged={"p": ("one", "two")}
    )
    dev = np.array([[0.9, 0.9, 0.1, 0.1, 0.9, 0.1]])
    scores = {
        # h0, h2, h3 and h4 are wrong at the tuned threshold, 0.9; h4 by most, then h0, h3, h2.
        FULL: {"dev": dev, "t": np.array([[0.2, 0.95, 0.91, 0.99, 0.1, 0.3]])},
        f"{FULL}, TE branch": {"dev": dev, "t": np.array([[0.6] * 6])},
    }
    return data, scores


def test_errors_are_the_clearest_of_every_kind_in_turn():
    data, scores = errors_data(("own", "own", "number", "colour", "own", "swap"))
    cases = figures.worst_errors(data, scores, "t")
    assert [case.hypothesis for case in cases] == ["h4", "h3", "h2", "h0"]
    assert [case.about for case in cases] == ["own", "colour", "number", "own"]
    assert [case.label for case in cases] == [1, 0, 0, 1]
    assert cases[0].probabilities == {"TE": 0.6, "MM": 0.1}
    assert (cases[0].threshold, cases[0].premise) == (0.9, ("one", "two"))
    assert cases[0].picture is open_image(4)
    assert len(figures.worst_errors(data, scores, "t", count=2)) == 2


@pytest.mark.parametrize("about", [("0.1234",) * 6, ()])
def test_where_kinds_are_not_known_labels_take_turns(about):
    data, scores = errors_data(about)
    cases = figures.worst_errors(data, scores, "t")
    assert [case.hypothesis for case in cases] == ["h4", "h3", "h0", "h2"]
    assert {case.about for case in cases} == {"word overlap 0.1234" if about else ""}


def test_an_error_says_what_is_so_and_what_was_said():
    said = {"TE": 0.12, "VE": 0.7, "MM": 0.66}
    cases = [
        figures.Case(PICTURES[0], "two dogs", 0, said, 0.58, "number", ("a dog", LONG)),
        figures.Case(PICTURES[1], LONG, 1, {"MM": 0.1}, 0.5),
        figures.Case(PICTURES[2], "a cat", 0, {"MM": 0.9}, 0.5),
    ]
    axes = drawn(figures.error_gallery(cases))
    assert [colour_of(axis) for axis in axes[::2]] == [RED, BLUE, GREEN]
    assert [t for t, _ in words(axes[1])] == [
        "number", "– a dog", f"– {LONG}", "two dogs", "not entailed, but called entailed",
        "TE 0.12   VE 0.70   MM 0.66   (threshold 0.58)",
    ]  # fmt: skip
    assert words(axes[3])[1] == ("entailed, but called not entailed", TRUE)
    assert words(axes[5])[1] == ("not entailed, but called entailed", FALSE)
    assert not overlaps(axes[1::2])


# --- Retrieval ------------------------------------------------------------------------------------


def test_ranked_texts_have_the_colour_of_what_they_are():
    before = [("wrong", False, False), (LONG, False, None), ("own", True, None)]
    after = [("own", True, True), ("true", False, True), (LONG, False, False)]
    figure = figures.ranking_sheets(PICTURES[0], ["own", LONG], before, after)
    picture, left, right = drawn(figure)
    assert colour_of(picture) == RED
    assert words(picture) == [("– own", figures.GOLDEN), (f"– {LONG}", figures.GOLDEN)]
    assert words(left) == [
        ("before: 1 own, 0 other entailed", "#000000"), ("1. wrong", "#000000"),
        (f"2. {LONG}", figures.UNJUDGED), ("3. own", figures.GOLDEN),
    ]  # fmt: skip
    assert words(right) == [
        ("after: 1 own, 1 other entailed", "#000000"), ("1. own", figures.GOLDEN),
        ("2. true", figures.ENTAILED), (f"3. {LONG}", "#000000"),
    ]  # fmt: skip
    (legend,) = figure.legends
    shown = [text.get_text() for text in legend.get_texts()]
    assert shown == ["own", "entailed", "not entailed", "not judged"]
    assert not overlaps((picture, left, right))
    top = legend.get_window_extent().y1  # the legend is below all ranked texts
    assert min(t.get_window_extent().y0 for axis in (left, right) for t in axis.texts) > top - 1
    judged = figures.ranking_sheets(PICTURES[0], ["own"], after, after).legends[0]
    assert "not judged" not in [text.get_text() for text in judged.get_texts()]


def test_a_sweep_has_a_dot_a_seed_and_a_line_of_means():
    values = {
        "shared": {0.1: [10, 14], 0.01: np.array([8, 9])},
        "separate": {0.01: [7.0], 0.1: [9.0]},
    }
    (axis,) = drawn(figures.sweep_plot(values, "λ", "RSUM", base={"plain": 11.0}))
    assert (axis.get_xlabel(), axis.get_ylabel(), axis.get_xscale()) == ("λ", "RSUM", "log")
    assert [t.get_text() for t in axis.get_xticklabels()] == ["0.01", "0.1"]
    means = {line.get_label(): line for line in axis.lines if line.get_marker() == "o"}
    assert list(means["shared"].get_xdata()) == [0.01, 0.1]
    assert list(means["shared"].get_ydata()) == [8.5, 12]
    dots = [line for line in axis.lines if line.get_marker() == "."]
    assert [list(line.get_ydata()) for line in dots] == [[8, 9], [10, 14], [7], [9]]
    assert {line.get_color() for line in dots[:2]} == {means["shared"].get_color()}
    (base,) = [line for line in axis.lines if line.get_linestyle() == "--"]
    assert (list(base.get_ydata()), base.get_label()) == ([11, 11], "plain")
    said = [text.get_text() for text in axis.get_legend().get_texts()]
    assert said == ["shared", "separate", "plain"]


def test_a_linear_sweep_has_a_tick_a_setting():
    values = {"both": {p: [p] for p in revision_study.PRECISIONS}}
    (axis,) = drawn(figures.sweep_plot(values, "precision", "RSUM", log_x=False))
    assert axis.get_xscale() == "linear"
    assert [t.get_text() for t in axis.get_xticklabels()] == ["0.25", "0.5", "0.75", "1"]


def test_the_formula_lies_on_the_shared_states_marks():
    table = revision_study.optimiser_table()
    (axis,) = drawn(figures.pull_plot(table))
    lines = {line.get_label(): line for line in axis.lines}
    assert list(lines)[2:] == list(revision_study.OPTIMISERS)
    for name in revision_study.OPTIMISERS:
        assert list(lines[name].get_ydata()) == table.loc[name].tolist()
    x, y = lines["(λ + β₁) / (1 + λβ₁)"].get_data()
    assert y == pytest.approx([effective_ratio(each) for each in x])
    shared = np.interp(table.columns, x, y)
    assert shared == pytest.approx(table.loc["Adam, shared"].to_numpy(), abs=0.01)
    assert axis.get_xscale() == axis.get_yscale() == "log"
    assert axis.get_xlabel()
    assert axis.get_ylabel()
    assert len({(line.get_marker(), line.get_color()) for line in axis.lines[2:]}) == 7


def test_losses_are_bars_below_zero():
    gains = {
        "classifier": {"CLIP": Estimate(5, 4, 6), "ALBEF": Estimate(2, 1, 3)},
        "logic": {"CLIP": Estimate(-2, -3.5, -1)},
    }
    (axis,) = drawn(figures.judges_bars(gains, "change of E@10"))
    assert [t.get_text() for t in axis.get_xticklabels()] == ["CLIP", "ALBEF"]
    assert axis.get_ylabel() == "change of E@10"
    bars = {c.get_label(): [bar.get_height() for bar in c] for c in axis.containers
            if c.get_label() in gains}  # fmt: skip
    assert bars == {"classifier": [5, 2], "logic": [-2]}
    assert axis.get_ylim()[0] < -3.5
    assert axis.get_ylim()[1] > 6
    assert axis.lines[-1].get_ydata() == [0, 0]
    only = {"logic": {"CLIP": Estimate(2, 1, 3)}}
    assert drawn(figures.judges_bars(only, "change"))[0].get_ylim()[0] == 0


# --- On the world ---------------------------------------------------------------------------------


def test_the_worlds_counts_are_those_of_its_logic():
    from mmlib import world
    from mmlib.world.hypotheses import false_negatives

    images = world.captioned_images("test", 12)
    fits, image_of = false_negatives(images), np.repeat(range(12), 5)
    left, right = drawn(figures.fit_counts(fits, image_of))
    foreign = int(fits.sum()) - 60  # own captions are always true
    for axis in (left, right):
        total = sum(bar.get_height() * (bar.get_x() + 0.5) for bar in axis.patches)
        assert total == foreign > 0
    column = int(fits.sum(axis=0).argmax())
    rows = np.flatnonzero(fits[:, column])
    caption = [text for own in images.captions for text in own][column]
    figure = figures.fitting_pictures(caption, rows, images.open_image, int(image_of[column]))
    assert f"fits {len(rows) - 1} other picture" in figure.get_suptitle().replace("\n", " ")
    assert framed(drawn(figure)[0]) == to_rgba(TRUE)
