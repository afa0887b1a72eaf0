"""From samples of texts and images to what the entailment classifier reads."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from mmlib.core.entailment_pairs import Samples
from mmlib.features.text import UNKNOWN as NO_WORD
from mmlib.features.text import Vocabulary, tokenize
from mmlib.papers.entailment.model import CLS, INDICATORS, SEP, SPECIAL, UNKNOWN, Batch

RUN = 20  # batches whose samples are sorted by length together, so that little is padded


class Reader(Protocol):
    """Turns texts into token ids, of which 0 to 3 are special (`model.SPECIAL`)."""

    def ids(self, text: str) -> list[int]:
        """The ids of a text, without [CLS] and [SEP]."""
        ...

    def __len__(self) -> int:
        """How many ids there are."""
        ...


class Words:
    """Lower-cased words by number, after the special tokens."""

    def __init__(self, words: Sequence[str]):
        """words: in the order of their numbers, without special tokens."""
        self.words = tuple(words)
        self._number = {word: i for i, word in enumerate(self.words, len(SPECIAL))}

    @classmethod
    def of(cls, texts: Iterable[str], min_count: int = 1) -> "Words":
        """The words of some texts; those seen less than `min_count` times are unknown."""
        found = Vocabulary.from_sentences(map(tokenize, texts), min_count)
        return cls(found.words[NO_WORD + 1 :])

    def ids(self, text: str) -> list[int]:
        """The ids of a text's words."""
        return [self._number.get(word, UNKNOWN) for word in tokenize(text)]

    def __len__(self) -> int:
        return len(SPECIAL) + len(self.words)


class TokenStates:
    """Token states of a frozen BERT, each text read alone: a `Reader` of texts by their tokens.

    As in PreTTR (MacAvaney et al., SIGIR 2020): the pretrained layers read premise sentences and
    hypothesis apart, once for all rows and seeds, and only the layers above them, which learn,
    read the pair together.
    """

    def __init__(self, texts: Sequence[str], states: np.ndarray, lengths: np.ndarray,
                 merged: Mapping[str, tuple[str, ...]]):  # fmt: skip
        """states: (tokens, W) of all texts after one another; lengths: (texts,) tokens of each.

        merged: text -> the texts that it was merged from, whose tokens are its own.
        """
        ends = np.cumsum(lengths) + len(SPECIAL)
        self._span = {
            text: range(int(end - n), int(end))
            for text, end, n in zip(texts, ends, lengths, strict=True)
        }
        self.merged, self.states = merged, states

    def ids(self, text: str) -> list[int]:
        """Tokens of a text, or of the captions that it was merged from."""
        parts = (text,) if text in self._span else self.merged.get(text, ())
        if text and not parts:
            raise ValueError(f"no token states of {text!r}")
        return [i for part in parts for i in self._span[part]]

    def __len__(self) -> int:
        return len(SPECIAL) + len(self.states)

    def sentences(self) -> dict[str, np.ndarray]:
        """Each text's mean state, of length 1: a sentence vector, as all-MiniLM-L6-v2 makes it."""
        found = {}
        for text, span in self._span.items():
            rows = slice(span.start - len(SPECIAL), span.stop - len(SPECIAL))
            mean = self.states[rows].astype(np.float32).mean(axis=0)
            found[text] = mean / max(float(np.linalg.norm(mean)), 1e-9)
        return found


def padded(rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Rows of ids -> (rows, longest) int64 padded with 0, and their lengths (rows,)."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    table = np.zeros((len(rows), lengths.max(initial=0)), dtype=np.int64)
    for i, row in enumerate(rows):
        table[i, : len(row)] = row
    return table, lengths


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
            "images": pictures,
            "labels": self.labels[rows],
            "counted": self.counted[rows],
        }
        return Batch(**{k: torch.from_numpy(v).to(device) for k, v in columns.items()})


def encode(
    samples: Samples,
    pair: Reader,
    words: Reader,
    max_premise: int = 120,
    max_hypothesis: int = 30,
) -> Encoded:
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
