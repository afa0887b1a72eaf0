"""Figures in one style."""

import inspect
import textwrap
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.layout_engine import PlaceHolderLayoutEngine
from matplotlib.ticker import MaxNLocator
from PIL import Image

from mmlib.core.effects import Interval, crossed
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


def dial(draw: Callable[..., Figure], **choices: Any) -> Figure:
    """Show and return the figure `draw()`; who opened the notebook also gets sliders that redraw.

    choices: parameter of draw -> the values that its slider offers, or label -> value, among them
    its default. Papermill, nbconvert and nbval run cells without input, and get the figure alone.
    """
    from IPython import display, get_ipython
    from ipywidgets import SelectionSlider, VBox

    figure, shown = draw(), display.DisplayHandle()
    if getattr(get_ipython(), "get_parent", dict[str, Any])().get("content", {}).get("allow_stdin"):
        start, look = inspect.signature(draw).parameters, {"continuous_update": False}
        sliders = {
            name: SelectionSlider(options=of, value=start[name].default, description=name, **look)
            for name, of in choices.items()
        }

        def redraw(_: Any) -> None:
            shown.update(redrawn := draw(**{name: of.value for name, of in sliders.items()}))
            plt.close(redrawn)

        for slider in sliders.values():
            slider.observe(redraw, "value")
        display.display(VBox([*sliders.values()]))
    shown.display(figure)
    plt.close(figure)  # else it is shown again at the cell's end
    return figure


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
            lines = [textwrap.fill(t, min(26, round(16 * size))) for t in titles[i].splitlines()]
            middle = {"transform": axis.transAxes, "ha": "center", "va": "top"}
            axis.text(0.5, -0.04, "\n".join(lines), fontsize=8, **middle)
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
    histories: Mapping[str, Sequence[Mapping[str, float]]], dev: str, label: str = ""
) -> Figure:
    """Training loss, and a figure on dev, of each epoch so far. name -> history.

    dev: its key in a history, label: how its axis is named.
    """
    named = {"training loss": "train_loss", label or dev.replace("_", " "): dev}
    return curves({
        words: {name: [h[key] for h in history] for name, history in histories.items()}
        for words, key in named.items()
    })  # fmt: skip


# --- Evidence ------------------------------------------------------------------------------------

Span = tuple[float, float, float]  # a middle, its low and its high end


def span(effect: Interval) -> Span:
    """An effect with its 95 % interval."""
    return effect.effect, effect.low, effect.high


def spans(
    axis: Axes,
    series: Mapping[str, Mapping[Any, Span]],
    colours: Sequence[str] = COLOURS,
    shift: float = 0.0,
    style: str = "o",
    upright: bool = False,
    numbers: str = "",
) -> None:
    """Middles with their ends: label -> place on the axis -> span; a label has its colour and mark.

    shift: how far labels lie from each other, on a logarithmic axis as a share of the place.
    upright: places are horizontal. numbers: the format in which middles are written, too.
    """
    for k, (label, result) in enumerate(series.items()):
        colour, mark = colours[k % len(colours)], style.replace("o", "oDs^v"[k % 5])
        by = shift * (k - (len(series) - 1) / 2)
        places = np.array([*result], float)
        at = places * (1 + by) if upright and axis.get_xscale() == "log" else places + by
        middle, low, high = np.reshape([*result.values()], (-1, 3)).T
        x, y = (at, middle) if upright else (middle, at)
        reach: dict[str, Any] = {
            "yerr" if upright else "xerr": np.array([middle - low, high - middle])
        }
        axis.errorbar(x, y, **reach, fmt=mark, ms=5, capsize=2, color=colour, label=label)
        for value, end, place in zip(middle, high, at, strict=True) if numbers else ():
            axis.annotate(f"{value:{numbers}}".replace("-", "−"), (end, place), (4, 0), va="center",
                          textcoords="offset points", fontsize=8, color=colour)  # fmt: skip


def name_rows(axis: Axes, names: Sequence[str]) -> None:
    """Names for the places 0, 1, … of the vertical axis, the first on top."""
    axis.set_yticks(range(len(names)), names, fontsize=9)
    axis.set_ylim(len(names) - 0.5, -0.5)


def chance_line(axis: Axes, chance: float, label: str = "chance", upright: bool = False) -> None:
    """A dashed line for what guessing reaches; upright: where values are on the horizontal axis."""
    line = axis.axvline if upright else axis.axhline
    line(chance, color="#333333", linestyle="--", linewidth=1, label=label)


def legend_below(figure: Figure, columns: int = 5) -> None:
    """One legend for all panels of a figure, in which each label has one mark."""
    marks: dict[str, Any] = {}
    for axis in figure.axes:
        handles, labels = axis.get_legend_handles_labels()
        marks |= dict(zip(labels, handles, strict=True))
    figure.legend(
        [*marks.values()], [*marks], loc="outside lower center", fontsize=8,
        ncols=min(columns, len(marks) or 1),
    )  # fmt: skip


def overview(
    panels: Mapping[str, tuple[Mapping[str, np.ndarray], np.ndarray]],
    trained: Container[str],
    label: str,
    live: Mapping[tuple[str, str], float] = {},
    chance: float | None = None,
    aside: Container[str] = (),
) -> Figure:
    """A row for each system, the first on top: its trainings, their mean, its 95 % interval.

    panels: data set -> name -> values (seeds, items), of which items with NaN are left out, and the
    items' clusters, as `effects.crossed` takes them. trained: all others are grey. label: of the
    values. live: (data set, name) -> what this run measured, a diamond. aside: those that become
    numbers at the edge, since all others would look alike beside them.
    """
    columns = min(len(panels), 3)
    most = max(len(values) for values, _ in panels.values())
    rows = -(-len(panels) // columns)
    size = (6.2 * columns, (0.25 * most + 0.9) * rows + 0.4)
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False)
    for axis, (title, (values, clusters)) in zip(axes.flat, panels.items(), strict=False):
        for y, (name, scores) in enumerate(values.items()):
            if name in aside:
                edge = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": 8}
                axis.annotate(f"{np.nanmean(scores):.0f} →", (0.92, y), color="#777777", **edge)
                continue
            complete = np.isfinite(scores).all(axis=0)
            kind, colour = (
                ("mean of trainings, 95 % interval", COLOURS[0])
                if name in trained else ("other baselines", "#777777")
            )  # fmt: skip
            mean = crossed(scores[:, complete], clusters[complete])
            spans(axis, {kind: {y: span(mean)}}, [colour])
            seeds = scores[:, complete].mean(axis=1)
            axis.plot(seeds, [y + 0.25] * len(seeds), "|", color="black", ms=4, label="one seed")
            if (title, name) in live:
                diamond = {"color": COLOURS[1], "mfc": "none", "ms": 7, "label": "this run"}
                axis.plot(live[title, name], y, "D", **diamond)
        if chance is not None:
            chance_line(axis, chance, upright=True)
        axis.set(xlabel=label, title=title)
        name_rows(axis, list(values))
    for axis in axes.flat[len(panels) :]:
        axis.axis("off")
    legend_below(figure)
    return figure


def curves(
    panels: Mapping[Any, Mapping[str, Any]], chance: Mapping[str, float] = {}, first: int = 1
) -> Figure:
    """Curves over epochs; of several seeds their mean, and their range as a band.

    panels: what is measured, or (title, what is measured) -> name -> values (epochs,) or (seeds,
    epochs). chance: what is measured -> what guessing reaches. first: the epoch of the first value.
    """
    names = dict.fromkeys(name for result in panels.values() for name in result)
    colours = {name: COLOURS[k % len(COLOURS)] for k, name in enumerate(names)}
    size = (4.2 * len(panels) + 0.8, 3.5)
    figure, axes = plt.subplots(1, len(panels), figsize=size, squeeze=False)
    for axis, (measured, result) in zip(axes[0], panels.items(), strict=True):
        title, label = measured if isinstance(measured, tuple) else ("", measured)
        for name, of_seeds in result.items():
            values, colour = np.atleast_2d(of_seeds), colours[name]
            epochs = np.arange(first, first + values.shape[1])
            style = ".-" if np.ndim(of_seeds) == 1 else "-"
            axis.plot(epochs, values.mean(axis=0), style, color=colour, label=name)
            axis.fill_between(epochs, values.min(0), values.max(0), color=colour, alpha=0.15)
        if label in chance:
            chance_line(axis, chance[label])
        axis.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
        axis.set(xlabel="epoch", ylabel=label, title=title)
    legend_below(figure)
    return figure


def heat_map(
    axis: Axes,
    table: pd.DataFrame,
    low: float,
    high: float,
    write: Callable[[Any, Any], str] | None = None,
    colours: str = "cividis",
) -> AxesImage:
    """A table as colours from `low` to `high`, with a text in each cell; NaN stays empty.

    write: row and column, as numbers -> the cell's text; without, its value without decimals.
    """
    look: dict[str, Any] = {"vmin": low, "vmax": high, "cmap": colours, "interpolation": "nearest"}
    image = axis.imshow(table.to_numpy(float), aspect="auto", **look)
    for (y, x), value in np.ndenumerate(table.to_numpy(float)):
        if np.isfinite(value):
            dark = np.dot(image.to_rgba(value)[:3], (0.3, 0.59, 0.11)) < 0.5
            text = write(y, x) if write else f"{value:.0f}"
            axis.text(x, y, text, ha="center", va="center", fontsize=8.5,
                      color="white" if dark else "black")  # fmt: skip
    axis.set_xticks(range(table.shape[1]), table.columns)
    axis.set_yticks(range(len(table)), table.index)
    axis.grid(visible=False)
    return image
