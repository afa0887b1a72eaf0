"""The method of paper 03: captions as scene graphs, encoded by graph attention, beside controls.

Pham, Huynh, Lim and Shrivastava, "Composing Object Relations and Attributes for Image-Text
Matching", CVPR 2024. Section and equation numbers are the paper's. Where the authors' released code
differs, both forms are here: "printed" and "authors".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmlib.features.bert import BertEncoder
from mmlib.papers.cora.graphs import Augmentation, Batch, GraphBatch, SequenceBatch
from mmlib.papers.cora.losses import contrastive, hardest, specificity
from mmlib.papers.cora.pooling import GPO, LEAN, both_ways, padded, sinusoid, valid

Form = Literal["printed", "authors"]
PARTS = 4  # in which a BERT reads a batch
TUNING = {"frozen": "frozen", "prompts": "ptuning", "tuned": "full"}  # of `System.words`


@dataclass(frozen=True)
class System:
    """A trained row of the tables, or a control.

    text: what stands for a caption: its scene "graph", the "gold" graph that it was written from
        (world), its words as a "sequence" (VSE∞, Chen et al., CVPR 2021), or the graph's phrases
        as a "bag", without any graph layer.
    words: a phrase, or a caption, is read by a "GRU" over word vectors or by a BERT: "frozen",
        with "prompts" (P-Tuning v2, Section 3.2), or "tuned" in full.
    steps: "two" (Section 3.3), or "one" GAT over objects and attributes at once (Joint, Table 3),
        which has no entities. attribute_layers, object_layers: of the two GATs (Table 3).
    connected: all objects of a caption are neighbours instead of the parsed ones (FC, Table 3).
    form: eq. 6, phrase encoders, positions of nodes and regions, matches of entities and the
        weight of L_SPEC, as printed or as in the authors' code. attention: of eqs. 2 and 3.
    residual: what enters an object layer is added to what comes out (ours). short_cut: what
        the bag makes of all phrases is added to the pooled objects (ours).
    regions: whether regions attend to each other before they are pooled (VSE∞ only pools).
    pooling: where the weights of their pooling start: by "chance" (GPO), or near the "largest"
        values of all regions, as max pooling has them (ours).
    losses: of eq. 13; entities: whether they take part in L_CON; margin: α.
    altered: words in random order in a sequence, attributes moved to other objects in a graph.
    members: trainings whose similarities are averaged. analysed: test graphs with parse errors and
        rankings of entities are recorded too.
    """

    system: str
    text: Literal["graph", "gold", "sequence", "bag"] = "graph"
    words: Literal["GRU", "frozen", "prompts", "tuned"] = "GRU"
    steps: Literal["two", "one"] = "two"
    attribute_layers: int = 1
    object_layers: int = 2
    connected: bool = False
    form: Form = "printed"
    attention: Form = "authors"
    residual: bool = False
    short_cut: bool = False
    regions: Literal["attention", "pooling"] = "attention"
    pooling: Literal["chance", "largest"] = "chance"
    losses: str = "HARD + CON + SPEC"
    entities: bool = True
    margin: float = 0.4
    altered: bool = False
    members: int = 1
    analysed: bool = False

    @property
    def reads(self) -> str:
        """Which of a split's texts it reads."""
        kind = "graph" if self.text == "bag" else self.text
        return f"{kind}, pieces" if self.bert else kind

    @property
    def bert(self) -> bool:
        """Whether words are read by a BERT."""
        return self.words != "GRU"

    @property
    def coded(self) -> bool:
        """Whether it has the authors' forms."""
        return self.form == "authors"


@dataclass(frozen=True)
class Settings(Augmentation):
    """How a system is trained. The defaults are the paper's (supplement).

    width: D of images, captions and entities. word_width: of word vectors and phrase states.
    con: λ_CON. temperature: τ of L_CON. calm: share of the epochs in which L_HARD takes the mean
    over negatives, not the hardest. word_rate: rate of the word vectors, which start from given
    ones, as a share of the learning rate. schedule: "step" divides the rate by ten after
    `fall` of the steps, "cosine" lets it fall to 0; either rises over the first `rise` of the
    steps. ema: decay of a running mean of the weights, which is what is evaluated; 0: none.
    captions: how many captions of each image an epoch shows. bert_still: share of the epochs in
    which a BERT learns nothing yet, with dropout off.
    """

    width: int = 1024
    word_width: int = 300
    heads: int = 16
    con: float = 0.25
    temperature: float = 0.01
    calm: float = 0.0
    image_dropout: float = 0.1
    graph_dropout: float = 0.15
    message_dropout: float = 0.05
    learning_rate: float = 5e-4
    word_rate: float = 0.1
    weight_decay: float = 1e-4
    schedule: Literal["step", "cosine"] = "step"
    fall: float = 0.3
    rise: float = 0.0
    ema: float = 0.0
    epochs: int = 50
    batch: int = 128
    captions: int = 5
    bert_still: float = 0.0


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

    "printed": W = [W_l | W_r] without bias, values W_r h_j, ReLU.
    "authors": own map for values, the mapped target W_l h_i added, layer norm, ReLU.
    """

    def __init__(self, width: int, heads: int = 16, form: Form = "authors", dropout: float = 0.0):
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} is not a multiple of {heads} heads")
        coded = form == "authors"
        self.left, self.right = nn.Linear(width, width, coded), nn.Linear(width, width, coded)
        self.value = nn.Linear(width, width) if coded else self.right
        self.norm = nn.LayerNorm(width) if coded else None
        self.attention = nn.Parameter(torch.randn(heads, width // heads) * (width // heads) ** -0.5)
        self.heads, self.dropout = heads, nn.Dropout(dropout)

    def scores(self, nodes: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """Attention weights (E, H); those of the edges into one node sum to 1."""
        return self._weights(self.left(nodes), self.right(nodes), source, target)

    def _weights(self, left: Tensor, right: Tensor, source: Tensor, target: Tensor) -> Tensor:
        pair = F.leaky_relu(left[target] + right[source], 0.2)
        e = (pair.unflatten(1, (self.heads, -1)) * self.attention).sum(-1)  # eq. 2
        return neighbour_softmax(e, target, len(left))

    def forward(self, nodes: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """Nodes (N, d) and edges source (E,) -> target (E,) -> nodes (N, d)."""
        left, right = self.left(nodes), self.right(nodes)
        alpha = self._weights(left, right, source, target)  # (E, H)
        values = right if self.value is self.right else self.value(nodes)
        values = self.dropout(values).unflatten(1, (self.heads, -1))  # (N, H, d / H)
        messages = torch.zeros_like(values).index_add(0, target, alpha[..., None] * values[source])
        messages = messages.flatten(1)  # eq. 3
        if self.norm is None:
            return messages.relu()
        return self.norm(left + messages).relu()


class RelationContext(nn.Module):
    """Eq. 6: each entity learns what it does and what is done to it, with what.

    "printed": a mean over its active and one over its passive relations, linear.
    "authors": one mean over both, with ReLU and dropout, then layer norm.
    """

    def __init__(self, width: int, form: Form = "printed", dropout: float = 0.0):
        super().__init__()
        coded = form == "authors"
        self.active = nn.Linear(2 * width, width, coded)
        self.passive = nn.Linear(2 * width, width, coded)
        self.norm = nn.LayerNorm(width) if coded else None
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, entities: Tensor, relations: Tensor, subject: Tensor, object: Tensor
    ) -> Tensor:
        """Entities (O, d), relations (R, d) with their ends (R,) -> entities in context (O, d)."""
        edges = torch.cat([relations, entities[object]], dim=1)  # r' = [r || e of the passive end]
        active, passive = self.active(edges), self.passive(edges)
        n = len(entities)
        if self.norm is None:
            return entities + mean_at(subject, active, n) + mean_at(object, passive, n)
        both = self.dropout(torch.cat([active, passive]).relu())
        return self.norm(entities + mean_at(torch.cat([subject, object]), both, n))


def mean_at(index: Tensor, values: Tensor, rows: int) -> Tensor:
    """Mean of the values (R, d) at each index (R,), (rows, d); 0 where there is none."""
    total = values.new_zeros(rows, values.shape[1]).index_add(0, index, values)
    return total / torch.bincount(index, minlength=rows).clamp(min=1)[:, None]


# --- Text encoders (Sections 3.1 to 3.4) -------------------------------------------------------


class PhraseGRU(nn.Module):
    """A phrase is the mean of the two last states of a Bi-GRU over its words (Section 3.2).

    With one direction (authors' code), the last state.
    """

    def __init__(self, embed: nn.Embedding, bidirectional: bool = True):
        super().__init__()
        width = embed.embedding_dim
        self.embed = embed
        self.gru = nn.GRU(width, width, batch_first=True, bidirectional=bidirectional)

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Ids (U, L), lengths (U,) -> (U, width)."""
        packed = nn.utils.rnn.pack_padded_sequence(
            self.embed(ids), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        return self.gru(packed)[1].mean(dim=0)


class Standardised(nn.Module):
    """Each dimension less its mean and divided by its deviation, both of the first training batch.

    A BERT's states share a large part, which harms systems that read phrases; word vectors, which
    do too, are standardised in `data.word_vectors`.
    """

    mean: Tensor
    deviation: Tensor
    known: Tensor

    def __init__(self, width: int):
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("deviation", torch.ones(width))
        self.register_buffer("known", torch.tensor(False))

    def forward(self, values: Tensor, valid: Tensor | None = None) -> Tensor:
        """Values (..., width), of which those that are `valid` (...) count; all where not given."""
        if self.training and not self.known:
            rows = (values if valid is None else values[valid]).detach()
            self.mean.copy_(rows.mean(dim=0))
            deviation = rows.std(dim=0, correction=0)
            self.deviation.copy_(torch.where(deviation > 1e-6, deviation, 1.0))
            self.known.fill_(True)
        return (values - self.mean) / self.deviation


class PhraseBERT(nn.Module):
    """A phrase is the mean of BERT's states over its tokens (Section 3.2; P-Tuning v2).

    still: nothing of it learns for now, and its dropout is off.
    """

    def __init__(self, bert: BertEncoder):
        super().__init__()
        self.bert, self.even = bert, Standardised(bert.width)
        self.still = False

    def train(self, mode: bool = True) -> "PhraseBERT":
        """Set training mode; a BERT that is still stays in evaluation mode."""
        super().train(mode)
        self.bert.train(mode and not self.still)
        return self

    def states(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Ids (U, L), lengths (U,) -> token states (U, L, width), of no meaning at padding.

        Texts of like lengths go through BERT together, which halves the time: few are long.
        """
        order, parts = lengths.argsort(stable=True), []
        for rows in order.chunk(PARTS):
            own = ids[rows, : int(lengths[rows[-1]])]
            with torch.set_grad_enabled(torch.is_grad_enabled() and not self.still):
                states = self.bert(own, valid(lengths[rows], own.shape[1]).long())
            parts.append(F.pad(states, (0, 0, 0, ids.shape[1] - own.shape[1])))
        return torch.cat(parts)[order.argsort()]

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Ids (U, L), lengths (U,) -> (U, width)."""
        tokens = valid(lengths, ids.shape[1])
        return self.even(self.bert.pool(self.states(ids, lengths), tokens))


class TokenBERT(PhraseBERT):
    """BERT's state of each token of a caption, as a sequence encoder reads it."""

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Ids (B, L), lengths (B,) -> (B, L, width)."""
        return self.even(self.states(ids, lengths), valid(lengths, ids.shape[1]))


class ConceptEncoder(nn.Module):
    """Phrases to R^D: a phrase encoder, then a layer for nodes and one for relations (Section 3.2).

    words: word vectors for a GRU, or a BERT. One phrase encoder for all or, `coded`, a one-way GRU
    each for objects, attributes, relations.
    """

    def __init__(self, words: nn.Embedding | BertEncoder, width: int, dropout: float, coded: bool):
        super().__init__()
        own: list[nn.Module]
        if isinstance(words, BertEncoder):
            inner, own = words.width, [PhraseBERT(words)]
        else:
            inner = words.embedding_dim
            own = [PhraseGRU(words, bidirectional=not coded) for _ in range(3 if coded else 1)]
        self.phrases = nn.ModuleList(own)
        self.node, self.relation = nn.Linear(inner, width), nn.Linear(inner, width)
        self.dropout = nn.Dropout(dropout)

    def linear(self, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Nodes (O + A, D), objects first, and relations (R, D), before their ReLU."""
        states = [encode(batch.tokens, batch.lengths) for encode in self.phrases]
        objects, attributes, relations = states if len(states) == 3 else states * 3
        nodes = torch.cat(
            [self.node(objects)[batch.objects], self.node(attributes)[batch.attributes]]
        )
        return nodes, self.relation(relations)[batch.relations]

    def forward(self, nodes: Tensor, relations: Tensor) -> tuple[Tensor, Tensor]:
        """What `linear` made, as the graph layers take it."""
        return self.dropout(nodes.relu()), self.dropout(relations.relu())


def of_captions(batch: GraphBatch) -> Tensor:
    """The caption of each object, attribute and relation of a batch, (O + A + R,)."""
    return torch.cat([
        batch.caption, batch.caption[batch.owner], batch.caption[batch.subject]
    ])  # fmt: skip


class PhrasePool(nn.Module):
    """All phrases of a caption as one set, pooled; who has or does what is not seen."""

    def __init__(self, dropout: float):
        super().__init__()
        self.dropout, self.pool = nn.Dropout(dropout), GPO()

    def forward(self, phrases: Tensor, batch: GraphBatch) -> Tensor:
        """Phrases (O + A + R, D) -> captions (B, D)."""
        group = of_captions(batch)
        order = group.argsort(stable=True)
        phrases = self.dropout(phrases)[order]
        return self.pool(*padded(phrases, group[order], batch.captions))


class BagEncoder(nn.Module):
    """Control: a caption is the bag of its phrases.

    Without their ReLU, as the words of a sequence have none: positive vectors start out parallel.
    """

    def __init__(self, concepts: ConceptEncoder, dropout: float):
        super().__init__()
        self.concepts, self.bag = concepts, PhrasePool(dropout)

    def forward(self, batch: GraphBatch) -> tuple[Tensor, None]:
        """Captions (B, D); there are no entities."""
        return self.bag(torch.cat(self.concepts.linear(batch)), batch), None


class GraphEncoder(nn.Module):
    """A scene graph to one vector in two steps, and its entities on the way (Section 3.3)."""

    def __init__(self, concepts: ConceptEncoder, system: System, settings: Settings):
        super().__init__()
        s, self.system = settings, system
        first, last = system.attribute_layers, system.object_layers
        first, last = (0, 2) if system.steps == "one" else (first, last)

        def layers(count: int, dropout: float) -> nn.ModuleList:
            return nn.ModuleList(
                [GATv2(s.width, s.heads, system.attention, dropout) for _ in range(count)]
            )

        self.concepts, self.attributes = concepts, layers(first, 0.0)
        self.context = RelationContext(s.width, system.form, s.graph_dropout)
        self.objects = layers(last, s.message_dropout)
        self.place = nn.Linear(16, s.width) if system.coded else None
        self.place_norm = nn.LayerNorm(s.width) if system.coded else None
        self.dropout, self.pool = nn.Dropout(s.graph_dropout), GPO()
        self.bag = PhrasePool(s.graph_dropout) if system.short_cut else None

    def entities(self, nodes: Tensor, batch: GraphBatch) -> Tensor:
        """Objects with their own attributes, and nothing else (eq. 5): (O, D)."""
        source, target = batch.attribute_edges(back=len(self.attributes) > 1)
        for i, layer in enumerate(self.attributes):
            nodes = layer(self.dropout(nodes) if i else nodes, source, target)
        return nodes[: len(batch.objects)]

    def forward(self, batch: GraphBatch) -> tuple[Tensor, Tensor | None]:
        """Captions (B, D), and entities (O, D) or, in one step, None."""
        phrases = self.concepts.linear(batch)
        nodes, relations = self.concepts(*phrases)
        n, joint = len(batch.objects), self.system.steps == "one"
        entities = hidden = nodes[:n] if joint else self.entities(nodes, batch)
        if self.place is not None and self.place_norm is not None:
            where = self.place(sinusoid(batch.position, 16))
            hidden = self.place_norm(hidden + self.dropout(where))
        hidden = self.context(hidden, relations, batch.subject, batch.object)  # eq. 6
        edges = batch.object_edges(self.system.connected)
        if joint:
            hidden = torch.cat([hidden, nodes[n:]])
            edges = batch.all_edges(self.system.connected)
        for layer in self.objects:  # eq. 7
            new = layer(self.dropout(hidden), *edges)
            hidden = hidden + new if self.system.residual else new
        captions = self.pool(*padded(hidden[:n], batch.caption, batch.captions))
        if self.bag is not None:
            captions = captions + self.bag(torch.cat(phrases), batch)
        return captions, None if joint else entities


class SequenceEncoder(nn.Module):
    """VSE∞'s caption encoder: words through a Bi-GRU, its directions averaged, then GPO.

    With a BERT, its token states through a linear layer, then GPO.
    """

    def __init__(self, words: nn.Embedding | BertEncoder, width: int, dropout: float):
        super().__init__()
        self.words: nn.Module
        self.dropout, self.pool = nn.Dropout(dropout), GPO()
        if isinstance(words, BertEncoder):
            self.words, self.linear = TokenBERT(words), nn.Linear(words.width, width)
        else:
            self.words = words
            self.gru = nn.GRU(words.embedding_dim, width, batch_first=True, bidirectional=True)

    def forward(self, batch: SequenceBatch) -> tuple[Tensor, None]:
        """Captions (B, D); there are no entities."""
        if isinstance(self.words, TokenBERT):
            states = self.linear(self.words(batch.tokens, batch.lengths))
        else:
            states = both_ways(self.gru, self.words(batch.tokens), batch.lengths)
        return self.pool(self.dropout(states), batch.lengths), None


# --- Image encoder (Section 3.2) ---------------------------------------------------------------


class ImageEncoder(nn.Module):
    """Regions through a linear map beside an MLP, self-attention, and GPO (Section 3.2; code).

    Without `attention` it is VSE∞'s. `positions`: confidence ranks enter the attention (code).
    """

    def __init__(
        self, inner: int, width: int, heads: int = 16, dropout: float = 0.1,
        attention: bool = True, positions: bool = False, lean: float | None = None,
    ):  # fmt: skip
        super().__init__()
        self.dropout, self.linear = nn.Dropout(dropout), nn.Linear(inner, width)
        self.hidden, self.norm = nn.Linear(inner, width // 2), nn.BatchNorm1d(width // 2)
        self.out = nn.Linear(width // 2, width)
        self.place = nn.Linear(16, width) if positions else None
        self.attention = None
        if attention:
            self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
            self.forth, self.back = nn.Linear(width, width), nn.Linear(width, width)
        self.pool = GPO(lean=lean)

    def forward(self, regions: Tensor, lengths: Tensor) -> Tensor:
        """Regions (B, n, inner) of which the first lengths[b] are valid -> images (B, D)."""
        there = valid(lengths, regions.shape[1])
        x = self.dropout(regions)
        # The norm sees valid regions only: in the authors' code its padding counts as well.
        inner = self.hidden(x)
        seen = self.norm(inner[there]).relu()
        inner = inner.new_zeros(inner.shape).masked_scatter(there[..., None], seen)
        x = self.linear(x) + self.out(inner)
        if self.attention is not None:
            z = x
            if self.place is not None:
                ranks = sinusoid(torch.arange(regions.shape[1], device=x.device), 16)
                z = x + self.dropout(self.place(ranks))
            z = self.before(z)
            x = x + self.attention(z, z, z, key_padding_mask=~there, need_weights=False)[0]
            x = x + self.back(self.forth(self.after(x)).relu())
        return self.pool(x, lengths)


# --- The whole model ---------------------------------------------------------------------------


class Matcher(nn.Module):
    """An image encoder and a text encoder into one space; the similarity is the cosine (eq. 1).

    region_width: of the image features; words (vocabulary, word_width): where word vectors start.
    bert: the folder of one, for systems that read by it. Raises ValueError where it is missing,
    and for the authors' form of it, of which nothing is known.
    """

    def __init__(
        self, system: System, settings: Settings, region_width: int, words: Tensor,
        bert: str | Path = "",
    ):  # fmt: skip
        super().__init__()
        if system.bert and (not bert or system.coded):
            raise ValueError(f"{system.system}: {'the code has no BERT' if bert else 'no BERT'}")
        s, self.system, self.settings = settings, system, settings
        self.images = ImageEncoder(
            region_width, s.width, s.heads, s.image_dropout,
            attention=system.regions == "attention", positions=system.coded,
            lean=LEAN if system.pooling == "largest" else None,
        )  # fmt: skip
        reader: nn.Embedding | BertEncoder
        if system.bert:
            reader = BertEncoder.from_pretrained(bert, TUNING[system.words])
        else:
            reader = nn.Embedding.from_pretrained(words.clone(), freeze=False, padding_idx=0)
        self.texts: nn.Module
        if system.text == "sequence":
            self.texts = SequenceEncoder(reader, s.width, s.graph_dropout)
            return
        concepts = ConceptEncoder(reader, s.width, s.graph_dropout, system.coded)
        bag = system.text == "bag"
        self.texts = (
            BagEncoder(concepts, s.graph_dropout) if bag else GraphEncoder(concepts, system, s)
        )

    def encode_images(self, regions: Tensor, counts: Tensor) -> Tensor:
        """Unit vectors (B, D)."""
        return F.normalize(self.images(regions, counts), dim=-1)

    def encode_texts(self, text: GraphBatch | SequenceBatch) -> tuple[Tensor, Tensor | None]:
        """Unit vectors of captions (B, D), and of entities (O, D) where there are any."""
        captions, entities = self.texts(text)
        entities = None if entities is None else F.normalize(entities, dim=-1)
        return F.normalize(captions, dim=-1), entities

    def loss(self, batch: Batch, calm: bool = False) -> Tensor:
        """Eq. 13; `calm`: with averaged instead of hardest negatives in L_HARD."""
        system, s, losses = self.system, self.settings, self.system.losses
        images = self.encode_images(batch.regions, batch.counts)
        captions, entities = self.encode_texts(batch.text)
        similarity = images @ captions.T  # (B, B)
        concepts, positive = similarity, batch.same
        total = similarity.new_zeros(())
        if "HARD" in losses:
            total = total + hardest(similarity, batch.same, system.margin, not calm)
        if entities is not None and isinstance(batch.text, GraphBatch):
            to_entities = images @ entities.T  # (B, O)
            if "SPEC" in losses:
                caption = batch.text.caption
                own = to_entities[caption, torch.arange(len(caption), device=caption.device)]
                weight = 2.75 if system.coded else 3.0  # λ_SPEC
                mean = specificity(similarity.diag()[caption], own, system.margin)
                total = total + weight * mean
            if system.entities and batch.contains is not None:
                concepts = torch.cat([similarity, to_entities], dim=1)  # (B, B + O)
                positive = torch.cat([batch.same, batch.contains], dim=1)
        if "CON" in losses:
            total = total + s.con * contrastive(concepts, positive, s.temperature)
        return total


def parameter_groups(model: nn.Module, settings: Settings) -> Sequence[dict]:
    """For an optimiser: word vectors at `word_rate` times the rate of all the rest.

    Of a BERT only what it is to learn, at rates of its own.
    """
    rate = settings.learning_rate
    berts = [m for m in model.modules() if isinstance(m, BertEncoder)]
    own = {id(p) for bert in berts for p in bert.parameters()}
    words = {id(m.weight): m.weight for m in model.modules()
             if isinstance(m, nn.Embedding) and id(m.weight) not in own}  # fmt: skip
    rest = [p for p in model.parameters() if id(p) not in words and id(p) not in own]
    groups = [
        {"params": rest, "lr": rate},
        {"params": [*words.values()], "lr": rate * settings.word_rate},
    ]
    return groups + [group for bert in berts for group in bert.parameter_groups(rate)]
