"""The world's gold graphs in the form that a parser of the text gives them."""

import re
from collections.abc import Sequence

import networkx as nx

from mmlib.scenegraph import add_attribute, add_relation
from mmlib.world.captions import Caption
from mmlib.world.graphs import Edge, Node
from mmlib.world.words import RELATION_WORDS

NUMBERS = "two three four five".split()
# How a noun phrase starts; the last start before a noun is its own.
START = re.compile(
    rf"\b(a group of (\w+)|an? (pair|couple|trio) of|{'|'.join(NUMBERS)}|an?|another|the)\b"
)
PHRASE_ACTION = re.compile(r"(\w+(?: up| down)?) (?:(in|into|on|through|for) (?:the |a )|a )(\w+)")
SETTING = re.compile(r"(?:deep |outside |out )?(at the foot of|\w+) (?:the |an? )?(.*)")
ADJECTIVES = frozenset(
    "sandy green public urban dry hot snowy cold wintry snow-covered shady rural ploughed "
    "black white monochrome greyscale rough flat simple".split()
)
PREPOSITIONS = {word for words in RELATION_WORDS.values() for word in words.split(", ")}
PREPOSITIONS |= {"after", "with"}


class _Reading:
    def __init__(self, text: str):
        self.text = text
        self.labels: list[str] = []
        self.at: list[int] = []  # where each object's noun stands in the text
        self.attributes: list[tuple[int, str, Sequence[str]]] = []  # object, label, adverbs
        self.relations: dict[tuple[int, int, str], tuple[Sequence[str], str]] = {}

    def add(self, label: str, at: int) -> int:
        self.labels.append(label.lower())
        self.at.append(self.text.index(label.lower().split()[-1], at))
        return len(self.at) - 1

    def phrase(self, words: str, at: int) -> int:
        spoken = [word for word in words.split() if word not in ("and", "farmer's")]
        adjectives = [word for word in spoken[:-1] if word in ADJECTIVES]
        noun = self.add(" ".join(word for word in spoken if word not in adjectives), at)
        self.attributes += [(noun, word, ()) for word in adjectives]
        return noun

    def join(self, subject: int, object_: int, words: Sequence[str], preposition: str) -> None:
        label = " ".join([*words, preposition]).strip()
        self.relations.setdefault((subject, object_, label), (words, preposition))

    def graph(self, text: str, aside: Sequence[str]) -> nx.MultiDiGraph:
        graph = nx.MultiDiGraph(text=text, fallback=False, aside=tuple(aside))
        number = {
            old: new for new, old in enumerate(sorted(range(len(self.at)), key=self.at.__getitem__))
        }
        for old, new in number.items():
            graph.add_node(new, type="object", label=self.labels[old])
        for owner, label, adverbs in sorted(self.attributes, key=lambda row: number[row[0]]):
            add_attribute(graph, number[owner], label, adverbs)
        for (subject, object_, _), (words, preposition) in self.relations.items():
            add_relation(graph, number[subject], number[object_], words, preposition)
        return graph


def gold_graph(caption: Caption) -> nx.MultiDiGraph:
    """A world caption's gold graph, as a careful reader of its text would write it.

    The world's own graph has a node for each thing ("two dogs" are two nodes) and takes phrases
    such as "lying on the ground" for one action; here they follow the words, as the rules do. The
    world does not say what the place and the style belong to: here it is the first object. As
    another reading is as good, `aside` holds these phrases, and `compare` leaves them out.
    """
    gold, reading = caption.graph, _Reading(caption.text.lower())
    aside = [words[0].lower() for words in (gold.setting_words, gold.style_words) if words]
    aside += re.findall(r"\b(?:picture|image)(?= shows\b)", reading.text)
    node_of = _objects(reading, gold.nodes)
    for edge in gold.edges:
        _relation(reading, edge, node_of[edge.subject], node_of[edge.object])
    for i, node in dict(zip(node_of, gold.nodes, strict=True)).items():
        # What a thing does is an attribute, unless its verb stands in a relation.
        verbs = [edge.words for edge in gold.edges if node_of[edge.subject] == i]
        for word in (word for name, _, word in node.words if name == "action"):
            if phrase := PHRASE_ACTION.fullmatch(word):
                verb = [] if phrase[1] == "high" else phrase[1].split()
                reading.join(i, reading.add(phrase[3], reading.at[i]), verb, phrase[2] or "")
            elif not any(words.startswith(f"{word} ") for words in verbs):
                reading.attributes.append((i, word, ()))
    if " can be seen" in reading.text:
        reading.attributes += [(i, "seen", ()) for i in dict.fromkeys(node_of)]
    if gold.setting_words:
        _setting(reading, gold.setting_words[0])
    if gold.style_words:
        style = gold.style_words[0].split(maxsplit=1)[1].removesuffix(" of")
        reading.join(reading.phrase(style, 0), 0, [], "of")
    return reading.graph(caption.text, aside)


def _objects(reading: _Reading, nodes: Sequence[Node]) -> list[int]:
    node_of: list[int] = []
    at, left = 0, 0  # position in the text; members of the last group still to come
    for node in nodes:
        if left:
            left -= 1
            node_of.append(node_of[-1])
            continue
        noun = re.compile(rf"\b{re.escape(node.noun.lower())}\b").search(reading.text, at)
        assert noun is not None, (reading.text, node)
        starts = list(START.finditer(reading.text, at, noun.start()))
        start = starts[-1].groups() if starts else ("", None, None)
        at = noun.end()
        kind = start[2] or (start[1] and "group")
        number = start[1] or (start[0] if start[0] in NUMBERS else "")
        node_of.append(reading.add(f"{kind} of {node.noun}" if kind else node.noun, noun.start()))
        if number:
            reading.attributes.append((node_of[-1], number, ()))
        size = {"pair": 2, "couple": 2, "trio": 3}.get(start[2] or "", 1)
        left = (NUMBERS.index(number) + 2 if number else size) - 1
        if node.worn:
            worn = re.compile(rf"\b{node.worn[1].lower()}(?:e?s)?\b").search(reading.text, at)
            assert worn is not None, (reading.text, node)
            words = ([node.worn[0]], "") if node.worn[0] == "wearing" else ([], node.worn[0])
            reading.join(node_of[-1], reading.add(worn[0], worn.start()), *words)
            at = worn.end()
        for name, _, word in node.words:
            if name != "action":
                of_worn = node.worn and name in ("colour", "pattern")
                owner = len(reading.at) - 1 if of_worn else node_of[-1]
                reading.attributes.append((owner, word.lower(), ()))
    return node_of


def _relation(reading: _Reading, edge: Edge, subject: int, object_: int) -> None:
    if edge.words == "in the hands of":
        hands = reading.add("hands", reading.at[object_])
        reading.join(object_, hands, [], "in")
        reading.join(hands, subject, [], "of")
    elif edge.passive:
        verb = edge.words.removeprefix("being ").removesuffix(" by")
        reading.join(subject, object_, [verb], "")
    elif edge.words == "close together":
        reading.attributes += [(i, "close", ["together"]) for i in (subject, object_)]
    else:  # a verb with its particle, and a preposition, as in "sitting down near"
        endings = (p for p in PREPOSITIONS if edge.words == p or edge.words.endswith(f" {p}"))
        preposition = max(endings, key=len, default="")
        verb = edge.words.removesuffix(preposition).strip()
        if phrase := PHRASE_ACTION.fullmatch(verb):  # "taking a walk behind"
            verb = phrase[1]
        words = [word for word in verb.split() if word != "still"]
        reading.join(subject, object_, words, preposition)


def _setting(reading: _Reading, words: str) -> None:
    if words.endswith(" scene"):
        with_ = f"{words.lower()} with " in reading.text
        verb = "showing" if "scene showing " in reading.text else "shows"
        reading.join(reading.add(words, 0), 0, *(([], "with") if with_ else ([verb], "")))
        return
    match = SETTING.fullmatch(words)
    assert match is not None, words
    nearer, _, farther = match[2].partition(" of a ")
    at = reading.text.index(words.lower())
    setting = reading.phrase(nearer, at)
    reading.join(0, setting, [], match[1])
    if farther:
        reading.join(setting, reading.phrase(farther, at), [], "of")
