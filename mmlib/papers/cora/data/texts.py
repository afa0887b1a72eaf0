"""Images with captions and scene graphs, as people read them, and texts as word ids."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import networkx as nx
import numpy as np

from mmlib import scenegraph
from mmlib.core.paths import cache_dir
from mmlib.core.records import CaptionedImages, canonical
from mmlib.features.text import Vocabulary, tokenize
from mmlib.papers.cora.run.batches import GraphSet, SequenceSet
from mmlib.papers.cora.run.systems import SPLITS
from mmlib.scenegraph import attributes, objects, phrase, relations

DELIMITERS = ("[CLS]", "[SEP]", "[MASK]")
LONGEST = 40  # words of a caption
# Kept of each caption, object and caption. The authors' code keeps 13 relations a node and role.
LIMITS = {"objects": 13, "attributes": 4, "relations": 26}
WORDS = {"object": 6, "attribute": 3, "relation": 7}  # kept of each phrase (code)


@dataclass(frozen=True, eq=False)
class Captions:
    """A collection: images with captions and graphs of the three splits, flat in file order.

    gold: the graphs that the captions were written from, in the picture world only.
    """

    images: Mapping[str, CaptionedImages]
    graphs: Mapping[str, Sequence[nx.MultiDiGraph]]
    gold: Mapping[str, list[nx.MultiDiGraph]] | None = None
    with_swaps: Sequence[str] = ()  # splits that are also read as `data.swaps` has them

    def captions(self, split: str) -> list[str]:
        """The captions of a split."""
        return [caption for group in self.images[split].captions for caption in group]

    def image_of(self, split: str) -> np.ndarray:
        """Row of the image of each caption."""
        counts = list(map(len, self.images[split].captions))
        return np.repeat(np.arange(len(counts)), counts)

    def parsed(self, workers: int) -> "Captions":
        """The same with the graphs that our parser finds; they are cached."""
        cache = cache_dir()
        folder = cache / "graphs" if cache else None
        graphs = {s: scenegraph.parse(self.captions(s), folder, workers) for s in SPLITS}
        return replace(self, graphs=graphs)


@dataclass(frozen=True)
class Reader:
    """Text to word ids. vocabulary: words by their ids; delimiters: around each phrase."""

    vocabulary: tuple[str, ...]
    delimiters: bool

    @property
    def mask_id(self) -> int:
        """The id of [MASK]."""
        return self.vocabulary.index("[MASK]")

    def ids(self, phrases: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Ids (phrases, longest) int64 padded with 0, lengths (phrases,)."""
        inner = [tokenize(phrase)[:LONGEST] or ["<unk>"] for phrase in phrases]
        if self.delimiters:
            inner = [["[CLS]", *words, "[SEP]"] for words in inner]
        ids, lengths = Vocabulary(self.vocabulary).encode(inner, LONGEST + 2)
        return ids.numpy(), lengths.numpy()

    def sequences(self, captions: Sequence[str]) -> SequenceSet:
        """Captions as sequences of words."""
        return SequenceSet(*self.ids(captions), self.mask_id, self.delimiters)

    def graphs(self, graphs: Iterable[nx.MultiDiGraph]) -> GraphSet:
        """Networkx graphs, as `mmlib.scenegraph` makes them, as arrays, cut to LIMITS and WORDS.

        Raises ValueError for a graph without objects.
        """
        number: dict[str, int] = {}  # of each phrase

        def numbered(text: str, kind: str) -> int:
            return number.setdefault(" ".join(text.split()[: WORDS[kind]]), len(number))

        names: list[int] = []
        described: list[tuple[int, int]] = []  # attribute, object
        related: list[tuple[int, int, int]] = []  # relation, subject, object
        ends = [(0, 0, 0)]
        for row, graph in enumerate(graphs):
            position = {node: i for i, node in enumerate(objects(graph)[: LIMITS["objects"]])}
            if not position:
                raise ValueError(f"graph {row} has no object: parse it with mmlib.scenegraph")
            for node, i in position.items():
                names.append(numbered(phrase(graph, node), "object"))
                for attribute in attributes(graph, node)[: LIMITS["attributes"]]:
                    described.append((numbered(phrase(graph, attribute), "attribute"), i))
            within = [
                (numbered(data["label"], "relation"), position[a], position[b])
                for a, b, data in relations(graph)
                if a in position and b in position
            ]
            related += within[: LIMITS["relations"]]
            ends.append((len(names), len(described), len(related)))
        looks, owner = np.array(described, dtype=int).reshape(-1, 2).T
        labels, subject, object_ = np.array(related, dtype=int).reshape(-1, 3).T
        first_object, first_attribute, first_relation = np.array(ends).T
        return GraphSet(
            tuple(number), *self.ids(tuple(number)), np.array(names), looks, labels, owner, subject,
            object_, first_object, first_attribute, first_relation, self.mask_id,
        )  # fmt: skip


@dataclass(frozen=True)
class PieceReader(Reader):
    """Text to the ids of a BERT's word pieces, each phrase between [CLS] and [SEP]."""

    vocabulary: tuple[str, ...] = ()
    delimiters: bool = True
    tokenizer: Any = None

    @property
    def mask_id(self) -> int:
        """The id of [MASK]."""
        return self.tokenizer.convert_tokens_to_ids("[MASK]")

    def ids(self, phrases: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Ids (phrases, longest) int64 padded with 0, lengths (phrases,)."""
        plain = [canonical(phrase) for phrase in phrases]
        rows = self.tokenizer(plain, truncation=True, max_length=LONGEST + 2)["input_ids"]
        lengths = np.array([len(row) for row in rows])
        ids = np.zeros((len(rows), lengths.max()), dtype=np.int64)
        ids[np.arange(ids.shape[1]) < lengths[:, None]] = np.concatenate(rows)
        return ids, lengths
