"""The tables of paper 04: of its documents, and of the evidence."""

from collections.abc import Sequence
from statistics import fmean

import numpy as np
import pandas as pd
from scipy.stats import spearmanr
from statsmodels.regression.linear_model import OLS
from statsmodels.tools.tools import add_constant

from mmlib.core.evidence import EPOCHS, Evidence
from mmlib.core.tables import mean_and_deviation, paper_tables, paper_values
from mmlib.papers.links import run
from mmlib.papers.links.claims import auc, labelled, same_as
from mmlib.papers.links.data.documents import UNLABELLED
from mmlib.papers.links.method import METRICS
from mmlib.papers.links.run import DOCUMENTS, PAPER, STEP_TIME

ROWS = [
    *(r["system"] for r in run.BASELINES),
    *run.SYSTEMS,
    *(r["system"] for r in run.UPPER_BOUNDS),
]
# The paper chose K on test; its row is compared with ours that did so, too.
PRINTED = {"Obj Detect": "", "Obj Detect (best K on test)": "Obj Detect"}
AGREEMENTS = (("DC", "TK+½k"), ("DC", "AP"), ("TK+½k", "AP"))

# Why a printed data set, or a printed row of all data sets, is not in a record.
NOT_HERE = {
    "story": "no photographs with a story are among the data read here; the world has drawn ones",
    "diy": "posts of people, read by the tier paper alone, from the authors' own files",
    "Obj Detect (best K on test)": "no objects were detected in these pictures",
}


def tables(evidence: Evidence) -> dict[str, pd.DataFrame]:
    """All tables that need nothing but evidence, by name."""
    sets = labelled(evidence)
    return {
        **{f"results_{name}": results(evidence, name) for name in with_printed(evidence)},
        "not_recorded": not_recorded(evidence),
        "agreement": agreement(evidence, AGREEMENTS),
        "difficulty": difficulty(evidence, [name for name in sets if name != "coco"]),
        "variants": variants(evidence),
        "step_times": step_times(evidence),
        "unlabelled": unlabelled(evidence),
    }


# --- Results ---------------------------------------------------------------------------------


def with_printed(evidence: Evidence) -> list[str]:
    """The labelled data sets of a record, then those of which the paper alone has figures."""
    return list(dict.fromkeys([*labelled(evidence), *run.PAPER_TABLES]))


def printed(dataset: str) -> pd.DataFrame:
    """The paper's figures on a data set by our names of systems; empty where it has none."""
    if dataset not in run.PAPER_TABLES:
        return pd.DataFrame(columns=list(METRICS), dtype=float)
    paper = paper_values(PAPER, run.PAPER_TABLES[dataset])
    return paper.rename({there: here for here, there in PRINTED.items()})


def papers_name(dataset: str) -> str:
    """The paper's data set beside which ours stands; "" where it has none."""
    table = run.PAPER_TABLES.get(dataset)
    return paper_tables(PAPER)[table]["dataset"] if table else ""


def results(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """A row a system, a column pair (paper, ours) a metric: mean ± deviation over seeds, percent.

    Every printed row has a place, with "–" for ours where it was not recorded. Baselines come
    before the trained systems, upper bounds after them. "↓" flags a system whose dev curve still
    improved when training ended, in more than a fifth of the seeds.
    """
    paper = printed(dataset)
    rows = {}
    for name in ROWS:
        system = same_as(evidence, dataset, name)
        if name not in paper.index and not evidence.has(dataset, system, "AUC"):
            continue
        row = {}
        for metric in METRICS:
            row[metric, "paper"] = str(paper[metric].get(name, "–"))
            row[metric, "ours"] = _over_seeds(evidence, dataset, system, metric)
        rows[name + (" ↓" if evidence.unfinished(dataset, system) else "")] = row
    return pd.DataFrame.from_dict(rows, orient="index")


def not_recorded(evidence: Evidence) -> pd.DataFrame:
    """What the paper prints and this record lacks, and why: a row a data set or a system of it."""
    rows = {}
    for dataset in run.PAPER_TABLES:
        lacking = [
            name for name in printed(dataset).index
            if not evidence.has(dataset, same_as(evidence, dataset, name), "AUC")
        ]  # fmt: skip
        if dataset not in evidence.datasets:
            lacking = ["all"]
        for name in lacking:
            of = dataset if name == "all" else name
            rows[dataset, name] = {"why": NOT_HERE.get(of, "not part of this recording")}
    return pd.DataFrame.from_dict(rows, orient="index", columns=["why"])


def _over_seeds(evidence: Evidence, dataset: str, system: str, metric: str) -> str:
    """Mean ± deviation over seeds of a metric's mean over documents; "–" where it has none."""
    if not evidence.has(dataset, system, metric):
        return "–"
    means = np.nanmean(evidence.values(dataset, system, metric), axis=1)
    return mean_and_deviation(pd.Series(means))


def unlabelled(evidence: Evidence) -> pd.DataFrame:
    """AP on documents without labels, by their sealed key: mean ± deviation over seeds, percent."""
    if not evidence.has(UNLABELLED, "AP", "AUC"):
        return pd.DataFrame(columns=list(METRICS))
    row = {metric: _over_seeds(evidence, UNLABELLED, "AP", metric) for metric in METRICS}
    return pd.DataFrame(row, index=["AP"])


def variants(evidence: Evidence) -> pd.DataFrame:
    """The variants beside what they vary: mean ± deviation over seeds of each metric."""
    rows = {}
    for dataset in labelled(evidence):
        if not any(evidence.has(dataset, name, "AUC") for name in run.VARIANTS):
            continue
        for name in ("NoStruct", "DC", "AP", *run.VARIANTS):
            if evidence.has(dataset, name, "AUC"):
                row = {metric: _over_seeds(evidence, dataset, name, metric) for metric in METRICS}
                rows[dataset, name] = row
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


# --- What makes a document hard (Section 4.1) ------------------------------------------------


def predictors(evidence: Evidence, dataset: str) -> pd.DataFrame:
    """Spread and content of the test documents, see `probes.difficulty_predictors`."""
    names = evidence.metrics(dataset, DOCUMENTS)
    return pd.DataFrame({name: evidence.values(dataset, DOCUMENTS, name)[0] for name in names})


def difficulty(evidence: Evidence, datasets: Sequence[str], system: str = "AP") -> pd.DataFrame:
    """The paper's regressions of per-document AUC: a row a corpus and set of predictors.

    "paper, R²": what the paper prints, of one training.
    A slope is the change of AUC, in points, with one standard deviation of the predictor.
    """
    rows, spreads = [], ["image spread", "text spread"]
    paper = paper_values(PAPER, "text_regression")
    paper.columns = ["spread", "spread + content"]
    for dataset in datasets:
        printed_r2 = paper.T.get(papers_name(dataset), {})
        predicting = predictors(evidence, dataset)
        content = [name for name in predicting if name not in spreads]
        y = auc(evidence, dataset, [system]).mean(axis=0)
        scored = ~np.isnan(y)
        for name, chosen in (("spread", spreads), ("spread + content", spreads + content)):
            x = add_constant(predicting.loc[scored, chosen].to_numpy())
            if scored.sum() > x.shape[1]:
                fitted = OLS(y[scored], x).fit()
                slopes = fitted.params[1:] * x[:, 1:].std(axis=0, ddof=1)
                rows.append(
                    {"documents": dataset, "predictors": name,
                     "paper, R²": str(printed_r2.get(name, "–")), "R² in %": 100 * fitted.rsquared,
                     "adjusted R²": 100 * fitted.rsquared_adj, "F": fitted.fvalue,
                     "p of F": f"{fitted.f_pvalue:.1g}",
                     **{f"slope, {side}": slopes[i] for i, side in enumerate(spreads)}}
                )  # fmt: skip
    columns = ["documents", "predictors", "paper, R²", "R² in %", "adjusted R²", "F", "p of F"]
    columns += [f"slope, {side}" for side in spreads]
    return pd.DataFrame(rows, columns=columns).set_index(columns[:2]).round(1)


def agreement(evidence: Evidence, pairs: Sequence[tuple[str, str]]) -> pd.DataFrame:
    """Spearman's ρ of per-document AUC, means over seeds, between systems and halves of AP's seeds.

    "DC–AP, one seed": the mean of single seeds' ρ, which is what one training each would show;
    "AP–AP, one seed": that of neighbouring seeds. "paper, DC–AP": of one training each.
    """

    def rho(x: np.ndarray, y: np.ndarray) -> float:
        return float(spearmanr(x, y, nan_policy="omit").statistic)

    rows = {}
    paper = paper_values(PAPER, "text_spearman").rho.rename(lambda row: row.split(" on ")[-1])
    for dataset in labelled(evidence):
        row: dict[str, float] = {"paper, DC–AP": paper.get(papers_name(dataset), np.nan)}
        for a, b in pairs:
            x, y = (auc(evidence, dataset, [system]) for system in (a, b))
            row[f"{a}–{b}"] = rho(x.mean(axis=0), y.mean(axis=0))
            if (a, b) == ("DC", "AP"):
                row["DC–AP, one seed"] = fmean(map(rho, x, y))
        ap = auc(evidence, dataset, ["AP"])  # (seeds, documents)
        if len(ap) > 1:
            row["AP–AP, one seed"] = fmean(map(rho, ap, np.roll(ap, -1, axis=0)))
            row["AP, two halves of the seeds"] = rho(ap[::2].mean(axis=0), ap[1::2].mean(axis=0))
        rows[dataset] = row
    return pd.DataFrame.from_dict(rows, orient="index").round(2).astype(object).fillna("–")
