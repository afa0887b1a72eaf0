"""The method of notebook 00: a dual encoder of pictures and captions."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from mmlib.core import ranking
from mmlib.features.encoders import DualEncoder, with_cls


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
        fields = vars(self).items()
        return Captioned(**{name: torch.tensor(value, device=device) for name, value in fields})


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


def batch_loss(model: Search, data: Captioned, rows: np.ndarray) -> Tensor:
    """The in-batch softmax of some captions (rows of `data`) with their pictures."""
    pictures, longest = data.image_of[rows], data.lengths[rows].max()
    same = pictures[:, None] == pictures  # (B, B): captions of one picture are no negatives
    return model.loss(data.features[pictures], data.ids[rows, :longest], data.lengths[rows], same)


def ranks_of(model: Search, data: Captioned) -> ranking.Ranks:
    """The ranks of a model on all pictures and captions of a split."""
    scores, _ = model.rank(data.features, data.ids, data.lengths)
    return ranking.ranks_of_scores(scores, data.image_of.cpu().numpy())
