"""Pairs of an image and a caption that need no annotation: positives and negatives."""

from collections.abc import Sequence

import numpy as np

from mmlib.core.entailment_pairs import Samples, joined
from mmlib.core.records import normalised
from mmlib.data.judgments import image_samples, merged
from mmlib.data.overlap import Weights, overlap_score

HARD_OF = 50  # a hard negative is the caption of highest overlap among so many


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
    pairs: list[tuple[str, str, int, int, str]] = []
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
            if j != i and normalised(text) not in excluded:
                candidates.append(text)
        hard = max(candidates[1:], key=lambda text: overlap_score(texts, text, weights))
        for premise, hypothesis, label, source in (
            (others_of_image, texts[chosen], 1, "own caption"),
            (texts, candidates[0], 0, "random caption"),
            (texts, hard, 0, "hard caption"),
        ):
            captions_of[merged(premise)] = premise
            pairs.append((merged(premise), hypothesis, int(i), label, source))
    premises, hypotheses, images, labels, sources = zip(*pairs, strict=True)
    groups = tuple(map(str, images))
    image_only, with_text = image_samples(
        premises, hypotheses, np.array(images), np.array(labels), sources, groups
    )
    return joined([with_text, image_only]), captions_of
