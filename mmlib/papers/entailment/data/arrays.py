"""What the jobs of paper 02 read: images, captions, labelled pairs; and batches of pairs."""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor, from_numpy

from mmlib.core.errors import DataError, Problem
from mmlib.core.jobs import as_bytes
from mmlib.core.records import Kind, Samples
from mmlib.features.backbones import read_weights
from mmlib.features.bert import check_files
from mmlib.features.words import CLS, SEP, SPECIAL, UNKNOWN, Reader, TokenStates, Words, padded
from mmlib.papers.entailment.method.calibration import Frozen, Scale
from mmlib.papers.entailment.method.classifier import INDICATORS, Batch, Settings
from mmlib.papers.entailment.method.retrievers import MAX_WORDS

SPLITS = ("train", "val", "test")
PIECES = "embeddings.word_embeddings.weight"  # of a BERT
RUN = 20  # batches whose samples are sorted by length together, so that little is padded


@dataclass(frozen=True, eq=False)
class Split:
    """Images and captions of a split, by rows and flat numbers.

    rows (n,): of the image table. ids (c, L), lengths (c,): token ids of captions. texts (c,).
    image_of (c,): image of each caption, counted within the split. fits (n, c) bool: which captions
    are true of which images, known in the world; None elsewhere.
    """

    rows: np.ndarray
    ids: np.ndarray
    lengths: np.ndarray
    texts: tuple[str, ...]
    image_of: np.ndarray
    fits: np.ndarray | None = None

    @classmethod
    def of(
        cls, words: Words, captions: Sequence[Sequence[str]], rows: np.ndarray,
        fits: np.ndarray | None = None,
    ) -> "Split":  # fmt: skip
        """Some images of the table, and their captions as ids."""
        texts, image_of = flat(captions, rows)
        ids, lengths = padded([words.ids(text)[:MAX_WORDS] for text in texts])
        return cls(rows, ids, lengths, tuple(texts), image_of, fits)

    def __len__(self) -> int:
        return len(self.rows)

    def tensors(self, table: np.ndarray, device: str = "cpu") -> tuple[Tensor, ...]:
        """Images (n, R, W) of an image table, ids and lengths, on a device."""
        columns = (table[self.rows], self.ids, self.lengths)
        return tuple(from_numpy(np.array(column)).to(device) for column in columns)


def flat(captions: Sequence[Sequence[str]], rows: np.ndarray) -> tuple[list[str], np.ndarray]:
    """All captions of some images, and the image of each, counted from 0."""
    chosen = [captions[row] for row in rows]
    texts = [text for image in chosen for text in image]
    return texts, np.repeat(np.arange(len(chosen)), list(map(len, chosen)))


@dataclass(frozen=True, eq=False)
class Labelled:
    """Pairs with labels, and INPUTS of each.

    given (n, 9) scaled; weights (n,): how many pairs each stands for; about: the origin of each
    hypothesis (`systems.ORIGINS`), where known.
    """

    samples: Samples
    given: np.ndarray
    weights: np.ndarray
    about: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.samples)


@dataclass(frozen=True, eq=False)
class People:
    """What people said of test pairs: pairs (n, 2) of an image and a flat caption, labels (n,).

    rejected (images,): 100 where they rejected the image's own caption, 0 where not, NaN where it
    was not asked. each: captions of an image, of which they saw one.
    """

    pairs: np.ndarray
    labels: np.ndarray
    rejected: np.ndarray
    each: int = 5


@dataclass(frozen=True, eq=False)
class Arrays:
    """All of a tier.

    images (N, R, W): the image table, standardised by region_scale (2, W), mean and deviation;
    clean: the same without the world's noise, whose deviation is `noise` (W,). splits: of the
    retrievers. premises (N,): each image's captions as one text. train, dev, calibration: pairs
    that judges learn from, choose their epoch by, and set their threshold on. tests: pairs that
    they are compared on, by name; the first one at its natural prior. frozen, scale: for INPUTS of
    other pairs. states: of a frozen BERT. starts: weights that judges start from, by their names
    there. retriever: weights of the frozen one, from whose encoders stage A goes on.
    """

    images: np.ndarray
    splits: Mapping[str, Split]
    premises: tuple[str, ...]
    train: Labelled
    dev: Labelled
    calibration: Labelled
    tests: Mapping[str, Labelled]
    frozen: Frozen
    scale: Scale
    words: Words
    states: TokenStates | None = None
    clean: np.ndarray | None = None
    noise: np.ndarray | None = None
    region_scale: np.ndarray = field(default_factory=lambda: np.zeros((2, 0), np.float32))
    starts: Mapping[str, Tensor] = field(default_factory=dict)
    retriever: Mapping[str, Tensor] = field(default_factory=dict)
    people: People | None = None

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all that trainings and tests read."""
        digest = hashlib.sha256(np.ascontiguousarray(self.images).data)
        for split in self.splits.values():
            digest.update(as_bytes(split.texts))
            for column in (split.rows, split.ids, split.image_of, split.fits):
                digest.update(np.ascontiguousarray([0] if column is None else column).tobytes())
        for pairs in (self.train, self.dev, self.calibration, *self.tests.values()):
            samples = pairs.samples
            texts = (samples.premise, samples.hypothesis, samples.kind, pairs.about)
            digest.update(as_bytes([text for column in texts for text in column]))
            for column in (samples.image, samples.label, pairs.given, pairs.weights):
                digest.update(np.ascontiguousarray(column).tobytes())
        for weights in (self.starts, self.retriever):
            for name in sorted(weights):
                digest.update(weights[name].float().numpy().tobytes())
        if self.states is not None:
            digest.update(np.ascontiguousarray(self.states.states[::97]).tobytes())
        digest.update(self.frozen.fingerprint())
        return digest.hexdigest()[:24]

    def with_noise(self, seed: int, epoch: int) -> np.ndarray:
        """The image table of a training's epoch: in the world with noise that is drawn anew."""
        if self.clean is None or self.noise is None:
            return self.images
        rng = np.random.default_rng([seed, epoch, 26])
        return self.clean + self.noise * rng.standard_normal(self.clean.shape, dtype=np.float32)

    def clusters(self, split: str) -> np.ndarray:
        """Clusters of items: of a test's pairs its images, of "test" and "mined" each image."""
        if split in self.tests:
            return pd.factorize(np.array(self.tests[split].samples.group, dtype=object))[0]
        return np.arange(len(self.splits["train" if split == "mined" else "test"]))

    def encoded(self, pairs: Labelled, settings: Settings) -> "Encoded":
        """Labelled pairs as a judge with these settings reads them."""
        frozen_text = settings.text == "own" and settings.model in ("both", "te")
        reader = self.states if frozen_text and self.states is not None else self.words
        longest = settings.max_premise, settings.max_hypothesis
        encoded = encode(pairs.samples, reader, self.words, *longest)
        if settings.model == "single":  # its one loss counts for samples of all kinds
            return replace(encoded, counted=np.ones_like(encoded.counted))
        return encoded

    def pairs(self, split: str, pairs: np.ndarray) -> Labelled:
        """Pairs (n, 2) of an image of a split and a flat caption, to be judged; labels are 0."""
        texts, image = self.splits[split].texts, self.splits[split].rows[pairs[:, 0]]
        samples = samples_of(image, [texts[c] for c in pairs[:, 1]], self.premises, split)
        return Labelled(samples, self.scale(self.frozen.inputs(samples)), np.ones(len(pairs)))


def samples_of(
    image: np.ndarray, texts: Sequence[str], premises: Sequence[str], source: str,
    kind: Kind = "mme",
) -> Samples:  # fmt: skip
    """Samples of images (n,) of the image table and n texts, grouped by image; labels are 0."""
    premise = tuple("" if kind == "ve" else premises[i] for i in image)
    n, groups = len(image), tuple(map(str, image))
    labels = np.zeros(n, dtype=np.int64)
    return Samples(premise, tuple(texts), image, labels, (kind,) * n, (source,) * n, groups)


# --- What tiers build theirs with ----------------------------------------------------------------


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


def open_image(collections: Sequence[Any], ends: np.ndarray, row: int) -> Image.Image:
    """The picture of a row of the table. ends: first row of each collection, and the last."""
    number = int(np.searchsorted(ends, row, side="right")) - 1
    return collections[number].open_image(row - int(ends[number]))


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
        bert = load_file(text / "model.safetensors")
        bert[PIECES] = bert[PIECES][: len(weights[f"words.{PIECES}"])]  # all but its [MASK]
        starts |= {f"text.{n}": v.float() for n, v in bert.items()}
    return starts


def starts_in(folder: Path, words: Words, layers: int) -> dict[str, Tensor]:
    """Weights that judges start from, of a user's ALBEF or BLIP, by their names there.

    The first `layers` of the folder's text encoder become VE's, the others its cross layers, all
    TE's own. A word gets the mean embedding of its pieces. Raises DataError for another model.
    """
    from transformers import PreTrainedTokenizerFast

    check_files(folder)
    encoder = re.compile(r"text_encoder\.(?:bert\.)?(.+)")  # ALBEF's is in a model of masked words
    state = read_weights(folder / "model.safetensors", "")
    found = {named[1]: v.float() for n, v in state.items() if (named := encoder.fullmatch(n))}
    if PIECES not in found or not any("crossattention" in name for name in found):
        problem = "no text encoder that attends to an image, as ALBEF's and BLIP's"
        raise DataError(Problem(folder, None, problem, "a CLIP gives features: --backbone hf:"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    rows = tokenizer([*SPECIAL, *words.words], add_special_tokens=False)["input_ids"]
    found[PIECES] = torch.stack([found[PIECES][r or rows[UNKNOWN]].mean(dim=0) for r in rows])
    starts = {f"{of}.{name}": value for name, value in found.items() for of in ("text", "words")}
    for name, value in found.items():
        if (layer := re.match(r"encoder\.layer\.(\d+)\.", name)) and int(layer[1]) >= layers:
            starts[f"cross.layers.{int(layer[1]) - layers}.{name[layer.end() :]}"] = value
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
    scale, pairs = Scale.of(encoders.inputs(samples["calibration"])), {}
    for name, some in samples.items():
        unread = name in ("train", "dev")  # whose INPUTS nobody reads
        given = np.zeros((len(some), 0), np.float32) if unread else scale(encoders.inputs(some))
        counted = counts.get(name, np.ones(len(some)))
        pairs[name] = Labelled(some, given, counted, about.get(name, ()))
    learnt: dict[str, Any] = {name: pairs.pop(name) for name in ("train", "dev", "calibration")}
    return Arrays(**learnt, tests=pairs, frozen=encoders, scale=scale, **rest)


# --- Batches -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Encoded:
    """Samples as a judge reads them.

    pairs: ids of [CLS] premise [SEP] hypothesis [SEP], of which `premise_length` (n,) come before
    the hypothesis; words: of [CLS] hypothesis [SEP]. The rest as of `Samples` and `Batch`.
    """

    pairs: Sequence[Sequence[int]]
    premise_length: np.ndarray
    words: Sequence[Sequence[int]]
    image: np.ndarray
    labels: np.ndarray
    counted: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def pair_length(self) -> np.ndarray:
        """(n,) ids of each pair."""
        return np.array([len(ids) for ids in self.pairs])

    def batch(self, rows: np.ndarray, images: np.ndarray, device: str = "cpu") -> Batch:
        """Some samples, padded to the longest of them. images: (images, R, W), the image table."""
        pair, long = padded([self.pairs[row] for row in rows])
        words, short = padded([self.words[row] for row in rows])
        position, word = np.arange(pair.shape[1]), np.arange(words.shape[1])
        pictures = np.zeros((len(rows), *images.shape[1:]), dtype=np.float32)
        shown = self.image[rows] >= 0
        pictures[shown] = images[self.image[rows][shown]]
        columns = {
            "pair": pair, "pair_mask": (position < long[:, None]).astype(np.int64),
            "pair_type": (position >= self.premise_length[rows][:, None]).astype(np.int64),
            "words": words, "words_mask": (word < short[:, None]).astype(np.int64),
            "images": pictures, "labels": self.labels[rows], "counted": self.counted[rows],
        }  # fmt: skip
        return Batch(**{k: torch.from_numpy(v).to(device) for k, v in columns.items()})


def encode(
    samples: Samples, pair: Reader, words: Reader, max_premise: int = 120, max_hypothesis: int = 30,
) -> Encoded:  # fmt: skip
    """Samples as arrays: [CLS] premise [SEP] hypothesis [SEP] by `pair`, hypotheses by `words`.

    Longer texts are cut to these numbers of tokens.
    """
    ids = {text: pair.ids(text) for text in {*samples.premise, *samples.hypothesis}}
    word_ids = {text: words.ids(text)[:max_hypothesis] for text in set(samples.hypothesis)}
    premises = [[CLS, *ids[text][:max_premise], SEP] for text in samples.premise]
    return Encoded(
        pairs=[[*premise, *ids[text][:max_hypothesis], SEP]
               for premise, text in zip(premises, samples.hypothesis, strict=True)],
        premise_length=np.array([len(premise) for premise in premises]),
        words=[[CLS, *word_ids[text], SEP] for text in samples.hypothesis],
        image=np.asarray(samples.image), labels=np.asarray(samples.label, dtype=np.int64),
        counted=np.array([INDICATORS[kind] for kind in samples.kind], dtype=np.int64),
    )  # fmt: skip


def shuffled_batches(
    lengths: np.ndarray, size: int, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Rows in random batches of about one length; every row once, the last batch may be smaller."""
    order = rng.permutation(len(lengths))
    batches: list[np.ndarray] = []
    for start in range(0, len(order), size * RUN):
        run = order[start : start + size * RUN]
        run = run[np.argsort(lengths[run], kind="stable")]
        batches += [run[i : i + size] for i in range(0, len(run), size)]
    for i in rng.permutation(len(batches)):
        yield batches[i]
