"""Tables of paper 01: of the pairs, and of the evidence, beside the paper's own."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from mmlib.core.effects import Effect, crossed, over_seeds
from mmlib.core.evidence import Evidence
from mmlib.core.tables import paper_values
from mmlib.papers.coherence.claims import (
    Term,
    at_defaults,
    gained,
    over,
    ratio,
    with_refinement,
)
from mmlib.papers.coherence.data.pairs import (
    CITE_LIKE,
    CLUE_LIKE,
    CONTROLLED,
    CONTROLLED_TIER,
    DIALS,
    FEW,
    HELPFUL,
    MANY,
    PLACES,
    relations_of,
)
from mmlib.papers.coherence.data.schemes import SCHEMES
from mmlib.papers.coherence.method import expected_in_pools
from mmlib.papers.coherence.run import (
    CMCA,
    CMCM,
    CONTRASTS,
    ORACLES,
    OTHER_THRESHOLD,
    PAIRS,
    REFINED,
    SWEPT,
    SYSTEMS,
    single,
    trained_systems,
)

CMCA_RANK = (CMCA.system, "rank")
ORACLE, DEPLOYED = "rank, true relations", "rank, told relations"
CMCA_ORACLE = (CMCA.system, ORACLE)
FUSED = {ORACLE: "CMCA + true relations", DEPLOYED: "CMCA + relations told by words"}
PRINTED = {CLUE_LIKE: "table5", "flickr8k": "table5", "clue": "table5", "clue clean": "table5",
           CITE_LIKE: "table4", "cite": "table4", "cite++": "table4"}  # fmt: skip
POOL_METRICS = ("MedR", "R@1", "R@5", "R@10")
SCRIPT = {"table5": "figure5_clue_code", "table4": "figure5_cite_code"}


def how_realised(scheme: str = "clue") -> pd.DataFrame:
    """How the picture world's texts realise each relation, and what in the picture goes with it."""
    return pd.DataFrame(pd.Series(SCHEMES[scheme].how, name="how the world realises it"))


def rankings(evidence: Evidence, dataset: str) -> dict[str, Term]:
    """Our name of each way to rank -> (system, metric): baselines, systems, fusions."""
    terms = {name: (name, "rank") for name in ("Random", "Ridge")}
    terms |= {system.system: (system.system, "rank") for system in trained_systems(dataset)}
    terms |= {FUSED[metric]: (CMCA.system, metric) for metric in (DEPLOYED, ORACLE)}
    return {name: term for name, term in terms.items() if evidence.has(dataset, *term)}


def _gain(evidence: Evidence, dataset: str, better: Term, worse: Term = CMCA_RANK) -> Effect:
    """What one ranking gains over another in log2 ranks, over seeds and pictures."""
    gains = gained(evidence, dataset, over(better, worse))
    return crossed(gains, evidence.clusters(dataset))


def results(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """Mean log2 rank of each ranking, what it gains over CMCA, and as a share of the oracle's gain.

    Shares stand only where the oracle gains for certain. ± is the standard deviation over seeds; ↓
    marks a system of which more than a fifth of the trainings still improved on dev at their end.
    """
    rows, oracle = {}, CMCA_ORACLE
    with_oracle = evidence.has(dataset, *oracle) and _gain(evidence, dataset, oracle).low > 0
    for name, term in rankings(evidence, dataset).items():
        level = np.log2(evidence.values(dataset, *term))
        flag = " ↓" if evidence.unfinished(dataset, term[0]) else ""
        row = {"log2 rank": f"{level.mean():.2f} ± {level.mean(axis=1).std(ddof=1):.2f}"
               if len(level) > 1 else f"{level.mean():.2f}"}  # fmt: skip
        if term != CMCA_RANK and evidence.has(dataset, *CMCA_RANK):
            row["gain over CMCA"] = _gain(evidence, dataset, term).told()
            if with_oracle:
                gain, most = (gained(evidence, dataset, over(t, CMCA_RANK)) for t in (term, oracle))
                share = ratio(gain, most, evidence.clusters(dataset))
                row["in % of the oracle's gain"] = share.told(0, times=100)
        rows[name + flag] = row
    return pd.DataFrame.from_dict(rows, orient="index").fillna("–")


def main_table(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """Table 4 or 5 beside ours: MedR and R@1, 5, 10 of θ and θ̄ in the same pools of 500.

    All printed rows are there; "–" where ours was not trained, as with a relation that a collection
    lacks. "pools": standard deviation of MedR over the pools of a training, which is what the
    paper prints as ±; "seeds": over trainings.
    """
    paper = paper_values("coherence", PRINTED[dataset])
    singles = [single(c) for c in relations_of(dataset)]
    names = ["Random", "Ridge", *(system.system for system in (*SYSTEMS, *singles))]
    names += [name for name in paper.index if name not in names]
    rows = {}
    for name in names:
        printed = paper.loc[name] if name in paper.index else {}
        if not evidence.has(dataset, name, "MedR", "pools"):
            if name in paper.index:
                rows[name] = {(metric, "paper"): printed[metric] for metric in POOL_METRICS}
                rows[name]["MedR", "paper's ±"] = printed["MedR_std"]
            continue
        medr = evidence.values(dataset, name, "MedR", split="pools")
        of_seeds = medr.mean(axis=1)
        row = {("MedR", "paper"): np.nan, ("MedR", "paper's ±"): printed.get("MedR_std", np.nan)}
        for metric in POOL_METRICS:
            row[metric, "paper"] = printed.get(metric, np.nan)
            row[metric, "θ"] = evidence.means(dataset, name, metric, "pools").mean()
            row[metric, "θ̄"] = evidence.means(dataset, name, f"{metric}, refined", "pools").mean()
            if metric == "MedR":
                row["± of θ", "pools"] = medr.std(axis=1, ddof=1).mean()
                row["± of θ", "seeds"] = of_seeds.std(ddof=1) if len(medr) > 1 else np.nan
        rows[name] = row
    table = pd.DataFrame.from_dict(rows, orient="index")
    table.columns = pd.MultiIndex.from_tuples(table.columns)
    return table.round(1).astype(object).fillna("–")


def human_study(n: int = 100) -> pd.DataFrame:
    """t-tests of the paper's own Table 6, if each relation had n questions; it prints no n.

    The paper states t > 14.1 everywhere. needed: how many questions with these shares that takes.
    """
    bound = paper_values("coherence", "human_evaluation_text").value["t statistic, lower bound"]
    shares = paper_values("coherence", "table6")[["Better", "Worse"]].astype(float)
    shares.loc["all pooled"] = shares.mean()
    table = shares.rename(columns=str.lower).assign(n=n)
    table.loc["all pooled", "n"] = n * (len(shares) - 1)
    mean, square = (table.better - table.worse) / 100, (table.better + table.worse) / 100
    table["t"] = mean / np.sqrt((square - mean**2) / (table.n - 1))
    table["p"] = 2 * stats.t.sf(abs(table.t), table.n - 1)
    return table.assign(needed=np.ceil(table.n * (bound / table.t) ** 2).astype(int))


def in_pools(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """What CMCM gains over CMCA by the paper's measures, with 95 % intervals over seeds.

    In the same pools of 500, unrefined. Positive is better: ranks for MedR, points for R@K. One
    seed has no interval.
    """
    gains = {}
    for metric in POOL_METRICS:
        aware, agnostic = (
            evidence.values(dataset, system.system, metric, split="pools").mean(axis=1)
            for system in (CMCM, CMCA)
        )
        gain = agnostic - aware if metric == "MedR" else aware - agnostic
        gains[metric] = over_seeds(gain).told() if len(gain) > 1 else f"{gain[0]:+.2f}"
    return pd.DataFrame({f"{CMCM.system} over {CMCA.system}": gains}).T


def contrasts(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """What each single change gains, in log2 ranks with 95 % intervals over seeds and pictures."""
    rows = {}
    for name, (better, worse) in CONTRASTS.items():
        terms = (better.system, "rank"), (worse.system, "rank")
        if all(evidence.has(dataset, *term) for term in terms):
            gain = _gain(evidence, dataset, *terms).told()
            rows[name] = {"against": f"{better.system} − {worse.system}", "gain": gain}
    return pd.DataFrame.from_dict(rows, orient="index")


def singles(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """What each relation alone gains over CMCA.

    The last row: the correlation of gain and rate over relations, with its interval over seeds.
    """
    rate = evidence.values(dataset, PAIRS, "rate", split="relations")[0]
    names = relations_of(dataset)
    table = pd.DataFrame({"rate": [f"{r:.2f}" for r in rate]}, index=list(names))
    terms = [(single(c).system, "rank") for c in names]
    if not all(evidence.has(dataset, *term) for term in terms):
        return table
    gains = [gained(evidence, dataset, over(term, CMCA_RANK)) for term in terms]
    clusters = evidence.clusters(dataset)
    table["with p_c"] = [crossed(values, clusters).told() for values in gains]
    by_seed = np.array([values.mean(axis=1) for values in gains]).T  # (seeds, C)
    if len(by_seed) > 1:
        correlations = [float(np.corrcoef(rate, of_seed)[0, 1]) for of_seed in by_seed]
        table.loc["correlation with the rate", "with p_c"] = over_seeds(correlations).told()
    return table.fillna("–")


def by_relation(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """Table 7's question: mean log2 rank over the test texts of which a relation holds."""
    terms = {"CMCA": CMCA_RANK, "CMCM, refined": (CMCM.system, REFINED),
             "oracle": CMCA_ORACLE}  # fmt: skip
    rows = {}
    for c in relations_of(dataset):
        holds = evidence.values(dataset, PAIRS, c)[0] > 0
        if holds.sum() < 2:
            continue
        row: dict[str, Any] = {"texts": int(holds.sum())}
        for name, term in terms.items():
            if evidence.has(dataset, *term):
                level = np.log2(evidence.values(dataset, *term))[:, holds]
                row[name] = round(float(level.mean()), 2)
        gain = gained(evidence, dataset, over(terms["CMCM, refined"], CMCA_RANK))
        row["gain"] = crossed(gain[:, holds], evidence.clusters(dataset)[holds]).told()
        rows[c] = row
    return pd.DataFrame.from_dict(rows, orient="index")


def table7(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """Table 7 beside ours: the test texts of which a relation holds, in pools of 500, unrefined.

    Ours are means over all pools and seeds (`metrics.expected_in_pools`), the paper's one pool
    that was drawn with replacement, in which texts may compete with themselves. "–": the collection
    does not have the relation.
    """
    printed, rows = paper_values("coherence", "table7"), {}
    for c in relations_of("cite" if PRINTED[dataset] == "table4" else "clue"):
        for name in (CMCA.system, CMCM.system):
            row = {
                (metric, "paper"): printed.loc[f"{c} / {name}", metric] for metric in POOL_METRICS
            }
            has = evidence.has(dataset, PAIRS, c) and evidence.has(dataset, name, "rank")
            holds = evidence.values(dataset, PAIRS, c)[0] > 0 if has else np.zeros(0)
            if holds.any():
                ranks = evidence.values(dataset, name, "rank")
                ours = [expected_in_pools(of_seed[holds], ranks.shape[1]) for of_seed in ranks]
                row |= {(m, "ours"): np.mean([values[m] for values in ours]) for m in ours[0]}
            rows[c, name] = row | {("texts", "ours"): str(int(holds.sum())) if len(holds) else "–"}
    table = pd.DataFrame.from_dict(rows, orient="index")
    table.columns = pd.MultiIndex.from_tuples(table.columns)
    columns = [("texts", "ours"), *((m, of) for m in POOL_METRICS for of in ("paper", "ours"))]
    return table.reindex(columns=columns).round(1).astype(object).fillna("–")


def refinement(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """What θ̄ gains over θ, in log2 ranks: under both T, as dev chose; and ranking by η alone."""
    ways = {
        "T 0.05 (code)": REFINED,
        "T 0.1 (paper)": f"{REFINED}, T {OTHER_THRESHOLD}",
        "λ and T as dev chose": f"{REFINED} as dev chose",
        "η alone": "rank by confidence",
    }
    rows = {
        name: {
            label: _gain(evidence, dataset, (name, metric), (name, "rank")).told(3)
            for label, metric in ways.items()
            if evidence.has(dataset, name, metric)
        }
        for name in with_refinement(evidence, dataset)
    }
    return pd.DataFrame.from_dict(rows, orient="index").fillna("–")


def dials(evidence: Evidence) -> dict[str, dict[tuple[float, float], Effect]]:
    """Title -> (signal, telling) -> gain over CMCA, on every Clue-like collection that has it."""
    titles = {"CMCM": (CMCM.system, "rank"), FUSED[DEPLOYED]: (CMCA.system, DEPLOYED),
              FUSED[ORACLE]: CMCA_ORACLE}  # fmt: skip
    return {
        title: {
            at: _gain(evidence, name, term)
            for name, at in DIALS.items()
            if evidence.has(name, *term) and evidence.has(name, *CMCA_RANK)
        }
        for title, term in titles.items()
    }


def predicted(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """Table 8 beside ours: average precision of each relation, and where it comes from.

    "words" and "pictures": linear probes of the bag of words and of the features, before any
    training; then the head's own, by both of its parts and by each; then its alignment.
    """
    columns = {
        "chance": (PAIRS, "rate"), "words": (PAIRS, "AP of words"),
        "pictures": (PAIRS, "AP of pictures"), "CMCM": (CMCM.system, "AP"),
        "its text part": (CMCM.system, "AP, text part"),
        "its image part": (CMCM.system, "AP, image part"),
        "alignment": (CMCM.system, "alignment"),
    }  # fmt: skip
    table = pd.DataFrame(index=list(relations_of(dataset)), columns=list(columns), dtype=float)
    for name, (system, metric) in columns.items():
        if evidence.has(dataset, system, metric, "relations"):
            table[name] = evidence.values(dataset, system, metric, split="relations").mean(axis=0)
    table = table.round(2)
    if PRINTED[dataset] == "table5":
        printed = paper_values("coherence", "table8").loc[CMCM.system]
        table.insert(0, "CMCM, paper", printed.reindex(table.index))
    return table


def table8(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """Table 8 beside ours: average precision of each relation's prediction, by system.

    The paper has it of Clue. CMCM_c is the system that learns the row's relation alone. Of ours,
    CMCM alone has such predictions on record, hence "–".
    """
    printed = paper_values("coherence", "table8")
    relations = list(printed.columns)
    papers = {name: printed.loc[name] for name in ("CMCM-NoAttn", CMCM.system)}
    papers["CMCM_c"] = pd.Series({c: printed.loc[single(c).system, c] for c in relations})
    table = pd.DataFrame(
        {(name, of): values if of == "paper" else np.nan
         for name, values in papers.items() for of in ("paper", "ours")}, index=relations
    )  # fmt: skip
    if evidence.has(dataset, CMCM.system, "AP", "relations"):
        ours = evidence.values(dataset, CMCM.system, "AP", split="relations").mean(axis=0)
        table[CMCM.system, "ours"] = pd.Series(ours, index=list(relations_of(dataset)))
    return table.round(2).astype(object).fillna("–")


def probes(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """Average precision of linear probes of CMCA's and CMCM's vectors, means over seeds."""
    columns = {
        (of, name): evidence.values(dataset, name, f"AP of {of}", split="relations").mean(axis=0)
        for of in ("z_S", "z_I", "both")
        for name in (CMCA.system, CMCM.system)
    }
    table = pd.DataFrame(columns, index=list(relations_of(dataset))).round(2)
    table.columns = pd.MultiIndex.from_tuples(table.columns)
    return table


# --- Controlled pairs -----------------------------------------------------------------------------


WEIGHTS = {
    system.lambda_cls: system.system
    for system in sorted((CMCM, *SWEPT), key=lambda system: system.lambda_cls)
}  # λ_cls -> the system that learns all relations with it


def controlled(evidence: Evidence) -> list[str]:
    """The controlled collections on record, in their own order."""
    return [name for name in CONTROLLED if name in evidence.datasets]


def controlled_levels(evidence: Evidence) -> pd.DataFrame:
    """Mean log2 rank of each system on each collection, with 95 % intervals over seeds and texts.

    The oracle of things knows what a text names and no relation; who does better knows relations.
    """
    relations, things = (oracle["system"] for oracle in ORACLES)
    first = single(PLACES[0]).system
    rows: dict[str, dict[str, str]] = {}
    for system in (things, CMCA.system, *WEIGHTS.values(), first, relations):
        for name in controlled(evidence):
            if evidence.has(name, system, "rank"):
                ranks = np.log2(evidence.values(name, system, "rank"))
                level = crossed(ranks, evidence.clusters(name))
                text = f"{level.effect:.2f} [{level.low:.2f}, {level.high:.2f}]"
                rows.setdefault(system, {})[name] = text
    return pd.DataFrame(rows).T[controlled(evidence)].fillna("–")


def controlled_gains(evidence: Evidence) -> dict[str, dict[str, Effect]]:
    """Collection -> system -> its gain over CMCA in log2 ranks; of refinement, over none."""
    terms = {name: ((name, "rank"), CMCA_RANK) for name in WEIGHTS.values()}
    terms[single(PLACES[0]).system] = ((single(PLACES[0]).system, "rank"), CMCA_RANK)
    terms["refinement of CMCM"] = ((CMCM.system, REFINED), (CMCM.system, "rank"))
    return {
        dataset: {
            name: _gain(evidence, dataset, *pair)
            for name, pair in terms.items()
            if all(evidence.has(dataset, *term) for term in pair)
        }
        for dataset in controlled(evidence)
    }


# What learning the relations is worth in each kind of data: tier, collection, system.
WORTH = {
    "1,000 made-up pairs, λ = .4": (CONTROLLED_TIER, HELPFUL, SWEPT[1]),
    "1,000 made-up pairs, λ = .1": (CONTROLLED_TIER, HELPFUL, CMCM),
    "4,000 made-up pairs, λ = .4": (CONTROLLED_TIER, MANY, SWEPT[1]),
    "300 made-up pairs, λ = .4": (CONTROLLED_TIER, FEW, SWEPT[1]),
    "picture world, captions": ("world", CLUE_LIKE, CMCM),
    "picture world, recipe steps": ("world", CITE_LIKE, CMCM),
    "photographs": ("flickr8k", "flickr8k", CMCM),
}


def relations_worth(evidence: Mapping[str, Evidence]) -> dict[str, dict[str, Effect]]:
    """Kind of data -> what "learning" and "knowing" the relations gain over CMCA, in log2 ranks.

    evidence: by tier. Learning is CMCM, knowing an oracle: of made-up pairs the reader that knows
    all relations, elsewhere CMCA with the true relations added.
    """
    worth = {}
    for kind, (tier, dataset, system) in WORTH.items():
        oracle = (ORACLES[0]["system"], "rank") if tier == CONTROLLED_TIER else CMCA_ORACLE
        terms = {"learning": (system.system, "rank"), "knowing": oracle}
        worth[kind] = {name: _gain(evidence[tier], dataset, term) for name, term in terms.items()}
    return worth


OF_COLLECTIONS = (
    results, main_table, in_pools, refinement, predicted, probes, contrasts, singles, by_relation,
    table7,
)  # fmt: skip


def tables(evidence: Evidence) -> dict[str, pd.DataFrame]:
    """All tables that need nothing but evidence, by name."""
    if evidence.header["tier"] == CONTROLLED_TIER:
        told = {
            dataset: {name: gain.told() for name, gain in gains.items()}
            for dataset, gains in controlled_gains(evidence).items()
        }
        return {"levels": controlled_levels(evidence), "gains": pd.DataFrame(told).fillna("–")}
    return {
        f"{table.__name__}_{name}": table(evidence, name)
        for name in at_defaults(evidence)
        for table in (*OF_COLLECTIONS, *([table8] if PRINTED[name] == "table5" else []))
    }
