"""Figures in one style."""

import textwrap
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.layout_engine import PlaceHolderLayoutEngine
from matplotlib.ticker import MaxNLocator
from PIL import Image

from mmlib.core.effects import crossed
from mmlib.core.paths import write_atomic

# Okabe and Ito's colours, which readers with colour-blindness can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
TRUE, FALSE = "#009E73", "#9467BD"


def use_style(dpi: int = 72) -> None:
    """Set matplotlib's defaults for this suite; dpi: of figures on the screen."""
    mpl.rcParams.update({
        "figure.dpi": dpi, "savefig.dpi": 150, "figure.constrained_layout.use": True,
        "font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
        "grid.alpha": 0.3, "axes.prop_cycle": cycler(color=COLOURS), "legend.frameon": False,
        "image.interpolation": "lanczos",
    })  # fmt: skip


def save(figure: Figure, folder: Path, name: str) -> None:
    """Write a figure as `<folder>/figures/<name>.png` and show it."""
    write(figure, folder / "figures" / f"{name}.png")
    plt.show()


def write(figure: Figure, path: Path) -> None:
    """Write a figure into a file."""
    if figure.get_layout_engine() is None:  # after savefig, matplotlib would bring its default back
        figure.set_layout_engine(PlaceHolderLayoutEngine(True, False))
    write_atomic(path, figure.savefig)


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
    for i, (axis, image) in enumerate(zip(axes.flat, images, strict=False)):
        axis.imshow(image)
        if titles:
            wrapped = textwrap.fill(titles[i], min(26, round(16 * size)))
            middle = {"transform": axis.transAxes, "ha": "center", "va": "top"}
            axis.text(0.5, -0.04, wrapped, fontsize=8, **middle)
    return figure


def diagram(
    boxes: Mapping[str, tuple[str, float, float, str]],
    arrows: Sequence[tuple[str, str]],
    size: tuple[float, float] = (9, 2.4),
) -> Figure:
    """Boxes with text, and arrows between them, as for an architecture.

    boxes: name -> text, x and y of its middle from 0 to 1, colour; arrows: names (from, to);
    size: of the figure in inches.
    """
    figure, axis = plt.subplots(figsize=size)
    axis.set(xlim=(0, 1), ylim=(0, 1))
    axis.axis("off")
    drawn = {}
    for name, (text, x, y, colour) in boxes.items():
        rounded = {"boxstyle": "round,pad=0.5", "facecolor": to_rgba(colour, 0.2), "ec": colour}
        drawn[name] = axis.text(x, y, text, ha="center", va="center", fontsize=9, bbox=rounded)
    for start, end in arrows:
        joins = {"patchA": drawn[start].get_bbox_patch(), "patchB": drawn[end].get_bbox_patch()}
        arrow = {"arrowstyle": "-|>", "color": "#444444", "shrinkA": 1, "shrinkB": 1, **joins}
        axis.annotate("", drawn[end].get_position(), drawn[start].get_position(), arrowprops=arrow)
    return figure


def training_curves(
    histories: Mapping[str, Sequence[Mapping[str, float]]],
    dev: str,
    label: str = "",
    epochs: int = 0,
    colours: Mapping[str, str] | None = None,
) -> Figure:
    """Training loss, and a figure on dev, of each epoch so far. name -> history.

    dev: its key in a history, label: how its axis is named; epochs: how many there will be.
    """
    figure, axes = plt.subplots(1, 2, figsize=(9, 2.8))
    named = {"train_loss": "training loss", dev: label or dev.replace("_", " ")}
    for axis, (key, words) in zip(axes, named.items(), strict=True):
        for name, history in histories.items():
            x, colour = range(1, len(history) + 1), (colours or {}).get(name)
            axis.plot(x, [h[key] for h in history], ".-", label=name, color=colour)
        axis.set(xlabel="epoch", ylabel=words)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        if epochs:
            axis.set_xlim(0.5, epochs + 0.5)
    axes[1].legend(fontsize=8)
    return figure


def drawn_live(
    name: str, dev: str, label: str = "", epochs: int = 0
) -> Callable[[Sequence[Mapping[str, float]]], None]:
    """In a notebook: draws `training_curves` after each epoch, in the place of the last ones."""
    from IPython.display import clear_output, display

    def draw(history: Sequence[Mapping[str, float]]) -> None:
        figure = training_curves({name: history}, dev, label, epochs)
        plt.close(figure)  # shown here alone
        clear_output(wait=True)
        display(figure)

    return draw


def curve_of_seeds(axis: Axes, curves: np.ndarray, label: str, colour: str | None = None) -> None:
    """Curves (seeds, epochs): their mean, and as a band their range."""
    epochs = np.arange(1, curves.shape[1] + 1)
    axis.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    (line,) = axis.plot(epochs, curves.mean(axis=0), color=colour, label=label)
    low, high = curves.min(axis=0), curves.max(axis=0)
    axis.fill_between(epochs, low, high, color=line.get_color(), alpha=0.15)


def ranked_systems(
    axis: Axes,
    values: Mapping[str, np.ndarray],
    clusters: np.ndarray,
    trained: Container[str],
    live: Mapping[str, float],
) -> None:
    """A line for each system, from above: its seeds as ticks, their mean with its 95 % interval.

    values: name -> (seeds, items), as `effects.crossed` takes them with their clusters; those that
    are not `trained` are grey. live: what this run measured, drawn as a diamond.
    """
    for y, (name, scores) in enumerate(values.items()):
        mean, seeds = crossed(scores, clusters), scores.mean(axis=1)
        colour = COLOURS[0] if name in trained else "#777777"
        axis.plot([mean.low, mean.high], [y, y], color=colour, lw=1.2)
        axis.plot(mean.effect, y, "o", color=colour, ms=5)
        axis.plot(seeds, [y + 0.25] * len(seeds), "|", color="black", ms=4)
        if name in live:
            axis.plot(live[name], y, "D", color=COLOURS[1], mfc="none", ms=7)
    axis.set_yticks(range(len(values)), list(values), fontsize=8)
    axis.set_ylim(len(values) - 0.4, -0.6)
