"""Figures of paper 01: of the pairs, of models trained in a notebook, and of the evidence."""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from mmlib.core import plots
from mmlib.core.effects import Effect
from mmlib.core.evidence import EPOCHS, Evidence
from mmlib.core.related import RelatedPairs
from mmlib.core.tables import paper_values
from mmlib.papers.coherence.claims import at_defaults
from mmlib.papers.coherence.data.pairs import CONTROLLED, CONTROLLED_TIER, SIGNALS, TELLINGS, Arrays
from mmlib.papers.coherence.method import mean_log_rank
from mmlib.papers.coherence.run import CMCA, CMCM, SWEPT, SYSTEMS, trained_systems
from mmlib.papers.coherence.tables import (
    PRINTED,
    SCRIPT,
    WEIGHTS,
    controlled_gains,
    dials,
    rankings,
    relations_worth,
)

ON_DEV = "dev_loss", "mean log2 rank on dev"

# --- Pairs ---------------------------------------------------------------------------------------


def labelled_text(pairs: RelatedPairs, row: int) -> str:
    """A text with the relations that hold, for a caption below its picture."""
    names = [n for n, holds in zip(pairs.relations, pairs.labels[row], strict=True) if holds]
    return f"{pairs.texts[row]} [{', '.join(names) or 'none'}]"


def one_of_each(pairs: RelatedPairs) -> Figure:
    """For every relation the first pair of which it holds, and no earlier one shown."""
    rows: list[int] = []
    for holds in pairs.labels.T:
        rows += [int(i) for i in np.flatnonzero(holds) if i not in rows][:1]
    assert pairs.open_image is not None
    images = [pairs.open_image(int(pairs.image_of[i])) for i in rows]
    titles = [labelled_text(pairs, i) for i in rows]
    return plots.show_pictures(images, titles, columns=len(rows), size=2.1)


# --- Models trained here -------------------------------------------------------------------------


def attention_figure(
    pairs: RelatedPairs, tokens: Callable[[str], list[str]], shown: Mapping[str, Sequence[dict]]
) -> Figure:
    """Fig. 7: the weight of each word in some texts, one bar a system. system -> examples."""
    first = next(iter(shown.values()))
    figure, axes = plt.subplots(len(first), 1, figsize=(9, 1.9 * len(first)), squeeze=False)
    width = 0.8 / len(shown)
    for i, axis in enumerate(axes[:, 0]):
        for k, (name, examples) in enumerate(shown.items()):
            weights = examples[i]["attention"]
            x = np.arange(len(weights)) + (k - (len(shown) - 1) / 2) * width
            axis.bar(x, weights, width, label=name, color=plots.COLOURS[k])
        words = tokens(pairs.texts[first[i]["text"]])[: len(weights)]
        axis.set_xticks(range(len(words)), words, fontsize=8, rotation=30)
        axis.set(ylabel="weight α")
    axes[0, 0].legend(fontsize=8, ncols=len(shown))
    return figure


def retrieved(pairs: RelatedPairs, shown: Mapping[str, Sequence[dict]], columns: int = 5) -> Figure:
    """Fig. 6: for some texts the own image and the best images of each system, the own framed."""
    names, count = list(shown), len(next(iter(shown.values())))
    figure, axes = plt.subplots(
        count * len(names), columns + 1,
        figsize=(1.45 * (columns + 1), 1.6 * count * len(names) + 0.4), squeeze=False,
        layout="none",
    )  # fmt: skip
    figure.subplots_adjust(left=0.1, right=0.99, top=0.84, bottom=0.01, hspace=0.08, wspace=0.05)
    figure.suptitle("The text's own picture, framed, and what each model ranks first", fontsize=10)
    for i in range(count):
        for k, name in enumerate(names):
            example, row = shown[name][i], axes[i * len(names) + k]
            _row(pairs, example, row)
            row[0].set_ylabel(f"{name}\nrank {example['rank']:g}", fontsize=8)
            if k == 0:
                text = textwrap.shorten(labelled_text(pairs, example["text"]), 140)
                row[0].set_title(text, fontsize=8, loc="left")
    return figure


def _row(pairs: RelatedPairs, example: Mapping[str, Any], axes: Sequence[Any]) -> None:
    """The own image of a text, framed, and its best images, framed where they are its own."""
    assert pairs.open_image is not None
    image, *best = (int(pairs.image_of[pair]) for pair in (example["text"], *example["best"]))
    for axis, shown in zip(axes, [image, *best], strict=False):
        axis.imshow(pairs.open_image(shown))
        axis.set(xticks=[], yticks=[])
        axis.grid(visible=False)
        for side in axis.spines.values():
            side.set(visible=shown == image, color=plots.TRUE, linewidth=3)


# --- Evidence ------------------------------------------------------------------------------------


def overview(evidence: Evidence, live: Mapping[tuple[str, str], float] | None = None) -> Figure:
    """Mean log2 rank of each ranking, best first: a tick a seed, the mean with its 95 % interval.

    Without "Random", next to which all others would look alike. live: (collection, system) -> mean
    log2 rank of a training of this run, a diamond.
    """
    datasets = at_defaults(evidence)
    most = max(len(rankings(evidence, name)) for name in datasets)
    size = (6.5 * len(datasets), 0.24 * most + 0.9)
    figure, axes = plt.subplots(1, len(datasets), figsize=size, squeeze=False)
    for axis, dataset in zip(axes[0], datasets, strict=True):
        levels = {
            name: np.log2(evidence.values(dataset, *term))
            for name, term in rankings(evidence, dataset).items()
            if name != "Random"
        }
        best_first = dict(sorted(levels.items(), key=lambda item: item[1].mean()))
        systems = {system.system for system in trained_systems(dataset)}
        diamonds = {
            name: value for (of, name), value in evidence.comparable(live).items() if of == dataset
        }
        plots.ranked_systems(axis, best_first, evidence.clusters(dataset), systems, diamonds)
        axis.set(xlabel="mean log2 rank (lower is better)", title=dataset)
    return figure


def curves(evidence: Evidence) -> Figure:
    """Mean log2 rank on dev over epochs, mean and range of seeds."""
    datasets = at_defaults(evidence)
    size = (6 * len(datasets), 3.2)
    figure, axes = plt.subplots(1, len(datasets), figsize=size, squeeze=False)
    for axis, dataset in zip(axes[0], datasets, strict=True):
        for colour, name in zip(plots.COLOURS, (s.system for s in SYSTEMS), strict=False):
            if evidence.has(dataset, name, "dev_loss", EPOCHS):
                dev = evidence.curves(dataset, name, "dev_loss")
                plots.curve_of_seeds(axis, dev, name, colour)
        axis.set(xlabel="epoch", ylabel=ON_DEV[1], title=dataset)
        axis.legend(fontsize=8)
    return figure


def spread(evidence: Evidence, dataset: str, most: int = 8) -> Figure:
    """MedR of every pool of some trainings: what varies with the pool, and what with the seed."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 2.8), sharey=True)
    for axis, name in zip(axes, (CMCA.system, CMCM.system), strict=True):
        values = evidence.values(dataset, name, "MedR", split="pools")[:most]
        axis.boxplot(list(values), tick_labels=list(map(str, evidence.seeds_of(dataset)[:most])))
        axis.set(title=f"{name}, {dataset}", xlabel="seed")
    axes[0].set(ylabel="MedR of 50 pools")
    return figure


def gap_figure(evidence: Evidence, dataset: str) -> Figure:
    """Fig. 3b: rank of the own image over Δ, a dot a test text, of the first seed."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3), sharex=True, sharey=True)
    for axis, name in zip(axes, (CMCA.system, CMCM.system), strict=True):
        gap, rank = (evidence.values(dataset, name, metric)[0] for metric in ("gap", "rank"))
        axis.plot(gap, rank, ".", alpha=0.4)
        axis.axvline(0.2, color="#333333", linewidth=0.8, linestyle="--")
        title = f"{name}, {dataset}"
        axis.set(xlabel="Δ, best cosine minus second best", yscale="log", title=title)
    axes[0].set(ylabel="rank of the text's own picture")
    return figure


def map_figure(evidence: Evidence) -> Figure:
    """Gains over CMCA, in log2 ranks, over both dials; ± is half of the 95 % interval."""
    gains = dials(evidence)
    figure, axes = plt.subplots(1, len(gains), figsize=(4.4 * len(gains), 3.2))
    for axis, (title, cells) in zip(axes, gains.items(), strict=True):
        grid = np.array([
            [cells[s, t].effect if (s, t) in cells else np.nan for t in TELLINGS] for s in SIGNALS
        ])  # fmt: skip
        bound = max(float(np.nanmax(np.abs(grid), initial=0.0)), 0.05)
        axis.imshow(grid, cmap="PuOr", vmin=-bound, vmax=bound, origin="lower", aspect="auto",
                    interpolation="nearest")  # fmt: skip
        for (signal, telling), gain in cells.items():
            cell = TELLINGS.index(telling), SIGNALS.index(signal)
            text = f"{gain.effect:+.2f}\n± {gain.high - gain.effect:.2f}"
            colour = "white" if abs(gain.effect) > 0.7 * bound else "black"
            axis.text(*cell, text, ha="center", va="center", fontsize=8, color=colour)
        axis.set_xticks(range(len(TELLINGS)), [f"{t:g}" for t in TELLINGS])
        axis.set_yticks(range(len(SIGNALS)), [f"{s:g}" for s in SIGNALS])
        axis.set(xlabel="telling: what the text says", ylabel="signal: what the picture shows")
        axis.set_title(f"{title}: gain over CMCA, log2 ranks", fontsize=9)
        axis.grid(visible=False)
    return figure


def refinement_figure(evidence: Evidence, dataset: str) -> Figure:
    """Fig. 5: MedR of each system in pools of 500, before and after refinement, and the authors'.

    Ours are means over pools and seeds, with the standard deviation over seeds; the authors' those
    over ten pools of one training, which are other pools for θ than for θ̄.
    """
    script = paper_values("coherence", SCRIPT[PRINTED[dataset]]).astype(float)
    names = list(script.index)[::-1]
    figure, axes = plt.subplots(1, 2, figsize=(9, 0.3 * len(names) + 1.3), sharey=True, dpi=110)
    looks = ("θ, by cosine alone", "o", 0.12), ("θ̄, refined", "D", -0.12)
    endings = ("", ", refined"), ("MedR_theta", "MedR_theta_bar")
    for k, (label, marker, shift) in enumerate(looks):
        for y, name in enumerate(names):
            metric = f"MedR{endings[0][k]}"
            style = {"fmt": marker, "ms": 5, "capsize": 2, "color": plots.COLOURS[k]}
            if evidence.has(dataset, name, metric, "pools"):
                ours = evidence.means(dataset, name, metric, "pools")
                axes[0].errorbar(ours.mean(), y + shift, xerr=ours.std(), **style)
            column = endings[1][k]
            axes[1].errorbar(script.loc[name, column], y + shift,
                             xerr=script.loc[name, f"{column}_std"], **style)  # fmt: skip
        axes[0].plot([], [], marker, color=plots.COLOURS[k], label=label)
    axes[0].set_yticks(range(len(names)), names)
    axes[0].set(xlabel="MedR in pools of 500, ± over seeds", title=f"ours, {dataset}")
    source = "CITE++" if PRINTED[dataset] == "table4" else "Clue"
    axes[1].set(xlabel="MedR in pools of 500, ± over pools", title=f"authors' script, {source}")
    figure.legend(loc="outside upper center", ncols=2, fontsize=8)
    return figure


def sweep_figure(evidence: Evidence, dataset: str) -> Figure:
    """Fig. 8: mean log2 rank over λ_cls, a dot a seed; beside it the authors' MedR (CITE++)."""
    systems = {0.0: CMCA} | {system.lambda_cls: system for system in (CMCM, *SWEPT)}
    names = {value: systems[value].system for value in sorted(systems)}
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 2.8))
    levels = [
        np.log2(evidence.values(dataset, name, "rank")).mean(axis=1) for name in names.values()
    ]
    for x, of_seeds in enumerate(levels):
        left.plot([x] * len(of_seeds), of_seeds, ".", color=plots.COLOURS[0], alpha=0.5)
    left.plot([of_seeds.mean() for of_seeds in levels], "o-", color=plots.COLOURS[0])
    left.set_xticks(range(len(names)), [f"{value:g}" for value in names])
    left.set(xlabel="λ_cls", ylabel="mean log2 rank, ours", title=dataset)
    table = paper_values("coherence", "figure8_left_code")
    right.errorbar(range(len(table)), table["MedR"], table["MedR_std"], color=plots.COLOURS[1],
                   marker="o", capsize=3)  # fmt: skip
    right.set_xticks(range(len(table)), [f"{value:g}" for value in table["lambda_cls"]])
    right.set(xlabel="λ_cls (authors)", ylabel="MedR, authors'", title="CITE++")
    return figure


def controlled_bars(levels: Mapping[str, float], arrays: Arrays) -> Figure:
    """Mean log2 rank of systems trained on controlled pairs, a bar each, and three lines.

    Two lines are readers that know what every picture shows: one that knows no relation and takes
    any of the text's things, and one that knows all relations. The third is a random order.
    levels: system -> mean log2 rank.
    """
    figure, axis = plt.subplots(figsize=(8, 0.5 * len(levels) + 1.6), dpi=110)
    bars = axis.barh(list(levels), list(levels.values()), color=plots.COLOURS[: len(levels)])
    axis.invert_yaxis()
    axis.bar_label(bars, fmt="%.2f", label_type="center", color="white")
    for knows, label, style in (("things", "knows no relation", "--"),
                                ("relations", "knows all relations", ":")):  # fmt: skip
        level = mean_log_rank(arrays.truth[knows])
        axis.axvline(level, color="#333333", linestyle=style, label=f"reader that {label}")
    chance = np.log2(np.arange(1, len(arrays.truth["things"]) + 1)).mean()
    axis.axvline(chance, color="#777777", label="chance")
    axis.set(xlabel="mean log2 rank of the own picture (lower is better)")
    figure.legend(loc="outside lower center", ncols=3, fontsize=8)
    return figure


def relations_gain(evidence: Mapping[str, Evidence]) -> Figure:
    """What learning the relations gains over CMCA, and what knowing them would, with intervals.

    evidence: by tier. See `tables.relations_worth`.
    """
    worth = relations_worth(evidence)
    figure, axis = plt.subplots(figsize=(8, 0.34 * len(worth) + 1.3))
    axis.axvspan(
        -0.1, 0.1, color="#E69F00", alpha=0.15, linewidth=0, label="less than 7 % of a rank"
    )
    axis.axvline(0, color="#333333", linewidth=0.8)
    looks = {"learning": ("o", 0, "learned as a second task (CMCM)"),
             "knowing": ("D", 0.25, "known to the model (oracle)")}  # fmt: skip
    for colour, (name, (marker, shift, label)) in zip(plots.COLOURS, looks.items(), strict=False):
        effects = [one[name] for one in worth.values()]
        middle = [effect.effect for effect in effects]
        reach = [effect.high - effect.effect for effect in effects]
        y = np.arange(len(effects)) + shift
        axis.errorbar(middle, y, xerr=reach, fmt=marker, ms=5, capsize=2, color=colour, label=label)
    axis.set_yticks(range(len(worth)), list(worth))
    axis.set_ylim(len(worth) - 0.4, -0.5)
    axis.set(xlabel="gain over CMCA, mean log2 ranks (1 is half the rank), 95 % interval")
    figure.legend(loc="outside lower center", ncols=3, fontsize=8)
    return figure


def controlled_map(evidence: Evidence) -> Figure:
    """Gain over CMCA by the number of pairs, a line a λ_cls, a panel for each kind of collection.

    Bars are 95 % intervals. At zero, learning the relations makes no difference.
    """
    panels: dict[str, dict[int, dict[str, Effect]]] = {}
    for name, gains in controlled_gains(evidence).items():
        if not gains:  # not trained yet
            continue
        pairs = CONTROLLED[name]["pairs"]
        panels.setdefault(name.replace(f", {pairs} pairs", ""), {})[pairs] = gains
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(3.4 * columns, 2.6 * rows), dpi=110, squeeze=False, sharex=True,
        sharey=True,
    )  # fmt: skip
    for axis, (title, cells) in zip(axes.flat, panels.items(), strict=False):
        axis.axhline(0, color="#333333", linestyle="--", label="CMCA: no relations learnt")
        for k, (weight, system) in enumerate(WEIGHTS.items()):
            found = {pairs: gains[system] for pairs, gains in cells.items() if system in gains}
            x = [pairs * 1.06 ** (k - 1.5) for pairs in found]  # side by side, not on one another
            y = [gain.effect for gain in found.values()]
            reach = [gain.high - gain.effect for gain in found.values()]
            axis.errorbar(x, y, reach, fmt="o-", ms=4, capsize=2, color=plots.COLOURS[k],
                          label=f"CMCM, λ_cls = {weight:g}")  # fmt: skip
        axis.set_xscale("log")
        axis.set_xticks(ticks := sorted({dials["pairs"] for dials in CONTROLLED.values()}))
        axis.set_xticklabels(map(str, ticks))
        axis.minorticks_off()
        axis.set_title(title, fontsize=9)
        axis.label_outer()
    for axis in axes.flat[len(panels) :]:
        axis.axis("off")
    figure.supxlabel("training pairs", fontsize=10)
    figure.supylabel("gain over CMCA, log2 ranks", fontsize=10)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, fontsize=8)
    return figure


def figures(evidence: Evidence) -> dict[str, Figure]:
    """All figures that need nothing but evidence, by name."""
    if evidence.header["tier"] == CONTROLLED_TIER:
        return {"map": controlled_map(evidence)}
    figures = {"overview": overview(evidence), "curves": curves(evidence)}
    for name in at_defaults(evidence):
        figures[f"gap_{name}"] = gap_figure(evidence, name)
        figures[f"spread_{name}"] = spread(evidence, name)
        figures[f"refinement_{name}"] = refinement_figure(evidence, name)
        if all(evidence.has(name, system.system, "rank") for system in SWEPT):
            figures[f"sweep_{name}"] = sweep_figure(evidence, name)
    if any(len(cells) > 1 for cells in dials(evidence).values()):
        figures["map"] = map_figure(evidence)
    return figures
