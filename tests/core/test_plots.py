import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from PIL import Image

from mmlib.core import plots
from mmlib.core.effects import crossed


def test_save_leaves_a_picture_that_opens(tmp_path):
    plots.save(plots.show_pictures([Image.new("RGB", (8, 8))] * 3, ["a", "b", "c"]), tmp_path, "x")
    with Image.open(tmp_path / "figures" / "x.png") as picture:
        assert min(picture.size) > 50


def test_a_dial_that_nobody_can_turn_is_its_picture_alone(capsys):
    assert plots.dial(lambda x=2: plt.figure(figsize=(x, x)), x=[1, 2]).get_figwidth() == 2
    assert "Slider" not in capsys.readouterr().out


def test_spans_have_their_ends_their_colours_and_their_places():
    axis = plt.figure().subplots()
    series = {"a": {0: (2.0, 1.0, 4.0)}, "b": {0: (3.0, 3.0, 5.0), 1: (6.0, 5.0, 7.0)}}
    plots.spans(axis, series, shift=0.2, numbers="+.1f")
    first, second = axis.containers
    assert first[0].get_xydata().tolist() == [[2.0, -0.1]]
    assert first[2][0].get_segments()[0].tolist() == [[1.0, -0.1], [4.0, -0.1]]
    assert second[0].get_xydata().tolist() == [[3.0, 0.1], [6.0, 1.1]]
    assert [bars[0].get_color() for bars in axis.containers] == list(plots.COLOURS[:2])
    assert [text.get_text() for text in axis.texts] == ["+2.0", "+3.0", "+6.0"]
    upright = plt.figure().subplots()
    upright.set_xscale("log")
    plots.spans(upright, {"a": {10: (1.0, 0.0, 2.0)}, "b": {}}, shift=0.2, upright=True)
    assert upright.containers[0][0].get_xydata().tolist() == [[9.0, 1.0]]


def test_an_overview_has_seeds_intervals_this_run_and_numbers_at_the_edge():
    rng = np.random.default_rng(0)
    values = {name: rng.normal(2, 1, (3, 40)) for name in ("best", "baseline", "oracle")}
    values["best"][:, 7] = np.nan
    panels = {"d": (values, np.arange(40)), "e": ({"best": values["baseline"]}, np.arange(40))}
    drawn = plots.overview(panels, {"best"}, "score", {("d", "best"): 0.5}, 0.25, {"oracle"})
    axis = drawn.axes[0]
    assert [label.get_text() for label in axis.get_yticklabels()] == list(values)
    scored = np.delete(values["best"], 7, axis=1)
    one = crossed(scored, np.arange(39))
    [bars] = [bars for bars in axis.containers if bars[0].get_ydata()[0] == 0]
    assert bars[2][0].get_segments()[0][:, 0].tolist() == pytest.approx([one.low, one.high])
    lines = {line.get_label(): line for line in axis.lines}
    assert lines["this run"].get_xydata().tolist() == [[0.5, 0]]
    assert lines["chance"].get_xdata() == [0.25, 0.25]
    ticks = [line for line in axis.lines if line.get_label() == "one seed"]
    assert ticks[0].get_xdata() == pytest.approx(scored.mean(axis=1))
    assert [text.get_text() for text in axis.texts] == [f"{values['oracle'].mean():.0f} →"]
    words = [text.get_text() for text in drawn.legends[0].get_texts()]
    assert len(words) == len(set(words)) == 5
    assert axis.get_ylim()[0] > axis.get_ylim()[1]  # the first stands above


def test_curves_have_their_range_and_curves_from_the_start_their_chance():
    figure = plots.curves({("t", "level"): {"a": np.array([[1.0, 4.0], [3.0, 2.0]])}})
    [axis] = figure.axes
    assert axis.lines[0].get_xydata().tolist() == [[1, 2.0], [2, 3.0]]
    corners = axis.collections[0].get_paths()[0].vertices
    assert [corners[:, 1].min(), corners[:, 1].max()] == [1.0, 4.0]
    assert (axis.get_title(), figure.legends[0].get_texts()[0].get_text()) == ("t", "a")
    panels = {"loss": {"a": [3, 2, 1]}, "mAP": {"a": [5, 6]}}
    loss, level = plots.curves(panels, {"mAP": 4.0}, first=0).axes
    assert list(loss.lines[0].get_xdata()) == [0, 1, 2]
    assert len(loss.lines) == 1
    assert list(level.lines[1].get_ydata()) == [4.0, 4.0]


def test_a_heat_map_has_its_numbers_and_leaves_out_what_is_missing():
    axis = plt.figure().subplots()
    table = pd.DataFrame([[0.0, 100.0], [np.nan, 51.6]], ["r", "s"], ["x", "y"])
    plots.heat_map(axis, table, 0, 100)
    cells = {text.get_position(): (text.get_text(), text.get_color()) for text in axis.texts}
    assert cells == {(0, 0): ("0", "white"), (1, 0): ("100", "black"), (1, 1): ("52", "white")}
    assert [label.get_text() for label in axis.get_yticklabels()] == ["r", "s"]
    plots.heat_map(axis, table, 0, 100, lambda y, x: f"{y}/{x}")
    assert axis.texts[-1].get_text() == "1/1"


def test_a_diagram_has_its_boxes_and_its_arrows_join_them():
    boxes = {"a": ("first", 0.1, 0.5, "#0072B2"), "b": ("second", 0.9, 0.2, "#D55E00")}
    [axis] = plots.diagram(boxes, [("a", "b")]).axes
    texts = {text.get_text(): text for text in axis.texts if text.get_text()}
    assert {name: text.get_position() for name, text in texts.items()} == {
        "first": (0.1, 0.5), "second": (0.9, 0.2)
    }  # fmt: skip
    [arrow] = [text for text in axis.texts if not text.get_text()]
    assert (arrow.xyann, arrow.xy) == ((0.1, 0.5), (0.9, 0.2))
