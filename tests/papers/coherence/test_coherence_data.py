"""Pairs of each tier: the world's dials, controlled pairs, arrays, made-up files of tier paper."""

import csv
import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import tiny_coherence
import torch
from PIL import Image
from scripts import record_in_two_goes

from mmlib.core.errors import DataError
from mmlib.core.jobs import Job
from mmlib.data import cite, clue
from mmlib.features.text import spaced_tokens
from mmlib.papers.coherence import data, run
from mmlib.papers.coherence.data import controlled, load_study, paper, prepare, world
from mmlib.papers.coherence.data import pairs as collections
from mmlib.papers.coherence.data.controlled import CUES, THINGS
from mmlib.papers.coherence.data.pairs import CONTROLLED, Dials, Pairs, Pictures
from mmlib.papers.coherence.method import ImageEncoder, full_ranks
from mmlib.papers.coherence.run import CMCA, CMCM, Settings

SMALL = Settings(word_width=8, hidden=8, width=16, epochs=1, word2vec_epochs=2)


@pytest.fixture
def small_world(monkeypatch):
    monkeypatch.setattr(world, "COUNTS", {"train": 24, "val": 8, "test": 12})
    monkeypatch.setattr("os.cpu_count", lambda: 1)


# --- The world -----------------------------------------------------------------------------------


def test_dials_change_texts_and_labels_and_leave_pictures(small_world):
    blind = collections.at_dials(0.0, 0.5)
    quiet = collections.at_dials(1.0, 0.0)
    study = load_study("world", ["Clue-like", "CITE-like", blind, quiet])
    first, other = study["Clue-like"], study["CITE-like"]
    assert first.relations == clue.RELATIONS
    assert other.relations == cite.RELATIONS
    assert not set(first.test.image_ids) & set(other.test.image_ids)
    for name in (blind, quiet):
        np.testing.assert_array_equal(study[name].test.features, first.test.features)
        assert study[name].test.texts != first.test.texts
    assert (study[blind].train.labels != first.train.labels).any()
    np.testing.assert_array_equal(study[quiet].train.labels, first.train.labels)
    for name, pairs in study.items():
        assert pairs.relations == collections.relations_of(name)
        assert [len(pairs.split(s)) for s in ("train", "val", "test")] == [24, 8, 12]


def test_unknown_tiers_and_collections_are_named(monkeypatch, tmp_path):
    monkeypatch.setenv("MMLIB_DATA", str(tmp_path))
    for arguments, error, message in (
        (("x",), ValueError, "no tier 'x': use world, flickr8k, paper"),
        (("world", ["clue"]), ValueError, "no pairs 'clue' here; there are Clue-like"),
        (("controlled", ["clue"]), ValueError, "no pairs 'clue' here; there are 2 relations"),
        (("paper",), DataError, "no complete collection: clue: .*cite"),
        (("flickr8k",), DataError, "conceptual_train_dis.csv"),
    ):
        with pytest.raises(error, match=message):
            load_study(*arguments)


# --- Controlled pairs ----------------------------------------------------------------------------

TOY = Dials(relations=3, cues=12, pairs=400, things=10)


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(controlled, "COUNTS", {"val": 30, "test": 400})


def said(text):
    """The things of a text in their order, and its cue."""
    first, cue, *rest = text.split()
    return [first, *rest], cue


def test_a_cue_stands_for_one_relation_and_the_picture_shows_what_that_says():
    pairs = controlled.load(TOY)
    assert pairs.relations == ("first", "second", "third")
    meanings = {}
    for split in (pairs.train, pairs.val, pairs.test):
        for text, labels, image in zip(split.texts, split.labels, split.image_of, strict=True):
            things, cue = said(text)
            assert len(set(things)) == 3
            assert set(things) <= set(THINGS[:10])
            assert labels.sum() == 1
            relation = int(labels.argmax())
            assert meanings.setdefault(cue, relation) == relation
            assert split.shown[image] == things[relation]
    assert set(meanings) == set(CUES[:12])
    assert np.bincount(list(meanings.values())).tolist() == [4, 4, 4]


def test_features_are_those_of_the_thing_and_noise():
    still = controlled.load(replace(TOY, noise=0))
    looks = {}
    for split in (still.train, still.test):
        for name, features in zip(split.shown, split.features[:, 0], strict=True):
            np.testing.assert_array_equal(looks.setdefault(name, features), features)
    assert len({vector.tobytes() for vector in looks.values()}) == 10
    noisy = controlled.load(replace(TOY, noise=2.0))
    assert noisy.train.shown == still.train.shown
    assert (noisy.train.features - still.train.features).std() == pytest.approx(2.0, abs=0.1)


def test_pairs_and_what_they_decide_leave_the_test_texts():
    test = controlled.load(TOY).test
    fewer, aimless = (controlled.load(replace(TOY, **c)) for c in ({"pairs": 20}, {"decides": 0}))
    for other in (fewer.test, aimless.test):
        assert other.texts == test.texts
        np.testing.assert_array_equal(other.labels, test.labels)
    np.testing.assert_array_equal(fewer.test.features, test.features)
    assert controlled.load(TOY, seed=1).test.texts != test.texts
    both = zip(aimless.train.texts, aimless.train.shown, strict=True)
    places = [said(text)[0].index(shown) for text, shown in both]
    agree = np.mean(places == aimless.train.labels.argmax(axis=1))
    assert agree == pytest.approx(1 / 3, abs=0.08)


def test_who_knows_no_relation_is_at_chance_among_the_things():
    pairs = controlled.load(Dials(relations=4, cues=12, pairs=2)).test
    scores, shown = controlled.truth(pairs), np.array(pairs.shown)[pairs.image_of]
    for i in range(0, 400, 40):  # by a loop
        things, _ = said(pairs.texts[i])
        wanted = things[int(pairs.labels[i].argmax())]
        assert (scores["things"][i] >= 1).tolist() == [name in things for name in shown]
        assert (scores["relations"][i] >= 1).tolist() == [name == wanted for name in shown]
    for (name, of_all), share in zip(scores.items(), (1, 1 / 4), strict=True):
        # of the texts, whose best picture shows what their own shows
        agrees = shown[of_all.argmax(axis=1)] == shown
        assert agrees.mean() == pytest.approx(share, abs=0.08 * (share < 1)), name
        # the own picture is anywhere among those that could be meant
        chance = [np.log2(np.arange(1, n + 1)).mean() for n in (of_all >= 1).sum(axis=1)]
        assert np.log2(full_ranks(of_all)).mean() == pytest.approx(np.mean(chance), abs=0.2)


def test_words_of_controlled_pairs_start_at_random_and_oracles_are_scored():
    arrays = prepare(controlled.load(TOY), SMALL, "controlled")
    assert len(arrays.words) == 2 + 10 + 12
    assert not arrays.words[0].any()
    assert arrays.words[1:].std() == pytest.approx(1, abs=0.15)
    assert set(arrays.truth) == {"relations", "things"}


def test_every_recorded_collection_has_its_name():
    names = [collections.HELPFUL, collections.UNDECIDING]
    for name, pairs in load_study("controlled", names).items():
        assert len(pairs.train) == CONTROLLED[name].pairs
        assert pairs.relations == collections.relations_of(name)
    for name, dials in CONTROLLED.items():
        numbers = f"{dials.relations} relations, {dials.cues} cues, {dials.pairs} pairs"
        assert name == numbers + ", deciding nothing" * (dials.decides == 0)


# --- Arrays --------------------------------------------------------------------------------------


def test_a_picture_is_the_mean_and_the_maximum_of_its_regions():
    regions = np.arange(24, dtype=np.float32).reshape(4, 3, 2)
    seen = collections.pooled(replace(tiny_coherence.related(4), features=regions)).features
    assert seen[0, 0].tolist() == [2, 3, 4, 5]


def test_vocabulary_and_scales_are_of_training_pairs_alone():
    pairs = Pairs(*(tiny_coherence.related(n, i) for i, n in enumerate((60, 20, 30))))
    arrays = prepare(pairs, SMALL, "world")
    strange = replace(pairs.test, texts=tuple("never seen" for _ in pairs.test.texts))
    other = prepare(replace(pairs, test=strange), SMALL, "world")
    np.testing.assert_array_equal(arrays.words, other.words)
    assert (other.splits["test"].ids[:, :2] == 1).all()
    train = arrays.splits["train"].images
    assert abs(train.mean(axis=0)).max() < 1e-4
    assert train.std(axis=0) == pytest.approx(np.ones(10), abs=0.02)
    assert not arrays.words[0].any()
    assert arrays.fingerprint == prepare(pairs, SMALL, "world").fingerprint
    short = prepare(pairs, replace(SMALL, max_words=3), "world")
    assert short.splits["train"].ids.shape[1] == 3
    assert data.tokens_of("paper")("A Dog.") == spaced_tokens("A Dog.")
    assert data.tokens_of("world")("A Dog.") == ["a", "dog", "."]


# --- The tier "paper", on made-up files ----------------------------------------------------------


@pytest.fixture
def clue_folder(tmp_path, monkeypatch):
    """60 training and 20 test pairs on 40 and 20 images; the file of each ninth is missing."""
    folder = tmp_path / "clue"
    (folder / "images").mkdir(parents=True)
    rng = np.random.default_rng(0)
    numbers = {}
    for split, pairs, images in (("train", 60, 40), ("test", 20, 20)):
        rows = []
        for i in range(pairs):
            url = f"https://x.org/{split}/{i % images}.jpg"
            numbers.setdefault(url, len(numbers))
            labels = [str(int(flag)) for flag in (rng.random(6) < 0.5)]
            text = f"A picture, number {i % images} of {split} ."
            index = i if split == "train" or i < 12 else 5000 + i  # the last 8 are a machine's
            rows.append([i, index, text, url, *labels, *"0000", "False"])
        with clue.split_file(split, folder).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([clue.COLUMNS, *rows])
    (folder / "img2idxmap.json").write_text(json.dumps(numbers))
    for number in numbers.values():
        if number % 9:
            noise = rng.integers(0, 256, size=(5, 7, 3), dtype=np.uint8)
            Image.fromarray(noise).resize((70, 50)).save(folder / "images" / f"{number}.jpg")
    monkeypatch.setenv("MMLIB_DATA", str(tmp_path))
    return folder


def test_missing_images_are_counted_and_what_is_damaged_is_named(clue_folder):
    study = load_study("paper")
    assert list(study) == ["clue", "clue clean"]
    pairs, clean = study["clue"], study["clue clean"]
    # Images 0, 9, 18, 27 and 36 of 40 in training: 0, 9 and 18 stand in two pairs each.
    # In test 45 and 54 of 40 to 59.
    assert len(pairs.train) + len(pairs.val) == 60 - 8
    assert len(pairs.test) == 18
    counted, *left_out = pairs.missing.split("; left out: ")
    assert counted == (
        "train: 5 of 40 images missing, 0 unreadable: 8 of 60 pairs left out; "
        "test: 2 of 20 images missing, 0 unreadable: 2 of 20 pairs left out"
    )
    assert len(left_out) == 2
    assert "q2-8_train_dis_11-08.csv: is missing" in left_out[1]
    assert not set(pairs.train.image_of) & set(pairs.val.image_of)
    assert load_study("paper", seed=1)["clue"].val.texts != pairs.val.texts
    assert clean.test.human.all()
    assert set(clean.test.texts) < set(pairs.test.texts)
    assert clean.train.texts == pairs.train.texts
    path = clue_folder.parent / "cite" / "q2-8_train_dis_11-08.csv"
    path.parent.mkdir()
    path.write_text("qimg,stim_txt\n")
    damaged = "q2-8_train_dis_11-08.csv, line 1: the columns are"
    assert damaged in load_study("paper")["clue"].missing
    with pytest.raises(DataError, match=damaged):
        load_study("paper", ["cite++"])


def test_public_cite_is_split_by_recipe(monkeypatch):
    names = (*(f"recipe{i // 3}_{i % 3}_0.jpg" for i in range(60)), "7.jpg")
    one = tiny_coherence.related(61, relations=cite.RELATIONS)
    whole = replace(one, image_ids=names, image_of=np.arange(61))
    monkeypatch.setattr(cite, "load_with_images", lambda split: (whole, f"{split}: none missing"))
    pairs = paper.load_collection("cite", 0)
    seen = [set(paper.recipes(pairs.split(s))) for s in ("train", "val", "test")]
    assert sum(map(len, seen)) == len(set().union(*seen)) == 21
    assert sum(len(pairs.split(s)) for s in ("train", "val", "test")) == 61
    assert pairs.missing == "all: none missing"


class Seven(torch.nn.Module):
    """In place of ResNet-50: maps of the same width, with something to train."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Linear(3, 2048)

    def forward(self, pictures):
        small = torch.nn.functional.adaptive_avg_pool2d(pictures, 2)
        return self.weight(small.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def test_small_files_are_recorded_and_judged(clue_folder, monkeypatch, tmp_path):
    monkeypatch.setattr(run, "_resnet50", Seven)
    monkeypatch.setitem(run.BUDGETS, "paper", SMALL)
    named = ("--datasets", "clue", "--systems", "CMCA,CMCM")
    claims = record_in_two_goes(monkeypatch, run, "01", tmp_path, *named)
    assert {claim["verdict"] for claim in claims if claim["id"] == "K6"} == {"undecided"}
    names = {path.name for path in (tmp_path / "judged").iterdir()}
    assert {"ledger.csv", "results_clue.csv", "overview.png"} <= names


def test_a_system_is_trained_on_pictures_from_end_to_end(clue_folder, monkeypatch):
    made = []
    monkeypatch.setattr(run, "_resnet50", lambda: made.append(Seven()) or made[-1])

    def loaded(seed=0):
        return prepare(load_study("paper", ["clue"], seed)["clue"], SMALL, "paper")

    arrays = loaded()
    start = run.make(CMCA, SMALL, arrays, 0).images.backbone.weight.weight
    for one in (CMCA, CMCM):
        job = Job("coherence", "paper", "clue", asdict(one), 0, asdict(SMALL))
        answer = run.train_and_score(job, arrays)
        assert run.train_and_score(job, arrays).history == answer.history  # also of random crops
        assert len(answer.values["test"]["rank"]) == 18
        assert "rank, true relations" not in answer.values["test"]
        assert not torch.allclose(made[-1].weight.weight, start, atol=1e-6)  # it was trained
    stages = run.stages("paper", {"clue": arrays}, [0])
    assert {job.system["system"] for job in stages[0].jobs} == {"Random"}
    marks = {arrays.fingerprint, loaded().fingerprint, loaded(seed=1).fingerprint}
    Image.new("RGB", (70, 50)).save(clue_folder / "images" / "1.jpg")  # another picture
    assert len(marks | {loaded().fingerprint}) == 3


def test_pictures_are_cropped_at_random_in_training_and_in_the_centre_else():
    wide = np.zeros((40, 120, 3), dtype=np.uint8)
    wide[..., 0] = np.linspace(0, 255, 120).astype(np.uint8)  # red grows to the right
    both = [Image.fromarray(wide), Image.new("RGB", (300, 900), (255, 255, 255))]
    pictures = Pictures(replace(tiny_coherence.related(2), open_image=both.__getitem__))
    rows = np.array([0, 1, 0])
    centre = pictures(rows, False)
    assert centre.shape == (3, 3, 224, 224)
    assert torch.equal(centre, pictures(rows, False))
    # White is (1 - mean) / deviation of ImageNet.
    white = [(1 - 0.485) / 0.229, (1 - 0.456) / 0.224, (1 - 0.406) / 0.225]
    assert centre[1, :, 0, 0].tolist() == pytest.approx(white, abs=1e-4)
    # The centre holds the middle third, from 85 to 170 of 255.
    red = centre[0, 0] * 0.229 + 0.485
    assert (red.min() * 255, red.max() * 255) == pytest.approx((85, 170), abs=3)
    moved = pictures(np.zeros(8, dtype=int), True)
    assert len({round(float(mean), 3) for mean in moved[:, 0].mean(dim=(1, 2))}) > 4


def test_the_image_network_gives_one_vector_a_picture():
    """The real ResNet-50, untrained: its last maps, in training mode, with slopes."""
    from mmlib.features import backbones

    with pytest.MonkeyPatch.context() as patch:
        load = backbones.load
        patch.setattr(backbones, "load", lambda name: load(name, weights="random"))
        network = run._resnet50()
    assert network.training
    assert sum(p.numel() for p in network.parameters()) == 23_508_032  # spec of ResNet-50
    assert ImageEncoder(2048, 8, network)(torch.randn(2, 3, 64, 64)).shape == (2, 8)
