"""Captions of scenes: a grammar with synonyms that says only what is so, with its gold graph."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from mmlib.world import words
from mmlib.world.graphs import CONCEPTS, CaptionGraph, Edge, Fact, Node
from mmlib.world.scenes import pick, pick_weighted
from mmlib.world.schema import ACTION_RELATIONS, GROUP_OF, Scene
from mmlib.world.stories import with_article

FORMS = ("relations", "complete", "synonyms", "omissions", "grammar")  # see `Lister`
WIDEN = 0.15  # how often a caption says "animal" for "dog"


@dataclass(frozen=True)
class Caption:
    """A caption and what it says. The graph is true of the scene it was made for."""

    text: str
    graph: CaptionGraph


def captions(
    scene: Scene, seed: int = 0, n: int = 5, listed: Collection[str] | None = None
) -> tuple[Caption, ...]:
    """n different captions of a scene at varied levels of detail; fewer only if it has no more.

    listed: each is a list of this form, see `Lister`.
    """
    rng = np.random.default_rng([seed, scene.seed, 3])
    by_text: dict[str, Caption] = {}
    for i in range(20 * n):
        if len(by_text) == n:
            break
        detail = (int(rng.random() < 0.7), 2, 3, 3, 4)[i % 5]
        writer = Writer(scene, rng) if listed is None else Lister(scene, rng, 0.0)
        writer.form = listed or ()
        new = writer.caption(detail)
        by_text.setdefault(new.text.lower().rstrip("."), new)
    different = list(by_text.values())
    return tuple(different[i] for i in rng.permutation(len(different)))


@dataclass(frozen=True)
class _Clause:
    """A subject and what is said of it: "a man", "riding a horse", "rides a horse"."""

    subject: str
    participle: str  # also a preposition's phrase; "" where nothing is said
    finite: str  # without a form of "be"; "" where there is none
    person: bool
    aloft: bool  # in the air or on water: no "on the sand"
    plural: bool = False
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
        singular = self.listed and self.subject.split()[0] in ("a", "an", "someone")
        return "there is" if singular else f"there {self.be}"


class Writer:
    """Writes one caption and keeps the graph of what it has said so far.

    widen: how often it uses a wider concept.
    """

    def __init__(self, scene: Scene, rng: np.random.Generator, widen: float = WIDEN):
        self.scene, self.rng, self.widen = scene, rng, widen
        self.form: Collection[str] = ()  # of lists
        self.nodes: list[Node] = []
        self.edges: list[Edge] = []
        self.node_of: dict[int, int] = {}  # thing -> node
        self.named: set[str] = set()  # noun phrases so far
        self.place: tuple[str, ...] = ()
        self.style: tuple[str, ...] = ()

    def _chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def _word(self, options: str, by: str = ", ") -> str:
        return self._pick(options.split(by))

    def _pick(self, options: Sequence[str]) -> str:
        return pick(self.rng, options)

    # --- The whole ---

    def caption(self, detail: int) -> Caption:
        """The whole caption. Detail 0: one thing; 1: with attributes; 2: a relation or several
        things; 3: also the setting; 4: two clauses, setting, perhaps style.
        """
        clauses = self.clauses(detail)
        text, sentence = self.sentence(clauses, detail)
        if self._chance(0.6 if sentence else 0.3):
            text = text[0].upper() + text[1:] + "."
        setting = self.scene.setting if self.place else None
        style = self.scene.style if self.style else None
        nodes, edges = tuple(self.nodes), tuple(self.edges)
        return Caption(text, CaptionGraph(nodes, edges, setting, style, self.place, self.style))

    def clauses(self, detail: int) -> list[_Clause]:
        """What the caption says, in one clause or two."""
        free = set(range(len(self.scene.things)))
        if detail < 2:
            return [self._single(free, attributes=detail + self._chance(0.4) * detail)]
        few = detail - 2 if detail < 4 else int(self._chance(0.6))
        first = self.about(free, few + self._chance(0.3))
        free -= set(self.node_of)
        if detail == 4 and free and not first.listed:
            return [first, self.about(free, int(self._chance(0.6)), lists=False)]
        return [first]

    def about(self, free: set[int], attributes: int, lists: bool = True) -> _Clause:
        """A clause about some of the free things: a relation where there is one, or a list."""
        weights = _weights(self.scene.relations)
        weights = {e: w for e, w in weights.items() if e[0] in free and e[2] in free}
        if any(weights.values()) and self._chance(0.8):
            return self.pair(pick_weighted(self.rng, weights), free, attributes, lists)
        if lists and len(free) > 1 and self._chance(0.5):
            return self._several(free, attributes)
        return self._single(free, attributes)

    def sentence(self, clauses: list[_Clause], detail: int) -> tuple[str, bool]:
        """The clauses as one text; whether it is a sentence (or a mere noun phrase).

        The comma keeps what is said in one clause from being read into the next one.
        """
        styled = self._chance((0.0, 0.1, 0.1, 0.2, 0.4)[detail])
        placed = self._chance((0.15, 0.25, 0.2, 0.9, 0.85)[detail])
        last, bare = clauses[-1], ", and ".join(clause.bare for clause in clauses)
        if styled:
            self.style = tuple(self._word(words.STYLE_PHRASES[self.scene.style]).split(":"))
            bare = f"{self.style[0]} {bare}"
        elif placed and self._chance(0.25):
            return self._placed_first(clauses, bare)
        end = self.end(last) if placed and not last.closed else ""
        if styled:
            return bare + end, False
        form = pick_weighted(self.rng, words.FORMS)
        if form == "finite" and all(c.participle for c in clauses):
            return self._joint(clauses) + end, True
        if form == "there":
            return f"{clauses[0].there} {bare}{end}", True
        if form == "seen":
            if not last.participle and len(clauses) == 1 and self._chance(0.5):
                return f"{bare} can be seen{end}", True
            return f"{self._word(words.SHOWING)} {bare}{end}", True
        if form == "who" and last.finite and len(clauses) == 1 and not last.listed:
            self.put_finite(last)
            who = "who" if last.person else "that"
            return f"{last.there} {last.subject} {who} {last.finite}{end}", True
        return bare + end, False

    def _placed_first(self, clauses: list[_Clause], bare: str) -> tuple[str, bool]:
        if self._chance(0.5):
            phrase, noun = self._word(words.PLACES[self.scene.setting]["scene"]).split(":")
            self.place = (f"{phrase} scene", noun)
            start = f"{with_article(phrase)} scene"
            return f"{start} {self._word('with, showing, that shows')} {bare}", False
        first = self.end(replace(clauses[0], aloft=True)).strip()
        if all(c.participle for c in clauses) and self._chance(0.6):
            return f"{first}, {self._joint(clauses)}", True
        return f"{first} {clauses[0].there} {bare}", True

    def _joint(self, clauses: list[_Clause]) -> str:
        joint = " while " if self._chance(0.5) else ", and "
        return joint.join(self.finite(clause) for clause in clauses)

    def finite(self, clause: _Clause) -> str:
        """A clause as a sentence: "a man rides a horse"."""
        if clause.finite and (self._chance(0.4) or clause.participle.startswith("with ")):
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
        ground = not clause.aloft and self._chance(0.45)
        self.place = tuple(self._word(table["ground" if ground else "any"]).split(":"))
        return f" {self.place[0]}"

    # --- Clauses ---

    def _single(self, free: set[int], attributes: int) -> _Clause:
        members, concept = self.some(free)
        action = self.common(members, "action")
        action = action if action and self._chance(0.75) else None
        if action and self._chance(0.2):
            participle = self._verb(members[0], action)[0]
            if " " not in participle:  # "a running dog"
                subject = self.phrase(members, concept, attributes, participle)
                for i in members:
                    self.say(i, "action", action, participle)
                return self._doing(subject, members, None)
        return self._doing(self.phrase(members, concept, attributes), members, action)

    def some(self, free: set[int]) -> tuple[tuple[int, ...], str]:
        """One of the free things, living ones rather, or all of one sort; with a concept."""
        groups = self.groups(free)
        if groups and self._chance(0.4):
            return pick(self.rng, groups)
        living = {i: 1.0 + 2.0 * (GROUP_OF[self._kind(i)] in ("person", "animal")) for i in free}
        i = pick_weighted(self.rng, dict(sorted(living.items())))
        return (i,), self._concept(i)

    def groups(self, free: set[int]) -> list[tuple[tuple[int, ...], str]]:
        """All sets of two or more things of one sort, if every one of the scene is free."""
        sorts = _sorts(tuple(item.kind for item in self.scene.things))
        return [(members, concept) for members, concept in sorts if free.issuperset(members)]

    def _several(self, free: set[int], attributes: int) -> _Clause:
        phrases: list[str] = []
        used: set[int] = set()
        members: tuple[int, ...]
        for _ in range(2 + self._chance(0.35)):
            if not free - used:
                break
            members, concept = self.some(free - used)
            phrases.append(self.phrase(members, concept, attributes))
            used |= set(members)
        text = _enumeration(phrases)
        members = tuple(sorted(used))
        action = self.common(members, "action") if len(phrases) > 1 else None
        clause = self._doing(text, members, action if self._chance(0.6) else None)
        return replace(clause, plural=len(used) > 1, listed=True)

    def _doing(self, subject: str, members: tuple[int, ...], action: str | None) -> _Clause:
        participle = finite = ""
        if action:
            participle, third, several = self._verb(members[0], action)
            finite = several if len(members) > 1 else third
            for i in members:
                self.say(i, "action", action, participle)
        closed = " the " in participle or " a walk" in participle
        verb, plural = (participle, finite), len(members) > 1
        return self.clause(
            subject, *verb, members, plural=plural, closed=closed, actors=members, verb=verb
        )

    def clause(
        self, subject: str, participle: str, finite: str, members: Sequence[int], **more: Any
    ) -> _Clause:
        """A clause about these things, of which the first is the subject's first."""
        person = GROUP_OF[self._kind(members[0])] == "person"
        aloft = any(self._aloft(i) for i in members)
        return _Clause(subject, participle, finite, person, aloft, **more)

    def pair(
        self, edge: tuple[int, str, int], free: set[int], attributes: int, lists: bool
    ) -> _Clause:
        """A clause that states a relation, from either side."""
        i, relation, j = edge
        actors: tuple[int, ...] = (i,)
        concept = self._concept(i)
        shared = [
            (members, name)
            for members, name in self.groups(free)
            if i in members and j not in members
            if all((m, relation, j) in self.scene.relations for m in members)
        ]
        if shared and relation not in ("riding", "holding"):
            actors, concept = pick(self.rng, shared)
        if relation in words.PASSIVE and len(actors) == 1 and self._chance(0.2):
            return self.passive(edge, attributes)
        if lists and relation == "near" and len(actors) == 1 and self._chance(0.25):
            return self.together(edge, attributes)
        subject = self.phrase(actors, concept, attributes)
        participle, third, plural = self.relation_words(edge, actors)
        target = self.phrase((j,), self._concept(j), max(0, attributes - self._chance(0.4)))
        for actor in actors:
            self.relate((actor, relation, j), participle)
        finite = plural if len(actors) > 1 else third
        return self.clause(
            subject, f"{participle} {target}", f"{finite} {target}" if finite else "", (i, j),
            plural=len(actors) > 1, actors=actors, verb=(participle, finite),
        )  # fmt: skip

    def passive(self, edge: tuple[int, str, int], attributes: int) -> _Clause:
        """ "a kite held by a boy"."""
        i, relation, j = edge
        subject = self.phrase((j,), self._concept(j), attributes)
        by = self._word(words.PASSIVE[relation])
        actor = self.phrase((i,), self._concept(i), max(0, attributes - 1))
        self.relate(edge, by, passive=True)
        return self.clause(subject, f"{by} {actor}", "", (j, i))

    def together(self, edge: tuple[int, str, int], attributes: int) -> _Clause:
        """ "a man and a dog next to each other"."""
        i, _, j = edge
        subject = " and ".join(self.phrase((k,), self._concept(k), attributes) for k in (i, j))
        together = self._word(words.TOGETHER)
        self.relate(edge, together)
        return self.clause(subject, together, "", (i, j), plural=True, listed=True)

    # --- Words ---

    def relation_words(
        self, edge: tuple[int, str, int], actors: Sequence[int]
    ) -> tuple[str, str, str]:
        """(participle or preposition, third person, plural) of a relation; verbs may be ""."""
        i, relation, j = edge
        subject, target = self.scene.things[i], self.scene.things[j]
        if relation == "riding":
            return self._forms(words.RIDING.get(target.kind, "") or words.RIDING[""])
        if relation == "chasing":
            return self._forms(words.CHASING[""])
        if relation == "holding":
            keys = ("", target.kind, subject.action or "")
            tables = [words.HOLDING.get(key, "") for key in keys]
            return self._forms(", ".join(table for table in tables if table))
        preposition = self._word(words.RELATION_WORDS[relation])
        if relation == "on":
            if subject.kind in words.PERCHED and self._chance(0.4) and len(actors) == 1:
                if subject.kind != "cat" or subject.action == "lying":
                    return self._forms(words.PERCHED[subject.kind])
            if target.kind in ("bench", "chair", "horse", "bicycle", "boat"):
                preposition = "on"
        action = self.common(actors, "action")
        if action and self._chance(0.6) and (i, "riding", j) not in self.scene.relations:
            forms = self._verb(i, action)
            if forms[1] and " the " not in forms[0]:
                for actor in actors:
                    self.say(actor, "action", action, forms[0])
                participle, third, plural = (f"{form} {preposition}" for form in forms)
                return participle, third, plural
        return preposition, "", ""

    def _forms(self, options: str) -> tuple[str, str, str]:
        participle, third, plural = self._word(options).split("|")
        return participle, third, plural

    def _verb(self, i: int, action: str) -> tuple[str, str, str]:
        kind = self._kind(i)
        table = words.VERBS[action]
        return self._forms(", ".join(table[key] for key in (GROUP_OF[kind], kind) if key in table))

    def phrase(
        self, members: tuple[int, ...], concept: str, attributes: int, doing: str = ""
    ) -> str:
        """A noun phrase for one thing, or for several of one sort; adds their nodes."""
        many = len(members) > 1
        facts = self.choose_facts(members, attributes)
        noun, adjectives, tail, worn, word_of = self.dress(members, concept, facts, doing)
        adjectives += [doing] if doing else []
        text = " ".join([*adjectives, noun])
        again = text in self.named or (not adjectives and any(n.noun == noun for n in self.nodes))
        self.named.add(text)
        for i in members:
            self.node_of[i] = len(self.nodes)
            entries = tuple((name, value, word_of[name]) for name, value in sorted(facts))
            self.nodes.append(Node(concept, frozenset(facts), noun, entries, worn))
        if many:
            return f"{self._word(words.NUMBERS[len(members)])} {text}{tail}"
        if noun == "someone":
            return f"{noun}{tail}"
        return f"{'another ' + text if again else with_article(text)}{tail}"

    def dress(
        self, members: tuple[int, ...], concept: str, facts: Sequence[Fact], doing: str
    ) -> tuple[str, list[str], str, tuple[str, ...], dict[str, str]]:
        """(noun, adjectives before it, what follows it, garment, word of each fact)."""
        many = len(members) > 1
        options = [n for n in words.NOUNS[concept] if not (many and n.endswith("/"))]
        used = {node.noun for node in self.nodes}
        if doing or any(name == "size" for name, _ in facts) or "someone" in used:
            options = [n for n in options if not n.startswith("someone")]
        usual = self._chance(0.5)
        singular, plural = (options[0] if usual else self._pick(options)).split("/")
        noun = plural if many else singular
        word_of = {name: self._fact_word(concept, name, value) for name, value in facts}
        plain = word_of.get("pattern") == "plain"
        names = ("pattern", "colour") if plain else ("colour", "pattern")
        looks = [word_of[name] for name in names if name in word_of]
        size = [word_of["size"]] if "size" in word_of else []
        if not looks or GROUP_OF[self._kind(members[0])] != "person":
            return noun, size + looks, "", (), word_of
        garment = self._word(words.GARMENTS[self._kind(members[0])], " ")
        worn = ("wearing" if self._chance(0.35) else "in", garment)
        if many:
            garments = garment + ("es" if garment.endswith("s") else "s")
            tail = f" {worn[0]} {' '.join(looks)} {garments}"
        else:
            tail = f" {worn[0]} {with_article(' '.join([*looks, garment]))}"
        return noun, size, tail, worn, word_of

    def _fact_word(self, concept: str, name: str, value: str) -> str:
        if name != "size":
            table = words.COLOUR_WORDS if name == "colour" else words.PATTERN_WORDS
            return self._word(table[value], " ")
        tall = value == "large" and concept in words.TALL
        options = words.SIZE_WORDS[value].split() + (["tall", "tall"] if tall else [])
        person = CONCEPTS[concept] <= CONCEPTS["person"]
        return pick(self.rng, [w for w in options if w != "huge" or not person])

    def choose_facts(self, members: tuple[int, ...], attributes: int) -> list[Fact]:
        """Up to `attributes` facts that hold of all members and that one would mention."""
        weights: dict[Fact, float] = {}
        kinds = {self._kind(i) for i in members}
        garments = {words.GARMENTS.get(kind) for kind in kinds}
        colour, pattern, size = (self.common(members, n) for n in ("colour", "pattern", "size"))
        if len(garments) == 1:  # people of one dress, or not people
            if colour and self.scene.style != "black and white":  # no colour to be seen there
                weights["colour", colour] = 3.0
            if pattern and (pattern != "plain" or self._chance(0.06)):
                weights["pattern", pattern] = 2.0
        if size and (size != "medium" or self._chance(0.06)):
            weights["size", size] = 1.5
        chosen: list[Fact] = []
        while weights and len(chosen) < attributes:
            chosen.append(pick_weighted(self.rng, weights))
            del weights[chosen[-1]]
        return chosen

    # --- The scene ---

    def _kind(self, i: int) -> str:
        return self.scene.things[i].kind

    def _concept(self, i: int) -> str:
        kind = self._kind(i)
        return pick(self.rng, words.WIDER[kind]) if self._chance(self.widen) else kind

    def common(self, members: Sequence[int], name: str) -> str | None:
        """The value of an attribute that all members share, or None."""
        values = {getattr(self.scene.things[i], name) for i in members}
        return values.pop() if len(values) == 1 else None

    def _aloft(self, i: int) -> bool:
        item = self.scene.things[i]
        return item.lift > 0 or item.action in ("flying", "floating") or item.kind == "boat"

    def relate(self, edge: tuple[int, str, int], text: str, passive: bool = False) -> None:
        """Add a relation to the graph, between the nodes of two things that have been named."""
        i, relation, j = edge
        self.edges.append(Edge(self.node_of[i], relation, self.node_of[j], text, passive))

    def say(self, i: int, name: str, value: str, word: str) -> None:
        """Add a fact to the node of thing i."""
        at = self.node_of[i]
        node = self.nodes[at]
        self.nodes[at] = replace(
            node, facts=node.facts | {(name, value)}, words=(*node.words, (name, value, word))
        )


class Lister(Writer):
    """Lists two or three things (all, where there are fewer) with their colours, and no more.

    The things are of different kinds. form: names of what else it does. "complete": list all
    things; "relations": say in half of the captions how two of them are related, where they are,
    and name the others, or now and then a third thing, before; "synonyms": for things and colours;
    "omissions": leave out half of the colours; "grammar": write sentences instead of lists.
    """

    def caption(self, detail: int) -> Caption:
        """A list, or a sentence of this detail."""
        if "grammar" in self.form:
            return super().caption(detail)
        order = [int(i) for i in self.rng.permutation(len(self.scene.things))]
        more = len(order) if "complete" in self.form else int(self.rng.random() < 0.35)
        weights = {e: weight for e, weight in _weights(self.scene.relations).items() if weight}
        if "relations" in self.form and weights and self.rng.random() < 0.5:
            i, relation, j = pick_weighted(self.rng, weights)
            others = [k for k in order if k not in (i, j)][:more]
            phrases = [self.phrase((k,), self._concept(k), attributes=1) for k in others]
            pair = self.pair((i, relation, j), {i, j}, attributes=1, lists=False)
            text = " and ".join([*phrases, pair.bare])
        else:
            named = order[: 2 + more]
            text = _enumeration([self.phrase((k,), self._concept(k), 1) for k in named])
        return Caption(text, CaptionGraph(tuple(self.nodes), tuple(self.edges)))

    def _chance(self, p: float) -> bool:
        return super()._chance(p) if "grammar" in self.form else p > 0.5

    def _pick(self, options: Sequence[str]) -> str:
        return super()._pick(options) if "synonyms" in self.form else options[0]

    def choose_facts(self, members: tuple[int, ...], attributes: int) -> list[Fact]:
        """The colour, where the form does not leave it out."""
        colour = self.common(members, "colour")
        omitted = "omissions" in self.form and self.rng.random() < 0.5
        return [("colour", colour)] if colour and not omitted else []


@lru_cache(256)
def _weights(relations: tuple[tuple[int, str, int], ...]) -> dict[tuple[int, str, int], float]:
    """How much one would mention each relation; 0 where a closer one says it better."""
    close = {frozenset((i, j)) for i, r, j in relations if r in ("on", "under", *ACTION_RELATIONS)}
    weights = {}
    for i, relation, j in relations:
        loose = relation in ("near", "left of", "right of", "in front of")
        converse = relation == "under" and (j, "on", i) in relations
        better = converse or (loose and {i, j} in close)
        weights[i, relation, j] = 0.0 if better else words.MENTION.get(relation, 0.4)
    return weights


@lru_cache(256)
def _sorts(kinds: tuple[str, ...]) -> list[tuple[tuple[int, ...], str]]:
    """All sets of two or more things of one sort, with its concept, by the concept's name."""
    concepts = sorted({name for kind in kinds for name in (kind, *words.WIDER[kind])})
    members = [tuple(i for i, kind in enumerate(kinds) if kind in CONCEPTS[c]) for c in concepts]
    return [pair for pair in zip(members, concepts, strict=True) if len(pair[0]) > 1]


def _enumeration(phrases: Sequence[str]) -> str:
    """ "a dog, a cat and two balls"."""
    return " and ".join([", ".join(phrases[:-1]), phrases[-1]] if phrases[1:] else phrases)
