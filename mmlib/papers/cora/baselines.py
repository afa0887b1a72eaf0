"""Baselines and oracles of paper 03, which no gradient trains, and what its captions say."""

import time

import numpy as np
from scipy import sparse
from scipy.stats import hypergeom
from sklearn.linear_model import Ridge
from sklearn.preprocessing import normalize

from mmlib.core.files import read_rows
from mmlib.core.jobs import Answer, Job, Run
from mmlib.core.ranking import KS, metrics, ranks_of_scores
from mmlib.papers.cora.batches import Arrays, GraphSet, Split, Texts
from mmlib.papers.cora.metrics import (
    different_entities,
    entity_ranks,
    hits_of_captions,
    images_with_entities,
    per_item,
    right_in_family,
)
from mmlib.papers.cora.systems import SPLITS

PENALTIES = (1.0, 10.0, 100.0)  # of the ridge regression


def score(job: Job, arrays: Arrays, run: Run = Run()) -> Answer:
    """Rank the test set without any training; values as of `train.train_and_score`.

    baseline "random": scores drawn by the seed; "ridge": see `ridge`, reads naming the texts;
    "truth": the scores of an oracle, reads naming which. Raises ValueError for another.
    """
    started, test = time.process_time(), arrays.splits["test"]
    kind, reads = job.system["baseline"], job.system.get("reads", "")
    if kind == "truth":
        scores = arrays.truth[reads]
    elif kind == "ridge":
        scores = ridge(arrays, reads)
    elif kind == "random":
        shape = len(test.features), len(test.image_of)
        scores = np.random.default_rng([7, job.seed]).random(shape, dtype=np.float32)
    else:
        raise ValueError(f"no baseline {kind!r}")
    values = per_item(ranks_of_scores(scores, test.image_of))
    if arrays.family > 1:
        values["in family"] = right_in_family(scores, test.image_of, arrays.family)
    return Answer({"test": values}, seconds=time.process_time() - started)


def ridge(arrays: Arrays, reads: str) -> np.ndarray:
    """Cosines (test images, test captions) of image features and what words predict of them.

    A ridge regression of an image's mean region on which words occur in a caption ("sequence") or
    in its graph ("graph"): words alone, without order and structure. The penalty is the one of
    PENALTIES with the best RSUM on dev.
    """
    words = {name: word_counts(arrays.splits[name].texts[reads], arrays) for name in SPLITS}
    means = {name: _means(arrays.splits[name]) for name in SPLITS}
    centre = means["train"].mean(axis=0)
    images = {name: normalize(mean - centre) for name, mean in means.items()}
    target = (means["train"] - centre)[arrays.splits["train"].image_of]
    best: tuple[float, np.ndarray] = (-1.0, np.empty(0))
    for penalty in PENALTIES:
        model = Ridge(penalty, fit_intercept=False, solver="cholesky").fit(words["train"], target)
        scores = {s: images[s] @ normalize(model.predict(words[s])).T for s in SPLITS[1:]}
        rsum = metrics(ranks_of_scores(scores["val"], arrays.splits["val"].image_of))["rsum"]
        best = max(best, (rsum, scores["test"]), key=lambda scored: scored[0])
    return best[1]


def word_counts(texts: Texts, arrays: Arrays) -> sparse.csr_matrix:
    """Whether each word occurs in each text, (captions, vocabulary) float32; padding does not."""
    if isinstance(texts, GraphSet):
        firsts = texts.first_object, texts.first_attribute, texts.first_relation
        caption = np.concatenate([np.repeat(np.arange(len(texts)), np.diff(f)) for f in firsts])
        phrases = np.concatenate([texts.objects, texts.attributes, texts.relations])
        ids = texts.tokens[phrases]
    else:
        caption, ids = np.arange(len(texts)), texts.tokens
    rows, columns = np.repeat(caption, ids.shape[1]), ids.ravel()
    pairs = np.unique(np.column_stack([rows, columns])[columns > 0], axis=0)
    ones = np.ones(len(pairs), dtype=np.float32)
    return sparse.csr_matrix((ones, pairs.T), shape=(len(texts), len(arrays.vocabulary)))


def _means(split: Split) -> np.ndarray:
    """Mean region of each image, (images, d)."""
    blocks = np.array_split(np.arange(len(split.features)), len(split.features) // 1024 + 1)
    return np.concatenate([read_rows(split.features, rows).mean(axis=1) for rows in blocks])


def describe_captions(job: Job, arrays: Arrays, run: Run = Run()) -> Answer:
    """How much each test caption says: its objects, attributes and relations; NaN for images.

    "entity rank": of each image, where entities are ranked by how often captions name them.
    "entity to image, R@K": what images in random order would give.
    """
    test = arrays.splits["test"]
    graphs = test.texts["graph"]
    assert isinstance(graphs, GraphSet)
    none = np.full(len(test.features), np.nan)
    values = {
        f"{kind}s": np.concatenate([np.diff(getattr(graphs, f"first_{kind}")), none])
        for kind in ("object", "attribute", "relation")
    }
    index, number = different_entities(graphs)
    frequency = np.bincount(number, minlength=len(index)).astype(float)
    ranks = entity_ranks(np.tile(frequency, (len(none), 1)), graphs, test)
    values["entity rank"] = np.concatenate([np.full(len(graphs), np.nan), ranks])
    images = np.bincount(images_with_entities(graphs, test)[1])  # that have each entity
    first = np.minimum(KS, len(none))  # there may be fewer than ten images
    chance = hypergeom.sf(0, len(none), images[:, None], first)
    return Answer({"test": values | hits_of_captions(chance, graphs, len(none))})
