"""Paper 02's picture world: generated scenes, whose pairs are labelled by logic."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from safetensors import safe_open
from safetensors.torch import load_file

from mmlib import world
from mmlib.core.parallel import in_processes
from mmlib.core.paths import PACKAGE
from mmlib.core.records import Kind, Samples, joined
from mmlib.data.overlap import Weights
from mmlib.data.samples import caption_pairs
from mmlib.features.encoders import region_scale, standardised
from mmlib.features.words import Words
from mmlib.papers.entailment.data import arrays as tables
from mmlib.papers.entailment.data.arrays import SPLITS, Split, Study, flat, samples_of
from mmlib.papers.entailment.data.hypotheses import entailment_set, false_negatives, noisy
from mmlib.papers.entailment.data.premises import merged as merged_captions
from mmlib.papers.entailment.method.calibration import Frozen, frozen
from mmlib.papers.entailment.method.retrievers import build
from mmlib.papers.entailment.method.revision import candidates
from mmlib.papers.entailment.run.systems import Budget

IMAGES = {"train": 1200, "val": 200, "test": 1000}  # of the retrievers
JUDGES = {"train": 440, "dev": 60, "calibration": 120}  # images whose candidates are labelled
EDITED = {"train": 500, "val": 80, "test": 300}  # scenes about which hypotheses are made
ASKED, OF_EACH = 400, 20  # test images, and candidates of each, that judges are compared on
NOISE, PARTIAL = 1.0, 0.25  # the world's dials, see `hypotheses`
RETRIEVERS = PACKAGE / "world" / "retrievers.safetensors"


def load(budget: Budget, seed: int) -> Study:
    """Generated scenes. Pictures of retrievers, then of judges' candidates, then of hypotheses."""
    cores = os.cpu_count() or 1
    drawn = {s: world.captioned_images(s, n, seed, workers=cores) for s, n in IMAGES.items()}
    drawn["judges"] = world.captioned_images("train", sum(JUDGES.values()), seed + 1, workers=cores)
    sets = [entailment_set(s, n, seed + 2, PARTIAL, workers=cores) for s, n in EDITED.items()]
    clean = [images.features for images in drawn.values()]
    clean += [world.extract_features(edits.scenes, workers=cores)[0] for edits in sets]
    # Goes on in other processes until it is read.
    truth = in_processes(false_negatives, [(images,) for images in drawn.values()], cores)
    collections: list[Any] = [*drawn.values(), *sets]
    blurred = [
        noisy(features, [scene.seed for scene in collection.scenes], NOISE)
        for features, collection in zip(clean, collections, strict=True)
    ]
    scale = region_scale(blurred[0])
    images, ends = standardised(blurred, scale), np.cumsum([0, *map(len, blurred)])
    captions = tuple(texts for some in drawn.values() for texts in some.captions)
    premises = tuple(merged_captions(gold) for some in drawn.values() for gold in some.gold)
    rows = {name: np.arange(ends[i], ends[i + 1]) for i, name in enumerate(drawn)}
    edited: dict[str, Samples] = {}  # hypotheses by split
    about: dict[str, tuple[str, ...]] = {}
    for name, some, first in zip(EDITED, sets, ends[len(drawn) :], strict=False):
        pairs = some.samples
        if name == "train":
            edited[name] = replace(pairs, image=np.where(pairs.image < 0, -1, pairs.image + first))
            continue
        # Those of val and test are pairs of image and text with both premises.
        of_images = np.flatnonzero(np.array(pairs.kind) != "te")
        scenes, kinds = some.scene_of[of_images], np.full(len(of_images), "mme").tolist()
        premise = tuple(merged_captions(some.captions[i]) for i in scenes)
        edited[name] = replace(
            pairs.take(of_images), premise=premise, kind=tuple(kinds), image=scenes + first
        )
        about["edits"] = tuple(some.hypotheses[i].edit for i in of_images)  # the last: test's
    merged = dict(zip(premises, captions, strict=True))
    merged |= {merged_captions(c): tuple(t.text for t in c) for some in sets for c in some.captions}
    words = Words(json.loads(safe_open(RETRIEVERS, "pt").metadata()["words"]))
    weights = {n.removeprefix("align."): v.float() for n, v in load_file(RETRIEVERS).items()}
    texts = sorted({t for c in captions for t in c} | tables.sentences_of(edited.values(), merged))
    words.read(texts)
    retriever = build("align", budget.retrieval, images, len(words))
    retriever.load_state_dict(weights)
    stems = Weights(drawn["train"].captions)
    encoders = frozen(retriever, words, images, texts, stems, merged)
    fits = dict(zip(drawn, truth, strict=True))
    samples = _samples(edited, captions, premises, rows, fits, encoders, seed)
    words.read({*premises, *(t for some in samples.values() for t in some.premise)})
    arrays = tables.arrays_of(
        samples, encoders, about=about, images=images, premises=premises, words=words,
        splits={name: Split.of(words, captions, rows[name], fits[name]) for name in SPLITS},
        clean=standardised(clean, scale), noise=(NOISE / scale[1]).astype(np.float32),
        region_scale=scale, starts=tables.starts_of(weights, world.BERT), retriever=weights,
    )  # fmt: skip
    return Study(arrays, captions, rows, partial(tables.open_image, collections, ends))


def _samples(
    edited: Mapping[str, Samples], captions: Sequence[Sequence[str]], premises: Sequence[str],
    rows: Mapping[str, np.ndarray], fits: Mapping[str, np.ndarray], encoders: Frozen, seed: int,
) -> dict[str, Samples]:  # fmt: skip
    # Training, dev, calibration and test pairs: hypotheses, and pairs (n, 2) of an image and a flat
    # caption that the frozen retriever proposes and logic labels.
    def proposed(split: str) -> np.ndarray:
        texts, image_of = flat(captions, rows[split])
        return candidates(encoders.similarities(rows[split], texts), image_of)

    def labelled(split: str, pairs: np.ndarray, kind: Kind = "mme") -> Samples:
        texts, _ = flat(captions, rows[split])
        image = rows[split][pairs[:, 0]]
        asked = samples_of(image, [texts[c] for c in pairs[:, 1]], premises, "candidate", kind)
        return replace(asked, label=fits[split][pairs[:, 0], pairs[:, 1]].astype(np.int64))

    def some_of(pairs: np.ndarray, chosen: np.ndarray, most: int) -> np.ndarray:
        # Rows, in order, of at most `most` random ones of the chosen pairs of each image.
        order = rng.permutation(np.flatnonzero(chosen))
        image = pd.Series(pairs[order, 0])
        return np.sort(order[image.groupby(image).cumcount() < most])

    rng, ends = np.random.default_rng([seed, 25]), np.cumsum(list(JUDGES.values()))
    pairs, test = proposed("judges"), proposed("test")
    share = np.searchsorted(ends, pairs[:, 0], side="right")  # of JUDGES
    true = fits["judges"][pairs[:, 0], pairs[:, 1]]
    learnt, watched = (
        pairs[np.concatenate([some_of(pairs, (share == k) & label, 3) for label in (true, ~true)])]
        for k in range(2)
    )
    compared = some_of(test, test[:, 0] < ASKED, OF_EACH)
    of_captions, _ = caption_pairs(captions, rows["judges"][: ends[0]], seed)
    return {
        "train": joined([edited["train"], labelled("judges", learnt),
                         labelled("judges", learnt, "ve"), of_captions]),
        "dev": joined([edited["val"], labelled("judges", watched)]),
        "calibration": labelled("judges", pairs[share == 2]),
        "candidates": labelled("test", test[compared]),
        "edits": edited["test"],
    }  # fmt: skip
