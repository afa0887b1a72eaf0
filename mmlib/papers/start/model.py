"""The dual encoder of notebook 00: how it is trained, and how it is scored on every caption."""

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.optim.lr_scheduler import ReduceLROnPlateau

from mmlib.core import ranking
from mmlib.core.fit import fit, seed_everything
from mmlib.core.jobs import Answer, Job
from mmlib.features.encoders import DualEncoder, Shape, Sizes, with_cls


@dataclass(frozen=True)
class Settings:
    """How a model is trained; words: of a caption, at most; patience: epochs, of the rate."""

    epochs: int = 5
    batch: int = 64
    learning_rate: float = 0.003
    patience: int = 1
    words: int = 40
    width: int = 64


@dataclass(frozen=True, eq=False)
class Captioned:
    """Pictures with captions, as arrays or, after `on`, as tensors.

    features (pictures, R, W); ids (captions, longest), filled up with 0; lengths (captions,);
    image_of (captions,): each caption's picture.
    """

    features: Any
    ids: Any
    lengths: Any
    image_of: Any

    def on(self, device: str) -> "Captioned":
        """The same as tensors on a device."""
        parts = vars(self).items()
        return Captioned(**{name: torch.tensor(part, device=device) for name, part in parts})


@dataclass(frozen=True, eq=False)
class Arrays:
    """The world ready for training. splits: "train", "val", "test", and "test" by other endings.

    vocabulary: how many ids there are; places: the setting of each test picture.
    """

    splits: Mapping[str, Captioned]
    vocabulary: int
    places: tuple[str, ...]

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all that training and scoring read."""
        digest = hashlib.sha256(repr((self.vocabulary, self.places)).encode())
        for name, split in self.splits.items():
            for part in vars(split).values():
                digest.update(f"{name}{part.shape}{part.dtype}".encode())
                digest.update(np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()[:16]

    def clusters(self, split: str) -> np.ndarray:
        """The picture of each caption, (captions,): captions of one picture count together."""
        return self.splits[split].image_of


class Search(DualEncoder):
    """A dual encoder whose embeddings are made of the maximum over a transformer's vectors."""

    def pool(self, states: Tensor, mask: Tensor) -> Tensor:
        """Vectors (B, L, D), mask (B, L), 0 where there is no word -> (B, D), the maximum."""
        return states.masked_fill(mask[..., None] == 0, -torch.inf).amax(dim=1)

    def image_states(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Regions (B, R, W) -> states (B, 1 + R, D), unit vectors (B, space)."""
        states, _ = self.image(images)
        best = self.pool(states, torch.ones_like(states[..., 0]))
        return states, F.normalize(self.to_image(best), dim=1)

    def text_states(self, ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Ids (B, L), lengths (B,) -> states (B, 1 + L, D), mask (B, 1 + L), unit vectors."""
        tokens, mask = with_cls(ids, lengths)
        states = self.words(input_ids=tokens, attention_mask=mask).last_hidden_state
        return states, mask, F.normalize(self.to_text(self.pool(states, mask)), dim=1)


def untrained(arrays: Arrays, settings: Settings, seed: int, kind: type[Search] = Search) -> Search:
    """A model with random weights."""
    seed_everything(seed)
    _, regions, width = arrays.splits["train"].features.shape
    shape = Shape(width=settings.width, heads=4, image_layers=1, words_layers=1, dropout=0.0)
    return kind(Sizes(arrays.vocabulary, width, regions, settings.words), shape)


def batches(data: Captioned, settings: Settings, seed: int, epoch: int) -> list[np.ndarray]:
    """Rows of captions, a batch at a time: about two captions of each picture, in random order."""
    count, size = 2 * len(data.features), settings.batch
    rows = np.random.default_rng([seed, epoch]).permutation(len(data.ids))[:count]
    return [rows[i : i + size] for i in range(0, count - size + 1, size)]


def loss_of(model: Search, data: Captioned, rows: np.ndarray) -> Tensor:
    """The in-batch softmax of some captions (rows of `data`) with their pictures."""
    own, longest = data.image_of[rows], data.lengths[rows].max()
    same = own[:, None] == own
    return model.loss(data.features[own], data.ids[rows, :longest], data.lengths[rows], same)


def ranks_of(model: Search, data: Captioned) -> ranking.Ranks:
    """The ranks of a model on all pictures and captions of a split."""
    scores, _ = model.rank(data.features, data.ids, data.lengths)
    return ranking.ranks_of_scores(scores, data.image_of.cpu().numpy())


def look(model: Search, dev: Captioned, settings: Settings) -> dict[str, float]:
    """The dev loss, of one caption a picture, and the dev R@10 in percent."""
    one_each = np.unique(dev.image_of.cpu().numpy(), return_index=True)[1][: settings.batch]
    found = 100 * ranking.hits(ranks_of(model, dev), 10, "t2i").mean()
    return {"dev_loss": float(loss_of(model, dev, one_each)), "dev_R@10": float(found)}


def train(
    arrays: Arrays, settings: Settings, seed: int, device: str = "cpu", kind: type[Search] = Search,
    checkpoint: Path | None = None, after_epoch: Callable[[Any], object] = lambda history: None,
) -> tuple[Search, list[dict[str, float]]]:  # fmt: skip
    """A model trained from a seed, and its history, one entry an epoch."""
    model = untrained(arrays, settings, seed, kind).to(device)
    learn, dev = (arrays.splits[name].on(device) for name in ("train", "val"))
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.learning_rate, fused=True)
    history = fit(
        model,
        lambda epoch: batches(learn, settings, seed, epoch),
        lambda rows: loss_of(model, learn, rows),
        lambda: look(model, dev, settings),
        epochs=settings.epochs, optimizer=optimizer, seed=seed, device=device,
        schedule=ReduceLROnPlateau(optimizer, factor=0.2, patience=settings.patience),
        checkpoint=checkpoint, after_epoch=after_epoch,
    )  # fmt: skip
    return model, history


ENDINGS = {"full stop": ".", "no full stop": ""}  # what captions end in, in splits of these names


def score(model: Search, arrays: Arrays, device: str = "cpu") -> dict[str, np.ndarray]:
    """R@K of every test caption (captions,): 100 where its picture is among the first K, else 0."""
    ranks = ranks_of(model, arrays.splits["test"].on(device))
    found = {f"R@{k}": 100.0 * ranking.hits(ranks, k, "t2i") for k in ranking.KS}
    for ending in ENDINGS:
        ranks = ranks_of(model, arrays.splits[ending].on(device))
        found[f"R@10, {ending}"] = 100.0 * ranking.hits(ranks, 10, "t2i")
    return found


def train_and_score(
    job: Job, arrays: Arrays, device: str = "cpu", checkpoint: Path | None = None
) -> Answer:
    """Train, if the job's system is trained, and score every test caption."""
    started = time.process_time()
    settings = Settings(**job.settings)
    settings = settings if job.system["trained"] else replace(settings, epochs=0)
    model, history = train(arrays, settings, job.seed, device, checkpoint=checkpoint)
    return Answer({"test": score(model, arrays, device)}, history, time.process_time() - started)
