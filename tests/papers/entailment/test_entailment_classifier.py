"""The entailment classifier against a plain NumPy reading of its weights, loops, and by hand.

Sections and equations are those of "Revising Image-Text Retrieval via Multi-Modal Entailment".
"""

import math
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from mmlib.core.tables import paper_values
from mmlib.features import encoders
from mmlib.papers.entailment.method.classifier import (
    Batch,
    Gate,
    Head,
    Settings,
    classifier,
    joint_loss,
    log_odds,
    mask_regions,
    with_masked,
)

pytestmark = pytest.mark.usefixtures("double")


few = settings(max_examples=25, deadline=None)
many = settings(max_examples=100, deadline=None)
seeds = st.integers(0, 2**32 - 1)
near = partial(pytest.approx, rel=1e-9, abs=1e-10)
close = partial(np.testing.assert_allclose, rtol=1e-8, atol=1e-9)

# --- One sample at a time, without padding and masks ----------------------------------------------


def stir(module, seed=0):
    """Random values everywhere, in positions, biases and norms too, so that nothing hides."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in module.parameters():
            value.add_(0.4 * torch.randn(value.shape, generator=generator, dtype=value.dtype))
    return module.eval()


def first_state(bert, **inputs):
    return bert(**inputs).last_hidden_state[:, 0]


@torch.no_grad()
def classify(model, sample):
    """Logits by branch, by the layers of a model."""
    s, image = model.settings, torch.tensor(sample["image"])[None]
    pair, kinds = (torch.tensor([row]) for row in packed(sample))
    states = {}
    if s.model == "single":
        bert, ones = model.stream.layers, torch.ones(1, REGIONS, dtype=torch.long)
        inputs = [bert.embeddings.word_embeddings(pair), model.stream.project(image)]
        types = torch.cat([kinds, ones], dim=1)
        states["mm"] = first_state(bert, inputs_embeds=torch.cat(inputs, 1), token_type_ids=types)
    if s.model in ("both", "te"):
        bert = model.text if s.text == "own" else model.words
        states["te"] = first_state(bert, input_ids=pair, token_type_ids=kinds)
    if s.model in ("both", "ve"):
        regions = torch.cat([model.image.first[None, None], model.image.project(image)], dim=1)
        seen = model.image.layers(inputs_embeds=regions).last_hidden_state
        x = model.words(input_ids=torch.tensor([[1, *sample["hypothesis"], 2]])).last_hidden_state
        for layer in model.cross.layers:
            x = layer(x, encoder_hidden_states=seen)
        states["ve"] = x[:, 0]
    if s.model == "both":
        both = torch.cat([states["te"], states["ve"]], dim=1)
        te, ve = (torch.sigmoid(linear(both)) for linear in (model.gate.te, model.gate.ve))
        states["mm"] = te * states["te"] + ve * states["ve"]
    return {name: model.heads[name](state)[0] for name, state in states.items()}


# --- Toy samples ---------------------------------------------------------------------------------

WORDS, INNER, REGIONS = 12, 5, 4
TABLE = np.zeros((0, REGIONS, INNER))
TINY = Settings(
    width=8, heads=2, text_layers=2, image_layers=3, words_layers=1, cross_layers=2, dropout=0.0,
    max_premise=5, max_hypothesis=4,
)  # fmt: skip
LONGEST = TINY.max_premise + TINY.max_hypothesis + 3
KINDS = ("te", "ve", "mme")
DELTA = {"te": (1, 0, 0), "ve": (0, 1, 0), "mme": (1, 1, 1)}


def packed(sample):
    """[CLS] premise [SEP] hypothesis [SEP], and 1 from the hypothesis on."""
    first = [1, *sample["premise"], 2]
    second = [*sample["hypothesis"], 2]
    return first + second, [0] * len(first) + [1] * len(second)


def sample(rng, kind, premise=None, hypothesis=None):
    premise = premise if premise is not None else int(rng.integers(1, TINY.max_premise + 1))
    hypothesis = hypothesis or int(rng.integers(1, TINY.max_hypothesis + 1))
    return {
        "kind": kind,
        "label": int(rng.integers(2)),
        "premise": [] if kind == "ve" else rng.integers(4, WORDS, premise).tolist(),
        "hypothesis": rng.integers(4, WORDS, hypothesis).tolist(),
        "image": np.zeros((REGIONS, INNER)) if kind == "te" else rng.normal(size=(REGIONS, INNER)),
    }


def some(seed=0, kinds=("mme", "te", "ve", "mme", "te", "ve")):
    rng = np.random.default_rng(seed)
    return [sample(rng, kind) for kind in kinds]


def padded(rows, extra, garbage):
    size = max(map(len, rows)) + extra
    values = np.random.default_rng(garbage).integers(0, WORDS, (len(rows), size))
    mask = np.zeros((len(rows), size), bool)
    for i, row in enumerate(rows):
        values[i, : len(row)] = row
        mask[i, : len(row)] = True
    return torch.tensor(values), torch.tensor(mask)


def batch_of(samples, extra=0, garbage=0):
    """Samples side by side; what stands in the padding is garbage on purpose."""
    pairs, kinds = zip(*map(packed, samples), strict=True)
    pair, pair_mask = padded(pairs, extra, garbage)
    words, words_mask = padded([[1, *s["hypothesis"], 2] for s in samples], extra, garbage + 1)
    return Batch(
        pair=pair, pair_mask=pair_mask, pair_type=padded(kinds, extra, garbage)[0] % 2,
        words=words, words_mask=words_mask,
        images=torch.tensor(np.array([s["image"] for s in samples])),
        labels=torch.tensor([s["label"] for s in samples]),
        counted=torch.tensor([DELTA[s["kind"]] for s in samples]),
    )  # fmt: skip


def model_of(seed=0, **changes):
    torch.manual_seed(seed)
    return stir(classifier(replace(TINY, **changes), WORDS, TABLE), seed)


def logits_of(model, batch):
    with torch.no_grad():
        return {name: value.numpy() for name, value in model(batch).items()}


# --- Heads and gate ------------------------------------------------------------------------------


def test_head_by_hand():
    """Width 2: ReLU((1, -1)) = (1, 0) twice, then (1 + 0.5, 3): not entailed first."""
    head = Head(2)
    with torch.no_grad():
        for i in (0, 2):
            head.layers[i].weight.copy_(torch.eye(2))
            head.layers[i].bias.zero_()
        head.layers[4].weight.copy_(torch.tensor([[1.0, 7], [3, 7]]))
        head.layers[4].bias.copy_(torch.tensor([0.5, 0]))
    assert head(torch.tensor([[1.0, -1]])).tolist() == [[1.5, 3.0]]


def test_a_gate_weighs_each_value():
    """σ: the gates are computed apart and do not add up to 1."""
    gate = Gate(2)
    with torch.no_grad():
        for part, bias in ((gate.te, [0.0, math.log(3)]), (gate.ve, [math.log(4), -math.log(4)])):
            part.weight.zero_()
            part.bias.copy_(torch.tensor(bias))
    mixed, te, ve = gate(torch.tensor([[4.0, 2]]), torch.tensor([[10.0, -5]]))
    assert te.tolist() == [near([0.5, 0.75])]
    assert ve.tolist() == [near([0.8, 0.2])]
    assert mixed.tolist() == [near([2 + 8, 1.5 - 1])]


# --- The classifier ------------------------------------------------------------------------------

FORMS = [
    {"model": model, "text": text, "output": output}
    for model, text in [("both", "own"), ("both", "shared"), ("te", "own"), ("ve", "own")]
    for output in ("softmax", "sigmoid")
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(form.values()))
def test_classifier_is_the_reading_of_its_weights(form):
    """One sample after another, without padding: so neither padding nor neighbours matter."""
    model, samples = model_of(**form), some(1)
    with torch.no_grad():
        out = model(batch_of(samples, extra=1))
    branches = {"both": {"te", "ve", "mm"}, "te": {"te"}, "ve": {"ve"}}[form["model"]]
    assert set(out) == branches
    for i, one in enumerate(samples):
        logits = classify(model, one)
        for name in branches:
            close(out[name][i], logits[name])


def test_the_attention_that_masks_is_the_mean_of_heads_of_the_last_layer():
    model, images = model_of(), torch.randn(3, REGIONS, INNER)
    _, attention = model.image(images)
    inputs = torch.cat([model.image.first.expand(3, 1, -1), model.image.project(images)], dim=1)
    last = model.image.layers(inputs_embeds=inputs, output_attentions=True).attentions[-1]
    for i in range(3):
        for region in range(REGIONS):  # [CLS] attends to itself first
            wanted = sum(last[i, head, 0, 1 + region] for head in range(2)) / 2
            assert attention[i, region].item() == near(wanted.item())


@pytest.mark.parametrize("output", ["softmax", "sigmoid"])
def test_single_stream_is_the_reading_of_its_weights(output):
    model, rng = model_of(model="single", output=output), np.random.default_rng(3)
    samples = [sample(rng, "mme", TINY.max_premise, TINY.max_hypothesis) for _ in range(4)]
    batch = batch_of(samples)
    assert batch.pair.shape[1] == LONGEST
    out = model(batch)
    assert set(out) == {"mm"}
    for i, one in enumerate(samples):
        close(out["mm"][i].detach(), classify(model, one)["mm"])


@pytest.mark.parametrize(
    "form", [{}, {"text": "shared"}, {"model": "te"}, {"model": "ve"}], ids=str
)
@pytest.mark.parametrize(
    "kinds",
    [("te", "ve", "mme", "te", "ve"), ("te", "te"), ("ve", "ve"), ("mme", "te"), ("mme", "ve")],
)
def test_branches_skipped_in_training_change_no_loss_and_no_gradient(form, kinds):
    model, batch = model_of(**form), batch_of(some(3, kinds))
    found = []
    for training in (True, False):  # in evaluation every branch reads every sample
        model.train(training).zero_grad()
        loss = joint_loss(model(batch), batch.labels, batch.counted)
        loss.backward()
        grads = {n: p.grad for n, p in model.named_parameters()}
        found.append((loss.item(), grads))
    assert found[0][0] == near(found[1][0])
    for name, grad in found[1][1].items():
        if grad is not None and grad.any():
            close(found[0][1][name], grad)
        elif found[0][1][name] is not None:
            assert not found[0][1][name].any()


def test_a_mimetic_start_compares_words_and_takes_their_likes_away():
    torch.manual_seed(0)
    bert = encoders.small_bert(TINY, 2, WORDS, LONGEST)
    encoders.mimetic(bert, gain=1.5, marks=0.5)
    for one in bert.encoder.layer:
        query, key, value = (
            getattr(one.attention.self, n).weight for n in ("query", "key", "value")
        )
        eye = torch.eye(8)
        close((query @ key.T).detach(), 1.5**2 * eye)
        close((one.attention.output.dense.weight @ value).detach(), -eye)
    marks = bert.embeddings.token_type_embeddings.weight
    assert 0.25 < marks.std().item() < 0.9


# --- Token states of a frozen encoder ------------------------------------------------------------

TOKENS, STATE = 30, 6


def frozen(**changes):
    """A classifier over 30 token states, far from standardised, and its samples."""
    rng = np.random.default_rng(4)
    states = 2 + 3 * rng.normal(size=(TOKENS, STATE)).astype(np.float16)
    torch.manual_seed(0)
    settings_ = replace(TINY, **changes)
    model = stir(classifier(settings_, WORDS, TABLE, torch.from_numpy(states)))
    samples = some(1)
    for one in samples:  # TE counts tokens, VE words
        one["tokens"] = rng.integers(4, 4 + TOKENS, 5 - len(one["hypothesis"])).tolist()
        one["premise"] = [4 + TOKENS - 1, *one["premise"][1:]] if one["premise"] else []
    return model, samples, states


def token_batch(samples):
    """`batch_of`, with tokens in the pair in place of the hypothesis' words."""
    batch = batch_of(samples)
    pairs = [packed({**one, "hypothesis": one["tokens"]}) for one in samples]
    ids, kinds = ([row[k] for row in pairs] for k in (0, 1))
    pair, mask = padded(ids, 0, 3)
    return replace(batch, pair=pair, pair_mask=mask, pair_type=padded(kinds, 0, 0)[0] % 2)


@pytest.mark.parametrize("model", ["both", "te"])
def test_frozen_states_take_the_place_of_word_embeddings(model):
    """Token by token: special ones are learnt, others are standardised states, projected."""
    own, samples, states = frozen(model=model)
    exact = states.astype(np.float64)
    scaled = torch.tensor((exact - exact.mean(axis=0)) / (exact.std(axis=0, ddof=1) + 1e-3))
    found = logits_of(own, token_batch(samples))
    for i, one in enumerate(samples):
        ids, kinds = packed({**one, "hypothesis": one["tokens"]})
        inputs = [own.states.special.weight[t] if t < 4 else own.states.project(scaled[t - 4])
                  for t in ids]  # fmt: skip
        state = first_state(own.text, inputs_embeds=torch.stack(inputs)[None],
                            token_type_ids=torch.tensor([kinds]))  # fmt: skip
        wanted = own.heads["te"](state)[0].detach().numpy()
        np.testing.assert_allclose(found["te"][i], wanted, rtol=1e-4, atol=1e-4)
        if model == "both":
            close(found["ve"][i], classify(own, {**one, "premise": []})["ve"])


def test_evidence_is_the_log_odds_of_entailed():
    logits = torch.tensor([[0.0, 3.0], [5.0, 5.0], [2.0, 0]], requires_grad=True)
    got = log_odds({"te": logits, "mm": logits.flip(1)})
    assert got["te"].tolist() == [3, 0, -2]
    assert got["mm"].tolist() == [-3, 0, 2]
    assert isinstance(got["te"], np.ndarray)


# --- The joint loss ------------------------------------------------------------------------------


def loss_loop(logits, labels, counted):
    total = 0.0
    for name, values in logits.items():
        column = ("te", "ve", "mm").index(name)
        parts = [
            -math.log(softmax(row)[label])
            for row, label, delta in zip(
                values.tolist(), labels.tolist(), counted.tolist(), strict=True
            )
            if delta[column]
        ]
        total += sum(parts) / len(parts) if parts else 0.0
    return total


@many
@given(seeds, st.lists(st.sampled_from(KINDS), min_size=1, max_size=6))
def test_joint_loss_is_the_loop_with_indicators(seed, kinds):
    rng = np.random.default_rng(seed)
    logits = {name: torch.tensor(rng.normal(size=(len(kinds), 2))) for name in ("te", "ve", "mm")}
    labels = torch.tensor(rng.integers(0, 2, len(kinds)))
    counted = torch.tensor([DELTA[kind] for kind in kinds])
    assert joint_loss(logits, labels, counted).item() == near(loss_loop(logits, labels, counted))


# --- Image masking (Sec. 3.3) --------------------------------------------------------------------


def masked_loop(images, attention, count):
    out = images.copy()
    for image, row in zip(out, attention, strict=True):
        for region in sorted(range(len(row)), key=lambda r: -row[r])[:count]:
            image[region] = 0
    return out


@pytest.mark.parametrize(
    ("ratio", "regions", "count"),
    [(0.4, 5, 2), (0.29, 100, 29), (0.57, 100, 57), (0.1, 30, 3), (0.7, 10, 7), (0.4, 576, 230),
     (0.4, 256, 102), (0.4, 36, 14), (0.4, 2, 0), (0.0, 5, 0), (1.0, 5, 5)],
)  # fmt: skip
def test_how_many_regions_are_masked(ratio, regions, count):
    """⌊ρR⌋ of the decimal ratio: 0.29 · 100 is 28.999999999999996 in floating point."""
    assert math.floor(Fraction(str(ratio)) * regions) == count
    images = torch.ones(2, regions, 3)
    attention = torch.rand(2, regions, generator=torch.Generator().manual_seed(0))
    got = mask_regions(images, attention, ratio)
    assert (got == 0).all(2).sum(1).tolist() == [count] * 2
    assert (got == 1).all(2).sum(1).tolist() == [regions - count] * 2
    assert images.all()


def labelled(kinds, labels, seed=0):
    samples = some(seed, kinds)
    for one, label in zip(samples, labels, strict=True):
        one["label"] = label
    return batch_of(samples)


@many
@given(
    st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 1)), min_size=1, max_size=8),
    st.integers(0, 5), seeds,
)  # fmt: skip
def test_masked_copies_are_the_loop(rows, most, seed):
    """After the batch as it was: its first positives with an image, masked, as negatives."""
    batch = labelled(*zip(*rows, strict=True), seed)
    before = {name: value.clone() for name, value in vars(batch).items()}
    attention = torch.tensor(np.random.default_rng(seed).random((len(rows), REGIONS)))
    got = with_masked(batch, attention, 0.5, most)
    chosen = [i for i, (kind, label) in enumerate(rows) if label and kind != "te"][:most]
    for name, value in before.items():
        assert torch.equal(getattr(batch, name), value)  # the batch itself is left alone
        assert torch.equal(getattr(got, name)[: len(rows)], value)
        assert len(getattr(got, name)) == len(rows) + len(chosen)
    for j, i in enumerate(chosen, start=len(rows)):
        for name in ("pair", "pair_mask", "pair_type", "words", "words_mask"):
            assert torch.equal(getattr(got, name)[j], getattr(batch, name)[i])
        image = masked_loop(batch.images[[i]].numpy(), attention[[i]].numpy(), REGIONS // 2)
        np.testing.assert_array_equal(got.images[j], image[0])
        assert got.labels[j] == 0
        assert got.counted[j].tolist() == [0, 1, int(rows[i][0] == "mme")]


def test_masking_is_by_default_as_in_the_paper():
    ours, printed = Settings(), paper_values("entailment", "intext").value
    assert ours.masking == printed["Image masking ratio"]
    assert ours.masked == printed["Images masked per batch, at most"]
