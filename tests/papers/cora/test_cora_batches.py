"""Graphs and sequences as arrays, their augmentation, and batches of them."""

import math
from collections import Counter
from dataclasses import replace

import cora_oracles as loops
import networkx as nx
import numpy as np
import pytest
import tiny_cora as toys
from drawn import few, many, seeds
from hypothesis import given
from hypothesis import strategies as st

from mmlib.papers.cora.data.texts import Reader
from mmlib.papers.cora.run.batches import drop_regions, mask_words, training_batches
from mmlib.papers.cora.run.systems import CORA, Augmentation, Settings

described_ = st.lists(toys.descriptions(), min_size=1, max_size=5)

# --- Graphs as arrays ----------------------------------------------------------------------------


def read_back(batch):
    """A batch as descriptions: names and attributes in order, relations sorted."""

    def text(row):
        ids = batch.tokens[row][: batch.lengths[row]].tolist()
        assert (ids[0], ids[-1]) == (toys.CLS, toys.SEP)
        assert not batch.tokens[row][batch.lengths[row] :].any()
        return " ".join(toys.WORDS[i] for i in ids[1:-1])

    found = []
    for c in range(batch.captions):
        rows = (batch.caption == c).nonzero().flatten().tolist()
        assert batch.position[rows].tolist() == list(range(len(rows)))
        place = {row: i for i, row in enumerate(rows)}
        objects = [
            (text(batch.objects[r]),
             *(text(a) for a, o in zip(batch.attributes, batch.owner, strict=True) if o == r))
            for r in rows
        ]  # fmt: skip
        ends = zip(batch.subject.tolist(), batch.relations, batch.object.tolist(), strict=True)
        relations = [(place[a], text(r), place[b]) for a, r, b in ends if a in place]
        found.append((objects, sorted(relations)))
    return found


@many
@given(described_, st.data())
def test_a_batch_holds_the_graphs_of_its_rows(described, data):
    rows = data.draw(st.lists(st.integers(0, len(described) - 1), min_size=1, max_size=6))
    texts = toys.graph_set(described)
    batch = texts.batch(np.array(rows))
    wanted = [(objects, sorted(relations)) for objects, relations in (described[r] for r in rows)]
    assert read_back(batch) == wanted
    assert len(batch.tokens) == len({tuple(row) for row in batch.tokens.tolist()})
    names = [texts.phrases[i] for i in batch.names]
    said = [tuple(texts.phrases[a] for a in row if a >= 0) for row in batch.described]
    assert [(n, *s) for n, s in zip(names, said, strict=True)] == [o for w in wanted for o in w[0]]
    entities = batch.caption.numpy(), batch.names, batch.described
    for found, own in zip(texts.entities(np.array(rows)), entities, strict=True):
        assert found.tolist() == own.tolist()


def test_no_more_is_kept_of_a_graph_and_of_a_phrase_than_the_limits():
    looks = [("red", "tall", "two", "young", "dog")]
    crowd = [(f"man{i}", *looks[0]) for i in range(15)]
    ties = [(i, f"link{j}", 14 - i) for i in range(15) for j in range(3)]
    texts = toys.READER.graphs([toys.scene(crowd, ties)])
    batch = texts.batch(np.array([0]))
    assert [texts.phrases[i] for i in batch.names] == [f"man{i}" for i in range(13)]
    assert (len(batch.owner), len(batch.relations)) == (13 * 4, 26)
    assert {texts.phrases[i] for i in batch.described.flatten()} == set(looks[0][:4])
    assert max(batch.subject.max(), batch.object.max()) < 13
    long = "a b c d e f g h i"
    texts = toys.READER.graphs([toys.scene([(long, long)], [(0, long, 0)])])
    assert set(texts.phrases) == {"a b c d e f", "a b c", "a b c d e f g"}
    with pytest.raises(ValueError, match="graph 1 has no object"):
        toys.READER.graphs([toys.scene([("dog",)]), nx.MultiDiGraph()])


# --- Augmentation --------------------------------------------------------------------------------


def within(hits, trials, rate):
    """Whether a count lies within 4.5 standard deviations of what its rate gives."""
    return abs(hits - trials * rate) <= 4.5 * math.sqrt(trials * rate * (1 - rate))


def test_objects_attributes_and_relations_are_dropped_at_their_rates():
    objects = [(f"name{i}", f"look{i}", f"seen{i}") for i in range(6)]
    pairs = [(i, f"tie{i}{j}", j) for i in range(6) for j in range(6) if i < j]
    texts = toys.READER.graphs([toys.scene(objects, pairs)])
    batch = texts.batch(np.zeros(1500, int), toys.HIGH, np.random.default_rng(0))
    kept = np.bincount(batch.caption, minlength=1500)
    assert kept.min() >= 1
    assert within(1500 * 6 - len(batch.objects), 1500 * 6, 0.3)
    assert within(2 * len(batch.objects) - len(batch.owner), 2 * len(batch.objects), 0.2)
    possible = int((kept * (kept - 1) // 2).sum())
    assert within(possible - len(batch.relations), possible, 0.25)
    for name in range(6):  # each place is as likely to go as any other
        row = texts.phrases.index(f"name{name}")
        assert within(1500 - (batch.names == row).sum(), 1500, 0.3)


@few
@given(st.lists(toys.descriptions(), min_size=1, max_size=4), seeds)
def test_an_augmented_graph_is_part_of_the_graph(described, seed):
    unique = [
        ([(f"{toys.NAMES[i]} {name}", *said) for i, (name, *said) in enumerate(objects)], relations)
        for objects, relations in described
    ]
    calm = replace(toys.HIGH, mask=0.0)  # words are left alone
    batch = toys.graph_set(unique).batch(np.arange(len(unique)), calm, np.random.default_rng(seed))
    for (objects, relations), (left, ties) in zip(unique, read_back(batch), strict=True):
        places = [[name for name, *_ in objects].index(name) for name, *_ in left]
        assert places
        assert places == sorted(places)
        for (_, *said), i in zip(left, places, strict=True):
            assert not Counter(said) - Counter(objects[i][1:])
        assert not Counter((places[a], r, places[b]) for a, r, b in ties) - Counter(relations)


@pytest.mark.parametrize("mask", [0.1, 1.0])
def test_words_are_masked_at_their_rate_and_one_is_left(mask):
    ids = np.zeros((2000, 12), int)
    ids[:, :10] = [toys.CLS, *range(100, 108), toys.SEP]
    how = replace(toys.NONE, mask=mask)
    new = mask_words(ids, np.full(2000, 10), toys.MASK, how, np.random.default_rng(1))
    masked, left = new == toys.MASK, new >= 100
    assert (masked.sum() + left.sum(), left.sum(axis=1).min() > 0) == (16000, True)
    for i in range(1, 9):  # every place alike
        assert within(masked[:, i].sum(), 2000, mask if mask < 1 else 7 / 8)
    assert (np.where(masked, ids, new) == ids).all()
    short = np.array([[toys.CLS, 50, toys.SEP], [toys.CLS, toys.SEP, 0]])
    assert (
        mask_words(short, np.array([3, 2]), toys.MASK, how, np.random.default_rng(0)) == short
    ).all()


def fields_of(batch):
    return {k: v.tolist() if hasattr(v, "tolist") else v for k, v in vars(batch).items()}


def test_sequences_are_cut_and_masked():
    texts = toys.READER.sequences(["man hold red cup", "dog", "two dog near fence"])
    plain = texts.batch(np.array([1, 1]))
    assert plain.tokens.tolist() == [[toys.CLS, toys.WORDS.index("dog"), toys.SEP]] * 2
    drawn = texts.batch(np.zeros(500, int), replace(toys.NONE, mask=0.3), np.random.default_rng(0))
    # All four words drawn: one is spared, which takes 0.3 ** 4 / 4 from each word's rate.
    assert within((drawn.tokens == toys.MASK).sum().item(), 2000, 0.3 - 0.3**4 / 4)
    ids = Reader(toys.WORDS, delimiters=False).sequences(["dog"]).tokens[0]
    assert ids[ids > 0].tolist() == [toys.WORDS.index("dog")]


@pytest.mark.parametrize("rate", [0.0, 0.35, 1.0])
def test_regions_are_dropped_at_their_rate_and_never_all(rate):
    features = np.random.default_rng(0).normal(size=(400, 10, 3)).astype(np.float16)
    kept, counts = drop_regions(features, rate, np.random.default_rng(1))
    assert kept.dtype == np.float32
    assert kept.shape == (400, counts.max(), 3)
    assert counts.min() >= 1
    assert within(4000 - counts.sum(), 4000, rate) if rate < 1 else counts.max() == 1
    for row, n, all_ in zip(kept, counts, features, strict=True):
        assert not row[n:].any()
        places = [np.flatnonzero((all_ == r).all(axis=1))[0] for r in row[:n].astype(np.float16)]
        assert (np.diff(places) > 0).all()  # in order, none twice


# --- Batches -------------------------------------------------------------------------------------

PAIRED = toys.paired()


def epochs_of(split, how, size, captions=1, seed=0):
    settings = Settings(**vars(how), batch=size, captions=captions)
    return training_batches(CORA, settings, split, split.texts["graph"], seed)


def numbered(described, image_of):
    """A split whose features (images, 5, INNER) are the number of their image."""
    count = np.arange(max(image_of) + 1, dtype=np.float32)
    return toys.split_of(described, image_of, np.tile(count[:, None, None], (1, 5, toys.INNER)))


@few
@given(
    st.lists(toys.descriptions(3), min_size=6, max_size=6), st.sampled_from(["image", "caption"]),
    st.lists(st.integers(0, 5), min_size=2, max_size=5), seeds,
)  # fmt: skip
def test_a_batch_knows_which_images_contain_which_entities(described, match, rows, seed):
    image_of, captions_of = [0, 0, 0, 1, 2, 2], [[0, 1, 2], [3], [4, 5]]
    split = toys.split_of(described, image_of, np.zeros((3, 5, toys.INNER), np.float32))
    assert [own.tolist() for own in split.captions_of] == captions_of
    batch = toys.drawn_batch(split, toys.HIGH, rows, match=match, seed=seed)
    phrases = split.texts["graph"].phrases
    same = [[image_of[a] == image_of[b] for b in rows] for a in rows]
    assert batch.same.tolist() == same
    names = [phrases[i] for i in batch.text.names]
    said = [[phrases[a] for a in r if a >= 0] for r in batch.text.described]
    for i, row in enumerate(rows):
        searched = captions_of[image_of[row]] if match == "image" else [row]
        there = [(name, looks) for c in searched for name, *looks in described[c][0]]
        for k, c in enumerate(batch.text.caption):
            wanted = same[i][c] or loops.names_it((names[k], said[k]), there)
            assert batch.contains[i, k].item() == wanted


def test_batches_depend_on_seed_and_epoch_alone_and_have_the_rates_of_the_settings():
    def epoch(seed, number, how=toys.HIGH):
        return list(epochs_of(PAIRED, how, 400, 2, seed)(number))

    drawn = [
        [(b.regions.tolist(), b.same.tolist(), fields_of(b.text)) for b in epoch(*at)]
        for at in ((1, 2), (1, 2), (1, 3), (2, 2))
    ]
    assert drawn[0] == drawn[1]
    assert all(other != drawn[0] for other in drawn[2:])
    every = np.tile(np.arange(8), 100)
    how = Augmentation(0.35, 0.0, 0.2, 0.25, 0.3)
    plain, drawn = toys.drawn_batch(PAIRED, toys.NONE, every), toys.drawn_batch(PAIRED, how, every)
    assert (plain.counts == 5).all()
    assert within(4000 - drawn.counts.sum().item(), 4000, 0.35 - 0.35**5 / 5)  # never all
    for name, rate in {"owner": 0.2, "subject": 0.25, "position": 0.0}.items():
        all_, left = (len(getattr(b.text, name)) for b in (plain, drawn))
        assert within(all_ - left, all_, rate)
    assert (drawn.text.tokens == toys.MASK).any()


@pytest.mark.parametrize("captions", [1, 2, 5])
def test_an_epoch_shows_each_image_with_so_many_of_its_captions(captions):
    image_of = np.array([2, 0, 1, 0, 2, 2, 0, 0])  # 4, 1 and 3 captions, in no order
    shown = Counter()
    for batch in epochs_of(numbered(toys.RICH * 2, image_of), toys.NONE, 100, captions)(0):
        shown.update(batch.regions[:, 0, 0].long().tolist())
    assert shown == {0: min(4, captions), 1: 1, 2: min(3, captions)}


def test_captions_keep_their_images_and_come_in_another_order_each_epoch():
    split = numbered([([(f"name{i}",)], []) for i in range(41)], range(41))
    names, orders = split.texts["graph"].phrases, []
    for number in (0, 1):
        drawn = list(epochs_of(split, toys.NONE, 10)(number))
        assert [len(b.regions) for b in drawn] == [10] * 4  # the last one has no negative
        orders.append([int(names[n][4:]) for b in drawn for n in b.text.names])
        assert orders[-1] == [int(i) for b in drawn for i in b.regions[:, 0, 0]]
        assert len(set(orders[-1])) == 40
    assert orders[0] != orders[1]
    assert sorted(orders[0]) != orders[0]


def test_captions_are_drawn_anew_each_epoch():
    split = numbered([*(([(name,)], []) for name in toys.NAMES), ([("man",)], [])], [0] * 5 + [1])
    epoch, phrases = epochs_of(split, toys.NONE, 128), split.texts["graph"].phrases
    drawn = {phrases[n] for i in range(40) for b in epoch(i) for n in b.text.names}
    assert drawn == set(toys.NAMES)
