"""The claims of paper 02: words of `claims.yaml`, and the effects that no weighted sum gives."""

from functools import partial

import numpy as np

from mmlib.core.contrast import Effects, Recorded, Vocabulary, claims_of
from mmlib.core.effects import between, crossed_known
from mmlib.core.errors import DataError
from mmlib.core.evidence import Evidence
from mmlib.data.judgments import EVERY
from mmlib.papers.entailment.method.metrics import ACCURACY, METRICS, recalls, shares
from mmlib.papers.entailment.run import systems
from mmlib.papers.entailment.run.systems import FAMILIES, PAIRS, REFERENCE, name_of

MISSING = "these systems are not on record"
TOO_FEW = "people judged too few captions of an image for its first ten"
PRINTED_PAIRS, PRINTED_ENTAILED = 2000, 1006  # of the paper's test set (Table 1)

# --- Figures of judges ---------------------------------------------------------------------------


def main_test(evidence: Evidence, dataset: str) -> str:
    """The test at its natural prior: candidates in the world, the crowd's pairs on photographs."""
    for name in ("candidates", "crowd", "SNLI-VE"):
        if evidence.has(dataset, PAIRS, "label", name):
            return name
    raise DataError(f"no evidence of the pairs that judges are tested on, on {dataset}")


def labels_and_weights(evidence: Evidence, dataset: str, test: str) -> list[np.ndarray]:
    """Of the pairs of a test whether they are entailed, and how many each stands for, (pairs,)."""
    return [evidence.values(dataset, PAIRS, name, [0], test)[0] for name in ("label", "weight")]


def of_judges(
    metric: str, how: str, printed: bool, evidence: Evidence, collection: str, system: str
) -> Recorded:
    """A figure of a judge: what each test pair adds to it, see `metrics.shares`.

    how: "margin", network and inputs; "alone", the network. printed: pairs are weighted so that, as
    in the paper's test, 1,006 of 2,000 are entailed.
    """
    test = main_test(evidence, collection)
    label, weight = labels_and_weights(evidence, collection, test)
    if printed:
        yes, no = (weight[label == truth].sum() for truth in (1, 0))
        others = PRINTED_PAIRS - PRINTED_ENTAILED
        weight = weight * np.where(label == 1, PRINTED_ENTAILED / yes, others / no)
    return Recorded(system, how, test, lambda margins: shares(metric, label, margins, weight))


ERRORS = {"number": "number", "actor": "person or animal", "object": "other thing"}


def errors(evidence: Evidence) -> Effects:
    """How much oftener false edits of a kind are called entailed than those of no such kind."""
    [dataset] = evidence.datasets
    if not evidence.has(dataset, "Full", "alone", "edits"):
        return "what was changed in a hypothesis is known in the world only"
    called = 100.0 * (evidence.values(dataset, "Full", "alone", split="edits") >= 0)
    false = evidence.values(dataset, PAIRS, "label", [0], "edits")[0] == 0
    numbers = evidence.values(dataset, PAIRS, "kind", [0], "edits")[0].astype(int)
    origins, clusters = np.array(systems.ORIGINS)[numbers], evidence.clusters(dataset, "edits")
    others = false & np.isin(origins, systems.EDITS) & ~np.isin(origins, list(ERRORS))
    effects = {}
    for edit, title in ERRORS.items():
        edited = false & (origins == edit)
        effects[f"{title} − other edits"] = between(called, edited, others, clusters)
    return effects


# --- Gains of retrievers -------------------------------------------------------------------------


def relevance(evidence: Evidence, dataset: str) -> tuple[str, str]:
    """The figures of true retrieval that are known: by logic, else by people."""
    by_logic = evidence.has(dataset, name_of("dual", REFERENCE), "mAP")
    return ("mAP", "E@10") if by_logic else ("mAP, people", "P@1, people")


def compared(evidence: Evidence) -> list[int]:
    """The seeds that the paper's revision and the reference of every family have."""
    uses = ("both", "miner"), (REFERENCE,)
    names = (name_of(family, *use) for family in FAMILIES for use in uses)
    return evidence.seeds_of(evidence.datasets[0], *names)


def gain(evidence: Evidence, family: str, metric: str) -> np.ndarray | None:
    """What the paper's revision gains over the reference, (seeds, test images); None if missing."""
    [dataset] = evidence.datasets
    names = [name_of(family, "both", "miner"), name_of(family, REFERENCE)]
    if not all(evidence.has(dataset, name, metric) for name in names):
        return None
    return np.subtract(*(evidence.values(dataset, n, metric, compared(evidence)) for n in names))


def weakest(evidence: Evidence) -> Effects:
    """What each retriever that may be the weakest gains in mean R@K, less the others' mean gain."""
    [dataset] = evidence.datasets
    clusters = evidence.clusters(dataset, "test")
    gains = {family: gain(evidence, family, "RSUM") for family in FAMILIES}
    recalls = {family: values / 6 for family, values in gains.items() if values is not None}
    if len(recalls) < 2:
        return MISSING
    seeds = compared(evidence)
    level = {f: evidence.values(dataset, name_of(f, REFERENCE), "RSUM", seeds) for f in recalls}
    low = min(level, key=lambda family: level[family].mean())
    leads = {
        f"{systems.PAPER_RETRIEVERS[family]}-like − others": recalls[family]
        - np.mean([recalls[other] for other in recalls if other != family], axis=0)
        for family in level
        if family == low or crossed_known(level[family] - level[low], clusters).low <= 0
    }
    return {name: crossed_known(lead, clusters) for name, lead in leads.items()}


def flattery(evidence: Evidence) -> Effects:
    """Relative gains in E@10 by the judge, less those by logic, mean of families."""
    [dataset] = evidence.datasets
    if relevance(evidence, dataset)[1] != "E@10":
        return TOO_FEW
    total, seeds = np.zeros(1), compared(evidence)
    for percent, metric in ((100, "E@10, judge"), (-100, "E@10")):
        for family in FAMILIES:
            if (gained := gain(evidence, family, metric)) is None:
                return MISSING
            level = evidence.values(dataset, name_of(family, REFERENCE), metric, seeds).mean()
            total = total + percent / len(FAMILIES) * gained / level
    return {"": crossed_known(total, evidence.clusters(dataset, "test"))}


# --- Words of claims.yaml ------------------------------------------------------------------------


def foreign_true(evidence: Evidence, collection: str, system: str) -> Recorded:
    """Foreign captions that fit an image; people judged none of the images of calibration: 0."""
    by_people = evidence.has(collection, PAIRS, "own rejected")
    scale = EVERY / (EVERY - 1) if by_people else 1.0
    return Recorded(system, "foreign true", change=lambda count: scale * count)


VOCABULARY = Vocabulary({
    **{
        metric + ending: partial(of_judges, metric, *how)
        for metric in (*METRICS, ACCURACY)
        for ending, how in {
            "": ("alone", False), ", with inputs": ("margin", False),
            ", as many entailed": ("alone", True),
        }.items()
    },
    "mean R@K": lambda evidence, collection, system: Recorded(
        system, "RSUM", change=lambda rsum: rsum / 6
    ),
    "IR@1": lambda evidence, collection, system: Recorded(
        system, "hits", change=lambda hits: recalls(hits)["IR@1"]
    ),
    "mAP by logic or people": lambda evidence, collection, system: Recorded(
        system, relevance(evidence, collection)[0]
    ),
    "foreign captions that fit": foreign_true,
})  # fmt: skip
CLAIMS = claims_of(__file__, VOCABULARY, {"C8b": weakest, "C12": errors, "P1": flattery})
