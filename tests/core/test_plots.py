import matplotlib.pyplot as plt
import pytest
from PIL import Image

from mmlib.claims import Claim
from mmlib.core import plots
from mmlib.core.intervals import Estimate


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
    estimate = Estimate(60.0, 55.0, 65.0)
    claim = Claim("C", "a claim", "1", "x", {"part": estimate}, "points")
    for figure in (
        plots.training_curves({"coco": history}, "dev_loss", "dev_AUC"),
        plots.bars({"coco": {"DC": estimate, "AP": estimate}}, "AUC in %", floor=50),
        plots.forest([claim]),
    ):
        assert all(axis.get_xlabel() or axis.get_ylabel() for axis in figure.axes)
