"""Retrievers trained with and without entailed pairs: the work of one job.

Stage A trains a retriever plainly and stops early, anew for every seed. Stage B goes on from there
in one of the ways that are compared. What is measured is one value a test image.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from mmlib.core.fit import seed_everything, warm_up_cosine
from mmlib.core.jobs import Answer, Job
from mmlib.core.ranking import KS, average_precision, metrics, ranks_of_scores
from mmlib.features.encoders import DualEncoder, Shape, Sizes
from mmlib.features.retrievers import AlignFuse, HardestTriplet
from mmlib.papers.entailment.arrays import Arrays, People, Split
from mmlib.papers.entailment.judging import Miner, kept, known_margin
from mmlib.papers.entailment.metrics import rarity
from mmlib.papers.entailment.revision import (
    Allowed,
    State,
    TwoRates,
    Weak,
    candidates,
    extra_batch,
)

FRESH = ("to_image", "to_text", "log_scale", "matched")  # what stage A draws anew
TOP = 30  # candidates of each image, and captions of each that are looked at
DECAY = 0.02  # AdamW's, as in the paper
WORDS = 40  # of a caption, at most
WARM = 10  # one of so many steps, in which the learning rate rises before it falls by a cosine
JUDGED = 100  # test images whose best texts the judge looks at
RARE = 0.02  # a caption is rare that is true of at most this share of the training images
SEVERAL = 2  # captions of each image on either end of the density dial
Family = Literal["dual", "triplet", "align"]
Use = Literal["start", "none", "exclusion", "weak", "both"]


@dataclass(frozen=True)
class Phase:
    """One training. captions: of each image that an epoch uses; 0 for all."""

    epochs: int
    batch: int
    rate: float
    captions: int = 0


@dataclass(frozen=True)
class Plan:
    """What retrievers are like and how they are trained.

    transformers: sizes of all. space: width of the shared space. top_texts, top_images: of each
    image and each text that ALBEF-like re-ranks. first: stage A of "dual" and of "align";
    tuned: stage B of each family. ratio: λ.
    """

    transformers: Shape
    first: Mapping[str, Phase]
    tuned: Mapping[str, Phase]
    space: int = 64
    top_texts: int = TOP
    top_images: int = 5
    ratio: float = 0.1


@dataclass(frozen=True)
class Retrieval:
    """A rung: how a retriever of a family goes on after stage A.

    use: "start", not at all; "none"; "exclusion" of pairs from the negatives of regular batches;
    "weak", as positives of extra batches at λη; "both", the paper's. pairs: whose, see `weak_set`.
    golden: whether golden pairs fill the extra batches, wholly where there are no weak ones, for
    equal steps; else weak ones do, or there are no extra batches.
    ratio: λ, 0 for the plan's; state: of the optimiser. captions: of each image "all", or two,
    "general" or "rare". judged: whether the judge looks at what is found.
    """

    system: str
    family: Family
    use: Use = "none"
    pairs: str = ""
    golden: bool = True
    ratio: float = 0.0
    state: State = "shared"
    captions: str = "all"
    judged: bool = False


def plan_of(job: Job) -> Plan:
    """The plan in a job's settings."""
    own = dict(job.settings["retrieval"])
    phases = {s: {f: Phase(**one) for f, one in own[s].items()} for s in ("first", "tuned")}
    return Plan(**{**own, "transformers": Shape(**own["transformers"]), **phases})


# --- Training ------------------------------------------------------------------------------------


def build(family: str, plan: Plan, images: np.ndarray, vocabulary: int) -> Any:
    """A retriever of a family with fresh weights. images: the image table."""
    _, regions, width = images.shape
    sizes = Sizes(vocabulary, width, regions, words=WORDS, space=plan.space)
    if family == "align":
        return AlignFuse(sizes, plan.transformers, (plan.top_texts, plan.top_images))
    if family == "triplet":
        return HardestTriplet(sizes, plan.transformers)
    return DualEncoder(sizes, plan.transformers, alone=True)


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
    table: np.ndarray, split: Split, images: np.ndarray, captions: np.ndarray, known: Allowed,
    device: str = "cpu",
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """What `Retriever.loss` takes, of pairs of images and captions."""
    lengths = split.lengths[captions]
    parts = (
        table[split.rows[images]], split.ids[captions, : lengths.max()], lengths,
        known.block(images, captions),
    )  # fmt: skip
    return tuple(torch.from_numpy(part).to(device) for part in parts)  # type: ignore[return-value]


def adamw(parameters: Any, rate: float) -> torch.optim.Optimizer:
    """The optimiser of both kinds of batches."""
    return torch.optim.AdamW(parameters, lr=rate, weight_decay=DECAY, fused=True)


def train(
    model: Any, table: np.ndarray, split: Split, phase: Phase, seed: int, *,
    looks: Callable[[int], np.ndarray] | None = None, dev: Split | None = None,
    weak: Weak | None = None, golden: Weak | None = None, excluded: Weak | None = None,
    ratio: float = 0.1,
    state: State = "shared", device: str = "cpu",
    after_epoch: Callable[[list[dict[str, float]]], object] = lambda history: None,
) -> list[dict[str, float]]:  # fmt: skip
    """Train a retriever; the same seed sees the same golden batches, whatever the weak set.

    table: of images; looks: epoch -> the table as training sees it then. dev: is looked at, and
    chooses nothing. weak, golden: pairs of the extra batches (`extra_batch`), at `ratio` times the
    rate. excluded: pairs that are no negatives in any batch; nor are those of `weak` in extra ones.

    Returns one dict an epoch: train_loss, weak_loss, and with dev dev_RSUM by the encoders, and
    dev_loss, which is 600 less that. Raises FloatingPointError when a loss is no longer a number.
    """
    rates = TwoRates(list(model.parameters()), adamw, phase.rate, ratio, state)
    regular, extra = Allowed(split.image_of, excluded), Allowed(split.image_of, weak)
    if excluded is not None and weak is not None:
        extra = Allowed(split.image_of, _joined(excluded, weak))
    steps = sum(1 for _ in golden_batches(split.image_of, phase, np.random.default_rng(0)))
    total, history = phase.epochs * steps, list[dict[str, float]]()
    for epoch in range(phase.epochs):
        rng, order = (np.random.default_rng([seed, epoch, k]) for k in range(2))
        seed_everything(seed, epoch)
        if isinstance(model, AlignFuse):
            model.generator.manual_seed(int(rng.integers(2**31)))
        model.train()
        images_now = looks(epoch) if looks else table
        losses: dict[str, list[Tensor]] = {"train_loss": [], "weak_loss": []}
        for step, captions in enumerate(golden_batches(split.image_of, phase, order)):
            share = warm_up_cosine(epoch * steps + step, total, total // WARM)
            pairs = [("train_loss", split.image_of[captions], captions, regular)]
            if weak is not None or golden is not None:
                own, more = split.image_of[captions], weak or NO_PAIRS
                pairs.append(
                    ("weak_loss", *extra_batch(own, more, phase.batch, rng, golden), extra)
                )
            for name, images, texts, known in pairs:
                loss = model.loss(*make_batch(images_now, split, images, texts, known, device))
                rates.step(loss, name == "weak_loss", share)
                losses[name].append(loss.detach())  # read once an epoch, not a step
        figures = {k: float(torch.stack(v).mean()) for k, v in losses.items() if v}
        if not all(map(math.isfinite, figures.values())):
            raise FloatingPointError(f"epoch {epoch + 1}: not a number among {figures}")
        if dev is not None:
            rsum = dev_rsum(model, table, dev, device)
            figures |= {"dev_loss": 600 - rsum, "dev_RSUM": rsum}
        history.append(figures)
        after_epoch(history)
    model.eval()
    return history


NO_PAIRS = Weak(np.zeros(0, dtype=int), np.zeros(0, dtype=int))


def _joined(one: Weak, other: Weak) -> Weak:
    parts = ([one.image, other.image], [one.caption, other.caption])
    return Weak(*map(np.concatenate, parts))


@torch.no_grad()
def dev_rsum(model: DualEncoder, table: np.ndarray, dev: Split, device: str = "cpu") -> float:
    """RSUM on dev by the two encoders, also of a family that fuses."""
    scores, _ = DualEncoder.rank(model, *dev.tensors(table, device))
    return metrics(ranks_of_scores(scores, dev.image_of))["rsum"]


# --- Stage A -------------------------------------------------------------------------------------


def begin(
    job: Job, arrays: Arrays, device: str = "cpu"
) -> tuple[dict[str, Tensor], list[dict[str, float]]]:
    """Stage A of the family, captions and seed of a job: weights and history.

    Encoders are the frozen retriever's, trained on other images; what maps them into the shared
    space, and ALBEF-like's matching head, is drawn by the seed. VSE-like starts where CLIP-like
    does.
    """
    one, plan = Retrieval(**job.system), plan_of(job)
    split = some_captions(arrays.splits["train"], one.captions)
    seed_everything(job.seed, 1)  # not as the frozen retriever itself was drawn
    family = "align" if one.family == "align" else "dual"
    model = build(family, plan, arrays.images, len(arrays.words))
    known = {n: v for n, v in arrays.retriever.items() if not n.startswith(FRESH)}
    model.load_state_dict(known, strict=False)
    history = train(
        model.to(device), arrays.images, split, plan.first[family], job.seed,
        looks=partial(arrays.looked_at, job.seed), dev=arrays.splits["val"], device=device,
    )  # fmt: skip
    return model.state_dict(), history


def start_name(family: str, captions: str = "all") -> str:
    """What stage A of a family is called."""
    return f"{NAMES[family]}, start" + ("" if captions == "all" else f", {captions} captions")


NAMES = {"dual": "CLIP-like", "triplet": "VSE-like", "align": "ALBEF-like"}


def start_job(job: Job) -> Job:
    """The job of stage A from which a job's retriever goes on."""
    one = Retrieval(**job.system)
    family: Family = "align" if one.family == "align" else "dual"
    own = Retrieval(start_name(family, one.captions), family, "start", captions=one.captions)
    return replace(job, system=asdict(own))


def started(job: Job, arrays: Arrays, device: str = "cpu") -> dict[str, Tensor]:
    """Weights after stage A, as kept, or trained now."""
    first = start_job(job)
    return kept(train_and_measure, first, arrays, lambda: begin(first, arrays, device)[0])


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
    kept = np.sort(table.groupby("image").head(SEVERAL).index)
    return Split(
        split.rows, split.ids[kept], split.lengths[kept], tuple(split.texts[i] for i in kept),
        split.image_of[kept], split.fits[:, kept],
    )  # fmt: skip


def proposed(arrays: Arrays) -> np.ndarray:
    """(n, 2) the `TOP` foreign captions of each training image by the frozen retriever.

    Judges are calibrated on what it proposes, and the paper's annotators saw what a finished
    retriever proposes, too.
    """
    train, frozen = arrays.splits["train"], arrays.frozen
    told = frozen.spoken[[frozen.row[text] for text in train.texts]]
    return candidates(frozen.seen[train.rows] @ told.T, train.image_of, TOP)


def mined(job: Job, arrays: Arrays, device: str = "cpu") -> tuple[np.ndarray, np.ndarray]:
    """Candidates (n, 2) of the training images and their margins (n,) by the seed's judge."""
    judge = replace(job, system=job.settings["miner"])

    def make() -> dict[str, Tensor]:
        pairs = proposed(arrays)
        margin = Miner.of(judge, arrays, device).margin("train", pairs)
        return {"pairs": torch.from_numpy(pairs), "margin": torch.from_numpy(margin)}

    found = kept(mine, judge, arrays, make)
    return found["pairs"].numpy(), found["margin"].numpy()


def weak_set(which: str, job: Job, arrays: Arrays, split: Split, device: str = "cpu") -> Weak:
    """Pairs of training images and captions that are taken for entailed.

    "miner": candidates that the judge calls entailed. "candidates": the true ones among them.
    "all": all true foreign pairs; "rare": those of rare captions. "near misses": as many false
    candidates as the miner found. "random": as many pairs as the miner found, of the same images.
    Raises ValueError for another name.
    """
    own, fits = np.arange(len(split))[:, None] == split.image_of, split.fits
    if which in ("all", "rare") and fits is not None:
        chosen = fits & ~own & ((fits.mean(axis=0) <= RARE) | (which == "all"))
        return _weak(np.argwhere(chosen))
    pairs, margin = mined(job, arrays, device)
    yes = pairs[margin >= 0]
    if which in ("miner", "random"):
        weak = _weak(yes)
        return weak if which == "miner" else random_weak(weak, split.image_of, job.seed)
    if which in ("candidates", "near misses") and fits is not None:
        truth = fits[pairs[:, 0], pairs[:, 1]]
        true, false = pairs[truth], pairs[~truth]
        drawn = np.random.default_rng([job.seed, 24]).permutation(len(false))[: len(yes)]
        return _weak(true if which == "candidates" else false[np.sort(drawn)])
    raise ValueError(f"no pairs {which!r} here")


def _weak(pairs: np.ndarray) -> Weak:
    return Weak(pairs[:, 0], pairs[:, 1])


def random_weak(weak: Weak, image_of: np.ndarray, seed: int = 0) -> Weak:
    """As many pairs of the same images with captions drawn at random, other images' own."""
    rng = np.random.default_rng(seed)
    captions = rng.integers(len(image_of), size=len(weak))
    while (own := image_of[captions] == weak.image).any():
        captions[own] = rng.integers(len(image_of), size=int(own.sum()))
    return Weak(weak.image, captions)


def sets_of(
    one: Retrieval, job: Job, arrays: Arrays, split: Split, device: str = "cpu"
) -> tuple[Weak | None, Weak | None, Weak | None]:
    """(weak and golden pairs of the extra batches, pairs kept out of the negatives) of a rung."""
    own = np.column_stack([split.image_of, np.arange(len(split.image_of))])
    golden = _weak(own) if one.golden else None
    found = weak_set(one.pairs, job, arrays, split, device) if one.use != "none" else NO_PAIRS
    pairs = found if len(found) else None
    return (
        pairs if one.use in ("weak", "both") else None,
        golden,
        pairs if one.use in ("exclusion", "both") else None,
    )


def measured(
    by_image: np.ndarray, by_text: np.ndarray, split: Split, people: People | None = None
) -> dict[str, np.ndarray]:
    """One value a test image, in percent; the mean over images is the figure.

    by_image, by_text (n, c): scores to rank texts by image and images by text. "RSUM": the sum of
    R@1, R@5 and R@10 both ways over golden pairs; "hits" codes them (`recalls`). Where the truth is
    known: "mAP" over all true texts, "E@10" and "E@30" (eq. 13, by logic), "E@10, rarity", where a
    text counts by `rarity`. With judgments, NaN for images without a yes: "mAP, people" and
    "P@1, people" among judged texts.
    """
    n, c = by_image.shape
    image_ranks = ranks_of_scores(by_image, split.image_of).image_ranks
    caption_ranks = ranks_of_scores(by_text, split.image_of).caption_ranks
    total, code = np.zeros(n), np.zeros(n)
    for digit, k in enumerate(KS):
        own, captions = image_ranks <= k, np.bincount(split.image_of, caption_ranks <= k, n)
        total += own + captions * n / c
        code += own + DIGITS[digit] * captions
    found = {"RSUM": 100 * total, "hits": code}
    if split.fits is not None:
        best = best_texts(by_image)
        hit = np.take_along_axis(split.fits, best, axis=1)
        rare = hit * rarity(split.fits)[best]
        found |= {f"E@{k}": 100 * hit[:, :k].mean(axis=1) for k in (10, TOP)}
        found["E@10, rarity"] = 100 * rare[:, :10].mean(axis=1)
        relevant = [np.flatnonzero(row).tolist() for row in split.fits]
        found["mAP"] = 100 * average_precision(by_image, relevant)
    if people is not None:
        found |= by_people(by_image[people.pairs[:, 0], people.pairs[:, 1]], people, n)
    return {name: np.round(own, 2) for name, own in found.items()}


DIGITS = (10.0, 1e3, 1e5)  # of "hits": captions that find the image at 1, 5 and 10


def recalls(hits: np.ndarray, captions: int = 5) -> dict[str, np.ndarray]:
    """TR@1, ..., IR@10 in percent, of each image, from "hits" of any shape.

    captions: of each image; IR counts the share of them that find it.
    """
    found = {f"TR@{k}": 100.0 * (hits % 10 >= len(KS) - i) for i, k in enumerate(KS)}
    for k, digit in zip(KS, DIGITS, strict=True):
        found[f"IR@{k}"] = 100 * (hits // digit % 100) / captions
    return found


def best_texts(by_image: np.ndarray, top: int = TOP) -> np.ndarray:
    """(n, top) each image's best texts, equal ones in order."""
    return np.argsort(-by_image, axis=1, kind="stable")[:, :top]


def by_people(scores: np.ndarray, people: People, images: int) -> dict[str, np.ndarray]:
    """Average precision and precision at 1 of each image's judged texts; NaN without a yes."""
    found = {name: np.full(images, np.nan) for name in ("mAP, people", "P@1, people")}
    order = np.lexsort((-scores, people.pairs[:, 0]))
    image, label = people.pairs[order, 0], people.labels[order]
    for own in np.split(np.arange(len(order)), np.flatnonzero(np.diff(image)) + 1):
        hit = label[own] == 1
        if hit.any():
            precision = np.cumsum(hit) / np.arange(1, len(hit) + 1)
            found["mAP, people"][image[own[0]]] = 100 * precision[hit].mean()
            found["P@1, people"][image[own[0]]] = 100.0 * hit[0]
    return found


def by_judge(best: np.ndarray, job: Job, arrays: Arrays, device: str) -> dict[str, np.ndarray]:
    """E@10 and E@30 as the seed's judge sees them, of the first `JUDGED` images; NaN for others."""
    split, few = arrays.splits["test"], min(JUDGED, len(best))
    own = split.image_of[best[:few]] == np.arange(few)[:, None]
    image, place = np.nonzero(~own)
    pairs = np.column_stack([image, best[image, place]])
    miner = Miner.of(replace(job, system=job.settings["miner"]), arrays, device)
    own[image, place] = miner.margin("test", pairs) >= 0
    found = {}
    for k in (10, TOP):
        found[f"E@{k}, judge"] = np.full(len(best), np.nan)
        found[f"E@{k}, judge"][:few] = np.round(100 * own[:, :k].mean(axis=1), 2)
    return found


# --- Jobs ----------------------------------------------------------------------------------------


def train_and_measure(
    job: Job, arrays: Arrays, device: str = "cpu", checkpoint: object = None
) -> Answer:
    """Stage A or B of one retriever, and what it finds on test: see `measured`, `by_judge`."""
    began, one, plan = time.process_time(), Retrieval(**job.system), plan_of(job)
    model = build(one.family, plan, arrays.images, len(arrays.words))
    if one.use == "start":
        weights, history = begin(job, arrays, device)
        kept(train_and_measure, start_job(job), arrays, lambda: weights)
        model.load_state_dict(weights)
    else:
        model, history = go_on(job, arrays, device)
    test = arrays.splits["test"]
    by_image, by_text = model.to(device).rank(*test.tensors(arrays.images, device))
    values = measured(by_image, by_text, test, arrays.people)
    if one.judged:
        values |= by_judge(best_texts(by_image), job, arrays, device)
    return Answer({"test": values}, history, time.process_time() - began)


def go_on(
    job: Job, arrays: Arrays, device: str = "cpu",
    after_epoch: Callable[[list[dict[str, float]]], object] = lambda history: None,
) -> tuple[Any, list[dict[str, float]]]:  # fmt: skip
    """Stage B: a retriever of a rung, and its history."""
    one, plan = Retrieval(**job.system), plan_of(job)
    split = some_captions(arrays.splits["train"], one.captions)
    model = build(one.family, plan, arrays.images, len(arrays.words))
    model.load_state_dict(started(job, arrays, device))
    weak, golden, excluded = sets_of(one, job, arrays, split, device)
    seed_everything(job.seed)
    history = train(
        model.to(device), arrays.images, split, plan.tuned[one.family], job.seed,
        looks=partial(arrays.looked_at, job.seed), dev=arrays.splits["val"], weak=weak,
        golden=golden, excluded=excluded, ratio=one.ratio or plan.ratio, state=one.state,
        device=device, after_epoch=after_epoch,
    )  # fmt: skip
    return model, history


def mine(job: Job, arrays: Arrays, device: str = "cpu", checkpoint: object = None) -> Answer:
    """Mine the training images with the seed's judge.

    Values by training image: "candidates", "mined" (called entailed); where the truth is known,
    "true" foreign captions at all, "candidates, true", "mined, true", and, of as many candidates as
    were mined but the best ones by a floor, "overlap, true" and so on.
    """
    began, split = time.process_time(), arrays.splits["train"]
    pairs, margin = mined(job, arrays, device)
    given = arrays.pairs("train", pairs).given
    chosen = {"candidates": np.ones(len(pairs), bool), "mined": margin >= 0}
    floors = {"overlap": "overlap", "cosine": "cosine, best", "inputs": "regression"}
    for name, which in floors.items():
        best = np.argsort(-known_margin(arrays, which, given), kind="stable")
        chosen[name] = np.isin(np.arange(len(pairs)), best[: int((margin >= 0).sum())])
    n = len(split)
    values = {k: np.bincount(pairs[chosen[k], 0], minlength=n) for k in ("candidates", "mined")}
    if split.fits is not None:
        truth = split.fits[pairs[:, 0], pairs[:, 1]]
        for name, some in chosen.items():
            values[f"{name}, true"] = np.bincount(pairs[some & truth, 0], minlength=n)
        values["true"] = split.fits.sum(axis=1) - np.bincount(split.image_of, minlength=n)
    found = {name: own.astype(float) for name, own in values.items()}
    return Answer({"mined": found}, seconds=time.process_time() - began)


def rank_floor(job: Job, arrays: Arrays, device: str = "cpu", checkpoint: object = None) -> Answer:
    """Rank the test set without training; values as of `measured`.

    floor: "random"; "shortest", the shortest captions for every image; "frozen", the retriever that
    judges start from; "truth", an oracle that puts true texts first, rare ones ahead.
    """
    began, which, split = time.process_time(), job.system["floor"], arrays.splits["test"]
    noise = np.random.default_rng([7, max(job.seed, 0)]).random(
        (len(split), len(split.texts)), dtype=np.float32
    )
    scores = noise
    if which == "shortest":
        scores = np.tile(-split.lengths.astype(np.float32), (len(split), 1))
    elif which == "frozen":
        known = [arrays.frozen.row[text] for text in split.texts]
        scores = arrays.frozen.seen[split.rows] @ arrays.frozen.spoken[known].T
    elif which == "truth" and split.fits is not None:
        scores = split.fits * (1 + rarity(split.fits)) + 1e-3 * noise
    elif which != "random":
        raise ValueError(f"no floor {which!r} here")
    values = measured(scores, scores, split, arrays.people)
    return Answer({"test": values}, seconds=time.process_time() - began)
