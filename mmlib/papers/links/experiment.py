"""Notebook 04's experiment: documents of each tier, budgets, and the grid of trainings."""

import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from PIL import Image
from scipy.stats import spearmanr

from mmlib.core import plots
from mmlib.core.intervals import Estimate, bootstrap_interval, crossed_interval
from mmlib.core.parallel import in_processes
from mmlib.core.paths import data_dir
from mmlib.core.tables import Result
from mmlib.features.text import read_word_vectors, tokenize, train_word2vec
from mmlib.papers.links import builders
from mmlib.papers.links.documents import SPLITS, Corpus, Document, cluster_numbers
from mmlib.papers.links.files import read_corpus
from mmlib.papers.links.model import (
    Arrays,
    Batches,
    LinkModel,
    Settings,
    System,
    best_matching,
    detection_matrices,
    document_loss,
    evaluate,
    link_metrics,
    prepare,
    random_matrices,
    regress,
    set_similarity,
    spread,
)
from mmlib.papers.links.world_documents import from_world, picture_scenes
from mmlib.training import settings_hash
from mmlib.world import WorldImages

METRICS = ("AUC", "p@1", "p@5")

WORLD_NOTE = """*What this world was built to contain.* The pictures are drawn by `mmlib.world` from
scenes whose content is known, and sentences always say what is true of their scene. Image features
come from a small network trained on other scenes of the same world, partly from where things are:
the mean and the maximum over its regions, and what it believes about kinds, colours and setting.
The pictures of an album share a setting, a style and their characters, and the sentences of a story
refer to each other with pronouns and tell what changes. So cohesion is built in, and what holds
here shows how a method behaves where the truth is known, not how well it would do on
photographs."""

# Which printed table a data set of ours stands beside.
PAPER_TABLES = {
    "coco": "table2_mscoco",
    "cohesive": "table2_story_dii",
    "story": "table2_story_sis",
    "stress": "table2_dii_stress",
    "organic": "table3_rqa",
    "diy": "table3_diy",
}

# One budget for all systems of a tier. That of the tier "paper" is the paper's own. The other two
# see a fiftieth of its training steps or fewer, and under the paper's learning rate, dropout of 0.4
# and hardest negatives from the first step such short trainings stay near the loss of a constant.
BUDGETS = {
    "world": Settings(
        width=64,
        word_width=64,
        min_count=2,
        dropout=0.1,
        learning_rate=4e-3,
        epochs=5,
        steps=32,
        warm_up=3,
    ),
    "flickr8k": Settings(
        width=128, word_width=100, dropout=0.1, learning_rate=1e-3, epochs=6, warm_up=1
    ),
    "paper": Settings(),
}


def budget(tier: str, **changes: object) -> Settings:
    """The settings of a tier, with changes by name. Raises ValueError for an unknown tier."""
    if tier not in BUDGETS:
        raise ValueError(f"no tier {tier!r}: use one of {', '.join(BUDGETS)}")
    return replace(BUDGETS[tier], **{k: v for k, v in changes.items() if v})  # type: ignore[arg-type]


# --- Documents -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Study:
    """The documents of a tier. `key`: the sealed links of the unlabelled documents, if known."""

    corpora: Mapping[str, Corpus]
    unlabelled: Corpus | None
    key: Mapping[str, np.ndarray]

    def only(self, names: Sequence[str]) -> "Study":
        """The same with some of the labelled corpora; ValueError for one that is not there."""
        unknown = [name for name in names if name not in self.corpora]
        if unknown:
            raise ValueError(
                f"no documents {unknown[0]!r} here; there are {', '.join(self.corpora)}"
            )
        return replace(self, corpora={name: self.corpora[name] for name in names})


def load_documents(tier: str, seed: int = 0) -> Study:
    """Documents of every kind that a tier has.

    world: drawn here. flickr8k: built from its photographs. paper: every folder of
    `<MMLIB_DATA>/links/` that holds docs.json, id2row.json and features.npy.
    """
    makers = {"world": world_documents, "flickr8k": flickr8k_documents, "paper": paper_documents}
    if tier not in makers:
        raise ValueError(f"no tier {tier!r}: use one of {', '.join(makers)}")
    return makers[tier](seed)


# Made in less than a minute on two cores.
WORLD_IMAGES = {"train": 1650, "val": 240, "test": 600}
WORLD_ALBUMS = {"train": 275, "val": 44, "test": 100}


def world_documents(seed: int = 0) -> Study:
    """Documents of the picture world, of every kind."""
    from mmlib import world
    from mmlib.world import stories

    cores = os.cpu_count() or 1
    photos = {
        split: _whole(world.captioned_images(split, count, seed, workers=cores))
        for split, count in WORLD_IMAGES.items()
    }
    coco = builders.coco(photos, {"train": 1100, "val": 32, "test": 80}, seed)
    alike = builders.cohesive(photos, {"train": 880, "val": 40, "test": 105}, seed)
    # A document of stress has ten times the sentences: fewer of them to train on.
    few = replace(alike, train=tuple(d for d in alike.train if d.round == 0))
    stress = builders.stress(few, photos, per_source=3, seed=seed)
    stress = replace(stress, train=tuple(d for d in stress.train if d.round < 2))
    articles, key = builders.unlabelled_articles(few, photos, sentences=(30, 50), seed=seed)

    def write(kind: str, tell: Callable) -> Corpus:
        texts = {
            split: list(in_processes(tell, [(1000 * seed + i, split) for i in range(count)], cores))
            for split, count in WORLD_ALBUMS.items()
        }
        pictures = {s: _whole(p) for s, p in picture_scenes(texts, workers=cores).items()}
        return from_world(kind, texts, pictures, seed)

    corpora = {
        "coco": coco,
        "cohesive": alike,
        "story": write("story", stories.story),
        "stress": stress,
        "organic": write("organic", stories.organic),
    }
    return Study(corpora, articles, key)


def _whole(images: WorldImages) -> WorldImages:
    """One vector a picture: mean and maximum over its regions, and the logits of its labels.

    The world's things are small: they fade in a mean, and its network names them place by place.
    """
    regions, scores = images.features, images.label_scores
    assert scores is not None, "the world's own backbone gives label scores"
    likely = np.clip(scores, 1e-3, 1 - 1e-3)
    parts = [regions.mean(axis=1), regions.max(axis=1), np.log(likely / (1 - likely))]
    whole = np.concatenate(parts, axis=1)[:, None].astype(np.float32)
    return replace(images, features=whole)


def flickr8k_documents(seed: int = 0) -> Study:
    """Flickr8k as documents: coco, cohesive, stress, the control mixed5, and unlabelled ones."""
    from mmlib.data import flickr8k

    splits = {split: flickr8k.load(split) for split in SPLITS}
    coco = builders.coco(splits, {"train": 6384, "val": 132, "test": 330}, seed)
    mixed = builders.mixed5(splits, {"train": 2394, "val": 198, "test": 396}, seed)
    alike = builders.cohesive(splits, {"train": 2160, "val": 180, "test": 360}, seed)
    # A document of stress has ten times the sentences: one round of training documents.
    few = replace(alike, train=tuple(d for d in alike.train if d.round == 0))
    stress = builders.stress(few, splits, seed=seed)
    few = replace(few, train=few.train[:330], val=few.val[:66], test=few.test[:110])
    articles, key = builders.unlabelled_articles(few, splits, seed=seed)
    corpora = {"coco": coco, "mixed5": mixed, "cohesive": alike, "stress": stress}
    return Study(corpora, articles, key)


# The authors' data sets by the part they play here; other folders keep their names.
ROLES = {"mscoco": "coco", "story-dii": "cohesive", "story-sis": "story", "dii-stress": "stress",
         "rqa": "organic"}  # fmt: skip
LONG = ("organic", "diy", "unlabelled")  # their sentences are cut at 50 words, not at 20 (§5)


def paper_documents(seed: int = 0) -> Study:
    """The authors' documents, from `<MMLIB_DATA>/links/<name>/`. Nothing here depends on a seed."""
    root = data_dir() / "links"
    folders = sorted(path.parent for path in root.glob("*/docs.json"))
    if not folders:
        raise FileNotFoundError(
            f"{root} has no folder with docs.json, id2row.json and features.npy: see data/README.md"
        )
    read = {ROLES.get(folder.name, folder.name): read_corpus(folder) for folder in folders}
    labelled = {name: c for name, c in read.items() if c.test[0].labelled}
    others = [corpus for name, corpus in read.items() if name not in labelled]
    return Study(labelled, others[0] if others else None, {})


# --- Arrays and trainings --------------------------------------------------------------------


def word_vectors(study: Study, settings: Settings, seed: int = 0) -> dict[str, np.ndarray]:
    """Word vectors shared by all systems: the user's GoogleNews file, else word2vec trained here.

    Trained on the sentences of training documents only. The file is
    `<MMLIB_DATA>/word2vec/GoogleNews-vectors-negative300.bin`, read where the width is 300.
    """
    texts = {s for c in study.corpora.values() for d in c.train for s in d.sentences}
    tokens = [tokenize(sentence) for sentence in sorted(texts)]
    path = data_dir() / "word2vec" / "GoogleNews-vectors-negative300.bin"
    if settings.word_width == 300 and path.exists():
        return read_word_vectors(path, {word for sentence in tokens for word in sentence})
    return train_word2vec(tokens, settings.word_width, seed)


def training_jobs(
    dataset: str,
    arrays: Arrays,
    systems: Mapping[str, System],
    settings: Settings,
    seeds: Sequence[int],
    device: str,
    keep_matrices: int = 0,
) -> list[tuple[dict, dict]]:
    """Jobs for `training.run_jobs`, one a system and seed. TK is left out where it equals DC."""
    data = fingerprint(arrays)
    same = all_square(arrays)
    return [
        (
            {
                "dataset": dataset, "name": name, "system": asdict(system),
                "settings": asdict(settings), "seed": seed, "data": data,
                "keep_matrices": keep_matrices,
            },
            {"arrays": arrays, "device": device},
        )
        for name, system in systems.items()
        if not (same and name == "TK")
        for seed in seeds
    ]  # fmt: skip


def all_square(arrays: Arrays) -> bool:
    """Whether every document has as many sentences as images; then TK is the same as DC."""
    return all(
        len(s) == len(v)
        for split in arrays.splits.values()
        for s, v in zip(split.sentences, split.images, strict=True)
    )


def fingerprint(arrays: Arrays) -> str:
    """A hash of everything that training and evaluation read."""
    digest = hashlib.sha256()
    for part in (arrays.ids, arrays.lengths, arrays.embeddings, arrays.features):
        digest.update(np.ascontiguousarray(part).tobytes())
    for name in SPLITS:
        for index in arrays.splits[name].sentences + arrays.splits[name].images:
            digest.update(index.tobytes() + b"|")
        for links in arrays.splits[name].links or ():
            digest.update(links.tobytes())
    return digest.hexdigest()[:16]


Scores = dict[str, dict[str, dict[str, np.ndarray]]]


def collect(jobs: Sequence[tuple[dict, dict]], answers: Sequence[dict]) -> Scores:
    """Per-document metrics: data set -> system -> metric -> (seeds, documents).

    Documents that have to be skipped are NaN in every row. Where TK was not trained because it
    is the same function as DC, its scores are DC's.
    """
    rows: dict[tuple[str, str, str], list] = {}
    for (job, _), answer in zip(jobs, answers, strict=True):
        for metric in METRICS:
            if metric in answer:
                rows.setdefault((job["dataset"], job["name"], metric), []).append(answer[metric])
    scores: Scores = {}
    for (dataset, name, metric), values in rows.items():
        system = scores.setdefault(dataset, {}).setdefault(name, {})
        system[metric] = np.array(values, dtype=float)
    for systems in scores.values():
        if "DC" in systems and "TK" not in systems:
            systems["TK"] = systems["DC"]
    return scores


def add_baselines(
    scores: Scores,
    study: Study,
    arrays: Mapping[str, Arrays],
    vectors: Mapping[str, np.ndarray],
    seeds: Sequence[int],
    most: int = 20,
) -> dict[str, dict[str, int]]:
    """Add Random and, where a classifier's label scores exist, Object Detection to the scores.

    Object Detection stands twice: "Obj Detect" with K, the number of labels an image, chosen by
    dev AUC, and "Obj Detect (best K on test)", which is how the paper chose it. Returns both Ks.
    """
    chosen: dict[str, dict[str, int]] = {}
    for dataset, corpus in study.corpora.items():
        test = arrays[dataset].splits["test"]
        runs = [evaluate(random_matrices(test, seed), test) for seed in seeds]
        scores.setdefault(dataset, {})["Random"] = _stack(runs)
        if corpus.label_scores is None:
            continue
        by_k = {
            split: [
                evaluate(
                    detection_matrices(corpus, split, vectors, k), arrays[dataset].splits[split]
                )
                for k in range(1, most + 1)
            ]
            for split in ("val", "test")
        }
        best = {
            split: int(np.argmax([np.nanmean(np.array(e["AUC"], float)) for e in each]))
            for split, each in by_k.items()
        }
        scores[dataset]["Obj Detect"] = _stack([by_k["test"][best["val"]]])
        scores[dataset]["Obj Detect (best K on test)"] = _stack([by_k["test"][best["test"]]])
        chosen[dataset] = {split: k + 1 for split, k in best.items()}
    return chosen


def _stack(runs: Sequence[Mapping[str, list]]) -> dict[str, np.ndarray]:
    return {metric: np.array([run[metric] for run in runs], dtype=float) for metric in METRICS}


def results(scores: Scores, settings: Settings, seeds: Sequence[int]) -> list[Result]:
    """One `Result` a data set, system, metric and seed: the macro average over test documents."""
    used = settings_hash(asdict(settings))
    return [
        Result(system, dataset, "test", metric, float(np.nanmean(row)), seed, used)
        for dataset, systems in scores.items()
        for system, metrics in systems.items()
        for metric, values in metrics.items()
        for seed, row in zip(seeds, values, strict=False)
    ]


def prepare_all(
    study: Study, settings: Settings, vectors: Mapping[str, np.ndarray], seed: int = 0
) -> dict[str, Arrays]:
    """Every labelled corpus as arrays."""
    long = replace(settings, max_words=50)
    return {
        name: prepare(corpus, long if name in LONG else settings, vectors, seed)
        for name, corpus in study.corpora.items()
    }


# --- Looking at documents --------------------------------------------------------------------


def describe(study: Study) -> pd.DataFrame:
    """The counterpart of the paper's Table 1: a row a corpus."""
    rows = {}
    for name, corpus in {**study.corpora, "unlabelled": study.unlabelled}.items():
        if corpus is None:
            continue
        every = [*corpus.train, *corpus.val, *corpus.test]
        rows[name] = {
            "train/val/test": f"{len(corpus.train)}/{len(corpus.val)}/{len(corpus.test)}",
            "sentences/images (median)": f"{np.median([len(d.sentences) for d in every]):.0f}/"
            f"{np.median([len(d.images) for d in every]):.0f}",
            "images (unique)": len({image for d in every for image in d.images}),
            "density": f"{100 * np.mean([d.link_matrix().mean() for d in corpus.test]):.0f}%"
            if corpus.test[0].labelled
            else "unknown",
            "clusters (test)": len({d.cluster for d in corpus.test}),
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def smallest(study: Study) -> str:
    """The corpus with the fewest training sentences, cheapest to train on."""
    return min(study.corpora, key=lambda n: sum(len(d.sentences) for d in study.corpora[n].train))


def some_pictures(study: Study, count: int) -> list[Image.Image]:
    """The first different test images of the tier, from its corpora in turn."""
    found: dict[str, Image.Image] = {}
    for corpus in study.corpora.values():
        for image in (image for document in corpus.test for image in document.images):
            if len(found) < count and image not in found:
                found[image] = _open(corpus, image)
    return list(found.values())


def images_of(corpus: Corpus, document: Document) -> Figure:
    """The images of a document, numbered as the columns of its link matrix."""
    numbers = [str(column) for column in range(len(document.images))]
    return plots.show_pictures([_open(corpus, image) for image in document.images], numbers)


def one_of_each(study: Study, columns: int = 4) -> Figure:
    """The first images of one test document of each kind, with a sentence linked to each."""
    images, titles = [], []
    for name, corpus in study.corpora.items():
        document = corpus.test[0]
        true = document.link_matrix()
        for column, image in enumerate(document.images[:columns]):
            linked = np.flatnonzero(true[:, column])
            text = document.sentences[linked[0]] if len(linked) else "(no sentence)"
            images.append(_open(corpus, image))
            titles.append(f"[{name}] {text}")
        images += [BLANK] * (columns - min(columns, len(document.images)))
        titles += [""] * (len(images) - len(titles))
    return plots.show_pictures(images, titles, columns, size=1.4)


BLANK = Image.new("RGB", (8, 8), "white")


def _open(corpus: Corpus, image: str) -> Image.Image:
    """The picture, or a grey square where only features were brought."""
    return corpus.open_image(image) if corpus.open_image else Image.new("RGB", (8, 8), "grey")


def document_graph(
    corpus: Corpus, row: int, scores: np.ndarray, title: str, edges: int = 5
) -> Figure:
    """Fig. 4: the best matching with `edges` edges in test document `row`, as a graph."""
    document = corpus.test[row]
    return plots.link_graph(
        [_open(corpus, image) for image in document.images],
        document.sentences,
        scores,
        document.link_matrix() if document.labelled else None,
        best_matching(scores, min(edges, *scores.shape)),
        title,
    )


def kept_matrices(
    jobs: Sequence[tuple[dict, dict]], answers: Sequence[dict], system: str, seed: int = 0
) -> dict[str, list[np.ndarray]]:
    """The cosine matrices that trainings of one system and seed kept. data set -> matrices."""
    return {
        job["dataset"]: [np.array(matrix) for matrix in answer["matrices"]]
        for (job, _), answer in zip(jobs, answers, strict=True)
        if job["name"] == system and job["seed"] == seed
    }


def most_diverse(corpus: Corpus, count: int) -> int:
    """Which of the first `count` test documents has the highest image spread."""
    spreads = [spread(corpus.features[corpus.rows(d)]) for d in corpus.test[:count]]
    return int(np.argmax(spreads))


def unseal(study: Study, matrices: Sequence[np.ndarray]) -> pd.DataFrame:
    """How often the most confident pairs of unlabelled documents are links, by the sealed key."""
    assert study.unlabelled is not None
    documents = study.unlabelled.test[: len(matrices)]
    truth = [study.key[d.id] for d in documents]
    scored = [link_metrics(m, y) for m, y in zip(matrices, truth, strict=True)]
    rows = [s for s in scored if s is not None]
    chance = 100 * float(np.mean([y.mean() for y in truth]))
    return pd.DataFrame(
        {"AP": pd.DataFrame(rows).mean(), "chance": {"AUC": 50.0, "p@1": chance, "p@5": chance}}
    ).round(1)


# --- Effects ---------------------------------------------------------------------------------


def values_of(scores: Scores, dataset: str, systems: Sequence[str], metric: str) -> np.ndarray:
    """Mean over systems of a metric, (seeds, documents); NaN for documents that are skipped."""
    return np.mean([scores[dataset][system][metric] for system in systems], axis=0)


def interval_of(
    scores: Scores, study: Study, dataset: str, system: str, metric: str = "AUC"
) -> Estimate:
    """A system's score on a corpus, with its interval over seeds and documents."""
    return _interval(values_of(scores, dataset, (system,), metric), study.corpora[dataset])


def difference(
    scores: Scores,
    study: Study,
    dataset: str,
    better: Sequence[str],
    worse: Sequence[str],
    metric: str = "AUC",
) -> Estimate:
    """Mean of the systems `better` minus that of `worse`, paired by seed and document."""
    gap = values_of(scores, dataset, better, metric) - values_of(scores, dataset, worse, metric)
    return _interval(gap, study.corpora[dataset])


def _interval(values: np.ndarray, corpus: Corpus) -> Estimate:
    scored = ~np.isnan(values).any(axis=0)
    clusters = cluster_numbers(corpus.test)
    return crossed_interval(values[:, scored], clusters[scored])


def _mean_over_seeds(scores: Scores, dataset: str, system: str) -> np.ndarray:
    return scores[dataset][system]["AUC"].mean(axis=0)


def rank_agreement(scores: Scores, study: Study, dataset: str, a: str, b: str) -> Estimate:
    """Spearman's ρ over documents of two systems' AUC, with an interval over clusters."""
    x, y = (_mean_over_seeds(scores, dataset, system) for system in (a, b))
    scored = np.flatnonzero(~np.isnan(x))
    clusters = cluster_numbers(study.corpora[dataset].test)[scored]

    def rho(index: np.ndarray) -> float:
        return float(spearmanr(x[scored][index], y[scored][index]).statistic)

    return bootstrap_interval(rho, clusters)


def agreement(scores: Scores, systems: Sequence[str]) -> pd.DataFrame:
    """Spearman's ρ of per-document AUC: a column a pair of systems, and two seeds of the last."""
    table: dict[str, dict[str, float]] = {}
    for dataset, by_system in scores.items():
        columns = {
            f"{a}–{b}": (_mean_over_seeds(scores, dataset, a), _mean_over_seeds(scores, dataset, b))
            for i, a in enumerate(systems)
            for b in systems[i + 1 :]
        }
        repeated = by_system[systems[-1]]["AUC"]
        if len(repeated) > 1:
            columns[f"{systems[-1]}, two seeds"] = (repeated[0], repeated[1])
        table[dataset] = {
            name: float(spearmanr(x, y, nan_policy="omit").statistic)
            for name, (x, y) in columns.items()
        }
    return pd.DataFrame.from_dict(table, orient="index").round(2)


Histories = Mapping[tuple[str, str, int], Sequence[Mapping[str, float]]]


def together(
    histories: Histories, dataset: str, systems: Sequence[str], seeds: Sequence[int]
) -> Estimate:
    """Minus Spearman's ρ between dev loss and dev AUC over a training's epochs, over trainings."""
    values = [
        [
            -spearmanr(*([h[key] for h in run] for key in ("dev_loss", "dev_AUC"))).statistic
            for run in (histories[dataset, system, seed] for system in systems)
        ]
        for seed in seeds
    ]
    return crossed_interval(np.array(values), systems)


def difficulty(
    scores: Scores, predictors: Mapping[str, Mapping[str, np.ndarray]], system: str = "AP"
) -> pd.DataFrame:
    """The paper's regressions of per-document AUC, a row a corpus and set of predictors."""
    rows = []
    for dataset, table in predictors.items():
        y = _mean_over_seeds(scores, dataset, system)
        scored = ~np.isnan(y)
        for name, sides in (
            ("image spread", ("image spread",)),
            ("text spread", ("text spread",)),
            ("spread", ("image spread", "text spread")),
            ("spread + content", tuple(table)),
        ):
            x = np.column_stack([table[side] for side in sides])
            if len(y[scored]) > x.shape[1] + 1:
                fitted = regress(x[scored], y[scored])
                rows.append(
                    {"documents": dataset, "predictors": name, "R² in %": fitted.r2,
                     "adjusted R²": fitted.adjusted_r2, "F": fitted.f, "p of F": fitted.p}
                )  # fmt: skip
    shown = pd.DataFrame(rows).set_index(["documents", "predictors"])
    return shown.round(1).assign(**{"p of F": shown["p of F"].map("{:.1g}".format)})


def spread_effect(
    scores: Scores,
    study: Study,
    predictors: Mapping[str, Mapping[str, np.ndarray]],
    dataset: str,
    side: str,
    system: str = "AP",
) -> Estimate:
    """Coefficient of one side's spread in the regression on both, with its interval."""
    y = _mean_over_seeds(scores, dataset, system)
    scored = np.flatnonzero(~np.isnan(y))
    x = np.column_stack([predictors[dataset][f"{s} spread"] for s in ("image", "text")])
    clusters = cluster_numbers(study.corpora[dataset].test)[scored]

    def coefficient(index: np.ndarray) -> float:
        fitted = regress(x[scored][index], y[scored][index])
        return float(fitted.coefficients[("image", "text").index(side)])

    return bootstrap_interval(coefficient, clusters)


def difficulty_figure(
    scores: Scores, predictors: Mapping[str, Mapping[str, np.ndarray]], system: str = "AP"
) -> Figure:
    """AUC of each test document over its image spread and its text spread, a column a corpus."""
    figure, axes = plt.subplots(
        2, len(predictors), figsize=(2.6 * len(predictors), 4.6), squeeze=False, sharey=True
    )
    for column, (dataset, table) in enumerate(predictors.items()):
        for row, side in enumerate(("image spread", "text spread")):
            axes[row, column].plot(
                table[side], _mean_over_seeds(scores, dataset, system), ".", ms=4
            )
            axes[row, column].set_xlabel(side)
        axes[0, column].set_title(dataset, fontsize=10)
    for row in range(2):
        axes[row, 0].set_ylabel(f"{system}'s AUC in %")
    return figure


def summary(systems: Mapping[str, Mapping[str, np.ndarray]], names: Sequence[str]) -> pd.DataFrame:
    """Mean over documents, and mean ± standard deviation over seeds, of each metric."""
    cells = {}
    for name in names:
        per_seed = {m: np.nanmean(systems[name][m], axis=1) for m in METRICS}
        cells[name] = {
            m: f"{v.mean():.1f} ± {v.std(ddof=min(1, len(v) - 1)):.1f}" for m, v in per_seed.items()
        }
    return pd.DataFrame.from_dict(cells, orient="index")


def time_steps(
    arrays: Arrays,
    settings: Settings,
    systems: Mapping[str, System],
    device: str,
    repeats: int = 40,
) -> dict[str, np.ndarray]:
    """Milliseconds of training steps on one batch, the systems taking turns. name -> (repeats,)."""
    batch = Batches(arrays, "train", device).batch(range(settings.b + 1))
    model = LinkModel(torch.tensor(arrays.embeddings), arrays.features.shape[1], settings).to(
        device
    )
    times: dict[str, list[float]] = {name: [] for name in systems}
    for _ in range(repeats + 3):
        for name, system in systems.items():
            started = time.perf_counter()
            cosines, rows, columns = model(batch)
            document_loss(set_similarity(cosines, rows, columns, system)).backward()
            model.zero_grad()
            if device == "cuda":
                torch.cuda.synchronize()
            times[name].append(1000 * (time.perf_counter() - started))
    return {name: np.array(values[3:]) for name, values in times.items()}  # after a warm-up
