"""Notebook 03's experiment: captions and their graphs of each tier, budgets, the grid of trainings,
and what is measured on them.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import torch
from torch import Tensor

from mmlib import cora, scenegraph, training
from mmlib.cora import Encoded, GraphSet, SequenceSet, Settings, Split
from mmlib.core.files import file_fingerprint
from mmlib.core.intervals import Estimate, crossed_interval
from mmlib.core.paths import data_dir, write_atomic
from mmlib.core.ranking import best_ranks, metrics, ranks_of_scores
from mmlib.core.records import CaptionedImages
from mmlib.core.tables import Result, paper_tables
from mmlib.core.tables import beside as side_by_side
from mmlib.features.text import (
    Vocabulary,
    embedding_matrix,
    read_word_vectors,
    tokenize,
    train_word2vec,
)
from mmlib.training import job_path, seed_everything, settings_hash

KS = (1, 5, 10)
SPLITS = ("train", "val", "test")
DELIMITERS = ("[CLS]", "[SEP]", "[MASK]")

# One budget for all systems of a tier. The paper trains for 57,000 steps on 145,000 captions, the
# first three of these for 240 to 1,100 on one caption of each image, and what suits the one does
# not suit the other. Measured by dev RSUM, one seed each:
# - Temperature 0.01, L_CON weighing 0.25, delimiters around phrases: all captions first fall
#   together, and so short a training ends there (world, CORA on gold graphs: 16; with temperature
#   0.1, weight 1 and no delimiters 200).
# - Dropout in the text and its augmentation cost more than they bring (Flickr8k, CORA after 15
#   epochs: 127 with, 142 without); temperature 0.05 beats 0.1 (24 epochs: 174 against 164).
# - In the world, batches of 64, which make twice as many steps, beat 128 (CORA, 12 epochs: 255
#   against 220, mean of two seeds).
# - With the hardest negative, the triplet alone falls apart, and the later it sets in the less
#   (world, VSE∞ at its end: 116 when from epoch 7 of 12, 178 from epoch 10, 198 never). VSE∞'s code
#   averages negatives in its first 1,133 steps. Here it sets in where the learning rate falls.
_SHORT = replace(
    cora.PRESETS["paper"],
    captions=1,
    region_dropout=0.2,
    graph_dropout=0.0,
    message_dropout=0.0,
    drop_objects=0.0,
    drop_attributes=0.0,
    drop_relations=0.0,
    mask=0.0,
    drop_rate_after=0.7,
    heads=8,
    temperature=0.05,
    con=1.0,
    delimiters=False,
    word_rate=1.0,
)
BUDGETS = {
    "world": replace(
        _SHORT, width=64, word_width=64, epochs=10, warm_up=7, batch=64, learning_rate=3e-3
    ),
    "flickr8k": replace(
        _SHORT, width=192, word_width=128, epochs=24, warm_up=17, learning_rate=1.5e-3
    ),
    "flickr8k quick": replace(
        _SHORT, width=96, word_width=96, epochs=8, warm_up=6, learning_rate=2e-3
    ),
    "paper": cora.PRESETS["paper"],
}

QUICK = ("CORA", "VSE∞", "Sequence, CORA's rest", "HARD + CON", "Joint", "Two-step + FC")

NOT_IN_THE_WORLD = (
    *(f"({a}, {o}) layers" for a, o in ((1, 3), (2, 1), (2, 2), (2, 3))),
    "CORA as in the authors' code",
)

# Our names of printed rows.
OUR_NAMES = {
    "Ours (CORA, single model)": "CORA",
    "Obj-Att & Obj-Obj (2-step), parsed graph": "CORA",
    "Ours (CORA, ensemble of two seeds)": "CORA, ensemble of two",
    "VSE": "VSE∞",
    "L_HARD only": "HARD",
    "L_CON only": "CON",
    "L_HARD + L_CON": "HARD + CON",
    "Joint, parsed graph": "Joint",
    "Obj-Att & Obj-Obj (2-step) + FC": "Two-step + FC",
    **{f"n_obj_att={a}, n_obj_obj={o}": f"({a}, {o}) layers" for a in (1, 2) for o in (1, 2, 3)},
}

# What stands in which printed table: its title, our rows, and printed rows that are ours as well.
_PAIR = "CORA, ensemble of two"
TABLES: dict[str, tuple[str, tuple[str, ...], dict[str, str]]] = {
    "table1": (
        "Table 1: other systems (the paper's figures are of Flickr30K)",
        ("CORA", _PAIR, "VSE∞", "Sequence, CORA's rest", "CORA as in the authors' code",
         "CORA, gold graphs", "CORA, frozen BERT", "Sequence, frozen BERT", "Random"),
        {},
    ),
    "table3": (
        "Table 3: depth, structure, losses",
        ("CORA", *(n for n in cora.SYSTEMS if n.endswith("layers")), "Joint", "Joint + FC",
         "Two-step + FC", "Two-step, caption losses", "HARD", "CON", "HARD + CON"),
        {"(1, 2) layers": "CORA", "L_HARD + L_CON + L_SPEC": "CORA"},
    ),
    "table4": (
        "Table 4: reranking (the paper's figures are of MS-COCO 5K)",
        ("CORA", "CORA, reranked"),
        {"CORA (Bi-GRU)": _PAIR, "CORA + reranking (Bi-GRU)": f"{_PAIR}, reranked"},
    ),
}  # fmt: skip

WORLD_NOTE = """*What this world was built to contain.* The pictures are drawn by `mmlib.world` from
scenes whose content is known; a caption always says what is true of its scene, in the words of a
small grammar. Attributes, relations and who does what to whom are thus in the captions by
construction, and every caption has a gold graph to hold the parser against. The image features come
from a small network trained on other scenes of the same world. What holds here shows how a method
behaves where the truth is known, not how well it would do on photographs."""


def budget(tier: str, preset: str = "", **changes: object) -> Settings:
    """The settings of a tier (and preset "quick"), with changes by name; None and 0 change nothing.

    Raises ValueError for an unknown tier or preset.
    """
    return training.choose_budget(BUDGETS, tier, preset, changes)


# --- Data ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Study:
    """Images with captions and parsed graphs of the three splits, captions flat in file order.

    gold: the graphs that the captions were written from, in the picture world only.
    """

    tier: str
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


WORLD_IMAGES = {"train": 1500, "val": 200, "test": 400}


def load(tier: str, cache: Path | None = None, seed: int = 0, workers: int = 0) -> Study:
    """Images, captions and graphs of a tier.

    world: drawn here. flickr8k: its photographs' features. paper: `<MMLIB_DATA>/f30k` or `coco` in
    the authors' layout (`mmlib.data.precomputed`), with the graphs of its `scene_graph` folder
    where there are any. cache: file of the parser's graphs. workers: of drawing and parsing; 0: one
    a core.
    """
    cores = workers or os.cpu_count() or 1
    if tier == "world":
        from mmlib import world
        from mmlib.world.wording import gold_graph

        images: dict[str, Any] = {
            split: world.captioned_images(split, n, seed, workers=cores)
            for split, n in WORLD_IMAGES.items()
        }
        gold = {
            split: [gold_graph(c) for own in images[split].gold for c in own] for split in SPLITS
        }
        return _parsed(Study(tier, images, {}, gold), cache, cores)
    if tier == "flickr8k":
        from mmlib.data import flickr8k

        return _parsed(Study(tier, {s: flickr8k.load(s) for s in SPLITS}, {}), cache, cores)
    if tier == "paper":
        from mmlib.data import precomputed

        folder = precomputed.find("f30k", "coco")
        parts = {"train": "train", "val": "dev", "test": "test"}
        loaded = {s: precomputed.load(folder, part) for s, part in parts.items()}
        study = Study(tier, {s: one.images for s, one in loaded.items()}, {})
        brought = {s: one.graphs for s, one in loaded.items() if one.graphs}
        if len(brought) == len(loaded):
            graphs = {
                s: scenegraph.Graphs((one["caption"], scenegraph.pack(one)) for one in own.values())
                for s, own in brought.items()
            }
            return replace(study, graphs=graphs)
        return _parsed(study, cache, cores)
    raise ValueError(f"no tier {tier!r}: use world, flickr8k or paper")


def _parsed(study: Study, cache: Path | None, workers: int) -> Study:
    graphs = {s: scenegraph.parse(study.captions(s), None, cache, workers) for s in SPLITS}
    return replace(study, graphs=graphs)


@dataclass(frozen=True, eq=False)
class Arrays:
    """What trainings read: splits, initial word embeddings, vectors of a frozen BERT."""

    splits: Mapping[str, Split]
    embeddings: Tensor | None = None
    vectors: Tensor | None = None

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all of it; of features in a file see `file_fingerprint`."""
        digest = hashlib.sha256()
        for tensor in (self.embeddings, self.vectors):
            digest.update(b"" if tensor is None else tensor.numpy().tobytes())
        for split in self.splits.values():
            if isinstance(split.features, np.memmap):
                digest.update(file_fingerprint(split.features).encode())
            else:
                digest.update(np.ascontiguousarray(split.features[::7]).tobytes())
            digest.update(split.image_of.tobytes())
            for value in vars(split.texts).values():
                digest.update(
                    value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode()
                )
        return digest.hexdigest()[:16]


class Preprocessor:
    """Turns a study into arrays for each kind of text encoder; what they share is made once.

    settings: a budget. bert: a local folder or hub name of a BERT, or "" for none. seed: of the
    word vectors, which are trained on the training captions (word2vec), or read from
    `<MMLIB_DATA>/glove/glove.6B.<word_width>d.txt` where that file is there. device: of the BERT.
    """

    def __init__(
        self, study: Study, settings: Settings, bert: str = "", seed: int = 0, device: str = "cpu"
    ):
        self.study, self.settings = study, settings
        train = study.images["train"].features
        if not isinstance(train, np.memmap):  # features of a file are taken as they are
            sample = np.asarray(train[:: max(1, len(train) // 2000)], dtype=np.float32)
            self.mean, self.scale = sample.mean(axis=(0, 1)), sample.std()
        tokens = [tokenize(c) for c in study.captions("train")]
        words = Vocabulary.from_sentences(tokens, min_count=2).words
        self.vocabulary = Vocabulary((*words[:2], *DELIMITERS, *words[2:]))
        self.mask_id = self.vocabulary.words.index("[MASK]")
        path = data_dir() / "glove" / f"glove.6B.{settings.word_width}d.txt"
        vectors = (
            read_word_vectors(path, set(self.vocabulary.words))
            if path.exists()
            else train_word2vec(tokens, settings.word_width, seed, epochs=3)
        )
        table = embedding_matrix(self.vocabulary, settings.word_width, seed, vectors)
        # word2vec's vectors share a large part and are short: all phrases would look alike.
        self.embeddings = (table - table.mean(dim=0)) / table.std(dim=0)
        self.bert, self.device = bert, device
        self._made: dict[str, Arrays] = {}

    def tokens(self, phrases: Sequence[str], most: int = 40) -> tuple[Tensor, Tensor]:
        """Phrases as word ids: (phrases, L), lengths (phrases,)."""
        inner = [tokenize(phrase)[:most] or ["<unk>"] for phrase in phrases]
        if self.settings.delimiters:
            inner = [["[CLS]", *words, "[SEP]"] for words in inner]
        return self.vocabulary.encode(inner, most + 2)

    def split(self, name: str, texts: Callable[[np.ndarray], Any], every: bool = False) -> Split:
        """One split. Of dev images only the first caption counts, which is enough to choose an
        epoch by, unless `every` caption is wanted.
        """
        image_of = self.study.image_of(name)
        rows = np.arange(len(image_of))
        if name == "val" and not every:
            rows = np.unique(image_of, return_index=True)[1]
        features = self.study.images[name].features
        if not isinstance(features, np.memmap):
            features = ((features - self.mean) / self.scale).astype(np.float32)
        return Split(features, image_of[rows], texts(rows))

    def graphs(self, gold: bool = False) -> Arrays:
        """Scene graphs as word ids; `gold`: those that the world's captions were written from."""
        source = self.study.gold if gold else self.study.graphs
        if source is None:
            raise ValueError("only the picture world has gold graphs")
        return self._graph_arrays(source, self.graph_set, self.embeddings)

    def _graph_arrays(
        self,
        source: Mapping[str, Sequence[nx.MultiDiGraph]],
        make: Callable[[Iterable[nx.MultiDiGraph]], GraphSet],
        embeddings: Tensor | None = None,
    ) -> Arrays:
        def texts(name: str, rows: np.ndarray) -> GraphSet:
            return make(source[name][i] for i in rows)  # not all graphs at once

        return Arrays({s: self.split(s, partial(texts, s)) for s in SPLITS}, embeddings)

    def full_dev(self) -> Split:
        """All captions of the dev images as parsed graphs.

        Eq. 14's β must be chosen under the conditions of the test: chosen on first captions alone,
        it came out too small (0.80 to 0.90 where 0.90 to 0.95 was best) and reranking harmed.
        """
        graphs = self.study.graphs["val"]
        return self.split("val", lambda rows: self.graph_set(graphs[i] for i in rows), every=True)

    def graph_set(self, graphs: Iterable[nx.MultiDiGraph]) -> GraphSet:
        """Graphs as word ids."""
        return GraphSet(graphs, self.tokens, self.mask_id)

    def sequences(self) -> Arrays:
        """Captions as word ids."""

        def texts(name: str, rows: np.ndarray) -> SequenceSet:
            captions = self.study.captions(name)
            ids, lengths = self.tokens([captions[i] for i in rows])
            return SequenceSet(ids.numpy(), lengths.numpy(), self.mask_id)

        return Arrays({s: self.split(s, partial(texts, s)) for s in SPLITS}, self.embeddings)

    def bert_graphs(self) -> Arrays:
        """Scene graphs whose phrases are vectors of a frozen BERT."""
        number: dict[str, int] = {}

        def tokens(phrases: Sequence[str]) -> tuple[Tensor, Tensor]:
            ids = [[number.setdefault(p, len(number))] for p in phrases]
            return torch.tensor(ids), torch.ones(len(ids), dtype=torch.int64)

        arrays = self._graph_arrays(self.study.graphs, lambda graphs: GraphSet(graphs, tokens))
        vectors = self._frozen().embed_all(list(number))
        return replace(arrays, vectors=torch.as_tensor(vectors))

    def bert_sequences(self) -> Arrays:
        """Captions as the last hidden states of a frozen BERT."""
        encoder = self._frozen()

        def texts(name: str, rows: np.ndarray) -> SequenceSet:
            captions = self.study.captions(name)
            states, lengths = encoder.token_states_all([captions[i] for i in rows], max_tokens=24)
            return SequenceSet(np.asarray(states), np.asarray(lengths))

        splits = {s: self.split(s, partial(texts, s)) for s in SPLITS}
        width = splits["test"].texts.tokens.shape[-1]  # type: ignore[union-attr]
        return Arrays(splits, vectors=torch.zeros(1, width))

    def _frozen(self) -> Any:
        from mmlib.features.bert import BertEncoder

        return BertEncoder.from_pretrained(self.bert, tuning="frozen").to(self.device)

    def arrays(self, system: str) -> Arrays:
        """The arrays that a system of `cora.SYSTEMS`, or "CORA, gold graphs", reads; cached."""
        kind = kind_of(system)
        if kind not in self._made:
            makers: dict[str, Callable[[], Arrays]] = {
                "graphs": self.graphs,
                "gold": partial(self.graphs, gold=True),
                "sequences": self.sequences,
                "bert graphs": self.bert_graphs,
                "bert sequences": self.bert_sequences,
            }
            self._made[kind] = makers[kind]()
        return self._made[kind]


GOLD = "CORA, gold graphs"


def kind_of(system: str) -> str:
    """What a system reads: "graphs", "gold", "sequences", "bert graphs" or "bert sequences"."""
    if system == GOLD:
        return "gold"
    s = cora.settings_of(system)
    return ("bert " if s.phrases == "vectors" else "") + (
        "graphs" if s.text == "graph" else "sequences"
    )


def systems_of(study: Study, preset: str = "", bert: str = "") -> list[str]:
    """The systems that a tier trains: all or the quick preset's; BERT's where there is one."""
    if preset == "quick":
        return list(QUICK)
    names = [s for s in cora.SYSTEMS if bert or "BERT" not in s]
    if study.tier == "world":  # five minutes hold no more
        names = [s for s in names if s not in NOT_IN_THE_WORLD]
    return names + ([GOLD] if study.gold else [])


# --- Trainings -----------------------------------------------------------------------------------

ERRORS = ("tokens", "attribute", "edge", "mixed")  # kinds of simulated parse errors
RATES = (10, 20, 30)  # percent of the captions
BETAS = np.linspace(0, 1, 21)


def training_jobs(
    preprocessor: Preprocessor,
    systems: Sequence[str],
    seeds: Sequence[int],
    device: str,
    examples: Sequence[int] = (),
) -> list[tuple[dict, dict]]:
    """Jobs for `training.run_jobs`, one a system and seed. CORA's carry the analyses' data.

    examples: test captions whose attention weights and best images CORA's answers keep.
    """  # fmt: skip
    jobs = []
    analysed: dict[str, Any] = {}
    if "CORA" in systems:
        analysed = {
            "dev": preprocessor.full_dev(), "damaged": corrupted(preprocessor),
            "examples": list(examples),
        }  # fmt: skip
    for system in systems:
        arrays = preprocessor.arrays(system)
        base = "CORA" if system == GOLD else system
        settings = asdict(cora.settings_of(base, preprocessor.settings))
        more = analysed if system == "CORA" else {}
        for seed in seeds:
            job = {
                "system": system, "settings": settings, "seed": seed,
                "tier": preprocessor.study.tier,
                "data": arrays.fingerprint, "analysed": system == "CORA",
            }  # fmt: skip
            jobs.append((job, {"arrays": arrays, "device": device, **more}))
    return jobs


def corrupted(preprocessor: Preprocessor, seed: int = 0) -> dict[str, GraphSet]:
    """Test graphs with simulated parse errors (Sec. 9): for "attribute 10" every tenth caption is
    drawn for an error. Kinds: a word dropped, an attribute moved, a relation moved, or one of them.
    A graph without room for its error stays as it is (see `room_for_errors`).
    """
    graphs = list(preprocessor.study.graphs["test"])  # each is read many times
    sets = {}
    for kind in ERRORS:
        for rate in RATES:
            rng = np.random.default_rng([seed, rate])  # the same captions for every kind
            changed = [scenegraph.corrupt(graph, kind, rate / 100, rng) for graph in graphs]
            sets[f"{kind} {rate}"] = preprocessor.graph_set(changed)
    return sets


def room_for_errors(graphs: Sequence[nx.MultiDiGraph]) -> dict[str, float]:
    """Share of the graphs in which there is something to drop or move, by kind."""
    rng = np.random.default_rng(0)
    return {
        kind: float(
            np.mean([bool(scenegraph.corrupt(g, kind, 1, rng).graph["error"]) for g in graphs])
        )
        for kind in ERRORS
    }


def train_system(
    system: str,
    settings: Mapping[str, Any],
    seed: int,
    tier: str,
    data: str,
    analysed: bool,
    arrays: Arrays,
    device: str,
    checkpoint: Path | None = None,
    dev: Split | None = None,
    damaged: Mapping[str, GraphSet] | None = None,
    examples: Sequence[int] = (),
) -> dict[str, Any]:
    """Train one system and rank the test set: the work of one job.

    The answer holds "image_ranks" (images,) and "caption_ranks" (captions,), the rank of the best
    own caption and of the own image; "history"; "seconds". With `analysed` also "variants" (the
    same under reranking and parse errors), "beta", "entities" and "examples"; similarities go
    beside the checkpoint for `ensemble_pair`.
    """  # fmt: skip
    started = time.perf_counter()
    chosen = Settings(**settings)
    seed_everything(seed)
    model = cora.build(
        chosen, arrays.splits["train"].features.shape[2],
        embeddings=arrays.embeddings, vectors=arrays.vectors,
    )  # fmt: skip
    history = cora.train(model, arrays.splits, seed, device, checkpoint)
    test = arrays.splits["test"]
    seen = cora.encode(model, test, device)
    answer: dict[str, Any] = {
        **ranks_record(seen.images @ seen.captions.T, seen.image_of),
        "history": history,
        "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "seconds": time.perf_counter() - started,
    }
    if analysed:
        assert dev is not None
        answer |= _analyse(model, arrays, seen, device, dev, damaged or {}, examples, checkpoint)
    return answer


def ranks_record(scores: np.ndarray, image_of: np.ndarray) -> dict[str, list[int]]:
    """Ranks of a similarity matrix (images, captions) as plain lists."""
    ranks = ranks_of_scores(scores, image_of)
    return {
        "image_ranks": [int(r) for r in ranks.image_ranks],
        "caption_ranks": [int(r) for r in ranks.caption_ranks],
    }


def _analyse(
    model: cora.Matcher, arrays: Arrays, seen: Encoded, device: str, dev_split: Split,
    damaged: Mapping[str, GraphSet], examples: Sequence[int], checkpoint: Path | None,
) -> dict[str, Any]:  # fmt: skip
    test, dev = arrays.splits["test"], cora.encode(model, dev_split, device)
    sides = {}
    for name, one in (("dev", dev), ("test", seen)):
        sides[name] = one.images @ one.captions.T, cora.weakest_entity(one)
    if checkpoint:
        both = {f"{name}_{i}": m for name, p in sides.items() for i, m in enumerate(p)}
        write_atomic(similarities_path(checkpoint), partial(_save_halved, both))
    beta = best_beta(*sides["dev"], dev.image_of)
    variants = {
        "CORA, reranked": ranks_record(cora.mix(*sides["test"], beta), seen.image_of),
    }
    for name, graphs in damaged.items():
        hurt = cora.encode(model, replace(test, texts=graphs), device)
        variants[f"CORA, errors: {name} %"] = ranks_record(
            hurt.images @ hurt.captions.T, seen.image_of
        )
    assert isinstance(test.texts, GraphSet)
    return {
        "variants": variants,
        "beta": beta,
        "entities": entity_retrieval(seen, test.texts),
        "examples": [_example(model, test, seen, row, device) for row in examples],
    }


def similarities_path(checkpoint: Path) -> Path:
    """Where a training leaves its similarities for ensembles."""
    return checkpoint.with_suffix(".npz")


def _save_halved(arrays: Mapping[str, np.ndarray], path: Path) -> None:
    halved: dict[str, Any] = {name: one.astype(np.float16) for name, one in arrays.items()}
    with path.open("wb") as file:
        np.savez(file, **halved)


def best_beta(similarity: np.ndarray, weakest: np.ndarray, image_of: np.ndarray) -> float:
    """β of eq. 14 with the highest RSUM, of 0, 0.05, ..., 1; the larger one where tied."""
    rsum = [
        metrics(ranks_of_scores(cora.mix(similarity, weakest, b), image_of))["rsum"] for b in BETAS
    ]
    return float(BETAS[len(BETAS) - 1 - int(np.argmax(rsum[::-1]))])


def ensemble_jobs(
    jobs: Sequence[tuple[dict, dict]], folder: Path, preprocessor: Preprocessor
) -> list[tuple[dict, dict]]:
    """Jobs that average the similarities of CORA's trainings two by two, each seed with the next.

    jobs: finished ones of `training_jobs`, whose answers lie in `folder`. One seed gives no pair,
    two give one, and n give n, in which each seed stands twice.
    """
    own = [job for job, _ in jobs if job["system"] == "CORA"]
    image_of = {name: preprocessor.study.image_of(name) for name in ("val", "test")}
    pairs = []
    for i in range(len(own) if len(own) > 2 else len(own) - 1):
        both = own[i], own[(i + 1) % len(own)]
        job = {
            "system": "CORA, ensemble of two", "seeds": [one["seed"] for one in both],
            "data": both[0]["data"], "trained": settings_hash(both[0]["settings"]),
        }  # fmt: skip
        files = [similarities_path(job_path(folder, one)) for one in both]
        pairs.append((job, {"files": files, "image_of": image_of}))
    return pairs


def ensemble_pair(
    system: str,
    seeds: Sequence[int],
    data: str,
    trained: str,
    files: Sequence[Path],
    image_of: Mapping,
    checkpoint: Path | None = None,
) -> dict[str, Any]:
    """Average the similarities of two trainings, then rank, plainly and reranked (Table 4).

    trained: a hash of the trainings' settings. files: their similarities.
    """
    loaded = [np.load(file, allow_pickle=False) for file in files]
    mean = {
        key: np.mean([one[key].astype(np.float32) for one in loaded], axis=0)
        for key in loaded[0].files
    }
    beta = best_beta(mean["dev_0"], mean["dev_1"], image_of["val"])
    return {
        **ranks_record(mean["test_0"], image_of["test"]),
        "variants": {
            f"{system}, reranked": ranks_record(
                cora.mix(mean["test_0"], mean["test_1"], beta), image_of["test"]
            )
        },
        "beta": beta,
    }


def entity_retrieval(
    seen: Encoded, graphs: GraphSet, shown: int = 6, top: int = 5
) -> dict[str, Any]:
    """Image-to-entity retrieval: all different (name, attributes) of the test captions are ranked.

    An entity is relevant to an image when one of the image's own captions has it; the paper judged
    a few by eye. Returns the "ranks" (images,) of the best relevant entity, the same under a
    ranking by "frequency", the "pool" size, and the `top` entities of the first images with whether
    they are relevant.
    """
    caption, name, described = graphs.entities(np.arange(len(graphs)))
    keys = np.column_stack([name, np.sort(described, axis=1)])
    _, first, which, count = np.unique(
        keys, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    which = which.reshape(-1)
    relevant = np.zeros((len(seen.images), len(first)), dtype=bool)
    relevant[seen.image_of[caption], which] = True
    assert seen.entities is not None
    scores = seen.images @ seen.entities[first].T
    own = [np.flatnonzero(row).tolist() for row in relevant]
    answer: dict[str, Any] = {"pool": len(first)}
    for label, s in (
        ("ranks", scores),
        ("frequency", np.tile(count.astype(float), (len(scores), 1))),
    ):
        answer[label] = [int(r) for r in best_ranks(s, own)]
    order = np.argsort(-scores[:shown], axis=1, kind="stable")[:, :top]
    answer["top"] = [
        [
            {"entity": _entity_words(graphs, first[j]), "right": bool(relevant[i, j])}
            for j in row
        ]
        for i, row in enumerate(order)
    ]  # fmt: skip
    return answer


def _entity_words(graphs: GraphSet, entity: int) -> str:
    row = int(np.searchsorted(graphs.starts["objects"], entity, side="right")) - 1
    local = entity - graphs.starts["objects"][row]
    a = slice(graphs.starts["attributes"][row], graphs.starts["attributes"][row + 1])
    said = graphs.attributes[a][graphs.owner[a] == local]
    return " ".join([*(graphs.phrases[i] for i in said), graphs.phrases[graphs.objects[entity]]])


def _example(
    model: cora.Matcher, test: Split, seen: Encoded, row: int, device: str, top: int = 5
) -> dict[str, Any]:
    """One test caption's attention weights and its five best images."""
    scores = seen.images @ seen.captions[row]
    text = test.texts.batch(np.array([row])).to(device)
    assert isinstance(text, cora.GraphBatch)
    return {
        "caption": int(row),
        "best": [int(i) for i in np.argsort(-scores, kind="stable")[:top]],
        "attention": {
            name: [list(edge) for edge in edges]
            for name, edges in cora.attention(model, text).items()
        },
    }


def read_answers(path: Path, settings: Settings) -> tuple[list[tuple[dict, dict]], list[dict]]:
    """Stored jobs and answers whose CORA had these settings; see `training.read_answers`."""
    return training.read_answers(path, "CORA", asdict(cora.settings_of("CORA", settings)))


# --- Scores and effects --------------------------------------------------------------------------

Scores = dict[str, dict[str, np.ndarray]]


def collect(jobs: Sequence[tuple[dict, dict]], answers: Sequence[dict]) -> Scores:
    """Ranks by system: {"image": (seeds, images), "caption": (seeds, captions)}."""
    rows: dict[str, list[dict]] = {}
    for (job, _), answer in zip(jobs, answers, strict=True):
        rows.setdefault(job["system"], []).append(answer)
        for name, variant in answer.get("variants", {}).items():
            rows.setdefault(name, []).append(variant)
    return {
        name: {side: np.array([a[f"{side}_ranks"] for a in each]) for side in ("image", "caption")}
        for name, each in rows.items()
    }


def add_random(scores: Scores, images: int, image_of: np.ndarray, seeds: Sequence[int]) -> None:
    """Add the system "Random" to the scores: similarities drawn at random."""
    runs = [
        ranks_record(np.random.default_rng([7, s]).random((images, len(image_of))), image_of)
        for s in seeds
    ]
    scores["Random"] = {
        side: np.array([run[f"{side}_ranks"] for run in runs]) for side in ("image", "caption")
    }


def recalls(ranks: Mapping[str, np.ndarray]) -> list[dict[str, float]]:
    """Recalls, RSUM and median ranks of each seed, in percent."""
    rows = []
    for image, caption in zip(ranks["image"], ranks["caption"], strict=True):
        row = {f"i2t_r{k}": 100 * float((image <= k).mean()) for k in KS}
        row |= {f"t2i_r{k}": 100 * float((caption <= k).mean()) for k in KS}
        rows.append(
            {**row, "rsum": sum(row.values()), "i2t_medr": float(np.median(image)),
             "t2i_medr": float(np.median(caption))}
        )  # fmt: skip
    return rows


def results(scores: Scores, tier: str, settings: Settings, seeds: Sequence[int]) -> list[Result]:
    """One `Result` a system, metric and seed."""
    used = settings_hash(asdict(settings))
    return [
        Result(system, tier, "test", metric, value, seed, used)
        for system, ranks in scores.items()
        for seed, row in zip(seeds, recalls(ranks), strict=False)
        for metric, value in row.items()
    ]


def items(scores: Scores, system: str, image_of: np.ndarray) -> np.ndarray:
    """What each test image adds to RSUM, (seeds, images): their mean is the RSUM.

    Its own recalls at 1, 5 and 10, and the mean of its captions'.
    """
    ranks = scores[system]
    image = np.sum([ranks["image"] <= k for k in KS], axis=0)
    count = np.bincount(image_of)
    of_captions = [np.bincount(image_of, weights=row) for row in _caption_hits(scores, system)]
    # The recall of captions is a mean over captions: images with many count more.
    return 100 * (image + np.array(of_captions) / count.mean())


def interval_of(scores: Scores, system: str, image_of: np.ndarray) -> Estimate:
    """RSUM of a system with its interval over seeds and test images."""
    values = items(scores, system, image_of)
    return crossed_interval(values, np.arange(values.shape[1]))


def contrast(scores: Scores, weights: Mapping[str, float], image_of: np.ndarray) -> Estimate:
    """A weighted sum of the RSUM of some systems, paired by seed and test image."""
    parts = {name: items(scores, name, image_of) for name in weights}
    n = min(len(part) for part in parts.values())
    total = np.sum([weight * parts[name][:n] for name, weight in weights.items()], axis=0)
    return crossed_interval(total, np.arange(total.shape[1]))


def difference(scores: Scores, better: str, worse: str, image_of: np.ndarray) -> Estimate:
    """RSUM of one system minus that of another, paired by seed and test image."""
    return contrast(scores, {better: 1, worse: -1}, image_of)


def ensemble_gain(scores: Scores, image_of: np.ndarray) -> Estimate:
    """RSUM of the ensembles of two minus the mean of their members (see `ensemble_jobs`)."""
    both, single = (items(scores, name, image_of) for name in ("CORA, ensemble of two", "CORA"))
    members = (single + np.roll(single, -1, axis=0)) / 2
    return crossed_interval(both - members[: len(both)], np.arange(both.shape[1]))


def richest(graphs: Sequence[nx.MultiDiGraph], count: int) -> np.ndarray:
    """The captions with the most attributes and relations, ties by number (Sec. 9)."""
    said = [sum(len(scenegraph.attributes(g, i)) for i in scenegraph.objects(g)) for g in graphs]
    richness = np.array(said) + [len(scenegraph.relations(g)) for g in graphs]
    return np.argsort(-richness, kind="stable")[:count]


def rich_gain(
    scores: Scores, better: str, worse: str, rich: np.ndarray, image_of: np.ndarray
) -> Estimate:
    """Gain in the sum of the three text-to-image recalls on the captions `rich` (Sec. 9).

    Over seeds, with images as clusters.
    """
    a, b = (_caption_hits(scores, name)[:, rich] for name in (better, worse))
    n = min(len(a), len(b))
    return crossed_interval(100 * (a[:n] - b[:n]), image_of[rich])


def rich_excess(
    scores: Scores, better: str, worse: str, rich: np.ndarray, image_of: np.ndarray
) -> Estimate:
    """How much larger the gain of `rich_gain` is on the captions `rich` than on all others."""
    a, b = (_caption_hits(scores, name) for name in (better, worse))
    n, captions = min(len(a), len(b)), a.shape[1]
    weights = np.full(captions, -captions / (captions - len(rich)))
    weights[rich] = captions / len(rich)
    return crossed_interval(100 * weights * (a[:n] - b[:n]), image_of)


def _caption_hits(scores: Scores, system: str) -> np.ndarray:
    """In how many of the top 1, 5 and 10 a caption's image is: (seeds, captions)."""
    return np.sum([scores[system]["caption"] <= k for k in KS], axis=0).astype(float)


# --- Tables and figures --------------------------------------------------------------------------


def beside(table: pd.DataFrame, number: str) -> pd.DataFrame:
    """One printed table ("table1", "table3", "table4") with our results beside it."""
    _, names, also = TABLES[number]
    ours = [table[table.system.isin(names)]]
    ours += [table[table.system == name].assign(system=row) for row, name in also.items()]
    return side_by_side(pd.concat(ours), paper_rows(paper_tables("cora"), number))


def paper_rows(tables: Mapping[str, dict], table: str) -> pd.DataFrame:
    """A printed table with our systems' names where they have a counterpart, section by section."""
    printed = tables[table]
    rows = {}
    for row in printed["rows"]:
        name = OUR_NAMES.get(row["name"], row["name"])
        if "BERT" in row.get("section", "") and "BERT" not in name:
            name = f"{name} (BERT)"
        rows[name] = row["values"]
    return pd.DataFrame.from_dict(rows, orient="index")[printed["columns"]]


def entity_table(found: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Image-to-entity retrieval of some trainings: the share of images with a right entity among
    the first 1, 5 and 10, mean over trainings, beside a ranking by how often captions name it.
    """  # fmt: skip
    rows = {
        "CORA": [one["ranks"] for one in found],
        "most frequent first": [found[0]["frequency"]],
    }
    table = {
        name: {f"R@{k} in %": 100 * float((np.array(ranks) <= k).mean()) for k in KS}
        for name, ranks in rows.items()
    }
    shown = pd.DataFrame.from_dict(table, orient="index").round(1)
    return shown.assign(**{"entities ranked": found[0]["pool"]})


# --- Time ----------------------------------------------------------------------------------------


def time_query(preprocessor: Preprocessor, captions: Sequence[str]) -> dict[str, float]:
    """Median seconds to parse and to encode one caption, each alone, after one of each to warm up.

    The model has fresh weights, which take the same time as trained ones.
    """
    from mmlib.scenegraph.parser import load_english

    nlp = load_english()
    region_width = preprocessor.study.images["train"].features.shape[2]
    model = cora.build(
        preprocessor.settings, region_width, embeddings=preprocessor.embeddings
    ).eval()
    taken: dict[str, list[float]] = {"parse": [], "encode": []}
    for caption in captions:
        started = time.perf_counter()
        graph = scenegraph.graph_of(nlp(caption))
        parsed = time.perf_counter()
        with torch.no_grad():
            model.encode_texts(preprocessor.graph_set([graph]).batch(np.array([0])))
        taken["parse"].append(parsed - started)
        taken["encode"].append(time.perf_counter() - parsed)
    return {stage: float(np.median(times[1:])) for stage, times in taken.items()}
