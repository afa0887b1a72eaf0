"""A captioned collection as people read it: images, captions and their scene graphs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import networkx as nx
import numpy as np

from mmlib import scenegraph
from mmlib.core.paths import cache_dir
from mmlib.core.records import CaptionedImages
from mmlib.papers.cora.systems import SPLITS


@dataclass(frozen=True, eq=False)
class Captions:
    """A collection: images with captions and graphs of the three splits, flat in file order.

    gold: the graphs that the captions were written from, in the picture world only.
    """

    images: Mapping[str, CaptionedImages]
    graphs: Mapping[str, Sequence[nx.MultiDiGraph]]
    gold: Mapping[str, list[nx.MultiDiGraph]] | None = None

    def captions(self, split: str) -> list[str]:
        """All captions of a split."""
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
