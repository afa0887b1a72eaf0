"""The documents of the picture world: built from captioned pictures, or written over scenes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b

import numpy as np

from mmlib.core.paths import table_beside
from mmlib.core.records import normalised
from mmlib.papers.links.data.builders import Draft, Splits, assemble
from mmlib.papers.links.data.documents import SPLITS, Corpus
from mmlib.papers.links.data.stories import WorldDocument
from mmlib.world import WorldImages, images_of
from mmlib.world.schema import Scene

COUNTS = table_beside(__file__)  # of the splits: images, albums, documents of a kind
Written = Mapping[str, Sequence[WorldDocument]]


def pooled(images: WorldImages) -> WorldImages:
    """One vector a picture: mean and maximum over its regions, and the logits of its labels.

    The world's things are small: they fade in a mean, and its network names them place by place.
    """
    regions, scores = images.features, images.label_scores
    assert scores is not None, "the world's own backbone gives label scores"
    likely = np.clip(scores, 1e-3, 1 - 1e-3)
    vectors = [regions.mean(axis=1), regions.max(axis=1), np.log(likely / (1 - likely))]
    return replace(images, features=np.concatenate(vectors, axis=1)[:, None].astype(np.float32))


def scene_id(scene: Scene) -> str:
    """An image id that depends on the scene's content only."""
    return "scene-" + blake2b(repr(scene).encode(), digest_size=8).hexdigest()


def picture_scenes(documents: Written, workers: int = 1) -> dict[str, WorldImages]:
    """Draw every scene of the documents once and run the world's backbone over it.

    Returns one WorldImages per split; an image's captions are the sentences linked to it.
    Raises ValueError for a split without documents.
    """
    pictures = {}
    for split in SPLITS:
        sentences: dict[Scene, list[str]] = {}  # of each distinct scene those linked to it
        for document in documents.get(split, ()):
            for scene in document.scenes:
                sentences.setdefault(scene, [])
            for sentence, image in document.links:
                sentences[document.scenes[image]].append(document.sentences[sentence])
        if not sentences:
            raise ValueError(f"no {split} documents; give each of {', '.join(SPLITS)} some")
        ids = [scene_id(scene) for scene in sentences]
        captions = [tuple(texts) for texts in sentences.values()]
        pictures[split] = images_of(split, ids, list(sentences), captions, workers)
    return pictures


def from_world(kind: str, documents: Written, pictures: Splits) -> Corpus:
    """A corpus of documents written over world scenes, each its own cluster, all in round 0.

    kind: "story", "organic": the corpus's name. pictures: from `picture_scenes`, for these
    documents or others over the same scenes. The number that ends an id is the document's position
    in the given list. Documents in which two sentences say the same are left out, with a warning.
    Raises ValueError for leaks.
    """

    def drafts(split: str) -> Iterator[Draft]:
        row_of = {image: row for row, image in enumerate(pictures[split].ids)}
        for number, document in enumerate(documents[split]):
            shown = [row_of[scene_id(scene)] for scene in document.scenes]
            writer = {sentence: shown[image] for sentence, image in reversed(document.links)}
            written = [(text, writer.get(i, -1)) for i, text in enumerate(document.sentences)]
            distinct = len(set(map(normalised, document.sentences)))
            least = len(written) + (distinct < len(written))  # left out where two say the same
            yield Draft(0, number, shown, written, least, links=document.links)

    return assemble(kind, pictures, drafts, streams=0)
