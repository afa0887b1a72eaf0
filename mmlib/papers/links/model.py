"""Paper 04: links between the images and the sentences of a document, learnt from co-occurrence.

Hessel, Lee, Mimno: Unsupervised Discovery of Multimodal Links in Multi-image, Multi-sentence
Documents, EMNLP 2019. A document's sentences S (n of them) and images V (m) give a matrix of
cosines M (n, m). Training compares whole documents through a set similarity (DC, TK or AP, Section
3); links are read off M itself. Rows are sentences and columns images everywhere.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from scipy.stats import f as f_distribution
from scipy.stats import rankdata
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression
from torch import Tensor, nn

from mmlib.features.text import (
    SentenceEncoder,
    Vocabulary,
    embedding_matrix,
    mean_word_vectors,
    tokenize,
)
from mmlib.papers.links.documents import Corpus, Document, document_batches, fixed_batches
from mmlib.training import fit, seed_everything

# --- Set similarities (Section 3) ------------------------------------------------------------


def dense_correspondence(cosines: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """DC: every sentence takes its best image, every image its best sentence; mean of each.

    cosines (..., N, M), padded; rows (..., N) and columns (..., M) are True where a sentence and
    an image stand. Returns (...,), in [-2, 2].
    """
    best_image, best_sentence = _best_partners(cosines, rows, columns)
    return _mean_of_largest(best_image, rows.sum(-1)) + _mean_of_largest(
        best_sentence, columns.sum(-1)
    )


def top_k(cosines: Tensor, rows: Tensor, columns: Tensor, k: Tensor) -> Tensor:
    """TK: as DC, but only the k most confident sentences and the k most confident images count.

    k (...,) is one number for both directions. Shapes as in `dense_correspondence`.
    """
    best_image, best_sentence = _best_partners(cosines, rows, columns)
    return _mean_of_largest(best_image, k) + _mean_of_largest(best_sentence, k)


def assignment(
    cosines: Tensor, rows: Tensor, columns: Tensor, k: Tensor, at_most: bool = False
) -> Tensor:
    """AP: mean cosine of the best matching with exactly k edges, one a sentence and one an image.

    Shapes as in `top_k`. The matching is found by SciPy outside the gradient, so that the
    gradient is 1/k at each chosen edge. `at_most` is the paper's printed form, which leaves
    negative edges out and divides by the number of edges chosen; an empty matching counts 0.
    """
    lead = cosines.shape[:-2]
    blocks = cosines.detach().reshape(-1, *cosines.shape[-2:]).double().cpu().numpy()
    n = rows.sum(-1).expand(lead).flatten().tolist()
    m = columns.sum(-1).expand(lead).flatten().tolist()
    sizes = k.expand(lead).flatten().tolist()
    chosen = np.zeros_like(blocks)
    for i, block in enumerate(blocks):
        matrix = block[: n[i], : m[i]]
        pairs = best_matching(np.maximum(matrix, 0) if at_most else matrix, sizes[i])
        if at_most:
            pairs = pairs[matrix[pairs[:, 0], pairs[:, 1]] > 0]
        chosen[i, pairs[:, 0], pairs[:, 1]] = 1 / max(len(pairs), 1)
    weights = torch.from_numpy(chosen).to(cosines).reshape(cosines.shape)
    return (cosines.masked_fill(weights == 0, 0) * weights).sum((-2, -1))


BONUS = 10.0  # more than any one edge can gain: cosines lie in [-1, 1]


def best_matching(matrix: np.ndarray, k: int) -> np.ndarray:
    """Edges (k, 2) of the matching of `matrix` (n, m) with exactly k edges and the largest sum.

    The k-cardinality assignment problem (Section 3.1; Volgenant, 2004): the smaller side has
    q = min(n, m) nodes, and q - k dummy partners with a bonus no real edge can match take the
    nodes that are to stay free. Raises ValueError where k is not in 1..q.
    """
    n, m = matrix.shape
    free = min(n, m) - k
    if k < 1 or free < 0:
        raise ValueError(f"a {n} x {m} matrix has no matching with {k} edges")
    if free:
        dummies = (n, free) if n <= m else (free, m)
        matrix = np.concatenate([matrix, np.full(dummies, BONUS)], axis=1 if n <= m else 0)
    row, column = linear_sum_assignment(matrix, maximize=True)
    real = (row < n) & (column < m)
    return np.stack([row[real], column[real]], axis=1)


def cardinality(
    n: Tensor, m: Tensor, half: bool, rounding: Literal["ceil", "floor"] = "ceil"
) -> Tensor:
    """How many edges k count: q = min(n, m), or half of it.

    The paper prints floor(q / 2), which is 0 for a single image; the authors' code rounds up.
    """
    q = torch.minimum(n, m)
    if not half:
        return q
    if rounding == "ceil":
        return (q + 1) // 2
    if int(q.min()) < 2:
        raise ValueError(
            "floor(q / 2) is 0 for a document with one image or one sentence: use ceil"
        )
    return q // 2


def _best_partners(cosines: Tensor, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """Best cosine of each sentence (..., N) and each image (..., M); -inf at padding."""
    real = rows.unsqueeze(-1) & columns.unsqueeze(-2)
    masked = cosines.masked_fill(~real, -torch.inf)  # never 0: cosines can be negative
    return masked.amax(-1), masked.amax(-2)


def _mean_of_largest(values: Tensor, k: Tensor) -> Tensor:
    """Mean of the k largest of `values` (..., N); k (...,), at most the number of finite values."""
    ordered = values.sort(dim=-1, descending=True).values
    counted = torch.arange(values.shape[-1], device=values.device) < k.unsqueeze(-1)
    return torch.where(counted, ordered, 0).sum(-1) / k


# --- Loss (Section 3, Eq. 1) -----------------------------------------------------------------


def document_loss(
    similarities: Tensor, margin: float = 0.2, negatives: Literal["hard", "mean"] = "hard"
) -> Tensor:
    """Hinge loss over a batch of D documents, in both directions (Eq. 1).

    similarities (D, D): sentence set a against image set b; the diagonal is the true documents and
    everything else a negative. `hard` keeps the largest hinge of each row and column, `mean`
    averages them. A model that cannot tell documents apart has loss 2 * margin.
    """
    true = similarities.diagonal()
    others = ~torch.eye(len(true), dtype=torch.bool, device=true.device)
    total = true.new_zeros(())
    for matrix in (similarities, similarities.T):  # other image sets, then other sentence sets
        hinge = (margin - true.unsqueeze(1) + matrix).clamp(min=0) * others
        total = (
            total
            + (hinge.amax(1) if negatives == "hard" else hinge.sum(1) / (len(true) - 1)).mean()
        )
    return total


# --- Systems and settings --------------------------------------------------------------------


@dataclass(frozen=True)
class System:
    """A trained row of Tables 2 and 3.

    similarity: the set similarity; half: k = q/2 instead of q; rounding: of that half; at_most:
    AP's printed form; one_pair: NoStruct, one random sentence and image a document; doubled:
    NoStruct's cosine counts twice, as in the authors' code (DC of a 1 x 1 matrix).
    """

    similarity: Literal["DC", "TK", "AP"]
    half: bool = False
    rounding: Literal["ceil", "floor"] = "ceil"
    at_most: bool = False
    one_pair: bool = False
    doubled: bool = True


SYSTEMS: dict[str, System] = {
    "NoStruct": System("DC", one_pair=True),
    "DC": System("DC"),
    "TK": System("TK"),
    "TK+½k": System("TK", half=True),
    "AP": System("AP"),
    "AP+½k": System("AP", half=True),
}
STRUCTURED = ("DC", "TK", "TK+½k", "AP", "AP+½k")


def set_similarity(cosines: Tensor, rows: Tensor, columns: Tensor, system: System) -> Tensor:
    """The document similarity of `system`. Shapes as in `dense_correspondence`."""
    if system.similarity == "DC":
        scale = 1.0 if system.doubled or not system.one_pair else 0.5
        return scale * dense_correspondence(cosines, rows, columns)
    lead = cosines.shape[:-2]
    n, m = rows.sum(-1).expand(lead), columns.sum(-1).expand(lead)
    k = cardinality(n, m, system.half, system.rounding)
    if system.similarity == "TK":
        return top_k(cosines, rows, columns, k)
    return assignment(cosines, rows, columns, k, system.at_most)


@dataclass(frozen=True)
class Settings:
    """How a system is trained. The defaults are the paper's (Section 4) where it states them.

    b: negative documents a batch (the batch has b + 1); width: of the shared space; word_width;
    max_words: words kept of a sentence; dropout: on word channels and image features; patience:
    epochs without a better dev loss before the learning rate is divided by 5; steps: batches
    an epoch, drawn anew each time, 0 for all; warm_up: first epochs that train on mean negatives
    whatever `negatives` says (0 in the paper).
    """

    b: int = 10
    negatives: Literal["hard", "mean"] = "hard"
    margin: float = 0.2
    width: int = 1024
    word_width: int = 300
    max_words: int = 20
    min_count: int = 5
    dropout: float = 0.4
    learning_rate: float = 1e-4
    patience: int = 3
    epochs: int = 50
    steps: int = 0
    warm_up: int = 0
    word2vec: bool = True


# --- Documents as arrays ---------------------------------------------------------------------


@dataclass(frozen=True)
class Split:
    """The documents of one split as index arrays.

    sentences, images: an int64 array a document, into `Arrays.ids` and `Arrays.features`;
    links: a bool matrix (n, m) a document, None in a corpus without labels.
    """

    documents: tuple[Document, ...]
    sentences: tuple[np.ndarray, ...]
    images: tuple[np.ndarray, ...]
    links: tuple[np.ndarray, ...] | None


@dataclass(frozen=True)
class Arrays:
    """A corpus ready for training: arrays only, so that it travels between processes.

    ids (sentences, longest) and lengths (sentences,): each distinct sentence once;
    embeddings (words, word_width): where training starts; features (rows, width).
    """

    ids: np.ndarray
    lengths: np.ndarray
    embeddings: np.ndarray
    features: np.ndarray
    splits: Mapping[str, Split]


def prepare(
    corpus: Corpus,
    settings: Settings,
    vectors: Mapping[str, np.ndarray] | None = None,
    seed: int = 0,
) -> Arrays:
    """Tokenise a corpus and index it. The vocabulary sees training sentences only.

    vectors: word -> (word_width,) to start from; None starts from small random embeddings.
    Image features are centred and brought to unit overall deviation, both by training images.
    """
    texts = {"train": corpus.train, "val": corpus.val, "test": corpus.test}
    distinct = sorted({s for documents in texts.values() for d in documents for s in d.sentences})
    row = {sentence: i for i, sentence in enumerate(distinct)}
    tokens = [tokenize(sentence) for sentence in distinct]
    seen = (tokens[row[s]] for d in corpus.train for s in d.sentences)
    vocabulary = Vocabulary.from_sentences(seen, settings.min_count)
    ids, lengths = vocabulary.encode(tokens, settings.max_words)
    rows = np.unique(np.concatenate([corpus.rows(d) for d in corpus.train]))
    seen_images = corpus.features[rows]

    def index(documents: Sequence[Document]) -> Split:
        return Split(
            documents=tuple(documents),
            sentences=tuple(np.array([row[s] for s in d.sentences]) for d in documents),
            images=tuple(np.array([corpus.row_of[v] for v in d.images]) for d in documents),
            links=tuple(d.link_matrix() for d in documents)
            if all(d.labelled for d in documents)
            else None,
        )

    return Arrays(
        ids=ids.numpy(),
        lengths=lengths.numpy(),
        embeddings=embedding_matrix(vocabulary, settings.word_width, seed, vectors).numpy(),
        features=(corpus.features - seen_images.mean(axis=0))
        / max(float(seen_images.std(axis=0).mean()), 1e-6),
        splits={name: index(documents) for name, documents in texts.items()},
    )


# --- Encoders --------------------------------------------------------------------------------


class LinkModel(nn.Module):
    """A GRU for sentences and one affine map for frozen image features, into one unit sphere."""

    def __init__(self, embeddings: Tensor, feature_width: int, settings: Settings):
        super().__init__()
        self.text = SentenceEncoder(embeddings, settings.width, settings.dropout)
        self.drop = nn.Dropout(settings.dropout)
        self.image = nn.Linear(feature_width, settings.width)

    def encode_images(self, features: Tensor) -> Tensor:
        """Features (B, feature_width) -> unit vectors (B, width)."""
        return nn.functional.normalize(self.image(self.drop(features)), dim=-1)

    def forward(self, batch: "Batch") -> tuple[Tensor, Tensor, Tensor]:
        """Cosines of all sentences with all images of D documents, padded.

        Returns cosines (D, D, N, M), [a, b] being the sentences of a against the images of b,
        with the masks rows (D, 1, N) and columns (1, D, M) that say what is not padding.
        """
        sentences = _pad(self.text(batch.ids, batch.lengths), batch.n)  # (D, N, width)
        images = _pad(self.encode_images(batch.features), batch.m)  # (D, M, width)
        cosines = torch.einsum("and,bmd->abnm", sentences, images)
        rows, columns = (_mask(sizes).to(cosines.device) for sizes in (batch.n, batch.m))
        return cosines, rows.unsqueeze(1), columns.unsqueeze(0)


@dataclass(frozen=True)
class Batch:
    """D documents flattened: token ids (sum n, L), lengths (sum n,), features (sum m, F), sizes."""

    ids: Tensor
    lengths: Tensor
    features: Tensor
    n: list[int]
    m: list[int]
    warm_up: bool = False


def _pad(vectors: Tensor, sizes: list[int]) -> Tensor:
    return nn.utils.rnn.pad_sequence(vectors.split(sizes), batch_first=True)


def _mask(sizes: list[int]) -> Tensor:
    return torch.arange(max(sizes)) < torch.tensor(sizes).unsqueeze(1)


class Batches:
    """Makes `Batch`es of one split on a device."""

    def __init__(self, arrays: Arrays, split: str, device: str):
        self.split = arrays.splits[split]
        # Copies: workers get read-only memory maps, which torch.from_numpy warns about.
        self.ids = torch.tensor(arrays.ids, device=device)
        self.lengths = torch.tensor(arrays.lengths)  # stay on the CPU: packing wants them there
        self.features = torch.tensor(arrays.features, dtype=torch.float32, device=device)

    def batch(self, documents: Sequence[int], one_pair: np.random.Generator | None = None) -> Batch:
        """The batch of these documents; `one_pair` draws one sentence and one image of each."""
        sentences = [self.split.sentences[d] for d in documents]
        images = [self.split.images[d] for d in documents]
        if one_pair is not None:
            sentences = [one_pair.choice(s, 1) for s in sentences]
            images = [one_pair.choice(v, 1) for v in images]
        text, vision = (torch.from_numpy(np.concatenate(x)) for x in (sentences, images))
        lengths = self.lengths[text]
        return Batch(
            ids=self.ids[text][:, : int(lengths.max())],
            lengths=lengths,
            features=self.features[vision],
            n=[len(s) for s in sentences],
            m=[len(v) for v in images],
        )


# --- Evaluation (Section 4) ------------------------------------------------------------------


def link_metrics(scores: np.ndarray, links: np.ndarray) -> dict[str, float] | None:
    """AUC, p@1 and p@5 of one document in percent; None where every cell or no cell is a link.

    scores, links (n, m). AUC counts a tie as half. p@C is the share of links among the C highest
    cells (ties: the earlier cell first, row by row), or among all cells where there are fewer;
    it is not corrected for documents with fewer than C links.
    Raises ValueError where the shapes differ.
    """
    if scores.shape != links.shape:
        raise ValueError(f"scores are {scores.shape} but links are {links.shape}")
    flat, true = scores.ravel(), links.ravel().astype(bool)
    positives, negatives = int(true.sum()), int((~true).sum())
    if not positives or not negatives:
        return None
    above = rankdata(flat)[true].sum() - positives * (positives + 1) / 2
    order = np.argsort(-flat, kind="stable")
    return {
        "AUC": 100 * float(above) / (positives * negatives),
        "p@1": 100 * float(true[order[:1]].mean()),
        "p@5": 100 * float(true[order[:5]].mean()),
    }


@torch.no_grad()
def cosine_matrices(model: LinkModel, arrays: Arrays, split: str, device: str) -> list[np.ndarray]:
    """M (n, m) of every document of a split; each sentence and image is encoded once."""
    source = Batches(arrays, split, device)
    model.eval()

    def encode(index: tuple[np.ndarray, ...], encoder) -> tuple[Tensor, np.ndarray]:
        used, place = np.unique(np.concatenate(index), return_inverse=True)
        parts = [encoder(torch.from_numpy(p)) for p in np.array_split(used, len(used) // 1024 + 1)]
        return torch.cat(parts).cpu(), place

    def encode_text(rows: Tensor) -> Tensor:
        lengths = source.lengths[rows]
        return model.text(source.ids[rows][:, : int(lengths.max())], lengths)

    texts, text_place = encode(source.split.sentences, encode_text)
    images, image_place = encode(
        source.split.images, lambda rows: model.encode_images(source.features[rows])
    )
    matrices, s, v = [], 0, 0
    for sentences, pictures in zip(source.split.sentences, source.split.images, strict=True):
        n, m = len(sentences), len(pictures)
        own = texts[text_place[s : s + n]] @ images[image_place[v : v + m]].T
        matrices.append(own.numpy())
        s, v = s + n, v + m
    return matrices


def evaluate(matrices: Sequence[np.ndarray], split: Split) -> dict[str, list[float | None]]:
    """Metrics of each document, in the split's order; None for a document that has to be skipped.

    The score of a data set is the mean over its documents (macro), nothing is pooled.
    Raises ValueError on a corpus without labels.
    """
    if split.links is None:
        raise ValueError("this corpus has no link labels: there is nothing to evaluate against")
    each = [link_metrics(m, y) for m, y in zip(matrices, split.links, strict=True)]
    return {name: [e[name] if e else None for e in each] for name in ("AUC", "p@1", "p@5")}


# --- Training --------------------------------------------------------------------------------


def train_system(
    system: Mapping,
    settings: Mapping,
    seed: int,
    arrays: Arrays,
    device: str = "cpu",
    checkpoint: Path | None = None,
    keep_matrices: int = 0,
    **_names: str,
) -> dict:
    """Train one system on one corpus and score its test documents.

    system, settings: fields of `System` and `Settings`. keep_matrices: how many test documents'
    cosine matrices to return.

    Returns a JSON-able dict: the test metrics of each document (absent without labels), the
    `history` of the epochs (dev loss and, with labels, dev AUC), `best_epoch` counted from 1,
    `seconds` of training, `matrices`.
    """
    kind, how = System(**system), Settings(**settings)
    started = time.perf_counter()
    seed_everything(seed)
    model = LinkModel(torch.tensor(arrays.embeddings), arrays.features.shape[1], how).to(device)
    train, val = (Batches(arrays, split, device) for split in ("train", "val"))
    size = how.b + 1

    def loss(batch: Batch) -> Tensor:
        negatives = "mean" if batch.warm_up else how.negatives
        cosines, rows, columns = model(batch)
        similarities = set_similarity(cosines, rows, columns, kind)
        return document_loss(similarities, how.margin, negatives)

    def batches(epoch: int):
        rng = np.random.default_rng([seed, epoch])
        every = document_batches(train.split.documents, size, rng)
        for chosen in islice(every, how.steps or None):
            batch = train.batch(chosen, rng if kind.one_pair else None)
            yield replace(batch, warm_up=epoch < how.warm_up)

    # Fixed over the epochs: NoStruct's pairs are drawn once, several times over, to calm its loss.
    draws = np.random.default_rng([seed, 0]) if kind.one_pair else None
    dev = [
        val.batch(chosen, draws)
        for _ in range(DEV_DRAWS if kind.one_pair else 1)
        for chosen in fixed_batches(val.split.documents, size)
    ]

    def dev_figures() -> dict[str, float]:
        figures = {"dev_loss": float(np.mean([loss(batch).item() for batch in dev]))}
        if val.split.links is not None:
            aucs = evaluate(cosine_matrices(model, arrays, "val", device), val.split)["AUC"]
            figures["dev_AUC"] = float(np.mean([a for a in aucs if a is not None]))
        return figures

    history = fit(
        model, batches, loss, dev_figures, epochs=how.epochs, learning_rate=how.learning_rate,
        patience=how.patience, seed=seed, checkpoint=checkpoint,
    )  # fmt: skip
    matrices = cosine_matrices(model, arrays, "test", device)
    labelled = arrays.splits["test"].links is not None
    return {
        **(evaluate(matrices, arrays.splits["test"]) if labelled else {}),
        "history": history,
        "best_epoch": 1 + int(np.argmin([h["dev_loss"] for h in history])),
        "seconds": time.perf_counter() - started,
        "matrices": [m.round(4).tolist() for m in matrices[:keep_matrices]],
    }


DEV_DRAWS = 5  # of one pair a document, for NoStruct's dev loss


# --- Baselines without training (Section 4) --------------------------------------------------


def random_matrices(split: Split, seed: int) -> list[np.ndarray]:
    """Uniform random scores (n, m) for every document: AUC 50, p@C the share of links."""
    rng = np.random.default_rng(seed)
    return [
        rng.random((len(s), len(v))) for s, v in zip(split.sentences, split.images, strict=True)
    ]


def detection_matrices(
    corpus: Corpus, split: str, vectors: Mapping[str, np.ndarray], k: int
) -> list[np.ndarray]:
    """Object Detection: cosines of mean word vectors, of a sentence's words and of label names.

    An image is the mean vector of the names of its k most probable classes (a name of several
    words is the mean of its words). Raises ValueError where the corpus has no class scores.
    """
    if corpus.label_scores is None:
        raise ValueError(f"{corpus.source} has no class scores: extract them with a classifier")
    names = mean_word_vectors([tokenize(name) for name in corpus.label_names], vectors)
    likely = np.argsort(-corpus.label_scores, axis=1, kind="stable")[:, :k]
    images = _unit(names[likely].mean(axis=1))
    return [
        _unit(mean_word_vectors([tokenize(s) for s in d.sentences], vectors))
        @ images[corpus.rows(d)].T
        for d in corpus.split(split)
    ]


def _unit(vectors: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(norms > 0, norms, 1)


# --- What makes a document hard (Section 4.1) ------------------------------------------------


def spread(vectors: np.ndarray) -> float:
    """Mean squared distance of the unit vectors (count, width) to their centroid, in [0, 1]."""
    return float(1 - np.square(_unit(vectors).mean(axis=0)).sum())


def difficulty_predictors(
    corpus: Corpus, vectors: Mapping[str, np.ndarray], components: int = 20
) -> dict[str, np.ndarray]:
    """Spread and content of every test document, from vectors that no system has trained.

    Returns "image spread" and "text spread" (documents,), and "image content" and "text content"
    (documents, components): mean vectors reduced by a PCA fitted on training documents.
    """
    table: dict[str, np.ndarray] = {}
    for side in ("image", "text"):
        of = {
            name: [
                corpus.features[corpus.rows(d)]
                if side == "image"
                else mean_word_vectors([tokenize(s) for s in d.sentences], vectors)
                for d in corpus.split(name)
            ]
            for name in ("train", "test")
        }
        table[f"{side} spread"] = np.array([spread(v) for v in of["test"]])
        means = {name: np.array([v.mean(axis=0) for v in of[name]]) for name in of}
        reduce = PCA(min(components, *means["train"].shape), random_state=0).fit(means["train"])
        table[f"{side} content"] = reduce.transform(means["test"])
    return table


@dataclass(frozen=True)
class Regression:
    """An ordinary least squares fit: R² and adjusted R² in percent, the F-test against a constant.

    coefficients: change of the response for one standard deviation of each predictor.
    """

    r2: float
    adjusted_r2: float
    f: float
    p: float
    coefficients: np.ndarray


def regress(predictors: np.ndarray, response: np.ndarray) -> Regression:
    """OLS with intercept of response (N,) on predictors (N, p), each scaled to unit deviation.

    F = (R²/p) / ((1 - R²)/(N - p - 1)). Raises ValueError where N is not above p + 1.
    """
    count, p = predictors.shape
    if count <= p + 1:
        raise ValueError(f"{p} predictors need more than {p + 1} documents, not {count}")
    scale = predictors.std(axis=0)
    scaled = (predictors - predictors.mean(axis=0)) / np.where(scale > 0, scale, 1)
    fit_ = LinearRegression().fit(scaled, response)
    r2 = float(fit_.score(scaled, response))
    f = (r2 / p) / ((1 - r2) / (count - p - 1)) if r2 < 1 else np.inf
    return Regression(
        r2=100 * r2,
        adjusted_r2=100 * (1 - (1 - r2) * (count - 1) / (count - p - 1)),
        f=f,
        p=float(f_distribution.sf(f, p, count - p - 1)),
        coefficients=fit_.coef_,
    )
