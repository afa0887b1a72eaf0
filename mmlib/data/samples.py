"""Pairs of an image and a sentence as samples; positives and negatives that need no annotation."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from mmlib.core.records import Kind, Samples, joined, normalised
from mmlib.data.overlap import Weights, overlap_parts

HARD_OF = 50  # a hard negative is the caption of highest overlap among so many


def merged(captions: Sequence[str]) -> str:
    """The captions of an image as one premise text."""
    return " ".join(captions)


def image_samples(
    premise: Iterable[str],
    hypothesis: Sequence[str],
    names: Sequence[str],
    row_of: Mapping[str, int],
    label: np.ndarray,
    source: Sequence[str],
) -> tuple[Samples, Samples]:
    """The same pairs as "ve" samples, which have no text as premise, and as "mme" samples.

    names: the image of each pair, which is its group. row_of: name -> row of the image table.
    label: bool or 0 and 1. Raises ValueError for an image without a row.
    """
    if lacking := [name for name in names if name not in row_of]:
        raise ValueError(f"the image table has no row for {lacking[0]}")
    rows = np.array([row_of[name] for name in names], dtype=np.int64)

    def of_kind(kind: Kind, texts: Iterable[str]) -> Samples:
        kinds, labels = (kind,) * len(names), np.asarray(label, dtype=np.int64)
        return Samples(
            tuple(texts), tuple(hypothesis), rows, labels, kinds, tuple(source), tuple(names)
        )

    return of_kind("ve", [""] * len(names)), of_kind("mme", premise)


def caption_pairs(
    captions: Sequence[Sequence[str]], rows: np.ndarray, seed: int = 0
) -> tuple[Samples, dict[str, tuple[str, ...]]]:
    """Positives and negatives made of captions, and each premise's captions before merging.

    captions: those of each image of the table; rows: the images to use. Each gives one of its
    captions with the other four as premise ("own caption", label 1), a "random caption" of another
    image and a "hard caption" (label 0): that of highest overlap among 50 others. Captions that
    equal one of the image's own are left out. Each pair comes as "mme" and then as "ve".
    Raises ValueError for an image whose captions include those of all other images.
    """
    rng, weights = np.random.default_rng([seed, 21]), Weights(captions[i] for i in rows)
    pairs: list[tuple[str, str, str, int, str]] = []
    captions_of = {}
    all_texts = {normalised(text) for i in rows for text in captions[i]}
    for i in rows:
        texts = tuple(captions[i])
        chosen = int(rng.integers(len(texts)))
        others_of_image = texts[:chosen] + texts[chosen + 1 :]
        excluded = {normalised(text) for text in texts}
        if excluded == all_texts:
            raise ValueError(f"image {i}: no other image has a caption that it lacks")
        candidates: list[str] = []
        while len(candidates) < HARD_OF + 1:
            j = int(rng.choice(rows))
            text = captions[j][int(rng.integers(len(captions[j])))]
            if normalised(text) not in excluded:
                candidates.append(text)
        hard = max(candidates[1:], key=lambda text: sum(overlap_parts(texts, text, weights)))
        for premise, hypothesis, label, source in (
            (others_of_image, texts[chosen], 1, "own caption"),
            (texts, candidates[0], 0, "random caption"),
            (texts, hard, 0, "hard caption"),
        ):
            captions_of[merged(premise)] = premise
            pairs.append((merged(premise), hypothesis, str(i), label, source))
    premises, hypotheses, images, labels, sources = zip(*pairs, strict=True)
    row_of = {str(i): int(i) for i in rows}
    image_only, with_text = image_samples(
        premises, hypotheses, images, row_of, np.array(labels), sources
    )
    return joined([with_text, image_only]), captions_of
