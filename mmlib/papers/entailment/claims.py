"""The claims of paper 02: what tests them; `claims.yaml` says what the paper has, and what matters.

Declared before the world's record was made, though not before earlier records of the notebook had
been read; what was changed since (C2, C10, P1) is told there. J1, J2, P1 and O1 to O3 are ours.
Claims on the classifier are about its network alone, as the paper has it, with the threshold of
best F0.5 on the calibration pairs; J1 and J2 are about network and inputs together. Retrained
systems are held to "extra golden", which takes as many steps.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from mmlib.core.claims import Claim
from mmlib.core.effects import Effect, crossed
from mmlib.core.evidence import Evidence
from mmlib.core.paths import table_beside
from mmlib.data.judgments import EVERY
from mmlib.papers.entailment import systems
from mmlib.papers.entailment.metrics import RANKED, shares
from mmlib.papers.entailment.systems import FAMILIES, PAIRS, REFERENCE, name_of

F05 = "F0.5"
Effects = Mapping[str, Effect] | str
Seeds = Sequence[int]
Change = tuple[str, str]  # a variant's use and pairs, of any family
DATA = ("w/o VE data", "w/o TE data", "w/o image masking")
MISSING = "these systems are not on record"
TRUTH_UNKNOWN = "the truth is known in the world only"
OWN_CAPTIONS = {"world": ("Full", "With own captions"), "flickr8k": ("w/o own captions", "Full")}
REVISED, ALL_TRUE = ("both", "miner"), ("both", "all")

# --- Figures of judges ---------------------------------------------------------------------------


def main_test(evidence: Evidence, dataset: str) -> str:
    """The test at its natural prior: candidates in the world, the crowd's pairs on photographs."""
    return next(
        name for name in ("candidates", "crowd", "SNLI-VE")
        if evidence.has(dataset, PAIRS, "label", name)
    )  # fmt: skip


def pair_shares(
    evidence: Evidence, dataset: str, system: str, metric: str, how: str = "margin",
    seeds: Seeds | None = None, test: str = "",
) -> np.ndarray:  # fmt: skip
    """What each test pair adds to a figure of a judge (see `metrics.shares`), (seeds, pairs).

    how: "margin", network and inputs; "alone", the network; of a branch "alone, TE".
    """
    test = test or main_test(evidence, dataset)

    def of(margins: np.ndarray) -> np.ndarray:
        columns = [evidence.values(dataset, PAIRS, n, [0], test)[0] for n in ("label", "weight")]
        return shares(metric, columns[0], margins, columns[1])

    return evidence.derived(metric, of, dataset, system, how, seeds, test)


def judge_figure(
    evidence: Evidence, dataset: str, system: str, metric: str, how: str = "margin", test: str = ""
) -> np.ndarray:
    """A figure of a judge, (seeds,)."""
    return pair_shares(evidence, dataset, system, metric, how, test=test).mean(axis=1)


def strongest(evidence: Evidence, dataset: str) -> str:
    """Of the recorded baselines the one with the highest average precision."""
    test = main_test(evidence, dataset)
    rivals = [name for name in systems.RIVALS if evidence.has(dataset, name, "margin", test)]
    return max(rivals, key=lambda n: judge_figure(evidence, dataset, n, RANKED[1]).mean())


def _judges(
    evidence: Evidence, seeds: Seeds, terms: Mapping[str, float], metric: str = F05,
    how: str = "alone",
) -> Effect | None:  # fmt: skip
    """A weighted sum of a figure of judges, paired by pair and seed; None where one is missing."""
    [dataset] = evidence.datasets
    test = main_test(evidence, dataset)
    if not all(evidence.has(dataset, name, how, test) for name in terms):
        return None
    weighed = [w * pair_shares(evidence, dataset, n, metric, how, seeds) for n, w in terms.items()]
    return crossed(np.sum(weighed, axis=0), evidence.clusters(dataset, test))


def _gaps(
    named: Mapping[str, Mapping[str, float]], metric: str = F05, how: str = "alone"
) -> Callable[[Evidence, Seeds], Effects]:
    """A weighted sum of judges' figures for each name."""

    def effects(evidence: Evidence, seeds: Seeds) -> Effects:
        gaps = {n: _judges(evidence, seeds, terms, metric, how) for n, terms in named.items()}
        return _on_record(gaps)

    return effects


def _on_record(gaps: Mapping[str, Effect | None]) -> Effects:
    return {name: gap for name, gap in gaps.items() if gap is not None} or MISSING


def _over(*others: str, metric: str = F05) -> Callable[[Evidence, Seeds], Effects]:
    return _gaps({f"Full − {other}": {"Full": 1, other: -1} for other in others}, metric)


def _over_baselines(evidence: Evidence, seeds: Seeds) -> Effects:
    rival = strongest(evidence, *evidence.datasets)
    terms = {"Full": 1, rival: -1}
    return _on_record(
        {f"{m}, over {rival}": _judges(evidence, seeds, terms, m, "margin") for m in RANKED}
    )


def _own_captions(evidence: Evidence, seeds: Seeds) -> Effects:
    without, with_them = OWN_CAPTIONS.get(evidence.header["tier"], ("", ""))
    return _gaps({f"{without} − {with_them}": {without: 1, with_them: -1}})(evidence, seeds)


ERRORS = {"number": "number", "actor": "person or animal", "object": "other thing"}


def _errors(evidence: Evidence, seeds: Seeds) -> Effects:
    """How much oftener false edits of a kind are called entailed than those of no such kind."""
    [dataset] = evidence.datasets
    if not evidence.has(dataset, "Full", "alone", "edits"):
        return "what was changed in a hypothesis is known in the world only"
    called = 100.0 * (evidence.values(dataset, "Full", "alone", seeds, "edits") >= 0)
    false = evidence.values(dataset, PAIRS, "label", [0], "edits")[0] == 0
    numbers = evidence.values(dataset, PAIRS, "kind", [0], "edits")[0].astype(int)
    origins, clusters = np.array(systems.ORIGINS)[numbers], evidence.clusters(dataset, "edits")
    others = false & np.isin(origins, systems.EDITS) & ~np.isin(origins, list(ERRORS))
    effects = {}
    for edit, title in ERRORS.items():
        edited = false & (origins == edit)
        weights = len(false) * (edited / edited.sum() - others / others.sum())
        effects[f"{title} − other edits"] = crossed(called * weights, clusters)
    return effects


# --- Gains of retrievers -------------------------------------------------------------------------


def relevance(evidence: Evidence, dataset: str) -> tuple[str, str]:
    """The figures of true retrieval that are known: by logic, else by people."""
    by_logic = evidence.has(dataset, name_of("dual", REFERENCE), "mAP")
    return ("mAP", "E@10") if by_logic else ("mAP, people", "P@1, people")


def gain(
    evidence: Evidence, seeds: Seeds, family: str, change: Change, metric: str, captions: str = ""
) -> np.ndarray | None:
    """What a variant gains over REFERENCE, (seeds, test images); None where one is missing."""
    [dataset] = evidence.datasets
    names = [name_of(family, *one) + captions for one in (change, (REFERENCE, ""))]
    if not all(evidence.has(dataset, name, metric) for name in names):
        return None
    revised, plain = (evidence.values(dataset, name, metric, seeds) for name in names)
    return revised - plain


def over_images(evidence: Evidence, values: np.ndarray) -> Effect:
    """Over seeds and those test images that have a value."""
    [dataset] = evidence.datasets
    finite = np.isfinite(values).all(axis=0)
    return crossed(values[:, finite], evidence.clusters(dataset, "test")[finite])


def _mean_gain(
    change: Change, metrics: Sequence[str] | None, scale: float = 1.0
) -> Callable[[Evidence, Seeds], Effects]:
    """A gain over extra golden, mean of families and metrics, which share their images."""

    def effects(evidence: Evidence, seeds: Seeds) -> Effects:
        measures = metrics or relevance(evidence, evidence.datasets[0])[:1]
        gains = [gain(evidence, seeds, f, change, m) for f in FAMILIES for m in measures]
        recorded = [values for values in gains if values is not None]
        if not recorded:
            return MISSING
        return {"": over_images(evidence, scale * np.mean(recorded, axis=0))}

    return effects


def _weakest(evidence: Evidence, seeds: Seeds) -> Effects:
    [dataset] = evidence.datasets
    gains = {f: gain(evidence, seeds, f, REVISED, "RSUM") for f in FAMILIES}
    recalls = {f: values / 6 for f, values in gains.items() if values is not None}
    if len(recalls) < 2:
        return MISSING
    level = {f: evidence.values(dataset, name_of(f, REFERENCE), "RSUM", seeds) for f in recalls}
    low = min(level, key=lambda family: level[family].mean())
    others = [values for family, values in level.items() if family != low]
    if any(over_images(evidence, values - level[low]).low <= 0 for values in others):
        return "which retriever is the weakest is not clear"
    mean = np.mean([values for f, values in recalls.items() if f != low], axis=0)
    return {
        f"{systems.PAPER_RETRIEVERS[low]}-like − others": over_images(evidence, recalls[low] - mean)
    }


def _flattery(evidence: Evidence, seeds: Seeds) -> Effects:
    """Relative gains in E@10 by the judge, less those by logic, mean of families."""
    [dataset] = evidence.datasets
    if relevance(evidence, dataset)[1] != "E@10":
        return "people judged too few captions of an image for its first ten"
    differences = []
    for family in FAMILIES:
        by_judge = gain(evidence, seeds, family, REVISED, "E@10, judge")
        by_logic = gain(evidence, seeds, family, REVISED, "E@10")
        if by_judge is None or by_logic is None:
            continue
        reference, metrics = name_of(family, REFERENCE), ("E@10, judge", "E@10")
        levels = [evidence.values(dataset, reference, metric, seeds) for metric in metrics]
        # The judge was asked about some images: gains and levels of the same ones.
        asked = np.isfinite(levels).all(axis=(0, 1))
        means = [level[:, asked].mean() for level in levels]
        differences.append(100 * by_judge / means[0] - 100 * by_logic / means[1])
    return {"": over_images(evidence, np.mean(differences, axis=0))} if differences else MISSING


def _true_by_family(evidence: Evidence, seeds: Seeds) -> Effects:
    return {
        f"{systems.PAPER_RETRIEVERS[family]}'s place": over_images(evidence, values)
        for family in FAMILIES
        if (values := gain(evidence, seeds, family, ALL_TRUE, "mAP")) is not None
    } or TRUTH_UNKNOWN


def _density(evidence: Evidence, seeds: Seeds) -> Effects:
    general, rare = (
        gain(evidence, seeds, "dual", ALL_TRUE, "mAP", f", {own} captions")
        for own in ("general", "rare")
    )
    if general is None or rare is None:
        return TRUTH_UNKNOWN
    return {"": over_images(evidence, general - rare)}


def _rejected(evidence: Evidence, seeds: Seeds) -> Effects:
    """Own captions that people reject, in percent."""
    [dataset] = evidence.datasets
    if not evidence.has(dataset, PAIRS, "own rejected"):
        return "in the world own captions are true by construction"
    return {"": over_images(evidence, evidence.values(dataset, PAIRS, "own rejected", [0]))}


def _beyond_own(evidence: Evidence, seeds: Seeds) -> Effects:
    """Foreign captions that fit an image, less its own five."""
    [dataset] = evidence.datasets
    if not evidence.has(dataset, PAIRS, "foreign true"):
        return "nobody knows what is true here"
    foreign = evidence.values(dataset, PAIRS, "foreign true", [0])
    if evidence.has(dataset, PAIRS, "own rejected"):  # by people: 0 for every image of calibration
        foreign = foreign * EVERY / (EVERY - 1)
    return {"": over_images(evidence, foreign - 5.0)}


EFFECTS: dict[str, Callable[[Evidence, Seeds], Effects]] = {
    "J1": _over_baselines,
    "J2": _gaps({"": {"Full": 1, "Inputs alone": -1}}, RANKED[1], "margin"),
    "C1": _over("Only TE", "Only VE", "Single stream"),
    "C2": _over("Only TE", "Only VE", metric="precision"),
    "C3": _over(*DATA),
    "C3b": _gaps({"": {DATA[0]: -1, DATA[1]: 0.5, DATA[2]: 0.5}}),
    "C4": _over("w/o BERT"),
    "C5": _over("Sigmoid"),
    "C6": _over("Separate"),
    "C7": _own_captions,
    "C8": _mean_gain(REVISED, ["RSUM"], 1 / 6),
    "C8b": _weakest,
    "C9": _mean_gain(REVISED, ["E@10, judge", "E@30, judge"]),
    "C9b": _mean_gain(REVISED, None),
    "C10": _beyond_own,
    "C11": _rejected,
    "C12": _errors,
    "P1": _flattery,
    "O1": _true_by_family,
    "O2": _mean_gain(ALL_TRUE, ["RSUM"], -1 / 6),
    "O3": _density,
}
CLAIMS = tuple(
    Claim(id=name, effects=EFFECTS[name], **told) for name, told in table_beside(__file__).items()
)
