"""Notebook 02's figures."""

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import PlaceHolderLayoutEngine  # "none" is lost when saved
from PIL import Image

from mmlib.core import plots
from mmlib.core.entailment_pairs import Samples
from mmlib.core.intervals import Estimate
from mmlib.core.plots import COLOURS, FALSE, TRUE
from mmlib.entailment import mask_regions, scores_at
from mmlib.entailment_study import FULL, Data, Scores, threshold_of
from mmlib.revision import effective_ratio

GOLDEN, ENTAILED, OTHER, UNJUDGED = COLOURS[0], TRUE, "#000000", "#888888"
LABELS = {1: ("entailed", TRUE), 0: ("not entailed", FALSE)}
FORMS = {"te": "text alone", "ve": "picture alone", "mme": "picture and text"}
POINT = 72  # points in an inch
LEADING = 1.25  # height of a line in font sizes
WIDE = 10.8  # inches of figures with texts

OpenImage = Callable[[int], Image.Image]


# --- Cards: a picture with texts beside it --------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """A piece of text with one look. size: of its font in points; gap: points kept above it."""

    text: str
    size: float = 8
    colour: str = "#000000"
    weight: str = "normal"
    style: str = "normal"
    gap: float = 0

    def wrapped(self, inches: float) -> str:
        """The text in lines that fit a width."""
        letter = self.size * (0.63 if self.weight == "bold" else 0.56)  # points, at a guess
        return textwrap.fill(self.text, max(8, int(inches * POINT / letter)))

    def height(self, inches: float) -> float:
        """Points that the text takes in that width, its gap included."""
        return self.gap + (self.wrapped(inches).count("\n") + 1) * self.size * LEADING


def _stack(axis: Axes, blocks: Sequence[Block], inches: float, top: float = 0) -> None:
    """Write blocks below each other, from `top` points below the upper left corner of an axis."""
    for block in blocks:
        axis.annotate(
            block.wrapped(inches), (0, 1), (0, -top - block.gap), "axes fraction", "offset points",
            va="top", color=block.colour, fontsize=block.size, fontweight=block.weight,
            fontstyle=block.style, linespacing=1.12, annotation_clip=False,
            parse_math=False,
        )  # fmt: skip
        top += block.height(inches)


def _show(axis: Axes, picture: Image.Image, frame: str = "") -> None:
    """A picture without ticks, in a frame of that colour where one is given."""
    axis.imshow(picture)
    axis.set(xticks=[], yticks=[])
    axis.grid(visible=False)
    for spine in axis.spines.values():
        spine.set(visible=bool(frame), color=frame or None, linewidth=4)


def _axis(figure: Figure, left: float, down: float, width: float, height: float) -> Axes:
    """An empty axis; where and how large in inches, from the figure's upper left corner."""
    wide, tall = figure.get_size_inches()
    axis = figure.add_axes(
        (left / wide, (tall - down - height) / tall, width / wide, height / tall)
    )
    axis.axis("off")
    axis.set_anchor("NW")
    return axis


def _tall(blocks: Sequence[Block], inches: float) -> float:
    """Inches that blocks below each other take."""
    return sum(block.height(inches) for block in blocks) / POINT


def _cards(
    cards: Sequence[tuple[Image.Image, Sequence[Block]]], columns: int, side: float = 1.5
) -> Figure:
    """Pictures, each with its blocks on its right. Every second axis holds the texts of a card."""
    wide = WIDE / columns
    inches = wide - side - 0.35
    lines = [cards[i : i + columns] for i in range(0, len(cards), columns)]
    heights = [max(side, *(_tall(blocks, inches) for _, blocks in own)) + 0.25 for own in lines]
    figure = plt.figure(figsize=(WIDE, sum(heights)), layout=PlaceHolderLayoutEngine(True, True))
    for line, own in enumerate(lines):
        for column, (picture, blocks) in enumerate(own):
            left, down = column * wide + 0.05, sum(heights[:line]) + 0.05
            _axis(figure, left, down, side, side).imshow(picture)
            _stack(_axis(figure, left + side + 0.12, down, inches, side), blocks, inches)
    return figure


# --- How common true "negatives" are --------------------------------------------------------------


def fit_counts(fits: np.ndarray, image_of: np.ndarray) -> Figure:
    """Fig. 3: how many other images a caption fits, and how many foreign captions an image.

    fits (images, captions) bool; image_of (captions,): of each caption, whose pair is not counted.
    """
    foreign = fits.astype(bool).copy()
    foreign[image_of, np.arange(len(image_of))] = False
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
    for axis, counts, what, of in (
        (axes[0], foreign.sum(axis=0), "other images that a caption fits", "captions"),
        (axes[1], foreign.sum(axis=1), "foreign captions that fit an image", "images"),
    ):
        width = max(1, math.ceil((counts.max() + 1) / 40))
        heights, *_ = axis.hist(counts, np.arange(-0.5, counts.max() + width, width), alpha=0.75)
        if heights.max() > 50 * heights[heights > 0].min():
            axis.set(yscale="log", ylim=(0.7, None))
        median, most = float(np.median(counts)), int(counts.max())
        axis.axvline(median, color=COLOURS[1], label=f"median {median:g}")
        axis.axvline(most, color=COLOURS[6], linestyle=":", label=f"maximum {most}")
        none = 100 * float((counts == 0).mean())
        axis.set(xlabel=what, ylabel=of, title=f"{100 - none:.0f} % of {of} have at least one")
        axis.legend(fontsize=8, loc="upper right", frameon=True, framealpha=0.9, edgecolor="none")
    return figure


def fitting_pictures(
    caption: str,
    rows: Sequence[int] | np.ndarray,
    open_image: OpenImage,
    own_row: int,
    count: int = 8,
    judged: int = 0,
) -> Figure:
    """Pictures that one caption fits: its own, framed in green, and `count` others.

    rows: all pictures that it fits; the first ones are shown. judged: how many others somebody
    looked at, where that is not all of them.
    """
    others = [int(row) for row in rows if row != own_row]
    shown = [own_row, *others[:count]]
    columns = -(-len(shown) // 2) if len(shown) > 5 else len(shown)
    lines = -(-len(shown) // columns)
    figure, axes = plt.subplots(
        lines, columns, figsize=(max(6.0, 1.9 * columns), 1.9 * lines + 0.7), squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for axis in axes.flat:
        axis.axis("off")
    for axis, row in zip(axes.flat, shown, strict=False):
        axis.axis("on")
        _show(axis, open_image(row), TRUE if row == own_row else "")
    many = f"{len(others)} other picture{'' if len(others) == 1 else 's'}"
    many += f" of {judged} that people judged" if judged else ""
    title = textwrap.fill(f"“{caption}” fits {many}", int(13 * figure.get_figwidth()))
    figure.suptitle(title, fontsize=10, parse_math=False)
    return figure


# --- The data and the classifier ------------------------------------------------------------------


def sample_sheet(
    samples: Samples,
    rows: Sequence[int] | np.ndarray,
    open_image: OpenImage,
    merged: Mapping[str, Sequence[str]],
    columns: int = 2,
) -> Figure:
    """Fig. 6: pairs as somebody who labels them sees them; a black picture where there is none.

    merged: premise text -> the captions that it was made of, as `entailment_study.Data.merged`.
    """
    cards = []
    for row in rows:
        at, premise = int(samples.image[row]), samples.premise[row]
        picture = Image.new("RGB", (64, 64)) if at < 0 else open_image(at)
        said, colour = LABELS[int(samples.label[row])]
        blocks = [Block(FORMS[samples.kind[row]], 8, "#666666", style="italic")]
        blocks += [Block(f"– {one}", 7.5) for one in merged.get(premise, (premise,)) if one]
        blocks += [
            Block(samples.hypothesis[row], 9, weight="bold", gap=5),
            Block(said, 9, colour, weight="bold", gap=2),
        ]
        cards.append((picture, blocks))
    return _cards(cards, columns)


def masked_regions(
    pictures: Sequence[Image.Image], attention: np.ndarray, ratio: float = 0.4
) -> Figure:
    """Pictures, [CLS]'s attention to their regions, and what the masking leaves of them.

    attention (pictures, R): of a grid of √R x √R regions in rows from the top left. Raises
    ValueError where R is no square.
    """
    attention = np.atleast_2d(np.asarray(attention, dtype=np.float32))
    side = math.isqrt(attention.shape[1])
    if side**2 != attention.shape[1]:
        raise ValueError(f"{attention.shape[1]} regions are no square grid")
    left = mask_regions(torch.ones(*attention.shape, 1), torch.from_numpy(attention), ratio)
    hidden = (left[..., 0] == 0).numpy()
    figure, axes = plt.subplots(
        len(attention), 3, figsize=(8, 2.35 * len(attention) + 0.3), squeeze=False,
        layout="constrained",
    )  # fmt: skip
    scale = {"vmin": float(attention.min()), "vmax": float(attention.max())}
    for i, (line, picture) in enumerate(zip(axes, pictures, strict=True)):
        for axis in line:
            _show(axis, picture)
        place: dict[str, Any] = {
            "extent": (-0.5, picture.width - 0.5, picture.height - 0.5, -0.5),
            "interpolation": "nearest",
        }
        heat = line[1].imshow(
            attention[i].reshape(side, side), cmap="inferno", alpha=0.6, **scale, **place
        )
        grey = np.zeros((side, side, 4))
        grey[...] = (0.5, 0.5, 0.5, 1)
        grey[..., 3] = hidden[i].reshape(side, side)
        line[2].imshow(grey, **place)
    axes[0, 0].set_title("picture", fontsize=9)
    axes[0, 1].set_title("[CLS]'s attention", fontsize=9)
    many = int(hidden[0].sum())
    axes[0, 2].set_title(f"masked: {many} of {side**2} regions", fontsize=9)
    figure.colorbar(heat, ax=axes[:, 2], label="attention", shrink=0.9)
    return figure


def gate_plot(gates: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Mean gates of both branches: row of Table 3 -> test -> (te, ve), or one such pair a seed.

    A panel a test; rows without a gate, and so without figures, are left out.
    """
    known = {
        row: {test: np.atleast_2d(pair) for test, pair in own.items() if np.size(pair)}
        for row, own in gates.items()
    }
    rows = [row for row, own in known.items() if own]
    tests = list(dict.fromkeys(test for row in rows for test in known[row]))
    figure, axes = plt.subplots(
        1, len(tests), figsize=(max(5.0, 3.2 * len(tests)), 0.34 * len(rows) + 1.3), sharey=True,
        squeeze=False, layout="constrained",
    )  # fmt: skip
    for axis, test in zip(axes[0], tests, strict=True):
        for y, row in enumerate(rows):
            if test not in known[row]:
                continue
            pairs = known[row][test]
            axis.plot(pairs.mean(axis=0), [y, y], color="#bbbbbb", linewidth=1.5, zorder=1)
            for branch, colour in enumerate(COLOURS[:2]):
                axis.plot(pairs[:, branch], [y] * len(pairs), "|", color=colour, alpha=0.7)
                axis.plot(pairs[:, branch].mean(), y, "o", color=colour, markersize=6)
        axis.set(xlim=(0, 1), title=test, xlabel="mean gate")
        axis.set_yticks(range(len(rows)), rows)
    axes[0, 0].set_ylim(len(rows) - 0.5, -0.5)
    marks = [plt.Line2D([], [], marker="o", linestyle="", color=c) for c in COLOURS[:2]]
    figure.legend(
        marks, ["text branch (TE)", "visual branch (VE)"], ncols=2, fontsize=8,
        loc="outside lower center",
    )  # fmt: skip
    return figure


def roc_curves(
    labels: np.ndarray,
    scores: Mapping[str, np.ndarray],
    weights: np.ndarray | None = None,
    tuned: Mapping[str, float] | None = None,
) -> Figure:
    """ROC and precision over recall of some rows, in percent.

    scores: name -> (n,). weights (n,): how many pairs each stands for. tuned: name -> its tuned
    threshold, marked by a ring; threshold 0.5 is a dot.
    """
    from sklearn.metrics import (  # late: training does without sklearn
        auc,
        average_precision_score,
        precision_recall_curve,
        roc_curve,
    )

    labels = np.asarray(labels).astype(bool)
    each = np.ones(len(labels)) if weights is None else np.asarray(weights, dtype=float)
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
    share = 100 * float(each[labels].sum() / each.sum())
    left.plot([0, 100], [0, 100], color="#999999", linewidth=0.8, linestyle="--")
    right.axhline(share, color="#999999", linewidth=0.8, linestyle="--")
    for number, (name, own) in enumerate(scores.items()):
        look = {"color": COLOURS[number % len(COLOURS)], "linewidth": 1.5}
        false, true, _ = roc_curve(labels, own, sample_weight=each)
        precision, recall, _ = precision_recall_curve(labels, own, sample_weight=each)
        area = 100 * auc(false, true)
        mean = 100 * average_precision_score(labels, own, sample_weight=each)
        left.plot(100 * false, 100 * true, **look, label=f"{name}: {area:.1f}")
        # The last point, precision 1 at recall 0, is sklearn's and not of the data.
        points = 100 * recall[:-1], 100 * precision[:-1]
        right.plot(*points, **look, drawstyle="steps-post", label=f"{name}: {mean:.1f}")
        for limit, fill in ((0.5, look["color"]), ((tuned or {}).get(name), "white")):
            if limit is None:
                continue
            mark = {"marker": "o", "color": look["color"], "markerfacecolor": fill, "zorder": 3}
            at = scores_at(labels, own, limit, each)
            called = 100 * float(each[~labels & (own >= limit)].sum() / each[~labels].sum())
            left.plot(called, at["recall"], **mark)
            if (own >= limit).any():
                right.plot(at["recall"], at["precision"], **mark)
    left.set(xlabel="false yes in % (false positive rate)", ylabel="recall in %")
    right.set(xlabel="recall in %", ylabel="precision in %", ylim=(None, 102))
    left.legend(title="ROC area", fontsize=8, title_fontsize=8, loc="lower right")
    marks = "● threshold 0.5" + ("   ○ tuned threshold" if tuned else "")
    figure.suptitle(f"{marks}   - - by chance ({share:.1f} % are entailed)", fontsize=9)
    right.legend(title="average precision", fontsize=8, title_fontsize=8, loc="best")
    return figure


# --- Errors ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A pair that the classifier calls wrongly.

    probabilities: branch ("TE", "VE", "MM") -> of entailment. threshold: of the merged branch.
    about: what the hypothesis is, such as the kind of edit. premise: the captions.
    """

    picture: Image.Image
    hypothesis: str
    label: int
    probabilities: Mapping[str, float]
    threshold: float
    about: str = ""
    premise: tuple[str, ...] = ()


def worst_errors(
    data: Data, scores: Scores, test: str, count: int = 8, part: str = "all", seed: int = 0
) -> list[Case]:
    """The full model's clearest errors on a test, the kinds of hypotheses taking turns.

    Where a test's `about` is a number, as the crowd's word overlap, entailed pairs and others do.
    """
    own = data.tests[test]
    rows, _ = own.parts[part]
    limit = threshold_of(data, scores[FULL], test, part, seed)
    merged = scores[FULL][test][seed]
    wrong = rows[(merged[rows] >= limit) != (own.samples.label[rows] == 1)]
    by_number = not own.about or own.about[0].replace(".", "", 1).isdigit()
    found = pd.DataFrame(
        {"row": wrong, "away": np.abs(merged[wrong] - limit),
         "kind": [str(own.samples.label[i]) if by_number else own.about[i] for i in wrong]}
    ).sort_values("away", ascending=False, kind="stable")  # fmt: skip
    found["turn"] = found.groupby("kind").cumcount()
    chosen = found.sort_values(["turn", "away"], ascending=[True, False], kind="stable")
    branches = {"TE": f"{FULL}, TE branch", "VE": f"{FULL}, VE branch", "MM": FULL}
    return [
        Case(
            data.open_image(int(own.samples.image[i])),
            own.samples.hypothesis[i],
            int(own.samples.label[i]),
            {b: float(scores[n][test][seed][i]) for b, n in branches.items() if n in scores},
            limit,
            "" if not own.about else f"word overlap {own.about[i]}" if by_number else own.about[i],
            tuple(data.merged.get(own.samples.premise[i], (own.samples.premise[i],))),
        )
        for i in chosen["row"].head(count)
    ]


def error_gallery(cases: Sequence[Case], columns: int = 2) -> Figure:
    """Fig. 5: errors with picture, captions, hypothesis, label, and what each branch says."""
    cards = []
    for case in cases:
        said, colour = LABELS[case.label]
        other, _ = LABELS[1 - case.label]
        told = "   ".join(f"{b} {p:.2f}" for b, p in case.probabilities.items())
        blocks = [Block(case.about, 8, "#666666", style="italic")] if case.about else []
        blocks += [Block(f"– {one}", 7, "#444444") for one in case.premise if one]
        blocks += [
            Block(case.hypothesis, 9, weight="bold", gap=4),
            Block(f"{said}, but called {other}", 8.5, colour, weight="bold", gap=2),
            Block(f"{told}   (threshold {case.threshold:.2f})", 8, gap=2),
        ]
        cards.append((case.picture, blocks))
    return _cards(cards, columns)


# --- Retrieval ------------------------------------------------------------------------------------

Ranked = Sequence[tuple[str, bool, bool | None]]


def _colour(golden: bool, true: bool | None) -> str:
    return GOLDEN if golden else UNJUDGED if true is None else ENTAILED if true else OTHER


def ranking_sheets(
    picture: Image.Image,
    own: Sequence[str],
    before: Ranked,
    after: Ranked,
    titles: tuple[str, str] = ("before", "after"),
) -> Figure:
    """Fig. 4: a picture's best texts before and after retraining.

    before, after: (text, whether it is the picture's own, whether it is true of it), best first;
    None where nobody judged it. Own texts are blue, true ones green, others black, unjudged grey.
    """
    sheets = []
    for title, ranked in zip(titles, (before, after), strict=True):
        counts = {c: sum(_colour(g, t) == c for _, g, t in ranked) for c in (GOLDEN, ENTAILED)}
        head = f"{title}: {counts[GOLDEN]} own, {counts[ENTAILED]} other entailed"
        sheet = [Block(head, 9, weight="bold")]
        for place, (text, golden, true) in enumerate(ranked, 1):
            sheet.append(Block(f"{place}. {text}", 8.5, _colour(golden, true), gap=3))
        sheets.append(sheet)
    side, inches = 2.2, 3.95
    beneath = [Block(f"– {text}", 7.5, GOLDEN, gap=1) for text in own]
    tall = max(side + _tall(beneath, side) + 0.1, *(_tall(sheet, inches) for sheet in sheets))
    figure = plt.figure(figsize=(WIDE, tall + 0.4), layout=PlaceHolderLayoutEngine(True, True))
    first = _axis(figure, 0.05, 0.05, side, side)
    first.imshow(picture)
    _stack(first, beneath, side, top=side * POINT + 5)
    for number, sheet in enumerate(sheets):
        left = side + 0.3 + number * (inches + 0.2)
        _stack(_axis(figure, left, 0.05, inches, side), sheet, inches)
    named = {"own": GOLDEN, "entailed": ENTAILED, "not entailed": OTHER, "not judged": UNJUDGED}
    used = {_colour(golden, true) for ranked in (before, after) for _, golden, true in ranked}
    marks = {n: plt.Line2D([], [], marker="s", linestyle="", color=c)
             for n, c in named.items() if c in used}  # fmt: skip
    figure.legend(list(marks.values()), list(marks), loc="lower right", ncols=4, fontsize=8)
    return figure


def sweep_plot(
    values: Mapping[str, Mapping[float, Sequence[float] | np.ndarray]],
    xlabel: str,
    ylabel: str,
    log_x: bool = True,
    base: Mapping[str, float] | None = None,
) -> Figure:
    """A figure over a swept setting: label -> setting -> one value a seed, with their means.

    base: label -> figure of what the sweep is to be compared with, a dashed line.
    """
    figure, axis = plt.subplots(figsize=(8, 3.5), layout="constrained")
    settings = sorted({x for own in values.values() for x in own})
    for number, (label, own) in enumerate(values.items()):
        ordered = sorted(own)
        colour = COLOURS[number % len(COLOURS)]
        for x in ordered:
            each = np.atleast_1d(own[x])
            axis.plot([x] * len(each), each, ".", alpha=0.5, color=colour)
        means = [float(np.mean(own[x])) for x in ordered]
        axis.plot(ordered, means, "o-", markersize=5, label=label, color=colour)
    for number, (label, height) in enumerate((base or {}).items()):
        grey = ("#333333", "#999999", "#bbbbbb")[number % 3]
        axis.axhline(height, color=grey, linestyle="--", linewidth=1.2, label=label)
    if log_x:
        axis.set_xscale("log")
        axis.minorticks_off()
    axis.set_xticks(settings, [f"{x:g}" for x in settings])
    axis.set(xlabel=xlabel, ylabel=ylabel)
    axis.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def pull_plot(table: pd.DataFrame) -> Figure:
    """What a weak gradient pulls over λ, by optimiser, and (λ + β₁) / (1 + λβ₁) as a line.

    table: of `revision_study.optimiser_table`; its last row, the formula, is drawn here.
    """
    figure, axis = plt.subplots(figsize=(9, 4), layout="constrained")
    shown = table.loc[[name for name in table.index if not name.startswith("formula")]]
    ratios = shown.columns.to_numpy(dtype=float)
    fine = np.geomspace(ratios.min(), ratios.max(), 100)
    axis.plot(
        fine,
        [effective_ratio(x) for x in fine],
        color="#333333",
        linewidth=1,
        label="(λ + β₁) / (1 + λβ₁)",
    )
    axis.plot(fine, fine, color="#333333", linewidth=1, linestyle="--", label="λ, as intended")
    # Those that agree lie on each other: open marks of different shapes stay to be seen.
    for number, (name, row) in enumerate(shown.iterrows()):
        axis.plot(
            ratios, row, marker="os^DvPx"[number % 7], linestyle="", markerfacecolor="none",
            markersize=(11, 11, 7, 5, 15, 9, 5)[number % 7], markeredgewidth=1.5,
            color=COLOURS[number % len(COLOURS)], label=str(name),
        )  # fmt: skip
    axis.set(
        xscale="log", yscale="log", xlabel="λ, weak steps' share of the learning rate or loss",
        ylabel="weak gradient's pull / golden one's",
    )  # fmt: skip
    axis.minorticks_off()
    axis.set_xticks(ratios, [f"{x:g}" for x in ratios])
    axis.set_yticks(ratios, [f"{x:g}" for x in ratios])
    axis.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def judges_bars(gains: Mapping[str, Mapping[str, Estimate]], ylabel: str) -> Figure:
    """What retraining gains as judged by the classifier that mined, by logic, by people.

    gains: judge -> family -> estimate, as of `revision_study.gains` for each judge's metric.
    """
    families = dict.fromkeys(family for own in gains.values() for family in own)
    groups = {f: {judge: own[f] for judge, own in gains.items() if f in own} for f in families}
    figure = plots.bars(groups, ylabel)
    (axis,) = figure.axes
    ends = [e for own in gains.values() for one in own.values() for e in (one.low, one.high)]
    low, high = min(0.0, *ends), max(0.0, *ends)
    room = 0.05 * (high - low)
    axis.set_ylim(low - room if low < 0 else 0, high + room if high > 0 else 0)
    axis.axhline(0, color="#333333", linewidth=0.8)
    return figure
