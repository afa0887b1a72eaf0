"""Baselines and upper bounds of paper 04, which need no training loop.

Baselines: Random; Object Detection (Section 4); co-occurrence, a ridge regression from a document's
mean words to its mean image features, which sees no sentence-image pair. Upper bounds: the same
regression from linked pairs (supervised), and a reader who knows the picture (recogniser).
"""

from collections.abc import Sequence

import numpy as np

from mmlib.core.jobs import Answer, Job, Run
from mmlib.papers.links.data.arrays import Arrays, Split
from mmlib.papers.links.method import evaluate

ALPHAS = tuple(10.0 ** (power / 2) for power in range(-6, 5))  # of the ridge
MOST_LABELS = 20  # K of Object Detection
COMPONENTS = 20  # of a document's content


def score(job: Job, arrays: Arrays, run: Run = Run()) -> Answer:
    """The metrics of a baseline on every test document, by the name in its column "baseline"."""
    test, name = arrays.splits["test"], job.system["baseline"]
    if name == "random":  # AUC 50, p@C the share of links
        rng, nodes = np.random.default_rng(job.seed), zip(test.sentences, test.images, strict=True)
        matrices = [rng.random((len(s), len(v))) for s, v in nodes]
    elif name == "detection":
        matrices = detection_scores(arrays, "test", labels=best_labels(arrays, job.system["k_by"]))
    elif name == "recogniser":
        assert arrays.truth is not None
        matrices = list(arrays.truth)
    else:
        matrices = ridge_scores(arrays, "test", supervised=name == "supervised")
    return Answer({"test": evaluate(matrices, test)})


# --- Object Detection (Section 4) ------------------------------------------------------------


def detection_scores(arrays: Arrays, split: str, labels: int) -> list[np.ndarray]:
    """Cosines of mean word vectors: of a sentence's words, and of an image's label names.

    An image is the mean vector of its `labels` most probable labels.
    """
    assert arrays.label_scores is not None
    assert arrays.label_words is not None
    likely = np.argsort(-arrays.label_scores, axis=1, kind="stable")[:, :labels]
    images = unit(arrays.label_words[likely].mean(axis=1))  # (images, E)
    is_word = arrays.ids > 1  # neither padding nor unknown
    sums = (arrays.words[arrays.ids] * is_word[..., None]).sum(axis=1)
    texts = unit(sums / np.maximum(is_word.sum(axis=1, keepdims=True), 1))  # (sentences, E)
    return _products(texts, images, arrays.splits[split])


def best_labels(arrays: Arrays, split: str) -> int:
    """K with the highest AUC on a split: "val" is honest, "test" is how the paper chose it."""
    by_k = [
        np.nanmean(evaluate(detection_scores(arrays, split, k), arrays.splits[split])["AUC"])
        for k in range(1, MOST_LABELS + 1)
    ]
    return int(np.argmax(by_k)) + 1


# --- Ridge regressions -----------------------------------------------------------------------


def ridge_scores(arrays: Arrays, split: str, supervised: bool) -> list[np.ndarray]:
    """Cosines of what a sentence's words predict and an image's features.

    A linear map from words to image features, fitted on training documents: on one row a document,
    (mean words, mean features), which no link enters; or, supervised, on one row a linked pair.
    The strength of the ridge is that of the least squared error on the same rows of dev.
    """
    from sklearn.linear_model import Ridge  # not on a machine that only trains

    words = word_shares(arrays)  # (sentences, vocabulary)
    train, dev = (_rows(arrays, words, name, supervised) for name in ("train", "val"))
    fitted = [Ridge(alpha).fit(*train) for alpha in ALPHAS]
    ridge = min(fitted, key=lambda ridge: np.square(ridge.predict(dev[0]) - dev[1]).mean())
    predicted = unit(ridge.predict(words) - ridge.intercept_)
    return _products(predicted, unit(arrays.features - ridge.intercept_), arrays.splits[split])


def _rows(
    arrays: Arrays, words: np.ndarray, split: str, supervised: bool
) -> tuple[np.ndarray, np.ndarray]:
    documents = arrays.splits[split]
    if not supervised:
        return means(words, documents.sentences), means(arrays.features, documents.images)
    assert documents.links is not None
    linked = [np.argwhere(links) for links in documents.links]
    nodes = zip(documents.sentences, documents.images, linked, strict=True)
    pairs = np.concatenate([np.stack([s[p[:, 0]], v[p[:, 1]]], 1) for s, v, p in nodes])
    pairs = np.unique(pairs, axis=0)  # a caption and its image meet in many documents
    return words[pairs[:, 0]], arrays.features[pairs[:, 1]]


def word_shares(arrays: Arrays) -> np.ndarray:
    """(sentences, vocabulary): the share of each word in a sentence; padding has none."""
    counts = np.zeros((len(arrays.ids), len(arrays.words)), dtype=np.float32)
    np.add.at(counts, (np.arange(len(arrays.ids))[:, None], arrays.ids), 1)
    counts[:, 0] = 0
    return counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)


def unit(vectors: np.ndarray) -> np.ndarray:
    """Vectors (..., width) at length 1; zero stays zero."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(norms > 0, norms, 1)


def _products(texts: np.ndarray, images: np.ndarray, split: Split) -> list[np.ndarray]:
    return [texts[s] @ images[v].T for s, v in zip(split.sentences, split.images, strict=True)]


def spread(vectors: np.ndarray) -> float:
    """Mean squared distance of the unit vectors (count, width) to their centroid, in [0, 1]."""
    return float(1 - np.square(unit(vectors).mean(axis=0)).sum())


def means(vectors: np.ndarray, nodes: Sequence[np.ndarray]) -> np.ndarray:
    """The mean vector of each document, (documents, width)."""
    return np.stack([vectors[rows].mean(axis=0) for rows in nodes])


# --- What makes a document hard (Section 4.1) ------------------------------------------------


def describe_documents(job: Job, arrays: Arrays, run: Run = Run()) -> Answer:
    """Spread and content of every test document, from vectors that no system has trained.

    "image spread", "text spread", and "image content 0" and so on: mean vectors reduced by a PCA
    fitted on training documents. Texts are mean word vectors.
    """
    from sklearn.decomposition import PCA

    train, test = arrays.splits["train"], arrays.splits["test"]
    columns = {}
    for side, vectors, training, documents in (
        ("image", arrays.features, train.images, test.images),
        ("text", word_shares(arrays) @ arrays.words, train.sentences, test.sentences),
    ):
        columns[f"{side} spread"] = np.array([spread(vectors[rows]) for rows in documents])
        centres = means(vectors, training)
        reduce = PCA(min(COMPONENTS, *centres.shape), random_state=0).fit(centres)
        for i, column in enumerate(reduce.transform(means(vectors, documents)).T):
            columns[f"{side} content {i}"] = column
    return Answer({"test": columns})
