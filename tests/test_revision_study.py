"""The retrieval half of notebook 02 against loops, PyTorch's optimisers, and by hand."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from mmlib import revision_study as study
from mmlib import training
from mmlib.core.errors import DataError
from mmlib.core.paths import PACKAGE
from mmlib.core.ranking import metrics, ranks_of_scores
from mmlib.core.records import CaptionedImages
from mmlib.core.tables import paper_values
from mmlib.data.judgments import Judged, ranking
from mmlib.entailment import Settings, entail_at_k
from mmlib.entailment_batches import Words
from mmlib.retrievers import DualEncoder, SingleStream
from mmlib.revision import Weak, effective_ratio
from mmlib.revision_study import Budget, Phase, Split

near = pytest.approx
TINY = Settings(
    width=16, heads=2, text_layers=1, image_layers=1, words_layers=1, cross_layers=1, dropout=0.0
)
BUDGET = Budget(
    TINY,
    first={
        "dual": Phase(2, 8, 1e-3),
        "align": Phase(1, 8, 1e-3, 1),
        "single": Phase(1, 4, 1e-3, 1),
    },
    tuned={
        "dual": Phase(2, 8, 1e-3, 1),
        "align": Phase(1, 8, 1e-3, 1),
        "single": Phase(1, 4, 1e-3, 1, steps=2),
    },
    space=8,
    top=(6, 4),
)
COUNTS = {"train": 16, "val": 8, "test": 12}
WORDS = tuple("red blue big small dog cat ball tree runs sits".split())


def part(split, count, rng):
    """Images with 2 or 3 captions of random words."""
    captions = tuple(
        tuple(" ".join(rng.choice(WORDS, rng.integers(2, 6))) for _ in range(rng.integers(2, 4)))
        for _ in range(count)
    )
    return CaptionedImages(
        "tiny", split, tuple(f"{split}{i}" for i in range(count)), captions,
        rng.normal(3, 2, (count, 4, 5)).astype(np.float32),
        lambda row: Image.new("RGB", (row + 1, 1 + SIZE[split])),
    )  # fmt: skip


SIZE = {"train": 1, "val": 2, "test": 3}


@pytest.fixture(scope="module")
def parts():
    rng = np.random.default_rng(0)
    return {split: part(split, count, rng) for split, count in COUNTS.items()}


@pytest.fixture(scope="module")
def collection(parts):
    made = study._collection("tiny", parts)
    fits = {}
    for split in ("train", "test"):
        image_of = made.image_of(split)
        truth = np.random.default_rng(1).random((COUNTS[split], len(image_of))) < 0.3
        truth[image_of, np.arange(len(image_of))] = True
        fits[split] = truth
    return replace(made, fits=fits)


@pytest.fixture(scope="module")
def start(collection, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stage_a")
    return study.starting_point(collection, BUDGET, folder, workers=1)


@pytest.fixture
def weak(collection):
    return study.weak_by_logic(collection)


# --- Data ----------------------------------------------------------------------------------------


def test_rows_captions_and_pictures_stay_together(collection, parts):
    for split, own in parts.items():
        assert [collection.names[row] for row in collection.rows[split]] == list(own.ids)
        flat = [(i, text) for i, some in enumerate(own.captions) for text in some]
        assert collection.texts(split) == [text for _, text in flat]
        assert collection.image_of(split).tolist() == [i for i, _ in flat]
        for i, row in enumerate(collection.rows[split]):
            assert collection.premises[row] == " ".join(own.captions[i])
            assert collection.open_image(row).size == (i + 1, 1 + SIZE[split])


def test_features_are_standardised_by_the_training_images(parts, collection):
    train = parts["train"].features
    mean, scale = train.mean(axis=(0, 1)), train.std(axis=(0, 1)) + 1e-3
    for split, own in parts.items():
        wanted = (own.features - mean) / scale
        np.testing.assert_allclose(collection.features[collection.rows[split]], wanted, rtol=1e-4)
    noisy = study.standardised([train], noise=2.0)
    np.testing.assert_allclose(
        noisy, (train - mean) / (np.sqrt(train.var(axis=(0, 1)) + 4) + 1e-3), rtol=1e-4
    )


def test_a_split_as_arrays(collection):
    words = Words.of(collection.texts("train"))
    split = collection.split("val", words)
    for ids, length, text in zip(split.ids, split.lengths, collection.texts("val"), strict=True):
        assert ids[:length].tolist() == words.ids(text)
        assert not ids[length:].any()
    assert split.fingerprint() != collection.split("test", words).fingerprint()
    other = replace(split, lengths=split.lengths[::-1].copy())
    assert other.fingerprint() != split.fingerprint()


def test_long_captions_are_cut(collection):
    captions = (("dog " * 60,), *collection.captions[1:])
    split = replace(collection, captions=captions).split("train", Words(WORDS))
    assert split.lengths[0] == split.ids.shape[1] == study.WORDS


def judged_of(collection, rng):
    images = [collection.names[row] for row in collection.rows["test"]]
    texts, image_of = collection.texts("test"), collection.image_of("test")
    pairs = rng.choice(len(images) * len(texts), 60, replace=False)
    image, caption = np.divmod(pairs, len(texts))
    yes = rng.integers(0, 4, 60)
    return pairs, Judged(
        tuple(images[i] for i in image), tuple(images[image_of[c]] for c in caption),
        tuple(texts[c] for c in caption), ((),) * 60, yes, 3 - yes,
        np.zeros(60, bool), np.zeros(60, bool),
    )  # fmt: skip


def test_judged_pairs_are_found_by_image_and_text(collection):
    _, judged = judged_of(collection, np.random.default_rng(3))
    texts, image_of = collection.texts("test"), collection.image_of("test")
    rows = collection.rows["test"]
    for n, (image, caption) in enumerate(replace(collection, judged=judged).judged_pairs()):
        assert collection.names[rows[image]] == judged.image[n]
        assert collection.names[rows[image_of[caption]]] == judged.origin[n]
        assert texts[caption] == judged.hypothesis[n]


def test_an_unknown_tier_is_refused():
    with pytest.raises(ValueError, match="no tier 'moon': use world, flickr8k or paper"):
        study.load("moon")


# --- Training ------------------------------------------------------------------------------------


def test_an_epoch_sees_each_caption_once():
    image_of = np.repeat(np.arange(10), 3)
    batches = list(study.golden_batches(image_of, Phase(1, 7, 1.0), np.random.default_rng(0)))
    assert [len(b) for b in batches] == [7] * 4
    seen = np.concatenate(batches)
    assert len(np.unique(seen)) == 28
    assert (np.diff(seen) != 1).any()
    again = list(study.golden_batches(image_of, Phase(1, 7, 1.0), np.random.default_rng(0)))
    np.testing.assert_array_equal(seen, np.concatenate(again))


@pytest.mark.parametrize("captions", [1, 2])
def test_an_epoch_of_some_captions_of_each_image(captions):
    image_of = np.repeat(np.arange(10), 3)
    phase = Phase(1, 5, 1.0, captions)
    seen = np.concatenate(list(study.golden_batches(image_of, phase, np.random.default_rng(1))))
    assert np.bincount(image_of[seen]).tolist() == [captions] * 10
    other = np.concatenate(list(study.golden_batches(image_of, phase, np.random.default_rng(2))))
    assert sorted(seen) != sorted(other)  # which captions is drawn anew


def test_an_epoch_may_be_cut():
    image_of = np.arange(20)
    for steps, made in ((2, 2), (9, 4), (0, 4)):
        phase = Phase(1, 5, 1.0, steps=steps)
        assert len(list(study.golden_batches(image_of, phase, np.random.default_rng(0)))) == made


def test_the_rate_rises_then_falls_as_a_cosine():
    assert study.factor(0) == 0
    assert study.factor(0.05) == near(0.5 * (1 + np.cos(0.05 * np.pi)) / 2)
    assert study.factor(0.5) == near(0.5)
    assert study.factor(1) == near(0)


def test_a_batch_holds_its_pairs(start):
    split = start.splits["train"]
    weak = Weak(np.array([0]), np.array([int(np.flatnonzero(split.image_of == 3)[0])]), np.ones(1))
    images, captions = np.array([0, 3, 5]), np.array([0, weak.caption[0], 20])
    known = study.Allowed(split.image_of, weak)
    pictures, ids, lengths, same = study.make_batch(split, images, captions, known)
    np.testing.assert_array_equal(pictures.numpy(), split.images[images])
    np.testing.assert_array_equal(lengths.numpy(), split.lengths[captions])
    assert ids.shape[1] == lengths.max()
    np.testing.assert_array_equal(ids.numpy(), split.ids[captions, : lengths.max()])
    wanted = split.image_of[captions][None] == images[:, None]
    wanted[0, 1] = True
    np.testing.assert_array_equal(same.numpy(), wanted)
    noise = np.array([0, 0, 1, 0, 0], dtype=np.float32)
    rng = np.random.default_rng(0)
    blurred, *_ = study.make_batch(split, images, captions, known, noise, rng)
    moved = (blurred - pictures).numpy()
    assert (moved[..., [0, 1, 3, 4]] == 0).all()
    assert 0.5 < moved[..., 2].std() < 2


class Spy(nn.Module):
    """A retriever that remembers its batches; its loss is a parameter times 2."""

    def __init__(self):
        super().__init__()
        self.value = nn.Parameter(torch.ones(()))
        self.seen = []
        self.first = 0

    def loss(self, images, ids, lengths, same):
        self.seen.append((images.clone(), ids, same.clone(), self.training))
        return 2 * self.value

    def first_loss(self, *batch):
        self.first += 1
        return self.loss(*batch)


PHASE = Phase(2, 4, 0.1, 1)


def spied(start, monkeypatch, **options):
    steps = []
    step = study.TwoRates.step

    def watched(self, loss, weak=False, factor=1.0):
        step(self, loss, weak, factor)
        optimiser = self.weak if weak else self.golden
        steps.append((weak, optimiser.param_groups[0]["lr"]))

    monkeypatch.setattr(study.TwoRates, "step", watched)
    spy = Spy()
    history = study.train(spy, start.splits["train"], PHASE, 5, **options)
    return spy, steps, history


def test_golden_batches_are_the_same_whatever_the_variant(start, weak, monkeypatch):
    plain, steps, history = spied(start, monkeypatch)
    assert [is_weak for is_weak, _ in steps] == [False] * 8
    assert [set(h) for h in history] == [{"loss"}] * 2
    rates = [rate for _, rate in steps]
    wanted = [0.1 * study.factor((e + (k + 1) / 5) / 2) for e in range(2) for k in range(4)]
    np.testing.assert_allclose(rates, wanted)
    both, steps, history = spied(start, monkeypatch, weak=weak, excluded=weak, ratio=0.3)
    assert [is_weak for is_weak, _ in steps] == [False, True] * 8
    np.testing.assert_allclose([rate for _, rate in steps][1::2], 0.3 * np.array(wanted))
    assert [set(h) for h in history] == [{"loss", "weak_loss"}] * 2
    for one, other in zip(plain.seen, both.seen[::2], strict=True):
        assert torch.equal(one[0], other[0])
        assert torch.equal(one[1], other[1])
    assert all(seen[3] for seen in both.seen)  # in training mode
    assert not torch.equal(plain.seen[0][0], plain.seen[4][0])  # another order in another epoch


def test_what_counts_as_a_negative(start, weak, monkeypatch):
    """Regular batches spare the excluded; extra batches their own pairs, whatever is excluded."""
    split = start.splits["train"]

    def table(batch):
        """A by the truth that `weak` holds, golden pairs alone, and what the batch said."""
        truth = start.collection.fits["train"]
        images, ids, same, _ = batch
        rows = [np.flatnonzero((split.images == i.numpy()).all(axis=(1, 2)))[0] for i in images]
        captions = []
        for k, row in enumerate(ids.tolist()):
            fits = [c for c in range(len(split.ids)) if split.ids[c].tolist()[: len(row)] == row
                    and split.lengths[c] == np.count_nonzero(row)]  # fmt: skip
            own = [c for c in fits if split.image_of[c] == rows[k]]
            captions.append((own or fits)[0])
        golden = split.image_of[captions][None] == np.array(rows)[:, None]
        return truth[np.ix_(rows, captions)], golden, same.numpy()

    for excluded, wanted in ((None, 1), (weak, 0)):
        spy, _, _ = spied(start, monkeypatch, weak=weak, excluded=excluded)
        for batch in spy.seen[::2]:
            found = table(batch)
            np.testing.assert_array_equal(found[2], found[wanted])
        for _, _, same, _ in spy.seen[1::2]:
            assert same.diagonal().all()
    assert any((table(b)[0] != table(b)[1]).any() for b in spy.seen[::2])  # there was a choice


def test_the_first_loss_is_of_stage_a_alone(start, monkeypatch):
    assert spied(start, monkeypatch)[0].first == 0
    spy, _, _ = spied(start, monkeypatch, first=True)
    assert spy.first == 8


def test_a_loss_that_is_no_number_stops_the_training(start):
    class Broken(Spy):
        def loss(self, *batch):
            return super().loss(*batch) * torch.nan

    with pytest.raises(FloatingPointError, match="nan in epoch 0"):
        study.train(Broken(), start.splits["train"], PHASE, 0)


@pytest.mark.parametrize("family", study.FAMILIES)
@pytest.mark.parametrize("state", ["shared", "separate"])
def test_a_stopped_training_goes_on(
    start, weak, family, state, tmp_path, monkeypatch, written_on_a_gpu
):
    split, phase = start.splits["train"], replace(PHASE, rate=1e-3)
    options = {"weak": weak, "state": state, "dev": start.splits["val"]}

    def run(checkpoint=None):
        model = start.retriever(family)
        return study.train(model, split, phase, 3, checkpoint=checkpoint, **options), model

    history, whole = run()
    write, calls = study.write_atomic, []

    def once(path, fill):
        write(path, fill)
        calls.append(path)
        if len(calls) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(study, "write_atomic", once)
    with written_on_a_gpu(), pytest.raises(KeyboardInterrupt):
        run(tmp_path / "a.pt")
    again, resumed = run(tmp_path / "a.pt")
    assert again == history
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    assert not whole.training
    before = start.retriever(family).state_dict()
    assert any(not torch.equal(v, before[n]) for n, v in whole.state_dict().items())


def test_looking_at_the_dev_images_changes_nothing(start):
    split, weights = start.splits["train"], []
    for dev in (None, start.splits["val"]):
        model = start.retriever("align")
        history = study.train(model, split, replace(PHASE, rate=1e-3), 3, dev=dev)
        weights.append(model.state_dict())
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())
    assert "dev_loss" in history[0]


def test_dev_loss_is_that_of_first_captions(start):
    dev, model = start.splits["val"], start.retriever("dual")
    first = [int(np.flatnonzero(dev.image_of == i)[0]) for i in range(COUNTS["val"])]
    losses = []
    for rows in (first[:3], first[3:6]):  # the last two fill no batch
        images = torch.tensor(dev.images[dev.image_of[rows]])
        same = torch.eye(3, dtype=torch.bool)
        ids, lengths = torch.tensor(dev.ids[rows]), torch.tensor(dev.lengths[rows])
        losses.append(model.loss(images, ids, lengths, same).item())
    assert study.dev_loss(model, dev, 3) == near(np.mean(losses), rel=1e-5)
    assert np.isfinite(study.dev_loss(model, dev, 100))


# --- Stage A -------------------------------------------------------------------------------------


def test_align_and_single_grow_out_of_the_dual_encoder(start):
    split = start.splits["train"]
    frozen = replace(BUDGET, first={f: replace(p, rate=0.0) for f, p in BUDGET.first.items()})
    dual = start.weights["dual"]
    args = (frozen, len(start.words), split, 7)
    align, _ = study.pretrain("align", *args, start=dual)
    assert all(torch.equal(value, align[name]) for name, value in dual.items())
    single, _ = study.pretrain("single", *args, start=dual)
    pairs = {
        "project.weight": "image.project.weight",
        "layers.embeddings.word_embeddings.weight": "words.embeddings.word_embeddings.weight",
        "layers.encoder.layer.0.attention.self.query.weight":
        "words.encoder.layer.0.attention.self.query.weight",
    }  # fmt: skip
    for new, old in pairs.items():
        assert torch.equal(single[new], dual[old]), new
    fresh, _ = study.pretrain("single", *args)
    assert not torch.equal(fresh["project.weight"], single["project.weight"])
    again, _ = study.pretrain("single", *args)
    assert all(torch.equal(value, again[name]) for name, value in fresh.items())


def test_the_single_stream_learns_from_its_first_loss(start, monkeypatch):
    asked = []
    loss = SingleStream.first_loss
    monkeypatch.setattr(SingleStream, "first_loss", lambda *a: asked.append(1) or loss(*a))
    study.pretrain("single", BUDGET, len(start.words), start.splits["train"], 0)
    assert len(asked) == 4


def test_weights_in_a_file(start, tmp_path):
    path = tmp_path / "w.safetensors"
    study.save_weights(path, start.weights, start.words, {"scenes": 3})
    assert study.metadata(path) == {"words": list(start.words.words), "notes": {"scenes": 3}}
    for family in study.FAMILIES:
        read = study.read_weights(path, family)
        model = study.build(family, BUDGET, len(start.words), start.splits["train"])
        model.load_state_dict(read)
        for name, value in start.weights[family].items():
            assert read[name].dtype == torch.float32
            torch.testing.assert_close(read[name], value, atol=1e-3, rtol=1e-3)


def test_stage_a_is_kept_and_taken_up(start, collection, tmp_path, monkeypatch):
    first = study.starting_point(collection, BUDGET, tmp_path, workers=1)
    for family, weights in start.weights.items():
        for name, value in weights.items():
            assert torch.equal(value, first.weights[family][name])
    np.testing.assert_array_equal(start.shortlist, first.shortlist)
    monkeypatch.setattr(study, "pretrain", lambda *a, **k: pytest.fail("trained anew"))
    again = study.starting_point(collection, BUDGET, tmp_path, workers=1)
    np.testing.assert_array_equal(start.shortlist, again.shortlist)
    assert {f: len(h["history"]) for f, h in again.history.items()} == {
        f: p.epochs for f, p in BUDGET.first.items()
    }


def test_stage_a_does_not_see_what_the_classifier_learns_from(collection, tmp_path, monkeypatch):
    """What is left out changes no word and no split of stage B."""
    rows, seen = collection.rows["train"], []

    def look(function, jobs, folder, **options):
        seen.extend(data["splits"]["train"] for _, data in jobs)
        return run_jobs(function, jobs, folder, **options)

    run_jobs = study.training.run_jobs
    monkeypatch.setattr(study.training, "run_jobs", look)
    begin = study.starting_point(
        collection, BUDGET, tmp_path, families=("dual", "align"), leave_out=rows[::2], workers=1
    )
    kept = collection.features[rows[1::2]]
    assert all(len(split.images) == len(kept) for split in seen)
    assert np.array_equal(np.asarray(seen[0].images), kept)
    assert len(begin.splits["train"].images) == len(rows)
    assert begin.words.words == study.Words.of(collection.texts("train"), BUDGET.min_count).words
    with pytest.raises(DataError, match="every training image is left out"):
        study.starting_point(collection, BUDGET, tmp_path, leave_out=rows, workers=1)


def test_the_budgets_of_stage_a_reach_the_jobs():
    for name, budget in study.BUDGETS.items():
        assert study.as_budget(json.loads(json.dumps(asdict(budget)))) == budget, name


def test_the_worlds_weights_fit_the_worlds_budget():
    assert study.WEIGHTS.stat().st_size < 1_500_000
    budget, words = study.BUDGETS["world"], study.world_words()
    split = Split(np.zeros((1, 16, 128), np.float32), *[np.zeros(0)] * 3)
    for family in study.FAMILIES:
        model = study.build(family, budget, len(words), split)
        model.load_state_dict(study.read_weights(study.WEIGHTS, family))
    notes = study.metadata()["notes"]
    assert notes["made_by"] == "ci/train_world_retrievers.py"
    assert (PACKAGE.parent / notes["made_by"]).is_file()
    assert notes["split"] == "backbone"
    for family in (*study.FAMILIES, "base"):
        assert Phase(**notes[family]["phase"]) == budget.first[family]


@pytest.fixture(scope="module")
def world():
    sizes = {"train": 20, "val": 4, "test": 60}
    return study.load("world", workers=1, sizes=sizes)


def test_the_worlds_retrievers_know_their_world(world, tmp_path):
    begin = study.starting_point(world, study.BUDGETS["world"], tmp_path, workers=1)
    split = begin.splits["test"]
    assert (split.ids != 3).mean() > 0.99  # hardly a word is unknown
    found = {}
    for family in study.FAMILIES:
        answer = study.measured(begin.retriever(family), split, study.test_of(begin), (10, 4))
        found[family] = np.mean(np.array(answer["i2t"]) <= 5)
    assert found["align"] > 0.8  # chance is 0.08
    assert found["single"] > 0.7
    assert found["dual"] > 0.4
    shares = np.take_along_axis(world.fits["test"], np.array(answer["top"])[:, :10], axis=1)
    assert shares.mean() > 3 * world.fits["test"].mean()


def test_the_worlds_truth_and_noise(world):
    image_of = world.image_of("test")
    assert world.fits["test"].shape == (60, len(image_of))
    assert world.fits["test"][image_of, np.arange(len(image_of))].all()
    clean = study.load(
        "world", workers=1, image_noise=0.0, sizes={"train": 20, "val": 1, "test": 1}
    )
    rows = np.arange(20)
    assert clean.names[:20] == world.names[:20]
    assert not np.allclose(clean.features[rows], world.features[rows], atol=0.3)
    premise = world.premises[0]
    assert all(text.rstrip(".")[1:] in premise for text in world.captions[0])


# --- Weak sets -----------------------------------------------------------------------------------


def test_cosines_in_blocks(start):
    cosines = study.similarities(start, "train", "dual")
    split = start.splits["train"]
    whole, _ = start.retriever("dual").rank(*split.tensors())
    assert cosines.shape == whole.shape == (len(cosines), len(split.ids))
    np.testing.assert_allclose(cosines[3:9], whole[3:9], atol=1e-6)
    by_align, _ = DualEncoder.rank(start.retriever("align"), *split.tensors())
    np.testing.assert_allclose(study.similarities(start)[:], by_align, atol=1e-6)


def test_mining_by_logic(start, collection):
    truth, image_of = collection.fits["train"], collection.image_of("train")
    similarity = study.similarities(start)[:]
    weak = study.weak_by_logic(collection, study.similarities(start), top=5)
    wanted = []
    for i, row in enumerate(similarity):
        others = [c for c in np.argsort(-row, kind="stable") if image_of[c] != i][:5]
        wanted += [(i, c) for c in others if truth[i, c]]
    assert list(zip(weak.image, weak.caption, strict=True)) == wanted
    assert study.precision_of(weak, truth) == 1
    every = study.weak_by_logic(collection)
    assert len(every) == truth.sum() - len(image_of)
    assert set(wanted) <= set(zip(every.image, every.caption, strict=True))
    assert not (image_of[every.caption] == every.image).any()


def test_precision_of_a_weak_set():
    truth = np.array([[True, False], [False, True]])
    weak = Weak(np.array([0, 0, 1]), np.array([0, 1, 1]), np.ones(3))
    assert study.precision_of(weak, truth) == near(2 / 3)
    empty = Weak(*[np.zeros(0, int)] * 3)
    assert np.isnan(study.precision_of(empty, truth))


@pytest.mark.parametrize("precision", [1.0, 0.75, 0.5, 0.0])
def test_flipped_sets_have_the_precision_that_was_asked_for(collection, weak, precision):
    truth = collection.fits["train"]
    made = study.flipped(weak, truth, precision, seed=4)
    assert abs(study.precision_of(made, truth) - precision) <= 0.5 / len(weak)
    np.testing.assert_array_equal(made.image, weak.image)
    kept = (made.caption == weak.caption).mean()
    assert kept == near(precision, abs=0.5 / len(weak))
    assert len(set(zip(made.image, made.caption, strict=True))) == len(weak)
    again = study.flipped(weak, truth, precision, seed=4)
    np.testing.assert_array_equal(made.caption, again.caption)


def test_a_bad_set_can_be_made_better(collection, weak):
    truth = collection.fits["train"]
    rows = np.arange(0, len(weak), 3)
    few = Weak(weak.image[rows], weak.caption[rows], weak.score[rows])
    bad = study.flipped(few, truth, 0.0)
    better = study.flipped(bad, truth, 0.5)
    assert study.precision_of(better, truth) == near(0.5, abs=0.5 / len(few))
    none = np.zeros_like(truth)
    with pytest.raises(ValueError, match="has no caption left"):
        study.flipped(bad, none, 1.0)


def test_random_pairs_are_of_the_same_images_and_never_golden(weak):
    image_of = np.repeat(np.arange(16), 2)
    made = study.random_weak(weak, image_of, 0)
    np.testing.assert_array_equal(made.image, weak.image)
    assert not (image_of[made.caption] == made.image).any()
    assert len(np.unique(made.caption)) > 20
    assert study.weak_hash(made) != study.weak_hash(study.random_weak(weak, image_of, 1))


def test_the_sets_of_each_variant(weak, collection):
    image_of = collection.image_of("train")

    def sets(variant):
        return study.sets_of(variant, weak, image_of, 0)

    assert sets("plain") == (None, None)
    assert sets("exclusion") == (weak, None)
    assert sets("weak") == (None, weak)
    assert sets("both") == (weak, weak)
    none, extra = sets("extra golden")
    assert none is None
    assert list(zip(extra.image, extra.caption, strict=True)) == list(
        zip(image_of, range(len(image_of)), strict=True)
    )
    none, extra = sets("random weak")
    assert none is None
    np.testing.assert_array_equal(extra.image, weak.image)
    assert study.weak_hash(extra) != study.weak_hash(weak)
    with pytest.raises(ValueError, match="no variant 'other'"):
        sets("other")
    for variant in ("exclusion", "weak", "both", "random weak"):
        with pytest.raises(ValueError, match="needs a weak set"):
            study.sets_of(variant, None, image_of, 0)


# --- Stage B -------------------------------------------------------------------------------------


def test_jobs_of_a_comparison(start, weak):
    sets = {"classifier": weak, "logic": study.flipped(weak, start.collection.fits["train"], 0.5)}
    jobs = study.tuning_jobs(
        start, sets, [0, 1], "cpu", families=["dual", "single"],
        variants=[*study.VARIANTS, *study.CONTROLS],
    )  # fmt: skip
    names = [study.name_of(job) for job, _ in jobs]
    assert len(jobs) == 2 * 2 * (2 + 4 * 2)  # plain and extra golden need no weak set
    assert len({json.dumps(job) for job, _ in jobs}) == len(jobs)
    assert names.count("CLIP-like, plain") == 2
    assert names.count("UNITER-like, both (logic)") == 2
    for job, data in jobs:
        if job["maker"]:
            assert data["weak"] is sets[job["maker"]]
            assert job["data"]["weak"] == study.weak_hash(sets[job["maker"]])
        else:
            assert data["weak"] is None
        assert data["weights"] is start.weights[job["family"]]
        assert job["ratio"] == BUDGET.ratio
    (job, _), *_ = study.tuning_jobs(start, sets, [0], "cpu", ratio=0.7, state="shared", note="x")
    assert (job["ratio"], job["state"], study.name_of(job)) == (
        0.7,
        "shared",
        "CLIP-like, plain, x",
    )


def test_jobs_of_the_sweeps(start, weak):
    jobs = study.sweep_jobs(start, weak, [0], "cpu")
    assert len(jobs) == 2 * len(study.RATIOS) + 2 * len(study.PRECISIONS) - 2
    asked = {(job["state"], job["ratio"]) for job, _ in jobs if job["note"].startswith("λ")}
    every = {(s, r) for s in ("shared", "separate") for r in study.RATIOS}
    assert asked == every - {("shared", BUDGET.ratio)}
    truth = start.collection.fits["train"]
    for job, data in jobs:
        if job["note"].startswith("precision"):
            wanted = float(job["note"].split()[1])
            assert study.precision_of(data["weak"], truth) == near(wanted, abs=0.01)
    assert len({study.name_of(job) for job, _ in jobs}) == len(jobs)


def test_jobs_of_the_notebook_train_nothing_twice(start, weak):
    sets = {"classifier": study.flipped(weak, start.collection.fits["train"], 0.9), "logic": weak}
    jobs = study.comparison_jobs(start, sets, [0, 1], "cpu")
    jobs += study.sweep_jobs(start, weak, [0], "cpu")
    bare = [json.dumps({**job, "note": "", "maker": ""}) for job, _ in jobs]
    assert len(set(bare)) == len(bare)
    assert {job["variant"] for job, _ in jobs if job["maker"] == "logic" and not job["note"]} == {
        "both"
    }


def test_panels_of_the_sweeps(start, weak):
    """Each point is the mean over images of its seed; the comparison gives one to each sweep."""
    jobs = study.comparison_jobs(start, {"logic": weak}, [0, 1], "cpu")
    jobs += study.sweep_jobs(start, weak, [1], "cpu", ratios=(0.1, 1.0), precisions=(1.0, 0.5))
    rng = np.random.default_rng(0)
    scores, told = {}, {}
    for job, _ in jobs:
        row = rng.random(3)
        scores.setdefault(study.name_of(job), {"map": []})["map"].append(row)
        told[study.name_of(job), job["seed"]] = row.mean()
    scores = {name: {"map": np.array(own["map"])} for name, own in scores.items()}
    (first, ratios, _, log), (second, precisions, _, linear) = study.sweep_panels(jobs, scores)
    assert (first, log, second, linear) == ("ratio", True, "precision", False)

    def at(note):
        return [near(told[f"CLIP-like, {note}", 1])]

    whole = at("both (logic)")
    assert list(ratios) == ["shared optimiser", "separate optimiser"]
    assert ratios["shared optimiser"] == {0.1: whole, 1.0: at("both (logic), λ 1.0 shared")}
    assert ratios["separate optimiser"] == {
        value: at(f"both (logic), λ {value} separate") for value in (0.1, 1.0)
    }
    assert precisions == {
        "exclusion": {v: at(f"exclusion (logic), precision {v}") for v in (1.0, 0.5)},
        "both": {1.0: whole, 0.5: at("both (logic), precision 0.5")},
    }


def answer_of(start, family, variant, weak, seed=0, **changes):
    own = replace(start, **changes)
    sets = {} if weak is None else {"logic": weak}
    ((job, data),) = study.tuning_jobs(
        own, sets, [seed], "cpu", families=[family], variants=[variant]
    )
    return study.fine_tune(**json.loads(json.dumps(job)), **data, checkpoint=None)


@pytest.fixture(scope="module")
def answers(start, collection):
    """Every family plain and both, with two seeds."""
    weak = study.weak_by_logic(collection)
    jobs = study.tuning_jobs(start, {"classifier": weak}, [0, 1], "cpu", variants=["plain", "both"])
    return jobs, [study.fine_tune(**job, **data) for job, data in jobs]


def test_fine_tuning_takes_the_variants_sets(start, weak, monkeypatch):
    seen = {}
    train = study.train

    def watched(model, split, phase, seed, **options):
        seen.update(options, phase=phase, seed=seed, before=model.state_dict()["log_scale"].item())
        return train(model, split, phase, seed, **options)

    monkeypatch.setattr(study, "train", watched)
    wanted = {"plain": (0, 0), "exclusion": (1, 0), "weak": (0, 1), "both": (1, 1)}
    for variant, (excluded, extra) in wanted.items():
        answer_of(start, "dual", variant, weak if variant != "plain" else None, seed=3)
        assert (seen["excluded"] is not None, seen["weak"] is not None) == (excluded, extra)
        assert seen["phase"] == BUDGET.tuned["dual"]
        assert (seen["seed"], seen["ratio"], seen["dev"]) == (3, 0.1, start.splits["val"])
        assert not seen.get("first")
        assert seen["before"] == start.weights["dual"]["log_scale"].item()


@pytest.mark.parametrize("family", ["dual", "align", "single"])
def test_measures_by_loops(start, family):
    split, test = start.splits["test"], study.test_of(start)
    model = start.retriever(family)
    answer = study.measured(model, split, test, BUDGET.top)
    if family == "single":
        by_image, by_text = model.rank(*split.tensors(), shortlist=start.shortlist, top=BUDGET.top)
    else:
        by_image, by_text = model.rank(*split.tensors())
    fits = start.collection.fits["test"]
    for i, row in enumerate(by_image):
        order = sorted(range(len(row)), key=lambda c: (-row[c], c))
        own = [place for place, c in enumerate(order, 1) if split.image_of[c] == i]
        assert answer["i2t"][i] == min(own)
        assert answer["top"][i] == order[:30]
        assert answer["e10"][i] == near(np.mean([fits[i, c] for c in order[:10]]), abs=1e-4)
        worst = sorted(order, key=lambda c: (-row[c], fits[i, c]))  # of equals, the true one last
        places = [place for place, c in enumerate(worst, 1) if fits[i, c]]
        precision = np.mean([(n + 1) / place for n, place in enumerate(places)])
        assert answer["ap"][i] == near(precision, abs=1e-4)
    for c, column in enumerate(by_text.T):
        assert answer["t2i"][c] == 1 + sum(v > column[split.image_of[c]] for v in column)
    assert entail_at_k(answer["top"], fits, 30 if len(answer["top"][0]) >= 30 else 10)
    json.dumps(answer)


def test_the_single_stream_scores_the_shortlist(start):
    split, model = start.splits["test"], start.retriever("single")
    full, _ = model.rank(*split.tensors())
    by_image, by_text = model.rank(*split.tensors(), shortlist=start.shortlist, top=(6, 4))
    for table, axis, count in ((by_image, 1, 6), (by_text, 0, 4)):
        best = np.argsort(-start.shortlist, axis=axis, kind="stable")
        chosen = np.zeros(full.shape, bool)
        np.put_along_axis(chosen, best.take(range(count), axis=axis), True, axis=axis)
        np.testing.assert_allclose(table[chosen], 2 + full[chosen], atol=1e-5)
        np.testing.assert_array_equal(table[~chosen], start.shortlist[~chosen])


@pytest.mark.parametrize("family", ["align", "single"])
def test_judgments_rank_by_the_same_scores(start, family):
    _, judged = judged_of(start.collection, np.random.default_rng(3))
    judged = replace(judged, no=3 - judged.yes)
    own = replace(start, collection=replace(start.collection, judged=judged))
    split, model = start.splits["test"], start.retriever(family)
    answer = study.measured(model, split, study.test_of(own), BUDGET.top)["judged"]
    scores = model.rank(*split.tensors())[0]  # the single stream's of all pairs
    pairs = own.collection.judged_pairs()
    wanted = ranking(judged, scores[pairs[:, 0], pairs[:, 1]])
    assert answer["image"] == list(wanted.index)
    np.testing.assert_allclose(answer["ap"], wanted["average_precision"], atol=1e-4)
    np.testing.assert_allclose(answer["p1"], wanted["precision_at_1"], atol=1e-4)


def test_the_same_seed_gives_the_same_answer(start, weak):
    one, two, other = (
        answer_of(start, "align", "both", weak, seed=seed, budget=HOT) for seed in (0, 0, 1)
    )
    for key in ("i2t", "t2i", "top", "history"):
        assert one[key] == two[key]
    assert one["history"] != other["history"]


HOT = replace(BUDGET, tuned={f: replace(p, rate=0.01) for f, p in BUDGET.tuned.items()})


# --- Scores and effects --------------------------------------------------------------------------


@pytest.fixture
def scores(answers, start):
    return study.collect(*answers, start.splits["test"].image_of)


def test_images_add_up_to_the_fields_figures(answers, scores, start):
    image_of = start.splits["test"].image_of
    jobs, given = answers
    for (job, _), answer in zip(jobs, given, strict=True):
        own = scores[study.name_of(job)]
        i2t, t2i = np.array(answer["i2t"]), np.array(answer["t2i"])
        wanted = {f"i2t_r{k}": 100 * np.mean(i2t <= k) for k in (1, 5, 10)}
        wanted |= {f"t2i_r{k}": 100 * np.mean(t2i <= k) for k in (1, 5, 10)}
        wanted["rsum"] = sum(wanted.values())
        wanted["e10_logic"] = entail_at_k(answer["top"], start.collection.fits["test"], 10)
        wanted["map"] = 100 * np.mean(answer["ap"])
        for metric, value in wanted.items():
            assert own[metric].shape == (2, COUNTS["test"])
            assert own[metric][job["seed"]].mean() == near(value, abs=0.01), metric
    # the dual encoder has one table of scores, of which all figures follow
    table, _ = start.retriever("dual").rank(*start.splits["test"].tensors())
    ranks = ranks_of_scores(table, image_of)
    fake = {"i2t": ranks.image_ranks.tolist(), "t2i": ranks.caption_ranks.tolist(),
            "top": answers[1][0]["top"]}  # fmt: skip
    (own,) = study.collect(jobs[:1], [fake], image_of).values()
    assert own["rsum"].mean() == near(metrics(ranks)["rsum"])


def test_entail_at_k_by_a_classifier(answers, scores, start):
    jobs, given = answers
    image_of = start.splits["test"].image_of
    p = np.random.default_rng(0).random((COUNTS["test"], len(image_of)))
    asked = []

    def entailed(pairs):
        asked.append(pairs)
        return p[pairs[:, 0], pairs[:, 1]]

    study.add_entail_at_k(scores, jobs, given, image_of, entailed, threshold=0.4)
    (pairs,) = asked
    assert not (image_of[pairs[:, 1]] == pairs[:, 0]).any()
    assert len(np.unique(pairs, axis=0)) == len(pairs)
    table = (p >= 0.4) | (image_of == np.arange(COUNTS["test"])[:, None])
    for (job, _), answer in zip(jobs, given, strict=True):
        own = scores[study.name_of(job)]["e10_classifier"]
        assert own[job["seed"]].mean() == near(entail_at_k(answer["top"], table, 10))


def test_results_are_means_over_images(scores):
    rows = study.results(scores, "tiny", BUDGET, [7, 8])
    assert {(row.dataset, row.split) for row in rows} == {("tiny", "test")}
    for row in rows:
        assert row.value == scores[row.system][row.metric][row.seed - 7].mean()
    assert len(rows) == 2 * sum(len(own) for own in scores.values())


def test_differences_are_paired():
    rng = np.random.default_rng(0)
    base = 10 * rng.normal(size=(3, 50))
    scores = {"A": {"rsum": base + 1 + 0.1 * rng.normal(size=(3, 50))}, "B": {"rsum": base}}
    found = study.difference(scores, "A", "B")
    assert found.effect == near((scores["A"]["rsum"] - base).mean())
    assert 0.8 < found.low < found.high < 1.2
    fewer = {**scores, "B": {"rsum": base[:1]}}
    assert study.difference(fewer, "A", "B").effect == near(
        (scores["A"]["rsum"][0] - base[0]).mean()
    )
    with pytest.raises(KeyError):
        study.difference(scores, "A", "C")


def test_gains_and_flattery_by_hand():
    flat = np.ones((2, 6)) + np.arange(6) / 100
    scores = {
        "CLIP-like, plain": {"rsum": 5 * flat, "e10_classifier": 10 * flat, "e10_logic": 20 * flat},
        "CLIP-like, both (x)": {
            "rsum": 7 * flat, "e10_classifier": 16 * flat, "e10_logic": 21 * flat,
        },
        "ALBEF-like, both (x)": {"rsum": 9 * flat},
    }  # fmt: skip
    gained = study.gains(scores, "both (x)")
    assert list(gained) == ["CLIP"]
    assert gained["CLIP"].effect == near(2 * flat.mean())
    assert study.gains(scores, "both (x)", "e30_logic") == {}
    found = study.judge_bias(scores, "dual", "both (x)")
    assert found.effect == near(100 * (6 / 10 - 1 / 20))  # 60 percent more, and 5


def test_the_weakest_familys_gain_is_compared_with_each_others():
    """UNITER is weakest before; it gains 3, CLIP 1 and ALBEF loses 2."""
    flat = np.ones((2, 6)) * (1 + np.linspace(-0.1, 0.1, 6))
    levels = {"CLIP": (20, 1), "ALBEF": (30, -2), "UNITER": (10, 3)}
    scores = {}
    for family, (plain, gain) in levels.items():
        scores[f"{family}-like, plain"] = {"rsum": plain * flat}
        scores[f"{family}-like, both (x)"] = {"rsum": (plain + gain) * flat}
    found = study.weakest_gain(scores, "both (x)")
    effects = {name: round(own.effect, 6) for name, own in found.items()}
    assert effects == {"UNITER": 3, "UNITER − CLIP": 2, "UNITER − ALBEF": 5}
    del scores["CLIP-like, plain"], scores["ALBEF-like, plain"]
    assert study.weakest_gain(scores, "both (x)") == {}


def test_the_sheet_is_of_the_image_that_gained_most_true_captions_of_others(collection):
    """Image 0 gains two of its own, image 1 one of another's: the latter is shown."""
    image_of = collection.image_of("test")
    images, captions = COUNTS["test"], len(image_of)
    fits = np.zeros((images, captions), dtype=bool)
    fits[image_of, np.arange(captions)] = True
    foreign = int(np.flatnonzero(image_of != 1)[0])
    fits[1, foreign] = True
    wrong = [[c for c in range(captions) if not fits[i, c]] for i in range(images)]
    before = [own[:2] for own in wrong]
    after = [list(own) for own in before]
    after[0] = np.flatnonzero(image_of == 0)[:2].tolist()
    after[1] = [foreign, before[1][1]]
    jobs, answers = [], []
    for variant, maker, top in (("plain", "", before), ("both", "classifier", after)):
        jobs.append(({"family": "dual", "variant": variant, "maker": maker, "note": ""}, {}))
        answers.append({"top": top})
    image, first, second = study.before_after(collection, jobs, answers, fits, count=2)
    assert image == 1
    assert [true for _, _, true in first] == [False, False]
    assert second[0] == (collection.texts("test")[foreign], False, True)
    assert study.before_after(collection, jobs[:1], answers[:1], fits) is None
    assert study.before_after(collection, jobs, answers, None) is None


def test_tables_stand_beside_the_papers(scores):
    for own in scores.values():
        own["e10_classifier"] = own["e10_logic"]
    tables = study.tables(scores)
    for name, table in tables.items():
        paper = paper_values("entailment", name)
        assert list(table.index[: len(paper)]) == list(paper.index)
        for column in paper.columns:
            assert table[column, "paper"].iloc[0] == str(paper[column].iloc[0])
    ours = scores["CLIP-like, both (classifier)"]["i2t_r5"].mean(axis=1)
    cell = tables["table4_mscoco"].loc["CLIP + entailment-enhanced training", ("TR@5", "ours")]
    assert cell == f"{ours.mean():.1f} ± {ours.std(ddof=1):.1f}"
    plain = scores["UNITER-like, plain"]["e10_logic"].mean(axis=1).mean()
    assert tables["table5"].loc["UNITER", ("E@10", "ours")].startswith(f"{plain:.1f}")
    assert tables["table5"].loc["UNITER", ("E@M", "ours")] == "–"


def test_judges_side_by_side(scores):
    table = study.judges_table(scores)
    assert list(table.index) == list(scores)
    own = scores["ALBEF-like, plain"]
    assert table.loc["ALBEF-like, plain", "E@10, logic"] == near(own["e10_logic"].mean(), abs=0.05)
    assert "mAP, people" not in table


# --- The optimiser's state -----------------------------------------------------------------------


def walked(optimiser, ratio, sign, steps=400):
    """The same by PyTorch's optimisers."""
    value = nn.Parameter(torch.zeros((), dtype=torch.float64))

    def make():
        if optimiser.startswith("Adam"):
            return torch.optim.Adam([value], lr=1.0, eps=0.0)
        return torch.optim.SGD([value], lr=1.0, momentum=0.9 * ("momentum" in optimiser))

    golden = make()
    weak = make() if "separate" in optimiser else golden
    weighs = "loss weight" in optimiser
    for _ in range(steps):
        for own, gradient, rate, weight in (
            (golden, 1.0, 1.0, 1.0),
            (weak, sign, 1.0 if weighs else ratio, ratio if weighs else 1.0),
        ):
            own.param_groups[0]["lr"] = rate
            own.zero_grad()
            (weight * gradient * value).backward()
            own.step()
    return -value.item()


@pytest.mark.parametrize("optimiser", study.OPTIMISERS)
@pytest.mark.parametrize("ratio", [0.03, 0.3])
def test_the_simulation_is_pytorchs(optimiser, ratio):
    for sign in (1.0, -1.0):
        assert study._way(optimiser, ratio, sign, 60) == near(
            walked(optimiser, ratio, sign, 60), rel=1e-9, abs=1e-9
        )


def test_what_a_weak_gradient_moves():
    for ratio in study.RATIOS:
        for name in ("Adam, shared", "SGD with momentum, shared"):
            assert study.measured_ratio(name, ratio, 2000) == near(
                effective_ratio(ratio), abs=0.003
            )
        for name in ("Adam, separate", "SGD", "SGD, loss weight", "Adam, shared, loss weight"):
            assert study.measured_ratio(name, ratio, 2000) == near(ratio, abs=0.003)
        assert study.measured_ratio("Adam, separate, loss weight", ratio) == near(1)
    table = study.optimiser_table()
    assert list(table.columns) == list(study.RATIOS)
    assert table.loc["formula of the shared state", 0.1] == near(effective_ratio(0.1))
    assert table.loc["SGD", 0.3] == near(0.3)


# --- Stored answers ------------------------------------------------------------------------------


def test_a_record_is_read_back(answers, tmp_path, start):
    jobs, given = answers
    image_of = start.splits["test"].image_of
    called = study.called_pairs(given, image_of, lambda pairs: pairs[:, 1] / 1000)
    path = tmp_path / "02.json.gz"
    study.write_record(path, jobs, given, called)
    read_jobs, read_answers, read_called = study.read_record(path, BUDGET)
    assert read_answers == json.loads(json.dumps(given))
    assert [job for job, _ in read_jobs] == [json.loads(json.dumps(job)) for job, _ in jobs]
    assert read_called == json.loads(json.dumps(called))
    p = study.lookup(read_called)
    pairs = np.array(called["pairs"])[[0, -1]]
    np.testing.assert_allclose(p(pairs), pairs[:, 1] / 1000, atol=5e-4)
    with pytest.raises(KeyError):
        p(np.array([[0, 10**6]]))
    with pytest.raises(training.DataError, match="another budget"):
        study.read_record(path, HOT)
    with pytest.raises(training.DataError, match="no stored answers"):
        study.read_record(tmp_path / "none", BUDGET)
