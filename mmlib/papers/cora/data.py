"""Captions, images and graphs of each tier, to look at and as arrays to train on."""

import hashlib
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from mmlib import scenegraph
from mmlib.core.errors import DataError, Problem
from mmlib.core.paths import cache_dir, data_dir
from mmlib.core.records import CaptionedImages
from mmlib.data import flickr8k, precomputed
from mmlib.features.bert import BertEncoder
from mmlib.features.text import (
    Vocabulary,
    embedding_matrix,
    tokenize,
    train_word2vec,
)
from mmlib.papers.cora.experiment import ERRORS, LONG, LONGER, RATES, WITH_BERT, budget, original
from mmlib.papers.cora.graphs import SPLITS, Arrays, Split, Texts
from mmlib.papers.cora.model import Settings
from mmlib.papers.cora.texts import DELIMITERS, PieceReader, Reader
from mmlib.world import BERT, WorldImages, captioned_images
from mmlib.world.graphs import CONCEPTS, CaptionGraph
from mmlib.world.logic import satisfies
from mmlib.world.schema import Scene
from mmlib.world.wording import gold_graph

WORLD_NOTE = """*What this world was built to contain.* The pictures are drawn by `mmlib.world` from
scenes whose content is known; a caption always says what is true of its scene, in the words of a
small grammar. Attributes, relations and who does what to whom are thus in the captions by
construction, and every caption has a gold graph to hold the parser against. The image features come
from a small network trained on other scenes of the same world, and so does the BERT of section 8.
What holds here shows how a method behaves where the truth is known, not how well it would do on
photographs."""

WORLD_IMAGES = {"train": 4000, "val": 200, "test": 600}
FAMILY = 4  # pictures that structure alone tells apart
DATASETS = {"world": ("world",), "flickr8k": ("flickr8k",), "paper": ("f30k", "coco")}
QUERIES = 60  # test captions that are timed


@dataclass(frozen=True, eq=False)
class Captions:
    """A collection: images with captions and graphs of the three splits, flat in file order.

    gold: the graphs that the captions were written from, in the picture world only.
    """

    images: Mapping[str, CaptionedImages]
    graphs: Mapping[str, Sequence[nx.MultiDiGraph]]
    gold: Mapping[str, list[nx.MultiDiGraph]] | None = None

    def captions(self, split: str) -> list[str]:
        """All captions of a split."""
        return [c for own in self.images[split].captions for c in own]

    def image_of(self, split: str) -> np.ndarray:
        """Row of the image of each caption."""
        counts = [len(own) for own in self.images[split].captions]
        return np.repeat(np.arange(len(counts)), counts)


Study = Mapping[str, Captions]


def load_documents(tier: str, datasets: Sequence[str] = (), seed: int = 0) -> Study:
    """The collections of a tier: all that are there, or those that are named.

    world: drawn here. flickr8k: its photographs' features. paper: `<MMLIB_DATA>/f30k` and `coco`
    in a layout of `mmlib.data.precomputed`, with the graphs of their `scene_graph` folder where
    there are any; the test images of MS-COCO are all 5,000 where "testall" is there.
    "flickr8k_bert" and so on are the same captions, to be read by a BERT too: the world's by its
    own, photographs' by the one in `<MMLIB_DATA>/bert`; they come by themselves where there is one.
    "flickr8k_long" comes with "flickr8k", for longer trainings.
    Raises ValueError for a tier or collection that is not there, DataError for missing data.
    """
    if tier not in DATASETS:
        raise ValueError(f"no tier {tier!r}: use {', '.join(DATASETS)}")
    plain = list(dict.fromkeys(map(original, datasets)))
    if unknown := [name for name in plain if name not in DATASETS[tier]]:
        raise ValueError(f"no captions {unknown[0]!r} here; there are {', '.join(DATASETS[tier])}")
    found = _load(tier, plain, seed)
    more = [f"{name}{LONGER}" for name in found if name in LONG]
    more += [f"{name}{WITH_BERT}" for name in found if _bert(tier).is_dir()]
    return {name: found[original(name)] for name in datasets or [*found, *more]}


def _bert(tier: str) -> Path:
    return BERT if tier == "world" else data_dir() / "bert"


def _load(tier: str, datasets: Sequence[str], seed: int) -> dict[str, Captions]:
    cores = os.cpu_count() or 1
    if tier == "world":
        drawn: dict[str, Any] = {
            split: captioned_images(split, count, seed, workers=cores, family=FAMILY)
            for split, count in WORLD_IMAGES.items()
        }
        gold = {s: [gold_graph(c) for own in drawn[s].gold for c in own] for s in SPLITS}
        return {"world": _parsed(Captions(drawn, {}, gold), cores)}
    if tier == "flickr8k":
        return {"flickr8k": _parsed(Captions({s: flickr8k.load(s) for s in SPLITS}, {}), cores)}
    return {name: _precomputed(path, cores) for name, path in _folders(datasets).items()}


def _folders(datasets: Sequence[str]) -> dict[str, Path]:
    """The folders of collections that are there; DataError for one that is named and is not."""
    found = {}
    for name in datasets or DATASETS["paper"]:
        try:
            found[name] = precomputed.find(name)
        except DataError:
            if datasets:
                raise
    return found or {"f30k": precomputed.find(*DATASETS["paper"])}  # which tells what is missing


def _precomputed(folder: Path, workers: int) -> Captions:
    whole = (folder / "testall_caps.txt").is_file()
    parts = {"train": "train", "val": "dev", "test": "testall" if whole else "test"}
    loaded = {split: precomputed.load(folder, part) for split, part in parts.items()}
    found = Captions({split: one.images for split, one in loaded.items()}, {})
    widths = {split: one.images.features.shape[-1] for split, one in loaded.items()}
    if other := [split for split, width in widths.items() if width != widths["train"]]:
        what = (
            f"features of {parts[other[0]]} are {widths[other[0]]} wide, of train {widths['train']}"
        )
        raise DataError(f"{folder}: {what} (get the features of one network)")
    brought = {split: one.graphs for split, one in loaded.items() if one.graphs}
    if len(brought) < len(loaded):
        return _parsed(found, workers)
    packed = {
        split: scenegraph.Graphs((one["caption"], scenegraph.pack(one)) for one in own.values())
        for split, own in brought.items()
    }
    return replace(found, graphs=packed)


def _parsed(found: Captions, workers: int) -> Captions:
    cache = cache_dir()
    folder = cache / "graphs" if cache else None
    parsed = {s: scenegraph.parse(found.captions(s), folder, workers) for s in SPLITS}
    return replace(found, graphs=parsed)


# --- Arrays ------------------------------------------------------------------------------------


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
        _read_glove(path, set(vocabulary.words))
        if path.exists()
        else train_word2vec(tokens, settings.word_width, seed=0, epochs=3)
    )
    table = embedding_matrix(vocabulary, settings.word_width, 0, vectors).numpy()
    # word2vec's vectors share a large part and are short: all phrases would look alike.
    return vocabulary, (table - table.mean(axis=0)) / table.std(axis=0, ddof=1)


def _read_glove(path: Path, words: Collection[str]) -> dict[str, np.ndarray]:
    """Vectors of `words` from a text file, with word2vec's header or, as GloVe's are, without."""
    from gensim.models import KeyedVectors  # imported late: not needed where there is none

    try:
        with path.open(encoding="utf-8") as file:
            bare = len(file.readline().split()) > 2
        table = KeyedVectors.load_word2vec_format(str(path), no_header=bare)
    except (ValueError, EOFError) as error:
        what = f"no table of word vectors as text: {error}"
        raise DataError(Problem(path, None, what, "unzip it, or get it again")) from None
    found = {word: table[word].copy() for word in words if word in table}
    if bad := sorted(word for word, vector in found.items() if not np.isfinite(vector).all()):
        what = f"the vector of {bad[0]!r} is not finite"
        raise DataError(Problem(path, None, what, "get it again"))
    return found


def prepare(
    found: Captions, settings: Settings, bert: Path | None = None, for_record: bool = True
) -> Arrays:
    """A collection as arrays. Only training captions and images choose words and scales.

    Features in memory are centred and divided by one deviation; those of a file stay as they are.
    bert: a BERT's folder, for texts in its word pieces, instead of those with parse errors.
    for_record: with what a single training does not read, gold graphs, texts with parse errors, and
    what is true. Raises DataError where the BERT cannot be read.
    """
    pieces, told = None, ("", "")
    if bert:
        pieces = PieceReader(tokenizer=BertEncoder.from_pretrained(bert, "frozen").tokenizer)
        told = str(bert), hashlib.sha256((bert / "model.safetensors").read_bytes()).hexdigest()
    vocabulary, table = word_vectors(found.captions("train"), settings)
    reader = Reader(vocabulary.words, settings.delimiters)
    train = found.images["train"].features
    mean, scale = np.float32(0), np.float32(1)
    if not isinstance(train, np.memmap):
        sample = np.asarray(train[:: max(1, len(train) // 2000)], dtype=np.float32)
        mean, scale = sample.mean(axis=(0, 1)), sample.std()

    def split(name: str) -> Split:
        features = found.images[name].features
        if not isinstance(features, np.memmap):
            features = ((features - mean) / scale).astype(np.float32)
        texts: dict[str, Texts] = {
            "graph": reader.graphs(found.graphs[name]),
            "sequence": reader.sequences(found.captions(name)),
        }
        if found.gold and for_record:
            texts["gold"] = reader.graphs(found.gold[name])
        if pieces:
            texts["graph, pieces"] = pieces.graphs(found.graphs[name])
            texts["sequence, pieces"] = pieces.sequences(found.captions(name))
        elif name == "test" and for_record:
            texts |= damaged(found.graphs[name], reader)
        return Split(features, found.image_of(name), texts)

    family = FAMILY if isinstance(found.images["test"], WorldImages) else 1
    queries = tuple(found.captions("test")[:QUERIES])
    splits = {name: split(name) for name in SPLITS}
    known = truth(found.images["test"]) if for_record else {}
    return Arrays(splits, table, vocabulary.words, known, queries, told, family)


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


def load_arrays(study: Study, tier: str) -> dict[str, Arrays]:
    """All collections as arrays, each prepared as its budget says."""
    return {
        name: prepare(found, budget(tier, name), _bert(tier) if name.endswith(WITH_BERT) else None)
        for name, found in study.items()
    }


# --- What is true ------------------------------------------------------------------------------


def truth(images: CaptionedImages) -> dict[str, np.ndarray]:
    """What oracles score, (images, captions): true captions first, those true of few images ahead.

    "graph": the whole caption is true of the scene; "entities": its things with their attributes
    are there, whatever their relations; "words": each word alone is true of something in it. What
    is alike comes in random order. Empty for pictures whose scenes are not known.
    """
    if not isinstance(images, WorldImages):
        return {}
    graphs = [caption.graph for own in images.gold for caption in own]
    bags = [_bag_of_caption(graph) for graph in graphs]
    words = np.array([[bag <= seen for bag in bags] for seen in map(_bag_of_scene, images.scenes)])
    things, whole = words.copy(), words.copy()
    for i, j in np.argwhere(words):
        alone = replace(graphs[j], edges=())
        things[i, j] = satisfies(images.scenes[i], alone)
        whole[i, j] = things[i, j] and satisfies(images.scenes[i], graphs[j])
    noise = np.random.default_rng(0).random(words.shape)
    known = {"words": words, "entities": things, "graph": whole}
    return {
        name: (holds * (1 - np.log(holds.mean(axis=0))) + 1e-3 * noise).astype(np.float32)
        for name, holds in known.items()
    }


def _bag_of_scene(scene: Scene) -> frozenset[object]:
    seen: set[object] = {("setting", scene.setting), ("style", scene.style)}
    seen |= {relation for _, relation, _ in scene.relations}
    for thing in scene.things:
        seen |= {("is", name) for name, kinds in CONCEPTS.items() if thing.kind in kinds}
        seen |= {(name, getattr(thing, name)) for name in ("colour", "size", "pattern", "action")}
    return frozenset(seen)


def _bag_of_caption(graph: CaptionGraph) -> frozenset[object]:
    said: set[object] = {edge.relation for edge in graph.edges}
    for node in graph.nodes:
        said |= {("is", node.concept), *node.facts}
    outside = {"setting": graph.setting, "style": graph.style}
    return frozenset(said | {(name, value) for name, value in outside.items() if value})
