"""What captions tell of a scene and what follows from them: the text side of world entailment.

A premise is a few captions of one scene. They are written from the part of it that is told
(`partial_scene`), so how much they leave out is a dial. What follows from them is decided by logic.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import networkx as nx
import numpy as np

from mmlib.world.captions import WIDEN, Caption, _Writer
from mmlib.world.graphs import CONCEPTS, CaptionGraph, Edge, Node
from mmlib.world.logic import SUBJECT_DOES, closure, satisfies
from mmlib.world.scenes import action_relations, check_scene, derive_relations
from mmlib.world.schema import ACTIONS, COLOURS, KINDS, PATTERNS, SETTINGS, SIZES, STYLES, Scene

_TRIES = 60
FACTS = ("colour", "size", "pattern", "action")
_UNTOLD = {"colour": "", "size": "", "pattern": "", "action": None}


# --- Parts of a scene ---------------------------------------------------------------------


@dataclass(frozen=True)
class PartialScene:
    """A part of a scene, to write captions of: what is not in it, they cannot say.

    scene: the things told, in the order of the whole scene, with "" (or None, of actions) for the
    facts left out; the relations told. place, style: whether setting and style may be said.
    """

    scene: Scene
    place: bool = True
    style: bool = True


def partial_scene(scene: Scene, partial: float, rng: np.random.Generator) -> PartialScene:
    """The scene without a part of it: the whole at `partial` 0, one thing or more, bare, at 1.

    Each thing is left out with probability partial / 2 (but one stays), each fact of a thing, the
    relations of each two things, the setting and the style with probability `partial`. With the
    same generator state, a larger `partial` leaves out the same and more.
    """
    n = len(scene.things)
    things, facts, pairs = rng.random(n), rng.random((n, len(FACTS))), rng.random((n, n))
    place, style = rng.random(2)
    kept = [i for i in range(n) if things[i] >= partial / 2] or [int(things.argmax())]
    told = []
    for i in kept:
        untold = {
            name: _UNTOLD[name] for name, u in zip(FACTS, facts[i], strict=True) if u < partial
        }
        told.append(replace(scene.things[i], **untold))  # type: ignore[arg-type]
    place_of = {i: new for new, i in enumerate(kept)}
    relations = tuple(
        (place_of[i], relation, place_of[j])
        for i, relation, j in scene.relations
        if i in place_of and j in place_of and pairs[min(i, j), max(i, j)] >= partial
    )
    part = replace(scene, things=tuple(told), relations=relations)
    return PartialScene(part, bool(place >= partial), bool(style >= partial))


def write_caption(
    told: PartialScene, rng: np.random.Generator, detail: int = 3, widen: float = WIDEN
) -> tuple[Caption, dict[int, int]] | None:
    """A caption of what is told, and which node stands for which thing: {thing: node}.

    None where 60 tries say more than may be told. Details as for `mmlib.world.captions.caption`.
    """
    if not told.place:
        detail = min(detail, 2)  # higher ones end in a place
    for _ in range(_TRIES):
        writer = _Writer(told.scene, rng, widen)
        new = writer.caption(detail)
        if (told.place or not new.graph.setting) and (told.style or not new.graph.style):
            return new, writer.node_of
    return None


def premise_captions(
    scene: Scene, partial: float, rng: np.random.Generator
) -> tuple[PartialScene, tuple[Caption, ...]]:
    """The told part of a scene and one (`partial` 1) to five (0) different captions of it."""
    told = partial_scene(scene, partial, rng)
    found: dict[str, Caption] = {}
    for detail in (3, 4, 2, 4, 3)[: 1 + round(4 * (1 - partial))]:
        for _ in range(20):
            new = write_caption(told, rng, detail)
            if new and (key := new[0].text.lower().rstrip(".")) not in found:
                found[key] = new[0]
                break
    return told, tuple(found.values())


def merged(captions: Sequence[Caption]) -> str:
    """Captions as one text, each a sentence of its own."""
    texts = [caption.text.rstrip(".") for caption in captions]
    return " ".join(f"{text[0].upper()}{text[1:]}." for text in texts)


# --- What follows ---------------------------------------------------------------------------------


def joint(captions: Sequence[CaptionGraph]) -> tuple[CaptionGraph, ...]:
    """What captions of one scene say together: graphs that all hold wherever all captions do.

    Within a caption, different nodes are different things. Across captions the text seldom says
    which is which: "a dog" and "a brown animal" may be one thing or two. So nodes of different
    captions are never made one (that would claim a brown dog), and two of them stand side by side
    only where they must be different (that they are else would claim two animals): where no kind
    has both concepts, or where they differ in a fact of which a thing has one, such as colour.
    Each graph holds a largest set of nodes that all are different from each other, so there may be
    several graphs; setting and style are the picture's, so every graph has them.
    """
    owner: list[int] = []
    nodes: list[Node] = []
    links: set[tuple[int, str, int]] = set()
    for k, graph in enumerate(captions):
        start = len(nodes)
        own = closure({(e.subject, e.relation, e.object) for e in graph.edges})
        for i, node in enumerate(graph.nodes):
            does = {("action", SUBJECT_DOES[r]) for s, r, _ in own if s == i and r in SUBJECT_DOES}
            nodes.append(Node(node.concept, node.facts | does))
        owner += [k] * len(graph.nodes)
        links |= {(start + i, relation, start + j) for i, relation, j in own}
    apart = nx.Graph()
    apart.add_nodes_from(range(len(nodes)))
    apart.add_edges_from(
        (i, j)
        for i, j in combinations(range(len(nodes)), 2)
        if owner[i] == owner[j] or _different(nodes[i], nodes[j])
    )
    setting = next((graph.setting for graph in captions if graph.setting), None)
    style = next((graph.style for graph in captions if graph.style), None)
    found = []
    for group in sorted(sorted(group) for group in nx.find_cliques(apart)):
        at = {i: new for new, i in enumerate(group)}
        edges = [Edge(at[i], r, at[j]) for i, r, j in sorted(links) if i in at and j in at]
        found.append(CaptionGraph(tuple(nodes[i] for i in group), tuple(edges), setting, style))
    return tuple(found) or (CaptionGraph((), (), setting, style),)


def _different(a: Node, b: Node) -> bool:
    """Whether no thing can be both."""
    facts = dict(a.facts)
    return not CONCEPTS[a.concept] & CONCEPTS[b.concept] or any(
        facts.get(name, value) != value for name, value in b.facts
    )


# --- What does not --------------------------------------------------------------------------------


def counter_scene(
    scene: Scene, captions: Sequence[CaptionGraph], hypothesis: CaptionGraph
) -> Scene | None:
    """A scene in which all captions are true and the hypothesis is false: it does not follow.

    scene: one that satisfies the captions. Tried are the scene itself, parts of it, and the
    smallest of these with one fact, place or relation changed. None where none of them will do,
    which does not say that the hypothesis follows.
    """

    def fits(other: Scene) -> bool:
        return all(satisfies(other, graph) for graph in captions)

    numbers = range(len(scene.things))
    parts = [
        part
        for size in range(1, len(scene.things) + 1)
        for keep in combinations(numbers, size)
        if fits(part := _only(scene, keep))
    ]
    for part in reversed(parts):  # the whole scene first
        if not satisfies(part, hypothesis):
            return part
    for part in parts[:3]:
        for other in _changes(part):
            if not satisfies(other, hypothesis) and fits(other) and _possible(other):
                return other
    return None


def _only(scene: Scene, keep: Sequence[int]) -> Scene:
    """The scene with some of its things only."""
    at = {i: new for new, i in enumerate(keep)}
    relations = tuple((at[i], r, at[j]) for i, r, j in scene.relations if i in at and j in at)
    return replace(scene, things=tuple(scene.things[i] for i in keep), relations=relations)


def _changes(scene: Scene) -> Iterator[Scene]:
    """The scene with one fact, place or relation of action changed."""
    acting = action_relations(scene)
    for setting in SETTINGS:
        yield replace(scene, setting=setting)
    for style in STYLES:
        yield replace(scene, style=style)
    for edge in acting:
        fewer = derive_relations(scene.things, [other for other in acting if other != edge])
        yield replace(scene, relations=fewer)
    options = {
        "colour": COLOURS, "pattern": PATTERNS, "size": SIZES, "action": (*ACTIONS, None),
        "kind": KINDS, "x": (0.1, 0.3, 0.5, 0.7, 0.9), "y": (0.55, 0.7, 0.85, 0.95),
    }  # fmt: skip
    for i, thing in enumerate(scene.things):
        for name, values in options.items():
            for value in values:
                new = replace(thing, **{name: value})  # type: ignore[arg-type]
                things = (*scene.things[:i], new, *scene.things[i + 1 :])
                relations = scene.relations
                if name not in ("colour", "pattern"):
                    relations = derive_relations(things, acting)
                yield replace(scene, things=things, relations=relations)


def _possible(scene: Scene) -> bool:
    try:
        check_scene(scene)
    except ValueError:
        return False
    return True
