"""Systems that read by a BERT, on a tiny random one."""

from dataclasses import replace

import numpy as np
import pytest
import tiny_cora as toys
import torch
import transformers
from scipy.stats import zscore

from mmlib.features.bert import BertEncoder
from mmlib.papers.cora.data.texts import PieceReader
from mmlib.papers.cora.run import systems
from mmlib.papers.cora.run.record import stages
from mmlib.papers.cora.run.systems import System, trained_systems
from mmlib.papers.cora.run.train import train
from mmlib.papers.cora.variants import PhraseBERT, TokenBERT, build

NAMED = {one.system: one for one in trained_systems("flickr8k_bert")}
READ = [name for name, one in NAMED.items() if one.bert]
HOW = replace(toys.HOW, epochs=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return toys.write_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def reader(folder):
    return PieceReader(tokenizer=BertEncoder.from_pretrained(folder, "frozen").tokenizer)


@pytest.fixture(scope="module")
def arrays(folder, reader):
    """Toy pictures whose texts are also there in word pieces."""
    found = toys.tiny(train=48, test=12)
    splits = {}
    for name, split in found.splits.items():
        graphs, words = split.texts["graph"], split.texts["sequence"]
        ids = dict(zip(("tokens", "lengths"), reader.ids(graphs.phrases), strict=True))
        spelt = [" ".join(toys.WORDS[i] for i in row[1 : n - 1])
                 for row, n in zip(words.tokens, words.lengths, strict=True)]  # fmt: skip
        pieces = {"graph, pieces": replace(graphs, **ids),
                  "sequence, pieces": reader.sequences(spelt)}  # fmt: skip
        splits[name] = replace(split, texts={**split.texts, **pieces})
    return replace(found, splits=splits, bert=(str(folder), "a hash"))


def job(name, **how):
    return replace(toys.job("CORA", replace(HOW, **how)), system=vars(NAMED[name]))


def test_pieces_are_those_of_each_text_alone_and_a_phrase_their_mean_state(folder, reader):
    texts = ["red cup", "old stone house", "a dog of no name", "jumping quickly"]
    ids, lengths = reader.ids(texts)
    for text, row, n in zip(texts, ids, lengths, strict=True):
        assert row[:n].tolist() == reader.tokenizer(text)["input_ids"]
        assert not row[n:].any()
    assert reader.graphs([toys.scene([("dog", "red")])]).mask_id == toys.MASK
    reads = PhraseBERT(BertEncoder.from_pretrained(folder, "frozen")).eval()
    own = transformers.BertModel.from_pretrained(folder).eval()
    for text, found in zip(texts, reads(*map(torch.as_tensor, (ids, lengths))), strict=True):
        alone = own(**reader.tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0)
        assert torch.allclose(found, alone, atol=1e-5)


@pytest.mark.parametrize("count", [1, 17])
def test_texts_of_like_lengths_together_have_the_states_of_all_at_once(folder, reader, count):
    texts = ["a dog of no name", "red", "old stone house", "dog jumping quickly", "cup"]
    texts = [" ".join(texts[: 1 + i % 5][::-1]) for i in range(count)]
    ids, lengths = map(torch.as_tensor, reader.ids(texts))
    reads = PhraseBERT(BertEncoder.from_pretrained(folder, "frozen"))
    valid = torch.arange(ids.shape[1]) < lengths[:, None]
    found, whole = reads.states(ids, lengths), reads.bert(ids, valid.long())
    assert torch.allclose(found[valid], whole[valid], atol=1e-5)


@pytest.mark.parametrize("kind", [PhraseBERT, TokenBERT])
def test_states_are_standardised_by_the_first_batch_of_a_training(folder, reader, kind):
    first, second = (
        list(map(torch.as_tensor, reader.ids(texts)))
        for texts in (["red cup", "old stone house", "dog"], ["a dog of no name", "red"])
    )
    reads = kind(BertEncoder.from_pretrained(folder, "frozen")).eval()

    def rows(batch):
        states = reads(*batch).numpy()
        if kind is PhraseBERT:
            return states
        return np.concatenate([own[:n] for own, n in zip(states, batch[1], strict=True)])

    plain, other = rows(first), rows(second)
    reads.train()
    assert rows(first) == pytest.approx(zscore(plain), abs=1e-4)
    expected = pytest.approx((other - plain.mean(axis=0)) / plain.std(axis=0), abs=1e-4)
    assert rows(second) == expected
    reads.eval()
    assert rows(second) == expected
    wide = torch.ones(2, reads.width)
    wide[1, 0] = 3  # all other dimensions never change, and stay small
    reads.train().fitted.fill_(False)
    assert reads.standardised(wide, wide)[:, :2].tolist() == [[-1, 0], [1, 0]]


def test_a_running_mean_of_weights_standardises_as_its_model_does(arrays):
    plain, mean = (
        train(job("CORA, frozen BERT", ema=ema), arrays)[0].texts.concepts.phrases[0]
        for ema in (0.0, 0.9)
    )
    assert plain.fitted
    assert mean.fitted
    assert torch.equal(plain.mean, mean.mean)
    assert torch.equal(plain.deviation, mean.deviation)
    assert not torch.equal(plain.deviation, torch.ones_like(plain.deviation))


@pytest.mark.parametrize("name", READ)
def test_only_what_shall_learn_moves_and_not_before_its_time(arrays, folder, monkeypatch, name):
    """The time is seen in gradients: dropout, or the best epoch, would hide what learns."""
    learnt = []

    class Listening(torch.optim.AdamW):
        def step(self, *rest):
            of_bert = [p for group in self.param_groups[2:] for p in group["params"]]
            learnt.append({p.grad is not None and bool(p.grad.any()) for p in of_bert})
            return super().step(*rest)

    monkeypatch.setattr(torch.optim, "AdamW", Listening)
    kind = NAMED[name].words
    frozen_epochs = 0.0 if kind == "frozen" else 0.5
    model, history = train(job(name, epochs=2, frozen_epochs=frozen_epochs), arrays)
    assert np.isfinite(history[0]["dev_RSUM"])
    half = len(learnt) // 2
    assert all(step <= {False} for step in learnt[:half])
    assert all((True in step) == (kind != "frozen") for step in learnt[half:])
    (own,) = [m for m in model.modules() if isinstance(m, BertEncoder)]
    assert (own.prefix is not None) == (kind == "prompts")
    given = BertEncoder.from_pretrained(folder, "frozen").bert.state_dict()
    moved = {k for k, v in own.bert.state_dict().items() if not torch.equal(v, given[k])}
    last = {k for k in given if k.startswith("encoder.layer.1.")}
    may = {"frozen": set(), "prompts": last, "tuned": set(given) - {"embeddings.position_ids"}}
    assert moved in (set(), may[kind])  # none, where the frozen epoch was the best
    if kind == "tuned":  # its dropout is off, too
        _, frozen = train(job(name.replace("BERT, tuned", "frozen BERT")), arrays)
        assert frozen == history[:1]


def test_without_a_bert_and_in_the_authors_form_there_is_none(arrays, folder):
    words = torch.tensor(arrays.embeddings)
    with pytest.raises(ValueError, match="no BERT"):
        build(System("x", words="frozen"), HOW, toys.INNER, words)
    with pytest.raises(ValueError, match="the code has no BERT"):
        build(System("x", words="frozen", form="authors"), HOW, toys.INNER, words, folder)


def test_their_collections_have_jobs_and_a_fingerprint_of_their_own(arrays):
    jobs = [job for stage in stages("flickr8k", {"flickr8k_bert": arrays}, [0])
            for job in stage.jobs]  # fmt: skip
    assert [one.system["system"] for one in jobs] == ["Captions", *NAMED]
    assert set(systems.systems("flickr8k", "flickr8k_bert")) == {"Captions", *NAMED}
    texts = {name: NAMED[name].text for name in ("Sequence", "CORA", *READ)}
    assert texts == {n: "sequence" if n.startswith("Sequence") else "graph" for n in texts}
    other = replace(arrays, bert=(arrays.bert[0], "another hash"))
    elsewhere = replace(arrays, bert=("elsewhere", arrays.bert[1]))
    assert other.fingerprint != arrays.fingerprint == elsewhere.fingerprint
