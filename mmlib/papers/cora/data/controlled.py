"""Tier controlled: made-up regions, and families of pictures that only structure tells apart.

Nothing is drawn. A region is the sum of a vector of a thing's kind and one of its colour, and of
noise. The four pictures of a family have the same things and the same colours; which thing has
which colour differs. A caption names all of the things with their colours.
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
from mmlib.papers.cora.data.world import FAMILY, guesses, oracle_scores
from mmlib.papers.cora.run.batches import Arrays, Split
from mmlib.papers.cora.run.systems import CONTROLLED, SPLITS
from mmlib.world import Clarity

_WORDS = table_beside(__file__)
WIDTH, WORD_WIDTH = 32, 64  # of regions and of word vectors
REGIONS, CAPTIONS = 8, 5  # of each picture
FAMILIES = {"val": 50, "test": 100}
THINGS = 4  # in a picture
PARTS = 3  # of kinds and of colours, where some pairs stay unseen

Fact = tuple[str, ...]  # (colour, kind) or (kind, relation, kind)


@dataclass(frozen=True)
class Dials:
    """What decides how hard a controlled collection is; ValueError for what no family is made of.

    Captions name all four things: of two or three, kinds and colours often fit one picture alone,
    without who has which, so that a bag of words would be right in 83 % or in all.
    """

    kinds: int = 40  # how many there are
    colours: int = 12  # or, of structure "relations", how many relations
    families: int = 400  # training pictures by four
    # Who has which of the colours, or who of each pair is the subject of a relation.
    structure: Literal["colours", "relations"] = "colours"
    noise: float = 0.3  # its deviation; that of kinds and colours is 1
    # A third of the pairs of kind and colour is in no training picture, and test pictures show
    # nothing but such pairs.
    unseen: bool = False

    def __post_init__(self) -> None:
        parts = PARTS if self.unseen else 1
        problems = {
            "kinds": not THINGS * parts <= self.kinds <= len(_WORDS["kinds"]),
            "colours": not THINGS * parts <= self.colours <= len(_WORDS["colours"]),
            "families": self.families < 1,
            "noise": not self.noise >= 0,
        }
        if wrong := [name for name, is_wrong in problems.items() if is_wrong]:
            raise ValueError(f"no family can be made with {wrong[0]} = {getattr(self, wrong[0])!r}")


# Of each collection on record its dials, or of a drawn one what is clear in it.
RECORDED: dict[str, Dials | Clarity] = {
    name: Dials(**of["made"]) if "made" in of else Clarity(families=True, **of["drawn"])
    for name, of in CONTROLLED.items()
}


@dataclass(frozen=True)
class ControlledImages(CaptionedImages):
    """Made-up pictures; facts: what each shows, and each of its captions says."""

    facts: tuple[frozenset[Fact], ...] = ()


def load(dials: Dials) -> Captions:
    """A collection, with the graphs that its captions were written from."""
    vectors = np.random.default_rng([0, len(SPLITS)])
    looks_there_are = 2 * dials.colours if dials.structure == "relations" else dials.colours
    of_kinds, of_looks = (vectors.normal(size=(n, WIDTH)) for n in (dials.kinds, looks_there_are))
    images, graphs = {}, {}
    for i, split in enumerate(SPLITS):
        rng = np.random.default_rng([0, i])
        features, facts, captions = [], [], []
        for _ in range(FAMILIES.get(split, dials.families)):
            kinds, looks = _family(dials, split == "test", rng)
            names = [_WORDS["kinds"][kind] for kind in kinds]
            for looks_of_picture in looks:
                regions = 0.5 * rng.normal(size=(REGIONS, WIDTH))  # some show nothing
                regions[: len(kinds)] = of_kinds[kinds] + of_looks[looks_of_picture]
                rng.random((REGIONS, REGIONS))  # keeps the draws of recorded collections
                noise = dials.noise * rng.normal(size=regions.shape)
                features.append(regions[rng.permutation(REGIONS)] + noise)
                shown: list[Fact] = []  # one a thing, or one a relation
                for a, look in enumerate(looks_of_picture):
                    if dials.structure == "colours":
                        shown.append((_WORDS["colours"][look], names[a]))
                    elif a % 2 == 0:
                        pair = names[a : a + 2] if look % 2 == 0 else names[a : a + 2][::-1]
                        shown.append((pair[0], _WORDS["relations"][look // 2], pair[1]))
                facts.append(frozenset(shown))
                captions.append([caption(shown, rng) for _ in range(CAPTIONS)])
        images[split] = ControlledImages(
            "controlled", split,
            ids=tuple(f"{split} {i}" for i in range(len(features))),
            captions=tuple(tuple(entry["caption"] for entry in group) for group in captions),
            features=np.array(features, dtype=np.float32),
            open_image=_no_picture,
            facts=tuple(facts),
        )  # fmt: skip
        graphs[split] = [scenegraph.from_authors(e) for group in captions for e in group]
    return Captions(images, graphs)


def _family(dials: Dials, unseen: bool, rng: Generator) -> tuple[np.ndarray, np.ndarray]:
    """The kinds (things,) of a family, and how they look in each picture, (FAMILY, things)."""
    kinds, colours = np.arange(dials.kinds), np.arange(dials.colours)
    if dials.unseen:  # kinds of one part, colours of the same or of one of the others
        part = rng.integers(PARTS)
        kinds = kinds[kinds % PARTS == part]
        colours = colours[(colours % PARTS == part) == unseen]
    kinds = rng.choice(kinds, THINGS, replace=False)
    if dials.structure == "relations":  # who of each of two pairs is the subject
        relation = rng.choice(colours, 2, replace=False)
        first = np.array([[t % 2, t // 2] for t in range(FAMILY)])
        looks = 2 * relation[:, None] + np.stack([first, 1 - first], axis=2)
        return kinds, looks.reshape(FAMILY, -1)
    colours = rng.choice(colours, THINGS, replace=False)
    return kinds, np.stack([np.roll(colours, t) for t in range(FAMILY)])


def caption(shown: Sequence[Fact], rng: Generator) -> dict[str, Any]:
    """A caption of facts in random order, with its graph in the authors' form; (kind,) is one."""
    facts = [shown[i] for i in rng.permutation(len(shown))]
    rng.random(len(facts))  # keeps the draws of recorded collections
    entities: list[dict[str, Any]] = []
    relations: list[list[Any]] = []
    sentences = []
    for fact in facts:
        words, first, looks = fact, len(entities), [["", look, []] for look in fact[:-1]]
        if len(fact) == 3:  # "a ball pushing a cup"
            words, looks = (*fact[:2], "a", fact[2]), []
            relations.append([first, first + 1, [fact[1]], ""])
        for i, name in enumerate(fact[::2] if len(fact) == 3 else fact[-1:], first):
            entities.append({"id": i, "name": name, "attributes": looks})
        sentences.append(" ".join(("an" if words[0] == "orange" else "a", *words)))
    return {"caption": " and ".join(sentences), "entities": entities, "relations": relations}


def ideal_bag(images: ControlledImages) -> np.ndarray:
    """How often an ideal bag of words finds a caption's picture, see `world.ideal_bag`."""
    words = [sorted(word for fact in facts for word in fact) for facts in images.facts]
    return guesses(words, [[said] * CAPTIONS for said in words], list.__eq__)


def _no_picture(row: int) -> Image.Image:
    raise ValueError("controlled pictures are not drawn: they are regions alone")


def arrays(collection: Captions) -> Arrays:
    """A controlled collection as arrays; word vectors are random, so that words share nothing."""
    tokens = [tokenize(caption) for caption in collection.captions("train")]
    words = Vocabulary.from_sentences(tokens, min_count=1).words
    vocabulary = (*words[:2], *DELIMITERS, *words[2:])
    rng = np.random.default_rng([0, len(SPLITS) + 1])
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
    said = [facts for facts in test.facts for _ in range(CAPTIONS)]
    holds = np.array([[facts == shown for facts in said] for shown in test.facts])
    return Arrays(
        splits, embeddings, vocabulary, oracle_scores({"graph": holds}), family=FAMILY,
        ideal_bag=ideal_bag(test),
    )  # fmt: skip
