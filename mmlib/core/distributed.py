"""One training on several processes or GPUs: `torchrun --nproc-per-node 2 script.py`.

A contrastive loss needs every embedding of its batch. So each process encodes its share of a
batch's rows, all get the embeddings of all, and each computes the whole loss. Figures are those of
one process, up to rounding.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, distributed, nn

from mmlib.core import fit as single


@contextmanager
def joined(device: str = "cpu") -> Iterator[str]:
    """Join the processes that torchrun started; gives this one's device.

    device: "cpu" (by gloo), or "cuda" (by NCCL), of which each process takes one.
    Raises ValueError outside of torchrun.
    """
    if device == "cuda":
        device = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
        torch.cuda.set_device(device)
    distributed.init_process_group("gloo" if device == "cpu" else "nccl")
    try:
        yield device
    finally:
        distributed.destroy_process_group()


class _Gather(torch.autograd.Function):
    """Rows (n, D) of this process -> (n, processes, D) of all."""

    @staticmethod
    def forward(ctx, own):  # type: ignore[override]
        every = [torch.empty_like(own) for _ in range(distributed.get_world_size())]
        distributed.all_gather(every, own.contiguous())
        return torch.stack(every, dim=1)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[override]
        # All have the same loss, so nothing is exchanged: `fit` takes the mean over processes.
        return distributed.get_world_size() * grad[:, distributed.get_rank()]


@contextmanager
def shared(encoders: Sequence[nn.Module]) -> Iterator[None]:
    """Let each process encode every so many-th row of what these modules are given.

    An encoder takes tensors of B rows and returns (B, D), each row made of its own row alone: no
    batch norm; where it drops values row by row, one process would have dropped others. All
    processes must call it, with the same rows.
    """
    counts: list[int] = []

    def cut(encoder: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        counts.append(len(inputs[0]))
        size, rank = distributed.get_world_size(), distributed.get_rank()
        share = -(-counts[-1] // size)  # equal shares: the last ones may begin anew
        rows = torch.arange(rank, rank + size * share, size) % counts[-1]
        return tuple(values[rows.to(values.device)] for values in inputs)

    def gather(encoder: nn.Module, inputs: tuple[Tensor, ...], own: Tensor) -> Tensor:
        return _Gather.apply(own).flatten(0, 1)[: counts.pop()]

    hooks = [encoder.register_forward_pre_hook(cut) for encoder in encoders]
    hooks += [encoder.register_forward_hook(gather) for encoder in encoders]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def fit(
    model: nn.Module, *parts: Any, optimizer: torch.optim.Optimizer, encoders: Sequence[str],
    **more: Any,
) -> list[dict[str, float]]:  # fmt: skip
    """`mmlib.core.fit.fit` in each of the `joined` processes, with the figures of one.

    encoders: names of the submodules whose rows are `shared`; the rest is as there.
    """

    def mean_gradients(optimizer: torch.optim.Optimizer, *arguments: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    distributed.all_reduce(parameter.grad)
                    parameter.grad /= distributed.get_world_size()

    hook = optimizer.register_step_pre_hook(mean_gradients)
    try:
        with shared([model.get_submodule(name) for name in encoders]):
            return single.fit(model, *parts, optimizer=optimizer, **more)
    finally:
        hook.remove()
