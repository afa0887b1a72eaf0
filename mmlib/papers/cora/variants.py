"""What is compared with CORA, and how a model of any system is built.

The authors' form of the graph encoder and the printed one of graph attention, the ablations of
Table 3 (Joint, FC), our skip connections, the controls (a bag of phrases, a sequence), and phrases
and words that a BERT reads. Shapes as in `method`.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmlib.features.bert import BertEncoder
from mmlib.papers.cora import method
from mmlib.papers.cora.method import ConceptEncoder, GATv2, GraphEncoder, Matcher, RelationContext
from mmlib.papers.cora.run.batches import GraphBatch, SequenceBatch
from mmlib.papers.cora.run.systems import Settings, System

CHUNKS = 4  # in which a BERT reads a batch
TUNING = {"frozen": "frozen", "prompts": "ptuning", "tuned": "full"}  # of `System.words`


class PrintedGATv2(GATv2):
    """Eqs. 2 and 3 as printed: no bias, values W_r h_j, and nothing but ReLU after them."""

    def __init__(self, width: int, heads: int = 16, dropout: float = 0.0):
        nn.Module.__init__(self)
        self.left, self.right = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.attention = nn.Parameter(torch.randn(heads, width // heads) * (width // heads) ** -0.5)
        self.dropout = nn.Dropout(dropout)

    def forward(self, nodes: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """Nodes (N, D) and edges source (E,) -> target (E,) -> nodes (N, D)."""
        left, right = self.left(nodes), self.right(nodes)
        alpha = self.attention_weights(left, right, source, target)
        return self.hear(right, alpha, source, target).relu()


class AuthorsContext(RelationContext):
    """Eq. 6 in the authors' code: one mean over all relations, with ReLU, then layer norm.

    Before it an object's position in its caption is added.
    """

    position: nn.Linear

    def __init__(self, width: int, dropout: float):
        super().__init__(width, bias=True)
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(dropout)
        self.position_norm = nn.LayerNorm(width)

    def forward(self, entities: Tensor, relations: Tensor, batch: GraphBatch) -> Tensor:
        """Entities (O, D) and relations (R, D) of a batch -> entities in context (O, D)."""
        position = self.position(method.sinusoid(batch.position, self.position.in_features))
        entities = self.position_norm(entities + self.dropout(position))
        edges = torch.cat([relations, entities[batch.object]], dim=1)
        values = torch.cat([self.active(edges), self.passive(edges)])  # (2 R, D)
        ends = torch.cat([batch.subject, batch.object])
        mean = method.mean_at(ends, self.dropout(values.relu()), len(entities))
        return self.norm(entities + mean)


class ResidualEncoder(GraphEncoder):
    """Ours: a skip connection around each object layer, and a bag of all phrases around all."""

    def __init__(self, *layers: Any):
        super().__init__(*layers)
        self.bag = method.GPO()

    def forward(self, batch: GraphBatch) -> tuple[Tensor, Tensor | None]:
        """Captions (B, D) and entities (O, D)."""
        concepts = self.concepts(batch)
        captions, entities = self.compose(batch, *concepts)
        phrases = self.dropout(torch.cat(concepts))
        return captions + pool_all(phrases, batch, self.bag), entities

    def exchange(self, hidden: Tensor, batch: GraphBatch) -> Tensor:
        """Step two; what enters a layer is added to what comes out, (O, D)."""
        edges = self.edges(batch)
        for layer in self.objects:
            hidden = hidden + layer(self.dropout(hidden), *edges)
        return hidden


class JointEncoder(GraphEncoder):
    """Joint of Table 3: one GAT over objects and attributes at once, and so no entities."""

    def compose(self, batch: GraphBatch, nodes: Tensor, relations: Tensor) -> tuple[Tensor, None]:
        """Captions (B, D) from the phrases of nodes (N, D) and relations (R, D)."""
        nodes, relations = self.dropout(nodes.relu()), self.dropout(relations.relu())
        n = len(batch.objects)
        hidden = self.context(nodes[:n], relations, batch)  # (O, D)
        hidden = self.exchange(torch.cat([hidden, nodes[n:]]), batch)  # (N, D)
        return self.pool(*method.padded(hidden[:n], batch.caption, batch.captions)), None

    def edges(self, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Those between objects, and between attribute and object both ways, with self-loops."""
        if self.connected:
            return method.pairs_within(torch.cat([batch.caption, batch.caption[batch.owner]]))
        nodes, (source, target) = batch.attribute_nodes, batch.object_edges()
        return (
            torch.cat([source, nodes, batch.owner, nodes]),
            torch.cat([target, batch.owner, nodes, nodes]),
        )


def pool_all(phrases: Tensor, batch: GraphBatch, pool: method.GPO) -> Tensor:
    """All phrases (O + A + R, D) of a caption as one set -> captions (B, D)."""
    caption = torch.cat([batch.caption, batch.caption[batch.owner], batch.caption[batch.subject]])
    order = caption.argsort(stable=True)
    return pool(*method.padded(phrases[order], caption[order], batch.captions))


class BagEncoder(nn.Module):
    """Control: a caption is the bag of its phrases; who has or does what is not seen.

    Without their ReLU, as the words of a sequence have none: positive vectors start out parallel.
    """

    def __init__(self, concepts: ConceptEncoder, dropout: float):
        super().__init__()
        self.concepts, self.dropout, self.bag = concepts, nn.Dropout(dropout), method.GPO()

    def forward(self, batch: GraphBatch) -> tuple[Tensor, None]:
        """Captions (B, D); there are no entities."""
        return pool_all(self.dropout(torch.cat(self.concepts(batch))), batch, self.bag), None


class SequenceEncoder(nn.Module):
    """VSE∞'s caption encoder: words through a Bi-GRU, its directions averaged, then GPO.

    With a BERT, its token states through a linear layer, then GPO.
    """

    def __init__(self, words: nn.Embedding | BertEncoder, width: int, dropout: float):
        super().__init__()
        self.words: nn.Module
        self.dropout, self.pool = nn.Dropout(dropout), method.GPO()
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
            states = method.bidirectional(self.gru, self.words(batch.tokens), batch.lengths)
        return self.pool(self.dropout(states), batch.lengths), None


class PhraseBERT(nn.Module):
    """A phrase is the mean of BERT's states over its tokens (Section 3.2; P-Tuning v2).

    Each dimension is standardised by the mean and deviation of the first training batch. A BERT's
    states share a large component, which harms systems that read phrases; word vectors, which do
    too, are standardised in `data.word_vectors`.
    frozen: nothing of it learns for now, and its dropout is off.
    """

    mean: Tensor
    deviation: Tensor
    fitted: Tensor

    def __init__(self, bert: BertEncoder):
        super().__init__()
        self.bert, self.width, self.frozen = bert, bert.width, False
        self.register_buffer("mean", torch.zeros(bert.width))
        self.register_buffer("deviation", torch.ones(bert.width))
        self.register_buffer("fitted", torch.tensor(False))

    def train(self, mode: bool = True) -> "PhraseBERT":
        """Set training mode; a BERT that is frozen stays in evaluation mode."""
        super().train(mode)
        self.bert.train(mode and not self.frozen)
        return self

    def states(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Ids (U, L), lengths (U,) -> token states (U, L, width), of no meaning at padding.

        Texts of like lengths go through BERT together, which halves the time: few are long.
        """
        order, chunks = lengths.argsort(stable=True), []
        for rows in order.chunk(CHUNKS):
            longest = int(lengths[rows[-1]])
            with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
                states = self.bert(ids[rows, :longest], method.valid(lengths[rows], longest).long())
            chunks.append(F.pad(states, (0, 0, 0, ids.shape[1] - longest)))
        return torch.cat(chunks)[order.argsort()]

    def standardised(self, values: Tensor, rows: Tensor) -> Tensor:
        """Values (..., width); rows (n, width): those that count where a training begins."""
        if self.training and not self.fitted:
            self.mean.copy_(rows.detach().mean(dim=0))
            deviation = rows.detach().std(dim=0, correction=0)
            self.deviation.copy_(torch.where(deviation > 1e-6, deviation, 1.0))
            self.fitted.fill_(True)
        return (values - self.mean) / self.deviation

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Ids (U, L), lengths (U,) -> (U, width)."""
        phrases = self.bert.pool(self.states(ids, lengths), method.valid(lengths, ids.shape[1]))
        return self.standardised(phrases, phrases)


class TokenBERT(PhraseBERT):
    """BERT's state of each token of a caption, as a sequence encoder reads it."""

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Ids (B, L), lengths (B,) -> (B, L, width)."""
        states = self.states(ids, lengths)
        return self.standardised(states, states[method.valid(lengths, ids.shape[1])])


def build(
    system: System, settings: Settings, region_width: int, words: Tensor, bert: str | Path = ""
) -> Matcher:
    """A fresh model of a system; PyTorch's generator decides its weights.

    region_width: of the image features; words (vocabulary, word_width): where word vectors start.
    bert: the folder of one, for systems that read by it. Raises ValueError where it is missing,
    for the authors' form of it, of which nothing is known, and for skips with FC or in Joint.
    """
    s, authors, joint = settings, system.form == "authors", system.steps == "one"
    if system.bert and (not bert or authors):
        raise ValueError(f"{system.system}: {'the code has no BERT' if bert else 'no BERT'}")
    if system.residual and (system.connected or joint):
        raise ValueError(f"{system.system}: skips are only in two steps on the parsed graph")
    images = method.ImageEncoder(
        region_width, s.width, s.heads, s.image_dropout, system.regions == "attention", authors
    )
    reader: nn.Embedding | BertEncoder
    if system.bert:
        reader = BertEncoder.from_pretrained(bert, TUNING[system.words])
    else:
        reader = nn.Embedding.from_pretrained(words.clone(), freeze=False, padding_idx=0)
    if system.text == "sequence":
        return Matcher(images, SequenceEncoder(reader, s.width, s.graph_dropout), system, settings)
    phrases: list[method.PhraseGRU | PhraseBERT]
    if isinstance(reader, BertEncoder):
        phrases = [PhraseBERT(reader)]
    else:
        phrases = [method.PhraseGRU(reader, not authors) for _ in range(3 if authors else 1)]
    concepts = ConceptEncoder(phrases, phrases[0].width, s.width)
    if system.text == "bag":
        return Matcher(images, BagEncoder(concepts, s.graph_dropout), system, settings)
    layer = PrintedGATv2 if system.attention == "printed" else GATv2
    attributes = [layer(s.width, s.heads) for _ in range(0 if joint else system.attribute_layers)]
    context = (
        AuthorsContext(s.width, s.graph_dropout) if authors
        else RelationContext(s.width, ends=system.ends)
    )  # fmt: skip
    objects = [
        layer(s.width, s.heads, s.message_dropout)
        for _ in range(2 if joint else system.object_layers)
    ]
    if isinstance(context, AuthorsContext):  # last, as the recorded trainings drew their weights
        context.position = nn.Linear(16, s.width)
    kind = ResidualEncoder if system.residual else JointEncoder if joint else GraphEncoder
    texts = kind(
        concepts, nn.ModuleList(attributes), context, nn.ModuleList(objects), s.graph_dropout
    )
    texts.connected = system.connected
    return Matcher(images, texts, system, settings)
