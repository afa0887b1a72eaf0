"""Probes of models against finite differences, loops and the parts that they look into."""

from dataclasses import asdict, replace

import cora_oracles as loops
import numpy as np
import pytest
import torch
from tiny_cora import HOW, RICH, graph_set, job, model_of, tiny, weights_of

from mmlib.papers.cora import method as probes
from mmlib.papers.cora.run.systems import BAG, CORA, SYSTEMS
from mmlib.papers.cora.run.train import fresh, train

pytestmark = pytest.mark.usefixtures("double")


@pytest.fixture
def single(double):
    """Trainings are made in float32."""
    torch.set_default_dtype(torch.float32)
    yield
    torch.set_default_dtype(torch.float64)


def test_a_fresh_model_is_the_one_that_a_training_starts_from(single):
    arrays = tiny()
    still = replace(HOW, epochs=1, learning_rate=0.0, weight_decay=0.0)
    kept, _ = train(job(BAG.system, still, seed=3), arrays)
    own = dict(fresh(BAG, still, arrays, 3).named_parameters())
    assert all(torch.equal(value, own[name]) for name, value in kept.named_parameters())


@pytest.mark.parametrize("name", ["CORA", "CORA, authors' form", "Joint"])
def test_attention_is_that_of_the_layers(name):
    model = model_of(**asdict(SYSTEMS[name]))
    graphs = graph_set(RICH)
    found = probes.attention(model, graphs, 0)
    into = dict.fromkeys(range(3), 0.0)
    for (target, source), weight in found.items():
        if isinstance(source, int) and isinstance(target, int):
            into[target] += weight
    if name == "Joint":  # whose objects hear attributes in the same layer
        assert into[0] < 1 == pytest.approx(into[1])
    else:
        assert list(into.values()) == pytest.approx([1.0] * 3)
    assert not any(layer._forward_pre_hooks for layer in model.modules())


def test_attention_to_attributes_is_the_loop():
    model = model_of(**asdict(CORA))
    batch = graph_set(RICH).batch(np.array([0]))
    with torch.no_grad():
        nodes = model.texts.concepts(batch)[0].relu()
    objects = len(batch.objects)
    edges = [(i, i) for i in range(objects)]
    edges += [(objects + k, int(owner)) for k, owner in enumerate(batch.owner)]
    _, weights = loops.gat(weights_of(model.texts), "attributes.0", nodes.numpy(), edges, "authors")
    found = probes.attention(model, graph_set(RICH), 0)
    for k, (owner, place) in enumerate([(0, 0), (0, 1), (2, 0)]):
        heads = [weights[objects + k, owner, head] for head in range(model.settings.heads)]
        assert found[owner, (owner, place)] == pytest.approx(np.mean(heads))


def test_a_model_without_graph_layers_is_refused():
    with pytest.raises(ValueError, match="Bag of phrases has no graph layers"):
        probes.attention(model_of(**asdict(BAG)), graph_set(RICH), 0)
