"""Trainings of paper 03 and what each of them is measured by: the work of one job."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from mmlib.core.files import read_rows
from mmlib.core.fit import fit, seed_everything, warm_up_cosine
from mmlib.core.jobs import Answer, Job
from mmlib.core.parallel import ahead
from mmlib.core.ranking import (
    KS,
    Ranks,
    best_ranks,
    metrics,
    rank_images_and_captions,
    ranks_of_scores,
)
from mmlib.papers.cora.graphs import (
    SPLITS,
    Arrays,
    Batch,
    GraphBatch,
    GraphSet,
    Split,
    Texts,
    batches,
)
from mmlib.papers.cora.model import Matcher, PhraseBERT, Settings, System, parameter_groups

BETAS = np.linspace(0, 1, 21)  # of eq. 14
FOLD = 1000  # images of a fold of MS-COCO's 1K test


# --- Training ----------------------------------------------------------------------------------


def texts_of(system: System, arrays: Arrays, seed: int) -> dict[str, Texts]:
    """split -> what the system reads of it; altered by the seed where the system says so.

    Raises ValueError where the data have no such texts, as gold graphs outside of the world.
    """
    found = {}
    for i, name in enumerate(SPLITS):
        texts = arrays.splits[name].texts
        if system.reads not in texts:
            raise ValueError(f"{system.system} reads {system.reads!r}; there is {', '.join(texts)}")
        one = texts[system.reads]
        found[name] = one.altered(np.random.default_rng([seed, i])) if system.altered else one
    return found


def train(
    job: Job,
    arrays: Arrays,
    device: str = "cpu",
    checkpoint: Path | None = None,
    after_epoch: Callable[[list[dict[str, float]]], object] = lambda history: None,
) -> tuple[Matcher, list[dict[str, float]]]:
    """Train one system with AdamW; the model is that of the best RSUM on dev (the authors' code).

    Dev counts the first caption of each image, which is enough to choose an epoch by.
    History: an epoch's train_loss, dev_RSUM, and dev_loss, which is 600 - dev_RSUM.
    """
    system, s = System(**job.system), Settings(**job.settings)
    texts, split = texts_of(system, arrays, job.seed), arrays.splits["train"]
    seed_everything(job.seed)
    width, table = split.features.shape[2], torch.tensor(arrays.embeddings)
    model = Matcher(system, s, width, table, arrays.bert[0]).to(device)
    how = replace(s, delimiters=s.delimiters or system.bert)
    # What is evaluated: the model, or a running mean of its weights.
    average = get_ema_multi_avg_fn(s.ema)
    mean = AveragedModel(model, multi_avg_fn=average, use_buffers=True) if s.ema else None
    both = nn.ModuleList([model, mean] if mean else [model])
    kept = cast(Matcher, mean.module) if mean else model
    optimizer = torch.optim.AdamW(
        parameter_groups(model, s), weight_decay=s.weight_decay, fused=True
    )
    if mean:
        optimizer.register_step_post_hook(lambda *_: mean.update_parameters(model))
    match = "caption" if system.coded else "image"
    shuffled = batches(split, texts["train"], how, s.batch, s.captions, match, job.seed, device)
    shown = sum(min(len(own), s.captions) for own in split.captions_of)
    steps = s.epochs * (shown // s.batch + (shown % s.batch > 1))
    schedule = LambdaLR(optimizer, partial(rate, steps=steps, settings=s))

    def epoch(number: int) -> Iterator[tuple[Batch, bool]]:
        calm = number < s.calm * s.epochs
        for bert in (part for part in model.modules() if isinstance(part, PhraseBERT)):
            bert.still = number < s.bert_still * s.epochs
            bert.train(bert.training)
        return ((batch, calm) for batch in ahead(shuffled(number)))

    def evaluate() -> dict[str, float]:
        dev = arrays.splits["val"]
        seen = encode(kept, dev, texts["val"], device, first=True)
        rsum = metrics(rank_images_and_captions(seen.images, seen.captions, seen.image_of))["rsum"]
        return {"dev_loss": 600 - rsum, "dev_RSUM": rsum}

    history = fit(
        both, epoch, lambda batch: model.loss(*batch), evaluate, epochs=s.epochs,
        optimizer=optimizer, schedule=schedule, seed=job.seed, device=device,
        checkpoint=checkpoint, after_epoch=after_epoch,
    )  # fmt: skip
    return kept, history


def rate(step: int, steps: int, settings: Settings) -> float:
    """Share of the learning rate at a step: see `Settings.schedule`."""
    rise = round(settings.rise * steps)
    if settings.schedule == "cosine":
        return warm_up_cosine(step, steps, rise)
    high = min(1.0, (step + 1) / rise) if rise else 1.0
    return high * (0.1 if step >= settings.fall * steps else 1.0)


# --- Encoding and ranking ----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Encoded:
    """Unit vectors: images (n, D), captions (m, D) with their image_of (m,), and entities (e, D)
    with their caption_of (e,), or None where the system has none.
    """

    images: np.ndarray
    captions: np.ndarray
    image_of: np.ndarray
    entities: np.ndarray | None
    caption_of: np.ndarray | None


@torch.no_grad()
def encode(
    model: Matcher, split: Split, texts: Texts, device: str = "cpu", size: int = 256,
    first: bool = False,
) -> Encoded:  # fmt: skip
    """All images of a split and their captions, or the first of each, through a model.

    The model is put in evaluation mode and stays there.
    """
    model.eval()
    images = []
    for start in range(0, len(split.features), size):
        rows = np.arange(start, min(start + size, len(split.features)))
        regions = torch.as_tensor(read_rows(split.features, rows), device=device)
        counts = torch.full((len(rows),), regions.shape[1], device=device)
        images.append(model.encode_images(regions, counts).cpu())
    every = np.arange(len(texts))
    every = np.unique(split.image_of, return_index=True)[1] if first else every
    captions, entities, owners = [], [], []
    for start in range(0, len(every), size):
        text = texts.batch(every[start : start + size]).to(device)
        caption, entity = model.encode_texts(text)
        captions.append(caption.cpu())
        if entity is not None and isinstance(text, GraphBatch):
            entities.append(entity.cpu())
            owners.append(start + text.caption.cpu())
    return Encoded(
        torch.cat(images).numpy(), torch.cat(captions).numpy(), split.image_of[every],
        torch.cat(entities).numpy() if entities else None,
        torch.cat(owners).numpy() if owners else None,
    )  # fmt: skip


def per_item(ranks: Ranks) -> dict[str, np.ndarray]:
    """Of each item, all captions and then all images: its rank, and what it adds to RSUM.

    "rank": a caption's of its image, an image's of its best own caption. The mean of "RSUM" over
    all items is the RSUM: the sum of R@1, R@5 and R@10 both ways, in percent.
    """
    parts = ranks.caption_ranks, ranks.image_ranks
    items = sum(map(len, parts))
    hits = [
        100 * items / len(part) * np.sum([part <= k for k in KS], axis=0, dtype=float)
        for part in parts
    ]
    return {"rank": np.concatenate(parts).astype(float), "RSUM": np.concatenate(hits)}


def right_in_family(scores: np.ndarray, image_of: np.ndarray, size: int) -> np.ndarray:
    """Whether a caption finds its image among its family of `size`: 100 or 0; NaN for images.

    scores (images, captions). What the whole family says tells none of them from the others, so
    this is what structure alone gives; chance is 100 / size.
    """
    first = image_of // size * size
    own = scores[first[:, None] + np.arange(size), np.arange(len(image_of))[:, None]]
    hit = 100.0 * (own.argmax(axis=1) == image_of - first)
    return np.concatenate([hit, np.full(len(scores), np.nan)])


def fold_ranks(images: np.ndarray, captions: np.ndarray, image_of: np.ndarray) -> np.ndarray:
    """RSUM of each item within its fold of 1,000 images (MS-COCO 1K): the mean is that of folds."""
    fold = image_of // FOLD
    value = np.empty(len(captions) + len(images))
    for k in range(int(fold.max()) + 1):
        own = np.flatnonzero(fold == k)
        rows = slice(FOLD * k, FOLD * (k + 1))
        ranks = rank_images_and_captions(images[rows], captions[own], image_of[own] - FOLD * k)
        items = np.concatenate([own, len(captions) + np.arange(len(images))[rows]])
        value[items] = per_item(ranks)["RSUM"]
    return value


def weakest_entity(seen: Encoded) -> np.ndarray:
    """min_k s(v, e_k) over the entities of each caption (eq. 14): (images, captions)."""
    if seen.entities is None or seen.caption_of is None:
        raise ValueError("this system has no entities to rerank with")
    starts = np.searchsorted(seen.caption_of, np.arange(len(seen.captions)))
    blocks = np.split(seen.images, range(1024, len(seen.images), 1024))  # all take gigabytes
    return np.concatenate(
        [np.minimum.reduceat(block @ seen.entities.T, starts, axis=1) for block in blocks]
    )


def mix(similarity: np.ndarray, weakest: np.ndarray, beta: float) -> np.ndarray:
    """Eq. 14: reranked similarities; arrays of one shape."""
    return beta * similarity + (1 - beta) * weakest


def best_beta(similarity: np.ndarray, weakest: np.ndarray, image_of: np.ndarray) -> float:
    """β of eq. 14 with the highest RSUM, of 0, 0.05, ..., 1; the larger one where tied."""
    rsum = [metrics(ranks_of_scores(mix(similarity, weakest, b), image_of))["rsum"] for b in BETAS]
    return float(BETAS[len(BETAS) - 1 - int(np.argmax(rsum[::-1]))])


def entity_ranks(scores: np.ndarray, graphs: GraphSet, split: Split) -> np.ndarray:
    """For each image the rank of the best entity that one of its own captions has, (images,).

    All different (name, attributes) of the split's captions are ranked (Section 4.4; the paper
    judged a few by eye). scores (images, different entities), as `different_entities` has them.
    """
    image, entity = images_with_entities(graphs, split)
    return best_ranks(scores, _by(image, entity))


def image_ranks(scores: np.ndarray, graphs: GraphSet, split: Split) -> np.ndarray:
    """For each different entity the rank of the best image of which a caption has it, (different,).

    All images of the split are ranked; scores as of `entity_ranks`.
    """
    image, entity = images_with_entities(graphs, split)
    return best_ranks(scores.T, _by(entity, image))


def images_with_entities(graphs: GraphSet, split: Split) -> tuple[np.ndarray, np.ndarray]:
    """All pairs, once each, of an image and a different entity of its captions: both (pairs,)."""
    caption, *_ = graphs.entities(np.arange(len(graphs)))
    _, which = different_entities(graphs)
    image, entity = np.unique(np.column_stack([split.image_of[caption], which]), axis=0).T
    return image, entity


def _by(keys: np.ndarray, values: np.ndarray) -> list[list[int]]:
    """The values of each key, all keys in order."""
    order = np.argsort(keys, kind="stable")
    ends = np.flatnonzero(np.diff(keys[order])) + 1
    return [own.tolist() for own in np.split(values[order], ends)]


def hits_of_captions(hit: np.ndarray, graphs: GraphSet, images: int) -> dict[str, np.ndarray]:
    """ "entity to image, R@K": what share of a caption's entities find an image of theirs, percent.

    hit (different entities, Ks): whether, or how likely, each is among the first K. An item a
    caption, then NaN for each image.
    """
    caption, *_ = graphs.entities(np.arange(len(graphs)))
    _, which = different_entities(graphs)
    count, none = np.bincount(caption, minlength=len(graphs)), np.full(images, np.nan)
    return {
        f"entity to image, R@{k}": np.concatenate(
            [100 * np.bincount(caption, column[which], len(graphs)) / count, none]
        )
        for k, column in zip(KS, hit.T, strict=True)
    }


def different_entities(graphs: GraphSet) -> tuple[np.ndarray, np.ndarray]:
    """Of all objects the first of each different kind, and of each object its kind's number."""
    _, name, described = graphs.entities(np.arange(len(graphs)))
    keys = np.column_stack([name, np.sort(described, axis=1)])
    _, index, which = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    return index, which.reshape(-1)


# --- One job -----------------------------------------------------------------------------------


def train_and_score(
    job: Job, arrays: Arrays, device: str = "cpu", checkpoint: Path | None = None
) -> Answer:
    """Train, and rank every test caption's image and every test image's captions.

    Values by item, all captions and then all images (`per_item`): "rank" and "RSUM"; "RSUM, 1K"
    where there are several thousand images, "in family" where there are families of them. A system
    of several members is their ensemble (similarities averaged, Section 4.2) and also has "RSUM of
    members" and, with entities, "RSUM, reranked" (eq. 14). An analysed one has "RSUM, edge 30 %"
    and so on, of parse errors (Section 9), "entity rank" of its images, and "entity to image, R@1"
    and so on of its captions.
    """
    started = time.process_time()
    system, test = System(**job.system), arrays.splits["test"]
    seen, dev, histories, models = [], [], [], []
    for member in range(system.members):
        own = replace(job, seed=job.seed + 1000 * member)
        path = checkpoint.with_stem(f"{checkpoint.stem}-{member}") if checkpoint else None
        model, history = train(own, arrays, device, path if member else checkpoint)
        texts = texts_of(system, arrays, own.seed)
        seen.append(encode(model, test, texts["test"], device))
        histories.append(history)
        models.append(model)
        if system.members > 1 or system.analysed:
            dev.append(encode(model, arrays.splits["val"], texts["val"], device))
        if member and path:
            path.unlink(missing_ok=True)
    values = _ranked(seen, test)
    if arrays.family > 1:
        values["in family"] = right_in_family(_similarity(seen), test.image_of, arrays.family)
    if dev and dev[0].entities is not None:
        values["RSUM, reranked"] = _reranked(seen, dev)
    if system.analysed:
        values |= _analysed(models[0], seen[0], test, device)
    return Answer({"test": values}, histories[0], time.process_time() - started)


def _similarity(seen: list[Encoded]) -> np.ndarray:
    return np.mean([one.images @ one.captions.T for one in seen], axis=0)


def _ranked(seen: list[Encoded], test: Split) -> dict[str, np.ndarray]:
    each = [
        per_item(rank_images_and_captions(one.images, one.captions, one.image_of)) for one in seen
    ]
    values = each[0]
    if len(seen) > 1:
        values = per_item(ranks_of_scores(_similarity(seen), test.image_of))
        values["RSUM of members"] = np.mean([one["RSUM"] for one in each], axis=0)
    elif len(test.features) >= 2 * FOLD:
        one = seen[0]
        values["RSUM, 1K"] = fold_ranks(one.images, one.captions, one.image_of)
    return values


def _reranked(seen: list[Encoded], dev: list[Encoded]) -> np.ndarray:
    """RSUM of items under eq. 14. β is chosen on all captions of dev, as many as test has:
    chosen on first captions alone, it came out too small and reranking harmed.
    """
    known, new = (
        (_similarity(part), np.mean([weakest_entity(one) for one in part], axis=0))
        for part in (dev, seen)
    )
    beta = best_beta(*known, dev[0].image_of)
    return per_item(ranks_of_scores(mix(*new, beta), seen[0].image_of))["RSUM"]


def _analysed(model: Matcher, seen: Encoded, test: Split, device: str) -> Mapping[str, np.ndarray]:
    values = {}
    for name in (name for name in test.texts if name[-1].isdigit()):
        hurt = encode(model, test, test.texts[name], device)
        ranks = rank_images_and_captions(hurt.images, hurt.captions, hurt.image_of)
        values[f"RSUM, {name} %"] = per_item(ranks)["RSUM"]
    graphs = test.texts[model.system.reads]
    if seen.entities is not None and isinstance(graphs, GraphSet):
        none = np.full(len(test.image_of), np.nan)  # captions do not take part
        scores = seen.images @ seen.entities[different_entities(graphs)[0]].T
        values["entity rank"] = np.concatenate([none, entity_ranks(scores, graphs, test)])
        hit = image_ranks(scores, graphs, test)[:, None] <= np.array(KS)
        values |= hits_of_captions(hit, graphs, len(test.features))
    return values
