"""What paper 04 trains and scores, and how: systems, their settings, and each tier's budget."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from mmlib.core.paths import table_beside

PAPER = "links"
Negatives = Literal["hard", "mean"]


@dataclass(frozen=True)
class System:
    """A trained row of Tables 2 and 3, or a variant of one.

    similarity: the set similarity; "pair" is NoStruct's. half: k = q/2 instead of q; rounding: of
    that half; at_most: AP's printed form; doubled: NoStruct's cosine counts twice, as in the
    authors' code (DC of a 1 x 1 matrix). negatives, b: of the loss, and how many.
    """

    system: str
    similarity: Literal["pair", "DC", "TK", "AP"]
    half: bool = False
    rounding: Literal["ceil", "floor"] = "ceil"
    at_most: bool = False
    doubled: bool = True
    negatives: Negatives = "hard"
    b: int = 10


@dataclass(frozen=True)
class Settings:
    """How a system is trained. The defaults are the paper's (Section 4) where it states them.

    width: of the shared space; word_width, max_words, min_count: of the word vectors, a sentence,
    the vocabulary; dropout: on word channels and image features; schedule: "plateau" divides the
    rate by 5 after `patience` epochs without a better dev loss, "cosine" warms it up over the
    first 5 % of the steps and lets it decay to 0. steps: batches an epoch, 0 for all documents
    once. draws: NoStruct's random pairs a document and step (1 in the paper). feature_power: each
    image feature is divided by its deviation to this power. word_scale: word vectors are
    multiplied by it. warmup_fraction: of the epochs, in which hard negatives are averaged ones (0
    in the paper).
    """

    margin: float = 0.2
    width: int = 1024
    word_width: int = 300
    max_words: int = 20
    min_count: int = 5
    dropout: float = 0.4
    learning_rate: float = 1e-4
    weight_decay: float = 0.0
    schedule: Literal["plateau", "cosine"] = "plateau"
    patience: int = 3
    epochs: int = 50
    steps: int = 0
    draws: int = 1
    feature_power: float = 0.0
    word_scale: float = 1.0
    warmup_fraction: float = 0.0


# --- Systems ---------------------------------------------------------------------------------


_TABLES = table_beside(__file__)
SYSTEMS, VARIANTS = (
    {name: System(name, **row) for name, row in _TABLES[group].items()}
    for group in ("systems", "variants")
)
STRUCTURED = ("DC", "TK+½k", "AP", "AP+½k")  # TK at full k is left out: mostly it is DC
BASELINES: list[dict[str, str]] = _TABLES["baselines"]
UPPER_BOUNDS: list[dict[str, str]] = _TABLES["upper_bounds"]
STEP_TIME, DOCUMENTS = "Step time", "Documents"  # no systems, but rows of a record

# --- Data sets and budgets -------------------------------------------------------------------

PAPER_TABLES: dict[str, str] = _TABLES["paper_tables"]
UNLABELLED = "unlabelled"  # documents whose links nobody knows
BUDGETS = {
    tier: {dataset: Settings(**row) for dataset, row in budgets.items()}
    for tier, budgets in _TABLES["budgets"].items()
}
# Where dev prefers the hardest negative (after a start on averaged ones); elsewhere averaged ones.
HARD_NEGATIVES = {"world": ("story", "organic"), "flickr8k": ("cohesive",)}
# Where the variants are trained: on documents where a step is cheap.
VARIANT_SETS = {"world": ("story",)}


def datasets(tier: str) -> tuple[str, ...]:
    """The data sets of a complete record."""
    return tuple(BUDGETS.get(tier, (*PAPER_TABLES, UNLABELLED)))


def chosen_dataset(tier: str, live: str = "auto") -> str:
    """The data set that the notebook trains on; "auto": stories where there are any."""
    if live != "auto":
        return live
    return "story" if "story" in datasets(tier) else "cohesive"


def budget(tier: str, dataset: str) -> Settings:
    """The settings of a data set: the same for all systems that are trained on it."""
    return BUDGETS.get(tier, {}).get(dataset, Settings())


def trained_systems(tier: str, dataset: str, square: bool = False) -> list[System]:
    """What is trained on a data set: the table's systems, and variants that differ from them.

    square: of documents with as many sentences as images, where TK is the same as DC.
    """
    hard = tier == "paper" or dataset in HARD_NEGATIVES[tier]
    usual: Negatives = "hard" if hard else "mean"
    main = [replace(system, negatives=usual) for system in SYSTEMS.values()]
    if dataset == UNLABELLED:
        return [system for system in main if system.system == "AP"]
    variants = VARIANTS.values() if dataset in VARIANT_SETS.get(tier, ()) else ()
    of_negatives = [v for v in variants if "negatives" in v.system and v.negatives != usual]
    others = [replace(v, negatives=usual) for v in variants if "negatives" not in v.system]
    return [s for s in main if not (s.system == "TK" and square)] + of_negatives + others


def systems(tier: str, dataset: str) -> dict[str, Mapping[str, Any]]:
    """The columns of each system, trained or not, that may be on record of a data set."""
    trained = [asdict(system) for system in trained_systems(tier, dataset)]
    others = [{"system": STEP_TIME}, {"system": DOCUMENTS}]
    return {row["system"]: row for row in (*trained, *BASELINES, *UPPER_BOUNDS, *others)}
