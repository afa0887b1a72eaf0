"""Documents with known links, built from any captioned image collection.

Every builder takes one CaptionedImages per split and a seed, uses a split's images for that split
only, shuffles images and sentences independently before the links are written down (on the
sentence side), and ends with `check_leaks`. Documents come in rounds whose members share no source
image, so that in-batch negatives drawn inside a round are clean.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from mmlib.datasets.captioned import CaptionedImages
from mmlib.datasets.documents import SPLITS, Corpus, Document
from mmlib.datasets.leaks import check_leaks, normalised

BLOCK = 30  # images of a val or test cluster, for documents of random images

Splits = Mapping[str, CaptionedImages]
Counts = Mapping[str, int]
Rows = Sequence[int] | np.ndarray
Group = tuple[int, str, np.ndarray]  # round, cluster, rows of the images


def coco(splits: Splits, n_docs: Counts | None = None, seed: int = 0) -> Corpus:
    """The MSCOCO role: 5 linked pairs, 5 other images, 5 captions of others; 10 x 10, density 5 %.

    n_docs: documents a split, as many rounds as that takes; one round where it is not given.
    Training rounds permute the whole split. Val and test images lie in fixed blocks of 30, the
    clusters, and each round permutes inside them: clusters share no image over all rounds.
    Raises ValueError when a split has too few images or a leak is found.
    """
    return _random_documents("coco", splits, n_docs, seed, linked=5, image_only=5, caption_only=5)


def mixed5(splits: Splits, n_docs: Counts | None = None, seed: int = 0) -> Corpus:
    """The control for `cohesive`: 5 random linked pairs, no distractors; 5 x 5, density 20 %."""
    return _random_documents("mixed5", splits, n_docs, seed, linked=5, image_only=0, caption_only=0)


def _random_documents(
    kind: str,
    splits: Splits,
    n_docs: Counts | None,
    seed: int,
    linked: int,
    image_only: int,
    caption_only: int,
) -> Corpus:
    build = _Build(kind, splits)
    shown = linked + image_only
    for split in SPLITS:
        rng = split_rng(seed, split)
        captions = CaptionSource(splits[split], rng)
        groups = _random_groups(split, captions.rows, shown + caption_only, rng)
        for number, (turn, cluster, rows) in enumerate(take(groups, n_docs, split)):
            images, writers = rows[:shown], [*rows[:linked], *rows[shown:]]
            sentences = captions.draw(writers, images)
            build.add(split, turn, cluster, number, images, sentences, rng)
    return build.corpus()


def _random_groups(
    split: str, rows: np.ndarray, size: int, rng: np.random.Generator
) -> Iterator[Group]:
    """Endless rounds of disjoint groups of `size` random rows."""
    block = len(rows) if split == "train" else BLOCK
    if len(rows) < max(size, block):
        raise ValueError(
            f"{split} has {len(rows)} usable images; needs {max(size, block)} or more for documents"
        )
    # The last block takes what is left over.
    cuts = np.arange(1, len(rows) // block) * block
    blocks = np.split(rng.permutation(rows), cuts)
    turn = 0
    while True:
        for number, members in enumerate(blocks):
            order = rng.permutation(members)
            for start in range(0, len(order) - size + 1, size):
                yield turn, f"{number:03d}", order[start : start + size]
        turn += 1


def split_rng(seed: int, split: str) -> np.random.Generator:
    """A stream of its own for each split, so that one split's size does not change another."""
    return np.random.default_rng((seed, SPLITS.index(split)))


def take(groups: Iterator[Group], n_docs: Counts | None, split: str) -> Iterator[Group]:
    """As many groups as asked for, or those of round 0."""
    wanted = (n_docs or {}).get(split)
    for number, group in enumerate(groups):
        if number == wanted or (wanted is None and group[0] > 0):
            return
        yield group


class CaptionSource:
    """Hands out the captions of one split so that each is used about equally often.

    rows: the usable images: those with a caption, the first where features are identical.
    """

    def __init__(self, images: CaptionedImages, rng: np.random.Generator) -> None:
        self.captions = images.captions
        self.texts = [[normalised(caption) for caption in each] for each in images.captions]
        self.order = [rng.permutation(len(each)) for each in images.captions]
        self.used = np.zeros(len(images.ids), dtype=int)
        seen: set[bytes] = set()
        rows = []
        for row, texts in enumerate(self.texts):
            content = np.asarray(images.features[row]).tobytes()
            if any(texts) and content not in seen:
                rows.append(row)
                seen.add(content)
        self.rows = np.array(rows, dtype=np.int64)

    def next(self, row: int, taken: set[str]) -> str | None:
        """The next caption of an image whose normalised text is not taken, or None."""
        order = self.order[row]
        for step in range(len(order)):
            choice = order[(self.used[row] + step) % len(order)]
            if self.texts[row][choice] and self.texts[row][choice] not in taken:
                self.used[row] += step + 1
                return self.captions[row][choice]
        return None

    def draw(self, writers: Rows, shown: Rows) -> list[tuple[str, int]] | None:
        """One caption for each writer: (text, row), or None where that cannot be done.

        No two have the same text, and none is also a caption of another image that is shown: such
        a cell would count as unlinked although it is right.
        """
        chosen: list[tuple[str, int]] = []
        taken: set[str] = set()
        for row in writers:
            others = {text for other in shown if other != row for text in self.texts[other]}
            text = self.next(row, taken | others)
            if text is None:
                return None
            taken.add(normalised(text))
            chosen.append((text, int(row)))
        return chosen


class _Build:
    """Collects documents and turns them into a checked corpus."""

    def __init__(self, kind: str, splits: Splits) -> None:
        missing = [split for split in SPLITS if split not in splits]
        if missing:
            raise ValueError(
                f"{kind} documents need train, val and test; {missing[0]!r} is missing"
            )
        self.kind, self.splits = kind, splits
        self.documents: dict[str, list[Document]] = {split: [] for split in SPLITS}
        self.sources: dict[str, tuple[str, ...]] = {}
        self.dropped = 0

    def add(
        self,
        split: str,
        turn: int,
        cluster: str,
        number: int,
        images: Rows,
        sentences: Sequence[tuple[str, int]] | None,
        rng: np.random.Generator,
    ) -> None:
        """Shuffle both sides, then write each sentence's link to the image it describes."""
        if sentences is None:
            self.dropped += 1
            return
        ids = self.splits[split].ids
        shown = [int(row) for row in rng.permutation(images)]
        written = [sentences[i] for i in rng.permutation(len(sentences))]
        document = Document(
            id=f"{self.kind}-{split}-r{turn}-c{cluster}-{number:04d}",
            sentences=tuple(text for text, _ in written),
            images=tuple(ids[row] for row in shown),
            sentence_labels=tuple(shown.index(row) if row in shown else -1 for _, row in written),
            image_labels=(-1,) * len(shown),
        )
        self.documents[split].append(document)
        self.sources[document.id] = tuple(ids[row] for _, row in written)

    def corpus(self) -> Corpus:
        """The documents with the features of all three splits."""
        if self.dropped:
            warnings.warn(
                f"{self.kind}: left out {self.dropped} documents whose captions say the same",
                stacklevel=4,
            )
        parts = [self.splits[split] for split in SPLITS]
        ids = [image for part in parts for image in part.ids]
        if len(set(ids)) < len(ids):
            twice = next(image for image in ids if ids.count(image) > 1)
            raise ValueError(f"image {twice!r} is in two splits or occurs twice; give it one place")
        row_of = {image: row for row, image in enumerate(ids)}
        place = [(part, row) for part in parts for row in range(len(part.ids))]

        def open_image(image: str):
            part, row = place[row_of[image]]
            return part.open_image(row)

        scores = [part.label_scores for part in parts if part.label_scores is not None]
        corpus = Corpus(
            name=self.kind,
            source=parts[0].name,
            train=tuple(self.documents["train"]),
            val=tuple(self.documents["val"]),
            test=tuple(self.documents["test"]),
            features=np.concatenate([pooled(part) for part in parts]),
            row_of=row_of,
            open_image=open_image,
            label_scores=np.concatenate(scores) if len(scores) == len(parts) else None,
            label_names=parts[0].label_names,
            sources=self.sources,
        )
        check_leaks(corpus)
        return corpus


def pooled(images: CaptionedImages) -> np.ndarray:
    """One vector an image, (images, width) float32: the mean over its regions."""
    return np.asarray(images.features).mean(axis=1, dtype=np.float32)
