"""What is shown of paper 04: its documents, its tables beside ours, and figures of the evidence."""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.offsetbox import AnnotationBbox, OffsetImage
from matplotlib.patches import Rectangle
from PIL import Image
from statsmodels.regression.linear_model import OLS
from statsmodels.tools.tools import add_constant

from mmlib.core import plots
from mmlib.core.evidence import EPOCHS, Evidence
from mmlib.core.tables import Cells, beside, paper_tables, paper_values, table
from mmlib.papers.links import claims
from mmlib.papers.links.claims import SPREADS, labelled, rank_correlations, same_as
from mmlib.papers.links.data.documents import UNLABELLED, Corpus, Document
from mmlib.papers.links.method import METRICS, best_matching, link_metrics
from mmlib.papers.links.run import (
    BASELINES,
    DOCUMENTS,
    PAPER,
    PAPER_TABLES,
    STEP_TIME,
    STRUCTURED,
    SYSTEMS,
    UPPER_BOUNDS,
    VARIANTS,
)

LINK, NO_LINK = plots.TRUE, plots.FALSE
# The paper chose K on test; its row is compared with ours that did so, too.
DETECTION = "Obj Detect (best K on test)"
SEES_LINKS = "Supervised ridge"
COMPARED = (DETECTION, "Co-occurrence", "NoStruct", "DC", "TK", "TK+½k", "AP", "AP+½k", SEES_LINKS)

# --- Tables ----------------------------------------------------------------------------------


def tables(evidence: Evidence) -> Mapping[str, Callable[[], pd.DataFrame]]:
    """All tables that need nothing but evidence, by name; those of a data set end with its name."""
    sets = labelled(evidence)
    varied = [name for name in sets if any(evidence.has(name, v, "AUC") for v in VARIANTS)]
    of_variants = [(name, row) for name in varied for row in ("NoStruct", "DC", "AP", *VARIANTS)]
    timed = [name for name in sets if evidence.has(name, STEP_TIME, "ms of DC", EPOCHS)]
    hard, printed_sets = [n for n in sets if n != "coco"], dict.fromkeys([*sets, *PAPER_TABLES])
    return {
        **{f"results_{name}": partial(results, evidence, name) for name in printed_sets},
        "agreement": lambda: agreement(evidence),
        **({"difficulty": lambda: difficulty(evidence, hard)} if hard else {}),
        "variants": lambda: table(
            of_variants, METRICS, lambda row, metric: Cells(evidence, row[0]).spread(row[1], metric)
        ),
        "step_times": lambda: table(
            timed, ("DC", "AP"),
            lambda name, of: round(np.median(evidence.curves(name, STEP_TIME, f"ms of {of}")), 1),
        ),
        "unlabelled": lambda: table(["AP"], METRICS, Cells(evidence, UNLABELLED).spread),
    }  # fmt: skip


def printed(dataset: str) -> pd.DataFrame:
    """The paper's figures on a data set by our names of systems; empty where it has none."""
    if dataset not in PAPER_TABLES:
        return pd.DataFrame(columns=list(METRICS), dtype=float)
    return paper_values(PAPER, PAPER_TABLES[dataset]).rename({"Obj Detect": DETECTION})


def results(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """A row a system, a column pair (paper, ours) a metric: mean ± deviation over seeds, percent.

    Every printed row has a place. Baselines come before the trained systems, upper bounds after
    them. "↓" flags a system whose dev loss still fell when training ended.
    """
    order = [r["system"] for r in BASELINES] + [*SYSTEMS] + [r["system"] for r in UPPER_BOUNDS]
    recorded = {name: same_as(evidence, dataset, name) for name in order}
    ours = table(recorded, METRICS, Cells(evidence, dataset).spread)
    marks = {name: " ↓" * evidence.unfinished(dataset, recorded[name]) for name in order}
    rows = beside(ours, printed(dataset))
    rows = rows.loc[[name for name in order if name in rows.index]]
    return rows.rename(lambda name: name + marks[name])


def difficulty(evidence: Evidence, datasets: Sequence[str]) -> pd.DataFrame:
    """The paper's regressions of AP's per-document AUC: a row a corpus and set of predictors.

    "paper, R²": what the paper prints, of one training. A slope is the change of AUC, in points,
    with one standard deviation of the predictor.
    """
    rows = {}
    paper = paper_values(PAPER, "text_regression").set_axis(["spread", "spread + content"], axis=1)
    for dataset in datasets:
        every = evidence.metrics(dataset, DOCUMENTS)
        content = [name for name in every if name not in SPREADS]
        for name, chosen in (("spread", SPREADS), ("spread + content", (*SPREADS, *content))):
            x, y, _ = claims.difficulty(evidence, dataset, chosen)
            if len(x) > 1 + len(chosen):
                fitted = OLS(y.mean(axis=0), add_constant(x)).fit()
                slopes = fitted.params[1:] * x.std(axis=0, ddof=1)
                rows[dataset, name] = {
                    "paper, R²": str(paper.T.get(papers_name(dataset), {}).get(name, "–")),
                    "R² in %": 100 * fitted.rsquared, "adjusted R²": 100 * fitted.rsquared_adj,
                    "F": fitted.fvalue, "p of F": f"{fitted.f_pvalue:.1g}",
                    **{f"slope, {side}": slopes[i] for i, side in enumerate(SPREADS)},
                }  # fmt: skip
    regressions = pd.DataFrame.from_dict(rows, orient="index").round(1)
    return regressions.rename_axis(["documents", "predictors"])


def papers_name(dataset: str) -> str:
    """The paper's data set beside which ours stands; "" where it has none."""
    return paper_tables(PAPER)[PAPER_TABLES[dataset]]["dataset"] if dataset in PAPER_TABLES else ""


def agreement(evidence: Evidence) -> pd.DataFrame:
    """Spearman's ρ of per-document AUC, means over seeds, between systems and halves of AP's seeds.

    "DC–AP, one seed": the mean of single seeds' ρ, which is what one training each would show;
    "AP–AP, one seed": that of neighbouring seeds. "paper, DC–AP": of one training each.
    """

    rows = {}
    paper = paper_values(PAPER, "text_spearman").rho.rename(lambda row: row.split(" on ")[-1])
    for dataset in labelled(evidence):
        systems = ("DC", "TK+½k", "AP")
        of_seeds = [evidence.values(dataset, system, "AUC") for system in systems]
        dc, tk, ap = (values[:, ~np.isnan(values[0])] for values in of_seeds)
        means = [values.mean(axis=0, keepdims=True) for values in (dc, tk, ap, ap[::2], ap[1::2])]
        pairs = {
            "DC–TK+½k": means[:2], "DC–AP": means[:3:2], "DC–AP, one seed": (dc, ap),
            "TK+½k–AP": means[1:3],
        }  # fmt: skip
        if len(ap) > 1:
            pairs["AP–AP, one seed"] = ap, np.roll(ap, -1, axis=0)
            pairs["AP, two halves of the seeds"] = means[3:]
        rows[dataset] = {"paper, DC–AP": paper.get(papers_name(dataset), np.nan)}
        rows[dataset] |= {name: rank_correlations(*pair).mean() for name, pair in pairs.items()}
    return pd.DataFrame.from_dict(rows, orient="index").round(2).astype(object).fillna("–")


# --- Figures of documents --------------------------------------------------------------------


def open_image(corpus: Corpus, image: str) -> Image.Image:
    """The picture, or a grey square where only features were brought."""
    return corpus.open_image(image) if corpus.open_image else Image.new("RGB", (8, 8), "grey")


def document_graph(corpus: Corpus, document: Document, scores: np.ndarray, title: str) -> Figure:
    """A labelled document as a bipartite graph, as in Fig. 4.

    The best matching with at most 5 edges of scores (n, m): a chosen pair stands in one column, the
    most confident first, its score below, joined by a thick line. Thin lines are the other pairs of
    these nodes, wider for a higher score. True links are green, others are purple and dashed.
    """
    matching = best_matching(scores, min(5, *scores.shape))
    order = matching[np.argsort(-scores[matching[:, 0], matching[:, 1]], kind="stable")]
    block = scores[np.ix_(order[:, 0], order[:, 1])].clip(min=0)
    strength = (block - block.min()) / max(float(np.ptp(block)), 1e-9)
    links, k = document.link_matrix(), len(order)
    figure, axis = plt.subplots(figsize=(1.9 * k, 4.2))
    for i, j in np.ndindex(k, k):
        link, chosen = links[order[i, 0], order[j, 1]], i == j
        name = f"{'chosen' if chosen else 'not chosen'}, {'a link' if link else 'no link'}"
        colour, style = (LINK, "-") if link else (NO_LINK, (0, (3, 1.5)))
        width = 6 if chosen else 0.3 + 1.7 * strength[i, j]
        axis.plot([i, j], [1, 0], color=colour, ls=style, lw=width, label=name)
    for i, (sentence, image) in enumerate(order):
        picture = open_image(corpus, document.images[image]).resize((88, 88))
        axis.add_artist(AnnotationBbox(OffsetImage(np.asarray(picture)), (i, -0.26), pad=0.1))
        text = _wrapped(document.sentences[sentence], 21)
        axis.text(i, 1.05, text, ha="center", va="bottom", fontsize=8)
        axis.text(i, -0.8, f"{scores[sentence, image]:.2f}", ha="center", fontsize=8)
    axis.set(xlim=(-0.55, k - 0.45), ylim=(-0.85, 1.65), title=title)
    axis.axis("off")
    plots.legend_below(figure)
    return figure


def _wrapped(sentence: str, width: int) -> str:
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
    low, high = (limit(list(matrices.values())) for limit in (np.min, np.max))
    for axis, (title, scores), matching in zip(axes[0], matrices.items(), matchings, strict=True):
        cells = axis.imshow(scores[rows], "Blues", vmin=low, vmax=high, interpolation="nearest")
        for sentence, image in np.argwhere(links):
            corner = image - 0.46, np.searchsorted(rows, sentence) - 0.46
            frame = Rectangle(corner, 0.92, 0.92, fill=False, lw=2.5, ec=plots.COLOURS[4])
            axis.add_patch(frame).set_label("true link")
        right = links[tuple(matching.T)]
        for pairs, colour, name in (
            (matching[right], LINK, "matched, a link"),
            (matching[~right], NO_LINK, "matched, no link"),
        ):
            y = np.searchsorted(rows, pairs[:, 0])
            axis.plot(pairs[:, 1], y, "o", color=colour, ms=14, mec="white", label=name)
        measured = link_metrics(scores, links)
        area = f"AUC {measured['AUC']:.0f} %, " if measured else ""
        axis.set_title(f"{title}\n{area}{right.sum()} of {len(matching)} pairs right", fontsize=10)
        for column, image in enumerate(document.images):
            extent = (column - 0.46, column + 0.46, -0.58, -1.5)
            axis.imshow(open_image(corpus, image), extent=extent)
        axis.set(xlim=(-0.5, m - 0.5), ylim=(len(rows) - 0.5, -1.5), xticks=[], yticks=[])
        axis.grid(visible=False)
        axis.spines[:].set_visible(False)
    wrapped = [_wrapped(document.sentences[row], 30) for row in rows]
    axes[0, 0].set_yticks(range(len(rows)), wrapped, fontsize=8)
    axes[0, 0].tick_params(length=0)
    figure.colorbar(cells, ax=axes[0], label="cosine of sentence and picture", shrink=0.7)
    plots.legend_below(figure)
    return figure


def training_curve(history: Sequence[Mapping[str, float]]) -> Figure:
    """Dev loss and dev AUC of the epochs so far; the first of `history` is the untrained model."""
    panels = {
        "dev loss between documents": {"": [epoch["dev_loss"] for epoch in history]},
        "dev AUC of links, never shown, %": {"": [epoch["dev_AUC"] for epoch in history]},
    }
    return plots.curves(panels, dict(zip(panels, (0.4, 50), strict=True)), first=0)


# --- Figures of the evidence -----------------------------------------------------------------


def figures(evidence: Evidence) -> Mapping[str, Callable[[], Figure]]:
    """All figures that need nothing but evidence, by name."""
    sets = labelled(evidence)
    hard = [name for name in sets if name != "coco"]
    every = dict(overview=partial(ranked, evidence, sets), objectives=partial(objectives, evidence))
    return every | ({"difficulty": partial(auc_by_spread, evidence, hard)} if hard else {})


def ranked(
    evidence: Evidence, datasets: Sequence[str], live: Mapping[tuple[str, str], float] | None = None
) -> Figure:
    """AUC of systems, a panel a data set: seeds, their mean and 95 % interval, and chance.

    live: (data set, system) -> AUC of a training of this run, a diamond.
    """
    names = ("Random", "NoStruct", "Co-occurrence", SEES_LINKS, *STRUCTURED)
    panels = {}
    for dataset in datasets:
        shown = [name for name in names if evidence.has(dataset, name, "AUC")]
        values = {name: evidence.values(dataset, name, "AUC") for name in shown}
        panels[dataset] = values, evidence.clusters(dataset)
    live = evidence.comparable(live)
    figure = plots.overview(panels, SYSTEMS, "test AUC in %", live, chance=50)
    figure.suptitle("AUC of links inside documents, by system", fontsize=11)
    return figure


def objectives(evidence: Evidence) -> Figure:
    """Fig. 3: dev loss between documents, and dev AUC of the links inside them, over epochs."""
    return plots.curves({
        (title, label): {d: evidence.curves(d, "AP", key) for d in labelled(evidence)}
        for title, label, key in (
            ("Between documents", "dev loss, averaged negatives", "dev_loss"),
            ("Links inside documents", "dev AUC in %", "dev_AUC"),
        )
    })  # fmt: skip


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
        1, len(datasets), figsize=(3.5 * len(datasets) + 1.5, 3.6), squeeze=False, sharey=True
    )
    for axis, dataset in zip(axes[0], datasets, strict=True):
        spread = evidence.values(dataset, DOCUMENTS, SPREADS[0])[0]
        members = np.array_split(np.argsort(spread, kind="stable"), groups)
        x = [spread[group].mean() for group in members]
        for name, style, colour in (
            ("AP", "o-", plots.COLOURS[0]),
            ("NoStruct", "s-", plots.COLOURS[1]),
            (SEES_LINKS, ":", "black"),
        ):
            if not evidence.has(dataset, name, "AUC"):
                continue
            values = evidence.values(dataset, name, "AUC")  # (seeds, documents)
            means = np.stack([np.nanmean(values[:, group], axis=1) for group in members])
            axis.plot(x, means.mean(axis=1), style, color=colour, ms=4, label=name)
            axis.fill_between(x, means.min(axis=1), means.max(axis=1), color=colour, alpha=0.15)
        plots.chance_line(axis, 50)
        axis.set(xlabel="image spread: how much its pictures differ", title=dataset)
    for number, (name, (x_live, y_live)) in enumerate(evidence.comparable(live).items()):
        axes[0, 0].plot(x_live, y_live, "Dv"[number % 2], color="black", mfc="none", label=name)
    axes[0, 0].set_ylabel("test AUC of a document in %")
    figure.suptitle("AUC of documents by how alike their pictures are", fontsize=11)
    plots.legend_below(figure, 6)
    return figure


# --- Figures of several records --------------------------------------------------------------


def mean_aucs(evidence: Evidence) -> pd.DataFrame:
    """Mean test AUC in percent: a row for each of `COMPARED`, a column for each data set.

    NaN where a system was not recorded.
    """
    return table(
        COMPARED, labelled(evidence),
        lambda name, of: Cells(evidence, of).mean(same_as(evidence, of, name), "AUC"), None,
    ).reindex(COMPARED).astype(float)  # fmt: skip


def printed_aucs() -> pd.DataFrame:
    """The AUC that the paper prints, as `mean_aucs`; a column for each data set with a table."""
    columns = {dataset: printed(dataset)["AUC"] for dataset in PAPER_TABLES}
    return pd.DataFrame(columns, dtype=float).reindex(COMPARED)


def results_map(panels: Mapping[str, pd.DataFrame]) -> Figure:
    """AUC as heat maps beside each other: title -> systems (rows) by data sets (columns).

    In each column the best system that sees no link is bold. One colour scale, from chance on.
    """
    widths = [aucs.shape[1] for aucs in panels.values()]
    size = (2.2 + 0.52 * sum(widths), 0.32 * len(COMPARED) + 1.5)
    figure, axes = plt.subplots(1, len(panels), figsize=size, width_ratios=widths, squeeze=False)
    for axis, (title, aucs) in zip(axes[0], panels.items(), strict=True):
        cells = plots.heat_map(axis, aucs, 50, 100)
        best = aucs.drop(index=SEES_LINKS).idxmax()
        for text in axis.texts:
            column, row = text.get_position()
            if best.iloc[int(column)] == aucs.index[int(row)]:
                text.set_fontweight("bold")
        axis.tick_params(axis="x", labelrotation=45)
        axis.tick_params(labelleft=axis is axes[0, 0])
        axis.set_title(title, fontsize=10)
    figure.colorbar(cells, ax=axes[0], label="test AUC in % (50: chance)")
    figure.suptitle("AUC of each system on each data set; bold: the best that sees no link")
    return figure
