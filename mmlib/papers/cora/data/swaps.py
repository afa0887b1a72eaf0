"""Captions with two things exchanged, in their graphs and words alike: who has or does what?

As in ARO (Yuksekgonul et al., ICLR 2023) and SugarCrepe (Hsieh et al., NeurIPS 2023), which also
asks that no text-only model can tell which of the two is the caption.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import combinations

import networkx as nx
import numpy as np
from scipy.optimize import linear_sum_assignment

from mmlib.core.paths import table_beside
from mmlib.core.records import canonical
from mmlib.features.text import tokenize
from mmlib.papers.cora.data.texts import LIMITS
from mmlib.scenegraph import from_authors, to_authors

_TABLE = table_beside(__file__)
ALIKE = [frozenset(words.split()) for words in _TABLE["alike"]]
LISTS = {name: frozenset(words.split()) for name, words in _TABLE["lists"].items()}
SYMMETRIC, JOINED, AN = (_TABLE[n].format(**_TABLE) for n in ("symmetric", "joined", "an"))


def swap_all(
    graphs: Sequence[nx.MultiDiGraph],
) -> tuple[list[str], list[nx.MultiDiGraph], dict[str, np.ndarray]]:
    """Captions with two things exchanged, their graphs; kind -> each one's row, or -1."""
    made, of = list[tuple[str, nx.MultiDiGraph]](), dict[str, np.ndarray]()
    for kind, how in _TABLE["kinds"].items():
        swaps = [swap(graph, **how) for graph in graphs]
        has = np.array([each is not None for each in swaps])
        of[kind] = np.where(has, len(made) + has.cumsum() - 1, -1)
        made += [each for each in swaps if each]
    return [text for text, _ in made], [graph for _, graph in made], of


def with_plausible(
    captions: Sequence[str], graphs: Sequence[nx.MultiDiGraph], training: Iterable[str]
) -> tuple[list[str], list[nx.MultiDiGraph], dict[str, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """`swap_all`, with kinds "as plausible", too, and the plausibility of captions and of swaps."""
    exchanged, swapped, rows = swap_all(graphs)
    own, other = np.split(plausibility([*captions, *exchanged], training), [len(captions)])
    fair = {f"{kind}, as plausible": as_plausible(own, other, of) for kind, of in rows.items()}
    return exchanged, swapped, rows | fair, (own, other)


def plausibility(texts: Iterable[str], training: Iterable[str]) -> np.ndarray:
    """Log probability (texts,) under trigrams of training captions (Witten and Bell, 1991)."""
    from nltk.lm import Vocabulary, WittenBellInterpolated  # not on a machine that only trains
    from nltk.lm.preprocessing import pad_both_ends, padded_everygram_pipeline
    from nltk.util import ngrams

    grams, words = padded_everygram_pipeline(3, [tokenize(caption) for caption in training])
    model = WittenBellInterpolated(3, vocabulary=Vocabulary(unk_cutoff=2))
    model.fit(grams, words)
    score = cache(lambda gram: model.logscore(gram[-1], gram[:-1]))
    padded = (pad_both_ends(model.vocab.lookup(tokenize(text)), 3) for text in texts)
    return np.array([sum(map(score, ngrams(text, 3))) for text in padded])


def as_plausible(own: np.ndarray, other: np.ndarray, swaps: np.ndarray) -> np.ndarray:
    """Those of the swaps, -1 for others, of which plausibility tells half, with like leads.

    Each caption (own) less plausible than its swap (other) has a partner of the opposite lead.
    """
    has = np.flatnonzero(swaps >= 0)
    lead = own[has] - other[swaps[has]]
    less, more = (np.flatnonzero(sign * lead > 0) for sign in (-1, 1))
    pairs = linear_sum_assignment(np.abs(lead[less][:, None] + lead[more]))
    kept = has[np.concatenate([less[pairs[0]], more[pairs[1]]])]
    return np.where(np.isin(np.arange(len(swaps)), kept), swaps, -1)


def swap(
    graph: nx.MultiDiGraph, fields: Sequence[str], within: str = ""
) -> tuple[str, nx.MultiDiGraph] | None:
    """A caption with the first two things exchanged that can be, and its graph.

    Their words stand once in the caption; an attribute is the only one, and before its noun. Left
    out is what may still be true or is bad English: words that are alike, nouns of other number,
    nouns that are joined ("a man and a dog"), ends of a symmetric relation. None for no such two.
    fields: "attributes", "name" or, of ends, both. within: a list that has both their last words.
    """
    entry, text = to_authors(graph), canonical(graph.graph["text"]).lower()
    things = entry["entities"][: LIMITS["objects"]]
    pairs: Iterable[tuple[int, int]] = combinations(range(len(things)), 2)
    if len(fields) == 2:
        related = [(s, o, " ".join([*said, by]).strip()) for s, o, said, by in entry["relations"]]
        pairs = [(s, o) for s, o, label in related if not re.fullmatch(SYMMETRIC, label)]
    for pair in (pair for pair in pairs if len({*pair}) == 2 and max(pair) < len(things)):
        x, y = (things[i] for i in pair)
        labels = [[label for _, label, _ in thing["attributes"]] for thing in (x, y)]
        nouns, old = [x["name"], y["name"]], [x["name"], y["name"]]
        phrases = [" ".join([*said, noun]) for said, noun in zip(labels, nouns, strict=True)]
        if "attributes" in fields:
            old = phrases if "name" in fields else ["".join(said[:1]) for said in labels]
        last, heads = ([of.split(" ")[-1] for of in words] for words in (old, nouns))
        either = "|".join(map(re.escape, sorted(old, key=len, reverse=True)))
        places = re.compile(rf"(?<![\w-])(an? )?({either})(?![\w-])")
        wrong = [sorted(m[2] for m in places.finditer(text)) != sorted(old), _alike(last)]
        wrong += [within != "" and not LISTS[within].issuperset(last)]
        if "name" not in fields:
            wrong += [phrase not in text for phrase in phrases] + [[*map(len, labels)] != [1, 1]]
            wrong += [_alike(heads), not LISTS["numbers"].isdisjoint(old)]
        else:
            wrong += [len({*map(_number, heads)}) > 1]
            wrong += [not LISTS[of].isdisjoint(heads) for of in ("colours", "pronouns")]
            wrong += [bool(re.search(f"({either}){JOINED}({either})", text))]
        if not any(wrong):
            new = dict(zip(old, reversed(old), strict=True))

            def put(match: re.Match[str], new: Mapping[str, str] = new) -> str:
                article = "an " if re.match(AN, new[match[2]]) else "a "
                return article * bool(match[1]) + new[match[2]]

            changed = {x["id"]: x | {field: y[field] for field in fields},
                       y["id"]: y | {field: x[field] for field in fields}}  # fmt: skip
            entities = [changed.get(thing["id"], thing) for thing in entry["entities"]]
            text = places.sub(put, text)
            return text, from_authors(entry | {"caption": text, "entities": entities})
    return None


def _alike(words: list[str]) -> bool:
    return len({*words}) == 1 or any(group.issuperset(words) for group in ALIKE)


def _number(noun: str) -> str:
    plural = noun in LISTS["plural"] or (noun.endswith("s") and not noun.endswith(("ss", "us")))
    return "mass" if noun in LISTS["mass"] else "plural" if plural else "singular"
