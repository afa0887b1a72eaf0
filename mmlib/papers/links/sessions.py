"""Documents from upload sessions: photos that one person put online together, with some captions.

A Flickr photo id grows with the time of upload, and Flickr8k's file names begin with it. Photos
with nearby ids that look or read alike were taken on one occasion far more often than not. Few of
the official splits hold two of them, so `by_session` deals all images out anew, sessions whole.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

from mmlib.core.records import CaptionedImages
from mmlib.papers.links.assembly import (
    Build,
    CaptionSource,
    Counts,
    Group,
    Splits,
    split_rngs,
    take,
)
from mmlib.papers.links.documents import SPLITS, Corpus

CLOSE, NEAR, FAR = 300, 10_000, 100_000  # id distances: sure, with one likeness, with both
ALIKE = 0.99  # quantile of random pairs' cosines above which two photos are alike
SMALLEST, LARGEST = 2, 6  # photos of a session; longer runs of ids are no album
CAPTIONS = (0.2, 0.35, 0.25, 0.2)  # probability of 0, 1, 2 and 3 captions a photo
SHARES = {"val": 0.2, "test": 0.5}  # of the sessions; training has the others
TURNS = 3  # documents a val or test session: the same photos, other captions

Parts = tuple[str, int]  # split, row


def photo_number(image: str) -> int:
    """The Flickr photo id that begins a file name. Raises ValueError where there is none."""
    head = image.split("_")[0]
    if not head.isdigit():
        raise ValueError(f"{image!r} does not begin with a photo id: no session can be told")
    return int(head)


def sessions(
    numbers: Sequence[int], pictures: np.ndarray, texts: np.ndarray | csr_matrix, seed: int = 0
) -> list[np.ndarray]:
    """Groups of 2 to 6 rows that were most likely taken on one occasion, each in order of id.

    numbers: photo ids; pictures, texts: unit vectors of images and of their captions. Two photos
    are linked whose ids are less than 300 apart, or 10,000 and one likeness, or 100,000 and both;
    alike means above the 0.99 quantile of the cosines of random pairs. A session is a connected
    component; a larger one is left out whole.
    """
    ids = np.asarray(numbers, dtype=np.int64)
    count = len(ids)
    one, two = np.random.default_rng(seed).integers(0, count, (2, 20_000))
    one, two = one[one != two], two[one != two]
    limits = [np.quantile(_cosines(v, one, two), ALIKE) for v in (pictures, texts)]
    order = np.argsort(ids, kind="stable")
    ends = np.searchsorted(ids[order], ids[order] + FAR)
    pairs = [(i, j) for i in range(count) for j in range(i + 1, ends[i])]
    first, second = order[np.array(pairs, dtype=np.int64).reshape(-1, 2)].T
    apart = ids[second] - ids[first]
    likenesses = sum(
        (_cosines(v, first, second) > limit).astype(int)
        for v, limit in zip((pictures, texts), limits, strict=True)
    )
    linked = (apart < CLOSE) | ((apart < NEAR) & (likenesses > 0)) | (likenesses == 2)
    graph = csr_matrix((linked[linked], (first[linked], second[linked])), shape=(count, count))
    label = connected_components(graph, directed=False)[1]
    by_label = order[np.argsort(label[order], kind="stable")]
    members = np.split(by_label, np.cumsum(np.bincount(label))[:-1])
    return [rows for rows in members if SMALLEST <= len(rows) <= LARGEST]


def _cosines(unit: np.ndarray | csr_matrix, one: np.ndarray, two: np.ndarray) -> np.ndarray:
    if isinstance(unit, np.ndarray):
        return np.einsum("ij,ij->i", unit[one], unit[two])
    return np.asarray(unit[one].multiply(unit[two]).sum(axis=1)).ravel()


def by_session(splits: Splits, seed: int = 0) -> tuple[Splits, dict[str, list[np.ndarray]]]:
    """All images dealt out anew, a session whole into one split, and the sessions' rows there.

    Val and test hold nothing but sessions; training holds the other sessions and every image that
    belongs to none. Of images with identical features the first stays. Nothing here reads a link.
    """
    places: list[Parts] = [(s, r) for s in SPLITS for r in range(len(splits[s].ids))]
    content: dict[bytes, Parts] = {}
    for split, row in places:
        content.setdefault(np.asarray(splits[split].features[row]).tobytes(), (split, row))
    places = sorted(content.values(), key=lambda p: (photo_number(splits[p[0]].ids[p[1]]), p))
    pooled = np.stack([np.asarray(splits[s].features[r]).mean(axis=0) for s, r in places])
    captions = [" ".join(splits[s].captions[r]) for s, r in places]
    pictures = normalize((pooled - pooled.mean(axis=0)).astype(np.float64))
    texts = TfidfVectorizer(sublinear_tf=True, stop_words="english").fit_transform(captions)
    numbers = [photo_number(splits[s].ids[r]) for s, r in places]
    found = sessions(numbers, pictures, texts, seed)
    order = np.random.default_rng(seed).permutation(len(found))
    counts = {split: round(share * len(found)) for split, share in SHARES.items()}
    cut = {
        "val": order[: counts["val"]],
        "test": order[counts["val"] : sum(counts.values())],
        "train": order[sum(counts.values()) :],
    }
    held = {int(r) for s in SHARES for number in cut[s] for r in found[number]}
    rows = {s: [int(r) for number in cut[s] for r in found[number]] for s in SHARES}
    rows["train"] = [r for r in range(len(places)) if r not in held]
    dealt = {s: _gather(splits, [places[r] for r in rows[s]], s) for s in SPLITS}
    new = {s: {row: i for i, row in enumerate(rows[s])} for s in SPLITS}
    grouped = {s: [np.array([new[s][int(r)] for r in found[n]]) for n in cut[s]] for s in SPLITS}
    return dealt, grouped


def _gather(splits: Splits, places: Sequence[Parts], split: str) -> CaptionedImages:
    """One split made of rows of several."""
    model = splits["train"]
    scored = all(part.label_scores is not None for part in splits.values())
    return replace(
        model,
        split=split,
        ids=tuple(splits[s].ids[r] for s, r in places),
        captions=tuple(splits[s].captions[r] for s, r in places),
        features=np.stack([splits[s].features[r] for s, r in places]),
        open_image=lambda row: splits[places[row][0]].open_image(places[row][1]),
        label_scores=np.stack([splits[s].label_scores[r] for s, r in places]) if scored else None,  # type: ignore[index]
    )


def organic(
    splits: Splits, n_docs: Counts | None = None, seed: int = 0, turns: int = TURNS
) -> Corpus:
    """Upload sessions of 2 to 6 photos with 0 to 3 captions each: n and m vary, links are uneven.

    Val and test hold sessions only, the clusters, in `turns` rounds of other captions. A training
    round holds the training sessions and, since these are few, groups of the same sizes of the
    other images that look alike, regrouped each round. A document has at least two sentences; a
    photo may have none or several. Links stand on the sentence side.
    Raises ValueError where too few sessions are found or a leak is.
    """
    dealt, grouped = by_session(splits, seed)
    build = Build("organic", dealt)
    sizes = np.array([len(rows) for each in grouped.values() for rows in each])
    for split in SPLITS:
        if not grouped[split]:
            raise ValueError(f"{split}: no upload session found")
        grouping, choosing, shuffling = split_rngs(seed, split, 3)
        captions = CaptionSource(dealt[split], choosing)
        rounds = _rounds(split, dealt[split], grouped[split], sizes, grouping, turns)
        for number, (turn, cluster, rows) in enumerate(take(rounds, n_docs, split)):
            written = captions.draw(captions_each(rows, choosing), rows, len(rows) * len(CAPTIONS))
            build.add((split, turn, cluster, number), rows, written, shuffling, least=2)
    return build.corpus()


def captions_each(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Each photo as often as it gets a caption, 0 to 3 times, drawn anew until 2 are given."""
    while True:
        times = rng.choice(len(CAPTIONS), len(rows), p=CAPTIONS)
        if times.sum() >= 2:
            return np.repeat(rows, times)


def _rounds(
    split: str,
    images: CaptionedImages,
    found: Sequence[np.ndarray],
    sizes: np.ndarray,
    rng: np.random.Generator,
    turns: int,
) -> Iterator[Group]:
    """Rounds of disjoint groups: sessions, in training with look-alikes of the other images."""
    if split != "train":
        for turn in range(turns):
            for number, rows in enumerate(found):
                yield turn, f"{number:03d}", rows
        return
    pooled = np.asarray(images.features).mean(axis=1, dtype=np.float32)
    unit = normalize(pooled - pooled.mean(axis=0))
    outside = np.setdiff1d(np.arange(len(unit)), np.concatenate(found))
    turn = 0
    while True:
        groups = [*found, *look_alikes(unit, outside, sizes, rng)]
        for index in rng.permutation(len(groups)):
            yield turn, "000", groups[index]
        turn += 1


def look_alikes(
    unit: np.ndarray, rows: np.ndarray, sizes: np.ndarray, rng: np.random.Generator
) -> list[np.ndarray]:
    """Disjoint groups of `rows`: a random one and its nearest free ones, as many as drawn."""
    free = np.zeros(len(unit), dtype=bool)
    free[rows] = True
    groups = []
    for anchor in rng.permutation(rows):
        size = int(rng.choice(sizes))
        if not free[anchor] or free.sum() < size:
            continue
        free[anchor] = False
        candidates = np.flatnonzero(free)
        cosines = np.einsum("ij,j->i", unit[candidates], unit[anchor])
        nearest = candidates[np.argsort(-cosines, kind="stable")[: size - 1]]
        free[nearest] = False
        groups.append(np.array([anchor, *nearest]))
    return groups
