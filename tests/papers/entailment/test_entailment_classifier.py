"""The entailment classifier against a plain reading of its weights, loops, and by hand.

Sections and equations are those of "Revising Image-Text Retrieval via Multi-Modal Entailment".
"""

import math
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import torch
from drawn import many, near, seeds
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

from mmlib.features import encoders
from mmlib.papers.entailment.method import classifier

pytestmark = pytest.mark.usefixtures("double")

close = partial(np.testing.assert_allclose, rtol=1e-8, atol=1e-9)

WORDS, INNER, REGIONS, TOKENS, STATE = 12, 5, 4, 30, 6
TABLE = np.zeros((0, REGIONS, INNER))
TINY = classifier.Settings(
    width=8, heads=2, text_layers=2, image_layers=3, words_layers=1, cross_layers=2, dropout=0.0,
    max_premise=5, max_hypothesis=4,
)  # fmt: skip
KINDS = ("te", "ve", "mme")
DELTA = {"te": (1, 0, 0), "ve": (0, 1, 0), "mme": (1, 1, 1)}


def model_of(seed=0, states=None, **changes):
    """Random values everywhere, in positions, biases and norms too, so that nothing hides."""
    torch.manual_seed(seed)
    module = classifier.classifier(replace(TINY, **changes), WORDS, TABLE, states)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in module.parameters():
            value.add_(0.4 * torch.randn(value.shape, generator=generator, dtype=value.dtype))
    return module.eval()


# --- One sample at a time, without padding and masks ----------------------------------------------


def packed(sample):
    """[CLS] premise [SEP] hypothesis [SEP], and 1 from the hypothesis on."""
    first = [1, *sample["premise"], 2]
    second = [*sample.get("tokens", sample["hypothesis"]), 2]
    return first + second, [0] * len(first) + [1] * len(second)


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
        read = {"input_ids": pair}
        if (frozen := getattr(model, "states", None)) is not None:  # special ones are learnt
            exact = frozen.table.double()
            scaled = (exact - exact.mean(dim=0)) / (exact.std(dim=0) + 1e-3)
            tokens = [frozen.special.weight[t] if t < 4 else frozen.project(scaled[t - 4])
                      for t in pair[0]]  # fmt: skip
            read = {"inputs_embeds": torch.stack(tokens)[None]}
        states["te"] = first_state(bert, **read, token_type_ids=kinds)
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


def some(seed=0, kinds=("mme", "te", "ve", "mme", "te", "ve"), longest=False):
    """Samples of these kinds with random texts, images and labels."""
    rng, samples = np.random.default_rng(seed), []
    for kind in kinds:
        premise, hypothesis = (
            most if longest else int(rng.integers(1, most + 1))
            for most in (TINY.max_premise, TINY.max_hypothesis)
        )
        samples.append({
            "kind": kind, "label": int(rng.integers(2)),
            "premise": [] if kind == "ve" else rng.integers(4, WORDS, premise).tolist(),
            "hypothesis": rng.integers(4, WORDS, hypothesis).tolist(),
            "image": (kind != "te") * rng.normal(size=(REGIONS, INNER)),
        })  # fmt: skip
    return samples


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
    return classifier.Batch(
        pair=pair, pair_mask=pair_mask, pair_type=padded(kinds, extra, garbage)[0] % 2,
        words=words, words_mask=words_mask,
        images=torch.tensor(np.array([s["image"] for s in samples])),
        labels=torch.tensor([s["label"] for s in samples]),
        counted=torch.tensor([DELTA[s["kind"]] for s in samples]),
    )  # fmt: skip


FORMS = [{}, {"text": "shared"}, {"model": "te"}, {"model": "ve"}]


@pytest.mark.parametrize("output", ["softmax", "sigmoid"])
@pytest.mark.parametrize("form", [*FORMS, {"model": "single"}], ids=str)
def test_classifier_is_the_reading_of_its_weights(form, output):
    """One sample after another, without padding: so neither padding nor neighbours matter."""
    model, single = model_of(**form, output=output), form == {"model": "single"}
    # A single stream's regions have the last positions, so that only the longest texts are plain.
    samples = some(3, ["mme"] * 4, longest=True) if single else some(1)
    with torch.no_grad():
        out = model(batch_of(samples, extra=0 if single else 1))
    branches = {"te": {"te"}, "ve": {"ve"}, "single": {"mm"}}
    assert set(out) == branches.get(model.settings.model, {"te", "ve", "mm"})
    for i, one in enumerate(samples):
        for name, logits in classify(model, one).items():
            close(out[name][i], logits)


@pytest.mark.parametrize("model", ["both", "te"])
def test_frozen_states_take_the_place_of_word_embeddings(model):
    """30 token states, far from standardised; TE counts tokens, VE words."""
    rng = np.random.default_rng(4)
    states = torch.from_numpy(2 + 3 * rng.normal(size=(TOKENS, STATE)).astype(np.float16))
    own, samples = model_of(states=states, model=model), some(1)
    for one in samples:
        one["tokens"] = rng.integers(4, 4 + TOKENS, 5 - len(one["hypothesis"])).tolist()
        one["premise"] = [4 + TOKENS - 1, *one["premise"][1:]] if one["premise"] else []
    with torch.no_grad():
        out = own(batch_of(samples, garbage=3))
    for i, one in enumerate(samples):
        wanted = classify(own, one)
        np.testing.assert_allclose(out["te"][i], wanted["te"], rtol=1e-4, atol=1e-4)
        if model == "both":
            close(out["ve"][i], wanted["ve"])


def test_the_attention_that_masks_is_the_mean_of_heads_of_the_last_layer():
    model, images = model_of(), torch.randn(3, REGIONS, INNER)
    _, attention = model.image(images)
    inputs = torch.cat([model.image.first.expand(3, 1, -1), model.image.project(images)], dim=1)
    last = model.image.layers(inputs_embeds=inputs, output_attentions=True).attentions[-1]
    # [CLS] attends to itself first.
    close(attention.detach(), (last[:, 0, 0, 1:] + last[:, 1, 0, 1:]).detach() / 2)


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize(
    "kinds",
    [("te", "ve", "mme", "te", "ve"), ("te", "te"), ("ve", "ve"), ("mme", "te"), ("mme", "ve")],
)
def test_branches_skipped_in_training_change_no_loss_and_no_gradient(form, kinds):
    model, batch, losses, grads = model_of(**form), batch_of(some(3, kinds)), [], []
    for training in (True, False):  # in evaluation every branch reads every sample
        model.train(training).zero_grad()
        loss = classifier.joint_loss(model(batch), batch.labels, batch.counted)
        loss.backward()
        losses.append(loss.item())
        named = model.named_parameters()
        grads.append({n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in named})
    assert losses[0] == near(losses[1])
    for name, grad in grads[1].items():
        close(grads[0][name], grad)


def test_a_mimetic_start_compares_words_and_takes_their_likes_away():
    torch.manual_seed(0)
    bert = encoders.small_bert(TINY, 2, WORDS, 12)
    encoders.mimetic(bert, gain=1.5, marks=0.5)
    for one in bert.encoder.layer:
        own = one.attention.self
        query, key, value = own.query.weight, own.key.weight, own.value.weight
        close((query @ key.T).detach(), 1.5**2 * torch.eye(8))
        close((one.attention.output.dense.weight @ value).detach(), -torch.eye(8))
    assert 0.25 < bert.embeddings.token_type_embeddings.weight.std().item() < 0.9


def test_heads_and_log_odds_by_hand():
    """Width 2: ReLU((1, -1)) = (1, 0) twice, then (1 + 0.5, 3): not entailed first."""
    head = classifier.Head(2)
    with torch.no_grad():
        for i in (0, 2):
            head.layers[i].weight.copy_(torch.eye(2))
            head.layers[i].bias.zero_()
        head.layers[4].weight.copy_(torch.tensor([[1.0, 7], [3, 7]]))
        head.layers[4].bias.copy_(torch.tensor([0.5, 0]))
    assert head(torch.tensor([[1.0, -1]])).tolist() == [[1.5, 3.0]]
    logits = torch.tensor([[0.0, 3.0], [5.0, 5.0], [2.0, 0]], requires_grad=True)
    odds = classifier.log_odds({"te": logits, "mm": logits.flip(1)})
    assert (odds["te"].tolist(), odds["mm"].tolist()) == ([3, 0, -2], [-3, 0, 2])


@many
@given(seeds, st.lists(st.sampled_from(KINDS), min_size=1, max_size=6))
def test_joint_loss_is_the_loop_with_indicators(seed, kinds):
    rng = np.random.default_rng(seed)
    logits, labels = rng.normal(size=(3, len(kinds), 2)), rng.integers(0, 2, len(kinds))
    total = 0.0
    for column, values in enumerate(logits):
        losses = [-math.log(softmax(row)[label])
                  for row, label, kind in zip(values, labels, kinds, strict=True)
                  if DELTA[kind][column]]  # fmt: skip
        total += sum(losses) / len(losses) if losses else 0.0
    by_branch = dict(zip(("te", "ve", "mm"), torch.tensor(logits), strict=True))
    counted = torch.tensor([DELTA[kind] for kind in kinds])
    assert classifier.joint_loss(by_branch, torch.tensor(labels), counted).item() == near(total)


# --- Image masking (Sec. 3.3) --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "regions", "count"),
    [(0.4, 5, 2), (0.29, 100, 29), (0.57, 100, 57), (0.1, 30, 3), (0.7, 10, 7), (0.4, 576, 230),
     (0.4, 36, 14), (0.4, 2, 0), (0.0, 5, 0), (1.0, 5, 5)],
)  # fmt: skip
def test_how_many_regions_are_masked(ratio, regions, count):
    """⌊ρR⌋ of the decimal ratio: 0.29 · 100 is 28.999999999999996 in floating point."""
    assert math.floor(Fraction(str(ratio)) * regions) == count
    images = torch.ones(2, regions, 3)
    attention = torch.rand(2, regions, generator=torch.Generator().manual_seed(0))
    masked = classifier.mask_regions(images, attention, ratio)
    assert (masked == 0).all(2).sum(1).tolist() == [count] * 2
    assert (masked == 1).all(2).sum(1).tolist() == [regions - count] * 2
    assert images.all()


@many
@given(
    st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 1)), min_size=1, max_size=8),
    st.integers(0, 5), seeds,
)  # fmt: skip
def test_masked_copies_are_the_loop(rows, most, seed):
    """After the batch as it was: its first positives with an image, masked, as negatives."""
    kinds, labels = zip(*rows, strict=True)
    batch = replace(batch_of(some(seed, kinds)), labels=torch.tensor(labels))
    before = {name: value.clone() for name, value in vars(batch).items()}
    attention = torch.tensor(np.random.default_rng(seed).random((len(rows), REGIONS)))
    result = classifier.with_masked(batch, attention, 0.5, most)
    chosen = [i for i, (kind, label) in enumerate(rows) if label and kind != "te"][:most]
    for name, value in before.items():
        assert torch.equal(getattr(batch, name), value)  # the batch itself is left alone
        assert torch.equal(getattr(result, name)[: len(rows)], value)
        assert len(getattr(result, name)) == len(rows) + len(chosen)
    for j, i in enumerate(chosen, start=len(rows)):
        for name in ("pair", "pair_mask", "pair_type", "words", "words_mask"):
            assert torch.equal(getattr(result, name)[j], getattr(batch, name)[i])
        image = batch.images[i].clone()
        for region in sorted(range(REGIONS), key=lambda r: -attention[i, r])[: REGIONS // 2]:
            image[region] = 0
        assert torch.equal(result.images[j], image)
        assert result.labels[j] == 0
        assert result.counted[j].tolist() == [0, 1, int(kinds[i] == "mme")]
