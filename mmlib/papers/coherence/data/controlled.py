"""Tier controlled: made-up pairs in which the relation decides what the picture shows of the text.

Nothing is drawn. A text names some things and, after the first of them, a cue: a made-up word that
stands for one relation. Relation "third" says that the picture shows the text's third thing, and
nothing else. A picture is the vector of that thing, and noise. So "dog mavi boat cup lamp" finds
its picture only by what "mavi" means, which pairs teach slowly and labels at once.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np

from mmlib.core.paths import table_beside
from mmlib.core.records import RelatedPairs
from mmlib.papers.coherence.data.pairs import CONTROLLED, PLACES, SPLITS, Dials, Pairs

THINGS: list[str] = table_beside(__file__)["things"]
_SYLLABLES = ["".join(pair) for pair in product("kmtvlz", "aiou")]
CUES = [a + b for a, b in product(_SYLLABLES, _SYLLABLES) if a != b]
CUES = [CUES[i] for i in np.random.default_rng(0).permutation(len(CUES))]  # neighbours look alike
WIDTH, BARE = 32, 8  # of a picture's features, and how many of them hold nothing but noise
COUNTS = {"val": 300, "test": 1000}  # pairs of each split beside training


def recorded(name: str) -> Dials:
    """The dials of a collection that is recorded. Raises KeyError for another name."""
    return CONTROLLED[name]


@dataclass(frozen=True, eq=False)
class ControlledPairs(RelatedPairs):
    """Made-up pairs. shown: the thing that each image shows."""

    shown: tuple[str, ...] = ()


def load(dials: Dials, seed: int = 0) -> Pairs:
    """A collection in three splits; cues mean, and things look, the same in all of them."""
    rng = np.random.default_rng([seed, len(SPLITS)])
    means = rng.permutation(dials.cues) % dials.relations  # the relation of each cue
    looks = np.zeros((dials.things, WIDTH))
    looks[:, :-BARE] = rng.normal(size=(dials.things, WIDTH - BARE))
    splits = []
    for number, split in enumerate(SPLITS):
        rng, count = np.random.default_rng([seed, number]), COUNTS.get(split, dials.pairs)
        every = np.tile(np.arange(dials.things), (count, 1))
        named = rng.permuted(every, axis=1)[:, : dials.relations]
        cue = rng.integers(dials.cues, size=count)
        relation = means[cue]
        decides = rng.random(count) < dials.decides
        position = np.where(decides, relation, rng.integers(dials.relations, size=count))
        shown = named[np.arange(count), position]
        features = looks[shown] + dials.noise * rng.normal(size=(count, WIDTH))
        texts = (
            " ".join((THINGS[first], CUES[word], *(THINGS[item] for item in rest)))
            for (first, *rest), word in zip(named, cue, strict=True)
        )
        splits.append(ControlledPairs(
            "controlled", split, tuple(texts),
            labels=relation[:, None] == np.arange(dials.relations),
            relations=PLACES[: dials.relations],
            image_of=np.arange(count),
            image_ids=tuple(f"{split} {i}" for i in range(count)),
            features=features[:, None].astype(np.float32),
            shown=tuple(THINGS[item] for item in shown),
        ))  # fmt: skip
    train, val, test = splits
    return Pairs(train, val, test)


def truth(pairs: RelatedPairs) -> dict[str, np.ndarray]:
    """Scores (texts, pairs' pictures) of readers that see what pictures show, without noise.

    "relations": 1 for pictures of the thing that the text's relation says. "things": 1 for
    pictures of any of its things, as of a reader that knows no relation. Equal ones are in random
    order.
    """
    assert isinstance(pairs, ControlledPairs)
    shown = np.array(pairs.shown)[pairs.image_of]
    names = np.array([(first, *rest) for first, _, *rest in map(str.split, pairs.texts)])
    decided = names[pairs.labels]  # one relation holds, whose column is that of its thing
    holds = {
        "relations": decided[:, None] == shown,
        "things": (names[:, :, None] == shown).any(axis=1),
    }
    noise = np.random.default_rng(0).random((len(pairs), len(pairs)))
    return {name: (true + 1e-3 * noise).astype(np.float32) for name, true in holds.items()}
