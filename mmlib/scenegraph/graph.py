"""Captions to scene graphs (CORA, Pham et al., CVPR 2024, Section 3.2 and the authors' JSON).

A scene graph is a `networkx.MultiDiGraph`:

- `graph.graph`: `text`, the caption; `fallback`, whether nothing was found in it and one node
  stands for the whole.
- object nodes 0..n-1 in order of appearance: `type="object"`, `label="construction workers"`.
- attribute nodes (object, 0), (object, 1), ...: `type="attribute"`, `label="colored"`,
  `adverbs=("brightly",)`.
- edges object -> its attribute: `type="attribute"`, `label="has"`; object -> object:
  `type="relation"`, `label="jump over"`, `words=("jump",)`, `preposition="over"`.

The rules that find them in a dependency tree are in `mmlib.scenegraph.rules`. spaCy is imported
only where a caption is parsed: graphs from the authors' files need none.
"""

import hashlib
import itertools
import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
from tqdm.auto import tqdm

from mmlib.core.files import cached
from mmlib.core.parallel import in_processes
from mmlib.core.records import canonical
from mmlib.core.source import source_hash
from mmlib.scenegraph.parser import load_english, pipeline_version
from mmlib.scenegraph.rules import entry_of
from mmlib.scenegraph.trees import WORDS

if TYPE_CHECKING:
    from spacy.tokens import Doc

Entry = dict[str, Any]  # one caption's value in the authors' `scene_graph` JSON
NO_LABEL = "with"  # stands for an empty relation label; the authors draw a word at random
LONGEST = 100_000  # characters of a text; the parser needs about 1 GB for 100,000 words
CHUNK = 1000  # texts parsed, and written to the cache, together
ARTICLES = frozenset("a an A An".split())
IN_TITLES = frozenset("And At By From In Is Of On To With".split())


# --- The authors' JSON ------------------------------------------------------------------------


def from_authors(entry: Mapping[str, Any]) -> nx.MultiDiGraph:
    """The graph of one entry of the authors' `scene_graph` JSON.

    Names and attributes are lower-cased and single-spaced; the first element of an attribute is not
    read; an empty relation label becomes "with"; an entry without entities gives one fallback node.

    Raises ValueError that says what is wrong with the entry.
    """
    try:
        text, entities, relations = str(entry["caption"]), entry["entities"], entry["relations"]
        fallback = bool(entry.get("fallback") or not entities)
        graph = nx.MultiDiGraph(text=text, fallback=fallback)
        node_of: dict[Any, int] = {}
        for i, entity in enumerate(entities):
            if node_of.setdefault(entity["id"], i) != i:
                raise ValueError(f"two entities have the id {entity['id']!r}")
            _add_object(graph, i, entity["name"])
            for _, label, adverbs in entity["attributes"]:
                add_attribute(graph, i, label, adverbs)
        for subject, object_, words, preposition in relations:
            if subject not in node_of or object_ not in node_of:
                raise ValueError(f"a relation joins {subject!r} and {object_!r}: no such entities")
            add_relation(graph, node_of[subject], node_of[object_], words, preposition)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a scene graph as the authors write it: {error!r}") from error
    if not entities:
        _add_object(graph, 0, fallback_label(text))
    return graph


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} stands where a text should be")
    return canonical(value).lower()


def _texts(values: Sequence[str]) -> tuple[str, ...]:
    if isinstance(values, str):
        raise ValueError(f"{values!r} stands where a list of words should be")
    return tuple(map(_text, values))


def _add_object(graph: nx.MultiDiGraph, i: int, name: object) -> None:
    if not (label := _text(name)):
        raise ValueError(f"entity {i} has no name")
    graph.add_node(i, type="object", label=label)


def add_attribute(
    graph: nx.MultiDiGraph, i: int, label: str, adverbs: Sequence[str] = ()
) -> tuple[int, int]:
    """Give object i one more attribute; returns its node."""
    k = next(k for k in itertools.count() if (i, k) not in graph)
    graph.add_node((i, k), type="attribute", label=_text(label), adverbs=_texts(adverbs))
    graph.add_edge(i, (i, k), type="attribute", label="has")
    return i, k


def add_relation(
    graph: nx.MultiDiGraph, subject: int, object_: int, words: Sequence[str], preposition: str
) -> None:
    """Join two objects; without words and preposition the label is "with"."""
    words, preposition = _texts(words), _text(preposition)
    if not preposition and not any(words):
        words, preposition = (), NO_LABEL
    label = " ".join(word for word in (*words, preposition) if word)
    graph.add_edge(
        subject, object_, type="relation", label=label, words=words, preposition=preposition
    )


def fallback_label(text: str) -> str:
    """A caption's words without function words; the whole text if none are left."""
    text = _text(text)
    words = re.findall(r"[^\s!-/:-@[-`{-~]+(?:['-][^\s!-/:-@[-`{-~]+)*", text)
    content = [word for word in words if word not in WORDS["function_words"]]
    return " ".join(content) or text or "(nothing)"


def objects(graph: nx.MultiDiGraph) -> list[int]:
    """The object nodes, 0..n-1."""
    return [i for i, kind in graph.nodes(data="type") if kind == "object"]


def attributes(graph: nx.MultiDiGraph, i: int) -> list[tuple[int, int]]:
    """The attribute nodes of object i."""
    return [j for j in graph.successors(i) if graph.nodes[j]["type"] == "attribute"]


def relations(graph: nx.MultiDiGraph) -> list[tuple[int, int, dict[str, Any]]]:
    """(subject, object, data of the edge) of each relation.

    Without `graph.edges`, which the graph keeps and which refers to the graph: such cycles wait for
    Python's collector, by the gigabyte where many graphs come and go.
    """
    return [
        (subject, object_, data)
        for subject, others in graph.adjacency()
        for object_, edges in others.items()
        for data in edges.values()
        if data["type"] == "relation"
    ]


def phrase(graph: nx.MultiDiGraph, node: Any) -> str:
    """The words of a node as the model reads them: an attribute's adverbs follow it."""
    data = graph.nodes[node]
    return " ".join((data["label"], *data.get("adverbs", ())))


def to_authors(graph: nx.MultiDiGraph) -> Entry:
    """The entry of the authors' JSON; `from_authors` makes an equal graph of it.

    A fallback node is written as an entity, which their loader needs, and marked by a key of ours
    that it does not read.
    """
    entities, numbers = [], itertools.count()  # attributes are numbered through the caption
    for i in objects(graph):
        data = [graph.nodes[node] for node in attributes(graph, i)]
        listed = [[next(numbers), each["label"], list(each["adverbs"])] for each in data]
        entities.append({"id": i, "name": graph.nodes[i]["label"], "attributes": listed})
    edges = [[s, o, list(d["words"]), d["preposition"]] for s, o, d in relations(graph)]
    entry = {"caption": graph.graph["text"], "entities": entities, "relations": edges}
    return entry | ({"fallback": True} if graph.graph["fallback"] else {})


class Graphs(Sequence[nx.MultiDiGraph]):
    """The graphs of many captions, stored packed; each is unpacked whenever it is asked for.

    packed: captions and what `pack` made of their entries. As networkx graphs, half a million
    captions would take 4 GB; packed they take 0.2 GB, and 0.1 ms for each graph that is made.
    """

    def __init__(self, packed: Iterable[tuple[str, bytes]]) -> None:
        self._packed = list(packed)

    def __len__(self) -> int:
        return len(self._packed)

    def __getitem__(self, i: int) -> nx.MultiDiGraph:  # type: ignore[override]
        text, packed = self._packed[i]
        return from_authors({"caption": text, **json.loads(zlib.decompress(packed))})


def pack(entry: Entry) -> bytes:
    """An entry of the authors' JSON in few bytes, without its caption."""
    content = {key: value for key, value in entry.items() if key != "caption"}
    return zlib.compress(json.dumps(content, separators=(",", ":")).encode())


# --- Parsing ---------------------------------------------------------------------------------


def sentence_case(text: str) -> str:
    """A caption as the pipeline reads it: `canonical`, without capitals that only show a style.

    A caption in capitals or in title case becomes lower case: the pipeline takes words with a
    capital for names. In title case all but function words have one. That alone may be a list of
    names, so there must be an article, too, or a function word with a capital.
    """
    text = canonical(text)
    words = re.findall(r"(?<![\w'-])[^\W\d_]\w*", text)
    small = {word for word in words if word.islower()}
    if small - WORDS["function_words"] - WORDS["before_places"]:
        return text
    in_title_case = ARTICLES.intersection(words) or IN_TITLES.intersection(words[1:])
    # Of "ß", which has no capital, and of "ª" nothing can be said.
    in_capitals = not any(char != char.upper() and char == char.upper().lower() for char in text)
    return text.lower() if in_title_case or in_capitals else text


def graph_of(doc: "Doc") -> nx.MultiDiGraph:
    """The scene graph of a parsed caption; `rules.entry_of` says what counts as what.

    Always has an object: where the rules find none, a fallback node with the caption's content
    words (the paper's parser fails there).
    """
    return from_authors(entry_of(doc))


def parse(texts: Sequence[str], cache: Path | None = None, workers: int = 1) -> Graphs:
    """The scene graphs of captions, in their order.

    Texts are read as `sentence_case` has them; `text` of a graph is as written.

    cache: folder that keeps the graphs of every 1,000 texts in a file of their own, so that an
        interrupted run goes on where it was.
    workers: processes that parse.

    Raises ValueError for a text that is no valid Unicode or has more than 100,000 characters.
    """
    for i, text in enumerate(texts):
        if half := re.search("[\ud800-\udfff]", text):
            raise ValueError(
                f"text {i}: character {half.start()} is half a character (a lone surrogate): "
                "read its file as UTF-8 again"
            )
        if len(text) > LONGEST:
            raise ValueError(f"text {i} has {len(text)} characters, a caption at most {LONGEST}")
    distinct = list(dict.fromkeys(texts))
    by = [source_hash(__name__), pipeline_version(load_english())] if cache else []
    calls: list[tuple[list[str], Path | None]] = []
    for start in range(0, len(distinct), CHUNK):
        chunk = distinct[start : start + CHUNK]
        key = hashlib.sha256(json.dumps([*by, chunk]).encode()).hexdigest()
        calls.append((chunk, cache / f"{key[:32]}.safetensors" if cache else None))
    missing = sum(not (path and path.exists()) for _, path in calls)
    packed: dict[str, bytes] = {}
    with tqdm(total=len(distinct), desc="parse", leave=False, disable=missing < 2) as bar:
        for parsed in in_processes(_parse_chunk, calls, workers if missing > 1 else 1):
            packed |= parsed
            bar.update(len(parsed))
    return Graphs((text, packed[text]) for text in texts)


def _parse_chunk(texts: list[str], path: Path | None) -> dict[str, bytes]:
    """Each text's entry, packed; they are kept in a file, if any."""

    def parsed() -> dict[str, np.ndarray]:
        docs = load_english().pipe(map(sentence_case, texts), batch_size=256)
        text = json.dumps([entry_of(doc) for doc in docs])
        return {"entries": np.frombuffer(zlib.compress(text.encode()), np.uint8)}

    entries = json.loads(zlib.decompress(cached(path, parsed)["entries"].tobytes()))
    return dict(zip(texts, map(pack, entries), strict=True))


# --- Errors on purpose -------------------------------------------------------------------------

LOST = "[UNK]"  # what is left of an object whose only word is dropped


def _drop_token(graph: nx.MultiDiGraph, rng: np.random.Generator) -> None:
    """Drop one word of one label; what has no word left is "[UNK]" or "with"."""

    def words_of(data: Mapping[str, Any], field: str) -> list[str]:
        value = data.get(field, ())
        return value.split() if isinstance(value, str) else list(value)

    positions: list[tuple[dict[str, Any], str, int]] = []
    for data in [d for _, d in graph.nodes(data=True)] + [d for _, _, d in relations(graph)]:
        relation = data["type"] == "relation"
        for field in ("words", "preposition") if relation else ("label", "adverbs"):
            positions += [(data, field, k) for k in range(len(words_of(data, field)))]
    data, field, k = positions[rng.integers(len(positions))]
    words = words_of(data, field)
    del words[k]
    data[field] = " ".join(words) if isinstance(data[field], str) else tuple(words)
    if data["type"] == "relation":
        data["label"] = " ".join((*data["words"], data["preposition"])).strip()
        if not data["label"]:
            data["label"] = data["preposition"] = NO_LABEL
    elif not data["label"]:
        data["label"] = LOST


def corrupt(
    graph: nx.MultiDiGraph, kind: str, rate: float, rng: np.random.Generator
) -> nx.MultiDiGraph:
    """A copy of the graph with, at probability `rate`, one parse error (paper, section 9).

    kind: "tokens", a word of one node or relation is dropped; "attribute", one attribute moves to
        another object; "edge", one relation moves to another pair of objects; "mixed", one of the
        three that the graph has room for.
    The paper does not say how many errors a caption gets; here it is one. A graph in which there
    is nothing to move stays as it is. `graph.graph["error"]` of the result names what was done,
    or is None. The given graph is not changed.

    Raises ValueError for another kind or a rate outside [0, 1].
    """
    if kind not in ("tokens", "attribute", "edge", "mixed") or not 0 <= rate <= 1:
        raise ValueError(f"no parse error of kind {kind!r} at rate {rate}: see corrupt's docstring")
    copy = graph.copy()
    copy.graph["error"] = None
    hit, draw = rng.random() < rate, rng.integers(2**31)  # as many draws for each graph
    nodes = objects(graph)
    listed = [node for i in nodes for node in attributes(graph, i)]
    every = copy.edges(keys=True, data=True)
    edges = [edge for edge in every if edge[3]["type"] == "relation"]
    several = len(nodes) > 1
    possible = {"tokens": True, "attribute": several and listed, "edge": several and edges}
    choices = [name for name in possible if possible[name] and kind in (name, "mixed")]
    if not hit or not choices:
        return copy
    copy.graph["error"] = choices[draw % len(choices)]
    rng = np.random.default_rng(draw)
    if copy.graph["error"] == "tokens":
        _drop_token(copy, rng)
    elif copy.graph["error"] == "attribute":
        node = listed[rng.integers(len(listed))]
        others = [i for i in nodes if i != node[0]]
        data = dict(copy.nodes[node])
        copy.remove_node(node)
        add_attribute(copy, others[rng.integers(len(others))], data["label"], data["adverbs"])
    else:
        s, o, key, data = edges[rng.integers(len(edges))]
        pairs = [(a, b) for a in nodes for b in nodes if a != b and (a, b) != (s, o)]
        copy.remove_edge(s, o, key)
        copy.add_edge(*pairs[rng.integers(len(pairs))], **data)
    return copy
