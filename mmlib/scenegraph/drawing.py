"""Scene graphs as pictures."""

import textwrap
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import networkx as nx

from mmlib.scenegraph.graph import attributes, objects, phrase, relations

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OBJECT_COLOUR, ATTRIBUTE_COLOUR, EDGE_COLOUR = "#cfe3f1", "#fbe3c4", "#555555"


def draw(
    graph: nx.MultiDiGraph,
    axes: "Axes | None" = None,
    weights: Mapping[tuple[Any, Any], float] | None = None,
    title: str | None = None,
) -> "Axes":
    """Draw a scene graph: objects from left to right, attributes below them, relations as arcs.

    axes: where to draw; a figure as wide as the graph needs is made otherwise.
    weights: (node, node) -> a weight in [0, 1], such as attention, for edges in the direction
        given: object -> its attribute, subject -> object. They set the edges' width and are
        written beside them, in percent; an edge without a weight is thin.
    title: by default the caption.
    """
    import matplotlib.pyplot as plt

    weights = weights or {}
    words = {
        (i, node): _weighted(phrase(graph, node), weights.get((i, node)))
        for i in objects(graph)
        for node in attributes(graph, i)
    }
    arcs = [
        (s, o, _weighted(data["label"], weights.get((s, o))), weights.get((s, o)))
        for s, o, data in relations(graph)
    ]
    at: dict[int, float] = {}  # middle and left end of each object's column, in characters
    left: dict[int, float] = {}
    x = 2.0
    for i in objects(graph):
        texts = [graph.nodes[i]["label"], *(words[i, node] for node in attributes(graph, i))]
        wide = 3.5 + max(len(line) for text in texts for line in _wrap(text))
        if i:
            between = [len(label) for s, o, label, _ in arcs if {s, o} == {i - 1, i}]
            x += max(2.0, max(between, default=0) + 4 - (x - at[i - 1] + wide / 2))
        at[i], left[i] = x + wide / 2, x
        x += wide
    width = x + 1
    depth = max(len(attributes(graph, i)) for i in at)
    repeats = Counter(frozenset(arc[:2]) for arc in arcs)
    height = max((abs(s - o) + 0.55 * repeats[frozenset((s, o))] for s, o, *_ in arcs), default=0)
    if axes is None:
        size = (max(3.5, 0.095 * width + 0.4), 1.2 + 0.42 * (depth + 1) + 0.45 * height)
        axes = plt.subplots(figsize=size)[1]
    for i, x in at.items():
        label = graph.nodes[i]["label"]
        for row, node in enumerate(attributes(graph, i), start=1):
            thick = _thickness(weights.get((i, node)))
            spine = [x, left[i], left[i], x]  # round the attributes above this one
            axes.plot(spine, [0, 0, -row, -row], color=EDGE_COLOUR, linewidth=thick, zorder=1)
            _box(axes, x, -row, words[i, node], ATTRIBUTE_COLOUR)
        _box(axes, x, 0, label, OBJECT_COLOUR)
    for s, o, label, weight in arcs:
        repeats[frozenset((s, o))] -= 1
        level = abs(s - o) + 0.55 * repeats[frozenset((s, o))]
        _arc(axes, at[s], at[o], level, label, _thickness(weight))
    axes.set(xlim=(0, width), ylim=(-depth - 0.5, height + 0.5))
    text = graph.graph["text"] if title is None else title
    axes.set_title(textwrap.fill(text, max(30, int(width * 0.95))), fontsize=10)
    axes.axis("off")
    return axes


def _weighted(label: str, weight: float | None) -> str:
    return label if weight is None else f"{label} {weight:.0%}"


def _thickness(weight: float | None) -> float:
    """The width of an edge's line, in points."""
    return 1.0 if weight is None else 0.4 + 4 * weight


def _wrap(text: str) -> list[str]:
    return textwrap.wrap(text, 18) or [text]


def _box(axes: "Axes", x: float, y: float, text: str, colour: str) -> None:
    box = {"boxstyle": "round,pad=0.3", "facecolor": colour, "edgecolor": "#888888"}
    lines = "\n".join(_wrap(text))
    axes.text(x, y, lines, ha="center", va="center", fontsize=9, bbox=box, zorder=3)


def _arc(
    axes: "Axes", start: float, end: float, height: float, label: str, thickness: float
) -> None:
    """An arrow from one object to another, above them all, with its label."""
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path as Curve

    shift = 0.8 if end > start else -0.8  # separates arrows that leave and that reach a box
    tail, head, foot = start + shift, end - shift, 0.3
    bend = (4 * height - foot) / 3  # the curve's middle is at `height`
    points = [(tail, foot), (tail, bend), (head, bend), (head, foot)]
    arrow = FancyArrowPatch(
        path=Curve(points, [Curve.MOVETO] + [Curve.CURVE4] * 3), arrowstyle="-|>", fill=False,
        mutation_scale=10 + thickness, color=EDGE_COLOUR, linewidth=thickness, zorder=1,
    )  # fmt: skip
    axes.add_patch(arrow)
    white = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none"}
    centred: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8, "style": "italic"}
    axes.text((start + end) / 2, height, label, bbox=white, **centred)
