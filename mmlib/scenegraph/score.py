"""Scene graphs compared with gold graphs: what two share, F1, and what was confused."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import networkx as nx
import pandas as pd

from mmlib.scenegraph.graph import add_attribute, attributes, objects, phrase, relations

KINDS = ("objects", "attributes", "relations")
Item = tuple[str, ...]


class Counts(NamedTuple):
    """What two graphs share (tp), what only the predicted one (fp) or the gold one (fn) has."""

    tp: int
    fp: int
    fn: int

    def __add__(self, other: "Counts") -> "Counts":  # type: ignore[override]
        return Counts(*(a + b for a, b in zip(self, other, strict=True)))


def items(graph: nx.MultiDiGraph) -> dict[str, Counter[Item]]:
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

    Labels must be equal. What the gold graph does not know for certain (its `aside`, see
    `from_world`) is taken out of both first.
    """
    found, true = _comparable(predicted, gold)
    return {
        kind: Counts(
            (found[kind] & true[kind]).total(),
            (found[kind] - true[kind]).total(),
            (true[kind] - found[kind]).total(),
        )
        for kind in KINDS
    }


def _comparable(
    predicted: nx.MultiDiGraph, gold: nx.MultiDiGraph
) -> tuple[dict[str, Counter[Item]], dict[str, Counter[Item]]]:
    aside = gold.graph.get("aside", ())
    return items(without(predicted, aside)), items(without(gold, aside))


def without(graph: nx.MultiDiGraph, phrases: Sequence[str]) -> nx.MultiDiGraph:
    """The graph as if its caption had not said these phrases: without the objects named in them.

    A verb that stood in a relation only to such an object ("standing in the park") becomes an
    attribute of its subject, as it would be without the place.
    """
    gone = [
        i
        for i in objects(graph)
        if any(re.search(rf"\b{re.escape(graph.nodes[i]['label'])}\b", p) for p in phrases)
    ]
    if not gone:
        return graph
    kept = graph.copy()
    kept.remove_nodes_from([node for i in gone for node in (i, *attributes(graph, i))])
    for subject, _, data in relations(graph):
        others = [d["words"] for s, o, d in relations(kept) if subject in (s, o)]
        if subject in kept and data["words"] and data["words"] not in others:
            said = " ".join(data["words"])
            if said not in [phrase(kept, node) for node in attributes(kept, subject)]:
                add_attribute(kept, subject, said)
    return kept


def score(
    pairs: Iterable[tuple[nx.MultiDiGraph, nx.MultiDiGraph]],
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Precision, recall and F1 over (predicted, gold) pairs, and what was confused with what.

    The first table has a row for each kind and one for all together; counts are summed over the
    pairs. The second counts, by kind, the sorts of errors, most frequent first, with an example
    of the form gold -> predicted.
    """
    total = dict.fromkeys(KINDS, Counts(0, 0, 0))
    errors: dict[tuple[str, str], list[str]] = {}
    for predicted, gold in pairs:
        counts = compare(predicted, gold)
        total = {kind: total[kind] + counts[kind] for kind in KINDS}
        for kind, what, example in confusions(predicted, gold):
            errors.setdefault((kind, what), []).append(example)
    total["all"] = total["objects"] + total["attributes"] + total["relations"]
    scores = pd.DataFrame(
        {
            kind: {
                "precision": c.tp / max(c.tp + c.fp, 1),
                "recall": c.tp / max(c.tp + c.fn, 1),
                "F1": 2 * c.tp / max(2 * c.tp + c.fp + c.fn, 1),
                "gold": c.tp + c.fn,
            }
            for kind, c in total.items()
        }
    ).T.astype({"gold": int})
    rows = [(*key, len(some), some[0]) for key, some in errors.items()]
    rows.sort(key=lambda row: -row[2])
    return scores, pd.DataFrame(rows, columns=["kind", "error", "count", "example"])


def confusions(predicted: nx.MultiDiGraph, gold: nx.MultiDiGraph) -> Iterator[tuple[str, str, str]]:
    """(kind, error, "gold -> predicted") of each difference; items alike in part go together."""
    found, true = _comparable(predicted, gold)
    for kind in KINDS:
        extra = list((found[kind] - true[kind]).elements())
        missing = list((true[kind] - found[kind]).elements())
        pairs = sorted(
            ((_alike(m, e), m, e) for m in set(missing) for e in set(extra)), reverse=True
        )
        for alike, m, e in pairs:
            if alike and m in missing and e in extra:
                missing.remove(m)
                extra.remove(e)
                yield kind, _difference(kind, m, e), f"{_written(m)} -> {_written(e)}"
        yield from ((kind, "missing", f"{_written(m)} ->") for m in missing)
        yield from ((kind, "too many", f"-> {_written(e)}") for e in extra)


def _alike(gold: Item, found: Item) -> float:
    """How many parts two items share; words in common count a little."""
    words = len(set(" ".join(gold).split()) & set(" ".join(found).split()))
    return sum(a == b for a, b in zip(gold, found, strict=True)) + 0.1 * words


def _difference(kind: str, gold: Item, found: Item) -> str:
    names = {
        "objects": ("other name",),
        "attributes": ("at another object", "other words"),
        "relations": ("other subject", "other label", "other object"),
    }[kind]
    return ", ".join(n for n, a, b in zip(names, gold, found, strict=True) if a != b)


def _written(item: Item) -> str:
    return f"({' | '.join(item)})" if item[1:] else item[0]
