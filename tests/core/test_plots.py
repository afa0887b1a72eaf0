import matplotlib.pyplot as plt
import pytest
from PIL import Image

from mmlib.core import plots


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def test_save_leaves_a_picture_that_opens(tmp_path):
    plots.save(plots.show_pictures([Image.new("RGB", (8, 8))] * 3, ["a", "b", "c"]), tmp_path, "x")
    with Image.open(tmp_path / "figures" / "x.png") as picture:
        assert min(picture.size) > 50


def test_axes_are_named():
    history = [{"dev_loss": 0.4, "dev_AUC": 50.0}, {"dev_loss": 0.3, "dev_AUC": 60.0}]
    figure = plots.training_curves({"coco": history}, "dev_loss", "dev_AUC")
    assert all(axis.get_xlabel() and axis.get_ylabel() for axis in figure.axes)
