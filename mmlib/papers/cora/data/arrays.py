"""A collection as arrays to train on: word vectors, scaled features, texts as ids."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import networkx as nx
import numpy as np

from mmlib import scenegraph
from mmlib.core.files import file_hash
from mmlib.core.paths import data_dir
from mmlib.features.bert import BertEncoder
from mmlib.features.text import (
    Vocabulary,
    embedding_matrix,
    read_word_vectors,
    tokenize,
    train_word2vec,
)
from mmlib.papers.cora.data.texts import DELIMITERS, Captions, PieceReader, Reader
from mmlib.papers.cora.data.world import FAMILY, truth
from mmlib.papers.cora.run.batches import Arrays, Split, Texts
from mmlib.papers.cora.run.systems import ERRORS, RATES, SPLITS, Settings
from mmlib.world import WorldImages

QUERIES = 60  # test captions that are timed


def word_vectors(captions: Sequence[str], settings: Settings) -> tuple[Vocabulary, np.ndarray]:
    """The vocabulary, and word vectors (vocabulary, word_width) that all systems start from.

    Read from `<MMLIB_DATA>/glove/glove.6B.<word_width>d.txt` where that file is there, else
    word2vec trained on the training captions.
    """
    tokens = [tokenize(caption) for caption in captions]
    words = Vocabulary.from_sentences(tokens, min_count=2).words
    vocabulary = Vocabulary((*words[:2], *DELIMITERS, *words[2:]))
    path = data_dir() / "glove" / f"glove.6B.{settings.word_width}d.txt"
    vectors = (
        read_word_vectors(path, set(vocabulary.words))
        if path.exists()
        else train_word2vec(tokens, settings.word_width, seed=0, epochs=3)
    )
    table = embedding_matrix(vocabulary, settings.word_width, 0, vectors).numpy()
    # word2vec's vectors share a large component and are short: all phrases would look alike.
    return vocabulary, (table - table.mean(axis=0)) / table.std(axis=0, ddof=1)


def prepare(
    collection: Captions, settings: Settings, bert: Path | None = None, for_record: bool = True
) -> Arrays:
    """A collection as arrays. Only training captions and images choose words and scales.

    Features in memory are centred and divided by one deviation; those of a file stay as they are.
    bert: a BERT's folder, for texts in its word pieces, instead of those with parse errors.
    for_record: with what a single training does not read: gold graphs, texts with parse errors, and
    the oracles' scores. Raises DataError where the BERT cannot be read.
    """
    pieces, source = None, ("", "")
    if bert:
        pieces = PieceReader(tokenizer=BertEncoder.from_pretrained(bert, "frozen").tokenizer)
        source = str(bert), file_hash(bert / "model.safetensors")
    vocabulary, table = word_vectors(collection.captions("train"), settings)
    reader = Reader(vocabulary.words, settings.delimiters)
    train = collection.images["train"].features
    mean, scale = np.float32(0), np.float32(1)
    if not isinstance(train, np.memmap):
        sample = np.asarray(train[:: max(1, len(train) // 2000)], dtype=np.float32)
        mean, scale = sample.mean(axis=(0, 1)), sample.std()

    def split(name: str) -> Split:
        features = collection.images[name].features
        if not isinstance(features, np.memmap):
            features = ((features - mean) / scale).astype(np.float32)
        captions, graphs = collection.captions(name), collection.graphs[name]
        texts: dict[str, Texts] = {
            "graph": reader.graphs(graphs), "sequence": reader.sequences(captions)
        }  # fmt: skip
        if collection.gold and for_record:
            texts["gold"] = reader.graphs(collection.gold[name])
        if pieces:
            texts["graph, pieces"] = pieces.graphs(graphs)
            texts["sequence, pieces"] = pieces.sequences(captions)
        elif name == "test" and for_record:
            texts |= damaged(graphs, reader)
        return Split(features, collection.image_of(name), texts)

    test = collection.images["test"]
    family = FAMILY if isinstance(test, WorldImages) else 1
    queries = tuple(collection.captions("test")[:QUERIES])
    oracles = truth(test) if for_record else {}
    splits = {name: split(name) for name in SPLITS}
    return Arrays(splits, table, vocabulary.words, oracles, queries, source, family)


def damaged(graphs: Sequence[nx.MultiDiGraph], reader: Reader) -> dict[str, Texts]:
    """Graphs with simulated parse errors (Section 9): for "edge 10" every tenth is drawn for one.

    Kinds: a word dropped, an attribute moved, a relation moved, or one of them. A graph without
    room for its error stays as it is. The same captions are drawn for every kind.
    """
    graphs = list(graphs)  # unpacked once
    sets: dict[str, Texts] = {}
    for kind in ERRORS:
        for rate in RATES:
            spoil = partial(
                scenegraph.corrupt, kind=kind, rate=rate / 100, rng=np.random.default_rng([0, rate])
            )
            sets[f"{kind} {rate}"] = reader.graphs(map(spoil, graphs))
    return sets
