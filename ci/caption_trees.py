"""Captions with their dependency trees, made by a grammar: what UD English EWT has too few of.

The constructions are those of captions (noun phrases with participles, clothes, places, lists,
"there is", "a photo of"), the labels and attachments Universal Dependencies' as EWT uses them. The
words are the picture world's, those of `caption_trees.yaml`, and now and then any word of EWT.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from mmlib.core.paths import table_beside
from mmlib.world import words

Row = tuple[str, bool, str, str, int, str]  # word, space after, UPOS, features, head, label


@dataclass
class Node:
    """A word with its dependents, in the order of the text on either side."""

    text: str
    pos: str
    tag: str = ""
    dep: str = "root"
    glued: bool = False  # no space after it
    left: list["Node"] = field(default_factory=list)
    right: list["Node"] = field(default_factory=list)

    def before(self, dep: str, *nodes: "Node") -> "Node":
        """Add dependents before the word, after those that are there already."""
        for node in nodes:
            node.dep = dep
        self.left.extend(nodes)
        return self

    def after(self, dep: str, *nodes: "Node") -> "Node":
        """Add dependents at the end."""
        for node in nodes:
            node.dep = dep
        self.right.extend(nodes)
        return self

    def first(self, dep: str, node: "Node") -> "Node":
        """Add a dependent before all others."""
        node.dep = dep
        self.left.insert(0, node)
        return self

    def flat(self) -> list["Node"]:
        """The words of the subtree, as in the text."""
        parts = [n for child in self.left for n in child.flat()]
        return [*parts, self, *(n for child in self.right for n in child.flat())]


# --- Words -----------------------------------------------------------------------------------

_WORDS: dict[str, Any] = table_beside(__file__)
# fmt: off
(
    PEOPLE, ANIMALS, PLACES, COLOURS, ADJECTIVES, PREDICATIVES, ADVERBS_OF_ADJECTIVES,
    STATE_ADJECTIVES, HYPHENED, TRANSITIVE, INTRANSITIVE, MANNERS, CONTROL, PASSIVES, QUANTITIES,
    CONTAINERS, CONTENTS, NUMBERS,
) = (
    _WORDS[name] for name in (
        "people animals places colours adjectives predicatives adverbs_of_adjectives "
        "state_adjectives hyphened transitive intransitive manners control passives quantities "
        "containers contents numbers"
    ).split()
)
# fmt: on
PREPOSITIONAL, PARTICLES, VERB_ADVERBS, STATES = (
    [pair.split() for pair in _WORDS[name]]
    for name in ("prepositional", "particles", "verb_adverbs", "states")
)
ALWAYS_PLURAL, PARTICLE_ADVERBS, DOUBLED = (
    frozenset(_WORDS[name]) for name in ("always_plural", "particle_adverbs", "doubled")
)
ON_NOUN, AT_PLACE = (
    [(word, float(weight)) for word, weight in map(str.split, _WORDS[name])]
    for name in ("on_noun", "at_place")
)
IRREGULAR_PLURALS = dict(pair.split() for pair in _WORDS["irregular_plurals"])
# verb -> third person, -ing, past participle where a rule would not make them
IRREGULAR = {verb: tuple(forms) for verb, *forms in map(str.split, _WORDS["irregular"])}


def plural_of(noun: str) -> str:
    """The plural of a noun; of a compound, of its last word."""
    *start, last = noun.split(" ")
    if last in IRREGULAR_PLURALS:
        last = IRREGULAR_PLURALS[last]
    elif last.endswith(("s", "x", "ch", "sh")):
        last = last if last in ("boots", "shoes", "sandals", "gloves", "trunks") else last + "es"
    elif last.endswith("y") and last[-2] not in "aeiou":
        last = last[:-1] + "ies"
    elif last.endswith("man") and last != "german":
        last = last[:-3] + "men"
    else:
        last += "s"
    return " ".join([*start, last])


def verb_form(verb: str, tag: str) -> str:
    """A form of a verb: VB, VBP, VBZ, VBG or VBN."""
    if tag in ("VB", "VBP"):
        return verb
    at = {"VBZ": 0, "VBG": 1, "VBN": 2}[tag]
    if verb in IRREGULAR:
        return IRREGULAR[verb][at]
    stem = verb + verb[-1] if verb in DOUBLED else verb
    vowel_e = verb.endswith("e") and not verb.endswith(("ee", "oe", "ye"))
    consonant_y = verb.endswith("y") and verb[-2] not in "aeiou"
    if tag == "VBZ":
        if consonant_y:
            return verb[:-1] + "ies"
        return verb + ("es" if verb.endswith(("s", "x", "ch", "sh", "o", "z")) else "s")
    if tag == "VBG":
        return (verb[:-1] if vowel_e else stem) + "ing"
    if consonant_y:
        return verb[:-1] + "ied"
    return (verb + "d") if verb.endswith("e") else stem + "ed"


class Lexicon:
    """Words of EWT by kind, and the features that EWT gives a word or tag most often."""

    def __init__(self, sentences: Sequence[Sequence[Sequence[str]]]):
        """sentences: rows of CoNLL-U columns (word 1, lemma 2, UPOS 3, XPOS 4, features 5...)."""
        by_word: dict[tuple[str, str, str], Counter] = defaultdict(Counter)
        by_tag: dict[tuple[str, str], Counter] = defaultdict(Counter)
        nouns: dict[str, dict[str, str]] = defaultdict(dict)
        verbs: dict[str, dict[str, str]] = defaultdict(dict)
        self.adjectives: list[str] = []
        has_object: Counter[str] = Counter()
        for rows in sentences:
            for row in rows:
                word, lemma, pos, tag, feats = row[1].lower(), row[2], row[3], row[4], row[5]
                by_word[word, pos, tag][feats] += 1
                by_tag[pos, tag][feats] += 1
                if not word.isalpha() or not word.isascii() or len(word) < 3:
                    continue
                if pos == "NOUN" and row[1] == word:
                    nouns[lemma][tag] = word
                elif pos == "VERB":
                    verbs[lemma][tag] = word
                elif pos == "ADJ" and tag == "JJ" and row[1] == word:
                    self.adjectives.append(word)
                if row[7] == "obj" and rows[int(row[6]) - 1][3] == "VERB":
                    has_object[rows[int(row[6]) - 1][2]] += 1
        self.adjectives = sorted(set(self.adjectives))
        self.nouns = sorted((f["NN"], f["NNS"]) for f in nouns.values() if {"NN", "NNS"} <= set(f))
        self.singular = sorted({f["NN"] for f in nouns.values() if "NN" in f})
        tags = {"VB", "VBZ", "VBG"}
        full = {lemma: f for lemma, f in verbs.items() if tags <= set(f) and lemma.isalpha()}
        self.forms = {lemma: {**f, "VBP": f["VB"]} for lemma, f in full.items()}
        self.transitive = sorted(lemma for lemma in full if has_object[lemma] > 2)
        self.intransitive = sorted(lemma for lemma in full if not has_object[lemma])
        self.by_word = {key: found.most_common(1)[0][0] for key, found in by_word.items()}
        self.by_tag = {key: found.most_common(1)[0][0] for key, found in by_tag.items()}
        self.by_tag["VERB", "VBP"] = self.by_tag["VERB", "VBZ"].replace("=Sing", "=Plur")

    def features(self, node: Node) -> str:
        """UD features of a word, as a string; "" for none."""
        key = (node.text.lower(), node.pos, node.tag)
        if node.pos in ("VERB", "NOUN", "ADJ"):
            found = self.by_tag.get((node.pos, node.tag), "_")
        else:
            found = self.by_word.get(key) or self.by_tag.get((node.pos, node.tag), "_")
        return "" if found == "_" else found


# --- The grammar -----------------------------------------------------------------------------


@dataclass
class Phrase:
    """A noun phrase: its head, whether a verb agrees with it in the plural, and what it names."""

    head: Node
    plural: bool
    sort: str


class Grammar:
    """Writes captions with trees. Attachments follow what a reader takes a caption to say:

    clothes, "with" and "of" go to the noun before them, places to the verb or, without one, to the
    subject; a participle after a noun says what that noun does (acl), a second one what the doer
    does besides (advcl); a modifier of a list's first noun is that noun's own.
    """

    def __init__(self, lexicon: Lexicon, rng: np.random.Generator):
        self.lexicon, self.rng = lexicon, rng

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def of(self, options):
        return options[int(self.rng.random() * len(options))]

    def weighted(self, pairs):
        weights = np.cumsum([weight for _, weight in pairs])
        return pairs[int(np.searchsorted(weights, self.rng.random() * weights[-1]))][0]

    def caption(self) -> list[Row]:
        """The words of one caption with UPOS, features, heads (positions) and labels."""
        sentence = self.weighted([
            (self.bare, 30), (self.finite, 34), (self.there, 7), (self.seen, 4), (self.styled, 4),
            (self.placed_first, 5), (self.scene, 1.5), (self.can_be_seen, 1.5), (self.who, 2),
            (self.passive, 4), (self.two_clauses, 8), (self.is_somewhere, 6), (self.list_of, 6),
        ])()  # fmt: skip
        full = sentence.pos in ("VERB", "ADJ") or any(n.dep == "cop" for n in sentence.left)
        if self.chance(0.7 if full else 0.5):
            sentence.after("punct", Node(".", "PUNCT", "."))
        nodes = sentence.flat()
        if self.chance(0.55):
            nodes[0].text = nodes[0].text[0].upper() + nodes[0].text[1:]
        return self.rows(nodes)

    def rows(self, nodes: list[Node]) -> list[Row]:
        at = {id(node): i for i, node in enumerate(nodes)}
        heads = list(range(len(nodes)))
        for node in nodes:
            for child in (*node.left, *node.right):
                heads[at[id(child)]] = at[id(node)]
        for node, following in pairwise(nodes):
            node.glued |= following.pos == "PUNCT" and following.text in (",", ".")
        return [
            (n.text, not n.glued, n.pos, self.lexicon.features(n), heads[i], n.dep)
            for i, n in enumerate(nodes)
        ]

    # --- Words ---

    def verb(self, verb: str, tag: str) -> Node:
        forms = self.lexicon.forms.get(verb, {})
        known = verb in TRANSITIVE or verb in INTRANSITIVE or verb in IRREGULAR
        text = verb_form(verb, tag) if known or tag not in forms else forms[tag]
        return Node(text, "VERB", tag)

    def noun(self, word: str, plural: bool = False) -> Node:
        """A noun with its compound words and hyphens before it."""
        *start, last = word.replace("-", " - ").split(" ")
        head = Node(last, "NOUN", "NNS" if plural else "NN")
        if start and start[-1] == "-":
            return self.hyphened(start[:-1], head, "compound")
        for k, word in enumerate(start):
            if word in ("golden", "polar", "german", "hot", "inflatable"):
                head.before("amod", Node(word, "ADJ", "JJ"))
                continue
            part = Node(word, "NOUN", "NN")
            if k == 0 and len(start) == 2:  # "race car driver"
                start_part = part
                continue
            if len(start) == 2:
                part.before("compound", start_part)
            head.before("compound", part)
        return head

    def hyphened(self, start: Sequence[str], head: Node, dep: str, pos: str = "NOUN") -> Node:
        part = Node(start[0], pos, {"NOUN": "NN", "ADJ": "JJ", "ADV": "RB"}[pos], glued=True)
        part.after("punct", Node("-", "PUNCT", "HYPH", glued=True))
        return head.before(dep, part)

    def adjective(self) -> Node:
        kind = self.rng.random()
        if kind < 0.42:
            return Node(self.of(COLOURS), "ADJ", "JJ")
        if kind < 0.72:
            word = self.of(ADJECTIVES)
            if "-" not in word:
                return Node(word, "ADJ", "JJ")
        if kind < 0.80:
            return Node(self.of(self.lexicon.adjectives), "ADJ", "JJ")
        if kind < 0.86:
            start, last = self.of(HYPHENED).split("-")
            participle = last.endswith("ed") and last not in ("red", "sized")
            head = Node(last, "VERB" if participle else "ADJ", "VBN" if participle else "JJ")
            if last in ("haired", "skinned", "sleeved", "eyed", "aged", "sized"):
                head = Node(last, "ADJ", "JJ")
            pos = "ADJ"
            if start in ("snow", "tree", "rain", "graffiti", "salmon"):
                pos = "NOUN"
            elif start in ("brightly", "well"):
                pos = "ADV"
            dep = {"NOUN": "compound", "ADV": "advmod", "ADJ": "amod"}[pos]
            return self.hyphened([start], head, dep, pos)
        if kind < 0.92:
            return self.verb(self.of(INTRANSITIVE), "VBG")  # "a running dog"
        if kind < 0.97:
            head = Node(self.of(STATE_ADJECTIVES), "VERB", "VBN")
        else:
            head = Node(self.of(COLOURS + ADJECTIVES[:14]), "ADJ", "JJ")
        if self.chance(0.6):
            head.before("advmod", Node(self.of(ADVERBS_OF_ADJECTIVES), "ADV", "RB"))
        return head

    def word_of(self, sort: str) -> tuple[str, str]:
        """(singular, plural) of a noun of a sort, "" where there is no plural."""
        if self.chance(0.12) and sort != "garment":
            return self.of(self.lexicon.nouns)
        if sort in ("person", "animal", "thing") and self.chance(0.3):
            concepts = _WORDS["concepts"].get(sort, words.NOUNS)
            nouns = [noun.split("/") for concept in concepts for noun in words.NOUNS[concept]]
            return self.of([(one, many) for one, many in nouns if many])
        plain, compounds = (_WORDS[name] for name in _WORDS["sorts"][sort])
        word = self.of(compounds) if compounds and self.chance(0.22) else self.of(plain)
        if self.chance(0.06):
            word = f"{self.of(self.lexicon.singular)} {word.split(' ')[-1]}"
        return word, plural_of(word)

    def preposition(self, words_of: str, noun: Node) -> Node:
        """The head of a prepositional phrase: the noun, or "front" of "in front of"."""
        parts = words_of.split("+")
        case = [Node(p, "ADP", "IN") for p in parts]
        if len(parts) == 1:
            return noun.first("case", case[0])
        if parts in (["close", "to"], ["away", "from"], ["not", "far", "from"]):
            noun.first("case", case[-1])
            if parts[0] == "close":
                head = Node("close", "ADJ", "JJ")
            else:
                head = Node(parts[-2], "ADV", "RB")
            if parts[0] == "not":
                head.before("advmod", Node("not", "PART", "RB"))
            return head.after("obl", noun)
        if len(parts) == 2:  # "next to", "left of": two case words
            noun.first("case", case[1])
            return noun.first("case", case[0])
        where = Node(parts[-2], "NOUN", "NN").before("case", case[0])
        if parts[1] == "the":
            where.before("det", Node("the", "DET", "DT"))
        return where.after("nmod", noun.first("case", case[-1]))

    def hang(self, governor: Node, phrase: Node, on_noun: bool) -> None:
        """Attach a prepositional phrase after a noun or a verb, by the right label."""
        if phrase.pos == "ADJ":
            governor.after("amod" if on_noun else "advmod", phrase)
        elif phrase.pos == "ADV":
            governor.after("advmod", phrase)
        else:
            governor.after("nmod" if on_noun else "obl", phrase)

    # --- Noun phrases ---

    def determined(self, head: Node, sort: str, number: str) -> None:
        """A determiner, number or possessive before everything else of the phrase."""
        if number == "many":
            kind = self.rng.random()
            if kind < 0.5:
                head.first("nummod", Node(self.of(NUMBERS), "NUM", "CD"))
            elif kind < 0.62:
                head.first("amod", Node(self.of(("several", "many")), "ADJ", "JJ"))
            elif kind < 0.72:
                head.first("det", Node(self.of(("some", "some", "all", "both")), "DET", "DT"))
            elif kind < 0.78:
                head.first("det", Node("the", "DET", "DT"))
            return
        kind = self.rng.random()
        owned = sort in ("body", "garment") or self.chance(0.06)
        if owned and kind < (0.6 if sort == "body" else 0.12):
            head.first("nmod:poss", Node(self.of(("his", "her", "their", "its")), "PRON", "PRP$"))
        elif owned and kind < 0.16:
            owner = self.noun(self.of(PEOPLE + ANIMALS))
            owner.first("det", Node(self.of(("a", "the")), "DET", "DT"))
            owner.flat()[-1].glued = True
            head.first("nmod:poss", owner.after("case", Node("'s", "PART", "POS")))
        elif kind < (0.4 if sort == "place" else 0.86):
            self.article(head)
        elif kind < 0.96:
            head.first("det", Node("the", "DET", "DT"))
        elif kind < 0.985:
            head.first("det", Node(self.of(("another", "this", "one", "each")), "DET", "DT"))
            if head.left[0].text == "one":
                head.left[0].pos, head.left[0].tag, head.left[0].dep = "NUM", "CD", "nummod"
        elif sort == "place":
            head.first("det", Node("the", "DET", "DT"))

    def article(self, head: Node) -> None:
        start = head.flat()[0].text
        head.first("det", Node("an" if start[0] in "aeiou" else "a", "DET", "DT"))

    def adjectives(self, head: Node, most: int = 3) -> None:
        """Adjectives before the noun's compounds."""
        count = self.weighted([(0, 60), (1, 30), (2, 9), (3, 1)])
        found = [self.adjective() for _ in range(min(count, most))]
        if len(found) == 2 and self.chance(0.3):
            first, second = Node(self.of(COLOURS), "ADJ", "JJ"), Node(self.of(COLOURS), "ADJ", "JJ")
            found = [first.after("conj", second.before("cc", Node("and", "CCONJ", "CC")))]
            if self.chance(0.3):
                found.insert(0, self.adjective())
        elif len(found) > 1 and self.chance(0.12):
            found[1].dep = "amod"
            comma = Node(",", "PUNCT", ",", dep="punct")
            for node in (*found, comma):
                node.dep = node.dep if node is comma else "amod"
            head.left[:0] = [found[0], comma, *found[1:]]
            return
        for node in found:
            node.dep = "amod"
        head.left[:0] = found

    def simple(self, sort: str, number: str = "") -> Phrase:
        """Determiner, adjectives, compound, noun; or "a group of people", "a cup of coffee"."""
        one, many = self.word_of(sort)
        number = number or ("many" if self.chance(0.16) and sort != "place" else "one")
        plural_only = one.split(" ")[-1] in ALWAYS_PLURAL | {"boots", "shoes", "gloves", "sandals"}
        if plural_only:
            head = self.noun(one, plural=True)
            self.adjectives(head)
            if self.chance(0.25):
                return Phrase(self.measured(head, "pair"), False, sort)
            if self.chance(0.15):
                head.first("nmod:poss", Node(self.of(("his", "her")), "PRON", "PRP$"))
            return Phrase(head, True, sort)
        if sort == "thing" and self.chance(0.05):
            content = Node(self.of(CONTENTS), "NOUN", "NN")
            self.adjectives(content, 1)
            head = Node(self.of(CONTAINERS), "NOUN", "NN").after(
                "nmod", content.first("case", Node("of", "ADP", "IN"))
            )
            self.article(head)
            return Phrase(head, False, sort)
        if number == "many":
            head = self.noun(many, plural=True)
            self.adjectives(head)
            if sort in ("person", "animal", "thing") and self.chance(0.3):
                return Phrase(self.measured(head, ""), self.chance(0.6), sort)
            self.determined(head, sort, "many")
            return Phrase(head, True, sort)
        if sort == "person" and self.chance(0.02):
            return Phrase(Node(self.of(("someone", "somebody")), "PRON", "NN"), False, sort)
        head = self.noun(one)
        self.adjectives(head)
        self.determined(head, sort, "one")
        return Phrase(head, False, sort)

    def measured(self, noun: Node, quantity: str) -> Node:
        """ "a pair of shoes", "a large group of three young men"."""
        head = Node(quantity or self.of(QUANTITIES), "NOUN", "NN")
        if self.chance(0.15):
            head.before("amod", Node(self.of(("large", "small", "big", "huge")), "ADJ", "JJ"))
        if not quantity and head.text in ("group", "trio", "team", "row") and self.chance(0.25):
            noun.first("nummod", Node(self.of(NUMBERS), "NUM", "CD"))
        self.article(head)
        return head.after("nmod", noun.first("case", Node("of", "ADP", "IN")))

    def dressed(self, phrase: Phrase) -> None:
        """Clothes, hair or a thing carried, said after the noun."""
        head, kind = phrase.head, self.rng.random()
        number = "many" if phrase.plural and self.chance(0.6) else "one"
        garment = self.simple("garment", number).head
        if self.chance(0.15):
            self.join(garment, [self.simple("garment", number).head])
        if kind < 0.40:
            head.after("nmod", garment.first("case", Node("in", "ADP", "IN")))
        elif kind < 0.72:
            verb = "wearing" if self.chance(0.8) else "sporting"
            head.after("acl", Node(verb, "VERB", "VBG").after("obj", garment))
        elif kind < 0.80:
            colour = Node(self.of(COLOURS), "ADJ" if self.chance(0.5) else "NOUN", "JJ")
            colour.tag = "JJ" if colour.pos == "ADJ" else "NN"
            if self.chance(0.5):
                head.after("nmod", colour.before("case", Node("in", "ADP", "IN")))
            else:
                head.after("acl", Node("wearing", "VERB", "VBG").after("obj", colour))
        elif kind < 0.86:
            garment.first("case", Node("in", "ADP", "IN"))
            head.after("acl", Node("dressed", "VERB", "VBN").after("obl", garment))
        else:
            body = self.simple("body" if self.chance(0.7) else "garment").head
            head.after("nmod", body.first("case", Node("with", "ADP", "IN")))

    def phrase(self, sort: str = "", most: int = 1) -> Phrase:
        """A noun phrase with perhaps something after it."""
        sort = sort or self.weighted([("person", 60), ("animal", 25), ("thing", 15)])
        found = self.simple(sort)
        if most and found.head.text not in ("someone", "somebody"):
            if (sort == "person" and self.chance(0.33)) or (sort == "animal" and self.chance(0.06)):
                self.dressed(found)
            elif self.chance(0.08):
                other = self.simple(self.of(("thing", "body", "place")))
                self.hang(found.head, self.preposition("with", other.head), True)
        return found

    def join(self, head: Node, others: Sequence[Node]) -> Node:
        """ "a dog, a cat and two balls": commas and an "and"."""
        for k, other in enumerate(others):
            if k < len(others) - 1:
                other.first("punct", Node(",", "PUNCT", ","))
            else:
                other.first("cc", Node("and", "CCONJ", "CC"))
                if len(others) > 1 and self.chance(0.3):
                    other.first("punct", Node(",", "PUNCT", ","))
            head.after("conj", other)
        return head

    def subject(self) -> Phrase:
        found = self.phrase(most=1)
        if self.chance(0.13):
            others = [self.phrase(most=int(self.chance(0.3))).head]
            if self.chance(0.2):
                others.insert(0, self.simple("person").head)
            if self.chance(0.25) and not found.head.right:  # "a man and woman", "boys and girls"
                one, many = self.word_of(found.sort)
                many_too = found.head.tag == "NNS"
                others = [self.noun(many if many_too else one, many_too)]
            self.join(found.head, others)
            found.plural = True
        elif self.chance(0.08):
            self.hang(found.head, self.somewhere(ON_NOUN), True)
        return found

    # --- What is done ---

    def somewhere(self, table=None) -> Node:
        """A prepositional phrase: of a place, or (ON_NOUN) of another thing."""
        if table is ON_NOUN:
            sort = self.weighted([("thing", 5), ("person", 2), ("animal", 2), ("place", 2)])
            noun = self.phrase(sort, most=int(self.chance(0.4))).head
            return self.preposition(self.weighted(ON_NOUN), noun)
        if self.chance(0.3):
            options = self.of(list(words.PLACES.values()))
            phrase = self.of((options["any"] + ", " + options["ground"]).split(", ")).split(":")[0]
            made = self.world_place(phrase)
            if made:
                return made
        noun = self.simple("place" if self.chance(0.75) else "thing").head
        if self.chance(0.08):
            of = self.simple(self.of(("place", "thing"))).head
            noun.after("nmod", of.first("case", Node("of", "ADP", "IN")))
        if self.chance(0.04):
            self.join(noun, [self.simple("place").head])
        return self.preposition(self.weighted(AT_PLACE), noun)

    def world_place(self, phrase: str) -> Node | None:
        """One of the world's phrases of a setting as a tree; None where its form is its own."""
        parts = phrase.replace("-", " - ").split(" ")
        outside = parts[0] if parts[0] in ("outside", "deep", "out") else ""
        parts = parts[1:] if outside else parts
        if "'s" in phrase or "of" in parts:
            if parts[0] in ("at", "on") and "of" in parts and parts[1] == "the":
                at = parts.index("of")
                noun = self.world_noun(parts[at + 1 :])
                return self.preposition("+".join(parts[: at + 1]), noun) if at == 3 else None
            if "farmer's" in parts:
                owner = Node("farmer", "NOUN", "NN", glued=True)
                owner.before("det", Node("a", "DET", "DT"))
                owner.after("case", Node("'s", "PART", "POS"))
                field = Node("field", "NOUN", "NN").before("nmod:poss", owner)
                return field.first("case", Node("in", "ADP", "IN"))
            return None
        noun = self.world_noun(parts[1:])
        noun.first("case", Node(parts[0], "ADP", "IN"))
        if outside:
            noun.first("advmod", Node(outside, "ADV", "RB"))
        return noun

    def world_noun(self, parts: list[str]) -> Node:
        plural = parts[-1].endswith("s") and parts[-1] != "grass"
        head = Node(parts[-1], "NOUN", "NNS" if plural else "NN")
        nouns = {"city", "desert", "forest", "mountain", "winter"}
        rest = parts[:-1]
        if rest and rest[0] in ("a", "the", "an"):
            head.before("det", Node(rest.pop(0), "DET", "DT"))
        if "-" in rest:
            at = rest.index("-")
            whole = Node(rest[at + 1], "VERB", "VBN")
            head.before("amod", self.hyphened([rest[at - 1]], whole, "compound"))
            return head
        for word in rest:
            if word in nouns:
                head.before("compound", Node(word, "NOUN", "NN"))
            elif word == "ploughed":
                head.before("amod", Node(word, "VERB", "VBN"))
            else:
                head.before("amod", Node(word, "ADJ", "JJ"))
        return head

    def places(self, verb: Node, mean: float = 0.75) -> None:
        """Places after the verb's other words; a second one belongs to the verb too, mostly."""
        if self.chance(mean):
            first = self.somewhere()
            self.hang(verb, first, False)
            if self.chance(0.2):
                second = self.somewhere()
                inner = first
                while inner.right and inner.right[-1].dep in ("nmod", "obl"):
                    inner = inner.right[-1]
                to_noun = self.chance(0.3) and inner.pos == "NOUN"
                self.hang(inner if to_noun else verb, second, to_noun)

    def doing(self, tag: str, depth: int = 0) -> Node:
        """A verb in a form (VBG, VBZ, VBP, VB) with what follows it."""
        kind = self.weighted([
            ("intransitive", 22), ("transitive", 30), ("prepositional", 30), ("particle", 4),
            ("adverb", 8), ("control", 3 if depth == 0 else 0), ("light", 3), ("state", 3),
        ])  # fmt: skip
        if kind == "intransitive":
            known = self.chance(0.88)
            verb = self.verb(self.of(INTRANSITIVE if known else self.lexicon.intransitive), tag)
            self.manner(verb, 0.15)
            self.places(verb)
        elif kind == "transitive":
            known = self.chance(0.88)
            verb = self.verb(self.of(TRANSITIVE if known else self.lexicon.transitive), tag)
            verb.after("obj", self.object().head)
            self.manner(verb, 0.04)
            if self.chance(0.18):
                self.hang(verb, self.with_what(), False)
            self.places(verb, 0.45)
        elif kind == "prepositional":
            name, preposition = self.of(PREPOSITIONAL)
            verb = self.verb(name, tag)
            self.manner(verb, 0.05)
            noun = self.object(place=True).head
            if preposition in ("at", "to", "with") and self.chance(0.05):
                noun = Node("each", "DET", "DT").after("fixed", Node("other", "ADJ", "JJ"))
            self.hang(verb, self.preposition(preposition, noun), False)
            self.places(verb, 0.25)
        elif kind == "particle":
            name, particle = self.of(PARTICLES)
            verb = self.verb(name, tag)
            late = self.chance(0.25)
            if not late:
                verb.after("compound:prt", Node(particle, "ADP", "RP"))
            verb.after("obj", self.simple(self.of(("thing", "garment", "person"))).head)
            if late:
                verb.after("compound:prt", Node(particle, "ADP", "RP"))
            self.places(verb, 0.3)
        elif kind == "adverb":
            name, adverb = self.of(VERB_ADVERBS)
            verb = self.verb(name, tag)
            if adverb in PARTICLE_ADVERBS:
                verb.after("compound:prt", Node(adverb, "ADP", "RP"))
            else:
                verb.after("advmod", Node(adverb, "ADV", "RB"))
            self.places(verb, 0.6)
        elif kind == "control":
            verb = self.control(tag)
        elif kind == "light":
            verb = self.light(tag)
        else:
            verb = self.state(tag)
        if depth == 0:
            self.besides(verb)
        return verb

    def object(self, place: bool = False) -> Phrase:
        worn, where = (0, 22) if place else (9, 3)
        sorts = ("thing", 55), ("person", 14), ("animal", 14), ("garment", worn), ("place", where)
        sort = self.weighted(sorts)
        found = self.phrase(sort, most=int(self.chance(0.5)))
        if self.chance(0.09):
            self.join(found.head, [self.simple(sort).head])
        return found

    def manner(self, verb: Node, p: float) -> None:
        if self.chance(p):
            verb.after("advmod", Node(self.of(MANNERS), "ADV", "RB"))

    def with_what(self) -> Node:
        """By the leash, in his mouth, to her friend, with a stick: the verb's, not the object's."""
        kind = self.rng.random()
        if kind < 0.45:
            noun = self.simple("body").head
            return noun.first("case", Node(self.of(("in", "in", "with", "on", "over", "by", "above",
                                                    "around", "to")), "ADP", "IN"))  # fmt: skip
        if kind < 0.6:
            noun = self.simple("thing").head
            head = noun if noun.left and noun.left[0].dep != "det" else Node("leash", "NOUN", "NN")
            if head is not noun:
                head.text = self.of(("leash", "tail", "collar", "handle", "string", "rope", "hand"))
                head.before("det", Node(self.of(("the", "the", "a", "its")), "DET", "DT"))
                if head.left[0].text == "its":
                    head.left[0].pos, head.left[0].tag = "PRON", "PRP$"
                    head.left[0].dep = "nmod:poss"
            return head.first("case", Node("by", "ADP", "IN"))
        sort = self.of(("person", "animal", "thing"))
        where = "with into over through to towards from across onto off around for".split()
        return self.preposition(self.of(where), self.simple(sort).head)

    def control(self, tag: str) -> Node:
        """Trying to catch a ball, getting ready to jump."""
        inner = self.doing("VB", depth=1).first("mark", Node("to", "PART", "TO"))
        if self.chance(0.25):
            ready = Node("ready", "ADJ", "JJ").after("xcomp", inner)
            return self.verb("get", tag).after("xcomp", ready)
        return self.verb(self.of(CONTROL), tag).after("xcomp", inner)

    def light(self, tag: str) -> Node:
        """Taking a walk, having a snack, going for a walk, doing a trick."""
        name, noun = self.of(("take walk", "have snack", "have bite", "have meal", "do trick",
                              "take picture", "take photo", "do flip", "perform trick", "take nap",
                              "do handstand", "take break", "go walk")).split()  # fmt: skip
        head = Node(noun, "NOUN", "NN")
        self.article(head)
        verb = Node(verb_form(name, tag) if name != "do" else
                    {"VBG": "doing", "VBZ": "does"}.get(tag, "do"), "VERB", tag)  # fmt: skip
        if name == "go":
            verb.after("obl", head.first("case", Node("for", "ADP", "IN")))
        else:
            verb.after("obj", head)
        self.places(verb, 0.5)
        return verb

    def state(self, tag: str) -> Node:
        """Wearing a hat; for a participle also "seated on a bench", "covered in mud"."""
        if tag != "VBG":
            wear = self.verb("wear", tag)
            return wear.after("obj", self.simple("garment").head)
        return self.participle_of_state()

    def participle_of_state(self) -> Node:
        name, preposition = self.of(STATES)
        particle = name.split("-")[1] if "-" in name else ""
        verb = Node(verb_form(name.split("-")[0], "VBN"), "VERB", "VBN")
        if particle:
            verb.after("compound:prt", Node(particle, "ADP", "RP"))
        noun = self.object(place=True).head
        self.hang(verb, self.preposition(preposition, noun), False)
        self.places(verb, 0.2)
        return verb

    def besides(self, verb: Node) -> None:
        """A second doing: holding a ball, while holding a ball, to catch a ball, with ... open."""
        kind = self.rng.random()
        comma = self.chance(0.2)
        if kind < 0.12:
            other = self.doing("VBG", depth=1)
        elif kind < 0.15:
            other = self.doing("VBG", depth=1)
            mark = "as while while".split()[int(self.rng.random() * 3)]
            if mark == "as":  # "as another man watches"
                subject = self.simple("person")
                other = self.doing("VBP" if subject.plural else "VBZ", depth=1)
                other.first("nsubj", subject.head)
            other.first("mark", Node(mark, "SCONJ", "IN"))
        elif kind < 0.18:
            other = self.doing("VB", depth=1).first("mark", Node("to", "PART", "TO"))
            comma = False
        elif kind < 0.22:
            body = self.simple("body").head
            body.first("case", Node("with", "ADP", "IN"))
            body.after(*self.of((
                ("acl", self.verb(self.of(("raise", "cross", "stretch", "hang")), "VBN")),
                ("amod", Node(self.of(("open", "closed", "wet", "full")), "ADJ", "JJ")),
                ("advmod", Node(self.of(("out", "up", "down", "outstretched")), "ADV", "RB")),
            )))  # fmt: skip
            verb.after("obl", body)
            return
        elif kind < 0.27:
            other = self.doing("VBG" if verb.tag == "VBN" else verb.tag, depth=1)
            other.first("cc", Node("and", "CCONJ", "CC"))
            verb.after("conj", other)
            return
        else:
            return
        if comma:
            other.first("punct", Node(",", "PUNCT", ","))
        verb.after("advcl", other)

    # --- Sentences ---

    def said(self, subject: Phrase, p: float = 0.8) -> Node:
        """A noun phrase with a participle, a place or a relation after it."""
        head = subject.head
        if self.chance(p):
            kind = self.rng.random()
            if kind < 0.55:
                head.after("acl", self.doing("VBG"))
            elif kind < 0.63:
                head.after("acl", self.passive_verb(self.chance(0.3)))
            elif kind < 0.70:
                head.after("acl", self.participle_of_state())
            elif kind < 0.9:
                self.hang(head, self.somewhere(ON_NOUN), True)
                if self.chance(0.4):
                    self.hang(head, self.somewhere(), True)
            else:
                self.hang(head, self.somewhere(), True)
        return head

    def passive_verb(self, being: bool = False) -> Node:
        verb = Node(verb_form(self.of(PASSIVES), "VBN"), "VERB", "VBN")
        if being:
            verb.before("aux:pass", Node("being", "AUX", "VBG"))
        actor = self.phrase(self.of(("person", "person", "animal", "thing")), 1).head
        verb.after("obl:agent", actor.first("case", Node("by", "ADP", "IN")))
        self.places(verb, 0.25)
        return verb

    def be(self, plural: bool) -> Node:
        return Node("are" if plural else "is", "AUX", "VBP" if plural else "VBZ")

    def clause(self, subject: Phrase) -> Node:
        """A finite clause: "is holding", "holds"."""
        if self.chance(0.5):
            verb = self.doing("VBG")
            if verb.tag == "VBN":
                verb.left[:0] = []
                verb.first("aux:pass", self.be(subject.plural))
                return verb.first("nsubj:pass", subject.head)
            verb.first("aux", self.be(subject.plural))
        else:
            verb = self.doing("VBP" if subject.plural else "VBZ")
        return verb.first("nsubj", subject.head)

    def bare(self) -> Node:
        head = self.said(self.subject())
        if self.chance(0.1):
            other = self.said(self.phrase())
            other.first("cc", Node("and", "CCONJ", "CC"))
            other.first("punct", Node(",", "PUNCT", ","))
            head.after("conj", other)
        return head

    def list_of(self) -> Node:
        """ "a dog, a cat and two balls next to each other", perhaps with "are"."""
        found = [self.phrase(most=0) for _ in range(2 + self.chance(0.35))]
        head = self.join(found[0].head, [f.head for f in found[1:]])
        kind = self.rng.random()
        together = Node("each", "DET", "DT").after("fixed", Node("other", "ADJ", "JJ"))
        if kind < 0.15:
            where = self.preposition(self.of(("next+to", "near", "close+to", "beside")), together)
        elif kind < 0.2:
            where = Node("together", "ADV", "RB").before("advmod", Node("close", "ADV", "RB"))
        elif kind < 0.45:
            where = self.somewhere()
        elif kind < 0.6:
            return head.after("acl", self.doing("VBG"))
        elif kind < 0.75:
            return self.clause(Phrase(head, True, "person"))
        else:
            return head
        if self.chance(0.4):
            where.first("cop", self.be(True))
            return where.first("nsubj", head)
        self.hang(head, where, True)
        return head

    def finite(self) -> Node:
        return self.clause(self.subject())

    def there(self) -> Node:
        subject = self.subject()
        be = Node("are" if subject.plural else "is", "VERB", "VBP" if subject.plural else "VBZ")
        be.before("expl", Node("there", "PRON", "EX"))
        return be.after("nsubj", self.said(subject, 0.6))

    def seen(self) -> Node:
        subject = self.said(self.subject(), 0.7)
        if self.chance(0.5):
            verb = Node("see", "VERB", "VB").before(
                "nsubj", Node(self.of(("you", "we")), "PRON", "PRP")
            )
            if self.chance(0.6):
                verb.before("aux", Node("can", "AUX", "MD"))
            else:
                verb.tag = "VBP"
            if self.chance(0.3):
                verb.first("advmod", Node("here", "ADV", "RB"))
        else:
            picture = Node(self.of(("picture", "image", "photo")), "NOUN", "NN")
            picture.before("det", Node(self.of(("the", "this")), "DET", "DT"))
            verb = self.verb("show", "VBZ").before("nsubj", picture)
        return verb.after("obj", subject)

    def styled(self) -> Node:
        """ "a pencil drawing of a dog"."""
        texts = [text for row in words.STYLE_PHRASES.values() for text in row.split(", ")]
        more = "a close up of:x, a closeup picture of:x, a view of:x, a painting of:x".split(", ")
        *start, last, _ = self.of(texts + more).split(":")[0].split(" ")
        head = Node(last, "NOUN", "NN")
        for word in start[1:]:
            if word == "and":
                head.left[-1].after("conj", Node("white", "ADJ", "JJ").before(
                    "cc", Node("and", "CCONJ", "CC")))  # fmt: skip
            elif word in ("pencil", "colour", "closeup"):
                head.before("compound", Node(word, "NOUN", "NN"))
            elif word != "white":
                head.before("amod", Node(word, "ADJ", "JJ"))
        head.first("det", Node(start[0], "DET", "DT"))
        noun = self.said(self.subject(), 0.7)
        if self.chance(0.2):
            other = self.said(self.phrase(), 0.6).first("cc", Node("and", "CCONJ", "CC"))
            noun.after("conj", other.first("punct", Node(",", "PUNCT", ",")))
        return head.after("nmod", noun.first("case", Node("of", "ADP", "IN")))

    def placed_first(self) -> Node:
        place = self.somewhere()
        while place.pos != "NOUN":
            place = self.somewhere()
        if self.chance(0.3):
            be = self.there()
            be.first("obl", place)
            if self.chance(0.3):
                be.left.insert(1, Node(",", "PUNCT", ",", dep="punct"))
            return be
        verb = self.finite()
        if self.chance(0.75):
            verb.first("punct", Node(",", "PUNCT", ","))
        return verb.first("obl", place)

    def scene(self) -> Node:
        """ "a beach scene with two dogs"."""
        phrase = self.of([p.split(":")[0] for t in words.PLACES.values()
                          for p in t["scene"].split(", ")])  # fmt: skip
        scene = Node("scene", "NOUN", "NN")
        if phrase in ("coastal", "urban", "snowy", "wintry", "rural", "alpine"):
            scene.before("amod", Node(phrase, "ADJ", "JJ"))
        else:
            scene.before("compound", Node(phrase, "NOUN", "NN"))
        self.article(scene)
        noun = self.said(self.subject(), 0.6)
        kind = self.rng.random()
        if kind < 0.33:
            return scene.after("nmod", noun.first("case", Node("with", "ADP", "IN")))
        if kind < 0.66:
            return scene.after("acl", Node("showing", "VERB", "VBG").after("obj", noun))
        shows = self.verb("show", "VBZ").before("nsubj", Node("that", "PRON", "WDT"))
        return scene.after("acl:relcl", shows.after("obj", noun))

    def can_be_seen(self) -> Node:
        verb = Node("seen", "VERB", "VBN")
        subject = self.subject()
        if self.chance(0.7):
            verb.before("aux", Node("can", "AUX", "MD")).before("aux:pass", Node("be", "AUX", "VB"))
        else:
            verb.before("aux:pass", self.be(subject.plural))
        verb.first("nsubj:pass", subject.head)
        if self.chance(0.25):
            return verb.after("advcl", self.doing("VBG"))
        self.places(verb, 0.7)
        return verb

    def who(self) -> Node:
        """Relative clauses, alone, after "there is" or inside a sentence."""
        subject = self.phrase(most=1)
        who = Node(self.of(("who", "who", "that")) if subject.sort == "person" else "that",
                   "PRON", "WP" if subject.sort == "person" else "WDT")  # fmt: skip
        if self.chance(0.3):  # "the ball that the boy is holding"
            actor = self.simple("person")
            verb = self.verb(self.of(TRANSITIVE), "VBG").before("aux", self.be(actor.plural))
            verb.first("nsubj", actor.head).first("obj", Node("that", "PRON", "WDT"))
        elif self.chance(0.2):
            verb = self.somewhere()
            verb.first("cop", self.be(subject.plural)).first("nsubj", who)
        else:
            verb = self.clause(Phrase(who, subject.plural, subject.sort))
        subject.head.after("acl:relcl", verb)
        kind = self.rng.random()
        if kind < 0.35:
            be = Node("are" if subject.plural else "is", "VERB", "VBP" if subject.plural else "VBZ")
            return be.before("expl", Node("there", "PRON", "EX")).after("nsubj", subject.head)
        if kind < 0.6:
            return self.clause(subject)
        return subject.head

    def passive(self) -> Node:
        subject = self.phrase(self.of(("thing", "animal", "person")), most=1)
        verb = self.passive_verb(self.chance(0.4))
        if self.chance(0.2):  # without an agent
            verb.right = [n for n in verb.right if n.dep != "obl:agent"]
            self.places(verb, 0.7)
        verb.first("aux:pass" if not verb.left else "aux", self.be(subject.plural))
        return verb.first("nsubj:pass", subject.head)

    def is_somewhere(self) -> Node:
        """ "a dog is on a couch", "the man is tired", "a bus is a vehicle"."""
        subject = self.subject()
        kind = self.rng.random()
        if kind < 0.3:
            root = Node(self.of(PREDICATIVES + COLOURS), "ADJ", "JJ")
            if "-" in root.text:
                root = Node("down", "ADV", "RB").before("advmod", Node("upside", "ADV", "RB"))
            elif self.chance(0.2):
                root.before("advmod", Node(self.of(("very", "quite", "really")), "ADV", "RB"))
            if self.chance(0.25):
                inner = self.doing("VB", depth=1).first("mark", Node("to", "PART", "TO"))
                text = self.of(("about", "ready", "ready"))
                root = Node(text, "ADJ", "JJ").after("xcomp", inner)
        elif kind < 0.7:
            root = self.somewhere(ON_NOUN)
            self.places(root, 0.0)
        elif kind < 0.95:
            root = self.somewhere()
        else:
            root = self.simple(subject.sort, "many" if subject.plural else "one").head
        if root.pos == "NOUN" and self.chance(0.12):
            root.after("advcl", self.doing("VBG", depth=1))
        return root.first("cop", self.be(subject.plural)).first("nsubj", subject.head)

    def two_clauses(self) -> Node:
        """Joined by while, as, and, a comma."""
        first, second = self.finite(), self.finite()
        if self.chance(0.25):
            second = self.is_somewhere()
        if self.chance(0.55):
            second.first("mark", Node(self.of(("while", "while", "as")), "SCONJ", "IN"))
            if self.chance(0.2):
                second.first("punct", Node(",", "PUNCT", ","))
            return first.after("advcl", second)
        second.first("cc", Node("and", "CCONJ", "CC"))
        if self.chance(0.6):
            second.first("punct", Node(",", "PUNCT", ","))
        return first.after("conj", second)
