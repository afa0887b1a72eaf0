"""Tier controlled: made-up regions, and families of pictures that only structure tells apart.

Nothing is drawn. A region is the sum of a vector of a thing's kind and one of its colour, and of
noise. The four pictures of a family have the same things and the same colours; which thing has
which colour differs. A caption names some of the things with their colours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.random import Generator
from PIL import Image

from mmlib import scenegraph
from mmlib.core.paths import table_beside
from mmlib.core.records import CaptionedImages
from mmlib.features.text import Vocabulary, tokenize
from mmlib.papers.cora.data.texts import DELIMITERS, Captions, Reader
from mmlib.papers.cora.data.world import FAMILY, oracle_scores
from mmlib.papers.cora.run.batches import Arrays, Split
from mmlib.papers.cora.run.systems import CONTROLLED, SPLITS
from mmlib.world import Clarity

_WORDS = table_beside(__file__)
WIDTH, WORD_WIDTH = 32, 64  # of regions and of word vectors
REGIONS, CAPTIONS = 8, 5  # of each picture
FAMILIES = {"val": 50, "test": 100}
PARTS = 3  # of kinds and of colours, where some pairs stay unseen

Fact = tuple[str, ...]  # (kind,), (colour, kind) or (kind, relation, kind)


@dataclass(frozen=True)
class Dials:
    """What decides how hard a controlled collection is.

    kinds, colours: how many there are (or, of structure "relations", kinds and relations).
    families: training pictures by four. objects: in a picture, at least 4, of which a caption
    names `named`. described: the share of these whose colour the caption gives. Of four
    things, two kinds and two colours often fit one picture alone, without who has which: a bag of
    words can be right in 83 %. With three named it can be right in all, with four by chance alone.
    structure: a family differs in which thing has which "colours", or in who is the subject of two
    "relations" and who the object. noise: deviation of what is added to each region, beside
    kinds and colours with deviation 1. mixing: how far regions leak into each other, 0 not at all.
    unseen: a third of the pairs of kind and colour is in no training picture, and the second half
    of the test pictures shows nothing but such pairs.
    Raises ValueError for what no family could be made of.
    """

    kinds: int = 40
    colours: int = 12
    families: int = 400
    objects: int = 4
    named: int = 2
    described: float = 1.0
    structure: Literal["colours", "relations"] = "colours"
    noise: float = 0.3
    mixing: float = 0.0
    unseen: bool = False

    def __post_init__(self) -> None:
        pieces = PARTS if self.unseen else 1
        problems = {
            "kinds": not self.objects * pieces <= self.kinds <= len(_WORDS["kinds"]),
            "colours": not self.objects * pieces <= self.colours <= len(_WORDS["colours"]),
            "objects": not FAMILY <= self.objects <= REGIONS,
            "named": not 1 <= self.named <= self.objects,
            "described": not 0 <= self.described <= 1,
            "families": self.families < 1,
            "noise": not self.noise >= 0,
            "mixing": not self.mixing >= 0,
            "structure": self.structure == "relations" and (self.objects, self.named) != (4, 4),
        }
        if wrong := [name for name, is_wrong in problems.items() if is_wrong]:
            raise ValueError(f"no family can be made with {wrong[0]} = {getattr(self, wrong[0])!r}")


# Of each collection on record its dials, or of a drawn one what is clear in it.
RECORDED: dict[str, Dials | Clarity] = {
    name: Clarity(**dict.fromkeys(dials["drawn"], True))
    if "drawn" in dials
    else Dials(**{dial: value for dial, value in dials.items() if dial != "longer"})
    for name, dials in CONTROLLED.items()
}


@dataclass(frozen=True)
class ControlledImages(CaptionedImages):
    """Made-up pictures; facts: what each shows; said: the facts of each of its captions."""

    facts: tuple[frozenset[Fact], ...] = ()
    said: tuple[tuple[frozenset[Fact], ...], ...] = ()


def load(dials: Dials, seed: int = 0) -> Captions:
    """A collection, with the graphs that its captions were written from."""
    vectors = np.random.default_rng([seed, len(SPLITS)])
    count = 2 * dials.colours if dials.structure == "relations" else dials.colours
    appearance = [vectors.normal(size=(n, WIDTH)) for n in (dials.kinds, count)]
    images, graphs = {}, {}
    for i, name in enumerate(SPLITS):
        rng = np.random.default_rng([seed, i])
        families = FAMILIES.get(name, dials.families)
        features, facts, entries = [], [], []
        for family in range(families):
            kinds, looks = _family(dials, name == "test" and family >= families // 2, rng)
            for of_picture in looks:
                features.append(_regions(dials, appearance, kinds, of_picture, rng))
                shown = _facts(dials, kinds, of_picture)
                things = {(thing,) for fact in shown for thing in _things(fact)}
                facts.append(frozenset({*shown, *things}))
                entries.append([_caption(dials, shown, rng) for _ in range(CAPTIONS)])
        images[name] = ControlledImages(
            "controlled", name,
            ids=tuple(f"{name} {i}" for i in range(len(features))),
            captions=tuple(tuple(entry["caption"] for entry in group) for group in entries),
            features=np.array(features, dtype=np.float32),
            open_image=_no_picture,
            facts=tuple(facts),
            said=tuple(tuple(entry["facts"] for entry in group) for group in entries),
        )  # fmt: skip
        graphs[name] = [scenegraph.from_authors(entry) for group in entries for entry in group]
    return Captions(images, graphs)


def _family(dials: Dials, unseen: bool, rng: Generator) -> tuple[np.ndarray, np.ndarray]:
    """The kinds (things,) of a family, and how they look in each picture, (FAMILY, things)."""
    kinds, colours = np.arange(dials.kinds), np.arange(dials.colours)
    if dials.unseen:  # kinds of one part, colours of the same or of one of the others
        part = rng.integers(PARTS)
        kinds = kinds[kinds % PARTS == part]
        colours = colours[(colours % PARTS == part) == unseen]
    kinds = rng.choice(kinds, dials.objects, replace=False)
    if dials.structure == "relations":  # who of each of two pairs is the subject
        relation = rng.choice(colours, 2, replace=False)
        first = np.array([[t % 2, t // 2] for t in range(FAMILY)])
        looks = 2 * relation[:, None] + np.stack([first, 1 - first], axis=2)
        return kinds, looks.reshape(FAMILY, -1)
    colours = rng.choice(colours, dials.objects, replace=False)
    return kinds, np.stack([np.roll(colours, t) for t in range(FAMILY)])


def _regions(
    dials: Dials, appearance: Sequence[np.ndarray], kinds: np.ndarray, looks: np.ndarray,
    rng: Generator,
) -> np.ndarray:  # fmt: skip
    """The regions (REGIONS, WIDTH) of a picture in random order; some show nothing."""
    regions = 0.5 * rng.normal(size=(REGIONS, WIDTH))
    regions[: len(kinds)] = appearance[0][kinds] + appearance[1][looks]
    leak = np.eye(REGIONS) + dials.mixing * rng.random((REGIONS, REGIONS))
    regions = leak / np.linalg.norm(leak, axis=1, keepdims=True) @ regions
    noise = dials.noise * rng.normal(size=regions.shape)
    return regions[rng.permutation(REGIONS)] + noise


def _facts(dials: Dials, kinds: np.ndarray, looks: np.ndarray) -> list[Fact]:
    """What a picture shows: a fact a thing, or a fact a relation."""
    names = [_WORDS["kinds"][kind] for kind in kinds]
    if dials.structure == "colours":
        return [(_WORDS["colours"][c], name) for c, name in zip(looks, names, strict=True)]
    pairs: list[Fact] = []
    for a in range(0, len(kinds), 2):
        subject, object_ = (a, a + 1) if looks[a] % 2 == 0 else (a + 1, a)
        pairs.append((names[subject], _WORDS["relations"][looks[a] // 2], names[object_]))
    return pairs


def _caption(dials: Dials, shown: Sequence[Fact], rng: Generator) -> dict[str, Any]:
    """A caption in the authors' form of a scene graph, and the "facts" that it tells."""
    related = dials.structure == "relations"
    count = len(shown) if related else dials.named
    chosen = [shown[i] for i in rng.permutation(len(shown))[:count]]
    whole = rng.random(count) < dials.described
    facts = [f if related or all_ else f[1:] for f, all_ in zip(chosen, whole, strict=True)]
    entities: list[dict[str, Any]] = []
    relations: list[list[Any]] = []
    sentences = []
    for fact in facts:
        first = len(entities)
        looks = [["", fact[0], []]] if len(fact) == 2 else []
        entities += [
            {"id": i, "name": name, "attributes": looks}
            for i, name in enumerate(_things(fact), first)
        ]
        if related:
            relations.append([first, first + 1, [fact[1]], ""])
        words = (*fact[:2], "a", fact[2]) if related else fact  # "a ball pushing a cup"
        sentences.append(" ".join(("an" if words[0] == "orange" else "a", *words)))
    return {
        "caption": " and ".join(sentences), "entities": entities, "relations": relations,
        "facts": frozenset(facts),
    }  # fmt: skip


def _things(fact: Fact) -> tuple[str, ...]:
    """The kinds of the things that a fact is about."""
    return fact[::2] if len(fact) == 3 else fact[-1:]


def _no_picture(row: int) -> Image.Image:
    raise ValueError("controlled pictures are not drawn: they are regions alone")


def arrays(collection: Captions, seed: int = 0) -> Arrays:
    """A controlled collection as arrays; word vectors are random, so that words share nothing.

    truth: scores of the oracle that knows what is true of which picture.
    """
    tokens = [tokenize(caption) for caption in collection.captions("train")]
    words = Vocabulary.from_sentences(tokens, min_count=1).words
    vocabulary = (*words[:2], *DELIMITERS, *words[2:])
    rng = np.random.default_rng([seed, len(SPLITS) + 1])
    reader = Reader(vocabulary, delimiters=False)
    splits = {
        name: Split(
            images.features,
            collection.image_of(name),
            {"graph": reader.graphs(collection.graphs[name]),
             "sequence": reader.sequences(collection.captions(name))},
        )
        for name, images in collection.images.items()
    }  # fmt: skip
    embeddings = rng.normal(size=(len(vocabulary), WORD_WIDTH)).astype(np.float32)
    test = collection.images["test"]
    assert isinstance(test, ControlledImages)
    said = [facts for group in test.said for facts in group]
    holds = np.array([[facts <= shown for facts in said] for shown in test.facts])
    return Arrays(splits, embeddings, vocabulary, oracle_scores({"graph": holds}), family=FAMILY)
