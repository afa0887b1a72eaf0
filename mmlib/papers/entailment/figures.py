"""Figures of paper 02: of the data, and of the evidence."""

from collections.abc import Callable, Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from PIL import Image

from mmlib.core import plots
from mmlib.core.effects import Interval, over_seeds
from mmlib.core.evidence import EPOCHS, Evidence
from mmlib.papers.entailment.claims import ALL_TRUE, REVISED, Change, gain, over_images, relevance
from mmlib.papers.entailment.data.arrays import Split
from mmlib.papers.entailment.data.controlled import SHOWN, Collection
from mmlib.papers.entailment.data.study import Study
from mmlib.papers.entailment.method.classifier import mask_regions
from mmlib.papers.entailment.method.revision import effective_ratio
from mmlib.papers.entailment.run.systems import FAMILIES, REFERENCE, OptimizerState, name_of
from mmlib.papers.entailment.tables import dialled

LADDER: tuple[Change, ...] = (
    ("plain", ""), ("weak", "random"), ("both", "near misses"), ("exclusion", "miner"),
    ("weak", "miner"), ("both", "miner"), ("both", "candidates"), ("both", "rare"),
    ("exclusion", "all"), ("weak", "all"), ("both", "all"),
)  # fmt: skip
SOURCES: Mapping[str, Change] = {
    "the judge's pairs": REVISED, "true ones of the same candidates": ("both", "candidates"),
    "all true pairs": ALL_TRUE,
}  # fmt: skip
CONTROLLED_LOSSES = {"dual": "CLIP-like", "triplet": "VSE-like"}


def figures(evidence: Evidence) -> dict[str, Figure]:
    """All figures that need nothing but evidence, by file name."""
    [name] = evidence.datasets
    return {
        "between": between(evidence, name), "ladder": ladder(evidence, name),
        "curves": curves(evidence, name),
    }  # fmt: skip


# --- The controlled collection -------------------------------------------------------------------


def controlled_batch(made: Mapping[str, Collection], count: int = 12) -> Figure:
    """Which captions are true of which of the first training pictures, one panel a collection.

    made: title -> collection; all have the same pictures. count: how many pictures.
    """
    marks = {"own caption": plots.TRUE, "false negative: true, counts as wrong": plots.COLOURS[1],
             "negative: not true": "#E5E5E5"}  # fmt: skip
    figure, axes = plt.subplots(1, len(made), figsize=(3.7 * len(made) + 1.8, 4.9), dpi=110)
    for axis, (title, one) in zip(axes, made.items(), strict=True):
        split = one.splits["train"]
        assert split.fits is not None
        which = np.where(split.fits[:count, :count], 1, 2)
        np.fill_diagonal(which, 0)
        axis.pcolormesh(which, cmap=ListedColormap(list(marks.values())), vmin=0, vmax=2,
                        edgecolor="white", linewidth=1.5)  # fmt: skip
        middle = np.arange(count) + 0.5
        axis.set_xticks(middle, [text.replace(" ", ", ") for text in split.texts[:count]],
                        rotation=90)  # fmt: skip
        axis.set_yticks(middle, [])
        axis.set(title=title, aspect="equal", ylim=(count, 0))
        axis.grid(visible=False)
        axis.tick_params(length=0)
    axes[0].set_yticklabels([", ".join(things) for things in one.shown[:count]])
    axes[0].set(ylabel="pictures, by what they show")
    figure.supxlabel("captions, each written for one of the pictures", fontsize=10)
    handles = [Patch(color=colour, label=label) for label, colour in marks.items()]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(marks))
    return figure


def controlled_gains(trainings: pd.DataFrame) -> Figure:
    """What knowing the false negatives gives, by their density: levels, and gains with intervals.

    trainings: one row each, with "density", "family", "use" ("random", "golden only" or "both"),
    "seed" and "mAP". Lines are means over seeds, bars their 95 % intervals.
    """
    of = trainings.set_index(["family", "density", "seed", "use"]).mAP.unstack()
    figure, (level, gain_axis) = plt.subplots(1, 2, figsize=(9.5, 3.8))
    shares = of.index.unique("density")
    means = of.groupby(level=["family", "density"]).mean()
    for k, (family, title) in enumerate(CONTROLLED_LOSSES.items()):
        colour, own = plots.COLOURS[k], means.loc[family]
        level.plot(own.index, own.both, "o-", ms=4, color=colour, label=f"{title}, truth known")
        level.plot(own.index, own["golden only"], "o:", ms=4, color=colour,
                   label=f"{title}, golden pairs only")  # fmt: skip
        effects = [over_seeds(of.loc[family, share].eval("both - `golden only`"))
                   for share in shares]  # fmt: skip
        half = np.array([[e.effect - e.low, e.high - e.effect] for e in effects]).T
        at = np.array(shares) * (0.96 if k else 1.04)  # beside each other
        gain_axis.errorbar(at, [e.effect for e in effects], half, fmt="o-", ms=4, capsize=3,
                           color=colour, label=title)  # fmt: skip
    chance = of["random"].groupby(level="density").mean()
    level.plot(chance.index, chance, "--", color="#333333", label="chance")
    gain_axis.axhline(0, color="#333333", linestyle="--", label="golden pairs only")
    for axis in (level, gain_axis):
        axis.set_xscale("log")
        axis.set_xticks(list(shares), [f"1 in {1 / share:.0f}" for share in shares])
        axis.minorticks_off()
        axis.set_xlabel("captions of other pictures that are true")
        axis.legend(fontsize=8)
    level.set(ylabel="mAP over all true captions, %", title="Levels")
    gain_axis.set(ylabel="gain in mAP, points", title="The gain grows with the density")
    return figure


def from_start(
    panels: Mapping[str, Mapping[str, Sequence[float]]], chance: Mapping[str, float]
) -> Figure:  # fmt: skip
    """Curves over epochs, the first value from before training. panels: axis -> label -> values.

    chance: axis -> what guessing reaches.
    """
    figure, axes = plt.subplots(1, len(panels), figsize=(9.5, 3), squeeze=False)
    for axis, (title, curves) in zip(axes[0], panels.items(), strict=True):
        for label, values in curves.items():
            axis.plot(range(len(values)), values, ".-", label=label)
        if title in chance:
            axis.axhline(chance[title], color="#333333", linestyle="--", label="chance")
        axis.set(xlabel="epoch", ylabel=title)
    axes[0, -1].legend(fontsize=8)
    return figure


def on_one_axis(
    trainings: Sequence[tuple[str, str, int, float]], reference: pd.Series
) -> Figure:  # fmt: skip
    """From golden pairs only to all true pairs: gains in mAP, 95 % intervals over seeds.

    trainings: family, one of SOURCES, seed and mAP of each. reference: mAP with golden pairs only,
    by family and seed.
    """
    gains = pd.DataFrame(
        [(family, pairs, value - reference[family, seed])
         for family, pairs, seed, value in trainings],
        columns=["family", "pairs", "gain"],
    ).groupby(["family", "pairs"]).gain  # fmt: skip
    families = [
        family for family in CONTROLLED_LOSSES if (family, "all true pairs") in gains.groups
    ]
    figure, axis = plt.subplots(figsize=(9, 0.8 + 1.1 * len(families)))
    axis.axvline(0, color="#333333", linestyle="--", label="golden pairs only")
    for k, label in enumerate(SOURCES):
        axis.plot([], [], "o-", color=plots.COLOURS[k], label=label)
        for y, family in enumerate(families):
            effect = over_seeds(gains.get_group((family, label)).to_numpy())
            _interval(axis, effect, y + 0.22 * (k - 1), plots.COLOURS[k])
    axis.set_yticks(range(len(families)), [CONTROLLED_LOSSES[family] for family in families])
    axis.set(xlabel="gain in mAP, points", ylim=(len(families) - 0.5, -0.5))
    axis.margins(x=0.12)
    figure.legend(*axis.get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


def attended(attention: np.ndarray, words: Sequence[str]) -> Figure:
    """How much each word attends to each region of a controlled picture (words, regions)."""
    figure, axis = plt.subplots(figsize=(8, 1.2 + 0.35 * len(words)))
    drawn = axis.imshow(attention, cmap="Blues", vmin=0, vmax=1, aspect="auto",
                        interpolation="nearest")  # fmt: skip
    regions = [f"thing {i + 1}" if i < SHOWN else "nothing" for i in range(attention.shape[1])]
    axis.set_xticks(range(len(regions)), regions)
    axis.set_yticks(range(len(words)), words)
    axis.set(xlabel="regions of the picture", ylabel="words",
             title="Words attend to regions that show things, not to the empty ones")  # fmt: skip
    axis.grid(visible=False)
    figure.colorbar(drawn, label="attention")
    return figure


def pulls(pull: Callable[[float, OptimizerState], float]) -> Figure:
    """What a weak gradient moves, as a share of a golden one, over λ: measured, and by formula."""
    ratios = (0.01, 0.03, 0.1, 0.3, 1.0)
    measured: dict[OptimizerState, str] = {
        "shared": "one Adam for both", "separate": "an Adam for each"
    }  # fmt: skip
    figure, axis = plt.subplots(figsize=(8, 2.8))
    for state, label in measured.items():
        axis.plot(ratios, [pull(ratio, state) for ratio in ratios], "o-", label=label)
    axis.plot(ratios, [effective_ratio(ratio) for ratio in ratios], "k--",
              label="formula for one Adam")  # fmt: skip
    axis.set(xscale="log", xlabel="λ", ylabel="pull of a weak gradient",
             title="With one Adam, a small λ hardly makes weak batches weaker")  # fmt: skip
    axis.legend(fontsize=8)
    return figure


def _interval(axis: Axes, effect: Interval, y: float, colour: str) -> None:
    """An effect as a dot on its interval, with its size in words."""
    axis.plot([effect.low, effect.high], [y, y], color=colour, lw=2)
    axis.plot(effect.effect, y, "o", color=colour, ms=5)
    axis.annotate(f"{effect.effect:+.1f}", (effect.high, y), (4, 0), textcoords="offset points",
                  va="center", fontsize=8, color=colour)  # fmt: skip


# --- The data ------------------------------------------------------------------------------------


def mined_pictures(
    study: Study, split: Split, pairs: np.ndarray, most: int = 10
) -> Figure:  # fmt: skip
    """Pictures with a caption that was mined for each; ✓ true, ✗ not, where that is known.

    pairs (n, 2): image and caption of the split; the first of each image is shown.
    """
    first = pairs[np.unique(pairs[:, 0], return_index=True)[1][:most]]
    marks = [""] * len(first)
    if split.fits is not None:
        marks = ["✓ " if split.fits[image, caption] else "✗ " for image, caption in first]
    titles = [mark + split.texts[row[1]] for mark, row in zip(marks, first, strict=True)]
    opened = [study.open_image(int(split.rows[image])) for image in first[:, 0]]
    return plots.show_pictures(opened, titles, columns=5, size=1.7)


def masked_regions(
    pictures: Sequence[Image.Image], attention: np.ndarray, ratio: float = 0.4
) -> Figure:
    """Pictures, each with what the masking leaves of it on its right.

    attention (pictures, R): of a grid of √R x √R regions in rows from the top left.
    """
    side, shown = round(attention.shape[1] ** 0.5), []
    left = mask_regions(torch.ones(*attention.shape, 1), torch.as_tensor(attention), ratio)
    for picture, visible in zip(pictures, left[..., 0].numpy(), strict=True):
        grid = Image.fromarray((255 * (1 - visible)).astype(np.uint8).reshape(side, side))
        hidden = grid.resize(picture.size, Image.Resampling.NEAREST)
        grey = Image.new("RGB", picture.size, (128, 128, 128))
        shown += [picture, Image.composite(grey, picture.convert("RGB"), hidden)]
    return plots.show_pictures(shown, columns=len(shown), size=1.6)


# --- Evidence ------------------------------------------------------------------------------------


def ladder(
    evidence: Evidence, dataset: str, live: Mapping[str, Mapping[str, float]] = {}
) -> Figure:
    """What each variant gains over extra golden: order, first of the list, RSUM; 95 % intervals.

    live: variant -> metric -> gain of a training of this run, a diamond.
    """
    shown = (*relevance(evidence, dataset), "RSUM")
    recorded, live = evidence.systems(dataset), evidence.comparable(live)
    changes = [c for c in LADDER if any(name_of(family, *c) in recorded for family in FAMILIES)]
    height = 1.0 + 0.33 * len(changes)
    figure, axes = plt.subplots(1, len(shown), figsize=(11, height), sharey=True)
    for axis, metric in zip(axes, shown, strict=True):
        for f, family in enumerate(FAMILIES):
            for y, change in enumerate(changes):
                values = gain(evidence, evidence.seeds, family, change, metric)
                if values is None:
                    continue
                effect, at = over_images(evidence, values), y + 0.22 * (f - 1)
                axis.plot([effect.low, effect.high], [at, at], color=plots.COLOURS[f], lw=2)
                axis.plot(effect.effect, at, "o", color=plots.COLOURS[f], ms=4)
                name = name_of(family, *change)
                if metric in live.get(name, {}):
                    axis.plot(live[name][metric], at, "D", color="black", mfc="none", ms=8)
        axis.axvline(0, color="#333333", lw=0.8)
        axis.set(xlabel=f"{metric}, gain over extra golden", ylim=(len(changes) - 0.4, -0.6))
    names = [use + (f" ({pairs})" if pairs else "") for use, pairs in changes]
    axes[0].set_yticks(range(len(changes)), names)
    for f, title in enumerate(FAMILIES.values()):
        axes[1].plot([], [], "o-", color=plots.COLOURS[f], label=title)
    axes[1].legend(fontsize=8)
    return figure


def between(evidence: Evidence, dataset: str, metrics: Sequence[str] = ()) -> Figure:
    """What the miner gains beside the truth, both over extra golden, with 95 % intervals.

    One row for each family, one panel for each measure; all pairs are used both ways. metrics: the
    measures, without: all that count every true text.
    """
    shown = metrics or relevance(evidence, dataset)
    figure, axes = plt.subplots(1, len(shown), figsize=(9, 3.2), sharey=True, dpi=110)
    for axis, metric in zip(axes, shown, strict=True):
        axis.axvline(0, color="#333333", linestyle="--", label="golden pairs only")
        for k, (label, change) in enumerate(SOURCES.items()):
            axis.plot([], [], "o-", color=plots.COLOURS[k], label=label)
            for y, family in enumerate(FAMILIES):
                values = gain(evidence, evidence.seeds, family, change, metric)
                at = y + 0.2 * (k - 1)
                if values is not None:
                    _interval(axis, over_images(evidence, values), at, plots.COLOURS[k])
                else:
                    axis.annotate("not recorded", (0, at), (4, 0), textcoords="offset points",
                                  va="center", fontsize=8, color=plots.COLOURS[k])  # fmt: skip
        axis.set(xlabel=f"gain in {metric}, points", ylim=(len(FAMILIES) - 0.5, -0.5))
        axis.margins(x=0.12)
    axes[0].set_yticks(range(len(FAMILIES)), list(FAMILIES.values()))
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


def dials(evidence: Evidence, dataset: str, metric: str = "mAP") -> Figure:
    """Gains over extra golden by the captions that are trained on, and by λ: `dialled`."""
    pairs = dialled(evidence, dataset)
    density = [title for title in pairs if title.endswith(" captions")]
    groups = {"How many pictures the captions fit": density,
              "The rate of weak batches, and what fills them": [
                  title for title in pairs if title not in density]}  # fmt: skip
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.2))
    for axis, (title, names) in zip(axes, groups.items(), strict=True):
        axis.axvline(0, color="#333333", linestyle="--")
        for y, name in enumerate(names):
            ours, reference = (evidence.values(dataset, own, metric) for own in pairs[name])
            colour = plots.COLOURS[not name.startswith("exclusion")]
            _interval(axis, over_images(evidence, ours - reference), y, colour)
        axis.set_yticks(range(len(names)), names, fontsize=8)
        axis.set(xlabel=f"gain in {metric}, points", ylim=(len(names) - 0.5, -0.5), title=title)
        axis.margins(x=0.15)
    return figure


def curves(evidence: Evidence, dataset: str) -> Figure:
    """Dev figures over epochs, means over seeds with their range: judges, stage A, stage B."""
    panels = (
        ("dev_loss", ["Only TE", "Only VE", "Single stream"]),
        ("dev_RSUM", [name_of(family, "start") for family in ("dual", "align")]),
        ("dev_RSUM", [name_of(family, REFERENCE) for family in FAMILIES]),
    )
    figure, axes = plt.subplots(1, 3, figsize=(12, 3))
    for axis, (metric, names) in zip(axes, panels, strict=True):
        for name in (n for n in names if evidence.has(dataset, n, metric, EPOCHS)):
            plots.curve_of_seeds(axis, evidence.curves(dataset, name, metric), name)
        axis.set(xlabel="epoch", ylabel=metric.replace("_", " "))
        axis.legend(fontsize=8)
    return figure
