"""The figures of paper 04: of its documents, and of the evidence."""

import textwrap
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
from matplotlib.figure import Figure
from matplotlib.offsetbox import AnnotationBbox, OffsetImage
from PIL import Image

from mmlib.core import plots
from mmlib.core.evidence import Evidence
from mmlib.papers.links.claims import auc, labelled, mean_auc
from mmlib.papers.links.data.documents import Corpus, Document
from mmlib.papers.links.method import best_matching
from mmlib.papers.links.systems import SYSTEMS
from mmlib.papers.links.tables import predictors

LINK, NO_LINK, UNKNOWN = plots.TRUE, plots.FALSE, "#777777"


def figures(evidence: Evidence) -> dict[str, Figure]:
    """All figures that need nothing but evidence, by name."""
    hard = [name for name in labelled(evidence) if name != "coco"]
    difficult = {"difficulty": difficulty_figure(evidence, hard)} if hard else {}
    return {"overview": overview(evidence), "objectives": objectives(evidence), **difficult}


# --- Documents -------------------------------------------------------------------------------


def show_document(corpus: Corpus, document: Document) -> Figure:
    """The images of a document, numbered as the columns of its link matrix."""
    numbers = [str(column) for column in range(len(document.images))]
    return plots.show_pictures([open_image(corpus, v) for v in document.images], numbers)


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
        text = textwrap.fill(
            textwrap.shorten(document.sentences[sentence], 90, placeholder=" …"), 21
        )
        axis.text(i, 1.05, text, ha="center", va="bottom", fontsize=8)
        axis.text(i, -0.8, f"{scores[sentence, image]:.2f}", ha="center", fontsize=8)
    axis.set(xlim=(-0.55, k - 0.45), ylim=(-0.85, 1.65), title=title)
    axis.axis("off")
    return figure


# --- Evidence --------------------------------------------------------------------------------


def overview(evidence: Evidence, live: Mapping[tuple[str, str], float] | None = None) -> Figure:
    """AUC of each system on each data set: a dot a seed, the mean with its 95 % interval.

    Horizontal lines are baselines and the supervised ridge (dotted). live: (data set, system) ->
    AUC of a training of this run, a diamond.
    """
    shown = [name for name in SYSTEMS if name != "TK"]
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
            if live and (dataset, name) in live:
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
