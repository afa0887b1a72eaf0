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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import networkx as nx
from tqdm.auto import tqdm

from mmlib.datasets.problem import DataError
from mmlib.grammar import RULES, entry_of
from mmlib.paths import write_atomic

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc

log = logging.getLogger(__name__)

Entry = dict[str, Any]  # one caption's value in the authors' `scene_graph` JSON
NO_LABEL = "with"  # stands for an empty relation label; the authors draw a word at random
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
                add_attribute(graph, i, _text(label), [_text(word) for word in adverbs])
        for subject, object_, words, preposition in relations:
            if subject not in place or object_ not in place:
                raise ValueError(f"a relation joins {subject!r} and {object_!r}: no such entities")
            joined = [_text(word) for word in words]
            add_relation(graph, place[subject], place[object_], joined, _text(preposition))
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

    Raises ValueError for a text that no file in UTF-8 can hold or that is too long for spaCy.
    """
    for i, text in enumerate(texts):
        _check_text(i, text)
    wanted = list(dict.fromkeys(texts))
    pipeline = None
    entries: dict[str, Entry] = {}
    if cache is not None:
        pipeline = _load(nlp)
        entries = _read_cache(cache, _version(pipeline), wanted)
    missing = [text for text in wanted if text not in entries]
    if missing:
        pipeline = pipeline or _load(nlp)
        chunks = [missing[i : i + CHUNK] for i in range(0, len(missing), CHUNK)]
        hidden = len(missing) <= CHUNK if progress is None else not progress
        with tqdm(total=len(missing), desc="parse", leave=False, disable=hidden) as bar:
            for found in _parse_chunks(chunks, pipeline, workers):
                entries.update(found)
                if cache is not None:
                    _write_cache(cache, _version(pipeline), found)
                bar.update(len(found))
    return [from_authors(entries[text]) for text in texts]


def _check_text(i: int, text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"text {i}: character {error.start} is half a character (a lone surrogate): "
            "read the file as UTF-8 again"
        ) from error


def _load(nlp: "Language | str | Path | None") -> "Language":
    if nlp is None or isinstance(nlp, str | Path):
        from mmlib.parser import load_english

        return load_english(nlp)
    return nlp


def _version(nlp: "Language") -> str:
    from mmlib.parser import pipeline_version

    return f"rules {RULES}, {pipeline_version(nlp)}"


def _parse_chunks(
    chunks: Iterable[list[str]], nlp: "Language", workers: int
) -> Iterator[dict[str, Entry]]:
    if workers == 1:
        yield from (_parse_chunk(chunk, nlp) for chunk in chunks)
        return
    from joblib import Parallel, delayed

    yield from Parallel(n_jobs=workers, return_as="generator")(
        delayed(_parse_chunk)(chunk, nlp) for chunk in chunks
    )


def _parse_chunk(texts: list[str], nlp: "Language") -> dict[str, Entry]:
    long = next((text for text in texts if len(text) > nlp.max_length), None)
    if long is not None:
        raise ValueError(f"{long[:30]!r}... has {len(long)} characters, too long to parse")
    unused = [name for name in nlp.pipe_names if name in UNUSED]
    docs = nlp.pipe(texts, disable=unused, batch_size=256)
    return {text: entry_of(doc) for text, doc in zip(texts, docs, strict=True)}


# --- The cache -------------------------------------------------------------------------------

TABLE = (
    "CREATE TABLE IF NOT EXISTS graphs (version TEXT, text TEXT, entry TEXT, "
    "PRIMARY KEY (version, text)) WITHOUT ROWID"
)


def _read_cache(path: Path, version: str, texts: Sequence[str]) -> dict[str, Entry]:
    """The entries of these texts that the cache has; a damaged cache is removed and has none."""
    if not path.exists():
        return {}
    wanted = set(texts)
    try:
        with closing(sqlite3.connect(path)) as db:
            db.execute(TABLE)
            rows = db.execute("SELECT text, entry FROM graphs WHERE version = ?", (version,))
            return {
                text: {"caption": text, **json.loads(entry)}
                for text, entry in rows
                if text in wanted
            }
    except (sqlite3.DatabaseError, ValueError, TypeError) as error:
        log.warning("%s: damaged cache of scene graphs (%s): it is made anew", path, error)
        path.unlink()
        return {}


def _write_cache(path: Path, version: str, entries: Mapping[str, Entry]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        (version, text, json.dumps({k: v for k, v in entry.items() if k != "caption"}))
        for text, entry in entries.items()
    ]
    with closing(sqlite3.connect(path, timeout=60)) as db, db:
        db.execute(TABLE)
        db.executemany("INSERT OR REPLACE INTO graphs VALUES (?, ?, ?)", rows)
