"""Notebook 02's second half: retrievers fine-tuned with and without the entailed pairs.

Everything starts from retrievers that were trained plainly before (stage A). What is compared is a
short fine-tuning from the same weights (stage B): plain, exclusion, weak positives, both, controls.
"""

import gzip
import hashlib
import json
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from mmlib import training
from mmlib.core.errors import DataError
from mmlib.core.intervals import Estimate, crossed_interval
from mmlib.core.paths import PACKAGE, write_atomic
from mmlib.core.ranking import average_precision, ranks_of_scores
from mmlib.core.records import CaptionedImages
from mmlib.core.tables import Result, beside, paper_values
from mmlib.data import judgments
from mmlib.data.judgments import Judged
from mmlib.entailment import Settings
from mmlib.entailment_batches import Words, padded
from mmlib.retrievers import AlignFuse, DualEncoder, SingleStream, Sizes, Top
from mmlib.revision import (
    Allowed,
    State,
    TwoRates,
    Weak,
    alternate,
    candidates,
    effective_ratio,
    mine,
)
from mmlib.training import seed_everything

SPLITS = ("train", "val", "test")
KS = (1, 5, 10)
FAMILIES: dict[str, Callable[..., DualEncoder | SingleStream]] = {
    "dual": partial(DualEncoder, alone=True),
    "align": AlignFuse,
    "single": SingleStream,
}
PRINTED = {"dual": "CLIP", "align": "ALBEF", "single": "UNITER"}
VARIANTS = ("plain", "exclusion", "weak", "both")
CONTROLS = ("extra golden", "random weak")
WORDS = 40  # of a caption, at most
DECAY = 0.02  # AdamW's, as in the paper
WARM = 0.1  # of the steps, in which the learning rate rises
RATIOS = (0.01, 0.03, 0.1, 0.3, 1.0)  # λ, as swept
PRECISIONS = (1.0, 0.75, 0.5, 0.25)  # of the weak set, as swept
TOP = 30  # candidates of each image, and captions of each that an answer keeps


# --- Budgets -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Phase:
    """One training. captions: of each image that an epoch uses; steps: of an epoch; 0 for all."""

    epochs: int
    batch: int
    rate: float
    captions: int = 0
    steps: int = 0


@dataclass(frozen=True)
class Budget:
    """What a tier's retrievers are like and how they are trained.

    settings: of all transformers. space: width of the shared space. top: texts of each image and
    images of each text that align and single re-rank. first, tuned: stage A and stage B of each
    family; "base" in stage A is a dual encoder out of which align and single grow, where that is
    not "dual" itself. ratio: λ.
    min_count: words seen less often in the training captions are unknown.
    """

    settings: Settings
    first: Mapping[str, Phase]
    tuned: Mapping[str, Phase]
    space: int = 64
    top: Top = (2 * TOP, 12)
    ratio: float = 0.1
    min_count: int = 1


_SMALL = Settings(
    width=64, heads=4, text_layers=1, image_layers=1, words_layers=1, cross_layers=1, dropout=0.0
)
_MIDDLE = replace(_SMALL, width=128)
BUDGETS = {
    "world": Budget(
        _SMALL,
        first={
            "base": Phase(12, 128, 2e-3),
            "dual": Phase(4, 128, 2e-3),
            "align": Phase(10, 64, 1e-3),
            "single": Phase(3, 12, 1e-3, 1),
        },
        tuned={
            "dual": Phase(1, 64, 5e-4),
            "align": Phase(1, 32, 3e-4, 2),
            "single": Phase(1, 8, 2e-4, 1, steps=80),
        },
    ),
    "flickr8k": Budget(
        _MIDDLE,
        first={
            "dual": Phase(8, 128, 1e-3),
            "align": Phase(3, 64, 5e-4),
            "single": Phase(2, 12, 1e-3, 1),
        },
        tuned={
            "dual": Phase(1, 128, 3e-4, steps=150),
            "align": Phase(1, 64, 2e-4, steps=150),
            "single": Phase(1, 12, 2e-4, steps=80),
        },
        space=128,
        top=(40, 6),
        min_count=3,
    ),
    "flickr8k quick": Budget(
        replace(_MIDDLE, width=64),
        first={
            "dual": Phase(3, 128, 1e-3, 2),
            "align": Phase(1, 64, 5e-4, 1),
            "single": Phase(1, 12, 1e-3, steps=200),
        },
        tuned={
            "dual": Phase(1, 128, 3e-4, steps=50),
            "align": Phase(1, 64, 2e-4, steps=50),
            "single": Phase(1, 12, 2e-4, steps=40),
        },
        top=(TOP, 4),
        min_count=3,
    ),
    "paper": Budget(
        replace(_SMALL, width=256, text_layers=2, image_layers=2, words_layers=2, dropout=0.1),
        first={
            "dual": Phase(10, 256, 5e-4),
            "align": Phase(5, 96, 2e-4),
            "single": Phase(3, 24, 2e-4),
        },
        tuned={
            "dual": Phase(1, 256, 2e-4),
            "align": Phase(1, 96, 1e-4),
            "single": Phase(1, 24, 1e-4),
        },
        space=256,
        top=(128, 128),
        min_count=5,
    ),
}


# --- Data ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Collection:
    """Captioned images in three splits.

    names: of all images, the rows of the image table. features (images, regions, width) float32,
    standardised by the training images. captions, premises: of each image its captions, and these
    as one text. rows: split -> rows of the image table. open_image: row -> RGB picture.
    fits: split -> (images, captions) bool, which captions are true of which images; the world only.
    judged: Flickr8k's crowd judgments of test pairs.

    Captions of a split have flat numbers: those of its first image, those of its second, ...
    """

    tier: str
    names: tuple[str, ...]
    features: np.ndarray
    captions: tuple[tuple[str, ...], ...]
    premises: tuple[str, ...]
    rows: Mapping[str, np.ndarray]
    open_image: Callable[[int], Any]
    fits: Mapping[str, np.ndarray]
    judged: Judged | None = None

    def texts(self, split: str) -> list[str]:
        """All captions of a split, by flat number."""
        return [text for row in self.rows[split] for text in self.captions[row]]

    def image_of(self, split: str) -> np.ndarray:
        """(captions,) each caption's image, counted within the split."""
        counts = [len(self.captions[row]) for row in self.rows[split]]
        return np.repeat(np.arange(len(counts)), counts)

    def split(self, name: str, words: Words) -> "Split":
        """A split as arrays."""
        ids, lengths = padded([words.ids(text)[:WORDS] for text in self.texts(name)])
        return Split(self.features[self.rows[name]], ids, lengths, self.image_of(name))

    def judged_pairs(self) -> np.ndarray:
        """(pairs, 2) test image and flat test caption of each judgment."""
        assert self.judged is not None
        image = {self.names[row]: i for i, row in enumerate(self.rows["test"])}
        image_of, texts = self.image_of("test"), self.texts("test")
        number = {
            (int(i), text): c for c, (i, text) in enumerate(zip(image_of, texts, strict=True))
        }
        return np.array(
            [
                (image[name], number[image[origin], text])
                for name, origin, text in zip(
                    self.judged.image, self.judged.origin, self.judged.hypothesis, strict=True
                )
            ]
        )


@dataclass(frozen=True, eq=False)
class Split:
    """Images (n, R, W), token ids (c, L) and lengths (c,) of captions, image_of (c,)."""

    images: np.ndarray
    ids: np.ndarray
    lengths: np.ndarray
    image_of: np.ndarray

    def tensors(self, device: str = "cpu") -> tuple[Tensor, Tensor, Tensor]:
        """Images, ids and lengths on a device."""
        parts = (self.images, self.ids, self.lengths)
        return tuple(torch.tensor(part, device=device) for part in parts)  # type: ignore[return-value]

    def fingerprint(self) -> str:
        """A hash of all of it."""
        digest = hashlib.sha256()
        for part in vars(self).values():
            digest.update(np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()[:16]


WORLD_IMAGES = {"train": 1200, "val": 100, "test": 300}
NOISE = 1.0  # of the world's image features, as the classifier sees them


def load(
    tier: str,
    seed: int = 0,
    workers: int = 0,
    image_noise: float = NOISE,
    sizes: Mapping[str, int] | None = None,
) -> Collection:
    """The collection of a tier.

    world: drawn here, its features made noisy (`world.hypotheses.noisy`). flickr8k: its
    photographs' features, with the crowd's judgments. paper: `<MMLIB_DATA>/f30k` or `coco` (see
    `mmlib.data.precomputed`). workers: that draw; 0: one a core. sizes: of the world's splits.
    """
    if tier == "world":
        return _world(sizes or WORLD_IMAGES, seed, workers or os.cpu_count() or 1, image_noise)
    if tier == "flickr8k":
        from mmlib.data import flickr8k

        parts = {split: flickr8k.load(split) for split in SPLITS}
        return replace(_collection(tier, parts), judged=judgments.load())
    if tier == "paper":
        from mmlib.data import precomputed

        folder = precomputed.find("f30k", "coco")
        names = {"train": "train", "val": "dev", "test": "test"}
        return _collection(tier, {s: precomputed.load(folder, n).images for s, n in names.items()})
    raise ValueError(f"no tier {tier!r}: use world, flickr8k or paper")


def _world(sizes: Mapping[str, int], seed: int, workers: int, noise: float) -> Collection:
    from mmlib import world
    from mmlib.world.hypotheses import false_negatives, noisy
    from mmlib.world.premises import merged

    images = {s: world.captioned_images(s, n, seed, workers=workers) for s, n in sizes.items()}
    parts = {
        split: replace(own, features=noisy(own.features, [s.seed for s in own.scenes], noise))
        for split, own in images.items()
    }
    premises = [merged(own) for split in SPLITS for own in images[split].gold]
    fits = {split: false_negatives(images[split]) for split in ("train", "test")}
    return replace(_collection("world", parts, premises), fits=fits)


def _collection(
    tier: str, parts: Mapping[str, CaptionedImages], premises: Sequence[str] = ()
) -> Collection:
    captions = tuple(own for split in SPLITS for own in parts[split].captions)
    ends = np.cumsum([0, *(len(parts[split].ids) for split in SPLITS)])
    rows = {s: np.arange(ends[i], ends[i + 1]) for i, s in enumerate(SPLITS)}

    def open_image(row: int) -> Any:
        i = int(np.searchsorted(ends, row, side="right")) - 1
        return parts[SPLITS[i]].open_image(row - int(ends[i]))

    return Collection(
        tier=tier,
        names=tuple(name for split in SPLITS for name in parts[split].ids),
        features=standardised([parts[split].features for split in SPLITS]),
        captions=captions,
        premises=tuple(premises) or tuple(judgments.merged(own) for own in captions),
        rows=rows,
        open_image=open_image,
        fits={},
    )


def standardised(parts: Sequence[np.ndarray], noise: float = 0.0) -> np.ndarray:
    """Features (images, R, W) after one another, each of the W with mean 0 and deviation 1 in the
    first part. noise: deviation of the noise that is still to be added.
    """  # fmt: skip
    sample = np.asarray(parts[0][:: max(1, len(parts[0]) // 3000)], dtype=np.float32)
    mean = sample.mean(axis=(0, 1))
    scale = np.sqrt(sample.var(axis=(0, 1)) + noise**2) + 1e-3
    return np.concatenate([(np.asarray(p, dtype=np.float32) - mean) / scale for p in parts])


# --- Training ------------------------------------------------------------------------------------


def build(family: str, budget: Budget, vocabulary: int, split: Split) -> Any:
    """A retriever of a family ("dual", "align", "single") with fresh weights."""
    sizes = Sizes(
        vocabulary, split.images.shape[2], split.images.shape[1], words=WORDS, space=budget.space
    )
    if family == "align":
        return AlignFuse(sizes, budget.settings, budget.top)
    return FAMILIES[family](sizes, budget.settings)


def golden_batches(
    image_of: np.ndarray, phase: Phase, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """One epoch of batches of caption rows, in random order; what does not fill one is left out."""
    rows = rng.permutation(len(image_of))
    if phase.captions:
        images = pd.Series(image_of[rows])
        rows = rows[images.groupby(images).cumcount().to_numpy() < phase.captions]
    most = min(len(rows) // phase.batch, phase.steps or len(rows))
    for step in range(most):
        yield rows[step * phase.batch : (step + 1) * phase.batch]


def make_batch(
    split: Split,
    images: np.ndarray,
    captions: np.ndarray,
    known: Allowed,
    noise: np.ndarray | None = None,
    rng: np.random.Generator | None = None,
    device: str = "cpu",
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What `Retriever.loss` takes, of pairs of images and captions. noise (W,): is added."""
    features, lengths = split.images[images], split.lengths[captions]
    if noise is not None:
        assert rng is not None
        features = features + noise * rng.standard_normal(features.shape, dtype=np.float32)
    parts = (
        features, split.ids[captions, : lengths.max()], lengths, known.block(images, captions)
    )  # fmt: skip
    return tuple(torch.from_numpy(part).to(device) for part in parts)  # type: ignore[return-value]


def factor(done: float) -> float:
    """The schedule: the share of the learning rate after a share of the training; cosine."""
    return min(1.0, done / WARM) * (1 + math.cos(math.pi * done)) / 2


def train(
    model: Any,
    split: Split,
    phase: Phase,
    seed: int,
    *,
    weak: Weak | None = None,
    excluded: Weak | None = None,
    ratio: float = 0.1,
    state: State = "shared",
    first: bool = False,
    noise: np.ndarray | None = None,
    dev: Split | None = None,
    device: str = "cpu",
    progress: str | None = None,
    checkpoint: Path | None = None,
) -> list[dict[str, float]]:
    """Train a retriever; the same seed sees the same golden batches, whatever the weak set.

    weak: pairs of the extra batches, at `ratio` times the rate. excluded: pairs that are no
    negatives of regular batches; those of `weak` are none in extra batches either way.
    first: by the loss for a start from nothing, where the family has one. noise (W,): deviation of
    noise that is added anew to each batch's images. checkpoint: after each epoch; read where it is.

    Returns one dict an epoch: loss, weak_loss, dev_loss (of one caption of each dev image).
    """
    from tqdm.auto import tqdm

    make = partial(_adamw, weight_decay=DECAY)
    rates = TwoRates(list(model.parameters()), make, phase.rate, ratio, state)
    regular, extra = Allowed(split.image_of, excluded), Allowed(split.image_of, weak)
    loss_of = getattr(model, "first_loss", model.loss) if first else model.loss
    steps = sum(1 for _ in golden_batches(split.image_of, phase, np.random.default_rng(0)))
    optimisers = {"golden": rates.golden, "weak": rates.weak}
    history: list[dict[str, float]] = []
    if checkpoint and checkpoint.exists():
        saved = torch.load(checkpoint, map_location="cpu", weights_only=True)
        model.load_state_dict(saved["model"])
        for name, optimiser in optimisers.items():
            optimiser.load_state_dict(saved[name])
        history = saved["history"]
    bar = tqdm(
        total=phase.epochs * steps, initial=len(history) * steps, desc=progress,
        disable=progress is None, leave=False,
    )  # fmt: skip
    for epoch in range(len(history), phase.epochs):
        rng, order, blur = (np.random.default_rng([seed, epoch, k]) for k in range(3))
        seed_everything(seed, epoch)
        if isinstance(model, AlignFuse):
            model.generator.manual_seed(int(rng.integers(2**31)))
        model.train()
        losses: dict[bool, list[Tensor]] = {False: [], True: []}  # read once an epoch, not a step
        batches = alternate(
            golden_batches(split.image_of, phase, order), split.image_of, weak, phase.batch, rng
        )
        for step, (captions, rows) in enumerate(batches):
            share = factor((epoch + (step + 1) / (steps + 1)) / phase.epochs)
            pairs = [(split.image_of[captions], captions, regular, False)]
            if rows is not None and weak is not None:
                pairs.append((weak.image[rows], weak.caption[rows], extra, True))
            for images, texts, known, is_weak in pairs:
                loss = loss_of(*make_batch(split, images, texts, known, noise, blur, device))
                rates.step(loss, is_weak, share)
                losses[is_weak].append(loss.detach())
            bar.update()
        figures = {
            name: float(np.mean(torch.stack(losses[is_weak]).tolist()))
            for name, is_weak in (("loss", False), ("weak_loss", True))
            if losses[is_weak]
        }
        for name, value in figures.items():
            if not math.isfinite(value):
                raise FloatingPointError(f"the {name} is {value} in epoch {epoch}")
        if dev is not None:
            figures["dev_loss"] = dev_loss(model, dev, phase.batch, device)
        history.append(figures)
        if checkpoint:
            saved = {name: optimiser.state_dict() for name, optimiser in optimisers.items()}
            saved |= {"model": model.state_dict(), "history": history}
            write_atomic(checkpoint, partial(torch.save, saved))
    bar.close()
    model.eval()
    return history


def _adamw(
    parameters: Sequence[nn.Parameter], rate: float, weight_decay: float
) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=rate, weight_decay=weight_decay, fused=True)


@torch.no_grad()
def dev_loss(model: Any, dev: Split, batch: int, device: str = "cpu") -> float:
    """The plain loss of the first caption of each dev image, in batches of the training's size."""
    model.eval()
    if isinstance(model, AlignFuse):
        model.generator.manual_seed(0)
    known = Allowed(dev.image_of)
    captions = np.unique(dev.image_of, return_index=True)[1]
    parts = [captions[i : i + batch] for i in range(0, len(captions) - batch + 1, batch)]
    parts = parts or [captions]
    losses = [
        model.loss(*make_batch(dev, dev.image_of[own], own, known, device=device)) for own in parts
    ]
    return float(torch.stack(losses).mean())


# --- Stage A: plain training from nothing --------------------------------------------------------

WEIGHTS = PACKAGE / "world" / "retrievers.safetensors"


def pretrain(
    family: str,
    budget: Budget,
    vocabulary: int,
    split: Split,
    seed: int,
    *,
    start: Mapping[str, Tensor] | None = None,
    **options: Any,
) -> tuple[dict[str, Tensor], list[dict[str, float]]]:
    """A family's weights after stage A, and its history. options: see `train`.

    family: also "base", the dual encoder out of which align and single grow. start: its weights.
    Align is that and a fusing encoder on top; a single stream takes over its words and its reading
    of regions. From a random start the single stream's hinge learns nothing, so stage A has
    `SingleStream.first_loss` in its place.
    """
    seed_everything(seed)
    kind = "dual" if family == "base" else family
    model = build(kind, budget, vocabulary, split).to(options.get("device", "cpu"))
    if start is not None:
        model.load_state_dict(dual_parts(family, start), strict=False)
    history = train(model, split, budget.first[family], seed, first=True, **options)
    return {name: value.detach().cpu() for name, value in model.state_dict().items()}, history


def dual_parts(family: str, dual: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What another family takes over from a dual encoder's weights."""
    if family != "single":
        return dict(dual)
    moved = {"words.": "layers.", "image.project.": "project."}
    return {
        new + name.removeprefix(old): value
        for name, value in dual.items()
        for old, new in moved.items()
        if name.startswith(old) and "position" not in name
    }


def save_weights(
    path: Path, weights: Mapping[str, Mapping[str, Tensor]], words: Words, notes: Mapping[str, Any]
) -> None:
    """Weights of families (float16), the vocabulary and notes in one file."""
    half = {
        f"{family}.{name}": value.half().contiguous()
        for family, own in weights.items()
        for name, value in own.items()
        if value.is_floating_point()
    }
    metadata = {"words": json.dumps(words.words), "notes": json.dumps(dict(notes))}
    write_atomic(path, lambda target: save_file(half, target, metadata))
    path.chmod(0o644)


def read_weights(path: Path, family: str) -> dict[str, Tensor]:
    """A family's weights (float32) from a file of `save_weights`; for `load_state_dict`."""
    return {
        name.removeprefix(f"{family}."): value.float()
        for name, value in load_file(path).items()
        if name.startswith(f"{family}.")
    }


def metadata(path: Path = WEIGHTS) -> dict[str, Any]:
    """The vocabulary ("words") and the notes ("notes") of a file of `save_weights`."""
    with safe_open(path, "pt") as file:
        return {name: json.loads(text) for name, text in (file.metadata() or {}).items()}


@cache
def world_words() -> Words:
    """The vocabulary of the world's retrievers, from captions of the split "backbone"."""
    return Words(metadata()["words"])


def pretrain_job(
    family: str,
    budget: Mapping[str, Any],
    vocabulary: int,
    seed: int,
    data: str,
    splits: Mapping[str, Split],
    device: str,
    checkpoint: Path,
    start: Mapping[str, Tensor] | None = None,
) -> dict[str, Any]:
    """Stage A as a job of `training.run_jobs`; the weights lie beside the answer (`pretrained`)."""
    started = time.perf_counter()
    own = as_budget(budget)
    weights, history = pretrain(
        family, own, vocabulary, splits["train"], seed, start=start, dev=splits["val"],
        device=device, checkpoint=checkpoint,
    )  # fmt: skip
    write_atomic(checkpoint.with_suffix(".safetensors"), lambda path: save_file(weights, path))
    return {"history": history, "seconds": time.perf_counter() - started}


def as_budget(record: Mapping[str, Any]) -> Budget:
    """A budget from its `asdict`."""
    phases = {
        stage: {family: Phase(**own) for family, own in record[stage].items()}
        for stage in ("first", "tuned")
    }
    changed = {"settings": Settings(**record["settings"]), "top": tuple(record["top"]), **phases}
    return Budget(**{**record, **changed})


@dataclass(frozen=True, eq=False)
class Start:
    """Where stage B starts: weights by family, vocabulary, splits as arrays, answers of stage A.

    shortlist: scores (images, captions) of the test pairs by align's two encoders. The single
    stream scores the best of them, as all would take it minutes. device: of `similarities`.
    """

    collection: Collection
    budget: Budget
    words: Words
    splits: Mapping[str, Split]
    weights: Mapping[str, Mapping[str, Tensor]]
    shortlist: np.ndarray
    history: Mapping[str, Any]
    device: str = "cpu"

    def retriever(self, family: str) -> Any:
        """A pretrained retriever."""
        model = build(family, self.budget, len(self.words), self.splits["train"])
        model.load_state_dict(self.weights[family])
        return model.eval()


def starting_point(
    collection: Collection,
    budget: Budget,
    folder: Path,
    *,
    families: Sequence[str] = tuple(FAMILIES),
    leave_out: np.ndarray | None = None,
    seed: int = 0,
    device: str = "cpu",
    workers: int = 0,
    resume: bool = True,
) -> Start:
    """Stage A: read from the package in the world, else trained, and kept in `folder`.

    leave_out: rows of training images that stage A does not see, as the classifier, which starts
    from its weights, is to learn from them: captions known by heart look too much like entailed.
    Raises DataError where these are all training images.
    """
    if collection.tier == "world":
        words = world_words()
        splits = {name: collection.split(name, words) for name in SPLITS}
        weights = {family: read_weights(WEIGHTS, family) for family in families}
        history = metadata()["notes"]
    else:
        words = Words.of(collection.texts("train"), budget.min_count)
        splits = {name: collection.split(name, words) for name in SPLITS}
        rest = np.setdiff1d(collection.rows["train"], [] if leave_out is None else leave_out)
        if not len(rest):
            raise DataError("every training image is left out: there is nothing to start from")
        own = replace(collection, rows={**collection.rows, "train": rest})
        seen = {**splits, "train": own.split("train", words)}
        data = seen["train"].fingerprint()
        weights, history = {}, {}
        base = "base" if "base" in budget.first else "dual"
        for wave in ([base], [family for family in families if family != base]):
            jobs: list[tuple[dict, dict]] = []
            for family in wave:
                job = {"family": family, "budget": asdict(budget), "vocabulary": len(words),
                       "seed": seed, "data": data}  # fmt: skip
                begin = None if family == "dual" else weights.get(base)
                jobs.append((job, {"splits": seen, "device": device, "start": begin}))
            answers = training.run_jobs(
                pretrain_job, jobs, folder, resume=resume, workers=workers, label="stage A"
            )
            for family, (job, _), answer in zip(wave, jobs, answers, strict=True):
                path = training.job_path(folder, job).with_suffix(".safetensors")
                weights[family], history[family] = load_file(path), answer
    start = Start(collection, budget, words, splits, weights, np.zeros(0), history, device)
    return replace(start, shortlist=similarities(start, "test")[:])


# --- Weak sets -----------------------------------------------------------------------------------


class Cosines:
    """Cosines of unit vectors (images, D) and (captions, D), a slice of rows at a time."""

    def __init__(self, images: np.ndarray, captions: np.ndarray):
        self.images, self.captions = images, captions
        self.shape = (len(images), len(captions))

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, rows: slice) -> np.ndarray:
        return self.images[rows] @ self.captions.T


@torch.no_grad()
def similarities(start: Start, split: str = "train", family: str = "align") -> Cosines:
    """Cosines of a split's images and captions by the encoders of align (or dual) after stage A.

    The paper's candidates are those of its ALBEF.
    """
    images, ids, lengths = start.splits[split].tensors(start.device)
    model = start.retriever(family).to(start.device)
    left = torch.cat([model.image_states(part)[1] for part in images.split(256)])
    texts = zip(ids.split(256), lengths.split(256), strict=True)
    right = torch.cat([model.text_states(i[:, : n.max()], n)[2] for i, n in texts])
    return Cosines(left.cpu().numpy(), right.cpu().numpy())


def mined(
    collection: Collection,
    similarity: Any,
    entailed: Callable[[np.ndarray], np.ndarray],
    split: str = "train",
    top: int = TOP,
    threshold: float = 0.5,
) -> Weak:
    """Weak positives of a split by a classifier (`revision.mine`).

    entailed: pairs (n, 2) of an image of the split and a flat caption number -> probability (n,).
    """
    return mine(similarity, collection.image_of(split), entailed, top, threshold)


def weak_by_logic(collection: Collection, similarity: Any = None, top: int = TOP) -> Weak:
    """The same by the truth, which only the world has; without a similarity all true pairs."""
    truth, image_of = collection.fits["train"], collection.image_of("train")
    if similarity is not None:
        return mined(collection, similarity, lambda pairs: truth[pairs[:, 0], pairs[:, 1]], top=top)
    image, caption = np.nonzero(truth & (image_of != np.arange(len(truth))[:, None]))
    return Weak(image, caption, np.ones(len(image)))


def precision_of(weak: Weak, truth: np.ndarray) -> float:
    """The share of a weak set that is true; nan where it is empty."""
    return float(truth[weak.image, weak.caption].mean()) if len(weak) else math.nan


def flipped(weak: Weak, truth: np.ndarray, precision: float, seed: int = 0) -> Weak:
    """A weak set of the same size and images of which a share of `precision` is true.

    Pairs drawn at random are replaced, true ones by captions that are false of the image, and the
    other way round where the set is to become better. Raises ValueError where an image has no
    caption of the wanted kind left.
    """
    rng = np.random.default_rng(seed)
    captions, right = weak.caption.copy(), truth[weak.image, weak.caption]
    excess = round(float(right.sum()) - precision * len(weak))
    changed = rng.choice(np.flatnonzero(right == (excess > 0)), abs(excess), replace=False)
    used = set(zip(weak.image.tolist(), captions.tolist(), strict=True))
    for row in changed:
        image = int(weak.image[row])
        wanted = np.flatnonzero(truth[image] == (excess < 0))
        free = [c for c in rng.permutation(wanted)[:50].tolist() if (image, c) not in used]
        if not free:
            raise ValueError(f"image {image} has no caption left for a precision of {precision}")
        captions[row] = free[0]
        used.add((image, free[0]))
    return Weak(weak.image, captions, weak.score)


def random_weak(weak: Weak, image_of: np.ndarray, seed: int = 0) -> Weak:
    """As many pairs of the same images with captions drawn at random, other images' own."""
    rng = np.random.default_rng(seed)
    captions = rng.integers(len(image_of), size=len(weak))
    while (own := image_of[captions] == weak.image).any():
        captions[own] = rng.integers(len(image_of), size=int(own.sum()))
    return Weak(weak.image, captions, np.ones(len(weak)))


def golden(image_of: np.ndarray) -> Weak:
    """All golden pairs, for the control's extra batches."""
    return Weak(image_of, np.arange(len(image_of)), np.ones(len(image_of)))


def sets_of(
    variant: str, weak: Weak | None, image_of: np.ndarray, seed: int
) -> tuple[Weak | None, Weak | None]:
    """(pairs kept out of the negatives of regular batches, pairs of the extra batches).

    plain: neither. exclusion, weak: one. both: the paper's. extra golden, random weak: controls,
    which exclude nothing. Raises ValueError for an unknown name, and where a weak set is missing.
    """
    if variant == "plain":
        return None, None
    if variant == "extra golden":
        return None, golden(image_of)
    if weak is None:
        raise ValueError(f"variant {variant!r} needs a weak set")
    if variant == "random weak":
        return None, random_weak(weak, image_of, seed)
    if variant not in VARIANTS:
        raise ValueError(f"no variant {variant!r}: use {', '.join(VARIANTS + CONTROLS)}")
    return (
        weak if variant in ("exclusion", "both") else None,
        weak if variant in ("weak", "both") else None,
    )


# --- Stage B: fine-tuning ------------------------------------------------------------------------


def tuning_jobs(
    start: Start,
    weak: Mapping[str, Weak],
    seeds: Sequence[int],
    device: str,
    *,
    families: Sequence[str] = tuple(FAMILIES),
    variants: Sequence[str] = VARIANTS,
    ratio: float = 0.0,
    state: State = "shared",
    note: str = "",
) -> list[tuple[dict, dict]]:
    """Jobs of `fine_tune` for `training.run_jobs`.

    weak: name of who made it ("classifier", "logic") -> weak set; plain and extra golden need none
    and are made once. ratio: λ, the budget's where 0. note: of what is swept, for the name.
    """
    arrays = {
        "splits": {name: start.splits[name] for name in SPLITS},
        "test": test_of(start),
        "device": device,
    }
    jobs = []
    digest = {name: start.splits[name].fingerprint() for name in SPLITS}
    for family in families:
        data = {**arrays, "weights": start.weights[family]}
        marks = {**digest, "weights": fingerprint(start.weights[family])}
        for variant in variants:
            alone = variant in ("plain", "extra golden")
            for maker, pairs in ({"": None} if alone else weak).items():
                for seed in seeds:
                    job = {
                        "family": family, "variant": variant, "maker": maker, "seed": seed,
                        "ratio": ratio or start.budget.ratio, "state": state, "note": note,
                        "budget": asdict(start.budget), "vocabulary": len(start.words),
                        "data": {**marks, "weak": "" if pairs is None else weak_hash(pairs)},
                    }  # fmt: skip
                    jobs.append((job, {**data, "weak": pairs}))
    return jobs


def fingerprint(weights: Mapping[str, Tensor]) -> str:
    """A hash of weights."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(name.encode() + weights[name].numpy().tobytes())
    return digest.hexdigest()[:16]


def weak_hash(weak: Weak) -> str:
    """A hash of a weak set."""
    digest = hashlib.sha256(np.ascontiguousarray(weak.image, dtype=np.int64).tobytes())
    digest.update(np.ascontiguousarray(weak.caption, dtype=np.int64).tobytes())
    return digest.hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class Test:
    """What a job measures beside ranks: truth and judgments of the test pairs, None without."""

    shortlist: np.ndarray
    fits: np.ndarray | None = None
    judged: Judged | None = None
    judged_pairs: np.ndarray | None = None


def test_of(start: Start) -> Test:
    """The test of a collection."""
    own = start.collection
    pairs = None if own.judged is None else own.judged_pairs()
    return Test(start.shortlist, own.fits.get("test"), own.judged, pairs)


def fine_tune(
    family: str,
    variant: str,
    maker: str,
    seed: int,
    ratio: float,
    state: State,
    note: str,
    budget: Mapping[str, Any],
    vocabulary: int,
    data: Mapping[str, str],
    splits: Mapping[str, Split],
    weights: Mapping[str, Tensor],
    weak: Weak | None,
    test: Test,
    device: str,
    checkpoint: Path | None = None,
) -> dict[str, Any]:
    """Fine-tune one retriever and rank the test pairs: the work of one job.

    The answer is `measured`, with "history" and "seconds".
    """
    started = time.perf_counter()
    own, train_split = as_budget(budget), splits["train"]
    model = build(family, own, vocabulary, train_split)
    model.load_state_dict(weights)
    excluded, extra = sets_of(variant, weak, train_split.image_of, seed)
    model.to(device)
    history = train(
        model, train_split, own.tuned[family], seed, weak=extra, excluded=excluded, ratio=ratio,
        state=state, dev=splits["val"], device=device, checkpoint=checkpoint,
    )  # fmt: skip
    trained = time.perf_counter() - started
    answer = measured(model, splits["test"], test, own.top, device)
    return {
        **answer, "history": history, "train_seconds": trained,
        "seconds": time.perf_counter() - started,
    }  # fmt: skip


def measured(
    model: Any, split: Split, test: Test, top: Top = (2 * TOP, 12), device: str = "cpu"
) -> dict[str, Any]:
    """What a retriever does on the test pairs, JSON-able.

    "i2t" (images,): rank of the best own caption. "t2i" (captions,): rank of the image. "top":
    each image's best 30 captions. With the truth, (images,) each: "e10", "e30", shares of true
    captions among the best, and "ap", average precision over all true captions. With judgments,
    over the images with a yes: "judged": average precision and precision at 1, by name.
    """
    parts = split.tensors(device)
    if isinstance(model, SingleStream):
        by_image, by_text = model.rank(*parts, shortlist=test.shortlist, top=top)
    else:
        by_image, by_text = model.rank(*parts)
    best = np.argsort(-by_image, axis=1, kind="stable")[:, :TOP]
    answer: dict[str, Any] = {
        "i2t": ranks_of_scores(by_image, split.image_of).image_ranks.tolist(),
        "t2i": ranks_of_scores(by_text, split.image_of).caption_ranks.tolist(),
        "top": best.tolist(),
    }
    if test.fits is not None:
        hit = np.take_along_axis(test.fits, best, axis=1)
        answer |= {f"e{k}": hit[:, :k].mean(axis=1).round(4).tolist() for k in (10, TOP)}
        relevant = [np.flatnonzero(row).tolist() for row in test.fits]
        answer["ap"] = average_precision(by_image, relevant).round(4).tolist()
    if test.judged is not None and test.judged_pairs is not None:
        pairs = test.judged_pairs
        if isinstance(model, SingleStream):
            scores = model.pairs(*parts, pairs)
        else:
            scores = by_image[pairs[:, 0], pairs[:, 1]]
        found = judgments.ranking(test.judged, scores)
        answer["judged"] = {
            "image": list(found.index),
            "ap": found["average_precision"].round(4).tolist(),
            "p1": found["precision_at_1"].round(4).tolist(),
        }
    return answer


def sweep_jobs(
    start: Start,
    weak: Weak,
    seeds: Sequence[int],
    device: str,
    *,
    family: str = "dual",
    ratios: Sequence[float] = RATIOS,
    precisions: Sequence[float] = PRECISIONS,
) -> list[tuple[dict, dict]]:
    """λ with shared and with separate optimiser state, and the weak set's precision; the world.

    weak: a set made by logic, of precision 1, of which parts are then flipped. Both uses of the
    whole set at the budget's own λ are in `comparison_jobs`, and `sweep_panels` finds them there.
    """
    jobs = []
    states: tuple[State, State] = ("shared", "separate")
    for state in states:
        for ratio in ratios:
            if state == "shared" and ratio == start.budget.ratio:
                continue
            jobs += tuning_jobs(
                start, {"logic": weak}, seeds, device, families=[family], variants=["both"],
                ratio=ratio, state=state, note=f"λ {ratio} {state}",
            )  # fmt: skip
    truth = start.collection.fits["train"]
    for precision in precisions:
        worse = {"logic": flipped(weak, truth, precision)}
        for variant in ("exclusion", "both") if precision < 1 else ("exclusion",):
            jobs += tuning_jobs(
                start, worse, seeds, device, families=[family], variants=[variant],
                note=f"precision {precision}",
            )  # fmt: skip
    return jobs


# --- Scores and effects --------------------------------------------------------------------------

Scores = dict[str, dict[str, np.ndarray]]


def name_of(job: Mapping[str, Any]) -> str:
    """What a job's system is called: "CLIP-like, both (classifier)"."""
    made = f" ({job['maker']})" if job["maker"] else ""
    note = f", {job['note']}" if job["note"] else ""
    return f"{PRINTED[job['family']]}-like, {job['variant']}{made}{note}"


def collect(
    jobs: Sequence[tuple[dict, dict]], answers: Sequence[dict], image_of: np.ndarray
) -> Scores:
    """System -> what each test image adds to each figure, in points: (seeds, images).

    The mean over images is the figure: i2t_r1, ..., t2i_r10, rsum; in the world e10_logic,
    e30_logic, map; with judgments, over the images with a yes: judged_map, judged_p1.
    """
    images, captions = int(image_of.max()) + 1, len(image_of)
    found: dict[str, dict[str, list[np.ndarray]]] = {}
    for (job, _), answer in zip(jobs, answers, strict=True):
        own = found.setdefault(name_of(job), {})
        ranks = {"i2t": np.array(answer["i2t"]), "t2i": np.array(answer["t2i"])}
        values: dict[str, np.ndarray] = {}
        for k in KS:
            values[f"i2t_r{k}"] = (ranks["i2t"] <= k).astype(float)
        for k in KS:
            hit = np.bincount(image_of, ranks["t2i"] <= k, minlength=images)
            values[f"t2i_r{k}"] = hit * images / captions
        values["rsum"] = np.sum(list(values.values()), axis=0)
        for key, name in (("e10", "e10_logic"), ("e30", "e30_logic"), ("ap", "map")):
            if key in answer:
                values[name] = np.array(answer[key])
        for key, name in (("ap", "judged_map"), ("p1", "judged_p1")):
            if "judged" in answer:
                values[name] = np.array(answer["judged"][key])
        for name, each in values.items():
            own.setdefault(name, []).append(100 * each)
    return {s: {m: np.array(v) for m, v in own.items()} for s, own in found.items()}


def add_random(scores: Scores, image_of: np.ndarray, seeds: Sequence[int]) -> None:
    """Add the system "Random": scores drawn at random, measured by recalls."""
    images = int(image_of.max()) + 1
    answers = []
    for seed in seeds:
        drawn = np.random.default_rng([7, seed]).random((images, len(image_of)), dtype=np.float32)
        ranks = ranks_of_scores(drawn, image_of)
        answers.append({"i2t": ranks.image_ranks, "t2i": ranks.caption_ranks})
    job = {"family": "dual", "variant": "random", "maker": "", "note": ""}
    (scores["Random"],) = collect([(job, {})] * len(answers), answers, image_of).values()


def pairs_in_top(answers: Sequence[dict], image_of: np.ndarray) -> np.ndarray:
    """All pairs (n, 2) of a test image and a foreign caption among the best of any answer."""
    rows = np.arange(len(answers[0]["top"]))[:, None]
    pairs = [np.stack(np.broadcast_arrays(rows, np.array(a["top"])), -1) for a in answers]
    every = np.unique(np.concatenate(pairs).reshape(-1, 2), axis=0)
    return every[image_of[every[:, 1]] != every[:, 0]]


def add_entail_at_k(
    scores: Scores,
    jobs: Sequence[tuple[dict, dict]],
    answers: Sequence[dict],
    image_of: np.ndarray,
    entailed: Callable[[np.ndarray], np.ndarray],
    threshold: float = 0.5,
    name: str = "classifier",
) -> None:
    """Add E@10 and E@30 (eq. 13) as judged by a classifier, as "e10_classifier" and so on.

    entailed: pairs (n, 2) of a test image and a foreign flat caption -> probability (n,). Own
    captions count as entailed. Answers in the order in which `collect` had them.
    """
    pairs = pairs_in_top(answers, image_of)
    called = np.asarray(entailed(pairs)) >= threshold
    key = pairs[called, 0] * len(image_of) + pairs[called, 1]
    found: dict[str, list[np.ndarray]] = {}
    for (job, _), answer in zip(jobs, answers, strict=True):
        top = np.array(answer["top"])
        rows = np.arange(len(top))[:, None]
        hit = (image_of[top] == rows) | np.isin(rows * len(image_of) + top, key)
        found.setdefault(name_of(job), []).append(hit)
    for system, hits in found.items():
        for k in (10, TOP):
            scores[system][f"e{k}_{name}"] = np.array(
                [100 * hit[:, :k].mean(axis=1) for hit in hits]
            )


def results(scores: Scores, dataset: str, budget: Budget, seeds: Sequence[int]) -> list[Result]:
    """One `Result` a system, metric and seed; the metrics are those of `collect`."""
    used = training.settings_hash(asdict(budget))
    return [
        Result(system, dataset, "test", metric, float(values[i].mean()), seed, used)
        for system, own in scores.items()
        for metric, values in own.items()
        for i, seed in zip(range(len(values)), seeds, strict=False)
    ]


def contrast(
    scores: Scores, weights: Mapping[str | tuple[str, str], float], metric: str = "rsum"
) -> Estimate:
    """A weighted sum of systems' figures, paired by seed and test image, over both.

    weights: system (or system and metric) -> weight. Systems with more seeds than others lose the
    rest. Raises KeyError for a system or metric that is not there.
    """
    parts = []
    for key, weight in weights.items():
        system, own = key if isinstance(key, tuple) else (key, metric)
        parts.append(weight * scores[system][own])
    n = min(len(part) for part in parts)
    total = np.sum([part[:n] for part in parts], axis=0)
    return crossed_interval(total, np.arange(total.shape[1]))


def difference(scores: Scores, better: str, worse: str, metric: str = "rsum") -> Estimate:
    """A figure of one system minus another's (see `contrast`)."""
    return contrast(scores, {better: 1, worse: -1}, metric)


def gains(
    scores: Scores, variant: str, metric: str = "rsum", over: str = "plain"
) -> dict[str, Estimate]:
    """Family ("CLIP", ...) -> a variant's figure minus that of `over`, where both were trained.

    variant: as `name_of` writes it, such as "both (classifier)".
    """
    found = {}
    for family in PRINTED.values():
        better, worse = f"{family}-like, {variant}", f"{family}-like, {over}"
        if metric in scores.get(better, {}) and metric in scores.get(worse, {}):
            found[family] = difference(scores, better, worse, metric)
    return found


def judge_bias(
    scores: Scores, family: str, variant: str, metric: str = "e10", by: str = "logic"
) -> Estimate:
    """How much more a variant gains over plain when the miner itself judges E@K than by logic.

    In percent: each judge's gain is taken relative to what plain has by that judge, as the two
    judges' scales differ.
    """
    better, worse = f"{PRINTED[family]}-like, {variant}", f"{PRINTED[family]}-like, plain"
    weights: dict[str | tuple[str, str], float] = {}
    for judge, sign in (("classifier", 1), (by, -1)):
        own = f"{metric}_{judge}"
        share = sign * 100 / float(scores[worse][own].mean())
        weights |= {(better, own): share, (worse, own): -share}
    return contrast(scores, weights)


# --- Tables --------------------------------------------------------------------------------------

ENHANCED = " + entailment-enhanced training"
COLUMNS = {"i2t": "TR", "t2i": "IR"}


def tables(scores: Scores, maker: str = "classifier") -> dict[str, pd.DataFrame]:
    """Tables 4 and 5 beside ours: "table4_flickr30k", "table4_mscoco", "table5".

    Plain fine-tuning is the paper's first row of each family, both uses of a weak set by `maker`
    its second; other systems are left out. Ours: mean and deviation over seeds, the same in all.
    """
    ours = pd.DataFrame([asdict(r) for r in results(scores, "", BUDGETS["world"], range(99))])
    names = {}
    for family in PRINTED.values():
        names[f"{family}-like, plain"] = family
        names[f"{family}-like, both ({maker})"] = family + ENHANCED
    ours = ours[ours.system.isin(["Random", *names])]
    ours["system"] = ours.system.map(lambda name: names.get(name, name))
    ours["metric"] = ours.metric.replace(
        {f"{way}_r{k}": f"{short}@{k}" for way, short in COLUMNS.items() for k in KS}
        | {f"e{k}_classifier": f"E@{k}" for k in (10, TOP)}
    )
    return {
        table: beside(ours, paper_values("entailment", table))
        for table in ("table4_flickr30k", "table4_mscoco", "table5")
    }


JUDGES = {
    "e10_classifier": "E@10, classifier", "e30_classifier": "E@30, classifier",
    "e10_logic": "E@10, logic", "e30_logic": "E@30, logic", "map": "mAP, logic",
    "judged_map": "mAP, people", "judged_p1": "P@1, people", "rsum": "RSUM",
}  # fmt: skip


def compared(scores: Scores) -> Scores:
    """The systems of the comparison, without those of the sweeps."""
    return {name: own for name, own in scores.items() if ", λ" not in name and ", prec" not in name}


def judges_table(scores: Scores) -> pd.DataFrame:
    """Every system as judged by the classifier, by logic and by people, and by golden pairs."""
    rows = {
        system: {title: own[m].mean() for m, title in JUDGES.items() if m in own}
        for system, own in scores.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index").round(1)


# --- What the notebook compares and keeps --------------------------------------------------------


def budget(tier: str, preset: str = "") -> Budget:
    """The budget of a tier (and preset "quick"). Raises ValueError for an unknown one."""
    return training.choose_budget(BUDGETS, tier, preset, {})


def comparison_jobs(
    start: Start, weak: Mapping[str, Weak], seeds: Sequence[int], device: str, quick: bool = False
) -> list[tuple[dict, dict]]:
    """The fine-tunings of Tables 4 and 5, and the dual encoder's controls.

    In the world, for time, the other families have only plain and both, and logic's weak set is
    the dual encoder's alone, for both uses. quick: plain and both of all families.
    """
    own = {name: weak[name] for name in ("classifier",) if name in weak}
    every, ends = VARIANTS, ("plain", "both")
    if quick:
        return tuning_jobs(start, own, seeds, device, variants=ends)
    others = [family for family in FAMILIES if family != "dual"]
    world = start.collection.tier == "world"
    rest = {name: some for name, some in weak.items() if name not in own}
    jobs = tuning_jobs(start, own, seeds, device, families=["dual"], variants=every + CONTROLS)
    jobs += tuning_jobs(start, rest, seeds, device, families=["dual"], variants=["both"])
    return jobs + tuning_jobs(
        start, own, seeds, device, families=others, variants=ends if world else every
    )


def mining_table(
    collection: Collection, weak: Mapping[str, Weak], similarity: Any, top: int = TOP
) -> pd.DataFrame:
    """Size of each weak set and, where the truth is known, its precision and recall in percent.

    The first row is all candidates: a miner that always says yes.
    """
    truth = collection.fits.get("train")
    pairs = candidates(similarity, collection.image_of("train"), top)
    sets = {"all candidates": Weak(pairs[:, 0], pairs[:, 1], np.ones(len(pairs))), **weak}
    rows = {}
    for name, own in sets.items():
        rows[name] = {
            "pairs": len(own),
            "images with one": len(np.unique(own.image)),
            "true, %": math.nan if truth is None else round(100 * precision_of(own, truth), 1),
        }
        if truth is not None:
            there = truth[pairs[:, 0], pairs[:, 1]].sum()
            rows[name]["found of the true, %"] = round(
                100 * float(truth[own.image, own.caption].sum() / there), 1
            )
    return pd.DataFrame.from_dict(rows, orient="index")


def called_pairs(
    answers: Sequence[dict], image_of: np.ndarray, entailed: Callable[[np.ndarray], np.ndarray]
) -> dict[str, list]:
    """What a classifier says of all foreign pairs among the best of any answer, JSON-able."""
    pairs = pairs_in_top(answers, image_of)
    found = np.asarray(entailed(pairs))
    return {"pairs": pairs.tolist(), "p": found.round(3).tolist()}


def lookup(called: Mapping[str, list]) -> Callable[[np.ndarray], np.ndarray]:
    """The classifier as a table of `called_pairs`; raises KeyError for another pair."""
    table = {(i, c): p for (i, c), p in zip(called["pairs"], called["p"], strict=True)}
    return lambda pairs: np.array([table[i, c] for i, c in np.asarray(pairs).tolist()])


def write_record(
    path: Path, jobs: Sequence[tuple[dict, dict]], answers: Sequence[dict], called: dict
) -> None:
    """Keep all answers, and what the classifier said of what they found, in one file."""
    judge: tuple[dict, dict] = ({"family": "judge"}, {})
    training.write_answers(path, [judge, *jobs], [called, *answers])


def read_record(path: Path, budget: Budget) -> tuple[list[tuple[dict, dict]], list[dict], dict]:
    """Jobs, answers and judgments of a file of `write_record`.

    Raises DataError where there is none or its trainings had another budget.
    """
    if not path.exists():
        raise DataError(f"there are no stored answers {path}: set results to compute")
    first, *records = json.loads(gzip.decompress(path.read_bytes()))
    if records[0]["job"]["budget"] != json.loads(json.dumps(asdict(budget))):
        raise DataError(f"{path}: its trainings had another budget: set results to compute")
    return [(r["job"], {}) for r in records], [r["answer"] for r in records], first["answer"]


def weakest_gain(scores: Scores, variant: str) -> dict[str, Estimate]:
    """What the family that is weakest before gains in RSUM, and this minus each other's gain."""
    gained = gains(scores, variant)
    if len(gained) < 2:
        return {}
    level = {f: float(scores[f"{f}-like, plain"]["rsum"].mean()) for f in gained}
    low = min(level, key=level.__getitem__)
    found = {low: gained[low]}
    for other in (family for family in gained if family != low):
        found[f"{low} − {other}"] = contrast(
            scores,
            {
                f"{low}-like, {variant}": 1, f"{low}-like, plain": -1,
                f"{other}-like, {variant}": -1, f"{other}-like, plain": 1,
            },
        )  # fmt: skip
    return found


def before_after(
    collection: Collection,
    jobs: Sequence[tuple[dict, dict]],
    answers: Sequence[dict],
    fits: np.ndarray | None,
    family: str = "dual",
    count: int = 8,
) -> tuple[int, list, list] | None:
    """The test image whose best texts gained most true captions of others, and these texts.

    Texts as (text, whether it is the image's own, whether it is true of it or None). None where
    nothing is known or the family was not trained.
    """
    named = {(j["variant"], j["maker"]): a for (j, _), a in reversed(
        list(zip(jobs, answers, strict=True))
    ) if j["family"] == family and not j["note"]}  # fmt: skip
    if fits is None or not {("plain", ""), ("both", "classifier")} <= set(named):
        return None
    tops = [
        np.array(named[key]["top"])[:, :count] for key in (("plain", ""), ("both", "classifier"))
    ]
    texts, image_of = collection.texts("test"), collection.image_of("test")
    foreign = fits & (image_of != np.arange(len(fits))[:, None])
    hits = [np.take_along_axis(foreign, top, axis=1).sum(axis=1) for top in tops]
    image = int((hits[1] - hits[0]).argmax())
    known = collection.judged is None
    looked = set() if known else {tuple(p) for p in collection.judged_pairs().tolist()}

    def told(caption: int) -> tuple[str, bool, bool | None]:
        true = bool(fits[image, caption])
        sure = known or true or (image, caption) in looked
        return texts[caption], bool(image_of[caption] == image), true if sure else None

    before, after = ([told(int(c)) for c in top[image]] for top in tops)
    return image, before, after


def sweep_panels(
    jobs: Sequence[tuple[dict, dict]], scores: Scores, metric: str = "map"
) -> list[tuple[str, dict[str, dict[float, list[float]]], str, bool]]:
    """The sweeps of `sweep_jobs`: name, curve -> value -> figure of each seed, axis label, log.

    jobs, scores: those of `comparison_jobs` as well, whose "both (logic)" is a point of each sweep.
    """
    swept = {(job["family"], job["seed"]) for job, _ in jobs if job["note"]}
    ratios: dict[str, dict[float, list[float]]] = {}
    precisions: dict[str, dict[float, list[float]]] = {}
    rows: Counter[str] = Counter()
    for job, _ in sorted(jobs, key=lambda one: not one[0]["note"]):  # curves in the sweeps' order
        system = name_of(job)
        value = float(scores[system][metric][rows[system]].mean())
        rows[system] += 1
        if (job["family"], job["seed"]) not in swept:
            continue
        kind, _, rest = job["note"].partition(" ")
        whole = not kind and (job["variant"], job["maker"]) == ("both", "logic")
        if kind == "λ" or whole:
            own = ratios.setdefault(f"{job['state']} optimiser", {})
            own.setdefault(job["ratio"], []).append(value)
        if kind == "precision" or whole:
            own = precisions.setdefault(job["variant"], {})
            own.setdefault(float(rest or 1), []).append(value)
    panels = [("ratio", ratios, "λ", True), ("precision", precisions, "precision", False)]
    return [panel for panel in panels if panel[1]]


# --- The optimiser's state -----------------------------------------------------------------------

OPTIMISERS = (
    "Adam, shared", "Adam, separate", "SGD", "SGD with momentum, shared",
    "Adam, shared, loss weight", "Adam, separate, loss weight", "SGD, loss weight",
)  # fmt: skip


def measured_ratio(optimiser: str, ratio: float, steps: int = 400) -> float:
    """What a weak gradient moves a parameter, as a share of what a golden one of its size moves.

    Golden and weak gradients of ±1 alternate. Their squares do not depend on the signs, so that
    the way is linear in these: with both at +1 it is G + W, with weak ones at −1 it is G − W.
    Names: see OPTIMISERS; "loss weight": λ weighs the loss and not the rate.
    """
    same, opposite = (_way(optimiser, ratio, sign, steps) for sign in (1.0, -1.0))
    return (same - opposite) / (same + opposite)


def _way(optimiser: str, ratio: float, sign: float, steps: int) -> float:
    beta1, beta2 = (0.0 if optimiser.startswith("SGD") else 0.9), 0.999
    beta1 = 0.9 if "momentum" in optimiser else beta1
    weighs = "loss weight" in optimiser
    states = [[0.0, 0.0, 0] for _ in range(1 + ("separate" in optimiser))]
    way = 0.0
    for step in range(2 * steps):
        weak = step % 2
        gradient = (sign * (ratio if weighs else 1.0)) if weak else 1.0
        rate = ratio if weak and not weighs else 1.0
        state = states[weak % len(states)]
        state[2] += 1
        if optimiser.startswith("SGD"):
            state[0] = beta1 * state[0] + gradient
            way += rate * state[0]
            continue
        state[0] = beta1 * state[0] + (1 - beta1) * gradient
        state[1] = beta2 * state[1] + (1 - beta2) * gradient**2
        first = state[0] / (1 - beta1 ** state[2])
        way += rate * first / math.sqrt(state[1] / (1 - beta2 ** state[2]))
    return way


def optimiser_table(ratios: Sequence[float] = RATIOS) -> pd.DataFrame:
    """`measured_ratio` of every optimiser at each λ, and `effective_ratio`'s formula beside it."""
    table = {name: [measured_ratio(name, ratio) for ratio in ratios] for name in OPTIMISERS}
    table["formula of the shared state"] = [effective_ratio(ratio) for ratio in ratios]
    return pd.DataFrame(table, index=pd.Index(ratios, name="λ")).T
