"""The documents of each tier, as corpora to look at and as arrays to train on."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mmlib.core.errors import DataError
from mmlib.core.parallel import in_processes
from mmlib.core.paths import data_dir
from mmlib.data import flickr8k
from mmlib.features.text import (
    Vocabulary,
    embedding_matrix,
    mean_word_vectors,
    read_word_vectors,
    tokenize,
    train_word2vec,
)
from mmlib.papers.links import builders, sessions
from mmlib.papers.links.arrays import SPLITS, Arrays, Split
from mmlib.papers.links.documents import Corpus, Document, cluster_numbers
from mmlib.papers.links.experiment import UNLABELLED, budget
from mmlib.papers.links.files import read_corpus
from mmlib.papers.links.model import Settings
from mmlib.papers.links.world_documents import from_world, picture_scenes
from mmlib.world import WorldImages, captioned_images, stories

WORLD_NOTE = """*What this world was built to contain.* The pictures are drawn by `mmlib.world` from
scenes whose content is known, and sentences always say what is true of their scene. Image features
come from a small network trained on other scenes of the same world, partly from where things are:
the mean and the maximum over its regions, and what it believes about kinds, colours and setting.
The pictures of an album share a setting, a style and their characters, and the sentences of a story
refer to each other with pronouns and tell what changes. So cohesion is built in, and what holds
here shows how a method behaves where the truth is known, not how well it would do on
photographs."""

# Pictures of the world, albums of the world, and documents made of them.
WORLD_IMAGES = {"train": 3300, "val": 240, "test": 1800}
WORLD_ALBUMS = {"train": 700, "val": 66, "test": 440}
WORLD_COUNTS = {
    "coco": {"train": 8800, "val": 64, "test": 480},
    "cohesive": {"train": 5280, "val": 80, "test": 640},
}
# Five rounds of other groups and captions: with 1,079 instead of 5,395 documents, DC's test AUC on
# stress was 71.7 instead of 86.1 (600 steps, one seed).
FLICKR8K_COUNTS = {
    "coco": {"train": 16800, "val": 132, "test": 330},
    "mixed5": {"train": 5985, "val": 198, "test": 396},
    "cohesive": {"train": 5400, "val": 180, "test": 360},
    "organic": {"train": 6600, "val": 135, "test": 336},
}
KINDS = {
    "world": ("coco", "cohesive", "story", "stress", "organic"),
    "flickr8k": ("coco", "mixed5", "cohesive", "stress", "organic"),
}
# The authors' data sets by the part they play here; other folders keep their names.
ROLES = {
    "mscoco": "coco", "dii": "cohesive", "story-dii": "cohesive", "sis": "story",
    "story-sis": "story", "dii-stress": "stress", "dii-r": "stress", "rqa": "organic",
    "wiki": UNLABELLED,
}  # fmt: skip
LONG = ("organic", "diy", UNLABELLED)  # their sentences are cut at 50 words, not at 20 (§5)


@dataclass(frozen=True, eq=False)
class Study:
    """The documents of a tier. `key`: the sealed links of the unlabelled documents, if known."""

    corpora: Mapping[str, Corpus]
    unlabelled: Corpus | None = None
    key: Mapping[str, np.ndarray] | None = None


def load_documents(
    tier: str, kinds: Sequence[str] = (), seed: int = 0, unlabelled: bool | None = None
) -> Study:
    """Documents of a tier: all kinds that it has, or those that are named.

    world: drawn here. flickr8k: built from its photographs. paper: every folder of
    `<MMLIB_DATA>/links/` that holds docs.json, id2row.json and features.npy.
    unlabelled: also the documents whose links nobody knows; None: where no kind is named.
    Raises ValueError for a tier or kind that is not there, FileNotFoundError for missing data.
    """
    if tier == "paper":
        return _paper_documents(kinds, bool(unlabelled))
    if tier not in KINDS:
        raise ValueError(f"no tier {tier!r}: use world, flickr8k or paper")
    wanted = tuple(kinds) or KINDS[tier]
    if unknown := [kind for kind in wanted if kind not in KINDS[tier]]:
        raise ValueError(f"no documents {unknown[0]!r} here; there are {', '.join(KINDS[tier])}")
    make = _world_documents if tier == "world" else _flickr8k_documents
    return make(wanted, seed, not kinds if unlabelled is None else unlabelled)


def _world_documents(kinds: Sequence[str], seed: int, unlabelled: bool) -> Study:
    cores = os.cpu_count() or 1
    found: dict[str, Corpus] = {}
    of_photos = {"coco", "cohesive", "stress"} & set(kinds)
    study = Study(found)
    if of_photos or unlabelled:
        photos = {
            split: _pooled(captioned_images(split, count, seed, workers=cores))
            for split, count in WORLD_IMAGES.items()
        }
        study = _from_photos(photos, of_photos, WORLD_COUNTS, seed, 3, unlabelled, (30, 50))
        found = dict(study.corpora)
    for kind, write in (("story", stories.story), ("organic", stories.organic)):
        if kind in kinds:
            texts = {
                split: list(
                    in_processes(write, [(1000 * seed + i, split) for i in range(count)], cores)
                )
                for split, count in WORLD_ALBUMS.items()
            }
            pictures = {s: _pooled(p) for s, p in picture_scenes(texts, workers=cores).items()}
            found[kind] = from_world(kind, texts, pictures, seed)
    return replace(study, corpora={kind: found[kind] for kind in kinds})


def _flickr8k_documents(kinds: Sequence[str], seed: int, unlabelled: bool) -> Study:
    photos = {split: flickr8k.load(split) for split in SPLITS}
    study = _from_photos(photos, kinds, FLICKR8K_COUNTS, seed, 5, unlabelled, (30, 90))
    return replace(study, corpora={kind: study.corpora[kind] for kind in kinds})


def _from_photos(
    photos: Mapping, kinds: Sequence[str] | set[str], counts: Mapping[str, Mapping[str, int]],
    seed: int, rounds: int, unlabelled: bool, sentences: tuple[int, int],
) -> Study:  # fmt: skip
    """The kinds built from captioned pictures; `stress` and the articles from `cohesive`."""
    found: dict[str, Corpus] = {}
    if "coco" in kinds:
        found["coco"] = builders.coco(photos, counts["coco"], seed)
    if "mixed5" in kinds:
        found["mixed5"] = builders.mixed5(photos, counts["mixed5"], seed)
    if "organic" in kinds:
        found["organic"] = sessions.organic(photos, counts["organic"], seed)
    alike = None
    if {"cohesive", "stress"} & set(kinds) or unlabelled:
        alike = found["cohesive"] = builders.cohesive(photos, counts["cohesive"], seed)
    if "stress" in kinds and alike:
        some = replace(alike, train=tuple(d for d in alike.train if d.round < rounds))
        found["stress"] = builders.stress(some, photos, per_source=3, seed=seed)
    if not (unlabelled and alike):
        return Study(found)
    few = replace(alike, train=alike.train[:330], val=alike.val[:66], test=alike.test[:110])
    articles, key = builders.unlabelled_articles(few, photos, sentences, seed=seed)
    return Study(found, articles, key)


def _pooled(images: WorldImages) -> WorldImages:
    """One vector a picture: mean and maximum over its regions, and the logits of its labels.

    The world's things are small: they fade in a mean, and its network names them place by place.
    """
    regions, scores = images.features, images.label_scores
    assert scores is not None, "the world's own backbone gives label scores"
    likely = np.clip(scores, 1e-3, 1 - 1e-3)
    parts = [regions.mean(axis=1), regions.max(axis=1), np.log(likely / (1 - likely))]
    return replace(images, features=np.concatenate(parts, axis=1)[:, None].astype(np.float32))


def _paper_documents(kinds: Sequence[str], unlabelled: bool) -> Study:
    """The authors' documents, from `<MMLIB_DATA>/links/<name>/`. Nothing here depends on a seed."""
    root = data_dir() / "links"
    folders = sorted(path.parent for path in root.glob("*/docs.json"))
    if not folders:
        raise FileNotFoundError(
            f"{root} has no folder with docs.json, id2row.json and features.npy: see data/README.md"
        )
    every: dict[str, Path] = {}
    for folder in folders:
        role = ROLES.get(folder.name, folder.name)
        if (other := every.setdefault(role, folder)) != folder:
            what = f"{other.name} and {folder.name} are both the documents {role!r}"
            raise DataError(f"{root}: {what} (rename or move one)")
    if unknown := [kind for kind in kinds if kind not in every]:
        raise ValueError(f"no documents {unknown[0]!r} in {root}; there are {', '.join(every)}")
    more = [UNLABELLED] if unlabelled and UNLABELLED in every else []
    wanted = dict.fromkeys([*(kinds or every), *more])
    read = {kind: replace(read_corpus(every[kind]), name=kind) for kind in wanted}
    labelled = {kind: c for kind, c in read.items() if c.test[0].labelled}
    others = {kind: corpus for kind, corpus in read.items() if kind not in labelled}
    if len(others) > 1:
        names = " and ".join(every[kind].name for kind in others)
        what = f"{names} have no labels, and one such set is read"
        raise DataError(f"{root}: {what} (move the others away, or name the sets to read)")
    lone = next((replace(corpus, name=UNLABELLED) for corpus in others.values()), None)
    return Study(labelled, lone, {})


# --- Arrays ----------------------------------------------------------------------------------


def word_vectors(corpus: Corpus, settings: Settings, seed: int = 0) -> dict[str, np.ndarray]:
    """Word vectors that all systems start from: the user's GoogleNews file, else made here.

    word2vec trained on the sentences of training documents only. The file is
    `<MMLIB_DATA>/word2vec/GoogleNews-vectors-negative300.bin`, read where the width is 300.
    """
    texts = {sentence for document in corpus.train for sentence in document.sentences}
    tokens = [tokenize(sentence) for sentence in sorted(texts)]
    path = data_dir() / "word2vec" / "GoogleNews-vectors-negative300.bin"
    if settings.word_width == 300 and path.exists():
        return read_word_vectors(path, {word for sentence in tokens for word in sentence})
    return train_word2vec(tokens, settings.word_width, seed)


def prepare(
    corpus: Corpus,
    settings: Settings,
    vectors: Mapping[str, np.ndarray] | None = None,
    seed: int = 0,
    key: Mapping[str, np.ndarray] | None = None,
) -> Arrays:
    """Tokenise a corpus and index it. The vocabulary sees training sentences only.

    vectors: word -> (word_width,) to start from; None starts from small random embeddings.
    key: document id -> sealed links, of a corpus without labels.
    Image features are centred, each divided by its deviation to the power that the settings name,
    and brought to unit overall deviation, all by training images.
    """
    texts = {split: corpus.split(split) for split in SPLITS}
    distinct = sorted({s for documents in texts.values() for d in documents for s in d.sentences})
    row = {sentence: i for i, sentence in enumerate(distinct)}
    tokens = [tokenize(sentence) for sentence in distinct]
    seen = (tokens[row[s]] for d in corpus.train for s in d.sentences)
    vocabulary = Vocabulary.from_sentences(seen, settings.min_count)
    longest = 50 if corpus.name in LONG else settings.max_words
    ids, lengths = vocabulary.encode(tokens, longest)
    rows = np.unique(np.concatenate([corpus.rows(d) for d in corpus.train]))
    features = corpus.features - corpus.features[rows].mean(axis=0)
    features /= np.maximum(features[rows].std(axis=0), 1e-6) ** settings.feature_power
    named = vectors is not None and corpus.label_scores is not None
    return Arrays(
        ids=ids.numpy(),
        lengths=lengths.numpy(),
        words=settings.word_scale
        * embedding_matrix(vocabulary, settings.word_width, seed, vectors).numpy(),
        features=features / max(float(features[rows].std(axis=0).mean()), 1e-6),
        splits={split: _index(corpus, documents, row) for split, documents in texts.items()},
        label_scores=corpus.label_scores if named else None,
        label_words=mean_word_vectors([tokenize(name) for name in corpus.label_names], vectors)
        if named and vectors is not None
        else None,
        truth=tuple(map(corpus.recognise, corpus.test)) if corpus.recognise else None,
        key=tuple(key[document.id] for document in corpus.test) if key else None,
    )


def _index(corpus: Corpus, documents: Sequence[Document], row: Mapping[str, int]) -> Split:
    labelled = all(document.labelled for document in documents)
    return Split(
        sentences=tuple(np.array([row[s] for s in d.sentences]) for d in documents),
        images=tuple(corpus.rows(d) for d in documents),
        links=tuple(d.link_matrix() for d in documents) if labelled else None,
        rounds=np.array([d.round for d in documents]),
        clusters=cluster_numbers(documents),
    )


def load_arrays(study: Study, tier: str) -> dict[str, Arrays]:
    """All corpora of a study as arrays, each prepared as its budget says."""
    found = {}
    for kind, corpus in {**study.corpora, UNLABELLED: study.unlabelled}.items():
        if corpus is not None:
            settings = budget(tier, kind)
            key = study.key if kind == UNLABELLED else None
            found[kind] = prepare(corpus, settings, word_vectors(corpus, settings), key=key)
    return found
