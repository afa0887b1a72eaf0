"""The claims of paper 04: what tests them; `claims.yaml` says what the paper has, and what matters.

A smallest effect of interest of 1 point of AUC is the paper's own: it marks results within 1 % of
each other as equal.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
from scipy import stats

from mmlib.core.claims import Claim
from mmlib.core.effects import MOST_GROUPS, Effect, crossed, difference, over_seeds, slope
from mmlib.core.evidence import EPOCHS, Evidence
from mmlib.core.paths import table_beside
from mmlib.papers.links.data.documents import UNLABELLED
from mmlib.papers.links.run import DOCUMENTS, PAPER_TABLES, STEP_TIME, STRUCTURED

Effects = Mapping[str, Effect] | str
Seeds = Sequence[int]
PAPERS_BASELINES = ("NoStruct", "Obj Detect (best K on test)")
TO_BEAT = ("NoStruct", "Obj Detect", "Co-occurrence")  # the fair ones: K is chosen on dev
ORGANIC = ("organic", "diy")  # "organically multimodal"; the others are "crowd-labelled"
SPREADS = ("image spread", "text spread")

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


def strongest_baseline(evidence: Evidence, dataset: str, baselines: Sequence[str] = TO_BEAT) -> str:
    """The baseline with the highest mean AUC on the test documents: the hardest one to beat."""
    recorded = [name for name in baselines if evidence.has(dataset, name, "AUC")]
    return max(recorded, key=lambda name: np.nanmean(evidence.values(dataset, name, "AUC")))


def mean_auc(evidence: Evidence, dataset: str, values: np.ndarray) -> Effect:
    """The mean of values (seeds, documents) over seeds and documents; NaN documents are skipped."""
    scored = ~np.isnan(values).any(axis=0)
    return crossed(values[:, scored], evidence.clusters(dataset)[scored])


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


def _gap(
    evidence: Evidence, dataset: str, better: Sequence[str], worse: Sequence[str], seeds: Seeds,
    metric: str = "AUC", beyond: float = 0.0,
) -> Effect:  # fmt: skip
    """A metric of systems `better` less `worse` and less `beyond`, paired by seed and document."""
    a, b = (auc(evidence, dataset, systems, seeds, metric) for systems in (better, worse))
    return mean_auc(evidence, dataset, a - b - beyond)


def _level(
    evidence: Evidence, dataset: str, system: str, seeds: Seeds, above: float = 50.0
) -> Effect:
    """A system's AUC above chance, or above another level."""
    return mean_auc(evidence, dataset, auc(evidence, dataset, [system], seeds) - above)


def _structure(evidence: Evidence, seeds: Seeds, baselines: Sequence[str]) -> Effects:
    controls = {name: strongest_baseline(evidence, name, baselines) for name in labelled(evidence)}
    return {
        f"{name}, over {control}": _gap(evidence, name, STRUCTURED, [control], seeds)
        for name, control in controls.items()
    }


def _no_structure(evidence: Evidence, seeds: Seeds) -> Effects:
    return {name: _level(evidence, name, "NoStruct", seeds) for name in labelled(evidence)}


NO_STRESS = "this tier has no stress documents"


def _stress(evidence: Evidence, seeds: Seeds) -> Effects:
    if "stress" not in labelled(evidence):
        return NO_STRESS
    control = strongest_baseline(evidence, "stress")
    return {f"stress, over {control}": _gap(evidence, "stress", ["DC"], [control], seeds)}


def _half(evidence: Evidence, seeds: Seeds) -> Effects:
    return {
        f"{name}, {system}": _gap(evidence, name, [f"{system}+½k"], [system], seeds)
        for name in labelled(evidence, organic=False)
        for system in ("TK", "AP")
    }


NO_ORGANIC = "this tier has no organic documents"


def _organic(evidence: Evidence, seeds: Seeds) -> Effects:
    gaps = {
        f"{name}, over {rival}": _gap(evidence, name, ["AP"], [rival], seeds)
        for name in labelled(evidence, organic=True)
        for rival in ("DC", "TK", "TK+½k", "AP+½k")
    }
    return gaps or NO_ORGANIC


ORDERS = (("coco", "cohesive"), ("mixed5", "cohesive"), ("cohesive", "story"))


def _cohesion(evidence: Evidence, seeds: Seeds) -> Effects:
    levels = {name: _level(evidence, name, "AP", seeds) for name in labelled(evidence)}
    return {
        f"{a} > {b}": difference(levels[a], levels[b])
        for a, b in ORDERS
        if a in levels and b in levels
    }


def _together(evidence: Evidence, seeds: Seeds) -> Effects:
    if len(seeds) < 2:
        return "one seed has no spread"
    return {name: over_seeds(loss_and_links(evidence, name, seeds)) for name in labelled(evidence)}


def _same_documents(evidence: Evidence, seeds: Seeds) -> Effects:
    agreements = {
        name: agreement_of_trainings(evidence, name, seeds)
        for name in labelled(evidence, organic=False)
    }
    return {name: replace(found, effect=found.effect - 0.5) for name, found in agreements.items()}


def _less_on_organic(evidence: Evidence, seeds: Seeds) -> Effects:
    rho = {name: agreement_of_trainings(evidence, name, seeds) for name in labelled(evidence)}
    differences = {
        f"{name} > {organic}": difference(rho[name], rho[organic])
        for organic in labelled(evidence, organic=True)
        for name in labelled(evidence, organic=False)
    }
    return differences or NO_ORGANIC


SPREAD_SETS = ("cohesive", "story", "stress")  # as in the paper; on coco all AUC are large


def _difficulty(
    evidence: Evidence, dataset: str, names: Sequence[str], seeds: Seeds
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Predictors (documents, names), mean AUC of AP (documents,), which documents are scored."""
    y = auc(evidence, dataset, ["AP"], seeds).mean(axis=0)
    scored = ~np.isnan(y)
    x = np.column_stack([evidence.values(dataset, DOCUMENTS, name)[0] for name in names])
    return x[scored], y[scored], scored


def _spread(evidence: Evidence, seeds: Seeds) -> Effects:
    slopes = {}
    for name in (n for n in labelled(evidence) if n in SPREAD_SETS):
        x, y, scored = _difficulty(evidence, name, SPREADS, seeds)
        clusters = evidence.clusters(name)[scored]
        for column, spread in enumerate(SPREADS):
            slopes[f"{name}, {spread}"] = slope(x, y, column, clusters)
    return slopes


def _image_above_text(evidence: Evidence, seeds: Seeds) -> Effects:
    leads = {}
    for name in (n for n in labelled(evidence) if n in SPREAD_SETS):
        x, y, scored = _difficulty(evidence, name, SPREADS, seeds)
        group = document_groups(evidence, name, scored)
        image, text = (explained(x[:, [column]], y, group) for column in (0, 1))
        leads[name] = over_documents(image - text)
    return leads


def _content_above_spread(evidence: Evidence, seeds: Seeds) -> Effects:
    leads = {}
    for name in labelled(evidence, organic=True):
        measured = evidence.metrics(name, DOCUMENTS)
        content = [metric for metric in measured if " content " in metric]
        if not content:
            return "no content of documents was recorded"
        x, y, scored = _difficulty(evidence, name, (*SPREADS, *content), seeds)
        group = document_groups(evidence, name, scored)
        spread, both = explained(x[:, :2], y, group), explained(x, y, group)
        leads[name] = over_documents((both - spread) - spread)
    return leads or NO_ORGANIC


def _variants(
    evidence: Evidence, seeds: Seeds, pairs: Mapping[str, Sequence[tuple[str, str]]]
) -> Effects:
    """A part for each data set and name: the mean gap of those of its pairs that were trained."""
    gaps = {}
    for dataset in labelled(evidence):
        for name, own in pairs.items():
            trained = [p for p in own if all(evidence.has(dataset, s, "AUC") for s in p)]
            if trained:
                variants, controls = zip(*trained, strict=True)
                part = f"{dataset}, {name}" if name else dataset
                gaps[part] = _gap(evidence, dataset, variants, controls, seeds)
    return gaps or "no variant was trained"


HARD = {"": [
    *((f"{name}, hard negatives", name) for name in ("DC", "AP")),
    *((name, f"{name}, averaged negatives") for name in ("DC", "AP")),
]}  # fmt: skip
MORE = {f"b = {b}": [(f"AP, b = {b}", "AP")] for b in (20, 30)}


def _faster(evidence: Evidence, seeds: Seeds) -> Effects:
    saved = []
    for name in labelled(evidence):
        if evidence.has(name, STEP_TIME, "ms of DC", EPOCHS):
            dc, ap = (evidence.curves(name, STEP_TIME, f"ms of {s}")[0] for s in ("DC", "AP"))
            saved.append(100 * (dc - ap) / np.median(dc))
    if not saved:
        return "no step was timed"
    return {"mean of the data sets": over_seeds(np.mean(saved, axis=0))}


# --- Headlines of the abstract and the introduction ---------------------------------------------


def _ten_points(evidence: Evidence, seeds: Seeds) -> Effects:
    if "cohesive" not in labelled(evidence):
        return "this tier has no captions of one album"
    return {
        system: _gap(evidence, "cohesive", [system], ["NoStruct"], seeds, "p@1", beyond=10)
        for system in STRUCTURED
    }


def _twenty_points(evidence: Evidence, seeds: Seeds) -> Effects:
    control = PAPERS_BASELINES[1]
    gaps = {
        name: _gap(evidence, name, ["AP"], [control], seeds, "p@1", beyond=20)
        for name in labelled(evidence, organic=True)
        if evidence.has(name, control, "p@1")
    }
    return gaps or "no objects were detected in pictures of organic documents"


def _ninety(evidence: Evidence, seeds: Seeds) -> Effects:
    if "stress" not in labelled(evidence):
        return NO_STRESS
    return {"stress": _level(evidence, "stress", "AP", seeds, above=90)}


EFFECTS: dict[str, Callable[..., Effects]] = {
    "C1": partial(_structure, baselines=PAPERS_BASELINES),
    "C1a": partial(_structure, baselines=TO_BEAT),
    "C2": _no_structure, "C3": _stress, "C4": _half, "C5": _organic, "C6": _cohesion,
    "C7": _together, "C8": _same_documents, "C8b": _less_on_organic, "C9": _spread,
    "C9b": _image_above_text,
    "C10": partial(_variants, pairs=HARD), "C11": partial(_variants, pairs=MORE),
    "C12": _faster, "H1": _ten_points, "H2": _twenty_points, "H3": _ninety,
    "H4": _content_above_spread,
}  # fmt: skip
CLAIMS = tuple(
    Claim(id=name, effects=EFFECTS[name], **row) for name, row in table_beside(__file__).items()
)
