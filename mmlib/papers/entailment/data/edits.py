"""Captions with one fact changed: the minimal edits of world hypotheses.

The edit is made in the scene, not in the text: a changed copy of the scene is captioned with the
same random choices as the scene itself, so text and graph always agree. Edits keep to what the
world knows (no pink cows, no trees that chase a ball), lest a sentence give itself away.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mmlib.papers.entailment.data.premises import PartialScene, partial_scene, write_caption
from mmlib.world.captions import WIDEN, Caption
from mmlib.world.graphs import CONCEPTS, CaptionGraph
from mmlib.world.habits import HABITAT, PAIRS, PALETTE
from mmlib.world.logic import CONVERSE
from mmlib.world.scenes import actions_in, pick
from mmlib.world.schema import ACTION_RELATIONS, GROUP_OF, GROUPS, SETTINGS, WATER, Scene, Thing

GENERAL = 0.4  # share of captions that are general
_TRIES = 12  # captions tried for one edit
_WORDS = 4  # that an edit may put in place of others
_DIRECTIONS = ("left of", "right of", "behind", "in front of")
_GROUPS = {"actor": ("person", "animal"), "object": ("vehicle", "plant", "building", "thing")}
Accept = Callable[[Caption], bool]  # which captions may be edited


def anything(caption: Caption) -> bool:
    """Accepts every caption."""
    return True


@dataclass(frozen=True)
class Draft:
    """A caption that can be written again, of something else, with the same random choices.

    content: what it may speak of. thing_of: {node: thing of the content's scene}.
    """

    content: PartialScene
    key: int
    detail: int
    widen: float
    caption: Caption
    thing_of: dict[int, int]

    def saying(self, fact: str) -> list[int]:
        """The nodes of which a fact such as "colour" is said."""
        return [i for i, node in enumerate(self.caption.graph.nodes) if fact in dict(node.facts)]

    def alike(self, node: int) -> list[int]:
        """The things of a node and of those that are spoken of with it ("two red dogs")."""
        nodes = self.caption.graph.nodes
        return [thing for i, thing in self.thing_of.items() if nodes[i] == nodes[node]]


def _draft(content: PartialScene, key: int, detail: int, widen: float) -> Draft | None:
    written = write_caption(content, np.random.default_rng(key), detail, widen)
    if written is None:
        return None
    caption, node_of = written
    return Draft(content, key, detail, widen, caption, {n: thing for thing, n in node_of.items()})


def new_draft(content: PartialScene, rng: np.random.Generator, general: bool) -> Draft | None:
    """A caption; where `general` with facts left out and concepts widened."""
    detail = pick(rng, (int(rng.random() < 0.7), 2, 3, 3, 4))
    if general:
        less = partial_scene(content.scene, 0.5, rng)
        said = content.setting and less.setting, content.style and less.style
        content = PartialScene(less.scene, *said)
    return _draft(content, int(rng.integers(2**32)), detail, 0.6 if general else WIDEN)


def edited(
    content: PartialScene, edit: str, rng: np.random.Generator, accept: Accept = anything
) -> tuple[Caption, str] | None:
    """A caption that says one thing otherwise than the content, and the text that it is made of.

    The edit is made in the scene: its changed copy is captioned with the same random choices as
    the scene, and taken where the two captions differ in that fact and in few words only. "number"
    adds a thing of one sort, and seldom has a text that it is made of in few words: then it is "".

    edit: one of `systems.EDITS`. accept: which captions may be edited. None where 12 tries find
    nothing.
    """
    for _ in range(_TRIES):
        before = new_draft(content, rng, rng.random() < GENERAL)
        scene = _changed(edit, before, rng) if before else None
        if before is None or scene is None:
            continue
        copy = replace(before.content, scene=scene)
        after = _draft(copy, before.key, before.detail, before.widen)
        if after is None:
            continue
        old, new = (
            Counter(draft.caption.text.lower().rstrip(".").replace(",", "").split())
            for draft in (before, after)
        )
        few = (new - old).total() <= _WORDS
        minimal = few and _differ_in(edit, before.caption.graph, after.caption.graph)
        if edit == "number":  # the added thing, the last, is spoken of as one of several
            added = len(scene.things) - 1
            nodes = [node for node, thing in after.thing_of.items() if thing == added]
            minimal = any(len(after.alike(node)) > 1 for node in nodes)
        if minimal and accept(before.caption):
            return after.caption, before.caption.text if few else ""
    return None


def _differ_in(edit: str, a: CaptionGraph, b: CaptionGraph) -> bool:
    # Whether two captions differ in what the edit is about, and in nothing else.
    if edit == "swap":
        turned = a.nodes != b.nodes and a.edges == b.edges
        return (
            turned and Counter(a.nodes) == Counter(b.nodes)
            and (a.setting, a.style) == (b.setting, b.style)
        )  # fmt: skip
    ends = [[(e.subject, e.object) for e in graph.edges] for graph in (a, b)]
    if len(a.nodes) != len(b.nodes) or ends[0] != ends[1]:
        return False
    names = {name for name in ("setting", "style") if getattr(a, name) != getattr(b, name)}
    for old, new in zip(a.nodes, b.nodes, strict=True):
        if dict(old.facts).keys() != dict(new.facts).keys():
            return False
        names |= {name for name, _ in old.facts ^ new.facts}
        if old.concept != new.concept:
            if CONCEPTS[old.concept] <= CONCEPTS[new.concept]:
                return False  # wider: no less true than before
            names.add("concept")
    if any(old.relation != new.relation for old, new in zip(a.edges, b.edges, strict=True)):
        names.add("relation")
    return names == {"concept" if edit in _GROUPS else edit}


def _changed(edit: str, draft: Draft, rng: np.random.Generator) -> Scene | None:
    # A draft's scene with one thing otherwise.
    if edit == "swap":
        scene = _swapped(draft, rng)
    elif edit == "relation":
        scene = _related_otherwise(draft, rng)
    elif edit == "number":
        return _one_more(draft.content.scene, rng)
    elif edit == "setting":
        return _elsewhere(draft, rng)
    else:
        scene = _with_another_fact(edit, draft, rng)
        if edit not in _GROUPS:
            return scene
    if scene is None:
        return None
    # Only if the world draws its things in these relations.
    kinds, relations = [thing.kind for thing in scene.things], scene.relations

    def usual(i: int, relation: str, j: int) -> bool:
        if relation == "under":
            return kinds[j] in ("tree", "umbrella") or (j, "on", i) in relations
        ridden = relation == "on" and (i, "riding", j) in relations
        return ridden or relation not in PAIRS or kinds[j] in PAIRS[relation].get(kinds[i], ())

    return scene if all(usual(*edge) for edge in relations) else None


def _with_another_fact(edit: str, draft: Draft, rng: np.random.Generator) -> Scene | None:
    # Another colour, action or kind of a node's things, and of what is spoken of with them.
    scene = draft.content.scene
    if edit == "colour":
        nodes = draft.saying("colour")
    elif edit == "action":
        bound = _bound(scene, (*ACTION_RELATIONS, "on"))
        nodes = [node for node in draft.saying("action") if not bound & {*draft.alike(node)}]
    else:
        group = {node: GROUP_OF[scene.things[i].kind] for node, i in draft.thing_of.items()}
        nodes = [node for node in group if group[node] in _GROUPS[edit]]
    if not nodes:
        return None
    rows = draft.alike(pick(rng, nodes))
    alike, setting = [scene.things[i] for i in rows], scene.setting
    first, fact = alike[0], edit
    if edit == "colour":
        values = [
            colour for colour in PALETTE[first.kind]
            if colour != first.colour and all(colour in PALETTE[t.kind] for t in alike)
        ]  # fmt: skip
    elif edit == "action":
        able = [set(actions_in(thing.kind, setting)) for thing in alike]
        values = sorted(map(str, set.intersection(*able) - {first.action, None}))
    else:
        fact, values = "kind", [
            kind for kind in GROUPS[GROUP_OF[first.kind]]
            if kind in HABITAT[setting] and all(
                kind != t.kind
                and t.colour in ("", *PALETTE[kind])
                and t.action in (None, *actions_in(kind, setting))
                for t in alike
            )
        ]  # fmt: skip
    return _with_facts(scene, rows, **{fact: pick(rng, values)}) if values else None


def _with_facts(scene: Scene, rows: Sequence[int], **facts: str) -> Scene:
    things: list[Thing] = list(scene.things)
    for i in rows:
        things[i] = replace(things[i], **facts)  # type: ignore[arg-type]
    return replace(scene, things=tuple(things))


def _bound(scene: Scene, relations: Sequence[str]) -> set[int]:
    # The things in such relations.
    return {k for i, relation, j in scene.relations if relation in relations for k in (i, j)}


def _elsewhere(draft: Draft, rng: np.random.Generator) -> Scene | None:
    scene = draft.content.scene
    if not draft.caption.graph.setting:
        return None
    named = [scene.things[i] for i in draft.thing_of.values()]
    options = [
        setting for setting in SETTINGS
        if setting != scene.setting
        and all(t.kind in HABITAT[setting] for t in named)
        and (setting in WATER or all(t.kind != "duck" or t.action != "floating" for t in named))
    ]  # fmt: skip
    return replace(scene, setting=pick(rng, options)) if options else None


def _related_otherwise(draft: Draft, rng: np.random.Generator) -> Scene | None:
    # Another relation between the same two things.
    edges, thing_of, scene = draft.caption.graph.edges, draft.thing_of, draft.content.scene
    if not edges:
        return None
    edge = pick(rng, edges)
    pairs = {
        (thing_of[e.subject], thing_of[e.object]) for e in edges
        if e.relation == edge.relation and thing_of[e.object] == thing_of[edge.object]
    }  # fmt: skip
    new = pick(rng, (*_DIRECTIONS, *_DIRECTIONS, "riding", "holding", "chasing", "on"))
    if new == edge.relation:
        return None
    close = {edge.relation, new} - {*_DIRECTIONS, "near"}
    relations = []
    for i, relation, j in scene.relations:
        if (i, j) in pairs and relation == edge.relation:
            relations.append((i, new, j))
        elif (j, i) in pairs and relation == CONVERSE.get(edge.relation) and new in CONVERSE:
            relations.append((i, CONVERSE[new], j))
        elif not ({(i, j), (j, i)} & pairs and close):
            relations.append((i, relation, j))
    if action := {"riding": "sitting", "chasing": "running"}.get(new):
        scene = _with_facts(scene, [i for i, _ in pairs], action=action)
    return replace(scene, relations=tuple(relations))


def _swapped(draft: Draft, rng: np.random.Generator) -> Scene | None:
    # The two things of a relation in each other's place.
    edges = [edge for edge in draft.caption.graph.edges if _turns(edge.relation)]
    if not edges:
        return None
    edge, things = pick(rng, edges), list(draft.content.scene.things)
    i, j = draft.thing_of[edge.subject], draft.thing_of[edge.object]
    looks = ["kind", "colour", "size", "pattern", *["action"] * (edge.relation in _DIRECTIONS)]
    things[i], things[j] = (
        replace(things[a], **{name: getattr(things[b], name) for name in looks})
        for a, b in ((i, j), (j, i))
    )
    return replace(draft.content.scene, things=tuple(things))


def _one_more(scene: Scene, rng: np.random.Generator) -> Scene | None:
    # One more of something, which stands where that stands.
    free = set(range(len(scene.things))) - _bound(scene, ACTION_RELATIONS)
    if not free or len(scene.things) == 5:
        return None
    i, new = pick(rng, sorted(free)), len(scene.things)
    at = {i: new}
    copied = [(at.get(a, a), r, at.get(b, b)) for a, r, b in scene.relations if i in (a, b)]
    things, relations = (*scene.things, scene.things[i]), (*scene.relations, *copied)
    return replace(scene, things=things, relations=relations)


def editable(graph: CaptionGraph, edit: str) -> bool:
    """Whether a caption says what such an edit changes, or, of a number, counts something."""
    if edit in ("colour", "action"):
        return any(edit in dict(node.facts) for node in graph.nodes)
    if edit == "number":
        return len(set(graph.nodes)) < len(graph.nodes)
    if edit == "setting":
        return graph.setting is not None
    if edit in ("relation", "swap"):
        return any(edit == "relation" or _turns(edge.relation) for edge in graph.edges)
    living = CONCEPTS["person"] | CONCEPTS["animal"]
    return any((CONCEPTS[node.concept] <= living) == (edit == "actor") for node in graph.nodes)


def _turns(relation: str) -> bool:
    return relation in (*_DIRECTIONS, "chasing")
