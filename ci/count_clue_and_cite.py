"""Figures of Clue and CITE that may be shown without their files: counted once, kept, checked.

`mmlib/papers/coherence/tables.json` holds what `count` gave, marked as recorded; a test counts
again where the files are.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import GroupKFold

from mmlib.core.records import RelatedPairs
from mmlib.data import cite, clue
from mmlib.features.text import Vocabulary, tokenize
from mmlib.papers.coherence import baselines, method
from mmlib.papers.coherence.data import flickr8k
from mmlib.papers.coherence.data.pairs import Arrays, Split
from mmlib.papers.coherence.data.paper import recipes

DRAWS = 500  # of the bootstrap
WORDS = 200  # of a text are read; none has more


def count(clue_folder: Path, cite_folder: Path) -> dict[str, pd.DataFrame]:
    """Every recorded table, anew from the files. Raises DataError for missing or damaged ones."""
    train, test = clue.load("train", clue_folder), clue.load("test", clue_folder)
    report = clue.report(clue_folder)
    rates = pd.DataFrame(report["rates"])
    rates.loc["train, people's captions"] = 100 * train.labels[train.human].mean(axis=0)
    counts = pd.concat([report["leaks"], report["words"]]).astype(float)
    tests = {"all rows": test, "clean rows": test.take(clue.clean_rows(test, train)[0])}
    pipeline, columns = flickr8k.fit_pipeline(train), ["AP", "low", "high", "chance"]
    clue_text = [average_precisions(pipeline, pairs)[columns].add_suffix(f", {name}")
                 for name, pairs in tests.items()]  # fmt: skip
    pairs = cite.load(cite_folder)
    groups = np.unique(recipes(pairs), return_inverse=True)[1]
    scores, of_folds = np.empty(pairs.labels.shape), []
    for rows, held in GroupKFold(5).split(groups, groups=groups):  # folds share no recipe
        fit, rest = pairs.take(rows), pairs.take(held)
        scores[held] = flickr8k.of_yes(flickr8k.fit_pipeline(fit).predict_proba(rest.texts))
        of_folds.append(words_tell(fit, rest))
    words = {f"Clue, {name}": words_tell(train, pairs) for name, pairs in tests.items()}
    words["CITE"] = float(np.mean(of_folds))
    cite_table = {"percent_positive": (100 * pairs.labels.mean(axis=0)).round(2),
                  "AP": method.average_precisions(pairs.labels, scores).round(3)}  # fmt: skip
    return {
        "recorded_clue_rates": rates.T.round(2),
        "recorded_clue_leaks": counts.to_frame("count").round(2),
        "recorded_clue_text": pd.concat(clue_text, axis=1).round(3),
        "recorded_cite": pd.DataFrame(cite_table, list(pairs.relations)),
        "recorded_cite_repeats": cite.repeats(cite_folder).astype(float).to_frame("count"),
        "recorded_words": pd.Series(words).round(3).to_frame("AUC"),
    }


def words_tell(train: RelatedPairs, test: RelatedPairs) -> float:
    """`baselines.words_tell`, an AUC that needs no pictures."""
    vocabulary = Vocabulary.from_sentences([tokenize(text) for text in train.texts], min_count=1)

    def split(part: RelatedPairs) -> Split:
        ids, lengths = vocabulary.encode([tokenize(text) for text in part.texts], WORDS)
        images = np.zeros((len(part.image_ids), 1), np.float32)
        return Split(ids.numpy(), lengths.numpy(), part.labels, part.image_of, images)

    splits = {"train": split(train), "test": split(test)}
    words = np.zeros((len(vocabulary), 1), np.float32)
    return baselines.words_tell(Arrays(splits, words, train.relations))


def average_precisions(pipeline: Any, pairs: RelatedPairs) -> pd.DataFrame:
    """How well the relations of labelled pairs are read off their texts; a row a relation.

    Columns: AP (average precision), low, high (its 95 % interval by bootstrap over images), chance
    (the share of positives, which is the AP of guessing). NaN for a relation that the pairs do not
    have. Source: paper, Table 8 (there from image and text).
    """
    scores, truth = flickr8k.of_yes(pipeline.predict_proba(pairs.texts)), pairs.labels
    images, image_of = np.unique(pairs.image_of, return_inverse=True)
    rng = np.random.default_rng(0)
    drawn = [rng.integers(len(images), size=len(images)) for _ in range(DRAWS)]
    weights = np.array([np.bincount(draw, minlength=len(images)) for draw in drawn])[:, image_of]
    drawn_ap = [weighted_ap(t, s, weights) for t, s in zip(truth.T, scores.T, strict=True)]
    ends = np.nanquantile(drawn_ap, [0.025, 0.975], axis=1)  # without draws that have no positive
    columns = {"AP": method.average_precisions(truth, scores), "low": ends[0], "high": ends[1],
               "chance": truth.mean(axis=0)}  # fmt: skip
    return pd.DataFrame(columns, index=list(pairs.relations))


def weighted_ap(truth: np.ndarray, scores: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Average precision (draws,) of rows (n,) that count `weights` (draws, n) times."""
    order = np.argsort(-scores, kind="stable")
    last = np.append(np.diff(scores[order]) != 0, True)  # of equal scores, which rank together
    right = np.cumsum(weights[:, order] * truth[order], axis=1)[:, last]
    precision = right / np.maximum(np.cumsum(weights[:, order], axis=1)[:, last], 1)
    with np.errstate(invalid="ignore"):
        return (np.diff(right, axis=1, prepend=0) * precision).sum(axis=1) / right[:, -1]
