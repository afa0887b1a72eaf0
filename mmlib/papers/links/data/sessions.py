"""Documents from upload sessions: photos that one person put online together, with some captions.

A Flickr photo id grows with the time of upload, and Flickr8k's file names begin with it. Photos
with nearby ids that look or read alike were taken on one occasion far more often than not. Few of
the official splits hold two of them, so `by_session` deals all images out anew, sessions whole.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from mmlib.core.records import CaptionedImages
from mmlib.papers.links.data.builders import (
    CaptionSource,
    Counts,
    Draft,
    Rng,
    Splits,
    assemble,
    image_vectors,
    look_alikes,
)
from mmlib.papers.links.data.documents import SPLITS, Corpus

CLOSE, NEAR, FAR = 300, 10_000, 100_000  # id distances: sure, with one likeness, with both
ALIKE = 0.99  # quantile of random pairs' cosines above which two photos are alike
SMALLEST, LARGEST = 2, 6  # photos of a session; longer runs of ids are no album
CAPTIONS = (0.2, 0.35, 0.25, 0.2)  # probability of 0, 1, 2 and 3 captions a photo
SHARES = {"val": 0.2, "test": 0.5}  # of the sessions; training has the others
TURNS = 3  # documents a val or test session: the same photos, other captions

Origin = tuple[str, int]  # split, row


def photo_number(image: str) -> int:
    """The Flickr photo id that begins a file name."""
    return int(image.split("_")[0])


def sessions(
    numbers: Sequence[int], pictures: np.ndarray, texts: np.ndarray | csr_matrix
) -> list[np.ndarray]:
    """Groups of 2 to 6 rows that were most likely taken on one occasion, each in order of id.

    numbers: photo ids; pictures, texts: unit vectors of images and of their captions. Two photos
    are linked whose ids are less than 300 apart, or 10,000 and one likeness, or 100,000 and both;
    alike means above the 0.99 quantile of the cosines of random pairs. A session is a connected
    component; a larger one is left out whole.
    """
    ids = np.asarray(numbers, dtype=np.int64)
    size = len(ids)
    a, b = np.random.default_rng(0).integers(0, size, (2, 20_000))
    a, b = a[a != b], b[a != b]
    limits = [np.quantile(_cosines(v, a, b), ALIKE) for v in (pictures, texts)]
    order = np.argsort(ids, kind="stable")
    ends = np.searchsorted(ids[order], ids[order] + FAR)
    pairs = [(i, j) for i in range(size) for j in range(i + 1, ends[i])]
    first, second = order[np.array(pairs, dtype=np.int64).reshape(-1, 2)].T
    apart = ids[second] - ids[first]
    likenesses = sum(
        (_cosines(v, first, second) > limit).astype(int)
        for v, limit in zip((pictures, texts), limits, strict=True)
    )
    linked = (apart < CLOSE) | ((apart < NEAR) & (likenesses > 0)) | (likenesses == 2)
    graph = csr_matrix((linked[linked], (first[linked], second[linked])), shape=(size, size))
    label = connected_components(graph, directed=False)[1]
    by_label = order[np.argsort(label[order], kind="stable")]
    members = np.split(by_label, np.cumsum(np.bincount(label))[:-1])
    return [rows for rows in members if SMALLEST <= len(rows) <= LARGEST]


def _cosines(unit: np.ndarray | csr_matrix, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if isinstance(unit, np.ndarray):
        return np.einsum("ij,ij->i", unit[a], unit[b])
    return np.asarray(unit[a].multiply(unit[b]).sum(axis=1)).ravel()


def by_session(splits: Splits) -> tuple[Splits, dict[str, list[np.ndarray]]]:
    """All images dealt out anew, a session whole into one split, and the sessions' rows there.

    Val and test hold nothing but sessions; training holds the other sessions and every image that
    belongs to none. Of images with identical features the first stays. Nothing here reads a link.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer  # not where one only trains
    from sklearn.preprocessing import normalize

    origins: list[Origin] = [(s, r) for s in SPLITS for r in range(len(splits[s].ids))]
    content: dict[bytes, Origin] = {}
    for split, row in origins:
        content.setdefault(np.asarray(splits[split].features[row]).tobytes(), (split, row))
    origins = sorted(content.values(), key=lambda o: (photo_number(splits[o[0]].ids[o[1]]), o))
    vectors = np.stack([np.asarray(splits[s].features[r]).mean(axis=0) for s, r in origins])
    captions = [" ".join(splits[s].captions[r]) for s, r in origins]
    pictures = normalize((vectors - vectors.mean(axis=0)).astype(np.float64))
    texts = TfidfVectorizer(sublinear_tf=True, stop_words="english").fit_transform(captions)
    groups = sessions([photo_number(splits[s].ids[r]) for s, r in origins], pictures, texts)
    order = np.random.default_rng(0).permutation(len(groups))
    val, test = (round(SHARES[split] * len(groups)) for split in ("val", "test"))
    numbers = {"val": order[:val], "test": order[val : val + test], "train": order[val + test :]}
    rows = {s: [int(r) for number in numbers[s] for r in groups[number]] for s in SHARES}
    rows["train"] = sorted({*range(len(origins))} - {*rows["val"], *rows["test"]})

    def gathered(split: str) -> CaptionedImages:
        members = [origins[row] for row in rows[split]]
        scores = [s[r] for name, r in members if (s := splits[name].label_scores) is not None]
        return replace(
            splits["train"],
            split=split,
            ids=tuple(splits[s].ids[r] for s, r in members),
            captions=tuple(splits[s].captions[r] for s, r in members),
            features=np.stack([splits[s].features[r] for s, r in members]),
            open_image=lambda row: splits[members[row][0]].open_image(members[row][1]),
            label_scores=np.stack(scores) if len(scores) == len(members) else None,
        )

    new = {row: i for split in SPLITS for i, row in enumerate(rows[split])}
    sessions_of = {
        split: [np.array([new[int(row)] for row in groups[number]]) for number in numbers[split]]
        for split in SPLITS
    }
    return {split: gathered(split) for split in SPLITS}, sessions_of


def organic(splits: Splits, n_docs: Counts | None = None) -> Corpus:
    """Upload sessions of 2 to 6 photos with 0 to 3 captions each: n and m vary, links are uneven.

    Val and test hold sessions only, the clusters, in three rounds of other captions. A training
    round holds the training sessions and, since these are few, groups of the same sizes of the
    other images that look alike, regrouped each round. A document has at least two sentences; a
    photo may have none or several. Links stand on the sentence side.
    Raises ValueError where too few sessions are found or a leak is.
    """
    from sklearn.preprocessing import normalize

    dealt, grouped = by_session(splits)
    sizes = np.array([len(rows) for groups in grouped.values() for rows in groups])

    def drafts(split: str, grouping: Rng, choosing: Rng) -> Iterator[Draft]:
        captions = CaptionSource(dealt[split], choosing)
        groups = grouped[split]
        if not groups:
            raise ValueError(f"{split}: no upload session found")
        vectors = image_vectors(dealt[split])
        unit = normalize(vectors - vectors.mean(axis=0))
        outside = np.setdiff1d(np.arange(len(unit)), np.concatenate(groups))
        for turn in count() if split == "train" else range(TURNS):
            shown = groups
            if split == "train":
                others = look_alikes(unit, outside, grouping, lambda: int(grouping.choice(sizes)))
                shown = [*groups, *others]
                shown = [shown[index] for index in grouping.permutation(len(shown))]
            for number, rows in enumerate(shown):
                cluster = 0 if split == "train" else number
                times = choosing.choice(len(CAPTIONS), len(rows), p=CAPTIONS)
                while times.sum() < 2:
                    times = choosing.choice(len(CAPTIONS), len(rows), p=CAPTIONS)
                writers = np.repeat(rows, times)
                yield Draft(turn, cluster, rows, captions.draw(writers, rows, len(writers)), 2)

    return assemble("organic", dealt, drafts, n_docs)
