"""Many vectors to one: GPO (Chen et al., "Learning the Best Pooling Strategy for Visual Semantic
Embedding", CVPR 2021), as CORA pools objects and regions, and what it is made of.
"""

import torch
from torch import Tensor, nn

INITIAL_BIAS = 3.0  # of `GPO`: the largest quarter of values starts with 56 % of the weight
TEMPERATURE, WIDTH = 0.1, 32  # of the softmax; of position encodings and of the Bi-GRU's states


def valid(lengths: Tensor, longest: int) -> Tensor:
    """A mask (B, longest) of bool: row b is True at its first lengths[b] positions."""
    return torch.arange(longest, device=lengths.device) < lengths[:, None]


def sinusoid(positions: Tensor, width: int) -> Tensor:
    """Sine and cosine in turn (Section 3.1 of GPO's paper): positions (n,) -> (n, width)."""
    rates = 10000 ** (-torch.arange(0, width, 2, device=positions.device) / width)
    angle = positions[:, None].float() * rates
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)


class GPO(nn.Module):
    """Generalised pooling: a learned weighted mean of the values sorted per dimension.

    The weights depend on the number of vectors only: a Bi-GRU reads their ranks. initial_bias
    (ours): the weights of n vectors start as exp(-initial_bias · rank / n) instead of by chance; 0
    would be mean pooling.
    """

    def __init__(self, initial_bias: float | None = None):
        super().__init__()
        self.initial_bias = initial_bias
        self.gru = nn.GRU(WIDTH, WIDTH, batch_first=True, bidirectional=True)
        self.score = nn.Linear(WIDTH, 1, bias=False)
        if initial_bias is not None:
            nn.init.zeros_(self.score.weight)

    def weights(self, lengths: Tensor) -> Tensor:
        """θ (B, longest): row b holds lengths[b] weights that sum to 1, then zeros."""
        different, row = lengths.unique(return_inverse=True)
        longest = int(different[-1])
        ranks = sinusoid(torch.arange(longest, device=lengths.device), WIDTH)
        states = bidirectional(self.gru, ranks.expand(len(different), -1, -1), different)
        scores = self.score(states).squeeze(2)  # (different, longest)
        if self.initial_bias is not None:
            rank = torch.arange(longest, device=lengths.device) / different[:, None]
            scores = scores - self.initial_bias * TEMPERATURE * rank
        scores = scores.masked_fill(~valid(different, longest), -torch.inf)
        return (scores / TEMPERATURE).softmax(dim=1)[row]

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """(B, n, D) of which the first lengths[b] >= 1 are valid -> (B, D)."""
        if (lengths < 1).any():
            raise ValueError("pooling needs at least one vector a row")
        theta = self.weights(lengths)  # (B, n)
        features = features[:, : theta.shape[1]]
        padding = ~valid(lengths, theta.shape[1])[..., None]
        falling = features.masked_fill(padding, -torch.inf).sort(dim=1, descending=True).values
        return (falling.masked_fill(padding, 0.0) * theta[..., None]).sum(dim=1)


def bidirectional(gru: nn.GRU, inputs: Tensor, lengths: Tensor) -> Tensor:
    """States (B, n, hidden) of a Bi-GRU over inputs (B, n, d), its directions averaged."""
    packed = nn.utils.rnn.pack_padded_sequence(
        inputs, lengths.cpu(), batch_first=True, enforce_sorted=False
    )
    states, _ = nn.utils.rnn.pad_packed_sequence(gru(packed)[0], batch_first=True)
    return states.unflatten(2, (2, -1)).mean(dim=2)


def padded(values: Tensor, group: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """Flat rows (n, d) of sorted groups (n,) -> (groups, longest, d) and lengths (groups,)."""
    lengths = torch.bincount(group, minlength=groups)
    column = torch.arange(len(group), device=group.device) - (lengths.cumsum(0) - lengths)[group]
    table = values.new_zeros(groups, int(lengths.max()), values.shape[1])
    return table.index_put((group, column), values), lengths
