"""The method of paper 03: a caption as a scene graph, encoded by graph attention in two steps.

Pham, Huynh, Lim and Shrivastava, "Composing Object Relations and Attributes for Image-Text
Matching", CVPR 2024. Section and equation numbers are the paper's. Graph attention has the form of
the authors' released code, which trains better than the printed one. Other layers of the code
differ: `variants` has them, and controls, ablations and changes of ours.

Shapes: B captions or images, O objects, A attributes, R relations, U different phrases of L words,
N = O + A nodes, E edges, H heads, n regions; D is the width of all vectors.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmlib.core.files import read_rows
from mmlib.core.ranking import KS, Ranks, chance_among_first, metrics, ranks_of_scores
from mmlib.papers.cora.run.batches import (
    Batch,
    GraphBatch,
    GraphSet,
    Split,
    TextBatch,
    Texts,
    moved,
)
from mmlib.papers.cora.run.systems import Settings, System

POOL_TEMPERATURE = 0.1  # of the softmax
RANK_WIDTH = 32  # of position encodings, and of the Bi-GRU's states
BETAS = np.linspace(0, 1, 21)  # of eq. 14
ROUNDING = 1e-5  # cosines that differ by less are as high
FOLD = 1000  # test images of MS-COCO that are searched together ("1K")

# --- Pooling: many vectors to one -------------------------------------------------------------


def valid(lengths: Tensor, longest: int) -> Tensor:
    """A mask (B, longest) of bool: row b is True at its first lengths[b] positions."""
    return torch.arange(longest, device=lengths.device) < lengths[:, None]


def sinusoid(positions: Tensor, width: int) -> Tensor:
    """Sine and cosine in turn (Section 3.1 of GPO's paper): positions (n,) -> (n, width)."""
    rates = 10000 ** (-torch.arange(0, width, 2, device=positions.device) / width)
    angle = positions[:, None].float() * rates
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)


class GPO(nn.Module):
    """Generalised pooling: a learned weighted mean of the values sorted per dimension.

    The weights depend on the number of vectors only: a Bi-GRU reads their ranks.
    """

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(RANK_WIDTH, RANK_WIDTH, batch_first=True, bidirectional=True)
        self.score = nn.Linear(RANK_WIDTH, 1, bias=False)

    def weights(self, lengths: Tensor) -> Tensor:
        """θ (B, longest): row b holds lengths[b] weights that sum to 1, then zeros."""
        different, row = lengths.unique(return_inverse=True)
        longest = int(different[-1])
        ranks = sinusoid(torch.arange(longest, device=lengths.device), RANK_WIDTH)
        states = bidirectional(self.gru, ranks.expand(len(different), -1, -1), different)
        scores = self.score(states).squeeze(2)  # (different, longest)
        scores = scores.masked_fill(~valid(different, longest), -torch.inf)
        return (scores / POOL_TEMPERATURE).softmax(dim=1)[row]

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """(B, n, D) of which the first lengths[b] >= 1 are valid -> (B, D)."""
        if (lengths < 1).any():
            raise ValueError("pooling needs at least one vector a row")
        theta = self.weights(lengths)  # (B, n)
        features = features[:, : theta.shape[1]]
        padding = ~valid(lengths, theta.shape[1])[..., None]
        falling = features.masked_fill(padding, -torch.inf).sort(dim=1, descending=True).values
        return (falling.masked_fill(padding, 0.0) * theta[..., None]).sum(dim=1)


def packed(inputs: Tensor, lengths: Tensor) -> nn.utils.rnn.PackedSequence:
    """Inputs (B, n, d) of which the first lengths[b] are valid, as a GRU reads them."""
    return nn.utils.rnn.pack_padded_sequence(inputs, lengths.cpu(), True, enforce_sorted=False)


def bidirectional(gru: nn.GRU, inputs: Tensor, lengths: Tensor) -> Tensor:
    """States (B, n, hidden) of a Bi-GRU over inputs (B, n, d), its directions averaged."""
    states, _ = nn.utils.rnn.pad_packed_sequence(gru(packed(inputs, lengths))[0], batch_first=True)
    return states.unflatten(2, (2, -1)).mean(dim=2)


def padded(values: Tensor, group: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """Flat rows (n, d) of sorted groups (n,) -> (groups, longest, d) and lengths (groups,)."""
    lengths = torch.bincount(group, minlength=groups)
    column = torch.arange(len(group), device=group.device) - (lengths.cumsum(0) - lengths)[group]
    table = values.new_zeros(groups, int(lengths.max()), values.shape[1])
    return table.index_put((group, column), values), lengths


# --- Graph attention (Section 3.3) -------------------------------------------------------------


def neighbour_softmax(scores: Tensor, target: Tensor, nodes: int) -> Tensor:
    """Softmax of edge scores (E, H) over the edges that share a target (E,)."""
    index = target[:, None].expand_as(scores)
    top = scores.new_full((nodes, scores.shape[1]), -torch.inf)
    top = top.scatter_reduce(0, index, scores.detach(), "amax")
    weights = (scores - top[target]).exp()
    return weights / weights.new_zeros(top.shape).index_add(0, target, weights)[target]


class GATv2(nn.Module):
    """A layer of graph attention (eqs. 2 and 3; Brody et al. 2022) over an edge list.

    In the form of the authors' code: a map of its own for values, the mapped target W_l h_i added,
    and layer norm. The paper prints W = [W_l | W_r] without bias, values W_r h_j and ReLU alone
    (`variants.PrintedGATv2`).
    """

    def __init__(self, width: int, heads: int = 16, dropout: float = 0.0):
        super().__init__()
        # The paper's W_l reads the target i, and W_r the source j: the reverse of PyTorch
        # Geometric, whose lin_l reads the source.
        self.left, self.right = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.norm = nn.Linear(width, width), nn.LayerNorm(width)
        self.attention = nn.Parameter(torch.randn(heads, width // heads) * (width // heads) ** -0.5)
        self.dropout = nn.Dropout(dropout)

    def attention_weights(
        self, left: Tensor, right: Tensor, source: Tensor, target: Tensor
    ) -> Tensor:
        """α (E, H) of mapped targets and sources (N, D): of the edges into a node they sum to 1."""
        pair = F.leaky_relu(left[target] + right[source], 0.2)  # (E, D)
        e = (pair.unflatten(1, (len(self.attention), -1)) * self.attention).sum(-1)  # eq. 2, (E, H)
        return neighbour_softmax(e, target, len(left))

    def hear(self, values: Tensor, alpha: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """Eq. 3: what each node hears, the weighted sums (N, D) of its neighbours' values."""
        values = self.dropout(values).unflatten(1, (len(self.attention), -1))  # (N, H, D / H)
        sent = alpha[..., None] * values[source]  # (E, H, D / H)
        return sent.new_zeros(values.shape).index_add(0, target, sent).flatten(1)

    def forward(self, nodes: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """Nodes (N, D) and edges source (E,) -> target (E,) -> nodes (N, D)."""
        left, right = self.left(nodes), self.right(nodes)
        alpha = self.attention_weights(left, right, source, target)  # (E, H)
        return self.norm(left + self.hear(self.value(nodes), alpha, source, target)).relu()


class RelationContext(nn.Module):
    """Eq. 6 as printed: an entity learns what it does and what is done to it, and with what."""

    def __init__(self, width: int, bias: bool = False, ends: int = 1):
        super().__init__()
        self.ends = ends
        self.active = nn.Linear((1 + ends) * width, width, bias)
        self.passive = nn.Linear((1 + ends) * width, width, bias)

    def forward(self, entities: Tensor, relations: Tensor, batch: GraphBatch) -> Tensor:
        """Entities (O, D) and relations (R, D) of a batch -> entities in context (O, D)."""
        # r' = [r || e of the passive end]; with both ends also the active one's
        ends = [entities[end] for end in (batch.object, batch.subject)[: self.ends]]
        edges = torch.cat([relations, *ends], dim=1)  # (R, 2 D)
        active, passive, n = self.active(edges), self.passive(edges), len(entities)  # (R, D)
        return entities + mean_at(batch.subject, active, n) + mean_at(batch.object, passive, n)


def mean_at(index: Tensor, values: Tensor, rows: int) -> Tensor:
    """Mean of the values (R, D) at each index (R,), (rows, D); 0 where there is none."""
    total = values.new_zeros(rows, values.shape[1]).index_add(0, index, values)
    return total / torch.bincount(index, minlength=rows).clamp(min=1)[:, None]


# --- Text encoder (Sections 3.1 to 3.4) --------------------------------------------------------


class PhraseGRU(nn.Module):
    """A phrase is the mean of the last states of a Bi-GRU over its words (Section 3.2).

    The authors' code has one direction.
    """

    def __init__(self, embed: nn.Embedding, bidirectional: bool = True):
        super().__init__()
        self.embed, self.width = embed, embed.embedding_dim
        self.gru = nn.GRU(self.width, self.width, batch_first=True, bidirectional=bidirectional)

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Ids (U, L), lengths (U,) -> (U, width)."""
        return self.gru(packed(self.embed(ids), lengths))[1].mean(dim=0)


class ConceptEncoder(nn.Module):
    """Phrases to R^D: a phrase encoder, then a layer for nodes and one for relations (Section 3.2).

    The authors' code has a phrase encoder each for objects, attributes and relations.
    """

    def __init__(self, phrases: Sequence[nn.Module], phrase_width: int, width: int):
        super().__init__()
        self.phrases = nn.ModuleList(phrases)
        self.node, self.relation = nn.Linear(phrase_width, width), nn.Linear(phrase_width, width)

    def forward(self, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Nodes (N, D), objects first, and relations (R, D), before their ReLU."""
        states = [encoder(batch.tokens, batch.lengths) for encoder in self.phrases]  # (U, width)
        objects, attributes, relations = states if len(states) == 3 else states * 3
        nodes = self.node(objects)[batch.objects], self.node(attributes)[batch.attributes]
        return torch.cat(nodes), self.relation(relations)[batch.relations]


class GraphEncoder(nn.Module):
    """A scene graph to one vector in two steps, and its entities on the way (Section 3.3).

    attributes, objects: layers of the Object-Attribute and the Object-Object GAT; context: eq. 6.
    connected: FC of Table 3, all nodes of step two of a caption are neighbours.
    """

    connected = False

    def __init__(
        self, concepts: ConceptEncoder, attributes: nn.ModuleList, context: RelationContext,
        objects: nn.ModuleList, dropout: float,
    ):  # fmt: skip
        super().__init__()
        self.concepts, self.attributes = concepts, attributes
        self.context, self.objects = context, objects
        self.dropout, self.pool = nn.Dropout(dropout), GPO()

    def forward(self, batch: GraphBatch) -> tuple[Tensor, Tensor | None]:
        """Captions (B, D) and entities (O, D)."""
        return self.compose(batch, *self.concepts(batch))

    def compose(
        self, batch: GraphBatch, nodes: Tensor, relations: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """The same from the phrases of nodes (N, D) and relations (R, D), before their ReLU."""
        nodes, relations = self.dropout(nodes.relu()), self.dropout(relations.relu())
        entities = self.entities(nodes, batch)  # (O, D)
        hidden = self.exchange(self.context(entities, relations, batch), batch)  # (O, D)
        return self.pool(*padded(hidden, batch.caption, batch.captions)), entities

    def entities(self, nodes: Tensor, batch: GraphBatch) -> Tensor:
        """Step one: objects with their own attributes, and nothing else (eq. 5), (O, D)."""
        source, target = batch.attribute_edges(back=len(self.attributes) > 1)
        for i, layer in enumerate(self.attributes):
            nodes = layer(self.dropout(nodes) if i else nodes, source, target)  # (N, D)
        return nodes[: len(batch.objects)]

    def exchange(self, hidden: Tensor, batch: GraphBatch) -> Tensor:
        """Step two: objects (O, D) hear those that they are related to (eq. 7), (O, D)."""
        edges = self.edges(batch)
        for layer in self.objects:
            hidden = layer(self.dropout(hidden), *edges)
        return hidden

    def edges(self, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Edges (source, target) of step two."""
        return pairs_within(batch.caption) if self.connected else batch.object_edges()


def pairs_within(group: Tensor) -> tuple[Tensor, Tensor]:
    """Edges (source, target) between all nodes of a group (n,), and of each to itself."""
    target, source = (group[:, None] == group).nonzero().T
    return source, target


# --- Image encoder (Section 3.2) ---------------------------------------------------------------


class ImageEncoder(nn.Module):
    """Regions through a linear map beside an MLP, self-attention, and GPO (Section 3.2; code).

    attention: without it as in VSE∞. positions: confidence ranks enter it (authors' code).
    """

    def __init__(
        self, region_width: int, width: int, heads: int = 16, dropout: float = 0.1,
        attention: bool = True, positions: bool = False,
    ):  # fmt: skip
        super().__init__()
        self.dropout, self.linear = nn.Dropout(dropout), nn.Linear(region_width, width)
        self.hidden, self.norm = nn.Linear(region_width, width // 2), nn.BatchNorm1d(width // 2)
        self.out = nn.Linear(width // 2, width)
        self.position = nn.Linear(16, width) if positions else None
        self.attention = None
        if attention:
            self.norm_before, self.norm_after = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
            self.feed_in, self.feed_out = nn.Linear(width, width), nn.Linear(width, width)
        self.pool = GPO()

    def forward(self, regions: Tensor, lengths: Tensor) -> Tensor:
        """Regions (B, n, region_width), the first lengths[b] of them valid -> images (B, D)."""
        mask = valid(lengths, regions.shape[1])  # (B, n)
        x = self.dropout(regions)
        # The norm sees valid regions only: in the authors' code its padding counts as well.
        hidden = self.hidden(x)
        normed = self.norm(hidden[mask]).relu()  # (valid regions, D / 2)
        hidden = hidden.new_zeros(hidden.shape).masked_scatter(mask[..., None], normed)
        x = self.linear(x) + self.out(hidden)  # (B, n, D)
        if self.attention is not None:
            z = x
            if self.position is not None:
                ranks = sinusoid(torch.arange(x.shape[1], device=x.device), 16)
                z = x + self.dropout(self.position(ranks))
            z = self.norm_before(z)
            x = x + self.attention(z, z, z, key_padding_mask=~mask, need_weights=False)[0]
            x = x + self.feed_out(self.feed_in(self.norm_after(x)).relu())
        return self.pool(x, lengths)


# --- Losses (Section 3.4) ---------------------------------------------------------------------


def hardest(similarity: Tensor, same: Tensor, margin: float, hard: bool = True) -> Tensor:
    """L_HARD (eqs. 8, 9), a mean: hinge on the hardest negative caption and negative image.

    similarity (N, N), images by captions, pairs on the diagonal. same (N, N): pairs of the same
    image, which are no negatives. hard: False for the mean over all negatives instead.
    """
    positive, total = similarity.diag(), similarity.new_zeros(())
    for scores, negatives in ((similarity, ~same), (similarity.T, ~same.T)):
        hinge = (margin + scores - positive[:, None]).clamp(min=0) * negatives
        mean = hinge.sum(dim=1) / negatives.sum(dim=1).clamp(min=1)
        total = total + (hinge.amax(dim=1) if hard else mean).mean()
    return total


def contrastive(
    similarity: Tensor, positive: Tensor, temperature: float, authors: bool = False
) -> Tensor:
    """L_CON (eqs. 10, 11) between N images and M concepts (captions and entities), both ways.

    similarity (N, M), positive (N, M): the concept is in the image. Each positive stands alone
    against the anchor's negatives, in a denominator that has the positive itself: printed, it is
    missing, and the loss falls below 0. authors: as in their code, where the exponentials of
    an anchor are divided by its largest one, and then 1e-9 (images) or 1e-6 (concepts) is added to
    each denominator. A positive further than 20.7 or 13.8 temperatures below the anchor's largest
    cosine is then drawn nearer even where no negative is near.
    """

    def side(logits: Tensor, positive: Tensor, added: float) -> Tensor:
        negatives = logits.masked_fill(positive, -1e9).logsumexp(dim=1, keepdim=True)
        if authors:  # as a negative of that size, which has no gradient
            largest = logits.detach().amax(dim=1, keepdim=True)
            negatives = negatives.logaddexp(largest + math.log(added))
        terms = F.softplus(negatives - logits) * positive
        return (terms.sum(dim=1) / positive.sum(dim=1)).mean()

    logits = similarity / temperature
    return side(logits, positive, 1e-9) + side(logits.T, positive.T, 1e-6)


def specificity(captions: Tensor, entities: Tensor, margin: float) -> Tensor:
    """L_SPEC (eq. 12), a mean: an image is nearer to its whole caption than to its entities.

    captions, entities (O,): an image's similarity to its caption and to an entity of it.
    """
    return (margin + entities - captions).clamp(min=0).mean()


# --- The whole model ---------------------------------------------------------------------------


class Matcher(nn.Module):
    """An image encoder and a text encoder into one space; the similarity is the cosine (eq. 1).

    How they are built of a system and its settings: `variants.build`.
    """

    def __init__(self, images: nn.Module, texts: nn.Module, system: System, settings: Settings):
        super().__init__()
        self.images, self.texts = images, texts
        self.system, self.settings = system, settings

    def encode_images(self, regions: Tensor, counts: Tensor) -> Tensor:
        """Unit vectors (B, D)."""
        return F.normalize(self.images(regions, counts), dim=-1)

    def encode_texts(self, text: TextBatch) -> tuple[Tensor, Tensor | None]:
        """Unit vectors of captions (B, D), and of entities (O, D) where there are any."""
        captions, entities = self.texts(text)
        entities = None if entities is None else F.normalize(entities, dim=-1)
        return F.normalize(captions, dim=-1), entities

    def loss(self, batch: Batch, mean_negatives: bool = False) -> Tensor:
        """Eq. 13: L_HARD + λ_CON L_CON + λ_SPEC L_SPEC, those of them that the system has.

        mean_negatives: averaged instead of hardest negatives in L_HARD. To these it adds a hinge of
        the same margin over `Batch.swapped`, averaged, where there are any (not in the paper).
        """
        system, losses = self.system, self.system.losses
        authors = system.form == "authors"
        images = self.encode_images(batch.regions, batch.counts)  # (B, D)
        captions, entities = self.encode_texts(batch.text)  # (B, D), (O, D)
        similarity = images @ captions.T  # (B, B)
        concepts, positive = similarity, batch.same
        total = similarity.new_zeros(())
        if batch.swapped is not None:
            wrong, of = self.encode_texts(batch.swapped)[0], batch.of_swapped
            lead = similarity.diag()[of] - (images[of] * wrong).sum(dim=1)
            total = total + (system.margin - lead).relu().mean()
        if "HARD" in losses:
            total = total + hardest(similarity, batch.same, system.margin, not mean_negatives)
        if entities is not None and isinstance(batch.text, GraphBatch):
            to_entities = images @ entities.T  # (B, O)
            if "SPEC" in losses:
                caption = batch.text.caption
                of_entity = to_entities[caption, torch.arange(len(caption), device=caption.device)]
                of_caption = similarity.diag()[caption]  # both (O,)
                lambda_spec = 2.75 if authors else 3.0
                total = total + lambda_spec * specificity(of_caption, of_entity, system.margin)
            if system.entities and batch.contains is not None:
                concepts = torch.cat([similarity, to_entities], dim=1)  # (B, B + O)
                positive = torch.cat([batch.same, batch.contains], dim=1)
        if "CON" in losses:
            authors = authors or system.contrast == "authors"
            loss = contrastive(concepts, positive, self.settings.temperature, authors)
            total = total + self.settings.lambda_con * loss
        return total


# --- Inference ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Encoded:
    """Unit vectors of a split."""

    images: np.ndarray  # (n, D)
    captions: np.ndarray  # (m, D)
    image_of: np.ndarray  # (m,)
    entities: np.ndarray | None  # (e, D), or None where the system has none
    caption_of: np.ndarray | None  # (e,)

    @property
    def similarity(self) -> np.ndarray:
        """Cosines (images, captions), eq. 1."""
        return self.images @ self.captions.T

    @property
    def own(self) -> np.ndarray:
        """Cosine of each caption with its image."""
        return np.einsum("md,md->m", self.images[self.image_of], self.captions)


@torch.no_grad()
def encode(
    model: Matcher, split: Split, texts: Texts, device: str = "cpu", size: int = 256,
    first: bool = False,
) -> Encoded:  # fmt: skip
    """All images of a split and their captions, or the first of each; in evaluation mode."""
    model.eval()
    images = []
    for start in range(0, len(split.features), size):
        rows = np.arange(start, min(start + size, len(split.features)))
        regions = torch.as_tensor(read_rows(split.features, rows), device=device)
        counts = torch.full((len(rows),), regions.shape[1], device=device)
        images.append(model.encode_images(regions, counts).cpu())
    every, firsts = np.arange(len(texts)), np.unique(split.image_of, return_index=True)[1]
    chosen = firsts if first else every
    captions, entities, caption_of = [], [], []
    for start in range(0, len(chosen), size):
        text = moved(texts.batch(chosen[start : start + size]), device)
        caption, entity = model.encode_texts(text)
        captions.append(caption.cpu())
        if entity is not None and isinstance(text, GraphBatch):
            entities.append(entity.cpu())
            caption_of.append(start + text.caption.cpu())
    return Encoded(
        torch.cat(images).numpy(), torch.cat(captions).numpy(), split.image_of[chosen],
        torch.cat(entities).numpy() if entities else None,
        torch.cat(caption_of).numpy() if caption_of else None,
    )  # fmt: skip


@torch.no_grad()
def attention(model: Matcher, graphs: GraphSet, row: int) -> dict[tuple[Any, Any], float]:
    """Weights of the last attribute and object layer on one caption's graph, means over heads.

    By the nodes that networkx has in a graph of `mmlib.scenegraph`: (object, its attribute), and
    (object, object that it hears). Raises ValueError for a system without graph layers.
    """
    encoder = model.eval().texts
    if not isinstance(encoder, GraphEncoder):
        raise ValueError(f"{model.system.system} has no graph layers to look into")
    batch, weights = graphs.batch(np.array([row])), {}
    owner, count = batch.owner.tolist(), len(batch.objects)
    nodes = [*range(count), *((o, owner[:a].count(o)) for a, o in enumerate(owner))]

    def look(layer: GATv2, inputs: tuple[Tensor, Tensor, Tensor]) -> None:
        x, source, target = inputs
        alpha = layer.attention_weights(layer.left(x), layer.right(x), source, target).mean(dim=1)
        for s, t, weight in zip(source.tolist(), target.tolist(), alpha.tolist(), strict=True):
            weights[nodes[t], nodes[s]] = weight

    last = [layers[-1] for layers in (encoder.attributes, encoder.objects) if len(layers)]
    hooks = [layer.register_forward_pre_hook(look) for layer in last]
    encoder(batch)
    for hook in hooks:
        hook.remove()
    return weights


# --- Metrics -----------------------------------------------------------------------------------


def per_item(ranks: Ranks) -> dict[str, np.ndarray]:
    """Of each item, all captions and then all images: its rank, and what it adds to RSUM.

    The mean of "RSUM" over items is the sum of R@1, R@5 and R@10 both ways, in percent.
    """
    directions = ranks.caption_ranks, ranks.image_ranks
    items = sum(map(len, directions))
    rsum = [
        100 * items / len(ranked) * np.sum([ranked <= k for k in KS], axis=0, dtype=float)
        for ranked in directions
    ]
    return {"rank": np.concatenate(directions).astype(float), "RSUM": np.concatenate(rsum)}


def in_folds(scores: np.ndarray, image_of: np.ndarray) -> dict[str, np.ndarray]:
    """`per_item` among an item's `FOLD` images alone (MS-COCO 1K), if scores (images, captions)
    are of several folds: "rank, 1K", "RSUM, 1K".
    """  # fmt: skip
    if len(scores) % FOLD or len(scores) == FOLD:
        return {}
    together = np.arange(len(scores))[:, None] // FOLD == image_of // FOLD
    ranks = ranks_of_scores(np.where(together, scores, -np.inf), image_of)
    return {f"{name}, 1K": values for name, values in per_item(ranks).items()}


def right_in_family(scores: np.ndarray, image_of: np.ndarray, size: int) -> np.ndarray:
    """Whether a caption finds its image among its family of `size`: 100 or 0; NaN for images.

    scores (images, captions); where t images share the highest one, each gets 100 / t.
    """
    first = image_of // size * size
    family = scores[first[:, None] + np.arange(size), np.arange(len(image_of))[:, None]]
    chance = chance_among_first(family, 1)
    hit = 100 * chance[np.arange(len(chance)), image_of - first]
    return np.concatenate([hit, np.full(len(scores), np.nan)])


def swap_values(
    own: np.ndarray, other: np.ndarray, swaps: Mapping[str, np.ndarray], images: int
) -> dict[str, np.ndarray]:
    """Whether captions score higher than with two things exchanged, 100 or 0; 50 if as high.

    own (captions,), other (swaps,): scores; swaps: see `Split.swaps`. "swap " + kind -> (captions +
    images,), NaN for a caption without a swap, and for images.
    """
    values = {}
    for kind, swap in swaps.items():
        has, right = swap >= 0, np.full(len(swap) + images, np.nan)
        lead = own[has] - other[swap[has]]
        right[: len(swap)][has] = np.where(np.abs(lead) < ROUNDING, 50, 100 * (lead > 0))
        values[f"swap {kind}"] = right
    return values


def weakest_entity(encoded: Encoded) -> np.ndarray:
    """min_k s(v, e_k) over the entities of each caption (eq. 14): (images, captions)."""
    if encoded.entities is None or encoded.caption_of is None:
        raise ValueError("this system has no entities to rerank with")
    starts = np.searchsorted(encoded.caption_of, np.arange(len(encoded.captions)))
    images = encoded.images
    blocks = np.split(images, range(1024, len(images), 1024))  # all at once take gigabytes
    return np.concatenate(
        [np.minimum.reduceat(block @ encoded.entities.T, starts, axis=1) for block in blocks]
    )


def best_beta(similarity: np.ndarray, weakest: np.ndarray, image_of: np.ndarray) -> float:
    """The β of eq. 14 with the highest RSUM; of several equal ones the largest."""

    def rsum(beta: float) -> float:
        mixed = beta * similarity + (1 - beta) * weakest
        return metrics(ranks_of_scores(mixed, image_of))["rsum"]

    return float(max(BETAS[::-1], key=rsum))
