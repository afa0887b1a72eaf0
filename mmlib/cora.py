"""CORA: captions as scene graphs, encoded by graph attention and matched to images.

Pham, Huynh, Lim and Shrivastava, "Composing Object Relations and Attributes for Image-Text
Matching", CVPR 2024. Section and equation numbers are the paper's. Where the authors' released code
differs, both forms are here: "printed" and "authors".

Graphs of a batch are flat: all its objects in one list, all attributes and relations in others,
with indices that tie them, so that nothing loops over nodes or pads pairs of nodes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal

import networkx as nx
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmlib.core.files import read_rows
from mmlib.core.parallel import ahead
from mmlib.core.ranking import metrics, rank_images_and_captions
from mmlib.training import fit

Form = Literal["printed", "authors"]


@dataclass(frozen=True)
class Settings:
    """A system and its training. The defaults, preset `paper`, are the paper's supplement's.

    text: a scene graph, or the caption as a sequence (VSE∞, Chen et al., CVPR 2021).
    phrases: how a phrase is encoded: "gru" (one Bi-GRU), "gru3" (authors' code: a one-way GRU each
        for objects, attributes and relations), "vectors" (given and frozen), "bert".
    width: D of images, captions and entities. word_width: of word embeddings and phrase states.
    gat_form, context_form: eqs. 2 to 4 and eq. 6, as printed or as in the authors' code.
    attribute_layers, object_layers: layers of the two GATs (Table 3).
    joint: one GAT on objects and attributes at once instead of two steps (Table 3); no entities.
    connected: all pairs of objects are neighbours instead of the parsed ones (Table 3, FC).
    hard, con, spec: weights of the losses (eq. 13). con_entities: entities take part in L_CON.
    match: entities that name something in another image are its positives too: searched in the
        graph of its own "caption" (authors' code; what another caption of the same image in the
        batch names is a positive too) or of all the "image"'s captions.
    margin: α. temperature: τ of L_CON.
    warm_up: epochs in which L_HARD takes the mean over negatives instead of the hardest.
    *_dropout: regions left out, dropout of image and graph layers and of the messages.
    drop_objects, drop_attributes, drop_relations, mask, delete: rates of the text's augmentation.
    delimiters: phrases and captions stand between [CLS] and [SEP] (authors' code; the paper does
        not say).
    word_rate: rate of the word embeddings, which start from given vectors, as a share of the
        learning rate (paper: a tenth, for GloVe).
    drop_rate_after: share of the epochs after which the learning rate falls tenfold.
    captions: how many captions of each image an epoch shows.
    """

    text: Literal["graph", "sequence"] = "graph"
    phrases: Literal["gru", "gru3", "vectors", "bert"] = "gru"
    width: int = 1024
    word_width: int = 300
    heads: int = 16
    gat_form: Form = "authors"
    context_form: Form = "printed"
    attribute_layers: int = 1
    object_layers: int = 2
    joint: bool = False
    connected: bool = False
    visual_attention: bool = True
    region_positions: bool = False
    node_positions: bool = False
    hard: float = 1.0
    con: float = 0.25
    spec: float = 3.0
    con_entities: bool = True
    match: Literal["image", "caption"] = "image"
    margin: float = 0.4
    temperature: float = 0.01
    warm_up: int = 0
    region_dropout: float = 0.35
    image_dropout: float = 0.1
    graph_dropout: float = 0.15
    message_dropout: float = 0.05
    drop_objects: float = 0.1
    drop_attributes: float = 0.1
    drop_relations: float = 0.1
    mask: float = 0.1
    delete: float = 0.0
    delimiters: bool = True
    learning_rate: float = 5e-4
    word_rate: float = 0.1
    weight_decay: float = 1e-4
    drop_rate_after: float = 0.3
    epochs: int = 50
    batch: int = 128
    captions: int = 5


PRESETS: dict[str, Settings] = {
    "paper": Settings(),
    "code": Settings(
        phrases="gru3", context_form="authors", region_positions=True, node_positions=True,
        margin=0.35, spec=2.75, match="caption", drop_objects=0.05, drop_attributes=0.15,
        drop_relations=0.15, delete=0.05, word_rate=1.0, epochs=55, drop_rate_after=15 / 55,
    ),
}  # fmt: skip

# What changes from CORA's own settings to each system that the paper compares, and to controls.
SYSTEMS: dict[str, dict[str, object]] = {
    "CORA": {},
    # VSE∞ in its own form: no self-attention over regions, the triplet alone, margin 0.2.
    "VSE∞": {"text": "sequence", "visual_attention": False, "con": 0.0, "spec": 0.0,
             "margin": 0.2},
    # Control: the caption as a sequence, everything else (image side, losses, margin) as in CORA.
    "Sequence, CORA's rest": {"text": "sequence", "spec": 0.0, "con_entities": False},
    "HARD": {"con": 0.0, "spec": 0.0},
    "CON": {"hard": 0.0, "spec": 0.0},
    "HARD + CON": {"spec": 0.0},
    # Control for Joint, which has no entities and so loses their losses too.
    "Two-step, caption losses": {"spec": 0.0, "con_entities": False},
    "Joint": {"joint": True, "spec": 0.0, "con_entities": False},
    "Joint + FC": {"joint": True, "connected": True, "spec": 0.0, "con_entities": False},
    "Two-step + FC": {"connected": True},
    **{
        f"({a}, {o}) layers": {"attribute_layers": a, "object_layers": o}
        for a in (1, 2) for o in (1, 2, 3) if (a, o) != (1, 2)
    },
    "CORA, frozen BERT": {"phrases": "vectors"},
    "Sequence, frozen BERT": {"text": "sequence", "spec": 0.0, "con_entities": False,
                              "phrases": "vectors"},
    # The code's forms, margin and weight; augmentation and rates are part of the budget.
    "CORA as in the authors' code": {
        f.name: getattr(PRESETS["code"], f.name) for f in fields(Settings)
        if getattr(PRESETS["code"], f.name) != f.default
        and f.name not in ("epochs", "delete", "word_rate") and not f.name.startswith("drop_")
    },
}  # fmt: skip


def settings_of(system: str, base: Settings = PRESETS["paper"]) -> Settings:
    """Settings of a system of SYSTEMS on a budget. Raises ValueError for an unknown name."""
    if system not in SYSTEMS:
        raise ValueError(f"no system {system!r}: use one of {', '.join(SYSTEMS)}")
    return replace(base, **SYSTEMS[system])  # type: ignore[arg-type]


# --- Graphs as arrays --------------------------------------------------------------------------

# Kept of each caption, object and caption. The authors' code keeps 13 relations a node and role.
LIMITS = {"objects": 13, "attributes": 4, "relations": 26}
WORDS = {"object": 6, "attribute": 3, "relation": 7}  # kept of each phrase (code)


@dataclass(frozen=True, eq=False)
class GraphBatch:
    """The graphs of some captions. Nodes are the O objects, then the A attributes.

    tokens (U, L), lengths (U,): the different phrases of the batch, padded with 0.
    objects (O,), attributes (A,), relations (R,): rows of `tokens`.
    caption (O,), position (O,): whose object it is, and its place in that caption.
    owner (A,): object of each attribute. subject (R,), object (R,): ends of each relation.
    captions: how many captions. names (O,), described (O, 4): phrase numbers of objects and of
    their attributes (-1: none), for telling whether two entities are the same.
    """

    tokens: Tensor
    lengths: Tensor
    objects: Tensor
    attributes: Tensor
    relations: Tensor
    caption: Tensor
    position: Tensor
    owner: Tensor
    subject: Tensor
    object: Tensor
    captions: int
    names: np.ndarray
    described: np.ndarray

    def attribute_edges(self, back: bool = False) -> tuple[Tensor, Tensor]:
        """Edges (source, target) of the Object-Attribute GAT: attribute to object, and each object
        to itself; with `back` also object to attribute, which only a second layer can use.
        """
        own = torch.arange(len(self.objects), device=self.owner.device)
        nodes = len(own) + torch.arange(len(self.owner), device=self.owner.device)
        pairs = [(own, own), (nodes, self.owner)] + [(self.owner, nodes)] * back
        return torch.cat([s for s, _ in pairs]), torch.cat([t for _, t in pairs])

    def object_edges(self, connected: bool = False) -> tuple[Tensor, Tensor]:
        """Edges (source, target) of the Object-Object GAT: both ways along each relation, once, and
        each object to itself (authors' code); `connected`: all pairs of a caption's objects.
        """
        if connected:
            target, source = (self.caption[:, None] == self.caption).nonzero().T
            return source, target
        n = len(self.objects)
        own = torch.arange(n, device=self.caption.device)
        both = torch.cat([self.subject * n + self.object, self.object * n + self.subject])
        code = torch.cat([both, own * (n + 1)]).unique()
        return code // n, code % n

    def all_edges(self, connected: bool = False) -> tuple[Tensor, Tensor]:
        """Edges over objects and attributes at once, for the Joint ablation, with self-loops."""
        n = len(self.objects)
        if connected:
            caption = torch.cat([self.caption, self.caption[self.owner]])
            target, source = (caption[:, None] == caption).nonzero().T
            return source, target
        nodes = n + torch.arange(len(self.owner), device=self.owner.device)
        source, target = self.object_edges()
        return (
            torch.cat([source, nodes, self.owner, nodes]),
            torch.cat([target, self.owner, nodes, nodes]),
        )

    def to(self, device: str) -> "GraphBatch":
        """The same with its tensors on a device."""
        moved = {k: v.to(device) for k, v in vars(self).items() if isinstance(v, Tensor)}
        return replace(self, **moved)  # type: ignore[arg-type]


class GraphSet:
    """The graphs of many captions as flat integer arrays, which `batch` cuts and augments.

    graphs: networkx graphs as `mmlib.scenegraph` makes them; each with at least one object.
    tokens: phrases -> ids (phrases, L) int64 padded with 0, and lengths (phrases,).
    mask_id: the token that replaces a masked one; None for phrases that cannot be masked.
    Of each graph the first 13 objects, 4 attributes an object and 26 relations are kept, as in the
    authors' code. Raises ValueError for a graph without objects.
    """

    def __init__(
        self,
        graphs: Iterable[nx.MultiDiGraph],
        tokens: Callable[[Sequence[str]], tuple[Tensor, Tensor]],
        mask_id: int | None = None,
    ):
        number: dict[str, int] = {}

        def phrase(text: str, kind: str) -> int:
            return number.setdefault(" ".join(text.split()[: WORDS[kind]]), len(number))

        objects: list[int] = []
        attributes: list[tuple[int, int]] = []
        relations: list[tuple[int, int, int]] = []
        starts = {"objects": [0], "attributes": [0], "relations": [0]}
        for row, graph in enumerate(graphs):
            ids = [n for n, d in graph.nodes(data=True) if d["type"] == "object"]
            place = {node: i for i, node in enumerate(ids[: LIMITS["objects"]])}
            if not place:
                raise ValueError(f"graph {row} has no object: parse it with mmlib.scenegraph")
            for node, i in place.items():
                objects.append(phrase(graph.nodes[node]["label"], "object"))
                said = [m for m in graph.successors(node) if graph.nodes[m]["type"] == "attribute"]
                for m in said[: LIMITS["attributes"]]:
                    words = (graph.nodes[m]["label"], *graph.nodes[m].get("adverbs", ()))
                    attributes.append((phrase(" ".join(words), "attribute"), i))
            kept = [
                (phrase(d["label"], "relation"), place[a], place[b])
                for a, others in graph.adjacency()  # see scenegraph.relations
                for b, edges in others.items()
                for d in edges.values()
                if d["type"] == "relation" and a in place and b in place
            ]
            relations += kept[: LIMITS["relations"]]
            counts = (len(objects), len(attributes), len(relations))
            for name, so_far in zip(starts, counts, strict=True):
                starts[name].append(so_far)
        self.phrases = tuple(number)
        self.objects = np.array(objects)
        self.attributes, self.owner = np.array(attributes, dtype=int).reshape(-1, 2).T
        self.relations, self.subject, self.object = np.array(relations, dtype=int).reshape(-1, 3).T
        self.starts = {name: np.array(values) for name, values in starts.items()}
        phrase_ids, lengths = tokens(self.phrases)
        self.tokens, self.lengths, self.mask_id = phrase_ids.numpy(), lengths.numpy(), mask_id

    def __len__(self) -> int:
        return len(self.starts["objects"]) - 1

    def batch(
        self,
        rows: np.ndarray,
        settings: Settings | None = None,
        rng: np.random.Generator | None = None,
    ) -> GraphBatch:
        """The graphs of these captions; augmented at the rates of `settings` where `rng` is given.

        Dropping never leaves a caption without an object, masking and deleting never leave a
        phrase without a word.
        """
        o, caption = _ranges(self.starts["objects"], rows)
        a, caption_a = _ranges(self.starts["attributes"], rows)
        r, caption_r = _ranges(self.starts["relations"], rows)
        first = np.searchsorted(caption, np.arange(len(rows)))
        owner = first[caption_a] + self.owner[a]
        subject, object_ = first[caption_r] + self.subject[r], first[caption_r] + self.object[r]
        if rng is not None and settings is not None:
            kept = _keep(caption, len(rows), settings.drop_objects, rng)
            new = np.cumsum(kept) - 1
            kept_a = kept[owner] & (rng.random(len(a)) >= settings.drop_attributes)
            kept_r = kept[subject] & kept[object_] & (rng.random(len(r)) >= settings.drop_relations)
            o, caption, a, owner = o[kept], caption[kept], a[kept_a], new[owner[kept_a]]
            r, subject, object_ = r[kept_r], new[subject[kept_r]], new[object_[kept_r]]
        first = np.searchsorted(caption, np.arange(len(rows)))
        phrases = np.concatenate([self.objects[o], self.attributes[a], self.relations[r]])
        ids, lengths, inverse = self._unique(phrases, settings, rng)
        used = dict(zip(("objects", "attributes", "relations"),
                        np.split(inverse, np.cumsum([len(o), len(a)])), strict=True))  # fmt: skip
        return GraphBatch(
            **{k: torch.as_tensor(v) for k, v in used.items()},
            tokens=torch.as_tensor(ids),
            lengths=torch.as_tensor(lengths),
            caption=torch.as_tensor(caption),
            position=torch.as_tensor(np.arange(len(o)) - first[caption]),
            owner=torch.as_tensor(owner),
            subject=torch.as_tensor(subject),
            object=torch.as_tensor(object_),
            captions=len(rows),
            names=self.objects[o],
            described=_rows_of(self.attributes[a], owner, len(o)),
        )

    def entities(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """All objects of these captions: (which of `rows`, name, attributes padded with -1)."""
        o, caption = _ranges(self.starts["objects"], rows)
        a, caption_a = _ranges(self.starts["attributes"], rows)
        owner = np.searchsorted(caption, np.arange(len(rows)))[caption_a] + self.owner[a]
        return caption, self.objects[o], _rows_of(self.attributes[a], owner, len(o))

    def _unique(
        self, phrases: np.ndarray, settings: Settings | None, rng: np.random.Generator | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Different phrases of a batch: ids (U, L), lengths (U,), and each phrase's row."""
        if rng is None or settings is None or self.mask_id is None:
            unique, inverse = np.unique(phrases, return_inverse=True)
            ids, lengths = self.tokens[unique], self.lengths[unique]
        else:
            ids, lengths = perturb(
                self.tokens[phrases], self.lengths[phrases], self.mask_id, settings, rng
            )
            both = np.column_stack([ids, lengths])
            both, inverse = np.unique(both, axis=0, return_inverse=True)
            ids, lengths = both[:, :-1], both[:, -1]
        return ids[:, : lengths.max()], lengths, inverse.reshape(-1)


def perturb(
    ids: np.ndarray, lengths: np.ndarray, mask_id: int, settings: Settings, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Mask and delete tokens, but not delimiters, at random; one is always left as it was.

    ids (n, L) padded with 0, lengths (n,). Returns new ids and lengths.
    """
    place = np.arange(ids.shape[1])
    edge = int(settings.delimiters)
    inner = (place >= edge) & (place < lengths[:, None] - edge)
    draw = np.where(inner, rng.random(ids.shape), -1.0)
    touched = inner & (place != draw.argmax(axis=1)[:, None])  # the luckiest word is spared
    deleted = touched & (draw < settings.delete)
    masked = touched & ~deleted & (draw < settings.delete + settings.mask)
    ids = np.where(masked, mask_id, np.where(deleted, 0, ids))
    order = np.argsort(deleted, axis=1, kind="stable")
    return np.take_along_axis(ids, order, axis=1), lengths - deleted.sum(axis=1)


def _ranges(starts: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Indices starts[r] to starts[r + 1] of all rows in turn, and which of `rows` each is of."""
    counts = starts[rows + 1] - starts[rows]
    which = np.repeat(np.arange(len(rows)), counts)
    return np.arange(counts.sum()) + np.repeat(
        starts[rows] - (np.cumsum(counts) - counts), counts
    ), which


def _keep(caption: np.ndarray, captions: int, rate: float, rng: np.random.Generator) -> np.ndarray:
    draw = rng.random(len(caption))
    best = np.zeros(captions)
    np.maximum.at(best, caption, draw)  # never all: the luckiest of each caption stays
    return (draw >= rate) | (draw == best[caption])


def _rows_of(values: np.ndarray, owner: np.ndarray, rows: int) -> np.ndarray:
    """The values of each owner as rows (rows, 4), padded with -1."""
    table = np.full((rows, LIMITS["attributes"]), -1)
    order = np.argsort(owner, kind="stable")
    sorted_ = owner[order]
    table[sorted_, np.arange(len(order)) - np.searchsorted(sorted_, sorted_)] = values[order]
    return table


# --- Graph attention (Sec. 3.2) ------------------------------------------------------------------


def neighbour_softmax(scores: Tensor, target: Tensor, nodes: int) -> Tensor:
    """Softmax of edge scores (E, H) over the edges that share a target (E,)."""
    index = target[:, None].expand_as(scores)
    top = scores.new_full((nodes, scores.shape[1]), -torch.inf)
    top = top.scatter_reduce(0, index, scores.detach(), "amax")
    weights = (scores - top[target]).exp()
    return weights / weights.new_zeros(top.shape).index_add(0, target, weights)[target]


class GATv2(nn.Module):
    """A layer of graph attention (eqs. 2 to 4; Brody et al. 2022) over an edge list.

    "printed": W = [W_l | W_r] without bias, values W_r h_j, ReLU.
    "authors": own map for values, the mapped target W_l h_i added, layer norm, ReLU.
    """

    def __init__(self, width: int, heads: int = 16, form: Form = "authors", dropout: float = 0.0):
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} is not a multiple of {heads} heads")
        bias = form == "authors"
        self.left, self.right = nn.Linear(width, width, bias), nn.Linear(width, width, bias)
        self.value = nn.Linear(width, width) if form == "authors" else self.right
        self.norm = nn.LayerNorm(width) if form == "authors" else None
        self.attention = nn.Parameter(torch.randn(heads, width // heads) * (width // heads) ** -0.5)
        self.heads, self.dropout = heads, nn.Dropout(dropout)

    def scores(self, nodes: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """Attention weights (E, H); those of the edges into one node sum to 1."""
        return self._weights(self.left(nodes), self.right(nodes), source, target)

    def _weights(self, left: Tensor, right: Tensor, source: Tensor, target: Tensor) -> Tensor:
        pair = F.leaky_relu(left[target] + right[source], 0.2)
        e = (pair.unflatten(1, (self.heads, -1)) * self.attention).sum(-1)  # eq. 2
        return neighbour_softmax(e, target, len(left))  # eq. 3

    def forward(self, nodes: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """Nodes (N, d) and edges source (E,) -> target (E,) -> nodes (N, d)."""
        left, right = self.left(nodes), self.right(nodes)
        alpha = self._weights(left, right, source, target)
        values = right if self.value is self.right else self.value(nodes)
        values = self.dropout(values).unflatten(1, (self.heads, -1))
        messages = torch.zeros_like(values).index_add(0, target, alpha[..., None] * values[source])
        messages = messages.flatten(1)  # eq. 4
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
        bias = form == "authors"
        self.active = nn.Linear(2 * width, width, bias)
        self.passive = nn.Linear(2 * width, width, bias)
        self.norm = nn.LayerNorm(width) if form == "authors" else None
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, entities: Tensor, relations: Tensor, subject: Tensor, object: Tensor
    ) -> Tensor:
        """Entities (O, d), relations (R, d) with their ends (R,) -> entities in context (O, d)."""
        edges = torch.cat([relations, entities[object]], dim=1)  # r' = [r || e of the passive end]
        active, passive = self.active(edges), self.passive(edges)
        n = len(entities)
        if self.norm is None:
            return entities + _mean_at(subject, active, n) + _mean_at(object, passive, n)
        both = self.dropout(torch.cat([active, passive]).relu())
        return self.norm(entities + _mean_at(torch.cat([subject, object]), both, n))


def _mean_at(index: Tensor, values: Tensor, rows: int) -> Tensor:
    """Mean of the values (R, d) at each index (R,), (rows, d); 0 where there is none."""
    total = values.new_zeros(rows, values.shape[1]).index_add(0, index, values)
    return total / torch.bincount(index, minlength=rows).clamp(min=1)[:, None]


# --- Pooling (GPO; Chen et al., CVPR 2021) --------------------------------------------------------


def sinusoid(positions: Tensor, width: int) -> Tensor:
    """Sine and cosine in turn (Sec. 3.1 of GPO's paper): positions (n,) -> (n, width)."""
    rates = 10000 ** (-torch.arange(0, width, 2, device=positions.device) / width)
    angle = positions[:, None].float() * rates
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)


class GPO(nn.Module):
    """Generalised pooling: a learned weighted mean of the values sorted per dimension.

    The weights depend on the number of vectors only: a Bi-GRU reads their ranks.
    """

    def __init__(self, positions: int = 32, hidden: int = 32, temperature: float = 0.1):
        super().__init__()
        self.positions, self.temperature = positions, temperature
        self.gru = nn.GRU(positions, hidden, batch_first=True, bidirectional=True)
        self.score = nn.Linear(hidden, 1, bias=False)

    def weights(self, lengths: Tensor) -> Tensor:
        """θ (B, longest): row b holds lengths[b] weights that sum to 1, then zeros."""
        different, row = lengths.unique(return_inverse=True)
        longest = int(different[-1])
        ranks = sinusoid(torch.arange(longest, device=lengths.device), self.positions)
        packed = nn.utils.rnn.pack_padded_sequence(
            ranks.expand(len(different), -1, -1), different.cpu(), batch_first=True,
            enforce_sorted=False,
        )  # fmt: skip
        states, _ = nn.utils.rnn.pad_packed_sequence(self.gru(packed)[0], batch_first=True)
        scores = self.score(states.unflatten(2, (2, -1)).mean(dim=2)).squeeze(2)
        padded = torch.arange(longest, device=lengths.device) >= different[:, None]
        return (scores.masked_fill(padded, -torch.inf) / self.temperature).softmax(dim=1)[row]

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """(B, n, D) of which the first lengths[b] >= 1 are valid -> (B, D)."""
        if (lengths < 1).any():
            raise ValueError("pooling needs at least one vector a row")
        theta = self.weights(lengths)
        features = features[:, : theta.shape[1]]
        padded = torch.arange(theta.shape[1], device=lengths.device) >= lengths[:, None]
        falling = features.masked_fill(padded[..., None], -torch.inf).sort(dim=1, descending=True)[
            0
        ]
        return (falling.masked_fill(padded[..., None], 0.0) * theta[..., None]).sum(dim=1)


def padded(values: Tensor, group: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """Flat rows (n, d) of sorted groups (n,) -> (groups, longest, d) and lengths (groups,)."""
    lengths = torch.bincount(group, minlength=groups)
    place = torch.arange(len(group), device=group.device) - (lengths.cumsum(0) - lengths)[group]
    table = values.new_zeros(groups, int(lengths.max()), values.shape[1])
    return table.index_put((group, place), values), lengths


# --- Text encoders (Sec. 3.1 to 3.4) --------------------------------------------------------------


class PhraseGRU(nn.Module):
    """A phrase is the mean of the two last states of a Bi-GRU over its words (Sec. 3.1).

    With one direction (authors' code), the last state.
    """

    def __init__(self, embed: nn.Embedding, width: int, bidirectional: bool = True):
        super().__init__()
        self.embed, self.width = embed, width
        self.gru = nn.GRU(embed.embedding_dim, width, batch_first=True, bidirectional=bidirectional)

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Ids (U, L), lengths (U,) -> (U, width)."""
        packed = nn.utils.rnn.pack_padded_sequence(
            self.embed(ids), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        return self.gru(packed)[1].mean(dim=0)


class PhraseTable(nn.Module):
    """Phrases with given vectors, which are not trained: the ids are phrase numbers."""

    def __init__(self, vectors: Tensor):
        super().__init__()
        self.embed = nn.Embedding.from_pretrained(vectors, freeze=True)
        self.width = vectors.shape[1]

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Ids (U, 1) -> (U, width)."""
        return self.embed(ids[:, 0])


class ConceptEncoder(nn.Module):
    """Phrases to R^D: a phrase encoder, then a layer for nodes and one for relations (Sec. 3.1).

    phrases: one encoder for all, or three for objects, attributes and relations.
    """

    def __init__(self, phrases: Sequence[nn.Module], width: int, dropout: float):
        super().__init__()
        self.phrases = nn.ModuleList(phrases)
        inner = int(phrases[0].width)  # type: ignore[arg-type]
        self.node, self.relation = nn.Linear(inner, width), nn.Linear(inner, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Nodes (O + A, D), objects first, and relations (R, D)."""
        states = [encode(batch.tokens, batch.lengths) for encode in self.phrases]
        objects, attributes, relations = states if len(states) == 3 else states * 3
        nodes = torch.cat(
            [self.node(objects)[batch.objects], self.node(attributes)[batch.attributes]]
        )
        edges = self.relation(relations)[batch.relations]
        return self.dropout(nodes.relu()), self.dropout(edges.relu())


class GraphEncoder(nn.Module):
    """A scene graph to one vector in two steps, and its entities on the way (Sec. 3.2 to 3.4)."""

    def __init__(self, concepts: ConceptEncoder, settings: Settings):
        super().__init__()
        s = settings
        self.concepts, self.settings = concepts, s
        layers = 2 if s.joint else s.object_layers
        self.attributes = nn.ModuleList(
            []
            if s.joint
            else [GATv2(s.width, s.heads, s.gat_form) for _ in range(s.attribute_layers)]
        )
        self.context = RelationContext(s.width, s.context_form, s.graph_dropout)
        self.objects = nn.ModuleList(
            [GATv2(s.width, s.heads, s.gat_form, s.message_dropout) for _ in range(layers)]
        )
        self.place = nn.Linear(16, s.width) if s.node_positions else None
        self.place_norm = nn.LayerNorm(s.width) if s.node_positions else None
        self.dropout, self.pool = nn.Dropout(s.graph_dropout), GPO()

    def entities(self, nodes: Tensor, batch: GraphBatch) -> Tensor:
        """Objects with their own attributes, and nothing else (eq. 5): (O, D)."""
        source, target = batch.attribute_edges(back=len(self.attributes) > 1)
        for i, layer in enumerate(self.attributes):
            nodes = layer(self.dropout(nodes) if i else nodes, source, target)
        return nodes[: len(batch.objects)]

    def forward(self, batch: GraphBatch) -> tuple[Tensor, Tensor | None]:
        """Captions (B, D), and entities (O, D) or, in the Joint ablation, None."""
        nodes, relations = self.concepts(batch)
        n, s = len(batch.objects), self.settings
        entities = nodes[:n] if s.joint else self.entities(nodes, batch)
        hidden = entities
        if self.place is not None and self.place_norm is not None:
            where = self.place(sinusoid(batch.position, 16))
            hidden = self.place_norm(hidden + self.dropout(where))
        hidden = self.context(hidden, relations, batch.subject, batch.object)  # eq. 6
        edges = batch.object_edges(s.connected)
        if s.joint:
            hidden, edges = torch.cat([hidden, nodes[n:]]), batch.all_edges(s.connected)
        for layer in self.objects:  # eq. 7
            hidden = layer(self.dropout(hidden), *edges)
        captions = self.pool(*padded(hidden[:n], batch.caption, batch.captions))
        return captions, None if s.joint else entities


@dataclass(frozen=True, eq=False)
class SequenceBatch:
    """Captions as word ids (B, L) padded with 0 or, from a frozen BERT, states (B, L, width)."""

    tokens: Tensor
    lengths: Tensor

    def to(self, device: str) -> "SequenceBatch":
        """The same on a device."""
        return SequenceBatch(self.tokens.to(device), self.lengths.to(device))


class SequenceSet:
    """Captions as sequences, which `batch` cuts and masks at random.

    tokens (captions, L) ids padded with 0, or (captions, L, width) states; lengths (captions,).
    """

    def __init__(self, tokens: np.ndarray, lengths: np.ndarray, mask_id: int | None = None):
        self.tokens, self.lengths, self.mask_id = tokens, lengths, mask_id

    def __len__(self) -> int:
        return len(self.lengths)

    def batch(
        self,
        rows: np.ndarray,
        settings: Settings | None = None,
        rng: np.random.Generator | None = None,
    ) -> SequenceBatch:
        """These captions; masked at the rates of `settings` where `rng` is given."""
        ids, lengths = self.tokens[rows], self.lengths[rows]
        if rng is not None and settings is not None and self.mask_id is not None:
            ids, lengths = perturb(ids, lengths, self.mask_id, settings, rng)
        ids = ids[:, : lengths.max()]
        ids = ids if ids.ndim == 2 else ids.astype(np.float32)
        return SequenceBatch(torch.as_tensor(ids), torch.as_tensor(lengths))


class SequenceEncoder(nn.Module):
    """VSE∞'s caption encoder: words through a Bi-GRU, its directions averaged, then GPO.

    Word states of a frozen BERT (no embedding) go through a linear layer alone, as in VSE∞'s code.
    """

    def __init__(self, embed: nn.Embedding | None, inner: int, width: int):
        super().__init__()
        self.embed, self.pool = embed, GPO()
        self.gru = nn.GRU(inner, width, batch_first=True, bidirectional=True) if embed else None
        self.linear = None if embed else nn.Linear(inner, width)

    def forward(self, batch: SequenceBatch) -> tuple[Tensor, None]:
        """Captions (B, D); there are no entities."""
        if self.gru is None or self.embed is None:
            assert self.linear is not None
            return self.pool(self.linear(batch.tokens), batch.lengths), None
        packed = nn.utils.rnn.pack_padded_sequence(
            self.embed(batch.tokens), batch.lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        states, _ = nn.utils.rnn.pad_packed_sequence(self.gru(packed)[0], batch_first=True)
        return self.pool(states.unflatten(2, (2, -1)).mean(dim=2), batch.lengths), None


# --- Image encoder (Sec. 3.5) ---------------------------------------------------------------------


class ImageEncoder(nn.Module):
    """Regions through a linear map beside an MLP, self-attention, and GPO (Sec. 3.5; code).

    Without `attention` it is VSE∞'s. `positions`: confidence ranks enter the attention (code).
    """

    def __init__(
        self, inner: int, width: int, heads: int = 16, dropout: float = 0.1,
        attention: bool = True, positions: bool = False,
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
        self.pool = GPO()

    def forward(self, regions: Tensor, lengths: Tensor) -> Tensor:
        """Regions (B, n, inner) of which the first lengths[b] are valid -> images (B, D)."""
        valid = torch.arange(regions.shape[1], device=lengths.device) < lengths[:, None]
        x = self.dropout(regions)
        # The norm sees valid regions only: in the authors' code its padding counts as well.
        inner = self.hidden(x)
        inner = inner.new_zeros(inner.shape).masked_scatter(
            valid[..., None], self.norm(inner[valid]).relu()
        )
        x = self.linear(x) + self.out(inner)
        if self.attention is not None:
            z = x
            if self.place is not None:
                ranks = sinusoid(torch.arange(regions.shape[1], device=x.device), 16)
                z = x + self.dropout(self.place(ranks))
            z = self.before(z)
            x = x + self.attention(z, z, z, key_padding_mask=~valid, need_weights=False)[0]
            x = x + self.back(self.forth(self.after(x)).relu())
        return self.pool(x, lengths)


# --- Losses (Sec. 3.6) ----------------------------------------------------------------------------


def hardest(
    similarity: Tensor, same: Tensor, margin: float, hard: bool = True, reduction: str = "mean"
) -> Tensor:
    """L_HARD (eqs. 8, 9): hinge on the hardest negative caption and the hardest negative image.

    similarity (N, N), images by captions, pairs on the diagonal. same (N, N): pairs of the same
    image, which are no negatives. hard: False for the mean over all negatives instead (warm-up).
    """
    own = similarity.diag()
    losses = []
    for scores, negatives in ((similarity, ~same), (similarity.T, ~same.T)):
        hinge = (margin + scores - own[:, None]).clamp(min=0) * negatives
        losses.append(
            hinge.amax(dim=1) if hard else hinge.sum(dim=1) / negatives.sum(dim=1).clamp(min=1)
        )
    return sum(loss.sum() if reduction == "sum" else loss.mean() for loss in losses)  # type: ignore


def contrastive(similarity: Tensor, positive: Tensor, temperature: float) -> Tensor:
    """L_CON (eqs. 10, 11) between N images and M concepts (captions and entities), both ways.

    similarity (N, M), positive (N, M): the concept is in the image. As in the authors' code each
    positive stands alone against the anchor's negatives; printed, its own term is missing from
    the denominator, and the loss has no lower bound.
    """

    def side(logits: Tensor, positive: Tensor) -> Tensor:
        negatives = logits.masked_fill(positive, -1e9).logsumexp(dim=1, keepdim=True)
        each = F.softplus(negatives - logits) * positive
        return (each.sum(dim=1) / positive.sum(dim=1)).mean()

    logits = similarity / temperature
    return side(logits, positive) + side(logits.T, positive.T)


def specificity(
    captions: Tensor, entities: Tensor, margin: float, reduction: str = "mean"
) -> Tensor:
    """L_SPEC (eq. 12): an image is nearer to its whole caption than to each of its entities.

    captions, entities (O,): an image's similarity to its caption and to an entity of it.
    """
    hinge = (margin + entities - captions).clamp(min=0)
    return hinge.sum() if reduction == "sum" else hinge.mean()


def same_entities(
    names: np.ndarray, described: np.ndarray, others: np.ndarray, other_described: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs (i, j) where entity i says nothing that entity j does not: the same name, and each
    attribute of i is one of j's. names (n,), described (n, 4) padded with -1; the others likewise.
    """
    i, j = (names[:, None] == others).nonzero()
    a, b = described[i], other_described[j]
    within = ((a[:, :, None] == b[:, None, :]).any(axis=2) | (a < 0)).all(axis=1)
    return i[within], j[within]


# --- The whole model ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Batch:
    """Images with a caption each. regions (B, n, d) of which counts (B,) are valid; same (B, B):
    rows of one image; contains (B, O): the image has the entity, or None for sequences.
    """

    regions: Tensor
    counts: Tensor
    text: GraphBatch | SequenceBatch
    same: Tensor
    contains: Tensor | None


class Matcher(nn.Module):
    """An image encoder and a text encoder into one space; the similarity is the cosine (eq. 1)."""

    def __init__(self, images: ImageEncoder, texts: nn.Module, settings: Settings):
        super().__init__()
        self.images, self.texts, self.settings = images, texts, settings

    def encode_images(self, regions: Tensor, counts: Tensor) -> Tensor:
        """Unit vectors (B, D)."""
        return F.normalize(self.images(regions, counts), dim=-1)

    def encode_texts(self, text: GraphBatch | SequenceBatch) -> tuple[Tensor, Tensor | None]:
        """Unit vectors of captions (B, D), and of entities (O, D) where there are any."""
        captions, entities = self.texts(text)
        entities = None if entities is None else F.normalize(entities, dim=-1)
        return F.normalize(captions, dim=-1), entities

    def loss(self, batch: Batch, warm: bool = False) -> Tensor:
        """Eq. 13; `warm`: with averaged instead of hardest negatives in L_HARD."""
        s = self.settings
        images = self.encode_images(batch.regions, batch.counts)
        captions, entities = self.encode_texts(batch.text)
        similarity = images @ captions.T
        total = s.hard * hardest(similarity, batch.same, s.margin, not warm)
        concepts, positive = similarity, batch.same
        if entities is not None and batch.contains is not None and (s.con_entities or s.spec):
            assert isinstance(batch.text, GraphBatch)
            to_entities = images @ entities.T
            if s.spec:
                caption = batch.text.caption
                own = to_entities[caption, torch.arange(len(caption), device=caption.device)]
                total = total + s.spec * specificity(similarity.diag()[caption], own, s.margin)
            if s.con_entities:
                concepts = torch.cat([similarity, to_entities], dim=1)
                positive = torch.cat([batch.same, batch.contains], dim=1)
        if s.con:
            total = total + s.con * contrastive(concepts, positive, s.temperature)
        return total


def build(
    settings: Settings,
    region_width: int,
    *,
    embeddings: Tensor | None = None,
    vectors: Tensor | None = None,
    bert: nn.Module | None = None,
) -> Matcher:
    """A model with fresh weights.

    region_width: of the image features. embeddings (words, word_width): initial word embeddings,
    for "gru" and "gru3". vectors (phrases, width): phrase vectors, for "vectors"; for a sequence
    only their width counts, its word states come with the batch. bert: ids, lengths -> phrase
    vectors, with a `width`, for "bert".
    """
    s = settings
    images = ImageEncoder(
        region_width, s.width, s.heads, s.image_dropout, s.visual_attention, s.region_positions
    )
    embed = None
    if s.phrases in ("gru", "gru3"):
        if embeddings is None:
            raise ValueError(f"phrases={s.phrases!r} needs word embeddings")
        embed = nn.Embedding.from_pretrained(embeddings.clone(), freeze=False, padding_idx=0)
    if s.text == "sequence":
        inner = s.word_width if vectors is None else vectors.shape[1]
        return Matcher(images, SequenceEncoder(embed, inner, s.width), s)
    phrases: list[nn.Module]
    if embed is not None:
        count = 3 if s.phrases == "gru3" else 1
        phrases = [PhraseGRU(embed, s.word_width, count == 1) for _ in range(count)]
    elif s.phrases == "vectors" and vectors is not None:
        phrases = [PhraseTable(vectors)]
    elif s.phrases == "bert" and bert is not None:
        phrases = [bert]
    else:
        raise ValueError(f"phrases={s.phrases!r} needs its encoder: pass `vectors` or `bert`")
    return Matcher(images, GraphEncoder(ConceptEncoder(phrases, s.width, s.graph_dropout), s), s)


# --- Data and training ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Split:
    """features (images, regions, d), possibly memory-mapped; image_of (captions,): rows of it."""

    features: np.ndarray
    image_of: np.ndarray
    texts: GraphSet | SequenceSet


def batches(split: Split, settings: Settings, seed: int, device: str = "cpu"):
    """epoch -> the training batches of that epoch; a function of seed and epoch alone.

    An epoch shows each image with `settings.captions` of its captions, drawn anew each time.
    """
    captions_of = _captions_of(split.image_of, len(split.features))

    def epoch(number: int):
        rng = np.random.default_rng([seed, number])
        shown = [rng.permutation(own)[: settings.captions] for own in captions_of]
        rows = rng.permutation(np.concatenate(shown))
        for start in range(0, len(rows), settings.batch):
            chunk = rows[start : start + settings.batch]
            if len(chunk) > 1:  # one pair alone has no negatives
                yield make_batch(split, chunk, settings, rng, captions_of, device)

    return epoch


def _captions_of(image_of: np.ndarray, images: int) -> list[np.ndarray]:
    order = np.argsort(image_of, kind="stable")
    return np.split(order, np.searchsorted(image_of[order], np.arange(1, images)))


def make_batch(
    split: Split,
    rows: np.ndarray,
    settings: Settings,
    rng: np.random.Generator,
    captions_of: Sequence[np.ndarray],
    device: str = "cpu",
) -> Batch:
    """Captions `rows` with their images, regions dropped and texts augmented."""
    image = split.image_of[rows]
    found = read_rows(split.features, image)
    regions, counts = (
        torch.as_tensor(part) for part in drop_regions(found, settings.region_dropout, rng)
    )
    if torch.device(device).type == "cuda":  # pinned memory is copied while the GPU computes
        regions = regions.pin_memory()
    text = split.texts.batch(rows, settings, rng)
    same = image[:, None] == image
    contains = None
    if isinstance(text, GraphBatch) and isinstance(split.texts, GraphSet):
        contains = same[:, text.caption.numpy()]
        if settings.con_entities:
            if settings.match == "image":  # any of the image's captions may name the entity
                searched = [captions_of[i] for i in image]
                owner = np.repeat(np.arange(len(rows)), [len(c) for c in searched])
                which, name, described = split.texts.entities(np.concatenate(searched))
            else:
                owner = np.arange(len(rows))
                which, name, described = split.texts.entities(rows)
            i, j = same_entities(text.names, text.described, name, described)
            contains[owner[which[j]], i] = True
        contains = torch.as_tensor(contains, device=device)
    return Batch(
        regions.to(device, non_blocking=True), counts.to(device),
        text.to(device), torch.as_tensor(same, device=device), contains,
    )  # fmt: skip


def drop_regions(
    features: np.ndarray, rate: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Leave out each region with probability `rate`, never all of an image.

    features (B, n, d) -> the same with those kept first and the rest zero, float32, and their
    counts (B,).
    """
    draw = rng.random(features.shape[:2])
    kept = (draw >= rate) | (draw == draw.max(axis=1, keepdims=True))
    counts = kept.sum(axis=1)
    order = np.argsort(~kept, axis=1, kind="stable")[:, : counts.max()]
    moved = features[np.arange(len(features))[:, None], order].astype(np.float32, copy=False)
    moved[np.arange(counts.max()) >= counts[:, None]] = 0.0
    return moved, counts


@dataclass(frozen=True, eq=False)
class Encoded:
    """Unit vectors: images (n, D), captions (m, D) with their image_of (m,), and entities (e, D)
    with their caption_of (e,), or None where the system has none.
    """

    images: np.ndarray
    captions: np.ndarray
    image_of: np.ndarray
    entities: np.ndarray | None
    caption_of: np.ndarray | None


@torch.no_grad()
def encode(model: Matcher, split: Split, device: str = "cpu", size: int = 256) -> Encoded:
    """All images and captions of a split through a model in evaluation mode, which it stays in."""
    model.eval()
    images = []
    for start in range(0, len(split.features), size):
        rows = np.arange(start, min(start + size, len(split.features)))
        regions = read_rows(split.features, rows)
        counts = torch.full((len(regions),), regions.shape[1], device=device)
        images.append(model.encode_images(torch.as_tensor(regions, device=device), counts).cpu())
    captions, entities, owners = [], [], []
    for start in range(0, len(split.texts), size):
        rows = np.arange(start, min(start + size, len(split.texts)))
        text = split.texts.batch(rows).to(device)
        caption, entity = model.encode_texts(text)
        captions.append(caption.cpu())
        if entity is not None and isinstance(text, GraphBatch):
            entities.append(entity.cpu())
            owners.append(start + text.caption.cpu())
    return Encoded(
        torch.cat(images).numpy(),
        torch.cat(captions).numpy(),
        split.image_of,
        torch.cat(entities).numpy() if entities else None,
        torch.cat(owners).numpy() if owners else None,
    )


def mix(similarity: np.ndarray, weakest: np.ndarray, beta: float) -> np.ndarray:
    """Eq. 14 from both its parts, for one that is mixed with many β; arrays of one shape."""
    return beta * similarity + (1 - beta) * weakest


def weakest_entity(encoded: Encoded) -> np.ndarray:
    """min_k s(v, e_k) over the entities of each caption (eq. 14): (images, captions)."""
    if encoded.entities is None or encoded.caption_of is None:
        raise ValueError("this system has no entities to rerank with")
    starts = np.searchsorted(encoded.caption_of, np.arange(len(encoded.captions)))
    blocks = np.split(encoded.images, range(1024, len(encoded.images), 1024))  # all take gigabytes
    return np.concatenate(
        [np.minimum.reduceat(block @ encoded.entities.T, starts, axis=1) for block in blocks]
    )


def train(
    model: Matcher,
    splits: Mapping[str, Split],
    seed: int,
    device: str = "cpu",
    checkpoint: Path | None = None,
    progress: str | None = None,
) -> list[dict[str, float]]:
    """Train on splits["train"]; keep the epoch of the best RSUM on splits["val"] (Sec. 4.1).

    AdamW; the learning rate falls tenfold after `settings.drop_rate_after` of the epochs.
    Pretrained parts of the model (those whose module says so by `parameter_groups`) have rates of
    their own. Returns what happened in each epoch; "dev_loss" is 600 - RSUM.
    """
    s = model.settings
    model.to(device)
    optimiser = torch.optim.AdamW(
        _groups(model, s.learning_rate, s.word_rate), weight_decay=s.weight_decay, fused=True
    )
    fall = int(np.ceil(s.drop_rate_after * s.epochs))
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, [fall], gamma=0.1)
    shuffled = batches(splits["train"], s, seed, device)

    def evaluate() -> dict[str, float]:
        seen = encode(model, splits["val"], device)
        ranks = rank_images_and_captions(seen.images, seen.captions, seen.image_of)
        rsum = metrics(ranks)["rsum"]
        return {"dev_loss": 600 - rsum, "dev_rsum": rsum}

    return fit(
        model,
        lambda epoch: ((batch, epoch < s.warm_up) for batch in ahead(shuffled(epoch))),
        lambda batch: model.loss(*batch),
        evaluate,
        epochs=s.epochs, learning_rate=s.learning_rate, patience=s.epochs, seed=seed,
        checkpoint=checkpoint, progress=progress, optimiser=optimiser, schedule=schedule,
    )  # fmt: skip


def _groups(model: nn.Module, rate: float, word_rate: float) -> list[dict]:
    pretrained = [m for m in model.modules() if hasattr(m, "parameter_groups")]
    groups = [group for module in pretrained for group in module.parameter_groups(rate)]  # type: ignore
    seen = {id(p) for module in pretrained for p in module.parameters()}
    own = {id(p): p for p in model.parameters() if id(p) not in seen and p.requires_grad}
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)} & set(own)
    words = [p for key, p in own.items() if key in tables]
    rest = [p for key, p in own.items() if key not in tables]
    groups += [{"params": words, "lr": rate * word_rate}] if words else []
    return [{"params": rest, "lr": rate}, *groups]


@torch.no_grad()
def attention(model: Matcher, text: GraphBatch) -> dict[str, list[tuple[int, int, float]]]:
    """Attention weights of the last layer of each GAT: (source, target, mean over heads).

    "attributes": the Object-Attribute GAT, "objects": the Object-Object GAT; node numbers are those
    of the batch (objects, then attributes). The model is put in evaluation mode and stays there.
    """
    encoder = model.eval().texts
    if not isinstance(encoder, GraphEncoder):
        raise ValueError("this system has no graph to attend over")
    seen: dict[nn.Module, tuple] = {}
    layers = [*encoder.attributes, *encoder.objects]
    hooks = [
        m.register_forward_pre_hook(lambda m, inputs: seen.update({m: inputs})) for m in layers
    ]
    encoder(text)
    for hook in hooks:
        hook.remove()
    weights = {}
    for name, stack in (("attributes", encoder.attributes), ("objects", encoder.objects)):
        if len(stack):
            layer = stack[-1]
            assert isinstance(layer, GATv2)
            alpha = layer.scores(*seen[layer]).mean(dim=1).tolist()
            ends = zip(seen[layer][1].tolist(), seen[layer][2].tolist(), alpha, strict=True)
            weights[name] = [(s, t, round(a, 4)) for s, t, a in ends]
    return weights
