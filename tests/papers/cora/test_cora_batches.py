"""Graphs and sequences as arrays, their augmentation, and batches of them."""

import math
from collections import Counter
from dataclasses import replace

import cora_oracles as loops
import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_cora import (
    CLS,
    HIGH,
    INNER,
    MASK,
    NAMES,
    NONE,
    READER,
    RICH,
    SEP,
    WORDS,
    descriptions,
    drawn_batch,
    graph_set,
    paired,
    scene,
    split_of,
    whole,
)

from mmlib.papers.cora.data.texts import Reader
from mmlib.papers.cora.method import GraphEncoder
from mmlib.papers.cora.run.batches import drop_regions, mask_words, same_entities, training_batches
from mmlib.papers.cora.run.systems import CORA, Augmentation, Settings
from mmlib.papers.cora.variants import (
    FullyConnectedEncoder,
    FullyConnectedJointEncoder,
    JointEncoder,
)

few = settings(max_examples=25, deadline=None)
many = settings(max_examples=80, deadline=None)
seeds = st.integers(0, 2**32 - 1)

# --- Graphs as arrays ----------------------------------------------------------------------------


def read_back(batch, phrases=None):
    """A batch as descriptions: names and attributes in order, relations sorted."""
    spell = {i: w for i, w in enumerate(WORDS)}

    def text(row):
        ids = batch.tokens[row][: batch.lengths[row]].tolist()
        assert (ids[0], ids[-1]) == (CLS, SEP)
        assert not batch.tokens[row][batch.lengths[row] :].any()
        return " ".join(spell[i] for i in ids[1:-1])

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
@given(st.lists(descriptions(), min_size=1, max_size=5), st.data())
def test_a_batch_holds_the_graphs_of_its_rows(described, data):
    rows = data.draw(st.lists(st.integers(0, len(described) - 1), min_size=1, max_size=6))
    texts = graph_set(described)
    batch = texts.batch(np.array(rows))
    wanted = [(objects, sorted(relations)) for objects, relations in (described[r] for r in rows)]
    assert len(texts) == len(described)
    assert read_back(batch) == wanted
    assert len(batch.tokens) == len({tuple(row) for row in batch.tokens.tolist()})
    names = [texts.phrases[i] for i in batch.names]
    said = [tuple(texts.phrases[a] for a in row if a >= 0) for row in batch.described]
    assert [(n, *s) for n, s in zip(names, said, strict=True)] == [o for w in wanted for o in w[0]]
    which, name, described_ = texts.entities(np.array(rows))
    assert which.tolist() == batch.caption.tolist()
    assert name.tolist() == batch.names.tolist()
    assert described_.tolist() == batch.described.tolist()


@many
@given(st.lists(descriptions(), min_size=1, max_size=4), st.booleans())
def test_edges_are_those_of_the_graphs(described, connected):
    batch = whole(described)
    made, firsts, start = [scene(*d) for d in described], [], 0
    for objects, _ in described:
        firsts.append(start)
        start += len(objects)
    joint, pairs, stars = set(), set(), {(i, i) for i in range(start)}
    attribute = start
    for graph, first in zip(made, firsts, strict=True):
        number = {n: first + n for n, d in graph.nodes(data=True) if d["type"] == "object"}
        for i in list(number):
            for k in range(
                sum(d["type"] == "attribute" for *_, d in graph.out_edges(i, data=True))
            ):
                number[i, k] = attribute
                stars |= {(attribute, number[i]), (number[i], attribute)}
                attribute += 1
        graph = nx.complete_graph(graph.nodes) if connected else graph.to_undirected()
        graph.add_edges_from((n, n) for n in graph.nodes)
        for a, b in graph.edges():
            both = {(number[a], number[b]), (number[b], number[a])}
            joint |= both
            if not isinstance(a, tuple) and not isinstance(b, tuple):
                pairs |= both
    encoder = FullyConnectedEncoder if connected else GraphEncoder
    of_joint = FullyConnectedJointEncoder if connected else JointEncoder
    for got, wanted in (
        (encoder.edges(None, batch), pairs),
        (of_joint.edges(None, batch), joint),
        (batch.attribute_edges(back=True), stars),
        (batch.attribute_edges(), {(s, t) for s, t in stars if t < start}),
    ):
        edges = list(zip(*(ends.tolist() for ends in got), strict=True))
        assert Counter(edges) == Counter(wanted)  # each once


def test_no_more_is_kept_than_the_limits():
    looks = [("red", "tall", "two", "young", "dog")]
    crowd = [(f"man{i}", *looks[0]) for i in range(15)]
    many_ties = [(i, f"link{j}", 14 - i) for i in range(15) for j in range(3)]
    texts = READER.graphs([scene(crowd, many_ties)])
    batch = texts.batch(np.array([0]))
    assert [texts.phrases[i] for i in batch.names] == [f"man{i}" for i in range(13)]
    assert len(batch.owner) == 13 * 4
    assert {texts.phrases[i] for i in batch.described.flatten()} == set(looks[0][:4])
    assert len(batch.relations) == 26
    assert max(batch.subject.max(), batch.object.max()) < 13


def test_phrases_are_cut_at_six_three_and_seven_words():
    long = "a b c d e f g h i"
    texts = READER.graphs([scene([(long, long)], [(0, long, 0)])])
    assert set(texts.phrases) == {"a b c d e f", "a b c", "a b c d e f g"}
    batch = texts.batch(np.array([0]))
    spelt = [int(batch.lengths[kind[0]]) - 2
             for kind in (batch.objects, batch.attributes, batch.relations)]  # fmt: skip
    assert spelt == [6, 3, 7]


def test_a_graph_without_objects_is_refused():
    with pytest.raises(ValueError, match="graph 1 has no object"):
        READER.graphs([scene([("dog",)]), nx.MultiDiGraph()])


# --- Augmentation --------------------------------------------------------------------------------


def within(hits, trials, rate):
    """Whether a count lies within 4.5 standard deviations of what its rate gives."""
    return abs(hits - trials * rate) <= 4.5 * math.sqrt(trials * rate * (1 - rate))


def test_objects_attributes_and_relations_are_dropped_at_their_rates():
    objects = [(f"name{i}", f"look{i}", f"seen{i}") for i in range(6)]
    pairs = [(i, f"tie{i}{j}", j) for i in range(6) for j in range(6) if i < j]
    texts = READER.graphs([scene(objects, pairs)])
    batch = texts.batch(np.zeros(1500, int), HIGH, np.random.default_rng(0))
    kept = torch.bincount(batch.caption, minlength=1500)
    assert kept.min() >= 1
    assert within(1500 * 6 - len(batch.objects), 1500 * 6, 0.3)
    assert within(2 * len(batch.objects) - len(batch.owner), 2 * len(batch.objects), 0.2)
    possible = int((kept * (kept - 1) // 2).sum())
    assert within(possible - len(batch.relations), possible, 0.25)
    # Each place is as likely to go as any other.
    for name in range(6):
        row = texts.phrases.index(f"name{name}")
        assert within(1500 - (batch.names == row).sum(), 1500, 0.3)


@few
@given(st.lists(descriptions(), min_size=1, max_size=4), seeds)
def test_an_augmented_graph_is_part_of_the_graph(described, seed):
    unique = [
        ([(f"{i} {name}", *said) for i, (name, *said) in enumerate(objects)], relations)
        for objects, relations in described
    ]
    reader = Reader((*WORDS, "0", "1", "2", "3"), delimiters=True)
    texts = graph_set(unique, reader)
    calm = replace(HIGH, mask=0.0)  # words are left alone
    batch = texts.batch(np.arange(len(unique)), calm, np.random.default_rng(seed))
    spelt = reader.ids(texts.phrases)[0]
    rows = {tuple(r[r > 0].tolist()): p for r, p in zip(spelt, texts.phrases, strict=True)}
    text = [rows[tuple(r[:n].tolist())] for r, n in zip(batch.tokens, batch.lengths, strict=True)]
    for c, (objects, relations) in enumerate(unique):
        nodes = (batch.caption == c).nonzero().flatten().tolist()
        names = [text[batch.objects[r]] for r in nodes]
        places = [int(name.split()[0]) for name in names]
        assert names == [objects[i][0] for i in places]
        assert names
        assert places == sorted(places)
        assert batch.position[nodes].tolist() == list(range(len(nodes)))
        for r, i in zip(nodes, places, strict=True):
            said = [text[a] for a, o in zip(batch.attributes, batch.owner, strict=True) if o == r]
            assert not Counter(said) - Counter(objects[i][1:])
            numbers = batch.described[r]
            assert [texts.phrases[a] for a in numbers if a >= 0] == said
        at = dict(zip(nodes, places, strict=True))
        ends = zip(batch.subject.tolist(), batch.relations, batch.object.tolist(), strict=True)
        ties = [(at[a], text[r], at[b]) for a, r, b in ends if a in at]
        assert not Counter(ties) - Counter(relations)


def test_everything_but_one_object_may_go_at_rate_one():
    all_gone = Augmentation(0.0, 1.0, 1.0, 1.0, 1.0)
    texts = graph_set(RICH)
    batch = texts.batch(np.arange(4), all_gone, np.random.default_rng(0))
    assert batch.caption.tolist() == [0, 1, 2, 3]
    assert len(batch.owner) == len(batch.relations) == 0
    for row, n in zip(batch.tokens, batch.lengths, strict=True):
        inner = row[1 : n - 1]
        assert (inner != MASK).sum() == 1


@pytest.mark.parametrize("mask", [0.1, 0.3])
def test_words_are_masked_at_their_rate(mask):
    rng = np.random.default_rng(1)
    words = np.arange(100, 108)
    ids = np.zeros((2000, 12), int)
    ids[:, :10] = [CLS, *words, SEP]
    new = mask_words(ids, np.full(2000, 10), MASK, replace(NONE, mask=mask), rng)
    masked, left = (new == MASK).sum(), (new >= 100).sum()
    assert within(masked, 16000, mask)
    assert masked + left == 16000
    for i in range(8):  # every place alike
        assert within((new != 100 + i).all(axis=1).sum(), 2000, mask)
    for row in new:
        assert (row[0], row[9]) == (CLS, SEP)
        assert not row[10:].any()
        inner = row[1:9]
        inner = inner[inner != MASK]
        assert len(inner)
        assert (np.diff(inner) > 0).all()


def test_one_word_is_left_as_it_was():
    ids = np.array([[CLS, 50, SEP, 0, 0], [CLS, 50, 51, SEP, 0], [CLS, SEP, 0, 0, 0]] * 500)
    lengths = np.array([3, 4, 2] * 500)
    new = mask_words(ids, lengths, MASK, replace(NONE, mask=1.0), np.random.default_rng(0))
    assert (new[0::3] == ids[0::3]).all()
    assert (new[2::3] == ids[2::3]).all()
    pairs = new[1::3]
    assert ((pairs >= 50).sum(axis=1) == 1).all()
    assert within((pairs == 50).sum(), 500, 0.5)  # the first as often as the second
    assert ((new != 0) == (ids != 0)).all()


def test_without_a_generator_nothing_is_augmented():
    texts = graph_set(RICH)
    plain = texts.batch(np.arange(4))
    for batch in (texts.batch(np.arange(4), HIGH), texts.batch(np.arange(4), None, None)):
        assert read_back(batch) == read_back(plain)
    calm = texts.batch(np.arange(4), NONE, np.random.default_rng(0))
    assert read_back(calm) == read_back(plain)


def fields_of(batch):
    return {k: v.tolist() if hasattr(v, "tolist") else v for k, v in vars(batch).items()}


def test_a_seed_fixes_the_augmentation():
    texts = graph_set(RICH * 5)

    def drawn(seed):
        return fields_of(texts.batch(np.arange(20), HIGH, np.random.default_rng(seed)))

    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)


def test_sequences_are_cut_and_masked():
    texts = READER.sequences(["man hold red cup", "dog", "two dog near fence"])
    assert len(texts) == 3
    plain = texts.batch(np.array([1, 1]))
    assert plain.tokens.tolist() == [[CLS, WORDS.index("dog"), SEP]] * 2
    drawn = texts.batch(np.zeros(500, int), replace(NONE, mask=0.3), np.random.default_rng(0))
    # All four words drawn: one is spared, which takes 0.3 ** 4 / 4 from each word's rate.
    assert within((drawn.tokens == MASK).sum().item(), 2000, 0.3 - 0.3**4 / 4)


@pytest.mark.parametrize("rate", [0.0, 0.35, 1.0])
def test_regions_are_dropped_at_their_rate_and_never_all(rate):
    features = np.random.default_rng(0).normal(size=(400, 10, 3)).astype(np.float16)
    kept, counts = drop_regions(features, rate, np.random.default_rng(1))
    assert kept.dtype == np.float32
    assert kept.shape == (400, counts.max(), 3)
    if rate in (0, 1):
        assert (counts == (10 if rate == 0 else 1)).all()
    assert within(4000 - counts.sum(), 4000, {0.0: 0.0, 0.35: 0.35, 1.0: 0.9}[rate]) or rate == 1
    for row, n, whole_ in zip(kept, counts, features, strict=True):
        assert n >= 1
        assert not row[n:].any()
        places = [np.flatnonzero((whole_ == r).all(axis=1))[0] for r in row[:n].astype(np.float16)]
        assert (np.diff(places) > 0).all()  # in order, none twice
    again = drop_regions(features, rate, np.random.default_rng(1))
    assert (again[0] == kept).all()


@few
@given(st.lists(descriptions(3), min_size=1, max_size=4), descriptions(), seeds)
def test_same_entities_are_those_of_the_loop(described, other, seed):
    texts = graph_set([*described, other])
    last = np.array([len(described)])
    how, rng = replace(NONE, drop_attributes=0.3), np.random.default_rng(seed)
    batch = texts.batch(np.arange(len(described)), how, rng)
    _, names, attributes = texts.entities(last)
    i, j = same_entities(batch.names, batch.described, names, attributes)
    spelt = [
        (texts.phrases[n], [texts.phrases[a] for a in row if a >= 0])
        for n, row in zip(batch.names, batch.described, strict=True)
    ]
    wanted = {
        (a, b)
        for a, entity in enumerate(spelt)
        for b, (name, *said) in enumerate(other[0])
        if loops.names_it(entity, [(name, said)])
    }
    assert Counter(zip(i.tolist(), j.tolist(), strict=True)) == Counter(wanted)


# --- Batches -------------------------------------------------------------------------------------


def drawn_epochs(split, how, size, captions=1, seed=0):
    settings = Settings(**vars(how), batch=size, captions=captions)
    return training_batches(CORA, settings, split, split.texts["graph"], seed)


def numbered(count):
    """Features (count, 5, INNER) that are the number of their image."""
    return np.tile(np.arange(count, dtype=np.float32)[:, None, None], (1, 5, INNER))


PAIRED = paired()


@few
@given(
    st.lists(descriptions(3), min_size=6, max_size=6), st.sampled_from(["image", "caption"]),
    st.lists(st.integers(0, 5), min_size=2, max_size=5), seeds,
)  # fmt: skip
def test_a_batch_knows_which_images_contain_which_entities(described, match, rows, seed):
    image_of = [0, 0, 0, 1, 2, 2]
    split = split_of(described, image_of, np.zeros((3, 5, INNER), np.float32))
    captions_of = [[0, 1, 2], [3], [4, 5]]
    assert [own.tolist() for own in split.captions_of] == captions_of
    batch = drawn_batch(split, HIGH, rows, match=match, seed=seed)
    texts = split.texts["graph"]
    same = [[image_of[a] == image_of[b] for b in rows] for a in rows]
    assert batch.same.tolist() == same
    names = [texts.phrases[i] for i in batch.text.names]
    said = [[texts.phrases[a] for a in r if a >= 0] for r in batch.text.described]
    for i, row in enumerate(rows):
        searched = captions_of[image_of[row]] if match == "image" else [row]
        there = [(name, looks) for c in searched for name, *looks in described[c][0]]
        for k, c in enumerate(batch.text.caption):
            wanted = same[i][c] or loops.names_it((names[k], said[k]), there)
            assert batch.contains[i, k].item() == wanted


def test_batches_depend_on_seed_and_epoch_alone():

    def epoch(seed, number):
        drawn = list(drawn_epochs(PAIRED, HIGH, 3, 2, seed)(number))
        return [(b.regions.tolist(), b.same.tolist(), fields_of(b.text)) for b in drawn]

    assert epoch(1, 2) == epoch(1, 2)
    assert epoch(1, 2) != epoch(1, 3)
    assert epoch(1, 2) != epoch(2, 2)


def test_batches_are_augmented_at_the_rates_of_the_settings():
    every = np.tile(np.arange(8), 100)
    whole_ = drawn_batch(PAIRED, NONE, every)
    assert (whole_.counts == 5).all()
    assert whole_.text.names.tolist() == PAIRED.texts["graph"].batch(every).names.tolist()
    how = Augmentation(0.35, 0.0, 0.2, 0.25, 0.3)
    drawn = drawn_batch(PAIRED, how, every)
    assert within(4000 - drawn.counts.sum().item(), 4000, 0.35 - 0.35**5 / 5)  # never all
    for name, rate in {"owner": 0.2, "subject": 0.25, "position": 0.0}.items():
        all_, left = (len(getattr(b.text, name)) for b in (whole_, drawn))
        assert within(all_ - left, all_, rate)
    assert (drawn.text.tokens == MASK).any()
    assert not (whole_.text.tokens == MASK).any()


@pytest.mark.parametrize("captions", [1, 2, 5])
def test_an_epoch_shows_each_image_with_so_many_of_its_captions(captions):
    image_of = np.array([2, 0, 1, 0, 2, 2, 0, 0])  # 4, 1 and 3 captions, in no order
    features = np.tile(np.arange(3, dtype=np.float32)[:, None, None] + 1, (1, 5, INNER))
    split = split_of(RICH * 2, image_of, features)
    shown = Counter()
    for batch in drawn_epochs(split, NONE, 100, captions)(0):
        shown.update((batch.regions[:, 0, 0].long() - 1).tolist())
    assert shown == {0: min(4, captions), 1: 1, 2: min(3, captions)}


def test_captions_keep_their_images():
    """Every batch pairs a caption with the regions of its own image."""
    described = [([(name,)], []) for name in ("man", "dog", "fence", "red cup", "old stone house")]
    split = split_of(described, range(5), numbered(5))
    drawn = list(drawn_epochs(split, NONE, 2)(0))
    assert [len(b.regions) for b in drawn] == [2, 2]  # the fifth has no negative
    for batch in drawn:
        names = [split.texts["graph"].phrases[n] for n in batch.text.names]
        assert batch.regions[:, 0, 0].tolist() == [NAMES.index(n) for n in names]


def test_batches_are_shuffled():
    described = [([(f"name{i}",)], []) for i in range(40)]
    split = split_of(described, range(40), numbered(40))
    epoch, phrases = drawn_epochs(split, NONE, 10), split.texts["graph"].phrases
    first, second = ([phrases[n] for b in epoch(number) for n in b.text.names] for number in (0, 1))
    assert sorted(first) == sorted(second) == sorted(phrases)
    assert first != second
    assert phrases not in (tuple(first), tuple(second))


def test_captions_are_drawn_anew_each_epoch():
    described = [([(name,)], []) for name in NAMES]
    split = split_of([*described, ([("man",)], [])], [0, 0, 0, 0, 0, 1], numbered(2))
    epoch, phrases = drawn_epochs(split, NONE, 128), split.texts["graph"].phrases
    drawn = {phrases[n] for i in range(40) for b in epoch(i) for n in b.text.names}
    assert drawn == set(NAMES)
