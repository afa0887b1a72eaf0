"""Figures in one style."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from cycler import cycler
from matplotlib.figure import Figure
from matplotlib.layout_engine import PlaceHolderLayoutEngine
from PIL import Image

from mmlib.core.intervals import Estimate
from mmlib.core.paths import write_atomic

# Okabe and Ito's colours, which readers with colour-blindness can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
TRUE, FALSE = "#009E73", "#9467BD"
VERDICT_COLOURS = {
    "supported": "#009E73",
    "not supported": "#999999",
    "opposite": "#D55E00",
    "not tested": "#dddddd",
}


class Judged(Protocol):
    """What a forest plot shows of a claim: its parts, and what became of each."""

    @property
    def id(self) -> str:
        """Such as C1."""

    @property
    def claim(self) -> str:
        """The paper's words in short."""

    @property
    def parts(self) -> Mapping[str, Estimate]:
        """Name -> effect."""

    @property
    def unit(self) -> str:
        """Of the effects."""

    @property
    def margin(self) -> float | None:
        """Within which there is no difference, for claims of none."""

    @property
    def verdict(self) -> str:
        """Over all parts."""

    def verdict_of(self, part: str) -> str:
        """On one part."""


def use_style() -> None:
    """Set matplotlib's defaults for this suite."""
    mpl.rcParams.update(
        {
            "figure.dpi": 72,
            "savefig.dpi": 150,
            "figure.constrained_layout.use": True,
            "font.size": 10,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.alpha": 0.3,
            "axes.prop_cycle": cycler(color=COLOURS),
            "legend.frameon": False,
            "image.interpolation": "lanczos",
        }
    )


def save(figure: Figure, folder: Path, name: str) -> None:
    """Write a figure as `<folder>/figures/<name>.png` and show it."""
    if figure.get_layout_engine() is None:  # after savefig, matplotlib would bring its default back
        figure.set_layout_engine(PlaceHolderLayoutEngine(True, False))
    write_atomic(folder / "figures" / f"{name}.png", figure.savefig)
    plt.show()


def show_pictures(
    images: Sequence[Image.Image], titles: Sequence[str] = (), columns: int = 5, size: float = 1.9
) -> Figure:
    """A grid of pictures with wrapped titles below them."""
    rows = -(-len(images) // columns)
    room = 0.75 if titles else 0.05  # inches below each picture
    figure, axes = plt.subplots(
        rows, columns, figsize=(size * columns, (size + room) * rows), squeeze=False, layout="none"
    )
    height = (size + room) * rows
    figure.subplots_adjust(
        left=0, right=1, top=1, bottom=room / height, wspace=0.04, hspace=room / size
    )
    for axis in axes.flat:
        axis.axis("off")
    for i, image in enumerate(images):
        axis = axes.flat[i]
        axis.imshow(image)
        if titles:
            wrapped = textwrap.fill(titles[i], min(26, round(16 * size)))
            axis.text(
                0.5, -0.04, wrapped, transform=axis.transAxes, ha="center", va="top", fontsize=8,
            )  # fmt: skip
    return figure


def training_curves(
    histories: Mapping[str, Sequence[Mapping[str, float]]], left: str, right: str
) -> Figure:
    """Two figures of each epoch over the epochs, and one against the other. name -> history."""
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.2))
    for name, history in histories.items():
        epochs = np.arange(1, len(history) + 1)
        x, y = ([h[key] for h in history] for key in (left, right))
        axes[0].plot(epochs, x, label=name)
        axes[1].plot(epochs, y, label=name)
        axes[2].plot(x, y, ".", label=name)
    words = {key: key.replace("_", " ") for key in (left, right)}
    axes[0].set(xlabel="epoch", ylabel=words[left])
    axes[1].set(xlabel="epoch", ylabel=words[right])
    axes[2].set(xlabel=words[left], ylabel=words[right])
    axes[0].legend(fontsize=8)
    return figure


def bars(heights: Mapping[str, Mapping[str, Estimate]], ylabel: str, floor: float = 0.0) -> Figure:
    """Grouped bars with error bars: group -> bar name -> estimate. `floor` is where bars start."""
    names = list(dict.fromkeys(name for group in heights.values() for name in group))
    width = 0.8 / len(names)
    figure, axis = plt.subplots(figsize=(max(6.0, 1.9 * len(heights)), 3.4))
    for i, name in enumerate(names):
        known = [(g, group[name]) for g, group in enumerate(heights.values()) if name in group]
        x = np.array([g for g, _ in known]) + (i - (len(names) - 1) / 2) * width
        tops = np.array([e.effect for _, e in known])
        errors = np.abs(np.array([(e.effect - e.low, e.high - e.effect) for _, e in known])).T
        axis.bar(x, tops - floor, width * 0.92, bottom=floor, label=name, color=COLOURS[i % 7])
        axis.errorbar(x, tops, errors, fmt="none", ecolor="#333333", elinewidth=1)
    axis.set_xticks(range(len(heights)), list(heights))
    axis.set(ylabel=ylabel, ylim=(floor, None))
    axis.legend(ncols=len(names), fontsize=8, loc="upper center", bbox_to_anchor=(0.5, 1.15))
    return figure


def forest(claims: Sequence[Judged]) -> Figure:
    """Every part of every claim as an effect with its interval, coloured by its verdict."""
    rows = [(c, name, part) for c in claims for name, part in c.parts.items()]
    figure, axes = plt.subplots(
        len([c for c in claims if c.parts]), 1, figsize=(8, 0.32 * len(rows) + 0.75 * len(claims)),
        gridspec_kw={"height_ratios": [len(c.parts) + 0.8 for c in claims if c.parts]},
        squeeze=False,
    )  # fmt: skip
    for axis, claim in zip(axes[:, 0], [c for c in claims if c.parts], strict=True):
        for y, (name, part) in enumerate(claim.parts.items()):
            colour = VERDICT_COLOURS[claim.verdict_of(name)]
            axis.plot([part.low, part.high], [y, y], color=colour, linewidth=2.5)
            axis.plot(part.effect, y, "o", color=colour, markersize=5)
        axis.axvline(0, color="#333333", linewidth=0.8)
        if claim.margin is not None:
            axis.axvspan(-claim.margin, claim.margin, color="#009E73", alpha=0.1)
        axis.set_yticks(range(len(claim.parts)), list(claim.parts), fontsize=8)
        axis.set_ylim(len(claim.parts) - 0.4, -0.6)
        axis.set_title(f"{claim.id}  {claim.claim}: {claim.verdict}", loc="left", fontsize=9)
        axis.set_xlabel(claim.unit, fontsize=8)
    return figure
