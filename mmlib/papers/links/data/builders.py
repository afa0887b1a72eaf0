"""Documents with known links, built from any captioned image collection.

Every builder takes one CaptionedImages per split, uses a split's images for that split
only, shuffles images and sentences independently before the links are written down (on the
sentence side), and ends with `check_leaks`. Documents come in rounds whose members share no source
image, so that in-batch negatives drawn inside a round are clean. In val and test, documents of
different clusters share no source image over all rounds, so that clusters can be resampled.

n_docs: documents a split, as many rounds as that takes; one round where it is not given.
"""

import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from mmlib.core.records import CaptionedImages, normalised
from mmlib.papers.links.data.documents import SPLITS, Corpus, Document, check_leaks
from mmlib.world import WorldImages
from mmlib.world.logic import satisfies

BLOCK = 30  # images of a val or test cluster where documents are random
GROUP = 5  # linked pairs of a document
DISTRACTORS = {"coco": 5, "mixed5": 0}  # images without a caption, and captions without an image
TIGHTEST = 0.9  # share of the groups that stays
NEAR_DUPLICATE = 0.99  # quantile of training images' nearest-neighbour cosines, the ceiling

Splits = Mapping[str, CaptionedImages]
Counts = Mapping[str, int]
Rng = np.random.Generator
Rows = Collection[int] | np.ndarray
Sentence = tuple[str, int]  # text, row of the image it was written for (-1 for none)

# --- What all builders share -----------------------------------------------------------------


class CaptionSource:
    """Hands out the captions of one split so that each is used about equally often.

    rows: the usable images: those with a caption, the first where features are identical.
    """

    def __init__(self, images: CaptionedImages, rng: Rng) -> None:
        self.captions = images.captions
        self.row_of = {image: row for row, image in enumerate(images.ids)}
        self.texts = [[normalised(caption) for caption in texts] for texts in images.captions]
        self.order = [rng.permutation(len(texts)) for texts in images.captions]
        self.used = np.zeros(len(images.ids), dtype=int)
        first: dict[bytes, int] = {}
        for row, texts in enumerate(self.texts):
            if any(texts):
                first.setdefault(np.asarray(images.features[row]).tobytes(), row)
        self.rows = np.array(list(first.values()), dtype=np.int64)

    def draw(
        self, writers: Rows, shown: Rows, count: int, others: Collection[str] = ()
    ) -> list[Sentence]:
        """Captions of the writers in turn, up to `count`; a writer without a fitting one is passed.

        No two have the same text, none repeats one of `others`, and none is also a caption of
        another image that is shown: such a cell would count as unlinked although it is right.
        """
        chosen: list[Sentence] = []
        taken = {normalised(text) for text in others}
        of_shown = Counter(text for row in shown for text in set(self.texts[row]))
        shown = set(map(int, shown))
        for row in map(int, writers):
            if len(chosen) == count:
                break
            order = self.order[row]
            for step in range(len(order)):
                choice = order[(self.used[row] + step) % len(order)]
                text = self.texts[row][choice]
                # Its own captions count once where the writer itself is shown.
                if text and text not in taken and of_shown[text] <= (row in shown):
                    self.used[row] += step + 1
                    taken.add(text)
                    chosen.append((self.captions[row][choice], row))
                    break
        return chosen


@dataclass(frozen=True)
class Draft:
    """A document in the making: the rows of its images, and its sentences.

    least: with fewer sentences it is left out. number: the end of its id; None: its position among
    the drafts of the split. links: (sentence, image) positions; None: each sentence is linked to
    the image it was written for, if that is shown.
    """

    round: int
    cluster: int
    shown: Rows
    written: list[Sentence]
    least: int = 0
    number: int | None = None
    links: Collection[tuple[int, int]] | None = None


def assemble(
    kind: str, photos: Splits, drafts: Callable[..., Iterator[Draft]],
    n_docs: Counts | None = None, every: bool = False, streams: int = 2,
) -> Corpus:  # fmt: skip
    """The corpus of as many drafts a split as asked for, else of those of round 0, or of every one.

    drafts: (split, as many random streams) -> its drafts, perhaps endless. A further stream
    shuffles images and sentences, independently, before the links are written down. Streams are
    of their own for each split and use, so that more documents leave the first ones.
    Raises ValueError where a split has fewer drafts or a leak is found.
    """
    documents, dropped = {split: list[Document]() for split in SPLITS}, 0
    for position, split in enumerate(SPLITS):
        *others, shuffling = np.random.default_rng((0, position)).spawn(streams + 1)
        wanted, drawn, ids = (n_docs or {}).get(split), 0, photos[split].ids
        for draft in drafts(split, *others):
            if drawn == wanted or (wanted is None and draft.round and not every):
                break
            drawn += 1
            if len(draft.written) < draft.least:
                dropped += 1
                continue
            rows, (texts, sources) = list(draft.shown), zip(*draft.written, strict=True)
            of_sources = [(i, rows.index(row)) for i, row in enumerate(sources) if row in rows]
            links = of_sources if draft.links is None else draft.links
            images, order = shuffling.permutation(len(rows)), shuffling.permutation(len(texts))
            new_image, new = np.argsort(images), np.argsort(order)
            number = drawn - 1 if draft.number is None else draft.number
            cluster = f"{draft.cluster:03d}"
            documents[split].append(
                Document(
                    id=f"{kind}-{split}-r{draft.round}-c{cluster}-{number:04d}",
                    sentences=tuple(texts[i] for i in order),
                    images=tuple(ids[rows[j]] for j in images),
                    links=tuple(sorted((int(new[i]), int(new_image[j])) for i, j in links)),
                    sources=tuple(ids[sources[i]] if sources[i] >= 0 else "" for i in order),
                    round=draft.round,
                    cluster=cluster,
                )
            )
        if drawn < (wanted or 0):
            raise ValueError(f"{split}: {wanted} documents asked for, {drawn} can be made")
    if dropped:
        warnings.warn(f"{kind}: left out {dropped} unfilled documents", stacklevel=3)
    collections = [photos[split] for split in SPLITS]
    origin = {
        image: (images, row) for images in collections for row, image in enumerate(images.ids)
    }
    scores = [images.label_scores for images in collections if images.label_scores is not None]
    corpus = Corpus(
        name=kind,
        train=tuple(documents["train"]),
        val=tuple(documents["val"]),
        test=tuple(documents["test"]),
        features=np.concatenate([image_vectors(images) for images in collections]),
        row_of={image: row for row, image in enumerate(origin)},
        open_image=lambda image: origin[image][0].open_image(origin[image][1]),
        label_scores=np.concatenate(scores) if len(scores) == len(collections) else None,
        label_names=collections[0].label_names,
        truth=_truth(photos["test"], documents["test"]),
    )
    check_leaks(corpus)
    return corpus


def _truth(images: CaptionedImages, documents: list[Document]) -> tuple[np.ndarray, ...] | None:
    if not isinstance(images, WorldImages) or not images.gold:
        return None
    scene_of = dict(zip(images.ids, images.scenes, strict=True))
    graph_of = {
        (image, caption.text): caption.graph
        for image, captions in zip(images.ids, images.gold, strict=True)
        for caption in reversed(captions)
    }
    truth = [
        [
            [satisfies(scene_of[image], graph_of[source, text]) for image in document.images]
            for text, source in zip(document.sentences, document.sources, strict=True)
        ]
        for document in documents
    ]
    return tuple(np.array(matrix, dtype=float) for matrix in truth)


def image_vectors(images: CaptionedImages) -> np.ndarray:
    """One vector an image, (images, width) float32: the mean over its regions."""
    return np.asarray(images.features).mean(axis=1, dtype=np.float32)


# --- Random images, and images that look alike -----------------------------------------------


def random_documents(kind: str, photos: Splits, n_docs: Counts | None = None) -> Corpus:
    """5 linked pairs of random images, and as many distractors as the kind has.

    kind: "coco", the MSCOCO role, 10 x 10, density 5 %; or "mixed5", the control for `cohesive`,
    5 x 5, density 20 %. Training rounds permute the whole split. Val and test images lie in fixed
    blocks of 30, the clusters, and each round permutes inside them.
    Raises ValueError when a split has too few images or a leak is found.
    """
    shown, size = GROUP + DISTRACTORS[kind], GROUP + 2 * DISTRACTORS[kind]

    def drafts(split: str, rng: Rng, choosing: Rng) -> Iterator[Draft]:
        captions = CaptionSource(photos[split], choosing)
        usable = len(captions.rows)
        block = usable if split == "train" else BLOCK
        if usable < max(size, block):
            raise ValueError(f"{split} has {usable} usable images; give it {max(size, block)}")
        # The last block takes what is left over.
        blocks = np.split(rng.permutation(captions.rows), np.arange(1, usable // block) * block)
        for turn in count():
            for number, members in enumerate(blocks):
                order = rng.permutation(members)
                for start in range(0, len(order) - size + 1, size):
                    rows = order[start : start + size]
                    writers = np.concatenate([rows[:GROUP], rows[shown:]])
                    written = captions.draw(writers, rows[:shown], len(writers))
                    yield Draft(turn, number, rows[:shown], written, len(writers))

    return assemble(kind, photos, drafts, n_docs)


def cohesive(photos: Splits, n_docs: Counts | None = None) -> Corpus:
    """The Story-DII role: 5 images that look alike and a caption of each; 5 x 5, density 20 %.

    A group is a random unused image with its nearest unused neighbours, by the cosine of image
    features, centred by training images. Near-duplicates stay apart, and the loosest tenth of the
    groups is left out. Training is grouped anew each round; val and test once, their further
    rounds take other captions of the same groups, which are the clusters.
    Raises ValueError when a split has too few images or captions, or a leak is found.
    """
    from sklearn.preprocessing import normalize  # not on a machine that only trains

    raw = {split: image_vectors(photos[split]) for split in SPLITS}
    centre = raw["train"].mean(axis=0)
    vectors = {split: normalize(features - centre) for split, features in raw.items()}
    sample = np.random.default_rng(0).permutation(len(vectors["train"]))[:1000]
    cosines = vectors["train"][sample] @ vectors["train"].T
    cosines[np.arange(len(sample)), sample] = -1
    ceiling = float(np.quantile(cosines.max(axis=1), NEAR_DUPLICATE))

    def drafts(split: str, rng: Rng, choosing: Rng) -> Iterator[Draft]:
        captions = CaptionSource(photos[split], choosing)
        groups = _similar_groups(captions.rows, vectors[split], ceiling, rng)
        if not groups:
            usable = len(captions.rows)
            raise ValueError(f"{split} has {usable} usable images, no {GROUP} of them alike")
        fewest = min(len(captions.texts[row]) for row in np.concatenate(groups))
        for turn in count() if split == "train" else range(fewest):
            if split == "train" and turn:
                groups = _similar_groups(captions.rows, vectors[split], ceiling, rng)
            for number, rows in enumerate(groups):
                cluster = 0 if split == "train" else number
                yield Draft(turn, cluster, rows, captions.draw(rows, rows, GROUP), GROUP)

    return assemble("cohesive", photos, drafts, n_docs)


def _similar_groups(
    rows: np.ndarray, vectors: np.ndarray, ceiling: float, rng: Rng
) -> list[np.ndarray]:
    groups = look_alikes(vectors, rows, rng, ceiling=ceiling)
    # 1 - |mean|^2 of unit vectors: 0 where all are equal.
    spreads = [1.0 - float(np.square(vectors[group].mean(axis=0)).sum()) for group in groups]
    limit = np.quantile(spreads, TIGHTEST) if groups else 0.0
    return [group for group, spread in zip(groups, spreads, strict=True) if spread <= limit]


def look_alikes(
    unit: np.ndarray, rows: np.ndarray, rng: Rng, size: Callable[[], int] = lambda: GROUP,
    ceiling: float = np.inf,
) -> list[np.ndarray]:  # fmt: skip
    """Disjoint groups of `rows` of unit vectors: a random free one with its nearest free ones.

    size: -> how many the next group has. ceiling: the highest cosine in a group, so that
    near-duplicates stay apart. An image without enough free ones near it is in no group.
    """
    free = np.zeros(len(unit), dtype=bool)
    free[rows] = True
    groups = []
    for anchor in rng.permutation(rows):
        count = size()
        if not free[anchor] or free.sum() < count:
            continue
        free[anchor] = False
        cosines = np.where(free, _products(unit, unit[anchor]), -np.inf)
        nearby = min(10 * count, int(free.sum()))
        near = np.argpartition(-cosines, nearby - 1)[:nearby]
        group = [int(anchor)]
        for row in near[np.argsort(-cosines[near], kind="stable")].tolist():
            if len(group) < count and _products(unit[group], unit[row]).max() <= ceiling:
                group.append(row)
        if len(group) == count:
            free[group] = False
            groups.append(np.array(group))
    return groups


def _products(vectors: np.ndarray, vector: np.ndarray) -> np.ndarray:
    return np.einsum("ij,j->i", vectors, vector)  # BLAS's threads would cost more than they give


# --- Similar images among the captions of others ---------------------------------------------


def stress(similar: Corpus, photos: Splits, captions: int = 45, per_source: int = 1) -> Corpus:
    """The DII-Stress role: each `cohesive` document with 45 more captions; 50 x 5, density 2 %.

    Groups lie in super-blocks, the clusters: one group is the document, the images of the others
    give `per_source` captions each (more per source: smaller super-blocks). The number that ends
    an id is that of the cohesive document with the same 5 images and 5 captions.
    Raises ValueError when a split has too few groups or a leak is found.
    """

    def write(document: Document, source: CaptionSource, _: Rng) -> Linked:
        writers = [source.row_of[image] for image in document.sources]
        written = list(zip(document.sentences, writers, strict=True))
        return written, len(written) + captions

    return _among_others("stress", similar, photos, captions, per_source, write)


def unlabelled_articles(
    similar: Corpus, photos: Splits, sentences: tuple[int, int] = (30, 90)
) -> Corpus:
    """The WIKI role: 5 similar images and 30 to 90 sentences, links unknown.

    Each image has 0 to 5 of its captions in the document; the rest are captions of images of other
    groups, three each. The corpus has the sealed key of its test documents, only for
    judging what was read out. Raises ValueError when a split has too few groups or a leak is found.
    """

    def write(document: Document, captions: CaptionSource, choosing: Rng) -> Linked:
        rows = [captions.row_of[image] for image in document.images]
        total = int(choosing.integers(sentences[0], sentences[1] + 1))
        writers = np.repeat(rows, choosing.integers(0, 6, len(rows)))
        return captions.draw(writers, rows, total), total

    corpus = _among_others("unlabelled", similar, photos, sentences[1], 3, write)
    train, val, test = (
        tuple(replace(document, links=None, sources=()) for document in corpus.split(split))
        for split in SPLITS
    )
    key = tuple(document.link_matrix() for document in corpus.test)
    return replace(corpus, train=train, val=val, test=test, key=key)


Linked = tuple[list[Sentence], int]  # the linked sentences, and how many there are in all


def _among_others(
    kind: str, similar: Corpus, photos: Splits, most: int, per_source: int,
    write: Callable[[Document, CaptionSource, Rng], Linked],
) -> Corpus:  # fmt: skip
    """The images of each `similar` document with captions of images of its block's others.

    most: how many captions of others a document may need. A block has `size` groups or a few more.
    Position in the block makes the round, so that one round holds one document a block. Val and
    test keep their blocks over all rounds.
    """
    size = 1 + -(-most // (GROUP * per_source))

    def drafts(split: str, rng: Rng, choosing: Rng) -> Iterator[Draft]:
        captions = CaptionSource(photos[split], choosing)

        def name(document: Document) -> str:  # val and test show a group again, training never
            return document.id if split == "train" else document.cluster

        pools: dict[int, list[Document]] = defaultdict(list)
        for document in similar.split(split):
            pools[document.round if split == "train" else 0].append(document)
        for first, pool in pools.items():
            groups = {name(document): document.images for document in pool}
            if len(groups) < size:
                if first != min(pools):
                    return  # The rest of a last, incomplete round.
                raise ValueError(
                    f"{split} has {len(groups)} groups of similar images, needs {size}: "
                    "give more images, or ask for fewer captions or more per source"
                )
            order = rng.permutation(list(groups))
            blocks = [names.tolist() for names in np.array_split(order, len(groups) // size)]
            home = {group: number for number, block in enumerate(blocks) for group in block}
            for document in pool:
                number = home[name(document)]
                position = blocks[number].index(name(document))
                others = [v for g in blocks[number] if g != name(document) for v in groups[g]]
                rows = [captions.row_of[image] for image in document.images]
                written, total = write(document, captions, choosing)
                # One more turn of the writers than needed makes up for captions that do not fit.
                writers = [captions.row_of[image] for image in rng.permutation(others)]
                written = written + captions.draw(
                    writers * (per_source + 1), rows, total - len(written),
                    [text for text, _ in written],
                )  # fmt: skip
                same, cluster = int(document.id.rsplit("-", 1)[1]), number * (split != "train")
                turn = document.round * 2 * size + position
                yield Draft(turn, cluster, rows, written, total, same)

    return assemble(kind, photos, drafts, every=True)
