"""Captions, images and graphs of each tier, to look at and as arrays to train on."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np

from mmlib import scenegraph
from mmlib.core.errors import DataError
from mmlib.core.files import file_hash
from mmlib.core.paths import data_dir, own_dataset
from mmlib.data import flickr8k, precomputed
from mmlib.data.word_vectors import read_word_vectors
from mmlib.features.bert import BertEncoder
from mmlib.features.store import open_features
from mmlib.features.text import Vocabulary, embedding_matrix, tokenize, train_word2vec
from mmlib.papers.cora.data import controlled, swaps, world
from mmlib.papers.cora.data.texts import DELIMITERS, Captions, PieceReader, Reader
from mmlib.papers.cora.run import systems
from mmlib.papers.cora.run.batches import Arrays, Split, Texts
from mmlib.papers.cora.run.systems import DATASETS, SPLITS, WITH_BERT, Settings, budget, original
from mmlib.world import BERT, WorldImages

Study = Mapping[str, Captions]
QUERIES = 60  # test captions that are timed
THINGS = "flickr8k/features/gridthings24_nanodet_mobilenetv1_pca192.npy"  # of `systems.REGIONS`


def load_study(tier: str, datasets: Sequence[str] = ()) -> Study:
    """The collections of a tier: all that are there, or those that are named.

    paper: `<MMLIB_DATA>/f30k` and `coco` in a layout of `mmlib.data.precomputed`, with the graphs
    of their `scene_graph` folder and all 5,000 test images ("testall") where these are there; or
    the folder of `core.paths.own_dataset` alone, called by its name.
    "flickr8k_bert" and so on are the same captions, to be read by a BERT too: the world's by its
    own, photographs' by the one in `<MMLIB_DATA>/bert`; they come by themselves where there is one,
    and with "flickr8k" its captions for other budgets, and with `THINGS` for regions, if it is
    there. Raises ValueError for a tier or collection
    that is not there, DataError for missing data and a folder that is named as a recorded one.
    """
    if tier not in DATASETS:
        raise ValueError(f"no tier {tier!r}: use {', '.join(DATASETS)}")
    plain = list(dict.fromkeys(map(original, datasets)))
    folder = own_dataset() if tier == "paper" else None
    present = (folder.name,) if folder else DATASETS[tier]
    if unknown := [name for name in plain if name not in present]:
        raise ValueError(f"no captions {unknown[0]!r} here; there are {', '.join(present)}")
    workers, study = os.cpu_count() or 1, {}
    if tier == systems.CONTROLLED_TIER:
        for name in plain or present:
            dials = controlled.RECORDED[name]
            if isinstance(dials, controlled.Dials):
                study[name] = controlled.load(dials)
            else:
                study[name] = world.load(0, workers, dials, world.DRAWN_IMAGES)
        return study
    if tier == "world":
        study = {n: world.load(0, workers, world.CLARITY[n]) for n in plain or present}
    elif tier == "flickr8k":
        images = {split: flickr8k.load(split) for split in SPLITS}
        study = {tier: Captions(images, {}).parsed(workers)}
    elif folder:
        folder = folder.resolve()
        taken = {name for names in DATASETS.values() for name in names}
        if folder.name in taken or folder.name != original(folder.name):
            others = ", ".join(sorted(taken - set(systems.CONTROLLED)))
            raise DataError(
                f"{folder}: rename the folder: {others} and names with "
                f"{' or '.join(systems.ENDINGS)} at their end are of other data here"
            )
        study = {folder.name: _read(folder, workers)}
    else:
        for name in plain or present:
            try:
                recorded = precomputed.find(name)
            except DataError:
                if plain:
                    raise
            else:
                study[name] = _read(recorded, workers)
        if not study:
            precomputed.find(*present)  # says what is missing
    names = [*study, *systems.retrained(study)]
    if _bert(tier).is_dir():
        names += [name + WITH_BERT for name in study if name != systems.CLEAR]
    if tier == "flickr8k" and (data_dir() / THINGS).is_file():
        names += [tier + ending for ending in systems.REGIONS]
    return {name: _with_regions(study[original(name)], name) for name in datasets or names}


def _with_regions(collection: Captions, name: str) -> Captions:
    regions = systems.REGIONS.get(name.removeprefix(original(name)))
    if regions is None:
        return collection
    store = open_features(data_dir() / THINGS)  # the set in use remains the one of "flickr8k"
    if store.array.shape[1:-1] != (24,):
        shape = store.array.shape
        raise DataError(f"{store.path}: {shape} is not (images, 24, width) (get the file again)")
    images = {
        split: replace(of_split, features=store.rows(of_split.ids)[:, regions])
        for split, of_split in collection.images.items()
    }
    # One collection alone trains with swaps, which take a minute to make.
    with_swaps = SPLITS[::2] if name.endswith(systems.THINGS) else SPLITS[2:]
    return replace(collection, images=images, with_swaps=with_swaps)


def _bert(tier: str) -> Path:
    return BERT if tier == "world" else data_dir() / "bert"


def read_splits(folder: Path) -> dict[str, precomputed.Precomputed]:
    """The splits of a folder in a layout of `precomputed`; DataError where they do not fit."""
    all_images = (folder / "testall_caps.txt").is_file()
    files = {"train": "train", "val": "dev", "test": "testall" if all_images else "test"}
    loaded = {split: precomputed.load(folder, file) for split, file in files.items()}
    widths = {files[split]: read.rows.shape[-1] for split, read in loaded.items()}
    if len(set(widths.values())) > 1:
        raise DataError(f"{folder}: widths are {widths} (get the features of one network)")
    [(image, n)] = Counter(i for read in loaded.values() for i in read.images.ids).most_common(1)
    if n > 1 and any(folder.glob("id_mapping*.json")):  # names; else ids may begin anew
        raise DataError(f"{folder}: {image} is in {n} splits (leave it in one)")
    return loaded


def _read(folder: Path, workers: int) -> Captions:
    loaded = read_splits(folder)
    collection = Captions({split: read.images for split, read in loaded.items()}, {})
    graphs = {
        split: scenegraph.Graphs(
            (entry["caption"], scenegraph.pack(entry)) for entry in read.graphs.values()
        )
        for split, read in loaded.items() if read.graphs
    }  # fmt: skip
    if len(graphs) < len(loaded):
        return collection.parsed(workers)
    return replace(collection, graphs=graphs)


def load_arrays(study: Study, tier: str) -> dict[str, Arrays]:
    """All collections as arrays, each prepared as its budget says."""
    return {
        name: controlled.arrays(collection)
        if isinstance(controlled.RECORDED.get(name), controlled.Dials)
        else prepare(
            collection, budget(tier, name), _bert(tier) if name.endswith(WITH_BERT) else None
        )
        for name, collection in study.items()
    }


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
    splits, plausible = dict[str, Split](), None
    for name in SPLITS:
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
            # Parse errors (Section 9): for "edge 10" every tenth caption is drawn for one, of every
            # kind the same. A graph without room for its error stays as it is.
            graphs = list(graphs)  # unpacked once
            for kind, rate in product(systems.ERRORS, systems.RATES):
                rng = np.random.default_rng([0, rate])
                corrupt = partial(scenegraph.corrupt, kind=kind, rate=rate / 100, rng=rng)
                texts[f"{kind} {rate}"] = reader.graphs(map(corrupt, graphs))
        swapped = dict[str, np.ndarray]()
        if name in collection.with_swaps:
            if name == "test":
                found = swaps.with_plausible(captions, graphs, collection.captions("train"))
                exchanged, graphs, swapped, plausible = found
            else:
                exchanged, graphs, swapped = swaps.swap_all(graphs)
            texts["sequence, swapped"] = reader.sequences(exchanged)
            texts["graph, swapped"] = reader.graphs(graphs)
        splits[name] = Split(features, collection.image_of(name), texts, swapped)
    test = collection.images["test"]
    family = world.FAMILY if isinstance(test, WorldImages) else 1
    queries = tuple(collection.captions("test")[:QUERIES])
    truth, bag = (world.truth(test), world.ideal_bag(test)) if for_record else ({}, None)
    return Arrays(splits, table, vocabulary.words, truth, queries, source, family, bag, plausible)


def word_vectors(captions: Sequence[str], settings: Settings) -> tuple[Vocabulary, np.ndarray]:
    """The vocabulary, and word vectors (vocabulary, word_width) that all systems start from.

    Read from `<MMLIB_DATA>/glove/glove.6B.<word_width>d.txt` where that file is there, else
    word2vec trained on the training captions.
    """
    tokens = [tokenize(caption) for caption in captions]
    words = Vocabulary.from_sentences(tokens, min_count=2).words
    vocabulary = Vocabulary((*words[:2], *DELIMITERS, *words[2:]))
    path = data_dir() / "glove" / f"glove.6B.{settings.word_width}d.txt"
    if path.exists():
        vectors = read_word_vectors(path, set(vocabulary.words))
    else:
        vectors = train_word2vec(tokens, settings.word_width, seed=0, epochs=3)
    table = embedding_matrix(vocabulary, settings.word_width, 0, vectors).numpy()
    # word2vec's vectors share a large component and are short: all phrases would look alike.
    return vocabulary, (table - table.mean(axis=0)) / table.std(axis=0, ddof=1)
