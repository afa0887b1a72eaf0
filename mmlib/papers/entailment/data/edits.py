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

    @property
    def scene(self) -> Scene:
        """What it may speak of."""
        return self.content.scene

    def again(self, scene: Scene) -> "Draft | None":
        """The same of a changed copy of the scene."""
        return _draft(replace(self.content, scene=scene), self.key, self.detail, self.widen)

    def saying(self, fact: str) -> list[int]:
        """The nodes of which a fact such as "colour" is said."""
        nodes = enumerate(self.caption.graph.nodes)
        return [i for i, node in nodes if fact in dict(node.facts)]

    def alike(self, node: int) -> list[int]:
        """The things of a node and of those that are spoken of with it ("two red dogs")."""
        nodes = self.caption.graph.nodes
        return [thing for i, thing in self.thing_of.items() if nodes[i] == nodes[node]]


Edit = Callable[[Draft, np.random.Generator], Scene | None]


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
        scene = _EDIT[edit](before, rng) if before else None
        after = before.again(scene) if before and scene else None
        if not before or not after:
            continue
        few = _new_words(before.caption, after.caption) <= _WORDS
        graphs = before.caption.graph, after.caption.graph
        minimal = _counted(after) if edit == "number" else few and _minimal(*graphs, edit)
        if minimal and accept(before.caption):
            return after.caption, before.caption.text if few else ""
    return None


def _new_words(before: Caption, after: Caption) -> int:
    """How many words of the second are not in the first."""
    texts = (c.text.lower().rstrip(".").replace(",", "") for c in (before, after))
    old, new = (Counter(text.split()) for text in texts)
    return (new - old).total()


def _minimal(a: CaptionGraph, b: CaptionGraph, edit: str) -> bool:
    """Whether two captions differ in what the edit is about, and in nothing else."""
    if edit == "swap":
        turned = a.nodes != b.nodes and a.edges == b.edges
        same = Counter(a.nodes) == Counter(b.nodes)
        return turned and same and (a.setting, a.style) == (b.setting, b.style)
    return _difference(a, b) == {"concept" if edit in _GROUPS else edit}


def _difference(a: CaptionGraph, b: CaptionGraph) -> set[str]:
    """In what two graphs differ: names of facts, "concept", "relation", "setting", "style".

    "wider": the second has a wider concept. "shape": in what they speak of at all.
    """
    ends = [[(e.subject, e.object) for e in graph.edges] for graph in (a, b)]
    if len(a.nodes) != len(b.nodes) or ends[0] != ends[1]:
        return {"shape"}
    names = {name for name in ("setting", "style") if getattr(a, name) != getattr(b, name)}
    for old, new in zip(a.nodes, b.nodes, strict=True):
        if dict(old.facts).keys() != dict(new.facts).keys():
            return {"shape"}
        names |= {name for name, _ in old.facts ^ new.facts}
        if old.concept != new.concept:
            wider = CONCEPTS[old.concept] <= CONCEPTS[new.concept]  # no less true than before
            names.add("wider" if wider else "concept")
    if any(old.relation != new.relation for old, new in zip(a.edges, b.edges, strict=True)):
        names.add("relation")
    return names


# --- Edits: a draft to its scene with one thing otherwise -----------------------------------------


def _change(
    draft: Draft, rng: np.random.Generator, nodes: Sequence[int], fact: str,
    options: Callable[[list[Thing]], list[str]],
) -> Scene | None:  # fmt: skip
    """The scene with another fact of one of these nodes and of what is spoken of with it.

    options: things that are alike -> the values that the fact may take.
    """
    if not nodes:
        return None
    alike, scene = draft.alike(pick(rng, nodes)), draft.scene
    values = options([scene.things[i] for i in alike])
    if not values:
        return None
    return _with_facts(scene, alike, **{fact: pick(rng, values)})


def _with_facts(scene: Scene, rows: Sequence[int], **facts: str) -> Scene:
    entities = list(scene.things)
    for i in rows:
        entities[i] = replace(entities[i], **facts)  # type: ignore[arg-type]
    return replace(scene, things=tuple(entities))


def _bound(scene: Scene, relations: Sequence[str]) -> set[int]:
    """The things in such relations."""
    return {k for i, relation, j in scene.relations if relation in relations for k in (i, j)}


def _edit_colour(draft: Draft, rng: np.random.Generator) -> Scene | None:
    def options(alike: list[Thing]) -> list[str]:
        return [
            colour for colour in PALETTE[alike[0].kind]
            if colour != alike[0].colour and all(colour in PALETTE[t.kind] for t in alike)
        ]  # fmt: skip

    return _change(draft, rng, draft.saying("colour"), "colour", options)


def _edit_action(draft: Draft, rng: np.random.Generator) -> Scene | None:
    bound = _bound(draft.scene, (*ACTION_RELATIONS, "on"))
    nodes = [node for node in draft.saying("action") if not bound & {*draft.alike(node)}]

    def options(alike: list[Thing]) -> list[str]:
        able = [set(actions_in(thing.kind, draft.scene.setting)) for thing in alike]
        return sorted(map(str, set.intersection(*able) - {alike[0].action, None}))

    return _change(draft, rng, nodes, "action", options)


def _edit_kind(draft: Draft, rng: np.random.Generator, groups: Sequence[str]) -> Scene | None:
    setting, kinds = draft.scene.setting, [thing.kind for thing in draft.scene.things]
    nodes = [node for node, thing in draft.thing_of.items() if GROUP_OF[kinds[thing]] in groups]

    def options(alike: list[Thing]) -> list[str]:
        return [
            kind for kind in GROUPS[GROUP_OF[alike[0].kind]]
            if kind in HABITAT[setting] and all(
                kind != t.kind
                and t.colour in ("", *PALETTE[kind])
                and t.action in (None, *actions_in(kind, setting))
                for t in alike
            )
        ]  # fmt: skip

    return _if_usual(_change(draft, rng, nodes, "kind", options))


def _if_usual(scene: Scene | None) -> Scene | None:
    """The scene, if the world draws its things in these relations."""
    if scene is None:
        return None
    kinds, relations = [thing.kind for thing in scene.things], scene.relations

    def usual(i: int, relation: str, j: int) -> bool:
        if relation == "under":
            return kinds[j] in ("tree", "umbrella") or (j, "on", i) in relations
        ridden = relation == "on" and (i, "riding", j) in relations
        return ridden or relation not in PAIRS or kinds[j] in PAIRS[relation].get(kinds[i], ())

    return scene if all(usual(*edge) for edge in relations) else None


def _edit_setting(draft: Draft, rng: np.random.Generator) -> Scene | None:
    scene = draft.scene
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


def _edit_relation(draft: Draft, rng: np.random.Generator) -> Scene | None:
    """Another relation between the same two things."""
    edges, thing_of = draft.caption.graph.edges, draft.thing_of
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
    scene = draft.scene
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
        scene = _with_facts(scene, [i for i, _ in pairs], action=action)
    return _if_usual(replace(scene, relations=tuple(relations)))


def _edit_swap(draft: Draft, rng: np.random.Generator) -> Scene | None:
    """The two things of a relation in each other's place."""
    edges = [edge for edge in draft.caption.graph.edges if _turns(edge.relation)]
    if not edges:
        return None
    edge, entities = pick(rng, edges), list(draft.scene.things)
    i, j = draft.thing_of[edge.subject], draft.thing_of[edge.object]
    subject, target = entities[i], entities[j]
    looks = ["kind", "colour", "size", "pattern", *["action"] * (edge.relation in _DIRECTIONS)]
    entities[i] = replace(subject, **{name: getattr(target, name) for name in looks})
    entities[j] = replace(target, **{name: getattr(subject, name) for name in looks})
    return _if_usual(replace(draft.scene, things=tuple(entities)))


def _edit_number(draft: Draft, rng: np.random.Generator) -> Scene | None:
    """One more of something, which stands where that stands."""
    scene = draft.scene
    free = set(range(len(scene.things))) - _bound(scene, ACTION_RELATIONS)
    if not free or len(scene.things) == 5:
        return None
    i, new = pick(rng, sorted(free)), len(scene.things)
    at = {i: new}
    copied = [(at.get(a, a), r, at.get(b, b)) for a, r, b in scene.relations if i in (a, b)]
    entities, relations = (*scene.things, scene.things[i]), (*scene.relations, *copied)
    return replace(scene, things=entities, relations=relations)


def _counted(draft: Draft) -> bool:
    """Whether the added thing, the last, is spoken of as one of several."""
    added = len(draft.scene.things) - 1
    return any(row == added and len(draft.alike(node)) > 1 for node, row in draft.thing_of.items())


_EDIT: dict[str, Edit] = {
    "colour": _edit_colour, "number": _edit_number, "relation": _edit_relation,
    "swap": _edit_swap, "setting": _edit_setting, "action": _edit_action,
    **{edit: partial(_edit_kind, groups=groups) for edit, groups in _GROUPS.items()},
}  # fmt: skip


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
