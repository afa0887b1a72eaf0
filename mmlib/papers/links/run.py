"""What paper 04 trains and how: systems, budgets, one training, and the jobs of its record."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property, partial
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, ReduceLROnPlateau

from mmlib.core.fit import Descent, fit, seed_everything, warm_up_cosine
from mmlib.core.jobs import NO_SEED, Answer, History, Job, Run, Stage
from mmlib.core.paths import table_beside
from mmlib.papers.links import baselines, data
from mmlib.papers.links.data.arrays import (
    Arrays,
    Batch,
    Batches,
    fixed_batches,
    prepare,
    random_batches,
)
from mmlib.papers.links.data.documents import KINDS, UNLABELLED, Corpus
from mmlib.papers.links.method import (
    LinkModel,
    Negatives,
    Settings,
    System,
    batch_loss,
    cosine_matrices,
    evaluate,
)

PAPER = "links"

# --- Systems ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sized(System):
    """A system in a shared space that is so large a share of the settings' width."""

    share: float = 1.0


_TABLES = table_beside(__file__)
SYSTEMS, VARIANTS = (
    {name: Sized(name, **row) for name, row in _TABLES[group].items()}
    for group in ("systems", "variants")
)
STRUCTURED = ("DC", "TK+½k", "AP", "AP+½k")  # TK at full k is left out: mostly it is DC
BASELINES: list[dict[str, str]] = _TABLES["baselines"]
UPPER_BOUNDS: list[dict[str, str]] = _TABLES["upper_bounds"]
STEP_TIME, DOCUMENTS = "Step time", "Documents"  # no systems, but rows of a record

PAPER_TABLES: dict[str, str] = _TABLES["paper_tables"]
BUDGETS = {
    tier: {dataset: Settings(**row) for dataset, row in budgets.items()}
    for tier, budgets in _TABLES["budgets"].items()
}
HARD_NEGATIVES, VARIANT_SETS = _TABLES["hard_negatives"], _TABLES["variant_sets"]  # by tier


def datasets(tier: str) -> tuple[str, ...]:
    """The data sets of a complete record."""
    return KINDS.get(tier, (*PAPER_TABLES, UNLABELLED))


def chosen_dataset(tier: str, live: str = "auto") -> str:
    """The data set that the notebook trains on; "auto": stories where there are any."""
    if live != "auto":
        return live
    return "story" if "story" in datasets(tier) else "cohesive"


def budget(tier: str, dataset: str) -> Settings:
    """The settings of a data set: the same for all systems that are trained on it."""
    return BUDGETS.get(tier, {}).get(dataset, Settings())


def trained_systems(tier: str, dataset: str, square: bool = False) -> list[Sized]:
    """What is trained on a data set: the table's systems, and variants that differ from them.

    square: of documents with as many sentences as images, where TK is the same as DC.
    """
    hard = tier == "paper" or dataset in HARD_NEGATIVES.get(tier, ())
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


# --- One training ----------------------------------------------------------------------------

DEV_DRAWS = 100  # NoStruct's random pairs a document in the dev loss


def new_model(arrays: Arrays, settings: Settings) -> LinkModel:
    """A model that is not trained."""
    return LinkModel(torch.tensor(arrays.words), arrays.features.shape[1], settings)


def train(job: Job, arrays: Arrays, run: Run = Run()) -> tuple[LinkModel, History]:
    """Train one system on one corpus. Returns the model and the history.

    Under the cosine schedule the model is that of the last epoch: the rate has come to 0, and
    nothing is chosen. NoStruct's dev loss says little about links, and choosing by it took early
    epochs. Under the paper's plateau rule it is that of the lowest dev loss with averaged
    negatives, which no link label enters and which means the same in every epoch.
    History: an epoch's train_loss, dev_loss and, where dev has labels, dev_AUC.
    """
    system, settings = Sized(**job.system), Settings(**job.settings)
    settings = replace(settings, width=round(system.share * settings.width))
    seed_everything(job.seed)
    model = new_model(arrays, settings).to(run.device)
    training = Batches(arrays, "train", run.device)
    size = system.b + 1  # a document and its b negatives
    steps = settings.steps or len(training.split) // size
    optimizer = torch.optim.AdamW(
        model.parameters(), settings.learning_rate, weight_decay=settings.weight_decay, fused=True
    )
    schedule: LRScheduler | ReduceLROnPlateau
    if settings.schedule == "plateau":
        schedule = ReduceLROnPlateau(
            optimizer, factor=0.2, patience=settings.patience, threshold=1e-4,
            threshold_mode="abs", min_lr=1e-7,
        )  # fmt: skip
    else:
        total = steps * settings.epochs
        warm_up = max(1, total // 20)
        schedule = LambdaLR(optimizer, partial(warm_up_cosine, steps=total, warm_up=warm_up))

    def batches(epoch: int) -> Iterator[tuple[Batch, Negatives]]:
        rng = np.random.default_rng([job.seed, epoch])
        warmup = epoch < settings.warmup_fraction * settings.epochs
        for documents in islice(random_batches(training.split, size, rng), steps):
            yield training.batch(documents), "mean" if warmup else system.negatives

    def loss(batch: tuple[Batch, Negatives]) -> Tensor:
        return batch_loss(model, batch[0], system, settings, batch[1])

    history = fit(
        model, batches, Descent(loss, optimizer, schedule),
        dev_evaluation(model, arrays, system, settings, run.device), epochs=settings.epochs,
        seed=job.seed, keep="last" if settings.schedule == "cosine" else "best", run=run,
    )  # fmt: skip
    return model, history


def dev_evaluation(
    model: LinkModel, arrays: Arrays, system: System, settings: Settings, device: str
) -> Callable[[], dict[str, float]]:
    """What `fit` asks for after each epoch: dev_loss and, where dev has labels, dev_AUC."""
    dev = Batches(arrays, "val", device)
    batches = [dev.batch(documents) for documents in fixed_batches(dev.split, system.b + 1)]
    settings = replace(settings, draws=DEV_DRAWS)

    def evaluate_dev() -> dict[str, float]:
        pairs = torch.Generator().manual_seed(0)  # NoStruct's dev pairs stay the same
        losses = [batch_loss(model, batch, system, settings, "mean", pairs) for batch in batches]
        figures = {"dev_loss": float(torch.stack(losses).mean())}
        if dev.split.links is not None:
            auc = evaluate(cosine_matrices(model, arrays, "val", device), dev.split)["AUC"]
            figures["dev_AUC"] = float(np.nanmean(auc))
        return figures

    return evaluate_dev


def train_and_score(job: Job, arrays: Arrays, run: Run = Run()) -> Answer:
    """Train, and score every test document.

    Documents without labels are scored by their sealed key where there is one: nothing before
    this has read it.
    """
    model, history = train(job, arrays, run)
    test = arrays.splits["test"]
    test = replace(test, links=test.links or arrays.key)
    matrices = cosine_matrices(model, arrays, "test", run.device) if test.links else []
    values = evaluate(matrices, test) if test.links else {}
    return Answer({"test": values}, history)


REPEATS, WARM_UP = 40, 3  # steps that are timed, and steps before them


def time_steps(job: Job, arrays: Arrays, run: Run = Run()) -> Answer:
    """Milliseconds of training steps of DC and AP on one batch, the two taking turns."""
    settings, device, rows = Settings(**job.settings), run.device, []
    model = new_model(arrays, settings).to(device)
    for _ in range(WARM_UP + REPEATS):
        row = {}
        for name in ("DC", "AP"):
            batch = Batches(arrays, "train", device).batch(range(SYSTEMS[name].b + 1))
            started = time.perf_counter()
            batch_loss(model, batch, SYSTEMS[name], settings, "mean").backward()
            model.zero_grad()
            if torch.device(device).type == "cuda":
                torch.cuda.synchronize()
            row[f"ms of {name}"] = 1000 * (time.perf_counter() - started)
        rows.append(row)
    return Answer({}, rows[WARM_UP:])


# --- One training as the notebook shows it ---------------------------------------------------

READABLE = range(4, 7)  # sentences of a document that is shown


@dataclass(frozen=True, eq=False)
class Demo:
    """A training, its documents, and the cosines (n, m) of its test documents.

    history: the figures of each epoch; the first are those of the untrained model.
    """

    corpus: Corpus
    arrays: Arrays
    settings: Settings
    untrained: LinkModel
    model: LinkModel
    history: History
    before: list[np.ndarray]
    after: list[np.ndarray]

    @cached_property
    def auc(self) -> np.ndarray:
        """The AUC of each test document after training, (documents,), in percent."""
        return evaluate(self.after, self.arrays.splits["test"])["AUC"]

    def nearest(self, target: float) -> int:
        """The first test document whose AUC is nearest to `target`, of those short enough to show.

        Where none has four to six sentences, all documents are candidates.
        """
        short = np.array([len(d.sentences) in READABLE for d in self.corpus.test])
        return int(np.nanargmin(np.where(short | ~short.any(), np.abs(self.auc - target), np.nan)))


@cache
def documents(tier: str, dataset: str) -> tuple[Corpus, Settings, Arrays]:
    """The documents of a data set, with its budget and as arrays; each is drawn or read once.

    Raises what `data.load_study` raises.
    """
    corpus, settings = data.load_study(tier, [dataset])[dataset], budget(tier, dataset)
    return corpus, settings, prepare(corpus, settings)


@cache
def train_one(tier: str, dataset: str, system: str, seed: int = 0, device: str = "cpu") -> Demo:
    """Train a system on a data set, once; the figures are those of the recorded job of that seed.

    Raises StopIteration for a system that is not trained there, and what `documents` raises.
    """
    corpus, settings, arrays = documents(tier, dataset)
    chosen = next(s for s in trained_systems(tier, dataset) if s.system == system)
    seed_everything(seed)  # as `train` does, so that this is where it starts
    untrained = new_model(arrays, settings).eval()
    with torch.no_grad():
        start = dev_evaluation(untrained, arrays, chosen, settings, "cpu")()
    job = Job(PAPER, tier, dataset, asdict(chosen), seed, asdict(settings))
    model, history = train(job, arrays, Run(device))
    before = cosine_matrices(untrained, arrays, "test", "cpu")
    after = cosine_matrices(model, arrays, "test", device)
    return Demo(corpus, arrays, settings, untrained, model, [start, *history], before, after)


# --- The record ------------------------------------------------------------------------------


def stages(tier: str, data: Mapping[str, Arrays], seeds: Sequence[int]) -> list[Stage]:
    """All that evidence needs; a step's time is measured last, one job after another.

    A baseline or upper bound is scored where there are the data for it. TK is left out where it is
    the same as DC.
    """
    settings = {dataset: asdict(budget(tier, dataset)) for dataset in data}
    labelled = [dataset for dataset in data if dataset != UNLABELLED]
    scored = [
        Job(PAPER, tier, dataset, row, seed)
        for dataset, arrays in data.items()
        if arrays.splits["test"].links is not None
        for row in (*BASELINES, *UPPER_BOUNDS)
        if not (row["baseline"] == "detection" and arrays.label_scores is None)
        and not (row["baseline"] == "recogniser" and arrays.truth is None)
        for seed in (seeds if row["baseline"] == "random" else [NO_SEED])
    ]
    trained = [
        Job(PAPER, tier, dataset, asdict(system), seed, settings[dataset])
        for seed in seeds
        for dataset, arrays in data.items()
        for system in trained_systems(tier, dataset, arrays.square)
    ]
    described, timed = (
        [Job(PAPER, tier, d, {"system": row}, NO_SEED, how.get(d, {})) for d in labelled]
        for row, how in ((DOCUMENTS, {}), (STEP_TIME, settings))
    )
    return [
        Stage(baselines.score, scored),
        Stage(baselines.describe_documents, described),
        Stage(train_and_score, trained),
        Stage(time_steps, timed, parallel=False),
    ]


def load_arrays(study: Mapping[str, Corpus], tier: str) -> dict[str, Arrays]:
    """All corpora of a study as arrays, each prepared as its budget says."""
    return {kind: prepare(corpus, budget(tier, kind)) for kind, corpus in study.items()}
