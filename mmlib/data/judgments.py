"""Flickr8k's crowd judgments as a test of entailment: does this caption describe that image?

Each pair is a test image and the third caption (`#2`) of a test image, mostly of another one; at
least three people said yes or no (Hodosh, Young, Hockenmaier, JAIR 2013). The pairs are for
calibration and tests only: `assert_untouched` refuses training samples that hold one.

`parts` keeps the calibration images (every fifth) apart from those of the evaluation, `decided` are
the pairs that count. State the prevalence with every figure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mmlib.core.entailment_pairs import Kind, Samples
from mmlib.core.records import normalised
from mmlib.data import flickr8k
from mmlib.data.tables import dataset_folder, error_at

EVERY = 5  # one image of five, by name, is for calibration


@dataclass(frozen=True, eq=False)
class Judged:
    """Judged pairs of an image and a caption. All fields have length n.

    image: (n,) names. origin: (n,) names of the images that the captions were written for.
    hypothesis: (n,) the captions. premise: (n,) the image's own captions, without the hypothesis
    where it is one of them. yes, no: (n,) votes. calibration: (n,) bool, whether the image is one
    of those for calibration.
    """

    image: tuple[str, ...]
    origin: tuple[str, ...]
    hypothesis: tuple[str, ...]
    premise: tuple[tuple[str, ...], ...]
    yes: np.ndarray
    no: np.ndarray
    calibration: np.ndarray

    def __len__(self) -> int:
        return len(self.image)

    @property
    def label(self) -> np.ndarray:
        """(n,) int64: 1 where more than half said yes; a tie is 0."""
        return (self.yes > self.no).astype(np.int64)

    @property
    def cross(self) -> np.ndarray:
        """(n,) bool: the caption was written for another image."""
        return np.array(self.image, dtype=object) != np.array(self.origin, dtype=object)

    def take(self, rows: Sequence[int] | np.ndarray) -> "Judged":
        """Some pairs, in the order of `rows` (indices, or bool of length n)."""
        chosen = np.arange(len(self))[np.asarray(rows)]
        columns: dict[str, Any] = {}
        for name, values in vars(self).items():
            array = isinstance(values, np.ndarray)
            columns[name] = values[chosen] if array else tuple(values[i] for i in chosen)
        return Judged(**columns)

    def samples(self, row_of: Mapping[str, int]) -> Samples:
        """As test samples of image and merged captions, in order.

        row_of: image name -> row of the image table. Raises ValueError for an image without a row.
        """
        premises, images = map(merged, self.premise), image_rows(self.image, row_of)
        sources = ("crowd judgments",) * len(self)
        return image_samples(premises, self.hypothesis, images, self.label, sources, self.image)[1]


def merged(captions: Sequence[str]) -> str:
    """The captions of an image as one premise text."""
    return " ".join(captions)


def image_rows(names: Sequence[str], row_of: Mapping[str, int]) -> np.ndarray:
    """(n,) int64 rows of an image table; raises ValueError that names an image without one."""
    for name in names:
        if name not in row_of:
            raise ValueError(f"the image table has no row for {name}")
    return np.array([row_of[name] for name in names], dtype=np.int64)


def image_samples(
    premise: Iterable[str],
    hypothesis: tuple[str, ...],
    image: np.ndarray,
    label: np.ndarray,
    source: tuple[str, ...],
    group: tuple[str, ...],
) -> tuple[Samples, Samples]:
    """The same pairs as "ve" samples, which have no text as premise, and as "mme" samples."""

    def of_kind(kind: Kind, texts: Iterable[str]) -> Samples:
        kinds = (kind,) * len(hypothesis)
        return Samples(tuple(texts), hypothesis, image, label, kinds, source, group)

    return of_kind("ve", [""] * len(hypothesis)), of_kind("mme", premise)


def load(folder: Path | None = None) -> Judged:
    """All judged pairs, in file order.

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
            path = flickr8k.judgment_file(folder)
            raise error_at(path, None, problem, flickr8k.GET_TEXT)
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
        calibration=table["image"].isin(names[::EVERY]).to_numpy(bool),
    )


def parts(judged: Judged) -> tuple[Judged, Judged]:
    """(calibration, evaluation): pairs of every fifth test image by name, and the others."""
    return judged.take(judged.calibration), judged.take(~judged.calibration)


def decided(judged: Judged) -> np.ndarray:
    """Rows of pairs with another image's caption that are no tie, ascending."""
    return np.flatnonzero(judged.cross & (judged.yes != judged.no))


def sampled(judged: Judged, most: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of `decided`, ascending, with at most `most` pairs without a yes, and weights (n,).

    A weight is the number of pairs that a row represents. `seed` draws those without a yes.
    """
    every = decided(judged)
    yes, no = (every[judged.label[every] == value] for value in (1, 0))
    drawn = np.random.default_rng([seed, 22]).choice(no, min(most, len(no)), replace=False)
    rows = np.sort(np.concatenate([yes, drawn]))
    return rows, np.where(judged.label[rows] == 0, len(no) / max(len(drawn), 1), 1.0)


def assert_untouched(samples: Samples, judged: Judged, names: Sequence[str]) -> None:
    """Raise ValueError where training samples hold a judged pair of image and caption.

    names: the image of each row of the samples' image table. Sentences are compared without case
    and punctuation. A pair is also found without its image, where the premise text is the image's
    captions or one of them; and where a judged image is shown at all.
    """
    of_image: dict[str, set[str]] = {}  # image -> hypotheses judged with it
    of_premise: dict[str, set[str]] = {}  # premise text -> hypotheses judged with its image
    for image, hypothesis, premise in zip(
        judged.image, judged.hypothesis, judged.premise, strict=True
    ):
        key = normalised(hypothesis)
        of_image.setdefault(image, set()).add(key)
        for text in (merged(premise), *premise):
            of_premise.setdefault(normalised(text), set()).add(key)
    for row in range(len(samples)):
        hypothesis = normalised(samples.hypothesis[row])
        shown = names[samples.image[row]] if samples.image[row] >= 0 else ""
        if hypothesis in of_image.get(shown, ()):
            fault = f"is the judged pair of {shown} and {samples.hypothesis[row]!r}"
        elif hypothesis in of_premise.get(normalised(samples.premise[row]), ()):
            fault = (
                f"is the judged pair of {samples.premise[row]!r} and {samples.hypothesis[row]!r}"
            )
        elif shown in of_image:
            fault = f"shows {shown}, an image of the judgments"
        else:
            continue
        raise ValueError(
            f"training sample {row} ({samples.source[row]}) {fault}: "
            "judged pairs are for tests only"
        )
