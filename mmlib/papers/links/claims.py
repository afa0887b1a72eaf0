"""The claims of paper 04: words of `claims.yaml`, and the effects that no weighted sum gives."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
from scipy import stats

from mmlib.core.contrast import Effects, Recorded, Vocabulary, claims_of
from mmlib.core.effects import Effect, crossed_known, difference, over_seeds, slope
from mmlib.core.evidence import EPOCHS, Evidence
from mmlib.papers.links.data.documents import UNLABELLED
from mmlib.papers.links.run import DOCUMENTS, PAPER_TABLES, STEP_TIME, STRUCTURED

ORGANIC = ("organic", "diy")  # "organically multimodal"; the others are "crowd-labelled"
SPREADS = ("image spread", "text spread")
SPREAD_SETS = ("cohesive", "story", "stress")  # as in the paper; on coco all AUC are large
ORDERS = (("coco", "cohesive"), ("mixed5", "cohesive"), ("cohesive", "story"))
NO_ORGANIC = "this tier has no organic documents"
MOST_GROUPS = 40  # of clusters, for the jackknife

# --- The values of a claim -------------------------------------------------------------------


def labelled(evidence: Evidence, organic: bool | None = None) -> list[str]:
    """The data sets whose links are known, in the order of the paper's tables.

    organic: those that are, or that are not; None: both.
    """
    order = dict.fromkeys([*PAPER_TABLES, *evidence.datasets])
    labelled = [name for name in order if name in evidence.datasets and name != UNLABELLED]
    return [name for name in labelled if organic in (None, name in ORGANIC)]


def same_as(evidence: Evidence, dataset: str, system: str) -> str:
    """The system that holds a system's values: DC for TK at full k where the two are the same."""
    if system != "TK" or evidence.has(dataset, "TK", "AUC"):
        return system
    unused = [header["inapplicable"].get(dataset, ()) for header in evidence.recordings]
    square = not unused or any("TK" in names for names in unused)  # else it was not trained
    return "DC" if square else system


def auc(evidence: Evidence, dataset: str, system: str) -> np.ndarray:
    """AUC, (seeds, documents), in percent; DC's for TK where the two are the same."""
    return evidence.values(dataset, same_as(evidence, dataset, system), "AUC")


def _centred_ranks(values: np.ndarray) -> np.ndarray:
    ranks = stats.rankdata(values)
    return ranks - ranks.mean()


# --- Documents left out (the jackknife: Shao and Tu, The Jackknife and Bootstrap, 1995) -------


def document_groups(clusters: np.ndarray) -> np.ndarray:
    """The group of each document: its cluster, or one of `MOST_GROUPS` groups of these."""
    member, names = pd.factorize(clusters)
    return member % min(len(names), MOST_GROUPS)


def over_documents(estimates: np.ndarray, seeds: int) -> Effect:
    """The first of estimates (1 + groups,), of so many seeds; the others lack a group each."""
    groups = len(estimates) - 1
    error = ((groups - 1) * estimates[1:].var()) ** 0.5
    return Effect(float(estimates[0]), float(error), groups - 1.0, seeds=seeds)


def unit_ranks(group: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Ranks (1 + groups, items) of all values, then without each group, whose items get 0.

    Centred and scaled to length 1, so that the product of two such rows is Spearman's ρ.
    """
    rows = np.zeros((group.max() + 2, len(values)))
    for row, left_out in zip(rows, range(-1, group.max() + 1), strict=True):
        counted = group != left_out
        row[counted] = _centred_ranks(values[counted])
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def agreement_of_trainings(evidence: Evidence, dataset: str) -> Effect:
    """Spearman's ρ over documents of one training of DC and one of AP: the mean over seeds.

    Documents and seeds both enter the interval; their errors are added as if independent, which
    counts their interplay twice and makes the interval a little too wide.
    """
    scored = ~np.isnan(auc(evidence, dataset, "DC")[0])
    group = document_groups(evidence.clusters(dataset)[scored])

    def ranks(values: np.ndarray) -> np.ndarray:
        return unit_ranks(group, values[scored])

    shared = evidence.seeds_of(dataset, "DC", "AP")
    of_dc, of_ap = (
        evidence.values(dataset, system, "AUC", shared, change=("ranks, a group left out", ranks))
        for system in ("DC", "AP")
    )
    rho = np.einsum("sgd,sgd->sg", of_dc, of_ap)
    over_these = over_documents(rho.mean(axis=0), len(rho))
    if len(rho) == 1:
        return over_these
    return difference(over_these, replace(over_seeds(rho[:, 0]), effect=0.0))


def explained(predictors: np.ndarray, responses: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Adjusted R² in percent of least squares with an intercept, (1 + groups,): of all documents,
    then without each group.

    predictors (documents, p); responses (seeds, documents), whose mean it is of.
    """
    x = np.column_stack([np.ones(len(predictors)), predictors])
    estimates = []
    for left_out in range(-1, group.max() + 1):
        counted = group != left_out
        y = responses.mean(axis=0)[counted]
        residuals = y - x[counted] @ np.linalg.lstsq(x[counted], y)[0]
        estimates.append(100 * (1 - residuals.var(ddof=x.shape[1]) / y.var(ddof=1)))
    return np.array(estimates)


# --- Effects ---------------------------------------------------------------------------------


def cohesion(evidence: Evidence) -> Effects:
    """AUC of AP on one data set less that on a more cohesive one, of other documents."""
    levels = {
        name: crossed_known(auc(evidence, name, "AP"), evidence.clusters(name))
        for name in labelled(evidence)
    }
    return {
        f"{a} > {b}": difference(levels[a], levels[b])
        for a, b in ORDERS
        if a in levels and b in levels
    }


def together(evidence: Evidence) -> Effects:
    """Minus Spearman's ρ of dev loss and dev AUC over epochs, mean over systems, by data set."""
    if len(evidence.seeds) < 2:
        return "one seed has no spread"
    effects = {}
    for name in labelled(evidence):
        correlations = []
        shared = evidence.seeds_of(name, *STRUCTURED)
        for system in STRUCTURED:
            loss, links = (
                evidence.values(name, system, metric, shared, EPOCHS, ("ranks", _centred_ranks))
                for metric in ("dev_loss", "dev_AUC")
            )
            with np.errstate(invalid="ignore"):  # a constant curve has no ranks: NaN
                norms = np.sqrt((loss * loss).sum(axis=1) * (links * links).sum(axis=1))
                correlations.append(-(loss * links).sum(axis=1) / norms)
        effects[name] = over_seeds(np.mean(correlations, axis=0))
    return effects


def same_documents(evidence: Evidence) -> Effects:
    """ρ of trainings on crowd-labelled data sets, less .5."""
    effects = {}
    for name in labelled(evidence, organic=False):
        rho = agreement_of_trainings(evidence, name)
        effects[name] = replace(rho, effect=rho.effect - 0.5)
    return effects


def less_on_organic(evidence: Evidence) -> Effects:
    """ρ of trainings on each crowd-labelled data set less that on each organic one."""
    rho = {name: agreement_of_trainings(evidence, name) for name in labelled(evidence)}
    differences = {
        f"{name} > {organic}": difference(rho[name], rho[organic])
        for organic in labelled(evidence, organic=True)
        for name in labelled(evidence, organic=False)
    }
    return differences or NO_ORGANIC


def difficulty(
    evidence: Evidence, dataset: str, names: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of the scored documents predictors (documents, names), AUC of AP by seed, and clusters."""
    y = auc(evidence, dataset, "AP")
    scored = ~np.isnan(y).any(axis=0)
    x = np.column_stack([evidence.values(dataset, DOCUMENTS, name)[0] for name in names])
    return x[scored], y[:, scored], evidence.clusters(dataset)[scored]


def spread(evidence: Evidence) -> Effects:
    """Slopes of AP's AUC on the spread of images and of texts, the other held."""
    slopes = {}
    for name in (n for n in labelled(evidence) if n in SPREAD_SETS):
        x, y, clusters = difficulty(evidence, name, SPREADS)
        for column, kind in enumerate(SPREADS):
            slopes[f"{name}, {kind}"] = slope(x, y, column, clusters)
    return slopes


def image_above_text(evidence: Evidence) -> Effects:
    """R² of AP's AUC by the spread of images less that by the spread of texts."""
    leads = {}
    for name in (n for n in labelled(evidence) if n in SPREAD_SETS):
        x, y, clusters = difficulty(evidence, name, SPREADS)
        image, text = (explained(x[:, [i]], y, document_groups(clusters)) for i in (0, 1))
        leads[name] = over_documents(image - text, len(y))
    return leads


def content_above_spread(evidence: Evidence) -> Effects:
    """R² of AP's AUC on organic documents: what content adds to spread, less spread alone."""
    leads = {}
    for name in labelled(evidence, organic=True):
        content = [m for m in evidence.metrics(name, DOCUMENTS) if " content " in m]
        if not content:
            return "no content of documents was recorded"
        x, y, clusters = difficulty(evidence, name, (*SPREADS, *content))
        spread_alone, with_content = (
            explained(x[:, :end], y, document_groups(clusters)) for end in (2, None)
        )
        leads[name] = over_documents((with_content - spread_alone) - spread_alone, len(y))
    return leads or NO_ORGANIC


def faster(evidence: Evidence) -> Effects:
    """By how many percent of DC's step AP's is shorter, mean of the data sets."""
    saved = []
    for name in labelled(evidence):
        if evidence.has(name, STEP_TIME, "ms of DC", EPOCHS):
            dc, ap = (evidence.curves(name, STEP_TIME, f"ms of {s}")[0] for s in ("DC", "AP"))
            saved.append(100 * (dc - ap) / np.median(dc))
    if not saved:
        return "no step was timed"
    return {"mean of the data sets": over_seeds(np.mean(saved, axis=0))}


def of_same(metric: str, evidence: Evidence, collection: str, system: str) -> Recorded:
    """Where a metric is recorded: of DC for TK where the two are the same."""
    return Recorded(same_as(evidence, collection, system), metric)


VOCABULARY = Vocabulary(
    metrics={metric: partial(of_same, metric) for metric in ("AUC", "p@1")},
    collections={
        "labelled": labelled,
        "organic": partial(labelled, organic=True),
        "crowd-labelled": partial(labelled, organic=False),
    },
)
CLAIMS = claims_of(__file__, VOCABULARY, {
    "C6": cohesion, "C7": together, "C8": same_documents, "C8b": less_on_organic, "C9": spread,
    "C9b": image_above_text, "C12": faster, "H4": content_above_spread,
})  # fmt: skip
