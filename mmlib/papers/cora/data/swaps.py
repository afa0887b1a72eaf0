"""Captions with two things exchanged, as graphs and as words: does a photograph know the true one?

Such tests are ARO (Yuksekgonul et al., ICLR 2023) and SugarCrepe (Hsieh et al., NeurIPS 2023), in
which a text model without the picture is nearly always right. So there is one here, too, and a
subset of each kind on which it is at chance.
"""

import re
from collections.abc import Iterable, Sequence
from copy import deepcopy
from itertools import combinations
from typing import Any

import networkx as nx
import numpy as np
from scipy.optimize import linear_sum_assignment

from mmlib.core.records import canonical
from mmlib.features.text import tokenize
from mmlib.papers.cora.data.texts import LIMITS
from mmlib.papers.cora.run.batches import Swaps
from mmlib.scenegraph import from_authors, to_authors
from mmlib.scenegraph.graph import Entry
from mmlib.scenegraph.trees import WORDS

KINDS = "attributes", "nouns", "ends"  # of ends, the noun phrases with their adjectives
CALIPER = 0.5  # nats by which the surprises of a matched pair may differ
NUMBERS = frozenset("one two three four five six seven eight nine ten".split())
COLOURS = frozenset(
    "red orange yellow green blue purple pink brown black white gray grey tan gold blond".split()
)
ANIMATE = WORDS["people"] | frozenset(
    "dog dogs puppy puppies cat cats horse horses bird birds cow cows sheep animal animals".split()
)
PLURALS = frozenset("people men women children feet teeth".split())
MASS = frozenset("water snow grass sand dirt mud ice air hair clothing rock equipment".split())
# Words of which either may be said of what the other is.
SAME = [frozenset(words.split()) for words in (
    "man guy gentleman male person adult", "woman lady female girl person adult",
    "boy guy kid child toddler baby person male", "girl kid child toddler baby person female",
    "men guys people adults boys", "women ladies people adults girls",
    "boys kids children people guys", "girls kids children people", "person someone player rider",
    "dog puppy animal", "dogs puppies animals", "ball toy", "water ocean lake river pool sea pond",
    "grass field lawn yard", "street road sidewalk", "bike bicycle", "mountain hill rock cliff",
    "shirt t-shirt top", "picture photo", "small little young tiny", "big large huge tall",
    "gray grey", "tan brown gold blond", "snowy snow-covered", "wet muddy", "grassy green",
)]  # fmt: skip
# "A with B" is as true as "B with A", and so is what two do together.
_BESIDE = (
    r"and|or|with|next to|near|beside|by|alongside|along with|facing|against|close to|across from"
)
_TOGETHER = "stand sit lie pos park walk run play talk danc fight wrestl rac".split()
SYMMETRIC = re.compile(
    rf"(?:(?:{'|'.join(_TOGETHER)})\w* )?(?:{_BESIDE})"
    r"|(?:hug|kiss|fight|wrestl|meet|rac)\w*|(?:talk|speak)\w* to"
)
JOINED = re.compile(rf" (?:{_BESIDE}|,) (?:an? |the |his |her |their |another )?")
VOWEL = re.compile(r"(?!uni|one|eu)[aeiou]")


def swaps(
    graphs: Iterable[nx.MultiDiGraph], training: Sequence[str]
) -> tuple[list[str], list[nx.MultiDiGraph], Swaps]:
    """Captions with two things exchanged, their graphs, and what they are swaps of.

    At most one of a caption and kind. "colours" are those attributes, and "animate ends" those
    ends, of which both are so. training: the captions that the text model learns from.
    """
    rows = [(i, kind, graph.graph["text"], *found) for i, graph in enumerate(graphs)
            for kind in KINDS if (found := swapped(graph, kind))]  # fmt: skip
    caption, kind, own, texts, exchanged, words = zip(*rows, strict=True)
    of = {name: np.array(kind) == name for name in KINDS}
    of["colours"] = of["attributes"] & [COLOURS.issuperset(pair) for pair in words]
    of["animate ends"] = of["ends"] & [ANIMATE.issuperset(pair) for pair in words]
    plausible = np.subtract(*np.split(log_likelihood([*own, *texts], training), 2))
    for name, chosen in list(of.items()):
        of[f"{name}, filtered"] = chosen.copy()
        of[f"{name}, filtered"][chosen] = filtered(plausible[chosen])
    return list(texts), list(exchanged), Swaps(np.array(caption), of, plausible)


def swapped(
    graph: nx.MultiDiGraph, kind: str
) -> tuple[str, nx.MultiDiGraph, tuple[str, str]] | None:
    """A caption with two things exchanged, in words and in its graph, and which words they are.

    They are the first two that do. Both nouns stand once in the caption, an attribute once and
    before its noun, as the only one but for a number. Left out is what may still be true or is bad
    English: the same or nearly the same words, ends of a symmetric relation, nouns of other number,
    nouns that are joined ("a man and a dog"), and whatever leaves the graph as it was. None where
    there are no two such.
    """
    entry, text = to_authors(graph), canonical(graph.graph["text"]).lower()
    spans: dict[int, tuple[int, int]] = {}  # of each object what would go elsewhere
    moving: dict[int, list[str]] = {}  # and which of its attributes
    for i, entity in enumerate(entry["entities"][: LIMITS["objects"]]):
        labels = [label for _, label, adverbs in entity["attributes"] if not adverbs]
        said = "|".join(map(re.escape, labels)) or "(?!)"
        noun = rf"(?<![\w-])((?:(?:{said})(?: and| ?,)? )*)({re.escape(entity['name'])})(?![\w-])"
        matches = list(re.finditer(noun, text))
        if len(matches) != 1:
            continue
        match = matches[0]
        before = [label for label in labels if re.search(rf"\b{re.escape(label)}\b", match[1])]
        spans[i], moving[i] = match.span(2 if kind == "nouns" else 0), before * (kind == "ends")
        if kind == "attributes":
            moving[i] = [label for label in before if label not in NUMBERS and not label.isdigit()]
            adjective = " ".join(moving[i])  # one, if it stands there
            spans[i] = match.end(1) - 1 - len(adjective), match.end(1) - 1
            if not match[1].endswith(f"{adjective} ") or text.count(adjective) > 1:
                del spans[i]
    pairs: Iterable[tuple[int, int]] = combinations(spans, 2)
    if kind == "ends":
        pairs = [(s, o) for s, o, *said in entry["relations"] if s != o and not _symmetric(*said)]
    for pair in pairs:
        if not spans.keys() >= {*pair}:
            continue
        (a, b), (c, d) = sorted(spans[i] for i in pair)
        words = text[a:b].split()[-1], text[c:d].split()[-1]
        wrong = [b > c, words[0] == words[1], any(same >= {*words} for same in SAME)]
        if kind != "attributes":
            wrong += [JOINED.fullmatch(text[b:c]), not COLOURS.isdisjoint(words)]  # "in blue"
            wrong += [_number(words[0]) != _number(words[1])]
        other = deepcopy(entry)
        first, second = _article(text[:a], text[c:d]), _article(text[b:c], text[a:b])
        other["caption"] = first + text[c:d] + second + text[a:b] + text[d:]
        x, y = (other["entities"][i] for i in pair)
        if kind != "attributes":
            x["name"], y["name"] = y["name"], x["name"]
        of_x, of_y = (
            [row for row in other["entities"][i]["attributes"] if row[1] in moving[i]] for i in pair
        )
        x["attributes"] = of_y + [row for row in x["attributes"] if row not in of_x]
        y["attributes"] = of_x + [row for row in y["attributes"] if row not in of_y]
        wrong += [len(e["attributes"]) > LIMITS["attributes"] for e in other["entities"]]
        if not any(wrong) and _content(other) != _content(entry):
            return other["caption"], from_authors(other), words
    return None


def _symmetric(words: Sequence[str], preposition: str) -> bool:
    return bool(SYMMETRIC.fullmatch(" ".join(filter(None, (*words, preposition)))))


def _number(noun: str) -> str:
    plural = noun in PLURALS or (noun.endswith("s") and not noun.endswith(("ss", "us")))
    return "mass" if noun in MASS else "plural" if plural else "singular"


def _article(before: str, word: str) -> str:
    return re.sub(r"\ban? $", "an " if VOWEL.match(word) else "a ", before)


def _content(entry: Entry) -> tuple[list[Any], list[Any]]:
    """Things with attributes, and relations, whatever the order; so the ends of symmetric ones."""
    things = [
        (thing["name"], sorted([label, *adverbs] for _, label, adverbs in thing["attributes"]))
        for thing in entry["entities"]
    ]
    relations = []
    for s, o, *said in entry["relations"]:
        ends = [things[s], things[o]]
        relations.append((said, sorted(ends) if _symmetric(*said) else ends))
    return sorted(things), sorted(relations)


def log_likelihood(texts: Sequence[str], training: Sequence[str]) -> np.ndarray:
    """log p (texts,) in nats, by trigrams of the training texts, smoothed by Witten and Bell.

    Words that the training texts have once alone are unknown ones.
    """
    from nltk.lm import Vocabulary, WittenBellInterpolated  # not on a machine that only trains
    from nltk.lm.preprocessing import pad_both_ends, padded_everygram_pipeline
    from nltk.util import trigrams

    model = WittenBellInterpolated(3, vocabulary=Vocabulary(unk_cutoff=2))
    model.fit(*padded_everygram_pipeline(3, list(map(tokenize, training))))
    grams = [trigrams(pad_both_ends(tokenize(text), 3)) for text in texts]
    bits = [sum(model.logscore(word, before) for *before, word in of_text) for of_text in grams]
    return np.log(2) * np.array(bits)


def filtered(plausible: np.ndarray) -> np.ndarray:
    """Which swaps (n,) to keep for a text model to be at chance, as SugarCrepe does.

    Each that it gets wrong is matched to one that it gets right by as much, but for `CALIPER`.
    """
    right, wrong = np.flatnonzero(plausible > 0), np.flatnonzero(plausible < 0)
    apart = np.abs(plausible[right][:, None] + plausible[wrong])
    i, j = linear_sum_assignment(apart)
    near = apart[i, j] <= CALIPER
    return np.isin(np.arange(len(plausible)), [*right[i[near]], *wrong[j[near]]])
