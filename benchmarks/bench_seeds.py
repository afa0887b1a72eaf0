"""Ten trainings side by side in one model, against one after another: is a step of all faster?

`torch.func` stacks the weights of ten seeds and maps one step over them; recurrent and graph layers
then multiply ten stacks of small matrices at once. Each seed has its own weights; the batch is one.
Losses and gradients are those of ten single steps, which is checked before anything is timed.

Prints a Markdown table; the ratio is in turn / side by side.
"""

import argparse
import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from bench_links import FEATURES, WORD_WIDTH, WORDS, make_batch
from measure import machine, times_ms
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, stack_module_state, vmap

from mmlib.papers.cora.model import GATv2
from mmlib.papers.links.arrays import Batch
from mmlib.papers.links.model import LinkModel, Settings, dense_correspondence, document_loss

Step = Callable[[], tuple[dict[str, Tensor], Tensor]]


class Links(nn.Module):
    """The loss of document links with a GRU in plain operations, which can be mapped over seeds.

    Weights are those of `LinkModel`; dropout is off.
    """

    def __init__(self, model: LinkModel):
        super().__init__()
        self.model = model

    def forward(self, batch: Batch) -> Tensor:
        gru, words = self.model.text.gru, self.model.text.embed.weight
        table = torch.addmm(gru.bias_ih_l0, words, gru.weight_ih_l0.T)  # (vocabulary, 3H)
        state = table.new_zeros(len(batch.ids), gru.hidden_size)
        for inputs in nn.functional.embedding(batch.ids, table).unbind(1):
            own = torch.addmm(gru.bias_hh_l0, state, gru.weight_hh_l0.T)
            (r, z, n), (own_r, own_z, own_n) = inputs.chunk(3, 1), own.chunk(3, 1)
            z = (z + own_z).sigmoid()
            n = (n + (r + own_r).sigmoid() * own_n).tanh()
            state = (1 - z) * n + z * state
        sentences = nn.functional.normalize(state, dim=-1)
        images = self.model.encode_images(batch.features)
        shape = (*batch.rows.shape, -1)
        cosines = torch.einsum("and,bmd->abnm", sentences.reshape(shape), images.reshape(shape))
        rows, columns = batch.rows.unsqueeze(1), batch.columns.unsqueeze(0)
        return document_loss(dense_correspondence(cosines, rows, columns))


class Layer(nn.Module):
    """A loss of one graph attention layer of CORA."""

    def __init__(self, layer: GATv2):
        super().__init__()
        self.layer = layer

    def forward(self, nodes: Tensor, source: Tensor, target: Tensor) -> Tensor:
        return self.layer(nodes, source, target).square().mean()


def links(sentences: int, width: int) -> tuple[Callable[[], nn.Module], tuple[Batch]]:
    """Eleven documents of so many sentences and images each; and a maker of models."""
    settings = Settings(width=width, dropout=0.0)

    def make() -> nn.Module:
        return Links(LinkModel(torch.randn(WORDS, WORD_WIDTH) / 10, FEATURES, settings))

    return make, (make_batch(11, sentences, sentences),)


def graphs(captions: int, width: int) -> tuple[Callable[[], nn.Module], tuple[Tensor, ...]]:
    """Captions of three objects that all see each other and themselves; and a maker of models."""
    three = torch.cartesian_prod(torch.arange(3), torch.arange(3))  # (9, 2)
    edges = (three + 3 * torch.arange(captions)[:, None, None]).reshape(-1, 2)
    nodes = torch.randn(3 * captions, width)
    return lambda: Layer(GATv2(width, 8)), (nodes, *edges.T)


def steps(make: Callable[[], nn.Module], inputs: tuple[Any, ...], seeds: int) -> tuple[Step, Step]:
    """A step of all seeds, in turn and side by side: gradients by parameter, and losses."""
    models = [make() for _ in range(seeds)]
    shape = copy.deepcopy(models[0]).to("meta")
    stacked, buffers = stack_module_state(models)

    def in_turn() -> tuple[dict[str, Tensor], Tensor]:
        losses = []
        for model in models:
            model.zero_grad(set_to_none=True)
            losses.append(loss := model(*inputs))
            loss.backward()
        names = dict(models[0].named_parameters())
        found = {n: torch.stack([m.get_parameter(n).grad for m in models]) for n in names}
        return found, torch.stack(losses).detach()

    def loss_of(weights: dict[str, Tensor], held: dict[str, Tensor]) -> Tensor:
        return functional_call(shape, (weights, held), inputs)

    mapped = vmap(grad_and_value(loss_of))
    return in_turn, lambda: mapped({n: w.detach() for n, w in stacked.items()}, buffers)


def check(case: Callable[[], tuple]) -> None:
    """Raises AssertionError where losses or gradients differ, in float64.

    In float32 rounding decides which of two equal negatives is the harder one.
    """
    torch.set_default_dtype(torch.float64)
    try:
        in_turn, side_by_side = steps(*case(), seeds=2)
        torch.testing.assert_close(side_by_side(), in_turn())
    finally:
        torch.set_default_dtype(torch.float32)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it still run?")
    quick = parser.parse_args(arguments).quick
    torch.set_num_threads(1)
    torch.manual_seed(0)
    seeds, repetitions = (2, 1) if quick else (10, 5)
    cases = {
        "links, 11 × 10 sentences, width 64": partial(links, 10, 64),
        "links, 11 × 50 sentences, width 64": partial(links, 50, 64),
        "CORA, a layer on 128 captions, width 256": partial(graphs, 128, 256),
        "CORA, a layer on 128 captions, width 1,024": partial(graphs, 128, 1024),
    }
    if quick:
        cases = {"links": partial(links, 3, 16), "CORA, a layer": partial(graphs, 4, 16)}
    print(f"{machine()}; 1 thread, {seeds} seeds, median CPU ms of {repetitions} steps\n")
    print("| step | in turn | side by side | ratio |")
    print("|---|--:|--:|--:|")
    for name, case in cases.items():
        check(case)
        both = steps(*case(), seeds)
        turn, side = (times_ms(work, repetitions)[0] for work in both)
        print(f"| {name} | {turn:.0f} | {side:.0f} | {turn / side:.1f} |", flush=True)


if __name__ == "__main__":
    main()
