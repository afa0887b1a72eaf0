"""Paper 03: a training step of CORA against dense forms of its graph encoder, and a query's time.

The dense form pads the graphs and, as graph attention is often written, builds every pair of nodes
for each head: (captions, nodes, nodes, heads × head width). It has the same weights and gives the
same vectors, loss and gradients, which is checked (in float64) before anything is timed. It pads to
the largest graph of the batch; the authors' code pads each caption to 13 objects, which one layer
is timed with as well.

Then the parts of one query, a caption that is parsed, encoded and searched for, in three ways.
"mmlib" is what mmlib does. "Same vectors" has an encoder for one caption at a time with what
queries share made ahead, and a search among product codes whose best are scored exactly. "8 bits"
also has the encoder's weights in 8 bits. How many of the exact best ten the codes find is printed
and asserted, for random images and, with --tier flickr8k, for its photographs repeated with noise.

Captions are the picture world's, or with --tier flickr8k its own, parsed. Weights and images are
random: times do not depend on them, and random vectors are the hard case of a search.
Prints Markdown tables: of a step, medians of CPU milliseconds and the peak of what PyTorch's
tensors held beyond what was there before; of a query, CPU milliseconds, each caption's the least
of some rounds, so that other processes disturb little. One thread on an idle core takes as long.
"""

import argparse
import copy
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from measure import machine, tensor_peak_mib, times_ms
from torch import Tensor, nn
from torch.nn import functional as F

from mmlib.core.ranking import flat_index
from mmlib.data import flickr8k
from mmlib.features.text import Vocabulary, tokenize
from mmlib.papers.cora.data.texts import DELIMITERS, LIMITS, LONGEST, Reader
from mmlib.papers.cora.method import GATv2, GraphEncoder, Matcher, PhraseGRU, mean_at, padded
from mmlib.papers.cora.run.batches import GraphBatch, Split, make_batch
from mmlib.papers.cora.run.systems import CORA, Settings, System
from mmlib.papers.cora.variants import PrintedGATv2, build
from mmlib.scenegraph import graph_of, parse
from mmlib.scenegraph.parser import load_english
from mmlib.world.captions import Writer
from mmlib.world.scenes import sample_scene, split_seeds

REGIONS, FEATURES = 36, 2048
PARTS = ("parse", "encode", "search", "all")
PAPER_MS = (40, 14, 10, 60)  # of the parts, on the authors' machine (Section 7)
ROUNDS = 3
RECALL = 0.99  # of the exact best ten, that a faster search must find


# --- Captions -------------------------------------------------------------------------------------


def captions_of(tier: str, split: str, count: int) -> list[str]:
    """Different captions of a tier's split, or as many as there are."""
    if tier == "flickr8k":
        texts = [text for own in flickr8k.load(split).captions for text in own]
        rows = np.random.default_rng(0).permutation(len(texts))
        return list(dict.fromkeys(texts[row] for row in rows))[:count]
    drawn = (
        Writer(sample_scene(seed), np.random.default_rng(seed)).caption(3).text
        for seed in split_seeds(split, 3 * count)
    )
    return list(dict.fromkeys(drawn))[:count]


def reader_of(captions: Sequence[str], size: int = 0) -> Reader:
    """A reader with the captions' words, and made-up ones up to a vocabulary of this size."""
    words = Vocabulary.from_sentences([tokenize(text) for text in captions], min_count=1).words
    words = (*words[:2], *DELIMITERS, *words[2:])
    return Reader((*words, *(f"word{i}" for i in range(size - len(words)))), delimiters=True)


# --- The dense form -------------------------------------------------------------------------------


def dense_layer(layer: GATv2, nodes: Tensor, linked: Tensor) -> Tensor:
    """GATv2 on padded nodes (B, N, d); linked (B, N, N): whether target i hears source j."""
    left, right = layer.left(nodes), layer.right(nodes)
    pairs = F.leaky_relu(left[:, :, None] + right[:, None], 0.2)  # (B, N, N, d)
    scores = (pairs.unflatten(3, (len(layer.attention), -1)) * layer.attention).sum(-1)
    scores = scores.masked_fill(~linked[..., None], -1e30)
    alpha = scores.softmax(dim=2) * linked[..., None]  # a node that hears nobody gets 0
    printed = isinstance(layer, PrintedGATv2)
    values = right if printed else layer.dropout(layer.value(nodes))
    values = values.unflatten(2, (len(layer.attention), -1))
    messages = torch.einsum("bijh,bjhw->bihw", alpha, values).flatten(2)
    return messages.relu() if printed else layer.norm(left + messages).relu()


class Dense(nn.Module):
    """A GraphEncoder's weights on padded graphs: two steps, parsed edges, eq. 6 as printed."""

    def __init__(self, encoder: GraphEncoder):
        super().__init__()
        self.encoder = encoder

    def forward(self, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Captions (B, D) and entities (O, D)."""
        encoder, captions = self.encoder, batch.captions
        flat, labels = (encoder.dropout(phrases.relu()) for phrases in encoder.concepts(batch))
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


class PaddedLayer(nn.Module):
    """A graph attention layer on objects padded to a fixed number a caption."""

    def __init__(self, layer: GATv2, batch: GraphBatch, size: int):
        super().__init__()
        self.layer, self.size, self.rows = layer, size, (batch.caption, batch.position)
        source, target = batch.object_edges()
        self.linked = torch.zeros(batch.captions, size, size, dtype=torch.bool)
        self.linked[batch.caption[target], batch.position[target], batch.position[source]] = True

    def pad(self, rows: Tensor) -> Tensor:
        """Objects (O, d) -> (captions, size, d)."""
        table = rows.new_zeros(len(self.linked), self.size, rows.shape[1])
        return table.index_put(self.rows, rows)

    def forward(self, nodes: Tensor) -> Tensor:
        return dense_layer(self.layer, nodes, self.linked)


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


def in_turn(works: Sequence[Callable[[], object]], repetitions: int) -> list[float]:
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


def layer_ways(
    layer: GATv2, batch: GraphBatch, size: int
) -> tuple[Callable[[], list[Tensor]], ...]:
    """Forward and backward through one object layer, flat and padded: its objects and gradients."""
    width = layer.left.in_features
    nodes, weights = torch.randn(len(batch.objects), width), torch.randn(len(batch.objects), width)
    peer, edges = PaddedLayer(layer, batch, size), batch.object_edges()
    table, padded_weights = peer.pad(nodes), peer.pad(weights)
    nodes.requires_grad_()
    table.requires_grad_()

    def flat() -> list[Tensor]:
        out = layer(nodes, *edges)
        return [out, *torch.autograd.grad(out, [nodes, *layer.parameters()], weights)]

    def dense() -> list[Tensor]:
        out = peer(table)
        found = torch.autograd.grad(out, [table, *layer.parameters()], padded_weights)
        return [out[peer.rows], found[0][peer.rows], *found[1:]]

    return [flat, dense]


def check_layer(layer: GATv2, batch: GraphBatch, size: int) -> None:
    """Raise AssertionError where a flat and a padded layer differ, in float64."""
    torch.set_default_dtype(torch.float64)
    try:
        flat, dense = layer_ways(copy.deepcopy(layer).double().eval(), batch, size)
        torch.testing.assert_close(flat(), dense())
    finally:
        torch.set_default_dtype(torch.float32)


def dense_of(model: Matcher) -> Matcher:
    """The dense form of a model, with its weights."""
    dense = copy.copy(model)
    dense._modules = {**model._modules, "texts": Dense(model.texts)}
    return dense


def compare_steps(model: Matcher, split: Split, repetitions: int) -> None:
    settings, graphs = model.settings, split.texts["graph"]
    size, texts = len(graphs), model.texts
    assert isinstance(texts, GraphEncoder)
    every, rng = np.arange(size), np.random.default_rng(0)
    batch = make_batch(split, graphs, every, settings, rng, split.captions_of)
    dense = dense_of(model)
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
        f"{len(getattr(graphs, kind)) / size:.1f} {kind} ({len(getattr(text, kind)) / size:.1f})"
        for kind in kinds
    ]
    print(
        f"batch {size}, width {settings.width}, {settings.heads} heads; a graph has on average "
        f"{', '.join(means)}, in brackets what the augmentation leaves; medians of {repetitions}, "
        "CPU time\n"
    )
    print("| forward and backward | mmlib ms | MiB | dense ms | MiB | ratio of times | of MiB |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    layer, most = copy.deepcopy(texts.objects[0]), LIMITS["objects"]
    check_layer(layer, text, most)
    ways: dict[str, Sequence[Callable[[], object]]] = {
        f"one object layer; dense: {most} objects": layer_ways(layer, text, most),
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
            f"| {name} | {ours:.1f} | {mine:.1f} | {theirs:.1f} | {peer:.1f} "
            f"| {theirs / ours:.2f} | {peer / mine:.2f} |",
            flush=True,
        )


# --- A query --------------------------------------------------------------------------------------


def parts_of(
    works: Sequence[Callable], captions: Sequence[str]
) -> tuple[np.ndarray, list[list[Any]]]:
    """CPU milliseconds (captions, parts and all) of queries, and what each part gave."""
    rows, gave = [], []
    for text in captions:
        given, marks = [text], [time.process_time()]
        for work in works:
            given.append(work(given[-1]))
            marks.append(time.process_time())
        rows.append([*np.diff(marks), marks[-1] - marks[0]])
        gave.append(given[1:])
    return 1000 * np.array(rows), [list(part) for part in zip(*gave, strict=True)]


def in_rounds(
    ways: dict[str, Sequence[Callable]], captions: Sequence[str], rounds: int
) -> tuple[dict[str, np.ndarray], dict[str, list[list[Any]]]]:
    """As `parts_of`, by way: the least of some rounds, in which the ways take turns."""
    taken, gave = {}, {}
    for _ in range(rounds):
        for name, works in ways.items():
            times, gave[name] = parts_of(works, captions)
            taken[name] = np.minimum(taken.get(name, times), times)
    return taken, gave


class Codes:
    """Search among 2 bits a dimension; the `near` best are scored exactly. Not exact itself."""

    def __init__(self, vectors: np.ndarray, near: int):
        import faiss

        width = vectors.shape[1]
        self.vectors, self.near = vectors, near
        self.codes = faiss.IndexPQFastScan(width, width // 2, 4, faiss.METRIC_INNER_PRODUCT)
        self.codes.train(vectors[:20_000])
        self.codes.add(vectors)

    def search(self, query: np.ndarray, k: int = 10) -> np.ndarray:
        """The rows (k,) with the best cosines, as far as the codes let them through."""
        rows = self.codes.search(query[None], self.near)[1][0]
        return rows[np.argsort(-(self.vectors[rows] @ query), kind="stable")[:k]]


class Phrases(nn.Module):
    """A PhraseGRU with all that one word decides made ahead; the same states but for rounding.

    A word's part in the gates, the state after it where it stands first, and that of a phrase of
    one word alone, [CLS] word [SEP]. Longer phrases take their steps, as many as they have words.

    marks: the ids of [CLS] and [SEP].
    """

    def __init__(self, phrases: PhraseGRU, marks: tuple[int, int]):
        super().__init__()
        weights, words = dict(phrases.gru.named_parameters()), phrases.embed.weight
        ways = ("l0", "l0_reverse")
        self.words = torch.stack(
            [torch.addmm(weights[f"bias_ih_{w}"], words, weights[f"weight_ih_{w}"].T) for w in ways]
        )  # (2, vocabulary, 3 d)
        self.own = torch.stack([weights[f"weight_hh_{w}"].T for w in ways]).contiguous()
        self.bias = torch.stack([weights[f"bias_hh_{w}"] for w in ways])[:, None]
        nothing = words.new_zeros(2, len(words), self.own.shape[1])
        self.first = self.step(self.words, self.bias, nothing)  # (2, vocabulary, d)
        rows, self.marks = torch.arange(len(words)), torch.tensor(marks)
        ids = torch.stack([self.marks[0].expand_as(rows), rows, self.marks[1].expand_as(rows)], 1)
        self.alone = self.states(ids, torch.full_like(rows, 3))  # (vocabulary, d)

    @staticmethod
    def step(inputs: Tensor, own: Tensor, state: Tensor) -> Tensor:
        """Parts of words and of states (2, U, 3 d), states (2, U, d) -> next states (2, U, d)."""
        (r, z, n), (own_r, own_z, own_n) = inputs.chunk(3, 2), own.chunk(3, 2)
        return (n + (r + own_r).sigmoid() * own_n).tanh().lerp(state, (z + own_z).sigmoid())

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Ids (U, L), lengths (U,) -> (U, d)."""
        longer = (lengths != 3) | (ids[:, :3:2] != self.marks).any(dim=1)
        states = self.alone[ids[:, 1]]
        if longer.any():
            states[longer] = self.states(ids[longer], lengths[longer])
        return states

    def states(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """As `forward`, step by step."""
        order = lengths.argsort(descending=True)
        ids, lengths, place = ids[order], lengths[order], torch.arange(ids.shape[1])
        back = ids.gather(1, (lengths[:, None] - 1 - place).clamp(min=0))
        left = (lengths[:, None] > place).sum(dim=0).tolist()  # phrases that have a word there

        def at(table: Tensor, i: int) -> Tensor:
            return torch.stack([table[0][ids[: left[i], i]], table[1][back[: left[i], i]]])

        states = at(self.first, 0)
        for i in range(1, ids.shape[1]):
            now = states[:, : left[i]]
            own = torch.baddbmm(self.bias, now, self.own)
            states[:, : left[i]] = self.step(at(self.words, i), own, now)
        return torch.empty_like(states[0]).index_copy(0, order, states.mean(dim=0))


class Attention(nn.Module):
    """A GATv2 of the authors' form on one small graph, its three maps as one; the same nodes."""

    def __init__(self, layer: GATv2):
        super().__init__()
        self.maps = joined(layer.left, layer.right, layer.value)
        self.attention, self.norm = layer.attention, layer.norm

    def forward(self, nodes: Tensor, linked: Tensor) -> Tensor:
        """Nodes (N, d) and whether each of the first T hears them (T, N) -> the first T (T, d)."""
        left, right, values = self.maps(nodes).chunk(3, dim=1)
        pairs = F.leaky_relu(left[: len(linked), None] + right, 0.2)  # (T, N, d)
        scores = (pairs.unflatten(2, self.attention.shape) * self.attention).sum(-1)
        alpha = scores.masked_fill(~linked[..., None], -torch.inf).softmax(dim=1)  # (T, N, heads)
        values = values.unflatten(1, self.attention.shape)
        messages = torch.einsum("tnh,nhw->thw", alpha, values).flatten(1)
        return self.norm(left[: len(linked)] + messages).relu()


class Alone(nn.Module):
    """CORA's GraphEncoder for one caption at a time: fewer operations, the same vectors.

    Made ahead: each word's part in the phrases, and the weights of pooling, which depend on the
    number of objects alone.
    """

    def __init__(self, texts: GraphEncoder, marks: tuple[int, int]):
        super().__init__()
        self.phrases = Phrases(texts.concepts.phrases[0], marks)
        self.labels = joined(texts.concepts.node, texts.concepts.relation)
        self.attributes = Attention(texts.attributes[0])
        self.roles = joined(texts.context.active, texts.context.passive)
        self.objects = nn.ModuleList(Attention(one) for one in texts.objects)
        self.theta = texts.pool.weights(torch.arange(1, LIMITS["objects"] + 1))

    def forward(self, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """The caption (1, D) and its entities (O, D)."""
        said, n = self.labels(self.phrases(batch.tokens, batch.lengths)).relu(), len(batch.objects)
        of_node, of_relation = said.chunk(2, dim=1)
        nodes = of_node[torch.cat([batch.objects, batch.attributes])]
        linked = torch.eye(n, len(nodes), dtype=torch.bool)
        linked[batch.owner, torch.arange(n, len(nodes))] = True
        entities = hidden = self.attributes(nodes, linked)
        edges = torch.cat([of_relation[batch.relations], entities[batch.object]], dim=1)
        active, passive = self.roles(edges).chunk(2, dim=1)
        hidden = hidden + mean_at(batch.subject, active, n) + mean_at(batch.object, passive, n)
        linked = torch.eye(n, dtype=torch.bool)
        linked[batch.subject, batch.object] = linked[batch.object, batch.subject] = True
        for layer in self.objects:
            hidden = layer(hidden, linked)
        return self.theta[n - 1 : n, :n] @ hidden.sort(dim=0, descending=True).values, entities


def joined(*maps: nn.Linear) -> nn.Linear:
    """Linear layers that read the same as one."""
    bias = maps[0].bias is not None
    one = nn.Linear(maps[0].in_features, sum(m.out_features for m in maps), bias)
    one.weight.copy_(torch.cat([m.weight for m in maps]))
    if bias:
        one.bias.copy_(torch.cat([m.bias for m in maps]))
    return one


class Words(Reader):
    """A Reader with delimiters that makes its table of words once, not for each text."""

    @cached_property
    def place(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.vocabulary)}

    def ids(self, phrases: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Ids (phrases, longest) int64 padded with 0, lengths (phrases,)."""
        inner = [tokenize(phrase)[:LONGEST] or ["<unk>"] for phrase in phrases]
        rows = [["[CLS]", *words, "[SEP]"] for words in inner]
        lengths = np.array([len(row) for row in rows])
        ids = np.zeros((len(rows), lengths.max()), dtype=np.int64)
        unknown = self.place["<unk>"]
        for row, words in zip(ids, rows, strict=True):
            row[: len(words)] = [self.place.get(word, unknown) for word in words]
        return ids, lengths


@torch.no_grad()
def prepared(model: Matcher, marks: tuple[int, int], bits: bool = True) -> Matcher:
    """The model for one caption at a time, and the weights of linear layers in 8 bits.

    The 8 bits change its vectors; without them they stay, but for rounding.
    """
    if replace(model.system, record_diagnostics=False) != System("CORA"):
        raise ValueError(f"made for CORA, not for its variant {model.system}")
    model = copy.deepcopy(model)
    model.texts = Alone(model.texts, marks)
    if not bits:
        return model
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of deprecation, twice
        return torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, inplace=True)


def unit(vectors: np.ndarray) -> np.ndarray:
    """Rows (n, D) of length 1."""
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def found_by_codes(index: Any, codes: Codes, queries: np.ndarray) -> float:
    """The part of the exact best ten that codes find. AssertionError where that is too little."""
    exact = index.search(queries, 10)[1]
    part = share(exact, [codes.search(query) for query in queries])
    if part < RECALL:
        raise AssertionError(f"codes find {part:.4f} of the exact best ten, not {RECALL}")
    return part


def photographs(images: int, width: int, queries: int) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors of Flickr8k's photographs (images, width), and queries near some of them.

    The grid's features, projected at random and repeated with noise to get as many; a query's
    cosine with its photograph is about .6.
    """
    rng = np.random.default_rng(2)
    grids = np.concatenate([flickr8k.load(s).features for s in ("train", "val", "test")])
    flat = grids.reshape(len(grids), -1).astype(np.float32)
    flat = unit(flat - flat.mean(axis=0))
    flat = unit(flat @ rng.standard_normal((flat.shape[1], width), dtype=np.float32))
    scale = np.float32(width**-0.5)  # of noise as long as a vector
    vectors = flat[rng.integers(len(flat), size=images)]
    vectors = unit(vectors + 0.5 * scale * rng.standard_normal(vectors.shape, dtype=np.float32))
    near = vectors[rng.integers(images, size=queries)]
    noise = rng.standard_normal(near.shape, dtype=np.float32)
    return vectors, unit(near + 1.3 * scale * noise)


def encoder(own: Matcher, reader: Reader) -> Callable:
    """Encodes a graph as a unit vector (D,)."""

    def encode(graph: Any) -> np.ndarray:
        batch = reader.graphs([graph]).batch(np.array([0]))
        with torch.inference_mode():
            return own.encode_texts(batch)[0][0].numpy()

    return encode


def time_queries(
    model: Matcher, reader: Reader, images: int, captions: Sequence[str], near: int = 500
) -> None:
    """Parse a caption, encode it, search the images: one caption after another, in three ways."""
    model.eval()
    width = model.settings.width
    rng = np.random.default_rng(1)
    vectors = unit(rng.standard_normal((images, width), dtype=np.float32))
    index, codes, nlp = flat_index(vectors), Codes(vectors, near), load_english()
    words = Words(reader.vocabulary, delimiters=True)
    marks = words.place["[CLS]"], words.place["[SEP]"]

    def fast(bits: bool) -> tuple[Callable, ...]:
        own = prepared(model, marks, bits)
        return lambda text: graph_of(nlp(text)), encoder(own, words), codes.search

    exact = (
        lambda text: parse([text])[0],
        encoder(model, reader),
        lambda query: index.search(query[None], 10)[1][0],
    )
    ways = {"mmlib": exact, "same vectors": fast(False), "8 bits": fast(True)}
    in_rounds(ways, captions[:5], 1)  # a warm-up
    taken, gave = in_rounds(ways, captions, ROUNDS)
    right = np.array(gave["mmlib"][1])
    part = found_by_codes(index, codes, right)
    print(
        f"\n| one query, {images} images of width {width}, CPU ms (least of {ROUNDS} rounds; "
        f"median and 95th percentile of {len(captions)}) | the paper's machine | "
        f"{' | '.join(f'{name} | 95 %' for name in ways)} |\n|---|{'--:|' * 7}"
    )
    for i, name in enumerate(PARTS):
        cells = [f"{np.quantile(taken[way][:, i], q):.1f}" for way in ways for q in (0.5, 0.95)]
        print(f"| {name} | {PAPER_MS[i]} | {' | '.join(cells)} |")
    print(f"\nOf the exact best ten, codes find {100 * part:.2f} % among random images.")
    for name in ("same vectors", "8 bits"):
        cosines = (right * np.array(gave[name][1])).sum(axis=1)
        kept = share(gave["mmlib"][2], gave[name][2])
        print(f"{name}: cosine at least {cosines.min():.6f}, {100 * kept:.2f} % of the best ten.")


def check_photographs(images: int, width: int, near: int = 500) -> None:
    """Print what the codes find among photographs; see `photographs`."""
    vectors, queries = photographs(images, width, 200)
    part = found_by_codes(flat_index(vectors), Codes(vectors, near), queries)
    print(f"Among photographs repeated with noise they find {100 * part:.2f} %.")


def share(right: Sequence[Sequence[int]], found: Sequence[Sequence[int]]) -> float:
    """Which part of some rows is found, on average."""
    return float(np.mean([len({*a} & {*b}) / len(a) for a, b in zip(right, found, strict=True)]))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes: does it still run?")
    parser.add_argument("--tier", choices=["world", "flickr8k"], default="world")
    args = parser.parse_args(arguments)
    size, width, features = (12, 32, 24) if args.quick else (128, 1024, FEATURES)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    captions = captions_of(args.tier, "train", size)
    queries = captions_of(args.tier, "test", 10 if args.quick else 200)
    reader = reader_of([*captions, *queries], 4000)
    settings = Settings(width=width, heads=4 if args.quick else 16,
                        word_width=16 if args.quick else 300)  # fmt: skip
    words = torch.randn(len(reader.vocabulary), settings.word_width)
    model = build(CORA, settings, features, words)
    regions = np.random.default_rng(0).standard_normal((size, REGIONS, features), dtype=np.float32)
    graphs = reader.graphs(parse(captions))
    print(f"{machine()}; captions of {args.tier}; {len(reader.vocabulary)} words\n")
    split = Split(regions, np.arange(size), {"graph": graphs})
    compare_steps(model, split, 1 if args.quick else 5)
    images = 2000 if args.quick else 100_000
    time_queries(model, reader, images, queries)
    if args.tier == "flickr8k":
        check_photographs(images, width)


if __name__ == "__main__":
    main()
