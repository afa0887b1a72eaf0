"""One retriever: its training, plainly in stage A and revised in stage B, its weak set, its jobs.

Stage A trains a retriever plainly and stops early, anew for every seed. Stage B goes on from there
in one of the ways that are compared (`systems.Variant`).
"""

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from mmlib.core.engine import handed_over
from mmlib.core.fit import seed_everything
from mmlib.core.jobs import Answer, History, Job, Run
from mmlib.core.ranking import chance_among_first, metrics, ranks_of_scores
from mmlib.features.encoders import DualEncoder
from mmlib.papers.entailment.data.arrays import Arrays, Split
from mmlib.papers.entailment.method.calibration import baseline_margin
from mmlib.papers.entailment.method.metrics import measured, rarity
from mmlib.papers.entailment.method.retrievers import build
from mmlib.papers.entailment.method.revision import Phase, Revision, Weak, candidates, train
from mmlib.papers.entailment.run import judge
from mmlib.papers.entailment.run.systems import MINING, Budget, Family, Variant, name_of

DRAWN = ("to_image", "to_text", "log_scale", "matched")  # what stage A draws anew
TOP = 30  # candidates of each image
MANY = 5000  # images whose similarities with all captions are in memory at once
GRADED = 100  # test images whose best texts the judge looks at where the truth is unknown
SEVERAL = 2  # captions of each image on either end of the density dial


def _train_on(
    arrays: Arrays, model: Any, split: Split, phase: Phase, seed: int, run: Run, revision: Revision
) -> tuple[Any, History]:  # fmt: skip
    dev = arrays.splits["val"].tensors(arrays.images, run.device)

    def dev_figures() -> dict[str, float]:
        # dev_RSUM by the two encoders, also of a family that fuses; dev_loss, which is 600 less it.
        scores, _ = DualEncoder.rank(model, *dev)
        rsum = metrics(ranks_of_scores(scores, arrays.splits["val"].image_of))["rsum"]
        return {"dev_loss": 600 - rsum, "dev_RSUM": rsum}

    images = partial(arrays.with_noise, seed)
    model.to(run.device)
    return model, train(model, split, phase, seed, images, revision, dev_figures, run)


def stage_a(job: Job, arrays: Arrays, run: Run = Run()) -> tuple[Any, History]:
    """Stage A of the family, captions and seed of a job: the retriever and its history.

    Encoders are the frozen retriever's, trained on other images; what maps them into the shared
    space, and ALBEF-like's matching head, is drawn by the seed.
    """
    variant, plan = Variant(**job.system), Budget.of(job.settings).retrieval
    split = some_captions(arrays.splits["train"], variant.captions)
    seed_everything(job.seed, 1)  # not as the frozen retriever itself was drawn
    model = build(variant.family, plan, arrays.images, len(arrays.words))
    encoders = {n: v for n, v in arrays.retriever.items() if not n.startswith(DRAWN)}
    model.load_state_dict(encoders, strict=False)
    phase = plan.stage_a[variant.family]
    return _train_on(arrays, model, split, phase, job.seed, run, Revision())


def started(job: Job, arrays: Arrays, run: Run = Run()) -> dict[str, Tensor]:
    """Weights after stage A: trained now, or read where jobs of such a device left them.

    VSE-like starts where CLIP-like does.
    """
    variant = Variant(**job.system)
    family: Family = "align" if variant.family == "align" else "dual"
    ending = "" if variant.captions == "all" else f", {variant.captions} captions"
    start = Variant(name_of(family, "start") + ending, family, "start", captions=variant.captions)
    return judge.weights_of(stage_a, replace(job, system=asdict(start)), arrays, run)


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


def stage_b(job: Job, arrays: Arrays, run: Run = Run()) -> tuple[Any, History]:
    """Stage B: a retriever of a variant, revised with its pairs, and its history."""
    variant, plan = Variant(**job.system), Budget.of(job.settings).retrieval
    split = some_captions(arrays.splits["train"], variant.captions)
    model = build(variant.family, plan, arrays.images, len(arrays.words))
    model.load_state_dict(started(job, arrays, run))
    use, pairs = variant.use, None
    if use != "none":
        pairs = weak_set(variant.pairs, job, arrays, split, run) or None
    revision = Revision(
        weak=pairs if use in ("weak", "both") else None,
        golden=Weak.golden(split) if variant.golden else None,
        excluded=pairs if use in ("exclusion", "both") else None,
        ratio=variant.ratio or plan.ratio, state=variant.state,
    )  # fmt: skip
    seed_everything(job.seed)
    phase = plan.stage_b[variant.family]
    return _train_on(arrays, model, split, phase, job.seed, run, revision)


# --- Weak sets -----------------------------------------------------------------------------------


def proposed(arrays: Arrays) -> np.ndarray:
    """(n, 2) the `TOP` foreign captions of each training image by the frozen retriever.

    Judges are calibrated on what it proposes, and the paper's annotators saw what a finished
    retriever proposes, too.
    """
    split, pairs = arrays.splits["train"], []
    for first in range(0, len(split), MANY):
        similarity = arrays.frozen.similarities(split.rows[first : first + MANY], split.texts)
        some = candidates(similarity, split.image_of - first, TOP)
        pairs.append(some + np.array([first, 0]))
    return np.concatenate(pairs)


def miner_of(job: Job, arrays: Arrays, run: Run = Run()) -> Callable[[str, np.ndarray], np.ndarray]:
    """The judge of a job's seed that mines: `judge.miner`."""
    return judge.miner(replace(job, system=job.settings["miner"]), arrays, run)


def mined(job: Job, arrays: Arrays, run: Run = Run()) -> tuple[np.ndarray, np.ndarray]:
    """Candidates (n, 2) of the training images and their margins (n,) by the seed's judge."""

    def make() -> dict[str, Tensor]:
        pairs = proposed(arrays)
        margin = miner_of(job, arrays, run)("train", pairs)
        return {"pairs": torch.from_numpy(pairs), "margin": torch.from_numpy(margin)}

    mining = replace(job, system={"system": MINING})
    tensors = handed_over(mined, mining, arrays, run, make)
    return tensors["pairs"].numpy(), tensors["margin"].numpy()


def mined_again(job: Job, arrays: Arrays, run: Run = Run()) -> tuple[np.ndarray, np.ndarray]:
    """As `mined`, of what the job's retriever proposes once the miner's pairs have improved it."""
    family, split = Variant(**job.system).family, arrays.splits["train"]
    first = Variant(name_of(family, "both", "miner"), family, "both", "miner", scored_by_judge=True)
    before = replace(job, system=asdict(first))
    model = build(family, Budget.of(job.settings).retrieval, arrays.images, len(arrays.words))
    model.load_state_dict(judge.weights_of(stage_b, before, arrays, run))
    by_image, _ = model.rank(*split.tensors(arrays.images, run.device))
    pairs = candidates(by_image, split.image_of, TOP)
    return pairs, miner_of(job, arrays, run)("train", pairs)


def weak_set(which: str, job: Job, arrays: Arrays, split: Split, run: Run = Run()) -> Weak:
    """Pairs of training images and captions that are taken for entailed.

    "miner": candidates that the judge calls entailed; "miner, again": those that the retriever of
    this training proposes. "candidates": of the true ones among them and of false ones as many as
    the variant says. "all": all true foreign pairs. "near misses": as many false candidates as the
    miner found.
    "random": as many pairs as the miner found, of the same images with other images' captions.
    Raises ValueError for another name.
    """
    fits, variant = split.fits, Variant(**job.system)
    if which == "all" and fits is not None:
        return Weak.true(split)
    if which == "candidates" and fits is not None:
        pairs, rng = proposed(arrays), np.random.default_rng([job.seed, 24])
        is_true = fits[pairs[:, 0], pairs[:, 1]]
        true, false = np.flatnonzero(is_true), np.flatnonzero(~is_true)
        found = rng.permutation(true)[: round(variant.recall * len(true))]
        wrong = round(len(found) * (1 / variant.precision - 1))
        return Weak.of(pairs[np.sort(np.append(found, rng.permutation(false)[:wrong]))])
    again = which == "miner, again"
    pairs, margin = (mined_again if again else mined)(job, arrays, run)
    entailed = Weak.of(pairs[margin >= 0])
    if which == "miner" or again:
        return entailed
    if which == "random":
        rng = np.random.default_rng(job.seed)
        captions = rng.integers(len(split.image_of), size=len(entailed))
        while (golden := split.image_of[captions] == entailed.image).any():
            captions[golden] = rng.integers(len(split.image_of), size=int(golden.sum()))
        return Weak(entailed.image, captions)
    if which != "near misses" or fits is None:
        raise ValueError(f"no pairs {which!r} here")
    false = pairs[~fits[pairs[:, 0], pairs[:, 1]]]
    order = np.random.default_rng([job.seed, 24]).permutation(len(false))
    return Weak.of(false[np.sort(order[: len(entailed)])])


# --- Jobs ----------------------------------------------------------------------------------------


def train_and_measure(job: Job, arrays: Arrays, run: Run = Run()) -> Answer:
    """Stage A or B of one retriever, and what it finds on test: see `metrics.measured`.

    Where the judge is asked, also E@10 and E@30 by it: of all images where the truth is known, to
    be held to it, else of the first `GRADED`, NaN for others. Own captions count without asking.
    """
    variant = Variant(**job.system)
    stage = stage_a if variant.use == "start" else stage_b
    model, history = stage(job, arrays, run)
    if variant.use == "start":
        handed_over(stage_a, job, arrays, run, model.state_dict)
    test = arrays.splits["test"]
    by_image, by_text = model.rank(*test.tensors(arrays.images, run.device))
    values = measured(by_image, by_text, test, arrays.people)
    if variant.scored_by_judge:
        few = len(test) if test.fits is not None else min(GRADED, len(test))
        best = np.argsort(-by_image, axis=1, kind="stable")[:few, :TOP]
        right = test.image_of[best] == np.arange(few)[:, None]
        image, position = np.nonzero(~right)
        pairs = np.column_stack([image, best[image, position]])
        right[image, position] = miner_of(job, arrays, run)("test", pairs) >= 0
        for k in (10, TOP):
            values[f"E@{k}, judge"] = np.full(len(test), np.nan)
            values[f"E@{k}, judge"][:few] = np.round(100 * right[:, :k].mean(axis=1), 2)
    return Answer({"test": values}, history)


def mine(job: Job, arrays: Arrays, run: Run = Run()) -> Answer:
    """Mine the training images with the seed's judge.

    Values by training image: "candidates", "mined" (called entailed); where the truth is known,
    "true" foreign captions at all, "candidates, true", "mined, true", and, of as many candidates as
    were mined but the best ones by a baseline, "overlap, true" and so on.
    """
    split, (pairs, margin) = arrays.splits["train"], mined(job, arrays, run)
    n, image, given = len(split), pairs[:, 0], arrays.pairs("train", pairs).given
    chosen = {"candidates": np.ones(len(pairs)), "mined": (margin >= 0).astype(float)}
    values = {name: np.bincount(image, share, n) for name, share in chosen.items()}
    if split.fits is not None:
        truth = split.fits[pairs[:, 0], pairs[:, 1]]
        baselines = {"overlap": "overlap", "cosine": "cosine, best", "inputs": "regression"}
        for name, baseline in baselines.items():
            rivals = baseline_margin(arrays, baseline, given)
            chosen[name] = chance_among_first(rivals, int((margin >= 0).sum()))
        for name, share in chosen.items():
            values[f"{name}, true"] = np.bincount(image, share * truth, n)
        values["true"] = split.fits.sum(axis=1) - np.bincount(split.image_of, minlength=n)
    return Answer({"mined": {name: column.astype(float) for name, column in values.items()}})


def rank_baseline(job: Job, arrays: Arrays, run: Run = Run()) -> Answer:
    """Rank the test set without training; values as of `metrics.measured`.

    baseline: "random"; "shortest", the shortest captions for every image; "frozen", the retriever
    that judges start from; "truth", an oracle that puts true texts first, rare ones ahead. Raises
    ValueError for another one.
    """
    name, split = job.system["baseline"], arrays.splits["test"]
    rng, size = np.random.default_rng([7, max(job.seed, 0)]), (len(split), len(split.texts))
    scores = rng.random(size, dtype=np.float32)
    if name == "shortest":
        scores = np.tile(-split.lengths.astype(np.float32), (len(split), 1))
    elif name == "frozen":
        scores = arrays.frozen.similarities(split.rows, split.texts)
    elif name == "truth" and split.fits is not None:
        scores = split.fits * (1 + rarity(split.fits)) + 1e-3 * scores
    elif name != "random":
        raise ValueError(f"no baseline {name!r} here")
    return Answer({"test": measured(scores, scores, split, arrays.people)})
