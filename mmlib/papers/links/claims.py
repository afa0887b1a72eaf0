"""The claims of paper 04: what tests them; `claims.yaml` says what the paper has, and what matters.

A smallest effect of interest of 1 point of AUC is the paper's own: it marks results within 1 % of
each other as equal.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats

from mmlib.core.claims import Claim
from mmlib.core.effects import Effect, correlation, crossed, difference, over_seeds, slope
from mmlib.core.evidence import EPOCHS, Evidence
from mmlib.core.paths import table_beside
from mmlib.papers.links.systems import DOCUMENTS, PAPER_TABLES, STEP_TIME, STRUCTURED, UNLABELLED

Effects = Mapping[str, Effect] | str
Seeds = Sequence[int]
TO_BEAT = ("NoStruct", "Obj Detect", "Co-occurrence")  # by a structured system

# --- The values of a claim -------------------------------------------------------------------


def labelled(evidence: Evidence) -> list[str]:
    """The data sets whose links are known, in the order of the paper's tables."""
    recorded = evidence.datasets
    order = [*PAPER_TABLES, *(name for name in recorded if name not in PAPER_TABLES)]
    return [name for name in order if name in recorded and name != UNLABELLED]


def same_as(evidence: Evidence, dataset: str, system: str) -> str:
    """The system that holds a system's values: DC for TK at full k where the two are the same."""
    same = system == "TK" and not evidence.has(dataset, "TK", "AUC")
    return "DC" if same else system


def auc(
    evidence: Evidence, dataset: str, systems: Sequence[str], seeds: Seeds | None = None
) -> np.ndarray:
    """Mean AUC over systems, (seeds, documents); DC's for TK where the two are the same."""
    names = [same_as(evidence, dataset, system) for system in systems]
    return np.mean([evidence.values(dataset, name, "AUC", seeds) for name in names], axis=0)


def strongest_baseline(evidence: Evidence, dataset: str) -> str:
    """The baseline with the highest mean AUC on the test documents: the hardest one to beat."""
    recorded = [name for name in TO_BEAT if evidence.has(dataset, name, "AUC")]
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


# --- Effects ---------------------------------------------------------------------------------


def _gap(
    evidence: Evidence, dataset: str, better: Sequence[str], worse: Sequence[str], seeds: Seeds
) -> Effect:
    """AUC of systems `better` minus that of `worse`, paired by seed and document."""
    gap = auc(evidence, dataset, better, seeds) - auc(evidence, dataset, worse, seeds)
    return mean_auc(evidence, dataset, gap)


def _level(evidence: Evidence, dataset: str, system: str, seeds: Seeds) -> Effect:
    """A system's AUC above chance."""
    return mean_auc(evidence, dataset, auc(evidence, dataset, [system], seeds) - 50)


def _structure(evidence: Evidence, seeds: Seeds) -> Effects:
    controls = {name: strongest_baseline(evidence, name) for name in labelled(evidence)}
    return {
        f"{name}, over {control}": _gap(evidence, name, STRUCTURED, [control], seeds)
        for name, control in controls.items()
    }


def _no_structure(evidence: Evidence, seeds: Seeds) -> Effects:
    return {name: _level(evidence, name, "NoStruct", seeds) for name in labelled(evidence)}


def _stress(evidence: Evidence, seeds: Seeds) -> Effects:
    if "stress" not in labelled(evidence):
        return "this tier has no stress documents"
    control = strongest_baseline(evidence, "stress")
    return {f"stress, over {control}": _gap(evidence, "stress", ["DC"], [control], seeds)}


def _half(evidence: Evidence, seeds: Seeds) -> Effects:
    halves, full = ("TK+½k", "AP+½k"), ("TK", "AP")
    return {name: _gap(evidence, name, halves, full, seeds) for name in labelled(evidence)}


def _organic(evidence: Evidence, seeds: Seeds) -> Effects:
    organic = [name for name in labelled(evidence) if name in ("organic", "diy")]
    gaps = {name: _gap(evidence, name, ["AP"], ["DC", "TK"], seeds) for name in organic}
    return gaps or "this tier has no organic documents"


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
    correlations = {}
    for name in labelled(evidence):
        x, y = (auc(evidence, name, [system], seeds).mean(axis=0) for system in ("DC", "AP"))
        scored = ~np.isnan(x)
        clusters = evidence.clusters(name)[scored]
        correlations[name] = correlation(x[scored], y[scored], clusters, minus=0.5)
    return correlations


def _spread(evidence: Evidence, seeds: Seeds) -> Effects:
    slopes = {}
    for name in (n for n in labelled(evidence) if n in ("cohesive", "story", "stress")):
        y = auc(evidence, name, ["AP"], seeds).mean(axis=0)
        scored = ~np.isnan(y)
        # One predictor a data set: its parts share documents, and so would the slopes of two.
        sides = [evidence.values(name, DOCUMENTS, f"{s} spread")[0] for s in ("image", "text")]
        x = np.mean([stats.zscore(side[scored]) for side in sides], axis=0)
        slopes[name] = slope(x[:, None], y[scored], 0, evidence.clusters(name)[scored])
    return slopes


def _variant(evidence: Evidence, pairs: Sequence[tuple[str, str]], seeds: Seeds) -> Effects:
    """Gaps of those pairs of systems that were trained on a data set, averaged."""
    gaps = {}
    for name in labelled(evidence):
        trained = [p for p in pairs if all(evidence.has(name, system, "AUC") for system in p)]
        if trained:
            variants, controls = zip(*trained, strict=True)
            gaps[name] = _gap(evidence, name, variants, controls, seeds)
    return gaps or "no variant was trained"


def _hard(evidence: Evidence, seeds: Seeds) -> Effects:
    hard = [(f"{name}, hard negatives", name) for name in ("DC", "AP")]
    averaged = [(name, f"{name}, averaged negatives") for name in ("DC", "AP")]
    return _variant(evidence, [*hard, *averaged], seeds)


def _more(evidence: Evidence, seeds: Seeds) -> Effects:
    return _variant(evidence, [(f"AP, b = {b}", "AP") for b in (20, 30)], seeds)


def _faster(evidence: Evidence, seeds: Seeds) -> Effects:
    saved = {}
    for name in labelled(evidence):
        if evidence.has(name, STEP_TIME, "ms of DC", EPOCHS):
            dc, ap = (evidence.curves(name, STEP_TIME, f"ms of {s}")[0] for s in ("DC", "AP"))
            saved[name] = over_seeds(100 * (dc - ap) / np.median(dc))
    return saved or "no step was timed"


EFFECTS = {
    "C1": _structure, "C2": _no_structure, "C3": _stress, "C4": _half, "C5": _organic,
    "C6": _cohesion, "C7": _together, "C8": _same_documents, "C9": _spread, "C10": _hard,
    "C11": _more, "C12": _faster,
}  # fmt: skip
CLAIMS = tuple(
    Claim(id=name, effects=EFFECTS[name], **row) for name, row in table_beside(__file__).items()
)
