"""CORA's encoders and whole loss against loops, under its invariants, and at its printed sizes."""

import copy
from collections import Counter
from dataclasses import asdict, replace

import cora_oracles as loops
import numpy as np
import oracles
import pytest
import tiny_cora as toys
import torch
from drawn import near
from torch import nn

from mmlib.papers.cora.method import ImageEncoder, attention, padded
from mmlib.papers.cora.run.systems import BAG, CORA, SYSTEMS, Settings, System
from mmlib.papers.cora.run.train import parameter_groups
from mmlib.papers.cora.variants import build

pytestmark = pytest.mark.usefixtures("double")
PAIRED = toys.paired()


def close(a, b, tolerance=1e-9):
    return a.shape == b.shape and torch.allclose(a, b, rtol=tolerance, atol=tolerance)


# --- Encoders against loops ----------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{}, {"regions": "pooling"}, {"form": "authors"}])
def test_images_are_encoded_as_each_alone(changes):
    encoder = toys.model_of(**changes).images
    regions, lengths = torch.randn(4, 6, toys.INNER), torch.tensor([6, 1, 4, 3])
    w, out = toys.weights_of(encoder), encoder(regions, lengths)
    for i, n in enumerate(lengths):
        assert out[i].tolist() == near(loops.image(w, regions[i, :n].numpy(), toys.TINY.heads))


def test_in_training_only_valid_regions_reach_the_batch_norm():
    encoder = ImageEncoder(toys.INNER, 8, 2, 0.0).train()
    regions, lengths = torch.randn(3, 5, toys.INNER), torch.tensor([5, 1, 3])
    changed = regions.clone()
    changed[1, 1:] += 100
    changed[2, 3:] -= 7
    twin = copy.deepcopy(encoder)
    assert torch.equal(encoder(regions, lengths), twin(changed, lengths))
    valid = torch.cat([regions[i, :n] for i, n in enumerate(lengths)])
    mean = encoder.hidden(valid).mean(dim=0)
    assert encoder.norm.running_mean.tolist() == near((0.1 * mean).tolist())  # momentum 0.1


FORMS = {
    "paper": {},
    "code": {"form": "authors"},
    "printed attention": {"attention": "printed", "attribute_layers": 2},
    "(2, 3) layers": {"attribute_layers": 2, "object_layers": 3},
    "(1, 1) layers, authors' form": {"object_layers": 1, "form": "authors"},
    "connected": {"connected": True},
    "edges of both ends": {"ends": 2},
    "joint": {"steps": "one"},
    "joint and connected": {"steps": "one", "connected": True},
    "joint, authors' form": {"steps": "one", "form": "authors"},
}


def ids_of(text):
    return toys.READER.ids([text])[0][0].tolist()


@pytest.mark.parametrize("form", FORMS)
def test_captions_are_encoded_as_each_alone(form):
    one = toys.model_of(**FORMS[form])
    w = toys.weights_of(one.texts)
    batch = toys.whole(toys.RICH)
    captions, entities = one.texts(batch)
    for i, (objects, relations) in enumerate(toys.RICH):
        caption, own = loops.caption(
            w, [(ids_of(name), [ids_of(a) for a in said]) for name, *said in objects],
            [(a, ids_of(label), b) for a, label, b in relations], one.system,
        )  # fmt: skip
        assert captions[i].tolist() == near(caption)
        found = None if entities is None else entities[batch.caption == i].tolist()
        assert found == (None if own is None else [near(e) for e in own])


def pooled_phrases(w, described):
    """What a bag makes of a caption, by loops."""
    objects, relations = described
    kinds = [("node", text) for names in objects for text in names]
    kinds += [("relation", label) for _, label, _ in relations]
    concepts = [
        loops.linear(w, f"concepts.{kind}", loops.phrase(w, "concepts.phrases.0", ids_of(text)))
        for kind, text in kinds
    ]
    return loops.gpo(w, "bag", concepts)


def test_a_bag_pools_all_phrases_and_skips_add_what_enters_a_layer_and_a_bag():
    bag = toys.model_of(text="bag").texts
    skips = toys.model_of(residual=True, object_layers=1).texts
    batch = toys.whole(toys.RICH)
    nodes, relations = (part.relu() for part in skips.concepts(batch))
    hidden = skips.context(skips.entities(nodes, batch), relations, batch)
    hidden = hidden + skips.objects[0](hidden, *batch.object_edges())
    rest = skips.pool(*padded(hidden, batch.caption, batch.captions))
    captions, entities = bag(batch)
    assert entities is None
    for texts, found in ((bag, captions), (skips, skips(batch)[0] - rest)):
        w = toys.weights_of(texts)
        assert found.tolist() == [near(pooled_phrases(w, described)) for described in toys.RICH]


def test_sequences_are_encoded_as_each_alone():
    texts = toys.model_of(text="sequence").texts
    words = toys.READER.sequences(["man hold red cup", "dog", "two dog near fence"])
    batch = words.batch(np.arange(3))
    captions, entities = texts(batch)
    assert entities is None
    w = toys.weights_of(texts)
    for row, n, caption in zip(batch.tokens, batch.lengths, captions, strict=True):
        states = loops.bidirectional(w, "gru", w["words.weight"][row[:n].numpy()])
        assert caption.tolist() == near(loops.gpo(w, "pool", states))


# --- The whole loss ------------------------------------------------------------------------------

LOSSES = [
    {}, {"losses": "HARD"}, {"losses": "CON"}, {"losses": "HARD + CON"}, {"losses": "SPEC"},
    {"entities": False}, {"steps": "one", "losses": "HARD + CON"}, {"margin": 0.35},
    {"contrast": "authors"}, {"contrast": "authors", "entities": False},
    {"form": "authors"}, {"form": "authors", "losses": "HARD + CON"},
]  # fmt: skip


@pytest.mark.parametrize("changes", LOSSES, ids=str)
@pytest.mark.parametrize("warm", [False, True])
def test_the_whole_loss_is_the_loop(changes, warm):
    """The authors' 4 L_HARD + L_CON + 11 L_SPEC is 4 (L_HARD + L_CON / 4 + 2.75 L_SPEC)."""
    model, batch = toys.model_of(**changes), toys.drawn_batch(PAIRED)
    system, total = model.system, 0.0
    images = model.encode_images(batch.regions, batch.counts).detach().numpy()
    captions, entities = (
        None if x is None else x.detach().numpy() for x in model.encode_texts(batch.text)
    )
    for vectors in (images, captions):
        assert np.linalg.norm(vectors, axis=1) == near(1.0)
    similarity, same = images @ captions.T, batch.same.numpy()
    if "HARD" in system.losses:
        total += oracles.loss(similarity, system.margin, "mean" if warm else "hard", same)
    concepts, positive = similarity, same
    if entities is not None:
        own = [(c, images[c] @ e) for c, e in zip(batch.text.caption.tolist(), entities)]  # noqa: B905
        if "SPEC" in system.losses:
            weight = 2.75 if (system.form == "authors") else 3
            total += weight * np.mean(loops.specificity(similarity, own, system.margin))
        if system.entities:
            concepts = np.concatenate([similarity, images @ entities.T], axis=1)
            positive = np.concatenate([same, batch.contains.numpy()], axis=1)
    if "CON" in system.losses:
        how = concepts, positive, model.settings.temperature
        authors = "authors" in (system.form, system.contrast)
        contrast = loops.authors_contrastive(*how)[0] if authors else sum(loops.contrastive(*how))
        total += model.settings.lambda_con * contrast
    assert total > 0
    assert model.loss(batch, warm).item() == near(total)


# --- Invariants ----------------------------------------------------------------------------------

CAPTION = toys.RICH[0]  # man (tall, young), red cup, dog (jumping quickly)


def encoded(one, described):
    """Caption vectors (B, D) and entities (O, D), before normalisation."""
    with torch.no_grad():
        return one.texts(toys.whole(described))


@pytest.mark.parametrize("form", [name for name in FORMS if "joint" not in name])
def test_what_a_caption_may_depend_on(form):
    model = toys.model_of(**FORMS[form])
    batch, objects_, relations = toys.whole(toys.RICH), *CAPTION
    # An attribute reaches its own entity alone: bit-identical elsewhere.
    nodes = torch.randn(len(batch.objects) + len(batch.owner), 16)
    before = model.texts.entities(nodes, batch)
    for k, owner in enumerate(batch.owner.tolist()):
        other = nodes.clone()
        other[len(batch.objects) + k] += 1.0
        changed = (model.texts.entities(other, batch) != before).any(dim=1)
        assert changed.nonzero().flatten().tolist() == [owner]
    # The order of objects matters with positions alone, that of relations never.
    order = [2, 0, 1]
    shuffled = ([objects_[i] for i in order],
                [(order.index(a), label, order.index(b)) for a, label, b in relations])  # fmt: skip
    (first, own), (after, theirs) = (encoded(model, [c]) for c in (CAPTION, shuffled))
    positions = model.system.form == "authors"
    assert close(first, after, 1e-3 if positions else 1e-9) != positions
    assert close(own[order], theirs)  # entities come before positions
    assert close(first, encoded(model, [(objects_, relations[::-1])])[0])
    assert (first >= 0).all()


ODD = {
    "parallel relations": ([("man",), ("dog",)], [(0, "hold", 1), (0, "near", 1), (0, "hold", 1)]),
    "relation to oneself": ([("man", "tall"), ("dog",)], [(0, "near", 0), (1, "near", 0)]),
    "bare object": ([("man",)], []),
    "no attributes": ([("man",), ("dog",)], [(0, "hold", 1)]),
    "no relations": ([("man", "tall"), ("dog", "red")], []),
    "same name twice": ([("dog",), ("dog",), ("dog", "red", "red")], [(0, "near", 1)]),
}


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("form", ["paper", "code", "joint"])
def test_odd_graphs_go_forward_and_backward(kind, form):
    """Nothing else is in the batch: so there may be no attribute or no relation at all."""
    model = toys.model_of(**FORMS[form]).train()
    split = toys.split_of([ODD[kind]] * 3, [0, 1, 2], PAIRED.features[:3])
    loss = model.loss(toys.drawn_batch(split, rows=range(3)))
    loss.backward()
    assert torch.isfinite(loss)
    slopes = [p.grad for p in model.parameters() if p.grad is not None]
    assert all(torch.isfinite(g).all() for g in slopes)
    assert any(g.any() for g in slopes)


def test_a_batch_of_one_image_alone_has_no_negatives():
    loss = toys.model_of().train().loss(toys.drawn_batch(PAIRED, rows=[0, 1]))
    loss.backward()
    assert loss.item() > 0  # L_SPEC is left
    alone = toys.model_of(losses="HARD + CON").train()
    assert alone.loss(toys.drawn_batch(PAIRED, rows=[0, 1])).item() == near(0)


def test_dropout_is_where_it_should_be_at_its_rates():
    """Rows and rates of everything that a dropout layer sees in one step."""
    rates = {"image_dropout": 0.11, "graph_dropout": 0.16, "message_dropout": 0.07}
    model = toys.model_of(replace(toys.TINY, **rates), form="authors", attribute_layers=2).train()
    heard, values = Counter(), []
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Dropout):
            layer.register_forward_hook(
                lambda layer, x, out, name=name: heard.update([(name, layer.p, *x[0].shape)])
            )
    last = model.texts.objects[1]
    last.value.register_forward_hook(lambda layer, given, out: values.append(out))
    last.dropout.register_forward_hook(lambda layer, given, out: values.append(given[0]))
    batch = toys.drawn_batch(PAIRED)
    model.encode_images(batch.regions, batch.counts)
    model.encode_texts(batch.text)
    assert torch.equal(*values)  # mapped values are dropped, not nodes
    objects, attributes = len(batch.text.objects), len(batch.text.owner)
    relations, every = len(batch.text.subject), objects + attributes
    assert heard == {
        ("images.dropout", 0.11, *batch.regions.shape): 1,
        ("images.dropout", 0.11, batch.regions.shape[1], 16): 1,  # positions
        ("texts.attributes.0.dropout", 0.0, every, 16): 1,
        ("texts.attributes.1.dropout", 0.0, every, 16): 1,
        ("texts.dropout", 0.16, every, 16): 2,  # phrases, between the two layers
        ("texts.dropout", 0.16, relations, 16): 1,
        ("texts.context.dropout", 0.16, objects, 16): 1,  # positions
        ("texts.context.dropout", 0.16, 2 * relations, 16): 1,
        ("texts.dropout", 0.16, objects, 16): 2,  # before each of the last two layers
        ("texts.objects.0.dropout", 0.07, objects, 16): 1,
        ("texts.objects.1.dropout", 0.07, objects, 16): 1,
    }


@pytest.mark.parametrize("name", [n for n in SYSTEMS if n != "CORA, gold graphs"])
def test_every_parameter_of_every_system_learns(name):
    system = SYSTEMS[name]
    one = toys.model_of(**asdict(system)).train()
    one.loss(toys.drawn_batch(PAIRED, reads=system.reads)).backward()
    for parameter, value in one.named_parameters():
        assert value.grad is not None, parameter
        assert torch.isfinite(value.grad).all(), parameter
        assert value.grad.any(), parameter


def test_gradients_are_those_of_finite_differences():
    """Through attention, eq. 6, sorting and pooling at once."""
    model, batch, probe = toys.model_of(), toys.whole(toys.RICH), torch.randn(len(toys.RICH), 16)
    weight = model.texts.concepts.node.weight

    def value():
        return (model.texts(batch)[0] * probe).sum()

    value().backward()
    direction = torch.randn_like(weight)
    with torch.no_grad():
        weight.add_(1e-6 * direction)
        up = value()
        weight.sub_(2e-6 * direction)
        slope = ((up - value()) / 2e-6).item()
    assert slope == pytest.approx((weight.grad * direction).sum().item(), rel=1e-5)


# --- Sizes and systems ---------------------------------------------------------------------------


def count(*modules):
    """Distinct parameters without the word table, which the released counts leave out."""
    distinct = {id(p): p.numel() for m in modules for n, p in m.named_parameters()
                if "embed" not in n}  # fmt: skip
    return sum(distinct.values())


def test_the_authors_form_has_the_released_numbers_of_parameters():
    one = build(System("code", form="authors"), Settings(), 2048, torch.zeros(10, 300))
    texts = one.texts
    objects, attributes, relations = texts.concepts.phrases
    assert count(one.images) == 10_005_408
    # The released attention has a scalar bias a head, which cancels in the softmax: 16 a layer.
    entities = count(objects, attributes, texts.concepts.node, texts.attributes)
    assert entities + 16 * 1 == 4_543_712
    composed = count(relations, texts.concepts.relation, texts.context, texts.objects, texts.pool)
    assert composed + 16 * 2 == 11_384_360


@pytest.mark.parametrize("wrong", [{"steps": "one"}, {"connected": True}])
def test_skips_stand_alone(wrong):
    with pytest.raises(ValueError, match="skips are only in two steps on the parsed graph"):
        toys.model_of(residual=True, **wrong)


def test_word_vectors_are_copied_and_learn_at_their_own_rate():
    table = torch.randn(len(toys.WORDS), 6)
    one = build(System("CORA"), toys.TINY, 7, table)
    rest, words = parameter_groups(one, replace(toys.TINY, learning_rate=1e-3, word_rate=0.1))
    assert (rest["lr"], words["lr"]) == (1e-3, pytest.approx(1e-4))
    assert [tuple(p.shape) for p in words["params"]] == [(len(toys.WORDS), 6)]
    assert {id(p) for g in (rest, words) for p in g["params"]} == {id(p) for p in one.parameters()}
    with torch.no_grad():
        words["params"][0].zero_()
    assert table.any()


def test_attention_to_attributes_is_the_loop():
    model, graphs = toys.model_of(**asdict(CORA)), toys.graph_set(toys.RICH)
    batch = graphs.batch(np.array([0]))
    nodes = model.texts.concepts(batch)[0].relu().detach().numpy()
    edges = [(i, i) for i in range(3)] + [(3, 0), (4, 0), (5, 2)]
    _, weights = loops.gat(toys.weights_of(model.texts), "attributes.0", nodes, edges, "authors")
    found = attention(model, graphs, 0)
    for k, (owner, place) in enumerate([(0, 0), (0, 1), (2, 0)]):
        heads = [weights[3 + k, owner, head] for head in range(toys.TINY.heads)]
        assert found[owner, (owner, place)] == pytest.approx(np.mean(heads))
    of_objects = [sum(found.get((i, j), 0) for j in range(3)) for i in range(3)]
    assert of_objects == pytest.approx([1.0] * 3)
    assert not any(layer._forward_pre_hooks for layer in model.modules())
    with pytest.raises(ValueError, match="Bag of phrases has no graph layers"):
        attention(toys.model_of(**asdict(BAG)), graphs, 0)
