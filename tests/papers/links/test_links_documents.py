from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmlib.papers.links.data.documents import Document, cluster_numbers, unlabelled


def document(sentence_labels, image_labels, id="any"):
    return Document(
        id=id,
        sentences=tuple(f"sentence {i}" for i in range(len(sentence_labels))),
        images=tuple(f"image {j}" for j in range(len(image_labels))),
        sentence_labels=tuple(sentence_labels),
        image_labels=tuple(image_labels),
    )


def placed(round, number, cluster=0):
    return document([0], [-1], id=f"coco-train-r{round}-c{cluster:03d}-{number:04d}")


# The label rules.


def test_links_are_the_union_of_both_sides():
    links = document(sentence_labels=[-1, -1, 0], image_labels=[1, -1, 1]).link_matrix()
    assert links.dtype == bool
    assert links.shape == (3, 3)
    assert np.argwhere(links).tolist() == [[1, 0], [1, 2], [2, 0]]


def test_a_link_named_twice_is_one_link():
    assert document([0], [0]).link_matrix().tolist() == [[True]]


def test_minus_one_is_no_link():
    assert not document([-1, -1], [-1, -1, -1]).link_matrix().any()


def test_three_images_may_name_one_sentence():
    assert document([-1, -1], [1, 1, 1]).link_matrix().tolist() == [[False] * 3, [True] * 3]


def test_null_labels_cannot_be_scored():
    article = unlabelled(document([0, -1], [-1]))
    assert not article.labelled
    assert article.sentence_labels == (None, None)
    assert article.image_labels == (None,)
    with pytest.raises(ValueError, match="unlabelled"):
        article.link_matrix()


@pytest.mark.parametrize(
    ("sentence_labels", "image_labels", "message"),
    [
        ([2], [-1, -1], "sentence 0 has label 2, but there are 2 images; use 0 to 1"),
        ([-1], [0, 1], "image 1 has label 1, but there are 1 sentences"),
        ([-2], [-1], "sentence 0 has label -2"),
        ([0, None], [-1], "mixed"),
        ([None, None], [-1], "mixed"),
        ([0.0], [-1], "label 0.0"),
        ([True], [-1], "label True"),
        (["0"], [-1], "label '0'"),
    ],
)
def test_refused_labels(sentence_labels, image_labels, message):
    with pytest.raises(ValueError, match=message):
        document(sentence_labels, image_labels)


def test_as_many_labels_as_nodes():
    with pytest.raises(ValueError, match="1 sentences but 2 sentence labels"):
        replace(document([0], [-1]), sentence_labels=(0, 0))


@given(st.data())
def test_every_label_shows_in_the_matrix_and_nothing_else(data):
    n, m = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 5))
    sides = [st.lists(st.integers(-1, m - 1), min_size=n, max_size=n),
             st.lists(st.integers(-1, n - 1), min_size=m, max_size=m)]  # fmt: skip
    of_sentences, of_images = (data.draw(side) for side in sides)
    links = document(of_sentences, of_images).link_matrix()
    for i in range(n):
        for j in range(m):
            assert links[i, j] == (of_sentences[i] == j or of_images[j] == i)


# Rounds, clusters, batches.


def test_the_id_says_round_and_cluster():
    here = placed(round=12, number=3, cluster=7)
    assert (here.round, here.cluster) == (12, "007")
    assert (document([0], [0], id="recipe-42").round) == 0
    assert (document([0], [0], id="recipe-42").cluster) == "recipe-42"


def test_cluster_numbers_keep_documents_of_others_apart():
    documents = [placed(0, 0, 1), placed(0, 1, 2), placed(1, 2, 1)]
    assert cluster_numbers(documents).tolist() == [0, 1, 0]
    assert cluster_numbers([document([0], [0], id="na")] * 3).tolist() == [0, 1, 2]
