"""Flickr8k: SICK's pairs, pairs of captions, and people's judgments of test images as the test."""

from dataclasses import replace

import numpy as np

from mmlib.core.entailment_pairs import Samples, joined
from mmlib.core.records import CaptionedImages
from mmlib.data import flickr8k, judgments, sick
from mmlib.papers.entailment.batches import SPLITS, People
from mmlib.papers.entailment.data.study import Study, flat, only_mme, study_of
from mmlib.papers.entailment.systems import Budget

NEGATIVES = 6000  # of the judged pairs without a yes that are scored, weighted up to all of them


def load(budget: Budget, seed: int) -> Study:
    """SICK's pairs and triples, caption pairs of training images; the crowd's judgments as test.

    No judged pair and no judged image is in the training set (`judgments.assert_untouched`).
    """
    collections = {name: flickr8k.load(name) for name in SPLITS}
    names = tuple(name for some in collections.values() for name in some.ids)
    row_of = {name: row for row, name in enumerate(names)}
    judged, origins = judgments.load(), sick.Origins()
    triples = sick.triples(origins=origins)

    def triples_of(split: str) -> Samples:
        some = triples[(triples["split"] == split) & triples["clean"]]
        return sick.triple_samples(some, origins.captions, row_of)

    text = sick.text_text(("TRAIN",), leave_out=("val", "test"), origins=origins)
    samples = {"train": joined([text, triples_of("train")]), "dev": only_mme(triples_of("val"))}
    counts = {}
    for name, side in zip(("calibration", "crowd"), judgments.parts(judged), strict=True):
        few = NEGATIVES if name == "crowd" else NEGATIVES // 4
        chosen, counts[name] = judgments.sampled(side, few, seed)
        samples[name] = side.take(chosen).samples(row_of)
    samples["SICK triples"] = only_mme(triples_of("test"))
    premises = {judgments.merged(premise): premise for premise in judged.premise}
    study = study_of(collections, budget, seed, samples, counts, premises)
    judgments.assert_untouched(study.arrays.train.samples, judged, names)
    people = _people(judged, collections["test"])
    return replace(study, arrays=replace(study.arrays, people=people))


def _people(judged: judgments.Judged, test: CaptionedImages) -> People:
    """Judgments of test images but those of calibration, and what is said of own captions."""
    image = {name: i for i, name in enumerate(test.ids)}
    texts, image_of = flat(test.captions, range(len(test.ids)))
    number = {(int(i), text): c for c, (i, text) in enumerate(zip(image_of, texts, strict=True))}
    rejected = np.full(len(image), np.nan)
    for i in np.flatnonzero(~judged.cross):
        rejected[image[judged.image[i]]] = 100.0 * (judged.no[i] > judged.yes[i])
    rows = judgments.decided(judged)
    rows = rows[~judged.calibration[rows]]  # the judge's threshold has seen the others
    pairs = [
        (image[judged.image[i]], number[image[judged.origin[i]], judged.hypothesis[i]])
        for i in rows
    ]
    return People(np.array(pairs), judged.label[rows], rejected)
