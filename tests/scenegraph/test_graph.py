"""Scene graphs: the rules on trees, the authors' JSON, the cache, quality, errors."""

import gc
import json
import random
import re
import weakref
from html import escape
from pathlib import Path
from unicodedata import normalize

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from scripts import until

from mmlib.papers.cora.data.gold_graphs import gold_graph
from mmlib.scenegraph import (
    Graphs,
    attributes,
    corrupt,
    draw,
    from_authors,
    graph_of,
    objects,
    pack,
    parse,
    phrase,
    relations,
    score,
    to_authors,
    trees,
)
from mmlib.scenegraph import graph as graphs
from mmlib.scenegraph.graph import LOST, fallback_label, sentence_case
from mmlib.scenegraph.rules import _Reader
from mmlib.scenegraph.score import compare, items
from mmlib.world.captions import captions
from mmlib.world.scenes import sample_scene, split_seeds

HAND = Path(__file__).parent / "caption_graphs.json"


# --- The rules, on trees made by hand ------------------------------------------------------------

TABLES = yaml.safe_load(Path(__file__).with_name("texts.yaml").read_text(encoding="utf-8"))
CASES = yaml.safe_load(Path(__file__).with_name("rules.yaml").read_text(encoding="utf-8"))

NEGATIONS = yaml.safe_load(Path(__file__).with_name("negations.yaml").read_text(encoding="utf-8"))


def doc_of(tokens):
    """A spaCy Doc of word/pos/label/head tokens; "_" after a word: no blank before and after."""
    from spacy.tokens import Doc
    from spacy.vocab import Vocab

    rows = [token.rsplit("/", 3) for token in tokens.split()]
    glued = [word.endswith("_") for word, *_ in rows]
    return Doc(
        Vocab(),
        words=[word.rstrip("_") for word, *_ in rows],
        spaces=[not (g or after) for g, after in zip(glued, [*glued[1:], False], strict=True)],
        pos=[pos for _, pos, _, _ in rows],
        deps=["ROOT" if label == "root" else label for *_, label, _ in rows],
        heads=[int(h) - 1 if h != "0" else i for i, (*_, h) in enumerate(rows)],
    )


def read(graph):
    """({object: [attributes]}, [relations]) in words."""
    described = {
        phrase(graph, i): [phrase(graph, node) for node in attributes(graph, i)]
        for i in objects(graph)
    }
    label = {i: graph.nodes[i]["label"] for i in objects(graph)}
    return described, sorted(f"{label[s]}|{d['label']}|{label[o]}" for s, o, d in relations(graph))


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_the_rules(case):
    assert read(graph_of(doc_of(case[1]))) == (case[2], sorted(case[3]))


def test_an_unparsed_text_is_refused():
    from spacy.tokens import Doc
    from spacy.vocab import Vocab

    with pytest.raises(ValueError, match="no dependency tree"):
        graph_of(Doc(Vocab(), ["a", "dog"]))


LABELS = (
    "nsubj nsubj:pass obj iobj obl obl:agent nmod nmod:poss case mark cc det amod nummod advmod "
    "acl acl:relcl advcl xcomp ccomp conj compound compound:prt flat fixed appos cop aux aux:pass "
    "expl parataxis list root csubj obl:unmarked punct dep dobj pobj prep pcomp nsubjpass relcl "
    "prt acomp attr oprd auxpass agent poss npadvmod dative neg"
).split()
WORDS = (
    "man dog pair of group in front to the left next is be was one other each another who that and "
    "by - , sits wearing looks quickly up men shoes middle 3 😀 others while not"
).split()
PHRASES = ("each other", "one another", "in front of", "next to", "a pair of", "in a shirt") * 3
POS = "NOUN VERB ADJ ADP DET PROPN PRON NUM AUX ADV SCONJ CCONJ PUNCT".split()


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 14), st.integers(0, 2**32))
def test_the_rules_survive_any_tree(n, seed):
    rng = random.Random(seed)
    words = [word for _ in range(n) for word in rng.choice((*WORDS, *PHRASES)).split()]
    order = rng.sample(range(len(words)), len(words))
    heads = [0] * len(words)
    for k in range(1, len(words)):
        heads[order[k]] = order[rng.randrange(k)] + 1
    tokens = " ".join(
        f"{word}/{rng.choice(POS)}/{rng.choice(LABELS) if h else 'root'}/{h}"
        for word, h in zip(words, heads, strict=True)
    )
    graph = graph_of(doc_of(tokens))
    assert objects(graph)
    assert all(graph.nodes[i]["label"].strip() for i in objects(graph))
    assert all(data["label"] for *_, data in relations(graph))


def test_long_chains_need_no_recursion():
    for word, label in (("dog", "compound"), ("pair", "nmod"), ("men", "conj"), ("runs", "xcomp")):
        n = 4000
        pos = ["VERB" if word == "runs" else "NOUN"] * n
        tree = trees.Tree([word] * n, pos, list(range(-1, n - 1)), ["root"] + [label] * (n - 1))
        tree.link()
        _Reader(tree).read()


# --- The authors' JSON ---------------------------------------------------------------------------

EXAMPLE = {
    "caption": "Two construction workers jump quickly over a salmon-colored fence near a dog.",
    "entities": [
        {
            "id": 0,
            "name": "Construction workers",
            "attributes": [[0, "two", []], [1, "jump", ["quickly"]]],
        },
        {"id": "f", "name": "fence", "attributes": [["x", "Salmon-colored", []]]},
        {"id": 7, "name": "dog", "attributes": []},
    ],
    "relations": [[0, "f", ["jump"], "over"], ["f", 7, [], "near"], [7, "f", [], ""]],
}


def test_the_authors_entry_is_read_as_their_loader_does():
    graph = from_authors(EXAMPLE)
    described, related = read(graph)
    assert described == {
        "construction workers": ["two", "jump quickly"], "fence": ["salmon-colored"], "dog": [],
    }  # fmt: skip
    assert related == sorted(
        ["construction workers|jump over|fence", "fence|near|dog", "dog|with|fence"]
    )
    assert graph.edges[2, 1, 0]["preposition"] == "with"  # theirs is a random word


word = st.text("abcdé -'", min_size=1).filter(str.strip)
adverbs = st.lists(word, max_size=2)


def same(a, b):
    return nx.utils.graphs_equal(a, b) and a.graph == b.graph


@given(st.data())
def test_there_and_back(data):
    described = st.lists(st.tuples(st.just(0), word, adverbs), max_size=3)
    named = data.draw(st.lists(st.tuples(word, described), min_size=1, max_size=5))
    end = st.integers(0, len(named) - 1)
    entry = {
        "caption": "a text",
        "entities": [{"id": i, "name": n, "attributes": a} for i, (n, a) in enumerate(named)],
        "relations": data.draw(st.lists(st.tuples(end, end, adverbs, word), max_size=4)),
    }
    graph = from_authors(entry)
    again = from_authors(json.loads(json.dumps(to_authors(graph))))
    assert same(graph, again)
    assert to_authors(again) == to_authors(graph)


def test_a_caption_without_entities_gets_the_fallback_node():
    graph = from_authors({"caption": "I am so happy to see this view!", "entities": [],
                          "relations": []})  # fmt: skip
    assert graph.graph["fallback"]
    assert read(graph) == ({"happy see view": []}, [])
    again = from_authors(to_authors(graph))
    assert same(graph, again)


@given(st.text())
def test_the_fallback_label_is_never_empty(text):
    assert fallback_label(text).strip()
    assert from_authors({"caption": text, "entities": [], "relations": []}).graph["fallback"]


@pytest.mark.parametrize(("content", "message"), TABLES["entries"])
def test_bad_entries_are_named(content, message):
    with pytest.raises(ValueError, match=message):
        from_authors(json.loads(content)["0"])


def test_a_graph_whose_relations_were_read_goes_at_once():
    (graph,) = parse(["a man on a horse"])
    gone = weakref.ref(graph)
    gc.disable()  # it must not wait for the collector
    try:
        assert relations(graph)
        del graph
        assert gone() is None
    finally:
        gc.enable()


def test_packed_graphs_are_the_same_graphs():
    entries = [to_authors(graph) for graph in parse(["a red dog", "a man on a horse", "Wow!"])]
    packed = Graphs((entry["caption"], pack(entry)) for entry in entries)
    assert [to_authors(graph) for graph in packed] == entries
    assert len(packed) == 3
    assert packed[-1].graph["text"] == "Wow!"
    packed[0].clear()  # a graph of one's own
    assert to_authors(packed[0]) == entries[0]
    with pytest.raises(IndexError):
        packed[3]


# --- Parsing -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def english():
    from mmlib.scenegraph.parser import load_english

    return load_english()


TEXTS = ["A man rides a horse.", "two red balls", "a dog", "A man rides a horse.", "Wow!", ""]


def test_parse_gives_each_text_its_graph(english):
    graphs = parse(TEXTS)
    assert [graph.graph["text"] for graph in graphs] == TEXTS
    assert read(graphs[0]) == ({"man": [], "horse": []}, ["man|rides|horse"])
    assert same(graphs[0], graphs[3])
    assert graphs[0] is not graphs[3]
    assert [graph.graph["fallback"] for graph in graphs] == [False] * 4 + [True] * 2
    assert same(graph_of(english(TEXTS[0])), graphs[0])
    assert list(parse([])) == []


CAFE = {"man": [], "café": [], "coffee": []}, ["man|drinks|coffee", "man|in|café"]
PLAIN = {
    "There isn't a dog on the beach.": NEGATIONS["There isn't a dog on the beach."],
    "A man in a café drinks coffee.": CAFE,
    "a red car & a dog": ({"car": ["red"], "dog": []}, []),
}
CHANGES = {
    "typographic": lambda text: text.replace("'", "’"),
    "NFD": lambda text: normalize("NFD", text),
    "entities": lambda text: escape(escape(text)).replace("é", "&amp;eacute;"),
    "invisible": lambda text: re.sub(r"(?<=\w)(?=\w)", "\u00ad\u200b", f"\ufeff{text}\u200e"),
    "capitals": str.upper,
    "title case": lambda text: text.title().replace("N'T", "n't"),
    **{ascii(white): lambda text, white=white: f"{white}{text}{white}".replace(" ", white)
       for white in ("\n", "\r\n", " \t ", "   ", "\u00a0", "\u2028", "\u3000\n", "\u3164")},
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("text", PLAIN)
def test_a_text_has_its_graph_however_it_is_written(text, change, english):
    written, (described, related) = CHANGES[change](text), PLAIN[text]
    (graph,) = parse([written])
    assert (read(graph), graph.graph["text"]) == ((described, sorted(related)), written)
    if change == "typographic":  # its tokens are those of spaCy
        assert read(graph_of(english(written))) == (described, sorted(related))


@pytest.mark.parametrize(("text", "read_as"), TABLES["styles"])
def test_capitals_that_show_a_style_are_not_read(text, read_as):
    assert sentence_case(text) == read_as


def test_white_space_parts_words_with_hyphens():
    from spacy.tokens import Doc
    from spacy.vocab import Vocab

    for words, heads, expected in (
        (["red", "-", "brown", "dog"], [3, 0, 0, 3], ["red-brown", "", "", "dog"]),
        (["red", "\n", "-", "brown", "dog"], [4, 0, 1, 1, 4], ["red", "-", "brown", "dog"]),
    ):
        n = len(words)
        doc = Doc(Vocab(), words, spaces=[False] * n, pos=["X"] * n, deps=["dep"] * n, heads=heads)
        tree = trees.tree_of(doc)
        assert tree.words == expected
        assert tree.is_sound()


def test_labels_of_others_lose_their_white_space():
    graph = from_authors({
        "caption": "x", "relations": [[0, 1, ["jump\n"], "\tover "]],
        "entities": [
            {"id": 0, "name": " red\u00a0 ca\u00adr\n", "attributes": [[0, "very\told", ["too "]]]},
            {"id": 1, "name": "dog", "attributes": []},
        ],
    })  # fmt: skip
    assert read(graph) == ({"red car": ["very old too"], "dog": []}, ["red car|jump over|dog"])
    with pytest.raises(ValueError, match="entity 0 has no name"):
        from_authors({"caption": "x", "entities": [{"id": 0, "name": "\n\u2028", "attributes": []}],
                      "relations": []})  # fmt: skip


@pytest.mark.parametrize("text", NEGATIONS)
def test_what_is_not_there_has_the_attribute_no(text):
    described, related = NEGATIONS[text]
    assert read(parse([text])[0]) == (described, sorted(related))


@pytest.mark.slow
def test_workers_change_nothing(english, monkeypatch):
    monkeypatch.setattr(graphs, "CHUNK", 2)
    one, two = parse(TEXTS), parse(TEXTS, workers=2)
    assert all(same(a, b) for a, b in zip(one, two, strict=True))


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=60))
def test_any_text_gives_a_graph(text):
    (graph,) = parse([text])
    assert objects(graph)
    assert all(graph.nodes[i]["label"].strip() for i in objects(graph))
    assert same(graph, from_authors(json.loads(json.dumps(to_authors(graph)))))


@pytest.mark.parametrize(
    ("text", "message"), [("a \ud800 dog", "text 1: character 2"), ("a" * 200_000, "text 1 has")]
)
def test_what_cannot_be_parsed_is_named(text, message):
    with pytest.raises(ValueError, match=message):
        parse(["a dog", text])


@pytest.fixture
def counted(monkeypatch):
    """The texts that are really parsed."""
    texts = []
    original = graphs.entry_of

    def entry_of(doc):
        texts.append(doc.text)
        return original(doc)

    monkeypatch.setattr(graphs, "entry_of", entry_of)
    return texts


def test_graphs_are_kept_until_the_rules_are_others(tmp_path, counted, monkeypatch):
    cache, first = tmp_path / "deep" / "graphs", parse(TEXTS)

    def parsed():
        counted.clear()
        assert all(map(same, parse(TEXTS, cache=cache), first))
        return counted

    every = list(dict.fromkeys(TEXTS))
    assert ([*parsed()], [*parsed()]) == (every, [])
    monkeypatch.setattr(graphs, "source_hash", lambda module: "of other rules")
    assert parsed() == every


def test_the_cache_knows_the_pipeline(tmp_path, english, counted, monkeypatch):
    parse(TEXTS, cache=tmp_path)
    other = type(english).from_config(english.config).from_bytes(english.to_bytes())
    for layer in other.get_pipe("parser").model.walk():
        if layer.has_param("W"):
            layer.set_param("W", layer.get_param("W") * 0)
    counted.clear()
    monkeypatch.setattr(graphs, "load_english", lambda: other)
    parse(TEXTS, cache=tmp_path)
    assert counted == list(dict.fromkeys(TEXTS))


def test_an_interrupted_run_goes_on(tmp_path, counted, monkeypatch):
    monkeypatch.setattr(graphs, "CHUNK", 2)
    monkeypatch.setattr(graphs, "entry_of", until(2, graphs.entry_of))
    with pytest.raises(KeyboardInterrupt):
        parse(TEXTS, cache=tmp_path)
    assert counted == TEXTS[:2]
    parse(TEXTS, cache=tmp_path)
    assert counted == list(dict.fromkeys(TEXTS))


# --- Comparing -----------------------------------------------------------------------------------


def entry(objects, relations=(), text="a text"):
    """A graph from "man: tall, thin" and "0 rides 1" in short."""
    named = [line.partition(":") for line in objects]
    return from_authors({
        "caption": text,
        "entities": [
            {"id": i, "name": name,
             "attributes": [[0, a.split()[0], a.split()[1:]] for a in listed.split(",") if a]}
            for i, (name, _, listed) in enumerate(named)
        ],
        "relations": [[s, o, words.split(), ""] for s, words, o in relations],
    })  # fmt: skip


def test_compare_counts_multisets():
    gold = entry(["man:tall", "dog", "dog:big,running fast"], [(0, "holds", 1)])
    predicted = entry(["man:small", "dog", "cat:big", "hat"], [(0, "holds", 1), (0, "holds", 1)])
    counts = compare(predicted, gold)
    assert counts["objects"] == (2, 2, 1)
    assert counts["attributes"] == (0, 2, 3)
    assert counts["relations"] == (1, 1, 0)
    assert all(c.fp == c.fn == 0 for c in compare(gold, gold).values())


def test_a_fallback_node_states_nothing():
    nothing = from_authors({"caption": "wow", "entities": [], "relations": []})
    assert all(not some for some in items(nothing).values())
    assert compare(nothing, nothing)["objects"] == (0, 0, 0)
    assert compare(nothing, entry(["wow"]))["objects"] == (0, 0, 1)


def test_score_sums_over_pairs():
    gold = entry(["man:tall", "dog"], [(0, "holds", 1)])
    result = entry(["man", "dog:tall"], [(1, "holds", 0)])
    table = score([(gold, gold), (result, gold)])
    assert table.loc["objects"].tolist() == [1, 1, 1, 4]
    assert table.loc["relations", ["precision", "recall", "F1"]].tolist() == [0.5, 0.5, 0.5]
    assert table.loc["all", "gold"] == 8


def world_captions(split, scenes):
    return [one for seed in split_seeds(split, scenes) for one in captions(sample_scene(seed))]


def test_gold_graphs_follow_the_text():
    """Every word of every label stands in the caption, objects in the order of the text."""
    for one in world_captions("train", 300):
        graph = gold_graph(one)
        text = one.text.lower()
        nodes = objects(graph)
        assert nodes == list(range(len(nodes)))
        for i in nodes:
            for node in (i, *attributes(graph, i)):
                assert set(phrase(graph, node).split()) <= set(
                    text.replace(".", "").replace(",", "").split()
                )
        assert all(all(w in text for w in d["label"].split()) for *_, d in relations(graph))
        assert to_authors(from_authors(to_authors(graph))) == to_authors(graph)


# --- Quality -------------------------------------------------------------------------------------


def fallback_rate(graphs):
    return np.mean([graph.graph["fallback"] for graph in graphs])


def test_quality_on_the_world(english):
    """F1 at least 0.95 for each kind, on captions of test scenes that no training has seen."""
    captions = world_captions("test", 150)
    graphs = parse([one.text for one in captions])
    table = score(zip(graphs, map(gold_graph, captions), strict=True))
    assert (table.loc[["objects", "attributes", "relations"], "F1"] >= 0.95).all(), table


@pytest.mark.parametrize("style", [str, str.upper, str.title])
def test_quality_on_captions_annotated_by_hand(english, style):
    """F1 at least 0.9 over all kinds, on sentences that show every construction."""
    gold = [from_authors(entry) for entry in json.loads(HAND.read_text()).values()]
    graphs = parse([style(graph.graph["text"]) for graph in gold])
    table = score(zip(graphs, gold, strict=True))
    assert table.loc["all", "F1"] >= 0.9, table
    assert fallback_rate(graphs) <= 2 * fallback_rate(gold)


@pytest.mark.real
def test_flickr8k_is_parsed(real_data, english):
    from mmlib.data import flickr8k

    some = flickr8k.load("val", real_data / "flickr8k").captions
    graphs = parse([text for own in some[:200] for text in own])
    assert fallback_rate(graphs) < 0.01
    assert 2.5 < np.mean([len(objects(graph)) for graph in graphs]) < 4
    assert np.mean([bool(relations(graph)) for graph in graphs]) > 0.85


# --- Errors on purpose ---------------------------------------------------------------------------

RICH = from_authors(EXAMPLE)


@pytest.mark.parametrize("kind", ["tokens", "attribute", "edge", "mixed"])
def test_one_error_is_made(kind):
    before = to_authors(RICH)
    built = {}
    for seed in range(60):
        bad = corrupt(RICH, kind, 1.0, np.random.default_rng(seed))
        assert bad.graph["error"] == kind or kind == "mixed"
        assert not same(bad, RICH)
        assert same(corrupt(RICH, kind, 1.0, np.random.default_rng(seed)), bad)
        assert objects(bad) == objects(RICH)
        assert same(from_authors({**to_authors(bad)}), bad) or "error" in bad.graph
        built[json.dumps(to_authors(bad))] = bad.graph["error"]
        difference = compare(bad, RICH)
        if bad.graph["error"] == "attribute":
            assert difference["objects"].fp == difference["relations"].fp == 0
            assert difference["attributes"].fp == difference["attributes"].fn == 1
        if bad.graph["error"] == "edge":
            assert difference["objects"].fp == difference["attributes"].fp == 0
            assert difference["relations"].fp == difference["relations"].fn == 1
    assert len(built) > 4
    assert kind != "mixed" or set(built.values()) == {"tokens", "attribute", "edge"}
    assert to_authors(RICH) == before


def test_the_rate_is_kept_and_hits_the_same_graphs():
    hits = {}
    for kind in ("tokens", "attribute", "edge"):
        rng = np.random.default_rng(5)
        graphs = [corrupt(RICH, kind, 0.2, rng) for _ in range(1000)]
        hits[kind] = [i for i, graph in enumerate(graphs) if graph.graph["error"]]
        assert 150 < len(hits[kind]) < 250
    assert hits["tokens"] == hits["attribute"] == hits["edge"]
    untouched = corrupt(RICH, "edge", 0.0, rng)
    assert to_authors(untouched) == to_authors(RICH)


def test_where_nothing_can_move_nothing_does():
    lone = entry(["man:tall"])
    for kind in ("attribute", "edge"):
        assert corrupt(lone, kind, 1.0, np.random.default_rng(0)).graph["error"] is None
    bad = [corrupt(lone, "mixed", 1.0, np.random.default_rng(s)) for s in range(20)]
    assert {graph.graph["error"] for graph in bad} == {"tokens"}
    assert LOST in {graph.nodes[0]["label"] for graph in bad}
    with pytest.raises(ValueError, match="kind 'edges'"):
        corrupt(lone, "edges", 0.1, np.random.default_rng(0))
    with pytest.raises(ValueError, match="rate 10"):
        corrupt(lone, "edge", 10, np.random.default_rng(0))


def test_a_drawing_shows_every_label():
    axes = draw(RICH)
    shown = {text.get_text().replace("\n", " ") for text in axes.texts}
    assert shown == {
        "construction workers", "two", "jump quickly", "fence", "salmon-colored", "dog",
        "jump over", "near", "with",
    }  # fmt: skip
    assert len(axes.patches) == 3  # the arrows
    assert EXAMPLE["caption"].lower() in axes.get_title().replace("\n", " ").lower()
    plt.close(axes.figure)
