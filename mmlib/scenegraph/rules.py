"""The rules that read objects, attributes and relations from a caption's dependency tree.

`entry_of` is the whole of it; `mmlib.scenegraph.graph` makes graphs of what it returns.
`mmlib.scenegraph.trees` has brought the tree into one form before, whatever labels the pipeline
has.

The paper (CORA, Section 3.2) names four kinds of rules, but gives none; these are our own.
"""

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from mmlib.scenegraph.trees import (
    IN_LABEL,
    OBLIQUE,
    RECIPROCAL,
    SUBJECT,
    WORDS,
    Tree,
    tree_of,
)

if TYPE_CHECKING:
    from spacy.tokens import Doc

CONTROL = tuple(WORDS["control"])
ARGUMENT = SUBJECT | OBLIQUE | {"obj", "iobj", "obl:agent", "root", "conj", "appos", "nmod:poss"}
CLAUSE = frozenset(
    "root acl acl:relcl advcl advcl:relcl xcomp ccomp conj parataxis csubj dep list appos "
    "dislocated amod nsubj obl nmod obj".split()
)
INSIDE = IN_LABEL | {"amod", "nummod"}
NEVER_OBJECT = IN_LABEL | frozenset(
    "fixed case mark cc cc:preconj det aux aux:pass cop punct amod nummod advmod discourse "
    "reparandum expl compound:prt".split()
)


# --- The rules -------------------------------------------------------------------------------


def entry_of(doc: "Doc") -> dict[str, Any]:
    """What a parsed caption says, as an entry of the authors' `scene_graph` JSON.

    doc: a text that a spaCy pipeline with a tagger and a parser has read.

    - Objects: nouns with their compounds and names; "pair of shoes", "group of people" are one
      object. "Someone", "one", "another" count; other pronouns make no node, but a relative
      pronoun stands for its noun. Places and times ("background", "night") are objects.
    - Attributes: adjectives, participles, numbers, predicative adjectives and nouns ("is a
      fireman"), intransitive verbs; coordinated ones apart; each with its adverbs.
    - Relations: subject - verb - object, subject - verb with preposition - object, noun -
      preposition - noun. A passive's agent is the subject. An intransitive verb that has such a
      relation is no attribute in addition. A possessor stands in relation "of".
    - What a text says is not there has the attribute "no": "there is no dog", "there isn't a dog",
      "no dog runs". Other negations make no difference: docs/scene_graphs.md.
    - Conjuncts share subjects, objects and verbs; "young boys and girls" shares the adjective.
    - Where parsers often err, words decide: clothes belong to the nearest person before them.

    Labels are as written, in lower case; auxiliaries never occur in them. A caption without
    objects gives empty lists. Raises ValueError if the text has not been parsed.
    """
    return {"caption": doc.text, **_Reader(tree_of(doc)).read()}


class _Reader:
    """Reads one tree. Objects go by the token that heads them."""

    def __init__(self, tree: Tree):
        self.tree = tree
        self.words, self.pos, self.head = tree.words, tree.pos, tree.head
        self.role, self.kids, self.children = tree.role, tree.kids, tree.children
        self.labels: dict[int, str] = {}  # object -> its label
        self.same: dict[int, int] = {}  # noun that makes no node -> the noun whose object it names
        self.predicates: set[int] = set()  # those of them that describe it: "is a fireman"
        self.attributes: dict[int, dict[str, tuple[str, list[str]]]] = {}
        self.relations: dict[tuple[int, int, str], tuple[list[str], str]] = {}

    def read(self) -> dict[str, Any]:
        self.find_objects()
        for i in [*self.labels, *self.same]:
            self.noun(i)
        for i in range(len(self.tree)):
            if self.is_clause(i):
                self.clause(i)
        return self.entry()

    def entry(self) -> dict[str, Any]:
        number_of = {i: n for n, i in enumerate(self.labels)}
        numbers = itertools.count()  # attributes are numbered through the caption
        entities = []
        for i, label in self.labels.items():
            attributes = self.attributes.get(i, {}).values()
            listed = [[next(numbers), text, adverbs] for text, adverbs in attributes]
            entities.append({"id": number_of[i], "name": label, "attributes": listed})
        relations = [
            [number_of[s], number_of[o], list(words), preposition]
            for (s, o, _), (words, preposition) in self.relations.items()
        ]
        return {"entities": entities, "relations": relations}

    # --- Objects ---

    def find_objects(self) -> None:
        self.labels = {i: "" for i in range(len(self.tree)) if self.is_object(i)}
        for i in list(self.labels):
            subject = self.subject_of_noun(i)
            if subject >= 0 and self.referent(subject) != i:
                self.drop(i, subject)
                self.predicates.add(i)
        for i in list(self.labels):
            if i in self.labels:
                self.labels[i] = self.phrase(i) + self.contents(i)

    def is_object(self, i: int) -> bool:
        role, pos, word = self.role[i], self.pos[i], self.words[i]
        if role in NEVER_OBJECT or not any(c.isalnum() for c in word):
            return False
        if pos in ("NOUN", "PROPN"):
            return role != "obl:unmarked" or self.pos[self.head[i]] not in ("ADJ", "ADV")
        if word in WORDS["someone"]:
            return True
        if role not in ARGUMENT or self.children(i, "cop", "nsubj"):
            return False
        if pos == "NUM":
            return role in ("nsubj", "nsubj:pass", "obj") or (role == "root" and len(self.tree) < 3)
        if pos == "ADJ":
            return bool(self.children(i, "det", "case")) and role not in ("root", "conj")
        return False

    def subject_of_noun(self, i: int) -> int:
        """The man, if i is "fireman" of "the man is a fireman"; else -1."""
        if not self.children(i, "cop") or self.preposition(i):
            return -1
        subjects = self.subjects(i)
        return subjects[0] if len(subjects) == 1 else -1

    def phrase(self, i: int) -> str:
        """A word with its compounds and what belongs to these, as written."""
        return self.joined_words([i, *self.inside(*self.children(i, *IN_LABEL))])

    def inside(self, *compounds: int) -> list[int]:
        """The words of compounds: "high school" of "high school students"."""
        tokens = list(compounds)
        for j in tokens:  # grows on the way
            tokens += self.children(j, *INSIDE)
        return tokens

    def joined_words(self, tokens: Iterable[int]) -> str:
        """Words of the caption as one text, in its order."""
        return " ".join(self.words[k] for k in sorted(tokens))

    def contents(self, i: int) -> str:
        """ " of shoes" after "pair"; its noun is no object then, but another name of the pair."""
        text, last = "", i
        while last >= 0 and self.words[last] in WORDS["quantities"]:
            nouns = [k for k in self.children(last, *OBLIQUE) if k in self.labels]
            last = next((k for k in nouns if self.preposition(k) == "of"), -1)
            if last >= 0:
                text += f" of {self.phrase(last)}{self.joined(last, i)}"
                self.drop(last, i)
        return text

    def joined(self, i: int, quantity: int) -> str:
        """ " and women" of "a group of men and women"; other conjuncts belong to the group."""
        text = ""
        for conjunct in self.children(i, "conj"):
            if conjunct in self.labels and self.is_bare(conjunct, quantity):
                text += f" and {self.phrase(conjunct)}"
                self.drop(conjunct, quantity)
            else:
                self.head[conjunct] = quantity
                self.kids[i].remove(conjunct)
                self.kids[quantity].append(conjunct)
        return text

    def is_bare(self, i: int, quantity: int) -> bool:
        """Whether i is "women" of "a group of men and women"."""
        plain = not self.children(i, "det", "amod", "nummod")
        return plain and self.words[quantity] in WORDS["collectives"]

    def drop(self, i: int, noun: int) -> None:
        """Make no node of noun i, which names the object of another noun."""
        del self.labels[i]
        self.same[i] = noun

    def referent(self, i: int) -> int:
        """The noun whose object noun i names: itself, or "pair" for "shoes"."""
        while i in self.same:
            i = self.same[i]
        return i

    def preposition(self, i: int) -> str:
        """The preposition of a noun; a conjunct may have that of the first one."""
        if i in self.tree.prep:
            return self.tree.prep[i]
        if case := [k for k in self.children(i, "case") if k < i]:
            return " ".join(self.words[k] for k in case)
        if self.role[i] == "conj" and self.head[i] in self.labels:
            return self.preposition(self.head[i])
        return ""

    # --- What a word stands for ---

    def objects(self, i: int) -> list[int]:
        """The objects that a noun or pronoun stands for, with its conjuncts."""
        i = self.referent(i)
        if i in self.labels:
            return self.group(i)
        if self.pos[i] in ("PRON", "DET", "SCONJ") and self.words[i] in WORDS["relative"]:
            for h in self.tree.above(i):
                if self.role[h] in ("acl:relcl", "acl", "advcl:relcl") and self.head[h] >= 0:
                    return self.sharing(self.head[h], h)
        for k in self.children(i, "nmod"):  # "some of the men"
            if k in self.labels and self.preposition(k) == "of":
                return self.group(k)
        return []

    def group(self, i: int) -> list[int]:
        """A noun and the nouns coordinated with it."""
        conjuncts = [k for k in self.children(i, "conj") if not self.is_predicate(k)]
        nouns = map(self.referent, (i, *conjuncts))
        return list(dict.fromkeys(noun for noun in nouns if noun in self.labels))

    def objects_of(self, tokens: Iterable[int]) -> list[int]:
        """The objects that several nouns and pronouns stand for, each once."""
        return list(dict.fromkeys(j for k in tokens for j in self.objects(k)))

    def sharing(self, noun: int, modifier: int) -> list[int]:
        """The nouns that a clause after `noun` is about: perhaps all that are coordinated.

        In "a man and a woman dancing" the parser may hang the verb on either of them.
        """
        noun = self.wearer(noun, modifier)
        object_ = self.referent(noun)
        if object_ not in self.labels:
            return []
        first = self.tree.first_conjunct(noun)
        group = self.group(first) if first in self.labels else [object_]
        if len(group) == 1 or modifier < group[-1] or object_ not in (first, group[-1]):
            return [object_]
        if not self.is_plain_list(group) or self.is_of_one(modifier):
            return [group[-1]]
        shared = object_ == first or self.role[modifier] not in OBLIQUE or self.is_plain(object_)
        return group if shared else [object_]

    def is_of_one(self, modifier: int) -> bool:
        """Whether a modifier can be said of one thing only: "wearing a hat"."""
        wearing = self.words[modifier] == "wearing"
        worn = self.children(modifier, "obj") if wearing else [modifier]
        return any(
            self.words[k] in WORDS["clothes"]
            and any(self.words[d] in ("a", "an") for d in self.kids[k])
            for k in worn
        )

    def wearer(self, noun: int, clause: int) -> int:
        """The man of "a man in a red shirt standing": the parser may hang the verb on the shirt."""
        if self.role[clause] not in ("acl", "acl:relcl"):
            return noun
        first = self.tree.first_conjunct(noun)
        above = self.head[first]
        who = any(self.words[k] == "who" for k in self.kids[clause])
        if not who and not (self.role[clause] == "acl" and self.words[clause].endswith("ing")):
            return noun
        if self.role[first] == "nmod" and self.preposition(first) == "in":
            return above if above in self.labels else noun
        if self.role[first] == "obj" and self.words[above] in WORDS["wearing"]:
            if self.role[above] == "acl" and self.head[above] in self.labels:
                return self.head[above]
        return noun

    def is_plain_list(self, group: list[int]) -> bool:
        """Whether two conjuncts have no comma between them, and no clause follows the first."""
        comma = any(self.words[i] == "," for i in range(group[-2], group[-1]))
        modifiers = [
            k
            for i in group[:-1]
            for k in self.children(i, "acl", "acl:relcl", "nmod", "obl", "advcl")
        ]
        return not (comma and len(group) == 2) and not any(k < group[-1] for k in modifiers)

    def subjects(self, i: int, depth: int = 0) -> list[int]:
        """The objects that clause i is about."""
        if subjects := self.children(i, *SUBJECT):
            return self.objects_of(subjects)
        role, h = self.role[i], self.head[i]
        if h < 0 or depth > 20:
            return []
        if role == "csubj":  # "a woman wearing a hat is on a horse", the verb taken for a subject
            return self.objects_of(k for k in self.children(h, *SUBJECT) if k < i)
        if role == "acl" and self.role[h] in ("obj", "obl") and self.is_adverbial(i):
            return self.subjects(self.head[h], depth + 1)
        if role in ("acl", "acl:relcl", "amod"):
            return self.sharing(h, i)
        if role == "xcomp" and (
            not self.is_adverbial(i) or self.words[h].startswith(CONTROL)
        ):  # "watches a dog run", "helps a boy to climb"; but "uses a rope to climb"
            if objects := self.objects_of(self.children(h, "obj")):
                return objects
        if role in ("nsubj", "nsubj:pass", "ccomp"):
            return []
        if h in self.labels or h in self.same:
            return self.sharing(h, i)
        return self.subjects(h, depth + 1)

    def is_adverbial(self, i: int) -> bool:
        """Whether a clause starts with "to", "while" and the like."""
        return any(k < i for k in self.children(i, "mark"))

    # --- Attributes and relations ---

    def attribute(self, i: int, text: str, adverbs: Iterable[str] = ()) -> None:
        if text in WORDS["not_attributes"]:
            return
        adverbs = list(adverbs)
        self.attributes.setdefault(i, {}).setdefault(" ".join((text, *adverbs)), (text, adverbs))

    def relation(self, subject: int, words: list[str], preposition: str, object_: int) -> None:
        label = " ".join(word for word in (*words, preposition) if word)
        if subject != object_ and label:
            self.relations.setdefault((subject, object_, label), (words, preposition))

    def noun(self, i: int) -> None:
        """What hangs on a noun: adjectives, numbers, phrases with prepositions, possessors."""
        object_ = self.referent(i)
        if object_ not in self.labels:
            return
        if self.is_denied(i):
            self.attribute(object_, "no")
        if i in self.predicates:
            self.attribute(object_, self.phrase(i))  # "the man is a fireman"
        for k in self.kids[i]:
            role = self.role[k]
            if role in ("amod", "nummod"):
                self.modifier(i, k)
            elif role == "nmod:poss":
                for owner in self.objects(k):
                    self.relation(object_, [], "of", owner)
            elif role in OBLIQUE and not self.is_predicate(i) and self.referent(k) != object_:
                self.phrases(self.sharing(i, k), [], k)

    def is_denied(self, i: int) -> bool:
        """Whether the text says that i is not there: "there are no dogs", "no dog runs".

        Elsewhere, as in "a man in shorts and no shirt is running", the parser is often wrong.
        """
        first = self.tree.first_conjunct(i)
        verb = self.head[first]
        there = verb >= 0 and self.role[first] == "nsubj" and self.children(verb, "expl")
        if no := [k for k in self.children(i, "det") if self.words[k] == "no"]:
            return bool(there) or (no[0] == 0 and self.role[i] in ("nsubj", "root"))
        if i != first:  # "there are no dogs or cats"
            either = any(self.words[k] in ("or", "nor") for k in self.children(i, "cc"))
            return either and self.is_plain(i) and self.is_denied(first)
        denied = [k for k in self.children(verb, "advmod") if self.words[k] in WORDS["not"]]
        return bool(there and denied)

    def is_predicate(self, i: int) -> bool:
        return bool(self.children(i, *SUBJECT))

    def modifier(self, noun: int, i: int) -> None:
        """An adjective, participle or number at a noun, with the ones coordinated with it."""
        owners = [self.referent(noun)]
        if self.role[i] == "amod" and i < noun:
            owners += [k for k in self.group(noun)[1:] if noun in self.labels and self.is_plain(k)]
        for k in (i, *self.children(i, "conj")):
            if self.is_clause(k) and self.role[k] == "amod":
                continue  # read as a clause: "a bowl full of fruit"
            for owner in owners:
                self.attribute(owner, self.with_measure(k), self.adverbs(k))

    def is_plain(self, i: int) -> bool:
        """Whether a conjunct has nothing of its own: "girls" of "young boys and girls"."""
        return not self.children(i, "det", "amod", "nummod", "nmod:poss")

    def with_measure(self, i: int) -> str:
        """ "three year old", where the year is no object; else the word with its compounds."""
        measures = [k for k in self.children(i, "obl:unmarked", *IN_LABEL) if k < i]
        return self.joined_words([i, *self.inside(*measures)])

    def adverbs(self, i: int) -> list[str]:
        adverbs = []
        for k in self.kids[i]:
            late = self.role[k] == "xcomp" and self.pos[k] == "ADJ" and not self.kids[k]
            if self.role[k] != "advmod" and not (late and self.words[i] not in WORDS["linking"]):
                continue
            if (
                self.pos[k] not in ("ADV", "ADJ", "ADP", "PART")
                or self.words[k] in WORDS["not_adverbs"]
            ):
                continue
            if not self.is_particle(k):
                adverbs.append(self.joined_words([k, *self.children(k, "advmod")]))
        return adverbs

    def is_particle(self, i: int) -> bool:
        if self.role[i] == "compound:prt":
            return True
        return self.role[i] == "advmod" and self.words[i] in WORDS["particles"] and self.head[i] < i

    # --- Clauses ---

    def is_clause(self, i: int) -> bool:
        role, pos = self.role[i], self.pos[i]
        if role not in CLAUSE:
            return False
        if role == "amod":  # "a bowl full of fruit", unlike "a red bowl"
            return i > self.head[i] and bool(self.children(i, *OBLIQUE))
        if pos == "VERB" or (pos == "AUX" and role not in ("aux", "cop")):
            return True
        if i in self.labels or self.words[i] in RECIPROCAL:
            return self.is_predicate(i)
        return pos in ("ADJ", "ADV") and (self.is_predicate(i) or role in ("acl", "xcomp", "conj"))

    def clause(self, i: int) -> None:
        if i in self.labels or self.words[i] in RECIPROCAL:
            if self.preposition(i):  # "a dog is on the couch"
                subjects = self.subjects(i)
                self.phrases(subjects, [], i)
                for k in self.children(i, *OBLIQUE):  # "a dog is on the couch in the room"
                    of_noun = self.role[k] == "nmod" and i in self.labels
                    self.phrases([i] if of_noun else subjects, [], k)
        elif self.pos[i] in ("ADJ", "ADV"):
            self.adjective(i)
        else:
            self.verb(i)

    def phrases(self, subjects: Iterable[int], words: list[str], noun: int) -> bool:
        """Relations "verb preposition" to a noun and its conjuncts; whether there are any."""
        related = False
        subjects = list(subjects)
        if self.words[noun] in RECIPROCAL:
            return self.reciprocal(subjects, words, f"{self.preposition(noun)} {self.words[noun]}")
        for o in self.objects(noun):
            preposition = self.preposition(o) or self.preposition(noun)
            for s in subjects if preposition else ():
                self.relation(s, words, preposition, o)
                related = True
        return related

    def reciprocal(self, subjects: list[int], words: list[str], preposition: str) -> bool:
        """ "A dog and a cat next to each other": a relation from the first to each other one."""
        first = subjects[0] if subjects else -1
        if first >= 0 and self.role[first] == "conj" and self.head[first] in self.labels:
            first = self.head[first]
        partners = self.group(first)[1:] if first >= 0 else []
        for partner in partners:
            self.relation(first, words, preposition.strip(), partner)
        return bool(partners)

    def adjective(self, i: int) -> None:
        """A predicative adjective: "is happy", "looks happy", "full of fruit"."""
        verb = self.head[i]
        if (
            self.role[i] == "xcomp"
            and self.words[verb] not in WORDS["linking"]
            and not self.kids[i]
        ):
            return  # an adverb of its verb: "standing still"
        if self.role[i] == "conj" and self.role[verb] in ("amod", "advmod", "nummod"):
            return
        subjects = self.subjects(i)
        related = bound = False
        for k in self.children(i, *OBLIQUE):
            close = self.preposition(k) in ("of", "to", "from", "with", "for", "at")
            related |= self.phrases(subjects, [self.words[i]] if close else [], k)
            bound |= related and close
        if bound:
            return
        if self.pos[i] == "ADJ":
            for subject in subjects:
                self.attribute(subject, self.with_measure(i), self.adverbs(i))
        elif not related and self.children(i, "cop"):  # "close together"
            before = [k for k in self.children(i, "advmod") if k < i]
            for subject in subjects:
                self.attribute(subject, " ".join(self.words[k] for k in (*before, i)))

    def verb(self, i: int) -> None:
        """A verb with what it takes: relations if that is objects, else an attribute."""
        subjects = self.subjects(i)
        words = self.verb_words(i)
        related = False
        for k in self.kids[i]:
            role = self.role[k]
            if role in ("obl", "obl:agent") and self.is_agent(i, k):
                for agent in self.objects(k):
                    related |= self.relate([agent], words, subjects)
            elif role == "obj" and self.words[k] in RECIPROCAL:
                related |= self.phrases(subjects, words, k)
            elif role in ("obj", "iobj"):
                for o in self.objects(k):
                    related |= self.relate(subjects if words else [], words, [o])
            elif role in OBLIQUE or role == "obl:agent":
                related |= self.phrases(subjects, words, k)
        if self.role[i] == "acl:relcl":
            related |= self.gap(i, subjects, words)
        if not related and words and not self.links(i):
            for subject in subjects:
                self.attribute(subject, " ".join(words), self.adverbs(i))

    def relate(self, subjects: list[int], words: list[str], objects: list[int]) -> bool:
        """Relations from each subject to each object; whether there are any."""
        for s, o in itertools.product(subjects, objects):
            self.relation(s, words, "", o)
        return bool(subjects and objects)

    def is_agent(self, verb: int, i: int) -> bool:
        """Whether "by" names who does it: "held by a boy", but not "parked by a tree"."""
        if self.preposition(i) != "by" or self.words[verb] in WORDS["posed"]:
            return False
        if self.role[i] == "obl:agent":
            return True
        participle = self.role[verb] == "acl" and not self.words[verb].endswith("ing")
        return participle or bool(self.children(verb, "aux:pass", "nsubj:pass"))

    def gap(self, i: int, subjects: list[int], words: list[str]) -> bool:
        """ "The ball (that) the dog catches": the noun is the object."""
        explicit = self.children(i, *SUBJECT)
        if not explicit or self.children(i, "obj"):
            return False
        if any(self.words[k] in WORDS["relative"] for k in explicit):
            return False
        for noun in self.sharing(self.head[i], i):
            self.relate(subjects, words, [noun])
        return bool(subjects)

    def links(self, i: int) -> bool:
        """Whether the verb only links an adjective to its subject."""
        adjectives = (self.pos[k] == "ADJ" for k in self.children(i, "xcomp"))
        return self.words[i] in WORDS["linking"] and any(adjectives)

    def verb_words(self, i: int) -> list[str]:
        """The verb and its particles; none for a form of "be"."""
        if self.words[i] in WORDS["be"]:
            return []
        particles = [k for k in self.kids[i] if self.is_particle(k)]
        return [self.words[k] for k in sorted((i, *particles))]
