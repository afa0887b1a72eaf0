"""What notebook 03 builds in its cells is the method, and the notebook keeps to its size."""

from dataclasses import asdict, replace

import nbformat
import pytest
import torch
from scripts import ROOT
from tiny_cora import HOW, drawn_batch, model_of, paired
from torch import nn
from torch.nn import functional

from mmlib.papers.cora import method
from mmlib.papers.cora.run.systems import CORA

NOTEBOOK = ROOT / "notebooks" / "03_cora.ipynb"
BUILT = ("gat", "eq6", "encoder", "losses", "whole-loss")  # cells


@pytest.fixture(scope="module")
def cells():
    return nbformat.read(NOTEBOOK, 4).cells


@pytest.fixture(scope="module")
def built(cells):
    """The names that the cells define; of the last one only its function, without its check."""
    names = {"torch": torch, "nn": nn, "functional": functional, "method": method}
    sources = {cell.id: cell.source for cell in cells}
    for name in BUILT:
        exec(sources[name].partition("\n\n\nwith torch.no_grad")[0], names)
    return names


@pytest.fixture
def theirs():
    """The package's model and a batch, without dropout."""
    settings = replace(HOW, lambda_con=0.7, temperature=0.2)
    return model_of(settings, **asdict(CORA)).eval(), drawn_batch(paired(), rows=(0, 2, 5))


def test_the_encoder_of_the_notebook_is_that_of_the_package(built, theirs):
    model, batch = theirs
    settings = model.settings
    mine = built["GraphText"](model.texts.concepts, settings.width, settings.heads)
    mine.load_state_dict(model.texts.state_dict())
    for found, wanted in zip(mine(batch.text), model.texts(batch.text), strict=True):
        torch.testing.assert_close(found, wanted)
    with torch.no_grad():
        mine.context.active.weight.mul_(-1)
    assert not torch.allclose(mine(batch.text)[0], model.texts(batch.text)[0])


def test_the_losses_of_the_notebook_are_those_of_the_package(built, theirs):
    model, batch = theirs
    images = model.encode_images(batch.regions, batch.counts)
    encoded = images, *model.encode_texts(batch.text)
    found = built["cora_loss"](*encoded, batch, model.settings)
    torch.testing.assert_close(found, model.loss(batch))
    warmer = replace(model.settings, temperature=0.3)
    assert not torch.isclose(built["cora_loss"](*encoded, batch, warmer), model.loss(batch))
