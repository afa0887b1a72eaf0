"""Captions to scene graphs (CORA, Pham et al., CVPR 2024, section 3.1 and the authors' JSON).

A scene graph is a `networkx.MultiDiGraph`:

- `graph.graph`: `text`, the caption; `fallback`, whether nothing was found in it and one node
  stands for the whole.
- object nodes 0..n-1 in order of appearance: `type="object"`, `label="construction workers"`.
- attribute nodes (object, 0), (object, 1), ...: `type="attribute"`, `label="colored"`,
  `adverbs=("brightly",)`.
- edges object -> its attribute: `type="attribute"`, `label="has"`; object -> object:
  `type="relation"`, `label="jump over"`, `words=("jump",)`, `preposition="over"`.

The rules that find them in a dependency tree are in `mmlib.grammar`. spaCy is imported only where
a caption is parsed: graphs from the authors' files need none.
"""

import json
import logging
import re
import sqlite3
import textwrap
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import networkx as nx
import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from mmlib.datasets.problem import DataError
from mmlib.grammar import RULES, entry_of
from mmlib.parallel import in_processes
from mmlib.paths import write_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from spacy.language import Language
    from spacy.tokens import Doc

    from mmlib.world.captions import Caption

log = logging.getLogger(__name__)

Entry = dict[str, Any]  # one caption's value in the authors' `scene_graph` JSON
NO_LABEL = "with"  # stands for an empty relation label; the authors draw a word at random
LONGEST = 100_000  # characters of a text; the parser needs about 1 GB for 100,000 words
CHUNK = 1000  # texts parsed, and written to the cache, together
UNUSED = ("ner", "lemmatizer", "trainable_lemmatizer", "senter", "textcat", "entity_linker")
# fmt: off
FUNCTION_WORDS = frozenset(
    "a an the this that these those some any no every each all both i me my we us our you your he "
    "him his she her it its they them their who what which there here is are was were be been am "
    "being do does did have has had will would can could should may might must and or but nor if "
    "so as at by for from in into of off on onto out over to up with without than then too very "
    "not just only how when where why while it's i'm that's oh".split()
)
# fmt: on


# --- The authors' JSON ------------------------------------------------------------------------


def from_authors(entry: Mapping[str, Any]) -> nx.MultiDiGraph:
    """The graph of one entry of the authors' `scene_graph` JSON (spec 2.3).

    Names and attributes are lower-cased; the first element of an attribute is not read; an empty
    relation label becomes "with"; an entry without entities gives one fallback node.

    Raises ValueError that says what is wrong with the entry.
    """
    try:
        text, entities, relations = entry["caption"], entry["entities"], entry["relations"]
        graph = nx.MultiDiGraph(text=str(text), fallback=bool(entry.get("fallback", not entities)))
        place: dict[Any, int] = {}
        for i, entity in enumerate(entities):
            if place.setdefault(entity["id"], i) != i:
                raise ValueError(f"two entities have the id {entity['id']!r}")
            _add_object(graph, i, entity["name"])
            for _, label, adverbs in entity["attributes"]:
                add_attribute(graph, i, _text(label), _words(adverbs))
        for subject, object_, words, preposition in relations:
            if subject not in place or object_ not in place:
                raise ValueError(f"a relation joins {subject!r} and {object_!r}: no such entities")
            ends = place[subject], place[object_]
            add_relation(graph, *ends, _words(words), _text(preposition))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a scene graph as the authors write it: {error!r}") from error
    if not entities:
        graph.graph["fallback"] = True
        _add_object(graph, 0, fallback_label(graph.graph["text"]))
    return graph


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} stands where a text should be")
    return value.lower()


def _words(value: object) -> list[str]:
    if not isinstance(value, list):
        raise ValueError(f"{value!r} stands where a list of words should be")
    return [_text(word) for word in value]


def _add_object(graph: nx.MultiDiGraph, i: int, name: object) -> None:
    label = _text(name)
    if not label.strip():
        raise ValueError(f"entity {i} has no name")
    graph.add_node(i, type="object", label=label)


def add_attribute(
    graph: nx.MultiDiGraph, i: int, label: str, adverbs: Sequence[str] = ()
) -> tuple[int, int]:
    """Give object i one more attribute; returns its node."""
    k = 0
    while (i, k) in graph:
        k += 1
    graph.add_node((i, k), type="attribute", label=label, adverbs=tuple(adverbs))
    graph.add_edge(i, (i, k), type="attribute", label="has")
    return i, k


def add_relation(
    graph: nx.MultiDiGraph, subject: int, object_: int, words: Sequence[str], preposition: str
) -> None:
    """Join two objects; without words and preposition the label is "with"."""
    if not preposition and not any(words):
        words, preposition = (), NO_LABEL
    label = " ".join(word for word in (*words, preposition) if word)
    graph.add_edge(
        subject, object_, type="relation", label=label, words=tuple(words), preposition=preposition
    )


def fallback_label(text: str) -> str:
    """A caption's words without function words; the whole text if none are left."""
    words = re.findall(r"[^\W_]+(?:['’-][^\W_]+)*", text.lower())
    content = [word for word in words if word not in FUNCTION_WORDS]
    return " ".join(content) or " ".join(text.lower().split()) or "(nothing)"


def objects(graph: nx.MultiDiGraph) -> list[int]:
    """The object nodes, 0..n-1."""
    return [i for i, kind in graph.nodes(data="type") if kind == "object"]


def attributes(graph: nx.MultiDiGraph, i: int) -> list[tuple[int, int]]:
    """The attribute nodes of object i."""
    return [j for j in graph.successors(i) if graph.nodes[j]["type"] == "attribute"]


def relations(graph: nx.MultiDiGraph) -> list[tuple[int, int, dict[str, Any]]]:
    """(subject, object, data of the edge) of each relation."""
    return [edge for edge in graph.edges(data=True) if edge[2]["type"] == "relation"]


def phrase(graph: nx.MultiDiGraph, node: Any) -> str:
    """The words of a node as the model reads them: an attribute's adverbs follow it (spec 2.3)."""
    data = graph.nodes[node]
    return " ".join((data["label"], *data.get("adverbs", ())))


def to_authors(graph: nx.MultiDiGraph) -> Entry:
    """The entry of the authors' JSON; `from_authors` makes an equal graph of it.

    A fallback node is written as an entity, which their loader needs, and marked by a key of ours
    that it does not read.
    """
    entities, count = [], 0
    for i in objects(graph):
        said = []
        for node in attributes(graph, i):
            data = graph.nodes[node]
            said.append([count, data["label"], list(data["adverbs"])])
            count += 1
        entities.append({"id": i, "name": graph.nodes[i]["label"], "attributes": said})
    joined = [[s, o, list(d["words"]), d["preposition"]] for s, o, d in relations(graph)]
    entry = {"caption": graph.graph["text"], "entities": entities, "relations": joined}
    return entry | ({"fallback": True} if graph.graph["fallback"] else {})


def write_authors(graphs: Sequence[nx.MultiDiGraph], path: Path) -> None:
    """Write a split's graphs as the authors' `{split}.json`; keys are "0", "1", ..."""
    entries = {str(i): to_authors(graph) for i, graph in enumerate(graphs)}
    write_atomic(path, lambda temporary: temporary.write_text(json.dumps(entries)))


def read_authors(path: Path) -> list[nx.MultiDiGraph]:
    """Read the authors' `{split}.json`: the graphs in the order of the captions.

    Raises DataError naming the file, the caption and the mend.
    """
    try:
        entries = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_once)
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file (get it again)") from error
    except ValueError as error:
        raise DataError(f"{path}: cannot be read: {error} (get it again)") from error
    if not isinstance(entries, dict) or set(entries) != {str(i) for i in range(len(entries))}:
        raise DataError(f'{path}: its keys are not "0", "1", ... without a gap (get it again)')
    graphs = []
    for i in range(len(entries)):
        try:
            graphs.append(from_authors(entries[str(i)]))
        except ValueError as error:
            raise DataError(f'{path}, caption "{i}": {error} (mend or remove it)') from error
    return graphs


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(made := dict(pairs)) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return made


# --- Parsing ---------------------------------------------------------------------------------


def graph_of(doc: "Doc") -> nx.MultiDiGraph:
    """The scene graph of a parsed caption; see `mmlib.grammar.entry_of` for what counts as what.

    Always has an object: where the rules find none, a fallback node with the caption's content
    words (the paper's parser fails there).
    """
    return from_authors(entry_of(doc))


def fallback_rate(graphs: Sequence[nx.MultiDiGraph]) -> float:
    """Share of graphs in which nothing was found."""
    return sum(graph.graph["fallback"] for graph in graphs) / len(graphs)


def parse(
    texts: Sequence[str],
    nlp: "Language | str | Path | None" = None,
    cache: Path | None = None,
    workers: int = 1,
    progress: bool | None = None,
) -> list[nx.MultiDiGraph]:
    """The scene graphs of captions, in their order; equal captions have graphs of their own.

    nlp: a spaCy pipeline, or its name or folder; None is the one that mmlib brings along.
    cache: file that keeps the graphs by text, pipeline and version of the rules; what is parsed
        is written every 1,000 texts, so that an interrupted run goes on where it was.
    workers: processes that parse.
    progress: show a bar; None shows one for more than 1,000 texts.

    Raises ValueError for a text that is no valid Unicode or has more than 100,000 characters.
    """
    for i, text in enumerate(texts):
        _check_text(i, text)
    entries: dict[str, Entry] = {}
    version = ""
    if cache is not None:
        version = _version(_loaded(nlp))
        entries = _read_cache(cache, version, texts)
    missing = [text for text in dict.fromkeys(texts) if text not in entries]
    chunks = [missing[i : i + CHUNK] for i in range(0, len(missing), CHUNK)]
    hidden = len(missing) <= CHUNK if progress is None else not progress
    with tqdm(total=len(missing), desc="parse", leave=False, disable=hidden) as bar:
        for found in _parse_chunks(chunks, nlp, workers):
            entries.update(found)
            if cache is not None:
                _write_cache(cache, version, found)
            bar.update(len(found))
    return [from_authors(entries[text]) for text in texts]


def _check_text(i: int, text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"text {i}: character {error.start} is half a character (a lone surrogate): "
            "read its file as UTF-8 again"
        ) from error
    if len(text) > LONGEST:
        raise ValueError(f"text {i} has {len(text)} characters: a caption has at most {LONGEST}")


@lru_cache(maxsize=2)
def _by_name(name: str | Path | None) -> "Language":
    from mmlib.parser import load_english

    return load_english(name)


def _loaded(nlp: "Language | str | Path | None") -> "Language":
    return _by_name(nlp) if nlp is None or isinstance(nlp, str | Path) else nlp


def _version(nlp: "Language") -> str:
    from mmlib.parser import pipeline_version

    return f"rules {RULES}, {pipeline_version(nlp)}"


def _parse_chunks(
    chunks: Sequence[list[str]], nlp: "Language | str | Path | None", workers: int
) -> Iterator[dict[str, Entry]]:
    if workers == 1 or len(chunks) < 2:
        return (_parse_chunk(chunk, nlp) for chunk in chunks)
    # A process of its own loads a named pipeline itself, once, and gets a copy of another one.
    return in_processes(_parse_chunk, [(chunk, nlp) for chunk in chunks], workers)


def _parse_chunk(texts: list[str], nlp: "Language | str | Path | None") -> dict[str, Entry]:
    pipeline = _loaded(nlp)
    unused = [name for name in pipeline.pipe_names if name in UNUSED]
    docs = pipeline.pipe(texts, disable=unused, batch_size=256)
    return {text: entry_of(doc) for text, doc in zip(texts, docs, strict=True)}


# --- The cache -------------------------------------------------------------------------------

TABLES = """
CREATE TABLE IF NOT EXISTS parsers (id INTEGER PRIMARY KEY, version TEXT UNIQUE);
CREATE TABLE IF NOT EXISTS graphs (
    parser INTEGER, text TEXT, entry BLOB, PRIMARY KEY (parser, text)
) WITHOUT ROWID;
"""


def _read_cache(path: Path, version: str, texts: Iterable[str]) -> dict[str, Entry]:
    """The entries of these texts that the cache has; a damaged cache is put aside and has none."""
    if not path.exists():
        return {}
    wanted = set(texts)
    try:
        with closing(sqlite3.connect(path)) as db:
            rows = db.execute(
                "SELECT text, entry FROM graphs JOIN parsers ON parser = id WHERE version = ?",
                (version,),
            )
            # zlib's check sum finds what SQLite does not check
            found = {t: json.loads(zlib.decompress(packed)) for t, packed in rows if t in wanted}
            return {text: {"caption": text, **entry} for text, entry in found.items()}
    except (sqlite3.DatabaseError, zlib.error, ValueError, TypeError) as error:
        aside = path.with_name(f"{path.name}.damaged")
        log.warning(
            "%s: damaged cache of scene graphs (%s); it is made anew, the old file is now %s",
            path, error, aside.name,
        )  # fmt: skip
        path.replace(aside)
        return {}


def _write_cache(path: Path, version: str, entries: Mapping[str, Entry]) -> None:
    """Add entries in one transaction: all of them or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path, timeout=60)) as db, db:
        db.executescript(TABLES)
        db.execute("INSERT OR IGNORE INTO parsers (version) VALUES (?)", (version,))
        (parser,) = db.execute("SELECT id FROM parsers WHERE version = ?", (version,)).fetchone()
        rows = ((parser, text, _packed(entry)) for text, entry in entries.items())
        db.executemany("INSERT OR REPLACE INTO graphs VALUES (?, ?, ?)", rows)


def _packed(entry: Entry) -> bytes:
    kept = {key: value for key, value in entry.items() if key != "caption"}
    return zlib.compress(json.dumps(kept, separators=(",", ":")).encode())


# --- Errors on purpose -------------------------------------------------------------------------

ERRORS = ("tokens", "attribute", "edge")
LOST = "[UNK]"  # what is left of an object whose only word is dropped


def corrupt(
    graph: nx.MultiDiGraph, kind: str, rate: float, rng: np.random.Generator
) -> nx.MultiDiGraph:
    """The graph, with probability `rate` with one parse error of a kind (paper, section 9).

    kind: "tokens", a word of one node or relation is dropped; "attribute", one attribute moves to
        another object; "edge", one relation moves to another pair of objects; "mixed", one of the
        three that the graph has room for.
    The paper does not say how many errors a caption gets; here it is one. A graph in which there
    is nothing to move stays as it is. `graph.graph["error"]` of the result names what was done,
    or is None. The given graph is not changed.

    Raises ValueError for another kind or a rate outside [0, 1].
    """
    if kind not in (*ERRORS, "mixed") or not 0 <= rate <= 1:
        raise ValueError(f"no parse error of kind {kind!r} at rate {rate}: see corrupt's docstring")
    made = graph.copy()
    made.graph["error"] = None
    several = len(objects(graph)) > 1
    room = {
        "tokens": True,
        "attribute": several and any(attributes(graph, i) for i in objects(graph)),
        "edge": several and bool(relations(graph)),
    }
    chosen = kind
    hit, draw = rng.random() < rate, rng.integers(2**31)  # as many draws for each graph
    if kind == "mixed":
        possible = [name for name in ERRORS if room[name]]
        chosen = possible[draw % len(possible)]
    if not hit or not room[chosen]:
        return made
    {"tokens": _drop_token, "attribute": _move_attribute, "edge": _move_edge}[chosen](
        made, np.random.default_rng(draw)
    )
    made.graph["error"] = chosen
    return made


def _drop_token(graph: nx.MultiDiGraph, rng: np.random.Generator) -> None:
    """Drop one word of one label; what has no word left is "[UNK]" or "with"."""
    places: list[tuple[dict[str, Any], str, int]] = []
    for data in [d for _, d in graph.nodes(data=True)] + [d for _, _, d in relations(graph)]:
        for field in (
            ("words", "preposition") if data["type"] == "relation" else ("label", "adverbs")
        ):
            value = data.get(field, ())
            words = value.split() if isinstance(value, str) else value
            places += [(data, field, k) for k in range(len(words))]
    data, field, k = places[rng.integers(len(places))]
    value = data[field]
    words = value.split() if isinstance(value, str) else list(value)
    del words[k]
    data[field] = " ".join(words) if isinstance(value, str) else tuple(words)
    if data["type"] == "relation":
        data["label"] = " ".join((*data["words"], data["preposition"])).strip()
        if not data["label"]:
            data["label"] = data["preposition"] = NO_LABEL
    elif not data["label"]:
        data["label"] = LOST


def _move_attribute(graph: nx.MultiDiGraph, rng: np.random.Generator) -> None:
    nodes = [node for i in objects(graph) for node in attributes(graph, i)]
    node = nodes[rng.integers(len(nodes))]
    others = [i for i in objects(graph) if i != node[0]]
    data = dict(graph.nodes[node])
    graph.remove_node(node)
    add_attribute(graph, others[rng.integers(len(others))], data["label"], data["adverbs"])


def _move_edge(graph: nx.MultiDiGraph, rng: np.random.Generator) -> None:
    edges = list(graph.edges(keys=True, data=True))
    edges = [edge for edge in edges if edge[3]["type"] == "relation"]
    s, o, key, data = edges[rng.integers(len(edges))]
    pairs = [(a, b) for a in objects(graph) for b in objects(graph) if a != b and (a, b) != (s, o)]
    graph.remove_edge(s, o, key)
    graph.add_edge(*pairs[rng.integers(len(pairs))], **data)


# --- Drawing -----------------------------------------------------------------------------------

OBJECT_COLOUR, ATTRIBUTE_COLOUR, EDGE_COLOUR = "#cfe3f1", "#fbe3c4", "#555555"


def draw(
    graph: nx.MultiDiGraph,
    axes: "Axes | None" = None,
    weights: Mapping[tuple[Any, Any], float] | None = None,
    title: str | None = None,
) -> "Axes":
    """Draw a scene graph: objects from left to right, attributes below them, relations as arcs.

    axes: where to draw; a figure as wide as the graph needs is made otherwise.
    weights: (node, node) -> a weight in [0, 1], such as attention, for edges in the direction
        given: object -> its attribute, subject -> object. They set the edges' width and, in
        percent, stand at them; an edge without a weight is thin.
    title: the caption where None.
    """
    import matplotlib.pyplot as plt

    weights = {} if weights is None else weights
    words = {
        (i, node): _weighted(phrase(graph, node), weights.get((i, node)))
        for i in objects(graph)
        for node in attributes(graph, i)
    }
    arcs = [
        (s, o, _weighted(data["label"], weights.get((s, o))), weights.get((s, o)))
        for s, o, data in relations(graph)
    ]
    at, left, width = _columns(graph, words, arcs)
    depth = max(len(attributes(graph, i)) for i in at)
    repeats = Counter(frozenset(arc[:2]) for arc in arcs)
    height = max((abs(s - o) + 0.55 * repeats[frozenset((s, o))] for s, o, *_ in arcs), default=0)
    if axes is None:
        size = (max(3.5, 0.095 * width + 0.4), 1.2 + 0.42 * (depth + 1) + 0.45 * height)
        axes = plt.subplots(figsize=size)[1]
    for i, x in at.items():
        label = graph.nodes[i]["label"]
        for row, node in enumerate(attributes(graph, i), start=1):
            thick = _thickness(weights.get((i, node)))
            spine = [x, left[i], left[i], x]  # round the attributes above this one
            axes.plot(spine, [0, 0, -row, -row], color=EDGE_COLOUR, linewidth=thick, zorder=1)
            _box(axes, x, -row, words[i, node], ATTRIBUTE_COLOUR)
        _box(axes, x, 0, label, OBJECT_COLOUR)
    for s, o, label, weight in arcs:
        repeats[frozenset((s, o))] -= 1
        level = abs(s - o) + 0.55 * repeats[frozenset((s, o))]
        _arc(axes, at[s], at[o], level, label, _thickness(weight))
    axes.set(xlim=(0, width), ylim=(-depth - 0.5, height + 0.5))
    text = graph.graph["text"] if title is None else title
    axes.set_title(textwrap.fill(text, max(30, int(width * 0.95))), fontsize=10)
    axes.axis("off")
    return axes


def _weighted(label: str, weight: float | None) -> str:
    return label if weight is None else f"{label} {weight:.0%}"


def _thickness(weight: float | None) -> float:
    """Of a line, in points."""
    return 1.0 if weight is None else 0.4 + 4 * weight


def _wrap(text: str) -> list[str]:
    return textwrap.wrap(text, 18) or [text]


def _columns(
    graph: nx.MultiDiGraph, words: Mapping[Any, str], arcs: Sequence[tuple[int, int, str, Any]]
) -> tuple[dict[int, float], dict[int, float], float]:
    """Middle and left end of each object's column, and the whole width, in characters."""
    at: dict[int, float] = {}
    left: dict[int, float] = {}
    x = 2.0
    for i in objects(graph):
        texts = [graph.nodes[i]["label"], *(words[i, node] for node in attributes(graph, i))]
        wide = 3.5 + max(len(line) for text in texts for line in _wrap(text))
        if i:
            between = [len(label) for s, o, label, _ in arcs if {s, o} == {i - 1, i}]
            x += max(2.0, max(between, default=0) + 4 - (x - at[i - 1] + wide / 2))
        at[i], left[i] = x + wide / 2, x
        x += wide
    return at, left, x + 1


def _box(axes: "Axes", x: float, y: float, text: str, colour: str) -> None:
    box = {"boxstyle": "round,pad=0.3", "facecolor": colour, "edgecolor": "#888888"}
    lines = "\n".join(_wrap(text))
    axes.text(x, y, lines, ha="center", va="center", fontsize=9, bbox=box, zorder=3)


def _arc(
    axes: "Axes", start: float, end: float, height: float, label: str, thickness: float
) -> None:
    """An arrow from one object to another, above them all, with its label."""
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path as Curve

    shift = 0.8 if end > start else -0.8  # arrows that leave and reach a box stand apart
    foot = 0.3
    bend = (4 * height - foot) / 3  # the curve's middle is at `height`
    points = [
        (start + shift, foot),
        (start + shift, bend),
        (end - shift, bend),
        (end - shift, foot),
    ]
    arrow = FancyArrowPatch(
        path=Curve(points, [Curve.MOVETO] + [Curve.CURVE4] * 3),
        arrowstyle="-|>",
        mutation_scale=10 + thickness,
        color=EDGE_COLOUR,
        fill=False,
        linewidth=thickness,
        zorder=1,
    )
    axes.add_patch(arrow)
    white = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none"}
    middle = (start + end) / 2
    axes.text(
        middle, height, label, ha="center", va="center", fontsize=8, style="italic", bbox=white
    )


# --- Comparing with gold graphs ----------------------------------------------------------------

KINDS = ("objects", "attributes", "relations")
Item = tuple[str, ...]


class Counts(NamedTuple):
    """What two graphs share (tp), what only the predicted one (fp) or the gold one (fn) has."""

    tp: int
    fp: int
    fn: int

    def __add__(self, other: "Counts") -> "Counts":  # type: ignore[override]
        return Counts(*(a + b for a, b in zip(self, other, strict=True)))


def items(graph: nx.MultiDiGraph) -> dict[str, Counter[Item]]:
    """What a graph states, as multisets by kind; a fallback node states nothing.

    objects: (label,); attributes: (object, attribute with its adverbs); relations: (subject,
    label, object).
    """
    if graph.graph["fallback"]:
        return {kind: Counter() for kind in KINDS}
    label = {i: graph.nodes[i]["label"] for i in objects(graph)}
    return {
        "objects": Counter((name,) for name in label.values()),
        "attributes": Counter(
            (label[i], phrase(graph, node)) for i in label for node in attributes(graph, i)
        ),
        "relations": Counter(
            (label[s], data["label"], label[o]) for s, o, data in relations(graph)
        ),
    }


def compare(predicted: nx.MultiDiGraph, gold: nx.MultiDiGraph) -> dict[str, Counts]:
    """How many objects, attributes and relations are right, too many and missing.

    Labels must be equal. What the gold graph does not know for certain (its `aside`, see
    `from_world`) is taken out of both first.
    """
    found, true = _comparable(predicted, gold)
    return {
        kind: Counts(
            (found[kind] & true[kind]).total(),
            (found[kind] - true[kind]).total(),
            (true[kind] - found[kind]).total(),
        )
        for kind in KINDS
    }


def _comparable(
    predicted: nx.MultiDiGraph, gold: nx.MultiDiGraph
) -> tuple[dict[str, Counter[Item]], dict[str, Counter[Item]]]:
    aside = gold.graph.get("aside", ())
    return items(without(predicted, aside)), items(without(gold, aside))


def without(graph: nx.MultiDiGraph, phrases: Sequence[str]) -> nx.MultiDiGraph:
    """The graph as if its caption had not said these phrases: without the objects named in them.

    A verb that stood in a relation only to such an object ("standing in the park") becomes an
    attribute of its subject, as it would be without the place.
    """
    gone = [
        i
        for i in objects(graph)
        if any(re.search(rf"\b{re.escape(graph.nodes[i]['label'])}\b", p) for p in phrases)
    ]
    if not gone:
        return graph
    kept = graph.copy()
    kept.remove_nodes_from([node for i in gone for node in (i, *attributes(graph, i))])
    for subject, _, data in relations(graph):
        others = [d["words"] for s, o, d in relations(kept) if subject in (s, o)]
        if subject in kept and data["words"] and data["words"] not in others:
            said = " ".join(data["words"])
            if said not in [phrase(kept, node) for node in attributes(kept, subject)]:
                add_attribute(kept, subject, said)
    return kept


def score(
    pairs: Iterable[tuple[nx.MultiDiGraph, nx.MultiDiGraph]],
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Precision, recall and F1 over (predicted, gold) pairs, and what was confused with what.

    The first table has a row for each kind and one for all together; counts are summed over the
    pairs. The second counts, by kind, the sorts of errors, most frequent first, with an example
    of the form gold -> predicted.
    """
    total = dict.fromkeys(KINDS, Counts(0, 0, 0))
    errors: dict[tuple[str, str], list[str]] = {}
    for predicted, gold in pairs:
        counts = compare(predicted, gold)
        total = {kind: total[kind] + counts[kind] for kind in KINDS}
        for kind, what, example in confusions(predicted, gold):
            errors.setdefault((kind, what), []).append(example)
    total["all"] = total["objects"] + total["attributes"] + total["relations"]
    scores = pd.DataFrame(
        {
            kind: {
                "precision": c.tp / max(c.tp + c.fp, 1),
                "recall": c.tp / max(c.tp + c.fn, 1),
                "F1": 2 * c.tp / max(2 * c.tp + c.fp + c.fn, 1),
                "gold": c.tp + c.fn,
            }
            for kind, c in total.items()
        }
    ).T.astype({"gold": int})
    rows = [(*key, len(some), some[0]) for key, some in errors.items()]
    rows.sort(key=lambda row: -row[2])
    return scores, pd.DataFrame(rows, columns=["kind", "error", "count", "example"])


def confusions(predicted: nx.MultiDiGraph, gold: nx.MultiDiGraph) -> Iterator[tuple[str, str, str]]:
    """(kind, error, "gold -> predicted") of each difference; items alike in part go together."""
    found, true = _comparable(predicted, gold)
    for kind in KINDS:
        extra = list((found[kind] - true[kind]).elements())
        missing = list((true[kind] - found[kind]).elements())
        pairs = sorted(
            ((_alike(m, e), m, e) for m in set(missing) for e in set(extra)), reverse=True
        )
        for alike, m, e in pairs:
            if alike and m in missing and e in extra:
                missing.remove(m)
                extra.remove(e)
                yield kind, _difference(kind, m, e), f"{_written(m)} -> {_written(e)}"
        yield from ((kind, "missing", f"{_written(m)} ->") for m in missing)
        yield from ((kind, "too many", f"-> {_written(e)}") for e in extra)


def _alike(gold: Item, found: Item) -> float:
    """How many parts two items share; words in common count a little."""
    words = len(set(" ".join(gold).split()) & set(" ".join(found).split()))
    return sum(a == b for a, b in zip(gold, found, strict=True)) + 0.1 * words


def _difference(kind: str, gold: Item, found: Item) -> str:
    names = {
        "objects": ("other name",),
        "attributes": ("at another object", "other words"),
        "relations": ("other subject", "other label", "other object"),
    }[kind]
    return ", ".join(n for n, a, b in zip(names, gold, found, strict=True) if a != b)


def _written(item: Item) -> str:
    return f"({' | '.join(item)})" if item[1:] else item[0]


# --- The picture world's gold graphs -----------------------------------------------------------


def from_world(caption: "Caption") -> nx.MultiDiGraph:
    """A world caption's gold graph, as a careful reader of its text would write it.

    The world's own graph has a node for each thing ("two dogs" are two nodes) and takes phrases
    such as "lying on the ground" for one action; here they follow the words, as the rules do. The
    world does not say what the place and the style belong to: here it is the first object. As
    another reading is as good, `aside` holds these phrases, and `compare` leaves them out.
    """
    from mmlib.world.wording import as_written

    return as_written(caption)
