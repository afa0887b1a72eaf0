"""Pairs of an image and a caption whose labels nobody gave: own captions, and those of others."""

from collections.abc import Sequence

import numpy as np

from mmlib.core.entailment_pairs import Kind, Samples, joined
from mmlib.core.records import normalised
from mmlib.data.judgments import merged
from mmlib.data.overlap import Weights, overlap_score

HARD_OF = 50  # a hard negative is the caption of highest overlap among so many


def caption_pairs(
    captions: Sequence[Sequence[str]], rows: np.ndarray, seed: int = 0
) -> tuple[Samples, dict[str, tuple[str, ...]]]:
    """Positives and negatives made of captions, and what each premise was merged from.

    captions: of each image of the table; rows: the images to use. Each gives one of its captions
    with the other four as premise ("own caption", label 1), a "random caption" of another image and
    a "hard caption" (label 0): that of highest overlap among 50 others. Captions that are the
    image's own word for word are left out. Each pair comes as "mme" and as "ve".
    Raises ValueError for an image of which no other has a caption that it lacks.
    """
    rng, weights = np.random.default_rng([seed, 21]), Weights(captions[i] for i in rows)
    found: list[tuple[str, str, int, int, str]] = []
    known = {}
    all_said = {normalised(text) for i in rows for text in captions[i]}
    for i in rows:
        own = list(captions[i])
        left = int(rng.integers(len(own)))
        rest = tuple(text for k, text in enumerate(own) if k != left)
        said = {normalised(text) for text in own}
        if said == all_said:
            raise ValueError(f"image {i}: no other image has a caption that it lacks")
        others: list[str] = []
        while len(others) < HARD_OF + 1:
            j = int(rng.choice(rows))
            text = captions[j][int(rng.integers(len(captions[j])))]
            if j != i and normalised(text) not in said:
                others.append(text)
        hard = max(others[1:], key=lambda text: overlap_score(own, text, weights))
        for texts, sentence, truth, what in (
            (rest, own[left], 1, "own caption"),
            (tuple(own), others[0], 0, "random caption"),
            (tuple(own), hard, 0, "hard caption"),
        ):
            known[merged(texts)] = texts
            found.append((merged(texts), sentence, int(i), truth, what))
    premise, hypothesis, image, label, source = zip(*found, strict=True)

    def of(kind: Kind, texts: Sequence[str]) -> Samples:
        kinds: tuple[Kind, ...] = (kind,) * len(found)
        return Samples(
            tuple(texts), hypothesis, np.array(image), np.array(label), kinds, source,
            tuple(map(str, image)),
        )  # fmt: skip

    return joined([of("mme", premise), of("ve", ("",) * len(found))]), known
