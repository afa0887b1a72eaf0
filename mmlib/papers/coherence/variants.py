"""What other systems have in the place of the paper's attention and head."""

import torch
from torch import Tensor, nn

from mmlib.papers.coherence.method import CoherenceHead


class LastStates(nn.Module):
    """Without attention: the states of both directions after their last word."""

    def __init__(self, width: int):
        super().__init__()
        self.hidden = width // 2

    def forward(self, states: Tensor, lengths: Tensor) -> tuple[Tensor, None]:
        """States (B, L, 2H) of texts of `lengths` (B,) -> (B, 2H), and no weights."""
        last = (lengths - 1)[:, None, None].expand(-1, 1, self.hidden)
        forwards = states[:, :, : self.hidden].gather(1, last)[:, 0]
        return torch.cat([forwards, states[:, 0, self.hidden :]], dim=1), None


class ProductHead(nn.Module):
    """A linear layer on z_S ∘ z_I, position by position: logit_c = d_c·(z_S ∘ z_I) + v_c.

    It can say whether two vectors agree where it matters for c, and nothing about one alone.
    """

    def __init__(self, width: int, relations: int):
        super().__init__()
        self.linear = nn.Linear(width, relations)

    def forward(self, texts: Tensor, images: Tensor) -> Tensor:
        """z_S, z_I (B, D) of pairs -> logits (B, C)."""
        return self.linear(texts * images)

    def all_pairs(self, texts: Tensor, images: Tensor) -> Tensor:
        """Probabilities x (n, m, C) that each relation holds, every text with every image."""
        weighted = texts[:, None] * self.linear.weight  # (n, C, D)
        return (weighted @ images.T + self.linear.bias[:, None]).sigmoid().transpose(1, 2)


HEADS: dict[str, type[CoherenceHead | ProductHead]] = {
    "sum": CoherenceHead,
    "product": ProductHead,
}
