"""What document builders share: choice of captions, shuffling, links, the finished corpus."""

import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from itertools import islice, takewhile

import numpy as np
from PIL import Image

from mmlib.core.records import CaptionedImages, normalised
from mmlib.papers.links.data.documents import SPLITS, Corpus, Document
from mmlib.papers.links.data.leaks import check_leaks
from mmlib.world import WorldImages
from mmlib.world.logic import satisfies

Splits = Mapping[str, CaptionedImages]
Counts = Mapping[str, int]
Rows = Collection[int] | np.ndarray
Group = tuple[int, str, np.ndarray]  # round, cluster, rows of the images
Sentence = tuple[str, int]  # text, row of the image it was written for (-1 for none)


def split_rngs(seed: int, split: str, count: int) -> list[np.random.Generator]:
    """Streams of their own for each split and use, so that more documents leave the first ones."""
    return np.random.default_rng((seed, SPLITS.index(split))).spawn(count)


def take(groups: Iterator[Group], n_docs: Counts | None, split: str) -> list[Group]:
    """As many groups as asked for, or all of round 0. Raises ValueError when there are fewer."""
    wanted = (n_docs or {}).get(split)
    if wanted is None:
        return list(takewhile(lambda group: group[0] == 0, groups))
    taken = list(islice(groups, wanted))
    if len(taken) < wanted:
        raise ValueError(f"{split}: {wanted} documents asked for, {len(taken)} can be made")
    return taken


class CaptionSource:
    """Hands out the captions of one split so that each is used about equally often.

    rows: the usable images: those with a caption, the first where features are identical.
    """

    def __init__(self, images: CaptionedImages, rng: np.random.Generator) -> None:
        self.captions = images.captions
        self.texts = [[normalised(caption) for caption in texts] for texts in images.captions]
        self.order = [rng.permutation(len(texts)) for texts in images.captions]
        self.used = np.zeros(len(images.ids), dtype=int)
        first: dict[bytes, int] = {}
        for row, texts in enumerate(self.texts):
            if any(texts):
                first.setdefault(np.asarray(images.features[row]).tobytes(), row)
        self.rows = np.array(list(first.values()), dtype=np.int64)

    def next(self, row: int, taken: Collection[str]) -> str | None:
        """The next caption of an image whose text is neither empty nor taken, or None."""
        order = self.order[row]
        for step in range(len(order)):
            choice = order[(self.used[row] + step) % len(order)]
            if self.texts[row][choice] and self.texts[row][choice] not in taken:
                self.used[row] += step + 1
                return self.captions[row][choice]
        return None

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
            # Its own captions count once where the writer itself is shown.
            ambiguous = {text for text in self.texts[row] if of_shown[text] > (row in shown)}
            text = self.next(row, taken | ambiguous)
            if text is not None:
                taken.add(normalised(text))
                chosen.append((text, row))
        return chosen


class Build:
    """Collects documents and turns them into a checked corpus."""

    def __init__(self, kind: str, splits: Splits) -> None:
        missing = [split for split in SPLITS if split not in splits]
        if missing:
            raise ValueError(f"{kind} documents need train, val and test; no {missing[0]!r} given")
        self.kind, self.splits = kind, splits
        self.documents: dict[str, list[Document]] = {split: [] for split in SPLITS}
        self.sources: dict[str, tuple[str, ...]] = {}
        self.dropped = 0

    def add(
        self, position: tuple[str, int, str, int], shown: Rows, written: list[Sentence],
        rng: np.random.Generator, links: Collection[tuple[int, int]] | None = None, least: int = 0,
    ) -> None:  # fmt: skip
        """Shuffle images and sentences independently, then write down the links.

        position: split, round, cluster, number. links: (sentence, image) indices; where None, each
        sentence is linked to the image it was written for, if that is shown. least: with fewer
        sentences the document is left out and counted.
        """
        if len(written) < least:
            self.dropped += 1
            return
        split, turn, cluster, number = position
        rows = list(map(int, shown))
        if links is None:
            links = [(i, rows.index(row)) for i, (_, row) in enumerate(written) if row in rows]
        image_order, order = rng.permutation(len(rows)), rng.permutation(len(written))
        new_image, new = np.argsort(image_order), np.argsort(order)
        ids = self.splits[split].ids
        document = Document(
            id=f"{self.kind}-{split}-r{turn}-c{cluster}-{number:04d}",
            sentences=tuple(written[i][0] for i in order),
            images=tuple(ids[rows[j]] for j in image_order),
            links=tuple(sorted({(int(new[i]), int(new_image[j])) for i, j in links})),
        )
        self.documents[split].append(document)
        self.sources[document.id] = tuple(
            ids[written[i][1]] if written[i][1] >= 0 else "" for i in order
        )

    def corpus(self) -> Corpus:
        """The documents with the features of all three splits. Raises ValueError for a leak."""
        if self.dropped:
            warnings.warn(f"{self.kind}: left out {self.dropped} unfilled documents", stacklevel=3)
        splits = [self.splits[split] for split in SPLITS]
        uses = Counter(image for images in splits for image in images.ids)
        twice = [image for image, count in uses.items() if count > 1]
        if twice:
            raise ValueError(f"image {twice[0]!r} occurs twice; give it one place in one split")
        origin = {image: (images, row) for images in splits for row, image in enumerate(images.ids)}

        def open_image(image: str) -> Image.Image:
            images, row = origin[image]
            return images.open_image(row)

        has_graphs = all(isinstance(images, WorldImages) and images.gold for images in splits)
        scores = [images.label_scores for images in splits if images.label_scores is not None]
        corpus = Corpus(
            name=self.kind,
            **{split: tuple(documents) for split, documents in self.documents.items()},
            features=np.concatenate([image_vectors(images) for images in splits]),
            row_of={image: row for row, image in enumerate(origin)},
            open_image=open_image,
            label_scores=np.concatenate(scores) if len(scores) == len(splits) else None,
            label_names=splits[0].label_names,
            sources=self.sources,
            recognise=partial(_true_sentences, origin, self.sources) if has_graphs else None,
        )
        check_leaks(corpus)
        return corpus


def _true_sentences(
    origin: Mapping[str, tuple[CaptionedImages, int]],
    sources: Mapping[str, tuple[str, ...]],
    document: Document,
) -> np.ndarray:
    """1 where a sentence's graph holds in a picture's scene, (sentences, images)."""
    graphs, scenes = [], []
    for sentence, writer in zip(document.sentences, sources[document.id], strict=True):
        images, row = origin[writer]
        assert isinstance(images, WorldImages)
        graphs.append(next(c.graph for c in images.gold[row] if c.text == sentence))
    for image in document.images:
        images, row = origin[image]
        assert isinstance(images, WorldImages)
        scenes.append(images.scenes[row])
    return np.array([[satisfies(scene, graph) for scene in scenes] for graph in graphs], float)


def image_vectors(images: CaptionedImages) -> np.ndarray:
    """One vector an image, (images, width) float32: the mean over its regions."""
    return np.asarray(images.features).mean(axis=1, dtype=np.float32)
