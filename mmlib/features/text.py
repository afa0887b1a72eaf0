"""Sentences to tensors: tokens, vocabulary, word vectors."""

import re
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from mmlib.core.records import canonical

PADDING, UNKNOWN = 0, 1


def tokenize(sentence: str) -> list[str]:
    """Lower-cased tokens of the `canonical` text, by NLTK's TweetTokenizer, as paper 04 has it."""
    return list(_tokens(sentence))


@lru_cache(maxsize=500_000)  # sentences come back in many documents
def _tokens(sentence: str) -> tuple[str, ...]:
    from nltk.tokenize import casual_tokenize  # imported late: training from ids needs no nltk

    text = re.sub(r"&(?=[^&;\s]+;)", "& ", canonical(sentence))  # NLTK would drop "&dogs;"
    words = " ".join(casual_tokenize(text)).lower().split()
    return tuple(map(sys.intern, words))  # few of the millions differ


def spaced_tokens(text: str) -> list[str]:
    r"""Tokens as in the authors' code of paper 01: spaces around , . ; ( ) ? ! & % : * ".

    Case stays, and so do hyphens and apostrophes. A text that ends in one of these marks or in a
    space ends in an empty token, one that begins so begins with one: they are entries of the
    paper's vocabularies. The escapes `\xa0`, `\t` and `\n` are meant as written, a backslash and
    letters: the first is deleted, the others separate.

    Source: `clean_caption` and `train_word2vec` of the authors' repository.
    """
    spaced = re.sub(r'([,.;()?!&%:*"])', r" \1 ", text.replace("\\xa0", ""))
    return re.split(r"\\n| ", re.sub(r" +|\\t", " ", spaced))


@dataclass(frozen=True)
class Vocabulary:
    """Words by index: 0 is padding, 1 unknown, then words by falling count and, in ties, name."""

    words: tuple[str, ...]

    @classmethod
    def from_sentences(cls, sentences: Iterable[Sequence[str]], min_count: int = 5) -> "Vocabulary":
        """Build from tokenised sentences; words seen less than `min_count` times become unknown."""
        special = "<pad>", "<unk>"
        counts = Counter(word for sentence in sentences for word in sentence if word not in special)
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return cls((*special, *(word for word, count in ranked if count >= min_count)))

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, sentences: Sequence[Sequence[str]], max_words: int) -> tuple[Tensor, Tensor]:
        """Token ids (sentences, longest) int64 padded with 0, and lengths (sentences,) int64.

        Only the first `max_words` tokens are kept; a sentence without tokens is one unknown token.
        """
        index = {word: i for i, word in enumerate(self.words)}
        rows = [[index.get(w, UNKNOWN) for w in s[:max_words]] or [UNKNOWN] for s in sentences]
        lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)
        if not rows:
            return torch.zeros(0, 0, dtype=torch.int64), lengths
        return pad_sequence([torch.tensor(row) for row in rows], True, PADDING), lengths


def train_word2vec(
    sentences: Sequence[Sequence[str]],
    width: int,
    seed: int,
    epochs: int = 10,
    window: int = 5,
    skip_gram: bool = True,
) -> dict[str, np.ndarray]:
    """Word vectors by gensim, word -> (width,) float32, trained on tokenised sentences.

    Skip-gram, or else CBOW; `window` words to each side; 5 negatives. One worker thread,
    so that the same seed gives the same vectors.
    """
    from gensim.models import Word2Vec  # imported late: not needed where vectors are given

    model = Word2Vec(
        [list(s) for s in sentences], vector_size=width, min_count=1, sg=int(skip_gram),
        window=window, negative=5, epochs=epochs, seed=seed, workers=1,
        hashfxn=lambda text: zlib.crc32(text.encode()),  # Python's own changes with the process
    )  # fmt: skip
    return {word: model.wv[word].copy() for word in model.wv.index_to_key}


def embedding_matrix(
    vocabulary: Vocabulary, width: int, seed: int, vectors: Mapping[str, np.ndarray] | None = None
) -> Tensor:
    """Initial word embeddings (words, width): a word's vector where one is given, else uniform.

    Uniform in [-0.2, 0.2], or [-0.02, 0.02] where no vectors are given at all, as in the authors'
    code of paper 04. Vectors of another width than `width` are refused.
    """
    bound = 0.2 if vectors else 0.02
    table = np.random.default_rng(seed).uniform(-bound, bound, (len(vocabulary), width))
    for row, word in enumerate(vocabulary.words):
        vector = vectors.get(word) if vectors else None
        if vector is not None and vector.shape != (width,):
            raise ValueError(
                f"word vector of {word!r} has shape {vector.shape}, wanted ({width},): "
                "set word_width to the width of the word vectors"
            )
        table[row] = table[row] if vector is None else vector
    return torch.tensor(table, dtype=torch.float32)


def mean_word_vectors(
    sentences: Sequence[Sequence[str]], vectors: Mapping[str, np.ndarray]
) -> np.ndarray:
    """Mean word vector of each sentence (sentences, width); zero where no word has a vector."""
    width = len(next(iter(vectors.values())))
    rows = [[vectors[word] for word in words if word in vectors] for words in sentences]
    means = [np.mean(row, axis=0) if row else np.zeros(width) for row in rows]
    return np.array(means).reshape(-1, width)
