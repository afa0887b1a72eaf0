import pytest

from mmlib.papers.links.data.documents import Document, cluster_numbers


def document(id="any", links=((0, 0),)):
    return Document(id, ("sentence 0", "sentence 1"), ("image 0",), links)


def placed(round, number, cluster=0):
    return document(f"coco-train-r{round}-c{cluster:03d}-{number:04d}")


def test_unknown_links_cannot_be_scored():
    assert document().link_matrix().tolist() == [[True], [False]]
    article = document(links=None)
    assert not article.labelled
    with pytest.raises(ValueError, match="unlabelled"):
        article.link_matrix()


# Rounds, clusters, batches.


def test_the_id_says_round_and_cluster():
    here = placed(round=12, number=3, cluster=7)
    assert (here.round, here.cluster) == (12, "007")
    assert (document("recipe-42").round) == 0
    assert (document("recipe-42").cluster) == "recipe-42"


def test_cluster_numbers_keep_documents_of_others_apart():
    documents = [placed(0, 0, 1), placed(0, 1, 2), placed(1, 2, 1)]
    assert cluster_numbers(documents).tolist() == [0, 1, 0]
    assert cluster_numbers([document("na")] * 3).tolist() == [0, 1, 2]
