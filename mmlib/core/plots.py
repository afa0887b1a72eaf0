"""Figures in one style."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from cycler import cycler
from matplotlib.figure import Figure
from matplotlib.layout_engine import PlaceHolderLayoutEngine
from PIL import Image

from mmlib.core.paths import write_atomic

# Okabe and Ito's colours, which readers with colour-blindness can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
TRUE, FALSE = "#009E73", "#9467BD"


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
