"""CORA against the printed oracles, against loops (cora_oracles), and under its invariants."""

import copy
import math
from collections import Counter
from dataclasses import replace
from functools import partial

import cora_oracles as loops
import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from mmlib import cora
from mmlib.cora import GPO, PRESETS, SYSTEMS, GATv2, GraphSet, RelationContext, Settings, Split
from mmlib.core.ranking import metrics, ranks_of_scores
from mmlib.training import seed_everything

pytestmark = pytest.mark.usefixtures("double")


@pytest.fixture
def single():
    """Trainings run in float32 as they do for users."""
    torch.set_default_dtype(torch.float32)
    yield
    torch.set_default_dtype(torch.float64)


few = settings(max_examples=25, deadline=None)
many = settings(max_examples=80, deadline=None)
seeds = st.integers(0, 2**32 - 1)
near = partial(pytest.approx, rel=1e-9, abs=1e-10)

# --- Toy captions --------------------------------------------------------------------------------

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CLS, SEP, MASK = 2, 3, 4
NAMES = ("man", "dog", "fence", "red cup", "old stone house")
LOOKS = ("tall", "red", "young", "jumping quickly", "two")
LINKS = ("hold", "near", "jump over", "with")
WORDS = SPECIAL + tuple(sorted({w for text in NAMES + LOOKS + LINKS for w in text.split()}))
INNER = 7  # width of a region


def tokens(phrases):
    """Phrases as word ids between delimiters; unknown words get ids after the known ones."""
    known = {word: i for i, word in enumerate(WORDS)}
    rows = [[CLS, *(known.setdefault(w, len(known)) for w in p.split()), SEP] for p in phrases]
    ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
    return ids, torch.tensor([len(row) for row in rows])


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


def graph_set(described):
    return GraphSet([scene(*d) for d in described], tokens, MASK)


def whole(described, **changes):
    """The batch of all these captions as they are."""
    return graph_set(described).batch(np.arange(len(described)))


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


TINY = Settings(width=16, word_width=6, heads=4)


def model_of(base=TINY, **changes):
    """A model of this size with stirred weights, in evaluation mode."""
    torch.manual_seed(0)
    model = cora.build(replace(base, **changes), INNER, embeddings=torch.randn(len(WORDS), 6))
    return stir(model).eval()


def arrays(module):
    return {k: v.detach().double().numpy() for k, v in module.state_dict().items()}


def encoded(model, described):
    """Caption vectors (B, D) and entities of each caption, before normalisation."""
    batch = whole(described)
    with torch.no_grad():
        captions, entities = model.texts(batch)
    return captions, [entities[batch.caption == i] for i in range(len(described))]


def close(a, b, tolerance=1e-9):
    return a.shape == b.shape and torch.allclose(a, b, rtol=tolerance, atol=tolerance)


# --- The printed oracles (17.1 to 17.8) ----------------------------------------------------------


def set_weights(layer, **values):
    """Set parameters by name, with "__" for a dot, and biases to 0."""
    with torch.no_grad():
        for name, value in layer.named_parameters():
            if name.endswith("bias"):
                value.zero_()
        for name, value in values.items():
            layer.get_parameter(name.replace("__", ".")).copy_(torch.as_tensor(value))
    return layer


def into(targets):
    """(source, target) from {target: sources}."""
    pairs = [(s, t) for t, sources in targets.items() for s in sources]
    return torch.tensor(pairs).T


def test_printed_attention_gives_the_oracle():
    layer = set_weights(
        GATv2(2, 1, "printed"), left__weight=torch.eye(2), right__weight=torch.eye(2),
        attention=[[1.0, 1.0]],
    )  # fmt: skip
    nodes = torch.tensor([[0.0, 0], [1, 0], [0, -1]])
    source, target = into({0: [0, 1, 2], 1: [0, 1], 2: [0, 2]})
    alpha = layer.scores(nodes, source, target).flatten().tolist()
    wanted = [0.220409, 0.599135, 0.180456, 0.268941, 0.731059, 0.549834, 0.450166]
    assert alpha == pytest.approx(wanted, abs=6e-7)
    assert layer(nodes, source, target)[0].tolist() == pytest.approx([0.599135, 0], abs=6e-7)


def test_the_authors_attention_gives_the_oracle():
    eye = torch.eye(4)
    layer = set_weights(
        GATv2(4, 1, "authors"), left__weight=eye, right__weight=eye, value__weight=eye,
        attention=torch.ones(1, 4),
    )  # fmt: skip
    nodes = torch.tensor([[0.0, 0, 0, 0], [1, 0, 0, 0], [0, -1, 0, 2]])
    source, target = into({0: [0, 1, 2]})
    alpha = layer.scores(nodes, source, target).flatten().tolist()
    assert alpha == pytest.approx([0.102376, 0.278286, 0.619338], abs=6e-7)
    out = layer(nodes, source, target)[0].tolist()
    assert out == pytest.approx([0.080456, 0, 0, 1.514532], abs=2e-6)
    layer.norm = nn.Identity()
    seen = layer(nodes, source, target)[0].tolist()
    assert seen == pytest.approx([0.278286, 0, 0, 1.238675], abs=6e-7)


def test_attention_is_dynamic():
    """e(1, 1) = e(-1, -1) = -1.6 and e(1, -1) = e(-1, 1) = 0: each query prefers the other node."""
    maps = [[1.0, 0], [-1, 0]]
    layer = set_weights(
        GATv2(2, 1, "printed"), left__weight=maps, right__weight=maps, attention=[[-1.0, -1]]
    )
    nodes = torch.tensor([[1.0, 0], [-1, 0]])
    source, target = into({0: [0, 1], 1: [0, 1]})
    alpha = layer.scores(nodes, source, target).flatten().tolist()
    low = 1 / (1 + math.exp(1.6))
    assert alpha == pytest.approx([low, 1 - low, 1 - low, low])


@pytest.mark.parametrize(
    ("form", "wanted"), [("printed", [10.5, 6, 15]), ("authors", [17 / 3, 6, 9])]
)
def test_relation_context_gives_the_oracle(form, wanted):
    layer = set_weights(
        RelationContext(1, form), active__weight=[[0.1, 1.0]], passive__weight=[[0.2, 1.0]]
    )
    if form == "authors":
        layer.norm = nn.Identity()  # of one number it would be 0
    entities, relations = torch.tensor([[1.0], [2], [3]]), torch.tensor([[10.0], [20], [30]])
    out = layer(entities, relations, torch.tensor([0, 2, 0]), torch.tensor([1, 0, 2]))
    assert out.flatten().tolist() == near(wanted)


PILE = torch.tensor([[[1.0, 6], [3, 2], [2, 4]]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("theta", "wanted"),
    [
        ((1, 0, 0), (3, 6)),
        ((1 / 3, 1 / 3, 1 / 3), (2, 4)),
        ((0.5, 0.5, 0), (2.5, 5)),
        ((0.7, 0.2, 0.1), (2.6, 5.2)),
    ],
)
def test_pooling_with_given_weights(theta, wanted):
    gpo = GPO()
    gpo.weights = lambda lengths: torch.tensor([theta])
    assert gpo(PILE, torch.tensor([3]))[0].tolist() == near(wanted)
    assert loops.pool(PILE[0].numpy(), theta) == near(wanted)


class Constant(nn.Module):
    """Gives the same scores whatever it reads."""

    def __init__(self, *scores):
        super().__init__()
        self.scores = torch.tensor(scores)[None, :, None]

    def forward(self, states):
        return self.scores


def test_pooling_divides_scores_by_the_temperature():
    gpo = GPO()
    gpo.score = Constant(0.1, 0.0, 0.0)
    theta = gpo.weights(torch.tensor([3]))[0].tolist()
    assert theta == pytest.approx([0.576117, 0.211942, 0.211942], abs=6e-7)
    pooled = gpo(PILE, torch.tensor([3]))[0].tolist()
    assert pooled == pytest.approx([2.364175, 4.728351], abs=6e-7)


def test_pooling_without_scores_is_the_mean_of_what_is_valid():
    gpo = set_weights(GPO(), score__weight=torch.zeros(1, 32))
    features = torch.tensor([[[1.0, 6], [3, 2], [99, 99]], [[1, 6], [3, 2], [2, 4]]])
    out = gpo(features, torch.tensor([2, 3]))
    assert out.tolist() == [near([2.0, 4]), near([2.0, 4])]


def test_the_first_ranks_as_waves():
    rows = cora.sinusoid(torch.arange(2), 4)
    assert rows[0].tolist() == [0, 1, 0, 1]
    assert rows[1].tolist() == pytest.approx([0.841471, 0.540302, 0.01, 0.99995], abs=6e-7)


SCORES = torch.tensor([[0.9, 0.6, 0.1], [0.3, 0.8, 0.7], [0.2, 0.5, 0.4]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("margin", "total", "mean", "twins"),
    [(0.2, 0.9, 0.3, 0.3), (0.35, 1.55, 0.516667, 0.466667), (0.4, 1.8, 0.6, 0.533333)],
)
def test_hardest_negatives_give_the_oracle(margin, total, mean, twins):
    same = torch.eye(3, dtype=torch.bool)
    assert cora.hardest(SCORES, same, margin, reduction="sum").item() == near(total)
    assert cora.hardest(SCORES, same, margin).item() == pytest.approx(mean, abs=6e-7)
    same[0, 1] = same[1, 0] = True
    assert cora.hardest(SCORES, same, margin).item() == pytest.approx(twins, abs=6e-7)


def test_the_halves_of_the_triplet_loss():
    assert list(map(sum, loops.hardest(SCORES, np.eye(3), 0.2))) == near([0.4, 0.5])
    assert list(map(sum, loops.hardest(SCORES, np.eye(3), 0.4))) == near([0.9, 0.9])


COSINES = torch.tensor([[0.02, 0, 0.01], [0, 0.03, 0]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("positive", "sides"),
    [
        ([[1, 0, 1], [0, 1, 0]], (0.157509, 0.162926)),
        ([[1, 0, 1], [0, 1, 1]], ((0.220095 + 0.370867) / 2, (0.126928 + 0.048587) / 3)),
    ],
)
def test_the_contrastive_loss_gives_the_oracle(positive, sides):
    mates = torch.tensor(positive, dtype=torch.bool)
    assert loops.contrastive(COSINES, mates, 0.01) == pytest.approx(sides, abs=2e-6)
    loss = cora.contrastive(COSINES, mates, 0.01).item()
    assert loss == pytest.approx(0.320435 if positive[1][2] == 0 else 0.353986, abs=2e-6)


@pytest.mark.parametrize(
    ("margin", "total", "mean"), [(0.2, 0.15, 0.05), (0.35, 0.45, 0.15), (0.4, 0.55, 0.183333)]
)
def test_specificity_gives_the_oracle(margin, total, mean):
    captions, entities = torch.tensor([0.5, 0.5, 0.6]), torch.tensor([0.3, 0.45, 0.1])
    assert cora.specificity(captions, entities, margin, "sum").item() == near(total)
    assert cora.specificity(captions, entities, margin).item() == pytest.approx(mean, abs=6e-7)


def test_the_presets_weigh_the_losses_as_the_paper_and_the_code_do():
    paper, code = PRESETS["paper"], PRESETS["code"]
    assert (paper.hard, paper.con, paper.spec) == (1, 0.25, 3)
    assert (4 * code.hard, 4 * code.con, 4 * code.spec) == (4, 1, 11)
    assert (paper.margin, code.margin) == (0.4, 0.35)
    assert paper.temperature == code.temperature == 0.01


def test_retrieval_gives_the_oracle():
    scores = np.array([
        [0.1, 0.2, 0.3, 0.4, 0.8, 0.5, 0.6, 0.7, 0.05, -0.1],
        [0.9, 0.85, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0],
    ])  # fmt: skip
    image_of = np.repeat([0, 1], 5)
    found = metrics(ranks_of_scores(scores, image_of))
    names = [f"{way}_r{k}" for way in ("i2t", "t2i") for k in (1, 5, 10)]
    assert [found[n] for n in names] == near([50, 50, 100, 30, 100, 100])
    assert found["rsum"] == near(430)
    perfect = (image_of == np.arange(2)[:, None]).astype(float)
    assert metrics(ranks_of_scores(perfect, image_of))["rsum"] == near(600)


def richness(graphs):
    """Attributes plus relations of each caption."""
    return sum(np.diff(graphs.starts[kind]) for kind in ("attributes", "relations")).tolist()


def seen(images, captions, entities=None, caption_of=None):
    return cora.Encoded(
        np.array(images, float), np.array(captions, float), np.zeros(len(captions), int),
        None if entities is None else np.array(entities, float),
        None if caption_of is None else np.array(caption_of),
    )  # fmt: skip


def test_reranking_gives_the_oracle():
    one = seen([[1, 0]], [[0.5, 0]], [[0.4, 0], [0.2, 0]], [0, 0])
    scores = one.images @ one.captions.T
    assert cora.mix(scores, cora.weakest_entity(one), 0.9) == near(np.array([[0.47]]))
    assert cora.mix(scores, cora.weakest_entity(one), 1.0) == near(scores)
    alone = seen([[1, 0]], [[0.5, 0]], [[0.5, 0]], [0])
    for beta in (0.0, 0.3, 1.0):
        assert cora.mix(scores, cora.weakest_entity(alone), beta) == near(scores)


# --- Layers against loops ------------------------------------------------------------------------


@st.composite
def edge_lists(draw):
    """How many nodes, and edges between them, each once; a node may have none."""
    count = draw(st.integers(1, 5))
    node = st.integers(0, count - 1)
    return count, draw(st.lists(st.tuples(node, node), unique=True, max_size=12))


@pytest.mark.parametrize("form", ["printed", "authors"])
@few
@given(edge_lists(), seeds)
def test_graph_attention_is_the_loop(form, nodes_and_edges, seed):
    count, edges = nodes_and_edges
    torch.manual_seed(seed % 1000)
    layer = stir(GATv2(8, 2, form), seed)
    nodes = torch.randn(count, 8)
    source, target = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T
    wanted, weights = loops.gat(
        {f"g.{k}": v for k, v in arrays(layer).items()}, "g", nodes.numpy(), edges, form
    )
    alpha = layer.scores(nodes, source, target)
    assert alpha.tolist() == [[near(weights[s, t, h]) for h in range(2)] for s, t in edges]
    assert layer(nodes, source, target).detach().numpy() == near(wanted)


def test_attention_survives_large_scores():
    scores = torch.tensor([[800.0], [-900.0], [799.0]])
    alpha = cora.neighbour_softmax(scores, torch.tensor([0, 1, 0]), 3).flatten()
    low = 1 / (1 + math.e)
    assert alpha.tolist() == near([1 - low, 1, low])


@pytest.mark.parametrize("form", ["printed", "authors"])
def test_fresh_heads_attend_differently(form):
    torch.manual_seed(0)
    alpha = GATv2(8, 2, form).scores(torch.randn(3, 8), torch.arange(3), torch.tensor([0, 0, 0]))
    assert (alpha[:, 0] != alpha[:, 1]).all()


def test_dropout_falls_on_the_mapped_values():
    layer, nodes, one = stir(GATv2(8, 2, dropout=0.5)), torch.randn(3, 8), torch.tensor([0])
    heard = []
    layer.dropout.register_forward_hook(lambda module, given, out: heard.append((*given, out)))
    out = layer(nodes, one, one)
    ((before, after),) = heard
    assert torch.equal(before, layer.value(nodes))
    assert close(out[0], layer.norm(layer.left(nodes[0]) + after[0]).relu())


def test_heads_must_divide_the_width():
    with pytest.raises(ValueError, match="10 is not a multiple of 4 heads"):
        GATv2(10, 4)


@pytest.mark.parametrize("form", ["printed", "authors"])
@few
@given(descriptions(), seeds)
def test_relation_context_is_the_loop(form, described, seed):
    objects, relations = described
    layer = stir(RelationContext(6, form).eval(), seed)
    torch.manual_seed(seed % 1000)
    entities, vectors = torch.randn(len(objects), 6), torch.randn(len(relations), 6)
    ends = torch.tensor([(a, b) for a, _, b in relations], dtype=torch.int64).reshape(-1, 2)
    out = layer(entities, vectors, ends[:, 0], ends[:, 1]).detach().numpy()
    triples = [(a, vectors[i].numpy(), b) for i, (a, _, b) in enumerate(relations)]
    w = {f"c.{k}": v for k, v in arrays(layer).items()}
    assert out == near(loops.context(w, "c", entities.numpy(), triples, form))


@few
@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), seeds)
def test_pooling_is_the_loop(lengths, seed):
    gpo = stir(GPO(), seed)
    w = {f"p.{k}": v for k, v in arrays(gpo).items()}
    torch.manual_seed(seed % 1000)
    features = torch.randn(len(lengths), 9, 3)
    theta, out = gpo.weights(torch.tensor(lengths)), gpo(features, torch.tensor(lengths))
    assert theta.shape == (len(lengths), max(lengths))
    for i, n in enumerate(lengths):
        wanted = loops.pooling_weights(w, "p", n)
        assert theta[i].tolist() == near([*wanted, *[0] * (max(lengths) - n)])
        assert out[i].tolist() == near(loops.pool(features[i, :n].numpy(), wanted))


def test_pooling_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one vector"):
        GPO()(torch.zeros(2, 3, 4), torch.tensor([3, 0]))


def test_pooling_has_the_published_number_of_parameters():
    assert sum(p.numel() for p in GPO().parameters()) == 12_704


@pytest.mark.parametrize("positions", [False, True])
@pytest.mark.parametrize("attention", [False, True])
def test_images_are_encoded_as_each_alone(attention, positions):
    encoder = cora.ImageEncoder(INNER, 8, 2, 0.1, attention, positions)
    stir(encoder).eval()
    regions, lengths = torch.randn(4, 6, INNER), torch.tensor([6, 1, 4, 3])
    out = encoder(regions, lengths).detach().numpy()
    w = arrays(encoder)
    if not attention:
        w.pop("place.weight", None)  # positions enter the attention alone
    for i, n in enumerate(lengths):
        assert out[i] == near(loops.image(w, regions[i, :n].numpy(), 2))


@pytest.mark.parametrize("changes", [{}, {"visual_attention": False}, {"region_positions": True}])
def test_a_model_builds_the_image_encoder_of_its_settings(changes):
    model = model_of(**changes)
    regions = torch.randn(1, 4, INNER)
    wanted = loops.image(arrays(model.images), regions[0].numpy(), TINY.heads)
    assert model.images(regions, torch.tensor([4]))[0].tolist() == near(wanted)


def test_in_training_only_valid_regions_reach_the_batch_norm():
    torch.manual_seed(0)
    encoder = cora.ImageEncoder(INNER, 8, 2, 0.0).train()
    regions, lengths = torch.randn(3, 5, INNER), torch.tensor([5, 1, 3])
    changed = regions.clone()
    changed[1, 1:] += 100
    changed[2, 3:] -= 7
    twin = copy.deepcopy(encoder)
    assert torch.equal(encoder(regions, lengths), twin(changed, lengths))
    valid = torch.cat([regions[i, :n] for i, n in enumerate(lengths)])
    mean = (encoder.hidden(valid)).mean(dim=0)
    assert encoder.norm.running_mean.tolist() == near((0.1 * mean).tolist())  # momentum 0.1


FORMS = {
    "paper": {},
    "code": {"phrases": "gru3", "context_form": "authors", "node_positions": True},
    "printed attention": {"gat_form": "printed", "attribute_layers": 2},
    "(2, 3) layers": {"attribute_layers": 2, "object_layers": 3},
    "(1, 1) layers, authors' context": {"object_layers": 1, "context_form": "authors"},
    "positions": {"node_positions": True},
    "connected": {"connected": True},
    "joint": {"joint": True},
    "joint and connected": {"joint": True, "connected": True},
}


def ids_of(text):
    return tokens([text])[0][0].tolist()


@pytest.mark.parametrize("form", FORMS)
def test_captions_are_encoded_as_each_alone(form):
    model = model_of(**FORMS[form])
    batch = whole(RICH)
    captions, entities = model.texts(batch)
    w = arrays(model.texts)
    for i, (objects, relations) in enumerate(RICH):
        caption, own = loops.caption(
            w, [(ids_of(name), [ids_of(a) for a in said]) for name, *said in objects],
            [(a, ids_of(label), b) for a, label, b in relations], model.settings,
        )  # fmt: skip
        assert captions[i].tolist() == near(caption)
        if own is None:
            assert entities is None
        else:
            assert entities[batch.caption == i].tolist() == [near(e) for e in own]


def test_a_phrase_is_the_mean_of_both_directions_or_the_last_state():
    embed = nn.Embedding(len(WORDS), 6)
    for bidirectional in (True, False):
        gru = stir(cora.PhraseGRU(embed, 5, bidirectional))
        ids, lengths = tokens(["old stone house", "dog", "red cup"])
        w = {f"p.{k}": v for k, v in arrays(gru).items()}
        for row, n, out in zip(ids, lengths, gru(ids, lengths), strict=True):
            assert out.tolist() == near(loops.phrase(w, "p", row[:n].tolist()))


def test_sequences_are_encoded_as_each_alone():
    model = model_of(text="sequence", visual_attention=False)
    ids, lengths = tokens(["man hold red cup", "dog", "two dog near fence"])
    captions, entities = model.texts(cora.SequenceBatch(ids, lengths))
    assert entities is None
    w = arrays(model.texts)
    for row, n, caption in zip(ids, lengths, captions, strict=True):
        states = loops.both_ways(w, "gru", w["embed.weight"][row[:n].numpy()])
        assert caption.tolist() == near(loops.gpo(w, "pool", states))


def test_word_states_are_mapped_and_pooled():
    s = replace(TINY, text="sequence", phrases="vectors", visual_attention=False)
    model = stir(cora.build(s, INNER, vectors=torch.zeros(1, 9))).eval()
    states, lengths = torch.randn(2, 5, 9), torch.tensor([2, 5])
    captions, _ = model.texts(cora.SequenceBatch(states, lengths))
    w = arrays(model.texts)
    for row, n, caption in zip(states, lengths, captions, strict=True):
        mapped = [loops.linear(w, "linear", x) for x in row[:n].numpy()]
        assert caption.tolist() == near(loops.gpo(w, "pool", mapped))


# --- Graphs as arrays ----------------------------------------------------------------------------


def read_back(batch, phrases=None):
    """A batch as descriptions: names and attributes in order, relations sorted."""
    spell = {i: w for i, w in enumerate(WORDS)}

    def text(row):
        ids = batch.tokens[row][: batch.lengths[row]].tolist()
        assert (ids[0], ids[-1]) == (CLS, SEP)
        assert not batch.tokens[row][batch.lengths[row] :].any()
        return " ".join(spell[i] for i in ids[1:-1])

    found = []
    for c in range(batch.captions):
        rows = (batch.caption == c).nonzero().flatten().tolist()
        assert batch.position[rows].tolist() == list(range(len(rows)))
        place = {row: i for i, row in enumerate(rows)}
        objects = [
            (text(batch.objects[r]),
             *(text(a) for a, o in zip(batch.attributes, batch.owner, strict=True) if o == r))
            for r in rows
        ]  # fmt: skip
        ends = zip(batch.subject.tolist(), batch.relations, batch.object.tolist(), strict=True)
        relations = [(place[a], text(r), place[b]) for a, r, b in ends if a in place]
        found.append((objects, sorted(relations)))
    return found


@many
@given(st.lists(descriptions(), min_size=1, max_size=5), st.data())
def test_a_batch_holds_the_graphs_of_its_rows(described, data):
    rows = data.draw(st.lists(st.integers(0, len(described) - 1), min_size=1, max_size=6))
    texts = graph_set(described)
    batch = texts.batch(np.array(rows))
    wanted = [(objects, sorted(relations)) for objects, relations in (described[r] for r in rows)]
    assert len(texts) == len(described)
    assert read_back(batch) == wanted
    assert len(batch.tokens) == len({tuple(row) for row in batch.tokens.tolist()})
    names = [texts.phrases[i] for i in batch.names]
    said = [tuple(texts.phrases[a] for a in row if a >= 0) for row in batch.described]
    assert [(n, *s) for n, s in zip(names, said, strict=True)] == [o for w in wanted for o in w[0]]
    which, name, described_ = texts.entities(np.array(rows))
    assert which.tolist() == batch.caption.tolist()
    assert name.tolist() == batch.names.tolist()
    assert described_.tolist() == batch.described.tolist()


@many
@given(st.lists(descriptions(), min_size=1, max_size=4), st.booleans())
def test_edges_are_those_of_the_graphs(described, connected):
    batch = whole(described)
    graphs, firsts, start = [scene(*d) for d in described], [], 0
    for objects, _ in described:
        firsts.append(start)
        start += len(objects)
    joint, pairs, stars = set(), set(), {(i, i) for i in range(start)}
    attribute = start
    for graph, first in zip(graphs, firsts, strict=True):
        number = {n: first + n for n, d in graph.nodes(data=True) if d["type"] == "object"}
        for i in list(number):
            for k in range(
                sum(d["type"] == "attribute" for *_, d in graph.out_edges(i, data=True))
            ):
                number[i, k] = attribute
                stars |= {(attribute, number[i]), (number[i], attribute)}
                attribute += 1
        graph = nx.complete_graph(graph.nodes) if connected else graph.to_undirected()
        graph.add_edges_from((n, n) for n in graph.nodes)
        for a, b in graph.edges():
            both = {(number[a], number[b]), (number[b], number[a])}
            joint |= both
            if not isinstance(a, tuple) and not isinstance(b, tuple):
                pairs |= both
    for got, wanted in (
        (batch.object_edges(connected), pairs),
        (batch.all_edges(connected), joint),
        (batch.attribute_edges(back=True), stars),
        (batch.attribute_edges(), {(s, t) for s, t in stars if t < start}),
    ):
        edges = list(zip(*(ends.tolist() for ends in got), strict=True))
        assert Counter(edges) == Counter(wanted)  # each once


def test_no_more_is_kept_than_the_limits():
    looks = [("red", "tall", "two", "young", "dog")]
    crowd = [(f"man{i}", *looks[0]) for i in range(15)]
    many_ties = [(i, f"link{j}", 14 - i) for i in range(15) for j in range(3)]
    texts = GraphSet([scene(crowd, many_ties)], tokens, MASK)
    batch = texts.batch(np.array([0]))
    assert [texts.phrases[i] for i in batch.names] == [f"man{i}" for i in range(13)]
    assert len(batch.owner) == 13 * 4
    assert {texts.phrases[i] for i in batch.described.flatten()} == set(looks[0][:4])
    assert len(batch.relations) == 26
    assert max(batch.subject.max(), batch.object.max()) < 13
    assert richness(texts) == [13 * 4 + 26]


def test_phrases_are_cut_at_six_three_and_seven_words():
    long = "a b c d e f g h i"
    texts = GraphSet([scene([(long, long)], [(0, long, 0)])], tokens)
    assert set(texts.phrases) == {"a b c d e f", "a b c", "a b c d e f g"}
    batch = texts.batch(np.array([0]))
    spelt = [int(batch.lengths[kind[0]]) - 2
             for kind in (batch.objects, batch.attributes, batch.relations)]  # fmt: skip
    assert spelt == [6, 3, 7]


def test_a_graph_without_objects_is_refused():
    with pytest.raises(ValueError, match="graph 1 has no object"):
        GraphSet([scene([("dog",)]), nx.MultiDiGraph()], tokens)


def test_richness_counts_attributes_and_relations():
    assert richness(graph_set(RICH)) == [6, 5, 2, 3]


# --- Augmentation --------------------------------------------------------------------------------

HIGH = replace(
    TINY, drop_objects=0.3, drop_attributes=0.2, drop_relations=0.25, mask=0.2, delete=0.1
)
CALM = replace(TINY, drop_objects=0.0, drop_attributes=0.0, drop_relations=0.0, mask=0.0)


def within(hits, trials, rate):
    """Whether a count lies within 4.5 standard deviations of what its rate gives."""
    return abs(hits - trials * rate) <= 4.5 * math.sqrt(trials * rate * (1 - rate))


def test_objects_attributes_and_relations_are_dropped_at_their_rates():
    objects = [(f"name{i}", f"look{i}", f"seen{i}") for i in range(6)]
    pairs = [(i, f"tie{i}{j}", j) for i in range(6) for j in range(6) if i < j]
    texts = GraphSet([scene(objects, pairs)], tokens)
    batch = texts.batch(np.zeros(1500, int), HIGH, np.random.default_rng(0))
    kept = torch.bincount(batch.caption, minlength=1500)
    assert kept.min() >= 1
    assert within(1500 * 6 - len(batch.objects), 1500 * 6, 0.3)
    assert within(2 * len(batch.objects) - len(batch.owner), 2 * len(batch.objects), 0.2)
    possible = int((kept * (kept - 1) // 2).sum())
    assert within(possible - len(batch.relations), possible, 0.25)
    # Each place is as likely to go as any other.
    for name in range(6):
        row = texts.phrases.index(f"name{name}")
        assert within(1500 - (batch.names == row).sum(), 1500, 0.3)


@few
@given(st.lists(descriptions(), min_size=1, max_size=4), seeds)
def test_an_augmented_graph_is_part_of_the_graph(described, seed):
    unique = [
        ([(f"{i} {name}", *said) for i, (name, *said) in enumerate(objects)], relations)
        for objects, relations in described
    ]
    texts = GraphSet([scene(*d) for d in unique], tokens, None)  # None: words are left alone
    batch = texts.batch(np.arange(len(unique)), HIGH, np.random.default_rng(seed))
    spelt = tokens(texts.phrases)[0]
    rows = {tuple(r[r > 0].tolist()): p for r, p in zip(spelt, texts.phrases, strict=True)}
    text = [rows[tuple(r[:n].tolist())] for r, n in zip(batch.tokens, batch.lengths, strict=True)]
    for c, (objects, relations) in enumerate(unique):
        nodes = (batch.caption == c).nonzero().flatten().tolist()
        names = [text[batch.objects[r]] for r in nodes]
        places = [int(name.split()[0]) for name in names]
        assert names == [objects[i][0] for i in places]
        assert names
        assert places == sorted(places)
        assert batch.position[nodes].tolist() == list(range(len(nodes)))
        for r, i in zip(nodes, places, strict=True):
            said = [text[a] for a, o in zip(batch.attributes, batch.owner, strict=True) if o == r]
            assert not Counter(said) - Counter(objects[i][1:])
            numbers = batch.described[r]
            assert [texts.phrases[a] for a in numbers if a >= 0] == said
        at = dict(zip(nodes, places, strict=True))
        ends = zip(batch.subject.tolist(), batch.relations, batch.object.tolist(), strict=True)
        ties = [(at[a], text[r], at[b]) for a, r, b in ends if a in at]
        assert not Counter(ties) - Counter(relations)


def test_everything_but_one_object_may_go_at_rate_one():
    all_gone = replace(TINY, drop_objects=1.0, drop_attributes=1.0, drop_relations=1.0, mask=1.0)
    texts = graph_set(RICH)
    batch = texts.batch(np.arange(4), all_gone, np.random.default_rng(0))
    assert batch.caption.tolist() == [0, 1, 2, 3]
    assert len(batch.owner) == len(batch.relations) == 0
    for row, n in zip(batch.tokens, batch.lengths, strict=True):
        inner = row[1 : n - 1]
        assert (inner != MASK).sum() == 1


@pytest.mark.parametrize(("mask", "delete"), [(0.1, 0.0), (0.2, 0.1), (0.0, 0.3)])
def test_words_are_masked_and_deleted_at_their_rates(mask, delete):
    rng = np.random.default_rng(1)
    words = np.arange(100, 108)
    ids = np.zeros((2000, 12), int)
    ids[:, :10] = [CLS, *words, SEP]
    new, lengths = cora.perturb(
        ids, np.full(2000, 10), MASK, replace(TINY, mask=mask, delete=delete), rng
    )
    masked, left = (new == MASK).sum(), (new >= 100).sum()
    assert within(masked, 16000, mask)
    assert within(16000 - masked - left, 16000, delete)
    for i in range(8):  # every place alike
        assert within((new != 100 + i).all(axis=1).sum(), 2000, mask + delete)
    for row, n in zip(new, lengths, strict=True):
        assert (row[0], row[n - 1]) == (CLS, SEP)
        assert (row[1 : n - 1] >= MASK).all()
        assert not row[n:].any()
        inner = row[1 : n - 1]
        inner = inner[inner != MASK]
        assert len(inner)
        assert (np.diff(inner) > 0).all()


def test_one_word_is_left_as_it_was():
    ids = np.array([[CLS, 50, SEP, 0, 0], [CLS, 50, 51, SEP, 0], [CLS, SEP, 0, 0, 0]] * 500)
    lengths = np.array([3, 4, 2] * 500)
    for mask, delete in ((1.0, 0.0), (0.0, 1.0), (0.5, 0.5)):
        changed = replace(TINY, mask=mask, delete=delete)
        new, after = cora.perturb(ids, lengths, MASK, changed, np.random.default_rng(0))
        assert (new[0::3] == ids[0::3]).all()
        assert (new[2::3] == ids[2::3]).all()
        pairs = new[1::3]
        assert ((pairs >= 50).sum(axis=1) == 1).all()
        assert within((pairs == 50).sum(), 500, 0.5)  # the first as often as the second
        assert (after == lengths - (ids != 0).sum(axis=1) + (new != 0).sum(axis=1)).all()


def test_without_a_generator_nothing_is_augmented():
    texts = graph_set(RICH)
    plain = texts.batch(np.arange(4))
    for batch in (texts.batch(np.arange(4), HIGH), texts.batch(np.arange(4), None, None)):
        assert read_back(batch) == read_back(plain)
    calm = texts.batch(np.arange(4), CALM, np.random.default_rng(0))
    assert read_back(calm) == read_back(plain)


def fields_of(batch):
    return {
        k: v.tolist() if hasattr(v, "tolist") else v
        for k, v in vars(batch).items()
        if not isinstance(v, cora.GraphBatch)
    }


def test_a_seed_fixes_the_augmentation():
    texts = graph_set(RICH * 5)

    def drawn(seed):
        return fields_of(texts.batch(np.arange(20), HIGH, np.random.default_rng(seed)))

    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)


def test_sequences_are_cut_and_masked():
    ids, lengths = tokens(["man hold red cup", "dog", "two dog near fence"])
    texts = cora.SequenceSet(ids.numpy(), lengths.numpy(), MASK)
    assert len(texts) == 3
    plain = texts.batch(np.array([1, 1]))
    assert plain.tokens.tolist() == [ids_of("dog")] * 2
    drawn = texts.batch(np.zeros(500, int), replace(CALM, mask=0.3), np.random.default_rng(0))
    # All four words drawn: one is spared, which takes 0.3 ** 4 / 4 from each word's rate.
    assert within((drawn.tokens == MASK).sum().item(), 2000, 0.3 - 0.3**4 / 4)
    states = cora.SequenceSet(np.ones((2, 4, 3), np.float16), np.array([2, 4]))
    batch = states.batch(np.array([0]), HIGH, np.random.default_rng(0))
    assert (batch.tokens.dtype, tuple(batch.tokens.shape)) == (torch.float32, (1, 2, 3))


@pytest.mark.parametrize("rate", [0.0, 0.35, 1.0])
def test_regions_are_dropped_at_their_rate_and_never_all(rate):
    features = np.random.default_rng(0).normal(size=(400, 10, 3)).astype(np.float16)
    kept, counts = cora.drop_regions(features, rate, np.random.default_rng(1))
    assert kept.dtype == np.float32
    assert kept.shape == (400, counts.max(), 3)
    if rate in (0, 1):
        assert (counts == (10 if rate == 0 else 1)).all()
    assert within(4000 - counts.sum(), 4000, {0.0: 0.0, 0.35: 0.35, 1.0: 0.9}[rate]) or rate == 1
    for row, n, whole_ in zip(kept, counts, features, strict=True):
        assert n >= 1
        assert not row[n:].any()
        places = [np.flatnonzero((whole_ == r).all(axis=1))[0] for r in row[:n].astype(np.float16)]
        assert (np.diff(places) > 0).all()  # in order, none twice
    again = cora.drop_regions(features, rate, np.random.default_rng(1))
    assert (again[0] == kept).all()


# --- Losses against loops ------------------------------------------------------------------------


@st.composite
def similarities(draw, columns=0):
    """Cosines (N, N + columns) and which rows are of the same image."""
    n = draw(st.integers(2, 6))
    image = np.array(draw(st.lists(st.integers(0, n - 1), min_size=n, max_size=n)))
    extra = draw(st.integers(0, columns))
    drawn = np.random.default_rng(draw(seeds)).uniform(-1, 1, (n, n + extra))
    return drawn.round(draw(st.sampled_from([1, 6]))), image[:, None] == image


@many
@given(similarities(), st.floats(0, 1), st.booleans())
def test_hardest_negatives_are_the_loop(drawn, margin, hard):
    s, same = drawn
    images, captions = loops.hardest(s, same, margin, hard)
    args = torch.tensor(s), torch.tensor(same), margin, hard
    assert cora.hardest(*args).item() == near(np.mean(images) + np.mean(captions))
    assert cora.hardest(*args, reduction="sum").item() == near(sum(images) + sum(captions))


@many
@given(similarities(columns=5), st.sampled_from([0.01, 0.1, 1.0]), seeds)
def test_the_contrastive_loss_is_the_loop(drawn, temperature, seed):
    s, same = drawn
    n, m = s.shape
    rng = np.random.default_rng(seed)
    extra = rng.random((n, m - n)) < 0.3
    extra[rng.integers(0, n, m - n), np.arange(m - n)] = True  # each concept is in some image
    positive = np.concatenate([same, extra], axis=1)
    loss = cora.contrastive(torch.tensor(s), torch.tensor(positive), temperature).item()
    assert loss == near(sum(loops.contrastive(s, positive, temperature)))


@many
@given(similarities(), st.floats(0, 1), seeds)
def test_specificity_is_the_loop(drawn, margin, seed):
    s, _ = drawn
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, len(s), 7)
    own = rng.uniform(-1, 1, 7)
    hinges = loops.specificity(s, zip(rows, own, strict=True), margin)
    args = torch.tensor(s.diagonal()[rows]), torch.tensor(own), margin
    assert cora.specificity(*args).item() == near(np.mean(hinges))
    assert cora.specificity(*args, "sum").item() == near(sum(hinges))


def test_losses_are_zero_where_nothing_is_wrong():
    s = torch.tensor([[0.9, 0.4, 0.1], [0.5, 0.95, 0.2], [0.3, 0.2, 0.7]])
    same = torch.eye(3, dtype=torch.bool)
    assert cora.hardest(s, same, 0.4).item() == 0
    assert cora.hardest(s, same, 0.41).item() > 0
    captions, entities = torch.tensor([0.5, 0.5]), torch.tensor([0.1, -0.2])
    assert cora.specificity(captions, entities, 0.4).item() == 0
    assert cora.specificity(captions, entities, 0.41).item() > 0


def test_a_second_caption_of_an_image_is_no_negative():
    """Rows 0 and 1 show one image, whose captions are both near it."""
    s = torch.tensor([[0.9, 0.95, 0.1], [0.9, 0.95, 0.2], [0.0, 0.1, 0.7]])
    same = torch.tensor([[1, 1, 0], [1, 1, 0], [0, 0, 1]], dtype=torch.bool)
    assert cora.hardest(s, same, 0.2).item() == 0
    assert cora.hardest(s, torch.eye(3, dtype=torch.bool), 0.2).item() > 0
    s.requires_grad_()
    cora.contrastive(s, same, 0.1).backward()
    assert (s.grad[same] < 0).all()  # positives are drawn nearer
    assert (s.grad[~same] > 0).all()


@few
@given(st.lists(descriptions(3), min_size=1, max_size=4), descriptions(), seeds)
def test_same_entities_are_those_of_the_loop(described, other, seed):
    texts = graph_set([*described, other])
    last = np.array([len(described)])
    batch = texts.batch(
        np.arange(len(described)), replace(CALM, drop_attributes=0.3), np.random.default_rng(seed)
    )
    _, names, attributes = texts.entities(last)
    i, j = cora.same_entities(batch.names, batch.described, names, attributes)
    spelt = [
        (texts.phrases[n], [texts.phrases[a] for a in row if a >= 0])
        for n, row in zip(batch.names, batch.described, strict=True)
    ]
    wanted = {
        (a, b)
        for a, entity in enumerate(spelt)
        for b, (name, *said) in enumerate(other[0])
        if loops.names_it(entity, [(name, said)])
    }
    assert Counter(zip(i.tolist(), j.tolist(), strict=True)) == Counter(wanted)


# --- Batches -------------------------------------------------------------------------------------


def split_of(described, image_of, regions=5, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(max(image_of) + 1, regions, INNER)).astype(np.float32)
    return Split(features, np.array(image_of), graph_set(described))


PAIRED = split_of(RICH * 2, [0, 0, 1, 1, 2, 2, 3, 3])


@few
@given(
    st.lists(descriptions(3), min_size=6, max_size=6), st.sampled_from(["image", "caption"]),
    st.lists(st.integers(0, 5), min_size=2, max_size=5), seeds,
)  # fmt: skip
def test_a_batch_knows_which_images_contain_which_entities(described, match, rows, seed):
    image_of = [0, 0, 0, 1, 2, 2]
    split = split_of(described, image_of)
    s = replace(HIGH, match=match)
    captions_of = [np.array([0, 1, 2]), np.array([3]), np.array([4, 5])]
    batch = cora.make_batch(split, np.array(rows), s, np.random.default_rng(seed), captions_of)
    same = [[image_of[a] == image_of[b] for b in rows] for a in rows]
    assert batch.same.tolist() == same
    names = [split.texts.phrases[i] for i in batch.text.names]
    said = [[split.texts.phrases[a] for a in r if a >= 0] for r in batch.text.described]
    for i, row in enumerate(rows):
        searched = captions_of[image_of[row]] if match == "image" else [row]
        there = [(name, looks) for c in searched for name, *looks in described[c][0]]
        for k, c in enumerate(batch.text.caption):
            wanted = same[i][c] or loops.names_it((names[k], said[k]), there)
            assert batch.contains[i, k].item() == wanted


def test_batches_depend_on_seed_and_epoch_alone():
    s = replace(HIGH, batch=3, captions=2)

    def epoch(seed, number):
        drawn = list(cora.batches(PAIRED, s, seed)(number))
        return [(b.regions.tolist(), b.same.tolist(), fields_of(b.text)) for b in drawn]

    assert epoch(1, 2) == epoch(1, 2)
    assert epoch(1, 2) != epoch(1, 3)
    assert epoch(1, 2) != epoch(2, 2)


def test_batches_are_augmented_at_the_rates_of_the_settings():
    every = np.tile(np.arange(8), 100)
    whole_ = drawn_batch(replace(CALM, region_dropout=0.0), rows=every)
    assert (whole_.counts == 5).all()
    assert whole_.text.names.tolist() == PAIRED.texts.batch(every).names.tolist()
    s = replace(CALM, region_dropout=0.35, mask=0.3, drop_attributes=0.2, drop_relations=0.25)
    drawn = drawn_batch(s, rows=every)
    assert within(4000 - drawn.counts.sum().item(), 4000, 0.35 - 0.35**5 / 5)  # never all
    for name, rate in {"owner": 0.2, "subject": 0.25, "position": 0.0}.items():
        all_, left = (len(getattr(b.text, name)) for b in (whole_, drawn))
        assert within(all_ - left, all_, rate)
    assert (drawn.text.tokens == MASK).any()
    assert not (whole_.text.tokens == MASK).any()


@pytest.mark.parametrize("captions", [1, 2, 5])
def test_an_epoch_shows_each_image_with_so_many_of_its_captions(captions):
    image_of = np.array([2, 0, 1, 0, 2, 2, 0, 0])  # 4, 1 and 3 captions, in no order
    split = replace(split_of(RICH * 2, image_of.tolist()), image_of=image_of)
    split.features[:] = np.arange(3)[:, None, None] + 1
    shown = Counter()
    s = replace(CALM, batch=100, captions=captions, region_dropout=0.0)
    for batch in cora.batches(split, s, 0)(0):
        shown.update((batch.regions[:, 0, 0].long() - 1).tolist())
    assert shown == {0: min(4, captions), 1: 1, 2: min(3, captions)}


def test_captions_keep_their_images():
    """Every batch pairs a caption with the regions of its own image."""
    described = [([(name,)], []) for name in ("man", "dog", "fence", "red cup", "old stone house")]
    split = split_of(described, list(range(5)))
    split.features[:] = np.arange(5)[:, None, None]
    s = replace(CALM, batch=2, captions=1, region_dropout=0.0)
    drawn = list(cora.batches(split, s, 0)(0))
    assert [len(b.regions) for b in drawn] == [2, 2]  # the fifth has no negative
    for batch in drawn:
        names = [split.texts.phrases[n] for n in batch.text.names]
        assert batch.regions[:, 0, 0].tolist() == [NAMES.index(n) for n in names]


def test_batches_are_shuffled():
    described = [([(f"name{i}",)], []) for i in range(40)]
    split = split_of(described, list(range(40)))
    epoch = cora.batches(split, replace(CALM, batch=10), 0)
    first, second = (
        [split.texts.phrases[n] for b in epoch(number) for n in b.text.names] for number in (0, 1)
    )
    assert sorted(first) == sorted(second) == sorted(split.texts.phrases)
    assert first != second
    assert split.texts.phrases not in (tuple(first), tuple(second))


def test_captions_are_drawn_anew_each_epoch():
    described = [([(name,)], []) for name in NAMES]
    split = split_of([*described, ([("man",)], [])], [0, 0, 0, 0, 0, 1])
    s = replace(CALM, captions=1)
    epoch = cora.batches(split, s, 0)
    drawn = {split.texts.phrases[n] for i in range(40) for b in epoch(i) for n in b.text.names}
    assert drawn == set(NAMES)


# --- The whole loss ------------------------------------------------------------------------------


def loss_by_loops(model, batch, warm=False):
    s = model.settings
    images = model.encode_images(batch.regions, batch.counts).detach().numpy()
    captions, entities = (
        None if x is None else x.detach().numpy() for x in model.encode_texts(batch.text)
    )
    similarity, same = images @ captions.T, batch.same.numpy()
    terms = loops.hardest(similarity, same, s.margin, not warm)
    total = s.hard * sum(np.mean(t) for t in terms)
    concepts, positive = similarity, same
    if entities is not None:
        caption = batch.text.caption.tolist()
        own = [(c, images[c] @ e) for c, e in zip(caption, entities, strict=True)]
        total += s.spec * np.mean(loops.specificity(similarity, own, s.margin))
        if s.con_entities:
            concepts = np.concatenate([similarity, images @ entities.T], axis=1)
            positive = np.concatenate([same, batch.contains.numpy()], axis=1)
    return total + s.con * sum(loops.contrastive(concepts, positive, s.temperature))


def drawn_batch(s, split=PAIRED, rows=range(8)):
    captions_of = [np.flatnonzero(split.image_of == i) for i in range(len(split.features))]
    batch = cora.make_batch(split, np.array(rows), s, np.random.default_rng(0), captions_of)
    return replace(batch, regions=batch.regions.to(torch.get_default_dtype()))


@pytest.mark.parametrize(
    "changes",
    [
        {}, {"con": 0.0, "spec": 0.0}, {"hard": 0.0, "spec": 0.0}, {"spec": 0.0},
        {"hard": 0.0, "con": 0.0}, {"con_entities": False}, {"joint": True, "spec": 0.0},
        {"margin": 0.35, "spec": 2.75, "match": "caption"}, {"temperature": 0.07},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("warm", [False, True])
def test_the_whole_loss_is_the_loop(changes, warm):
    model = model_of(**changes)
    batch = drawn_batch(model.settings)
    wanted = loss_by_loops(model, batch, warm)
    assert wanted > 0
    assert model.loss(batch, warm).item() == near(wanted)


def test_the_code_preset_is_a_quarter_of_the_authors_sum():
    model = model_of(**{k: getattr(PRESETS["code"], k) for k in ("hard", "con", "spec", "margin")})
    batch = drawn_batch(model.settings)
    parts = []
    for kept in ("hard", "con", "spec"):
        weights = {k: float(k == kept) for k in ("hard", "con", "spec")}
        alone = copy.deepcopy(model)
        alone.settings = replace(model.settings, **weights)
        parts.append(alone.loss(batch).item())
    assert 4 * model.loss(batch).item() == near(4 * parts[0] + parts[1] + 11 * parts[2])


# --- Invariants (17.9) ---------------------------------------------------------------------------

VARIANTS = {name: FORMS[name] for name in FORMS if "joint" not in name}
variants = pytest.mark.parametrize("form", VARIANTS)
CAPTION = RICH[0]  # man (tall, young), red cup, dog (jumping quickly)


def changed(which, *said):
    objects = [o if i != which else (o[0], *said) for i, o in enumerate(CAPTION[0])]
    return objects, CAPTION[1]


@variants
@pytest.mark.parametrize("said", [(), ("red",), ("tall", "young", "two"), ("young", "tall")])
def test_an_attribute_changes_its_own_entity_alone(form, said):
    model = model_of(**FORMS[form])
    before, after = (encoded(model, [c])[1][0] for c in (CAPTION, changed(0, *said)))
    assert close(before[1:], after[1:], 1e-13)
    assert close(before[0], after[0]) == (set(said) == {"tall", "young"})  # order: no matter


@variants
def test_entities_are_bit_identical_when_others_attributes_change(form):
    """Same shapes on both sides, so that not even rounding may differ."""
    model = model_of(**FORMS[form])
    batch = whole(RICH)
    torch.manual_seed(0)
    nodes = torch.randn(len(batch.objects) + len(batch.owner), 16)
    before = model.texts.entities(nodes, batch)
    for k, owner in enumerate(batch.owner.tolist()):
        other = nodes.clone()
        other[len(batch.objects) + k] += 1.0
        after = model.texts.entities(other, batch)
        assert (after != before).any(dim=1).nonzero().flatten().tolist() == [owner]


@variants
def test_attributes_have_no_gradient_in_other_entities(form):
    model = model_of(**FORMS[form])
    batch = whole(RICH)
    count = len(batch.objects)
    nodes = torch.rand(count + len(batch.owner), 16, requires_grad=True)
    entities = model.texts.entities(nodes, batch)
    for i in range(count):
        (slope,) = torch.autograd.grad(entities[i].sum(), nodes, retain_graph=True)
        reached = (slope != 0).any(dim=1).nonzero().flatten().tolist()
        assert reached == [i, *(count + (batch.owner == i).nonzero().flatten()).tolist()]


@variants
def test_relations_leave_entities_alone(form):
    model = model_of(**FORMS[form])
    with_, without = (encoded(model, [(CAPTION[0], r)]) for r in (CAPTION[1], []))
    assert close(with_[1][0], without[1][0], 1e-13)
    assert not close(with_[0], without[0], 1e-3)


@variants
def test_the_order_of_objects_matters_with_positions_alone(form):
    model = model_of(**FORMS[form])
    objects, relations = CAPTION
    order = [2, 0, 1]
    shuffled = (
        [objects[i] for i in order],
        [(order.index(a), label, order.index(b)) for a, label, b in relations],
    )
    (before,), (after,) = (encoded(model, [c])[0] for c in (CAPTION, shuffled))
    assert close(before, after, 1e-9 if not model.settings.node_positions else 1e-3) != (
        model.settings.node_positions
    )
    own, theirs = (encoded(model, [c])[1][0] for c in (CAPTION, shuffled))
    assert close(own[order], theirs)  # entities come before positions


@variants
def test_the_order_of_relations_never_matters(form):
    model = model_of(**FORMS[form])
    orders = [
        CAPTION,
        (CAPTION[0], CAPTION[1][::-1]),
        (CAPTION[0], CAPTION[1][1:] + CAPTION[1][:1]),
    ]
    first, *rest = (encoded(model, [c])[0] for c in orders)
    assert all(close(first, other) for other in rest)


@variants
def test_other_captions_of_the_batch_never_matter(form):
    model = model_of(**FORMS[form])
    long = ([(name, *LOOKS[:4]) for name in NAMES * 2], [(i, "near", i + 1) for i in range(9)])
    captions, entities = encoded(model, [*RICH, long])
    for i, described in enumerate(RICH):
        alone, own = encoded(model, [described])
        assert close(alone[0], captions[i])
        assert close(own[0], entities[i])


@variants
def test_a_graph_twice_gives_equal_vectors(form):
    model = model_of(**FORMS[form])
    captions, entities = encoded(model, [CAPTION, RICH[1], CAPTION])
    assert close(captions[0], captions[2], 1e-13)
    assert close(entities[0], entities[2], 1e-13)
    assert not close(captions[0], captions[1], 1e-3)


@variants
def test_reversing_a_relation_changes_the_caption_through_eq_6_alone(form):
    model = model_of(**FORMS[form])
    objects, (first, *rest) = CAPTION
    reversed_ = objects, [first[::-1], *rest]
    before, after = (encoded(model, [c])[0] for c in (CAPTION, reversed_))
    assert not close(before, after, 1e-4)
    with torch.no_grad():
        for layer in (model.texts.context.active, model.texts.context.passive):
            for p in layer.parameters():
                p.zero_()
    before, after = (encoded(model, [c])[0] for c in (CAPTION, reversed_))
    assert close(before, after, 1e-12)


@variants
def test_a_lone_object_is_its_own_caption(form):
    model = model_of(**FORMS[form])
    batch = whole([RICH[2]])
    captions, entities = model.texts(batch)
    hidden = entities
    if model.settings.node_positions:
        place = model.texts.place(cora.sinusoid(torch.zeros(1), 16))
        hidden = model.texts.place_norm(hidden + place)
    if model.texts.context.norm is not None:
        hidden = model.texts.context.norm(hidden)
    for layer in model.texts.objects:
        hidden = layer(hidden, torch.tensor([0]), torch.tensor([0]))
    assert close(captions, hidden)


def test_without_relations_eq_6_changes_nothing():
    entities, none = torch.randn(4, 6), torch.zeros(0, dtype=torch.int64)
    for form in ("printed", "authors"):
        layer = stir(RelationContext(6, form).eval())
        wanted = layer.norm(entities) if form == "authors" else entities
        assert torch.equal(layer(entities, torch.zeros(0, 6), none, none), wanted)


@variants
def test_coordinates_are_not_negative(form):
    model = model_of(**FORMS[form])
    captions, entities = encoded(model, RICH)
    assert (captions >= 0).all()
    assert all((e >= 0).all() for e in entities)
    assert captions.any(dim=1).all()


@pytest.mark.parametrize("positions", [False, True])
def test_the_order_of_regions_matters_with_positions_alone(positions):
    model = model_of(region_positions=positions)
    regions, order = torch.randn(2, 5, INNER), torch.tensor([3, 0, 4, 2, 1])
    lengths = torch.tensor([5, 5])
    before, after = model.images(regions, lengths), model.images(regions[:, order], lengths)
    assert close(before, after, 1e-3 if positions else 1e-9) != positions


@pytest.mark.parametrize("attention", [False, True])
def test_padded_regions_never_matter(attention):
    model = model_of(visual_attention=attention)
    regions, lengths = torch.randn(2, 5, INNER), torch.tensor([3, 5])
    before = model.images(regions, lengths)
    other = regions.clone()
    other[0, 3:] = 50 * torch.randn(2, INNER)
    assert close(before, model.images(other, lengths))
    assert close(before[:1], model.images(regions[:1, :3], lengths[:1]))
    longer = torch.cat([other, torch.randn(2, 4, INNER)], dim=1)
    assert close(before, model.images(longer, lengths))


@few
@given(st.integers(1, 8), seeds)
def test_pooling_lies_within_bounds_and_ignores_order_and_padding(count, seed):
    gpo = stir(GPO(), seed)
    torch.manual_seed(seed % 1000)
    features, length = torch.randn(1, count, 4), torch.tensor([count])
    theta, out = gpo.weights(length), gpo(features, length)
    assert theta.sum().item() == near(1)
    assert (theta >= 0).all()
    assert (out <= features.amax(dim=1) + 1e-12).all()
    assert (out >= features.amin(dim=1) - 1e-12).all()
    assert close(out, gpo(features[:, torch.randperm(count)], length))
    for filler in (99.0, -99.0):
        padded = torch.cat([features, torch.full((1, 3, 4), filler)], dim=1)
        assert close(out, gpo(padded, length))
        batched = gpo(torch.cat([padded, torch.randn(1, count + 3, 4)]),
                      torch.tensor([count, count + 3]))  # fmt: skip
        assert close(out, batched[:1])


def test_vectors_are_of_unit_length():
    model = model_of()
    batch = drawn_batch(model.settings)
    captions, entities = model.encode_texts(batch.text)
    images = model.encode_images(batch.regions, batch.counts)
    for vectors in (captions, entities, images):
        assert vectors.norm(dim=1).tolist() == near([1.0] * len(vectors))


# --- Odd graphs, gradients -----------------------------------------------------------------------

ODD = {
    "parallel relations": ([("man",), ("dog",)], [(0, "hold", 1), (0, "near", 1), (0, "hold", 1)]),
    "relations both ways": ([("man",), ("dog",)], [(0, "hold", 1), (1, "near", 0)]),
    "relation to oneself": ([("man", "tall"), ("dog",)], [(0, "near", 0)]),
    "one object": ([("man", "tall")], []),
    "bare object": ([("man",)], []),
    "no attributes": ([("man",), ("dog",)], [(0, "hold", 1)]),
    "no relations": ([("man", "tall"), ("dog", "red")], []),
    "same name twice": ([("dog",), ("dog",), ("dog", "red")], [(0, "near", 1)]),
    "same attribute twice": ([("dog", "red", "red")], []),
}


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("form", ["paper", "code", "printed attention", "(2, 3) layers", "joint",
                                  "joint and connected"])  # fmt: skip
def test_odd_graphs_go_forward_and_backward(kind, form):
    """Nothing else is in the batch: so there may be no attribute or no relation at all."""
    model = model_of(**FORMS[form]).train()
    if model.settings.joint:
        model.settings = replace(model.settings, spec=0.0)
    split = split_of([ODD[kind]] * 3, [0, 1, 2])
    loss = model.loss(drawn_batch(model.settings, split, range(3)))
    loss.backward()
    assert torch.isfinite(loss)
    slopes = [p.grad for p in model.parameters() if p.grad is not None]
    assert all(torch.isfinite(g).all() for g in slopes)
    assert any(g.any() for g in slopes)


def test_a_batch_of_one_image_alone_has_no_negatives():
    model = model_of().train()
    loss = model.loss(drawn_batch(model.settings, rows=[0, 1]))
    loss.backward()
    assert loss.item() > 0  # L_SPEC is left
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
    alone = model_of(spec=0.0).train()
    assert alone.loss(drawn_batch(alone.settings, rows=[0, 1])).item() == near(0)


def test_dropout_is_where_it_should_be_at_its_rates():
    """Rows and rates of everything that a dropout layer sees in one step."""
    model = model_of(
        **FORMS["code"], attribute_layers=2, region_positions=True, image_dropout=0.11,
        graph_dropout=0.16, message_dropout=0.07,
    ).train()  # fmt: skip
    heard = Counter()
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Dropout):
            layer.register_forward_hook(
                lambda layer, given, out, name=name: heard.update(
                    [(name, layer.p, *given[0].shape)]
                )
            )
    batch = drawn_batch(model.settings)
    model.encode_images(batch.regions, batch.counts)
    model.encode_texts(batch.text)
    objects, attributes = len(batch.text.objects), len(batch.text.owner)
    relations, every = len(batch.text.subject), objects + attributes
    assert heard == {
        ("images.dropout", 0.11, *batch.regions.shape): 1,
        ("images.dropout", 0.11, batch.regions.shape[1], 16): 1,  # positions
        ("texts.concepts.dropout", 0.16, every, 16): 1,
        ("texts.concepts.dropout", 0.16, relations, 16): 1,
        ("texts.attributes.0.dropout", 0.0, every, 16): 1,
        ("texts.attributes.1.dropout", 0.0, every, 16): 1,
        ("texts.dropout", 0.16, every, 16): 1,  # between the two layers
        ("texts.context.dropout", 0.16, 2 * relations, 16): 1,
        ("texts.dropout", 0.16, objects, 16): 3,  # positions, before each of the last two layers
        ("texts.objects.0.dropout", 0.07, objects, 16): 1,
        ("texts.objects.1.dropout", 0.07, objects, 16): 1,
    }


class Phrases(nn.Module):
    """A stand-in for BERT: a phrase is the mean of its words, at a rate of its own."""

    def __init__(self, width=9):
        super().__init__()
        self.width, self.words = width, nn.Embedding(len(WORDS), width)

    def forward(self, ids, lengths):
        return self.words(ids).sum(dim=1) / lengths[:, None]

    def parameter_groups(self, rate):
        return [{"params": self.words.parameters(), "lr": 0.1 * rate}]


def system(name, base=TINY):
    """A model of a system, and a split that it reads."""
    s = cora.settings_of(name, base)
    split, given = PAIRED, {"embeddings": torch.randn(len(WORDS), 6)}
    if s.phrases == "vectors":
        given = {"vectors": torch.randn(40, 9)}
    if s.text == "sequence":
        ids, lengths = tokens(
            ["man hold red cup", "dog near man", "two dog near fence", "fence"] * 2
        )
        if s.phrases == "vectors":
            texts = cora.SequenceSet(np.random.default_rng(0).random((8, 6, 9)), lengths.numpy())
        else:
            texts = cora.SequenceSet(ids.numpy(), lengths.numpy(), MASK)
        split = replace(PAIRED, texts=texts)
    elif s.phrases == "vectors":

        def number(phrases):
            return torch.arange(len(phrases))[:, None], torch.ones(len(phrases), dtype=torch.int64)

        split = replace(PAIRED, texts=GraphSet([scene(*d) for d in RICH * 2], number))
    return cora.build(s, INNER, **given), split


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_parameter_of_every_system_learns(name):
    torch.manual_seed(0)
    model, split = system(name)
    stir(model.train())
    batch = drawn_batch(model.settings, split)
    if isinstance(batch.text, cora.SequenceBatch):
        text = batch.text
        if text.tokens.is_floating_point():
            text = replace(text, tokens=text.tokens.double())
        batch = replace(batch, text=text)
    model.loss(batch).backward()
    for parameter, value in model.named_parameters():
        if value.requires_grad:
            assert value.grad is not None, parameter
            assert torch.isfinite(value.grad).all(), parameter
            assert value.grad.any(), parameter
    frozen = [n for n, p in model.named_parameters() if not p.requires_grad]
    assert frozen == (["texts.concepts.phrases.0.embed.weight"] if "frozen" in name
                      and model.settings.text == "graph" else [])  # fmt: skip
    if hasattr(model.texts, "concepts") and model.settings.phrases == "gru":
        padding = model.texts.concepts.phrases[0].embed.weight.grad[0]
        assert not padding.any()


def test_gradients_are_those_of_finite_differences():
    """Through attention, eq. 6, sorting and pooling at once."""
    model = model_of()
    batch = whole(RICH)
    weight = model.texts.concepts.node.weight
    probe = torch.randn(len(RICH), 16)

    def value():
        return (model.texts(batch)[0] * probe).sum()

    value().backward()
    direction = torch.randn_like(weight)
    with torch.no_grad():
        weight.add_(1e-6 * direction)
        up = value()
        weight.sub_(2e-6 * direction)
        down = value()
    assert ((up - down) / 2e-6).item() == pytest.approx(
        (weight.grad * direction).sum().item(), rel=1e-5
    )


# --- Settings, sizes -----------------------------------------------------------------------------


def count(*modules):
    """Distinct parameters without the word table, which the released counts leave out."""
    distinct = {id(p): p.numel() for m in modules for n, p in m.named_parameters()
                if "embed" not in n}  # fmt: skip
    return sum(distinct.values())


def test_the_code_preset_has_the_released_numbers_of_parameters():
    model = cora.build(PRESETS["code"], 2048, embeddings=torch.zeros(10, 300))
    texts = model.texts
    objects, attributes, relations = texts.concepts.phrases
    assert count(model.images) == 10_005_408
    # The released attention has a scalar bias a head, which cancels in the softmax: 16 a layer.
    entities = count(objects, attributes, texts.concepts.node, texts.attributes)
    assert entities + 16 * 1 == 4_543_712
    composed = count(relations, texts.concepts.relation, texts.context, texts.objects, texts.place,
                     texts.place_norm, texts.pool)  # fmt: skip
    assert composed + 16 * 2 == 11_384_360
    assert count(texts) == entities + composed


def test_presets_are_those_of_the_paper_and_of_the_code():
    paper, code = PRESETS["paper"], PRESETS["code"]
    for s in (paper, code):
        assert (s.width, s.word_width, s.heads, s.batch, s.captions) == (1024, 300, 16, 128, 5)
        assert (s.attribute_layers, s.object_layers, s.gat_form) == (1, 2, "authors")
        assert (s.image_dropout, s.graph_dropout, s.message_dropout) == (0.1, 0.15, 0.05)
        assert (s.learning_rate, s.weight_decay, s.region_dropout) == (5e-4, 1e-4, 0.35)
        assert (s.joint, s.connected, s.visual_attention, s.con_entities) == (0, 0, 1, 1)
    rates = ("drop_objects", "drop_attributes", "drop_relations", "mask", "delete")
    assert [getattr(paper, r) for r in rates] == [0.1, 0.1, 0.1, 0.1, 0]
    assert [getattr(code, r) for r in rates] == [0.05, 0.15, 0.15, 0.1, 0.05]
    assert (paper.epochs, code.epochs) == (50, 55)
    differing = {"phrases": ("gru", "gru3"), "context_form": ("printed", "authors"),
                 "node_positions": (False, True), "region_positions": (False, True),
                 "match": ("image", "caption")}  # fmt: skip
    for name, values in differing.items():
        assert (getattr(paper, name), getattr(code, name)) == values


def test_systems_are_what_table_3_compares():
    of = cora.settings_of
    assert of("CORA") == PRESETS["paper"]
    for name, (hard, con, spec) in {
        "HARD": (1, 0, 0), "CON": (0, 0.25, 0), "HARD + CON": (1, 0.25, 0),
        "Two-step, caption losses": (1, 0.25, 0), "Joint": (1, 0.25, 0),
    }.items():  # fmt: skip
        assert (of(name).hard, of(name).con, of(name).spec) == (hard, con, spec)
    # The control of Joint: the same losses, the two steps kept.
    assert of("Joint") == replace(of("Two-step, caption losses"), joint=True)
    assert of("Joint + FC") == replace(of("Joint"), connected=True)
    assert of("Two-step + FC") == replace(of("CORA"), connected=True)
    layers = {(of(n).attribute_layers, of(n).object_layers) for n in SYSTEMS if "layers" in n}
    assert layers == {(1, 1), (1, 3), (2, 1), (2, 2), (2, 3)}
    assert of("VSE∞").text == "sequence"
    assert not of("VSE∞").visual_attention
    small = replace(PRESETS["paper"], width=8, epochs=3)
    for name in SYSTEMS:  # a budget is the same for all
        assert (of(name, small).width, of(name, small).epochs) == (8, 3)


def test_what_is_missing_is_said():
    with pytest.raises(ValueError, match="no system 'CORAL': use one of CORA, "):
        cora.settings_of("CORAL")
    with pytest.raises(ValueError, match="needs word embeddings"):
        cora.build(TINY, INNER)
    for phrases in ("vectors", "bert"):
        with pytest.raises(ValueError, match=f"'{phrases}' needs its encoder"):
            cora.build(replace(TINY, phrases=phrases), INNER)


def test_given_word_vectors_are_copied():
    table = torch.randn(len(WORDS), 6)
    model = cora.build(TINY, INNER, embeddings=table)
    with torch.no_grad():
        model.texts.concepts.phrases[0].embed.weight.zero_()
    assert table.any()


# --- Encoding and reranking ----------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3, 100])
def test_encoding_in_blocks_of_any_size(single, size):
    model = model_of().train()
    split = split_of(RICH * 2, [0, 0, 1, 1, 2, 2, 3, 3])
    out = cora.encode(model, split, size=size)
    assert not model.training
    assert out.captions.dtype == np.float32
    batch = split.texts.batch(np.arange(8))
    captions, entities = model.encode_texts(batch)
    images = model.encode_images(torch.tensor(split.features), torch.full((4,), 5))
    assert out.images == pytest.approx(images.detach().numpy(), abs=1e-5)
    assert out.captions == pytest.approx(captions.detach().numpy(), abs=1e-5)
    assert out.entities == pytest.approx(entities.detach().numpy(), abs=1e-5)
    assert out.caption_of.tolist() == batch.caption.tolist()
    assert out.image_of.tolist() == split.image_of.tolist()


@pytest.mark.parametrize("name", ["Joint", "VSE∞"])
def test_systems_without_entities_say_so(single, name):
    model, split = system(name)
    out = cora.encode(model, split)
    assert out.entities is out.caption_of is None
    with pytest.raises(ValueError, match="no entities"):
        cora.weakest_entity(out)


@many
@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.floats(0, 1), seeds)
def test_reranking_is_the_loop(owned, beta, seed):
    rng = np.random.default_rng(seed)
    caption_of = np.repeat(np.arange(len(owned)), owned)
    one = seen(rng.normal(size=(3, 4)), rng.normal(size=(len(owned), 4)),
               rng.normal(size=(len(caption_of), 4)), caption_of)  # fmt: skip
    scores = rng.normal(size=(3, len(owned)))
    weakest = cora.weakest_entity(one)
    new = cora.mix(scores, weakest, beta)
    for v in range(3):
        for t in range(len(owned)):
            worst = min(one.images[v] @ e for e, c in zip(one.entities, caption_of, strict=True)
                        if c == t)  # fmt: skip
            assert weakest[v, t] == near(worst)
            assert new[v, t] == near(beta * scores[v, t] + (1 - beta) * worst)


def test_the_weakest_entities_of_many_images_are_those_of_each():
    rng = np.random.default_rng(0)
    many = seen(rng.normal(size=(1030, 4)), rng.normal(size=(2, 4)),
                rng.normal(size=(5, 4)), np.array([0, 0, 0, 1, 1]))  # fmt: skip
    wanted = np.stack([(many.images @ own.T).min(axis=1) for own in np.split(many.entities, [3])])
    assert cora.weakest_entity(many) == near(wanted.T)


# --- Training ------------------------------------------------------------------------------------

# A temperature of 0.01 takes longer than a test may: from a cold start all vectors first fall
# together.
SMALL = replace(
    TINY, batch=8, captions=1, learning_rate=2e-3, width=24, warm_up=1, region_dropout=0.1,
    temperature=0.1,
)  # fmt: skip


def pictures(count, seed):
    """Pictures of two things with a look each: a region for each, two of noise, two captions."""
    rng = np.random.default_rng(seed)
    basis = np.random.default_rng(99).normal(size=(2, 5, 12))
    features = 0.3 * rng.normal(size=(count, 4, 12))
    described = []
    for picture in features:
        things, looks = rng.permutation(5)[:2], rng.integers(0, 5, 2)
        for region in range(2):
            picture[region] += basis[0, things[region]] + basis[1, looks[region]]
        objects = [(NAMES[t], LOOKS[k]) for t, k in zip(things, looks, strict=True)]
        described += [(objects, [(0, "near", 1)]), (objects[::-1], [(0, "with", 1)])]
    return Split(features.astype(np.float32), np.repeat(np.arange(count), 2), graph_set(described))


WORLD = {"train": pictures(48, 0), "val": pictures(24, 1)}
CHANCE = 2 * 100 * (1 + 5 + 10) / 24  # RSUM at random, about: 24 images of two captions each


def trained(seed=0, model=None, checkpoint=None, world=WORLD, **changes):
    """History and final weights of a training on the toy pictures."""
    seed_everything(seed)
    s = replace(SMALL, **changes)
    model = model or cora.build(s, 12, embeddings=torch.randn(len(WORDS), s.word_width))
    return cora.train(model, world, seed, checkpoint=checkpoint), model


def weights(model):
    return {k: v.tolist() for k, v in model.state_dict().items()}


def test_training_rises_above_chance_and_keeps_the_best_epoch(single):
    world = {"train": pictures(192, 0), "val": WORLD["val"]}
    calm = {
        k: 0.0 for k in Settings.__annotations__ if "drop_" in k or "dropout" in k or k == "mask"
    }
    calm["drop_rate_after"] = 1.0
    history, model = trained(world=world, epochs=5, batch=16, width=64, word_width=32, **calm)
    best = max(h["dev_rsum"] for h in history)
    assert best > 2 * CHANCE  # 338 to 560 over four seeds when written
    assert history[-1]["train_loss"] < history[2]["train_loss"]
    assert all(h["dev_loss"] == near(600 - h["dev_rsum"]) for h in history)
    out = cora.encode(model, world["val"])
    found = metrics(ranks_of_scores(out.images @ out.captions.T, out.image_of))
    assert found["rsum"] == pytest.approx(best, abs=0.01)


def test_same_seed_same_numbers(single):
    first, second, other = (trained(seed, epochs=2) for seed in (0, 0, 1))
    assert first[0] == second[0]
    assert weights(first[1]) == weights(second[1])
    assert first[0] != other[0]


@pytest.mark.parametrize("stop", [1, 8, 15])
def test_an_interrupted_training_ends_like_one_that_was_not(single, tmp_path, stop):
    """Six batches an epoch: stopped in the first, second and third epoch."""
    whole_history, whole_model = trained(epochs=3)
    checkpoint = tmp_path / "model.pt"
    seed_everything(0)
    model = cora.build(replace(SMALL, epochs=3), 12, embeddings=torch.randn(len(WORDS), 6))
    loss, calls = model.loss, iter(range(1000))

    def interrupted(*batch):
        if next(calls) == stop:
            raise KeyboardInterrupt
        return loss(*batch)

    model.loss = interrupted
    with pytest.raises(KeyboardInterrupt):
        cora.train(model, WORLD, 0, checkpoint=checkpoint)
    assert checkpoint.exists() == (stop > 6)
    history, resumed = trained(checkpoint=checkpoint, epochs=3)
    assert history == whole_history
    assert weights(resumed) == weights(whole_model)


@pytest.mark.parametrize(("preset", "epochs"), [("paper", 50), ("code", 55)])
def test_the_rate_falls_tenfold_after_fifteen_epochs(single, monkeypatch, preset, epochs):
    heard = {}
    monkeypatch.setattr(cora, "fit", lambda *args, **rest: heard.update(rest) or [])
    s = replace(PRESETS[preset], width=8, word_width=6, heads=2)
    cora.train(cora.build(s, 12, embeddings=torch.randn(len(WORDS), 6)), WORLD, seed=7)
    assert heard["seed"] == 7
    rates = []
    for _ in range(heard["epochs"]):
        rates.append(heard["optimiser"].param_groups[0]["lr"])
        heard["optimiser"].step()
        heard["schedule"].step()
    assert rates == near([5e-4] * 15 + [5e-5] * (epochs - 15))


def test_the_rate_of_a_short_training_falls_as_well(single):
    history, _ = trained(epochs=3, drop_rate_after=0.5)
    assert [h["learning_rate"] for h in history] == near([2e-3, 2e-3, 2e-4])


def test_the_first_epochs_are_warm(single, monkeypatch):
    heard = []
    loss = cora.Matcher.loss

    def listen(self, batch, warm=False):
        heard.append(warm)
        return loss(self, batch, warm)

    monkeypatch.setattr(cora.Matcher, "loss", listen)
    trained(epochs=3, warm_up=2)
    assert heard == [True] * 12 + [False] * 6


def test_pretrained_parts_have_rates_of_their_own(single, monkeypatch):
    given_ = {}
    monkeypatch.setattr(cora, "fit", lambda *args, **rest: given_.update(rest) or [])
    model = cora.build(replace(SMALL, phrases="bert"), 12, bert=Phrases())
    trained(model=model)
    optimiser = given_["optimiser"]
    assert isinstance(optimiser, torch.optim.AdamW)
    rate = {id(p): g["lr"] for g in optimiser.param_groups for p in g["params"]}
    decay = {g["weight_decay"] for g in optimiser.param_groups}
    assert decay == {SMALL.weight_decay}
    for name, value in model.named_parameters():
        wanted = SMALL.learning_rate * (0.1 if "words" in name else 1)
        assert rate.pop(id(value)) == near(wanted), name
    assert not rate


def test_word_embeddings_learn_at_their_own_rate():
    model = cora.build(TINY, 7, embeddings=torch.randn(len(WORDS), 6))
    rest, words = cora._groups(model, 1e-3, 0.1)
    assert (rest["lr"], words["lr"]) == (1e-3, pytest.approx(1e-4))
    assert [tuple(p.shape) for p in words["params"]] == [(len(WORDS), 6)]
    every = {id(p) for p in model.parameters()}
    assert {id(p) for g in (rest, words) for p in g["params"]} == every
    assert cora.PRESETS["paper"].word_rate == 0.1
