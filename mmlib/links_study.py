"""Notebook 04's experiment: documents of each tier, budgets, and the grid of trainings."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from mmlib.claims import Result
from mmlib.datasets import builders
from mmlib.datasets.document_files import read_corpus
from mmlib.datasets.documents import SPLITS, Corpus
from mmlib.links import (
    SYSTEMS,
    Arrays,
    Settings,
    System,
    detection_matrices,
    evaluate,
    prepare,
    random_matrices,
)
from mmlib.paths import data_dir
from mmlib.text import read_word_vectors, tokenize, train_word2vec
from mmlib.training import settings_hash

METRICS = ("AUC", "p@1", "p@5")

# Which printed table a data set of ours stands beside.
PAPER_TABLES = {
    "coco": "table2_mscoco",
    "cohesive": "table2_story_dii",
    "story": "table2_story_sis",
    "stress": "table2_dii_stress",
    "organic": "table3_rqa",
    "diy": "table3_diy",
}

# One budget for all systems of a tier. The paper's own is that of the tier "paper"; the other two
# see about a hundredth of its training steps, and the paper's learning rate, dropout of 0.4 and
# hardest negatives from the first step leave such short trainings near the loss of a constant.
BUDGETS = {
    "world": Settings(
        width=64, word_width=64, min_count=2, dropout=0.1, learning_rate=2e-3, epochs=8, warm_up=2
    ),
    "flickr8k": Settings(
        width=128, word_width=100, dropout=0.2, learning_rate=2e-3, epochs=8, warm_up=2
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


def load_documents(tier: str, seed: int = 0) -> Study:
    """Documents of every kind that a tier has.

    world: drawn here. flickr8k: built from its photographs. paper: every folder of
    `<MMLIB_DATA>/links/` that holds docs.json, id2row.json and features.npy.
    """
    makers = {"world": world_documents, "flickr8k": flickr8k_documents, "paper": paper_documents}
    if tier not in makers:
        raise ValueError(f"no tier {tier!r}: use one of {', '.join(makers)}")
    return makers[tier](seed)


def flickr8k_documents(seed: int = 0) -> Study:
    """Flickr8k as documents: coco, cohesive, stress, the control mixed5, and unlabelled ones."""
    from mmlib.datasets import flickr8k

    splits = {split: flickr8k.load(split) for split in SPLITS}
    coco = builders.coco(splits, {"train": 3192, "val": 132, "test": 330}, seed)
    mixed = builders.mixed5(splits, {"train": 3591, "val": 198, "test": 396}, seed)
    alike = builders.cohesive(splits, {"train": 3240, "val": 180, "test": 360}, seed)
    # A document of stress has ten times the sentences: one round of training documents.
    few = replace(alike, train=tuple(d for d in alike.train if d.round == 0))
    stress = builders.stress(few, splits, seed=seed)
    few = replace(few, train=few.train[:330], val=few.val[:66], test=few.test[:110])
    articles, key = builders.unlabelled_articles(few, splits, seed=seed)
    corpora = {"coco": coco, "mixed5": mixed, "cohesive": alike, "stress": stress}
    return Study(corpora, articles, key)


def paper_documents(seed: int = 0) -> Study:
    """The authors' documents, from `<MMLIB_DATA>/links/<name>/`. Nothing here depends on a seed."""
    root = data_dir() / "links"
    folders = sorted(path.parent for path in root.glob("*/docs.json"))
    if not folders:
        raise FileNotFoundError(
            f"{root} has no folder with docs.json, id2row.json and features.npy: see data/README.md"
        )
    read = {folder.name: read_corpus(folder) for folder in folders}
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


def chance_levels(scores: Scores) -> dict[str, float]:
    """Chance of every figure of a trained system: 50 for AUC, what Random gets in mean for p@C."""
    levels = {}
    for dataset, systems in scores.items():
        for system in systems:
            if system in SYSTEMS:
                levels[f"{dataset}/{system}/AUC"] = 50.0
                for metric in ("p@1", "p@5"):
                    chance = float(np.nanmean(systems["Random"][metric]))
                    levels[f"{dataset}/{system}/{metric}"] = chance
    return levels


def prepare_all(
    study: Study, settings: Settings, vectors: Mapping[str, np.ndarray], seed: int = 0
) -> dict[str, Arrays]:
    """Every labelled corpus as arrays."""
    return {n: prepare(c, settings, vectors, seed) for n, c in study.corpora.items()}
