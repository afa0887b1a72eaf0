"""What models do, fresh or trained: how alike captions start, what the loss tells phrases, where
pooling starts, and what objects attend to; and what a reader finds in regions.
"""

from collections.abc import Callable, Mapping, Sequence
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
from mmlib.core.fit import seed_everything
from mmlib.papers.cora.data import Captions
from mmlib.papers.cora.experiment import BAG, CORA, SEQUENCE, SYSTEMS, each_training
from mmlib.papers.cora.figures import COLOURS
from mmlib.papers.cora.graphs import Arrays, Batch, GraphBatch, GraphSet, batches
from mmlib.papers.cora.model import GATv2, GraphEncoder, Matcher, Settings, System
from mmlib.papers.cora.texts import LIMITS
from mmlib.papers.cora.training import texts_of
from mmlib.world import WorldImages
from mmlib.world.backbone import HEADS, LOCAL, load
from mmlib.world.graphs import CONCEPTS

KINDS = ("object", "attribute", "relation")


def fresh(system: System, settings: Settings, arrays: Arrays, seed: int = 0) -> Matcher:
    """The model that a training of this seed starts from."""
    seed_everything(seed)
    width = arrays.splits["train"].features.shape[2]
    return Matcher(system, settings, width, torch.tensor(arrays.embeddings))


def first_batch(system: System, settings: Settings, arrays: Arrays, seed: int = 0) -> Batch:
    """The batch that a training of this seed starts with."""
    texts = texts_of(system, arrays, seed)["train"]
    match = "caption" if system.coded else "image"
    epoch = batches(
        arrays.splits["train"], texts, settings, settings.batch, settings.captions, match, seed
    )
    return next(epoch(0))


def mean_cosine(vectors: Tensor) -> float:
    """Mean cosine between different unit vectors (n, d); 1 where all are the same."""
    n = len(vectors)
    total = vectors.sum(dim=0).square().sum() - vectors.square().sum()
    return float(total / (n * (n - 1)))


def gradients(model: Matcher, batch: Batch, calm: bool = True) -> dict[str, float]:
    """How much the loss tells a text: mean length of its gradient in a "caption" before it gets
    unit length, and in the vector of an "object", an "attribute" and a "relation".

    All lengths are relative: each gradient is multiplied by the length of its vector, so a model
    whose vectors are small does not seem to be told more. Phrases are taken before their ReLU; a
    sequence has none, and a kind without a phrase in the batch is NaN. The model's own gradients
    are left empty.
    """
    seen: dict[str, Tensor] = {}

    def caption(_: nn.Module, __: tuple, output: tuple[Tensor, Tensor | None]) -> None:
        output[0].retain_grad()
        seen["caption"] = output[0]

    hook = model.texts.register_forward_hook(caption)
    concepts = getattr(model.texts, "concepts", None)
    if concepts is not None:

        def linear(text: GraphBatch) -> tuple[Tensor, Tensor]:
            nodes, relations = type(concepts).linear(concepts, text)
            objects, attributes = nodes.split([len(text.objects), len(text.attributes)])
            parts = objects.clone(), attributes.clone(), relations
            for kind, part in zip(KINDS, parts, strict=True):
                part.retain_grad()
                seen[kind] = part
            return torch.cat(parts[:2]), relations

        vars(concepts)["linear"] = linear  # stands before the method of the class
    try:
        model.loss(batch, calm).backward()
    finally:
        hook.remove()
        if concepts is not None:
            del vars(concepts)["linear"]
        model.zero_grad()
    return {kind: _relative(seen[kind]) if kind in seen else float("nan")
            for kind in ("caption", *KINDS)}  # fmt: skip


def _relative(vectors: Tensor) -> float:
    """Mean over rows of |gradient| · |vector|; NaN of no rows."""
    if vectors.grad is None or not len(vectors):
        return float("nan")
    return float((vectors.grad.norm(dim=1) * vectors.detach().norm(dim=1)).mean())


def starts(
    systems: Sequence[System], settings: Settings, arrays: Arrays, seeds: Sequence[int] = (0,)
) -> pd.DataFrame:
    """Of fresh models with their first batch, a row a system, means over seeds: the mean cosine
    between captions of the batch, and the `gradients`.
    """
    rows = {}
    for system in systems:
        found = []
        for seed in seeds:
            model = fresh(system, settings, arrays, seed)
            batch = first_batch(system, settings, arrays, seed)
            with torch.no_grad():
                captions, _ = model.eval().encode_texts(batch.text)
            told = gradients(model.train(), batch)
            found.append({"cosine": mean_cosine(captions), **told})
        rows[system.system] = pd.DataFrame(found).mean()
    return pd.DataFrame.from_dict(rows, orient="index")


@torch.no_grad()
def on_largest(model: Matcher, regions: int) -> float:
    """What share of its weight the pooling of an image of so many regions gives to the largest
    quarter of their values. Mean pooling gives a quarter of it, max pooling all.
    """
    theta = model.images.pool.weights(torch.tensor([regions]))[0]
    return float(theta[: regions // 4].sum())


def pooling_starts(
    evidence: Evidence, dataset: str, share: Callable[[System, int], float]
) -> pd.DataFrame:
    """A row a recorded training: where its pooling of images started, and what became of it.

    share: (system, seed) -> `on_largest` of the fresh model. Columns: system, entities
    (whether losses on them), on largest (percent), RSUM.
    """
    rows = [
        (name, one.entities, 100 * share(one, seed), rsum)
        for name, one in SYSTEMS.items()
        if one.members == 1 and one.pooling == "chance"
        for seed, rsum in each_training(evidence, dataset, name).items()
    ]
    return pd.DataFrame(rows, columns=["system", "entities", "on largest", "RSUM"])


def start_matters(begun: pd.DataFrame) -> pd.DataFrame:
    """Of `pooling_starts`, a row a system: how its trainings' RSUM goes with their start.

    Pearson's correlation and its 95 % interval (Fisher), over trainings, which must be four.
    """
    rows = {}
    for name, own in begun.groupby("system", sort=False):
        if len(own) < 4:
            continue
        found = pearsonr(own["on largest"], own["RSUM"])
        low, high = found.confidence_interval()
        entities, spread = own.entities.iloc[0], own.RSUM.std()
        rows[name] = [entities, len(own), spread, found.statistic, low, high]
    columns = ["losses on entities", "trainings", "deviation of RSUM", "correlation", "95 % low",
               "high"]  # fmt: skip
    table = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
    return table.sort_values(["losses on entities", "correlation"], ascending=False).round(2)


def starts_figure(begun: pd.DataFrame) -> Figure:
    """Of `pooling_starts`, a dot a training: RSUM, less its system's mean, over the start."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), sharex=True, sharey=True)
    apart = begun.assign(RSUM=begun.RSUM - begun.groupby("system").RSUM.transform("mean"))
    told = {True: ("with losses on entities", (CORA.system,)),
            False: ("with losses on captions alone", (BAG.system, SEQUENCE.system))}  # fmt: skip
    for axis, (entities, (title, named)) in zip(axes, told.items(), strict=True):
        own = apart[apart.entities == entities]
        others = own[~own.system.isin(named)]
        count = others.system.nunique()
        axis.plot(others["on largest"], others.RSUM, ".", color="#BBBBBB", label=f"{count} others")
        for name in named:
            one = own[own.system == name]
            axis.plot(one["on largest"], one.RSUM, "o", ms=4, color=COLOURS[name], label=name)
        axis.axvline(25, color="#333333", linewidth=0.8, linestyle=":")
        axis.set(title=title, xlabel="weight on the largest quarter at the start in %")
        axis.legend(fontsize=8, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.2))
    axes[0].set_ylabel("RSUM − mean of the system")
    return figure


def attention(model: Matcher, graphs: GraphSet, row: int) -> dict[str, list[tuple]]:
    """Attention weights on one caption's graph, means over heads: (source, target, weight) of the
    last layer of "attributes" and of "objects". Nodes: its objects, then its attributes.
    """
    encoder = model.eval().texts
    if not isinstance(encoder, GraphEncoder):
        raise ValueError(f"{model.system.system} has no graph layers to look into")
    found: dict[str, list[tuple]] = {}

    def look(name: str) -> object:
        def hook(layer: nn.Module, inputs: tuple[Tensor, Tensor, Tensor]) -> None:
            assert isinstance(layer, GATv2)
            _, source, target = inputs
            weights = layer.scores(*inputs).mean(dim=1)
            found[name] = list(zip(source.tolist(), target.tolist(), weights.tolist(), strict=True))

        return hook

    layers = {"attributes": encoder.attributes, "objects": encoder.objects}
    hooks = [
        own[-1].register_forward_pre_hook(look(name))  # type: ignore[arg-type]
        for name, own in layers.items() if len(own)
    ]  # fmt: skip
    try:
        encoder(graphs.batch(np.array([row])))
    finally:
        for hook in hooks:
            hook.remove()
    return found


def attention_figure(
    found: Captions, rows: Sequence[int], weights: Sequence[Mapping[str, Sequence[tuple]]]
) -> Figure:
    """Graphs of test captions with what `attention` found on each."""
    figure, axes = plt.subplots(len(rows), 1, figsize=(8, 2.4 * len(rows)), squeeze=False)
    for axis, row, own in zip(axes[:, 0], rows, weights, strict=True):
        graph = found.graphs["test"][row]
        scenegraph.draw(graph, axis, _weights_of(graph, own))
    return figure


def _weights_of(
    graph: nx.MultiDiGraph, weights: Mapping[str, Sequence[tuple]]
) -> dict[tuple[Any, Any], float]:
    """Weights by the graph's own nodes: (object, attribute), and (subject, object)."""
    nodes: list[Any] = scenegraph.objects(graph)[: LIMITS["objects"]]
    nodes += [
        one for i in list(nodes) for one in scenegraph.attributes(graph, i)[: LIMITS["attributes"]]
    ]
    edges = [*weights.get("attributes", ()), *weights.get("objects", ())]
    return {(nodes[target], nodes[source]): weight for source, target, weight in edges}


# --- What regions hold -------------------------------------------------------------------------


def read_places(images: WorldImages) -> dict[str, np.ndarray]:
    """A reader of regions: log-likelihoods of the captions' gold graphs, (images, captions).

    It calls each region what the world's own network learnt to call it, and holds each thing
    against each region. "one place": a thing is looked for where its kind and all its attributes
    are likeliest together; "anywhere": each of these at its own likeliest place, so that who has
    what is not read. Neither reads sizes and relations.
    """
    network = load()
    told: dict[tuple[str, str | None], Tensor] = {}
    with torch.no_grad():
        logits = network.local(torch.tensor(images.features) * network.deviation)
    heads = logits.sigmoid().split([len(HEADS[name]) for name in LOCAL], 2)
    for name, likely in zip(LOCAL, heads, strict=True):
        told |= {(name, word): likely[..., i] for i, word in enumerate(HEADS[name])}
    for concept, kinds in CONCEPTS.items():
        of_kinds = torch.stack([told["kind", kind] for kind in sorted(kinds)])
        told["is", concept] = 1 - (1 - of_kinds).prod(0)
    seen = {fact: (likely + 1e-6).log() for fact, likely in told.items()}  # (images, regions)
    found: dict[str, list[Tensor]] = {"one place": [], "anywhere": []}
    for caption in (each.graph for own in images.gold for each in own):
        facts = [
            torch.stack([seen[one] for one in (("is", node.concept), *node.facts) if one in seen])
            for node in caption.nodes
        ]  # (facts, images, regions) a thing
        found["one place"].append(torch.stack([own.sum(0).amax(-1) for own in facts]).sum(0))
        found["anywhere"].append(torch.cat([own.amax(-1) for own in facts]).sum(0))
    return {name: torch.stack(own, dim=1).numpy() for name, own in found.items()}
