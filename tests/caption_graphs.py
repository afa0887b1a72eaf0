"""Graphs of captions of the picture world, written shortly."""

from mmlib.world.graphs import CaptionGraph, Edge, Node


def node(concept, *facts):
    return Node(concept, frozenset(facts))


def graph(nodes, *edges, **rest):
    return CaptionGraph(tuple(nodes), tuple(Edge(*edge) for edge in edges), **rest)


DOG, CAT, COW = node("dog"), node("cat"), node("cow")
