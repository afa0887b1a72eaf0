"""Tables and figures of paper 01: of the pairs, of trained models, and of the evidence."""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from mmlib.core import plots
from mmlib.core.claims import crossed, over_seeds
from mmlib.core.effects import Interval
from mmlib.core.evidence import EPOCHS, Evidence
from mmlib.core.related import RelatedPairs
from mmlib.core.tables import paper_tables, paper_values
from mmlib.papers.coherence.arrays import SPLITS
from mmlib.papers.coherence.claims import REFINED, gained, over, plain, ratio, with_refinement
from mmlib.papers.coherence.data import Pairs
from mmlib.papers.coherence.experiment import (
    BASE,
    CITE_LIKE,
    CLUE_LIKE,
    CMCA,
    CMCM,
    MAIN,
    NO_ATTENTION,
    PAIRS,
    PRODUCT,
    SIGNALS,
    SWEEP,
    TELLINGS,
    UNWEIGHTED,
    at_dials,
    relations_of,
    single,
    trained,
)
from mmlib.papers.coherence.model import confidence
from mmlib.papers.coherence.training import OTHER_THRESHOLD
from mmlib.world.discourse import HOW

ORACLE, DEPLOYED = "rank, true relations", "rank, told relations"
FUSED = {ORACLE: "CMCA + true relations", DEPLOYED: "CMCA + relations told by words"}
PRINTED = {CLUE_LIKE: "table5", "flickr8k": "table5", "clue": "table5", "clue clean": "table5",
           CITE_LIKE: "table4", "cite": "table4", "cite++": "table4"}  # fmt: skip
SCRIPT = {"table5": "figure5_clue_code", "table4": "figure5_cite_code"}
ON_DEV = "dev_loss", "mean log2 rank on dev"

# --- Pairs ---------------------------------------------------------------------------------------


def describe(study: Mapping[str, Pairs]) -> pd.DataFrame:
    """Size of each split, and what texts and labels are like."""
    rows = {}
    for name, pairs in study.items():
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


def how_realised(scheme: str = "clue") -> pd.DataFrame:
    """How the picture world's texts realise each relation, and what in the picture goes with it."""
    return pd.DataFrame(pd.Series(HOW[scheme], name="how the world realises it"))


def rates(pairs: Pairs, name: str) -> pd.DataFrame:
    """Positive rates in percent beside Table 1 or 2, and p_c of the loss."""
    table = {split: 100 * pairs.split(split).labels.mean(axis=0) for split in ("train", "test")}
    found = pd.DataFrame(table, index=list(pairs.relations)).round(1)
    if PRINTED[name] == "table4":
        printed = paper_values("coherence", "table1").set_index("question")
        paper = 100 * printed["positive_rate"].astype(float)
    else:
        paper = paper_values("coherence", "table2")["percent_positive"]
    found.insert(0, "paper", paper.reindex(found.index))
    positive = np.maximum(pairs.train.labels.sum(axis=0), 1)
    return found.assign(p_c=((len(pairs.train) - positive) / positive).round(2))


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
        rows += [int(i) for i in np.flatnonzero(pairs.labels[:, c]) if i not in rows][:1]
    assert pairs.open_image is not None
    images = [pairs.open_image(int(pairs.image_of[i])) for i in rows]
    titles = [labelled_text(pairs, i) for i in rows]
    return plots.show_pictures(images, titles, columns=len(rows), size=2.1)


def recorded(table: str) -> pd.DataFrame:
    """Figures of Clue or CITE that were counted once, see `mmlib.papers.coherence.recorded`.

    Raises KeyError for a table that the paper printed, or that is none.
    """
    if not paper_tables("coherence")[table]["source"].startswith("recorded"):
        raise KeyError(f"{table} is not recorded: it is the paper's")
    return paper_values("coherence", table)


def confidence_figure() -> Figure:
    """Fig. 3a: one relation's confidence over its probability, for the printed λ and ours."""
    x = np.linspace(0, 1, 201)
    figure, axis = plt.subplots(figsize=(5, 3))
    for strength in (0.01, 0.12, 1.0):
        axis.plot(x, confidence(x[:, None], strength), label=f"λ = {strength:g}")
    axis.set(xlabel="probability x of the relation", ylabel="the term of one relation in η")
    axis.legend()
    return figure


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
        axis.grid(visible=False)
        for side in axis.spines.values():
            side.set(visible=image == own, color=plots.TRUE, linewidth=3)


# --- What the evidence says: levels --------------------------------------------------------------


def rankings(evidence: Evidence, dataset: str) -> dict[str, tuple[str, str]]:
    """Our name of each way to rank -> (system, metric): floors, systems, fusions."""
    found = {name: (name, "rank") for name in ("Random", "Ridge")}
    found |= {one.system: (one.system, "rank") for one in trained(dataset)}
    found |= {FUSED[metric]: (CMCA.system, metric) for metric in (DEPLOYED, ORACLE)}
    return {name: term for name, term in found.items() if evidence.has(dataset, *term)}


def results(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """Mean log2 rank of each ranking, what it gains over CMCA, and as a share of the oracle's gain.

    Shares stand only where the oracle gains for certain. ± is the standard deviation over seeds; ↓
    marks a system of which more than a fifth of the trainings still improved on dev at their end.
    """
    clusters, rows = evidence.clusters(dataset), {}
    base = (CMCA.system, "rank")
    oracle = None
    if evidence.has(dataset, CMCA.system, ORACLE):
        oracle = gained(evidence, dataset, over((CMCA.system, ORACLE), base))
    for name, term in rankings(evidence, dataset).items():
        level = np.log2(evidence.values(dataset, *term))
        flag = " ↓" if evidence.unfinished(dataset, term[0]) else ""
        row = {"log2 rank": f"{level.mean():.2f} ± {level.mean(axis=1).std(ddof=1):.2f}"
               if len(level) > 1 else f"{level.mean():.2f}"}  # fmt: skip
        if term != base and evidence.has(dataset, *base):
            gain = gained(evidence, dataset, over(term, base))
            row["gain over CMCA"] = crossed(gain, clusters).told()
            if oracle is not None and crossed(oracle, clusters).low > 0:
                share = ratio(gain, oracle, clusters)
                row["in % of the oracle's gain"] = share.told(0, times=100)
        rows[name + flag] = row
    return pd.DataFrame.from_dict(rows, orient="index").fillna("–")


def main_table(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """Table 4 or 5 beside ours: MedR and R@1, R@10 of θ and θ̄ in the same pools of 500.

    "pools": standard deviation of MedR over the pools of a training, which is what the paper
    prints as ±; "seeds": over trainings.
    """
    paper = paper_values("coherence", PRINTED[dataset])
    singles = [single(c) for c in relations_of(dataset)]
    names = ["Random", "Ridge", *(one.system for one in (*MAIN, *singles, PRODUCT))]
    rows = {}
    for name in (n for n in names if evidence.has(dataset, n, "MedR", "pools")):
        printed = paper.loc[name] if name in paper.index else {}
        medr = evidence.values(dataset, name, "MedR", split="pools")
        row: dict[tuple[str, str], float] = {
            ("MedR", "paper"): printed.get("MedR", np.nan),
            ("MedR", "paper's ±"): printed.get("MedR_std", np.nan),
            ("± of θ", "pools"): medr.std(axis=1, ddof=1).mean(),
            ("± of θ", "seeds"): medr.mean(axis=1).std(ddof=1) if len(medr) > 1 else np.nan,
        }
        for metric in ("MedR", "R@1", "R@10"):
            row[metric, "paper"] = printed.get(metric, np.nan)
            for short, own in (("θ", metric), ("θ̄", f"{metric}, refined")):
                row[metric, short] = evidence.means(dataset, name, own, "pools").mean()
        rows[name] = row
    table = pd.DataFrame.from_dict(rows, orient="index")
    table.columns = pd.MultiIndex.from_tuples(table.columns)
    order = [("MedR", c) for c in ("paper", "paper's ±", "θ", "θ̄")]
    order += [("± of θ", "pools"), ("± of θ", "seeds")]
    order += [(f"R@{k}", c) for k in (1, 10) for c in ("paper", "θ", "θ̄")]
    return (
        table.reindex(columns=pd.MultiIndex.from_tuples(order)).round(1).astype(object).fillna("–")
    )


def authors_script(dataset: str) -> pd.DataFrame:
    """MedR as printed, and before and after refinement in the authors' comparison script."""
    table = PRINTED[dataset]
    script = paper_values("coherence", SCRIPT[table])[["MedR_theta", "MedR_theta_bar"]]
    script.insert(0, "printed", paper_values("coherence", table)["MedR"])
    return script


def overview(evidence: Evidence, live: Mapping[tuple[str, str], float] | None = None) -> Figure:
    """Mean log2 rank of each ranking, best first: a tick a seed, the mean with its 95 % interval.

    Without "Random", next to which all others would look alike. live: (collection, system) -> mean
    log2 rank of a training of this run, a diamond.
    """
    sets = plain(evidence)
    most = max(len(rankings(evidence, name)) for name in sets)
    figure, axes = plt.subplots(
        1, len(sets), figsize=(6.5 * len(sets), 0.24 * most + 0.9), squeeze=False
    )
    for axis, dataset in zip(axes[0], sets, strict=True):
        levels = {
            name: np.log2(evidence.values(dataset, *term))
            for name, term in rankings(evidence, dataset).items()
            if name != "Random"
        }
        own = {name: levels[name] for name in sorted(levels, key=lambda n: levels[n].mean())}
        systems = {one.system for one in trained(dataset)}
        here = {name: value for (of, name), value in (live or {}).items() if of == dataset}
        plots.ranked_systems(axis, own, evidence.clusters(dataset), systems, here)
        axis.set(xlabel="mean log2 rank (lower is better)", title=dataset)
    return figure


def curves(evidence: Evidence) -> Figure:
    """Mean log2 rank on dev over epochs, mean and range of seeds."""
    sets = plain(evidence)
    figure, axes = plt.subplots(1, len(sets), figsize=(6 * len(sets), 3.2), squeeze=False)
    for axis, dataset in zip(axes[0], sets, strict=True):
        for colour, one in zip(plots.COLOURS, MAIN, strict=False):
            if evidence.has(dataset, one.system, "dev_loss", EPOCHS):
                seen = evidence.curves(dataset, one.system, "dev_loss")
                plots.curve_of_seeds(axis, seen, one.system, colour)
        axis.set(xlabel="epoch", ylabel=ON_DEV[1], title=dataset)
        axis.legend(fontsize=8)
    return figure


def spread(evidence: Evidence, dataset: str, most: int = 8) -> Figure:
    """MedR of every pool of some trainings: what varies with the pool, and what with the seed."""
    names = [one.system for one in (CMCA, CMCM)]
    figure, axes = plt.subplots(1, 2, figsize=(9, 2.8), sharey=True)
    for axis, name in zip(axes, names, strict=True):
        values = evidence.values(dataset, name, "MedR", split="pools")[:most]
        axis.boxplot(list(values), tick_labels=list(map(str, evidence.seeds_of(dataset)[:most])))
        axis.set(title=f"{name}, {dataset}", xlabel="seed")
    axes[0].set(ylabel="MedR of 50 pools")
    return figure


# --- What the evidence says: why -----------------------------------------------------------------


def refinement(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """What θ̄ gains over θ, in log2 ranks: under both T, as dev chose; and ranking by η alone."""
    rows = {}
    ways = {
        "T 0.05 (code)": REFINED,
        "T 0.1 (paper)": f"{REFINED}, T {OTHER_THRESHOLD}",
        "λ and T as dev chose": f"{REFINED} as dev chose",
        "η alone": "rank by confidence",
    }
    for name in with_refinement(evidence, dataset):
        rows[name] = {
            way: crossed(
                gained(evidence, dataset, over((name, metric), (name, "rank"))),
                evidence.clusters(dataset),
            ).told(3)
            for way, metric in ways.items()
            if evidence.has(dataset, name, metric)
        }
    return pd.DataFrame.from_dict(rows, orient="index").fillna("–")


def gap_figure(evidence: Evidence, dataset: str) -> Figure:
    """Fig. 3b: rank of the own image over Δ, a dot a test text, of the first seed."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3), sharex=True, sharey=True)
    for axis, one in zip(axes, (CMCA, CMCM), strict=True):
        gap, rank = (evidence.values(dataset, one.system, m)[0] for m in ("gap", "rank"))
        axis.plot(gap, rank, ".", alpha=0.4)
        axis.axvline(0.2, color="#333333", linewidth=0.8, linestyle="--")
        title = f"{one.system}, {dataset}"
        axis.set(xlabel="Δ, best cosine minus second best", yscale="log", title=title)
    axes[0].set(ylabel="rank of the text's own picture")
    return figure


def predicted(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """Table 8 beside ours: average precision of each relation, and what knows it.

    "words" and "pictures": linear probes of the bag of words and of the features, before any
    training; then the head's own, by both of its parts and by each; then its alignment.
    """

    def mean(system: str, metric: str) -> np.ndarray:
        if not evidence.has(dataset, system, metric, "relations"):
            return np.full(len(relations_of(dataset)), np.nan)
        return evidence.values(dataset, system, metric, split="relations").mean(axis=0)

    columns = {
        "chance": mean(PAIRS, "rate"), "words": mean(PAIRS, "AP of words"),
        "pictures": mean(PAIRS, "AP of pictures"), "CMCM": mean(CMCM.system, "AP"),
        "its text part": mean(CMCM.system, "AP, text part"),
        "its image part": mean(CMCM.system, "AP, image part"),
        "alignment": mean(CMCM.system, "alignment"),
    }  # fmt: skip
    table = pd.DataFrame(columns, index=list(relations_of(dataset))).round(2)
    if PRINTED[dataset] == "table5":
        printed = paper_values("coherence", "table8").loc[CMCM.system]
        table.insert(0, "CMCM, paper", printed.reindex(table.index))
    return table


def probes(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """Average precision of linear probes of CMCA's and CMCM's vectors, means over seeds."""
    columns = {}
    for part in ("z_S", "z_I", "both"):
        for one in (CMCA, CMCM):
            found = evidence.values(dataset, one.system, f"AP of {part}", split="relations")
            columns[part, one.system] = found.mean(axis=0)
    table = pd.DataFrame(columns, index=list(relations_of(dataset))).round(2)
    table.columns = pd.MultiIndex.from_tuples(table.columns)
    return table


CONTRASTS = {
    "relations, with attention": (CMCM, CMCA),
    "relations, without attention": (NO_ATTENTION, BASE),
    "weights of rare relations": (CMCM, UNWEIGHTED),
    "head on the product, not the sum": (PRODUCT, CMCM),
    "attention": (CMCA, BASE),
}


def in_pools(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """What CMCM gains over CMCA by the paper's measures, with 95 % intervals over seeds.

    In the same pools of 500, unrefined. Positive is better: ranks for MedR, points for R@K. One
    seed has no interval.
    """
    found = {}
    for metric in ("MedR", "R@1", "R@5", "R@10"):
        with_them, without = (
            evidence.values(dataset, one.system, metric, split="pools").mean(axis=1)
            for one in (CMCM, CMCA)
        )
        gain = without - with_them if metric == "MedR" else with_them - without
        found[metric] = over_seeds(gain).told() if len(gain) > 1 else f"{gain[0]:+.2f}"
    return pd.DataFrame({f"{CMCM.system} over {CMCA.system}": found}).T


def contrasts(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """What each single change gains, in log2 ranks with 95 % intervals over seeds and pictures."""
    rows = {}
    for name, (better, worse) in CONTRASTS.items():
        terms = over((better.system, "rank"), (worse.system, "rank"))
        if all(evidence.has(dataset, *term) for term in terms):
            effect = crossed(gained(evidence, dataset, terms), evidence.clusters(dataset))
            row = {"against": f"{better.system} − {worse.system}", "gain": effect.told()}
            rows[name] = row
    return pd.DataFrame.from_dict(rows, orient="index")


def singles(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """What each relation alone gains over CMCA, with its weight p_c in the loss and without.

    The last row: the correlation of gain and rate over relations, with its interval over seeds.
    """
    rate = evidence.values(dataset, PAIRS, "rate", split="relations")[0]
    names = relations_of(dataset)
    gains, rows = {}, {c: {"rate": f"{r:.2f}"} for c, r in zip(names, rate, strict=True)}
    for label, weighted in (("with p_c", True), ("without", False)):
        systems = [single(c, weighted).system for c in names]
        if not all(evidence.has(dataset, system, "rank") for system in systems):
            continue
        own = [gained(evidence, dataset, over((s, "rank"), (CMCA.system, "rank"))) for s in systems]
        for c, values in zip(names, own, strict=True):
            rows[c][label] = crossed(values, evidence.clusters(dataset)).told()
        gains[label] = np.array([values.mean(axis=1) for values in own])  # (C, seeds)
    table = pd.DataFrame.from_dict(rows, orient="index")
    for label, table_of in gains.items():
        each = [float(np.corrcoef(rate, of_seed)[0, 1]) for of_seed in table_of.T]
        if len(each) > 1:
            table.loc["correlation with the rate", label] = over_seeds(each).told()
    return table.fillna("–")


def by_relation(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """Table 7's question: mean log2 rank over the test texts of which a relation holds."""
    rows = {}
    for c in relations_of(dataset):
        holds = evidence.values(dataset, PAIRS, c)[0] > 0
        if holds.sum() < 2:
            continue
        row: dict[str, Any] = {"texts": int(holds.sum())}
        terms = {"CMCA": (CMCA.system, "rank"), "CMCM, refined": (CMCM.system, REFINED),
                 "oracle": (CMCA.system, ORACLE)}  # fmt: skip
        for name, term in terms.items():
            if evidence.has(dataset, *term):
                level = np.log2(evidence.values(dataset, *term))[:, holds]
                row[name] = round(float(level.mean()), 2)
        gain = gained(evidence, dataset, over((CMCM.system, REFINED), (CMCA.system, "rank")))
        row["gain"] = crossed(gain[:, holds], evidence.clusters(dataset)[holds]).told()
        rows[c] = row
    return pd.DataFrame.from_dict(rows, orient="index")


def dials(evidence: Evidence) -> dict[str, dict[tuple[float, float], Interval]]:
    """Title -> (signal, telling) -> gain over CMCA, on every Clue-like collection on record."""
    base = (CMCA.system, "rank")
    titles = {"CMCM": (CMCM.system, "rank"), FUSED[DEPLOYED]: (CMCA.system, DEPLOYED),
              FUSED[ORACLE]: (CMCA.system, ORACLE)}  # fmt: skip
    found: dict[str, dict[tuple[float, float], Interval]] = {title: {} for title in titles}
    for title, term in titles.items():
        for signal in SIGNALS:
            for telling in TELLINGS:
                name = at_dials(signal, telling)
                if evidence.has(name, *term) and evidence.has(name, *base):
                    gain = gained(evidence, name, over(term, base))
                    found[title][signal, telling] = crossed(gain, evidence.clusters(name))
    return found


def map_figure(evidence: Evidence) -> Figure:
    """Gains over CMCA, in log2 ranks, over both dials; ± is half of the 95 % interval."""
    found = dials(evidence)
    figure, axes = plt.subplots(1, len(found), figsize=(4.4 * len(found), 3.2))
    for axis, (title, cells) in zip(axes, found.items(), strict=True):
        grid = np.array([
            [cells[s, t].effect if (s, t) in cells else np.nan for t in TELLINGS] for s in SIGNALS
        ])  # fmt: skip
        bound = max(float(np.nanmax(np.abs(grid), initial=0.0)), 0.05)
        axis.imshow(grid, cmap="PuOr", vmin=-bound, vmax=bound, origin="lower", aspect="auto",
                    interpolation="nearest")  # fmt: skip
        for (signal, telling), one in cells.items():
            place = TELLINGS.index(telling), SIGNALS.index(signal)
            text = f"{one.effect:+.2f}\n± {one.high - one.effect:.2f}"
            dark = abs(one.effect) > 0.7 * bound
            axis.text(*place, text, ha="center", va="center", fontsize=8,
                      color="white" if dark else "black")  # fmt: skip
        axis.set_xticks(range(len(TELLINGS)), [f"{t:g}" for t in TELLINGS])
        axis.set_yticks(range(len(SIGNALS)), [f"{s:g}" for s in SIGNALS])
        axis.set(xlabel="telling: what the text says", ylabel="signal: what the picture shows")
        axis.set_title(f"{title}: gain over CMCA, log2 ranks", fontsize=9)
        axis.grid(visible=False)
    return figure


def sweep_figure(evidence: Evidence, dataset: str) -> Figure:
    """Fig. 8: mean log2 rank over λ_cls, a dot a seed; beside it the authors' MedR (CITE++)."""
    known = {0.0: CMCA.system, 0.1: CMCM.system, **{v: f"CMCM, λ_cls {v:g}" for v in SWEEP}}
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 2.8))
    means = []
    for place, value in enumerate(sorted(known)):
        own = np.log2(evidence.values(dataset, known[value], "rank")).mean(axis=1)
        left.plot([place] * len(own), own, ".", color=plots.COLOURS[0], alpha=0.5)
        means.append(own.mean())
    left.plot(means, "o-", color=plots.COLOURS[0])
    left.set_xticks(range(len(known)), [f"{value:g}" for value in sorted(known)])
    left.set(xlabel="λ_cls", ylabel="mean log2 rank, ours", title=dataset)
    table = paper_values("coherence", "figure8_left_code")
    right.errorbar(range(len(table)), table["MedR"], table["MedR_std"], color=plots.COLOURS[1],
                   marker="o", capsize=3)  # fmt: skip
    right.set_xticks(range(len(table)), [f"{value:g}" for value in table["lambda_cls"]])
    right.set(xlabel="λ_cls (authors)", ylabel="MedR, authors'", title="CITE++")
    return figure


def everything(evidence: Evidence) -> tuple[dict[str, pd.DataFrame], dict[str, Figure]]:
    """All tables and all figures that need nothing but evidence, by name."""
    tables: dict[str, pd.DataFrame] = {}
    figures = {"overview": overview(evidence), "curves": curves(evidence)}
    for name in plain(evidence):
        makers = (
            results,
            main_table,
            in_pools,
            refinement,
            predicted,
            probes,
            contrasts,
            singles,
            by_relation,
        )
        tables |= {f"{make.__name__}_{name}": make(evidence, name) for make in makers}
        figures[f"gap_{name}"] = gap_figure(evidence, name)
        figures[f"spread_{name}"] = spread(evidence, name)
        if all(evidence.has(name, f"CMCM, λ_cls {value:g}", "rank") for value in SWEEP):
            figures[f"sweep_{name}"] = sweep_figure(evidence, name)
    if any(len(cells) > 1 for cells in dials(evidence).values()):
        figures["map"] = map_figure(evidence)
    return tables, figures
