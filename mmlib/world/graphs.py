"""What a caption says, as a graph: concepts, their attributes, relations, setting and style."""

from dataclasses import dataclass, field

import networkx as nx

from mmlib.world.schema import GROUPS, KINDS

# A concept is a set of kinds; a narrower concept is a subset. Kinds are the narrowest.
CONCEPTS: dict[str, frozenset[str]] = {
    **{kind: frozenset({kind}) for kind in KINDS},
    **{group: frozenset(GROUPS[group]) for group in ("person", "animal", "vehicle", "plant")},
    "adult": frozenset({"man", "woman"}),
    "child": frozenset({"boy", "girl"}),
    "farm animal": frozenset({"horse", "sheep", "cow"}),
    "building": frozenset({"house", "tower", "barn"}),
    "structure": frozenset(GROUPS["building"]),  # with the tent
    "toy": frozenset({"ball", "kite", "balloon"}),
    "seat": frozenset({"bench", "chair"}),
    "object": frozenset({*GROUPS["vehicle"], *GROUPS["building"], *GROUPS["thing"]}),
    "thing": frozenset(KINDS),  # something
}
Fact = tuple[str, str]  # ("colour", "red"), ("size", "large"), ("pattern", ...), ("action", ...)


@dataclass(frozen=True)
class Node:
    """Something that a caption mentions.

    concept: a name in CONCEPTS. facts: what is said of it. The words do not count in comparisons:
    noun: as written ("guy"). words: (name, value, word as written) for each fact.
    worn: (preposition, garment) where colour and pattern are said of a garment, else ().
    """

    concept: str
    facts: frozenset[Fact] = frozenset()
    noun: str = field(default="", compare=False)
    words: tuple[tuple[str, str, str], ...] = field(default=(), compare=False)
    worn: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Edge:
    """A relation from node `subject` to node `object` (positions in the graph's nodes).

    words: the relation as written, in the direction as written; `passive` where the text names
    the object first ("a kite held by a boy").
    """

    subject: int
    relation: str
    object: int
    words: str = field(default="", compare=False)
    passive: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class CaptionGraph:
    """What a caption says: different nodes are different things; no setting or style: None.

    setting_words, style_words: (phrase, its noun) as written, or ().
    """

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...] = ()
    setting: str | None = None
    style: str | None = None
    setting_words: tuple[str, ...] = field(default=(), compare=False)
    style_words: tuple[str, ...] = field(default=(), compare=False)

    def to_networkx(self, words: bool = False) -> nx.MultiDiGraph:
        """A typed graph, by the world's names or (`words`) as the text puts it.

        Nodes have `type` ("object" or "attribute") and `label`; an object's node is its position,
        an attribute's is (position, name). Edges have `label`: a relation, or "has" from an object
        to its attribute. With `words`, a garment is an object of its own, as for a parser.
        """
        graph = nx.MultiDiGraph(setting=self.setting, style=self.style)
        for i, node in enumerate(self.nodes):
            graph.add_node(i, type="object", label=node.noun if words else node.concept)
            wearer = i
            if words and node.worn:
                preposition, garment = node.worn
                graph.add_node((i, "worn"), type="object", label=garment)
                graph.add_edge(i, (i, "worn"), label=preposition)
            said = {name: word for name, _, word in node.words}
            for name, value in sorted(node.facts):
                worn = words and node.worn and name in ("colour", "pattern")
                owner = (i, "worn") if worn else wearer
                label = said.get(name, value) if words else value
                graph.add_node((i, name), type="attribute", label=label)
                graph.add_edge(owner, (i, name), label="has")
        for edge in self.edges:
            ends = (edge.subject, edge.object)
            if words and edge.passive:
                ends = ends[::-1]
            graph.add_edge(*ends, label=edge.words if words else edge.relation)
        return graph
