"""Notebook 01's figures."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from mmlib.coherence import confidence
from mmlib.coherence_study import REFINED, SPLITS, Pairs, Scores, gaps, is_system
from mmlib.core import plots
from mmlib.core.related import RelatedPairs
from mmlib.core.tables import paper_values


def describe(collections: Mapping[str, Pairs]) -> pd.DataFrame:
    """Size of each split, and what texts and labels are like."""
    rows = {}
    for name, pairs in collections.items():
        for split in SPLITS:
            one = pairs.split(split)
            rows[f"{name}, {'dev' if split == 'val' else split}"] = {
                "pairs": len(one),
                "images": len(np.unique(one.image_of)),
                "words a text": np.mean([len(t.split()) for t in one.texts]),
                "relations a pair": one.labels.sum(axis=1).mean(),
                "pairs without any, %": 100 * (~one.labels.any(axis=1)).mean(),
            }
    return pd.DataFrame.from_dict(rows, orient="index").round(1)


def how_realised() -> pd.DataFrame:
    """How the picture world's texts realise each relation, and what in the picture goes with it."""
    from mmlib.world.discourse import HOW

    rows = {(scheme, name): how for scheme, told in HOW.items() for name, how in told.items()}
    return pd.DataFrame(pd.Series(rows, name="how the world realises it"))


def correlations(pairs: RelatedPairs) -> pd.DataFrame:
    """Correlation of every two relations; empty where one of them never varies."""
    names = list(pairs.relations)
    return pd.DataFrame(pairs.labels.astype(float), columns=names).corr().round(2)


def labelled_text(pairs: RelatedPairs, row: int) -> str:
    """A text with the relations that hold, for a caption below its picture."""
    names = [n for n, holds in zip(pairs.relations, pairs.labels[row], strict=True) if holds]
    return f"{pairs.texts[row]} [{', '.join(names) or 'none'}]"


def one_of_each(pairs: RelatedPairs) -> Figure:
    """For every relation the first pair of which it holds, and no earlier one shown."""
    rows: list[int] = []
    for c in range(len(pairs.relations)):
        holds = [int(i) for i in np.flatnonzero(pairs.labels[:, c]) if i not in rows]
        rows += holds[:1]
    assert pairs.open_image is not None
    images = [pairs.open_image(int(pairs.image_of[i])) for i in rows]
    return plots.show_pictures(
        images, [labelled_text(pairs, i) for i in rows], columns=len(rows), size=2.1
    )


def confidence_figure() -> Figure:
    """Fig. 3a: one relation's confidence over its probability, for the printed λ and ours."""
    x = np.linspace(0, 1, 201)
    figure, axis = plt.subplots(figsize=(5, 3))
    for strength in (0.01, 0.12, 1.0):
        axis.plot(x, confidence(x[:, None], strength), label=f"λ = {strength:g}")
    axis.set(xlabel="probability x of the relation", ylabel="confidence η")
    axis.legend()
    return figure


def gap_figure(answers: Mapping[str, Sequence[dict]], names: Sequence[str]) -> Figure:
    """Fig. 3b: rank of the own image over Δ, a dot a dev text, one training of each system."""
    figure, axes = plt.subplots(1, len(names), figsize=(4.6 * len(names), 3.2), sharey=True)
    for axis, name in zip(np.atleast_1d(axes), names, strict=True):
        delta, rank = gaps(answers[name][:1])
        axis.plot(delta[0], rank[0], ".", alpha=0.4)
        axis.axvline(0.2, color="#333333", linewidth=0.8, linestyle="--")
        axis.set(xlabel="Δ, best cosine minus second best", yscale="log", title=name)
    np.atleast_1d(axes)[0].set(ylabel="rank of the text's own image")
    return figure


def medr_figure(scores: Scores, dataset: str) -> Figure:
    """Fig. 5: MedR of each system under θ and θ̄, a dot a training (mean over the same pools)."""
    own = scores[dataset]
    names = [n for n in own if is_system(n) and n != "Random"]
    figure, axis = plt.subplots(figsize=(max(6.0, 0.95 * len(names)), 3.4))
    for i, name in enumerate(names):
        for shift, variant, colour in ((-0.15, "", 0), (0.15, f" {REFINED}", 1)):
            if name + variant in own:
                values = own[name + variant]["medr"].mean(axis=1)
                axis.plot([i + shift] * len(values), values, "o", color=plots.COLOURS[colour])
    for colour, label in enumerate(("θ", "θ̄ (λ, T as in the code)")):
        axis.plot([], [], "o", color=plots.COLOURS[colour], label=label)
    axis.set_xticks(range(len(names)), [n.replace("_", "\n") for n in names], fontsize=8)
    axis.set(ylabel="MedR in pools (lower is better)")
    axis.legend(fontsize=8)
    return figure


def spread_figure(scores: Scores, dataset: str, names: Sequence[str]) -> Figure:
    """MedR of every pool of every training: what varies with the pool, and what with the seed."""
    figure, axes = plt.subplots(1, len(names), figsize=(3.6 * len(names), 3), sharey=True)
    for axis, name in zip(np.atleast_1d(axes), names, strict=True):
        values = scores[dataset][name]["medr"]
        axis.boxplot(list(values), tick_labels=[f"seed {i}" for i in range(len(values))])
        axis.set(title=name)
    np.atleast_1d(axes)[0].set(ylabel=f"MedR of {values.shape[1]} pools")
    return figure


PRINTED_SWEEPS = {"λ_cls": "figure8_left_code", "maximal length": "figure8_right_clue_code"}


def sweep_figure(
    panels: Mapping[str, Mapping[float, np.ndarray]], chosen: Mapping[str, float]
) -> Figure:
    """Fig. 8: MedR over λ_cls and over the maximal length, ours above the authors'.

    panels: of `coherence_study.sweeps`. chosen: the tier's own value of each. The band: the mean
    at that value, plus and minus the standard deviation between trainings that differ in nothing
    but their seed, pooled over all values.
    """
    figure, axes = plt.subplots(2, len(panels), figsize=(4.6 * len(panels), 5.4), squeeze=False)
    for (above, below), (label, values) in zip(axes.T, panels.items(), strict=True):
        places = np.arange(len(values))
        means = np.array([each.mean() for each in values.values()])
        if len(next(iter(values.values()))) > 1:
            band = np.sqrt(np.mean([each.var(ddof=1) for each in values.values()]))
            centre = values[chosen[label]].mean()
            above.axhspan(centre - band, centre + band, color="#cccccc", alpha=0.6)
        for place, each in zip(places, values.values(), strict=True):
            above.plot([place] * len(each), each, "o", color=plots.COLOURS[0], alpha=0.6)
        above.plot(places, means, color=plots.COLOURS[0])
        above.set_xticks(places, [f"{value:g}" for value in values])
        above.set(xlabel=label, ylabel="MedR, ours")
        table = paper_values("coherence", PRINTED_SWEEPS[label])
        at, spread = np.arange(len(table)), table["MedR_std"]
        below.errorbar(at, table["MedR"], spread, color=plots.COLOURS[1], marker="o", capsize=3)
        below.set_xticks(at, [f"{value:g}" for value in table.iloc[:, 0]])
        below.set(xlabel=f"{label} (authors)", ylabel="MedR, authors'")
    return figure


def attention_figure(
    pairs: RelatedPairs, tokens: Any, shown: Mapping[str, Sequence[dict]]
) -> Figure:
    """Fig. 7: the weight of each word in some texts, one bar a system. system -> examples."""
    count = len(next(iter(shown.values())))
    figure, axes = plt.subplots(count, 1, figsize=(9, 1.9 * count), squeeze=False)
    width = 0.8 / len(shown)
    for i, axis in enumerate(axes[:, 0]):
        for k, (name, examples) in enumerate(shown.items()):
            weights = examples[i]["attention"]
            x = np.arange(len(weights)) + (k - (len(shown) - 1) / 2) * width
            axis.bar(x, weights, width, label=name, color=plots.COLOURS[k])
        words = tokens(pairs.texts[next(iter(shown.values()))[i]["text"]])[: len(weights)]
        axis.set_xticks(range(len(words)), words, fontsize=8, rotation=30)
        axis.set(ylabel="weight α")
    axes[0, 0].legend(fontsize=8, ncols=len(shown))
    return figure


def retrieved(pairs: RelatedPairs, shown: Mapping[str, Sequence[dict]], columns: int = 5) -> Figure:
    """Fig. 6: for some texts the own image and the best images of each system, the own framed."""
    names, count = list(shown), len(next(iter(shown.values())))
    assert pairs.open_image is not None
    figure, axes = plt.subplots(
        count * len(names), columns + 1,
        figsize=(1.45 * (columns + 1), 1.75 * count * len(names)), squeeze=False, layout="none",
    )  # fmt: skip
    figure.subplots_adjust(left=0.1, right=0.99, top=0.97, bottom=0.01, hspace=0.22, wspace=0.05)
    for i in range(count):
        for k, name in enumerate(names):
            example, row = shown[name][i], axes[i * len(names) + k]
            _row(pairs, example, row)
            row[0].set_ylabel(f"{name}\nrank {example['rank']:g}", fontsize=8)
            if k == 0:
                text = textwrap.shorten(labelled_text(pairs, example["text"]), 140)
                row[0].set_title(text, fontsize=8, loc="left")
    return figure


def _row(pairs: RelatedPairs, example: Mapping[str, Any], row: Sequence[Any]) -> None:
    assert pairs.open_image is not None
    own = int(pairs.image_of[example["text"]])
    for axis, pair in zip(row, [example["text"], *example["best"]], strict=False):
        image = int(pairs.image_of[pair])
        axis.imshow(pairs.open_image(image))
        axis.set(xticks=[], yticks=[])
        axis.grid(False)
        for side in axis.spines.values():
            side.set(visible=image == own, color=plots.TRUE, linewidth=3)
