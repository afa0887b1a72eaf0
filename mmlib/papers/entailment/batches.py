"""From samples of texts and images to what the entailment classifier reads."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from mmlib.core.entailment_pairs import Samples
from mmlib.features.words import CLS, SEP, Reader, padded
from mmlib.papers.entailment.model import INDICATORS, Batch

RUN = 20  # batches whose samples are sorted by length together, so that little is padded


@dataclass(frozen=True, eq=False)
class Encoded:
    """Samples as arrays, one row a sample; see `model.Batch` for the columns."""

    pair: np.ndarray
    pair_length: np.ndarray
    premise_length: np.ndarray
    words: np.ndarray
    words_length: np.ndarray
    image: np.ndarray
    labels: np.ndarray
    counted: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, rows: np.ndarray, images: np.ndarray, device: str = "cpu") -> Batch:
        """Some samples, padded to the longest of them. images: (images, R, W), the image table."""
        long, short = self.pair_length[rows], self.words_length[rows]
        place = np.arange(long.max())
        pictures = np.zeros((len(rows), *images.shape[1:]), dtype=np.float32)
        shown = self.image[rows] >= 0
        pictures[shown] = images[self.image[rows][shown]]
        columns = {
            "pair": self.pair[rows, : long.max()],
            "pair_mask": (place < long[:, None]).astype(np.int64),
            "pair_type": (place >= self.premise_length[rows][:, None]).astype(np.int64),
            "words": self.words[rows, : short.max()],
            "words_mask": (np.arange(short.max()) < short[:, None]).astype(np.int64),
            "images": pictures, "labels": self.labels[rows], "counted": self.counted[rows],
        }  # fmt: skip
        return Batch(**{k: torch.from_numpy(v).to(device) for k, v in columns.items()})


def encode(
    samples: Samples, pair: Reader, words: Reader, max_premise: int = 120, max_hypothesis: int = 30,
) -> Encoded:  # fmt: skip
    """Samples as arrays: [CLS] premise [SEP] hypothesis [SEP] by `pair`, hypotheses by `words`.

    Longer texts are cut to these numbers of tokens.
    """
    known = {text: pair.ids(text) for text in {*samples.premise, *samples.hypothesis}}
    spoken = {text: words.ids(text)[:max_hypothesis] for text in set(samples.hypothesis)}
    pairs, premise_length = [], []
    for premise, hypothesis in zip(samples.premise, samples.hypothesis, strict=True):
        first = [CLS, *known[premise][:max_premise], SEP]
        pairs.append([*first, *known[hypothesis][:max_hypothesis], SEP])
        premise_length.append(len(first))
    table, length = padded(pairs)
    hypotheses, short = padded([[CLS, *spoken[text], SEP] for text in samples.hypothesis])
    counted = np.array([INDICATORS[kind] for kind in samples.kind], dtype=np.int64)
    return Encoded(
        table, length, np.array(premise_length), hypotheses, short,
        np.asarray(samples.image), np.asarray(samples.label, dtype=np.int64), counted,
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
