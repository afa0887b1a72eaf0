"""SCAN's text-to-image cross-attention, the kind of scorer that CORA's query time is set against.

Lee, Chen, Hua, Hu and He, "Stacked Cross Attention for Image-Text Matching", ECCV 2018, Sec. 3.1
and 3.2. Each word looks for its own regions in every image, so nothing of the comparison can be
made ahead of the query, and its time grows with the number of images.
"""

import time
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

TEMPERATURE = 9.0  # λ₁
BLOCK = 16  # images in memory at a time
TINY = 1e-8  # keeps divisions by a length of 0 finite, as in the authors' code


@torch.no_grad()
def cross_attention(words: np.ndarray, regions: np.ndarray) -> np.ndarray:
    """The score (images,) of one sentence with each image, float32, higher is better.

    words (W, D), regions (images, R, D), of any length: only their directions count.
    For each word, regions are weighted by the softmax of λ₁ times their clipped cosines, which are
    divided per region by their length over the words; the word's relevance is its cosine with the
    weighted sum of regions, and the score is the mean over the words. The authors' code clips with
    a leak of 0.1; the paper, and this, at 0.
    """
    e = F.normalize(torch.as_tensor(words, dtype=torch.float32), dim=1, eps=TINY)
    scores = np.empty(len(regions), dtype=np.float32)
    for start in range(0, len(regions), BLOCK):
        part = torch.as_tensor(np.array(regions[start : start + BLOCK], dtype=np.float32))
        v = F.normalize(part, dim=2, eps=TINY)
        scores[start : start + BLOCK] = _relevance(e, v).mean(dim=1).numpy()
    return scores


def _relevance(words: Tensor, regions: Tensor) -> Tensor:
    """Unit words (W, D), unit regions (b, R, D) -> relevance (b, W) of each word."""
    cosines = regions @ words.T
    clipped = F.normalize(cosines.relu(), dim=2, eps=TINY)  # per region, over the words
    weights = (TEMPERATURE * clipped).softmax(dim=1)  # over the regions
    attended = weights.transpose(1, 2) @ regions  # (b, W, D)
    dot = (weights * cosines).sum(dim=1)  # words · attended, without the product
    return dot / attended.norm(dim=2).clamp_min(TINY)


def time_cross_attention(
    sizes: Sequence[int] = (10, 100, 1_000, 10_000),
    regions: int = 36,
    width: int = 1024,
    words: int = 12,
    repeats: int = 5,
    seed: int = 0,
) -> dict[int, float]:
    """Median seconds of one query with each number of images, as `mmlib.core.ranking.time_search`.

    At most 1,024 images of random regions are made (150 MB with the defaults) and scored again and
    again: 10⁵ images would take 15 GB. So reading them from a disk, as most real collections
    would need it, is not counted, nor is encoding the sentence. Raises ValueError for no sizes.
    """
    if not sizes or min(sizes) < 1 or repeats < 1:
        raise ValueError(f"sizes {list(sizes)}, repeats {repeats}: each must be at least 1")
    rng = np.random.default_rng(seed)
    pool = rng.standard_normal((min(1024, max(sizes)), regions, width), dtype=np.float32)
    medians = {}
    for size in sizes:
        times = []
        for _ in range(repeats + 1):
            query = rng.standard_normal((words, width), dtype=np.float32)
            start = time.perf_counter()
            for first in range(0, size, len(pool)):
                cross_attention(query, pool[: size - first])
            times.append(time.perf_counter() - start)
        medians[size] = float(np.median(times[1:]))  # the first warms up
    return medians
