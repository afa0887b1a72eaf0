import numpy as np
import pytest
from PIL import Image

from mmlib.core.records import CaptionedImages
from mmlib.papers.links.data.assembly import Build, CaptionSource


def split_of(captions, split="train", features=None):
    count = len(captions)
    if features is None:
        features = np.random.default_rng(len(split)).normal(size=(count, 2, 3)).astype(np.float32)
    return CaptionedImages(
        name="toy",
        split=split,
        ids=tuple(f"{split}{row}" for row in range(count)),
        captions=tuple(map(tuple, captions)),
        features=features,
        open_image=lambda row: Image.new("RGB", (1, 1), (row, 0, 0)),
    )


# Choice of captions.


def test_captions_are_used_about_equally_often():
    source = CaptionSource(
        split_of([[f"image {i} caption {c}" for c in range(5)] for i in range(4)]),
        np.random.default_rng(0),
    )
    texts = [text for _ in range(12) for text, _ in source.draw(range(4), [], 4)]
    uses = [texts.count(text) for text in set(texts)]
    assert len(uses) == 20
    assert (min(uses), max(uses)) == (2, 3)


def test_unusable_images_are_passed_over():
    captions = [["a dog"], [], ["."], ["a cat"], ["a bird"]]
    features = np.random.default_rng(0).normal(size=(5, 2, 3)).astype(np.float32)
    features[4] = features[3]
    source = CaptionSource(split_of(captions, features=features), np.random.default_rng(0))
    assert source.rows.tolist() == [0, 3]


def test_no_sentence_repeats_another():
    source = CaptionSource(
        split_of([["Two dogs ."], ["two dogs"], ["a cat"]]), np.random.default_rng(0)
    )
    assert [row for _, row in source.draw([0, 1, 2], [], 3)] == [0, 2]
    assert [row for _, row in source.draw([0, 1, 2], [], 3, others=["a CAT"])] == [0]


@pytest.mark.parametrize("seed", range(5))
def test_no_sentence_is_also_a_caption_of_another_shown_image(seed):
    source = CaptionSource(
        split_of([["two dogs", "a park"], ["Two dogs.", "a lawn"], ["two dogs"]]),
        np.random.default_rng(seed),
    )
    chosen = source.draw(writers=[0, 1, 2], shown=[0, 1], count=3)
    assert chosen == [("a park", 0), ("a lawn", 1)]
    # Where one image has it twice, nothing is ambiguous.
    twice = CaptionSource(
        split_of([["two dogs", "Two dogs"], ["a lawn"]]), np.random.default_rng(seed)
    )
    assert [row for _, row in twice.draw([0, 1], [0, 1], 2)] == [0, 1]


# The finished corpus.


def splits():
    return {s: split_of([["a dog"], ["a cat"]], s) for s in ("train", "val", "test")}


def test_corpus_joins_the_splits():
    parts = splits()
    build = Build("toy", parts)
    build.add(
        ("val", 2, "001", 7), [1, 0], [("a cat", 1), ("a remark", -1)], np.random.default_rng(0)
    )
    corpus = build.corpus()
    (document,) = corpus.val
    assert document.id == "toy-val-r2-c001-0007"
    assert (document.round, document.cluster) == (2, "001")
    sentence, image = document.sentences.index("a cat"), document.images.index("val1")
    assert np.argwhere(document.link_matrix()).tolist() == [[sentence, image]]
    assert sorted(corpus.sources[document.id]) == ["", "val1"]
    assert corpus.features.shape == (6, 3)
    np.testing.assert_array_equal(
        corpus.features[corpus.row_of["val1"]], parts["val"].features[1].mean(axis=0)
    )
    assert corpus.open_image("test1").getpixel((0, 0)) == (1, 0, 0)


def test_an_image_has_one_place():
    parts = splits()
    with pytest.raises(ValueError, match="image 'val0' occurs twice"):
        Build("toy", {**parts, "test": parts["val"]}).corpus()
