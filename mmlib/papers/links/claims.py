"""The claims of paper 04: words of `claims.yaml`, and the effects that no weighted sum gives."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

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


def rank_correlations(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Spearman's ρ of each row of a (rows, items) with that of b; NaN where one is constant."""
    a, b = (stats.rankdata(values, axis=1) for values in (a, b))
    a, b = (ranks - ranks.mean(axis=1, keepdims=True) for ranks in (a, b))
    with np.errstate(invalid="ignore"):
        return (a * b).sum(axis=1) / np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1))


def over_documents(
    estimate: Callable[[np.ndarray], float], clusters: np.ndarray, seeds: int
) -> Effect:
    """An estimate of all documents, with the error of the jackknife; of so many seeds.

    estimate: which documents count (documents,) bool -> a number. Clusters are left out one by one,
    or `MOST_GROUPS` groups of them (Shao and Tu, The Jackknife and Bootstrap, 1995).
    """
    member, names = pd.factorize(clusters)
    groups = min(len(names), MOST_GROUPS)
    estimated, *others = (estimate(member % groups != left_out) for left_out in range(-1, groups))
    error = ((groups - 1) * np.var(others)) ** 0.5
    return Effect(float(estimated), float(error), groups - 1.0, seeds=seeds)


def agreement_of_trainings(evidence: Evidence, dataset: str) -> Effect:
    """Spearman's ρ over documents of one training of DC and one of AP: the mean over seeds.

    Documents and seeds both enter the interval; their errors are added as if independent, which
    counts their interplay twice and makes the interval a little too wide.
    """
    shared = evidence.seeds_of(dataset, "DC", "AP")
    dc, ap = (evidence.values(dataset, system, "AUC", shared) for system in ("DC", "AP"))
    scored = ~np.isnan(dc[0])
    dc, ap, clusters = dc[:, scored], ap[:, scored], evidence.clusters(dataset)[scored]
    over_these = over_documents(
        lambda counted: rank_correlations(dc[:, counted], ap[:, counted]).mean(), clusters, len(dc)
    )
    if len(dc) == 1:
        return over_these
    return difference(over_these, replace(over_seeds(rank_correlations(dc, ap)), effect=0.0))


def difficulty(
    evidence: Evidence, dataset: str, names: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of the scored documents predictors (documents, names), AUC of AP by seed, and clusters."""
    y = evidence.values(dataset, "AP", "AUC")
    scored = ~np.isnan(y).any(axis=0)
    x = np.column_stack([evidence.values(dataset, DOCUMENTS, name)[0] for name in names])
    return x[scored], y[:, scored], evidence.clusters(dataset)[scored]


def explained(evidence: Evidence, dataset: str, weights: Mapping[tuple[str, ...], float]) -> Effect:
    """Σ weight · R² of AP's AUC in percent, by least squares on some predictors with an intercept.

    weights: of the adjusted R² of each set of predictors.
    """
    names = list(dict.fromkeys(chain.from_iterable(weights)))
    x, of_seeds, clusters = difficulty(evidence, dataset, names)
    x, y = np.column_stack([x, np.ones(len(x))]), of_seeds.mean(axis=0)

    def estimate(counted: np.ndarray) -> float:
        total = 0.0
        for chosen, weight in weights.items():
            table = x[counted][:, [-1, *map(names.index, chosen)]]
            residuals = y[counted] - table @ np.linalg.lstsq(table, y[counted])[0]
            share = 1 - residuals.var(ddof=table.shape[1]) / y[counted].var(ddof=1)
            total += 100 * weight * share
        return total

    return over_documents(estimate, clusters, len(of_seeds))


# --- Effects ---------------------------------------------------------------------------------


def cohesion(evidence: Evidence) -> Effects:
    """AUC of AP on one data set less that on a more cohesive one, of other documents."""
    levels = {
        name: crossed_known(evidence.values(name, "AP", "AUC"), evidence.clusters(name))
        for name in labelled(evidence)
    }
    return {
        f"{a} > {b}": difference(levels[a], levels[b])
        for a, b in ORDERS
        if a in levels and b in levels
    }


def together(evidence: Evidence, across: bool = False) -> Effects:
    """Minus Spearman's ρ of dev loss and dev AUC by data set: over epochs, mean over systems.

    across: over systems after the last epoch.
    """
    if len(evidence.seeds) < 2:
        return "one seed has no spread"
    effects = {}
    for name in labelled(evidence):
        shared = evidence.seeds_of(name, *STRUCTURED)
        loss, links = (
            np.array([evidence.values(name, s, metric, shared, EPOCHS) for s in STRUCTURED])
            for metric in ("dev_loss", "dev_AUC")
        )  # (systems, seeds, epochs)
        last = (loss[:, :, -1].T, links[:, :, -1].T)
        pairs = [last] if across else [*zip(loss, links, strict=True)]
        rho = [rank_correlations(*pair) for pair in pairs]
        effects[name] = over_seeds(-np.mean(rho, axis=0))
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
    image, text = SPREADS
    sets = [name for name in labelled(evidence) if name in SPREAD_SETS]
    return {name: explained(evidence, name, {(image,): 1, (text,): -1}) for name in sets}


def content_and_spread(evidence: Evidence, organic: bool) -> Effects:
    """R² of AP's AUC on organic documents: what content adds to spread, less spread alone.

    organic: else of `SPREAD_SETS`, spread alone, and what content adds to it.
    """
    shares = {}
    for name in (n for n in labelled(evidence, organic) if organic or n in SPREAD_SETS):
        content = [m for m in evidence.metrics(name, DOCUMENTS) if " content " in m]
        if not content:
            return "no content of documents was recorded"
        both = (*SPREADS, *content)
        if organic:
            shares[name] = explained(evidence, name, {both: 1, SPREADS: -2})
        else:
            shares[f"{name}, spread"] = explained(evidence, name, {SPREADS: 1})
            shares[f"{name}, content"] = explained(evidence, name, {both: 1, SPREADS: -1})
    return shares or NO_ORGANIC


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
    "C6": cohesion, "C7": together, "C7b": partial(together, across=True), "C8": same_documents,
    "C8b": less_on_organic, "C9": spread, "C9b": image_above_text, "C12": faster,
    "H4": partial(content_and_spread, organic=True),
    "H5": partial(content_and_spread, organic=False),
})  # fmt: skip
