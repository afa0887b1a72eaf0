"""Dependency trees as the rules read them, with Universal Dependencies' labels.

In the trees of `tree_of` content words are heads, prepositions hang on their nouns and may have
several words ("in front of"), words with hyphens are one, and all conjuncts hang on the first one.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mmlib.core.paths import table_beside
from mmlib.core.records import canonical

if TYPE_CHECKING:
    from spacy.tokens import Doc

_lists = table_beside(__file__)
BESIDE: dict[str, str] = _lists.pop("beside")
WORDS: dict[str, frozenset[str]] = {name: frozenset(v.split()) for name, v in _lists.items()}
RECIPROCAL = frozenset(("each other", "one another"))
SUBJECT = frozenset("nsubj nsubj:pass nsubj:outer".split())
OBLIQUE = frozenset("obl nmod".split())
IN_LABEL = frozenset("compound flat flat:foreign nmod:desc goeswith".split())


class Tree:
    """A dependency tree with Universal Dependencies' labels, lower-cased.

    words, pos, head (-1: root), role: one entry a token. kids: the children of each token.
    prep: token -> the words of its preposition, where these are more than its `case` children.
    """

    def __init__(self, words: list[str], pos: list[str], head: list[int], role: list[str]):
        self.words, self.pos, self.head, self.role = words, pos, head, role
        self.prep: dict[int, str] = {}
        self.kids: list[list[int]] = []

    def __len__(self) -> int:
        return len(self.words)

    def link(self) -> None:
        """Set `kids` by `head`."""
        self.kids = [[] for _ in self.words]
        for i, h in enumerate(self.head):
            if h >= 0:
                self.kids[h].append(i)

    def children(self, i: int, *roles: str) -> list[int]:
        """The children of i that have one of these roles."""
        return [k for k in self.kids[i] if self.role[k] in roles]

    def first_conjunct(self, i: int) -> int:
        """The first of the conjuncts to which i belongs; i itself where it is none."""
        return self.head[i] if self.role[i] == "conj" else i

    def above(self, i: int) -> Iterator[int]:
        """The head of i, its head, and so on."""
        while (i := self.head[i]) >= 0:
            yield i

    def is_sound(self) -> bool:
        """Whether no token is above itself."""
        sound = {-1}
        for i in range(len(self)):
            path = []
            while i not in sound and i not in path:
                path.append(i)
                i = self.head[i]
            if i in path:
                return False
            sound.update(path)
        return True


def tree_of(doc: "Doc") -> Tree:
    """A parsed text as a Tree, without white space. Raises ValueError if it is not parsed."""
    from spacy.attrs import DEP, HEAD, POS, SPACY

    if len(doc) and not (doc.has_annotation("DEP") and doc.has_annotation("POS")):
        raise ValueError("the text has no dependency tree: the pipeline needs a tagger and parser")
    away, dep, pos, spaced = doc.to_array([HEAD, DEP, POS, SPACY]).T if len(doc) else ([],) * 4
    name = doc.vocab.strings
    tree = Tree(
        [token.text if token.text in "—―" else canonical(token.text).lower() for token in doc],
        [name[int(code)] for code in pos],
        [i + d if d else -1 for i, d in enumerate(np.asarray(away).astype("int64").tolist())],
        [name[int(code)].lower() for code in dep],
    )
    _join_hyphens(tree, _without_white_space(tree, spaced))
    _join_reciprocals(tree)
    _lift_adverbs(tree)
    _join_prepositions(tree)
    _flatten_conjunctions(tree)
    tree.link()
    _mend_nouns(tree)
    tree.link()
    _turn_inversions(tree)
    _mend_showing(tree)
    _mend_clothes(tree)
    tree.link()
    return tree


def _without_white_space(tree: Tree, spaced: Sequence[int]) -> list[bool]:
    """Take tokens of white space out; returns whether one, or a blank, follows each other token.

    spaced: whether a blank follows each token.
    """
    white = [not word for word in tree.words]
    kept = [i for i, out in enumerate(white) if not out]
    if len(kept) < len(tree):
        number = {-1: -1} | {i: n for n, i in enumerate(kept)}
        above = [next((h for h in tree.above(i) if not white[h]), -1) for i in kept]
        tree.head = [number[h] for h in above]
        for column in (tree.words, tree.pos, tree.role):
            column[:] = [column[i] for i in kept]
    return [bool(spaced[i]) or any(white[i + 1 : i + 2]) for i in kept]


def _join_hyphens(tree: Tree, spaced: list[bool]) -> None:
    """Make "salmon-colored", which tokenizers cut in three, one word again."""
    words = tree.words
    hyphens = [
        i
        for i in range(1, len(words) - 1)
        if words[i] == "-" and not spaced[i - 1] and not spaced[i]
    ]
    while hyphens:
        first = last = hyphens.pop(0)
        while hyphens and hyphens[0] == last + 2:
            last = hyphens.pop(0)
        _merge(tree, range(first - 1, last + 2), "")


def _join_reciprocals(tree: Tree) -> None:
    """Make "each other" and "one another" one word, a pronoun."""
    words = tree.words
    for i in range(len(tree) - 1):
        if f"{words[i]} {words[i + 1]}" in RECIPROCAL:
            core = _merge(tree, range(i, i + 2), " ")
            tree.pos[core] = "PRON"


def _merge(tree: Tree, span: range, blank: str) -> int:
    """Make the words of `span` one word; returns which token has it."""
    top = [i for i in span if not any(h in span for h in tree.above(i))]
    core = max(top, key=lambda i: (tree.role[i] != "punct", i))
    word = blank.join(tree.words[i] for i in span)
    for i, h in enumerate(tree.head):
        if h in span and i not in span:
            tree.head[i] = core
    for i in span:
        if i != core:
            tree.head[i], tree.role[i], tree.words[i], tree.pos[i] = core, "punct", "", "PUNCT"
    tree.words[core] = word
    return core


def _lift_adverbs(tree: Tree) -> None:
    """ "Deep in the woods": the phrase hangs on what the adverb hangs on."""
    for i in range(len(tree)):
        h = tree.head[i]
        if h >= 0 and tree.role[i] in OBLIQUE and tree.pos[h] in ("ADV", "ADP"):
            if tree.role[h] in ("advmod", "case", "compound:prt") and tree.words[h] not in BESIDE:
                tree.head[i] = tree.head[h] if tree.head[h] != i else h


def _join_prepositions(tree: Tree) -> None:
    """Make "in front of", "to the left of" and "next to" the preposition of what follows."""
    words = tree.words
    for k in range(len(tree) - 1):
        after = words[k + 1]
        if after not in ("of", "to", "from", "with"):
            continue
        start = k + 1
        if words[k] in WORDS["places"] and after == "of":
            start = _preposition_before(tree, k)
        if start > k and BESIDE.get(words[k]) == after:
            start = k - (k > 0 and words[k - 1] == "not")
        if start <= k:
            noun = _noun_after(tree, k + 1)
            if noun >= 0:
                before = tree.head[:], tree.role[:]
                _absorb(tree, range(start, k + 2), k, noun)
                if tree.is_sound():
                    tree.prep[noun] = " ".join(words[start : k + 2])
                else:  # a wrong parse may lead there
                    tree.head, tree.role = before


def _preposition_before(tree: Tree, k: int) -> int:
    """Where the preposition of "on the other side" starts; k + 1 if there is none."""
    j = k - 1
    while j >= max(0, k - 3) and tree.words[j] not in WORDS["before_places"]:
        if (
            tree.pos[j] not in ("DET", "ADJ", "PRON", "NUM")
            and tree.words[j] not in WORDS["places"]
        ):
            return k + 1
        j -= 1
    return j if j >= 0 and tree.words[j] in WORDS["before_places"] else k + 1


def _noun_after(tree: Tree, p: int) -> int:
    """The noun that the preposition at p belongs to, or -1."""
    h = tree.head[p]
    if h > p and tree.pos[h] in ("NOUN", "PROPN", "PRON", "NUM", "DET"):
        return h
    for i in range(p + 1, len(tree)):
        if tree.pos[i] in ("NOUN", "PROPN") and tree.role[i] not in IN_LABEL:
            return i
        if tree.pos[i] in ("VERB", "ADP", "PUNCT", "AUX"):
            return -1
    return -1


def _absorb(tree: Tree, span: range, k: int, noun: int) -> None:
    """Make the words of `span` the preposition of `noun`, which takes the place of word k."""
    head, role = tree.head, tree.role
    if k in tree.above(noun):
        top = next((h for h in tree.above(k) if h not in span), -1)
        if top != noun:
            clause = role[k] in ("root", "conj", "advcl", "acl:relcl", "ccomp", "parataxis")
            on_noun = top >= 0 and tree.pos[top] in ("NOUN", "PROPN", "PRON")
            modifier = "nmod" if on_noun else "obl"
            head[noun], role[noun] = top, role[k] if clause or top < 0 else modifier
    elif head[noun] in span:
        head[noun] = next((h for h in tree.above(noun) if h not in span), -1)
        role[noun] = "obl"
    above = head[noun] if head[noun] >= 0 else noun
    for i, h in enumerate(head):
        if h in span and i not in span and i != noun:
            head[i] = noun if i < noun or above in span else above
            if role[noun] == "root" and i < k and role[i] == "obl:unmarked":
                role[i] = "nsubj"  # "a child next to a box" read as a sentence
    for i in span:
        head[i], role[i] = noun, "case"


def _flatten_conjunctions(tree: Tree) -> None:
    """Hang all conjuncts on the first one, also where each hangs on the one before it."""
    head, role = tree.head, tree.role
    for i in range(len(tree)):
        while role[i] == "conj" and role[head[i]] == "conj" and head[head[i]] >= 0:
            if _nominal(tree, i) != _nominal(tree, head[head[i]]):
                break
            head[i] = head[head[i]]


def _mend_nouns(tree: Tree) -> None:
    """ "Of" after a noun belongs to it; "neighbors shaking hands" is no pair of nouns."""
    head, role, pos = tree.head, tree.role, tree.pos
    for i in range(len(tree)):
        case = tree.children(i, "case")
        if len(case) == 1 and tree.words[case[0]] == "of" and role[i] in ("obl", "nsubj"):
            before = case[0] - 1
            if before >= 0 and pos[before] == "NOUN" and i not in tree.above(before):
                head[i], role[i] = before, "nmod"
        verbs = [k for k in tree.children(i, "amod") if k - 1 == head[i]]
        if role[i] == "nmod" and not case and verbs and pos[verbs[0]] == "VERB":
            head[verbs[0]], role[verbs[0]] = head[i], "acl"
            head[i], role[i] = verbs[0], "obj"


def _turn_inversions(tree: Tree) -> None:
    """ "On the roof sits a pigeon": a noun with a preposition is no subject, the other one is."""
    role = tree.role
    for verb in [i for i in range(len(tree)) if tree.pos[i] == "VERB"]:
        before = [k for k in tree.children(verb, "nsubj", "obl") if k < verb]
        places = [k for k in before if any(c < k for c in tree.children(k, "case"))]
        if places and not set(tree.children(verb, *SUBJECT)) - set(places):
            for k in places:
                role[k] = "obl"
            for k in tree.children(verb, "obj"):
                if k > verb:
                    role[k] = "nsubj"


def _mend_showing(tree: Tree) -> None:
    """ "We see a lorry next to a cactus": the phrase says where the lorry is, not who sees it."""
    for verb in [i for i, word in enumerate(tree.words) if word in WORDS["showing"]]:
        shown = tree.children(verb, "obj")
        shown += [c for k in shown for c in tree.children(k, "conj")]
        for k in tree.children(verb, "obl"):
            if before := [i for i in shown if i < k]:
                tree.head[k], tree.role[k] = max(before), "nmod"
    for picture in [i for i, word in enumerate(tree.words) if word in WORDS["pictures"]]:
        shown = [k for k in tree.children(picture, "nmod") if k > picture][:1]
        for k in tree.children(picture, "nmod", "obl", "acl"):  # "photo of a man next to a duck"
            if shown and k > shown[0]:
                tree.head[k] = shown[0]


def _mend_clothes(tree: Tree) -> None:
    """Clothes belong to the nearest person before them, and other things are not worn.

    Parsers hang "in a red shirt" and "wearing a hat" on anything. Only what is hung on something
    that is no person, or on one that is farther away, is moved.
    """
    head, role = tree.head, tree.role
    for i in [
        i
        for i, word in enumerate(tree.words)
        if word in WORDS["clothes"] and role[i] not in IN_LABEL
    ]:
        case = tree.children(i, "case")
        verb = head[i] if role[i] == "obj" and tree.words[head[i]] == "wearing" else -1
        start = case[0] if case and tree.words[case[0]] == "in" and role[i] in OBLIQUE else verb
        if start < 0:
            continue
        person = _person_before(tree, start)
        if person < 0:
            continue
        moved = i if case else verb
        subject = tree.children(head[moved], *SUBJECT) if head[moved] >= 0 else []
        if person in (head[moved], *subject) or i in tree.above(person):
            pass
        elif case or role[verb] in ("acl", "conj", "advcl", "xcomp"):
            if moved not in tree.above(person) and not tree.words[head[moved]].startswith("dress"):
                head[moved], role[moved] = person, "nmod" if case else "acl"
        for k in tree.children(i, "conj"):  # "in a red shirt and a dog"
            if tree.words[k] not in WORDS["clothes"] and tree.children(k, "det", "nummod"):
                if k not in tree.above(person):
                    head[k] = tree.first_conjunct(person)


def _person_before(tree: Tree, i: int) -> int:
    """The nearest person before token i, or -1."""
    people = [
        k for k in range(i) if tree.words[k] in WORDS["people"] and tree.role[k] not in IN_LABEL
    ]
    return people[-1] if people else -1


def _nominal(tree: Tree, i: int) -> bool:
    return tree.pos[i] in ("NOUN", "PROPN", "PRON", "NUM")
