"""The figures of paper 04: of its documents, and of the evidence."""

import textwrap
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.offsetbox import AnnotationBbox, OffsetImage
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from PIL import Image

from mmlib.core import plots
from mmlib.core.evidence import Evidence
from mmlib.papers.links.claims import auc, labelled, mean_auc, same_as
from mmlib.papers.links.data.documents import Corpus, Document
from mmlib.papers.links.method import best_matching, link_metrics
from mmlib.papers.links.run import PAPER_TABLES, STRUCTURED, SYSTEMS
from mmlib.papers.links.tables import predictors, printed

LINK, NO_LINK, UNKNOWN = plots.TRUE, plots.FALSE, "#777777"


def figures(evidence: Evidence) -> dict[str, Figure]:
    """All figures that need nothing but evidence, by name."""
    hard = [name for name in labelled(evidence) if name != "coco"]
    difficult = {"difficulty": difficulty_figure(evidence, hard)} if hard else {}
    return {"overview": overview(evidence), "objectives": objectives(evidence), **difficult}


# --- Documents -------------------------------------------------------------------------------


def open_image(corpus: Corpus, image: str) -> Image.Image:
    """The picture, or a grey square where only features were brought."""
    return corpus.open_image(image) if corpus.open_image else Image.new("RGB", (8, 8), "grey")


def document_graph(
    corpus: Corpus, document: Document, scores: np.ndarray, title: str, edges: int = 5
) -> Figure:
    """A document as a bipartite graph, as in Fig. 4.

    The best matching with `edges` edges of scores (n, m): a predicted pair stands in one column,
    the most confident first, its score below. All edges between these nodes are drawn, wider for a
    higher score (negative ones count 0, the rest is scaled to [0, 1]); green is a true link,
    purple is none, grey means that nobody knows. Predicted edges are opaque.
    """
    matching = best_matching(scores, min(edges, *scores.shape))
    order = matching[np.argsort(-scores[matching[:, 0], matching[:, 1]], kind="stable")]
    block = scores[np.ix_(order[:, 0], order[:, 1])].clip(min=0)
    strength = (block - block.min()) / max(float(np.ptp(block)), 1e-9)
    links = document.link_matrix() if document.labelled else None
    graph, k = nx.Graph(), len(order)
    positions = {("s", i): (i, 1) for i in range(k)} | {("v", i): (i, 0) for i in range(k)}
    figure, axis = plt.subplots(figsize=(1.9 * k, 4.2))
    for i, j in np.ndindex(k, k):
        colour = UNKNOWN if links is None else LINK if links[order[i, 0], order[j, 1]] else NO_LINK
        edge = [(("s", i), ("v", j))]
        graph.add_edges_from(edge)
        alpha = 1.0 if i == j else 0.35 * float(np.sqrt(strength[i, j]))
        nx.draw_networkx_edges(
            graph, positions, edge, ax=axis, width=0.5 + 7 * strength[i, j] ** 2, alpha=alpha,
            edge_color=colour,
        )  # fmt: skip
    for i, (sentence, image) in enumerate(order):
        picture = open_image(corpus, document.images[image]).resize((88, 88))
        axis.add_artist(AnnotationBbox(OffsetImage(np.asarray(picture)), (i, -0.26), pad=0.1))
        text = _wrapped(document.sentences[sentence], 21)
        axis.text(i, 1.05, text, ha="center", va="bottom", fontsize=8)
        axis.text(i, -0.8, f"{scores[sentence, image]:.2f}", ha="center", fontsize=8)
    axis.set(xlim=(-0.55, k - 0.45), ylim=(-0.85, 1.65), title=title)
    axis.axis("off")
    return figure


def _wrapped(sentence: str, width: int) -> str:
    """Its first 90 characters, in lines of at most `width`."""
    return textwrap.fill(textwrap.shorten(sentence, 90, placeholder=" …"), width)


def link_matrices(corpus: Corpus, document: Document, matrices: Mapping[str, np.ndarray]) -> Figure:
    """A labelled document's cosines as heat maps: a row for each sentence, pictures as heads.

    matrices: title -> scores (n, m). A dot is a pair of the best matching with min(n, m) pairs,
    green where it is a link and purple where it is none; links are outlined. Titles gain the AUC
    and how many matched pairs are links. Of more than 12 sentences those are left out that have
    neither a link nor a dot.
    """
    links, m, cell = document.link_matrix(), len(document.images), 0.78  # inches
    matchings = [best_matching(scores, min(scores.shape)) for scores in matrices.values()]
    rows = np.arange(len(links))
    if len(rows) > 12:
        rows = np.union1d(np.flatnonzero(links.any(axis=1)), np.concatenate(matchings)[:, 0])
    figure, axes = plt.subplots(
        1, len(matrices), figsize=(3.6 + cell * m * len(matrices), cell * (len(rows) + 1) + 1.1),
        squeeze=False, dpi=110,  # the pictures are small
    )  # fmt: skip
    pictures = [open_image(corpus, image) for image in document.images]
    low, high = (limit(list(matrices.values())) for limit in (np.min, np.max))
    for axis, title, matching in zip(axes[0], matrices, matchings, strict=True):
        cells = axis.imshow(
            matrices[title][rows], vmin=low, vmax=high, cmap="Blues", interpolation="nearest"
        )
        _mark_links_and_matching(axis, links, matching, rows)
        measured = link_metrics(matrices[title], links)
        auc = f"AUC {measured['AUC']:.0f} %, " if measured else ""
        right = links[tuple(matching.T)].sum()
        axis.set_title(f"{title}\n{auc}{right} of {len(matching)} pairs right", fontsize=10)
        for column, picture in enumerate(pictures):
            left, top = column - 0.46, -1.5
            axis.imshow(picture, extent=(left, left + 0.92, top + 0.92, top))
        axis.set(xlim=(-0.5, m - 0.5), ylim=(len(rows) - 0.5, -1.5), xticks=[], yticks=[])
        axis.grid(visible=False)
        axis.spines[:].set_visible(False)
    wrapped = [_wrapped(document.sentences[row], 30) for row in rows]
    axes[0, 0].set_yticks(range(len(rows)), wrapped, fontsize=8)
    axes[0, 0].tick_params(length=0)
    figure.colorbar(cells, ax=axes[0], label="cosine of sentence and picture", shrink=0.7)
    marks, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(marks, names, loc="outside lower center", ncols=len(names), fontsize=9)
    return figure


def _mark_links_and_matching(
    axis: Axes, links: np.ndarray, matching: np.ndarray, rows: np.ndarray
) -> None:
    """The outlines and dots of `link_matrices`; links (n, m) bool, matching (k, 2)."""
    for number, (sentence, image) in enumerate(np.argwhere(links)):
        corner = (image - 0.46, np.searchsorted(rows, sentence) - 0.46)
        label = "" if number else "true link"
        axis.add_patch(
            Rectangle(corner, 0.92, 0.92, fill=False, lw=2.5, ec=plots.COLOURS[4], label=label)
        )
    right = links[tuple(matching.T)]
    for pairs, colour, name in (
        (matching[right], LINK, "matched, a link"),
        (matching[~right], NO_LINK, "matched, no link"),
    ):
        y = np.searchsorted(rows, pairs[:, 0])
        axis.plot(pairs[:, 1], y, "o", color=colour, ms=14, mec="white", label=name)


def training_curve(history: Sequence[Mapping[str, float]], epochs: int) -> Figure:
    """Dev loss and dev AUC of the epochs so far; the first of `history` is the untrained model."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 2.8))
    for axis, key, title, label, chance in (
        (axes[0], "dev_loss", "Between documents", "dev loss, averaged negatives", 0.4),
        (axes[1], "dev_AUC", "Links inside documents, never shown", "dev AUC in %", 50),
    ):
        axis.plot(range(len(history)), [epoch[key] for epoch in history], "o-")
        axis.axhline(chance, color="#999999", ls="--", label="nothing learnt")
        axis.set(title=title, xlabel="epoch", ylabel=label, xlim=(-0.3, epochs + 0.3))
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[0].legend()
    return figure


# --- Evidence --------------------------------------------------------------------------------


def overview(evidence: Evidence, live: Mapping[tuple[str, str], float] | None = None) -> Figure:
    """AUC of each system on each data set: a dot a seed, the mean with its 95 % interval.

    Horizontal lines are baselines and the supervised ridge (dotted). live: (data set, system) ->
    AUC of a training of this run, a diamond.
    """
    shown, live = [name for name in SYSTEMS if name != "TK"], evidence.comparable(live)
    sets = labelled(evidence)
    figure, axes = plt.subplots(1, len(sets), figsize=(2.35 * len(sets), 3.6), squeeze=False)
    for axis, dataset in zip(axes[0], sets, strict=True):
        for x, name in enumerate(shown):
            values = auc(evidence, dataset, [name])
            scored = ~np.isnan(values).any(axis=0)
            mean = mean_auc(evidence, dataset, values)
            of_seeds, colour = values[:, scored].mean(axis=1), plots.COLOURS[x]
            jitter = np.linspace(-0.22, 0.22, len(of_seeds)) if len(of_seeds) > 1 else 0.0
            axis.plot(x + jitter, of_seeds, ".", color=colour, ms=3, alpha=0.5)
            axis.errorbar(
                x, mean.effect, [[mean.effect - mean.low], [mean.high - mean.effect]], fmt="o",
                color=colour, ms=5, capsize=3,
            )  # fmt: skip
            if (dataset, name) in live:
                axis.plot(x, live[dataset, name], "D", color="black", mfc="none", ms=8)
        for name, style, colour in (
            ("Co-occurrence", "--", "black"),
            ("Obj Detect", "-.", "#bb7700"),
            ("Supervised ridge", ":", "#555555"),
        ):
            if evidence.has(dataset, name, "AUC"):
                level = np.nanmean(evidence.values(dataset, name, "AUC"))
                axis.axhline(level, ls=style, lw=1, color=colour, label=name)
        axis.axhline(50, lw=0.8, color="#bbbbbb")
        axis.set_xticks(range(len(shown)), shown, rotation=60, ha="right", fontsize=8)
        axis.set_title(dataset, fontsize=10)
    axes[0, 0].set_ylabel("test AUC in %")
    lines, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower center", ncols=len(names), fontsize=8)
    return figure


def objectives(evidence: Evidence, system: str = "AP") -> Figure:
    """Fig. 3: dev loss and dev AUC over epochs, and one over the other; mean and range of seeds."""
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.2))
    for colour, dataset in zip(plots.COLOURS, labelled(evidence), strict=False):
        loss, links = (evidence.curves(dataset, system, key) for key in ("dev_loss", "dev_AUC"))
        for axis, values in zip(axes, (loss, links), strict=False):
            plots.curve_of_seeds(axis, values, dataset, colour)
        axes[2].plot(loss.ravel(), links.ravel(), ".", color=colour, ms=3)
    axes[0].set(xlabel="epoch", ylabel="dev loss, averaged negatives")
    axes[1].set(xlabel="epoch", ylabel="dev AUC in %")
    axes[2].set(xlabel="dev loss, averaged negatives", ylabel="dev AUC in %")
    axes[0].legend(fontsize=8)
    return figure


def difficulty_figure(evidence: Evidence, datasets: Sequence[str], system: str = "AP") -> Figure:
    """AUC of each test document, a mean over seeds, over its image and its text spread."""
    figure, axes = plt.subplots(
        2, len(datasets), figsize=(2.6 * len(datasets), 4.6), squeeze=False, sharey=True
    )
    for column, dataset in enumerate(datasets):
        spreads, y = predictors(evidence, dataset), auc(evidence, dataset, [system]).mean(axis=0)
        for row, side in enumerate(("image spread", "text spread")):
            axes[row, column].plot(spreads[side], y, ".", ms=4, alpha=0.6)
            axes[row, column].set_xlabel(side)
        axes[0, column].set_title(dataset, fontsize=10)
    for row in range(2):
        axes[row, 0].set_ylabel(f"{system}'s AUC in %")
    return figure


def auc_by_spread(
    evidence: Evidence,
    datasets: Sequence[str],
    live: Mapping[str, tuple[float, float]] | None = None,
    groups: int = 10,
) -> Figure:
    """Test AUC over the image spread of documents, in groups of as many; a panel for a data set.

    A line is a mean over documents and seeds, its band the range of seeds. live: what to call a
    document of the first data set -> its spread and its AUC in this run, a diamond.
    """
    figure, axes = plt.subplots(
        1, len(datasets), figsize=(5 * len(datasets), 3.4), squeeze=False, sharey=True
    )
    for axis, dataset in zip(axes[0], datasets, strict=True):
        spread = predictors(evidence, dataset)["image spread"].to_numpy()
        members = np.array_split(np.argsort(spread, kind="stable"), groups)
        x = [spread[group].mean() for group in members]
        for name, style, colour in (
            ("AP", "o-", plots.COLOURS[0]),
            ("NoStruct", "s-", plots.COLOURS[1]),
            ("Supervised ridge", ":", "black"),
        ):
            if not evidence.has(dataset, name, "AUC"):
                continue
            values = auc(evidence, dataset, [name])  # (seeds, documents)
            means = np.stack([np.nanmean(values[:, group], axis=1) for group in members])
            axis.plot(x, means.mean(axis=1), style, color=colour, ms=4, label=name)
            axis.fill_between(x, means.min(axis=1), means.max(axis=1), color=colour, alpha=0.15)
        axis.axhline(50, color="#999999", ls="--", label="chance")
        axis.set(xlabel="image spread: how much its pictures differ", title=dataset)
    for number, (name, (x_live, y_live)) in enumerate(evidence.comparable(live).items()):
        axes[0, 0].plot(x_live, y_live, "Dv"[number % 2], color="black", mfc="none", label=name)
    axes[0, 0].set_ylabel("test AUC of a document in %")
    figure.suptitle("AUC of documents by how alike their pictures are", fontsize=11)
    marks, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(marks, names, loc="outside lower center", ncols=len(names), fontsize=8)
    return figure


def ranked(evidence: Evidence, dataset: str, live: Mapping[str, float]) -> Figure:
    """AUC of systems on one data set, a line each: seeds, mean and 95 % interval, and chance.

    live: system -> AUC of a training of this run, a diamond.
    """
    names = ("Random", "NoStruct", "Co-occurrence", "Supervised ridge", *STRUCTURED)
    recorded = {n: auc(evidence, dataset, [n]) for n in names if evidence.has(dataset, n, "AUC")}
    scored = ~np.isnan(np.concatenate(list(recorded.values()))).any(axis=0)
    values = {name: scores[:, scored] for name, scores in recorded.items()}
    figure, axis = plt.subplots(figsize=(8, 0.3 * len(values) + 1.3))
    plots.ranked_systems(axis, values, evidence.clusters(dataset)[scored], SYSTEMS, live)
    axis.axvline(50, color="#999999", ls="--", label="chance")
    axis.plot([], [], "o-", color=plots.COLOURS[0], label="trained systems: mean, 95 % interval")
    axis.plot([], [], "o-", color="#777777", label="without a training loop")
    axis.plot([], [], "|", color="black", label="a training")
    axis.plot([], [], "D", color=plots.COLOURS[1], mfc="none", label="this run")
    axis.set(xlabel="test AUC in %", title=f"Who finds links in {dataset} documents?")
    axis.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


# --- Several kinds of data beside each other -------------------------------------------------

COMPARED = (
    "Obj Detect (best K on test)", "Co-occurrence", "NoStruct", "DC", "TK", "TK+½k", "AP", "AP+½k",
    "Supervised ridge",
)  # fmt: skip
SEES_LINKS = "Supervised ridge"


def mean_aucs(evidence: Evidence) -> pd.DataFrame:
    """Mean test AUC in percent: a row for each of `COMPARED`, a column for each data set.

    NaN where a system was not recorded.
    """
    columns = {}
    for dataset in labelled(evidence):
        names = {name: same_as(evidence, dataset, name) for name in COMPARED}
        columns[dataset] = {
            name: float(np.nanmean(evidence.values(dataset, system, "AUC")))
            for name, system in names.items()
            if evidence.has(dataset, system, "AUC")
        }
    return pd.DataFrame(columns, index=pd.Index(COMPARED), dtype=float)


def printed_aucs() -> pd.DataFrame:
    """The AUC that the paper prints, as `mean_aucs`; a column for each data set with a table."""
    columns = {dataset: printed(dataset)["AUC"] for dataset in PAPER_TABLES}
    return pd.DataFrame(columns, dtype=float).reindex(COMPARED)


def results_map(panels: Mapping[str, pd.DataFrame]) -> Figure:
    """AUC as heat maps beside each other: title -> systems (rows) by data sets (columns).

    In each column the best system that sees no link is bold. One colour scale, from chance on.
    """
    widths = [table.shape[1] for table in panels.values()]
    size = (2.2 + 0.52 * sum(widths), 0.32 * len(COMPARED) + 1.5)
    figure, axes = plt.subplots(1, len(panels), figsize=size, width_ratios=widths, squeeze=False)
    for axis, (title, table) in zip(axes[0], panels.items(), strict=True):
        cells = axis.imshow(
            table, vmin=50, vmax=100, cmap="cividis", aspect="auto", interpolation="nearest"
        )
        best = table.drop(index=SEES_LINKS).max()
        for row, column in np.argwhere(table.notna()):
            value = table.iat[row, column]
            bold = value == best.iloc[column] and table.index[row] != SEES_LINKS
            axis.text(
                column, row, f"{value:.0f}", ha="center", va="center", fontsize=8.5,
                color="white" if value < 75 else "black", fontweight="bold" if bold else "normal",
            )  # fmt: skip
        axis.set_xticks(range(table.shape[1]), table.columns, rotation=45, ha="right", fontsize=8.5)
        axis.set_yticks(range(len(table)), table.index if axis is axes[0, 0] else [], fontsize=8.5)
        axis.set_title(title, fontsize=10)
        axis.grid(visible=False)
    figure.colorbar(cells, ax=axes[0], label="test AUC in % (50: chance)")
    figure.suptitle("AUC of each system on each data set; bold: the best that sees no link")
    return figure


def gains_map(panels: Mapping[str, pd.DataFrame]) -> Figure:
    """What matching sets adds to the paper's baselines: a mark for each data set of each panel.

    Across: the AUC of the stronger of NoStruct and Obj Detect; up: how far the mean of DC, TK+½k,
    AP and AP+½k is above it. A hollow mark, joined to it, compares with the linear map where that
    is stronger still. panels: title -> systems (rows) by data sets (columns).
    """
    figure, axis = plt.subplots(figsize=(8, 4.2))
    axis.axhline(0, color="#333333", lw=0.8)
    for panel, (title, table) in enumerate(panels.items()):
        colour, mark = plots.COLOURS[panel], "Dos"[panel]
        baseline = table.loc[["NoStruct", COMPARED[0]]].max()
        sets = table.loc[list(STRUCTURED)].mean()
        gain, fair = sets - baseline, sets - np.fmax(baseline, table.loc["Co-occurrence"])
        axis.vlines(baseline, fair, gain, color=colour, lw=0.8)
        axis.plot(baseline, gain, mark, color=colour, label=title)
        axis.plot(baseline[fair < gain], fair[fair < gain], mark, mfc="white", mec=colour)
        for i, (name, x, y) in enumerate(zip(table.columns, baseline, gain, strict=True)):
            side = 1 if (i + panel) % 2 == 0 else -1  # by turns, as marks are close to each other
            axis.annotate(
                name, (x, y), (6 * side, 0), textcoords="offset points", fontsize=8, color=colour,
                ha="left" if side > 0 else "right", va="center",
            )  # fmt: skip
    axis.plot([], [], "o", mfc="white", mec="#444444", label="against the linear map")
    axis.margins(x=0.08)
    axis.set(
        xlabel="test AUC of the paper's stronger baseline, %",
        ylabel="gain by matching sets, AUC points",
        title="What matching sets adds to the paper's baselines, data set by data set",
    )
    axis.legend(fontsize=8)
    return figure
