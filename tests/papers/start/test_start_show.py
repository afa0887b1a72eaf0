"""The pictures of a search in notebook 00: which captions are shown, and what their frames say."""

from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import same_color
from PIL import Image

from mmlib.core.plots import COLOURS, TRUE
from mmlib.papers.start.show import SHOWN, hit_and_miss, searches

PICTURES = 8


@pytest.fixture
def scored():
    """Scores of 8 pictures by 8 captions, each caption's own picture, and what is true of what."""
    rng = np.random.default_rng(3)
    scores = rng.permuted(np.tile(np.arange(PICTURES), (PICTURES, 1)), axis=1).T * 0.1
    image_of = np.arange(PICTURES)
    return scores, image_of, (rng.random(scores.shape) < 0.2) | np.eye(PICTURES, dtype=bool)


def by_loops(scores, image_of, truth):
    """The captions of `hit_and_miss`, looked for one by one."""
    hits, misses = [], []
    for caption, own in enumerate(image_of):
        first = sorted(range(PICTURES), key=lambda i: -scores[i, caption])[:SHOWN]
        if first[0] == own:
            hits.append(caption)
        if own not in first and any(truth[i, caption] for i in first):
            misses.append(caption)
    return hits, misses


def test_the_first_hit_and_the_first_miss_with_a_fitting_picture(scored):
    scores, image_of, truth = scored
    scores[2, 2] = 1  # caption 2 finds its picture
    scores[6, 6], truth[:, 6] = -1, True  # caption 6 misses it, and fits all others
    hits, misses = by_loops(scores, image_of, truth)
    assert hit_and_miss(scores, image_of, truth) == [hits[0], misses[0]]
    scores[image_of, image_of] = -1  # no caption finds its picture
    with pytest.raises(IndexError):
        hit_and_miss(scores, image_of, truth)


def test_frames_and_ranks(scored):
    scores, _, truth = scored
    images = SimpleNamespace(
        captions=[[f"caption {i}"] for i in range(PICTURES)],
        open_image=lambda i: Image.new("RGB", (4, 4), (10 * i, 0, 0)),
    )
    figure = searches(images, scores, truth, [1, 4])
    for row, caption in zip(figure.subfigs, (1, 4), strict=False):
        better = sum(scores[i, caption] > scores[caption, caption] for i in range(PICTURES))
        title = row.get_suptitle()
        assert f"“caption {caption}”" in title
        assert title.endswith(f"rank {better + 1}.")
        assert len(row.axes) == SHOWN
        order = sorted(range(PICTURES), key=lambda i: -scores[i, caption])
        for axis, picture in zip(row.axes, order, strict=False):
            assert axis.images[0].get_array()[0, 0, 0] == 10 * picture
            fits = COLOURS[0] if truth[picture, caption] else "white"
            wanted = TRUE if picture == caption else fits
            assert same_color(axis.spines["left"].get_edgecolor(), wanted)
    assert len(figure.subfigs[-1].legends[0].legend_handles) == 3
    plt.close("all")
