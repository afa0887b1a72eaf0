"""BERT against attention written out, and what may learn, load and fail."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from mmlib.core.errors import DataError
from mmlib.features.bert import BertEncoder

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] a dog cat red big runs jump over ##s ##ing umbrella".split()
TEXTS = ["a dog", "red umbrella", "cat", "a big red dog jumps over a cat", "", "dog runs"]


def tiny_model(seed=0, **config) -> "transformers.BertModel":
    """Random, with weights far from zero, so that every part of attention shows in the output."""
    torch.manual_seed(seed)
    settings_ = dict(
        vocab_size=len(WORDS), hidden_size=32, num_hidden_layers=3, num_attention_heads=4,
        intermediate_size=48, max_position_embeddings=20, initializer_range=0.3,
    )  # fmt: skip
    return transformers.BertModel(transformers.BertConfig(**settings_ | config)).eval()


def write_bert(folder, seed=0, lower=True, words=WORDS, **config):
    """A BERT as it lies on a disk: config, safetensors, tokenizer."""
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    tokenizer = transformers.BertTokenizerFast.from_pretrained(folder, do_lower_case=lower)
    tokenizer.save_pretrained(folder)
    tiny_model(seed, **{"vocab_size": len(words), **config}).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_bert(tmp_path_factory.mktemp("bert"))


def encoder(tuning="ptuning", prefix=5, seed=0, **config) -> BertEncoder:
    bert = BertEncoder(tiny_model(seed, **config), tuning, prefix)
    if bert.prefix is not None:  # larger than at the start, so that a lost prefix shows
        torch.nn.init.normal_(bert.prefix, std=0.7)
    return bert.eval()


def batch_of(rows):
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(r) for r in rows], batch_first=True)
    lengths = torch.tensor([len(r) for r in rows])
    return ids, (torch.arange(ids.shape[1]) < lengths[:, None]).long()


# The oracle --------------------------------------------------------------------------------------


def by_hand(model, ids, prefix) -> torch.Tensor:
    """States (L, width) of one unpadded text by the layers, whose attention is written out."""
    x = model.embeddings(ids[None], position_ids=torch.arange(len(ids))[None])[0]  # no shift
    for number, layer in enumerate(model.encoder.layer):
        attention = layer.attention.self
        query, key, value = (  # (heads, L, width of a head)
            linear(x).unflatten(1, (4, -1)).transpose(0, 1)
            for linear in (attention.query, attention.key, attention.value)
        )
        if prefix is not None:
            key, value = (torch.cat([prefix[number, i], x], 1) for i, x in enumerate((key, value)))
        shares = (query @ key.transpose(1, 2) / query.shape[2] ** 0.5).softmax(dim=2)
        context = (shares @ value).transpose(0, 1).flatten(1)
        x = layer.attention.output(context, x)
        x = layer.output(layer.intermediate(x), x)
    return x


ROWS = [[2, 5, 6, 3], [2, 8, 3], [2, 5, 9, 8, 6, 11, 13, 12, 3]]


@pytest.mark.parametrize("prefix", [0, 1, 5])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_states_are_those_of_attention_to_the_prefix_and_the_text(prefix, attention):
    """Whatever stands in the padding, of which there is more than the longest text needs."""
    bert = encoder("ptuning", prefix, attn_implementation=attention)
    ids, mask = (torch.nn.functional.pad(one, (0, 2)) for one in batch_of(ROWS))
    with torch.no_grad():
        states = bert(torch.where(mask.bool(), ids, 7), mask)
        for row, pieces in enumerate(ROWS):
            wanted = by_hand(bert.bert, torch.tensor(pieces), bert.prefix)
            torch.testing.assert_close(states[row, : len(pieces)], wanted, atol=2e-5, rtol=1e-4)


def test_pool_is_the_mean_over_tokens_with_cls_and_sep():
    states = torch.tensor(
        [[[1.0, 2], [3, 4], [5, 9], [100, 100]], [[1, 1], [2, 2], [3, 3], [4, 4]]]
    )
    mask = torch.tensor([[1, 1, 1, 0], [0, 0, 0, 0]])
    assert BertEncoder.pool(states, mask).tolist() == [[3.0, 5.0], [0.0, 0.0]]


# What learns -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefix", "extra"), [(0, 0), (8, 147_456), (16, 294_912), (24, 442_368), (32, 589_824)]
)
def test_counts_of_the_paper_for_bert_base(prefix, extra):
    with torch.device("meta"):
        bert = BertEncoder(transformers.BertModel(transformers.BertConfig()), "ptuning", prefix)
    count = sum(p.numel() for p in bert.parameters() if p.requires_grad)
    assert count == 7_087_872 + extra
    assert prefix != 24 or count == 7_530_240


def learn(bert: BertEncoder) -> set[str]:
    """Names of the parameters that a step of training really moves."""
    optimiser = torch.optim.SGD(bert.parameter_groups(1.0))
    ids, mask = batch_of(ROWS)
    before = {name: p.detach().clone() for name, p in bert.named_parameters()}
    weight = torch.randn(32, generator=torch.Generator().manual_seed(0))
    (bert.pool(bert(ids, mask), mask) @ weight).sum().backward()
    optimiser.step()
    return {name for name, p in bert.named_parameters() if not torch.equal(p, before[name])}


@pytest.mark.parametrize(
    ("tuning", "rates"), [("ptuning", [5e-5, 5e-4]), ("last", [5e-5]), ("full", [5e-5])]
)
def test_what_learns_and_at_which_rate(tuning, rates):
    bert = encoder(tuning)
    groups = bert.parameter_groups(5e-4)
    assert [group["lr"] for group in groups] == pytest.approx(rates)
    held = [id(p) for group in groups for p in group["params"]]
    assert sorted(held) == sorted(id(p) for p in bert.parameters() if p.requires_grad)
    names = {name for name, _ in bert.named_parameters()}
    last = {name for name in names if ".layer.2." in name}
    wanted = {"ptuning": {"prefix", *last}, "last": last, "full": names}[tuning]
    assert learn(bert) <= wanted
    # The attention of plain BERT does not change with the bias of its keys: their gradient is 0.
    assert {name for name in wanted if not name.endswith("key.bias")} <= learn(bert)
    assert {n for n, p in bert.named_parameters() if p.grad is not None} == wanted
    if tuning == "ptuning":
        assert groups[1]["params"][0] is bert.prefix
        assert (bert.prefix.grad.flatten(2).abs().sum(dim=2) > 0).all()  # every layer, K and V


def test_dropout_is_on_in_training_where_something_learns():
    bert, (ids, mask) = encoder("ptuning").train(), batch_of(ROWS)
    assert not torch.equal(bert(ids, mask), bert(ids, mask))
    bert = torch.nn.Sequential(encoder("frozen"), torch.nn.Dropout()).train()[0]
    assert bert.training
    states = bert(ids, mask)
    assert torch.equal(states, bert(ids, mask))
    assert not states.requires_grad
    assert bert.parameter_groups(1.0) == []


def test_the_prefix_is_seeded_and_starts_small():
    first, same, other = (BertEncoder(tiny_model(seed), "ptuning", 24).prefix for seed in (0, 0, 1))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert first.std().item() == pytest.approx(0.3, rel=0.05)  # initializer_range


# Many texts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("tuning", ["frozen", "ptuning"])
def test_states_of_many_texts_are_those_of_each_alone(folder, tuning, capsys):
    encoder = BertEncoder.from_pretrained(folder, tuning, prefix=3)
    states, lengths = encoder.token_states_all(TEXTS, batch=2)
    assert (states.dtype, states.shape) == (np.float16, (16, 32))
    assert lengths.tolist() == [2, 2, 1, 9, 0, 2]
    assert encoder.training  # as before, though dropout was off on the way
    encoder.eval()
    rows = np.split(states, lengths.cumsum()[:-1])
    for text, row in zip(TEXTS, rows, strict=True):
        ids = torch.tensor([encoder.tokenizer(text)["input_ids"]])
        with torch.no_grad():
            alone = encoder(ids, torch.ones_like(ids))[0].numpy()
        np.testing.assert_allclose(row, alone[1:-1], atol=2e-3)
    turned, _ = encoder.token_states_all(TEXTS[::-1], batch=5)
    np.testing.assert_allclose(turned, np.concatenate(rows[::-1]), atol=2e-3)
    assert capsys.readouterr() == ("", "")


def test_many_texts_show_progress_and_are_cut(folder, capsys):
    encoder = BertEncoder.from_pretrained(folder, "frozen")
    cut, lengths = encoder.token_states_all(["a dog runs", "cat"], max_tokens=4, progress="phrases")
    assert "phrases: 100%" in capsys.readouterr().err
    assert lengths.tolist() == [2, 1]
    np.testing.assert_allclose(cut[:2], encoder.token_states_all(["a dog"])[0], atol=2e-3)
    assert encoder.token_states_all([])[0].shape == (0, 32)
    _, lengths = encoder.token_states_all(["dog " * 50, "dog"])
    assert lengths.tolist() == [18, 1]  # BERT's positions: cut, not refused


# Reading -----------------------------------------------------------------------------------------


def test_a_folder_gives_the_model_that_was_saved(folder, capsys, caplog):
    bert = BertEncoder.from_pretrained(str(folder), "full")
    for name, value in tiny_model().state_dict().items():
        if not name.startswith("pooler."):
            assert torch.equal(bert.bert.state_dict()[name], value)
    assert capsys.readouterr() == ("", "")
    assert not caplog.records
    assert bert.width == 32


def test_lower_case_is_what_tokenizer_json_says(folder, tmp_path):
    cased = write_bert(tmp_path, lower=False)
    (tmp_path / "tokenizer_config.json").unlink()
    for path, pieces in ((folder, [2, 8, 6, 13, 3]), (cased, [2, 1, 6, 13, 3])):
        bert = BertEncoder.from_pretrained(path, "frozen")
        assert bert.tokenizer("Red dogs")["input_ids"] == pieces


def roberta(path):
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_type": "roberta"}))


def cut_in_half(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def without_a_bias(path):
    weights = load_file(path)
    del weights["encoder.layer.1.output.dense.bias"]
    save_file(weights, path, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("config.json", cut_in_half, r"cannot be read as a BERT: .+get it again"),
        ("model.safetensors", cut_in_half, r"cannot be read as a BERT: .+get it again"),
        ("tokenizer.json", cut_in_half, r"cannot be read as a BERT: .+get it again"),
        ("model.safetensors", without_a_bias, "no weights for encoder.layer.1.output.dense.bias"),
        ("config.json", roberta, "of type 'roberta', not a BERT"),
        ("model.safetensors", lambda path: path.rename(path.with_name("pytorch_model.bin")),
         r"lacks model.safetensors \(pytorch_model.bin is a pickle"),
        ("config.json", lambda path: path.unlink(), r"lacks config.json \(put all files"),
        ("config.json", lambda path: tiny_model(vocab_size=10).save_pretrained(path.parent),
         "the tokenizer has 16 words, the model 10"),
        ("config.json", lambda path: shutil.rmtree(path.parent), "no such folder"),
    ],
)  # fmt: skip
def test_a_folder_that_is_no_bert_is_named(folder, tmp_path, name, damage, message):
    damage(Path(shutil.copytree(folder, tmp_path / "bert")) / name)
    with pytest.raises(DataError, match=message):
        BertEncoder.from_pretrained(tmp_path / "bert")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: BertEncoder(tiny_model(), "lora"), r"tuning 'lora', .*use .*ptuning"),
        (lambda: BertEncoder(tiny_model(), "ptuning", -1), "prefix -1"),
        (lambda: encoder()(torch.full((1, 21), 5), torch.ones(1, 21)), "21 tokens, but .* 20 pos"),
        (lambda: encoder("frozen").token_states_all(["dog"]), "has no tokenizer"),
    ],
)
def test_what_is_no_use_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
