"""The experiment of paper 02: systems, budgets, the grid of jobs, and what the evidence says."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from mmlib.core.evidence import NO_SEED, Evidence
from mmlib.core.jobs import Answer, Job
from mmlib.features.encoders import Shape
from mmlib.papers.entailment.arrays import Arrays
from mmlib.papers.entailment.judging import (
    Judge,
    Plan,
    describe_pairs,
    score_floor,
    train_and_score,
)
from mmlib.papers.entailment.metrics import shares
from mmlib.papers.entailment.model import Settings
from mmlib.papers.entailment.retraining import (
    NAMES,
    Phase,
    Retrieval,
    mine,
    rank_floor,
    start_name,
    train_and_measure,
)
from mmlib.papers.entailment.retraining import Plan as Retraining

PAPER = "entailment"
# What makes the evidence: a change to these modules, or to what they import, makes it stale.
MODULES = ("mmlib.papers.entailment.judging", "mmlib.papers.entailment.retraining")

# --- Judges: the rows of Table 3 ---------------------------------------------------------------

# Without SNLI-VE the paper's MME data would be CxC's and ECCV's: 65.9k of 595.4k (Table 2).
WITHOUT_VE = 65.9 / 595.4
# What Full does not learn from: pairs made of captions, whose labels are guesses; on photographs
# there are no others.
LEFT_OUT = {"world": "own caption, random caption, hard caption"}
PAIRS, MINING = "Pairs", "Mining"


def full(tier: str) -> Judge:
    """The paper's classifier."""
    return Judge("Full", without=LEFT_OUT.get(tier, ""))


def judges(tier: str) -> list[Judge]:
    """The rows that a tier trains."""
    one = full(tier)
    rows = [
        one,
        replace(one, system="Only TE", model="te", kinds="te, mme"),
        replace(one, system="Only VE", model="ve", kinds="ve, mme"),
        replace(one, system="Single stream", model="single"),
        replace(one, system="w/o image masking", masked=0),
        replace(one, system="w/o VE data", kinds="te, mme", share=WITHOUT_VE),
        replace(one, system="w/o TE data", kinds="ve, mme"),
        replace(one, system="w/o BERT", text="shared"),
        replace(one, system="Sigmoid", output="sigmoid"),
        replace(one, system="Separate", apart=True),
    ]
    if tier == "world":
        rows += [
            replace(one, system="w/o candidates", without=f"{one.without}, candidate"),
            replace(one, system="With own captions", without="hard caption"),
            replace(rows[2], system="Only VE, clean images", clean=True),
        ]
    elif tier == "flickr8k":
        rows += [
            replace(one, system="w/o own captions", without="own caption"),
            replace(one, system="w/o hard captions", without="hard caption"),
        ]
    return rows


FLOORS = (
    {"system": "Random pairs", "floor": "random"},
    {"system": "Word overlap", "floor": "overlap"},
    {"system": "Frozen cosine, nearest caption", "floor": "cosine, best"},
    {"system": "Frozen cosine, mean of captions", "floor": "cosine, mean"},
    {"system": "Frozen image cosine", "floor": "image cosine"},
    {"system": "Frozen tokens (BERTScore)", "floor": "tokens covered"},
    {"system": "Inputs alone", "floor": "regression"},
)
RIVALS = tuple(row["system"] for row in FLOORS[1:6])  # what a judge has to beat

FAMILIES = tuple(NAMES)
REFERENCE = "extra golden"
PAPERS_NAMES = {"dual": "CLIP", "triplet": "UNITER", "align": "ALBEF"}  # whose place each takes
SHORTEST, ORACLE = "Shortest captions", "Oracle"
RANKED = (
    {"system": "Random ranking", "floor": "random"}, {"system": SHORTEST, "floor": "shortest"},
    {"system": "Frozen retriever", "floor": "frozen"}, {"system": ORACLE, "floor": "truth"},
)  # fmt: skip


def name_of(family: str, use: str, pairs: str = "") -> str:
    """What a rung is called: "CLIP-like, both (miner)"."""
    return f"{NAMES[family]}, {use}" + (f" ({pairs})" if pairs else "")


FILLED = ", filled with weak pairs"  # and not with golden ones


def _rung(family: Any, use: Any, pairs: str, **more: Any) -> Retrieval:
    own = {"judged": use == "both" and pairs in ("miner", "all")}
    return Retrieval(name_of(family, use, pairs), family, use, pairs, **{**own, **more})


def rungs(tier: str) -> list[Retrieval]:
    """The fine-tunings of a tier, and their starts."""
    found: list[Retrieval] = []
    for family in ("dual", "triplet", "align"):
        if family != "triplet":  # which starts where CLIP-like does
            found.append(Retrieval(start_name(family), family, "start"))  # type: ignore[arg-type]
        found += [
            Retrieval(name_of(family, "plain"), family, golden=False),  # type: ignore[arg-type]
            Retrieval(name_of(family, REFERENCE), family, judged=True),  # type: ignore[arg-type]
        ]
        uses = ("both",) if family == "triplet" else ("exclusion", "weak", "both")
        found += [_rung(family, use, "miner") for use in uses]
        if tier == "world":
            found += [_rung(family, use, "all") for use in ("exclusion", "weak", "both")]
        if tier == "world" and family != "triplet":
            found += [_rung(family, "both", "candidates"), _rung(family, "both", "rare")]
    found.append(_rung("dual", "weak", "random"))
    alone = _rung("dual", "both", "miner", golden=False, judged=False)
    found.append(replace(alone, system=f"{alone.system}{FILLED}"))
    if tier == "world":
        found += [_rung("dual", "both", "near misses"), *_dials()]
    return found


def _dials() -> list[Retrieval]:
    """How dense false negatives are, and what λ does, on CLIP-like."""
    found = []
    for which in ("general", "rare"):
        told = f", {which} captions"
        found += [
            Retrieval(start_name("dual", which), "dual", "start", captions=which),
            Retrieval(name_of("dual", REFERENCE) + told, "dual", captions=which),
        ]
        for use in ("exclusion", "both"):
            one = _rung("dual", use, "all", captions=which, judged=False)
            found.append(replace(one, system=one.system + told))
    ends = (
        Retrieval(name_of("dual", REFERENCE), "dual"),
        _rung("dual", "both", "all", judged=False),
    )
    for ratio, state in ((0.01, "shared"), (1.0, "shared"), (0.1, "separate")):
        own = {"ratio": ratio, "state": state}
        for one in ends:
            found.append(replace(one, system=f"{one.system}, λ = {ratio:g}, {state}", **own))  # type: ignore[arg-type]
    return found


# --- Budgets -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Budget:
    """How everything of a tier is trained.

    judge, retrieval: plans. miner: the judge that mines. frozen: phases of the retriever that
    judges start from, on photographs. min_count: of a word in the training captions.
    """

    judge: Plan
    retrieval: Retraining
    miner: Judge
    frozen: Mapping[str, Phase] = field(default_factory=dict)
    min_count: int = 1


# Measured on dev in the world, one seed each; RSUM among 200 images, by the encoders.
# - From random encoders a retriever learns nothing from 1,200 pictures (RSUM 78 after 6 epochs), so
#   stage A takes those of the frozen retriever and draws the maps into the shared space anew. Of a
#   plateau near 360, 18 steps at 5e-4 reach 135, 36 at 8e-4 308.
# - With noise fixed, 8 epochs end at 350, below their second (360); with noise drawn anew, 6 end at
#   358, 3 at 355. So stage B has 3, ALBEF-like, at twice the time a step, 2 (358).
# - The miner's pairs out of the negatives and as weak positives: 355 where golden pairs fill the
#   extra batches, 343 where weak ones do (extra golden 356).
# On Flickr8k the text branch's dev loss is lowest after 1,200 of 2,400 steps (.356; after 600 of
# 600, with the rate at 0, .432).
_SMALL, _MIDDLE = (Shape(width, 4, 2, 1, 1, 1, dropout=0.0) for width in (64, 128))
BUDGETS = {
    "world": Budget(
        Plan(
            Settings(**asdict(_SMALL), max_premise=90, max_hypothesis=25),
            steps=360, batch=32, learning_rate=1e-3, started=0.3,
        ),
        Retraining(
            _SMALL,
            first={"dual": Phase(2, 64, 6e-4, 1), "align": Phase(2, 64, 6e-4, 1)},
            tuned={"dual": Phase(3, 64, 5e-4), "triplet": Phase(3, 64, 5e-4),
                   "align": Phase(2, 64, 3e-4)},
        ),
        full("world"),
    ),
    "flickr8k": Budget(
        Plan(
            Settings(**asdict(_MIDDLE), max_premise=100, max_hypothesis=30),
            steps=1200, batch=32, learning_rate=5e-4, started=0.3,
        ),
        Retraining(
            _MIDDLE,
            first={"dual": Phase(2, 128, 6e-4, 2), "align": Phase(2, 128, 6e-4, 2)},
            tuned={"dual": Phase(3, 128, 5e-4), "triplet": Phase(3, 128, 5e-4),
                   "align": Phase(2, 64, 3e-4)},
            space=128,
        ),
        full("flickr8k"),
        frozen={"dual": Phase(10, 128, 1e-3), "align": Phase(5, 64, 5e-4)},
        min_count=3,
    ),
}  # fmt: skip
_LARGE = replace(
    BUDGETS["flickr8k"].retrieval, transformers=Shape(256, 4, 2, 2, 2, 1), space=256,
    top_texts=128, top_images=128,
)  # fmt: skip
BUDGETS["f30k"] = replace(BUDGETS["flickr8k"], judge=Plan(), retrieval=_LARGE, miner=full("paper"))


def budget(tier: str, dataset: str) -> Budget:
    """The budget of a data set, one for all systems of a kind. Raises KeyError for another one."""
    return BUDGETS[dataset]


def systems(tier: str, dataset: str) -> dict[str, Mapping[str, Any]]:
    """The columns of each system, trained or not, that may be on record of a data set."""
    every: list[Any] = [*judges(tier), *rungs(tier)]
    others = [{"system": PAIRS}, {"system": MINING}, *FLOORS, *RANKED]
    return {row["system"]: row for row in (*map(asdict, every), *others)}


def job(tier: str, dataset: str, system: Any, seed: int) -> Job:
    """A job; system: a dataclass or a row of columns."""
    columns = dict(system) if isinstance(system, Mapping) else asdict(system)
    return Job(PAPER, tier, dataset, columns, seed, asdict(budget(tier, dataset)))


def stages(
    tier: str, data: Mapping[str, Arrays], seeds: Sequence[int]
) -> list[tuple[Callable[..., Answer], list[Job], bool]]:
    """All that evidence needs: functions and their jobs, in an order in which later ones find what
    earlier ones kept.
    """

    def of(rows: Sequence[Any], own_seeds: Sequence[int] = seeds) -> list[Job]:
        return [job(tier, name, row, seed) for seed in own_seeds for name in data for row in rows]

    known = [row for row in RANKED if row["floor"] != "truth" or tier == "world"]
    by_seed = [row for row in (*FLOORS, *known) if row["floor"] == "random"]
    starts = [one for one in rungs(tier) if one.use == "start"]
    rest = [one for one in rungs(tier) if one.use != "start"]
    return [
        (describe_pairs, of([{"system": PAIRS}], [NO_SEED]), True),
        (score_floor, of(FLOORS[1:], [NO_SEED]) + of(by_seed[:1]), True),
        (rank_floor, of(known[1:], [NO_SEED]) + of(by_seed[1:]), True),
        (train_and_score, of(judges(tier)), True),
        (train_and_measure, of(starts), True),
        (mine, of([{"system": MINING}]), True),
        (train_and_measure, of(rest), True),
    ]


# --- What the evidence says --------------------------------------------------------------------

OWN_CAPTIONS = {"world": ("Full", "With own captions"), "flickr8k": ("w/o own captions", "Full")}


def main_test(evidence: Evidence, dataset: str) -> str:
    """The test at its natural prior: candidates in the world, the crowd's pairs on photographs."""
    return next(
        name for name in ("candidates", "crowd", "SNLI-VE")
        if evidence.has(dataset, PAIRS, "label", name)
    )  # fmt: skip


def pair_shares(
    evidence: Evidence, dataset: str, system: str, metric: str, how: str = "margin",
    seeds: Sequence[int] | None = None, test: str = "",
) -> np.ndarray:  # fmt: skip
    """What each test pair adds to a figure of a judge (see `metrics.shares`), (seeds, pairs).

    how: "margin", network and inputs; "alone", the network; of a branch "alone, TE".
    """
    test = test or main_test(evidence, dataset)

    def of(margins: np.ndarray) -> np.ndarray:
        kinds = ("label", "weight")
        label, weight = (evidence.values(dataset, PAIRS, kind, [0], test)[0] for kind in kinds)
        return shares(metric, label, margins, weight)

    return evidence.derived(metric, of, dataset, system, how, seeds, test)


def judged(
    evidence: Evidence, dataset: str, system: str, metric: str, how: str = "margin", test: str = ""
) -> np.ndarray:
    """A figure of a judge, (seeds,)."""
    return pair_shares(evidence, dataset, system, metric, how, None, test).mean(axis=1)


def strongest(evidence: Evidence, dataset: str, rivals: Sequence[str] = RIVALS) -> str:
    """Of judges that are on record the one with the highest average precision."""
    test = main_test(evidence, dataset)
    there = [name for name in rivals if evidence.has(dataset, name, "margin", test)]
    return max(there, key=lambda n: judged(evidence, dataset, n, "average precision").mean())


def relevance(evidence: Evidence, dataset: str) -> tuple[str, str]:
    """The figures of true retrieval that are known: by logic, else by people."""
    one = rungs("world")[0].system
    known = evidence.has(dataset, one, "mAP")
    return ("mAP", "E@10") if known else ("mAP, people", "P@1, people")
