"""One training of paper 03 and what is measured of it: the work of one job."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from mmlib.core.fit import Descent, fit, seed_everything, warm_up_cosine
from mmlib.core.jobs import Answer, History, Job, Run
from mmlib.core.parallel import ahead
from mmlib.core.ranking import Ranks, metrics, rank_images_and_captions, ranks_of_scores
from mmlib.features.bert import BertEncoder
from mmlib.papers.cora import method
from mmlib.papers.cora.method import GPO, Encoded, Matcher, encode, per_item
from mmlib.papers.cora.run.batches import Arrays, Batch, GraphSet, Texts, training_batches
from mmlib.papers.cora.run.systems import SPLITS, Settings, System
from mmlib.papers.cora.variants import PhraseBERT, build


def texts_of(system: System, arrays: Arrays) -> dict[str, Texts]:
    """split -> the texts that the system reads; ValueError where the data have none."""
    texts = arrays.splits["test"].texts
    if system.reads not in texts:
        raise ValueError(f"{system.system} reads {system.reads!r}; there is {', '.join(texts)}")
    return {name: arrays.splits[name].texts[system.reads] for name in SPLITS}


def fresh(system: System, settings: Settings, arrays: Arrays, seed: int = 0) -> Matcher:
    """The model that a training of this seed starts from."""
    seed_everything(seed)
    width, words = arrays.splits["train"].features.shape[2], torch.tensor(arrays.embeddings)
    if system.scratch:
        words[1:] = torch.randn(words[1:].shape, generator=torch.Generator().manual_seed(seed))
    model = build(system, settings, width, words, arrays.bert[0])
    for pool in (module for module in model.modules() if system.mean and isinstance(module, GPO)):
        nn.init.zeros_(pool.score.weight).requires_grad_(False)  # of equal ranks, for good
    return model


def train(job: Job, arrays: Arrays, run: Run = Run()) -> tuple[Matcher, History]:
    """Train one system with AdamW; the model is that of the best RSUM on dev (the authors' code).

    Dev counts the first caption of each image, which is enough to choose an epoch by.
    History: an epoch's train_loss, dev_RSUM, and dev_loss, which is 600 - dev_RSUM.
    """
    system, settings = System(**job.system), Settings(**job.settings)
    texts, dev = texts_of(system, arrays), arrays.splits["val"]
    model = fresh(system, settings, arrays, job.seed).to(run.device)
    optimizer = torch.optim.AdamW(
        parameter_groups(model, settings), weight_decay=settings.weight_decay, fused=True
    )
    # What is evaluated: the model, or a running mean of its weights.
    evaluated, trained = model, nn.ModuleList([model])
    if settings.ema:
        decay = get_ema_multi_avg_fn(settings.ema)
        mean = AveragedModel(model, multi_avg_fn=decay, use_buffers=True)
        optimizer.register_step_post_hook(lambda *_: mean.update_parameters(model))
        evaluated, trained = cast(Matcher, mean.module), nn.ModuleList([model, mean])
    split = arrays.splits["train"]
    batches = training_batches(system, settings, split, texts["train"], job.seed, run.device)
    shown = sum(min(len(group), settings.captions) for group in split.captions_of)
    steps = settings.epochs * (shown // settings.batch + (shown % settings.batch > 1))
    schedule = LambdaLR(optimizer, partial(learning_rate, steps=steps, settings=settings))

    def epoch(number: int) -> Iterator[tuple[Batch, bool]]:
        averaged = 0.0 if system.hardest else settings.mean_negatives
        mean_negatives = number < averaged * settings.epochs
        for bert in (module for module in model.modules() if isinstance(module, PhraseBERT)):
            bert.frozen = number < settings.frozen_epochs * settings.epochs
            bert.train(bert.training)
        return ((batch, mean_negatives) for batch in ahead(batches(number)))

    def evaluate() -> dict[str, float]:
        encoded = encode(evaluated, dev, texts["val"], run.device, first=True)
        rsum = metrics(_ranks(encoded))["rsum"]
        return {"dev_loss": 600 - rsum, "dev_RSUM": rsum}

    step = Descent(lambda batch: model.loss(*batch), optimizer, schedule)
    history = fit(trained, epoch, step, evaluate, epochs=settings.epochs, seed=job.seed, run=run)
    return evaluated, history


def _ranks(encoded: Encoded) -> Ranks:
    return rank_images_and_captions(encoded.images, encoded.captions, encoded.image_of)


def learning_rate(step: int, steps: int, settings: Settings) -> float:
    """Share of the learning rate at a step: see `Settings.schedule`."""
    warmup = round(settings.warmup_fraction * steps)
    if settings.schedule == "cosine":
        return warm_up_cosine(step, steps, warmup)
    high = min(1.0, (step + 1) / warmup) if warmup else 1.0
    return high * (0.1 if step >= settings.lr_decay_at * steps else 1.0)


def parameter_groups(model: nn.Module, settings: Settings) -> list[dict[str, Any]]:
    """For an optimiser: word vectors at `word_rate` times the rate of all others.

    Of a BERT only what it is to learn, at rates of its own.
    """
    rate, modules = settings.learning_rate, list(model.modules())
    berts = [m for m in modules if isinstance(m, BertEncoder)]
    of_berts = {id(p) for bert in berts for p in bert.parameters()}
    words = {id(m.weight): m.weight for m in modules
             if isinstance(m, nn.Embedding) and id(m.weight) not in of_berts}  # fmt: skip
    others = [p for p in model.parameters() if id(p) not in words and id(p) not in of_berts]
    groups: list[dict[str, Any]] = [
        {"params": others, "lr": rate},
        {"params": [*words.values()], "lr": rate * settings.word_rate},
    ]
    return groups + [group for bert in berts for group in bert.parameter_groups(rate)]


def train_and_score(job: Job, arrays: Arrays, run: Run = Run()) -> Answer:
    """Train, and rank every test caption's image and every test image's captions.

    Values by item, all captions and then all images (`per_item`): "rank" and "RSUM", `in_folds`,
    "in family" where there are families of images, `swap_values`. A system of several members is
    their ensemble (similarities averaged, Section 4.2), with "RSUM of members" and, with entities,
    "RSUM, reranked" (eq. 14). Diagnostics are "RSUM, edge 30 %" and so on, of parse errors
    (Section 9).
    """
    system, test, val = System(**job.system), arrays.splits["test"], arrays.splits["val"]
    texts, members, dev = texts_of(system, arrays), [], []
    for number in range(system.members):
        path = run.checkpoint and run.checkpoint.with_stem(f"{run.checkpoint.stem}-{number}")
        member = replace(run, checkpoint=path) if number else run
        model, history = train(replace(job, seed=job.seed + 1000 * number), arrays, member)
        members.append(encode(model, test, texts["test"], run.device))
        if system.members > 1 or system.record_diagnostics:
            dev.append(encode(model, val, texts["val"], run.device))
        if number == 0:
            first_history = history
        elif member.checkpoint:
            member.checkpoint.unlink(missing_ok=True)
    similarity = np.mean([member.similarity for member in members], axis=0)
    alone = [per_item(_ranks(member)) for member in members]
    values = alone[0]
    if system.members > 1:
        values = per_item(ranks_of_scores(similarity, test.image_of))
        values["RSUM of members"] = np.mean([of_member["RSUM"] for of_member in alone], axis=0)
    values |= method.in_folds(similarity, test.image_of)
    if arrays.family > 1:
        values["in family"] = method.right_in_family(similarity, test.image_of, arrays.family)
    if test.swaps and len(members) == 1:
        read = test.texts[f"{system.reads}, swapped"]
        swapped = encode(model, replace(test, image_of=test.image_of_swaps), read, run.device)
        values |= method.swap_values(members[0].own, swapped.own, test.swaps, len(test.features))
    if dev and dev[0].entities is not None:
        # β is chosen on all captions of dev, as many as test has: chosen on first captions alone,
        # it came out too small and reranking harmed.
        of_dev = np.mean([member.similarity for member in dev], axis=0)
        weakest_of_dev, weakest = (
            np.mean([method.weakest_entity(member) for member in split], axis=0)
            for split in (dev, members)
        )
        beta = method.best_beta(of_dev, weakest_of_dev, dev[0].image_of)
        mixed = beta * similarity + (1 - beta) * weakest
        values["RSUM, reranked"] = per_item(ranks_of_scores(mixed, test.image_of))["RSUM"]
    graphs = test.texts[system.reads]
    if system.record_diagnostics and isinstance(graphs, GraphSet):  # of one member
        for name in (name for name in test.texts if name[-1].isdigit()):
            ranks = _ranks(encode(model, test, test.texts[name], run.device))
            values[f"RSUM, {name} %"] = per_item(ranks)["RSUM"]
    return Answer({"test": values}, first_history)
