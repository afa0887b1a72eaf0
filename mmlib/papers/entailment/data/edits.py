"""Captions with one fact changed: the minimal edits of world hypotheses.

The edit is made in the scene, not in the text: a changed copy of the scene is captioned with the
same random choices as the scene itself, so text and graph always agree. Edits keep to what the
world knows (no pink cows, no trees that chase a ball), lest a sentence give itself away.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from mmlib.papers.entailment.data.premises import PartialScene, partial_scene, write_caption
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
Accept = Callable[[Caption], bool]
Edit = Callable[["Draft", np.random.Generator], Scene | None]


@dataclass(frozen=True)
class Draft:
    """A caption that can be written again, of something else, with the same random choices.

    node_of: {thing: node}, of the scene told.
    """

    told: PartialScene
    key: int
    detail: int
    widen: float
    caption: Caption
    node_of: dict[int, int]

    def things(self) -> dict[int, int]:
        """{node: thing}."""
        return {node: thing for thing, node in self.node_of.items()}

    def again(self, scene: Scene) -> "Draft | None":
        """The same of a changed copy of the scene."""
        return _draft(replace(self.told, scene=scene), self.key, self.detail, self.widen)


def _draft(told: PartialScene, key: int, detail: int, widen: float) -> Draft | None:
    made = write_caption(told, np.random.default_rng(key), detail, widen)
    return Draft(told, key, detail, widen, *made) if made else None


def new_draft(
    told: PartialScene, rng: np.random.Generator, general: bool, edit: str = ""
) -> Draft | None:
    """A caption; where `general` with facts left out and concepts widened.

    None also where an `edit` would find nothing in what is told, so that no caption need be tried.
    """
    detail = pick(rng, (int(rng.random() < 0.7), 2, 3, 3, 4))
    if general:
        part = partial_scene(told.scene, 0.5, rng)
        told = PartialScene(part.scene, told.place and part.place, told.style and part.style)
    key = int(rng.integers(2**32))
    if edit and not _changeable(told, edit):
        return None
    return _draft(told, key, detail, 0.6 if general else WIDEN)


def anything(caption: Caption) -> bool:
    """Accepts every caption."""
    return True


def edited(
    told: PartialScene, edit: str, rng: np.random.Generator, accept: Accept = anything
) -> tuple[Caption, str] | None:
    """A caption that says one thing otherwise than what is told, and the text that it is made of.

    The edit is made in the scene: its changed copy is captioned with the same random choices as
    the scene, and kept where the two captions differ in that fact and in few words only. "number"
    adds a thing of one sort, and seldom has a text that it is made of in few words: then it is "".

    Args:
        told: what may be told.
        edit: one of EDITS.
        rng: all randomness.
        accept: which captions may be edited.

    Returns:
        None where 12 tries find nothing.
    """
    for _ in range(_TRIES):
        before = new_draft(told, rng, rng.random() < GENERAL, edit)
        scene = _EDIT[edit](before, rng) if before else None
        after = before.again(scene) if before and scene else None
        if not before or not after:
            continue
        few = _new_words(before.caption, after.caption) <= _WORDS
        if edit == "number":
            fits = _counted(after)
        else:
            fits = few and _minimal(before.caption, after.caption, edit)
        if fits and accept(before.caption):
            return after.caption, before.caption.text if few else ""
    return None


def _changeable(told: PartialScene, edit: str) -> bool:
    """Whether anything that is told could be edited so."""
    scene = told.scene
    if edit == "setting":
        return told.place
    if edit in ("relation", "swap"):
        return any(edit == "relation" or _turns(relation) for _, relation, _ in scene.relations)
    if edit == "number":
        return len(scene.things) < 5
    if edit == "colour":
        return any(thing.colour for thing in scene.things)
    if edit == "action":
        return any(thing.action for thing in scene.things)
    return any(GROUP_OF[thing.kind] in _KINDS[edit] for thing in scene.things)


def _minimal(a: Caption, b: Caption, edit: str) -> bool:
    """Whether two captions differ in what the edit is about, and in nothing else."""
    if edit == "swap":
        turned = a.graph.nodes != b.graph.nodes and a.graph.edges == b.graph.edges
        same = Counter(a.graph.nodes) == Counter(b.graph.nodes)
        placed = (a.graph.setting, a.graph.style) == (b.graph.setting, b.graph.style)
        return turned and same and placed
    about = "concept" if edit in ("actor", "object") else edit
    return _difference(a.graph, b.graph) == {about}


def _new_words(a: Caption, b: Caption) -> int:
    """How many words of the second are not in the first."""
    one, two = (Counter(c.text.lower().rstrip(".").replace(",", "").split()) for c in (a, b))
    return (two - one).total()


def _difference(a: CaptionGraph, b: CaptionGraph) -> set[str]:
    """In what two graphs differ: names of facts, "concept", "relation", "setting", "style".

    "wider": the second has a wider concept. "shape": in what they speak of at all.
    """
    ends = [[(e.subject, e.object) for e in graph.edges] for graph in (a, b)]
    if len(a.nodes) != len(b.nodes) or ends[0] != ends[1]:
        return {"shape"}
    found = {name for name in ("setting", "style") if getattr(a, name) != getattr(b, name)}
    for one, two in zip(a.nodes, b.nodes, strict=True):
        if {name for name, _ in one.facts} != {name for name, _ in two.facts}:
            return {"shape"}
        found |= {name for name, _ in one.facts ^ two.facts}
        if one.concept != two.concept:
            wider = CONCEPTS[one.concept] <= CONCEPTS[two.concept]  # no less true than before
            found.add("wider" if wider else "concept")
    if any(one.relation != two.relation for one, two in zip(a.edges, b.edges, strict=True)):
        found.add("relation")
    return found


# --- Edits: a draft to its scene with one thing otherwise -----------------------------------------


def _alike(draft: Draft, node: int) -> list[int]:
    """The things of a node and of those that are spoken of with it ("two red dogs")."""
    nodes = draft.caption.graph.nodes
    return [thing for at, thing in draft.things().items() if nodes[at] == nodes[node]]


def _with(scene: Scene, things: Sequence[int], **facts: str) -> Scene:
    new = [replace(t, **facts) if i in things else t for i, t in enumerate(scene.things)]  # type: ignore[arg-type]
    return replace(scene, things=tuple(new))


def _saying(draft: Draft, name: str) -> list[int]:
    """The nodes of which a fact is said."""
    nodes = draft.caption.graph.nodes
    return [at for at, node in enumerate(nodes) if any(fact == name for fact, _ in node.facts)]


def _bound(scene: Scene, relations: Sequence[str]) -> set[int]:
    """The things in such relations."""
    return {k for i, relation, j in scene.relations if relation in relations for k in (i, j)}


def _edit_colour(draft: Draft, rng: np.random.Generator) -> Scene | None:
    if not (nodes := _saying(draft, "colour")):
        return None
    alike = _alike(draft, pick(rng, nodes))
    scene = draft.told.scene
    options = [
        colour
        for colour in PALETTE[scene.things[alike[0]].kind]
        if colour != scene.things[alike[0]].colour
        and all(colour in PALETTE[scene.things[i].kind] for i in alike)
    ]
    return _with(scene, alike, colour=pick(rng, options)) if options else None


def _edit_action(draft: Draft, rng: np.random.Generator) -> Scene | None:
    scene = draft.told.scene
    nodes = [
        node
        for node in _saying(draft, "action")
        if not set(_alike(draft, node)) & _bound(scene, (*ACTION_RELATIONS, "on"))
    ]
    if not nodes:
        return None
    alike = _alike(draft, pick(rng, nodes))
    able = [set(actions_in(scene.things[i].kind, scene.setting)) for i in alike]
    options = sorted(
        str(a) for a in set.intersection(*able) - {scene.things[alike[0]].action, None}
    )
    return _with(scene, alike, action=pick(rng, options)) if options else None


def _edit_kind(draft: Draft, rng: np.random.Generator, groups: Sequence[str]) -> Scene | None:
    scene = draft.told.scene
    nodes = [
        at for at, thing in draft.things().items() if GROUP_OF[scene.things[thing].kind] in groups
    ]
    if not nodes:
        return None
    alike = _alike(draft, pick(rng, nodes))
    some = [scene.things[i] for i in alike]
    options = [
        kind
        for kind in GROUPS[GROUP_OF[some[0].kind]]
        if kind in HABITAT[scene.setting]
        and all(
            kind != t.kind
            and t.colour in ("", *PALETTE[kind])
            and t.action in (None, *actions_in(kind, scene.setting))
            for t in some
        )
    ]
    if not options:
        return None
    changed = _with(scene, alike, kind=pick(rng, options))
    return changed if _usual(changed) else None


def _usual(scene: Scene) -> bool:
    """Whether who rides, holds, chases, is on or under what is what the world has."""
    kinds = [thing.kind for thing in scene.things]

    def usual(i: int, relation: str, j: int) -> bool:
        if relation == "under":
            return kinds[j] in ("tree", "umbrella") or (j, "on", i) in scene.relations
        if relation == "on" and (i, "riding", j) in scene.relations:
            return True
        return relation not in PAIRS or kinds[j] in PAIRS[relation].get(kinds[i], ())

    return all(usual(*edge) for edge in scene.relations)


def _edit_setting(draft: Draft, rng: np.random.Generator) -> Scene | None:
    scene = draft.told.scene
    if not draft.caption.graph.setting:
        return None
    things = [scene.things[i] for i in draft.node_of]
    options = [
        setting
        for setting in SETTINGS
        if setting != scene.setting
        and all(t.kind in HABITAT[setting] for t in things)
        and (setting in WATER or all(t.kind != "duck" or t.action != "floating" for t in things))
    ]
    return replace(scene, setting=pick(rng, options)) if options else None


def _edit_relation(draft: Draft, rng: np.random.Generator) -> Scene | None:
    """Another relation between the same two things."""
    edges = draft.caption.graph.edges
    if not edges:
        return None
    thing = draft.things()
    edge = pick(rng, edges)
    pairs = {(thing[e.subject], thing[e.object]) for e in edges if e.relation == edge.relation}
    pairs = {(i, j) for i, j in pairs if j == thing[edge.object]}
    new = pick(rng, (*_DIRECTIONS, *_DIRECTIONS, "riding", "holding", "chasing", "on"))
    if new == edge.relation:
        return None
    scene = draft.told.scene
    close = {edge.relation, new} - {*_DIRECTIONS, "near"}
    relations = []
    for i, relation, j in scene.relations:
        if (i, j) in pairs and relation == edge.relation:
            relations.append((i, new, j))
        elif (j, i) in pairs and relation == CONVERSE.get(edge.relation) and new in CONVERSE:
            relations.append((i, CONVERSE[new], j))
        elif not ({(i, j), (j, i)} & pairs and close):
            relations.append((i, relation, j))
    action = {"riding": "sitting", "chasing": "running"}.get(new)
    if action:
        scene = _with(scene, [i for i, _ in pairs], action=action)
    changed = replace(scene, relations=tuple(relations))
    return changed if _usual(changed) else None


def _edit_swap(draft: Draft, rng: np.random.Generator) -> Scene | None:
    """The two things of a relation in each other's place."""
    edges = [e for e in draft.caption.graph.edges if _turns(e.relation)]
    if not edges:
        return None
    thing, edge = draft.things(), pick(rng, edges)
    i, j = thing[edge.subject], thing[edge.object]
    scene = draft.told.scene
    things = list(scene.things)
    one, two = things[i], things[j]
    looks = ["kind", "colour", "size", "pattern"]
    if edge.relation in _DIRECTIONS:
        looks.append("action")
    things[i] = replace(one, **{name: getattr(two, name) for name in looks})
    things[j] = replace(two, **{name: getattr(one, name) for name in looks})
    changed = replace(scene, things=tuple(things))
    return changed if _usual(changed) else None


def _edit_number(draft: Draft, rng: np.random.Generator) -> Scene | None:
    """One more of something, which stands where that stands."""
    scene = draft.told.scene
    free = set(range(len(scene.things))) - _bound(scene, ACTION_RELATIONS)
    if not free or len(scene.things) == 5:
        return None
    i, new = pick(rng, sorted(free)), len(scene.things)
    copied = tuple(
        (new if a == i else a, relation, new if b == i else b)
        for a, relation, b in scene.relations
        if i in (a, b)
    )
    return replace(
        scene, things=(*scene.things, scene.things[i]), relations=(*scene.relations, *copied)
    )


def _counted(draft: Draft) -> bool:
    """Whether the added thing, the last, is spoken of as one of several."""
    added = draft.node_of.get(len(draft.told.scene.things) - 1)
    nodes = draft.caption.graph.nodes
    return added is not None and nodes.count(nodes[added]) > 1


_KINDS = {"actor": ("person", "animal"), "object": ("vehicle", "plant", "building", "thing")}
_EDIT: dict[str, Edit] = {
    "colour": _edit_colour, "number": _edit_number, "relation": _edit_relation,
    "swap": _edit_swap, "setting": _edit_setting, "action": _edit_action,
    **{edit: partial(_edit_kind, groups=groups) for edit, groups in _KINDS.items()},
}  # fmt: skip


def editable(graph: CaptionGraph, edit: str) -> bool:
    """Whether a caption says what such an edit changes, or, of a number, counts something."""
    if edit in ("colour", "action"):
        return any(name == edit for node in graph.nodes for name, _ in node.facts)
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
