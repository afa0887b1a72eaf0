from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from caption_graphs import CAT, COW, DOG, graph, node

from mmlib.world import logic
from mmlib.world.captions import captions
from mmlib.world.graphs import CONCEPTS, Edge
from mmlib.world.logic import closure, entails, satisfies
from mmlib.world.scenes import pick, sample_scene, split_seeds
from mmlib.world.schema import RELATIONS


@pytest.fixture(scope="module")
def scenes():
    return [sample_scene(seed) for seed in split_seeds("test", 400)]


@pytest.fixture(scope="module")
def graphs(scenes):
    return [one.graph for scene in scenes for one in captions(scene)]


def weaken(rng, graph, steps=2):
    """Drop a node, an edge, a fact, the setting or the style, or widen a concept."""
    for _ in range(steps):
        nodes, edges, kind = list(graph.nodes), list(graph.edges), rng.integers(6)
        i = int(rng.integers(len(nodes))) if nodes else 0
        if kind == 0 and len(nodes) > 1:
            edges = [e for e in edges if i not in (e.subject, e.object)]
            edges = [
                replace(e, subject=e.subject - (e.subject > i), object=e.object - (e.object > i))
                for e in edges
            ]
            del nodes[i]
        elif kind == 1 and edges:
            del edges[rng.integers(len(edges))]
        elif kind == 2 and nodes[i].facts:
            nodes[i] = replace(nodes[i], facts=frozenset(sorted(nodes[i].facts)[1:]))
        elif kind == 3:
            wider = [c for c in CONCEPTS if CONCEPTS[nodes[i].concept] <= CONCEPTS[c]]
            nodes[i] = replace(nodes[i], concept=pick(rng, wider))
        graph = replace(graph, nodes=tuple(nodes), edges=tuple(edges))
        graph = replace(graph, setting=None) if kind == 4 else graph
        graph = replace(graph, style=None) if kind == 5 else graph
    return graph


def disturb(rng, graph):
    """A graph close to this one that need not follow from it."""
    graph = weaken(rng, graph, 2)
    if graph.edges and rng.random() < 0.7:
        edges = list(graph.edges)
        k = int(rng.integers(len(edges)))
        i, relation, j = edges[k].subject, edges[k].relation, edges[k].object
        # Either the same relation turned round or another one.
        turned = rng.random() < 0.5
        edges[k] = Edge(j, relation, i) if turned else Edge(i, pick(rng, RELATIONS), j)
        graph = replace(graph, edges=tuple(edges))
    if rng.random() < 0.3:
        extra = pick(rng, (("action", "running"), ("action", "sitting"), ("size", "small")))
        nodes = list(graph.nodes)
        k = int(rng.integers(len(nodes)))
        nodes[k] = replace(nodes[k], facts=nodes[k].facts | {extra})
        graph = replace(graph, nodes=tuple(nodes))
    return graph


def by_hand(scene, graph):
    """satisfies, by trying every assignment of things to nodes."""
    for choice in permutations(range(len(scene.things)), len(graph.nodes)):
        chosen = [scene.things[i] for i in choice]
        if (
            all(t.kind in CONCEPTS[n.concept] for t, n in zip(chosen, graph.nodes, strict=True))
            and all(
                getattr(t, name) == value
                for t, n in zip(chosen, graph.nodes, strict=True)
                for name, value in n.facts
            )
            and all(
                (choice[e.subject], e.relation, choice[e.object]) in scene.relations
                for e in graph.edges
            )
        ):
            return graph.setting in (None, scene.setting) and graph.style in (None, scene.style)
    return False


def test_satisfies_equals_trying_all_assignments(scenes, graphs):
    rng = np.random.default_rng(0)
    true = 0
    for _ in range(2000):
        k = int(rng.integers(len(scenes)))
        scene = scenes[k]
        own = [g for g in graphs[5 * k : 5 * k + 5]]
        some = disturb(rng, pick(rng, own)) if rng.random() < 0.7 else pick(rng, graphs)
        assert satisfies(scene, some) == by_hand(scene, some)
        true += satisfies(scene, some)
    assert 200 < true < 1800


def test_scenes_are_closed_under_the_rules(scenes):
    for scene in scenes:
        assert closure(set(scene.relations)) == set(scene.relations)
        for i, relation, _ in scene.relations:
            subject = scene.things[i]
            assert subject.kind in logic.SUBJECT_IS.get(relation, {subject.kind})
            assert subject.action == logic.SUBJECT_DOES.get(relation, subject.action)


def nearby(graph):
    """Every graph in which one edge is another relation, either way, or one node does another."""
    for k, edge in enumerate(graph.edges):
        for i, j in ((edge.subject, edge.object), (edge.object, edge.subject)):
            for relation in RELATIONS:
                edges = (*graph.edges[:k], Edge(i, relation, j), *graph.edges[k + 1 :])
                yield replace(graph, edges=edges)
    for k, one in enumerate(graph.nodes):
        for action in ("sitting", "running", "standing"):
            new = replace(one, facts=one.facts | {("action", action)})
            yield replace(graph, nodes=(*graph.nodes[:k], new, *graph.nodes[k + 1 :]))


def counterexamples(scenes, graphs, seed=1):
    """Scenes that satisfy a premise but not what it is said to entail; and how many were tried."""
    rng = np.random.default_rng(seed)
    found, tried = [], 0
    for k, premise in enumerate(graphs):
        several = [disturb(rng, premise), weaken(rng, premise, 3), pick(rng, graphs)]
        for hypothesis in (*several, *nearby(premise)):
            if not entails(premise, hypothesis):
                continue
            for scene in (scenes[k // 5], pick(rng, scenes), pick(rng, scenes)):
                if satisfies(scene, premise):
                    tried += 1
                    if not satisfies(scene, hypothesis):
                        found.append((premise, hypothesis, scene))
    return found, tried


def test_entailment_is_sound(scenes, graphs):
    found, tried = counterexamples(scenes, graphs)
    assert not found
    assert tried > 4000


@pytest.mark.parametrize(
    ("table", "rule"),
    [
        ("IMPLIES", {"near": "on"}),
        ("CONVERSE", {"behind": "behind"}),
        ("CONVERSE", {"under": "on"}),
        ("IMPLIES", {"chasing": "near"}),
        ("SUBJECT_DOES", {"holding": "sitting"}),
    ],
)
def test_the_search_finds_an_unsound_rule(scenes, graphs, monkeypatch, table, rule):
    monkeypatch.setattr(logic, table, {**getattr(logic, table), **rule})
    found, _ = counterexamples(scenes, graphs[:700])
    assert found


def test_whatever_is_got_by_weakening_is_entailed(graphs):
    rng = np.random.default_rng(3)
    for some in graphs[:1000]:
        assert entails(some, weaken(rng, some, int(rng.integers(5))))


MAN, HORSE, TREE = node("man"), node("horse"), node("tree")
RIDING = graph([MAN, HORSE], (0, "riding", 1))
LEFT, BEHIND = (graph([DOG, CAT, COW], (0, r, 1), (1, r, 2)) for r in ("left of", "behind"))


@pytest.mark.parametrize(
    ("premise", "hypothesis", "follows"),
    [
        (graph([node("dog", ("colour", "red"))]), graph([node("animal")]), True),
        (graph([node("animal")]), graph([DOG]), False),
        (graph([node("girl")]), graph([node("child")]), True),
        (graph([node("tent")]), graph([node("building")]), False),
        (graph([DOG, DOG]), graph([node("animal")] * 2), True),
        (graph([DOG]), graph([DOG, DOG]), False),
        (graph([DOG, CAT], (0, "left of", 1)), graph([CAT, DOG], (0, "right of", 1)), True),
        (graph([DOG, CAT], (0, "left of", 1)), graph([CAT, DOG], (0, "left of", 1)), False),
        (LEFT, graph([DOG, COW], (0, "left of", 1)), True),
        (BEHIND, graph([DOG, COW], (0, "behind", 1)), False),
        (RIDING, graph([node("person", ("action", "sitting")), HORSE], (0, "on", 1)), True),
        (graph([node("thing"), HORSE], (0, "riding", 1)),
         graph([node("person"), HORSE], (0, "near", 1)), True),
        (graph([MAN, HORSE], (0, "on", 1)), RIDING, False),
        (graph([CAT, TREE], (0, "on", 1)), graph([TREE, CAT], (0, "under", 1)), True),
        (graph([COW, TREE], (0, "under", 1)), graph([TREE, COW], (0, "on", 1)), False),
        (graph([DOG, CAT], (0, "chasing", 1)), graph([node("dog", ("action", "running"))]), True),
        (graph([DOG], setting="park"), graph([DOG], setting="field"), False),
        (graph([DOG], setting="park"), graph([], setting="park"), True),
        (graph([DOG]), graph([], style="sketch"), False),
    ],
)  # fmt: skip
def test_entailment_by_hand(premise, hypothesis, follows):
    assert entails(premise, hypothesis) is follows
