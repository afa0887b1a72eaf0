"""CORA's encoders and whole loss against loops, under its invariants, and at its printed sizes."""

import copy
from collections import Counter
from dataclasses import asdict, replace
from functools import partial
from types import SimpleNamespace

import cora_oracles as loops
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_cora import (
    CONTEXT,
    INNER,
    READER,
    RICH,
    TINY,
    WORDS,
    drawn_batch,
    model_of,
    paired,
    split_of,
    stir,
    weights_of,
    whole,
)
from torch import nn

from mmlib.papers.cora.method import GPO, ImageEncoder, PhraseGRU, padded
from mmlib.papers.cora.run.systems import (
    GOLD,
    JOINT,
    SYSTEMS,
    TWO_STEP,
    Settings,
    System,
)
from mmlib.papers.cora.run.train import parameter_groups
from mmlib.papers.cora.variants import AuthorsEncoder, JointEncoder, build

pytestmark = pytest.mark.usefixtures("double")
few = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 2**32 - 1)
near = partial(pytest.approx, rel=1e-9, abs=1e-10)
PAIRED = paired()


def close(a, b, tolerance=1e-9):
    return a.shape == b.shape and torch.allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("positions", [False, True])
@pytest.mark.parametrize("attention", [False, True])
def test_images_are_encoded_as_each_alone(attention, positions):
    encoder = ImageEncoder(INNER, 8, 2, 0.1, attention, positions)
    stir(encoder).eval()
    regions, lengths = torch.randn(4, 6, INNER), torch.tensor([6, 1, 4, 3])
    out = encoder(regions, lengths).detach().numpy()
    w = weights_of(encoder)
    if not attention:
        w.pop("position.weight", None)  # positions enter the attention alone
    for i, n in enumerate(lengths):
        assert out[i] == near(loops.image(w, regions[i, :n].numpy(), 2))


@pytest.mark.parametrize("changes", [{}, {"regions": "pooling"}, {"form": "authors"}])
def test_a_model_builds_the_image_encoder_of_its_settings(changes):
    one = model_of(**changes)
    regions = torch.randn(1, 4, INNER)
    wanted = loops.image(weights_of(one.images), regions[0].numpy(), TINY.heads)
    assert one.images(regions, torch.tensor([4]))[0].tolist() == near(wanted)


def test_in_training_only_valid_regions_reach_the_batch_norm():
    torch.manual_seed(0)
    encoder = ImageEncoder(INNER, 8, 2, 0.0).train()
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
    "code": {"form": "authors"},
    "printed attention": {"attention": "printed", "attribute_layers": 2},
    "(2, 3) layers": {"attribute_layers": 2, "object_layers": 3},
    "(1, 1) layers, authors' form": {"object_layers": 1, "form": "authors"},
    "connected": {"connected": True},
    "joint": {"steps": "one"},
    "joint and connected": {"steps": "one", "connected": True},
}


def ids_of(text):
    return READER.ids([text])[0][0].tolist()


def as_loops_read_it(system):
    """The names that the loops know for what a system is."""
    return SimpleNamespace(
        phrases="gru3" if system.authors_code else "gru", joint=system.steps == "one",
        attribute_layers=system.attribute_layers, object_layers=system.object_layers,
        gat_form=system.attention, context_form=system.form, node_positions=system.authors_code,
        connected=system.connected,
    )  # fmt: skip


def encoded(one, described):
    """Caption vectors (B, D) and entities of each caption, before normalisation."""
    batch = whole(described)
    with torch.no_grad():
        captions, entities = one.texts(batch)
    return captions, [entities[batch.caption == i] for i in range(len(described))]


@pytest.mark.parametrize("form", FORMS)
def test_captions_are_encoded_as_each_alone(form):
    one = model_of(**FORMS[form])
    batch = whole(RICH)
    captions, entities = one.texts(batch)
    w = weights_of(one.texts)
    for i, (objects, relations) in enumerate(RICH):
        caption, own = loops.caption(
            w, [(ids_of(name), [ids_of(a) for a in said]) for name, *said in objects],
            [(a, ids_of(label), b) for a, label, b in relations], as_loops_read_it(one.system),
        )  # fmt: skip
        assert captions[i].tolist() == near(caption)
        if own is None:
            assert entities is None
        else:
            assert entities[batch.caption == i].tolist() == [near(e) for e in own]


def concept(w, ids, kind="node"):
    """A phrase as a concept before its ReLU, by loops."""
    return loops.linear(w, f"concepts.{kind}", loops.phrase(w, "concepts.phrases.0", ids))


def concepts_of(w, described):
    objects, relations = described
    nodes = [concept(w, ids_of(text)) for names in objects for text in names]
    return nodes + [concept(w, ids_of(label), "relation") for _, label, _ in relations]


def test_a_bag_pools_all_phrases_of_a_caption():
    one = model_of(text="bag")
    captions, entities = one.texts(whole(RICH))
    assert entities is None
    w = weights_of(one.texts)
    for caption, described in zip(captions, RICH, strict=True):
        assert caption.tolist() == near(loops.gpo(w, "bag.pool", concepts_of(w, described)))


def test_a_residual_path_adds_what_enters_an_object_layer():
    one = model_of(residual=True, object_layers=1)
    batch, texts = whole(RICH), one.texts
    nodes, relations = (part.relu() for part in texts.concepts(batch))
    hidden = texts.context(texts.entities(nodes, batch), relations, batch.subject, batch.object)
    hidden = hidden + texts.objects[0](hidden, *batch.object_edges())
    w, wanted = weights_of(texts), texts.pool(*padded(hidden, batch.caption, batch.captions))
    for a, b, described in zip(texts(batch)[0], wanted, RICH, strict=True):
        assert (a - b).tolist() == near(loops.gpo(w, "bag.pool", concepts_of(w, described)))


def test_a_phrase_is_the_mean_of_both_directions_or_the_last_state():
    embed = nn.Embedding(len(WORDS), 6)
    for bidirectional in (True, False):
        gru = stir(PhraseGRU(embed, bidirectional))
        ids, lengths = map(torch.tensor, READER.ids(["old stone house", "dog", "red cup"]))
        w = {f"p.{k}": v for k, v in weights_of(gru).items()}
        for row, n, out in zip(ids, lengths, gru(ids, lengths), strict=True):
            assert out.tolist() == near(loops.phrase(w, "p", row[:n].tolist()))


def test_sequences_are_encoded_as_each_alone():
    one = model_of(text="sequence", regions="pooling")
    batch = READER.sequences(["man hold red cup", "dog", "two dog near fence"]).batch(np.arange(3))
    captions, entities = one.texts(batch)
    assert entities is None
    w = weights_of(one.texts)
    for row, n, caption in zip(batch.tokens, batch.lengths, captions, strict=True):
        states = loops.bidirectional(w, "gru", w["words.weight"][row[:n].numpy()])
        assert caption.tolist() == near(loops.gpo(w, "pool", states))


# --- The whole loss ------------------------------------------------------------------------------


def loss_by_loops(model, batch, warm=False):
    s, system = model.settings, model.system
    images = model.encode_images(batch.regions, batch.counts).detach().numpy()
    captions, entities = (
        None if x is None else x.detach().numpy() for x in model.encode_texts(batch.text)
    )
    similarity, same = images @ captions.T, batch.same.numpy()
    total = 0.0
    if "HARD" in system.losses:
        terms = loops.hardest(similarity, same, system.margin, not warm)
        total += sum(np.mean(t) for t in terms)
    concepts, positive = similarity, same
    if entities is not None:
        caption = batch.text.caption.tolist()
        own = [(c, images[c] @ e) for c, e in zip(caption, entities, strict=True)]
        if "SPEC" in system.losses:
            total += 3 * np.mean(loops.specificity(similarity, own, system.margin))
        if system.entities:
            concepts = np.concatenate([similarity, images @ entities.T], axis=1)
            positive = np.concatenate([same, batch.contains.numpy()], axis=1)
    weight = s.lambda_con if "CON" in system.losses else 0
    how = concepts, positive, s.temperature
    authors = "authors" in (system.form, system.contrast)
    contrast = loops.authors_contrastive(*how)[0] if authors else sum(loops.contrastive(*how))
    return total + weight * contrast


@pytest.mark.parametrize(
    "changes",
    [
        {}, {"losses": "HARD"}, {"losses": "CON"}, {"losses": "HARD + CON"}, {"losses": "SPEC"},
        {"entities": False}, {"steps": "one", "losses": "HARD + CON"}, {"margin": 0.35},
        {"contrast": "authors"}, {"contrast": "authors", "entities": False},
        {"form": "authors", "losses": "HARD + CON"},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("warm", [False, True])
def test_the_whole_loss_is_the_loop(changes, warm):
    model = model_of(**changes)
    batch = drawn_batch(PAIRED)
    wanted = loss_by_loops(model, batch, warm)
    assert wanted > 0
    assert model.loss(batch, warm).item() == near(wanted)


def test_the_authors_weights_are_a_quarter_of_their_sum():
    """4 L_HARD + L_CON + 11 L_SPEC is 4 (L_HARD + L_CON / 4 + 2.75 L_SPEC)."""
    one = model_of(form="authors", margin=0.35)
    batch, parts = drawn_batch(PAIRED), []
    for kept in ("HARD", "CON", "SPEC"):
        one.system = replace(one.system, losses=kept)
        parts.append(one.loss(batch).item())
    one.system = replace(one.system, losses="HARD + CON + SPEC")
    hard, con, spec = parts[0], parts[1] / TINY.lambda_con, parts[2] / 2.75
    assert 4 * one.loss(batch).item() == near(4 * hard + con + 11 * spec)


# --- Invariants (17.9) ---------------------------------------------------------------------------

VARIANTS = {name: FORMS[name] for name in FORMS if "joint" not in name}
variants = pytest.mark.parametrize("form", VARIANTS)
CAPTION = RICH[0]  # man (tall, young), red cup, dog (jumping quickly)


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
def test_the_order_of_objects_matters_with_positions_alone(form):
    model = model_of(**FORMS[form])
    objects, relations = CAPTION
    order = [2, 0, 1]
    shuffled = (
        [objects[i] for i in order],
        [(order.index(a), label, order.index(b)) for a, label, b in relations],
    )
    (before,), (after,) = (encoded(model, [c])[0] for c in (CAPTION, shuffled))
    assert close(before, after, 1e-9 if not model.system.authors_code else 1e-3) != (
        model.system.authors_code
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


def test_without_relations_eq_6_changes_nothing():
    entities, none = torch.randn(4, 6), torch.zeros(0, dtype=torch.int64)
    for form in ("printed", "authors"):
        layer = stir(CONTEXT[form](6).eval())
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
    model = model_of(form="authors" if positions else "printed")
    regions, order = torch.randn(2, 5, INNER), torch.tensor([3, 0, 4, 2, 1])
    lengths = torch.tensor([5, 5])
    before, after = model.images(regions, lengths), model.images(regions[:, order], lengths)
    assert close(before, after, 1e-3 if positions else 1e-9) != positions


@pytest.mark.parametrize("attention", [False, True])
def test_padded_regions_never_matter(attention):
    model = model_of(regions="attention" if attention else "pooling")
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
    batch = drawn_batch(PAIRED)
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
    split = split_of([ODD[kind]] * 3, [0, 1, 2], PAIRED.features[:3])
    loss = model.loss(drawn_batch(split, rows=range(3)))
    loss.backward()
    assert torch.isfinite(loss)
    slopes = [p.grad for p in model.parameters() if p.grad is not None]
    assert all(torch.isfinite(g).all() for g in slopes)
    assert any(g.any() for g in slopes)


def test_a_batch_of_one_image_alone_has_no_negatives():
    model = model_of().train()
    loss = model.loss(drawn_batch(PAIRED, rows=[0, 1]))
    loss.backward()
    assert loss.item() > 0  # L_SPEC is left
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
    alone = model_of(losses="HARD + CON").train()
    assert alone.loss(drawn_batch(PAIRED, rows=[0, 1])).item() == near(0)


def test_dropout_is_where_it_should_be_at_its_rates():
    """Rows and rates of everything that a dropout layer sees in one step."""
    rates = {"image_dropout": 0.11, "graph_dropout": 0.16, "message_dropout": 0.07}
    model = model_of(replace(TINY, **rates), form="authors", attribute_layers=2).train()
    heard = Counter()
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Dropout):
            layer.register_forward_hook(
                lambda layer, given, out, name=name: heard.update(
                    [(name, layer.p, *given[0].shape)]
                )
            )
    batch = drawn_batch(PAIRED)
    model.encode_images(batch.regions, batch.counts)
    model.encode_texts(batch.text)
    objects, attributes = len(batch.text.objects), len(batch.text.owner)
    relations, every = len(batch.text.subject), objects + attributes
    assert heard == {
        ("images.dropout", 0.11, *batch.regions.shape): 1,
        ("images.dropout", 0.11, batch.regions.shape[1], 16): 1,  # positions
        ("texts.attributes.0.dropout", 0.0, every, 16): 1,
        ("texts.attributes.1.dropout", 0.0, every, 16): 1,
        ("texts.dropout", 0.16, every, 16): 2,  # phrases, between the two layers
        ("texts.dropout", 0.16, relations, 16): 1,
        ("texts.context.dropout", 0.16, 2 * relations, 16): 1,
        ("texts.dropout", 0.16, objects, 16): 3,  # positions, before each of the last two layers
        ("texts.objects.0.dropout", 0.07, objects, 16): 1,
        ("texts.objects.1.dropout", 0.07, objects, 16): 1,
    }


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_parameter_of_every_system_learns(name):
    system = replace(SYSTEMS[name], text="graph") if name == GOLD.system else SYSTEMS[name]
    one = model_of(**asdict(system)).train()
    loss = one.loss(drawn_batch(PAIRED, reads=system.reads))
    loss.backward()
    for parameter, value in one.named_parameters():
        assert value.grad is not None, parameter
        assert torch.isfinite(value.grad).all(), parameter
        assert value.grad.any(), parameter


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


# --- Sizes and systems ---------------------------------------------------------------------------


def count(*modules):
    """Distinct parameters without the word table, which the released counts leave out."""
    distinct = {id(p): p.numel() for m in modules for n, p in m.named_parameters()
                if "embed" not in n}  # fmt: skip
    return sum(distinct.values())


def test_joint_may_have_the_authors_form_but_no_skips_and_fc_stands_alone():
    joint = System("both", steps="one", form="authors", losses="HARD + CON", entities=False)
    texts = build(joint, TINY, INNER, torch.zeros(9, 6)).texts
    assert {JointEncoder, AuthorsEncoder} < set(type(texts).__mro__)
    assert [len(texts.concepts.phrases), len(texts.attributes)] == [3, 0]
    for wrong in (
        {"steps": "one", "residual": True},
        {"connected": True, "form": "authors"},
        {"residual": True, "form": "authors"},
    ):
        with pytest.raises(ValueError, match="of FC, the authors' form and skips only one"):
            build(System("wrong", **wrong), TINY, INNER, torch.zeros(9, 6))


def test_the_authors_form_has_the_released_numbers_of_parameters():
    one = build(System("code", form="authors"), Settings(), 2048, torch.zeros(10, 300))
    texts = one.texts
    objects, attributes, relations = texts.concepts.phrases
    assert count(one.images) == 10_005_408
    # The released attention has a scalar bias a head, which cancels in the softmax: 16 a layer.
    entities = count(objects, attributes, texts.concepts.node, texts.attributes)
    assert entities + 16 * 1 == 4_543_712
    composed = count(relations, texts.concepts.relation, texts.context, texts.objects,
                     texts.position, texts.position_norm, texts.pool)  # fmt: skip
    assert composed + 16 * 2 == 11_384_360


def test_the_settings_are_the_papers():
    s = Settings()
    assert (s.width, s.word_width, s.heads, s.batch, s.captions, s.epochs) == (
        1024, 300, 16, 128, 5, 50
    )  # fmt: skip
    assert (s.learning_rate, s.word_rate, s.weight_decay, s.lr_decay_at) == (5e-4, 0.1, 1e-4, 0.3)
    assert (s.lambda_con, s.temperature, s.mean_negatives) == (0.25, 0.01, 0)
    rates = ("region_dropout", "drop_objects", "drop_attributes", "drop_relations", "mask")
    assert [getattr(s, r) for r in rates] == [0.35, 0.1, 0.1, 0.1, 0.1]
    assert (s.image_dropout, s.graph_dropout, s.message_dropout) == (0.1, 0.15, 0.05)


def test_rows_differ_in_what_their_names_say_alone():
    def differs(a, b):
        return {k for k, v in asdict(a).items() if v != asdict(b)[k]} - {
            "system",
            "record_diagnostics",
        }

    cora = SYSTEMS["CORA"]
    assert differs(System(""), cora) == set()
    assert differs(TWO_STEP, JOINT) == {"steps"}
    assert differs(SYSTEMS["Joint + FC"], JOINT) == {"connected"}
    assert differs(SYSTEMS["Two-step + FC"], cora) == {"connected"}
    for other in ("Sequence, CORA's rest", "Bag of phrases"):
        assert differs(SYSTEMS[other], TWO_STEP) == {"text"}
    assert differs(SYSTEMS["Two-step, residual path and short cut"], TWO_STEP) == {
        "residual"
    }  # fmt: skip
    assert differs(SYSTEMS["HARD + CON"], cora) == {"losses"}
    assert SYSTEMS["VSE∞"].margin == 0.2
    layers = {(s.attribute_layers, s.object_layers) for n, s in SYSTEMS.items() if "layers" in n}
    assert layers == {(1, 1), (1, 3), (2, 1), (2, 2), (2, 3)}


def test_word_vectors_are_copied_and_learn_at_their_own_rate():
    table = torch.randn(len(WORDS), 6)
    one = build(System("CORA"), TINY, 7, table)
    rest, words = parameter_groups(one, replace(TINY, learning_rate=1e-3, word_rate=0.1))
    assert (rest["lr"], words["lr"]) == (1e-3, pytest.approx(1e-4))
    assert [tuple(p.shape) for p in words["params"]] == [(len(WORDS), 6)]
    assert {id(p) for g in (rest, words) for p in g["params"]} == {id(p) for p in one.parameters()}
    with torch.no_grad():
        words["params"][0].zero_()
    assert table.any()
