"""What a caption says, as a graph: concepts, their attributes, relations, setting and style."""

from dataclasses import dataclass, field

from mmlib.core.paths import table_beside
from mmlib.world.schema import GROUPS, KINDS

# A concept is a set of kinds; a narrower concept is a subset. Kinds are the narrowest.
CONCEPTS: dict[str, frozenset[str]] = {
    **{kind: frozenset({kind}) for kind in KINDS},
    **{
        concept: frozenset(kind for name in names for kind in GROUPS.get(name, (name,)))
        for concept, names in table_beside(__file__)["concepts"].items()
    },
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
