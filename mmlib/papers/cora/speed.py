"""How long one query takes (Section 7): CORA's parts, and SCAN's cross-attention beside them.

SCAN: Lee, Chen, Hua, Hu and He, "Stacked Cross Attention for Image-Text Matching", ECCV 2018,
Sections 3.1 and 3.2. Each word looks for its own regions in every image, so nothing can be made
ahead of the query, and its time grows with the number of images.
"""

import time

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from mmlib.core.jobs import Answer, Job, Run
from mmlib.core.ranking import flat_index
from mmlib.papers.cora.batches import Arrays
from mmlib.papers.cora.data.texts import Reader
from mmlib.papers.cora.systems import CORA, SIZES, Settings
from mmlib.papers.cora.train import fresh
from mmlib.scenegraph import graph_of

REPEATS, BLOCK = 5, 16  # timings; images in memory at a time
REGIONS, LENGTH = 36, 12  # regions of an image, words of a caption
TEMPERATURE, TINY = 9.0, 1e-8  # λ₁; keeps divisions by a length of 0 finite (authors' code)


@torch.no_grad()
def cross_attention(words: Tensor, regions: Tensor) -> Tensor:
    """SCAN's score (images,) of a sentence (W, D) with images (images, R, D), higher is better.

    For each word, regions are weighted by the softmax of λ₁ times their clipped cosines, which are
    divided per region by their length over the words; the word's relevance is its cosine with the
    weighted sum of regions, and the score is the mean over the words. The authors' code clips with
    a leak of 0.1; the paper, and this, at 0.
    """
    words, scores = F.normalize(words, dim=1, eps=TINY), []
    for block in regions.split(BLOCK):
        block = F.normalize(block, dim=2, eps=TINY)
        cosines = block @ words.T  # (b, R, W)
        clipped = F.normalize(cosines.relu(), dim=2, eps=TINY)
        weights = (TEMPERATURE * clipped).softmax(dim=1)  # over the regions
        attended = weights.transpose(1, 2) @ block  # (b, W, D)
        dot = (weights * cosines).sum(dim=1)  # words · attended, without the product
        scores.append((dot / attended.norm(dim=2).clamp_min(TINY)).mean(dim=1))
    return torch.cat(scores)


def time_queries(job: Job, arrays: Arrays, run: Run = Run()) -> Answer:
    """Median seconds of a query's parts, a row a repetition.

    "parse", "encode": of one test caption; "search n", "attend n": of n random images, which take
    the time of real ones. Weights are fresh, which take the time of trained ones; features of
    1,024 images are scored again and again, so reading them from a disk is not counted.
    """
    from mmlib.scenegraph.parser import load_english

    settings, parse = Settings(**job.settings), load_english()
    reader = Reader(arrays.vocabulary, settings.delimiters)
    model = fresh(CORA, settings, arrays).eval()
    pool = torch.randn(min(1024, max(SIZES)), REGIONS, settings.width)
    rows = []
    for repeat in range(REPEATS + 1):
        seconds: dict[str, list[float]] = {"parse": [], "encode": []}
        for caption in arrays.queries[repeat :: REPEATS + 1]:
            started = time.perf_counter()
            graph = graph_of(parse(caption))
            parsed = time.perf_counter()
            with torch.no_grad():
                model.encode_texts(reader.graphs([graph]).batch(np.array([0])))
            seconds["parse"].append(parsed - started)
            seconds["encode"].append(time.perf_counter() - parsed)
        for size in SIZES:
            seconds[f"search {size}"] = time_search(size, settings.width, repeat)
            started = time.perf_counter()
            for first in range(0, size, len(pool)):
                cross_attention(torch.randn(LENGTH, settings.width), pool[: size - first])
            seconds[f"attend {size}"] = [time.perf_counter() - started]
        rows.append({name: float(np.median(times)) for name, times in seconds.items()})
    return Answer({}, rows[1:])  # the first warms up


def time_search(size: int, width: int, seed: int, repeats: int = 10) -> list[float]:
    """Seconds of exact searches for the ten nearest of random images, after one that warms up."""
    rng = np.random.default_rng(seed)
    index = flat_index(rng.standard_normal((size, width), dtype=np.float32))
    times = []
    for query in rng.standard_normal((repeats + 1, 1, width), dtype=np.float32):
        started = time.perf_counter()
        index.search(query, 10)
        times.append(time.perf_counter() - started)
    return times[1:]
