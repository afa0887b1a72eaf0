"""Captions to scene graphs: parsing, the authors' JSON, scores against gold graphs, drawing."""

from mmlib.scenegraph.drawing import draw
from mmlib.scenegraph.graph import (
    Graphs,
    add_attribute,
    add_relation,
    attributes,
    corrupt,
    from_authors,
    graph_of,
    objects,
    pack,
    parse,
    phrase,
    relations,
    to_authors,
)
from mmlib.scenegraph.score import score

__all__ = [
    "Graphs", "add_attribute", "add_relation", "attributes", "corrupt", "draw", "from_authors",
    "graph_of", "objects", "pack", "parse", "phrase", "relations", "score", "to_authors",
]  # fmt: skip
