"""Automatic checks that documents built from captioned images do not give their links away."""

import numpy as np

from mmlib.core.records import normalised
from mmlib.papers.links.data.documents import ROUND_AND_CLUSTER, SPLITS, Corpus


def check_leaks(corpus: Corpus) -> None:
    """Raise ValueError, listing what was found, when documents give away what must stay hidden.

    Checked: no image id and no identical feature vector in two splits; inside a document no image
    twice, no two sentences with the same normalised text, no unlinked sentence written for one of
    its images; documents of one round share no source image; in splits with several clusters,
    documents of different clusters share none.
    """
    problems: list[str] = []
    split_of: dict[object, tuple[str, str]] = {}
    for split in SPLITS:
        in_round: dict[tuple[int, str], str] = {}
        in_cluster: dict[str, str] = {}
        images_of_split: set[str] = set()
        for document in corpus.split(split):
            # All images that it was made from, shown or only described.
            images = {*document.images, *corpus.sources.get(document.id, ())} - {""}
            images_of_split |= images
            where = f"{split} {document.id}:"
            if len(set(document.images)) < len(document.images):
                problems.append(f"{where} an image occurs twice")
            if len({normalised(text) for text in document.sentences}) < len(document.sentences):
                problems.append(f"{where} two sentences have the same text")
            if document.labelled and document.id in corpus.sources:
                linked = np.any(document.link_matrix(), axis=1).tolist()
                problems += [
                    f"{where} unlinked sentence {number} was written for its image {source}"
                    for number, source in enumerate(corpus.sources[document.id])
                    if not linked[number] and source in document.images
                ]
            if not ROUND_AND_CLUSTER.search(document.id):
                continue
            for image in sorted(images):
                first = in_round.setdefault((document.round, image), document.id)
                if first != document.id:
                    both = f"{first}, {document.id}: {image}"
                    problems.append(f"{split} round {document.round}: {both}")
                if in_cluster.setdefault(image, document.cluster) != document.cluster:
                    problems.append(f"{where} {image} is in another cluster too")
        for image in sorted(images_of_split):
            keys: list[tuple] = [("id", image)]
            if image in corpus.row_of:
                keys.append(("feature vector", corpus.features[corpus.row_of[image]].tobytes()))
            for key in keys:
                other, twin = split_of.setdefault(key, (split, image))
                if other != split:
                    problems.append(f"{other} {twin} and {split} {image} have the same {key[0]}")
    if problems:
        omitted = f" (and {len(problems) - 5} more)" if len(problems) > 5 else ""
        raise ValueError(
            "leaks: " + "; ".join(problems[:5]) + omitted + "; rebuild these documents"
        )
