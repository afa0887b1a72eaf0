"""A GRU over sentences of different lengths: the figures of `torch.nn.GRU`, faster on a CPU."""

import torch
from torch import Tensor, nn


class PackedGRU(nn.GRU):
    """`nn.GRU` of one layer and one direction that returns each sentence's last state.

    The product of a word with the input weights is computed once a batch, not once a token, and
    the gradient is written out (`_Recurrence`).
    """

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)

    def forward(self, words: Tensor, ids: Tensor, lengths: Tensor) -> Tensor:  # type: ignore[override]
        """Last states (B, H), float32.

        words (vocabulary, E): a vector for each word; ids (B, L): which words; lengths (B,): how
        many of them count, at least 1, on the CPU.
        """
        order = lengths.argsort(descending=True, stable=True)
        ids, lengths = ids[order.to(ids.device)], lengths[order]
        steps = torch.arange(int(lengths[0])).unsqueeze(1)
        sizes = (steps < lengths).sum(1).tolist()  # sentences with a first, second, ... word
        tokens = torch.cat([ids[:size, step] for step, size in enumerate(sizes)])
        with torch.autocast(words.device.type, enabled=False):
            table = torch.addmm(self.bias_ih_l0, words.float(), self.weight_ih_l0.T)  # type: ignore[arg-type]
            inputs = nn.functional.embedding(tokens, table)
            last = _Recurrence.apply(inputs, self.weight_hh_l0, self.bias_hh_l0, sizes)
        return last[order.argsort().to(last.device)]


class _Recurrence(torch.autograd.Function):
    """The recurrent part, gates in the order of `nn.GRU`: reset, update, new.

    inputs (tokens, 3H): what each word adds to the gates, all first words, then all second words
    and so on, longest sentence first. weight (3H, H) and bias (3H,): of the state.
    """

    @staticmethod
    def forward(ctx, inputs, weight, bias, sizes):  # type: ignore[override]
        width = weight.shape[1]
        state = inputs.new_zeros(sizes[0], width)
        before, recurrent = (inputs.new_empty(len(inputs), k * width) for k in (1, 3))
        gates, start = inputs.clone(), 0
        for count in sizes:
            h, at = state[:count], slice(start, start + count)
            before[at] = h
            a, g = gates[at], recurrent[at]
            torch.addmm(bias, h, weight.T, out=g)
            reset_update, new = a[:, : 2 * width], a[:, 2 * width :]
            reset_update.add_(g[:, : 2 * width]).sigmoid_()
            new.addcmul_(a[:, :width], g[:, 2 * width :]).tanh_()
            h.lerp_(new, 1 - a[:, width : 2 * width])
            start += count
        ctx.save_for_backward(weight, before, recurrent[:, 2 * width :], gates)
        ctx.sizes = sizes
        return state

    @staticmethod
    def backward(ctx, grad):  # type: ignore[override]
        weight, before, recurrent, gates = ctx.saved_tensors
        width = weight.shape[1]
        r, z, n = gates.split(width, 1)
        new = (1 - z) * (1 - n * n)
        # What one unit of gradient at the state gives at the state's reset, update and new gate.
        slope = torch.cat([new * recurrent * r * (1 - r), (before - n) * z * (1 - z), new * r], 1)
        at_own = torch.empty_like(slope)
        grads, state, start = torch.empty_like(new), grad.clone(), len(gates)
        for count in reversed(ctx.sizes):
            start -= count
            at, d = slice(start, start + count), state[:count]
            grads[at] = d
            g = at_own[at]
            torch.mul(slope[at].view(count, 3, width), d.unsqueeze(1), out=g.view(count, 3, width))
            d.mul_(z[at]).addmm_(g, weight)
        at_input = torch.cat([at_own[:, : 2 * width], grads * new], 1)
        return at_input, at_own.T @ before, at_own.sum(0), None
