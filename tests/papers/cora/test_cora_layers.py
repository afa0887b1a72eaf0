"""CORA's layers, losses and metrics against worked examples and against loops (cora_oracles)."""

import math

import cora_oracles as loops
import numpy as np
import pytest
import torch
from drawn import few, many, near, seeds
from hypothesis import given
from hypothesis import strategies as st
from tiny_cora import GAT, alphas, stir, weights_of

from mmlib.core.ranking import metrics, ranks_of_scores
from mmlib.papers.cora import method
from mmlib.papers.cora.method import GPO

pytestmark = pytest.mark.usefixtures("double")


def test_pooling_has_the_published_size_and_needs_a_vector():
    assert sum(p.numel() for p in GPO().parameters()) == 12_704
    with pytest.raises(ValueError, match="at least one vector"):
        GPO()(torch.ones(2, 3, 2), torch.tensor([3, 0]))


# --- Against loops -------------------------------------------------------------------------------


@st.composite
def edge_lists(draw):
    """How many nodes, and edges between them, each once; a node may have none."""
    count = draw(st.integers(1, 5))
    node = st.integers(0, count - 1)
    return count, draw(st.lists(st.tuples(node, node), unique=True, max_size=12))


@pytest.mark.parametrize("form", GAT)
@few
@given(edge_lists(), seeds)
def test_graph_attention_is_the_loop(form, nodes_and_edges, seed):
    count, edges = nodes_and_edges
    torch.manual_seed(seed % 1000)
    layer, nodes = stir(GAT[form](8, 2), seed), torch.randn(count, 8)
    source, target = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T
    wanted, weights = loops.gat(weights_of(layer, "g"), "g", nodes.numpy(), edges, form)
    alpha = alphas(layer, nodes, source, target)
    assert alpha.tolist() == [[near(weights[s, t, h]) for h in range(2)] for s, t in edges]
    assert layer(nodes, source, target).detach().numpy() == near(wanted)


def test_attention_survives_large_scores_and_fresh_heads_differ():
    scores, target = torch.tensor([[800.0], [-900.0], [799.0]]), torch.tensor([0, 1, 0])
    low = 1 / (1 + math.e)
    alpha = method.neighbour_softmax(scores, target, 3)
    assert alpha.flatten().tolist() == near([1 - low, 1, low])
    for form in GAT:
        alpha = alphas(GAT[form](8, 2), torch.randn(3, 8), torch.arange(3), torch.zeros(3).long())
        assert (alpha[:, 0] != alpha[:, 1]).all()


@few
@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), seeds)
def test_pooling_is_the_loop_whatever_pads_it(lengths, seed):
    gpo = stir(GPO(), seed)
    torch.manual_seed(seed % 1000)
    features = torch.randn(len(lengths), 9, 3)
    theta, out = gpo.weights(torch.tensor(lengths)), gpo(features, torch.tensor(lengths))
    for i, n in enumerate(lengths):
        wanted = loops.pooling_weights(weights_of(gpo, "p"), "p", n)
        assert theta[i].tolist() == near([*wanted, *[0] * (max(lengths) - n)])
        assert out[i].tolist() == near(loops.pool(features[i, :n].numpy(), wanted))


@st.composite
def similarities(draw):
    """Cosines (N, N + columns), and which concept is in which image: captions, then entities."""
    n, extra = draw(st.integers(2, 6)), draw(st.integers(0, 5))
    image = np.array(draw(st.lists(st.integers(0, n - 1), min_size=n, max_size=n)))
    rng = np.random.default_rng(draw(seeds))
    s = rng.uniform(-1, 1, (n, n + extra)).round(draw(st.sampled_from([1, 6])))
    has = rng.random((n, extra)) < 0.3
    has[rng.integers(0, n, extra), np.arange(extra)] = True  # each is in some image
    return s, np.concatenate([image[:, None] == image, has], axis=1)


@many
@given(similarities(), st.sampled_from([0.01, 0.05, 1.0]))
def test_the_contrastive_loss_is_the_loop(drawn, temperature):
    s, positive = drawn
    loss = method.contrastive(torch.tensor(s), torch.tensor(positive), temperature).item()
    assert loss == near(sum(loops.contrastive(s, positive, temperature)))
    wanted, gradient = loops.authors_contrastive(s, positive, temperature)
    cosines = torch.tensor(s, requires_grad=True)
    loss = method.contrastive(cosines, torch.tensor(positive), temperature, authors=True)
    loss.backward()
    assert loss.item() == near(wanted)
    assert cosines.grad.numpy() == pytest.approx(gradient, rel=1e-8, abs=1e-8)


# --- Metrics -------------------------------------------------------------------------------------


def test_what_items_add_is_the_rsum_on_average():
    rng = np.random.default_rng(0)
    for image_of in (np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1, 2])):
        ranks = ranks_of_scores(rng.random((image_of.max() + 1, len(image_of))), image_of)
        found = method.per_item(ranks)
        assert found["RSUM"].mean() == pytest.approx(metrics(ranks)["rsum"])
        assert found["rank"].tolist() == [*ranks.caption_ranks, *ranks.image_ranks]


@few
@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), seeds)
def test_the_weakest_entity_is_that_of_the_loop(owned, seed):
    rng = np.random.default_rng(seed)
    caption_of = np.repeat(np.arange(len(owned)), owned)
    images, captions, entities = (
        rng.normal(size=(n, 4)) for n in (1030, len(owned), len(caption_of))
    )
    image_of = np.zeros(len(owned), int)
    one = method.Encoded(images, captions, image_of, entities, caption_of)
    weakest = method.weakest_entity(one)
    for t in range(len(owned)):
        assert weakest[:, t] == pytest.approx((images @ entities[caption_of == t].T).min(axis=1))
    with pytest.raises(ValueError, match="no entities"):
        method.weakest_entity(method.Encoded(images, captions, image_of, None, None))


def test_reranking_is_weighed_by_the_scores():
    right, image_of = np.eye(3), np.arange(3)
    assert method.best_beta(right, -right, image_of) == 1.0
    assert method.best_beta(-right, right, image_of) < 0.5


@few
@given(st.integers(1, 4), st.integers(1, 5), seeds)
def test_within_its_family_a_caption_is_ranked_by_the_loop(families, size, seed):
    rng = np.random.default_rng(seed)
    image_of = np.sort(rng.integers(0, families * size, 9))
    scores = rng.integers(0, 3, (families * size, 9)) / 4  # with ties
    values = method.right_in_family(scores, image_of, size)
    assert np.isnan(values[9:]).all()
    for c, image in enumerate(image_of):
        rivals = [i for i in range(len(scores)) if i // size == image // size]
        best = [i for i in rivals if scores[i, c] == scores[rivals, c].max()]
        assert values[c] == pytest.approx(100 * (image in best) / len(best))
