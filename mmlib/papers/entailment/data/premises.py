"""What captions tell of a scene and what follows from them: the text side of world entailment.

A premise is a few captions of one scene. They are written from a part of it (`partial_scene`), so
how much they leave out is a dial. What follows from them is decided by logic.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, product
from typing import Any

import networkx as nx
import numpy as np

from mmlib.world.captions import WIDEN, Caption, Writer
from mmlib.world.graphs import CONCEPTS, CaptionGraph, Edge, Node
from mmlib.world.logic import SUBJECT_DOES, closure, satisfies
from mmlib.world.scenes import action_relations, check_scene, derive_relations
from mmlib.world.schema import ACTIONS, COLOURS, KINDS, PATTERNS, SETTINGS, SIZES, STYLES, Scene

_TRIES = 60
FACTS = {"colour": "", "size": "", "pattern": "", "action": None}  # and what a missing one is


@dataclass(frozen=True)
class PartialScene:
    """A part of a scene, to write captions of: what is not in it, they cannot say.

    scene: its things in the order of the whole scene, without the facts (`FACTS`) and relations
    that are left out. setting, style: whether these may be said.
    """

    scene: Scene
    setting: bool = True
    style: bool = True


def partial_scene(scene: Scene, partial: float, rng: np.random.Generator) -> PartialScene:
    """The scene without a part of it: the whole at `partial` 0, one thing or more, bare, at 1.

    Each thing is left out with probability partial / 2 (but one stays), each fact of a thing, the
    relations of each two things, the setting and the style with probability `partial`. With the
    same generator state, a larger `partial` leaves out the same and more.
    """
    n = len(scene.things)
    stays, facts, pairs = rng.random(n), rng.random((n, len(FACTS))), rng.random((n, n))
    setting, style = rng.random(2)
    things = []
    for thing, row in zip(scene.things, facts, strict=True):
        gone: dict[str, Any] = {f: FACTS[f] for f, u in zip(FACTS, row, strict=True) if u < partial}
        things.append(replace(thing, **gone))
    relations = [(i, r, j) for i, r, j in scene.relations if pairs[min(i, j), max(i, j)] >= partial]
    less = replace(scene, things=tuple(things), relations=tuple(relations))
    rows = [i for i in range(n) if stays[i] >= partial / 2] or [int(stays.argmax())]
    return PartialScene(_only(less, rows), bool(setting >= partial), bool(style >= partial))


def _only(scene: Scene, rows: Sequence[int]) -> Scene:
    # The scene with some of its things.
    at = {i: new for new, i in enumerate(rows)}
    relations = tuple((at[i], r, at[j]) for i, r, j in scene.relations if i in at and j in at)
    return replace(scene, things=tuple(scene.things[i] for i in rows), relations=relations)


def write_caption(
    content: PartialScene, rng: np.random.Generator, detail: int = 3, widen: float = WIDEN
) -> tuple[Caption, dict[int, int]] | None:
    """A caption of a part of a scene, and which node stands for which thing: {thing: node}.

    None where 60 tries say more than is in it. Details as for `mmlib.world.captions.Writer`.
    """
    if not content.setting:
        detail = min(detail, 2)  # higher ones end in a setting
    for _ in range(_TRIES):
        writer = Writer(content.scene, rng, widen)
        caption = writer.caption(detail)
        graph = caption.graph
        if (content.setting or not graph.setting) and (content.style or not graph.style):
            return caption, writer.node_of
    return None


def premise_captions(
    scene: Scene, partial: float, rng: np.random.Generator
) -> tuple[PartialScene, tuple[Caption, ...]]:
    """A part of a scene and one (`partial` 1) to five (0) different captions of it."""
    content = partial_scene(scene, partial, rng)
    captions: dict[str, Caption] = {}
    for detail in (3, 4, 2, 4, 3)[: 1 + round(4 * (1 - partial))]:
        for _ in range(20):
            new = write_caption(content, rng, detail)
            if new and (key := plain(new[0].text)) not in captions:
                captions[key] = new[0]
                break
    return content, tuple(captions.values())


def plain(text: str) -> str:
    """A caption in lower case and without its full stop."""
    return text.lower().rstrip(".")


def merged(captions: Sequence[Caption]) -> str:
    """Captions as one text, each a sentence of its own."""
    texts = [caption.text.rstrip(".") for caption in captions]
    return " ".join(f"{text[0].upper()}{text[1:]}." for text in texts)


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
        implied = closure({(e.subject, e.relation, e.object) for e in graph.edges})
        for i, node in enumerate(graph.nodes):
            verbs = [SUBJECT_DOES[r] for s, r, _ in implied if s == i and r in SUBJECT_DOES]
            nodes.append(Node(node.concept, node.facts | {("action", verb) for verb in verbs}))
        owner += [k] * len(graph.nodes)
        links |= {(start + i, relation, start + j) for i, relation, j in implied}
    apart = nx.empty_graph(len(nodes))
    for i, j in combinations(range(len(nodes)), 2):
        a, b, facts = nodes[i], nodes[j], dict(nodes[i].facts)
        no_kind_is_both = not CONCEPTS[a.concept] & CONCEPTS[b.concept]
        if (
            owner[i] == owner[j] or no_kind_is_both
            or any(facts.get(name, value) != value for name, value in b.facts)
        ):  # fmt: skip
            apart.add_edge(i, j)
    setting = next((graph.setting for graph in captions if graph.setting), None)
    style = next((graph.style for graph in captions if graph.style), None)
    graphs = []
    for group in sorted(sorted(group) for group in nx.find_cliques(apart)):
        at = {i: new for new, i in enumerate(group)}
        edges = [Edge(at[i], r, at[j]) for i, r, j in sorted(links) if i in at and j in at]
        graphs.append(CaptionGraph(tuple(nodes[i] for i in group), tuple(edges), setting, style))
    return tuple(graphs) or (CaptionGraph((), (), setting, style),)


def counter_scene(
    scene: Scene, captions: Sequence[CaptionGraph], hypothesis: CaptionGraph
) -> Scene | None:
    """A scene in which all captions are true and the hypothesis is false: it does not follow.

    scene: one that satisfies the captions. Tried are the scene itself, parts of it, and the
    smallest of these with one fact, place or relation changed. None where none of them will do,
    which does not say that the hypothesis follows.
    """

    def fits(candidate: Scene) -> bool:
        return all(satisfies(candidate, graph) for graph in captions)

    n = len(scene.things)
    parts = (_only(scene, rows) for k in range(n) for rows in combinations(range(n), k + 1))
    smaller = [part for part in parts if fits(part)]
    for part in reversed(smaller):  # the whole scene first
        if not satisfies(part, hypothesis):
            return part
    for changed in chain.from_iterable(map(_changes, smaller[:3])):
        if not satisfies(changed, hypothesis) and fits(changed):
            try:
                check_scene(changed)
            except ValueError:
                continue
            return changed
    return None


def _changes(scene: Scene) -> Iterator[Scene]:
    # The scene with one fact, place or relation of action changed.
    acting = action_relations(scene)
    for setting in SETTINGS:
        yield replace(scene, setting=setting)
    for style in STYLES:
        yield replace(scene, style=style)
    for edge in acting:
        fewer = derive_relations(scene.things, [e for e in acting if e != edge])
        yield replace(scene, relations=fewer)
    options: dict[str, Sequence[Any]] = {
        "colour": COLOURS, "pattern": PATTERNS, "size": SIZES, "action": (*ACTIONS, None),
        "kind": KINDS, "x": (0.1, 0.3, 0.5, 0.7, 0.9), "y": (0.55, 0.7, 0.85, 0.95),
    }  # fmt: skip
    for i, name in product(range(len(scene.things)), options):
        for value in options[name]:
            new: Any = {name: value}
            things = list(scene.things)
            things[i] = replace(things[i], **new)
            looks = name in ("colour", "pattern")
            relations = scene.relations if looks else derive_relations(things, acting)
            yield replace(scene, things=tuple(things), relations=relations)
