"""Figures of paper 02: of the data, and of the evidence."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from PIL import Image

from mmlib.core import plots
from mmlib.core.evidence import EPOCHS, Evidence
from mmlib.papers.entailment.claims import ALL_TRUE, REVISED, Change, gain, over_images, relevance
from mmlib.papers.entailment.data.controlled import Collection
from mmlib.papers.entailment.data.study import Study
from mmlib.papers.entailment.method import mask_regions
from mmlib.papers.entailment.systems import FAMILIES, REFERENCE, name_of

LADDER: tuple[Change, ...] = (
    ("plain", ""), ("weak", "random"), ("both", "near misses"), ("exclusion", "miner"),
    ("weak", "miner"), ("both", "miner"), ("both", "candidates"), ("both", "rare"),
    ("exclusion", "all"), ("weak", "all"), ("both", "all"),
)  # fmt: skip


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
    """What knowing the false negatives gains over golden pairs only, by their density.

    trainings: one row each, with "density", "family", "use", "seed" and "mAP". Dots are seeds,
    lines their means.
    """
    of = trainings.set_index(["family", "seed", "density", "use"]).mAP.unstack()
    gains = of.drop(columns="golden only").sub(of["golden only"], axis=0)
    labels = {"both": "left out of the negatives, and weak positives",
              "exclusion": "left out of the negatives"}  # fmt: skip
    losses = {
        "dual": "softmax over the batch (CLIP-like)",
        "triplet": "hardest negative (VSE-like)",
    }
    figure, axes = plt.subplots(1, len(losses), figsize=(9, 3.6), sharey=True, dpi=110)
    for axis, (family, title) in zip(axes, losses.items(), strict=True):
        axis.axhline(0, color="#333333", linestyle="--", label="golden pairs only")
        for k, (use, label) in enumerate(labels.items()):
            values = gains.loc[family, use].unstack("seed")
            axis.plot(values.index, values, "o", color=plots.COLOURS[k], ms=4, alpha=0.6)
            axis.plot(values.index, values.mean(axis=1), color=plots.COLOURS[k], label=label)
        axis.set_xscale("log")
        axis.set_xticks(values.index, [f"1 in {1 / share:.0f}" for share in values.index])
        axis.minorticks_off()
        axis.set(title=title, xlabel="captions of other pictures that are true")
    axes[0].set(ylabel="gain in mAP, points")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return figure


# --- The data ------------------------------------------------------------------------------------


def fit_counts(fits: np.ndarray, image_of: np.ndarray) -> Figure:
    """Fig. 3: how many other images a caption fits, and how many foreign captions an image.

    fits (images, captions) bool; image_of (captions,): of each caption, whose pair is not counted.
    """
    foreign = fits.astype(bool).copy()
    foreign[image_of, np.arange(len(image_of))] = False
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.2))
    titles = ("other images that a caption fits", "foreign captions that fit an image")
    for side, (axis, title, unit) in enumerate(
        zip(axes, titles, ("captions", "images"), strict=True)
    ):
        counts = foreign.sum(axis=side)
        axis.hist(counts, 40, color=plots.COLOURS[0], alpha=0.75, log=True)
        axis.axvline(np.median(counts), color=plots.COLOURS[1])
        share = 100 * float((counts > 0).mean())
        summary = f"median {np.median(counts):g}, most {counts.max()}; {share:.0f} % have one"
        axis.set(xlabel=title, ylabel=unit, title=summary)
    return figure


def sample_sheet(study: Study, rows: Sequence[int]) -> Figure:
    """Fig. 6: training pairs as one who labels them sees them; black without a picture."""
    samples, opened, titles = study.arrays.train.samples, [], []
    for row in rows:
        image = int(samples.image[row])
        opened.append(Image.new("RGB", (64, 64)) if image < 0 else study.open_image(image))
        label = "entailed" if samples.label[row] else "not entailed"
        titles.append(f"{samples.hypothesis[row]} ({samples.kind[row]}, {label})")
    return plots.show_pictures(opened, titles, columns=len(rows))


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


def with_foreign(study: Study, best: np.ndarray, top: int = 8) -> int:
    """The first test image with a true text of another one among its best; 0 where nobody knows.

    best (images, K): flat captions.
    """
    test = study.arrays.splits["test"]
    if test.fits is None:
        return 0
    texts, image = best[:, :top], np.arange(len(best))[:, None]
    foreign = test.fits[image, texts] & (test.image_of[texts] != image)
    return int(foreign.any(axis=1).argmax())


def before_after(
    study: Study, image: int, best: Mapping[str, np.ndarray], top: int = 8
) -> pd.DataFrame:
    """Fig. 4: an image's best texts by several retrievers; ● its own, ✓ others that are true of it.

    best: name -> (images, K) flat captions.
    """
    test = study.arrays.splits["test"]
    texts, image_of, fits = test.texts, test.image_of, test.fits

    def marked(caption: int) -> str:
        mark = "✓" if fits is not None and fits[image, caption] else "–"
        return f"{'●' if image_of[caption] == image else mark} {texts[caption]}"

    columns = {name: [marked(c) for c in captions[image][:top]] for name, captions in best.items()}
    return pd.DataFrame(columns, index=range(1, top + 1))


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


def between(evidence: Evidence, dataset: str) -> Figure:
    """What the miner gains beside the truth, both over extra golden, with 95 % intervals.

    One row for each family, one panel for each measure; all pairs are used both ways.
    """
    sources = {"the judge's pairs": REVISED, "true ones of the same candidates":
               ("both", "candidates"), "all true pairs": ALL_TRUE}  # fmt: skip
    shown = relevance(evidence, dataset)
    figure, axes = plt.subplots(1, len(shown), figsize=(9, 3.2), sharey=True, dpi=110)
    for axis, metric in zip(axes, shown, strict=True):
        axis.axvline(0, color="#333333", linestyle="--", label="golden pairs only")
        for k, (label, change) in enumerate(sources.items()):
            axis.plot([], [], "o-", color=plots.COLOURS[k], label=label)
            for y, family in enumerate(FAMILIES):
                values = gain(evidence, evidence.seeds, family, change, metric)
                text, end, at = "not recorded", 0.0, y + 0.2 * (k - 1)
                if values is not None:
                    effect = over_images(evidence, values)
                    axis.plot([effect.low, effect.high], [at, at], color=plots.COLOURS[k], lw=2)
                    axis.plot(effect.effect, at, "o", color=plots.COLOURS[k], ms=5)
                    text, end = f"{effect.effect:+.1f}", effect.high
                axis.annotate(text, (end, at), (4, 0), textcoords="offset points", va="center",
                              fontsize=8, color=plots.COLOURS[k])  # fmt: skip
        axis.set(xlabel=f"gain in {metric}, points", ylim=(len(FAMILIES) - 0.5, -0.5))
        axis.margins(x=0.12)
    axes[0].set_yticks(range(len(FAMILIES)), list(FAMILIES.values()))
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
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
