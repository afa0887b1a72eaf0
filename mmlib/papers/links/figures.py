"""Tables and figures of paper 04: of documents, and of the evidence."""

import textwrap
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.offsetbox import AnnotationBbox, OffsetImage
from PIL import Image

from mmlib.core import plots
from mmlib.core.claims import crossed
from mmlib.core.evidence import EPOCHS, Evidence
from mmlib.core.tables import mean_and_deviation, paper_values
from mmlib.papers.links.data import Study
from mmlib.papers.links.documents import Corpus, Document
from mmlib.papers.links.experiment import (
    CEILINGS,
    FLOORS,
    PAPER,
    PAPER_TABLES,
    STEP_TIME,
    SYSTEMS,
    VARIANTS,
    auc,
    difficulty,
    labelled,
    own_row,
    predictors,
)
from mmlib.papers.links.model import METRICS, best_matching

ROWS = [row["system"] for row in FLOORS] + list(SYSTEMS) + [row["system"] for row in CEILINGS]
# The paper chose K on test; its row stands beside ours that did so, too.
PRINTED = {"Obj Detect": "", "Obj Detect (best K on test)": "Obj Detect"}
LINK, NO_LINK, UNKNOWN = plots.TRUE, plots.FALSE, "#777777"

# --- Documents -------------------------------------------------------------------------------


def describe(study: Study) -> pd.DataFrame:
    """The counterpart of the paper's Table 1: a row a corpus."""
    rows = {}
    for name, corpus in {**study.corpora, "unlabelled": study.unlabelled}.items():
        if corpus is None:
            continue
        every = [*corpus.train, *corpus.val, *corpus.test]
        sizes = [
            np.median([len(getattr(d, side)) for d in every]) for side in ("sentences", "images")
        ]
        known = corpus.test[0].labelled
        density = np.mean([d.link_matrix().mean() for d in corpus.test]) if known else np.nan
        rows[name] = {
            "train/val/test": f"{len(corpus.train)}/{len(corpus.val)}/{len(corpus.test)}",
            "sentences/images (median)": "{:.0f}/{:.0f}".format(*sizes),
            "images (unique)": len({image for d in every for image in d.images}),
            "density": f"{100 * density:.0f}%" if known else "unknown",
            "clusters (test)": len({d.cluster for d in corpus.test}),
        }
    return pd.DataFrame.from_dict(rows, orient="index")


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
    place = {("s", i): (i, 1) for i in range(k)} | {("v", i): (i, 0) for i in range(k)}
    figure, axis = plt.subplots(figsize=(1.9 * k, 4.2))
    for i, j in np.ndindex(k, k):
        colour = UNKNOWN if links is None else LINK if links[order[i, 0], order[j, 1]] else NO_LINK
        edge = [(("s", i), ("v", j))]
        graph.add_edges_from(edge)
        alpha = 1.0 if i == j else 0.35 * float(np.sqrt(strength[i, j]))
        nx.draw_networkx_edges(
            graph, place, edge, ax=axis, width=0.5 + 7 * strength[i, j] ** 2, alpha=alpha,
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


def results(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """A row a system, a column pair (paper, ours) a metric: mean ± deviation over seeds, percent.

    Floors stand above the trained systems, ceilings below. "↓" flags a training whose dev curve
    still improved when it ended, in more than a fifth of the seeds.
    """
    printed = PAPER_TABLES.get(dataset)
    paper = paper_values(PAPER, printed) if printed else pd.DataFrame(columns=list(METRICS))
    rows = {}
    for name in ROWS:
        own = own_row(evidence, dataset, name)
        if not evidence.has(dataset, own, "AUC"):
            continue
        row = {}
        for metric in METRICS:
            said = paper[metric].get(PRINTED.get(name, name)) if metric in paper else None
            row[metric, "paper"] = "–" if said is None or pd.isna(said) else str(said)
            row[metric, "ours"] = _mean_and_deviation(evidence, dataset, own, metric)
        rows[name + (" ↓" if evidence.unfinished(dataset, own) else "")] = row
    return pd.DataFrame.from_dict(rows, orient="index")


def _mean_and_deviation(evidence: Evidence, dataset: str, system: str, metric: str) -> str:
    means = np.nanmean(evidence.values(dataset, system, metric), axis=1)
    return mean_and_deviation(pd.Series(means))


def overview(evidence: Evidence, live: Mapping[tuple[str, str], float] | None = None) -> Figure:
    """AUC of each system on each data set: a dot a seed, the mean with its 95 % interval.

    Lines across are the strongest floor (dashed) and the supervised ridge (dotted). live: (data
    set, system) -> AUC of a training of this run, a diamond.
    """
    shown = [name for name in SYSTEMS if name != "TK"]
    sets = labelled(evidence)
    figure, axes = plt.subplots(1, len(sets), figsize=(2.35 * len(sets), 3.6), squeeze=False)
    for axis, dataset in zip(axes[0], sets, strict=True):
        for x, name in enumerate(shown):
            values = auc(evidence, dataset, [name])
            scored = ~np.isnan(values).any(axis=0)
            one = crossed(values[:, scored], evidence.clusters(dataset)[scored])
            means, colour = values[:, scored].mean(axis=1), plots.COLOURS[x]
            jitter = np.linspace(-0.22, 0.22, len(means)) if len(means) > 1 else [0.0]
            axis.plot(x + np.array(jitter), means, ".", color=colour, ms=3, alpha=0.5)
            axis.errorbar(
                x, one.effect, [[one.effect - one.low], [one.high - one.effect]], fmt="o",
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
        known, y = predictors(evidence, dataset), auc(evidence, dataset, [system]).mean(axis=0)
        for row, side in enumerate(("image spread", "text spread")):
            axes[row, column].plot(known[side], y, ".", ms=4, alpha=0.6)
            axes[row, column].set_xlabel(side)
        axes[0, column].set_title(dataset, fontsize=10)
    for row in range(2):
        axes[row, 0].set_ylabel(f"{system}'s AUC in %")
    return figure


def variants(evidence: Evidence) -> pd.DataFrame:
    """The variants beside what they vary: mean ± deviation over seeds of each metric."""
    rows = {}
    for dataset in labelled(evidence):
        if not any(evidence.has(dataset, name, "AUC") for name in VARIANTS):
            continue
        for name in ("NoStruct", "DC", "AP", *VARIANTS):
            if evidence.has(dataset, name, "AUC"):
                rows[dataset, name] = {
                    m: _mean_and_deviation(evidence, dataset, name, m) for m in METRICS
                }
    return pd.DataFrame.from_dict(rows, orient="index")


def step_times(evidence: Evidence) -> pd.DataFrame:
    """Median milliseconds of a training step, a row a data set, a column a system."""
    rows = {}
    for dataset in labelled(evidence):
        if evidence.has(dataset, STEP_TIME, "ms of DC", EPOCHS):
            rows[dataset] = {
                name: np.median(evidence.curves(dataset, STEP_TIME, f"ms of {name}"))
                for name in ("DC", "AP")
            }
    return pd.DataFrame.from_dict(rows, orient="index").round(1)


def everything(
    evidence: Evidence,
) -> tuple[dict[str, pd.DataFrame], dict[str, Figure]]:
    """All tables and all figures that need nothing but evidence, by name."""
    hard = [name for name in labelled(evidence) if name != "coco"]
    tables = {f"results_{name}": results(evidence, name) for name in labelled(evidence)}
    tables |= {"difficulty": difficulty(evidence, hard), "variants": variants(evidence)}
    tables["step_times"] = step_times(evidence)
    figures = {"overview": overview(evidence), "objectives": objectives(evidence)}
    if hard:
        figures["difficulty"] = difficulty_figure(evidence, hard)
    return tables, figures
