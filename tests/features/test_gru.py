"""The fast GRU has the values and all gradients of `torch.nn.GRU`."""

import pytest
import torch
from torch import nn

from mmlib.features.gru import PackedGRU

VOCABULARY, WIDTH, HIDDEN = 11, 5, 7


def by_torch(gru: nn.GRU, words, ids, lengths):
    """The last states by `torch.nn.GRU` with the same weights."""
    packed = nn.utils.rnn.pack_padded_sequence(
        words[ids], lengths, batch_first=True, enforce_sorted=False
    )
    return nn.GRU.forward(gru, packed)[1][0]


@pytest.mark.parametrize(
    "lengths", [[1], [6], [4, 4, 4], [1, 1], [2, 6, 1, 3], [6, 5, 4, 3, 2, 1], [1, 2, 2, 6, 6]],
    ids=str,
)  # fmt: skip
def test_values_and_gradients_are_those_of_torch(lengths):
    torch.manual_seed(len(lengths))
    gru, lengths = PackedGRU(WIDTH, HIDDEN), torch.tensor(lengths)
    words = torch.randn(VOCABULARY, WIDTH, requires_grad=True)
    ids = torch.randint(VOCABULARY, (len(lengths), 6))  # words beyond the length must not count
    weights = torch.randn(len(lengths), HIDDEN)
    result = []
    for last in (gru(words, ids, lengths), by_torch(gru, words, ids, lengths)):
        gru.zero_grad()
        words.grad = None
        (weights * last).sum().backward()
        result.append([last.detach(), words.grad, *(p.grad for p in gru.parameters())])
    assert len(result[0]) == 6
    for ours, wanted in zip(*result, strict=True):
        assert torch.allclose(ours, wanted, atol=1e-5), (ours - wanted).abs().max()
        assert wanted.any() or max(lengths) == 1  # the first state is 0: its weights learn nothing


def test_it_stays_in_full_precision_under_autocast():
    torch.manual_seed(0)
    gru, words = PackedGRU(WIDTH, HIDDEN), torch.randn(VOCABULARY, WIDTH)
    arguments = torch.randint(VOCABULARY, (2, 4)), torch.tensor([4, 2])
    with torch.autocast("cpu", torch.bfloat16):
        result = gru(words.bfloat16().float(), *arguments)
    assert result.dtype == torch.float32
    assert torch.equal(result, gru(words.bfloat16().float(), *arguments))
