"""The training that the notebook shows is the recorded one of its seed; its documents by a rule."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tiny_links import HOW, job, tiny

from mmlib.papers.links import run
from mmlib.papers.links.run import trained_systems

STORY_AP = next(one for one in trained_systems("world", "story") if one.system == "AP")


def documents(*lengths):
    return [SimpleNamespace(sentences=("a sentence",) * length) for length in lengths]


@pytest.fixture(scope="module")
def shown():
    """A demonstration on the small corpus of the tests."""
    arrays = tiny()
    corpus = SimpleNamespace(test=documents(*[5] * 30))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "documents", lambda tier, dataset: (corpus, HOW, arrays))
        yield run.train_one.__wrapped__("world", "story", "AP", 3)


def test_it_is_the_recorded_job(shown):
    answer = run.train_and_score(job(STORY_AP, seed=3), tiny())
    assert np.array_equal(shown.auc, answer.values["test"]["AUC"])
    assert list(shown.history[1:]) == list(answer.history)


def test_the_first_of_the_history_is_the_untrained_model(shown):
    assert len(shown.history) == HOW.epochs + 1
    with torch.no_grad():
        start = run.dev_evaluation(shown.untrained, shown.arrays, STORY_AP, HOW, "cpu")()
    assert shown.history[0] == start
    assert shown.history[-1]["dev_loss"] < start["dev_loss"]


def of_auc(auc, *lengths):
    """A demonstration of which the AUC and the lengths of documents are known."""
    corpus = SimpleNamespace(test=documents(*lengths))
    made = run.Demo(corpus, *[None] * 8)
    made.__dict__["auc"] = np.array(auc, dtype=float)  # as `cached_property` keeps it
    return made


def test_the_nearest_document_is_one_that_can_be_shown():
    assert of_auc([70, 80, 81, 79], 5, 12, 6, 4).nearest(80) == 2  # the first of two as near
    assert of_auc([70, 80, 81], 9, 9, 9).nearest(80) == 1  # none is short
    assert of_auc([np.nan, 60], 5, 5).nearest(80) == 1
