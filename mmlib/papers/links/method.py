"""The method of paper 04: links between the images and sentences of a document, from co-occurrence.

Hessel, Lee, Mimno: Unsupervised Discovery of Multimodal Links in Multi-image, Multi-sentence
Documents, EMNLP 2019. A document's sentences S (n of them) and images V (m) give a matrix of
cosines M (n, m). Training compares whole documents through a set similarity (DC, TK or AP, Section
3); links are read off M itself. Rows are sentences and columns images everywhere.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from scipy.stats import rankdata
from torch import Tensor, nn

from mmlib.core.ranking import chance_among_first
from mmlib.features.gru import PackedGRU
from mmlib.papers.links.data.arrays import Arrays, Batch, Batches, Split

METRICS = ("AUC", "p@1", "p@5")
Negatives = Literal["hard", "mean"]


@dataclass(frozen=True)
class System:
    """A trained row of Tables 2 and 3, or a variant of one.

    similarity: the set similarity; "pair" is NoStruct's. half: k = q/2 instead of q. negatives, b:
    of the loss, and how many.
    """

    system: str
    similarity: Literal["pair", "DC", "TK", "AP"]
    half: bool = False
    negatives: Negatives = "hard"
    b: int = 10


@dataclass(frozen=True)
class Settings:
    """How a system is trained. The defaults are the paper's (Section 4) where it states them.

    width: of the shared space; word_width, max_words, min_count: of the word vectors, a sentence,
    the vocabulary; dropout: on word channels and image features; schedule: "plateau" divides the
    rate by 5 after `patience` epochs without a better dev loss, "cosine" warms it up over the
    first 5 % of the steps and lets it decay to 0. steps: batches an epoch, 0 for all documents
    once. draws: NoStruct's random pairs a document and step (1 in the paper). feature_power: each
    image feature is divided by its deviation to this power. word_scale: word vectors are
    multiplied by it. warmup_fraction: of the epochs, in which hard negatives are averaged ones (0
    in the paper).
    """

    margin: float = 0.2
    width: int = 1024
    word_width: int = 300
    max_words: int = 20
    min_count: int = 5
    dropout: float = 0.4
    learning_rate: float = 1e-4
    weight_decay: float = 0.0
    schedule: Literal["plateau", "cosine"] = "plateau"
    patience: int = 3
    epochs: int = 50
    steps: int = 0
    draws: int = 1
    feature_power: float = 0.0
    word_scale: float = 1.0
    warmup_fraction: float = 0.0


# --- Encoders --------------------------------------------------------------------------------


class SentenceEncoder(nn.Module):
    """Word embeddings and a one-layer GRU; a sentence is its state after the last word.

    Whole embedding channels are dropped, the same ones for all words of a batch.
    """

    def __init__(self, words: Tensor, width: int, dropout: float):
        super().__init__()
        self.embed = nn.Embedding.from_pretrained(words.clone(), freeze=False)
        self.drop = nn.Dropout(dropout)
        self.gru = PackedGRU(words.shape[1], width)

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Ids (S, L) and lengths (S,) on the CPU -> unit vectors (S, width)."""
        words = self.embed.weight  # (vocabulary, E)
        words = words * self.drop(torch.ones_like(words[:1]))
        return nn.functional.normalize(self.gru(words, ids, lengths), dim=-1)


class LinkModel(nn.Module):
    """A GRU for sentences and one affine map for frozen image features, into one unit sphere."""

    def __init__(self, words: Tensor, feature_width: int, settings: Settings):
        super().__init__()
        self.text = SentenceEncoder(words, settings.width, settings.dropout)
        self.drop = nn.Dropout(settings.dropout)
        self.image = nn.Linear(feature_width, settings.width)

    def encode_images(self, features: Tensor) -> Tensor:
        """Features (V, feature_width) -> unit vectors (V, width)."""
        return nn.functional.normalize(self.image(self.drop(features)), dim=-1)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Cosines of all sentences with all images of D documents, padded.

        Returns cosines (D, D, N, M), [a, b] being the sentences of a against the images of b,
        with the masks rows (D, 1, N) and columns (1, D, M) that say what is not padding.
        """

        def padded(vectors: Tensor, mask: Tensor) -> Tensor:  # (count, width) -> (D, nodes, width)
            zeros = vectors.new_zeros(*mask.shape, vectors.shape[-1])
            return zeros.masked_scatter(mask.unsqueeze(-1), vectors)

        sentences = padded(self.text(batch.ids, batch.lengths), batch.rows)
        images = padded(self.encode_images(batch.features), batch.columns)
        cosines = torch.einsum("and,bmd->abnm", sentences, images)
        return cosines, batch.rows.unsqueeze(1), batch.columns.unsqueeze(0)


# --- Set similarities (Section 3) ------------------------------------------------------------


def dense_correspondence(cosines: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """DC: every sentence takes its best image, every image its best sentence; mean of each.

    cosines (..., N, M), padded; rows (..., N) and columns (..., M) are True where a sentence and
    an image stand. Returns (...,), in [-2, 2].
    """
    return _mean_of_best(cosines, rows, columns, rows.sum(-1), columns.sum(-1))


def top_k(cosines: Tensor, rows: Tensor, columns: Tensor, k: Tensor) -> Tensor:
    """TK: as DC, but only the k most confident sentences and the k most confident images count.

    k (...,) is one number for both directions. Shapes as in `dense_correspondence`.
    """
    return _mean_of_best(cosines, rows, columns, k, k)


def _mean_of_best(cosines: Tensor, rows: Tensor, columns: Tensor, n: Tensor, m: Tensor) -> Tensor:
    real = rows.unsqueeze(-1) & columns.unsqueeze(-2)
    masked = cosines.masked_fill(~real, -torch.inf)  # never 0: cosines can be negative
    means = []
    for best, k in ((masked.amax(-1), n), (masked.amax(-2), m)):
        ordered = best.sort(dim=-1, descending=True).values
        counted = torch.arange(best.shape[-1], device=best.device) < k.unsqueeze(-1)
        means.append(torch.where(counted, ordered, 0).sum(-1) / k)
    return means[0] + means[1]


def assignment(cosines: Tensor, rows: Tensor, columns: Tensor, k: Tensor) -> Tensor:
    """AP: mean cosine of the best matching with exactly k edges, one a sentence and one an image.

    Shapes as in `top_k`. The matching is found by SciPy outside the gradient, so that the
    gradient is 1/k at each chosen edge. (The paper prints "at most k"; its code has exactly k.)
    """
    lead = cosines.shape[:-2]
    blocks = cosines.detach().reshape(-1, *cosines.shape[-2:]).double().cpu().numpy()
    n = rows.sum(-1).expand(lead).flatten().tolist()
    m = columns.sum(-1).expand(lead).flatten().tolist()
    sizes = k.expand(lead).flatten().tolist()
    chosen = np.zeros_like(blocks)
    for i, block in enumerate(blocks):
        edges = best_matching(block[: n[i], : m[i]], sizes[i])  # without padding
        chosen[i, edges[:, 0], edges[:, 1]] = 1 / len(edges)
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


def set_similarity(cosines: Tensor, rows: Tensor, columns: Tensor, system: System) -> Tensor:
    """The document similarity of a structured system. Shapes as in `dense_correspondence`.

    TK and AP count q = min(n, m) edges, or half of q, rounded up as in the authors' code; the paper
    prints floor(q / 2), which is 0 for a single image.
    """
    if system.similarity == "DC":
        return dense_correspondence(cosines, rows, columns)
    lead = cosines.shape[:-2]
    q = torch.minimum(rows.sum(-1).expand(lead), columns.sum(-1).expand(lead))
    similarity = top_k if system.similarity == "TK" else assignment
    return similarity(cosines, rows, columns, (q + 1) // 2 if system.half else q)


def random_pairs(
    cosines: Tensor, rows: Tensor, columns: Tensor, draws: int, generator: torch.Generator | None
) -> Tensor:
    """NoStruct: the cosine of one random sentence and one random image a document.

    Shapes as in `LinkModel.forward`. Returns (draws, D, D): in each draw a document has one
    sentence and one image, which meet those of all others.
    """

    def draw(mask: Tensor) -> Tensor:  # (D, nodes) -> (draws, D)
        uniform = torch.rand(draws, len(mask), generator=generator, dtype=torch.double)
        return (uniform.to(mask.device) * mask.sum(-1)).long()

    i, j = draw(rows[:, 0]), draw(columns[0])
    documents = torch.arange(len(cosines), device=cosines.device)
    a, b = documents[None, :, None], documents[None, None, :]
    return cosines[a, b, i[:, :, None], j[:, None, :]]


# --- Loss (Section 3, Eq. 1) -----------------------------------------------------------------


def document_loss(
    similarities: Tensor, margin: float = 0.2, negatives: Negatives = "hard"
) -> Tensor:
    """Hinge loss over a batch of D documents, in both directions (Eq. 1).

    similarities (..., D, D): sentence set a against image set b; the diagonal is the true documents
    and everything else a negative. `hard` keeps the largest hinge of each row and column, `mean`
    averages them. Leading dimensions are averaged. A model that cannot tell documents apart has
    loss 2 * margin.
    """
    documents = similarities.shape[-1]
    others = ~torch.eye(documents, dtype=torch.bool, device=similarities.device)
    true = similarities.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)  # (..., D, 1)
    total = similarities.new_zeros(())
    for matrix in (similarities, similarities.mT):  # other image sets, then other sentence sets
        hinge = (margin - true + matrix).clamp(min=0) * others  # (..., D, D)
        worst = hinge.amax(-1) if negatives == "hard" else hinge.sum(-1) / (documents - 1)
        total = total + worst.mean()
    return total


def batch_loss(
    model: LinkModel, batch: Batch, system: System, settings: Settings, negatives: Negatives,
    generator: torch.Generator | None = None,
) -> Tensor:  # fmt: skip
    """The whole loss of a batch: cosines, document similarities, hinge."""
    cosines, rows, columns = model(batch)  # (D, D, N, M), (D, 1, N), (1, D, M)
    if system.similarity == "pair":
        # (draws, D, D); twice, as DC of a 1 x 1 matrix is in the authors' code
        similarities = 2 * random_pairs(cosines, rows, columns, settings.draws, generator)
    else:
        similarities = set_similarity(cosines, rows, columns, system)  # (D, D)
    return document_loss(similarities, settings.margin, negatives)


# --- Link inference (Section 3) --------------------------------------------------------------


@torch.no_grad()
def cosine_matrices(model: LinkModel, arrays: Arrays, split: str, device: str) -> list[np.ndarray]:
    """M (n, m) of every document of a split; each sentence and image is encoded once."""
    source = Batches(arrays, split, device)
    model.eval()

    def encode(nodes: tuple[np.ndarray, ...], encoder: Callable[[np.ndarray], Tensor]) -> list:
        used, index = np.unique(np.concatenate(nodes), return_inverse=True)
        blocks = [encoder(rows) for rows in np.array_split(used, len(used) // 1024 + 1)]
        vectors = torch.cat(blocks).float().cpu().numpy()[index]  # (all nodes, width)
        return np.split(vectors, np.cumsum([len(rows) for rows in nodes])[:-1])

    texts = encode(source.split.sentences, lambda rows: model.text(*source.texts(rows)))
    images = encode(source.split.images, lambda rows: model.encode_images(source.pictures(rows)))
    return [s @ v.T for s, v in zip(texts, images, strict=True)]


# --- Metrics (Section 4) ---------------------------------------------------------------------


def link_metrics(scores: np.ndarray, links: np.ndarray) -> dict[str, float] | None:
    """AUC, p@1 and p@5 of one document in percent; None where every cell or no cell is a link.

    scores, links (n, m). AUC counts a tie as half. p@C is the share of links among the C highest
    cells, the expected one where equal scores leave open which these are, or among all cells where
    there are fewer; it is not corrected for documents with fewer than C links.
    """
    flat, true = scores.ravel(), links.ravel().astype(bool)
    positives, negatives = int(true.sum()), int((~true).sum())
    if not positives or not negatives:
        return None
    # By rank sums: scikit-learn's roc_auc_score is far slower on so small a matrix.
    above = rankdata(flat)[true].sum() - positives * (positives + 1) / 2
    figures = {"AUC": 100 * float(above) / (positives * negatives)}
    for c in (1, 5):
        figures[f"p@{c}"] = 100 * float(chance_among_first(flat, c)[true].sum()) / min(c, len(flat))
    return figures


def evaluate(matrices: Sequence[np.ndarray], split: Split) -> dict[str, np.ndarray]:
    """Metric -> (documents,), NaN for a document that has to be skipped.

    The score of a data set is the mean over its documents (macro), nothing is pooled.
    """
    assert split.links is not None
    scored = [link_metrics(m, y) for m, y in zip(matrices, split.links, strict=True)]
    return {name: np.array([s[name] if s else np.nan for s in scored]) for name in METRICS}
