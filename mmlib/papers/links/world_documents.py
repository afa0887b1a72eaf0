"""Documents written over the picture world: stories, albums and how-tos become a corpus."""

from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING

from mmlib.core.records import normalised
from mmlib.papers.links.assembly import Build, Sentence, Splits, split_rngs
from mmlib.papers.links.documents import SPLITS, Corpus
from mmlib.world import SIZE, WorldImages, extract_features, picture
from mmlib.world.schema import Scene

if TYPE_CHECKING:
    from mmlib.world.stories import WorldDocument

Written = Mapping[str, Sequence["WorldDocument"]]


def scene_id(scene: Scene) -> str:
    """An image id that depends on the scene's content only."""
    return "scene-" + blake2b(repr(scene).encode(), digest_size=8).hexdigest()


def picture_scenes(documents: Written, workers: int = 1) -> dict[str, WorldImages]:
    """Draw every scene of the documents once and run the world's backbone over it.

    Returns one WorldImages per split; an image's captions are the sentences linked to it.
    Give the result to `from_world` for each kind of document written over the same scenes.
    Raises ValueError for a split without documents.
    """
    pictures = {}
    for split in SPLITS:
        scenes, captions = _scenes(documents.get(split, ()))
        if not scenes:
            raise ValueError(f"no {split} documents; give each of {', '.join(SPLITS)} some")
        features, scores, names = extract_features(scenes, workers, f"{split} pictures")
        pictures[split] = WorldImages(
            name="world",
            split=split,
            ids=tuple(scene_id(scene) for scene in scenes),
            captions=captions,
            features=features,
            open_image=partial(picture, scenes, SIZE),
            label_scores=scores,
            label_names=names,
            scenes=tuple(scenes),
        )
    return pictures


def _scenes(documents: Sequence["WorldDocument"]) -> tuple[list, tuple[tuple[str, ...], ...]]:
    """The distinct scenes, and for each the sentences linked to it."""
    captions: dict[Scene, list[str]] = {}
    for document in documents:
        for scene in document.scenes:
            captions.setdefault(scene, [])
        for sentence, image in document.links:
            captions[document.scenes[image]].append(document.sentences[sentence])
    return list(captions), tuple(tuple(texts) for texts in captions.values())


def from_world(
    kind: str, documents: Written, pictures: Splits | None = None, seed: int = 0
) -> Corpus:
    """A corpus of documents written over world scenes, each its own cluster, all in round 0.

    kind: "story", "organic", "cohesive": the corpus's name. pictures: from `picture_scenes`, for
    these documents or others over the same scenes; made here where it is not given.
    The number that ends an id is the document's place in the given list. Documents in which two
    sentences say the same are left out, with a warning.
    Raises ValueError, naming the document, for links that labels cannot express, and for leaks.
    """
    pictures = pictures or picture_scenes(documents)
    build = Build(kind, pictures)
    for split in SPLITS:
        (shuffling,) = split_rngs(seed, split, 1)
        row_of = {image: row for row, image in enumerate(pictures[split].ids)}
        for number, document in enumerate(documents.get(split, ())):
            shown = [row_of[scene_id(scene)] for scene in document.scenes]
            writer = {sentence: shown[image] for sentence, image in sorted(document.links)[::-1]}
            written: list[Sentence] = [
                (text, writer.get(index, -1)) for index, text in enumerate(document.sentences)
            ]
            if len({normalised(text) for text in document.sentences}) < len(written):
                build.dropped += 1
                continue
            place = (split, 0, f"{number:03d}", number)
            try:
                build.add(place, shown, written, shuffling, document.links)
            except ValueError as error:
                raise ValueError(f"{split} document {document.id!r}: {error}") from None
    return build.corpus()
