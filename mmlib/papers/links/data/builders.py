"""Documents with known links, built from any captioned image collection.

Every builder takes one CaptionedImages per split and a seed, uses a split's images for that split
only, shuffles images and sentences independently before the links are written down (on the
sentence side), and ends with `check_leaks`. Documents come in rounds whose members share no source
image, so that in-batch negatives drawn inside a round are clean. In val and test, documents of
different clusters share no source image over all rounds, so that clusters can be resampled.

n_docs: documents a split, as many rounds as that takes; one round where it is not given.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from mmlib.papers.links.data import assembly
from mmlib.papers.links.data.assembly import Build, CaptionSource, Counts, Splits
from mmlib.papers.links.data.documents import SPLITS, UNLABELLED, Corpus, Document, Study

BLOCK = 30  # images of a val or test cluster where documents are random
GROUP = 5  # linked pairs of a document
DISTRACTORS = {"coco": 5, "mixed5": 0}  # images without a caption, and captions without an image
TIGHTEST = 0.9  # share of the groups that stays
NEAR_DUPLICATE = 0.99  # quantile of training images' nearest-neighbour cosines, the ceiling


def from_photos(
    kinds: Sequence[str], photos: Splits, counts: Mapping[str, Counts], stress_rounds: int,
    sentences: tuple[int, int],
) -> Study:  # fmt: skip
    """Of the kinds of documents asked for those that this module builds, and unlabelled articles.

    stress_rounds: of training documents that `stress` is made from; sentences: of an article.
    """
    corpora = {
        kind: random_documents(kind, photos, counts[kind]) for kind in DISTRACTORS if kind in kinds
    }
    if not {"cohesive", "stress", UNLABELLED} & set(kinds):
        return Study(corpora)
    similar = cohesive(photos, counts["cohesive"])
    if "cohesive" in kinds:
        corpora["cohesive"] = similar
    if "stress" in kinds:
        first = tuple(d for d in similar.train if d.round < stress_rounds)
        corpora["stress"] = stress(replace(similar, train=first), photos, per_source=3)
    if UNLABELLED not in kinds:
        return Study(corpora)
    few = replace(similar, train=similar.train[:330], val=similar.val[:66], test=similar.test[:110])
    return Study(corpora, *unlabelled_articles(few, photos, sentences))


def random_documents(
    kind: str, splits: Splits, n_docs: Counts | None = None, seed: int = 0
) -> Corpus:
    """5 linked pairs of random images, and as many distractors as the kind has.

    kind: "coco", the MSCOCO role, 10 x 10, density 5 %; or "mixed5", the control for `cohesive`,
    5 x 5, density 20 %. Training rounds permute the whole split. Val and test images lie in fixed
    blocks of 30, the clusters, and each round permutes inside them.
    Raises ValueError when a split has too few images or a leak is found.
    """
    build = Build(kind, splits)
    shown = GROUP + DISTRACTORS[kind]
    for split in SPLITS:
        grouping, choosing, shuffling = assembly.split_rngs(seed, split, 3)
        captions = CaptionSource(splits[split], choosing)
        groups = _random_groups(split, captions.rows, shown + DISTRACTORS[kind], grouping)
        for number, (turn, cluster, rows) in enumerate(assembly.take(groups, n_docs, split)):
            writers = np.concatenate([rows[:GROUP], rows[shown:]])
            sentences = captions.draw(writers, rows[:shown], len(writers))
            position = (split, turn, cluster, number)
            build.add(position, rows[:shown], sentences, shuffling, least=len(writers))
    return build.corpus()


def _random_groups(
    split: str, rows: np.ndarray, size: int, rng: np.random.Generator
) -> Iterator[assembly.Group]:
    """Endless rounds of disjoint groups of `size` random rows."""
    block = len(rows) if split == "train" else BLOCK
    if len(rows) < max(size, block):
        raise ValueError(f"{split} has {len(rows)} usable images; give it {max(size, block)}")
    # The last block takes what is left over.
    blocks = np.split(rng.permutation(rows), np.arange(1, len(rows) // block) * block)
    for turn in count():
        for number, members in enumerate(blocks):
            order = rng.permutation(members)
            for start in range(0, len(order) - size + 1, size):
                yield turn, f"{number:03d}", order[start : start + size]


def cohesive(splits: Splits, n_docs: Counts | None = None, seed: int = 0) -> Corpus:
    """The Story-DII role: 5 images that look alike and a caption of each; 5 x 5, density 20 %.

    A group is a random unused image with its nearest unused neighbours, by the cosine of image
    features, centred by training images. Near-duplicates stay apart, and the loosest tenth of the
    groups is left out. Training is grouped anew each round; val and test once, their further
    rounds take other captions of the same groups, which are the clusters.
    Raises ValueError when a split has too few images or captions, or a leak is found.
    """
    from sklearn.preprocessing import normalize  # not on a machine that only trains

    build = Build("cohesive", splits)
    raw = {split: assembly.image_vectors(splits[split]) for split in SPLITS}
    centre = raw["train"].mean(axis=0)
    vectors = {split: normalize(features - centre) for split, features in raw.items()}
    some = np.random.default_rng(seed).permutation(len(vectors["train"]))[:1000]
    cosines = vectors["train"][some] @ vectors["train"].T
    cosines[np.arange(len(some)), some] = -1
    ceiling = float(np.quantile(cosines.max(axis=1), NEAR_DUPLICATE))
    for split in SPLITS:
        grouping, choosing, shuffling = assembly.split_rngs(seed, split, 3)
        captions = CaptionSource(splits[split], choosing)
        groups = _similar_rounds(split, captions, vectors[split], ceiling, grouping)
        for number, (turn, cluster, rows) in enumerate(assembly.take(groups, n_docs, split)):
            sentences = captions.draw(rows, rows, GROUP)
            build.add((split, turn, cluster, number), rows, sentences, shuffling, least=GROUP)
    return build.corpus()


def _similar_rounds(
    split: str, captions: CaptionSource, vectors: np.ndarray, ceiling: float,
    rng: np.random.Generator,
) -> Iterator[assembly.Group]:  # fmt: skip
    """Rounds of groups of similar images: others each time in training, else the same."""
    groups = _similar_groups(captions.rows, vectors, ceiling, rng)
    if not groups:
        raise ValueError(
            f"{split} has {len(captions.rows)} usable images, no {GROUP} of them alike"
        )
    fewest = min(len(captions.texts[row]) for row in np.concatenate(groups))
    for turn in count() if split == "train" else range(fewest):
        if split == "train" and turn:
            groups = _similar_groups(captions.rows, vectors, ceiling, rng)
        for number, rows in enumerate(groups):
            yield turn, "000" if split == "train" else f"{number:03d}", rows


def _similar_groups(
    rows: np.ndarray, vectors: np.ndarray, ceiling: float, rng: np.random.Generator
) -> list[np.ndarray]:
    """Disjoint groups of similar rows, in random order, the loosest left out."""
    free = np.zeros(vectors.shape[0], dtype=bool)
    free[rows] = True
    groups = []
    for anchor in rng.permutation(rows):
        if not free[anchor]:
            continue
        free[anchor] = False
        cosines = np.where(free, _products(vectors, vectors[anchor]), -np.inf)
        most = min(10 * GROUP, int(free.sum()))
        near = np.argpartition(-cosines, most - 1)[:most] if most else np.arange(0)
        nearest = near[np.argsort(-cosines[near], kind="stable")]
        group = [int(anchor)]
        for row in nearest.tolist():  # without near-duplicates of one already in the group
            if len(group) < GROUP and _products(vectors[group], vectors[row]).max() <= ceiling:
                group.append(row)
        if len(group) == GROUP:
            free[group] = False
            groups.append(np.array(group))
    # 1 - |mean|^2 of unit vectors: 0 where all are equal.
    means = [vectors[group].mean(axis=0) for group in groups]
    spreads = np.array([1.0 - float(np.square(mean).sum()) for mean in means])
    limit = np.quantile(spreads, TIGHTEST) if groups else 0.0
    return [group for group, spread in zip(groups, spreads, strict=True) if spread <= limit]


def _products(vectors: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """vectors @ vector without BLAS, whose threads cost more here than they give."""
    return np.einsum("ij,j->i", vectors, vector)


def stress(
    similar: Corpus, splits: Splits, captions: int = 45, per_source: int = 1, seed: int = 0
) -> Corpus:
    """The DII-Stress role: each `cohesive` document with 45 more captions; 50 x 5, density 2 %.

    Groups lie in super-blocks, the clusters: one group is the document, the images of the others
    give `per_source` captions each (more per source: smaller super-blocks). The number that ends
    an id is that of the cohesive document with the same 5 images and 5 captions.
    Raises ValueError when a split has too few groups or a leak is found.
    """

    def write(document: Document, row_of: Mapping[str, int], *_: Any) -> Sentences:
        writers = [row_of[image] for image in similar.sources[document.id]]
        written = list(zip(document.sentences, writers, strict=True))
        return written, len(written) + captions

    return _among_others("stress", similar, splits, captions, per_source, seed, write).corpus()


Sentences = tuple[list[assembly.Sentence], int]  # linked ones, and how many there are in all


def _among_others(
    kind: str, similar: Corpus, splits: Splits, most: int, per_source: int, seed: int,
    write: Callable[..., Sentences],
) -> Build:  # fmt: skip
    """The images of each `similar` document with captions of images of its block's others.

    most: how many captions of others a document may need; write: (document, row of each image,
    captions of the split, random numbers) -> its linked sentences, and how many there are in all.
    """
    build = Build(kind, splits)
    size = 1 + -(-most // (GROUP * per_source))
    for split in SPLITS:
        grouping, choosing, shuffling = assembly.split_rngs(seed, split, 3)
        source = CaptionSource(splits[split], choosing)
        row_of = {image: row for row, image in enumerate(splits[split].ids)}
        for document, turn, cluster, others in _super_blocks(similar, split, size, grouping):
            rows = [row_of[image] for image in document.images]
            written, total = write(document, row_of, source, choosing)
            # One more turn of the writers than needed makes up for captions that do not fit.
            writers = np.tile(
                [row_of[image] for image in grouping.permutation(others)], per_source + 1
            )
            texts = [text for text, _ in written]
            written = written + source.draw(writers, rows, total - len(written), texts)
            number = int(document.id.rsplit("-", 1)[1])
            build.add((split, turn, cluster, number), rows, written, shuffling, least=total)
    return build


def _super_blocks(
    similar: Corpus, split: str, size: int, rng: np.random.Generator
) -> Iterator[tuple[Document, int, str, list[str]]]:
    """Each document with its new round, its new cluster, and the images of its block's others.

    A block has `size` groups or a few more. Position in the block makes the round, so that one
    round holds one document a block. Val and test keep their blocks over all rounds.
    """
    pools: dict[int, list[Document]] = defaultdict(list)
    for document in similar.split(split):
        pools[document.round if split == "train" else 0].append(document)
    for pool in pools.values():
        groups = {_group(document, split): document.images for document in pool}
        if len(groups) < size:
            if pool is not pools[min(pools)]:
                return  # The rest of a last, incomplete round.
            raise ValueError(
                f"{split} has {len(groups)} groups of similar images, needs {size}: "
                "give more images, or ask for fewer captions or more per source"
            )
        order = rng.permutation(list(groups))
        blocks = [names.tolist() for names in np.array_split(order, len(groups) // size)]
        home = {name: number for number, block in enumerate(blocks) for name in block}
        for document in pool:
            name = _group(document, split)
            number = home[name]
            others = [image for g in blocks[number] if g != name for image in groups[g]]
            turn = document.round * 2 * size + blocks[number].index(name)
            yield document, turn, "000" if split == "train" else f"{number:03d}", others


def _group(document: Document, split: str) -> str:
    """What names a group: val and test show the same one again, with other captions."""
    return document.id if split == "train" else document.cluster


def unlabelled_articles(
    similar: Corpus, splits: Splits, sentences: tuple[int, int] = (30, 90), per_source: int = 3,
    seed: int = 0,
) -> tuple[Corpus, Mapping[str, np.ndarray]]:  # fmt: skip
    """The WIKI role: 5 similar images and 30 to 90 sentences, links unknown.

    Each image has 0 to 5 of its captions in the document; the rest are captions of images of other
    groups, `per_source` each. Returns the corpus and, apart from it, the sealed key: document id
    -> link matrix (sentences, images), only for judging what was read out.
    Raises ValueError when a split has too few groups or a leak is found.
    """

    def write(
        document: Document, row_of: Mapping[str, int], source: CaptionSource,
        choosing: np.random.Generator,
    ) -> Sentences:  # fmt: skip
        rows = [row_of[image] for image in document.images]
        total = int(choosing.integers(sentences[0], sentences[1] + 1))
        return source.draw(np.repeat(rows, choosing.integers(0, 6, len(rows))), rows, total), total

    build = _among_others("unlabelled", similar, splits, sentences[1], per_source, seed, write)
    corpus = build.corpus()
    documents = [d for split in SPLITS for d in corpus.split(split)]
    key = {d.id: d.link_matrix() for d in documents}
    train, val, test = (tuple(replace(d, links=None) for d in corpus.split(s)) for s in SPLITS)
    return replace(corpus, train=train, val=val, test=test, sources={}), key
