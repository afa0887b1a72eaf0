"""The claims of paper 03: words of `claims.yaml`, and the effects that no weighted sum gives."""

from functools import partial

import numpy as np

from mmlib.core.contrast import NOT_TRAINED, Effects, Recorded, Vocabulary, claims_of
from mmlib.core.effects import between, crossed, over_seeds
from mmlib.core.evidence import EPOCHS, Evidence
from mmlib.papers.cora.run.systems import (
    CAPTIONS,
    CONTROLLED_TIER,
    CORA,
    LONGER,
    PARTS,
    QUERY_TIME,
    SEQUENCE,
    SIZES,
    THINGS,
    VSE,
    original,
)

RICH = 100  # captions


def whole(evidence: Evidence) -> list[str]:
    """All collections but those with a part of the regions."""
    return [name for name in evidence.datasets if not name.endswith(PARTS)]


def plain(evidence: Evidence) -> list[str]:
    """Of them those that are for no BERT, and for no longer trainings."""
    return [n for n in whole(evidence) if n.removesuffix(THINGS) == original(n)]


def longest(evidence: Evidence) -> list[str]:
    """Those of `plain`, or the same captions with longer trainings where there are any."""
    return [n + LONGER if n + LONGER in evidence.datasets else n for n in plain(evidence)]


def captions_and_images(evidence: Evidence, dataset: str) -> tuple[slice, slice]:
    """Which items of a collection are test captions, and which are test images."""
    described = evidence.has(dataset, CAPTIONS, "objects")  # else: controlled
    ranked = (s for s in evidence.systems(dataset) if evidence.has(dataset, s, "in family"))
    term = (CAPTIONS, "objects") if described else (next(ranked, CAPTIONS), "in family")
    captions = int(np.isfinite(evidence.values(dataset, *term)[0]).sum())
    return slice(captions), slice(captions, None)


def early(curve: np.ndarray) -> float:
    """Mean over the first third of the epochs."""
    return float(curve[: len(curve) // 3].mean())


VOCABULARY = Vocabulary(
    {"early dev_RSUM": lambda e, collection, name: Recorded(name, "dev_RSUM", EPOCHS, early)},
    {"": whole, "longest": longest},
)


def rich(evidence: Evidence, others: bool = False) -> Effects:
    """CORA's lead in caption-to-image recalls on the richest captions, less that on the others."""
    leads = {}
    for dataset in plain(evidence):
        rival = VOCABULARY.strongest(evidence, dataset, (VSE.system, SEQUENCE.system), "RSUM")
        captions, _ = captions_and_images(evidence, dataset)
        if not rival or captions.stop <= RICH or not evidence.has(dataset, CORA.system, "RSUM"):
            continue
        names = CORA.system, rival
        shared = evidence.seeds_of(dataset, *names)
        a, b = (evidence.values(dataset, n, "RSUM", shared)[:, captions] for n in names)
        said = [evidence.values(dataset, CAPTIONS, m)[0] for m in ("attributes", "relations")]
        chosen = np.argsort(-np.sum(said, axis=0)[captions], kind="stable")[:RICH]  # Section 9
        clusters = evidence.clusters(dataset)
        lead = (a - b) * a.shape[1] / len(clusters)  # RSUM counts a caption items / captions times
        clusters, is_rich = clusters[captions], np.isin(np.arange(a.shape[1]), chosen)
        leads[f"{dataset}, over {rival}"] = (
            between(lead, is_rich, ~is_rich, clusters) if others
            else crossed(lead[:, is_rich], clusters[is_rich])
        )  # fmt: skip
    return leads or NOT_TRAINED


def query_time(evidence: Evidence) -> Effects:
    """Slopes of log time over log images: a cross-attention model's less CORA's."""
    slopes = {}
    few, many = SIZES
    for dataset in evidence.datasets:
        if evidence.has(dataset, QUERY_TIME, "parse", EPOCHS):
            steps = evidence.metrics(dataset, QUERY_TIME, EPOCHS)
            seconds = {step: evidence.curves(dataset, QUERY_TIME, step)[0] for step in steps}
            fixed = seconds["parse"] + seconds["encode"]
            ours = (fixed + seconds[f"search {many}"]) / (fixed + seconds[f"search {few}"])
            scans = seconds[f"attend {many}"] / seconds[f"attend {few}"]
            slopes[dataset] = over_seeds(np.log10(scans / ours) / np.log10(many / few))
    return slopes or "no query was timed"


ALL_CLAIMS = claims_of(
    __file__, VOCABULARY, {"C6": rich, "C6b": partial(rich, others=True), "C11": query_time}
)
# Those of the paper's own tables; the others are about the controlled collections.
CLAIMS = tuple(claim for claim in ALL_CLAIMS if CONTROLLED_TIER not in claim.tiers)
