"""What a trained model attends to, and the batch that a training starts with."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from mmlib import scenegraph
from mmlib.papers.cora.batches import Arrays, Batch, GraphSet
from mmlib.papers.cora.data.texts import LIMITS, Captions
from mmlib.papers.cora.method import GATv2, GraphEncoder, Matcher
from mmlib.papers.cora.systems import Settings, System
from mmlib.papers.cora.train import texts_of, training_batches


def first_batch(system: System, settings: Settings, arrays: Arrays, seed: int = 0) -> Batch:
    """The batch that a training of this seed starts with."""
    texts, split = texts_of(system, arrays, seed)["train"], arrays.splits["train"]
    return next(training_batches(system, settings, split, texts, seed)(0))


@torch.no_grad()
def attention(model: Matcher, graphs: GraphSet, row: int) -> dict[str, list[tuple]]:
    """Attention weights on one caption's graph, means over heads: (source, target, weight) of the
    last layer of "attributes" and of "objects". Nodes: its objects, then its attributes.
    """
    encoder = model.eval().texts
    if not isinstance(encoder, GraphEncoder):
        raise ValueError(f"{model.system.system} has no graph layers to look into")
    inputs: dict[nn.Module, tuple[Tensor, Tensor, Tensor]] = {}

    def look(layer: nn.Module, tensors: Any) -> None:
        inputs[layer] = tensors

    stacks = {"attributes": encoder.attributes, "objects": encoder.objects}
    layers: dict[str, GATv2] = {name: s[-1] for name, s in stacks.items() if len(s)}  # type: ignore[misc]
    with ExitStack() as hooks:
        for layer in layers.values():
            hooks.enter_context(layer.register_forward_pre_hook(look))
        encoder(graphs.batch(np.array([row])))
    weights = {}
    for name, layer in layers.items():
        nodes, source, target = inputs[layer]
        mean = layer.attention_weights(nodes, source, target).mean(dim=1)
        weights[name] = list(zip(source.tolist(), target.tolist(), mean.tolist(), strict=True))
    return weights


def attention_figure(
    collection: Captions, rows: Sequence[int], weights: Sequence[Mapping[str, Sequence[tuple]]]
) -> Figure:
    """Graphs of test captions with the weights that `attention` returned for each."""
    figure, axes = plt.subplots(len(rows), 1, figsize=(8, 2.4 * len(rows)), squeeze=False)
    for axis, row, edges in zip(axes[:, 0], rows, weights, strict=True):
        graph = collection.graphs["test"][row]
        scenegraph.draw(graph, axis, _weights_of(graph, edges))
    return figure


def _weights_of(
    graph: nx.MultiDiGraph, weights: Mapping[str, Sequence[tuple]]
) -> dict[tuple[Any, Any], float]:
    """Weights by the graph's own nodes: (object, attribute), and (subject, object)."""
    nodes: list[Any] = scenegraph.objects(graph)[: LIMITS["objects"]]
    nodes += [
        attribute for i in list(nodes)
        for attribute in scenegraph.attributes(graph, i)[: LIMITS["attributes"]]
    ]  # fmt: skip
    edges = [*weights.get("attributes", ()), *weights.get("objects", ())]
    return {(nodes[target], nodes[source]): weight for source, target, weight in edges}
