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

Seeds = Sequence[int]
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
    recorded = evidence.datasets
    order = [*PAPER_TABLES, *(name for name in recorded if name not in PAPER_TABLES)]
    known = [name for name in order if name in recorded and name != UNLABELLED]
    return [name for name in known if organic in (None, name in ORGANIC)]


def same_as(evidence: Evidence, dataset: str, system: str) -> str:
    """The system that holds a system's values: DC for TK at full k where the two are the same."""
    same = system == "TK" and not evidence.has(dataset, "TK", "AUC")
    return "DC" if same else system


def auc(
    evidence: Evidence, dataset: str, systems: Sequence[str], seeds: Seeds | None = None,
    metric: str = "AUC",
) -> np.ndarray:  # fmt: skip
    """Mean AUC, or another metric, over systems, (seeds, documents), in percent.

    DC's for TK where the two are the same.
    """
    names = [same_as(evidence, dataset, system) for system in systems]
    return np.mean([evidence.values(dataset, name, metric, seeds) for name in names], axis=0)


def mean_auc(evidence: Evidence, dataset: str, values: np.ndarray) -> Effect:
    """The mean of values (seeds, documents) over seeds and documents; NaN documents are skipped."""
    return crossed_known(values, evidence.clusters(dataset))


def loss_and_links(evidence: Evidence, dataset: str, seeds: Seeds) -> np.ndarray:
    """Minus Spearman's ρ of dev loss and dev AUC over epochs, (seeds,): mean over systems."""
    correlations = []
    for system in STRUCTURED:
        a, b = (
            evidence.derived("ranks", _centred_ranks, dataset, system, name, seeds, EPOCHS)
            for name in ("dev_loss", "dev_AUC")
        )
        with np.errstate(invalid="ignore"):  # a constant curve has no ranks: NaN
            norms = np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1))
            correlations.append(-(a * b).sum(axis=1) / norms)
    return np.mean(correlations, axis=0)


def _centred_ranks(values: np.ndarray) -> np.ndarray:
    """Ranks of values (epochs,), their mean 0."""
    ranks = stats.rankdata(values)
    return ranks - ranks.mean()


# --- Documents left out (the jackknife: Shao and Tu, The Jackknife and Bootstrap, 1995) -------


def document_groups(evidence: Evidence, dataset: str, scored: np.ndarray) -> np.ndarray:
    """The group of each scored document: its cluster, or one of `MOST_GROUPS` groups of these."""
    member, names = pd.factorize(evidence.clusters(dataset)[scored])
    return member % min(len(names), MOST_GROUPS)


def over_documents(estimates: np.ndarray) -> Effect:
    """The first of estimates (1 + groups,), from all documents; the others lack a group each."""
    groups = len(estimates) - 1
    error = ((groups - 1) * estimates[1:].var()) ** 0.5
    return Effect(float(estimates[0]), float(error), groups - 1.0)


def unit_ranks(group: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Ranks (1 + groups, items) of all values, then without each group, whose items get 0.

    Centred and scaled to length 1, so that the product of two such rows is Spearman's ρ.
    """
    rows = np.zeros((group.max() + 2, len(values)))
    for row, left_out in zip(rows, range(-1, group.max() + 1), strict=True):
        kept = group != left_out
        row[kept] = _centred_ranks(values[kept])
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def agreement_of_trainings(evidence: Evidence, dataset: str, seeds: Seeds) -> Effect:
    """Spearman's ρ over documents of one training of DC and one of AP: the mean over seeds.

    Documents and seeds both enter the interval; their errors are added as if independent, which
    counts their interplay twice and makes the interval a little too wide.
    """
    scored = ~np.isnan(evidence.values(dataset, "DC", "AUC")[0])
    group = document_groups(evidence, dataset, scored)

    def ranks(values: np.ndarray) -> np.ndarray:
        return unit_ranks(group, values[scored])

    of_dc, of_ap = (
        evidence.derived("ranks, a group left out", ranks, dataset, system, "AUC", seeds)
        for system in ("DC", "AP")
    )
    rho = np.einsum("sgd,sgd->sg", of_dc, of_ap)
    found = over_documents(rho.mean(axis=0))
    return difference(found, replace(over_seeds(rho[:, 0]), effect=0.0)) if len(rho) > 1 else found


def explained(predictors: np.ndarray, response: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Adjusted R² in percent of least squares with an intercept, (1 + groups,): of all documents,
    then without each group.

    predictors (documents, p), response (documents,).
    """
    z = np.column_stack([np.ones(len(group)), stats.zscore(predictors), stats.zscore(response)])
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(group.max() + 1))
    of_groups = np.add.reduceat(z[order, :, None] * z[order, None, :], starts)
    # Sums of products of all documents, less those of the group that is left out.
    gram = of_groups.sum(axis=0) - np.concatenate([np.zeros_like(of_groups[:1]), of_groups])
    sizes, sums, norms, products = gram[:, 0, 0], gram[:, 0, -1], gram[:, -1, -1], gram[:, :-1, -1]
    fitted = np.linalg.solve(gram[:, :-1, :-1], products[..., None])[..., 0]
    error, variation = norms - (products * fitted).sum(axis=1), norms - sums**2 / sizes
    return 100 * (1 - error / (sizes - fitted.shape[1]) / (variation / (sizes - 1)))


# --- Effects ---------------------------------------------------------------------------------


def cohesion(evidence: Evidence, seeds: Seeds) -> Effects:
    """AUC of AP on one data set less that on a more cohesive one, of other documents."""
    sets = labelled(evidence)
    levels = {name: mean_auc(evidence, name, auc(evidence, name, ["AP"], seeds)) for name in sets}
    return {
        f"{a} > {b}": difference(levels[a], levels[b])
        for a, b in ORDERS
        if a in levels and b in levels
    }


def together(evidence: Evidence, seeds: Seeds) -> Effects:
    """How objective and links improve together over the epochs, by data set."""
    if len(seeds) < 2:
        return "one seed has no spread"
    return {name: over_seeds(loss_and_links(evidence, name, seeds)) for name in labelled(evidence)}


def same_documents(evidence: Evidence, seeds: Seeds) -> Effects:
    """ρ of trainings on crowd-labelled data sets, less .5."""
    agreements = {
        name: agreement_of_trainings(evidence, name, seeds)
        for name in labelled(evidence, organic=False)
    }
    return {name: replace(found, effect=found.effect - 0.5) for name, found in agreements.items()}


def less_on_organic(evidence: Evidence, seeds: Seeds) -> Effects:
    """ρ of trainings on each crowd-labelled data set less that on each organic one."""
    rho = {name: agreement_of_trainings(evidence, name, seeds) for name in labelled(evidence)}
    differences = {
        f"{name} > {organic}": difference(rho[name], rho[organic])
        for organic in labelled(evidence, organic=True)
        for name in labelled(evidence, organic=False)
    }
    return differences or NO_ORGANIC


def difficulty(
    evidence: Evidence, dataset: str, names: Sequence[str], seeds: Seeds
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Predictors (documents, names), mean AUC of AP (documents,), which documents are scored."""
    y = auc(evidence, dataset, ["AP"], seeds).mean(axis=0)
    scored = ~np.isnan(y)
    x = np.column_stack([evidence.values(dataset, DOCUMENTS, name)[0] for name in names])
    return x[scored], y[scored], scored


def spread(evidence: Evidence, seeds: Seeds) -> Effects:
    """Slopes of AP's AUC on the spread of images and of texts, the other held."""
    slopes = {}
    for name in (n for n in labelled(evidence) if n in SPREAD_SETS):
        x, y, scored = difficulty(evidence, name, SPREADS, seeds)
        clusters = evidence.clusters(name)[scored]
        for column, kind in enumerate(SPREADS):
            slopes[f"{name}, {kind}"] = slope(x, y, column, clusters)
    return slopes


def image_above_text(evidence: Evidence, seeds: Seeds) -> Effects:
    """R² of AP's AUC by the spread of images less that by the spread of texts."""
    leads = {}
    for name in (n for n in labelled(evidence) if n in SPREAD_SETS):
        x, y, scored = difficulty(evidence, name, SPREADS, seeds)
        group = document_groups(evidence, name, scored)
        image, text = (explained(x[:, [column]], y, group) for column in (0, 1))
        leads[name] = over_documents(image - text)
    return leads


def content_above_spread(evidence: Evidence, seeds: Seeds) -> Effects:
    """R² of AP's AUC on organic documents: what content adds to spread, less spread alone."""
    leads = {}
    for name in labelled(evidence, organic=True):
        measured = evidence.metrics(name, DOCUMENTS)
        content = [metric for metric in measured if " content " in metric]
        if not content:
            return "no content of documents was recorded"
        x, y, scored = difficulty(evidence, name, (*SPREADS, *content), seeds)
        group = document_groups(evidence, name, scored)
        alone, both = explained(x[:, :2], y, group), explained(x, y, group)
        leads[name] = over_documents((both - alone) - alone)
    return leads or NO_ORGANIC


def faster(evidence: Evidence, seeds: Seeds) -> Effects:
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
