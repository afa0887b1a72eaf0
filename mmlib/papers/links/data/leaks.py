"""Automatic checks that documents built from captioned images do not give their links away."""

from collections.abc import Mapping, Sequence

import numpy as np

from mmlib.core.records import normalised
from mmlib.papers.links.data.documents import ROUND_AND_CLUSTER, SPLITS, Corpus, Document


def check_leaks(corpus: Corpus) -> None:
    """Raise ValueError, listing what was found, when documents give away what must stay hidden.

    Checked: no image id and no identical feature vector in two splits; inside a document no image
    twice, no two sentences with the same normalised text, no unlinked sentence written for one of
    its images; documents of one round share no source image; in splits with several clusters,
    documents of different clusters share none.
    """
    problems: list[str] = []
    sources = {
        split: [_sources(corpus, document) for document in corpus.split(split)] for split in SPLITS
    }
    problems += _across_splits(corpus, sources)
    for split in SPLITS:
        for document in corpus.split(split):
            problems += [f"{split} {document.id}: {p}" for p in _inside(corpus, document)]
        problems += _shared_sources(split, corpus.split(split), sources[split])
    if problems:
        omitted = f" (and {len(problems) - 5} more)" if len(problems) > 5 else ""
        raise ValueError(
            "leaks: " + "; ".join(problems[:5]) + omitted + "; rebuild these documents"
        )


def _sources(corpus: Corpus, document: Document) -> set[str]:
    """All images a document was made from, shown or only described."""
    return set(document.images) | set(corpus.sources.get(document.id, ())) - {""}


def _across_splits(corpus: Corpus, sources: Mapping) -> list[str]:
    problems = []
    split_of: dict[object, tuple[str, str]] = {}
    for split in SPLITS:
        for image in sorted(set().union(*sources[split])):
            keys: list[tuple] = [("id", image)]
            if image in corpus.row_of:
                keys.append(("feature vector", corpus.features[corpus.row_of[image]].tobytes()))
            for key in keys:
                first, twin = split_of.setdefault(key, (split, image))
                if first != split:
                    problems.append(f"{first} {twin} and {split} {image} have the same {key[0]}")
    return problems


def _inside(corpus: Corpus, document: Document) -> list[str]:
    problems = []
    if len(set(document.images)) < len(document.images):
        problems.append("an image occurs twice")
    if len({normalised(text) for text in document.sentences}) < len(document.sentences):
        problems.append("two sentences have the same text")
    if document.labelled and document.id in corpus.sources:
        linked = np.any(document.link_matrix(), axis=1).tolist()
        for number, source in enumerate(corpus.sources[document.id]):
            if not linked[number] and source in document.images:
                problems.append(f"unlinked sentence {number} was written for its image {source}")
    return problems


def _shared_sources(split: str, documents: Sequence[Document], sources: Sequence) -> list[str]:
    problems = []
    in_round: dict[tuple[int, str], str] = {}
    in_cluster: dict[str, str] = {}
    for document, images in zip(documents, sources, strict=True):
        if not ROUND_AND_CLUSTER.search(document.id):
            continue
        for image in sorted(images):
            first = in_round.setdefault((document.round, image), document.id)
            if first != document.id:
                problems.append(f"{split} round {document.round}: {first}, {document.id}: {image}")
            if in_cluster.setdefault(image, document.cluster) != document.cluster:
                problems.append(f"{split} {document.id}: {image} is in another cluster too")
    return problems
