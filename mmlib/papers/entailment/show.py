"""What is shown of paper 02: its tables beside ours, and figures of data, models and evidence."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from PIL import Image

from mmlib.core import plots
from mmlib.core.effects import over_seeds
from mmlib.core.evidence import EPOCHS, Evidence
from mmlib.core.paths import table_beside
from mmlib.core.tables import Cells, beside, mean_and_deviation, paper_values, table
from mmlib.papers.entailment.claims import VOCABULARY, labels_and_weights, main_test, relevance
from mmlib.papers.entailment.data.controlled import Collection
from mmlib.papers.entailment.method.classifier import Settings, mask_regions
from mmlib.papers.entailment.method.metrics import METRICS, recalls
from mmlib.papers.entailment.method.revision import Revision
from mmlib.papers.entailment.run import systems
from mmlib.papers.entailment.run.systems import FAMILIES, PAIRS, PAPER, REFERENCE, name_of

_TABLE = table_beside(__file__)
PRINTED, TESTS, RETRIEVAL, BESIDE, SOURCES, LADDER = (
    _TABLE[name] for name in ("printed", "tests", "retrieval", "beside", "sources", "ladder")
)
CONTROLLED_LOSSES = {"dual": "CLIP-like", "triplet": "VSE-like"}

# --- Tables --------------------------------------------------------------------------------------


def tables(evidence: Evidence) -> Mapping[str, Callable[[], pd.DataFrame]]:
    """All tables that need nothing but evidence, by file name."""
    [name] = evidence.datasets
    cells, tier = Cells(evidence, name), evidence.header["tier"]
    rankings = [r["system"] for r in systems.RANKINGS] + [v.system for v in systems.variants(tier)]
    every = {"table1": _table1, "table3": table3, "judges": _judges, "mining": mining}
    return {
        **{number: partial(of, evidence, name) for number, of in every.items()},
        **({"plane": partial(plane, evidence, name)} if tier == "world" else {}),
        "retrieval": lambda: table(cells.named(rankings, "RSUM"), RETRIEVAL, cells.mean, None, 1),
        **{number: partial(beside_paper, evidence, name, number) for number in BESIDE},
    }


def _judges(evidence: Evidence, dataset: str) -> pd.DataFrame:
    test, paper = main_test(evidence, dataset), paper_values(PAPER, "table3")["F0.5"]
    names = [r["system"] for r in systems.BASELINES]
    names += [judge.system for judge in systems.judges(evidence.header["tier"])]
    columns = {("with inputs", metric): f"{metric}, with inputs" for metric in METRICS}
    columns |= {("network alone", metric): metric for metric in METRICS} | {("paper", "F0.5"): ""}

    def cell(name: str, metric: str) -> float | None:
        if not metric:
            return float(paper[PRINTED[name]]) if name in PRINTED else None
        return float(VOCABULARY.values(evidence, (dataset, name, metric)).mean(axis=1).mean())

    rows = Cells(evidence, dataset, test).named(names, "margin")
    return table(rows, columns, cell, None, 1)


def _table1(evidence: Evidence, dataset: str) -> pd.DataFrame:
    pairs = paper_values(PAPER, "table1")
    pairs.columns = pd.MultiIndex.from_product([["paper"], pairs.columns])
    for test in (name for name in TESTS if evidence.has(dataset, PAIRS, "label", name)):
        label, weight = labels_and_weights(evidence, dataset, test)
        pairs["ours", test] = [round(weight.sum()), round(weight[label == 1].sum())]
    return pairs


def table3(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """Table 3 beside ours: each judge's network alone, at its threshold.

    ours: in the test, of whose pairs few are entailed. half entailed: its pairs weighted so that as
    many are as in the paper's test, 1,006 of 2,000; what is called entailed is the same.
    """
    printed = paper_values(PAPER, "table3")
    ours_of = {theirs: ours for ours, theirs in PRINTED.items()}

    def cell(row: str, column: tuple[str, str]) -> str:
        metric, of = column
        if of == "paper":
            return str(printed.loc[row, metric])
        name = metric + ", as many entailed" * (of == "half entailed")
        of_pairs = VOCABULARY.values(evidence, (dataset, ours_of[row], name))
        return mean_and_deviation(of_pairs.mean(axis=1))

    kinds = ("paper", "ours", "half entailed")
    return table(printed.index, [(m, of) for m in printed.columns for of in kinds], cell)


def mining(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """Pairs that a miner takes, and how many are true; baselines take as many as the judge."""

    def total(metric: str) -> float:
        if not evidence.has(dataset, systems.MINING, metric, "mined"):
            return np.nan  # where nobody knows what is true
        values = evidence.values(dataset, systems.MINING, metric, None, "mined")
        return float(values.sum(axis=1).mean())

    rows = {"all candidates": "candidates", "the judge": "mined"}
    rows |= {name: name for name in ("overlap", "cosine", "inputs")}
    mined = pd.DataFrame(index=pd.Index(rows))
    mined["pairs"] = [total("candidates" if n == "candidates" else "mined") for n in rows.values()]
    mined["true"] = [total(f"{name}, true") for name in rows.values()]
    mined["precision, %"] = 100 * mined["true"] / mined["pairs"].clip(lower=1)
    mined["of the true candidates, %"] = 100 * mined["true"] / total("candidates, true")
    mined["of all true pairs, %"] = 100 * mined["true"] / total("true")
    return mined.dropna(axis=1, how="all").round(1)


def plane(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """Gains over extra golden by the precision and recall of the candidates that are taken, with
    95 % intervals: of the judge, and of the truth with errors put in.
    """
    judge = mining(evidence, dataset).loc["the judge"]
    rows: dict[tuple, str] = {
        ("all true pairs, candidates or not", 100, ""): name_of("dual", "both", "all"),
        ("the judge", *judge.iloc[2:4].round().astype(int)): name_of("dual", "both", "miner"),
        ("the judge, again", "", ""): name_of("dual", "both", "miner, again"),
    }
    rows |= {
        ("truth with errors", round(100 * v.precision), round(100 * v.recall)): v.system
        for v in systems.variants("world")
        if (v.use, v.pairs) == ("both", "candidates") and v.family == "dual"
    }
    cells, reference = Cells(evidence, dataset), name_of("dual", REFERENCE)
    rows = {row: name for row, name in rows.items() if cells.has((name, "mAP"))}

    def cell(name: str, metric: str) -> str:
        return cells.effect({(name, metric): 1, (reference, metric): -1}).told(2)

    frame = table(rows, {"mAP": "mAP", "RSUM": "RSUM"}, cell)
    return frame.rename_axis(["pairs", "precision, %", "recall, %"])


def beside_paper(evidence: Evidence, dataset: str, number: str) -> pd.DataFrame:
    """A table of `BESIDE` beside ours.

    Plain fine-tuning is the paper's baseline (as in C8), both uses of the miner's set its method;
    extra golden, ours, takes as many steps as that. Beside E@M, labelled by hand, stands E@10 by
    logic.
    """
    cells, rows = Cells(evidence, dataset), {}
    for family, theirs in systems.PAPER_RETRIEVERS.items():
        rows[theirs] = name_of(family, "plain")
        rows[f"{theirs} + entailment-enhanced training"] = name_of(family, "both", "miner")
        rows[f"{theirs}, {REFERENCE}"] = name_of(family, REFERENCE)
    ours = {"E@10": "E@10, judge", "E@30": "E@30, judge", "E@M": "E@10"}

    def cell(name: str, metric: str) -> str:
        if metric in ours:
            return cells.spread(name, ours[metric])
        of_images = recalls(cells.values({(name, "hits"): 1}))[metric]
        return mean_and_deviation(of_images.mean(axis=1))

    return beside(table(rows, [*recalls(np.zeros(1)), *ours], cell), paper_values(PAPER, number))


# --- Figures of the evidence ---------------------------------------------------------------------


def figures(evidence: Evidence) -> Mapping[str, Callable[[], Figure]]:
    """All figures that need nothing but evidence, by file name."""
    [name] = evidence.datasets
    starts = [name_of(family, "start") for family in ("dual", "align")]
    panels = {
        ("Judges", "loss on dev"): ["Only TE", "Only VE", "Single stream"],
        ("Retrievers, stage A", "RSUM on dev"): starts,
        ("Retrievers, stage B", "RSUM on dev"): [name_of(f, REFERENCE) for f in FAMILIES],
    }
    curves: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    for (title, label), chosen in panels.items():
        metric = "dev_loss" if title == "Judges" else "dev_RSUM"
        curves[title, label] = {
            system: evidence.curves(name, system, metric)
            for system in chosen if evidence.has(name, system, metric, EPOCHS)
        }  # fmt: skip
    shown = {"between": partial(between, evidence, name), "ladder": partial(ladder, evidence, name)}
    return {**shown, "curves": lambda: plots.curves(curves)}


def gains(
    evidence: Evidence, series: Mapping[str, Mapping[str, tuple[str, str]]],
    metrics: Sequence[str], live: Mapping[str, Mapping[str, float]] = {}, numbers: str = "",
) -> Figure:  # fmt: skip
    """Gains with their 95 % intervals, a panel a metric; what was not recorded is left out.

    series: label -> row -> a system, and what it is held against. live: system -> metric -> gain of
    a training of this run, a diamond. numbers: see `plots.spans`.
    """
    [dataset] = evidence.datasets
    cells, live = Cells(evidence, dataset), evidence.comparable(live)

    def recorded(rows: Mapping[str, tuple[str, str]], metric: str) -> dict[str, tuple[str, str]]:
        return {n: p for n, p in rows.items() if cells.has(*((system, metric) for system in p))}

    names = list(dict.fromkeys(n for rows in series.values() for n in recorded(rows, metrics[-1])))
    row = 0.2 + (0.16 if numbers else 0.08) * len(series)  # inches
    size = (max(8, 3.7 * len(metrics)), 1.2 + row * len(names))
    figure, axes = plt.subplots(1, len(metrics), figsize=size, sharey=True, squeeze=False)
    for axis, metric in zip(axes[0], metrics, strict=True):
        plots.chance_line(axis, 0, "golden pairs only", upright=True)
        spans = {
            label: {
                names.index(name): plots.span(cells.effect({(a, metric): 1, (b, metric): -1}))
                for name, (a, b) in recorded(rows, metric).items()
            }
            for label, rows in series.items()
        }
        plots.spans(axis, {k: v for k, v in spans.items() if v}, shift=0.22, numbers=numbers)
        for text in axis.texts:  # legible where a line runs behind it
            text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.5})
        for name, (system, _) in ((n, p) for rows in series.values() for n, p in rows.items()):
            if metric in live.get(system, {}):
                diamond = {"color": "black", "mfc": "none", "ms": 8, "label": "this run"}
                axis.plot(live[system][metric], names.index(name), "D", **diamond)
        axis.set(xlabel=f"gain in {metric}, points")
        axis.margins(x=0.12)
        plots.name_rows(axis, names)
    plots.legend_below(figure)
    return figure


def _over_golden(family: str, use: str, pairs: str = "") -> tuple[str, str]:
    return name_of(family, use, pairs), name_of(family, REFERENCE)


def ladder(
    evidence: Evidence, dataset: str, live: Mapping[str, Mapping[str, float]] = {}
) -> Figure:
    """What each variant gains over extra golden: order, first of the list, RSUM.

    live: variant -> metric -> gain of a training of this run, a diamond.
    """
    series = {
        title: {row: _over_golden(family, *use) for row, use in LADDER.items()}
        for family, title in FAMILIES.items()
    }
    return gains(evidence, series, (*relevance(evidence, dataset), "RSUM"), live)


def between(evidence: Evidence, dataset: str, metrics: Sequence[str] = ()) -> Figure:
    """What the miner gains beside the truth, both over extra golden, a row a family.

    All pairs are used both ways. metrics: the measures, without: all that count every true text.
    """
    series = {
        label: {title: _over_golden(family, *change) for family, title in FAMILIES.items()}
        for label, change in SOURCES.items()
    }
    return gains(evidence, series, metrics or relevance(evidence, dataset), numbers="+.1f")


def dials(evidence: Evidence, dataset: str, metric: str = "mAP") -> Figure:
    """CLIP-like's gains over extra golden with the same captions and the same λ.

    The truth on an image's general, all and rare captions; the rate λ of weak batches, with one
    Adam for all batches or two; what fills the judge's extra batches.
    """
    reference = name_of("dual", REFERENCE)
    excluded, true, mined = (
        name_of("dual", *use) for use in (("exclusion", "all"), ("both", "all"), ("both", "miner"))
    )
    endings = {"general": ", general captions", "all": "", "rare": ", rare captions"}
    series = {
        label: {
            f"all true pairs, {captions} captions": (name + ending, reference + ending)
            for captions, ending in endings.items()
        }
        for label, name in {"out of the negatives": excluded, "both uses": true}.items()
    }
    uses = series["both uses"]
    endings = {f", λ = {Revision().ratio:g}, shared": ""}
    endings |= {s[len(true) :]: s[len(true) :] for s in evidence.systems(dataset)
                if s.startswith(f"{true}, λ")}  # fmt: skip
    for words in sorted(endings, key=lambda words: ("separate" in words, words)):
        row = words.replace("shared", "one Adam").replace("separate", "an Adam for each")
        uses[f"all true pairs{row}"] = (true + endings[words], reference + endings[words])
    for filling, ending in {"golden": "", "weak": systems.FILLED}.items():
        uses[f"the judge's pairs, filled with {filling} ones"] = (mined + ending, reference)
    return gains(evidence, series, [metric], numbers="+.1f")


def density(evidence: Evidence) -> float:
    """The share of captions of other test images that fit an image, as C10 counts them."""
    [dataset] = evidence.datasets
    fitting = VOCABULARY.values(evidence, (dataset, PAIRS, "foreign captions that fit"), [0])
    return float(fitting.mean()) / (5 * (fitting.shape[1] - 1))


# --- Figures of the controlled collection --------------------------------------------------------


def controlled_batch(built: Mapping[str, Collection], count: int = 12) -> Figure:
    """Which captions are true of which of the first training pictures, one panel a collection.

    built: title -> collection; all have the same pictures. count: how many pictures.
    """
    marks = {"own caption": plots.TRUE, "false negative: true, counts as wrong": plots.COLOURS[1],
             "negative: not true": "#E5E5E5"}  # fmt: skip
    figure, axes = plt.subplots(1, len(built), figsize=(3.7 * len(built) + 1.8, 4.9), dpi=110)
    for axis, (title, entry) in zip(axes, built.items(), strict=True):
        split = entry.splits["train"]
        assert split.fits is not None
        kinds = np.where(split.fits[:count, :count], 1, 2)
        np.fill_diagonal(kinds, 0)
        axis.pcolormesh(kinds, cmap=ListedColormap(list(marks.values())), vmin=0, vmax=2,
                        edgecolor="white", linewidth=1.5)  # fmt: skip
        middle = np.arange(count) + 0.5
        axis.set_xticks(middle, [text.replace(" ", ", ") for text in split.texts[:count]],
                        rotation=90)  # fmt: skip
        axis.set_yticks(middle, [])
        axis.set(title=title, xlabel="captions, each written for one of the pictures")
        axis.set(aspect="equal", ylim=(count, 0))
        axis.grid(visible=False)
        axis.tick_params(length=0)
    axes[0].set_yticklabels([", ".join(things) for things in entry.shown[:count]])
    axes[0].set(ylabel="pictures, by what they show")
    figure.suptitle("Many captions that count as wrong are true")
    handles = [Patch(color=colour, label=label) for label, colour in marks.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(marks))
    return figure


def controlled_gains(trainings: pd.DataFrame, data: Mapping[str, float] = {}) -> Figure:
    """What knowing the false negatives gives, by their density: levels, and gains with intervals.

    trainings: one row each, with "density", "family", "use" ("random", "golden only" or "both"),
    "seed" and "mAP". Lines are means over seeds, bars 95 % intervals. data: densities to mark.
    """
    of = trainings.set_index(["family", "density", "seed", "use"]).mAP.unstack()
    figure, (level, gain_axis) = plt.subplots(1, 2, figsize=(9.5, 3.8))
    shares, spans = of.index.unique("density"), {}
    means = of.groupby(level=["family", "density"]).mean()
    for colour, (family, title) in zip(plots.COLOURS, CONTROLLED_LOSSES.items(), strict=False):
        uses = {"both": ("o-", "truth known"), "golden only": ("o:", "golden pairs only")}
        for use, (style, words) in uses.items():
            line = means.loc[family, use]
            level.plot(line.index, line, style, ms=4, color=colour, label=f"{title}, {words}")
        spans[title] = {
            share: plots.span(over_seeds(of.loc[family, share].eval("both - `golden only`")))
            for share in shares
        }
    chance = of["random"].groupby(level="density").mean()
    level.plot(chance.index, chance, "--", color="#333333", label="chance")
    gain_axis.set_xscale("log")  # before the spans, whose shift it decides
    level.set_xscale("log")
    plots.spans(gain_axis, spans, shift=0.08, style="o-", upright=True)
    plots.chance_line(gain_axis, 0, "golden pairs only")
    for title, share in data.items():
        gain_axis.axvline(share, color="#777777", linestyle=":")
        gain_axis.annotate(f"{title}: 1 in {1 / share:.0f}", (share, 0.98), (3, 0), rotation=90,
                           xycoords=("data", "axes fraction"), textcoords="offset points",
                           va="top", fontsize=8)  # fmt: skip
    for axis in (level, gain_axis):
        axis.set_xticks(list(shares), [f"1 in {1 / share:.0f}" for share in shares])
        axis.minorticks_off()
        axis.set_xlabel("captions of other pictures that are true")
        axis.legend(fontsize=8, loc="upper left" if axis is level else "center left")
    level.set(ylabel="mAP over all true captions, %", title="mAP with the truth and without")
    gain_axis.set(ylabel="gain in mAP, points", title="The truth gives more where more fit")
    return figure


def on_one_axis(trainings: Sequence[tuple[str, str, int, float]], reference: pd.Series) -> Figure:
    """From golden pairs only to all true pairs: gains in mAP, 95 % intervals over seeds.

    trainings: family, one of SOURCES, seed and mAP of each. reference: mAP with golden pairs only,
    by family and seed.
    """
    series: dict[str, dict[float, plots.Span]] = {}
    for label in SOURCES:
        for y, family in enumerate(CONTROLLED_LOSSES):
            gained = [value - reference[family, seed] for of, pairs, seed, value in trainings
                      if (of, pairs) == (family, label)]  # fmt: skip
            series.setdefault(label, {})[y] = plots.span(over_seeds(gained))
    figure, axis = plt.subplots(figsize=(9, 0.8 + 1.1 * len(CONTROLLED_LOSSES)))
    plots.chance_line(axis, 0, "golden pairs only", upright=True)
    plots.spans(axis, series, shift=0.22, numbers="+.1f")
    plots.name_rows(axis, [*CONTROLLED_LOSSES.values()])
    axis.set(xlabel="gain in mAP, points", title="Gains over golden pairs only, by source of pairs")
    axis.margins(x=0.12)
    plots.legend_below(figure)
    return figure


def attended(attention: np.ndarray, words: Sequence[str], things: Sequence[str]) -> Figure:
    """How much each word attends to each region of a controlled picture (words, regions)."""
    figure, axis = plt.subplots(figsize=(8, 1.2 + 0.35 * len(words)))
    regions = [*things, *["nothing"] * (attention.shape[1] - len(things))]
    weights = pd.DataFrame(attention, words, regions)
    drawn = plots.heat_map(axis, weights, 0, 1, lambda y, x: f"{attention[y, x]:.2f}", "Blues")
    axis.set(xlabel="regions of the picture", ylabel="words of the hypothesis",
             title="How much each word attends to each region, in one pair")  # fmt: skip
    figure.colorbar(drawn, label="attention")
    return figure


# --- Figures of the data -------------------------------------------------------------------------


def masked_regions(pictures: Sequence[Image.Image], attention: np.ndarray) -> Figure:
    """Pictures, each with what the masking leaves of it on its right.

    attention (pictures, R): of a grid of √R x √R regions in rows from the top left.
    """
    side, shown, rows = round(attention.shape[1] ** 0.5), [], torch.as_tensor(attention)
    left = mask_regions(torch.ones(*rows.shape, 1), rows, Settings.masking)
    for picture, visible in zip(pictures, left[..., 0].numpy(), strict=True):
        grid = Image.fromarray((255 * (1 - visible)).astype(np.uint8).reshape(side, side))
        hidden = grid.resize(picture.size, Image.Resampling.NEAREST)
        grey = Image.new("RGB", picture.size, (128, 128, 128))
        shown += [picture, Image.composite(grey, picture.convert("RGB"), hidden)]
    return plots.show_pictures(shown, ["picture", "masked"] * len(pictures), len(shown), 1.6)
