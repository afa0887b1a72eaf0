"""Scene graphs compared with gold graphs: what two share, and F1."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import networkx as nx
import numpy as np
import pandas as pd

from mmlib.scenegraph.graph import add_attribute, attributes, objects, phrase, relations

KINDS = ("objects", "attributes", "relations")


class Counts(NamedTuple):
    """What two graphs share (tp), what only the predicted one (fp) or the gold one (fn) has."""

    tp: int
    fp: int
    fn: int


def items(graph: nx.MultiDiGraph) -> dict[str, Counter[tuple[str, ...]]]:
    """What a graph states, as multisets by kind; a fallback node states nothing.

    objects: (label,); attributes: (object, attribute with its adverbs); relations: (subject,
    label, object).
    """
    if graph.graph["fallback"]:
        return {kind: Counter() for kind in KINDS}
    label = {i: graph.nodes[i]["label"] for i in objects(graph)}
    return {
        "objects": Counter((name,) for name in label.values()),
        "attributes": Counter(
            (label[i], phrase(graph, node)) for i in label for node in attributes(graph, i)
        ),
        "relations": Counter(
            (label[s], data["label"], label[o]) for s, o, data in relations(graph)
        ),
    }


def compare(predicted: nx.MultiDiGraph, gold: nx.MultiDiGraph) -> dict[str, Counts]:
    """How many objects, attributes and relations are right, too many and missing.

    Labels must be equal. Phrases of which the gold graph allows two readings (its `aside`, see
    `gold_graph`) are taken out of both first.
    """
    aside = gold.graph.get("aside", ())
    ours, true = items(without(predicted, aside)), items(without(gold, aside))
    both = {kind: (ours[kind], true[kind]) for kind in KINDS}
    return {
        kind: Counts((a & b).total(), (a - b).total(), (b - a).total())
        for kind, (a, b) in both.items()
    }


def without(graph: nx.MultiDiGraph, phrases: Sequence[str]) -> nx.MultiDiGraph:
    """The graph as if its caption had not said these phrases: without the objects named in them.

    A verb whose only relation was to such an object ("standing in the park") becomes an
    attribute of its subject, as it would be without the place.
    """
    gone = [
        i
        for i in objects(graph)
        if any(re.search(rf"\b{re.escape(graph.nodes[i]['label'])}\b", p) for p in phrases)
    ]
    if not gone:
        return graph
    copy = graph.copy()
    copy.remove_nodes_from([node for i in gone for node in (i, *attributes(graph, i))])
    for subject, _, data in relations(graph):
        remaining = [d["words"] for s, o, d in relations(copy) if subject in (s, o)]
        if subject in copy and data["words"] and data["words"] not in remaining:
            verb = " ".join(data["words"])
            if verb not in [phrase(copy, node) for node in attributes(copy, subject)]:
                add_attribute(copy, subject, verb)
    return copy


def score(pairs: Iterable[tuple[nx.MultiDiGraph, nx.MultiDiGraph]]) -> pd.DataFrame:
    """Precision, recall and F1 over (predicted, gold) pairs.

    A row for each kind and one for all together; counts are summed over the pairs.
    """
    counts = np.array([list(compare(*pair).values()) for pair in pairs], dtype=int)
    total = counts.reshape(-1, len(KINDS), 3).sum(axis=0)
    tp, fp, fn = np.vstack([total, total.sum(axis=0)]).T
    table = {"precision": tp / np.maximum(tp + fp, 1), "recall": tp / np.maximum(tp + fn, 1)}
    table |= {"F1": 2 * tp / np.maximum(2 * tp + fp + fn, 1), "gold": tp + fn}
    return pd.DataFrame(table, index=[*KINDS, "all"])
