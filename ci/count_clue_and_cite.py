"""Figures of Clue and CITE that may be shown without their files: counted once, kept, checked.

`mmlib/papers/coherence/tables.json` holds what `count` gave, marked as recorded; a test counts
again where the files are.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GroupKFold

from mmlib.core.records import RelatedPairs
from mmlib.data import cite, clue
from mmlib.data.pairs import image_names
from mmlib.features.text import Vocabulary, spaced_tokens, tokenize
from mmlib.papers.coherence import baselines, method
from mmlib.papers.coherence.data import flickr8k
from mmlib.papers.coherence.data.pairs import Arrays, Split
from mmlib.papers.coherence.data.paper import recipes

DRAWS = 500  # of the bootstrap
WORDS = 200  # of a text are read; none has more


def count(clue_folder: Path, cite_folder: Path) -> dict[str, pd.DataFrame]:
    """Every recorded table, anew from the files. Raises DataError for missing or damaged ones."""
    train, test = clue.load("train", clue_folder), clue.load("test", clue_folder)
    of_clue = report(clue_folder)
    rates = pd.DataFrame(of_clue["rates"])
    rates.loc["train, people's captions"] = 100 * train.labels[train.human].mean(axis=0)
    counts = pd.concat([of_clue["leaks"], of_clue["words"]]).astype(float)
    tests = {"all rows": test, "clean rows": test.take(clue.clean_rows(test, train)[0])}
    pipeline, columns = flickr8k.fit_pipeline(train), ["AP", "low", "high", "chance"]
    clue_text = [average_precisions(pipeline, pairs)[columns].add_suffix(f", {name}")
                 for name, pairs in tests.items()]  # fmt: skip
    pairs = cite.load(cite_folder)
    groups = np.unique(recipes(pairs), return_inverse=True)[1]
    scores, of_folds = np.empty(pairs.labels.shape), []
    for rows, held in GroupKFold(5).split(groups, groups=groups):  # folds share no recipe
        fit, rest = pairs.take(rows), pairs.take(held)
        scores[held] = flickr8k.fit_pipeline(fit).predict_proba(rest.texts)
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
        "recorded_cite_repeats": repeats(cite_folder).astype(float).to_frame("count"),
        "recorded_words": pd.Series(words).round(3).to_frame("AUC"),
    }


def report(folder: Path) -> dict[str, pd.DataFrame | pd.Series]:
    """Statistics of Clue that need none of its images.

    rates: percent positive in train, test and all; words: vocabulary and lengths of the training
    captions in the authors' tokenisation, and the test's unknown tokens; leaks: images and captions
    that train and test share, in rows of test.
    """
    train, test = (clue.load(split, folder) for split in ("train", "test"))
    pieces = {"train": train.labels, "test": test.labels}
    pieces["all"] = np.concatenate(list(pieces.values()))
    rates = [100 * labels.mean(axis=0) for labels in pieces.values()]
    urls, train_urls = image_names(test), image_names(train)
    image, caption = np.isin(urls, train_urls), np.isin(test.texts, train.texts)
    train_pairs = set(zip(train_urls, train.texts, strict=True))
    repeated = [pair in train_pairs for pair in zip(urls, test.texts, strict=True)]
    clean, strict = clue.clean_rows(test, train)
    leaks = {
        "images": len({*urls, *train_urls}),
        "test rows": len(test),
        "image in train": image.sum(),
        "human rows": test.human.sum(),
        "human rows, image in train": (image & test.human).sum(),
        "machine rows": (~test.human).sum(),
        "machine rows, image in train": (image & ~test.human).sum(),
        "caption in train": caption.sum(),
        "image and caption in train": sum(repeated),
        "image or caption in train": (image | caption).sum(),
        "clean rows": len(clean),
        "clean rows, caption not in train": len(strict),
    }
    words = word_figures(train.texts, test.texts)
    return {
        "rates": pd.DataFrame(rates, list(pieces), list(train.relations)),
        "words": pd.Series(words, dtype=object),
        "leaks": pd.Series(leaks, dtype=object),
    }


def word_figures(train: Sequence[str], test: Sequence[str]) -> dict[str, float]:
    """Vocabulary and lengths of training texts, and the tokens of test texts that none of them has.

    Tokens are the authors' (`features.text.spaced_tokens`). "types" counts the empty token,
    "vocabulary" adds the entry for unknown words.
    """
    counts = Counter(token for text in train for token in spaced_tokens(text))
    lengths = np.array([len(spaced_tokens(text)) for text in train])
    seen_in_train = [[token in counts for token in spaced_tokens(text)] for text in test]
    return {
        "types": len(counts),
        "types without the empty token": len(counts) - ("" in counts),
        "types lower-cased": len({word.lower() for word in counts}),
        "vocabulary": len(counts) + 1,
        "tokens": int(lengths.sum()),
        "empty tokens": counts[""],
        "types that occur once": sum(count == 1 for count in counts.values()),
        "mean length": float(lengths.mean()),
        "deviation of lengths": float(lengths.std()),
        "longest": int(lengths.max()),
        "texts over 20 tokens": int((lengths > 20).sum()),
        "texts over 40 tokens": int((lengths > 40).sum()),
        "test tokens": sum(map(len, seen_in_train)),
        "unknown test tokens": sum(text.count(False) for text in seen_in_train),
        "test texts with unknown tokens": sum(not all(text) for text in seen_in_train),
    }


def repeats(folder: Path) -> pd.Series:
    """How many pairs of CITE differ, how many rows are of pairs that repeat, and its recipes."""
    pairs = cite.load(folder, duplicates=True)
    counts = cite.keys_of(pairs).value_counts()
    figures = {
        "distinct pairs": len(counts),
        "rows of pairs that repeat": int(counts[counts > 1].sum()),
        "recipes": len({cite.recipe_of(image) for image in pairs.image_ids}),
    }
    return pd.Series(figures, dtype=object)


def words_tell(train: RelatedPairs, test: RelatedPairs) -> float:
    """How well words tell relations that vary in test, by linear probes: the mean ROC area."""
    vocabulary = Vocabulary.from_sentences([tokenize(text) for text in train.texts], min_count=1)

    def split(part: RelatedPairs) -> Split:
        ids, lengths = vocabulary.encode([tokenize(text) for text in part.texts], WORDS)
        images = np.zeros((len(part.image_ids), 1), np.float32)
        return Split(ids.numpy(), lengths.numpy(), part.labels, part.image_of, images)

    splits = {"train": split(train), "test": split(test)}
    words = np.zeros((len(vocabulary), 1), np.float32)
    arrays = Arrays(splits, words, train.relations)
    bags = [baselines.occurring(arrays, name) for name in splits]
    scores = baselines.probe(bags[0], train.labels, baselines.WORDS / len(train), bags[1])
    varies = test.labels.any(axis=0) & ~test.labels.all(axis=0)
    return float(roc_auc_score(test.labels[:, varies], scores[:, varies]))


def average_precisions(pipeline: Any, pairs: RelatedPairs) -> pd.DataFrame:
    """How well the relations of labelled pairs are read off their texts; a row a relation.

    Columns: AP (average precision), low, high (its 95 % interval by bootstrap over images), chance
    (the share of positives, which is the AP of guessing). NaN for a relation that the pairs do not
    have. Source: paper, Table 8 (there from image and text).
    """
    scores, truth = pipeline.predict_proba(pairs.texts), pairs.labels
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
