"""Toy pictures of three words each, captions of one or two, and all that paper 02's jobs read."""

from dataclasses import replace

import numpy as np

from mmlib.core.records import Samples
from mmlib.data.overlap import Weights
from mmlib.features.encoders import Shape
from mmlib.features.words import TokenStates, Words
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
    captions = [
        tuple(" ".join(NAMES[w] for w in sorted(rng.permutation(things)[: 1 + k % 2]))
              for k in range(EACH))
        for things in shown
    ]  # fmt: skip
    visible = [{NAMES[i] for i in things} for things in shown]
    premises, words = tuple(map(". ".join, captions)), Words(NAMES)
    texts = sorted({text for some in captions for text in some})
    words.read([*texts, *premises])
    splits, rest = {}, np.arange(count)
    for name, n in SIZES.items():
        rows, rest = rest[:n], rest[n:]
        said = [set(text.split()) for row in rows for text in captions[row]]
        true = np.array([[one <= visible[row] for one in said] for row in rows])
        splits[name] = Split.of(words, captions, rows, None if people else true)
    bags = np.array([[name in text.split() for name in NAMES] for text in texts], float)
    seen = np.array([np.isin(np.arange(8), things) for things in shown], float)
    noisy = [b + 0.2 * rng.normal(size=b.shape) for b in (bags, bags, seen)]
    unit = [b / np.linalg.norm(b, axis=1, keepdims=True) for b in noisy]
    merged = dict(zip(premises, captions, strict=True))
    spoken = [words.ids(text) for text in texts]
    letters = np.concatenate([np.eye(8)[np.array(ids) - 4] for ids in spoken])
    states = TokenStates(texts, letters, np.array(list(map(len, spoken))), merged)
    rows_of = {text: i for i, text in enumerate(texts)}
    frozen = Frozen(rows_of, *unit, Weights(captions), merged, states)

    def pairs(rows, kinds=("mme",), about=False):
        image = rng.choice(rows, 6 * len(rows))
        asked = [texts[i] for i in rng.integers(0, len(texts), len(image))]
        n, kind = len(image), [kinds[i % len(kinds)] for i in range(len(image))]
        samples = Samples(
            tuple("" if k == "ve" else premises[i] for i, k in zip(image, kind, strict=True)),
            tuple(asked), np.where(np.array(kind) == "te", -1, image),
            np.array([{*t.split()} <= visible[i] for i, t in zip(image, asked, strict=True)], int),
            tuple(kind), tuple(("world", "candidate", "own caption")[i % 3] for i in image),
            tuple(map(str, image)),
        )  # fmt: skip
        origins = tuple(ORIGINS[i % len(ORIGINS)] for i in range(n)) if about else ()
        return Labelled(samples, frozen.inputs(samples), np.ones(n), origins)

    calibration = pairs(rest[20:])
    scale = Scale.of(calibration.given)
    tests = {"crowd" if people else "candidates": pairs(splits["test"].rows)}
    if not people:
        tests["edits"] = pairs(splits["test"].rows, about=True)
    scaled = {name: replace(one, given=scale(one.given))
              for name, one in {"calibration": calibration, **tests}.items()}  # fmt: skip
    asked = rng.integers(0, 12, 60)
    judged = People(
        np.column_stack([asked, rng.integers(0, 24, 60)]), rng.integers(0, 2, 60),
        np.where(np.arange(12) % 5, 0.0, np.nan),
    )  # fmt: skip
    train, dev = pairs(rest[:16], ("te", "ve", "mme")), pairs(rest[16:20])
    return Arrays(
        images, splits, premises, train, dev, scaled.pop("calibration"), scaled, frozen, scale,
        words, clean=images * 1.1, people=judged if people else None,
    )  # fmt: skip
