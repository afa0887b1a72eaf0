"""Toy pictures of three words each, captions of one or two, and all that paper 02's jobs read."""

from dataclasses import replace

import numpy as np

from mmlib.core.records import Samples
from mmlib.data.overlap import Weights
from mmlib.features.encoders import Shape
from mmlib.features.words import TokenStates, Words, padded
from mmlib.papers.entailment.data.arrays import Arrays, Labelled, People, Split
from mmlib.papers.entailment.method.calibration import Frozen, Scale
from mmlib.papers.entailment.method.classifier import Settings
from mmlib.papers.entailment.method.revision import Phase
from mmlib.papers.entailment.run import systems
from mmlib.papers.entailment.run.systems import ORIGINS, JudgeTraining, RetrieverTraining

NAMES = ("dog", "cat", "ball", "tree", "house", "car", "man", "boat")
SIZES = {"train": 24, "val": 8, "test": 12}
JUDGED = 30  # more pictures, of the pairs
EACH, REGIONS, WIDTH = 2, 4, 8
SHAPE = Shape(16, 2, 1, 1, 1, 1, dropout=0.0)
PHASE = Phase(1, 8, 2e-3)
BUDGET = systems.Budget(
    JudgeTraining(Settings(16, 2, 1, 1, 1, 1, dropout=0.0, max_premise=12, max_hypothesis=6),
                  steps=12, batch=8, learning_rate=2e-3),
    RetrieverTraining(SHAPE, {"dual": PHASE, "align": PHASE},
                      dict.fromkeys(("dual", "triplet", "align"), PHASE), space=8, top_texts=4,
                      top_images=2),
    systems.full("world"),
)  # fmt: skip


def arrays(people=False, seed=0):
    """Of the tier "world", or with people's judgments in the place of the truth."""
    rng = np.random.default_rng(seed)
    count = sum(SIZES.values()) + JUDGED
    shown = [rng.permutation(8)[:3] for _ in range(count)]
    images = 0.3 * rng.normal(size=(count, REGIONS, WIDTH)).astype(np.float32)
    for picture, things in zip(images, shown, strict=True):
        for region, thing in enumerate(things):
            picture[region, thing] += 2
    said = [[tuple(sorted(rng.permutation(t)[: 1 + k % 2])) for k in range(EACH)] for t in shown]
    texts = [tuple(" ".join(NAMES[w] for w in one) for one in own) for own in said]
    premises = tuple(". ".join(own) for own in texts)
    words = Words(NAMES)
    words.read([t for own in texts for t in own] + list(premises))
    splits, first = {}, 0
    for name, n in SIZES.items():
        rows = np.arange(first, first + n)
        flat = [caption for row in rows for caption in said[row]]
        true = np.array([[set(c) <= set(shown[row].tolist()) for c in flat] for row in rows])
        own = [text for row in rows for text in texts[row]]
        ids, lengths = padded([words.ids(text) for text in own])
        image_of = np.repeat(np.arange(n), EACH)
        splits[name] = Split(rows, ids, lengths, tuple(own), image_of, None if people else true)
        first += n
    everything = sorted({text for own in texts for text in own})
    bags = np.array([[name in text.split() for name in NAMES] for text in everything], float)
    seen = np.array([np.isin(np.arange(8), things) for things in shown], float)
    noisy = [b + 0.2 * rng.normal(size=b.shape) for b in (bags, bags, seen)]
    unit = [b / np.linalg.norm(b, axis=1, keepdims=True) for b in noisy]
    merged = dict(zip(premises, texts, strict=True))
    spoken = [words.ids(text) for text in everything]
    letters = np.concatenate([np.eye(8)[np.array(ids) - 4] for ids in spoken])
    states = TokenStates(everything, letters, np.array(list(map(len, spoken))), merged)
    rows = {t: i for i, t in enumerate(everything)}
    frozen = Frozen(rows, *unit, Weights(texts), merged, states)

    def pairs(rows, kinds, about=False):
        chosen = rng.choice(rows, 6 * len(rows))
        asked = [everything[i] for i in rng.integers(0, len(everything), len(chosen))]
        kind = [kinds[i % len(kinds)] for i in range(len(chosen))]
        label = [set(t.split()) <= {NAMES[w] for w in shown[i]}
                 for i, t in zip(chosen, asked, strict=True)]  # fmt: skip
        samples = Samples(
            tuple("" if k == "ve" else premises[i] for i, k in zip(chosen, kind, strict=True)),
            tuple(asked), np.where(np.array(kind) == "te", -1, chosen), np.array(label, int),
            tuple(kind), tuple(("world", "candidate", "own caption")[i % 3] for i in chosen),
            tuple(map(str, chosen)),
        )  # fmt: skip
        kinds_of = tuple(ORIGINS[i % len(ORIGINS)] for i in range(len(chosen))) if about else ()
        return Labelled(samples, frozen.inputs(samples), np.ones(len(chosen)), kinds_of)

    rest = np.arange(first, count)
    calibration = pairs(rest[20:], ("mme",))
    scale = Scale.of(calibration.given)
    tests = {"crowd" if people else "candidates": pairs(splits["test"].rows, ("mme",))}
    if not people:
        tests["edits"] = pairs(splits["test"].rows, ("mme",), about=True)

    def scaled(one):
        return replace(one, given=scale(one.given))

    asked = rng.integers(0, 12, 60)
    told = People(
        np.column_stack([asked, rng.integers(0, 24, 60)]), rng.integers(0, 2, 60),
        np.where(np.arange(12) % 5, 0.0, np.nan),
    )  # fmt: skip
    train, dev = pairs(rest[:16], ("te", "ve", "mme")), pairs(rest[16:20], ("mme",))
    return Arrays(
        images, splits, premises, train, dev,
        scaled(calibration), {name: scaled(one) for name, one in tests.items()}, frozen, scale,
        words, clean=images * 1.1, people=told if people else None,
    )  # fmt: skip
