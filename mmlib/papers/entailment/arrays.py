"""What the jobs of paper 02 read: images, captions, labelled pairs, frozen encoders."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from torch import Tensor, from_numpy

from mmlib.core.entailment_pairs import Kind, Samples
from mmlib.features.words import TokenStates, Words
from mmlib.papers.entailment.batches import Encoded, encode
from mmlib.papers.entailment.inputs import Frozen, Scale
from mmlib.papers.entailment.model import Settings

SPLITS = ("train", "val", "test")
EDITS = ("colour", "number", "relation", "swap", "actor", "object", "setting", "action")
KINDS = ("own", "general", "foreign", *EDITS)  # where the world's hypotheses come from


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

    def __len__(self) -> int:
        return len(self.rows)

    def tensors(self, table: np.ndarray, device: str = "cpu") -> tuple[Tensor, Tensor, Tensor]:
        """Images (n, R, W) of an image table, ids and lengths, on a device."""
        parts = (table[self.rows], self.ids, self.lengths)
        return tuple(from_numpy(np.array(part)).to(device) for part in parts)  # type: ignore[return-value]


@dataclass(frozen=True, eq=False)
class Labelled:
    """Pairs with labels, and the numbers (INPUTS) known of each.

    samples; given (n, 9) scaled; weights (n,): how many pairs each stands for; about: what each
    hypothesis is, such as the kind of edit, where known. Clusters are the samples' groups.
    """

    samples: Samples
    given: np.ndarray
    weights: np.ndarray
    about: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def clusters(self) -> np.ndarray:
        """(n,) the number of each sample's group."""
        number: dict[str, int] = {}
        return np.array([number.setdefault(own, len(number)) for own in self.samples.group])


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

    images (N, R, W): the image table, standardised; clean: the same without the world's
    noise, whose deviation is `noise` (W,).
    splits: of the retrievers. premises (N,): each image's captions as one text. train, dev,
    calibration: pairs that judges learn from, choose their epoch by, and set their threshold on.
    tests: pairs that they are compared on, by name; the first one at its natural prior. frozen,
    scale: for INPUTS of other pairs. words: the vocabulary. states: of a frozen BERT. starts:
    weights that judges start from, by their names there. retriever: weights of the frozen one,
    ALBEF-like, from whose encoders stage A goes on. people: judgments of test pairs.
    region_scale (2, W): mean and deviation by which the image table was standardised.
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
        digest = hashlib.sha256(np.ascontiguousarray(self.images).tobytes())
        for split in self.splits.values():
            digest.update("\n".join(split.texts).encode())
            for part in (split.rows, split.ids, split.image_of, split.fits):
                digest.update(np.ascontiguousarray([0] if part is None else part).tobytes())
        for own in (self.train, self.dev, self.calibration, *self.tests.values()):
            said = (own.samples.premise, own.samples.hypothesis, own.samples.kind, own.about)
            digest.update("\n".join(text for column in said for text in column).encode())
            for part in (own.samples.image, own.samples.label, own.given, own.weights):
                digest.update(np.ascontiguousarray(part).tobytes())
        for weights in (self.starts, self.retriever):
            for name in sorted(weights):
                digest.update(weights[name].float().numpy().tobytes())
        if self.states is not None:
            digest.update(np.ascontiguousarray(self.states.states[::97]).tobytes())
        digest.update(self.frozen.fingerprint())
        return digest.hexdigest()[:24]

    def looked_at(self, seed: int, epoch: int) -> np.ndarray:
        """The image table as a training sees it: in the world with noise that is drawn anew."""
        if self.clean is None or self.noise is None:
            return self.images
        rng = np.random.default_rng([seed, epoch, 26])
        return self.clean + self.noise * rng.standard_normal(self.clean.shape, dtype=np.float32)

    def clusters(self, split: str) -> np.ndarray:
        """Clusters of items: of a test's pairs its images, of "test" and "mined" each image."""
        if split in self.tests:
            return self.tests[split].clusters
        return np.arange(len(self.splits["train" if split == "mined" else "test"]))

    def encoded(self, pairs: Labelled, settings: Settings) -> Encoded:
        """Labelled pairs as a judge with these settings reads them."""
        own = settings.text == "own" and settings.model in ("both", "te")
        reader = self.states if own and self.states is not None else self.words
        most = settings.max_premise, settings.max_hypothesis
        return encode(pairs.samples, reader, self.words, *most)

    def pairs(self, split: str, pairs: np.ndarray) -> Labelled:
        """Pairs (n, 2) of an image of a split and a flat caption, to be judged; labels are 0."""
        own, n = self.splits[split], len(pairs)
        image = own.rows[pairs[:, 0]]
        kinds: tuple[Kind, ...] = ("mme",) * n  # type: ignore[assignment]
        samples = Samples(
            tuple(self.premises[i] for i in image), tuple(own.texts[c] for c in pairs[:, 1]),
            image, np.zeros(n, dtype=np.int64), kinds, (split,) * n, tuple(map(str, image)),
        )  # fmt: skip
        return Labelled(samples, self.scale(self.frozen.inputs(samples)), np.ones(n))
