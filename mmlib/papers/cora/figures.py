"""Tables and figures of paper 03: of the captions, and of the evidence."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from mmlib import scenegraph
from mmlib.core import plots
from mmlib.core.claims import crossed
from mmlib.core.evidence import EPOCHS, Evidence
from mmlib.core.fit import still_improving
from mmlib.core.ranking import KS
from mmlib.papers.cora.data import Captions
from mmlib.papers.cora.experiment import (
    CAPTIONS,
    CEILINGS,
    CORA,
    ERRORS,
    FLOORS,
    GOLD,
    LEADS,
    QUERY_TIME,
    RATES,
    STRUCTURE,
    SYSTEMS,
    TABLE_1,
    TABLE_3,
    TWO_STEP,
    beside_paper,
    captions_and_images,
    printed,
    recalls,
    with_rows,
)
from mmlib.papers.cora.graphs import SPLITS

ORDER = [row["system"] for row in FLOORS] + list(SYSTEMS) + [row["system"] for row in CEILINGS]

# --- Captions ----------------------------------------------------------------------------------


def describe(found: Captions) -> pd.DataFrame:
    """Size of each split, and what a caption and its parsed graph hold on average."""
    rows = {}
    for split in SPLITS:
        captions, graphs = found.captions(split), found.graphs[split]
        held = []
        for graph in graphs:
            things = scenegraph.objects(graph)
            said = sum(len(scenegraph.attributes(graph, i)) for i in things)
            ties = len(scenegraph.relations(graph))
            held.append((len(things), said, ties, 100 * graph.graph["fallback"]))
        kinds = ("objects", "attributes", "relations", "fallback graphs in %")
        rows[split] = {
            "images": len(found.images[split].captions),
            "captions": len(captions),
            "words a caption": np.mean([len(c.split()) for c in captions]),
            **dict(zip(kinds, np.mean(held, axis=0), strict=True)),
        }
    return pd.DataFrame.from_dict(rows, orient="index").round(2)


def graphs_beside_pictures(found: Captions, rows: Sequence[int]) -> Figure:
    """Pictures of test captions and their parsed graphs."""
    figure, axes = plt.subplots(
        len(rows), 2, figsize=(9, 2.6 * len(rows)), width_ratios=(1, 3), squeeze=False
    )
    image_of = found.image_of("test")
    for (left, right), row in zip(axes, rows, strict=True):
        left.imshow(found.images["test"].open_image(int(image_of[row])))
        left.axis("off")
        scenegraph.draw(found.graphs["test"][row], right)
    return figure


# --- Evidence ----------------------------------------------------------------------------------


def results(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """A row a system: R@K and median ranks both ways and RSUM, mean ± deviation over seeds.

    Floors stand above the trained systems, ceilings below. "↓" flags a training whose dev curve
    still improved when it ended, in more than a fifth of the seeds.
    """
    rows = {}
    for name in with_rows(evidence, dataset, ORDER):
        by = recalls(evidence, dataset, name).groupby("metric", sort=False).value
        row = by.agg(lambda v: f"{v.mean():.1f}" + (f" ± {v.std():.1f}" if v.std() > 1e-6 else ""))
        rows[name + (" ↓" if unfinished(evidence, dataset, name) else "")] = row
    return pd.DataFrame.from_dict(rows, orient="index")


def unfinished(evidence: Evidence, dataset: str, system: str) -> bool:
    """Whether more than a fifth of a system's trainings were still improving when they ended."""
    if not evidence.has(dataset, system, "dev_loss", EPOCHS):
        return False
    curves = evidence.curves(dataset, system, "dev_loss")
    return bool(np.mean([still_improving(curve) for curve in curves]) > 0.2)


def reranking(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """Table 4: RSUM before and after reranking (eq. 14), the paper's on MS-COCO 5K beside ours."""
    rows = {}
    paper = printed("table4").rsum
    for name in with_rows(evidence, dataset, SYSTEMS):
        for metric, row in (("RSUM", name), ("RSUM, reranked", f"{name}, reranked")):
            if evidence.has(dataset, name, "RSUM, reranked"):
                ours = evidence.means(dataset, name, metric)
                rows[row] = {"paper": paper.get(row), "ours": ours.mean(), "sd": ours.std()}
    return pd.DataFrame.from_dict(rows, orient="index").round(1)


def leads(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """What each change of the encoder gives, alone and together: RSUM − that of the row's base.

    Losses and everything else are the same in a row, with 95 % intervals over seeds and images.
    """
    ours = "CORA, residual path and short cut"
    pairs = [(one.system, TWO_STEP.system) for one in LEADS]
    pairs += [("Sequence, CORA's rest", TWO_STEP.system), ("Bag of phrases", TWO_STEP.system)]
    pairs += [(name, CORA.system) for name in (ours, "CORA, authors' form", GOLD.system)]
    pairs += [(ours, LEADS[-1].system)]
    pairs += [(one.system, one.system.rsplit(", ", 1)[0]) for one in STRUCTURE[1:]]
    pairs += [("Sequence, words shuffled", "Sequence, CORA's rest")]
    pairs += [(f"Oracle of {a}", f"Oracle of {b}")
              for a, b in (("entities", "words"), ("the graph", "entities"))]  # fmt: skip
    rows = {}
    for changed, base in pairs:
        if len(with_rows(evidence, dataset, (changed, base))) == 2:
            a, b = (evidence.values(dataset, name, "RSUM") for name in (changed, base))
            one = crossed(a - b, evidence.clusters(dataset))
            rows[changed, base] = {"effect": one.effect, "low": one.low, "high": one.high}
    return pd.DataFrame.from_dict(rows, orient="index").round(1)


def overview(evidence: Evidence, live: Mapping[tuple[str, str], float] | None = None) -> Figure:
    """RSUM of each system, best last: a dot a seed, the mean with its 95 % interval.

    live: (collection, system) -> RSUM of a training of this run, a diamond.
    """
    sets = evidence.datasets
    most = max(len(with_rows(evidence, name, ORDER)) for name in sets)
    figure, axes = plt.subplots(
        1, len(sets), figsize=(7 * len(sets), 0.24 * most + 0.9), squeeze=False
    )
    for axis, dataset in zip(axes[0], sets, strict=True):
        means = {name: evidence.means(dataset, name, "RSUM")
                 for name in with_rows(evidence, dataset, ORDER)}  # fmt: skip
        names = sorted(means, key=lambda name: -means[name].mean())
        for y, name in enumerate(names):
            one = crossed(evidence.values(dataset, name, "RSUM"), evidence.clusters(dataset))
            colour = plots.COLOURS[0] if name in SYSTEMS else "#777777"
            axis.plot(means[name], [y] * len(means[name]), ".", color=colour, ms=3, alpha=0.5)
            axis.plot([one.low, one.high], [y, y], color=colour, lw=2)
            axis.plot(one.effect, y, "o", color=colour, ms=5)
            if live and (dataset, name) in live:
                axis.plot(live[dataset, name], y, "D", color="black", mfc="none", ms=8)
        axis.set_yticks(range(len(names)), names, fontsize=8)
        axis.set(xlabel="RSUM", title=dataset, ylim=(len(names) - 0.4, -0.6))
    return figure


COMPARED = (CORA.system, TWO_STEP.system, LEADS[-1].system, "Bag of phrases",
            "Sequence, CORA's rest")  # fmt: skip


def curves(evidence: Evidence) -> Figure:
    """RSUM on dev over epochs, mean and range of seeds."""
    figure, axes = plt.subplots(
        1, len(evidence.datasets), figsize=(6 * len(evidence.datasets), 3.4), squeeze=False
    )
    for axis, dataset in zip(axes[0], evidence.datasets, strict=True):
        for colour, name in zip(plots.COLOURS, COMPARED, strict=False):
            if evidence.has(dataset, name, "dev_RSUM", EPOCHS):
                seen = evidence.curves(dataset, name, "dev_RSUM")
                epochs = np.arange(1, seen.shape[1] + 1)
                axis.plot(epochs, seen.mean(axis=0), color=colour, label=name)
                axis.fill_between(
                    epochs, seen.min(axis=0), seen.max(axis=0), color=colour, alpha=0.15
                )
        axis.set(xlabel="epoch", ylabel="RSUM on dev", title=dataset)
        axis.legend(fontsize=8)
    return figure


def by_attributes(evidence: Evidence, dataset: str, most: int = 3) -> pd.DataFrame:
    """Sum of the t2i recalls of captions with 0, 1, ... attributes: where graphs trail or lead."""
    captions, _ = captions_and_images(evidence, dataset)
    said = np.minimum(evidence.values(dataset, CAPTIONS, "attributes")[0][captions], most)
    columns = {n: f"{n} or more" if n == most else f"{n}" for n in np.unique(said).astype(int)}
    rows = {"captions": {column: np.sum(said == n) for n, column in columns.items()}}
    for name in with_rows(evidence, dataset, COMPARED):
        ranks = evidence.values(dataset, name, "rank")[:, captions]
        hits = 100 * np.sum([ranks <= k for k in KS], axis=0)
        rows[name] = {column: hits[:, said == n].mean() for n, column in columns.items()}
    return pd.DataFrame.from_dict(rows, orient="index").round(1)


def parse_errors(evidence: Evidence, dataset: str) -> Figure:
    """Change of CORA's RSUM over the share of captions with a parse error, 95 % intervals."""
    figure, axis = plt.subplots(figsize=(7.2, 3.4))
    own = evidence.values(dataset, CORA.system, "RSUM")
    for number, kind in enumerate(ERRORS):
        x = np.array(RATES) + 0.6 * (number - 1.5)  # side by side, so that intervals can be told
        hurt = [evidence.values(dataset, CORA.system, f"RSUM, {kind} {r} %") for r in RATES]
        some = [crossed(one - own, evidence.clusters(dataset)) for one in hurt]
        bars = np.array([(e.effect - e.low, e.high - e.effect) for e in some]).T
        axis.errorbar(x, [e.effect for e in some], bars, marker="o", capsize=2, label=kind)
    axis.axhline(0, color="#333333", linewidth=0.8)
    axis.set(xlabel="captions drawn for an error in %", ylabel="change of RSUM", xticks=RATES)
    axis.legend(title="what is changed", fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def entities(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """Share of images with a right entity among the first K, beside the most frequent first."""
    rows = {}
    for name in (CAPTIONS, *SYSTEMS):
        if evidence.has(dataset, name, "entity rank"):
            _, images = captions_and_images(evidence, dataset)
            ranks = evidence.values(dataset, name, "entity rank")[:, images]
            row = "most frequent first" if name == CAPTIONS else name
            rows[row] = {f"R@{k} in %": 100 * (ranks <= k).mean() for k in KS}
    return pd.DataFrame.from_dict(rows, orient="index").round(1)


def times(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """Median milliseconds of each part of a query."""
    parts = evidence.metrics(dataset, QUERY_TIME, EPOCHS)
    found = {part: np.median(evidence.curves(dataset, QUERY_TIME, part)) for part in parts}
    return pd.DataFrame({"ms": 1000 * pd.Series(found)}).round(2)


def everything(evidence: Evidence) -> tuple[dict[str, pd.DataFrame], dict[str, Figure]]:
    """All tables and all figures that need nothing but evidence, by name."""
    tables: dict[str, pd.DataFrame] = {}
    figures = {"overview": overview(evidence), "curves": curves(evidence)}
    for name in evidence.datasets:
        own = {
            "results": results(evidence, name),
            "table1": beside_paper(evidence, name, "table1", [one.system for one in TABLE_1]),
            "table3": beside_paper(evidence, name, "table3", [one.system for one in TABLE_3]),
            "table4": reranking(evidence, name),
            "leads": leads(evidence, name),
            "attributes": by_attributes(evidence, name),
            "entities": entities(evidence, name),
        }
        if evidence.has(name, QUERY_TIME, "parse", EPOCHS):
            own["times"] = times(evidence, name)
        tables |= {f"{kind}_{name}": table for kind, table in own.items()}
        if evidence.has(name, CORA.system, f"RSUM, edge {RATES[0]} %"):
            figures[f"parse_errors_{name}"] = parse_errors(evidence, name)
    tables["table2"] = printed("table2")[["coco1k_rsum", "coco5k_rsum"]]
    return tables, figures
