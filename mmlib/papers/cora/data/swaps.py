"""Captions with two things exchanged, in their graphs and words alike: who has or does what?

As in ARO (Yuksekgonul et al., ICLR 2023) and SugarCrepe (Hsieh et al., NeurIPS 2023).
"""

import re
from collections.abc import Iterable, Mapping
from itertools import combinations

import networkx as nx
import numpy as np

from mmlib.core.paths import table_beside
from mmlib.core.records import canonical
from mmlib.papers.cora.data.texts import LIMITS
from mmlib.scenegraph import from_authors, to_authors
from mmlib.scenegraph.trees import WORDS

_TABLE = table_beside(__file__)
ALIKE = [frozenset(words.split()) for words in _TABLE["alike"]]
NUMBERS, COLOURS, ANIMALS, PLURAL, MASS = (
    frozenset(_TABLE[n].split()) for n in ("numbers", "colours", "animals", "plural", "mass")
)
SYMMETRIC, JOINED, AN = (_TABLE[n].format(**_TABLE) for n in ("symmetric", "joined", "an"))
# What is exchanged of two objects; of ends, whole noun phrases.
KINDS = {"attributes": ["attributes"], "nouns": ["name"], "ends": ["attributes", "name"]}


def swap_all(
    graphs: Iterable[nx.MultiDiGraph],
) -> tuple[list[str], list[nx.MultiDiGraph], dict[str, np.ndarray]]:
    """Captions with two things exchanged, their graphs, and kind -> the swap of each caption or -1.

    "colours" are those attributes, and "animate ends" those ends, of which both are so.
    """
    listed, texts, exchanged = list(graphs), list[str](), list[nx.MultiDiGraph]()
    of = {kind: np.full(len(listed), -1) for kind in (*KINDS, "colours", "animate ends")}
    for i, graph in enumerate(listed):
        for kind in KINDS:
            if found := swap(graph, kind):
                both = (
                    COLOURS.issuperset(found[2]),
                    (WORDS["people"] | ANIMALS).issuperset(found[2]),
                )
                subsets = ["colours"] * (kind == "attributes" and both[0])
                subsets += ["animate ends"] * (kind == "ends" and both[1])
                for name in (kind, *subsets):
                    of[name][i] = len(texts)
                texts.append(found[0])
                exchanged.append(found[1])
    return texts, exchanged, of


def swap(graph: nx.MultiDiGraph, kind: str) -> tuple[str, nx.MultiDiGraph, list[str]] | None:
    """A caption with the first two things exchanged that can be, its graph, and their last words.

    Their words stand once in the caption; an attribute is the only one, and before its noun. Left
    out is what may still be true or is bad English: words that are alike, nouns of other number,
    nouns that are joined ("a man and a dog"), ends of a symmetric relation. None for no such two.
    """
    entry, text = to_authors(graph), canonical(graph.graph["text"]).lower()
    things = entry["entities"][: LIMITS["objects"]]
    pairs: Iterable[tuple[int, int]] = combinations(range(len(things)), 2)
    if kind == "ends":
        related = [(s, o, " ".join([*said, by]).strip()) for s, o, said, by in entry["relations"]]
        pairs = [(s, o) for s, o, label in related if not re.fullmatch(SYMMETRIC, label)]
    for pair in (pair for pair in pairs if len({*pair}) == 2 and max(pair) < len(things)):
        x, y = (things[i] for i in pair)
        labels = [[label for _, label, _ in thing["attributes"]] for thing in (x, y)]
        nouns, old = [x["name"], y["name"]], [x["name"], y["name"]]
        phrases = [" ".join([*said, noun]) for said, noun in zip(labels, nouns, strict=True)]
        if kind != "nouns":
            old = phrases if kind == "ends" else ["".join(said[:1]) for said in labels]
        last, heads = ([of.split(" ")[-1] for of in words] for words in (old, nouns))
        either = "|".join(map(re.escape, sorted(old, key=len, reverse=True)))
        places = re.compile(rf"(?<![\w-])(an? )?({either})(?![\w-])")
        wrong = [sorted(m[2] for m in places.finditer(text)) != sorted(old), _alike(last)]
        if kind == "attributes":
            wrong += [_alike(heads), not NUMBERS.isdisjoint(old), [*map(len, labels)] != [1, 1]]
            wrong += [phrase not in text for phrase in phrases]
        else:
            wrong += [len({*map(_number, heads)}) > 1, not COLOURS.isdisjoint(heads)]  # "in blue"
            wrong += [re.search(f"({either}){JOINED}({either})", text)]
        if not any(wrong):
            new = dict(zip(old, reversed(old), strict=True))

            def put(match: re.Match[str], new: Mapping[str, str] = new) -> str:
                article = "an " if re.match(AN, new[match[2]]) else "a "
                return article * bool(match[1]) + new[match[2]]

            changed = {x["id"]: x | {field: y[field] for field in KINDS[kind]},
                       y["id"]: y | {field: x[field] for field in KINDS[kind]}}  # fmt: skip
            entities = [changed.get(thing["id"], thing) for thing in entry["entities"]]
            text = places.sub(put, text)
            return text, from_authors(entry | {"caption": text, "entities": entities}), last
    return None


def _alike(words: list[str]) -> bool:
    return len({*words}) == 1 or any(group.issuperset(words) for group in ALIKE)


def _number(noun: str) -> str:
    plural = noun in PLURAL or (noun.endswith("s") and not noun.endswith(("ss", "us")))
    return "mass" if noun in MASS else "plural" if plural else "singular"
