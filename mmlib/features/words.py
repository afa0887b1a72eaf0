"""Texts as token ids: words by number, or the tokens of a frozen BERT with their states."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from mmlib.core.files import cached, file_hash
from mmlib.core.source import source_hash
from mmlib.features.text import UNKNOWN as NO_WORD
from mmlib.features.text import Vocabulary, tokenize

PAD, CLS, SEP, UNKNOWN = 0, 1, 2, 3
SPECIAL = ("[PAD]", "[CLS]", "[SEP]", "[UNK]")


class Words:
    """Lower-cased words by number, after the special tokens."""

    def __init__(self, words: Sequence[str]):
        """words: in the order of their numbers, without special tokens."""
        self.words = tuple(words)
        self._number = {word: i for i, word in enumerate(self.words, len(SPECIAL))}
        self._read: dict[str, list[int]] = {}

    @classmethod
    def of(cls, texts: Iterable[str], min_count: int = 1) -> "Words":
        """The words of some texts that occur at least `min_count` times."""
        vocabulary = Vocabulary.from_sentences(map(tokenize, texts), min_count)
        return cls(vocabulary.words[NO_WORD + 1 :])

    def ids(self, text: str) -> list[int]:
        """The ids of a text's words."""
        if text in self._read:  # the empty one, too
            return self._read[text]
        return [self._number.get(word, UNKNOWN) for word in tokenize(text)]

    def read(self, texts: Iterable[str]) -> None:
        """Store the ids of texts, so that machines without a tokenizer can look them up."""
        self._read |= {text: self.ids(text) for text in texts}

    def __len__(self) -> int:
        return len(SPECIAL) + len(self.words)


def padded(rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Rows of ids -> (rows, longest) int64 padded with 0, and their lengths (rows,)."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    table = np.full((len(rows), lengths.max(initial=0)), PAD)
    for i, row in enumerate(rows):
        table[i, : len(row)] = row
    return table, lengths


class TokenStates:
    """Token states of a frozen BERT, each text read alone, which reads texts by their tokens.

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
        spans = map(range, (ends - lengths).tolist(), ends.tolist())
        self._span = dict(zip(texts, spans, strict=True))
        self.merged, self.states = merged, states

    @classmethod
    def by(
        cls, folder: Path, texts: Sequence[str], merged: Mapping[str, tuple[str, ...]], cache: Path,
        most: int = 40,
    ) -> "TokenStates":  # fmt: skip
        """States of texts by the BERT in a folder, kept in the folder `cache`; `most` tokens each.

        [CLS] and [SEP] are left out. What is kept goes by the content of the BERT's files, the
        texts, and the versions of the code that reads them; a cut file is made anew. Raises
        DataError for a folder without a BERT.
        """
        from mmlib.features.bert import MODEL_FILES, BertEncoder, check_files

        def read() -> dict[str, np.ndarray]:
            encoder = BertEncoder.from_pretrained(folder, "frozen")
            states, lengths = encoder.token_states_all(texts, most + 2, progress="token states")
            return {"states": states, "lengths": lengths}

        check_files(folder)
        content = [file_hash(folder / name) for name in MODEL_FILES]
        code = [source_hash(__name__), *map(version, ("torch", "transformers", "tokenizers"))]
        key = hashlib.sha256(json.dumps([content, code, most, list(texts)]).encode()).hexdigest()
        arrays = cached(cache / f"states-{key[:24]}.safetensors", read)
        return cls(texts, arrays["states"], arrays["lengths"], merged)

    def ids(self, text: str) -> list[int]:
        """Tokens of a text, or of the captions that it was merged from."""
        texts = (text,) if text in self._span else self.merged.get(text, ())
        if text and not texts:
            raise ValueError(f"no token states of {text!r}")
        return [i for one_text in texts for i in self._span[one_text]]

    def __len__(self) -> int:
        return len(SPECIAL) + len(self.states)

    def units(self, text: str) -> np.ndarray:
        """States (tokens, W) of a text's tokens, each of length 1."""
        rows = np.array(self.ids(text), dtype=np.int64) - len(SPECIAL)
        states = self.states[rows].astype(np.float32)
        return states / np.maximum(np.linalg.norm(states, axis=1, keepdims=True), 1e-9)

    def sentences(self) -> dict[str, np.ndarray]:
        """Each text's mean state, of length 1: a sentence vector, as all-MiniLM-L6-v2 makes it.

        A text without tokens has the vector 0, which is like no other.
        """
        vectors = {}
        for text, span in self._span.items():
            rows = slice(span.start - len(SPECIAL), span.stop - len(SPECIAL))
            mean = self.states[rows].astype(np.float32).sum(axis=0) / max(len(span), 1)
            vectors[text] = mean / max(float(np.linalg.norm(mean)), 1e-9)
        return vectors


Reader = Words | TokenStates  # turns texts into token ids, of which 0 to 3 are special (SPECIAL)


def covered(hypothesis: np.ndarray, premise: np.ndarray) -> tuple[float, float, float]:
    """How well tokens match, unit vectors (n, W) of a hypothesis and (m, W) of a premise.

    With the premise as reference, returns BERTScore's precision (Zhang et al., ICLR 2020), which is
    the mean of each hypothesis token's highest cosine with a premise token; the mean over the
    lowest third of these; and BERTScore's recall, the same mean over premise tokens. All are 0
    where one of the texts has no tokens.
    """
    if not (len(hypothesis) and len(premise)):
        return 0.0, 0.0, 0.0
    cosines = hypothesis @ premise.T
    best = np.sort(cosines.max(axis=1))
    return best.mean(), best[: max(1, len(best) // 3)].mean(), cosines.max(axis=0).mean()


class FrozenStates(nn.Module):
    """Token states (tokens, W) of a frozen encoder as word embeddings, projected to a width."""

    table: Tensor
    mean: Tensor
    scale: Tensor

    def __init__(self, states: Tensor, width: int):
        super().__init__()
        self.register_buffer("table", states, persistent=False)  # not kept in checkpoints
        some = states[:: max(1, len(states) // 20000)].float()
        self.register_buffer("mean", some.mean(dim=0))
        self.register_buffer("scale", some.std(dim=0) + 1e-3)
        self.special = nn.Embedding(len(SPECIAL), width)
        self.project = nn.Linear(states.shape[1], width)
        nn.init.orthogonal_(self.project.weight)  # near tokens stay near

    def forward(self, ids: Tensor) -> Tensor:
        """Ids (B, L), the special tokens' first and then the table's rows -> (B, L, width)."""
        rows = (ids - len(SPECIAL)).clamp_min(0)
        states = self.table[rows].to(self.project.weight.dtype)
        states = (states - self.mean) / self.scale
        special = self.special(ids.clamp_max(len(SPECIAL) - 1))
        return torch.where((ids < len(SPECIAL))[..., None], special, self.project(states))
