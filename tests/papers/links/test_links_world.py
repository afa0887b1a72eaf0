from dataclasses import dataclass, replace

import numpy as np
import pytest

from mmlib.papers.links.data.documents import SPLITS
from mmlib.papers.links.data.stories import organic, story
from mmlib.papers.links.data.world import from_world, picture_scenes, scene_id
from mmlib.world.scenes import sample_scene, split_seeds


@dataclass(frozen=True)
class Written:
    """What the world's writers return, made by hand."""

    scenes: tuple
    sentences: tuple[str, ...]
    links: tuple[tuple[int, int], ...]
    id: str


def colours(images):
    """What a backbone sees that cannot fail to tell pictures apart: (pictures, regions, width)."""
    small = [np.asarray(image.resize((4, 4)), dtype=np.float32) for image in images]
    return np.stack(small).reshape(len(images), 4, 12) / 255


@pytest.fixture(scope="module", autouse=True)
def backbone():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "mmlib.world.backbone.extract",
            lambda images, _: (colours(images), np.zeros((len(images), 1), np.float32), ("any",)),
        )
        yield


def documents_of(split, count=3):
    scenes = [sample_scene(seed) for seed in split_seeds(split, 3 * count)]
    return [
        Written(
            scenes=tuple(scenes[3 * n : 3 * n + 3]),
            sentences=(
                "First the house.",
                "Then the dog and the cat.",
                "Take your time.",
                "A ball.",
            ),
            # One sentence for two pictures, a sentence for none, two sentences for one picture.
            links=((0, 0), (1, 1), (1, 2), (3, 0)),
            id=f"how-to-{split}-{n}",
        )
        for n in range(count)
    ]


@pytest.fixture(scope="module")
def written():
    return {split: documents_of(split) for split in SPLITS}


@pytest.fixture(scope="module")
def pictures(written, backbone):
    return picture_scenes(written)


def test_links_survive_shuffling(written, pictures):
    corpus = from_world("organic", written, pictures)
    for split in SPLITS:
        assert len(corpus.split(split)) == 3
        for document, before in zip(corpus.split(split), written[split], strict=True):
            ids = [scene_id(scene) for scene in before.scenes]
            links = {
                (document.sentences[i], document.images[j])
                for i, j in np.argwhere(document.link_matrix())
            }
            assert links == {(before.sentences[i], ids[j]) for i, j in before.links}
            assert document.labelled
            source = dict(zip(document.sentences, corpus.sources[document.id], strict=True))
            assert source["First the house."] == ids[0]
            assert source["Take your time."] == ""


def test_pictures_are_drawn_again_on_demand(written, pictures):
    corpus = from_world("organic", written, pictures)
    image = corpus.test[0].images[0]
    again = colours([corpus.open_image(image)]).mean(axis=1)[0]
    np.testing.assert_allclose(corpus.features[corpus.row_of[image]], again, atol=1e-6)


def test_repeated_sentences_are_left_out_and_counted(written, pictures):
    first, *rest = written["train"]
    planted = {
        **written,
        "train": [replace(first, sentences=("A ball.", "a ball", "x", "y")), *rest],
    }
    with pytest.warns(UserWarning, match="organic: left out 1 unfilled document"):
        corpus = from_world("organic", planted, pictures)
    assert [d.id[-4:] for d in corpus.train] == ["0001", "0002"]


def test_a_scene_in_two_splits_is_a_leak(written):
    shared = {**written, "test": [replace(written["train"][0], id="copy"), *written["test"][1:]]}
    with pytest.raises(ValueError, match="occurs twice; give it one place in one split"):
        from_world("organic", shared, picture_scenes(shared))


def test_the_worlds_own_writers():
    """Every story and how-to can be written down, and its links come back whole."""
    stories = {split: [story(seed, split) for seed in range(4)] for split in SPLITS}
    guides = {split: [organic(seed, split) for seed in range(8)] for split in SPLITS}
    for kind, documents in (("story", stories), ("organic", guides)):
        pictures = picture_scenes(documents)
        corpus = from_world(kind, documents, pictures)
        for split in SPLITS:
            for document, before in zip(corpus.split(split), documents[split], strict=True):
                ids = [scene_id(scene) for scene in before.scenes]
                assert {
                    (document.sentences[i], document.images[j])
                    for i, j in np.argwhere(document.link_matrix())
                } == {(before.sentences[i], ids[j]) for i, j in before.links}
    sizes = {(len(d.sentences), len(d.images)) for d in corpus.train + corpus.val + corpus.test}
    assert len(sizes) > 5
