"""INPUTS: nine numbers of a pair by frozen encoders and by counting words, nothing learnt.

They say, of an image with its captions and a hypothesis, how much of the hypothesis the captions
say already, how near it is to them by a frozen text encoder, as a whole and token by token, how
near it is to the image by a frozen retriever, and how much it says at all. The baselines of every
table are made of them, and a judge's answer (`calibration.Calibration`) reads them too.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from mmlib.core.entailment_pairs import Samples
from mmlib.core.jobs import as_bytes
from mmlib.data.overlap import Weights, overlap_parts, stems
from mmlib.features.encoders import BLOCK
from mmlib.features.words import TokenStates, Words, covered, padded
from mmlib.papers.entailment.retrievers import MAX_WORDS, AlignFuse

INPUTS = (
    "words said", "nearest caption", "cosine, best", "cosine, mean", "image cosine", "weight",
    "tokens covered", "tokens least covered", "premise covered",
)  # fmt: skip
# Which of them a judge may read that sees texts alone, or images alone.
READABLE = {"te": (0, 1, 2, 3, 5, 6, 7, 8), "ve": (4, 5)}
ALL_INPUTS = tuple(range(len(INPUTS)))


@dataclass(frozen=True, eq=False)
class Frozen:
    """What frozen encoders make of all texts and images.

    row: text -> row of `sentences` and `text_vectors`. sentences (texts, D): unit vectors of a text
    encoder. text_vectors (texts, E), image_vectors (images, E): unit vectors of a retriever.
    weights: of stems. merged: premise text -> the captions that it was merged from.
    tokens: the states of all texts' tokens.
    """

    row: Mapping[str, int]
    sentences: np.ndarray
    text_vectors: np.ndarray
    image_vectors: np.ndarray
    weights: Mapping[str, float]
    merged: Mapping[str, tuple[str, ...]]
    tokens: TokenStates

    def inputs(self, samples: Samples) -> np.ndarray:
        """INPUTS (n, 9), not scaled; NaN where a sample has no premise text, or no image."""
        table = np.full((len(samples), len(INPUTS)), np.nan)
        columns = (samples.premise, samples.hypothesis, samples.image)
        for i, (premise, hypothesis, image) in enumerate(zip(*columns, strict=True)):
            row = self.row[hypothesis]
            if premise:
                captions = self.merged.get(premise, (premise,))
                cosines = self.sentences[[self.row[c] for c in captions]] @ self.sentences[row]
                overlap = overlap_parts(captions, hypothesis, self.weights)
                table[i, :4] = *overlap, cosines.max(), cosines.mean()
                table[i, 6:] = covered(*map(self.tokens.units, (hypothesis, premise)))
            if image >= 0:
                table[i, 4] = self.image_vectors[image] @ self.text_vectors[row]
            table[i, 5] = sum(self.weights[stem] for stem in sorted(stems(hypothesis)))
        return table

    def similarities(self, rows: np.ndarray, texts: Sequence[str]) -> np.ndarray:
        """Cosines (rows, texts) of images of the image table with texts, by the retriever."""
        return self.image_vectors[rows] @ self.text_vectors[[self.row[text] for text in texts]].T

    def fingerprint(self) -> bytes:
        """A hash of all of it."""
        digest = hashlib.sha256(as_bytes(list(self.row)))
        tokens = self.tokens.states[::97]
        for vectors in (self.sentences, self.text_vectors, self.image_vectors, tokens):
            digest.update(np.ascontiguousarray(vectors).tobytes())
        return digest.digest()


@torch.no_grad()
def frozen(
    retriever: AlignFuse, words: Words, images: np.ndarray, texts: Sequence[str],
    weights: Weights, merged: Mapping[str, tuple[str, ...]], states: TokenStates | None = None,
) -> Frozen:  # fmt: skip
    """What a trained ALBEF-like retriever, and a BERT, if any, make of images and texts.

    images (N, R, W): an image table. weights, merged: see `Frozen`. states: of all texts' tokens by
    the BERT; without, the retriever's text encoder takes its place.
    """
    retriever.eval()
    ids, lengths = padded([words.ids(text)[:MAX_WORDS] for text in texts])
    looked_at = [retriever.image_states(some)[1] for some in torch.from_numpy(images).split(BLOCK)]
    blocks = zip(*(torch.from_numpy(table).split(BLOCK) for table in (ids, lengths)), strict=True)
    tokens, vectors = [], []
    for block, length in blocks:
        block_states, _, unit = retriever.text_states(block[:, : length.max()], length)
        spoken = zip(length.tolist(), block_states.numpy(), strict=True)
        tokens += [row[1 : n + 1] for n, row in spoken]
        vectors.append(unit)
    text_vectors, image_vectors = (torch.cat(some).numpy() for some in (vectors, looked_at))
    sentences = text_vectors
    if states is None:
        states = TokenStates(texts, np.concatenate(tokens), lengths, merged)
    else:
        means = states.sentences()
        sentences = np.stack([means[text] for text in texts])
    row = {text: i for i, text in enumerate(texts)}
    return Frozen(row, sentences, text_vectors, image_vectors, weights, merged, states)


@dataclass(frozen=True)
class Scale:
    """Mean and deviation (9,) of INPUTS over calibration samples."""

    mean: np.ndarray
    deviation: np.ndarray

    @classmethod
    def of(cls, inputs: np.ndarray) -> "Scale":
        """The scale of some inputs, what is NaN left out."""
        return cls(np.nanmean(inputs, axis=0), np.nanstd(inputs, axis=0) + 1e-6)

    def __call__(self, inputs: np.ndarray) -> np.ndarray:
        """With mean 0 and deviation 1, float32; what is unknown becomes 0, the mean."""
        return np.nan_to_num((inputs - self.mean) / self.deviation).astype(np.float32)
