"""The claims of paper 01: words of `claims.yaml`, and the effects that no weighted sum gives.

The claims of the controlled pairs are ours: they say where the idea is known to work.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from mmlib.core.contrast import NOT_TRAINED, ONE_SEED, Effects, Recorded, Vocabulary, claims_of
from mmlib.core.effects import Effect, between, crossed, linearised, over_seeds
from mmlib.core.evidence import Evidence
from mmlib.papers.coherence.data.pairs import CLUE, CONTROLLED_TIER, MAP, relations_of
from mmlib.papers.coherence.run import CMCA, CMCM, HEAD, PAIRS, REFINED

WIDE, LEAST = 0.2, 183  # the gap beyond which all is right; 183 texts without an error show < 2 %


def at_defaults(evidence: Evidence) -> list[str]:
    """The collections at the dials' defaults, Clue's kind first."""
    names = [name for name in evidence.datasets if name not in MAP]
    return sorted(names, key=lambda name: not name.lower().startswith("clue"))


def with_values(evidence: Evidence, *terms: tuple[str, str], split: str = "test") -> list[str]:
    """The collections at the dials' defaults that have all (system, metric)."""
    names = at_defaults(evidence)
    return [n for n in names if all(evidence.has(n, *term, split) for term in terms)]


def ratio(above: np.ndarray, below: np.ndarray, clusters: Sequence | np.ndarray) -> Effect:
    """Mean of `above` over mean of `below`, both (seeds, texts), linearised; paired."""
    return crossed(linearised(above, below), clusters)


def right_by_gap(evidence: Evidence) -> Effects:
    """Percent right at rank 1 of the texts of larger gap minus those of smaller gap."""
    result = {}
    for name in with_values(evidence, (CMCM.system, "gap")):
        gap, rank = (evidence.values(name, CMCM.system, m) for m in ("gap", "rank"))
        wide = gap > np.median(gap, axis=1, keepdims=True)  # half of them, but for ties
        result[name] = between(100.0 * (rank == 1), wide, ~wide, evidence.clusters(name))
    return result or "no gaps were recorded"


def wrong_beyond(evidence: Evidence) -> Effects:
    """Percent wrong among the texts whose gap is at least WIDE, where these are enough."""
    result = {}
    for name in with_values(evidence, (CMCM.system, "gap")):
        gap, rank = (evidence.values(name, CMCM.system, m) for m in ("gap", "rank"))
        wide = (gap >= WIDE).astype(float)
        if wide.sum() >= LEAST * len(wide):
            result[name] = ratio(100 * wide * (rank > 1), wide, evidence.clusters(name))
    return result or f"fewer than {LEAST} texts a training have such a gap"


def less_over_trainings(evidence: Evidence) -> Effects:
    """How much less the MedR of refined CMCM varies over trainings than CMCA's.

    How far each seed's mean lies from the median of seeds, as in the test of Brown and Forsythe
    (1974), paired: both systems have the same seeds.
    """
    terms, result = ((CMCA.system, "MedR"), (CMCM.system, "MedR, refined")), {}
    for name in with_values(evidence, *terms, split="pools"):
        shared = evidence.seeds_of(name, CMCA.system, CMCM.system)
        if len(shared) < 2:
            return ONE_SEED
        medr = [evidence.values(name, *t, shared, "pools").mean(axis=1) for t in terms]
        agnostic, aware = (np.abs(of_seeds - np.median(of_seeds)) for of_seeds in medr)
        result[name] = over_seeds(agnostic - aware)
    return result or NOT_TRAINED


def where_it_holds(evidence: Evidence) -> Effects:
    """What CMCM gains over CMCA on the texts of which a relation holds, by relation."""
    terms, gains = ((CMCA.system, "rank"), (CMCM.system, "rank")), {}
    for name in with_values(evidence, *terms):
        clusters = evidence.clusters(name)
        shared = evidence.seeds_of(name, CMCA.system, CMCM.system)
        agnostic, aware = (np.log2(evidence.values(name, *term, shared)) for term in terms)
        for relation in relations_of(name):
            if evidence.has(name, PAIRS, relation):
                holds = evidence.values(name, PAIRS, relation)[0] > 0
                if len(np.unique(clusters[holds])) > 1:
                    gained = (agnostic - aware)[:, holds]
                    gains[f"{name}, {relation}"] = crossed(gained, clusters[holds])
    return gains or NOT_TRAINED


def where_commonest(evidence: Evidence, lessened: bool = False) -> Effects:
    """CMCA's log2 rank of texts without the commonest relation less that of texts with it.

    lessened: less the same of CMCM.
    """
    systems, gains = (CMCA.system, *[CMCM.system] * lessened), {}
    for name in with_values(evidence, *((system, "rank") for system in systems)):
        shared = evidence.seeds_of(name, *systems)
        x, *less = (np.log2(evidence.values(name, s, "rank", shared)) for s in systems)
        x = x - less[0] if less else x
        rates = evidence.values(name, PAIRS, "rate", split="relations")[0]
        relation = relations_of(name)[int(rates.argmax())]
        holds = evidence.values(name, PAIRS, relation)[0] > 0
        gains[f"{name}, {relation}"] = between(x, ~holds, holds, evidence.clusters(name))
    return gains or NOT_TRAINED


def _made_of(
    metric: str, split: str, change: Callable, evidence: Evidence, collection: str, system: str
) -> Recorded:
    return Recorded(system, metric, split, change)


def precision(relation: str, evidence: Evidence, collection: str, system: str) -> Recorded:
    """The average precision of a head on a relation; "" is its own, of a head of one."""
    relation, names = relation or system.removeprefix(HEAD), relations_of(collection)
    metric = "AP" if relation in names else ""  # none is recorded under this name
    return Recorded(system, metric, "relations", lambda ap: float(ap[names.index(relation)]))


VOCABULARY = Vocabulary(
    metrics={
        **{f"log2 {rank}": partial(_made_of, rank, "test", np.log2)
           for rank in ("rank", REFINED, "rank by confidence")},
        "own AP": partial(precision, ""),
        **{f"AP of {relation}": partial(precision, relation) for relation in CLUE},
        **{f"mean {name}": partial(_made_of, name, "relations", np.nanmean)
           for name in ("AP", "rate")},
        # of all pools, for an interval over seeds alone
        **{recall: partial(_made_of, recall, "pools", np.mean)
           for k in (1, 5, 10) for recall in (f"R@{k}", f"R@{k}, refined")},
        **{f"deviation of {medr}": partial(_made_of, medr, "pools", partial(np.std, ddof=1))
           for medr in ("MedR", "MedR, refined")},
    },
    collections={"at the dials' defaults": at_defaults},
)  # fmt: skip
ALL_CLAIMS = claims_of(__file__, VOCABULARY, {
    "K6": right_by_gap, "K6b": wrong_beyond, "K14b": less_over_trainings,
    "K15": where_it_holds, "K19": where_commonest,
    "K19b": partial(where_commonest, lessened=True),
})  # fmt: skip
# Those of the paper; the others are about the controlled pairs.
CLAIMS = tuple(claim for claim in ALL_CLAIMS if CONTROLLED_TIER not in claim.tiers)
