"""Captions with one fact changed: the minimal edits of world hypotheses.

The edit is made in the scene, not in the text: a changed copy of the scene is captioned with the
same random choices as the scene itself, so text and graph always agree. Edits keep to what the
world knows (no pink cows, no trees that chase a ball), lest a sentence give itself away.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mmlib.papers.entailment.data.premises import PartialScene, partial_scene, plain, write_caption
from mmlib.world.captions import WIDEN, Caption
from mmlib.world.graphs import CONCEPTS, CaptionGraph
from mmlib.world.habits import HABITAT, PAIRS, PALETTE
from mmlib.world.logic import CONVERSE
from mmlib.world.scenes import actions_in, pick
from mmlib.world.schema import ACTION_RELATIONS, GROUP_OF, GROUPS, SETTINGS, WATER, Scene

GENERAL = 0.4  # share of captions that are general
_TRIES = 12  # captions tried for one edit
_WORDS = 4  # that an edit may put in place of others
_DIRECTIONS = ("left of", "right of", "behind", "in front of")
_TURNS = (*_DIRECTIONS, "chasing")  # relations whose ends may be swapped
_GROUPS = {"actor": ("person", "animal"), "object": ("vehicle", "plant", "building", "thing")}


@dataclass(frozen=True)
class Draft:
    """A caption that can be written again, of something else, with the same random choices.

    content: what it may speak of. key, detail, widen: the choices. thing_of: {node: thing}.
    """

    content: PartialScene
    key: int
    detail: int
    widen: float
    caption: Caption
    thing_of: dict[int, int]

    @classmethod
    def of(cls, content: PartialScene, key: int, detail: int, widen: float) -> "Draft | None":
        """None where no caption can be written."""
        if not (written := write_caption(content, np.random.default_rng(key), detail, widen)):
            return None
        thing_of = {node: thing for thing, node in written[1].items()}
        return cls(content, key, detail, widen, written[0], thing_of)

    def alike(self, node: int) -> list[int]:
        """The things of a node and of those that are spoken of with it ("two red dogs")."""
        nodes = self.caption.graph.nodes
        return [thing for i, thing in self.thing_of.items() if nodes[i] == nodes[node]]


def new_draft(content: PartialScene, rng: np.random.Generator, general: bool) -> Draft | None:
    """A caption; where `general` with facts left out and concepts widened."""
    detail = pick(rng, (int(rng.random() < 0.7), 2, 3, 3, 4))
    if general:
        less = partial_scene(content.scene, 0.5, rng)
        said = content.setting and less.setting, content.style and less.style
        content = PartialScene(less.scene, *said)
    return Draft.of(content, int(rng.integers(2**32)), detail, 0.6 if general else WIDEN)


def edited(
    content: PartialScene, edit: str, rng: np.random.Generator, accept: Callable[[Caption], bool]
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
        after = Draft.of(copy, before.key, before.detail, before.widen)
        if after is None:
            continue
        old, new = (
            Counter(plain(text).replace(",", "").split())
            for text in (before.caption.text, after.caption.text)
        )
        few = (new - old).total() <= _WORDS
        minimal = few and _differ_in(edit, before.caption.graph, after.caption.graph)
        if edit == "number":  # the added thing, the last, is spoken of as one of several
            added = len(scene.things) - 1
            minimal = any(len(after.alike(n)) > 1 for n, i in after.thing_of.items() if i == added)
        if minimal and accept(before.caption):
            return after.caption, before.caption.text if few else ""
    return None


def _differ_in(edit: str, a: CaptionGraph, b: CaptionGraph) -> bool:
    # Whether two captions differ in what the edit is about, and in nothing else.
    differing = {name for name in ("setting", "style") if getattr(a, name) != getattr(b, name)}
    if edit == "swap":
        turned = a.nodes != b.nodes and Counter(a.nodes) == Counter(b.nodes)
        return turned and a.edges == b.edges and not differing
    ends = [[(e.subject, e.object) for e in graph.edges] for graph in (a, b)]
    if len(a.nodes) != len(b.nodes) or ends[0] != ends[1]:
        return False
    for old, new in zip(a.nodes, b.nodes, strict=True):
        if dict(old.facts).keys() != dict(new.facts).keys():
            return False
        differing |= {name for name, _ in old.facts ^ new.facts}
        if old.concept != new.concept:
            if CONCEPTS[old.concept] <= CONCEPTS[new.concept]:
                return False  # wider: no less true than before
            differing.add("concept")
    if any(old.relation != new.relation for old, new in zip(a.edges, b.edges, strict=True)):
        differing.add("relation")
    return differing == {"concept" if edit in _GROUPS else edit}


def _changed(edit: str, draft: Draft, rng: np.random.Generator) -> Scene | None:
    # A draft's scene with one thing otherwise; None where the edit has nothing to change.
    scene, graph, thing_of = draft.content.scene, draft.caption.graph, draft.thing_of
    things, relations = list(scene.things), list(scene.relations)

    def bound(*names: str) -> set[int]:  # things in such relations
        return {k for i, relation, j in scene.relations if relation in names for k in (i, j)}

    if edit == "number":  # one more of something, which stands where that stands
        free = sorted(set(range(len(things))) - bound(*ACTION_RELATIONS))
        if not free or len(things) == 5:
            return None
        i = pick(rng, free)
        at = {i: len(things)}
        copied = [(at.get(a, a), r, at.get(b, b)) for a, r, b in relations if i in (a, b)]
        return replace(scene, things=(*things, things[i]), relations=(*relations, *copied))
    if edit == "setting":
        shown = [things[i] for i in thing_of.values()]
        settings = [
            setting for setting in SETTINGS
            if graph.setting and setting != scene.setting
            and all(t.kind in HABITAT[setting] for t in shown)
            and (setting in WATER or all(t.kind != "duck" or t.action != "floating" for t in shown))
        ]  # fmt: skip
        return replace(scene, setting=pick(rng, settings)) if settings else None
    if edit == "swap":  # the two things of a relation in each other's place
        if not (turning := [edge for edge in graph.edges if edge.relation in _TURNS]):
            return None
        edge = pick(rng, turning)
        i, j = thing_of[edge.subject], thing_of[edge.object]
        looks = ["kind", "colour", "size", "pattern", *["action"] * (edge.relation in _DIRECTIONS)]
        a, b = ({name: getattr(things[k], name) for name in looks} for k in (i, j))
        things[i], things[j] = replace(things[i], **b), replace(things[j], **a)
    elif edit == "relation":  # another one between the same two things
        if not graph.edges:
            return None
        edge = pick(rng, graph.edges)
        old, target = edge.relation, thing_of[edge.object]
        pairs = {
            (thing_of[e.subject], target) for e in graph.edges
            if e.relation == old and thing_of[e.object] == target
        }  # fmt: skip
        new = pick(rng, (*_DIRECTIONS, *_DIRECTIONS, "riding", "holding", "chasing", "on"))
        if new == old:
            return None
        close, relations = {old, new} - {*_DIRECTIONS, "near"}, []
        for i, relation, j in scene.relations:
            if (i, j) in pairs and relation == old:
                relations.append((i, new, j))
            elif (j, i) in pairs and relation == CONVERSE.get(old) and new in CONVERSE:
                relations.append((i, CONVERSE[new], j))
            elif not ({(i, j), (j, i)} & pairs and close):
                relations.append((i, relation, j))
        if action := {"riding": "sitting", "chasing": "running"}.get(new):
            for i, _ in pairs:
                things[i] = replace(things[i], action=action)
    else:  # another colour, action or kind of a node's things, and of what is spoken of with them
        if edit in _GROUPS:
            fact, groups = "kind", _GROUPS[edit]
            nodes = [n for n, i in thing_of.items() if GROUP_OF[things[i].kind] in groups]
        else:
            fact, tied = edit, bound(*ACTION_RELATIONS, "on") if edit == "action" else set()
            said = [n for n, node in enumerate(graph.nodes) if edit in dict(node.facts)]
            nodes = [node for node in said if not tied & {*draft.alike(node)}]
        if not nodes:
            return None
        rows = draft.alike(pick(rng, nodes))
        alike, first = [things[i] for i in rows], things[rows[0]]
        if edit == "colour":
            shared = [PALETTE[thing.kind] for thing in alike]
            values = [c for c in shared[0] if c != first.colour and all(c in s for s in shared)]
        elif edit == "action":
            able = [set(actions_in(thing.kind, scene.setting)) for thing in alike]
            values = sorted(map(str, set.intersection(*able) - {first.action, None}))
        else:
            values = [
                kind for kind in GROUPS[GROUP_OF[first.kind]]
                if kind in HABITAT[scene.setting] and all(
                    kind != t.kind and t.colour in ("", *PALETTE[kind])
                    and t.action in (None, *actions_in(kind, scene.setting)) for t in alike
                )
            ]  # fmt: skip
        if not values:
            return None
        other: dict[str, Any] = {fact: pick(rng, values)}
        for i in rows:
            things[i] = replace(things[i], **other)
    new_scene = replace(scene, things=tuple(things), relations=tuple(relations))
    return new_scene if edit in ("colour", "action") or _usual(new_scene) else None


def _usual(scene: Scene) -> bool:
    # Whether the world draws such things in these relations.
    kinds, relations = [thing.kind for thing in scene.things], scene.relations

    def usual(i: int, relation: str, j: int) -> bool:
        if relation == "under":
            return kinds[j] in ("tree", "umbrella") or (j, "on", i) in relations
        ridden = relation == "on" and (i, "riding", j) in relations
        return ridden or relation not in PAIRS or kinds[j] in PAIRS[relation].get(kinds[i], ())

    return all(usual(*edge) for edge in relations)


def editable(graph: CaptionGraph, edit: str) -> bool:
    """Whether a caption says what such an edit changes, or, of a number, counts something."""
    if edit in ("colour", "action"):
        return any(edit in dict(node.facts) for node in graph.nodes)
    if edit == "number":
        return len(set(graph.nodes)) < len(graph.nodes)
    if edit == "setting":
        return graph.setting is not None
    if edit in ("relation", "swap"):
        return any(edit == "relation" or edge.relation in _TURNS for edge in graph.edges)
    living = CONCEPTS["person"] | CONCEPTS["animal"]
    return any((CONCEPTS[node.concept] <= living) == (edit == "actor") for node in graph.nodes)
