"""What a record of paper 03 has beside trainings: baselines, oracles, what captions say, times.

How long one query takes (Section 7) is timed for CORA's parts and SCAN's cross-attention: Lee,
Chen, Hua, Hu and He, "Stacked Cross Attention for Image-Text Matching", ECCV 2018, Sections 3.1 and
3.2. Each word looks for its own regions in every image, so its time grows with their number.
"""

import time

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch.nn import functional as F

from mmlib.core.files import read_rows
from mmlib.core.jobs import Answer, Job, Run
from mmlib.core.ranking import flat_index, metrics, ranks_of_scores
from mmlib.papers.cora import method
from mmlib.papers.cora.data.texts import Reader
from mmlib.papers.cora.method import per_item, right_in_family
from mmlib.papers.cora.run.batches import Arrays, GraphSet, Texts
from mmlib.papers.cora.run.systems import CORA, SIZES, SPLITS, Settings
from mmlib.papers.cora.run.train import fresh
from mmlib.scenegraph.graph import graph_of, sentence_case
from mmlib.scenegraph.parser import load_english

PENALTIES = (1.0, 10.0, 100.0)  # of the ridge regression
REPEATS, BLOCK = 5, 16  # timings; images in memory at a time
REGIONS, LENGTH = 36, 12  # regions of an image, words of a caption
TEMPERATURE, TINY = 9.0, 1e-8  # λ₁; keeps divisions by a length of 0 finite (authors' code)


def score(job: Job, arrays: Arrays, run: Run = Run()) -> Answer:
    """Rank the test set without any training; values as of `train.train_and_score`.

    baseline "random": scores drawn by the seed; "ridge": see `ridge`, reads naming the texts;
    "truth": the scores of an oracle, reads naming which. "ideal bag" has "in family" alone, and
    "trigrams" `method.swap_values`.
    """
    test = arrays.splits["test"]
    kind, reads = job.system["baseline"], job.system.get("reads", "")
    if kind == "ideal bag":
        assert arrays.ideal_bag is not None
        right = np.concatenate([arrays.ideal_bag, np.full(len(test.features), np.nan)])
        return Answer({"test": {"in family": right}})
    if kind == "trigrams":
        assert arrays.plausible is not None
        values = method.swap_values(*arrays.plausible, test.swaps, len(test.features))
        return Answer({"test": values})
    if kind == "truth":
        scores = arrays.truth[reads]
    elif kind == "ridge":
        scores = ridge(arrays, reads)
    else:
        shape = len(test.features), len(test.image_of)
        scores = np.random.default_rng([7, job.seed]).random(shape, dtype=np.float32)
    values = per_item(ranks_of_scores(scores, test.image_of))
    values |= method.in_folds(scores, test.image_of)
    if arrays.family > 1:
        values["in family"] = right_in_family(scores, test.image_of, arrays.family)
    return Answer({"test": values})


def ridge(arrays: Arrays, reads: str) -> np.ndarray:
    """Cosines (test images, test captions) of an image's mean region and what words predict of it.

    A ridge regression on which words occur in a caption ("sequence") or in its graph ("graph"),
    without order and structure, with the penalty of the best RSUM on dev.
    """
    from sklearn.linear_model import Ridge  # not on a machine that only trains
    from sklearn.preprocessing import normalize

    words, means = {}, {}
    for name, split in arrays.splits.items():
        words[name] = word_counts(split.texts[reads], arrays)
        blocks = np.array_split(np.arange(len(split.features)), len(split.features) // 1024 + 1)
        regions = (read_rows(split.features, rows) for rows in blocks)
        means[name] = np.concatenate([block.mean(axis=1) for block in regions])
    centre = means["train"].mean(axis=0)
    images = {name: normalize(mean - centre) for name, mean in means.items()}
    target = (means["train"] - centre)[arrays.splits["train"].image_of]
    best: tuple[float, np.ndarray] = (-1.0, np.empty(0))
    for penalty in PENALTIES:
        model = Ridge(penalty, fit_intercept=False, solver="cholesky").fit(words["train"], target)
        scores = {s: images[s] @ normalize(model.predict(words[s])).T for s in SPLITS[1:]}
        rsum = metrics(ranks_of_scores(scores["val"], arrays.splits["val"].image_of))["rsum"]
        best = max(best, (rsum, scores["test"]), key=lambda scored: scored[0])
    return best[1]


def word_counts(texts: Texts, arrays: Arrays) -> sparse.csr_matrix:
    """Whether each word occurs in each text, (captions, vocabulary) float32; padding does not."""
    if isinstance(texts, GraphSet):
        firsts = texts.first_object, texts.first_attribute, texts.first_relation
        caption = np.concatenate([np.repeat(np.arange(len(texts)), np.diff(f)) for f in firsts])
        phrases = np.concatenate([texts.objects, texts.attributes, texts.relations])
        ids = texts.tokens[phrases]
    else:
        caption, ids = np.arange(len(texts)), texts.tokens
    rows, columns = np.repeat(caption, ids.shape[1]), ids.ravel()
    pairs = np.unique(np.column_stack([rows, columns])[columns > 0], axis=0)
    ones = np.ones(len(pairs), dtype=np.float32)
    return sparse.csr_matrix((ones, pairs.T), shape=(len(texts), len(arrays.vocabulary)))


def describe_captions(job: Job, arrays: Arrays, run: Run = Run()) -> Answer:
    """How much each test caption says: its objects, attributes and relations; NaN for images."""
    test = arrays.splits["test"]
    graphs = test.texts["graph"]
    assert isinstance(graphs, GraphSet)
    none = np.full(len(test.features), np.nan)
    return Answer({"test": {
        f"{kind}s": np.concatenate([np.diff(getattr(graphs, f"first_{kind}")), none])
        for kind in ("object", "attribute", "relation")
    }})  # fmt: skip


@torch.no_grad()
def cross_attention(words: Tensor, regions: Tensor) -> Tensor:
    """SCAN's score (images,) of a sentence (W, D) with images (images, R, D), higher is better.

    For each word, regions are weighted by the softmax of λ₁ times their clipped cosines, which are
    divided per region by their length over the words; the score is the mean over the words of their
    cosines with the weighted sums. The authors' code clips with a leak of 0.1; the paper, and this,
    at 0.
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

    "parse", "encode": of one test caption; "search n", "attend n": of n random images, of which
    1,024 are scored again and again, so reading from a disk is not counted. Weights are fresh.
    """
    settings, parse = Settings(**job.settings), load_english()
    reader = Reader(arrays.vocabulary, settings.delimiters)
    model = fresh(CORA, settings, arrays).eval()
    pool = torch.randn(min(1024, max(SIZES)), REGIONS, settings.width)
    rows = []
    for repeat in range(REPEATS + 1):
        seconds: dict[str, list[float]] = {"parse": [], "encode": []}
        for caption in arrays.queries[repeat :: REPEATS + 1]:
            started = time.perf_counter()
            graph = graph_of(parse(sentence_case(caption)))
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
