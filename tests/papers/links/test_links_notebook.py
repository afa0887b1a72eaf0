"""Notebook 04: what it builds by hand is mmlib's method, and its words are what was measured."""

import ast
from itertools import product

import nbformat
import numpy as np
import pytest
import torch
from oracles import ap as brute_ap
from oracles import dc as brute_dc
from oracles import loss as brute_loss
from scipy.optimize import linear_sum_assignment
from scripts import ROOT
from tiny_links import HOW, net, uneven
from torch import nn
from torch.nn.functional import normalize
from torch.nn.utils.rnn import pack_padded_sequence

from mmlib.papers.links import method, show
from mmlib.papers.links.data.arrays import Batches
from mmlib.papers.links.run import SYSTEMS
from mmlib.suite.record import assess_paper, read

CELLS = nbformat.read(ROOT / "notebooks" / "04_document_links.ipynb", as_version=4).cells
TEXT = "\n".join(cell.source for cell in CELLS if cell.cell_type == "markdown")


@pytest.fixture(scope="module")
def by_hand():
    """What the cells of the method define, without what they print."""
    names = {
        "np": np, "torch": torch, "nn": nn, "normalize": normalize,
        "pack_padded_sequence": pack_padded_sequence,
        "linear_sum_assignment": linear_sum_assignment,
    }  # fmt: skip
    for cell in CELLS:
        if cell.id in ("encoders", "dc", "matching", "similarities", "loss"):
            body = ast.parse(cell.source).body
            defined = [line for line in body if isinstance(line, ast.FunctionDef | ast.ClassDef)]
            exec(compile(ast.Module(defined, []), cell.id, "exec"), names)
    return names


def like(by_hand, theirs):
    """The notebook's model with the weights of mmlib's."""
    embedding = theirs.text.embed.weight
    model = by_hand["Links"](embedding, theirs.image.in_features, theirs.image.out_features)
    weights = theirs.state_dict().items()
    model.load_state_dict({name.removeprefix("text."): value for name, value in weights})
    return model


@pytest.mark.parametrize("seed", range(3))
def test_similarities_by_hand_are_those_of_mmlib_on_uneven_documents(by_hand, seed):
    arrays = uneven(seed)
    theirs = net(arrays, HOW)
    model, batch = like(by_hand, theirs), Batches(arrays, "train", "cpu").batch(range(7))
    cosines, rows, columns = theirs(batch)
    for name in ("DC", "AP"):
        found = by_hand["similarities"](model, batch, by_hand[name.lower()])
        right = method.set_similarity(cosines, rows, columns, SYSTEMS[name])
        torch.testing.assert_close(found, right, atol=1e-5, rtol=0)
    for hard, name in ((True, "hard"), (False, "mean")):
        loss = by_hand["document_loss"](found, hard)
        assert loss.item() == pytest.approx(brute_loss(found.detach().numpy(), 0.2, name), abs=1e-6)
    loss.backward()
    method.document_loss(right, 0.2, "mean").backward()
    torch.testing.assert_close(model.image.weight.grad, theirs.image.weight.grad)


@pytest.mark.parametrize(("n", "m"), list(product((1, 2, 4), repeat=2)))
def test_similarities_by_hand_are_the_best_of_all_choices(by_hand, n, m):
    cosines = 2 * torch.rand(n, m, generator=torch.Generator().manual_seed(n + 5 * m)) - 1
    assert by_hand["dc"](cosines).item() == pytest.approx(brute_dc(cosines.numpy()), abs=1e-6)
    for k in range(1, min(n, m) + 1):
        value, _ = brute_ap(cosines.numpy(), k)
        assert by_hand["ap"](cosines, k).item() == pytest.approx(value, abs=1e-6)


def test_the_text_says_what_its_evidence_holds():
    world, photographs = (show.mean_aucs(read("04", tier)) for tier in ("world", "flickr8k"))
    of_world, of_photographs = (
        {one.claim.id: one.record() for one in assess_paper("04", tier)}
        for tier in ("world", "flickr8k")
    )
    without = [table.drop(index=show.SEES_LINKS) for table in (world, photographs)]
    first, second = (table.idxmax() == "AP" for table in without)
    assert "AP has the highest mean in the world on all but *coco*" in TEXT
    assert first.index[~first].tolist() == ["coco"]
    assert "On photographs it has it on three of five" in TEXT
    assert (second.sum(), len(second)) == (3, 5)
    assert "It costs AP 14 points on stories" in TEXT
    assert round(of_world["C4"]["parts"]["story, AP"]["effect"]) == -14
    assert "it nearly always costs more than any difference in the paper's table" in TEXT
    costs = [part["effect"] < -1.2 for part in of_photographs["C4"]["parts"].values()]
    assert sum(costs) >= len(costs) - 1
    assert "is ahead of the mean of the set similarities on two data sets of the world" in TEXT
    verdicts = [part["verdict"] for part in of_world["C1a"]["parts"].values()]
    assert verdicts.count("opposite") == 2
    of_seeds = read("04", "world").means("story", "AP", "AUC")
    assert "although the seed of this run is one of its worst" in TEXT
    assert of_seeds[0] <= of_seeds.quantile(0.1)
    lead = (world.loc["AP"] - world.loc["NoStruct"])[["story", "cohesive"]]
    assert "far ahead of NoStruct on *story* and little ahead on *cohesive*" in TEXT
    assert lead["story"] > 20 > 5 > lead["cohesive"] > 0
