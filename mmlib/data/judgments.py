"""Flickr8k's crowd judgments as a test of entailment: does this caption describe that image?

Each pair is a test image and the third caption (`#2`) of a test image, mostly of another one; at
least three people said yes or no (Hodosh, Young, Hockenmaier, JAIR 2013). The pairs are for
calibration and tests only: `assert_untouched` refuses training samples that hold one.

`protocol` names four tests, CF-all, CF-balanced, CF-hard and CF-unanimous; `parts` keeps the
calibration images (every fifth) apart from those of the evaluation. State the prevalence with every
figure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mmlib.core.entailment_pairs import Kind, Samples
from mmlib.core.errors import DataError, Problem
from mmlib.core.paths import data_dir
from mmlib.core.records import normalised
from mmlib.data import flickr8k

PROTOCOLS = ("CF-all", "CF-balanced", "CF-hard", "CF-unanimous")
EVERY = 5  # one image of five, by name, is for calibration


@dataclass(frozen=True, eq=False)
class Judged:
    """Judged pairs of an image and a caption. All fields have length n.

    image: (n,) names. origin: (n,) names of the images that the captions were written for.
    hypothesis: (n,) the captions. premise: (n,) the image's own captions, without the hypothesis
    where it is one of them. yes, no: (n,) votes. calibration, origin_calibration: (n,) bool,
    whether the image and the origin are calibration images.
    """

    image: tuple[str, ...]
    origin: tuple[str, ...]
    hypothesis: tuple[str, ...]
    premise: tuple[tuple[str, ...], ...]
    yes: np.ndarray
    no: np.ndarray
    calibration: np.ndarray
    origin_calibration: np.ndarray

    def __post_init__(self) -> None:
        sizes = {field.name: len(getattr(self, field.name)) for field in fields(self)}
        if len(set(sizes.values())) > 1:
            raise ValueError(f"the columns differ in length: {sizes}")

    def __len__(self) -> int:
        return len(self.image)

    @property
    def label(self) -> np.ndarray:
        """(n,) int64: 1 where more than half said yes; a tie is 0."""
        return (self.yes > self.no).astype(np.int64)

    @property
    def tie(self) -> np.ndarray:
        """(n,) bool: as many yes as no."""
        return self.yes == self.no

    @property
    def cross(self) -> np.ndarray:
        """(n,) bool: the caption was written for another image."""
        return np.array(self.image, dtype=object) != np.array(self.origin, dtype=object)

    def take(self, rows: Sequence[int] | np.ndarray) -> "Judged":
        """Some pairs, in the order of `rows` (indices, or bool of length n)."""
        chosen = np.arange(len(self))[np.asarray(rows)]
        columns: dict[str, Any] = {}
        for field in fields(self):
            values = getattr(self, field.name)
            array = isinstance(values, np.ndarray)
            columns[field.name] = values[chosen] if array else tuple(values[i] for i in chosen)
        return Judged(**columns)

    def samples(self, row_of: Mapping[str, int], kind: Kind = "mme") -> Samples:
        """As test samples, in order. row_of: image name -> row of the image table.

        kind: "mme" image and merged captions, "ve" the image alone, "te" the captions alone.
        Raises ValueError for an image without a row.
        """
        n = len(self)
        return Samples(
            premise=("",) * n if kind == "ve" else tuple(merged(texts) for texts in self.premise),
            hypothesis=self.hypothesis,
            image=np.full(n, -1) if kind == "te" else image_rows(self.image, row_of),
            label=self.label,
            kind=(kind,) * n,
            source=("crowd judgments",) * n,
            group=self.image,
        )


def merged(captions: Sequence[str]) -> str:
    """The captions of an image as one premise text."""
    return " ".join(captions)


def image_rows(names: Sequence[str], row_of: Mapping[str, int]) -> np.ndarray:
    """(n,) int64 rows of an image table; raises ValueError that names an image without one."""
    for name in names:
        if name not in row_of:
            raise ValueError(f"the image table has no row for {name}")
    return np.array([row_of[name] for name in names], dtype=np.int64)


def load(folder: Path | None = None) -> Judged:
    """All judged pairs, in file order.

    folder: Flickr8k's; by default `flickr8k` in the data folder. Raises DataError for a missing
    file, and for a pair whose image is not a test image or has not the caption it names.
    """
    folder = data_dir() / flickr8k.NAME if folder is None else folder
    table, _ = flickr8k.read_judgments(folder)
    captions = flickr8k.read_captions(folder)
    names = sorted(flickr8k.read_split("test", folder))
    known, held = set(names), set(names[::EVERY])
    judged = list(zip(table["image"], table["caption_image"], table["caption"], strict=True))
    for image, origin, number in judged:
        if not {image, origin} <= known or number >= len(captions.get(origin, ())):
            what = f"judges {image} with {origin}#{number}: no test image, or no such caption"
            path = folder / "CrowdFlowerAnnotations.txt"
            raise DataError(Problem(path, None, what, flickr8k.GET_TEXT))
    return Judged(
        image=tuple(table["image"]),
        origin=tuple(table["caption_image"]),
        hypothesis=tuple(captions[origin][number] for _, origin, number in judged),
        premise=tuple(
            tuple(text for k, text in enumerate(captions[image]) if (image, k) != (origin, number))
            for image, origin, number in judged
        ),
        yes=table["yes"].to_numpy(np.int64),
        no=table["no"].to_numpy(np.int64),
        calibration=table["image"].isin(held).to_numpy(bool),
        origin_calibration=table["caption_image"].isin(held).to_numpy(bool),
    )


# Protocols ---------------------------------------------------------------------------------------


def parts(judged: Judged, strict: bool = False) -> tuple[Judged, Judged]:
    """(calibration, evaluation): pairs of every fifth test image by name, and the others.

    strict: the caption's origin must be on the same side as the image; other pairs are left out.
    """
    held = judged.calibration
    if not strict:
        return judged.take(held), judged.take(~held)
    origin = judged.origin_calibration
    return judged.take(held & origin), judged.take(~held & ~origin)


def protocol(
    name: str, judged: Judged, seed: int = 0, scores: np.ndarray | None = None
) -> np.ndarray:
    """Rows of `judged` that belong to a protocol, ascending. Only cross-image pairs without ties.

    "CF-all": all. "CF-unanimous": nobody disagrees. "CF-balanced": all yes and as many random no,
    drawn with `seed`. "CF-hard": as many no as yes of each image, those that `scores` (n,), a
    retrieval model's that is not under test, puts highest (fewer where an image has fewer).
    Raises ValueError for an unknown name, and for CF-hard without scores.
    """
    sound = judged.cross & ~judged.tie
    yes, no = (np.flatnonzero(sound & (judged.label == value)) for value in (1, 0))
    if name == "CF-all":
        return np.flatnonzero(sound)
    if name == "CF-unanimous":
        return np.flatnonzero(sound & ((judged.yes == 0) | (judged.no == 0)))
    if name == "CF-balanced":
        drawn = np.random.default_rng(seed).choice(no, min(len(yes), len(no)), replace=False)
        return np.sort(np.concatenate([yes, drawn]))
    if name == "CF-hard":
        if scores is None or len(scores) != len(judged):
            raise ValueError("CF-hard needs a retrieval model's score of each judged pair")
        return np.sort(np.concatenate([yes, _hardest(judged, yes, no, np.asarray(scores))]))
    raise ValueError(f"no protocol {name!r}: choose from {', '.join(PROTOCOLS)}")


def _hardest(judged: Judged, yes: np.ndarray, no: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Of each image's no as many as it has yes, by falling score (first in the file at a tie)."""
    image = np.array(judged.image, dtype=object)
    wanted = pd.Series(image[yes]).value_counts()
    order = no[np.argsort(-scores[no], kind="stable")]
    place = pd.Series(image[order]).groupby(image[order]).cumcount().to_numpy()
    return order[place < wanted.reindex(image[order], fill_value=0).to_numpy()]


def sampled(judged: Judged, most: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of "CF-all", ascending, with at most `most` pairs without a yes, and weights (n,).

    Weights say how many pairs each row stands for. The many without a yes are drawn with `seed`.
    """
    every = protocol("CF-all", judged)
    yes, no = (every[judged.label[every] == value] for value in (1, 0))
    drawn = np.random.default_rng([seed, 22]).choice(no, min(most, len(no)), replace=False)
    rows = np.sort(np.concatenate([yes, drawn]))
    return rows, np.where(judged.label[rows] == 0, len(no) / max(len(drawn), 1), 1.0)


def ranking(judged: Judged, scores: np.ndarray) -> pd.DataFrame:
    """Rank each image's judged captions: mean average precision and precision at 1.

    Only cross-image pairs without ties, and only images with a yes. One row an image (its name):
    pairs, prevalence (the expected precision of a random order), average_precision, precision_at_1.
    Equal scores share their ranks: precision at 1 is then the share of yes among the best.
    scores: (n,) higher is better.
    """
    from sklearn.metrics import average_precision_score  # late: its import takes a second

    rows = protocol("CF-all", judged)
    table = pd.DataFrame(
        {
            "image": np.array(judged.image, dtype=object)[rows],
            "label": judged.label[rows],
            "score": np.asarray(scores)[rows],
        }
    )
    found = {}
    for name, group in table.groupby("image"):
        if group["label"].any():
            best = group["score"] == group["score"].max()
            found[name] = {
                "pairs": len(group),
                "prevalence": group["label"].mean(),
                "average_precision": average_precision_score(group["label"], group["score"]),
                "precision_at_1": group["label"][best].mean(),
            }
    return pd.DataFrame.from_dict(found, orient="index")


# Guard -------------------------------------------------------------------------------------------


def assert_untouched(
    samples: Samples, judged: Judged, names: Sequence[str], whole_images: bool = True
) -> None:
    """Raise ValueError where training samples hold a judged pair of image and caption.

    names: the image of each row of the samples' image table. Sentences are compared without case
    and punctuation. A pair is also found without its image, where the premise text is the image's
    captions or one of them; and, with `whole_images`, where a judged image is shown at all.
    """
    said: dict[str, set[str]] = {}  # image -> hypotheses judged with it
    reads: dict[str, set[str]] = {}  # premise text -> hypotheses judged with its image
    for image, hypothesis, premise in zip(
        judged.image, judged.hypothesis, judged.premise, strict=True
    ):
        key = normalised(hypothesis)
        said.setdefault(image, set()).add(key)
        for text in (merged(premise), *premise):
            reads.setdefault(normalised(text), set()).add(key)
    for row in range(len(samples)):
        hypothesis = normalised(samples.hypothesis[row])
        shown = names[samples.image[row]] if samples.image[row] >= 0 else ""
        if hypothesis in said.get(shown, ()):
            what = f"is the judged pair of {shown} and {samples.hypothesis[row]!r}"
        elif hypothesis in reads.get(normalised(samples.premise[row]), ()):
            what = f"is the judged pair of {samples.premise[row]!r} and {samples.hypothesis[row]!r}"
        elif whole_images and shown in said:
            what = f"shows {shown}, an image of the judgments"
        else:
            continue
        raise ValueError(
            f"training sample {row} ({samples.source[row]}) {what}: judged pairs are for tests only"
        )


# Figures -----------------------------------------------------------------------------------------


def figures(judged: Judged) -> dict[str, float]:
    """The crowd's figures: counts, how often captions fit other images, and who agrees with whom.

    Agreement (shares) is that of pairs with three votes: observed, Fleiss' kappa, and kappa with
    free marginals. "one voter": against two others who agree, over cross-image pairs.
    """
    cross, label = judged.cross, judged.label == 1
    image, hypothesis = pd.Series(judged.image), pd.Series(judged.origin)
    fits, judged_of = image[cross & label].value_counts(), image[cross].value_counts()
    images, judged_with = hypothesis[cross & label].value_counts(), hypothesis[cross].value_counts()
    return {
        "pairs": len(judged),
        "votes": int((judged.yes + judged.no).sum()),
        "yes": int(label.sum()),
        "images": image.nunique(),
        "captions": hypothesis.nunique(),
        "own pairs": int((~cross).sum()),
        "own pairs, yes": int((~cross & label).sum()),
        "own pairs, no": int((~cross & (judged.no > judged.yes)).sum()),
        "cross pairs": int(cross.sum()),
        "cross pairs, yes": int((cross & label).sum()),
        "cross pairs, ties": int((cross & judged.tie).sum()),
        "cross pairs, no": int((cross & (judged.no > judged.yes)).sum()),
        "cross pairs, unanimous yes": int((cross & (judged.no == 0)).sum()),
        "cross pairs, unanimous no": int((cross & (judged.yes == 0)).sum()),
        "images with a foreign yes": len(fits),
        "most foreign yes of an image": int(fits.max()),
        "of judged": int(judged_of[fits.idxmax()]),
        "captions with a foreign yes": len(images),
        "most foreign images of a caption": int(images.max()),
        "of judged images": int(judged_with[images.idxmax()]),
        **{f"all: {name}": value for name, value in agreement(judged).items()},
        **{f"cross: {name}": value for name, value in agreement(judged.take(cross)).items()},
        **one_voter(judged.take(cross)),
        **symmetry(judged),
    }


def agreement(judged: Judged) -> dict[str, float]:
    """Observed agreement, Fleiss' kappa and free-marginal kappa of the pairs with three votes."""
    three = judged.yes + judged.no == 3
    yes = judged.yes[three]
    observed = float(np.mean((yes == 0) | (yes == 3)) + np.mean((yes == 1) | (yes == 2)) / 3)
    share = yes.mean() / 3
    chance = share**2 + (1 - share) ** 2
    return {
        "observed": observed,
        "fleiss_kappa": float((observed - chance) / (1 - chance)),
        "free_kappa": 2 * observed - 1,
    }


def one_voter(judged: Judged) -> dict[str, float]:
    """A single voter as a classifier of what two agreeing others say (pairs with three votes).

    Precision, recall and F0.5 at the crowd's prevalence, and re-weighted to half positives.
    """
    three = judged.yes + judged.no == 3
    no_yes, one, two, all_yes = np.bincount(judged.yes[three], minlength=4)[:4]
    hits, misses, alarms, rejections = 3 * all_yes, two, one, 3 * no_yes
    recall, false = hits / (hits + misses), alarms / (alarms + rejections)
    found = {}
    for name, precision in (
        ("one voter", hits / (hits + alarms)),
        ("one voter, half positive", recall / (recall + false)),
    ):
        found[f"{name}: precision"] = float(precision)
        found[f"{name}: f05"] = float(1.25 * precision * recall / (0.25 * precision + recall))
    return {**found, "one voter: recall": float(recall)}


def symmetry(judged: Judged) -> dict[str, int]:
    """Pairs of images judged both ways, each with the other's caption: how many yes."""
    answers = {
        (image, origin): int(label)
        for image, origin, label in zip(judged.image, judged.origin, judged.label, strict=True)
    }
    counts = np.zeros(3, dtype=np.int64)
    for (image, origin), label in answers.items():
        if image < origin and (origin, image) in answers:
            counts[label + answers[origin, image]] += 1
    return {
        "both ways": int(counts.sum()),
        "both ways, yes and yes": int(counts[2]),
        "both ways, yes and no": int(counts[1]),
        "both ways, no and no": int(counts[0]),
    }


def shared_captions(captions: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Captions, without case and punctuation, that stand under several images, and these images.

    They are certain positives that the data set counts as negatives.
    """
    images: dict[str, dict[str, None]] = {}
    for name, texts in captions.items():
        for text in texts:
            images.setdefault(normalised(text), {})[name] = None
    return {text: tuple(names) for text, names in images.items() if len(names) > 1}
