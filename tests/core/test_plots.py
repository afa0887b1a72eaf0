import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

from mmlib.core import plots
from mmlib.core.effects import crossed


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def test_save_leaves_a_picture_that_opens(tmp_path):
    plots.save(plots.show_pictures([Image.new("RGB", (8, 8))] * 3, ["a", "b", "c"]), tmp_path, "x")
    with Image.open(tmp_path / "figures" / "x.png") as picture:
        assert min(picture.size) > 50


def test_training_curves_end_where_the_training_does():
    history = [{"train_loss": 3 - k, "dev_AUC": 10.0 * k} for k in range(3)]
    drawn = plots.training_curves({"a": history, "b": history[:1]}, "dev_AUC", epochs=5)
    for axis, key in zip(drawn.axes, ("train_loss", "dev_AUC"), strict=True):
        assert [line.get_ydata().tolist() for line in axis.lines] == [
            [h[key] for h in history], [history[0][key]]
        ]  # fmt: skip
        assert axis.get_xlim() == (0.5, 5.5)
    assert [axis.get_ylabel() for axis in drawn.axes] == ["training loss", "dev AUC"]


def test_the_band_is_the_range_of_seeds():
    axis = plt.figure().subplots()
    plots.curve_of_seeds(axis, np.array([[1.0, 4.0], [3.0, 2.0]]), "a")
    assert axis.lines[0].get_ydata().tolist() == [2.0, 3.0]
    [band] = axis.collections
    corners = band.get_paths()[0].vertices
    assert [corners[:, 1].min(), corners[:, 1].max()] == [1.0, 4.0]


def test_systems_stand_with_a_tick_a_seed_their_interval_and_this_run():
    axis = plt.figure().subplots()
    rng = np.random.default_rng(0)
    values = {"best": rng.normal(2, 1, (3, 40)), "floor": rng.normal(0, 1, (3, 40))}
    plots.ranked_systems(axis, values, np.arange(40), {"best"}, {"floor": 0.5})
    assert [label.get_text() for label in axis.get_yticklabels()] == ["best", "floor"]
    interval, mean, ticks, *_ = axis.lines
    one = crossed(values["best"], np.arange(40))
    assert interval.get_xdata().tolist() == [one.low, one.high]
    assert mean.get_xdata()[0] == pytest.approx(values["best"].mean())
    assert ticks.get_xdata().tolist() == values["best"].mean(axis=1).tolist()
    assert [line.get_xdata()[0] for line in axis.lines if line.get_marker() == "D"] == [0.5]
    assert axis.get_ylim()[0] > axis.get_ylim()[1]  # the first stands above


def test_a_diagram_has_its_boxes_and_its_arrows_join_them():
    boxes = {"a": ("first", 0.1, 0.5, "#0072B2"), "b": ("second", 0.9, 0.2, "#D55E00")}
    [axis] = plots.diagram(boxes, [("a", "b")]).axes
    texts = {text.get_text(): text for text in axis.texts if text.get_text()}
    assert {name: text.get_position() for name, text in texts.items()} == {
        "first": (0.1, 0.5), "second": (0.9, 0.2)
    }  # fmt: skip
    [arrow] = [text for text in axis.texts if not text.get_text()]
    assert (arrow.xyann, arrow.xy) == ((0.1, 0.5), (0.9, 0.2))
