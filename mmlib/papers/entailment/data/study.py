"""A tier's data, to look at and as arrays, and what tiers build theirs with."""

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from mmlib.core.engine import job_folder
from mmlib.core.entailment_pairs import Samples, joined
from mmlib.core.files import cached
from mmlib.core.fit import seed_everything
from mmlib.core.paths import data_dir
from mmlib.core.records import CaptionedImages
from mmlib.core.source import source_hash
from mmlib.data import judgments
from mmlib.data.caption_pairs import caption_pairs
from mmlib.data.overlap import Weights
from mmlib.features.encoders import Shape, region_scale, standardised
from mmlib.features.words import TokenStates, Words, padded
from mmlib.papers.entailment.batches import SPLITS, Arrays, Labelled, Split
from mmlib.papers.entailment.inputs import Frozen, Scale, frozen
from mmlib.papers.entailment.retrieval import train
from mmlib.papers.entailment.retrievers import MAX_WORDS, AlignFuse, build
from mmlib.papers.entailment.systems import Budget, RetrieverTraining

UNREAD = ("train", "dev")  # pairs whose INPUTS nobody reads
# Of the training images: those of the retriever that judges start from, and those of judges; the
# rest is mined and retrained on.
SHARES = {"frozen": 2000, "judges": 1500}


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


# --- Photographs: what Flickr8k and Flickr30K share -----------------------------------------------


def only_mme(samples: Samples) -> Samples:
    """Those of an image and a text."""
    return samples.take(np.flatnonzero(np.array(samples.kind) == "mme"))


def study_of(
    collections: Mapping[str, CaptionedImages], budget: Budget, seed: int,
    samples: dict[str, Samples], counts: Mapping[str, np.ndarray],
    merged: dict[str, tuple[str, ...]],
) -> Study:  # fmt: skip
    """A study of photographs; pairs of captions are added to the labelled ones.

    collections: split -> its images. samples: labelled pairs by name. counts: of some, how many
    pairs each stands for. merged: premise -> the captions that it was merged from.
    """
    captions = tuple(tuple(c) for some in collections.values() for c in some.captions)
    ends = np.cumsum([0, *(len(some.ids) for some in collections.values())])
    order = np.random.default_rng([seed, 20]).permutation(int(ends[1]))
    cuts = np.cumsum(list(SHARES.values()))
    rows = dict(zip((*SHARES, "train"), map(np.sort, np.split(order, cuts)), strict=True))
    rows |= {name: np.arange(ends[i], ends[i + 1]) for i, name in enumerate(SPLITS) if i}
    scale = region_scale(collections["train"].features)
    images = standardised([some.features for some in collections.values()], scale)
    words = Words.of([text for some in captions[: ends[1]] for text in some], budget.min_count)
    premises = tuple(judgments.merged(some) for some in captions)
    merged |= dict(zip(premises, captions, strict=True))
    for name, some in (("train", rows["judges"]), ("dev", rows["val"][::4])):
        of_captions, origins = caption_pairs(captions, some, seed + (name == "dev"))
        if name == "dev":
            of_captions = only_mme(of_captions)
        samples[name] = joined([samples[name], of_captions])
        merged |= origins
    texts = sorted({t for c in captions for t in c} | sentences_of(samples.values(), merged))
    start = _frozen_retriever(budget, words, images, split_of(words, captions, rows["frozen"]))
    states, plan = _bert_states(texts, merged), budget.retrieval
    retriever = read_retriever(start, plan.transformers, plan.space, images, len(words))
    stems = Weights(collections["train"].captions)
    encoders = frozen(retriever, words, images, texts, stems, merged, states)
    words.read({*texts, *premises, *(t for some in samples.values() for t in some.premise)})
    arrays = arrays_of(
        samples, encoders, counts, images=images, premises=premises, words=words, states=states,
        splits={name: split_of(words, captions, rows[name]) for name in SPLITS},
        region_scale=scale, starts=starts_of(start), retriever=start,
    )  # fmt: skip
    return Study(arrays, captions, rows, opener(list(collections.values()), ends))


def _bert_states(texts: list[str], merged: Mapping[str, tuple[str, ...]]) -> TokenStates | None:
    """Token states by the BERT of the data folder, if there is one."""
    bert = data_dir() / "bert"
    if not bert.is_dir():
        print(f"no BERT in {bert}: the text branch starts from nothing", file=sys.stderr)
        return None
    return TokenStates.by(bert, texts, merged, job_folder())


def _frozen_retriever(
    budget: Budget, words: Words, images: np.ndarray, split: Split
) -> dict[str, Tensor]:
    """The retriever that judges start from: trained on its own images, from one seed, and kept."""

    def start() -> dict[str, np.ndarray]:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # more of them add in another order
        seed_everything(0)
        weights: dict[str, Tensor] = {}
        for family in ("dual", "align"):  # which grows out of it
            model = build(family, budget.retrieval, images, len(words))
            model.load_state_dict(weights, strict=False)
            train(model, split, budget.frozen[family], 0, lambda epoch: images)
            weights = {n: v.detach().contiguous() for n, v in model.state_dict().items()}
        torch.set_num_threads(threads)
        return {name: tensor.numpy() for name, tensor in weights.items()}

    path = job_folder() / f"frozen-{_key(budget, words, images, split)}.safetensors"
    return {name: torch.from_numpy(array) for name, array in cached(path, start).items()}


def _key(budget: Budget, words: Words, images: np.ndarray, split: Split) -> str:
    """A hash of all that decides a frozen retriever."""
    code = [source_hash("mmlib.papers.entailment.retrieval"), torch.__version__.split("+")[0]]
    plan = [str(budget.retrieval), str(budget.frozen)]
    read = np.ascontiguousarray(images[split.rows])
    text = json.dumps([code, plan, words.words, split.texts, split.image_of.tolist(), read.shape])
    return hashlib.sha256(text.encode() + read.tobytes()).hexdigest()[:24]
