"""What paper 02 compares: judges, ways of revising retrievers, baselines, and their budgets.

The rows and figures of `systems.yaml` as objects; what was tried before them is said there.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from mmlib.core.paths import table_beside
from mmlib.features.encoders import Shape
from mmlib.papers.entailment.method.classifier import Settings
from mmlib.papers.entailment.method.revision import OptimizerState, Phase

PAPER = "entailment"
TABLE = table_beside(__file__)
DATASETS = {"world": "world", "flickr8k": "flickr8k", "paper": "f30k"}
# How a false hypothesis of the world differs from a true caption, and where hypotheses come from.
EDITS = ("colour", "number", "relation", "swap", "actor", "object", "setting", "action")
ORIGINS = ("own", "general", "foreign", *EDITS)
# What Full does not learn from: pairs made of captions, whose labels are guesses; on photographs
# there are no others.
LEFT_OUT = {"world": "own caption, random caption, hard caption"}
PAIRS, MINING = "Pairs", "Mining"

Family = Literal["dual", "triplet", "align"]
FAMILIES: dict[Family, str] = {"dual": "CLIP-like", "triplet": "VSE-like", "align": "ALBEF-like"}
PAPER_RETRIEVERS = {"dual": "CLIP", "triplet": "UNITER", "align": "ALBEF"}  # the paper's in place
REFERENCE = "extra golden"
FILLED = ", filled with weak pairs"  # and not with golden ones
BASELINES, RANKINGS = (
    tuple({"system": name, "baseline": baseline} for name, baseline in TABLE[group].items())
    for group in ("baselines", "rankings")
)


@dataclass(frozen=True)
class Judge:
    """A row of Table 3: what it changes in the classifier, and what it trains on.

    model, text, output, masked: see `Settings`. kinds: of samples. mme_share: of the "mme" samples
    that are used. without: sources that are left out, joined by commas. sequential: one kind after
    the other, not mixed. clean: images without the world's noise.
    """

    system: str
    model: Literal["both", "te", "ve", "single"] = "both"
    text: Literal["own", "shared"] = "own"
    output: Literal["softmax", "sigmoid"] = "softmax"
    masked: int = 4
    kinds: str = "te, ve, mme"
    mme_share: float = 1.0
    without: str = ""
    sequential: bool = False
    clean: bool = False

    def settings(self, common: Settings) -> Settings:
        """The classifier's settings."""
        masked = self.masked if common.masked else 0
        return replace(common, model=self.model, text=self.text, output=self.output, masked=masked)


def full(tier: str) -> Judge:
    """The paper's classifier."""
    return Judge("Full", without=LEFT_OUT.get(tier, ""))


def judges(tier: str) -> list[Judge]:
    """The rows that a tier trains."""
    rows = TABLE["judges"]["all tiers"] | TABLE["judges"].get(tier, {})
    return [replace(full(tier), system=name, **changes) for name, changes in rows.items()]


@dataclass(frozen=True)
class Variant:
    """How a retriever of a family goes on after stage A.

    use: "start", not at all; "none"; "exclusion" of pairs from the negatives of regular batches;
    "weak", as positives of extra batches at λη; "both", the paper's. pairs: whose, see `weak_set`.
    precision, recall: of the "candidates" that are taken.
    golden: whether golden pairs fill the extra batches, wholly where there are no weak ones, for
    equal steps; else weak ones do, or there are no extra batches.
    ratio: λ, 0 for the common one; state: of the optimiser. captions: of each image "all", or two,
    "general" or "rare". scored_by_judge: whether the judge looks at what it finds.
    """

    system: str
    family: Family
    use: Literal["start", "none", "exclusion", "weak", "both"] = "none"
    pairs: str = ""
    precision: float = 1.0
    recall: float = 1.0
    golden: bool = True
    ratio: float = 0.0
    state: OptimizerState = "shared"
    captions: str = "all"
    scored_by_judge: bool = False


def name_of(family: str, use: str, pairs: str = "") -> str:
    """What a variant is called: "CLIP-like, both (miner)"."""
    return f"{FAMILIES[family]}, {use}" + (f" ({pairs})" if pairs else "")  # type: ignore[index]


def variants(tier: str) -> list[Variant]:
    """The fine-tunings of a tier, and their starts."""
    rows = [{"system": name, **changes} for name, changes in TABLE["variants"].items()]
    return [Variant(**row) for row in rows if row.pop("only", tier) == tier]


def systems(tier: str, dataset: str) -> dict[str, Mapping[str, Any]]:
    """The columns of each system, trained or not, that may be on record of a data set."""
    trained: list[Any] = [*judges(tier), *variants(tier)]
    others = [{"system": PAIRS}, {"system": MINING}, *BASELINES, *RANKINGS]
    return {row["system"]: row for row in (*map(asdict, trained), *others)}


# --- Budgets -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class JudgeTraining:
    """How judges are trained; the defaults are the paper's (Section 3.7).

    classifier: sizes, the same for all. steps, batch: how long; 0 steps: the paper's five passes.
    pretrained_rate: share of the learning rate for weights that were trained before.
    """

    classifier: Settings = field(default_factory=Settings)
    steps: int = 0
    batch: int = 96
    learning_rate: float = 2e-5
    weight_decay: float = 0.02
    pretrained_rate: float = 1.0


@dataclass(frozen=True)
class RetrieverTraining:
    """What retrievers are like and how they are trained.

    transformers: sizes of all. space: width of the shared space. top_texts, top_images: of each
    image and each text that ALBEF-like re-ranks. stage_a: of "dual" and of "align"; stage_b: of
    each family. ratio: λ.
    """

    transformers: Shape
    stage_a: Mapping[str, Phase]
    stage_b: Mapping[str, Phase]
    space: int = 64
    top_texts: int = 30
    top_images: int = 5
    ratio: float = 0.1


@dataclass(frozen=True)
class Budget:
    """How everything of a tier is trained.

    miner: the judge that mines. frozen: phases of the retriever that judges start from, on
    photographs. min_count: of a word in the training captions.
    """

    judge: JudgeTraining
    retrieval: RetrieverTraining
    miner: Judge
    frozen: Mapping[str, Phase] = field(default_factory=dict)
    min_count: int = 1

    @classmethod
    def of(cls, plan: Mapping[str, Any]) -> "Budget":
        """The budget in a job's settings, or in a table of `systems.yaml`."""
        judge, retrieval = dict(plan["judge"]), dict(plan["retrieval"])
        judge["classifier"] = Settings(**judge.get("classifier", {}))
        retrieval["transformers"] = Shape(**retrieval["transformers"])
        phases = {**retrieval, "frozen": plan.get("frozen", {})}
        for name in ("stage_a", "stage_b", "frozen"):
            phases[name] = {family: Phase(**phase) for family, phase in phases[name].items()}
        frozen, miner = phases.pop("frozen"), Judge(**plan["miner"])
        return cls(
            JudgeTraining(**judge), RetrieverTraining(**phases), miner, frozen,
            plan.get("min_count", 1),
        )  # fmt: skip


BUDGETS = {
    dataset: Budget.of({**TABLE["budgets"][dataset], "miner": asdict(full(tier))})
    for tier, dataset in DATASETS.items()
}
