"""What captions mean: whether a scene satisfies a graph, and whether one graph entails another.

A graph says that there are different things, one for each node, with these concepts, facts and
relations, in this setting and style. It denies nothing, so a scene with more in it satisfies it
just as well.
"""

from collections.abc import Sequence
from itertools import product

from mmlib.world.graphs import CONCEPTS, CaptionGraph, Fact
from mmlib.world.habits import PEOPLE
from mmlib.world.schema import Scene

# Each rule holds in every scene that `check_scene` accepts; see `derive_relations`.
CONVERSE = {
    "left of": "right of", "right of": "left of", "behind": "in front of",
    "in front of": "behind", "near": "near", "on": "under",
}  # fmt: skip
IMPLIES = {"riding": "on", "on": "near", "under": "near", "holding": "near"}
TRANSITIVE = ("left of", "right of")
SUBJECT_IS = {"riding": frozenset(PEOPLE), "holding": frozenset(PEOPLE)}
SUBJECT_DOES = {"riding": "sitting", "chasing": "running"}
Link = tuple[int, str, int]


def satisfies(scene: Scene, graph: CaptionGraph) -> bool:
    """Whether the graph is true of the scene: its nodes are different things of the scene."""
    if graph.setting not in (None, scene.setting) or graph.style not in (None, scene.style):
        return False
    candidates = [
        [
            i
            for i, item in enumerate(scene.things)
            if item.kind in CONCEPTS[node.concept]
            and all(getattr(item, name) == value for name, value in node.facts)
        ]
        for node in graph.nodes
    ]
    return _embeds(candidates, _links(graph), set(scene.relations))


def entails(premise: CaptionGraph, hypothesis: CaptionGraph) -> bool:
    """Whether the hypothesis follows from the premise.

    Sound: where True, every scene that satisfies the premise satisfies the hypothesis. Not
    complete: it knows the rules above, and no reasoning by cases. A graph entails whatever is
    got from it by dropping nodes, edges or facts and by widening concepts.
    """
    for name in ("setting", "style"):
        if getattr(hypothesis, name) not in (None, getattr(premise, name)):
            return False
    links = closure(_links(premise))
    kinds = [CONCEPTS[node.concept] for node in premise.nodes]
    facts: list[set[Fact]] = [set(node.facts) for node in premise.nodes]
    for i, relation, _ in links:
        kinds[i] = kinds[i] & SUBJECT_IS.get(relation, kinds[i])
        if relation in SUBJECT_DOES:
            facts[i].add(("action", SUBJECT_DOES[relation]))
    candidates = [
        [
            i
            for i in range(len(premise.nodes))
            if kinds[i] <= CONCEPTS[node.concept] and node.facts <= facts[i]
        ]
        for node in hypothesis.nodes
    ]
    return _embeds(candidates, _links(hypothesis), links)


def closure(links: set[Link]) -> set[Link]:
    """All relations that follow from these ones."""
    links = set(links)
    while True:
        new = {(i, IMPLIES[r], j) for i, r, j in links if r in IMPLIES}
        new |= {(j, CONVERSE[r], i) for i, r, j in links if r in CONVERSE}
        for relation in TRANSITIVE:
            pairs = [(i, j) for i, r, j in links if r == relation]
            new |= {(i, relation, k) for i, j in pairs for j2, k in pairs if j == j2}
        if new <= links:
            return links
        links |= new


def _links(graph: CaptionGraph) -> set[Link]:
    return {(edge.subject, edge.relation, edge.object) for edge in graph.edges}


def _embeds(candidates: Sequence[Sequence[int]], edges: set[Link], links: set[Link]) -> bool:
    """Whether each node can take a candidate of its own so that all edges are among the links."""
    return any(
        len(set(chosen)) == len(chosen)
        and all((chosen[i], relation, chosen[j]) in links for i, relation, j in edges)
        for chosen in product(*candidates)
    )
