"""What notebook 01 builds is mmlib's method, and what it says is what the evidence holds."""

import nbformat
import numpy as np
import pytest
import tiny_coherence
import torch
from scripts import ROOT
from torch import nn
from torch.nn import functional as F

from mmlib.core.tables import paper_values
from mmlib.papers.coherence import run, show
from mmlib.papers.coherence.data import controlled
from mmlib.papers.coherence.data import pairs as collections
from mmlib.suite import record

NOTEBOOK = ROOT / "notebooks" / "01_coherence_retrieval.ipynb"
DEFINING = "attention-pooling", "two-lstms", "text-encoder", "image-encoder", "losses", "model"


@pytest.fixture(scope="module")
def evidence():
    return {tier: record.read("01", tier) for tier in ("controlled", "world", "flickr8k")}


@pytest.mark.parametrize("weight", [0.0, 0.4])
def test_loss_and_slopes_are_those_of_mmlib(weight):
    sources = {cell.id: cell.source for cell in nbformat.read(NOTEBOOK, 4).cells}
    built = {"torch": torch, "nn": nn, "F": F}
    for cell in DEFINING:
        exec(sources[cell], built)
    arrays, how = tiny_coherence.tiny(), tiny_coherence.HOW
    system = run.System("CMCM", relations="all", lambda_cls=weight)
    theirs = run.make(system, how, arrays, seed=3)
    ours = built["CoherenceModel"](arrays, how, weight)
    ours.load_state_dict(theirs.state_dict())
    batch = arrays.splits["train"].batch(np.arange(12))
    for model in (ours, theirs):
        model.train().loss(batch).backward()
    assert ours.loss(batch).item() == pytest.approx(theirs.loss(batch).item(), abs=1e-6)
    slopes = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, slopes[name].grad, atol=1e-6, rtol=1e-4)


def level(evidence, dataset, system, metric="rank"):
    return np.log2(evidence.values(dataset, system, metric)).mean()


def test_the_first_picture_frames_what_the_relation_picks():
    pairs = controlled.load(controlled.recorded(collections.HELPFUL)).test
    axes = np.reshape(show.two_texts(pairs).axes, (2, 5))
    rows = [pairs.texts.index(" ".join(axis.get_xlabel() for axis in line)) for line in axes]
    framed = [[a.get_xlabel() for a in line if a.spines["left"].get_visible()] for line in axes]
    assert framed == [[pairs.shown[row]] for row in rows]
    assert framed[0] == framed[1]
    assert not (pairs.labels[rows[0]] & pairs.labels[rows[1]]).any()


def test_the_gains_by_kind_of_data_are_of_the_evidence(evidence):
    axis = show.relations_gain(evidence).axes[0]
    learning, knowing = (bars[0].get_xdata() for bars in axis.containers)
    for i, (tier, dataset, system) in enumerate(show.WORTH.values()):
        oracle = ("Oracle of relations",) if tier == "controlled" else show.CMCA_ORACLE
        base = level(evidence[tier], dataset, "CMCA")
        assert learning[i] == pytest.approx(base - level(evidence[tier], dataset, system))
        assert knowing[i] == pytest.approx(base - level(evidence[tier], dataset, *oracle))


def test_the_prose_says_what_the_evidence_holds(evidence):
    worth = {
        kind: {name: effect.effect for name, effect in gains.items()}
        for kind, gains in show.relations_worth(evidence).items()
    }
    best, printed = (worth[f"1,000 made-up pairs, λ = {v}"]["learning"] for v in (".4", ".1"))
    assert best > 1  # "more than halves the rank"
    assert 0 < printed < best / 3  # "less than a third of that at the paper's .1"
    for kind, dataset in (("captions", "Clue-like"), ("recipe steps", "CITE-like")):
        gains = worth[f"picture world, {kind}"]
        assert abs(gains["learning"]) < 0.05  # "almost no difference"
        assert 1 - 2 ** -gains["knowing"] > 0.3  # "by about a third or more"
        base, ridge = (level(evidence["world"], dataset, name) for name in ("Base", "Ridge"))
        assert base - ridge > 0.5  # "Ridge beats Base by far"
    learned, by_words, known = (
        [gain.effect for gain in squares.values()]
        for squares in show.dials(evidence["world"]).values()
    )
    assert (round(min(learned), 2), round(max(learned), 2)) == (-0.07, 0.04)
    assert round(max(by_words), 2) == 0.07
    assert round(max(known)) == 1  # "up to a whole log2 rank"
    leaks = paper_values("coherence", "recorded_clue_leaks")["count"]
    assert (leaks["image in train"], leaks["test rows"]) == (610, 1512)
