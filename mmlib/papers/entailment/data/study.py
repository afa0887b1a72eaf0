"""A tier's data, to look at and as arrays, and what all tiers build theirs with."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from mmlib.core.entailment_pairs import Samples
from mmlib.features.encoders import Shape
from mmlib.features.words import Words, padded
from mmlib.papers.entailment.batches import Arrays, Labelled, Split
from mmlib.papers.entailment.inputs import Frozen, Scale
from mmlib.papers.entailment.retrievers import MAX_WORDS, AlignFuse, build
from mmlib.papers.entailment.systems import RetrieverTraining

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


def flat(captions: Sequence[Sequence[str]], rows: Iterable[int]) -> tuple[list[str], np.ndarray]:
    """All captions of some images, and the image of each, counted from 0."""
    chosen = [captions[row] for row in rows]
    texts = [text for image in chosen for text in image]
    return texts, np.repeat(np.arange(len(chosen)), list(map(len, chosen)))


def split_of(
    words: Words, captions: Sequence[Sequence[str]], rows: np.ndarray,
    fits: np.ndarray | None = None,
) -> Split:  # fmt: skip
    """Images and their captions as ids."""
    texts, image_of = flat(captions, rows)
    ids, lengths = padded([words.ids(text)[:MAX_WORDS] for text in texts])
    return Split(rows, ids, lengths, tuple(texts), image_of, fits)


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


def labelled(
    samples: Mapping[str, Samples], encoders: Frozen, counts: Mapping[str, np.ndarray],
    about: Mapping[str, tuple[str, ...]],
) -> tuple[dict[str, Labelled], Scale]:  # fmt: skip
    """Samples with INPUTS, which training and dev do without, and the scale of these."""
    raw = {name: encoders.inputs(some) for name, some in samples.items() if name not in UNREAD}
    scale, pairs = Scale.of(raw["calibration"]), {}
    for name, some in samples.items():
        given = scale(raw[name]) if name in raw else np.zeros((len(some), 0), np.float32)
        counted = counts.get(name, np.ones(len(some)))
        pairs[name] = Labelled(some, given, counted, about.get(name, ()))
    return pairs, scale


def opener(collections: Sequence[Any], ends: np.ndarray) -> Callable[[int], Image.Image]:
    """Row of the image table -> its picture. ends: first row of each collection, and the last."""

    def open_image(row: int) -> Image.Image:
        number = int(np.searchsorted(ends, row, side="right")) - 1
        return collections[number].open_image(row - int(ends[number]))

    return open_image


def metadata_of(path: Path) -> dict[str, str]:
    """The notes in a file of weights."""
    with safe_open(path, "pt") as file:
        return dict(file.metadata() or {})
