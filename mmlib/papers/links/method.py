"""The method of paper 04: links between the images and sentences of a document, from co-occurrence.

Hessel, Lee, Mimno: Unsupervised Discovery of Multimodal Links in Multi-image, Multi-sentence
Documents, EMNLP 2019. A document's sentences S (n of them) and images V (m) give a matrix of
cosines M (n, m). Training compares whole documents through a set similarity (DC, TK or AP, Section
3); links are read off M itself. Rows are sentences and columns images everywhere.
"""

from collections.abc import Callable

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from mmlib.features.gru import PackedGRU
from mmlib.papers.links.batches import Arrays, Batch, Batches
from mmlib.papers.links.systems import Negatives, Settings, System

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
        sentences = _pad(self.text(batch.ids, batch.lengths), batch.rows)  # (D, N, width)
        images = _pad(self.encode_images(batch.features), batch.columns)  # (D, M, width)
        cosines = torch.einsum("and,bmd->abnm", sentences, images)
        return cosines, batch.rows.unsqueeze(1), batch.columns.unsqueeze(0)


def _pad(vectors: Tensor, mask: Tensor) -> Tensor:
    """Vectors (count, width) -> (D, nodes, width), zero where the mask (D, nodes) is False."""
    padded = vectors.new_zeros(*mask.shape, vectors.shape[-1])
    return padded.masked_scatter(mask.unsqueeze(-1), vectors)


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
    matching = positive_matching if at_most else best_matching
    lead = cosines.shape[:-2]
    blocks = cosines.detach().reshape(-1, *cosines.shape[-2:]).double().cpu().numpy()
    n = rows.sum(-1).expand(lead).flatten().tolist()
    m = columns.sum(-1).expand(lead).flatten().tolist()
    sizes = k.expand(lead).flatten().tolist()
    chosen = np.zeros_like(blocks)
    for i, block in enumerate(blocks):
        edges = matching(block[: n[i], : m[i]], sizes[i])  # without padding
        chosen[i, edges[:, 0], edges[:, 1]] = 1 / max(len(edges), 1)
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


def positive_matching(matrix: np.ndarray, k: int) -> np.ndarray:
    """Edges (at most k, 2): the printed form of `best_matching`, without negative edges."""
    edges = best_matching(np.maximum(matrix, 0), k)
    return edges[matrix[edges[:, 0], edges[:, 1]] > 0]


def cardinality(n: Tensor, m: Tensor, half: bool, rounding: str = "ceil") -> Tensor:
    """How many edges k count: q = min(n, m), or half of it; rounding: "ceil" or "floor".

    The paper prints floor(q / 2), which is 0 for a single image; the authors' code rounds up.
    """
    q = torch.minimum(n, m)
    if not half:
        return q
    if rounding == "floor" and int(q.min()) < 2:
        raise ValueError("floor(q / 2) is 0 for a document with one image or sentence: use ceil")
    return (q + (rounding == "ceil")) // 2


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


def set_similarity(cosines: Tensor, rows: Tensor, columns: Tensor, system: System) -> Tensor:
    """The document similarity of a structured system. Shapes as in `dense_correspondence`."""
    if system.similarity == "DC":
        return dense_correspondence(cosines, rows, columns)
    lead = cosines.shape[:-2]
    n, m = rows.sum(-1).expand(lead), columns.sum(-1).expand(lead)
    k = cardinality(n, m, system.half, system.rounding)
    if system.similarity == "TK":
        return top_k(cosines, rows, columns, k)
    return assignment(cosines, rows, columns, k, system.at_most)


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
        pairs = random_pairs(cosines, rows, columns, settings.draws, generator)  # (draws, D, D)
        similarities = 2 * pairs if system.doubled else pairs
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

    def encode_images(rows: np.ndarray) -> Tensor:
        return model.encode_images(source.features[torch.from_numpy(rows).to(device)])

    texts = encode(source.split.sentences, lambda rows: model.text(*source.texts(rows)))
    images = encode(source.split.images, encode_images)
    return [s @ v.T for s, v in zip(texts, images, strict=True)]
