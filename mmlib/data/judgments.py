"""Flickr8k's crowd judgments as a test of entailment: does this caption describe that image?

Each pair is a test image and the third caption (`#2`) of a test image, mostly of another one; at
least three people said yes or no (Hodosh, Young, Hockenmaier, JAIR 2013). The pairs are for
calibration and tests only: `assert_untouched` refuses training samples that hold one.

Calibration has images of its own (every fifth); `decided` are the pairs that count. State the
prevalence with every figure.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from mmlib.core.records import Samples, normalised
from mmlib.data import flickr8k
from mmlib.data.samples import image_samples, merged
from mmlib.data.tables import dataset_folder, error_at

EVERY = 5  # one image of five, by name, is for calibration


def load(folder: Path | None = None) -> pd.DataFrame:
    """All judged pairs of an image and a caption, in file order; yes, no: the votes.

    Columns image, caption_image (for which the caption was written), caption (its number), yes, no,
    and: hypothesis, the caption; premise, a tuple of the image's own captions, without the
    hypothesis where it is one of them; label, 1 where more than half said yes (a tie is 0); cross,
    whether the caption is of another image; calibration, whether the image is for that.

    folder: Flickr8k's; by default `flickr8k` in the data folder. Raises DataError for a missing
    file, and for a pair whose image is not a test image or has not the caption it names.
    """
    folder = dataset_folder(flickr8k.NAME, folder)
    table, _ = flickr8k.read_judgments(folder)
    captions = flickr8k.read_captions(folder)
    names = sorted(flickr8k.read_splits(folder)["test"])
    judged = list(zip(table["image"], table["caption_image"], table["caption"], strict=True))
    for image, origin, number in judged:
        if not {image, origin} <= set(names) or number >= len(captions.get(origin, ())):
            problem = f"judges {image} with {origin}#{number}: no test image, or no such caption"
            path = flickr8k.find("judgments", folder)
            raise error_at(path, None, problem, flickr8k.GET_TEXT)
    return table.assign(
        hypothesis=[captions[origin][number] for _, origin, number in judged],
        premise=[
            tuple(text for k, text in enumerate(captions[image]) if (image, k) != (origin, number))
            for image, origin, number in judged
        ],
        label=(table["yes"] > table["no"]).astype(np.int64),
        cross=table["image"] != table["caption_image"],
        calibration=table["image"].isin(names[::EVERY]),
    )


def decided(judged: pd.DataFrame) -> pd.DataFrame:
    """The pairs with another image's caption that are no tie."""
    return judged[judged["cross"] & (judged["yes"] != judged["no"])]


def sampled(judged: pd.DataFrame, most: int, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Of the `decided` pairs all with a yes, and at most `most` without; and weights (n,).

    A weight is the number of pairs that a row represents. `seed` draws those without a yes.
    """
    pairs = decided(judged)
    label = pairs["label"].to_numpy()
    yes, no = np.flatnonzero(label), np.flatnonzero(label == 0)
    drawn = np.random.default_rng([seed, 22]).choice(no, min(most, len(no)), replace=False)
    rows = np.sort(np.concatenate([yes, drawn]))
    return pairs.iloc[rows], np.where(label[rows] == 0, len(no) / max(len(drawn), 1), 1.0)


def samples(judged: pd.DataFrame, row_of: Mapping[str, int]) -> Samples:
    """Judged pairs as test samples of image and merged captions, in order.

    row_of: image name -> row of the image table. Raises ValueError for an image without a row.
    """
    sources = ("crowd judgments",) * len(judged)
    premises, names = map(merged, judged["premise"]), tuple(judged["image"])
    label = judged["label"].to_numpy()
    return image_samples(premises, tuple(judged["hypothesis"]), names, row_of, label, sources)[1]


def assert_untouched(samples: Samples, judged: pd.DataFrame, names: Sequence[str]) -> None:
    """Raise ValueError where training samples hold a judged pair of image and caption.

    names: the image of each row of the samples' image table. Sentences are compared without case
    and punctuation. A pair is also found without its image, where the premise text is the image's
    captions or one of them; and where a judged image is shown at all.
    """
    of_image: dict[str, set[str]] = {}  # image -> hypotheses judged with it
    of_premise: dict[str, set[str]] = {}  # premise text -> hypotheses judged with its image
    for image, hypothesis, premise in zip(
        judged["image"], judged["hypothesis"], judged["premise"], strict=True
    ):
        key = normalised(hypothesis)
        of_image.setdefault(image, set()).add(key)
        for text in (merged(premise), *premise):
            of_premise.setdefault(normalised(text), set()).add(key)
    for row, (premise, hypothesis) in enumerate(
        zip(samples.premise, samples.hypothesis, strict=True)
    ):
        shown = names[samples.image[row]] if samples.image[row] >= 0 else ""
        if normalised(hypothesis) in of_image.get(shown, ()):
            fault = f"is the judged pair of {shown} and {hypothesis!r}"
        elif normalised(hypothesis) in of_premise.get(normalised(premise), ()):
            fault = f"is the judged pair of {premise!r} and {hypothesis!r}"
        elif shown in of_image:
            fault = f"shows {shown}, an image of the judgments"
        else:
            continue
        raise ValueError(
            f"training sample {row} ({samples.source[row]}) {fault}: "
            "judged pairs are for tests only"
        )
