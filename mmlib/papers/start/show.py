"""What is shown of notebook 00: tables of matches, searches, and the figures of its record."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from mmlib.core import plots
from mmlib.core.claims import KINDS
from mmlib.core.evidence import Evidence
from mmlib.core.plots import COLOURS, TRUE
from mmlib.papers.start.method import Captioned, Search
from mmlib.papers.start.run import SYSTEMS
from mmlib.world import WorldImages

SHOWN = 6  # pictures of a search


@torch.no_grad()
def match_tables(
    data: Captioned, models: Mapping[str, Search], pictures: int = 64, scale: float = 0
) -> Figure:
    """How models divide 100 % among the first pictures (rows), for a caption of each (columns).

    data: tensors on the CPU, as are the models; models: title of a panel -> model. The caption is
    the picture's longest, its own picture is on the diagonal, and a column is the softmax of the
    caption's cosines times `scale` (0: the model's own). A quarter and more is darkest.
    """
    figure, axes = plt.subplots(1, len(models), figsize=(9, 4.2), sharey=True, squeeze=False)
    lengths = np.where(data.image_of == np.arange(pictures)[:, None], data.lengths, 0)
    captions = lengths.argmax(axis=1)
    for axis, (title, model) in zip(axes[0], models.items(), strict=True):
        _, seen = model.eval().image_states(data.features[:pictures])
        *_, read = model.text_states(data.ids[captions], data.lengths[captions])
        scaled = scale * seen @ read.T if scale else model.similarities(seen, read)
        shares = 100 * scaled.softmax(dim=0)
        cells = axis.imshow(shares.numpy(), "Blues", interpolation="nearest", vmin=0, vmax=25)
        own = shares.diagonal().mean()
        axis.set_title(f"{title}: {own:.0f} % to the own picture", fontsize=10)
        axis.set_xlabel("caption")
        axis.grid(visible=False)
    axes[0, 0].set_ylabel("picture")
    bar = figure.colorbar(cells, ax=axes[0], extend="max", shrink=0.8)
    bar.set_label("share that a caption gives a picture, %")
    return figure


def hit_and_miss(scores: np.ndarray, image_of: np.ndarray, truth: np.ndarray) -> list[int]:
    """The first caption whose picture is ranked first, and the first that misses it with reason.

    The second caption's own picture is not among those shown, but one that it is true of is.
    scores and truth (pictures, captions): the model's, and whether the caption is true of the
    picture; image_of (captions,). Raises IndexError where there is no such caption.
    """
    order = np.argsort(-scores, axis=0, kind="stable")[:SHOWN]
    right, fits = order == image_of, np.take_along_axis(truth, order, axis=0)
    return [int(np.flatnonzero(of)[0]) for of in (right[0], fits.any(0) & ~right.any(0))]


def searches(
    images: WorldImages, scores: np.ndarray, truth: np.ndarray, captions: Sequence[int]
) -> Figure:
    """The pictures that a model ranks first for some captions, a row for each caption.

    scores and truth (pictures, captions) as in `hit_and_miss`; captions: their columns.
    """
    texts = [(text, own) for own, several in enumerate(images.captions) for text in several]
    figure = plt.figure(figsize=(9, 1.85 * len(captions) + 0.3))
    heights = [*[1.85] * len(captions), 0.3]
    grid = figure.subfigures(len(captions) + 1, 1, squeeze=False, height_ratios=heights)
    *rows, foot = np.asarray(grid)[:, 0]
    for row, caption in zip(rows, captions, strict=True):
        column, (text, own) = scores[:, caption], texts[caption]
        rank = int((column >= column[own]).sum())
        row.suptitle(f"“{text}”  The caption's picture has rank {rank}.", fontsize=9)
        first = np.argsort(-column, kind="stable")[:SHOWN]
        for axis, picture in zip(row.subplots(1, SHOWN), first, strict=True):
            axis.imshow(images.open_image(int(picture)))
            axis.set(xticks=[], yticks=[])
            fits = COLOURS[0] if truth[picture, caption] else "white"
            colour = TRUE if picture == own else fits
            axis.spines[:].set(visible=True, color=colour, linewidth=4)
    named = {"the caption's own picture": TRUE, "another one that the caption fits": COLOURS[0]}
    handles = [Patch(color=colour, label=label) for label, colour in named.items()]
    handles.append(Patch(fc="white", ec="#bbbbbb", label="the caption is false of it"))
    foot.legend(handles=handles, loc="center", ncol=3, fontsize=9)
    return figure


def tables(evidence: Evidence) -> Mapping[str, Callable[[], pd.DataFrame]]:
    """A row for each system and metric: mean and standard deviation over seeds."""
    rows = {
        (system, metric): evidence.means(dataset, system, metric).agg(["mean", "std"])
        for dataset, system in product(evidence.datasets, SYSTEMS)
        for metric in evidence.metrics(dataset, system)
    }
    return {"systems": lambda: pd.DataFrame(rows).T}


def figures(evidence: Evidence) -> Mapping[str, Callable[[], Figure]]:
    """The learning curves."""
    [dataset] = evidence.datasets
    title = KINDS[dataset], "R@10 on dev, %"
    on_dev = dataset, "Search", "dev_R@10"
    return {"learning": lambda: plots.curves({title: {"Search": evidence.curves(*on_dev)}})}
