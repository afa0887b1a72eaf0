"""Captions of scenes: a grammar with synonyms that says only what is so, with its gold graph."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from mmlib.world import words
from mmlib.world.graphs import CONCEPTS, CaptionGraph, Edge, Fact, Node
from mmlib.world.scenes import pick, pick_weighted
from mmlib.world.schema import GROUP_OF, Scene

WIDEN = 0.15  # how often a caption says "animal" for "dog"


@dataclass(frozen=True)
class Caption:
    """A caption and what it says. The graph is true of the scene it was made for."""

    text: str
    graph: CaptionGraph


def captions(scene: Scene, seed: int = 0, n: int = 5) -> tuple[Caption, ...]:
    """n different captions of a scene at varied levels of detail; fewer only if it has no more."""
    rng = np.random.default_rng([seed, scene.seed, 3])
    found: dict[str, Caption] = {}
    for i in range(20 * n):
        if len(found) == n:
            break
        detail = (int(rng.random() < 0.7), 2, 3, 3, 4)[i % 5]
        new = caption(scene, rng, detail)
        found.setdefault(new.text.lower().rstrip("."), new)
    made = list(found.values())
    return tuple(made[i] for i in rng.permutation(len(made)))


def caption(scene: Scene, rng: np.random.Generator, detail: int = 3) -> Caption:
    """One caption. Detail 0: one thing; 1: with attributes; 2: a relation or several things;
    3: also the setting; 4: two clauses, setting, perhaps style.
    """
    return _Writer(scene, rng).caption(detail)


@dataclass(frozen=True)
class _Clause:
    """A subject and what is said of it: "a man", "riding a horse", "rides a horse"."""

    subject: str
    participle: str  # also a preposition's phrase; "" where nothing is said
    finite: str  # without a form of "be"; "" where there is none
    plural: bool
    person: bool
    aloft: bool  # in the air or on water: no "on the sand"
    listed: bool = False  # "a dog and a cat", of which there *is* one and another
    closed: bool = False  # ends in a place of its own
    actors: tuple[int, ...] = ()  # the things that the verb is about
    verb: tuple[str, str] = ("", "")  # as participle and finite, without an object

    @property
    def bare(self) -> str:
        return f"{self.subject} {self.participle}".strip()

    @property
    def be(self) -> str:
        return "are" if self.plural else "is"

    @property
    def there(self) -> str:
        one = self.listed and self.subject.split()[0] in ("a", "an", "someone")
        return "there is" if one else f"there {self.be}"


class _Writer:
    """Writes one caption and keeps the graph of what it has said so far.

    widen: how often it uses a wider concept.
    """

    def __init__(self, scene: Scene, rng: np.random.Generator, widen: float = WIDEN):
        self.scene, self.rng, self.widen = scene, rng, widen
        self.nodes: list[Node] = []
        self.edges: list[Edge] = []
        self.node_of: dict[int, int] = {}  # thing -> node
        self.named: set[str] = set()  # noun phrases so far
        self.place: tuple[str, ...] = ()
        self.style: tuple[str, ...] = ()

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def word(self, options: str, by: str = ", ") -> str:
        return pick(self.rng, options.split(by))

    # --- The whole ---

    def caption(self, detail: int) -> Caption:
        clauses = self.clauses(detail)
        text, sentence = self.sentence(clauses, detail)
        if self.chance(0.6 if sentence else 0.3):
            text = text[0].upper() + text[1:] + "."
        graph = CaptionGraph(
            tuple(self.nodes),
            tuple(self.edges),
            self.scene.setting if self.place else None,
            self.scene.style if self.style else None,
            self.place,
            self.style,
        )
        return Caption(text, graph)

    def clauses(self, detail: int) -> list[_Clause]:
        free = set(range(len(self.scene.things)))
        if detail < 2:
            return [self.single(free, attributes=detail + self.chance(0.4) * detail)]
        few = detail - 2 if detail < 4 else int(self.chance(0.6))
        first = self.about(free, few + self.chance(0.3))
        free -= set(self.node_of)
        if detail == 4 and free and not first.listed:
            return [first, self.about(free, int(self.chance(0.6)), lists=False)]
        return [first]

    def about(self, free: set[int], attributes: int, lists: bool = True) -> _Clause:
        """A clause about some of the free things: a relation where there is one, or a list."""
        told = _weights(self.scene.relations)
        weights = {e: w for e, w in told.items() if e[0] in free and e[2] in free}
        if any(weights.values()) and self.chance(0.8):
            return self.pair(pick_weighted(self.rng, weights), free, attributes, lists)
        if lists and len(free) > 1 and self.chance(0.5):
            return self.several(free, attributes)
        return self.single(free, attributes)

    def sentence(self, clauses: list[_Clause], detail: int) -> tuple[str, bool]:
        """The clauses as one text; whether it is a sentence (or a mere noun phrase).

        The comma keeps what is said in one clause from being read into the next one.
        """
        styled = self.chance((0.0, 0.1, 0.1, 0.2, 0.4)[detail])
        placed = self.chance((0.15, 0.25, 0.2, 0.9, 0.85)[detail])
        last = clauses[-1]
        if styled:
            self.style = tuple(self.word(words.STYLE_PHRASES[self.scene.style]).split(":"))
            text = f"{self.style[0]} " + ", and ".join(c.bare for c in clauses)
            return text + (self.end(last) if placed and not last.closed else ""), False
        if placed and self.chance(0.25):
            return self.placed_first(clauses)
        end = self.end(last) if placed and not last.closed else ""
        form = pick_weighted(
            self.rng, {"bare": 4, "finite": 4, "there": 2.5, "seen": 1, "who": 0.8}
        )
        if form == "finite" and all(c.participle for c in clauses):
            joint = " while " if self.chance(0.5) else ", and "
            return joint.join(self.finite(c) for c in clauses) + end, True
        joined = ", and ".join(c.bare for c in clauses)
        if form == "there":
            return f"{clauses[0].there} {joined}{end}", True
        if form == "seen":
            if not last.participle and len(clauses) == 1 and self.chance(0.5):
                return f"{joined} can be seen{end}", True
            start = self.word(
                "you can see, we see, we can see, here we see, here you can see, "
                "the picture shows, the image shows, this picture shows, this image shows"
            )
            return f"{start} {joined}{end}", True
        if form == "who" and last.finite and len(clauses) == 1 and not last.listed:
            self.put_finite(last)
            who = "who" if last.person else "that"
            return f"{last.there} {last.subject} {who} {last.finite}{end}", True
        return joined + end, False

    def placed_first(self, clauses: list[_Clause]) -> tuple[str, bool]:
        if self.chance(0.5):
            phrase, noun = self.word(words.PLACES[self.scene.setting]["scene"]).split(":")
            self.place = (f"{phrase} scene", noun)
            start = f"{_article(phrase)} {phrase} scene"
            joint = self.word("with, showing, that shows")
            return f"{start} {joint} " + ", and ".join(c.bare for c in clauses), False
        first = self.end(replace(clauses[0], aloft=True)).strip()
        if all(c.participle for c in clauses) and self.chance(0.6):
            joint = " while " if self.chance(0.5) else ", and "
            return f"{first}, " + joint.join(self.finite(c) for c in clauses), True
        joined = ", and ".join(c.bare for c in clauses)
        return f"{first} {clauses[0].there} {joined}", True

    def finite(self, clause: _Clause) -> str:
        if clause.finite and (self.chance(0.4) or clause.participle.startswith("with ")):
            self.put_finite(clause)
            return f"{clause.subject} {clause.finite}"
        return f"{clause.subject} {clause.be} {clause.participle}"

    def put_finite(self, clause: _Clause) -> None:
        """Have the graph's words say "rides" where the text does, not "riding"."""
        participle, finite = clause.verb
        at = {self.node_of[i] for i in clause.actors}
        for k in at:
            entries = []
            for name, value, word in self.nodes[k].words:
                if name == "action":  # "sitting" of "sitting on" becomes "sits" of "sits on"
                    word = finite.removesuffix(participle.removeprefix(word))
                entries.append((name, value, word))
            self.nodes[k] = replace(self.nodes[k], words=tuple(entries))
        for k, edge in enumerate(self.edges):
            if edge.subject in at and edge.words == participle:
                self.edges[k] = replace(edge, words=finite)

    def end(self, clause: _Clause) -> str:
        """The setting as a phrase after the clause."""
        table = words.PLACES[self.scene.setting]
        ground = not clause.aloft and self.chance(0.45)
        self.place = tuple(self.word(table["ground" if ground else "any"]).split(":"))
        return f" {self.place[0]}"

    # --- Clauses ---

    def single(self, free: set[int], attributes: int) -> _Clause:
        """One thing, or several of one sort, and perhaps what it is doing."""
        members, concept = self.some(free)
        action = self.common(members, "action")
        said = action if action and self.chance(0.75) else None
        if said and self.chance(0.2):
            participle = self.verb(members[0], said)[0]
            if " " not in participle:  # "a running dog"
                subject = self.phrase(members, concept, attributes, participle)
                for i in members:
                    self.say(i, "action", said, participle)
                return self.doing(subject, members, None)
        return self.doing(self.phrase(members, concept, attributes), members, said)

    def some(self, free: set[int]) -> tuple[tuple[int, ...], str]:
        """One of the free things, living ones rather, or all of one sort; with a concept."""
        groups = self.groups(free)
        if groups and self.chance(0.4):
            return pick(self.rng, groups)
        living = {i: 1.0 + 2.0 * (GROUP_OF[self.kind(i)] in ("person", "animal")) for i in free}
        i = pick_weighted(self.rng, dict(sorted(living.items())))
        return (i,), self.concept(i)

    def groups(self, free: set[int]) -> list[tuple[tuple[int, ...], str]]:
        """All sets of two or more things of one sort, if every one of the scene is free."""
        sorts = _sorts(tuple(thing.kind for thing in self.scene.things))
        return [(members, concept) for members, concept in sorts if free.issuperset(members)]

    def several(self, free: set[int], attributes: int) -> _Clause:
        """A list: "a dog, a cat and two balls"."""
        phrases: list[str] = []
        used: set[int] = set()
        members: tuple[int, ...]
        for _ in range(2 + self.chance(0.35)):
            if not free - used:
                break
            members, concept = self.some(free - used)
            phrases.append(self.phrase(members, concept, attributes))
            used |= set(members)
        text = " and ".join([", ".join(phrases[:-1]), phrases[-1]] if phrases[1:] else phrases)
        things = tuple(sorted(used))
        action = self.common(things, "action") if len(phrases) > 1 else None
        clause = self.doing(text, things, action if self.chance(0.6) else None)
        return replace(clause, plural=len(used) > 1, listed=True)

    def doing(self, subject: str, members: tuple[int, ...], action: str | None) -> _Clause:
        participle = finite = ""
        if action:
            participle, third, plural = self.verb(members[0], action)
            finite = plural if len(members) > 1 else third
            for i in members:
                self.say(i, "action", action, participle)
        return _Clause(
            subject,
            participle,
            finite,
            plural=len(members) > 1,
            person=GROUP_OF[self.kind(members[0])] == "person",
            aloft=any(self.aloft(i) for i in members),
            closed=" the " in participle or " a walk" in participle,
            actors=members,
            verb=(participle, finite),
        )

    def pair(
        self, edge: tuple[int, str, int], free: set[int], attributes: int, lists: bool
    ) -> _Clause:
        """A clause that states a relation, from either side."""
        i, relation, j = edge
        actors: tuple[int, ...] = (i,)
        concept = self.concept(i)
        shared = [
            (members, name)
            for members, name in self.groups(free)
            if i in members and j not in members
            if all((m, relation, j) in self.scene.relations for m in members)
        ]
        if shared and relation not in ("riding", "holding"):
            actors, concept = pick(self.rng, shared)
        if relation in words.PASSIVE and len(actors) == 1 and self.chance(0.2):
            return self.passive(edge, attributes)
        if lists and relation == "near" and len(actors) == 1 and self.chance(0.25):
            return self.together(edge, attributes)
        subject = self.phrase(actors, concept, attributes)
        participle, third, plural = self.relation_words(edge, actors)
        other = self.phrase((j,), self.concept(j), max(0, attributes - self.chance(0.4)))
        for actor in actors:
            ends = self.node_of[actor], self.node_of[j]
            self.edges.append(Edge(ends[0], relation, ends[1], participle))
        finite = plural if len(actors) > 1 else third
        return _Clause(
            subject,
            f"{participle} {other}",
            f"{finite} {other}" if finite else "",
            plural=len(actors) > 1,
            person=GROUP_OF[self.kind(i)] == "person",
            aloft=self.aloft(i) or self.aloft(j),
            actors=actors,
            verb=(participle, finite),
        )

    def passive(self, edge: tuple[int, str, int], attributes: int) -> _Clause:
        """ "a kite held by a boy"."""
        i, relation, j = edge
        subject = self.phrase((j,), self.concept(j), attributes)
        by = self.word(words.PASSIVE[relation])
        actor = self.phrase((i,), self.concept(i), max(0, attributes - 1))
        self.edges.append(Edge(self.node_of[i], relation, self.node_of[j], by, passive=True))
        person = GROUP_OF[self.kind(j)] == "person"
        aloft = self.aloft(i) or self.aloft(j)
        return _Clause(subject, f"{by} {actor}", "", plural=False, person=person, aloft=aloft)

    def together(self, edge: tuple[int, str, int], attributes: int) -> _Clause:
        """ "a man and a dog next to each other"."""
        i, relation, j = edge
        subject = " and ".join(self.phrase((k,), self.concept(k), attributes) for k in (i, j))
        where = self.word(words.TOGETHER)
        self.edges.append(Edge(self.node_of[i], relation, self.node_of[j], where))
        aloft = self.aloft(i) or self.aloft(j)
        return _Clause(subject, where, "", plural=True, person=False, aloft=aloft, listed=True)

    # --- Words ---

    def relation_words(
        self, edge: tuple[int, str, int], actors: Sequence[int]
    ) -> tuple[str, str, str]:
        """(participle or preposition, third person, plural) of a relation; verbs may be ""."""
        i, relation, j = edge
        thing, other = self.scene.things[i], self.scene.things[j]
        if relation == "riding":
            return self.forms(words.RIDING.get(other.kind, "") or words.RIDING[""])
        if relation == "chasing":
            return self.forms(words.CHASING[""])
        if relation == "holding":
            tables = [words.HOLDING.get(key, "") for key in ("", other.kind, thing.action or "")]
            return self.forms(", ".join(table for table in tables if table))
        preposition = self.word(words.RELATION_WORDS[relation])
        if relation == "on":
            if thing.kind in words.PERCHED and self.chance(0.4) and len(actors) == 1:
                if thing.kind != "cat" or thing.action == "lying":
                    return self.forms(words.PERCHED[thing.kind])
            if other.kind in ("bench", "chair", "horse", "bicycle", "boat"):
                preposition = "on"
        action = self.common(actors, "action")
        if action and self.chance(0.6) and (i, "riding", j) not in self.scene.relations:
            forms = self.verb(i, action)
            if forms[1] and " the " not in forms[0]:
                for actor in actors:
                    self.say(actor, "action", action, forms[0])
                joined = [f"{form} {preposition}" for form in forms]
                return joined[0], joined[1], joined[2]
        return preposition, "", ""

    def forms(self, options: str) -> tuple[str, str, str]:
        participle, third, plural = self.word(options).split("|")
        return participle, third, plural

    def verb(self, i: int, action: str) -> tuple[str, str, str]:
        kind = self.kind(i)
        table = words.VERBS[action]
        return self.forms(", ".join(table[key] for key in (GROUP_OF[kind], kind) if key in table))

    def phrase(
        self, members: tuple[int, ...], concept: str, attributes: int, doing: str = ""
    ) -> str:
        """A noun phrase for one thing, or for several of one sort; adds their nodes."""
        many = len(members) > 1
        facts = self.choose_facts(members, attributes)
        noun, adjectives, tail, worn, said = self.dress(members, concept, facts, doing)
        adjectives += [doing] if doing else []
        text = " ".join([*adjectives, noun])
        again = text in self.named or (not adjectives and any(n.noun == noun for n in self.nodes))
        self.named.add(text)
        for i in members:
            self.node_of[i] = len(self.nodes)
            entries = tuple((name, value, said[name]) for name, value in sorted(facts))
            self.nodes.append(Node(concept, frozenset(facts), noun, entries, worn))
        if many:
            return f"{self.word(words.NUMBERS[len(members)])} {text}{tail}"
        if noun == "someone":
            return f"{noun}{tail}"
        return f"{'another' if again else _article(text)} {text}{tail}"

    def dress(
        self, members: tuple[int, ...], concept: str, facts: Sequence[Fact], doing: str
    ) -> tuple[str, list[str], str, tuple[str, ...], dict[str, str]]:
        """(noun, adjectives before it, what follows it, garment, word of each fact)."""
        many = len(members) > 1
        options = [n for n in words.NOUNS[concept] if not (many and n.endswith("/"))]
        used = {node.noun for node in self.nodes}
        if doing or any(name == "size" for name, _ in facts) or "someone" in used:
            options = [n for n in options if not n.startswith("someone")]
        plain = self.chance(0.5)
        singular, plural = (options[0] if plain else pick(self.rng, options)).split("/")
        noun = plural if many else singular
        said = {name: self.fact_word(concept, name, value) for name, value in facts}
        names = ("pattern", "colour") if said.get("pattern") == "plain" else ("colour", "pattern")
        looks = [said[name] for name in names if name in said]
        size = [said["size"]] if "size" in said else []
        if not looks or GROUP_OF[self.kind(members[0])] != "person":
            return noun, size + looks, "", (), said
        garment = self.word(words.GARMENTS[self.kind(members[0])], " ")
        worn = ("wearing" if self.chance(0.35) else "in", garment)
        if many:
            garments = garment + ("es" if garment.endswith("s") else "s")
            tail = f" {worn[0]} {' '.join(looks)} {garments}"
        else:
            tail = f" {worn[0]} {_article(looks[0])} {' '.join(looks)} {garment}"
        return noun, size, tail, worn, said

    def fact_word(self, concept: str, name: str, value: str) -> str:
        if name == "colour":
            return self.word(words.COLOUR_WORDS[value], " ")
        if name == "pattern":
            return self.word(words.PATTERN_WORDS[value], " ")
        tall = value == "large" and concept in words.TALL
        options = words.SIZE_WORDS[value].split() + (["tall", "tall"] if tall else [])
        person = CONCEPTS[concept] <= CONCEPTS["person"]
        return pick(self.rng, [w for w in options if w != "huge" or not person])

    def choose_facts(self, members: tuple[int, ...], attributes: int) -> list[Fact]:
        """Up to `attributes` facts that hold of all members and that one would mention."""
        weights: dict[Fact, float] = {}
        kinds = {self.kind(i) for i in members}
        garments = {words.GARMENTS.get(kind) for kind in kinds}
        colour, pattern, size = (self.common(members, n) for n in ("colour", "pattern", "size"))
        if len(garments) == 1:  # people of one dress, or not people
            if colour and self.scene.style != "black and white":  # no colour to be seen there
                weights["colour", colour] = 3.0
            if pattern and (pattern != "plain" or self.chance(0.06)):
                weights["pattern", pattern] = 2.0
        if size and (size != "medium" or self.chance(0.06)):
            weights["size", size] = 1.5
        chosen: list[Fact] = []
        while weights and len(chosen) < attributes:
            chosen.append(pick_weighted(self.rng, weights))
            del weights[chosen[-1]]
        return chosen

    # --- The scene ---

    def kind(self, i: int) -> str:
        return self.scene.things[i].kind

    def concept(self, i: int) -> str:
        kind = self.kind(i)
        return pick(self.rng, words.WIDER[kind]) if self.chance(self.widen) else kind

    def common(self, members: Sequence[int], name: str) -> str | None:
        """The value of an attribute that all members share, or None."""
        values = {getattr(self.scene.things[i], name) for i in members}
        return values.pop() if len(values) == 1 else None

    def aloft(self, i: int) -> bool:
        thing = self.scene.things[i]
        return thing.lift > 0 or thing.action in ("flying", "floating") or thing.kind == "boat"

    def say(self, i: int, name: str, value: str, word: str) -> None:
        """Add a fact to the node of thing i."""
        at = self.node_of[i]
        node = self.nodes[at]
        self.nodes[at] = replace(
            node, facts=node.facts | {(name, value)}, words=(*node.words, (name, value, word))
        )


@lru_cache(256)
def _weights(relations: tuple[tuple[int, str, int], ...]) -> dict[tuple[int, str, int], float]:
    """How much one would mention each relation; 0 where a closer one says it better."""
    usual = {
        "holding": 6, "riding": 6, "chasing": 6, "on": 4, "under": 3, "behind": 1.5,
        "in front of": 1.5, "near": 0.7,
    }  # fmt: skip
    known = set(relations)
    close = {
        frozenset((i, j)) for i, r, j in relations
        if r in ("on", "under", "holding", "riding", "chasing")
    }  # fmt: skip
    weights = {}
    for i, relation, j in relations:
        loose = relation in ("near", "left of", "right of", "in front of")
        said = relation == "under" and (j, "on", i) in known
        better = said or (loose and {i, j} in close)
        weights[i, relation, j] = 0.0 if better else usual.get(relation, 0.4)
    return weights


@lru_cache(256)
def _sorts(kinds: tuple[str, ...]) -> list[tuple[tuple[int, ...], str]]:
    """All sets of two or more things of one sort, with its concept, by the concept's name."""
    found = []
    for concept in sorted({name for kind in kinds for name in (kind, *words.WIDER[kind])}):
        members = tuple(i for i, kind in enumerate(kinds) if kind in CONCEPTS[concept])
        if len(members) > 1:
            found.append((members, concept))
    return found


def _article(text: str) -> str:
    return "an" if text[0] in "aeiou" else "a"
