"""What is shown of captions and their graphs."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

from mmlib import scenegraph
from mmlib.core.records import CaptionedImages
from mmlib.papers.cora import figures
from mmlib.papers.cora.data import Captions
from mmlib.papers.cora.graphs import SPLITS

CAPTIONS = (
    ("a small black dog jumps over a wooden fence", "snow"),
    ("a man in a red hat holds a blue cup", "a young girl eats green apples"),
)


@pytest.fixture(scope="module")
def found():
    images = {
        split: CaptionedImages(
            "tiny", split, ("a", "b"), CAPTIONS, np.zeros((2, 1, 4), np.float32),
            lambda row: Image.new("RGB", (8, 8), ("red", "blue")[row]),
        )
        for split in SPLITS
    }  # fmt: skip
    graphs = scenegraph.parse([c for own in CAPTIONS for c in own], progress=False)
    return Captions(images, dict.fromkeys(SPLITS, graphs))


def test_captions_are_described_by_means(found):
    row = figures.describe(found).loc["test"]
    assert (row["images"], row["captions"]) == (2, 4)
    assert row["words a caption"] == (9 + 1 + 10 + 6) / 4
    assert row["objects"] == (2 + 1 + 3 + 2) / 4
    assert row["attributes"] == (3 + 0 + 2 + 2) / 4
    assert row["relations"] == (1 + 0 + 2 + 1) / 4
    assert row["fallback graphs in %"] == 0


def test_graphs_stand_beside_their_pictures(found):
    figure = figures.graphs_beside_pictures(found, [0, 2])
    said = {text.get_text() for axis in figure.axes for text in axis.texts}
    assert {"dog", "fence", "man", "hat", "cup"} <= said
    plt.close(figure)
