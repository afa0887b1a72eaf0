"""Paper 03: a training step of CORA against a dense form of its graph encoder, and a query's time.

The dense form pads the graphs and, as graph attention is often written, builds every pair of nodes
for each head: (captions, nodes, nodes, heads × head width). It has the same weights and gives the
same vectors, loss and gradients, which is checked (in float64) before anything is timed.

Prints Markdown tables: medians of milliseconds and the peak of what PyTorch's tensors held beyond
what was there before; then the stages of one query, a caption that is parsed, encoded and searched
for in an index. Graphs, captions, weights and images are random: times do not depend on them.
"""

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import networkx as nx
import numpy as np
import torch
from measure import machine, tensor_peak_mib, times_ms
from torch import Tensor, nn
from torch.nn import functional as F

from mmlib.cora import (
    GATv2,
    GraphBatch,
    GraphEncoder,
    GraphSet,
    Matcher,
    Settings,
    Split,
    build,
    make_batch,
    padded,
)
from mmlib.core.ranking import Index
from mmlib.features.text import Vocabulary, tokenize
from mmlib.scenegraph import parse
from mmlib.world.captions import caption
from mmlib.world.scenes import sample_scene, split_seeds

SPECIAL = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
REGIONS, FEATURES = 36, 2048


# --- Graphs like those of captions ----------------------------------------------------------------


def random_graph(rng: np.random.Generator, words: list[str]) -> nx.MultiDiGraph:
    """About 3 objects, 2 attributes and 2 relations, of words that are common and rare."""

    def some(count: int) -> str:
        return " ".join(words[min(int(i), len(words)) - 1] for i in rng.zipf(1.3, count))

    graph = nx.MultiDiGraph(text="", fallback=False)
    objects = 1 + rng.poisson(2)
    for i in range(objects):
        graph.add_node(i, type="object", label=some(1 + rng.binomial(1, 0.2)))
    for k in range(rng.poisson(2)):
        i = int(rng.integers(objects))
        graph.add_node((i, k), type="attribute", label=some(1), adverbs=())
        graph.add_edge(i, (i, k), type="attribute", label="has")
    for _ in range(rng.poisson(2.4) if objects > 1 else 0):  # one object has no relations
        a, b = rng.choice(objects, 2, replace=False)
        graph.add_edge(int(a), int(b), type="relation", label=some(1 + rng.binomial(1, 0.4)))
    return graph


class Words:
    """Phrases as word ids between delimiters, as trainings of CORA have them."""

    def __init__(self, words: list[str]):
        self.vocabulary = Vocabulary((*SPECIAL, *words))

    def __call__(self, phrases: list[str]) -> tuple[Tensor, Tensor]:
        rows = [["[CLS]", *(tokenize(phrase) or ["<unk>"]), "[SEP]"] for phrase in phrases]
        return self.vocabulary.encode(rows, 42)


# --- The dense form -------------------------------------------------------------------------------


def dense_layer(layer: GATv2, nodes: Tensor, linked: Tensor) -> Tensor:
    """GATv2 on padded nodes (B, N, d); linked (B, N, N): whether target i hears source j."""
    left, right = layer.left(nodes), layer.right(nodes)
    pairs = F.leaky_relu(left[:, :, None] + right[:, None], 0.2)  # (B, N, N, d)
    scores = (pairs.unflatten(3, (layer.heads, -1)) * layer.attention).sum(-1)
    scores = scores.masked_fill(~linked[..., None], -1e30)
    alpha = scores.softmax(dim=2) * linked[..., None]  # a node that hears nobody gets 0
    values = layer.dropout(layer.value(nodes)).unflatten(2, (layer.heads, -1))
    messages = torch.einsum("bijh,bjhw->bihw", alpha, values).flatten(2)
    return messages.relu() if layer.norm is None else layer.norm(left + messages).relu()


class Dense(nn.Module):
    """A GraphEncoder's weights on padded graphs: two steps, parsed edges, eq. 6 as printed."""

    def __init__(self, encoder: GraphEncoder):
        super().__init__()
        self.encoder = encoder

    def forward(self, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Captions (B, D) and entities (O, D)."""
        encoder, captions = self.encoder, batch.captions
        flat, labels = encoder.concepts(batch)
        count = len(batch.objects)
        # Objects, attributes and relations come in the order of their captions.
        of_attribute, of_relation = batch.caption[batch.owner], batch.caption[batch.subject]
        objects, lengths = padded(flat[:count], batch.caption, captions)
        attributes, _ = padded(flat[count:], of_attribute, captions)
        relations, _ = padded(labels, of_relation, captions)
        nodes, widest = torch.cat([objects, attributes], dim=1), objects.shape[1]
        row = torch.cat([batch.caption, of_attribute])
        place = torch.cat(
            [places(batch.caption, captions), widest + places(of_attribute, captions)]
        )

        def links(source: Tensor, target: Tensor, size: int) -> Tensor:
            table = torch.zeros(captions, size, size, dtype=torch.bool)
            table[row[target], place[target], place[source]] = True
            return table

        edges = batch.attribute_edges(back=len(encoder.attributes) > 1)
        linked = links(*edges, nodes.shape[1])
        for i, layer in enumerate(encoder.attributes):
            nodes = dense_layer(layer, encoder.dropout(nodes) if i else nodes, linked)
        hidden = nodes[:, :widest]
        entities = hidden[row[:count], place[:count]]

        # Eq. 6 with tables (B, O, R) of who does and who suffers what.
        roles = []
        for ends in (batch.subject, batch.object):
            table = torch.zeros(captions, widest, relations.shape[1], dtype=hidden.dtype)
            table[of_relation, place[ends], places(of_relation, captions)] = 1
            roles.append(table)
        active, passive = roles
        inputs = torch.cat([relations, passive.transpose(1, 2) @ hidden], dim=2)
        for table, layer in ((active, encoder.context.active), (passive, encoder.context.passive)):
            mean = table / table.sum(dim=2, keepdim=True).clamp(min=1)
            hidden = hidden + mean @ layer(inputs)

        linked = links(*batch.object_edges(), widest)
        for layer in encoder.objects:
            hidden = dense_layer(layer, encoder.dropout(hidden), linked)
        return encoder.pool(hidden, lengths), entities


def places(group: Tensor, groups: int) -> Tensor:
    """0, 1, 2, ... within each of the sorted groups (n,)."""
    lengths = torch.bincount(group, minlength=groups)
    return torch.arange(len(group)) - (lengths.cumsum(0) - lengths)[group]


# --- A step ---------------------------------------------------------------------------------------


def answers(model: Matcher, batch) -> list[Tensor]:
    """Vectors, loss and the gradients of all weights, without dropout."""
    model.zero_grad(set_to_none=True)
    loss = model.loss(batch)
    loss.backward()
    with torch.no_grad():
        vectors = model.encode_texts(batch.text)
    weights = [w for w in model.parameters() if w.requires_grad]
    return [*vectors, loss.detach(), *(w.grad for w in weights if w.grad is not None)]


def check(model: Matcher, dense: Matcher, batch) -> None:
    """Raise AssertionError where the two forms differ."""
    both = copy.deepcopy(nn.ModuleList([model, dense])).double().eval()  # they share their weights
    batch = replace(batch, regions=batch.regions.double())
    torch.set_default_dtype(torch.float64)
    try:
        ours, theirs = (answers(form, batch) for form in both)
    finally:
        torch.set_default_dtype(torch.float32)
    scale = max(float(a.abs().max()) for a in ours)  # some gradients are 0 but for the rounding
    if len(ours) != len(theirs) or not all(
        torch.allclose(a, b, rtol=1e-6, atol=1e-10 * scale)
        for a, b in zip(ours, theirs, strict=True)
    ):
        raise AssertionError("mmlib and the dense form differ")


def in_turn(works: list[Callable[[], object]], repetitions: int) -> list[float]:
    """Median CPU milliseconds, taken in turn, after one call each that does not count."""
    taken: list[list[float]] = [[] for _ in works]
    for _ in range(repetitions + 1):
        for work, times in zip(works, taken, strict=True):
            times.append(times_ms(work, 1)[0])
    return [statistics.median(times[1:]) for times in taken]


class Given(nn.Module):
    """Phrase vectors that are there already, in place of a ConceptEncoder."""

    def __init__(self, nodes: Tensor, relations: Tensor):
        super().__init__()
        self.nodes, self.relations = nn.Parameter(nodes), nn.Parameter(relations)

    def forward(self, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        return self.nodes, self.relations


def compare_steps(model: Matcher, split: Split, repetitions: int) -> None:
    settings, size = model.settings, len(split.texts)
    texts = model.texts
    assert isinstance(texts, GraphEncoder)
    captions_of = list(np.arange(size)[:, None])
    batch = make_batch(split, np.arange(size), settings, np.random.default_rng(0), captions_of)
    dense = Matcher(model.images, Dense(texts), settings)
    check(model, dense, batch)

    text = batch.text
    weights = torch.randn(size, settings.width), torch.randn(len(text.objects), settings.width)
    with torch.no_grad():
        given = Given(*texts.concepts(text))
    layers = copy.deepcopy(texts)
    layers.concepts = given  # the phrases' vectors are there already
    dense_layers = Dense(layers)

    def both_ways(encoder: nn.Module) -> None:
        encoder.zero_grad(set_to_none=True)
        torch.autograd.backward(encoder(text), weights)

    optimiser = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate)

    def step(form: Matcher) -> None:
        optimiser.zero_grad(set_to_none=True)
        form.loss(batch).backward()
        optimiser.step()

    model.train()
    dense.train()
    kinds = ("objects", "attributes", "relations")
    means = [
        f"{split.texts.starts[kind][-1] / size:.1f} {kind} ({len(getattr(text, kind)) / size:.1f})"
        for kind in kinds
    ]
    print(
        f"batch {size}, width {settings.width}, {settings.heads} heads; a graph has on average "
        f"{', '.join(means)}, in brackets what the augmentation leaves; medians of {repetitions}, "
        "CPU time\n"
    )
    print("| forward and backward | mmlib ms | MiB | dense ms | MiB | ratio of times | of MiB |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    ways: dict[str, list[Callable[[], object]]] = {
        "graph layers alone": [lambda: both_ways(layers), lambda: both_ways(dense_layers)],
        "graph encoder": [lambda: both_ways(texts), lambda: both_ways(dense.texts)],
        "whole step, with AdamW": [lambda: step(model), lambda: step(dense)],
    }
    for name, works in ways.items():
        ours, theirs = in_turn(works, repetitions)
        model.zero_grad(set_to_none=True)
        layers.zero_grad(set_to_none=True)
        mine, peer = (tensor_peak_mib(work) for work in works)
        print(
            f"| {name} | {ours:.0f} | {mine:.1f} | {theirs:.0f} | {peer:.1f} "
            f"| {theirs / ours:.2f} | {peer / mine:.2f} |",
            flush=True,
        )


# --- A query --------------------------------------------------------------------------------------


def now() -> tuple[float, float]:
    return time.process_time(), time.perf_counter()


def time_stages(model: Matcher, words: Words, images: int, queries: int) -> None:
    """Parse a caption, encode it, search the images: one caption after another."""
    model.eval()
    texts: dict[str, None] = {}
    for seed in split_seeds("test", 3 * queries):
        texts[caption(sample_scene(seed), np.random.default_rng(seed)).text] = None
    width = model.settings.width
    rng = np.random.default_rng(1)
    vectors = rng.standard_normal((images, width), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    index = Index(vectors, [str(row) for row in range(images)]).prepare()
    warm_up, rows = 5, []
    for text in list(texts)[: queries + warm_up]:
        marks = [now()]
        graph = parse([text], progress=False)
        marks.append(now())
        with torch.no_grad():
            batch = GraphSet(graph, words).batch(np.array([0]))
            query = model.encode_texts(batch)[0][0].numpy()
        marks.append(now())
        index.search(query)
        marks.append(now())
        rows.append(np.diff(marks, axis=0))
    taken = 1000 * np.array(rows[warm_up:])  # (queries, stages, CPU and wall)
    taken = np.concatenate([taken, taken.sum(axis=1, keepdims=True)], axis=1)
    print(
        f"\n| one query, {images} images of width {width} (median of {len(taken)}) | CPU ms "
        "| wall ms | wall ms, slowest tenth from |\n|---|--:|--:|--:|"
    )
    for name, stage in zip(("parse", "encode", "search", "all"), taken.swapaxes(0, 1), strict=True):
        cpu, wall = np.median(stage, axis=0)
        print(f"| {name} | {cpu:.1f} | {wall:.1f} | {np.quantile(stage[:, 1], 0.9):.1f} |")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes: does it still run?")
    quick = parser.parse_args(arguments).quick
    size, width, features = (12, 32, 24) if quick else (128, 1024, FEATURES)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    common = caption_words(50 if quick else 500)
    vocabulary = [*common, *(f"word{i}" for i in range(4000 - len(common)))]
    words = Words(vocabulary)
    settings = Settings(width=width, heads=4 if quick else 16, word_width=16 if quick else 300)
    embeddings = torch.randn(len(words.vocabulary), settings.word_width)
    model = build(settings, features, embeddings=embeddings)
    graphs = [random_graph(rng, vocabulary) for _ in range(size)]
    regions = rng.standard_normal((size, REGIONS, features), dtype=np.float32)
    split = Split(regions, np.arange(size), GraphSet(graphs, words, SPECIAL.index("[MASK]")))
    print(f"{machine()}; {len(words.vocabulary)} words\n")
    compare_steps(model, split, 1 if quick else 5)
    time_stages(model, words, *((500, 5) if quick else (100_000, 200)))


def caption_words(scenes: int) -> list[str]:
    """The words of some captions of the picture world, the most frequent first."""
    captions = [
        tokenize(caption(sample_scene(seed), np.random.default_rng(seed)).text)
        for seed in split_seeds("train", scenes)
    ]
    return list(Vocabulary.from_sentences(captions, min_count=1).words[2:])


if __name__ == "__main__":
    main()
