"""What notebook 00 trains and how: systems, one training, and the jobs of its record."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau

from mmlib.core import ranking
from mmlib.core.fit import Descent, fit, seed_everything
from mmlib.core.jobs import NO_SEED, Answer, History, Job, Run, Stage
from mmlib.features.encoders import Shape, Sizes
from mmlib.papers.start.data import ENDINGS, PLACES, Arrays
from mmlib.papers.start.method import Captioned, Search, Settings, batch_loss, ranks_of

PAPER = "start"
CAPTIONS = "Captions"  # not a system, but a row of the record: properties of the test captions
SYSTEMS: dict[str, Mapping[str, Any]] = {
    "Search": {"system": "Search", "trained": True},
    "Untrained": {"system": "Untrained", "trained": False},
}


def budget(tier: str, dataset: str) -> Settings:
    """The settings of all systems."""
    return Settings()


def systems(tier: str, dataset: str) -> dict[str, Mapping[str, Any]]:
    """The columns of each row of the record."""
    return {**SYSTEMS, CAPTIONS: {"system": CAPTIONS}}


def batches(data: Captioned, settings: Settings, seed: int, epoch: int) -> list[np.ndarray]:
    """Rows of captions, a batch at a time: about two captions of each picture, in random order."""
    count, size = 2 * len(data.features), settings.batch
    rows = np.random.default_rng([seed, epoch]).permutation(len(data.ids))[:count]
    return [rows[i : i + size] for i in range(0, count - size + 1, size)]


def untrained(
    arrays: Arrays, settings: Settings, seed: int, architecture: type[Search] = Search
) -> Search:
    """A model with random weights."""
    seed_everything(seed)
    _, regions, width = arrays.splits["train"].features.shape
    shape = Shape(width=settings.width, heads=4, image_layers=1, words_layers=1, dropout=0.0)
    return architecture(Sizes(arrays.vocabulary, width, regions, settings.words), shape)


def train(
    arrays: Arrays, settings: Settings, seed: int, run: Run = Run(),
    architecture: type[Search] = Search,
) -> tuple[Search, History]:  # fmt: skip
    """A model trained from a seed, and its history, one entry an epoch."""
    model = untrained(arrays, settings, seed, architecture).to(run.device)
    training, dev = (arrays.splits[name].on(run.device) for name in ("train", "val"))
    first = np.unique(arrays.splits["val"].image_of, return_index=True)[1][: settings.batch]

    def evaluate() -> dict[str, float]:  # the dev loss is of one caption a picture
        recall = 100 * ranking.hits(ranks_of(model, dev), 10, "t2i").mean()
        return {"dev_loss": float(batch_loss(model, dev, first)), "dev_R@10": float(recall)}

    optimizer = torch.optim.Adam(model.parameters(), lr=settings.learning_rate, fused=True)
    schedule = ReduceLROnPlateau(optimizer, factor=0.2, patience=settings.patience)
    step = Descent(lambda rows: batch_loss(model, training, rows), optimizer, schedule)
    history = fit(
        model, lambda epoch: batches(training, settings, seed, epoch), step, evaluate,
        epochs=settings.epochs, seed=seed, run=run,
    )  # fmt: skip
    return model, history


def score(model: Search, arrays: Arrays, device: str = "cpu") -> dict[str, np.ndarray]:
    """R@K of every test caption (captions,): 100 where its picture is among the first K, else 0."""
    ranks = {name: ranks_of(model, arrays.splits[name].on(device)) for name in ("test", *ENDINGS)}
    values = {f"R@{k}": 100.0 * ranking.hits(ranks["test"], k, "t2i") for k in ranking.KS}
    return values | {
        f"R@10, {name}": 100.0 * ranking.hits(ranks[name], 10, "t2i") for name in ENDINGS
    }


def train_and_score(job: Job, arrays: Arrays, run: Run = Run()) -> Answer:
    """Train, if the job's system is trained, and score every test caption."""
    settings = Settings(**job.settings)
    settings = settings if job.system["trained"] else replace(settings, epochs=0)
    model, history = train(arrays, settings, job.seed, run)
    return Answer({"test": score(model, arrays, run.device)}, history)


def describe_captions(job: Job, arrays: Arrays, run: Run = Run()) -> Answer:
    """Of each test caption: how many words and marks it has, and whether it is drawn of a place."""
    test, setting = arrays.splits["test"], np.array(arrays.places)
    drawn = {name: np.isin(test.image_of, np.flatnonzero(setting == name)) for name in PLACES}
    return Answer({"test": {"words": test.lengths, **drawn}})


def stages(tier: str, data: Mapping[str, Arrays], seeds: Sequence[int]) -> list[Stage]:
    """All that evidence needs: the captions are described, and each system trained or not."""
    settings = asdict(budget(tier, tier))
    trainings = [
        Job(PAPER, tier, tier, system, seed, settings)
        for seed in seeds
        for system in SYSTEMS.values()
    ]
    captions = Job(PAPER, tier, tier, {"system": CAPTIONS}, NO_SEED)
    return [Stage(describe_captions, [captions]), Stage(train_and_score, trainings)]
