"""Probes of models against finite differences, loops and the parts that they look into."""

from dataclasses import asdict, replace

import cora_oracles as loops
import numpy as np
import pytest
import torch
from tiny_cora import HOW, RICH, drawn_batch, graph_set, job, model_of, paired, tiny, weights_of

from mmlib.papers.cora import probes
from mmlib.papers.cora.systems import BAG, CORA, OURS, SEQUENCE, SYSTEMS
from mmlib.papers.cora.train import fresh, train
from mmlib.world import backbone, captioned_images
from mmlib.world.graphs import CONCEPTS

pytestmark = pytest.mark.usefixtures("double")
KINDS = ("object", "attribute", "relation")


@pytest.fixture
def single(double):
    """Trainings are made in float32."""
    torch.set_default_dtype(torch.float32)
    yield
    torch.set_default_dtype(torch.float64)


def by_differences(model, batch, monkeypatch, step=1e-6):
    """Mean |gradient| · |vector| of each kind of phrase, a coordinate at a time."""
    concepts = model.texts.concepts
    nodes, relations = (part.detach() for part in concepts(batch.text))
    objects, attributes = nodes.split([len(batch.text.objects), len(batch.text.attributes)])

    def loss(kind, row, column, by):
        parts = dict(zip(KINDS, (objects.clone(), attributes.clone(), relations.clone()),
                         strict=True))  # fmt: skip
        parts[kind][row, column] += by
        moved = torch.cat([parts["object"], parts["attribute"]]), parts["relation"]
        monkeypatch.setattr(concepts, "forward", lambda _: moved)
        with torch.no_grad():
            return model.loss(batch, True).item()

    found = {}
    for kind, own in zip(KINDS, (objects, attributes, relations), strict=True):
        slopes = np.array([
            [(loss(kind, i, d, step) - loss(kind, i, d, -step)) / (2 * step)
             for d in range(own.shape[1])]
            for i in range(len(own))
        ])  # fmt: skip
        lengths = np.linalg.norm(own.numpy(), axis=1)
        found[kind] = np.mean(np.linalg.norm(slopes, axis=1) * lengths)
    monkeypatch.undo()
    return found


@pytest.mark.parametrize("system", [CORA, OURS, BAG], ids=lambda one: one.system)
def test_gradients_are_those_of_finite_differences(system, monkeypatch):
    model = model_of(**asdict(system))
    batch = drawn_batch(paired(), rows=(0, 2, 5))
    told = probes.gradients(model, batch)
    assert {k: told[k] for k in KINDS} == pytest.approx(
        by_differences(model, batch, monkeypatch), rel=1e-5
    )
    assert told["caption"] > 0


def test_the_gradient_in_a_caption_is_at_right_angles_to_it_and_of_its_cosines():
    """A loss of cosines does not change with a caption's length; its gradient is that by hand."""
    model = model_of(**asdict(SEQUENCE))
    batch = drawn_batch(paired(), reads="sequence", rows=(0, 2, 5))
    told = probes.gradients(model, batch)
    assert all(np.isnan(told[kind]) for kind in KINDS)
    captions = model.texts(batch.text)[0].detach().requires_grad_()
    images = model.encode_images(batch.regions, batch.counts).detach()
    scores = images @ torch.nn.functional.normalize(captions, dim=1).T
    loss = loops_loss(model, scores, batch.same)
    loss.backward()
    assert (captions.grad * captions).sum(dim=1).abs().max() < 1e-9
    wanted = (captions.grad.norm(dim=1) * captions.norm(dim=1)).mean().item()
    assert told["caption"] == pytest.approx(wanted)


def loops_loss(model, scores, same):
    """HARD with averaged negatives and CON on captions, a pair at a time."""
    n, total = len(scores), 0.0
    for s in (scores, scores.T):
        for i in range(n):
            others = [j for j in range(n) if not same[i, j]]
            hinges = [(model.system.margin + s[i, j] - s[i, i]).clamp(min=0) for j in others]
            total = total + sum(hinges) / len(others) / n
            logits = s[i] / model.settings.temperature
            right = [j for j in range(n) if same[i, j]]
            rivals = sum(torch.exp(logits[j]) for j in others)
            terms = [-torch.log(torch.exp(logits[j]) / (torch.exp(logits[j]) + rivals))
                     for j in right]  # fmt: skip
            total = total + model.settings.lambda_con * sum(terms) / len(right) / n
    return total


def test_looking_leaves_the_model_as_it_was():
    model = model_of(**asdict(CORA))
    batch = drawn_batch(paired())
    with torch.no_grad():
        before = model.loss(batch).item()
    probes.gradients(model, batch)
    assert not model.texts.concepts._forward_hooks
    assert all(p.grad is None for p in model.parameters())
    assert not model.texts._forward_hooks
    with torch.no_grad():
        assert model.loss(batch).item() == before


def test_the_mean_cosine_is_over_different_pairs():
    vectors = torch.nn.functional.normalize(torch.randn(5, 3), dim=1)
    pairs = [float(vectors[i] @ vectors[j]) for i in range(5) for j in range(5) if i != j]
    assert probes.mean_cosine(vectors) == pytest.approx(np.mean(pairs), abs=1e-6)
    assert probes.mean_cosine(vectors[:1].expand(4, 3)) == pytest.approx(1, abs=1e-6)


def test_starts_are_those_of_trainings(single):
    arrays = tiny()
    table = probes.starts([CORA, BAG, SEQUENCE], HOW, arrays, seeds=(0, 1))
    assert list(table.index) == [one.system for one in (CORA, BAG, SEQUENCE)]
    assert list(table.columns) == ["cosine", "caption", *KINDS]
    assert table.loc[SEQUENCE.system, list(KINDS)].isna().all()
    assert table.drop(index=SEQUENCE.system).notna().all(axis=None)
    each = [probes.starts([BAG], HOW, arrays, seeds=(seed,)) for seed in (0, 1)]
    assert table.loc[BAG.system].to_numpy() == pytest.approx(
        (each[0] + each[1]).loc[BAG.system].to_numpy() / 2
    )


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
    assert set(found) == ({"objects"} if name == "Joint" else {"attributes", "objects"})
    for edges in found.values():
        into: dict[int, float] = {}
        for _, target, weight in edges:
            into[target] = into.get(target, 0.0) + weight
        assert list(into.values()) == pytest.approx([1.0] * len(into))
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
    found = probes.attention(model, graph_set(RICH), 0)["attributes"]
    for source, target, weight in found:
        heads = [weights[source, target, head] for head in range(model.settings.heads)]
        assert weight == pytest.approx(np.mean(heads))


def test_a_model_without_graph_layers_is_refused():
    with pytest.raises(ValueError, match="Bag of phrases has no graph layers"):
        probes.attention(model_of(**asdict(BAG)), graph_set(RICH), 0)


def test_the_reader_of_places_is_the_loop(single):
    images = captioned_images("test", 8, family=4)
    network, found = backbone.load(), probes.read_places(images)
    captions = [each.graph for own in images.gold for each in own]
    assert found["one place"].shape == found["anywhere"].shape == (8, len(captions))

    def likely(region, name, value):
        """How likely the network's linear layer finds a fact in a region; None: it cannot say."""
        first = 0
        for head in backbone.LOCAL:
            words = backbone.HEADS[head]
            own = {word: 1 / (1 + np.exp(-region[first + i])) for i, word in enumerate(words)}
            if name == "is" and head == "kind":
                return 1 - np.prod([1 - own[kind] for kind in CONCEPTS[value]])
            if name == head and value in own:
                return own[value]
            first += len(words)
        return None

    weight, bias = network.local.weight.numpy(), network.local.bias.numpy()
    for image, caption in ((0, 0), (3, 5), (6, 11), (7, len(captions) - 1)):
        regions = [weight @ (float(network.deviation) * one) + bias
                   for one in images.features[image]]  # fmt: skip
        together = apart = 0.0
        for node in captions[caption].nodes:
            logs = [
                [np.log(p + 1e-6) for p in (likely(one, *fact) for one in regions)]
                for fact in (("is", node.concept), *node.facts)
                if likely(regions[0], *fact) is not None
            ]
            together += max(map(sum, zip(*logs, strict=True)))
            apart += sum(map(max, logs))
        assert found["one place"][image, caption] == pytest.approx(together, rel=1e-4)
        assert found["anywhere"][image, caption] == pytest.approx(apart, rel=1e-4)
    assert (found["one place"] <= found["anywhere"] + 1e-4).all()


def test_where_pooling_starts():
    """By hand on weights that are known, and of fresh models by loops over all ranks."""
    arrays, settings = tiny(), HOW
    near = fresh(SYSTEMS["CORA, near max"], settings, arrays, 3)
    by_hand = np.exp(-3 * np.arange(8) / 8)
    assert probes.on_largest(near, 8) == pytest.approx(by_hand[:2].sum() / by_hand.sum(), abs=1e-6)
    one = fresh(CORA, settings, arrays, 3)
    pile = torch.eye(8)[None]  # each dimension has one 1, so its pooled value is the first weight
    falling = torch.tril(torch.ones(8, 8)).flip(0)[None]  # dimension d has 8 - d ones
    lengths = torch.tensor([8])
    first = one.images.pool(pile, lengths)[0, 0].item()
    two = one.images.pool(falling, lengths)[0, -2].item()
    assert two > first > 0
    assert probes.on_largest(one, 8) == pytest.approx(two, abs=1e-6)
    other = fresh(CORA, settings, arrays, 4)
    assert probes.on_largest(other, 8) != probes.on_largest(one, 8)
