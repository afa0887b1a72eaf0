"""A tier's data, to look at and as arrays, and what tiers build theirs with."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from mmlib.core.records import Samples
from mmlib.features.encoders import Shape
from mmlib.papers.entailment.data.arrays import Arrays, Labelled
from mmlib.papers.entailment.method.calibration import Frozen, Scale
from mmlib.papers.entailment.method.retrievers import AlignFuse, build
from mmlib.papers.entailment.run.systems import RetrieverTraining

UNREAD = ("train", "dev")  # pairs whose INPUTS nobody reads


@dataclass(frozen=True, eq=False)
class Study:
    """A tier's images and captions as people see them, and all of it as arrays.

    captions: of each image of the image table. rows: split -> rows of the table; beside those of
    `arrays.splits` the images of judges. open_image: row -> RGB picture.
    """

    arrays: Arrays
    captions: tuple[tuple[str, ...], ...]
    rows: Mapping[str, np.ndarray]
    open_image: Callable[[int], Image.Image]


def opener(collections: Sequence[Any], ends: np.ndarray) -> Callable[[int], Image.Image]:
    """Row of the image table -> its picture. ends: first row of each collection, and the last."""

    def open_image(row: int) -> Image.Image:
        number = int(np.searchsorted(ends, row, side="right")) - 1
        return collections[number].open_image(row - int(ends[number]))

    return open_image


def read_retriever(
    weights: Mapping[str, Tensor], shape: Shape, space: int, images: np.ndarray, vocabulary: int
) -> AlignFuse:
    """An ALBEF-like retriever with trained weights. images: an image table."""
    model = build("align", RetrieverTraining(shape, {}, {}, space), images, vocabulary)
    model.load_state_dict(weights)
    return model


def starts_of(weights: Mapping[str, Tensor], text: Path | None = None) -> dict[str, Tensor]:
    """Weights that judges start from, by their names there.

    VE's are the retriever's (ALBEF's place); so are a single stream's word embeddings and its map
    of regions. TE's own are a small BERT's, in the folder `text`, where there is one.
    """
    starts = {n: v for n, v in weights.items() if n.startswith(("image.", "words.", "cross."))}
    moved = {"words.embeddings.word": "layers.embeddings.word", "image.project.": "project."}
    for old, new in moved.items():
        some = {n: v for n, v in weights.items() if n.startswith(old)}
        starts |= {f"stream.{new}{n.removeprefix(old)}": v for n, v in some.items()}
    if text:
        bert, words = load_file(text / "model.safetensors"), "embeddings.word_embeddings.weight"
        bert[words] = bert[words][: len(weights[f"words.{words}"])]  # all but its [MASK]
        starts |= {f"text.{n}": v.float() for n, v in bert.items()}
    return starts


def sentences_of(samples: Iterable[Samples], merged: Mapping[str, tuple[str, ...]]) -> set[str]:
    """All sentences of samples; of a merged premise those that it was merged from."""
    texts = [t for some in samples for t in (*some.hypothesis, *some.premise) if t]
    return {sentence for text in texts for sentence in merged.get(text, (text,))}


def arrays_of(
    samples: Mapping[str, Samples], encoders: Frozen, counts: Mapping[str, np.ndarray] = {},
    about: Mapping[str, tuple[str, ...]] = {}, **rest: Any,
) -> Arrays:  # fmt: skip
    """All of a tier: labelled pairs by name, and INPUTS, which training and dev do without.

    counts: of some, how many pairs each stands for. about: of some, the origins. rest: as `Arrays`.
    """
    raw = {name: encoders.inputs(some) for name, some in samples.items() if name not in UNREAD}
    scale, pairs = Scale.of(raw["calibration"]), {}
    for name, some in samples.items():
        given = scale(raw[name]) if name in raw else np.zeros((len(some), 0), np.float32)
        counted = counts.get(name, np.ones(len(some)))
        pairs[name] = Labelled(some, given, counted, about.get(name, ()))
    learnt: dict[str, Any] = {name: pairs.pop(name) for name in (*UNREAD, "calibration")}
    return Arrays(**learnt, tests=pairs, frozen=encoders, scale=scale, **rest)


def metadata_of(path: Path) -> dict[str, str]:
    """The notes in a file of weights."""
    with safe_open(path, "pt") as file:
        return dict(file.metadata() or {})
