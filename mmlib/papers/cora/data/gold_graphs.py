"""The world's gold graphs in the form that a parser of the text gives them."""

import re

import networkx as nx

from mmlib.scenegraph import add_attribute, add_relation, attributes, relations
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


def gold_graph(caption: Caption) -> nx.MultiDiGraph:
    """A world caption's gold graph, as a careful reader of its text would write it.

    The world's own graph has a node for each thing ("two dogs" are two nodes) and takes phrases
    such as "lying on the ground" for one action; here they follow the words, as the rules do. The
    world does not say what the place and the style belong to: here it is the first object. As
    another reading is as good, `aside` holds these phrases, and `compare` leaves them out.
    """
    gold = _Gold(caption)
    graph, ordered = gold.graph, nx.MultiDiGraph(**gold.graph.graph)
    order = sorted(range(len(gold.at)), key=gold.at.__getitem__)  # by where they stand in the text
    number = {old: new for new, old in enumerate(order)}
    for old in order:
        ordered.add_node(number[old], **graph.nodes[old])
    for old in order:
        for node in attributes(graph, old):
            said = graph.nodes[node]
            add_attribute(ordered, number[old], said["label"], said["adverbs"])
    for s, o, data in relations(graph):
        add_relation(ordered, number[s], number[o], data["words"], data["preposition"])
    return ordered


class _Gold:
    """Turns one caption's graph, whose nodes and edges stand in the order of the text."""

    def __init__(self, caption: Caption):
        self.text, self.gold = caption.text.lower(), caption.graph
        aside = [words[0] for words in (self.gold.setting_words, self.gold.style_words) if words]
        aside += re.findall(r"\b(?:picture|image)(?= shows\b)", self.text)
        self.graph = nx.MultiDiGraph(
            text=caption.text, fallback=False, aside=tuple(phrase.lower() for phrase in aside)
        )
        self.node_of: list[int] = []  # node of the world's graph -> node of ours
        self.at: list[int] = []  # where each object's noun stands in the text
        self.objects()
        for edge in self.gold.edges:
            self.relation(edge)
        for i, node in dict(zip(self.node_of, self.gold.nodes, strict=True)).items():
            self.actions(i, node)
        if " can be seen" in self.text:
            for i in dict.fromkeys(self.node_of):
                add_attribute(self.graph, i, "seen")
        if self.gold.setting_words:
            self.setting(self.gold.setting_words[0])
        if self.gold.style_words:
            style = self.phrase(
                self.gold.style_words[0].split(maxsplit=1)[1].removesuffix(" of"), 0
            )
            self.join(style, 0, [], "of")

    def add(self, label: str, at: int) -> int:
        """Add an object that is named at or after a position of the text."""
        self.graph.add_node(len(self.at), type="object", label=label.lower())
        self.at.append(self.text.index(label.lower().split()[-1], at))
        return len(self.at) - 1

    def objects(self) -> None:
        """Objects with what is said of their looks; one for a group with one noun."""
        at, left = 0, 0  # position in the text; members of the last group still to come
        for node in self.gold.nodes:
            if left:
                left -= 1
                self.node_of.append(self.node_of[-1])
                continue
            noun = re.compile(rf"\b{re.escape(node.noun.lower())}\b").search(self.text, at)
            assert noun is not None, (self.text, node)
            starts = list(START.finditer(self.text, at, noun.start()))
            start = starts[-1].groups() if starts else ("", None, None)
            at = noun.end()
            kind = start[2] or (start[1] and "group")
            number = start[1] or (start[0] if start[0] in NUMBERS else "")
            self.node_of.append(
                self.add(f"{kind} of {node.noun}" if kind else node.noun, noun.start())
            )
            if number:
                add_attribute(self.graph, self.node_of[-1], number)
            size = {"pair": 2, "couple": 2, "trio": 3}.get(start[2] or "", 1)
            left = (NUMBERS.index(number) + 2 if number else size) - 1
            if node.worn:
                worn = re.compile(rf"\b{node.worn[1].lower()}(?:e?s)?\b").search(self.text, at)
                assert worn is not None, (self.text, node)
                words = ([node.worn[0]], "") if node.worn[0] == "wearing" else ([], node.worn[0])
                self.join(len(self.at) - 1, self.add(worn[0], worn.start()), *words)
                at = worn.end()
            for name, _, word in node.words:
                if name != "action":
                    of_worn = node.worn and name in ("colour", "pattern")
                    owner = len(self.at) - 1 if of_worn else self.node_of[-1]
                    add_attribute(self.graph, owner, word.lower())

    def relation(self, edge: Edge) -> None:
        subject, object_ = self.node_of[edge.subject], self.node_of[edge.object]
        if edge.words == "in the hands of":
            hands = self.add("hands", self.at[object_])
            self.join(object_, hands, [], "in")
            self.join(hands, subject, [], "of")
        elif edge.passive:
            verb = edge.words.removeprefix("being ").removesuffix(" by")
            self.join(subject, object_, [verb], "")
        elif edge.words == "close together":
            for i in (subject, object_):
                add_attribute(self.graph, i, "close", ["together"])
        else:
            self.join(subject, object_, *split(edge.words))

    def join(self, subject: int, object_: int, words: list[str], preposition: str) -> None:
        """Add a relation, once: another thing of a group may have said so already."""
        label = " ".join([*words, preposition]).strip()
        edges = self.graph.get_edge_data(subject, object_, default={}).values()
        if label not in [data["label"] for data in edges]:
            add_relation(self.graph, subject, object_, words, preposition)

    def actions(self, owner: int, node: Node) -> None:
        """What a thing does: an attribute, unless its verb stands in a relation."""
        verbs = [e.words for e in self.gold.edges if self.node_of[e.subject] == owner]
        for name, _, word in node.words:
            if name != "action":
                continue
            if phrase := PHRASE_ACTION.fullmatch(word):
                verb = [] if phrase[1] == "high" else phrase[1].split()
                self.join(owner, self.add(phrase[3], self.at[owner]), verb, phrase[2] or "")
            elif not any(words.startswith(f"{word} ") for words in verbs):
                add_attribute(self.graph, owner, word)

    def setting(self, words: str) -> None:
        """The place as an object, which the first object is in."""
        if words.endswith(" scene"):
            with_ = f"{words.lower()} with " in self.text
            verb = "showing" if "scene showing " in self.text else "shows"
            self.join(self.add(words, 0), 0, *(([], "with") if with_ else ([verb], "")))
            return
        match = SETTING.fullmatch(words)
        assert match is not None, words
        nearer, _, farther = match[2].partition(" of a ")
        at = self.text.index(words.lower())
        setting = self.phrase(nearer, at)
        self.join(0, setting, [], match[1])
        if farther:
            self.join(setting, self.phrase(farther, at), [], "of")

    def phrase(self, words: str, at: int) -> int:
        """An object of its own from a noun phrase without article, at or after a position."""
        spoken = [word for word in words.split() if word not in ("and", "farmer's")]
        adjectives = [word for word in spoken[:-1] if word in ADJECTIVES]
        noun = self.add(" ".join(word for word in spoken if word not in adjectives), at)
        for word in adjectives:
            add_attribute(self.graph, noun, word)
        return noun


def split(words: str) -> tuple[list[str], str]:
    """A relation's words as (verb with its particle, preposition): "sitting down near"."""
    endings = (p for p in PREPOSITIONS if words == p or words.endswith(f" {p}"))
    preposition = max(endings, key=len, default="")
    verb = words.removesuffix(preposition).strip()
    if phrase := PHRASE_ACTION.fullmatch(verb):  # "taking a walk behind"
        verb = phrase[1]
    return [word for word in verb.split() if word != "still"], preposition
