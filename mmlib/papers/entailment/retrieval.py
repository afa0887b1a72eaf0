"""One retriever: its training, plainly in stage A and revised in stage B, and its weak set.

Stage A trains a retriever plainly and stops early, anew for every seed. Stage B goes on from there
in one of the ways that are compared (`systems.Variant`).
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from mmlib.core.engine import handed_over
from mmlib.core.fit import fit, seed_everything, warm_up_cosine
from mmlib.core.jobs import History, Job, Run
from mmlib.core.ranking import metrics, ranks_of_scores
from mmlib.features.encoders import DualEncoder
from mmlib.papers.entailment import systems
from mmlib.papers.entailment.batches import Arrays, Split
from mmlib.papers.entailment.judge import Miner, weights_of
from mmlib.papers.entailment.retrievers import AlignFuse, build
from mmlib.papers.entailment.revision import (
    Allowed,
    RevisedStep,
    TwoRates,
    Weak,
    candidates,
    extra_batch,
)
from mmlib.papers.entailment.systems import Phase, RetrieverTraining, Variant, start_of

DRAWN = ("to_image", "to_text", "log_scale", "matched")  # what stage A draws anew
TOP = 30  # candidates of each image
DECAY = 0.02  # AdamW's, as in the paper
WARM_UP = 10  # one of so many steps, in which the learning rate rises before it falls by a cosine
RARE = 0.02  # a caption is rare that is true of at most this share of the training images
SEVERAL = 2  # captions of each image on either end of the density dial
adamw = partial(torch.optim.AdamW, weight_decay=DECAY, fused=True)  # of both kinds of batches
NO_PAIRS = Weak(np.zeros(0, dtype=int), np.zeros(0, dtype=int))


def plan_of(job: Job) -> RetrieverTraining:
    """The plan in a job's settings."""
    return RetrieverTraining.of(job.settings["retrieval"])


@dataclass(frozen=True)
class Revision:
    """What the extra batches of a training hold, and at which rate.

    weak, golden: pairs of the extra batches (`extra_batch`); without either there are none.
    excluded: pairs that are no negatives in regular batches, nor in extra ones with weak pairs,
    where those of `weak` are none either.
    ratio: λ. state: of the optimiser.
    """

    weak: Weak | None = None
    golden: Weak | None = None
    excluded: Weak | None = None
    ratio: float = 0.1
    state: systems.OptimizerState = "shared"


def golden_batches(
    image_of: np.ndarray, phase: Phase, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """One epoch of batches of caption rows, in random order; what does not fill one is left out."""
    rows = rng.permutation(len(image_of))
    if phase.captions:
        rows = pd.Series(rows).groupby(image_of[rows]).head(phase.captions).to_numpy()
    for step in range(len(rows) // phase.batch):
        yield rows[step * phase.batch : (step + 1) * phase.batch]


def make_batch(
    table: np.ndarray, split: Split, images: np.ndarray, captions: np.ndarray, allowed: Allowed,
    device: str = "cpu",
) -> tuple[Tensor, ...]:  # fmt: skip
    """What a retriever's `loss` takes, of pairs of images and captions."""
    lengths = split.lengths[captions]
    columns = (
        table[split.rows[images]], split.ids[captions, : lengths.max()], lengths,
        allowed.block(images, captions),
    )  # fmt: skip
    return tuple(torch.from_numpy(column).to(device) for column in columns)


def train(
    model: Any, split: Split, phase: Phase, seed: int, images: Callable[[int], np.ndarray],
    revision: Revision = Revision(), evaluate: Callable[[], dict[str, float]] = dict,
    run: Run = Run(),
) -> History:  # fmt: skip
    """Train a retriever; the same seed sees the same golden batches, whatever the weak set.

    images: epoch -> the image table as training sees it then. evaluate: figures of an epoch, which
    choose nothing.

    Returns one dict an epoch: train_loss, weak_loss, and what `evaluate` found. Raises
    FloatingPointError when a loss is no longer a number.
    """
    weak, golden = revision.weak, revision.golden
    rates = TwoRates(model.parameters(), adamw, phase.rate, revision.ratio, revision.state)
    regular = Allowed(split.image_of, revision.excluded)
    extra = Allowed(split.image_of, weak and _joined(weak, revision.excluded))
    steps = sum(1 for _ in golden_batches(split.image_of, phase, np.random.default_rng(0)))
    total = phase.epochs * steps

    def batches(epoch: int) -> Iterator[tuple]:
        rng, order = (np.random.default_rng([seed, epoch, k]) for k in range(2))
        if isinstance(model, AlignFuse):
            model.generator.manual_seed(int(rng.integers(2**31)))
        table = images(epoch)
        for captions in golden_batches(split.image_of, phase, order):
            shown = split.image_of[captions]
            first, second = make_batch(table, split, shown, captions, regular, run.device), None
            if weak is not None or golden is not None:
                pairs = extra_batch(shown, weak or NO_PAIRS, phase.batch, rng, golden)
                second = make_batch(table, split, *pairs, extra, run.device)
            yield first, second

    shape = partial(warm_up_cosine, steps=total, warm_up=total // WARM_UP)
    step = RevisedStep(lambda batch: model.loss(*batch), rates, shape)
    return fit(model, batches, step, evaluate, epochs=phase.epochs, seed=seed, keep="last", run=run)


def _joined(weak: Weak, others: Weak | None) -> Weak:
    if others is None:
        return weak
    columns = ([weak.image, others.image], [weak.caption, others.caption])
    return Weak(*map(np.concatenate, columns))


def dev_figures(
    model: DualEncoder, table: np.ndarray, dev: Split, device: str = "cpu"
) -> dict[str, float]:
    """dev_RSUM by the two encoders, also of a family that fuses; dev_loss, which is 600 less it."""
    scores, _ = DualEncoder.rank(model, *dev.tensors(table, device))
    rsum = metrics(ranks_of_scores(scores, dev.image_of))["rsum"]
    return {"dev_loss": 600 - rsum, "dev_RSUM": rsum}


def _train_on(
    arrays: Arrays, model: Any, split: Split, phase: Phase, seed: int, run: Run,
    revision: Revision = Revision(),
) -> History:  # fmt: skip
    return train(
        model.to(run.device), split, phase, seed, partial(arrays.with_noise, seed), revision,
        partial(dev_figures, model, arrays.images, arrays.splits["val"], run.device), run,
    )  # fmt: skip


def stage_a(job: Job, arrays: Arrays, run: Run = Run()) -> tuple[Any, History]:
    """Stage A of the family, captions and seed of a job: the retriever and its history.

    Encoders are the frozen retriever's, trained on other images; what maps them into the shared
    space, and ALBEF-like's matching head, is drawn by the seed. VSE-like starts where CLIP-like
    does.
    """
    variant, plan = Variant(**start_job(job).system), plan_of(job)
    split = some_captions(arrays.splits["train"], variant.captions)
    seed_everything(job.seed, 1)  # not as the frozen retriever itself was drawn
    model = build(variant.family, plan, arrays.images, len(arrays.words))
    encoders = {n: v for n, v in arrays.retriever.items() if not n.startswith(DRAWN)}
    model.load_state_dict(encoders, strict=False)
    history = _train_on(arrays, model, split, plan.stage_a[variant.family], job.seed, run)
    return model, history


def start_job(job: Job) -> Job:
    """The job of stage A from which a job's retriever goes on."""
    variant = Variant(**job.system)
    return replace(job, system=asdict(start_of(variant.family, variant.captions)))


def started(job: Job, arrays: Arrays, run: Run = Run()) -> dict[str, Tensor]:
    """Weights after stage A: trained now, or read where jobs of such a device left them."""
    return weights_of(stage_a, start_job(job), arrays, run)


def some_captions(split: Split, which: str) -> Split:
    """A split with all captions of each image, or `SEVERAL`: its most "general" ones, or "rare".

    General is what is true of many images of the split. Raises ValueError for another name, and
    where nobody knows what is true.
    """
    if which == "all":
        return split
    if which not in ("general", "rare") or split.fits is None:
        raise ValueError(f"captions {which!r}: all; or, where the truth is known, general or rare")
    table = pd.DataFrame({"image": split.image_of, "often": split.fits.sum(axis=0)})
    table = table.sort_values("often", ascending=which == "rare", kind="stable")
    chosen = np.sort(table.groupby("image").head(SEVERAL).index)
    texts = tuple(split.texts[i] for i in chosen)
    columns = {name: getattr(split, name)[chosen] for name in ("ids", "lengths", "image_of")}
    return replace(split, texts=texts, fits=split.fits[:, chosen], **columns)


# --- Weak sets -----------------------------------------------------------------------------------


def proposed(arrays: Arrays) -> np.ndarray:
    """(n, 2) the `TOP` foreign captions of each training image by the frozen retriever.

    Judges are calibrated on what it proposes, and the paper's annotators saw what a finished
    retriever proposes, too.
    """
    split = arrays.splits["train"]
    return candidates(arrays.frozen.similarities(split.rows, split.texts), split.image_of, TOP)


def miner_of(job: Job, arrays: Arrays, run: Run = Run()) -> Miner:
    """The judge of a job's seed that mines."""
    return Miner.of(replace(job, system=job.settings["miner"]), arrays, run)


def mined(job: Job, arrays: Arrays, run: Run = Run()) -> tuple[np.ndarray, np.ndarray]:
    """Candidates (n, 2) of the training images and their margins (n,) by the seed's judge."""

    def make() -> dict[str, Tensor]:
        pairs = proposed(arrays)
        margin = miner_of(job, arrays, run).margin("train", pairs)
        return {"pairs": torch.from_numpy(pairs), "margin": torch.from_numpy(margin)}

    mining = replace(job, system={"system": systems.MINING})
    tensors = handed_over(mined, mining, arrays, run, make)
    return tensors["pairs"].numpy(), tensors["margin"].numpy()


def weak_set(which: str, job: Job, arrays: Arrays, split: Split, run: Run = Run()) -> Weak:
    """Pairs of training images and captions that are taken for entailed.

    "miner": candidates that the judge calls entailed. "candidates": the true ones among them.
    "all": all true foreign pairs; "rare": those of rare captions. "near misses": as many false
    candidates as the miner found. "random": as many pairs as the miner found, of the same images.
    Raises ValueError for another name.
    """
    fits = split.fits
    if which in ("all", "rare") and fits is not None:
        foreign = np.arange(len(split))[:, None] != split.image_of
        return Weak.of(
            np.argwhere(fits & foreign & ((fits.mean(axis=0) <= RARE) | (which == "all")))
        )
    pairs, margin = mined(job, arrays, run)
    entailed = pairs[margin >= 0]
    if which in ("miner", "random"):
        weak = Weak.of(entailed)
        return weak if which == "miner" else random_weak(weak, split.image_of, job.seed)
    if which in ("candidates", "near misses") and fits is not None:
        truth = fits[pairs[:, 0], pairs[:, 1]]
        if which == "candidates":
            return Weak.of(pairs[truth])
        false = pairs[~truth]
        drawn = np.random.default_rng([job.seed, 24]).permutation(len(false))[: len(entailed)]
        return Weak.of(false[np.sort(drawn)])
    raise ValueError(f"no pairs {which!r} here")


def random_weak(weak: Weak, image_of: np.ndarray, seed: int = 0) -> Weak:
    """As many pairs of the same images with captions drawn at random, other images' own."""
    rng = np.random.default_rng(seed)
    captions = rng.integers(len(image_of), size=len(weak))
    while (golden := image_of[captions] == weak.image).any():
        captions[golden] = rng.integers(len(image_of), size=int(golden.sum()))
    return Weak(weak.image, captions)


def revision_of(
    variant: Variant, job: Job, arrays: Arrays, split: Split, run: Run = Run()
) -> Revision:  # fmt: skip
    """What a variant does with its pairs."""
    use, plan, pairs = variant.use, plan_of(job), None
    if use != "none":
        pairs = weak_set(variant.pairs, job, arrays, split, run) or None
    golden = Weak(split.image_of, np.arange(len(split.image_of))) if variant.golden else None
    return Revision(
        pairs if use in ("weak", "both") else None, golden,
        pairs if use in ("exclusion", "both") else None,
        variant.ratio or plan.ratio, variant.state,
    )  # fmt: skip


def stage_b(job: Job, arrays: Arrays, run: Run = Run()) -> tuple[Any, History]:
    """Stage B: a retriever of a variant, and its history."""
    variant, plan = Variant(**job.system), plan_of(job)
    split = some_captions(arrays.splits["train"], variant.captions)
    model = build(variant.family, plan, arrays.images, len(arrays.words))
    model.load_state_dict(started(job, arrays, run))
    revision = revision_of(variant, job, arrays, split, run)
    phase = plan.stage_b[variant.family]
    seed_everything(job.seed)
    return model, _train_on(arrays, model, split, phase, job.seed, run, revision)
