"""Captions to scene graphs: parsing, the authors' JSON, scores against gold graphs, drawing."""

from mmlib.scenegraph.drawing import draw
from mmlib.scenegraph.graph import (
    LOST,
    Graphs,
    add_attribute,
    add_relation,
    attributes,
    corrupt,
    fallback_label,
    fallback_rate,
    from_authors,
    graph_of,
    objects,
    pack,
    parse,
    phrase,
    relations,
    to_authors,
)
from mmlib.scenegraph.score import compare, confusions, items, score, without

__all__ = [
    "LOST",
    "Graphs",
    "add_attribute",
    "add_relation",
    "attributes",
    "compare",
    "confusions",
    "corrupt",
    "draw",
    "fallback_label",
    "fallback_rate",
    "from_authors",
    "graph_of",
    "items",
    "objects",
    "pack",
    "parse",
    "phrase",
    "relations",
    "score",
    "to_authors",
    "without",
]
