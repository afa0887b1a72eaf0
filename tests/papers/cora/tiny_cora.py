"""Toy captions as graphs and sequences, and toy pictures of what they say."""

from dataclasses import asdict, replace

import networkx as nx
import numpy as np
import test_bert
import torch
from hypothesis import strategies as st
from torch import nn

from mmlib.core.jobs import Job
from mmlib.papers.cora.data.texts import Reader
from mmlib.papers.cora.method import GATv2
from mmlib.papers.cora.run.batches import Arrays, Split, make_batch
from mmlib.papers.cora.run.systems import (
    ERRORS,
    PAPER,
    RATES,
    SYSTEMS,
    Augmentation,
    Settings,
    System,
)
from mmlib.papers.cora.variants import PrintedGATv2, build

NAMES = ("man", "dog", "fence", "red cup", "old stone house")
LOOKS = ("tall", "red", "young", "jumping quickly", "two")
LINKS = ("hold", "near", "jump over", "with")
SPECIAL = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
WORDS = SPECIAL + tuple(sorted({w for text in NAMES + LOOKS + LINKS for w in text.split()}))
CLS, SEP, MASK = 2, 3, 4
INNER = 7  # width of a region
READER = Reader(WORDS, delimiters=True)

TINY = Settings(width=16, word_width=6, heads=4)
CALM = {
    "region_dropout": 0.0, "drop_objects": 0.0, "drop_attributes": 0.0, "drop_relations": 0.0,
    "mask": 0.0, "image_dropout": 0.0, "graph_dropout": 0.0, "message_dropout": 0.0,
}  # fmt: skip
NONE = Augmentation(0.0, 0.0, 0.0, 0.0, 0.0)
HIGH = Augmentation(0.35, 0.3, 0.2, 0.25, 0.3)


def scene(objects, relations=()):
    """A graph from ("man", "tall", "jumping quickly"), ... and (subject, label, object), ..."""
    graph = nx.MultiDiGraph(text="", fallback=False)
    for i, (name, *said) in enumerate(objects):
        graph.add_node(i, type="object", label=name)
        for k, text in enumerate(said):
            label, *adverbs = text.split()
            graph.add_node((i, k), type="attribute", label=label, adverbs=tuple(adverbs))
            graph.add_edge(i, (i, k), type="attribute", label="has")
    for a, label, b in relations:
        graph.add_edge(a, b, type="relation", label=label)
    return graph


@st.composite
def descriptions(draw, most=4):
    """Arguments of `scene`: parallel relations and relations to oneself come up as well."""
    objects = draw(
        st.lists(
            st.tuples(st.sampled_from(NAMES), st.lists(st.sampled_from(LOOKS), max_size=3)),
            min_size=1, max_size=most,
        )
    )  # fmt: skip
    end = st.integers(0, len(objects) - 1)
    relations = draw(st.lists(st.tuples(end, st.sampled_from(LINKS), end), max_size=5))
    return [(name, *said) for name, said in objects], relations


RICH = [
    ([("man", "tall", "young"), ("red cup",), ("dog", "jumping quickly")],
     [(0, "hold", 1), (2, "near", 0), (0, "with", 2)]),
    ([("dog", "red"), ("fence",), ("old stone house", "two")],
     [(0, "jump over", 1), (1, "near", 2), (0, "near", 1)]),
    ([("fence", "red", "tall")], []),
    ([("man",), ("man", "young")], [(0, "hold", 0), (1, "near", 0)]),
]  # fmt: skip


def graph_set(described, reader=READER):
    return reader.graphs([scene(*d) for d in described])


def whole(described):
    return graph_set(described).batch(np.arange(len(described)))


def sentence(described):
    objects, relations = described
    return " ".join([*(" ".join((*said, name)) for name, *said in objects),
                     *(label for _, label, _ in relations)])  # fmt: skip


def split_of(described, image_of, features):
    texts = {
        "graph": graph_set(described),
        "sequence": READER.sequences([sentence(d) for d in described]),
    }
    return Split(features, np.array(image_of), texts)


def paired(regions=5):
    features = np.random.default_rng(0).normal(size=(4, regions, INNER)).astype(np.float32)
    return split_of(RICH * 2, [0, 0, 1, 1, 2, 2, 3, 3], features)


def drawn_batch(split, how=TINY, rows=range(8), reads="graph", match="image", seed=0):
    rng = np.random.default_rng(seed)
    rows = np.array(rows)
    batch = make_batch(split, split.texts[reads], rows, how, rng, split.captions_of, match)
    return replace(batch, regions=batch.regions.to(torch.get_default_dtype()))


def stir(module, seed=0):
    """Random values everywhere, padding and norms too, so that no fault hides behind a 0 or 1."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in module.state_dict().values():
            if value.is_floating_point():
                noise = torch.randn(value.shape, generator=generator, dtype=value.dtype)
                value.add_(0.2 * noise)
        for layer in module.modules():
            if isinstance(layer, nn.BatchNorm1d):
                layer.running_var.abs_().add_(0.1)
    return module


def model_of(settings=TINY, **changes):
    """A model of CORA with these changes, with stirred weights, in evaluation mode."""
    torch.manual_seed(0)
    system = System(**{"system": "CORA", **changes})
    words = torch.randn(len(WORDS), settings.word_width)
    return stir(build(system, settings, INNER, words)).eval()


GAT = {"printed": PrintedGATv2, "authors": GATv2}


def alphas(layer, nodes, source, target):
    return layer.attention_weights(layer.left(nodes), layer.right(nodes), source, target)


def weights_of(module, prefix=""):
    start = f"{prefix}." if prefix else ""
    state = module.state_dict()
    return {f"{start}{k}": v.detach().double().numpy() for k, v in state.items()}


# --- Pictures that can be learnt ---------------------------------------------------------------


def pictures(count, seed):
    """Pictures of two things with a look each: a region for each, two of noise, two captions."""
    rng = np.random.default_rng(seed)
    basis = np.random.default_rng(99).normal(size=(2, 5, INNER))
    features = 0.3 * rng.normal(size=(count, 4, INNER))
    described = []
    for picture in features:
        things, looks = rng.permutation(5)[:2], rng.integers(0, 5, 2)
        for region in range(2):
            picture[region] += basis[0, things[region]] + basis[1, looks[region]]
        objects = [(NAMES[t], LOOKS[k]) for t, k in zip(things, looks, strict=True)]
        described += [(objects, [(0, "near", 1)]), (objects[::-1], [(0, "with", 1)])]
    return split_of(described, np.repeat(np.arange(count), 2), features.astype(np.float32))


# A temperature of 0.01 takes longer than a test may: from a cold start all vectors first fall
# together.
HOW = replace(
    TINY, width=32, word_width=16, batch=16, captions=1, learning_rate=3e-3, temperature=0.1,
    lambda_con=1.0, word_rate=1.0, lr_decay_at=1.0, mean_negatives=1.0, epochs=3, **CALM,
)  # fmt: skip


def tiny(train=96, test=24):
    """A collection of such pictures as arrays, with test graphs that are not really damaged."""
    sizes = {"train": train, "val": 16, "test": test}
    splits = {name: pictures(count, seed) for seed, (name, count) in enumerate(sizes.items())}
    texts = splits["test"].texts
    damaged = {f"{kind} {rate}": texts["graph"] for kind in ERRORS for rate in RATES}
    splits["test"] = replace(splits["test"], texts={**texts, **damaged})
    words = np.random.default_rng(1).normal(size=(len(WORDS), HOW.word_width)).astype(np.float32)
    own = splits["test"].image_of == np.arange(test)[:, None]
    return Arrays(splits, words, WORDS, {"graph": own.astype(np.float32)})


def job(name, how=HOW, seed=0, **changes):
    return Job(PAPER, "tiny", "tiny", asdict(replace(SYSTEMS[name], **changes)), seed, asdict(how))


def write_bert(path):
    """A small random BERT of these words, as it lies on a disk."""
    return test_bert.write_bert(
        path, words=["[PAD]", "[UNK]", *WORDS[2:]], hidden_size=16, num_hidden_layers=2,
        num_attention_heads=2, intermediate_size=24, max_position_embeddings=48,
    )  # fmt: skip
