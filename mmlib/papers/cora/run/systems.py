"""The systems of paper 03, how they are trained, and on what budget of which collection."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from mmlib.core.paths import table_beside

PAPER = "cora"
SPLITS = ("train", "val", "test")
CLEAR = "clear"  # of the picture world the collection whose captions say plainly who has what
DATASETS = {"world": (CLEAR, "world"), "flickr8k": ("flickr8k",), "paper": ("f30k", "coco")}
CONTROLLED_TIER = "controlled"
# How collections end that a BERT reads, whose main systems are trained longer, or whose budget was
# searched with CORA and the systems that the paper compares it with.
WITH_BERT, LONGER, TUNED = "_bert", "_long", "_tuned"
# Photographs with a grid and a detector's boxes as regions, or with either alone.
THINGS, PARTS = "_things", ("_things_grid", "_things_boxes")
REGIONS = {THINGS: slice(24), **dict(zip(PARTS, (slice(16), slice(16, 24)), strict=True))}
# Each ending's systems in the table.
ENDINGS = {WITH_BERT: "with BERT", LONGER: "longer", TUNED: "tuned"}
ENDINGS |= dict.fromkeys(REGIONS, "regions") | {THINGS: "things"}
ERRORS = ("tokens", "attribute", "edge", "mixed")  # kinds of simulated parse errors (Section 9)
RATES = (10, 20, 30)  # percent of the captions
LITTLE_HARM = 0.97  # the share of its RSUM that CORA keeps at the highest rate if C8 holds
CAPTIONS, QUERY_TIME = "Captions", "Query time"  # of the data and of the machine, not systems
SIZES = (100, 10_000)  # images among which a query is timed

Form = Literal["printed", "authors"]


@dataclass(frozen=True)
class System:
    """A trained row of the tables, or a control."""

    system: str
    # What stands for a caption: its scene graph, the one that it was written from (world), its
    # words (VSE∞, Chen et al., CVPR 2021), or the graph's phrases without any graph layer.
    text: Literal["graph", "gold", "sequence", "bag"] = "graph"
    # What reads words: else a BERT, with "prompts" by P-Tuning v2 (Section 3.2).
    words: Literal["GRU", "frozen", "prompts", "tuned"] = "GRU"
    # Of Section 3.3, or one GAT over objects and attributes at once, without entities (Joint).
    steps: Literal["two", "one"] = "two"
    attribute_layers: int = 1
    object_layers: int = 2
    ends: int = 1  # of a relation in its edge: the passive one, or both
    connected: bool = False  # FC (Table 3): all objects of a caption are neighbours
    # Eq. 6, phrase encoders, positions of nodes and regions, matches of entities, L_CON and the
    # weight of L_SPEC; attention: eqs. 2 and 3.
    form: Form = "printed"
    attention: Form = "authors"
    residual: bool = False  # ours: skips around each object layer, and a bag of phrases around all
    regions: Literal["attention", "pooling"] = "attention"  # VSE∞ only pools
    scratch: bool = False  # word vectors start at random (Tables 5 and 6)
    mean: bool = False  # sets are pooled by their mean, not by GPO
    losses: str = "HARD + CON + SPEC"  # eq. 13
    swapped: bool = False  # ours: captions with two things exchanged are negatives, too (NegCLIP)
    hardest: bool = False  # negatives from the first epoch on, whatever the budget says
    entities: bool = True  # whether they take part in L_CON
    margin: float = 0.4  # α
    members: int = 1  # trainings whose similarities are averaged
    record_diagnostics: bool = False  # test graphs with parse errors, and rankings of entities
    contrast: Literal["exact", "authors"] = "exact"  # of L_CON, see `method.contrastive`

    @property
    def bert(self) -> bool:
        """Whether words are read by a BERT."""
        return self.words != "GRU"

    @property
    def reads(self) -> str:
        """Which of a split's texts it reads."""
        return ("graph" if self.text == "bag" else self.text) + ", pieces" * self.bert


@dataclass(frozen=True)
class Augmentation:
    """How training examples vary: how often each is left out; the paper's (supplement)."""

    region_dropout: float = 0.35
    drop_objects: float = 0.1
    drop_attributes: float = 0.1
    drop_relations: float = 0.1
    mask: float = 0.1  # of words
    delimiters: bool = True  # texts stand between [CLS] and [SEP] (code; the paper does not say)


@dataclass(frozen=True)
class Settings(Augmentation):
    """How a system is trained. The defaults are the paper's (supplement)."""

    width: int = 1024  # D
    word_width: int = 300  # of word vectors and phrase states
    heads: int = 16
    lambda_con: float = 0.25  # λ_CON
    temperature: float = 0.01  # τ of L_CON
    mean_negatives: float = 0.0  # share of the epochs in which L_HARD averages over negatives
    image_dropout: float = 0.1
    graph_dropout: float = 0.15
    message_dropout: float = 0.05
    learning_rate: float = 5e-4
    word_rate: float = 0.1  # of the word vectors, as a share of it
    weight_decay: float = 1e-4
    schedule: Literal["step", "cosine"] = "step"  # a tenth from a share of the steps on, or to 0
    lr_decay_at: float = 0.3
    warmup_fraction: float = 0.0
    ema: float = 0.0  # decay of a running mean of the weights, which is evaluated; 0: none
    epochs: int = 50
    batch: int = 128
    captions: int = 5  # of each image that an epoch shows
    frozen_epochs: float = 0.0  # share of the epochs in which a BERT learns nothing yet


_TABLE = table_beside(__file__)
TABLES = _TABLE["systems"]  # name of a table -> its systems
_ROWS = {name: row for rows in (*TABLES.values(), _TABLE["others"]) for name, row in rows.items()}


def system(name: str) -> System:
    """A system of the table, made of the one that it is like. Raises ValueError for a bad row."""
    try:
        changes = dict(_ROWS[name])
        base = system(changes.pop("like")) if "like" in changes else System(name)
        return replace(base, **{"system": name, "record_diagnostics": False, **changes})
    except (KeyError, TypeError) as error:
        raise ValueError(f"systems.yaml: {name} has no row, or a wrong field: {error}") from None


SYSTEMS = {name: system(name) for names in TABLES.values() for name in names}
CORA, TWO_STEP, JOINT, SEQUENCE, BAG, OURS, VSE, GOLD, AUTHORS = (system(name) for name in (
    "CORA", "Two-step, caption losses", "Joint", "Sequence, CORA's rest", "Bag of phrases",
    "Two-step, residual path and short cut", "VSE∞", "CORA, gold graphs", "CORA, authors' form",
))  # fmt: skip
BASELINES, ORACLES, IDEAL_BAG, TRIGRAMS = (
    _TABLE[name] for name in ("baselines", "oracles", "ideal bag", "plausibility")
)
# All systems in the order of tables, and those that figures tell apart by colours.
ORDER = [row["system"] for row in (*BASELINES, IDEAL_BAG, TRIGRAMS)]
ORDER += list({**SYSTEMS, **_TABLE["others"]})
ORDER += [row["system"] for row in ORACLES]
COMPARED = (CORA.system, OURS.system, BAG.system, TWO_STEP.system, SEQUENCE.system)
COMPARISONS = [tuple(pair.split(" − ")) for pair in _TABLE["comparisons"]]
BUDGETS = {name: Settings(**fields) for name, fields in _TABLE["budgets"].items()}
CONTROLLED: dict[str, dict[str, Any]] = _TABLE["controlled"]  # collection -> its dials
ON_CONTROLLED: list[str] = _TABLE["on controlled"]
DATASETS[CONTROLLED_TIER] = tuple(CONTROLLED)


def original(dataset: str) -> str:
    """The collection that one for a BERT, or with another budget, is made of."""
    for ending in ENDINGS:
        dataset = dataset.removesuffix(ending)
    return dataset


def retrained(names: Iterable[str]) -> list[str]:
    """The collections of the same captions as these, on which some systems have other budgets."""
    return [name + end for end in (LONGER, TUNED) for name in names if name + end in BUDGETS]


def datasets(tier: str) -> list[str]:
    """The collections of a complete record: all of a tier, retrained, and read by a BERT."""
    plain = DATASETS[tier]
    # The picture world's BERT has read sentences.
    with_bert = [name + WITH_BERT for name in plain if name != CLEAR and name not in CONTROLLED]
    regions = [tier + ending for ending in REGIONS if tier == "flickr8k"]
    return [*plain, *retrained(plain), *with_bert, *regions]


def budget(tier: str, dataset: str) -> Settings:
    """The settings of a collection, the same for all systems; the paper's where none are ours.

    A collection of the reader's own is trained as Flickr8k is.
    """
    if dataset in CONTROLLED:
        controlled = BUDGETS[CONTROLLED_TIER]
        return replace(controlled, epochs=CONTROLLED[dataset].get("longer", 1) * controlled.epochs)
    if tier == "paper" and original(dataset) not in DATASETS[tier]:
        dataset = dataset.replace(original(dataset), "flickr8k", 1)
    return BUDGETS.get(dataset, BUDGETS.get(original(dataset), Settings()))


def trained_systems(dataset: str) -> list[System]:
    """What is trained on a collection: only the picture world has gold graphs.

    On the paper's own data, with its temperature, all have the L_CON of the authors' code.
    """
    if dataset == original(dataset) and dataset not in CONTROLLED:
        rows = [row for row in SYSTEMS.values() if row != GOLD or dataset in DATASETS["world"]]
        rows = [row for row in rows if dataset != CLEAR or row.system in _TABLE["on clear"]]
        rows = [row for row in rows if dataset in BUDGETS or not row.hardest]  # the paper's is that
    else:
        names = CONTROLLED.get(dataset, {}).get("systems", ON_CONTROLLED)
        if dataset not in CONTROLLED:
            names = _TABLE[ENDINGS[dataset.removeprefix(original(dataset))]]
        rows = [replace(system(name), record_diagnostics=False) for name in names]
    if original(dataset) in DATASETS["paper"]:
        rows = [replace(row, contrast="authors") for row in rows]
    return rows


def systems(tier: str, dataset: str) -> dict[str, Mapping[str, Any]]:
    """The columns of each system, trained or not, that may be in a collection's record."""
    rows: list[Mapping[str, Any]] = [asdict(row) for row in trained_systems(dataset)]
    if dataset in CONTROLLED:
        rows += [IDEAL_BAG, ORACLES[-1]]
    else:
        plain = (*BASELINES, IDEAL_BAG, *ORACLES, {"system": QUERY_TIME})
        rows += [{"system": CAPTIONS}, *plain * (dataset == original(dataset))]
        rows += [TRIGRAMS] * dataset.endswith(tuple(REGIONS))
    return {row["system"]: row for row in rows}
