"""Figures of judges, as means over pairs, and of retrievers, as means over images.

ROC area, average precision and F0.5 are no means over pairs, but have a linear part in each: what a
figure would change if a pair counted a little more. `shares` gives that, so that intervals over
seeds and clusters of pairs can be taken as those of a mean (the infinitesimal jackknife: Efron, The
Jackknife, the Bootstrap and Other Resampling Plans, 1982; of the ROC area it is DeLong's variance).
"""

from typing import TYPE_CHECKING

import numpy as np

from mmlib.core.ranking import KS, average_precision, chance_among_first, ranks_of_scores

if TYPE_CHECKING:
    from mmlib.papers.entailment.data.arrays import People, Split

AT_SIZE = "precision of the first n"  # n: as many as are entailed
METRICS = ("ROC area", "average precision", "F0.5", "precision", "recall", AT_SIZE)
ACCURACY = "accuracy"  # the paper's; where few pairs are entailed it says little
DIGITS = (10.0, 1e3, 1e5)  # of "hits": captions that find the image at 1, 5 and 10

# --- Judges --------------------------------------------------------------------------------------


def f_score(precision: float, recall: float, beta: float = 0.5) -> float:
    """F_β; with β = 0.5, the paper's, precision weighs more. 0 where both are 0."""
    below = beta**2 * precision + recall
    return (1 + beta**2) * precision * recall / below if below else 0.0


def figure(metric: str, labels: np.ndarray, margins: np.ndarray, weights: np.ndarray) -> float:
    """One of METRICS, in percent. Arguments as of `shares`."""
    return float(shares(metric, labels, margins, weights).mean())


def shares(metric: str, labels: np.ndarray, margins: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """What each pair adds to a figure, in percent (n,): the mean over pairs is the figure.

    metric: one of METRICS, or ACCURACY. labels (n,) 0 or 1; margins (n,): a pair is called entailed
    where its margin is 0 or more; weights (n,): how many pairs each one stands for. Raises
    ValueError for another metric and where one label is missing.
    """
    truth, margins = np.asarray(labels).astype(bool), np.asarray(margins)
    weights = np.asarray(weights, dtype=float)
    if truth.all() or not truth.any():
        raise ValueError("there must be entailed pairs and others")
    _, step = np.unique(-margins, return_inverse=True)  # pairs by falling margin
    yes, no = np.bincount(step, weights * truth), np.bincount(step, weights * ~truth)
    positive, negative, hits = yes.sum(), no.sum(), np.cumsum(yes)
    if metric == "ROC area":  # equal margins count half
        above = (hits - yes / 2) / positive  # of a negative: entailed above it
        below = 1 - (np.cumsum(no) - no / 2) / negative  # of a positive: others below it
        value = float((no * above).sum() / negative)
        per_yes, per_no = (below - value) / positive, (above - value) / negative
        slope = np.where(truth, per_yes[step], per_no[step])
    elif metric == "average precision":  # equal margins share theirs
        called = hits + np.cumsum(no)
        precision = hits / called
        value = float((yes * precision).sum() / positive)
        # A pair counts in the precision at each entailed pair from its own rank on.
        gained = np.cumsum((yes / called)[::-1])[::-1]
        lost = np.cumsum((yes * hits / called**2)[::-1])[::-1]
        slope = np.where(truth, (precision - value + gained - lost)[step], -lost[step]) / positive
    else:  # of the pairs that are called, or of which share of each pair, from 0 to 1
        chosen = 1.0 * (margins >= 0)
        if metric == AT_SIZE:
            # How much of it is among the first that weigh as much as all entailed: the expectation
            # where equal margins leave open which these are.
            free = positive - (np.cumsum(yes + no) - (yes + no))
            chosen = np.clip(free / np.maximum(yes + no, 1e-12), 0, 1)[step]
        hit = truth * chosen + (metric == ACCURACY) * ~truth * (1 - chosen)
        denominators = {
            "F0.5": (0.25 * truth + chosen) / 1.25, "precision": chosen, AT_SIZE: chosen,
            "recall": 1.0 * truth, ACCURACY: np.ones(len(truth)),
        }  # fmt: skip
        if metric not in denominators:
            raise ValueError(f"no figure {metric!r}: use {', '.join((*METRICS, ACCURACY))}")
        counted = denominators[metric]
        total = float((weights * counted).sum())
        value = float((weights * hit).sum()) / total if total else 0.0
        slope = (hit - value * counted) / total if total else np.zeros(len(truth))
    return 100 * (value + len(truth) * weights * slope)


def best_threshold(
    labels: np.ndarray, scores: np.ndarray, weights: np.ndarray | None = None
) -> float:
    """The threshold with the highest F0.5 on calibration data, among the scores; larger if tied.

    weights: how many pairs each one stands for; 1 each without.
    """
    order = np.argsort(-np.asarray(scores), kind="stable")
    weights = np.ones(len(order)) if weights is None else np.asarray(weights, dtype=float)[order]
    sorted_scores, hits = np.asarray(scores)[order], np.cumsum(weights * np.asarray(labels)[order])
    last = np.r_[np.flatnonzero(np.diff(sorted_scores)), len(order) - 1]  # equal scores go together
    values = hits[last] / (np.cumsum(weights)[last] + hits[-1] / 4)  # F0.5 / 1.25
    return float(sorted_scores[last[int(np.argmax(values))]])


# --- Retrievers ----------------------------------------------------------------------------------


def measured(
    by_image: np.ndarray, by_text: np.ndarray, split: "Split", people: "People | None" = None
) -> dict[str, np.ndarray]:
    """One value a test image, in percent; the mean over images is the figure.

    by_image, by_text (n, c): scores to rank texts by image and images by text. "RSUM": the sum of
    R@1, R@5 and R@10 both ways over golden pairs; "hits" codes them (`recalls`). Where the truth is
    known: "mAP" over all true texts, "E@10" and "E@30" (eq. 13, by logic; the expected ones where
    texts tie), "E@10, rarity", where a text counts by `rarity`. With judgments, NaN for images
    without a yes: "mAP, people" and "P@1, people" among judged texts.
    """
    n, c = by_image.shape
    image_ranks = ranks_of_scores(by_image, split.image_of).image_ranks
    caption_ranks = ranks_of_scores(by_text, split.image_of).caption_ranks
    values = {"RSUM": np.zeros(n), "hits": np.zeros(n)}
    for k, digit in zip(KS, DIGITS, strict=True):
        images, captions = image_ranks <= k, np.bincount(split.image_of, caption_ranks <= k, n)
        values["RSUM"] += 100 * (images + captions * n / c)
        values["hits"] += images + digit * captions
    if split.fits is not None:
        for k in (10, 30):
            first = chance_among_first(by_image, k)
            values[f"E@{k}"] = 100 * np.average(split.fits, axis=1, weights=first)
        first, weighed = chance_among_first(by_image, 10), split.fits * rarity(split.fits)
        values["E@10, rarity"] = 100 * np.average(weighed, axis=1, weights=first)
        values["mAP"] = 100 * average_precision(by_image, split.fits)
    if people is not None:
        values |= by_people(by_image[people.pairs[:, 0], people.pairs[:, 1]], people, n)
    return {name: np.round(column, 2) for name, column in values.items()}


def recalls(hits: np.ndarray, captions: int = 5) -> dict[str, np.ndarray]:
    """TR@1, ..., IR@10 in percent, of each image, from "hits" of any shape.

    captions: of each image; IR counts the share of them that find it.
    """
    values = {f"TR@{k}": 100.0 * (hits % 10 >= len(KS) - i) for i, k in enumerate(KS)}
    for k, digit in zip(KS, DIGITS, strict=True):
        values[f"IR@{k}"] = 100 * (hits // digit % 100) / captions
    return values


def by_people(scores: np.ndarray, people: "People", images: int) -> dict[str, np.ndarray]:
    """Average precision and precision at 1 of each image's judged texts; NaN without a yes.

    scores (n,): of the judged pairs; equal ones as in `core.ranking`.
    """
    values = {name: np.full(images, np.nan) for name in ("mAP, people", "P@1, people")}
    order = np.argsort(people.pairs[:, 0], kind="stable")
    image = people.pairs[order, 0]
    for rows in np.split(order, np.flatnonzero(np.diff(image)) + 1):
        i, yes = people.pairs[rows[0], 0], people.labels[rows].astype(bool)
        if yes.any():
            judged = scores[rows]
            values["mAP, people"][i] = 100 * average_precision(judged[None], yes[None])[0]
            values["P@1, people"][i] = 100 * chance_among_first(judged, 1)[yes].sum()
    return values


def rarity(fits: np.ndarray) -> np.ndarray:
    """How rare a text is (texts,), from 0, true of all images, to 1, of one: log(n / d) / log(n).

    fits (images, texts) bool: which texts are true of which of the n images; d is their number.
    """
    return 1 - np.log(np.maximum(fits.sum(axis=0), 1)) / np.log(max(len(fits), 2))
