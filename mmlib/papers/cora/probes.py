"""What models do, fresh or trained: how alike captions start, how much the loss tells phrases,
where pooling starts, and what objects attend to; and what a reader finds in regions.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from scipy.stats import pearsonr
from torch import Tensor, nn

from mmlib import scenegraph
from mmlib.core.evidence import Evidence
from mmlib.papers.cora.batches import Arrays, Batch, GraphSet
from mmlib.papers.cora.data.texts import LIMITS, Captions
from mmlib.papers.cora.figures import COLOURS
from mmlib.papers.cora.method import GATv2, GraphEncoder, Matcher
from mmlib.papers.cora.systems import BAG, CORA, SEQUENCE, SYSTEMS, Settings, System
from mmlib.papers.cora.tables import each_training
from mmlib.papers.cora.train import fresh, texts_of, training_batches
from mmlib.world import WorldImages
from mmlib.world.backbone import HEADS, LOCAL, load
from mmlib.world.graphs import CONCEPTS

PHRASES = ("object", "attribute", "relation")


def first_batch(system: System, settings: Settings, arrays: Arrays, seed: int = 0) -> Batch:
    """The batch that a training of this seed starts with."""
    texts, split = texts_of(system, arrays, seed)["train"], arrays.splits["train"]
    return next(training_batches(system, settings, split, texts, seed)(0))


def mean_cosine(vectors: Tensor) -> float:
    """Mean cosine between different unit vectors (n, d); 1 where all are the same."""
    n = len(vectors)
    total = vectors.sum(dim=0).square().sum() - vectors.square().sum()
    return float(total / (n * (n - 1)))


def gradients(model: Matcher, batch: Batch, mean_negatives: bool = True) -> dict[str, float]:
    """How much the loss tells a text: mean length of its gradient in a "caption" before it gets
    unit length, and in the vector of an "object", an "attribute" and a "relation".

    All lengths are relative: each gradient is multiplied by the length of its vector, so a model
    whose vectors are small does not seem to be told more. Phrases are taken before their ReLU; a
    sequence has none, and a kind without a phrase in the batch is NaN. The model's own gradients
    are left empty.
    """
    outputs: dict[nn.Module, tuple[Tensor, Tensor | None]] = {}

    def retain(module: nn.Module, _: tuple, output: tuple[Tensor, Tensor | None]) -> None:
        for vectors in output:
            if vectors is not None:
                vectors.retain_grad()
        outputs[module] = output

    concepts = getattr(model.texts, "concepts", None)
    with ExitStack() as hooks:
        for module in (model.texts, concepts):
            if module is not None:
                hooks.enter_context(module.register_forward_hook(retain))
        model.loss(batch, mean_negatives).backward()
    model.zero_grad()
    lengths = {kind: float("nan") for kind in ("caption", *PHRASES)}
    lengths["caption"] = float(_relative(outputs[model.texts][0]).mean())
    if concepts is not None:
        nodes, relations = map(_relative, outputs[concepts])
        objects = len(batch.text.objects)  # type: ignore[union-attr]
        values = nodes[:objects], nodes[objects:], relations
        lengths |= {k: float(v.mean()) for k, v in zip(PHRASES, values, strict=True)}
    return lengths


def _relative(vectors: Tensor | None) -> Tensor:
    """|gradient| · |vector| of each row."""
    assert vectors is not None
    assert vectors.grad is not None
    return vectors.grad.norm(dim=1) * vectors.detach().norm(dim=1)


def starts(
    systems: Sequence[System], settings: Settings, arrays: Arrays, seeds: Sequence[int] = (0,)
) -> pd.DataFrame:
    """Of fresh models with their first batch, a row a system, means over seeds: the mean cosine
    between captions of the batch, and the `gradients`.
    """
    means = {}
    for system in systems:
        rows = []
        for seed in seeds:
            model = fresh(system, settings, arrays, seed)
            batch = first_batch(system, settings, arrays, seed)
            with torch.no_grad():
                captions, _ = model.eval().encode_texts(batch.text)
            rows.append({"cosine": mean_cosine(captions), **gradients(model.train(), batch)})
        means[system.system] = pd.DataFrame(rows).mean()
    return pd.DataFrame.from_dict(means, orient="index")


@torch.no_grad()
def on_largest(model: Matcher, regions: int) -> float:
    """What share of its weight the pooling of an image of so many regions gives to the largest
    quarter of their values. Mean pooling gives a quarter of it, max pooling all.
    """
    theta = model.images.pool.weights(torch.tensor([regions]))[0]  # type: ignore[operator,union-attr]
    return float(theta[: regions // 4].sum())


def pooling_starts(
    evidence: Evidence, dataset: str, share: Callable[[System, int], float]
) -> pd.DataFrame:
    """A row a recorded training: where its pooling of images started, and its RSUM at the end.

    share: (system, seed) -> `on_largest` of the fresh model. Columns: system, entities
    (whether losses on them), on largest (percent), RSUM.
    """
    rows = [
        (name, system.entities, 100 * share(system, seed), rsum)
        for name, system in SYSTEMS.items()
        if system.members == 1 and system.pooling == "chance"
        for seed, rsum in each_training(evidence, dataset, name).items()
    ]
    return pd.DataFrame(rows, columns=["system", "entities", "on largest", "RSUM"])


def start_matters(trainings: pd.DataFrame) -> pd.DataFrame:
    """Of `pooling_starts`, a row a system: how its trainings' RSUM goes with their start.

    Pearson's correlation and its 95 % interval (Fisher), over trainings, which must be four.
    """
    rows = {}
    for name, group in trainings.groupby("system", sort=False):
        if len(group) >= 4:
            correlation = pearsonr(group["on largest"], group["RSUM"])
            rows[name] = {
                "losses on entities": group.entities.iloc[0],
                "trainings": len(group),
                "deviation of RSUM": group.RSUM.std(),
                "correlation": correlation.statistic,
                **dict(zip(("95 % low", "high"), correlation.confidence_interval(), strict=True)),
            }
    if not rows:
        return pd.DataFrame()
    table = pd.DataFrame.from_dict(rows, orient="index")
    return table.sort_values(["losses on entities", "correlation"], ascending=False).round(2)


def starts_figure(trainings: pd.DataFrame) -> Figure:
    """Of `pooling_starts`, a dot a training: RSUM, less its system's mean, over the start."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), sharex=True, sharey=True)
    centred = trainings.RSUM - trainings.groupby("system").RSUM.transform("mean")
    trainings = trainings.assign(RSUM=centred)
    panels = {True: ("with losses on entities", (CORA.system,)),
              False: ("with losses on captions alone", (BAG.system, SEQUENCE.system))}  # fmt: skip
    for axis, (entities, (title, names)) in zip(axes, panels.items(), strict=True):
        rows = trainings[trainings.entities == entities]
        others = rows[~rows.system.isin(names)]
        count = others.system.nunique()
        axis.plot(others["on largest"], others.RSUM, ".", color="#BBBBBB", label=f"{count} others")
        for name in names:
            dots = rows[rows.system == name]
            axis.plot(dots["on largest"], dots.RSUM, "o", ms=4, color=COLOURS[name], label=name)
        axis.axvline(25, color="#333333", linewidth=0.8, linestyle=":")
        axis.set(title=title, xlabel="weight on the largest quarter at the start in %")
        axis.legend(fontsize=8, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.2))
    axes[0].set_ylabel("RSUM − mean of the system")
    return figure


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


def read_places(images: WorldImages) -> dict[str, np.ndarray]:
    """A reader of regions: log-likelihoods of the captions' gold graphs, (images, captions).

    It calls each region what the world's own network learnt to call it, and holds each thing
    against each region. "one place": a thing is looked for where its kind and all its attributes
    are likeliest together; "anywhere": each of these at its own likeliest place, so that who has
    what is not read. Neither reads sizes and relations.
    """
    network = load()
    likely: dict[tuple[str, str | None], Tensor] = {}  # fact -> (images, regions)
    with torch.no_grad():
        logits = network.local(torch.tensor(images.features) * network.deviation)
    heads = logits.sigmoid().split([len(HEADS[name]) for name in LOCAL], 2)
    for name, head in zip(LOCAL, heads, strict=True):
        likely |= {(name, word): head[..., i] for i, word in enumerate(HEADS[name])}
    for concept, kinds in CONCEPTS.items():
        of_kinds = torch.stack([likely["kind", kind] for kind in sorted(kinds)])
        likely["is", concept] = 1 - (1 - of_kinds).prod(0)
    logs = {fact: (values + 1e-6).log() for fact, values in likely.items()}
    together: list[Tensor] = []
    anywhere: list[Tensor] = []
    for caption in (caption.graph for group in images.gold for caption in group):
        nodes = [
            torch.stack([logs[f] for f in (("is", node.concept), *node.facts) if f in logs])
            for node in caption.nodes
        ]  # (facts, images, regions) each
        together.append(torch.stack([facts.sum(0).amax(-1) for facts in nodes]).sum(0))
        anywhere.append(torch.cat([facts.amax(-1) for facts in nodes]).sum(0))
    readers = {"one place": together, "anywhere": anywhere}
    return {name: torch.stack(scores, dim=1).numpy() for name, scores in readers.items()}
