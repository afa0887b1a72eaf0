"""Paper 02's picture world: generated scenes, whose pairs are labelled by logic."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from safetensors.torch import load_file

from mmlib import world
from mmlib.core.entailment_pairs import Kind, Samples, joined
from mmlib.core.parallel import in_processes
from mmlib.core.paths import PACKAGE
from mmlib.data.caption_pairs import caption_pairs
from mmlib.data.overlap import Weights
from mmlib.features.encoders import region_scale, standardised
from mmlib.features.words import Words
from mmlib.papers.entailment.batches import SPLITS, samples_of
from mmlib.papers.entailment.data import hypotheses, study
from mmlib.papers.entailment.data.hypotheses import entailment_set, false_negatives, noisy
from mmlib.papers.entailment.data.premises import merged as merged_captions
from mmlib.papers.entailment.data.study import Study, flat
from mmlib.papers.entailment.inputs import Frozen, frozen
from mmlib.papers.entailment.revision import candidates
from mmlib.papers.entailment.systems import Budget

IMAGES = {"train": 1200, "val": 200, "test": 1000}  # of the retrievers
JUDGES = {"train": 440, "dev": 60, "calibration": 120}  # images whose candidates are labelled
EDITED = {"train": 500, "val": 80, "test": 300}  # scenes about which hypotheses are made
ASKED, OF_EACH = 400, 20  # test images, and candidates of each, that judges are compared on
NOISE, PARTIAL = 1.0, 0.25  # the world's dials, see `hypotheses`
RETRIEVERS = PACKAGE / "world" / "retrievers.safetensors"


def load(budget: Budget, seed: int) -> Study:
    """Generated scenes. Pictures of retrievers, then of judges' candidates, then of hypotheses."""
    cores, plan = os.cpu_count() or 1, budget.retrieval
    drawn = {s: world.captioned_images(s, n, seed, workers=cores) for s, n in IMAGES.items()}
    drawn["judges"] = world.captioned_images("train", sum(JUDGES.values()), seed + 1, workers=cores)
    sets = [entailment_set(s, n, seed + 2, PARTIAL, workers=cores) for s, n in EDITED.items()]
    clean = [some.features for some in drawn.values()]
    clean += [world.extract_features(some.scenes, workers=cores)[0] for some in sets]
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
    edited, about = _edited(sets, ends[len(drawn) :])
    merged = dict(zip(premises, captions, strict=True))
    merged |= {merged_captions(c): tuple(t.text for t in c) for some in sets for c in some.captions}
    words = Words(json.loads(study.metadata_of(RETRIEVERS)["words"]))
    weights = {n.removeprefix("align."): v.float() for n, v in load_file(RETRIEVERS).items()}
    texts = sorted({t for c in captions for t in c} | study.sentences_of(edited.values(), merged))
    retriever = study.read_retriever(weights, plan.transformers, plan.space, images, len(words))
    stems = Weights(drawn["train"].captions)
    encoders = frozen(retriever, words, images, texts, stems, merged)
    fits = dict(zip(drawn, truth, strict=True))
    pool = Pool(captions, premises, rows, fits, encoders)
    samples = pool.samples(edited, seed)
    words.read({*texts, *premises, *(t for some in samples.values() for t in some.premise)})
    arrays = study.arrays_of(
        samples, encoders, about=about, images=images, premises=premises, words=words,
        splits={name: study.split_of(words, captions, rows[name], fits[name]) for name in SPLITS},
        clean=standardised(clean, scale), noise=(NOISE / scale[1]).astype(np.float32),
        region_scale=scale, starts=study.starts_of(weights, world.BERT), retriever=weights,
    )  # fmt: skip
    return Study(arrays, captions, rows, study.opener(collections, ends))


def _edited(
    sets: Sequence[hypotheses.WorldEntailment], firsts: np.ndarray
) -> tuple[dict[str, Samples], dict[str, tuple[str, ...]]]:
    """Hypotheses of "train", "val" and "test" in the image table, and the origin of each.

    Those of val and test are pairs of image and text with both premises.
    """
    samples: dict[str, Samples] = {}
    about = {}
    for name, some, first in zip(EDITED, sets, firsts, strict=False):
        pairs = some.samples
        samples[name] = replace(pairs, image=np.where(pairs.image < 0, -1, pairs.image + first))
        if name != "train":
            rows = np.array([i for i, kind in enumerate(pairs.kind) if kind != "te"])
            texts = tuple(merged_captions(some.captions[i]) for i in some.scene_of[rows])
            kinds: tuple[Kind, ...] = ("mme",) * len(rows)  # type: ignore[assignment]
            samples[name] = replace(
                pairs.take(rows), premise=texts, kind=kinds, image=some.scene_of[rows] + first
            )
            origins = tuple(some.hypotheses[i].edit for i in rows)
            about["edits" if name == "test" else name] = origins
    return samples, about


@dataclass(frozen=True, eq=False)
class Pool:
    """Pictures with captions, of which a frozen retriever proposes pairs that logic labels.

    captions, premises: of each image. rows, fits: split -> its images, and which captions are true.
    """

    captions: Sequence[Sequence[str]]
    premises: Sequence[str]
    rows: Mapping[str, np.ndarray]
    fits: Mapping[str, np.ndarray]
    encoders: Frozen

    def candidates(self, split: str) -> np.ndarray:
        """Pairs (n, 2) of an image of a split and a flat caption."""
        texts, image_of = flat(self.captions, self.rows[split])
        return candidates(self.encoders.similarities(self.rows[split], texts), image_of)

    def labelled(self, split: str, pairs: np.ndarray, kind: Kind = "mme") -> Samples:
        """Such pairs with their labels."""
        truth = self.fits[split][pairs[:, 0], pairs[:, 1]]
        texts, _ = flat(self.captions, self.rows[split])
        image = self.rows[split][pairs[:, 0]]
        asked = samples_of(image, [texts[c] for c in pairs[:, 1]], self.premises, "candidate", kind)
        return replace(asked, label=truth.astype(np.int64))

    def samples(self, edited: Mapping[str, Samples], seed: int) -> dict[str, Samples]:
        """Training, dev, calibration and test pairs."""
        rng, ends = np.random.default_rng([seed, 25]), np.cumsum(list(JUDGES.values()))
        pairs, test = self.candidates("judges"), self.candidates("test")
        share = np.searchsorted(ends, pairs[:, 0], side="right")  # of JUDGES

        def few(chosen: np.ndarray) -> np.ndarray:
            true = self.fits["judges"][pairs[:, 0], pairs[:, 1]]
            rows = [_each(pairs, chosen & label, 3, rng) for label in (true, ~true)]
            return pairs[np.concatenate(rows)]

        learnt, watched = (few(share == k) for k in range(2))
        compared = _each(test, test[:, 0] < ASKED, OF_EACH, rng)
        of_captions, _ = caption_pairs(self.captions, self.rows["judges"][: ends[0]], seed)
        return {
            "train": joined([edited["train"], self.labelled("judges", learnt),
                             self.labelled("judges", learnt, "ve"), of_captions]),
            "dev": joined([edited["val"], self.labelled("judges", watched)]),
            "calibration": self.labelled("judges", pairs[share == 2]),
            "candidates": self.labelled("test", test[compared]),
            "edits": edited["test"],
        }  # fmt: skip


def _each(pairs: np.ndarray, some: np.ndarray, most: int, rng: np.random.Generator) -> np.ndarray:
    """Rows of at most `most` random pairs of each image, of those that are meant, in order."""
    order = rng.permutation(np.flatnonzero(some))
    order = order[np.argsort(pairs[order, 0], kind="stable")]
    _, first = np.unique(pairs[order, 0], return_index=True)
    turn = np.arange(len(order)) - np.repeat(first, np.diff([*first, len(order)]))
    return np.sort(order[turn < most])
