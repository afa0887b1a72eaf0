"""CORA's layers and losses against the printed oracles and against loops (cora_oracles)."""

import math
from functools import partial

import cora_oracles as loops
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_cora import CONTEXT, GAT, alphas, descriptions, stir, weights_of
from torch import nn

from mmlib.papers.cora import method
from mmlib.papers.cora.method import (
    GPO,
    GATv2,
    neighbour_softmax,
    sinusoid,
)

pytestmark = pytest.mark.usefixtures("double")
few = settings(max_examples=25, deadline=None)
many = settings(max_examples=80, deadline=None)
seeds = st.integers(0, 2**32 - 1)
near = partial(pytest.approx, rel=1e-9, abs=1e-10)

# --- The printed oracles -------------------------------------------------------------------------


def close(a, b, tolerance=1e-9):
    return a.shape == b.shape and torch.allclose(a, b, rtol=tolerance, atol=tolerance)


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
        GAT["printed"](2, 1), left__weight=torch.eye(2), right__weight=torch.eye(2),
        attention=[[1.0, 1.0]],
    )  # fmt: skip
    nodes = torch.tensor([[0.0, 0], [1, 0], [0, -1]])
    source, target = into({0: [0, 1, 2], 1: [0, 1], 2: [0, 2]})
    alpha = alphas(layer, nodes, source, target).flatten().tolist()
    wanted = [0.220409, 0.599135, 0.180456, 0.268941, 0.731059, 0.549834, 0.450166]
    assert alpha == pytest.approx(wanted, abs=6e-7)
    assert layer(nodes, source, target)[0].tolist() == pytest.approx([0.599135, 0], abs=6e-7)


def test_the_authors_attention_gives_the_oracle():
    eye = torch.eye(4)
    layer = set_weights(
        GAT["authors"](4, 1), left__weight=eye, right__weight=eye, value__weight=eye,
        attention=torch.ones(1, 4),
    )  # fmt: skip
    nodes = torch.tensor([[0.0, 0, 0, 0], [1, 0, 0, 0], [0, -1, 0, 2]])
    source, target = into({0: [0, 1, 2]})
    alpha = alphas(layer, nodes, source, target).flatten().tolist()
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
        GAT["printed"](2, 1), left__weight=maps, right__weight=maps, attention=[[-1.0, -1]]
    )
    nodes = torch.tensor([[1.0, 0], [-1, 0]])
    source, target = into({0: [0, 1], 1: [0, 1]})
    alpha = alphas(layer, nodes, source, target).flatten().tolist()
    low = 1 / (1 + math.exp(1.6))
    assert alpha == pytest.approx([low, 1 - low, 1 - low, low])


@pytest.mark.parametrize(
    ("form", "wanted"), [("printed", [10.5, 6, 15]), ("authors", [17 / 3, 6, 9])]
)
def test_relation_context_gives_the_oracle(form, wanted):
    layer = set_weights(CONTEXT[form](1), active__weight=[[0.1, 1.0]], passive__weight=[[0.2, 1.0]])
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
    rows = sinusoid(torch.arange(2), 4)
    assert rows[0].tolist() == [0, 1, 0, 1]
    assert rows[1].tolist() == pytest.approx([0.841471, 0.540302, 0.01, 0.99995], abs=6e-7)


SCORES = torch.tensor([[0.9, 0.6, 0.1], [0.3, 0.8, 0.7], [0.2, 0.5, 0.4]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("margin", "total", "mean", "twins"),
    [(0.2, 0.9, 0.3, 0.3), (0.35, 1.55, 0.516667, 0.466667), (0.4, 1.8, 0.6, 0.533333)],
)
def test_hardest_negatives_give_the_oracle(margin, total, mean, twins):
    same = torch.eye(3, dtype=torch.bool)
    assert 3 * method.hardest(SCORES, same, margin).item() == near(total)
    assert method.hardest(SCORES, same, margin).item() == pytest.approx(mean, abs=6e-7)
    same[0, 1] = same[1, 0] = True
    assert method.hardest(SCORES, same, margin).item() == pytest.approx(twins, abs=6e-7)


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
    loss = method.contrastive(COSINES, mates, 0.01).item()
    assert loss == pytest.approx(0.320435 if positive[1][2] == 0 else 0.353986, abs=2e-6)


@pytest.mark.parametrize(
    ("margin", "total", "mean"), [(0.2, 0.15, 0.05), (0.35, 0.45, 0.15), (0.4, 0.55, 0.183333)]
)
def test_specificity_gives_the_oracle(margin, total, mean):
    captions, entities = torch.tensor([0.5, 0.5, 0.6]), torch.tensor([0.3, 0.45, 0.1])
    assert 3 * method.specificity(captions, entities, margin).item() == near(total)
    assert method.specificity(captions, entities, margin).item() == pytest.approx(mean, abs=6e-7)


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
    layer = stir(GAT[form](8, 2), seed)
    nodes = torch.randn(count, 8)
    source, target = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T
    wanted, weights = loops.gat(
        {f"g.{k}": v for k, v in weights_of(layer).items()}, "g", nodes.numpy(), edges, form
    )
    alpha = alphas(layer, nodes, source, target)
    assert alpha.tolist() == [[near(weights[s, t, h]) for h in range(2)] for s, t in edges]
    assert layer(nodes, source, target).detach().numpy() == near(wanted)


def test_attention_survives_large_scores():
    scores = torch.tensor([[800.0], [-900.0], [799.0]])
    alpha = neighbour_softmax(scores, torch.tensor([0, 1, 0]), 3).flatten()
    low = 1 / (1 + math.e)
    assert alpha.tolist() == near([1 - low, 1, low])


@pytest.mark.parametrize("form", ["printed", "authors"])
def test_fresh_heads_attend_differently(form):
    torch.manual_seed(0)
    alpha = alphas(GAT[form](8, 2), torch.randn(3, 8), torch.arange(3), torch.tensor([0, 0, 0]))
    assert (alpha[:, 0] != alpha[:, 1]).all()


def test_dropout_falls_on_the_mapped_values():
    layer, nodes, one = stir(GATv2(8, 2, dropout=0.5)), torch.randn(3, 8), torch.tensor([0])
    heard = []
    layer.dropout.register_forward_hook(lambda module, given, out: heard.append((*given, out)))
    out = layer(nodes, one, one)
    ((before, after),) = heard
    assert torch.equal(before, layer.value(nodes))
    assert close(out[0], layer.norm(layer.left(nodes[0]) + after[0]).relu())


@pytest.mark.parametrize("form", ["printed", "authors"])
@few
@given(descriptions(), seeds)
def test_relation_context_is_the_loop(form, described, seed):
    objects, relations = described
    layer = stir(CONTEXT[form](6).eval(), seed)
    torch.manual_seed(seed % 1000)
    entities, vectors = torch.randn(len(objects), 6), torch.randn(len(relations), 6)
    ends = torch.tensor([(a, b) for a, _, b in relations], dtype=torch.int64).reshape(-1, 2)
    out = layer(entities, vectors, ends[:, 0], ends[:, 1]).detach().numpy()
    triples = [(a, vectors[i].numpy(), b) for i, (a, _, b) in enumerate(relations)]
    w = {f"c.{k}": v for k, v in weights_of(layer).items()}
    assert out == near(loops.context(w, "c", entities.numpy(), triples, form))


@few
@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), seeds)
def test_pooling_is_the_loop(lengths, seed):
    gpo = stir(GPO(), seed)
    w = {f"p.{k}": v for k, v in weights_of(gpo).items()}
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
    assert method.hardest(*args).item() == near(np.mean(images) + np.mean(captions))


def with_entities(drawn, seed):
    """Similarities (N, M), and which concept is in which image; each is in some image."""
    s, same = drawn
    n, m = s.shape
    rng = np.random.default_rng(seed)
    extra = rng.random((n, m - n)) < 0.3
    extra[rng.integers(0, n, m - n), np.arange(m - n)] = True
    return s, np.concatenate([same, extra], axis=1)


@many
@given(similarities(columns=5), st.sampled_from([0.01, 0.1, 1.0]), seeds)
def test_the_contrastive_loss_is_the_loop(drawn, temperature, seed):
    s, positive = with_entities(drawn, seed)
    loss = method.contrastive(torch.tensor(s), torch.tensor(positive), temperature).item()
    assert loss == near(sum(loops.contrastive(s, positive, temperature)))


@many
@given(similarities(columns=5), st.sampled_from([0.01, 0.05]), seeds)
def test_the_authors_contrastive_loss_is_the_loop(drawn, temperature, seed):
    s, positive = with_entities(drawn, seed)
    wanted, gradient = loops.authors_contrastive(s, positive, temperature)
    cosines = torch.tensor(s, requires_grad=True)
    loss = method.contrastive(cosines, torch.tensor(positive), temperature, authors=True)
    loss.backward()
    assert loss.item() == near(wanted)
    assert cosines.grad.numpy() == pytest.approx(gradient, rel=1e-8, abs=1e-8)


def test_the_authors_denominators_draw_a_far_entity_nearer():
    """Its cosine lies .3 below its caption's: 6 temperatures of .05 or 30 of .01."""
    positive = torch.tensor([[1, 0, 1], [0, 1, 0]], dtype=torch.bool)
    for temperature, wanted in ((0.05, 0.0), (0.01, -25.0)):  # a quarter of 1 / .01
        slopes = []
        for authors in (False, True):
            s = torch.tensor([[0.9, -0.9, 0.6], [-0.9, 0.9, -0.9]], requires_grad=True)
            method.contrastive(s, positive, temperature, authors).backward()
            slopes.append(s.grad[0, 2].item())
        assert slopes[0] == pytest.approx(0, abs=1e-6)
        assert slopes[1] == pytest.approx(wanted, abs=0.01)


@many
@given(similarities(), st.floats(0, 1), seeds)
def test_specificity_is_the_loop(drawn, margin, seed):
    s, _ = drawn
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, len(s), 7)
    own = rng.uniform(-1, 1, 7)
    hinges = loops.specificity(s, zip(rows, own, strict=True), margin)
    args = torch.tensor(s.diagonal()[rows]), torch.tensor(own), margin
    assert method.specificity(*args).item() == near(np.mean(hinges))


def test_losses_are_zero_where_nothing_is_wrong():
    s = torch.tensor([[0.9, 0.4, 0.1], [0.5, 0.95, 0.2], [0.3, 0.2, 0.7]])
    same = torch.eye(3, dtype=torch.bool)
    assert method.hardest(s, same, 0.4).item() == 0
    assert method.hardest(s, same, 0.41).item() > 0
    captions, entities = torch.tensor([0.5, 0.5]), torch.tensor([0.1, -0.2])
    assert method.specificity(captions, entities, 0.4).item() == 0
    assert method.specificity(captions, entities, 0.41).item() > 0


def test_a_second_caption_of_an_image_is_no_negative():
    """Rows 0 and 1 show one image, whose captions are both near it."""
    s = torch.tensor([[0.9, 0.95, 0.1], [0.9, 0.95, 0.2], [0.0, 0.1, 0.7]])
    same = torch.tensor([[1, 1, 0], [1, 1, 0], [0, 0, 1]], dtype=torch.bool)
    assert method.hardest(s, same, 0.2).item() == 0
    assert method.hardest(s, torch.eye(3, dtype=torch.bool), 0.2).item() > 0
    s.requires_grad_()
    method.contrastive(s, same, 0.1).backward()
    assert (s.grad[same] < 0).all()  # positives are drawn nearer
    assert (s.grad[~same] > 0).all()
